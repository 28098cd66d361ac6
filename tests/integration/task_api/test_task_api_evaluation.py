"""Held-out tasks are run on every so many versions, and the best one is promoted: once, whatever is killed."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from leyden_contracts import Episode
from leyden_ledger import Ledger, Promoted
from leyden_ledger.archive import archive_run
from leyden_ledger.check import check_run
from leyden_ledger.recovery import recover
from leyden_runtime import failpoints
from leyden_runtime.failpoints import parse
from leyden_storage import LocalStore
from leyden_storage.promotions import stored_evaluations, stored_promotions
from leyden_task_api import telemetry
from leyden_task_api.evaluator import Evaluator
from leyden_task_api.feeder import Feeder
from leyden_task_api.loops import Gauges
from leyden_task_api.promotion import Promoter
from support.task_api import SPEC, play, put_adapter

TASKS = [{"input": n} for n in range(10)]
Reward = Callable[[Episode], float | None]


@pytest.fixture(autouse=True)
def run(http: httpx.Client) -> None:
    made = http.post("/v1/runs", json={**SPEC, "id": "mine", "evaluation": {"every": 2}})
    assert made.status_code == 201
    done = http.post("/v1/runs/mine/tasks", json=TASKS, params={"purpose": "held_out"})
    assert done.status_code == 202 and done.json()["episodes"] == 0 and done.json()["groups"] == 10


def scores(**by_version: float) -> Reward:
    return lambda episode: by_version[f"v{episode.policy_version}"]


async def serve(ledger: Ledger, store: LocalStore, *versions: int) -> None:
    """Publish and prove versions, as learner and loader would."""
    for version in versions:
        put_adapter(store, "mine", version)
        await ledger.training.publish("mine", version)
        await ledger.replicas.mark_ready("mine", version)


async def work(ledger: Ledger, store: LocalStore, reward: Reward, rounds: int = 4) -> int:
    """Let the evaluator and the workers do what there is to do; return how many episodes ran."""
    evaluator, feeder, played = Evaluator(ledger, store), Feeder(ledger, store, 10_000), 0
    for _ in range(rounds):
        await evaluator.round()
        await feeder.feed("mine")
        played += await play(ledger, "mine", reward)
    return played


async def found(ledger: Ledger) -> dict[int, float | None]:
    results = (await ledger.evaluations.progress("mine")).results
    return {version: one.score for version, one in results.items()}


async def test_the_base_and_every_second_version_are_evaluated_and_the_best_is_promoted(
    ledger: Ledger, store: LocalStore
) -> None:
    reward = scores(v0=0.1, v2=0.8, v4=0.5, v6=0.8)
    assert await work(ledger, store, reward) == 10
    assert await found(ledger) == {0: 0.1}
    assert await ledger.promotions.current("mine") == Promoted(best=0, latest=0)
    await serve(ledger, store, 1, 2)
    assert await work(ledger, store, reward) == 10
    await serve(ledger, store, 3, 4, 5, 6)
    assert await work(ledger, store, reward) == 20
    assert await work(ledger, store, reward) == 0
    assert await found(ledger) == {0: 0.1, 2: 0.8, 4: 0.5, 6: 0.8}
    history = list(stored_promotions(store, "mine"))
    assert [(one.version, one.score, one.cause) for one in history] == [(0, 0.1, "evaluation"), (2, 0.8, "evaluation")]
    assert history == await ledger.promotions.history("mine")
    assert await ledger.promotions.current("mine") == Promoted(best=2, latest=6)
    # Trajectories are not played here: I2 and I3 are for the tests of the whole loop.
    assert [one for one in await check_run(ledger, store, "mine") if one.invariant == "I1"] == []
    assert (await ledger.runs.summary("mine")).groups_finished == 0, "nothing was announced to the learner"


async def test_failures_are_counted_and_no_zeros(ledger: Ledger, store: LocalStore) -> None:
    def reward(episode: Episode) -> float | None:
        number = int(episode.group.rsplit("-", 1)[-1])
        return None if number < (1 if episode.policy_version == 0 else 2) else 0.25

    await serve(ledger, store, 1, 2)
    evaluator, feeder = Evaluator(ledger, store), Feeder(ledger, store, 10_000)
    await evaluator.round()
    await feeder.feed("mine")
    for _ in range(3):  # each failure is tried three times
        await play(ledger, "mine", reward)
        for episode in await ledger.redis.zrange("leyden:{mine}:due", 0, -1):
            await ledger.redis.zadd("leyden:{mine}:due", {episode: 0})
    await evaluator.round()
    results = (await ledger.evaluations.progress("mine")).results
    assert results[0].score == 0.25 and results[0].counts == {"succeeded": 9, "failed": 1}
    assert results[2].score is None and results[2].counts == {"succeeded": 8, "failed": 2}
    assert results[2].reason == "8 of 10 episodes succeeded; a score needs 90%"
    assert (await ledger.promotions.current("mine")).best == 0


async def test_two_loops_make_one_evaluation_and_one_promotion(ledger: Ledger, store: LocalStore) -> None:
    await serve(ledger, store, 1, 2)
    loops, feeder = [Evaluator(ledger, store) for _ in range(4)], Feeder(ledger, store, 10_000)
    played = 0
    for _ in range(4):
        await asyncio.gather(*(loop.round() for loop in loops))
        await feeder.feed("mine")
        played += await play(ledger, "mine", scores(v0=0.1, v2=0.2))
    assert played == 20
    assert len(await ledger.uploads.registered("mine")) == 2
    assert (await ledger.promotions.current("mine")).best == 2
    assert list(stored_promotions(store, "mine")) == await ledger.promotions.history("mine")
    assert len(await ledger.promotions.history("mine")) == 1


@pytest.mark.parametrize("point", ["task_api.evaluating", "task_api.evaluated", "task_api.promoted"])
async def test_what_is_cut_off_between_store_and_ledger_is_done_by_the_next_round(
    ledger: Ledger, store: LocalStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    passed = telemetry.LOOP_FAILURES.labels("evaluator")._value.get()
    monkeypatch.setattr(failpoints, "_armed", parse(f"{point}=error@1"))
    assert await work(ledger, store, scores(v0=0.5), rounds=6) == 10
    assert telemetry.LOOP_FAILURES.labels("evaluator")._value.get() == passed + 1, "it was cut off"
    assert await found(ledger) == {0: 0.5}
    assert [one.score for one in stored_evaluations(store, "mine")] == [0.5]
    (only,) = stored_promotions(store, "mine")
    assert only.version == 0 and await ledger.promotions.history("mine") == [only]


async def test_versions_that_came_too_fast_are_asked_for_and_not_evaluated_before_their_proof(
    ledger: Ledger, store: LocalStore
) -> None:
    await work(ledger, store, scores(v0=0.1))
    for version in (1, 2, 3):
        await ledger.training.publish("mine", version)
    await ledger.replicas.mark_ready("mine", 3)
    assert await ledger.replicas.wanted("mine") == {3}
    assert await work(ledger, store, scores(v0=0.1)) == 0
    assert await ledger.replicas.wanted("mine") == {2, 3}
    await ledger.replicas.mark_ready("mine", 2)
    assert await work(ledger, store, scores(v2=0.1)) == 10
    assert await found(ledger) == {0: 0.1, 2: 0.1}
    assert await ledger.replicas.wanted("mine") == {3}, "a tie: the base stays"


async def test_a_version_stays_wanted_from_its_proof_to_the_decision(ledger: Ledger, store: LocalStore) -> None:
    reward = scores(v0=0.1, v2=0.9)
    await work(ledger, store, reward)
    await serve(ledger, store, 1, 2)
    evaluator = Evaluator(ledger, store)
    await evaluator.round()
    await Feeder(ledger, store, 10_000).feed("mine")
    await serve(ledger, store, 3)
    await play(ledger, "mine", reward)
    assert await ledger.replicas.wanted("mine") == {2, 3}, "its episodes have ended, and nothing is decided yet"
    await evaluator.round()
    assert await ledger.replicas.wanted("mine") == {2, 3} and (await ledger.promotions.current("mine")).best == 2


async def test_what_a_person_promotes_after_the_end_is_evaluated_too(
    http: httpx.Client, ledger: Ledger, store: LocalStore
) -> None:
    await work(ledger, store, scores(v0=0.1))
    await serve(ledger, store, 1)
    await ledger.runs.seal("mine")
    await ledger.runs.finish("mine")
    await work(ledger, store, scores())
    assert await ledger.evaluations.watched() == []
    assert http.post("/v1/runs/mine/promote", json={"version": 1}).status_code == 200
    assert await work(ledger, store, scores(v1=0.05)) == 10
    assert await found(ledger) == {0: 0.1, 1: 0.05}
    assert (await ledger.promotions.current("mine")).best == 1, "a person's word stands"


async def test_the_last_version_is_evaluated_after_the_runs_end(ledger: Ledger, store: LocalStore) -> None:
    await work(ledger, store, scores(v0=0.1))
    await serve(ledger, store, 1, 2)
    await ledger.runs.seal("mine")
    await ledger.runs.finish("mine")
    assert await ledger.runs.rest("mine")
    assert await work(ledger, store, scores(v2=0.3)) == 10
    assert await ledger.evaluations.watched() == [], "nothing is left to evaluate"
    assert await ledger.runs.rest("mine") and await archive_run(ledger, store, "mine")
    assert await ledger.promotions.current("mine") == Promoted(best=2, latest=2)
    assert await ledger.replicas.wanted("mine") == {2}
    assert len(await ledger.promotions.history("mine")) == 2 and await found(ledger) == {0: 0.1, 2: 0.3}


async def test_a_result_is_found_in_the_archive_too(ledger: Ledger, store: LocalStore) -> None:
    evaluator, feeder = Evaluator(ledger, store), Feeder(ledger, store, 10_000)
    await evaluator.round()
    await feeder.feed("mine")
    await play(ledger, "mine", scores(v0=0.7))
    await ledger.runs.seal("mine")
    await ledger.runs.finish("mine")
    assert await archive_run(ledger, store, "mine")
    await evaluator.round()
    assert await found(ledger) == {0: 0.7}


async def test_a_person_rolls_back_and_the_evaluator_does_not_take_it_back(ledger: Ledger, store: LocalStore) -> None:
    reward = scores(v0=0.1, v2=0.9, v4=0.2, v6=0.15)
    await work(ledger, store, reward)
    await serve(ledger, store, 1, 2)
    await work(ledger, store, reward)
    back = await Promoter(ledger, store).roll_back("mine")
    assert (back.version, back.cause) == (0, "rollback")
    await work(ledger, store, reward)
    assert (await ledger.promotions.current("mine")).best == 0
    await serve(ledger, store, 3, 4, 5, 6)
    await work(ledger, store, reward)
    assert (await ledger.promotions.current("mine")).best == 4, "better than the base, and newer than the decision"


async def test_a_lost_ledger_gets_scores_and_promotions_back(ledger: Ledger, store: LocalStore) -> None:
    reward = scores(v0=0.1, v2=0.9)
    await work(ledger, store, reward)
    await serve(ledger, store, 1, 2)
    await work(ledger, store, reward)
    await Promoter(ledger, store).roll_back("mine")
    history, results = await ledger.promotions.history("mine"), await found(ledger)
    await ledger.redis.flushall()
    await recover(ledger, store)
    assert await ledger.promotions.history("mine") == history and len(history) == 3
    assert (await ledger.promotions.current("mine")).best == 0
    assert await found(ledger) == results
    assert (await ledger.runs.summary("mine")).held_out
    assert await ledger.evaluations.watched() == ["mine"]
    await ledger.replicas.mark_ready("mine", 2)
    assert await ledger.replicas.wanted("mine") == {2}
    await work(ledger, store, reward)
    assert await ledger.promotions.history("mine") == history


async def test_an_evaluation_that_was_under_way_goes_on_in_a_rebuilt_ledger(ledger: Ledger, store: LocalStore) -> None:
    await Evaluator(ledger, store).round()
    await Feeder(ledger, store, 10_000).feed("mine")
    await ledger.redis.flushall()
    await recover(ledger, store)
    assert await work(ledger, store, scores(v0=0.4)) == 10
    assert await found(ledger) == {0: 0.4}


async def test_people_may_promote_where_the_run_does_not(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    http.post("/v1/runs", json={**SPEC, "id": "other", "evaluation": {"every": 1, "promote": False}})
    http.post("/v1/runs/other/tasks", json=TASKS, params={"purpose": "held_out", "samples": 2})
    evaluator, feeder = Evaluator(ledger, store), Feeder(ledger, store, 10_000)
    await evaluator.round()
    await feeder.feed("other")
    assert await play(ledger, "other", lambda _: 1.0) == 20
    await evaluator.round()
    assert (await ledger.evaluations.progress("other")).results[0].score == 1.0
    assert (await ledger.promotions.current("other")).best is None


async def test_a_cancelled_run_is_left_alone(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    await Evaluator(ledger, store).round()
    http.post("/v1/runs/mine/cancel")
    assert await work(ledger, store, scores(v0=1.0)) == 0
    assert await ledger.evaluations.watched() == [] and await found(ledger) == {}
    again = http.post("/v1/runs/mine/tasks", json=TASKS, params={"purpose": "held_out"})
    assert again.status_code == 409


async def test_gauges_show_the_promoted_version_and_the_scores(ledger: Ledger, store: LocalStore) -> None:
    await work(ledger, store, scores(v0=0.6))
    await serve(ledger, store, 1, 2)
    await work(ledger, store, scores(v2=0.4))
    gauges = Gauges(ledger, keep_s=0)
    await gauges.refresh()
    assert telemetry.PROMOTED.labels("mine")._value.get() == 0
    assert telemetry.SCORE.labels("mine", "promoted")._value.get() == 0.6
    assert telemetry.SCORE.labels("mine", "newest")._value.get() == 0.4
    await ledger.runs.seal("mine")
    await ledger.runs.finish("mine")
    assert await ledger.runs.rest("mine")
    await gauges.refresh()
    assert ("mine", "newest") not in telemetry.SCORE._metrics and ("mine",) not in telemetry.PROMOTED._metrics


def test_held_out_tasks_are_uploaded_once(http: httpx.Client) -> None:
    def upload(tasks: list[dict[str, int]], run: str = "mine", **params: object) -> httpx.Response:
        return http.post(f"/v1/runs/{run}/tasks", json=tasks, params={"purpose": "held_out", **params})

    again = upload(TASKS)
    assert again.status_code == 202 and again.json()["repeated"]
    other = upload(TASKS[:3])
    assert other.status_code == 409 and "other held-out tasks" in other.json()["detail"]
    assert upload(TASKS, policy_version=0).status_code == 422
    http.post("/v1/runs", json={**SPEC, "id": "plain"})
    refused = upload(TASKS, "plain")
    assert refused.status_code == 422 and "evaluation.every" in refused.json()["detail"]
    assert http.get("/v1/runs/mine/episodes").json()["episodes"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"evaluation": {"promote": False}},
        {"evaluation": {"every": -1}},
        {"evaluation": {"evry": 1}},
        {"evaluation": {"every": 1}, "algorithm": {"control": "unpublished", "max_staleness": 1000}},
    ],
)
def test_evaluations_that_mean_nothing_are_refused(http: httpx.Client, change: dict[str, object]) -> None:
    answer = http.post("/v1/runs", json={**SPEC, "id": "odd", **change})
    assert answer.status_code == 422 and "evaluation" in str(answer.json()["errors"])
