"""A replica that costs nothing: one reply of 2,048 prompt ids and 256 tokens with logprobs, or a slow stream.

`python gateway_upstream.py PORT`. Streams send a token each `slow_s` seconds (a field of the request).
"""

import asyncio
import json
import random
import sys

import uvloop
from aiohttp import web

from leyden_runtime.open_files import allow_open_files

PROMPT, RESPONSE = 2048, 256
_random = random.Random(0)
PROMPT_IDS = [_random.randrange(150_000) for _ in range(PROMPT)]
IDS = [_random.randrange(150_000) for _ in range(RESPONSE)]
LOGPROBS = [
    {"token": f"t{id}", "logprob": round(-2 * _random.random(), 7), "bytes": [116], "top_logprobs": []} for id in IDS
]
REPLY = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "prompt_token_ids": PROMPT_IDS,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "word " * RESPONSE},
                "token_ids": IDS,
                "logprobs": {"content": LOGPROBS},
            }
        ],
        "usage": {"prompt_tokens": PROMPT, "completion_tokens": RESPONSE, "total_tokens": PROMPT + RESPONSE},
    }
).encode()


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer."""
    ask = await request.json()
    if not ask.get("stream"):
        return web.Response(body=REPLY, content_type="application/json")
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for event in _events(int(ask.get("max_tokens") or 20)):
        await answer.write(event)
        await asyncio.sleep(float(ask.get("slow_s") or 0))
    await answer.write(b"data: [DONE]\n\n")
    return answer


def _events(tokens: int) -> list[bytes]:
    base = {"id": "chatcmpl-stream", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    events = [{**base, "choices": [role], "prompt_token_ids": PROMPT_IDS}]
    for number in range(tokens):
        last = {"finish_reason": "stop" if number == tokens - 1 else None}
        token = {"token_ids": [IDS[number]], "logprobs": {"content": [LOGPROBS[number]]}}
        events.append({**base, "choices": [{"index": 0, "delta": {"content": "word "}, **token, **last}]})
    usage = {"prompt_tokens": PROMPT, "completion_tokens": tokens, "total_tokens": PROMPT + tokens}
    events.append({**base, "choices": [], "usage": usage})
    return [b"data: %b\n\n" % json.dumps(event).encode() for event in events]


async def healthy(_: web.Request) -> web.Response:
    """Say that it serves."""
    return web.Response()


def main() -> None:
    """Serve until killed."""
    allow_open_files(20_000)
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/healthz", healthy)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
