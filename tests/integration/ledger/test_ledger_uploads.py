"""Uploads: accepted at once, entered in windows, each episode exactly once."""

import asyncio

import pytest

from leyden_contracts import RunSpec
from leyden_ledger import BacklogFull, Conflict, Ledger, NewGroup, NewUpload, RunNotFound, Sealed, Window
from support.episodes import Planned, accept

RUN = "run-1"


@pytest.fixture(autouse=True)
async def run(ledger: Ledger) -> None:
    spec = {"id": RUN, "base_model": "m", "agent": "a:b", "grader": "a:c", "group_size": 2}
    await ledger.runs.create(RunSpec.model_validate(spec))


def upload(batch: str = "b", groups: int = 10, **more: object) -> NewUpload:
    return NewUpload(**{"batch": batch, "fingerprint": "f", "groups": groups, "size": 2, "purpose": "train", **more})


def numbered(batch: str, start: int, count: int) -> list[NewGroup]:
    return [NewGroup(f"{batch}-{n}", "t", "b/0#0+1") for n in range(start, start + count)]


async def test_the_same_upload_twice_makes_the_same_episodes(ledger: Ledger) -> None:
    assert not (await ledger.uploads.register(RUN, upload())).repeated
    assert (await ledger.uploads.register(RUN, upload())).repeated
    with pytest.raises(Conflict):
        await ledger.uploads.register(RUN, upload(fingerprint="other"))
    summary = await ledger.runs.summary(RUN)
    assert (summary.groups_accepted, summary.counts, summary.pending) == (10, {"train:queued": 20}, 20)


async def test_windows_follow_the_order_of_acceptance(ledger: Ledger) -> None:
    await ledger.uploads.register(RUN, upload("a", 3))
    await ledger.uploads.register(RUN, upload("b", 600))
    assert await ledger.uploads.windows(RUN, 10) == [Window("a", 0, 3, 2), Window("b", 0, 2, 2)]
    await ledger.uploads.enter(RUN, "a", 0, numbered("a", 0, 3))
    assert await ledger.uploads.enter(RUN, "b", 0, numbered("b", 0, 300)) == 300
    assert await ledger.uploads.windows(RUN, 10) == [], "there is enough in Redis"
    assert await ledger.uploads.windows(RUN, 2000) == [Window("b", 300, 300, 2)]
    assert (await ledger.runs.summary(RUN)).pending == 600
    assert [e.id for e in await ledger.episodes.list(RUN, count=8)][4:] == ["a-2.0", "a-2.1", "b-0.0", "b-0.1"]


async def test_of_many_feeders_each_group_is_entered_by_one(ledger: Ledger) -> None:
    await ledger.uploads.register(RUN, upload(groups=700))
    entered = await asyncio.gather(*(ledger.uploads.enter(RUN, "b", 0, numbered("b", 0, 700)) for _ in range(4)))
    assert sum(entered) == 700
    episodes = [episode.id for episode in await ledger.episodes.list(RUN, count=2000)]
    assert len(episodes) == len(set(episodes)) == 1400
    summary = await ledger.runs.summary(RUN)
    assert (summary.counts, summary.pending) == ({"train:queued": 1400}, 0)
    assert await ledger.uploads.windows(RUN, 10_000) == []


async def test_a_sealed_run_takes_evaluations_only(ledger: Ledger) -> None:
    await ledger.uploads.register(RUN, upload("early"))
    assert await ledger.runs.seal(RUN)
    assert not await ledger.runs.seal(RUN)
    for ask in (ledger.uploads.check, ledger.uploads.register):
        with pytest.raises(Sealed):
            await ask(RUN, upload())
    assert (await ledger.uploads.register(RUN, upload("early"))).repeated
    assert await ledger.uploads.enter(RUN, "early", 0, numbered("early", 0, 10)) == 10, "it was accepted"
    await ledger.uploads.register(RUN, upload("e", purpose="eval"))


async def test_asking_changes_nothing(ledger: Ledger) -> None:
    assert not (await ledger.uploads.check(RUN, upload())).repeated
    assert (await ledger.runs.summary(RUN)).groups_accepted == 0
    assert await ledger.uploads.registered(RUN) == {}


async def test_the_backlog_has_a_limit(ledger: Ledger) -> None:
    await ledger.uploads.register(RUN, upload("big", 100), most=10)
    with pytest.raises(BacklogFull, match="200 episodes"):
        await ledger.uploads.register(RUN, upload("more", 1), most=201)
    await ledger.uploads.register(RUN, upload("more", 1), most=202)


async def test_an_episode_is_cancelled_alone(ledger: Ledger) -> None:
    await accept(ledger, RUN, [Planned("g")])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, "g.0", "w", 10)
    assert await ledger.episodes.cancel(RUN, "g.0")
    assert not await ledger.episodes.cancel(RUN, "g.0")
    assert not await ledger.episodes.heartbeat(RUN, "g.0", 1, 10)
    assert (await ledger.episodes.get(RUN, "g.0")).state == "cancelled"


async def test_a_cancelled_run_ends_all_its_episodes(ledger: Ledger) -> None:
    await accept(ledger, RUN, [Planned("g"), Planned("h")])
    await ledger.uploads.register(RUN, upload("later", 50))
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, "g.0", "w", 10)
    assert await ledger.runs.cancel(RUN)
    assert not await ledger.runs.cancel(RUN)
    assert await ledger.episodes.claim(RUN, "g.1", "w", 10) is None
    assert await ledger.episodes.due(RUN, 10, 5) == []
    assert await ledger.uploads.windows(RUN, 100) == []
    assert await ledger.uploads.enter(RUN, "later", 0, numbered("later", 0, 5)) == 0
    with pytest.raises(Sealed):
        await ledger.uploads.register(RUN, upload("e", purpose="eval"))
    assert await ledger.episodes.expire(RUN, 60) == 4
    assert not await ledger.episodes.heartbeat(RUN, "g.0", 1, 10)
    summary = await ledger.runs.summary(RUN)
    assert summary.counts["train:cancelled"] == 104 and summary.unfinished == 0


async def test_a_paused_run_starts_nothing_and_loses_nothing(ledger: Ledger) -> None:
    await accept(ledger, RUN, [Planned("g")])
    await ledger.episodes.release(RUN)
    assert await ledger.episodes.claim(RUN, "g.0", "w", 10)
    await ledger.runs.hold(RUN, "paused")
    assert (await ledger.runs.summary(RUN)).held == "paused"
    assert await ledger.episodes.due(RUN, 10, 5) == []
    assert await ledger.episodes.claim(RUN, "g.1", "w", 10) is None
    assert await ledger.episodes.heartbeat(RUN, "g.0", 1, 10), "what runs goes on"
    await ledger.runs.hold(RUN, None)
    assert await ledger.episodes.due(RUN, 10, 5) == ["g.1"]
    with pytest.raises(RunNotFound):
        await ledger.runs.hold("nobody", "paused")


async def test_a_run_may_limit_what_runs_at_once(ledger: Ledger) -> None:
    spec = {"id": "few", "base_model": "m", "agent": "a:b", "grader": "a:c", "episodes": {"max_running": 2}}
    await ledger.runs.create(RunSpec.model_validate(spec))
    await accept(ledger, "few", [Planned("g", size=5, purpose="eval")])
    assert await ledger.episodes.due("few", 10, 5) == ["g.0", "g.1"]
    assert await ledger.episodes.due("few", 10, 5) == [], "two are rung for"
    for episode in ("g.0", "g.1"):
        assert await ledger.episodes.claim("few", episode, "w", 10)
    assert await ledger.episodes.claim("few", "g.2", "w", 10) is None
    await ledger.episodes.cancel("few", "g.0")
    assert len(await ledger.episodes.due("few", 10, 5)) == 1


async def test_an_idle_run_rests_until_something_comes(ledger: Ledger) -> None:
    assert await ledger.runs.active() == [RUN]
    assert not await ledger.runs.rest(RUN)
    await ledger.runs.seal(RUN)
    await ledger.runs.finish(RUN)
    assert await ledger.runs.rest(RUN)
    assert await ledger.runs.active() == []
    await accept(ledger, RUN, [Planned("e", purpose="eval")])
    assert await ledger.runs.active() == [RUN]
    assert not await ledger.runs.rest(RUN), "it has unfinished episodes"
