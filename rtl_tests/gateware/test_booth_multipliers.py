"""Booth multipliers in LUTs: sums against NumPy, their latency, and resources and delays against Yosys."""

from __future__ import annotations

import equivalence
import lint
import numpy as np
import pytest
from amaranth import signed
from counted import cases_in_the_long_run, counted
from dot_products import DotProductsConfig, check, measured, stored_dot_products
from hypothesis import given
from hypothesis import strategies as st

from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert

BOOTH = BoothMultiplier()


def bounds(bits: int) -> tuple[int, int]:
    return -1 << (bits - 1), (1 << (bits - 1)) - 1


def config_of(terms, channels: int = 1, *, bits: int = 8, **more) -> DotProductsConfig:
    """Booth multiplier of signed operands of ``bits`` bits."""
    return DotProductsConfig(BOOTH, stored_dot_products(terms, channels, operand=signed(bits), **more))


def drawn(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a number of cases: all smallest, all largest, each of them either, and any."""
    cases = [np.full((1, *shape), low), np.full((1, *shape), high), rng.choice([low, high], (6, *shape))]
    return rng.permutation(np.concatenate([*cases, rng.integers(low, high + 1, (8, *shape))]))


@st.composite
def cases(draw) -> tuple[DotProductsConfig, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight_bits, bits = draw(st.integers(2, 16)), draw(st.integers(2, 16))
    channels, positions = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    terms = rng.multinomial(draw(st.integers(positions, 14)) - positions, [1 / positions] * positions) + 1
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    low, high = bounds(weight_bits)
    if draw(st.booleans()):
        low, high = sorted(int(end) for end in rng.integers(low, high + 1, 2))
    config = config_of(
        terms.tolist(),
        channels,
        bits=bits,
        weight_bits=weight_bits,
        weight_range=(low, high),
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 12, 36])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return config, rng


@cases_in_the_long_run(25, share=0.24)
@given(case=cases())
def check_sums(case):
    config, rng = case
    dots, terms = config.dots, sum(config.dots.terms)
    operands = drawn(rng, *bounds(dots.operand.width), (terms,))
    check(config, operands, weights=drawn(rng, *dots.weight_range, (dots.channels, terms)))


@pytest.mark.more_cases
def test_sums():
    with counted(check_sums):
        check_sums()


@pytest.mark.parametrize(("bits", "weight_bits"), [(4, 4), (3, 5), (6, 2), pytest.param(8, 8, marks=pytest.mark.long)])
def test_all_products(bits, weight_bits):
    """One term: every operand times every weight, the most negative ones among them."""
    ranges = [np.arange(low, high + 1) for low, high in (bounds(bits), bounds(weight_bits))]
    operands, weights = (values.ravel() for values in np.meshgrid(*ranges))
    assert len(operands) == 1 << (bits + weight_bits)
    check(config_of((1,), bits=bits, weight_bits=weight_bits), operands[:, None], weights=weights[:, None, None])


@pytest.mark.long
def test_resources():
    """Check 27 terms of 8 x 8 bits, and several positions with sums that lack the highest bits of products.

    A multiply-add of 8 x 8 bits takes at most 55 LUTs, with registers and its share of the adder tree.
    """
    first, _ = measured([config_of((27,)), config_of((5, 4), 3, bits=3, weight_bits=11, sum_bits=14)])
    assert first.lut <= 55 * 27


@pytest.mark.long
def test_resources_of_sixteen_bits():
    """Check 16 x 16 bits over several positions, with a bias."""
    measured([config_of((2, 1, 1, 1), 2, bits=16, weight_bits=16, bias=(-5, 1 << 30))])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources(seed):
    rng = np.random.default_rng(seed)
    configs = []
    for _ in range(10):
        bits, weight_bits, channels = (int(rng.integers(*ends)) for ends in ((2, 17), (2, 17), (1, 4)))
        positions = int(rng.integers(1, 8))
        terms = (rng.multinomial(int(rng.integers(0, 24)), [1 / positions] * positions) + 1).tolist()
        bias = rng.integers(-1 << 16, 1 << 16, channels).tolist() if rng.integers(2) else ()
        configs.append(config_of(terms, channels, bits=bits, weight_bits=weight_bits, bias=bias))
    measured(configs)


@pytest.mark.long
def test_verilog(tmp_path):
    """As parts of a design: no complaint of a linter, and Yosys proves each equal to its Amaranth circuit."""
    configs = [config_of((4, 3), 2, bias=(5, -9)), config_of((3,), bits=4, weight_bits=12)]
    units = [config.component() for config in (*configs, configs[0])]
    lint.check([lint.written(convert(SideBySide(units), "booth"), tmp_path)], with_yosys=tmp_path)
    equal = {*equivalence.check(SideBySide([config.component() for config in configs]), "booth", tmp_path)}
    assert {f"booth_part_{index}" for index, _ in enumerate(configs)} <= equal, equal
