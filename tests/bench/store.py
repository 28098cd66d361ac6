"""`just bench store`: trajectories written and read in batches, beside an object for each call, and beside JSON lines.

Prints one JSON object a line. A transition is a call of 2048 prompt tokens and 256 answered ones with their logprobs;
the tokens are drawn by Zipf's law, as those of text are. Five of them are an episode, 64 episodes a batch, as the
collector makes them. Both sides of a ratio take turns, on the same disk, with every fsync of the local store.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from leyden_contracts import Trajectory, Transition, Verdict
from leyden_storage import LocalStore
from leyden_storage.keys import batch_name
from leyden_storage.trajectories import stored_trajectories, write_batch
from leyden_storage.trajectories.prefixes import merge_prompts

PROMPT, RESPONSE, CALLS, MEMBERS = 2048, 256, 5, 64
RAW_BYTES = 4 * (PROMPT + 2 * RESPONSE) + 4
TURNS, FIRST, NEW = 5, 600, 150


@dataclass(frozen=True)
class Cost:
    """What one transition took."""

    wall_us: float
    cpu_us: float


class Maker:
    """Makes episodes of random tokens."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._made = 0

    def tokens(self, count: int) -> bytes:
        """Return packed ids."""
        return np.minimum(self._random.zipf(1.3, count), 150_000).astype("<i4").tobytes()

    def episode(self, prompts: Sequence[bytes]) -> Trajectory:
        """Return an episode with these prompts."""
        self._made += 1
        name, group = f"g-{self._made // 8}.{self._made % 8}", f"g-{self._made // 8}"
        calls = tuple(self._call(name, number, prompt) for number, prompt in enumerate(prompts, 1))
        head = {"run": "r", "group": group, "episode": name, "task": "t", "attempt": 1, "purpose": "train"}
        return Trajectory(**head, reward=1.0, rewards={"exact": 1.0}, verdict=Verdict.COMPLETE, transitions=calls)

    def _call(self, episode: str, number: int, prompt: bytes) -> Transition:
        return Transition(
            run="r",
            episode=episode,
            attempt=1,
            number=number,
            role="policy",
            policy_version=3,
            prompt_token_ids=prompt,
            response_token_ids=self.tokens(RESPONSE),
            response_logprobs=(-self._random.exponential(0.5, RESPONSE)).astype("<f4").tobytes(),
            temperature=1.0,
            finish_reason="stop",
            response_id=f"chatcmpl-{self._made:08d}-{number}",
            replica="replica-0",
            start_ns=1_800_000_000_000_000_000 + self._made,
            end_ns=1_800_000_001_000_000_000 + self._made,
        )


def timed(work: Callable[[], object], transitions: int) -> Cost:
    """Do `work` and return what each transition took of it."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(wall / transitions * 1e6, cpu / transitions * 1e6)


def write_batches(store: LocalStore, run: str, episodes: Sequence[Trajectory]) -> None:
    """Store `episodes` as the collector does."""
    for number, start in enumerate(range(0, len(episodes), MEMBERS), 1):
        assert write_batch(store, run, batch_name(0, number), episodes[start : start + MEMBERS])


def write_each(store: LocalStore, run: str, episodes: Sequence[Trajectory]) -> None:
    """Store each call in an object of its own, through the same code."""
    calls = (one.model_copy(update={"transitions": (call,)}) for one in episodes for call in one.transitions)
    for number, call in enumerate(calls, 1):
        assert write_batch(store, run, batch_name(0, number), [call])


def write_lines(path: Path, episodes: Sequence[Trajectory]) -> None:
    """Store each call as a line of JSON, its tokens as numbers."""
    with path.open("wb") as file:
        for one in episodes:
            for call in one.transitions:
                arrays = [array.tolist() for array in as_arrays(call)]
                file.write(msgspec.json.encode(dict(zip(("prompt", "response", "logprobs"), arrays, strict=True))))
                file.write(b"\n")


def as_arrays(call: Transition) -> tuple[np.ndarray, ...]:
    """Return a call's prompt ids, response ids and logprobs."""
    return (
        np.frombuffer(call.prompt_token_ids, "<i4"),
        np.frombuffer(call.response_token_ids, "<i4"),
        np.frombuffer(call.response_logprobs, "<f4"),
    )


def read_batches(store: LocalStore, run: str) -> list[tuple[np.ndarray, ...]]:
    """Read all calls of a run as arrays."""
    return [as_arrays(call) for one in stored_trajectories(store, run) for call in one.transitions]


def read_lines(path: Path) -> list[tuple[np.ndarray, ...]]:
    """Read what `write_lines` wrote, as arrays."""
    rows = map(msgspec.json.decode, path.read_bytes().splitlines())
    kinds = {"prompt": "<i4", "response": "<i4", "logprobs": "<f4"}
    return [tuple(np.array(row[name], kind) for name, kind in kinds.items()) for row in rows]


def measure(transitions: int, rounds: int, folder: Path) -> None:
    """Write and read in turns; print the figures."""
    maker, store, lines = Maker(), LocalStore(folder / "store"), folder / "lines.jsonl"
    costs: dict[str, list[Cost]] = {name: [] for name in ("batched", "each", "read", "jsonl")}
    size = count = 0
    for number in range(rounds):
        episodes = [
            maker.episode([maker.tokens(PROMPT) for _ in range(CALLS)]) for _ in range(transitions // rounds // CALLS)
        ]
        calls, run = len(episodes) * CALLS, f"batched-{number}"
        few = episodes[: max(1, len(episodes) // 4)]
        costs["batched"].append(timed(lambda: write_batches(store, run, episodes), calls))  # noqa: B023
        costs["each"].append(timed(lambda: write_each(store, f"each-{number}", few), len(few) * CALLS))  # noqa: B023
        size += sum(store.size(key) for key in store.list(f"runs/{run}/"))
        count += calls
        write_lines(lines, episodes)
        costs["read"].append(timed(lambda: read_batches(store, run), calls))  # noqa: B023
        costs["jsonl"].append(timed(lambda: read_lines(lines), calls))
        same = zip(read_batches(store, run), read_lines(lines), strict=True)
        assert all(np.array_equal(one, other) for pair in same for one, other in zip(*pair, strict=True))
    report(costs, size / count)


def report(costs: dict[str, list[Cost]], stored_bytes: float) -> None:
    """Print the figures: medians over the rounds."""

    def ratio(slow: str, fast: str, kind: str) -> float:
        pairs = zip(costs[slow], costs[fast], strict=True)
        return median(getattr(one, kind) / getattr(other, kind) for one, other in pairs)

    show("write_vs_one_object", ratio("each", "batched", "wall_us"), "ratio of wall time", 30, 1.0)
    show("write_cpu_vs_one_object", ratio("each", "batched", "cpu_us"), "ratio of CPU", baseline=1.0)
    show("bytes_vs_raw", stored_bytes / RAW_BYTES, "bytes stored / bytes of packed arrays", 0.45, 1.0)
    show("read_vs_jsonl", ratio("jsonl", "read", "wall_us"), "ratio of wall time, to numpy arrays", 10, 1.0)
    show("read_cpu_vs_jsonl", ratio("jsonl", "read", "cpu_us"), "ratio of CPU", baseline=1.0)
    for name, per_transition in costs.items():
        show(f"{name}_us", median(cost.wall_us for cost in per_transition), "us a transition")
        show(f"{name}_cpu_us", median(cost.cpu_us for cost in per_transition), "us of CPU a transition")


def merge_ratio(episodes: int = 100) -> float:
    """Return tokens given / tokens stored, for episodes of five turns that extend each other."""
    maker = Maker()
    given = stored = 0
    for _ in range(episodes):
        calls: list[tuple[bytes, bytes]] = []
        prompt = maker.tokens(FIRST)
        for _ in range(TURNS):
            calls.append((prompt, maker.tokens(RESPONSE)))
            prompt += calls[-1][1] + maker.tokens(NEW)
        given += sum(len(prompt) + len(response) for prompt, response in calls)
        stored += sum(len(one.rest) for one in merge_prompts(calls)) + sum(len(response) for _, response in calls)
    return given / stored


def show(name: str, value: float, unit: str, target: float | None = None, baseline: float | None = None) -> None:
    """Print one figure."""
    figure = {
        "name": f"store.{name}",
        "value": round(value, 3),
        "unit": unit,
        "target": target,
        "baseline": baseline,
    }
    print(json.dumps(figure), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write: the disk that is measured")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        measure(asked.transitions, asked.rounds, Path(name))
    show("merge_ratio", merge_ratio(), "tokens given / tokens stored, five turns", 3, 1.0)


if __name__ == "__main__":
    main()
