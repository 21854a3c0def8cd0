"""Division of each layer's input into tiles for successive output tiles of a fusion group (Alwani 2015, section 3.1).

A pyramid's tip is its tile of the group's output. The pyramid's tile of every layer's input follows from the tip, from
the last layer back to the first. The overlap decides what a tile holds:

- ``reuse``: the pixels that are new since the previous pyramid, and ``K - S`` kept pixels (``K`` is the window's
  extent, ``S`` its stride);
- ``recompute``: all pixels that the tip depends on;
- ``reload``: as with reuse for maps inside the group, but the group's input comes in with its whole halo for each
  pyramid (as in the thesis's implementation).

The thesis begins with a pyramid at the map's corner. Its tiles of the first layers are much larger than all other
pyramids' (for AlexNet's first two layers 51 rows, later 16). Here the pyramids begin before the corner, as far as
the group's windows reach. Every pyramid, the first included, then brings at most one advance of new pixels, and bands
and tiles are sized for pyramids inside the map. Pyramids before the corner have no tip; they fill the first layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hwgen.errors import PlanError
from hwgen.gateware.pyramid.spans import Span, TiledAxis
from hwgen.network.ops import Op
from hwgen.options import OVERLAPS, RECOMPUTE, RELOAD, REUSE


def axes(layers: Sequence[Op], tip: tuple[int, int], overlap: str = REUSE) -> list[tuple[TiledAxis, TiledAxis]]:
    """Return a list by layer of pairs of `TiledAxis`: input tiles along rows and columns, for output tiles ``tip``.

    The ``tip`` is a number of rows and a number of columns.

    Raises
    ------
    PlanError
        If the tip is empty or larger than the output, the overlap is unknown, or a layer isn't needed.
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
        _recomputed(layers, axis, tip[axis]) if overlap == RECOMPUTE else _reused(layers, axis, tip[axis], overlap)
        for axis in (0, 1)
    )
    return list(zip(rows, columns, strict=True))


def _reused(layers: Sequence[Op], axis: int, tip: int, overlap: str) -> list[TiledAxis]:
    """Return a list of each layer's `TiledAxis` (input tiles on an axis) if a tile's pixels are kept for the next one.

    With `RELOAD`, the first layer's tiles come in whole.
    """
    ends = _dependent_sizes(layers, axis)
    # After pyramid v, (v + 1) * advance + phase pixels of a map are delivered, clipped to the map. One pair (advance,
    # phase) for each map, first to last:
    lines = [(tip, 0)]
    for layer in reversed(layers):
        extent, stride, padding = _window(layer, axis)
        advance, phase = lines[0]
        lines.insert(0, (advance * stride, (phase - 1) * stride - padding + extent))
    first = 0  # index of the first pyramid, the first one that delivers pixels
    while any(first * advance + phase > 0 for advance, phase in lines[overlap == RELOAD :]):
        first -= 1
    count = -(-ends[-1] // tip) - first
    delivered = [
        [0, *(min(max((first + v + 1) * advance + phase, 0), end) for v in range(count))]
        for (advance, phase), end in zip(lines, ends, strict=True)
    ]
    result = []
    for index, layer in enumerate(layers):
        _, stride, padding = _window(layer, axis)
        before, after = delivered[index], delivered[index + 1]
        if index == 0 and overlap == RELOAD:
            result.append(_whole_tiles(layer, axis, list(pairwise(after))))
            continue
        spans = []
        for v in range(count):
            needed = min(max(after[v] * stride - padding, 0), before[v])
            begin = needed if after[v] < ends[index + 1] else before[v]
            spans.append(
                Span(begin=begin, fresh=before[v], end=before[v + 1], window=after[v], windows=after[v + 1] - after[v])
            )
        result.append(_axis(layer, axis, spans))
    return result


def _recomputed(layers: Sequence[Op], axis: int, tip: int) -> list[TiledAxis]:
    """Return a list of each layer's `TiledAxis` (input tiles on an axis) if neighbouring tiles recompute overlaps.

    Each pyramid's interval of the output is mapped back from layer to layer, and clipped to the maps.
    """
    _dependent_sizes(layers, axis)
    size = (layers[-1].output_height, layers[-1].output_width)[axis]
    intervals = [(begin, min(begin + tip, size)) for begin in range(0, size, tip)]
    result: list[TiledAxis] = []
    for layer in reversed(layers):
        result.insert(0, _whole_tiles(layer, axis, intervals))
        intervals = [(span.begin, span.end) for span in result[0].spans]
    return result


def _whole_tiles(layer: Op, axis: int, intervals: Sequence[tuple[int, int]]) -> TiledAxis:
    """Return a `TiledAxis`: a layer's input tiles on an axis, one per interval of windows, with nothing kept."""
    spans = []
    for begin, end in intervals:
        first, last = layer.needed(axis, begin, end) if end > begin else (0, 0)
        spans.append(Span(begin=first, fresh=first, end=last, window=begin, windows=end - begin))
    return _axis(layer, axis, spans)


def _dependent_sizes(layers: Sequence[Op], axis: int) -> list[int]:
    """Return a list, per map of a fusion group, of how many rows (axis 0) or columns the group's output depends on.

    Pixels after the last windows are not computed.

    Raises
    ------
    PlanError
        If no pixel of a map is needed, because all windows of the next layers are in their padding.
    """
    ends = [(layers[-1].output_height, layers[-1].output_width)[axis]]
    for layer in reversed(layers):
        _, end = layer.needed(axis, 0, ends[0])
        if end == 0:
            raise _no_input_error(layer)
        ends.insert(0, end)
    return ends


def _no_input_error(layer: Op) -> PlanError:
    return PlanError(f"{layer.name}: no window that is needed reaches into the map; a pyramid has nothing to do")


def _window(layer: Op, axis: int) -> tuple[int, int, int]:
    window = layer.window
    return window.extent[axis], window.stride[axis], window.padding[axis]


def _axis(layer: Op, axis: int, spans: list[Span]) -> TiledAxis:
    extent, stride, padding = _window(layer, axis)
    size = (layer.height, layer.width)[axis]
    if not any(span.windows and max(span.begin, span.window * stride - padding) < span.end for span in spans):
        raise _no_input_error(layer)
    return TiledAxis(size=size, extent=extent, stride=stride, padding=padding, spans=tuple(spans))
