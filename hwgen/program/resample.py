"""Array passes of a layer that picks rows and columns in any order: copies of evenly spaced ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import STRIDES
from hwgen.network.maps import Window
from hwgen.network.ops import Resample
from hwgen.program.array_pass import Pass, PixelGrid, repeat_weights, unscaled_pass

#: Maximum number of engine passes that copy the rows and columns of one resampling layer.
_MAX_PASSES = 256


@dataclass(frozen=True)
class EvenRun:
    """Run of evenly spaced output rows (or columns) that copy evenly spaced input rows (or columns).

    Parameters
    ----------
    first, step : int
        First row of the output, and the distance to the next one.
    source, stride : int
        Row of the input that the first row copies, and the distance to the next one.
    count : int
        Number of rows.
    """

    first: int
    step: int
    source: int
    stride: int
    count: int


def resample_passes(op: Resample, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a `Pass`, a copy, per pair of runs of evenly spaced rows and columns.

    Raises
    ------
    ModelError
        If the rows and columns are too uneven.
    """
    rows, columns = (even_runs(dict(enumerate(indices))) for indices in (op.rows, op.columns))
    runs = [(row, column) for row in rows for column in columns]
    if len(runs) > _MAX_PASSES:
        raise ModelError(
            f"{op.name}: the engine would copy the rows and columns of this layer in {len(runs):,} passes, and takes "
            f"{_MAX_PASSES} at most, because they are not evenly spaced; use --template stream"
        )
    task = repeat_weights(unscaled_pass(op, edges, op.output.type))
    return tuple(_copy(task, row, column) for row, column in runs)


def _copy(task: Pass, row: EvenRun, column: EvenRun) -> Pass:
    """Return a `Pass`: a copy of a pass (run of the array) that copies only one run of rows and one run of columns."""
    bottom, right = row.source - task.height + 1, column.source - task.width + 1
    return replace(
        task,
        rows=row.count,
        columns=column.count,
        window=Window(
            kernel=(1, 1),
            stride=(row.stride, column.stride),
            padding=(
                -row.source,
                -column.source,
                bottom + (row.count - 1) * row.stride,
                right + (column.count - 1) * column.stride,
            ),
        ),
        lattice=PixelGrid(step=(row.step, column.step), first=(row.first, column.first)),
    )


def even_runs(sources: Mapping[int, int]) -> list[EvenRun]:
    """Return a list of few `EvenRun` objects, the longest first, that cover an output's rows (or columns).

    ``sources`` has the row of the input for each row of the output.
    """
    left, runs = dict(sources), []
    while left:
        runs.append(max((_longest(left, first) for first in left), key=lambda run: run.count))
        for number in range(runs[-1].count):
            del left[runs[-1].first + number * runs[-1].step]
    return runs


def _longest(left: dict[int, int], first: int) -> EvenRun:
    """Return the longest evenly spaced run (`EvenRun`) among the output rows ``left`` that begins at row ``first``."""
    longest = EvenRun(first, 1, left[first], 1, 1)
    for second in left:
        step, stride = second - first, left[second] - left[first]
        if step <= 0 or stride not in STRIDES:
            continue
        count = 1
        while left.get(first + count * step) == left[first] + count * stride:
            count += 1
        longest = max(longest, EvenRun(first, step, left[first], stride, count), key=lambda run: run.count)
    return longest
