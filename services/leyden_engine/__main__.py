"""`python -m leyden_engine`."""

import asyncio
import os
import sys
from typing import NoReturn

from leyden_engine.settings import EngineSettings
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings
from leyden_runtime.shutdown import stop_event

_LIBRARIES = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Nothing is fetched, and tokenizers start no threads beside the model's."""


def main() -> None:
    """Run the engine until SIGTERM or SIGINT. Exits with 2 on bad settings or a model that cannot be served."""
    configure_logs("engine")
    settings = load_settings(EngineSettings)
    if not settings.engine_api_key.get_secret_value():
        _refuse("LEYDEN_ENGINE_API_KEY: must be set; `openssl rand -hex 16` makes one")
    if not (settings.model / "config.json").is_file():
        _refuse(f"LEYDEN_ENGINE_MODEL: {settings.model} is not a model's folder: it has no config.json")
    os.environ.update(_LIBRARIES, OMP_NUM_THREADS=str(settings.threads))
    asyncio.run(_run(settings))


async def _run(settings: EngineSettings) -> None:
    # Late: these import torch, which takes seconds; bad settings are refused at once.
    from leyden_engine.network import ModelUnusable
    from leyden_engine.server import Server

    stop = stop_event()
    try:
        server = Server(settings)
    except ModelUnusable as error:
        _refuse(f"LEYDEN_ENGINE_MODEL: {error}")
    await server.serve(stop)


def _refuse(problem: str) -> NoReturn:
    print(f"settings: {problem}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
