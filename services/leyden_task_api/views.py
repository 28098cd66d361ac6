"""From what is stored to what is shown."""

from dataclasses import asdict

import numpy as np

from leyden_contracts import RewardVersion, RunSpec, Trajectory, Transition
from leyden_contracts.api import (
    AdapterView,
    CallView,
    EvalMean,
    RewardVersionHead,
    RunCounters,
    RunMetrics,
    RunView,
    TrajectoryHead,
    TrajectoryView,
)
from leyden_ledger import RunSummary


def run_view(spec: RunSpec, summary: RunSummary) -> RunView:
    """Return a run as shown."""
    return RunView(spec=spec, summary=RunCounters.model_validate(asdict(summary)))


def trajectory_view(trajectory: Trajectory) -> TrajectoryView:
    """Return a trajectory with its tokens unpacked."""
    head = trajectory.model_dump(exclude={"transitions"})
    return TrajectoryView(**head, calls=[_call(step) for step in trajectory.transitions])


def head_view(trajectory: Trajectory) -> TrajectoryHead:
    """Return a trajectory without its tokens."""
    same = {"episode", "group", "task", "attempt", "purpose", "reward", "rewards", "verdict", "output"}
    packed = (call.prompt_token_ids + call.response_token_ids for call in trajectory.transitions)
    return TrajectoryHead(
        **trajectory.model_dump(include=same),
        calls=len(trajectory.transitions),
        tokens=sum(map(len, packed)) // 4,
        steps=len(trajectory.steps),
        texts=len(trajectory.texts),
    )


def rewards_view(rewards: RewardVersion) -> RewardVersionHead:
    """Return a reward version without its lines."""
    total = sum(line.reward for line in rewards.lines)
    return RewardVersionHead(
        **rewards.model_dump(include={"version", "grader", "grader_sha256", "created"}),
        scored=len(rewards.lines),
        failed=len(rewards.failed),
        mean=total / len(rewards.lines) if rewards.lines else None,
    )


def _call(step: Transition) -> CallView:
    packed = {"prompt_token_ids", "response_token_ids", "response_logprobs", "run", "episode", "attempt"}
    return CallView(
        **step.model_dump(exclude=packed),
        prompt_token_ids=np.frombuffer(step.prompt_token_ids, "<i4").tolist(),
        response_token_ids=np.frombuffer(step.response_token_ids, "<i4").tolist(),
        response_logprobs=np.frombuffer(step.response_logprobs, "<f4").tolist(),
    )


def metrics_view(summary: RunSummary, versions: list[AdapterView]) -> RunMetrics:
    """Return a run's curves."""
    means = {name: EvalMean(mean=total / n, episodes=n) for name, (total, n) in summary.rewards.items() if n}
    evals = {int(name.removeprefix("eval:")): mean for name, mean in means.items() if name.startswith("eval:")}
    return RunMetrics(train=means.get("train"), evals=dict(sorted(evals.items())), versions=versions)
