"""Critical paths of synthesised components, found by Yosys' timing analysis ``sta``.

``sta`` adds up the delays of a family's cells. Yosys has figures for some families. The delays of wires, which are
about as long again, are missing. A delay of this module is therefore a lower bound, and gives no clock frequency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.devices import DEFAULT, Device
from hwgen.devices.flow import YosysFlow
from hwgen.report.table import columns

#: Note below a table of critical paths.
NOTE = "Delays are the cells' only, without wires, so they do not give a clock period or frequency."

#: File of the timing analysis, which the Yosys commands of `script` write and `parse` reads.
FILE = "paths.txt"

#: File of the cell models that Yosys lacks (`hwgen.devices.YosysFlow.timing_models`), which `script` reads.
MODELS = "models.v"


@dataclass(frozen=True)
class LogicPath:
    """Critical path of a synthesised component: the path with the largest sum of cell delays, in ns, without wires.

    Parameters
    ----------
    delay : float
        Delay of the cells, in ns. It begins at a clock edge or an input of the component. It ends at an output of the
        component, or at a register, whose setup time is included.
    start, end : str
        Register, memory or port at the beginning and at the end of the path.
    """

    delay: float
    start: str
    end: str

    def as_dict(self) -> dict[str, float | str]:
        """Return the critical path as a dict for ``hwgen synth --json``: delay in ns, start and end."""
        return {"delay_ns": self.delay, "from": self.start, "to": self.end}


def flow_of(device: Device) -> YosysFlow:
    """Return a `YosysFlow`: the Yosys settings of a device family, which must have some."""
    assert device.yosys is not None
    return device.yosys


def script(device: Device) -> str:
    """Return the Yosys commands that compute the critical paths of all modules of a synthesised design.

    The commands write the netlist as text and read it again, because synthesis removes the delays of some cells.
    """
    return (
        "rename -wire; write_verilog -noattr netlist.v; design -reset; "
        f"read_verilog -specify -lib {' '.join(flow_of(device).timing_libraries)}; "
        f"read_verilog -specify -lib -overwrite {MODELS}; read_verilog netlist.v; "
        f"tee -o {FILE} sta"
    )


_LATEST = re.compile(r"^Latest arrival time in '([^']*)' is (\d+):$", re.MULTILINE)
_STEP = re.compile(r"^ *\d+ +(?:(\S.*) )?\(([^()]*)\)$")
_NET = re.compile(r"^ {11}(\S.*)$")


def parse(text: str, device: Device = DEFAULT) -> dict[str, LogicPath]:
    """Return a dict of each module's critical `LogicPath` by module name, from the output of Yosys' ``sta``.

    A module without a path is left out. ``sta`` prints a path from its end to its start. The line of each step has the
    time and the cell with its pins, and the line below names the net at the cell's input.
    """
    critical_paths = {}
    for latest in _LATEST.finditer(text):
        steps: list[tuple[str, str]] = []
        nets: list[str] = []
        for line in text[latest.end() :].splitlines()[1:]:
            if step := _STEP.match(line):
                steps.append((step[1] or "", step[2]))
            elif net := _NET.match(line):
                nets.append(_source_name(net[1]))
            elif not line.startswith("Warning"):
                break
        if steps:
            critical_paths[latest[1]] = LogicPath(
                delay=int(latest[2]) / 1000, start=_start(steps, device), end=_path_end_name(steps, nets, device)
            )
    return critical_paths


def _start(steps: Sequence[tuple[str, str]], device: Device) -> str:
    """Return the name of the register, memory or input port where a critical path starts."""
    (port, _), before = steps[-1], steps[-2] if len(steps) > 1 else None
    if before is not None and _is_clocked(before[1], device):
        return _cell(*before, device)
    return f"input {_source_name(port)}"


def _is_clocked(pins: str, device: Device) -> bool:
    """Return whether a step of a timing path, such as ``FDRE.C->Q``, begins at a clock pin."""
    pin, arrow, _ = pins.rpartition(".")[2].partition("->")
    return bool(arrow) and flow_of(device).clock_pins.fullmatch(pin) is not None


def _path_end_name(steps: Sequence[tuple[str, str]], nets: Sequence[str], device: Device) -> str:
    """Return the name of the register, memory, DSP slice or output port where a critical path ends.

    ``sta`` also reports paths that end at an unconnected output of a carry chain.
    """
    name, pins = steps[0]
    if pins == "<primary output>":
        return f"output {_source_name(name)}"
    if pins.startswith("<"):  # the last bits of a carry chain
        return f"{nets[0]}, which is unused"
    if pins.startswith(device.multiplier_slice.cell):  # Yosys numbers DSP slices, so the net before names it
        return f"{pins} after {nets[0]}"
    return _cell(name, pins, device)


def _cell(name: str, pins: str, device: Device) -> str:
    """Return the source name of the register or memory that a Yosys cell implements, for a table of critical paths.

    The cell's type or pin is added where the cell is not plain.
    """
    cell_type, _, pin = pins.partition(".")
    name = _source_name(name)
    if cell_type in flow_of(device).flip_flops:
        pin = pin.partition("->")[0]
        return name if pin in ("C", "D") else f"{name} ({pin})"
    return f"{name} ({cell_type if '->' in pin else pins})"


def _source_name(name: str) -> str:
    r"""Return the source name in a Yosys name: ``\a.b [3]`` and ``a.b[3]\FDRE`` become ``a.b[3]``."""
    return re.sub(r"\\[A-Z]\w*$", "", name.removeprefix("\\")).replace(" ", "")


def table(paths: Sequence[tuple[str, LogicPath | None]]) -> str:
    """Return the critical paths of components as a text table. A component without a path has a dash."""
    head = ("component", "logic [ns]", "from", "to")
    lines: list[tuple[str, ...]] = [head]
    for name, path in paths:
        lines.append((name, "-", "", "") if path is None else (name, f"{path.delay:.2f}", path.start, path.end))
    return "\n".join([*columns(lines, left=(0, 2, 3), rules=(1,)), "", NOTE])
