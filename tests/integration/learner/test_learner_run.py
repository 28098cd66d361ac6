"""One run against a real ledger and store: what is trained, committed, published, and what a crash may not change."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from leyden_contracts import AdapterManifest, Control, RunSpec
from leyden_learner.checkpoint import committed, read_files
from leyden_learner.run_training import Progress, RunTraining, Surroundings
from leyden_ledger import Ledger, RunState
from leyden_ledger.store import ATTEMPTS_APART, key
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import batch_name, trajectories_prefix
from leyden_storage.trajectories import write_batch
from support.learning import RUN, make_spec
from support.playing import FAILS, accept, play, played

REWARDS = {"a": (1, 0, 0, 0), "b": (0, 1, 1, 0), "c": (0, 0, 1, 0), "d": (1, 1, 0, 1), "e": (0, 1, 0, 0)}


def spec_of(**algorithm: object) -> RunSpec:
    """Return a run that may be far off policy, so that all its groups can be played at once."""
    return make_spec(**{"max_staleness": 1000} | algorithm)


async def played_run(ledger: Ledger, store: LocalStore, groups: Sequence[str], **algorithm: object) -> RunSpec:
    spec = spec_of(**algorithm)
    await accept(ledger, spec, groups)
    for group in groups:
        await play(ledger, store, group, REWARDS[group])
    return spec


@pytest.fixture
def around(ledger: Ledger, store: LocalStore, tiny_llama: Path) -> Surroundings:
    return Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")


async def finish(around: Surroundings) -> list[AdapterManifest]:
    """Train to the end in one go; return the manifests."""
    training = await RunTraining.resume(around, RUN)
    while await training.advance() is Progress.TRAINED:
        pass
    return committed(around.store, RUN, "policy")


async def test_finished_groups_become_published_versions_to_the_last_smaller_batch(around: Surroundings):
    await played_run(around.ledger, around.store, "abcde")
    training = await RunTraining.resume(around, RUN)
    progress = [await training.advance() for _ in range(3)]
    assert progress == [Progress.TRAINED, Progress.TRAINED, Progress.WAITING]

    await around.ledger.runs.seal(RUN)
    progress = [await training.advance() for _ in range(2)]

    assert progress == [Progress.TRAINED, Progress.FINISHED]
    manifests = committed(around.store, RUN, "policy")
    assert [(m.version, m.parent, m.groups) for m in manifests] == [
        (1, 0, ["a", "b"]),
        (2, 1, ["c", "d"]),
        (3, 2, ["e"]),
    ]
    assert manifests[0].trained_episodes == [f"{group}.{i}" for group in "ab" for i in range(4)]
    summary = await around.ledger.runs.summary(RUN)
    assert (summary.version_published, summary.groups_consumed, summary.state) == (3, 5, RunState.FINISHED)
    metrics = manifests[0].metrics
    assert (metrics["reward_mean"], metrics["success"], metrics["tokens"]) == (3 / 8, 3 / 8, 24)
    assert {"loss", "grad_norm", "kl", "ratio_mean", "seconds", "staleness_mean"} <= set(metrics)
    assert manifests[1].metrics["staleness_mean"] == 1


async def test_a_step_waits_for_all_its_groups_while_episodes_run(around: Surroundings):
    spec = spec_of()
    await accept(around.ledger, spec, "ab")
    await around.ledger.runs.seal(RUN)
    await play(around.ledger, around.store, "a", REWARDS["a"])
    training = await RunTraining.resume(around, RUN)

    assert await training.advance() is Progress.WAITING

    await play(around.ledger, around.store, "b", REWARDS["b"])
    assert await training.advance() is Progress.TRAINED


@pytest.mark.parametrize("algorithm", [{}, {"control": Control.SHUFFLED_REWARDS}, {"credit": "critic"}], ids=str)
async def test_a_learner_that_is_killed_after_every_step_makes_the_same_weights(
    around: Surroundings, tmp_path: Path, algorithm: dict
):
    await played_run(around.ledger, around.store, "abcde", **algorithm)
    elsewhere = Surroundings(around.ledger, LocalStore(tmp_path / "twin"), around.models, "cpu")
    for name in around.store.list(trajectories_prefix(RUN)):
        elsewhere.store.put(name, around.store.get(name))
    straight = await finish(around)

    for _ in straight:
        training = await RunTraining.resume(elsewhere, RUN)
        assert await training.advance() is Progress.TRAINED

    killed = committed(elsewhere.store, RUN, "policy")
    assert len(killed) == 2
    assert [manifest.files for manifest in killed] == [manifest.files for manifest in straight]
    assert [manifest.probes for manifest in killed] == [manifest.probes for manifest in straight]


class CrashingStore(LocalStore):
    """Refuses the write of the first key that ends with `victim`."""

    victim = ""

    def put(self, key: str, data: bytes) -> None:
        self._crash(key)
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._crash(key)
        return super().create(key, data)

    def _crash(self, key: str) -> None:
        if self.victim and key.endswith(self.victim):
            self.victim = ""
            raise StoreError("crash")


@pytest.mark.parametrize("victim", ["adapter_model.safetensors", "rng.safetensors", "v2/manifest.json"])
async def test_a_crash_before_the_manifest_leaves_no_trace_in_the_weights(
    ledger: Ledger, tmp_path: Path, tiny_llama: Path, victim: str
):
    results = []
    for name, crash in (("straight", ""), ("crashed", victim)):
        await ledger.redis.flushall()
        store = CrashingStore(tmp_path / name)
        around = Surroundings(ledger, store, {"tiny": tiny_llama}, "cpu")
        await played_run(ledger, store, "abcd")
        store.victim = crash
        if crash:
            with pytest.raises(StoreError):
                await finish(around)
        results.append([manifest.files for manifest in await finish(around)])

    assert len(results[0]) == 2
    assert results[1] == results[0]


async def test_a_crash_before_publishing_is_repaired_at_the_next_start(around: Surroundings, monkeypatch):
    async def dies(*_: object) -> None:
        raise ConnectionError

    await played_run(around.ledger, around.store, "ab")
    with monkeypatch.context() as patch:
        patch.setattr(around.ledger.training, "publish", dies)
        with pytest.raises(ConnectionError):
            await finish(around)
    assert (await around.ledger.runs.summary(RUN)).version_published == 0

    manifests = await finish(around)

    summary = await around.ledger.runs.summary(RUN)
    assert len(manifests) == 1
    assert (summary.version_published, summary.groups_consumed) == (1, 2)


async def test_no_group_is_consumed_twice_when_the_ledger_is_rebuilt_in_another_order(around: Surroundings):
    spec = await played_run(around.ledger, around.store, "abcd")
    training = await RunTraining.resume(around, RUN)
    await training.advance()
    redis: Redis = around.ledger.redis
    await redis.flushall()
    await around.ledger.runs.create(spec, ATTEMPTS_APART)
    await around.ledger.runs.hold(RUN, None)
    await accept(around.ledger, spec, "dcba")
    for group in "dc":
        await play(around.ledger, around.store, group, REWARDS[group])
    assert await training.advance() is Progress.TRAINED
    for group in "ba":
        await play(around.ledger, around.store, group, REWARDS[group])

    assert await training.advance() is Progress.WAITING
    again = await RunTraining.resume(around, RUN)
    assert await again.advance() is Progress.WAITING

    assert [manifest.groups for manifest in committed(around.store, RUN, "policy")] == [["a", "b"], ["d", "c"]]


async def test_only_episodes_that_succeeded_are_trained_on(around: Surroundings):
    spec = make_spec(groups_per_step=1)
    spec = spec.model_copy(update={"episodes": spec.episodes.model_copy(update={"max_attempts": 1})})
    await accept(around.ledger, spec, "a")
    # As if a trajectory had been written for an attempt that then lost.
    lost = [played(RUN, "a", 1, 1.0), played(RUN, "a", 2, 1.0, attempt=7)]
    write_batch(around.store, RUN, batch_name(0, 999), lost)
    await play(around.ledger, around.store, "a", (1, FAILS, 0, 0))
    await around.ledger.redis.hset(key(RUN, "e:a.2"), "batch", 999)

    (manifest,) = await finish(around)

    assert manifest.trained_episodes == ["a.0", "a.3"]


async def test_a_lost_trajectory_costs_its_group_and_not_the_run(around: Surroundings):
    await accept(around.ledger, spec_of(), "ab")
    await play(around.ledger, around.store, "a", REWARDS["a"], stored=False)
    await play(around.ledger, around.store, "b", REWARDS["b"])

    (manifest,) = await finish(around)

    assert manifest.skipped == {"a": "too_few_trajectories"}
    assert manifest.groups == ["a", "b"]
    assert len(manifest.trained_episodes) == 4


async def test_a_batch_without_signal_makes_one_version_with_the_parents_weights(around: Surroundings):
    await accept(around.ledger, spec_of(max_staleness=1), "abcd")
    await play(around.ledger, around.store, "a", REWARDS["a"])
    await play(around.ledger, around.store, "b", REWARDS["b"])
    training = await RunTraining.resume(around, RUN)
    await training.advance()
    await play(around.ledger, around.store, "c", (1, 1, 1, 1))
    await play(around.ledger, around.store, "d", (0, 0, 0, 0))

    await training.advance()

    one, two = committed(around.store, RUN, "policy")
    assert two.skipped == {"c": "equal_rewards", "d": "equal_rewards"}
    assert two.trained_episodes == []
    assert two.files == one.files
    assert two.probes[0].token_ids == one.probes[0].token_ids
    assert two.probes[0].logprobs == two.probes[0].parent_logprobs
    assert (await around.ledger.runs.summary(RUN)).version_published == 2


async def test_stale_groups_are_consumed_and_not_trained_on(around: Surroundings):
    await accept(around.ledger, spec_of(max_staleness=1, groups_per_step=1), "abc")
    await around.ledger.replicas.mark_ready(RUN, 2)
    await around.ledger.episodes.release(RUN)
    for group in "abc":
        await play(around.ledger, around.store, group, REWARDS[group], version=0)

    manifests = await finish(around)

    assert [manifest.skipped for manifest in manifests] == [{}, {}, {"c": "stale"}]


async def test_the_unpublished_control_trains_and_never_publishes(around: Surroundings):
    await played_run(around.ledger, around.store, "ab", control=Control.UNPUBLISHED)

    manifests = await finish(around)

    summary = await around.ledger.runs.summary(RUN)
    assert len(manifests) == 1
    assert (summary.version_published, summary.groups_consumed) == (0, 2)


async def test_a_damaged_checkpoint_is_not_trained_from(around: Surroundings):
    await played_run(around.ledger, around.store, "ab")
    (manifest,) = await finish(around)
    data = read_files(around.store, manifest)["adapter_model.safetensors"]
    around.store.put(f"runs/{RUN}/adapters/policy/v1/adapter_model.safetensors", data[:-1] + b"\x01")

    with pytest.raises(Exception, match=r"adapter_model\.safetensors differ"):
        await RunTraining.resume(around, RUN)
