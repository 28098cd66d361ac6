"""Children of a warm parent: what they may see, how each kind of end is told, and that nothing of them stays."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from leyden_worker.parent_link import End
from leyden_worker.warm_pool import WarmPool


async def call(pool: WarmPool, function: str, value: Any = None, timeout_s: float = 20, **more: Any) -> End:
    async with pool.borrow("run", "agent", f"odd_agents:{function}") as parent:
        return await parent.call([value], timeout_s, **more)


def running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def until(condition: Any, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("function", ["echo", "echo_async"])
async def test_returns_what_the_function_returns(pool: WarmPool, function: str) -> None:
    value = {"question": "what is 2 + 2? ∑", "numbers": [1, 2.5, None]}
    assert await call(pool, function, value) == End("exited", 0, "", {"value": value})


async def test_many_at_once_keep_their_answers_apart(pool: WarmPool) -> None:
    ends = await asyncio.gather(*(call(pool, "echo", number) for number in range(64)))
    assert [end.report for end in ends] == [{"value": number} for number in range(64)]


async def test_an_attempts_environment_is_its_own(pool: WarmPool) -> None:
    first, second = await asyncio.gather(
        call(pool, "dump_environment", env={"OPENAI_API_KEY": "first"}),
        call(pool, "dump_environment", env={"OPENAI_API_KEY": "second"}),
    )
    assert first.report and second.report
    assert first.report["value"]["own"]["OPENAI_API_KEY"] == "first"
    assert second.report["value"]["own"]["OPENAI_API_KEY"] == "second"
    assert first.report["value"]["own"]["SEARCH_KEY"] == "mine"


async def test_no_setting_of_leyden_reaches_the_agent(pool: WarmPool, signing_key: str) -> None:
    end = await call(pool, "dump_environment")
    assert end.report is not None
    assert not [name for name in end.report["value"]["own"] if name.startswith("LEYDEN_")]
    assert signing_key not in str(end.report)


async def test_a_child_has_no_descriptor_of_its_siblings(pool: WarmPool) -> None:
    others = [asyncio.create_task(call(pool, "where", 20)) for _ in range(3)]
    await asyncio.sleep(0.3)
    end = await call(pool, "where", 0)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert end.report is not None
    seen = end.report["value"]
    pipes = [fd for fd, target in seen["open"].items() if target.startswith("pipe:")]
    assert sorted(pipes) == ["1", "2"]
    assert len([fd for fd, target in seen["open"].items() if "memfd" in target]) == 1
    assert not [fd for fd, target in seen["open"].items() if "eventpoll" in target]
    assert seen["stdin"] == ""
    assert seen["leader"]


async def test_children_draw_different_numbers(pool: WarmPool) -> None:
    async with pool.borrow("run", "agent", "numpy_agents:draw") as parent:
        ends = [await parent.call([None], 20) for _ in range(2)]
    first, second = (end.report["value"] for end in ends if end.report)
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize(
    ("function", "value", "how", "code"),
    [("exits_at_once", 3, "exited", 3), ("killed", None, "signalled", 9)],
)
async def test_death_without_a_report_is_told(pool: WarmPool, function: str, value: Any, how: str, code: int) -> None:
    end = await call(pool, function, value)
    assert (end.how, end.code, end.report) == (how, code, None)


async def test_an_exception_is_told_with_its_traceback_and_without_our_frames(pool: WarmPool) -> None:
    end = await call(pool, "raises", "calc")
    assert end.report is not None
    error = end.report["error"]
    assert error["types"][:3] == ["KeyError", "LookupError", "Exception"]
    assert "no such tool: calc" in error["message"]
    assert "in deeper" in error["message"]
    assert "leyden_" not in error["message"]


async def test_exit_is_told_as_such(pool: WarmPool) -> None:
    end = await call(pool, "exits", 3)
    assert end.report is not None
    assert end.report["error"]["message"] == "it called exit(3) instead of returning an output"


async def test_an_output_that_is_not_json_is_told(pool: WarmPool) -> None:
    end = await call(pool, "not_json")
    assert end.report is not None
    assert "JSON cannot hold" in end.report["error"]["message"]


async def test_at_the_deadline_the_whole_family_is_gone(pool: WarmPool, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    begun = time.monotonic()
    end = await call(pool, "hangs_with_a_family", str(note), timeout_s=2)
    assert end.how == "timeout"
    assert 2 <= time.monotonic() - begun < 4
    pids = noted(note)
    assert len(pids) == 4, "the family did not get going in time"
    await until(lambda: not running(pids), 2)


async def test_what_an_agent_leaves_running_is_killed_when_it_returns(pool: WarmPool, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    end = await call(pool, "leaves_a_daemon", str(note))
    assert end.report == {"value": "done"}
    await until(lambda: not running(noted(note)), 2)


async def test_another_attempts_daemon_is_left_alone(pool: WarmPool, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    family = asyncio.create_task(call(pool, "hangs_with_a_family", str(note), timeout_s=60))
    await until(lambda: len(noted(note)) == 4, 10)
    await call(pool, "echo")
    assert len(running(noted(note))) == 4
    family.cancel()
    await asyncio.gather(family, return_exceptions=True)
    await until(lambda: not running(noted(note)), 2)


async def test_cancelling_the_call_kills_the_child_first(pool: WarmPool, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    sleeping = asyncio.create_task(call(pool, "sleeps_noting_pid", [str(note), 1000], timeout_s=2000))
    await until(lambda: noted(note))
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert not running(noted(note))


async def test_the_end_of_what_was_printed_is_kept(pool: WarmPool) -> None:
    end = await call(pool, "chatters", 20_000)
    assert end.report == {"value": "done"}
    assert "line 19999 " in end.printed
    assert len(end.printed) <= 8192
    late = await call(pool, "sleeps", 100, timeout_s=0.3)
    assert (late.how, late.printed) == ("timeout", "about to sleep\n")


async def test_a_large_output_arrives_whole_and_a_huge_one_is_refused(pool: WarmPool) -> None:
    end = await call(pool, "huge", 3_000_000)
    assert end.report == {"value": "x" * 3_000_000}
    refused = await call(pool, "huge", 3_000_000, max_report_bytes=1_000_000)
    assert refused.report is not None
    assert "LEYDEN_WORKER_MAX_OUTPUT_BYTES" in refused.report["error"]["message"]


async def test_a_large_input_arrives_whole(pool: WarmPool) -> None:
    end = await call(pool, "echo", "y" * 3_000_000)
    assert end.report == {"value": "y" * 3_000_000}


async def test_memory_can_be_limited(pool: WarmPool) -> None:
    end = await call(pool, "takes_memory", 2**30, memory_bytes=2**29)
    assert end.report is not None
    assert "MemoryError" in end.report["error"]["types"]
    assert (await call(pool, "takes_memory", 2**30)).report == {"value": 2**30}


async def test_the_agents_own_spans_are_flushed_within_bounds(pool: WarmPool, tmp_path: Path) -> None:
    file = tmp_path / "spans"
    end = await call(pool, "records_spans", {"file": str(file), "hang": False})
    assert end.report == {"value": "done"}
    assert file.read_text() == "flushed 5000"
    begun = time.monotonic()
    hung = await call(pool, "records_spans", {"file": str(file), "hang": True}, timeout_s=60, flush_s=0.5)
    assert hung.report == {"value": "done"}
    assert 0.5 <= time.monotonic() - begun < 4


async def test_when_the_parent_is_killed_its_children_and_theirs_die_and_the_next_call_has_a_new_one(
    pool: WarmPool, tmp_path: Path
) -> None:
    note = tmp_path / "pids"
    async with pool.borrow("run", "agent", "odd_agents:sleeps_noting_pid") as parent:
        sleeping = asyncio.create_task(parent.call([[str(note), 1000]], 2000))
        await until(lambda: noted(note))
        os.kill(parent._process.pid, 9)
        assert await sleeping == End("lost")
        assert await parent.call([[str(note), 1000]], 2000) == End("lost")
    await until(lambda: not running(noted(note)), 2)
    assert (await call(pool, "sleeps_noting_pid", [str(note), 0])).report == {"value": "awake"}
