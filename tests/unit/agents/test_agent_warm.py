"""After the warm-up, a forked attempt's first call imports nothing more."""

import json
import subprocess
import sys

import pytest

WARMED = """
import sys, json, threading
import openai
from leyden_agents.warm import warm_sdk

assert warm_sdk()
before = set(sys.modules)
from openai import OpenAI
client = OpenAI(api_key="x", base_url="http://localhost:1/v1", max_retries=0)
try:
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
except openai.APIConnectionError:
    pass
print(json.dumps([sorted(set(sys.modules) - before), threading.active_count()]))
"""


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_nothing_is_left_to_import_and_no_thread_runs():
    assert json.loads(_run(WARMED)) == [[], 1]


@pytest.mark.parametrize("module", ["leyden_agents.warm", "leyden_agents.contract"])
def test_an_agent_without_the_sdk_does_not_get_it(module):
    code = f"import sys, {module}, leyden_agents.warm as w; assert not w.warm_sdk(); print('openai' in sys.modules)"
    assert _run(code).strip() == "False"
