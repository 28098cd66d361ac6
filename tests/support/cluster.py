"""A real Redis Cluster of three nodes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from support.servers import find_port, process, redis_binary, wait_for

_SLOTS = 16384
_NODES = 3


@contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    """Run the cluster; yields `redis+cluster://host:port` of one node once every slot is served."""
    # Cluster nodes talk on another port as well, by default 10,000 above: with a low first one both exist.
    ports = [find_port() for _ in range(_NODES)]
    buses = [find_port() for _ in range(_NODES)]
    with ExitStack() as stack:
        for port, bus in zip(ports, buses, strict=True):
            home = folder / str(port)
            home.mkdir(parents=True)
            flags = [
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--dir",
                str(home),
                "--save",
                "",
                "--appendonly",
                "yes",
            ]
            flags += ["--cluster-enabled", "yes", "--cluster-port", str(bus)]
            stack.enter_context(process([redis_binary(), *flags], home / "redis.log"))
        nodes = [stack.enter_context(redis.Redis(port=port, decode_responses=True)) for port in ports]
        for number, node in enumerate(nodes):
            wait_for(lambda node=node: _pings(node), 60, "a node")
            first, last = _SLOTS * number // _NODES, _SLOTS * (number + 1) // _NODES - 1
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port, bus in zip(ports[1:], buses[1:], strict=True):
            nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
        wait_for(lambda: all(_complete(node) for node in nodes), 30, "the cluster")
        yield f"redis+cluster://127.0.0.1:{ports[0]}"


def _pings(node: redis.Redis) -> bool:
    try:
        return bool(node.ping())
    except redis.RedisError:
        return False


def _complete(node: redis.Redis) -> bool:
    info = node.execute_command("CLUSTER INFO")
    known = info if isinstance(info, dict) else dict(line.split(":", 1) for line in info.split("\r\n") if ":" in line)
    return known["cluster_state"] == "ok" and int(known["cluster_known_nodes"]) == _NODES
