"""The checker is silent on a sound run, and finds each planted violation."""

import hashlib
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from leyden_contracts import AdapterManifest, AttemptResult, RunSpec, Trajectory, Transition, Verdict
from leyden_ledger import Ledger, ReplicaStatus, SpanNote
from leyden_ledger.check import check_run
from leyden_storage import LocalStore
from leyden_storage.keys import adapter_prefix, batch_name, manifest_key, trajectory_batch_key, uploads_prefix
from leyden_storage.trajectories import encode_batch, write_batch
from support.episodes import Planned, accept
from support.playing import settle

RUN = "run-1"
ADAPTER = f"{RUN}--policy--v1"


def trajectory(episode: str, **more: object) -> Trajectory:
    call = {"run": RUN, "episode": episode, "attempt": 1, "role": "policy", "policy_version": 0}
    step = Transition(
        **call,
        number=1,
        prompt_token_ids=b"\x01\0\0\0",
        response_token_ids=b"\x02\0\0\0",
        response_logprobs=b"\0\0\0\xbf",
        temperature=1.0,
        finish_reason="stop",
        response_id=f"reply-{episode}",
        replica="r",
    )
    head = {"run": RUN, "group": "g", "episode": episode, "task": "t", "attempt": 1, "purpose": "train"}
    return Trajectory.model_validate(
        {**head, "reward": 1.0, "verdict": Verdict.COMPLETE, "transitions": (step,), **more}
    )


def manifest(version: int = 1, **more: object) -> AdapterManifest:
    body = {
        "run": RUN,
        "role": "policy",
        "version": version,
        "parent": version - 1,
        "files": {"adapter_model.safetensors": hashlib.sha256(b"weights").hexdigest()},
        "groups": ["g"],
        "trained_episodes": ["g.0", "g.1"],
        "skipped": {},
        "probes": [],
        "metrics": {},
        "config": {},
        "created": 0.0,
    }
    return AdapterManifest.model_validate(body | more)


async def put_manifest(store: LocalStore, one: AdapterManifest) -> None:
    store.put(adapter_prefix(RUN, "policy", one.version) + "adapter_model.safetensors", b"weights")
    store.put(manifest_key(RUN, "policy", one.version), one.model_dump_json().encode())


async def play(ledger: Ledger, store: LocalStore, episode: str) -> None:
    assert await ledger.episodes.claim(RUN, episode, "w", 60)
    await ledger.calls.pin(RUN, episode, 1, 0)
    await ledger.calls.count(RUN, episode, 1)
    await ledger.assembly.note_spans(RUN, [SpanNote(episode, 1, 1, "segment")])
    await ledger.episodes.close(RUN, episode, 1, AttemptResult(outcome="graded", reward=1.0))
    await settle(ledger, RUN, trajectory(episode), store=store)


@pytest_asyncio.fixture
async def sound(ledger: Ledger, store: LocalStore) -> Ledger:
    """A finished run of one group of two, consumed by version 1."""
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "group_size": 2}
    await ledger.runs.create(RunSpec.model_validate(spec | {"algorithm": {"groups_per_step": 1}}))
    await accept(ledger, RUN, [Planned("g")], store)
    await ledger.episodes.release(RUN)
    for episode in ("g.0", "g.1"):
        await play(ledger, store, episode)
    await put_manifest(store, manifest())
    await ledger.training.publish(RUN, 1)
    await ledger.runs.seal(RUN)
    await ledger.runs.finish(RUN)
    await ledger.replicas.beat(ReplicaStatus(id="r", url="http://r", base_model="m", ready=[ADAPTER]), 60)
    return ledger


def place(episode: str) -> str:
    """The key of the batch that holds `episode`: each has one of its own."""
    return trajectory_batch_key(RUN, batch_name(0, int(episode.removeprefix("g.")) + 1))


def put(store: LocalStore, episode: str, *trajectories: Trajectory) -> None:
    """Have the batch of `episode` hold these."""
    store.put(place(episode), encode_batch(trajectories))


def entry(episode: str) -> str:
    return f"leyden:{{{RUN}}}:e:{episode}"


async def test_a_sound_run_has_no_violations(sound: Ledger, store: LocalStore) -> None:
    assert await check_run(sound, store, RUN) == []


Plant = Callable[[Ledger, LocalStore], Awaitable[None]]


async def lost_episode(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hset(entry("g.0"), "state", "queued")


async def leased_after_its_end(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.zadd(f"leyden:{{{RUN}}}:leases", {"g.0": 1})


async def miscounted(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hincrby(f"leyden:{{{RUN}}}:counts", "train:succeeded", 1)


async def forgotten_episode(ledger: Ledger, store: LocalStore) -> None:
    # Counted as ended, but there is no trace of it.
    await ledger.redis.zrem(f"leyden:{{{RUN}}}:episodes", "g.0")


async def upload_gone(ledger: Ledger, store: LocalStore) -> None:
    (name,) = store.list(uploads_prefix(RUN))
    (store._root / name).unlink()


async def trajectory_gone(ledger: Ledger, store: LocalStore) -> None:
    store.delete(place("g.0"))


async def call_missing(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hset(entry("g.0"), "calls", 2)


async def another_attempt_won(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hset(entry("g.0"), "attempt", 2)


async def torn_trajectory(ledger: Ledger, store: LocalStore) -> None:
    store.put(place("g.0"), b"PAR1 and no more")


async def same_reply_twice(ledger: Ledger, store: LocalStore) -> None:
    step = trajectory("g.1").transitions[0].model_copy(update={"response_id": "reply-g.0"})
    put(store, "g.1", trajectory("g.1", transitions=(step,)))


async def stored_twice(ledger: Ledger, store: LocalStore) -> None:
    write_batch(store, RUN, batch_name(0, 3), [trajectory("g.0")])


async def a_later_attempt_is_stored(ledger: Ledger, store: LocalStore) -> None:
    write_batch(store, RUN, batch_name(1, 1), [trajectory("g.0", attempt=1_000_001)])


async def in_another_batch_than_the_ledger_says(ledger: Ledger, store: LocalStore) -> None:
    put(store, "g.0")
    write_batch(store, RUN, batch_name(0, 3), [trajectory("g.0")])


async def trained_twice(ledger: Ledger, store: LocalStore) -> None:
    await put_manifest(store, manifest(2))


async def trained_on_too_stale(ledger: Ledger, store: LocalStore) -> None:
    await put_manifest(store, manifest(1, groups=[], trained_episodes=[]))
    await put_manifest(store, manifest(2))


async def trained_on_unknown_version(ledger: Ledger, store: LocalStore) -> None:
    step = trajectory("g.0").transitions[0].model_copy(update={"policy_version": 7})
    put(store, "g.0", trajectory("g.0", transitions=(step,)))


async def trained_on_text_only(ledger: Ledger, store: LocalStore) -> None:
    put(store, "g.0", trajectory("g.0", transitions=(), verdict=Verdict.TEXT_ONLY))


async def adapter_changed(ledger: Ledger, store: LocalStore) -> None:
    store.put(adapter_prefix(RUN, "policy", 1) + "adapter_model.safetensors", b"weighty")


async def served_without_proof(ledger: Ledger, store: LocalStore) -> None:
    await ledger.replicas.beat(
        ReplicaStatus(id="r", url="http://r", base_model="m", ready=[ADAPTER], rejected={ADAPTER: "no"}), 60
    )


async def published_without_checkpoint(ledger: Ledger, store: LocalStore) -> None:
    await ledger.training.publish(RUN, 2)


async def anothers_call(ledger: Ledger, store: LocalStore) -> None:
    # A batch keeps one identity for all rows of an episode: only a whole trajectory can be another's.
    put(store, "g.0", trajectory("g.0", run="run-2"))


async def failure_with_a_reward(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hset(entry("g.0"), "state", "failed")


async def reward_rewritten(ledger: Ledger, store: LocalStore) -> None:
    await ledger.redis.hset(entry("g.0"), "reward", "0.5")


@pytest.mark.parametrize(
    ("invariant", "plant"),
    [
        ("I1", lost_episode),
        ("I1", leased_after_its_end),
        ("I1", miscounted),
        ("I1", forgotten_episode),
        ("I1", upload_gone),
        ("I2", trajectory_gone),
        ("I2", call_missing),
        ("I2", another_attempt_won),
        ("I2", torn_trajectory),
        ("I2", same_reply_twice),
        ("I2", stored_twice),
        ("I2", a_later_attempt_is_stored),
        ("I2", in_another_batch_than_the_ledger_says),
        ("I3", trained_twice),
        ("I3", trained_on_too_stale),
        ("I3", trained_on_unknown_version),
        ("I3", trained_on_text_only),
        ("I4", adapter_changed),
        ("I4", served_without_proof),
        ("I4", published_without_checkpoint),
        ("I5", anothers_call),
        ("I6", failure_with_a_reward),
        ("I6", reward_rewritten),
    ],
)
async def test_a_planted_violation_is_found(sound: Ledger, store: LocalStore, invariant: str, plant: Plant) -> None:
    await plant(sound, store)
    assert invariant in {violation.invariant for violation in await check_run(sound, store, RUN)}
