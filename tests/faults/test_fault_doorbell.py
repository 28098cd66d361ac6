"""The doorbell rings twice, out of order, late or not at all; dispatchers and reconcilers are several."""

import os
import random
import signal
import threading
import time

import redis

from leyden_runtime.doorbell import QUEUE
from support.faults import CALLS, Fleet, until
from support.proxy import proxy_to


def open_redis(fleet: Fleet) -> redis.Redis:
    return redis.Redis.from_url(fleet.deployment.redis_url)


def test_every_ring_comes_twice_and_out_of_order(fleet: Fleet) -> None:
    dice = random.Random(3)
    fleet.kill("worker")
    with open_redis(fleet) as client:
        client.delete(QUEUE)
        run = fleet.new_run([CALLS] * 40)
        until(lambda: client.llen(QUEUE) >= 40)
        rings = client.lrange(QUEUE, 0, -1)
        twice = dice.sample(rings * 2, len(rings) * 2)
        client.delete(QUEUE)
        client.rpush(QUEUE, *twice)
        fleet.start("worker", LEYDEN_WORKER_LEASE_S="20")
        assert fleet.outcome(run, 40) == {"succeeded": 40}
        # And all of them once more, long after the end.
        client.rpush(QUEUE, *twice)
        until(lambda: client.llen(QUEUE) == 0)
    assert fleet.outcome(run, 40) == {"succeeded": 40}
    assert {episode.attempt for episode in fleet.episodes(run)} == {1}


def test_lost_rings_ring_again(fleet: Fleet) -> None:
    os.kill(fleet.pid("worker"), signal.SIGSTOP)
    run = fleet.new_run([CALLS] * 10)
    with open_redis(fleet) as client:
        for _ in range(20):
            client.delete(QUEUE)
            time.sleep(0.05)
    os.kill(fleet.pid("worker"), signal.SIGCONT)
    assert fleet.outcome(run, 10) == {"succeeded": 10}


def test_two_dispatchers_and_two_reconcilers(fleet: Fleet) -> None:
    fleet.start(fleet.twin("task_api-2", "task_api"))
    fleet.start("worker", LEYDEN_WORKER_LEASE_S="20")
    run = fleet.new_run([CALLS] * 100)
    assert fleet.outcome(run, 100) == {"succeeded": 100}
    assert {episode.attempt for episode in fleet.episodes(run)} == {1}
    # A lost worker's episodes are expired by two, and each of them counts as one failure.
    fleet.start("worker")
    run = fleet.new_run([[{"call": 1}, {"sleep": 2}]] * 8, max_attempts=2)
    until(lambda: fleet.counts(run)["running"] == 8)
    fleet.lose_host("worker")
    fleet.start("worker", LEYDEN_WORKER_LEASE_S="20")
    assert fleet.outcome(run, 8) == {"succeeded": 8}
    assert {episode.attempt for episode in fleet.episodes(run)} == {2}


def test_the_consumers_connections_are_reset_again_and_again(fleet: Fleet) -> None:
    host, port = "127.0.0.1", fleet.deployment.ports["redis"]
    with proxy_to(host, port) as proxy:
        fleet.start("worker", LEYDEN_REDIS_URL=f"redis://{host}:{proxy.port}/0")
        stop = threading.Event()

        def cut() -> None:
            while not stop.wait(0.7):
                proxy.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            run = fleet.new_run([[{"call": 1}, {"sleep": 0.3}]] * 30, max_attempts=20)
            time.sleep(5)
        finally:
            stop.set()
            cutting.join()
        assert proxy.cuts > 10
        assert fleet.outcome(run, 30) == {"succeeded": 30}
        # It still listens, without being started anew.
        assert fleet.alive("worker")
        proxy.delay_s = 0.1
        assert fleet.outcome(fleet.new_run([CALLS] * 5), 5) == {"succeeded": 5}
