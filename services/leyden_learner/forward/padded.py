"""The plain pass: padded rows, whole logits. For every model; what the fast pass is compared with."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leyden_learner.forward.packing import MicroBatch
from leyden_learner.forward.rows import Row, cut_rows, make_rows
from leyden_learner.forward.scores import Scores
from leyden_learner.samples import Sample


class PaddedForward:
    """Computes on rows of like length; calls that extend each other share a row."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self._model, self._device = model, device

    def micro_batches(self, samples: Sequence[Sample], token_limit: int) -> list[MicroBatch]:
        """Cut the samples' rows into passes, longest first."""
        return [
            MicroBatch(tuple(sorted(i for row in part for i in row.samples)), len(part) * (part[0].tokens.numel() - 1))
            for part in cut_rows(make_rows(samples), token_limit)
        ]

    def hidden(self, samples: Sequence[Sample]) -> Tensor:
        """Compute the final hidden states that predict the response tokens."""
        ids, (index, column, _) = self._fed(samples)
        return self._model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[index, column]

    def scores(self, samples: Sequence[Sample], entropy: bool = False) -> Scores:
        """Compute logprobs, and entropies where asked, of all response tokens."""
        ids, (index, column, heat) = self._fed(samples)
        # The head runs over no position before the first response.
        first = int(column.min())
        kept = torch.arange(first, ids.shape[1], device=self._device)
        logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits[index, column - first]
        logps = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / heat[:, None]).log_softmax(-1)
        targets = torch.cat([sample.response for sample in samples]).to(self._device)
        chosen = logps.gather(1, targets[:, None])[:, 0]
        return Scores(chosen, -(logps.exp() * logps).sum(1) if entropy else None)

    def _fed(self, samples: Sequence[Sample]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the rows, and where in them the response tokens are predicted (see `_where`)."""
        # Padding stands on the right, where causal attention never looks: no mask is needed.
        rows = make_rows(samples)
        ids = torch.nn.utils.rnn.pad_sequence([row.tokens[:-1] for row in rows], batch_first=True).to(self._device)
        return ids, tuple(one.to(self._device) for one in _where(samples, rows))


def _where(samples: Sequence[Sample], rows: Sequence[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for every response token, its row, the position that predicts it, and its temperature."""
    row_of = {i: number for number, row in enumerate(rows) for i in row.samples}
    index, column, heat = [], [], []
    for i, sample in enumerate(samples):
        # The token at position t + 1 is predicted at t.
        column.append(torch.arange(sample.prompt_length - 1, sample.tokens.numel() - 1))
        index.append(torch.full_like(column[-1], row_of[i]))
        heat.append(torch.full((column[-1].numel(),), sample.temperature))
    return torch.cat(index), torch.cat(column), torch.cat(heat)
