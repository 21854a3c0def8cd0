"""A quick estimate of a group's latency, row by row: to choose among plans before the exact schedule is computed.

A row of outputs starts once the first pixels that it needs of its last input row have come, and ends no sooner than
that input row does. FIFOs and line buffers count as endless, and a pipeline as a fixed number of cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwgen.network.maps import Window
from hwgen.templates.work import LayerWork, Unroll

#: Cycles from a window's last step to its first beat at the next layer, but for the chains.
_PIPELINE = 16


def estimate_latency(works: Sequence[LayerWork], windows: Sequence[Window], unrolls: Sequence[Unroll]) -> float:
    """Cycles from the first input to the last output of one frame, about: of what no layer reads, the last."""
    rows: list[tuple[np.ndarray, np.ndarray]] = []  # of each layer's output
    for number, (work, window, unroll) in enumerate(zip(works, windows, unrolls, strict=True)):
        (starts, ends), *others = (
            rows[number - back] if back <= number else _coming(work, unroll) for back in work.back
        )
        for other in others:  # of one that is spread the last row
            starts, ends = (np.maximum(*both) for both in zip((starts, ends), _rows(other, len(ends)), strict=True))
        rows.append(_through(work, window, unroll, starts, ends))
    read = {number - back for number, work in enumerate(works) for back in work.back}
    return float(max(ends[-1] for number, (_, ends) in enumerate(rows) if number not in read))


def _coming(work: LayerWork, unroll: Unroll) -> tuple[np.ndarray, np.ndarray]:
    """When the rows of an input of the group start and end that a layer takes."""
    row = work.beats(unroll) * -(-work.input_width // unroll.tp)
    ends = np.arange(1, work.input_height + 1) * float(row)
    return ends - row, ends


def _rows(source: tuple[np.ndarray, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """When so many rows start and end; a map of fewer is there when all of it is."""
    last = np.full(count, source[1][-1])
    return source if len(source[1]) == count else (last, last)


def _through(
    work: LayerWork, window: Window, unroll: Unroll, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """When the rows of a layer's output start and end, given those of its input."""
    walk = float(work.pixel_cycles(unroll))
    row = walk * -(-work.width // unroll.tp)
    numbers = np.arange(work.height)
    needed = np.clip(numbers * window.stride[0] - window.padding[0] + window.extent[0] - 1, 0, work.input_height - 1)
    if work.in_step:
        needed = numbers * work.input_height // work.height
    column = min(max(window.extent[1] - window.padding[1], 1), work.input_width) / work.input_width
    ready = starts[needed] + column * (ends[needed] - starts[needed])
    earliest = np.maximum(ready + row, ends[needed] + walk)
    ramp = (numbers + 1) * row
    done = np.maximum.accumulate(earliest - ramp) + ramp
    delay = min(unroll.tn * unroll.tk, 16) + _PIPELINE
    begun = np.maximum(ready, np.concatenate([[-np.inf], done[:-1]]))
    return begun + delay + walk, done + delay
