"""Every way to cut a network into groups, as exact Pareto fronts.

Groups begin and end at the network's boundaries (`Network.boundaries`); a chain has one between any two layers. A chain
of ``l`` layers has ``2**(l - 1)`` groupings, but only ``l (l + 1) / 2`` groups. All costs of a grouping are sums or
maxima over its groups, so both grow when a group is added: if one way to group a prefix is no worse than another in
every cost, it stays so whatever follows. Dynamic programming over the prefixes that keeps only what nothing beats is
therefore exact, and looks at a few thousand sums where listing looks at a million groupings (21 layers of VGG-E).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Span = tuple[int, int]
"""A group: index of its first layer, and one past its last."""

Join = Callable[[int, int], int]
"""How a cost of a grouping comes from its groups' costs: `max` or `operator.add`."""


# Labels: (costs, path); a path is nested pairs (path before, (span, tag)).


def front(
    places: Sequence[int], options: Callable[[int, int], Iterable[tuple[tuple[int, ...], Any]]], joins: Sequence[Join]
) -> list[tuple[tuple[int, ...], list[tuple[Span, Any]]]]:
    """Exact Pareto front over all groupings of a network's layers and all options of their groups.

    Parameters
    ----------
    places : sequence of int
        Where groups may begin and end, rising: numbers of layers before it, from 0 to that of all.
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
    prefixes: dict[int, list[tuple[tuple[int, ...], Any]]] = {places[0]: [((0,) * len(joins), None)]}
    for number, end in enumerate(places[1:], start=1):
        labels = []
        for begin in places[:number]:
            for costs, tag in options(begin, end):
                group = (begin, end), tag
                for before, path in prefixes[begin]:
                    # A list inside is faster than a generator, and there are many labels.
                    both = [join(a, b) for join, a, b in zip(joins, before, costs, strict=True)]
                    labels.append((tuple(both), (path, group)))
        prefixes[end] = _minimal(labels)
    return [(costs, _unroll_path(path)) for costs, path in prefixes[places[-1]]]


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


def text(names: Sequence[str], cuts: Iterable[Span]) -> str:
    """``conv1_1-pool1,conv2_1``: first and last layer of each group."""
    return ",".join(names[a] if b - a == 1 else f"{names[a]}-{names[b - 1]}" for a, b in cuts)
