"""Programs of the engine: what they compute, by the documented meaning of their jobs, is what the layers compute."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import Any

import interpret
import numpy as np
import pytest
from accelerators import a_requantisation, frames_for, global_average_pool
from counted import cases_in_the_long_run, counted
from graphs import graphs
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from program_mutations import escapes, with_job
from programs import (
    DIGITS,
    SMALL,
    alone,
    alone_chain,
    check,
    clamped,
    conv,
    engines,
    joined_maps,
    moved,
    networks,
    scheduled,
    tamed,
    tasks_of,
)
from refusals import left_out_if, refusals_in

import hwgen
from hwgen import work
from hwgen.errors import CheckError, InputError, ModelError, PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job, pack_jobs
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT8, INT16, UINT8, FeatureMap, Requantisation, Thresholds, Window, requantise
from hwgen.network.ops import (
    Add,
    AveragePool,
    Concat,
    Conv,
    DepthToSpace,
    Lookup,
    MaxPool,
    Mul,
    Select,
    SpaceToDepth,
    Upsample,
)
from hwgen.program.compile import ProgramSchedule, _Compiler, schedule
from hwgen.program.factors import average_factors
from hwgen.program.file import Program, digest
from hwgen.program.groups import MAX_LAYERS
from hwgen.program.jobs import Emitter, TiledPass
from hwgen.program.layout import (
    MAX_SHIFT,
    pack_map,
    pack_parameters,
    pack_weights,
    parameter_words,
    unpack_map,
)
from hwgen.program.tiles import Room, best_tilings
from hwgen.schedule.engine import EngineSchedule
from hwgen.work import steps


@given(networks(), engines())
@cases_in_the_long_run(26)
def test_random_layers(network, engine):
    check(scheduled(network, engine))


@pytest.mark.long
@pytest.mark.parametrize("block", range(3))
@given(network=networks(max_layers=4, max_side=40, max_channels=80), engine=engines())
@settings(max_examples=40)
def test_many_random_layers(block, network, engine):
    """Others in each block."""
    test_random_layers.hypothesis.inner_test(network, engine)


@pytest.mark.long
def test_searches_side_by_side_find_the_same(monkeypatch):
    """In other processes, which get passes without their weights."""
    monkeypatch.setattr(steps, "ALONE", 0.0)

    @given(networks(max_layers=3), engines())
    @settings(max_examples=12)
    def check_same(network, engine):
        here = Context().run(scheduled, network, engine)
        assert here.jobs == schedule(network, engine).jobs
        for each in here.tiled_passes:
            check_bare(each, here)

    with work.beside(count=2), counted(check_same):
        check_same()


def check_bare(whole: TiledPass, found: ProgramSchedule) -> None:
    """Without its weights a pass is cut as with them, and has the same jobs."""
    engine, task, bare = found.engine, whole.task, whole.task.bare
    room, places = Room.whole(engine), {edge: found.locations[edge] for edge in task.edges}
    assert bare.shape == task.shape
    assert best_tilings(bare, engine, room, 2) == best_tilings(task, engine, room, 2)
    assert bare.weights is None or len(bare.weights) <= 9
    emitters = [Emitter(engine, {edge: (edge, 0) for edge in places}, places, room) for _ in range(2)]
    for each, emitter in zip((task, bare), emitters, strict=True):
        emitter.add(replace(whole, task=each, data=whole.unplaced_data))
        emitter.end()
    assert emitters[0].jobs == emitters[1].jobs


def test_tiles_and_chunks():
    """Many of both, with what stays in between."""
    found = schedule(alone(conv(channels=40)), SMALL)
    tiling = found.tiled_passes[0].tiling
    assert tiling.channels < 40
    assert len(found.jobs) > 20
    check(found)


@pytest.mark.parametrize("size", [(1, 300), (60, 3), pytest.param((7, 101), marks=pytest.mark.long)])
def test_long_and_wide_maps(size):
    check(schedule(alone(conv(channels=9, size=size)), SMALL))


def test_rows_that_are_longer_than_the_output_buffer():
    """Words of an upsampled row are stored one by one, and still only as many at once as the buffer holds."""
    engine = replace(SMALL, output_words=32)
    check(schedule(alone(moved("moved", Upsample, a_map(1, 2, 34), factors=(2, 2))), engine))


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_strides(stride):
    check(schedule(alone(conv(kernel=5, channels=3, size=(23, 31), stride=stride)), SMALL))


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_rows_in_no_window_are_not_loaded(stride):
    layer = conv(kernel=1, channels=16, size=(23, 31), stride=stride)
    found = schedule(alone(layer), SMALL)
    rows = sum(job.load.x_rows * job.load.x_blocks for job in found.jobs if job.load.x_words == 31 - 30 % stride)
    assert rows in (0, 2 * -(-23 // stride) * found.tiled_passes[0].task.folds(SMALL))
    check(found)


def test_lanes_are_walked_anew_where_other_rows_are_loaded():
    """Boxes of one pitch, one of every second row and one of all: lanes begin elsewhere."""
    thin, tall = Window(kernel=(1, 1), stride=(2, 2)), Window(kernel=(2, 1), stride=(2, 2))
    first = replace(conv(kernel=1, channels=1, maps=1, size=(3, 19), stride=2), name="thin", window=thin)
    rng = np.random.default_rng(3)
    second = Conv(
        name="tall",
        input=first.output,
        output=replace(first.output, height=1, width=5),
        window=tall,
        weights=rng.integers(-128, 128, (1, 1, 2, 1)),
        bias=np.array([444]),
        requantisation=None,
    )
    second = replace(second, requantisation=replace(a_requantisation(rng, second), float32=True))
    found = schedule(
        Network(name="two", layers=(first, second)), replace(SMALL, map_words=64, output_words=32, slots=2)
    )
    (columns,) = {job.compute.columns for job in found.jobs if job.compute.groups}
    assert columns == 10
    assert len({job.compute.wrap_words for job in found.jobs if job.compute.groups}) == 2
    check(found)


def test_large_kernels_are_cut_in_rows():
    """A dense layer of 11 x 13 pixels has more steps for 8 channels than the weight buffer."""
    window = Window(kernel=(11, 13))
    layer = conv(size=(11, 13), channels=17, maps=9)
    rng = np.random.default_rng(1)
    layer = replace(
        layer,
        window=window,
        output=replace(layer.output, height=1, width=1),
        weights=rng.integers(-20, 21, (9, 17, 11, 13)),
    )
    found = schedule(alone(layer), SMALL)
    assert found.tiled_passes[0].tiling.taps < 11
    check(found)


def test_whole_maps_are_averaged_in_parts():
    source = FeatureMap(channels=20, height=19, width=21, type=INT8, zero_point=-5)
    found = schedule(alone(global_average_pool(np.random.default_rng(2), "whole", source)), SMALL)
    assert found.tiled_passes[0].tiling.taps < 19
    check(found)


@pytest.fixture(scope="module")
def digits() -> Network:
    return hwgen.load(DIGITS / "digits.onnx").network


@pytest.mark.parametrize("engine", [EngineConfig(), SMALL])
def test_digits(digits, engine):
    found = schedule(digits, engine)
    assert "pool1" not in [work.task.name for work in found.tiled_passes]  # on the way out of conv2
    check(found)


@pytest.mark.parametrize("engine", [EngineConfig(), pytest.param(SMALL, marks=pytest.mark.long)])
def test_resnet8(engine):
    check(schedule(hwgen.load("resnet8").network, engine))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["mobilenetv1-0.25", "dscnn", "autoencoder", "lenet5", "vgg11@64x64", "mobilenetv2", "squeezenet@64x64"]
)
def test_whole_networks(name):
    check(schedule(hwgen.load(name).network, EngineConfig()))


@given(graphs(max_steps=4, max_side=9, for_engine=True), engines())
@cases_in_the_long_run(40)
def test_random_graphs(network, engine):
    """Graphs of layers that the engine computes, with maps of fewer bits, sums, functions and pads, are exact."""
    check(scheduled(tamed(network), engine))


@pytest.mark.long
@given(graphs(max_steps=4, max_side=9), engines())
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_refusals_of_random_graphs(network, engine):
    """What the engine doesn't compute is refused by the name of a layer. Most graphs are computed."""
    network = tamed(network)
    try:
        schedule(network, engine)
    except (ModelError, PlanError) as error:
        assert str(error).startswith(tuple(f"{layer.name}: " for layer in network.layers))  # noqa: PT017
    else:
        reject()


def test_maps_are_computed_into_concatenations():
    found = schedule(joined_maps(), SMALL)
    outer = found.locations["outer"]
    assert found.locations["inner"] == outer.part(0, 4)
    assert found.locations["second"] == outer.part(2, 2)
    # Only what changes is moved: the third map, of another scale, and the input.
    assert [work.task.name for work in found.tiled_passes] == ["first", "second", "third", "outer", "outer", "last"]
    check(found)


def test_searches_are_compared_by_the_cycles_of_the_program():
    """Of all layers in their order, not the sum of groups by themselves."""
    network, engine = joined_maps(), EngineConfig()
    compiler = _Compiler(network, engine, Room.whole(engine), {}, 1, MAX_LAYERS, None)
    expected = EngineSchedule(engine, schedule(network, engine).jobs).run().cycles
    assert compiler.search().cycles == pytest.approx(expected, abs=20)


def test_a_function_of_one_map_is_one_table():
    """The product of a convolution's output and its sigmoid is looked up on the convolution's way out."""
    layer = conv(channels=9, size=(5, 6))
    source = replace(layer.output, scale=0.1)
    half = replace(source, scale=float(np.float32(1 / 256)), zero_point=0)
    reals = (np.arange(256) - source.zero_point) * 0.1
    table = np.clip(np.rint(256 / (1 + np.exp(-reals))), 0, 255).astype(np.int64)[None]
    window = Window(kernel=(1, 1))
    sigmoid = Lookup(name="sigmoid", input=source, output=half, window=window, table=table)
    labels = Label(0.1, source.zero_point), Label(half.scale, 0), Label(0.05, 20)
    after = replace(source, zero_point=20)
    product = Mul(name="silu", input=source, more=(half,), output=after, window=window, labels=labels, low=0, high=255)
    layers = replace(layer, output=source), sigmoid, product
    network = Network(name="silu", layers=layers, edges=((INPUT,), ("conv",), ("conv", "sigmoid")))
    (task,) = tasks_of(network)
    assert task.looked_up
    check(schedule(network, SMALL))


@pytest.mark.parametrize("channels", [5, 8])
def test_maps_of_any_channels_are_joined(channels):
    """A map that begins at no whole block is joined in a scratch map; equal maps twice, and a map of another scale."""
    source = FeatureMap(channels=channels, height=5, width=6, type=UINT8, zero_point=3, scale=0.5)
    layer = replace(conv(channels=channels, maps=11, size=(5, 6)), input=source)
    layer = replace(layer, output=replace(layer.output, scale=0.25))
    maps = (source, layer.output, layer.output)
    output = replace(layer.output, channels=channels + 22)
    labels = tuple(Label(each.scale, each.zero_point) for each in (*maps, output))
    parameters = {"window": Window(kernel=(1, 1)), "labels": labels, "low": 0, "high": 255}
    joined = Concat(name="joined", input=source, more=maps[1:], output=output, **parameters)
    network = Network(name="joined", layers=(layer, joined), edges=((INPUT,), (INPUT, "conv", "conv")))
    check(schedule(network.with_inputs_read_once(), SMALL))


def test_channels_that_are_picked():
    source = FeatureMap(channels=21, height=5, width=6, type=INT8)
    index = tuple(np.random.default_rng(0).integers(0, 21, 50).tolist())
    layer = Select(
        name="select", input=source, output=replace(source, channels=50), window=Window(kernel=(1, 1)), index=index
    )
    check(schedule(alone(layer), SMALL))


def test_layers_overlap(digits):
    """A layer begins before the one before it is stored: what waits for a map waits for rows and blocks alone."""
    found = schedule(alone_chain(conv(size=(20, 20)), 2), SMALL)
    second = found.owners.index(1)
    assert 0 < found.jobs[second].load.wait_stored < second


def interpreted(found: ProgramSchedule, jobs: list[Job]) -> np.ndarray:
    (frame,) = frames_for(found.network, 1, 1)
    return interpret.outputs(replace(found, jobs=tuple(jobs)).program, frame)[0]


WAITS = [("load", "wait_computed"), ("load", "wait_stored"), ("drain", "wait_stored")]


@pytest.mark.parametrize(("part", "name"), WAITS)
def test_each_wait_is_needed(part, name):
    """A job less, where it is more than all jobs before waited for, and something may be read that isn't there."""
    network = alone_chain(conv(size=(7, 10), channels=40), 2)
    first, second = (layer.output for layer in network.layers)
    labels = tuple(Label(scale, each.zero_point) for scale, each in ((0.7, second), (0.4, first), (0.9, second)))
    more = {"more": (first,), "output": second, "window": Window(kernel=(1, 1))}
    add = Add(name="add", input=second, **more, labels=labels, fused=True, low=0, high=255)
    network = replace(network, layers=(*network.layers, add), edges=((INPUT,), ("conv0",), ("conv1", "conv0")))
    found = schedule(network, replace(SMALL, parameter_words=8, addend_words=128))
    rising, most = [], 0
    for number, job in enumerate(found.jobs):
        wait = getattr(getattr(job, part), name)
        if wait > max(most, job.load.wait_stored if part == "drain" else 0):
            rising.append((number, wait))
        most = max(most, wait, job.load.wait_stored if part == "drain" else 0)
    assert len(rising) > 3
    added = [each for each in rising if part == "load" and found.jobs[each[0]].load.addend]
    for number, wait in [*rising[:: -(-len(rising) // 8)], *added[:2]]:
        less = changed(found.jobs[number], part, **{name: wait - 1})
        with pytest.raises(CheckError, match=rf"job {number}: .* may "):
            interpreted(found, [*found.jobs[:number], less, *found.jobs[number + 1 :]])


def changed(job: Job, part: str, **fields) -> Job:
    return replace(job, **{part: replace(getattr(job, part), **fields)})


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        *refusals_in("program_wrong_fields_are_told.txt"),
        ("load", {"x_address": 1 << 30}, "within the memory"),
    ],
)
def test_wrong_fields_are_told(part, fields, message):
    found = schedule(alone(conv(kernel=1, channels=8, maps=16, size=(4, 5))), SMALL)
    with pytest.raises(CheckError, match=message):
        interpreted(found, [changed(found.jobs[0], part, **fields), *found.jobs[1:]])


def test_words_that_no_job_stored():
    found = schedule(alone_chain(conv(size=(4, 5)), 2), SMALL)
    last = found.owners.index(1) - 1
    jobs = [*found.jobs]
    jobs[last] = replace(jobs[last], store=type(jobs[last].store)())
    with pytest.raises(CheckError, match="never written"):
        interpreted(found, jobs)


def test_a_program_ends():
    found = schedule(alone(conv()), SMALL)
    packed = pack_jobs(SMALL, found.jobs)
    assert list(interpret.jobs(np.frombuffer(packed, np.uint8), 0)) == list(found.jobs)
    with pytest.raises(CheckError, match="must end"):
        list(interpret.jobs(np.frombuffer(packed[:-1], np.uint8), 0))


def test_sums_fit_their_bits():
    with pytest.raises(ModelError, match=r"conv: sums reach .*, more than this engine's accumulators of 16 bits hold"):
        schedule(alone(conv()), replace(SMALL, sum_bits=16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": np.full(40, 1 << 32)}, "must fit 32 bits"),
        ({"input": FeatureMap(channels=24, height=9, width=14, type=INT16)}, "at most 8 bits"),
        ({"window": Window(kernel=(3, 3), padding=(1, 1, 1, 1), dilation=(1, 300))}, "dilations of at most 255"),
    ],
)
def test_layers_that_are_refused(change, message):
    layer = conv(size=(9, 700)) if "window" in change else conv()
    if "window" in change:
        layer = replace(layer, **change, output=replace(layer.output, width=102))
    else:
        layer = replace(layer, **change)
    with pytest.raises(ModelError, match=f"conv: .*{message}"):
        schedule(alone(layer), SMALL)


@pytest.mark.parametrize(("scale", "zero"), [(0.61, 0), (1.22, 0)])
def test_clamps(scale, zero):
    """An Add and a Relu with a QuantizeLinear of its own: rounding to float32 on the way changes nothing."""
    network = clamped(scale, zero)
    if scale == 0.61:
        rule = network.layers[-1].requantisation
        assert not rule.float32
        assert (set(rule.significand), set(rule.shift)) == ({1 << 23}, {23})
    check(schedule(network, SMALL))


def test_products_that_float32_would_round():
    """An exact product just above a tie, which float32 takes for the tie."""
    # 5 * 14260634 / 2**23 = 8.50000024 has 27 significant bits; in float32 it is the tie 8.5.
    significand, shift = 14_260_634, 23
    exact = 5 * significand / 2**shift
    assert (np.rint(exact), np.rint(np.float32(5) * np.float32(significand / 2**shift))) == (9, 8)
    layer = conv(kernel=1, channels=8, maps=8, weights=np.eye(8, dtype=np.int64).reshape(8, 8, 1, 1))
    rule = replace(
        layer.requantisation,
        significand=np.full(8, significand),
        shift=np.full(8, shift),
        float32=False,
    )
    layer = replace(layer, bias=np.zeros(8, np.int64), requantisation=rule)
    found = schedule(alone(layer), SMALL)
    (task,) = (work.task for work in found.tiled_passes)
    assert (interpret.unpack_parameters(task.parameters)[1] != significand).all()
    check(found)


def test_sums_that_no_factor_gives():
    """Outputs that begin at sums which lie on no line are refused."""
    layer = conv(kernel=1, channels=8, maps=8, weights=np.eye(8, dtype=np.int64).reshape(8, 8, 1, 1))
    line, bent = np.arange(1, 256) * 7 - 400, np.arange(1, 256) ** 2
    check(
        schedule(alone(replace(layer, requantisation=Thresholds(first=np.stack([line] * 8), low=0, high=255))), SMALL)
    )
    with pytest.raises(ModelError, match="conv: the engine can't round this layer's sums"):
        schedule(alone(replace(layer, requantisation=Thresholds(first=np.stack([bent] * 8), low=0, high=255))), SMALL)


def test_a_bias_between_two_sums():
    """A bias of the convolution's own scale is requantised as usual; one with a fraction goes to the fixed unit."""
    layer = conv(kernel=1, channels=8, maps=8, weights=np.eye(8, dtype=np.int64).reshape(8, 8, 1, 1))
    rule = replace(layer.requantisation, significand=np.full(8, 15_099_494), shift=np.full(8, 24), float32=False)
    check(schedule(alone(replace(layer, bias=np.arange(8), requantisation=rule)), SMALL))
    shifted = replace(rule, shift=rule.shift + 6)
    between = alone(replace(layer, bias=np.arange(8) * 64 + 31, requantisation=shifted, fraction=6))
    with pytest.raises(ModelError, match=r"conv: needs the unit for layers in fixed point"):
        schedule(between, SMALL)
    found = schedule(between, replace(SMALL, fixed_words=256, parameter_words=64))
    assert [work.task.fixed is not None for work in found.tiled_passes] == [True]
    check(found)


@pytest.mark.long
@settings(max_examples=30)
@given(
    layer=st.builds(conv, kernel=st.sampled_from([1, 3]), channels=st.integers(1, 12), maps=st.integers(1, 9)),
    fraction=st.integers(0, 6),
    float32=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_roundings_of_other_kinds(layer, fraction, float32, seed):
    """Products that are rounded once, and biases finer than products, give the golden model's outputs."""
    rng = np.random.default_rng(seed)
    layer = replace(layer, fraction=fraction, bias=rng.integers(-1000, 1000, layer.outputs) << fraction // 2)
    layer = replace(layer, requantisation=replace(a_requantisation(rng, layer), float32=float32))
    check(scheduled(alone(layer), SMALL), seed % 1000)


@pytest.mark.parametrize(("channels", "maps", "groups"), [(24, 24, 2), (12, 20, 4), (16, 6, 2), (5, 15, 5)])
def test_groups_that_are_no_whole_blocks(channels, maps, groups):
    """They are computed as one, whose other weights are zero."""
    layer = conv(channels=channels, maps=maps)
    layer = replace(layer, groups=groups, weights=layer.weights[:, : channels // groups])
    check(schedule(alone(layer), SMALL))


@cases_in_the_long_run(30)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    kind=st.sampled_from(["conv", "depthwise", "pool"]),
    engine=engines(),
)
def test_strides_that_differ(kernel, stride, padding, dilation, kind, engine):
    layer = conv(kernel=1, channels=12, maps=12, size=(13, 15))
    window = Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    rows, columns = window.output_size(13, 15)
    output = replace(layer.output, height=rows, width=columns)
    if kind == "pool":
        layer = MaxPool(name="pool", input=layer.input, output=output, window=window)
    else:
        channels = 1 if kind == "depthwise" else 12
        weights = np.random.default_rng(0).integers(-128, 128, (12, channels, *kernel))
        layer = replace(layer, window=window, output=output, weights=weights, groups=12 // channels)
    check(scheduled(alone(layer), engine))


def test_strides_that_are_refused():
    layer = conv(size=(9, 9))
    window = Window(kernel=(3, 3), stride=(1, 5), padding=(1, 1, 1, 1))
    with pytest.raises(ModelError, match="conv: the engine accepts horizontal strides of 1 to 4, not 5"):
        schedule(alone(replace(layer, window=window, output=replace(layer.output, width=2))), SMALL)


def test_unknown_weights_have_jobs_but_no_bytes():
    layer = Conv.shaped(name="conv", channels=16, outputs=16, height=8, width=8, window=Window(kernel=(3, 3)))
    found = schedule(alone(layer), SMALL)
    assert found.jobs
    with pytest.raises(ModelError, match="contains the weights, and this network's are loaded at run time"):
        found.image  # noqa: B018


def test_buffers_that_hold_no_tile():
    with pytest.raises(PlanError, match="conv: the engine's buffers hold no tile"):
        schedule(alone(conv(kernel=7, size=(30, 30))), replace(SMALL, map_words=2))


def test_layout():
    """Blocks, rows, columns, lanes; and the order of steps, from the text of docs/reference/engine.md."""
    frame = np.arange(9 * 2 * 3, dtype=np.uint8).reshape(9, 2, 3)
    packed = np.frombuffer(pack_map(frame, UINT8), np.int8).reshape(2, 2, 3, 8)
    assert packed[0, 1, 2, 5] == int(frame[5, 1, 2]) - 128
    assert packed[1, 0, 1, 0] == int(frame[8, 0, 1]) - 128
    source = FeatureMap(channels=9, height=2, width=3, type=UINT8)
    np.testing.assert_array_equal(unpack_map(packed.tobytes(), source), frame)
    weights = np.random.default_rng(0).integers(-127, 128, (18, 10, 3, 2))
    steps = np.frombuffer(pack_weights(weights, 32), np.int8).reshape(-1, 32)
    assert len(steps) == 12 * 6  # of four channels each: two for each tap of the first block, one of the second
    assert steps[(1 * 2 + 1) * 8 + 4, 16] == weights[16, 4, 1, 1]
    assert steps[(1 * 2 + 1) * 8 + 4, 17] == weights[17, 4, 1, 1] - (weights[16, 4, 1, 1] < 0)
    assert steps[48 + (2 * 2 + 0) * 4 + 1, 3] == weights[3, 9, 2, 0] - (weights[2, 9, 2, 0] < 0)
    assert not steps[:, 18:].any()


def test_parameters():
    rng = np.random.default_rng(3)
    bias, significand = rng.integers(-(1 << 31), 1 << 31, 40), rng.integers(1 << 23, 1 << 24, 40)
    shift = rng.integers(0, 1000, 40)
    words = np.frombuffer(pack_parameters(parameter_words(bias, significand, shift)), "<u8")
    assert len(words) == 40
    for got, expected in zip(
        interpret.unpack_parameters(words), (bias, significand, np.minimum(shift, MAX_SHIFT)), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.fixture(scope="module")
def program() -> Program:
    return schedule(alone(conv()), SMALL).program


def test_programs_are_files(program, tmp_path):
    path = tmp_path / "conv.program"
    program.write(path)
    assert Program.read(path, SMALL) == program
    assert [each.name for each in tmp_path.iterdir()] == ["conv.program"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is not a program of hwgen"),
        (lambda data: b"x" + data[1:], "is not a program of hwgen"),
        (lambda data: data[:8] + b"\x07" + data[9:], "has version 7 of the format, this hwgen reads 5"),
        (lambda data: data[:-1], " bytes, not "),
        (lambda data: data + b"x", " bytes, not "),
        (lambda data: data[:100] + b"#" + data[101:], "has been changed or damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "has been changed or damaged"),
    ],
)
def test_files_that_are_none(program, tmp_path, change, message):
    path = tmp_path / "conv.program"
    program.write(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=message):
        Program.read(path, SMALL)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (lambda jobs: [jobs[0], changed(jobs[1], "drain", blocks=0), *jobs[2:]], "job 1: drain.blocks must not be 0"),
        (lambda jobs: jobs[:-1], r"job \d+ is damaged, of another engine or of another place in a program"),
        (lambda jobs: [changed(jobs[0], "load", wait_stored=1), *jobs[1:]], "job 0: load.wait_stored must count"),
    ],
)
def test_files_with_jobs_that_are_wrong(tmp_path, jobs, message):
    """Files that say of themselves that all is well."""
    found = schedule(alone(conv(kernel=1, channels=8, maps=16, size=(4, 5))), SMALL)
    path = tmp_path / "conv.program"
    replace(found, jobs=tuple(jobs(list(found.jobs)))).program.write(path)
    with pytest.raises(InputError, match=f"conv.program: {message}.*; compile it again"):
        Program.read(path, SMALL)


def test_programs_for_another_engine(program, tmp_path):
    path = tmp_path / "conv.program"
    program.write(path)
    other = replace(SMALL, slots=4)
    with pytest.raises(InputError, match=f"is for engine {digest(SMALL)}, this one is {digest(other)}"):
        Program.read(path, other)


def a_map(channels: int, height: int, width: int) -> FeatureMap:
    return FeatureMap(channels=channels, height=height, width=width, type=UINT8, zero_point=3)


MOVED = [
    moved("moved", Upsample, a_map(20, 5, 7), factors=(2, 2)),
    moved("moved", Upsample, a_map(9, 3, 30), factors=(3, 1)),
    moved("moved", Upsample, a_map(8, 4, 5), factors=(1, 4)),
    moved("moved", DepthToSpace, a_map(64, 5, 7), blocks=(2, 2)),
    moved("moved", DepthToSpace, a_map(30, 4, 9), blocks=(2, 3)),
    moved("moved", SpaceToDepth, a_map(10, 6, 8), blocks=(2, 2)),
    moved("moved", SpaceToDepth, a_map(3, 12, 9), blocks=(3, 3)),
]


def test_jobs_stay_in_their_memory(tmp_path):
    """A job that accesses other memory, or writes the program's image, under a right seal and checksum."""
    program = schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program
    path = tmp_path / "conv.program"
    cases = list(escapes(program))
    assert len(cases) >= 10
    for name, job_index, part, values in cases:
        path.write_bytes(with_job(bytes(program), SMALL, job_index, part, **values))
        with pytest.raises(InputError, match=rf"job {job_index}: {name} must keep its [\d,]+ bytes within"):
            Program.read(path, SMALL)


@pytest.mark.parametrize("layer", MOVED, ids=lambda layer: f"{layer.kind}-{layer.channels}")
def test_pixels_that_are_moved(layer):
    """Alone, and between convolutions, which wait for every row that they read."""
    check(schedule(alone(layer), SMALL))
    before = replace(conv(channels=4, maps=layer.channels, size=layer.input.shape[1:]), name="before")
    output = replace(before.output, type=layer.input.type, zero_point=layer.input.zero_point)
    after = replace(conv(channels=layer.outputs, maps=8, size=layer.output.shape[1:]), name="after")
    after = replace(after, input=replace(after.input, zero_point=layer.output.zero_point))
    found = schedule(Network(name="moved", layers=(replace(before, output=output), layer, after)), SMALL)
    check(found)


def test_blocks_of_pixels_that_are_refused():
    with pytest.raises(ModelError, match="moved: the engine accepts blocks of 1 to 4 columns, not 6"):
        schedule(alone(moved("moved", SpaceToDepth, a_map(2, 4, 6), blocks=(2, 6))), SMALL)


def average(
    x_scale: float, y_scale: float, kernel: int = 3, zero: tuple[int, int] = (0, 0), **parameters
) -> AveragePool:
    source = replace(a_map(20, 11, 13), zero_point=zero[0])
    window = Window(kernel=(kernel, kernel), stride=(2, 2), padding=(1,) * 4)
    rows, columns = window.output_size(11, 13)
    output = replace(source, height=rows, width=columns, zero_point=zero[1])
    scales = {"x_scale": float(np.float32(x_scale)), "y_scale": float(np.float32(y_scale))}
    return AveragePool(
        name="average", input=source, output=output, window=window, **scales, **{"include_padding": True, **parameters}
    )


@pytest.mark.parametrize(
    "layer",
    [
        average(0.25, 0.25, kernel=2),  # nothing is rounded, and the zero point is even
        average(0.25, 0.25, kernel=2, zero=(0, 3)),  # 2 of 4 and 3 are 3.5, rounded up
        average(0.25, 0.19, include_padding=False),  # 4, 6 and 9 values
        average(0.0317, 0.0171, zero=(128, 131), include_padding=False),
        average(0.25, 0.19, zero=(7, 100)),
        average(0.0317, 0.0291),
        average(0.0317, 0.0171, zero=(128, 131)),
    ],
)
def test_average_pools(layer):
    """Sums that are requantised give what float32 gives, tap by tap."""
    check(schedule(alone(layer), SMALL))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (average(0.1, 0.1, kernel=4), "lies so near a tie"),
        (average(0.1, 0.1, kernel=4, zero=(0, 3), include_padding=False), "lies so near a tie"),
        (average(0.1, 0.1, kernel=2), "needs the unit for layers in fixed point"),  # at most 14 values, in float32
    ],
)
def test_average_pools_that_are_refused(layer, message):
    with pytest.raises(ModelError, match=f"average: .*{message}"):
        schedule(alone(layer), SMALL)


@settings(max_examples=40)
@given(
    scales=st.tuples(st.floats(1e-3, 1), st.floats(1e-3, 1)),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    zero=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    power=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_rules_of_average_pools(scales, size, zero, power, seed):
    """A rule that isn't refused gives what the golden model gives, for windows of values near each other and not."""
    rng, (rows, columns) = np.random.default_rng(seed), size
    x_scale, y_scale = (float(np.float32(2.0 ** round(np.log2(each)) if power else each)) for each in scales)
    source = replace(a_map(3000, rows, columns), zero_point=zero[0])
    output = replace(source, height=1, width=1, zero_point=zero[1])
    window = {"window": Window(kernel=size), "include_padding": True}
    layer = AveragePool(name="average", input=source, output=output, x_scale=x_scale, y_scale=y_scale, **window)
    with left_out_if("lies so near a tie", "no factor of the engine"):
        weight, factors = average_factors(layer, layer.taps)
    most = rng.integers(1, 257, (3000, 1, 1))
    frame = np.clip(rng.integers(0, 256, (3000, 1, 1)) + rng.integers(-256, 257, (3000, *size)) % most, 0, 255)
    sums = frame.sum(axis=(1, 2)) - zero[0] * rows * columns
    wanted = layer.compute(frame.astype(np.uint8))[:, 0, 0]
    rule = Requantisation(
        significand=factors.significand,
        shift=factors.shift,
        zero_point=factors.zero_point,
        low=0,
        high=255,
        float32=True,
    )
    np.testing.assert_array_equal(requantise(weight * sums[None] + factors.bias, rule, 1 << 24)[0], wanted)


def described(program: Program, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file of a program whose description was changed, and whose checksum is right."""
    content = bytes(program)
    size = int.from_bytes(content[32:40], "little")
    told = json.loads(content[48 : 48 + size])
    change(told)
    text = json.dumps(told).encode()
    body = content[16:32] + struct.pack("<QQ", len(text), len(program.image)) + text + program.image
    return content[:12] + struct.pack("<I", zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.clear(), "lacks 'engine'"),
        (lambda told: told.update(engine=[]), "engine must be an object, not an array"),
        (lambda told: told["engine"].update(maps="16"), 'engine: maps must be an integer, not "16"'),
        (lambda told: told["engine"].update(depth=3), 'engine has no "depth": it has addend_words, '),
        (lambda told: told["engine"].update(maps=20), "engine: maps must be a multiple of 8, not 20"),
        (lambda told: told.update(size=4), "size must be [0-9,]+ to 4,294,967,296, not 4"),
        (lambda told: told.update(size=1e9), "size must be an integer, not 1000000000.0"),
        (lambda told: told["inputs"][0].pop("map"), r"inputs\[0\] lacks 'map'"),
        (lambda told: told["inputs"][0]["map"]["type"].update(bits=40), "type: bits must be 1 to 32, not 40"),
        (
            lambda told: told["inputs"][0]["map"].update(height=10**9),
            "inputs\\[0\\]: map: a map must have at most 65,535",
        ),
        (lambda told: told["inputs"][0]["map"].update(scale="1"), 'scale must be a number, not "1"'),
        (lambda told: told["inputs"][0].update(address=4), "address must be a multiple of 8, not 4"),
        (lambda told: told["outputs"][0].update(address=1 << 31), "ends map '.*' at byte [0-9,]+, beyond its memory"),
        (lambda told: told.update(outputs=[]), "has no outputs"),
        (lambda told: told["outputs"].append(7), r"outputs\[1\] must be an object, not 7"),
        (lambda told: told.update(layers=[1]), "layers\\[0\\] must be a string, not 1"),
        (lambda told: told["owners"].append(-1), "owners\\[[0-9]+\\] must be 0 to 0, not -1"),
        (lambda told: told["owners"].pop(), "describes [0-9]+ jobs, but has [0-9]+; compile it again"),
        (lambda told: told.update(batch=True), "batch must be an integer, not true"),
        (lambda told: told.update(ends=None), "ends must be an object, not null"),
    ],
)
def test_descriptions_that_make_no_sense(program, tmp_path, change, message):
    """One line that says where, what must be there, and what is; never Python's."""
    (tmp_path / "changed.program").write_bytes(described(program, change))
    with pytest.raises(InputError, match=message) as caught:
        Program.read(tmp_path / "changed.program")
    assert str(caught.value).endswith("; compile it again")
