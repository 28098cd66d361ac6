"""Who a span says that it belongs to: in its own attributes, in its resource's, and in its sender's token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import TypeAdapter, ValidationError

from leyden_collector import wire
from leyden_collector.refusal import Refusal
from leyden_contracts import RunId
from leyden_contracts.ids import ObjectId
from leyden_runtime.tokens import Claims, Scope
from leyden_traces import names

_RUN_ID = TypeAdapter(RunId)
_OBJECT_ID = TypeAdapter(ObjectId)


@dataclass(frozen=True, slots=True)
class Identity:
    """Run, episode and attempt as text: numbers that came through an environment variable are text already."""

    run: str | None = None
    episode: str | None = None
    attempt: str | None = None

    def get(self, key: str) -> str | None:
        """Return what attribute `key` says."""
        return getattr(self, _FIELDS[key])

    def overridden_by(self, other: "Identity") -> "Identity":
        """Return this with what `other` says instead."""
        said = {name: getattr(other, name) for name in _FIELDS.values()}
        return replace(self, **{name: value for name, value in said.items() if value is not None})

    def attempt_of(self) -> tuple[str, int] | None:
        """Return episode and attempt, if they can be ones."""
        digits = (self.attempt or "").isdecimal() and len(self.attempt or "") < 10
        if not (self.episode and digits and _is(_OBJECT_ID, self.episode)):
            return None
        return self.episode, int(self.attempt or 0)


_FIELDS = {names.RUN: "run", names.EPISODE: "episode", names.ATTEMPT: "attempt"}
_NOBODY = Identity()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a token says, as text and as a span's serialized attribute."""

    value: str
    field: bytes


def stamps(claims: Claims) -> dict[str, Stamp]:
    """Return what an attempt's spans are stamped with, by attribute; nothing for others."""
    if claims.scope is not Scope.ATTEMPT:
        return {}
    return {key: _stamp(key, getattr(claims, name)) for key, name in _FIELDS.items()}


def by_key(attributes: Sequence[KeyValue]) -> dict[str, AnyValue]:
    """Return attributes by key. Raises Refusal if they say twice whose they are: readers would differ."""
    found = {attribute.key: attribute.value for attribute in attributes}
    if len(found) != len(attributes):
        keys = [attribute.key for attribute in attributes]
        for key in _FIELDS:
            if keys.count(key) > 1:
                raise Refusal("malformed", f"{key} is given twice")
    return found


def said_by(attributes: dict[str, AnyValue]) -> Identity:
    """Return what attributes say."""
    said = {name: _plain(attributes[key]) for key, name in _FIELDS.items() if key in attributes}
    return Identity(**said) if said else _NOBODY


def is_run(run: str) -> bool:
    """Say whether `run` can be a run's id."""
    return _is(_RUN_ID, run)


@lru_cache(maxsize=1024)
def _is(kind: TypeAdapter[str], text: str) -> bool:
    try:
        kind.validate_python(text)
    except ValidationError:
        return False
    return True


def _plain(value: AnyValue) -> str:
    return str(getattr(value, value.WhichOneof("value") or "string_value"))


def _stamp(key: str, value: str | int) -> Stamp:
    said = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    attribute = KeyValue(key=key, value=said).SerializeToString()
    return Stamp(str(value), wire.delimited(Span.ATTRIBUTES_FIELD_NUMBER, attribute))
