"""Exact Pareto fronts over all groupings of a network, i.e. ways to cut its layers into groups that run overlapped.

Groups begin and end at the network's boundaries (`Network.boundaries`); a chain has one between any two layers. A chain
of ``l`` layers has ``2**(l - 1)`` groupings, but only ``l (l + 1) / 2`` groups.

Every cost of a grouping is the sum or the maximum over its groups. Neither falls when a group is added. If one grouping
of a prefix is no worse than another in every cost, it stays so whatever groups follow. Dynamic programming over the
prefixes, which keeps only the groupings that no other beats, is therefore exact. For the 21 layers of VGG-E it computes
a few thousand sums, where a list would have a million groupings.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Span = tuple[int, int]
"""Range of a fusion group's layers: index of the first layer, and index of the last layer plus one."""

Join = Callable[[int, int], int]
"""Function that combines two groups' costs (integers) into the cost of both: `max` or `operator.add`."""


# A label is (costs, path) of a grouping of a prefix. A path is nested pairs: (path of previous groups, (span, tag)).


def front(
    boundaries: Sequence[int],
    options: Callable[[int, int], Iterable[tuple[tuple[int, ...], Any]]],
    joins: Sequence[Join],
) -> list[tuple[tuple[int, ...], list[tuple[Span, Any]]]]:
    """Return a list, the Pareto front over all groupings: pairs (costs, path); a path is a list of (`Span`, tag) pairs.

    Parameters
    ----------
    boundaries : sequence of int
        Possible begins and ends of groups, rising: numbers of layers before them, from 0 to all layers.
    options : callable
        Function of ``begin, end`` that returns the options to build this group, each with its costs (0 or more) and a
        tag of any type.
    joins : sequence of callable
        Function that joins the costs of groups, `max` or `operator.add`, for each of two or three costs.

    Returns
    -------
    list of (costs, path)
        Groupings with their costs, sorted by costs, all minimal and all different. A path lists the span and the tag of
        each group. If several groupings have equal costs, one is returned, always the same.
    """
    prefixes: dict[int, list[tuple[tuple[int, ...], Any]]] = {boundaries[0]: [((0,) * len(joins), None)]}
    for index, end in enumerate(boundaries[1:], start=1):
        labels = []
        for begin in boundaries[:index]:
            for costs, tag in options(begin, end):
                group = (begin, end), tag
                for before, path in prefixes[begin]:
                    # A list inside is faster than a generator, and there are many labels.
                    both = [join(a, b) for join, a, b in zip(joins, before, costs, strict=True)]
                    labels.append((tuple(both), (path, group)))
        prefixes[end] = _minimal(labels)
    return [(costs, _unroll_path(path)) for costs, path in prefixes[boundaries[-1]]]


def spans(path: Iterable[tuple[Span, Any]]) -> tuple[Span, ...]:
    """Return a tuple of layer ranges (begin, end), one per fusion group, from pairs of a range and another value."""
    return tuple(span for span, _ in path)


def _minimal(labels: list[tuple[tuple[int, ...], Any]]) -> list[tuple[tuple[int, ...], Any]]:
    """Return a list of the Pareto-optimal (costs, path) pairs of groupings by costs; of equal ones only the first."""
    labels.sort(key=lambda label: label[0])  # stable: of equal costs the first stays
    kept: list[tuple[tuple[int, ...], Any]] = []
    stairs: list[tuple[int, int]] = []  # front of the last two costs: the second cost rises, the third falls
    for costs, path in labels:
        second, third = (costs[1], 0) if len(costs) == 2 else costs[1:]
        index = bisect_right(stairs, (second, third))
        if index and stairs[index - 1][1] <= third:
            continue  # a label with a cheaper or equal first cost is at least as good in the other costs
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


def text(names: Sequence[str], cuts: Iterable[Span]) -> str:
    """Return a grouping as text such as ``conv1_1-pool1,conv2_1``: each fusion group's first and last layer."""
    return ",".join(names[a] if b - a == 1 else f"{names[a]}-{names[b - 1]}" for a, b in cuts)
