"""Drivers of a design: the C driver on simulated hardware, and the Python driver under faults of the hardware."""

from __future__ import annotations

import itertools
import json
import re
import time
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import c_driver
import cocotb_bench
import numpy as np
import onnx
import pytest
from c_driver import DMA, REGISTERS, Channel, Dma, Driver, compiled, described, gcc, needs_gcc
from cocotb_bench import needs_cocotb
from counted import cases_in_the_long_run
from driver_runs import DIGITS, Bench, Clock, packed, ports, shell_of, still_dma, unpacked
from hypothesis import example, given
from hypothesis import strategies as st
from onnx_models import pictures, siamese
from program_mutations import change_fields
from pynq_model import PynqDma
from register_maps import shell as registers
from sanitized import accelerator_runs, needs_sanitizers

import hwgen
from hwgen.emit import driver, drivers, linux, wrapper
from hwgen.emit import driver as python_driver
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Order, Port
from hwgen.network.quantise import quantise


def drive(design: hwgen.Design, folder: Path, maps: list[np.ndarray], cut: bool = True) -> list[np.ndarray]:
    """The maps of all outputs, of frames that the C driver moves through the emitted wrapper."""
    built = design.build(folder / "built")
    sources = [path for path in built.iterdir() if path.suffix in (".v", ".mem") and not path.name.endswith("_tb.v")]
    x = [folder / f"x{number}.npy" for number in range(len(maps))]
    for path, each in zip(x, maps, strict=True):
        np.save(path, each)
    registers = described(built)
    cocotb_bench.run(
        {path.name: path.read_bytes() for path in sources}, registers["module"], "cocotb_c_driver", folder,
        library=str(compiled(built, folder)), registers=registers, x=[*map(str, x)], y=str(folder / "y.npz"), cut=cut,
    )  # fmt: skip
    with np.load(folder / "y.npz") as found:
        return [found[name] for name in found.files]


@needs_gcc
@needs_cocotb
def test_small(tmp_path):
    model = hwgen.load("decoilfnet-example")
    frames = model.random_frames(3)
    assert isinstance(frames, np.ndarray)
    (found,) = drive(model.plan("pynq-z2", dsp=20, multipliers="dsp"), tmp_path, [frames])
    np.testing.assert_array_equal(found, model.golden(frames, integers=True))


@pytest.mark.long
@needs_gcc
@needs_cocotb
def test_digits(tmp_path):
    """Held-out digits are told apart as by ``hwgen simulate``."""
    model = hwgen.load(DIGITS / "digits.onnx")
    images, labels = np.load(DIGITS / "images.npy")[:20], np.load(DIGITS / "labels.npy")[:20]
    frames = model.prepare(images)
    assert isinstance(frames, np.ndarray)
    design = model.plan("pynq-z2", multipliers="dsp")
    (found,) = drive(design, tmp_path, [frames])
    classes = found.reshape(len(images), -1).argmax(1)
    np.testing.assert_array_equal(found.reshape(len(images), -1), model.golden(images, integers=True))
    assert (classes == labels).mean() > 0.9
    simulated = design.simulate(images)
    assert isinstance(simulated.outputs, np.ndarray)
    np.testing.assert_array_equal(classes, simulated.outputs.argmax(1))


@pytest.mark.long
@needs_gcc
@needs_cocotb
def test_several_inputs(tmp_path):
    onnx.save(quantise(siamese(), pictures(8), "siamese"), tmp_path / "siamese.onnx")
    model = hwgen.load(tmp_path / "siamese.onnx")
    frames = pictures(4, 1)
    prepared = model.prepare(frames)
    assert isinstance(prepared, dict)
    (found,) = drive(model.plan("zedboard", dsp=30, multipliers="dsp"), tmp_path, list(prepared.values()))
    np.testing.assert_array_equal(found.reshape(4, -1), np.reshape(model.golden(frames, integers=True), (4, -1)))


# Without hardware


_UNEVEN = BeatFormat(channels=2, height=2, width=4, lanes=2, bits=8, signed=False, pixels=2)
_INSIDE = Order(rows=((0, 2),), columns=((1, 4),), grids=(0,))


@needs_gcc
@cases_in_the_long_run(6)
@example(streams=[Port("i", _UNEVEN, _INSIDE)], seed=1)  # the first beat begins before its rectangle
@given(streams=st.lists(ports(), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_memory_as_the_python_driver_has_it(tmp_path_factory, streams, seed):
    """Any beats, in row-major order or in rectangles that overlap or leave gaps; each stream in and out."""
    folder = tmp_path_factory.mktemp("c")
    inputs, outputs = ends_of(streams, "s_axis", [16] * len(streams)), ends_of(streams, "m_axis", [16] * len(streams))
    shell = ShellConfig(inputs=inputs, outputs=outputs, build_hash=1)
    document = json.loads(json.dumps(wrapper.to_json(shell, "net_axi")))
    files = drivers.c_driver(shell, "net") | {"net_registers.h": wrapper.c_header(shell, "net").encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    driver = Driver(compiled(folder, folder), document, lambda address: 0, lambda address, value: None)
    random = np.random.default_rng(seed)
    for number, told in enumerate([*document["inputs"], *document["outputs"]]):
        other, kind = python_driver.Stream(told), np.iinfo(driver.maps[number].dtype)
        frame = random.integers(kind.min, kind.max, other.shape, kind.dtype, endpoint=True)
        driver.frame(number)[:] = 0xFF
        driver.pack(number, frame)
        expected = packed(other, frame)
        np.testing.assert_array_equal(driver.frame(number), expected.view(np.uint8))
        np.testing.assert_array_equal(driver.unpack(number), unpacked(other, expected))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return (
        hwgen.load("decoilfnet-example")
        .plan("zedboard", dsp=20, multipliers="dsp")
        .build(tmp_path_factory.mktemp("built") / "out")
    )


@needs_gcc
def test_it_compiles_as_it_is(built, tmp_path):
    """Without a platform of one's own, and its header from C++."""
    (source,) = built.glob("*_driver.c")
    (header,) = built.glob("*_driver.h")
    for level in ("-O0", "-O2"):
        gcc(level, "-c", source, "-o", tmp_path / "driver.o")
    text = source.read_text() + header.read_text()
    assert "accelerator_" not in text.lower()
    assert "@" not in text


@needs_gcc
@pytest.mark.parametrize("top", ["dma", "control", "status", "MY_ACCELERATOR", "fast_accelerator"])
def test_any_name(tmp_path, top):
    """Also one that the driver has in its own names, or that is replaced by the design's."""
    told = registers(1, 1)
    for name, content in (
        drivers.c_driver(told, top) | {f"{top}_registers.h": wrapper.c_header(told, top).encode()}
    ).items():
        (tmp_path / name).write_bytes(content)
    gcc("-c", tmp_path / f"{top}_driver.c", "-o", tmp_path / "driver.o")
    header = (tmp_path / f"{top}_driver.h").read_text()
    assert f"Driver in C99 of {top}_axi with" in header
    assert f"{top}_status {top}_open(" in header


@needs_gcc
@pytest.mark.parametrize(
    "call",
    [
        "NAME_open",
        *(pytest.param(call, marks=pytest.mark.long) for call in ("NAME_set_frames", "NAME_handle_interrupt")),
    ],
)
def test_the_documented_programs_compile(built, tmp_path, call):
    """Of docs/howto/bare-metal.md: statements in a function of their own, and functions as they are."""
    (header,) = built.glob("*_driver.h")
    name = header.name.removesuffix("_driver.h")
    text = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "bare-metal.md").read_text()
    program = next(each for each in re.findall(r"```c\n(.*?)```", text, re.DOTALL) if call in each)
    if call == "NAME_open":
        include, body = program.split("\n", 1)
        buffers = "static unsigned char map[1], input[1], output[1], result[1];"
        program = f"{include}\nint main(void)\n{{\n{buffers}\n{body}\nreturn (int)status;\n}}\n"
    if call == "NAME_set_frames":
        program = f'#include "NAME_driver.h"\nenum {{ MAP_BYTES = 1, RESULT_BYTES = 1 }};\n{program}'
    constants = r"NAME(?=_(DMAS|INPUTS|OK|INTERRUPT_ENABLE_FRAME|[SM]_AXIS_STRIDE_BYTES)\b)"
    (tmp_path / "main.c").write_text(re.sub(constants, name.upper(), program).replace("NAME", name))
    gcc("-c", f"-I{built}", tmp_path / "main.c", "-o", tmp_path / "main.o")


class Still:
    """Registers that answer, and DMAs that move what is said: bytes of each input and output, or nothing."""

    def __init__(self, built: Path, folder: Path, moved: dict[int, int | None] | None = None, **other: int):
        told = described(built)
        self.values = {each["offset"]: each["reset"] for each in told["registers"]}
        self.offsets = {each["name"]: each["offset"] for each in told["registers"]}
        self.values |= {self.offsets[name]: value for name, value in other.items()}
        self.kept = set(other)
        self.written: list[tuple[int, int]] = []
        sizes = {0: told["inputs"][0]["frame_bytes"], 1: told["outputs"][0]["frame_bytes"]} | (moved or {})
        self.channels = [Channel(self._mover(number, sizes[number])) for number in (0, 1)]
        self.dma = Dma(*self.channels)
        self.driver = Driver(compiled(built, folder), told, self.read, self.write)

    def _mover(self, number: int, size: int | None):
        return lambda address, length: None if size is None else self.channels[number].done(size)

    def read(self, address: int) -> int:
        return self.dma.read(address - DMA) if address < REGISTERS else self.values[address - REGISTERS]

    def write(self, address: int, value: int) -> None:
        self.written.append((address, value))
        if address < REGISTERS:
            self.dma.write(address - DMA, value)


@needs_gcc
@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({}, "OK"),
        ({"IDENTITY": 0x48574745}, "NOT_THERE"),
        ({"VERSION": 2 << 16}, "OTHER_VERSION"),
        ({"VERSION": 1 << 16 | 7}, "OK"),
        ({"BUILD_HASH_LOW": 7}, "OTHER_DESIGN"),
        ({"BUILD_HASH_HIGH": 7}, "OTHER_DESIGN"),
    ],
)
def test_other_hardware(built, tmp_path, other, status):
    """It is not touched."""
    hardware = Still(built, tmp_path, **other)
    assert hardware.driver.open() == status
    assert bool(hardware.written) == (status == "OK")


@needs_gcc
@pytest.mark.parametrize(
    ("moved", "other", "status"),
    [
        ({}, {}, "OK"),
        ({0: None}, {}, "TIMEOUT"),
        ({1: None}, {}, "TIMEOUT"),
        ({1: 5}, {}, "WRONG_LENGTH"),
        ({}, {"ERRORS": 1}, "WRONG_FRAME"),
    ],
)
def test_frames_that_do_not_end_well(built, tmp_path, moved, other, status):
    """What was on its way is dropped, and the next frame can be run."""
    hardware = Still(built, tmp_path, moved, **other)
    assert hardware.driver.open() == "OK"
    hardware.written.clear()
    for _ in range(2):
        assert hardware.driver.run() == status
    resets = hardware.written.count((REGISTERS + hardware.offsets["RESET"], 1))
    assert resets == (0 if status in ("OK", "WRONG_FRAME") else 2)


@needs_gcc
@pytest.mark.parametrize("error", [1, 2, 4])
def test_errors_of_a_dma(built, tmp_path, error):
    """An internal one, and memory's SLVERR and DECERR (PG021, MM2S_DMASR)."""
    hardware = Still(built, tmp_path)
    assert hardware.driver.open() == "OK"
    hardware.channels[1]._move = lambda address, length: setattr(hardware.channels[1], "errors", error)
    assert hardware.driver.run() == "DMA_ERROR"
    hardware.channels[1]._move = lambda address, length: hardware.channels[1].done(length)
    assert hardware.driver.run() == "OK"


@needs_sanitizers
@pytest.mark.parametrize(
    ("inputs", "outputs", "weights", "count"),
    [
        (2, 1, True, 60),
        *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 1, False, 400), (3, 2, True, 800)]),
    ],
)
def test_faults_under_sanitizers(tmp_path, inputs, outputs, weights, count):
    """On a model of the hardware: no frame is stale behind any fault, and no access is out of bounds."""
    told = shell_of(inputs, outputs, weights=weights)
    files = drivers.c_driver(told, "net") | {"net_registers.h": wrapper.c_header(told, "net").encode()}
    files[wrapper.REGISTERS] = json.dumps(wrapper.to_json(told, "net_axi")).encode()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    counts = accelerator_runs(tmp_path, tmp_path, seed=count, runs=count)
    assert counts["packets"] == count + 30
    assert len(counts) == 18  # each fault was there


@needs_gcc
def test_buffers(built, tmp_path):
    """They begin at multiples of the stream's bytes; a DMA that does not come back from a reset is named."""
    hardware = Still(built, tmp_path)
    assert hardware.driver.open() == "OK"
    hardware.written.clear()
    assert hardware.driver.run(offset=2) == "UNALIGNED"
    assert not hardware.written
    stuck: Any = lambda offset: 4 if offset == 0 else 0  # noqa: E731
    hardware.channels[0].read = stuck
    assert hardware.driver.reset() == "DMA_ERROR"
    assert [name.split("_", 2)[2] for name in _status_names(built)] == c_driver.NAMES  # of the header, in order


def _status_names(built: Path) -> list[str]:
    (header,) = built.glob("*_driver.h")
    body = header.read_text().split("typedef enum {")[1].split("}")[0]
    return [line.split()[0].rstrip(",") for line in body.strip().splitlines()]


@pytest.fixture(params=[PynqDma, pytest.param(linux.Dma, marks=pytest.mark.long)], ids=["pynq", "linux"])
def bench(request, tmp_path, monkeypatch):
    """A function that makes a `Bench`, with either access to DMAs; time passes with its accesses."""

    def make(seed: int = 0, inputs: int = 1, outputs: int = 1, *, weights: bool = False) -> Bench:
        folder = tmp_path / f"{seed}_{inputs}_{outputs}_{weights}"
        folder.mkdir()
        made = Bench(folder, seed, inputs, outputs, weights=weights, dma=request.param)
        monkeypatch.setattr(driver, "time", Clock(made.hardware))
        return made

    return make


def test_a_nan_in_a_later_frame(bench):
    """No frame moves before all are checked; the next run has its own results."""
    made, rng = bench(), np.random.default_rng(1)
    accelerator = made.open()
    x = rng.random((8, *made.shapes["input"][0])).astype(np.float32)
    x[5, 0, 0, 0] = np.nan
    before = made.hardware.accesses
    with pytest.raises(driver.DriverError, match=r"^input0 must be finite numbers: frame 5 has others$"):
        accelerator.run(x)
    big = np.zeros((8, *made.shapes["input"][0]), np.int32)
    big[6] = 256
    with pytest.raises(driver.DriverError, match=r"^input0 must lie in 0 \.\. 255: frame 6 does not$"):
        accelerator.run(big)
    assert made.hardware.accesses == before
    made.check(accelerator, made.frames(rng, 3))


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (1, 2)])
def test_an_interrupt_at_any_access(bench, inputs, outputs):
    """Ctrl-C at each access of a run in turn, before it acts or behind it: the same driver's next run is right."""
    made, rng = bench(2, inputs, outputs), np.random.default_rng(2)
    accelerator, interrupted = made.open(), 0
    for access in itertools.count(1):
        made.hardware.interrupts = {made.hardware.accesses + access: ("before", "behind")[access % 2]}
        try:
            made.check(accelerator, made.frames(rng, 5))  # in packets of 3 and 2
        except KeyboardInterrupt:
            interrupted += 1
            made.check(accelerator, made.frames(rng, 2))
        else:
            break
    assert interrupted == access - 1 > 50
    assert not made.memory.stray


def test_a_restart_at_any_access(bench):
    """As when a notebook's kernel is restarted: nobody cleans up, and a new driver begins on what is left."""
    made, rng, interrupted = bench(3), np.random.default_rng(3), 0
    for access in itertools.count(1, 3):
        accelerator, begun = made.open(), made.hardware.accesses
        made.hardware.interrupts = {begun + access + later: "before" for later in range(20_000)}
        try:
            made.check(accelerator, made.frames(rng, 5))
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            made.hardware.interrupts = {}
        accelerator, made.memory.stray = made.open(), 0  # the old program's buffers were written until then
        made.check(accelerator, made.frames(rng, 2))
        assert not made.memory.stray
    assert interrupted > 20


@pytest.mark.parametrize("side", ["whole", "send", "receive"])
def test_a_time_out(bench, side):
    """The driver can be used when the hardware moves again, also when the time-out came in the middle of a frame."""
    made, rng = bench(4), np.random.default_rng(4)
    accelerator = made.open()
    for _ in range(10):
        made.check(accelerator, made.frames(rng, 2))
        made.hardware.is_stuck = side == "whole"
        made.hardware._values["CONTROL"] = int(side != "send")
        made.hardware.missing = made.sizes[0] if side == "receive" else 0  # then no frame ends
        with pytest.raises(driver.DriverError, match=r"^nothing moved for 0\.5 s: STATUS \d+, FRAMES "):
            accelerator.run(*made.frames(rng, 3))
        made.hardware.is_stuck, made.hardware._values["CONTROL"], made.hardware.missing = False, 1, 0
    made.check(accelerator, made.frames(rng, 5))
    assert not made.memory.stray


def test_a_dma_that_stays_in_its_reset(bench):
    """It is said, and the driver can be used when it ends."""
    made, rng = bench(5), np.random.default_rng(5)
    accelerator = made.open()
    made.hardware.dmas[0].is_stuck = made.hardware.is_stuck = True
    for _ in range(2):
        with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis does not end its reset: load the overlay"):
            accelerator.run(*made.frames(rng, 3))
    made.hardware.dmas[0].is_stuck = made.hardware.is_stuck = False
    made.check(accelerator, made.frames(rng, 3))


@pytest.mark.parametrize(
    ("error", "message"),
    [(1, "a frame longer than its buffer came, or the DMA failed inside"),
     (2, "memory answered with an error"), (4, "there is no memory at the buffer's address")],
)  # fmt: skip
@pytest.mark.parametrize("side", ["sends", "receives"])
def test_a_dma_that_fails(bench, side, error, message):
    """By its meaning and at once, not by a time-out."""
    made, rng = bench(6), np.random.default_rng(6)
    accelerator = made.open()
    (channel,) = getattr(made.hardware, side)
    step = channel.step if side == "receives" else channel.offered

    def fail() -> Any:
        if channel.busy and channel.done:
            channel.fail(error)
        return step()

    setattr(channel, "step" if side == "receives" else "offered", fail)
    with pytest.raises(driver.DriverError, match=rf"^the DMA of \w_axis failed: {message}$"):
        accelerator.run(*made.frames(rng, 3))
    setattr(channel, "step" if side == "receives" else "offered", step)
    made.check(accelerator, made.frames(rng, 3))


def test_frames_of_other_sizes(bench):
    """Short ones that go in, or come out: no output is returned that is partly another frame's."""
    made, rng = bench(7), np.random.default_rng(7)
    accelerator = made.open()
    made.check(accelerator, made.frames(rng, 3))
    made.hardware.missing = 3
    with pytest.raises(driver.DriverError, match=r"^a packet of 3 frames on m_axis must have 34 bytes, but 23 came$"):
        accelerator.run(*made.frames(rng, 3))
    with pytest.raises(driver.DriverError, match=r"^a frame on m_axis must have 10 bytes, but 7 came$"):
        accelerator.run(*made.frames(rng, 1))
    made.hardware.missing = 0
    made.hardware.sends[0].cut = 2
    with pytest.raises(driver.DriverError, match=r"^a frame on s_axis ended too early, and was completed with zeros$"):
        accelerator.run(*made.frames(rng, 3))
    made.hardware.sends[0].cut = 0
    made.check(accelerator, made.frames(rng, 3))


def test_packets(bench):
    """Packets are as large as the DMAs can move, or smaller and equal, or a rest follows; then frames are single."""
    made, rng = bench(10), np.random.default_rng(10)
    sizes: list[int] = []
    write = made.hardware._write

    def note(name: str, value: int) -> None:
        if name == "PACKET_FRAMES":
            sizes.append(value)
        write(name, value)

    made.hardware._write = note
    for limit, count, expected in [(64, 8, [2, 1]), (64, 5, [3, 2, 1]), (64, 6, [3, 1]), (64, 2, [2, 1]),
                                   (19, 3, [1, 1]), (1 << 26, 50, [50, 1])]:  # fmt: skip
        accelerator = made.open(limit=limit)
        sizes.clear()
        made.check(accelerator, made.frames(rng, count))
        assert sizes == expected
        assert not made.memory.stray


def test_a_register_map_without_packets(bench):
    """A design that an earlier version built: frames move one by one."""
    made, rng = bench(11), np.random.default_rng(11)
    path = made.folder / "registers.json"
    described = json.loads(path.read_text())
    described["registers"] = [each for each in described["registers"] if each["name"] != "PACKET_FRAMES"]
    path.write_text(json.dumps(described))
    made.check(made.open(), made.frames(rng, 5))


def test_another_program_left_a_frame(bench):
    """Also one that came while this driver was open."""
    made, rng = bench(8), np.random.default_rng(8)
    accelerator = made.open()
    for accesses in (0, 1, 5, 50):  # behind many the frame has left the accelerator, and waits in the DMA
        made.hardware._put(0, rng.bytes(18), is_last=True)
        for _ in range(accesses):
            accelerator.read("STATUS")
        made.check(accelerator, made.frames(rng, 3))
    made.hardware._values["CONTROL"] = 0
    made.check(made.open(), made.frames(rng, 3))


def test_what_dmas_refuse(bench):
    """Their errors are of other classes, and there may be no channel in one direction."""
    made, rng = bench(9), np.random.default_rng(9)
    accelerator = made.open()
    (channel,) = accelerator._sends
    channel._dma.buffer_max_size = 15
    with pytest.raises(driver.DriverError, match=r"^the DMA of s_axis refused: .* 18 bytes"):
        accelerator.run(*made.frames(rng, 3))
    channel._dma.buffer_max_size = 64
    made.check(accelerator, made.frames(rng, 3))
    made.hardware.dmas[0].receive = None
    with pytest.raises(driver.DriverError, match=r"^the DMA for m_axis has no channel that receives: "):
        made.open()


def test_a_load_of_weights_that_is_interrupted(bench):
    """At any access: then frames are computed with weights whose scales the driver knows, or not at all."""
    made, rng = bench(10, weights=True), np.random.default_rng(10)
    accelerator, said = made.open(), Counter[str]()
    for access in itertools.count(1):
        weights, scale = rng.integers(0, 1 << 32, 2).tolist(), float(rng.integers(1, 100))
        path = made.weights_file(weights, scale)
        made.hardware.interrupts = {made.hardware.accesses + access: ("before", "behind")[access % 2]}
        try:
            accelerator.load_weights(path)
        except KeyboardInterrupt:
            made.hardware.interrupts = {}
            try:
                made.check(accelerator, made.frames(rng, 2), integers=False)
                said["as before"] += 1
            except driver.DriverError as error:
                said[str(error).split(":")[0]] += 1
                accelerator.load_weights(path)
                made.weights, made.scale = weights, scale
                made.check(accelerator, made.frames(rng, 2), integers=False)
        else:
            break
    made.hardware.interrupts = {}
    made.weights, made.scale = weights, scale
    made.check(accelerator, made.frames(rng, 2), integers=False)
    assert set(said) == {
        "as before", "the hardware has no weights, or incomplete ones", "loading of the weights was interrupted",
    }  # fmt: skip


FAULTS = ["none"] * 6 + [
    "nan", "interrupt", "two interrupts", "restart", "time-out", "disabled", "short", "missing", "left", "weights",
]  # fmt: skip


def test_damaged_files(bench, monkeypatch):
    """Any field of a folder's files, and of a file of weights, that is changed: nothing but a `DriverError`."""
    made, rng, said = bench(11, weights=True), np.random.default_rng(11), Counter[str]()
    monkeypatch.setattr(driver, "time", time)
    names = ("registers.json", "plan.json", "weights.json", "new.weights")
    made.weights_file([1, 2], 0.5)
    right = {name: (made.folder / name).read_bytes() for name in names}
    values = {each["offset"]: each["reset"] for each in made.document["registers"]}
    still = SimpleNamespace(read=lambda offset: values.get(offset, 0), write=lambda offset, value: None)
    for number in range(160):
        name = names[number % 4]
        head = right[name][:16] if name == "new.weights" else b""
        size = int.from_bytes(head[8:12], "little") if head else len(right[name])
        document = json.loads(right[name][len(head) :][:size])
        change_fields(document, rng)
        text = json.dumps(document).encode()
        sums = len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
        (made.folder / name).write_bytes((head and head[:8] + sums) + text + right[name][len(head) + size :])
        try:
            accelerator = driver.Accelerator(still, still_dma(), folder=made.folder, timeout=0.0)
            accelerator.load_weights(made.folder / "new.weights")
            said["taken"] += 1
        except driver.DriverError as error:
            said["one line" if "\n" not in str(error) else "several lines"] += 1
        (made.folder / name).write_bytes(right[name])
    assert said["one line"] > 60
    assert not said["several lines"]


def random_runs(bench, seed: int, runs: int) -> Counter[str]:
    """Any runs and faults one after the other; returns how many there were, and how many frames were compared."""
    rng, counts = np.random.default_rng(seed), Counter[str]()
    inputs, outputs = (int(each) for each in rng.integers(1, 4, 2))
    made = bench(seed, inputs, outputs, weights=bool(rng.integers(2)))
    accelerator, hardware = made.open(), made.hardware

    def refused(frames: list[np.ndarray]) -> None:
        with pytest.raises(driver.DriverError):
            accelerator.run(*frames)

    for _ in range(runs):
        count = int(rng.integers(1, 9))
        frames, fault = made.frames(rng, count), FAULTS[int(rng.integers(len(FAULTS)))]
        counts[fault] += 1
        if fault == "none":
            made.check(accelerator, frames, integers=bool(rng.integers(2)))
            counts["frames"] += count
        elif fault == "nan":
            x = [each.astype(np.float32) for each in frames]
            x[int(rng.integers(inputs))][int(rng.integers(count))].flat[0] = [np.nan, np.inf][int(rng.integers(2))]
            refused(x)
        elif fault in ("interrupt", "two interrupts"):
            first = int(rng.integers(1, 60 * count))
            last = first + (int(rng.integers(1, 15)) if fault == "two interrupts" else 0)
            when = ("before", "behind")[int(rng.integers(2))]
            hardware.interrupts = {hardware.accesses + first: when, hardware.accesses + last: when}
            try:
                made.check(accelerator, frames)
                counts["frames"] += count
            except KeyboardInterrupt:
                counts["interrupted"] += 1
            hardware.interrupts = {}
        elif fault == "restart":
            hardware.interrupts = {hardware.accesses + int(rng.integers(1, 40 * count)) + n: "before" for n in range(9)}
            try:
                made.check(accelerator, frames)
            except KeyboardInterrupt:
                counts["interrupted"] += 1
            hardware.interrupts = {}
            accelerator = made.open()
            made.memory.stray = 0
        elif fault == "time-out":
            hardware.is_stuck = True
            refused(frames)
            hardware.is_stuck = False
        elif fault == "disabled":
            hardware._values["CONTROL"] = 0
            refused(frames)
            hardware._values["CONTROL"] = 1
        elif fault == "short":
            hardware.sends[int(rng.integers(inputs))].cut = int(rng.integers(1, 12))
            refused(frames)
            for send in hardware.sends:
                send.cut = 0
        elif fault == "missing":
            hardware.missing = int(rng.integers(1, min(made.sizes)))
            refused(frames)
            hardware.missing = 0
        elif fault == "left":
            index = int(rng.integers(inputs))
            hardware._put(index, rng.bytes(int(rng.integers(1, 30))), is_last=bool(rng.integers(2)))
        elif made.shell.weights:
            weights, scale = rng.integers(0, 1 << 32, 2).tolist(), float(rng.integers(1, 100))
            accelerator.load_weights(made.weights_file(weights, scale))
            made.weights, made.scale = weights, scale
        assert not made.memory.stray
    return counts


@pytest.mark.parametrize("seed", range(6))
def test_random_faults(bench, seed):
    counts = random_runs(bench, seed, 60)
    assert counts["frames"] > 40
    assert counts["interrupted"] > 3


@pytest.mark.long
def test_many_random_faults(bench):
    """Thousands of frames."""
    counts = sum((random_runs(bench, seed, 100) for seed in range(100, 140)), Counter[str]())
    assert counts["frames"] > 5000
    assert all(counts[fault] > 20 for fault in FAULTS)
