"""How maps, weights and parameters lie in memory, as bytes; all values signed (docs/reference/engine.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwgen.gateware.engine.config import LANES, TABLE_WORDS
from hwgen.network.maps import FeatureMap, IntegerType

WORD = LANES
"""Bytes of a word: 8 channels of a pixel, or the parameters of a map."""

#: What a parameter's significand and shift may be.
SIGNIFICANDS, MAX_SHIFT = (1 << 23, 1 << 24), (1 << 8) - 1


def offset(kind: IntegerType) -> int:
    """By how much values of a type are more than what lies in memory for them."""
    return 0 if kind.signed else 128


def blocks(channels: Any) -> Any:
    """Return the number of blocks of 8 channels; ``channels`` is an integer or an array of them."""
    return -(-channels // LANES)


def map_bytes(source: FeatureMap) -> int:
    """Of a map in memory."""
    return blocks(source.channels) * source.height * source.width * WORD


def pack_map(frame: np.ndarray, kind: IntegerType) -> bytes:
    """A frame ``(C, H, W)`` of integers of at most 8 bits as a map in memory; lanes past ``C`` are 0."""
    channels, height, width = frame.shape
    whole = np.zeros((blocks(channels) * LANES, height, width), np.int8)
    whole[:channels] = frame.astype(np.int64) - offset(kind)
    return whole.reshape(-1, LANES, height, width).transpose(0, 2, 3, 1).tobytes()


def unpack_map(packed: bytes | np.ndarray, result: FeatureMap) -> np.ndarray:
    """A map in memory as integers ``(C, H, W)`` of its type."""
    channels, height, width = result.shape
    words = np.frombuffer(packed, np.int8).reshape(-1, height, width, LANES)
    values = words.transpose(0, 3, 1, 2).reshape(-1, height, width)[:channels]
    return (values.astype(np.int64) + offset(result.type)).astype(result.type.dtype)


def pack_weights(weights: np.ndarray, maps: int) -> bytes:
    """Weights ``(M, C, Kh, Kw)`` of a fold of ``maps`` maps, in the order of the steps; maps past ``M`` have zeros.

    Steps go through blocks of 8 channels, rows, columns, and the channels of a block.
    """
    count, channels, rows, columns = weights.shape
    steps = []
    for first in range(0, channels, LANES):
        block = weights[:, first : first + LANES]
        steps.append(block.transpose(2, 3, 1, 0).reshape(-1, count))
    packed = np.zeros((channels * rows * columns, maps), np.int8)
    packed[:, :count] = np.concatenate(steps)
    return packed.tobytes()


def pack_channelwise(weights: np.ndarray, maps: int) -> bytes:
    """Weights ``(steps, fields, 8)`` of channelwise steps: for each lane those of the low field and of the high one."""
    count, fields, lanes = weights.shape
    packed = np.zeros((count, maps), np.int8)
    packed[:, : fields * lanes] = weights.reshape(count, -1)
    return packed.tobytes()


def parameter_words(bias: np.ndarray, significand: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """A word for each map, uint64.

    A shift of more than `MAX_SHIFT` gives zero as that does: a sum and a significand are below 2**57 together.
    """
    assert ((SIGNIFICANDS[0] <= significand) & (significand < SIGNIFICANDS[1])).all()
    words = (bias.astype(np.int64) & 0xFFFFFFFF).astype(np.uint64)
    words |= significand.astype(np.uint64) << np.uint64(32)
    return words | np.minimum(shift, MAX_SHIFT).astype(np.uint64) << np.uint64(56)


def pack_parameters(words: np.ndarray) -> bytes:
    """Words of maps, and zeros up to a whole block."""
    whole = np.zeros(blocks(len(words)) * LANES, "<u8")
    whole[: len(words)] = words
    return whole.tobytes()


def unpack_parameters(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bias, significand and shift of words, int64 each."""
    bias = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32).astype(np.int32).astype(np.int64)
    significand = (words >> np.uint64(32) & np.uint64(0xFFFFFF)).astype(np.int64)
    return bias, significand, (words >> np.uint64(56)).astype(np.int64)


def by_value(entries: np.ndarray, kind: IntegerType) -> np.ndarray:
    """Entries for a type's values from the least to the greatest, by the 8 bits that lie in memory for each."""
    places = np.arange(kind.minimum, kind.maximum + 1) - offset(kind)
    found = np.zeros(TABLE_WORDS, np.int64)
    found[places & TABLE_WORDS - 1] = entries
    return found


def pack_tables(entries: np.ndarray) -> bytes:
    """Tables ``(n, 256)``, a word of 8 bytes an entry."""
    return entries.astype("<i8").tobytes()
