"""Quick estimate of a fusion group's latency in cycles, row by row, to compare plans before the exact schedule.

An output row starts once the first pixels that it needs of its last input row have arrived, and does not end before
that input row ends. FIFOs and line buffers count as unlimited, and a pipeline as a fixed number of cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hwgen.network.maps import Window
from hwgen.templates.work import LayerWork, Unroll

#: Cycles from a window's last step to its first beat at the next layer, without the latency of the chains.
_PIPELINE = 16

RowTimes = tuple[np.ndarray, np.ndarray]
"""Type of a pair of arrays over a layer's output rows: cycles when the rows start, and when they end."""


def estimate_latency(works: Sequence[LayerWork], windows: Sequence[Window], unrolls: Sequence[Unroll]) -> float:
    """Return a fusion group's estimated latency: cycles from first input to last output of one frame."""
    return last_end(works, row_times(works, windows, unrolls))


def row_times(
    works: Sequence[LayerWork], windows: Sequence[Window], unrolls: Sequence[Unroll], first: Sequence[RowTimes] = ()
) -> list[RowTimes]:
    """Return a list of the estimated start and end cycles of each layer's output rows, as two arrays per layer.

    Parameters
    ----------
    first : sequence of (array, array)
        Known times of the first layers.
    """
    rows = list(first)
    for index in range(len(first), len(works)):
        work, unroll = works[index], unrolls[index]
        (starts, ends), *others = (
            rows[index - back] if back <= index else _input_rows(work, unroll) for back in work.back
        )
        for other in others:  # a map whose single pixel is repeated counts with its last row
            starts, ends = (np.maximum(*both) for both in zip((starts, ends), _row_span(other, len(ends)), strict=True))
        rows.append(_output_rows(work, windows[index], unroll, starts, ends))
    return rows


def last_end(works: Sequence[LayerWork], rows: Sequence[RowTimes]) -> float:
    """Return a fusion group's last cycle: the end of its last output row, over all layers that no other layer reads."""
    read_layers = {index - back for index, work in enumerate(works) for back in work.back}
    return float(max(ends[-1] for index, (_, ends) in enumerate(rows) if index not in read_layers))


def _input_rows(work: LayerWork, unroll: Unroll) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair: start and end cycles of a fusion group's input rows, at one beat of the first layer per cycle."""
    row = work.beats(unroll) * -(-work.input_width // unroll.tp)
    ends = np.arange(1, work.input_height + 1) * float(row)
    return ends - row, ends


def _row_span(source: tuple[np.ndarray, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays: start and end cycles of ``count`` rows; if a map has another number, its last end."""
    last = np.full(count, source[1][-1])
    return source if len(source[1]) == count else (last, last)


def _output_rows(
    work: LayerWork, window: Window, unroll: Unroll, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a pair of arrays over output rows: start cycles and end cycles, given the input rows' cycles."""
    pixel_cycles = float(work.pixel_cycles(unroll))
    row = pixel_cycles * -(-work.width // unroll.tp)
    output_rows = np.arange(work.height)
    needed = _last_input_rows(work, window)
    column = min(max(window.extent[1] - window.padding[1], 1), work.input_width) / work.input_width
    ready = starts[needed] + column * (ends[needed] - starts[needed])
    earliest = np.maximum(ready + row, ends[needed] + pixel_cycles)
    ramp = (output_rows + 1) * row
    done = np.maximum.accumulate(earliest - ramp) + ramp
    delay = min(unroll.tn * unroll.tk, 16) + _PIPELINE
    begun = np.maximum(ready, np.concatenate([[-np.inf], done[:-1]]))
    return begun + delay + pixel_cycles, done + delay


@lru_cache(maxsize=1 << 10)
def _last_input_rows(work: LayerWork, window: Window) -> np.ndarray:
    """Return an array by output row of a layer: index of the last input row that it needs."""
    output_rows = np.arange(work.height)
    if work.direct_inputs:
        return output_rows * work.input_height // work.height
    last = output_rows * window.stride[0] - window.padding[0] + window.extent[0] - 1
    return np.clip(last, 0, work.input_height - 1)
