"""Timeline section of the report page: when each layer works or waits, and the fill levels of FIFOs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.plan.plan import Plan
from hwgen.report.page.engine import of_group
from hwgen.report.page.sections import shares
from hwgen.schedule.timeline import Timeline, Timelines, TimelineWindow, one_frame, timelines
from hwgen.templates.base import Group

#: Largest number of bins of cycles in a view, and of bins times layers, so that many layers get fewer bins.
MAX_BINS, MAX_CELLS = 480, 60_000

#: Meanings of the timeline's colours, by the kind of a layer's state.
_KINDS = {
    "work": "works",
    "input": "waits for input",
    "room": "waits for room in its output FIFO",
    "buffer": "waits for its own buffer",
    "done": "has finished its frames",
}


def document(plan: Plan) -> dict[str, Any]:
    """Return a dictionary of timeline values: what layers and FIFOs do per bin, in one frame and in frames in a row.

    Each view has ``edges`` (cycles). For each layer it has the cycles in each state, in total and per bin. A bin is a
    byte of base64, 255 for all of its cycles. For each FIFO it has the largest number of beats in each bin.
    """
    bins = max(60, min(MAX_BINS, MAX_CELLS // max(len(plan.layers), 1)))
    first = plan.groups[0]
    if (views := of_group(first).times(first, bins)) is not None:
        return views
    if len(plan.groups) > 1:
        return _in_turn(plan, bins)
    group = next(iter(plan.groups))
    schedules = timelines(group.config, group.steady)
    views = [_view("frame", "one frame", [(schedules.first, schedules.first.frame(bins))])] if schedules.first else []
    if schedules.steady is not None and (window := schedules.steady.steady(bins)) is not None:
        views.append(_view("steady", "frames in a row", [(schedules.steady, window)]))
    return {"views": views, "notes": _notes(plan, schedules), "fifos": _depths(group, schedules), "kinds": _KINDS}


def _in_turn(plan: Plan, bins: int) -> dict[str, Any]:
    """Return a dictionary of timeline values for groups that run one after another, for one frame at a time."""
    cycles = sum(group.frame_cycles for group in plan.groups)
    views = []
    for group in plan.groups:
        timeline = one_frame(group.config)
        if timeline is None:
            return {"views": [], "notes": [_too_many(group.config)], "fifos": [], "kinds": _KINDS}
        views.append((group, timeline, timeline.frame(max(8, bins * group.frame_cycles // cycles))))
    notes = [
        f"The {len(plan.groups)} groups run one after the other, each for one frame at a time. The transfers of their "
        "maps to and from off-chip memory are not drawn: the cycles assume a memory that never stalls."
    ]
    return {
        "views": [_view("frame", "one frame", [(timeline, window) for _, timeline, window in views])],
        "notes": notes,
        "kinds": _KINDS,
        "fifos": [
            fifo for group, timeline, _ in views for fifo in _depths(group, Timelines(first=timeline, steady=None))
        ],
    }


def _view(key: str, name: str, views: Sequence[tuple[Timeline, TimelineWindow]]) -> dict[str, Any]:
    edges: list[int] = [0]
    layers: list[dict[str, Any]] = []
    fifos: list[dict[str, Any]] = []
    offset = 0
    for timeline, window in views:
        names = _names(timeline.config)
        first = len(edges) - 1
        for layer, states in zip(timeline.config.layers, window.states, strict=True):
            layers.append({"name": layer.name, "first": first, "states": _states(states, window, names)})
        for link, peak in zip(timeline.config.links, window.fills, strict=True):
            fifos.append({"name": _fifo(timeline.config, link), "first": first, "most": peak.tolist()})
        edges += (window.edges[1:] - window.begin + offset).tolist()
        offset = edges[-1]
    for layer in layers:
        if other := offset - sum(state["cycles"] for state in layer["states"]):
            layer["states"].append({"kind": "turn", "whom": "", "cycles": other, "shares": ""})
    begin = views[0][1].begin if len(views) == 1 else 0
    return {"key": key, "name": name, "begin": begin, "edges": edges, "layers": layers, "fifos": fifos}


def _states(states: dict[Any, np.ndarray], window: TimelineWindow, names: Sequence[str]) -> list[dict[str, Any]]:
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


def _name(names: Sequence[str], index: int) -> str:
    return "the input" if index < 0 else names[index] if index < len(names) else "the output"


def _fifo(config: AcceleratorConfig, link: Any) -> str:
    names = _names(config)
    return f"{names[link.source]} to {_name(names, link.sink)}"


def _depths(group: Group, schedules: Timelines) -> list[dict[str, Any]]:
    """Return a list of dicts, one per FIFO: planned depth and peak fill, in beats, in the longest schedule."""
    longest = schedules.steady if schedules.steady is not None else schedules.first
    if longest is None:
        return []
    widths = [fifo.width for layer in group.config.layers for fifo in layer.fifos]
    return [
        {
            "name": _fifo(group.config, link),
            "depth": depth,
            "most": peak,
            "width": width,
            "frames": longest.frames,
            "why": _depth_reason(depth, peak, longest),
        }
        for link, depth, peak, width in zip(
            group.config.links, group.config.fifo_depths, longest.max_credits, widths, strict=True
        )
    ]


def _depth_reason(depth: int, peak: int, timeline: Timeline) -> str:
    """Return a text that explains why a FIFO's peak fill in a schedule does or does not reach its depth."""
    if peak == depth:
        return "full at some time"
    if timeline.frames == 1:
        return "planned for back-to-back frames; only one is scheduled here"
    return "deeper than these frames require"


def _notes(plan: Plan, schedules: Timelines) -> list[str]:
    """Return a list of texts that explain why timeline views are missing or not drawn as planned."""
    notes = []
    if schedules.first is None:
        notes.append(_too_many(plan.groups[0].config))
    if schedules.rows is not None:
        notes.append(
            f"Back-to-back frames are shown for {schedules.rows:,} of the map's {plan.groups[0].config.input.height:,} "
            "rows: all rows would have too many events, and the inner rows repeat the same pattern."
        )
    elif schedules.steady is None and schedules.first is not None:
        notes.append("Back-to-back frames are not drawn: they have too many events.")
    if schedules.steady is None:
        return notes
    interval = schedules.steady.cycles.interval
    if schedules.rows is None and interval is not None and interval != plan.interval:
        notes.append(
            f"After {schedules.steady.frames} frames in a row the interval is {interval:,} cycles, not the plan's "
            f"{plan.interval:,}: the layers have used up an initial lead."
        )
    if schedules.steady.steady(1) is None:
        notes.append(
            f"Frames in a row are not drawn: after {schedules.steady.frames} frames the schedule has not settled."
        )
    return notes


def _too_many(config: AcceleratorConfig) -> str:
    return f"No timeline is drawn: one frame of {config.name} has too many events."
