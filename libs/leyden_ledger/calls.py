"""Calls: the gateway's side of an attempt. The fence is checked before a call and again when its reply leaves."""

import secrets
from dataclasses import dataclass

from leyden_contracts import Pinning, Purpose
from leyden_ledger.errors import EpisodeNotFound, Fenced, TooManyCalls
from leyden_ledger.store import Scripts


@dataclass(frozen=True, slots=True)
class CallPermit:
    """Leave to make one call."""

    pinned: int | None
    """The version this attempt has pinned already."""
    purpose: Purpose
    wanted: int | None
    """The version this evaluation asks for."""


class Calls:
    """What the gateway asks of and tells the ledger."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def begin(self, run: str, episode: str, attempt: int) -> CallPermit:
        """Check the fence and the limit. Raises EpisodeNotFound, Fenced, TooManyCalls."""
        outcome, *found = await self._scripts.run("begin_call", run, (episode, attempt))
        if outcome == "unknown":
            raise EpisodeNotFound
        if outcome == "fenced":
            raise Fenced
        if outcome == "too_many":
            raise TooManyCalls
        pinned, purpose, wanted = found
        return CallPermit(int(pinned) if pinned else None, purpose, int(wanted) if wanted else None)

    async def pin(self, run: str, episode: str, attempt: int, version: int, what: Pinning = "episode") -> int:
        """Pin `version` for the attempt, for its whole group, or until its next call; return the one that is pinned.

        But for calls the first pin wins, which a sibling may have set. Raises Fenced.
        """
        pinned = await self._scripts.run("pin", run, (episode, attempt, version, what))
        if pinned < 0:
            raise Fenced
        return pinned

    async def count(self, run: str, episode: str, attempt: int, samples: int = 1) -> int:
        """Count a reply that is about to leave, each of its `samples` as a call; return the first one's number, from 1.

        Raises Fenced, TooManyCalls: then none counts.
        """
        # A command whose reply was lost is repeated: the mark keeps the second one from counting.
        number = await self._scripts.run_fast("count_call", run, (episode, attempt, secrets.token_hex(6), samples))
        if number == -2:
            raise TooManyCalls
        if number < 0:
            raise Fenced
        return number
