"""Sums of each channel over a window, for average pooling: of integers, or in float32 as ONNX Runtime adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, varying_columns
from hwgen.gateware.layer import Arithmetic
from hwgen.gateware.lookup import by_bits, delayed, delayed_fast, look_up
from hwgen.gateware.naming import named
from hwgen.gateware.pool import PoolConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits, to_float32
from hwgen.gateware.stream import at_pixel

#: Lengths of a sum among which the lowest bit that stays is looked for at once, when it is rounded.
LENGTHS = 4
#: Bits of which are found at once whether one is used, where there is a cycle more for it.
NEARBY = 8


@dataclass(frozen=True, kw_only=True)
class SumConfig(PoolConfig):
    """The sum of each channel over a window, in integers.

    Padding, and taps that a last tap fold lacks, count as ``window.pad_value``: every sum is one of ``term_count``
    values.

    Raises
    ------
    ConfigError
        If the walk is not channelwise.
    """

    @property
    def term_count(self) -> int:
        """Values that are added up."""
        return self.window.tap_folds * self.window.taps

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Bits of the sums in each level of the tree over the taps of a step, from its leaves on."""
        size, widths = self.window.taps, []
        for level in range((size - 1).bit_length()):
            widths.append(self._bits(min(2 << level, size)))
        return tuple(widths)

    def _bits(self, terms: int) -> int:
        return signed_bits(*(terms * end for end in self.input_range))

    @property
    def accumulates(self) -> bool:
        return self.window.steps > 1

    @property
    def latency(self) -> int:
        """Cycles from the last step of a fold to its sums."""
        return len(self.levels) + self.accumulates

    @property
    def sum_range(self) -> tuple[int, int]:
        """The least and the greatest sum."""
        least, most = self.input_range
        return self.term_count * least, self.term_count * most

    @property
    def result(self) -> Shape:
        """Shape of a sum."""
        return signed(signed_bits(*self.sum_range))

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        lanes, levels = self.lanes * self.window.pixels, len(self.levels)
        left, alone, bits = self.window.taps, 0, self.window.input.bits
        for width in self.levels:
            # Sums of unsigned numbers have no sign; the highest bit is a carry.
            width -= not self.window.input.signed
            cost.ff += lanes * (left // 2) * width
            cost.lut += lanes * (left // 2) * (width - 1)
            alone = cost.tree_delay(lanes * bits, left, alone)
            left, bits = -(-left // 2), width
        if self.accumulates:
            cost.ff += lanes * self.result.width
            cost.lut += lanes * self.result.width
            cost.delay(1, levels)
        cost.ff += levels + self.accumulates
        cost.delay(1, levels)
        return cost.resources

    def component(self) -> Sum:
        return Sum(self)


@dataclass(frozen=True, kw_only=True)
class FloatSumConfig(PoolConfig):
    """The sum of each channel over a window, in float32, tap by tap in row-major order.

    Each value stands for ``unit * (x - zero_point)``, in steps so fine that all numbers are integers. Such a term is
    rounded to 24 significant bits, ties to even, and so is each partial sum.

    Parameters
    ----------
    window : LineBufferConfig
        Where the steps come from; all taps of a window are one step. Its ``pad_value`` is the zero point. With
        ``window.inside`` a result holds the number of taps inside the map above the sum.
    zero_point : int
        Of the input.
    unit : int
        Positive and odd, of 24 bits at most.

    Raises
    ------
    ConfigError
        If the walk is not channelwise, a window takes several steps, padding would count, the unit is none, or values
        have more than 8 bits.
    """

    zero_point: int
    unit: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window.steps != 1:
            raise ConfigError(f"window.taps must be all of the kernel's, not {self.window.taps!r}")
        if self.window.pad_value != self.zero_point:
            raise ConfigError(
                f"window.pad_value must be the zero point {self.zero_point}, not {self.window.pad_value!r}"
            )
        if not 1 <= self.unit < 1 << SIGNIFICAND_BITS or self.unit % 2 == 0:
            raise ConfigError(f"unit must be odd, and between 1 and 2**24 - 1, not {self.unit!r}")
        if self.window.input.bits > 8:
            raise ConfigError(f"values must have at most 8 bits, not {self.window.input.bits!r}")

    @cached_property
    def terms(self) -> tuple[int, ...]:
        """What each value stands for, from the least to the greatest."""
        least, most = self.input_range
        return tuple(to_float32((x - self.zero_point) * self.unit) for x in range(least, most + 1))

    @cached_property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """The least and the greatest sum after each tap."""
        least, most = (
            accumulate([end] * self.window.taps, lambda total, term: to_float32(total + term))
            for end in (self.terms[0], self.terms[-1])
        )
        return tuple(zip(least, most, strict=True))

    @property
    def sum_range(self) -> tuple[int, int]:
        """The least and the greatest sum."""
        return self.sums[-1]

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Of each addition: bits of the exact sum, and how many of them may have to go when it is rounded."""
        links = []
        for before, _ in pairwise(self.sums):
            exact = [end + term for end, term in zip(before, (self.terms[0], self.terms[-1]), strict=True)]
            excess = max(abs(end).bit_length() for end in exact) - SIGNIFICAND_BITS
            links.append((signed_bits(*exact), max(0, excess)))
        return tuple(links)

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """Cycles from a step to the sum of its taps up to each one."""
        return tuple(accumulate((3 if excess else 1 for _, excess in self.links), initial=1))

    @property
    def latency(self) -> int:
        """Cycles from a step to its sums."""
        return self.arrivals[-1]

    @property
    def sum_bits(self) -> int:
        return signed_bits(*self.sum_range)

    @property
    def count_bits(self) -> int:
        """Bits of the number of taps inside the map; 0 where nobody asks for it."""
        return self.window.taps.bit_length() if self.window.inside else 0

    @property
    def result(self) -> Shape:
        """Shape of a sum, or of a sum and a count above it."""
        return unsigned(self.sum_bits + self.count_bits) if self.count_bits else signed(self.sum_bits)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        source = self.window.input
        terms = varying_columns([term % (1 << self.term_bits) for term in self.terms], self.term_bits)
        one = Cost()
        for tap in range(self.window.taps):
            one.rom(terms, 1 << source.bits, self.term_bits, block=False)
            wait = self.arrivals[tap - 1] - 1 if tap else 0
            one.delay(source.bits, max(wait - 1, 0))
            one.ff += source.bits * (wait > 0)
        for (bits, excess), (least, most) in zip(self.links, self.sums[1:], strict=True):
            one.ff += bits
            one.lut += bits
            if excess:
                rounded = signed_bits(least, most)
                finds = -(-excess // LENGTHS)
                one.ff += bits + excess + finds + rounded
                # Whether a bit goes, an adder and a mask for each of those bits; bits above them are but a carry chain.
                one.lut += 3 * excess + finds
        lanes = self.lanes * self.window.pixels
        cost.lut, cost.ff = one.lut * lanes, one.ff * lanes + self.latency
        if self.count_bits:
            for tap, arrival in enumerate(self.arrivals):
                bits = (tap + 1).bit_length()
                cost.delay(self.window.pixels * bits, 3 if tap and self.links[tap - 1][1] else 1)
                cost.delay(self.window.pixels, arrival - 1)
                cost.lut += self.window.pixels * bits * bool(tap)
        return cost.resources

    @property
    def term_bits(self) -> int:
        return signed_bits(self.terms[0], self.terms[-1])

    def component(self) -> FloatSum:
        return FloatSum(self)


class Sum(Arithmetic[SumConfig]):
    """A registered tree of adders over the taps, and a running sum over the steps.

    Parameters
    ----------
    config : SumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps, as the line buffer walks them.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``, once a fold.

    Latency and throughput
        A step a cycle; sums ``config.latency`` cycles after the fold's last step. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        levels = len(config.levels)
        done = delayed(m, "valid", self.i.valid, levels, reset_less=False)
        first = delayed(m, "is_first_step", self.i.payload.first, levels)
        if config.accumulates:
            done = delayed(
                m, "sum_valid", done & delayed(m, "is_last_step", self.i.payload.last, levels), 1, reset_less=False
            )
        m.d.comb += self.o.valid.eq(done)
        for lane in range(config.lanes):
            for pixel, taps in enumerate(self.i.payload.taps):
                name = at_pixel(f"lane_{lane}", pixel, config.window.pixels)
                values: list[Value] = [tap[lane] for tap in taps]
                for level, bits in enumerate(config.levels):
                    values = [
                        self._register(m, f"{name}_level_{level}_{pair // 2}", values[pair : pair + 2], bits)
                        for pair in range(0, len(values), 2)
                    ]
                total = values[0]
                if config.accumulates:
                    running = Signal(config.result, name=f"{name}_accumulator", reset_less=True)
                    m.d.sync += running.eq(total + Mux(first, 0, running))
                    total = running
                m.d.comb += self.o.payload[lane][pixel].eq(total)
        return m

    def _register(self, m: Module, name: str, pair: list[Value], bits: int) -> Signal:
        """The sum of one or two values; one alone stays as narrow as it is."""
        register = Signal(signed(bits) if len(pair) == 2 else pair[0].shape(), name=name, reset_less=True)
        m.d.sync += register.eq(sum(pair[1:], pair[0]))
        return register


class FloatSum(Arithmetic[FloatSumConfig]):
    """A chain of additions, each rounded before the next one.

    Parameters
    ----------
    config : FloatSumConfig

    Members
    -------
    i : In(stream, always ready)
        Whole windows, as the line buffer walks them.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``; with ``config.count_bits`` a count above each.

    Latency and throughput
        A window a cycle; its sums ``config.latency`` cycles later. Never stalls.

    A value's term comes from a table in the cycle in which the sum before it is there. An addition takes a cycle, and
    two more where its sum may have to be rounded.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        for pixel, taps in enumerate(self.i.payload.taps):
            count = self._count(m, pixel) if config.count_bits else None
            for lane in range(config.lanes):
                total = self._sum(m, at_pixel(f"lane_{lane}", pixel, config.window.pixels), [tap[lane] for tap in taps])
                m.d.comb += self.o.payload[lane][pixel].eq(total if count is None else Cat(total, count))
        return m

    def _sum(self, m: Module, name: str, values: list[Value]) -> Value:
        """The sum of a window's ``values``."""
        config = self.config
        total = self._term(m, f"{name}_tap_0", values[0], 0)
        for tap, (bits, excess) in enumerate(config.links, start=1):
            here = f"{name}_tap_{tap}"
            term = self._term(m, here, values[tap], config.arrivals[tap - 1] - 1)
            exact = Signal(signed(bits), name=f"{here}_exact_sum", reset_less=True)
            m.d.sync += exact.eq(total + term)
            total = exact
            if excess:
                total = Signal(signed(signed_bits(*config.sums[tap])), name=f"{here}_sum", reset_less=True)
                m.d.sync += total.eq(rounded(m, here, exact, excess))
        return total

    def _term(self, m: Module, name: str, value: Value, wait: int) -> Value:
        """What ``value`` stands for, ``wait + 1`` cycles later."""
        config = self.config
        words = by_bits(config.terms, signed=config.window.input.signed)
        # The table is too slow for what a shift register gives.
        late = delayed_fast(m, f"{name}_value", value, wait) if wait else value
        return look_up(m, f"{name}_terms", signed(config.term_bits), words, late)

    def _count(self, m: Module, pixel: int) -> Value:
        """The taps inside the map, when the sum is there."""
        config = self.config
        count: Value = Const(0)
        for tap, inside in enumerate(self.i.payload.inside[pixel]):
            name = at_pixel(f"taps_inside_{tap}", pixel, config.window.pixels)
            before = config.arrivals[tap - 1] if tap else 0
            here = Signal(range(tap + 2), name=name, reset_less=True)
            m.d.sync += here.eq(count + delayed(m, f"{name}_is_inside", inside, before))
            count = delayed(m, f"{name}_delayed", here, config.arrivals[tap] - before - 1)
        return count


def _at_least(m: Module, name: str, used: Sequence[Value], nearby: int) -> Value:
    """For each bit whether it, or one above, is used, a cycle later: ``nearby`` of them are looked at in this cycle."""
    ends = [first + nearby for first in range(0, len(used), nearby)]
    near = Cat(Cat(used[bit : ends[bit // nearby]]).any() for bit in range(len(used)))
    near = delayed(m, name, near, 1)
    return Cat(
        named(near[bit] | Cat(near[end] for end in ends[bit // nearby : -1]).any(), "is_at_least")
        for bit in range(len(used))
    )


def rounded(m: Module, name: str, value: Value, excess: int, *, settles: bool = False) -> Value:
    """``value`` rounded to 24 significant bits, ties to even, a cycle later; ``excess`` bits go at most.

    Where ``j`` bits go, half of their range less one is added, and one more if the lowest bit that stays is set.
    That bit is looked for among a few lengths in this cycle, and among these finds in the next one; if it ``settles``,
    it is added in the one after that.
    """
    lengths = range(1, excess + 1)
    used = named([value[SIGNIFICAND_BITS + j - 1] ^ value[-1] for j in lengths], "is_dropped")
    gone = _at_least(m, f"{name}_dropped_bits", used, nearby=NEARBY if settles else excess)  # j bits go
    odd: Value = Const(0, 1)
    for first in range(0, excess, LENGTHS):
        found: Value = Const(0, 1)
        for j in lengths[first : first + LENGTHS]:
            found = Mux(used[j - 1], value[j], found)
        odd = named(Mux(gone[first], delayed(m, f"{name}_lowest_bit_{first}", found, 1), odd), "odd_bit")
    late = delayed(m, f"{name}_exact_sum_delayed", value, 1)
    if settles:
        odd, gone = (
            delayed(m, f"{name}_lowest_bit_settled", odd, 1),
            delayed(m, f"{name}_dropped_bits_settled", gone, 1),
        )
        late = delayed_fast(m, f"{name}_exact_sum_settled", late, 1)
    total = named((Cat(1, late).as_signed() + Cat(odd, gone[1:]))[1:], "rounded_sum")
    return Cat(total[:excess] & ~gone, total[excess:]).as_signed()
