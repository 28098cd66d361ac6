"""Prefix merge: a call's prompt mostly repeats what an earlier call of its episode was shown and answered.

Such a prompt is stored as a reference to that call, the number of tokens that they share, and the rest. It need not go
on where the earlier call ended: agents rewrite their history, and a chat template tokenises it anew.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

_TOKEN_BYTES = 4


class Merged(NamedTuple):
    """A prompt, told by an earlier call of its episode."""

    base: int
    """Which call, counted from 1; 0 if none shares anything."""
    shared: int
    """How many tokens of that call's prompt and response this prompt begins with."""
    rest: bytes
    """The other tokens, packed."""


def merge_prompts(calls: Iterable[tuple[bytes, bytes]]) -> list[Merged]:
    """Return what to store of each call's prompt, given (prompt ids, response ids) in order, both packed int32.

    The base is the call with the longest common prefix; of several, the latest.
    """
    merged: list[Merged] = []
    earlier: list[bytes] = []
    for prompt, response in calls:
        base, shared = _longest(prompt, earlier)
        merged.append(Merged(base, shared, prompt[shared * _TOKEN_BYTES :]))
        earlier.append(prompt + response)
    return merged


def restore_prompts(merged: Iterable[tuple[int, int, bytes]], responses: Sequence[bytes]) -> list[bytes]:
    """Return the prompts that `merge_prompts` was given. Raises ValueError if a base is none."""
    prompts: list[bytes] = []
    for base, shared, rest in merged:
        if not 0 <= base <= len(prompts):
            raise ValueError(f"call {len(prompts) + 1} goes on from call {base}")
        if base:
            rest = (prompts[base - 1] + responses[base - 1])[: shared * _TOKEN_BYTES] + rest
        prompts.append(rest)
    return prompts


def _longest(prompt: bytes, earlier: Sequence[bytes]) -> tuple[int, int]:
    base, best = 0, 0  # the number of a call, and tokens
    for number in range(len(earlier), 0, -1):
        known, end = earlier[number - 1], (best + 1) * _TOKEN_BYTES
        # Most calls are passed over here: one that shares more has the same token just behind the best prefix.
        if len(known) < end or len(prompt) < end or known[end - _TOKEN_BYTES : end] != prompt[end - _TOKEN_BYTES : end]:
            continue
        shared = _common(prompt, known)
        if shared > best:
            base, best = number, shared
    return base, best


def _common(one: bytes, other: bytes) -> int:
    """Return how many tokens at the start are the same."""
    count = min(len(one), len(other))
    differ = np.frombuffer(one, np.uint8, count) != np.frombuffer(other, np.uint8, count)
    first = int(differ.argmax()) if count else 0
    return (first if count and differ[first] else count) // _TOKEN_BYTES
