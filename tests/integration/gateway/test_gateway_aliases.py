"""After training: any OpenAI client uses a run's best or latest version, by name."""

import openai
import pytest

from leyden_contracts import Promotion, adapter_name
from leyden_runtime.tokens import Scope
from support.gateway import RUN

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]


def user(world, gateway, **claims):
    return world.client(gateway, token=world.tokens.mint(Scope.USE, 60, **claims))


async def create(client, model, **more):
    return await client.chat.completions.create(model=model, messages=MESSAGES, **more)


@pytest.fixture
async def gateway(world):
    """Versions 1 to 3 are ready on the only replica, and 2 is the promoted one."""
    await world.make_run()
    for version in (1, 2, 3):
        await world.ledger.training.publish(RUN, version)
        await world.ledger.replicas.mark_ready(RUN, version)
    await world.beat(*(adapter_name(RUN, "policy", version) for version in (1, 2, 3)))
    await world.ledger.promotions.record(promotion(1, 2))
    return await world.gateway()


def promotion(number: int, version: int, predecessor: int | None = None) -> Promotion:
    before = None if predecessor is None else number - 1
    return Promotion(
        run=RUN, number=number, version=version, cause="person", before=before, predecessor=predecessor, created=0.0
    )


@pytest.mark.parametrize(("name", "version"), [("best", 2), ("latest", 3), ("1", 1)])
async def test_a_version_by_name(world, gateway, name, version):
    client = user(world, gateway, run=RUN)
    reply = await create(client, f"leyden/{RUN}:{name}", temperature=0.3, seed=4)
    assert (reply.model, reply.choices[0].message.content) == (f"leyden/{RUN}:{name}", "the answer is 42")
    asked = world.engine.asked[-1]
    assert asked["model"] == adapter_name(RUN, "policy", version)
    assert (asked["temperature"], asked["seed"]) == (0.3, 4), "a user samples as it likes"
    chunks = [chunk async for chunk in await create(client, f"leyden/{RUN}:{name}", stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "the answer is 42"
    assert not world.collector.spans and await world.counted() == 0, "no episode, no record"


async def test_the_alias_follows_the_promotion(world, gateway):
    client = user(world, gateway, run=RUN)
    await world.ledger.promotions.record(promotion(2, 3, predecessor=2))
    await create(client, f"leyden/{RUN}:best")
    assert world.engine.asked[-1]["model"] == adapter_name(RUN, "policy", 3)


async def test_the_models_are_listed(world, gateway):
    client = user(world, gateway, run=RUN)
    assert [model.id async for model in client.models.list()] == [f"leyden/{RUN}:best", f"leyden/{RUN}:latest"]
    assert (await client.models.retrieve(f"leyden/{RUN}:best")).id == f"leyden/{RUN}:best"


@pytest.mark.parametrize(
    ("claims", "model"),
    [
        ({"run": RUN}, "policy"),
        ({"run": RUN}, "leyden/run-1:worst"),
        ({"run": RUN}, "leyden/../run-1:best"),
        ({"run": "another"}, f"leyden/{RUN}:best"),
        ({"tenant": "stranger"}, f"leyden/{RUN}:best"),
        ({"tenant": "default"}, "leyden/nobody:best"),
    ],
)
async def test_what_a_token_may_not_use_does_not_exist(world, gateway, claims, model):
    with pytest.raises(openai.NotFoundError):
        await create(user(world, gateway, **claims), model)
    assert not world.engine.asked


async def test_of_several_trained_roles_one_is_named(world):
    await world.make_run(roles={"writer": {}, "checker": {}, "judge": {"trained": False}})
    await world.ledger.training.publish(RUN, 1)
    await world.ledger.replicas.mark_ready(RUN, 1)
    await world.beat(adapter_name(RUN, "writer", 1), adapter_name(RUN, "checker", 1))
    client = user(world, await world.gateway(), run=RUN)
    await create(client, f"leyden/{RUN}/writer:latest")
    assert world.engine.asked[-1]["model"] == adapter_name(RUN, "writer", 1)
    names = [f"leyden/{RUN}/checker:latest", f"leyden/{RUN}/writer:latest"]
    assert [model.id async for model in client.models.list()] == names
    for model in (f"leyden/{RUN}:latest", f"leyden/{RUN}/judge:latest"):
        with pytest.raises(openai.NotFoundError, match=names[0]):
            await create(client, model)


async def test_an_agent_cannot_use_an_alias(world, gateway):
    with pytest.raises(openai.NotFoundError):
        await create(world.client(gateway), f"leyden/{RUN}:best")


async def test_nothing_is_promoted_yet(world):
    await world.make_run()
    await world.beat()
    with pytest.raises(openai.NotFoundError, match="promoted no version yet"):
        await create(user(world, await world.gateway(), run=RUN), f"leyden/{RUN}:best")
