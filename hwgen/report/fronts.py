"""Writer of an exploration's Pareto fronts (best trade-offs between two costs) as text tables and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.explore import fusion
from hwgen.explore.fronts import WORD_BYTES, Exploration, Point, all_groupings
from hwgen.plan.cuts import text
from hwgen.report.picture import picture
from hwgen.report.table import columns

LISTED_LAYERS = 12
"""Minimum number of possible cuts between layers for a picture to leave out groupings that are on no front."""


def table(exploration: Exploration, *, rows: int = 16) -> str:
    """Return all Pareto fronts as text tables; the DSP-cycles front has at most ``rows`` evenly spread points."""
    layers = exploration.network.layers
    names = [layer.name for layer in layers]
    fits_title = () if exploration.board is None else ("fits",)

    def fits(front: str, needed: int) -> tuple[str, ...]:
        return () if exploration.board is None else ("yes" if needed <= exploration.limit(front) else "no",)

    lines = [
        f"{exploration.network.name}: {len(layers)} layers, {2 ** len(exploration.network.cuts):,} groupings, "
        f"{exploration.network.macs:,} MACs, {exploration.network.weight_count:,} weights"
    ]
    lines += [f"left out: {reason}" for reason in exploration.network.left_out]
    lines += [
        "",
        "storage against traffic of feature maps (32-bit words; KB of 1,024 B, MB of 1,000 KB)",
        *_table(
            ("KB", "MB", *fits_title, "groups"),
            [
                (_kb(storage), _mb(traffic), *fits("storage_traffic", storage), text(names, point.groups))
                for storage, traffic, point in exploration.points("storage_traffic")
            ],
        ),
        "",
        "all layers fused: overlaps kept or computed again",
        *_table(
            ("overlap", "KB", "multiplications", "MB"),
            [
                (point.overlap[0], _kb(point.storage_words), f"{point.multiplications:,}", _mb(point.traffic_words))
                for point in fusion.storage_multiplications(exploration.network, [(0, len(layers))])
            ],
        ),
        "",
        "DSPs against traffic (all taps and input channels at once; a group's layers together, groups in turn)",
        *_table(
            ("DSP", "MB", *fits_title, "groups"),
            [
                (f"{dsp:,}", _mb(traffic), *fits("dsp_traffic", dsp), text(names, point.groups))
                for dsp, traffic, point in exploration.points("dsp_traffic")
            ],
        ),
    ]
    shown = _spread_points(exploration.dsp_cycles, rows)
    lines += [
        "",
        "DSP slices against cycles per frame (all layers concurrent, one MAC per DSP slice, without requantisers)"
        + (
            f": {len(shown)} of {len(exploration.dsp_cycles):,} points"
            if len(shown) < len(exploration.dsp_cycles)
            else ""
        ),
        *_table(
            ("DSP", "cycles", *fits_title),
            [(f"{point.dsp:,}", f"{point.cycles:,}", *fits("dsp_cycles", point.dsp)) for point in shown],
        ),
    ]
    for point in exploration.published:
        lines.append(f"published: {point.label}: {_published_text(point)}")
    return "\n".join(lines)


def _kb(words: int) -> str:
    return f"{words * WORD_BYTES / 1024:,.2f}"


def _mb(words: int) -> str:
    return f"{words * WORD_BYTES / 1_024_000:,.3f}"


def plot(exploration: Exploration, file_format: str = "svg") -> bytes:
    """Draw all Pareto fronts as one picture with published designs marked, and return the file's bytes.

    Parameters
    ----------
    exploration : Exploration
        Fronts of a network.
    file_format : str
        Format of the picture: ``svg`` or ``png``.

    Raises
    ------
    InputError
        If the format is unknown.
    ToolError
        If matplotlib is not installed.
    """
    title = (
        exploration.network.name
        if exploration.board is None
        else f"{exploration.network.name}, {exploration.board.name}"
    )
    return picture(title, lambda figure: _draw(exploration, figure.subplots(2, 2)), file_format)


def _draw(exploration: Exploration, axes: Any) -> None:
    kb, mb = WORD_BYTES / 1024, WORD_BYTES / 1_024_000
    panels = {
        "storage_traffic": ("reuse storage [KB]", "traffic of feature maps [MB]", kb, mb),
        "storage_multiplications": ("reuse storage [KB]", "multiplications", kb, 1),
        "dsp_traffic": ("DSP", "traffic of feature maps [MB]", 1, mb),
        "dsp_cycles": ("DSP", "cycles per frame", 1, 1),
    }
    for ax, (name, (x_label, y_label, x_unit, y_unit)) in zip(axes.flat, panels.items(), strict=True):
        title = name.replace("_", " against ").replace("dsp", "DSPs")
        ax.set(title=title[0].upper() + title[1:], xlabel=x_label, ylabel=y_label)
        if name == "storage_traffic" and len(exploration.network.cuts) < LISTED_LAYERS:
            listed = sorted(set(all_groupings(exploration.network)))
            ax.plot(*_scaled(listed, x_unit, y_unit), ".", color="0.75", markersize=3, label="every grouping")
        xs, ys = _scaled([(x, y) for x, y, _ in exploration.points(name)], x_unit, y_unit)
        if name == "storage_multiplications":
            traffic = [point.traffic_words * mb for point in exploration.storage_multiplications]
            drawn = ax.scatter(xs, ys, c=traffic, s=12, cmap="viridis_r")
            ax.figure.colorbar(drawn, ax=ax, label="traffic [MB]")
            ax.set_yscale("log")
        else:
            ax.plot(xs, ys, "k.-", drawstyle="steps-post", markersize=4, linewidth=0.8, label="front")
        if name == "dsp_cycles":
            ax.set(xscale="log", yscale="log")
        for point in exploration.published:
            if point.front == name:
                x, y = point.x * x_unit, point.y * y_unit
                ax.plot(x, y, "rx", markersize=8)
                side, shift = ("right", -6) if x > max(xs) / 2 else ("left", 6)
                ax.annotate(point.label, (x, y), (shift, 5), textcoords="offset points", color="r", ha=side)
        if exploration.board is not None:
            limit = exploration.limit(name) * x_unit
            if limit <= 4 * max(xs):
                ax.axvline(limit, color="b", linestyle=":", label=exploration.board.name)
        if name != "storage_multiplications":
            ax.legend(loc="upper right")


def _spread_points(points: Sequence[fusion.CyclesPoint], count: int) -> list[fusion.CyclesPoint]:
    if len(points) <= count:
        return list(points)
    return [points[index * (len(points) - 1) // (count - 1)] for index in range(count)]


def _scaled(points: Sequence[tuple[int, int]], x: float, y: float) -> tuple[list[float], list[float]]:
    return [point[0] * x for point in points], [point[1] * y for point in points]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a list of lines of a text table: columns ``groups`` and ``overlap`` left-aligned, others right."""
    left = [index for index, title in enumerate(titles) if title in ("groups", "overlap")]
    return columns([titles, *rows], left=left, rules=(1,))


def _published_text(point: Point) -> str:
    storage = f"{point.x / 256:,.0f} KB" if point.front.startswith("storage") else f"{point.x:,.0f} DSP"
    other = f"{point.y:,.0f} cycles" if point.front.endswith("cycles") else f"{point.y / 256_000:,.3f} MB"
    return f"{storage}, {other}"
