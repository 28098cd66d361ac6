"""Played episodes as the trajectories that the learner reads."""

from collections.abc import Callable

import numpy as np

from learning.playing import Ask, Played
from leyden_contracts import Signal, Trajectory, Transition, Verdict
from leyden_engine.job import Job

RUN = "lab"


def record(played: Played, group: str, index: int, version: Callable[[str], int], signals: bool) -> Trajectory:
    """Return the trajectory of one episode.

    Args:
        played: the episode.
        group: its group's id.
        index: its place in the group.
        version: role -> the policy version that answered.
        signals: whether the calls' intermediate rewards are recorded.
    """
    episode = f"{group}.{index}"
    calls = [_call(episode, number, ask, job, version) for number, (ask, job) in enumerate(played.calls, 1)]
    values = enumerate(played.outcome.signals, 1) if signals else ()
    return Trajectory(
        run=RUN,
        group=group,
        episode=episode,
        task=group,
        attempt=1,
        purpose="train",
        reward=played.outcome.reward,
        verdict=Verdict.COMPLETE,
        transitions=tuple(calls),
        signals=tuple(Signal(call=number, name="outcome", value=value) for number, value in values),
    )


def _call(episode: str, number: int, ask: Ask, job: Job, version: Callable[[str], int]) -> Transition:
    return Transition(
        run=RUN,
        episode=episode,
        attempt=1,
        number=number,
        role=ask.role,
        policy_version=version(ask.role),
        prompt_token_ids=np.asarray(ask.prompt, "<i4").tobytes(),
        response_token_ids=np.asarray(job.tokens, "<i4").tobytes(),
        response_logprobs=np.asarray(job.logprobs, "<f4").tobytes(),
        temperature=job.sampling.temperature,
        finish_reason=job.finish_reason,
        response_id=f"{episode}-{number}",
        replica="lab",
    )
