"""Memory layout of feature maps, weights and parameters for the engine, packed into signed bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwgen.gateware.engine.config import CHAIN, LANES, TABLE_WORDS
from hwgen.network.maps import FeatureMap, IntegerType

WORD = LANES
"""Number of bytes of a memory word: 8 channels of a pixel, or the parameters of an output channel."""

#: Range of the significand in an output channel's parameters (half-open), and maximum shift.
SIGNIFICANDS, MAX_SHIFT = (1 << 23, 1 << 24), (1 << 8) - 1


def offset(integer_type: IntegerType) -> int:
    """Return the integer, 0 or 128, subtracted from values of an integer type to store them as signed bytes."""
    return 0 if integer_type.signed else 128


def blocks(channels: Any) -> Any:
    """Return the number of blocks of 8 channels that hold ``channels`` channels (integer or array)."""
    return -(-channels // LANES)


def value_bytes(integer_type: IntegerType) -> int:
    """Return the number of bytes that a value of an integer type takes in the engine's memory."""
    return -(-integer_type.bits // 8)


def map_bytes(source: FeatureMap) -> int:
    """Return the number of bytes that a feature map takes in the engine's memory, in blocks of 8 channels."""
    return blocks(source.channels) * source.height * value_bytes(source.type) * source.width * WORD


def pack_map(frame: np.ndarray, integer_type: IntegerType) -> bytes:
    """Return a feature map ``(C, H, W)`` as the bytes that memory stores, in blocks of 8 channels.

    Each row has a row for each byte of a value, the highest byte first. The highest bit of a byte is inverted,
    except in the highest byte of a signed value. Lanes past ``C`` are 0.
    """
    channels, height, width = frame.shape
    size, values = value_bytes(integer_type), frame.astype(np.int64)
    whole = np.zeros((blocks(channels) * LANES, height, size, width), np.int8)
    for row, stored in enumerate(stored_bytes(values, integer_type)):
        whole[:channels, :, row] = stored
    return whole.reshape(-1, LANES, height * size, width).transpose(0, 2, 3, 1).tobytes()


def stored_bytes(values: np.ndarray | int, integer_type: IntegerType) -> list[np.ndarray]:
    """Return a list of int8 arrays, shaped as ``values``: the bytes that memory stores for them, the highest first."""
    highest = value_bytes(integer_type) - 1
    return [
        np.asarray(np.asarray(values, np.int64) >> 8 * (highest - row) ^ mask).astype(np.int8)
        for row, mask in enumerate(_sign_masks(integer_type))
    ]


def _sign_masks(integer_type: IntegerType) -> list[int]:
    """Return a list of XOR masks, highest byte first, that make bytes signed: 0x80, or 0 for a signed type's first."""
    return [0 if row == 0 and integer_type.signed else 0x80 for row in range(value_bytes(integer_type))]


def unpack_map(packed: bytes | np.ndarray, result: FeatureMap) -> np.ndarray:
    """Return a feature map's integers ``(C, H, W)`` from its bytes in memory, in the map's own type."""
    channels, height, width = result.shape
    size = value_bytes(result.type)
    words = np.frombuffer(packed, np.uint8).reshape(-1, height, size, width, LANES)
    stored = words.transpose(0, 4, 1, 2, 3).reshape(-1, height, size, width)[:channels]
    values = np.zeros((channels, height, width), np.int64)
    for row, mask in enumerate(_sign_masks(result.type)):
        values = values << 8 | stored[:, :, row] ^ mask
    half = 1 << 8 * size - 1 if result.type.signed else 0
    return ((values ^ half) - half).astype(result.type.dtype)


def pack_weights(weights: np.ndarray, maps: int) -> bytes:
    """Return the weights ``(M, C, Kh, Kw)`` of up to ``maps`` channels as bytes, in the order of array cycles.

    Steps loop over blocks of 8 channels, kernel rows, kernel columns, and the halves of a block. A step has the weights
    of four channels, channel by channel. Channels past ``C`` and output channels past ``M`` have zeros. The weight of
    an odd output channel is stored less 1 if the previous channel's weight is negative: both are then the fields of
    one number.
    """
    count, channels, rows, columns = weights.shape
    whole = np.zeros((maps, -(-channels // CHAIN) * CHAIN, rows, columns), np.int64)
    whole[:count, :channels] = weights
    whole[1::2] -= whole[::2] < 0
    assert whole.min(initial=0) >= -128
    assert whole.max(initial=0) < 128
    by_block = (whole[:, first : first + LANES] for first in range(0, channels, LANES))
    steps = [block.transpose(2, 3, 1, 0).astype(np.int8).tobytes() for block in by_block]
    return b"".join(steps)


def pack_channelwise(weights: np.ndarray, maps: int) -> bytes:
    """Return channelwise weights ``(steps, 8)`` as bytes, in the order of array cycles (steps).

    In each step, lane ``j`` has a weight for channel ``j % 4`` only; its other weights are 0. Pairs of weights are
    stored as in `pack_weights`.
    """
    packed = np.zeros((len(weights), CHAIN, maps), np.int8)
    lanes = np.arange(LANES)
    packed[:, lanes % CHAIN, lanes] = weights
    packed[:, :, 1::2] -= packed[:, :, ::2] < 0
    return packed.tobytes()


def parameter_words(bias: np.ndarray, significand: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return bias, significand and shift of each output channel in one 64-bit word, uint64 ``(M,)``.

    A shift above `MAX_SHIFT` is stored as `MAX_SHIFT`: both give zero, because the product of a sum and a significand
    is below 2**57.
    """
    assert ((SIGNIFICANDS[0] <= significand) & (significand < SIGNIFICANDS[1])).all()
    words = (bias.astype(np.int64) & 0xFFFFFFFF).astype(np.uint64)
    words |= significand.astype(np.uint64) << np.uint64(32)
    return words | np.minimum(shift, MAX_SHIFT).astype(np.uint64) << np.uint64(56)


def pack_parameters(words: np.ndarray) -> bytes:
    """Return the parameter words of output channels as bytes, padded with zeros to a multiple of 8 words."""
    whole = np.zeros(blocks(len(words)) * LANES, "<u8")
    whole[: len(words)] = words
    return whole.tobytes()


def by_value(entries: np.ndarray, integer_type: IntegerType) -> np.ndarray:
    """Return, as an array, a lookup table ordered by the byte stored for an input value, padded to 256 entries.

    ``entries`` are in the order of the type's values, from the smallest to the largest.
    """
    positions = np.arange(integer_type.minimum, integer_type.maximum + 1) - offset(integer_type)
    table = np.zeros(TABLE_WORDS, np.int64)
    table[positions & TABLE_WORDS - 1] = entries
    return table


def pack_tables(entries: np.ndarray) -> bytes:
    """Return lookup tables ``(n, 256)`` as bytes, 8 per entry, as memory stores them."""
    return entries.astype("<i8").tobytes()
