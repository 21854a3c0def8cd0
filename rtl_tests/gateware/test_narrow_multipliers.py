"""Multipliers of weights of a few bits in LUTs: sums against NumPy, their latency, and resources against Yosys."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth import Shape
from counted import cases_in_the_long_run
from dot_products import DotProductsConfig, measured, stored_dot_products
from dot_products import check as check_sums
from hypothesis import given
from hypothesis import strategies as st

from hwgen.gateware.multipliers import lut_multiplier_of
from hwgen.gateware.multipliers.multiplier import Operands
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier

NARROW, BINARY = NarrowMultiplier(), BinaryMultiplier()


def config_of(weight_bits: int, operand: Shape, terms, channels: int = 2, **more) -> DotProductsConfig:
    """Multiplier of any weights of ``weight_bits`` bits, -1 and 1 for one bit."""
    multiplier, weight_range = (BINARY, (-1, 1)) if weight_bits == 1 else (NARROW, None)
    dots = stored_dot_products(
        terms, channels, operand=operand, weight_bits=max(weight_bits, 2), weight_range=weight_range, **more
    )
    return DotProductsConfig(multiplier, dots)


def check(config: DotProductsConfig, rng: np.random.Generator, cases: int = 12) -> None:
    """All sums equal NumPy's, in the cycle that the latency says: of extremes and of any operands and weights."""
    dots = config.dots
    low = -1 << dots.operand.width - 1 if dots.operand.signed else 0
    ends, weight_ends = [low, low + (1 << dots.operand.width) - 1], list(dots.weight_range)
    shape = (cases, dots.channels, sum(dots.terms))
    operands = rng.integers(ends[0], ends[1] + 1, (cases, shape[2]))
    weights = rng.integers(weight_ends[0], weight_ends[1] + 1, shape)
    for case in range(4):
        operands[case], weights[case] = ends[case % 2], weight_ends[case // 2]
    operands[4:6] = rng.choice(ends, (2, shape[2]))
    weights[5:7] = rng.choice(weight_ends, (2, *shape[1:]))
    if config.multiplier is BINARY:
        weights = np.where(weights < 0, -1, 1)
    check_sums(config, operands, weights=weights)


@st.composite
def configs(draw, weight_bits: int) -> tuple[DotProductsConfig, np.random.Generator]:
    """Dot products of activations of 1 to 8 bits at one to six positions, and a source of random numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    terms = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
    channels = draw(st.integers(1, 3))
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    config = config_of(
        weight_bits,
        Shape(draw(st.integers(1, 8)), draw(st.booleans())),
        terms,
        channels,
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 32])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return config, rng


@cases_in_the_long_run(25)
@given(case=st.integers(2, 5).flatmap(configs))
def test_sums(case):
    check(*case)


@cases_in_the_long_run(20)
@given(case=configs(1))
def test_sums_of_one_bit(case):
    """Weights of -1 and 1, stored in one bit."""
    check(*case)


def test_widths():
    """Weights of at most four bits, in the registry; one bit in memory for weights of -1 and 1, if none is 0."""

    def operands(bits: int, smallest: int, largest: int, nonzero: bool = False) -> Operands:
        return Operands(
            activation=Shape(3),
            weight_bits=bits,
            weight_range=(smallest, largest),
            positions=1,
            weights_nonzero=nonzero,
        )

    assert isinstance(lut_multiplier_of(operands(4, -8, 7), None), NarrowMultiplier)
    assert NARROW.unit_bits(operands(4, -8, 7)) == 4
    assert not NARROW.computes(operands(5, -16, 15), None)
    plus_minus_one = operands(2, -1, 1, nonzero=True)
    assert isinstance(lut_multiplier_of(plus_minus_one, None), BinaryMultiplier)
    assert BINARY.unit_bits(plus_minus_one) == 1
    assert BINARY.stored(np.array([[-1, 1, 1]]), plus_minus_one).tolist() == [0, 1, 1]
    assert not BINARY.computes(operands(2, -1, 1), None)
    assert not BINARY.computes(operands(2, -2, 1, nonzero=True), None)
    for kind, expected in ((NARROW, (-8, 7)), (BINARY, (-1, 1))):
        assert kind.weight_range(4) == expected
        assert kind.operand(Shape(3)) == Shape(3)
        assert kind.offset(Shape(3)) == 0


@pytest.mark.long
def test_resources():
    """Check weights of 1, 2 and 4 bits, activations of 2 to 8, several positions, and a bias."""
    measured(
        [
            config_of(4, Shape(4, signed=True), (1, 2, 2, 2, 2), channels=3),
            config_of(2, Shape(2), (9, 9), channels=4, bias=(100, -100, 0, 7)),
            config_of(1, Shape(8, signed=True), (18,), channels=4),
        ]
    )


@pytest.mark.long
def test_resources_of_other_widths():
    """Check weights of 1, 3 and 4 bits, and at most 16 LUTs for a 4x4 multiply-add."""
    units = [config_of(4, Shape(4), (27,)), config_of(3, Shape(8), (9,)), config_of(1, Shape(1), (27,), channels=8)]
    first, *_ = measured(units)
    assert first.lut <= 16 * units[0].dots.products


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources(seed):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(10):
        operand = Shape(int(rng.integers(1, 9)), bool(rng.integers(2)))
        terms = np.bincount(np.sort(rng.integers(0, rng.integers(1, 6), rng.integers(8, 40)))).tolist()
        channels = int(rng.integers(1, 9))
        bias = rng.integers(-1 << 10, 1 << 10, channels).tolist() if rng.integers(2) else ()
        units.append(config_of(int(rng.integers(1, 5)), operand, terms, channels, bias=bias))
    measured(units)
