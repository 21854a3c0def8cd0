"""Gathering of each pixel's channels in any order: a pixel is collected, and read while the next pixel arrives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import delayed
from hwgen.gateware.stream import channels_layout


@dataclass(frozen=True, kw_only=True)
class SelectConfig(OneMapConfig):
    """Configuration of a gather over channels: outputs the channels ``index`` of each pixel, ``lanes`` per cycle.

    With index 3, 0, 2, 2 and two lanes, a pixel of two beats ``a b``, ``c d`` becomes ``d a``, ``c c``. If beats hold
    several pixels, each channel is selected for all of them.

    Parameters
    ----------
    input : BeatFormat
        Format of the input.
    index : tuple of int
        Input channel of each output channel.
    lanes : int
        Number of channels per step, ``Tm``.

    Raises
    ------
    ConfigError
        If there is no index, an index is not a channel of the input, or there are more lanes than indices.
    """

    index: tuple[int, ...]
    lanes: int

    #: Cycles from a step, the selection of values for output, to the values on port ``o``.
    latency = 1
    #: Minimum cycles from the transfer of a pixel's last beat to the first step that outputs channels of the pixel.
    write_delay = 1

    def __post_init__(self) -> None:
        if not self.index or not all(0 <= channel < self.input.channels for channel in self.index):
            raise ConfigError(f"index must list channels from 0 to {self.input.channels - 1}, not {self.index!r}")
        if not 1 <= self.lanes <= len(self.index):
            raise ConfigError(f"lanes must be 1 to the {len(self.index)} channels of the output, not {self.lanes!r}")

    @property
    def step_channels(self) -> tuple[range, ...]:
        """Output channels in each cycle of an output pixel, as a tuple of ranges."""
        count = len(self.index)
        return tuple(range(first, min(first + self.lanes, count)) for first in range(0, count, self.lanes))

    @property
    def kept(self) -> tuple[int, ...]:
        """Tuple of indices of the input channels that are output at least once, ascending; the others are dropped."""
        return tuple(sorted(set(self.index)))

    @cached_property
    def positions(self) -> dict[int, tuple[int, int]]:
        """Dictionary from each input channel to its pair (beat, lane) in a pixel of the input stream."""
        folds = self.input.fold_channels
        return {channel: (fold, lane) for fold, channels in enumerate(folds) for lane, channel in enumerate(channels)}

    def sources(self, lane: int) -> tuple[int, ...]:
        """Return a tuple of indices of the input channels that an output lane sends, one per cycle of an output pixel.

        A last cycle without a channel in this lane is missing.
        """
        return tuple(self.index[step[lane]] for step in self.step_channels if lane < len(step))

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of one cycle's output: the selected values ``operand[lane][pixel]``."""
        return data.StructLayout({"operand": channels_layout(self.input.shape, self.lanes, self.pixels)})

    @cached_property
    def resources(self) -> Resources:
        cost, bits = Cost(self.device), self.input.bits * self.pixels
        early = sum(self.positions[channel][0] < self.input.folds - 1 for channel in self.kept)
        cost.counter(self.input.folds, self.output_folds)
        cost.ff += (len(self.kept) + early + self.lanes) * bits + 2
        num_sources = [len(set(self.sources(lane))) for lane in range(self.lanes)]
        # The factor for many sources is measured with Yosys.
        cost.lut += (
            bits * sum(cost.logic.mux_luts(count) if count <= 4 else 0.42 * count for count in num_sources)
            + self.input.folds / 2
            + 4
        )
        return cost.resources

    def component(self) -> SelectUnit:
        return SelectUnit(self)


class SelectUnit(ConfiguredComponent[SelectConfig]):
    """Component that collects the channels of a pixel in registers, and outputs them in another order.

    The last beat of a pixel is accepted after all steps of the previous pixel.

    Parameters
    ----------
    config : SelectConfig

    Members
    -------
    i, room, fold, start, o
        As in `Join` with one input.

    Latency and throughput
        A pixel takes as many cycles as it has beats or steps, whichever is more. Its first step follows at least one
        cycle after its last beat. Its last beat is accepted at the earliest in the cycle of the last step of the
        previous pixel.
    """

    def __init__(self, config: SelectConfig):
        super().__init__(config, walk_ports(config))

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
        for lane, index in product(range(config.lanes), range(config.pixels)):
            value = Signal(source.shape, name=f"output_{lane}_{index}", reset_less=True)
            with m.Switch(self.fold):
                for fold, channel in enumerate(config.sources(lane)):
                    with m.Case(fold):
                        m.d.sync += value.eq(pixel[channel][index])
            m.d.comb += self.o.payload.operand[lane][index].eq(value)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, config.latency, reset_less=False))
        return m

    def _elaborate_channel(self, m: Module, channel: int, beat: Signal, taken: Signal) -> list[Value]:
        """Add registers of one channel of the collected pixels; return a list of its values, one per beat pixel."""
        source = self.config.input
        fold, lane = self.config.positions[channel]
        value: Value = self.i.payload.data[lane].as_value()
        if fold < source.folds - 1:
            early = Signal(len(value), name=f"early_channel_{channel}", reset_less=True)
            with m.If(taken & (beat == fold)):
                m.d.sync += early.eq(value)
            value = early
        whole = Signal(data.ArrayLayout(source.shape, source.pixels), name=f"channel_{channel}", reset_less=True)
        with m.If(taken & (beat == source.folds - 1)):
            m.d.sync += whole.eq(value)
        return [whole[index] for index in range(source.pixels)]


@dataclass(frozen=True, kw_only=True)
class CollectLayerConfig(JoinLayerConfig):
    """Configuration of a gather layer, which collects a whole pixel's channels before any of them is output.

    Its ``window`` is a `SelectConfig`. Parameters and errors are as in `LayerConfig`.
    """

    @property
    def cycles(self) -> int:
        return max(super().cycles, self.beats_in)

    @property
    def collects(self) -> Any:
        """`SelectConfig` of the component that collects each pixel's channels for the layer."""
        return self.window
