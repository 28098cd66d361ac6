"""The keeper in its process: it begins by itself, and when it is killed another one goes on."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import redis

from leyden_runtime.tokens import Scope, Tokens
from leyden_storage import LocalStore
from leyden_storage.keys import merged_segments_prefix, segment_key
from leyden_storage.segments import loose_segments, read_segments
from support.servers import find_port, wait_for
from support.task_api import SPEC

SEGMENTS = sorted(b"segment-%d" % number for number in range(120))


@contextmanager
def running(redis_url: str, folder: Path, signing_key: str) -> Iterator[tuple[subprocess.Popen, httpx.Client]]:
    port = find_port()
    environment = os.environ | {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_STORE_URL": f"file://{folder}",
        "LEYDEN_SIGNING_KEY": signing_key,
        "LEYDEN_TASK_API_PORT": str(port),
        "LEYDEN_TASK_API_UNSAFE_REDIS": "true",
        "LEYDEN_TASK_API_ARCHIVE_AFTER_S": "0",
        "LEYDEN_TASK_API_ARCHIVE_S": "0.1",
        "LEYDEN_TASK_API_KEEP_S": "0.1",
    }
    process = subprocess.Popen([sys.executable, "-m", "leyden_task_api"], env=environment, stderr=subprocess.DEVNULL)
    headers = {"Authorization": f"Bearer {Tokens(signing_key).mint(Scope.API, 600)}"}
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20)

    def up() -> bool:
        try:
            return client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(up, 60, "the task API")
        yield process, client
    finally:
        client.close()
        process.kill()
        process.wait()


def test_a_killed_keeper_loses_nothing_and_the_next_one_goes_on(
    redis_url: str, tmp_path: Path, signing_key: str
) -> None:
    store = LocalStore(tmp_path / "store")
    for number, segment in enumerate(SEGMENTS):
        store.create(segment_key("mine", f"{number:032x}"), segment)
    with running(redis_url, tmp_path / "store", signing_key) as (process, http):
        assert http.post("/v1/runs", json={**SPEC, "id": "mine"}).status_code == 201
        assert http.post("/v1/runs/mine/cancel").status_code == 200
        until = time.monotonic() + 60
        while not any(store.list(merged_segments_prefix("mine"))):  # without a pause: the deletions follow at once
            assert time.monotonic() < until
        process.kill()
        process.wait()
    assert sorted(read_segments(store, "mine")) == SEGMENTS
    with redis.Redis.from_url(redis_url) as client:  # as if its lease had run out
        client.delete("leyden:{mine}:keeper")
    with running(redis_url, tmp_path / "store", signing_key):
        wait_for(lambda: not any(loose_segments(store, "mine")), 60, "the rest")
    assert sorted(read_segments(store, "mine")) == SEGMENTS
    assert len(list(store.list(merged_segments_prefix("mine")))) == 1
