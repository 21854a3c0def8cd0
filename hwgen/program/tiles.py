"""How a pass is cut into jobs: the tiles of its output, the channels of a chunk, and what stays on chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def best_tiling(task: Pass, engine: EngineConfig) -> Tiling:
    """The tiling with the fewest cycles by `estimate`, of those that the buffers hold.

    Raises
    ------
    PlanError
        If the buffers hold none.
    """
    candidates = [
        each
        for columns in _few([each * task.edge for each in distinct(task.columns // task.edge)])
        for chunk in _chunks(task, engine)
        for each in _tilings(task, engine, columns, *chunk)
    ]
    costs = [(cost, number) for number, each in enumerate(candidates) if (cost := estimate(task, engine, each))]
    if not costs:
        raise PlanError(
            f"{task.name}: the engine's buffers hold no tile of it; map_words {engine.map_words} or weight_steps "
            f"{engine.weight_steps} must be more"
        )
    return candidates[min(costs)[1]]


def _few(sizes: Sequence[int]) -> list[int]:
    """The largest sizes, and some smaller ones, falling."""
    falling = sorted(sizes, reverse=True)
    return falling[:4] + falling[4::4]


def _chunks(task: Pass, engine: EngineConfig) -> list[tuple[int, int]]:
    """Channels and rows of the kernel of chunks that half of the weight buffer holds.

    All of it may hold the weights of a whole pass, or the smallest chunk.
    """
    rows, room = task.window.kernel[0], engine.weight_steps
    pieces_of = [
        task.channels,
        *(LANES * each for each in distinct(blocks(task.channels)) if LANES * each < task.channels),
    ]
    found = [(channels, rows) for channels in pieces_of if steps(task, channels, rows) <= room // 2]
    if _weight_steps(task, engine) <= room:
        found.append((task.channels, rows))
    for most in (room // 2, room):
        if not found:
            least = min(LANES, task.channels)
            fitting = [each for each in distinct(rows) if steps(task, least, each) <= most]
            found = [(least, each) for each in fitting[-1:] if each == rows or not task.maximum]
    return sorted(set(found), reverse=True)


def _weight_steps(task: Pass, engine: EngineConfig) -> int:
    """Of all folds."""
    folds = 1 if task.shares_weights else task.folds(engine)
    return folds * steps(task, task.channels * len(task.sources), task.window.kernel[0])


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


@dataclass(frozen=True)
class Words:
    """What a tiling moves: words of maps and of parameters, steps of weights, jobs; and what must be waited for."""

    loaded: int
    stored: int
    weight_steps: int
    jobs: int
    first: int


def estimate(task: Pass, engine: EngineConfig, tiling: Tiling) -> tuple[float, int, int] | None:
    """Cycles, about, then words that are moved and jobs, for ties; ``None`` if the buffers are too small.

    The array, the drain and the memory port work at the same time; what comes in before the first step and what leaves
    behind the last one is added.
    """
    folds, fold_maps = task.folds(engine), task.fold_maps(engine)
    moved = _moved(task, engine, tiling)
    if moved is None:
        return None
    all_steps = steps(task, task.channels * len(task.sources), task.window.kernel[0])
    groups = pixels = 0
    for rows in _lengths(task.rows, tiling.rows):
        for columns in _lengths(task.columns, tiling.columns):
            many = rows[1] * columns[1]
            groups += many * -(-rows[0] * columns[0] // engine.pixels)
            pixels += many * rows[0] * columns[0]
    drained = blocks(min(fold_maps, task.maps)) * engine.pixels
    array = folds * groups * max(all_steps, drained) + moved.jobs * JOB_CYCLES
    words = moved.loaded + moved.stored + moved.weight_steps * engine.maps // WORD + moved.jobs * Job.BYTES // WORD
    port = words * WORD / engine.bus_bytes
    last = tiling.rows * tiling.columns * blocks(min(fold_maps, task.maps))
    return max(array, port) + (moved.first + last) * WORD / engine.bus_bytes, words, moved.jobs


def _lengths(size: int, step: int) -> list[tuple[int, int]]:
    """Lengths of pieces, and how many there are of each."""
    return [each for each in ((step, size // step), (size % step, 1)) if each[0] and each[1]]


def _moved(task: Pass, engine: EngineConfig, tiling: Tiling) -> Words | None:
    folds, kernel_rows = task.folds(engine), task.window.kernel[0]
    spans = [
        [task.needed(axis, *each) for each in pieces(size, step)]
        for axis, size, step in ((0, task.rows, tiling.box_rows), (1, task.columns, tiling.columns))
    ]
    rows, columns = ([end - begin for begin, end in each] for each in spans)
    boxes = len(rows) * len(columns)
    tiles = len(columns) * -(-task.rows // tiling.rows)
    plane = plane_words(engine, max(rows), max(columns), tiling.columns)
    chunk_blocks, all_blocks = (blocks(each) * len(task.sources) for each in (tiling.channels, task.channels))
    parts = chunks(task, tiling)
    pixels = sum(rows) * sum(columns)
    box, part, room = all_blocks * plane, chunk_blocks * plane, engine.map_words
    if task.channelwise:
        if box > room:
            return None
        times = folds
        halves = 2 * box <= room
    elif box * boxes <= room:
        times, halves = 1, True
    elif 2 * box <= room or (box + part <= room and len(parts) > 1):
        times, halves = (1 if tiling.maps_stay else folds), True
    elif part <= room and tiling.box_rows == tiling.rows:
        times, halves = folds, 2 * part <= room
    else:
        return None
    fold_steps = steps(task, task.channels * len(task.sources), kernel_rows)
    if task.shares_weights:
        weights = fold_steps
    elif fold_steps * folds <= engine.weight_steps:
        weights = fold_steps * folds
    elif 2 * fold_steps <= engine.weight_steps or (fold_steps <= engine.weight_steps and len(parts) > 1):
        weights = fold_steps * folds * (boxes if tiling.maps_stay and not task.channelwise else 1)
    else:
        weights = fold_steps * folds * tiles
    loaded = pixels * all_blocks * times
    jobs = folds * tiles * len(parts)
    first = part * engine.pixels + steps(task, tiling.channels, tiling.taps) * engine.maps // WORD
    # Without a second half, what comes in and what is computed take turns.
    waits = 0 if halves else loaded
    stored = task.rows * task.columns // task.edge**2 * blocks(task.maps)
    return Words(loaded=loaded, stored=stored + waits, weight_steps=weights, jobs=jobs, first=first)
