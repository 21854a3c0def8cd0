"""A plan as a table for people."""

from __future__ import annotations

from hwgen import legend
from hwgen.network import host
from hwgen.plan.plan import Plan
from hwgen.templates.base import Group

_HEAD = ("layer", "kind", "output", *legend.COLUMNS)


def table(plan: Plan) -> str:
    """One line a layer; what the columns mean; then the cycles, and what the board has to give."""
    several = len(plan.groups) > 1
    rows = [_HEAD]
    begins = set()
    for group in plan.groups:
        begins.add(len(rows))
        rows += _rows(group)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    rule = "  ".join("-" * width for width in widths)
    lines = []
    for number, row in enumerate(rows):
        if number in begins if several else number == 1:
            lines.append(rule)
        lines.append(
            "  ".join(
                cell.ljust(width) if column < 3 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
    return "\n".join([*lines, "", *legend.UNDER_TABLE, "", *_summary(plan)])


def _rows(group: Group) -> list[tuple[str, ...]]:
    slowest = max(layer.cycles for layer in group.config.layers)
    return [
        (
            plan.name,
            plan.kind,
            "x".join(str(size) for size in node.output.shape),
            str(plan.tn),
            str(plan.tm),
            str(plan.tk),
            str(plan.tp),
            f"{layer.multipliers}" + ("*" if plan.macs_per_dsp > 1 else ""),
            str(plan.line_rows),
            f"{plan.fifo_depth}x{layer.fifo.width}",
            f"{layer.cycles:,}",
            f"{layer.cycles / slowest:.0%}",
        )
        for plan, layer, node in zip(group.layers, group.config.layers, group.network.layers, strict=True)
    ]


def _summary(plan: Plan) -> list[str]:
    lines = []
    if any(layer.macs_per_dsp > 1 for layer in plan.layers):
        lines.append("*: two multiply-adds a slice")
    for group in plan.groups:
        lines += group.template.summary(group)
    interval = "" if plan.interval is None else f", interval {plan.interval:,} cycles"
    lines.append(f"one frame: latency {plan.latency:,} cycles{interval}")
    used, board = plan.resources, plan.board
    lines.append(
        f"{board.name} ({board.device}): DSP {used.dsp} of {board.dsp}, "
        f"BRAM36 {used.bram36:g} of {board.bram36}, "
        f"LUT {used.lut:,} of {board.lut:,}, FF {used.ff:,} of {board.ff:,} (LUT and FF estimated)"
    )
    moved = plan.traffic_bytes
    text = f"off chip: {moved['feature_maps']:,} bytes of feature maps a frame"
    if moved["weights"]:
        text += f", {moved['weights']:,} of weights"
    if plan.interval:
        rate = sum(moved.values()) / plan.interval * board.clock_mhz / 1000
        text += f"; {rate:.3g} of {board.memory_gb_s:g} GB/s at {board.clock_mhz:g} MHz"
    lines.append(text)
    if plan.interval and plan.interval < (transfer := board.transfer_cycles(sum(moved.values()))):
        lines.append(f"the memory holds it up: at its peak rate a frame takes {transfer:,} cycles")
    lines += filter(None, [host.line(plan.network)])
    lines += plan.notes
    if plan.obstacle:
        lines.append(f"not buildable yet: {plan.obstacle}")
    return lines
