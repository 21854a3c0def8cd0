"""Golden model: computes a network with NumPy in integers, and with float32 rounding where ONNX Runtime has it.

Each operator computes its own layers (`hwgen.network.ops`).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.progress import tell

PART_VALUES = 1 << 22
"""Maximum number of values that are read from memory-mapped frame arrays at once, summed over all arrays."""


def frame_parts(arrays: Sequence[np.ndarray], multiple: int = 1) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield pairs that divide frame arrays into parts that fit in memory: first frame's index, a slice of each array.

    There is at least one part; the parts follow one another.

    Parameters
    ----------
    arrays : sequence of ndarray
        Arrays ``(n, ...)`` of equally many frames. Mapped pages are released after each part.
    multiple : int
        The number of frames in every part but the last is a multiple of this number.
    """
    count = len(arrays[0])
    values = sum(max(1, array[:1].size) for array in arrays)
    step = -(-max(1, PART_VALUES // values) // multiple) * multiple
    for begin in range(0, max(count, 1), step):
        yield begin, tuple(array[begin : begin + step] for array in arrays)
        for array in arrays:
            release(array)


def release(array: np.ndarray) -> None:
    """Release the memory pages of an array that is mapped from a file. Later accesses read the file again."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


Frames = np.ndarray | Sequence[np.ndarray]
"""Type of a network's input frames: an integer array ``(n, C, H, W)``, or a sequence of one array per input."""


def by_input(frames: Frames) -> tuple[np.ndarray, ...]:
    """Return a tuple with the array of frames of each network input, from a single array or a sequence of arrays."""
    return (frames,) if isinstance(frames, np.ndarray) else tuple(frames)


def run(network: Network, frames: Frames) -> np.ndarray:
    """Compute a single-output network on input frames; return its outputs, an integer array ``(n, C, H, W)``.

    Raises
    ------
    InputError
        If ``frames`` has another shape or type.
    ConfigError
        If the network has several outputs.
    """
    network.output  # noqa: B018 (there must be one)
    return outputs(network, frames)[0]


def outputs(network: Network, frames: Frames, begin: int = 0, total: int | None = None) -> tuple[np.ndarray, ...]:
    """Return a tuple of a network's output maps, each an array ``(n, C, H, W)``, computed for input frames.

    Parameters
    ----------
    frames : ndarray, or sequence of ndarray
        Frames of each input, as for :func:`run`.
    begin, total : int
        Index of the first frame among ``total`` frames, for messages about progress.

    Raises
    ------
    InputError
        If ``frames`` has another shape or type.
    """
    sources = check_frames(network, frames)
    total = len(sources[0]) if total is None else total
    results = tuple(np.empty((len(sources[0]), *end.shape), end.type.dtype) for end in network.output_maps)
    for first, part in frame_parts(sources):
        for frame_index, frame in enumerate(zip(*part, strict=True), first):
            tell(f"{network.name}: golden model", begin + frame_index, total, "frame")
            for layer, values in _layers(network, [values[None] for values in frame], {}):
                for output_index in network.output_indices(layer.name):
                    results[output_index][frame_index] = values[0]
    return results


def trace(
    network: Network, frames: Frames, replaced: Mapping[str, np.ndarray] | None = None
) -> Iterator[tuple[Op, np.ndarray]]:
    """Yield pairs of an `Op` and its output maps ``(n, C, H, W)``, in order, as the network is computed.

    Parameters
    ----------
    frames : ndarray, or sequence of ndarray
        Frames of each input, as for :func:`run`.
    replaced : mapping of str to ndarray, optional
        Output maps that later layers read in place of the computed ones, by the layer's name.
    """
    yield from _layers(network, check_frames(network, frames), replaced or {})


def _layers(
    network: Network, frames: Sequence[np.ndarray], replaced: Mapping[str, np.ndarray]
) -> Iterator[tuple[Op, np.ndarray]]:
    """Yield pairs of a layer and its output maps ``(n, C, H, W)``, in order, computed for checked frames.

    A map is dropped when its last reader is computed. Layers read the maps ``replaced`` in place of the computed ones.
    """
    maps = dict(zip(network.inputs, frames, strict=True))
    last = {edge: index for index, edges in enumerate(network.edges) for edge in edges}
    for index, (layer, edges) in enumerate(zip(network.layers, network.edges, strict=True)):
        outputs = np.empty((len(frames[0]), *layer.output.shape), layer.output.type.dtype)
        for frame_index, output in enumerate(outputs):
            output[:] = layer.compute(*(maps[edge][frame_index] for edge in edges))
        maps[layer.name] = replaced[layer.name].astype(outputs.dtype) if layer.name in replaced else outputs
        for edge in {edge for edge in edges if last[edge] == index}:
            del maps[edge]
        yield layer, outputs


def check_frames(network: Network, frames: Frames) -> tuple[np.ndarray, ...]:
    """Check the frames of a network's inputs (numbers, shapes, types), and return them as a tuple, one array per input.

    Raises
    ------
    InputError
        If an input has no frames, inputs have different numbers of frames, or a shape or type differs.
    """
    sources = by_input(frames)
    if len(sources) != len(network.inputs):
        names = ", ".join(network.input_names)
        raise InputError(f"{network.name}: frames must have {len(network.inputs)} inputs ({names}), not {len(sources)}")
    for edge, expected, values in zip(network.inputs, network.input_maps, sources, strict=True):
        check_input(f"{network.name}: input{edge and ' '}{edge}", expected, values)
    if len(counts := {len(values) for values in sources}) > 1:
        raise InputError(f"{network.name}: inputs must have as many frames, not {' and '.join(map(str, counts))}")
    return sources


def check_input(what: str, expected: FeatureMap, frames: np.ndarray) -> None:
    """Raise InputError unless a network input's frames ``(n, C, H, W)``, ``n > 0``, match its map's shape and type.

    Raises
    ------
    InputError
        If a shape, type or value differs. The message begins with ``what``.
    """
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected.shape or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"{what} must have shape (frames, {_sizes(expected)}), not {shape}")
    if frames.dtype != expected.type.dtype:
        raise InputError(f"{what} must be {expected.type.dtype} here, not {frames.dtype}")
    ends = [(int(part.min()), int(part.max())) for _, (part,) in frame_parts([frames])]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low < expected.type.minimum or high > expected.type.maximum:
        raise InputError(f"{what} must lie in {expected.type}, not reach from {low} to {high}")


def _sizes(feature_map: FeatureMap) -> str:
    return ", ".join(map(str, feature_map.shape))
