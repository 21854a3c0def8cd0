"""The golden model: a network computed in integers, with NumPy; float32 where ONNX Runtime rounds to it.

What a layer computes is its operator's own (`hwgen.network.ops`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import Network
from hwgen.network.mapped import parts
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.progress import tell

Frames = np.ndarray | Sequence[np.ndarray]
"""Of a network with one input ``(n, C, H, W)`` of the input's type; of one with several a sequence of such."""


def by_input(frames: Frames) -> tuple[np.ndarray, ...]:
    """The frames of each input."""
    return (frames,) if isinstance(frames, np.ndarray) else tuple(frames)


def run(network: Network, frames: Frames) -> np.ndarray:
    """The only output ``(n, C, H, W)`` of the output type for some frames.

    Raises InputError where ``frames`` has another shape or type, ConfigError where the network has several outputs.
    """
    network.output  # noqa: B018 (there must be one)
    return outputs(network, frames)[0]


def outputs(network: Network, frames: Frames, begin: int = 0, total: int | None = None) -> tuple[np.ndarray, ...]:
    """All outputs, each ``(n, C, H, W)`` of its type, in the network's order; ``frames`` as in :func:`run`.

    Where the frames are a part of more, ``begin`` is the number of the first, of ``total``.
    """
    given = check_frames(network, frames)
    total = len(given[0]) if total is None else total
    found = tuple(np.empty((len(given[0]), *each.shape), each.type.dtype) for each in network.output_maps)
    for first, some in parts(given):
        for number, frame in enumerate(zip(*some, strict=True), first):
            tell(f"{network.name}: golden model", begin + number, total, "frame")
            for layer, values in _layers(network, [values[None] for values in frame]):
                for place in network.places(layer.name):
                    found[place][number] = values[0]
    return found


def trace(network: Network, frames: Frames) -> Iterator[tuple[Op, np.ndarray]]:
    """Each layer in turn with its outputs ``(n, C, H, W)``; ``frames`` as in :func:`run`."""
    yield from _layers(network, check_frames(network, frames))


def _layers(network: Network, frames: Sequence[np.ndarray]) -> Iterator[tuple[Op, np.ndarray]]:
    """The same; maps that no layer reads any more are forgotten."""
    maps = dict(zip(network.inputs, frames, strict=True))
    last = {edge: number for number, edges in enumerate(network.edges) for edge in edges}
    for number, (layer, edges) in enumerate(zip(network.layers, network.edges, strict=True)):
        outputs = np.empty((len(frames[0]), *layer.output.shape), layer.output.type.dtype)
        for place, output in enumerate(outputs):
            output[:] = layer.compute(*(maps[edge][place] for edge in edges))
        maps[layer.name] = outputs
        for edge in {edge for edge in edges if last[edge] == number}:
            del maps[edge]
        yield layer, outputs


def check_frames(network: Network, frames: Frames) -> tuple[np.ndarray, ...]:
    """The frames of each input.

    Raises InputError unless there are as many of each, at least one, ``(n, C, H, W)`` of the input's type.
    """
    given = by_input(frames)
    if len(given) != len(network.inputs):
        names = ", ".join(network.input_names)
        raise InputError(f"{network.name}: frames must be of {len(network.inputs)} inputs ({names}), not {len(given)}")
    for edge, expected, values in zip(network.inputs, network.input_maps, given, strict=True):
        check_input(f"{network.name}: input{edge and ' '}{edge}", expected, values)
    if len(counts := {len(values) for values in given}) > 1:
        raise InputError(f"{network.name}: inputs must have as many frames, not {' and '.join(map(str, counts))}")
    return given


def check_input(what: str, expected: FeatureMap, frames: np.ndarray) -> None:
    """Raise InputError unless ``frames`` is ``(n, C, H, W)`` of this map's type, ``n`` at least 1."""
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected.shape or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"{what} must be of shape (frames, {_sizes(expected)}), not {shape}")
    if frames.dtype != expected.type.dtype:
        raise InputError(f"{what} must be {expected.type.dtype} here, not {frames.dtype}")
    ends = [(int(part.min()), int(part.max())) for _, (part,) in parts([frames])]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if low < expected.type.minimum or high > expected.type.maximum:
        raise InputError(f"{what} must lie in {expected.type}, not reach from {low} to {high}")


def _sizes(feature_map: FeatureMap) -> str:
    return ", ".join(map(str, feature_map.shape))
