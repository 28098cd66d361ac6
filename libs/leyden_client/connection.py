"""Where the task API is: options, the environment, or what `leyden up` wrote."""

import os
from pathlib import Path

from pydantic import BaseModel, ValidationError

from leyden_client.client import LeydenClient
from leyden_client.errors import InputError

DATA_DIR = Path(".leyden")
FILE = "connection.json"


class Connection(BaseModel):
    """What `leyden up` writes to `connection.json` in its data folder."""

    api_url: str = ""
    token: str = ""
    redis_url: str = ""
    store_url: str = ""

    def client(self) -> LeydenClient:
        """Return a client. Raises InputError."""
        missing = [name for name, value in (("URL", self.api_url), ("TOKEN", self.token)) if not value]
        if missing:
            needed = " and ".join(f"LEYDEN_API_{name}" for name in missing)
            raise InputError(f"no task API is known: start one with `leyden up`, or set {needed}")
        return LeydenClient(self.api_url, self.token)


def find_connection(api_url: str | None, api_token: str | None, data_dir: Path = DATA_DIR) -> Connection:
    """Return the connection: what is given, then the environment, then the file. Raises InputError."""
    found = _written(data_dir)
    given = {
        "api_url": api_url or os.environ.get("LEYDEN_API_URL"),
        "token": api_token or os.environ.get("LEYDEN_API_TOKEN"),
        "redis_url": os.environ.get("LEYDEN_REDIS_URL"),
        "store_url": os.environ.get("LEYDEN_STORE_URL"),
    }
    return found.model_copy(update={name: value for name, value in given.items() if value})


def _written(data_dir: Path) -> Connection:
    path = data_dir / FILE
    try:
        return Connection.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Connection()
    except (OSError, ValidationError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
