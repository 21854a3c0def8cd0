"""Prices of a layer's products in LUTs and of its weight memories, against the hardware that is composed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen import boards
from hwgen.gateware.cost import Cost
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap, IntegerType, Window
from hwgen.network.ops import Conv
from hwgen.network.requantise import Requantisation
from hwgen.templates.compose import compose
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Goal, Task
from hwgen.templates.work import Unroll

BOARD = boards.load("zedboard")
ONE_BIT = IntegerType(bits=1, signed=False)


def convolution(weights: np.ndarray, kind: IntegerType = ONE_BIT) -> Network:
    """A convolution ``(M, C, K, K)`` of a padded 8x8 map."""
    outputs, channels, size, _ = weights.shape
    before = FeatureMap(channels=channels, height=8, width=8, type=kind)
    layer = Conv(
        name="conv",
        input=before,
        output=replace(before, channels=outputs),
        window=Window(kernel=(size, size), padding=(size // 2,) * 4),
        weights=weights,
        bias=np.zeros(outputs, np.int64),
        requantisation=Requantisation(
            significand=np.full(outputs, 1 << 23), shift=np.full(outputs, 30), zero_point=0, low=0, high=kind.maximum
        ),
    )
    return Network(name="one", layers=(layer,))


def signs(shape: tuple[int, ...], *, zeros: bool = False) -> np.ndarray:
    """Random weights of -1 and 1, and with ``zeros`` a few of 0."""
    random = np.random.default_rng(0)
    return random.choice([-1, 1, 0], shape, p=[0.45, 0.45, 0.1] if zeros else [0.5, 0.5, 0])


def task_of(network: Network) -> Task:
    return Task(network, BOARD, Goal(objective="interval", dsp=220, multipliers="lut", lut=40_000))


def made(network: Network, unroll: Unroll) -> LayerConfig:
    (layer,) = compose(network, (layer_plan(stage_of(network.layers[0]), unroll, 1),)).layers
    return layer


def compute_of(layer: LayerConfig) -> MultiplyConfig:
    assert isinstance(layer.compute, MultiplyConfig)
    return layer.compute


@pytest.mark.parametrize(("tn", "tk"), [(8, 3), (8, 9), (16, 3), (6, 3), (8, 2)])
@pytest.mark.parametrize("zeros", [False, True])
def test_lane_of_signs(tn: int, tk: int, zeros: bool):
    """The price of a product is about that of the multiplier that is made.

    Weights of -1 and 1 are stored in one bit, except where a step has fewer products than multipliers.
    """
    network, tm = convolution(signs((64, 32, 3, 3), zeros=zeros)), 8
    stage, unroll = stage_of(network.layers[0]), Unroll(tn, tm, tk, 1, lut_lanes=tm)
    is_padded = 32 % tn > 0 or 9 % tk > 0
    assert stage.is_padded(unroll) == is_padded
    compute, cost = compute_of(made(network, unroll)), Cost()
    assert compute.lut_multiplier.name == ("narrow" if zeros or is_padded else "binary")
    dots = compute.dot_products(range(tm))
    compute.lut_multiplier.count(cost, dots)
    luts, is_stored = stage.lut_product(None, is_padded)
    assert is_stored
    assert luts == pytest.approx(cost.lut / dots.products, rel=0.35)


@settings(max_examples=40)
@given(data=st.data())
def test_block_rams(data):
    """The search counts the block RAMs that are made, and no more where memories store zeros as well."""
    bits = data.draw(st.sampled_from([1, 2, 8]))
    shape = data.draw(st.sampled_from([(64, 32, 3, 3), (48, 20, 3, 3), (96, 64, 1, 1)]))
    weights = signs(shape) if bits == 1 else np.random.default_rng(1).integers(-1 << bits - 1, 1 << bits - 1, shape)
    network = convolution(weights, IntegerType(bits=bits, signed=False))
    task, (work,) = task_of(network), task_of(network).works
    tm = data.draw(st.integers(1, 20))
    unroll = Unroll(
        data.draw(st.integers(1, 8)),
        tm,
        data.draw(st.sampled_from([1, 3] if shape[2] == 3 else [1])),
        1,
        data.draw(st.sampled_from([0, 0, tm])),
    )
    compute, counted = compute_of(made(network, unroll)), float(task.bram36(work, unroll))
    if compute.weight_memory == "lut":
        assert counted == compute.resources.bram36 == 0
    elif not stage_of(network.layers[0]).is_padded(unroll) and shape[0] % tm == 0:
        assert counted == compute.resources.bram36
    else:
        assert counted <= compute.resources.bram36


def test_fewer_luts():
    """Weights of -1 and 1 are planned with fewer LUTs than those of -1, 0 and 1."""
    luts = []
    for zeros in (False, True):
        task = task_of(convolution(signs((64, 32, 3, 3), zeros=zeros)))
        unrolling = task.two_prices.cheapest(64 * 64)
        assert unrolling is not None
        luts.append(unrolling.luts)
    assert luts[0] < 0.8 * luts[1]
