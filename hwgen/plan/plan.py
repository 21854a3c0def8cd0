"""The fusion plan: which hardware each layer gets, as data that can be written, edited and read back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from hwgen.boards import Board
from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import Network
from hwgen.plan.compose import compose
from hwgen.plan.resources import Resources, estimate
from hwgen.plan.schedule import Cycles, steady_cycles


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The choices for one layer.

    Parameters
    ----------
    name, kind : str
        As in the network.
    tn, tm, tk, tp : int
        Unroll factors: input channels, output channels, kernel taps and output pixels a cycle.
    chain : int
        DSP slices in a chain at most.
    line_rows : int
        Rows the line buffer holds.
    fifo_depth : int
        Credits of the FIFO behind the layer.
    macs_per_dsp : int
        Multiply-adds of a DSP slice in a cycle; a pool has none.
    """

    name: str
    kind: str
    tn: int
    tm: int
    tk: int
    chain: int
    line_rows: int
    fifo_depth: int
    tp: int = 1
    macs_per_dsp: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A fusion plan of one group, for one network on one board.

    Parameters
    ----------
    network : Network
    board : Board
    layers : tuple of LayerPlan
        One for each layer of the network, in order.
    dsp : int
        DSP slices it may use.
    cycles : Cycles
        What the exact schedule of these choices says.

    Raises
    ------
    PlanError
        If the layers are not the network's, or need more than there is.
    """

    network: Network
    board: Board
    layers: tuple[LayerPlan, ...]
    dsp: int
    cycles: Cycles

    @property
    def latency(self) -> int:
        """Cycles from the first input to the last output of one frame."""
        return self.cycles.latency

    @property
    def interval(self) -> int | None:
        """Cycles between frames that follow each other."""
        return self.cycles.interval

    def predict(self, frames: int) -> Cycles:
        """Cycles of a run of so many frames, back to back; the interval of a short one may not be the steady one."""
        return steady_cycles(self.configure(), frames)

    @property
    def name(self) -> str:
        return f"{self.network.name}-{self.board.name}"

    def configure(self) -> AcceleratorConfig:
        """The hardware that the plan describes."""
        return compose(self.network, self.layers)

    @property
    def resources(self) -> Resources:
        return estimate(self.configure())

    def to_json(self) -> str:
        """The plan as ``plan.json`` holds it."""
        config = self.configure()
        layers = []
        for plan, layer in zip(self.layers, config.layers, strict=True):
            layers.append(
                {
                    "name": plan.name,
                    "kind": plan.kind,
                    "unroll": {"in": plan.tn, "out": plan.tm, "taps": plan.tk, "pixels": plan.tp},
                    "macs_per_dsp": 1,
                    "chain": plan.chain,
                    "weights": layer.weights,
                    "line_rows": plan.line_rows,
                    "cycles": layer.cycles,
                    "multipliers": layer.multipliers,
                }
            )
        names = [plan.name for plan in self.layers]
        fifos = [
            {"from": source, "to": sink, "depth": plan.fifo_depth, "width": layer.fifo.width}
            for source, sink, plan, layer in zip(names, [*names[1:], "output"], self.layers, config.layers, strict=True)
        ]
        document = {
            "model": self.network.name,
            "board": self.board.name,
            "groups": [{"template": "stream", "layers": layers, "tile": None, "overlap": None, "fifos": fifos}],
            "cycles": {"latency": self.latency, "interval": self.interval},
            "resources": self.resources.as_dict(),
            "traffic_bytes": self.traffic_bytes,
        }
        return json.dumps(document, indent=2) + "\n"

    @property
    def traffic_bytes(self) -> dict[str, int]:
        """Off-chip traffic of one frame: the input read and the output written, once each; weights stay on chip."""
        maps = (self.network.input, self.network.output)
        return {"feature_maps": sum(fm.values * fm.type.dtype.itemsize for fm in maps), "weights": 0}

    def table(self) -> str:
        """The plan for people."""
        config = self.configure()
        head = ("layer", "kind", "output", "Tn", "Tm", "Tk", "Tp", "mult", "rows", "FIFO", "cycles", "busy")
        rows: list[tuple[str, ...]] = [head]
        slowest = max(layer.cycles for layer in config.layers)
        for plan, layer, node in zip(self.layers, config.layers, self.network.layers, strict=True):
            rows.append(
                (
                    plan.name,
                    plan.kind,
                    "x".join(str(size) for size in node.output.shape),
                    str(plan.tn),
                    str(plan.tm),
                    str(plan.tk),
                    str(plan.tp),
                    str(layer.multipliers),
                    str(plan.line_rows),
                    f"{plan.fifo_depth}x{layer.fifo.width}",
                    f"{layer.cycles:,}",
                    f"{layer.cycles / slowest:.0%}",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(width) if column < 3 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        used = self.resources
        interval = "" if self.interval is None else f", interval {self.interval:,} cycles"
        lines += [
            "",
            f"one frame: latency {self.latency:,} cycles{interval}",
            f"{self.board.name} ({self.board.device}): DSP {used.dsp} of {self.board.dsp}, "
            f"BRAM36 {used.bram36:g} of {self.board.bram36}, "
            f"LUT {used.lut:,} of {self.board.lut:,}, FF {used.ff:,} of {self.board.ff:,} (LUT and FF estimated)",
        ]
        return "\n".join(lines)


def finish(network: Network, board: Board, layers: tuple[LayerPlan, ...], dsp: int) -> Plan:
    """A plan of these choices, with its exact cycles; refused if the board lacks what it needs.

    Raises
    ------
    PlanError
    """
    config = compose(network, layers)
    check_budget(estimate(config), board, dsp)
    return Plan(network=network, board=board, layers=layers, dsp=dsp, cycles=steady_cycles(config))


def check_budget(used: Resources, board: Board, dsp: int) -> None:
    """Refuse what the board can't hold.

    Raises
    ------
    PlanError
        Naming the resource that runs out.
    """
    if used.dsp > dsp:
        raise PlanError(f"plan needs {used.dsp} DSP slices, but {dsp} may be used on {board.name}: lower the unroll")
    for name, needed, there in (
        ("BRAM36", used.bram36, board.bram36),
        ("LUTs", used.lut, board.lut),
        ("flip-flops", used.ff, board.ff),
    ):
        if needed > there:
            raise PlanError(
                f"plan needs {needed:{'g' if name == 'BRAM36' else ','}} {name}, but {board.name} ({board.device}) has "
                f"{there:,}: take fewer layers, fewer DSP slices or a larger board"
            )


def read(text: str, network: Network, board: Board) -> Plan:
    """A plan from the text of a ``plan.json``; keys it doesn't know are ignored.

    Raises
    ------
    PlanError
        If it is not a plan, not of this network, or can't work on this board.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"plan is not JSON: {error.msg} in line {error.lineno}") from None
    groups = _field(document, "groups", list, "plan")
    if len(groups) != 1:
        raise PlanError(f"plan must have one group (several are not buildable yet), not {len(groups)}")
    group = groups[0]
    template = _field(group, "template", str, "plan group")
    if template != "stream":
        raise PlanError(f"plan group's template must be 'stream', not {template!r}")
    entries = _field(group, "layers", list, "plan group")
    names = [_field(entry, "name", str, "plan layer") for entry in entries]
    expected = [layer.name for layer in network.layers]
    if names != expected:
        different = next(
            (
                f"{has!r} where the network has {wants!r}"
                for has, wants in zip(names, expected, strict=False)
                if has != wants
            ),
            f"{len(names)} layers where the network has {len(expected)}",
        )
        raise PlanError(f"plan does not fit network {network.name}: it has {different}")
    fifos = _field(group, "fifos", list, "plan group")
    depths = {_field(fifo, "from", str, "plan FIFO"): _field(fifo, "depth", int, "plan FIFO") for fifo in fifos}
    layers = []
    for entry, layer in zip(entries, network.layers, strict=True):
        where = f"plan layer {layer.name}"
        unroll = _field(entry, "unroll", dict, where)
        if layer.name not in depths:
            raise PlanError(f"plan lacks the FIFO from {layer.name}")
        if entry.get("macs_per_dsp", 1) != 1:
            raise PlanError(
                f"{where}: macs_per_dsp must be 1 (more is not buildable yet), not {entry['macs_per_dsp']!r}"
            )
        layers.append(
            LayerPlan(
                name=layer.name,
                kind=layer.kind,
                tn=_field(unroll, "in", int, where),
                tm=_field(unroll, "out", int, where),
                tk=_field(unroll, "taps", int, where),
                tp=_field(unroll, "pixels", int, where) if "pixels" in unroll else 1,
                chain=_field(entry, "chain", int, where),
                line_rows=_field(entry, "line_rows", int, where),
                fifo_depth=depths[layer.name],
            )
        )
    try:
        return finish(network, board, tuple(layers), board.dsp)
    except ConfigError as error:
        raise PlanError(f"plan can't work: {error}") from None


def _field(document: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(document, dict):
        raise PlanError(f"{where} must be an object, not {type(document).__name__}")
    if key not in document:
        raise PlanError(f"{where} lacks {key!r}")
    value = document[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanError(f"{where}: {key} must be of type {kind.__name__}, not {value!r}")
    return value


def with_buffers(layers: tuple[LayerPlan, ...], rows: list[int], depths: list[int]) -> tuple[LayerPlan, ...]:
    """The same choices with other line buffers and FIFOs."""
    return tuple(
        replace(layer, line_rows=row, fifo_depth=depth) for layer, row, depth in zip(layers, rows, depths, strict=True)
    )
