"""rotel, an OTLP collector written in Rust by others, as a process that forwards to ours."""

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.servers import find_port, process, wait_for


@contextmanager
def rotel_process(folder: Path, endpoint: str, protocol: str, token: str) -> Iterator[tuple[str, str]]:
    """Run rotel; yields where it takes OTLP over HTTP and over gRPC. It forwards to `endpoint` by `protocol`."""
    found = importlib.util.find_spec("rotel")
    assert found
    assert found.origin
    http, grpc = find_port(), find_port()
    command = [str(Path(found.origin).parent / "rotel-agent"), "start"]
    options = {
        "otlp-http-endpoint": f"127.0.0.1:{http}",
        "otlp-grpc-endpoint": f"127.0.0.1:{grpc}",
        "otlp-exporter-endpoint": endpoint,
        "otlp-exporter-protocol": protocol,
        "otlp-exporter-compression": "gzip",
        "otlp-exporter-custom-headers": f"authorization=Bearer {token}",
        "batch-timeout": "100ms",
        "pid-file": str(folder / "rotel.pid"),
    }
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    folder.mkdir(parents=True, exist_ok=True)
    with process(command, folder / "rotel.log"):
        wait_for(lambda: _listens(http) and _listens(grpc), 30, "rotel")
        yield f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
