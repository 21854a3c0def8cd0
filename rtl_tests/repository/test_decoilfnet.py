"""bench/decoilfnet.py: the paper's multipliers in less than its cycles. By hand: a frame is 224 * 224 * 64 cycles."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.api import design_of
from hwgen.network import load
from hwgen.network.shapes import load as load_shapes
from hwgen.schedule.solve import Cycles, Schedule

FILE = Path(__file__).resolve().parents[2] / "bench" / "decoilfnet.py"
_spec = importlib.util.spec_from_file_location("bench_decoilfnet", FILE)
assert _spec is not None
assert _spec.loader is not None
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

MULTIPLIERS = [27, 576, 576, 576, 1152]
#: At full size; three of the seven layers work 224 * 224 * 64 cycles a frame.
LATENCY, INTERVAL = 3_313_395, 3_211_264


@pytest.mark.long
def test_one_frame():
    """With the buffers of a smaller image; the sizing at full size takes long."""
    small = bench.make(load("vgg16:7@32x32"))
    assert bench.multipliers(small.configure()) == MULTIPLIERS
    assert small.interval == 32 * 32 * 64
    network = load("vgg16:7@224x224")
    plans = [
        replace(layer, line_rows=sized.line_rows, fifo_depths=sized.fifo_depths)
        for layer, sized in zip(bench.unrolled(network), small.layers, strict=True)
    ]
    config = bench.compose(network, plans)
    assert bench.multipliers(config) == MULTIPLIERS
    assert max(layer.cycles for layer in config.layers) == INTERVAL == 224 * 224 * 64
    assert Schedule(config, 1).cycles.latency == LATENCY <= bench.LIMIT


@pytest.mark.long
def test_full_size():
    made = bench.make(load("vgg16:7@224x224"))
    assert bench.multipliers(made.configure()) == MULTIPLIERS
    assert made.cycles == Cycles(latency=LATENCY, interval=INTERVAL, steady=True)
    assert made.latency <= bench.LIMIT < bench.PUBLISHED


@pytest.mark.long
def test_in_simulation():
    """conv1_1, conv1_2 and pool1 of a 2 x 2 image: 64 cycles a pixel."""
    model = hwgen.load("vgg16:3@2x2")
    design = design_of(model, bench.make(model.network))
    assert bench.multipliers(design.config) == MULTIPLIERS[:2]
    frames = np.random.default_rng(0).integers(0, 256, (3, 3, 2, 2), dtype=model.input.type.dtype)
    result = design.simulate(frames, simulator="amaranth")
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, 2 * 2 * 64)


def test_stall_without_a_fifo():
    """The paper's stall, where a pooled pixel has no place to wait; half a row of places is enough.

    By hand: conv2_2 takes 256 cycles a pixel and gets one every 128 in odd rows of conv1_2, none in even ones, so each
    pooled row costs 112 * 128 cycles more, but for a few at the ends.
    """
    layers = load_shapes("vgg16:7").layers
    alone, half, row = (bench.without_rings(layers, {"conv2_1": pixels}) for pixels in (0, 56, 112))
    assert 0.85 * 112 * 112 * 128 < alone - half < 112 * 112 * 128
    assert half == row
    assert half < LATENCY < half + 1000


def test_least_interval():
    """With one credit a value every ten cycles, by hand: line buffer 5, pipeline 2, FIFO 2, credit 1."""
    made = bench.make(load("vgg16:3@4x4"))
    config = made.configure()
    assert bench.least_interval(config) == 4 * 4 * 64 == made.interval
    shallow = bench.with_depths(config, {"pool1": 1})
    assert bench.least_interval(shallow) == 2 * 2 * 64 * 10 < Schedule(shallow, 3).cycles.interval
