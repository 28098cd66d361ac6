"""`python -m leyden_gateway`: what it asks of the system."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.servers import find_port, process, wait_for
from support.worker import answers

SOFT = 200


@contextmanager
def gateway(folder: Path, redis_url: str, signing_key: str, hard: int, max_calls: int) -> Iterator[psutil.Process]:
    """Run a gateway that may have 200 open files unless it asks for more, and never more than `hard`."""
    port = find_port()
    environment = os.environ | {
        "LEYDEN_REDIS_URL": redis_url,
        "LEYDEN_SIGNING_KEY": signing_key,
        "LEYDEN_GATEWAY_PORT": str(port),
        "LEYDEN_GATEWAY_MAX_CALLS": str(max_calls),
    }
    command = ["bash", "-c", f"ulimit -Sn {SOFT}; ulimit -Hn {hard}; exec {sys.executable} -m leyden_gateway"]
    with process(command, folder / "gateway.log", env=environment) as child:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 30, "the gateway")
        yield psutil.Process(child.pid)


@pytest.mark.parametrize(("hard", "allowed"), [(4000, 3000), (2500, 2500)])
def test_it_may_open_two_sockets_for_each_call(
    redis_url: str, signing_key: str, tmp_path: Path, hard: int, allowed: int
) -> None:
    with gateway(tmp_path, redis_url, signing_key, hard, max_calls=1000) as served:
        assert served.rlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
    said = "few_open_files" in (tmp_path / "gateway.log").read_text()
    assert said == (allowed < 3000), "where the system allows too few, the log tells"
