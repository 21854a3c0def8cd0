"""Division of one axis of a layer's input, rows or columns, into the tiles of successive pyramids of fused layers.

See Alwani 2015, sections 3.1 and 3.2.

A tile of a layer's input is a rectangle: one span of rows times one span of columns. Pyramids follow each other in
raster order, and every span of rows is combined with every span of columns. The two axes are therefore independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hwgen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Span:
    """Range of rows or columns that one input tile covers: begin, end, first new one, and windows computed from it.

    Parameters
    ----------
    begin, fresh, end : int
        The tile consists of pixels ``begin`` to ``end - 1``. Pixels below ``fresh`` are kept from the previous tile.
        The others are new.
    window, windows : int
        Index of the pyramid's first window, and number of windows.
    """

    begin: int
    fresh: int
    end: int
    window: int
    windows: int

    @property
    def size(self) -> int:
        """Number of rows (or columns) of the input tile, kept and new ones."""
        return self.end - self.begin

    @property
    def kept(self) -> int:
        """Number of rows (or columns) of the input tile that the reuse buffer keeps from the previous tile."""
        return self.fresh - self.begin

    @property
    def new(self) -> int:
        """Number of rows (or columns) of the input tile that arrive as new, not kept from the previous tile."""
        return self.end - self.fresh


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Range of rows or columns of an input tile (`Span`), divided into stream beats of neighbouring pixels.

    Lanes outside of the span have undefined values.

    Parameters
    ----------
    span : Span
    pixels : int
        Number of pixels per beat.
    first : int
        Pixel in lane 0 of the first beat. It is ``begin``, or less than a beat below ``begin``, and can be negative.
    kept, size : int
        Number of beats that are kept from the previous tile, and number of all beats of the tile.
    unused : int
        Number of beats before the first beat that windows need.
    """

    span: Span
    pixels: int
    first: int
    kept: int
    size: int
    unused: int

    @property
    def new(self) -> int:
        """Number of the input tile's beats, along this axis, without any pixel kept from the previous tile."""
        return self.size - self.kept

    @property
    def used(self) -> int:
        """Number of the input tile's beats, along this axis, that the tile's convolution windows need."""
        return self.size - self.unused


@dataclass(frozen=True, kw_only=True)
class TiledAxis:
    """Tiling of a layer's input map along one axis (rows or columns): window geometry, and spans of all tiles.

    Parameters
    ----------
    size : int
        Number of pixels of the map.
    extent, stride, padding : int
        Number of pixels from the first to the last tap of a window, both included; distance between two windows, in
        pixels; and number of padding pixels before the map. Spans contain no padding, because padding is computed and
        not stored.
    spans : tuple of Span
        One span per row (or column) of pyramids. A span can be empty.

    Raises
    ------
    ConfigError
        If a span lacks a pixel that its windows need, keeps a pixel that the previous span does not contain, or is not
        ordered; or if no span has a pixel that windows need.
    """

    size: int
    extent: int
    stride: int
    padding: int
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        if min(self.size, self.extent, self.stride) < 1 or self.padding < 0:
            raise ConfigError(
                f"size, extent and stride must be positive and padding not negative, "
                f"not {self.size!r}, {self.extent!r}, {self.stride!r} and {self.padding!r}"
            )
        if not any(self.used(span) for span in self.spans):
            raise ConfigError(f"a span must have a pixel that its windows need, not {self.spans!r}")
        for span in self.spans:
            if not 0 <= span.begin <= span.fresh <= span.end <= self.size or span.windows < 0:
                raise ConfigError(f"a span must lie in order in the {self.size} pixels of the map, not {span!r}")
            if span.windows:
                first = self.origin(span)
                last = first + (span.windows - 1) * self.stride + self.extent
                if min(max(first, 0), self.size) < span.begin or min(max(last, 0), self.size) != span.end:
                    raise ConfigError(f"a span must hold the {first} to {last} that its windows need, not {span!r}")
        for before, after in pairwise(self.loaded):
            if after.kept and (after.fresh != before.end or after.begin < before.begin):
                raise ConfigError(f"a span must keep the end of the previous one, {before!r}, not {after!r}")
        if self.loaded[0].kept:
            raise ConfigError(f"the first span must keep nothing, not {self.loaded[0]!r}")

    def origin(self, span: Span) -> int:
        """Return the row (or column) of the map where the first window of a tile begins; negative in the padding."""
        return span.window * self.stride - self.padding

    @cached_property
    def loaded(self) -> tuple[Span, ...]:
        """Tuple of ranges (`Span`) of the successive input tiles that contain at least one pixel, on this axis."""
        return tuple(span for span in self.spans if span.size)

    @cached_property
    def walked(self) -> tuple[Span, ...]:
        """Tuple of ranges (`Span`) of successive input tiles with at least one convolution window, on this axis."""
        return tuple(span for span in self.spans if span.windows)

    def used(self, span: Span) -> range:
        """Return the range of rows (or columns) of an input tile that its convolution windows need.

        Pixels that the stride skips before the first window do not count. A span without windows needs no pixel.
        """
        return range(max(span.begin, self.origin(span)) if span.windows else span.end, span.end)

    def cut(self, pixels: int) -> tuple[Cut, ...]:
        """Return a tuple: each input tile's range of rows (or columns) as a `Cut`, in beats of ``pixels`` pixels.

        The new pixels of a span begin with a beat.

        If a span keeps pixels, its beats continue the beats of the previous span. The first kept pixel can then be in
        the middle of a beat. A span that keeps nothing begins with a beat, unless the next spans keep some of its
        pixels.

        Raises
        ------
        ConfigError
            If spans that keep pixels of each other do not consist of whole beats.
        """
        cuts = [Cut(span=span, pixels=pixels, first=span.begin, kept=0, size=0, unused=0) for span in self.spans]
        grid = 0
        for span_index, span in enumerate(self.spans):
            if span.size:
                grid = grid if span.kept else self._grid(span_index, pixels)
                cuts[span_index] = self._cut_span(span, pixels, grid)
        return tuple(cuts)

    def _grid(self, span_index: int, pixels: int) -> int:
        """Return a row (or column) where a beat begins, for a tile that keeps nothing and successors that keep some."""
        joints = []
        for span in self.spans[span_index + 1 :]:
            if span.size and not span.kept:
                break
            joints += [span.fresh] if span.new else []
        for before, after in pairwise(joints):
            if (after - before) % pixels:
                raise ConfigError(
                    f"pixels must divide the {after - before} that come in from tile to tile where some are kept, "
                    f"not {pixels!r}"
                )
        return joints[0] if joints else self.spans[span_index].begin

    def _cut_span(self, span: Span, pixels: int, grid: int) -> Cut:
        first = span.begin - (span.begin - grid) % pixels
        kept = -(-(span.fresh - first) // pixels) if span.kept else 0
        size = -(-(span.end - first) // pixels)
        used = self.used(span)
        unused = (used.start - first) // pixels if used else size
        return Cut(span=span, pixels=pixels, first=first, kept=kept, size=size, unused=unused)

    @property
    def kept(self) -> int:
        """Largest number of rows (or columns) that a tile keeps from the previous tile along this axis.

        It is extent minus stride between two pyramids inside the map.
        """
        return max(span.kept for span in self.spans)

    @property
    def new(self) -> int:
        """Largest number of rows (or columns) of a tile that are new, not kept from the previous tile."""
        return max(span.new for span in self.spans)

    @property
    def overlaps(self) -> bool:
        """Whether some rows (or columns) are new in more than one tile, so that they are sent or computed again."""
        return any(after.fresh < before.end for before, after in pairwise(self.loaded))

    @property
    def pixels(self) -> int:
        """Number of new rows (or columns) of all tiles along this axis; repeated ones count each time."""
        return sum(span.new for span in self.spans)

    @property
    def tile(self) -> int:
        """Largest number of rows (or columns) that the windows of one tile cover, padding included.

        It is ``S (R - 1)`` plus the extent.
        """
        return (max(span.windows for span in self.spans) - 1) * self.stride + self.extent

    @property
    def windows(self) -> int:
        """Number of convolution windows along this axis, summed over all tiles."""
        return sum(span.windows for span in self.spans)
