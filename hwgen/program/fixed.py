"""Passes on the engine's fixed-point unit: layers of fixed-point operations, and convolutions with wide outputs.

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
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.fixed_unit import (
    FACTOR_BITS,
    LOOKUP_TABLE,
    MAX_SHIFT,
    PROGRAM_TABLE,
    Arrival,
    Opcode,
    Rounding,
)
from hwgen.network.maps import INT16, FeatureMap, IntegerType, Window
from hwgen.network.ops import Conv, FixedPoint, Lookup, MaxPool, Op, SumPool
from hwgen.network.ops import fixed_point as steps
from hwgen.network.ops.fixed_point import Range
from hwgen.program.array_pass import FixedProgram, LookupTables, Pass, unscaled_pass
from hwgen.program.fixed_builder import FixedProgramBuilder, RegisterValue
from hwgen.program.layout import offset, value_bytes

#: Minimum number of taps of a wide map's window whose columns are added before its rows.
_MIN_SEPARATE_TAPS = 64


def range_of(kind: IntegerType) -> Range:
    """Return, as a pair, the smallest and the largest value of an integer type."""
    return kind.minimum, kind.maximum


def is_wide(source: FeatureMap) -> bool:
    """Return whether a map's values have more than 8 bits, which only the engine's fixed-point unit can compute."""
    return source.type.bits > LANES


def conv_pass(op: Conv, task: Pass) -> Pass:
    """Return the `Pass` of a convolution whose outputs have over 8 bits: the fixed-point unit requantises sums."""
    # The array multiplies stored bytes. The zero point is stored as the byte ``zero``, so the array's sums exceed the
    # convolution's by ``shifts``.
    writer, zero = FixedProgramBuilder(op.name), op.input.zero_point - offset(op.input.type)
    reach = op.input.type.reach(op.input.zero_point)
    shifts = zero * op.weights.sum(axis=(1, 2, 3))
    most = int((np.abs(op.weights).sum(axis=(1, 2, 3)) * reach).max())
    value = writer.arrive((-most - int(np.abs(shifts).max()), most + int(np.abs(shifts).max())))
    if op.fraction:  # the bias has bits below a step of the sums
        writer.release(value)
        value = writer.scale(value, -op.fraction)
    writer.release(value)
    ends = -(most << op.fraction) + int(op.bias.min()), (most << op.fraction) + int(op.bias.max())
    value = writer.plus(value, op.bias - (shifts << op.fraction), ends=ends)
    program = writer.finish(writer.requantise(value, op.requantisation), op.output.type)
    return _with_program(task, program, op.output.type)


def _copy_pass(op: Op, edge: str, source: FeatureMap, size: tuple[int, int], window: Window) -> Pass:
    """Return a channelwise `Pass` that copies a map, or sums its windows, by weights of 1."""
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


def operand_pass(op: Op, edge: str, source: FeatureMap, size: tuple[int, int], window: Window) -> Pass:
    """Return a `Pass` that copies a map to the fixed-point unit as an operand, one byte of each value per fold."""
    one_byte = np.repeat(np.eye(value_bytes(source.type), dtype=np.int64), LANES, axis=0)[:, None, :, None]
    arrival = Arrival.SIGNED_BYTES if source.type.signed else Arrival.UNSIGNED_BYTES
    return replace(_copy_pass(op, edge, source, size, window), weights=one_byte, arrival=arrival)


def input_operands(
    writer: FixedProgramBuilder, op: Op, edges: Sequence[str], spread: int = 0
) -> tuple[list[Pass], dict[int, RegisterValue]]:
    """Return a pair: passes that copy a layer's whole inputs to the fixed-point unit; dict of values by input index.

    The last ``spread`` inputs have one pixel for all pixels, and arrive first.
    """
    values, operands, whole = {}, [], len(op.inputs) - spread
    for index in (*range(whole, len(op.inputs)), *range(whole)):
        source, size = op.inputs[index], value_bytes(op.inputs[index].type)
        values[index] = writer.arrive(range_of(source.type), is_pixel=index >= whole)
        window = Window(kernel=(size, 1), stride=(size if source.height > 1 else 1, 1))
        operands.append(operand_pass(op, edges[index], source, source.shape[1:], window))
    return operands, values


def fixed_point_passes(op: FixedPoint, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the only `Pass` of a `FixedPoint` layer, on the engine's fixed-point unit."""
    writer = FixedProgramBuilder(op.name)
    last_uses = {operand: index for index, step in enumerate(op.steps) for operand in step.operands}
    operands, values = input_operands(writer, op, edges, op.spread)
    for index, step in enumerate(op.steps):
        chosen = [values[operand] for operand in step.operands]
        result = _add_operation(writer, step, chosen)
        result.ends = op.ranges[len(op.inputs) + index]
        values[len(op.inputs) + index] = result
        for operand in {*step.operands}:
            if last_uses[operand] == index:
                writer.release(values[operand])
    result = writer.requantise(values[len(op.inputs) + len(op.steps) - 1], op.requantisation)
    return (program_pass(operands, writer.finish(result, op.output.type), op.output.type),)


def _add_operation(
    writer: FixedProgramBuilder, step: steps.Operation, values: Sequence[RegisterValue]
) -> RegisterValue:
    """Add a `FixedPoint` operation's instructions to the program; return a `RegisterValue`: its result."""
    match step:
        case steps.Table():
            if (step.table != step.table[:1]).any():
                raise writer.refuse(
                    "the engine's fixed-point unit has one table for all channels, and this layer one per channel"
                )
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
            code, function = (Opcode.MAXIMUM, max) if step.greatest else (Opcode.MINIMUM, min)
            low, high = (function(ends) for ends in zip(values[0].ends, values[1].ends, strict=True))
            return writer.add(code, (low, high), values[0], values[1])
        case steps.Limits():
            low, high = (max(end, step.low) for end in values[0].ends)
            copied = writer.add(Opcode.MAXIMUM, (low, high), values[0], step.low)
            return writer.limit(copied, step.low, step.high)
        case steps.Curve():
            return writer.curve(values[0], step)
        case _:
            raise writer.refuse(
                f"the engine's fixed-point unit has no instruction for a step of this layer ({type(step).__name__})"
            )


def channel_line_passes(op: Lookup, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the only `Pass` of a lookup layer whose function is a clamped line per channel.

    Raises
    ------
    ModelError
        If some channel's function is not such a line.
    """
    writer, low, high = FixedProgramBuilder(op.name), int(op.table.min()), int(op.table.max())
    slope, start, shift = _channel_lines(op.table, op.input.type.minimum)
    values = np.arange(op.input.type.minimum, op.input.type.maximum + 1)
    lines = slope[:, None] * values + start[:, None] >> shift[:, None]
    if (np.clip(lines, low, high) != op.table).any():
        raise ModelError(
            f"{op.name}: the engine has one table for all channels; the functions of the {op.channels} channels are "
            "not lines between bounds, from values where the channels are equal (PRelu: slopes of one sign); use "
            "--template stream"
        )
    operand = operand_pass(op, edges[0], op.input, op.input.shape[1:], Window(kernel=(1, 1)))
    value = writer.arrive(range_of(op.input.type))
    product = writer.times(value, slope)
    writer.release(value)
    writer.release(product)
    total = writer.plus(product, start)
    ends = int(lines.min()), int(lines.max())
    line = writer.scale_channels(total, np.ones(len(shift), np.int64), shift, ends, Rounding.DOWN)
    result = writer.limit(line, low, high)
    return (program_pass([operand], writer.finish(result, op.output.type), op.output.type),)


def _channel_lines(table: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a triple of arrays: slope, start, shift of each channel's nearest line, ``slope * x + start >> shift``.

    ``table`` has the outputs ``(C, n)`` of the values ``x``, starting at ``first``. Outputs at its bounds can lie on a
    line beyond them. The slope is the one that leaves the most room for the start.
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


def sum_pool_scratch(op: SumPool) -> dict[str, FeatureMap]:
    """Return, by name, the scratch map of each input byte's sums over a window's columns; empty for small windows.

    The columns of a large window are added before its rows, because the array adds the columns of many rows at once.
    """
    if not is_wide(op.input) or op.taps < _MIN_SEPARATE_TAPS or 1 in op.window.kernel:
        return {}
    sums = replace(op.input, width=op.output.width, type=INT16, zero_point=0, scale=None)
    return {f"{op.name} byte {byte}": sums for byte in range(value_bytes(op.input.type))}


def sum_pool_passes(op: SumPool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple of each `Pass` of a sum pool of values of several bytes: the last one has an operand per byte.

    The passes before it write the scratch maps, if there are any (`sum_pool_scratch`).
    """
    writer, size, scratch = FixedProgramBuilder(op.name), value_bytes(op.input.type), sum_pool_scratch(op)
    if any(op.window.padding):
        raise writer.refuse(
            "the engine's fixed-point unit sums windows of maps of more than 8 bits only without padding"
        )
    if scratch:
        columns = tuple(_column_sums(op, edges[0], byte, edge) for byte, edge in enumerate(scratch))
        window = replace(
            op.window, **{key: (getattr(op.window, key)[0], 1) for key in ("kernel", "stride", "dilation")}
        )
        operands = [task for edge, sums in scratch.items() for task in _byte_sums(op, edge, sums, window)]
        values = [writer.arrive((-128 * window.taps, 127 * window.taps)) for _ in operands]
        sums_of_bytes = [_joined(writer, values[first : first + 2]) for first in range(0, len(values), 2)]
        stored = window.taps * sum(128 << 8 * byte for byte in range(size))  # the lower bytes of the sums
    else:
        columns, stored, operands = (), 0, _byte_sums(op, edges[0], op.input, op.window)
        sums_of_bytes = [writer.arrive((-128 * op.taps, 127 * op.taps)) for _ in operands]
    total = _joined(writer, sums_of_bytes)
    stored += op.taps * sum(128 << 8 * byte for byte in range(size - op.input.type.signed))
    writer.release(total)
    reach = op.input.type.reach(op.input.zero_point)
    total = writer.plus(total, stored - op.taps * op.input.zero_point, ends=(-op.taps * reach, op.taps * reach))
    result = writer.requantise(total, op.requantisation)
    return (*columns, program_pass(operands, writer.finish(result, op.output.type), op.output.type))


def _column_sums(op: SumPool, edge: str, byte: int, target: str) -> Pass:
    """Return the `Pass` that adds up one byte (0: the highest) of a wide map over the columns of a pool's windows."""
    (_, columns), (_, right), (_, beside) = op.window.kernel, op.window.stride, op.window.dilation
    size = value_bytes(op.input.type) if op.input.height > 1 else 1
    window = Window(kernel=(1, columns), stride=(size, right), padding=(-byte, 0, 0, 0), dilation=(1, beside))
    operand = _copy_pass(op, edge, op.input, (op.input.height, op.output.width), window)
    writer = FixedProgramBuilder(op.name)
    total = writer.arrive((-128 * columns, 127 * columns))
    return replace(program_pass([operand], writer.finish(total, INT16), INT16), target=(target, 0))


def _byte_sums(op: SumPool, edge: str, source: FeatureMap, window: Window) -> list[Pass]:
    """Return a list with a `Pass` per byte of a wide map, highest byte first, that adds up this byte over windows."""
    size, (down, right) = value_bytes(source.type), window.stride if op.output.shape[1:] != (1, 1) else (1, 1)
    stride = down * size if op.output.height > 1 else 1, right
    dilation = window.dilation[0] * size, window.dilation[1]
    return [
        _copy_pass(
            op,
            edge,
            source,
            op.output.shape[1:],
            replace(window, stride=stride, padding=(-byte, 0, byte, 0), dilation=dilation),
        )
        for byte in range(size)
    ]


def _joined(writer: FixedProgramBuilder, values: Sequence[RegisterValue]) -> RegisterValue:
    """Add the instructions that join sums of bytes, the highest byte first; return a `RegisterValue`: their total."""
    total = values[0]
    for value in values[1:]:
        writer.release(total)
        moved = writer.scale(total, -8)
        writer.release(moved)
        total = writer.plus(moved, value)
        writer.release(value)
    return total


def max_pool_passes(op: MaxPool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the only `Pass` of a max pool of values of several bytes, with an operand per tap."""
    writer, size = FixedProgramBuilder(op.name), value_bytes(op.input.type)
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
        operands.append(replace(operand_pass(op, edges[0], op.input, op.output.shape[1:], window), pad=-128))
        values.append(writer.arrive(ends))
    result = values[0]
    for value in values[1:]:
        greater = writer.add(Opcode.MAXIMUM, ends, result, value)
        writer.release(result)
        writer.release(value)
        result = greater
    return (program_pass(operands, writer.finish(result, op.output.type), op.output.type),)


def program_pass(operands: Sequence[Pass], program: FixedProgram, kind: IntegerType) -> Pass:
    """Return a layer's `Pass` on the fixed-point unit, from the passes that copy its operands and its program.

    ``kind`` is the type of the values that the pass writes.
    """
    widest = max(operands, key=lambda task: (task.rows * task.columns, task.window.kernel))
    return _with_program(replace(widest, operands=tuple(operands)), program, kind)


def _with_program(task: Pass, program: FixedProgram, kind: IntegerType) -> Pass:
    """Return a `Pass` whose outputs the fixed-point unit computes by ``program``, without requantisation."""
    tables = [(PROGRAM_TABLE, program.words), (LOOKUP_TABLE, program.lookups)]
    return replace(
        task,
        fixed=program,
        output_bytes=value_bytes(kind),
        tables=tuple(LookupTables(first=first, entries=words[None]) for first, words in tables if len(words)),
        rule=None,
        parameters=None,
    )


def lookup_words(tasks: Sequence[Pass]) -> int:
    """Return the largest number of lookup words of a fixed-point program among the passes; 0 without any."""
    return max((len(task.fixed.lookups) for task in tasks if task.fixed), default=0)
