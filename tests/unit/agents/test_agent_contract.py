"""What the contract accepts from agents and graders, and how it says no."""

import decimal
import math
import sys

import pytest

from leyden_agents.contract import AgentNotFound, GraderError, OutputError, grade, load_function, run_agent


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module and lets it be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


def test_loads_a_function(module):
    module("mine_ok", "def double(x): return 2 * x")
    assert load_function("mine_ok:double")(4) == 8


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_such_package.sub:f", "PYTHONPATH"),
        ("leyden_agents.no_such_module:f", "no module `leyden_agents.no_such_module`"),
        ("no_colon", "package.module:function"),
        ("leyden_agents.contract:lod_function", "`load_function`"),
        ("leyden_agents.calculator.agent:MAX_CALLS", "is a int"),
    ],
)
def test_says_what_is_wrong_with_a_reference(reference, says):
    with pytest.raises(AgentNotFound) as caught:
        load_function(reference)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("mine_lacks", "import surely_not_installed", "needs the module `surely_not_installed`"),
        ("mine_raises", "1 / 0", "ZeroDivisionError"),
        ("mine_exits", "raise SystemExit(3)", "SystemExit"),
    ],
)
def test_a_module_that_fails_to_import_is_not_reported_as_missing(module, name, body, says):
    module(name, body)
    with pytest.raises(AgentNotFound) as caught:
        load_function(f"{name}:f")
    assert says in str(caught.value)
    assert "there is no module" not in str(caught.value)


async def _async_echo(value):
    return {"got": value}


@pytest.mark.parametrize("agent", [lambda value: {"got": value}, _async_echo])
def test_runs_sync_and_async_agents(agent):
    assert run_agent(agent, (1, 2)) == {"got": [1, 2]}


@pytest.mark.parametrize("output", [{1, 2}, object(), math.nan, {"x": math.inf}, b"bytes", {(1, 2): 3}])
def test_refuses_output_that_is_not_json(output):
    with pytest.raises(OutputError):
        run_agent(lambda _: output, None)


def test_refuses_output_that_holds_itself():
    output: list = []
    output.append(output)
    with pytest.raises(OutputError):
        run_agent(lambda _: output, None)


def test_what_the_agent_raises_passes():
    with pytest.raises(ZeroDivisionError):
        run_agent(lambda _: 1 / 0, None)


async def _async_grader(task, output):
    return float(task["expected"] == output)


@pytest.mark.parametrize(
    ("grader", "reward", "rewards"),
    [
        (lambda task, output: 0.5, 0.5, {}),
        (lambda task, output: task["expected"] == output, 1.0, {}),
        (_async_grader, 1.0, {}),
        (lambda task, output: {"a": 1, "b": 0.5}, 1.5, {"a": 1.0, "b": 0.5}),
        (lambda task, output: {"reward": 0.25, "b": 9}, 0.25, {"reward": 0.25, "b": 9.0}),
    ],
)
def test_reads_a_grade(grader, reward, rewards):
    assert grade(grader, {"expected": 3}, 3) == (reward, rewards, ())


def test_a_grader_may_reward_single_calls():
    answer = {"reward": 1, "style": 0.5, "calls": (0.1, True, 0)}
    assert grade(lambda task, output: answer, {}, None) == (1.0, {"reward": 1.0, "style": 0.5}, (0.1, 1.0, 0.0))


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (3, "'calls' is a int"),
        ({"1": 0.5}, "'calls' is a dict"),
        ("0.5", "'calls' is a str"),
        ([0.5, "0.5"], r"calls\[1\] is a str"),
        ([math.nan], r"calls\[0\] is nan"),
        ([0.0] * 10_001, "10,001 numbers"),
    ],
)
def test_rewards_of_single_calls_that_are_none_are_refused(calls, says):
    with pytest.raises(GraderError, match=says):
        grade(lambda task, output: {"reward": 1, "calls": calls}, {}, None)


def test_rewards_of_single_calls_are_no_final_reward():
    with pytest.raises(GraderError, match="name each reward"):
        grade(lambda task, output: {"calls": [1.0]}, {}, None)


@pytest.mark.parametrize(
    "answer",
    [
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        None,
        "1.0",
        [1.0],
        1j,
        decimal.Decimal(1),
        {},
        {1: 1.0},
        {"a": math.nan},
        {"reward": 1.0, "b": None},
        {"a": 1e308, "b": 1e308},
    ],
)
def test_refuses_what_is_not_a_finite_number(answer):
    with pytest.raises(GraderError):
        grade(lambda task, output: answer, {}, None)


def test_a_grader_that_raises_is_a_grader_error():
    with pytest.raises(GraderError, match="KeyError"):
        grade(lambda task, output: task["missing"], {}, None)
