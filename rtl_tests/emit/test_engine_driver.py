"""What the Python driver of an engine refuses, and how it has maps in memory; test_wrapper.py runs it."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import struct
import zlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from driver_runs import shell_of
from engine_verdict import DONE, Running, Still, buffer, verdict
from hypothesis import given
from hypothesis import strategies as st
from program_mutations import changed, endless, escapes, parts, sealed, spoilt, with_job
from programs import SMALL, alone, conv

from hwgen.emit import driver, engine_driver, wrapper
from hwgen.emit.bus_package import AcceleratorPackage
from hwgen.emit.engine import EnginePackage, registers_json
from hwgen.emit.engine_driver import DriverError
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.maps import FeatureMap, IntegerType
from hwgen.program.compile import schedule
from hwgen.program.layout import pack_map
from hwgen.program.unfold import Unfold


@pytest.fixture(scope="module")
def program() -> bytes:
    return bytes(schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program)


@pytest.fixture
def folder(tmp_path, program) -> Path:
    """Of an engine, as far as the driver reads it."""
    document = registers_json(EngineShellConfig(engine=SMALL, build_hash=0xABCD << 40), "engine_axi")
    (tmp_path / "registers.json").write_text(json.dumps(document))
    (tmp_path / "conv.program").write_bytes(program)
    return tmp_path


def engine(folder: Path, address: int = 0x1000, timeout: float = 0.01, **values: int) -> engine_driver.Engine:
    document = json.loads((folder / "registers.json").read_text())
    still = Still(document, **values)
    return engine_driver.Engine(still, allocate=buffer(address), folder=folder, timeout=timeout)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"IDENTITY": 0x4857474E}, r"there is no engine of hwgen: IDENTITY is 0x4857474e, not 0x48574745"),
        ({"VERSION": 2 << 16}, r"the hardware's registers are of version 2, this driver is for 1"),
        ({"BUILD_HASH_LOW": 7}, r"the hardware is another design than engine_axi of this folder: its build hash is "
         r"0x00abcd0000000007, not 0x00abcd0000000000; load the bitstream that was built from this folder"),
        ({"STATUS": 1}, r"the engine can't be stopped, as memory does not answer: STATUS 1, ERROR 0, FRAMES 0, .*"),
    ],
)  # fmt: skip
def test_other_hardware(folder, other, message):
    with pytest.raises(DriverError, match=f"^{message}$"):
        engine(folder, **other)


def test_other_folders(folder, tmp_path):
    with pytest.raises(DriverError, match=r"is not the folder of an accelerator$"):
        driver.Accelerator(None, [], folder=folder)
    with pytest.raises(DriverError, match=r"registers\.json can't be read: No such file or directory$"):
        engine_driver.Engine(None, allocate=None, folder=tmp_path / "nowhere")


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
        (program[:-1], r"must have [\d,]+ bytes, not [\d,]+; copy or compile it again"),
        (program[:20], "is not a program of hwgen"),
        (b"x" + program[1:], "is not a program of hwgen"),
        (program[:8] + b"\7" + program[9:], "has version 7 of the format, this driver reads 2, 3, 4, 5"),
        (program[:-1] + bytes([program[-1] ^ 1]), "has been changed or damaged, its checksum differs; copy or"),
        (resealed(program, jobs_at + 150), "job 1 is damaged or of another engine; compile it again"),
        (foreign, r"is for engine \w{16}, this one is \w{16}; compile it for this one"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(DriverError, match=rf"conv\.program:? {message}"):
            found.load("conv.program")
        assert found._memories
    path.unlink()
    with pytest.raises(DriverError, match=r"conv\.program can't be read: No such file.*; make it with hwgen"):
        found.load("conv.program")


@pytest.mark.parametrize("address", [0x1008, (1 << 32) - 4096])
def test_where_a_program_may_lie(folder, address):
    message = rf"^the buffer .* must lie on a multiple of 4096 below 4 GiB, not at {address:#x}; allocate it with pynq"
    with pytest.raises(DriverError, match=message):
        engine(folder, address).load("conv.program")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("size"), r"there is no size, which must be an integer from [\d,]+ to 4,294,967,296"),
        (lambda told: told.update(size=64), r"size must be an integer from [\d,]+ to 4,294,967,296, not 64"),
        (lambda told: told.update(size="8"), r'size must be an integer .*, not "8"'),
        (lambda told: told.update(batch=0), r"batch must be an integer from 1 to 268,435,456, not 0"),
        (lambda told: told.update(batch=1 << 20), r"inputs.*: address must be such that 1,048,576 frames end"),
        (lambda told: told.update(outputs=[]), r"outputs must be a list of one object or more, not \[\]"),
        (lambda told: told.update(outputs=None), r"outputs must be a list of objects, not null"),
        (lambda told: told.update(inputs=[]), r"inputs must be a list of one object or more, not \[\]"),
        (lambda told: told["inputs"][0].update(address=told["size"]), r"inputs.*: address must be such that 1 frames"),
        (lambda told: told["inputs"][0].update(address=12), r"inputs.*: address must be a multiple of 8, not 12"),
        (lambda told: told["inputs"][0].update(frame_bytes=8), r"inputs.*: frame_bytes must be an integer from "),
        (lambda told: told["outputs"][0]["map"].update(height=10**9), r"outputs\[0\]: map: height must be an integer"),
        (lambda told: told["outputs"][0]["map"].update(width=10**7), r"outputs\[0\]: address must be such that 1 f"),
        (lambda told: told["inputs"][0]["map"].update(scale=-1), r"inputs.*: map: scale must be a positive number"),
        (lambda told: told["inputs"][0]["map"]["type"].update(signed=1), r"inputs.*: map: type: signed must be true"),
        (lambda told: told["inputs"][0]["map"]["type"].update(bits=33), r"inputs.*: map: type: bits must be an"),
        (lambda told: told.update(ends={"input": {"name": "x", "shape": [5], "scale": None, "zero_point": 0}}),
         r"ends: input: shape must be a shape with 81 values, not \[5\]"),
        (lambda told: told["owners"].pop(), r"owners must be a list of all jobs, up to the last one of"),
        (lambda told: told.update(owners=[]), r"owners must be a list of all jobs, up to the last one of"),
        (lambda told: told.update(owners=[0] * 99), r"job \d+ is damaged or of another engine; compile it again"),
    ],
)  # fmt: skip
def test_fields_of_programs(folder, program, change, message):
    """Each field that makes no sense is named, with what would."""
    told, image = parts(program)
    change(told)
    said = verdict(folder, sealed(program, json.dumps(told).encode(), image))
    assert re.search(rf"changed\.program: {message}", said), said


def test_jobs_stay_in_their_memory(folder, program):
    """A job that accesses other memory, or writes the program's image, under a right seal and checksum."""
    made = schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program
    cases = [change for _, *change in escapes(made)] + list(endless(made))
    assert len(cases) >= 12
    for job_index, part, values in cases:
        said = verdict(folder, with_job(bytes(made), SMALL, job_index, part, **values))
        assert re.search(rf"job {job_index} accesses memory outside of the program; compile it again", said), said
    assert not verdict(folder, bytes(made))


def test_damaged_programs(folder, program):
    """Any change under a right checksum: a `DriverError` in one line, or a program that runs within its memory."""
    rng, said = np.random.default_rng(1), Counter[str]()
    for _ in range(300):
        content = (changed if rng.integers(3) else spoilt)(program, rng)
        message = verdict(folder, content)
        assert not message.startswith("several lines")
        said["refused" if message else "taken"] += 1
    assert said["refused"] > 100
    assert said["taken"] > 15


@pytest.mark.parametrize("name", ["registers", "engine", "build_hash"])
def test_damaged_folders(folder, name):
    """What hwgen did not write is named."""
    path = folder / "registers.json"
    document = json.loads(path.read_text())
    for value in (None, 5, "x", [], [5], {}, [{}]):
        path.write_text(json.dumps(document | {name: value}))
        with pytest.raises(DriverError, match=r"^[^\n]+$"):
            engine_of(document, folder).load("conv.program")
    for text in ("", "[1", "[]", "\xff", "[" * 100_000):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(DriverError, match=r"registers\.json (is not the JSON|must be a JSON object)"):
            engine_of(document, folder)


def engine_of(document: dict[str, Any], folder: Path) -> engine_driver.Engine:
    """With the registers of a document, whatever its folder says."""
    return engine_driver.Engine(Still(document), allocate=buffer(0x1000), folder=folder, timeout=0.01)


@pytest.mark.parametrize("overlap", [False, True])
def test_an_interrupt_at_any_access(folder, program, overlap):
    """Ctrl-C at each access of a run in turn: the engine is stopped, and writes nothing into memory any more."""
    document, found = json.loads((folder / "registers.json").read_text()), SimpleNamespace(engine=None)
    told = parts(program)[0]
    source, result = told["inputs"][0], told["outputs"][0]

    def compute() -> None:
        base = running.still.values[running.still.offsets["PROGRAM_BASE"]]
        (memory,) = (memory for memory in found.engine._memories if memory.physical_address == base)
        size = result["map"]["height"] * result["map"]["width"] * 8 * -(-result["map"]["channels"] // 8)
        memory[result["address"] :][:size] = 3 + int(
            memory[source["address"] :][: engine_driver.Region(source).size].max()
        )

    running = Running(document, compute)
    found.engine = engine_driver.Engine(running, allocate=buffer(0x1000), folder=folder, timeout=10, overlap=overlap)
    found.engine.load("conv.program")
    firsts, interrupted = np.arange(20, 23), 0  # above the zero point, which lies around an unfolded map
    x = firsts.astype(np.uint8)[:, None, None, None] + np.zeros((3, 9, 3, 3), np.uint8)
    for access in range(1, 1000):
        running.interrupted = running.accesses + access
        try:
            outputs = found.engine.run(x, integers=True)
        except KeyboardInterrupt:
            assert running.left == 0
            interrupted += 1
        else:
            break
        with pytest.raises(DriverError, match=r"^input must lie in 0 \.\. 255: frame 2 does not$"):
            found.engine.run(x.astype(np.int32) + [[[[234]]]] * 3)
        assert running.left == 0
    assert interrupted > 20
    assert len(found.engine._memories) == 1 + overlap
    # Values in memory are signed: 0 lies there as -128, and what lies there is 128 more.
    np.testing.assert_array_equal(np.asarray(outputs)[:, 0, 0, 0].astype(int), (128 + firsts + 3 + 128) % 256)


def test_frames_that_do_not_fit(folder):
    found = engine(folder)
    right = np.zeros((2, 9, 3, 3), np.uint8)
    with pytest.raises(DriverError, match=r"^there is no program: load\(\) one"):
        found.run(right)
    found.load("conv.program")
    for wrong in (right[0], right[:0], right[:, :8], right.astype(str)):
        with pytest.raises(DriverError, match=r"^input must be numbers of shape \(n, 9, 3, 3\), not "):
            found.run(wrong)
    with pytest.raises(DriverError, match=r"^input must lie in 0 \.\. 255: frame 0 does not$"):
        found.run(right.astype(np.int32) - 1)
    with pytest.raises(DriverError, match=r"^input must be integers: the model gives no scale for floats$"):
        found.run(right.astype(np.float32))
    with pytest.raises(DriverError, match=r"^frames must be one array per input of the design \(1\), not 2$"):
        found.run(right, right)
    with pytest.raises(DriverError, match=r"^no interrupt was given to wait for: Engine\(.., interrupt="):
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
        with pytest.raises(DriverError, match=r"^a frame took more than 0\.01 s: STATUS 0, ERROR 0, FRAMES 0, "):
            run(right)
        assert still.written[-2:] == [(still.offsets["CONTROL"], 1), (still.offsets["CONTROL"], 2)]


def test_an_error_has_its_meaning(folder):
    found = engine(folder, STATUS=DONE, ERROR=9)
    found.load("conv.program")
    with pytest.raises(DriverError, match=r"^frame 0 was ended by error 9: a job was compiled for another engine$"):
        found.run(np.zeros((2, 9, 3, 3), np.uint8))


#: Layouts of inputs, also with pixels that are outside of the map altogether.
UNFOLDS = {name: st.integers(1, 3) for name in ("rows", "columns", "row_step", "column_step")}
UNFOLDS |= {name: st.integers(0, 2) for name in ("top", "left")}


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 5)),
    bits=st.integers(2, 8) | st.integers(9, 32),
    signed=st.booleans(),
    unfolds=st.none() | st.fixed_dictionaries(UNFOLDS),
    seed=st.integers(0, 2**32),
)
def test_memory_is_the_compilers(shape, bits, signed, unfolds, seed):
    """A map lies as the compiler has it, and comes back."""
    kind = IntegerType(bits=bits, signed=signed)
    channels, height, width = shape
    source = FeatureMap(channels=channels, height=height, width=width, type=kind)
    told = {"name": "x", "address": 8, "map": {**vars(source), "type": vars(kind)}}
    unfold = Unfold(**unfolds, height=3, width=2, outside=200) if unfolds and bits <= 8 else None
    region = engine_driver.Region({**told, "unfold": vars(unfold)} if unfold else told)
    assert (region.shape, region.range) == (shape, (kind.minimum, kind.maximum))
    frame = np.random.default_rng(seed).integers(kind.minimum, kind.maximum + 1, shape).astype(kind.dtype)
    packed = region.pack(frame)
    assert packed.nbytes == region.size
    assert packed.tobytes() == pack_map(unfold.apply(frame, kind) if unfold else frame, kind)
    if not unfold:
        np.testing.assert_array_equal(region.unpack(packed), frame)
        assert region.unpack(packed).dtype == kind.dtype


def test_a_folder_has_the_driver_of_its_kind(tmp_path):
    """Each is one file, without the class of the other kind, and needs no hwgen."""
    engine_files = EnginePackage(shell=EngineShellConfig(engine=SMALL), top="engine").files()
    assert json.loads(engine_files[wrapper.REGISTERS])["module"] == "engine_axi"
    stream_files = AcceleratorPackage(shell=shell_of(1, 1), top="net").files()
    for name, files, there, missing in (
        ("engine_driver", engine_files, "Engine", "Accelerator"),
        ("net_driver", stream_files, "Accelerator", "Engine"),
    ):
        (tmp_path / f"{name}.py").write_bytes(files[f"{name}.py"])
        found = runpy.run_path(str(tmp_path / f"{name}.py"))
        assert {there, "connect", "DriverError", "Hardware"} <= found.keys()
        assert missing not in found
        assert b"import hwgen" not in files[f"{name}.py"]
        assert b"from hwgen" not in files[f"{name}.py"]
