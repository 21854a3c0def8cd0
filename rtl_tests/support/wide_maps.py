"""Networks with maps of 17 to 32 bits between convolutions and the next quantiser."""

from __future__ import annotations

import numpy as np

from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.ops import Conv, FixedPoint, GlobalAveragePool, Op, SumPool
from hwgen.network.ops.fixed_point import Curve, Factor, Plus, Times

FRACTION = 18
POINT = Window(kernel=(1, 1))
INPUT_MAP = FeatureMap(channels=3, height=6, width=6, type=UINT8, zero_point=3)


def wide(bits: int, channels: int = 4, side: int = 6) -> FeatureMap:
    """Return a wide map of fixed-point numbers."""
    kind = IntegerType(bits=bits, signed=True)
    return FeatureMap(channels=channels, height=side, width=side, type=kind, scale=2.0**-FRACTION)


def rule(rng: np.random.Generator, output: FeatureMap, factor: float) -> Requantisation:
    """Return a rule that multiplies by about a factor, another one for each channel."""
    fraction, exponent = np.frexp(factor)
    significand = int(fraction * 2**24) - rng.integers(0, 1000, output.channels)
    shift = np.full(output.channels, 24 - int(exponent))
    ends = output.type.minimum, output.type.maximum
    return Requantisation(significand=significand, shift=shift, zero_point=output.zero_point, low=ends[0], high=ends[1])


def conv(rng: np.random.Generator, name: str, source: FeatureMap, output: FeatureMap, factor: float) -> Conv:
    """Return a 3x3 convolution with random weights."""
    return Conv(
        name=name,
        input=source,
        output=output,
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=rng.integers(-127, 128, (output.channels, source.channels, 3, 3)),
        bias=rng.integers(-1000, 1000, output.channels),
        requantisation=rule(rng, output, factor),
    )


def silu(operand: int, first: int) -> tuple[Curve, Times]:
    """Return the steps of SiLU of a value; ``first`` is the index of the first of them."""
    curve = Curve.fitted(
        lambda x: 1 / (1 + np.exp(-x)),
        operand,
        low=-16 << FRACTION,
        segment_bits=FRACTION - 3,
        segments=256,
        fractions=(FRACTION, FRACTION),
    )
    return curve, Times(operands=(operand, first), shift=FRACTION)


def residual() -> Network:
    """Two convolutions whose unquantised sums are added, a SiLU, and a convolution of the quantised result."""
    rng = np.random.default_rng(0)
    first, second = conv(rng, "first", INPUT_MAP, wide(24), 7.3), conv(rng, "second", INPUT_MAP, wide(24), 5.1)
    quantised = FeatureMap(channels=4, height=6, width=6, type=UINT8, zero_point=5)
    gate = FixedPoint(
        name="gate",
        input=wide(24),
        more=(wide(24),),
        output=quantised,
        window=POINT,
        steps=(Plus(operands=(0, 1)), *silu(2, 3)),
        requantisation=rule(rng, quantised, 2.0 ** (2 - FRACTION)),
    )
    last = conv(rng, "last", quantised, FeatureMap(channels=5, height=6, width=6, type=INT8), 1 / 300)
    edges = ((INPUT,), (INPUT,), ("first", "second"), ("gate",))
    return Network(name="residual", layers=(first, second, gate, last), edges=edges).with_inputs_read_once()


def gated(rng: np.random.Generator) -> FixedPoint:
    """Return the product of a wide map and of a wide map of one pixel, each times constants by channel."""
    factors = [rng.integers(1 << 20, 1 << 21, 8) for _ in range(2)]
    output = FeatureMap(channels=8, height=6, width=6, type=INT8)
    steps = (
        Factor(operands=(0,), factor=factors[0], shift=30),
        Factor(operands=(1,), factor=factors[1], shift=30),
        Times(operands=(2, 3), shift=12),
    )
    return FixedPoint(
        name="gated",
        input=wide(29, 8),
        more=(wide(32, 8, 1),),
        output=output,
        window=POINT,
        steps=steps,
        requantisation=rule(rng, output, 1 / 700),
    )


def averaged() -> Network:
    """Return a network of a convolution, its means, a gate of one pixel, and a wide output."""
    rng = np.random.default_rng(9)
    layers: list[Op] = [
        conv(rng, "first", INPUT_MAP, wide(29, 8), 60.0),
        GlobalAveragePool(
            name="whole",
            input=wide(29, 8),
            output=wide(32, 8, 1),
            window=Window(kernel=(6, 6)),
            requantisation=rule(rng, wide(32, 8, 1), 0.05),
        ),
        SumPool(
            name="sums",
            input=wide(29, 8),
            output=wide(31, 8, 3),
            window=Window(kernel=(2, 2), stride=(2, 2)),
            requantisation=rule(rng, wide(31, 8, 3), 0.999),
        ),
        gated(rng),
    ]
    edges = ((INPUT,), ("first",), ("first",), ("first", "whole"))
    return Network(name="averaged", layers=tuple(layers), edges=edges, outputs=("sums", "gated"))
