"""Conversion of frames to stream beats and back, and random stalls of sources and sinks, for any simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hwgen.errors import InputError
from hwgen.gateware.stream import BeatFormat, Order

_BLOCK = 1 << 25
"""Maximum number of bits that are packed into stream payloads, or unpacked, at a time; limits memory use."""


def payload_words(beat: BeatFormat) -> int:
    """Return the number of 32-bit words that hold one payload of a stream: all values and ``last``."""
    return beat.data_bits // 32 + 1


def dtype(beat: BeatFormat) -> np.dtype:
    """Return the smallest NumPy dtype that holds the values in a stream's beats.

    Raises
    ------
    InputError
        If values have more than 64 bits.
    """
    if beat.bits > 64:
        raise InputError(f"values must have at most 64 bits to be simulated, not {beat.bits}")
    return np.dtype(f"{'' if beat.signed else 'u'}int{8 * beat.value_bytes}")


@lru_cache(maxsize=16)
def pixel_sequence(height: int, width: int, order: Order) -> np.ndarray:
    """Return the pixel indices of a map in the order that a stream carries them, int64 ``(N,)``.

    Pixel ``row * width + column`` of a ``height x width`` map can be missing, or occur several times.

    Raises
    ------
    InputError
        If the order reaches beyond the map.
    """
    if max(end for _, end in order.rows) > height or max(end for _, end in order.columns) > width:
        raise InputError(f"an order must keep to the {height} x {width} map, not {order}")
    spans = [(rows, columns) for rows in order.rows for columns in order.columns]
    rectangles = [np.arange(*rows)[:, None] * width + np.arange(*columns) for rows, columns in spans]
    return np.concatenate([rectangle.ravel() for rectangle in rectangles])


@lru_cache(maxsize=16)
def step_pixels(beat: BeatFormat, order: Order) -> np.ndarray:
    """Return an array ``(steps,)``: the number of pixels in each of a frame's beats that carry any one channel."""
    rows = [
        [min(first + beat.pixels, end) - max(first, begin) for first in firsts]
        for (begin, end), firsts in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    ]
    return np.concatenate([np.tile(row, end - begin) for begin, end in order.rows for row in rows])


def beat_bytes(beat: BeatFormat, order: Order) -> np.ndarray:
    """Return the number of bytes of map values that each beat of a frame carries, as an array ``(beats,)``.

    A value has the bytes of its NumPy type. Lanes past the last channel and pixels outside the rectangle count 0.
    """
    channels = np.array([len(channels) for channels in beat.fold_channels])
    return (step_pixels(beat, order)[:, None] * channels * beat.value_bytes).ravel()


@lru_cache(maxsize=4)  # large maps, large arrays
def _slots(beat: BeatFormat, order: Order) -> np.ndarray:
    """Return each map value's position among all values in a frame's beats, an array ``(channels, pixels)``.

    Pixels are in the order of the stream.
    """
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
    """Return integer frames ``(n, C, H, W)`` as the payloads of a stream, uint32 words ``(beats, words)``.

    Parameters
    ----------
    frames : ndarray
        Integers ``(n, C, H, W)``.
    beat : BeatFormat
        Format of the stream's beats.
    order : Order, optional
        Order of the stream's pixels. The default is row-major.

    Returns
    -------
    ndarray
        uint32 ``(n * beats, payload_words(beat))``, the lowest word first.

    Raises
    ------
    InputError
        If the shape of the frames does not fit the beats, or a value does not fit ``beat.shape``.
    """
    expected = (beat.channels, beat.height, beat.width)
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"frames must have shape (n, {', '.join(map(str, expected))}), n at least 1, not {shape}")
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
        # Negative values become 64-bit two's complement, whose low bits the stream carries.
        values = block.astype(np.int64, copy=False).view(np.uint64).reshape(len(block), beat.channels, -1)
        lanes = np.zeros((len(block), beats * beat.lanes * beat.pixels), np.uint64)
        lanes[:, _slots(beat, order)] = values[:, :, pixel_sequence(beat.height, beat.width, order)]
        lanes = lanes.reshape(len(block) * beats, -1)
        bits = np.zeros((len(lanes), words * 32), np.uint8)
        for bit in range(beat.bits):
            bits[:, bit : beat.data_bits : beat.bits] = (lanes >> np.uint64(bit)) & np.uint64(1)
        bits = bits.reshape(len(block), beats, -1)
        bits[:, -1, beat.data_bits] = 1
        result[first : first + step] = np.packbits(bits, axis=-1, bitorder="little").view("<u4")
    return result.reshape(-1, words)


def unpack(payloads: np.ndarray, beat: BeatFormat, order: Order | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair: pixels ``(n, C, N)`` of complete frames, in stream order, and ``last`` flags, from payloads.

    Parameters
    ----------
    payloads : ndarray
        uint32 ``(n * beats, payload_words(beat))``. Beats of an incomplete last frame are left out.
    beat : BeatFormat
        Format of the stream's beats.
    order : Order, optional
        Order of the stream's pixels. The default is row-major.

    Returns
    -------
    tuple of ndarray
        Pixels ``(n, C, N)`` of type ``dtype(beat)``, where pixel ``k`` is pixel ``pixel_sequence(H, W, order)[k]`` of
        the map, and ``last`` of each payload, bool ``(n * beats,)``.
    """
    order = order or beat.raster
    value_type, beats, slots = dtype(beat), order.beats(beat), _slots(beat, order)
    count = len(payloads) // beats
    pixels = np.empty((count, *slots.shape), value_type)
    step = max(1, _BLOCK // (beats * payloads.shape[1] * 32))
    for first in range(0, count, step):
        block = payloads[first * beats : min(first + step, count) * beats]
        bits = np.unpackbits(np.ascontiguousarray(block, "<u4").view(np.uint8), axis=1, bitorder="little")
        lanes = np.zeros((len(block), beat.lanes * beat.pixels), np.int64)
        for bit in range(beat.bits):
            lanes |= bits[:, bit : beat.data_bits : beat.bits].astype(np.int64) << bit
        if beat.signed and beat.bits < 64:
            lanes -= (lanes >> (beat.bits - 1)) << beat.bits
        pixels[first : first + step] = lanes.reshape(len(block) // beats, -1)[:, slots].astype(value_type)
    word, bit = divmod(beat.data_bits, 32)
    return pixels, (payloads[:, word] >> np.uint32(bit) & np.uint32(1)).astype(bool)


def value_bits(beat: BeatFormat, order: Order | None = None) -> list[int]:
    """Return a list of bit masks for the payloads of a frame's beats: ones at the bits of values and at ``last``.

    The other bits belong to lanes without a value.
    """
    order = order or beat.raster
    lanes = np.zeros((order.beats(beat), beat.lanes * beat.pixels), bool)
    lanes.reshape(-1)[_slots(beat, order)] = True
    bits = np.repeat(lanes, beat.bits, axis=1)
    rows = np.packbits(bits, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") | 1 << beat.data_bits for row in rows]


def to_maps(pixels: np.ndarray, beat: BeatFormat, order: Order | None = None) -> np.ndarray:
    """Return feature maps ``(n, C, H, W)`` for pixels ``(n, C, N)`` in the order of a stream.

    A pixel that the stream does not carry is 0. A pixel that it carries several times has its last value.
    """
    maps = np.zeros((*pixels.shape[:2], beat.frame_pixels), pixels.dtype)
    maps[:, :, pixel_sequence(beat.height, beat.width, order or beat.raster)] = pixels
    return maps.reshape(*pixels.shape[:2], beat.height, beat.width)


def integers(payloads: np.ndarray) -> list[int]:
    """Return stream payloads as a list of Python integers, from rows of uint32 words."""
    size = payloads.shape[1] * 4
    raw = np.ascontiguousarray(payloads, "<u4").tobytes()
    return [int.from_bytes(raw[first : first + size], "little") for first in range(0, len(raw), size)]


def words(values: list[int], beat: BeatFormat) -> np.ndarray:
    """Return stream payloads, Python integers, as uint32 words ``(n, payload_words(beat))``.

    This is the inverse of `integers`.
    """
    count = payload_words(beat)
    raw = b"".join(value.to_bytes(count * 4, "little") for value in values)
    return np.frombuffer(raw, "<u4").reshape(-1, count).astype(np.uint32)


def to_hex(payloads: np.ndarray, beat: BeatFormat) -> bytes:
    """Return the bytes of a file for ``$readmemh`` with one stream payload per line."""
    digits = -(-(beat.data_bits + 1) // 4)
    return "".join(f"{value:0{digits}x}\n" for value in integers(payloads)).encode()


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Random stalls of a simulated design's sources and sinks: (generator state, threshold) of each.

    Every source and sink draws a random number per cycle from its own generator (xorshift32, Marsaglia 2003), and
    stalls if the upper 24 bits are below a threshold. A source that has raised ``valid`` keeps it until the transfer.

    Parameters
    ----------
    sources : tuple of tuple of int
        Initial state of the generator and threshold, for each input.
    sinks : tuple of tuple of int
        Initial state of the generator and threshold, for each output.
    """

    sources: tuple[tuple[int, int], ...]
    sinks: tuple[tuple[int, int], ...]

    @classmethod
    def make(cls, probabilities: Sequence[float] | None, seed: int, outputs: int = 1, inputs: int = 1) -> Stalls:
        """Return random `Stalls` from a seed and probabilities per cycle, for sources, then for all sinks or each.

        Parameters
        ----------
        probabilities : sequence of float, optional
            Probability that a source stalls in a cycle, followed by the probability of all sinks, or of each sink.
            None lets no side stall.
        seed : int
            Seed of the generators.
        outputs, inputs : int
            Number of outputs, and of inputs.

        Raises
        ------
        InputError
            If a probability does not lie in [0, 1), or if the number of probabilities is wrong.
        """
        chances = tuple(probabilities or (0.0, 0.0))
        if len(chances) == 2:
            chances += chances[1:] * (outputs - 1)
        if len(chances) != 1 + outputs:
            wanted = "2" if outputs == 1 else f"2, or {1 + outputs}"
            raise InputError(
                f"probabilities of stalls must be {wanted} (of the source, then of the outputs), not {len(chances)}"
            )
        pairs = []
        for side, probability in enumerate((*chances, *chances[:1] * (inputs - 1))):
            if not 0 <= probability < 1:
                raise InputError(f"probabilities of stalls must lie in [0, 1), not {probability!r}")
            state = (seed * 2 + side) * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF
            pairs.append((state or 1, round(probability * (1 << 24))))
        return cls(sources=(pairs[0], *pairs[1 + outputs :]), sinks=tuple(pairs[1 : 1 + outputs]))


def draws(pair: tuple[int, int]) -> Iterator[bool]:
    """Yield, per cycle, a boolean: a simulated source or sink stalls; from generator state and threshold."""
    state, threshold = pair
    while True:
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        yield state >> 8 < threshold
