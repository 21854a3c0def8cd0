"""Addition of each channel's bias to its accumulators, for layers that output accumulators without requantisation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Shape, signed

from hwgen.errors import ConfigError
from hwgen.gateware.channels import Beats, ChannelsComponent, ChannelsConfig, beat_values
from hwgen.gateware.cost import (
    Cost,
    Resources,
    constant_adder_luts,
)
from hwgen.gateware.lookup import delayed, registered
from hwgen.gateware.rounding import signed_bits


@dataclass(frozen=True, kw_only=True)
class AddBiasConfig(ChannelsConfig):
    """Configuration of the adder of biases to accumulators, for layers that output raw accumulators (ConvInteger).

    Parameters
    ----------
    lanes : int
        Number of channels per beat.
    accumulator_bits : int
        Width of an accumulator, signed.
    bias : tuple of int
        Bias of each channel, with the correction for the input's zero point.
    beats : tuple of tuple of int
        Channels of each beat of a pixel, lane 0 first.
    pixels : int
        Number of neighbouring pixels per beat. The values of a channel for these pixels are neighbours.
    bits : int
        Width of the output, signed. The sum wraps, as ONNX's int32 does.

    Raises
    ------
    ConfigError
        If a width is not positive, or the beats do not contain every channel once.
    """

    bits: int = 32

    #: Number of DSP slices: none, as LUTs add the biases.
    multipliers = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")

    @property
    def output(self) -> Shape:
        """Amaranth `Shape` of one output: the signed sum of accumulator and bias, wrapped to ``bits`` bits."""
        return signed(self.bits)

    @property
    def latency(self) -> int:
        """Cycles from a beat of accumulators at port ``i`` to the beat of their biased sums at port ``o``."""
        return 2 + self.tables_in_block_ram

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        return {"bias": self.table(self.bias), "present": self.present}

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        sums = self.lanes * self.pixels
        if self.needs_beat_index:
            cost.counter(len(self.beats), luts=1)
        # Output bits above the width of the sum are copies of its sign, and need one register.
        total = max(signed_bits(*self.bias), self.accumulator_bits) + 1
        cost.ff += self.latency + sums * (self.accumulator_bits + min(total, self.bits))
        cost.ff += sums * self.accumulator_bits * self.tables_in_block_ram
        for column, present in zip(self.tables["bias"], self.present, strict=True):
            # A lane that some beats leave out is masked, in the LUTs of the adder.
            varying = len({*column}) > 1 or len({*present}) > 1
            bits = self.accumulator_bits
            cost.lut += self.pixels * (bits if varying else constant_adder_luts(column[0], bits))
        for name in ("bias", "present"):
            self._add_table_cost(cost, name)
        return cost.resources

    def component(self) -> AddBias:
        return AddBias(self)


class AddBias(ChannelsComponent[AddBiasConfig]):
    """Component that adds each channel's bias to the accumulators of a convolution.

    Parameters
    ----------
    config : AddBiasConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Sums. Lanes without a channel are 0.

    Latency and throughput
        One beat per cycle, with a latency of ``config.latency`` cycles. Never stalls. The first beat after a reset is
        the first beat of a pixel.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        beats = Beats(m, config, self.i.valid)
        cycle = config.latency - 1
        biases, present = beats.read("bias", cycle), beats.read("present", cycle)
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        for index, (value, output) in enumerate(zip(beat_values(self.i), beat_values(self.o), strict=True)):
            accumulator = delayed(m, f"accumulator_{index}", value, cycle)
            total = registered(m, f"sum_{index}", Mux(present[index], accumulator + biases[index], 0), config.output)
            m.d.comb += output.eq(total)
        return m
