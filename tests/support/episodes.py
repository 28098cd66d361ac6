"""Episodes in a ledger without an upload in a store: what tests of everything behind the task API begin with."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from leyden_contracts import Purpose
from leyden_ledger import Ledger, NewGroup, NewUpload


@dataclass(frozen=True)
class Planned:
    """A group to accept."""

    id: str
    task: str = "t"
    ref: str = "b/0#0+1"
    purpose: Purpose = "train"
    size: int = 2
    version: int | None = None


async def accept(ledger: Ledger, run: str, groups: Sequence[Planned]) -> None:
    """Register and enter `groups`, those of one kind after another as one upload."""
    for (purpose, size, version), kind in groupby(groups, lambda group: (group.purpose, group.size, group.version)):
        new = [NewGroup(group.id, group.task, group.ref) for group in kind]
        batch = hashlib.sha256("\n".join(group.id for group in new).encode()).hexdigest()[:24]
        await ledger.uploads.register(run, NewUpload(batch, batch, len(new), size, purpose, version))
        assert await ledger.uploads.enter(run, batch, 0, new) == len(new)
