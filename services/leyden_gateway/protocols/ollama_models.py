"""What Ollama's clients ask of models (`GET /api/tags`, `POST /api/show`). What is not known is left out."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leyden_contracts import RunSpec
from leyden_gateway.ask import refused
from leyden_gateway.protocols.fields import read_fields, read_object
from leyden_gateway.protocols.ollama_reading import plain_name

UNSUPPORTED = ("embed", "embeddings", "pull", "push", "create", "copy", "delete", "ps")
"""Paths under `/api/` that Ollama has and the gateway has not."""
_NAME = msgspec.json.Decoder(str)


def tags(names: Sequence[str]) -> dict[str, Any]:
    """Return the list of models."""
    return {"models": [{"name": name, "model": name} for name in names]}


def asked(body: bytes) -> str:
    """Return the model that `POST /api/show` names. Raises ApiError (400)."""
    found = read_fields(read_object(body), {"model": _NAME, "name": _NAME}, ())
    name = found.get("model") or found.get("name")
    if not name:
        raise refused("`model` must be given")
    return plain_name(name)


def show(spec: RunSpec, role: str) -> dict[str, Any]:
    """Describe a role's model: what it can do, and for one of the run's own what it was made from."""
    outside = spec.roles[role].outside is not None
    details = {} if outside else {"parent_model": spec.base_model, "format": "safetensors"}
    return {"details": details, "model_info": {}, "capabilities": ["completion", "tools"]}
