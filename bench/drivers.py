"""Tests the drivers that hwgen emits with damaged programs and on faulty hardware, for as long as one likes.

Usage: python bench/drivers.py [--seed N] [--programs N] [--runs N]     (default: a seed of the clock, 5,000, 2,000)

Programs of the engine are changed, field by field, byte by byte and job by job, and get valid checksums. The C driver
loads and runs each in memory of just its size, under AddressSanitizer and UndefinedBehaviorSanitizer; the Python driver
must accept or refuse the same ones, and raise nothing but `DriverError`. Then the C driver of an accelerator computes
frames on a model of the hardware that has faults, under the sanitizers: no result may be another frame's.
Prints the seed first; fails at the first error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from driver_runs import shell_of
from engine_verdict import verdict
from program_mutations import changed, changed_job, spoilt
from programs import SMALL, alone, conv
from sanitized import accelerator_runs, engine_bench, load_all

from hwgen.emit import drivers, wrapper
from hwgen.emit.engine import EnginePackage, registers_json
from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.program.compile import schedule
from hwgen.program.file import digest

#: The C driver's statuses for an accepted program, and for one that needs more memory than it gets.
OK, TOO_SMALL = 0, 22
#: Changes of a program that is whole.
DAMAGE = {"field": changed, "byte": spoilt, "job": partial(changed_job, engine=SMALL)}
#: Programs that are loaded by one process.
BATCH = 500


def programs(folder: Path, rng: np.random.Generator, count: int) -> Counter[str]:
    """Count the verdicts of both drivers of an engine on changed programs."""
    shell = EngineShellConfig(engine=SMALL, build_hash=0xABCD << 40)
    files = EnginePackage(shell=shell, top="engine").drivers() | {
        "engine_registers.h": wrapper.c_header(shell, "engine").encode()
    }
    files[wrapper.REGISTERS] = json.dumps(registers_json(shell, "engine_axi")).encode()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    bench, said = engine_bench(folder, folder, digest(SMALL)), Counter[str]()
    program = schedule(alone(conv(channels=9, size=(3, 3))), SMALL).program
    whole = bytes(program)
    for begin in range(0, count, BATCH):
        kinds = [str(kind) for kind in rng.choice(list(DAMAGE), min(BATCH, count - begin), p=[0.5, 0.25, 0.25])]
        cases = [(DAMAGE[kind](whole, rng=rng), int(rng.integers(program.size, 3 * program.size))) for kind in kinds]
        for kind, status, (content, _) in zip(kinds, load_all(bench, cases), cases, strict=True):
            message = verdict(folder, content)
            said["taken" if status == OK else "too large" if status == TOO_SMALL else "refused"] += 1
            if kind != "byte" and not message and status not in (OK, TOO_SMALL):
                raise SystemExit(f"the Python driver takes what the C driver refuses by {status}: {content!r}")
    return said


def frames(folder: Path, rng: np.random.Generator, count: int) -> Counter[str]:
    """Run frames and faults on the C drivers of four accelerators, and count their results."""
    said = Counter[str]()
    for number in range(4):
        place = folder / f"accelerator_{number}"
        place.mkdir()
        shell = shell_of(*(int(each) for each in rng.integers(1, 4, 2)), weights=bool(number % 2))
        files = drivers.c_driver(shell, "net") | {"net_registers.h": wrapper.c_header(shell, "net").encode()}
        files[wrapper.REGISTERS] = json.dumps(wrapper.to_json(shell, "net_axi")).encode()
        for name, content in files.items():
            (place / name).write_bytes(content)
        said += accelerator_runs(place, place, int(rng.integers(1 << 32)), -(-count // 4))
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description="Drivers with damaged programs and under faults.")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 32))
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=2000)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        said = programs(Path(folder), rng, options.programs)
        print(", ".join(f"{count:,} {name}" for name, count in said.items()), flush=True)
        said = frames(Path(folder), rng, options.runs)
        print(", ".join(f"{count:,} {name}" for name, count in said.items()), flush=True)


if __name__ == "__main__":
    main()
