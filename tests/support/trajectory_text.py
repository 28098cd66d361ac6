"""A trajectory for people to read, without what differs from run to run: ids, times, policy tokens."""

import json
from typing import Any

from leyden_contracts import Step, TextCall, Trajectory, Transition
from leyden_traces import unpack_ids


def rendered(trajectory: Trajectory) -> str:
    """Return a line a call or step, in order. Token ids must be bytes of text (`support.scripted_engine`)."""
    names = {step.span: step.name for step in trajectory.steps}
    lines = [f"{trajectory.verdict.value}, reward {trajectory.reward:g}"]
    for number in range(len(trajectory.transitions) + 1):
        lines += [_call(call) for call in trajectory.transitions if call.number == number]
        lines += [_step(step, names) for step in trajectory.steps if step.after_call == number]
    lines += map(_text, trajectory.texts)
    return "\n".join([*lines, f"output: {trajectory.output}"])


def _call(call: Transition) -> str:
    text = bytes(unpack_ids(call.response_token_ids).tolist()).decode()
    within = f" in {call.agent}" if call.agent else ""
    return f"call {call.number} by {call.role}{within}: {text} ({call.finish_reason})"


def _step(step: Step, names: dict[str, str]) -> str:
    within = f" in {names[step.parent]}" if step.parent in names else ""
    did = f": {step.input or '?'} -> {step.output or '?'}" if step.kind == "tool" else ""
    failed = f" failed: {step.error}" if step.failed else ""
    return f"  {step.kind} {step.name}{within}{did}{failed}"


def _text(text: TextCall) -> str:
    within = f" in {text.agent}" if text.agent else ""
    asked, answered = (" | ".join(map(_message, json.loads(part))) for part in (text.messages, text.reply))
    return f"text call of {text.model}{within}: {asked} -> {answered} ({text.finish_reason})"


def _message(message: dict[str, Any]) -> str:
    calls = [json.dumps(call["function"]) for call in message.get("tool_calls") or []]
    return f"{message['role']}: {' '.join([message.get('content') or '', *calls]).strip()}"
