"""Agents and graders that the worker's tests run: good ones, and each way to be bad."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PRELUDE = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def echo(value):
    return value


async def echo_async(value):
    await asyncio.sleep(0.01)
    return value


def dump_environment(value):
    return {"own": dict(os.environ), "parent": Path(f"/proc/{os.getppid()}/environ").read_text(errors="replace")}


def where(value):
    """Open descriptors, stdin, session."""
    time.sleep(value)
    descriptors = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            descriptors[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return {"open": descriptors, "stdin": sys.stdin.read(), "leader": os.getsid(0) == os.getpid()}


def raises(value):
    return deeper(value)


def deeper(value):
    raise KeyError(f"no such tool: {value}")


class APIConnectionError(Exception):
    pass


class APITimeoutError(APIConnectionError):
    pass


def gateway_away(value):
    raise APITimeoutError("Connection error.")


def gateway_away_wrapped(value):
    try:
        gateway_away(value)
    except APIConnectionError as error:
        raise RuntimeError("the model did not answer") from error


def exits(value):
    sys.exit(value)


def exits_at_once(value):
    os._exit(value)


def killed(value):
    os.kill(os.getpid(), signal.SIGKILL)


def not_json(value):
    return {1, 2}


def sleeps(value):
    print("about to sleep")
    time.sleep(value)


def sleeps_noting_pid(value):
    note, seconds = value
    Path(note).write_text(str(os.getpid()))
    time.sleep(seconds)
    return "awake"


def hangs_with_a_family(value):
    """Ignore SIGTERM, and so does each kind of descendant: same group, own session, and daemon."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note = f"open({value!r}, 'a').write(f'{{os.getpid()}}\\n'); "
    sleeping = PRELUDE + note + "time.sleep(1000)"
    daemon = PRELUDE + "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); " + note + "time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", sleeping])
    subprocess.Popen([sys.executable, "-c", sleeping], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", daemon], start_new_session=True)
    with Path(value).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(1000)


def leaves_a_daemon(value):
    """Return while a daemon runs on."""
    code = PRELUDE + f"os.fork() and os._exit(0); os.setsid(); open({value!r}, 'w').write(f'{{os.getpid()}}\\n'); "
    subprocess.run([sys.executable, "-c", code + "time.sleep(1000)"], check=True)
    while not Path(value).exists() or not Path(value).read_text():
        time.sleep(0.01)
    return "done"


def chatters(value):
    for number in range(value):
        print(f"line {number} " + "x" * 100)
    return "done"


def huge(value):
    return "x" * value


def takes_memory(value):
    return len(bytearray(value))


def records_spans(value):
    """Stand-in for an instrumented agent: a tracer provider that writes its spans when it is flushed."""
    from opentelemetry import trace

    class Provider(trace.ProxyTracerProvider):
        def force_flush(self, timeout_millis):
            if value["hang"]:
                time.sleep(1000)
            Path(value["file"]).write_text(f"flushed {timeout_millis}")

    trace.set_tracer_provider(Provider())
    return "done"


def one(task, output):
    return 1


def exact(task, output):
    return {"right": float(output == task["expected"]), "short": 0.5}


async def exact_async(task, output):
    return float(output == task["expected"])


def nan(task, output):
    return float("nan")


def grader_raises(task, output):
    raise ZeroDivisionError("no words")


def grader_hangs(task, output):
    time.sleep(1000)


def grader_dump_environment(task, output):
    Path(output).write_text("\n".join(f"{name}={value}" for name, value in os.environ.items()))
    return 1
