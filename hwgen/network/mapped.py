"""Partwise reading of memory-mapped arrays of frames, whose pages are released after use."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import numpy as np

PART_VALUES = 1 << 22
"""Number of array values that are read from memory-mapped frames at once, summed over all arrays."""


def frame_parts(arrays: Sequence[np.ndarray], multiple: int = 1) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield the parts of equally long arrays of frames: index of a part's first frame, and a slice of each array.

    There is at least one part; the parts follow one another.

    Parameters
    ----------
    arrays : sequence of ndarray
        Arrays ``(n, ...)`` of equally many frames. Mapped pages are released behind each part.
    multiple : int
        The number of frames in every part but the last is a multiple of this number.
    """
    count = len(arrays[0])
    values = sum(max(1, array[:1].size) for array in arrays)
    step = -(-max(1, PART_VALUES // values) // multiple) * multiple
    for begin in range(0, max(count, 1), step):
        yield begin, tuple(array[begin : begin + step] for array in arrays)
        for array in arrays:
            release(array)


def release(array: np.ndarray) -> None:
    """Release the memory pages of an array that is mapped from a file. Later accesses read the file again."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
