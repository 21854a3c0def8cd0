"""Whole designs, module by module: the emitted Verilog beside Amaranth's own netlist, by Yosys and ABC.

Usage: python bench/verilog_equivalence.py [NAME ..]     (default: all of `DESIGNS`)

Prints, for each design, how many modules there are and how many were proved equal, the bits of registers and the
multiplications that were matched, and the seconds on the clock. Names each module that was not proved equal, with the
reason, and then exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from equivalence import EQUAL, Verdict, compare

import hwgen
from hwgen.devices import DEFAULT, Device
from hwgen.emit import wrapper
from hwgen.emit.bus_package import AcceleratorPackage, Package
from hwgen.emit.engine import EnginePackage, shell_of
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import Engine
from hwgen.schedule.engine import MemoryTiming
from hwgen.verilog import emitted
from hwgen.verilog.emitted import ENGINE, engine_files

DIGITS = str(Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.onnx")
TOP = "top"


@dataclass(frozen=True)
class Circuit:
    """Component whose Verilog is compared: name of its module, its files, Verilog that it instantiates, and device."""

    component: wiring.Component
    top: str
    files: Mapping[str, bytes]
    outside: str = ""
    device: Device = DEFAULT


def with_wrapper(circuit: Circuit, package: Package) -> list[Circuit]:
    """Return a circuit and its bus wrapper, which ``package`` writes."""
    verilog = circuit.files[f"{circuit.top}.v"].decode()
    return [circuit, Circuit(package.shell.wrapper(circuit.top), package.module, package.files(), verilog)]


def network(model: str, board: str, **options: Any) -> list[Circuit]:
    """Return the accelerator of a model's plan and its bus wrapper, with their files as `hwgen build` writes them."""
    design = hwgen.load(model).plan(board, **options)
    config, device = design.plan.configs()[0], design.board.family
    files = emitted.files(config, top=TOP, device=device)
    circuit = Circuit(emitted.accelerator(config), TOP, files, device=device)
    return with_wrapper(circuit, AcceleratorPackage(shell=wrapper.shell_of(config, files), top=TOP))


def small_engine() -> list[Circuit]:
    """Return an engine of the smallest usual sizes, with all components, and its bus wrapper."""
    config = EngineConfig(maps=16, pixels=5, map_words=64, weight_steps=64, slots=4)
    circuit = Circuit(Engine(config), ENGINE, engine_files(config))
    shell = shell_of(config, MemoryTiming(), circuit.files)
    return with_wrapper(circuit, EnginePackage(shell=shell, top=ENGINE))


#: Design by name: a function that returns its circuits.
DESIGNS: dict[str, Callable[[], list[Circuit]]] = {
    "digits": lambda: network(DIGITS, "zedboard"),
    "digits, products in slices": lambda: network(DIGITS, "zedboard", multipliers="dsp"),
    "resnet8": lambda: network("resnet8", "zedboard"),
    "digits on kv260": lambda: network(DIGITS, "kv260", multipliers="dsp", dsp=60),
    "digits, pyramids of 1 x 1": lambda: network(
        DIGITS, "vc709", multipliers="dsp", template="pyramid", tile=(1, 1), overlap="reuse"
    ),
    "engine": small_engine,
}


def compared(circuits: Sequence[Circuit], folder: Path) -> list[Verdict]:
    """Return the verdict on each module of a design's circuits."""
    return [
        verdict
        for circuit in circuits
        for verdict in compare(
            circuit.component, circuit.top, circuit.files, folder, circuit.device, outside=circuit.outside
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", default=list(DESIGNS))
    unequal = []
    print(f"{'design':28} {'modules':>8} {'equal':>8} {'registers':>10} {'products':>9} {'seconds':>8}")
    for name in parser.parse_args().name:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            verdicts = compared(DESIGNS[name](), Path(folder))
        equal = [verdict for verdict in verdicts if verdict.result == EQUAL]
        unequal += [(name, verdict) for verdict in verdicts if verdict.result != EQUAL]
        registers, products = (sum(getattr(verdict, key) for verdict in verdicts) for key in ("registers", "products"))
        seconds = time.monotonic() - begin
        print(f"{name:28} {len(verdicts):8} {len(equal):8} {registers:10} {products:9} {seconds:8.0f}", flush=True)
    for name, verdict in unequal:
        print(f"{name}: {verdict.module} is {verdict.result}: {verdict.reason}")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
