"""From sums to outputs by a monotone function: by how many of its thresholds a sum reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import memory, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits, varying_columns
from hwgen.gateware.lookup import delayed, dense_table, rom_attributes, sparse_table
from hwgen.gateware.ports import read_port
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import at_pixel, channels_layout, pipeline_ports


@dataclass(frozen=True, kw_only=True)
class ThresholdConfig:
    """``low`` plus the number of thresholds that are not above a sum.

    Parameters
    ----------
    lanes : int
        Channels a beat.
    accumulator_bits : int
        Width of a sum, signed.
    thresholds : tuple of tuple of int
        Rising, by count: a row for each of ``counts``, all of the same length. One row if there are no counts.
    counts : tuple of int
        Rising; what may stand above a sum, and chooses the row. Empty where nothing does.
    count_bits : int
        Its width.
    low : int
        The least output.
    bits, signed : int, bool
        Shape of an output.
    beats : tuple of tuple of int
        The channels each beat of a pixel carries, lowest lane first.
    pixels : int
        Neighbouring pixels a beat; a channel's values for all of them lie side by side.

    Raises
    ------
    ConfigError
        If there are no such thresholds, the output doesn't hold what they give, or the beats don't fit the lanes.
    """

    lanes: int
    accumulator_bits: int
    thresholds: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...] = ()
    count_bits: int = 0
    low: int
    bits: int
    signed: bool
    beats: tuple[tuple[int, ...], ...]
    pixels: int = 1

    #: DSP slices.
    multipliers = 0

    def __post_init__(self) -> None:
        if len(self.thresholds) != max(len(self.counts), 1) or len(set(map(len, self.thresholds))) != 1:
            raise ConfigError("thresholds must be a row for each count, all of the same length")
        if any(list(row) != sorted(row) for row in self.thresholds):
            raise ConfigError("thresholds must rise")
        if any(not 0 <= count < 1 << self.count_bits for count in self.counts):
            raise ConfigError(f"counts must fit {self.count_bits} bits, not {self.counts!r}")
        least = -(1 << (self.bits - 1)) if self.signed else 0
        if not least <= self.low <= least + (1 << self.bits) - 1 - len(self.thresholds[0]):
            raise ConfigError(f"low must leave room for {len(self.thresholds[0])} thresholds, not {self.low!r}")
        if not self.beats or not all(1 <= len(beat) <= self.lanes for beat in self.beats):
            raise ConfigError(f"beats must carry between 1 and {self.lanes} channels each, not {self.beats!r}")

    @property
    def accumulator(self) -> Shape:
        """What comes in: a sum, or a count above a sum."""
        return unsigned(self.accumulator_bits + self.count_bits) if self.counts else signed(self.accumulator_bits)

    @property
    def output(self) -> Shape:
        return Shape(self.bits, self.signed)

    @property
    def levels(self) -> int:
        """Comparisons, one after the other, that find a sum's place."""
        return len(self.thresholds[0]).bit_length()

    @cached_property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """By level: the threshold that is next, by row and what the comparisons before have found.

        The first one is the middle threshold. Places behind the last threshold hold one that no sum reaches.
        """
        never = 1 << (self.accumulator_bits - 1)
        size = 1 << self.levels
        rows = [(*row, *(never,) * (size - 1 - len(row))) for row in self.thresholds]
        return tuple(
            tuple(row[(2 * place + 1) * (size >> level + 1) - 1] for row in rows for place in range(1 << level))
            for level in range(self.levels)
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat to its outputs: two for each level, one for the output."""
        return 2 * self.levels + 1

    @property
    def short(self) -> bool:
        """Whether some beats leave lanes out."""
        return any(len(beat) < self.lanes for beat in self.beats)

    @cached_property
    def resources(self) -> Resources:
        cost, one = Cost(), Cost()
        for level, table in enumerate(self.tables):
            width = signed_bits(*table)
            columns = varying_columns([value % (1 << width) for value in table], width)
            if len(set(table)) > 1:
                one.rom(columns, len(table), width, block=False)
                one.ff += level
            one.ff += 2 * self.accumulator_bits + 1 + level
            one.lut += 0.64 * max(width, self.accumulator_bits) + 1.6
        one.ff += self.bits - self.accumulator_bits * (self.levels > 0)  # nothing looks at the last sum any more
        sums = self.lanes * self.pixels
        cost.lut, cost.ff = one.lut * sums, one.ff * sums + self.latency
        if self.short:
            cost.ff += counter_bits(len(self.beats))
            cost.lut += counter_bits(len(self.beats))
        return cost.resources

    def component(self) -> Threshold:
        return Threshold(self)


class Threshold(wiring.Component):
    """A binary search, a level after the other.

    Parameters
    ----------
    config : ThresholdConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` sums of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Their outputs; lanes without a channel are 0.

    Latency and throughput
        A beat a cycle; it leaves ``config.latency`` cycles after it came, and never stalls. The first beat after
        reset is a pixel's first.
    """

    def __init__(self, config: ThresholdConfig):
        self._config = config
        shapes = (config.accumulator, config.output)
        super().__init__(pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes)))

    @property
    def config(self) -> ThresholdConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        ahead = delayed(m, "valid", self.i.valid, config.latency - 1, reset_less=False)
        m.d.comb += self.o.valid.eq(delayed(m, "output_valid", ahead, 1, reset_less=False))
        present = self._present(m, ahead)
        for lane, (values, outputs) in enumerate(zip(self.i.payload, self.o.payload, strict=True)):
            for pixel, (value, output) in enumerate(zip(values, outputs, strict=True)):
                name = at_pixel(f"lane_{lane}", pixel, config.pixels)
                place = self._search(m, name, value)
                register = Signal(config.output, name=f"output_{name}", reset_less=True)
                m.d.sync += register.eq(Mux(present[lane], place + config.low, 0))
                m.d.comb += output.eq(register)
        return m

    def _present(self, m: Module, valid: Value) -> list[Value]:
        """By lane: whether the beat that is about to leave carries a channel there."""
        config = self.config
        beat = Signal(range(len(config.beats)), name="beat_index")
        if config.short:
            with m.If(valid):
                m.d.sync += beat.eq(Mux(beat == len(config.beats) - 1, 0, beat + 1))
        return [
            sparse_table(beat, {number: int(lane < len(channels)) for number, channels in enumerate(config.beats)})
            for lane in range(config.lanes)
        ]

    def _search(self, m: Module, name: str, value: Value) -> Value:
        """How many thresholds ``value`` reaches."""
        config = self.config
        total: Value = value[: config.accumulator_bits].as_signed()
        row: Value = Const(0, 0)
        if len(config.counts) > 1:
            rows = {count: number for number, count in enumerate(config.counts)}
            by_count = [rows.get(count, 0) for count in range(max(config.counts) + 1)]
            row = dense_table(m, f"table_row_{name}", value[config.accumulator_bits :], by_count)
        place: Value = Const(0, 0)
        for level, table in enumerate(config.tables):
            here = f"{name}_level_{level}"
            threshold: Value = Const(table[0], signed(signed_bits(table[0])))
            if len(set(table)) > 1:
                shape = signed(signed_bits(*table))
                rom = memory.Memory(
                    shape=shape, depth=len(table), init=list(table), attrs=rom_attributes(len(table), "lut")
                )
                m.submodules[f"thresholds_{here}"] = rom
                port = read_port(rom)
                m.d.comb += port.addr.eq(Cat(place, row))
                threshold = port.data
            total, place, row = (
                delayed(m, f"{what}_{here}", part, 1)
                for what, part in (("sum", total), ("search_index", place), ("table_row", row))
            )
            reached = Signal(name=f"is_reached_{here}", reset_less=True)
            m.d.sync += reached.eq(total >= threshold)
            total, place, row = (
                delayed(m, f"{what}_{here}_delayed", part, 1)
                for what, part in (("sum", total), ("search_index", place), ("table_row", row))
            )
            place = Cat(reached, place)
        return place


def first_sums(
    function: Callable[[np.ndarray], np.ndarray], least: int, most: int, wanted: np.ndarray
) -> tuple[int, ...]:
    """The first integer from ``least`` to ``most`` for which a rising function is at least each ``wanted`` value.

    The one behind ``most`` where it never is.
    """
    before, first = np.full(wanted.shape, least - 1), np.full(wanted.shape, most + 1)
    while (searching := first - before > 1).any():
        middle = (before + first) // 2
        reached = function(middle) >= wanted
        first = np.where(searching & reached, middle, first)
        before = np.where(searching & ~reached, middle, before)
    return tuple(first.tolist())
