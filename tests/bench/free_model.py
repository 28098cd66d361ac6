"""A model that costs nothing: a raw HTTP server that gives every chat completion the same reply, vLLM style.

200 prompt ids, 50 response ids with logprobs. Usage: `python free_model.py PORT [SECONDS]`, to think first.
"""

import asyncio
import itertools
import json
import sys

PROMPT, RESPONSE = 200, 50
THINK_S = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
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


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
            if length:
                await reader.readexactly(length)
            body = reply() if lines[0].startswith(b"post") else MODELS
            await asyncio.sleep(THINK_S if body is not MODELS else 0)
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
