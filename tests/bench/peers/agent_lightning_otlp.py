"""Agent Lightning 0.3.0 under load L2: spans over OTLP into its memory. Prints one JSON object; runs in `.venv-peers`.

Usage: `python agent_lightning_otlp.py SPANS SPANS_A_REQUEST AT_ONCE PORT`. One rollout a request, started beforehand.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS, A_REQUEST, AT_ONCE, PORT = (int(value) for value in sys.argv[1:5])
URL = f"http://127.0.0.1:{PORT}"


def body(rollout: str, attempt: str) -> bytes:
    """Return a request of `A_REQUEST` spans with lists of 200 and 50 ids and two texts."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for key, value in (("agentlightning.rollout_id", rollout), ("agentlightning.attempt_id", attempt)):
        group.resource.attributes.add(key=key).value.string_value = value
    scope, now = group.scope_spans.add(), time.time_ns()
    for _ in range(A_REQUEST):
        span = scope.spans.add(name="openai.chat.completion", trace_id=os.urandom(16), span_id=os.urandom(8))
        span.start_time_unix_nano, span.end_time_unix_nano = now, now + 1000
        for key, ids in (("prompt_token_ids", range(1000, 1200)), ("response_token_ids", range(50))):
            values = span.attributes.add(key=key).value.array_value.values
            for one in ids:
                values.add().int_value = one
        texts = {"gen_ai.prompt.0.content": "turn " * 100, "gen_ai.completion.0.content": "hello " * 50}
        for key, value in texts.items():
            span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def cpu_s(server: psutil.Process) -> float:
    """Return the CPU seconds of the server and its children."""
    used = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return sum(one.user + one.system for one in used)


async def up(session: aiohttp.ClientSession) -> None:
    """Wait for the server."""
    for _ in range(600):
        try:
            async with session.get(f"{URL}/v1/agl/health"):
                return
        except aiohttp.ClientError:
            await asyncio.sleep(0.1)
    raise SystemExit("the store did not come up")


async def main() -> None:
    """Measure and print."""
    tool = Path(sys.executable).with_name("agl")
    command = [str(tool), "store", "--host", "127.0.0.1", "--port", str(PORT), "--log-level", "ERROR"]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession() as session:
            await up(session)
            print(json.dumps({"spans_per_cpu_s": await measure(session, psutil.Process(server.pid))}))
    finally:
        server.terminate()
        server.wait()


async def measure(session: aiohttp.ClientSession, server: psutil.Process) -> float:
    """Return the spans a CPU second of the server."""
    waiting = []
    for number in range(SPANS // A_REQUEST):
        async with session.post(f"{URL}/v1/agl/rollouts", json={"input": f"t{number}", "mode": "train"}) as answer:
            made = await answer.json()
        waiting.append(body(made["rollout_id"], made["attempt"]["attempt_id"]))
    count, before = len(waiting) * A_REQUEST, cpu_s(server)

    async def one_sender() -> None:
        while waiting:
            headers = {"Content-Type": "application/x-protobuf"}
            async with session.post(f"{URL}/v1/traces", data=waiting.pop(), headers=headers) as answer:
                if answer.status != 200:
                    raise SystemExit(f"it answered {answer.status}: {(await answer.read())[:200]!r}")
                await answer.read()

    await asyncio.gather(*(one_sender() for _ in range(AT_ONCE)))
    return count / (cpu_s(server) - before)


asyncio.run(main())
