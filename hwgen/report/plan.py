"""Writer of a plan as a text table and as a report in Markdown."""

from __future__ import annotations

import html
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from hwgen import printable
from hwgen.gateware.multipliers import MULTIPLIERS, multiplier_of
from hwgen.network import floats, host
from hwgen.plan.plan import Plan, rate_text
from hwgen.report import legend
from hwgen.report.table import columns
from hwgen.templates.base import Group

HEAD = ("layer", "kind", "output")


def table(plan: Plan) -> str:
    """Return a plan as text: a line per layer, the columns' meanings, cycles, and use of the board."""
    lines: list[str] = []
    for (names, under), groups in groupby(plan.groups, key=lambda group: legend.of(group.template.name)):
        table_rows: list[tuple[str, ...]] = [(*HEAD, *names)]
        begins = []
        for group in groups:
            begins.append(len(table_rows))
            table_rows += rows(group)
        lines += [*columns(table_rows, left=range(3), rules=begins), "", *under, ""]
    return "\n".join([*lines, *summary(plan)])


def markdown(plan: Plan, ends: Mapping[str, Any]) -> str:
    """Return a plan's Markdown report as text: the plan's table, and the hardware's input and output tensors.

    Parameters
    ----------
    plan : Plan
        Plan to report.
    ends : mapping
        Inputs and outputs of the hardware, as `host.describe` returns them.
    """
    board = plan.board
    lines = [
        f"# {_text(plan.network.name)} on {board.name}",
        "",
        f"{board.description} ({board.part}), at {board.clock_mhz:g} MHz.",
        "",
        "```",
        table(plan).rstrip("\n"),
        "```",
        "",
        "Cycles are exact when neither end stalls.",
        "",
        "## Input and output",
        "",
        "| | tensor | frame | type | scale | zero point |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    reordered: list[str] = []
    taken = [(f"input {tensor['name']}", tensor) for tensor in ends.get("inputs", ())] or [("input", ends["input"])]
    several = [(f"output {tensor['output']}", tensor) for tensor in ends.get("outputs", ())]
    for label, tensor in [*taken, *(several or [("output", ends["output"])])]:
        end = _cell(label)
        name = _cell(tensor["name"])
        scale = "not stated" if tensor["scale"] is None else f"{np.float32(tensor['scale'])!s}"
        shape = " x ".join(map(str, tensor["shape"]))
        lines.append(f"| {end} | {name} | {shape} | {tensor['type']} | {scale} | {tensor['zero_point']} |")
        if "map" in tensor:
            sizes = " x ".join(map(str, tensor["map"]))
            reordered.append(f"{name} travels as {sizes} (channels, rows, columns)")
    said = host.operators_line(plan.network) or "on the host: nothing"
    if part := host.part_line(plan.network):
        lines += ["", f"This is {_text(part)}."]
    if in_floats := floats.summary_line(plan.network.in_floats, plan.network.layers):
        lines += ["", f"{_text(in_floats)}."]
    lines += ["", f"An integer stands for scale * (integer - zero point). {said[0].upper()}{_text(said[1:])}.", ""]
    if reordered:
        lines += [f"On the wires: {'; '.join(reordered)}.", ""]
    return printable.text("\n".join(lines))


def _cell(text: str) -> str:
    """Return a name as one cell of a Markdown table: on one line, with ``|`` and HTML escaped."""
    return _text(" ".join(text.replace("|", "\\|").split()))


def _text(text: str) -> str:
    """Return a text for Markdown with ``<`` and ``&`` escaped, so that they begin no HTML."""
    return html.escape(text, quote=False)


def rows(group: Group) -> list[tuple[str, ...]]:
    """Return, as a list, a fusion group's rows in the plan's table, one tuple of cells per layer."""
    return group.template.rows(group) or _layer_rows(group)


def _layer_rows(group: Group) -> list[tuple[str, ...]]:
    slowest = group.slowest_cycles
    return [
        (
            plan.name,
            plan.kind,
            "x".join(str(size) for size in node.output.shape),
            str(plan.tn),
            str(plan.tm),
            str(plan.tk),
            str(plan.tp),
            f"{layer.multipliers}{multiplier_of(plan.macs_per_dsp).mark}",
            f"{layer.resources.lut:,}",
            str(plan.line_rows),
            f"{'+'.join(map(str, plan.fifo_depths))}x{layer.fifos[0].width}",
            f"{layer.cycles:,}",
            f"{layer.cycles / slowest:.0%}",
        )
        for plan, layer, node in zip(group.layers, group.config.layers, group.network.layers, strict=True)
    ]


def _seconds(plan: Plan) -> list[str]:
    """Return a list of lines: a plan's latency (ms) and frame rate at the board's clock, and frame-rate limits.

    Only synthesis shows whether the design reaches this clock.
    """
    clock = plan.board.clock_mhz
    text = f"at {clock:g} MHz: latency {plan.latency / clock / 1000:.4g} ms"
    if plan.frame_rate is None:
        return [text]
    lines = [f"{text}, {rate_text(plan.frame_rate)} frames per second"]
    if len(plan.bounds) > 1:
        rates = [f"{name} {rate_text(clock * 1e6 / max(cycles, 1))}" for name, cycles in plan.bounds.items()]
        lines.append(f"frame-rate limits (the lowest applies): {', '.join(rates).replace('words on the bus', 'bus')}")
    return lines


def _memory_lines(plan: Plan) -> list[str]:
    """Return a list of lines that name layers with memories in LUTs or UltraRAM, or with joined memories."""
    lines = []
    for where, title in (("lut", "LUTs"), ("ultra", "UltraRAM")):
        names_of = {
            "line buffers": [layer.name for layer in plan.layers if layer.line_in == where],
            "output FIFOs": [layer.name for layer in plan.layers if where in layer.fifos_in],
            "weights": [layer.name for layer in plan.layers if layer.weights_in == where],
        }
        if moved := [f"{memory} {', '.join(names)}" for memory, names in names_of.items() if names]:
            lines.append(f"in {title} instead of block RAM: {'; '.join(moved)}")
    if any(layer.weights_in == "ultra" for layer in plan.layers):
        lines.append("UltraRAM has no initial contents: load the weights before the first frame")
    if joined := [layer.name for layer in plan.layers if layer.weights_joined]:
        lines.append(f"weights of several lanes in each word of one memory: {', '.join(joined)}")
    return lines


def _lut_products(plan: Plan) -> list[str]:
    """Return a list with a line that names layers that multiply in LUTs, and for how many output channels."""
    layers = [layer for layer in plan.layers if layer.lut_lanes]
    names = [
        layer.name if layer.lut_lanes == layer.tm else f"{layer.name} ({layer.lut_lanes} of {layer.tm} channels)"
        for layer in layers
    ]
    return [f"products in LUTs: {', '.join(names)}"] if names else []


def summary(plan: Plan) -> list[str]:
    """Return a list of text lines below a plan's table: cycles, use of the board, off-chip bytes, notes."""
    lines = []
    with_marks = (group for group in plan.groups if "DSP" in legend.of(group.template.name)[0])
    chosen = {layer.macs_per_dsp for group in with_marks for layer in group.layers}
    legends = [multiplier.legend for name, multiplier in MULTIPLIERS.items() if name in chosen and multiplier.legend]
    lines += dict.fromkeys(legends)  # kinds with the same mark share a legend
    for group in plan.groups:
        lines += group.template.summary(group)
    interval = "" if plan.interval is None else f", interval {plan.interval:,} cycles"
    lines.append(f"one frame: latency {plan.latency:,} cycles{interval}")
    used, board = plan.resources, plan.board
    lines += _seconds(plan)
    lines.append(
        f"{board.name} ({board.device}): DSP {used.dsp} of {board.dsp}, "
        f"BRAM36 {used.bram36:g} of {board.bram36}, {f'URAM {used.uram} of {board.uram}, ' if board.uram else ''}"
        f"LUT {used.lut:,} of {board.lut:,}, FF {used.ff:,} of {board.ff:,} (LUT and FF estimated)"
    )
    lines += filter(None, [board.family.note])
    lines += _lut_products(plan)
    lines += _memory_lines(plan)
    moved = plan.traffic_bytes
    text = f"off-chip traffic per frame: {moved['feature_maps']:,} bytes of feature maps"
    if moved["weights"]:
        text += f", {moved['weights']:,} bytes of weights"
    if plan.interval:
        rate = sum(moved.values()) / plan.interval * board.clock_mhz / 1000
        text += f"; {rate:.3g} of {board.memory_gb_s:g} GB/s at {board.clock_mhz:g} MHz"
    lines.append(text)
    in_floats = floats.summary_line(plan.network.in_floats, plan.network.layers)
    lines += filter(None, [host.operators_line(plan.network), host.part_line(plan.network), in_floats])
    lines += plan.notes
    if plan.obstacle:
        lines.append(f"cannot be built yet: {plan.obstacle}")
    return [printable.line(line) for line in lines]  # names of layers can hold anything
