"""The page from the paper to the code points at the lines that it says."""

import importlib.util
from pathlib import Path

import pytest

from leyden_algorithms import AGGREGATIONS, COMPARISONS, CORRECTIONS, CREDIT_STRATEGIES, TOKEN_LOSSES

DOCS = Path(__file__).parents[3] / "infra/docs"
_spec = importlib.util.spec_from_file_location("refresh_lines", DOCS / "refresh_lines.py")
refresh_lines = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(refresh_lines)
PAGE = refresh_lines.PAGE.read_text()
CITATIONS = refresh_lines.CITATION.findall(PAGE)


@pytest.mark.parametrize(("name", "file", "line"), CITATIONS)
def test_each_cited_line_defines_the_cited_name(name: str, file: str, line: str):
    cited = (refresh_lines.ROOT / file).read_text().splitlines()[int(line) - 1]

    assert name in cited, "run `just docs-lines`"
    assert int(line) == refresh_lines.line_of(name, file), "run `just docs-lines`"


def test_every_strategy_is_on_the_page():
    cited = {name for name, _, _ in CITATIONS}
    for table in (CREDIT_STRATEGIES, COMPARISONS, TOKEN_LOSSES, CORRECTIONS, AGGREGATIONS):
        functions = {getattr(one, "func", one).__name__ for one in table.values()}
        assert functions - {"uncorrected", "sequence_mean"} <= cited


def test_a_name_that_is_gone_is_noticed():
    with pytest.raises(LookupError, match="does not define nothing"):
        refresh_lines.refreshed("`nothing`: `libs/leyden_algorithms/types.py:3`")


def test_numbers_are_set_anew():
    assert refresh_lines.refreshed(PAGE.replace(".py:", ".py:9")) == PAGE
