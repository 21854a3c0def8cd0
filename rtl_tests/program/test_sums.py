"""Sums on the engine: factors and biases that round, terms of weights, and normalisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted import cases_in_the_long_run, counted
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from programs import SMALL, alone, check, conv, engines, normalised, scheduled, summed

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import CHAIN
from hwgen.network.float32 import Label, qlinear_mul
from hwgen.network.maps import INT8, UINT8, Requantisation, Thresholds, requantise
from hwgen.network.ops import LRN
from hwgen.program.array_pass import weight_terms
from hwgen.program.compile import schedule
from hwgen.program.factors import Factors, StepFunctions, fit
from hwgen.program.layout import pack_channelwise, pack_weights


def test_sums_of_too_many_maps_are_refused():
    with pytest.raises(ModelError, match="sum: the engine adds 14 maps at most before it rounds, not 15"):
        schedule(summed([0.1] * 16, (2, 2, 2)), SMALL)


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
    steps = StepFunctions.of_rule(rule, 0, 255, limit).before_bias(bias, fraction)
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


@st.composite
def tensors(draw) -> np.ndarray:
    """Weights ``(M, C, Kh, Kw)`` of up to 9 bits, many of them at the ends of their range."""
    shape = tuple(draw(st.integers(1, most)) for most in (9, 21, 3, 3))
    low, high = draw(st.sampled_from([(-128, 127), (-128, -128), (-255, 255), (-127, 127), (0, 255)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < draw(st.sampled_from([0, 0.5, 0.99])), low, weights)


def wide_sums(packed: bytes, maps: int) -> np.ndarray:
    """The 25-bit numbers of all steps, int64 ``(steps, 4, maps / 2)``, as the array makes them of the stored bytes."""
    fields = np.frombuffer(packed, np.int8).reshape(-1, CHAIN, maps).astype(np.int64)
    return (fields[..., 1::2] << 17) + (fields[..., ::2] & (1 << 17) - 1)


@settings(max_examples=60)
@given(weights=tensors(), channelwise=st.booleans())
def test_terms_add_up(weights, channelwise):
    terms = weight_terms(weights, channelwise=channelwise)
    np.testing.assert_array_equal(sum(term.weights for term in terms), weights)
    assert len(terms) <= 3
    for term in terms:
        outside = term.weights.copy()
        spans = [slice(*span) for span in (term.channels, term.rows, term.columns)]
        outside[:, spans[0], spans[1], spans[2]] = 0
        assert not outside.any()
        assert term.channels[0] % 8 == 0
    assert terms[0].weights.shape[1:] == tuple(end for _, end in (terms[0].channels, terms[0].rows, terms[0].columns))


@settings(max_examples=60)
@given(weights=tensors(), seed=st.integers(0, 2**32))
def test_slices_multiply_terms_exactly(weights, seed):
    """Four products of 25-bit numbers with activations, and what their fields hold."""
    rng = np.random.default_rng(seed)
    maps = -(-len(weights) // 8) * 8
    for term in weight_terms(weights, channelwise=False):
        packed = wide_sums(pack_weights(term.weights, maps), maps)
        assert packed.min() >= -(1 << 24)
        assert packed.max() < 1 << 24
        for values in (np.full(packed.shape[:2], -128), rng.integers(-128, 128, packed.shape[:2])):
            sums = (packed * values[..., None]).sum(axis=1) + (1 << 16)
            even = (sums & (1 << 17) - 1) - (1 << 16)
            expected = (_steps(term.weights, maps) * values[..., None]).sum(axis=1)
            np.testing.assert_array_equal(even, expected[:, ::2])
            np.testing.assert_array_equal(sums >> 17, expected[:, 1::2])


def _steps(weights: np.ndarray, maps: int) -> np.ndarray:
    """Weights by step, channel of the step, and map: blocks of 8 channels, rows, columns, halves of blocks."""
    count, channels, rows, columns = weights.shape
    found = []
    for block in range(0, channels, 8):
        for row, column in np.ndindex(rows, columns):
            for first in range(block, min(block + 8, channels), CHAIN):
                step = np.zeros((CHAIN, maps), np.int64)
                part = weights[:, first : min(first + CHAIN, block + 8), row, column].T
                step[: len(part), :count] = part
                found.append(step)
    return np.array(found)


def test_weights_of_models_are_one_term():
    """Of symmetric ones, whatever they are; with -128 where nothing needs more bits, too."""
    rng = np.random.default_rng(1)
    assert len(weight_terms(rng.integers(-127, 128, (40, 24, 3, 3)), channelwise=False)) == 1
    weights = np.zeros((2, 4, 1, 1), np.int64)
    weights[0, :3] = weights[1, 3] = -128
    assert len(weight_terms(weights, channelwise=False)) == 1
    assert len(weight_terms(np.full((9, 1, 3, 3), -128), channelwise=True)) == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [((1, 9, 1, 2), -128), ((0, slice(4, 8), 0, 0), -128)],
)
def test_a_weight_that_needs_a_further_term(place, value):
    """The further term is of one block of channels, one row and one column."""
    weights = np.full((16, 24, 3, 3), -1)
    weights[place] = value
    _, term = weight_terms(weights, channelwise=False)
    block = (8, 16) if place[1] == 9 else (0, 8)
    assert (term.channels, term.rows, term.columns) == (block, (place[2], place[2] + 1), (place[3], place[3] + 1))
    assert term.weights.sum() == -1


def test_channelwise_weights_are_their_lanes():
    """Each lane has a slice for itself: position ``j % 4``, and the field of its map."""
    weights = np.random.default_rng(2).integers(-128, 128, (9, 8))
    packed = wide_sums(pack_channelwise(weights, 8), 8)
    for lane in range(8):
        values = np.zeros((9, CHAIN), np.int64)
        values[:, lane % CHAIN] = -128
        sums = (packed * values[..., None]).sum(axis=1)[:, lane // 2] + (1 << 16)
        field = sums >> 17 if lane % 2 else (sums & (1 << 17) - 1) - (1 << 16)
        np.testing.assert_array_equal(field, -128 * weights[:, lane])


@pytest.mark.parametrize("seed", range(2))
def test_layers_with_further_terms(seed):
    """Weights that are mostly -128, in few and in many chunks."""
    rng = np.random.default_rng(seed)
    layer = conv(kernel=3, channels=20, maps=18, size=(6, 7))
    weights = np.where(rng.random(layer.weights.shape) < 0.9, -128, layer.weights)
    network = alone(conv(kernel=3, channels=20, maps=18, size=(6, 7), weights=weights))
    found = schedule(network, SMALL)
    assert found.tiled_passes[0].task.further_terms
    check(found)


@cases_in_the_long_run(16)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 6), st.integers(1, 9)),
    kind=st.sampled_from([INT8, UINT8]),
    size=st.sampled_from([1, 3, 5]),
    most=st.sampled_from([5, 300, 20_000, 100_000]),
    engine=engines(),
    cores=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_random_normalisations(shape, kind, size, most, engine, cores, seed):
    check(scheduled(normalised(shape, kind, size, most, seed), replace(engine, maps=8, cores=cores)), seed)


def test_normalisations_that_are_refused():
    network = normalised((4, 2, 2), INT8, 3, 300, thresholds=2)
    with pytest.raises(ModelError, match="lrn: the engine supports one threshold of the sum of squares per value"):
        schedule(network, SMALL)
    (layer,) = network.layers
    assert isinstance(layer, LRN)
    scale = replace(layer.scale, terms=layer.scale.terms + np.float32(2.0**-24))
    with pytest.raises(ModelError, match="lrn: ONNX Runtime's sum of squares depends on its order"):
        schedule(alone(replace(layer, scale=scale)), SMALL)
