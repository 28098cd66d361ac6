"""From what is stored to what is shown."""

from dataclasses import asdict

import numpy as np

from leyden_contracts import RunSpec, Trajectory, Transition
from leyden_contracts.api import AdapterView, CallView, EvalMean, RunCounters, RunMetrics, RunView, TrajectoryView
from leyden_ledger import RunSummary


def run_view(spec: RunSpec, summary: RunSummary) -> RunView:
    """Return a run as shown."""
    return RunView(spec=spec, summary=RunCounters.model_validate(asdict(summary)))


def trajectory_view(trajectory: Trajectory) -> TrajectoryView:
    """Return a trajectory with its tokens unpacked."""
    head = trajectory.model_dump(exclude={"transitions"})
    return TrajectoryView(**head, calls=[_call(step) for step in trajectory.transitions])


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
