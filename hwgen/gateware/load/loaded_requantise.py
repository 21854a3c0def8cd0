"""Requantisation of accumulators with biases, scales and bounds that are loaded at run time.

Memories store the constants of each channel, registers the constants of the layer. A lane is a
`hwgen.gateware.arithmetic.scale.Scale` and a `Bound`, which work with any constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from amaranth import Module, Mux
from amaranth.lib.wiring import In

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import BIAS_BITS, PLACES, SHIFT_BITS, ScaleConfig
from hwgen.gateware.channels import Beats, ChannelsComponent, ScaledChannelsConfig
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.load.loaded_memory import LoadedMemory, add_store, writes_of
from hwgen.gateware.lookup import delayed
from hwgen.gateware.rounding import SIGNIFICAND_BITS, scale_sum

#: Maximum width of a requantised output, in bits.
OUTPUT_BITS = 8
#: Half of the 8-bit range, subtracted from unsigned outputs, because the lanes compute signed outputs.
_HALF = 1 << (OUTPUT_BITS - 1)
#: Maximum right shift of a channel's scale. A product has at most 57 bits, so that larger shifts give 0 as well.
MAX_SHIFT = (1 << SHIFT_BITS) - 1
#: Maximum width of an accumulator with its fraction, in bits.
MAX_SUM_BITS = 32


@dataclass(frozen=True, kw_only=True)
class LoadedRequantiseConfig(ScaledChannelsConfig):
    """Configuration of a requantiser whose biases, scales, zero point and bounds are loaded at run time.

    It computes the function of `RequantiseConfig` with ``float32``, for any constants.

    Parameters
    ----------
    lanes, accumulator_bits, beats, pixels, tables_in
        Parameters of `RequantiseConfig`. ``accumulator_bits`` plus ``fraction`` is at most 32.
    bias, significand, shift : tuple of int
        Initial constants of each channel: bias, 32 bits signed; significand, ``2**23`` to ``2**24 - 1``; shift, 0 to
        255.
    zero_point, low, high : int
        Initial zero point, minimum and maximum of the output.
    bits, signed : int, bool
        Width of an output, at most 8 bits, and its signedness.
    fraction : int
        Number of fractional bits of the bias, below the lowest bit of an accumulator.

    Raises
    ------
    ConfigError
        If a parameter is out of range, or the tuples have different lengths.
    """

    fraction: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bits <= OUTPUT_BITS:
            raise ConfigError(f"bits must be from 1 to {OUTPUT_BITS} where constants are loaded, not {self.bits!r}")
        if self.fraction < 0 or self.accumulator_bits + self.fraction > MAX_SUM_BITS:
            raise ConfigError(
                f"accumulator_bits and fraction must be at most {MAX_SUM_BITS} together where constants are loaded, "
                f"not {self.accumulator_bits!r} and {self.fraction!r}"
            )
        half, ones = 1 << (BIAS_BITS - 1), 1 << SIGNIFICAND_BITS
        for name, low, high in (
            ("bias", -half, half - 1),
            ("significand", ones >> 1, ones - 1),
            ("shift", 0, MAX_SHIFT),
        ):
            values = getattr(self, name)
            if len(values) != self.channels:
                raise ConfigError(f"{name} must have one entry for each of {self.channels} channels, not {len(values)}")
            if wrong := [value for value in values if not low <= value <= high]:
                raise ConfigError(f"{name} must be from {low} to {high} where constants are loaded, not {wrong[0]!r}")
        self._check_outputs()

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        return {"present": self.present}

    def compute(self, channel: int, accumulator: int) -> int:
        """Return the requantised output for one accumulator value of a channel, as a model of the circuit."""
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], True)
        return min(max(scaled + self.zero_point, self.low), self.high)

    # Loaded memories.

    @property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Tuple of each `LoadedMemory`: all channels' biases and scales, and one word of layer constants."""
        depth, where, device = len(self.beats), self.tables_in, self.device
        scale_bits = SIGNIFICAND_BITS + SHIFT_BITS
        return (
            LoadedMemory(device=device, name="bias", width=BIAS_BITS * self.lanes, depth=depth, where=where),
            LoadedMemory(device=device, name="scale", width=scale_bits * self.lanes, depth=depth, where=where),
            LoadedMemory(device=device, name="rule", width=3 * OUTPUT_BITS, depth=1),
        )

    @cached_property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Tuple of initial words (integers) of each memory of ``stores``, before anything is loaded."""
        scales = [
            significand | shift << SIGNIFICAND_BITS
            for significand, shift in zip(self.significand, self.shift, strict=True)
        ]
        words = []
        for values, bits in ((self.bias, BIAS_BITS), (scales, SIGNIFICAND_BITS + SHIFT_BITS)):
            lanes = self.table(values)
            words.append(
                tuple(
                    sum((values[beat] % (1 << bits)) << (bits * lane) for lane, values in enumerate(lanes))
                    for beat in range(len(self.beats))
                )
            )
        offset = 0 if self.signed else _HALF
        rule = [(value - offset) % (1 << OUTPUT_BITS) for value in (self.zero_point, self.low, self.high)]
        return (*words, (sum(value << (OUTPUT_BITS * index) for index, value in enumerate(rule)),))

    @property
    def blank(self) -> LoadedRequantiseConfig:
        """`LoadedRequantiseConfig` with placeholder constants, equal for circuits that differ in contents only."""
        ones = (1 << (SIGNIFICAND_BITS - 1),) * self.channels
        zeros = (0,) * self.channels
        return replace(self, bias=zeros, significand=ones, shift=zeros, zero_point=0, low=0, high=0)

    # Cost.

    @property
    def scale(self) -> ScaleConfig:
        """`ScaleConfig` of each lane's `ScaleUnit`, which adds the bias to an accumulator and scales the sum."""
        return ScaleConfig(device=self.device, sum_bits=self.accumulator_bits + self.fraction)

    @property
    def bound(self) -> BoundConfig:
        """`BoundConfig` of each lane's `Bound`, which adds the output's zero point and saturates."""
        return BoundConfig(device=self.device, bits=PLACES + 1)

    @property
    def sum_cycle(self) -> int:
        """Number of cycles from an input beat of accumulators until each lane's `ScaleUnit` reads its accumulator."""
        return 1 + self.tables_in_block_ram

    @property
    def latency(self) -> int:
        """Number of cycles from an input beat of accumulators to its requantised outputs."""
        return self.sum_cycle + self.scale.latency + self.bound.latency

    @property
    def multipliers(self) -> int:
        """Number of DSP slices in the requantiser: one per lane (channel) and pixel of a beat."""
        return self.lanes * self.pixels

    @cached_property
    def resources(self) -> Resources:
        cost, sums = Cost(self.device), self.lanes * self.pixels
        beat, late = counter_bits(len(self.beats)), self.tables_in_block_ram
        for store in self.stores:
            if store.depth == 1:
                cost.ff += store.width
            else:
                cost.ram(store.width, store.depth, store.where)
                cost.ff += store.width * late
        cost.counter(len(self.beats), luts=1)
        cost.ff += self.latency + sums * self.accumulator_bits * self.sum_cycle
        cost.delay(beat, self.scale.scale_cycle)
        if self._add_table_cost(cost, "present"):
            cost.delay(beat, self.latency - self.sum_cycle - self.scale.scale_cycle)
            cost.lut += sums * self.bits
        # Logic of unused output bits is removed, and a lane shares registers with its tables.
        unused = OUTPUT_BITS - self.bits
        cost.ff -= sums * (4 + unused)
        cost.lut -= sums * (7 + 3 * unused)
        lanes = sum([self.scale.resources + self.bound.resources] * sums, Resources())
        return cost.resources + lanes

    def component(self) -> LoadedRequantise:
        return LoadedRequantise(self)


class LoadedRequantise(ChannelsComponent[LoadedRequantiseConfig]):
    """Requantiser with loaded constants: scales accumulators, rounds to nearest even, adds the zero point, saturates.

    Parameters
    ----------
    config : LoadedRequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Outputs. Lanes without a channel are 0.
    writes : In
        Write ports of ``config.stores``, by name. Words that beats in flight use must not be written.

    Latency and throughput
        One beat per cycle. A beat leaves ``config.latency`` cycles after its arrival. Never stalls. The first beat
        after reset is the first beat of a pixel.

    Number range
        Every accumulator of ``accumulator_bits`` bits gives the result that ``config.compute`` defines, with whatever
        is loaded.
    """

    def __init__(self, config: LoadedRequantiseConfig):
        super().__init__(config, writes=In(writes_of(config.stores)))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        beats = Beats(m, config, self.i.valid)
        cycle, output_register = config.sum_cycle, int(config.tables_in_block_ram)
        words = []
        addresses = [beats.beat_index(at) for at in (0, config.scale.scale_cycle, 0)]
        for store, contents, address in zip(config.stores, config.stored_contents, addresses, strict=True):
            write = getattr(self.writes, store.name)
            word = add_store(m, store, contents, write, address)
            words.append(delayed(m, f"{store.name}_delayed", word, output_register) if store.depth > 1 else word)
        biases, scales, rule = words
        present = beats.read("present", config.latency)
        low, high, zero_point = (rule.word_select(index, OUTPUT_BITS).as_signed() for index in (1, 2, 0))
        for lane in range(config.lanes):
            scale = scales.word_select(lane, SIGNIFICAND_BITS + SHIFT_BITS)
            for pixel in range(config.pixels):
                index = lane * config.pixels + pixel
                m.submodules[f"scale_{index}"] = part = config.scale.component()
                m.submodules[f"bound_{index}"] = bound = config.bound.component()
                value = delayed(m, f"accumulator_{index}", self.i.payload[lane][pixel], cycle)
                m.d.comb += [
                    part.sum.eq(value << config.fraction if config.fraction else value),
                    part.bias.eq(biases.word_select(lane, BIAS_BITS).as_signed()),
                    part.significand.eq(scale[:SIGNIFICAND_BITS]),
                    part.shift.eq(scale[SIGNIFICAND_BITS:]),
                    bound.whole.eq(part.whole),
                    bound.carry.eq(part.carry),
                    bound.zero_point.eq(zero_point),
                    bound.low.eq(low),
                    bound.high.eq(high),
                ]
                output = bound.o if config.signed else bound.o.as_unsigned() ^ _HALF
                m.d.comb += self.o.payload[lane][pixel].eq(Mux(present[index], output[: config.bits], 0))
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        return m
