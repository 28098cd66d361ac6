"""Held-out problems share no operand with training: neither with tasks nor with demonstrations."""

import re
from random import Random

import pytest

from leyden_agents.calculator.demonstrations import demonstration
from leyden_agents.calculator.tasks import RESERVED, eval_tasks, long_eval_tasks, train_tasks
from leyden_contracts import Task, TaskInput


def _operands(tasks) -> set[int]:
    return {int(n) for task in tasks for n in re.findall(r"\d+", task["input"]["question"])}


def test_held_out_operands_are_never_trained_on():
    trained = set().union(*(_operands(train_tasks(2000, seed)) for seed in range(5)))
    held_out = _operands(eval_tasks(600)) | _operands(long_eval_tasks(600))
    assert trained and held_out and not trained & held_out
    assert held_out <= RESERVED["short"] | RESERVED["long"]


def test_demonstrations_use_no_reserved_operand():
    rng = Random(3)
    asked = [demonstration(rng, clean=index % 2 == 0)[0]["content"] for index in range(4000)]
    operands = {int(n) for question in asked for n in re.findall(r"\d+", question)}
    assert operands & set(range(100, 1000)) and not operands & (RESERVED["short"] | RESERVED["long"])


@pytest.mark.parametrize(("make", "length", "digits"), [(eval_tasks, "short", 2), (long_eval_tasks, "long", 3)])
def test_tasks_are_valid_different_and_the_same_every_time(make, length, digits):
    tasks = make(200, seed=1)
    assert tasks == make(200, seed=1) != make(200, seed=2)
    assert len({Task.of(TaskInput.model_validate(task)).id for task in tasks}) == 200
    assert all(task["tags"] == {"length": length} for task in tasks)
    assert {len(str(n)) for n in _operands(tasks)} == {digits}
    for task in tasks:
        left, sign, right = re.fullmatch(r"What is (\d+)([+-])(\d+)\?", task["input"]["question"]).groups()
        assert task["expected"] == int(left) + (1 if sign == "+" else -1) * int(right)


def test_asks_for_no_more_problems_than_there_are():
    assert len(eval_tasks(648)) == 648
    with pytest.raises(ValueError, match="only 648"):
        eval_tasks(649)
