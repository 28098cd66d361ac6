"""A collector that only looks: it checks each call it is sent, and says how many there were. `python … PORT`."""

import json
import sys
from typing import Any

import uvloop
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from leyden_traces import decode_call

SEEN: dict[str, Any] = {"calls": 0, "wrong": 0, "tokens": 0, "first": {}}
"""`first`: policy version -> replica -> when its first call of that version ended, in nanoseconds since the epoch."""


async def traces(request: web.Request) -> web.Response:
    """Count the calls of a batch, and those whose ids and logprobs do not fit each other."""
    message = ExportTraceServiceRequest.FromString(await request.read())
    for span in (span for r in message.resource_spans for scope in r.scope_spans for span in scope.spans):
        call = decode_call(span)
        SEEN["calls"] += 1
        SEEN["tokens"] += len(call.response_token_ids) // 4
        SEEN["wrong"] += len(call.response_token_ids) != len(call.response_logprobs)
        ends = SEEN["first"].setdefault(str(call.policy_version), {})
        ends[call.replica] = min(ends.get(call.replica, span.end_time_unix_nano), span.end_time_unix_nano)
    return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf")


async def seen(_: web.Request) -> web.Response:
    """Tell."""
    return web.Response(text=json.dumps(SEEN))


def main() -> None:
    """Serve until killed."""
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/v1/traces", traces)
    app.router.add_get("/healthz", seen)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
