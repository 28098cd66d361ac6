"""Reads Ollama's requests. Options that say how a server runs a model are dropped; what cannot be honoured is refused.

`keep_alive` is dropped, too: models stay loaded. `think` decides whether the agent sees the thinking, not whether a
model thinks.
"""

import time
from dataclasses import dataclass
from typing import Any

import msgspec

from leyden_gateway.ask import Ask, refused
from leyden_gateway.protocols.fields import read_fields, read_object
from leyden_gateway.protocols.ollama_turns import chat_messages

_Object = dict[str, Any]
_COMMON: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "stream": msgspec.json.Decoder(bool | None),
    "format": msgspec.json.Decoder(str | _Object | None),
    "options": msgspec.json.Decoder(_Object | None),
    "think": msgspec.json.Decoder(bool | str | None),
    "logprobs": msgspec.json.Decoder(bool | None),
    "top_logprobs": msgspec.json.Decoder(int | None),
    "keep_alive": msgspec.json.Decoder(Any),
}
_CHAT = _COMMON | {
    "messages": msgspec.json.Decoder(list[_Object]),
    "tools": msgspec.json.Decoder(list[_Object] | None),
}
_GENERATE = _COMMON | {
    "prompt": msgspec.json.Decoder(str),
    "system": msgspec.json.Decoder(str | None),
    "raw": msgspec.json.Decoder(bool | None),
}
_NAMES = {"repeat_penalty": "repetition_penalty"} | {
    name: name for name in ("top_k", "min_p", "typical_p", "seed", "stop", "presence_penalty", "frequency_penalty")
}
"""Ollama's option -> vLLM's."""
_OF_THE_SERVER = frozenset(
    {"num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa", "low_vram", "f16_kv"}
    | {"logits_all", "vocab_only", "use_mmap", "use_mlock", "embedding_only"}
)


class _Own(msgspec.Struct):
    """The options that the gateway itself reads."""

    temperature: float | None = None
    top_p: float | None = None
    num_predict: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What is remembered until the answer."""

    start_ns: int
    """When the request came, by `time.perf_counter_ns`."""
    think: bool


def read_chat(body: bytes) -> Ask:
    """Read a chat. Raises ApiError (400)."""
    found = _read(body, _CHAT, ("model", "messages"))
    tools = {"tools": found["tools"]} if found.get("tools") else {}
    return _ask(found, {"messages": chat_messages(found["messages"]), **tools})


def read_generate(body: bytes) -> Ask:
    """Read a generation: its prompt is what a user says, or with `raw` the very text. Raises ApiError (400)."""
    found = _read(body, _GENERATE, ("model", "prompt"))
    if not found["prompt"]:
        raise refused("`prompt` must not be empty: models need no loading")
    if not found.get("raw"):
        system = [{"role": "system", "content": found["system"]}] if found.get("system") else []
        return _ask(found, {"messages": [*system, {"role": "user", "content": found["prompt"]}]})
    unfit = [name for name in ("system", "logprobs") if found.get(name)]
    if unfit:
        raise refused(f"`{unfit[0]}` cannot be had with `raw`")
    return _ask(found, {"prompt": found["prompt"]})


def plain_name(model: str) -> str:
    """Return a model's name without the tag that some of Ollama's clients add; to `leyden/RUN:latest` it belongs."""
    return model if model.startswith("leyden/") else model.removesuffix(":latest")


def _read(body: bytes, known: dict[str, msgspec.json.Decoder[Any]], required: tuple[str, ...]) -> _Object:
    fields = read_object(body)
    given = {name for name, raw in fields.items() if bytes(raw) not in (b"null", b'""', b"[]", b"false")}
    unknown = sorted(given - known.keys())
    if unknown:
        raise refused(f"`{'` and `'.join(unknown)}` cannot be honoured here: leave it out")
    return read_fields(fields, known, required)


def _ask(found: _Object, fields: _Object) -> Ask:
    options = {name: value for name, value in (found.get("options") or {}).items() if value is not None}
    own = _own(options)
    tops = {"top_logprobs": found["top_logprobs"]} if found.get("logprobs") and found.get("top_logprobs") else {}
    return Ask(
        model=plain_name(found["model"]),
        fields={**fields, **_renamed(options), **_format(found.get("format")), **tops},
        endpoint="completions" if "prompt" in fields else "chat/completions",
        stream=found.get("stream") is not False,
        logprobs=bool(found.get("logprobs")),
        temperature=own.temperature,
        top_p=own.top_p,
        # -1 and -2 stand for no limit.
        max_tokens=None if own.num_predict in (-1, -2) else own.num_predict,
        note=Note(time.perf_counter_ns(), bool(found.get("think"))),
    )


def _own(options: _Object) -> _Own:
    try:
        return msgspec.convert(options, _Own)
    except msgspec.ValidationError as error:
        raise refused(f"`options`: {error}") from error


def _renamed(options: _Object) -> _Object:
    unknown = sorted(options.keys() - _NAMES.keys() - _OF_THE_SERVER - set(_Own.__struct_fields__))
    if unknown:
        raise refused(f"`options.{unknown[0]}` cannot be honoured here: leave it out")
    return {_NAMES[name]: value for name, value in options.items() if name in _NAMES}


def _format(given: str | _Object | None) -> _Object:
    if not given:
        return {}
    if given == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(given, str):
        raise refused("`format` must be `json` or a JSON schema")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "format", "schema": given}}}
