"""Worst logic delays: what Yosys' timing analysis (``sta``) says of a synthesised component.

``sta`` knows the delays of a family's cells (Yosys carries figures for some families), and nothing of wires, which take
about as long again. So a delay found here is a lower bound of one, and says nothing of a clock's frequency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.devices import DEFAULT, Device
from hwgen.report.table import columns

#: What a table of delays says of itself.
NOTE = "Delays are of cells alone: wires are not in them, so they are no clock period and give no clock frequency."

#: File in which `script` leaves what `parse` reads.
FILE = "paths.txt"


@dataclass(frozen=True)
class LogicPath:
    """The path through a component whose cells take longest.

    Parameters
    ----------
    delay : float
        Of its cells, in ns: from the clock edge, or from an input of the component, to a register's own setup time, or
        to an output of the component.
    start, end : str
        Register, memory or port.
    """

    delay: float
    start: str
    end: str

    def as_dict(self) -> dict[str, float | str]:
        return {"delay_ns": self.delay, "from": self.start, "to": self.end}


def script(device: Device) -> str:
    """Return the commands of Yosys that analyse all modules of a synthesised design.

    The netlist is read back as text, because synthesis has taken the delays out of some of the cells that it knows.
    """
    return (
        "rename -wire; write_verilog -noattr netlist.v; design -reset; "
        f"read_verilog -specify -lib {' '.join(device.yosys.timing_libraries)}; read_verilog netlist.v; "
        f"tee -o {FILE} sta"
    )


_LATEST = re.compile(r"^Latest arrival time in '([^']*)' is (\d+):$", re.MULTILINE)
_STEP = re.compile(r"^ *\d+ +(?:(\S.*) )?\(([^()]*)\)$")
_NET = re.compile(r"^ {11}(\S.*)$")


def parse(text: str, device: Device = DEFAULT) -> dict[str, LogicPath]:
    """Return the path of each module that has one, by the module's name, from what ``sta`` prints.

    It begins with the end: each step has the time and the cell with its pins, the line below it the net that comes in.
    """
    found = {}
    for latest in _LATEST.finditer(text):
        steps: list[tuple[str, str]] = []
        nets: list[str] = []
        for line in text[latest.end() :].splitlines()[1:]:
            if step := _STEP.match(line):
                steps.append((step[1] or "", step[2]))
            elif net := _NET.match(line):
                nets.append(_plain(net[1]))
            elif not line.startswith("Warning"):
                break
        if steps:
            found[latest[1]] = LogicPath(
                delay=int(latest[2]) / 1000, start=_start(steps, device), end=_end(steps, nets, device)
            )
    return found


def _start(steps: Sequence[tuple[str, str]], device: Device) -> str:
    """The register or memory whose clock begins the path, or the port."""
    (port, _), before = steps[-1], steps[-2] if len(steps) > 1 else None
    if before is not None and _is_clocked(before[1], device):
        return _cell(*before, device)
    return f"input {_plain(port)}"


def _is_clocked(pins: str, device: Device) -> bool:
    """Whether a step such as ``FDRE.C->Q`` begins at a clock pin."""
    pin, arrow, _ = pins.rpartition(".")[2].partition("->")
    return bool(arrow) and device.yosys.clock_pins.fullmatch(pin) is not None


def _end(steps: Sequence[tuple[str, str]], nets: Sequence[str], device: Device) -> str:
    """The register, memory or slice that takes the value, or the port; ``sta`` also goes to where nothing does."""
    name, pins = steps[0]
    if pins == "<primary output>":
        return f"output {_plain(name)}"
    if pins.startswith("<"):  # the last bits of a carry chain
        return f"{nets[0]}, which nothing takes"
    if pins.startswith(device.multiplier_slice.cell):  # which Yosys names by number
        return f"{pins} behind {nets[0]}"
    return _cell(name, pins, device)


def _cell(name: str, pins: str, device: Device) -> str:
    """A cell as its register or memory is called; its kind, where that is not plain to see."""
    kind, _, pin = pins.partition(".")
    name = _plain(name)
    if kind in device.yosys.flip_flops:
        pin = pin.partition("->")[0]
        return name if pin in ("C", "D") else f"{name} ({pin})"
    return f"{name} ({kind if '->' in pin else pins})"


def _plain(name: str) -> str:
    r"""A name of Yosys' without what it adds: ``\a.b [3]`` and ``a.b[3]\FDRE`` are ``a.b[3]``."""
    return re.sub(r"\\[A-Z]\w*$", "", name.removeprefix("\\")).replace(" ", "")


def table(paths: Sequence[tuple[str, LogicPath | None]]) -> str:
    """The worst path of each component, for people; components without one have a dash."""
    head = ("component", "logic [ns]", "from", "to")
    lines: list[tuple[str, ...]] = [head]
    for name, path in paths:
        lines.append((name, "-", "", "") if path is None else (name, f"{path.delay:.2f}", path.start, path.end))
    return "\n".join([*columns(lines, left=(0, 2, 3), rules=(1,)), "", NOTE])
