"""The key-value cache: one row per sequence, each with a length of its own."""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_COLUMNS = 128
"""The cache starts this long, and doubles as sequences grow."""


class _Layer(CacheLayerMixin):
    """One layer's keys and values, each of shape [rows, heads, columns, head size]."""

    is_sliding = False

    def __init__(self, cache: "KeyValueCache") -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_zeros(self._cache.rows, key_states.shape[1], 0, key_states.shape[3])
        self.values = value_states.new_zeros(self._cache.rows, value_states.shape[1], 0, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Write [B, heads, T, head size] where the cache was told to; return what the B rows may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        cache = self._cache
        self._reserve(cache.width)
        if cache.positions is None:
            self.keys[cache.span, :, : cache.width] = key_states
            self.values[cache.span, :, : cache.width] = value_states
            return key_states, value_states
        self.keys[cache.index, :, cache.positions] = key_states.transpose(1, 2)
        self.values[cache.index, :, cache.positions] = value_states.transpose(1, 2)
        return self.keys[cache.span, :, : cache.width], self.values[cache.span, :, : cache.width]

    def _reserve(self, columns: int) -> None:
        have = self.keys.shape[2]
        if columns > have:
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
    """The cache of all layers. Each forward pass is told first which rows it runs, and where they go on."""

    def __init__(self, layers: int, rows: int) -> None:
        self.rows = rows
        self.span = slice(0, 0)
        self.width = 0
        self.index: Tensor | None = None
        self.positions: Tensor | None = None
        super().__init__(layers=[_Layer(self) for _ in range(layers)])

    def begin(self, first: int, count: int, length: int) -> None:
        """Make the next forward pass fill `count` rows, from `first` on, from their start with `length` tokens."""
        self.span, self.width, self.positions = slice(first, first + count), length, None

    def go_on(self, first: int, positions: Tensor, width: int) -> Tensor:
        """Make the next forward pass add tokens to rows that hold some already.

        Args:
            first: the first of the B rows.
            positions: int64 of shape [B, T]: where each token goes.
            width: more than any position.

        Returns:
            Which columns each token sees: bool of shape [B, 1, T, width].
        """
        count = positions.shape[0]
        self.span, self.width, self.positions = slice(first, first + count), width, positions
        self.index = torch.arange(first, first + count, device=positions.device)[:, None]
        return (torch.arange(width, device=positions.device) <= positions[..., None])[:, None]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of row `source` over row `target`."""
        for layer in self.layers:
            layer.keys[target, :, :length] = layer.keys[source, :, :length]
            layer.values[target, :, :length] = layer.values[source, :, :length]

    def wipe(self, row: int) -> None:
        """Forget what a row holds, even what is masked: a number that is not finite would spread through the mask."""
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys[row].zero_()
                layer.values[row].zero_()
