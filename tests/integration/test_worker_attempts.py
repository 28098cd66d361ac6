"""The worker's supervisor on a real ledger, with real agents in real processes; only Celery is absent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from leyden_contracts import Episode, EpisodeState, FailureReason
from leyden_ledger import Ledger
from leyden_runtime.tokens import Tokens
from leyden_storage import LocalStore
from leyden_worker.environment import Environments
from leyden_worker.settings import WorkerSettings
from leyden_worker.supervisor import Supervisor
from leyden_worker.tasks import RunReader, TaskReader
from leyden_worker.warm_pool import WarmPool
from support.worker import AGENTS, RUN, enter, noted, running

LEASE_S = 1.5


@pytest.fixture
async def supervisor(ledger: Ledger, store: LocalStore, tmp_path: Path, signing_key: str) -> AsyncIterator[Supervisor]:
    environments = Environments("http://127.0.0.1:1", "http://127.0.0.1:2", Tokens(signing_key))
    pool = WarmPool(environments, [AGENTS, tmp_path], import_timeout_s=30, size=8)
    settings = WorkerSettings(lease_s=LEASE_S, grader_timeout_s=1)
    supervisor = Supervisor("w", settings, ledger, RunReader(ledger), TaskReader(store), pool, environments)
    yield supervisor
    await supervisor.stop()
    await pool.close()


async def play(
    supervisor: Supervisor, store: LocalStore, agent: str, value: Any, grader: str = "one", **rules: Any
) -> Episode:
    """Run one attempt and return the episode."""
    ledger = supervisor.ledger
    (episode,) = await enter(ledger, store, agent, [value], grader=grader, **rules)
    await supervisor.supervise(RUN, episode)
    return await ledger.episodes.get(RUN, episode)


async def fields(ledger: Ledger, episode: str) -> dict[str, str]:
    return await ledger.redis.hgetall(f"leyden:{{{RUN}}}:e:{episode}")


async def until(condition: Any, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("agent", ["echo", "echo_async"])
@pytest.mark.parametrize(("grader", "reward"), [("one", 1.0), ("exact", 1.5), ("exact_async", 1.0)])
async def test_a_good_attempt_is_graded(
    supervisor: Supervisor, store: LocalStore, agent: str, grader: str, reward: float
) -> None:
    episode = await play(supervisor, store, agent, {"question": "?"}, grader)
    assert episode.state is EpisodeState.COLLECTING
    kept = await fields(supervisor.ledger, episode.id)
    assert float(kept["reward"]) == reward
    assert json.loads(kept["output"]) == {"question": "?"}
    if grader == "exact":
        assert json.loads(kept["rewards"]) == {"right": 1.0, "short": 0.5}


@pytest.mark.parametrize(
    ("agent", "value", "grader", "reason", "said"),
    [
        ("raises", "calc", "one", FailureReason.AGENT_ERROR, "no such tool: calc"),
        ("exits", 3, "one", FailureReason.AGENT_ERROR, "called exit(3)"),
        ("exits_at_once", 3, "one", FailureReason.AGENT_ERROR, "exit code 3"),
        ("killed", None, "one", FailureReason.AGENT_ERROR, "killed by SIGKILL"),
        ("not_json", None, "one", FailureReason.AGENT_ERROR, "JSON cannot hold"),
        ("huge", 9_000_000, "one", FailureReason.AGENT_ERROR, "LEYDEN_WORKER_MAX_OUTPUT_BYTES"),
        ("gateway_away", None, "one", FailureReason.INFRASTRUCTURE, "Connection error."),
        ("gateway_away_wrapped", None, "one", FailureReason.INFRASTRUCTURE, "the model did not answer"),
        ("leyden_agents.calculator.agent:answer", {"question": "?"}, "one", FailureReason.INFRASTRUCTURE, "Connection"),
        ("nothing:agent", None, "one", FailureReason.AGENT_ERROR, "run's agent `nothing:agent` cannot be used"),
        ("echo", 1, "nan", FailureReason.GRADER_ERROR, "not a finite number"),
        ("echo", 1, "grader_raises", FailureReason.GRADER_ERROR, "no words"),
        ("echo", 1, "grader_hangs", FailureReason.GRADER_ERROR, "the grader ran longer than 1 s"),
        ("echo", 1, "nothing:grade", FailureReason.GRADER_ERROR, "run's grader `nothing:grade` cannot be used"),
    ],
)
async def test_a_bad_attempt_fails_with_its_reason_and_without_a_reward(
    supervisor: Supervisor,
    store: LocalStore,
    agent: str,
    value: Any,
    grader: str,
    reason: FailureReason,
    said: str,
) -> None:
    episode = await play(supervisor, store, agent, value, grader)
    # What is not the agent's fault is tried again though it has one attempt.
    end = EpisodeState.QUEUED if reason is FailureReason.INFRASTRUCTURE else EpisodeState.FAILED
    assert (episode.state, episode.reason) == (end, reason)
    assert said in episode.message
    assert "reward" not in await fields(supervisor.ledger, episode.id)


async def test_a_hanging_agent_is_killed_at_its_deadline_with_its_family(
    supervisor: Supervisor, store: LocalStore, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    begun = time.monotonic()
    episode = await play(supervisor, store, "hangs_with_a_family", str(note), timeout_s=2)
    assert (episode.state, episode.reason) == (EpisodeState.TIMED_OUT, FailureReason.TIMEOUT)
    # The lease is shorter than the deadline: heartbeats kept it.
    assert 2 <= time.monotonic() - begun < 5
    assert len(noted(note)) == 4
    await until(lambda: not running(noted(note)))


async def test_a_cancelled_episodes_agent_is_killed_soon(
    supervisor: Supervisor, store: LocalStore, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    (episode,) = await enter(supervisor.ledger, store, "sleeps_noting_pid", [[str(note), 1000]], timeout_s=2000)
    attempt = asyncio.create_task(supervisor.supervise(RUN, episode))
    await until(lambda: noted(note), 15)
    await supervisor.ledger.episodes.cancel(RUN, episode)
    async with asyncio.timeout(LEASE_S + 1):
        await attempt
    assert not running(noted(note))
    assert (await supervisor.ledger.episodes.get(RUN, episode)).state is EpisodeState.CANCELLED


async def test_a_stopping_worker_kills_its_agents_and_gives_back(
    supervisor: Supervisor, store: LocalStore, tmp_path: Path
) -> None:
    notes = [tmp_path / f"pid{number}" for number in range(3)]
    ledger = supervisor.ledger
    inputs = [[str(note), 1000] for note in notes]
    episodes = await enter(ledger, store, "sleeps_noting_pid", inputs, timeout_s=2000)
    attempts = [asyncio.create_task(supervisor.supervise(RUN, episode)) for episode in episodes]
    await until(lambda: all(noted(note) for note in notes), 15)
    begun = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - begun < 2
    await asyncio.gather(*attempts, return_exceptions=True)
    assert not running([pid for note in notes for pid in noted(note)])
    for episode in episodes:
        assert (await ledger.episodes.get(RUN, episode)).state is EpisodeState.QUEUED
        # max_attempts is 1: had it been counted as a failure, this claim would be refused.
        assert await ledger.episodes.claim(RUN, episode, "another", 10) is not None


async def test_a_stopping_worker_starts_nothing(supervisor: Supervisor, store: LocalStore) -> None:
    (episode,) = await enter(supervisor.ledger, store, "echo", [1])
    await supervisor.stop()
    await supervisor.supervise(RUN, episode)
    untouched = await supervisor.ledger.episodes.get(RUN, episode)
    assert (untouched.state, untouched.attempt) == (EpisodeState.QUEUED, 0)


async def test_an_attempt_that_is_claimed_while_the_worker_stops_is_given_back(
    supervisor: Supervisor, store: LocalStore
) -> None:
    (episode,) = await enter(supervisor.ledger, store, "sleeps", [1000], timeout_s=2000)
    attempt = asyncio.create_task(supervisor.supervise(RUN, episode))
    await asyncio.sleep(0)  # the claim is on its way, its answer is not here
    await supervisor.stop()
    await attempt
    back = await supervisor.ledger.episodes.get(RUN, episode)
    assert (back.state, back.attempt) == (EpisodeState.QUEUED, 1)


async def test_two_rings_make_one_attempt(supervisor: Supervisor, store: LocalStore) -> None:
    (episode,) = await enter(supervisor.ledger, store, "echo", [1])
    await asyncio.gather(*(supervisor.supervise(RUN, episode) for _ in range(5)))
    assert (await supervisor.ledger.episodes.get(RUN, episode)).attempt == 1


async def test_a_missing_task_is_nobodys_fault_but_ours(
    supervisor: Supervisor, store: LocalStore, tmp_path: Path
) -> None:
    (episode,) = await enter(supervisor.ledger, store, "echo", [1])
    (file,) = (tmp_path / "store").rglob("*.jsonl")
    file.unlink()
    await supervisor.supervise(RUN, episode)
    ended = await supervisor.ledger.episodes.get(RUN, episode)
    assert ended.reason is FailureReason.INFRASTRUCTURE
    assert "ObjectNotFound" in ended.message


async def test_the_agent_holds_a_token_and_no_key_and_the_grader_neither(
    supervisor: Supervisor,
    store: LocalStore,
    tmp_path: Path,
    signing_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    episode = await play(supervisor, store, "dump_environment", None)
    output = (await fields(supervisor.ledger, episode.id))["output"]
    own = json.loads(output)["own"]
    assert own["OPENAI_API_KEY"].count(".") == 2
    assert own["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert signing_key not in output
    note = tmp_path / "grader-env"
    await enter(supervisor.ledger, store, "echo", [str(note)], run="run-g", grader="grader_dump_environment")
    (other,) = [e.id for e in await supervisor.ledger.episodes.list("run-g")]
    await supervisor.supervise("run-g", other)
    text = note.read_text()
    assert "PATH=" in text
    assert "OPENAI_BASE_URL" not in text
    assert signing_key not in text


async def test_a_large_trail_of_prints_does_not_stop_an_attempt(supervisor: Supervisor, store: LocalStore) -> None:
    episode = await play(supervisor, store, "chatters", 5000)
    assert episode.state is EpisodeState.COLLECTING
