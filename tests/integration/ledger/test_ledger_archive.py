"""Ended runs leave Redis, and can be read as before."""

import pytest

from leyden_contracts import EpisodeState
from leyden_ledger import EpisodeNotFound, Ledger
from leyden_ledger import archive as archive_module
from leyden_ledger.archive import Archive, archive_run
from leyden_ledger.check import check_run
from leyden_ledger.store import key
from leyden_storage import LocalStore
from support.episodes import Planned, accept
from support.learning import RUN, make_spec
from support.playing import FAILS, play

GROUPS = [f"g{number}" for number in range(7)]


@pytest.fixture(autouse=True)
async def ended(ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run of 14 episodes, every other one failed; archives have parts of 4."""
    monkeypatch.setattr(archive_module, "_PART", 4)
    spec = make_spec(group_size=2, groups_per_step=7)
    await ledger.runs.create(spec.model_copy(update={"episodes": spec.episodes.model_copy(update={"max_attempts": 1})}))
    await accept(ledger, RUN, [Planned(group) for group in GROUPS], store)
    await ledger.episodes.release(RUN)
    for group in GROUPS:
        await play(ledger, store, group, [1.0, FAILS])
    await ledger.runs.seal(RUN)


async def finish(ledger: Ledger) -> None:
    await ledger.runs.finish(RUN)
    assert await ledger.runs.rest(RUN)


async def test_an_archived_run_reads_as_before(ledger: Ledger, store: LocalStore) -> None:
    await finish(ledger)
    archive = Archive(ledger, store)
    pages = [(None, 0, 100), (None, 3, 6), (None, 13, 5), (EpisodeState.FAILED, 0, 100), (EpisodeState.FAILED, 5, 3)]
    before = [await archive.list(RUN, state, None, start, count) for state, start, count in pages]
    summary, entries = await ledger.runs.summary(RUN), await ledger.redis.dbsize()
    assert len(before[0]) == 14 and [episode.id for episode in before[4]] == ["g5.1", "g6.1"]

    assert await archive_run(ledger, store, RUN)
    assert [await archive.list(RUN, state, None, start, count) for state, start, count in pages] == before
    assert await archive.get(RUN, "g3.1") == before[0][7]
    with pytest.raises(EpisodeNotFound):
        await archive.get(RUN, "g9.0")
    assert await ledger.runs.summary(RUN) == summary
    assert await check_run(ledger, store, RUN) == []
    left = [name async for name in ledger.redis.scan_iter(f"leyden:{{{RUN}}}:*")]
    assert sorted(name.rpartition(":")[2] for name in left) == ["counts", "failures", "rewards", "run", "uploads"]
    assert entries > 20
    assert not await archive_run(ledger, store, RUN), "there is nothing left"


async def test_a_run_that_is_not_over_stays(ledger: Ledger, store: LocalStore) -> None:
    assert not await archive_run(ledger, store, RUN), "the learner is not through"
    await finish(ledger)
    await accept(ledger, RUN, [Planned("late", purpose="eval")])
    assert not await archive_run(ledger, store, RUN)
    assert (await ledger.episodes.get(RUN, "g0.0")).state == "succeeded"


async def test_evaluations_of_an_archived_run_come_after_what_is_archived(ledger: Ledger, store: LocalStore) -> None:
    await finish(ledger)
    assert await archive_run(ledger, store, RUN)
    archive = Archive(ledger, store)
    for name in ("e", "f"):
        await accept(ledger, RUN, [Planned(name, purpose="eval", size=3)])
        ids = [episode.id for episode in await archive.list(RUN, start=12, count=100)]
        assert ids == ["g6.0", "g6.1", *(f"{n}.{i}" for n in "ef" if n <= name for i in range(3))]
        await play(ledger, store, name, [FAILS, FAILS, FAILS])
        assert await archive_run(ledger, store, RUN)
    assert len(await archive.list(RUN, count=100)) == 20
    assert len(await archive.list(RUN, EpisodeState.FAILED, count=100)) == 13
    assert len(await archive.list(RUN, EpisodeState.FAILED, "eval", count=100)) == 6


async def test_an_archive_that_was_cut_off_is_completed(ledger: Ledger, store: LocalStore) -> None:
    await finish(ledger)
    archive = Archive(ledger, store)
    before = await archive.list(RUN)
    calls = iter(range(9))

    async def cut(ledger: Ledger, run: str) -> None:
        if next(calls):
            await ledger.episodes.forget(run, 5)
            raise ConnectionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_module, "_forget", cut)
        with pytest.raises(ConnectionError):
            await archive_run(ledger, store, RUN)
    assert await ledger.redis.zcard(key(RUN, "episodes")) == 9
    assert await archive.list(RUN) == before, "what is in both is read once"
    await archive_run(ledger, store, RUN)
    assert await ledger.redis.zcard(key(RUN, "episodes")) == 0
    assert await archive.list(RUN) == before


async def test_runs_rest_for_a_while_before_they_are_archived(ledger: Ledger) -> None:
    await finish(ledger)
    assert await ledger.runs.resting(0) == [RUN]
    assert await ledger.runs.resting(60) == []
    await accept(ledger, RUN, [Planned("late", purpose="eval")])
    assert await ledger.runs.resting(0) == []
