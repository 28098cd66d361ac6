"""The benchmark's agent: five calls with the cheapest client there is, so that the figure is the platform's."""

import http.client
import json
import os
from urllib.parse import urlsplit

CALLS = 5


def run(task: str) -> str:
    """Make five chat completions."""
    base = urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(base.hostname or "", base.port)
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    for turn in range(CALLS):
        message = {"role": "user", "content": f"{task} turn {turn} " * 50}
        connection.request(
            "POST", f"{base.path}/chat/completions", json.dumps({"model": "policy", "messages": [message]}), headers
        )
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(body.decode())
    return "done"


def grade(task: dict, output: str) -> float:
    """Reward every episode."""
    return 1.0
