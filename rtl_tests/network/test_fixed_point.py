"""Golden model of layers of fixed-point steps, against the definitions with fractions, and functions in float64."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from fixed_points import expected, random_layer, random_maps
from hypothesis import given
from hypothesis import strategies as st

from hwgen.errors import ConfigError
from hwgen.network.maps import FeatureMap, IntegerType, Window
from hwgen.network.ops import FixedPoint
from hwgen.network.ops.fixed_point import Curve, Factor, Limits, Offset, Operation, Plus, Shift, Table, Times


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 9), channels=st.integers(1, 3))
def test_programs_follow_the_definitions_of_their_steps(seed, count, channels):
    random = Random(seed)
    op = random_layer(random, channels=channels, height=2, width=4, count=count)
    maps = random_maps(random, op)
    assert np.array_equal(op.compute(*maps), expected(op, maps))


@pytest.mark.parametrize(
    ("function", "reach"),
    [
        (lambda x: 1 / (1 + np.exp(-x)), 16),
        (np.tanh, 8),
        (lambda x: np.log1p(np.exp(-np.abs(x))), 16),
    ],
    ids=["sigmoid", "tanh", "softplus"],
)
def test_a_fitted_curve_is_within_one_unit_of_its_function(function, reach):
    fraction = 18
    low, segment_bits = -reach << fraction, fraction - 5
    curve = Curve.fitted(
        function, 0, low=low, segment_bits=segment_bits, segments=64 * reach, fractions=(fraction, fraction)
    )
    places = np.arange(low - 1000, -low + 1000, 37)
    reals = function(np.ldexp(places.astype(np.float64), -fraction))
    error = curve.compute(places[None, None])[0, 0] - np.ldexp(reals, fraction)
    assert np.abs(error).max() < 1


INT8, INT24 = IntegerType(bits=8, signed=True), IntegerType(bits=24, signed=True)


def layer(*steps: Operation, kinds: tuple[IntegerType, ...] = (INT24,), channels: int = 2, **fields) -> FixedPoint:
    """Return a layer of given steps, with an output of 32 bits."""
    first, *others = (FeatureMap(channels=channels, height=1, width=3, type=kind) for kind in kinds)
    output = FeatureMap(channels=2, height=1, width=3, type=IntegerType(bits=32, signed=True))
    return FixedPoint(
        name="p", input=first, more=tuple(others), output=output, window=Window(kernel=(1, 1)), steps=steps, **fields
    )


#: Steps that are refused, with a part of the message.
REFUSED = [
    ([Offset(operands=(1,), offset=np.array([1]))], "each input and each step but the last"),
    ([Shift(operands=(0,), shift=1), Plus(operands=(0, 0))], "each input and each step but the last"),
    ([Plus(operands=(0,))], "2 operands, each an earlier value (0 to 0), not (0,)"),
    ([Plus(operands=(0, 1)), Offset(operands=(0,), offset=np.array([1]))], "(0 to 0), not (0, 1)"),
    ([Offset(operands=(0,), offset=np.array([1, 2, 3]))], "constants must be one, or 2 (channels), not 3"),
    ([Shift(operands=(0,), shift=-9)], "must fit the output's int32"),
    ([Shift(operands=(0,), shift=-37)], "at most 60 bits"),
    ([Times(operands=(0, 0), shift=0), Times(operands=(1, 0), shift=63)], "step 1 (Times): products must have at most"),
    ([Factor(operands=(0,), factor=np.array([1 << 24]), shift=9)], "at most 25 bits"),
    ([Table(operands=(0,), low=0, table=np.arange(256)[None])], "a result for each integer from -8388608"),
    ([Limits(operands=(0,), low=1, high=0)], "the lower bound must be at most"),
    ([Curve(operands=(0,), low=0, segment_bits=4, guard=1, coefficients=np.ones((3, 3), int))], "a power of two"),
]


@pytest.mark.parametrize(("steps", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_programs_that_cannot_work_are_refused(steps, text):
    with pytest.raises(ConfigError, match=r"^p: ") as error:
        layer(*steps)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_channels_are_not_mixed():
    with pytest.raises(ConfigError, match="must have the output's 2 channels, not 3x1x3"):
        layer(Shift(operands=(0,), shift=1), channels=3)


def test_a_one_pixel_map_is_combined_with_all_pixels():
    wide = FeatureMap(channels=2, height=4, width=5, type=INT24)
    gate = FeatureMap(channels=2, height=1, width=1, type=INT8)
    op = FixedPoint(
        name="p",
        input=wide,
        more=(gate,),
        output=wide,
        window=Window(kernel=(1, 1)),
        steps=(Times(operands=(0, 1), shift=8),),
    )
    assert op.spread == 1
    assert op.covered(1, 0, 2, 3) == (0, 1)
    assert op.covered(0, 0, 2, 3) == (2, 3)
    assert (op.pace(0, 0), op.pace(1, 0)) == (1, 0)
