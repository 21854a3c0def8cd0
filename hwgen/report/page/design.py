"""Sections of the report page about a plan: figures, drawing of the network, table, resources, memory, roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multipliers import multiplier_of
from hwgen.network import host
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.plan.plan import Plan, rate_text
from hwgen.report import legend
from hwgen.report.page.engine import of_group, of_plan
from hwgen.report.page.sections import span
from hwgen.report.plan import HEAD, rows, summary
from hwgen.templates.base import Group
from hwgen.templates.layers import LayerPlan

#: Names of a board's resources on the report page, by their names as attributes.
RESOURCES = {"dsp": "DSP slices", "bram36": "block RAMs (36 kbit)", "lut": "LUTs", "ff": "flip-flops"}

_MEMORIES = {"lut": "LUT RAM", "block": "block RAM", "ultra": "UltraRAM", "stream": "off chip, loaded for each run"}


def document(plan: Plan, ends: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary of the contents of the report page's sections about a plan, as JSON-like values by name.

    Parameters
    ----------
    plan : Plan
        Plan to show.
    ends : mapping
        Inputs and outputs of the hardware, as `host.describe` returns them.
    """
    board, used, sections = plan.board, plan.resources, of_plan(plan)
    return {
        "model": plan.network.name,
        "about": _network_summary(plan),
        "board": {
            "name": board.name,
            "text": board.description,
            "device": board.device,
            "part": board.part,
            "clock_mhz": board.clock_mhz,
            "memory_gb_s": board.memory_gb_s,
        },
        "figures": _figures(plan),
        "network": _drawing(plan),
        "tables": [
            {
                "head": [{"name": name, "says": ""} for name in HEAD]
                + [{"name": name, "says": says} for name, says in columns.items()],
                "groups": [{"template": group.template.name, "rows": rows(group)} for group in groups],
            }
            for columns, groups in _by_columns(plan)
        ],
        "notes": summary(plan),
        "resources": {
            "names": RESOURCES,
            "board": {key: getattr(board, key) for key in RESOURCES},
            "used": used.as_dict(),
            "layers": [
                {"name": name, **used.as_dict()}
                for group in plan.groups
                for name, used in of_group(group).resources(group, plan)
            ],
        },
        "traffic": sections.traffic(plan),
        "once": sections.bar,
        "engine": sections.engine(plan.groups[0]),
        "operands": [_operands(*of, plan) for group in plan.groups if group.template.streams for of in _layers(group)],
        "roofline": _roofline(plan),
        "ends": _boundary_tensors(ends),
        "host": host.operators_line(plan.network) or "on the host: nothing",
    }


def _network_summary(plan: Plan) -> str:
    """Return a line with the network's numbers of layers, MACs per frame and weights."""
    network = plan.network
    layers = f"{len(network.layers):,} {'layer' if len(network.layers) == 1 else 'layers'}"
    return f"{layers}, {network.macs:,} multiply-adds per frame, {network.weight_count:,} weights"


def _by_columns(plan: Plan) -> list[tuple[Mapping[str, str], list[Group]]]:
    """Return a list of pairs: columns' meanings by name, and consecutive groups whose plan tables have them."""
    found = groupby(plan.groups, key=lambda group: legend.of(group.template.name)[0])
    return [(columns, list(groups)) for columns, groups in found]


def _layers(group: Group) -> list[tuple[LayerPlan, LayerConfig, Op]]:
    return list(zip(group.layers, group.config.layers, group.network.layers, strict=True))


def _figures(plan: Plan) -> list[dict[str, str]]:
    """Return a list of the plan's main figures (rates, latency, traffic ..), dicts of name, value and text."""
    clock, used, board = plan.board.clock_mhz, plan.resources, plan.board
    figures = []
    if plan.interval and plan.frame_rate:
        bounded_by, cycles = max(plan.bounds.items(), key=lambda bound: bound[1])
        text = f"one per {cycles:,} cycles, bounded by the {bounded_by}"
        figures.append({"name": "frames per second", "value": rate_text(plan.frame_rate), "text": text})
        macs = plan.network.macs / plan.interval * clock / 1000
        share = plan.network.macs / (plan.interval * max(used.dsp, 1))
        figures.append({"name": "GMAC/s", "value": f"{macs:,.3g}", "text": f"{share:.2f} MAC per slice and cycle"})
    figures.insert(1, {"name": "latency", "value": _time(plan.latency / clock), "text": f"{plan.latency:,} cycles"})
    moved = sum(plan.traffic_bytes.values())
    figures.append({"name": "off chip", "value": _size(moved), "text": f"{moved:,} bytes per frame"})
    for key, name in (
        ("dsp", "DSP"),
        ("bram36", "block RAM"),
        ("uram", "UltraRAM"),
        ("lut", "LUT"),
        ("ff", "flip-flops"),
    ):
        value, available = getattr(used, key), getattr(board, key)
        if not available:
            continue
        figures.append({"name": name, "value": f"{value / available:.0%}", "text": f"{value:,g} of {available:,}"})
    return figures


def _time(microseconds: float) -> str:
    return f"{microseconds:.3g} µs" if microseconds < 1000 else f"{microseconds / 1000:.4g} ms"


def _size(count: int) -> str:
    unit = next((unit for unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= unit[0]), (1, "B"))
    return f"{count / unit[0]:.3g} {unit[1]}"


def _drawing(plan: Plan) -> dict[str, Any]:
    """Return the network's drawing, a dictionary: ``nodes`` with facts to show, ``edges``, ``groups`` (templates)."""
    network = plan.network
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    entering: dict[str, str] = {}  # node that each edge leaves which enters a group
    for input_index, (edge, source) in enumerate(zip(network.inputs, network.input_maps, strict=True)):
        entering[edge] = f"in {input_index}"
        nodes.append(_node(entering[edge], network.input_names[input_index], "input", source))
    own, done = {layer.name for layer in network.layers}, 0
    for group_index, group in enumerate(plan.groups):
        if done:  # a single map crosses the cut before a group
            entering = dict.fromkeys(group.network.inputs, f"layer {network.crossing(done)[0]}")
        known = _facts_of(group)
        for node, taken in zip(group.network.layers, group.network.edges, strict=True):
            nodes.append(_node(f"layer {node.name}", node.name, node.kind, node.output, group_index, known[node.name]))
            for edge, source in zip(taken, node.inputs, strict=True):
                edges.append(_edge(entering.get(edge, f"layer {edge}"), f"layer {node.name}", source))
            done += node.name in own
    maps = {layer.name: layer.output for layer in network.layers}
    for output_index, name in enumerate(network.output_layers):
        nodes.append(_node(f"out {output_index}", network.output_names[output_index], "output", maps[name]))
        edges.append(_edge(f"layer {name}", f"out {output_index}", maps[name]))
    return {"nodes": nodes, "edges": edges, "groups": [group.template.name for group in plan.groups]}


def _node(
    key: str, name: str, kind: str, carried: FeatureMap, group: int | None = None, facts: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    node = {"id": key, "name": name, "kind": kind, "shape": _shape(carried), "group": group, "facts": list(facts)}
    return node if facts else {**node, "facts": [(kind, str(carried))]}


def _edge(source: str, sink: str, carried: FeatureMap) -> dict[str, str]:
    return {"from": source, "to": sink, "shape": _shape(carried)}


def _facts_of(group: Group) -> dict[str, list[tuple[str, str]]]:
    """Return a dict of lists of (name, value) facts that a click on a layer in the drawing shows, by the layer's name.

    For a group without streams between layers they are the columns of the plan's table.
    """
    if group.template.streams:
        return {of[0].name: _facts(group, *of) for of in _layers(group)}
    columns = legend.of(group.template.name)[0]
    facts = {}
    for node, (_, _, _, *cells) in zip(group.network.layers, rows(group), strict=True):
        columns_of_node = [(name, cell) for name, cell in zip(columns, cells, strict=True) if cell]
        facts[node.name] = [*_maps(node), *columns_of_node]
    return facts


def _maps(node: Op) -> list[tuple[str, str]]:
    """Return a list of facts (name, value) about a layer's input maps, output map, window and weights."""
    facts = [("inputs", " and ".join(map(str, node.inputs))), ("output", str(node.output))]
    if node.window.taps > 1 or max(node.window.stride) > 1:
        facts.append(("window", _window(node)))
    if node.weight_count:
        facts.append(("weights", f"{node.weight_count:,} of {node.weight_bits} bits, {node.macs:,} MACs per frame"))
    return facts


def _facts(group: Group, plan: LayerPlan, layer: LayerConfig, node: Op) -> list[tuple[str, str]]:
    """Return a list of facts (name, value) about the hardware of a layer with streams, shown by a click on it."""
    facts = _maps(node)
    factors = f"Tn {plan.tn}, Tm {plan.tm}, Tk {plan.tk}, Tp {plan.tp}"
    facts.append(("unroll factors", f"{factors} (input channels, output channels, taps, pixels)"))
    busy = layer.cycles / group.slowest_cycles
    facts.append(("cycles per frame", f"{layer.cycles:,}, {busy:.0%} of the slowest layer's"))
    facts.append(("pipeline", f"{layer.pipeline_latency:,} cycles from a fold's start to its first beat"))
    if layer.multipliers:
        detail = multiplier_of(plan.macs_per_dsp).detail
        facts.append(("DSP slices", f"{layer.multipliers:,}{detail}"))
    if plan.lut_lanes:
        facts.append(("products in LUTs", f"of {plan.lut_lanes} of {plan.tm} output channels at once"))
    if layer.has_line_buffer:
        facts.append(("line buffer", f"{plan.line_rows} rows"))
    for reader, fifo in zip(_readers(group, layer), layer.fifos, strict=True):
        memory = _MEMORIES[fifo.memory]
        facts.append((f"FIFO to {reader}", f"{fifo.depth:,} beats of {fifo.width} bits, in {memory}"))
    facts.append(("resources", _resources_text(layer.resources)))
    return facts


def _resources_text(used: Resources) -> str:
    uram = f"{used.uram:,} URAM, " if used.uram else ""
    return f"{used.dsp:,} DSP, {used.bram36:g} BRAM36, {uram}{used.lut:,} LUT, {used.ff:,} FF (estimated)"


def _readers(group: Group, layer: LayerConfig) -> list[str]:
    """Return a list with, per output FIFO of a layer, the name of the layer that reads it, or ``the output``."""
    layers = group.config.layers
    index = next(position for position, candidate in enumerate(layers) if candidate is layer)
    links = [link for link in group.config.links if link.source == index]
    return [layers[link.sink].name if link.sink < len(layers) else "the output" for link in links]


def _window(node: Op) -> str:
    window = node.window
    said = f"{window.kernel[0]} x {window.kernel[1]}"
    if max(window.stride) > 1:
        said += f", stride {window.stride[0]} x {window.stride[1]}"
    if max(window.dilation) > 1:
        said += f", dilation {window.dilation[0]} x {window.dilation[1]}"
    if any(window.padding):
        said += ", padding " + " ".join(map(str, window.padding)) + " (top, left, bottom, right)"
    return said + (f", {node.groups} groups" if node.groups > 1 else "")


def _shape(source: FeatureMap) -> str:
    return " x ".join(map(str, source.shape))


def _operands(plan: LayerPlan, layer: LayerConfig, node: Op, whole: Plan) -> dict[str, Any]:
    """Return a dictionary of the sizes and memory kinds of a layer's weights, line buffer and FIFOs."""
    memory = layer.compute.weight_memory
    weights = None
    if memory is not None:
        where = "stream" if whole.placement.loads_weights else memory
        weights = {"bits": node.weight_count * node.weight_bits, "place": _MEMORIES[where]}
    lines = None
    if layer.has_line_buffer:
        beat = layer.window.input
        bits = plan.line_rows * beat.width * beat.channels * beat.bits
        banks = getattr(layer.window, "banks", None)
        lines = {"bits": bits, "rows": plan.line_rows, "place": "" if banks is None else _MEMORIES[banks.memory]}
    return {
        "name": plan.name,
        "weights": weights,
        "lines": lines,
        "fifos": [
            {"bits": fifo.depth * fifo.width, "depth": fifo.depth, "place": _MEMORIES[fifo.memory]}
            for fifo in layer.fifos
        ],
    }


def _roofline(plan: Plan) -> dict[str, Any]:
    """Return a dictionary for the roofline chart: peaks of board and plan, points of groups and unfused layers.

    The plan's peak is set by its multipliers, in DSP slices and in LUTs. The board's peak uses all its slices and, if
    the plan multiplies in LUTs, all its LUTs with as many products per LUT as in the plan.

    Intensities are in MACs per byte off chip, rates in GMAC/s. A group has its rate while it runs. A layer has the rate
    of the frame, at the intensity that it would have if its maps were moved off chip. On an engine each layer has its
    own rate.
    """
    board, clock = plan.board, plan.board.clock_mhz / 1000
    packed = max((multiplier_of(layer.macs_per_dsp).lanes for layer in plan.layers), default=1)
    products = [of_group(group).products(group) for group in plan.groups]
    in_luts = max(group_products.in_luts for group_products in products)
    all_luts = in_luts * board.lut / max(plan.resources.lut, 1)
    peak = max(board.dsp * packed + all_luts, *(each.total for each in products))
    interval = plan.interval or plan.latency + 1
    points = []
    for group in plan.groups:
        cycles = interval if len(plan.groups) == 1 else group.frame_cycles
        moved = sum(group.traffic_bytes(plan.placement.loads_weights).values())
        points.append(_point("group", span(group), group.network.macs, moved, cycles, clock))
        points += [_point("layer", *layer, clock) for layer in of_group(group).points(group, cycles)]
    return {
        "peak": peak * clock,
        "used": max(each.total for each in products) * clock,
        "packed": packed,
        "memory_gb_s": board.memory_gb_s,
        "port_gb_s": of_plan(plan).port_gb_s(plan.groups[0], board.clock_mhz),
        "points": [point for point in points if point["rate"]],
    }


def _point(kind: str, name: str, macs: int, moved: int, cycles: int, clock: float) -> dict[str, Any]:
    intensity = macs / max(moved, 1)
    return {"kind": kind, "name": name, "macs": macs, "bytes": moved, "x": intensity, "rate": macs / cycles * clock}


def _boundary_tensors(ends: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a list of the hardware's input and output tensors: dicts of name, shape, type, scale, zero point."""
    taken: Sequence[Mapping[str, Any]] = ends.get("inputs") or [ends["input"]]
    delivered: Sequence[Mapping[str, Any]] = ends.get("outputs") or [ends["output"]]
    return [
        {
            "end": end,
            "name": str(tensor["name"]),
            "shape": " x ".join(map(str, tensor["shape"])),
            "type": str(tensor["type"]),
            "scale": "not stated" if tensor["scale"] is None else f"{tensor['scale']:.6g}",
            "zero_point": str(tensor["zero_point"]),
        }
        for end, tensors in (("input", taken), ("output", delivered))
        for tensor in tensors
    ]
