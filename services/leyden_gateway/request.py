"""The agent's request: read as little as needed, and turned into what the replica is asked.

Values that the gateway does not need stay the bytes that the agent sent.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from leyden_contracts import Purpose, RunSpec
from leyden_gateway.errors import ApiError

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_READ: dict[str, msgspec.json.Decoder[Any]] = {
    "model": msgspec.json.Decoder(str),
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(dict[str, Any] | None),
    "n": msgspec.json.Decoder(int | None),
    "max_tokens": msgspec.json.Decoder(int | None),
    "max_completion_tokens": msgspec.json.Decoder(int | None),
    "logprobs": msgspec.json.Decoder(bool | None),
    "temperature": msgspec.json.Decoder(float | None),
}

_NEVER = ("include_reasoning", "return_token_ids", "return_tokens_as_token_ids", "prompt_logprobs", "echo")
"""Fields that change what a reply holds; `include_reasoning: false` makes vLLM leave out ids and logprobs."""
_SAMPLING = (
    "top_p", "top_k", "min_p", "typical_p", "seed", "logit_bias", "bad_words", "allowed_token_ids",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty", "min_tokens", "ignore_eos",
    "use_beam_search", "best_of", "logits_processors", "vllm_xargs",
)  # fmt: skip
"""Fields that change the distribution tokens are sampled from. For a trained role the run alone decides it."""
_NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said aloud, because vLLM otherwise takes them from the model's own `generation_config.json`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What an agent asked for."""

    model: str
    stream: bool
    include_usage: bool
    logprobs: bool
    temperature: float
    max_tokens: int | None
    rest: dict[str, msgspec.Raw]
    """Every field that the gateway passes on untouched."""


def read_ask(body: bytes) -> Ask:
    """Read the body of a chat completion. Raises ApiError (400)."""
    try:
        fields = _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(f"the body must be one JSON object: {error}") from error
    missing = {"model", "messages"} - fields.keys()
    if missing:
        raise _refused(f"`{'` and `'.join(sorted(missing))}` must be given")
    found = {name: _read(name, fields[name]) for name in _READ.keys() & fields.keys()}
    if found.get("n") not in (None, 1):
        raise _refused(f"`n` must be 1, not {found['n']}: make one call for each sample")
    temperature = found.get("temperature")
    return Ask(
        model=found["model"],
        stream=bool(found.get("stream")),
        include_usage=bool((found.get("stream_options") or {}).get("include_usage")),
        logprobs=bool(found.get("logprobs")),
        temperature=1.0 if temperature is None else temperature,
        max_tokens=_limit(found.get("max_tokens"), found.get("max_completion_tokens")),
        rest={name: value for name, value in fields.items() if name not in _READ and name not in _NEVER},
    )


def imposed(ask: Ask, spec: RunSpec, role: str, purpose: Purpose) -> tuple[float, dict[str, Any]]:
    """Return the temperature to record, and the sampling fields of the upstream request without the model.

    A trained role samples as the run says, so that the recorded logprobs are of a known distribution; of the agent's
    wishes only a smaller `max_tokens` and `stop` stay. A frozen role samples as the agent says.
    """
    if not spec.roles[role].trained:
        limit = {} if ask.max_tokens is None else {"max_tokens": ask.max_tokens}
        return ask.temperature, {**ask.rest, "temperature": ask.temperature, **limit}
    sampling = spec.sampling
    temperature = sampling.eval_temperature if purpose == "eval" else sampling.temperature
    bound = sampling.max_tokens if ask.max_tokens is None else min(ask.max_tokens, sampling.max_tokens)
    fields = {name: value for name, value in ask.rest.items() if name not in _SAMPLING}
    return temperature, {**fields, **_NEUTRAL, "temperature": temperature, "max_tokens": bound}


def upstream_body(model: str, fields: dict[str, Any]) -> bytes:
    """Return the body to send to a replica: never streamed, always with token ids and logprobs."""
    return msgspec.json.encode({**fields, "model": model, "stream": False, "logprobs": True, "return_token_ids": True})


def _read(name: str, raw: msgspec.Raw) -> Any:
    try:
        return _READ[name].decode(raw)
    except msgspec.DecodeError as error:
        raise _refused(f"`{name}`: {error}") from error


def _limit(*asked: int | None) -> int | None:
    limit = min((number for number in asked if number is not None), default=None)
    if limit is not None and limit < 1:
        raise _refused("`max_tokens` must be at least 1")
    return limit


def _refused(message: str) -> ApiError:
    return ApiError(400, "invalid_request", message)
