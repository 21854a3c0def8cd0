"""Networks with several inputs: from ONNX to every simulator, and what the schedule says of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from accelerators import Case, from_beats, inputs_for, size_buffers, to_beats
from amaranth import ClockDomain, Module
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from foreign import Writer
from graphs import graph_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from min_depths import check_shallower, min_depths
from needs import needs_compiler, needs_icarus
from onnx import TensorProto, helper
from onnx_models import SIZES, pictures, siamese
from onnx_writing import as_model
from referees import FLOAT_OPERATORS, integer_session
from runs import SEEDS, check_reset, check_simulator, check_stalled, runs_of

import hwgen
from hwgen import simulate as run
from hwgen.cli.main import main
from hwgen.errors import ConfigError, InputError, ModelError, PlanError
from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.network import golden
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Requantisation, Window
from hwgen.network.onnx.importer import to_network
from hwgen.network.ops import Conv, MaxPool
from hwgen.network.quantise import quantise
from hwgen.plan import document
from hwgen.schedule.solve import Schedule, steady_cycles
from hwgen.simulate import check, stimuli
from hwgen.simulate.memory import Memory, TrafficModel
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, with_buffers

COUNTS = st.integers(2, 3)


@st.composite
def cases(draw, **limits) -> Case:
    """With two or three inputs, and one output or several."""
    return draw(graph_cases(inputs=draw(COUNTS), several=draw(st.booleans()), **limits))


# In hardware


def transfers(config: AcceleratorConfig, frames: list[np.ndarray]) -> tuple[list[list[int]], list[list[tuple]]]:
    """The cycles of the transfers at each input, and those at each output with their words; nobody stalls."""
    component: Any = Accelerator(config)
    m = Module()
    m.domains.sync = ClockDomain()
    m.submodules.dut = component
    sources = [getattr(component, port.name) for port in config.input_ports]
    sinks = [getattr(component, port.name) for port in config.output_ports]
    beats = [to_beats(port.beat, values) for port, values in zip(config.input_ports, frames, strict=True)]
    wanted = [len(frames[0]) * port.beats for port in config.output_ports]
    signals = [source.ready for source in sources]
    signals += [signal for sink in sinks for signal in (sink.valid, sink.payload.as_value())]
    taken: list[list[int]] = [[] for _ in sources]
    given: list[list[tuple]] = [[] for _ in sinks]

    async def bench(ctx):
        for sink in sinks:
            ctx.set(sink.ready, 1)
        cycle = idle = 0
        while idle < 4000 and [*map(len, given)] != wanted:
            for source, words, done in zip(sources, beats, taken, strict=True):
                ctx.set(source.valid, len(done) < len(words))
                ctx.set(source.payload.as_value(), words[min(len(done), len(words) - 1)])
            _, _, *sampled = await ctx.tick().sample(*signals)
            before = sum(map(len, (*taken, *given)))
            for number, (words, done) in enumerate(zip(beats, taken, strict=True)):
                if sampled[number] and len(done) < len(words):
                    done.append(cycle)
            pairs = sampled[len(sources) :]
            for moves, valid, word in zip(given, pairs[::2], pairs[1::2], strict=True):
                if valid:
                    moves.append((cycle, int(word)))
            cycle += 1
            idle = 0 if sum(map(len, (*taken, *given))) > before else idle + 1

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return taken, given


def check_exact(case: Case, seed: int) -> None:
    """Every value, and the cycle of every beat at every end as the schedule has it."""
    config, frames = case.config, inputs_for(case.network, 3, seed)
    schedule = Schedule(config, 3)
    cycles = schedule.cycles
    taken, given = transfers(config, frames)
    begin = min(times[0] for times in taken)
    start = min(int(times[0]) for times in schedule.taken[: len(taken)])
    for number, times in enumerate(taken):
        np.testing.assert_array_equal(np.array(times) - begin, schedule.taken[number] - start)
    ends = []
    for place, (port, beats) in enumerate(zip(config.output_ports, given, strict=True)):
        fifo = next(n for n, each in enumerate(config.links) if (each.sink, each.port) == (len(config.layers), place))
        times = np.array([cycle for cycle, _ in beats]) - begin
        np.testing.assert_array_equal(times, schedule.taken[len(taken) + fifo] - start)
        ends.append(times[port.beats - 1 :: port.beats])
    first, second, third = np.max(ends, axis=0)
    assert (cycles.latency, cycles.interval) == (first, third - second)
    expected = golden.outputs(case.network, frames)
    for port, beats, maps in zip(config.output_ports, given, expected, strict=True):
        np.testing.assert_array_equal(from_beats(port.beat, [word for _, word in beats]), maps)


@cases_in_the_long_run(5)
@given(case=cases(max_steps=2, max_side=5), seed=SEEDS)
def test_exact(case, seed):
    """Nobody stalls."""
    check_exact(case, seed)


@pytest.mark.long
@settings(max_examples=23)
@given(case=cases(max_steps=4), seed=SEEDS)
def test_exact_in_many(case, seed):
    check_exact(case, seed)


@pytest.mark.long
@settings(max_examples=4)
@given(case=cases(sized=True, max_steps=2, max_side=4), data=st.data())
def test_stalls(case, data):
    check_stalled(case, data)


@pytest.mark.long
@settings(max_examples=16)
@given(case=cases(sized=True, max_steps=4), data=st.data())
def test_stalls_of_many(case, data):
    check_stalled(case, data, reset_at=data.draw(st.integers(1, 300)))


@pytest.mark.long
@settings(max_examples=3)
@given(case=cases(max_steps=2, max_side=4), seed=SEEDS, cycle=st.integers(1, 200))
def test_reset(case, seed, cycle):
    check_reset(case, seed, cycle)


@settings(max_examples=4)
@given(case=cases(sized=True, max_steps=2, max_side=4))
def test_nothing_could_be_less(case):
    """No FIFO could be shallower alone, without a frame that ends later, or a greater interval."""
    assert min_depths(case) == []


@pytest.mark.long
@settings(max_examples=60)
@given(case=cases(sized=True, max_steps=4))
def test_nothing_could_be_less_in_many(case):
    assert min_depths(case) == []


def beside_each_other(height: int, width: int) -> Case:
    """Six 7 x 7 convolutions of such a map, in a row; and, joined to nothing, a layer of 3 x 5 pixels and 3 channels.

    The layer computes a beat a cycle, 45 a frame, and its outputs come long before those of the others.
    """
    map_of = partial(FeatureMap, channels=1, type=UINT8)
    before, small = map_of(height=height, width=width), map_of(height=3, width=5)
    rule = Requantisation(significand=np.array([1 << 23]), shift=np.array([30]), zero_point=0, low=0, high=255)
    wide = Conv(
        name="wide",
        input=before,
        output=before,
        window=Window(kernel=(7, 7), padding=(3,) * 4),
        weights=np.ones((1, 1, 7, 7), int),
        bias=np.zeros(1, int),
        requantisation=rule,
    )
    fast = Conv(
        name="fast",
        input=small,
        output=replace(small, channels=3, type=INT32),
        window=Window(kernel=(1, 1)),
        weights=np.ones((3, 1, 1, 1), int),
        bias=np.zeros(3, int),
        requantisation=None,
    )
    names = [f"wide{number}" for number in range(6)]
    layers = (*(replace(wide, name=name) for name in names), fast)
    edges = (("left",), *((name,) for name in names[:-1]), ("right",))
    ends = {"inputs": ("left", "right"), "outputs": (names[-1], "fast")}
    network = Network(name="beside", layers=layers, edges=edges, **ends)
    unroll = {"tn": 1, "tm": 1, "chain": 1, "line_rows": 20, "fifo_depths": (1,)}
    plans = tuple(LayerPlan(name=layer.name, kind="conv", tk=layer.window.taps, **unroll) for layer in layers)
    rows, depths = size_buffers(compose(network, plans))
    return Case(network, compose(network, with_buffers(plans, rows, depths)))


@pytest.mark.parametrize(("size", "depth"), [((6, 8), 12), ((7, 7), 12), ((1, 53), 11), ((6, 9), 10), ((6, 10), 9)])
def test_outputs_that_come_early_lend_no_credits(size, depth):
    """By hand: a credit comes back after 12 cycles, so 45 beats take 45 * 12 / depth cycles, at most the interval.

    With 12 to 9 credits they take 45, 49.09, 54 and 60 cycles. With 11 credits and an interval of 49 more than 2,000
    frames are on time before one is late.
    """
    case = beside_each_other(*size)
    assert steady_cycles(case.config).interval == size[0] * size[1]
    assert case.config.layers[-1].fifo_depths == (depth,)
    assert min_depths(case) == []


@settings(max_examples=6)
@given(case=cases(sized=True, max_steps=2), data=st.data())
def test_stall_for_ever(case, data):
    """What counting on says of shallower FIFOs is what the schedule comes to."""
    check_shallower(case.config, data)


# Through everything


def by_runtime(model: onnx.ModelProto, frames: dict[str, np.ndarray]) -> np.ndarray:
    session, optimised = integer_session(model)
    assert not {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS
    return session.run(None, frames)[0]


@pytest.fixture(scope="module")
def two_pictures(tmp_path_factory) -> tuple[Path, hwgen.Model, hwgen.Design]:
    path = tmp_path_factory.mktemp("siamese") / "siamese.onnx"
    onnx.save(quantise(siamese(), pictures(8, 1), "siamese"), path)
    model = hwgen.load(path)
    return path, model, model.plan("zedboard", dsp=30, multipliers="dsp")


def test_values(two_pictures):
    """Those of ONNX Runtime; frames by name, in order, and as integers, which need not be all of them."""
    path, model, _ = two_pictures
    frames = pictures(5)
    theirs = by_runtime(onnx.load(path), frames)
    np.testing.assert_array_equal(model.golden(frames), theirs)
    np.testing.assert_array_equal(model.golden([frames[name] for name in SIZES]), theirs)
    prepared = model.prepare(frames)
    assert list(prepared) == list(model.inputs) == list(SIZES)
    assert {name: values.dtype for name, values in prepared.items()} == dict.fromkeys(SIZES, np.uint8)
    np.testing.assert_array_equal(model.golden(prepared), theirs)
    np.testing.assert_array_equal(model.golden({**frames, "mask": prepared["mask"]}), theirs)
    assert (model.golden({**frames, "left": frames["right"]}) != theirs).any()
    drawn = model.random_frames(3)
    assert {name: values.shape for name, values in drawn.items()} == {n: (3, *size) for n, size in SIZES.items()}


def test_what_is_said(two_pictures):
    _, model, design = two_pictures
    assert repr(model) == "<Model siamese: 2x4x6 uint8 and 2x4x6 uint8 and 1x2x3 uint8 to 2x2x3 uint8, 7 layers>"
    with pytest.raises(InputError, match=r"^siamese has 3 inputs: ask for inputs$"):
        model.input  # noqa: B018
    with pytest.raises(ConfigError, match=r"has 3 inputs \(left, right, mask\), where one is needed$"):
        model.network.input  # noqa: B018
    with pytest.raises(ConfigError, match=r"inputs are 3, not one: left, right, mask$"):
        design.config.input  # noqa: B018
    assert [port.name for port in design.config.input_ports] == ["i_left", "i_right", "i_mask"]
    assert [each["name"] for each in model.host["inputs"]] == list(SIZES)
    assert "input" not in model.host
    assert "| input mask | mask | 1 x 2 x 3 | uint8 |" in design.report()
    moved = sum(maps.values for maps in (*model.inputs.values(), model.output))
    assert json.loads(design.to_json())["traffic_bytes"]["feature_maps"] == moved


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x["left"],
            r"^siamese: has 3 inputs \(left, right, mask\), and frames must have one array for each, not 1$",
        ),
        (lambda x: [x["left"]] * 4, r"frames must have one array for each, not 4$"),
        (lambda x: {**x, "top": x["left"]}, r"frames must name these, not left, right, mask, top$"),
        (lambda x: {"left": x["left"]}, r"frames must name these, not left$"),
        (lambda x: {**x, "mask": x["mask"][:1]}, r"^siamese: inputs must have as many frames, not 1 and 2$"),
        (lambda x: {**x, "mask": x["left"]}, r"^siamese: input mask must have shape \(frames, 1, 2, 3\), not \(2, 2"),
        (lambda x: {**x, "mask": x["mask"].astype(np.int8)}, r"input mask must be float32 or uint8, not int8$"),
        (lambda x: {**x, "right": x["right"] / 0}, r"input right must hold finite numbers only"),
        (lambda x: {**x, "right": x["right"].tolist()}, r"^siamese: input must be a NumPy array, not list$"),
    ],
)
def test_frames_that_do_not_fit(two_pictures, change, message):
    _, model, _ = two_pictures
    with np.errstate(all="ignore"), pytest.raises(InputError, match=message):
        model.golden(change(pictures(2)))


def test_calibration_that_does_not_fit():
    for frames, message in (
        (pictures(2)["left"], "calibration must hold frames of each of the inputs left, right, mask$"),
        ({"left": pictures(2)["left"]}, "calibration must hold frames of each of the inputs left, right, mask$"),
        ({**pictures(2), "mask": pictures(3)["mask"]}, r"calibration must have as many frames of each input, not \["),
        ({**pictures(2), "mask": pictures(2)["left"]}, r"calibration of mask must have shape \(frames, 1, 2, 3\)"),
    ):
        with pytest.raises(InputError, match=f"^siamese: {message}"):
            quantise(siamese(), frames, "siamese")


SIMULATORS = [
    pytest.param("verilator", marks=[pytest.mark.long, needs_compiler]),
    pytest.param("icarus", marks=[pytest.mark.long, needs_icarus]),
]

#: With stalls at each end, and a reset; and with a memory that stalls all, whether or not frames overlap.
OPTIONS_OF_RUNS = [
    {"stalls": (0.3, 0.5), "seed": 3, "reset_at": 50},
    {"stalls": (0.6, 0.1), "memory": Memory(latency=5, bytes_per_cycle=1.5, queue=2)},
    {"memory": Memory(latency=3, bytes_per_cycle=2), "one_by_one": True},
]


@pytest.fixture(scope="module")
def by_amaranth(two_pictures) -> list[run.Run]:
    _, model, design = two_pictures
    return [*runs_of(design.config, [*model.prepare(pictures(3)).values()], OPTIONS_OF_RUNS, "amaranth")]


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_simulators_agree(two_pictures, by_amaranth, simulator):
    """Without stalls as predicted; otherwise as in Amaranth's simulator, values and cycles, at the taps too."""
    _, model, design = two_pictures
    frames = [*model.prepare(pictures(3)).values()]
    expected = golden.outputs(model.network, frames)
    check_simulator(design.config, frames, simulator, design.plan.cycles, OPTIONS_OF_RUNS, by_amaranth, expected)


def test_memory_gives_inputs_their_turns():
    """Two inputs with beats of 2 and 3 bytes and an output with one of 1, a byte a cycle: by turns, in this order.

    The queue is 1 beat of each: what the design takes is asked for again.
    """
    traffic = TrafficModel(Memory(bytes_per_cycle=1, queue=1), [np.array([2]), np.array([3])], [np.array([1])], 3)
    sent, seen = [0, 0], []
    for cycle in range(10):
        traffic.begin_cycle(cycle, sent)
        seen.append(tuple(traffic.arrived))
        sent = list(traffic.arrived)  # what has come is taken in the same cycle
        if cycle == 2:
            traffic.post(cycle)
    # Bytes of the first input move in cycles 0 and 1, of the second in 2 to 4, of the output in 5; and again.
    assert seen == [(0, 0), (1, 0), (1, 0), (1, 0), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1)]
    assert traffic.written_ends == [5]
    assert traffic.bytes == [2 + 3 + 2, 1]


def test_stalls_of_each_source(two_pictures):
    _, model, design = two_pictures
    made = stimuli.Stalls.make((0.5, 0.25), 3, 2, 3)
    assert len({*made.sources, *made.sinks}) == 5, "every side stalls by itself"
    assert [threshold for _, threshold in made.sources] == [1 << 23] * 3
    assert stimuli.Stalls.make((0.5, 0.25), 3, 2).sources == made.sources[:1]
    frames = [*model.prepare(pictures(2)).values()]
    with pytest.raises(
        InputError, match=r"^frames must have one array per input \(i_left, .*\), all with .*, not 2 and 2$"
    ):
        run.run(design.config, frames[:2], run.Options(simulator="amaranth"))
    with pytest.raises(
        InputError, match=r"^frames must have one array per input \(.*\), all with .*, not 2 and 2 and 1$"
    ):
        run.run(design.config, [*frames[:2], frames[2][:1]], run.Options(simulator="amaranth"))


@pytest.mark.long
@needs_icarus
def test_the_emitted_bench(two_pictures, tmp_path):
    """It passes; with a wrong value in one input it fails."""
    _, _, design = two_pictures
    folder = design.build(tmp_path / "good", pictures(3))
    assert {f"stimulus_{place}.hex" for place in range(3)} <= {path.name for path in folder.iterdir()}
    said = subprocess.run(["make", "-C", str(folder), "icarus"], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
    assert f"PASS: {3 * design.config.output_ports[0].beats} output beats as expected" in said.stdout
    assert f"frame 0: latency {design.latency} cycles" in said.stdout
    assert f"frame 2: {design.interval} cycles later" in said.stdout
    report = (folder / "report.md").read_text()
    for port in design.config.input_ports:
        assert f"| `{port.name}__payload` | in | " in report
        assert f"| `{port.name}__ready` | out | 1 |" in report
    lines = (folder / "stimulus_2.hex").read_text().splitlines()
    # A beat's value, not its mark of the frame's end.
    lines[-1] = f"{int(lines[-1], 16) ^ 0x40:0{len(lines[-1])}x}"
    (folder / "stimulus_2.hex").write_text("\n".join(lines) + "\n")
    said = subprocess.run(["make", "-C", str(folder), "icarus"], capture_output=True, text=True)
    assert said.returncode != 0
    assert "first difference: output beat" in said.stdout


def test_the_first_difference(two_pictures):
    """The frame that is run again to find the layer has its part of each input."""
    _, model, design = two_pictures
    frames = [*model.prepare(pictures(3)).values()]
    expected = golden.outputs(model.network, frames)
    wrong = [expected[0].copy()]
    wrong[0][2, 1, 1, 0] ^= 1
    found = check.locate([design.config], model.network, frames, wrong, expected, simulator="amaranth")
    assert str(found).startswith("frame 2, channel 1, row 1, column 0: ")


def test_plan_written_and_read(two_pictures):
    _, model, design = two_pictures
    text = design.to_json()
    assert json.loads(text)["groups"][0]["input_pixels"] == [port.beat.pixels for port in design.config.input_ports]
    again = document.read(text, model.network, design.board)
    assert again.groups[0].config == design.config
    assert document.write(again) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"template": "pyramid"},
            r"^siamese has 3 inputs \(left, .*\), but a group of pyramids has one: use --template stream$",
        ),
        ({"in_turn": True}, r"^siamese has 3 inputs \(left, .*\): it is planned as one group, not cut into groups$"),
        ({"groups": "a-b,c-d"}, r"^siamese has 3 inputs \(left, .*\): it is planned as one group, not cut into "),
    ],
)
def test_what_takes_one_input_only(two_pictures, options, message):
    _, model, _ = two_pictures
    with pytest.raises(PlanError, match=message):
        model.plan("zedboard", **options)


def test_objectives(two_pictures):
    """The search knows that each input comes as wide as its reader takes it."""
    _, model, _ = two_pictures
    fast = model.plan("zedboard", objective="latency", dsp=100, multipliers="dsp")
    assert fast.latency <= model.plan("zedboard", objective="interval", dsp=100, multipliers="dsp").latency
    few = model.plan("zedboard", objective="dsp", interval=500)
    assert few.interval is not None
    assert few.interval <= 500
    assert few.resources["dsp"] < fast.resources["dsp"]


@pytest.mark.long
def test_command_line(two_pictures, tmp_path, capsys):
    """A file for each input, or one archive; what does not fit is said before anything is planned."""
    path, _, _ = two_pictures
    frames, files = pictures(3), []
    for name, values in frames.items():
        np.save(tmp_path / f"{name}.npy", values)
        files += ["--input", str(tmp_path / f"{name}.npy")]
    np.savez(tmp_path / "x.npz", **frames)
    expected = by_runtime(onnx.load(path), frames)
    for paths in (files, ["--input", str(tmp_path / "x.npz")]):
        assert main(["golden", str(path), *paths, "--output", str(tmp_path / "y.npy")]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    few = ["--multipliers", "dsp", "--dsp", "30"]
    common = ["simulate", str(path), "--board", "zedboard", *few, "--simulator", "amaranth"]
    assert main([*common, *files, "--output", str(tmp_path / "z.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), expected)
    assert main([*common, "--random", "1"]) == 0
    assert "input mask: random uint8 over its whole range, 1 frames, seed 0" in capsys.readouterr().out
    np.savez(tmp_path / "empty.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 and nothing else")
    np.savez(tmp_path / "objects.npz", left=np.array(["a", None], object))
    for paths, message in (
        (files[:2], "siamese: has 3 inputs (left, right, mask), and frames must have one array for each, not 1"),
        (["--input", str(tmp_path / "empty.npz")], "empty.npz is empty"),
        (["--input", str(tmp_path / "bad.npz")], "bad.npz is not a .npz archive"),
        (["--input", str(tmp_path / "none.npz")], "none.npz can't be read: No such file"),
        (["--input", str(tmp_path / "objects.npz")], "objects.npz (left) must hold plain numbers, not object"),
    ):
        assert main([*common, *paths]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.err.count("\n") == 1
    assert main([*common, *files, "--output", str(tmp_path / "mask.npy")]) == 2
    assert "would overwrite what --input reads" in capsys.readouterr().err


def test_calibration_from_a_file(tmp_path):
    onnx.save(siamese(), tmp_path / "float.onnx")
    np.savez(tmp_path / "x.npz", **pictures(8, 1))
    model = hwgen.load(tmp_path / "float.onnx", tmp_path / "x.npz")
    assert list(model.inputs) == list(SIZES)


# ONNX


def written(*shapes: tuple[int, ...], kind: int = TensorProto.FLOAT, seed: int = 0) -> Writer:
    """A writer whose model has more inputs, ``x1``, ``x2`` .., of these shapes."""
    writer = Writer(frame=(3, 6, 5), seed=seed)
    writer.more = {f"x{place}": (kind, shape) for place, shape in enumerate(shapes, 1)}  # type: ignore[attr-defined]
    writer.tensor = writer.quantise("x")
    return writer


def finished(writer: Any, batch: int | str = "batch") -> onnx.ModelProto:
    model = writer.model()
    for name, (kind, shape) in writer.more.items():
        model.graph.input.append(helper.make_tensor_value_info(name, kind, [batch, *shape]))
    model.graph.input[0].type.tensor_type.shape.dim[0].CopyFrom(model.graph.input[1].type.tensor_type.shape.dim[0])
    return model


def frames_of(model: onnx.ModelProto, count: int) -> dict[str, np.ndarray]:
    found, rng = {}, np.random.default_rng(3)
    for value in model.graph.input:
        shape = count, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            found[value.name] = rng.normal(0, 3, shape).astype(np.float32)
        else:
            found[value.name] = rng.integers(0, 256, shape).astype(np.uint8)
    return found


def check_equal(model: onnx.ModelProto, folder: Path, **options) -> hwgen.Model:
    onnx.save(model, folder / "model.onnx")
    ours = hwgen.load(folder / "model.onnx", **options)
    frames = frames_of(model, 4)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value or 4
    names = [value.name for value in model.graph.output]
    session, _ = integer_session(model)
    starts = range(0, 4, batch)
    runs = [session.run(names, {n: v[start : start + batch] for n, v in frames.items()}) for start in starts]
    found = ours.golden(frames)
    found = found if isinstance(found, dict) else {names[0]: found}
    for place, name in enumerate(names):
        np.testing.assert_array_equal(found[name], np.concatenate([each[place] for each in runs]))
    return ours


@pytest.mark.parametrize("batch", ["batch", 1, 2])
def test_joined_as_they_come(batch, tmp_path):
    """Sums, products and concatenations of inputs; one of them a pixel for all pixels."""
    writer = written((3, 6, 5), (3, 1, 1))
    first = writer.tensor
    others = [writer.quantise(name) for name in ("x1", "x2")]
    total = writer.quantise(writer.add("Add", *map(writer.dequantise, (first, others[0]))))
    both = writer.quantise(writer.add("Concat", *map(writer.dequantise, (others[0], total)), axis=1))
    product = writer.quantise(writer.add("Mul", *map(writer.dequantise, (total, others[1]))))
    writer.give(both, TensorProto.UINT8)
    writer.give(product, TensorProto.UINT8)
    model = check_equal(finished(writer, batch), tmp_path)
    assert model.network.inputs == ("x", "x1", "x2")
    kinds = [layer.kind for layer in model.network.layers]
    assert sorted(kinds) == ["add", "concat", "copy", "mul"]
    frames = frames_of(onnx.load(tmp_path / "model.onnx"), 3)
    result = model.plan("zedboard", dsp=20, multipliers="dsp").simulate(frames, simulator="amaranth")
    assert result.ok


def test_other_orders_and_types(tmp_path):
    """An input that lies as (N, H, W, C), and one of integers."""
    writer = written((6, 5, 3), kind=TensorProto.UINT8)
    turned = writer.add("Transpose", writer.dequantise("x1"), perm=[0, 3, 1, 2])
    writer.channels = 3
    convs = (writer.conv(each, outputs=3) for each in (turned, writer.dequantise(writer.tensor)))
    one, other = (writer.dequantise(writer.quantise(each)) for each in convs)
    writer.tensor = writer.quantise(writer.add("Add", one, other))
    model = check_equal(finished(writer), tmp_path)
    assert [each["shape"] for each in model.host["inputs"]] == [[3, 6, 5], [6, 5, 3]]
    assert model.host["inputs"][1]["map"] == [3, 6, 5]


def test_names(tmp_path):
    """Layers that are called as inputs get other names; an input that nothing reads is none."""
    writer = written((3, 6, 5))
    writer.channels = 3
    other = writer.quantise(writer.conv(writer.dequantise(writer.quantise("x1")), outputs=3))
    writer.layer(lambda w, t: w.conv(t, outputs=3))
    writer.tensor = writer.quantise(writer.add("Add", *map(writer.dequantise, (writer.tensor, other))))
    convs = [node for node in writer.nodes if node.op_type == "Conv"]
    convs[0].name, convs[1].name = "x", "x1"
    model = finished(writer)
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT, ["batch", 7]))
    onnx.save(model, tmp_path / "names.onnx")
    network = hwgen.load(tmp_path / "names.onnx").network
    assert network.inputs == ("x", "x1")
    assert {"x_2", "x1_2"} <= {layer.name for layer in network.layers}


def test_what_only_the_host_takes(tmp_path):
    """Behind the hardware, or in the part of a model that is left: frames are asked for all the same."""
    writer = written((3, 6, 5))
    writer.channels = 3
    writer.layer(lambda w, t: w.conv(t, outputs=3))
    writer.give(writer.add("Mul", writer.dequantise(writer.tensor), "x1"))
    model = check_equal(finished(writer), tmp_path)
    assert model.network.inputs == (INPUT,)
    assert list(model.inputs) == ["x"]
    frames = frames_of(onnx.load(tmp_path / "model.onnx"), 2)
    with pytest.raises(InputError, match=r"has 2 inputs \(x, x1\), and frames must have one array for each, not 1$"):
        model.golden(frames["x"])
    with pytest.raises(InputError, match=r"input x1 must have shape \(frames, 3, 6, 5\), not \(2, 3\)$"):
        model.golden({**frames, "x1": np.ones((2, 3), np.float32)})
    result = model.plan("zedboard", dsp=20, multipliers="dsp").simulate(frames, simulator="amaranth")
    np.testing.assert_array_equal(result.outputs, model.golden(frames))
    assert set(model.random_frames(2)) == {"x", "x1"}


@pytest.mark.parametrize(("until", "inputs"), [(0, ("x",)), (1, ("x1",)), ("auto", ("x", "x1"))])
def test_parts(until, inputs, tmp_path):
    """Up to a tensor that depends on one input, the other one goes to the host; integers or floats."""
    writer = written((3, 6, 5))
    writer.channels = 3
    ends = []
    for tensor in (writer.tensor, writer.quantise("x1")):
        ends.append(writer.quantise(writer.conv(writer.dequantise(tensor), outputs=3)))
    total = writer.quantise(writer.add("Add", *map(writer.dequantise, ends)))
    writer.give(writer.add("Det", writer.add("Conv", writer.dequantise(total), writer.constant(DENSE))))
    writer.outputs[0].CopyFrom(helper.make_tensor_value_info(writer.outputs[0].name, TensorProto.FLOAT, [None] * 2))
    model = check_equal(finished(writer), tmp_path, until=until if until == "auto" else ends[until])
    assert model.network.input_names == inputs


DENSE = np.random.default_rng(9).normal(size=(2, 3, 3, 2)).astype(np.float32)
"""A kernel that leaves square maps, of which there is a determinant."""


@pytest.mark.parametrize(
    ("shape", "batch", "message"),
    [
        ((3, 6, 5), 3, "inputs must have one batch, not 3 and 2 of frames; --until auto builds the part before it, "),
        (
            (3, 6, 5, 2),
            "batch",
            r"input 'x1' must be \(batch, channels, height, width\) or .*, not \(batch, 3, 6, 5, 2",
        ),
    ],
)
def test_refused(shape, batch, message):
    writer = written(shape)
    writer.channels = 3
    moved = writer.add("Reshape", writer.dequantise(writer.quantise("x1")), writer.constant(np.array([0, -1, 6, 5])))
    other = writer.quantise(writer.conv(moved, outputs=3) if len(shape) == 3 else writer.add("Tanh", moved))
    writer.give(other, TensorProto.UINT8)
    writer.give(writer.quantise(writer.conv(writer.dequantise(writer.tensor))), TensorProto.UINT8)
    model = finished(writer, batch)
    if batch != "batch":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    with pytest.raises(ModelError, match=message):
        to_network(model, "model")


def test_no_input_at_all():
    model = as_model(
        [helper.make_node("Relu", ["c"], ["y"])],
        {},
        {"y": (TensorProto.FLOAT, [1, 2])},
        {"c": np.ones((1, 2), np.float32)},
    )
    with pytest.raises(ModelError, match=r"^model: a model must have an input that an output depends on$"):
        to_network(model, "model")


def test_networks():
    source = FeatureMap(channels=1, height=2, width=3, type=UINT8)
    pools = [MaxPool(name=n, input=source, output=source, window=Window(kernel=(1, 1))) for n in ("one", "two")]
    make = partial(Network, name="pools", layers=tuple(pools), outputs=("one", "two"))
    network = make(edges=(("a",), ("b",)), inputs=("a", "b"))
    assert network.input_maps == (source, source)
    assert network.crossing(0) == ("a", "b")
    assert network.cuts == ()
    assert not network.is_chain
    assert make(edges=(("a",), ("b",)), inputs=("b", "a")).input_names == ("b", "a")
    for edges, inputs, message in (
        ((("a",), ("b",)), ("a", "two"), "names of layers and inputs must be unique"),
        ((("a",), ("a",)), ("a", "b"), "a layer must take input b"),
        ((("a",), ("c",)), ("a", "b"), "a layer must take input b"),
    ):
        with pytest.raises(ConfigError, match=message):
            make(edges=edges, inputs=inputs)
    copied = make(edges=(("a",), ("a",)), inputs=("a",)).with_inputs_read_once()
    assert [layer.name for layer in copied.layers] == ["a_copy", "one", "two"]
    assert copied.edges == (("a",), ("a_copy",), ("a_copy",))
    with pytest.raises(InputError, match=r"frames must have 2 inputs \(a, b\), not 1$"):
        golden.outputs(network, np.zeros((1, 1, 2, 3), np.uint8))
    with pytest.raises(InputError, match=r"^pools: input b must have shape \(frames, 1, 2, 3\), not \(1, 1, 3, 3\)$"):
        golden.outputs(network, [np.zeros((1, 1, 2, 3), np.uint8), np.zeros((1, 1, 3, 3), np.uint8)])
    with pytest.raises(InputError, match=r"^pools: inputs must have as many frames, not "):
        golden.outputs(network, [np.zeros((n, 1, 2, 3), np.uint8) for n in (1, 2)])
