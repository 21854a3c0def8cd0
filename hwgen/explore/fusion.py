"""Costs of fusing a network's layers: exact Pareto fronts over all divisions of the network into fusion groups.

Groups begin and end where the network can be cut (`hwgen.network.graph.Network.cuts`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import add

from hwgen.errors import InputError
from hwgen.explore import pyramid
from hwgen.explore.pyramid import Layers, Linked
from hwgen.network.ops import Op
from hwgen.plan.cuts import Span, front, spans
from hwgen.templates.unroll import UnrollChoice
from hwgen.templates.work import Unroll, ceil_div


@dataclass(frozen=True, kw_only=True)
class StoragePoint:
    """Point of a Pareto front: a division into fusion groups, words stored on chip, and words moved off chip.

    The stored words are overlaps of neighbouring pyramids (tiles). The moved words are the groups' feature maps.
    """

    groups: tuple[Span, ...]
    storage_words: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class DspPoint:
    """Point of a Pareto front: a division into fusion groups, number of multipliers, and words moved off chip.

    The groups run one after the other and share the multipliers.
    """

    groups: tuple[Span, ...]
    dsp: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class OverlapPoint:
    """Point of a Pareto front: a division into fusion groups that each ``reuse`` or ``recompute`` overlaps, and costs.

    The costs are words stored on chip, multiplications per frame and words moved per frame.
    """

    groups: tuple[Span, ...]
    overlap: tuple[str, ...]
    storage_words: int
    multiplications: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class CyclesPoint:
    """Point of a Pareto front: unroll factors of all layers, their multipliers, and the slowest layer's cycles."""

    dsp: int
    cycles: int
    unroll: tuple[Unroll, ...]


def storage_words(layers: Layers) -> dict[Span, int]:
    """Return a dict by range of layers to fuse: words kept on chip to reuse the overlaps between tiles."""
    linked = Linked.of(layers)
    return {
        (begin, end): words
        for end in linked.boundaries[1:]
        for begin, words in zip(linked.boundaries, pyramid.reuse_words_of_tails(linked.head(end)), strict=False)
    }


def storage_traffic(layers: Layers) -> list[StoragePoint]:
    """Return a list of `StoragePoint`: Pareto front of words stored and words moved, over all ways to fuse.

    The points are sorted by storage. Groups run one after the other in the same buffers, so a grouping needs the
    largest group's storage (the thesis).
    """
    linked = Linked.of(layers)
    costs = storage_words(linked)
    points = front(
        linked.boundaries,
        lambda *span: [((costs[span], _traffic_words(linked.layers, *span)), None)],
        (max, add),
    )
    return [
        StoragePoint(groups=spans(path), storage_words=values[0], traffic_words=values[1]) for values, path in points
    ]


def dsp_traffic(layers: Layers, multipliers: Sequence[int]) -> list[DspPoint]:
    """Return a list of `DspPoint`: Pareto front of multipliers and words moved off chip, over all ways to fuse.

    This is Fig. 7 of DeCoILFNet. The points are sorted by multipliers.

    Parameters
    ----------
    layers : Layers
        Layers of the network.
    multipliers : sequence of int
        Multipliers of each layer, independent of the grouping.
    """
    linked = Linked.of(layers)
    count = len(linked.layers)
    if len(multipliers) != count:
        raise InputError(f"multipliers must be given for each of {count} layers, not for {len(multipliers)}")
    points = front(
        linked.boundaries,
        lambda begin, end: [((sum(multipliers[begin:end]), _traffic_words(linked.layers, begin, end)), None)],
        (max, add),
    )
    return [DspPoint(groups=spans(path), dsp=values[0], traffic_words=values[1]) for values, path in points]


def depth_multipliers(layer: Op, depth_groups: int = 1) -> int:
    """Return the multipliers that compute all taps of ``1 / depth_groups`` of a convolution's input channels at once.

    Pools and depthwise convolutions count as none.
    """
    if layer.channelwise or not layer.weight_count:
        return 0
    return layer.taps * ceil_div(layer.channels // layer.groups, depth_groups)


def storage_multiplications(layers: Layers, groups: Sequence[Span] | None = None) -> list[OverlapPoint]:
    """Return a list of `OverlapPoint`: Pareto front of words stored, multiplications, words moved, by reuse or not.

    Each group either reuses or recomputes the overlaps of its tiles. A group that recomputes stores nothing, reads its
    input with the overlaps, and needs more multiplications. The points are sorted by storage.

    Parameters
    ----------
    layers : Layers
        Layers of the network.
    groups : sequence of spans, optional
        A single grouping: the result is then the front of storage and multiplications. By default all groupings: the
        front of all three costs.
    """
    linked = Linked.of(layers)
    if groups is not None:
        check_groups(linked, groups)
    fixed = None if groups is None else set(groups)
    ends = linked.boundaries[1:] if groups is None else [end for _, end in groups]
    options: dict[Span, list[tuple[tuple[int, ...], str]]] = {}
    for end in ends:
        head = linked.head(end)
        stored, works = pyramid.reuse_words_of_tails(head), pyramid.recomputation_of_tails(head)
        for begin, storage, work in zip(head.boundaries[:-1], stored, works, strict=True):
            if fixed is not None and (begin, end) not in fixed:
                continue
            moved = _traffic_words(linked.layers, begin, end)
            halo = work.input_words - linked.layers[begin].input_words
            again = work.multiplications + work.extra_multiplications
            options[begin, end] = [
                ((storage, work.multiplications, moved), "reuse"),
                ((0, again, moved + halo), "recompute"),
            ]
    costs = 3 if fixed is None else 2
    paths = front(
        linked.boundaries,
        lambda begin, end: [(values[:costs], (values, overlap)) for values, overlap in options.get((begin, end), ())],
        (max, add, add)[:costs],
    )
    points = []
    for values, path in paths:
        traffic = sum(tag[0][2] for _, tag in path)
        points.append(
            OverlapPoint(
                groups=spans(path),
                overlap=tuple(tag[1] for _, tag in path),
                storage_words=values[0],
                multiplications=values[1],
                traffic_words=traffic,
            )
        )
    return points


def dsp_cycles(choices: Sequence[Sequence[UnrollChoice]]) -> list[CyclesPoint]:
    """Return a list of `CyclesPoint`: Pareto front of multipliers and cycles per frame, over all unroll factors.

    The points are sorted by multipliers.

    Parameters
    ----------
    choices : sequence of sequence of UnrollChoice
        Choices of each layer, sorted by rising cycles and falling cost.
    """
    if not choices or not all(choices):
        return []
    counts = [[choice.cycles for choice in options] for options in choices]
    fastest = max(count[0] for count in counts)
    points: list[CyclesPoint] = []
    for cycles in sorted({entry for count in counts for entry in count if entry >= fastest}):
        # the last choice that keeps the interval is the cheapest
        taken = [options[bisect_right(count, cycles) - 1] for options, count in zip(choices, counts, strict=True)]
        dsp = sum(choice.cost for choice in taken)
        if not points or dsp < points[-1].dsp:
            points.append(CyclesPoint(dsp=dsp, cycles=cycles, unroll=tuple(choice.unroll for choice in taken)))
    return points[::-1]


def _traffic_words(layers: Sequence[Op], begin: int, end: int) -> int:
    return layers[begin].input_words + layers[end - 1].output_words


def check_groups(layers: Layers, groups: Sequence[Span]) -> None:
    """Raise InputError unless groups hold each layer once and in order, and end where the network can be cut."""
    linked = Linked.of(layers)
    edges, count = [0, *(end for _, end in groups)], len(linked.layers)
    if edges[-1] != count or any(a >= b for a, b in pairwise(edges)) or [a for a, _ in groups] != edges[:-1]:
        raise InputError(
            f"groups must hold each of {count} layers once and in order, as (begin, end) pairs, not {list(groups)}"
        )
    if wrong := [end for end in edges if end not in linked.boundaries]:
        raise InputError(f"groups must end where one map crosses, not after {linked.layers[wrong[0] - 1].name}")
