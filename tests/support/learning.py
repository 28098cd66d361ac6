"""A tiny random Llama, and trajectories made by hand, for the learner's tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leyden_contracts import RunSpec, Trajectory, Transition, Verdict

RUN = "run-learn"
VOCABULARY = 64


def save_tiny_llama(folder: Path, hidden: int = 32, layers: int = 2, vocabulary: int = VOCABULARY) -> Path:
    """Write a randomly initialised Llama; returns its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make_spec(*, group_size: int = 4, seed: int = 0, roles: dict[str, Any] | None = None, **algorithm: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "id": RUN,
            "base_model": "tiny",
            "agent": "agents:agent",
            "grader": "agents:grader",
            "group_size": group_size,
            "seed": seed,
            "roles": roles or {"policy": {}},
            "algorithm": {"learning_rate": 1e-2, "groups_per_step": 2} | algorithm,
        }
    )


def make_call(
    episode: str,
    number: int = 1,
    *,
    prompt: Sequence[int] = (1, 2, 3),
    response: Sequence[int] = (4, 5),
    logprobs: Sequence[float] | None = None,
    role: str = "policy",
    version: int = 0,
    temperature: float = 1.0,
    attempt: int = 1,
) -> Transition:
    """Return one call; without `logprobs` they are those of a uniform distribution."""
    known = [-float(np.log(VOCABULARY))] * len(response) if logprobs is None else logprobs
    return Transition(
        run=RUN,
        episode=episode,
        attempt=attempt,
        number=number,
        role=role,
        policy_version=version,
        prompt_token_ids=np.asarray(prompt, "<i4").tobytes(),
        response_token_ids=np.asarray(response, "<i4").tobytes(),
        response_logprobs=np.asarray(known, "<f4").tobytes(),
        temperature=temperature,
        finish_reason="stop",
        response_id=f"chat-{episode}-{number}",
        replica="replica-0",
    )


def make_trajectory(
    group: str, index: int, reward: float, calls: Sequence[Transition] | None = None, **more: Any
) -> Trajectory:
    """Return a complete training trajectory of one call, or of `calls`."""
    episode = f"{group}.{index}"
    return Trajectory(
        **{
            "run": RUN,
            "group": group,
            "episode": episode,
            "task": group,
            "attempt": 1,
            "purpose": "train",
            "reward": reward,
            "verdict": Verdict.COMPLETE,
            "transitions": tuple(calls) if calls is not None else (make_call(episode, response=(4 + index, 9)),),
        }
        | more
    )


def make_group(group: str, rewards: Sequence[float], **call: Any) -> tuple[str, list[Trajectory]]:
    """Return a group whose episodes answer differently, with these rewards."""
    return group, [
        make_trajectory(group, i, reward, [make_call(f"{group}.{i}", **{"response": (4 + i, 9)} | call)])
        for i, reward in enumerate(rewards)
    ]
