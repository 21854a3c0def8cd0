"""Running sums of local response normalisation (LRN): for each channel, sum of its neighbours' table terms.

The rounding is ONNX Runtime's. Channels of a pixel arrive one after the other. From one channel to the next, one term
enters the window and one term leaves it. If sums are rounded to float32, each of the two is a separate addition, and
the next channel waits for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from hwgen.errors import ConfigError
from hwgen.frozen import frozen
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.join import JoinLayerConfig, OneMapConfig, walk_ports
from hwgen.gateware.lookup import by_bits, delayed, delayed_fast, look_up, named, registered
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.gateware.stream import at_pixel, channels_layout

#: Maximum number of different bit lengths of a running sum whose rounding takes one cycle; more lengths take two.
_MAX_ONE_CYCLE_LENGTHS = 4


@dataclass(frozen=True, kw_only=True)
class RunningScaleConfig(OneMapConfig):
    """Configuration of LRN's running sums: outputs each value with the sum of the terms of the channels around it.

    The sum is ``start + sum(terms)`` over ``size`` channels. Terms are non-negative integers. Sums of more than 24 bits
    are rounded to 24 significant bits after each addition and each subtraction, ties to even. A rounded sum therefore
    depends on all channels before. The first sum of a pixel is ``start`` plus the terms of the window's channels, in
    order.

    Parameters
    ----------
    input : BeatFormat
        Format of the input, with one channel per beat.
    terms : tuple of int
        Terms of all values, from the smallest value to the largest.
    size : int
        Number of channels of a window, odd: a middle with equally many channels before and after it.
    start : int
        Sum without terms.
    lowest, highest : int
        Smallest and largest partial sum, after rounding.

    Raises
    ------
    ConfigError
        If beats hold several channels; if some values have no term; if the size is even; if ``start`` is not between
        the bounds; or if some sums are rounded and others have at most 24 bits.
    """

    terms: tuple[int, ...]
    size: int
    start: int
    lowest: int = field(metadata=frozen("least"))
    highest: int = field(metadata=frozen("most"))

    def __post_init__(self) -> None:
        if self.input.lanes != 1:
            raise ConfigError(f"input must have one channel per beat, not {self.input.lanes!r}")
        if len(self.terms) != 1 << self.input.bits:
            raise ConfigError(f"terms must have one entry per value ({1 << self.input.bits}), not {len(self.terms)}")
        if min(self.terms) < 0:
            raise ConfigError(f"terms must be 0 or more, not {min(self.terms)}")
        if self.size < 1 or self.size % 2 == 0:
            raise ConfigError(f"size must be odd and positive, not {self.size!r}")
        if not 0 <= self.lowest <= self.start <= self.highest:
            raise ConfigError(f"start must be from {self.lowest!r} to {self.highest!r}, not {self.start!r}")
        if self.rounds and self.lowest.bit_length() <= SIGNIFICAND_BITS:
            raise ConfigError(f"lowest must have more than {SIGNIFICAND_BITS} bits as highest has, not {self.lowest!r}")

    @property
    def rounds(self) -> bool:
        """Whether LRN's running sums are rounded to float32, because they can exceed 24 bits."""
        return self.highest.bit_length() > SIGNIFICAND_BITS

    @property
    def half(self) -> int:
        """Number of channels in an LRN window before its middle channel, and after it."""
        return self.size // 2

    @property
    def ahead(self) -> int:
        """Number of channels of a pixel that are read before the first one leaves with its sum."""
        return min(self.half, self.input.channels - 1)

    @property
    def add_cycles(self) -> int:
        """Number of cycles (1 or 2) that a rounded addition to LRN's running sum takes, and a rounded subtraction."""
        return 1 if len(self.dropped_bits) <= _MAX_ONE_CYCLE_LENGTHS else 2

    @property
    def steps(self) -> int:  # type: ignore[override]
        """Number of cycles between two moves of LRN's window by one channel; more than 1 if sums are rounded."""
        return 2 * self.add_cycles if self.rounds else 1

    @property
    def latency(self) -> int:
        """Cycles from the end of a window move by one channel (``steps`` cycles) to the value and sum on ``o``."""
        return 6 if self.rounds else 5

    @property
    def window_cycles(self) -> int:
        """Number of cycles that LRN's window takes to move over all channels of ``Tp`` pixels.

        No channel is accepted while the last channels are output.
        """
        return (self.input.channels + self.ahead) * self.steps

    @property
    def dropped_bits(self) -> tuple[int, ...]:
        """Tuple of numbers of low bits that float32 rounding drops, by length of the running sum, ascending."""
        lengths = range(self.lowest.bit_length(), self.highest.bit_length() + 1)
        return tuple(length - SIGNIFICAND_BITS for length in lengths)

    @property
    def sum_bits(self) -> int:
        """Width in bits of a running sum before rounding, including half a unit of the last kept bit."""
        return (
            (self.highest + (1 << self.dropped_bits[-1] - 1)).bit_length()
            if self.rounds
            else max(self.highest.bit_length(), 1)
        )

    @property
    def scale_bits(self) -> int:
        """Width in bits of an encoded running sum, as it is output; no encoded sum has all of these bits set."""
        return (self.encode(self.highest) + 1).bit_length()

    def encode(self, total: int) -> int:
        """Return a running sum as the integer that is output: unchanged, or its float bits if sums are rounded.

        The number consists of the 23 bits below the sum's highest bit. Above them is its exponent: the difference
        between the lengths of the sum and of the lowest sum, in bits.
        """
        if not self.rounds:
            return total
        below = SIGNIFICAND_BITS - 1
        longer = total.bit_length() - self.lowest.bit_length()
        return longer << below | total >> total.bit_length() - SIGNIFICAND_BITS & (1 << below) - 1

    @property
    def step_layout(self) -> data.StructLayout:
        """Amaranth layout of one cycle's output: values ``operand[lane][pixel]`` of one lane, their sums ``scale``."""
        values = channels_layout(self.input.shape, 1, self.pixels)
        return data.StructLayout({"operand": values, "scale": channels_layout(self.scale_bits, 1, self.pixels)})

    @property
    def words(self) -> list[int]:
        """List of the terms (integers) that values add to the running sum, addressed by the value's bits."""
        return by_bits(self.terms, signed=self.input.signed)

    @cached_property
    def resources(self) -> Resources:
        cost, one, bits = Cost(self.device), Cost(self.device), max(self.terms).bit_length()
        one.table(self.words, bits)
        one.delay(bits, self.size)
        one.registers(2 * bits)
        one.ff += self.input.bits * (1 + self.ahead)
        one.delay(self.input.bits, self.latency + self.steps - 2)
        if self.rounds:
            count = len(self.dropped_bits)
            one.ff += (2 * count + self.add_cycles - 1) * self.sum_bits + self.scale_bits
            one.lut += 2.5 * count * self.sum_bits + self.scale_bits * count / 2
        else:
            one.ff += self.sum_bits + bits + 1
            one.lut += bits + 1 + self.sum_bits
        cost.add(one, self.pixels)
        cost.counter(self.input.channels + self.ahead, self.input.channels, self.steps)
        cost.ff += 2 + 3 + self.latency + self.steps
        cost.lut += 8
        return cost.resources

    def component(self) -> RunningScale:
        return RunningScale(self)


class RunningScale(ConfiguredComponent[RunningScaleConfig]):
    """Component of LRN: reads channels one by one, and outputs each with the running sum of the window around it.

    Parameters
    ----------
    config : RunningScaleConfig

    Members
    -------
    i, room, fold, start, o
        As in `Join` with one input.

    Latency and throughput
        The window moves every ``config.steps`` cycles. A move accepts a channel, outputs a channel, or both. Channel
        ``c`` is output when channel ``c + config.ahead`` is accepted. The last ``config.ahead`` channels of a pixel are
        output before the first channel of the next pixel is accepted. Values are on ``o`` ``config.steps - 1 +
        config.latency`` cycles later.
    """

    def __init__(self, config: RunningScaleConfig):
        super().__init__(config, walk_ports(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        move = Signal(range(config.input.channels + config.ahead), name="window_move_index")
        takes, gives = Signal(name="is_taking", init=1), Signal(name="is_giving", init=config.ahead == 0)
        moves = self._elaborate_control(m, move, takes, gives)
        enters = delayed(m, "term_enters", takes, 2)
        leaves = delayed(m, "term_leaves", move >= config.size, 2)
        first = delayed_fast(m, "is_first_channel", move == 0, 4)
        pulses: list[Value] = [moves]
        while len(pulses) < config.steps + config.latency:
            pulses.append(delayed(m, f"window_move_{len(pulses)}", pulses[-1], 1, reset_less=False))
        for pixel in range(config.pixels):
            name = at_pixel("sum", pixel, config.pixels)
            value = self._add_value_window(m, name, moves, self.i.payload.data[0][pixel])
            entering, leaving = self._add_term_window(m, name, pulses[2], value[0], enters, leaves)
            adds = self._add_rounded_sum if config.rounds else self._add_exact_sum
            m.d.comb += [
                self.o.payload.operand[0][pixel].eq(value[1]),
                self.o.payload.scale[0][pixel].eq(adds(m, name, pulses, first, entering, leaving)),
            ]
        whole = config.steps - 1 + config.latency
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.start, whole, reset_less=False))
        return m

    def _elaborate_control(self, m: Module, move: Signal, takes: Signal, gives: Signal) -> Signal:
        """Add the control of the channel window; return a bit: the window moves by one channel.

        ``move`` is the index of the move in its pixel.
        """
        config, channels = self.config, self.config.input.channels
        moves, rests = Signal(name="window_move"), Signal(range(config.steps), name="wait_cycles")
        last = named(move == channels + config.ahead - 1, "is_last_step")
        able = named((rests == 0) & (self.room | ~gives), "can_step")
        m.d.comb += [
            self.i.ready.eq(able & takes),
            moves.eq(able & (self.i.valid | ~takes)),
            self.start.eq(moves & gives),
        ]
        with m.If(moves):
            m.d.sync += move.eq(Mux(last, 0, move + 1))
            with m.If(last):
                m.d.sync += [takes.eq(1), gives.eq(config.ahead == 0)]
            with m.Else():
                m.d.sync += [takes.eq(takes & (move != channels - 1)), gives.eq(gives | (move == config.ahead - 1))]
        if config.steps > 1:
            with m.If(moves):
                m.d.sync += rests.eq(config.steps - 1)
            with m.Elif(rests != 0):
                m.d.sync += rests.eq(rests - 1)
        with m.If(self.start):
            m.d.sync += self.fold.eq(Mux(self.fold == channels - 1, 0, self.fold + 1))
        return moves

    def _add_value_window(self, m: Module, name: str, moves: Value, taken: Value) -> tuple[Value, Value]:
        """Add the window's shift register of values; return a pair: the newest, and the middle one with its sum."""
        config = self.config
        values = [taken]
        for index in range(config.ahead + 1):
            value = Signal(config.input.shape, name=f"{name}_value_{index}", reset_less=True)
            with m.If(moves):
                m.d.sync += value.eq(values[-1])
            values.append(value)
        return values[1], delayed(m, f"{name}_middle", values[-1], config.steps + config.latency - 2)

    def _add_term_window(
        self, m: Module, name: str, moved: Value, value: Value, enters: Value, leaves: Value
    ) -> tuple[Signal, Signal]:
        """Add table and shift register of terms; return a pair: the ones that enter and leave the sum, 3 cycles later.

        Terms of channels outside of the map are 0.
        """
        config, shape = self.config, unsigned(max(max(self.config.terms).bit_length(), 1))
        term = look_up(m, config.device, f"{name}_terms", shape, config.words, value)
        before: Value = term
        for index in range(config.size):
            kept = Signal(shape, name=f"{name}_window_term_{index}", reset_less=True)
            with m.If(moved):
                m.d.sync += kept.eq(before)
            before = kept
        entering, leaving = (
            Signal(shape, name=f"{name}_{end}_term", reset_less=True) for end in ("entering", "leaving")
        )
        with m.If(moved):
            m.d.sync += [entering.eq(Mux(enters, term, 0)), leaving.eq(Mux(leaves, before, 0))]
        return entering, leaving

    def _add_exact_sum(
        self, m: Module, name: str, pulses: list[Value], first: Value, entering: Signal, leaving: Signal
    ) -> Value:
        """Add a register that adds ``entering`` to a running sum and subtracts ``leaving`` in one cycle; return it."""
        config = self.config
        total = Signal(config.sum_bits, name=f"{name}_total", reset_less=True)
        difference = registered(m, f"{name}_difference", entering - leaving, signed(len(entering) + 1))
        with m.If(pulses[4]):
            m.d.sync += total.eq(Mux(first, config.start, total) + difference)
        return total

    def _add_rounded_sum(
        self, m: Module, name: str, pulses: list[Value], first: Value, entering: Signal, leaving: Signal
    ) -> Value:
        """Add logic that adds one term to a running sum, subtracts another and rounds both; return the encoded sum.

        For each possible length of the sum, one adder adds the term and half of a unit of this length. The length of
        the sum selects one of these candidates.
        """
        config, begin = self.config, 3
        sums = [
            Signal(config.sum_bits, name=f"{name}_candidate_{index}", reset_less=True)
            for index in range(len(config.dropped_bits))
        ]
        total = delayed(m, f"{name}_total", _select_rounded(config, sums), config.add_cycles - 1)
        then = begin + config.add_cycles
        base = named(Mux(first & pulses[begin + 1], config.start, total), "base_sum")
        for index, (candidate, dropped) in enumerate(zip(sums, config.dropped_bits, strict=True)):
            term = Signal(signed(config.sum_bits + 1), name=f"{name}_candidate_term_{index}", reset_less=True)
            half = 1 << dropped - 1
            with m.If(pulses[begin]):
                m.d.sync += term.eq(entering + half)
            with m.If(pulses[then]):
                m.d.sync += term.eq(half - leaving)
            with m.If(pulses[begin + 1] | pulses[then + 1]):
                m.d.sync += candidate.eq(base + term)
        return self._as_float(m, name, total)

    def _as_float(self, m: Module, name: str, total: Value) -> Signal:
        """Add the encoder of a rounded running sum as floating-point bits for the output, and return its register."""
        config, below = self.config, SIGNIFICAND_BITS - 1
        scale = Signal(config.scale_bits, name=f"{name}_scale", reset_less=True)
        encoded: Value = Const(0, config.scale_bits)
        for longer, dropped in enumerate(config.dropped_bits):
            encoded = Mux(
                total[dropped + below],
                Cat(total[dropped : dropped + below], Const(longer, counter_bits(len(config.dropped_bits)))),
                encoded,
            )
        m.d.sync += scale.eq(encoded)
        return scale


def _select_rounded(config: RunningScaleConfig, sums: Sequence[Value]) -> Value:
    """Return the running sum, rounded to float32, selected from candidates for all possible bit lengths of the sum.

    Rounding is to 24 significant bits, ties to even. A candidate is the sum plus half of a unit of its length. The
    first candidate shows the length of the sum. If half of the smallest unit makes the sum longer, the sum is rounded
    up to that length in any case.
    """
    result: Value = Const(0, config.sum_bits)
    for index, (candidate, dropped) in enumerate(zip(sums, config.dropped_bits, strict=True)):
        tie = ~candidate[:dropped].any()
        rounded = Cat(Const(0, dropped), candidate[dropped] & ~tie, candidate[dropped + 1 :])
        highest = dropped + SIGNIFICAND_BITS - 1
        result = named(Mux(sums[0][highest:].any(), rounded, result), "rounded_sum") if index else rounded
    return result


@dataclass(frozen=True, kw_only=True)
class RunningScaleLayerConfig(JoinLayerConfig):
    """Configuration of an LRN layer, with the running sums over channels as its ``window``, a `RunningScaleConfig`.

    Parameters and errors are as in `LayerConfig`.
    """

    @property
    def sums(self) -> RunningScaleConfig:
        """Configuration (`RunningScaleConfig`) of the component that computes the layer's running sums."""
        return self.window  # type: ignore[return-value]

    @property
    def window_steps(self) -> int:
        """Number of cycles per group of ``Tp`` pixels that feed an LRN layer's arithmetic: one per channel.

        Moves that only accept a channel are not steps.
        """
        return self.sums.output_folds
