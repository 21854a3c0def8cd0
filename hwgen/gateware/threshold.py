"""Requantisation by comparison: an output is the number of thresholds that a sum reaches, for monotone functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned

from hwgen.errors import ConfigError
from hwgen.gateware.channels import ChannelsComponent
from hwgen.gateware.component import OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits, varying_columns
from hwgen.gateware.lookup import delayed, dense_table, look_up, registered, sparse_table
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import at_pixel


@dataclass(frozen=True, kw_only=True)
class ThresholdConfig(OnDevice):
    """Configuration of a requantiser by thresholds: an output is ``low`` plus how many thresholds its sum reaches.

    Parameters
    ----------
    lanes : int
        Number of channels per beat.
    accumulator_bits : int
        Width of a sum, signed.
    thresholds : tuple of tuple of int
        Ascending thresholds: one row per entry of ``counts``, all of the same length; one row without counts, or with
        ``by_channel`` one row per channel.
    by_channel : bool
        Whether each channel has its own row of thresholds.
    counts : tuple of int
        Ascending values of the count above a sum, which selects the row. Empty if sums have no count.
    count_bits : int
        Width of the count.
    low : int
        Smallest output.
    bits, signed : int, bool
        Type of an output.
    beats : tuple of tuple of int
        Channels of each beat of a pixel, lane 0 first.
    pixels : int
        Number of neighbouring pixels per beat. The values of a channel for these pixels are neighbours.

    Raises
    ------
    ConfigError
        If the thresholds are invalid, the output type does not represent all outputs, or the beats do not fit the
        lanes.
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
    by_channel: bool = False

    #: Number of DSP slices of a requantiser by thresholds: none.
    multipliers = 0

    def __post_init__(self) -> None:
        of_what = "channel" if self.by_channel else "count"
        rows = sum(map(len, self.beats)) if self.by_channel else max(len(self.counts), 1)
        if len(self.thresholds) != rows:
            raise ConfigError(f"thresholds must have a row per {of_what} ({rows}), not {len(self.thresholds)}")
        if len(lengths := set(map(len, self.thresholds))) != 1:
            raise ConfigError(f"thresholds must have rows of one length, not of {sorted(lengths)}")
        if self.by_channel and self.counts:
            raise ConfigError(f"counts must be empty where each channel has thresholds, not {self.counts!r}")
        if any(list(row) != sorted(row) for row in self.thresholds):
            row = next(row for row in self.thresholds if list(row) != sorted(row))
            raise ConfigError(f"thresholds of a row must ascend, not be {', '.join(map(str, row[:8]))}")
        if any(not 0 <= count < 1 << self.count_bits for count in self.counts):
            raise ConfigError(f"counts must fit {self.count_bits} bits, not {self.counts!r}")
        lowest = -(1 << (self.bits - 1)) if self.signed else 0
        if not lowest <= self.low <= lowest + (1 << self.bits) - 1 - len(self.thresholds[0]):
            raise ConfigError(f"low must leave room for {len(self.thresholds[0])} thresholds, not {self.low!r}")
        if not self.beats or not all(1 <= len(beat) <= self.lanes for beat in self.beats):
            raise ConfigError(f"beats must carry between 1 and {self.lanes} channels each, not {self.beats!r}")

    @property
    def accumulator(self) -> Shape:
        """Amaranth shape of an input value: a sum, or a sum with a count of window taps in the bits above it."""
        return unsigned(self.accumulator_bits + self.count_bits) if self.counts else signed(self.accumulator_bits)

    @property
    def output(self) -> Shape:
        """Amaranth shape of one output value, the number of thresholds reached plus ``low``."""
        return Shape(self.bits, self.signed)

    @property
    def levels(self) -> int:
        """Number of successive comparisons in the binary search for an output, one per pipeline stage."""
        return len(self.thresholds[0]).bit_length()

    @cached_property
    def tables(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Nested tuples: per output lane, per comparison of the binary search, a flat table of integer thresholds.

        The address is the row (by count, or the beat of the pixel), then the results of earlier comparisons. The first
        threshold is the middle one. Unused entries hold a threshold that no sum reaches.
        """
        if not self.by_channel:
            return (self._tables(self.thresholds),) * self.lanes
        first = self.thresholds[0]
        lanes = [[beat[lane] if lane < len(beat) else None for beat in self.beats] for lane in range(self.lanes)]
        return tuple(
            self._tables([first if channel is None else self.thresholds[channel] for channel in lane]) for lane in lanes
        )

    def _tables(self, thresholds: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """Return a tuple of thresholds per comparison of a lane's binary search, from its rows (a tuple each)."""
        never = 1 << (self.accumulator_bits - 1)
        size = 1 << self.levels
        rows = [(*row, *(never,) * (size - 1 - len(row))) for row in thresholds]
        return tuple(
            tuple(row[(2 * prefix + 1) * (size >> level + 1) - 1] for row in rows for prefix in range(1 << level))
            for level in range(self.levels)
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat of sums to its outputs: two per comparison, and one for the output."""
        return 2 * self.levels + 1

    @property
    def has_short_beats(self) -> bool:
        """Whether some beats of a pixel have fewer channels than lanes."""
        return any(len(beat) < self.lanes for beat in self.beats)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        for tables in self.tables:
            cost.add(self._lane_cost(tables), self.pixels)
        cost.ff += self.latency
        rows = counter_bits(len(self.beats)) * (self.by_channel and len(set(self.thresholds)) > 1)
        cost.ff += rows * 2 * (self.levels - 1)
        if self.has_short_beats or rows:
            cost.counter(len(self.beats), luts=1)
        return cost.resources

    def _lane_cost(self, tables: Sequence[tuple[int, ...]]) -> Cost:
        """Return the LUTs and registers of one lane's binary search among thresholds, as a `Cost`."""
        one = Cost(self.device)
        for level, table in enumerate(tables):
            width = signed_bits(*table)
            one.ff += 2 * self.accumulator_bits + 1 + level
            if self.by_channel and len(set(table)) == 1:  # synthesis knows each bit of the threshold
                one.lut += max(0.38 * self.accumulator_bits - 1, 1)
                continue
            if len(set(table)) > 1:
                one.table(table, width)
                one.ff += level
            one.lut += 0.64 * max(width, self.accumulator_bits) + 1.6
        one.ff += self._varying_bits - self.accumulator_bits * (self.levels > 0)  # no logic reads the last sum
        return one

    @property
    def _varying_bits(self) -> int:
        """Number of output bits that need a register: bits that vary, with equal ones counted once."""
        outputs = {*range(self.low, self.low + len(self.thresholds[0]) + 1), *([0] if self.has_short_beats else [])}
        return len({*varying_columns([output % (1 << self.bits) for output in outputs], self.bits)})

    def component(self) -> Threshold:
        return Threshold(self)


class Threshold(ChannelsComponent[ThresholdConfig]):
    """Component that finds the output for a sum by binary search among thresholds, one comparison per pipeline stage.

    Parameters
    ----------
    config : ThresholdConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` sums of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Outputs. Lanes without a channel are 0.

    Latency and throughput
        One beat per cycle, with a latency of ``config.latency`` cycles. Never stalls. The first beat after a reset is
        the first beat of a pixel.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        ahead = delayed(m, "valid", self.i.valid, config.latency - 1, reset_less=False)
        m.d.comb += self.o.valid.eq(delayed(m, "output_valid", ahead, 1, reset_less=False))
        present = self._count_outputs(m, ahead)
        rows = self._count_inputs(m)
        for lane, (values, outputs) in enumerate(zip(self.i.payload, self.o.payload, strict=True)):
            for pixel, (value, output) in enumerate(zip(values, outputs, strict=True)):
                name = at_pixel(f"lane_{lane}", pixel, config.pixels)
                index = self._search(m, name, value, config.tables[lane], rows)
                register = registered(m, f"output_{name}", Mux(present[lane], index + config.low, 0), config.output)
                m.d.comb += output.eq(register)
        return m

    def _count_outputs(self, m: Module, valid: Value) -> list[Value]:
        """Count output beats; return, as a list, a bit per lane: the next output beat has a channel there.

        ``valid`` is high in the cycle before an output beat.
        """
        config = self.config
        beat = Signal(range(len(config.beats)), name="beat_index")
        if config.has_short_beats:
            with m.If(valid):
                m.d.sync += beat.eq(Mux(beat == len(config.beats) - 1, 0, beat + 1))
        return [
            sparse_table(beat, {index: int(lane < len(channels)) for index, channels in enumerate(config.beats)})
            for lane in range(config.lanes)
        ]

    def _count_inputs(self, m: Module) -> list[Value]:
        """Count input beats, to select channels' thresholds; return, as a list, the index delayed by 0, 1, 2 .. cycles.

        The list is empty if all channels have the same thresholds.
        """
        config = self.config
        if not config.by_channel:
            return []
        beat = Signal(range(len(config.beats)), name="row_index")
        with m.If(self.i.valid):
            m.d.sync += beat.eq(Mux(beat == len(config.beats) - 1, 0, beat + 1))
        rows: list[Value] = [beat]
        for cycle in range(2 * config.levels):
            rows.append(delayed(m, f"row_index_delayed_{cycle}", rows[-1], 1))
        return rows

    def _search(
        self, m: Module, name: str, value: Value, tables: Sequence[tuple[int, ...]], rows: Sequence[Value]
    ) -> Value:
        """Add a pipelined binary search for a sum among thresholds; return a `Value`: how many the sum reaches.

        ``rows``: row of the thresholds, delayed by each number of cycles; empty if a count in ``value`` selects it.
        """
        config = self.config
        total: Value = value[: config.accumulator_bits].as_signed()
        row: Value = Const(0, 0)
        if len(config.counts) > 1:
            by_count = {count: index for index, count in enumerate(config.counts)}
            table_rows = [by_count.get(count, 0) for count in range(max(config.counts) + 1)]
            row = dense_table(m, f"table_row_{name}", value[config.accumulator_bits :], table_rows)
        index: Value = Const(0, 0)
        for level, table in enumerate(tables):
            here = f"{name}_level_{level}"
            threshold: Value = Const(table[0], signed(signed_bits(table[0])))
            if len(set(table)) > 1:
                address = Cat(index, rows[2 * level] if rows else row)
                threshold = look_up(m, config.device, f"thresholds_{here}", signed(signed_bits(*table)), table, address)
            total, index, row = (
                delayed(m, f"{signal_name}_{here}", signal, 1)
                for signal_name, signal in (("sum", total), ("search_index", index), ("table_row", row))
            )
            reached = registered(m, f"is_reached_{here}", total >= threshold, 1)
            total, index, row = (
                delayed(m, f"{signal_name}_{here}_delayed", signal, 1)
                for signal_name, signal in (("sum", total), ("search_index", index), ("table_row", row))
            )
            index = Cat(reached, index)
        return index


def first_sums(
    function: Callable[[np.ndarray], np.ndarray], lowest: int, highest: int, levels: np.ndarray
) -> tuple[int, ...]:
    """Return the smallest integer where a rising ``function`` reaches each of ``levels``, as a tuple.

    The integers are from ``lowest`` to ``highest``. The result is ``highest + 1`` for a level that is never reached.
    """
    before, first = np.full(levels.shape, lowest - 1), np.full(levels.shape, highest + 1)
    while (searching := first - before > 1).any():
        middle = (before + first) // 2
        reached = function(middle) >= levels
        first = np.where(searching & reached, middle, first)
        before = np.where(searching & ~reached, middle, before)
    return tuple(first.tolist())
