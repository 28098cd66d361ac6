"""The chaos mix counts what it is there to find."""

from dataclasses import replace

from leyden_contracts import RunSpec
from leyden_ledger import Ledger
from leyden_ledger.store import key
from leyden_storage import LocalStore
from leyden_storage.keys import batch_name
from leyden_storage.trajectories import write_batch
from support.chaos import Books, count_up
from support.episodes import Planned, accept
from support.playing import played
from support.task_api import SPEC, play

RUN = "run-books"
GROUPS = [Planned(f"g{n}", purpose="eval", size=1, version=0) for n in range(4)]


async def three_ended_of_four(ledger: Ledger) -> None:
    await ledger.runs.create(RunSpec.model_validate({**SPEC, "id": RUN, "episodes": {"max_attempts": 1}}))
    await accept(ledger, RUN, GROUPS[:3])
    await play(ledger, RUN, lambda _: None)
    await accept(ledger, RUN, GROUPS[3:])


async def test_books_of_four(ledger: Ledger, store: LocalStore) -> None:
    await three_ended_of_four(ledger)
    books = await count_up(ledger, store, RUN, 4)
    assert (books.accepted, books.ended, books.lost, books.doubled) == (4, 3, 1, 0)
    assert (books.states, books.attempts, books.run) == ({"failed": 3, "queued": 1}, 3, "open")
    assert not books.clean
    # Two that nobody was promised.
    assert (await count_up(ledger, store, RUN, 2)).doubled == 2


async def test_what_ends_twice_or_is_stored_twice_is_doubled(ledger: Ledger, store: LocalStore) -> None:
    await three_ended_of_four(ledger)
    await ledger.redis.xadd(key(RUN, "events"), {"kind": "episode", "episode": "g0.0", "state": "succeeded"})
    assert (await count_up(ledger, store, RUN, 4)).doubled == 1
    for number in (1, 2):
        write_batch(store, RUN, batch_name(0, number), [played(RUN, "g1", 0, 1.0)])
    books = await count_up(ledger, store, RUN, 4)
    assert books.doubled == 2
    assert books.violations


def test_clean_is_finished_and_nothing_wrong() -> None:
    clean = Books(4, 4, 0, 0, [], "finished", {}, 4)
    assert clean.clean
    wrong = [{"lost": 1}, {"doubled": 1}, {"violations": ["I1"]}, {"run": "sealed"}]
    assert not any(replace(clean, **fault).clean for fault in wrong)
