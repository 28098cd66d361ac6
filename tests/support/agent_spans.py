"""Spans of agents: made by hand in any convention, and captured ones of real instrumentations."""

import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from leyden_contracts import Trajectory, Transition
from leyden_traces import Fact, build_trajectory, decode_call, is_call, process_of, read_span
from support.spans import transition

_DATA = Path(__file__).parent.parent / "unit" / "traces" / "data"


def any_value(value: Any) -> AnyValue:
    """Return plain Python as an attribute's value."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=attributes(value)))
    return AnyValue(string_value=value) if value is not None else AnyValue()


def attributes(values: dict[str, Any]) -> list[KeyValue]:
    """Return plain Python as attributes."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def named(name: str) -> bytes:
    """Return a span id that is made of a name of up to 8 letters."""
    return name.encode().ljust(8, b"\0") if name else b""


def make_span(
    name: str, values: dict[str, Any] | None = None, *, parent: str = "", at: tuple[int, int] = (1, 2), error: str = ""
) -> Span:
    """Return a span whose id is its name; a JSON value is written as the instrumentations do, as text."""
    written = {
        key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in (values or {}).items()
    }
    status = Status(code=Status.STATUS_CODE_ERROR, message=error) if error else Status()
    return Span(
        name=name,
        trace_id=b"t" * 16,
        span_id=named(name),
        parent_span_id=named(parent),
        start_time_unix_nano=at[0],
        end_time_unix_nano=at[1],
        attributes=attributes(written),
        status=status,
    )


def add_event(span: Span, name: str, values: dict[str, Any]) -> None:
    """Add an event to a span."""
    span.events.add(name=name, attributes=attributes(values))


def fact(name: str, values: dict[str, Any] | None = None, *, process: str = "p", **more: Any) -> Fact:
    """Return what is read of such a span."""
    return read_span(make_span(name, values, **more), process)


def chat(reply: str, name: str = "", **more: Any) -> Fact:
    """Return the span of an LLM call with this reply's id."""
    return fact(name or f"l{reply}", {"gen_ai.operation.name": "chat", "gen_ai.response.id": reply}, **more)


def tool(name: str, arguments: Any = None, span: str = "", **more: Any) -> Fact:
    """Return the span of a tool."""
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if arguments is not None:
        values["gen_ai.tool.call.arguments"] = arguments
    if "call_id" in more:
        values["gen_ai.tool.call.id"] = more.pop("call_id")
    return fact(span or name, values, **more)


def captured(name: str) -> tuple[list[Transition], list[Fact]]:
    """Return the calls and the agent's spans of a file in `tests/unit/traces/data`."""
    request = json_format.ParseDict(
        json.loads((_DATA / f"{name}.json").read_text()), ExportTraceServiceRequest(), ignore_unknown_fields=True
    )
    calls: list[Transition] = []
    facts: list[Fact] = []
    for group in request.resource_spans:
        process = process_of(group.resource)
        for span in (span for scope in group.scope_spans for span in scope.spans):
            if is_call(span):
                calls.append(decode_call(span))
            else:
                facts.append(read_span(span, process))
    return calls, facts


def captured_names() -> list[str]:
    """Return the names of all captured files."""
    return sorted(path.stem for path in _DATA.glob("*.json"))


def assemble(calls: list[Transition], facts: list[Fact], /, **more: Any) -> Trajectory:
    """Return the trajectory of an attempt with these calls and spans."""
    first = calls[0] if calls else transition()
    whole = {
        "run": first.run,
        "group": "g-0",
        "episode": first.episode,
        "task": "t",
        "attempt": first.attempt,
        "purpose": "train",
        "reward": 1.0,
        "calls": len(calls),
        "transitions": calls,
        "facts": facts,
    }
    return build_trajectory(**(whole | more))
