"""Passes of layers that ONNX Runtime computes in float32: sums of maps, averages, and products.

A table gives the float32 number that each value of a map adds to a sum. All numbers are multiples of one power of two,
so that the fixed-point unit adds them as integers, and rounds each sum as float32 does. The output does not fall as the
sum rises, so that it is a step function of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.fixed_unit import MAX_SLOTS
from hwgen.network.float32 import Label, as_integers
from hwgen.network.maps import Window
from hwgen.network.ops import AveragePool, Mul, Op, Sum
from hwgen.program.array_pass import Pass, PixelGrid
from hwgen.program.factors import DivisorRegion, divisor_regions
from hwgen.program.fixed import input_operands, operand_pass, program_pass, range_of
from hwgen.program.fixed_builder import FixedProgramBuilder, RegisterValue
from hwgen.program.layout import offset

#: Maximum number of maps, or taps of a window, that the fixed-point unit adds in float32.
MAX_ADDENDS = MAX_SLOTS - 2


def float_sum_pass(
    op: Op,
    builder: FixedProgramBuilder,
    operands: Sequence[Pass],
    addends: Sequence[tuple[RegisterValue, np.ndarray]],
    outputs: Callable[[np.ndarray], np.ndarray],
) -> Pass:
    """Return the `Pass` that adds float32 numbers which tables give for the values of maps, and quantises the sum.

    Parameters
    ----------
    op : Op
    builder : FixedProgramBuilder
        Builder of the pass's program, which has received the values.
    operands : sequence of Pass
        Passes that copy the maps, of at most 8 bits, to the fixed-point unit.
    addends : sequence of (RegisterValue, ndarray)
        For each number of the sum, in order: a map's value, and the numbers for all values of its range, in ascending
        order, float32.
    outputs : function
        Function from float32 sums to output integers. It must not fall.
    """
    tables, exponent = as_integers([table for _, table in addends])
    last_uses = {value.slot: place for place, (value, _) in enumerate(addends)}
    total = None
    for place, ((value, _), words) in enumerate(zip(addends, tables, strict=True)):
        if last_uses[value.slot] == place:
            builder.release(value)
        addend = builder.look_up(value, words, value.ends[0])
        if total is not None:
            builder.release(total)
            builder.release(addend)
        total = addend if total is None else builder.plus_in_float32(total, addend)
    assert total is not None
    result = builder.step_function(total, lambda sums: outputs(np.ldexp(sums.astype(float), exponent).astype("f4")))
    return program_pass(operands, builder.finish(result, op.output.type), op.output.type)


def sum_pass(op: Sum, edges: Sequence[str]) -> Pass:
    """Return the `Pass` that adds all maps of a sum in float32, on the fixed-point unit.

    Raises
    ------
    ModelError
        If there are too many maps.
    """
    if len(op.inputs) > MAX_ADDENDS:
        raise ModelError(
            f"{op.name}: the engine adds {MAX_ADDENDS} maps at most before it rounds, not {len(op.inputs)}; quantise "
            "the sum of some of them, or use --template stream"
        )
    builder = FixedProgramBuilder(op.name)
    operands, values = input_operands(builder, op, edges)
    addends = [(values[index], terms) for index, terms in enumerate(op.terms)]
    return float_sum_pass(op, builder, operands, addends, op.rounded)


def average_passes(op: AveragePool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a `Pass` of an average pool in float32 for each rectangle of equal divisors."""
    return tuple(_average_region(op, edges[0], region) for region in divisor_regions(op))


def _average_region(op: AveragePool, edge: str, region: DivisorRegion) -> Pass:
    """Return the `Pass` that computes a rectangle of an average pool's output: one operand per tap of the window."""
    (first_row, end_row), (first_column, end_column) = region.rows, region.columns
    size, (down, right) = (end_row - first_row, end_column - first_column), op.window.stride
    top, left, bottom, right_padding = op.window.padding
    kind, builder, operands = op.input.type, FixedProgramBuilder(op.name), []
    for row, column in np.ndindex(op.window.kernel):
        before = top - row - first_row * down, left - column - first_column * right
        window = Window(
            kernel=(1, 1), stride=(down if size[0] > 1 else right, right), padding=(*before, bottom, right_padding)
        )
        task = operand_pass(op, edge, op.input, size, window)
        operands.append(replace(task, pad=op.input.zero_point - offset(kind)))
    numbers = Label(op.x_scale, op.input.zero_point).reals(np.arange(kind.minimum, kind.maximum + 1))
    addends = [(builder.arrive(range_of(kind)), numbers) for _ in operands]
    task = float_sum_pass(op, builder, operands, addends, partial(op.rounded, count=region.count))
    return replace(task, lattice=PixelGrid(first=(first_row, first_column)))


def product_pass(op: Mul, edges: Sequence[str]) -> Pass:
    """Return the `Pass` that multiplies two maps on the fixed-point unit and rounds the products as float32 does."""
    builder = FixedProgramBuilder(op.name)
    operands, values = input_operands(builder, op, edges, op.spread)
    for index, label in enumerate(op.labels[:2]):
        builder.release(values[index])
        values[index] = builder.plus(values[index], -label.zero)
    product = builder.times(values[0], values[1])
    for value in values.values():
        builder.release(value)
    result = builder.step_function(product, op.rounded)
    return program_pass(operands, builder.finish(result, op.output.type), op.output.type)
