"""The least line buffers and FIFOs with which nothing is lost.

Nothing lost means: the latency and interval of line buffers with rows to spare and FIFOs without end. Rows are
settled first, then the FIFOs one after the other; each ends at the least depth that keeps every frame's last output
where it was, given the others (less of one is never mended by less of another, so each is minimal at the end).
The test is the exact schedule, not a simulation.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.network.graph import Window
from hwgen.plan.schedule import Schedule, enough_frames

#: Beats that can come in between a window's end and the first that takes its place, with some to spare.
IN_FLIGHT = 8


def ample_rows(window: Window, width: int, folds: int) -> int:
    """Rows beyond which more never help, for an input ``width`` steps of pixels wide in ``folds`` beats each.

    The last windows of a frame and the first of the next at once, what comes in while windows in the padding are
    computed, and the beats that are in flight while a row is given back.
    """
    top, _, bottom, _ = window.padding
    in_flight = -(-IN_FLIGHT // (width * folds))
    return 2 * window.kernel[0] + window.stride[0] + top + bottom + in_flight


def size_buffers(config: AcceleratorConfig, frames: int | None = None) -> tuple[list[int], list[int]]:
    """Rows of each layer's line buffer and depth of each layer's FIFO.

    Parameters
    ----------
    config : AcceleratorConfig
        Holds ample rows; its depths don't matter.
    frames : int, optional
        Frames that follow each other at most; any number by default.
    """
    depths = [None] * len(config.layers)
    if frames is None:
        frames = enough_frames(config, Schedule(config, 3, depths=depths).cycles)
    schedule = Schedule(config, frames, depths=depths)
    schedule.solve()
    target = schedule.frame_ends.copy()
    for number, layer in enumerate(config.layers):
        for rows in range(least_rows(layer), layer.window.rows):
            trial = schedule.copy()
            trial.shrink(number, rows=rows)
            if trial.solve(target):
                schedule = trial
                break
    shrunk = _with_rows(config, schedule.rows)
    if [layer.pipeline_latency for layer in shrunk.layers] != [layer.pipeline_latency for layer in config.layers]:
        # A ring of one row is read a cycle faster: fewer credits are in flight.
        schedule = Schedule(shrunk, frames, depths=depths)
        schedule.solve()
        target = schedule.frame_ends.copy()
    for number, layer in enumerate(config.layers):
        schedule = _least_depth(schedule, number, max(layer.fold_beats), target)
    return schedule.rows, [depth for depth in schedule.depths if depth is not None]


def _with_rows(config: AcceleratorConfig, rows: list[int]) -> AcceleratorConfig:
    layers = []
    for layer, count in zip(config.layers, rows, strict=True):
        window = replace(layer.window, rows=count)
        layers.append(replace(layer, compute=replace(layer.compute, window=window)))
    return replace(config, layers=tuple(layers))


def least_rows(layer: LayerConfig) -> int:
    """Rows that hold one window."""
    return min(layer.window.kernel[0], layer.window.input.height)


def _least_depth(schedule: Schedule, number: int, low: int, target) -> Schedule:
    """``schedule`` with the shallowest FIFO behind layer ``number``, by bisection between a fold and what is used.

    What the present times use is mostly the least already, so the first trial is one less.
    """
    high = max(schedule.credits_used(number), low)
    best = schedule.copy()
    best.shrink(number, depth=high)
    best.solve(target)
    middle = high - 1
    while low < high:
        trial = best.copy()
        trial.shrink(number, depth=middle)
        if trial.solve(target):
            best, high = trial, middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return best
