"""The least line buffers and FIFOs with which nothing is lost.

Nothing lost means: the latency and interval of line buffers with rows to spare and FIFOs without end. Rows are
settled first, then the FIFOs one after the other; each ends at the least depth that keeps every frame's last output
where it was, given the others (less of one is never mended by less of another, so each is minimal at the end).
The test is the exact schedule, not a simulation.
"""

from __future__ import annotations

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.plan.schedule import Schedule

#: Frames that the schedules cover: enough for an interval, twice.
FRAMES = 3


def ample_rows(kernel: int, stride: int) -> int:
    """Rows beyond which more never help: the last windows of a frame and the first of the next."""
    return 2 * kernel + stride


def size_buffers(config: AcceleratorConfig) -> tuple[list[int], list[int]]:
    """Rows of each layer's line buffer and depth of each layer's FIFO.

    ``config`` holds ample rows; its depths don't matter.
    """
    count = len(config.layers)
    schedule = Schedule(config, FRAMES, depths=[None] * count)
    schedule.solve()
    target = schedule.frame_ends.copy()
    for number, layer in enumerate(config.layers):
        for rows in range(least_rows(layer), layer.window.rows):
            trial = schedule.copy()
            trial.shrink(number, rows=rows)
            if trial.solve(target):
                schedule = trial
                break
    for number, layer in enumerate(config.layers):
        schedule = _least_depth(schedule, number, max(layer.fold_beats), target)
    return schedule.rows, [depth for depth in schedule.depths if depth is not None]


def least_rows(layer: LayerConfig) -> int:
    """Rows that hold one window."""
    return min(layer.window.kernel[0], layer.window.input.height)


def _least_depth(schedule: Schedule, number: int, low: int, target) -> Schedule:
    """``schedule`` with the shallowest FIFO behind layer ``number``, by bisection between a fold and what is used."""
    high = max(schedule.credits_used(number), low)
    best = schedule.copy()
    best.shrink(number, depth=high)
    best.solve(target)
    while low < high:
        middle = (low + high) // 2
        trial = best.copy()
        trial.shrink(number, depth=middle)
        if trial.solve(target):
            best, high = trial, middle
        else:
            low = middle + 1
    return best
