"""An HTTP proxy before a real S3 server that answers 503, or does what was asked and drops the reply."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web

from support.servers import find_port, wait_for

SLOW_DOWN = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
_OWN_TO_A_HOP = frozenset({"transfer-encoding", "connection", "content-encoding", "content-length"})


class TroubledS3:
    """Serves in a thread of its own. `refuse` and `drop` are the shares of requests that end so, 0 to 1."""

    def __init__(self, target: str, seed: int) -> None:
        self.port = find_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.refuse = 0.0
        self.drop = 0.0
        self.did: Counter[str] = Counter()
        self._target = target
        self._session: aiohttp.ClientSession
        self._dice = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def start(self) -> None:
        """Start, and wait until it listens."""
        self._thread.start()
        wait_for(self._started.is_set, 60, "the S3 proxy")

    def stop(self) -> None:
        """Stop."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        # The Host header is signed: it goes through as it came, and so does every other.
        async with aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=("User-Agent",)) as session:
            app = web.Application(client_max_size=2**30)
            self._session = session
            app.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._started.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body, luck = await request.read(), self._dice.random()
        if luck < self.refuse:
            self.did["refused"] += 1
            return web.Response(status=503, text=SLOW_DOWN, content_type="application/xml")
        url = self._target + request.raw_path
        async with self._session.request(request.method, url, headers=request.headers, data=body) as answer:
            content = await answer.read()
        if luck < self.refuse + self.drop:
            self.did[f"dropped {request.method}"] += 1
            if request.transport is not None:
                request.transport.abort()
        self.did["passed"] += 1
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN_TO_A_HOP}
        if request.method == "HEAD":
            headers["Content-Length"] = answer.headers.get("Content-Length", "0")
        return web.Response(status=answer.status, body=content, headers=headers)


@contextmanager
def troubled_s3(target: str, seed: int = 0) -> Iterator[TroubledS3]:
    """Run a proxy before the S3 server at `target` (`http://host:port`) for the length of the block."""
    proxy = TroubledS3(target, seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
