"""An agent that does what its task says, step by step, and a grader that is content with it.

A task's input is a list of steps: `{"call": 2}` calls the model twice, with a client's patience; `{"tell": FILE}`
appends `EPISODE ATTEMPT` to a file; `{"await": FILE}` waits until it is there; `{"sleep": S}`; `{"call_once": FILE}`
writes down the status of one call; `{"die": 1}` kills the agent's process; `{"hang": 1}` ignores SIGTERM and waits.
"""

import http.client
import json
import os
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE_S = 20
AWAY = (429, 500, 502, 503)
BODY = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "go on"}]})


def play(steps):
    for step in steps:
        for name, value in step.items():
            STEPS[name](value)
    return "done"


def content(task, output):
    return 1.0


def _call(times):
    for _ in range(times):
        until = time.monotonic() + PATIENCE_S
        while (status := _post()) != 200:
            if status not in (0, *AWAY) or time.monotonic() > until:
                raise RuntimeError(f"the gateway answered {status}")
            time.sleep(0.2)


def _post():
    """Return the status of one chat completion, 0 if there was no answer."""
    base = urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(base.hostname or "", base.port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"{base.path}/chat/completions", BODY, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _tell(file):
    marks = dict(mark.split("=", 1) for mark in os.environ["OTEL_RESOURCE_ATTRIBUTES"].split(","))
    with Path(file).open("a") as output:
        output.write(f"{marks['leyden.episode']} {marks['leyden.attempt']}\n")


def _await(file):
    while not Path(file).exists():
        time.sleep(0.05)


def _call_once(file):
    status = _post()
    with Path(file).open("a") as output:
        output.write(f"{status}\n")


def _die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


STEPS = {
    "call": _call,
    "tell": _tell,
    "await": _await,
    "sleep": time.sleep,
    "call_once": _call_once,
    "die": _die,
    "hang": _hang,
}
