"""How a call is sampled: what the run imposes, and what it leaves to the agent."""

from dataclasses import dataclass
from typing import Any

from leyden_contracts import Bounds, Purpose, RunSpec
from leyden_gateway.ask import Ask

_OTHERS = frozenset({
    "top_k", "min_p", "typical_p", "seed", "logit_bias", "bad_words", "allowed_token_ids", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "length_penalty", "min_tokens", "ignore_eos", "use_beam_search",
    "best_of", "logits_processors", "vllm_xargs",
})  # fmt: skip
"""Fields that change the distribution tokens are sampled from. For a trained role the run alone decides it."""
_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said aloud, because vLLM otherwise takes them from the model's own `generation_config.json`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """How one call is sampled."""

    temperature: float
    fields: dict[str, Any]
    """What the replica is asked, without the model."""


def imposed(ask: Ask, spec: RunSpec, role: str, purpose: Purpose) -> Sampled:
    """Return how a call of `role` is sampled.

    A trained role samples as the run says, so that the recorded logprobs are of a known distribution; of the agent's
    wishes only a smaller length and `stop` stay, and what the run bounds and does not set. Any other role samples as
    the agent says.
    """
    if not spec.roles[role].trained:
        return wished(ask)
    sampling = spec.sampling
    evaluating = purpose == "eval"
    temperature = _within(sampling.eval_temperature if evaluating else sampling.temperature, ask.temperature)
    top_p = _within(sampling.eval_top_p if evaluating else sampling.top_p, ask.top_p)
    longest = (sampling.eval_max_tokens if evaluating else None) or sampling.max_tokens
    bound = longest if ask.max_tokens is None else min(ask.max_tokens, longest)
    fields = {name: value for name, value in ask.fields.items() if name not in _OTHERS}
    return Sampled(temperature, {**fields, **_NEUTRAL, "temperature": temperature, "top_p": top_p, "max_tokens": bound})


def wished(ask: Ask) -> Sampled:
    """Return how a call is sampled when the agent alone decides."""
    temperature = 1.0 if ask.temperature is None else ask.temperature
    wishes = {"top_p": ask.top_p, "max_tokens": ask.max_tokens}
    given = {name: value for name, value in wishes.items() if value is not None}
    return Sampled(temperature, {**ask.fields, "temperature": temperature, **given})


def _within(rule: float | Bounds, wish: float | None) -> float:
    if not isinstance(rule, Bounds):
        return rule
    return min(max(rule.default if wish is None else wish, rule.low), rule.high)
