"""The base of every message: immutable, and strict about keys it does not know."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen pydantic model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
