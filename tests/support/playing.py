"""Plays groups to their end in a real ledger and store, as workers, gateway and collector would."""

from collections.abc import Callable, Sequence

from leyden_contracts import AttemptResult, FailureReason, RunSpec, Trajectory
from leyden_ledger import Ending, Ledger, SpanNote
from leyden_storage import ObjectStore
from leyden_storage.trajectories import write_batch
from support import episodes
from support.episodes import Planned
from support.learning import RUN, make_call, make_trajectory

FAILS = None
"""Instead of a reward: the episode fails."""


async def accept(ledger: Ledger, spec: RunSpec, groups: Sequence[str], store: ObjectStore | None = None) -> None:
    """Enter the run and its groups, and let all that may run be released; with `store`, the upload is in it."""
    run = str(spec.id)
    await ledger.runs.create(spec)
    await episodes.accept(ledger, run, [Planned(g, g, size=spec.group_size) for g in groups], store)
    await ledger.episodes.release(run)


def played(run: str, group: str, index: int, reward: float, version: int = 0, attempt: int = 1) -> Trajectory:
    """Return the trajectory of an episode of two turns."""
    episode, more = f"{group}.{index}", {"version": version, "attempt": attempt}
    first = make_call(episode, 1, prompt=(1, 2, 3), response=(4 + index, 9), **more)
    second = make_call(episode, 2, prompt=(1, 2, 3, 4 + index, 9, 7), response=(20 + index,), **more)
    calls = [call.model_copy(update={"run": run}) for call in (first, second)]
    return make_trajectory(group, index, reward, calls, run=run, attempt=attempt)


async def play(
    ledger: Ledger,
    store: ObjectStore,
    group: str,
    rewards: Sequence[float | None],
    version: int = 0,
    run: str = RUN,
    stored: bool = True,
    make: Callable[..., Trajectory] = played,
) -> None:
    """Run the group's episodes to their end, as `make` has them; without `stored` their trajectories get lost."""
    for index, reward in enumerate(rewards):
        episode = f"{group}.{index}"
        claim = await ledger.episodes.claim(run, episode, "worker", 60)
        assert claim is not None
        if reward is FAILS:
            result = AttemptResult(outcome="failed", reason=FailureReason.AGENT_ERROR)
            await ledger.episodes.close(run, episode, claim.attempt, result)
            continue
        trajectory = make(run, group, index, reward, version, claim.attempt)
        for call in trajectory.transitions:
            await ledger.calls.pin(run, episode, claim.attempt, version)
            await ledger.calls.count(run, episode, claim.attempt)
            await ledger.assembly.note_spans(run, [SpanNote(episode, claim.attempt, call.number, "segment")])
        await ledger.episodes.close(run, episode, claim.attempt, AttemptResult(outcome="graded", reward=reward))
        await settle(ledger, run, trajectory, store=store if stored else None)


async def settle(ledger: Ledger, run: str, *trajectories: Trajectory, store: ObjectStore | None = None) -> str:
    """End the closed attempts of these, in a batch of their own, as a collector would; return the batch's name."""
    batch = await ledger.assembly.due(run, 60)
    assert batch is not None
    members = [(closed.episode, closed.attempt) for closed in batch.members]
    assert members == [(one.episode, one.attempt) for one in trajectories]
    if store:
        assert write_batch(store, run, batch.name, trajectories)
    assert await ledger.assembly.settle(batch, members) is Ending.SETTLED
    return batch.name


async def settle_all(ledger: Ledger, run: str) -> None:
    """Let every closed attempt have succeeded, without a trajectory."""
    while batch := await ledger.assembly.due(run, 60):
        await ledger.assembly.settle(batch, [(closed.episode, closed.attempt) for closed in batch.members])
