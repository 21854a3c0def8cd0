"""Writes docs/figures/host.md: the frame rate that arrives at a program, and what bounds it, driver included.

Usage: python bench/host.py [--print] [CASE ...]     (some minutes; needs pip install '.[test]' and g++)

The emitted bus wrapper is compiled by Verilator into this process, behind AXI DMAs in simple mode and a memory of the
board's bandwidth (`host_model.cpp`), and the emitted Python driver runs it. Every output value is compared with the
golden model. Three kinds of runs tell the figures of each case:

- In the first, a read of a busy DMA's status waits until the DMA is done, so that the driver polls no DMA in vain.
- In the second, reads return what they returned in the first, and nothing is simulated, so that no simulation takes the
  processor's caches from the driver. Its processor time is the software's time.
- In the third, the processor time between two accesses passes in the simulation, too, in the ratio of the second to the
  first. So software and hardware overlap as on a board with this machine's processor. The simulated time of this run is
  that of the rate that arrives.

Fails beyond the marks of `CASES`. ``--print`` writes nothing; with names, only those cases are measured again.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import hwgen
from hwgen.api import Design
from hwgen.simulate import verilator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "figures" / "host.md"
DIGITS = ROOT / "examples" / "digits"
BOARD = "pynq-z2"
#: Cycles from the start of a transfer to its first word: a memory's latency and the DMA's own (an assumption).
LATENCY = 60
#: Runs of a batch of which the one with the least time counts: of the software alone, and of those with a simulation.
ALONE, SIMULATED = 1000, 1
#: Modes of `host_model.cpp`.
WAIT, REPLAY, COUPLE = range(3)

INTRODUCTION = """# Rates with the driver

Which frame rate does a program get that calls the generated driver, and what limits it? `python bench/host.py` measures
this and writes this page.

The generated Python driver runs the emitted bus wrapper in Verilator, with AXI DMAs in simple mode and a memory at the
board's peak bandwidth. A case is one call of `run` with a batch of frames, of float32 unless stated otherwise.

| column | meaning |
|---|---|
| at once | frames per packet |
| circuit, bus, memory | the plan's limits of the frame rate; the lowest applies |
| software, allowed | the call's processor time per frame without waiting; the maximum that the bench accepts |
| formula | rate by the longer of hardware and software time |
| arrives | simulated rate with the software's time, which overlaps with the hardware's for several packets |
| of the limit | *arrives* as a share of the lowest limit |
| software's share | share of the time that the processor is busy |

The processor is this machine's. Rates on a board's own, slower processor have not been measured.
"""

HEAD = ("case", "at once", "circuit", "bus", "memory", "software [µs]", "allowed [µs]", "formula", "arrives")
HEAD += ("of the limit", "software's share", "measured")


@dataclass(frozen=True)
class Case:
    """Batch of a model's frames on a design, with the marks that its figures must keep."""

    name: str
    design: Callable[[], Design]
    frames: Callable[[hwgen.Model], np.ndarray]
    max_software_us: float
    """Largest processor time per frame, in microseconds."""
    min_share: float
    """Smallest rate that arrives, as a share of the least bound."""


@dataclass(frozen=True)
class Figures:
    """Figures of one case: rates in frames per second, times in microseconds per frame."""

    case: Case
    frames: int
    packet_frames: int
    bounds: dict[str, float]
    software_us: float
    arriving: float

    @property
    def bound(self) -> float:
        """Least bound of the rate, which is the design's rate."""
        return min(self.bounds.values())

    @property
    def share(self) -> float:
        """Rate that arrives, as a share of the least bound."""
        return self.arriving / self.bound

    @property
    def by_formula(self) -> float:
        """Rate by the longer of the hardware's and the software's time."""
        return min(self.bound, 1e6 / self.software_us)

    @property
    def software_share(self) -> float:
        """Processor time of the software as a share of the time in which frames arrive."""
        return self.software_us * self.arriving / 1e6

    @property
    def is_good(self) -> bool:
        """Whether the figures keep the case's marks."""
        return self.software_us <= self.case.max_software_us and self.share >= self.case.min_share


def _digits(pixels: hwgen.Pixels | None = None) -> Design:
    return hwgen.load(DIGITS / "digits.onnx", pixels=pixels).plan(BOARD)


def _digit_images(count: int) -> np.ndarray:
    images = np.load(DIGITS / "images.npy")
    return np.concatenate([images] * -(-count // len(images)))[:count]


def _digit_pixels(count: int) -> np.ndarray:
    return np.rint(255 * _digit_images(count)).astype(np.uint8)


def _random(model: hwgen.Model, count: int) -> np.ndarray:
    shape = model.network.input.shape
    return np.random.default_rng(1).uniform(-1, 1, (count, *shape)).astype(np.float32)


CASES = (
    Case("digits, 1,000 frames", _digits, lambda _: _digit_images(1000), 0.5, 0.6),
    Case("digits, 1,000 frames of uint8", lambda: _digits(hwgen.Pixels()), lambda _: _digit_pixels(1000), 0.1, 0.6),
    Case("resnet8, 32 frames", lambda: hwgen.load("resnet8").plan(BOARD), lambda model: _random(model, 32), 20, 0.9),
)


class HardwareModel:
    """Emitted bus wrapper in Verilator, behind DMAs and memory (`host_model.cpp`).

    Parameters
    ----------
    built : Path
        Folder of the design.
    work : Path
        Folder for the compiler's files.
    design : Design
        Design of the folder.
    """

    def __init__(self, built: Path, work: Path, design: Design):
        self.described = json.loads((built / "registers.json").read_text())
        library: Any = ctypes.CDLL(str(_compiled(built, work, self.described)))
        library.host_begin.argtypes = [ctypes.c_int, ctypes.c_double]
        library.host_open.argtypes = [ctypes.c_double, ctypes.c_double, ctypes.c_uint32]
        library.host_read.argtypes, library.host_read.restype = [ctypes.c_int, ctypes.c_uint32], ctypes.c_uint32
        library.host_write.argtypes = [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32]
        self._library = library
        before = Path.cwd()
        os.chdir(built)  # the contents of memories are read from here
        try:
            library.host_open(design.board.clock_mhz, design.board.memory_gb_s, LATENCY)
        finally:
            os.chdir(before)

    def access(self, dma: int) -> Any:
        """Return an object that reads and writes the registers of a DMA, or for -1 those of the wrapper."""
        read, write = self._library.host_read, self._library.host_write
        return SimpleNamespace(
            read=lambda offset: read(dma, offset), write=lambda offset, value: write(dma, offset, value)
        )

    def measured(self, run: Callable[[], Any], mode: int, scale: float = 1.0) -> tuple[float, float]:
        """Run a function, and return its simulated cycles and the software's processor time in nanoseconds."""
        self._library.host_begin(mode, scale)
        run()
        figures = (ctypes.c_double * 3)()
        self._library.host_figures(figures)
        return figures[0], figures[1]


def _compiled(built: Path, work: Path, described: dict[str, Any]) -> Path:
    """Compile the wrapper of a folder and the model around it to a library, and return the library's path."""
    root, top = verilator._root(), described["module"]
    sources = [str(path) for path in sorted(built.glob("*.v")) if not path.stem.endswith("_tb")]
    lines = []
    for side in ("inputs", "outputs"):
        names = [stream["name"] for stream in described[side]]
        streams = " ".join(f"STREAM({number}, {name})" for number, name in enumerate(names))
        lines += [f"#define HWGEN_{side.upper()}(STREAM) {streams}"]
        lines += [f"#define HWGEN_{side.upper()[:-1]}_COUNT {len(names)}"]
    (work / "design.h").write_text("\n".join([*lines, ""]))
    command = [str(root / "bin" / "verilator_bin"), *verilator._VERILATOR, "--top-module", top, "--Mdir", "obj"]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    subprocess.run([*command, *sources], cwd=work, env=environment, check=True, capture_output=True)
    include = root / "include"
    units = [*sorted((work / "obj").glob("*.cpp")), Path(__file__).with_name("host_model.cpp")]
    units += [include / "verilated.cpp", include / "verilated_threads.cpp"]
    flags = ["-std=gnu++17", "-O1", "-march=native", "-fPIC", "-DVL_TIME_CONTEXT=1", "-DVM_TRACE=0", "-DVM_COVERAGE=0"]
    flags += ["-DVERILATOR=1", "-DVM_SC=0", f"-I{work}", f"-I{work / 'obj'}", f"-I{include}", f"-I{include / 'vltstd'}"]
    objects = [work / f"{unit.stem}.o" for unit in units]
    for unit, made in zip(units, objects, strict=True):
        subprocess.run(["g++", *flags, "-c", str(unit), "-o", str(made)], check=True)
    library = work / "host.so"
    subprocess.run(["g++", "-shared", "-Wl,-Bsymbolic", "-pthread", *map(str, objects), "-o", str(library)], check=True)
    return library


def _module(path: Path) -> ModuleType:
    """Import an emitted Python file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _opened(built: Path, hardware: HardwareModel) -> Any:
    """Open the emitted driver of a folder on a model of the hardware, with the emitted DMAs for Linux."""
    (driver_path,), (linux_path,) = built.glob("*_driver.py"), built.glob("*_linux.py")
    driver, linux = _module(driver_path), _module(linux_path)
    counts = [len(hardware.described[side]) for side in ("inputs", "outputs")]
    dmas = [
        linux.Dma(hardware.access(index), sends=index < counts[0], receives=index < counts[1])
        for index in range(max(counts))
    ]

    def allocate(shape: Any, dtype: Any) -> Any:
        memory: Any = np.zeros(shape, dtype).view(linux.Buffer)
        memory.physical_address = memory.ctypes.data
        return memory

    return driver.Accelerator(hardware.access(-1), dmas, allocate=allocate, folder=built, timeout=1e6)


def times(hardware: HardwareModel, driver: Any, frames: np.ndarray) -> tuple[float, float]:
    """Return a batch's processor time in nanoseconds, and its cycles where software and hardware overlap."""
    run = partial(driver.run, frames)
    slowed = []
    for _ in range(SIMULATED):
        count = driver._frame_count
        slowed.append(hardware.measured(run, WAIT)[1])
    alone = []
    for _ in range(ALONE):
        driver._frame_count = count  # which the kept values of the hardware's counter follow
        alone.append(hardware.measured(run, REPLAY)[1])
    cycles = [hardware.measured(run, COUPLE, min(alone) / min(slowed))[0] for _ in range(SIMULATED)]
    return min(alone), min(cycles)


def measure(case: Case) -> Figures:
    """Measure one case. Fail if an output value differs from the golden model."""
    design = case.design()
    assert isinstance(design.model, hwgen.Model)
    frames = case.frames(design.model)
    with tempfile.TemporaryDirectory() as folder:
        built = design.build(Path(folder) / "built")
        work = Path(folder) / "work"
        work.mkdir()
        hardware = HardwareModel(built, work, design)
        driver = _opened(built, hardware)
        expected: Any = design.golden(frames, integers=True)
        if not np.array_equal(driver.run(frames, integers=True), expected):
            raise SystemExit(f"{case.name}: outputs differ from the golden model's")
        software, cycles = times(hardware, driver, frames)
        packet = driver._packet_frames(len(frames))
    clock = design.board.clock_mhz * 1e6
    return Figures(
        case=case,
        frames=len(frames),
        packet_frames=packet,
        bounds={name: clock / bound for name, bound in design.plan.bounds.items()},
        software_us=software / len(frames) / 1000,
        arriving=len(frames) * clock / cycles,
    )


def row(figures: Figures) -> str:
    """Return the page's row of a case, with the day of its measurement."""
    cells = [figures.case.name, f"{figures.packet_frames:,}", *(f"{rate:,.0f}" for rate in figures.bounds.values())]
    cells += [f"{figures.software_us:.3g}", f"{figures.case.max_software_us:g}", f"{figures.by_formula:,.0f}"]
    cells += [f"{figures.arriving:,.0f}", f"{figures.share:.0%}", f"{figures.software_share:.0%}", f"{date.today()}"]
    return "| " + " | ".join(cells) + " |"


def page(rows: dict[str, str]) -> str:
    """Return the page of figures, from the rows by the names of their cases."""
    head = "| " + " | ".join(HEAD) + " |\n|---|" + "---:|" * (len(HEAD) - 1)
    lines = [rows[case.name] for case in CASES if case.name in rows]
    machine = f"{platform.machine()}, {os.cpu_count()} processors"
    end = f"On {machine}, shared with other work: `python bench/host.py`"
    return "\n".join([INTRODUCTION, f"Board: {BOARD}. Rates are frames per second.", "", head, *lines, "", end, ""])


def _measured_rows() -> dict[str, str]:
    """Return the rows of the page as it is, by the names of their cases."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Frame rates with the driver.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names of cases")
    parser.add_argument("--print", action="store_true", help="write no page")
    options = parser.parse_args()
    rows, bad = _measured_rows(), list[str]()
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        figures = measure(case)
        rows[case.name] = row(figures)
        print(rows[case.name], flush=True)
        bad += [] if figures.is_good else [case.name]
    if bad:
        sys.exit(f"beyond the marks: {'; '.join(bad)}")
    if not options.print:
        PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
