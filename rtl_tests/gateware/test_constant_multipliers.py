"""Multipliers of constant weights in LUTs: sums against NumPy, their latency, and LUTs against Yosys."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth import Shape
from counted import cases_in_the_long_run
from dot_products import DotProductsConfig, constant_dot_products, measured
from dot_products import check as check_sums
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.gateware.cost import Resources
from hwgen.gateware.multipliers.constant import ConstantMultiplier
from hwgen.gateware.multipliers.multiplier import Operands
from hwgen.gateware.multipliers.selected import SelectedMultiplier

CONSTANT, SELECTED = ConstantMultiplier(), SelectedMultiplier()


def random_weights(rng: np.random.Generator, shape: tuple[int, ...], bits: int, zeros: float = 0.0) -> np.ndarray:
    """Weights of ``bits`` bits, of which a share are 0 in all steps."""
    weights = rng.integers(-1 << (bits - 1), 1 << (bits - 1), shape)
    return weights * (rng.random((*shape[:-1], 1)) >= zeros)


@st.composite
def cases(draw, most_steps: int) -> tuple[np.random.Generator, np.ndarray, dict]:
    """A source of random numbers, weights, and other parameters of dot products."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels, terms = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    steps, bits, weight_bits = draw(st.integers(1, most_steps)), draw(st.integers(1, 16)), draw(st.integers(1, 9))
    positions = draw(st.integers(1, 3))
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    more = {
        "bits": bits,
        "terms": np.bincount(np.sort(rng.integers(0, positions, terms)), minlength=positions).tolist(),
        "sum_bits": draw(st.sampled_from([None, None, 1, 7, 12, 32])),
        "bias": rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    }
    weights = random_weights(rng, (channels, terms, steps), weight_bits, draw(st.sampled_from([0, 0.3, 0.9])))
    if draw(st.booleans()):
        weights[-1] = -weights[0]
    return rng, weights, more


def check(multiplier, weights: np.ndarray, operands: np.ndarray, steps: np.ndarray, **more) -> None:
    """All sums equal NumPy's, in the cycle that the latency says."""
    check_sums(DotProductsConfig(multiplier, constant_dot_products(weights, **more)), operands, steps=steps)


def random_operands(rng: np.random.Generator, terms: int, bits: int) -> np.ndarray:
    """Operands of some cases, ``(cases, terms)``: all smallest, all largest, either, and any."""
    low, high = -1 << (bits - 1), (1 << (bits - 1)) - 1
    either = rng.choice([low, high], (6, terms))
    return np.concatenate(
        [np.full((1, terms), low), np.full((1, terms), high), either, rng.integers(low, high + 1, (8, terms))]
    )


@settings(max_examples=40)
@given(case=cases(most_steps=1))
def test_constant_sums(case):
    rng, weights, more = case
    operands = random_operands(rng, weights.shape[1], more["bits"])
    check(CONSTANT, weights, operands, np.zeros(len(operands), int), **more)


@cases_in_the_long_run(40)
@given(case=cases(most_steps=4))
def test_selected_sums(case):
    rng, weights, more = case
    operands = random_operands(rng, weights.shape[1], more["bits"])
    check(SELECTED, weights, operands, rng.integers(0, weights.shape[2], len(operands)), **more)


@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_extremes(multiplier, bits):
    """The largest sums there are, in the fewest bits that hold them, with a bias of the same sign."""
    low, high = -1 << (bits - 1), (1 << (bits - 1)) - 1
    weights = np.array([[[-128]] * 27, [[127]] * 27, [[-128], [127], [-1]] * 9])
    operands = np.array([[value] * 27 for value in (low, high, 0, -1)] + [[low, high, low] * 9, [high, low, high] * 9])
    check(multiplier, weights, operands, np.zeros(len(operands), int), bits=bits, bias=(9, -7, 1 << 20))


@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
def test_weights_that_cost_nothing(multiplier):
    """Sums of zero weights are constants without a register."""
    config = DotProductsConfig(
        multiplier, constant_dot_products(np.zeros((3, 4, 1), int), sum_bits=12, bias=(5, 0, -3))
    )
    assert config.resources == Resources()
    assert multiplier.latency(config.dots) == 1
    check(multiplier, np.zeros((3, 4, 1), int), np.ones((5, 4), int), np.zeros(5, int), sum_bits=12, bias=(5, 0, -3))


def test_powers_of_two_are_wires():
    """A sum of one operand has only a register: no LUT, and one register for all its multiples."""
    weights = np.array([[[64], [0]], [[1], [0]], [[0], [-128]]])
    config = DotProductsConfig(CONSTANT, constant_dot_products(weights[:2]))
    assert config.resources == Resources(ff=8)
    # A negative multiple is subtracted from 0; one LUT serves both highest bits, which extend the operand's sign.
    config = DotProductsConfig(CONSTANT, constant_dot_products(weights[2:]))
    assert config.resources == Resources(lut=8, ff=9)


def test_sums_share_terms():
    """5 a + 3 b, its double, and c less four times the sum: an adder of three terms, one of two, and one for c.

    The last sum has 14 bits. Two bits of c pass by, and the two highest bits share a LUT.
    """
    weights = np.array([[[5], [3], [0]], [[10], [6], [0]], [[-20], [-12], [1]]])
    (one, two, three) = (DotProductsConfig(CONSTANT, constant_dot_products(weights[:n])).resources for n in (1, 2, 3))
    assert two.lut <= one.lut
    assert three.lut == two.lut + 14 - 2 - 1


@pytest.mark.parametrize(
    ("steps", "bits", "weight_bits", "constant", "selected"),
    [
        (1, 8, 8, True, True), (1, 2, 5, True, True), (1, 2, 6, False, True), (1, 1, 2, False, True),
        (4, 8, 8, False, True), (5, 8, 8, False, False), (None, 8, 8, False, False),
    ],
)  # fmt: skip
def test_weights_that_each_computes(steps, bits, weight_bits, constant, selected):
    operands = Operands(activation=Shape(bits, signed=True), weight_bits=weight_bits, weight_range=(-1, 1), positions=1)
    assert CONSTANT.computes(operands, steps) == constant
    assert SELECTED.computes(operands, steps) == selected


@pytest.mark.long
def test_constant_resources():
    """27 terms of 8 bits by 8-bit weights, to 4 channels; fewer bits, wide operands, several positions, a bias."""
    rng = np.random.default_rng(1)
    configs = []
    for bits, weight_bits, channels, terms, more in (
        (8, 8, 4, (27,), {}),
        (8, 4, 4, (9, 9), {"bias": (1000, -1000, 0, 7)}),
        (4, 2, 8, (16,), {}),
        (1, 2, 4, (20,), {}),
        (16, 8, 2, (5, 4), {"sum_bits": 32}),
    ):
        weights = random_weights(rng, (channels, sum(terms), 1), weight_bits, 0.1)
        configs.append(DotProductsConfig(CONSTANT, constant_dot_products(weights, bits=bits, terms=terms, **more)))
    assert measured(configs)[0].lut <= 22 * 4 * 27


@pytest.mark.long
def test_selected_resources():
    """One of four, three and two weights; 8, 4 and 16 bits; several positions, a bias."""
    rng = np.random.default_rng(2)
    configs = []
    for bits, weight_bits, channels, terms, steps, more in (
        (8, 8, 1, (27,), 4, {}),
        (8, 4, 3, (5, 4), 3, {"bias": (1000, -1000, 0)}),
        (4, 2, 4, (9,), 2, {}),
        (2, 8, 2, (9,), 4, {}),
        (16, 8, 1, (5, 4), 4, {"sum_bits": 32}),
    ):
        weights = random_weights(rng, (channels, sum(terms), steps), weight_bits, 0.1)
        configs.append(DotProductsConfig(SELECTED, constant_dot_products(weights, bits=bits, terms=terms, **more)))
    assert measured(configs)[0].lut <= 40 * 27


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("multiplier", [CONSTANT, SELECTED])
def test_random_resources(multiplier, seed):
    rng = np.random.default_rng(seed)
    configs = []
    for _ in range(10):
        bits, weight_bits = int(rng.integers(1, 17)), int(rng.integers(2, 9))
        channels, terms = int(rng.integers(1, 9)), int(rng.integers(4, 40))
        steps = 1 if multiplier is CONSTANT else int(rng.integers(2, 5))
        bias = rng.integers(-1 << 16, 1 << 16, channels).tolist() if rng.integers(2) else ()
        weights = random_weights(rng, (channels, terms, steps), weight_bits, float(rng.choice([0, 0.5])))
        configs.append(DotProductsConfig(multiplier, constant_dot_products(weights, bits=bits, bias=bias)))
    measured(configs)


@pytest.mark.long
@pytest.mark.parametrize(("channels", "terms"), [(16, 27), (16, 144)])
def test_luts_of_a_multiply_add(channels, terms):
    """Random 8-bit weights, all of which are multiplied in each cycle, share most of their additions."""
    weights = random_weights(np.random.default_rng(0), (channels, terms, 1), 8)
    (found,) = measured([DotProductsConfig(CONSTANT, constant_dot_products(weights))])
    assert found.lut <= 22 * weights.size
