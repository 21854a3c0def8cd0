"""What the Python driver of an engine refuses, and how it has maps in memory; test_engine_wrapper.py runs it."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_program import SMALL, alone, conv

from hwgen.emit import driver, engine_wrapper, wrapper
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.maps import FeatureMap, IntegerType
from hwgen.program.compile import schedule
from hwgen.program.layout import pack_map

DONE = 8


class Still:
    """Registers of an engine that does what a test says, or nothing."""

    def __init__(self, document: dict[str, Any], **values: int):
        self.offsets = {register["name"]: register["offset"] for register in document["registers"]}
        self.values = {register["offset"]: register["reset"] for register in document["registers"]}
        self.values |= {self.offsets[name]: value for name, value in values.items()}
        self.written: list[tuple[int, int]] = []

    def read(self, offset: int) -> int:
        return self.values[offset]

    def write(self, offset: int, value: int) -> None:
        self.written.append((offset, value))


def buffer(address: int) -> Any:
    """What allocates there."""

    def allocate(shape: tuple[int], dtype: Any) -> Any:
        class Buffer(np.ndarray):
            physical_address = address

        return np.zeros(shape, dtype).view(Buffer)

    return allocate


@pytest.fixture(scope="module")
def program() -> bytes:
    return bytes(schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program)


@pytest.fixture
def folder(tmp_path, program) -> Path:
    """Of an engine, as far as the driver reads it."""
    document = engine_wrapper.to_json(EngineShellConfig(engine=SMALL, build_hash=0xABCD << 40), "engine_axi")
    (tmp_path / "registers.json").write_text(json.dumps(document))
    (tmp_path / "conv.program").write_bytes(program)
    return tmp_path


def engine(folder: Path, address: int = 0x1000, timeout: float = 0.01, **values: int) -> driver.Engine:
    document = json.loads((folder / "registers.json").read_text())
    still = Still(document, **values)
    return driver.Engine(still, allocate=buffer(address), folder=folder, timeout=timeout)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"IDENTITY": 0x4857474E}, r"there is no engine of hwgen: IDENTITY is 0x4857474e, not 0x48574745"),
        ({"VERSION": 2 << 16}, r"the hardware's registers are of version 2, this driver is for 1"),
        ({"BUILD_HASH_LOW": 7}, r"the hardware is another design than engine_axi of this folder: its build hash is "
         r"0x00abcd0000000007, not 0x00abcd0000000000; load the bitstream that was made of this folder"),
        ({"STATUS": 1}, r"the engine can't be stopped, as memory does not answer: STATUS 1, ERROR 0, FRAMES 0, .*"),
    ],
)  # fmt: skip
def test_other_hardware(folder, other, message):
    with pytest.raises(driver.DriverError, match=f"^{message}$"):
        engine(folder, **other)


def test_other_folders(folder, tmp_path):
    with pytest.raises(driver.DriverError, match=r"is not the folder of an accelerator$"):
        driver.Accelerator(None, [], folder=folder)
    with pytest.raises(driver.DriverError, match=r"registers\.json can't be read: No such file or directory$"):
        driver.Engine(None, allocate=None, folder=tmp_path / "nowhere")


def resealed(program: bytes, place: int) -> bytes:
    """A bit is wrong, and the checksum of the file is right."""
    changed = bytearray(program)
    changed[place] ^= 1
    changed[12:16] = struct.pack("<I", zlib.crc32(changed[16:]))
    return bytes(changed)


def test_programs(folder, program):
    """Each is refused in one line, and the one before stays."""
    path, found = folder / "conv.program", engine(folder)
    found.load("conv.program")
    found.load(path)
    (jobs_at,) = [48 + size for size in struct.unpack_from("<Q", program, 32)]
    foreign = bytes(schedule(alone(conv(channels=9, size=(3, 3))), EngineConfig(maps=16, pixels=7)).program)
    for content, message in (
        (program[:-1], r"has [\d,]+ bytes where [\d,]+ should be; copy or compile it again"),
        (program[:20], "is not a program of hwgen"),
        (b"x" + program[1:], "is not a program of hwgen"),
        (program[:8] + b"\7" + program[9:], "has version 7 of the format, this driver reads 2"),
        (program[:-1] + bytes([program[-1] ^ 1]), "has been changed or damaged, its checksum differs; copy or"),
        (resealed(program, jobs_at + 150), "job 1 is damaged or of another engine; compile it again"),
        (foreign, r"is for engine \w{16}, this one is \w{16}; compile it for this one"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(driver.DriverError, match=rf"conv\.program:? {message}"):
            found.load("conv.program")
        assert found._memory is not None
    path.unlink()
    with pytest.raises(driver.DriverError, match=r"conv\.program can't be read: No such file.*; make it with hwgen"):
        found.load("conv.program")


@pytest.mark.parametrize("address", [0x1008, (1 << 32) - 4096])
def test_where_a_program_may_lie(folder, address):
    message = rf"^the buffer .* must lie on a multiple of 4096 below 4 GiB, not at {address:#x}; allocate it with pynq"
    with pytest.raises(driver.DriverError, match=message):
        engine(folder, address).load("conv.program")


def test_frames_that_do_not_fit(folder):
    found = engine(folder)
    right = np.zeros((2, 9, 3, 3), np.uint8)
    with pytest.raises(driver.DriverError, match=r"^there is no program: load\(\) one"):
        found.run(right)
    found.load("conv.program")
    for wrong in (right[0], right[:0], right[:, :8], right.astype(str)):
        with pytest.raises(driver.DriverError, match=r"^input must be numbers of shape \(n, 9, 3, 3\), not "):
            found.run(wrong)
    with pytest.raises(driver.DriverError, match=r"^input must lie in 0 \.\. 255$"):
        found.run(right.astype(np.int32) - 1)
    with pytest.raises(driver.DriverError, match=r"^input must be integers: the model gives no scale for floats$"):
        found.run(right.astype(np.float32))
    with pytest.raises(driver.DriverError, match=r"^no interrupt was given to wait for: Engine\(.., interrupt="):
        asyncio.run(found.run_async(right))


def test_a_frame_that_takes_too_long(folder):
    """The engine is stopped then; also where an interrupt never comes."""
    right = np.zeros((2, 9, 3, 3), np.uint8)
    never = SimpleNamespace(wait=lambda: asyncio.sleep(100))
    found = engine(folder)
    found.load("conv.program")
    found._interrupt = never
    still: Any = found._registers
    for run in (found.run, lambda x: asyncio.run(found.run_async(x))):
        still.written.clear()
        with pytest.raises(driver.DriverError, match=r"^a frame took more than 0\.01 s: STATUS 0, ERROR 0, FRAMES 0, "):
            run(right)
        assert still.written[-2:] == [(still.offsets["CONTROL"], 1), (still.offsets["CONTROL"], 2)]


def test_an_error_has_its_meaning(folder):
    found = engine(folder, STATUS=DONE, ERROR=9)
    found.load("conv.program")
    with pytest.raises(driver.DriverError, match=r"^frame 0 was ended by error 9: a job is one of another engine$"):
        found.run(np.zeros((2, 9, 3, 3), np.uint8))


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 5)),
    bits=st.integers(2, 8),
    signed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_memory_is_the_compilers(shape, bits, signed, seed):
    """A map lies as the compiler has it, and comes back."""
    kind = IntegerType(bits=bits, signed=signed)
    channels, height, width = shape
    source = FeatureMap(channels=channels, height=height, width=width, type=kind)
    told = {"name": "x", "address": 8, "map": {**vars(source), "type": vars(kind)}}
    region = driver.Region(told)
    assert (region.shape, region.range) == (shape, (kind.minimum, kind.maximum))
    frame = np.random.default_rng(seed).integers(kind.minimum, kind.maximum + 1, shape).astype(kind.dtype)
    packed = region.pack(frame)
    assert packed.tobytes() == pack_map(frame, kind)
    assert packed.nbytes == region.size
    np.testing.assert_array_equal(region.unpack(packed), frame)
    assert region.unpack(packed).dtype == kind.dtype


def test_the_folder_has_the_driver():
    files = engine_wrapper.files(EngineShellConfig(engine=SMALL), "engine")
    assert files["engine_driver.py"] == Path(driver.__file__).read_bytes()
    assert json.loads(files[wrapper.REGISTERS])["module"] == "engine_axi"
