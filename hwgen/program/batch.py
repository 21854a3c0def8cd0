"""Several frames in a program: which layers are computed for all of them at once, so that weights are fetched once.

Layers whose output is one pixel, above all dense ones, are computed with a row of the output for each frame. They read
maps in which rows of all frames lie in turn: row ``y`` of frame ``f`` is row ``y * frames + f``. So a window of one
frame is one of this map whose rows are ``frames`` apart, as if it were dilated, and that of the next frame begins a row
below. All other layers are computed before, frame by frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import INPUT, Network
from hwgen.program.groups import Layer
from hwgen.program.maps import Batch, at_ends, roots
from hwgen.program.passes import MOST_TAPS, Lattice, Pass
from hwgen.program.tiles import Room, best_tilings

__all__ = ["MOST_FRAMES", "batched", "check_frames", "together"]

#: Frames of a program: as many as rows of a window may be apart.
MOST_FRAMES = MOST_TAPS


def check_frames(frames: object) -> None:
    """Refuse what is no number of frames that a program may have.

    Raises
    ------
    PlanError
    """
    if not isinstance(frames, int) or isinstance(frames, bool) or not 1 <= frames <= MOST_FRAMES:
        raise PlanError(f"batch must be from 1 to {MOST_FRAMES} frames, not {frames!r}")


def together(task: Pass, frames: int) -> Pass:
    """A pass of one output pixel, for all frames at once."""
    window = task.window
    top, left, bottom, right = window.padding
    if window.kernel[0] > 1:
        window = replace(window, dilation=(window.dilation[0] * frames, window.dilation[1]))
    window = replace(window, stride=(1, 1), padding=(top * frames, left, bottom * frames, right))
    return replace(task, height=task.height * frames, rows=frames, window=window)


def batched(network: Network, engine: EngineConfig, layers: Sequence[Layer], room: Room, frames: int) -> Batch:
    """Which of a network's layers are computed for all frames at once.

    These are layers of one output pixel that nothing follows but such layers, where that is thought to take fewer
    cycles and one of them has weights. A map of more pixels that the host writes or reads is no map of all frames, so
    what reads it isn't either.
    """
    if frames == 1:
        return Batch()
    where = roots(network)
    maps = {INPUT: network.input, **{layer.name: layer.output for layer in network.layers}}
    large = {name for name in at_ends(network, where) if maps[name].shape[1:] != (1, 1)}
    found, by_frame = set[str](), large
    for layer in reversed(layers):
        step = layer.step
        read = {where[edge][0] for edge in step.edges}
        if (
            where[step.name][0] not in by_frame
            and not read & large
            and step.output.shape[1:] == (1, 1)
            and all(_gains(task, engine, room, frames) for task in layer.tasks)
        ):
            found.add(step.name)
        else:
            by_frame = by_frame | read
    those = [layer for layer in layers if layer.step.name in found]
    if all(task.shares_weights for layer in those for task in layer.tasks):  # there is nothing to fetch once
        return Batch(frames=frames)
    names = frozenset(op.name for layer in those for op in layer.step.ops)
    return Batch(frames=frames, together=frozenset(found), layers=names)


def _gains(task: Pass, engine: EngineConfig, room: Room, frames: int) -> bool:
    """Whether a pass can be computed for all frames at once, in fewer cycles than frame by frame."""
    apart = task.window.dilation[0] * frames if task.window.kernel[0] > 1 else 1
    if (task.rows, task.columns) != (1, 1) or task.pooled or task.lattice != Lattice() or apart > MOST_TAPS:
        return False
    ((_, alone),) = best_tilings(task, engine, room)
    try:
        ((_, whole),) = best_tilings(together(task, frames), engine, room)
    except PlanError:  # buffers are too small for the rows of all frames
        return False
    return whole.order[0] <= frames * alone.order[0]
