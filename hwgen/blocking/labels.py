"""Partial loop blockings of the search for the cheapest blocking, their origins, and their Pareto selection."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import inf

import numpy as np

__all__ = ["Labels", "Path", "Trail", "undominated"]


@dataclass
class Labels:
    """Partial blockings (inner loops with their buffers) in a shortest-path search, as arrays with one row each.

    Parameters
    ----------
    point : int32
        Flat index of the point.
    spent : float64
        Energy so far, in pJ.
    served : float64, 3 columns
        Accesses that each operand must still serve.
    closed : bool, 3 columns
        Whether an operand's last buffer is complete; otherwise the buffer also spans the next loops.
    level : int8, 3 columns
        Next level that each operand may use.
    used : float64
        Words used in each shared resource.
    parent, action : int32
        Index of the label that this label extends (-1: none), and the buffers added with the extension. An action has
        one byte per operand, level + 1. Of two mirrored points only one is kept; bit `MIRRORED` marks a label that was
        mirrored.
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
        """Return copies of the partial blockings (loops with buffers) in the given rows."""
        return Labels(*(getattr(self, column.name)[rows] for column in fields(self)))

    def __len__(self) -> int:
        return len(self.point)

    @staticmethod
    def join(batches: Sequence[Labels]) -> Labels:
        """Return one batch that contains the partial blockings (loops with buffers) of several batches."""
        return Labels(
            *(np.concatenate([getattr(batch, column.name) for batch in batches]) for column in fields(Labels))
        )


Path = list[tuple[int, int]]
"""Sequence of steps that build a blocking, each with a lattice point (block extents) and a code of the buffers
added.
"""


class Trail:
    """Store of all partial loop blockings that the search has extended, from which a solution is traced back.

    ``parent`` of each partial blocking is the index of the blocking that it extends.
    """

    def __init__(self) -> None:
        self._batches: list[Labels] = []
        self._starts = [0]

    def add(self, labels: Labels) -> int:
        """Store a batch of partial blockings, and return the index of the batch's first row among all stored rows."""
        self._batches.append(labels)
        self._starts.append(self._starts[-1] + len(labels))
        return self._starts[-2]

    def back(self, labels: Labels, row: int) -> Path:
        """Return all steps, first to last, that built the partial blocking in row ``row`` of ``labels``."""
        steps = [(int(labels.point[row]), int(labels.action[row]))]
        while (label := int(labels.parent[row])) >= 0:
            batch = bisect_right(self._starts, label) - 1
            labels, row = self._batches[batch], label - self._starts[batch]
            steps.append((int(labels.point[row]), int(labels.action[row])))
        return steps[::-1]


def undominated(labels: Labels, bounds: np.ndarray, width: int, limited: frozenset[str]) -> tuple[Labels, float]:
    """Select the Pareto-optimal partial blockings (labels), at most ``width`` per combination of block extents.

    The second result is the least energy bound of the blockings dropped because of ``width``, infinite if none is.
    """
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
    """Return the indices of the Pareto-optimal rows of ``figures`` (costs of partial blockings; less is better).

    Rows are sorted and distinct.
    """
    if len(figures) < 2:
        return np.arange(len(figures))
    figures = figures[:, np.ptp(figures, axis=0) > 0].astype(np.float64)
    kept = np.zeros(0, np.int64)
    for begin in range(0, len(figures), chunk):
        rows = np.arange(begin, min(begin + chunk, len(figures)))
        rows = rows[~_dominated(figures[rows], figures[kept])]
        inside = figures[rows]
        dominated = np.tri(len(rows), k=-1, dtype=bool)
        for column in inside.T[1:]:  # the first column is sorted
            dominated &= column[None, :] <= column[:, None]
        # a dominated row can stay in the comparison: whatever dominates it also dominates what it dominates
        kept = np.concatenate([kept, rows[~dominated.any(axis=1)]])
    return kept


def _dominated(rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return, for each of ``rows`` (costs of partial blockings), whether a row of ``kept`` is nowhere larger.

    No row of ``kept`` sorts after ``rows``.
    """
    result = np.zeros(len(rows), bool)
    for begin in range(0, len(kept), 1024):
        some = kept[begin : begin + 1024]
        left = np.flatnonzero(~result)
        below = np.ones((len(left), len(some)), bool)
        for column in range(1, rows.shape[1]):
            below &= some[None, :, column] <= rows[left, column][:, None]
        result[left] = below.any(axis=1)
    return result
