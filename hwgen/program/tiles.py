"""How a pass is cut into jobs: the tiles of its output, the channels of a chunk, and what stays on chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

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


class Tilings(NamedTuple):
    """Table of tilings, an array for each of the first fields of `Tiling`."""

    rows: np.ndarray
    columns: np.ndarray
    box_rows: np.ndarray
    channels: np.ndarray
    taps: np.ndarray
    maps_stay: np.ndarray

    @classmethod
    def none(cls) -> Tilings:
        """Return a table without tilings."""
        return cls(*(np.zeros(0, np.int64) for _ in range(5)), maps_stay=np.zeros(0, bool))

    @classmethod
    def one(cls, tiling: Tiling) -> Tilings:
        """Return a table of one tiling."""
        return cls(*(np.array([getattr(tiling, name)]) for name in cls._fields))

    def tiling(self, number: int) -> Tiling:
        """Return the tiling with this number."""
        return Tiling(**{name: values[number].item() for name, values in self._asdict().items()})


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


class Costs(NamedTuple):
    """Table of costs, an array for each field of `Cost`, and whether the buffers hold the tiling."""

    array: np.ndarray
    port: np.ndarray
    ends: np.ndarray
    words: np.ndarray
    jobs: np.ndarray
    map_words: np.ndarray
    weight_steps: np.ndarray
    fits: np.ndarray

    def best(self, most: int) -> list[int]:
        """Return the numbers of at most so many tilings, the best first (`Cost.order`); those that fit come first."""
        cycles = np.maximum(self.array, self.port) + self.ends
        return np.lexsort((self.jobs, self.words, cycles, ~self.fits))[:most].tolist()

    def cost(self, number: int) -> Cost:
        """Return the cost of the tiling with this number."""
        return Cost(*(values[number].item() for values in self[:-1]))


def pitch(task: Pass, engine: EngineConfig, width: Any, columns: Any) -> Any:
    """Positions from a row of a box of this width to the next, for a tile of so many output columns; integers or arrays
    of them."""
    return width + (columns * task.row_step - width) % engine.pixels


def plane_words(task: Pass, engine: EngineConfig, rows: Any, width: Any, columns: Any) -> Any:
    """Words of each bank that a block of a box takes; of integers or arrays of them."""
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


def steps(task: Pass, channels: Any, taps: Any, tap_columns: int | None = None) -> Any:
    """Steps of a group, for so many channels, and rows and columns of the kernel; all columns, if not given. Channels
    and rows are integers or arrays of them."""
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
    tried = _candidates(task, engine, room)
    costs = Estimator(task, engine, room).costs(tried)
    best = [number for number in costs.best(most) if costs.fits[number]]
    if not best:
        raise PlanError(
            f"{task.name}: the engine's buffers hold no tile of it; map_words {engine.map_words} or weight_steps "
            f"{engine.weight_steps} must be more"
        )
    return [(tried.tiling(number), costs.cost(number)) for number in best]


def candidates(task: Pass, engine: EngineConfig, room: Room) -> list[Tiling]:
    """Return the tilings that are compared."""
    tried = _candidates(task, engine, room)
    return [tried.tiling(number) for number in range(len(tried.rows))]


def _candidates(task: Pass, engine: EngineConfig, room: Room) -> Tilings:
    """Return the tilings that are compared, as a table."""
    heights, chunks = _heights(task), _chunks(task, engine, room)
    parts = [
        _tilings(task, engine, room, heights, columns, *chunk)
        for columns in _few([each * task.edge for each in distinct(task.columns // task.edge)])
        if pools(task, engine, columns)
        for chunk in chunks
    ]
    return Tilings(*(np.concatenate(each) for each in zip(*parts, strict=True))) if parts else Tilings.none()


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


def _heights(task: Pass) -> np.ndarray:
    """Return rows of a tile, and rows of a box of whole tiles, that are tried: ``(n, 2)``, by rows of a tile."""
    found = [
        (rows, min(rows * tiles, -(-task.rows // rows) * rows))
        for rows in range(task.edge, (1 if task.is_scattered else task.rows) + 1, task.edge)
        for tiles in _tile_counts(-(-task.rows // rows))
    ]
    return np.array(found, np.int64).reshape(-1, 2)


@lru_cache(maxsize=1 << 12)
def _tile_counts(tiles: int) -> tuple[int, ...]:
    """Return the numbers of tiles of a box that are tried where there are so many in all."""
    return tuple(distinct(tiles))


def _tilings(
    task: Pass, engine: EngineConfig, room: Room, heights: np.ndarray, columns: int, channels: int, taps: int
) -> Tilings:
    """Return the tilings of so many columns, and channels and rows of the kernel of a chunk."""
    single = is_single(task, channels, taps) and not room.shared
    most = most_pixels(task, engine, single=single) // columns
    fitting = heights[: np.searchsorted(heights[:, 0], most, side="right")]
    stay = (True,) if room.by_rows else (True, False)
    rows, box_rows = np.repeat(fitting, len(stay), axis=0).T
    wide, deep, high = (np.full(len(rows), value) for value in (columns, channels, taps))
    return Tilings(rows, wide, box_rows, deep, high, np.tile(np.array(stay), len(fitting)))


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
        """Return the cost of a tiling; ``None`` if the buffers are too small."""
        found = self.costs(Tilings.one(tiling))
        return found.cost(0) if found.fits[0] else None

    def costs(self, tilings: Tilings) -> Costs:
        """Return the costs of tilings."""
        task, engine, (tile_rows, tile_columns, box_rows, channels, taps, _) = self._task, self._engine, tilings
        parts = -(-task.channels // channels) * -(-task.window.kernel[0] // taps)
        row_boxes, rows, all_rows = _spans(task, 0, box_rows)
        column_boxes, columns, all_columns = _spans(task, 1, tile_columns)
        plane = plane_words(task, engine, rows, columns, tile_columns)
        part = blocks(channels) * plane
        boxes = row_boxes * column_boxes
        times, halves, map_words, fits = self._map_loads(tilings, self._all_blocks * plane, part, boxes, parts)
        loaded = all_rows * all_columns * self._all_blocks * times
        tiles = column_boxes * -(-task.rows // tile_rows)
        weight_loads, weight_steps = self._weight_loads(tilings, boxes, tiles, parts)
        weights = self._weights * weight_loads
        jobs = self._folds * parts * tiles
        words = loaded + self._finished + weights * engine.blocks + jobs * Job.WORDS
        array = _groups(task, engine.pixels, tilings) * self._group_cycles + jobs * JOB_CYCLES
        pace = engine.word_cycles(self._room.pace)
        # Without a second half, loads and steps take turns.
        port = (pace * (words + np.where(halves, 0, loaded))).astype(np.int64)
        if self._room.in_turn:
            port = (pace * words).astype(np.int64) + array
        first = part * engine.pixels + steps(task, channels, taps) * engine.blocks
        ends = (pace * first).astype(np.int64) + tile_rows * tile_columns * self._fold_blocks
        if self._room.by_rows:  # who follows waits for the first boxes
            ends += np.maximum(array, port) // (2 * row_boxes)
        return Costs(array, port, ends, words, jobs, map_words, weight_steps, fits)

    def _map_loads(
        self, tilings: Tilings, box: np.ndarray, part: np.ndarray, boxes: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return how often each box is loaded, whether there is room for another one meanwhile, the words that they
        take, and whether the buffer holds them."""
        room, folds = self._room.map_words, self._folds
        if self._task.channelwise:
            return np.full_like(box, folds), 2 * box <= room, np.minimum(2 * box, room), box <= room
        all_fit = box * boxes <= room
        box_fits = all_fit | (2 * box <= room) | ((box + part <= room) & (parts > 1))
        part_fits = (part <= room) & (tilings.box_rows == tilings.rows)
        times = np.where(all_fit | (box_fits & tilings.maps_stay), 1, folds)
        words = np.where(all_fit, box * boxes, np.minimum(2 * np.where(box_fits, box, part), room))
        return times, box_fits | (2 * part <= room), words, box_fits | part_fits

    def _weight_loads(
        self, tilings: Tilings, boxes: np.ndarray, tiles: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return how often all weights are loaded, and the steps that they take."""
        room, fold = self._room.weight_steps, self._fold_weights
        if self._room.resident or self._weights <= room:
            return np.ones_like(tiles), np.full_like(tiles, self._weights)
        fold_fits = (2 * fold <= room) | ((fold <= room) & (parts > 1))
        chunk = steps(self._task, tilings.channels, tilings.taps)
        times = np.where(fold_fits, np.where(tilings.maps_stay, boxes, 1), tiles)
        return times, np.minimum(2 * np.where(fold_fits, fold, chunk), room)


def _groups(task: Pass, pixels: int, tilings: Tilings) -> np.ndarray:
    """Return the number of pixel groups of all tiles."""
    return sum(
        (
            rows_count * columns_count * -(-rows * columns // pixels)
            for rows, rows_count in _lengths(task.rows, tilings.rows)
            for columns, columns_count in _lengths(task.columns, tilings.columns)
        ),
        start=np.zeros_like(tilings.rows),
    )


def _lengths(size: int, steps: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | int]]:
    """Return the length of whole pieces and of the last one, which may be empty, and how many there are of each."""
    return [(steps, size // steps), (size % steps, 1)]


def _spans(task: Pass, axis: int, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of pieces of the output that begin at each multiple of a step, and the rows (axis 0) or columns
    of the input that they need: the most, and in all."""
    sizes, places = np.unique(steps, return_inverse=True)
    found = np.array([_span(task, axis, step) for step in sizes.tolist()], np.int64).reshape(-1, 3)
    pieces, longest, total = found[places].T
    return pieces, longest, total


def _span(task: Pass, axis: int, step: int) -> tuple[int, int, int]:
    size, limit = task.size[axis], (task.height, task.width)[axis]
    begins = np.arange(0, size, step)
    first, last = task.window.reach(axis, begins, np.minimum(begins + step, size))
    first = np.clip(first, 0, limit - 1)  # as `Pass.needed` has it
    lengths = np.maximum(np.minimum(last, limit), first + 1) - first
    loaded = -(-lengths // (1 if axis else task.row_step))
    return len(loaded), int(loaded.max()), int(loaded.sum())
