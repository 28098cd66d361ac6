"""The demo's agent, its tiny taught model and its tasks, as a program."""

from pathlib import Path
from typing import Any

from learning.playing import Ask, Environment, Outcome, Program
from leyden_agents.calculator import recipe, tasks
from leyden_agents.calculator.agent import CALCULATOR, MAX_CALLS, calculate
from leyden_agents.calculator.grader import grade
from leyden_engine.protocol import plain_messages
from leyden_engine.replies import shown_text
from leyden_engine.text import Text, load_text
from leyden_engine.tools import parse_tool_calls

_HELD_OUT = 200


def make(seed: int, _folder: Path) -> Environment:
    """Return the demo with the tasks of this seed."""
    text = load_text(recipe.MODEL_DIR)
    return Environment(
        model=recipe.MODEL_DIR,
        train=tasks.train_tasks(recipe.TRAIN_TASKS, seed),
        held_out=tasks.eval_tasks(_HELD_OUT, seed),
        program=lambda task, _: program(text, task),
        max_tokens=24,
        text=text,
    )


def program(text: Text, task: dict[str, Any]) -> Program:
    """Do what `leyden_agents.calculator.agent.answer` does, and grade it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task["input"]["question"]}]
    content = ""
    for _ in range(MAX_CALLS):
        job = yield Ask("policy", text.render(plain_messages(messages), [CALCULATOR]))
        found, calls = parse_tool_calls(shown_text(job, text))
        content = found or ""
        if not calls:
            break
        messages.append({"role": "assistant", "content": content, "tool_calls": calls})
        for call in calls:
            result = calculate(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    reward = grade(task, content)
    return Outcome(reward, reward)
