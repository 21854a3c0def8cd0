"""How one axis of a layer is cut into the tiles of successive pyramids (Alwani 2015, sections 3.1 and 3.2).

A tile of a layer's input is a rectangle: one span of rows and one of columns. Pyramids go in raster order, so every
span of rows meets every span of columns, and the two axes can be described apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hwgen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Span:
    """One pyramid's part of an axis of a layer's input, in pixels of the map, and the windows computed there.

    Parameters
    ----------
    begin, fresh, end : int
        The tile is ``begin`` to ``end``. Up to ``fresh`` it was kept from the pyramid before, from there it comes in.
    window, windows : int
        First window of the pyramid, and how many there are.
    """

    begin: int
    fresh: int
    end: int
    window: int
    windows: int

    @property
    def size(self) -> int:
        """Pixels of the tile."""
        return self.end - self.begin

    @property
    def kept(self) -> int:
        """Pixels that were kept."""
        return self.fresh - self.begin

    @property
    def new(self) -> int:
        """Pixels that come in."""
        return self.end - self.fresh


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A span in beats of several pixels side by side. Lanes outside of the span hold anything.

    Parameters
    ----------
    span : Span
    pixels : int
        Of a beat.
    first : int
        Pixel in the first beat's lowest lane: ``begin``, or less than a beat before it (also before the map).
    kept, size : int
        Beats of the tile that were kept, and in all.
    unused : int
        Beats before the first that windows need.
    """

    span: Span
    pixels: int
    first: int
    kept: int
    size: int
    unused: int

    @property
    def new(self) -> int:
        """Beats that come in."""
        return self.size - self.kept

    @property
    def used(self) -> int:
        """Beats that windows need."""
        return self.size - self.unused


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis of a layer: its window, and the spans of all pyramids in order.

    Parameters
    ----------
    size : int
        Pixels of the map.
    extent, stride, padding : int
        Pixels that a window covers from its first tap to its last; those from one window to the next; and the padding
        before the map. It is in no span: padding is computed, not stored.
    spans : tuple of Span
        One for each row (or column) of pyramids; a pyramid's may be empty.

    Raises
    ------
    ConfigError
        If the spans leave out a window, or one lacks a pixel that its windows need, or a pixel is kept that the
        span before doesn't hold.
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
        for before, after in pairwise(self.loads):
            if after.kept and (after.fresh != before.end or after.begin < before.begin):
                raise ConfigError(f"a span must keep what the one before, {before!r}, ends with, not {after!r}")
        if self.loads[0].kept:
            raise ConfigError(f"the first span must keep nothing, not {self.loads[0]!r}")

    def origin(self, span: Span) -> int:
        """The pixel at which the first window of a span begins; negative in the padding."""
        return span.window * self.stride - self.padding

    @cached_property
    def loads(self) -> tuple[Span, ...]:
        """The spans that have a pixel."""
        return tuple(span for span in self.spans if span.size)

    @cached_property
    def walks(self) -> tuple[Span, ...]:
        """The spans that have a window."""
        return tuple(span for span in self.spans if span.windows)

    def used(self, span: Span) -> range:
        """The pixels of a span that its windows need: not those that strides skip before the first, none without a
        window."""
        return range(max(span.begin, self.origin(span)) if span.windows else span.end, span.end)

    def cut(self, pixels: int) -> tuple[Cut, ...]:
        """The spans in beats of ``pixels``, each: what comes in begins with a beat, whatever was kept before it.

        So where pixels are kept, beats go on from span to span, and the kept ones may begin within a beat. A span that
        keeps nothing begins with a beat if the next ones don't keep any of it.

        Raises
        ------
        ConfigError
            If spans that keep pixels of each other don't come in whole beats.
        """
        cuts = [Cut(span=span, pixels=pixels, first=span.begin, kept=0, size=0, unused=0) for span in self.spans]
        grid = 0
        for number, span in enumerate(self.spans):
            if span.size:
                grid = grid if span.kept else self._grid(number, pixels)
                cuts[number] = self._cut(span, pixels, grid)
        return tuple(cuts)

    def _grid(self, number: int, pixels: int) -> int:
        """A pixel at which a beat begins, for a span that keeps nothing and for those that go on from it."""
        joints = []
        for span in self.spans[number + 1 :]:
            if span.size and not span.kept:
                break
            joints += [span.fresh] if span.new else []
        for before, after in pairwise(joints):
            if (after - before) % pixels:
                raise ConfigError(
                    f"pixels must divide the {after - before} that come in from tile to tile where some are kept, "
                    f"not {pixels!r}"
                )
        return joints[0] if joints else self.spans[number].begin

    def _cut(self, span: Span, pixels: int, grid: int) -> Cut:
        first = span.begin - (span.begin - grid) % pixels
        kept = -(-(span.fresh - first) // pixels) if span.kept else 0
        size = -(-(span.end - first) // pixels)
        used = self.used(span)
        unused = (used.start - first) // pixels if used else size
        return Cut(span=span, pixels=pixels, first=first, kept=kept, size=size, unused=unused)

    @property
    def kept(self) -> int:
        """Pixels kept at most: the extent less the stride between two pyramids inside the map."""
        return max(span.kept for span in self.spans)

    @property
    def new(self) -> int:
        """Pixels that come in at most in a pyramid."""
        return max(span.new for span in self.spans)

    @property
    def overlaps(self) -> bool:
        """Whether some pixels come in more than once."""
        return any(after.fresh < before.end for before, after in pairwise(self.loads))

    @property
    def pixels(self) -> int:
        """Pixels that come in, over all pyramids."""
        return sum(span.new for span in self.spans)

    @property
    def tile(self) -> int:
        """Pixels that the windows of a pyramid take at most, padding included: ``S (R - 1)`` and the extent."""
        return (max(span.windows for span in self.spans) - 1) * self.stride + self.extent

    @property
    def windows(self) -> int:
        """Windows over all pyramids."""
        return sum(span.windows for span in self.spans)
