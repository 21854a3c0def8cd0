"""Pyramids cut into tiles: which part of each layer's input belongs to which pyramid (Alwani 2015, section 3.1).

A pyramid's last output is its tip; its part of every layer's input follows from the tip back. With reuse, a pyramid
holds what is new since the one before, and ``K - S`` pixels that were kept (``K`` is what a window covers); with
recomputation, all that the tip depends on. In between, what is in the maps inside the group is kept, and the group's
own input comes in with its halo each time (as in the thesis's implementation).

The thesis begins with a pyramid at the map's corner, whose part of the first layers is much larger than that of any
other (of AlexNet's first two layers 51 rows, later 16). Here the pyramids begin as far before the corner as the group
reaches, and every one of them, the first included, brings at most the advance: so the bands and tiles are sized for
pyramids inside the map. Pyramids before the corner have no tip; they only fill the first layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hwgen.errors import PlanError
from hwgen.gateware.pyramid.spans import Axis, Span
from hwgen.network.ops import Op
from hwgen.options import OVERLAPS, RECOMPUTE, RELOAD, REUSE


def axes(layers: Sequence[Op], tip: tuple[int, int], overlap: str = REUSE) -> list[tuple[Axis, Axis]]:
    """Rows and columns of each layer's tiles, for a group whose pyramids have a ``tip`` of (rows, columns).

    Raises
    ------
    PlanError
        If the tip is empty or larger than the output, the overlap is of no known kind, or a layer isn't needed.
    """
    last = layers[-1]
    if not (1 <= tip[0] <= last.output_height and 1 <= tip[1] <= last.output_width):
        raise PlanError(
            f"{last.name}: tile must be between 1x1 and its output's {last.output_height}x{last.output_width}, "
            f"not {tip[0]}x{tip[1]}"
        )
    if overlap not in OVERLAPS:
        raise PlanError(f"overlap must be {', '.join(map(repr, OVERLAPS[:-1]))} or {OVERLAPS[-1]!r}, not {overlap!r}")
    rows, columns = (
        _again(layers, place, tip[place]) if overlap == RECOMPUTE else _kept(layers, place, tip[place], overlap)
        for place in (0, 1)
    )
    return list(zip(rows, columns, strict=True))


def _kept(layers: Sequence[Op], place: int, tip: int, overlap: str) -> list[Axis]:
    """Tiles of one axis (0: rows) with reuse; in `RELOAD` the first layer's whole."""
    ends = _ends(layers, place)
    # Of each map, first to last: pixels delivered after pyramid v are (v + 1) * advance + phase, clipped to the map.
    lines = [(tip, 0)]
    for layer in reversed(layers):
        extent, stride, padding = _window(layer, place)
        advance, phase = lines[0]
        lines.insert(0, (advance * stride, (phase - 1) * stride - padding + extent))
    first = 0  # the first pyramid that delivers anything; before it there is nothing at all
    while any(first * advance + phase > 0 for advance, phase in lines[overlap == RELOAD :]):
        first -= 1
    count = -(-ends[-1] // tip) - first
    delivered = [
        [0, *(min(max((first + v + 1) * advance + phase, 0), end) for v in range(count))]
        for (advance, phase), end in zip(lines, ends, strict=True)
    ]
    result = []
    for number, layer in enumerate(layers):
        _, stride, padding = _window(layer, place)
        before, after = delivered[number], delivered[number + 1]
        if number == 0 and overlap == RELOAD:
            result.append(_whole(layer, place, list(pairwise(after))))
            continue
        spans = []
        for v in range(count):
            needed = min(max(after[v] * stride - padding, 0), before[v])
            begin = needed if after[v] < ends[number + 1] else before[v]
            spans.append(
                Span(begin=begin, fresh=before[v], end=before[v + 1], window=after[v], windows=after[v + 1] - after[v])
            )
        result.append(_axis(layer, place, spans))
    return result


def _again(layers: Sequence[Op], place: int, tip: int) -> list[Axis]:
    """Tiles of one axis with recomputation: each pyramid's interval mapped back and clipped to the maps."""
    _ends(layers, place)
    size = (layers[-1].output_height, layers[-1].output_width)[place]
    intervals = [(begin, min(begin + tip, size)) for begin in range(0, size, tip)]
    result: list[Axis] = []
    for layer in reversed(layers):
        result.insert(0, _whole(layer, place, intervals))
        intervals = [(span.begin, span.end) for span in result[0].spans]
    return result


def _whole(layer: Op, place: int, intervals: Sequence[tuple[int, int]]) -> Axis:
    """Tiles that come in whole, each for an interval of windows."""
    spans = []
    for begin, end in intervals:
        first, last = layer.needed(place, begin, end) if end > begin else (0, 0)
        spans.append(Span(begin=first, fresh=first, end=last, window=begin, windows=end - begin))
    return _axis(layer, place, spans)


def _ends(layers: Sequence[Op], place: int) -> list[int]:
    """Pixels of each map, first to last, that the last one depends on; those behind the last windows are not computed.

    Raises
    ------
    PlanError
        If none of a map is needed, because all windows of the layers behind lie in their padding.
    """
    ends = [(layers[-1].output_height, layers[-1].output_width)[place]]
    for layer in reversed(layers):
        _, end = layer.needed(place, 0, ends[0])
        if end == 0:
            raise _nothing(layer)
        ends.insert(0, end)
    return ends


def _nothing(layer: Op) -> PlanError:
    return PlanError(f"{layer.name}: no window that is needed reaches into the map; a pyramid has nothing to do")


def _window(layer: Op, place: int) -> tuple[int, int, int]:
    window = layer.window
    return window.extent[place], window.stride[place], window.padding[place]


def _axis(layer: Op, place: int, spans: list[Span]) -> Axis:
    extent, stride, padding = _window(layer, place)
    size = (layer.height, layer.width)[place]
    if not any(span.windows and max(span.begin, span.window * stride - padding) < span.end for span in spans):
        raise _nothing(layer)
    return Axis(size=size, extent=extent, stride=stride, padding=padding, spans=tuple(spans))
