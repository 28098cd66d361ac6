"""Whole small runs with a start, against a real ledger and store: version 1, then reinforcement learning from there."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from leyden_contracts import AdapterManifest, RunSpec, StoredStart
from leyden_learner.checkpoint import committed, read_files, read_manifest
from leyden_learner.run_training import Progress, Surroundings
from leyden_learner.start import RunStart, StartRefused, resume
from leyden_learner.start.version import probe_tokens
from leyden_learner.trainer import ADAPTER
from leyden_ledger import Ledger, RunState
from leyden_ledger.check import check_run
from leyden_ledger.recovery import recover_run
from leyden_storage import LocalStore, ObjectStore
from leyden_storage.keys import run_key
from leyden_storage.starts import read_refusal, write_start
from support import episodes
from support.episodes import Planned
from support.learning import make_spec
from support.playing import accept, play
from support.tiny_model import make_model

OLD, NEW = "run-old", "run-new"
PAIRS = [{"prompt": f"{n} + 1 =", "chosen": f" {n + 1}", "rejected": f" {n}"} for n in range(3)]
TALKS = [
    {"prompt": [{"role": "user", "content": line["prompt"]}], "completion": [{"role": "assistant", "content": "ok"}]}
    for line in PAIRS
]


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("talker"), hidden=32)


@pytest.fixture
def around(ledger: Ledger, store: LocalStore, talker: Path) -> Surroundings:
    return Surroundings(ledger, store, {"tiny": talker}, "cpu")


def spec_of(start: dict[str, Any] | None, run: str = NEW, roles: dict | None = None, **algorithm: Any) -> RunSpec:
    spec = make_spec(roles=roles, **algorithm).model_dump(mode="json")
    return RunSpec.model_validate(spec | {"id": run, "start": start})


def upload(store: ObjectStore, lines: list[dict], run: str = NEW) -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    write_start(store, run, StoredStart(digest="d" * 64, part_lines=[len(lines)], created=time.time()), [text])


async def finish(around: Surroundings, run: str = NEW) -> list[AdapterManifest]:
    """Train until nothing is left to do now; return the manifests."""
    training = await resume(around, run)
    while await training.advance() is Progress.TRAINED:
        pass
    return committed(around.store, run, "policy")


async def old_run(around: Surroundings) -> AdapterManifest:
    """Train a run to its end, on the groups `a` and `b`; return its last version."""
    await accept(around.ledger, spec_of(None, OLD, max_staleness=5), "ab")
    for group, rewards in (("a", (1, 0, 0, 0)), ("b", (0, 1, 1, 0))):
        await play(around.ledger, around.store, group, rewards, run=OLD)
    await around.ledger.runs.seal(OLD)
    return (await finish(around, OLD))[-1]


async def prove(ledger: Ledger, version: int, run: str = NEW) -> None:
    await ledger.replicas.mark_ready(run, version)
    await ledger.episodes.release(run)


@pytest.mark.parametrize("kind", ["sft", "dpo"])
async def test_a_run_waits_for_its_data_starts_and_goes_on(around: Surroundings, kind: str) -> None:
    ledger, store = around.ledger, around.store
    start = {"kind": kind, "epochs": 4, "batch_size": 2, "learning_rate": 0.01}
    await ledger.runs.create(spec_of(start))
    await episodes.accept(ledger, NEW, [Planned(group, group, size=4) for group in "abcd"], store)
    await ledger.episodes.release(NEW)
    assert await (await resume(around, NEW)).advance() is Progress.WAITING
    assert (await ledger.runs.summary(NEW)).groups_released == 0

    upload(store, TALKS if kind == "sft" else PAIRS)
    (first,) = await finish(around)

    assert (first.version, first.parent, first.groups, first.trained_episodes) == (1, 0, [], [])
    assert first.start is not None
    assert (first.start.kind, first.start.samples, first.start.digest) == (kind, 3, "d" * 64)
    assert first.config["epochs"] == 4
    assert first.metrics["loss"] < first.metrics["loss_first"]
    assert kind == "sft" or first.metrics["accuracy"] == 1
    summary = await ledger.runs.summary(NEW)
    assert (summary.version_published, summary.groups_released) == (1, 0)
    await prove(ledger, 1)
    assert (await ledger.runs.summary(NEW)).groups_released == 2

    for group in "ab":
        await play(ledger, store, group, (1, 0, 0, 0), version=1, run=NEW)
    assert len(await finish(around)) == 2
    await prove(ledger, 2)
    for group in "cd":
        await play(ledger, store, group, (0, 1, 1, 0), version=2, run=NEW)
    await ledger.runs.seal(NEW)
    manifests = await finish(around)

    assert [manifest.groups for manifest in manifests] == [[], ["a", "b"], ["c", "d"]]
    assert [len(manifest.trained_episodes) for manifest in manifests] == [0, 8, 8]
    assert [manifest.start is None for manifest in manifests] == [False, True, True]
    summary = await ledger.runs.summary(NEW)
    assert (summary.state, summary.groups_consumed, summary.version_published) == (RunState.FINISHED, 4, 3)
    assert await check_run(ledger, store, NEW) == []


@pytest.mark.parametrize("bound", [0, 1, 2])
async def test_groups_are_released_as_if_version_1_were_the_base(ledger: Ledger, bound: int) -> None:
    await accept(ledger, spec_of({"kind": "sft"}, groups_per_step=1, max_staleness=bound), "abcdefgh")
    released = [(await ledger.runs.summary(NEW)).groups_released]
    for version in (1, 2, 3):
        await prove(ledger, version)
        released.append((await ledger.runs.summary(NEW)).groups_released)

    assert released == [0, 1 + bound, 2 + bound, 3 + bound]


async def test_a_rebuilt_ledger_keeps_the_pace(around: Surroundings) -> None:
    ledger, spec = around.ledger, spec_of({"kind": "sft"}, groups_per_step=1)
    upload(around.store, TALKS)
    around.store.put(run_key(NEW), spec.model_dump_json().encode())
    await ledger.runs.create(spec)
    await finish(around)
    await ledger.redis.flushall()

    recovered = await recover_run(ledger, around.store, NEW)

    assert recovered is not None and recovered.versions == 1
    await accept(ledger, spec, "ab")
    assert (await ledger.runs.summary(NEW)).groups_released == 0
    await prove(ledger, 1)
    assert (await ledger.runs.summary(NEW)).groups_released == 1


@pytest.mark.parametrize("kind", ["sft", "dpo"])
async def test_a_run_learns_from_the_episodes_of_another(around: Surroundings, kind: str) -> None:
    await old_run(around)
    start = {"kind": kind, "run": OLD, "steps": 3} | ({"min_reward": 1} if kind == "sft" else {})
    await around.ledger.runs.create(spec_of(start))

    (first,) = await finish(around)

    assert first.start is not None
    assert (first.start.run, first.start.samples) == (OLD, 3 if kind == "sft" else 2)
    assert first.start.dropped == ({"low_reward": 5} if kind == "sft" else {})
    assert first.metrics["steps"] == 3


async def test_a_run_begins_with_a_version_of_another(around: Surroundings) -> None:
    source = await old_run(around)
    await around.ledger.runs.create(spec_of({"kind": "adapter", "run": OLD, "version": 1}))

    (first,) = await finish(around)

    assert first.files[ADAPTER] == source.files[ADAPTER]
    assert first.files["optimizer.safetensors"] != source.files["optimizer.safetensors"]
    assert first.start is not None
    assert (first.start.run, first.start.version) == (OLD, 1)
    assert [probe.token_ids for probe in first.probes] == [probe.token_ids for probe in source.probes]
    assert first.probes[0].logprobs != first.probes[0].parent_logprobs == first.probes[0].base_logprobs


async def test_several_roles_begin_with_one_adapter(around: Surroundings) -> None:
    source = await old_run(around)
    start = {"kind": "adapter", "run": OLD, "version": 1, "role": "policy"}
    await around.ledger.runs.create(spec_of(start, roles={"checker": {}, "policy": {}, "writer": {}}))

    await finish(around)

    made = [read_manifest(around.store, NEW, role, 1) for role in ("checker", "policy", "writer")]
    assert {manifest.files[ADAPTER] for manifest in made} == {source.files[ADAPTER]}


async def test_a_start_that_dies_is_made_again_to_the_same_weights(around: Surroundings, tmp_path: Path) -> None:
    start = {"kind": "sft", "epochs": 3, "batch_size": 1}
    await around.ledger.runs.create(spec_of(start, roles={"policy": {}, "writer": {}}))
    upload(around.store, TALKS)
    broken = await resume(around, NEW)
    for _ in range(5):
        assert await broken.advance() is Progress.TRAINED
    assert committed(around.store, NEW, "policy") == []

    (again,) = await finish(around)

    twin = Surroundings(around.ledger, LocalStore(tmp_path / "twin"), around.models, "cpu")
    upload(twin.store, TALKS)
    (straight,) = await finish(twin)
    assert (again.files, again.probes) == (straight.files, straight.probes)
    assert read_files(around.store, again) == read_files(twin.store, straight)


async def test_a_run_of_nothing_but_its_start_finishes(around: Surroundings) -> None:
    await around.ledger.runs.create(spec_of({"kind": "sft"}))
    await around.ledger.runs.seal(NEW)
    upload(around.store, TALKS)

    assert len(await finish(around)) == 1
    assert (await around.ledger.runs.summary(NEW)).state is RunState.FINISHED


async def test_a_cancelled_run_starts_no_more(around: Surroundings) -> None:
    await around.ledger.runs.create(spec_of({"kind": "sft"}))
    await around.ledger.runs.cancel(NEW)

    training = await resume(around, NEW)

    assert isinstance(training, RunStart)
    assert await training.advance() is Progress.FINISHED


async def test_why_a_start_is_refused_is_stored(around: Surroundings) -> None:
    await around.ledger.runs.create(spec_of({"kind": "sft", "max_length": 4}))
    upload(around.store, TALKS)

    with pytest.raises(StartRefused, match="no data is left"):
        await finish(around)

    refusal = read_refusal(around.store, NEW)
    assert refusal is not None
    assert refusal.reason == "no data is left to learn from (too_long: 3)"


def test_probes_are_of_the_data_and_always_enough() -> None:
    assert len({tuple(tokens) for tokens in probe_tokens([], 64, 0)}) == 3
