"""How a tool was used: what it was given, what came of it, out of the wrappings that frameworks put around both."""

import ast
import hashlib
import json
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from leyden_traces.semantics.flat import within
from leyden_traces.semantics.values import MAX_NAME, MAX_TEXT, Attributes, as_text, clean, cut, from_json, to_json

_REFUSALS = ("validation", "inputparsing", "invalidargument", "argumenterror", "schemaerror", "jsondecodeerror")
"""In the names of exceptions by which tools refuse their arguments (pydantic, jsonschema, CrewAI, LangChain)."""
_WRAPPINGS = (("output", "kwargs"), ("outputs", "kwargs"), ("kwargs",), ("data",))
"""Where LangChain's message of a tool holds its content, as it is or inside what OpenLLMetry writes."""


def used(span: Span, given: Any, made: Any, call_id: str) -> dict[str, Any]:
    """Return the fields of a tool, agent or retriever that was given and made these (text, JSON, or plain Python).

    Args:
        span: tells whether it failed.
        given: its arguments.
        made: its result.
        call_id: of the tool call, if the instrumentation says so outside of `made`.
    """
    read, message = from_json(given), _message(from_json(made))
    arguments = _arguments(read)
    failed = span.status.code == Status.STATUS_CODE_ERROR
    fields = {
        "arguments": cut(as_text(given if arguments is read else arguments)),
        "same_arguments": _digest(arguments),
        "result": cut(as_text(message.get("content", made))),
        "tool_call_id": call_id or cut(as_text(message.get("tool_call_id")), MAX_NAME),
        "odd_arguments": failed and _refused(span),
    }
    if message.get("status") == "error":  # LangChain tells the model, and goes on
        return fields | {"failed": True, "error": fields["result"]}
    return fields


def _arguments(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    if "inputs" in given:
        given = given["inputs"]
    elif "input_str" in given:
        given = _literal(given["input_str"])
    return given


def _literal(text: Any) -> Any:
    """Return the dict that text as Python writes it stands for; anything else as it is."""
    if not isinstance(text, str) or not text.startswith("{") or len(text) > MAX_TEXT:
        return text
    try:
        found = ast.literal_eval(text)
        return json.loads(json.dumps(found, allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _message(made: Any) -> dict[str, Any]:
    """Return LangChain's message of a tool, without its wrappings; empty if it is none."""
    found = (within(made, *path) for path in _WRAPPINGS)
    return next((each for each in found if isinstance(each, dict) and "tool_call_id" in each), {})


def _refused(span: Span) -> bool:
    names = [Attributes(event.attributes).text("exception.type") for event in span.events]
    names.append(Attributes(span.attributes).text("error.type"))
    plain = [name.rpartition(".")[2].lower().replace("_", "") for name in names]
    return any(word in name for name in plain for word in _REFUSALS)


def _digest(arguments: Any) -> str:
    if arguments is None or arguments == "":
        return ""
    try:
        canonical = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    except (RecursionError, TypeError):
        canonical = to_json(arguments)
    return hashlib.sha256(clean(canonical).encode()).hexdigest()[:16]
