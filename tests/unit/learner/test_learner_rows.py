"""The plain way to feed a batch: how samples share rows, and rows share passes."""

import torch

from leyden_learner.forward.rows import Row, cut_rows, make_rows
from leyden_learner.samples import Sample


def sample(*tokens: int, response: int = 2) -> Sample:
    return Sample(torch.tensor(tokens), torch.zeros(response), 1.0, 0.0)


def test_a_call_joins_the_row_that_its_prompt_begins_with():
    first, second = sample(1, 2, 3), sample(1, 2, 3, 4, 5, 6)

    rows = make_rows([first, second])

    assert [row.samples for row in rows] == [(0, 1)]
    assert rows[0].tokens.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_call_stays_apart_where_the_prompt_was_rewritten():
    # The second prompt retells the first answer in other tokens; in the third, an answer overlaps the row's end.
    calls = [sample(1, 2, 3), sample(1, 2, 9, 4, 5, 6), sample(1, 2, 9, 4, 5, 6, 7)]

    assert [len(row.samples) for row in make_rows(calls)] == [1, 1, 1]


def test_micro_batches_hold_every_row_once_within_the_limit():
    rows = [Row(torch.zeros(length), ()) for length in [12] * 9 + [92] * 5]

    parts = list(cut_rows(rows, token_limit=64))

    assert sorted(id(row) for part in parts for row in part) == sorted(map(id, rows))
    assert [(len(part), part[0].tokens.numel()) for part in parts] == [(1, 92)] * 5 + [(5, 12), (4, 12)]
