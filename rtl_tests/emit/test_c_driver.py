"""The C driver of a design: on simulated hardware, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import c_driver
import cocotb_bench
import numpy as np
import onnx
import pytest
from c_driver import DMA, REGISTERS, Channel, Dma, Driver, compiled, described, gcc, needs_gcc
from cocotb_bench import needs_cocotb
from counted import cases_in_the_long_run
from driver_runs import DIGITS, packed, ports, shell_of, unpacked
from hypothesis import example, given
from hypothesis import strategies as st
from register_maps import shell as registers
from sanitized import accelerator_runs, needs_sanitizers
from several_inputs import pictures, siamese

import hwgen
from hwgen.emit import driver as python_driver
from hwgen.emit import drivers, wrapper
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
