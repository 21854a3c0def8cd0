"""Frames to beats and back, and the stalls of source and sink: the same for every simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwgen.errors import InputError
from hwgen.gateware.stream import BeatFormat, Order

_BLOCK = 1 << 25  # bits unpacked at once


def payload_words(beat: BeatFormat) -> int:
    """32-bit words that hold one payload (``last`` included)."""
    return beat.data_bits // 32 + 1


def dtype(beat: BeatFormat) -> np.dtype:
    """The smallest NumPy type that holds a value."""
    if beat.bits > 64:
        raise InputError(f"values must have at most 64 bits to be simulated, not {beat.bits}")
    return np.dtype(f"{'' if beat.signed else 'u'}int{8 * beat.value_bytes}")


@lru_cache(maxsize=16)
def places(height: int, width: int, order: Order) -> np.ndarray:
    """The pixels of a ``height x width`` map, ``row * width + column``, in the order in which they travel: ``(N,)``.

    Raises
    ------
    InputError
        If the order reaches beyond the map.
    """
    if max(end for _, end in order.rows) > height or max(end for _, end in order.columns) > width:
        raise InputError(f"an order must keep to the {height} x {width} map, not {order}")
    spans = [(rows, columns) for rows in order.rows for columns in order.columns]
    parts = [np.arange(*rows)[:, None] * width + np.arange(*columns) for rows, columns in spans]
    return np.concatenate([part.ravel() for part in parts])


@lru_cache(maxsize=16)
def step_pixels(beat: BeatFormat, order: Order) -> np.ndarray:
    """Pixels that each beat of a frame carries, of one fold: ``(steps,)``."""
    rows = [
        [min(first + beat.pixels, end) - max(first, begin) for first in firsts]
        for (begin, end), firsts in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    ]
    return np.concatenate([np.tile(row, end - begin) for begin, end in order.rows for row in rows])


def beat_bytes(beat: BeatFormat, order: Order) -> np.ndarray:
    """Bytes that each beat of a frame moves, ``(beats,)``: those of its values, each as wide as its NumPy type.

    Lanes past the last channel and pixels outside the rectangle move nothing.
    """
    channels = np.array([len(channels) for channels in beat.fold_channels])
    return (step_pixels(beat, order)[:, None] * channels * beat.value_bytes).ravel()


@lru_cache(maxsize=4)  # large maps, large arrays
def _slots(beat: BeatFormat, order: Order) -> np.ndarray:
    """Where each channel of each travelling pixel lies, counting the values of a frame's beats: ``(C, N)``."""
    counts = step_pixels(beat, order)
    step = np.repeat(np.arange(len(counts)), counts)
    slots = [
        (np.arange(*span) - firsts.start) % beat.pixels
        for span, firsts in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    ]
    slot = np.concatenate([np.tile(row, end - begin) for begin, end in order.rows for row in slots])
    lane = np.concatenate([fold * beat.lanes + np.arange(len(c)) for fold, c in enumerate(beat.fold_channels)])
    return (step * beat.folds * beat.lanes + lane[:, None]) * beat.pixels + slot


def pack(frames: np.ndarray, beat: BeatFormat, order: Order | None = None) -> np.ndarray:
    """Payloads of a stream.

    Parameters
    ----------
    frames : ndarray
        ``(n, C, H, W)`` integers.
    beat : BeatFormat
    order : Order, optional
        In which the pixels travel; row-major if not given.

    Returns
    -------
    ndarray
        ``(n * beats, payload_words(beat))`` uint32, the lowest word first.

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
    order = order or beat.raster
    words, beats = payload_words(beat), order.beats(beat)
    result = np.zeros((len(frames), beats, words), np.uint32)
    step = max(1, _BLOCK // (beats * words * 32))
    for first in range(0, len(frames), step):
        block = frames[first : first + step]
        # Negative values become two's complement of 64 bits; their low bits are what travels.
        values = block.astype(np.int64, copy=False).view(np.uint64).reshape(len(block), beat.channels, -1)
        lanes = np.zeros((len(block), beats * beat.lanes * beat.pixels), np.uint64)
        lanes[:, _slots(beat, order)] = values[:, :, places(beat.height, beat.width, order)]
        lanes = lanes.reshape(len(block) * beats, -1)
        bits = np.zeros((len(lanes), words * 32), np.uint8)
        for bit in range(beat.bits):
            bits[:, bit : beat.data_bits : beat.bits] = (lanes >> np.uint64(bit)) & np.uint64(1)
        bits = bits.reshape(len(block), beats, -1)
        bits[:, -1, beat.data_bits] = 1
        result[first : first + step] = np.packbits(bits, axis=-1, bitorder="little").view("<u4")
    return result.reshape(-1, words)


def unpack(payloads: np.ndarray, beat: BeatFormat, order: Order | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The pixels of complete frames, as they travelled.

    Parameters
    ----------
    payloads : ndarray
        ``(n * beats, payload_words(beat))`` uint32; beats of a frame that is not complete are left out.
    beat : BeatFormat
    order : Order, optional
        In which the pixels travel; row-major if not given.

    Returns
    -------
    tuple of ndarray
        Pixels ``(n, C, N)`` of ``dtype(beat)``, where pixel ``k`` is the map's ``places(H, W, order)[k]``; and
        ``last`` of every payload as bool ``(n * beats,)``.
    """
    order = order or beat.raster
    kind, beats, slots = dtype(beat), order.beats(beat), _slots(beat, order)
    count = len(payloads) // beats
    pixels = np.empty((count, *slots.shape), kind)
    step = max(1, _BLOCK // (beats * payloads.shape[1] * 32))
    for first in range(0, count, step):
        block = payloads[first * beats : min(first + step, count) * beats]
        bits = np.unpackbits(np.ascontiguousarray(block, "<u4").view(np.uint8), axis=1, bitorder="little")
        lanes = np.zeros((len(block), beat.lanes * beat.pixels), np.int64)
        for bit in range(beat.bits):
            lanes |= bits[:, bit : beat.data_bits : beat.bits].astype(np.int64) << bit
        if beat.signed and beat.bits < 64:
            lanes -= (lanes >> (beat.bits - 1)) << beat.bits
        pixels[first : first + step] = lanes.reshape(len(block) // beats, -1)[:, slots].astype(kind)
    word, bit = divmod(beat.data_bits, 32)
    return pixels, (payloads[:, word] >> np.uint32(bit) & np.uint32(1)).astype(bool)


def value_bits(beat: BeatFormat, order: Order | None = None) -> list[int]:
    """For each beat of a frame a number with ones where its payload carries values, and at ``last``."""
    order = order or beat.raster
    lanes = np.zeros((order.beats(beat), beat.lanes * beat.pixels), bool)
    lanes.reshape(-1)[_slots(beat, order)] = True
    bits = np.repeat(lanes, beat.bits, axis=1)
    rows = np.packbits(bits, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") | 1 << beat.data_bits for row in rows]


def to_maps(pixels: np.ndarray, beat: BeatFormat, order: Order | None = None) -> np.ndarray:
    """Maps ``(n, C, H, W)`` of pixels ``(n, C, N)`` as they travelled; zero where none did, the last where several."""
    maps = np.zeros((*pixels.shape[:2], beat.frame_pixels), pixels.dtype)
    maps[:, :, places(beat.height, beat.width, order or beat.raster)] = pixels
    return maps.reshape(*pixels.shape[:2], beat.height, beat.width)


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
    """Random stalls of sources and sinks.

    In every cycle each side draws a number from a generator of its own (xorshift32, Marsaglia 2003) and stalls when
    its upper 24 bits are below the threshold. A source that has raised ``valid`` keeps it until the transfer.
    ``sources``, one for each input, and ``sinks``, one for each output, are the (state, threshold) pairs at the start.
    """

    sources: tuple[tuple[int, int], ...]
    sinks: tuple[tuple[int, int], ...]

    @classmethod
    def make(cls, probabilities: Sequence[float] | None, seed: int, outputs: int = 1, inputs: int = 1) -> Stalls:
        """From the probabilities of a stall: of every source, and of the sink at each of so many outputs, or at all.

        ``None``: none ever stalls.

        Raises
        ------
        InputError
            If a probability does not lie in [0, 1), or there are not as many as that.
        """
        given = tuple(probabilities or (0.0, 0.0))
        if len(given) == 2:
            given += given[1:] * (outputs - 1)
        if len(given) != 1 + outputs:
            wanted = "2" if outputs == 1 else f"2, or {1 + outputs}"
            raise InputError(
                f"probabilities of stalls must be {wanted} (of the source, and behind it), not {len(given)}"
            )
        pairs = []
        for side, probability in enumerate((*given, *given[:1] * (inputs - 1))):
            if not 0 <= probability < 1:
                raise InputError(f"probabilities of stalls must lie in [0, 1), not {probability!r}")
            state = (seed * 2 + side) * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF
            pairs.append((state or 1, round(probability * (1 << 24))))
        return cls(sources=(pairs[0], *pairs[1 + outputs :]), sinks=tuple(pairs[1 : 1 + outputs]))


def draws(pair: tuple[int, int]) -> Iterator[bool]:
    """Whether to stall, cycle by cycle."""
    state, threshold = pair
    while True:
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        yield state >> 8 < threshold
