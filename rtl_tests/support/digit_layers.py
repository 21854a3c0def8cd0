"""Networks of one layer that the engine computes by digits: sums of several maps, and local response normalisations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from programs import alone

from hwgen.network.float32 import Label
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, IntegerType, Window
from hwgen.network.ops import LRN, Sum
from hwgen.network.ops.lrn import Falls, Scale, magnitudes, to_bits


def summed(scales: list[float], shape: tuple[int, int, int], kind: IntegerType = INT8, seed: int = 0) -> Network:
    """Return a network that adds inputs of given scales; the last scale is that of the output."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    maps = [
        FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=int(zero))
        for zero in rng.integers(kind.minimum, kind.maximum + 1, len(scales))
    ]
    labels = tuple(
        Label(float(np.float32(scale)), source.zero_point) for scale, source in zip(scales, maps, strict=True)
    )
    sides = {"input": maps[0], "more": tuple(maps[1:-1]), "output": maps[-1], "window": Window(kernel=(1, 1))}
    layer = Sum(name="sum", **sides, labels=labels, low=kind.minimum, high=kind.maximum)
    names = tuple(f"input{index}" for index in range(len(scales) - 1))
    return Network(name="summed", layers=(layer,), edges=(names,), inputs=names)


def normalised(
    shape: tuple[int, int, int], kind: IntegerType, size: int, most: int, seed: int = 0, thresholds: int = 1
) -> Network:
    """Return a normalisation whose squares are up to ``most`` steps of float32 at 1; some values have thresholds."""
    rng = np.random.default_rng(seed)
    channels, height, width = shape
    zero, target = (int(each) for each in rng.integers(kind.minimum, kind.maximum + 1, 2))
    source = FeatureMap(channels=channels, height=height, width=width, type=kind, zero_point=zero)
    count = magnitudes(kind.minimum, kind.maximum, zero)
    squares = np.rint(np.arange(count) ** 2 * most / count**2)
    scale = Scale(bias=1.0, size=size, channels=channels, terms=(squares * 2.0**-23).astype(np.float32))
    falling = rng.integers(0, 2, count) * thresholds
    spans = size * int(squares.max()) + 2
    at = np.concatenate([np.sort(rng.integers(0, spans, falls)) + 64 * np.arange(falls) for falls in falling])
    falls = Falls(
        last_distance=np.rint(np.arange(count) * rng.uniform(0.3, 1)).astype(np.int64),
        first=np.cumsum([0, *falling]),
        at=at.astype(np.int64) + int(to_bits(np.float32(1))),
        ripples=np.zeros(len(at), np.int64),
    )
    sides = {"input": source, "output": replace(source, zero_point=target), "window": Window(kernel=(1, 1))}
    return alone(LRN(name="lrn", **sides, scale=scale, falls=falls, low=kind.minimum, high=kind.maximum))
