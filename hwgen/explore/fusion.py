"""Fusion: what the groupings of a network's layers cost, as exact Pareto fronts (`hwgen.plan.cuts`).

Groups begin and end where the network may be cut (`hwgen.network.graph.Network.cuts`).
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
from hwgen.templates.unroll import Choice
from hwgen.templates.work import Unroll, ceil_div


@dataclass(frozen=True, kw_only=True)
class StoragePoint:
    """A grouping with reuse: words kept on chip, words of maps moved a frame."""

    groups: tuple[Span, ...]
    storage_words: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class DspPoint:
    """A grouping in which the layers of a group work at once, and groups in turn on the same multipliers."""

    groups: tuple[Span, ...]
    dsp: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class OverlapPoint:
    """A grouping with ``reuse`` or ``recompute`` for each group."""

    groups: tuple[Span, ...]
    overlap: tuple[str, ...]
    storage_words: int
    multiplications: int
    traffic_words: int


@dataclass(frozen=True, kw_only=True)
class CyclesPoint:
    """Unroll factors of all layers at work together: multipliers, and cycles of the slowest layer."""

    dsp: int
    cycles: int
    unroll: tuple[Unroll, ...]


def storage_words(layers: Layers) -> dict[Span, int]:
    """Words that each group of the layers keeps for reuse."""
    linked = Linked.of(layers)
    return {
        (begin, end): words
        for end in linked.places[1:]
        for begin, words in zip(linked.places, pyramid.reuse_words_of_tails(linked.head(end)), strict=False)
    }


def storage_traffic(layers: Layers) -> list[StoragePoint]:
    """Reuse storage against traffic of maps, over all groupings; sorted by storage.

    Groups run in turn in the same buffers: a grouping needs the largest group's storage (the thesis).
    """
    linked = Linked.of(layers)
    costs = storage_words(linked)
    found = front(
        linked.places,
        lambda *span: [((costs[span], _moved(linked.layers, *span)), None)],
        (max, add),
    )
    return [
        StoragePoint(groups=spans(path), storage_words=values[0], traffic_words=values[1]) for values, path in found
    ]


def dsp_traffic(layers: Layers, multipliers: Sequence[int]) -> list[DspPoint]:
    """Multipliers against traffic of maps, over all groupings (DeCoILFNet, Fig. 7); sorted by multipliers.

    Parameters
    ----------
    multipliers : sequence of int
        Of each layer, whatever it is fused with.
    """
    linked = Linked.of(layers)
    count = len(linked.layers)
    if len(multipliers) != count:
        raise InputError(f"multipliers must be given for each of {count} layers, not for {len(multipliers)}")
    found = front(
        linked.places,
        lambda begin, end: [((sum(multipliers[begin:end]), _moved(linked.layers, begin, end)), None)],
        (max, add),
    )
    return [DspPoint(groups=spans(path), dsp=values[0], traffic_words=values[1]) for values, path in found]


def depth_multipliers(layer: Op, depth_groups: int = 1) -> int:
    """Multipliers of a convolution: all taps of ``1 / depth_groups`` of the input channels; 0 for a pool."""
    if layer.channelwise or not layer.weight_count:
        return 0
    return layer.taps * ceil_div(layer.channels // layer.groups, depth_groups)


def storage_multiplications(layers: Layers, groups: Sequence[Span] | None = None) -> list[OverlapPoint]:
    """Storage, multiplications and traffic with reuse or recompute chosen for each group; sorted by storage.

    A group that recomputes keeps nothing, reads its input with the overlaps, and pays in multiplications.

    Parameters
    ----------
    groups : sequence of spans, optional
        This grouping alone: the front of storage against multiplications. Without it all groupings: the front of
        all three costs.
    """
    linked = Linked.of(layers)
    if groups is not None:
        check_groups(linked, groups)
    fixed = None if groups is None else set(groups)
    ends = linked.places[1:] if groups is None else [end for _, end in groups]
    options: dict[Span, list[tuple[tuple[int, ...], str]]] = {}
    for end in ends:
        head = linked.head(end)
        stored, works = pyramid.reuse_words_of_tails(head), pyramid.recomputation_of_tails(head)
        for begin, storage, work in zip(head.places[:-1], stored, works, strict=True):
            if fixed is not None and (begin, end) not in fixed:
                continue
            moved = _moved(linked.layers, begin, end)
            halo = work.input_words - linked.layers[begin].input_words
            again = work.multiplications + work.extra_multiplications
            options[begin, end] = [
                ((storage, work.multiplications, moved), "reuse"),
                ((0, again, moved + halo), "recompute"),
            ]
    costs = 3 if fixed is None else 2
    found = front(
        linked.places,
        lambda begin, end: [(values[:costs], (values, kind)) for values, kind in options.get((begin, end), ())],
        (max, add, add)[:costs],
    )
    points = []
    for values, path in found:
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


def dsp_cycles(choices: Sequence[Sequence[Choice]]) -> list[CyclesPoint]:
    """Multipliers against the slowest layer's cycles, over all combinations of the layers' choices; by multipliers.

    Parameters
    ----------
    choices : sequence of sequence of Choice
        For each layer; each sorted by rising cycles and falling cost.
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


def _moved(layers: Sequence[Op], begin: int, end: int) -> int:
    return layers[begin].input_words + layers[end - 1].output_words


def check_groups(layers: Layers, groups: Sequence[Span]) -> None:
    """Raise InputError unless ``groups`` cut the layers in order, each in exactly one group, where they may be cut."""
    linked = Linked.of(layers)
    edges, count = [0, *(end for _, end in groups)], len(linked.layers)
    if edges[-1] != count or any(a >= b for a, b in pairwise(edges)) or [a for a, _ in groups] != edges[:-1]:
        raise InputError(f"groups must hold each of {count} layers once and in order, not {list(groups)}")
    if wrong := [end for end in edges if end not in linked.places]:
        raise InputError(f"groups must end where one map crosses, not behind {linked.layers[wrong[0] - 1].name}")
