"""Thresholds of each channel in place of a requantiser: the same outputs for all accumulators, where they take less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import counted
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.network.maps import IntegerType
from hwgen.network.requantise import Requantisation, Thresholds
from hwgen.templates.levels import replaces, threshold_config


def configs(
    seed: int, bits: int, *, accumulator_bits: int = 9, channels: int = 5, lanes: int = 2
) -> tuple[RequantiseConfig, ThresholdConfig]:
    """Random factors and biases with which outputs take all values, and some channels saturate."""
    random = np.random.default_rng(seed)
    fraction = int(random.integers(0, 4))
    significand = random.integers(1 << 23, 1 << 24, channels)
    shift = 23 + accumulator_bits - bits + fraction + random.integers(-2, 3, channels)
    bias = random.integers(-(1 << accumulator_bits), 1 << accumulator_bits, channels).tolist()
    rule = Requantisation(
        significand=significand, shift=shift, zero_point=int(random.integers(2)), low=0, high=(1 << bits) - 1
    )
    beats = tuple(tuple(range(first, min(first + lanes, channels))) for first in range(0, channels, lanes))
    config = RequantiseConfig(
        lanes=lanes,
        accumulator_bits=accumulator_bits,
        bias=tuple(bias),
        significand=tuple(significand.tolist()),
        shift=tuple(shift.tolist()),
        zero_point=rule.zero_point,
        low=rule.low,
        high=rule.high,
        bits=bits,
        signed=False,
        beats=beats,
        fraction=fraction,
    )
    integer_type = IntegerType(bits=bits, signed=False)
    return config, threshold_config(
        rule, integer_type, accumulator_bits, bias, fraction, lanes=lanes, beats=beats, pixels=1
    )


@settings(max_examples=30)
@given(bits=st.integers(1, 4), seed=st.integers(0, 2**32))
def thresholds_of_factors(bits: int, seed: int) -> None:
    """By the definition of requantisation, for every accumulator of every channel."""
    config, levels = configs(seed, bits)
    half = 1 << (config.accumulator_bits - 1)
    for channel, row in enumerate(levels.thresholds):
        for accumulator in range(-half, half):
            reached = sum(threshold <= accumulator for threshold in row)
            assert levels.low + reached == config.compute(channel, accumulator)


def test_thresholds_of_factors() -> None:
    with counted(thresholds_of_factors):
        thresholds_of_factors()


def test_thresholds_of_thresholds() -> None:
    """By hand: biases are subtracted, and what no accumulator of 4 bits reaches is 8."""
    rule = Thresholds(first=np.array([[-3, 0, 2], [5, 5, 30]]), low=-1, high=2)
    levels = threshold_config(
        rule, IntegerType(bits=3, signed=True), 4, [1, -2], 0, lanes=1, beats=((0,), (1,)), pixels=1
    )
    assert levels.thresholds == ((-4, -1, 1), (7, 7, 8))
    np.testing.assert_array_equal(
        rule.outputs(np.array([[-9, -3, 1, 2], [4, 5, 29, 30]]), 30), [[-1, 0, 1, 2], [-1, 1, 1, 2]]
    )


@pytest.mark.parametrize(("bits", "expected"), [(1, True), (2, True), (3, False), (4, False)])
def test_few_thresholds(bits: int, expected: bool) -> None:
    config, levels = configs(1, bits, accumulator_bits=12)
    assert replaces(levels, config) == expected


@pytest.mark.parametrize(("channels", "expected"), [(512, True), (513, False)])
def test_deep_tables(channels: int, expected: bool) -> None:
    """The second comparison has two entries for each of a lane's channels, at most 1,024."""
    config, levels = configs(3, 2, accumulator_bits=12, channels=channels, lanes=1)
    assert replaces(levels, config) == expected


@pytest.mark.parametrize("bits", [3, 4])
def test_thresholds_against_luts(bits: int) -> None:
    """Fewer LUTs than a product in LUTs decide."""
    config, levels = configs(2, bits, accumulator_bits=14, channels=16)
    config = replace(config, products_in="lut")
    assert replaces(levels, config) == (levels.resources.lut < config.resources.lut)
