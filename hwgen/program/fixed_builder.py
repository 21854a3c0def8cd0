"""Builder of programs for the engine's fixed-point unit: instructions, constants and lookup tables."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LOOKUP_WORDS
from hwgen.gateware.engine.fixed_unit import (
    FACTOR_BITS,
    MAX_INSTRUCTIONS,
    MAX_SHIFT,
    MAX_SLOTS,
    VALUE_BITS,
    Opcode,
    Rounding,
    instruction_word,
)
from hwgen.gateware.rounding import to_float32
from hwgen.gateware.threshold import first_sums
from hwgen.network.maps import IntegerType, Requantisation, signed_bits
from hwgen.network.maps import Rule as OutputRule
from hwgen.network.ops import fixed_point as steps
from hwgen.network.ops.fixed_point import Range
from hwgen.program.array_pass import FixedProgram
from hwgen.program.layout import value_bytes

#: Maximum numbers of lookup words and constants per program of the fixed-point unit.
MAX_LOOKUPS, MAX_CONSTANTS = LOOKUP_WORDS[-1], 32
#: Numbers of fractional bits that a value gets, in this order, until a line gives the index of its step.
_EXTRA_BITS = (0, 12, 20)
#: Reason, for error messages, why the engine refuses a layer: its rounding can't be reproduced exactly.
OTHER_ROUNDING = (
    "the engine can't round this layer's sums exactly as the model does, which rounds products once, or begins outputs "
    "at sums of its own; use --template stream"
)


class RegisterValue:
    """Value in a fixed-point program: its register slot, its integer range, and whether one pixel serves all."""

    def __init__(self, slot: int, ends: Range, is_pixel: bool = False):
        self.slot, self.ends, self.is_pixel = slot, ends, is_pixel


class FixedProgramBuilder:
    """Builder of a program for the engine's fixed-point unit: adds instructions, constants and lookup tables.

    Parameters
    ----------
    name : str
        Name of the layer, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._words: list[int] = []
        self._constants: list[np.ndarray] = []
        self._lookups: list[int] = []
        self._bases: dict[tuple[int, ...], int] = {}
        self._used: set[int] = set()
        self._slots = 0

    def refuse(self, reason: str) -> ModelError:
        """Return (not raise) a `ModelError`: the fixed-point unit can't compute the layer, for a reason."""
        return ModelError(f"{self._name}: {reason}; use --template stream")

    def arrive(self, ends: Range, *, is_pixel: bool = False) -> RegisterValue:
        """Return a `RegisterValue`: an operand that the unit receives, in a register slot, before the program."""
        return RegisterValue(self._free_slot(), ends, is_pixel)

    def _free_slot(self) -> int:
        """Reserve the first free register slot and return its index; refuse the layer if there is none."""
        slot = next(slot for slot in range(len(self._used) + 1) if slot not in self._used)
        self._used.add(slot)
        self._slots = max(self._slots, slot + 1)
        if self._slots > MAX_SLOTS:
            raise self.refuse(
                f"the engine's fixed-point unit holds {MAX_SLOTS} values at a time, and this layer needs more"
            )
        return slot

    def release(self, value: RegisterValue) -> None:
        """Free the register slot of a value that no later instruction reads."""
        self._used.discard(value.slot)

    def add_constant(self, values: np.ndarray, shifts: np.ndarray | int = 0) -> int:
        """Add a constant with its shift, for all channels or one per channel, unless present; return its index."""
        word = np.asarray(values, np.int64) & (1 << VALUE_BITS) - 1 | np.asarray(shifts, np.int64) << VALUE_BITS
        word = word.reshape(-1)
        for index, known in enumerate(self._constants):
            if np.array_equal(known, word):
                return index
        self._constants.append(word)
        return len(self._constants) - 1

    def add(
        self, code: Opcode, ends: Range, first: RegisterValue, second: RegisterValue | int | np.ndarray, **extra: int
    ) -> RegisterValue:
        """Add an instruction with two operands (the second may be a constant); return a `RegisterValue`: its result.

        ``ends`` are the smallest and the largest possible result.
        """
        operand = {"first": first.slot, "first_is_pixel": first.is_pixel}
        if isinstance(second, RegisterValue):
            operand |= {"second": second.slot, "second_is_pixel": second.is_pixel}
        elif "constant" not in extra:
            operand |= {"second_is_constant": 1, "constant": self.add_constant(np.array(second))}
        if signed_bits(*ends) > VALUE_BITS:
            raise self.refuse(
                f"the engine's fixed-point unit computes values of {VALUE_BITS} bits, and this layer needs more"
            )
        result = RegisterValue(self._free_slot(), ends)
        self._words.append(instruction_word(code=code, target=result.slot, **operand, **extra))
        return result

    def plus(
        self, first: RegisterValue, second: RegisterValue | int | np.ndarray, sign: int = 1, ends: Range | None = None
    ) -> RegisterValue:
        """Add an instruction: sum or difference of a value and a value or constant; return a `RegisterValue`."""
        low, high = second.ends if isinstance(second, RegisterValue) else (int(np.min(second)), int(np.max(second)))
        added_low, added_high = sorted((sign * low, sign * high))
        ends = ends or (first.ends[0] + added_low, first.ends[1] + added_high)
        return self.add(Opcode.ADD if sign > 0 else Opcode.SUBTRACT, ends, first, second)

    def plus_in_float32(self, first: RegisterValue, second: RegisterValue) -> RegisterValue:
        """Add an instruction; return a `RegisterValue`: two values' sum, rounded to 24 significant bits (float32)."""
        low, high = (sum(ends) for ends in zip(first.ends, second.ends, strict=True))
        total = self.add(Opcode.ADD_FLOAT, (low, high), first, second)
        total.ends = to_float32(low), to_float32(high)
        return total

    def limit(self, value: RegisterValue, low: int, high: int) -> RegisterValue:
        """Add the instructions that clamp a value to bounds that it can exceed; return a `RegisterValue`."""
        for code, bound, acts in (
            (Opcode.MAXIMUM, low, value.ends[0] < low),
            (Opcode.MINIMUM, high, value.ends[1] > high),
        ):
            if acts:
                function = max if code == Opcode.MAXIMUM else min
                ends = function(value.ends[0], bound), function(value.ends[1], bound)
                self.release(value)
                value = self.add(code, ends, value, bound)
        return value

    def times(
        self,
        first: RegisterValue,
        second: RegisterValue | np.ndarray,
        shift: int = 0,
        rounding: Rounding = Rounding.UPWARDS,
    ) -> RegisterValue:
        """Add instructions; return a `RegisterValue`: ``first * second / 2**shift``, rounded."""
        if not isinstance(second, RegisterValue):
            ends = int(second.min()), int(second.max())
            if signed_bits(*ends) > FACTOR_BITS:
                raise self.refuse(
                    f"the engine's fixed-point unit multiplies by factors of at most {FACTOR_BITS} bits, not of "
                    f"{signed_bits(*ends)}"
                )
            return self.add(
                Opcode.MULTIPLY,
                _quotient_range(first.ends, ends, shift, rounding),
                first,
                second,
                shift=shift,
                rounding=rounding,
            )
        if signed_bits(*second.ends) > signed_bits(*first.ends):
            first, second = second, first
        if signed_bits(*second.ends) > FACTOR_BITS:
            return self._times_in_halves(first, second, shift, rounding)
        ends = _quotient_range(first.ends, second.ends, shift, rounding)
        return self.add(Opcode.MULTIPLY, ends, first, second, shift=shift, rounding=rounding)

    def _times_in_halves(
        self, first: RegisterValue, second: RegisterValue, shift: int, rounding: Rounding
    ) -> RegisterValue:
        """Return a `RegisterValue`: ``first * second / 2**shift``, with ``second`` as ``upper * 2**half + lower``.

        Rounded down, ``first * lower / 2**half`` does not change the quotient.
        """
        bits = signed_bits(*second.ends)
        half = max(bits - FACTOR_BITS, bits + signed_bits(*first.ends) + 1 - VALUE_BITS)
        if shift <= half or rounding == Rounding.EVEN:
            raise self.refuse(
                f"the engine's fixed-point unit multiplies by values of at most {FACTOR_BITS} bits, not of {bits}, and "
                f"this product is divided by 2**{shift}, too little to leave bits out"
            )
        upper = self.times(second, np.array(1), half, Rounding.DOWN)
        whole = self.times(upper, np.array(1 << half))
        lower = self.plus(second, whole, -1, (0, (1 << half) - 1))
        self.release(whole)
        low = self.times(first, lower, half, Rounding.DOWN)
        self.release(lower)
        high = self.times(first, upper)
        self.release(upper)
        total = self.plus(high, low)
        self.release(high)
        self.release(low)
        self.release(total)
        return self.times(total, np.array(1), shift - half, rounding)

    def scale(self, value: RegisterValue, bits: int) -> RegisterValue:
        """Add an instruction; return a `RegisterValue`: a value divided by ``2**bits``, rounded (ties upwards)."""
        if -bits >= FACTOR_BITS - 1 or bits > MAX_SHIFT:
            raise self.refuse(
                f"the engine's fixed-point unit shifts left by at most {FACTOR_BITS - 2} bits and right by at most "
                f"{MAX_SHIFT}, and this layer shifts {'left' if bits < 0 else 'right'} by {abs(bits)}"
            )
        return self.times(value, np.array(1 << max(-bits, 0)), max(bits, 0))

    def look_up(self, value: RegisterValue, words: Sequence[int], low: int) -> RegisterValue:
        """Add a lookup instruction; return a `RegisterValue`: the entry in ``words``, whose first is for ``low``."""
        base = self._bases.setdefault(tuple(words), len(self._lookups))
        if base == len(self._lookups):
            self._lookups += words
        if len(self._lookups) > MAX_LOOKUPS:
            raise self.refuse(
                f"the engine's fixed-point unit holds {MAX_LOOKUPS:,} words of tables and curves, and this layer needs "
                "more"
            )
        return self.add(Opcode.LOOK_UP, (min(words), max(words)), value, 0, constant=0, base=(base - low) % MAX_LOOKUPS)

    def curve(self, value: RegisterValue, step: steps.Curve) -> RegisterValue:
        """Add the instructions of a piecewise quadratic function of a value; return a `RegisterValue`."""
        size, (first, last) = step.segment_bits, _varying_segments(step)
        place = self.plus(value, -step.low - (first << size))
        place = self.limit(place, 0, min((last + 1 << size) - 1, step.high - step.low) - (first << size))
        segment = self.times(place, np.array(1), size, Rounding.DOWN)
        begin = self.times(segment, np.array(1 << size))
        self.release(place)
        inside = self.plus(place, begin, -1, (0, (1 << size) - 1))
        self.release(begin)
        constant, linear, square = step.coefficients[:, first : last + 1]
        if len(self._lookups) + 3 * len(constant) > MAX_LOOKUPS:
            square_value, linear_value = self._look_up_pair(segment, square, linear)
        else:
            square_value, linear_value = (self.look_up(segment, words.tolist(), 0) for words in (square, linear))
        slope = self._line(square_value, inside, size, linear_value, step.stages[0])
        total = self._line(slope, inside, 0, self.look_up(segment, constant.tolist(), 0), step.stages[1])
        self.release(segment)
        self.release(inside)
        self.release(total)
        return self.times(total, np.array(1), size + step.guard, Rounding.DOWN)

    def _line(
        self, slope: RegisterValue, place: RegisterValue, shift: int, start: RegisterValue, ends: Range
    ) -> RegisterValue:
        """Add instructions; return a `RegisterValue`: ``(slope * place >> shift) + start``; free operands' slots."""
        self.release(slope)
        moved = self.times(slope, place, shift, Rounding.DOWN)
        self.release(moved)
        self.release(start)
        return self.plus(moved, start, ends=ends)

    def _look_up_pair(
        self, index: RegisterValue, upper: np.ndarray, lower: np.ndarray
    ) -> tuple[RegisterValue, RegisterValue]:
        """Add a lookup in words of two entries each; return a pair: the values ``upper[index]``, ``lower[index]``."""
        base = int(lower.min())
        bits = int(lower.max() - base).bit_length()
        both = self.look_up(index, ((upper << bits) + lower - base).tolist(), 0)
        high = self.times(both, np.array(1), bits, Rounding.DOWN)
        whole = self.times(high, np.array(1 << bits))
        self.release(both)
        rest = self.plus(both, whole, -1, (0, (1 << bits) - 1))
        self.release(whole)
        self.release(rest)
        return high, self.plus(rest, base)

    def requantise(self, value: RegisterValue, rule: OutputRule | None) -> RegisterValue:
        """Add instructions that requantise a value by a layer's rule, and free its slot; return a `RegisterValue`."""
        if rule is None:
            return value
        if not isinstance(rule, Requantisation) or rule.float32:
            raise ModelError(f"{self._name}: {OTHER_ROUNDING}")
        bits = signed_bits(*value.ends) + 24
        has_limited_shift = int(rule.shift.max()) > MAX_SHIFT  # the quotient is 0 if the products have fewer bits
        if (has_limited_shift and bits > MAX_SHIFT) or bits - int(rule.shift.min()) >= VALUE_BITS:
            raise self.refuse(
                f"the engine's fixed-point unit has {VALUE_BITS} bits, too few for the products of this layer's "
                f"requantisation ({bits} bits)"
            )
        shift = np.minimum(rule.shift, MAX_SHIFT)
        ends = _quotient_range(value.ends, (0, (1 << 24) - 1), int(shift.min()), Rounding.EVEN)
        value = self.scale_channels(value, rule.significand, shift, ends, Rounding.EVEN)
        if rule.zero_point:
            self.release(value)
            value = self.plus(value, rule.zero_point)
        return self.limit(value, rule.low, rule.high)

    def step_function(self, value: RegisterValue, function: Callable[[np.ndarray], np.ndarray]) -> RegisterValue:
        """Add instructions of a step function (almost equal steps); return a `RegisterValue`; free the value's slot.

        The function converts an array of values to integers, and does not fall. A line tells the index of the last step
        below the value, or of the step after it. The comparison with that step decides.
        """
        low, high = (int(function(np.array(end))) for end in value.ends)
        firsts = first_sums(function, *value.ends, np.arange(low + 1, high + 1))
        if not firsts:
            self.release(value)
            return self.plus(self.times(value, np.array(0)), low)
        lines = ((bits, _line_of_steps([first << bits for first in firsts], 1 << bits)) for bits in _EXTRA_BITS)
        bits, line = next(((bits, line) for bits, line in lines if line), (0, None))
        if line is None:
            raise self.refuse(
                "the engine's fixed-point unit computes only functions whose output steps are almost equally wide in "
                "the input, and this layer's are not"
            )
        self.release(value)
        value = self.scale(value, -bits)
        place = self.plus(value, line.offset)
        self.release(place)
        step = self.limit(self.times(place, np.array(line.factor), line.shift, Rounding.DOWN), 0, len(firsts) - 1)
        first = self.look_up(step, [first << bits for first in firsts], 0)
        self.release(value)
        self.release(first)
        above = self.plus(value, first, -1)
        self.release(above)
        sign = self.times(above, np.array(1), MAX_SHIFT, Rounding.DOWN)
        self.release(sign)
        self.release(step)
        result = self.plus(step, sign, ends=(-1, len(firsts) - 1))
        self.release(result)
        return self.plus(result, low + 1)

    def scale_channels(
        self, value: RegisterValue, factors: np.ndarray, shifts: np.ndarray, ends: Range, rounding: Rounding
    ) -> RegisterValue:
        """Return a `RegisterValue`: ``value * factors / 2**shifts`` by channel, rounded; free the value's slot."""
        index = self.add_constant(factors, shifts)
        self.release(value)
        operands = {"second_is_constant": 1, "shift_is_constant": 1, "constant": index}
        return self.add(Opcode.MULTIPLY, ends, value, 0, rounding=rounding, **operands)

    def weighted_sum(self, terms: Sequence[tuple[IntegerType, int]]) -> RegisterValue:
        """Add operands and the instructions for their sum times constant weights; return a `RegisterValue`.

        ``terms`` are the type and the weight of each value, in the order of arrival.
        """
        values = [self.arrive((kind.minimum, kind.maximum)) for kind, _ in terms]
        total = None
        for value, (_, weight) in zip(values, terms, strict=True):
            self.release(value)
            product = self.times(value, np.array(weight))
            if total is not None:
                self.release(total)
                self.release(product)
            total = product if total is None else self.plus(total, product)
        assert total is not None
        return total

    def finish(self, value: RegisterValue, kind: IntegerType, row: int | None = None) -> FixedProgram:
        """Add the instructions that write the output value's bytes, highest first; return the `FixedProgram`.

        With ``row``, the program only writes that byte, 0 for the highest.
        """
        size = value_bytes(kind)
        rows = range(size) if row is None else range(row, row + 1)
        for target, row in enumerate(rows):
            flips = row > 0 or not kind.signed
            self._words.append(
                instruction_word(
                    code=Opcode.WRITE,
                    first=value.slot,
                    first_is_pixel=value.is_pixel,
                    second=len(rows) - 1,
                    target=target,
                    shift=size - 1 - row,
                    rounding=flips,
                )
            )
        if len(self._constants) > MAX_CONSTANTS:
            raise self.refuse(
                f"the engine's fixed-point unit holds {MAX_CONSTANTS} constants, and this layer needs "
                f"{len(self._constants)}"
            )
        if len(self._words) > MAX_INSTRUCTIONS:
            raise self.refuse(
                f"the engine's fixed-point unit executes {MAX_INSTRUCTIONS} instructions, and this layer needs "
                f"{len(self._words)}"
            )
        widest = max((len(each) for each in self._constants), default=1)
        constants = [np.broadcast_to(each, (widest,)) for each in self._constants]
        return FixedProgram(
            words=np.array(self._words),
            constants=np.array(constants, np.int64).reshape(len(constants), widest),
            lookups=np.array(self._lookups, np.int64),
            slots=self._slots,
        )


def _varying_segments(step: steps.Curve) -> tuple[int, int]:
    """Return a pair of segment indices: one before a curve's first varying segment, and one after its last one.

    The curve is constant up to the end of the first one, and starting at the beginning of the second one.
    """
    constant, linear, square = step.coefficients
    length, shift = 1 << step.segment_bits, step.segment_bits + step.guard
    least = constant + length * np.minimum(linear + np.minimum(square, 0) - 1, 0) >> shift
    greatest = constant + length * np.maximum(linear + np.maximum(square, 0), 0) >> shift
    from_first, from_last = ((least == end) & (greatest == end) for end in (least[0], greatest[-1]))
    first, last = (int(np.argmin(np.append(flat, False))) for flat in (from_first, from_last[::-1]))
    return max(first - 1, 0), len(constant) - 1 - max(last - 1, 0)


def _quotient_range(first: Range, second: Range, shift: int, rounding: Rounding) -> Range:
    """Return a pair: smallest and largest ``rounded(a * b / 2**shift)`` for ``a`` and ``b`` in given ranges."""
    products = [a * b for a in first for b in second]
    return min(products) >> shift, (max(products) >> shift) + (rounding != Rounding.DOWN and shift > 0)


@dataclass(frozen=True)
class _Line:
    """Line through the steps of a function: ``(value + offset) * factor >> shift`` is almost the index of a step."""

    offset: int
    factor: int
    shift: int


def _line_of_steps(firsts: Sequence[int], unit: int) -> _Line | None:
    """Return a `_Line` from a value to the index of the last step up to it, or of the next; ``None`` if none fits all.

    ``firsts`` are the smallest values of the steps, in ascending order. Values are multiples of ``unit``. Indices below
    0 stand for 0, and those behind the last step for the last one.
    """
    last = len(firsts) - 1
    lows = [(first, bisect_right(firsts, first) - 1) for first in firsts]  # least index at a value
    highs = [(first - unit, bisect_left(firsts, first) + 1) for first in firsts]  # the index is less at this value
    lows, highs = [low for low in lows if low[1] > 0], [high for high in highs if high[1] <= last]
    slope = _middle_slope(np.array(lows, float).reshape(-1, 2), np.array(highs, float).reshape(-1, 2), unit)
    if slope is None:
        return None
    _, exponent = np.frexp(slope)
    shift = min(max(FACTOR_BITS - 2 - int(exponent), 0), MAX_SHIFT)
    factor = max(round(slope * (1 << shift)), 1)
    least = [-(-(index << shift) // factor) - place for place, index in lows] or [-firsts[0]]
    most = [((index << shift) - 1) // factor - place for place, index in highs] or [max(least)]
    return _Line((max(least) + min(most)) // 2, factor, shift) if max(least) <= min(most) else None


def _middle_slope(lows: np.ndarray, highs: np.ndarray, unit: int) -> float | None:
    """Return the middle slope of all lines above points ``lows`` and below ``highs``; ``None`` if there is no line.

    Points are pairs ``(n, 2)`` of a place and a height.
    """
    run, rise = (highs[:, None, axis] - lows[None, :, axis] for axis in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = rise / run
    least, most = slopes[run < 0].max(initial=0), slopes[run > 0].min(initial=np.inf)
    if least > most:
        return None
    return float((least + most) / 2) if np.isfinite(most) else float(least + 1 / unit)
