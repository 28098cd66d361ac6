"""An agent with a slow tool: most uses take little, a few take many times as long (lognormal). It costs no CPU."""

import hashlib
import http.client
import json
import os
import random
import time
from typing import Any
from urllib.parse import urlsplit

SIGMA = 1.0
"""Of the logarithm: the mean is 1.6 medians, the longest of 32 uses about 8."""


def run(task: dict[str, Any]) -> str:
    """Ask, use the tool, ask again; return what was said last."""
    # The same task and number in its group: the same time, in every run.
    number = os.environ["OTEL_RESOURCE_ATTRIBUTES"].partition("leyden.episode=")[2].partition(",")[0].rpartition(".")[2]
    tool_s = task["median_s"] * random.Random(f"{task['number']}-{number}").lognormvariate(0, SIGMA)
    messages = [{"role": "user", "content": task["text"]}]
    messages.append({"role": "assistant", "content": _ask(messages)})
    time.sleep(tool_s)
    messages.append({"role": "user", "content": "The tool has answered."})
    return _ask(messages)


def _ask(messages: list[dict[str, str]]) -> str:
    base = urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(base.hostname or "", base.port)
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    asked = json.dumps({"model": "policy", "messages": messages})
    connection.request("POST", f"{base.path}/chat/completions", asked, headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(body.decode())
    return json.loads(body)["choices"][0]["message"]["content"]


def grade(task: dict[str, Any], output: str) -> float:
    """Reward by the output's digest: no two are the same, so that every group is trained on."""
    return hashlib.sha256(output.encode()).digest()[0] / 256
