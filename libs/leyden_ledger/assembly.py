"""Assembly: from closed attempts to a stored batch of trajectories.

The ledger forms the batches. A batch has a number and fixed members until it is settled: when its lease ends, whoever
asks next gets the same one, and so makes the same object under the same name. Of two who do, one creates it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from leyden_contracts import Purpose
from leyden_ledger.store import ATTEMPTS_APART, Argument, Scripts
from leyden_storage.keys import batch_name

BATCH_MEMBERS = 64
BATCH_CALLS = 512
"""A batch has as many calls at most, or one member: it is held in memory."""
AGENT_SEGMENTS = 1000
"""Of one attempt; what an agent sends beyond them is stored, and is in no trajectory."""
_EPOCH = 10**9
"""More than the batches of one epoch. In Redis a batch's name is one number, which takes the fewest bytes."""


class SpanNote(NamedTuple):
    """Where one call's span has been stored."""

    episode: str
    attempt: int
    call: int
    segment: str
    """Key of the segment in the object store."""


@dataclass(frozen=True, slots=True)
class AgentNote:
    """Where spans of an attempt's own agent have been stored."""

    episode: str
    attempt: int
    segment: str
    """Key of the segment in the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    agent_segments: tuple[str, ...] = ()
    """Keys of the segments that hold the agent's own spans, in the order of their names."""
    output: Any = None
    """What the agent returned (JSON)."""
    call_rewards: tuple[float, ...] = ()
    """The grader's intermediate rewards: the n-th is call n's."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Closed attempts that become one object."""

    run: str
    first_attempt: int
    """The number before the first attempt, in the ledger that formed the batch. One that was rebuilt has another."""
    number: int
    """From 1, counted by the ledger that formed it."""
    members: tuple[Closed, ...]

    @property
    def name(self) -> str:
        """What the object is called: of two ledgers of a run, each has its own names."""
        return batch_name(self.first_attempt // ATTEMPTS_APART, self.number)

    @property
    def full(self) -> bool:
        """Whether more attempts may wait."""
        return len(self.members) >= BATCH_MEMBERS or 2 * sum(one.calls for one in self.members) >= BATCH_CALLS


class Ending(StrEnum):
    """What became of a batch that was settled."""

    SETTLED = "settled"
    """The ledger has it, now or from before."""
    LOST = "lost"
    """The ledger was lost and rebuilt since the batch was leased, and does not count on the object."""
    UNKNOWN = "unknown"
    """The ledger is lost, or is being rebuilt: whether it counts on the object is not known yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An attempt of which no trajectory can be made."""

    episode: str
    attempt: int
    message: str
    """For people."""


class Assembly:
    """What the collector asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def note_spans(self, run: str, notes: Sequence[SpanNote]) -> set[tuple[str, int]]:
        """Record where calls' spans are; repeat it as often as you like.

        Returns: episode and attempt of notes that are of no use, as another attempt is the newest.
        """
        calls: dict[tuple[str, int, str], list[str]] = {}
        for note in notes:
            calls.setdefault((note.episode, note.attempt, note.segment), []).append(str(note.call))
        args = [part for attempt, numbers in calls.items() for part in (*attempt, " ".join(numbers))]
        fenced = await self._scripts.run("note_spans", run, args) if args else []
        return {(episode, int(attempt)) for episode, attempt in zip(fenced[::2], fenced[1::2], strict=True)}

    async def note_agents(self, run: str, notes: Sequence[AgentNote]) -> set[tuple[str, int]]:
        """Record where agents' own spans are; repeat it as often as you like.

        Returns: episode and attempt of notes that came too late for a trajectory, or are too many for one.
        """
        args = [part for note in notes for part in (note.episode, note.attempt, note.segment)]
        late = await self._scripts.run("note_agents", run, [AGENT_SEGMENTS, *args]) if args else []
        return {(episode, int(attempt)) for episode, attempt in zip(late[::2], late[1::2], strict=True)}

    async def due(self, run: str, lease_s: float) -> Batch | None:
        """Return a batch to assemble, if attempts wait; it comes again after `lease_s` unless it has been settled."""
        found = await self._scripts.run("due_assembly", run, (BATCH_MEMBERS, BATCH_CALLS, int(lease_s * 1000)))
        if not found:
            return None
        first_attempt, number, members = found
        return Batch(run, int(first_attempt), number, tuple(_closed(run, *member) for member in members))

    async def settle(self, batch: Batch, stored: Iterable[tuple[str, int]], refused: Iterable[Refusal] = ()) -> Ending:
        """End a batch at once for all: the (episode, attempt) that are `stored` have succeeded.

        Those that are `refused` are incomplete. One that has ended otherwise, or has another attempt, is left as it is.
        """
        pairs = list(stored)
        args: list[Argument] = [batch.first_attempt, batch.number, pack_batch(batch.name), len(pairs)]
        args += [part for pair in pairs for part in pair]
        args += [part for one in refused for part in (one.episode, one.attempt, one.message)]
        return Ending(await self._scripts.run("settle", batch.run, args))


def batch_of(packed_name: str | None) -> str | None:
    """Return the name of a batch from what Redis keeps of it."""
    return batch_name(*divmod(int(packed_name), _EPOCH)) if packed_name else None


def pack_batch(name: str) -> int:
    """Return what Redis keeps of a batch's name."""
    epoch, number = map(int, name.split("-"))
    return epoch * _EPOCH + number


def _closed(
    run: str, episode: str, group: str, fields: Sequence[str], spans: Sequence[str], agents: Sequence[str]
) -> Closed:
    _, attempt, task, purpose, reward, rewards, calls, output, call_rewards = fields
    return Closed(
        run=run,
        group=group,
        episode=episode,
        task=task,
        attempt=int(attempt),
        purpose=purpose,  # type: ignore[arg-type]
        reward=float(reward),
        rewards=json.loads(rewards),
        calls=int(calls),
        segments={int(call): segment for call, segment in zip(spans[::2], spans[1::2], strict=True)},
        agent_segments=tuple(sorted(agents)),
        output=json.loads(output),
        call_rewards=tuple(json.loads(call_rewards or "[]")),
    )
