"""`just bench loop`: whole episodes, five calls each, against a model that costs nothing.

Prints one JSON object a line. CPU is of all our services, Redis included; the agents' own processes are not ours.
Agent Lightning runs the same number of LLM spans per episode in the same invocation, one after the other.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from leyden_agents.calculator.recipe import MODEL_DIR  # noqa: E402
from leyden_client.client import LeydenClient  # noqa: E402
from leyden_client.evaluate import evaluate  # noqa: E402
from leyden_contracts import RunSpec, TaskInput  # noqa: E402
from leyden_standalone.deployment import Options  # noqa: E402
from leyden_standalone.running import running_beside  # noqa: E402
from support.servers import find_port, process, wait_for  # noqa: E402

TARGET_MS = 13.5
PEER = HERE.parents[1] / ".venv-peers/bin/python"


@contextmanager
def free_model(folder: Path) -> Iterator[str]:
    """Run the free model; yields its URL."""
    port = find_port()
    with process([sys.executable, str(HERE / "free_model.py"), str(port)], folder / "model.log"):
        yield f"http://127.0.0.1:{port}"


def cpu_seconds(pids: dict[str, int]) -> dict[str, float]:
    """Return service -> CPU seconds so far; the worker's warm parents count, the agents they forked do not."""
    used = {}
    for name, pid in pids.items():
        top = psutil.Process(pid)
        family = [top, *(child for child in top.children() if name == "worker")]
        used[name] = sum(one.cpu_times().user + one.cpu_times().system for one in family)
    return used


def measure(episodes: int, concurrency: int) -> tuple[float, dict[str, float]]:
    """Return episodes per second, and CPU milliseconds per episode by service."""
    spec = RunSpec.model_validate({"base_model": "free", "agent": "bench_agent:run", "grader": "bench_agent:grade"})
    tasks = [TaskInput(input=f"task {number}") for number in range(episodes)]
    with tempfile.TemporaryDirectory() as name, free_model(Path(name)) as model:
        options = Options(
            data_dir=Path(name) / "data",
            model=MODEL_DIR,
            model_name="free",
            replica_url=model,
            agent_path=HERE,
            worker_concurrency=concurrency,
        )
        with (
            running_beside(options) as (deployment, supervisor),
            LeydenClient(deployment.url("task_api"), deployment.token) as client,
        ):
            run = str(client.create_run(spec).spec.id)
            wait_for(lambda: bool(client.replicas()), 30, "the replica")
            evaluate(client, run, tasks[:concurrency], 0, key="warm-up", timeout_s=120)
            before, started = cpu_seconds(supervisor.pids), time.perf_counter()
            result = evaluate(client, run, tasks, 0, key="measured", timeout_s=540)
            seconds, after = time.perf_counter() - started, cpu_seconds(supervisor.pids)
    if result.n != episodes:
        raise SystemExit(f"{result.failed} of {episodes} episodes failed")
    return episodes / seconds, {part: (after[part] - before[part]) / episodes * 1000 for part in after}


def peer(episodes: int) -> dict[str, float] | None:
    """Return the same of Agent Lightning 0.3.0, or None where it is not installed (`just setup-peers`)."""
    if not PEER.exists():
        return None
    command = [str(PEER), str(HERE / "peers/agent_lightning.py"), str(episodes), "4", str(find_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def show(name: str, value: float, unit: str, target: float | None = None, baseline: float | None = None) -> None:
    """Print one figure."""
    figure = {"name": name, "value": round(value, 3), "unit": unit, "target": target, "baseline": baseline}
    print(json.dumps(figure), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=16)
    asked = parser.parse_args()
    rate, cpu = measure(asked.episodes, asked.concurrency)
    theirs = peer(asked.episodes // 2)
    total = sum(cpu.values())
    show("loop.episodes_per_s", rate, "episodes/s", baseline=theirs and round(theirs["episodes_per_s"], 2))
    show(
        "loop.cpu_ms_per_episode",
        total,
        "ms",
        target=TARGET_MS,
        baseline=theirs and round(theirs["cpu_ms_per_episode"], 2),
    )
    for part, milliseconds in sorted(cpu.items(), key=lambda item: -item[1]):
        show(f"loop.cpu_ms_per_episode.{part}", milliseconds, "ms")
    if theirs:
        show("loop.vs_agent_lightning", total / theirs["cpu_ms_per_episode"], "ratio of CPU an episode", baseline=1.0)


if __name__ == "__main__":
    main()
