"""A run's versions over HTTP and by command: scores, lineage, promote, roll back."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from leyden_client.cli import app
from leyden_contracts import Promotion
from leyden_ledger import Ledger, Outpaced, ReplicaStatus
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.promotions import stored_promotions, write_promotion
from leyden_task_api.evaluator import Evaluator
from leyden_task_api.feeder import Feeder
from leyden_task_api.promotion import Promoter
from support.task_api import SPEC, play, put_adapter

RUN = {**SPEC, "id": "mine", "evaluation": {"every": 2}}
TASKS = [{"input": n} for n in range(4)]
Leyden = Callable[..., str]


@pytest.fixture(autouse=True)
async def versions(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    """A run with versions 1 to 4; the replica `one` has proved all but the third, which `two` withholds."""
    assert http.post("/v1/runs", json=RUN).status_code == 201
    for version in (1, 2, 3, 4):
        put_adapter(store, "mine", version, reward=version / 10)
        await ledger.training.publish("mine", version)
        if version != 3:
            await ledger.replicas.mark_ready("mine", version)
    ready = ["mine--policy--v2", "mine--policy--v4"]
    one = ReplicaStatus(id="one", url="http://one", base_model="tiny", ready=ready)
    rejected = {"mine--policy--v3": "sha256 differs"}
    two = ReplicaStatus(id="two", url="http://two", base_model="tiny", rejected=rejected)
    for replica in (one, two, ReplicaStatus(id="far", url="http://far", base_model="large")):
        await ledger.replicas.beat(replica, 600)


@pytest.fixture
def leyden(api: str, token: str, tmp_path: Path) -> Leyden:
    def run(*args: object, exit_code: int = 0) -> str:
        known = {"LEYDEN_API_URL": api, "LEYDEN_API_TOKEN": token, "LEYDEN_DATA_DIR": str(tmp_path / "none")}
        result = CliRunner().invoke(app, [str(arg) for arg in args], env={**known, "COLUMNS": "200"})
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result.output

    return run


async def evaluate(ledger: Ledger, store: LocalStore) -> None:
    evaluator, feeder = Evaluator(ledger, store), Feeder(ledger, store, 10_000)
    for _ in range(4):
        await evaluator.round()
        await feeder.feed("mine")
        await play(ledger, "mine", lambda episode: (episode.policy_version or 0) / 4)


async def test_versions_are_shown_with_scores_and_places(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    assert http.get("/v1/runs/mine/versions").json()["promoted"] is None
    http.post("/v1/runs/mine/tasks", json=TASKS, params={"purpose": "held_out"})
    await Evaluator(ledger, store).round()
    begun = http.get("/v1/runs/mine/versions").json()["versions"]
    assert [view["evaluating"] for view in begun] == [True, False, True, False, False]
    await evaluate(ledger, store)
    shown = http.get("/v1/runs/mine/versions").json()
    assert (shown["promoted"], shown["latest"]) == (4, 4)
    base, first, second, third, fourth = shown["versions"]
    assert [view["version"] for view in shown["versions"]] == [0, 1, 2, 3, 4]
    assert base["parent"] is None and base["ready"] == ["one", "two"] and base["evaluation"]["score"] == 0
    assert first["parent"] == 0 and first["ready"] == [] and first["proved"] and first["evaluation"] is None
    assert second["evaluation"]["score"] == 0.5 and second["evaluation"]["counts"] == {"succeeded": 4}
    assert second["evaluation"]["interval"] == [0.5, 0.5] and second["metrics"] == {"reward_mean": 0.2}
    assert third["withheld"] == {"two": "sha256 differs"} and not third["proved"]
    assert fourth["promoted"] and not any(view["promoted"] for view in (base, first, second, third))
    low, high = fourth["evaluation"]["interval"]
    assert 0 < low < 1 and high == 1
    numbers = [(one["number"], one["version"]) for one in shown["promotions"]]
    assert numbers[-1] == (len(numbers), 4)


async def test_lineage_says_what_made_a_version(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    http.post("/v1/runs/mine/promote", json={"version": 4})
    made = http.get("/v1/runs/mine/versions/4").json()
    assert made["parents"] == [3, 2, 1, 0]
    assert (made["agent"], made["grader"], made["base_model"]) == ("my_agent:solve", "my_agent:grade", "tiny")
    assert made["groups"] == ["g-4"] and made["trained_episodes"] == ["g-4.0"] and made["skipped"]
    assert made["files"]["adapter_model.safetensors"] == hashlib.sha256(b"wwww").hexdigest()
    assert [one["cause"] for one in made["promotions"]] == ["person"]
    base = http.get("/v1/runs/mine/versions/0").json()
    assert base["parents"] == [] and base["files"] == {} and base["promotions"] == []
    assert http.get("/v1/runs/mine/versions/9").status_code == 404
    assert http.get("/v1/runs/absent/versions").status_code == 404


async def test_promote_and_roll_back(http: httpx.Client, ledger: Ledger, store: LocalStore) -> None:
    def promote(version: int) -> httpx.Response:
        return http.post("/v1/runs/mine/promote", json={"version": version})

    nothing = http.post("/v1/runs/mine/rollback")
    assert nothing.status_code == 409 and "promote the version" in nothing.json()["detail"]
    for version in (0, 2, 4):
        assert promote(version).status_code == 200
    assert promote(4).json()["number"] == 3, "repeating it is harmless"
    assert (await ledger.promotions.current("mine")).best == 4
    assert await ledger.replicas.wanted("mine") == {2, 4}
    assert promote(9).status_code == 404
    withheld = promote(3)
    assert withheld.status_code == 409 and "sha256 differs" in withheld.json()["detail"]
    assert [http.post("/v1/runs/mine/rollback").json()["version"] for _ in range(2)] == [2, 0]
    assert http.post("/v1/runs/mine/rollback").status_code == 409
    causes = [(one.number, one.version, one.cause) for one in stored_promotions(store, "mine")]
    assert causes[3:] == [(4, 2, "rollback"), (5, 0, "rollback")]
    promote(4)
    assert http.post("/v1/runs/mine/rollback").json()["version"] == 0
    assert promote(-1).status_code == 422


async def test_a_version_that_no_replica_has_proved_says_what_to_do(http: httpx.Client, store: LocalStore) -> None:
    put_adapter(store, "mine", 5)
    answer = http.post("/v1/runs/mine/promote", json={"version": 5})
    assert answer.status_code == 409 and "--eval --policy-version 5" in answer.json()["detail"]


async def test_a_roll_back_that_is_sent_twice_rolls_back_once(http: httpx.Client, ledger: Ledger) -> None:
    for version in (0, 2, 4):
        http.post("/v1/runs/mine/promote", json={"version": version})
    answers = [http.post("/v1/runs/mine/rollback", json={"undo": 3}) for _ in range(2)]
    assert [answer.json()["number"] for answer in answers] == [4, 4]
    assert http.post("/v1/runs/mine/rollback", json={"undo": 1}).status_code == 409
    assert (await ledger.promotions.current("mine")).best == 2


async def test_of_two_decisions_at_once_one_is_told(ledger: Ledger, store: LocalStore) -> None:
    promoters = [Promoter(ledger, store) for _ in range(5)]
    decisions = [promoter.promote("mine", version) for version, promoter in enumerate(promoters)]
    outcomes = await asyncio.gather(*decisions, return_exceptions=True)
    won = [outcome for outcome in outcomes if isinstance(outcome, Promotion)]
    assert len(won) + sum(isinstance(outcome, Outpaced) for outcome in outcomes) == 5
    assert sorted(one.number for one in won) == list(range(1, len(won) + 1))
    assert await ledger.promotions.history("mine") == list(stored_promotions(store, "mine"))


async def test_what_a_crash_kept_from_the_ledger_is_entered_at_the_next_look(
    http: httpx.Client, ledger: Ledger, store: LocalStore
) -> None:
    write_promotion(store, Promotion(run="mine", number=1, version=2, cause="person", created=0))
    assert (await ledger.promotions.current("mine")).best is None
    assert http.get("/v1/runs/mine/versions").json()["promoted"] == 2
    assert (await ledger.promotions.current("mine")).best == 2
    write_promotion(store, Promotion(run="mine", number=2, version=4, cause="person", before=1, created=0))
    assert http.post("/v1/runs/mine/promote", json={"version": 4}).json()["number"] == 2, "it repeats the first"
    assert (await ledger.promotions.current("mine")).best == 4


def test_another_tenant_sees_and_changes_nothing(api: str, signing_key: str) -> None:
    token = Tokens(signing_key).mint(Scope.API, 60, tenant="theirs")
    with httpx.Client(base_url=api, headers={"Authorization": f"Bearer {token}"}) as theirs:
        answers = [theirs.get("/v1/runs/mine/versions"), theirs.get("/v1/runs/mine/versions/1")]
        answers += [theirs.post("/v1/runs/mine/promote", json={"version": 1}), theirs.post("/v1/runs/mine/rollback")]
        assert {answer.status_code for answer in answers} == {theirs.get("/v1/runs/mine").status_code} == {403}


async def test_the_commands(leyden: Leyden, ledger: Ledger, store: LocalStore, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(task) for task in TASKS))
    assert leyden("tasks", "upload", "mine", file, "--held-out") == "4 tasks, held out\n"
    assert leyden("tasks", "upload", "mine", file, "--held-out") == "4 tasks, held out (they were there already)\n"
    assert "choose one" in leyden("tasks", "upload", "mine", file, "--held-out", "--eval", exit_code=2)
    await evaluate(ledger, store)
    table = leyden("run", "versions", "mine")
    assert "0.500" in table and "4 succeeded" in table and "two: sha256 differs" in table
    assert json.loads(leyden("run", "versions", "mine", "--json"))["promoted"] == 4
    assert json.loads(leyden("run", "versions", "mine", "--lineage", 2))["parents"] == [1, 0]
    assert "run mine: version 1 is promoted" in leyden("run", "promote", "mine", 1)
    assert "no version 9" in leyden("run", "promote", "mine", 9, exit_code=2)
    assert "run mine: back to version 4" in leyden("run", "rollback", "mine")
