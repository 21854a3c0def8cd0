"""Factors and biases with which the engine rounds sums as other layers do."""

from __future__ import annotations

import numpy as np
import pytest
from counted import counted
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen.network.float32 import Label, qlinear_mul
from hwgen.network.maps import INT8, UINT8
from hwgen.network.requantise import Requantisation, Thresholds, requantise
from hwgen.program.factors import Factors, StepFunctions, fit


def outputs(factors: Factors, sums: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the engine's outputs ``(M, n)`` for sums ``(M, n)`` without the bias."""
    rule = Requantisation(
        significand=factors.significand,
        shift=factors.shift,
        zero_point=factors.zero_point,
        low=low,
        high=high,
        float32=True,
    )
    return requantise(sums + factors.bias[:, None], rule, 1 << 33)


@settings(max_examples=30)
@given(
    kind=st.sampled_from([UINT8, INT8]),
    scales=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1)),
    is_power=st.booleans(),
    seed=st.integers(0, 2**32),
)
def check_products(kind, scales, is_power, seed):
    rng = np.random.default_rng(seed)
    zeros = rng.integers(kind.minimum, kind.maximum + 1, 3).tolist()
    if is_power:
        scales = [2.0 ** np.rint(np.log2(scale)) for scale in scales]
    labels = [Label(float(np.float32(scale)), zero) for scale, zero in zip(scales, zeros, strict=True)]
    products = np.arange(-(1 << 16), 1 << 16)
    wanted = np.clip(np.rint(qlinear_mul(products, *labels)), kind.minimum, kind.maximum).astype(np.int64)
    ratio = np.float32(labels[0].scale) * np.float32(labels[1].scale) / np.float32(labels[2].scale)
    factors = fit(
        StepFunctions.of_table(products[None], wanted[None]), Factors.of_ratio(np.array([ratio]), zeros[2]), kind
    )
    assume(factors is not None)
    found = outputs(factors, products[None], kind.minimum, kind.maximum)
    np.testing.assert_array_equal(found[0], wanted)


def test_products_whose_zero_point_is_inside_the_rounding():
    """Nearly all products of ONNX Runtime's QLinearMul can be rounded; those that can't are left out."""
    with counted(check_products):
        check_products()


@settings(max_examples=30)
@given(channels=st.integers(1, 5), fraction=st.integers(0, 5), tie=st.booleans(), seed=st.integers(0, 2**32))
def check_exact_rules(channels, fraction, tie, seed):
    rng = np.random.default_rng(seed)
    significand = np.full(channels, 1 << 23) if tie else rng.integers(1 << 23, 1 << 24, channels)
    shift = rng.integers(28, 36, channels) + fraction
    rule = Requantisation(significand=significand, shift=shift, zero_point=int(rng.integers(0, 256)), low=0, high=255)
    bias, limit = rng.integers(-4000, 4000, channels), np.full(channels, 1 << 20)
    steps = StepFunctions.of_rule(rule, 0, 255, limit).of_products(bias, fraction)
    rounded = np.rint(bias / 2.0**fraction).astype(np.int64)
    guess = Factors(significand=significand, shift=shift - fraction, bias=rounded, zero_point=rule.zero_point)
    factors = fit(steps, guess, UINT8)
    assume(factors is not None)
    most = (1 << 20) - 4000 >> fraction
    sums = rng.integers(-most, most, (channels, 20_000))
    wanted = requantise((sums << fraction) + bias[:, None], rule, 1 << 22)
    np.testing.assert_array_equal(outputs(factors, sums, 0, 255), wanted)


@pytest.mark.long
def test_rules_that_round_once_and_biases_finer_than_products():
    with counted(check_exact_rules):
        check_exact_rules()


def test_steps_of_thresholds():
    """Sums at which outputs begin; those beyond the limit are no constraints."""
    rule = Thresholds(first=np.array([[-10, 0, 7, 300]]), low=0, high=4)
    steps = StepFunctions.of_rule(rule, 0, 4, np.array([100]))
    assert steps.outputs.tolist() == [1, 2, 3, 4]
    assert steps.above[0, :3].tolist() == [-10, 0, 7]
    assert steps.below[0, :3].tolist() == [-11, -1, 6]
    assert steps.has_above[0].tolist() == [True, True, True, False]
    assert steps.has_below[0].tolist() == [True] * 4
