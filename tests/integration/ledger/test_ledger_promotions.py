"""Which version is the one to use: recorded once, rolled back, and kept on replicas after the run's end."""

import asyncio

import pytest

from leyden_contracts import Promotion
from leyden_ledger import Ledger, Outpaced, Promoted, RunNotFound
from leyden_ledger.archive import archive_run
from leyden_storage import LocalStore
from support.episodes import Planned, accept
from support.learning import RUN, make_spec
from support.playing import play


def entry(number: int, version: int, before: Promotion | None = None) -> Promotion:
    back = {"before": before.number, "predecessor": before.version} if before else {}
    return Promotion(run=RUN, number=number, version=version, cause="person", created=0.0, **back)


@pytest.fixture(autouse=True)
async def run(ledger: Ledger) -> None:
    await ledger.runs.create(make_spec(group_size=2, groups_per_step=1))


async def test_what_to_use_is_the_last_promotion_and_the_newest_proved_version(ledger: Ledger) -> None:
    assert await ledger.promotions.current(RUN) == Promoted(best=None, latest=0)
    await ledger.training.publish(RUN, 3)
    assert (await ledger.promotions.current(RUN)).latest == 0, "published is not proved"
    await ledger.replicas.mark_ready(RUN, 2)
    await ledger.replicas.mark_ready(RUN, 1)
    first = entry(1, 1)
    assert await ledger.promotions.record(first)
    assert await ledger.promotions.record(entry(2, 0, first))
    assert await ledger.promotions.current(RUN) == Promoted(best=0, latest=2)
    assert await ledger.promotions.history(RUN) == [first, entry(2, 0, first)]
    assert await ledger.promotions.proved(RUN, [0, 1, 2, 3]) == {0, 1, 2}
    with pytest.raises(RunNotFound):
        await ledger.promotions.current("absent")


async def test_a_promotion_is_taken_once_and_only_in_its_turn(ledger: Ledger) -> None:
    assert await ledger.promotions.record(entry(1, 1))
    assert not await ledger.promotions.record(entry(1, 1)), "a repeat changes nothing"
    for wrong in (entry(1, 2), entry(3, 2)):
        with pytest.raises(Outpaced):
            await ledger.promotions.record(wrong)
    rivals = [ledger.promotions.record(entry(2, version)) for version in range(2, 8)]
    outcomes = await asyncio.gather(*rivals, return_exceptions=True)
    assert sum(outcome is True for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Outpaced) for outcome in outcomes) == 5
    assert len(await ledger.promotions.history(RUN)) == 2


async def test_an_ended_run_keeps_its_latest_its_best_and_what_a_roll_back_needs(
    ledger: Ledger, store: LocalStore
) -> None:
    await accept(ledger, RUN, [Planned("g")])
    await ledger.episodes.release(RUN)
    await play(ledger, store, "g", [1.0, 0.0])
    await ledger.training.publish(RUN, 7)
    await ledger.replicas.mark_ready(RUN, 7)
    first, second = entry(1, 1), entry(2, 2)
    third = entry(3, 4, second)
    for one in (first, second, third):
        await ledger.promotions.record(one)
    await ledger.training.consumed(RUN, 1)
    await ledger.runs.seal(RUN)
    await ledger.runs.finish(RUN)
    assert await ledger.replicas.wanted(RUN) == {2, 4, 7}
    assert await archive_run(ledger, store, RUN) and await ledger.runs.rest(RUN)
    assert RUN not in await ledger.runs.active()
    assert await ledger.replicas.served_runs() == [RUN]
    assert await ledger.replicas.wanted(RUN) == {2, 4, 7}
    assert await ledger.promotions.current(RUN) == Promoted(best=4, latest=7)
    assert await ledger.promotions.history(RUN) == [first, second, third]
