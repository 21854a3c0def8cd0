"""Tilings that were chosen elsewhere: whether the engine can compute a pass so, and the nest of loops that it then is.

What a nest moves is counted by `hwgen.blocking.count`, as for any accelerator. The engine moves as much, or less where
its buffers still hold what the count has fetched again: if boxes at the border of a map are smaller, or if the rows
that a tile reads last are those that the one below it reads first.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.blocking.count import loads
from hwgen.blocking.nest import Loop, Nest
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.program.layout import blocks
from hwgen.program.passes import Pass
from hwgen.program.tiles import (
    Cost,
    Estimator,
    Room,
    Tiling,
    is_single,
    most_pixels,
    pitch,
    plane_words,
    pools,
    steps,
)

__all__ = ["tiling_cost", "nest", "problem", "words"]


def tiling_cost(task: Pass, engine: EngineConfig, tiling: Tiling, room: Room | None = None) -> Cost:
    """What a tiling costs that was chosen elsewhere; in the room of a pass by itself if none is given.

    Raises
    ------
    PlanError
        If the engine can't compute the pass so.
    """
    room = room or Room.whole(engine)
    _check_sizes(task, tiling)
    _check_kind(task, tiling, room)
    single = is_single(task, tiling.channels, tiling.taps) and tiling.tap_columns in (None, task.window.kernel[1])
    most = most_pixels(task, engine, single=single and not room.shared)
    if tiling.rows * tiling.columns > most or not pools(task, engine, tiling.columns):
        raise PlanError(
            f"{task.name}: a tile of {tiling.rows} x {tiling.columns} pixels is too large for the engine's slots, its "
            f"output buffer or its pool; {most} pixels at most fit"
        )
    cost = _cost(task, engine, room, tiling)
    most_steps = engine.weight_steps if room.resident else room.weight_steps
    if cost is None or steps(task, tiling.channels, tiling.taps, tiling.tap_columns) > most_steps:
        raise PlanError(
            f"{task.name}: the engine's buffers don't hold {tiling}; map_words {room.map_words} or weight_steps "
            f"{most_steps} must be more"
        )
    return cost


def _check_sizes(task: Pass, tiling: Tiling) -> None:
    rows, columns = task.window.kernel
    sizes = {
        "rows": (tiling.rows, 1 if task.is_scattered else task.rows, task.edge),
        "columns": (tiling.columns, task.columns, task.edge),
        "box_rows": (tiling.box_rows, -(-task.rows // max(tiling.rows, 1)) * tiling.rows, tiling.rows),
        "channels": (tiling.channels, task.channels, LANES),
        "taps": (tiling.taps, rows, 1),
        "tap_columns": (columns if tiling.tap_columns is None else tiling.tap_columns, columns, 1),
    }
    for name, (size, most, unit) in sizes.items():
        if not 0 < size <= most or (size % unit and size != most):
            unit_text = f", a multiple of {unit} or all" if unit > 1 else ""
            raise PlanError(f"{task.name}: {name} of a tiling must be from 1 to {most}{unit_text}, not {size}")


def _check_kind(task: Pass, tiling: Tiling, room: Room) -> None:
    rows, columns = task.window.kernel
    if task.maximum and (tiling.taps < rows or tiling.tap_columns not in (None, columns)):
        raise PlanError(f"{task.name}: a chunk of a maximum must have all {rows} x {columns} taps of the kernel")
    if tiling.by_taps and (tiling.rolling or tiling.box_rows != tiling.rows):
        raise PlanError(f"{task.name}: boxes by_taps must have one tile each, and not be rolling")
    if tiling.rolling and (tiling.channels < task.channels or tiling.box_rows != tiling.rows):
        raise PlanError(f"{task.name}: rolling boxes must have one tile each, with all channels")
    if tiling.rolling and room.shared:
        raise PlanError(f"{task.name}: rolling boxes must have the map buffer to themselves, not side by side")


def _cost(task: Pass, engine: EngineConfig, room: Room, tiling: Tiling) -> Cost | None:
    """`Estimator`'s, as if boxes of other kinds had as much to move as plain ones; ``None`` if they don't fit."""
    plain = replace(tiling, tap_columns=None, by_taps=False, rolling=False)
    if plain == tiling:
        return Estimator(task, engine, room).cost(tiling)
    if box_words(task, engine, tiling) > room.map_words:
        return None
    return Estimator(task, engine, replace(room, map_words=1 << 30)).cost(plain)


def box_words(task: Pass, engine: EngineConfig, tiling: Tiling) -> int:
    """Words of a bank of the map buffer that the least takes with which a tile can be computed."""
    taps = (0, tiling.taps) if tiling.by_taps else None
    rows = _longest(task, 0, tiling.box_rows, taps)
    width = _longest(task, 1, tiling.columns)
    plane = plane_words(task, engine, rows, width, tiling.columns)
    if tiling.rolling:  # as rows come and go, they may begin at any bank
        plane = -(-((rows - 1) * pitch(task, engine, width, tiling.columns) + width) // engine.pixels) + 1
    return plane * blocks(tiling.channels)


def _longest(task: Pass, axis: int, step: int, taps: tuple[int, int] | None = None) -> int:
    """Rows or columns of the input, at most, under a tile."""
    found = []
    for begin in range(0, task.size[axis], step):
        first, last = task.needed(axis, begin, min(begin + step, task.size[axis]), taps)
        found.append(last - first)
    return max(found)


def problem(task: Pass) -> Problem:
    """The loops of a convolution on the engine: whole blocks of 8 input channels.

    Raises
    ------
    PlanError
        If it is channelwise, has a dilated window, or one with gaps.
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
    """The loops of a pass that is cut so: of a chunk, over the chunks of a tile, the tiles of a box, and then boxes and
    folds."""
    whole, fold = problem(task), min(task.fold_maps(engine), task.maps)
    across = tiling.tap_columns or whole.Fw
    chunk = {"X": tiling.columns, "Y": tiling.rows, "C": min(tiling.channels, whole.C), "K": fold}
    inner = [Loop(dim, size) for dim, size in (chunk | {"Fw": across, "Fh": tiling.taps}).items()]
    tile = [Loop("Fw", whole.Fw), Loop("Fh", whole.Fh), Loop("C", whole.C), Loop("Y", min(tiling.box_rows, whole.Y))]
    boxes = [Loop("Y", whole.Y), Loop("X", whole.X)] if tiling.rolling else [Loop("X", whole.X), Loop("Y", whole.Y)]
    folds = [Loop("K", whole.K)]
    return Nest(whole, (*inner, *tile, *(folds + boxes if tiling.maps_stay else boxes + folds)))


#: Positions in a nest: behind the loops of a chunk, over kernel columns, over kernel rows, over channels and the tiles
#: of a box.
CHUNK, ROW, PART, BOX = 6, 7, 8, 10


def words(task: Pass, engine: EngineConfig, tiling: Tiling, positions: dict[str, int] | None = None) -> dict[str, int]:
    """Bytes of each operand that go over the port, counted by `hwgen.blocking.count`.

    ``positions`` say, in the nest, what the buffers hold of the input and of the weights. If they are not given, it is
    the least: weights of a chunk, the input of a chunk or of a tile.

    Raises
    ------
    PlanError
        As `problem`, or if the kernel rows of a chunk leave gaps.
    """
    stride, last = task.stride, task.window.kernel[0] % tiling.taps
    if tiling.by_taps and min(tiling.taps, last or tiling.taps) < stride and tiling.rows > 1:
        raise PlanError(f"{task.name}: chunks of fewer kernel rows than the stride, {stride}, are not counted")
    found, whole = nest(task, engine, tiling), problem(task)
    least = BOX if tiling.rolling else ROW if tiling.by_taps else PART
    places = {"input": least, "weights": CHUNK} | (positions or {})
    down = (2 if tiling.maps_stay else 1) if tiling.rolling else None
    counted = {
        "input": loads(found, "input", places["input"], overlap=tiling.rolling, scope=down),
        "weights": loads(found, "weights", places["weights"]),
        "output": loads(found, "output", len(found.loops)),
    }
    assert set(counted) == set(OPERANDS)
    # Weights of a fold with fewer maps have as many bytes as any; channels past the last lie in memory as well, as
    # do maps past the last of a block of 8.
    folds = task.folds(engine) * engine.maps
    counted["weights"] = counted["weights"] // (whole.K * whole.C) * folds * task.channels
    counted["output"] = counted["output"] // whole.K * blocks(task.maps) * LANES
    return counted
