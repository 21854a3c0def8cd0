"""Positions of a feature map's windows, and how many pixels each of them needs and releases in a line buffer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwgen.gateware.cost import num_uncommon, table_bits

#: One index, or a NumPy array of indices.
Indices = int | np.ndarray


@dataclass(frozen=True, kw_only=True)
class WindowSteps:
    """Tables of a line buffer's flow control: growth of a pixel count from each window group to the next.

    It counts needed or released pixels. A window here is a group of ``Tp`` neighbouring windows, a row step. Every
    window at the end of an output row has an entry of its own. Inside a row, the growth is the entry of the row step
    times the entry of the row, which is 1 or 0.

    Parameters
    ----------
    ends : tuple of int
        Growth at the last row step, for each output row.
    columns : tuple of int
        Growth inside rows, for each row step but the last.
    counts : tuple of int
        Factor of ``columns`` for each output row: 1 if the count grows inside the row, otherwise 0.
    """

    ends: tuple[int, ...]
    columns: tuple[int, ...]
    counts: tuple[int, ...]

    @cached_property
    def uncommon(self) -> int:
        """Number of flow-control table entries that differ from their table's most frequent value.

        Each of these entries costs a comparator.
        """
        return sum(map(num_uncommon, (self.ends, self.columns, self.counts if self.columns else ())))

    @cached_property
    def bits(self) -> int:
        """Width in bits of a register that holds one table entry (of ``ends`` or ``columns``) or 0."""
        return table_bits({0, *self.ends, *self.columns})


@dataclass(frozen=True)
class WindowGrid:
    """Positions of a map's windows in raster order, in groups of ``Tp`` neighbouring windows, and their pixels.

    Parameters
    ----------
    map_size : tuple of int
        Height and width of the feature map.
    extent : tuple of int
        Number of rows and of columns that a window covers.
    stride : tuple of int
        Rows and columns from one window to the next.
    padding : tuple of int
        Padding at the top, left, bottom and right, in pixels. A negative padding crops rows or columns of the map.
    pixels : int
        Number of windows in a group, ``Tp``.
    """

    map_size: tuple[int, int]
    extent: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    pixels: int

    @property
    def output_size(self) -> tuple[int, int]:
        """Pair: height and width of the output map (number of window rows, and of windows per row)."""
        (height, width), (top, left, bottom, right) = self.map_size, self.padding
        return (
            (height + top + bottom - self.extent[0]) // self.stride[0] + 1,
            (width + left + right - self.extent[1]) // self.stride[1] + 1,
        )

    @property
    def row_steps(self) -> int:
        """Number of groups of ``Tp`` windows per output row: ``ceil(W_out / Tp)``."""
        return -(-self.output_size[1] // self.pixels)

    @property
    def tops(self) -> range:
        """Range of the image rows where windows begin, one per output row; negative in the padding."""
        top, stride = -self.padding[0], self.stride[0]
        return range(top, top + self.output_size[0] * stride, stride)

    @property
    def lefts(self) -> range:
        """Range of the image columns where groups of ``Tp`` windows begin, one per group of an output row."""
        left, stride = -self.padding[1], self.stride[1] * self.pixels
        return range(left, left + self.row_steps * stride, stride)

    @property
    def skipped(self) -> int:
        """Number of pixels at the start of a frame that no window reads, as a negative top padding crops rows.

        They are released before the frame begins.
        """
        return max(-self.padding[0], 0) * self.map_size[1]

    @property
    def windows(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of index arrays of all window groups, for `needed` and `released`: output rows, and groups in a row."""
        rows, steps = np.ogrid[: self.output_size[0], : self.row_steps]
        return rows, steps

    @cached_property
    def _last_columns(self) -> np.ndarray:
        """Image column of the last pixel that each group of ``Tp`` windows in an output row needs (array)."""
        width, (_, left) = self.map_size[1], self.padding[:2]
        # Windows that begin right of the map need no pixel of the map.
        last = min(self.output_size[1], (width - 1 + left) // self.stride[1] + 1)
        return self._columns(last, self.extent[1] - 1 - left, width - 1)

    @cached_property
    def _dropped_pixels(self) -> np.ndarray:
        """Array by window group: number of pixels at the start of an image row that later windows don't need."""
        return self._columns(self.row_steps * self.pixels, self.stride[1] - self.padding[1], self.map_size[1])

    def _columns(self, last: int, offset: int, limit: int) -> np.ndarray:
        """Return, as an array, the image column ``n * stride + offset`` of each group's last window ``n``, clipped.

        Only the first ``last`` windows of a row count.
        """
        windows = np.minimum(np.arange(1, self.row_steps + 1) * self.pixels, last) - 1
        return np.clip(windows * self.stride[1] + offset, 0, limit)

    def needed(self, row: Indices, step: Indices) -> np.ndarray:
        """Return how many of a frame's first pixels window group ``step`` of ``row`` needs stored, as an array."""
        height, width = self.map_size
        bottom = np.asarray(row) * self.stride[0] - self.padding[0] + self.extent[0] - 1
        return np.clip(bottom, 0, height - 1) * width + self._last_columns[step] + 1

    def released(self, row: Indices, step: Indices) -> np.ndarray:
        """Return how many of a frame's first pixels are free after window group ``step`` of ``row``, as an array.

        No later window needs these pixels. After the last window of the frame, the skipped pixels of the next frame are
        included.
        """
        height, width = self.map_size
        top = np.asarray(row) * self.stride[0] - self.padding[0]
        following = top + self.stride[0]
        inside = (following > 0) & (top < height)
        in_row = np.clip(top, 0, height) * width + np.where(inside, self._dropped_pixels[step], 0)
        ends_frame = np.asarray(row) == self.output_size[0] - 1
        at_end = np.where(ends_frame, height * width + self.skipped, np.clip(following, 0, height) * width)
        return np.where(np.asarray(step) == self.row_steps - 1, at_end, in_row)

    @cached_property
    def need_steps(self) -> WindowSteps:
        """Steps (`WindowSteps`) between window groups: growth of the pixels that must be stored before one starts.

        The next frame follows the last window of a frame.
        """
        rows = np.arange(self.output_size[0])
        firsts, (height, width) = self.needed(rows, 0), self.map_size
        following = np.append(firsts[1:], height * width + firsts[0])
        ends = following - self.needed(rows, self.row_steps - 1)
        columns = np.diff(self._last_columns)
        grows = int(columns.any())
        return WindowSteps(
            ends=tuple(ends.tolist()), columns=tuple(columns.tolist()), counts=(grows,) * self.output_size[0]
        )

    @cached_property
    def release_steps(self) -> WindowSteps:
        """Steps (`WindowSteps`) between window groups: growth of the pixels that can be overwritten after one."""
        rows, last = np.arange(self.output_size[0]), self.row_steps - 1
        row_ends = self.released(rows, last)
        befores = np.append(self.skipped, row_ends[:-1])
        ends = row_ends - (self.released(rows, last - 1) if last else befores)
        # The count grows inside a row, unless the next row begins at map row 0 or above, or this row below the map.
        tops = np.array(self.tops)
        counts = (tops + self.stride[0] > 0) & (tops < self.map_size[0])
        columns = np.zeros(last, int)
        if last and counts.any():
            row = int(counts.argmax())
            columns = np.append(self.released(row, 0) - befores[row], np.diff(self._dropped_pixels)[: last - 1])
        counts &= columns.any()
        return WindowSteps(
            ends=tuple(ends.tolist()), columns=tuple(columns.tolist()), counts=tuple(counts.astype(int).tolist())
        )
