"""Which version and replica answer, and what sampling a run imposes."""

import asyncio

import openai
import pytest

from leyden_contracts import AttemptResult, FailureReason, RunSpec, adapter_name
from leyden_runtime.tokens import Scope

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


async def ask(client: openai.AsyncOpenAI, **changes: object) -> object:
    return await client.chat.completions.create(**{"model": "policy", "messages": MESSAGES, **changes})


def v(version: int, role: str = "policy") -> str:
    return adapter_name("run-1", role, version)


async def reach(world, version: int) -> None:
    for published in range(1, version + 1):
        await world.ledger.training.publish("run-1", published)
        await world.ledger.replicas.mark_ready("run-1", published)


async def test_the_newest_proved_version_is_pinned_for_the_attempt(world):
    await world.make_run()
    await reach(world, 2)
    await world.beat(v(1), v(2), "run-2--policy--v9", "run-1--policyx--v9")
    client = world.client(await world.gateway())
    await ask(client)
    await reach(world, 3)
    await world.beat(v(2), v(3))
    await asyncio.sleep(0.1)
    await ask(client)
    await world.beat(v(2))
    await asyncio.sleep(0.1)
    await ask(client)
    assert [asked["model"] for asked in world.engine.asked] == [v(2)] * 3, "even while nobody serves version 3"
    assert [call.policy_version for call in await world.collector.calls(3)] == [2] * 3
    assert (await world.ledger.episodes.get("run-1", "g.0")).policy_version == 2


async def test_no_older_version_stands_in_for_the_one_the_run_has_reached(world):
    await world.make_run()
    await reach(world, 2)
    await world.beat(v(1))
    call = asyncio.create_task(ask(world.client(await world.gateway())))
    await asyncio.sleep(0.4)
    assert not world.engine.asked
    await world.beat(v(1), v(2))
    await call
    assert world.engine.asked[0]["model"] == v(2)


async def test_a_pinned_version_is_waited_for(world):
    await world.make_run()
    await world.beat()
    gateway = await world.gateway(replica_wait_s=0.3)
    await world.ledger.calls.pin("run-1", "g.0", 1, 1)
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(world.client(gateway))
    assert caught.value.status_code == 503
    assert not world.engine.asked


async def test_who_waits_for_a_version_is_served_as_soon_as_a_replica_is_ready(world):
    await world.make_run()
    await world.beat()
    gateway = await world.gateway(replica_wait_s=30)
    await world.ledger.calls.pin("run-1", "g.0", 1, 1)
    call = asyncio.create_task(ask(world.client(gateway)))
    # By now it looks by itself each second only.
    await asyncio.sleep(1.8)
    assert not world.engine.asked
    await world.beat(v(1))
    await asyncio.wait_for(call, 0.4)


async def test_a_version_is_there_when_one_replica_serves_it_for_every_trained_role(world):
    roles = {"writer": {}, "checker": {}, "judge": {"trained": False}}
    await world.make_run(roles=roles)
    await reach(world, 1)
    await world.beat(v(1, "writer"), v(1, "checker"), v(2, "writer"))
    client = world.client(await world.gateway())
    for role in roles:
        await ask(client, model=role)
    asked = [v(1, "writer"), v(1, "checker"), "tiny"]
    assert [call["model"] for call in world.engine.asked] == asked
    with pytest.raises(openai.NotFoundError, match="`policy/writer`"):
        await ask(client, model="policy")


async def test_many_calls_that_wait_read_the_list_together(world, monkeypatch):
    from leyden_gateway.replicas import Replicas

    await world.beat()
    replicas, reads, whole = Replicas(world.ledger, 60), [], world.ledger.replicas.list

    async def counted():
        reads.append(1)
        return await whole()

    monkeypatch.setattr(world.ledger.replicas, "list", counted)
    assert await replicas.newest(RunSpec(id="run-1", base_model="tiny", agent="a:b", grader="a:c")) == 0
    waiting = [asyncio.create_task(replicas.news(20)) for _ in range(100)]
    await asyncio.sleep(0.5)
    assert 2 <= len(reads) <= 21
    await world.beat(v(1))
    await asyncio.wait_for(asyncio.gather(*waiting), 1)
    await replicas.news(0.1)
    seen = len(reads)
    await asyncio.sleep(0.2)
    assert len(reads) <= seen + 1, "nobody waits any more"


async def test_an_evaluation_gets_the_version_and_the_temperature_it_asked_for(world):
    await world.make_run(purpose="eval", wanted=1, sampling={"temperature": 0.9, "eval_temperature": 0})
    await reach(world, 2)
    await world.beat(v(1), v(2))
    await ask(world.client(await world.gateway()))
    assert world.engine.asked[0]["model"] == v(1)
    assert world.engine.asked[0]["temperature"] == 0
    call = (await world.collector.calls(1))[0]
    assert (call.policy_version, call.temperature) == (1, 0)


async def test_an_evaluation_of_version_0_uses_the_base_model(world):
    await world.make_run(purpose="eval", wanted=0)
    await reach(world, 2)
    await world.beat(v(2))
    await ask(world.client(await world.gateway()))
    assert world.engine.asked[0]["model"] == "tiny"


async def test_a_frozen_role_uses_the_base_model_and_its_own_sampling(world):
    await world.make_run(roles={"writer": {}, "checker": {"trained": False}}, sampling={"max_tokens": 8})
    await reach(world, 1)
    await world.beat(v(1, "writer"))
    client = world.client(await world.gateway())
    await ask(client, model="policy/checker", temperature=0.3, top_p=0.5, max_completion_tokens=100, seed=7)
    await ask(client, model="policy", temperature=0.3)
    frozen, trained = world.engine.asked
    assert (frozen["model"], frozen["temperature"], frozen["top_p"], frozen["seed"]) == ("tiny", 0.3, 0.5, 7)
    assert frozen["max_tokens"] == 100
    assert (trained["model"], trained["temperature"]) == (v(1, "writer"), 1.0)
    calls = await world.collector.calls(2)
    assert [(c.role, c.policy_version, c.temperature) for c in calls] == [("checker", 0, 0.3), ("writer", 1, 1.0)]
    assert (await world.ledger.episodes.get("run-1", "g.0")).policy_version == 1


@pytest.mark.parametrize(("asked", "got"), [(None, 8), (3, 3), (100, 8)])
async def test_a_trained_role_samples_as_the_run_says(world, asked, got):
    await world.make_run(sampling={"temperature": 0.7, "max_tokens": 8})
    await world.beat()
    wishes = {"temperature": 0.1, "top_p": 0.2, "seed": 1, "presence_penalty": 1, "logit_bias": {"5": 9}, "stop": ["."]}
    limit = {} if asked is None else {"max_tokens": asked}
    await ask(world.client(await world.gateway()), **wishes, **limit, extra_body={"top_k": 3, "min_p": 0.1})
    body = world.engine.asked[0]
    assert (body["temperature"], body["max_tokens"], body["top_p"], body["stop"]) == (0.7, got, 1.0, ["."])
    assert (body["top_k"], body["min_p"]) == (0, 0)
    assert not {"seed", "presence_penalty", "logit_bias"} & body.keys()


async def test_an_episode_stays_on_its_replica_and_episodes_spread(world):
    from leyden_gateway.replicas import Replicas

    await world.make_run()
    for name in ("a", "b", "c"):
        await world.beat(id=name)
    client = world.client(await world.gateway())
    for _ in range(5):
        await ask(client)
    assert len({call.replica for call in await world.collector.calls(5)}) == 1
    replicas = Replicas(world.ledger, 1)
    known = await world.ledger.replicas.list()
    spread = [replicas.choose(known, f"g{i}.0").id for i in range(300)]
    assert all(60 < spread.count(name) < 140 for name in "abc")
    without_a = [replicas.choose(known[1:], f"g{i}.0").id for i in range(300)]
    assert all(new == old for new, old in zip(without_a, spread, strict=True) if old != "a")


async def test_a_crowded_replica_hands_over(world):
    from contextlib import ExitStack

    from leyden_gateway.replicas import Replicas

    for name in ("a", "b"):
        await world.beat(id=name)
    replicas, known = Replicas(world.ledger, 1), await world.ledger.replicas.list()
    own = replicas.choose(known, "g.0")
    with ExitStack() as calls:
        for _ in range(9):
            calls.enter_context(replicas.busy(own))
        assert replicas.choose(known, "g.0") != own
    assert replicas.choose(known, "g.0") == own
    replicas.failed(own)
    assert replicas.choose(known, "g.0") != own
    assert replicas.choose([own], "g.0") == own


async def test_a_version_for_each_call(world):
    await world.make_run(pinning="call")
    await reach(world, 1)
    await world.beat(v(1))
    client = world.client(await world.gateway())
    await ask(client)
    await reach(world, 2)
    await world.beat(v(1), v(2))
    await asyncio.sleep(0.1)
    await ask(client)
    assert [asked["model"] for asked in world.engine.asked] == [v(1), v(2)]
    assert [call.policy_version for call in await world.collector.calls(2)] == [1, 2]
    assert 1 not in await world.ledger.replicas.wanted("run-1"), "no call uses it any more"


async def test_a_version_for_the_whole_group(world):
    await world.make_run(pinning="group")
    await reach(world, 1)
    await world.beat(v(1))
    gateway = await world.gateway()
    await ask(world.client(gateway))
    await reach(world, 2)
    await world.beat(v(1), v(2))
    assert await world.ledger.episodes.claim("run-1", "g.1", "w", 60)
    sibling = world.tokens.mint(Scope.ATTEMPT, 60, run="run-1", episode="g.1", attempt=1)
    await asyncio.sleep(0.1)
    await ask(world.client(gateway, sibling))
    assert [asked["model"] for asked in world.engine.asked] == [v(1), v(1)]
    lost = AttemptResult(outcome="failed", reason=FailureReason.WORKER_LOST)
    for episode in ("g.0", "g.1"):
        assert await world.ledger.episodes.close("run-1", episode, 1, lost)
    assert 1 in await world.ledger.replicas.wanted("run-1"), "the group may still call"
    for episode in ("g.0", "g.1"):
        assert await world.ledger.episodes.cancel("run-1", episode)
    assert 1 not in await world.ledger.replicas.wanted("run-1")
