"""Channels picked from those of a pixel, in any order: a pixel is collected, and then read while the next one comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import LOGIC, Cost, Resources, counter_bits
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import delayed
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class SelectConfig(OneMapConfig):
    """A walk over the channels ``index`` of each pixel, ``lanes`` a step.

    A pixel of 4 channels in two beats ``a b``, ``c d`` becomes ``d a``, ``c c`` with index 3, 0, 2, 2 and two lanes.
    Where beats hold several pixels, each channel is taken for all of them.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in.
    index : tuple of int
        The input channel of each output channel.
    lanes : int
        ``Tm``: channels of a step.

    Raises
    ------
    ConfigError
        If there is no index, one is no channel of the input, or there are more lanes than indices.
    """

    index: tuple[int, ...]
    lanes: int

    #: Cycles from a step being issued to its values being on ``o``.
    latency = 1
    #: Cycles from a pixel's last beat being taken to its first step.
    write_delay = 1

    def __post_init__(self) -> None:
        if not self.index or not all(0 <= channel < self.input.channels for channel in self.index):
            raise ConfigError(f"index must be of channels 0 to {self.input.channels - 1}, not {self.index!r}")
        if not 1 <= self.lanes <= len(self.index):
            raise ConfigError(f"lanes must be 1 to the {len(self.index)} channels of the output, not {self.lanes!r}")

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Channels of the output that each step of a pixel gives."""
        count = len(self.index)
        return tuple(range(first, min(first + self.lanes, count)) for first in range(0, count, self.lanes))

    @property
    def kept(self) -> tuple[int, ...]:
        """Channels of the input that any step gives."""
        return tuple(sorted(set(self.index)))

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """For each channel of the input its beat within the pixel, and its lane there."""
        folds = self.input.fold_channels
        return {channel: (fold, lane) for fold, part in enumerate(folds) for lane, channel in enumerate(part)}

    def sources(self, lane: int) -> tuple[int, ...]:
        """The input channel of a lane in each step that has one there."""
        return tuple(self.index[step[lane]] for step in self.step_channels if lane < len(step))

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``operand[lane][pixel]``."""
        return data.StructLayout({"operand": channels_layout(self.input.shape, self.lanes, self.pixels)})

    @cached_property
    def resources(self) -> Resources:
        cost, bits = Cost(), self.input.bits * self.pixels
        early = sum(self.places[channel][0] < self.input.folds - 1 for channel in self.kept)
        counters = counter_bits(self.input.folds) + counter_bits(self.output_folds)
        cost.ff += (len(self.kept) + early + self.lanes) * bits + counters + 2
        ways = [len(set(self.sources(lane))) for lane in range(self.lanes)]
        # Of many ways what Yosys makes of a register with as many sources, as measured.
        cost.lut += (
            bits * sum(LOGIC.mux_luts(way) if way <= 4 else 0.42 * way for way in ways)
            + 1.5 * counters
            + self.input.folds / 2
            + 4
        )
        return cost.resources

    def component(self) -> Select:
        return Select(self)


class Select(wiring.Component):
    """Collects a pixel's beats; the last one completes it, once all steps of the pixel before have been issued.

    Parameters
    ----------
    config : SelectConfig

    Members
    -------
    i, room, fold, start, o
        As of a `Join` with one input.

    Latency and throughput
        A pixel takes as many cycles as it has beats or steps, whichever are more. Its first step comes a cycle after
        its last beat at the earliest; that beat is taken in the cycle of the last step of the pixel before at the
        earliest.
    """

    def __init__(self, config: SelectConfig):
        self._config = config
        super().__init__(walk_ports(config))

    @property
    def config(self) -> SelectConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, source = self.config, self.config.input
        beat, full = Signal(range(source.folds), name="beat_index"), Signal(name="has_pixel")
        completes, taken, empties = beat == source.folds - 1, Signal(name="input_transfer"), Signal(name="pixel_end")
        m.d.comb += [
            self.start.eq(self.room & full),
            empties.eq(self.start & (self.fold == config.output_folds - 1)),
            self.i.ready.eq(~completes | ~full | empties),
            taken.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.start):
            m.d.sync += self.fold.eq(Mux(empties, 0, self.fold + 1))
        with m.If(taken):
            m.d.sync += beat.eq(Mux(completes, 0, beat + 1))
        with m.If(taken & completes):
            m.d.sync += full.eq(1)
        with m.Elif(empties):
            m.d.sync += full.eq(0)
        pixel = {channel: self._elaborate_channel(m, channel, beat, taken) for channel in config.kept}
        for lane, number in product(range(config.lanes), range(config.pixels)):
            value = Signal(source.shape, name=f"output_{lane}_{number}", reset_less=True)
            with m.Switch(self.fold):
                for fold, channel in enumerate(config.sources(lane)):
                    with m.Case(fold):
                        m.d.sync += value.eq(pixel[channel][number])
            m.d.comb += self.o.payload.operand[lane][number].eq(value)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m

    def _elaborate_channel(self, m: Module, channel: int, beat: Signal, taken: Signal) -> list[Value]:
        """A channel of the whole pixel, for each pixel of a beat."""
        source = self.config.input
        fold, lane = self.config.places[channel]
        value: Value = self.i.payload.data[lane].as_value()
        if fold < source.folds - 1:
            early = Signal(len(value), name=f"early_channel_{channel}", reset_less=True)
            with m.If(taken & (beat == fold)):
                m.d.sync += early.eq(value)
            value = early
        whole = Signal(data.ArrayLayout(source.shape, source.pixels), name=f"channel_{channel}", reset_less=True)
        with m.If(taken & (beat == source.folds - 1)):
            m.d.sync += whole.eq(value)
        return [whole[number] for number in range(source.pixels)]


@dataclass(frozen=True, kw_only=True)
class CollectLayerConfig(JoinLayerConfig):
    """The hardware of a layer that takes a pixel before it gives any of it; its ``window`` is a `SelectConfig`.

    Parameters and errors are those of `LayerConfig`.
    """

    @property
    def cycles(self) -> int:
        return max(super().cycles, self.beats_in)

    @property
    def collects(self) -> Any:
        """The walk."""
        return self.window
