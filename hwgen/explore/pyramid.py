"""Pyramids: what a group of fused layers keeps, computes and moves (Alwani 2015, chapters 3 and 4).

A pyramid is the part of every layer's map that one tile of the group's last output depends on. The group is
computed pyramid by pyramid, row by row. What neighbouring pyramids share is kept on chip (*reuse*: a band at the
right for the next pyramid, a band at the bottom for the next row of them) or computed again (*recompute*).

All figures are words (one value of a map) or operations a frame. `words` and `recomputation` were chosen so that
the thesis's printed figures come out to the last digit; docs/explanation/exploration.md lists slips.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import INPUT, Network
from hwgen.network.ops import Op

Pair = tuple[int, int]
"""Vertical, horizontal."""

SOURCE = -1
"""The number of what a group takes; layers are numbered from 0, and a map has the number of the layer that gives it."""


@dataclass(frozen=True)
class Linked:
    """Layers in topological order, and whose maps they take.

    Parameters
    ----------
    layers : tuple of Op
    sources : tuple of tuple of int
        For each layer the numbers of the maps that it takes.
    places : tuple of int
        Where groups may begin and end (`Network.boundaries`).
    """

    layers: tuple[Op, ...]
    sources: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, layers: Layers) -> Linked:
        """Those of a network, of a chain of layers, or what is linked already."""
        if isinstance(layers, Linked):
            return layers
        if isinstance(layers, Network):
            names = (INPUT, *(layer.name for layer in layers.layers))
            numbers = {name: number for number, name in enumerate(names, SOURCE)}
            sources = tuple(tuple(numbers[edge] for edge in edges) for edges in layers.edges)
            return cls(layers.layers, sources, layers.boundaries)
        return cls(tuple(layers), tuple((number - 1,) for number in range(len(layers))), tuple(range(len(layers) + 1)))

    def head(self, end: int) -> Linked:
        """The first layers, up to a place."""
        return Linked(self.layers[:end], self.sources[:end], tuple(place for place in self.places if place <= end))


Layers = Sequence[Op] | Network | Linked
"""Layers of a group, or of all that is explored: a chain, or what says whose maps they take."""


_FAR = np.iinfo(np.int64).max
"""Beyond any map."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A pyramid at one layer's input; pairs are (rows, columns).

    Parameters
    ----------
    advance : pair
        From one pyramid to the next: the product of the strides from here to the tip, times the tip.
    tile : pair
        Of a pyramid inside the map: ``R' = S R + K - S`` from the tip back (3.1); ``K`` is what a window covers.
    first : pair
        Of the first pyramid, which begins at the map's corner: padding counts here, and what lies in the padding of
        the layers behind isn't computed.
    """

    advance: Pair
    tile: Pair
    first: Pair


def back_map(layers: Sequence[Op], tip: Pair = (1, 1)) -> list[Level]:
    """The pyramid under a ``tip`` of the last layer's output, at each layer's input, first layer first.

    Raises
    ------
    InputError
        If the tip is empty or larger than the output.
    """
    _check(layers, tip)
    advance, tile, first = tip, tip, tip
    levels = []
    for layer in reversed(layers):
        extent, stride, padding = layer.window.extent, layer.window.stride, layer.window.padding[:2]
        advance = (advance[0] * stride[0], advance[1] * stride[1])
        tile = (_back(tile[0], extent[0], stride[0]), _back(tile[1], extent[1], stride[1]))
        first = (_back(first[0], extent[0], stride[0]), _back(first[1], extent[1], stride[1]))
        levels.append(Level(advance=advance, tile=tile, first=first))
        first = (max(first[0] - padding[0], 1), max(first[1] - padding[1], 1))
    return levels[::-1]


def reuse_words(layers: Layers, tip: Pair = (1, 1)) -> int:
    """On-chip words that one group keeps for reuse: ``sum of N (K - S) (W + step)`` over the maps that its layers take.

    The accounting of the thesis's exploration tool (Fig. 4.1): ``W`` is the width without padding (the band at
    the bottom), ``step`` the new rows of a pyramid (the band at the right). The group's own input counts. A pool with
    ``K = S`` keeps nothing. Of a map that several layers take, the one that is behind decides (docs/explanation).
    """
    return reuse_words_of_tails(layers, tip)[0]


def reuse_words_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[int]:
    """`reuse_words` of every group that ends with the last layer: entry ``i`` is that from the ``i``-th place on."""
    linked = Linked.of(layers)
    _check(linked, tip)
    tips = tips_of_tails(linked, tip)
    words = {each: _words_of_tails(linked, each) for each in set(tips)}
    return [words[each][number] for number, each in enumerate(tips)]


def tips_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[Pair]:
    """For every group that ends with the last layer its pyramids' tip: the least, no less than ``tip``, by which all
    its maps advance by whole pixels. Only upsampling asks for more than ``tip``.
    """
    linked = Linked.of(layers)
    by_axis = [_wholes(linked, _paces(linked, axis)) for axis in (0, 1)]
    return [
        (-(-tip[0] // rows) * rows, -(-tip[1] // columns) * columns) for rows, columns in zip(*by_axis, strict=True)
    ]


def _wholes(linked: Linked, paces: dict[int, Fraction]) -> list[int]:
    """For each place but the last the outputs by which all maps behind it advance by whole pixels."""
    found, whole = {}, 1
    for number in range(len(linked.layers) - 1, SOURCE - 1, -1):
        whole = lcm(whole, paces[number].denominator)
        found[number + 1] = whole
    return [found[place] for place in linked.places[:-1]]


def _paces(linked: Linked, axis: int) -> dict[int, Fraction]:
    """For each map its rows (axis 0) or columns from one output of the last layer to the next; 0: all of it for each.

    Where ways to the last layer differ in their paces, no band of the map moves along with both: all of it is taken.
    """
    layers, readers = linked.layers, _readers(linked)
    found = {len(layers) - 1: Fraction(1)}
    for number in range(len(layers) - 2, SOURCE - 1, -1):
        paces = {found[reader] * layers[reader].pace(place, axis) for reader, place in readers[number]}
        found[number] = paces.pop() if len(paces) == 1 else Fraction(0)
    return found


def _readers(linked: Linked) -> dict[int, list[tuple[int, int]]]:
    """For each map the layers that take it, and as which of their inputs."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, sources in enumerate(linked.sources):
        for place, source in enumerate(sources):
            found[source].append((number, place))
    return found


def _words_of_tails(linked: Linked, tip: Pair) -> list[int]:
    """`reuse_words_of_tails` with one tip for all groups."""
    rows, columns = (_overlaps(linked, axis, tip[axis]) for axis in (0, 1))
    paces, layers, words = [_paces(linked, axis) for axis in (0, 1)], linked.layers, {}
    total = 0
    for number in range(len(layers) - 2, SOURCE - 1, -1):
        kept = layers[0].input if number == SOURCE else layers[number].output
        whole, advance = kept.height * kept.width, int(paces[0][number] * tip[0])
        counted, needed = (
            below * kept.width + right * advance for below, right in zip(rows[number], columns[number], strict=True)
        )
        # As the papers count, ends of the map don't matter; where a fork keeps more, no more than the map.
        band = min(needed, whole) if all(pace[number] for pace in paces) else whole
        total += kept.channels * max(counted, band)
        words[number + 1] = total
    return [words[place] for place in linked.places[:-1]]


def _overlaps(linked: Linked, axis: int, tip: int) -> dict[int, tuple[int, int]]:
    """For each map the rows (axis 0) or columns that are kept from one pyramid to the next.

    The first figure: most that any layer's windows have in common. The second: what the layer that is most behind has
    yet to read, when the one that is most ahead has what it needs.
    """
    layers, readers = linked.layers, _readers(linked)
    ends, found = {len(layers) - 1: tip}, {}
    for number in range(len(layers) - 2, SOURCE - 1, -1):
        needed, next_begins = [], []
        for reader, place in readers[number]:
            needed.append(layers[reader].covered(place, axis, 0, ends[reader])[1])
            next_begins.append(layers[reader].covered(place, axis, ends[reader], ends[reader] + 1)[0])
        ends[number] = max(needed)
        shared = max(end - begin for end, begin in zip(needed, next_begins, strict=True))
        found[number] = max(shared, 0), max(ends[number] - min(next_begins), 0)
    return found


def implementation_words(layers: Sequence[Op], tip: Pair = (1, 1)) -> int:
    """The same by the accounting of the thesis's implementation (55.88 KB, section 3.4.5).

    Widths with padding, the rows of the first pyramid, and the group's own input not counted.
    """
    total = 0
    for layer, level in list(zip(layers, back_map(layers, tip), strict=True))[1:]:
        below, right = _overlap(layer)
        _, left_padding, _, right_padding = layer.window.padding
        width = layer.width + left_padding + right_padding
        total += layer.channels * (below * width + right * level.first[0])
    return total


@dataclass(frozen=True, kw_only=True)
class Work:
    """Arithmetic of the convolutions, a frame.

    Parameters
    ----------
    multiplications : int
        With every value computed once.
    extra_multiplications, extra_additions : int
        On top of that, where overlaps are computed again.
    input_words : int
        Read from off chip where each pyramid reads its whole input tile.
    """

    multiplications: int
    extra_multiplications: int
    extra_additions: int
    input_words: int


def recomputation(layers: Layers, tip: Pair = (1, 1)) -> Work:
    """The work of one group whose pyramids share nothing, each clipped at the zero padding.

    Additions are counted as the thesis does, ``K*K - 1`` for ``K*K`` multiplications. Of a map that several layers take
    a pyramid has the least rectangle with all that they need.
    """
    return recomputation_of_tails(layers, tip)[0]


def recomputation_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[Work]:
    """`recomputation` of every group that ends with the last layer: entry ``i`` is that from the ``i``-th place on.

    A pyramid is mapped back from the tip, so all groups of one tip have its levels in common.
    """
    linked = Linked.of(layers)
    _check(linked, tip)
    tips = tips_of_tails(linked, tip)
    works = {each: _works_of_tails(linked, each) for each in set(tips)}
    return [works[each][number] for number, each in enumerate(tips)]


def _works_of_tails(linked: Linked, tip: Pair) -> list[Work]:
    layers = linked.layers
    last = layers[-1]
    rows = _extents(linked, 0, last.output_height, tip[0])
    columns = _extents(linked, 1, last.output_width, tip[1])
    base = extra = additions = 0
    works = {}
    for number in reversed(range(len(layers))):
        layer = layers[number]
        more = (rows[number] * columns[number] - layer.output_height * layer.output_width) * layer.weight_count
        base += layer.macs
        # Rows behind the last window of the layers above are in no pyramid: those are not computed, which saves.
        extra += more
        additions += more // layer.taps * (layer.taps - 1)
        works[number] = Work(
            multiplications=base,
            extra_multiplications=extra,
            extra_additions=additions,
            input_words=layer.channels * rows[number - 1] * columns[number - 1],
        )
    return [works[place] for place in linked.places[:-1]]


def map_traffic(groups: Sequence[Sequence[Op]]) -> int:
    """Words of feature maps over the chip's boundary: each group's input and output, once (no halo twice)."""
    return sum(group[0].input_words + group[-1].output_words for group in groups)


def _extents(linked: Linked, axis: int, size: int, tip: int) -> dict[int, int]:
    """Rows (axis 0) or columns of all pyramids together, of each map.

    Every pyramid's interval is mapped back layer by layer and clipped to the map.
    """
    layers, readers = linked.layers, _readers(linked)
    begin = np.arange(0, size, tip, dtype=np.int64)
    intervals = {len(layers) - 1: (begin, np.minimum(begin + tip, size))}  # one past the last
    for number in range(len(layers) - 2, SOURCE - 1, -1):
        needs = [_needs(layers[reader], place, axis, *intervals[reader]) for reader, place in readers[number]]
        # What needs nothing doesn't count, unless nothing does.
        first = np.min([np.where(end > begin, begin, _FAR) for begin, end in needs], axis=0)
        last = np.max([np.where(end > begin, end, 0) for begin, end in needs], axis=0)
        intervals[number] = np.minimum(first, last), last
    return {number: int((end - begin).sum()) for number, (begin, end) in intervals.items()}


def _needs(layer: Op, place: int, axis: int, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What outputs of a layer need of an input, in each pyramid; a window wholly in the padding needs nothing."""
    limit = layer.inputs[place].shape[1 + axis]
    first, last = (np.clip(edge, 0, limit) for edge in layer.covered(place, axis, begin, end))
    return first, np.where(end > begin, np.maximum(first, last), first)


def _back(size: int, extent: int, stride: int) -> int:
    return stride * size + extent - stride


def _overlap(layer: Op) -> Pair:
    """Rows and columns that neighbouring windows share; 0 where the stride skips."""
    extent, stride = layer.window.extent, layer.window.stride
    return max(extent[0] - stride[0], 0), max(extent[1] - stride[1], 0)


def _check(layers: Layers, tip: Pair) -> None:
    linked = Linked.of(layers)
    if not linked.layers:
        raise InputError("a pyramid must have at least one layer, not 0")
    for after, sources in zip(linked.layers, linked.sources, strict=True):
        for taken, source in zip(after.inputs, sources, strict=True):
            if source != SOURCE and linked.layers[source].output.shape != taken.shape:
                raise InputError(
                    f"a pyramid's layers must follow each other: {after.name} does not take "
                    f"{linked.layers[source].name}'s map"
                )
    last = linked.layers[-1]
    if not (1 <= tip[0] <= last.output_height and 1 <= tip[1] <= last.output_width):
        raise InputError(
            f"a pyramid's tip must be between 1x1 and {last.name}'s {last.output_height}x{last.output_width}, "
            f"not {tip[0]}x{tip[1]}"
        )
