"""Sums of several maps in float32, one map after the other, as ONNX Runtime adds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product

from amaranth import Module, Shape, Signal, Value, signed

from hwgen.errors import ConfigError
from hwgen.gateware.average import LENGTHS, rounded
from hwgen.gateware.cost import Cost, Resources, varying_columns
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import bits_for_range, by_bits, delayed, delayed_fast, look_up
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits, to_float32
from hwgen.gateware.stream import at_pixel

#: More bits than these that may go take a cycle more to be rounded.
_QUICK = 8


@dataclass(frozen=True, kw_only=True)
class FloatJoinConfig(Weightless):
    """The sum of a value of each input, where every partial sum is rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    window : JoinConfig
        Where the steps come from: several inputs, a beat of each.
    tables : tuple of tuple of int
        For each input what each of its values stands for, from the least to the greatest, in steps so fine that all
        are integers.

    Raises
    ------
    ConfigError
        If there are not several inputs at once, or a table has not an entry for each value.
    """

    window: JoinConfig
    tables: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        inputs = self.window.inputs
        if len(inputs) < 2 or self.window.in_turn or self.window.spread:
            raise ConfigError(f"window must take several inputs at once, not {self.window!r}")
        if [len(table) for table in self.tables] != [1 << beat.bits for beat in inputs]:
            raise ConfigError("tables must have an entry for each value of their input")

    @cached_property
    def _ends(self) -> tuple[tuple[int, int], ...]:
        """The least and the greatest term of each input."""
        return tuple((min(table), max(table)) for table in self.tables)

    @cached_property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """The least and the greatest sum up to each input."""
        least, most = (
            accumulate(ends, lambda total, term: to_float32(total + term)) for ends in zip(*self._ends, strict=True)
        )
        return tuple(zip(least, most, strict=True))

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Of each addition: bits of the exact sum, and how many of them may have to go when it is rounded."""
        links = []
        for (before, _), terms in zip(pairwise(self.sums), self._ends[1:], strict=True):
            exact = [end + term for end, term in zip(before, terms, strict=True)]
            excess = max(abs(end).bit_length() for end in exact) - SIGNIFICAND_BITS
            links.append((signed_bits(*exact), max(0, excess)))
        return tuple(links)

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """Cycles from a step to the sum up to each input."""
        cycles = (1 if excess == 0 else 3 if excess <= _QUICK else 4 for _, excess in self.links)
        return tuple(accumulate(cycles, initial=1))

    @property
    def latency(self) -> int:
        """Cycles from a step to its sums."""
        return self.arrivals[-1]

    @property
    def sum_range(self) -> tuple[int, int]:
        """The least and the greatest sum."""
        return self.sums[-1]

    @property
    def result(self) -> Shape:
        """Shape of a sum."""
        return signed(signed_bits(*self.sum_range))

    def term_shape(self, number: int) -> Shape:
        """Shape of what an input's values stand for."""
        return bits_for_range(*self._ends[number])

    def words(self, number: int) -> list[int]:
        """The memory of an input's table, by the value's bits."""
        return by_bits(self.tables[number], signed=self.window.inputs[number].signed)

    @cached_property
    def resources(self) -> Resources:
        one, count = Cost(), self.lanes * self.window.pixels
        for number, beat in enumerate(self.window.inputs):
            width = self.term_shape(number).width
            columns = varying_columns([term % (1 << width) for term in self.words(number)], width)
            one.rom(columns, 1 << beat.bits, width, block=False)
            wait = self.arrivals[number - 1] - 1 if number else 0
            one.delay(beat.bits, max(wait - 1, 0))
            one.ff += beat.bits * (wait > 0)
        for (bits, excess), ends in zip(self.links, self.sums[1:], strict=True):
            one.ff += bits
            one.lut += bits
            if excess:
                one.ff += bits + excess + -(-excess // LENGTHS) + signed_bits(*ends)
                one.lut += signed_bits(*ends) + excess
            if excess > _QUICK:
                one.ff += bits + excess + 1
        cost = Cost(lut=one.lut * count, ff=one.ff * count + self.latency)
        return cost.resources

    def component(self) -> FloatJoin:
        return FloatJoin(self)


class FloatJoin(Arithmetic[FloatJoinConfig]):
    """A chain of additions, each rounded before the next one.

    Parameters
    ----------
    config : FloatJoinConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``.

    Latency and throughput
        A step a cycle; sums ``config.latency`` cycles later. Never stalls.

    A value's term comes from a table in the cycle in which the sum before it is there. An addition takes a cycle, and
    two more where its sum may have to be rounded, and a third one where many bits may go.
    """

    def elaborate(self, platform):
        m = Module()
        config, pixels = self.config, self.config.window.pixels
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        for lane, pixel in product(range(config.lanes), range(pixels)):
            name = at_pixel(f"lane_{lane}", pixel, pixels)
            total = self._term(m, f"{name}_input_0", 0, self.i.payload.operand_0[lane][pixel])
            for number, (bits, excess) in enumerate(config.links, start=1):
                here = f"{name}_input_{number}"
                term = self._term(m, here, number, self.i.payload[f"operand_{number}"][lane][pixel])
                exact = Signal(signed(bits), name=f"{here}_exact_sum", reset_less=True)
                m.d.sync += exact.eq(total + term)
                total = exact
                if excess:
                    total = Signal(signed(signed_bits(*config.sums[number])), name=f"{here}_sum", reset_less=True)
                    m.d.sync += total.eq(rounded(m, here, exact, excess, settles=excess > _QUICK))
            m.d.comb += self.o.payload[lane][pixel].eq(total)
        return m

    def _term(self, m: Module, name: str, number: int, value: Value) -> Value:
        """What the value of an input stands for, when the sum of those before it is there."""
        config = self.config
        wait = config.arrivals[number - 1] - 1 if number else 0
        # The table is too slow for what a shift register gives.
        late = delayed_fast(m, f"{name}_value", value, wait) if wait else value
        return look_up(m, f"{name}_terms", config.term_shape(number), config.words(number), late)
