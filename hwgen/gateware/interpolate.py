"""Weighted sums of four neighbouring pixels, for a linear Resize: exact in integers, or in float32 as ONNX Runtime.

Weights are small integers, so that products are sums of shifted values, without multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Shape, Signal, Value, signed, unsigned

from hwgen.errors import ConfigError
from hwgen.gateware.average import LENGTHS, add_rounding
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import by_bits, delayed, delayed_fast, look_up, registered
from hwgen.gateware.resample import ResampleConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS, signed_bits

#: Maximum number of bits of a sum that two cycles can round away; a rounding of more bits takes a third cycle.
_QUICK = 8
#: Number of pixels that an output pixel is interpolated from: two of each of two rows.
TAPS = 4


@dataclass(frozen=True, kw_only=True)
class WeightedSumConfig(Weightless):
    """Configuration of an exact linear Resize: each output pixel is a weighted integer sum of 2 x 2 input pixels.

    Parameters
    ----------
    window : ResampleConfig
        Source of the steps, with four pixels and two phases.
    row_weights, column_weights : tuple of int
        For each phase of a row and of a column: weight of the next row, and of the next column.
    axis_parts : tuple of int
        Sum of the weights of both rows, and of both columns.

    Raises
    ------
    ConfigError
        If steps have one pixel, or there is not one weight from 0 to ``axis_parts`` for each phase.
    """

    operation = "interpolation"

    window: ResampleConfig
    row_weights: tuple[int, ...]
    column_weights: tuple[int, ...]
    axis_parts: tuple[int, int]

    def __post_init__(self) -> None:
        window = self.window
        if not window.is_linear:
            raise ConfigError(f"window must have row_phases or column_phases to interpolate, not {window!r}")
        for name, weights, phases, parts in (
            ("row_weights", self.row_weights, window.row_phases, self.axis_parts[0]),
            ("column_weights", self.column_weights, window.column_phases, self.axis_parts[1]),
        ):
            if len(weights) != max(phases) + 1:
                raise ConfigError(f"{name} must have one weight per phase ({max(phases) + 1}), not {len(weights)}")
            if min(weights) < 0 or max(weights) > parts:
                raise ConfigError(f"{name} must be from 0 to {parts}, not {min(weights)} to {max(weights)}")

    @cached_property
    def digits(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """``axis_parts`` as sums of signed powers of two, (exponent, sign): a tuple for rows, and one for columns."""
        return tuple(_signed_digits(parts) for parts in self.axis_parts)

    @property
    def levels(self) -> tuple[int, ...]:
        """Numbers of levels (cycles) of the adder trees that interpolate between rows and between columns, a pair."""
        return tuple(
            (len(digits) + _bits(weights) - 1).bit_length()
            for digits, weights in zip(self.digits, self.weight_tables(), strict=True)
        )

    @property
    def latency(self) -> int:
        """Cycles from four pixels at ``i`` to their sums at ``o``: a difference and an adder tree per axis."""
        return 2 + sum(self.levels)

    @property
    def sum_range(self) -> tuple[int, int]:
        """Smallest and largest possible weighted sum of four pixels, as a pair of integers."""
        lowest, highest = self.window.input.value_range
        scale = self.axis_parts[0] * self.axis_parts[1]
        return lowest * scale, highest * scale

    @property
    def result(self) -> Shape:
        """Amaranth shape (signed) of a weighted sum of four pixels, not yet divided by the sum of weights."""
        return signed(signed_bits(*self.sum_range))

    def weight_tables(self) -> list[tuple[int, ...]]:
        """Return a list of two tables (tuples) of integer weights by phase (place between pixels): rows, columns."""
        return [self.row_weights, self.column_weights]

    @cached_property
    def resources(self) -> Resources:
        one, cost = Cost(self.device), Cost(self.device, ff=self.latency)
        bits = self.window.input.bits + (not self.window.input.signed)
        # Rows are interpolated in both columns of a window, and then the two results between the columns: the first
        # value times ``axis_parts`` (a shifted copy per signed digit) plus the difference times the weight (a shifted
        # copy per bit of the weight).
        for axis, copies in ((0, 2), (1, 1)):
            terms = [range(place, bits + place) for place, _ in self.digits[axis]]
            terms += [range(place, bits + 1 + place) for place in range(_bits(self.weight_tables()[axis]))]
            part = Cost(self.device)
            part.registers(bits + 1)  # the difference of two values
            part.ff += bits  # the first value, delayed like the difference
            add_tree_cost(part, terms)
            one.add(part, copies)
            bits += self.axis_parts[axis].bit_length()
        for table in self.weight_tables():
            cost.table(table, _bits(table))
        cost.delay_fast(_bits(self.column_weights), 1 + self.levels[0])
        cost.add(one, self.lanes)
        return cost.resources

    def component(self) -> WeightedSum:
        return WeightedSum(self)


@dataclass(frozen=True, kw_only=True)
class FloatWeightedSumConfig(WeightedSumConfig):
    """Configuration of a linear Resize in float32: weighted sums of 2 x 2 input pixels, rounded as in ONNX Runtime.

    The pixels' terms are multiplied by the weights of their column and row, and added in row-major order. Each product
    and each sum is rounded to 24 significant bits, ties to even.

    Parameters
    ----------
    terms : tuple of int
        Term of each value, ascending, of at most 24 significant bits.

    Raises
    ------
    ConfigError
        If the terms are not one for each value, or the parts are not powers of two.
    """

    terms: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.terms) != 1 << self.window.input.bits:
            raise ConfigError(
                f"terms must have one entry per value ({1 << self.window.input.bits}), not {len(self.terms)}"
            )
        if any(parts & (parts - 1) for parts in self.axis_parts):
            raise ConfigError(f"axis_parts must be powers of two, not {self.axis_parts!r}")

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(max((parts.bit_length() - 1).bit_length(), 1) for parts in self.axis_parts)

    @property
    def sum_range(self) -> tuple[int, int]:
        scale = self.axis_parts[0] * self.axis_parts[1]
        lowest, highest = min(0, *self.terms) * scale, max(0, *self.terms) * scale
        # Each of seven roundings adds at most 2**-24 of its operand.
        return lowest + (lowest >> 20), highest + (highest >> 20) + (highest > 0)

    @property
    def excess(self) -> int:
        """Maximum number of low bits that the rounding of a product or a sum to float32 drops."""
        return max(0, max(abs(end).bit_length() for end in self.sum_range) - SIGNIFICAND_BITS)

    @property
    def rounding_cycles(self) -> int:
        """Number of cycles that rounding a product or a sum to float32 takes; 0 if no value needs rounding."""
        return 0 if self.excess == 0 else 2 + (self.excess > _QUICK)

    @property
    def arrivals(self) -> tuple[int, ...]:
        """Tuple of each pixel's delay in cycles (four), such that its product meets the previous pixels' sum."""
        return (0, *(index * (1 + self.rounding_cycles) for index in range(TAPS - 1)))

    @property
    def latency(self) -> int:
        """Cycles from four pixels at ``i`` to their sum at ``o``: lookup, two adder trees, 4 roundings, 3 additions."""
        return 1 + sum(self.levels) + self.rounding_cycles + (TAPS - 1) * (1 + self.rounding_cycles)

    @property
    def term_shape(self) -> Shape:
        """Amaranth shape (signed) of a pixel's term, the integer that a lookup table returns for its value."""
        return signed(signed_bits(min(self.terms), max(self.terms)))

    def weight_tables(self) -> list[tuple[int, ...]]:
        return [
            tuple(weight if next_one else parts - weight for weight in weights)
            for weights, parts in zip((self.row_weights, self.column_weights), self.axis_parts, strict=True)
            for next_one in (False, True)
        ]

    @cached_property
    def resources(self) -> Resources:
        source, one, cost = self.window.input, Cost(self.device), Cost(self.device, ff=self.latency)
        one.table(by_bits(self.terms, signed=source.signed), self.term_shape.width, copies=TAPS)
        sum_bits = self.result.width
        tables = self.weight_tables()
        for tap, wait in enumerate(self.arrivals):
            one.delay(source.bits, max(wait - 1, 0))
            one.ff += source.bits * (wait > 0)
            bits = self.term_shape.width
            for table in (tables[2 + tap % 2], tables[tap // 2]):
                add_tree_cost(one, [range(place, bits + place) for place in range(_bits(table))])
                bits += _bits(table) - 1
            self._add_rounding_cost(one, sum_bits)
        for _ in range(TAPS - 1):
            one.registers(sum_bits)
            self._add_rounding_cost(one, sum_bits)
        cost.add(one, self.lanes)
        for table in tables:
            cost.table(table, _bits(table))
        for tap, wait in enumerate(self.arrivals):
            cost.delay_fast(_bits(tables[tap // 2]), wait + self.levels[1])
            if wait:
                cost.delay_fast(_bits(tables[2 + tap % 2]), wait)
        return cost.resources

    def _add_rounding_cost(self, cost: Cost, bits: int) -> None:
        """Add to ``cost`` the circuit that rounds one number of ``bits`` bits to float32."""
        if self.excess:
            cost.ff += 2 * bits + self.excess + -(-self.excess // LENGTHS)
            cost.lut += bits + self.excess
        if self.excess > _QUICK:
            cost.ff += bits + self.excess + 1

    def component(self) -> FloatWeightedSum:
        return FloatWeightedSum(self)


def _bits(weights: Sequence[int]) -> int:
    """Return the width in bits of the largest of the ``weights``, at least 1."""
    return max(1, *weights).bit_length()


def _signed_digits(constant: int) -> tuple[tuple[int, int], ...]:
    """Return a tuple: a positive constant's shortest signed binary form, (exponent, sign) of each power of two.

    No two exponents are neighbours (non-adjacent form).
    """
    digits, place = [], 0
    while constant:
        if constant % 2:
            sign = 2 - constant % 4
            digits.append((place, sign))
            constant -= sign
        constant, place = constant // 2, place + 1
    return tuple(digits)


def add_tree_cost(cost: Cost, terms: Sequence[range]) -> None:
    """Add to ``cost`` a registered adder tree (`add_tree`) over terms, each given as the range of its varying bits.

    Many terms are a value or 0. Synthesis often makes the two functions of a bit of such a sum, carry and sum, in a LUT
    each.
    """
    terms, gated = list(terms), 1.0
    while gated or len(terms) > 1:
        sums = []
        for first, *others in (terms[index : index + 2] for index in range(0, len(terms), 2)):
            bits = range(first.start, first.stop)
            for second in others:
                bits = range(min(first.start, second.start), max(first.stop, second.stop) + 1)
                cost.lut += (1 + gated) * (bits.stop - max(first.start, second.start))
            cost.ff += len(bits)
            sums.append(bits)
        terms, gated = sums, 0.0


def add_tree(m: Module, name: str, terms: Sequence[Value]) -> Value:
    """Add an adder tree with registers on each level; return the sum of ``terms``, as many cycles later as levels.

    A single term takes one cycle.
    """
    level = 0
    while level == 0 or len(terms) > 1:
        sums = []
        for index in range(0, len(terms), 2):
            total = terms[index] + terms[index + 1] if index + 1 < len(terms) else terms[index]
            register = registered(m, f"{name}_level_{level}_{index // 2}", total, total.shape())
            sums.append(register)
        terms, level = sums, level + 1
    return terms[0]


def _weighted_terms(value: Value, weight: Value) -> list[Value]:
    """Return a list of partial products: for each bit of ``weight``, the shifted ``value`` or 0."""
    return [Mux(weight[place], value.as_signed() << place, 0) for place in range(len(weight))]


class WeightedSum(Arithmetic[WeightedSumConfig]):
    """Component that interpolates an output pixel, exactly in integers: first between two rows, then between columns.

    Between two values, the sum is the first value times all parts, plus the difference times the second value's weight.

    Parameters
    ----------
    config : WeightedSumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `ResampleUnit`.
    o : Out(stream, always ready)
        ``Tn`` sums, ``[lane][0]``.

    Latency and throughput
        One step per cycle. Sums leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config, step = self.config, self.i.payload
        row_weight, column_weight = (
            look_up(m, config.device, f"{axis}_weights", unsigned(_bits(table)), table, phase)
            for axis, table, phase in zip(
                ("row", "column"), config.weight_tables(), (step.row_phase, step.column_phase), strict=True
            )
        )
        # The last stage is a register: a shift register would be too slow.
        column_weight = delayed_fast(m, "column_weight", column_weight, 1 + config.levels[0])
        for lane in range(config.lanes):
            taps = [step.taps[tap][lane] for tap in range(TAPS)]
            sides = [
                self._interpolate_pair(m, f"lane_{lane}_side_{side}", 0, taps[side], taps[2 + side], row_weight)
                for side in range(2)
            ]
            total = self._interpolate_pair(m, f"lane_{lane}", 1, sides[0], sides[1], column_weight)
            m.d.comb += self.o.payload[lane][0].eq(total)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        return m

    def _interpolate_pair(self, m: Module, name: str, axis: int, first: Value, second: Value, weight: Value) -> Value:
        """Add a circuit that interpolates two values by row (0) or column (1); return the weighted sum, undivided.

        ``weight`` belongs to ``second``, and is valid one cycle after the values.
        """
        difference = registered(m, f"{name}_difference", second - first, (second - first).shape())
        kept = delayed(m, f"{name}_first", first, 1)
        whole = [(kept << place) if sign > 0 else -(kept << place) for place, sign in self.config.digits[axis]]
        return add_tree(m, f"{name}_weighed", [*whole, *_weighted_terms(difference, weight)])


class FloatWeightedSum(Arithmetic[FloatWeightedSumConfig]):
    """Component that interpolates an output pixel in float32: adds four weighted pixels in order, rounding each sum.

    Parameters
    ----------
    config : FloatWeightedSumConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `ResampleUnit`.
    o : Out(stream, always ready)
        ``Tn`` sums, ``[lane][0]``.

    Latency and throughput
        One step per cycle. Sums leave ``config.latency`` cycles later. Never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config, step = self.config, self.i.payload
        phases = (step.row_phase, step.row_phase, step.column_phase, step.column_phase)
        weights = [
            look_up(m, config.device, f"weights_{index}", unsigned(_bits(table)), table, phase)
            for index, (table, phase) in enumerate(zip(config.weight_tables(), phases, strict=True))
        ]
        # The last stage is a register: a shift register would be too slow.
        row_weights = [
            delayed_fast(m, f"row_weight_{tap}", weights[tap // 2], wait + config.levels[1])
            for tap, wait in enumerate(config.arrivals)
        ]
        column_weights = [
            delayed_fast(m, f"column_weight_{tap}", weights[2 + tap % 2], wait) if wait else weights[2 + tap % 2]
            for tap, wait in enumerate(config.arrivals)
        ]
        for lane in range(config.lanes):
            products = [
                self._product(m, f"lane_{lane}_tap_{tap}", tap, step.taps[tap][lane], column_weight, row_weight)
                for tap, (column_weight, row_weight) in enumerate(zip(column_weights, row_weights, strict=True))
            ]
            total = products[0]
            for tap, product in enumerate(products[1:], start=1):
                exact = registered(m, f"lane_{lane}_sum_{tap}_exact", total + product, config.result)
                total = self._add_rounding(m, f"lane_{lane}_sum_{tap}", exact)
            m.d.comb += self.o.payload[lane][0].eq(total)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        return m

    def _product(self, m: Module, name: str, tap: int, value: Value, column_weight: Value, row_weight: Value) -> Value:
        """Add the circuit that multiplies a pixel's term by its column and row weights; return the rounded product."""
        config, wait = self.config, self.config.arrivals[tap]
        # The last stage is a register: a shift register before the table would be too slow.
        in_time = delayed_fast(m, f"{name}_value", value, wait) if wait else value
        words = by_bits(config.terms, signed=config.window.input.signed)
        term = look_up(m, config.device, f"{name}_terms", config.term_shape, words, in_time)
        weighed = self._add_multiplier(m, f"{name}_column", 1, term, column_weight)
        exact = Signal(config.result, name=f"{name}_product")
        m.d.comb += exact.eq(self._add_multiplier(m, f"{name}_row", 0, weighed, row_weight))
        return self._add_rounding(m, name, exact)

    def _add_multiplier(self, m: Module, name: str, axis: int, value: Value, weight: Value) -> Value:
        """Add a multiplier of ``value`` by the ``weight`` of a row (axis 0) or column (1); return the product.

        The product comes ``config.levels[axis]`` cycles later.
        """
        levels = max((len(weight) - 1).bit_length(), 1)
        return delayed(m, name, add_tree(m, name, _weighted_terms(value, weight)), self.config.levels[axis] - levels)

    def _add_rounding(self, m: Module, name: str, exact: Value) -> Value:
        """Add the rounding of ``exact`` to float32; return the result, ``config.rounding_cycles`` cycles later."""
        excess = self.config.excess
        if not excess:
            return exact
        register = Signal(self.config.result, name=f"{name}_rounded", reset_less=True)
        m.d.sync += register.eq(add_rounding(m, name, exact, excess, settles=excess > _QUICK))
        return register
