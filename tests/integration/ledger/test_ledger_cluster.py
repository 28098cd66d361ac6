"""The ledger on a Redis Cluster: a run's keys share a slot, and runs spread over the nodes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from leyden_contracts import Evaluation, Promotion
from leyden_ledger import Ledger, Promoted, ReplicaStatus
from leyden_ledger.archive import Archive, archive_run
from leyden_ledger.check import check_run
from leyden_ledger.durability import dangers
from leyden_runtime.settings import CommonSettings
from leyden_storage import LocalStore
from support.cluster import redis_cluster
from support.episodes import Planned, accept
from support.learning import make_spec
from support.playing import FAILS, play

RUNS = [f"run-{number}" for number in range(6)]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Ledger]:
    with redis_cluster(tmp_path / "cluster") as url:
        ledger = Ledger.connect(url)
        yield ledger
        await ledger.aclose()


async def _live(ledger: Ledger, store: LocalStore, run: str) -> None:
    spec = make_spec(group_size=2, groups_per_step=2, max_staleness=5, selection={"mastered_last": True})
    spec = spec.model_copy(update={"id": run})
    await ledger.runs.create(spec)
    await accept(ledger, run, [Planned("g"), Planned("h")], store)
    assert (await ledger.episodes.look(run)).due == 4
    assert len(await ledger.episodes.due(run, 10, 5)) == 4
    await play(ledger, store, "g", [1.0, 0.0], run=run)
    await play(ledger, store, "h", [1.0, FAILS], run=run)
    assert await ledger.episodes.cancel(run, "h.1")
    assert [group.id for group in await ledger.training.finished_groups(run, 0, 9)] == ["g", "h"]
    await ledger.training.consumed(run, 2)
    assert await ledger.training.ask_for(run, 1)
    await ledger.replicas.mark_ready(run, 1)
    assert len(await ledger.events.read(run, count=100)) > 10
    assert await ledger.events.read(run, after="$", block_ms=50) == []
    await ledger.runs.seal(run)
    await ledger.runs.finish(run)
    assert await ledger.runs.rest(run)


async def test_evaluations_and_promotions_on_three_nodes(cluster: Ledger) -> None:
    for run in RUNS:
        await cluster.runs.create(make_spec().model_copy(update={"id": run}))
        await cluster.training.publish(run, 2)
        await cluster.replicas.mark_ready(run, 2)
        await cluster.evaluations.hold_out(run)
        await cluster.evaluations.begin(run, 0)
        await cluster.evaluations.ask_for(run, [1, 3])
        await cluster.evaluations.ask_for(run, [1])
        await cluster.evaluations.record(Evaluation(run=run, version=2, batch="b", counts={}, score=0.5, created=0))
        await cluster.promotions.record(Promotion(run=run, number=1, version=2, cause="evaluation", created=0))
        progress = await cluster.evaluations.progress(run)
        assert progress.begun == {0} and progress.results.keys() == {2} and progress.promoted == 2
        assert await cluster.replicas.wanted(run) == {1, 2}
        assert await cluster.promotions.proved(run, [0, 1, 2]) == {0, 2}
        assert await cluster.promotions.current(run) == Promoted(best=2, latest=2)
    mark = await cluster.replicas.published("0", 1)
    assert mark != "0" and await cluster.replicas.published(mark, 0.05) == mark
    await cluster.training.publish(RUNS[0], 2)
    assert await cluster.replicas.published(mark, 0.05) == mark, "it was known"
    later = asyncio.create_task(cluster.replicas.published(mark, 3))
    await cluster.training.publish(RUNS[0], 3)
    assert await asyncio.wait_for(later, 1) > mark
    assert await cluster.evaluations.watched() == await cluster.replicas.served_runs() == RUNS


async def test_runs_live_and_are_archived_on_three_nodes(cluster: Ledger, store: LocalStore) -> None:
    await asyncio.gather(*(_live(cluster, store, run) for run in RUNS))
    assert await cluster.runs.list() == RUNS
    assert sorted(await cluster.runs.resting(0)) == RUNS
    homes = {cluster.redis.get_node_from_key(f"leyden:{{{run}}}:run").name for run in RUNS}
    assert len(homes) > 1, "or nothing is shown"
    status = ReplicaStatus(id="r", url="http://r", base_model="tiny")
    await cluster.replicas.beat(status, 60)
    assert await cluster.replicas.list() == [status]
    for run in RUNS:
        assert await archive_run(cluster, store, run)
        assert len(await Archive(cluster, store).list(run)) == 4
        # The trained versions that would make these trajectories sound are not this test's: it looks at the ledger.
        assert [one for one in await check_run(cluster, store, run) if one.invariant in ("I1", "I2")] == []
    assert await dangers(cluster) == []


def test_celery_needs_a_redis_of_its_own_beside_a_cluster() -> None:
    with pytest.raises(ValueError, match="LEYDEN_BROKER_URL"):
        CommonSettings.model_validate({"redis_url": "redis+cluster://h:1"})
    settings = CommonSettings.model_validate({"redis_url": "redis+cluster://h:1", "broker_url": "redis://b:2/0"})
    assert settings.broker_url == "redis://b:2/0"
    assert CommonSettings.model_validate({"redis_url": "redis://one:1/3"}).broker_url == "redis://one:1/3"


async def test_archived_runs_are_kept_on_three_nodes(cluster: Ledger, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    for run in RUNS[:3]:
        await _live(cluster, store, run)
        await archive_run(cluster, store, run)
        await cluster.runs.archived(run)
    assert {run for run, _ in await cluster.keeping.due(10)} == set(RUNS[:3])
    first, second = (cluster.keeping.turn(RUNS[0], 60) for _ in range(2))
    assert await first.acquire() and not await second.acquire()
    await first.reacquire()
    await first.release()
    assert await second.acquire()
    await cluster.keeping.again(RUNS[0], None, await cluster.keeping.archive(RUNS[0]))
    await cluster.keeping.again(RUNS[1], await cluster.keeping.now() + 60, await cluster.keeping.archive(RUNS[1]))
    await cluster.keeping.again(RUNS[2], None, "0")
    assert [run for run, _ in await cluster.keeping.due(10)] == [RUNS[2]], "it was archived anew"
