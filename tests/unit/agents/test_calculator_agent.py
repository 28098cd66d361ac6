"""The demo agent is ordinary SDK code: driven here by a scripted server, and kept free of Leyden."""

import ast
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from leyden_agents.calculator import agent
from leyden_agents.calculator.grader import grade


class _Scripted(ThreadingHTTPServer):
    """Answers each chat completion with the next message of its script; repeats the last."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[dict] = []
        self.requests: list[dict] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Scripted

    def do_POST(self):
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        message = self.server.script[min(len(self.server.requests), len(self.server.script)) - 1]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        body = {"id": "r", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    with _Scripted() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "attempt-token")
        monkeypatch.setenv("OPENAI_MODEL", "policy")
        yield server
        server.shutdown()


def _call(arguments: str) -> dict:
    function = {"name": "calculator", "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def test_calls_the_tool_and_returns_the_last_words(server):
    server.script = [_call('{"expression": "37+58"}'), {"content": "The answer is 95."}]
    assert agent.answer({"question": "What is 37+58?"}) == "The answer is 95."
    second = server.requests[1]
    assert second["model"] == "policy" and second["tools"] == [agent.CALCULATOR]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"expression": "37+58"}'
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "95"}


def test_a_guess_takes_one_call(server):
    server.script = [{"content": "The answer is 12."}]
    assert agent.answer({"question": "What is 37+58?"}) == "The answer is 12."
    assert len(server.requests) == 1


def test_stops_after_three_calls(server):
    server.script = [_call('{"expression": "1+1"}')]
    assert agent.answer({"question": "What is 37+58?"}) == ""
    assert len(server.requests) == agent.MAX_CALLS == 3


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"expression": "37+58"}', "95"),
        ('{"expression": "10-99"}', "-89"),
        ('{"expression": "37+"}', "error"),
        ('{"expression": "+58"}', "error"),
        ('{"expression": "__import__(\'os\')"}', "error"),
        ('{"expression": 37}', "error"),
        ("{}", "error"),
        ("[]", "error"),
        ("not json", "error"),
    ],
)
def test_the_calculator(arguments, result):
    assert agent.calculate(arguments) == result


def test_the_agent_knows_nothing_of_leyden():
    source = Path(agent.__file__).read_text()
    assert "leyden" not in source.lower()
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else name.name).split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported == {"json", "os", "re", "typing", "openai"}


@pytest.mark.parametrize(
    ("output", "reward"),
    [
        ("The answer is 95.", 1.0),
        ("37+58 is 95", 1.0),
        ("The answer is 96.", 0.0),
        ("The answer is -95.", 0.0),
        ("I am not sure.", 0.0),
        ("", 0.0),
        (None, 0.0),
        ("9" * 5000, 0.0),
    ],
)
def test_the_grader(output, reward):
    assert grade({"expected": 95}, output) == reward
