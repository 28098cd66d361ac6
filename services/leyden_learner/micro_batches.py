"""How a batch is cut into forward passes."""

from collections.abc import Iterator, Sequence

from leyden_learner.batch import Sample


def micro_batches(samples: Sequence[Sample], token_limit: int) -> Iterator[list[Sample]]:
    """Yield the samples, longest first, in parts whose padded size stays within `token_limit` tokens.

    Neighbours in length share a part, so that little is padded. One sample longer than the limit goes alone.
    """
    part: list[Sample] = []
    for sample in sorted(samples, key=lambda one: one.tokens.numel(), reverse=True):
        if part and (len(part) + 1) * part[0].tokens.numel() > token_limit:
            yield part
            part = []
        part.append(sample)
    if part:
        yield part
