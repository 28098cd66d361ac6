"""Which groups make a step: each once, whatever has a signal, finishes first, or dies."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leyden_contracts import Algorithm, Group
from leyden_learner.choice import StepChooser, asked_for
from leyden_learner.staleness import is_stale
from support.learning import RUN


class PacedRun:
    """A run as the ledger paces it (`release.lua`), and a learner that takes its steps, without their contents."""

    def __init__(self, algorithm: Algorithm, signals: Sequence[bool]) -> None:
        self.algorithm, self.signals = algorithm, signals
        self.released = self.ready = self.asked = 0
        self.running: list[int] = []
        self.finished: list[int] = []
        self.sampled: dict[int, int] = {}
        """Group -> the version that it was sampled from."""
        self.steps: list[list[int]] = []
        self.stale: set[int] = set()
        self.reads = self.judged = 0
        self.restart()

    def restart(self) -> None:
        """Lose everything that is not in a checkpoint, as kill -9 does."""
        self.trainer = SimpleNamespace(
            spec=SimpleNamespace(algorithm=self.algorithm), version=len(self.steps), has_signal=self._has_signal
        )
        self.chooser = StepChooser(self, self.trainer)

    def _has_signal(self, trajectories: Sequence[int]) -> bool:
        (group,) = trajectories
        self.judged += 1
        if is_stale(self.sampled[group], self.trainer.version, self.algorithm.max_staleness):
            self.stale.add(group)
            return False
        return self.signals[group]

    @property
    def consumed(self) -> list[int]:
        return [group for step in self.steps for group in step]

    async def peek(self, count: int) -> list[Group]:
        waiting = self.finished[len(self.consumed) :][:count]
        fields = {"run": RUN, "task": "t", "purpose": "train", "size": 2}
        return [Group(id=f"g{number}", sequence=number, **fields) for number in waiting]

    async def trajectories(self, group: Group) -> list[int]:
        self.reads += 1
        return [group.sequence]

    def release(self) -> None:
        steps = self.ready + 1 + self.algorithm.max_staleness
        room = self.algorithm.groups_per_step * steps + self.asked
        while self.released < min(room, len(self.signals)):
            self.sampled[self.released] = self.ready
            self.running.append(self.released)
            self.released += 1

    def finish(self, place: int) -> None:
        if self.running:
            self.finished.append(self.running.pop(place % len(self.running)))

    async def advance(self) -> bool:
        """Do what the learner does; say whether it made a step."""
        last = len(self.finished) == len(self.signals)
        seen = await self.chooser.look()
        asked = asked_for(self.algorithm, self.trainer.version, len(self.consumed), seen.silent)
        self.asked = max(self.asked, asked)
        if not seen.groups or (not seen.full and not last):
            return False
        self.steps.append([group.sequence for group in seen.groups])
        self.trainer.version += 1
        return True


@st.composite
def paced_runs(draw: st.DrawFn) -> PacedRun:
    wanted = draw(st.integers(1, 3))
    dynamic = draw(st.booleans())
    selection = {"dynamic": True, "most_groups_per_step": draw(st.integers(wanted + 1, 9))} if dynamic else {}
    staleness = draw(st.integers(0, 2))
    algorithm = Algorithm(groups_per_step=wanted, max_staleness=staleness, selection=selection)
    return PacedRun(algorithm, draw(st.lists(st.booleans(), min_size=1, max_size=30)))


EVENTS = st.lists(
    st.tuples(st.sampled_from(["release", "finish", "learn", "prove", "kill"]), st.integers(0, 9)), max_size=80
)


async def live(run: PacedRun, events: Sequence[tuple[str, int]], in_order: bool) -> None:
    """Let `events` happen, then what is left to happen in a run that nobody disturbs."""
    for event, place in events:
        match event:
            case "release":
                run.release()
            case "finish":
                run.finish(0 if in_order else place)
            case "learn":
                await run.advance()
            case "prove":
                run.ready = len(run.steps)
            case "kill":
                run.restart()
    for _ in range(20 * len(run.signals)):
        run.release()
        run.finish(0)
        await run.advance()
        run.ready = len(run.steps)


@settings(max_examples=100)
@given(run=paced_runs(), events=EVENTS, in_order=st.booleans())
def test_every_group_is_consumed_once_and_no_run_stops_short(run: PacedRun, events: list, in_order: bool):
    asyncio.run(live(run, events, in_order))

    assert run.consumed == run.finished
    assert sorted(run.consumed) == list(range(len(run.signals)))
    wanted, most = run.algorithm.groups_per_step, run.algorithm.most_groups
    for step in run.steps[:-1]:
        telling = sum(run.signals[group] and group not in run.stale for group in step)
        full = telling == wanted if run.algorithm.selection.dynamic else len(step) == wanted
        assert full or len(step) == most
        assert len(step) <= most
    if in_order:
        assert not run.stale, "what is asked for is as fresh as what is released for a step"


def paced(signals: str, staleness: int = 0, **selection: object) -> PacedRun:
    algorithm = Algorithm(groups_per_step=2, max_staleness=staleness, selection={"dynamic": True, **selection})
    run = PacedRun(algorithm, [signal == "+" for signal in signals])
    run.release()
    return run


async def finish_all(run: PacedRun) -> None:
    run.release()
    while run.running:
        run.finish(0)


@pytest.mark.parametrize(("silent", "asked"), [(0, 4), (1, 5), (6, 10), (9, 10)])
def test_what_is_asked_for_follows_from_what_was_consumed(silent: int, asked: int):
    algorithm = Algorithm(groups_per_step=2, selection={"dynamic": True})
    assert asked_for(algorithm, steps=3, consumed=10, silent=silent) == asked


async def test_a_step_waits_for_groups_with_a_signal_and_asks_for_as_many_as_it_lacks():
    run = paced("--+-++++")
    await finish_all(run)
    assert (run.released, await run.advance(), run.asked) == (2, False, 2)
    await finish_all(run)
    assert (run.released, await run.advance(), run.asked) == (4, False, 3)
    await finish_all(run)
    assert (run.released, await run.advance()) == (5, True)
    assert run.steps == [[0, 1, 2, 3, 4]]
    assert (run.reads, run.judged) == (5, 5), "each once, however often it is looked at"


async def test_a_policy_that_always_succeeds_goes_on():
    run = paced("-" * 9, most_groups_per_step=4)
    for _ in range(4):
        await finish_all(run)
        await run.advance()
    assert (run.steps, run.asked) == ([[0, 1, 2, 3]], 2)


async def test_surplus_groups_stay_for_the_next_step_and_are_judged_again():
    run = paced("++++++", staleness=1)
    await finish_all(run)
    assert run.released == 4
    assert await run.advance()
    assert await run.advance(), "the version has not been proved, and need not be"
    assert (run.steps, run.asked, run.stale) == ([[0, 1], [2, 3]], 0, set())

    late = paced("++++++", staleness=1)
    await finish_all(late)
    late.sampled[3] = -1
    assert [await late.advance(), await late.advance()] == [True, False]
    assert (late.stale, late.asked) == ({3}, 1), "fresh enough for the first step, too old for the second"
