"""Accelerators that work tile by tile, in all simulators: maps in tile order, bytes, steps, groups in turn."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace

import numpy as np
import pytest
from accelerators import frames_for
from amaranth import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs_compiler, needs_icarus_and_make
from step_counts import multiplications, windows
from tiles import Case, cases, pools

from hwgen import emit, simulate
from hwgen.errors import InputError
from hwgen.explore.pyramid import recomputation
from hwgen.gateware.circuit_ports import Config
from hwgen.gateware.stream import BeatFormat, Order
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import Requantisation, Window
from hwgen.network.ops import Conv
from hwgen.simulate import Memory, check, stimuli
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan
from hwgen.templates.pyramid import in_tiles
from hwgen.templates.pyramid_tiles import RECOMPUTE, REUSE, axes

SEEDS = st.integers(0, 2**32)


def map_bytes(case: Case, frames: int) -> tuple[int, int]:
    """Pixels that come in and go out, by the tiles; every channel in its NumPy type."""
    (rows, columns), (last_rows, last_columns) = case.tiles[0], case.tiles[-1]
    source, result = case.network.input, case.network.output
    read = sum((row.end - row.fresh) * (column.end - column.fresh) for row in rows.spans for column in columns.spans)
    written = sum(row.windows * column.windows for row in last_rows.spans for column in last_columns.spans)
    assert written == result.height * result.width
    return (
        frames * read * source.channels * source.type.dtype.itemsize,
        frames * written * result.channels * result.type.dtype.itemsize,
    )


def check_in_all(case: Case, frames: np.ndarray, simulators, **options) -> simulate.Run:
    """Outputs as the golden model has them, layer by layer; the same cycles, bytes and steps in all simulators."""
    runs = [
        simulate.run(case.config, frames, simulate.Options(simulator=name, taps=True, **options)) for name in simulators
    ]
    expected = golden.run(case.network, frames)
    trace = [(layer.name, values) for layer, values in golden.trace(case.network, frames)]
    for run in runs:
        np.testing.assert_array_equal(run.outputs, expected)
        assert check.compare_layers(run.taps, trace, case.config.tap_orders) is None
        assert (run.read_bytes, run.written_bytes) == map_bytes(case, len(frames))
        assert (run.first_input, run.frame_ends, run.written_ends, run.cycles, run.steps) == (
            runs[0].first_input,
            runs[0].frame_ends,
            runs[0].written_ends,
            runs[0].cycles,
            runs[0].steps,
        )
        np.testing.assert_array_equal(run.busy, runs[0].busy)
    # Each layer takes exactly the steps of its windows.
    for steps, layer, (rows, columns) in zip(runs[0].steps, case.config.layers, case.tiles, strict=True):
        count = sum(span.windows for span in rows.spans) * sum(span.windows for span in columns.spans)
        assert steps == len(frames) * count * layer.window.window_cycles
    return runs[0]


OPTIONS = st.one_of(
    st.just({}),
    st.builds(lambda seed: {"stalls": (0.3, 0.5), "seed": seed}, st.integers(0, 9)),
    st.builds(
        lambda latency, rate, queue: {"memory": Memory(latency=latency, bytes_per_cycle=rate, queue=queue)},
        st.integers(0, 50),
        st.floats(0.3, 20),
        st.integers(1, 8),
    ),
)


@pytest.mark.long
@given(case=cases(max_layers=1), seed=SEEDS)
def test_input_order(case, seed):
    """The beats of the tiles' own tests, but for lanes that don't count: there they hold noise."""
    frames = frames_for(case.network, 2, seed)
    beat, order = case.config.input, case.config.input_order
    words = stimuli.words(case.beats_in(frames), beat)
    assert len(words) == 2 * order.beats(beat)
    pixels, _ = stimuli.unpack(words, beat, order)
    sent, last = stimuli.unpack(stimuli.pack(frames, beat, order), beat, order)
    np.testing.assert_array_equal(pixels, sent)
    assert np.flatnonzero(last).tolist() == [len(words) // 2 - 1, len(words) - 1]


@pytest.mark.long
@settings(max_examples=4)
@given(case=cases(max_layers=3), seed=SEEDS, options=OPTIONS)
def test_groups_of_layers(case, seed, options):
    check_in_all(case, frames_for(case.network, 2, seed), ["amaranth"], **options)


@pytest.mark.long
@needs_icarus_and_make
@needs_compiler
@settings(max_examples=10)
@given(case=cases(max_layers=3), seed=SEEDS, options=OPTIONS)
def test_many_groups_of_layers(case, seed, options):
    check_in_all(case, frames_for(case.network, 2, seed), simulate.SIMULATORS, **options)


@pytest.mark.long
@needs_icarus_and_make
@needs_compiler
def test_all_simulators_agree():
    case = pools(tip=(4, 3), overlap=REUSE)
    frames = frames_for(case.network, 2, 0)
    for options in (
        {},
        {"memory": Memory(latency=30, bytes_per_cycle=0.27, queue=2)},
        {"stalls": (0.4, 0.2), "reset_at": 99},
    ):
        check_in_all(case, frames, simulate.SIMULATORS, **options)


@pytest.mark.long
def test_share_of_busy_cycles():
    """Nine steps for each of 64 and of 36 windows (test_tile_layer has the intervals); recomputed, pool0 never rests.

    Layers work ahead of the output, but for the last frame, which none follows.
    """
    frames = frames_for(pools().network, 4, 0)
    reuse = check_in_all(pools(), frames, ["amaranth"])
    assert reuse.interval == 64 * 9 + 6
    assert reuse.busy[:, 1:3].tolist() == [[64 * 9] * 2, [36 * 9] * 2]
    again = check_in_all(pools(overlap=RECOMPUTE), frames, ["amaranth"])
    assert again.interval == 144 * 9
    assert again.busy[:, 1:3].tolist() == [[144 * 9] * 2, [36 * 9] * 2]
    assert again.steps == (4 * 144 * 9, 4 * 36 * 9)
    assert windows(pools(overlap=RECOMPUTE).config, again) == (4 * 144, 4 * 36)
    assert windows(pools().config, reuse) == (4 * 64, 4 * 36)


def convolutions(tip: tuple[int, int] = (2, 2), overlap: str = REUSE) -> Case:
    """Three convolutions, 3 x 3, in two groups of channels, strides 1, 2 and 1, over 4 x 11 x 9."""
    rng = np.random.default_rng(2)
    before = replace(pools().network.input, channels=4, height=11, width=9)
    layers = []
    for number, (stride, channels) in enumerate(((1, 6), (2, 4), (1, 2))):
        window = Window(kernel=(3, 3), stride=(stride, stride), padding=(0, 0, 0, 0) if number else (1, 1, 1, 1))
        rows, columns = window.output_size(before.height, before.width)
        after = replace(before, channels=channels, height=rows, width=columns)
        scale = Requantisation(
            significand=np.full(channels, 1 << 23), shift=np.full(channels, 26), zero_point=0, low=0, high=255
        )
        layers.append(
            Conv(
                name=f"conv{number}",
                input=before,
                output=after,
                window=window,
                weights=rng.integers(-9, 10, (channels, before.channels // 2, 3, 3)),
                bias=rng.integers(-99, 99, channels),
                requantisation=scale,
                groups=2,
            )
        )
        before = after
    network = Network(name="convolutions", layers=tuple(layers))
    plan = LayerPlan(name="", kind="conv", tn=2, tm=1, tk=9, chain=16, line_rows=5, fifo_depths=(32,))
    config = compose(network, [replace(plan, name=layer.name) for layer in layers])
    return Case(network, in_tiles(config, axes(layers, tip, overlap)))


@pytest.mark.long
@pytest.mark.parametrize("tip", [pytest.param((1, 1), marks=pytest.mark.long), (3, 1)])
def test_multiplications_of_recomputation(tip):
    """As many as the model of pyramids says, which reproduces Alwani's figures."""
    case = convolutions(tip, RECOMPUTE)
    run = simulate.run(case.config, frames_for(case.network, 2, 0), simulate.Options(simulator="amaranth", taps=True))
    work = recomputation(case.network.layers, tip)
    assert sum(multiplications(case.config, run)) == 2 * (work.multiplications + work.extra_multiplications)
    assert run.read_bytes == 2 * work.input_words


def test_multiplications_of_a_stream():
    """Two pixels a step, rows of three: the fourth is not counted; a pool multiplies nothing."""
    before = replace(pools().network.input, height=2, width=3)
    conv = convolutions().network.layers[0]
    layer = replace(conv, input=before, output=replace(before, channels=6), groups=1, weights=conv.weights[:, :1])
    plan = LayerPlan(name="conv", kind="conv", tn=1, tm=3, tk=9, tp=2, chain=16, line_rows=3, fifo_depths=(9,))
    config = compose(Network(name="wide", layers=(layer,)), [plan])
    run = simulate.run(config, np.zeros((2, 1, 2, 3), np.uint8), simulate.Options(simulator="amaranth", taps=True))
    assert run.steps == (2 * 2 * 2 * 2,)  # frames, rows, steps of a row, output folds
    assert windows(config, run) == (2 * 6,)
    assert multiplications(config, run) == (2 * 6 * 9 * 6,)
    config = pools().config
    run = simulate.run(config, np.zeros((1, 1, 10, 10), np.uint8), simulate.Options(simulator="amaranth", taps=True))
    assert multiplications(config, run) == (0, 0)
    plain = simulate.run(config, np.zeros((1, 1, 10, 10), np.uint8), simulate.Options(simulator="amaranth"))
    assert plain.busy.shape == (0, 1)
    with pytest.raises(InputError, match=r"^pools: steps of 2 layers are needed \(taps\), not 0$"):
        windows(config, plain)


# Groups in turn


def in_turn() -> tuple[Case, list[Case]]:
    """The three convolutions, and the same as a group of one and a group of two."""
    whole = convolutions()
    layers, tiles = whole.network.layers, [(3, 4), (2, 2)]
    groups = []
    for part, tip, overlap in zip((layers[:1], layers[1:]), tiles, (REUSE, RECOMPUTE), strict=True):
        network = Network(name=part[0].name, layers=part)
        plan = LayerPlan(name="", kind="conv", tn=2, tm=1, tk=9, chain=16, line_rows=5, fifo_depths=(32,))
        config = compose(network, [replace(plan, name=layer.name) for layer in part])
        groups.append(Case(network, in_tiles(config, axes(part, tip, overlap))))
    return whole, groups


@pytest.mark.long
@pytest.mark.parametrize(
    "memory", [Memory(), pytest.param(Memory(latency=25, bytes_per_cycle=1.3), marks=pytest.mark.long)]
)
def test_groups_in_turn(memory):
    """Alone, a frame takes each group as long as in the run of both; a group begins behind the last byte before it."""
    whole, groups = in_turn()
    frames = frames_for(whole.network, 3, 0)
    configs = [group.config for group in groups]
    run = simulate.run_groups(configs, frames, simulate.Options(simulator="amaranth", memory=memory, taps=True))
    np.testing.assert_array_equal(run.outputs, golden.run(whole.network, frames))
    trace = [(layer.name, values) for layer, values in golden.trace(whole.network, frames)]
    orders = [order for config in configs for order in config.tap_orders]
    assert check.compare_layers(run.taps, trace, orders) is None
    assert len(run.group_runs) == 2
    maps = [map_bytes(group, 3) for group in groups]
    assert (run.read_bytes, run.written_bytes) == (maps[0][0] + maps[1][0], maps[0][1] + maps[1][1])
    alone = []
    inputs = frames
    for config in configs:
        alone.append(simulate.run(config, inputs[:1], simulate.Options(simulator="amaranth", memory=memory)))
        inputs = alone[-1].outputs
    first = sum(part.written_ends[0] + 1 for part in alone)
    # A group that is ready waits for nothing but the memory: what it takes to come out of reset shows once.
    each = first - (0 if memory.may_stall else alone[0].first_input)
    assert run.written_ends == (first - 1, first + each - 1, first + 2 * each - 1)
    assert (run.cycles, run.interval, run.steady) == (first + 2 * each, each, True)
    assert run.latency == first - 1 - alone[0].first_input - (alone[1].written_ends[0] - alone[1].frame_ends[0])
    assert run.busy.shape == (3, 3)
    assert run.busy.sum(axis=1).tolist() == list(run.steps)
    if not memory.may_stall:
        assert run.latency == alone[0].latency + 1 + alone[1].latency


@pytest.mark.long
def test_one_group_is_a_plain_run():
    case = pools()
    frames = frames_for(case.network, 3, 0)
    run = simulate.run_groups([case.config], frames, simulate.Options(simulator="amaranth"))
    assert run.frame_ends == simulate.run(case.config, frames, simulate.Options(simulator="amaranth")).frame_ends
    assert run.group_runs == ()
    with pytest.raises(InputError, match=r"^configs must have at least one"):
        simulate.run_groups([], frames)


def test_waves_of_groups(tmp_path):
    beat = BeatFormat(channels=1, height=1, width=5, lanes=1, bits=6, signed=False)
    configs = [EchoConfig(name="echo", input=beat, input_order=beat.raster)] * 2
    frames = np.zeros((1, 1, 1, 5), np.uint8)
    simulate.run_groups(
        configs, frames, simulate.Options(simulator="amaranth", component=Echo, waves=tmp_path / "all.vcd")
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all-1.vcd", "all-2.vcd"]


# Where a difference begins


@pytest.mark.long
def test_a_difference_is_found_in_either_copy():
    """Recomputed values leave a layer twice: any of them may be wrong."""
    case = convolutions((2, 2), RECOMPUTE)
    frames = frames_for(case.network, 1, 0)
    run = simulate.run(case.config, frames, simulate.Options(simulator="amaranth", taps=True))
    trace = [(layer.name, values) for layer, values in golden.trace(case.network, frames)]
    orders = case.config.tap_orders
    height, width = case.network.layers[0].output.height, case.network.layers[0].output.width
    places = stimuli.pixel_sequence(height, width, orders[0]).tolist()
    twice = next(place for place in places if places.count(place) == 2)
    first = places.index(twice)
    for number in (first, places.index(twice, first + 1)):
        taps = {key: values.copy() for key, values in run.taps.items()}
        taps[0][0, 3, number] ^= 5
        mismatch = check.compare_layers(taps, trace, orders)
        assert (mismatch.layer, mismatch.count) == ("conv0", 1)
        assert (mismatch.row * width + mismatch.column, mismatch.channel) == (twice, 3)


def test_outputs_are_compared_as_they_travel():
    """Of two wrong values the one of the earlier tile, though it lies further down."""
    case = pools(tip=(3, 3))
    values = np.zeros((1, 1, 6, 6), np.uint8)
    wrong = values.copy()
    wrong[0, 0, 0, 3] = 1
    wrong[0, 0, 2, 1] = 2
    mismatch = check.compare(wrong, values, order=case.config.output_order)
    assert (mismatch.row, mismatch.column, mismatch.value, mismatch.count) == (2, 1, 2, 2)
    mismatch = check.compare(wrong, values)
    assert (mismatch.row, mismatch.column, mismatch.value) == (0, 3, 1)


@pytest.mark.long
@pytest.mark.parametrize("layer", [pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 2])
def test_locate(layer):
    """The golden model of other weights: the layer that they are of, whether in one group or in two."""
    whole, groups = in_turn()
    frames = frames_for(whole.network, 2, 0)
    outputs = golden.run(whole.network, frames)
    layers = list(whole.network.layers)
    layers[layer] = replace(layers[layer], bias=layers[layer].bias + 999)
    other = Network(name="other", layers=tuple(layers))
    expected = golden.run(other, frames)
    for configs in (whole.config, [group.config for group in groups]):
        mismatch = check.locate(configs, other, frames, [outputs], [expected], simulator="amaranth")
        assert (mismatch.layer, mismatch.frame) == (f"conv{layer}", 0)


# The emitted test bench


@dataclass(frozen=True, kw_only=True)
class EchoConfig:
    """Gives back what comes in, with noise in the lanes that don't count."""

    name: str
    input: BeatFormat
    input_order: Order

    @property
    def output(self) -> BeatFormat:
        return self.input

    @property
    def output_order(self) -> Order:
        return self.input_order


class Echo(wiring.Component):
    def __init__(self, config: EchoConfig):
        self.config = config
        super().__init__({"i": In(config.input.signature), "o": Out(config.output.signature)})

    def elaborate(self, platform):
        m = Module()
        beat, order = self.config.input, self.config.input_order
        ones = np.full((1, *shape_of(beat)), -1 if beat.signed else (1 << beat.bits) - 1)
        pixels = (1 << beat.pixels * beat.bits) - 1
        noise = []
        for word in stimuli.integers(stimuli.pack(ones, beat, order)):
            inside = word & pixels  # of the first channel, and so of all lanes: those past the last channel are zero
            counts = sum(inside << lane * beat.pixels * beat.bits for lane in range(beat.lanes))
            noise.append((1 << beat.data_bits) - 1 & ~counts)
        m.submodules.noise = table = memory.Memory(shape=beat.data_bits, depth=len(noise), init=noise)
        port = table.read_port(domain="comb")
        number = Signal(range(len(noise)))
        m.d.comb += [
            port.addr.eq(number),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            self.o.payload.eq(self.i.payload.as_value() ^ port.data),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += number.eq(Mux(number == len(noise) - 1, 0, number + 1))
        return m


def shape_of(beat: BeatFormat) -> tuple[int, int, int]:
    return beat.channels, beat.height, beat.width


ECHO = EchoConfig(
    name="echo",
    input=BeatFormat(channels=5, height=4, width=9, lanes=2, bits=6, signed=True, pixels=3),
    # Rows 2, 3 and 0; columns 0 to 3 in threes from -1 on, 5 to 8 in threes from 5 on, 1 in the middle of a beat.
    input_order=Order(rows=((2, 4), (0, 1)), columns=((0, 4), (5, 9), (1, 2)), grids=(2, 5, 0)),
)


def echo_frames(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(-32, 32, (count, *shape_of(ECHO.input))).astype(np.int8)


def build_and_run(folder, config: Config, frames, expected, component=None) -> tuple[int, str]:
    texts = {"plan_json": "{}", "report": "# A report"}
    folder = emit.build(config=config, frames=frames, expected=expected, directory=folder, component=component, **texts)
    run = subprocess.run(["make", "-s", "icarus"], cwd=folder, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


@needs_icarus_and_make
@pytest.mark.parametrize("simulator", simulate.SIMULATORS)
def test_beats_that_begin_anywhere(simulator):
    """Several pixels a beat, in beats of which only a part lies in the rectangle."""
    if simulator == "verilator" and not (shutil.which("g++") and shutil.which("make")):
        pytest.skip("g++ or make is missing: apt install g++ make")
    frames = echo_frames(3)
    run = simulate.run(
        ECHO, frames, simulate.Options(simulator=simulator, component=Echo, memory=Memory(bytes_per_cycle=3.3))
    )
    travels = np.zeros((4, 9), bool)
    travels[np.ix_([0, 2, 3], [0, 1, 2, 3, 5, 6, 7, 8])] = True
    np.testing.assert_array_equal(run.outputs, np.where(travels, frames, 0))
    # Three rows of nine columns, column 1 twice, five channels of a byte.
    assert run.read_bytes == run.written_bytes == 3 * 3 * 9 * 5
    assert run.cycles == pytest.approx(2 * 3 * 3 * 9 * 5 / 3.3, abs=5)


@pytest.mark.long
@needs_icarus_and_make
def test_bench_of_several_pixels_a_beat(tmp_path):
    """Noise outside of the rectangles passes; a wrong value is named by its place in the map."""
    frames = echo_frames(2)
    status, said = build_and_run(tmp_path / "good", ECHO, frames, frames, Echo)
    assert status == 0, said
    assert "PASS" in said
    assert f"{2 * 3 * 9 * 5} bytes read, {2 * 3 * 9 * 5} written" in said
    for channel, row, column, first in ((4, 3, 8, 8), (0, 2, 1, 0), (3, 0, 6, 5)):
        wrong = frames.copy()
        wrong[1, channel, row, column] ^= 1
        status, said = build_and_run(tmp_path / "bad", ECHO, frames, wrong, Echo)
        assert status != 0
        assert f"frame 1, row {row}, column {first}:" in said
        value = frames[1, channel, row, column]
        assert f"  column {column}, channel {channel}: {value}, expected {value ^ 1}" in said


@pytest.mark.long
@needs_icarus_and_make
def test_bench_of_a_group_in_tiles(tmp_path):
    """`make icarus` by the golden model; a value expected wrong is named by its place in the map."""
    case = convolutions((2, 2), RECOMPUTE)
    frames = frames_for(case.network, 2, 0)
    expected = golden.run(case.network, frames)
    status, said = build_and_run(tmp_path / "good", case.config, frames, expected)
    assert status == 0, said
    reads, writes = map_bytes(case, 2)
    assert re.search(rf"PASS: .* {reads} bytes read, {writes} written", said)
    text = (tmp_path / "good" / "report.md").read_text()
    assert "rectangle by rectangle" in text
    expected[1, 1, 2, 1] ^= 1
    status, said = build_and_run(tmp_path / "bad", case.config, frames, expected)
    assert status != 0
    assert "frame 1, row 2, column 1:" in said
    assert f" channel 1: {expected[1, 1, 2, 1] ^ 1}, expected {expected[1, 1, 2, 1]}" in said
