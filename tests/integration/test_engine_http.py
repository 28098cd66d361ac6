"""The engine, spoken to over HTTP as the gateway, the adapter_loader and an agent do."""

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
import torch
from pydantic import SecretStr

from leyden_engine.network import ModelUnusable
from leyden_engine.server import Server
from leyden_engine.settings import EngineSettings
from support.servers import find_port, wait_for
from support.tiny_model import START, make_adapter, make_model, teach, teacher_forced

KEY = "engine-test-key"
QUESTION = "What is 37+58?"
SAID = 'Wait. <tool_call>\n{"name": "add", "arguments": {"a": 37, "b": 58}}\n</tool_call>'
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CHAT = {"model": "base", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 60}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers one question with one tool call, and two random adapters for it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("engine_http")
    make_model(folder / "model", special_tags=True)
    teach(
        folder / "model",
        f"{START}system\nadd <|im_end|>\n{START}user\n{QUESTION}<|im_end|>\n{START}assistant\n",
        SAID,
    )
    for seed in (1, 2):
        make_adapter(folder / "model", folder / f"adapter{seed}", seed=seed)
    return folder


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def serving(folder: Path, **more: Any) -> Iterator[str]:
    """Serve from a thread of this process: starting another one costs seconds of imports."""
    settings = EngineSettings(
        model=folder / "model", served_name="base", port=find_port(), engine_api_key=SecretStr(KEY), **more
    )
    server, url = Server(settings), f"http://127.0.0.1:{settings.port}"
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(stop)))
    thread.start()
    try:
        wait_for(lambda: healthy(url), 30, "the engine")
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[str]:
    with serving(folder, call_log=folder / "calls.jsonl", max_adapters=3) as url:
        yield url


@pytest.fixture
async def http(engine: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=engine, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as client:
        yield client
        for card in (await client.get("/v1/models")).json()["data"][1:]:
            await client.post("/v1/unload_lora_adapter", json={"lora_name": card["id"]})


async def load(http: httpx.AsyncClient, name: str, path: Path | str) -> httpx.Response:
    return await http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path)})


async def chat(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/v1/chat/completions", json={**CHAT, "logprobs": True, "return_token_ids": True} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tokens(reply: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
    """Return prompt ids, reply ids and logprobs, after the check that a gateway makes."""
    (choice,) = reply["choices"]
    logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
    assert len(choice["token_ids"]) == len(logprobs) == reply["usage"]["completion_tokens"] > 0
    assert len(reply["prompt_token_ids"]) == reply["usage"]["prompt_tokens"]
    return reply["prompt_token_ids"], choice["token_ids"], logprobs


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    found = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"} and found["code"] == status
    return found


async def test_a_tool_call_with_every_token(http: httpx.AsyncClient, folder: Path) -> None:
    reply = await chat(http, tools=[ADD], temperature=0)
    prompt, ids, logprobs = tokens(reply)
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Wait. "
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": 37, "b": 58}'}
    assert choice["logprobs"]["content"][-1]["token"] == "<|im_end|>"
    wanted = teacher_forced(folder / "model", None, prompt, ids).log_softmax(-1)
    wanted = wanted.gather(-1, torch.tensor(ids)[:, None])[:, 0]
    assert torch.allclose(torch.tensor(logprobs), wanted, atol=1e-4)
    # The next turn is an ordinary conversation.
    result = {"role": "tool", "tool_call_id": call["id"], "content": "95"}
    await chat(http, tools=[ADD], messages=[*CHAT["messages"], choice["message"], result])


async def test_a_prompt_is_tokenized_as_it_would_be_run(http: httpx.AsyncClient) -> None:
    asked = {"model": "base", "messages": CHAT["messages"], "tools": [ADD]}
    found = (await http.post("/tokenize", json=asked)).json()
    assert found["tokens"] == (await chat(http, tools=[ADD], max_tokens=1))["prompt_token_ids"]
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), 256)
    shorter = (await http.post("/tokenize", json={**asked, "add_generation_prompt": False})).json()["tokens"]
    assert found["tokens"][: len(shorter)] == shorter != found["tokens"]
    text = {"model": "base", "prompt": QUESTION}
    answer = (await http.post("/v1/completions", json={**text, "return_token_ids": True, "max_tokens": 1})).json()
    found = (await http.post("/tokenize", json=text)).json()
    assert found["tokens"] == answer["choices"][0]["prompt_token_ids"]


async def test_what_cannot_be_tokenized_is_refused(http: httpx.AsyncClient) -> None:
    for wrong in ({}, {"prompt": "a", "messages": CHAT["messages"]}, {"messages": [{"content": "a"}]}):
        error(await http.post("/tokenize", json={"model": "base", **wrong}), 400)
    error(await http.post("/tokenize", json={"model": "other", "prompt": "a"}), 404)
    error(await http.post("/tokenize", json={"model": "base", "prompt": "a", "return_token_strs": True}), 400)


async def test_tools_that_are_not_offered_are_not_parsed(http: httpx.AsyncClient) -> None:
    reply = await chat(http, tools=[ADD], tool_choice="none", temperature=0)
    assert reply["choices"][0]["message"]["content"] == SAID.replace("<tool_call>", "").replace("</tool_call>", "")
    assert reply["choices"][0]["finish_reason"] == "stop"


async def test_concurrent_adapters_get_their_own_weights(http: httpx.AsyncClient, folder: Path) -> None:
    for seed in (1, 2):
        assert (await load(http, f"run--policy--v{seed}", folder / f"adapter{seed}")).status_code == 200
    models = ["base", "run--policy--v1", "run--policy--v2"]
    calls = [chat(http, model=models[n % 3], max_tokens=12 + n, ignore_eos=True, temperature=0.8) for n in range(24)]
    replies = await asyncio.gather(*calls)
    for index, reply in enumerate(replies):
        prompt, ids, logprobs = tokens(reply)
        adapter = None if index % 3 == 0 else folder / f"adapter{index % 3}"
        wanted = (teacher_forced(folder / "model", adapter, prompt, ids) / 0.8).log_softmax(-1)
        wanted = wanted.gather(-1, torch.tensor(ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(logprobs), wanted, atol=1e-4)
        assert reply["model"] == models[index % 3] and reply["choices"][0]["finish_reason"] == "length"


async def test_probes_tell_adapters_apart(http: httpx.AsyncClient, folder: Path) -> None:
    await load(http, "v1", folder / "adapter1")
    ids = list(range(5, 45))
    for model, adapter in (("base", None), ("v1", folder / "adapter1")):
        body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        answer = await http.post("/v1/completions", json=body)
        found = answer.json()["choices"][0]["prompt_logprobs"]
        assert found[0] is None and [list(entry) for entry in found[1:]] == [[str(id)] for id in ids[1:]]
        got = torch.tensor([entry[str(id)]["logprob"] for entry, id in zip(found[1:], ids[1:], strict=True)])
        plain = teacher_forced(folder / "model", adapter, ids[:1], ids[1:]).log_softmax(-1)
        assert torch.allclose(got, plain.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0], atol=1e-4)


async def test_loading_and_unloading(http: httpx.AsyncClient, folder: Path, tmp_path: Path) -> None:
    assert (await load(http, "v1", folder / "adapter1")).text.startswith("Success")
    assert "already been loaded" in error(await load(http, "v1", folder / "adapter1"), 400)["message"]
    error(await load(http, "base", folder / "adapter1"), 400)
    error(await load(http, "v2", tmp_path / "nowhere"), 404)
    shutil.copytree(folder / "adapter1", tmp_path / "corrupt")
    (tmp_path / "corrupt/adapter_model.safetensors").write_bytes(b"junk")
    error(await load(http, "v2", tmp_path / "corrupt"), 500)
    error(await http.post("/v1/load_lora_adapter", json={"lora_name": "v2"}), 400)
    error(await http.post("/v1/unload_lora_adapter", json={"lora_name": "v2"}), 404)
    cards = (await http.get("/v1/models")).json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("base", None), ("v1", "base")]
    assert cards[1]["root"] == str(folder / "adapter1")
    assert (await http.post("/v1/unload_lora_adapter", json={"lora_name": "v1"})).status_code == 200
    assert error(await http.post("/v1/chat/completions", json=CHAT | {"model": "v1"}), 404)["param"] == "model"
    await chat(http)


async def test_too_many_adapters(http: httpx.AsyncClient, folder: Path) -> None:
    found = await asyncio.gather(*(load(http, f"v{n}", folder / "adapter1") for n in range(4)))
    assert sorted(answer.status_code for answer in found) == [200, 200, 200, 400]


async def test_two_loads_of_one_name(http: httpx.AsyncClient, folder: Path) -> None:
    twins = await asyncio.gather(*(load(http, "v0", folder / "adapter1") for _ in range(2)))
    assert sorted(answer.status_code for answer in twins) == [200, 400]


async def test_a_name_loaded_again_serves_nothing_stale(http: httpx.AsyncClient, folder: Path) -> None:
    said = []
    for seed in (1, 2, 1):
        await load(http, "v1", folder / f"adapter{seed}")
        said.append(tokens(await chat(http, model="v1", temperature=0, ignore_eos=True)))
        await http.post("/v1/unload_lora_adapter", json={"lora_name": "v1"})
    assert said[0] == said[2] and said[0][1] != said[1][1]


async def test_a_running_call_ends_on_the_weights_it_began_with(http: httpx.AsyncClient, folder: Path) -> None:
    await load(http, "v1", folder / "adapter1")
    ask = {"model": "v1", "temperature": 0, "ignore_eos": True, "max_tokens": 200}
    alone = tokens(await chat(http, **ask))
    task = asyncio.create_task(chat(http, **ask))
    await asyncio.sleep(0.05)
    await http.post("/v1/unload_lora_adapter", json={"lora_name": "v1"})
    assert (await http.post("/v1/chat/completions", json=CHAT | {"model": "v1"})).status_code == 404
    assert tokens(await task)[1] == alone[1]


async def test_completions_and_stop_strings(http: httpx.AsyncClient) -> None:
    body = {"model": "base", "prompt": "What is", "temperature": 0, "logprobs": 1, "return_token_ids": True}
    free = (await http.post("/v1/completions", json=body)).json()["choices"][0]
    assert free["finish_reason"] == "length" and len(free["token_ids"]) == 16
    assert len(free["logprobs"]["token_logprobs"]) == len(free["logprobs"]["tokens"]) == 16
    by_ids = (await http.post("/v1/completions", json={**body, "prompt": free["prompt_token_ids"]})).json()
    assert by_ids["choices"][0]["token_ids"] == free["token_ids"]
    stop = free["text"][6:8]
    cut = (await http.post("/v1/completions", json={**body, "stop": stop})).json()["choices"][0]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    assert cut["text"] == free["text"][: free["text"].index(stop)]
    assert len(cut["token_ids"]) == len(cut["logprobs"]["token_logprobs"]) < 16
    assert cut["token_ids"] == free["token_ids"][: len(cut["token_ids"])]
    end = free["token_ids"][5]
    ended = (await http.post("/v1/completions", json={**body, "stop_token_ids": [end]})).json()["choices"][0]
    assert (ended["finish_reason"], ended["stop_reason"]) == ("stop", end)
    assert ended["token_ids"] == free["token_ids"][: free["token_ids"].index(end) + 1]
    assert free["text"].startswith(ended["text"]) and len(ended["text"]) < len(free["text"])
    assert ended["text"] == "".join(free["logprobs"]["tokens"][: free["token_ids"].index(end)])


async def test_refusals_are_openai_errors(http: httpx.AsyncClient) -> None:
    long = {"messages": [{"role": "user", "content": "word " * 500}]}
    assert (
        "maximum context length is 256"
        in error(await http.post("/v1/chat/completions", json=CHAT | long), 400)["message"]
    )
    assert error(await http.post("/v1/chat/completions", json=CHAT | {"n": 2}), 400)["param"] == "n"
    error(await http.post("/v1/chat/completions", content=b"{"), 400)
    error(await http.post("/v1/completions", json={"model": "base", "prompt": []}), 400)
    error(await http.post("/v1/completions", json={"model": "base", "prompt": [100_000]}), 400)
    error(await http.post("/v1/chat/completions", json=CHAT | {"model": "nope"}), 404)
    error(await http.get("/v1/nowhere"), 404)


@pytest.mark.parametrize("limit", [None, 100_000])
async def test_a_reply_ends_where_the_context_does(limit: int | None, http: httpx.AsyncClient) -> None:
    reply = await chat(http, max_tokens=limit, ignore_eos=True)
    assert reply["usage"]["total_tokens"] == 256 and reply["choices"][0]["finish_reason"] == "length"


async def test_the_key_is_needed(engine: str) -> None:
    async with httpx.AsyncClient(base_url=engine) as stranger:
        for path in ("/health", "/healthz", "/metrics"):
            assert (await stranger.get(path)).status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
            error(await stranger.get("/v1/models", headers=headers), 401)
            error(await stranger.post("/v1/chat/completions", json=CHAT, headers=headers), 401)
        metrics = (await stranger.get("/metrics")).text
    assert "leyden_engine_generated_tokens_total" in metrics and "leyden_engine_requests_running" in metrics


async def test_the_openai_sdk(engine: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{engine}/v1", api_key=KEY, max_retries=0) as client:
        ask: Any = {**CHAT, "tools": [ADD], "temperature": 0, "logprobs": True, "top_logprobs": 2}
        reply = await client.chat.completions.create(**ask)
        assert reply.choices[0].message.tool_calls[0].function.name == "add"
        assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 2
        assert [model.id async for model in client.models.list()] == ["base"]
        text = await client.completions.create(model="base", prompt="What is", logprobs=2, max_tokens=3)
        assert len(text.choices[0].logprobs.top_logprobs) == 3
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(**{**ask, "model": "nope"})
        chunks = [chunk async for chunk in await client.chat.completions.create(**{**ask, "stream": True})]
        assert [call.function.name for c in chunks for call in c.choices[0].delta.tool_calls or []] == ["add"]


async def test_every_reply_is_in_the_call_log(http: httpx.AsyncClient, folder: Path) -> None:
    replies = await asyncio.gather(*(chat(http, seed=n, temperature=1.2) for n in range(8)))
    lines = {line["response_id"]: line for line in map(json.loads, (folder / "calls.jsonl").read_text().splitlines())}
    for reply in replies:
        prompt, ids, logprobs = tokens(reply)
        line = lines[reply["id"]]
        assert (line["prompt_token_ids"], line["response_token_ids"]) == (prompt, ids)
        assert bytes.fromhex(line["logprobs"]) == torch.tensor(logprobs).numpy().astype("<f4").tobytes()
        assert (line["model"], line["temperature"]) == ("base", 1.2)


async def test_a_client_that_leaves_frees_its_place(folder: Path) -> None:
    with serving(folder, max_batch=1, max_waiting=2) as url:
        headers = {"Authorization": f"Bearer {KEY}"}
        long = CHAT | {"max_tokens": 200, "ignore_eos": True}
        async with aiohttp.ClientSession(url, headers=headers) as session:
            posts = [asyncio.create_task(session.post("/v1/chat/completions", json=long)) for _ in range(12)]
            await asyncio.sleep(0.15)
            refused = [task.result().status for task in posts if task.done()]
            assert refused and set(refused) == {503}
            for task in posts:
                task.cancel()
            await asyncio.gather(*posts, return_exceptions=True)
            await asyncio.sleep(0.5)  # The engine notices within 0.2 s.
            async with session.get("/metrics") as answer:
                metrics = await answer.text()
            assert "leyden_engine_requests_running 0.0" in metrics
            async with session.post("/v1/chat/completions", json=CHAT) as answer:
                assert answer.status == 200


def test_a_length_that_the_model_was_not_made_for(folder: Path) -> None:
    with pytest.raises(ModelUnusable, match="MAX_MODEL_LEN"), serving(folder, max_model_len=257):
        pass
