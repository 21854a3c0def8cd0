"""Networks with maps of 17 to 32 bits between convolutions and the next quantiser: values, and cycles as planned."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import interpret
import numpy as np
import pytest
from accelerators import Case, check_reset, check_stalled
from counted import cases_in_the_long_run
from fixed_points import random_layer
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs_compiler
from testbench import stalls
from wide_maps import FRACTION, INPUT_MAP, POINT, conv, gated, residual, rule, wide

from hwgen import boards
from hwgen.api.model import Model
from hwgen.devices import DEFAULT
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, Window
from hwgen.network.ops import Concat, FixedPoint, GlobalAveragePool, Interpolate, MaxPool, Op, SumPool, Upsample
from hwgen.network.ops.fixed_point import Plus, Shift, Table
from hwgen.plan import planner
from hwgen.templates.stage import beat_format
from hwgen.templates.stages import stage_of
from hwgen.tools import synthesis


def moved() -> Network:
    """Wide maps through a concatenation, pools, an upsampling and a fixed-point layer with a wide output."""
    rng = np.random.default_rng(1)
    layers: list[Op] = [conv(rng, f"conv{index}", INPUT_MAP, wide(27), 40.0 * index) for index in (1, 2)]
    kind = wide(27).type
    labels, ends = (Label(2.0**-FRACTION, 0),) * 3, {"low": kind.minimum, "high": kind.maximum}
    both, halved = wide(27, 8), wide(27, 8, 3)
    layers += [
        Concat(name="both", input=wide(27), more=(wide(27),), output=both, window=POINT, labels=labels, **ends),
        MaxPool(name="pool", input=both, output=halved, window=Window(kernel=(2, 2), stride=(2, 2))),
        SumPool(
            name="sums",
            input=both,
            output=wide(29, 8, 3),
            window=Window(kernel=(2, 2), stride=(2, 2)),
            requantisation=rule(np.random.default_rng(2), wide(29, 8, 3), 0.999),
        ),
        FixedPoint(
            name="mean",
            input=halved,
            more=(wide(29, 8, 3),),
            output=wide(29, 8, 3),
            window=POINT,
            steps=(Shift(operands=(1,), shift=2), Plus(operands=(0, 2), sign=-1)),
        ),
        Upsample(name="up", input=wide(29, 8, 3), output=wide(29, 8), window=POINT, factors=(2, 2)),
        GlobalAveragePool(
            name="whole",
            input=wide(29, 8),
            output=wide(32, 8, 1),
            window=Window(kernel=(6, 6)),
            requantisation=rule(np.random.default_rng(3), wide(32, 8, 1), 0.05),
        ),
        gated(rng),
    ]
    edges = [(INPUT,), (INPUT,), ("conv1", "conv2"), ("both",), ("both",), ("pool", "sums"), ("mean",), ("up",)]
    return Network(name="moved", layers=tuple(layers), edges=(*edges, ("up", "whole"))).with_inputs_read_once()


def tables() -> Network:
    """A function of a quantised map that differs by channel, and the difference of it and of another map."""
    rng = np.random.default_rng(4)
    source, other = (FeatureMap(channels=5, height=4, width=5, type=kind) for kind in (UINT8, INT8))
    output = FeatureMap(channels=5, height=4, width=5, type=INT8)
    layer = FixedPoint(
        name="function",
        input=source,
        more=(other,),
        output=output,
        window=POINT,
        steps=(
            Table(operands=(0,), low=0, table=rng.integers(-(1 << 22), 1 << 22, (5, 256))),
            Table(operands=(1,), low=-128, table=rng.integers(-(1 << 20), 1 << 20, (1, 256))),
            Plus(operands=(2, 3), sign=-1),
        ),
        requantisation=rule(rng, output, 2.0**-15),
    )
    return Network(name="tables", layers=(layer,), edges=(("a", "b"),), inputs=("a", "b"))


def without_steps() -> Network:
    """Return a network whose only layer quantises a wide map."""
    output = FeatureMap(channels=4, height=6, width=6, type=INT8, zero_point=-3)
    rounded = rule(np.random.default_rng(6), output, 2.0**-16)
    layer = FixedPoint(name="rounded", input=wide(24), output=output, window=POINT, steps=(), requantisation=rounded)
    return Network(name="quantised", layers=(layer,))


def interpolated() -> Network:
    """Return a network of a convolution, an interpolation in seventh parts between its wide sums, and a quantiser."""
    rng = np.random.default_rng(7)
    source, larger, output = wide(24, 3, 4), wide(24, 3, 8), FeatureMap(channels=3, height=8, width=8, type=INT8)
    first = conv(rng, "first", FeatureMap(channels=2, height=4, width=4, type=UINT8), source, 60.0)
    places = [divmod(3 * index, 7) for index in range(8)]
    rows, weights = zip(*places, strict=True)
    between = Interpolate(
        name="between",
        input=source,
        output=larger,
        window=POINT,
        rows=rows,
        columns=rows,
        row_weights=weights,
        column_weights=weights,
        axis_parts=(7, 7),
        x_scale=1.0,
        y_scale=1.0,
        low=larger.type.minimum,
        high=larger.type.maximum,
        in_floats=False,
        requantisation=rule(rng, larger, 1 / 49),
    )
    last = FixedPoint(
        name="last",
        input=larger,
        output=output,
        window=POINT,
        steps=(Plus(operands=(0, 0)),),
        requantisation=rule(rng, output, 2.0**-17),
    )
    return Network(name="interpolated", layers=(first, between, last))


def test_interpolated_values_are_the_rounded_quotients():
    """Each rounding is to the nearest integer: of a sum of four, times its factor, before anything is clipped."""
    between = interpolated().layers[1]
    frame = np.random.default_rng(8).integers(-1000, 1000, between.input.shape)
    down = np.zeros((8, 4), np.int64)
    for index, weights in enumerate(down):
        weights[3 * index // 7] += 7 - 3 * index % 7
        weights[min(3 * index // 7 + 1, 3)] += 3 * index % 7
    sums = down @ frame @ down.T
    significand = between.requantisation.significand[:, None, None]
    rounded = np.vectorize(lambda product: round(Fraction(int(product), 2**29)))(sums * significand)
    np.testing.assert_array_equal(between.compute(frame), rounded)


NETWORKS = {
    "residual": residual,
    "moved": moved,
    "tables": tables,
    "without steps": without_steps,
    "interpolated": interpolated,
}


def frames_of(network: Network, count: int = 3) -> list[np.ndarray]:
    """Return random frames of each input."""
    rng = np.random.default_rng(5)
    return [
        rng.integers(end.type.minimum, end.type.maximum, (count, *end.shape), endpoint=True).astype(end.type.dtype)
        for end in network.input_maps
    ]


def check_simulated(network: Network, board: str = "zedboard", simulator: str = "amaranth", **options) -> None:
    """Every value is the golden model's, and the cycles are those of the plan."""
    result = Model(network).plan(board, **options).simulate(frames_of(network), simulator=simulator)
    assert result.mismatches == 0
    assert (result.latency, result.interval) == (result.predicted_latency, result.predicted_interval)


@pytest.mark.parametrize("name", NETWORKS)
def test_values_and_cycles(name):
    check_simulated(NETWORKS[name]())


@pytest.mark.parametrize("name", ["residual", "moved", "without steps"])
def test_programs_of_the_engine(name):
    engine = EngineConfig(fixed_words=512, lookup_words=2048, pixels=5, map_words=512, weight_steps=512)
    interpret.check_network(NETWORKS[name](), engine)


@pytest.mark.long
def test_resources():
    """Slices and block RAM of Yosys, and about its LUTs and flip-flops."""
    cases = ((residual(), "gate", 2), (moved(), "gated", 2), (moved(), "mean", 4), (tables(), "function", 2))
    parts = []
    for network, name, lanes in cases:
        (op,) = (layer for layer in network.layers if layer.name == name)
        parts.append(stage_of(op, DEFAULT).compute([beat_format(source, lanes) for source in op.inputs]))
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        estimate = part.resources
        assert (estimate.dsp, estimate.bram36) == (measured.dsp, measured.bram36)
        assert abs(estimate.lut - measured.lut) <= 0.15 * measured.lut + 8, part
        assert abs(estimate.ff - measured.ff) <= 0.15 * measured.ff + 8, part


@needs_compiler
def test_emitted_verilog():
    check_simulated(residual(), "kv260", "verilator")


@pytest.mark.long
@needs_compiler
def test_emitted_verilog_of_moves():
    check_simulated(moved(), "zcu104", "verilator")


@cases_in_the_long_run(20)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 7), channels=st.integers(1, 6), dsp=st.sampled_from([None, 40]))
def test_random_layers(seed, count, channels, dsp):
    """Of any steps, with one to three inputs, and one lane or more."""
    op = random_layer(Random(seed), channels=channels, height=3, width=4, count=count)
    names = tuple(f"in_{index}" for index in range(len(op.inputs)))
    check_simulated(Network(name="random", layers=(op,), edges=(names,), inputs=names), dsp=dsp)


@pytest.fixture(scope="module")
def case() -> Case:
    network = residual()
    return Case(network, planner.make(network, boards.load("zedboard")).configure())


@settings(max_examples=2)
@given(seed=st.integers(0, 2**32), patterns=stalls())
def test_stalls(case, seed, patterns):
    check_stalled(case, seed, patterns)


@settings(max_examples=2)
@given(seed=st.integers(0, 2**32), patterns=stalls(), share=st.floats(0, 1))
def test_reset(case, seed, patterns, share):
    check_reset(case, seed, patterns, share)
