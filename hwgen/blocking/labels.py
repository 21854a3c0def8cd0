"""Labels of the search: ways to points of the lattice, how they came about, and which of them no other one beats."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import inf

import numpy as np

__all__ = ["Labels", "Path", "Trail", "unbeaten"]


@dataclass
class Labels:
    """Ways to get to points of the lattice; arrays of one row each.

    Parameters
    ----------
    point : int32
        Flat index of the point.
    spent : float64
        pJ so far.
    served : float64, 3 columns
        Accesses that each operand still has to serve.
    closed : bool, 3 columns
        Whether an operand's last buffer is behind; otherwise it still spans the loops that come.
    level : int8, 3 columns
        The next level that each operand may use.
    used : float64
        Words taken in each shared resource.
    parent, action : int32
        Number of the label that this one comes from (-1: none), and buffers placed on the way: a byte for each operand,
        level + 1. Of two points that are each other's mirror image only one is kept; `MIRRORED` says that the label was
        mirrored to get there.
    """

    point: np.ndarray
    spent: np.ndarray
    served: np.ndarray
    closed: np.ndarray
    level: np.ndarray
    used: np.ndarray
    parent: np.ndarray
    action: np.ndarray

    def take(self, rows: np.ndarray) -> Labels:
        return Labels(*(getattr(self, column.name)[rows] for column in fields(self)))

    def __len__(self) -> int:
        return len(self.point)

    @staticmethod
    def join(parts: Sequence[Labels]) -> Labels:
        return Labels(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Labels)))


Path = list[tuple[int, int]]
"""Points from the first to the last, each with the action of the step there."""


class Trail:
    """All labels that others come from, numbered."""

    def __init__(self) -> None:
        self._parts: list[Labels] = []
        self._starts = [0]

    def add(self, labels: Labels) -> int:
        """The number of the first of ``labels``."""
        self._parts.append(labels)
        self._starts.append(self._starts[-1] + len(labels))
        return self._starts[-2]

    def back(self, labels: Labels, row: int) -> Path:
        """How the label in ``row`` came about."""
        steps = [(int(labels.point[row]), int(labels.action[row]))]
        while (number := int(labels.parent[row])) >= 0:
            part = bisect_right(self._starts, number) - 1
            labels, row = self._parts[part], number - self._starts[part]
            steps.append((int(labels.point[row]), int(labels.action[row])))
        return steps[::-1]


def unbeaten(labels: Labels, bounds: np.ndarray, width: int, limited: frozenset[str]) -> tuple[Labels, float]:
    """The labels that none beats at their point, at most ``width`` a point; and the least bound of those left out."""
    figures = np.column_stack([labels.spent, labels.served, labels.closed])
    if "levels" in limited:
        figures = np.column_stack([figures, labels.level])
    if "room" in limited:
        figures = np.column_stack([figures, labels.used])
    order = np.lexsort((*figures.T[::-1], labels.point))
    figures, point = figures[order], labels.point[order]
    new = np.ones(len(order), bool)
    new[1:] = (figures[1:] != figures[:-1]).any(axis=1) | (point[1:] != point[:-1])
    order, figures, point = order[new], figures[new], point[new]
    edges = np.concatenate([[0], np.flatnonzero(point[1:] != point[:-1]) + 1, [len(point)]])
    kept, missed = [], inf
    for begin, stop in pairwise(edges):
        rows = begin + _front(figures[begin:stop])
        if len(rows) > width:
            worst = np.argsort(bounds[order[rows]], kind="stable")
            missed = min(missed, float(bounds[order[rows[worst[width]]]]))
            rows = rows[worst[:width]]
        kept.append(order[rows])
    return labels.take(np.concatenate(kept)), missed


def _front(figures: np.ndarray, chunk: int = 256) -> np.ndarray:
    """Indices of the rows that no other one beats: rows are sorted, and all different."""
    if len(figures) < 2:
        return np.arange(len(figures))
    figures = figures[:, np.ptp(figures, axis=0) > 0].astype(np.float64)
    kept = np.zeros(0, np.int64)
    for begin in range(0, len(figures), chunk):
        rows = np.arange(begin, min(begin + chunk, len(figures)))
        rows = rows[~_beaten(figures[rows], figures[kept])]
        inside = figures[rows]
        beaten = np.tri(len(rows), k=-1, dtype=bool)
        for column in inside.T[1:]:  # the first one is sorted
            beaten &= column[None, :] <= column[:, None]
        # a row that is itself beaten still beats what it beats: whatever beats it does so, too
        kept = np.concatenate([kept, rows[~beaten.any(axis=1)]])
    return kept


def _beaten(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Whether some row of ``kept``, none of which is behind ``rows``, is nowhere above each of ``rows``."""
    result = np.zeros(len(rows), bool)
    for begin in range(0, len(kept), 1024):
        some = kept[begin : begin + 1024]
        left = np.flatnonzero(~result)
        below = np.ones((len(left), len(some)), bool)
        for column in range(1, rows.shape[1]):
            below &= some[None, :, column] <= rows[left, column][:, None]
        result[left] = below.any(axis=1)
    return result
