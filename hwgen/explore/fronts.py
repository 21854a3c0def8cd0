"""The whole trade-off of a network: every grouping and unrolling, as fronts for tables, JSON and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.explore import fusion, pyramid
from hwgen.network.shapes import LayerShape, NetworkShape
from hwgen.plan.cuts import Span, text
from hwgen.plan.memory import BRAM36_BITS
from hwgen.plan.picture import picture
from hwgen.plan.unroll import Choice, LayerWork, Unroll, choices

WORD_BYTES = 4
"""The papers count in 32-bit words."""

LISTED_LAYERS = 12
"""Plots show every grouping of networks up to so many layers, as the thesis does."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A published point of a front, for plots. Coordinates are in the front's own units."""

    label: str
    front: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Fronts of ``network``; words have 32 bits, as in the papers.

    Parameters
    ----------
    board : Board, optional
        Marks what fits; nothing is left out.
    multipliers : tuple of int
        Of each layer in ``dsp_traffic``: DeCoILFNet's, all taps and input channels at once.
    storage_traffic, storage_multiplications, dsp_traffic, dsp_cycles : tuple
        Sorted by their first figure; see `hwgen.explore.fusion`.
    published : tuple of Point
        What others have found, to be shown beside the fronts.
    """

    network: NetworkShape
    board: Board | None
    multipliers: tuple[int, ...]
    storage_traffic: tuple[fusion.StoragePoint, ...]
    storage_multiplications: tuple[fusion.OverlapPoint, ...]
    dsp_traffic: tuple[fusion.DspPoint, ...]
    dsp_cycles: tuple[fusion.CyclesPoint, ...]
    published: tuple[Point, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fronts as plain values (docs/exploration.md)."""
        names = [layer.name for layer in self.network.layers]

        def groups(spans: Sequence[Span]) -> list[list[str]]:
            return [names[begin:end] for begin, end in spans]

        def fits(**needs: int) -> dict[str, bool]:
            return {} if self.board is None else {"fits": _fits(self.board, **needs)}

        return {
            "model": self.network.name,
            "board": None if self.board is None else self.board.name,
            "word_bits": 8 * WORD_BYTES,
            "layers": [
                {"name": layer.name, "kind": layer.kind, "macs": layer.macs, "weights": layer.weights}
                for layer in self.network.layers
            ],
            "left_out": list(self.network.left_out),
            "fronts": {
                "storage_traffic": [
                    {
                        "groups": groups(point.groups),
                        "storage_words": point.storage_words,
                        "traffic_words": point.traffic_words,
                        **fits(storage_words=point.storage_words),
                    }
                    for point in self.storage_traffic
                ],
                "storage_multiplications": [
                    {
                        "groups": groups(point.groups),
                        "overlap": list(point.overlap),
                        "storage_words": point.storage_words,
                        "multiplications": point.multiplications,
                        "traffic_words": point.traffic_words,
                        **fits(storage_words=point.storage_words),
                    }
                    for point in self.storage_multiplications
                ],
                "dsp_traffic": [
                    {
                        "groups": groups(point.groups),
                        "dsp": point.dsp,
                        "traffic_words": point.traffic_words,
                        **fits(dsp=point.dsp),
                    }
                    for point in self.dsp_traffic
                ],
                "dsp_cycles": [
                    {
                        "dsp": point.dsp,
                        "cycles": point.cycles,
                        "unroll": [_unroll(name, unroll) for name, unroll in zip(names, point.unroll, strict=True)],
                        **fits(dsp=point.dsp),
                    }
                    for point in self.dsp_cycles
                ],
            },
        }

    def table(self, *, rows: int = 16) -> str:
        """The fronts as text; of DSPs against cycles at most ``rows`` points, evenly spread."""
        layers = self.network.layers
        names = [layer.name for layer in layers]
        lines = [
            f"{self.network.name}: {len(layers)} layers, {2 ** (len(layers) - 1):,} groupings, "
            f"{self.network.macs:,} MACs, {self.network.weights:,} weights"
        ]
        lines += [f"left out: {reason}" for reason in self.network.left_out]
        lines += [
            "",
            "storage against traffic of feature maps (32-bit words; KB of 1,024 B, MB of 1,000 KB)",
            *_columns(
                ("KB", "MB", *self._fit_title, "groups"),
                [
                    (
                        f"{point.storage_words * WORD_BYTES / 1024:,.2f}",
                        f"{point.traffic_words * WORD_BYTES / 1_024_000:,.3f}",
                        *self._fit(storage_words=point.storage_words),
                        text(names, point.groups),
                    )
                    for point in self.storage_traffic
                ],
            ),
            "",
            "all layers fused: overlaps kept or computed again",
            *_columns(
                ("overlap", "KB", "multiplications", "MB"),
                [
                    (
                        point.overlap[0],
                        f"{point.storage_words * WORD_BYTES / 1024:,.2f}",
                        f"{point.multiplications:,}",
                        f"{point.traffic_words * WORD_BYTES / 1_024_000:,.3f}",
                    )
                    for point in fusion.storage_multiplications(layers, [(0, len(layers))])
                ],
            ),
            "",
            "DSPs against traffic (all taps and input channels at once; a group's layers together, groups in turn)",
            *_columns(
                ("DSP", "MB", *self._fit_title, "groups"),
                [
                    (
                        f"{point.dsp:,}",
                        f"{point.traffic_words * WORD_BYTES / 1_024_000:,.3f}",
                        *self._fit(dsp=point.dsp),
                        text(names, point.groups),
                    )
                    for point in self.dsp_traffic
                ],
            ),
        ]
        shown = _spread(self.dsp_cycles, rows)
        lines += [
            "",
            "DSPs against cycles a frame (all layers at work together, one MAC a DSP; requantisers come on top)"
            + (f": {len(shown)} of {len(self.dsp_cycles):,} points" if len(shown) < len(self.dsp_cycles) else ""),
            *_columns(
                ("DSP", "cycles", *self._fit_title),
                [(f"{point.dsp:,}", f"{point.cycles:,}", *self._fit(dsp=point.dsp)) for point in shown],
            ),
        ]
        for point in self.published:
            lines.append(f"published: {point.label}: {_published_text(point)}")
        return "\n".join(lines)

    def plot(self, kind: str = "svg") -> bytes:
        """The fronts as a picture, published points marked.

        Parameters
        ----------
        kind : str
            ``svg`` or ``png``.

        Raises
        ------
        InputError
            For another kind.
        ToolError
            If matplotlib is not installed.
        """
        title = self.network.name if self.board is None else f"{self.network.name}, {self.board.name}"
        return picture(title, lambda figure: self._draw(figure.subplots(2, 2)), kind)

    def _draw(self, axes: Any) -> None:
        kb, mb = WORD_BYTES / 1024, WORD_BYTES / 1_024_000
        panels = {
            "storage_traffic": (
                *("reuse storage [KB]", "traffic of feature maps [MB]"),
                [(point.storage_words, point.traffic_words) for point in self.storage_traffic],
                *(kb, mb),
            ),
            "storage_multiplications": (
                *("reuse storage [KB]", "multiplications"),
                [(point.storage_words, point.multiplications) for point in self.storage_multiplications],
                *(kb, 1),
            ),
            "dsp_traffic": (
                *("DSP", "traffic of feature maps [MB]"),
                [(point.dsp, point.traffic_words) for point in self.dsp_traffic],
                *(1, mb),
            ),
            "dsp_cycles": (
                *("DSP", "cycles a frame"),
                [(point.dsp, point.cycles) for point in self.dsp_cycles],
                *(1, 1),
            ),
        }
        for ax, (name, (x_label, y_label, points, x_unit, y_unit)) in zip(axes.flat, panels.items(), strict=True):
            title = name.replace("_", " against ").replace("dsp", "DSPs")
            ax.set(title=title[0].upper() + title[1:], xlabel=x_label, ylabel=y_label)
            if name == "storage_traffic" and len(self.network.layers) <= LISTED_LAYERS:
                listed = sorted(set(listing(self.network.layers)))
                ax.plot(*_scaled(listed, x_unit, y_unit), ".", color="0.75", markersize=3, label="every grouping")
            xs, ys = _scaled(points, x_unit, y_unit)
            if name == "storage_multiplications":
                traffic = [point.traffic_words * mb for point in self.storage_multiplications]
                drawn = ax.scatter(xs, ys, c=traffic, s=12, cmap="viridis_r")
                ax.figure.colorbar(drawn, ax=ax, label="traffic [MB]")
                ax.set_yscale("log")
            else:
                ax.plot(xs, ys, "k.-", drawstyle="steps-post", markersize=4, linewidth=0.8, label="front")
            if name == "dsp_cycles":
                ax.set(xscale="log", yscale="log")
            for point in self.published:
                if point.front == name:
                    x, y = point.x * x_unit, point.y * y_unit
                    ax.plot(x, y, "rx", markersize=8)
                    side, shift = ("right", -6) if x > max(xs) / 2 else ("left", 6)
                    ax.annotate(point.label, (x, y), (shift, 5), textcoords="offset points", color="r", ha=side)
            if self.board is not None:
                limit = self.board.dsp if name.startswith("dsp") else _storage_words(self.board) * kb
                if limit <= 4 * max(xs):
                    ax.axvline(limit, color="b", linestyle=":", label=self.board.name)
            if name != "storage_multiplications":
                ax.legend(loc="upper right")

    @property
    def _fit_title(self) -> tuple[str, ...]:
        return () if self.board is None else ("fits",)

    def _fit(self, **needs: int) -> tuple[str, ...]:
        return () if self.board is None else ("yes" if _fits(self.board, **needs) else "no",)


def explore(
    network: NetworkShape,
    board: Board | None = None,
    *,
    depth_groups: Mapping[str, int] | None = None,
    published: Sequence[Point] = (),
) -> Exploration:
    """All fronts of ``network``.

    Parameters
    ----------
    board : Board, optional
        A layer that alone would take more multipliers than the board has is computed in serial depth groups, as few
        as let it fit. Points that don't fit the board are kept, and marked.
    depth_groups : mapping of str to int, optional
        Serial depth groups of layers by their names, 1 for all others.
    published : sequence of Point
        Points to show beside the fronts.

    Raises
    ------
    PlanError
        If a layer doesn't fit the board even with one input channel at a time.
    """
    layers = network.layers
    multipliers = [_multipliers(layer, board, (depth_groups or {}).get(layer.name, 1)) for layer in layers]
    return Exploration(
        network=network,
        board=board,
        multipliers=tuple(multipliers),
        storage_traffic=tuple(fusion.storage_traffic(layers)),
        storage_multiplications=tuple(fusion.storage_multiplications(layers)),
        dsp_traffic=tuple(fusion.dsp_traffic(layers, multipliers)),
        dsp_cycles=tuple(fusion.dsp_cycles([_choices(layer) for layer in layers])),
        published=tuple(published),
    )


def listing(layers: Sequence[LayerShape]) -> list[tuple[int, int]]:
    """Storage and traffic of each of the ``2**(l - 1)`` groupings."""
    points = []
    for cuts in product((False, True), repeat=len(layers) - 1):
        edges = [0, *(index for index, cut in enumerate(cuts, start=1) if cut), len(layers)]
        groups = [layers[begin:end] for begin, end in pairwise(edges)]
        points.append((max(map(pyramid.reuse_words, groups)), pyramid.map_traffic(groups)))
    return points


def _multipliers(layer: LayerShape, board: Board | None, groups: int) -> int:
    """Of a layer in so many serial depth groups, or more if the board lacks multipliers for that."""
    need = fusion.depth_multipliers(layer, groups)
    if board is None or need <= board.dsp:
        return need
    at_once = board.dsp // layer.taps
    if not at_once:
        raise PlanError(f"{layer.name}: its {layer.taps} taps alone take more than the {board.dsp} DSP of {board.name}")
    return fusion.depth_multipliers(layer, -(-(layer.channels // layer.groups) // at_once))


def _choices(layer: LayerShape) -> list[Choice]:
    work = LayerWork(
        name=layer.name,
        channels=layer.channels,
        outputs=layer.outputs,
        groups=layer.groups,
        height=layer.output_height,
        width=layer.output_width,
        input_height=layer.height,
        input_width=layer.width,
        taps=layer.taps,
        depthwise=layer.kind != "conv",
    )
    return choices(work, lambda work, unroll: 0 if work.depthwise else unroll.tn * unroll.tm * unroll.tk * unroll.tp)


def _unroll(name: str, unroll: Unroll) -> dict[str, Any]:
    return {"name": name, "in": unroll.tn, "out": unroll.tm, "taps": unroll.tk, "pixels": unroll.tp}


def _storage_words(board: Board) -> int:
    return board.bram36 * BRAM36_BITS // 8 * WORD_BYTES


def _fits(board: Board, *, storage_words: int = 0, dsp: int = 0) -> bool:
    return storage_words <= _storage_words(board) and dsp <= board.dsp


def _spread(points: Sequence[fusion.CyclesPoint], count: int) -> list[fusion.CyclesPoint]:
    if len(points) <= count:
        return list(points)
    return [points[index * (len(points) - 1) // (count - 1)] for index in range(count)]


def _scaled(points: Sequence[tuple[int, int]], x: float, y: float) -> tuple[list[float], list[float]]:
    return [point[0] * x for point in points], [point[1] * y for point in points]


def _columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns; text (``groups``, ``overlap``) to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in (titles, *rows)) for index in range(len(titles))]
    left = [title in ("groups", "overlap") for title in titles]
    return [
        "  ".join(
            text.ljust(width) if to_left else text.rjust(width)
            for text, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in (titles, ["-" * width for width in widths], *rows)
    ]


def _published_text(point: Point) -> str:
    storage = f"{point.x / 256:,.0f} KB" if point.front.startswith("storage") else f"{point.x:,.0f} DSP"
    other = f"{point.y:,.0f} cycles" if point.front.endswith("cycles") else f"{point.y / 256_000:,.3f} MB"
    return f"{storage}, {other}"
