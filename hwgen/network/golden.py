"""The golden model: a network computed in integers, with NumPy; float32 where ONNX Runtime rounds to it.

What a layer computes is its operator's own (`hwgen.network.ops`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op


def run(network: Network, frames: np.ndarray) -> np.ndarray:
    """The only output ``(n, C, H, W)`` of the output type for ``frames``, ``(n, C, H, W)`` of the input type.

    Raises InputError where ``frames`` has another shape or type, ConfigError where the network has several outputs.
    """
    network.output  # noqa: B018 (there must be one)
    return outputs(network, frames)[0]


def outputs(network: Network, frames: np.ndarray) -> tuple[np.ndarray, ...]:
    """All outputs, each ``(n, C, H, W)`` of its type, in the network's order; ``frames`` as in :func:`run`."""
    check_frames(network, frames)
    found = tuple(np.empty((len(frames), *each.shape), each.type.dtype) for each in network.output_maps)
    for number, frame in enumerate(frames):
        for layer, values in _layers(network, frame[None]):
            for place in network.places(layer.name):
                found[place][number] = values[0]
    return found


def trace(network: Network, frames: np.ndarray) -> Iterator[tuple[Op, np.ndarray]]:
    """Each layer in turn with its outputs ``(n, C, H, W)``; ``frames`` as in :func:`run`."""
    check_frames(network, frames)
    yield from _layers(network, frames)


def _layers(network: Network, frames: np.ndarray) -> Iterator[tuple[Op, np.ndarray]]:
    """The same; maps that no layer reads any more are forgotten."""
    maps = {INPUT: frames}
    last = {edge: number for number, edges in enumerate(network.edges) for edge in edges}
    for number, (layer, edges) in enumerate(zip(network.layers, network.edges, strict=True)):
        outputs = np.empty((len(frames), *layer.output.shape), layer.output.type.dtype)
        for place, output in enumerate(outputs):
            output[:] = layer.compute(*(maps[edge][place] for edge in edges))
        maps[layer.name] = outputs
        for edge in {edge for edge in edges if last[edge] == number}:
            del maps[edge]
        yield layer, outputs


def check_frames(network: Network, frames: np.ndarray) -> None:
    """Raise InputError unless ``frames`` is ``(n, C, H, W)`` of the network's input type, ``n`` at least 1."""
    expected = network.input
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected.shape or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"{network.name}: input must be of shape (frames, {_sizes(expected)}), not {shape}")
    if frames.dtype != expected.type.dtype:
        raise InputError(f"{network.name}: input must be {expected.type.dtype} here, not {frames.dtype}")
    low, high = int(frames.min()), int(frames.max())
    if low < expected.type.minimum or high > expected.type.maximum:
        raise InputError(f"{network.name}: input must lie in {expected.type}, not reach from {low} to {high}")


def _sizes(feature_map: FeatureMap) -> str:
    return ", ".join(map(str, feature_map.shape))
