"""`python -m leyden_engine`: how it starts, refuses to start, and stops."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from leyden_engine.__main__ import _run
from leyden_engine.settings import EngineSettings
from support.servers import wait_for
from support.tiny_model import make_model

KEY = "engine-test-key"
COMMAND = [sys.executable, "-m", "leyden_engine"]


def environment(model: Path | str, port: int, **more: str) -> dict[str, str]:
    own = {
        "LEYDEN_ENGINE_API_KEY": KEY,
        "LEYDEN_ENGINE_PORT": str(port),
        "LEYDEN_ENGINE_MODEL": str(model),
        "LEYDEN_ENGINE_SERVED_NAME": "base",
    }
    return {**os.environ, **own, **{f"LEYDEN_ENGINE_{name}": value for name, value in more.items()}}


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def test_it_serves_shows_its_start_and_stops(tmp_path: Path, free_port: int) -> None:
    model, log = make_model(tmp_path / "model"), tmp_path / "engine.log"
    url, headers = f"http://127.0.0.1:{free_port}", {"Authorization": f"Bearer {KEY}"}
    with log.open("wb") as output:
        child = subprocess.Popen(COMMAND, env=environment(model, free_port), stderr=output)
    try:
        wait_for(lambda: answers(url) or child.poll() is not None, 180, "the engine")
        version = httpx.get(f"{url}/version", headers=headers)
        assert version.headers["X-Leyden-Boot"] == version.json()["boot_id"]
        body = {"model": "base", "prompt": [5, 6, 7], "max_tokens": 5}
        assert httpx.post(f"{url}/v1/completions", json=body, headers=headers).status_code == 200
        begin = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0 and time.monotonic() - begin < 10
    finally:
        child.kill()
        child.wait()
    assert "Traceback" not in log.read_text()


async def test_a_model_that_cannot_be_loaded_ends_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    settings = EngineSettings(model=tmp_path, served_name="base", engine_api_key=SecretStr(KEY))
    with pytest.raises(SystemExit) as ended:
        await _run(settings)
    assert ended.value.code == 2 and "LEYDEN_ENGINE_MODEL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"MODEL": "/nonexistent"}, "not a model"),
        ({"API_KEY": ""}, "LEYDEN_ENGINE_API_KEY"),
        ({"MAX_BATCH": "0"}, "LEYDEN_ENGINE_MAX_BATCH"),
        ({"SPEED": "11"}, "LEYDEN_ENGINE_SPEED"),
    ],
)
async def test_bad_settings_end_with_code_2(changes: dict[str, str], word: str, tmp_path: Path, free_port: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    environ = environment(tmp_path, free_port, **changes)
    child = await asyncio.create_subprocess_exec(*COMMAND, env=environ, stderr=asyncio.subprocess.PIPE)
    _, problem = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 2 and word in problem.decode() and "Traceback" not in problem.decode()
