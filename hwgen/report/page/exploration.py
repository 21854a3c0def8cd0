"""Section of the report page about an exploration: its Pareto fronts, published designs, and a plan's points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.errors import InputError
from hwgen.explore.fronts import WORD_BYTES, Exploration, grouping_costs
from hwgen.explore.fusion import CyclesPoint, OverlapPoint
from hwgen.fields import Entries
from hwgen.network.graph import Network
from hwgen.plan.cuts import Span, text

_KB, _MB = WORD_BYTES / 1024, WORD_BYTES / 1_024_000

#: Fronts by their keys: title, axes (name and factor to the unit), whether they are logarithmic, and a caption.
_FRONTS = {
    "storage_traffic": (
        "Storage against traffic",
        ("reuse storage [KB]", _KB),
        ("feature maps off chip [MB per frame]", _MB),
        False,
        "Words that each grouping keeps on the chip for reuse, and words that it moves (32-bit words, MB of 1,000 KB).",
    ),
    "storage_multiplications": (
        "Storage against multiplications",
        ("reuse storage [KB]", _KB),
        ("multiplications per frame", 1),
        True,
        "Overlaps of neighbouring pyramids are kept or recomputed.",
    ),
    "dsp_traffic": (
        "DSP slices against traffic",
        ("DSP slices", 1),
        ("feature maps off chip [MB per frame]", _MB),
        False,
        "All taps and input channels at once. Layers of a group run together, groups one after the other.",
    ),
    "dsp_cycles": (
        "DSP slices against cycles",
        ("DSP slices", 1),
        ("cycles per frame", 1),
        True,
        "All layers run together, one multiply-add per slice. Requantisers need more slices.",
    ),
}

#: Largest number of cycles that is accepted from a ``plan.json``, beyond every plan's.
_LONGEST = 1 << 62


def document(exploration: Exploration, plan: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return, as a dictionary, the contents of the report page's section about an exploration, as JSON-like values.

    Parameters
    ----------
    exploration : Exploration
        Fronts of a network.
    plan : dict, optional
        Name and points of a plan, from `chosen`.
    """
    network = exploration.network
    board = "" if exploration.board is None else f", for {exploration.board.name}"
    return {
        "summary": f"{network.name}{board}: {len(network.layers)} layers, {2 ** len(network.cuts):,} groupings, "
        f"{network.macs:,} multiply-adds, {network.weight_count:,} weights",
        "notes": [f"Left out: {reason}." for reason in network.left_out],
        "chosen": None if plan is None else plan["name"],
        "fronts": [_front_to_show(exploration, key, plan) for key in _FRONTS],
    }


def _front_to_show(exploration: Exploration, key: str, plan: dict[str, Any] | None) -> dict[str, Any]:
    title, (x_name, x_unit), (y_name, y_unit), logarithmic, said = _FRONTS[key]
    points = _points(exploration, key)
    if "[MB" in y_name and max((point["y"] for point in points), default=0) * y_unit < 1:
        y_name, y_unit = y_name.replace("[MB", "[KB"), _KB
    star = None if plan is None else plan["points"].get(key)
    limit = None
    if exploration.board is not None:
        limit = exploration.limit(key) * x_unit
    return {
        "key": key,
        "title": title,
        "x": x_name,
        "y": y_name,
        "log": logarithmic,
        "text": said,
        "fits": exploration.board is not None,
        "limit": limit,
        "board": "" if exploration.board is None else exploration.board.name,
        "points": [{**point, "x": point["x"] * x_unit, "y": point["y"] * y_unit} for point in points],
        "published": [
            {"text": point.label, "x": point.x * x_unit, "y": point.y * y_unit}
            for point in exploration.published
            if point.front == key
        ],
        "chosen": star and {"x": star[0] * x_unit, "y": star[1] * y_unit},
    }


def _points(exploration: Exploration, key: str) -> list[dict[str, Any]]:
    """Return a list of dicts, a Pareto front's points: coordinates, if the board has room, the design as text."""
    limit, names = exploration.limit(key), [layer.name for layer in exploration.network.layers]
    return [
        {"x": x, "y": y, "fits": x <= limit, "text": _design(names, point)} for x, y, point in exploration.points(key)
    ]


def _design(names: Sequence[str], point: Any) -> str:
    """Return the design of a Pareto front's point as text: its groups and overlaps, or its unroll factors."""
    if isinstance(point, CyclesPoint):
        return _unrolled(names, point)
    said = text(names, point.groups)
    if isinstance(point, OverlapPoint):
        said += f" ({', '.join(dict.fromkeys(point.overlap))}); moves {point.traffic_words * _MB:,.4g} MB"
    return said


def _unrolled(names: Sequence[str], point: CyclesPoint) -> str:
    """Return the unroll factors ``TnxTmxTkxTp`` of the first eight layers of a front's point, as text."""
    factors = [
        f"{name} {factors_of_layer.tn}x{factors_of_layer.tm}x{factors_of_layer.tk}x{factors_of_layer.tp}"
        for name, factors_of_layer in zip(names, point.unroll, strict=True)
    ]
    return ", ".join(factors[:8]) + (", .." if len(factors) > 8 else "")


def chosen(plan: str, path: str, network: Network) -> dict[str, Any]:
    """Return a dictionary of JSON-like values: a ``plan.json``'s name, and its plan's coordinates by each front's key.

    Storage and traffic are computed by the fronts' models; slices and cycles are the plan's.

    Parameters
    ----------
    plan : str
        Contents of the file.
    path : str
        Name of the file in messages.
    network : Network
        Network of the fronts.

    Raises
    ------
    InputError
        If the file is not a plan of these layers.
    """
    entries = Entries.parsed(plan, f"plan {path}", help="give a plan.json of hwgen's")
    groups = [[layer.text("name") for layer in group.objects("layers")] for group in entries.objects("groups")]
    cycles = entries.entries("cycles")
    interval = cycles.integer("interval", 0, _LONGEST, default=None) or cycles.integer("latency", 0, _LONGEST)
    slices = entries.entries("resources").integer("dsp", 0)
    names = [layer.name for layer in network.layers]
    own = [[name for name in group if name in names] for group in groups]  # without the copies before groups
    if [name for group in own for name in group] != names:
        raise InputError(f"plan {path} is of other layers than the {len(names)} of {network.name}")
    spans, begin = [], 0
    for group in own:
        spans.append((begin, begin + len(group)))
        begin += len(group)
    return {"name": path, "points": _places(network, spans, slices, interval)}


def _places(network: Network, spans: Sequence[Span], slices: int, cycles: int) -> dict[str, tuple[int, int]]:
    storage, traffic = grouping_costs(network, spans)
    return {"storage_traffic": (storage, traffic), "dsp_traffic": (slices, traffic), "dsp_cycles": (slices, cycles)}
