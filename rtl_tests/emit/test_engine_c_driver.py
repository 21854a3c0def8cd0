"""What the C driver of an engine refuses, and how it has maps in memory; test_wrapper.py runs it."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from c_driver import MEMORY, REGISTERS, EngineDevice, EngineDriver, compiled, described, gcc, needs_gcc
from counted import cases_in_the_long_run
from engine_verdict import verdict
from hypothesis import given
from hypothesis import strategies as st
from program_mutations import changed, changed_job, endless, escapes, parts, sealed, spoilt, with_job
from programs import SMALL, alone, conv
from sanitized import engine_bench, load_all, needs_sanitizers

from hwgen.emit import wrapper
from hwgen.emit.engine import EnginePackage, registers_json
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job, Load, pack_jobs
from hwgen.gateware.engine.port import Error
from hwgen.network.maps import FeatureMap, IntegerType
from hwgen.program.compile import schedule
from hwgen.program.file import MapRegion, Program, digest
from hwgen.program.layout import map_bytes, pack_map
from hwgen.program.unfold import Unfold

pytestmark = needs_gcc

BUSY, DONE = 1, 8
START, STOP = 1, 2
SIZE = 1 << 16


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder of an engine, as far as software reads it."""
    folder, shell = tmp_path_factory.mktemp("built"), EngineShellConfig(engine=SMALL, build_hash=0xABCD << 40)
    files = EnginePackage(shell=shell, top="engine").drivers() | {
        "engine_registers.h": wrapper.c_header(shell, "engine").encode()
    }
    files[wrapper.REGISTERS] = json.dumps(registers_json(shell, "engine_axi")).encode()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def library(built) -> Path:
    return compiled(built, built)


@pytest.fixture(scope="module")
def program() -> Program:
    return schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program


class Still:
    """Registers of an engine that does what a test says, or nothing."""

    def __init__(self, built: Path, library: Path, **other: int):
        registers = described(built)["registers"]
        self.offsets = {each["name"]: each["offset"] for each in registers}
        self.values = {each["offset"]: each["reset"] for each in registers}
        self.set(**other)
        self.written: list[tuple[int, int]] = []
        self.compute: Callable[[], None] = lambda: None
        self.driver = EngineDriver(built, library, self.read, self.write, np.zeros(SIZE, np.uint8))

    def set(self, **values: int) -> None:
        self.values |= {self.offsets[name]: value for name, value in values.items()}

    def read(self, address: int) -> int:
        return self.values[address - REGISTERS]

    def write(self, address: int, value: int) -> None:
        self.written.append((address - REGISTERS, value))
        if self.written[-1] == (self.offsets["CONTROL"], START):
            self.compute()

    def asked(self) -> list[int]:
        """What was written into CONTROL."""
        return [value for offset, value in self.written if offset == self.offsets["CONTROL"]]


def loaded(built: Path, library: Path, program: Program) -> Still:
    """An engine with a program at a page of its own."""
    still = Still(built, library)
    assert still.driver.open(patience=5) == "OK"
    assert still.driver.load(bytes(program), 4096, program.size) == "OK"
    still.written.clear()
    return still


def test_it_compiles_as_it_is(built, tmp_path):
    """Without a platform of one's own."""
    for level in ("-O0", "-O2"):
        gcc(level, "-c", built / "engine_driver.c", "-o", tmp_path / "driver.o")
    text = "".join((built / f"engine_driver.{kind}").read_text() for kind in "ch")
    assert "/* @" not in text


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({}, "OK"),
        ({"IDENTITY": 0x4857474E}, "NOT_THERE"),
        ({"VERSION": 2 << 16}, "OTHER_VERSION"),
        ({"VERSION": 1 << 16 | 7}, "OK"),
        ({"BUILD_HASH_LOW": 7}, "OTHER_DESIGN"),
        ({"BUILD_HASH_HIGH": 7}, "OTHER_DESIGN"),
        ({"STATUS": BUSY}, "NOT_STOPPED"),
    ],
)
def test_other_hardware(built, library, other, status):
    """It is not touched. What runs on the right one is ended."""
    still = Still(built, library, **other)
    assert still.driver.open() == status
    assert still.asked() == ([STOP] if status in ("OK", "NOT_STOPPED") else [])
    assert bool(still.written) == bool(still.asked())


def resealed(program: bytes) -> bytes:
    """The checksum of the file is right."""
    return program[:12] + struct.pack("<I", zlib.crc32(program[16:])) + program[16:]


def test_programs(built, library, program):
    """Each has its error, and the one before stays."""
    whole, driver = bytes(program), loaded(built, library, program).driver
    foreign = bytes(schedule(alone(conv(channels=9, size=(3, 3))), EngineConfig(maps=16, pixels=7)).program)
    crowd = replace(program, outputs=program.outputs * 17)
    page = 4096
    for content, begin, size, status in (
        (whole[:-1], page, SIZE, "WRONG_PROGRAM"),
        (whole + b"\0", page, SIZE, "WRONG_PROGRAM"),
        (whole[:60], page, SIZE, "WRONG_PROGRAM"),
        (whole[:32] + bytes(8 * [0xFF]) + whole[40:], page, SIZE, "WRONG_PROGRAM"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), page, SIZE, "WRONG_PROGRAM"),
        (whole[:20], page, SIZE, "NO_PROGRAM"),
        (b"x" + whole[1:], page, SIZE, "NO_PROGRAM"),
        (resealed(whole[:8] + b"\7" + whole[9:]), page, SIZE, "NO_PROGRAM"),
        (foreign, page, SIZE, "OTHER_ENGINE"),
        (resealed(whole[:16] + whole[16:31].upper() + b"g" + whole[32:]), page, SIZE, "OTHER_ENGINE"),
        (bytes(crowd), page, SIZE, "WRONG_PROGRAM"),
        (whole, page, program.size - 1, "TOO_SMALL"),
        (whole, page + 64, SIZE, "UNALIGNED"),
    ):
        assert driver.load(content, begin, size) == status
        assert driver.device.memory == driver.seen.ctypes.data + page
        assert driver.device.output_count == 1
    assert driver.load(bytes(replace(crowd, outputs=crowd.outputs[:16])), page, SIZE) == "OK"
    assert driver.device.output_count == 16


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda told: None, "OK"),
        (lambda told: told.update(batch=None), "OK"),
        (lambda told: told.pop("size"), "WRONG_PROGRAM"),
        (lambda told: told.update(size=64), "WRONG_PROGRAM"),  # less than the image
        (lambda told: told.update(size=(1 << 32) + told["size"]), "WRONG_PROGRAM"),
        (lambda told: told.update(size=f"{told['size']}"), "WRONG_PROGRAM"),
        (lambda told: told.update(size=told["size"] + 0.5), "WRONG_PROGRAM"),
        (lambda told: told.update(batch=0), "WRONG_PROGRAM"),
        (lambda told: told.update(batch=1 << 27), "WRONG_PROGRAM"),
        (lambda told: told.pop("inputs"), "WRONG_PROGRAM"),
        (lambda told: told.update(outputs=[]), "WRONG_PROGRAM"),
        (lambda told: told["inputs"][0].update(address=told["size"]), "WRONG_PROGRAM"),
        (lambda told: told["inputs"][0].update(address=(1 << 32) - 8), "WRONG_PROGRAM"),
        (lambda told: told["inputs"][0].update(address=4), "WRONG_PROGRAM"),
        (lambda told: told["inputs"][0].update(frame_bytes=8), "WRONG_PROGRAM"),
        (lambda told: told["outputs"][0]["map"].update(channels=0), "WRONG_PROGRAM"),
        (lambda told: told["outputs"][0]["map"].update(height=1 << 20), "WRONG_PROGRAM"),
        (lambda told: told["outputs"][0]["map"].update(height=1 << 28, width=16), "WRONG_PROGRAM"),  # 2^35 bytes
        (lambda told: told["outputs"][0]["map"]["type"].update(bits=33), "WRONG_PROGRAM"),
        (lambda told: told["outputs"][0]["map"]["type"].update(signed=None), "WRONG_PROGRAM"),
    ],
)
def test_fields(built, library, program, change, status):
    """A checksum that is right, and a field that makes no sense: the program before stays."""
    driver = loaded(built, library, program).driver
    told, image = parts(bytes(program))
    change(told)
    assert driver.load(sealed(bytes(program), json.dumps(told).encode(), image), 8192, SIZE - 8192) == status
    begin = 8192 if status == "OK" else 4096
    assert driver.device.memory == driver.seen.ctypes.data + begin


def test_jobs_stay_in_their_memory(built, library, program):
    """A job that accesses other memory, or writes the program's image, under a right seal and checksum."""
    driver = loaded(built, library, program).driver
    cases = [change for _, *change in escapes(program)] + list(endless(program))
    assert len(cases) >= 12
    for job_index, part, values in cases:
        content = with_job(bytes(program), SMALL, job_index, part, **values)
        assert driver.load(content, 8192, SIZE - 8192) == "WRONG_PROGRAM", (part, values)
    assert driver.load(bytes(program), 8192, SIZE - 8192) == "OK"


def test_jobs_end(built, library, program):
    """An image whose last job is no job of the image."""
    last = len(program.owners) - 1
    content = with_job(bytes(program), SMALL, last, "load", end=0)
    assert loaded(built, library, program).driver.load(content, 8192, SIZE - 8192) == "WRONG_PROGRAM"


#: What the C driver does not read, as the Python driver names it.
_UNREAD = r"name|scale|zero_point|ends|owners|job \d+ is|not valid JSON|must be a JSON object|there are no [\d,]+ bytes"


@needs_sanitizers
@pytest.mark.parametrize("count", [200, pytest.param(4000, marks=pytest.mark.long)])
def test_damaged_programs(built, program, tmp_path, count):
    """Any change under a right checksum: no access out of bounds, NULL is refused, and what the Python driver takes or
    refuses this one does, too."""
    bench = engine_bench(built, tmp_path, digest(SMALL))
    (tmp_path / "registers.json").write_text((built / "registers.json").read_text())
    rng, whole, said = np.random.default_rng(count), bytes(program), Counter[str]()
    wholes = [whole, bytes(replace(program, batch=2, size=program.size * 2))]
    cases = [(whole, program.size), (whole, program.size - 1), (b"", 0), (whole[:48], 64)]
    damage = {"field": changed, "byte": spoilt, "job": partial(changed_job, engine=SMALL)}
    kinds = [str(kind) for kind in rng.choice(list(damage), count, p=[0.5, 0.25, 0.25])]
    for kind in kinds:
        content = damage[kind](wholes[int(rng.integers(2))], rng=rng)
        cases.append((content, int(rng.integers(program.size, 3 * program.size))))
    statuses = load_all(bench, cases)
    assert statuses[:4] == [0, 22, 19, 20]
    for kind, status, (content, _) in zip(["byte"] * 4 + kinds, statuses, cases, strict=True):
        message = verdict(tmp_path, content)
        said["taken" if status == 0 else "too small" if status == 22 else "refused"] += 1
        if kind != "byte" and not message:
            assert status in (0, 22), content
        if kind != "byte" and status in (0, 22):
            assert not message or re.search(_UNREAD, message), message
    assert all(said[each] > count / 50 for each in ("taken", "too small", "refused")), said


def test_where_a_program_lies(built, library, program):
    """Its image, and what the engine is told; all of its memory leaves the caches, that of its maps as well."""
    still = Still(built, library)
    driver = still.driver
    assert driver.open() == "OK"
    assert driver.run(np.zeros(0, np.uint8))[0] == "NOT_LOADED" == driver.finish()[0]
    driver.seen[:] = 0xEE
    assert driver.load(bytes(program), 8192, program.size) == "OK"
    assert driver.memory[8192:][: len(program.image)].tobytes() == program.image
    rest = driver.memory[8192 + len(program.image) : 8192 + program.size]
    assert len(rest) > 64
    assert (rest == 0xEE).all()
    assert not driver.memory[:8192].any()
    assert still.written[-1] == (still.offsets["PROGRAM_BASE"], MEMORY + 8192)


def test_a_program_that_ends_at_4_gib(built, tmp_path, program):
    """The last page is as good as any other one; what would go on at address 0 is refused."""
    platform = '-DHWGEN_PLATFORM="far.h"'
    page = (program.size + 4095) // 4096 * 4096
    assert page > 4096
    text = "\n".join(
        [
            "#include <stdint.h>",
            "static uint32_t bench_base;",
            "#define HWGEN_BUS_ADDRESS(pointer) (bench_base)",
            "#define HWGEN_READ32(address) ((void)(address), 0u)",
            "#define HWGEN_WRITE32(address, value) ((void)(address), (void)(value))",
        ]
    )
    (tmp_path / "far.h").write_text(text)
    (tmp_path / "program").write_bytes(resealed(bytes(program)[:16] + b"0" * 16 + bytes(program)[32:]))
    (tmp_path / "main.c").write_text(
        f"""
#include <stdio.h>
#include "engine_driver.c"
static unsigned char file[{len(bytes(program))}], memory[{page}];
int main(void)
{{
    static engine_device device;
    FILE *const opened = fopen("program", "rb");
    if (!opened || fread(file, 1, sizeof file, opened) != sizeof file)
        return 1;
    device.patience = 1;
    bench_base = (uint32_t)(0x100000000ull - {page}u);
    printf("%d ", engine_load(&device, file, sizeof file, memory, sizeof memory));
    bench_base += 4096;
    printf("%d\\n", engine_load(&device, file, sizeof file, memory, sizeof memory));
    return fclose(opened);
}}
"""
    )
    gcc(f"-I{tmp_path}", f"-I{built}", platform, tmp_path / "main.c", "-o", tmp_path / "main")
    said = subprocess.run([tmp_path / "main"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["0", "23"]


def test_two_memories_in_turn(built, library, program):
    """The next frame is written and the last one read while one is computed; each result is that of its frame."""
    still = loaded(built, library, program)
    driver, second = still.driver, 4096 + -(-program.size // 4096) * 4096
    devices = [driver.device, EngineDevice.from_buffer_copy(driver.device)]
    driver.device = devices[1]
    assert driver.load(bytes(program), second, program.size) == "OK"
    source, result = driver.device.inputs[0], driver.device.outputs[0]
    result_bytes = 8 * -(-result.channels // 8) * result.height * result.width
    seen = []

    def compute() -> None:
        (base, *_) = (value for offset, value in reversed(still.written) if offset == still.offsets["PROGRAM_BASE"])
        memory = driver.memory[base - MEMORY :]
        memory[result.address :][:result_bytes] = memory[source.address :][: source.frame_bytes].max() + 3
        seen.append(base - MEMORY)

    still.compute = compute
    # Bytes above those that lie around an unfolded map.
    frames = [np.full_like(driver.blank()[0], value) for value in (25, 29, 77, 120, 31)]
    results = []
    driver.device = devices[0]
    assert driver.put(frames[0]) == "OK"
    for index in range(len(frames)):
        driver.device = devices[index % 2]
        still.set(STATUS=0)
        assert driver.begin() == "OK"
        driver.device = devices[(index + 1) % 2]
        if index:
            results.append(driver.take())
        if index + 1 < len(frames):
            assert driver.put(frames[index + 1]) == "OK"
        driver.device = devices[index % 2]
        assert driver.wait() == "TIMEOUT"
        still.set(STATUS=DONE)
        assert driver.wait() == "OK"
    results.append(driver.take())
    assert seen == [4096, second, 4096, second, 4096]
    for (status, (output,)), frame in zip(results, frames, strict=True):
        assert status == "OK"
        # Values in memory are signed: 0 lies there as -128, and what lies there is 128 more.
        assert (output.astype(int) == (int(frame.flat[0]) - 128 + 3 + 128) % 256).all()


def test_a_frame_that_takes_too_long(built, library, program):
    """The run is stopped; where memory does not even answer that, it is said."""
    still = loaded(built, library, program)
    frame = still.driver.blank()
    assert still.driver.run(*frame)[0] == "TIMEOUT"
    assert still.asked() == [STOP, START, STOP]
    assert still.driver.start(*frame) == "OK"
    still.set(STATUS=BUSY)
    assert still.driver.finish()[0] == "NOT_STOPPED"
    assert still.driver.run(*frame)[0] == "NOT_STOPPED"
    assert still.driver.load(bytes(program), 4096, SIZE) == "NOT_STOPPED"


@pytest.mark.parametrize("error", Error)
def test_errors_of_a_run(built, library, program, error):
    """Each by its name, and no output is read."""
    still = loaded(built, library, program)
    still.set(STATUS=DONE, ERROR=error.value)
    still.driver.memory[:] = 0x55
    status, (output,) = still.driver.run(*still.driver.blank())
    assert status == ("OK" if error is Error.NONE else error.name)
    assert output.any() == (error is Error.NONE)
    assert still.asked() == [STOP, START]


KINDS = st.builds(IntegerType, bits=st.integers(2, 8) | st.integers(9, 32), signed=st.booleans())
MAPS = st.builds(
    FeatureMap,
    channels=st.integers(1, 20),
    height=st.integers(1, 4),
    width=st.integers(1, 5),
    type=KINDS,
    scale=st.none() | st.floats(1e-9, 1e9),
)
#: Layouts of inputs, also with pixels that are outside of the map altogether.
UNFOLDS = {name: st.integers(1, 3) for name in ("rows", "columns", "row_step", "column_step", "height", "width")}
UNFOLDS |= {"top": st.integers(0, 2), "left": st.integers(0, 2), "outside": st.integers(0, 255)}
#: Also such as would be taken for something else by software that reads carelessly.
NAMES = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", '\\"', '{"size": 1', "}", "]", ',"size": 7,', '"outputs": [', "size"]
)


@cases_in_the_long_run(30)
@given(
    maps=st.lists(st.tuples(NAMES, MAPS), min_size=2, max_size=5),
    inputs=st.integers(1, 2),
    name=NAMES,
    gap=st.integers(0, 5),
    batch=st.integers(1, 3),
    unfolds=st.none() | st.builds(Unfold, **UNFOLDS),
    seed=st.integers(0, 2**32),
)
def test_memory_is_the_compilers(built, library, maps, inputs, name, gap, batch, unfolds, seed):
    """Frames lie where and as the compiler has them, and outputs come from there; whatever names there are."""
    rng, inputs = np.random.default_rng(seed), min(inputs, len(maps) - 1)
    image = pack_jobs(SMALL, [Job(load=Load(end=1))]) + rng.bytes(48)
    regions, place = [], len(image)
    for number, (each, source) in enumerate(maps):
        unfold = unfolds if number < inputs and source.type.bits <= 8 else None
        pitch = map_bytes(unfold.map(source) if unfold else source) + 8 * gap
        frame_bytes = pitch if gap else None
        regions.append(MapRegion(name=each, map=source, address=place, frame_bytes=frame_bytes, unfold=unfold))
        place += batch * pitch
    made = Program(
        name=name, engine=SMALL, image=image, size=place, layers=(name,), owners=(),
        inputs=tuple(regions[:inputs]), outputs=tuple(regions[inputs:]), batch=batch,
        ends={name: [{"name": name, "size": 3}], "size": 5, "outputs": name},
    )  # fmt: skip
    still = Still(built, library, STATUS=DONE)
    driver, memory = still.driver, still.driver.memory[4096:]
    frames = [_frames(rng, source, batch) for _, source in maps]
    begun: list[bytes] = []

    def compute() -> None:
        begun.append(memory.tobytes())
        for region, values in zip(regions[inputs:], frames[inputs:], strict=True):
            for number, frame in enumerate(values):
                memory[region.at(number)] = np.frombuffer(pack_map(frame, region.map.type), np.uint8)

    still.compute = compute
    assert driver.open() == "OK"
    assert driver.load(bytes(made), 4096, made.size) == "OK"
    status, found = driver.run(*frames[:inputs])
    assert status == "OK"
    assert begun[0].startswith(made.image)
    for region, values in zip(made.inputs, frames, strict=False):
        for number, frame in enumerate(values):
            assert begun[0][region.at(number)] == region.pack(frame)
    for output, values in zip(found, frames[inputs:], strict=True):
        np.testing.assert_array_equal(output, values)
    assert not driver.memory[:4096].any()


def _frames(rng: np.random.Generator, source: FeatureMap, count: int) -> np.ndarray:
    kind = source.type
    return rng.integers(kind.minimum, kind.maximum + 1, (count, *source.shape)).astype(kind.dtype)


def test_the_documented_program_compiles(built, tmp_path):
    """Of docs/howto/bare-metal.md, in a function of its own."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "bare-metal.md").read_text()
    (block,) = (each for each in re.findall(r"```c\n(.*?)```", text, re.DOTALL) if "engine_open" in each)
    (tmp_path / "main.c").write_text(block)
    gcc("-c", f"-I{built}", tmp_path / "main.c", "-o", tmp_path / "main.o")
