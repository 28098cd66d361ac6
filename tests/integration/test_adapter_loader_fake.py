"""The loader, on a real Redis and a real store, beside a replica that misbehaves over the wire."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from leyden_adapter_loader.cache import Cache
from leyden_adapter_loader.loop import Loop
from leyden_adapter_loader.replica import Replica
from leyden_adapter_loader.settings import AdapterLoaderSettings
from leyden_contracts import Promotion, RunSpec
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage import LocalStore
from leyden_storage.keys import adapter_prefix, manifest_key
from support.episodes import Planned, accept
from support.replica import API_KEY, BASE_MODEL, ROLE, RUN, SPEC, FakeReplica, files_of, manifest_of, name_of
from support.replica import publish as announce

REPLICA = "replica-0"
WEIGHTS = "adapter_model.safetensors"
Publish = Callable[..., Awaitable[None]]

PROBES = 51
"""Questions that three probes give."""


@pytest_asyncio.fixture
async def replica(ledger: Ledger) -> AsyncIterator[FakeReplica]:
    await ledger.runs.create(SPEC)
    replica = FakeReplica()
    await replica.start()
    yield replica
    replica.gate.set()
    await replica.stop()


@pytest.fixture
def publish(store: LocalStore, ledger: Ledger) -> Publish:
    async def publish(version: int, weights: float, parent: float = 0.0) -> None:
        await announce(store, ledger, version, weights, parent)

    return publish


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@asynccontextmanager
async def loading(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, cache_dir: Path, **more: float
) -> AsyncIterator[asyncio.Event]:
    """Run a loader for the length of the block; yields the event that stops it."""
    fast = {"poll_s": 0.02, "runs_s": 0.1, "retry_s": 0.05, "retry_most_s": 0.1, "retire_grace_s": 0.2}
    fast |= {"files_grace_s": 0.5, "replica_timeout_s": 1}
    settings = AdapterLoaderSettings.model_validate(
        {"replica_url": replica.url, "replica_id": REPLICA, "base_model": BASE_MODEL, "cache_dir": cache_dir}
        | fast
        | more
    )
    cache, stop = Cache(cache_dir, settings.files_grace_s), asyncio.Event()
    async with Replica(replica.url, API_KEY, settings.replica_timeout_s, settings.load_timeout_s) as client:
        task = asyncio.create_task(Loop(settings, ledger, store, client, cache).run(stop))
        try:
            yield stop
        finally:
            stop.set()
            await task


async def status(ledger: Ledger) -> ReplicaStatus | None:
    return next((one for one in await ledger.replicas.list() if one.id == REPLICA), None)


async def comes(what: Callable[[], Awaitable[bool]], seconds: float = 8) -> None:
    end = time.monotonic() + seconds
    while not await what():
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.01)


async def comes_ready(ledger: Ledger, *versions: int) -> None:
    wanted = sorted(name_of(version) for version in versions)

    async def ready() -> bool:
        now = await status(ledger)
        return now is not None and now.ready == wanted

    await comes(ready)


async def comes_rejected(ledger: Ledger, version: int) -> str:
    async def rejected() -> bool:
        now = await status(ledger)
        return now is not None and name_of(version) in now.rejected

    await comes(rejected)
    now = await status(ledger)
    assert now
    return now.rejected[name_of(version)]


async def stays_unready(ledger: Ledger, seconds: float = 0.6) -> None:
    """Check that nothing is offered, through several retries."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = await status(ledger)
        assert now is not None and now.ready == []
        assert (await ledger.runs.summary(RUN)).version_ready == 0
        await asyncio.sleep(0.01)


async def test_a_version_is_loaded_proved_and_offered(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger)
        now = await status(ledger)
        assert now == ReplicaStatus(id=REPLICA, url=replica.url, base_model=BASE_MODEL)
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await comes(lambda: _version_ready(ledger, 1))
        assert replica.requests == [f"load {name_of(1)}", *[f"probe {name_of(1)}"] * PROBES]
        assert Path(replica.paths[name_of(1)]).parent == cache_dir
    assert await status(ledger) is None, "nobody looks after it any more"


async def test_a_published_version_is_not_left_until_the_next_look(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir, poll_s=60, beat_ttl_s=60):
        await comes_ready(ledger)
        for version in (1, 2):
            await publish(version, 0.5 * version)
            await comes(lambda: _version_ready(ledger, version), 2)  # noqa: B023


async def _version_ready(ledger: Ledger, version: int) -> bool:
    return (await ledger.runs.summary(RUN)).version_ready == version


@pytest.mark.parametrize("name", ["adapter_config.json", WEIGHTS])
async def test_one_changed_byte_is_never_offered(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path, name: str
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        key = adapter_prefix(RUN, ROLE, 1) + name
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await replica.stop()
        data = bytearray(store.get(key))
        data[-2] ^= 1
        store.put(key, bytes(data))
        for folder in cache_dir.iterdir():
            (folder / name).write_bytes(data)
        await replica.start()
        assert f"{name} has sha256" in await comes_rejected(ledger, 1)
        now = await status(ledger)
        assert now and now.ready == []
        store.put(key, files_of(0.5)[name])
        await comes_ready(ledger, 1)


async def test_one_changed_byte_is_never_loaded(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    await publish(1, 0.5)
    store.put(adapter_prefix(RUN, ROLE, 1) + WEIGHTS, files_of(0.6)[WEIGHTS])
    async with loading(replica, ledger, store, cache_dir):
        assert "has sha256" in await comes_rejected(ledger, 1)
        await stays_unready(ledger)
        assert replica.requests == [], "not even a load was tried"


async def test_a_replica_that_keeps_the_base_is_never_offered(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    replica.applies = 0.0
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        reason = await comes_rejected(ledger, 1)
        assert "another policy" in reason
        await stays_unready(ledger)
        assert len(replica.seen("load")) > 1, "it is tried again"
        replica.applies = None
        await comes_ready(ledger, 1)


async def test_what_is_not_proved_does_not_stay(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    replica.applies = 0.0
    async with loading(replica, ledger, store, cache_dir, retry_s=60, retry_most_s=60):
        await publish(1, 0.5)
        await comes_rejected(ledger, 1)
        assert replica.adapters == {}


async def test_a_replica_that_keeps_the_parent_is_never_offered(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.50)
        await comes_ready(ledger, 1)
        replica.applies = 0.50
        await publish(2, 0.501, parent=0.50)
        assert "parent (0)" in await comes_rejected(ledger, 2)
        await asyncio.sleep(0.4)
        now = await status(ledger)
        assert now and now.ready == [name_of(1)], "the old version goes on"
        assert (await ledger.runs.summary(RUN)).version_ready == 1


async def test_each_attempt_after_a_failed_proof_has_a_path_of_its_own(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    replica.applies = 0.0
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_rejected(ledger, 1)
        first = replica.paths[name_of(1)]
        replica.applies = None
        await comes_ready(ledger, 1)
        assert replica.paths[name_of(1)] != first


async def test_a_restarted_replica_proves_all_anew(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await replica.stop()
        await comes(lambda: _gone(ledger), seconds=2)
        replica.gate.clear()
        await replica.start()
        replica.gate.clear()
        await comes_ready(ledger)
        await asyncio.sleep(0.1)
        await comes_ready(ledger)
        replica.gate.set()
        await comes_ready(ledger, 1)
        assert replica.seen("load") == [name_of(1)] * 2


async def _gone(ledger: Ledger) -> bool:
    return await status(ledger) is None


async def test_an_adapter_that_a_replica_loses_is_withdrawn_at_once(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        replica.gate.clear()
        replica.adapters.clear()
        await comes_ready(ledger)
        replica.gate.set()
        await comes_ready(ledger, 1)


async def test_equal_policies_pass(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    """Learning rate 0: this version, its parent and the base say the same."""
    replica.noise = 2e-5
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.0)
        await comes_ready(ledger, 1)


async def test_unwanted_versions_are_withdrawn_then_unloaded_then_deleted(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await publish(2, 0.7, parent=0.5)
        await comes_ready(ledger, 2)
        assert name_of(1) in replica.adapters, "gateways may still send calls to it"
        old = Path(replica.paths[name_of(1)])
        await comes(lambda: _is(name_of(1) not in replica.adapters))
        assert old.is_dir(), "calls that run on it may still read its files"
        await comes(lambda: _is(not old.exists()))
        assert name_of(2) in replica.adapters
        await comes_ready(ledger, 2)


async def _is(fact: bool) -> bool:
    return fact


async def test_a_version_that_an_episode_holds_stays(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await accept(ledger, RUN, [Planned("g")])
        await ledger.episodes.release(RUN)
        assert await ledger.episodes.claim(RUN, "g.0", "w", 30)
        await ledger.calls.pin(RUN, "g.0", 1, 1)
        await publish(2, 0.7, parent=0.5)
        await comes_ready(ledger, 1, 2)
        await asyncio.sleep(0.4)
        await comes_ready(ledger, 1, 2)
        assert replica.seen("unload") == []
        await ledger.episodes.cancel(RUN, "g.0")
        await comes_ready(ledger, 2)


async def test_a_loader_that_is_restarted_proves_what_it_finds(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    await publish(1, 0.5)
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger, 1)
    replica.requests.clear()
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger, 1)
        assert replica.requests == [f"probe {name_of(1)}"] * PROBES, "sound as it is: proved, not loaded again"
    replica.adapters[name_of(1)] = 0.4
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger, 1)
        assert replica.adapters[name_of(1)] == 0.5, "what could not prove itself was replaced"


@pytest.mark.parametrize("weights", [0.5, 0.4])
async def test_an_adapter_that_was_loaded_unseen_proves_itself(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path, weights: float
) -> None:
    """As when the answer to a load comes too late: the next load of that name is refused."""
    await publish(1, 0.5)
    replica.adapters[name_of(1)] = weights
    replica.hide_once = {name_of(1)}
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger, 1)
    assert replica.adapters[name_of(1)] == 0.5
    assert replica.seen("load")[0] == name_of(1)


async def test_others_adapters_are_left_alone(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, cache_dir: Path
) -> None:
    replica.adapters |= {"somebody-elses": 1.0, "run-gone--policy--v3": 1.0}
    async with loading(replica, ledger, store, cache_dir):
        await comes(lambda: _is("run-gone--policy--v3" not in replica.adapters))
        assert "somebody-elses" in replica.adapters


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"run": "run-b"}, "is of run-b"),
        ({"version": 2}, "version 2"),
        ({"probes": []}, "no probes"),
        ({"files": {"../../evil": "0" * 64}}, "'../../evil'"),
        ({"files": {}}, "no adapter_config.json"),
    ],
)
async def test_a_manifest_that_proves_nothing_is_refused(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path, change: dict, word: str
) -> None:
    await publish(1, 0.5)
    forged = manifest_of(1, 0.5).model_copy(update=change)
    store.put(manifest_key(RUN, ROLE, 1), forged.model_dump_json().encode())
    async with loading(replica, ledger, store, cache_dir):
        assert word in await comes_rejected(ledger, 1)
        await stays_unready(ledger, 0.2)
    assert not (cache_dir.parent / "evil").exists()


async def test_one_bad_version_or_run_does_not_hold_up_the_others(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    other = SPEC.model_copy(update={"id": "run-b"})
    await ledger.runs.create(other)
    await ledger.runs.create(SPEC.model_copy(update={"id": "run-c", "base_model": "another"}))
    # What no API lets in: the id of a run that would leave the folder.
    await ledger.runs.create(RunSpec.model_construct(**(dict(SPEC) | {"id": "../evil"})))
    for run in ("run-b", "run-c", "../evil"):
        await ledger.training.publish(run, 1)
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        now = await status(ledger)
        assert now and list(now.rejected) == ["run-b--policy--v1"], "its manifest is not there"


async def test_a_replica_that_refuses_to_load_is_asked_again(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    replica.load_status = 500
    async with loading(replica, ledger, store, cache_dir):
        await publish(1, 0.5)
        assert "load_lora_adapter: 500" in await comes_rejected(ledger, 1)
        replica.load_status = 200
        await comes_ready(ledger, 1)


async def test_a_replica_with_another_base_or_key_is_not_offered(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir, base_model="another"):  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        assert await status(ledger) is None


async def test_the_heartbeat_goes_on_while_a_load_takes_long(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir, beat_ttl_s=0.3):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        replica.gate.clear()
        await publish(2, 0.7, parent=0.5)
        await comes(lambda: _is(name_of(2) in replica.seen("load")))
        for _ in range(40):
            now = await status(ledger)
            assert now and now.ready == [name_of(1)]
            await asyncio.sleep(0.02)
        replica.gate.set()
        await comes_ready(ledger, 2)


async def test_a_ledger_that_forgot_is_told_again(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, publish: Publish, cache_dir: Path
) -> None:
    async with loading(replica, ledger, store, cache_dir, beat_ttl_s=0.4):
        await publish(1, 0.5)
        await comes_ready(ledger, 1)
        await ledger.redis.hset(f"leyden:{{{RUN}}}:run", "ready", 0)
        await ledger.replicas.leave(REPLICA)
        await comes_ready(ledger, 1)
        await comes(lambda: _version_ready(ledger, 1))


async def test_an_ended_run_keeps_what_is_promoted(
    replica: FakeReplica, ledger: Ledger, store: LocalStore, cache_dir: Path, publish: Publish
) -> None:
    for version in (1, 2, 3, 4):
        await publish(version, version / 10)
    numbered = [
        Promotion(run=RUN, number=1, version=1, cause="person", created=0),
        Promotion(run=RUN, number=2, version=2, cause="person", before=1, predecessor=1, created=0),
    ]
    for promotion in numbered:
        await ledger.promotions.record(promotion)
    await ledger.runs.seal(RUN)
    await ledger.runs.finish(RUN)
    assert await ledger.runs.rest(RUN) and await ledger.runs.active() == []
    async with loading(replica, ledger, store, cache_dir):
        await comes_ready(ledger, 1, 2, 4)
        await ledger.promotions.record(numbered[0].model_copy(update={"number": 3, "cause": "rollback"}))
        await comes_ready(ledger, 1, 4)
    assert await ledger.promotions.proved(RUN, range(5)) == {0, 1, 2, 4}
