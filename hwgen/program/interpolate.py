"""Array passes of a layer that interpolates linearly between pixels: first between rows, then columns.

The fixed-point unit multiplies two rows (or columns) by their weights and adds them. A pass computes all output rows
with the same weights whose input rows are evenly spaced. The rows between the two steps are a map in memory of sums of
more than 8 bits. If ONNX Runtime adds in float32, a pass adds the four pixels around each output pixel, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.gateware.engine.fixed_unit import FACTOR_BITS
from hwgen.network.maps import INT8, FeatureMap, IntegerType, Requantisation, Window, requantise, signed_bits
from hwgen.network.ops import Interpolate
from hwgen.program.array_pass import LookupTables, Pass, PixelGrid, repeat_weights, unscaled_pass
from hwgen.program.fixed import is_wide, operand_pass, program_pass, range_of
from hwgen.program.fixed_builder import FixedProgramBuilder, RegisterValue
from hwgen.program.float_sums import float_sum_pass
from hwgen.program.layout import by_value, offset, value_bytes
from hwgen.program.resample import EvenRun, even_runs

#: Maximum number of bits of a weighted sum of input rows, as the engine's memory stores it.
_MAX_SUM_BITS = 32
#: Maximum number of engine passes that interpolate the pixels of one layer one by one.
_MAX_PASSES = 1024


def interpolate_scratch(op: Interpolate) -> dict[str, FeatureMap]:
    """Return, as a dict, the scratch map of interpolated rows (wide sums), by name; empty if no pass needs them."""
    if _copies_a_pixel(op) or op.in_floats or is_wide(op.input):
        return {}
    ends = (op.axis_parts[0] * end for end in (op.input.type.minimum, op.input.type.maximum))
    kind = IntegerType(bits=max(signed_bits(*ends), 9), signed=True)
    return {f"{op.name} rows": replace(op.input, height=op.output.height, type=kind, zero_point=0, scale=None)}


def _copies_a_pixel(op: Interpolate) -> bool:
    return op.input.shape[1:] == (1, 1)


def interpolate_passes(op: Interpolate, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple of each `Pass` that interpolates linearly in an 8-bit map: first rows, then columns.

    If ONNX Runtime adds in float32, a pass adds all pixels in its order.

    Raises
    ------
    ModelError
        If the sums have too many bits.
    """
    if _copies_a_pixel(op):
        return _pixel_copies(op, edges)
    if op.in_floats:
        return tuple(_float_pass(op, edges[0], *row, *column) for row, column in _pairs_of_runs(op, 1))
    ((edge, sums),) = interpolate_scratch(op).items()
    if sums.type.bits > _MAX_SUM_BITS:
        raise ModelError(f"{op.name}: the engine adds sums of {_MAX_SUM_BITS} bits at most; use --template stream")
    rows = tuple(_row_pass(op, edges[0], (edge, sums), *each) for each in _runs(op, 0))
    return (*rows, *(_column_pass(op, (edge, sums), *each) for each in _runs(op, 1)))


def _pixel_copies(op: Interpolate, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a `Pass` per output pixel that copies a map's only pixel through a lookup table."""
    kind = op.input.type
    values = np.arange(kind.minimum, kind.maximum + 1)
    one_each = replace(
        op, input=replace(op.input, channels=len(values)), output=replace(op.output, channels=len(values))
    )
    outputs = one_each.compute(values[:, None, None])
    passes = []
    for row, column in np.ndindex(op.output.shape[1:]):
        entries = by_value(outputs[:, row, column].astype(np.int64) - offset(op.output.type), kind)
        task = replace(repeat_weights(unscaled_pass(op, edges, kind)), rows=1, columns=1)
        tables = (LookupTables(first=ACTIVATION, entries=entries[None]),)
        passes.append(replace(task, tables=tables, lattice=PixelGrid(first=(int(row), int(column)))))
    return tuple(passes)


#: Input rows (or columns) of an output row: the distance of each to the first one, and its weight.
_Taps = tuple[tuple[int, int], ...]


def _runs(op: Interpolate, axis: int) -> Iterator[tuple[EvenRun, _Taps]]:
    """Yield pairs: an `EvenRun` of output rows (axis 0) or columns, and (offset, weight) of each input row."""
    indices, weights = ((op.rows, op.row_weights), (op.columns, op.column_weights))[axis]
    parts, last = op.axis_parts[axis], (op.height, op.width)[axis] - 1
    alike: dict[_Taps, dict[int, int]] = {}
    for place, (index, weight) in enumerate(zip(indices, weights, strict=True)):
        taps: _Taps = ((0, parts - weight), (1, weight))
        if index == last:  # both rows are the last one
            taps = ((0, parts - weight), (0, weight)) if op.in_floats else ((0, parts),)
        alike.setdefault(tuple(tap for tap in taps if tap[1]), {})[place] = index
    for taps, sources in alike.items():
        for run in even_runs(sources):
            yield run, taps


def _operand(op: Interpolate, edge: str, source: FeatureMap, rows: EvenRun, columns: EvenRun) -> Pass:
    """Return the `Pass` that copies evenly spaced rows and columns of a map to the fixed-point unit."""
    size = value_bytes(source.type)
    window = Window(
        kernel=(size, 1),
        stride=(size * rows.stride if rows.count > 1 else 1, columns.stride),
        padding=(-size * rows.source, -columns.source, 0, 0),
    )
    return operand_pass(op, edge, source, (rows.count, columns.count), window)


def _moved(run: EvenRun, distance: int) -> EvenRun:
    """Return a copy of an `EvenRun` whose source rows (or columns) are ``distance`` rows (or columns) further on."""
    return replace(run, source=run.source + distance)


def _float_pass(
    op: Interpolate, edge: str, rows: EvenRun, row_taps: _Taps, columns: EvenRun, column_taps: _Taps
) -> Pass:
    """Return the `Pass` that interpolates evenly spaced output pixels in float32, one addition after the other."""
    builder = FixedProgramBuilder(op.name)
    operands: dict[tuple[int, int], Pass] = {}
    values: dict[tuple[int, int], RegisterValue] = {}
    addends = []
    unit = np.float32(1 / (op.axis_parts[0] * op.axis_parts[1]))
    for (below, down), (beside, right) in product(row_taps, column_taps):
        pixel = below, beside
        if pixel not in operands:
            operands[pixel] = _operand(op, edge, op.input, _moved(rows, below), _moved(columns, beside))
            values[pixel] = builder.arrive(range_of(op.input.type))
        addends.append((values[pixel], np.float32(down * right) * unit * op.terms))
    task = float_sum_pass(op, builder, [*operands.values()], addends, op.rounded)
    return replace(task, lattice=PixelGrid(step=(rows.step, columns.step), first=(rows.first, columns.first)))


def wide_interpolate_passes(op: Interpolate, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple of each `Pass` (run of the array) that interpolates linearly in a map of over 8 bits.

    A pass computes one byte of evenly spaced pixels of the output, because it can't write several bytes of pixels that
    are apart.
    """
    assert op.requantisation is not None
    size = value_bytes(op.output.type)
    runs = _pairs_of_runs(op, size)
    return tuple(_byte_pass(op, edges[0], *row, *column, byte) for row, column in runs for byte in range(size))


def _pairs_of_runs(op: Interpolate, size: int) -> Sequence[tuple[tuple[EvenRun, _Taps], ...]]:
    """Return a list of all pairs of runs of output rows and columns; refuse the layer if it needs too many passes.

    A pair takes ``size`` passes.
    """
    runs = [*product(*([*_runs(op, axis)] for axis in (0, 1)))]
    if size * len(runs) > _MAX_PASSES:
        raise ModelError(
            f"{op.name}: the engine would interpolate in {size * len(runs):,} passes, and takes {_MAX_PASSES:,} at "
            "most; use --template stream"
        )
    return runs


def _byte_pass(
    op: Interpolate, edge: str, rows: EvenRun, row_taps: _Taps, columns: EvenRun, column_taps: _Taps, byte: int
) -> Pass:
    """Return the `Pass` that writes byte ``byte`` (0: the highest) of evenly spaced pixels of an output."""
    builder, operands, terms = FixedProgramBuilder(op.name), [], []
    for (below, down), (beside, right) in product(row_taps, column_taps):
        operands.append(_operand(op, edge, op.input, _moved(rows, below), _moved(columns, beside)))
        terms.append((op.input.type, down * right))
    result = _rounded(op, builder, builder.weighted_sum(terms))
    task = program_pass(operands, builder.finish(result, op.output.type, byte), INT8)
    size = value_bytes(op.output.type)
    lattice = PixelGrid(step=(size * rows.step, columns.step), first=(size * rows.first + byte, columns.first))
    return replace(task, lattice=lattice)


def _row_pass(op: Interpolate, edge: str, sums: tuple[str, FeatureMap], run: EvenRun, taps: _Taps) -> Pass:
    """Return the `Pass` (run of the array) that computes a run of interpolated rows: weighted sums of input rows."""
    every = EvenRun(0, 1, 0, 1, op.width)
    operands = [_operand(op, edge, op.input, _moved(run, below), every) for below, _ in taps]
    builder = FixedProgramBuilder(op.name)
    total = builder.weighted_sum([(op.input.type, weight) for _, weight in taps])
    name, stored = sums
    task = program_pass(operands, builder.finish(total, stored.type), stored.type)
    return replace(task, target=(name, 0), lattice=PixelGrid(step=(run.step, 1), first=(run.first, 0)))


def _column_pass(op: Interpolate, sums: tuple[str, FeatureMap], run: EvenRun, taps: _Taps) -> Pass:
    """Return the `Pass` that interpolates evenly spaced output columns with equal weights from stored row sums."""
    edge, stored = sums
    every = EvenRun(0, 1, 0, 1, stored.height)
    operands = [_operand(op, edge, stored, every, _moved(run, beside)) for beside, _ in taps]
    builder = FixedProgramBuilder(op.name)
    total = builder.weighted_sum([(stored.type, weight) for _, weight in taps])
    result = _rounded(op, builder, total)
    task = program_pass(operands, builder.finish(result, op.output.type), op.output.type)
    return replace(task, lattice=PixelGrid(step=(1, run.step), first=(0, run.first)))


def _rounded(op: Interpolate, builder: FixedProgramBuilder, total: RegisterValue) -> RegisterValue:
    """Add instructions that requantise an interpolation's sums as the model does; return a `RegisterValue`."""
    parts = op.axis_parts[0] * op.axis_parts[1]
    ends = [parts * (end - op.offset) for end in (op.input.type.minimum, op.input.type.maximum)]
    above_zero = builder.plus(total, -parts * op.offset, ends=(ends[0], ends[1]))
    builder.release(total)
    rule = op.requantisation or _rule_of(op, *ends)
    return builder.requantise(above_zero, rule) if rule else builder.step_function(above_zero, op.rounded)


@lru_cache(maxsize=64)
def _rule_of(op: Interpolate, low: int, high: int) -> Requantisation | None:
    """Return the `Requantisation` of sums from ``low`` to ``high``; ``None`` if it rounds any unlike the model."""
    sums = np.arange(low, high + 1)
    fraction, exponent = np.frexp(op.x_scale / op.y_scale / (op.axis_parts[0] * op.axis_parts[1]))
    significand, shift = np.rint(np.ldexp(fraction, FACTOR_BITS - 1)).astype(np.int64), FACTOR_BITS - 1 - exponent
    rule = Requantisation(
        significand=significand[None],
        shift=np.array([int(shift)]),
        zero_point=op.output.zero_point,
        low=op.low,
        high=op.high,
        float32=False,
    )
    is_right = (requantise(sums[None], rule, int(np.abs(sums).max())) == op.rounded(sums)).all()
    return rule if is_right else None
