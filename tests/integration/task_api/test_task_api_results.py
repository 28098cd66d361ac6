"""What a run has produced, read over HTTP: episodes, trajectories, adapters, curves, events, replicas."""

import hashlib
import itertools
import json
import threading
import time

import httpx
import numpy as np
import pytest

from leyden_client import LeydenClient
from leyden_contracts import AdapterManifest, AttemptResult, Trajectory, Transition
from leyden_ledger import Ledger, ReplicaStatus
from leyden_storage import LocalStore
from leyden_storage.keys import adapter_prefix
from support.playing import settle
from support.task_api import SPEC, play, put_adapter

TASKS = [{"input": n} for n in range(3)]


@pytest.fixture(autouse=True)
def run(http: httpx.Client) -> None:
    assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201
    assert http.post("/v1/runs/mine/tasks", json=TASKS).status_code == 202


async def test_episodes_are_listed_page_by_page_and_by_state(http: httpx.Client, ledger: Ledger) -> None:
    http.post("/v1/runs/mine/tasks", json=TASKS, params={"purpose": "eval"})
    pages, start = [], 0
    while start is not None:
        page = http.get("/v1/runs/mine/episodes", params={"start": start, "count": 4}).json()
        pages.append(page["episodes"])
        start = page["next"]
    assert [len(page) for page in pages] == [4, 4, 1]
    ids = [episode["id"] for page in pages for episode in page]
    assert len(set(ids)) == 9
    evals = http.get("/v1/runs/mine/episodes", params={"purpose": "eval"}).json()["episodes"]
    assert [episode["id"] for episode in evals] == ids[6:]
    cancelled = http.post(f"/v1/runs/mine/episodes/{ids[0]}/cancel").json()
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "cancelled")
    assert http.post(f"/v1/runs/mine/episodes/{ids[0]}/cancel").json() == cancelled
    assert http.get(f"/v1/runs/mine/episodes/{ids[0]}").json() == cancelled
    page = http.get("/v1/runs/mine/episodes", params={"state": "cancelled"}).json()
    assert page == {"episodes": [cancelled], "next": None}
    for answer in (
        http.get("/v1/runs/mine/episodes/absent"),
        http.post("/v1/runs/mine/episodes/absent/cancel"),
        http.get("/v1/runs/mine/trajectories/absent"),
    ):
        assert answer.status_code == 404


async def test_a_trajectory_shows_its_tokens_as_numbers(http: httpx.Client, store: LocalStore, ledger: Ledger) -> None:
    episode = http.get("/v1/runs/mine/episodes").json()["episodes"][0]
    url = f"/v1/runs/mine/trajectories/{episode['id']}"
    assert http.get(url).status_code == 404
    ids, logprobs = np.array([5, 2**31 - 1], "<i4"), np.array([-0.1, -1e-7], "<f4")
    call = Transition(
        run="mine",
        episode=episode["id"],
        attempt=1,
        number=1,
        role="policy",
        policy_version=3,
        prompt_token_ids=np.array([1, 2, 3], "<i4").tobytes(),
        response_token_ids=ids.tobytes(),
        response_logprobs=logprobs.tobytes(),
        temperature=1.0,
        finish_reason="stop",
        response_id="chat-1",
        replica="one",
    )
    head = {name: episode[name] for name in ("run", "group", "task", "purpose")}
    trajectory = Trajectory(
        **head, episode=episode["id"], attempt=1, reward=0.5, verdict="complete", transitions=(call,)
    )
    await ledger.episodes.release("mine")
    assert await ledger.episodes.claim("mine", trajectory.episode, "worker", 60)
    await ledger.episodes.close("mine", trajectory.episode, 1, AttemptResult(outcome="graded", reward=0.5))
    assert http.get(url).status_code == 404
    batch = await settle(ledger, "mine", trajectory, store=store)
    assert http.get(f"/v1/runs/mine/episodes/{trajectory.episode}").json()["batch"] == batch
    shown = http.get(url).json()
    assert shown["reward"] == 0.5 and len(shown["calls"]) == 1
    assert shown["calls"][0]["prompt_token_ids"] == [1, 2, 3]
    assert shown["calls"][0]["response_token_ids"] == ids.tolist()
    assert np.array(shown["calls"][0]["response_logprobs"], "<f4").tobytes() == logprobs.tobytes()


def test_adapters_are_listed_and_only_the_files_of_a_manifest_are_given_out(
    http: httpx.Client, store: LocalStore
) -> None:
    assert http.get("/v1/runs/mine/adapters").json() == []
    files = [put_adapter(store, "mine", version, version / 10) for version in (1, 2)][1]
    store.put(adapter_prefix("mine", "policy", 2) + "unlisted", b"secret")
    listed = http.get("/v1/runs/mine/adapters").json()
    assert [(view["version"], view["groups"], view["metrics"]) for view in listed] == [
        (1, 1, {"reward_mean": 0.1}),
        (2, 1, {"reward_mean": 0.2}),
    ]
    for name, content in files.items():
        answer = http.get(f"/v1/runs/mine/adapters/2/{name}")
        assert answer.content == content
        assert hashlib.sha256(answer.content).hexdigest() == listed[1]["files"][name]
    manifest = http.get("/v1/runs/mine/adapters/2/manifest.json").json()
    assert AdapterManifest.model_validate(manifest).probes
    for path in ("2/unlisted", "3/adapter_config.json", "2/absent"):
        assert http.get(f"/v1/runs/mine/adapters/{path}").status_code == 404
    for path in ("0/manifest.json", "2/..%2F..%2F..%2Frun.json", "2/.hidden", "two/manifest.json"):
        assert http.get(f"/v1/runs/mine/adapters/{path}").status_code in (404, 422)


async def test_metrics_hold_the_curve_and_the_evaluations_of_each_version(
    http: httpx.Client, store: LocalStore, ledger: Ledger
) -> None:
    put_adapter(store, "mine", 1, 0.1)
    assert http.get("/v1/runs/mine/metrics").json()["train"] is None
    http.post("/v1/runs/mine/tasks", json=TASKS, params={"purpose": "eval", "policy_version": 0})
    await play(ledger, "mine", lambda episode: 1.0 if episode.index == 0 else 0.0)
    metrics = http.get("/v1/runs/mine/metrics").json()
    assert metrics["train"] == {"mean": 0.5, "episodes": 4}
    assert metrics["evals"] == {"0": {"mean": 1.0, "episodes": 3}}
    assert metrics["versions"][0]["metrics"] == {"reward_mean": 0.1}
    assert http.get("/v1/runs/mine/metrics?role=policy").json() == metrics
    assert http.get("/v1/runs/mine/metrics?role=nobody").status_code == 404


async def test_replicas_show_what_they_have_proved_and_refused(http: httpx.Client, ledger: Ledger) -> None:
    status = ReplicaStatus(id="one", url="http://r", base_model="tiny", ready=["a"], rejected={"b": "hash"})
    await ledger.replicas.beat(status, 60)
    assert http.get("/v1/replicas").json() == [status.model_dump()]


def test_events_are_told_live_and_go_on_after_the_last_id(http: httpx.Client) -> None:
    def cancel_later() -> None:
        time.sleep(0.3)
        episode = http.get("/v1/runs/mine/episodes").json()["episodes"][0]["id"]
        http.post(f"/v1/runs/mine/episodes/{episode}/cancel")

    def read(headers: dict, count: int) -> list[tuple[str, dict]]:
        with http.stream("GET", "/v1/runs/mine/events", headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in response.iter_lines() if line.startswith(("id: ", "data: ")))
            pairs = itertools.islice(zip(lines, lines, strict=False), count)
            return [(id[4:], json.loads(data[6:])) for id, data in pairs]

    (_, fields), (first, _) = read({}, 2)
    assert fields == {"kind": "run", "state": "open"}
    thread = threading.Thread(target=cancel_later)
    thread.start()
    ((second, fields),) = read({"Last-Event-ID": first}, 1)
    thread.join()
    assert fields["state"] == "cancelled" and second > first
    assert http.get("/v1/runs/mine/events", headers={"Last-Event-ID": "x"}).status_code == 422
    assert http.get("/v1/runs/absent/events").status_code == 404


async def test_the_client_follows_events(client: LeydenClient) -> None:
    episode = next(client.episodes("mine"))
    client.cancel("mine", episode.id)
    kinds = [fields["kind"] for _, fields in itertools.islice(client.events("mine"), 3)]
    assert kinds == ["run", "upload", "episode"]
