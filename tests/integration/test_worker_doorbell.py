"""The doorbell on a real Redis: our messages are Celery's, and a Redis that is away is told at once."""

import base64
import json
import socket
import time
import uuid

import pytest
import redis

from leyden_runtime.doorbell import QUEUE, TASK, make_celery, ring


def _without(message: dict, *names: str) -> dict:
    return {key: value for key, value in message.items() if key not in names}


def test_a_ring_is_the_message_that_celery_itself_would_send(redis_url: str) -> None:
    app = make_celery(redis_url)
    client = redis.Redis.from_url(redis_url)
    app.send_task(TASK, args=("run", "episode"), ignore_result=True)
    theirs = json.loads(client.lpop(QUEUE))
    ring(app, [("run", "episode")])
    ours = json.loads(client.lpop(QUEUE))
    changing = ("id", "root_id", "origin", "argsrepr")
    assert _without(ours["headers"], *changing) == _without(theirs["headers"], *changing)
    tags = ("correlation_id", "reply_to", "delivery_tag")
    assert _without(ours["properties"], *tags) == _without(theirs["properties"], *tags)
    assert _without(ours, "headers", "properties") == _without(theirs, "headers", "properties")
    assert ours["headers"]["id"] == ours["properties"]["correlation_id"]
    assert uuid.UUID(ours["headers"]["id"]).version == 4


def test_rings_are_heard_in_their_order_and_never_pile_up_without_end(redis_url: str) -> None:
    app = make_celery(redis_url)
    client = redis.Redis.from_url(redis_url)
    ring(app, [("run", f"e{number}") for number in range(2500)], longest=3000)
    assert client.llen(QUEUE) == 2500
    ring(app, [("run", f"f{number}") for number in range(1000)], longest=3000)
    assert client.llen(QUEUE) == 3000
    # The next to be heard: the oldest 500 have gone.
    assert json.loads(_body(client.lindex(QUEUE, -1)))[0] == ["run", "e500"]


def _body(message: bytes) -> str:
    return base64.b64decode(json.loads(message)["body"]).decode()


def test_every_ring_has_an_id_of_its_own_and_any_name_arrives_unchanged(redis_url: str) -> None:
    pairs = [(f"run {number}", 'e"%b\\ü') for number in range(1500)]
    ring(make_celery(redis_url), pairs)
    messages = redis.Redis.from_url(redis_url).lrange(QUEUE, 0, -1)
    assert len({json.loads(message)["headers"]["id"] for message in messages}) == 1500
    assert [tuple(json.loads(_body(message))[0]) for message in reversed(messages)] == pairs


def test_ringing_for_nobody_does_nothing(redis_url: str) -> None:
    ring(make_celery(redis_url), [])
    assert redis.Redis.from_url(redis_url).llen(QUEUE) == 0


def test_many_rings_are_cheap(redis_url: str) -> None:
    app = make_celery(redis_url)
    ring(app, [("run", "first")])
    begun = time.process_time()
    ring(app, [("run", f"e{number}") for number in range(5000)])
    assert time.process_time() - begun < 5000 / 5000  # Celery's own delay(): 1,600 a second


def test_a_redis_that_is_gone_is_told_at_once(free_port: int) -> None:
    begun = time.monotonic()
    with pytest.raises(redis.RedisError):
        ring(make_celery(f"redis://127.0.0.1:{free_port}/0"), [("run", "episode")])
    assert time.monotonic() - begun < 3


def test_a_redis_that_does_not_answer_is_told_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(redis.RedisError):
            ring(make_celery(f"redis://127.0.0.1:{silent.getsockname()[1]}/0"), [("run", "episode")])
        assert time.monotonic() - begun < 30
