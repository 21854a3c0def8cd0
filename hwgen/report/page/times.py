"""The section of what happens when: who works, who waits for whom, and how full FIFOs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.plan.plan import Plan
from hwgen.report.page import templates
from hwgen.report.page.bins import shares
from hwgen.schedule.timeline import Timeline, Timelines, Window, one_frame, timelines
from hwgen.templates.base import Group

__all__ = ["document"]

#: Bins of a view at most, and cells of a layer in a bin of all views: many layers get fewer bins.
MOST_BINS, MOST_CELLS = 480, 60_000

#: What colours mean.
_KINDS = {
    "work": "works",
    "input": "waits for input",
    "room": "waits for room behind it",
    "buffer": "waits for its own buffer",
    "done": "has done its frames",
}


def document(plan: Plan) -> dict[str, Any]:
    """Views of the exact schedule: one frame, and frames that follow each other.

    Each view has ``edges`` (cycles), and for its layers the cycles in each state, in all and bin by bin: of a bin in
    bytes of base64, 255 for all of its cycles. Of FIFOs it has the most beats in each bin.
    """
    bins = max(60, min(MOST_BINS, MOST_CELLS // max(len(plan.layers), 1)))
    first = plan.groups[0]
    if (views := templates.of_group(first).times(first, bins)) is not None:
        return views
    if len(plan.groups) > 1:
        return _in_turn(plan, bins)
    group = next(iter(plan.groups))
    found = timelines(group.config, group.steady)
    views = [_view("frame", "one frame", [(found.first, found.first.frame(bins))])] if found.first else []
    if found.steady is not None and (window := found.steady.steady(bins)) is not None:
        views.append(_view("steady", "frames in a row", [(found.steady, window)]))
    return {"views": views, "notes": _notes(plan, found), "fifos": _depths(group, found), "kinds": _KINDS}


def _in_turn(plan: Plan, bins: int) -> dict[str, Any]:
    """Groups that run one after the other, each a frame at a time."""
    cycles = sum(group.frame_cycles for group in plan.groups)
    parts = []
    for group in plan.groups:
        found = one_frame(group.config)
        if found is None:
            return {"views": [], "notes": [_too_many(group.config)], "fifos": [], "kinds": _KINDS}
        parts.append((group, found, found.frame(max(8, bins * group.frame_cycles // cycles))))
    notes = [
        f"The {len(plan.groups)} groups run one after the other, each a frame at a time. What moves their maps to and "
        "from off-chip memory is not drawn: these are cycles with a memory that never makes them wait."
    ]
    return {
        "views": [_view("frame", "one frame", [(found, window) for _, found, window in parts])],
        "notes": notes,
        "kinds": _KINDS,
        "fifos": [fifo for group, found, _ in parts for fifo in _depths(group, Timelines(first=found, steady=None))],
    }


def _view(key: str, name: str, parts: Sequence[tuple[Timeline, Window]]) -> dict[str, Any]:
    edges: list[int] = [0]
    layers: list[dict[str, Any]] = []
    fifos: list[dict[str, Any]] = []
    offset = 0
    for found, window in parts:
        names = _names(found.config)
        first = len(edges) - 1
        for layer, states in zip(found.config.layers, window.states, strict=True):
            layers.append({"name": layer.name, "first": first, "states": _states(states, window, names)})
        for link, most in zip(found.config.links, window.fills, strict=True):
            fifos.append({"name": _fifo(found.config, link), "first": first, "most": most.tolist()})
        edges += (window.edges[1:] - window.begin + offset).tolist()
        offset = edges[-1]
    for layer in layers:
        if other := offset - sum(state["cycles"] for state in layer["states"]):
            layer["states"].append({"kind": "turn", "whom": "", "cycles": other, "shares": ""})
    begin = parts[0][1].begin if len(parts) == 1 else 0
    return {"key": key, "name": name, "begin": begin, "edges": edges, "layers": layers, "fifos": fifos}


def _states(states: dict[Any, np.ndarray], window: Window, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "kind": state.kind,
            "whom": "" if state.whom is None else _name(names, state.whom),
            "cycles": int(cycles.sum()),
            "shares": shares(cycles, window.edges),
        }
        for state, cycles in sorted(states.items(), key=lambda entry: -int(entry[1].sum()))
    ]


def _names(config: AcceleratorConfig) -> list[str]:
    return [layer.name for layer in config.layers]


def _name(names: Sequence[str], number: int) -> str:
    return "the input" if number < 0 else names[number] if number < len(names) else "the output"


def _fifo(config: AcceleratorConfig, link: Any) -> str:
    names = _names(config)
    return f"{names[link.source]} to {_name(names, link.sink)}"


def _depths(group: Group, found: Timelines) -> list[dict[str, Any]]:
    """Each FIFO: how deep it is planned, and the most that it holds in the longest run looked at."""
    longest = found.steady if found.steady is not None else found.first
    if longest is None:
        return []
    widths = [fifo.width for layer in group.config.layers for fifo in layer.fifos]
    return [
        {
            "name": _fifo(group.config, link),
            "depth": depth,
            "most": most,
            "width": width,
            "frames": longest.frames,
            "why": _why(depth, most, longest),
        }
        for link, depth, most, width in zip(
            group.config.links, group.config.fifo_depths, longest.max_credits, widths, strict=True
        )
    ]


def _why(depth: int, most: int, found: Timeline) -> str:
    """Why a FIFO has a depth that it does not use."""
    if most == depth:
        return "it gets full"
    if found.frames == 1:
        return "planned for frames in a row, of which one is looked at"
    return "deeper than these frames need"


def _notes(plan: Plan, found: Timelines) -> list[str]:
    """What is not drawn as it is planned, and why."""
    notes = []
    if found.first is None:
        notes.append(_too_many(plan.groups[0].config))
    if found.rows is not None:
        notes.append(
            f"Frames in a row are those of a map with {found.rows:,} of its {plan.groups[0].config.input.height:,} "
            "rows: all of them would be too many events, and rows inside a map follow each other alike."
        )
    elif found.steady is None and found.first is not None:
        notes.append("Frames in a row are not drawn: their events are too many.")
    if found.steady is None:
        return notes
    interval = found.steady.cycles.interval
    if found.rows is None and interval is not None and interval != plan.interval:
        notes.append(
            f"Of {found.steady.frames} frames in a row the last ones come {interval:,} cycles apart, not the plan's "
            f"{plan.interval:,}: by then layers have used up a lead that they had at first."
        )
    if found.steady.steady(1) is None:
        notes.append(
            f"Frames in a row are not drawn: after {found.steady.frames} of them layers don't repeat what they do."
        )
    return notes


def _too_many(config: AcceleratorConfig) -> str:
    return f"No timeline is drawn: the events of one frame of {config.name} are too many."
