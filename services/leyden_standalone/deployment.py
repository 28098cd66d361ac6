"""One machine's deployment: its folder, keys and ports, kept so that the next start goes on where this one stopped."""

import fcntl
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from leyden_runtime.tokens import Scope, Tokens

_PORTS = (
    "redis",
    "task_api",
    "gateway",
    "collector",
    "collector_grpc",
    "engine",
    "adapter_loader",
    "worker",
    "learner",
)
_YEAR_S = 365 * 24 * 3600


class InUse(Exception):
    """Another process runs the deployment in this folder."""


@dataclass(frozen=True)
class Options:
    """What the user chose. What is not given is embedded."""

    data_dir: Path
    model: Path
    """Folder of the base model, for the learner and the embedded engine."""
    model_name: str
    """The name that replicas serve it under; `base_model` in run specifications."""
    redis_url: str | None = None
    store_url: str | None = None
    replica_url: str | None = None
    """An engine that runs already (vLLM); it must serve `model_name` and accept adapters."""
    engine_api_key: str | None = None
    agent_path: Path = field(default_factory=Path.cwd)
    """Where `module:function` references are looked up."""
    api_port: int | None = None
    worker_concurrency: int = 32
    call_log: Path | None = None
    """Where the embedded engine logs every reply's tokens."""


@dataclass(frozen=True)
class Deployment:
    """Everything that is decided about this machine's deployment."""

    options: Options
    ports: dict[str, int]
    signing_key: str
    engine_api_key: str

    @property
    def redis_url(self) -> str:
        """The Redis to use."""
        return self.options.redis_url or f"redis://127.0.0.1:{self.ports['redis']}/0"

    @property
    def store_url(self) -> str:
        """The object store to use."""
        return self.options.store_url or f"file://{self.options.data_dir.resolve() / 'store'}"

    @property
    def replica_url(self) -> str:
        """The engine to use."""
        return self.options.replica_url or self.url("engine")

    @property
    def token(self) -> str:
        """A token for the task API."""
        return Tokens(self.signing_key).mint(Scope.API, _YEAR_S)

    def url(self, service: str) -> str:
        """Return the base URL of one of our services."""
        return f"http://127.0.0.1:{self.ports[service]}"

    def write_connection(self) -> None:
        """Write what the `leyden` command needs to find this deployment."""
        connection = {
            "api_url": self.url("task_api"),
            "token": self.token,
            "redis_url": self.redis_url,
            "store_url": self.store_url,
        }
        _write_private(self.options.data_dir / "connection.json", connection)


def lock(data_dir: Path) -> IO[str]:
    """Hold the folder for this process until the returned file is closed. Raises InUse."""
    data_dir.mkdir(parents=True, exist_ok=True)
    file = (data_dir / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InUse(f"{data_dir} is in use by another `leyden up`: stop it, or choose another --data-dir") from error
    return file


def open_deployment(options: Options) -> Deployment:
    """Load the deployment in `options.data_dir`, or make it."""
    path = options.data_dir / "deployment.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    wanted = {name: kept.get("ports", {}).get(name, 0) for name in _PORTS}
    wanted["task_api"] = options.api_port or wanted["task_api"]
    deployment = Deployment(
        options=options,
        ports=_free_ports(wanted),
        signing_key=kept.get("signing_key") or secrets.token_hex(32),
        engine_api_key=options.engine_api_key or kept.get("engine_api_key") or secrets.token_hex(16),
    )
    fields = asdict(deployment)
    _write_private(path, {name: fields[name] for name in ("ports", "signing_key", "engine_api_key")})
    return deployment


def _free_ports(wanted: dict[str, int]) -> dict[str, int]:
    """Keep the ports that are still free and replace the others; hold each while the next is sought."""
    held: dict[str, socket.socket] = {}
    for name, port in wanted.items():
        probe = socket.socket()
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        held[name] = probe
    ports = {name: probe.getsockname()[1] for name, probe in held.items()}
    for probe in held.values():
        probe.close()
    return ports


def _write_private(path: Path, value: object) -> None:
    temporary = path.with_suffix(".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file, indent=1)
    temporary.replace(path)
