"""Upsampling: every beat of a row several times, and every row, which is kept meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import LOGIC, Cost, Resources, counter_bits
from hwgen.gateware.join import OneMapConfig, walk_ports
from hwgen.gateware.kept import LATENCY, count_kept, keep
from hwgen.gateware.lookup import delayed
from hwgen.gateware.naming import named
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class UpsampleConfig(OneMapConfig):
    """A walk that goes over each row of a map several times, and over each beat of it as often as it widens the row.

    Of a map of two pixels a row, in two beats each, and factors 2 and 2, a row's beats ``a0 a1 b0 b1`` become
    ``a0 a1 a0 a1 b0 b1 b0 b1``, twice. Where beats hold several pixels, each step gives as many of the wider row.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in.
    factors : tuple of int
        How often each row stands in the output, and each column.

    Raises
    ------
    ConfigError
        If a factor is not positive.
    """

    factors: tuple[int, int]

    #: Cycles from a step being issued to its values being on ``o``.
    latency = 1 + LATENCY

    def __post_init__(self) -> None:
        if min(self.factors) < 1:
            raise ConfigError(f"factors must be positive, not {self.factors!r}")

    @property
    def lanes(self) -> int:
        """Channels of a step."""
        return self.input.lanes

    @property
    def output_height(self) -> int:
        return self.input.height * self.factors[0]

    @property
    def output_width(self) -> int:
        return self.input.width * self.factors[1]

    def taking(self, place: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """The steps that take a beat: those of a row's first pass, and of each beat's first part."""
        shape = self.factors[0], self.row_steps, self.input.folds
        return shape, (slice(None), 0, slice(None, None, self.factors[1]), slice(None))

    @property
    def kept_words(self) -> int:
        """Beats of a row."""
        return self.input.row_steps * self.input.folds

    def source_pixel(self, part: int, pixel: int) -> int:
        """Pixel of a beat that stands at a pixel of one of its parts in the output."""
        return (part * self.pixels + pixel) // self.factors[1]

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``operand[lane][pixel]``."""
        return data.StructLayout({"operand": channels_layout(self.input.shape, self.input.lanes, self.pixels)})

    @cached_property
    def resources(self) -> Resources:
        cost, source = Cost(), self.input
        parts = self.factors[1] if self.pixels > 1 else 1
        counters = [counter_bits(count) for count in (source.folds, self.row_steps, *self.factors, self.kept_words)]
        count_kept(cost, source.data_bits, self.kept_words)
        cost.ff += sum(counters) + source.data_bits + counter_bits(self.kept_words) + 2
        cost.lut += 1.5 * sum(counters) + 4 + source.data_bits * (LOGIC.mux_luts(parts) if parts > 1 else 0)
        cost.delay(1, LATENCY)
        cost.delay(counter_bits(parts), self.latency)
        return cost.resources

    def component(self) -> Upsample:
        return Upsample(self)


class Upsample(wiring.Component):
    """Takes a row's beats while it gives the row for the first time; then gives it again as often as it must.

    Parameters
    ----------
    config : UpsampleConfig

    Members
    -------
    i, room, fold, start, o
        As of a `Join` with one input.
    """

    def __init__(self, config: UpsampleConfig):
        self._config = config
        super().__init__(walk_ports(config))

    @property
    def config(self) -> UpsampleConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, source = self.config, self.config.input
        down, right = config.factors
        turn, part, column = (
            Signal(range(down), name="row_repeat"),
            Signal(range(right), name="column_repeat"),
            Signal(range(config.row_steps), name="column_index"),
        )
        address = Signal(range(config.kept_words), name="beat_address")
        fold_ends, part_ends = self.fold == source.folds - 1, part == right - 1
        row_ends = named(column == config.row_steps - 1, "is_row_end")
        takes = Signal(name="is_first_repeat")
        m.d.comb += [
            takes.eq((turn == 0) & (part == 0)),
            self.start.eq(self.room & (self.i.valid | ~takes)),
            self.i.ready.eq(self.start & takes),
        ]
        with m.If(self.start):
            m.d.sync += [self.fold.eq(Mux(fold_ends, 0, self.fold + 1)), address.eq(address + 1)]
            with m.If(fold_ends):
                m.d.sync += [column.eq(Mux(row_ends, 0, column + 1)), part.eq(Mux(part_ends | row_ends, 0, part + 1))]
                with m.If(row_ends):
                    m.d.sync += [address.eq(0), turn.eq(Mux(turn == down - 1, 0, turn + 1))]
                with m.Elif(~part_ends):
                    m.d.sync += address.eq(address - (source.folds - 1))
        word = Signal(source.data_bits, name="write_word", reset_less=True)
        place = Signal.like(address, name="write_address", reset_less=True)
        write = Signal(name="write_enable")
        m.d.sync += [word.eq(self.i.payload.data), place.eq(address), write.eq(self.start & takes)]
        layout = channels_layout(source.shape, source.lanes, source.pixels)
        beat = data.View(layout, keep(m, "row", config.kept_words, word, place, write))
        parts = delayed(m, "column_repeat", part, config.latency)
        for lane, pixel in product(range(source.lanes), range(config.pixels)):
            value = self.o.payload.operand[lane][pixel]
            m.d.comb += value.eq(beat[lane][config.source_pixel(0, pixel)])
            for number in range(1, right if config.pixels > 1 else 1):
                with m.If(parts == number):
                    m.d.comb += value.eq(beat[lane][config.source_pixel(number, pixel)])
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m
