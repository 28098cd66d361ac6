"""Runs are paused, resumed, cancelled and tried again."""

import asyncio

import httpx
import pytest

from leyden_contracts import AttemptResult, FailureReason
from leyden_ledger import Ledger
from leyden_storage import LocalStore
from leyden_task_api.loops import archive
from leyden_task_api.settings import TaskApiSettings
from support.playing import settle_all
from support.task_api import SPEC

URL = "/v1/runs/mine"
ONE_TRY = {**SPEC, "id": "mine", "episodes": {"max_attempts": 1}}


@pytest.fixture(autouse=True)
def run(http: httpx.Client) -> None:
    http.post("/v1/runs", json=ONE_TRY)


async def end(ledger: Ledger, fail: set[str]) -> None:
    """Run everything that is due; the episodes in `fail` fail."""
    for episode in await ledger.episodes.due("mine", 1000, 60):
        claim = await ledger.episodes.claim("mine", episode, "w", 60)
        assert claim
        result = AttemptResult(outcome="graded", reward=1.0)
        if episode in fail:
            result = AttemptResult(outcome="failed", reason=FailureReason.AGENT_ERROR)
        await ledger.episodes.close("mine", episode, claim.attempt, result)
        await settle_all(ledger, "mine")


async def test_pause_and_resume(http: httpx.Client, ledger: Ledger) -> None:
    http.post(f"{URL}/tasks", json={"input": 1})
    assert http.post(f"{URL}/pause").json()["summary"]["held"] == "paused"
    await ledger.episodes.release("mine")
    assert await ledger.episodes.due("mine", 10, 60) == []
    assert http.post(f"{URL}/resume").json()["summary"]["held"] is None
    await ledger.episodes.release("mine")
    assert len(await ledger.episodes.due("mine", 10, 60)) == 2


def test_cancel_ends_everything_for_good(http: httpx.Client, store: LocalStore) -> None:
    http.post(f"{URL}/tasks", json=[{"input": n} for n in range(5)])
    summary = http.post(f"{URL}/cancel").json()["summary"]
    assert (summary["state"], summary["counts"]["train:cancelled"]) == ("cancelled", 10)
    assert http.post(f"{URL}/cancel").status_code == 200
    assert http.post(f"{URL}/resume").status_code == 409
    refusal = http.post(f"{URL}/tasks", json={"input": 9}, params={"purpose": "eval"})
    assert refusal.status_code == 409 and "cancelled" in refusal.json()["detail"]
    assert store.exists("runs/mine/cancelled.json")


async def test_failed_episodes_are_tried_again_as_new_ones(http: httpx.Client, ledger: Ledger) -> None:
    assert http.post(f"{URL}/retry").json() == []
    http.post(f"{URL}/tasks", json=[{"input": n} for n in range(3)], params={"samples": 3})
    http.post(f"{URL}/tasks", json=[{"input": "e"}], params={"purpose": "eval", "samples": 4})
    await ledger.episodes.release("mine")
    episodes = [episode.id for episode in await ledger.episodes.list("mine")]
    ours = [id for id in episodes if id.endswith((".0", ".1"))]
    evals = (await ledger.episodes.list("mine", purpose="eval"))[0].group
    # Two of the first training group, and two of the evaluation's four.
    fail = {ours[0], ours[1], f"{evals}.0", f"{evals}.1"}
    await end(ledger, fail)

    done = sorted(http.post(f"{URL}/retry").json(), key=lambda one: one["groups"])
    assert [(one["groups"], one["episodes"], one["repeated"]) for one in done] == [(1, 3, False), (2, 2, False)]
    assert http.post(f"{URL}/retry").json() == [], "each failure is tried again once"
    for id in fail:
        assert (await ledger.episodes.get("mine", id)).state == "failed"
    new = [episode for episode in await ledger.episodes.list("mine") if episode.id not in episodes]
    assert {episode.task for episode in new} == {ours[0].split("-")[0], evals.split("-")[0]}
    assert [episode.purpose for episode in new].count("eval") == 2

    again = next(episode.id for episode in new if episode.purpose == "eval")
    await end(ledger, {again})
    (only,) = http.post(f"{URL}/retry").json()
    assert only["episodes"] == 1, "what failed anew, and not what was tried again before"


async def test_a_retry_that_was_cut_off_makes_nothing_twice(http: httpx.Client, ledger: Ledger) -> None:
    http.post(f"{URL}/tasks", json=[{"input": 1}], params={"purpose": "eval"})
    (episode,) = await ledger.episodes.list("mine")
    await end(ledger, {episode.id})
    assert len(http.post(f"{URL}/retry").json()) == 1
    await ledger.redis.delete("leyden:{mine}:retried")  # as if it had been killed before it noted this
    (repeated,) = http.post(f"{URL}/retry").json()
    assert repeated["repeated"]
    assert len(await ledger.episodes.list("mine")) == 2


async def test_an_archived_run_can_still_be_read(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    http.post(f"{URL}/tasks", json=[{"input": n} for n in range(3)])
    http.post(f"{URL}/cancel")
    await ledger.episodes.expire("mine", 1)
    before = http.get(f"{URL}/episodes").json()
    assert len(before["episodes"]) == 6
    assert await archive(ledger, store, TaskApiSettings(archive_after_s=60)) == 0
    assert await archive(ledger, store, TaskApiSettings(archive_after_s=0)) == 1
    await asyncio.sleep(0)
    assert await ledger.redis.zcard("leyden:{mine}:episodes") == 0
    assert http.get(f"{URL}/episodes").json() == before
    one = before["episodes"][4]
    assert http.get(f"{URL}/episodes/{one['id']}").json() == one
    assert http.post(f"{URL}/episodes/{one['id']}/cancel").json() == one
    assert http.get(f"{URL}/episodes/nobody.0").status_code == 404
