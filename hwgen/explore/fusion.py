"""Fusion: what the groupings of a chain of layers cost, as exact Pareto fronts (`hwgen.plan.cuts`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import add

from hwgen.errors import InputError
from hwgen.explore import pyramid
from hwgen.network.ops import Op
from hwgen.plan.cuts import Span, front, spans
from hwgen.templates.unroll import Choice, Unroll, ceil_div


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


def storage_traffic(layers: Sequence[Op]) -> list[StoragePoint]:
    """Reuse storage against traffic of maps, over all groupings; sorted by storage.

    Groups run in turn in the same buffers: a grouping needs the largest group's storage (the thesis).
    """
    costs = [pyramid.reuse_words_of_tails(layers[:end]) for end in range(1, len(layers) + 1)]
    found = front(
        len(layers),
        lambda begin, end: [((costs[end - 1][begin], _moved(layers, begin, end)), None)],
        (max, add),
    )
    return [
        StoragePoint(groups=spans(path), storage_words=values[0], traffic_words=values[1]) for values, path in found
    ]


def dsp_traffic(layers: Sequence[Op], multipliers: Sequence[int]) -> list[DspPoint]:
    """Multipliers against traffic of maps, over all groupings (DeCoILFNet, Fig. 7); sorted by multipliers.

    Parameters
    ----------
    multipliers : sequence of int
        Of each layer, whatever it is fused with.
    """
    if len(multipliers) != len(layers):
        raise InputError(f"multipliers must be given for each of {len(layers)} layers, not for {len(multipliers)}")
    found = front(
        len(layers),
        lambda begin, end: [((sum(multipliers[begin:end]), _moved(layers, begin, end)), None)],
        (max, add),
    )
    return [DspPoint(groups=spans(path), dsp=values[0], traffic_words=values[1]) for values, path in found]


def depth_multipliers(layer: Op, depth_groups: int = 1) -> int:
    """Multipliers of a convolution: all taps of ``1 / depth_groups`` of the input channels; 0 for a pool."""
    if layer.channelwise:
        return 0
    return layer.taps * ceil_div(layer.channels // layer.groups, depth_groups)


def storage_multiplications(layers: Sequence[Op], groups: Sequence[Span] | None = None) -> list[OverlapPoint]:
    """Storage, multiplications and traffic with reuse or recompute chosen for each group; sorted by storage.

    A group that recomputes keeps nothing, reads its input with the overlaps, and pays in multiplications.

    Parameters
    ----------
    groups : sequence of spans, optional
        This grouping alone: the front of storage against multiplications. Without it all groupings: the front of
        all three costs.
    """
    if groups is not None:
        check_groups(layers, groups)
    fixed = None if groups is None else set(groups)
    ends = range(1, len(layers) + 1) if groups is None else [end for _, end in groups]
    options: dict[Span, list[tuple[tuple[int, ...], str]]] = {}
    for end in ends:
        stored, works = pyramid.reuse_words_of_tails(layers[:end]), pyramid.recomputation_of_tails(layers[:end])
        for begin, (storage, work) in enumerate(zip(stored, works, strict=True)):
            if fixed is not None and (begin, end) not in fixed:
                continue
            moved = _moved(layers, begin, end)
            halo = work.input_words - layers[begin].input_words
            again = work.multiplications + work.extra_multiplications
            options[begin, end] = [
                ((storage, work.multiplications, moved), "reuse"),
                ((0, again, moved + halo), "recompute"),
            ]
    costs = 3 if fixed is None else 2
    found = front(
        len(layers),
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


def check_groups(layers: Sequence[Op], groups: Sequence[Span]) -> None:
    """Raise InputError unless ``groups`` cut the layers in order, each in exactly one group."""
    edges = [0, *(end for _, end in groups)]
    if edges[-1] != len(layers) or any(a >= b for a, b in pairwise(edges)) or [a for a, _ in groups] != edges[:-1]:
        raise InputError(f"groups must hold each of {len(layers)} layers once and in order, not {list(groups)}")
