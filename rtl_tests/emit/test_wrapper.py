"""Accelerators and engines on buses that others wrote models of (cocotbext-axi), as they are built."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import onnx
import pytest
from accelerators import frames_for, inputs_for
from amaranth import Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from c_driver import compiled, needs_gcc
from cocotb_bench import needs_cocotb, needs_verilator
from onnx_models import pictures, siamese
from programs import SMALL, alone, behind, conv, image, two_inputs
from register_maps import check_constants, told

import hwgen
from hwgen.emit import wrapper
from hwgen.emit.engine import EnginePackage, registers_json, shell_of
from hwgen.errors import ConfigError
from hwgen.gateware.bus.engine_registers import ERRORS
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import SEAL_BITS, Job, digest
from hwgen.gateware.engine.port import PACE_BITS, Error
from hwgen.network import golden
from hwgen.network.quantise import quantise
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import offset, pack_map, unpack_map
from hwgen.schedule.engine import MemoryTiming
from hwgen.tools import synthesis
from hwgen.verilog.emitted import ENGINE, engine_files

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@dataclass
class Built:
    """A design's files, and what goes in and out."""

    design: hwgen.Design
    files: dict[str, bytes]
    top: str

    @classmethod
    def of(cls, design: hwgen.Design, folder: Path) -> Built:
        made = design.build(folder)
        files = {path.name: path.read_bytes() for path in made.iterdir() if path.suffix in (".v", ".mem", ".json")}
        top = json.loads(files["registers.json"])["module"]
        return cls(design, {name: files[name] for name in files if not name.endswith("_tb.v")}, top)

    @property
    def registers(self) -> dict[str, Any]:
        return json.loads(self.files["registers.json"])

    def frames(self, count: int, seed: int) -> list[np.ndarray]:
        """``(n, C, H, W)`` of each input."""
        rng, found = np.random.default_rng(seed), []
        for source in self.design.network.input_maps:
            kind = source.type
            found.append(rng.integers(kind.minimum, kind.maximum + 1, (count, *source.shape)).astype(kind.dtype))
        return found

    def phase(
        self, count: int, lengths: dict[int, float] | None = None, *, seed: int = 0, **more: Any
    ) -> dict[str, Any]:
        """So many frames; of the last input some of another length: by so many bytes, or, of type float, that share."""
        sent: list[list[bytes]] = []
        computed, errors = [], 0
        frames = self.frames(count, seed)
        for place, (stream, maps) in enumerate(zip(self.registers["inputs"], frames, strict=True)):
            size, changes = stream["frame_bytes"], (lengths or {}) if place == len(frames) - 1 else {}
            whole = [in_memory(frame) for frame in maps]
            assert {len(content) for content in whole} == {size}
            sent.append([])
            for number, content in enumerate(whole):
                change = changes.get(number, 0)
                length = size + (round(change * size) if isinstance(change, float) else change)
                errors |= ((length < size) + 2 * (length > size)) << 2 * place
                sent[-1].append((content + content)[:length])
            read = [from_memory((content + bytes(size))[:size], maps[0]) for content in sent[-1]]
            computed.append(np.stack(read).astype(maps.dtype))
        outputs = golden.outputs(self.design.network, computed)
        defaults = {"pause": 0.0, "reset": "", "reset_at": 0, "interval": 0}
        return defaults | more | {
            "sent": [[content.hex() for content in each] for each in sent],
            "expected": [[in_memory(frame).hex() for frame in each] for each in outputs],
            "errors": errors,
        }  # fmt: skip

    def run(self, folder: Path, phases: list[dict[str, Any]], simulator: str = "icarus") -> None:
        sources = {name: content for name, content in self.files.items() if not name.endswith(".json")}
        told = {"registers": self.registers, "phases": phases}
        cocotb_bench.run(sources, self.top, "cocotb_wrapper", folder, simulator=simulator, **told)


def in_memory(frame: np.ndarray) -> bytes:
    """A map ``(C, H, W)`` as the bus has it: its pixels row by row, the channels of each in order."""
    return frame.transpose(1, 2, 0).astype(frame.dtype.newbyteorder("<")).tobytes()


def from_memory(content: bytes, like: np.ndarray) -> np.ndarray:
    """The inverse."""
    channels, height, width = like.shape
    return np.frombuffer(content, like.dtype.newbyteorder("<")).reshape(height, width, channels).transpose(2, 0, 1)


def check(design: hwgen.Design, folder: Path, count: int = 3) -> None:
    """Back to back at the plan's interval; wrong frames; pauses; resets: in one run, as a board sees it."""
    built = Built.of(design, folder / "built")
    interval = json.loads(design.to_json())["cycles"]["interval"]
    beat = built.registers["inputs"][-1]["beat_bytes"]
    assert interval
    assert all(stream["is_free"] for side in ("inputs", "outputs") for stream in built.registers[side])
    built.run(
        folder,
        [
            built.phase(count + 2, interval=interval),
            built.phase(count + 1, {0: -beat, 1: -0.5}, seed=1),
            built.phase(count + 1, {0: beat, 1: 0.5}, pause=0.3, seed=2),
            # Just the flag of bytes within the last word, if that has room for some.
            built.phase(2, {0: -1}, seed=5),
            built.phase(2, {0: 1}, seed=6),
            built.phase(count, pause=0.1, reset="pin", reset_at=interval // 3, seed=3),
            built.phase(count, {0: 0.9, 1: -0.9}, pause=0.5, reset="register", reset_at=interval // 2, seed=4),
        ],
    )


@needs_cocotb
def test_small(tmp_path):
    check(hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp"), tmp_path)


@pytest.mark.long
@needs_cocotb
def test_two_inputs(tmp_path):
    onnx.save(quantise(siamese(), pictures(8), "siamese"), tmp_path / "siamese.onnx")
    check(hwgen.load(tmp_path / "siamese.onnx").plan("zedboard", dsp=30, multipliers="dsp"), tmp_path)


@pytest.mark.long
@needs_cocotb
def test_digits(tmp_path):
    check(hwgen.load(DIGITS).plan("zedboard"), tmp_path, 1)


@pytest.mark.long
@needs_verilator
@pytest.mark.parametrize(
    ("source", "board", "dsp"),
    [("resnet8", "zedboard", 220), ("vgg16:4@32x32", "vc709", 900)],
    ids=["resnet8", "vgg16"],
)
def test_large(source, board, dsp, tmp_path):
    """65,536 cycles a frame, which are too many for Icarus: few frames, of which one is wrong and one comes behind a
    reset."""
    design = hwgen.load(source).plan(board, dsp=dsp, multipliers="dsp")
    built = Built.of(design, tmp_path / "built")
    interval = json.loads(design.to_json())["cycles"]["interval"]
    assert interval == 65_536
    built.run(
        tmp_path,
        [
            built.phase(3, interval=interval),
            built.phase(2, {0: -0.5}, pause=0.1, seed=1),
            built.phase(1, reset="pin", reset_at=interval // 3, seed=2),
        ],
        "verilator",
    )


ROOT = Path(__file__).resolve().parents[2]
ENGINE_OF_DIGITS, DOCS = ROOT / "examples" / "digits", ROOT / "docs" / "reference" / "registers.md"


def _declared(name: str, member: wiring.Member) -> str:
    width = Shape.cast(member.shape).width
    return f"{'input' if member.flow is In else 'output'} [{width - 1}:0] {name}"


def bench(shell: EngineShellConfig) -> bytes:
    """A module with the wrapper, and with an engine alone beside it, whose ports have their own names.

    All reads and writes have identifier 0, without which the models have no bus.
    """
    wrapped = shell.ports
    alone: dict[str, wiring.Member] = {name: In(1) for name in ("clk", "rst", "start")} | {"pace": In(16)}
    alone |= {"done": Out(1), "error": Out(Shape.cast(Error).width)}
    bus = axi.Master(data_bytes=shell.engine.bus_bytes).members
    alone |= {f"m_axi__{name}": member for name, member in bus.items()}
    buses = (*shell.port_names.values(), "m_axi_")
    declared = [_declared(name, member) for name, member in (wrapped | alone).items()]
    declared += [f"output {prefix}_{channel}id" for prefix in buses for channel in ("ar", "aw")]
    declared += [f"input {prefix}_{channel}id" for prefix in buses for channel in ("r", "b")]
    driven = [f"assign {prefix}_{channel}id = 0;" for prefix in buses for channel in ("ar", "aw")]
    joined = [", ".join(f".{name}({name})" for name in each) for each in (wrapped, alone)]
    return "\n".join(
        [
            "module bench(",
            ",\n".join(f"    {each}" for each in declared),
            ");",
            *driven,
            f"{ENGINE}_axi wrapper({joined[0]});",
            f"{ENGINE} alone({joined[1]}, .stop(1'b0), .program_base(32'b0));",
            "endmodule",
            "",
        ]
    ).encode()


class Circuit:
    """An engine in its wrapper, and the folder in which it is compiled once."""

    def __init__(self, engine: EngineConfig, folder: Path, pace: Fraction | int = 1):
        self.engine, self.folder = engine, folder
        self.pace = Fraction(pace).numerator | Fraction(pace).denominator << PACE_BITS
        verilog = engine_files(engine)
        self.shell = shell_of(engine, MemoryTiming.at(pace), verilog)
        self.files = verilog | EnginePackage(shell=self.shell, top=ENGINE).files()
        self.files["bench.v"] = bench(self.shell)

    def phase(self, found: ProgramSchedule, count: int, *, seed: int = 0, **more: Any) -> dict[str, Any]:
        """So many random frames of a network."""
        frames = frames_for(found.network, count, seed)
        expected = golden.outputs(found.network, frames)
        (source,) = found.program.inputs
        names = [self._stored(f"{seed}_{number}", source.pack(each)) for number, each in enumerate(frames)]
        outputs = [
            [
                self._file(f"{seed}_{number}_{place}", maps[number], kind)
                for place, (maps, kind) in enumerate(zip(expected, found.network.output_maps, strict=True))
            ]
            for number in range(count)
        ]
        told: dict[str, Any] = {"base": 0x5000, "pause": 0.0, "damaged": [], "refused": 0, "error": 0}
        told |= {"reset_at": 0, "stop_at": 0, "alone": False, "frames": names, "expected": outputs}
        assert more.keys() <= told.keys()
        return told | more

    def _file(self, name: str, frame: np.ndarray, kind: Any) -> str:
        return self._stored(name, pack_map(frame, kind.type))

    def _stored(self, name: str, content: bytes) -> str:
        path = self.folder / f"frame_{name}"
        path.write_bytes(content)
        return str(path)

    def run(
        self, found: ProgramSchedule, phases: list[dict[str, Any]], simulator: str = "icarus", least_cycles: int = 0
    ) -> None:
        program = self.folder / "program"
        program.write_bytes(found.image)
        # Lanes past the last channel hold anything.
        counts = [np.full(each.shape, offset(each.type) + 1) for each in found.network.output_maps]
        outputs = [
            (place.address, self._file(f"lanes_{number}", counts[number], found.network.output_maps[number]))
            for number, place in enumerate(found.outputs)
        ]
        cocotb_bench.run(
            self._sources(), "bench", "cocotb_engine_wrapper", self.folder,
            registers=json.loads(self.files["registers.json"]), program=str(program), size=found.size,
            input=found.inputs[0].address, outputs=outputs, pace=self.pace, phases=phases,
            ports=[*self.shell.port_names.values()], least_cycles=least_cycles, simulator=simulator,
        )  # fmt: skip

    def drive(self, runs: list[dict[str, Any]], simulator: str = "icarus") -> None:
        """The Python driver of a folder."""
        folder = self._built()
        defaults = {"integers": False, "waits": False, "damaged": -1, "error": ""}
        cocotb_bench.run(
            self._sources(), "bench", "cocotb_engine_driver", self.folder,
            driver=str(folder / "engine_driver.py"), design=str(folder), runs=[defaults | each for each in runs],
            simulator=simulator,
        )  # fmt: skip

    def drive_in_c(self, runs: list[dict[str, Any]], simulator: str = "icarus") -> None:
        """The C driver of a folder."""
        folder = self._built()
        defaults = {"base": 0x3000, "damaged": -1, "refused": -1, "patience": 100_000, "waits": False, "status": "OK"}
        cocotb_bench.run(
            self._sources(), "bench", "cocotb_engine_c_driver", self.folder,
            built=str(folder), library=str(compiled(folder, self.folder)), runs=[defaults | each for each in runs],
            simulator=simulator,
        )  # fmt: skip

    def _built(self) -> Path:
        """A folder that has all that a build writes but the report."""
        folder = self.folder / "built"
        folder.mkdir(exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder

    def _sources(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files.items() if name.endswith((".v", ".mem"))}

    def told(self, name: str, found: ProgramSchedule, *frames: np.ndarray) -> dict[str, str]:
        """Files of a program, of frames of each input, and where outputs go."""
        program, x, y = (self.folder / f"{name}{ending}" for ending in (".program", "_x.npz", ".npz"))
        program.write_bytes(bytes(found.program))
        np.savez(x, *frames)
        return {"program": str(program), "x": str(x), "y": str(y)}


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Circuit:
    return Circuit(SMALL, tmp_path_factory.mktemp("wrapped"))


@pytest.fixture(scope="module")
def fast(tmp_path_factory) -> Circuit:
    """The same for Verilator, which compiles it once."""
    return Circuit(SMALL, tmp_path_factory.mktemp("verilated"))


@functools.cache
def tiny() -> ProgramSchedule:
    """Return 12 jobs."""
    return schedule(alone(conv(channels=9, size=(3, 3))), SMALL)


@functools.cache
def short() -> ProgramSchedule:
    """Return 24 jobs."""
    return schedule(alone(conv(channels=9, size=(5, 5))), SMALL)


#: A bit of a later job, so that some have been computed.
DAMAGED = {"damaged": [8 * (5 * Job.BYTES + 20)], "error": Error.DAMAGED.value}


@needs_cocotb
def test_small_engine(small):
    """As fast as an engine alone; then pauses on all channels, a reset, a damaged program, a run that is stopped."""
    small.run(
        tiny(),
        [
            small.phase(tiny(), 1, alone=True),
            small.phase(tiny(), 1, pause=0.2, reset_at=333, seed=1, **DAMAGED),
            small.phase(tiny(), 1, base=0xC000, stop_at=200, seed=2),
        ],
    )


@pytest.mark.long
@needs_verilator
@pytest.mark.parametrize("pause", [0, 0.1, 0.5])
def test_ends_of_runs(fast, pause):
    """Resets and stops at any cycle, memory that refuses reads or writes, and the right results behind each."""
    rng = np.random.default_rng(round(10 * pause))
    ends = [{"reset_at": int(cycle)} for cycle in rng.integers(1, 1500, 4)]
    ends += [{"stop_at": int(cycle)} for cycle in rng.integers(1, 1500, 6)]
    ends += [
        DAMAGED,
        {"refused": short().inputs[0].address, "error": Error.READ_SLAVE.value},
        {"refused": short().outputs[0].address, "error": Error.WRITE_SLAVE.value},
        {"base": 0xFF000 - short().size // 4096 * 4096},
    ]
    phases = [fast.phase(short(), 1, pause=pause, seed=seed, **each) for seed, each in enumerate(ends)]
    fast.run(short(), phases, "verilator")


@pytest.mark.long
@needs_verilator
def test_digits_on_an_engine(fast):
    """The digits network, of several layers, with and without pauses."""
    found = schedule(hwgen.load(ENGINE_OF_DIGITS / "digits.onnx").network, SMALL)
    phases = [fast.phase(found, 2, alone=True), fast.phase(found, 1, pause=0.2, stop_at=2000, seed=1)]
    fast.run(found, phases, "verilator")


@pytest.mark.long
@needs_cocotb
@pytest.mark.parametrize(
    ("bus_bytes", "pace"), [(4, 1), (8, 3), (8, Fraction(7, 5)), (16, 1), (16, 2), (64, Fraction(10, 9))]
)
def test_widths_and_paces(tmp_path, bus_bytes, pace):
    """Other buses, and slower memories by the register's first value."""
    engine = behind(bus_bytes)
    found = schedule(tiny().network, engine, pace=pace)
    other = Circuit(engine, tmp_path, pace)
    other.run(found, [other.phase(found, 1, alone=True), other.phase(found, 1, pause=0.3, stop_at=100, seed=1)])


@pytest.mark.long
@needs_cocotb
@pytest.mark.parametrize(("bus_bytes", "ports"), [(16, 2), (32, 4), (64, 4)])
def test_several_ports(tmp_path, bus_bytes, ports):
    """Memories that share their contents, with pauses; errors, a stop, a reset, and the right results behind each."""
    engine = replace(behind(bus_bytes), ports=ports)
    found = schedule(short().network, engine)
    circuit = Circuit(engine, tmp_path)
    ends = [
        {},
        {"pause": 0.4, "stop_at": 150},
        {"pause": 0.2, "reset_at": 333},
        DAMAGED,
        {"refused": found.inputs[0].address, "error": Error.READ_SLAVE.value, "pause": 0.1},
        {"refused": found.outputs[0].address, "error": Error.WRITE_SLAVE.value},
    ]
    circuit.run(found, [circuit.phase(found, 1, seed=seed, **each) for seed, each in enumerate(ends)])


@pytest.mark.long
@needs_verilator
def test_faults_at_four_ports(tmp_path):
    """100,000 cycles, 60 runs that a random fault, stop or reset ends: faults are in registers, next runs right."""
    engine, rng = replace(behind(32), ports=4), np.random.default_rng(4)
    found, circuit = schedule(short().network, engine), Circuit(engine, tmp_path)
    places = [place.address for place in (*found.inputs, *found.outputs)]
    phases = []
    for seed in range(60):
        refused = {"refused": int(rng.choice(places))}
        is_read = refused["refused"] < found.outputs[0].address
        refused["error"] = (Error.READ_SLAVE if is_read else Error.WRITE_SLAVE).value
        bit, seal = int(rng.integers(8 * Job.BYTES)), 8 * Job.BYTES - 64  # the seal's lower half names the engine
        code = Error.FOREIGN if seal <= bit < seal + SEAL_BITS else Error.DAMAGED
        damaged = {"damaged": [8 * Job.BYTES * int(rng.integers(1, 20)) + bit], "error": code.value}
        cycle = int(rng.integers(1, 300))
        end = [refused, damaged, {"stop_at": cycle}, {"reset_at": cycle}][rng.integers(4)]
        pause = float(rng.choice([0, 0.1, 0.4]))
        phases.append(circuit.phase(found, 1, seed=seed, base=4096 * int(rng.integers(64)), pause=pause, **end))
    circuit.run(found, phases, "verilator", least_cycles=100_000)


# The driver, on the simulated hardware; what it refuses is in test_engine_driver.py


@pytest.mark.long
@needs_cocotb
def test_driver(small):
    """By polling, by the interrupt, and behind an error."""
    frames = frames_for(tiny().network, 2, 7)
    files = small.told("tiny", tiny(), frames)
    one = small.told("one", tiny(), frames[:1])
    damaged = {"damaged": 5 * Job.BYTES, "error": "frame 0 was ended by error 8: a job is damaged"}
    small.drive([files, {**one, **damaged}, {**one, "waits": True}])
    (expected,) = golden.outputs(tiny().network, frames)
    for each, wanted in ((files, expected), (one, expected[:1])):
        np.testing.assert_array_equal(np.load(each["y"])["arr_0"], wanted)


@pytest.mark.long
@needs_gcc
@needs_cocotb
def test_drivers_with_several_inputs(small):
    """A sum of two inputs of other types, by the Python driver and by the C driver."""
    network = two_inputs()
    found, frames = schedule(network, SMALL), inputs_for(network, 2, 5)
    files, again = (small.told(name, found, *frames) for name in ("sum", "sum_c"))
    small.drive([{**files, "integers": True}])
    small.drive_in_c([again])
    (expected,) = golden.outputs(network, frames)
    for path in (files["y"], again["y"]):
        np.testing.assert_array_equal(np.load(path)["arr_0"], expected)


@pytest.mark.long
@needs_gcc
@needs_cocotb
def test_c_driver(small):
    """Frames at two places, by polling and by the interrupt; between them each way in which a run can end badly."""
    frames = frames_for(tiny().network, 2, 8)
    one = small.told("tiny_c", tiny(), frames[:1])
    two = {**small.told("tiny_again", tiny(), frames), "base": 0x10000, "waits": True}
    small.drive_in_c(
        [
            one,
            {**one, "y": str(small.folder / "none.npz"), "damaged": 5 * Job.BYTES, "status": "DAMAGED", "waits": True},
            {**one, "y": str(small.folder / "none.npz"), "refused": tiny().inputs[0].address, "status": "READ_SLAVE"},
            {**one, "y": str(small.folder / "none.npz"), "refused": tiny().outputs[0].address, "status": "WRITE_SLAVE"},
            {**one, "y": str(small.folder / "none.npz"), "patience": 8, "status": "TIMEOUT"},
            two,
        ]
    )
    (expected,) = golden.outputs(tiny().network, frames)
    for each, wanted in ((one, expected[:1]), (two, expected)):
        np.testing.assert_array_equal(np.load(each["y"])["arr_0"], wanted)


@pytest.mark.long
@needs_gcc
@needs_verilator
def test_c_driver_of_several_networks(fast):
    """Held-out digits, with the results of ``hwgen simulate``, and of ONNX Runtime; another network between them."""
    digits, images = (
        hwgen.load(ENGINE_OF_DIGITS / "digits.onnx"),
        np.load(ENGINE_OF_DIGITS / "images.npy")[:10],
    )
    found = schedule(digits.network, SMALL)
    frames = np.asarray(digits.prepare(images))
    files = fast.told("digits_c", found, frames)
    other = hwgen.load("lenet5")
    others = np.asarray(other.random_frames(4))  # two runs of two frames
    between = {**fast.told("lenet5_c", schedule(other.network, SMALL, frames=2), others), "base": 0x8000, "waits": True}
    again = {**files, "y": str(fast.folder / "again_c.npz")}
    fast.drive_in_c([files, between, again], "verilator")
    simulated = digits.plan("zedboard", template="engine", cores=1, array=(8, 5)).simulate(images).outputs
    for path in (files["y"], again["y"]):
        logits = np.load(path)["arr_0"].reshape(len(images), -1)
        np.testing.assert_array_equal(
            logits, np.reshape(np.asarray(digits.golden(images, integers=True)), logits.shape)
        )
        np.testing.assert_array_equal(logits.argmax(1), np.reshape(np.asarray(simulated), logits.shape).argmax(1))
    (expected,) = golden.outputs(other.network, others)
    np.testing.assert_array_equal(np.load(between["y"])["arr_0"], expected)


@pytest.mark.long
@needs_verilator
def test_driver_of_several_networks(fast):
    """The held-out digits, in float on either side, and other networks between them."""
    digits = hwgen.load(ENGINE_OF_DIGITS / "digits.onnx")
    images, labels = (
        np.load(ENGINE_OF_DIGITS / "images.npy")[:20],
        np.load(ENGINE_OF_DIGITS / "labels.npy")[:20],
    )
    files = fast.told("digits", schedule(digits.network, SMALL), images)
    other = hwgen.load("lenet5")
    frames = other.random_frames(1)
    others = fast.told("lenet5", schedule(other.network, SMALL), np.asarray(frames))
    again = {**files, "waits": True, "integers": True, "y": str(fast.folder / "again.npz")}
    fast.drive([files, {**others, "integers": True}, again], "verilator")
    found = np.load(files["y"])["arr_0"]
    np.testing.assert_array_equal(found, digits.golden(images))
    assert (found.argmax(1) == labels).mean() > 0.9
    np.testing.assert_array_equal(np.load(others["y"])["arr_0"], other.golden(frames, integers=True))
    np.testing.assert_array_equal(np.load(again["y"])["arr_0"], digits.golden(images, integers=True))


@pytest.mark.long
@needs_cocotb
@pytest.mark.parametrize("bus_bytes", [4, 16, 32, 64])
def test_other_buses(tmp_path, bus_bytes):
    """Of 32 and of 128 bits: as fast as an engine alone, and a run that is stopped between pauses."""
    config = behind(bus_bytes)
    other, found = Circuit(config, tmp_path), schedule(alone(conv(channels=9, size=(3, 3))), config)
    other.run(found, [other.phase(found, 1, alone=True), other.phase(found, 1, pause=0.2, stop_at=200, seed=1)])


# Registers


def test_the_docs_have_the_table():
    rows = wrapper.register_table(EngineShellConfig(engine=EngineConfig()).registers)
    assert "\n\n" + "\n".join(rows) + "\n\n" in DOCS.read_text()


def test_json_python_and_c_agree(tmp_path):
    """All offsets and masks, by the three files that software reads."""
    shell = EngineShellConfig(engine=SMALL, pace=3, build_hash=0x0123_4567_89AB_CDEF)
    document = registers_json(shell, "engine_axi")
    assert document["engine"]["digest"] == digest(SMALL)
    values = resets(document)
    faster = registers_json(replace(shell, pace_beats=2), "engine_axi")
    assert (values["PACE"], resets(faster)["PACE"]) == (3, 0x203)
    assert values["DIGEST_HIGH"] << 32 | values["DIGEST_LOW"] == int(digest(SMALL), 16)
    assert values["BUILD_HASH_HIGH"] << 32 | values["BUILD_HASH_LOW"] == int(document["build_hash"], 16)
    offsets = [register["offset"] for register in document["registers"]]
    assert offsets == sorted(set(offsets))
    expected = told(document) | {"IDENTITY_IS": 0x4857_4745, "VERSION_MAJOR_IS": 1}
    assert expected["PROGRAM_BASE_ADDRESS"] == 0xFFFFF000
    check_constants(shell, expected, tmp_path)


def resets(document: dict[str, Any]) -> dict[str, int]:
    """What registers hold after a reset, by ``registers.json``."""
    return {register["name"]: register["reset"] for register in document["registers"]}


def test_every_error_is_told():
    assert ERRORS.keys() == set(Error)


@pytest.mark.parametrize(
    ("pace", "beats", "message"),
    [
        (0, 1, "pace must be from 1 to 255, not 0"),
        (256, 1, "pace must be from 1 to 255, not 256"),
        (3, 7, "pace_beats must be from 1 to 6 with a pace of 3, not 7"),
        (3, 0, "pace_beats must be from 1 to 6 with a pace of 3, not 0"),
    ],
)
def test_refusals(pace, beats, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        EngineShellConfig(engine=SMALL, pace=pace, pace_beats=beats)


@pytest.mark.long
def test_resources():
    """Yosys, and the longest path between registers, without those to and from the buses."""
    part = EngineShellConfig(engine=SMALL, pace=2, build_hash=0x0123_4567_89AB_CDEF)
    ((measured,), (path,)) = synthesis.measure_paths([part])
    assert abs(part.resources.ff / measured.ff - 1) <= 0.05
    assert abs(part.resources.lut / measured.lut - 1) <= 0.15
    assert path is not None
    assert path.delay <= 3.3


marks = cocotb_bench.needs_cocotb

NEVER = 1 << 32


def with_identifiers(config: EngineConfig) -> bytes:
    """A module ``bench`` around the engine: all reads and writes have identifier 0, without which the model has no
    bus."""
    ports = {"clk": "input", "rst": "input", "start": "input", "stop": "input"}
    ports |= {"program_base": "input [31:0]", "pace": "input [15:0]"}
    ports |= {"done": "output", "error": f"output [{Shape.cast(Error).width - 1}:0]"}
    for name, member in axi.Master(data_bytes=config.bus_bytes).members.items():
        direction = "input" if member.flow is In else "output"
        ports[f"m_axi__{name}"] = f"{direction} [{Shape.cast(member.shape).width - 1}:0]"
    joined = ", ".join(f".{name}({name})" for name in ports)
    identifiers = {"m_axi__arid": "output", "m_axi__awid": "output", "m_axi__rid": "input", "m_axi__bid": "input"}
    listed = ", ".join(f"{direction} {name}" for name, direction in (ports | identifiers).items())
    driven = "assign m_axi__arid = 0; assign m_axi__awid = 0;"
    return f"module bench({listed});\n{driven}\n{ENGINE} engine({joined});\nendmodule\n".encode()


@pytest.fixture(scope="module")
def circuit():
    return engine_files(SMALL) | {"bench.v": with_identifiers(SMALL)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """In which the engine is compiled once."""
    return tmp_path_factory.mktemp("icarus")


def run(circuit, place: Path, memory: bytes, **scenario: Any) -> bytes:
    """What lies in memory after a run."""
    before, after = place / "before.bin", place / "after.bin"
    before.write_bytes(memory)
    told: dict[str, Any] = {"image": str(before), "result": str(after), "runs": [0], "pause": 0, "reset_at": 0}
    told |= {"damaged": [], "forbidden": {"read": NEVER, "write": NEVER}}
    cocotb_bench.run(circuit, "bench", "cocotb_engine", place, **told | scenario)
    return after.read_bytes()


def check_other_memory(circuit, place: Path, found: ProgramSchedule, **scenario: Any) -> None:
    """Outputs are the golden model's, and nothing beside maps was written."""
    memory, frames = image(found, 0)
    after = run(circuit, place, memory, **scenario)
    (expected,) = golden.outputs(found.network, frames)
    (output,) = found.outputs
    values = unpack_map(after[output.address : output.address + output.size], found.network.output)
    np.testing.assert_array_equal(values, expected[0])
    assert after[: len(found.image)] == found.image


@pytest.fixture(scope="module")
def short_runs() -> ProgramSchedule:
    """A convolution on a small map."""
    return schedule(alone(conv(channels=9, size=(5, 5))), SMALL)


@marks
@pytest.mark.long
def test_a_convolution(circuit, place, short_runs):
    """Pauses on every channel, a reset in the midst of a first attempt, a refused program, and then two runs."""
    wrong = [8 * (5 * Job.BYTES + 20)]
    check_other_memory(
        circuit, place, short_runs, pause=0.2, reset_at=333, damaged=wrong, runs=[Error.DAMAGED.value, 0, 0]
    )


@marks
@pytest.mark.long
@pytest.mark.parametrize(("pause", "cycle"), [(0, 0), (0.7, 0), (0.2, 7), (0.2, 1500)])
def test_pauses_and_resets(circuit, place, short_runs, pause, cycle):
    check_other_memory(circuit, place, short_runs, pause=pause, reset_at=cycle)


@marks
@pytest.mark.long
@pytest.mark.parametrize(("kind", "error"), [("read", Error.READ_SLAVE), ("write", Error.WRITE_SLAVE)])
def test_errors(circuit, place, short_runs, kind, error):
    """Each start of a program that touches what memory refuses ends with the error."""
    memory, _ = image(short_runs, 0)
    refused = short_runs.outputs[0].address if kind == "write" else short_runs.inputs[0].address
    forbidden = {"read": NEVER, "write": NEVER} | {kind: refused}
    run(circuit, place, memory, forbidden=forbidden, runs=[error.value] * 2, pause=0.2)


@marks
@pytest.mark.long
@pytest.mark.parametrize("bus_bytes", [4, 16, 32, 64])
def test_other_buses_of_a_memory(tmp_path, bus_bytes):
    """Two beats a word; two words a beat, beside bursts of a word a beat, and rows that begin with half a beat."""
    config = behind(bus_bytes)
    other = engine_files(config) | {"bench.v": with_identifiers(config)}
    check_other_memory(
        other, tmp_path, schedule(alone(conv(channels=9, size=(5, 5))), config), pause=0.2, reset_at=333, runs=[0, 0]
    )


@marks
@pytest.mark.long
@pytest.mark.parametrize("pause", [0, 0.3])
def test_a_network(circuit, place, pause):
    check_other_memory(circuit, place, schedule(hwgen.load("lenet5").network, SMALL), pause=pause)
