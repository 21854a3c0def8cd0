"""Checks of tilings (tile and chunk sizes, loop order) that a user or another search chose, and their cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.program import tiles
from hwgen.program.array_pass import Pass
from hwgen.program.layout import blocks
from hwgen.program.split import UNDIVIDED


def tiling_cost(
    task: Pass, engine: EngineConfig, tiling: tiles.Tiling, room: tiles.Room | None = None
) -> tiles.TilingCost:
    """Check that a tiling of a pass fits the engine; return its estimated `TilingCost` (cycles, words, jobs).

    By default the pass has the whole buffers.

    Raises
    ------
    PlanError
        If the engine can't compute the pass with this tiling.
    """
    room = room or tiles.Room.whole(engine)
    _check_sizes(task, tiling)
    _check_boxes(task, tiling, room)
    single = tiles.is_single(task, tiling.channels, tiling.taps) and tiling.tap_columns in (None, task.window.kernel[1])
    pixel_limit = tiles.max_pixels(task, engine, single=single and not room.shared)
    if tiling.rows * tiling.columns > pixel_limit:
        raise PlanError(
            f"{task.name}: tile must have at most {pixel_limit} pixels, as many as the engine's accumulators and "
            "output "
            f"buffer hold, not {tiling.rows} x {tiling.columns}"
        )
    if not tiles.can_pool(task, engine, tiling.columns):
        raise PlanError(
            f"{task.name}: a row of {tiling.columns} pixels of the tile is too wide for the engine's pool buffer "
            f"(pool_words {engine.pool_words}, at most {tiles.MAX_POOLED} pixels); give the tile fewer columns"
        )
    fold_limit = tiles.max_folds(task, engine, np.array([tiling.rows * tiling.columns]), single=single).item()
    if not 1 <= tiling.folds <= fold_limit:
        raise PlanError(
            f"{task.name}: folds must be from 1 to {fold_limit} for a tile of this size, not {tiling.folds}"
        )
    cost = _cost(task, engine, room, tiling)
    if cost is None:
        raise PlanError(
            f"{task.name}: its boxes of {tiling.box_rows} x {tiling.columns} outputs don't fit the engine's map buffer "
            f"of {room.map_words:,} words per bank (map_words); lower box_rows, the tile's columns or the chunk's "
            "channels"
        )
    max_steps = engine.weight_steps if room.resident else room.weight_steps
    job_steps = tiling.folds * tiles.steps(task, tiling.channels, tiling.taps, tiling.tap_columns)
    if job_steps > max_steps:
        raise PlanError(
            f"{task.name}: the weights of a job's {job_steps:,} steps don't fit the engine's weight buffer of "
            f"{max_steps:,} (weight_steps); lower folds or the chunk"
        )
    return cost


def _check_sizes(task: Pass, tiling: tiles.Tiling) -> None:
    """Raise PlanError if a tiling's tile, input region (box) or chunk is out of range or not a multiple of its unit."""
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
            unit_text = f" and a multiple of {unit}, or {maximum}" if unit > 1 else ""
            raise PlanError(f"{task.name}: {name} must be from 1 to {maximum}{unit_text}, not {size}")


def _check_boxes(task: Pass, tiling: tiles.Tiling, room: tiles.Room) -> None:
    """Refuse a tiling whose chunks or input boxes (parts of the input) the pass or buffers don't permit."""
    rows, columns = task.window.kernel
    if task.maximum and (tiling.taps < rows or tiling.tap_columns not in (None, columns)):
        raise PlanError(
            f"{task.name}: a max pool's chunk must have all {rows} x {columns} taps of its kernel, not {tiling.taps} x "
            f"{columns if tiling.tap_columns is None else tiling.tap_columns}"
        )
    if (tiling.by_taps or tiling.rolling) and task.split != UNDIVIDED:
        used = "by_taps" if tiling.by_taps else "rolling"
        raise PlanError(f"{task.name}: {used} must be false for a layer that several cores compute")
    if tiling.by_taps and tiling.rolling:
        raise PlanError(f"{task.name}: by_taps and rolling exclude each other; set one of them to false")
    if (tiling.by_taps or tiling.rolling) and tiling.box_rows != tiling.rows:
        used = "by_taps" if tiling.by_taps else "rolling"
        raise PlanError(
            f"{task.name}: box_rows must equal the tile's {tiling.rows} rows with {used}, not {tiling.box_rows}"
        )
    if tiling.rolling and tiling.channels < task.channels:
        raise PlanError(
            f"{task.name}: a chunk must have all {task.channels} channels with rolling, not {tiling.channels}"
        )
    if tiling.rolling and room.shared:
        raise PlanError(f"{task.name}: rolling must be false for layers in side_by_side, which share the map buffer")


def _cost(task: Pass, engine: EngineConfig, room: tiles.Room, tiling: tiles.Tiling) -> tiles.TilingCost | None:
    """Return the estimated `TilingCost` of a pass with a tiling; ``None`` if the engine's buffers are too small.

    Boxes ``by_taps`` or ``rolling`` are estimated as if they loaded as much as plain boxes.
    """
    plain = replace(tiling, tap_columns=None, by_taps=False, rolling=False)
    if plain == tiling:
        return tiles.Estimator(task, engine, room).cost(tiling)
    if box_words(task, engine, tiling) > room.map_words:
        return None
    return tiles.Estimator(task, engine, replace(room, map_words=1 << 30)).cost(plain)


def box_words(task: Pass, engine: EngineConfig, tiling: tiles.Tiling) -> int:
    """Return how many words per map buffer bank a tiling needs at least, for one box (loaded part of the input)."""
    taps = (0, tiling.taps) if tiling.by_taps else None
    rows = _longest(task, 0, tiling.box_rows, taps)
    width = _longest(task, 1, tiling.columns)
    plane = tiles.plane_words(task, engine, rows, width, tiling.columns)
    if tiling.rolling:  # rows of a rolling box can begin at any bank
        plane = -(-((rows - 1) * tiles.pitch(task, engine, width, tiling.columns) + width) // engine.pixels) + 1
    return plane * (tiling.folds if task.channelwise else blocks(tiling.channels))


def _longest(task: Pass, axis: int, step: int, taps: tuple[int, int] | None = None) -> int:
    """Return the largest number of input rows (axis 0) or columns (axis 1) that one output tile reads."""
    lengths = []
    for begin in range(0, task.size[axis], step):
        first, last = task.needed(axis, begin, min(begin + step, task.size[axis]), taps)
        lengths.append(last - first)
    return max(lengths)
