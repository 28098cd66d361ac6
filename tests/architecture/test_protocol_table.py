"""Each cell of the table of protocols and clients names a test, and each test of its clients is in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "infra/docs/protocols.md").read_text().splitlines() if line.startswith("| ")]
CELLS = [cell.strip() for row in ROWS[1:] for cell in row.strip("|").split("|")[1:]]
CLIENTS = ("openai", "langchain", "litellm", "node")
"""The clients that have a column: `test_clients_*.py`, in the columns' order."""


def named_in(client: str) -> set[str]:
    text = (ROOT / f"tests/integration/clients/test_clients_{client}.py").read_text()
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


TESTS = set().union(*map(named_in, CLIENTS))


@pytest.mark.parametrize("cell", sorted({cell for cell in CELLS if cell}))
def test_a_cell_names_a_test(cell: str) -> None:
    names = re.findall(r"`(test_\w+)`", cell)
    assert names, f"{cell!r} names no test"
    assert set(names) <= TESTS


def test_every_row_has_every_column() -> None:
    assert {row.count("|") for row in ROWS} == {len(CLIENTS) + 2}


def test_every_test_of_a_client_is_in_the_table() -> None:
    assert TESTS - set(re.findall(r"`(test_\w+)`", " ".join(CELLS))) == set()
