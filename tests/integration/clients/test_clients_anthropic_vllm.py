"""The same requests through the gateway and straight at vLLM, which reads Anthropic's messages itself: same prompts."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anthropic
import pytest

from leyden_ledger import Ledger
from support.taught_engine import ARGUMENTS, QUESTION, SCHEMA, TaughtEngine, before, taught_model
from support.vllm import API_KEY, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

ADD = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
USE = {"type": "tool_use", "id": "call_1", "name": "add", "input": ARGUMENTS}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "95"}]}
TEXTS = [{"type": "text", "text": "So "}, {"type": "text", "text": "what?"}]
ASKED = {"role": "user", "content": QUESTION}
CONVERSATIONS = {
    "plain": {"messages": [ASKED]},
    "system": {"messages": [ASKED], "system": "Add."},
    "blocks": {"messages": [{"role": "user", "content": TEXTS}], "system": TEXTS},
    "tools": {"messages": [ASKED], "tools": [ADD]},
    "result": {
        "messages": [
            ASKED,
            {"role": "assistant", "content": [{"type": "text", "text": "Wait."}, USE]},
            {"role": "user", "content": [RESULT, TEXTS[1]]},
        ],
        "tools": [ADD],
    },
    "only a call": {
        "messages": [ASKED, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}],
        "tools": [ADD],
    },
}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("vllm")
    # Its attention on a CPU takes heads of 32 and more.
    with vllm_server(taught_model(folder, hidden=128, context=512), "tiny", folder) as url:
        yield url


@pytest.fixture
async def placed(replica: str, ledger: Ledger, redis_url: str, signing_key: str) -> AsyncIterator[tuple]:
    engine = TaughtEngine(replica, Path("/nowhere"))
    async with (
        before(engine, ledger, redis_url, signing_key, key=API_KEY) as (world, gateway),
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=world.token(), max_retries=0) as ours,
        anthropic.AsyncAnthropic(base_url=replica, auth_token=API_KEY, api_key=None, max_retries=0) as theirs,
    ):
        yield world, ours, theirs


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_prompts_are_as_long_as_vllms_own(placed, name):
    world, ours, theirs = placed
    counted = await ours.messages.count_tokens(model="policy", **CONVERSATIONS[name])
    message = await ours.messages.create(model="policy", max_tokens=1, **CONVERSATIONS[name])
    own = await theirs.messages.create(model="tiny", max_tokens=1, **CONVERSATIONS[name])
    assert counted.input_tokens == message.usage.input_tokens == own.usage.input_tokens
    assert len((await world.collector.calls(1))[0].prompt_token_ids) // 4 == counted.input_tokens


async def test_a_tool_is_called_in_a_stream(placed):
    world, ours, _ = placed
    async with ours.messages.stream(model="policy", max_tokens=60, **CONVERSATIONS["tools"]) as stream:
        message = await stream.get_final_message()
    assert (message.content[-1].input, message.stop_reason) == (ARGUMENTS, "tool_use")
    (call,) = await world.collector.calls(1)
    assert len(call.response_token_ids) == len(call.response_logprobs) == 4 * message.usage.output_tokens


async def test_a_live_stream_says_what_the_whole_message_says(placed):
    world, ours, _ = placed
    ask = {"model": "policy", "max_tokens": 20, **CONVERSATIONS["plain"]}
    whole = await ours.messages.create(**ask)
    async with ours.messages.stream(**ask) as stream:
        message = await stream.get_final_message()
    assert message.content[0].text == whole.content[0].text
    assert message.usage.output_tokens == whole.usage.output_tokens
    first, second = await world.collector.calls(2)
    assert first.response_token_ids == second.response_token_ids
