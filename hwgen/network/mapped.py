"""Frames that are mapped from a file: read part by part, and given back to the system when a part is done with."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import numpy as np

PART_VALUES = 1 << 22
"""Values of the frames that are worked on at a time."""


def parts(arrays: Sequence[np.ndarray], multiple: int = 1) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield some frames of each array at a time, with the number of the first; at least one part.

    Parameters
    ----------
    arrays : sequence of ndarray
        As many frames each, ``(n, ...)``. Pages of those that are mapped are given back behind each part.
    multiple : int
        All parts but the last have a multiple of so many frames.
    """
    count = len(arrays[0])
    values = sum(max(1, array[:1].size) for array in arrays)
    step = -(-max(1, PART_VALUES // values) // multiple) * multiple
    for begin in range(0, max(count, 1), step):
        yield begin, tuple(array[begin : begin + step] for array in arrays)
        for array in arrays:
            release(array)


def release(array: np.ndarray) -> None:
    """Let the system take back the memory of an array that is mapped from a file; it is read anew when it is used."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
