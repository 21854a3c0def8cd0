"""Programs of several frames: each has the values that it has alone, and dense layers fetch their weights once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import interpret
import numpy as np
import onnxruntime
import pytest
from accelerators import frames_for, global_average_pool, inputs_for
from counted import cases_in_the_long_run
from graphs import graphs
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from needs import needs_compiler
from programs import (
    DIGITS,
    ONE_CORE,
    SMALL,
    Maker,
    alone,
    behind,
    conv,
    engines,
    group_of,
    image,
    joined_maps,
    moved,
    tamed,
    timings,
)

import hwgen
from hwgen import boards, plan
from hwgen.api import design_of
from hwgen.cli import main as cli
from hwgen.emit import engine_driver
from hwgen.emit.engine import registers_json
from hwgen.errors import InputError, ModelError, PlanError
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.check import faults
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.network import golden
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import Window
from hwgen.network.ops import SpaceToDepth
from hwgen.plan.engine import on_engine
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.file import Program
from hwgen.program.layout import unpack_map
from hwgen.report.plan import table
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate import engine, frames
from hwgen.simulate.engine import EngineMemory
from hwgen.verilog.emitted import engine_files

BOARD = boards.load("zedboard")
TIMINGS = timings()


@st.composite
def with_ends(draw, max_layers: int = 2, max_side: int = 8, max_channels: int = 24) -> Network:
    """Some layers, then a dense layer or the average of whole maps, and some layers behind it."""
    maker = Maker(draw, max_side, max_channels)
    for _ in range(draw(st.integers(0, max_layers))):
        maker.add()
    maker.append(maker.conv("dense", "dense", Window(kernel=maker.map.shape[1:])))
    for _ in range(draw(st.integers(0, max_layers))):
        maker.add()
    return maker.network


def scheduled(network: Network, config: EngineConfig, count: int) -> ProgramSchedule:
    """Schedule of ``count`` frames of a network; cases are left out where one frame is refused, too."""
    try:
        return schedule(network, config, frames=count)
    except (ModelError, PlanError):
        with pytest.raises((ModelError, PlanError)):
            schedule(network, config)
        return reject()


def check(found: ProgramSchedule, seed: int = 1) -> None:
    """Interpreted, the program gives for each of several frames what the golden model gives; no engine refuses it."""
    assert not [each for number, job in enumerate(found.jobs) for each in faults(found.engine, number, job)]
    given = inputs_for(found.network, found.frames, seed)
    for got, expected in zip(
        interpret.run_outputs(found.program, *given), golden.outputs(found.network, given), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@given(network=with_ends(), config=engines(), count=st.integers(2, 5))
@cases_in_the_long_run(15)
def test_random_ends(network, config, count):
    check(scheduled(network, config, count))


@pytest.mark.long
@given(network=with_ends(max_layers=4, max_side=20, max_channels=60), config=engines(), count=st.integers(2, 9))
@settings(max_examples=80)
def test_many_random_ends(network, config, count):
    test_random_ends.hypothesis.inner_test(network, config, count)


@pytest.mark.long
@given(network=graphs(max_steps=5, max_side=5, for_engine=True), config=engines(), count=st.integers(2, 4))
@settings(max_examples=40)
def test_random_graphs(network, config, count):
    """With branches, sums, functions, and several outputs."""
    check(scheduled(tamed(network), config, count))


def weight_bytes(found: ProgramSchedule, name: str) -> int:
    """That a run loads for a layer."""
    owners = [found.tiled_passes[owner].task.name for owner in found.owners]
    loads = [job.load for job, owner in zip(found.jobs, owners, strict=True) if owner == name]
    return sum(load.w_steps for load in loads) * found.engine.maps * 4


def test_weights_are_fetched_once():
    """By hand: 16 weights of 10 pixels for each of 40 maps in folds of 8, which the buffer doesn't hold."""
    layer, other = conv(kernel=1, channels=16, maps=16, size=(2, 5)), conv(kernel=1, maps=40, size=(1, 1))
    weights = np.maximum(np.resize(layer.weights, (40, 16, 2, 5)), -127)
    dense = replace(other, name="dense", input=layer.output, window=Window(kernel=(2, 5)), weights=weights)
    network = Network(name="two", layers=(layer, dense))
    found = schedule(network, SMALL, frames=3)
    assert found.batch.together == {"dense"}
    assert weight_bytes(found, "dense") == 40 * (16 * 10)
    alone_bytes = weight_bytes(schedule(network, SMALL), "dense")
    assert alone_bytes == 40 * (16 * 10)  # for one frame: so batches fetch a third of that a frame
    check(found)


def test_rows_of_frames_lie_in_turn():
    """By hand: 20 channels are 3 blocks; rows of 3 words of 4 frames; frames of the input one after the other."""
    layer = conv(kernel=1, channels=9, maps=20, size=(2, 3))
    dense = replace(
        conv(kernel=1, channels=20, maps=11, size=(1, 1)),
        name="dense",
        input=layer.output,
        window=Window(kernel=(2, 3)),
        weights=np.random.default_rng(1).integers(-20, 21, (11, 20, 2, 3)),
    )
    found = schedule(Network(name="two", layers=(layer, dense)), SMALL, frames=4)
    inputs, maps, outputs = ([each[name] for each in found.frame_locations] for name in (INPUT, "conv", "dense"))
    assert [place.address - inputs[0].address for place in inputs] == [0, 96, 192, 288]
    assert [place.address - maps[0].address for place in maps] == [0, 24, 48, 72]
    assert (maps[0].row_bytes, maps[0].block_bytes) == (4 * 24, 2 * 4 * 24)
    assert [place.address - outputs[0].address for place in outputs] == [0, 16, 32, 48]
    check(found)


def test_outputs_that_are_parts_of_others():
    """The next frame's is as far as that of the whole."""
    network = joined_maps()
    found = schedule(network, SMALL, frames=3)
    inner = next(each for each in found.program.outputs if each.name == network.output_names[1])
    assert (inner.size, inner.frame_bytes) == (4 * 8 * 30, 7 * 8 * 30)
    assert not found.batch.together
    check(found)


@pytest.mark.parametrize("name", ["lenet5", pytest.param("autoencoder", marks=pytest.mark.long)])
def test_networks(name):
    """One whose dense layers stand behind convolutions, and one of dense layers alone."""
    network = hwgen.load(name).network
    found, one = schedule(network, EngineConfig(), frames=3), schedule(network, EngineConfig())
    dense = {"fc1", "fc2", "fc3"} if name == "lenet5" else {layer.name for layer in network.layers}
    assert found.batch.layers == dense
    cycles, read = zip(*((run.cycles, sum(run.read)) for run in (counted(found), counted(one))), strict=True)
    assert (cycles[0] / 3 < 0.6 * cycles[1], read[0] / 3 < 0.6 * read[1]) == (True, True)
    check(found)


def test_strides_of_a_single_pixel_say_nothing():
    """The blocks of 2 x 2 pixels that become channels are one: those of the next frame begin a row below."""
    layer = conv(kernel=1, channels=7, maps=7, size=(2, 2))
    blocks = moved("blocks", SpaceToDepth, layer.output, blocks=(2, 2))
    found = schedule(Network(name="blocks", layers=(layer, blocks)), SMALL, frames=3)
    assert found.batch.together == {"blocks"}
    check(found)


def test_where_there_is_nothing_to_fetch_once():
    """Layers without weights at the end are computed frame by frame, as all others; with a dense layer at once."""
    layer = conv(kernel=3, channels=9, maps=20, size=(4, 5))
    whole = global_average_pool(np.random.default_rng(2), "whole", layer.output)
    found = schedule(Network(name="averages", layers=(layer, whole)), SMALL, frames=3)
    assert not found.batch.together
    check(found)
    dense = replace(conv(kernel=1, channels=20, maps=11, size=(1, 1)), name="dense", input=whole.output)
    found = schedule(Network(name="classes", layers=(layer, whole, dense)), SMALL, frames=3)
    assert found.batch.together == {"whole", "dense"}
    check(found)


def counted(found: ProgramSchedule, timing: MemoryTiming | None = None):
    return EngineSchedule(found.engine, found.jobs, timing or MemoryTiming()).run()


@pytest.mark.parametrize("count", [0, 256, True, 2.0, "3"])
def test_numbers_of_frames_that_are_refused(count):
    with pytest.raises(PlanError, match=r"^batch must be from 1 to 255 frames, not "):
        schedule(alone(conv()), SMALL, frames=count)


def test_files(tmp_path):
    """Of several frames as they were, in a version of their own; of one in the version that there was before."""
    digits = hwgen.load(DIGITS / "digits.onnx").network
    for count in (1, 3):
        program = schedule(digits, SMALL, frames=count).program
        program.write(tmp_path / "digits.program")
        assert Program.read(tmp_path / "digits.program") == program
    assert b'"batch"' not in bytes(replace(program, batch=1))


# In Verilator


@pytest.fixture(scope="module")
def circuit():
    return engine_files(SMALL)


def check_circuit(circuit, found: ProgramSchedule, timing: MemoryTiming, seed: int) -> None:
    """Values of every frame, cycles and bytes."""
    memory, given = image(found, seed)
    program = found.program
    run = engine.run(circuit, memory, memory=EngineMemory(timing=timing), limit=5_000_000)
    run_counted = counted(found, timing)
    assert run.cycles == (START_CYCLES + run_counted.cycles + DONE_CYCLES,)
    assert (run.read, run.written) == (sum(run_counted.read) + run_counted.fetched, sum(run_counted.written))
    expected = golden.outputs(found.network, given)
    for region, wanted in zip(program.outputs, expected, strict=True):
        for number, values in enumerate(wanted):
            np.testing.assert_array_equal(unpack_map(run.image[region.at(number)], region.map), values)


@needs_compiler
@given(
    network=with_ends(max_layers=1, max_side=6, max_channels=20),
    count=st.integers(2, 4),
    timing=TIMINGS,
    seed=st.integers(0, 99),
)
@settings(max_examples=4)
def test_random_ends_on_the_circuit(circuit, network, count, timing, seed):
    check_circuit(circuit, scheduled(network, SMALL, count), timing, seed)


@pytest.mark.long
@needs_compiler
@given(network=with_ends(max_layers=3, max_side=14), count=st.integers(2, 6), timing=TIMINGS, seed=st.integers(0, 99))
@settings(max_examples=36)
def test_many_random_ends_on_the_circuit(circuit, network, count, timing, seed):
    test_random_ends_on_the_circuit.hypothesis.inner_test(circuit, network, count, timing, seed)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("bus", [4, 16, 64])
def test_other_buses(bus):
    """One-pixel maps of several frames go word by word over them."""
    config = behind(bus)
    found = schedule(hwgen.load("lenet5").network, config, frames=3)
    check_circuit(engine_files(config), found, MemoryTiming(), 3)


@pytest.mark.long
@needs_compiler
def test_maps_of_a_frame(circuit):
    """A frame's maps, to look for the first that differs: of layers by frame, and of all frames at once."""
    network = hwgen.load("lenet5").network
    (frame,) = frames_for(network, 1, 7)
    expected = {layer.name: values[0] for layer, values in golden.trace(network, (frame[None],))}
    found = frames.maps_of(circuit, schedule(network, SMALL, frames=3), [frame], EngineMemory())
    assert {"fc1", "fc3"} < found.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


# Plans


@pytest.fixture(scope="module")
def digits() -> Network:
    return hwgen.load(DIGITS / "digits.onnx").network


def test_plans(digits):
    """What a run takes, and a frame's share of it; read back, the same jobs."""
    made = plan.make(digits, BOARD, **ONE_CORE, bandwidth=0.8, batch=3)
    document = json.loads(plan.write(made))
    run = counted(schedule(digits, EngineConfig(), frames=3))
    cycles, moved = START_CYCLES + run.cycles + DONE_CYCLES, sum(run.read) + run.fetched + sum(run.written)
    assert document["cycles"] == {"latency": cycles, "interval": -(-cycles // 3)}
    (told,) = document["groups"]
    assert (told["batch"], told["cycles"]) == (3, {"run": cycles, "frame": -(-cycles // 3)})
    assert sum(each["cycles"] for each in told["layers"]) == cycles
    assert sum(each["read_bytes"] + each["written_bytes"] for each in told["layers"]) == moved
    assert moved <= 3 * sum(made.traffic_bytes.values()) < moved + 9
    again = plan.read(plan.write(made), digits, BOARD)
    assert plan.write(again) == plan.write(made)
    assert group_of(again).schedule.jobs == group_of(made).schedule.jobs
    line = f"the table is for one run: 3 frames in {cycles:,} cycles; "
    assert f"{line}{document['traffic_bytes']['weights']:,} bytes of weights per frame; " in table(made)
    assert table(made).split("weights read once per run: ")[1].startswith("fc\n")
    assert "the table is for one run" not in table(plan.make(digits, BOARD, **ONE_CORE))


def test_plans_that_are_refused(digits):
    made = plan.make(digits, BOARD, **ONE_CORE, batch=3)
    document = json.loads(plan.write(made))
    (told,) = document["groups"]
    told["side_by_side"] = [["conv3", "fc"]]
    with pytest.raises(
        PlanError, match=r"conv3 and fc can't be computed side by side: fc computes all frames of the batch at once"
    ):
        plan.read(json.dumps(document), digits, BOARD)
    told["batch"] = 256
    with pytest.raises(PlanError, match=r"batch must be from 1 to 255 frames, not 256"):
        plan.read(json.dumps(document), digits, BOARD)
    with pytest.raises(PlanError, match=r"batch works only with the template engine, not with stream"):
        plan.make(digits, BOARD, template="stream", batch=3)


# In folders


@pytest.fixture(scope="module")
def built(tmp_path_factory, digits) -> Path:
    """A small engine with a program of three frames of the digits network."""
    model = hwgen.load(DIGITS / "digits.onnx")
    made = on_engine(digits, BOARD, SMALL, MemoryTiming(), batch=3)
    return design_of(model, made).build(tmp_path_factory.mktemp("built") / "engine")


@pytest.mark.long
def test_a_program_by_its_plan(built):
    model, again = str(DIGITS / "digits.onnx"), built.parent / "again.program"
    assert "A run computes 3 frames, which are stored one after the other." in (built / "report.md").read_text()
    arguments = ["compile", model, "--engine", str(built), "--plan", str(built / "plan.json"), "-o", str(again)]
    assert cli.main(arguments) == 0
    assert again.read_bytes() == (built / "digits.program").read_bytes()


@pytest.mark.long
@needs_compiler
def test_simulation(built, capfd, tmp_path):
    """Four frames take two runs of three; values are ONNX Runtime's."""
    model, images = str(DIGITS / "digits.onnx"), np.load(DIGITS / "images.npy")[:4]
    np.save(tmp_path / "x.npy", images)
    how = ["--engine", str(built), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    for arguments in (["--batch", "3"], ["--program", str(built / "digits.program"), "--jobs", "2"]):
        assert cli.main(["simulate", model, *how, *arguments, "--json", str(tmp_path / "y.json")]) == 0
        said = capfd.readouterr().out
        assert "; 2 runs of 3 frames, the last one filled up with 2 empty frames" in said
        document = json.loads((tmp_path / "y.json").read_text())
        planned = json.loads((built / "plan.json").read_text())["cycles"]
        assert (document["batch"], document["padding"]) == (3, 2)
        assert document["cycles"]["latency"] == planned["latency"]
        assert document["cycles"]["interval"] == planned["interval"]
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {session.get_inputs()[0].name: images})
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    with pytest.raises(InputError, match=r"^waves of an engine record one run of 3 frames, not 4"):
        hwgen.load(model).compile(built, batch=3).simulate(images, waves=tmp_path / "w.vcd")


class Played(dict[int, int]):
    """The engine's registers on a board, and in its place what documented jobs do to its memory."""

    def __init__(self, document: dict[str, Any]):
        super().__init__({each["offset"]: each["reset"] for each in document["registers"]})
        self.offsets = {each["name"]: each["offset"] for each in document["registers"]}
        self.memories: dict[int, np.ndarray] = {}  # by address: the driver uses two in turn
        self.runs = 0

    def allocate(self, shape: tuple[int], dtype: Any) -> np.ndarray:
        class Buffer(np.ndarray):
            physical_address = 0x1000_0000 * (len(self.memories) + 1)

        memory = np.zeros(shape, dtype).view(Buffer)
        self.memories[memory.physical_address] = memory
        return memory

    def read(self, offset: int) -> int:
        return self[offset]

    def write(self, offset: int, value: int) -> None:
        if (offset, value) == (self.offsets["CONTROL"], 1):
            memory = np.asarray(self.memories[self[self.offsets["PROGRAM_BASE"]]])
            interpret.Interpreter(SMALL, memory, np.ones(len(memory) // 8, bool)).run()
            self[self.offsets["STATUS"]], self.runs = 8, self.runs + 1
        else:
            self[offset] = value


def test_driver(tmp_path, digits):
    """Four frames in two runs, and outputs that lie further apart than they are long."""
    document = registers_json(EngineShellConfig(engine=SMALL), "engine_axi")
    (tmp_path / "registers.json").write_text(json.dumps(document))
    for network, runs in ((digits, 2), (joined_maps(), 4)):
        schedule(network, SMALL, frames=3).program.write(tmp_path / "x.program")
        played = Played(document)
        found = engine_driver.Engine(played, allocate=played.allocate, folder=tmp_path, timeout=1)
        found.load("x.program")
        given = frames_for(network, 3 * runs - 2, 5)
        got = found.run(given, integers=True)
        assert played.runs == runs
        for values, expected in zip(
            got if isinstance(got, tuple) else (got,), golden.outputs(network, given), strict=True
        ):
            np.testing.assert_array_equal(values.reshape(expected.shape), expected)
