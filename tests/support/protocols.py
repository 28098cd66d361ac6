"""What the tests of all protocols share: a finished reply, and a stream taken apart."""

import json
from typing import Any

from leyden_gateway.ask import Ask
from leyden_gateway.protocols.base import Dialect, Head
from leyden_gateway.reply import Reply, read_reply

LOGPROBS = [
    {"token": token, "logprob": -0.5 - place, "bytes": list(token.encode()), "top_logprobs": []}
    for place, token in enumerate(("hi", "<end>"))
]


def reply(message: dict | None = None, show_logprobs: bool = False, **choice: Any) -> Reply:
    """Return the reply of a replica to a chat request, or with `text` to a text completion."""
    if "text" not in choice:
        choice["message"] = message or {"role": "assistant", "content": "hi"}
    values = {"finish_reason": "stop", "token_ids": [3, 4], "logprobs": {"content": LOGPROBS}, **choice}
    usage = {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    body = {"id": "c1", "created": 7, "prompt_token_ids": [1, 2], "usage": usage, "choices": [values]}
    return read_reply(json.dumps(body).encode(), show_logprobs)


def read(dialect: Dialect, **fields: Any) -> Ask:
    """Read a request."""
    return dialect.read(json.dumps({"model": "m", **fields}).encode())


def events(body: bytes) -> list[dict]:
    """Return the data of server-sent events; a name must be the data's own type."""
    found = []
    for event in body.decode().removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in event.splitlines())
        if lines["data"] != "[DONE]":
            found.append(json.loads(lines["data"]))
            assert "event" not in lines or lines["event"] == found[-1]["type"]
    return found


def streamed(dialect: Dialect, ask: Ask, finished: Reply) -> list[dict]:
    """Return a finished reply as the events of a stream."""
    writer = dialect.events(ask, Head(finished.id, finished.created, finished.prompt_tokens))
    first, *rest = finished.deltas()
    parts = [writer.piece(0, first, finished.shown_logprobs), *(writer.piece(0, delta, None) for delta in rest)]
    return events(b"".join(parts) + writer.finish([finished]))
