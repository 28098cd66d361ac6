"""Episodes in a ledger without an upload in a store: what tests of everything behind the task API begin with."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from leyden_contracts import Purpose, StoredUpload, TaskUpload
from leyden_ledger import Ledger, NewGroup, NewUpload
from leyden_storage import ObjectStore
from leyden_storage.keys import upload_key


@dataclass(frozen=True)
class Planned:
    """A group to accept."""

    id: str
    task: str = "t"
    ref: str = "b/0#0+1"
    purpose: Purpose = "train"
    size: int = 2
    version: int | None = None


async def accept(ledger: Ledger, run: str, groups: Sequence[Planned], store: ObjectStore | None = None) -> None:
    """Register and enter `groups`, those of one kind after another as one upload, with its manifest in `store`."""
    for (purpose, size, version), kind in groupby(groups, lambda group: (group.purpose, group.size, group.version)):
        new = [NewGroup(group.id, group.task, group.ref) for group in kind]
        batch = hashlib.sha256("\n".join(group.id for group in new).encode()).hexdigest()[:24]
        if store:
            asked = TaskUpload(purpose=purpose, samples=size, policy_version=version)
            upload = StoredUpload(batch=batch, asked=asked, digest=batch, part_lines=[len(new)], created=0.0)
            store.put(upload_key(run, batch), upload.model_dump_json().encode())
        await ledger.uploads.register(run, NewUpload(batch, batch, len(new), size, purpose, version))
        assert await ledger.uploads.enter(run, batch, 0, new) == len(new)
