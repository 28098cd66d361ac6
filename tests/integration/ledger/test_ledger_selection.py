"""More groups than a step needs, where the learner asks for them; and tasks that are mastered, after the others."""

import pytest

from leyden_ledger import Ledger
from leyden_ledger.archive import archive_run
from leyden_ledger.recovery import ATTEMPTS_APART
from leyden_ledger.store import key
from leyden_storage import LocalStore
from support.episodes import Planned, accept
from support.learning import RUN, make_spec
from support.playing import FAILS, play

WON, LOST = (1.0, 1.0), (1.0, 0.0)


async def make_run(ledger: Ledger, groups: list[Planned], **algorithm: object) -> None:
    await ledger.runs.create(make_spec(group_size=2, **algorithm))
    await accept(ledger, RUN, groups)


async def begun(ledger: Ledger) -> list[str]:
    """Return the groups whose episodes wait for workers."""
    found = await ledger.redis.zrange(key(RUN, "due"), 0, -1)
    return sorted({episode.rpartition(".")[0] for episode in found})


async def test_what_the_learner_asks_for_starts_beside_what_the_steps_need(ledger: Ledger) -> None:
    await make_run(ledger, [Planned(f"g{n}") for n in range(9)], groups_per_step=2)
    assert await ledger.episodes.release(RUN) == 2
    assert await ledger.training.ask_for(RUN, 3)
    assert await ledger.episodes.release(RUN) == 3
    assert not await ledger.training.ask_for(RUN, 3), "it is told again after a crash"
    assert not await ledger.training.ask_for(RUN, 1), "it never takes back"
    assert await ledger.episodes.release(RUN) == 0
    await ledger.replicas.mark_ready(RUN, 1)
    assert await ledger.episodes.release(RUN) == 2, "of the next step, on its version"
    assert (await ledger.runs.summary(RUN)).groups_asked == 3


async def test_a_run_from_before_knows_how_to_be_asked(ledger: Ledger) -> None:
    await make_run(ledger, [Planned(f"g{n}") for n in range(3)], groups_per_step=1)
    await ledger.redis.hdel(key(RUN, "run"), "groups_asked")
    assert await ledger.episodes.release(RUN) == 1
    assert (await ledger.runs.summary(RUN)).groups_asked == 0
    assert await ledger.training.ask_for(RUN, 1)
    assert await ledger.episodes.release(RUN) == 1


def epochs(count: int) -> list[Planned]:
    """Return `count` passes over tasks a, b and c, a group each."""
    return [Planned(f"{task}{number}", task) for number in range(count) for task in "abc"]


MASTERED_LAST = {"mastered_last": True, "success_reward": 0.5}


async def test_a_mastered_task_comes_after_those_that_wait_and_still_comes(ledger: Ledger, store: LocalStore) -> None:
    await make_run(ledger, epochs(2), groups_per_step=3, selection=MASTERED_LAST)
    await ledger.episodes.release(RUN)
    await play(ledger, store, "a0", (0.5, 0.75))
    await play(ledger, store, "b0", LOST)
    await play(ledger, store, "c0", WON)
    order = []
    for asked in (1, 2, 3):
        await ledger.training.ask_for(RUN, asked)
        assert await ledger.episodes.release(RUN) == 1
        (group,) = await begun(ledger)
        order.append(group)
        await play(ledger, store, group, LOST)
    assert order == ["b1", "a1", "c1"]
    assert await ledger.episodes.release(RUN) == 0
    assert (await ledger.runs.summary(RUN)).counts["train:succeeded"] == 12


@pytest.mark.parametrize(
    ("results", "mastered"),
    [((WON,), True), ((LOST,), False), (((1.0, FAILS),), False), ((WON, LOST), False), ((WON, (1.0, FAILS)), True)],
    ids=["successes", "a miss", "a failure", "a miss later", "a failure later"],
)
async def test_what_makes_a_task_mastered(ledger: Ledger, store: LocalStore, results: tuple, mastered: bool) -> None:
    """A failed episode is no miss (I6), and no success either."""
    spec = make_spec(group_size=2, groups_per_step=9, selection=MASTERED_LAST)
    spec = spec.model_copy(update={"episodes": spec.episodes.model_copy(update={"max_attempts": 1})})
    await ledger.runs.create(spec)
    await accept(ledger, RUN, [Planned(f"a{n}", "a") for n in range(len(results))])
    await ledger.episodes.release(RUN)
    for number, rewards in enumerate(results):
        await play(ledger, store, f"a{number}", rewards)
    assert bool(await ledger.redis.sismember(key(RUN, "mastered"), "a")) is mastered


async def test_no_order_is_kept_for_a_run_that_does_not_ask(ledger: Ledger, store: LocalStore) -> None:
    await make_run(ledger, epochs(2), groups_per_step=3)
    await ledger.episodes.release(RUN)
    for group in ("a0", "b0", "c0"):
        await play(ledger, store, group, WON)
    assert not await ledger.redis.exists(key(RUN, "mastered"))
    await ledger.training.ask_for(RUN, 1)
    await ledger.episodes.release(RUN)
    assert await begun(ledger) == ["a1"]


async def test_a_cancelled_task_that_was_put_off_ends_once(ledger: Ledger, store: LocalStore) -> None:
    await make_run(ledger, epochs(2), groups_per_step=3, selection=MASTERED_LAST)
    await ledger.episodes.release(RUN)
    for group in ("a0", "b0", "c0"):
        await play(ledger, store, group, WON)
    await ledger.training.ask_for(RUN, 1)
    assert await ledger.episodes.release(RUN) == 1, "all are mastered: the first comes first"
    assert await begun(ledger) == ["a1"]
    for index in (0, 1):
        assert await ledger.episodes.cancel(RUN, f"c1.{index}")
    await ledger.training.ask_for(RUN, 3)
    assert await ledger.episodes.release(RUN) == 1
    assert await begun(ledger) == ["a1", "b1"]


async def test_what_was_mastered_is_known_again_after_a_loss_and_forgotten_with_the_run(
    ledger: Ledger, store: LocalStore
) -> None:
    spec = make_spec(group_size=2, groups_per_step=3, selection=MASTERED_LAST)
    await make_run(ledger, epochs(2), groups_per_step=3, selection=MASTERED_LAST)
    await ledger.episodes.release(RUN)
    for group, rewards in (("a0", WON), ("b0", LOST), ("c0", LOST)):
        await play(ledger, store, group, rewards)
    ended = {g: [await ledger.episodes.get(RUN, f"{g}.{i}") for i in (0, 1)] for g in ("a0", "b0", "c0")}
    await ledger.redis.flushall()

    await ledger.runs.create(spec, ATTEMPTS_APART)
    await accept(ledger, RUN, epochs(2))
    for group, episodes in ended.items():
        await ledger.training.restore_ended(RUN, group, episodes)
    await ledger.runs.hold(RUN, None)
    await ledger.training.ask_for(RUN, 1)
    assert await ledger.episodes.release(RUN) == 1
    assert await begun(ledger) == ["b1"]

    await ledger.runs.cancel(RUN)
    await ledger.episodes.expire(RUN, 60)
    assert await archive_run(ledger, store, RUN)
    assert not await ledger.redis.exists(key(RUN, "mastered"))


async def test_putting_off_takes_no_call_long(ledger: Ledger, store: LocalStore) -> None:
    await make_run(ledger, [Planned("first", "a")], groups_per_step=1, selection=MASTERED_LAST)
    await accept(ledger, RUN, [*(Planned(f"a{n}", "a") for n in range(1001)), Planned("b", "b")])
    await ledger.episodes.release(RUN)
    await play(ledger, store, "first", WON)
    await ledger.training.ask_for(RUN, 1)
    assert await ledger.episodes.release(RUN) == 0, "enough for one call"
    assert await ledger.episodes.release(RUN) == 1
    assert await begun(ledger) == ["b"]
