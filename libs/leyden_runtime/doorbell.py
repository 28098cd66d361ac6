"""The doorbell: Celery messages that tell a worker to look at an episode. Never the record (DESIGN section 3, step 2).

A ring that is lost, late or doubled harms nothing: the ledger decides who runs what, and the dispatcher rings again
for what nobody has claimed.
"""

import base64
import json
import uuid
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from celery import Celery
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


def ring(app: Celery, pairs: Sequence[tuple[str, str]]) -> None:
    """Publish a message for each (run, episode). Raises redis.RedisError within seconds if Redis is away."""
    client = _client(app.conf.broker_url)
    messages = [_message(run, episode) for run, episode in pairs]
    for part in _parts(messages):
        client.lpush(QUEUE, *part)
    client.ltrim(QUEUE, 0, LONGEST_QUEUE - 1)


def _parts(messages: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(messages), _AT_ONCE):
        yield messages[start : start + _AT_ONCE]


@cache
def _client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)


def _message(run: str, episode: str) -> str:
    # Celery's message protocol 2 as kombu keeps it in a Redis list. Celery's own `delay()` writes the same, 20 times
    # slower; a test compares the two.
    number = str(uuid.uuid4())
    body: list[Any] = [[run, episode], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    message = {
        "body": base64.b64encode(json.dumps(body).encode()).decode(),
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
    return json.dumps(message)


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
