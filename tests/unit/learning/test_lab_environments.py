"""The lab's agents give the rewards that they say, and hold out what they do not train on."""

from pathlib import Path
from random import Random

import pytest

from learning.environments import ENVIRONMENTS, calculator, planner_solver, three_calls
from learning.playing import Ask, Outcome, Program, play
from learning.sampler import Sampler
from leyden_agents.calculator.recipe import MODEL_DIR
from leyden_engine.job import Job, Sampling
from leyden_engine.text import load_text


def _answered(program: Program, *replies: list[int], end: str = "length") -> tuple[list[Ask], Outcome]:
    """Drive one program with these replies."""
    asks = [next(program)]
    for tokens in replies:
        try:
            asks.append(program.send(Job([1], None, Sampling(), tokens=tokens, finish_reason=end)))
        except StopIteration as ended:
            return asks, ended.value
    raise AssertionError("the program asks for more")


KEYS = ((0, 1), (2, 3), (1, 2))


class _World(Random):
    """Draws what the test says."""

    def __init__(self, luck: int) -> None:
        super().__init__(0)
        self._luck = luck

    def randrange(self, *_: int) -> int:
        return self._luck


@pytest.mark.parametrize("luck", [0, 1])
def test_three_calls_pays_for_luck_and_for_each_door(luck: int) -> None:
    program = three_calls.program(KEYS, (1, 0, 1), _World(luck))
    # 5 is key 1 and fits; 3 is key 3 and does not; 42 is key 2 and fits.
    asks, outcome = _answered(program, [5], [3], [42])
    assert outcome.reward == pytest.approx(three_calls.LUCK * luck + 2 * three_calls.DOOR)
    assert outcome.score == pytest.approx(2 / 3)
    assert outcome.signals == (three_calls.SIGNAL, 0, three_calls.SIGNAL)
    assert [len(ask.prompt) for ask in asks] == [3, 4, 5]
    # The third call is shown luck, an open door and a closed one.
    assert asks[2].prompt[1:4] == [6 + luck, 5, 4]


def test_calls_that_saw_the_same_have_the_same_prompt() -> None:
    one, other = (_answered(three_calls.program(KEYS, (0, 0, 0), _World(1)), [t], [2], [0])[0] for t in (0, 4))
    assert [ask.prompt for ask in one] == [ask.prompt for ask in other]


EASY, ANSWERS = frozenset({0}), (2, 3)


@pytest.mark.parametrize(("clues", "replies", "roles", "reward"), [
    ((0, 0), [[2]], ["planner"], 1.0),
    ((1, 0), [[2]], ["planner"], 0.0),
    ((1, 0), [[1], [6]], ["planner", "solver"], 0.8),
    ((1, 1), [[1], [6]], ["planner", "solver"], 0.0),
    ((0, 1), [[1], [3]], ["planner", "solver"], 0.8),
])  # fmt: skip
def test_planner_and_solver(clues: tuple[int, int], replies: list[list[int]], roles: list[str], reward: float) -> None:
    asks, outcome = _answered(planner_solver.program(EASY, ANSWERS, clues), *replies)
    assert [ask.role for ask in asks] == roles
    assert outcome.reward == outcome.score == pytest.approx(reward)


def test_the_calculator_is_asked_and_believed() -> None:
    text = load_text(MODEL_DIR)
    task = {"input": {"question": "What is 12+30?"}, "expected": 42}
    said = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12+30"}}\n</tool_call>'
    replies = [[*text.encode(one, add_special=False), *text.end_ids] for one in (said, "The answer is 42.")]
    asks, outcome = _answered(calculator.program(text, task), *replies, end="stop")
    assert "42" in text.decode(asks[1].prompt)
    assert outcome.reward == 1.0
    _, guessed = _answered(calculator.program(text, task), replies[1][:-3] + replies[1][-1:], end="stop")
    assert guessed.reward == 0.0


@pytest.mark.parametrize("name", ["three_calls", "planner_solver"])
def test_held_out_tasks_are_not_trained_on_and_all_their_clues_are(name: str, tmp_path: Path) -> None:
    made = ENVIRONMENTS[name](3, tmp_path)
    assert made.held_out
    assert not set(made.train) & set(made.held_out)
    for place in range(len(made.train[0])):
        assert {task[place] for task in made.held_out} <= {task[place] for task in made.train}


def test_an_untaught_model_opens_about_a_quarter_of_the_doors(tmp_path: Path) -> None:
    made = ENVIRONMENTS["three_calls"](0, tmp_path)
    programs = [made.program(task, Random(i)) for i, task in enumerate(made.train)]
    played = play(programs, Sampler(made), Random(0))
    assert all(len(one.calls) == 3 for one in played)
    assert 0.1 < sum(one.outcome.score for one in played) / len(played) < 0.45
