"""Flow control of a line buffer: pixel counters decide when a window starts and when the writer accepts a beat."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Mux, Shape, Signal, Value

from hwgen.gateware.lookup import bits_for_range, delayed, named, sparse_table
from hwgen.gateware.windows.ring_banks import WrittenPixels
from hwgen.gateware.windows.window_grid import WindowSteps
from hwgen.gateware.windows.window_parameters import WindowParameters
from hwgen.gateware.windows.window_walk import WindowWalk


@dataclass(frozen=True)
class PixelCounts:
    """Pixel counters of a line buffer: ``margin`` lets windows start, ``space`` lets the writer accept beats.

    - ``margin``: number of pixels written, minus the number that the next window needs. A window can start unless it is
      negative.
    - ``space``: number of pixels that can be written without overwriting a pixel that a window of its frame needs,
      minus the pixels of the next beat. The writer accepts the next beat unless it is negative.
    """

    parameters: WindowParameters

    @property
    def _ring_pixels(self) -> int:
        """Number of pixels that the line buffer can store before a frame's first window releases any."""
        return self.parameters.rows * self.parameters.input.width + self.parameters.grid.skipped

    @property
    def margin_shape(self) -> Shape:
        """Amaranth shape of the counter ``margin``: pixels stored beyond those the next windows need."""
        limit = 2 * self.parameters.input.frame_pixels + self._ring_pixels
        return bits_for_range(-limit, limit)

    @property
    def first_space(self) -> int:
        """Integer start value of the counter ``space``: pixels that fit before the first window, less one beat's."""
        return self._ring_pixels - min(self.parameters.input.pixels, self.parameters.input.width)

    @property
    def space_shape(self) -> Shape:
        """Amaranth shape of the counter ``space``: pixels free in the line buffer beyond the next beat."""
        source = self.parameters.input
        largest = self._ring_pixels + source.frame_pixels - source.last_pixels
        return bits_for_range(-min(source.pixels, source.width), largest)

    @property
    def counter_ff(self) -> int:
        """Number of flip-flops of the pixel counters and of their increments."""
        grid = self.parameters.grid
        total = self.margin_shape.width + self.space_shape.width + 2 * grid.release_steps.bits
        return total + grid.need_steps.bits if self.parameters.window_cycles > 1 else total

    def add_to(self, m: Module, walk: WindowWalk, pixels: WrittenPixels) -> Value:
        """Add the pixel counters; return a bit: the line buffer's writer accepts the next beat.

        A window starts when its pixels are stored.
        """
        grid = self.parameters.grid
        need = self._growth_at_window(walk, grid.need_steps)
        margin = Signal(self.margin_shape, name="margin", init=-int(grid.needed(0, 0)))
        used = Signal.like(need, name="used_pixels")
        # The next window reads the margin two or more cycles later, so that a register fits, unless a window takes one
        # cycle.
        domain = m.d.sync if self.parameters.window_cycles > 1 else m.d.comb
        domain += used.eq(Mux(walk.window_starts, need, 0))
        m.d.sync += margin.eq(margin + pixels.written - used)
        # The sign bit replaces a comparison, which would be a second carry chain on the path that starts windows.
        m.d.comb += walk.window_ready.eq(~margin[-1])

        released = Signal(range(self.parameters.input.frame_pixels + grid.skipped + 1), name="released_pixels")
        m.d.sync += released.eq(Mux(walk.window_ends, self._growth_at_window(walk, grid.release_steps), 0))
        released = delayed(m, "released_pixels", released, self.parameters.release_delay - 2, reset_less=False)
        # ``space`` is already less by the pixels of the next beat, so that its sign bit shows whether the beat fits. A
        # comparison would be a second carry chain on the path to ``margin``.
        space = Signal(self.space_shape, name="space", init=self.first_space)
        m.d.sync += space.eq(space + released - pixels.upcoming)
        return ~space[-1]

    def _growth_at_window(self, walk: WindowWalk, steps: WindowSteps) -> Value:
        """Return how many pixels a count grows by at the current window, as logic, by look-up in ``steps``."""
        tops, lefts = self.parameters.grid.tops, self.parameters.grid.lefts
        at_end = sparse_table(walk.top, dict(zip(tops, steps.ends, strict=True)))
        if not steps.columns:
            return at_end
        columns = dict(zip(lefts[:-1], steps.columns, strict=True))
        counts = dict(zip(tops, steps.counts, strict=True))
        in_row = Mux(sparse_table(walk.top, counts), sparse_table(walk.left, columns), 0)
        return named(Mux(walk.row_ends, at_end, in_row), "steps_to_next_window")
