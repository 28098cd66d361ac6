"""Anthropic's list of models (`GET /v1/models`)."""

from collections.abc import Sequence
from typing import Any


def page(names: Sequence[str]) -> dict[str, Any]:
    """Return all models as one page."""
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"data": [model(name) for name in names], "has_more": False, **ends}


def model(name: str) -> dict[str, Any]:
    """Return one model. Names are those of a run: when each was made is not known, and the epoch stands for that."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }
