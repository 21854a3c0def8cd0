"""Sums of each channel over a whole map (global average pooling), accumulated while the map arrives.

Only one sum per channel is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

from amaranth import Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data

from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.join import JoinLayerConfig, walk_ports
from hwgen.gateware.layer import Weightless
from hwgen.gateware.lookup import delayed, ram, read_port, write_port
from hwgen.gateware.nest import Loop
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import BeatFormat, channels_layout, pipeline_ports

#: Largest number of pixel values of one channel that are added in one cycle.
MAX_ADDENDS = 8


@dataclass(frozen=True, kw_only=True)
class WholeMapConfig(OnDevice):
    """Configuration of the component that reads a map for a global pool: every beat once, in order.

    The steps of the last pixels output the sums.

    Parameters
    ----------
    input : BeatFormat
        Format of the input.
    """

    input: BeatFormat

    #: The number 1, for a global pool: cycles per output fold; pixels per output map, output beat and output row; and
    #: beats per output row.
    steps = windows = pixels = output_width = row_steps = 1
    #: Cycles from the transfer of an input beat to the beat's values on port ``o``.
    latency = 1
    #: Number of rows of the input map that a global pool stores: none, because it stores only sums.
    rows = min_rows = 0

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        """Tuple of the `BeatFormat` of a global pool's only input map."""
        return (self.input,)

    @property
    def output_folds(self) -> int:
        """Number of groups of ``Tn`` channels whose sums a global pool outputs one after the other."""
        return self.input.folds

    @property
    def window_cycles(self) -> int:
        """Number of cycles that a global pool's single output pixel takes: one per beat of the input map."""
        return self.input.beats

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Channels whose sums each beat of a map's last pixels completes, as a tuple of ranges."""
        return self.input.fold_channels

    @property
    def partial_pixels(self) -> int:
        """Number of the map's pixels in the last beat of a row, if fewer than in other beats; otherwise 0."""
        return self.input.width % self.input.pixels

    @property
    def step_layout(self) -> data.StructLayout:
        """Layout of one cycle's output: values ``operand[lane][pixel]``, channel group index ``fold``, and two flags.

        The flags are high for the ``first`` and the ``last`` pixels of a frame.
        """
        source = self.input
        values = channels_layout(source.shape, source.lanes, source.pixels)
        return data.StructLayout({"operand": values, "fold": range(source.folds), "first": 1, "last": 1})

    @cached_property
    def resources(self) -> Resources:
        cost, source = Cost(self.device), self.input
        cost.counter(source.folds, source.row_steps, source.height)
        cost.ff += self.step_layout.size + 1
        cost.lut += 4
        if self.partial_pixels:
            cost.lut += source.lanes * (source.pixels - self.partial_pixels) * source.bits
        return cost.resources

    def component(self) -> WholeMap:
        return WholeMap(self)


class WholeMap(ConfiguredComponent[WholeMapConfig]):
    """Component that passes every beat of a map to a global pool's accumulators, and marks first and last pixels.

    Beats of the last pixels are accepted only when their sums have room.

    Parameters
    ----------
    config : WholeMapConfig

    Members
    -------
    i : In(stream)
        Beats of the map.
    room : In(1)
        Whether there is room for the results of the next output fold.
    fold : Out
        Index of the next step within its group of pixels.
    start : Out(1)
        Whether a step is accepted that outputs a fold.
    o : Out(stream, always ready)
        Steps, ``config.latency`` cycles after they were accepted. Pixels past the end of a row are 0.
    """

    def __init__(self, config: WholeMapConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config, source = self.config, self.config.input
        fold = Loop("fold", range(source.folds), index=self.fold)
        column, row = Loop("column_index", range(source.row_steps)), Loop("row_index", range(source.height))
        frame_ends = Signal(name="is_frame_end")
        taken = Signal(name="input_transfer")
        m.d.comb += [
            frame_ends.eq(column.is_last & row.is_last),
            self.i.ready.eq(self.room | ~frame_ends),
            taken.eq(self.i.valid & self.i.ready),
            self.start.eq(taken & frame_ends),
        ]
        row.step(m, column.step(m, fold.step(m, taken)))
        step = Signal(config.step_layout, name="step", reset_less=True)
        m.d.sync += [
            self.o.valid.eq(taken),
            step.fold.eq(self.fold),
            step.first.eq((row.index == 0) & (column.index == 0)),
            step.last.eq(frame_ends),
        ]
        for lane, pixel in product(range(source.lanes), range(source.pixels)):
            value: Value = self.i.payload.data[lane][pixel]
            if config.partial_pixels and pixel >= config.partial_pixels:
                value = Mux(column.is_last, 0, value)
            m.d.sync += step.operand[lane][pixel].eq(value)
        m.d.comb += self.o.payload.eq(step)
        return m


@dataclass(frozen=True, kw_only=True)
class RunningSumConfig(Weightless):
    """Configuration of a global pool's accumulators: the sum of each channel over a whole map.

    Parameters
    ----------
    window : WholeMapConfig
        Source of the steps.
    """

    window: WholeMapConfig

    @property
    def memory_cycles(self) -> int:
        """Number of cycles (0 or 1) that block RAM's output register adds to an accumulation, if it stores the sums."""
        return int(self.memories.default_ram(self.window.input.folds) == "block")

    @property
    def latency(self) -> int:
        """Cycles from a channel's last values of the map on port ``i`` to the channel's sum on port ``o``."""
        return 2 + self.memory_cycles

    @property
    def result(self) -> Shape:
        """Amaranth shape (signed) of a channel's sum over the whole map."""
        source = self.window.input
        return signed(signed_bits(*(source.frame_pixels * end for end in source.value_range)))

    @property
    def pixel_spans(self) -> tuple[range, ...]:
        """Tuple of ranges of a beat's pixels that one adder sums in one cycle: one, or two for more than eight pixels.

        The sums of two spans are added a cycle later. A sum of ten values of 8 bits would take 3.4 ns of logic, and a
        sum of sixteen values more.
        """
        pixels, half = self.window.input.pixels, -(-self.window.input.pixels // 2)
        return (range(pixels),) if pixels <= MAX_ADDENDS else (range(half), range(half, pixels))

    @property
    def span_bits(self) -> int:
        """Width in bits of the signed sum of one channel over a range of a beat's pixels (``pixel_spans``)."""
        return self.window.input.bits + counter_bits(len(self.pixel_spans[0])) + 1

    @property
    def sum_bits(self) -> int:
        """Width in bits of a memory word that stores the sums of all lanes."""
        return self.lanes * self.result.width

    @cached_property
    def resources(self) -> Resources:
        cost, source = Cost(self.device), self.window.input
        spans = len(self.pixel_spans)
        pixels = self.span_bits if source.pixels > 1 else source.bits
        cost.ff += self.sum_bits + 2
        # Two spans are joined by one more LUT, with its carry, per bit of the sum.
        cost.lut += self.lanes * (source.pixels - spans) * pixels + (1.25 + 2 * (spans - 1)) * self.sum_bits
        cost.delay(self.lanes * spans * pixels + counter_bits(source.folds) + 2, 1 + self.memory_cycles)
        if source.folds > 1:
            cost.ram(self.sum_bits, source.folds)
            cost.ff += self.memory_cycles * (self.sum_bits + 1)
        return cost.resources

    def component(self) -> RunningSum:
        return RunningSum(self)


class RunningSum(ConfiguredComponent[RunningSumConfig]):
    """Component that adds each beat of a map to its channels' sums, which a memory stores, for global pooling.

    All other folds follow before the same fold again, so a sum is written before it is read. A single fold has a
    register.

    Parameters
    ----------
    config : RunningSumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `WholeMap`.
    o : Out(stream, always ready)
        ``Tn`` sums, ``[lane][0]``, for each fold, once per frame.

    Latency and throughput
        One step per cycle. Sums leave ``config.latency`` cycles after the fold's last step. Never stalls.
    """

    def __init__(self, config: RunningSumConfig):
        results = channels_layout(config.result, config.lanes, 1)
        super().__init__(config, pipeline_ports(config.window.step_layout, results))

    def elaborate(self, platform):
        m = Module()
        config, source = self.config, self.config.window.input
        step, width, wait = self.i.payload, config.result.width, 1 + config.memory_cycles
        valid = delayed(m, "valid", self.i.valid, wait, reset_less=False)
        first, last, fold = (
            delayed(m, f"step_{name}", getattr(step, name), wait) for name in ("first", "last", "fold")
        )
        totals = Signal(config.sum_bits, name="fold_sums", reset_less=True)
        before: Value = totals
        if source.folds > 1:
            m.submodules.sums = sums = ram(config.device, config.sum_bits, source.folds)
            write, read = write_port(sums), read_port(sums)
            m.d.comb += [read.addr.eq(step.fold), write.addr.eq(fold), write.en.eq(valid)]
            before = delayed(m, "previous_sums", read.data, config.memory_cycles)
        for lane in range(config.lanes):
            addends: list[Value] = []
            for index, pixels in enumerate(config.pixel_spans):
                name = f"pixel_sum_{lane}" if len(config.pixel_spans) == 1 else f"pixel_sum_{lane}_{index}"
                added = Signal(signed(config.span_bits), name=name, reset_less=True)
                m.d.sync += added.eq(sum(step.operand[lane][pixel] for pixel in pixels))
                addends.append(delayed(m, name, added, config.memory_cycles))
            lanes = slice(lane * width, (lane + 1) * width)
            total = Signal(config.result, name=f"sum_{lane}")
            m.d.comb += total.eq(Mux(first, 0, before[lanes].as_signed()) + sum(addends[1:], addends[0]))
            with m.If(valid):
                m.d.sync += totals[lanes].eq(total)
            if source.folds > 1:
                m.d.comb += write.data[lanes].eq(total)
            m.d.comb += self.o.payload[lane][0].eq(totals[lanes].as_signed())
        m.d.sync += self.o.valid.eq(valid & last)
        return m


@dataclass(frozen=True, kw_only=True)
class WholeMapLayerConfig(JoinLayerConfig):
    """Configuration of a global pooling layer, which sums a whole map, with a `WholeMapConfig` as its ``window``.

    Parameters and errors are as in `LayerConfig`.
    """
