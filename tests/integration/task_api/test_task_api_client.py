"""The client and the `leyden` command against a real API, with the other parts played behind it."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from leyden_client import ApiError, EvalResult, LeydenClient, evaluate
from leyden_client.cli import app
from leyden_client.download import download_adapter
from leyden_client.errors import ClientError
from leyden_client.training import train
from leyden_contracts import Episode, RunSpec, Task, TaskInput
from leyden_ledger import Ledger
from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.keys import adapter_prefix
from support.proxy import Proxy, proxy_to
from support.task_api import SPEC, play, played, put_adapter

TASKS = [TaskInput(input=n, expected=n, tags={"length": "long" if n > 2 else "short"}) for n in range(5)]
Leyden = Callable[..., Result]


@pytest.fixture
def leyden(api: str, token: str, tmp_path: Path) -> Leyden:
    """Runs the command as a user would who has set the two variables."""

    def run(*args: object, exit_code: int = 0, **environment: str) -> Result:
        known = {"LEYDEN_API_URL": api, "LEYDEN_API_TOKEN": token, "LEYDEN_DATA_DIR": str(tmp_path / "none")}
        result = CliRunner().invoke(app, [str(arg) for arg in args], env={**known, "COLUMNS": "200", **environment})
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def tasks_file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(task.model_dump_json() for task in TASKS))
    return path


@pytest.fixture
def learning(redis_url: str, store: LocalStore) -> Iterator[None]:
    """Version n succeeds on the tasks whose input is below n + 1."""

    def reward(episode: Episode) -> float | None:
        inputs = {Task.of(task).id: task.input for task in TASKS}
        return float(inputs[episode.task] < (episode.policy_version or 0) + 1)

    with played(redis_url, store, reward):
        yield


def _let_go_late(proxy: Proxy) -> None:
    """Let answers pass, but the first one only when its client has given up."""
    if proxy.held.wait(60):
        time.sleep(1.2)
        proxy.replies.set()


def test_a_request_whose_answer_is_lost_is_repeated_and_makes_one_run(api: str, token: str) -> None:
    host, port = api.removeprefix("http://").split(":")
    with (
        proxy_to(host, int(port)) as proxy,
        LeydenClient(f"http://127.0.0.1:{proxy.port}", token, timeout_s=1) as client,
    ):
        proxy.replies.clear()
        threading.Thread(target=_let_go_late, args=[proxy], daemon=True).start()
        view = client.create_run(RunSpec.model_validate(SPEC))
        assert proxy.held.is_set()
        assert [view.spec.id for view in client.runs()] == [view.spec.id]


def test_creating_a_run_again_is_harmless_and_changing_it_is_refused(client: LeydenClient) -> None:
    view = client.create_run(RunSpec.model_validate(SPEC))
    assert client.create_run(view.spec) == view
    assert [view.spec.id for view in client.runs()] == [view.spec.id]
    with pytest.raises(ApiError) as error:
        client.create_run(view.spec.model_copy(update={"seed": 9}))
    assert error.value.problem.status == 409 and error.value.exit_code == 2


async def test_evaluation_counts_what_was_graded_and_nothing_that_failed(
    client: LeydenClient, redis_url: str, store: LocalStore
) -> None:
    client.create_run(RunSpec.model_validate({**SPEC, "id": "mine", "episodes": {"max_attempts": 1}}))
    client.upload_tasks("mine", TASKS)

    def reward(episode: Episode) -> float | None:
        return None if episode.group.endswith("-4") else float(episode.group.endswith(("-0", "-3")))

    seen: list[tuple[int, int]] = []
    with played(redis_url, store, reward):
        result = evaluate(client, "mine", TASKS, 0, 2, poll_s=0.02, on_progress=lambda *at: seen.append(at))
        again = evaluate(client, "mine", TASKS, 0, 2, poll_s=0.02, timeout_s=5)
    assert result == again
    assert (result.success, result.n, result.failed) == (0.5, 8, 2)
    assert result.by_tag == {"length=long": (1.0, 2), "length=short": (1 / 3, 6)}
    assert result.stderr == pytest.approx(math.sqrt(0.25 / 8))
    assert seen[-1] == (10, 10) and seen == sorted(seen)


async def test_an_evaluation_on_another_version_than_was_asked_for_is_an_error(
    client: LeydenClient, ledger: Ledger
) -> None:
    client.create_run(RunSpec.model_validate({**SPEC, "id": "mine"}))
    client.upload_tasks("mine", TASKS[:1], purpose="eval", policy_version=0)
    await play(ledger, "mine", lambda _: 1.0, pin=3)
    with pytest.raises(ClientError, match="ran on version 3"):
        evaluate(client, "mine", TASKS[:1], 0, poll_s=0.02, timeout_s=5)


def test_an_evaluation_that_nobody_runs_times_out(client: LeydenClient) -> None:
    client.create_run(RunSpec.model_validate({**SPEC, "id": "mine"}))
    with pytest.raises(ClientError, match="not over"):
        evaluate(client, "mine", TASKS, 0, poll_s=0.02, timeout_s=0.1)


@pytest.mark.usefixtures("learning")
def test_training_from_tasks_to_a_downloaded_adapter(client: LeydenClient, tmp_path: Path, store: LocalStore) -> None:
    spec = RunSpec.model_validate({**SPEC, "id": "mine"})
    result = train(client, spec, TASKS, 3, eval_tasks=TASKS, eval_samples=2, folder=tmp_path)
    assert (result.run, result.version) == ("mine", 3)
    assert result.before == EvalResult(0, 0.2, 10, 0, {"length=long": (0.0, 4), "length=short": (1 / 3, 6)})
    assert result.after and result.after.success == 0.8
    assert result.final.summary.groups_consumed == 6
    assert (tmp_path / "mine" / "adapter_model.safetensors").read_bytes() == b"www"
    trained = [episode for episode in client.episodes("mine", purpose="train")]
    assert len(trained) == 12 and {episode.task for episode in trained} == {Task.of(task).id for task in TASKS}


def test_a_download_is_checked_against_its_manifest(client: LeydenClient, tmp_path: Path, store: LocalStore) -> None:
    client.create_run(RunSpec.model_validate({**SPEC, "id": "mine"}))
    put_adapter(store, "mine", 1)
    names = [path.name for path in download_adapter(client, "mine", 1, tmp_path / "a")]
    assert names == ["adapter_model.safetensors", "adapter_config.json", "manifest.json"]
    every = download_adapter(client, "mine", 1, tmp_path / "b", training_state=True)
    assert "optimizer.pt" in [path.name for path in every]
    store.put(adapter_prefix("mine", "policy", 1) + "adapter_model.safetensors", b"x")
    with pytest.raises(ClientError, match="does not have the hash"):
        download_adapter(client, "mine", 1, tmp_path / "c")
    assert not (tmp_path / "c" / "manifest.json").exists()


def test_the_commands_of_a_run(leyden: Leyden, tmp_path: Path, tasks_file: Path, store: LocalStore) -> None:
    spec = tmp_path / "run.json"
    spec.write_text(json.dumps({**SPEC, "id": "mine"}))
    assert leyden("run", "create", spec).stdout == "mine\n"
    assert "5 tasks, 10 episodes" in leyden("tasks", "upload", "mine", tasks_file).stdout
    assert "already" in leyden("tasks", "upload", "mine", tasks_file).stdout
    assert "10 episodes\n" in leyden("tasks", "upload", "mine", tasks_file, "--key", "second pass").stdout
    assert "5 episodes" in leyden("tasks", "upload", "mine", tasks_file, "--eval", "--policy-version", 0).stdout
    assert "mine" in leyden("run", "list").stdout
    assert json.loads(leyden("run", "show", "mine").stdout)["summary"]["counts"]["train:queued"] == 20
    assert len(json.loads(leyden("episodes", "mine", "--eval", "--json").stdout)) == 5
    assert "queued" in leyden("episodes", "mine").stdout
    put_adapter(store, "mine", 1, 0.5)
    assert "0.5" in leyden("adapters", "mine").stdout
    put_adapter(store, "mine", 2, 0.75)
    table = leyden("metrics", "mine").stdout
    assert "reward_mean" in table and "0.75" in table and "policy" in table
    rows = json.loads(leyden("metrics", "mine", "--role", "policy", "--json").stdout)
    assert [(row["version"], row["role"], row["reward_mean"]) for row in rows] == [
        (1, "policy", 0.5),
        (2, "policy", 0.75),
    ]
    assert "0.75" not in leyden("metrics", "mine", "--name", "loss").stdout
    leyden("adapter", "download", "mine", 1, tmp_path / "out")
    assert (tmp_path / "out" / "adapter_config.json").exists()
    assert json.loads(leyden("run", "seal", "mine").stdout)["summary"]["state"] == "sealed"


def test_bad_input_ends_with_exit_code_2_and_says_what_is_wrong(leyden: Leyden, tmp_path: Path) -> None:
    spec, tasks = tmp_path / "run.yaml", tmp_path / "tasks.jsonl"
    spec.write_text("base_model: tiny\nagent: a:b\ngrader: a:c\nalgorithm: {steps: 1}\n")
    assert "algorithm.steps: Extra inputs" in leyden("run", "create", spec, exit_code=2).stderr
    spec.write_text("id: mine\nbase_model: tiny\nagent: a:b\ngrader: a:c\n")
    leyden("run", "create", spec)
    tasks.write_text('{"input": 1}\n{"input": \n')
    refusal = leyden("tasks", "upload", "mine", tasks, exit_code=2).stderr
    assert "nothing was uploaded" in refusal and "line 2: Invalid JSON" in refusal
    assert "cannot read" in leyden("tasks", "upload", "mine", tmp_path / "absent", exit_code=2).stderr
    assert json.loads(leyden("run", "show", "mine").stdout)["summary"]["counts"] == {}
    assert "there is no run 'absent'" in leyden("run", "show", "absent", exit_code=2).stderr
    leyden("run", "show", "mine", exit_code=2, LEYDEN_API_TOKEN="wrong")
    assert "leyden up" in leyden("run", "list", exit_code=2, LEYDEN_API_URL="", LEYDEN_API_TOKEN="").stderr
    leyden("episodes", "mine", "--state", "sleeping", exit_code=2)
    train = ("train", "--agent", "a:b", "--grader", "no colon", "--tasks", tasks)
    tasks.write_text('{"input": 1}\n')
    assert "no replica is live" in leyden(*train, exit_code=2).stderr
    assert "grader: String should match" in leyden(*train, "--base-model", "tiny", exit_code=2).stderr


@pytest.mark.usefixtures("learning")
def test_the_train_command(leyden: Leyden, tmp_path: Path, tasks_file: Path) -> None:
    sizes = ("--steps", 3, "--group-size", 2, "--groups-per-step", 2, "--folder", tmp_path / "out")
    where = ("--agent", "my_agent:solve", "--grader", "my_agent:grade", "--tasks", tasks_file, "--eval", tasks_file)
    output = leyden("train", *where, *sizes).stdout
    assert "0.200 ± 0.179" in output and "0.800 ± 0.179" in output
    (folder,) = (tmp_path / "out").iterdir()
    assert (folder / "adapter_model.safetensors").read_bytes() == b"www"


def test_a_token_made_by_the_command_opens_the_api(leyden: Leyden, signing_key: str) -> None:
    made = leyden("token", LEYDEN_SIGNING_KEY=signing_key).stdout.strip()
    assert Tokens(signing_key).verify(made, Scope.API).run is None
    leyden("run", "list", LEYDEN_API_TOKEN=made)
    limited = leyden("token", "--run", "mine", LEYDEN_SIGNING_KEY=signing_key).stdout.strip()
    leyden("run", "list", LEYDEN_API_TOKEN=limited, exit_code=2)
    assert "32 characters" in leyden("token", LEYDEN_SIGNING_KEY="short", exit_code=2).stderr
