"""On-chip storage, arithmetic and memory traffic of fused layers computed tile by tile, in pyramids (Alwani 2015).

Chapters 3 and 4 of the thesis describe the computation.

A pyramid is the part of every layer's map that one tile of the group's last output depends on. The group is computed
pyramid by pyramid, row by row. Values that neighbouring pyramids share are either kept on chip (*reuse*) or computed
again (*recompute*). Reuse keeps a band at the right for the next pyramid, and a band at the bottom for the next row of
pyramids.

All figures are words (one value of a map) or operations per frame. `reuse_words` and `recomputation` reproduce the
thesis's printed figures to the last digit. docs/figures/published.md names the slips of the thesis.
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
"""Type of a pair: number of rows, number of columns."""

SOURCE = -1
"""Index that stands for the input map of a fusion group of layers.

Layers have indices starting at 0, and a map has the index of the layer that produces it.
"""


@dataclass(frozen=True)
class Linked:
    """Layers in topological order, with the indices of the layers (or -1, the input) whose maps each layer reads.

    Parameters
    ----------
    layers : tuple of Op
        Layers in topological order.
    sources : tuple of tuple of int
        Indices of the maps that each layer reads.
    boundaries : tuple of int
        Layer indices where groups can begin and end (`Network.boundaries`).
    """

    layers: tuple[Op, ...]
    sources: tuple[tuple[int, ...], ...]
    boundaries: tuple[int, ...]

    @classmethod
    def of(cls, layers: Layers) -> Linked:
        """Return `Linked`: the layers of a network, or of a chain, together with the maps that each layer reads.

        Linked layers are returned unchanged.
        """
        if isinstance(layers, Linked):
            return layers
        if isinstance(layers, Network):
            names = (INPUT, *(layer.name for layer in layers.layers))
            indices = {name: index for index, name in enumerate(names, SOURCE)}
            sources = tuple(tuple(indices[edge] for edge in edges) for edges in layers.edges)
            return cls(layers.layers, sources, layers.boundaries)
        return cls(tuple(layers), tuple((index - 1,) for index in range(len(layers))), tuple(range(len(layers) + 1)))

    def head(self, end: int) -> Linked:
        """Return `Linked`: the layers before index ``end``, a possible end of a group, with the maps they read."""
        return Linked(
            self.layers[:end], self.sources[:end], tuple(boundary for boundary in self.boundaries if boundary <= end)
        )


Layers = Sequence[Op] | Network | Linked
"""Type of the layers of a fusion group or network: a chain of operators, a `Network`, or `Linked` layers."""


_FAR = np.iinfo(np.int64).max
"""Row or column index beyond any feature map."""


def reuse_words(layers: Layers, tip: Pair = (1, 1)) -> int:
    """Return the number of on-chip words that one fusion group keeps so that tiles (pyramids) reuse their overlaps.

    They are the sum of ``N (K - S) (W + step)`` over the maps that the group's layers read, as in the thesis's
    exploration tool (Fig. 4.1). ``W`` is the width without padding (the band at the bottom), ``step`` the new rows of a
    pyramid (the band at the right). The group's own input counts. A pool with ``K = S`` keeps nothing. If several
    layers read a map, the layer that lags the most decides (docs/explanation).
    """
    return reuse_words_of_tails(layers, tip)[0]


def reuse_words_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[int]:
    """Return a list: words kept for reuse between tiles, per possible first layer of a fusion group."""
    linked = Linked.of(layers)
    check_tip(linked, tip)
    tips = tips_of_tails(linked, tip)
    words = {group_tip: _words_of_tails(linked, group_tip) for group_tip in set(tips)}
    return [words[group_tip][index] for index, group_tip in enumerate(tips)]


def tips_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[Pair]:
    """Return a list of output tile sizes (rows, columns), ``tip`` or more, one per possible first layer of a group.

    It is the smallest tip, at least ``tip``, that advances all maps of the group by whole pixels. Only upsampling needs
    more than ``tip``.
    """
    linked = Linked.of(layers)
    by_axis = [_whole_pixel_steps(linked, _paces(linked, axis)) for axis in (0, 1)]
    return [
        (-(-tip[0] // rows) * rows, -(-tip[1] // columns) * columns) for rows, columns in zip(*by_axis, strict=True)
    ]


def _whole_pixel_steps(linked: Linked, paces: dict[int, Fraction]) -> list[int]:
    """Return a list of the least output steps (rows or columns) that move all maps by whole pixels, per first layer.

    Steps count rows or columns of the output. The groups end with the last layer.
    """
    outputs, whole = {}, 1
    for index in range(len(linked.layers) - 1, SOURCE - 1, -1):
        whole = lcm(whole, paces[index].denominator)
        outputs[index + 1] = whole
    return [outputs[boundary] for boundary in linked.boundaries[:-1]]


def _paces(linked: Linked, axis: int) -> dict[int, Fraction]:
    """Return a dict by map index: rows (axis 0) or columns of the map per row or column of the last output.

    The number is 0 if the whole map is needed. If the paths to the last layer have different paces, no band of the map
    moves along with both. Then the whole map is needed.
    """
    layers, readers = linked.layers, _readers(linked)
    pace_of = {len(layers) - 1: Fraction(1)}
    for index in range(len(layers) - 2, SOURCE - 1, -1):
        paces = {pace_of[reader] * layers[reader].pace(input_index, axis) for reader, input_index in readers[index]}
        pace_of[index] = paces.pop() if len(paces) == 1 else Fraction(0)
    return pace_of


def _readers(linked: Linked) -> dict[int, list[tuple[int, int]]]:
    """Return, as a dictionary by map index, the layers that read the map, as pairs (layer index, input index)."""
    readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for layer, sources in enumerate(linked.sources):
        for input_index, source in enumerate(sources):
            readers[source].append((layer, input_index))
    return readers


def _words_of_tails(linked: Linked, tip: Pair) -> list[int]:
    """Return a list: words kept for reuse with output tiles of size ``tip``, per possible first layer.

    The groups end with the last layer.
    """
    rows, columns = (_overlaps(linked, axis, tip[axis]) for axis in (0, 1))
    paces, layers, words = [_paces(linked, axis) for axis in (0, 1)], linked.layers, {}
    total = 0
    for index in range(len(layers) - 2, SOURCE - 1, -1):
        kept = layers[0].input if index == SOURCE else layers[index].output
        whole, advance = kept.height * kept.width, int(paces[0][index] * tip[0])
        counted, needed = (
            below * kept.width + right * advance for below, right in zip(rows[index], columns[index], strict=True)
        )
        # ``counted`` is the papers' count: the overlap of windows, even beyond the ends of a small map. ``needed`` is
        # larger for a fork, whose slowest reader lags; no more than the map is then stored.
        band = min(needed, whole) if all(pace[index] for pace in paces) else whole
        total += kept.channels * max(counted, band)
        words[index + 1] = total
    return [words[boundary] for boundary in linked.boundaries[:-1]]


def _overlaps(linked: Linked, axis: int, tip: int) -> dict[int, tuple[int, int]]:
    """Return a dict by map index of pairs: rows (axis 0) or columns a tile keeps for its neediest reader, and for all.

    The first figure is the largest overlap of any layer's windows. The second is the part that the layer that lags the
    most must still read when the layer that leads has what it needs.
    """
    layers, readers = linked.layers, _readers(linked)
    ends, overlaps = {len(layers) - 1: tip}, {}
    for index in range(len(layers) - 2, SOURCE - 1, -1):
        needed, next_begins = [], []
        for reader, input_index in readers[index]:
            needed.append(layers[reader].covered(input_index, axis, 0, ends[reader])[1])
            next_begins.append(layers[reader].covered(input_index, axis, ends[reader], ends[reader] + 1)[0])
        ends[index] = max(needed)
        shared = max(end - begin for end, begin in zip(needed, next_begins, strict=True))
        overlaps[index] = max(shared, 0), max(ends[index] - min(next_begins), 0)
    return overlaps


@dataclass(frozen=True, kw_only=True)
class Work:
    """Multiplications, additions and input words per frame of fused convolutions, also if tiles recompute overlaps.

    Parameters
    ----------
    multiplications : int
        Number of multiplications if every value is computed once.
    extra_multiplications, extra_additions : int
        Additional operations if overlaps are computed again.
    input_words : int
        Words read from off-chip memory if each pyramid reads its whole input tile.
    """

    multiplications: int
    extra_multiplications: int
    extra_additions: int
    input_words: int


def recomputation(layers: Layers, tip: Pair = (1, 1)) -> Work:
    """Return `Work` (operations and input words per frame) for a fusion group whose tiles recompute overlaps.

    Additions are counted as in the thesis, ``K*K - 1`` for ``K*K`` multiplications. If several layers read a map, a
    pyramid has the smallest rectangle that covers all their needs.
    """
    return recomputation_of_tails(layers, tip)[0]


def recomputation_of_tails(layers: Layers, tip: Pair = (1, 1)) -> list[Work]:
    """Return, as a list, the `Work` with recomputed overlaps, one per possible first layer of a fusion group.

    A pyramid is mapped back from its output tile (tip), so all groups with one tip share its levels.
    """
    linked = Linked.of(layers)
    check_tip(linked, tip)
    tips = tips_of_tails(linked, tip)
    works = {group_tip: _works_of_tails(linked, group_tip) for group_tip in set(tips)}
    return [works[group_tip][index] for index, group_tip in enumerate(tips)]


def _works_of_tails(linked: Linked, tip: Pair) -> list[Work]:
    layers = linked.layers
    last = layers[-1]
    rows = _extents(linked, 0, last.output_height, tip[0])
    columns = _extents(linked, 1, last.output_width, tip[1])
    base = extra = additions = 0
    works = {}
    for index in reversed(range(len(layers))):
        layer = layers[index]
        repeated = (rows[index] * columns[index] - layer.output_height * layer.output_width) * layer.weight_count
        base += layer.macs
        # ``repeated`` can be negative: rows after the last window of the following layers are not computed at all.
        extra += repeated
        additions += repeated // layer.taps * (layer.taps - 1)
        works[index] = Work(
            multiplications=base,
            extra_multiplications=extra,
            extra_additions=additions,
            input_words=layer.channels * rows[index - 1] * columns[index - 1],
        )
    return [works[boundary] for boundary in linked.boundaries[:-1]]


def map_traffic(groups: Sequence[Sequence[Op]]) -> int:
    """Return the number of feature-map words moved off chip per frame: each fusion group's input and output.

    Halos of tiles do not count.
    """
    return sum(group[0].input_words + group[-1].output_words for group in groups)


def _extents(linked: Linked, axis: int, size: int, tip: int) -> dict[int, int]:
    """Return a dict by map index: sum over all pyramids (tiles) of the rows (axis 0) or columns they compute.

    Every pyramid's interval is mapped back layer by layer and clipped to the map.
    """
    layers, readers = linked.layers, _readers(linked)
    begin = np.arange(0, size, tip, dtype=np.int64)
    intervals = {len(layers) - 1: (begin, np.minimum(begin + tip, size))}  # one past the last
    for index in range(len(layers) - 2, SOURCE - 1, -1):
        needs = [
            _needs(layers[reader], input_index, axis, *intervals[reader]) for reader, input_index in readers[index]
        ]
        # A reader that needs nothing doesn't count, unless no reader needs anything.
        first = np.min([np.where(end > begin, begin, _FAR) for begin, end in needs], axis=0)
        last = np.max([np.where(end > begin, end, 0) for begin, end in needs], axis=0)
        intervals[index] = np.minimum(first, last), last
    return {index: int((end - begin).sum()) for index, (begin, end) in intervals.items()}


def _needs(layer: Op, input_index: int, axis: int, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays over tiles: first input row (axis 0) or column that outputs need, and end (excluded).

    A window wholly in the padding needs nothing.
    """
    limit = layer.inputs[input_index].shape[1 + axis]
    first, last = (np.clip(edge, 0, limit) for edge in layer.covered(input_index, axis, begin, end))
    return first, np.where(end > begin, np.maximum(first, last), first)


def check_tip(layers: Layers, tip: Pair) -> None:
    """Raise InputError if there are no layers, maps of layers don't match, or the output tile (tip) is too large."""
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
