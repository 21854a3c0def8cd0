"""Window sums of each channel for average pooling: integer sums, or float32 sums with ONNX Runtime's rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.layer import Arithmetic
from hwgen.gateware.lookup import by_bits, delayed, delayed_fast, look_up, named, registered
from hwgen.gateware.max_pool import ChannelwisePoolConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits, to_float32
from hwgen.gateware.stream import at_pixel

#: Maximum number of possible lengths of a sum, in bits, among which one multiplexer selects float32's lowest kept bit.
LENGTHS = 4
#: Number of neighbouring flags that a two-cycle float32 rounding ORs in its first cycle, to find the bits to drop.
NEARBY = 8


@dataclass(frozen=True, kw_only=True)
class SumConfig(ChannelwisePoolConfig):
    """Configuration of an average pool's adder: integer sums of each channel over the pooling window.

    Padding, and missing taps of the last tap fold, count as ``window.pad_value``. Every sum therefore has
    ``term_count`` terms.

    Raises
    ------
    ConfigError
        If the walk is not channelwise.
    """

    @property
    def term_count(self) -> int:
        """Number of values that one pooling window's sum adds, including padding and unused taps of the last cycle."""
        return self.window.tap_folds * self.window.taps

    @cached_property
    def level_bits(self) -> tuple[int, ...]:
        """Tuple of widths in bits of the sums at each level of a cycle's adder tree over taps, taps to root."""
        size, widths = self.window.taps, []
        for level in range((size - 1).bit_length()):
            widths.append(self._bits(min(2 << level, size)))
        return tuple(widths)

    def _bits(self, terms: int) -> int:
        return signed_bits(*(terms * end for end in self.input_range))

    @property
    def accumulates(self) -> bool:
        """Whether a window's taps arrive over several cycles, so that the sum needs an accumulator."""
        return self.window.steps > 1

    @property
    def latency(self) -> int:
        """Cycles from the last taps of a pooling window at ``i`` to the window's sums at ``o``."""
        return len(self.level_bits) + self.accumulates

    @property
    def sum_range(self) -> tuple[int, int]:
        """Smallest and largest possible integer sum of one channel over a pooling window, as a pair."""
        lowest, highest = self.input_range
        return self.term_count * lowest, self.term_count * highest

    @property
    def result(self) -> Shape:
        """Amaranth shape, signed, that holds every possible sum of one channel over a pooling window."""
        return signed(signed_bits(*self.sum_range))

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        lanes, levels = self.lanes * self.window.pixels, len(self.level_bits)
        # Sums of unsigned numbers have no sign bit. Their highest bit is the adder's carry.
        widths = [width - (not self.window.input.signed) for width in self.level_bits]
        cost.tree(self.window.taps, [(width, width - 1) for width in widths], self.window.input.bits, lanes)
        if self.accumulates:
            cost.registers(lanes * self.result.width)
            cost.delay(1, levels)
        cost.ff += levels + self.accumulates
        cost.delay(1, levels)
        return cost.resources

    def component(self) -> SumUnit:
        return SumUnit(self)


@dataclass(frozen=True, kw_only=True)
class FloatSumConfig(ChannelwisePoolConfig):
    """Configuration of an average pool's adder with float32 rounding: sums of each channel over the window, tap by tap.

    The taps are added in row-major order. A value ``x`` has the term ``unit * (x - zero_point)``, in multiples of a
    step that makes all numbers integers. Each term and each partial sum is rounded to 24 significant bits, ties to
    even.

    Parameters
    ----------
    window : LineBufferConfig
        Source of the steps. All taps of a window are one step. Its ``pad_value`` is the zero point. With
        ``window.inside``, a result contains the number of taps inside the map above the sum.
    zero_point : int
        Zero point of the input.
    unit : int
        Scale of the input as an integer: positive, odd, at most 24 bits.

    Raises
    ------
    ConfigError
        If the walk is not channelwise; if a window needs several steps; if padding is not the zero point; if the unit
        is invalid; or if values have more than 8 bits.
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
        """Tuple of the addend per input ``x``, ascending: ``unit * (x - zero_point)`` in float32, as an integer."""
        lowest, highest = self.input_range
        return tuple(to_float32((x - self.zero_point) * self.unit) for x in range(lowest, highest + 1))

    @cached_property
    def sums(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs of integers, one per tap: smallest and largest partial sum of a pooling window after it."""
        lowest, highest = (
            accumulate([end] * self.window.taps, lambda total, term: to_float32(total + term))
            for end in (self.terms[0], self.terms[-1])
        )
        return tuple(zip(lowest, highest, strict=True))

    @property
    def sum_range(self) -> tuple[int, int]:
        """Smallest and largest possible sum of a whole pooling window, as a pair of integers."""
        return self.sums[-1]

    @cached_property
    def additions(self) -> tuple[tuple[int, int], ...]:
        """Tuple of pairs per tap after the first: bits of the exact sum, and how many of them rounding can drop."""
        additions = []
        for before, _ in pairwise(self.sums):
            exact = [end + term for end, term in zip(before, (self.terms[0], self.terms[-1]), strict=True)]
            excess = max(abs(end).bit_length() for end in exact) - SIGNIFICAND_BITS
            additions.append((signed_bits(*exact), max(0, excess)))
        return tuple(additions)

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """Tuple, per tap: cycles from the arrival of a pooling window to its partial sum after the tap."""
        return tuple(accumulate((3 if excess else 1 for _, excess in self.additions), initial=1))

    @property
    def latency(self) -> int:
        """Cycles from the arrival of a pooling window at ``i`` to its sums at ``o``."""
        return self.arrivals[-1]

    @property
    def sum_bits(self) -> int:
        """Width of a window sum in bits, two's complement."""
        return signed_bits(*self.sum_range)

    @property
    def count_bits(self) -> int:
        """Width in bits of the count, in each result, of window taps inside the map; 0 if results have no count.

        Windows at the border contain padding, and an average can exclude it.
        """
        return self.window.taps.bit_length() if self.window.inside else 0

    @property
    def result(self) -> Shape:
        """Amaranth shape of a result: the window's sum in the low bits, with the count of unpadded taps above it."""
        return unsigned(self.sum_bits + self.count_bits) if self.count_bits else signed(self.sum_bits)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        source = self.window.input
        one = Cost(self.device)
        one.table(self.terms, self.term_bits, copies=self.window.taps)
        for tap in range(self.window.taps):
            wait = self.arrivals[tap - 1] - 1 if tap else 0
            one.delay(source.bits, max(wait - 1, 0))
            one.ff += source.bits * (wait > 0)
        for (bits, excess), (lowest, highest) in zip(self.additions, self.sums[1:], strict=True):
            one.registers(bits)
            if excess:
                rounded = signed_bits(lowest, highest)
                finds = -(-excess // LENGTHS)
                one.ff += bits + excess + finds + rounded
                # A comparison, an adder and a mask for each dropped bit. The bits above are a carry chain.
                one.lut += 3 * excess + finds
        lanes = self.lanes * self.window.pixels
        cost.add(one, lanes)
        cost.ff += self.latency
        if self.count_bits:
            for tap, arrival in enumerate(self.arrivals):
                bits = (tap + 1).bit_length()
                cost.delay(self.window.pixels * bits, 3 if tap and self.additions[tap - 1][1] else 1)
                cost.delay(self.window.pixels, arrival - 1)
                cost.lut += self.window.pixels * bits * bool(tap)
        return cost.resources

    @property
    def term_bits(self) -> int:
        """Width in bits of an addend of the window sum, two's complement."""
        return signed_bits(self.terms[0], self.terms[-1])

    def component(self) -> FloatSum:
        return FloatSum(self)


class SumUnit(Arithmetic[SumConfig]):
    """Component that computes integer window sums for average pooling: an adder tree over taps, then an accumulator.

    Parameters
    ----------
    config : SumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps, in the order of the line buffer.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``, once per fold.

    Latency and throughput
        One step per cycle. Sums leave ``config.latency`` cycles after the fold's last step. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        levels = len(config.level_bits)
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
                for level, bits in enumerate(config.level_bits):
                    values = [
                        self._add_register(m, f"{name}_level_{level}_{pair // 2}", values[pair : pair + 2], bits)
                        for pair in range(0, len(values), 2)
                    ]
                total = values[0]
                if config.accumulates:
                    running = Signal(config.result, name=f"{name}_accumulator", reset_less=True)
                    m.d.sync += running.eq(total + Mux(first, 0, running))
                    total = running
                m.d.comb += self.o.payload[lane][pixel].eq(total)
        return m

    def _add_register(self, m: Module, name: str, pair: list[Value], bits: int) -> Signal:
        """Add and return a register (`Signal`) of the sum of a ``pair`` of values, or of the only value in it."""
        return registered(m, name, sum(pair[1:], pair[0]), signed(bits) if len(pair) == 2 else pair[0].shape())


class FloatSum(Arithmetic[FloatSumConfig]):
    """Component that computes float32 window sums for average pooling: a chain of adders, each followed by rounding.

    Parameters
    ----------
    config : FloatSumConfig

    Members
    -------
    i : In(stream, always ready)
        Whole windows, in the order of the line buffer.
    o : Out(stream, always ready)
        ``Tn x Tp`` sums, ``[lane][pixel]``; with ``config.count_bits``, a count above each sum.

    Latency and throughput
        One window per cycle. Sums leave ``config.latency`` cycles later. Never stalls.

    A table returns a value's term in the same cycle as the previous partial sum is complete. An addition takes one
    cycle, and three cycles if its sum can need rounding.
    """

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        for pixel, taps in enumerate(self.i.payload.taps):
            count = self._add_count(m, pixel) if config.count_bits else None
            for lane in range(config.lanes):
                total = self._sum(m, at_pixel(f"lane_{lane}", pixel, config.window.pixels), [tap[lane] for tap in taps])
                m.d.comb += self.o.payload[lane][pixel].eq(total if count is None else Cat(total, count))
        return m

    def _sum(self, m: Module, name: str, values: list[Value]) -> Value:
        """Add the chain of rounding adders for one channel of a window, and return the sum of its tap ``values``."""
        config = self.config
        total = self._add_term(m, f"{name}_tap_0", values[0], 0)
        for tap, (bits, excess) in enumerate(config.additions, start=1):
            here = f"{name}_tap_{tap}"
            term = self._add_term(m, here, values[tap], config.arrivals[tap - 1] - 1)
            exact = registered(m, f"{here}_exact_sum", total + term, signed(bits))
            total = exact
            if excess:
                total = Signal(signed(signed_bits(*config.sums[tap])), name=f"{here}_sum", reset_less=True)
                m.d.sync += total.eq(add_rounding(m, here, exact, excess))
        return total

    def _add_term(self, m: Module, name: str, value: Value, wait: int) -> Value:
        """Add a lookup table from a tap's value to its float32 addend; return the addend after ``wait + 1`` cycles."""
        config = self.config
        words = by_bits(config.terms, signed=config.window.input.signed)
        # The last stage is a register: a shift register before the table would be too slow.
        delayed_value = delayed_fast(m, f"{name}_value", value, wait) if wait else value
        return look_up(m, config.device, f"{name}_terms", signed(config.term_bits), words, delayed_value)

    def _add_count(self, m: Module, pixel: int) -> Value:
        """Add adders that count the taps of a pixel's window inside the map; return the count, timed like the sum."""
        config = self.config
        count: Value = Const(0)
        for tap, inside in enumerate(self.i.payload.inside[pixel]):
            name = at_pixel(f"taps_inside_{tap}", pixel, config.window.pixels)
            before = config.arrivals[tap - 1] if tap else 0
            here = registered(m, name, count + delayed(m, f"{name}_is_inside", inside, before), range(tap + 2))
            count = delayed(m, f"{name}_delayed", here, config.arrivals[tap] - before - 1)
        return count


def _suffix_or(m: Module, name: str, flags: Sequence[Value], nearby: int) -> Value:
    """Return, one cycle later, a bit for each of the ``flags``: whether it or any flag of higher index is set.

    Groups of ``nearby`` flags are combined in this cycle, and the groups in the next.
    """
    ends = [first + nearby for first in range(0, len(flags), nearby)]
    near = Cat(Cat(flags[bit : ends[bit // nearby]]).any() for bit in range(len(flags)))
    near = delayed(m, name, near, 1)
    return Cat(
        named(near[bit] | Cat(near[end] for end in ends[bit // nearby : -1]).any(), "is_at_least")
        for bit in range(len(flags))
    )


def add_rounding(
    m: Module, name: str, value: Value, excess: int, *, settles: bool = False, rounds: Value | None = None
) -> Value:
    """Add logic that rounds an integer ``value`` to float32's 24 significant bits, ties to even; return the result.

    It is one cycle later. At most ``excess`` bits of ``value`` are dropped. To drop ``j`` bits, half of
    their range minus one is added, plus the lowest kept bit. This cycle selects the lowest kept bit within groups of
    lengths, and the next cycle selects the group. With ``settles``, the addition follows one cycle later, so that the
    rounded value is two cycles later. If the flag ``rounds`` is 0, ``value`` is returned unchanged.
    """
    lengths = range(1, excess + 1)
    significant = [value[SIGNIFICAND_BITS + j - 1] ^ value[-1] for j in lengths]
    used = named([bit if rounds is None else bit & rounds for bit in significant], "is_dropped")
    dropped = _suffix_or(m, f"{name}_dropped_bits", used, nearby=NEARBY if settles else excess)  # bit j - 1: drop j
    odd: Value = Const(0, 1)
    for first in range(0, excess, LENGTHS):
        lowest_kept: Value = Const(0, 1)
        for j in lengths[first : first + LENGTHS]:
            lowest_kept = Mux(used[j - 1], value[j], lowest_kept)
        odd = named(Mux(dropped[first], delayed(m, f"{name}_lowest_bit_{first}", lowest_kept, 1), odd), "odd_bit")
    exact = delayed(m, f"{name}_exact_sum_delayed", value, 1)
    if settles:
        odd, dropped = (
            delayed(m, f"{name}_lowest_bit_settled", odd, 1),
            delayed(m, f"{name}_dropped_bits_settled", dropped, 1),
        )
        exact = delayed_fast(m, f"{name}_exact_sum_settled", exact, 1)
    total = named((Cat(1, exact).as_signed() + Cat(odd, dropped[1:]))[1:], "rounded_sum")
    return Cat(total[:excess] & ~dropped, total[excess:]).as_signed()
