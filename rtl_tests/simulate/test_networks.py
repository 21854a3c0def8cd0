"""Whole networks: the emitted Verilog in every simulator, against the golden model and the plan's cycles."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import hwgen

SIMULATORS = [
    pytest.param(
        "verilator",
        marks=pytest.mark.skipif(not shutil.which("g++") or not shutil.which("make"), reason="no g++, make"),
    ),
    pytest.param("icarus", marks=pytest.mark.skipif(not shutil.which("iverilog"), reason="no iverilog")),
    "amaranth",
]


def frames_for(model: hwgen.Model, count: int) -> np.ndarray:
    """Random frames of the model's own integers, extremes among them."""
    source = model.input
    low, high = source.type.minimum, source.type.maximum
    frames = np.random.default_rng(0).integers(low, high + 1, (count, *source.shape)).astype(source.type.dtype)
    frames[0, ..., 0], frames[-1, ..., -1] = low, high
    return frames


@pytest.mark.long
@pytest.mark.parametrize("simulator", SIMULATORS)
def test_decoilfnet_s_example(simulator):
    """The same values and the same cycles in all three: the plan's, and by hand 25 pixels of 1 cycle each."""
    model = hwgen.load("decoilfnet-example")
    design = model.plan(board="zedboard", multipliers="dsp")
    result = design.simulate(frames_for(model, 4), simulator=simulator)
    assert result.mismatches == 0
    np.testing.assert_array_equal(result.outputs, model.golden(frames_for(model, 4)))
    assert (result.latency, result.interval) == (design.latency, 25)


@pytest.mark.long
@pytest.mark.parametrize(("name", "board"), [("lenet5", "zedboard")])
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_built_in(name, board, simulator):
    model = hwgen.load(name)
    design = model.plan(board=board)
    result = design.simulate(frames_for(model, 4), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "dsp"),
    [
        # Windows of 11 x 11 by steps of 4, of 3 x 3 by steps of 2, two groups.
        ("alexnet:4@67x67", 300),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("alexnet@67x67", 800),
                ("vgg11:6@24x32", 500),
                ("zfnet:4@53x61", 300),
                ("decoilfnet-four@16x16", 600),
                ("flownets:4@32x24", 500),
                ("speed-sign@48x40", 220),
                ("light_squeezenet:part1", 200),
            )
        ),
    ],
)
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_the_papers_networks(name, dsp, simulator):
    model = hwgen.load(name)
    design = model.plan(board="vc709", dsp=dsp, multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)


@pytest.mark.long
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_vgg_in_sixteen_bits(simulator):
    """The interval of 8 bits if DSP slices multiply."""
    model = hwgen.load("vgg16:7@32x32,int16")
    design = model.plan(board="vc709", multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)
    assert design.interval == hwgen.load("vgg16:7@32x32").plan(board="vc709", multipliers="dsp").interval


@pytest.mark.long
@pytest.mark.parametrize("dsp", [2907, 220])
@pytest.mark.parametrize("simulator", SIMULATORS[:1])
def test_vgg(dsp, simulator):
    model = hwgen.load("vgg16:7@64x64")
    design = model.plan(board="vc709", dsp=dsp, multipliers="dsp")
    result = design.simulate(frames_for(model, 3), simulator=simulator)
    assert (result.mismatches, result.latency, result.interval) == (0, design.latency, design.interval)
