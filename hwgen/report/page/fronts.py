"""The section of an exploration: its fronts, what others published, and where a plan stands among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hwgen.errors import InputError
from hwgen.explore.fronts import WORD_BYTES, Exploration, place
from hwgen.explore.fusion import CyclesPoint
from hwgen.fields import Entries
from hwgen.network.graph import Network
from hwgen.plan.cuts import Span, text

__all__ = ["chosen", "document"]

_KB, _MB = WORD_BYTES / 1024, WORD_BYTES / 1_024_000

#: Fronts by their keys: title, what the axes are (name and unit), whether they are logarithmic, and a line about it.
_FRONTS = {
    "storage_traffic": (
        "Storage against traffic",
        ("reuse storage [KB]", _KB),
        ("feature maps off chip [MB a frame]", _MB),
        False,
        "What each grouping keeps on the chip for reuse, and what it moves (32-bit words, MB of 1,000 KB).",
    ),
    "storage_multiplications": (
        "Storage against multiplications",
        ("reuse storage [KB]", _KB),
        ("multiplications a frame", 1),
        True,
        "Overlaps of neighbouring pyramids are kept, or computed again.",
    ),
    "dsp_traffic": (
        "DSP slices against traffic",
        ("DSP slices", 1),
        ("feature maps off chip [MB a frame]", _MB),
        False,
        "All taps and input channels at once; layers of a group together, groups in turn.",
    ),
    "dsp_cycles": (
        "DSP slices against cycles",
        ("DSP slices", 1),
        ("cycles a frame", 1),
        True,
        "All layers at work together, a multiply-add a slice; requantisers come on top.",
    ),
}

#: Cycles beyond every plan's.
_LONGEST = 1 << 62


def document(found: Exploration, plan: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fronts.

    Parameters
    ----------
    plan : dict, optional
        Where a plan stands, as `chosen` says.
    """
    network = found.network
    board = "" if found.board is None else f", for {found.board.name}"
    return {
        "summary": f"{network.name}{board}: {len(network.layers)} layers, {2 ** len(network.cuts):,} groupings, "
        f"{network.macs:,} multiply-adds, {network.weight_count:,} weights",
        "notes": [f"Left out: {reason}." for reason in network.left_out],
        "chosen": None if plan is None else plan["name"],
        "fronts": [_front(found, key, plan) for key in _FRONTS],
    }


def _front(found: Exploration, key: str, plan: dict[str, Any] | None) -> dict[str, Any]:
    title, (x_name, x_unit), (y_name, y_unit), logarithmic, said = _FRONTS[key]
    points = list(_points(found, key))
    if "[MB" in y_name and max((point["y"] for point in points), default=0) * y_unit < 1:
        y_name, y_unit = y_name.replace("[MB", "[KB"), _KB
    star = None if plan is None else plan["points"].get(key)
    limit = None
    if found.board is not None:
        limit = found.board.dsp if key.startswith("dsp") else found.most_words * x_unit
    return {
        "key": key,
        "title": title,
        "x": x_name,
        "y": y_name,
        "log": logarithmic,
        "text": said,
        "fits": found.board is not None,
        "limit": limit,
        "board": "" if found.board is None else found.board.name,
        "points": [{**point, "x": point["x"] * x_unit, "y": point["y"] * y_unit} for point in points],
        "published": [
            {"text": point.label, "x": point.x * x_unit, "y": point.y * y_unit}
            for point in found.published
            if point.front == key
        ],
        "chosen": star and {"x": star[0] * x_unit, "y": star[1] * y_unit},
    }


def _points(found: Exploration, key: str) -> Iterable[dict[str, Any]]:
    """Each point in its own units: what it costs, whether it fits, and how it is done."""
    names = [layer.name for layer in found.network.layers]
    if key == "storage_traffic":
        for each in found.storage_traffic:
            fits = found.fits(storage_words=each.storage_words)
            yield _point(each.storage_words, each.traffic_words, fits, text(names, each.groups))
    elif key == "storage_multiplications":
        for again in found.storage_multiplications:
            said = ", ".join(dict.fromkeys(again.overlap))
            fits = found.fits(storage_words=again.storage_words)
            how = f"{text(names, again.groups)} ({said}); moves {again.traffic_words * _MB:,.4g} MB"
            yield _point(again.storage_words, again.multiplications, fits, how)
    elif key == "dsp_traffic":
        for slices in found.dsp_traffic:
            fits = found.fits(dsp=slices.dsp)
            yield _point(slices.dsp, slices.traffic_words, fits, text(names, slices.groups))
    else:
        for cycles in found.dsp_cycles:
            yield _point(cycles.dsp, cycles.cycles, found.fits(dsp=cycles.dsp), _unrolled(names, cycles))


def _point(x: int, y: int, fits: bool, said: str) -> dict[str, Any]:
    return {"x": x, "y": y, "fits": fits, "text": said}


def _unrolled(names: Sequence[str], point: CyclesPoint) -> str:
    """The unroll factors, of many layers those of the first ones."""
    factors = [
        f"{name} {each.tn}x{each.tm}x{each.tk}x{each.tp}" for name, each in zip(names, point.unroll, strict=True)
    ]
    return ", ".join(factors[:8]) + (", .." if len(factors) > 8 else "")


def chosen(plan: str, path: str, network: Network) -> dict[str, Any]:
    """Where the plan of a ``plan.json`` stands: storage and traffic by the fronts' models, slices, cycles.

    Raises
    ------
    InputError
        If it is no plan of these layers. ``path`` is its name in the message.
    """
    given = Entries.parsed(plan, f"plan {path}", help="give a plan.json of hwgen's")
    groups = [[layer.text("name") for layer in group.objects("layers")] for group in given.objects("groups")]
    cycles = given.entries("cycles")
    interval = cycles.integer("interval", 0, _LONGEST, default=None) or cycles.integer("latency", 0, _LONGEST)
    slices = given.entries("resources").integer("dsp", 0)
    names = [layer.name for layer in network.layers]
    own = [[name for name in group if name in names] for group in groups]  # without the copies in front of groups
    if [name for group in own for name in group] != names:
        raise InputError(f"plan {path} is of other layers than the {len(names)} of {network.name}")
    spans, begin = [], 0
    for group in own:
        spans.append((begin, begin + len(group)))
        begin += len(group)
    return {"name": path, "points": _places(network, spans, slices, interval)}


def _places(network: Network, spans: Sequence[Span], slices: int, cycles: int) -> dict[str, tuple[int, int]]:
    storage, traffic = place(network, spans)
    return {"storage_traffic": (storage, traffic), "dsp_traffic": (slices, traffic), "dsp_cycles": (slices, cycles)}
