"""Programs of the engine's fixed-point unit: layers of fixed-point operations, and convolutions with wide outputs.

A map of more than 8 bits is wide. Memory stores each of its rows as one row per byte of a value, the highest byte
first. Each row is a row of a map of 8 bits for the rest of the engine.

A pass of the fixed-point unit has operands, each a channelwise pass that copies one map to the unit, byte by byte, or
one byte of it. A convolution has none: its sums go to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LANES, LOOKUP_WORDS
from hwgen.gateware.engine.fixed_unit import (
    FACTOR_BITS,
    LOOKUP_TABLE,
    MAX_INSTRUCTIONS,
    MAX_SHIFT,
    MAX_SLOTS,
    PROGRAM_TABLE,
    VALUE_BITS,
    Arrival,
    Code,
    Rounding,
    instruction_word,
)
from hwgen.network.maps import FeatureMap, IntegerType, Window, signed_bits
from hwgen.network.ops import Conv, FixedPoint, Lookup, MaxPool, Op, SumPool
from hwgen.network.ops import fixed_point as steps
from hwgen.network.ops.fixed_point import Range
from hwgen.network.requantise import Requantisation
from hwgen.network.requantise import Rule as OutputRule
from hwgen.program.array_pass import FixedProgram, LookupTables, Pass, unscaled_pass
from hwgen.program.layout import offset, value_bytes

#: Maximum numbers of lookup words and constants per program of the fixed-point unit.
MAX_LOOKUPS, MAX_CONSTANTS = LOOKUP_WORDS[-1], 32
#: Reason why the engine refuses a layer.
OTHER_ROUNDING = (
    "the engine can't round this layer's sums exactly as the model does, which rounds products once, or begins outputs "
    "at sums of its own; use --template stream"
)


class _Value:
    """Value in a fixed-point program: its register slot, its range, and whether one pixel's value serves all pixels."""

    def __init__(self, slot: int, ends: Range, is_pixel: bool = False):
        self.slot, self.ends, self.is_pixel = slot, ends, is_pixel


class _ProgramBuilder:
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
        self._used: set[int] = set()
        self._slots = 0

    def refuse(self, reason: str) -> ModelError:
        """Return the error that the fixed-point unit can't compute the layer, with a reason, to be raised."""
        return ModelError(f"{self._name}: {reason}; use --template stream")

    def arrive(self, ends: Range, *, is_pixel: bool = False) -> _Value:
        """Add an operand that the unit receives before the program begins, in a register slot; return it."""
        return _Value(self._free_slot(), ends, is_pixel)

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

    def release(self, value: _Value) -> None:
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

    def add(self, code: Code, ends: Range, first: _Value, second: _Value | int | np.ndarray, **extra: int) -> _Value:
        """Add an instruction with two operands (the second one can be a constant), and return its result.

        ``ends`` are the smallest and the largest possible result.
        """
        operand = {"first": first.slot, "first_is_pixel": first.is_pixel}
        if isinstance(second, _Value):
            operand |= {"second": second.slot, "second_is_pixel": second.is_pixel}
        elif "constant" not in extra:
            operand |= {"second_is_constant": 1, "constant": self.add_constant(np.array(second))}
        if signed_bits(*ends) > VALUE_BITS:
            raise self.refuse(
                f"the engine's fixed-point unit computes values of {VALUE_BITS} bits, and this layer needs more"
            )
        result = _Value(self._free_slot(), ends)
        self._words.append(instruction_word(code=code, target=result.slot, **operand, **extra))
        return result

    def plus(
        self, first: _Value, second: _Value | int | np.ndarray, sign: int = 1, ends: Range | None = None
    ) -> _Value:
        """Add an instruction that adds or subtracts a value or a constant; ``ends`` bound the result, if known."""
        low, high = second.ends if isinstance(second, _Value) else (int(np.min(second)), int(np.max(second)))
        added_low, added_high = sorted((sign * low, sign * high))
        ends = ends or (first.ends[0] + added_low, first.ends[1] + added_high)
        return self.add(Code.ADD if sign > 0 else Code.SUBTRACT, ends, first, second)

    def limit(self, value: _Value, low: int, high: int) -> _Value:
        """Add the instructions that clamp a value to constant bounds, if it can exceed them; return the result."""
        for code, bound, acts in (
            (Code.MAXIMUM, low, value.ends[0] < low),
            (Code.MINIMUM, high, value.ends[1] > high),
        ):
            if acts:
                function = max if code == Code.MAXIMUM else min
                ends = function(value.ends[0], bound), function(value.ends[1], bound)
                self.release(value)
                value = self.add(code, ends, value, bound)
        return value

    def times(
        self, first: _Value, second: _Value | np.ndarray, shift: int = 0, rounding: Rounding = Rounding.UPWARDS
    ) -> _Value:
        """Add the instructions for ``first * second / 2**shift``, rounded; ``second`` is a value or constants."""
        if not isinstance(second, _Value):
            ends = int(second.min()), int(second.max())
            if signed_bits(*ends) > FACTOR_BITS:
                raise self.refuse(f"the engine's fixed-point unit multiplies by factors of {FACTOR_BITS} bits")
            return self.add(
                Code.MULTIPLY,
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
        return self.add(Code.MULTIPLY, ends, first, second, shift=shift, rounding=rounding)

    def _times_in_halves(self, first: _Value, second: _Value, shift: int, rounding: Rounding) -> _Value:
        """Add the instructions for ``first * second / 2**shift``, with ``second`` as ``upper * 2**half + lower``.

        Rounded down, ``first * lower / 2**half`` does not change the quotient.
        """
        bits = signed_bits(*second.ends)
        half = max(bits - FACTOR_BITS, bits + signed_bits(*first.ends) + 1 - VALUE_BITS)
        if shift <= half or rounding == Rounding.EVEN:
            raise self.refuse(
                f"the engine's fixed-point unit multiplies by values of {FACTOR_BITS} bits, or shifts by more"
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

    def scale(self, value: _Value, bits: int) -> _Value:
        """Add an instruction that divides a value by ``2**bits``, rounded; negative ``bits`` multiply it."""
        if -bits >= FACTOR_BITS - 1 or bits > MAX_SHIFT:
            raise self.refuse(f"the engine's fixed-point unit shifts by {-bits} bits in several steps only")
        return self.times(value, np.array(1 << max(-bits, 0)), max(bits, 0))

    def look_up(self, value: _Value, words: Sequence[int], low: int) -> _Value:
        """Add a lookup of a value in the table ``words``, whose first entry is for the value ``low``."""
        base = len(self._lookups)
        self._lookups += words
        if len(self._lookups) > MAX_LOOKUPS:
            raise self.refuse(
                f"the engine's fixed-point unit holds {MAX_LOOKUPS:,} words of tables and curves, and this layer needs "
                "more"
            )
        return self.add(Code.LOOK_UP, (min(words), max(words)), value, 0, constant=0, base=(base - low) % MAX_LOOKUPS)

    def curve(self, value: _Value, step: steps.Curve) -> _Value:
        """Add the instructions that compute a piecewise quadratic function of a value; return the result."""
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

    def _line(self, slope: _Value, place: _Value, shift: int, start: _Value, ends: Range) -> _Value:
        """Return ``(slope * place >> shift) + start``, within ``ends``; the slots of slope and start become free."""
        self.release(slope)
        moved = self.times(slope, place, shift, Rounding.DOWN)
        self.release(moved)
        self.release(start)
        return self.plus(moved, start, ends=ends)

    def _look_up_pair(self, index: _Value, upper: np.ndarray, lower: np.ndarray) -> tuple[_Value, _Value]:
        """Look up the words of two tables at an index, which share a table's words."""
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

    def requantise(self, value: _Value, rule: OutputRule | None) -> _Value:
        """Add the instructions that requantise a value by a layer's rule, and free the value's register slot."""
        if rule is None:
            return value
        if not isinstance(rule, Requantisation) or rule.float32:
            raise ModelError(f"{self._name}: {OTHER_ROUNDING}")
        bits = signed_bits(*value.ends) + 24
        has_limited_shift = int(rule.shift.max()) > MAX_SHIFT  # the quotient is 0 if the products have fewer bits
        if (has_limited_shift and bits > MAX_SHIFT) or bits - int(rule.shift.min()) >= VALUE_BITS:
            raise self.refuse("the engine's fixed-point unit has too few bits for this layer's factors")
        shift = np.minimum(rule.shift, MAX_SHIFT)
        index = self.add_constant(rule.significand, shift)
        ends = _quotient_range(value.ends, (0, (1 << 24) - 1), int(shift.min()), Rounding.EVEN)
        self.release(value)
        operands = {"second_is_constant": 1, "shift_is_constant": 1, "constant": index}
        value = self.add(Code.MULTIPLY, ends, value, 0, rounding=Rounding.EVEN, **operands)
        if rule.zero_point:
            self.release(value)
            value = self.plus(value, rule.zero_point)
        return self.limit(value, rule.low, rule.high)

    def finish(self, value: _Value, kind: IntegerType) -> FixedProgram:
        """Add the instructions that write the bytes of the output value, highest first, and return the program."""
        size = value_bytes(kind)
        for row in range(size):
            flips = row > 0 or not kind.signed
            self._words.append(
                instruction_word(
                    code=Code.WRITE,
                    first=value.slot,
                    first_is_pixel=value.is_pixel,
                    second=size - 1,
                    target=row,
                    shift=size - 1 - row,
                    rounding=flips,
                )
            )
        if len(self._constants) > MAX_CONSTANTS:
            raise self.refuse(f"the engine's fixed-point unit holds {MAX_CONSTANTS} constants, and this layer has more")
        if len(self._words) > MAX_INSTRUCTIONS:
            raise self.refuse(
                f"the engine's fixed-point unit executes {MAX_INSTRUCTIONS} instructions, and this layer has more"
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
    """Return the indices of the first and the last segment that an engine looks up.

    The curve is constant before the first segment, and inside of it, and from the beginning of the last one on.
    """
    constant, linear, square = step.coefficients
    length, shift = 1 << step.segment_bits, step.segment_bits + step.guard
    least = constant + length * np.minimum(linear + np.minimum(square, 0) - 1, 0) >> shift
    greatest = constant + length * np.maximum(linear + np.maximum(square, 0), 0) >> shift
    from_first, from_last = ((least == end) & (greatest == end) for end in (least[0], greatest[-1]))
    first, last = (int(np.argmin(np.append(flat, False))) for flat in (from_first, from_last[::-1]))
    return max(first - 1, 0), len(constant) - 1 - max(last - 1, 0)


def _quotient_range(first: Range, second: Range, shift: int, rounding: Rounding) -> Range:
    """Return the range of ``rounded(a * b / 2**shift)`` for ``a`` and ``b`` in given ranges."""
    products = [a * b for a in first for b in second]
    return min(products) >> shift, (max(products) >> shift) + (rounding != Rounding.DOWN and shift > 0)


def _range(kind: IntegerType) -> Range:
    """Return the smallest and the largest value of an integer type."""
    return kind.minimum, kind.maximum


def is_wide(source: FeatureMap) -> bool:
    """Whether a map's values have more than 8 bits, so that only the engine's fixed-point unit can compute them."""
    return source.type.bits > LANES


def conv_pass(op: Conv, task: Pass) -> Pass:
    """Return the pass of a convolution with outputs of more than 8 bits: the fixed-point unit requantises its sums."""
    writer, zero = _ProgramBuilder(op.name), op.input.zero_point - offset(op.input.type)
    reach = max(op.input.type.maximum - op.input.zero_point, op.input.zero_point - op.input.type.minimum)
    shifts = zero * op.weights.sum(axis=(1, 2, 3))
    most = int((np.abs(op.weights).sum(axis=(1, 2, 3)) * reach).max())
    value = writer.arrive((-most - int(np.abs(shifts).max()), most + int(np.abs(shifts).max())))
    if op.fraction:
        writer.release(value)
        value = writer.scale(value, -op.fraction)
    writer.release(value)
    ends = -(most << op.fraction) + int(op.bias.min()), (most << op.fraction) + int(op.bias.max())
    value = writer.plus(value, op.bias - (shifts << op.fraction), ends=ends)
    program = writer.finish(writer.requantise(value, op.requantisation), op.output.type)
    return _with_program(task, op, program)


def _copy_pass(op: Op, edge: str, source: FeatureMap, size: tuple[int, int], window: Window) -> Pass:
    """Return a channelwise pass that copies a map, or adds up the values of its windows, by weights of 1."""
    rows = value_bytes(source.type)
    return replace(
        unscaled_pass(op, (edge,), op.output.type),
        source=(edge, 0),
        height=rows * source.height,
        width=source.width,
        rows=size[0],
        columns=size[1],
        window=window,
        weights=np.ones((LANES, 1, *window.kernel), np.int64),
        pad=0,
        is_operand=True,
    )


def _brought(op: Op, edge: str, source: FeatureMap, size: tuple[int, int], window: Window) -> Pass:
    """Return a channelwise pass that copies a map to the fixed-point unit: rows of its windows are bytes of values."""
    one_byte = np.repeat(np.eye(value_bytes(source.type), dtype=np.int64), LANES, axis=0)[:, None, :, None]
    arrival = Arrival.SIGNED_BYTES if source.type.signed else Arrival.UNSIGNED_BYTES
    return replace(_copy_pass(op, edge, source, size, window), weights=one_byte, arrival=arrival)


def fixed_point_passes(op: FixedPoint, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the single pass, in a tuple, that computes a `FixedPoint` layer on the engine's fixed-point unit."""
    writer = _ProgramBuilder(op.name)
    last_uses = {operand: index for index, step in enumerate(op.steps) for operand in step.operands}
    spread = len(op.inputs) - op.spread
    order = [*range(spread, len(op.inputs)), *range(spread)]  # a pixel for all pixels first
    values: dict[int, _Value] = {}
    operands = []
    for index in order:
        source, is_pixel = op.inputs[index], index >= spread
        values[index] = writer.arrive(_range(source.type), is_pixel=is_pixel)
        size = value_bytes(source.type)
        window = Window(kernel=(size, 1), stride=(size if source.height > 1 else 1, 1))
        operands.append(_brought(op, edges[index], source, source.shape[1:], window))
    for index, step in enumerate(op.steps):
        chosen = [values[operand] for operand in step.operands]
        result = _add_operation(writer, step, chosen)
        result.ends = op.ranges[len(op.inputs) + index]
        values[len(op.inputs) + index] = result
        for operand in {*step.operands}:
            if last_uses[operand] == index:
                writer.release(values[operand])
    result = writer.requantise(values[len(op.inputs) + len(op.steps) - 1], op.requantisation)
    return (_with_operands(op, operands, writer.finish(result, op.output.type)),)


def _add_operation(writer: _ProgramBuilder, step: steps.Operation, values: Sequence[_Value]) -> _Value:
    """Add the instructions of one operation of a `FixedPoint` layer to its program; return the result."""
    match step:
        case steps.Table():
            if (step.table != step.table[:1]).any():
                raise writer.refuse("the engine's fixed-point unit has one table for all channels, not one for each")
            return writer.look_up(values[0], step.table[0].tolist(), step.low)
        case steps.Shift():
            return writer.scale(values[0], step.shift)
        case steps.Factor():
            return writer.times(values[0], step.factor, step.shift)
        case steps.Offset():
            return writer.plus(values[0], step.offset)
        case steps.Plus():
            return writer.plus(values[0], values[1], step.sign)
        case steps.Times():
            return writer.times(values[0], values[1], step.shift)
        case steps.Extremum():
            code, function = (Code.MAXIMUM, max) if step.greatest else (Code.MINIMUM, min)
            low, high = (function(ends) for ends in zip(values[0].ends, values[1].ends, strict=True))
            return writer.add(code, (low, high), values[0], values[1])
        case steps.Limits():
            low, high = (max(end, step.low) for end in values[0].ends)
            copied = writer.add(Code.MAXIMUM, (low, high), values[0], step.low)
            return writer.limit(copied, step.low, step.high)
        case steps.Curve():
            return writer.curve(values[0], step)
        case _:
            raise writer.refuse(f"the engine's fixed-point unit has no {type(step).__name__}")


def channel_line_passes(op: Lookup, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a layer that looks values up, if each channel's function is a line between bounds.

    Raises
    ------
    ModelError
        If some channel's function is not such a line.
    """
    writer, low, high = _ProgramBuilder(op.name), int(op.table.min()), int(op.table.max())
    slope, start, shift = _channel_lines(op.table, op.input.type.minimum)
    values = np.arange(op.input.type.minimum, op.input.type.maximum + 1)
    lines = slope[:, None] * values + start[:, None] >> shift[:, None]
    if (np.clip(lines, low, high) != op.table).any():
        raise ModelError(
            f"{op.name}: the engine has one table for all channels; the functions of the {op.channels} channels are "
            "not lines between bounds, from values where the channels are equal (PRelu: slopes of one sign); use "
            "--template stream"
        )
    operand = _brought(op, edges[0], op.input, op.input.shape[1:], Window(kernel=(1, 1)))
    value = writer.arrive(_range(op.input.type))
    product = writer.times(value, slope)
    writer.release(value)
    writer.release(product)
    total = writer.plus(product, start)
    writer.release(total)
    ends = int(lines.min()), int(lines.max())
    index = writer.add_constant(np.ones(len(shift), np.int64), shift)
    operands = {"second_is_constant": 1, "shift_is_constant": 1, "constant": index}
    line = writer.add(Code.MULTIPLY, ends, total, 0, rounding=Rounding.DOWN, **operands)
    result = writer.limit(line, low, high)
    return (_with_operands(op, [operand], writer.finish(result, op.output.type)),)


def _channel_lines(table: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the slope, start and shift of the line nearest to each channel's outputs: ``slope * x + start >> shift``.

    ``table`` has the outputs ``(C, n)`` of the values ``x`` from ``first`` on. Outputs at its bounds can lie on a line
    beyond them. The slope is the one that leaves the most room for the start.
    """
    values = np.arange(first, first + table.shape[1])
    lower = np.where(table > table.min(), table - 0.5, -np.inf)
    upper = np.where(table < table.max(), table + 0.5, np.inf)

    def room(slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = slopes[:, None] * values
        return (lower - moved).max(axis=1), (upper - moved).min(axis=1)

    reach = np.full(len(table), 2.0 * (table.max() - table.min() + 1))
    left, right = -reach, reach
    for _ in range(100):  # the room is a concave function of the slope
        near, far = left + (right - left) / 3, right - (right - left) / 3
        (near_low, near_high), (far_low, far_high) = room(near), room(far)
        is_nearer = near_high - near_low > far_high - far_low
        left, right = np.where(is_nearer, left, near), np.where(is_nearer, far, right)
    low, high = room(left)
    low = np.where(np.isfinite(low), low, high - 2)  # a channel whose outputs are all at one bound
    high = np.where(np.isfinite(high), high, low + 2)
    middle = (low + high) / 2
    shift = np.minimum(FACTOR_BITS - 2 - np.frexp(left)[1], MAX_SHIFT - FACTOR_BITS)
    return (
        np.rint(np.ldexp(left, shift)).astype(np.int64),
        np.rint(np.ldexp(middle + 0.5, shift)).astype(np.int64),
        shift.astype(np.int64),
    )


def sum_pool_passes(op: SumPool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a sum pool of values of several bytes: each operand adds up one byte over the windows."""
    writer, size = _ProgramBuilder(op.name), value_bytes(op.input.type)
    if any(op.window.padding):
        raise writer.refuse("the engine's fixed-point unit adds up windows of wide maps without padding only")
    down, right_stride = op.window.stride if op.output.shape[1:] != (1, 1) else (1, 1)
    operands = []
    for byte in range(size):
        window = Window(
            kernel=op.window.kernel,
            stride=(down * size if op.output.height > 1 else 1, right_stride),
            padding=(-byte, 0, byte, 0),
            dilation=(op.window.dilation[0] * size, op.window.dilation[1]),
        )
        task = _copy_pass(op, edges[0], op.input, op.output.shape[1:], window)
        operands.append(task)
    sums = [writer.arrive((-128 * op.taps, 127 * op.taps)) for _ in range(size)]
    total = sums[0]
    for value in sums[1:]:
        writer.release(total)
        moved = writer.scale(total, -8)
        writer.release(moved)
        total = writer.plus(moved, value)
        writer.release(value)
    stored = sum(128 << 8 * byte for byte in range(size - op.input.type.signed))
    writer.release(total)
    reach = max(op.input.type.maximum - op.input.zero_point, op.input.zero_point - op.input.type.minimum)
    total = writer.plus(total, op.taps * (stored - op.input.zero_point), ends=(-op.taps * reach, op.taps * reach))
    result = writer.requantise(total, op.requantisation)
    return (_with_operands(op, operands, writer.finish(result, op.output.type)),)


def max_pool_passes(op: MaxPool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a maximum pool of a wide map: each operand is the map at one place of the window."""
    writer, size = _ProgramBuilder(op.name), value_bytes(op.input.type)
    (top, left, bottom, right), (below, beside) = op.window.padding, op.window.dilation
    down, right_stride = op.window.stride if op.output.shape[1:] != (1, 1) else (1, 1)
    lowest = -(1 << 8 * size - 1) if op.input.type.signed else 0  # bytes of the padding: the lowest ones
    ends, operands, values = (lowest, op.input.type.maximum), [], []
    for row, column in np.ndindex(op.window.kernel):
        window = Window(
            kernel=(size, 1),
            stride=(down * size if op.output.height > 1 else right_stride, right_stride),
            padding=((top - row * below) * size, left - column * beside, bottom * size, right),
        )
        operands.append(replace(_brought(op, edges[0], op.input, op.output.shape[1:], window), pad=-128))
        values.append(writer.arrive(ends))
    result = values[0]
    for value in values[1:]:
        greater = writer.add(Code.MAXIMUM, ends, result, value)
        writer.release(result)
        writer.release(value)
        result = greater
    return (_with_operands(op, operands, writer.finish(result, op.output.type)),)


def _with_operands(op: Op, operands: Sequence[Pass], program: FixedProgram) -> Pass:
    """Return the pass of a layer on the fixed-point unit, which has the sizes of its largest operand's pass."""
    widest = max(operands, key=lambda task: (task.rows * task.columns, task.window.kernel))
    return _with_program(replace(widest, operands=tuple(operands)), op, program)


def _with_program(task: Pass, op: Op, program: FixedProgram) -> Pass:
    """Return a copy of a pass whose outputs the fixed-point unit computes by ``program``, without requantisation."""
    tables = [(PROGRAM_TABLE, program.words), (LOOKUP_TABLE, program.lookups)]
    return replace(
        task,
        fixed=program,
        output_bytes=value_bytes(op.output.type),
        tables=tuple(LookupTables(first=first, entries=words[None]) for first, words in tables if len(words)),
        rule=None,
        parameters=None,
    )


def lookup_words(tasks: Sequence[Pass]) -> int:
    """Return the largest number of lookup words of any of the passes' fixed-point programs; 0 without one."""
    return max((len(task.fixed.lookups) for task in tasks if task.fixed), default=0)
