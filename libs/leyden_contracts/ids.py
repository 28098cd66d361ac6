"""Ids: how they are made and which strings are accepted as one.

Every id is safe as a path segment, a Redis key part and a Prometheus label: names are validated here, before they
touch a path.
"""

import hashlib
import json
import secrets
from typing import Annotated, Any

from pydantic import StringConstraints

RunId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,47}$")]
"""Lower-case letters, digits and `-`; at most 48 characters."""

RoleName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_]{0,31}$")]
"""Lower-case letters, digits and `_`; at most 32 characters. No `-`: adapter names join parts with `--`."""

TenantName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,47}$")]
"""Lower-case letters, digits and `-`; at most 48 characters."""

ObjectId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,127}$")]
"""Task, group and episode ids."""


def content_id(value: Any) -> str:
    """Return 24 hex digits of the sha256 of `value`'s canonical JSON: the same content has the same id."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def new_run_id() -> str:
    """Return a fresh, random run id."""
    return "run-" + secrets.token_hex(6)


def group_id(task: str, batch: str, number: int) -> str:
    """Return the id of the group of the `number`-th task (from 0) of the upload `batch`; deterministic."""
    return f"{task}-{batch[:12]}-{number}"


def episode_id(group: str, index: int) -> str:
    """Return the id of the `index`-th episode of `group`; deterministic, so a retried upload makes no new one."""
    return f"{group}.{index}"
