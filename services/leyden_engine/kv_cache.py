"""The key-value cache: one row per sequence, each with a length of its own."""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_COLUMNS = 128
"""The cache starts this long, and doubles as sequences grow."""


class _Layer(CacheLayerMixin):
    """One layer's keys and values, each of shape [rows, heads, columns, head size]."""

    is_sliding = False

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows
        self._first = 0
        self._positions: Tensor | None = None
        self._index: Tensor | None = None
        self._width = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_zeros(self._rows, key_states.shape[1], 0, key_states.shape[3])
        self.values = value_states.new_zeros(self._rows, value_states.shape[1], 0, value_states.shape[3])
        self.is_initialized = True

    def fill(self, first: int) -> None:
        """Let the next update write whole prompts to the rows from `first` on."""
        self._first, self._positions = first, None

    def append(self, positions: Tensor, index: Tensor, width: int) -> None:
        """Let the next update add one token to the first rows, at `positions`, and return `width` columns."""
        self._positions, self._index, self._width = positions, index, width

    def move(self, source: int, target: int, length: int) -> None:
        self.keys[target, :, :length] = self.keys[source, :, :length]
        self.values[target, :, :length] = self.values[source, :, :length]

    def wipe(self, row: int) -> None:
        if self.is_initialized:
            self.keys[row].zero_()
            self.values[row].zero_()

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self._positions is None:
            rows, length = slice(self._first, self._first + key_states.shape[0]), key_states.shape[2]
            self._reserve(length)
            self.keys[rows, :, :length] = key_states
            self.values[rows, :, :length] = value_states
            return key_states, value_states
        self._reserve(self._width)
        rows = slice(0, key_states.shape[0])
        self.keys[self._index, :, self._positions] = key_states[:, :, 0]
        self.values[self._index, :, self._positions] = value_states[:, :, 0]
        return self.keys[rows, :, : self._width], self.values[rows, :, : self._width]

    def _reserve(self, columns: int) -> None:
        have = self.keys.shape[2]
        if columns <= have:
            return
        more = max(columns, 2 * have, _COLUMNS) - have
        # Zeros, not empty memory: a masked column still multiplies its value by 0, and 0 times NaN is NaN.
        self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, more))
        self.values = torch.nn.functional.pad(self.values, (0, 0, 0, more))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


class KeyValueCache(Cache):
    """The cache of all layers. Rows in use are always the first ones; a hole is filled by moving the last row."""

    def __init__(self, layers: int, rows: int) -> None:
        self.slots = [_Layer(rows) for _ in range(layers)]
        super().__init__(layers=self.slots)

    def fill(self, first: int) -> None:
        """Make the next forward pass a prefill of the rows from `first` on."""
        for layer in self.slots:
            layer.fill(first)

    def append(self, positions: Tensor) -> Tensor:
        """Make the next forward pass a decoding step of the first rows.

        Args:
            positions: int64 of shape [rows]: where the token goes.

        Returns:
            Which columns each row sees: bool of shape [rows, 1, 1, width].
        """
        width = int(positions.max()) + 1
        index = torch.arange(len(positions), device=positions.device)
        for layer in self.slots:
            layer.append(positions, index, width)
        columns = torch.arange(width, device=positions.device)
        return (columns <= positions[:, None])[:, None, None]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of row `source` over row `target`."""
        for layer in self.slots:
            layer.move(source, target, length)

    def wipe(self, row: int) -> None:
        """Forget what a row holds, even what is masked: a number that is not finite would spread through the mask."""
        for layer in self.slots:
            layer.wipe(row)
