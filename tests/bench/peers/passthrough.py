"""A bare aiohttp proxy: what forwarding alone costs. `python passthrough.py PORT UPSTREAM`."""

import sys

import aiohttp
import uvloop
from aiohttp import web


async def forward(request: web.Request) -> web.Response:
    """Forward one request."""
    headers = {"Content-Type": "application/json"}
    url = request.app["upstream"] + request.path
    async with request.app["session"].post(url, data=await request.read(), headers=headers) as response:
        return web.Response(body=await response.read(), content_type="application/json", status=response.status)


async def healthy(_: web.Request) -> web.Response:
    """Say that it serves."""
    return web.Response()


async def application() -> web.Application:
    """Return the proxy."""
    app = web.Application(client_max_size=2**24)
    app["upstream"] = sys.argv[2]
    app["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    app.router.add_post("/{path:.*}", forward)
    app.router.add_get("/healthz", healthy)
    return app


if __name__ == "__main__":
    uvloop.install()
    web.run_app(application(), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
