"""Assembly: from a closed attempt to a stored trajectory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from leyden_contracts import Purpose
from leyden_ledger.store import Scripts

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class SpanNote:
    """Where one call's span has been stored."""

    episode: str
    attempt: int
    call: int
    segment: str
    """Key of the segment in the object store."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed attempt whose every counted call is in a stored segment."""

    run: str
    group: str
    episode: str
    task: str
    attempt: int
    purpose: Purpose
    reward: float
    rewards: dict[str, float]
    calls: int
    segments: dict[int, str]
    """Call number -> segment key."""


class Assembly:
    """What the collector asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def note_spans(self, run: str, notes: Sequence[SpanNote]) -> set[tuple[str, int]]:
        """Record where calls' spans are; repeat it as often as you like.

        Returns: episode and attempt of notes that are of no use, as another attempt is the newest.
        """
        args = [part for note in notes for part in (note.episode, note.attempt, note.call, note.segment)]
        fenced = await self._scripts.run("note_spans", run, args) if args else []
        return {(episode, int(attempt)) for episode, attempt in zip(fenced[::2], fenced[1::2], strict=True)}

    async def due(self, run: str, lease_s: float) -> list[Closed]:
        """Return attempts to assemble; each comes again after `lease_s` unless it has been settled."""
        found = await self._scripts.run("due_assembly", run, (_AT_ONCE, int(lease_s * 1000)))
        return [_closed(run, *item) for item in found]

    async def settle(self, run: str, episode: str, attempt: int) -> bool:
        """Say that the trajectory is stored: the episode has succeeded. False if it was settled before."""
        return bool(await self._scripts.run("settle", run, (episode, attempt)))

    async def refuse(self, run: str, episode: str, attempt: int, message: str) -> bool:
        """Say that the spans do not make a whole: the attempt is incomplete. False if it was settled before."""
        return bool(await self._scripts.run("refuse", run, (episode, attempt, message)))


def _closed(run: str, episode: str, group: str, fields: list[str], spans: list[str]) -> Closed:
    task, attempt, purpose, reward, rewards, calls = fields
    segments = {int(call): segment for call, segment in zip(spans[::2], spans[1::2], strict=True)}
    named = json.loads(rewards)
    return Closed(run, group, episode, task, int(attempt), purpose, float(reward), named, int(calls), segments)  # type: ignore[arg-type]
