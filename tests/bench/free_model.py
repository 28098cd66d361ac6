"""A model that costs nothing: a raw HTTP server that gives every chat completion the same reply, vLLM style.

200 prompt ids, 50 response ids with logprobs. Usage: `python free_model.py PORT [CALLS GATE]`: with these, each call
adds a line to the file CALLS, and none is answered before the file GATE exists.
"""

import asyncio
import itertools
import json
import sys
from pathlib import Path

PROMPT, RESPONSE = 200, 50
HELD = [Path(name) for name in sys.argv[2:4]]
POLL_S = 0.02
_numbers = itertools.count()


def reply() -> bytes:
    """Return the next completion."""
    number = next(_numbers)
    content = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}] * RESPONSE
    body = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": "free",
        "prompt_token_ids": [(number * 7 + k) % 30000 for k in range(PROMPT)],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hello " * RESPONSE},
                "token_ids": [(number * 3 + k) % 30000 for k in range(RESPONSE)],
                "logprobs": {"content": content},
            }
        ],
        "usage": {"prompt_tokens": PROMPT, "completion_tokens": RESPONSE, "total_tokens": PROMPT + RESPONSE},
    }
    return json.dumps(body).encode()


MODELS = json.dumps({"object": "list", "data": [{"id": "free", "object": "model"}]}).encode()


async def hold(calls: Path, gate: Path) -> None:
    """Tell of a call, and wait until the gate is open."""
    with calls.open("a") as told:
        told.write("call\n")
    while not gate.exists():
        await asyncio.sleep(POLL_S)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
            if length:
                await reader.readexactly(length)
            asked = lines[0].startswith(b"post")
            if asked and HELD:
                await hold(*HELD)
            body = reply() if asked else MODELS
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve for ever."""
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
