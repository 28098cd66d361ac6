"""The page about instrumented agents shows code and variables that the tests use."""

import re
from pathlib import Path

import pytest

from support.trajectory_page import CREW, NEW_CONVENTIONS, PAGE

AGENTS = Path(__file__).parent


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
def test_code_on_the_page_is_an_agents(code: str) -> None:
    assert any(code in path.read_text() for path in AGENTS.glob("*_agent.py"))


@pytest.mark.parametrize(("name", "value"), [*CREW.items(), *NEW_CONVENTIONS.items()])
def test_variables_are_on_the_page(name: str, value: str) -> None:
    assert f"`{name}={value}`" in PAGE.read_text()


@pytest.mark.parametrize("path", AGENTS.glob("*_agent.py"), ids=lambda path: path.name)
def test_each_agent_is_linked_from_the_page(path: Path) -> None:
    assert f"](../../tests/agents/{path.name})" in PAGE.read_text()
