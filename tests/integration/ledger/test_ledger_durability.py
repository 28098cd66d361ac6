"""An unsafe Redis is told apart from a safe one, and the task API does not start on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leyden_ledger import Ledger
from leyden_ledger.durability import dangers
from support.servers import find_port, redis_server


async def test_a_safe_redis(ledger: Ledger) -> None:
    assert await dangers(ledger) == []


async def test_each_danger_is_named(tmp_path: Path) -> None:
    with redis_server(tmp_path, appendonly=False) as url:
        ledger = Ledger.connect(url)
        (log,) = await dangers(ledger)
        assert "appendonly yes" in log
        await ledger.redis.config_set("maxmemory-policy", "allkeys-lru")
        assert len(await dangers(ledger)) == 1, "without a limit nothing is thrown away"
        await ledger.redis.config_set("maxmemory", "100mb")
        assert "noeviction" in (await dangers(ledger))[1]
        await ledger.redis.acl_setuser("few", enabled=True, passwords=["+x"], commands=["+@all", "-config"], keys=["*"])
        await ledger.aclose()
        hidden = Ledger.connect(url.replace("//", "//few:x@"))
        assert await dangers(hidden) == [], "a server that hides its settings is taken as it is"
        await hidden.aclose()


@pytest.mark.parametrize("allowed", [False, True])
def test_the_task_api_refuses_an_unsafe_redis(tmp_path: Path, signing_key: str, allowed: bool) -> None:
    port = find_port()
    with redis_server(tmp_path / "redis", appendonly=False) as url:
        environment = os.environ | {
            "LEYDEN_REDIS_URL": url,
            "LEYDEN_STORE_URL": f"file://{tmp_path}/store",
            "LEYDEN_SIGNING_KEY": signing_key,
            "LEYDEN_TASK_API_PORT": str(port),
            "LEYDEN_TASK_API_UNSAFE_REDIS": str(allowed),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "leyden_task_api"], env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            if not allowed:
                assert process.wait(30) == 2
                assert process.stderr and "appendonly yes" in process.stderr.read()
            else:
                assert process.stderr and any("listening" in line for line in process.stderr)
        finally:
            process.terminate()
            process.wait(20)
