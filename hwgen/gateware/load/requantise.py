"""Requantisation with constants that are loaded: those of each channel from memories, those of a layer from registers.

A lane is a `hwgen.gateware.arithmetic.scale.Scale` and a `Bound`, which know nothing of their numbers in advance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from amaranth import Module, Mux, Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import BIAS_BITS, PLACES, SHIFT_BITS, ScaleConfig
from hwgen.gateware.channels import Beats, ChannelsConfig
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.load.store import Store, stored, writes_of
from hwgen.gateware.lookup import delayed
from hwgen.gateware.rounding import SIGNIFICAND_BITS, scale_sum
from hwgen.gateware.stream import channels_layout, pipeline_ports

#: Bits of an output at most, and what is subtracted of unsigned ones, as a lane's are signed.
OUTPUT_BITS = 8
_HALF = 1 << (OUTPUT_BITS - 1)
#: Shifts are at most this; more make 0 of everything just as well, as sums and significands have 57 bits together.
MOST_SHIFT = (1 << SHIFT_BITS) - 1
#: Accumulators that `Scale` takes have at most so many bits.
MOST_BITS = 32


@dataclass(frozen=True, kw_only=True)
class LoadedRequantiseConfig(ChannelsConfig):
    """What `RequantiseConfig` does with ``float32``, for any biases, scales, zero point and bounds.

    Parameters
    ----------
    lanes, accumulator_bits, beats, pixels, tables_in
        As of `RequantiseConfig`; ``accumulator_bits`` and ``fraction`` are at most 32 together.
    bias, significand, shift : tuple of int
        By channel, before others are loaded: 32 bits signed; from ``2**23`` to ``2**24 - 1``; 0 to 255.
    zero_point, low, high : int
        Of the output, before others are loaded.
    bits, signed : int, bool
        Shape of an output; at most 8 bits.
    fraction : int
        Bits of the bias below an accumulator's lowest one.

    Raises
    ------
    ConfigError
        If a number is out of range, or the tuples don't fit each other.
    """

    significand: tuple[int, ...]
    shift: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    bits: int
    signed: bool
    fraction: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bits <= OUTPUT_BITS:
            raise ConfigError(f"bits must be from 1 to {OUTPUT_BITS} where constants are loaded, not {self.bits!r}")
        if self.fraction < 0 or self.accumulator_bits + self.fraction > MOST_BITS:
            raise ConfigError(
                f"accumulator_bits and fraction must be at most {MOST_BITS} together where constants are loaded, not "
                f"{self.accumulator_bits!r} and {self.fraction!r}"
            )
        half, ones = 1 << (BIAS_BITS - 1), 1 << SIGNIFICAND_BITS
        least = -(1 << (self.bits - 1)) if self.signed else 0
        for name, low, high in (
            ("bias", -half, half - 1),
            ("significand", ones >> 1, ones - 1),
            ("shift", 0, MOST_SHIFT),
        ):
            values = getattr(self, name)
            if len(values) != self.channels:
                raise ConfigError(f"{name} must have one entry for each of {self.channels} channels, not {len(values)}")
            if wrong := [value for value in values if not low <= value <= high]:
                raise ConfigError(f"{name} must be from {low} to {high} where constants are loaded, not {wrong[0]!r}")
        for name in ("zero_point", "low", "high"):
            if not least <= getattr(self, name) < least + (1 << self.bits):
                raise ConfigError(
                    f"{name} must be between {least} and {least + (1 << self.bits) - 1}, not {getattr(self, name)!r}"
                )

    @property
    def output(self) -> Shape:
        return Shape(self.bits, self.signed)

    @property
    def tables(self) -> dict[str, list[tuple[int, ...]]]:
        return {"present": self.present}

    def compute(self, channel: int, accumulator: int) -> int:
        """The output for one accumulator, as defined."""
        total = (accumulator << self.fraction) + self.bias[channel]
        scaled = scale_sum(total, self.significand[channel], self.shift[channel], True)
        return min(max(scaled + self.zero_point, self.low), self.high)

    # What is loaded.

    @property
    def stores(self) -> tuple[Store, ...]:
        depth = len(self.beats)
        return (
            Store(name="bias", width=BIAS_BITS * self.lanes, depth=depth),
            Store(name="scale", width=(SIGNIFICAND_BITS + SHIFT_BITS) * self.lanes, depth=depth),
            Store(name="rule", width=3 * OUTPUT_BITS, depth=1),
        )

    @cached_property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Of each of ``stores``."""
        scales = [
            significand | shift << SIGNIFICAND_BITS
            for significand, shift in zip(self.significand, self.shift, strict=True)
        ]
        words = []
        for values, bits in ((self.bias, BIAS_BITS), (scales, SIGNIFICAND_BITS + SHIFT_BITS)):
            lanes = self.table(values)
            words.append(
                tuple(
                    sum((lane[beat] % (1 << bits)) << (bits * number) for number, lane in enumerate(lanes))
                    for beat in range(len(self.beats))
                )
            )
        offset = 0 if self.signed else _HALF
        rule = [(value - offset) % (1 << OUTPUT_BITS) for value in (self.zero_point, self.low, self.high)]
        return (*words, (sum(value << (OUTPUT_BITS * number) for number, value in enumerate(rule)),))

    @property
    def blank(self) -> LoadedRequantiseConfig:
        """The same hardware with contents that say nothing."""
        ones = (1 << (SIGNIFICAND_BITS - 1),) * self.channels
        zeros = (0,) * self.channels
        return replace(self, bias=zeros, significand=ones, shift=zeros, zero_point=0, low=0, high=0)

    # Cost.

    @property
    def scale(self) -> ScaleConfig:
        return ScaleConfig(sum_bits=self.accumulator_bits + self.fraction)

    @property
    def bound(self) -> BoundConfig:
        return BoundConfig(bits=PLACES + 1)

    @property
    def sum_cycle(self) -> int:
        """Cycles from a beat to where its sums meet their bias."""
        return 1 + self.tables_in_block_ram

    @property
    def latency(self) -> int:
        """Cycles from a beat to its outputs."""
        return self.sum_cycle + self.scale.latency + self.bound.latency

    @property
    def multipliers(self) -> int:
        """DSP slices: one a lane and pixel."""
        return self.lanes * self.pixels

    @cached_property
    def resources(self) -> Resources:
        cost, sums = Cost(), self.lanes * self.pixels
        beat, late = counter_bits(len(self.beats)), self.tables_in_block_ram
        for store in self.stores:
            if store.depth == 1:
                cost.ff += store.width
            else:
                cost.ram(store.width, store.depth, self.tables_in or None)
                cost.ff += store.width * late
        cost.ff += beat + self.latency + sums * self.accumulator_bits * self.sum_cycle
        cost.lut += beat
        cost.delay(beat, self.scale.scale_cycle)
        if self._count_table(cost, "present"):
            cost.delay(beat, self.latency - self.sum_cycle - self.scale.scale_cycle)
            cost.lut += sums * self.bits
        # What no bit of an output looks at, and registers that a lane shares with its tables.
        unused = OUTPUT_BITS - self.bits
        cost.ff -= sums * (4 + unused)
        cost.lut -= sums * (7 + 3 * unused)
        lanes = sum([self.scale.resources + self.bound.resources] * sums, Resources())
        return cost.resources + lanes

    def component(self) -> LoadedRequantise:
        return LoadedRequantise(self)


class LoadedRequantise(wiring.Component):
    """Scales accumulators, rounds to nearest even, adds the zero point, saturates; by constants that are loaded.

    Parameters
    ----------
    config : LoadedRequantiseConfig

    Members
    -------
    i : In(stream, always ready)
        ``lanes`` accumulators of ``pixels`` pixels, ``[lane][pixel]``.
    o : Out(stream, always ready)
        Their outputs; lanes without a channel are 0.
    writes : In
        By name of each of ``config.stores``, what writes it; none may be written that beats in flight need.

    Latency and throughput
        A beat a cycle; it leaves ``config.latency`` cycles after it came, and never stalls. The first beat after
        reset is a pixel's first.

    Number range
        Every accumulator of ``accumulator_bits`` bits gives the result that ``config.compute`` defines, with whatever
        is loaded.
    """

    def __init__(self, config: LoadedRequantiseConfig):
        self._config = config
        shapes = (config.accumulator, config.output)
        ports = pipeline_ports(*(channels_layout(shape, config.lanes, config.pixels) for shape in shapes))
        super().__init__({**ports, "writes": In(writes_of(config.stores))})

    @property
    def config(self) -> LoadedRequantiseConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        beats = Beats(m, config, self.i.valid)
        cycle, late = config.sum_cycle, int(config.tables_in_block_ram)
        words = []
        numbers = [beats.number(at) for at in (0, config.scale.scale_cycle, 0)]
        for store, contents, number in zip(config.stores, config.stored_contents, numbers, strict=True):
            write = getattr(self.writes, store.name)
            word = stored(m, store, contents, write, number, where=config.tables_in)
            words.append(delayed(m, f"{store.name}_delayed", word, late) if store.depth > 1 else word)
        biases, scales, rule = words
        present = beats.read("present", config.latency)
        low, high, zero_point = (rule.word_select(number, OUTPUT_BITS).as_signed() for number in (1, 2, 0))
        for lane in range(config.lanes):
            scale = scales.word_select(lane, SIGNIFICAND_BITS + SHIFT_BITS)
            for pixel in range(config.pixels):
                number = lane * config.pixels + pixel
                m.submodules[f"scale_{number}"] = part = config.scale.component()
                m.submodules[f"bound_{number}"] = bound = config.bound.component()
                value = delayed(m, f"accumulator_{number}", self.i.payload[lane][pixel], cycle)
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
                m.d.comb += self.o.payload[lane][pixel].eq(Mux(present[number], output[: config.bits], 0))
        m.d.comb += self.o.valid.eq(beats.valid(config.latency))
        return m
