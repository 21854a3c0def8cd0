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
from hwgen.program.layout import blocks
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
    tap_columns : int, optional
        Of a chunk: columns of the kernel; all, if not given.
    by_taps : bool
        Boxes hold only what the kernel's rows of a chunk read. A box has one tile.
    rolling : bool
        A box is the one above it, moved down: rows of the input that both have are not loaded again. Chunks have all
        channels.

    The compiler makes no tilings with the last three by itself: with its whole buffers, others are better.
    """

    rows: int
    columns: int
    box_rows: int
    channels: int
    taps: int
    maps_stay: bool
    tap_columns: int | None = None
    by_taps: bool = False
    rolling: bool = False


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a pass may take of the buffers.

    Parameters
    ----------
    map_words, weight_steps : int
        Of the map and the weight buffer.
    by_rows : bool
        Whether boxes must be outside, so that another pass may follow row by row.
    shared : bool
        Whether another pass has its turns in between, so that tiles must leave slots for it.
    resident : bool
        Whether all weights stay in the buffer, whatever ``weight_steps`` is.
    in_turn : bool
        Whether the port and the array take turns, instead of working at the same time.
    pace : int
        Cycles of the port for a beat.
    """

    map_words: int
    weight_steps: int
    by_rows: bool = False
    shared: bool = False
    resident: bool = False
    in_turn: bool = False
    pace: int = 1

    @classmethod
    def whole(cls, engine: EngineConfig, *, in_turn: bool = False) -> Room:
        """Of a pass by itself."""
        return cls(map_words=engine.map_words, weight_steps=engine.weight_steps, in_turn=in_turn)


@dataclass(frozen=True)
class Cost:
    """Cycles, about, of the array and its drain, and of the port; those that nothing hides; words and jobs; words of
    a bank of the map buffer and steps of the weight buffer that are held at once, with what comes in meanwhile."""

    array: int
    port: int
    ends: int
    words: int
    jobs: int
    map_words: int
    weight_steps: int

    @property
    def order(self) -> tuple[int, int, int]:
        """What is least of the best; words and jobs tell equal ones apart."""
        return max(self.array, self.port) + self.ends, self.words, self.jobs


def pitch(task: Pass, engine: EngineConfig, width: int, columns: int) -> int:
    """Positions from a row of a box of this width to the next, for a tile of so many output columns."""
    return width + (columns * task.row_step - width) % engine.pixels


def plane_words(task: Pass, engine: EngineConfig, rows: int, width: int, columns: int) -> int:
    """Words of each bank that a block of a box takes."""
    return -(-((rows - 1) * pitch(task, engine, width, columns) + width) // engine.pixels)


def pieces(size: int, step: int) -> list[tuple[int, int]]:
    """Half-open intervals of ``step``, but for the last one."""
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]


def chunks(task: Pass, tiling: Tiling) -> list[tuple[tuple[int, int], tuple[int, int], tuple[int, int]]]:
    """The channels, and the rows and columns of the kernel, of each chunk."""
    rows, columns = task.window.kernel
    return list(
        product(
            pieces(task.channels, tiling.channels),
            pieces(rows, tiling.taps),
            pieces(columns, tiling.tap_columns or columns),
        )
    )


def steps(task: Pass, channels: int, taps: int, tap_columns: int | None = None) -> int:
    """Of a group, for so many channels, and rows and columns of the kernel; all columns, if not given."""
    across = task.window.kernel[1] if tap_columns is None else tap_columns
    return taps * across * (blocks(channels) if task.channelwise else channels)


def best_tilings(
    task: Pass, engine: EngineConfig, room: Room | None = None, most: int = 1
) -> list[tuple[Tiling, Cost]]:
    """The tilings with the fewest cycles by `Estimator`, at most so many, of those that the buffers hold.

    Raises
    ------
    PlanError
        If the buffers hold none.
    """
    room = room or Room.whole(engine)
    estimator = Estimator(task, engine, room)
    found = [
        (cost.order, number, each, cost)
        for number, each in enumerate(candidates(task, engine, room))
        if (cost := estimator.cost(each))
    ]
    if not found:
        raise PlanError(
            f"{task.name}: the engine's buffers hold no tile of it; map_words {engine.map_words} or weight_steps "
            f"{engine.weight_steps} must be more"
        )
    return [(tiling, cost) for _, _, tiling, cost in sorted(found, key=lambda each: each[:2])[:most]]


def candidates(task: Pass, engine: EngineConfig, room: Room) -> list[Tiling]:
    """Those that are compared."""
    return [
        each
        for columns in _few([each * task.edge for each in distinct(task.columns // task.edge)])
        for chunk in _chunks(task, engine, room)
        for each in _tilings(task, engine, room, columns, *chunk)
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
    return _weight_folds(task, engine) * steps(task, task.channels, task.window.kernel[0])


def _tilings(task: Pass, engine: EngineConfig, room: Room, columns: int, channels: int, taps: int) -> list[Tiling]:
    single = is_single(task, channels, taps) and not room.shared
    edge, pixels = task.edge, most_pixels(task, engine, single=single)
    if not pools(task, engine, columns):
        return []
    found = []
    most = min(1 if task.is_scattered else task.rows, pixels // columns)
    for rows in range(edge, most + 1, edge):
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


def is_single(task: Pass, channels: int, taps: int) -> bool:
    """Whether a chunk with all columns of the kernel has all steps of a group."""
    return channels >= task.channels and taps >= task.window.kernel[0]


def most_pixels(task: Pass, engine: EngineConfig, *, single: bool) -> int:
    """That a tile may have, of one chunk or of several."""
    groups = MOST_GROUPS if single else engine.slots // 2
    count = _fold_blocks(task, engine)
    room = engine.output_words // 2 // count * task.edge**2
    if task.addend:
        room = min(room, engine.addend_words // 2 // count)
    return min(groups * engine.pixels, room, MOST_PIXELS)


def _fold_blocks(task: Pass, engine: EngineConfig) -> int:
    """Blocks of 8 maps of the largest fold."""
    return blocks(min(task.fold_maps(engine), task.maps))


def pools(task: Pass, engine: EngineConfig, columns: int) -> bool:
    """Whether a row of so many computed columns can be pooled, if it must be."""
    words = columns // task.edge * _fold_blocks(task, engine)
    return not task.pooled or (columns <= MOST_POOLED and words <= engine.pool_words)


class Estimator:
    """What tilings of a pass cost, about, in the room that it has.

    The array, the drain and the port work at the same time. What comes in before the first step and what leaves behind
    the last one is at the ends.
    """

    def __init__(self, task: Pass, engine: EngineConfig, room: Room) -> None:
        self._task, self._engine, self._room = task, engine, room
        self._folds, self._weights = task.folds(engine), weight_steps(task, engine)
        self._fold_weights = self._weights // _weight_folds(task, engine)
        self._fold_blocks = _fold_blocks(task, engine)
        self._all_blocks = blocks(task.channels)
        self._group_cycles = self._folds * max(self._fold_weights, self._fold_blocks * engine.pixels)
        outputs = task.rows * task.columns * blocks(task.maps)
        self._finished = outputs // task.edge**2 + (outputs if task.addend else 0)
        if task.is_scattered:  # a burst each, which takes two cycles
            self._finished *= 2

    def cost(self, tiling: Tiling) -> Cost | None:
        """``None`` if the buffers are too small."""
        task, engine = self._task, self._engine
        parts = -(-task.channels // tiling.channels) * -(-task.window.kernel[0] // tiling.taps)
        row_boxes, rows, all_rows = _spans(task, 0, tiling.box_rows)
        column_boxes, columns, all_columns = _spans(task, 1, tiling.columns)
        plane = plane_words(task, engine, rows, columns, tiling.columns)
        part = blocks(tiling.channels) * plane
        loads = self._map_loads(tiling, self._all_blocks * plane, part, row_boxes * column_boxes, parts)
        if loads is None:
            return None
        times, halves, map_words = loads
        loaded = all_rows * all_columns * self._all_blocks * times
        tiles = column_boxes * -(-task.rows // tiling.rows)
        weight_loads, weight_steps = self._weight_loads(tiling, row_boxes * column_boxes, tiles, parts)
        weights = self._weights * weight_loads
        jobs = self._folds * parts * tiles
        words = loaded + self._finished + weights * engine.blocks + jobs * Job.WORDS
        array = _groups(task, engine.pixels, tiling) * self._group_cycles + jobs * JOB_CYCLES
        pace = engine.word_cycles(self._room.pace)
        port = int(pace * (words + (0 if halves else loaded)))  # without a second half, loads and steps take turns
        if self._room.in_turn:
            port = int(pace * words) + array
        first = part * engine.pixels + steps(task, tiling.channels, tiling.taps) * engine.blocks
        ends = int(pace * first) + tiling.rows * tiling.columns * self._fold_blocks
        if self._room.by_rows:  # who follows waits for the first boxes
            ends += max(array, port) // (2 * row_boxes)
        return Cost(array, port, ends, words, jobs, map_words, weight_steps)

    def _map_loads(self, tiling: Tiling, box: int, part: int, boxes: int, parts: int) -> tuple[int, bool, int] | None:
        """How often each box is loaded, whether there is room for another one meanwhile, and what they take."""
        room, folds = self._room.map_words, self._folds
        if self._task.channelwise:
            return (folds, 2 * box <= room, min(2 * box, room)) if box <= room else None
        if box * boxes <= room:
            return 1, True, box * boxes
        if 2 * box <= room or (box + part <= room and parts > 1):
            return (1 if tiling.maps_stay else folds), True, min(2 * box, room)
        if part <= room and tiling.box_rows == tiling.rows:
            return folds, 2 * part <= room, min(2 * part, room)
        return None

    def _weight_loads(self, tiling: Tiling, boxes: int, tiles: int, parts: int) -> tuple[int, int]:
        """How often all weights are loaded, and what they take."""
        room, fold = self._room.weight_steps, self._fold_weights
        if self._room.resident or self._weights <= room:
            return 1, self._weights
        if 2 * fold <= room or (fold <= room and parts > 1):
            return (boxes if tiling.maps_stay else 1), min(2 * fold, room)
        return tiles, min(2 * steps(self._task, tiling.channels, tiling.taps), room)


def _groups(task: Pass, pixels: int, tiling: Tiling) -> int:
    """Pixel groups of all tiles."""
    return sum(
        rows_count * columns_count * -(-rows * columns // pixels)
        for rows, rows_count in _lengths(task.rows, tiling.rows)
        for columns, columns_count in _lengths(task.columns, tiling.columns)
    )


def _lengths(size: int, step: int) -> list[tuple[int, int]]:
    """Lengths of pieces, and how many there are of each."""
    return [each for each in ((step, size // step), (size % step, 1)) if each[0] and each[1]]


@lru_cache(maxsize=1 << 12)
def _spans(task: Pass, axis: int, step: int) -> tuple[int, int, int]:
    """Of the rows (axis 0) or columns of the input that pieces of the output need: how often, the most, in all."""
    apart = 1 if axis else task.row_step
    lengths = [
        -((begin - end) // apart) for begin, end in (task.needed(axis, *each) for each in pieces(task.size[axis], step))
    ]
    return len(lengths), max(lengths), sum(lengths)
