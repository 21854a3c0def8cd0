"""Array passes of a layer that interpolates linearly between pixels: first between rows, then columns.

The fixed-point unit multiplies two rows (or columns) by their weights and adds them. A pass computes all output rows
with the same weights whose input rows are evenly spaced. The rows between the two steps are a map in memory of sums of
more than 8 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.gateware.engine.fixed_unit import FACTOR_BITS
from hwgen.network.maps import FeatureMap, IntegerType, Window, signed_bits
from hwgen.network.ops import Interpolate
from hwgen.network.requantise import Requantisation, requantise
from hwgen.program.array_pass import LookupTables, Pass, PixelGrid, repeat_weights, unscaled_pass
from hwgen.program.fixed import operand_pass, program_pass
from hwgen.program.fixed_builder import FixedProgramBuilder, RegisterValue
from hwgen.program.layout import by_value, offset, value_bytes
from hwgen.program.resample import EvenRun, even_runs

#: Maximum number of bits of a weighted sum of input rows, as the engine's memory stores it.
_MAX_SUM_BITS = 32


def interpolate_scratch(op: Interpolate) -> dict[str, FeatureMap]:
    """Return the scratch map of interpolated rows, by name; an empty mapping for inputs of one pixel."""
    if _copies_a_pixel(op):
        return {}
    ends = (op.axis_parts[0] * end for end in (op.input.type.minimum, op.input.type.maximum))
    kind = IntegerType(bits=max(signed_bits(*ends), 9), signed=True)
    return {f"{op.name} rows": replace(op.input, height=op.output.height, type=kind, zero_point=0, scale=None)}


def _copies_a_pixel(op: Interpolate) -> bool:
    return op.input.shape[1:] == (1, 1)


def interpolate_passes(op: Interpolate, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the engine passes that interpolate linearly between the pixels of an 8-bit map: first rows, then columns.

    Raises
    ------
    ModelError
        If ONNX Runtime's float32 sums decide the outputs, or the sums have too many bits.
    """
    if _copies_a_pixel(op):
        return _pixel_copies(op, edges)
    if op.in_floats or op.truncated:
        raise ModelError(
            f"{op.name}: the engine adds integers, and ONNX Runtime adds the pixels of this interpolation in float32, "
            "which decides sums halfway between two outputs; use --template stream"
        )
    ((edge, sums),) = interpolate_scratch(op).items()
    if sums.type.bits > _MAX_SUM_BITS:
        raise ModelError(f"{op.name}: the engine adds sums of {_MAX_SUM_BITS} bits at most; use --template stream")
    rows = tuple(_row_pass(op, edges[0], (edge, sums), *each) for each in _runs(op, 0))
    return (*rows, *(_column_pass(op, (edge, sums), *each) for each in _runs(op, 1)))


def _pixel_copies(op: Interpolate, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the passes that copy a map's only pixel through a lookup table, one pass for each pixel of the output."""
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


def _runs(op: Interpolate, axis: int) -> Iterator[tuple[EvenRun, tuple[int, ...]]]:
    """Yield runs of evenly spaced output rows (axis 0) or columns, each with the weights of its one or two inputs."""
    indices, weights = ((op.rows, op.row_weights), (op.columns, op.column_weights))[axis]
    parts, last = op.axis_parts[axis], (op.height, op.width)[axis] - 1
    alike: dict[tuple[int, ...], dict[int, int]] = {}
    for place, (index, weight) in enumerate(zip(indices, weights, strict=True)):
        of_inputs = (parts,) if index == last or not weight else (parts - weight, weight)
        alike.setdefault(of_inputs, {})[place] = index
    for of_inputs, sources in alike.items():
        for run in even_runs(sources):
            yield run, of_inputs


def _operands(
    op: Interpolate, stored: tuple[str, FeatureMap], shape: tuple[int, int], run: EvenRun, axis: int, count: int
) -> list[Pass]:
    """Return passes that copy ``count`` neighbouring rows (axis 0) or columns per output to the fixed-point unit.

    ``stored`` is the edge and the map that they read, and ``shape`` the rows and columns that each pass copies.
    """
    edge, source = stored
    size, steps = value_bytes(source.type), [1, 1]
    steps[axis] = run.stride if run.count > 1 else 1
    operands = []
    for neighbour in range(count):
        first = [0, 0]
        first[axis] = run.source + neighbour
        window = Window(
            kernel=(size, 1),
            stride=(size * steps[0] if shape[0] > 1 else 1, steps[1]),
            padding=(-size * first[0], -first[1], 0, 0),
        )
        operands.append(operand_pass(op, edge, source, shape, window))
    return operands


def _row_pass(op: Interpolate, edge: str, sums: tuple[str, FeatureMap], run: EvenRun, weights: tuple[int, ...]) -> Pass:
    """Return the pass of a run of interpolated rows: sums of an input row and the next times ``weights``."""
    operands = _operands(op, (edge, op.input), (run.count, op.width), run, 0, len(weights))
    builder = FixedProgramBuilder(op.name)
    total = builder.weighted_sum([(op.input.type, weight) for weight in weights])
    name, stored = sums
    task = program_pass(operands, builder.finish(total, stored.type), stored.type)
    return replace(task, target=(name, 0), lattice=PixelGrid(step=(run.step, 1), first=(run.first, 0)))


def _column_pass(op: Interpolate, sums: tuple[str, FeatureMap], run: EvenRun, weights: tuple[int, ...]) -> Pass:
    """Return the pass that interpolates evenly spaced output columns with equal weights from stored row sums."""
    stored = sums[1]
    operands = _operands(op, sums, (stored.height, run.count), run, 1, len(weights))
    builder = FixedProgramBuilder(op.name)
    total = builder.weighted_sum([(stored.type, weight) for weight in weights])
    result = _rounded(op, builder, total)
    task = program_pass(operands, builder.finish(result, op.output.type), op.output.type)
    return replace(task, lattice=PixelGrid(step=(1, run.step), first=(0, run.first)))


def _rounded(op: Interpolate, builder: FixedProgramBuilder, total: RegisterValue) -> RegisterValue:
    """Add instructions that requantise an interpolation's sums as the model does; return the result's value."""
    parts = op.axis_parts[0] * op.axis_parts[1]
    ends = [parts * (end - op.offset) for end in (op.input.type.minimum, op.input.type.maximum)]
    above_zero = builder.plus(total, -parts * op.offset, ends=(ends[0], ends[1]))
    builder.release(total)
    rule = op.requantisation or _rule_of(op, np.arange(ends[0], ends[1] + 1))
    return builder.requantise(above_zero, rule)


def _rule_of(op: Interpolate, sums: np.ndarray) -> Requantisation:
    """Return the requantisation that rounds all weighted ``sums`` as the model does, or refuse the layer."""
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
    if (requantise(sums[None], rule, int(np.abs(sums).max())) != op.rounded(sums)).any():
        raise ModelError(
            f"{op.name}: the engine can't round the sums of this interpolation exactly; use --template stream"
        )
    return rule
