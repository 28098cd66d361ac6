"""The messages that the gateway makes of a Responses conversation are those that vLLM itself makes of it."""

import json
import subprocess

import pytest

from leyden_gateway.protocols.responses_items import messages
from support.vllm import PYTHON

SCRIPT = """
import json, sys
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages

def plain(message):
    message = message if isinstance(message, dict) else message.model_dump()
    return json.loads(json.dumps(message, default=lambda one: one.model_dump() if hasattr(one, "id") else list(one)))

made = []
for given in json.load(sys.stdin):
    request = ResponsesRequest.model_validate({"model": "m", "input": given})
    made.append([plain(one) for one in construct_input_messages(request_instructions="s", request_input=request.input)])
print("\\n" + json.dumps(made))
"""
USER = {"role": "user", "content": "a"}
SAID = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "status": "completed",
    "content": [{"type": "output_text", "text": "b", "annotations": []}],
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "7"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
CONVERSATIONS: list = [
    "a",
    [USER],
    [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}, SAID, USER],
    [{"role": "developer", "content": "d"}, {"role": "system", "content": "e"}, USER],
    [USER, CALL, RESULT],
    [USER, SAID, CALL, {**CALL, "call_id": "d"}, RESULT, {**RESULT, "call_id": "d"}],
    [USER, THOUGHT, SAID, USER],
    [USER, THOUGHT, CALL, RESULT, THOUGHT, SAID, USER],
    [USER, SAID, SAID, CALL, RESULT, SAID],
    [USER, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}, USER],
    [USER, CALL, SAID, RESULT],
    [USER, CALL, {**RESULT, "output": [{"type": "input_text", "text": "7"}, {"type": "input_text", "text": "8"}]}],
]


@pytest.mark.vllm
def test_messages_are_vllms_own():
    answer = subprocess.run(
        [PYTHON, "-c", SCRIPT], input=json.dumps(CONVERSATIONS), capture_output=True, text=True, timeout=240
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    theirs = json.loads(answer.stdout.splitlines()[-1])
    for given, made in zip(CONVERSATIONS, theirs, strict=True):
        assert messages("s", given) == [_said(message) for message in made], given


def _said(message: dict) -> dict:
    """Return what a template sees of a message: not ids of items, and all kinds of text part under one name."""
    kept = {
        name: value for name, value in message.items() if name not in ("type", "id", "status") and value is not None
    }
    if isinstance(kept.get("content"), list):
        kept["content"] = [{"type": "text", "text": part["text"]} for part in kept["content"]]
    return kept
