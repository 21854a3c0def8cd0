"""Networks that branch, in hardware: values, cycles, stalls, resets, and the least FIFOs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from accelerators import (
    Case,
    a_requantisation,
    check,
    check_data,
    check_exact,
    check_reset,
    check_stalled,
    circuit_of,
    frames_for,
    simulate,
)
from counted import cases_in_the_long_run
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from min_depths import check_shallower, min_depths
from step_counts import multiplications, windows
from testbench import stalls

from hwgen import boards
from hwgen import simulate as run
from hwgen.errors import ConfigError, PlanError
from hwgen.network import golden, load
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Requantisation, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Add, Concat, Conv, Upsample
from hwgen.network.quantise import quantise
from hwgen.network.zoo.drawing import Drawing
from hwgen.plan import document, planner
from hwgen.schedule.solve import Schedule, steady_cycles
from hwgen.templates.base import Goal, Task
from hwgen.templates.latency import estimate_latency
from hwgen.templates.work import Unroll

SEEDS = st.integers(0, 2**32)


@pytest.mark.long
@pytest.mark.parametrize("block", range(2))
@settings(max_examples=20)
@given(case=graph_cases(max_steps=5), seed=SEEDS, patterns=stalls())
def test_many(block, case, seed, patterns):
    """Larger graphs, never stalled and stalled; others in each block."""
    circuit = circuit_of(case)
    check_exact(case, seed, circuit)
    check_stalled(case, seed, patterns, circuit)


@pytest.mark.long
@settings(max_examples=60)
@given(case=graph_cases(sized=True, max_steps=4))
def test_nothing_could_be_less_in_many(case):
    assert min_depths(case) == []


@cases_in_the_long_run(10)
@given(case=graph_cases(), seed=SEEDS)
def test_exact(case, seed):
    """Nobody stalls: all values, and the cycle of every input and output beat as the schedule has it."""
    check(case, frames_for(case.network, 3, seed))


@pytest.mark.long
@settings(max_examples=5)
@given(case=graph_cases(), seed=SEEDS, patterns=stalls())
def test_stalls(case, seed, patterns):
    """Stalls at either end: nothing is lost, and nothing gets stuck."""
    frames = frames_for(case.network, 3, seed)
    offer, accept = patterns
    trace = simulate(case.config, frames, offer=offer, accept=accept)
    check_data(case.config, trace.words, golden.run(case.network, frames))


@settings(max_examples=5)
@given(case=graph_cases(max_steps=2, max_side=4), seed=SEEDS, patterns=stalls(), share=st.floats(0, 1))
def test_reset(case, seed, patterns, share):
    """A reset in a random cycle drops what is in flight; every later frame is complete, right and on time."""
    check_reset(case, seed, patterns, share)


@pytest.mark.long
@settings(max_examples=6)
@given(case=graph_cases(max_steps=2), seed=SEEDS)
def test_windows_are_counted(case, seed):
    """By the steps of the arithmetic: as many as each layer's output has pixels; only convolutions multiply."""
    options = run.Options(simulator="amaranth", taps=True)
    done = run.run(case.config, frames_for(case.network, 2, seed), options)
    assert windows(case.config, done) == tuple(2 * op.output_height * op.output_width for op in case.network.layers)
    assert multiplications(case.config, done) == tuple(2 * op.macs for op in case.network.layers)


def test_narrow_values_stay_what_they_are():
    """int4 beside int8 of the same scale: no value changes, but negative ones get more bits."""
    narrow = FeatureMap(channels=2, height=3, width=3, type=IntegerType(bits=4, signed=True), scale=0.5)
    wide = replace(narrow, type=INT8)
    window = Window(kernel=(1, 1))
    whole = Conv(
        name="whole",
        input=narrow,
        output=wide,
        window=window,
        weights=np.arange(-2, 2).reshape(2, 2, 1, 1),
        bias=np.zeros(2, np.int64),
        requantisation=Requantisation(
            significand=np.full(2, 1 << 23), shift=np.full(2, 23), zero_point=0, low=-128, high=127
        ),
    )
    both = Concat(
        name="both",
        input=narrow,
        more=(wide,),
        output=replace(wide, channels=4),
        window=window,
        labels=(Label(0.5, 0),) * 3,
        low=-128,
        high=127,
    )
    network = Network(name="narrow", layers=(whole, both), edges=((INPUT,), (INPUT, "whole"))).with_inputs_read_once()
    config = planner.make(network, boards.load("zedboard")).configure()
    frames = np.arange(-8, 10).reshape(1, 2, 3, 3).clip(-8, 7).astype(np.int8)
    np.testing.assert_array_equal(golden.run(network, frames)[:, :2], frames)
    check(Case(network, config), np.concatenate([frames] * 3))


@settings(max_examples=6)
@given(case=graph_cases(sized=True))
def test_nothing_could_be_less(case):
    assert min_depths(case) == []


@pytest.mark.long
@settings(max_examples=20)
@given(case=graph_cases(sized=True), data=st.data())
def test_stall_for_ever(case, data):
    """What counting on says of shallower FIFOs is what the schedule comes to: a solution, or none."""
    check_shallower(case.config, data)


@pytest.fixture(scope="module")
def resnet8():
    network = load("resnet8")
    return network, planner.make(network, boards.load("zedboard"), multipliers="dsp", macs_per_dsp="auto")


def test_no_layer_lives_on_its_lead():
    """The interval that is planned is that of frames long after.

    With the buffers below the layers behind ``stack2_short`` live for nine frames on what it is ahead; a row more of
    it, and FIFOs that are shallower, keep the interval for ever.
    """
    plan = planner.make(load("resnet8"), boards.load("zedboard"), multipliers="dsp")
    config = plan.groups[0].config
    assert Schedule(config, 12).cycles.interval == plan.cycles.interval == 65_536
    buffers = {
        "stack1_conv2": (3, (14,)),
        "stack1_add": (0, (4, 2226)),
        "stack2_short": (1, (494,)),
        "stack2_conv2": (3, (156,)),
        "stack2_add": (0, (4, 2272)),
        "stack3_short": (1, (244,)),
    }
    layers = {layer.name: layer for layer in config.layers}
    for name, (rows, depths) in buffers.items():
        rowed = layers[name].with_rows(rows) if rows else layers[name]
        layers[name] = replace(rowed, fifo_depths=depths)
    less = replace(config, layers=tuple(layers.values()))
    assert Schedule(less, 5).cycles.interval == 65_536
    assert steady_cycles(less).interval == Schedule(less, 12).cycles.interval == 66_336


@pytest.mark.long
def test_shortcuts_of_resnet8(resnet8):
    """Every FIFO of the plan is the least; of two readers' FIFOs the shortcut's is the deeper one."""
    network, plan = resnet8
    (group,) = plan.groups
    assert min_depths(Case(network, group.config)) == []
    assert plan.interval == 32_768
    for layer in group.config.layers:
        if len(layer.outputs) == 2 and layer.name != "stack1_add":
            assert max(layer.fifo_depths) > 20 * min(layer.fifo_depths)


def _inverted_residuals(net: Drawing) -> str:
    """Three blocks: expanded, depthwise, projected, and a shortcut."""
    here = net.conv("stem", "image", 4, 3, relu=6)
    for block in range(3):
        before = here
        here = net.conv(f"expand{block}", here, 12, 1, relu=6)
        here = net.conv(f"depthwise{block}", here, 12, 3, depthwise=True, relu=6)
        here = net.add(f"add{block}", net.conv(f"project{block}", here, 4, 1, relu=None), before)
    return here


def _small_unet(net: Drawing) -> str:
    """Three levels, upsampled by neighbours."""
    here, skipped = net.conv("first", "image", 3, 3), []
    for level in range(3):
        skipped.append(here)
        here = net.conv(f"down{level}", net.max_pool(f"pool{level}", here, 2, 2), 4, 3)
    for level in reversed(range(3)):
        here = net.concat(f"concat{level}", skipped.pop(), net.upsample(f"above{level}", here, 2))
        here = net.conv(f"up{level}", here, 3, 3)
    return here


def _excited(net: Drawing) -> str:
    """A map that is scaled by a pixel made of all of it: the shortcut holds the whole map meanwhile."""
    here = net.conv("first", "image", 4, 3)
    pixel = net.conv("excite", net.conv("squeeze", net.average("all", here), 2, 1), 4, 1)
    return net.conv("last", net.multiply("scale", here, pixel), 4, 1)


@pytest.mark.parametrize("simulated", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("draw", [_inverted_residuals, _small_unet, _excited], ids=lambda draw: draw.__name__)
def test_nothing_could_be_less_in(draw, simulated):
    """Of networks as they come no FIFO could be shallower; in Verilator, at that depth, none is too shallow."""
    drawing = Drawing("drawn", (2, 8, 8))
    images = np.random.default_rng(0).uniform(-1, 1, (8, 2, 8, 8)).astype(np.float32)
    network = to_network(quantise(drawing.model(draw(drawing)), images, "drawn", 8), "drawn")
    plan = planner.make(network, boards.load("zedboard"), multipliers="dsp", macs_per_dsp="auto")
    (group,) = plan.groups
    case = Case(network, group.config)
    assert min_depths(case) == []
    if not simulated:
        return
    result = run.run(group.config, frames_for(network, 3, 2), run.Options(simulator="verilator"))
    np.testing.assert_array_equal(result.outputs, golden.run(network, frames_for(network, 3, 2)))
    cycles = Schedule(group.config, 3).cycles
    assert (result.latency, result.interval) == (cycles.latency, cycles.interval)


def test_plan_of_resnet8_written_and_read(resnet8):
    """The same plan; and one whose shortcut is too shallow is refused, by name."""
    network, plan = resnet8
    text = document.write(plan)
    again = document.read(text, network, plan.board)
    assert again.groups[0].config == plan.groups[0].config
    edited = json.loads(text)
    (fifo,) = (each for each in edited["groups"][0]["fifos"] if (each["from"], each["to"]) == ("conv", "stack1_add"))
    fifo["depth"] //= 2
    message = (
        r"^FIFO from conv to stack1_add: with a depth of \d+ the layers deadlock: it is full while stack1_add waits"
    )
    with pytest.raises(PlanError, match=message):
        document.read(json.dumps(edited), network, plan.board)
    edited["groups"][0]["fifos"].remove(fifo)
    with pytest.raises(PlanError, match=r"^plan lacks the FIFO from conv to stack1_add$"):
        document.read(json.dumps(edited), network, plan.board)


def test_branches_are_no_pyramids(resnet8):
    network, _ = resnet8
    message = r"^stack1_add joins stack1_conv2 and conv, but pyramids compute chains of layers only: leave "
    with pytest.raises(PlanError, match=message):
        planner.make(network, boards.load("vc709"), template="pyramid")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sources: sources[:-1], "sources must be given for each of"),
        (lambda sources: ((0,), *sources[1:]), "sources must be 1 layers before it"),
        (lambda sources: (*sources[:1], (-1,), *sources[2:]), "must be numbered -1 and downward, and each taken once"),
        (lambda sources: (*sources[:-1], (0,)), "outputs must be"),
    ],
)
def test_sources_that_make_no_graph(resnet8, change, message):
    _, plan = resnet8
    config = plan.groups[0].config
    with pytest.raises(ConfigError, match=message):
        replace(config, sources=change(config.sources))


def wide_residual() -> Network:
    """Two channels of 12 columns, two convolutions and a shortcut around them."""
    rng = np.random.default_rng(0)
    here = FeatureMap(channels=2, height=4, width=12, type=UINT8, zero_point=0, scale=0.5)
    window = Window(kernel=(1, 3), padding=(0, 1, 0, 1))

    def conv(name: str) -> Conv:
        layer = Conv(
            name=name,
            input=here,
            output=here,
            window=window,
            weights=rng.integers(-9, 9, (2, 2, 1, 3)),
            bias=np.zeros(2, np.int64),
            requantisation=None,
        )
        return replace(layer, requantisation=a_requantisation(rng, layer))

    both = Add(
        name="both",
        input=here,
        more=(here,),
        output=here,
        window=Window(kernel=(1, 1)),
        labels=(Label(0.5, 0),) * 3,
        fused=True,
        low=0,
        high=255,
    )
    layers = (conv("first"), conv("second"), both)
    return Network(name="wide", layers=layers, edges=((INPUT,), ("first",), ("second", "first")))


@pytest.mark.parametrize("dsp", [33, *(pytest.param(slices, marks=pytest.mark.long) for slices in (9, 90))])
def test_what_a_sum_joins_has_as_many_pixels(dsp):
    """Layers before a sum compute as many pixels a cycle as it adds, whatever is cheapest for each alone."""
    network = wide_residual()
    board = replace(boards.load("zedboard"), memory_gb_s=100.0)  # otherwise bytes of a frame are too many for the last
    plan = planner.make(network, board, dsp=dsp, multipliers="dsp")
    first, second, both = (layer.tp for layer in plan.layers)
    assert first == second == both
    check(Case(network, plan.groups[0].config), frames_for(network, 3, 1))


def test_upsampling_is_built_row_by_row():
    """Not in pyramids, which is said; nor does the planner take them where rows don't fit."""
    here = FeatureMap(channels=2, height=6, width=6, type=UINT8)
    up = Upsample(
        name="up",
        input=here,
        output=replace(here, height=12, width=12),
        window=Window(kernel=(1, 1)),
        factors=(2, 2),
    )
    network = Network(name="wider", layers=(up,))
    with pytest.raises(PlanError, match=r"^up: pyramids can't compute a layer of kind 'upsample'"):
        planner.make(network, boards.load("zedboard"), template="pyramid")
    with pytest.raises(PlanError, match=r"^plan needs \d+ LUTs, but zedboard"):
        planner.make(network, replace(boards.load("zedboard"), lut=10))


def test_estimated_latency_of_a_join():
    """It waits for the later one of its inputs, in whichever order it takes them."""
    found = []
    for order in (("second", "first"), ("first", "second")):
        network = wide_residual()
        network = replace(network, edges=((INPUT,), ("first",), order))
        task = Task(network, boards.load("zedboard"), Goal(objective="interval", dsp=20))
        unrolls = [Unroll(1, 1, 3 if layer.weight_count else 1) for layer in network.layers]
        found.append(estimate_latency(task.works, [layer.window for layer in network.layers], unrolls))
        last = Schedule(
            planner.make(network, boards.load("zedboard"), dsp=9, multipliers="dsp").groups[0].config, 1
        ).cycles.latency
        assert 0.7 * last < found[-1] < 1.5 * last
    assert found[0] == found[1]
