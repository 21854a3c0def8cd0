"""Frames to beats and back, and the stalls of source and sink: the same for every simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hwgen.errors import InputError
from hwgen.gateware.stream import BeatFormat

_BLOCK = 1 << 25  # bits unpacked at once


def payload_words(beat: BeatFormat) -> int:
    """32-bit words that hold one payload (``last`` included)."""
    return beat.data_bits // 32 + 1


def dtype(beat: BeatFormat) -> np.dtype:
    """The smallest NumPy type that holds a value."""
    width = next((w for w in (8, 16, 32, 64) if w >= beat.bits), None)
    if width is None:
        raise InputError(f"values must have at most 64 bits to be simulated, not {beat.bits}")
    return np.dtype(f"{'' if beat.signed else 'u'}int{width}")


def pack(frames: np.ndarray, beat: BeatFormat) -> np.ndarray:
    """Payloads of a stream.

    Parameters
    ----------
    frames : ndarray
        ``(n, C, H, W)`` integers.
    beat : BeatFormat

    Returns
    -------
    ndarray
        ``(n * beat.beats, payload_words(beat))`` uint32, the lowest word first.

    Raises
    ------
    InputError
        If the shape does not fit, or a value does not fit ``beat.shape``.
    """
    expected = (beat.channels, beat.height, beat.width)
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"frames must be of shape (n, {', '.join(map(str, expected))}), n at least 1, not {shape}")
    if frames.dtype.kind not in "iu":
        raise InputError(f"frames must be integers, not {frames.dtype}")
    low, high = int(frames.min()), int(frames.max())
    span = 1 << beat.bits
    minimum, maximum = (-span >> 1, (span >> 1) - 1) if beat.signed else (0, span - 1)
    if low < minimum or high > maximum:
        raise InputError(f"frames must lie in {minimum} .. {maximum}, not reach from {low} to {high}")
    dtype(beat)
    words = payload_words(beat)
    result = np.zeros((len(frames), beat.beats, words), np.uint32)
    step = max(1, _BLOCK // (beat.beats * words * 32))
    for first in range(0, len(frames), step):
        block = frames[first : first + step]
        # Negative values become two's complement of 64 bits; their low bits are what travels.
        lanes = arrange(block.astype(np.int64, copy=False).view(np.uint64), beat)
        bits = np.zeros((len(lanes), words * 32), np.uint8)
        for bit in range(beat.bits):
            bits[:, bit : beat.data_bits : beat.bits] = (lanes >> np.uint64(bit)) & np.uint64(1)
        bits = bits.reshape(len(block), beat.beats, -1)
        bits[:, -1, beat.data_bits] = 1
        result[first : first + step] = np.packbits(bits, axis=-1, bitorder="little").view("<u4")
    return result.reshape(-1, words)


def arrange(frames: np.ndarray, beat: BeatFormat) -> np.ndarray:
    """Values by beat: from ``(n, C, H, W)`` to ``(n * beat.beats, lanes * pixels)``; zero where there is none."""
    count, width = len(frames), beat.row_steps * beat.pixels
    lanes = np.zeros((count, beat.folds * beat.lanes, beat.height, width), frames.dtype)
    lanes[:, _lane_of_channel(beat), :, : beat.width] = frames
    lanes = lanes.reshape(count, beat.folds, beat.lanes, beat.height, beat.row_steps, beat.pixels)
    return lanes.transpose(0, 3, 4, 1, 2, 5).reshape(-1, beat.lanes * beat.pixels)


def rearrange(values: np.ndarray, beat: BeatFormat) -> np.ndarray:
    """Frames from values by beat: the reverse of ``arrange``."""
    lanes = values.reshape(-1, beat.height, beat.row_steps, beat.folds, beat.lanes, beat.pixels)
    lanes = lanes.transpose(0, 3, 4, 1, 2, 5).reshape(len(lanes), beat.folds * beat.lanes, beat.height, -1)
    return lanes[:, _lane_of_channel(beat), :, : beat.width]


def _lane_of_channel(beat: BeatFormat) -> np.ndarray:
    """Where each channel of a pixel lies, counting the lanes of all its beats."""
    return np.concatenate([fold * beat.lanes + np.arange(len(c)) for fold, c in enumerate(beat.fold_channels)])


def unpack(payloads: np.ndarray, beat: BeatFormat) -> tuple[np.ndarray, np.ndarray]:
    """Frames from payloads: the reverse of ``pack``.

    Parameters
    ----------
    payloads : ndarray
        ``(n * beat.beats, payload_words(beat))`` uint32; beats of a frame that is not complete are left out.
    beat : BeatFormat

    Returns
    -------
    tuple of ndarray
        Frames ``(n, C, H, W)`` of ``dtype(beat)``, and ``last`` of every payload as bool ``(n * beat.beats,)``.
    """
    kind = dtype(beat)
    count = len(payloads) // beat.beats
    frames = np.empty((count, beat.channels, beat.height, beat.width), kind)
    step = max(1, _BLOCK // (beat.beats * payloads.shape[1] * 32))
    for first in range(0, count, step):
        block = payloads[first * beat.beats : min(first + step, count) * beat.beats]
        bits = np.unpackbits(np.ascontiguousarray(block, "<u4").view(np.uint8), axis=1, bitorder="little")
        lanes = np.zeros((len(block), beat.lanes * beat.pixels), np.int64)
        for bit in range(beat.bits):
            lanes |= bits[:, bit : beat.data_bits : beat.bits].astype(np.int64) << bit
        if beat.signed and beat.bits < 64:
            lanes -= (lanes >> (beat.bits - 1)) << beat.bits
        frames[first : first + step] = rearrange(lanes, beat).astype(kind)
    word, bit = divmod(beat.data_bits, 32)
    return frames, (payloads[:, word] >> np.uint32(bit) & np.uint32(1)).astype(bool)


def integers(payloads: np.ndarray) -> list[int]:
    """Payloads as Python integers."""
    size = payloads.shape[1] * 4
    raw = np.ascontiguousarray(payloads, "<u4").tobytes()
    return [int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]


def words(values: list[int], beat: BeatFormat) -> np.ndarray:
    """Python integers as payloads ``(n, payload_words(beat))``: the reverse of ``integers``."""
    count = payload_words(beat)
    raw = b"".join(value.to_bytes(count * 4, "little") for value in values)
    return np.frombuffer(raw, "<u4").reshape(-1, count).astype(np.uint32)


def to_hex(payloads: np.ndarray, beat: BeatFormat) -> bytes:
    """A file for ``$readmemh``: one payload a line."""
    digits = -(-(beat.data_bits + 1) // 4)
    return "".join(f"{value:0{digits}x}\n" for value in integers(payloads)).encode()


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Random stalls of source and sink.

    In every cycle each side draws a number from a generator of its own (xorshift32, Marsaglia 2003) and stalls when
    its upper 24 bits are below the threshold. A source that has raised ``valid`` keeps it until the transfer.
    ``source`` and ``sink`` are the (state, threshold) pairs at the start.
    """

    source: tuple[int, int]
    sink: tuple[int, int]

    @classmethod
    def make(cls, probabilities: tuple[float, float] | None, seed: int) -> Stalls:
        """From the probabilities of a stall (source, sink); ``None``: neither ever stalls.

        Raises
        ------
        InputError
            If a probability does not lie in [0, 1).
        """
        pairs = []
        for side, probability in enumerate(probabilities or (0.0, 0.0)):
            if not 0 <= probability < 1:
                raise InputError(f"probabilities of stalls must lie in [0, 1), not {probability!r}")
            state = (seed * 2 + side) * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF
            pairs.append((state or 1, round(probability * (1 << 24))))
        return cls(source=pairs[0], sink=pairs[1])


def draws(pair: tuple[int, int]) -> Iterator[bool]:
    """Whether to stall, cycle by cycle."""
    state, threshold = pair
    while True:
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        yield state >> 8 < threshold
