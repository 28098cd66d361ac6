"""Each cell of the table of protocols and clients names a test, and each test of its clients is in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = [
    [line for line in table if line.startswith("| ")]
    for table in (
        block.splitlines()
        for block in (ROOT / "infra/docs/protocols.md").read_text().split("\n\n")
        if block.startswith("| ")
    )
]
CELLS = [cell.strip() for rows in TABLES for row in rows[1:] for cell in row.strip("|").split("|")[1:]]
TESTS = {
    name
    for path in (ROOT / "tests/integration/clients").glob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("cell", sorted({cell for cell in CELLS if cell}))
def test_a_cell_names_a_test(cell: str) -> None:
    names = re.findall(r"`(test_\w+)`", cell)
    assert names, f"{cell!r} names no test"
    assert set(names) <= TESTS


def test_every_row_has_every_column() -> None:
    for rows in TABLES:
        assert {row.count("|") for row in rows} == {rows[0].count("|")}


def test_every_test_of_a_client_is_in_the_table() -> None:
    assert TESTS - set(re.findall(r"`(test_\w+)`", " ".join(CELLS))) == set()
