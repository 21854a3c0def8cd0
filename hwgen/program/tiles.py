"""How a pass is cut into jobs: the tiles of its output, the channels of a chunk, and what stays on chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from hwgen.blocking.tiling import distinct
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Job
from hwgen.program.layout import WORD, blocks
from hwgen.program.passes import Pass

#: What a job's fields count.
MOST_GROUPS, MOST_PIXELS, MOST_POOLED = (1 << 8) - 1, (1 << 14) - 1, (1 << 10) - 1
#: Cycles of a job beyond its steps, about.
JOB_CYCLES = 20


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How a pass is cut.

    Parameters
    ----------
    rows, columns : int
        Output pixels of a tile, which is computed by the jobs of its chunks.
    box_rows : int
        Output rows, a multiple of ``rows``, that share what is loaded of the input.
    channels, taps : int
        Of a chunk: input channels, a multiple of 8 or all, and rows of the kernel.
    maps_stay : bool
        Boxes outside, folds inside; otherwise a fold's weights are used by all boxes.
    """

    rows: int
    columns: int
    box_rows: int
    channels: int
    taps: int
    maps_stay: bool


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a pass may take of the buffers.

    Parameters
    ----------
    map_words, weight_steps : int
        Of the map and the weight buffer.
    by_rows : bool
        Whether boxes must be outside, so that another pass may follow row by row.
    resident : bool
        Whether all weights stay in the buffer, whatever ``weight_steps`` is.
    """

    map_words: int
    weight_steps: int
    by_rows: bool = False
    resident: bool = False

    @classmethod
    def whole(cls, engine: EngineConfig) -> Room:
        """Of a pass by itself."""
        return cls(map_words=engine.map_words, weight_steps=engine.weight_steps)


@dataclass(frozen=True)
class Cost:
    """Cycles, about, of the array and its drain, and of the port; those that nothing hides; words and jobs."""

    array: float
    port: float
    ends: float
    words: int
    jobs: int

    @property
    def order(self) -> tuple[float, int, int]:
        """What is least of the best; words and jobs tell equal ones apart."""
        return max(self.array, self.port) + self.ends, self.words, self.jobs


def pitch(engine: EngineConfig, width: int, columns: int) -> int:
    """Positions from a row of a box of this width to the next, for a tile of so many output columns."""
    return width + (columns - width) % engine.pixels


def plane_words(engine: EngineConfig, rows: int, width: int, columns: int) -> int:
    """Words of each bank that a block of a box takes."""
    return -(-((rows - 1) * pitch(engine, width, columns) + width) // engine.pixels)


def pieces(size: int, step: int) -> list[tuple[int, int]]:
    """Half-open intervals of ``step``, but for the last one."""
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]


def chunks(task: Pass, tiling: Tiling) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The channels and the rows of the kernel of each chunk."""
    return list(product(pieces(task.channels, tiling.channels), pieces(task.window.kernel[0], tiling.taps)))


def steps(task: Pass, channels: int, taps: int) -> int:
    """Of a group, for so many channels and rows of the kernel."""
    return taps * task.window.kernel[1] * (blocks(channels) if task.channelwise else channels)


def best_tiling(task: Pass, engine: EngineConfig, room: Room | None = None) -> tuple[Tiling, Cost]:
    """The tiling with the fewest cycles by `estimate`, of those that the buffers hold.

    Raises
    ------
    PlanError
        If the buffers hold none.
    """
    room = room or Room.whole(engine)
    found = [
        (cost.order, number, each, cost)
        for number, each in enumerate(_candidates(task, engine, room))
        if (cost := estimate(task, engine, each, room))
    ]
    if not found:
        raise PlanError(
            f"{task.name}: the engine's buffers hold no tile of it; map_words {engine.map_words} or weight_steps "
            f"{engine.weight_steps} must be more"
        )
    _, _, tiling, cost = min(found, key=lambda each: each[:2])
    return tiling, cost


def _candidates(task: Pass, engine: EngineConfig, room: Room) -> list[Tiling]:
    return [
        each
        for columns in _few([each * task.edge for each in distinct(task.columns // task.edge)])
        for chunk in _chunks(task, engine, room)
        for each in _tilings(task, engine, columns, *chunk)
        if each.maps_stay or not room.by_rows
    ]


def _few(sizes: Sequence[int]) -> list[int]:
    """The largest sizes, and some smaller ones, falling."""
    falling = sorted(sizes, reverse=True)
    return falling[:4] + falling[4::4]


def _chunks(task: Pass, engine: EngineConfig, given: Room) -> list[tuple[int, int]]:
    """Channels and rows of the kernel of chunks that half of the weight buffer holds.

    All of it may hold the weights of a whole pass, or the smallest chunk.
    """
    rows, room = task.window.kernel[0], given.weight_steps
    pieces_of = [
        task.channels,
        *(LANES * each for each in distinct(blocks(task.channels)) if LANES * each < task.channels),
    ]
    found = [(channels, rows) for channels in pieces_of if steps(task, channels, rows) <= room // 2]
    if given.resident or weight_steps(task, engine) <= room:
        found.append((task.channels, rows))
    for most in (room // 2, room):
        if not found:
            least = min(LANES, task.channels)
            fitting = [each for each in distinct(rows) if steps(task, least, each) <= most]
            found = [(least, each) for each in fitting[-1:] if each == rows or not task.maximum]
    return sorted(set(found), reverse=True)


def _weight_folds(task: Pass, engine: EngineConfig) -> int:
    """Folds with weights of their own."""
    return 1 if task.shares_weights else task.folds(engine)


def weight_steps(task: Pass, engine: EngineConfig) -> int:
    """Of all folds."""
    return _weight_folds(task, engine) * steps(task, task.channels * len(task.sources), task.window.kernel[0])


def _tilings(task: Pass, engine: EngineConfig, columns: int, channels: int, taps: int) -> list[Tiling]:
    single = channels >= task.channels and taps >= task.window.kernel[0]
    fold_blocks = blocks(min(task.fold_maps(engine), task.maps))
    groups = MOST_GROUPS if single else engine.slots // 2
    edge = task.edge
    pixels = min(groups * engine.pixels, engine.output_words // 2 // fold_blocks * edge * edge, MOST_PIXELS)
    if task.pooled and (columns > MOST_POOLED or columns // edge * fold_blocks > engine.pool_words):
        return []
    found = []
    for rows in range(edge, min(task.rows, pixels // columns) + 1, edge):
        for tiles in distinct(-(-task.rows // rows)):
            for stay in (True, False):
                tiling = Tiling(
                    rows=rows,
                    columns=columns,
                    box_rows=min(rows * tiles, -(-task.rows // rows) * rows),
                    channels=channels,
                    taps=taps,
                    maps_stay=stay,
                )
                found.append(tiling)
    return found


def estimate(task: Pass, engine: EngineConfig, tiling: Tiling, room: Room) -> Cost | None:
    """What a tiling costs; ``None`` if the buffers are too small.

    The array, the drain and the port work at the same time. What comes in before the first step and what leaves behind
    the last one is at the ends.
    """
    moved = _moved(task, engine, tiling, room)
    if moved is None:
        return None
    folds, fold_maps = task.folds(engine), task.fold_maps(engine)
    groups = sum(
        rows_count * columns_count * -(-rows * columns // engine.pixels)
        for rows, rows_count in _lengths(task.rows, tiling.rows)
        for columns, columns_count in _lengths(task.columns, tiling.columns)
    )
    fold_blocks = blocks(min(fold_maps, task.maps))
    drained = (2 if task.add else fold_blocks) * engine.pixels
    jobs = folds * len(chunks(task, tiling)) * -(-task.rows // tiling.rows) * -(-task.columns // tiling.columns)
    array = folds * groups * max(weight_steps(task, engine) // _weight_folds(task, engine), drained) + jobs * JOB_CYCLES
    words = moved.maps + moved.weight_steps * engine.blocks + jobs * Job.WORDS
    last = tiling.rows * tiling.columns * fold_blocks
    pace = WORD / engine.bus_bytes
    return Cost(array, (words + moved.waits) * pace, (moved.first + last) * pace, words, jobs)


def _lengths(size: int, step: int) -> list[tuple[int, int]]:
    """Lengths of pieces, and how many there are of each."""
    return [each for each in ((step, size // step), (size % step, 1)) if each[0] and each[1]]


@dataclass(frozen=True)
class _Moved:
    """Words of maps, steps of weights; words while which the array waits, and those of the first job."""

    maps: int
    weight_steps: int
    waits: int
    first: int


@lru_cache(maxsize=1 << 12)
def _spans(task: Pass, axis: int, step: int) -> tuple[int, int, int]:
    """Of the rows (axis 0) or columns of the input that pieces of the output need: how often, the most, in all."""
    lengths = [end - begin for begin, end in (task.needed(axis, *each) for each in pieces(task.size[axis], step))]
    return len(lengths), max(lengths), sum(lengths)


def _moved(task: Pass, engine: EngineConfig, tiling: Tiling, room: Room) -> _Moved | None:
    folds, parts = task.folds(engine), len(chunks(task, tiling))
    (row_boxes, rows, all_rows), (column_boxes, columns, all_columns) = (
        _spans(task, axis, step) for axis, step in enumerate((tiling.box_rows, tiling.columns))
    )
    boxes, tiles = row_boxes * column_boxes, column_boxes * -(-task.rows // tiling.rows)
    plane = plane_words(engine, rows, columns, tiling.columns)
    part_blocks, all_blocks = (blocks(each) * len(task.sources) for each in (tiling.channels, task.channels))
    box, part = all_blocks * plane, part_blocks * plane
    halves = True
    if task.channelwise:
        times, halves = folds, 2 * box <= room.map_words
        if box > room.map_words:
            return None
    elif box * boxes <= room.map_words:
        times = 1
    elif 2 * box <= room.map_words or (box + part <= room.map_words and parts > 1):
        times = 1 if tiling.maps_stay else folds
    elif part <= room.map_words and tiling.box_rows == tiling.rows:
        times, halves = folds, 2 * part <= room.map_words
    else:
        return None
    loaded = all_rows * all_columns * all_blocks * times
    stored = task.rows * task.columns // task.edge**2 * blocks(task.maps)
    steps_first = steps(task, tiling.channels, tiling.taps)
    return _Moved(
        maps=loaded + stored,
        weight_steps=weight_steps(task, engine) * _weight_loads(task, engine, tiling, room, boxes, tiles),
        waits=0 if halves else loaded,
        first=part * engine.pixels + steps_first * engine.blocks,
    )


def _weight_loads(task: Pass, engine: EngineConfig, tiling: Tiling, room: Room, boxes: int, tiles: int) -> int:
    """How often all weights are loaded."""
    every = weight_steps(task, engine)
    fold = every // _weight_folds(task, engine)
    if room.resident or every <= room.weight_steps:
        return 1
    if not tiling.maps_stay:
        boxes = 1
    if 2 * fold <= room.weight_steps or (fold <= room.weight_steps and len(chunks(task, tiling)) > 1):
        return boxes
    return tiles
