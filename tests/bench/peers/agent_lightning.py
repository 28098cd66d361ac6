"""Agent Lightning 0.3.0 under the same load: N episodes of 5 LLM spans (200 + 50 token ids) and a reward each.

Its store server, K runners and a driver that turns traces into triplets. Prints one JSON object. Runs in `.venv-peers`.
Usage: `python agent_lightning.py EPISODES RUNNERS PORT`.
"""

import asyncio
import json
import logging
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import psutil

EPISODES, RUNNERS, PORT = (int(value) for value in sys.argv[1:4])
URL = f"http://127.0.0.1:{PORT}"
PROMPT, RESPONSE = list(range(1000, 1200)), list(range(50))


def cpu(pid: int) -> float:
    """Return the CPU seconds of one process."""
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def runner(number: int, stop) -> None:
    """Run episodes until `stop` is set."""
    logging.disable(logging.INFO)
    import agentlightning as agl
    from agentlightning.tracer.otel import OtelTracer
    from agentlightning.utils.otel import get_tracer

    @agl.rollout
    async def agent(task, llm: agl.LLM):
        for turn in range(5):
            with get_tracer().start_as_current_span("openai.chat.completion") as span:
                span.set_attributes(
                    {
                        "prompt_token_ids": PROMPT,
                        "response_token_ids": RESPONSE,
                        "gen_ai.response.id": f"r{turn}",
                        "gen_ai.prompt.0.content": f"turn {turn} " * 100,
                        "gen_ai.completion.0.content": "hello " * 50,
                    }
                )
        return 1.0

    async def work() -> None:
        store = agl.LightningStoreClient(URL)
        tracer = OtelTracer()
        tracer.init()
        tracer.init_worker(number, store)
        one = agl.LitAgentRunner(tracer=tracer, poll_interval=0.1, interval_jitter=0, heartbeat_interval=10)
        one.init(agent)
        one.init_worker(number, store)
        await one.iter(event=stop)

    asyncio.run(work())


async def drive(store, count: int) -> float:
    """Run `count` episodes to triplets; return the seconds it took."""
    from agentlightning.adapter import TracerTraceToTriplet
    from agentlightning.types import EnqueueRolloutRequest

    adapter = TracerTraceToTriplet()
    started = time.perf_counter()
    requests = [EnqueueRolloutRequest(input=f"t{n}", mode="train") for n in range(count)]
    pending = {rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)}
    while pending:
        for rollout in await store.wait_for_rollouts(rollout_ids=list(pending), timeout=0.0):
            triplets = adapter.adapt(list(await store.query_spans(rollout.rollout_id, attempt_id="latest")))
            assert rollout.status == "succeeded" and len(triplets) == 5, (rollout.status, len(triplets))
            pending.discard(rollout.rollout_id)
        if pending:
            await asyncio.sleep(0.2)
    return time.perf_counter() - started


async def measure(server: int, runners: list) -> None:
    """Warm up, then measure."""
    import agentlightning as agl

    store = agl.LightningStoreClient(URL)
    await store.add_resources({"llm": agl.LLM(endpoint="http://unused/v1", model="free")})
    for process in runners:
        process.start()
    await drive(store, RUNNERS * 2)
    pids = [server, *(process.pid for process in runners)]
    before = sum(map(cpu, pids)) + time.process_time()
    seconds = await drive(store, EPISODES)
    used = sum(map(cpu, pids)) + time.process_time() - before
    print(json.dumps({"episodes_per_s": EPISODES / seconds, "cpu_ms_per_episode": used / EPISODES * 1000}))
    await store.close()


def main() -> None:
    """Start the server and the runners, measure, stop them."""
    multiprocessing.set_start_method("spawn")
    command = [str(Path(sys.executable).with_name("agl")), "store", "--host", "127.0.0.1", "--port", str(PORT)]
    server = subprocess.Popen(
        [*command, "--log-level", "WARNING"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stop = multiprocessing.Event()
    runners = [multiprocessing.Process(target=runner, args=(number, stop)) for number in range(RUNNERS)]
    try:
        import httpx

        for _ in range(300):
            try:
                httpx.get(f"{URL}/v1/agl/health").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        asyncio.run(measure(server.pid, runners))
    finally:
        stop.set()
        for process in runners:
            process.join(8)
            if process.is_alive():
                process.terminate()
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
