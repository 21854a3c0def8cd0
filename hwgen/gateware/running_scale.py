"""The running sum of local response normalisation: over the channels around each one, added up as ONNX Runtime does.

Channels of a pixel come one after the other. From one to the next a term enters the window and another one leaves it.
Where float32 rounds these sums, each of the two is an addition of its own, and the next channel waits for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits, varying_columns
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import by_bits, delayed, delayed_fast, look_up
from hwgen.gateware.naming import named
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.gateware.stream import at_pixel, channels_layout

#: Sums of more lengths than these take a cycle more to be rounded.
_QUICK = 4


@dataclass(frozen=True, kw_only=True)
class RunningScaleConfig(OneMapConfig):
    """A walk that gives each value with the sum of the terms around it: ``start + sum(terms)`` over ``size`` channels.

    The terms are non-negative integers. Sums of more than 24 bits are rounded to 24 significant bits after each
    addition, and after each subtraction, ties to even; so they depend on all channels before. Those of a pixel begin at
    ``start``, to which the terms of the channels behind the first one are added in order.

    Parameters
    ----------
    input : BeatFormat
        The stream that comes in, a channel a beat.
    terms : tuple of int
        For each value, from the least to the greatest.
    size : int
        Channels of a window: as many before its middle as behind it.
    start : int
        The sum of no terms.
    least, most : int
        The least and the greatest sum on the way, after rounding.

    Raises
    ------
    ConfigError
        If beats hold several channels, there is not a term for each value, the size is even, ``start`` lies not between
        the ends, or some sums are rounded and others have at most 24 bits.
    """

    terms: tuple[int, ...]
    size: int
    start: int
    least: int
    most: int

    def __post_init__(self) -> None:
        if self.input.lanes != 1:
            raise ConfigError(f"input must have a channel a beat, not {self.input.lanes!r}")
        if len(self.terms) != 1 << self.input.bits or min(self.terms) < 0:
            raise ConfigError(f"terms must be {1 << self.input.bits} integers from 0 on, one for each value")
        if self.size < 1 or self.size % 2 == 0:
            raise ConfigError(f"size must be odd and positive, not {self.size!r}")
        if not 0 <= self.least <= self.start <= self.most:
            raise ConfigError(f"start must be from {self.least!r} to {self.most!r}, not {self.start!r}")
        if self.rounds and self.least.bit_length() <= SIGNIFICAND_BITS:
            raise ConfigError(f"least must have more than {SIGNIFICAND_BITS} bits as most has, not {self.least!r}")

    @property
    def rounds(self) -> bool:
        """Whether sums are rounded."""
        return self.most.bit_length() > SIGNIFICAND_BITS

    @property
    def half(self) -> int:
        """Channels of a window before its middle, and behind it."""
        return self.size // 2

    @property
    def ahead(self) -> int:
        """Channels that are taken before the first one is given."""
        return min(self.half, self.input.channels - 1)

    @property
    def add_cycles(self) -> int:
        """Cycles of an addition, and of a subtraction, whose sum is rounded."""
        return 1 if len(self.gone) <= _QUICK else 2

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Cycles from a channel to the next."""
        return 2 * self.add_cycles if self.rounds else 1

    @property
    def latency(self) -> int:
        """Cycles from the last of a step's cycles to its values being on ``o``."""
        return 6 if self.rounds else 5

    @property
    def window_cycles(self) -> int:
        """Cycles of a group of pixels: no channel is taken while the last ones are given."""
        return (self.input.channels + self.ahead) * self.steps

    @property
    def gone(self) -> tuple[int, ...]:
        """Bits that go when a sum is rounded, by its length: from the least sum's to the greatest one's."""
        return tuple(length - SIGNIFICAND_BITS for length in range(self.least.bit_length(), self.most.bit_length() + 1))

    @property
    def sum_bits(self) -> int:
        """Bits of a sum that half of a unit has been added to."""
        return (self.most + (1 << self.gone[-1] - 1)).bit_length() if self.rounds else max(self.most.bit_length(), 1)

    @property
    def scale_bits(self) -> int:
        """Bits of a sum as it is given; none has a 1 in all of them."""
        return (self.given(self.most) + 1).bit_length()

    def given(self, total: int) -> int:
        """How a sum is given: as it is, or where sums are rounded in the way of float32.

        That is the 23 bits below its highest one, and above them by how many bits it is longer than the least sum.
        """
        if not self.rounds:
            return total
        below = SIGNIFICAND_BITS - 1
        longer = total.bit_length() - self.least.bit_length()
        return longer << below | total >> total.bit_length() - SIGNIFICAND_BITS & (1 << below) - 1

    @property
    def step_layout(self) -> data.StructLayout:
        """One step: ``operand[lane][pixel]`` of one lane, and a ``scale`` for each."""
        values = channels_layout(self.input.shape, 1, self.pixels)
        return data.StructLayout({"operand": values, "scale": channels_layout(self.scale_bits, 1, self.pixels)})

    @property
    def words(self) -> list[int]:
        """The table of the terms, by the values' bits."""
        return by_bits(self.terms, signed=self.input.signed)

    @cached_property
    def resources(self) -> Resources:
        cost, one, bits = Cost(), Cost(), max(self.terms).bit_length()
        one.rom(varying_columns(self.words, bits), len(self.words), bits, block=False)
        one.delay(bits, self.size)
        one.ff += 2 * bits
        one.lut += 2 * bits
        one.ff += self.input.bits * (1 + self.ahead)
        one.delay(self.input.bits, self.latency + self.steps - 2)
        if self.rounds:
            count = len(self.gone)
            one.ff += (2 * count + self.add_cycles - 1) * self.sum_bits + self.scale_bits
            one.lut += 2.5 * count * self.sum_bits + self.scale_bits * count / 2
        else:
            one.ff += self.sum_bits + bits + 1
            one.lut += bits + 1 + self.sum_bits
        cost.ff, cost.lut = one.ff * self.pixels, one.lut * self.pixels
        count, folds = counter_bits(self.input.channels + self.ahead), counter_bits(self.input.channels)
        wait = counter_bits(self.steps)
        cost.ff += count + folds + wait + 2 + 3 + self.latency + self.steps
        cost.lut += 1.5 * (count + folds + wait) + 8
        return cost.resources

    def component(self) -> RunningScale:
        return RunningScale(self)


class RunningScale(wiring.Component):
    """Takes channels, and gives each one as soon as its window is complete.

    Parameters
    ----------
    config : RunningScaleConfig

    Members
    -------
    i, room, fold, start, o
        As of a `Join` with one input.

    Latency and throughput
        A channel is taken, or given, or both, every ``config.steps`` cycles. Channel ``c`` is given when channel
        ``c + config.ahead`` is taken; the last ``config.ahead`` ones of a pixel follow before the next pixel's first
        is taken. Values are on ``o`` ``config.steps - 1 + config.latency`` cycles later.
    """

    def __init__(self, config: RunningScaleConfig):
        self._config = config
        super().__init__(walk_ports(config))

    @property
    def config(self) -> RunningScaleConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        number = Signal(range(config.input.channels + config.ahead), name="window_move_index")
        takes, gives = Signal(name="is_taking", init=1), Signal(name="is_giving", init=config.ahead == 0)
        moves = self._elaborate_control(m, number, takes, gives)
        enters = delayed(m, "term_enters", takes, 2)
        leaves = delayed(m, "term_leaves", number >= config.size, 2)
        first = delayed_fast(m, "is_first_channel", number == 0, 4)
        pulses: list[Value] = [moves]
        while len(pulses) < config.steps + config.latency:
            pulses.append(delayed(m, f"window_move_{len(pulses)}", pulses[-1], 1, reset_less=False))
        for pixel in range(config.pixels):
            name = at_pixel("sum", pixel, config.pixels)
            value = self._middle(m, name, moves, self.i.payload.data[0][pixel])
            entering, leaving = self._terms(m, name, pulses[2], value[0], enters, leaves)
            adds = self._rounded if config.rounds else self._exact
            m.d.comb += [
                self.o.payload.operand[0][pixel].eq(value[1]),
                self.o.payload.scale[0][pixel].eq(adds(m, name, pulses, first, entering, leaving)),
            ]
        whole = config.steps - 1 + config.latency
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, whole, reset_less=False))
        return m

    def _elaborate_control(self, m: Module, number: Signal, takes: Signal, gives: Signal) -> Signal:
        """Whether the window moves on by a channel; ``number`` counts how often it has in its pixel."""
        config, channels = self.config, self.config.input.channels
        moves, rests = Signal(name="window_move"), Signal(range(config.steps), name="wait_cycles")
        last = named(number == channels + config.ahead - 1, "is_last_step")
        able = named((rests == 0) & (self.room | ~gives), "can_step")
        m.d.comb += [
            self.i.ready.eq(able & takes),
            moves.eq(able & (self.i.valid | ~takes)),
            self.start.eq(moves & gives),
        ]
        with m.If(moves):
            m.d.sync += number.eq(Mux(last, 0, number + 1))
            with m.If(last):
                m.d.sync += [takes.eq(1), gives.eq(config.ahead == 0)]
            with m.Else():
                m.d.sync += [takes.eq(takes & (number != channels - 1)), gives.eq(gives | (number == config.ahead - 1))]
        if config.steps > 1:
            with m.If(moves):
                m.d.sync += rests.eq(config.steps - 1)
            with m.Elif(rests != 0):
                m.d.sync += rests.eq(rests - 1)
        with m.If(self.start):
            m.d.sync += self.fold.eq(Mux(self.fold == channels - 1, 0, self.fold + 1))
        return moves

    def _middle(self, m: Module, name: str, moves: Value, taken: Value) -> tuple[Value, Value]:
        """The value that was taken last, and that in the middle of the window when its sum is there."""
        config = self.config
        values = [taken]
        for place in range(config.ahead + 1):
            value = Signal(config.input.shape, name=f"{name}_value_{place}", reset_less=True)
            with m.If(moves):
                m.d.sync += value.eq(values[-1])
            values.append(value)
        return values[1], delayed(m, f"{name}_middle", values[-1], config.steps + config.latency - 2)

    def _terms(
        self, m: Module, name: str, moved: Value, value: Value, enters: Value, leaves: Value
    ) -> tuple[Signal, Signal]:
        """The terms that enter and leave the window, three cycles after it has moved; 0 beyond the map."""
        config, shape = self.config, unsigned(max(max(self.config.terms).bit_length(), 1))
        found = look_up(m, f"{name}_terms", shape, config.words, value)
        before: Value = found
        for place in range(config.size):
            kept = Signal(shape, name=f"{name}_window_term_{place}", reset_less=True)
            with m.If(moved):
                m.d.sync += kept.eq(before)
            before = kept
        entering, leaving = (
            Signal(shape, name=f"{name}_{end}_term", reset_less=True) for end in ("entering", "leaving")
        )
        with m.If(moved):
            m.d.sync += [entering.eq(Mux(enters, found, 0)), leaving.eq(Mux(leaves, before, 0))]
        return entering, leaving

    def _exact(
        self, m: Module, name: str, pulses: list[Value], first: Value, entering: Signal, leaving: Signal
    ) -> Value:
        """Sums that are never rounded: a cycle for both terms."""
        config = self.config
        total = Signal(config.sum_bits, name=f"{name}_total", reset_less=True)
        difference = Signal(signed(len(entering) + 1), name=f"{name}_difference", reset_less=True)
        m.d.sync += difference.eq(entering - leaving)
        with m.If(pulses[4]):
            m.d.sync += total.eq(Mux(first, config.start, total) + difference)
        return total

    def _rounded(
        self, m: Module, name: str, pulses: list[Value], first: Value, entering: Signal, leaving: Signal
    ) -> Value:
        """First the one term, then the other; the sum is rounded after each.

        For each length that a sum may have, half of a unit of that length is added with the term. The sum's own length
        says later which of these additions counts.
        """
        config, begin = self.config, 3
        sums = [
            Signal(config.sum_bits, name=f"{name}_candidate_{place}", reset_less=True)
            for place in range(len(config.gone))
        ]
        total = delayed(m, f"{name}_total", _rounded(config, sums), config.add_cycles - 1)
        then = begin + config.add_cycles
        base = named(Mux(first & pulses[begin + 1], config.start, total), "base_sum")
        for place, (each, gone) in enumerate(zip(sums, config.gone, strict=True)):
            term = Signal(signed(config.sum_bits + 1), name=f"{name}_candidate_term_{place}", reset_less=True)
            half = 1 << gone - 1
            with m.If(pulses[begin]):
                m.d.sync += term.eq(entering + half)
            with m.If(pulses[then]):
                m.d.sync += term.eq(half - leaving)
            with m.If(pulses[begin + 1] | pulses[then + 1]):
                m.d.sync += each.eq(base + term)
        return self._as_float(m, name, total)

    def _as_float(self, m: Module, name: str, total: Value) -> Signal:
        """`RunningScaleConfig.given`, a cycle later."""
        config, below = self.config, SIGNIFICAND_BITS - 1
        given = Signal(config.scale_bits, name=f"{name}_scale", reset_less=True)
        found: Value = Const(0, config.scale_bits)
        for longer, gone in enumerate(config.gone):
            found = Mux(
                total[gone + below],
                Cat(total[gone : gone + below], Const(longer, counter_bits(len(config.gone)))),
                found,
            )
        m.d.sync += given.eq(found)
        return given


def _rounded(config: RunningScaleConfig, sums: Sequence[Value]) -> Value:
    """The sum to 24 significant bits, ties to even, of sums with half of a unit added: of each length's unit.

    The first of these tells the sum's length: a sum that half of the least unit makes longer is rounded up to that
    length in any case.
    """
    found: Value = Const(0, config.sum_bits)
    for place, (each, gone) in enumerate(zip(sums, config.gone, strict=True)):
        tie = ~each[:gone].any()
        rounded = Cat(Const(0, gone), each[gone] & ~tie, each[gone + 1 :])
        highest = gone + SIGNIFICAND_BITS - 1
        found = named(Mux(sums[0][highest:].any(), rounded, found), "rounded_sum") if place else rounded
    return found


@dataclass(frozen=True, kw_only=True)
class RunningScaleLayerConfig(JoinLayerConfig):
    """The hardware of a layer that sums up terms of channels; its ``window`` is a `RunningScaleConfig`.

    Parameters and errors are those of `LayerConfig`.
    """

    @property
    def sums(self) -> RunningScaleConfig:
        """The walk."""
        return self.window  # type: ignore[return-value]

    @property
    def window_steps(self) -> int:
        """One for each channel: the cycles in which a sum is made, and those of channels ahead, give no step."""
        return self.sums.output_folds
