"""Follow a run while it trains: what has happened, what is left, and why nothing moves if nothing does."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from leyden_client.client import LeydenClient
from leyden_client.errors import RunStalled
from leyden_contracts import TERMINAL_STATES
from leyden_contracts.api import AdapterView, RunCounters

_BARS = "▁▂▃▄▅▆▇█"
_RATE_WINDOW_S = 60.0


@dataclass(frozen=True)
class Progress:
    """One look at a run."""

    run: str
    summary: RunCounters
    groups: int
    """Training groups in all."""
    versions: list[AdapterView]
    """Training steps so far."""
    seconds_left: float | None
    """None until a rate is known."""
    quiet_s: float
    """Seconds since any counter last changed."""

    @property
    def finished(self) -> bool:
        """Whether the learner has consumed every group."""
        return self.summary.state == "finished"

    @property
    def episodes(self) -> int:
        """Training episodes that have ended."""
        return sum(self.summary.counts.get(f"train:{state}", 0) for state in TERMINAL_STATES)

    @property
    def episodes_in_all(self) -> int:
        """Training episodes, ended or not."""
        return sum(n for name, n in self.summary.counts.items() if name.startswith("train:"))

    @property
    def rewards(self) -> list[float]:
        """Mean reward of each step's batch; of the episodes so far before the first step."""
        steps = [view.metrics["reward_mean"] for view in self.versions if "reward_mean" in view.metrics]
        total, n = self.summary.rewards.get("train", (0.0, 0))
        return steps or ([total / n] if n else [])


@dataclass
class Watcher:
    """Looks at one run again and again."""

    client: LeydenClient
    run: str
    groups: int
    """Training groups in all."""
    _versions: list[AdapterView] = field(default_factory=list)
    _done: deque[tuple[float, int]] = field(default_factory=deque)
    _last: RunCounters | None = None
    _changed: float = field(default_factory=time.monotonic)

    def look(self) -> Progress:
        """Ask once."""
        summary, now = self.client.run(self.run).summary, time.monotonic()
        if self._last is None or summary.version_published != self._last.version_published:
            self._versions = self.client.metrics(self.run).versions
        if summary != self._last:
            self._last, self._changed = summary, now
        left = self._seconds_left(now, summary.groups_finished)
        return Progress(self.run, summary, self.groups, self._versions, left, now - self._changed)

    def _seconds_left(self, now: float, finished: int) -> float | None:
        self._done.append((now, finished))
        while self._done[0][0] < now - _RATE_WINDOW_S and len(self._done) > 2:
            self._done.popleft()
        then, before = self._done[0]
        if finished == before or now == then:
            return None
        return (self.groups - finished) * (now - then) / (finished - before)


def watch(
    client: LeydenClient,
    run: str,
    groups: int,
    *,
    console: Console | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    poll_s: float = 0.5,
    stall_s: float = 180,
) -> Progress:
    """Show a run's progress until it is finished; return the last look.

    Args:
        client: of the run's API.
        run: a sealed run (an open one never finishes).
        groups: training groups that were uploaded.
        console: where to draw; None draws nothing.
        on_progress: called at every look.
        poll_s: seconds between two looks.
        stall_s: after so many seconds without any change, give up if there is a reason that needs a person.

    Raises:
        RunStalled: nothing moves, and the message says why.
        ApiError, ApiUnreachable: the API refused, or is away.
    """
    watcher = Watcher(client, run, groups)
    with _Screen(console) as screen:
        while True:
            progress = watcher.look()
            screen.show(progress)
            if on_progress:
                on_progress(progress)
            if progress.finished:
                return progress
            if progress.quiet_s > stall_s and (reason := stall_reason(client, progress)):
                raise RunStalled(f"nothing has happened for {progress.quiet_s:.0f} s: {reason}")
            time.sleep(poll_s)


def stall_reason(client: LeydenClient, progress: Progress) -> str | None:
    """Say what a run is waiting for that will not come by itself, or None."""
    replicas, spec = client.replicas(), client.run(progress.run).spec
    base = spec.base_model
    serving = [replica for replica in replicas if replica["base_model"] == base]
    if not serving:
        others = ", ".join(sorted({replica["base_model"] for replica in replicas})) or "none at all"
        return f"no replica serves the base model {base!r} (live ones serve: {others})"
    if spec.start and not progress.summary.version_published:
        start = client.start(progress.run)
        if start.state == "waiting_for_data":
            return f"its start waits for data: PUT /v1/runs/{progress.run}/start"
        return f"the learner refused its start: {start.reason}" if start.state == "refused" else None
    refused = [f"{name} at {replica['id']}: {why}" for replica in serving for name, why in replica["rejected"].items()]
    if progress.summary.version_ready < progress.summary.version_published and refused:
        return f"no replica can prove that it serves the newest adapter ({'; '.join(refused)})"
    if not any(n for name, n in progress.summary.counts.items() if name.endswith((":running", ":collecting"))):
        waiting = sum(n for name, n in progress.summary.counts.items() if name.endswith(":queued"))
        return f"{waiting} episodes wait and no worker takes them: is one running?" if waiting else None
    return None


def render(progress: Progress) -> Group:
    """Draw one look."""
    summary = progress.summary
    head = Table.grid(padding=(0, 2))
    for _ in range(2):
        head.add_column(style="bold")
        head.add_column()
    head.add_row("run", progress.run, "state", summary.state)
    head.add_row("episodes", f"{progress.episodes} of {progress.episodes_in_all}", "reward", _curve(progress.rewards))
    head.add_row("policy version", _version(summary), "time left", _time(progress.seconds_left))
    bar = ProgressBar(total=max(progress.groups, 1), completed=summary.groups_consumed, width=60)
    failed = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.failures.items()))
    return Group(head, bar, *([Text(f"failed attempts: {failed}", style="yellow")] if failed else []))


def line(progress: Progress) -> str:
    """Say one look in a line, for logs."""
    reward = f"{progress.rewards[-1]:.3f}" if progress.rewards else "-"
    return (
        f"version {_version(progress.summary)}: reward {reward}, "
        f"{progress.episodes} of {progress.episodes_in_all} episodes, time left {_time(progress.seconds_left)}"
    )


class _Screen:
    """Draws in place on a terminal; elsewhere it prints a line for each version."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console and console.is_terminal else None
        self._said = -1

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show one look."""
        if self._live:
            self._live.update(render(progress))
        elif self._console and progress.summary.version_published > self._said:
            self._said = progress.summary.version_published
            self._console.print(line(progress), highlight=False)


def _version(summary: RunCounters) -> str:
    loading = summary.version_published != summary.version_ready
    return f"{summary.version_ready}" + (f" ({summary.version_published} loading)" if loading else "")


def _curve(rewards: list[float]) -> str:
    if not rewards:
        return "-"
    low, high = min(0.0, *rewards), max(1.0, *rewards)
    scale = (len(_BARS) - 1) / (high - low)
    return "".join(_BARS[round((value - low) * scale)] for value in rewards[-30:]) + f" {rewards[-1]:.2f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
