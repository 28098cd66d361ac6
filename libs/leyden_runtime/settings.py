"""Settings come from the environment. What is unknown or wrong is refused at start, with exit code 2."""

import os
import sys
from typing import Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

CLUSTER = "redis+cluster://"


class CommonSettings(BaseSettings):
    """What every service reads. A service's own settings subclass this with its own `env_prefix`."""

    model_config = SettingsConfigDict(extra="ignore", populate_by_name=True)

    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        validation_alias="LEYDEN_REDIS_URL",
        description="The ledger: `redis://`, `rediss://`, or `redis+cluster://` with any node's address",
    )
    broker_url: str = Field(
        default="",
        validation_alias="LEYDEN_BROKER_URL",
        description="The Redis of the doorbell; default: the ledger's. Celery cannot use a cluster",
    )
    store_url: str = Field(
        default="",
        validation_alias="LEYDEN_STORE_URL",
        description="`file:///absolute/folder` or `s3://bucket?endpoint=http://host:port`",
    )
    s3_access_key: str | None = Field(default=None, validation_alias="LEYDEN_S3_ACCESS_KEY")
    s3_secret_key: SecretStr | None = Field(default=None, validation_alias="LEYDEN_S3_SECRET_KEY")
    signing_key: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="LEYDEN_SIGNING_KEY",
        description="Signs every token; 32 characters or more",
    )
    engine_api_key: SecretStr = Field(default=SecretStr(""), validation_alias="LEYDEN_ENGINE_API_KEY")
    gateway_url: str = Field(default="http://127.0.0.1:8100", validation_alias="LEYDEN_GATEWAY_URL")
    collector_url: str = Field(default="http://127.0.0.1:4318", validation_alias="LEYDEN_COLLECTOR_URL")
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)

    @model_validator(mode="after")
    def _doorbell(self) -> Self:
        self.broker_url = self.broker_url or self.redis_url
        if self.broker_url.startswith(CLUSTER):
            raise ValueError("Celery cannot ring through a Redis Cluster: set LEYDEN_BROKER_URL to a single Redis")
        return self


S = TypeVar("S", bound=CommonSettings)


def load_settings(kind: type[S]) -> S:
    """Read `kind` from the environment, or say on stderr what is wrong and exit with code 2."""
    prefix = str(kind.model_config.get("env_prefix") or "LEYDEN_")
    known = {f"{prefix}{name}".upper() for name in kind.model_fields}
    known |= {str(field.validation_alias) for field in kind.model_fields.values() if field.validation_alias}
    problems = [
        f"{name}: no such setting; known ones: {', '.join(sorted(known))}"
        for name in os.environ
        if name.startswith(prefix) and prefix != "LEYDEN_" and name not in known
    ]
    try:
        settings = kind()
    except ValidationError as error:
        problems += [f"{_variable(kind, prefix, fault['loc'])}: {fault['msg']}" for fault in error.errors()]
    else:
        if not problems:
            return settings
    for problem in problems:
        print(f"settings: {problem}", file=sys.stderr)
    raise SystemExit(2)


def _variable(kind: type[CommonSettings], prefix: str, where: tuple[str | int, ...]) -> str:
    """Return the environment variable that a fault is about."""
    name = str(where[0]) if where else ""
    if name in kind.model_fields and not kind.model_fields[name].validation_alias:
        return f"{prefix}{name}".upper()
    return name or "settings"


def secret(value: SecretStr | None) -> str | None:
    """Return the text of a secret setting."""
    return value.get_secret_value() if value else None
