"""The Python driver: on simulated hardware, with Linux without PYNQ, in the programs of docs/, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cocotb_bench
import numpy as np
import onnx
import pytest
from cocotb_bench import needs_cocotb
from driver_runs import DIGITS, Bench, Still, packed, ports, shell_of, still_dma, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs_icarus
from onnx_models import pictures, siamese
from programs import SMALL, given_frame
from pynq_model import pynq_module

import hwgen
from hwgen.emit import driver, linux, wrapper
from hwgen.emit.drivers import python_driver, python_file
from hwgen.emit.engine import registers_json
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.shell import ends_of
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.quantise import quantise
from hwgen.program.compile import schedule
from hwgen.program.layout import pack_map
from hwgen.simulate import stimuli


def drive(
    design: hwgen.Design, folder: Path, frames: list[np.ndarray], *, through_linux: bool = False, **more: Any
) -> list[np.ndarray]:
    """All outputs of the last of several runs: frames of the first are cut short, and Ctrl-C ends two others."""
    built = design.build(folder / "built")
    registers = json.loads((built / "registers.json").read_text())
    top = registers["module"]
    sources = [path for path in built.iterdir() if path.suffix in (".v", ".mem") and not path.name.endswith("_tb.v")]
    x = []
    for number, each in enumerate(frames):
        np.save(folder / f"x{number}.npy", each)
        x.append(str(folder / f"x{number}.npy"))
    error = f"a frame on {registers['inputs'][0]['name']} ended too early, and was completed with zeros"
    run = {
        "x": x,
        "y": str(folder / "y.npz"),
        "frames": len(frames[0]),
        "integers": False,
        "cut": 0,
        "error": "",
        **more,
    }
    (script,) = built.glob("*_driver.py")
    cocotb_bench.run(
        {path.name: path.read_bytes() for path in sources}, top, "cocotb_driver", folder,
        driver=str(script), design=str(built), registers=registers, linux=through_linux, runs=[
            run | {"cut": 1, "error": error}, run | {"interrupted": 20, "error": "interrupted"},
            run | {"interrupted": 35, "error": "interrupted", "restarts": True}, run,
        ],
    )  # fmt: skip
    with np.load(folder / "y.npz") as found:
        return [found[name] for name in found.files]


@needs_cocotb
@pytest.mark.long
@pytest.mark.parametrize("through_linux", [False, True])
def test_small(tmp_path, through_linux):
    model = hwgen.load("decoilfnet-example")
    frames = model.random_frames(4)
    assert isinstance(frames, np.ndarray)
    design = model.plan("zedboard", dsp=20, multipliers="dsp")
    (found,) = drive(design, tmp_path, [frames], integers=True, through_linux=through_linux)
    np.testing.assert_array_equal(found, model.golden(frames, integers=True))


@pytest.mark.long
@needs_cocotb
def test_digits(tmp_path):
    """The held-out digits, in float on either side."""
    model = hwgen.load(DIGITS / "digits.onnx")
    images, labels = np.load(DIGITS / "images.npy")[:40], np.load(DIGITS / "labels.npy")[:40]
    (found,) = drive(model.plan("zedboard"), tmp_path, [images])
    expected = model.golden(images)
    np.testing.assert_array_equal(found, expected)
    assert (found.argmax(1) == labels).mean() > 0.9


@pytest.mark.long
@needs_cocotb
def test_several_inputs(tmp_path):
    onnx.save(quantise(siamese(), pictures(8), "siamese"), tmp_path / "siamese.onnx")
    model = hwgen.load(tmp_path / "siamese.onnx")
    frames = pictures(5, 1)
    (found,) = drive(model.plan("zedboard", dsp=30, multipliers="dsp"), tmp_path, list(frames.values()))
    np.testing.assert_array_equal(found, model.golden(frames))


# Without hardware


@settings(max_examples=60)
@given(port=ports(), seed=st.integers(0, 2**32))
def test_memory_is_the_beats(port, seed):
    """What lies in memory is the values of the beats that the simulators send, one after the other."""
    beat = port.beat
    (end,) = ends_of([port], "s_axis", [16])
    stream = driver.Stream(json.loads(json.dumps(wrapper.stream(end))))
    assert len(stream.places) * end.value_bytes == end.frame_bytes == stream.frame_bytes
    low, high = beat.value_range
    frame = np.random.default_rng(seed).integers(low, high + 1, stream.shape).astype(stream.dtype)
    values = packed(stream, frame).tolist()
    mask, bits = (1 << beat.bits) - 1, beat.bits
    beats = stimuli.integers(stimuli.pack(frame[None], beat, port.order))
    for number, word in enumerate(beats):
        size = len(beat.fold_channels[number % beat.folds]) * beat.pixels
        mine, values = values[:size], values[size:]
        assert [value & mask for value in mine] == [word >> place * bits & mask for place in range(size)]
    assert not values
    covered = np.unique(stream.places[stream.places >= 0])
    np.testing.assert_array_equal(
        unpacked(stream, packed(stream, frame)).reshape(-1)[covered], frame.reshape(-1)[covered]
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return (
        hwgen.load("decoilfnet-example")
        .plan("zedboard", dsp=20, multipliers="dsp")
        .build(tmp_path_factory.mktemp("built") / "out")
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"IDENTITY": 0}, r"there is no accelerator of hwgen: IDENTITY is 0x00000000, not 0x4857474e"),
        ({"VERSION": 2 << 16}, r"the hardware's registers are of version 2, this driver is for 1"),
        ({"BUILD_HASH_LOW": 7}, r"the hardware is another design than \w+_axi of this folder: its build hash is "
         r"0x\w+00000007, not 0x\w{16}; load the bitstream that was built from this folder"),
    ],
)  # fmt: skip
def test_other_hardware(built, other, message):
    with pytest.raises(driver.DriverError, match=f"^{message}$"):
        driver.Accelerator(Still(built, **other), still_dma(), folder=built)


def test_frames_that_do_not_fit(built):
    accelerator = driver.Accelerator(Still(built), still_dma(), folder=built, timeout=0.01)
    (end,) = accelerator.inputs
    right = np.zeros((2, *end.shape), end.stream.dtype)
    with pytest.raises(driver.DriverError, match=r"must be numbers of shape \(n, .*\), not uint8 of \(2, 1\)$"):
        accelerator.run(np.zeros((2, 1), np.uint8))
    with pytest.raises(driver.DriverError, match=r"^frames must be one array per input of the design \(1\), not 2$"):
        accelerator.run(right, right)
    with pytest.raises(driver.DriverError, match=r" must lie in -?\d+ \.\. \d+: frame 0 does not$"):
        accelerator.run(right.astype(np.int32) + 1000)
    with pytest.raises(driver.DriverError, match=r"^nothing moved for 0\.01 s: STATUS 0, FRAMES 0, "):
        accelerator.run(right)
    with pytest.raises(driver.DriverError, match=r"^dma must be 1 of them, not 0$"):
        driver.Accelerator(Still(built), [], folder=built)
    with pytest.raises(driver.DriverError, match=r"registers\.json can't be read: No such file or directory$"):
        driver.Accelerator(Still(built), still_dma(), folder=built / "nowhere")


@pytest.mark.parametrize("name", ["driver", "linux"])
def test_the_driver_stands_alone(built, name):
    """As it lies in the folder it needs no hwgen."""
    (script,) = built.glob(f"*_{name}.py")
    imports = [line for line in script.read_text().splitlines() if line.startswith(("import ", "from "))]
    names = {line.split()[1].split(".")[0] for line in imports}
    assert names - {"__future__", *sys.stdlib_module_names} == {"numpy"}


PHYSICAL, SIZE = 0x3000_0000, 1 << 16


class Machine:
    """A file system with UIO devices and a u-dma-buf device, all of plain files."""

    def __init__(self, root: Path):
        self.root = root
        (root / "dev").mkdir(parents=True)

    def uio(self, number: int, name: str, words: dict[int, int], size: int = 0x1000) -> None:
        folder = self.root / f"sys/class/uio/uio{number}"
        (folder / "maps/map0").mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "maps/map0/size").write_text(f"{size:#018x}\n")
        content = np.zeros(size // 4, np.uint32)
        for offset, value in words.items():
            content[offset // 4] = value
        (self.root / f"dev/uio{number}").write_bytes(content.tobytes())

    def buffers(self, name: str = "udmabuf0", kind: str = "u-dma-buf", size: int = SIZE) -> Path:
        folder = self.root / "sys/class" / kind / name
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
        (folder / "phys_addr").write_text(f"{PHYSICAL:#x}\n")
        (self.root / "dev" / name).write_bytes(bytes(size))
        return folder

    def words(self, number: int) -> np.ndarray:
        return np.frombuffer((self.root / f"dev/uio{number}").read_bytes(), np.uint32)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path / "root")


def test_registers(machine):
    machine.uio(0, "other_0", {0x10: 7})
    machine.uio(1, "net_axi_0", {0: 0x4857_474E, 0x14: 0xFFFF_FFFF})
    registers = linux.Registers("net_axi_0", root=machine.root)
    assert [registers.read(offset) for offset in (0, 4, 0x14)] == [0x4857_474E, 0, 0xFFFF_FFFF]
    registers.write(0x8, 0x1_2345_6789)
    assert machine.words(1)[2] == 0x2345_6789
    assert machine.words(0)[4] == 7
    with pytest.raises(
        linux.LinuxError, match=r"^there is no UIO device dma \(there are: net_axi_0, other_0\); load a"
    ):
        linux.Registers("dma", root=machine.root)
    (machine.root / "dev/uio1").unlink()
    with pytest.raises(linux.LinuxError, match=r"uio1 can't be mapped: .*; run as root, or give your user the device$"):
        linux.Registers("net_axi_0", root=machine.root)


def test_buffers_are_synchronised(machine):
    """A flush covers the buffer for the device, an invalidation for the processor."""
    folder = machine.buffers(kind="udmabuf")
    buffers = linux.Buffers(root=machine.root)
    first, second = buffers.allocate((3, 5), np.uint8), buffers.allocate(shape=(2,), dtype="<i4")
    assert (first.physical_address, second.physical_address) == (PHYSICAL, PHYSICAL + 4096)
    second[:] = 1, -1
    second.flush()
    names = ("sync_offset", "sync_size", "sync_direction", "sync_for_device")
    assert [(folder / name).read_text() for name in names] == ["4096", "8", "1", "1"]
    assert (machine.root / "dev/udmabuf0").read_bytes()[4096:4104] == second.tobytes()
    first.invalidate()
    names = ("sync_offset", "sync_size", "sync_direction", "sync_for_cpu")
    assert [(folder / name).read_text() for name in names] == ["0", "15", "2", "1"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12_000), st.booleans()), min_size=5, max_size=40))
def test_arrays_never_overlap(tmp_path_factory, steps):
    """Whatever is allocated and freed: arrays are apart, in pages of their own, and their memory comes back."""
    machine = Machine(tmp_path_factory.mktemp("machine") / "root")
    machine.buffers()
    buffers, arrays = linux.Buffers(root=machine.root), []
    for size, frees in steps:
        if frees and arrays:
            arrays.pop(size % len(arrays))
        try:
            array = buffers.allocate((size,), np.uint8)
        except linux.LinuxError:
            continue
        begin = array.physical_address - PHYSICAL
        assert begin % 4096 == 0
        assert begin + size <= SIZE
        spans = [(other.physical_address - PHYSICAL, len(other)) for other in arrays if len(other)]
        assert all(begin + size <= other or other + length <= begin for other, length in spans) or not size
        arrays.append(array)
    array, view = None, arrays[-1][:1]
    arrays.clear()
    with pytest.raises(linux.LinuxError):
        buffers.allocate((SIZE,), np.uint8)
    del view
    assert len(buffers.allocate((SIZE,), np.uint8)) == SIZE


@pytest.mark.parametrize(
    ("names", "wanted", "message"),
    [
        ((), None, r"^there is no u-dma-buf device \(there are: none\); load the module u-dma-buf"),
        (("a", "b"), None, r"^name one of several u-dma-buf devices \(there are: a, b\)"),
        (("a", "b"), "c", r"^no u-dma-buf c \(there are: a, b\)"),
    ],
)
def test_missing_buffers(machine, names, wanted, message):
    for name in names:
        machine.buffers(name)
    with pytest.raises(linux.LinuxError, match=message):
        linux.Buffers(wanted, root=machine.root)


def test_a_dma_that_does_not_start(machine, monkeypatch):
    """It is said after a second, and a transfer that it can't count is refused."""
    machine.uio(0, "axi_dma_0", {0x04: 1})
    registers = linux.Registers("axi_dma_0", root=machine.root)
    monkeypatch.setattr(linux, "_TIMEOUT", 0.01)
    with pytest.raises(linux.LinuxError, match=r"^the DMA does not start"):
        linux.Dma(registers, receives=False)
    registers.write(0x04, 0)
    dma = linux.Dma(registers, receives=False, length_bits=14)
    machine.buffers()
    buffer = linux.Buffers(root=machine.root).allocate((1 << 14,), np.uint8)
    with pytest.raises(ValueError, match=r"^a transfer of 16,384 bytes is too long: it must have less than 16,384$"):
        dma.sendchannel.transfer(buffer)
    dma.sendchannel.transfer(buffer, 8, 100)
    assert list(machine.words(0)[[0, 6, 7, 10]]) == [1, PHYSICAL + 8, 0, 100]


def test_devices_of_a_design(tmp_path, machine):
    """The driver reaches the design's registers and its DMAs: it resets the first one, whose file never answers."""
    bench = Bench(tmp_path, 0, 2, 1)
    registers = {each["offset"]: each["reset"] for each in bench.document["registers"]}
    machine.uio(0, "axi_dma_1", {}, 0x10000)
    machine.uio(3, "net_axi_0", registers)
    machine.uio(2, "axi_dma_0", {}, 0x10000)
    machine.buffers()
    opened, dmas, allocate = linux.devices("net_axi", 2, 1, root=machine.root)
    channels = [(dma.sendchannel is not None, dma.recvchannel is not None) for dma in dmas]
    assert channels == [(True, True), (True, False)]
    with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis_0 does not end its reset"):
        driver.Accelerator(opened, dmas, allocate=allocate, folder=tmp_path, timeout=0.01)
    offsets = {each["name"]: each["offset"] for each in bench.document["registers"]}
    assert machine.words(3)[offsets["CONTROL"] // 4] == 1
    assert machine.words(2)[0] == 4


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with a design's registers and both files of its driver."""
    made = tmp_path / "design"
    made.mkdir()
    (made / "registers.json").write_text(json.dumps(wrapper.to_json(shell_of(1, 1), "net_axi")))
    (made / "net_driver.py").write_bytes(python_driver("driver.py"))
    (made / "net_linux.py").write_bytes(python_file("buffers.py", "linux.py"))
    return made


def opened(folder: Path):
    spec = importlib.util.spec_from_file_location("net_driver", folder / "net_driver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_connect_without_devices(folder, caplog):
    """Without PYNQ it is Linux' turn, which is said; what is missing is named."""
    module = opened(folder)
    caplog.set_level("INFO", "hwgen")
    with pytest.raises(module.DriverError, match=r"^there is no UIO device axi_dma_0 \(there are: "):
        module.connect()
    assert caplog.messages == ["net_axi is reached through linux"]
    with pytest.raises(module.DriverError, match=r"^through must be pynq or linux or xdma, not 'usb'$"):
        module.connect(through="usb")
    (folder / "net_linux.py").unlink()
    with pytest.raises(module.DriverError, match=r"net_linux\.py can't be read: .*; copy it into this file's folder$"):
        module.connect()
    shutil.rmtree(folder)
    with pytest.raises(module.DriverError, match=r"registers\.json can't be read"):
        module.connect()


ROOT = Path(__file__).resolve().parents[2]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples" / "digits"
NAME = "decoilfnet_example"


@pytest.fixture(scope="module")
def model() -> hwgen.Model:
    return hwgen.load("decoilfnet-example")


@pytest.fixture(scope="module")
def built_for_pynq(model, tmp_path_factory) -> Path:
    return model.plan("pynq-z2", dsp=20, multipliers="dsp").build(tmp_path_factory.mktemp("built_for_pynq") / "out")


def block(page: str, word: str, name: str = NAME) -> str:
    """The program on a page with a word in it; of this network in place of the digits."""
    found = re.findall(r"^```\w*\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    (text,) = (each for each in found if word in each)
    return text.replace("digits", name)


def test_the_program_on_the_board(model, built_for_pynq, tmp_path, monkeypatch, capsys):
    """docs/howto/pynq.md, from the folder that project.tcl makes; the golden model plays PYNQ and the hardware."""
    for name in (f"{NAME}_driver.py", "registers.json", "plan.json"):
        shutil.copy(built_for_pynq / name, tmp_path)
    frames = model.random_frames(5)
    expected = model.golden(frames)
    np.save(tmp_path / "images.npy", frames)
    np.save(tmp_path / "labels.npy", expected.argmax(axis=1))
    monkeypatch.setitem(sys.modules, "pynq", pynq_module(model, tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(block("howto/pynq.md", "digits_driver import connect"), "classify.py", "exec"), {})
    finally:
        sys.modules.pop(f"{NAME}_driver", None)
    said = capsys.readouterr().out
    assert said.startswith("100.00% of the ")
    assert "'S_AXIS_STARVED': 0" in said


class Played(dict[int, int]):
    """The engine's registers, and the golden model in its place: of a network, on a program's memory."""

    def __init__(self, document: dict[str, Any], network: Network):
        super().__init__({each["offset"]: each["reset"] for each in document["registers"]})
        self.offsets = {each["name"]: each["offset"] for each in document["registers"]}
        self.network, self.program = network, schedule(network, SMALL).program
        self.memories: dict[int, np.ndarray] = {}  # by address: the driver writes one while the engine reads another

    def allocate(self, shape: tuple[int], dtype: Any) -> np.ndarray:
        class Buffer(np.ndarray):
            physical_address = 0x1000_0000 * (len(self.memories) + 1)

        memory = np.zeros(shape, dtype).view(Buffer)
        self.memories[memory.physical_address] = memory
        return memory

    def write(self, offset: int, value: int) -> None:
        if (offset, value) != (self.offsets["CONTROL"], 1):
            self[offset] = value
            return
        (source, result), (output,) = (self.program.inputs[0], self.program.outputs[0]), self.network.output_maps
        memory = self.memories[self[self.offsets["PROGRAM_BASE"]]]
        packed = memory[source.address :][: source.size].tobytes()
        (values,) = golden.outputs(self.network, given_frame(packed, source)[None])
        content = np.frombuffer(pack_map(values[0], output.type), np.uint8)
        memory[result.address :][: len(content)] = content
        self[self.offsets["STATUS"]] = 8


def test_the_engine_on_the_board(tmp_path, monkeypatch):
    """docs/howto/pynq.md: the digits network, and a program of another one behind it."""
    digits = hwgen.load(EXAMPLES / "digits.onnx")
    document = registers_json(EngineShellConfig(engine=SMALL), "engine_axi")
    played = Played(document, digits.network)
    (tmp_path / "registers.json").write_text(json.dumps(document))
    (tmp_path / "engine_driver.py").write_bytes(python_driver("engine_driver.py"))
    for name in ("digits.program", "resnet8.program"):
        (tmp_path / name).write_bytes(bytes(played.program))
    images = np.load(EXAMPLES / "images.npy")[:3]
    np.save(tmp_path / "images.npy", images)
    pynq: Any = ModuleType("pynq")
    pynq.__spec__ = ModuleSpec("pynq", None)
    control = SimpleNamespace(read=played.get, write=played.write)
    pynq.Overlay = lambda name: SimpleNamespace(engine_axi_0=control) if name == str(tmp_path / "engine.bit") else None
    pynq.allocate = played.allocate
    monkeypatch.setitem(sys.modules, "pynq", pynq)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    try:
        exec(compile(block("howto/pynq.md", "engine_driver import connect", "digits"), "classify.py", "exec"), found)
    finally:
        sys.modules.pop("engine_driver", None)
    np.testing.assert_array_equal(found["logits"], digits.golden(images))


@needs_icarus
def test_the_module_in_a_design(built_for_pynq, tmp_path):
    """docs/howto/vivado.md: every port of the wrapper, with its width; Icarus says nothing of it."""
    text = block("howto/vivado.md", "module system")
    (tmp_path / "system.v").write_text(text)
    sources = [tmp_path / "system.v", built_for_pynq / f"{NAME}_axi.v", built_for_pynq / f"{NAME}.v"]
    command = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-t", "null", "-s", "system", *map(str, sources)]
    done = subprocess.run(command, cwd=built_for_pynq, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (ports,) = re.findall(rf"^module {NAME}_axi \((.*?)^\);", sources[1].read_text(), re.MULTILINE | re.DOTALL)
    known = re.findall(r"wire (?:\[\d+:0\] )?(\w+),?$", ports, re.MULTILINE)
    assert sorted(re.findall(r"\.(\w+)\(", text)) == sorted(known)


def test_pages_name_what_is_there(built_for_pynq):
    """Files and addresses that both pages speak of."""
    there = {path.name.replace(NAME, "digits") for path in built_for_pynq.iterdir()}
    made = {"digits.bit", "digits.xsa", "digits.xpr", "digits.onnx", "images.npy", "labels.npy"}
    made |= {"digits.program"}  # of the engine
    for page in ("howto/pynq.md", "howto/vivado.md"):
        text = (DOCS / page).read_text()
        named = set(re.findall(r"\b((?:digits\w*|plan|registers|project|package_ip|images|labels)\.(?!md\b)\w+)", text))
        assert named <= there | made, page
        script = (built_for_pynq / "project.tcl").read_text()
        assert all(each in script for each in re.findall(r"0x4\d[0-9A-F]{6}", text))
