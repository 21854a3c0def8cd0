"""Terms of weights: they add up to the weights, and slices multiply each of them exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import SMALL, alone, check, conv

from hwgen.gateware.engine.config import CHAIN
from hwgen.program.compile import schedule
from hwgen.program.layout import pack_channelwise, pack_weights
from hwgen.program.terms import weight_terms


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
