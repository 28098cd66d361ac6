"""Quarantine: refused spans, kept for people with the reason, out of the way of everything else."""

import base64
import json
from collections.abc import Iterable

from leyden_collector.admission import Refused
from leyden_storage.keys import quarantine_key


def key(run: str | None, name: str) -> str:
    """Return the key of one quarantine object; spans of no known run have a folder of their own."""
    return quarantine_key(run, f"{name}.jsonl") if run else f"quarantine/{name}.jsonl"


def encode(refused: Iterable[Refused]) -> bytes:
    """Return one JSON line a span: `kind`, `reason`, and `span` (OTLP protobuf, base64)."""
    lines = (
        json.dumps(
            {"kind": one.kind, "reason": one.detail, "span": base64.b64encode(one.span).decode()},
            ensure_ascii=False,
        )
        for one in refused
    )
    return "".join(f"{line}\n" for line in lines).encode()
