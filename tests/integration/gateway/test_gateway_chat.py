"""What an agent sees, through the real openai SDK, and what is recorded of it."""

import asyncio

import httpx
import openai
import pytest

from leyden_traces import names, pack_ids, pack_logprobs, trace_id

MESSAGES = [{"role": "user", "content": "How much is 1+2?"}]
TOOLS = [{"type": "function", "function": {"name": "calculator", "parameters": {"type": "object", "properties": {}}}}]


def as_recorded(answer: dict) -> tuple[bytes, bytes, bytes]:
    """The three byte strings that the engine's answer stands for."""
    choice = answer["choices"][0]
    return (
        pack_ids(answer["prompt_token_ids"]),
        pack_ids(choice["token_ids"]),
        pack_logprobs([entry["logprob"] for entry in choice["logprobs"]["content"]]),
    )


@pytest.fixture
async def client(world):
    await world.make_run()
    await world.beat()
    return world.client(await world.gateway())


async def test_a_call_is_answered_and_recorded_byte_for_byte(world, client):
    for _ in range(3):
        reply = await client.chat.completions.create(model="policy", messages=MESSAGES)
        assert reply.choices[0].message.content == "the answer is 42"
        assert (reply.model, reply.usage.completion_tokens) == ("policy", 5)
    calls = await world.collector.calls(3)
    assert [call.number for call in calls] == [1, 2, 3]
    for call, answer in zip(calls, world.engine.answered, strict=True):
        assert (call.prompt_token_ids, call.response_token_ids, call.response_logprobs) == as_recorded(answer)
        assert (call.response_id, call.finish_reason, call.replica) == (answer["id"], "stop", "r0")
        assert (call.run, call.episode, call.attempt, call.role) == ("run-1", "g.0", 1, "policy")
        assert (call.policy_version, call.temperature) == (0, 1.0)
    assert await world.counted() == 3


async def test_the_spans_say_who_sent_them_and_share_the_attempts_trace(world, client):
    await client.chat.completions.create(model="policy", messages=MESSAGES)
    await world.collector.calls(1)
    resource = world.collector.requests[0].resource_spans[0].resource
    assert {a.key: a.value.string_value for a in resource.attributes} == {names.SERVICE_NAME: "leyden-gateway"}
    span = world.collector.spans[0]
    assert span.trace_id == trace_id("run-1", "g.0", 1)
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    assert span.parent_span_id == b""


async def test_the_agents_own_span_becomes_the_parent(world, client):
    trace = trace_id("run-1", "g.0", 1).hex()
    for header in (f"00-{trace}-00000000000000ab-01", f"00-{'1' * 32}-00000000000000ab-01", "nonsense"):
        headers = {"traceparent": header}
        await client.chat.completions.create(model="policy", messages=MESSAGES, extra_headers=headers)
    await world.collector.calls(3)
    assert sorted(span.parent_span_id for span in world.collector.spans) == [b"", b"", b"\0" * 7 + b"\xab"]


async def test_the_agent_gets_no_ids_and_logprobs_only_on_request(world, client):
    plain = await client.chat.completions.with_raw_response.create(model="policy", messages=MESSAGES)
    for hidden in ("token_ids", "prompt_token_ids", "kv_transfer_params", "-0."):
        assert hidden not in plain.text
    asked = await client.chat.completions.create(model="policy", messages=MESSAGES, logprobs=True)
    expected = [entry["logprob"] for entry in world.engine.answered[1]["choices"][0]["logprobs"]["content"]]
    assert [entry.logprob for entry in asked.choices[0].logprobs.content] == expected


async def test_tools(world, client):
    reply = await client.chat.completions.create(model="policy", messages=MESSAGES, tools=TOOLS)
    (call,) = reply.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("calculator", '{"expression": "1+2"}')
    assert reply.choices[0].finish_reason == "tool_calls"
    assert world.engine.asked[0]["tools"] == TOOLS
    assert (await world.collector.calls(1))[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("tools", [openai.omit, TOOLS])
async def test_a_streamed_reply_adds_up_to_the_plain_one(world, client, tools):
    streamed = client.chat.completions.stream(
        model="policy", messages=MESSAGES, tools=tools, stream_options={"include_usage": True}
    )
    async with streamed as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    sent = world.engine.answered[0]
    assert world.engine.asked[0]["stream"] is (tools is openai.omit), "with tools a finished reply is replayed"
    assert final.choices[0].message.content == sent["choices"][0]["message"]["content"]
    assert final.choices[0].finish_reason == sent["choices"][0]["finish_reason"]
    assert final.usage.total_tokens == 12
    found = [call.function.arguments for call in final.choices[0].message.tool_calls or []]
    assert found == [c["function"]["arguments"] for c in sent["choices"][0]["message"]["tool_calls"]]
    call = (await world.collector.calls(1))[0]
    assert (call.prompt_token_ids, call.response_token_ids, call.response_logprobs) == as_recorded(sent)


async def test_usage_is_streamed_only_on_request(world, client):
    chunks = [c async for c in await client.chat.completions.create(model="policy", messages=MESSAGES, stream=True)]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 6 + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"


async def test_streamed_logprobs_on_request(world, client):
    create = client.chat.completions.create
    chunks = [c async for c in await create(model="policy", messages=MESSAGES, stream=True, logprobs=True)]
    found = [e.logprob for c in chunks if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    expected = [entry["logprob"] for entry in world.engine.answered[0]["choices"][0]["logprobs"]["content"]]
    assert found == expected


async def test_the_synchronous_client_works_too(world, client):
    sync = openai.OpenAI(base_url=str(client.base_url), api_key=client.api_key, max_retries=0)
    create = sync.chat.completions.create
    reply = await asyncio.to_thread(create, model="policy", messages=MESSAGES)
    assert reply.choices[0].message.content == "the answer is 42"
    chunks = await asyncio.to_thread(lambda: list(create(model="policy", messages=MESSAGES, stream=True)))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "the answer is 42"
    sync.close()


async def test_the_engine_is_asked_for_ids_with_its_own_key(world, client):
    await client.chat.completions.create(
        model="policy", messages=MESSAGES, extra_body={"include_reasoning": False, "return_token_ids": False}
    )
    asked = world.engine.asked[0]
    assert (asked["model"], asked["return_token_ids"], asked["logprobs"]) == ("tiny", True, True)
    assert "include_reasoning" not in asked
    assert world.engine.headers[0]["Authorization"] == "Bearer engine-key"


async def test_models_lists_what_the_run_knows(world):
    roles = {"writer": {"models": ["gpt-4o-mini"]}, "checker": {"trained": False}}
    await world.make_run(roles=roles)
    await world.beat()
    client = world.client(await world.gateway())
    listed = [model.id async for model in client.models.list()]
    assert listed == ["checker", "gpt-4o-mini", "policy", "policy/checker", "policy/writer", "writer"]
    assert (await client.models.retrieve("policy/writer")).id == "policy/writer"
    for model in listed:
        await client.chat.completions.create(model=model, messages=MESSAGES)
    recorded = [call.role for call in await world.collector.calls(6)]
    assert recorded == ["checker", "writer", "writer", "checker", "writer", "writer"]


async def test_health_and_metrics_need_no_token(world, client):
    await client.chat.completions.create(model="policy", messages=MESSAGES)
    async with httpx.AsyncClient(base_url=world.gateways[0].url) as http:
        assert (await http.get("/healthz")).status_code == 200
        text = (await http.get("/metrics")).text
    assert 'leyden_gateway_calls_total{outcome="ok"}' in text
    assert "leyden_gateway_span_queue" in text
