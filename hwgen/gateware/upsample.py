"""Nearest-neighbour upsampling of a feature map: every beat of a row and every stored row are repeated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.join import OneMapConfig, walk_ports
from hwgen.gateware.kept import LATENCY, add_memory, add_memory_cost
from hwgen.gateware.lookup import delayed, named
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class UpsampleConfig(OneMapConfig):
    """Configuration of nearest-neighbour upsampling, which repeats each row of a map and the beats within a row.

    For example, a row of two pixels has two beats each, ``a0 a1 b0 b1``. With factors 2 and 2, the row becomes
    ``a0 a1 a0 a1 b0 b1 b0 b1``, twice. If beats hold several pixels, each step outputs equally many pixels of the wider
    row.

    Parameters
    ----------
    input : BeatFormat
        Format of the input.
    factors : tuple of int
        Number of repetitions of each row, and of each column.

    Raises
    ------
    ConfigError
        If a factor is not positive.
    """

    factors: tuple[int, int]

    #: Cycles from a step, which accepts a beat or reads it again from memory, to the beat's values on port ``o``.
    latency = 1 + LATENCY

    def __post_init__(self) -> None:
        if min(self.factors) < 1:
            raise ConfigError(f"factors must be positive, not {self.factors!r}")

    @property
    def lanes(self) -> int:
        """Number of channels that the upsampling outputs per cycle: as many as an input beat has lanes."""
        return self.input.lanes

    @property
    def output_height(self) -> int:
        return self.input.height * self.factors[0]

    @property
    def output_width(self) -> int:
        return self.input.width * self.factors[1]

    def read_cycles(self, input_index: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Return (shape, index) of an array of an input row's output cycles: the index selects those that read input.

        The array has an entry for every cycle (step) that outputs a repetition of the row. The index selects the
        cycles that accept a beat: the beat's first repetition, in the first repetition of the row.
        """
        shape = self.factors[0], self.row_steps, self.input.folds
        return shape, (slice(None), 0, slice(None, None, self.factors[1]), slice(None))

    @property
    def kept_words(self) -> int:
        """Number of memory words that store a map row for its repetitions, one per beat of the row."""
        return self.input.row_steps * self.input.folds

    def source_pixel(self, repetition: int, pixel: int) -> int:
        """Return the index in the input beat of the pixel that pixel ``pixel`` of an output beat repeats."""
        return (repetition * self.pixels + pixel) // self.factors[1]

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of one cycle's output: values ``operand[lane][pixel]``."""
        return data.StructLayout({"operand": channels_layout(self.input.shape, self.input.lanes, self.pixels)})

    @cached_property
    def resources(self) -> Resources:
        cost, source = Cost(self.device), self.input
        repetitions = self.factors[1] if self.pixels > 1 else 1
        add_memory_cost(cost, source.data_bits, self.kept_words)
        cost.counter(source.folds, self.row_steps, *self.factors, self.kept_words)
        cost.ff += source.data_bits + counter_bits(self.kept_words) + 2
        cost.lut += 4
        cost.multiplexer(source.data_bits, repetitions)
        cost.delay(1, LATENCY)
        cost.delay(counter_bits(repetitions), self.latency)
        return cost.resources

    def component(self) -> UpsampleUnit:
        return UpsampleUnit(self)


class UpsampleUnit(ConfiguredComponent[UpsampleConfig]):
    """Component that upsamples a map: outputs each row while it arrives and is stored, then repeats it from memory.

    Parameters
    ----------
    config : UpsampleConfig

    Members
    -------
    i, room, fold, start, o
        As in `Join` with one input.
    """

    def __init__(self, config: UpsampleConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, source = self.config, self.config.input
        down, right = config.factors
        row_repeat, column_repeat, column = (
            Signal(range(down), name="row_repeat"),
            Signal(range(right), name="column_repeat"),
            Signal(range(config.row_steps), name="column_index"),
        )
        address = Signal(range(config.kept_words), name="beat_address")
        fold_ends, repeat_ends = self.fold == source.folds - 1, column_repeat == right - 1
        row_ends = named(column == config.row_steps - 1, "is_row_end")
        takes = Signal(name="is_first_repeat")
        m.d.comb += [
            takes.eq((row_repeat == 0) & (column_repeat == 0)),
            self.start.eq(self.room & (self.i.valid | ~takes)),
            self.i.ready.eq(self.start & takes),
        ]
        with m.If(self.start):
            m.d.sync += [self.fold.eq(Mux(fold_ends, 0, self.fold + 1)), address.eq(address + 1)]
            with m.If(fold_ends):
                m.d.sync += [
                    column.eq(Mux(row_ends, 0, column + 1)),
                    column_repeat.eq(Mux(repeat_ends | row_ends, 0, column_repeat + 1)),
                ]
                with m.If(row_ends):
                    m.d.sync += [address.eq(0), row_repeat.eq(Mux(row_repeat == down - 1, 0, row_repeat + 1))]
                with m.Elif(~repeat_ends):
                    m.d.sync += address.eq(address - (source.folds - 1))
        word = Signal(source.data_bits, name="write_word", reset_less=True)
        write_address = Signal.like(address, name="write_address", reset_less=True)
        write = Signal(name="write_enable")
        m.d.sync += [word.eq(self.i.payload.data), write_address.eq(address), write.eq(self.start & takes)]
        layout = channels_layout(source.shape, source.lanes, source.pixels)
        beat = data.View(layout, add_memory(m, config.device, "row", config.kept_words, word, write_address, write))
        repetition = delayed(m, "column_repeat", column_repeat, config.latency)
        for lane, pixel in product(range(source.lanes), range(config.pixels)):
            value = self.o.payload.operand[lane][pixel]
            m.d.comb += value.eq(beat[lane][config.source_pixel(0, pixel)])
            for index in range(1, right if config.pixels > 1 else 1):
                with m.If(repetition == index):
                    m.d.comb += value.eq(beat[lane][config.source_pixel(index, pixel)])
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m
