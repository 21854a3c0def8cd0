"""Engine programs of several frames: dense layers are computed for all frames at once, to fetch weights once.

Layers whose output is one pixel, above all dense ones, are computed with one output row per frame. Their input maps
interleave the rows of all frames: row ``y`` of frame ``f`` is row ``y * frames + f``. The rows of one frame's window
are therefore ``frames`` rows apart, as under a dilation, and the window of the next frame begins one row below.
All other layers are computed first, frame by frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.program.array_pass import Pass, PixelGrid
from hwgen.program.groups import LayerPasses
from hwgen.program.maps import Batch, host_map_names, roots
from hwgen.program.passes import MAX_TAPS
from hwgen.program.tiles import Room, best_tilings

#: Maximum number of frames that a program computes, equal to the maximum distance between the rows of a window.
MAX_FRAMES = MAX_TAPS


def check_frames(frames: object) -> None:
    """Refuse a number of frames per engine run unless it is an integer from 1 to `MAX_FRAMES`.

    Raises
    ------
    PlanError
    """
    if not isinstance(frames, int) or isinstance(frames, bool) or not 1 <= frames <= MAX_FRAMES:
        raise PlanError(f"batch must be from 1 to {MAX_FRAMES} frames, not {frames!r}")


def for_all_frames(layer_pass: Pass, frames: int) -> Pass:
    """Return a `Pass` (run of the array) for all frames at once, made from one with a single output pixel."""
    window = layer_pass.window
    top, left, bottom, right = window.padding
    if window.kernel[0] > 1:
        window = replace(window, dilation=(window.dilation[0] * frames, window.dilation[1]))
    window = replace(window, stride=(1, 1), padding=(top * frames, left, bottom * frames, right))
    return replace(layer_pass, height=layer_pass.height * frames, rows=frames, window=window)


def batched(network: Network, engine: EngineConfig, layers: Sequence[LayerPasses], room: Room, frames: int) -> Batch:
    """Return a `Batch`: number of frames and the layers to compute for all frames at once, to fetch weights only once.

    An engine of several cores computes every layer for all frames before the next one (``by_layer``). With one core, a
    layer is computed for all frames at once if its output is one pixel, only such layers read it, and the estimate says
    that this takes no more cycles than frame by frame. The host stores maps of several pixels one frame after the
    other; layers that read these are computed frame by frame. If no such layer has different weights per output fold,
    there is nothing to save, and all layers are computed frame by frame.
    """
    if frames == 1:
        return Batch()
    if engine.has_cores:  # layers are computed one after the other, each for all frames
        return Batch(frames=frames, by_layer=True)
    root_of = roots(network)
    large = {name for name in host_map_names(network, root_of) if network.maps[name].shape[1:] != (1, 1)}
    together_names, by_frame = set[str](), large  # ``by_frame``: maps that are stored one frame after the other
    for layer in reversed(layers):
        step = layer.step
        read = {root_of[edge][0] for edge in step.edges}
        if (
            root_of[step.name][0] not in by_frame
            and not read & large
            and step.output.shape[1:] == (1, 1)
            and all(_may_batch(task, engine, room, frames) for task in layer.tasks)
        ):
            together_names.add(step.name)
        else:
            by_frame = by_frame | read
    together_layers = [layer for layer in layers if layer.step.name in together_names]
    if all(task.shares_weights for layer in together_layers for task in layer.tasks):
        # batching saves no weight fetches
        return Batch(frames=frames)
    names = frozenset(op.name for layer in together_layers for op in layer.step.ops)
    return Batch(frames=frames, together=frozenset(together_names), layers=names)


def _may_batch(layer_pass: Pass, engine: EngineConfig, room: Room, frames: int) -> bool:
    """Return whether a pass may compute all frames at once, as this takes no more estimated cycles than one by one."""
    row_distance = layer_pass.window.dilation[0] * frames if layer_pass.window.kernel[0] > 1 else 1
    if (
        (layer_pass.rows, layer_pass.columns) != (1, 1)
        or layer_pass.pooled
        or layer_pass.fixed
        or layer_pass.lattice != PixelGrid()
        or row_distance > MAX_TAPS
    ):
        return False
    ((_, frame_cost),) = best_tilings(layer_pass, engine, room)
    try:
        ((_, batch_cost),) = best_tilings(for_all_frames(layer_pass, frames), engine, room)
    except PlanError:  # the buffers are too small for the rows of all frames
        return False
    return batch_cost.order[0] <= frames * frame_cost.order[0]
