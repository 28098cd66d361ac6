"""Which of the finished groups make the next step.

Groups are taken in the order in which they finished, so that a step is always the next so many of them. With dynamic
sampling (DAPO, arXiv 2503.14476, section 3.2) a step is full when enough of them have a signal; those without go with
it. What finished beyond a full step stays for the next one, where it is judged again: it may have become stale.
"""

import asyncio
from dataclasses import dataclass

from leyden_contracts import Algorithm, Group, Trajectory
from leyden_learner.groups import GroupReader
from leyden_learner.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Seen:
    """The finished groups that come next."""

    groups: list[Group]
    """Those of the next step if it is full, else all that there are."""
    full: bool
    """Whether they make a step."""
    silent: int
    """How many of them have no signal; 0 without dynamic sampling."""


def asked_for(algorithm: Algorithm, steps: int, consumed: int, silent: int) -> int:
    """Return how many groups the run needs beyond `groups_per_step` for each step, by what is known now.

    Args:
        algorithm: of the run.
        steps: that have been taken on groups.
        consumed: groups that these took.
        silent: those without a signal that finished since; the step takes them as well, up to its most.
    """
    beyond = consumed - algorithm.groups_per_step * steps
    return beyond + min(silent, algorithm.most_groups - algorithm.groups_per_step)


class StepChooser:
    """Looks at one run's finished groups until they make a step. Nothing is consumed by looking."""

    def __init__(self, reader: GroupReader, trainer: Trainer) -> None:
        self._reader, self._trainer = reader, trainer
        self._algorithm = trainer.spec.algorithm
        self._read: dict[str, list[Trajectory]] = {}
        self._telling: dict[str, bool] = {}
        """Group -> whether it has a signal for the learner's version at `_version`."""
        self._version = trainer.version

    async def look(self) -> Seen:
        """Return the groups that come next. Raises StoreError, LedgerError."""
        most = self._algorithm.most_groups
        waiting = await self._reader.peek(most)
        self._forget_all_but({group.id for group in waiting})
        telling = 0
        for count, group in enumerate(waiting, start=1):
            telling += await self._tells(group)
            if telling == self._algorithm.groups_per_step:
                return Seen(waiting[:count], True, count - telling)
        return Seen(waiting, len(waiting) == most, len(waiting) - telling)

    async def trajectories(self, group: Group) -> list[Trajectory]:
        """Return what may be trained on of a group, as it was judged. Raises StoreError, LedgerError."""
        found = self._read.get(group.id)
        return await self._reader.trajectories(group) if found is None else found

    async def _tells(self, group: Group) -> bool:
        if not self._algorithm.selection.dynamic:
            return True
        if group.id not in self._telling:
            found = self._read[group.id] = await self.trajectories(group)
            self._telling[group.id] = await asyncio.to_thread(self._trainer.has_signal, found)
        return self._telling[group.id]

    def _forget_all_but(self, groups: set[str]) -> None:
        """Keep what is known of `groups`, and no judgement of another version."""
        self._read = {group: found for group, found in self._read.items() if group in groups}
        same = self._version == self._trainer.version
        self._telling = {group: tells for group, tells in self._telling.items() if same and group in groups}
        self._version = self._trainer.version
