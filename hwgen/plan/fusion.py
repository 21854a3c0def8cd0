"""Fusion: every way to cut a chain of layers into groups, as exact Pareto fronts.

``l`` layers have ``2**(l - 1)`` groupings, but only ``l (l + 1) / 2`` groups. All costs of a grouping are sums or
maxima over its groups, so both grow when a group is added: if one way to group a prefix is no worse than another in
every cost, it stays so whatever follows. Dynamic programming over the prefixes that keeps only what nothing beats is
therefore exact, and looks at a few thousand sums where listing looks at a million groupings (21 layers of VGG-E).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Any

from hwgen.errors import InputError
from hwgen.network.ops import Op
from hwgen.plan import pyramid
from hwgen.templates.unroll import Choice, Unroll

Span = tuple[int, int]
"""A group: index of its first layer, and one past its last."""

Join = Callable[[int, int], int]
"""How a cost of a grouping comes from its groups' costs: `max` or `operator.add`."""


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


def storage_traffic(layers: Sequence[Op], *, shared: bool = True) -> list[StoragePoint]:
    """Reuse storage against traffic of maps, over all groupings; sorted by storage.

    Parameters
    ----------
    shared : bool
        Groups run in turn in the same buffers: a grouping needs the largest group's storage (the thesis). Otherwise
        every group has its own buffers, and they add up.
    """
    costs = [pyramid.reuse_words_of_tails(layers[:end]) for end in range(1, len(layers) + 1)]
    found = front(
        len(layers),
        lambda begin, end: [((costs[end - 1][begin], _moved(layers, begin, end)), None)],
        (max if shared else add, add),
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


# Labels: (costs, path); a path is nested pairs (path before, (span, tag)).


def front(
    count: int, options: Callable[[int, int], Iterable[tuple[tuple[int, ...], Any]]], joins: Sequence[Join]
) -> list[tuple[tuple[int, ...], list[tuple[Span, Any]]]]:
    """Exact Pareto front over all groupings of ``count`` layers and all options of their groups.

    Parameters
    ----------
    options : callable
        For a group ``begin, end``: its ways to be done, each with its costs (0 or more) and a tag of any kind.
    joins : sequence of callable
        For each of two or three costs, `max` or `operator.add`.

    Returns
    -------
    list of (costs, path)
        Sorted by costs, all minimal and all different; a path lists each group's span and tag. Among groupings of the
        same costs any one is given, but always the same one.
    """
    prefixes: list[list[tuple[tuple[int, ...], Any]]] = [[((0,) * len(joins), None)]]
    for end in range(1, count + 1):
        labels = []
        for begin in range(end):
            for costs, tag in options(begin, end):
                group = (begin, end), tag
                for before, path in prefixes[begin]:
                    # A list inside is faster than a generator, and there are many labels.
                    both = [join(a, b) for join, a, b in zip(joins, before, costs, strict=True)]
                    labels.append((tuple(both), (path, group)))
        prefixes.append(_minimal(labels))
    return [(costs, _unroll_path(path)) for costs, path in prefixes[count]]


def spans(path: Iterable[tuple[Span, Any]]) -> tuple[Span, ...]:
    """The groups of a path."""
    return tuple(span for span, _ in path)


def _minimal(labels: list[tuple[tuple[int, ...], Any]]) -> list[tuple[tuple[int, ...], Any]]:
    """The labels whose costs no other's equal or undercut in everything, sorted by costs."""
    labels.sort(key=lambda label: label[0])  # stable: of equal costs the first stays
    kept: list[tuple[tuple[int, ...], Any]] = []
    stairs: list[tuple[int, int]] = []  # of the last two costs: rising, falling
    for costs, path in labels:
        second, third = (costs[1], 0) if len(costs) == 2 else costs[1:]
        index = bisect_right(stairs, (second, third))
        if index and stairs[index - 1][1] <= third:
            continue  # a cheaper first cost came before, and this one is no better in the rest
        last = index
        while last < len(stairs) and stairs[last][1] >= third:
            last += 1
        del stairs[index:last]
        insort(stairs, (second, third))
        kept.append((costs, path))
    return kept


def _unroll_path(path: Any) -> list[tuple[Span, Any]]:
    groups = []
    while path is not None:
        path, group = path
        groups.append(group)
    return groups[::-1]


def _moved(layers: Sequence[Op], begin: int, end: int) -> int:
    return layers[begin].input_words + layers[end - 1].output_words


def check_groups(layers: Sequence[Op], groups: Sequence[Span]) -> None:
    """Raise InputError unless ``groups`` cut the layers in order, each in exactly one group."""
    edges = [0, *(end for _, end in groups)]
    if edges[-1] != len(layers) or any(a >= b for a, b in pairwise(edges)) or [a for a, _ in groups] != edges[:-1]:
        raise InputError(f"groups must hold each of {len(layers)} layers once and in order, not {list(groups)}")
