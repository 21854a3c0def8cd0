"""Costs and loop nests on the engine for tilings that a user or another search chose.

`hwgen.blocking.count` counts the memory accesses of a nest, as for any accelerator. The engine accesses as many bytes,
or fewer where its buffers still hold data that the count fetches again. Examples are smaller boxes at the border of a
map, and input rows that two neighbouring tiles share.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwgen.blocking.count import loads
from hwgen.blocking.nest import Loop, Nest
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.program.array_pass import Pass
from hwgen.program.layout import blocks
from hwgen.program.split import UNDIVIDED
from hwgen.program.tiles import (
    Cost,
    Estimator,
    Room,
    Tiling,
    is_single,
    most_folds,
    most_pixels,
    pitch,
    plane_words,
    pools,
    steps,
)

__all__ = ["tiling_cost", "nest", "problem", "words"]


def tiling_cost(task: Pass, engine: EngineConfig, tiling: Tiling, room: Room | None = None) -> Cost:
    """Check that a tiling of a pass fits the engine, and return the estimated cost of the pass with the tiling.

    By default the pass has the whole buffers.

    Raises
    ------
    PlanError
        If the engine can't compute the pass with this tiling.
    """
    room = room or Room.whole(engine)
    _check_sizes(task, tiling)
    _check_boxes(task, tiling, room)
    single = is_single(task, tiling.channels, tiling.taps) and tiling.tap_columns in (None, task.window.kernel[1])
    max_pixels = most_pixels(task, engine, single=single and not room.shared)
    if tiling.rows * tiling.columns > max_pixels or not pools(task, engine, tiling.columns):
        raise PlanError(
            f"{task.name}: a tile of {tiling.rows} x {tiling.columns} pixels is too large for the engine's slots, its "
            f"output buffer or its pool; {max_pixels} pixels at most fit"
        )
    max_folds = most_folds(task, engine, np.array([tiling.rows * tiling.columns]), single=single).item()
    if not 1 <= tiling.folds <= max_folds:
        raise PlanError(f"{task.name}: folds of a tiling must be from 1 to {max_folds}, not {tiling.folds}")
    cost = _cost(task, engine, room, tiling)
    max_steps = engine.weight_steps if room.resident else room.weight_steps
    job_steps = tiling.folds * steps(task, tiling.channels, tiling.taps, tiling.tap_columns)
    if cost is None or job_steps > max_steps:
        raise PlanError(
            f"{task.name}: the engine's buffers don't hold {tiling}; map_words {room.map_words} or weight_steps "
            f"{max_steps} must be more"
        )
    return cost


def _check_sizes(task: Pass, tiling: Tiling) -> None:
    rows, columns = task.window.kernel
    sizes = {
        "rows": (tiling.rows, 1 if task.has_single_rows else task.rows, task.edge),
        "columns": (tiling.columns, task.columns, task.edge),
        "box_rows": (tiling.box_rows, -(-task.rows // max(tiling.rows, 1)) * tiling.rows, tiling.rows),
        "channels": (tiling.channels, task.channels, LANES),
        "taps": (tiling.taps, rows, 1),
        "tap_columns": (columns if tiling.tap_columns is None else tiling.tap_columns, columns, 1),
    }
    for name, (size, maximum, unit) in sizes.items():
        if not 0 < size <= maximum or (size % unit and size != maximum):
            unit_text = f", a multiple of {unit} or all" if unit > 1 else ""
            raise PlanError(f"{task.name}: {name} of a tiling must be from 1 to {maximum}{unit_text}, not {size}")


def _check_boxes(task: Pass, tiling: Tiling, room: Room) -> None:
    rows, columns = task.window.kernel
    if task.maximum and (tiling.taps < rows or tiling.tap_columns not in (None, columns)):
        raise PlanError(f"{task.name}: a chunk of a maximum must have all {rows} x {columns} taps of the kernel")
    if (tiling.by_taps or tiling.rolling) and task.split != UNDIVIDED:
        raise PlanError(f"{task.name}: boxes by_taps and rolling boxes must be of one core")
    if tiling.by_taps and (tiling.rolling or tiling.box_rows != tiling.rows):
        raise PlanError(f"{task.name}: boxes by_taps must have one tile each, and not be rolling")
    if tiling.rolling and (tiling.channels < task.channels or tiling.box_rows != tiling.rows):
        raise PlanError(f"{task.name}: rolling boxes must have one tile each, with all channels")
    if tiling.rolling and room.shared:
        raise PlanError(f"{task.name}: rolling boxes must have the map buffer to themselves, not side by side")


def _cost(task: Pass, engine: EngineConfig, room: Room, tiling: Tiling) -> Cost | None:
    """Return the estimated cost of a pass with a tiling, or ``None`` if the engine's buffers are too small.

    Boxes ``by_taps`` or ``rolling`` are estimated as if they loaded as much as plain boxes.
    """
    plain = replace(tiling, tap_columns=None, by_taps=False, rolling=False)
    if plain == tiling:
        return Estimator(task, engine, room).cost(tiling)
    if box_words(task, engine, tiling) > room.map_words:
        return None
    return Estimator(task, engine, replace(room, map_words=1 << 30)).cost(plain)


def box_words(task: Pass, engine: EngineConfig, tiling: Tiling) -> int:
    """Return the smallest number of words per bank of the map buffer with which a tiling can be computed."""
    taps = (0, tiling.taps) if tiling.by_taps else None
    rows = _longest(task, 0, tiling.box_rows, taps)
    width = _longest(task, 1, tiling.columns)
    plane = plane_words(task, engine, rows, width, tiling.columns)
    if tiling.rolling:  # rows of a rolling box can begin at any bank
        plane = -(-((rows - 1) * pitch(task, engine, width, tiling.columns) + width) // engine.pixels) + 1
    return plane * (tiling.folds if task.channelwise else blocks(tiling.channels))


def _longest(task: Pass, axis: int, step: int, taps: tuple[int, int] | None = None) -> int:
    """Return the largest number of input rows (axis 0) or columns (axis 1) that one output tile reads."""
    lengths = []
    for begin in range(0, task.size[axis], step):
        first, last = task.needed(axis, begin, min(begin + step, task.size[axis]), taps)
        lengths.append(last - first)
    return max(lengths)


def problem(task: Pass) -> Problem:
    """Return the loop bounds of a convolution as the engine computes it, with input channels rounded up to 8.

    Raises
    ------
    PlanError
        If the pass is channelwise, or its window is dilated or smaller than the stride.
    """
    window = task.window
    gaps = any(kernel < stride for kernel, stride in zip(window.kernel, window.stride, strict=True))
    if task.channelwise or window.dilation != (1, 1) or gaps:
        raise PlanError(f"{task.name}: only convolutions over windows without gaps are counted as nests of loops")
    return Problem(
        name=task.name,
        X=task.columns,
        Y=task.rows,
        C=blocks(task.channels) * LANES,
        K=task.maps,
        Fw=window.kernel[1],
        Fh=window.kernel[0],
        width=task.width,
        height=task.height,
        stride=window.stride,
        pad=(window.padding[0], window.padding[1]),
    )


def nest(task: Pass, engine: EngineConfig, tiling: Tiling) -> Nest:
    """Return the loop nest, innermost loop first, in which the engine computes a convolution with a tiling.

    From inside to outside: loops of a chunk, over the chunks of a tile, over the tiles of a box, then boxes and folds.
    """
    loops, fold = problem(task), min(tiling.folds * task.fold_maps(engine), task.maps)
    tap_columns = tiling.tap_columns or loops.Fw
    chunk = {"X": tiling.columns, "Y": tiling.rows, "C": min(tiling.channels, loops.C), "K": fold}
    inner = [Loop(dim, size) for dim, size in (chunk | {"Fw": tap_columns, "Fh": tiling.taps}).items()]
    tile = [Loop("Fw", loops.Fw), Loop("Fh", loops.Fh), Loop("C", loops.C), Loop("Y", min(tiling.box_rows, loops.Y))]
    boxes = [Loop("Y", loops.Y), Loop("X", loops.X)] if tiling.rolling else [Loop("X", loops.X), Loop("Y", loops.Y)]
    folds = [Loop("K", loops.K)]
    return Nest(loops, (*inner, *tile, *(folds + boxes if tiling.maps_stay else boxes + folds)))


#: Positions in the engine's loop nest, ascending: outside the loops of a chunk; then also outside the loops over kernel
#: columns, over kernel rows, and over a box's channels and tiles.
CHUNK, ROW, PART, BOX = 6, 7, 8, 10


def words(task: Pass, engine: EngineConfig, tiling: Tiling, positions: dict[str, int] | None = None) -> dict[str, int]:
    """Count, by the loop-nest model, the bytes of input, weights and output of a pass that cross the memory port.

    Parameters
    ----------
    task : Pass
    engine : EngineConfig
    tiling : Tiling
    positions : dict of str to int, optional
        Positions in the nest up to which the buffers hold ``input`` and ``weights``. By default they hold the minimum:
        the weights of a chunk, and the input of a chunk or of a tile.

    Raises
    ------
    PlanError
        For the passes that `problem` refuses, or if a chunk has fewer kernel rows than the stride.
    """
    stride, last = task.window.stride[0], task.window.kernel[0] % tiling.taps
    if tiling.by_taps and min(tiling.taps, last or tiling.taps) < stride and tiling.rows > 1:
        raise PlanError(f"{task.name}: chunks of fewer kernel rows than the stride, {stride}, are not counted")
    loop_nest, loops = nest(task, engine, tiling), problem(task)
    default = BOX if tiling.rolling else ROW if tiling.by_taps else PART
    held_at = {"input": default, "weights": CHUNK} | (positions or {})
    scope = (2 if tiling.maps_stay else 1) if tiling.rolling else None
    counted = {
        "input": loads(loop_nest, "input", held_at["input"], overlap=tiling.rolling, scope=scope),
        "weights": loads(loop_nest, "weights", held_at["weights"]),
        "output": loads(loop_nest, "output", len(loop_nest.loops)),
    }
    assert set(counted) == set(OPERANDS)
    # A fold with fewer output channels has the weight bytes of a whole fold. Output blocks have all 8 channels in
    # memory.
    folds = task.folds(engine) * engine.maps
    counted["weights"] = counted["weights"] // (loops.K * loops.C) * folds * (-(-task.channels // CHAIN) * CHAIN)
    counted["output"] = counted["output"] // loops.K * blocks(task.maps) * LANES
    return counted
