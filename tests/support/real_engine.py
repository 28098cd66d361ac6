"""The embedded engine as a process, with its own record of every reply."""

import contextlib
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.servers import find_port, process, wait_for

KEY = "engine-key"


@dataclass
class RealEngine:
    """A process of `leyden_engine`."""

    url: str
    model: Path
    log: Path

    def logged(self) -> dict[str, dict]:
        """Response id -> the engine's own line."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else []
        return {line["response_id"]: line for line in lines}


@contextlib.contextmanager
def real_engine(folder: Path, model: Path, name: str = "tiny") -> Iterator[RealEngine]:
    """Run an engine that serves `model` as `name`."""
    port = find_port()
    engine = RealEngine(f"http://127.0.0.1:{port}", model, folder / "calls.jsonl")
    settings = {
        "LEYDEN_ENGINE_PORT": str(port),
        "LEYDEN_ENGINE_MODEL": str(engine.model),
        "LEYDEN_ENGINE_SERVED_NAME": name,
        "LEYDEN_ENGINE_CALL_LOG": str(engine.log),
        "LEYDEN_ENGINE_API_KEY": KEY,
    }
    log = folder / "engine.log"
    with process([sys.executable, "-m", "leyden_engine"], log, env={**os.environ, **settings}):
        wait_for(lambda: healthy(engine.url), 150, f"the engine (see {log})")
        yield engine


def healthy(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=1).status == 200
    except OSError:
        return False
