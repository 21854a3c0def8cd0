"""Search for tilings of engine passes: output tile size, chunk of channels and kernel rows, loop order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from hwgen.blocking.tiling import distinct
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.fixed_unit import run_cycles
from hwgen.gateware.engine.job import job_words
from hwgen.program.array_pass import Pass, Span, WeightTerm
from hwgen.program.layout import blocks
from hwgen.program.split import Split

#: Limits of a job's fields: pixel groups and pixels per tile, columns per pooled tile, blocks of 8 output channels.
MAX_GROUPS, MAX_PIXELS, MAX_POOLED, MAX_BLOCKS = (1 << 8) - 1, (1 << 14) - 1, (1 << 10) - 1, (1 << 5) - 1
#: Estimated overhead of each engine job, in cycles, in addition to its array steps.
JOB_CYCLES = 20
#: Estimated pause between two runs of the fixed-point unit, in cycles, while outputs are stored.
RUN_CYCLES = 100
#: Array cycles below which a job is short: the search gives it more output folds, so that fewer jobs are fetched.
SHORT_JOB_CYCLES = 256


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Tiling of a pass: output tile, input box and chunk (channels and taps per job) sizes, and loop order.

    Parameters
    ----------
    rows, columns : int
        Rows and columns of output pixels of a tile. The jobs of a tile's chunks compute the tile.
    box_rows : int
        Output rows of a box, a multiple of ``rows``. The tiles of a box share the input that is loaded for it.
    channels, taps : int
        Input channels (a multiple of 8, or all) and kernel rows per chunk.
    maps_stay : bool
        Loop order: whether boxes are the outer loop and folds the inner one. Otherwise all boxes use a fold's weights
        before the next fold begins.
    folds : int
        Number of output folds of a job.
    tap_columns : int, optional
        Kernel columns of a chunk; all columns by default.
    by_taps : bool
        Whether a box holds only the input rows that the kernel rows of one chunk read. A box then has one tile.
    rolling : bool
        Whether a box keeps the input rows that it shares with the box above, so that only new rows are loaded. Chunks
        then have all channels.

    teams, members : int
        Division of the pass among the cores of an engine: number of teams, and of cores of a team (`Split`).
    split_rows : bool
        Whether the teams divide the rows of a frame. Otherwise each computes another frame.
    unfold_columns : int
        Number of input columns that the host writes as channels of one pixel (`Unfold`); 0 if the input is a plain map.
    unfold_rows : int
        Number of input rows of such a pixel; 0 for all rows of the kernel.

    The compiler itself makes no tilings with ``tap_columns``, ``by_taps`` or ``rolling``: with its whole buffers, other
    tilings are better.
    """

    rows: int
    columns: int
    box_rows: int
    channels: int
    taps: int
    maps_stay: bool
    folds: int = 1
    tap_columns: int | None = None
    by_taps: bool = False
    rolling: bool = False
    teams: int = 1
    members: int = 1
    split_rows: bool = False
    unfold_columns: int = 0
    unfold_rows: int = 0

    def split(self, task: Pass) -> Split:
        """Return the division (`Split`) of an undivided pass among the cores of an engine, as this tiling says."""
        return Split(teams=self.teams, members=self.members, total_rows=task.rows if self.split_rows else 0)

    def divided(self, split: Split) -> Tiling:
        """Return a `Tiling`: a copy of the tiling that states how its pass is divided among the cores of an engine."""
        return replace(self, teams=split.teams, members=split.members, split_rows=split.by_rows)


class Tilings(NamedTuple):
    """Table of many tilings: one array for each of the first seven fields of `Tiling`."""

    rows: np.ndarray
    columns: np.ndarray
    box_rows: np.ndarray
    channels: np.ndarray
    taps: np.ndarray
    maps_stay: np.ndarray
    folds: np.ndarray

    @classmethod
    def none(cls) -> Tilings:
        """Return `Tilings`: an empty table of engine tilings (tile and chunk sizes, loop orders)."""
        sizes = {name: np.zeros(0, np.int64) for name in cls._fields}
        return cls(**sizes | {"maps_stay": np.zeros(0, bool)})

    @classmethod
    def one(cls, tiling: Tiling) -> Tilings:
        """Return `Tilings`: a table with a single engine tiling (tile and chunk sizes, loop order)."""
        return cls(*(np.array([getattr(tiling, name)]) for name in cls._fields))

    def tiling(self, index: int) -> Tiling:
        """Return the engine `Tiling` (tile and chunk sizes, loop order) at an index of the table."""
        return Tiling(**{name: values[index].item() for name, values in self._asdict().items()})


@dataclass(frozen=True, kw_only=True)
class Room:
    """Share of the engine's buffers that a pass may use, with limits on its tilings and the memory's pace.

    Parameters
    ----------
    map_words, weight_steps : int
        Words of the map buffer's banks, and steps of the weight buffer, that the pass may use.
    by_rows : bool
        Whether boxes must be the outer loop, so that another pass can follow row by row.
    shared : bool
        Whether the jobs of another pass interleave, so that tiles must leave accumulator slots free.
    resident : bool
        Whether all weights stay in the buffer, regardless of ``weight_steps``.
    in_turn : bool
        Whether the port and the array work alternately instead of at the same time.
    strip_rows : int
        Maximum number of output rows of a box, before pooling; 0 for no limit.
    pace : Fraction or int
        Cycles per beat of the port. Below 1, reads and writes move at the same time, each at most a beat per cycle.
    """

    map_words: int
    weight_steps: int
    by_rows: bool = False
    shared: bool = False
    resident: bool = False
    in_turn: bool = False
    strip_rows: int = 0
    pace: Fraction | int = 1

    @classmethod
    def whole(cls, engine: EngineConfig, *, in_turn: bool = False) -> Room:
        """Return, as a `Room`, the share of a pass computed by itself: the engine's whole map and weight buffers."""
        return cls(map_words=engine.map_words, weight_steps=engine.weight_steps, in_turn=in_turn)

    def port_cycles(self, engine: EngineConfig, read: Any, written: Any) -> Any:
        """Return how many cycles the memory port needs to read and write numbers of 8-byte words in long bursts."""
        return engine.port_cycles(self.pace, read, written)


@dataclass(frozen=True)
class TilingCost:
    """Estimated cost of a pass with a tiling: cycles of array and port, memory words, jobs, buffer words.

    Parameters
    ----------
    array : int
        Cycles of the array and its drain.
    port : int
        Cycles of the port.
    ends : int
        Cycles that nothing hides, before the first step and after the last one.
    words, jobs : int
        Words over the port, and number of jobs.
    map_words, weight_steps : int
        Words of each bank of the map buffer, and steps of the weight buffer, that are in use at once, prefetch
        included.
    """

    array: int
    port: int
    ends: int
    words: int
    jobs: int
    map_words: int
    weight_steps: int

    @property
    def order(self) -> tuple[int, int, int]:
        """Triple that sorts tilings, cheapest first: estimated cycles, then memory words, then jobs."""
        return max(self.array, self.port) + self.ends, self.words, self.jobs


class Costs(NamedTuple):
    """Estimated costs of many tilings, one array per figure, and whether each tiling fits the buffers."""

    array: np.ndarray
    port: np.ndarray
    ends: np.ndarray
    words: np.ndarray
    jobs: np.ndarray
    map_words: np.ndarray
    weight_steps: np.ndarray
    fits: np.ndarray

    def best(self, max_count: int) -> list[int]:
        """Return a list of indices of the ``max_count`` tilings of the fewest estimated cycles, fitting ones first."""
        return self._cheapest(np.maximum(self.array, self.port) + self.ends, max_count)

    def best_between(self, max_count: int) -> list[int]:
        """Return a list of indices of the ``max_count`` tilings of fewest cycles if other layers keep the port busy.

        The port then waits neither for the first step nor for the last outputs, so that a long first load costs
        nothing. Tilings that fit the buffers come first.
        """
        return self._cheapest(np.maximum(self.array + self.ends, self.port), max_count)

    def _cheapest(self, cycles: np.ndarray, max_count: int) -> list[int]:
        """Return a list of indices of the ``max_count`` tilings with the fewest ``cycles``, fitting tilings first."""
        return np.lexsort((self.jobs, self.words, cycles, ~self.fits))[:max_count].tolist()

    def cost(self, index: int) -> TilingCost:
        """Return the estimated cost (`TilingCost`: cycles, words, jobs) of the tiling at an index of the table."""
        return TilingCost(*(values[index].item() for values in self[:-1]))


def pitch(task: Pass, engine: EngineConfig, width: Any, columns: Any) -> Any:
    """Return the distance, a number of pixels, between successive input rows' beginnings in the map buffer.

    ``width`` is the number of columns of the box, and ``columns`` of the output tile; integers or arrays.
    """
    if task.copies_bytes:  # the row below in the map is so many rows below in the buffer
        columns = columns * pow(task.window.stride[0], -1, engine.pixels)
    return width + (columns * task.row_step - width) % engine.pixels


def plane_words(task: Pass, engine: EngineConfig, rows: Any, width: Any, columns: Any) -> Any:
    """Return the number (or array) of words per map buffer bank of an 8-channel block of a box (loaded input)."""
    return -(-((rows - 1) * pitch(task, engine, width, columns) + width) // engine.pixels)


def pieces(size: int, step: int) -> list[tuple[int, int]]:
    """Return a list of (begin, end) pieces of length ``step``, the last maybe shorter, that cut 0 to ``size``."""
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]


@dataclass(frozen=True)
class Chunk:
    """Part of a tile's sum that one engine job accumulates: input channels, kernel rows and columns as (begin, end).

    Parameters
    ----------
    channels, taps, tap_columns : tuple of int
        Intervals of input channels, kernel rows and kernel columns.
    box_channels, box_taps : tuple of int
        Channels and kernel rows of the box that is loaded for the job. A job of a further term of the weights uses the
        previous job's box, and can need less of it.
    term : int
        Index of the term of the weights.
    """

    channels: Span
    taps: Span
    tap_columns: Span
    box_channels: Span
    box_taps: Span
    term: int = 0

    @property
    def size(self) -> tuple[int, int, int]:
        """Triple: numbers of input channels, kernel rows and kernel columns of this chunk."""
        channels, taps, columns = (end - begin for begin, end in (self.channels, self.taps, self.tap_columns))
        return channels, taps, columns

    def part(self, term_index: int, term: WeightTerm) -> Chunk:
        """Return a `Chunk`: the part of this chunk with a further weight term's nonzero weights; it may be empty."""
        spans = zip((self.channels, self.taps, self.tap_columns), (term.channels, term.rows, term.columns), strict=True)
        common = ((max(one[0], other[0]), min(one[1], other[1])) for one, other in spans)
        channels, taps, columns = common
        return Chunk(channels, taps, columns, self.box_channels, self.box_taps, term_index)


def chunks(task: Pass, tiling: Tiling) -> list[Chunk]:
    """Return a list of each `Chunk` (channels and taps per job) that the jobs of a tile accumulate, in order.

    Each chunk is followed by its parts of the weights' further terms.
    """
    rows, columns = task.window.kernel
    all_chunks = []
    for channels, taps, tap_columns in product(
        pieces(task.channels, tiling.channels),
        pieces(rows, tiling.taps),
        pieces(columns, tiling.tap_columns or columns),
    ):
        if task.skips_last_column(channels[0]):
            tap_columns = tap_columns[0], min(tap_columns[1], columns - 1)
            if tap_columns[0] >= tap_columns[1]:
                continue
        chunk = Chunk(channels, taps, tap_columns, channels, taps)
        parts = [chunk.part(index, term) for index, term in enumerate(task.further_terms, start=1)]
        all_chunks += [chunk, *(part for part in parts if min(part.size) > 0)]
    return all_chunks


def steps(task: Pass, channels: Any, taps: Any, tap_columns: int | None = None) -> Any:
    """Return the array cycles (steps) per group of output pixels for a chunk of channels and taps.

    Parameters
    ----------
    task : Pass
    channels, taps : int or array
        Input channels and kernel rows of the chunk.
    tap_columns : int, optional
        Kernel columns of the chunk; all columns by default.
    """
    across = task.window.kernel[1] if tap_columns is None else tap_columns
    return taps * across * (blocks(channels) if task.channelwise else -(-channels // CHAIN))


def best_tilings(
    task: Pass, engine: EngineConfig, room: Room | None = None, max_count: int = 1
) -> list[tuple[Tiling, TilingCost]]:
    """Return a list of up to ``max_count`` (`Tiling`, `TilingCost`) of a pass that fit the buffers, fastest first.

    After them come up to half as many that are the cheapest between other layers (`Costs.best_between`).

    Raises
    ------
    PlanError
        If the buffers hold none.
    """
    room = room or Room.whole(engine)
    table = candidates(task, engine, room)
    costs = Estimator(task, engine, room).costs(table)
    own = {"unfold_columns": task.unfold_columns, "unfold_rows": task.unfold_rows}
    best: dict[Tiling, TilingCost] = {}
    for order, limit in ((costs.best, max_count), (costs.best_between, max_count + max_count // 2)):
        for index in order(3 * max_count):  # the table can have a tiling twice
            if costs.fits[index] and len(best) < limit:
                best[replace(table.tiling(index).divided(task.split), **own)] = costs.cost(index)
    if not best:
        raise PlanError(
            f"{task.name}: the engine's buffers hold no tile of this layer, with map_words {engine.map_words:,} and "
            f"weight_steps {engine.weight_steps:,}; use an engine with more, or --template stream"
        )
    return [*best.items()]


def candidates(task: Pass, engine: EngineConfig, room: Room) -> Tilings:
    """Return `Tilings`: a table of all tilings of a pass (tile and chunk sizes, loop orders) that a search compares."""
    heights, chunks = _tile_heights(task), _chunk_sizes(task, engine, room)
    if room.strip_rows:
        heights = heights[heights[:, 1] <= room.strip_rows]
    tables = [
        _tilings(task, engine, room, heights, columns, *chunk)
        for columns in _some_widths([size * task.edge for size in distinct(task.columns // task.edge)])
        if can_pool(task, engine, columns)
        for chunk in chunks
    ]
    return Tilings(*(np.concatenate(column) for column in zip(*tables, strict=True))) if tables else Tilings.none()


def _some_widths(sizes: Sequence[int]) -> list[int]:
    """Return a list of candidate tile widths: the four largest and every fourth smaller one, descending."""
    falling = sorted(sizes, reverse=True)
    return falling[:4] + falling[4::4]


def _chunk_sizes(task: Pass, engine: EngineConfig, room: Room) -> list[tuple[int, int]]:
    """Return a list of candidate chunk sizes (input channels, kernel rows) whose weights fit the buffer twice.

    The weights of a whole pass, or the smallest chunk, can occupy the whole buffer.
    """
    rows, weight_steps_limit = task.window.kernel[0], room.weight_steps
    if task.operands:  # each operand is one chunk
        return [(task.channels, rows)] if _operand_steps(task) <= weight_steps_limit else []
    pieces_of = [
        task.channels,
        *(LANES * count for count in distinct(blocks(task.channels)) if LANES * count < task.channels),
        *([task.full_channels] if task.full_channels else []),
    ]
    sizes = [(channels, rows) for channels in pieces_of if steps(task, channels, rows) <= weight_steps_limit // 2]
    if room.resident or weight_steps(task, engine) <= weight_steps_limit:
        sizes.append((task.channels, rows))
    for limit in (weight_steps_limit // 2, weight_steps_limit):
        if not sizes:
            channels = min(LANES, task.channels)
            fitting = [taps for taps in distinct(rows) if steps(task, channels, taps) <= limit]
            sizes = [(channels, taps) for taps in fitting[-1:] if taps == rows or not task.maximum]
    return sorted(set(sizes), reverse=True)


def _operand_steps(task: Pass) -> int:
    """Return the array cycles (steps) per pixel group that copy a fixed-point pass's largest operand."""
    return max(operand_bytes(each) * fold_steps(each) for each in task.operands)


def operand_bytes(task: Pass) -> int:
    """Return how many bytes of each value an operand's pass copies to the fixed-point unit."""
    assert task.weights is not None
    return len(task.weights) // LANES


def slot_bits(task: Pass, engine: EngineConfig) -> int:
    """Return the base-2 logarithm of the number of pixels that each slot of the fixed-point unit's registers holds."""
    assert task.fixed is not None
    return (engine.fixed_words // task.fixed.slots).bit_length() - 1


def _further_steps(task: Pass) -> int:
    """Return the array cycles (steps) per pixel group and fold of all weight terms after the first."""
    return sum(
        steps(task, term.channels[1] - term.channels[0], term.rows[1] - term.rows[0], term.columns[1] - term.columns[0])
        for term in task.further_terms
    )


def _weight_folds(task: Pass, engine: EngineConfig) -> int:
    """Return how many output folds (channels computed at once) have own stored weights: 1 if all share theirs."""
    return 1 if task.shares_weights else task.folds(engine)


def weight_steps(task: Pass, engine: EngineConfig) -> int:
    """Return the weight buffer size, in array cycles (steps), for the weights of all folds on a core."""
    return _weight_folds(task, engine) * fold_steps(task)


def fold_steps(task: Pass) -> int:
    """Return the array cycles (steps) per pixel group and output fold, for all channels, taps and terms."""
    return steps(task, task.channels, task.window.kernel[0]) + _further_steps(task)


def skipped_steps(task: Pass, channels: Any) -> Any:
    """Return the array cycles (steps) per pixel group and fold that chunks of ``channels`` can skip.

    The last kernel column is skipped in all chunks whose channels it does not read.
    """
    begin = np.where(channels % LANES == 0, -(-task.last_channels // channels) * channels, task.channels)
    rest = np.maximum(task.channels - begin, 0)
    return task.window.kernel[0] * -(-rest // CHAIN) * (task.unfold_columns > 0 and task.window.kernel[1] > 1)


def _tile_heights(task: Pass) -> np.ndarray:
    """Return candidate rows of a tile, and rows of all tiles of one box (loaded input), int64 ``(n, 2)``.

    Rows are sorted by the tile's height.
    """
    sizes = [
        (rows, min(rows * tiles, -(-task.rows // rows) * rows))
        for rows in range(task.edge, (1 if task.has_single_rows else task.rows) + 1, task.edge)
        for tiles in (_tile_counts(-(-task.rows // rows)) if not task.operands else (1,))
    ]
    return np.array(sizes, np.int64).reshape(-1, 2)


@lru_cache(maxsize=1 << 12)
def _tile_counts(tiles: int) -> tuple[int, ...]:
    """Return a tuple of the candidate numbers of tiles, of ``tiles``, that share one box (loaded part of the input)."""
    return tuple(distinct(tiles))


def _tilings(
    task: Pass, engine: EngineConfig, room: Room, heights: np.ndarray, columns: int, channels: int, taps: int
) -> Tilings:
    """Return `Tilings`: table of tilings with given tile columns and chunk size, for all tile heights and loop orders.

    The chunks have ``channels`` input channels and ``taps`` kernel rows.
    """
    single = is_single(task, channels, taps) and not room.shared
    max_rows = max_pixels(task, engine, single=single) // columns
    fitting = heights[: np.searchsorted(heights[:, 0], max_rows, side="right")]
    stay = (True,) if room.by_rows else (True, False)
    pixels, chunk_steps = fitting[:, 0] * columns, steps(task, channels, taps)
    most = max_folds(task, engine, pixels, single=is_single(task, channels, taps))
    if not room.resident:
        most = np.minimum(most, max(room.weight_steps // 2 // chunk_steps, 1))
    if task.channelwise and len(fitting):  # each fold has a box of its own
        (_, rows, _), (_, width, _) = _spans(task, 0, fitting[:, 1]), _spans(task, 1, np.array([columns]))
        most = np.clip(room.map_words // 2 // plane_words(task, engine, rows, width, columns), 1, most)
    cycles = -(-pixels // engine.pixels) * chunk_steps
    few = np.minimum(-(-SHORT_JOB_CYCLES // cycles), most)
    options = {counts.tobytes(): counts for counts in (few, most)}
    tables = []
    for maps_stay, counts in product(stay, options.values()):
        items = -(-task.folds(engine) // counts)
        wide, deep, high = (np.full(len(fitting), value) for value in (columns, channels, taps))
        order = np.full(len(fitting), maps_stay)
        folds = -(-task.folds(engine) // items)
        tables.append(Tilings(fitting[:, 0], wide, fitting[:, 1], deep, high, order, folds))
    return Tilings(*(np.concatenate(column) for column in zip(*tables, strict=True)))


def max_folds(task: Pass, engine: EngineConfig, pixels: np.ndarray, *, single: bool) -> np.ndarray:
    """Return an array: by pixels per tile, the maximum output folds (channels at once) per job that fit the engine.

    A job uses at most half of the buffers after the array, so that the next job can be computed.
    """
    count = _fold_blocks(task, engine)
    limit = min(task.folds(engine), MAX_BLOCKS // count, engine.parameter_words // 2 // count)
    if task.shares_weights or task.shares_parameters or task.fixed:
        limit = 1
    most = np.minimum(limit, engine.output_words // 2 * task.edge**2 // (count * pixels))
    if task.operand and not task.reads_pixel:
        most = np.minimum(most, engine.addend_words // 2 // (count * pixels))
    if not single:
        most = np.minimum(most, engine.slots // 2 // -(-pixels // engine.pixels))
    return np.maximum(most, 1)


def is_single(task: Pass, channels: int, taps: int) -> bool:
    """Return whether one chunk covers all input channels and kernel rows of a layer, so no partial sums are stored."""
    return channels >= task.channels and taps >= task.window.kernel[0] and not task.further_terms


def max_pixels(task: Pass, engine: EngineConfig, *, single: bool) -> int:
    """Return the maximum number of output pixels of a tile that accumulators and output buffer permit."""
    groups = MAX_GROUPS if single else engine.slots // 2
    count = _fold_blocks(task, engine)
    room = engine.output_words // 2 // (count * task.output_bytes) * task.edge**2
    if task.fixed:
        room = min(room, 1 << slot_bits(task, engine))
    if task.operand and not task.reads_pixel:
        room = min(room, engine.addend_words // 2 // count)
    return min(groups * engine.pixels, room, MAX_PIXELS)


def _fold_blocks(task: Pass, engine: EngineConfig) -> int:
    """Return the number of 8-channel blocks in a pass's largest fold (output channels computed at once) on one core."""
    return blocks(min(task.core_maps(engine), task.maps))


def can_pool(task: Pass, engine: EngineConfig, columns: int) -> bool:
    """Return whether a tile's rows of ``columns`` computed pixels fit the engine's pool buffer, true if no pooling."""
    words = columns // task.edge * _fold_blocks(task, engine)
    return not task.pooled or (columns <= MAX_POOLED and words <= engine.pool_words)


class Estimator:
    """Estimator of cycles and memory words of a pass with any tiling, for a given share of the buffers.

    The array, the drain and the port work at the same time. ``TilingCost.ends`` has the cycles of the loads before the
    first step, and of the drain after the last one.
    """

    def __init__(self, task: Pass, engine: EngineConfig, room: Room) -> None:
        self._task, self._engine, self._room = task, engine, room
        self._folds, self._weights = task.folds(engine), weight_steps(task, engine)
        self._fold_weights = self._weights // _weight_folds(task, engine)
        self._fold_blocks = _fold_blocks(task, engine)
        self._all_blocks = blocks(task.channels)
        self._beat_pixels = task.beat_pixels(engine)
        self._fold_beats = self._fold_blocks * -(-engine.pixels // self._beat_pixels)
        # Each team reads and writes maps of its own. Members read the same input, unless the pass is channelwise.
        teams, members = task.split.teams, 1 if task.shares_weights else task.core_folds(engine) / self._folds
        self._map_copies = teams * (task.core_folds(engine) / self._folds if task.channelwise else 1)
        self._weight_copies = members
        outputs = teams * task.rows * task.columns * blocks(task.maps)
        burst_cycles = 2 if task.is_scattered else 1  # each word is a burst, which takes two cycles
        stored = burst_cycles * (outputs // task.edge**2) * task.output_bytes
        added = burst_cycles * (outputs if task.operand and not task.reads_pixel else 0)
        added += teams * blocks(task.maps) * sum(each.height * each.width for each in task.operands[1:])
        self._written, self._added = stored * (not task.kept.target), added * (not task.kept.operand)
        self._added_kept = added * bool(task.kept.operand)

    def cost(self, tiling: Tiling) -> TilingCost | None:
        """Return the estimated cost (`TilingCost`) of one tiling; ``None`` if the engine's buffers are too small."""
        costs = self.costs(Tilings.one(tiling))
        return costs.cost(0) if costs.fits[0] else None

    def costs(self, tilings: Tilings) -> Costs:
        """Return the estimated `Costs` (cycles, words, jobs) of a table of tilings of the pass."""
        task, engine = self._task, self._engine
        tile_rows, tile_columns, box_rows, channels, taps, _, folds = tilings
        chunks_per_tile = -(-task.channels // channels) * -(-task.window.kernel[0] // taps)
        chunks_per_tile *= 1 + len(task.further_terms)
        items = -(-self._folds // folds)
        row_boxes, rows, all_rows = _spans(task, 0, box_rows)
        column_boxes, columns, all_columns = _spans(task, 1, tile_columns)
        plane = plane_words(task, engine, rows, columns, tile_columns)
        chunk_words = blocks(channels) * plane
        boxes = row_boxes * column_boxes
        box_loads, double_buffered, map_words, fits = self._map_loads(
            tilings, self._all_blocks * plane, chunk_words, boxes, chunks_per_tile
        )
        if task.channelwise:
            chunk_words = chunk_words * folds
        loaded = (self._map_copies * (all_rows * all_columns * self._all_blocks * box_loads)).astype(np.int64)
        tiles = column_boxes * -(-task.rows // tile_rows)
        weight_loads, weight_steps = self._weight_loads(tilings, boxes, tiles, chunks_per_tile)
        skipped = _weight_folds(task, engine) * skipped_steps(task, channels)
        weights = (self._weight_copies * ((self._weights - skipped) * weight_loads)).astype(np.int64)
        jobs = items * chunks_per_tile * tiles
        loaded_kept = loaded * bool(task.kept.source) + self._added_kept
        loaded = loaded * (not task.kept.source)
        read = loaded + self._added + weights * engine.weight_words + jobs * job_words(engine)
        written = self._written
        if engine.has_cores:
            lost, lost_written = self._lost_words(
                tilings, column_boxes, columns, loaded // (all_columns * rows), loaded // all_columns
            )
            read += lost + jobs * (engine.bus_words - 1) * job_words(engine)
            written = written + lost_written
        words = read + written
        group_steps = self._fold_weights - skipped_steps(task, channels)
        group_cycles = self._folds * np.maximum(group_steps, self._fold_beats)
        array = _pixel_groups(task, engine.pixels, tilings) * group_cycles + jobs * JOB_CYCLES
        array = array + self._fixed_cycles(tilings, jobs)
        # Without double buffering, loads and steps alternate.
        array += np.where(double_buffered, 0, self._room.port_cycles(engine, loaded, 0)).astype(np.int64)
        port = self._room.port_cycles(engine, read, written).astype(np.int64)
        if engine.has_map_memory:  # whose load unit reads a row of words per cycle
            port = np.maximum(port, loaded_kept // engine.row_words)
        if self._room.in_turn:
            port = self._room.port_cycles(engine, read, written).astype(np.int64) + array
        first_weights = folds * steps(task, channels, taps) * engine.weight_words
        first = self._map_copies * (chunk_words * engine.pixels) + self._weight_copies * first_weights
        first_cycles = self._room.port_cycles(engine, first, 0).astype(np.int64)
        ends = first_cycles + tile_rows * tile_columns * folds * self._fold_blocks // self._beat_pixels
        if self._room.strip_rows:  # passes of other layers fill whichever of array and port is free
            ends = np.minimum(array, port)
        elif self._room.by_rows:  # a pass that follows waits for the first boxes
            ends += np.maximum(array, port) // (2 * row_boxes)
        return Costs(array, port, ends, words, jobs, map_words, weight_steps, fits)

    def _fixed_cycles(self, tilings: Tilings, jobs: np.ndarray) -> np.ndarray:
        """Return an array by tiling: cycles of a pass on the fixed-point unit; 0 if the pass does not use it."""
        task = self._task
        if not task.fixed:
            return np.zeros_like(jobs)
        pixels = tilings.rows * tilings.columns
        bytes_read = sum(map(operand_bytes, task.operands[1:]))
        return jobs * (run_cycles(self._engine, pixels, len(task.fixed.words)) + bytes_read * pixels + RUN_CYCLES)

    def _lost_words(
        self, tilings: Tilings, column_boxes: np.ndarray, columns: np.ndarray, boxes: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return, as a pair, two arrays by tiling: words that a wide bus reads, and writes, unused at burst ends.

        A burst is a row of a box of the input, or the whole box if its rows are adjacent in memory and in the map
        buffer. It is half a beat longer at either end, on average. The outputs are divided in the same way.

        Parameters
        ----------
        columns : array
            Largest number of input columns of a tile.
        boxes, rows : array
            Numbers of boxes of a block of channels that are loaded, and of their rows.
        """
        task, engine, beat = self._task, self._engine, self._engine.bus_words
        is_whole = column_boxes == 1
        is_joined = is_whole & (pitch(task, engine, columns, tilings.columns) == task.width) & (task.row_step == 1)
        bursts = np.where(is_joined, boxes, rows * column_boxes)
        lost = bursts * np.maximum(beat - 1, 2 * beat - columns)
        tiles = np.where(is_whole, -(-task.rows // tilings.rows), task.rows // task.edge * column_boxes)
        bursts = task.split.teams * tiles * blocks(task.maps)
        stored = bursts * np.maximum(beat - 1, 2 * beat - tilings.columns // task.edge)
        return lost + (stored if task.operand and not task.reads_pixel else 0), stored

    def _map_loads(
        self, tilings: Tilings, box: np.ndarray, chunk_words: np.ndarray, boxes: np.ndarray, chunks_per_tile: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return four arrays by tiling: loads per box, whether double-buffered, buffer words, whether it fits.

        Words are counted per bank of the map buffer.
        """
        room, folds = self._room.map_words, -(-self._folds // tilings.folds)
        if self._task.channelwise:
            box = box * tilings.folds
            return np.full_like(box, self._folds), 2 * box <= room, np.minimum(2 * box, room), box <= room
        all_fit = box * boxes <= room
        box_fits = all_fit | (2 * box <= room) | ((box + chunk_words <= room) & (chunks_per_tile > 1))
        part_fits = (chunk_words <= room) & (tilings.box_rows == tilings.rows)
        stays = tilings.maps_stay & (box_fits | ((box <= room) & (chunks_per_tile == 1)))
        loads = np.where(all_fit | stays, 1, folds)
        words = np.where(all_fit, box * boxes, np.minimum(2 * np.where(box_fits, box, chunk_words), room))
        return loads, box_fits | (2 * chunk_words <= room), words, box_fits | part_fits

    def _weight_loads(
        self, tilings: Tilings, boxes: np.ndarray, tiles: np.ndarray, chunks_per_tile: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return, as a pair, two arrays by tiling: loads of all weights, and array cycles of weights in the buffer."""
        room, fold = self._room.weight_steps, self._fold_weights * tilings.folds
        if self._room.resident or self._weights <= room:
            return np.ones_like(tiles), np.full_like(tiles, self._weights)
        fold_fits = (2 * fold <= room) | ((fold <= room) & (chunks_per_tile > 1))
        chunk = steps(self._task, tilings.channels, tilings.taps) * tilings.folds
        loads = np.where(fold_fits, np.where(tilings.maps_stay, boxes, 1), tiles)
        return loads, np.minimum(2 * np.where(fold_fits, fold, chunk), room)


def _pixel_groups(task: Pass, pixels: int, tilings: Tilings) -> np.ndarray:
    """Return an array by tiling: number of pixel groups (one pixel per array lane) in all tiles of a pass."""
    return sum(
        (
            rows_count * columns_count * -(-rows * columns // pixels)
            for rows, rows_count in _lengths(task.rows, tilings.rows)
            for columns, columns_count in _lengths(task.columns, tilings.columns)
        ),
        start=np.zeros_like(tilings.rows),
    )


def _lengths(size: int, steps: np.ndarray) -> list[tuple[np.ndarray, np.ndarray | int]]:
    """Return a list of two pairs (length, number): pieces of length ``steps`` in ``size``, and the shorter rest."""
    return [(steps, size // steps), (size % steps, 1)]


def _spans(task: Pass, axis: int, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays by tile size: tiles on an axis, the most input rows or columns of one, and the total."""
    sizes, positions = np.unique(steps, return_inverse=True)
    spans = np.array([_span(task, axis, step) for step in sizes.tolist()], np.int64).reshape(-1, 3)
    pieces, longest, total = spans[positions].T
    return pieces, longest, total


def _span(task: Pass, axis: int, step: int) -> tuple[int, int, int]:
    """Return a tuple: for tiles of size ``step`` along an axis, their number, and maximum and sum of input sizes."""
    size, limit = task.size[axis], (task.height, task.width)[axis]
    begins = np.arange(0, size, step)
    first, last = task.window.reach(axis, begins, np.minimum(begins + step, size))
    if task.split.by_rows and axis == 0:  # as in `Pass.needed`
        lengths = last - first
    else:
        first = np.clip(first, 0, limit - 1)
        lengths = np.maximum(np.minimum(last, limit), first + 1) - first
    loaded = -(-lengths // (1 if axis else task.row_step))
    return len(loaded), int(loaded.max()), int(loaded.sum())
