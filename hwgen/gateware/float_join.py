"""Elementwise float32 sum of several feature maps, added one map after the other with ONNX Runtime's rounding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product

from amaranth import Module, Shape, Signal, Value, signed

from hwgen.errors import ConfigError
from hwgen.gateware.average import LENGTHS, add_rounding
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import bits_for_range, by_bits, delayed, delayed_fast, look_up, registered
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits, to_float32
from hwgen.gateware.stream import at_pixel

#: Maximum number of bits of a sum that two cycles can round away; a rounding of more bits takes a third cycle.
_QUICK = 8


@dataclass(frozen=True, kw_only=True)
class FloatJoinConfig(Weightless):
    """Configuration of an elementwise float32 sum of several feature maps, whose values pass through lookup tables.

    Partial sums are rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps: several inputs, one beat of each per step.
    tables : tuple of tuple of int
        For each input: terms of its values, from the smallest value to the largest, in multiples of a step that makes
        all terms integers.

    Raises
    ------
    ConfigError
        If the inputs are not read at once, or a table does not have one entry per value.
    """

    operation = "addition"

    window: JoinConfig
    tables: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        inputs = self.window.inputs
        if len(inputs) < 2 or self.window.in_turn or self.window.spread:
            raise ConfigError(f"window must take several inputs at once, not {self.window!r}")
        sizes, wanted = [len(table) for table in self.tables], [1 << beat.bits for beat in inputs]
        if sizes != wanted:
            raise ConfigError(f"tables must have an entry for each value of their input, {wanted}, not {sizes}")

    @cached_property
    def _addends(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest addend in the lookup table of each input map: one pair per map."""
        return tuple((min(table), max(table)) for table in self.tables)

    @cached_property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs of integers: smallest and largest partial sum after each input map, in the tables' step."""
        lowest, highest = (
            accumulate(ends, lambda total, term: to_float32(total + term)) for ends in zip(*self._addends, strict=True)
        )
        return tuple(zip(lowest, highest, strict=True))

    @cached_property
    def additions(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs per map after the first: bits of the exact sum, and how many of them rounding can drop."""
        additions = []
        for (before, _), terms in zip(pairwise(self.sums), self._addends[1:], strict=True):
            exact = [end + term for end, term in zip(before, terms, strict=True)]
            excess = max(abs(end).bit_length() for end in exact) - SIGNIFICAND_BITS
            additions.append((signed_bits(*exact), max(0, excess)))
        return tuple(additions)

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """Tuple, per map: cycles from the operands (one value of each map) to their partial sum after the map."""
        cycles = (1 if excess == 0 else 3 if excess <= _QUICK else 4 for _, excess in self.additions)
        return tuple(accumulate(cycles, initial=1))

    @property
    def latency(self) -> int:
        """Cycles from the operands (one value of each map) at ``i`` to their rounded sum at ``o``."""
        return self.arrivals[-1]

    @property
    def sum_range(self) -> tuple[int, int]:
        """Smallest and largest possible sum over all input maps, as a pair of integers."""
        return self.sums[-1]

    @property
    def result(self) -> Shape:
        """Amaranth shape (signed) of the rounded sum over all input maps."""
        return signed(signed_bits(*self.sum_range))

    def term_shape(self, index: int) -> Shape:
        """Return the Amaranth shape of the addends that the lookup table of input map ``index`` contains."""
        return bits_for_range(*self._addends[index])

    def words(self, index: int) -> list[int]:
        """Return a list: the words of input map ``index``'s lookup table, addends by address (bits of the value)."""
        return by_bits(self.tables[index], signed=self.window.inputs[index].signed)

    @cached_property
    def resources(self) -> Resources:
        one, count = Cost(self.device), self.lanes * self.window.pixels
        for index, beat in enumerate(self.window.inputs):
            one.table(self.words(index), self.term_shape(index).width)
            wait = self.arrivals[index - 1] - 1 if index else 0
            one.delay(beat.bits, max(wait - 1, 0))
            one.ff += beat.bits * (wait > 0)
        for (bits, excess), ends in zip(self.additions, self.sums[1:], strict=True):
            one.registers(bits)
            if excess:
                one.ff += bits + excess + -(-excess // LENGTHS) + signed_bits(*ends)
                one.lut += signed_bits(*ends) + excess
            if excess > _QUICK:
                one.ff += bits + excess + 1
        cost = Cost(self.device, ff=self.latency)
        cost.add(one, count)
        return cost.resources

    def component(self) -> FloatJoin:
        return FloatJoin(self)


class FloatJoin(Arithmetic[FloatJoinConfig]):
    """Component that computes float32 sums of several maps: a chain of adders, each followed by rounding.

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
        One step per cycle. Sums leave ``config.latency`` cycles later. Never stalls.

    A table returns a value's term in the same cycle as the previous partial sum is complete. An addition takes one
    cycle. It takes three cycles if its sum can need rounding, and four if rounding can drop many bits.
    """

    def elaborate(self, platform):
        m = Module()
        config, pixels = self.config, self.config.window.pixels
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        for lane, pixel in product(range(config.lanes), range(pixels)):
            name = at_pixel(f"lane_{lane}", pixel, pixels)
            total = self._add_term(m, f"{name}_input_0", 0, self.i.payload.operand_0[lane][pixel])
            for index, (bits, excess) in enumerate(config.additions, start=1):
                here = f"{name}_input_{index}"
                term = self._add_term(m, here, index, self.i.payload[f"operand_{index}"][lane][pixel])
                exact = registered(m, f"{here}_exact_sum", total + term, signed(bits))
                total = exact
                if excess:
                    total = Signal(signed(signed_bits(*config.sums[index])), name=f"{here}_sum", reset_less=True)
                    m.d.sync += total.eq(add_rounding(m, here, exact, excess, settles=excess > _QUICK))
            m.d.comb += self.o.payload[lane][pixel].eq(total)
        return m

    def _add_term(self, m: Module, name: str, index: int, value: Value) -> Value:
        """Add a map's lookup table of addends; return the addend in the cycle when the previous sum is complete."""
        config = self.config
        wait = config.arrivals[index - 1] - 1 if index else 0
        # The last stage is a register: a shift register before the table would be too slow.
        delayed_value = delayed_fast(m, f"{name}_value", value, wait) if wait else value
        return look_up(m, config.device, f"{name}_terms", config.term_shape(index), config.words(index), delayed_value)
