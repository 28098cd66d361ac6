"""The doorbell: Celery messages that tell a worker to look at an episode. Never the record (DESIGN section 3, step 2).

A ring that is lost, late or doubled harms nothing: the ledger decides who runs what, and the dispatcher rings again
for what nobody has claimed. All that Leyden knows of Celery is in this file.
"""

import contextlib
import json
import os
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker import state
from redis import Redis

QUEUE = "leyden"
TASK = "leyden.ring"
"""Its arguments are (run, episode)."""
LONGEST_QUEUE = 50_000
"""Older rings are dropped: while no worker listens, the dispatcher rings for the same episodes again and again."""
_AT_ONCE = 1000


def make_celery(redis_url: str) -> Celery:
    """Return the Celery application that dispatcher and workers share: JSON only, nothing is kept of a result."""
    app = Celery("leyden", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 3, "socket_keepalive": True},
        # Nobody may steer a worker through Redis, and no worker has to listen for it.
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
    )
    return app


def ring(app: Celery, pairs: Sequence[tuple[str, str]], longest: int = LONGEST_QUEUE) -> None:
    """Publish a message for each (run, episode); of the whole queue the newest `longest` are kept.

    Raises redis.RedisError within seconds if Redis is away.
    """
    client = _client(app.conf.broker_url)
    for start in range(0, len(pairs), _AT_ONCE):
        client.lpush(QUEUE, *_messages(pairs[start : start + _AT_ONCE]))
    client.ltrim(QUEUE, 0, longest - 1)


def waiting(app: Celery) -> int:
    """Return how many rings no worker has taken yet. Raises redis.RedisError within seconds if Redis is away."""
    return int(_client(app.conf.broker_url).llen(QUEUE))


@cache
def _client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)


def _messages(pairs: Sequence[tuple[str, str]]) -> Iterator[bytes]:
    """Yield a message for each (run, episode): what Celery itself would write, with the ids filled in."""
    random = os.urandom(16 * len(pairs)).hex()
    envelope, body = _template()
    for start, (run, episode) in zip(range(0, len(random), 32), pairs, strict=True):
        one = random[start : start + 32]
        number = f"{one[:8]}-{one[8:12]}-4{one[13:16]}-a{one[17:20]}-{one[20:]}".encode()
        arguments = b64encode(body % (quoted(run).encode(), quoted(episode).encode()))
        yield envelope % (arguments, number, number, number, number)


@cache
def _template() -> tuple[bytes, bytes]:
    """Return the message, with places for body and four times the id, and the body, with places for run and episode."""
    # Celery's message protocol 2 as kombu keeps it in a Redis list. Celery's own `delay()` writes the same, many times
    # slower; a test compares the two.
    body: list[Any] = [["RUN", "EPISODE"], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    number = "NUMBER"
    message = {
        "body": "BODY",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {**_HEADERS, "id": number, "root_id": number},
        "properties": {
            "correlation_id": number,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": QUEUE},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": number,
        },
    }
    envelope = json.dumps(message).replace('"BODY"', '"%b"').replace('"NUMBER"', '"%b"')
    return envelope.encode(), json.dumps(body).replace('"RUN"', "%b").replace('"EPISODE"', "%b").encode()


_HEADERS: dict[str, Any] = {
    "lang": "py",
    "task": TASK,
    "shadow": None,
    "eta": None,
    "expires": None,
    "group": None,
    "group_index": None,
    "retries": 0,
    "timelimit": [None, None],
    "parent_id": None,
    "argsrepr": "",
    "kwargsrepr": "{}",
    "origin": "leyden",
    "ignore_result": True,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}


class Listener:
    """A Celery worker in a thread, which takes at most `concurrency` rings at a time and leaves the rest to others.

    A message is acknowledged when its task starts (Celery's default), not when it ends: one that is lost with its
    worker is rung again as soon as the lease has run out. Unacknowledged it would come back as well, but only after
    Celery's visibility timeout, an hour later. One process can have one listener: Celery's state is global.
    """

    def __init__(self, app: Celery, concurrency: int, answer: Callable[[str, str], None]) -> None:
        """`answer` is called with (run, episode) in one of `concurrency` threads, and may block there."""
        self._free = concurrency
        self._lock = threading.Lock()
        self._wakeup, self._alarm = os.pipe()
        for descriptor in (self._wakeup, self._alarm):
            os.set_blocking(descriptor, False)
        self._thread = threading.Thread(target=self._listen, name="doorbell", daemon=True)
        self._app = app
        self._concurrency = concurrency
        app.task(name=TASK, ignore_result=True)(answer)

    @property
    def alive(self) -> bool:
        """Whether it listens; it ends only when told to, or by a fault."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to listen. While Redis is away, it waits for it."""
        signals.task_received.connect(self._take)
        signals.task_postrun.connect(self._leave)
        self._app.steps["consumer"].add(_gate(self))
        state.should_stop = None
        self._thread.start()

    def close(self) -> None:
        """Take no more rings. Returns at once; `join` waits until the last `answer` has returned."""
        state.should_stop = 0  # type: ignore[assignment]
        self._wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; say whether it came."""
        self._thread.join(timeout_s)
        return not self.alive

    def _listen(self) -> None:
        worker = self._app.WorkController(
            pool="threads",
            concurrency=self._concurrency,
            queues=[QUEUE],
            loglevel="WARNING",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        worker.start()

    def _take(self, **_: Any) -> None:
        with self._lock:
            self._free -= 1

    def _leave(self, **_: Any) -> None:
        with self._lock:
            self._free += 1
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._alarm, b".")

    def _watch(self, consumer: Any) -> None:
        # Celery's own bound (prefetch) counts only messages that no thread has begun: a busy worker would hold as
        # many again as it runs, away from an idle one. Its `worker_disable_prefetch` counts right, but nothing wakes
        # its loop when a thread is free again, for up to a second.
        quality = consumer.task_consumer.channel.qos
        within_prefetch = quality.can_consume
        quality.can_consume = lambda: self._free > 0 and within_prefetch()
        consumer.hub.add_reader(self._wakeup, self._drain)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 65536)


def _gate(listener: Listener) -> type:
    class Gate(bootsteps.StartStopStep):
        """Started anew with each connection to the broker."""

        requires = ("celery.worker.consumer.tasks:Tasks",)

        def start(self, parent: Any) -> None:
            listener._watch(parent)

    return Gate
