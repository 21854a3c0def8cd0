"""Generator of engine jobs (descriptors) for each output tile, with addresses and waits for earlier jobs.

Buffers are allocated as rings: new entries overwrite the oldest entries, and wait for their last use. The operands of
the next tile are therefore loaded while a tile is computed, and operands that a buffer still holds stay.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Compute, Drain, Job, Load, Store, job_words
from hwgen.program.array_pass import FixedProgram, Pass, share_tables
from hwgen.program.layout import WORD, blocks
from hwgen.program.maps import MapLocation
from hwgen.program.tiles import (
    Chunk,
    Room,
    Tiling,
    TilingCost,
    chunks,
    fold_steps,
    operand_bytes,
    pieces,
    pitch,
    plane_words,
    slot_bits,
    steps,
)
from hwgen.schedule.engine import group_steps

Span = tuple[int, int]
#: Number of byte addresses that the engine's memory port can reach.
ADDRESSES = 1 << 32
#: Estimated cycles from the end of a tile's jobs on array and memory port until other jobs can read the tile's outputs.
LAG_CYCLES = 2000
#: Estimated maximum lead of the memory port over the array, or of the array over the port, in cycles.
AHEAD_CYCLES = 1000


@dataclass(frozen=True, kw_only=True)
class PassAddresses:
    """Byte addresses in memory of one pass's (a layer's run through the array) weights, parameters and tables."""

    weights: int = 0
    parameters: int = 0
    tables: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TiledPass:
    """Pass of a layer through the array with its tiling, estimated cycles, and addresses of its constants.

    The pass is divided among cores as the tiling says.
    """

    task: Pass
    tiling: Tiling
    array: float
    port: float
    data: PassAddresses = PassAddresses()

    @classmethod
    def of(cls, task: Pass, tiling: Tiling, cost: TilingCost) -> TiledPass:
        """Return a `TiledPass`: a pass with its tiling and estimated cost; its constants have no addresses yet."""
        return cls(task=task, tiling=tiling, array=cost.array, port=cost.port)

    @property
    def unplaced_data(self) -> PassAddresses:
        """Placeholder `PassAddresses` (all 0) of the pass's weights, parameters and tables, before allocation."""
        return PassAddresses(tables=(0,) * len(self.task.tables))


@dataclass
class Allocation:
    """Words allocated in a ring buffer of the engine: position among all words ever allocated, first address."""

    start: int
    base: int
    used: int = 0
    """Number of jobs of the program up to and including the last one that uses this buffer allocation."""


class Ring:
    """Allocator that uses an engine buffer of ``depth`` words as a ring, with at most ``size`` words in use."""

    def __init__(self, size: int, depth: int | None = None) -> None:
        self._size, self._depth, self._next = size, depth or size, 0
        self._entries: OrderedDict[Any, Allocation] = OrderedDict()  # the oldest first

    def find(self, key: Any) -> Allocation | None:
        """Return the buffer `Allocation` of a key; ``None`` if it was overwritten or never made."""
        return self._entries.get(key)

    def add(self, key: Any, size: int) -> tuple[Allocation, int]:
        """Allocate ``size`` words; return a pair: the allocation, and how many jobs must end before it is written.

        Returns
        -------
        Allocation
            The allocation.
        int
            Number of jobs after which the overwritten entries are no longer used.
        """
        if size > self._size:
            raise PlanError(
                f"a job needs {size:,} words of an engine's buffer of {self._size:,}: use an engine with larger "
                "buffers, "
                "or smaller tilings"
            )
        end = self._next + size
        wait = 0
        while self._entries and (oldest := next(iter(self._entries.values()))).start < end - self._size:
            self._entries.popitem(last=False)
            wait = max(wait, oldest.used)
        entry = self._entries[key] = Allocation(self._next, self._next % self._depth)
        self._next = end
        return entry, wait


@dataclass(frozen=True)
class _Tile:
    """Output tile of an engine job: its output rows and columns, and the input rows and columns loaded for it."""

    rows: Span
    columns: Span
    box_rows: Span
    box_columns: Span

    @property
    def out_columns(self) -> int:
        """Number of output columns of the tile."""
        return self.columns[1] - self.columns[0]

    @property
    def box_width(self) -> int:
        """Number of input columns that are loaded for the tile."""
        return self.box_columns[1] - self.box_columns[0]

    @property
    def pixel_rows(self) -> int:
        """Number of output rows of the tile."""
        return self.rows[1] - self.rows[0]

    @property
    def pixels(self) -> int:
        """Number of output pixels of the tile."""
        return self.pixel_rows * self.out_columns


class _Item(NamedTuple):
    """Content of one job: an output tile, its output channels, and the input channels and kernel taps to accumulate.

    Parameters
    ----------
    fold, folds : int
        Index of the first output fold, and number of folds.
    tile : _Tile
    chunk_index : int
    chunk : Chunk
    first, last : bool
        Whether the chunk is the first one of its tile, and the last one.
    """

    fold: int
    folds: int
    tile: _Tile
    chunk_index: int
    chunk: Chunk
    first: bool
    last: bool


@dataclass
class _RollingBox:
    """Window of input rows in the map buffer that moves down a map, so that tiles share rows.

    Parameters
    ----------
    entry : Allocation
        Allocation in the map buffer.
    columns : tuple of int
        Input columns of the box.
    block : int
        First block of channels.
    begin, bottom : int
        First row that was loaded, and the row below the last loaded one.
    plane : int
        Words of each bank per block of channels.
    used : ndarray
        Number of jobs up to the last one that uses a row, for each input row.
    top : int
        First input row of the box.
    at : int
        Position of the box's first row in the map buffer, in pixels.
    """

    entry: Allocation
    columns: Span
    block: int
    begin: int
    bottom: int
    plane: int
    used: np.ndarray
    top: int
    at: int = 0


@dataclass
class Emitter:
    """Generator of all jobs (descriptors) of an engine program, which also allocates the engine's buffers.

    Parameters
    ----------
    engine : EngineConfig
    roots : mapping
        For each edge, the edge of the map in memory that contains it, and its first block there.
    locations : mapping
        Memory location of each edge. A map that interleaves the rows of several frames has the location of all rows.
        With several cores no map does, and these are the locations of the first frame.
    frames : int
        Number of frames of a run; 1 with one core.
    room : Room
        Words of the map buffer and steps of the weight buffer that the jobs may use. If the room is ``in_turn``, a job
        loads nothing before all previous jobs have been computed and stored, as with a single buffer.
    """

    engine: EngineConfig
    roots: Mapping[str, tuple[str, int]]
    locations: Mapping[str, MapLocation]
    room: Room
    frames: int = 1
    jobs: list[Job] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """List with the index of the pass (run of a layer through the array) of each engine job."""
    job_frames: list[int] = field(default_factory=list)
    """List with the frame's index of each engine job; the number of frames if a job computes all frames."""
    groups: list[tuple[int, ...]] = field(default_factory=list)
    """List of groups of passes (runs of layers through the array) whose jobs alternate, as tuples of pass indices."""

    def __post_init__(self) -> None:
        engine, room = self.engine, self.room
        self.maps, self.weights = (
            Ring(room.map_words, engine.map_words),
            Ring(room.weight_steps, engine.weight_steps),
        )
        self.parameters, self.outputs = Ring(engine.parameter_words), Ring(engine.output_words)
        self.addends = Ring(engine.addend_words)
        self.tables: dict[int, tuple[int, Allocation]] = {}
        self.walked: Any = None
        self._whole = {edge: _RowStates(location, self.frames) for edge, location in self.locations.items()}
        self._passes = self.frame = 0
        self.fixed_stored = 0
        self.present = [self.locations]
        self._rows: dict[str, _RowStates] = {}

    def begin_frame(self, frame: int, locations: Sequence[Mapping[str, MapLocation]], passes: int) -> None:
        """Set the frame (or frames) that the next jobs compute, and the memory locations of their maps.

        Parameters
        ----------
        frame : int
            Index of the first frame; the number of frames, for jobs that compute all frames at once.
        locations : sequence of mapping
            Memory location of each edge, for each frame that teams of cores compute at the same time.
        passes : int
            Index of the first pass that follows.
        """
        self.frame, self.present, self.locations, self._passes = frame, list(locations), locations[0], passes
        self._rows = {}

    def states_of(self, edge: str) -> _RowStates:
        """Return the `_RowStates` of a map: how many jobs must end before each row is complete in memory."""
        if edge not in self._rows:
            self._rows[edge] = self._make_row_states(edge)
        return self._rows[edge]

    def _make_row_states(self, edge: str) -> _RowStates:
        """Return the `_RowStates` of a map, a view of the states of the stored map that contains it."""
        (root, first_block), location = self.roots[edge], self.locations[edge]
        whole = self._whole[root]
        if self.engine.has_cores:
            frames = slice(self.frame, self.frame + len(self.present))
            return whole.part(first_block, location.blocks, slice(None), frames)
        frame_rows = whole.height // location.height  # more than 1 if rows of all frames interleave
        return whole.part(first_block, location.blocks, slice(self.frame % frame_rows, None, frame_rows))

    def team_stride(self, edge: str) -> int:
        """Return the byte distance between a map's copies for successive frames that cores compute in parallel."""
        addresses = [locations[edge].address for locations in self.present]
        return addresses[1] - addresses[0] if len(addresses) > 1 else 0

    def add(self, *tiled_passes: TiledPass) -> None:
        """Generate the jobs of one layer's pass, or of several alternating passes, and append them to the program.

        Passes that load the same table follow each other.
        """
        group = []
        for tiled_pass in tiled_passes:
            group.append(_PassJobs(self, tiled_pass, self._passes))
            self._passes += 1
        for jobs in group:
            rows = self.states_of(jobs.task.target[0])
            first_block, count = jobs.task.target[1], blocks(jobs.task.maps)
            rows.left[first_block : first_block + count] = self.locations[jobs.task.target[0]].width
        if (indices := tuple(jobs.pass_index for jobs in group)) not in self.groups:
            self.groups.append(indices)
        for turn in (
            [[jobs] for jobs in group] if share_tables([tiled_pass.task for tiled_pass in tiled_passes]) else [group]
        ):
            _emit_side_by_side(self, turn)
        self.job_frames += [self.frame] * (len(self.jobs) - len(self.job_frames))

    def end(self) -> list[Job]:
        """Mark the last job as the end of the engine program, and return a list of all jobs."""
        self.jobs[-1] = replace(self.jobs[-1], load=replace(self.jobs[-1].load, end=1))
        return self.jobs


class _RowStates:
    """State of a map's rows in memory, by block of 8 channels and frame: number of the job that completes each.

    ``stored`` is the number of jobs that must be stored before a row is complete. ``left`` is the number of columns of
    the row that no job has computed yet.
    """

    def __init__(self, location: MapLocation, frames: int = 1) -> None:
        self.stored, self.left = np.zeros((2, location.blocks, location.height, frames), np.int64)

    @property
    def height(self) -> int:
        """Number of rows of the feature map whose states these are."""
        return self.stored.shape[1]

    def part(self, first_block: int, count: int, rows: slice, frames: slice = slice(None)) -> _RowStates:
        """Return `_RowStates`: view of the states of some rows of a feature map, for ``count`` blocks of 8 channels."""
        view = object.__new__(_RowStates)
        view.stored, view.left = (
            counts[first_block : first_block + count, rows, frames] for counts in (self.stored, self.left)
        )
        return view


def _emit_side_by_side(emitter: Emitter, group: Sequence[_PassJobs]) -> None:
    """Append the jobs of alternating passes tile by tile, in an order that keeps array and memory port equally busy.

    A pass that reads the output of another pass of the group follows some jobs later, so that its loads do not wait.
    While the port is busier than the array, the pass with the fewest port cycles per array cycle continues, and vice
    versa.
    """
    waiting = [deque(jobs.tile_items()) for jobs in group]
    rings = _RingReads(group, waiting)
    if len(group) == 1 and rings.are_empty:
        for unit in waiting[0]:
            for item in unit:
                group[0].emit(item)
        return
    times: list[float] = []
    array = port = 0.0
    while unfinished := [index for index, units in enumerate(waiting) if units]:
        array, port = max(array, port - AHEAD_CYCLES), max(port, array - AHEAD_CYCLES)
        time = max(array, port)
        lag = len(emitter.jobs) - emitter.engine.queue - 2, time - LAG_CYCLES
        able = [index for index in unfinished if rings.permits(group[index], waiting[index][0])]
        if not able:
            names = " and ".join(dict.fromkeys(each.task.name for each in group))
            raise PlanError(
                f"{names}: wait for each other, because kept_maps gives the rings of rows between them too few rows: "
                "give these maps more rows, or compute the layers one after the other"
            )
        ready = [index for index in able if group[index].is_ready(waiting[index][0], times, *lag)] or able[:1]
        busiest = max if port <= array else min
        selected = busiest(ready, key=lambda index: group[index].tiled_pass.port / group[index].tiled_pass.array)
        tiled_pass = group[selected].tiled_pass  # passes that read the same boxes take turns
        alike = [
            index
            for index in ready
            if group[index].task.source == tiled_pass.task.source
            and group[index].tiled_pass.tiling == tiled_pass.tiling
        ]
        selected = max(alike, key=lambda index: len(waiting[index]))
        first = len(emitter.jobs)
        rings.count_reads(group[selected], waiting[selected][0])
        for item in waiting[selected].popleft():
            group[selected].emit(item)
        for job in emitter.jobs[first:]:
            array += job.compute.groups * job.compute.folds * group_steps(job.compute)
            port += emitter.room.port_cycles(emitter.engine, *_moved_words(emitter.engine, job))
        times += [max(array, port)] * (len(emitter.jobs) - first)


class _RingReads:
    """Pending reads of map rows in ring buffers of the map memory, counted so that no job overwrites them early.

    Loads are in the order of the jobs, and a job stores nothing before its own loads. Any job after the last job that
    reads a row can therefore overwrite the row.

    Parameters
    ----------
    group : sequence of _PassJobs
    waiting : sequence
        Remaining jobs of each pass, tile by tile.
    """

    def __init__(self, group: Sequence[_PassJobs], waiting: Sequence[Sequence[Sequence[_Item]]]) -> None:
        self._reads: dict[str, np.ndarray] = {}
        for jobs, units in zip(group, waiting, strict=True):
            edge = jobs.task.source[0]
            if jobs.all.locations[edge].is_ring:
                reads = self._reads.setdefault(edge, np.zeros(jobs.all.locations[edge].height, np.int64))
                for unit in units:
                    reads[slice(*unit[0].tile.box_rows)] += 1

    @property
    def are_empty(self) -> bool:
        """Whether no pass reads a map that the map memory holds as a ring buffer of rows."""
        return not self._reads

    def permits(self, jobs: _PassJobs, unit: Sequence[_Item]) -> bool:
        """Return whether a tile's jobs can be next: inputs are computed, and overwritten rows have no pending reads."""
        if not self._reads:
            return True
        location, end = jobs.all.locations[jobs.task.target[0]], unit[0].tile.rows[1] // jobs.task.edge
        if location.is_ring and self._reads[jobs.task.target[0]][: max(end - location.kept_rows, 0)].any():
            return False
        return not any(rows.left[part].any() for rows, part in jobs.reads(unit[0]))

    def count_reads(self, jobs: _PassJobs, unit: Sequence[_Item]) -> None:
        """Subtract the reads of a tile's jobs from the pending reads of the rows in ring buffers."""
        edge = jobs.task.source[0]
        if edge in self._reads:
            self._reads[edge][slice(*unit[0].tile.box_rows)] -= 1


def _moved_words(engine: EngineConfig, job: Job) -> tuple[int, int]:
    """Return a pair: the numbers of 8-byte words that the memory port reads, and writes, for an engine job."""
    load, store = job.load, job.store
    maps = 0 if load.x_kept else max(load.x_teams, 1) * load.x_blocks * load.x_rows * load.x_words
    stored = 0 if store.kept else max(store.teams, 1) * store.blocks * store.rows * store.words
    loaded = maps + max(load.w_blocks, 1) * load.w_steps * engine.weight_words + load.p_words
    return job_words(engine) + loaded, stored


class _PassJobs:
    """Generator of one pass's jobs, in loop order: output tiles, output channels, chunks of inputs."""

    def __init__(self, emitter: Emitter, tiled_pass: TiledPass, pass_index: int) -> None:
        self.all, self.tiled_pass, self.pass_index = emitter, tiled_pass, pass_index
        self.engine, self.task, self.tiling, self.data = (
            emitter.engine,
            tiled_pass.task,
            tiled_pass.tiling,
            tiled_pass.data,
        )
        self.chunks = chunks(tiled_pass.task, tiled_pass.tiling)
        self.offsets = np.cumsum([0, *(steps(self.task, *chunk.size) for chunk in self.chunks)]).tolist()
        self.split, self.row_step = self.task.split, self.task.row_step
        self.fold_maps, self.maps = self.task.fold_maps(self.engine), self.task.maps
        self.operands = [_PassJobs(emitter, replace(tiled_pass, task=task), pass_index) for task in self.task.operands]
        if self.operands:
            sizes = (operand_bytes(task) * fold_steps(task) for task in self.task.operands)
            self.offsets = np.cumsum([0, *sizes]).tolist()
            for operand in self.operands:
                operand.offsets = self.offsets
        self.bounds = self._bound_fields()
        self.roll: _RollingBox | None = None
        self._planes: dict[tuple[int, int, int], int] = {}

    def _bound_fields(self) -> dict[str, int]:
        """Return, as a dict, job fields for the outputs' zero point and limits, and for the added or multiplied map."""
        task = self.task
        bounds = asdict(task.rule) if task.rule else {}
        if task.sum_rule:
            bounds |= {f"a_{name}": value for name, value in asdict(task.sum_rule).items()}
        if task.product:
            bounds |= dict(zip(("a_low", "a_zero_point"), task.product.zero_points, strict=True))
        return bounds

    def tile_items(self) -> Iterator[list[_Item]]:
        """Yield a list of `_Item` objects (contents of jobs) per output tile and group of channels, one per chunk."""
        boxes, count = list(self._boxes()), self.task.folds(self.engine)
        folds = pieces(count, self.tiling.folds)
        if self.tiling.maps_stay:
            order = [(fold, box) for box in boxes for fold in folds]
        else:
            order = [(fold, box) for fold in folds for box in boxes]
        last = len(self.chunks) - 1
        for (fold, end), box in order:
            for tile in box:
                yield [
                    _Item(fold, end - fold, self._crop(tile, chunk.box_taps), index, chunk, index == 0, index == last)
                    for index, chunk in enumerate(self.chunks)
                ]

    def _crop(self, tile: _Tile, taps: Span) -> _Tile:
        """Return a `_Tile` with only the input rows that kernel rows ``taps`` read, if the tiling is ``by_taps``."""
        return replace(tile, box_rows=self.task.needed(0, *tile.rows, taps)) if self.tiling.by_taps else tile

    def is_ready(self, unit: Sequence[_Item], times: Sequence[float], jobs: int, time: float) -> bool:
        """Return whether all map rows that a tile reads are stored by jobs up to ``jobs`` and cycle ``time``.

        ``times`` holds the estimates of the current group's jobs. Rows that earlier groups store are always ready. A
        tile whose rows are all padding reads none.
        """
        for rows, part in self.reads(unit[0]):
            stored = int(rows.stored[part].max(initial=0))
            begun = stored - (len(self.all.jobs) - len(times))  # index among the jobs of this group
            if rows.left[part].any() or (begun > 0 and (stored > jobs or times[begun - 1] > time)):
                return False
        return True

    def _team_rows(self, span: Span, advance: int, height: int) -> slice | np.ndarray:
        """Return a slice or array: map rows that all teams of cores access, from the first team's (begin, end).

        The intervals of successive teams are ``advance`` rows apart. Rows beyond the map are left out.
        """
        if not self.split.by_rows:
            return slice(*span)
        rows = np.arange(*span) + advance * np.arange(self.split.teams)[:, None]
        return np.unique(rows[(rows >= 0) & (rows < height)])

    @property
    def _input_advance(self) -> int:
        """Number of rows between the first input rows of successive teams of cores, if teams divide the rows."""
        return self.task.rows * self.task.window.stride[0]

    def _input_rows(self, span: Span) -> slice | np.ndarray:
        """Return a slice or array: input rows that all teams of cores read, from the first team's (begin, end)."""
        return self._team_rows(span, self._input_advance, self.task.height)

    def reads(self, item: _Item) -> list[tuple[_RowStates, tuple[slice, slice | np.ndarray]]]:
        """Return a list of pairs, one per map that a tile reads: its `_RowStates`, and the blocks and rows read."""
        task, tile, (edge, first_block) = self.task, item.tile, self.task.source
        count = blocks(task.channels)
        if task.channelwise:
            first_block, count = first_block + self._fold_block(item.fold), self._item_blocks(item)
        parts = [(self.all.states_of(edge), (slice(first_block, first_block + count), self._input_rows(tile.box_rows)))]
        if task.operand:
            edge, first_block = task.operand
            first_block += self._fold_block(item.fold)
            part = slice(first_block, first_block + self._item_blocks(item)), self._operand_rows(tile)
            parts.append((self.all.states_of(edge), part))
        return parts

    def _boxes(self) -> Iterator[list[_Tile]]:
        """Yield, for each box (part of the input loaded at once), the list of output tiles computed from it.

        Boxes are in row-major order, but rolling boxes in column-major order.
        """
        task, tiling = self.task, self.tiling
        down, across = pieces(task.rows, tiling.box_rows), pieces(task.columns, tiling.columns)
        spans = [(rows, columns) for columns in across for rows in down] if tiling.rolling else product(down, across)
        for box_span, columns in spans:
            box = task.needed(0, *box_span), task.needed(1, *columns)
            inside = pieces(box_span[1] - box_span[0], tiling.rows)
            yield [_Tile((box_span[0] + begin, box_span[0] + end), columns, *box) for begin, end in inside]

    def _plane(self, tile: _Tile) -> int:
        """Return the words per map buffer bank that an 8-channel block of a tile's loaded input takes."""
        if self.roll is not None:
            return self.roll.plane
        sizes = self._loaded_rows(tile.box_rows), tile.box_width, tile.out_columns
        if sizes not in self._planes:
            self._planes[sizes] = plane_words(self.task, self.engine, *sizes)
        return self._planes[sizes]

    def _loaded_rows(self, span: Span) -> int:
        """Return how many of the input rows ``span`` are loaded: one-row kernels with a stride skip rows."""
        return -((span[0] - span[1]) // self.row_step)

    def emit(self, item: _Item) -> None:
        """Append the job of one chunk of an output tile, after extra jobs for loads that don't fit into it."""
        if self.operands:
            self._emit_operands(item)
            return
        loads, box = self._load_box(item)
        weights = self._load_weights(item, loads)
        compute = self._compute(item, box, weights)
        sections: dict[str, Any] = {"compute": compute}
        task = self.task
        if item.last:
            finishes = [self._load_parameters(item, loads)]
            if self.task.operand:
                finishes.append(self._load_operand(item, loads, *self.task.operand))
            if task.fixed:
                sections |= self._run_and_store(self, item, 0, finishes[0].base)
            else:
                sections |= self._drain_and_store(item, *(operand.base for operand in finishes))
            finishes += self._load_tables(loads)
            for operand in finishes:
                operand.used = len(self.all.jobs) + max(len(loads), 1)
        self._append(loads, sections)
        box.used = weights.used = len(self.all.jobs)
        if self.roll is not None:
            self.roll.used[slice(*item.tile.box_rows)] = len(self.all.jobs)
        if item.last:
            self._note_stored(item)

    def _emit_operands(self, item: _Item) -> None:
        """Append one job per operand of the fixed-point unit for a tile; the last job also runs the unit's program."""
        for slot, operand in enumerate(self.operands):
            own = operand._operand_item(item, slot)
            loads, box = operand._load_box(own)
            weights = operand._load_weights(own, loads)
            sections: dict[str, Any] = {"compute": operand._operand_compute(own, box, weights)}
            if slot < len(self.operands) - 1:
                sections["drain"] = operand._slot_drain(own, slot, self._slot_bits)
            else:
                finishes = [self._load_parameters(item, loads)]
                sections |= self._run_and_store(operand, own, slot, finishes[0].base)
                finishes += self._load_tables(loads)
                for each in finishes:
                    each.used = len(self.all.jobs) + max(len(loads), 1)
            self._append(loads, sections)
            box.used = weights.used = len(self.all.jobs)
        self._note_stored(item)

    def _operand_item(self, item: _Item, slot: int) -> _Item:
        """Return the `_Item` (content) of a job that copies a tile's operand to a slot of the fixed-point unit."""
        task, tile = self.task, item.tile
        rows, columns = ((0, 1), (0, 1)) if task.size == (1, 1) else (tile.rows, tile.columns)
        own = _Tile(rows, columns, task.needed(0, *rows), task.needed(1, *columns))
        kernel = (0, task.window.kernel[0]), (0, task.window.kernel[1])
        chunk = Chunk((0, LANES), *kernel, (0, LANES), kernel[0])
        return _Item(item.fold, 1, own, slot, chunk, True, True)

    def _operand_compute(self, item: _Item, box: Allocation, weights: Allocation) -> Compute:
        """Return the `Compute` section of a job that copies an operand to the fixed-point unit: a byte per fold.

        Rows of bytes are not rows of pixels, so that no row is compared with the map's, unless windows reach beyond it.
        """
        inside = {} if self.task.reads_outside else {"in_rows": (1 << 16) - 1, "origin_row": 0, "row_advance": 0}
        return replace(self._compute(item, box, weights), folds=operand_bytes(self.task), plane=0, **inside)

    @property
    def _slot_bits(self) -> int:
        """Base-2 logarithm of the number of pixels that a register slot of the fixed-point unit holds in this pass."""
        return slot_bits(self.task, self.engine)

    def _slot_drain(self, item: _Item, slot: int, bits: int, **program: int) -> Drain:
        """Return the `Drain` section (fields) of a job that writes sums to a slot of the fixed-point unit's registers.

        With the fields ``program``, the job then runs the unit's program.
        """
        size = operand_bytes(self.task) if self.task.is_operand else 1
        return Drain(
            blocks=size,
            pixels=item.tile.pixels,
            add=True,
            multiply=True,
            one_pixel=True,
            channelwise=self.task.channelwise,
            zero_point=self.task.arrival,
            high=size - 1,
            low=bits,
            columns=slot,
            **{"wait_stored": self.all.fixed_stored, **program},
        )

    def _run_and_store(self, operand: _PassJobs, item: _Item, slot: int, parameters: int) -> dict[str, Any]:
        """Return a dict by section of job fields: run a tile's fixed-point program, and store its outputs."""
        task, tile, size = self.task, item.tile, self.task.output_bytes
        assert task.fixed is not None
        pixels = tile.pixels * size
        entry, wait = self.all.outputs.add(len(self.all.jobs), pixels)
        name, first_block = task.target
        location = self.all.locations[name]
        rows, words = tile.pixel_rows * size, tile.out_columns
        lattice, row_stride = task.lattice, location.row_bytes
        if size == 1:
            row_stride *= lattice.step[0]
        if lattice.step[1] > 1:
            assert rows == 1
            rows, words, row_stride = words, 1, WORD * lattice.step[1]
        elif (
            words == location.width
            and location.joins_rows
            and lattice.step[0] == 1
            and (self._lies_in(tile.rows, task.rows, self.split.total_rows))
        ):
            rows, words = 1, pixels
        self._output_entry = entry
        return {
            "drain": operand._slot_drain(
                item,
                slot,
                self._slot_bits,
                o_base=entry.base,
                a_base=tile.out_columns,
                p_base=parameters,
                a_zero_point=len(task.fixed.words),
                wait_stored=max(wait, self.all.fixed_stored),
            ),
            "store": Store(
                blocks=self._item_blocks(item),
                o_base=entry.base,
                o_plane=pixels,
                kept=int(location.kept),
                address=location.at(
                    first_block + self._fold_block(item.fold),
                    lattice.at(0, tile.rows[0]) * size,
                    lattice.at(1, tile.columns[0]),
                ),
                row_stride=row_stride,
                block_stride=location.block_bytes,
                rows=rows,
                words=words,
                **self._core_store_fields(tile, row_stride, name),
            ),
        }

    def _append(self, loads: list[dict[str, int]], sections: dict[str, Any]) -> None:
        """Append a job with the last of ``loads`` and other sections, preceded by a job for each earlier load."""
        if self.all.room.in_turn:
            for number, operand in enumerate(loads, len(self.all.jobs)):
                operand |= {"wait_computed": number, "wait_stored": number}
        self.all.jobs += [Job(load=Load(**operand)) for operand in loads[:-1]]
        self.all.jobs.append(Job(load=Load(**(loads or [{}])[-1]), **sections))
        self.all.owners += [self.pass_index] * (len(self.all.jobs) - len(self.all.owners))

    def _load_box(self, item: _Item) -> tuple[list[dict[str, int]], Allocation]:
        """Return a pair: list of loads (job fields) of a tile's input, empty if it is buffered; its `Allocation`."""
        task, tile = self.task, item.tile
        begin, end = item.chunk.box_channels
        first_block, count = begin // LANES, blocks(end - begin)
        if task.channelwise:
            first_block, count = self._fold_block(item.fold), self._item_blocks(item)
        if self.tiling.rolling:
            return self._roll_box(item, first_block, count)
        plane, (edge, source) = self._plane(tile), task.source
        step, pixels = pitch(task, self.engine, tile.box_width, tile.out_columns), self.engine.pixels
        # Passes that read the same box share it, if they also arrange it alike in the buffer.
        box_key = edge, source + first_block, count, tile.box_rows, tile.box_columns
        owner = self.pass_index if self.engine.has_cores else task.channelwise
        key = (owner, self.all.frame, *box_key, plane, step, task.row_step)
        box = self.all.maps.find(key)
        if box is not None:
            return [], box
        box, wait = self.all.maps.add(key, plane * (item.folds if task.channelwise else count))
        loads = []
        for span in self.all.locations[edge].spans(tile.box_rows):
            words, rest = divmod((span[0] - tile.box_rows[0]) * step, pixels)
            load = self._box_load_fields(edge, source + first_block, count, tile, span)
            load |= {"x_base": (box.base + words) % self.engine.map_words, "x_first": rest}
            loads.append(load | {"wait_computed": wait, "x_plane": plane})
        return loads, box

    def _roll_box(self, item: _Item, block: int, count: int) -> tuple[list[dict[str, int]], Allocation]:
        """Return a pair: list of loads (job fields) of a tile's new input rows into a ring of rows, its `Allocation`.

        Rows that the tile shares with the tile above stay in the map buffer.
        """
        task, tile, pixels = self.task, item.tile, self.engine.pixels
        top, bottom = tile.box_rows
        step = pitch(task, self.engine, tile.box_width, tile.out_columns)
        roll, wait = self.roll, 0
        if roll is None or roll.columns != tile.box_columns or roll.block != block or top < roll.top:
            size = self.all.room.map_words
            entry, wait = self.all.maps.add((self.pass_index, "roll", len(self.all.jobs)), size)
            used = np.zeros(task.height, int)
            roll = self.roll = _RollingBox(entry, tile.box_columns, block, top, top, size // count, used, top)
        begin, roll.top = max(top, roll.bottom), top
        roll.at = (roll.entry.base * pixels + (top - roll.begin) * step) % (self.engine.map_words * pixels)
        if begin >= bottom:
            return [], roll.entry
        # The new rows overwrite rows roll.begin to above - 1, because the ring can't hold both. Wait until those rows
        # have been used.
        above = bottom - 1 - (roll.plane * pixels - tile.box_width) // step
        if above > roll.begin:
            wait = max(wait, int(roll.used[roll.begin : above].max()))
        position = roll.entry.base * pixels + (begin - roll.begin) * step
        roll.bottom = bottom
        edge, source = task.source
        load = self._box_load_fields(edge, source + block, count, tile, (begin, bottom))
        load |= {"x_base": position // pixels % self.engine.map_words, "x_first": position % pixels}
        return [load | {"wait_computed": wait, "x_plane": roll.plane}], roll.entry

    def _box_load_fields(self, edge: str, block: int, count: int, tile: _Tile, span: Span) -> dict[str, int]:
        """Return, as a dictionary, the job fields that load input rows ``span`` of a tile into the map buffer."""
        location, (top, bottom), first_column = self.all.locations[edge], span, tile.box_columns[0]
        source = self.all.states_of(edge)
        region = (slice(block, block + count), self._input_rows(span))
        assert not source.left[region].any(), "rows are read that no job has computed"
        rows, words, row_step = self._loaded_rows(span), tile.box_width, self.task.row_step
        step = pitch(self.task, self.engine, words, tile.out_columns)
        divided = self._core_load_fields(edge) | self._team_row_fields(
            (top // row_step, -(-bottom // row_step)),
            self._input_advance // row_step,
            -(-location.height // row_step),
            location.row_bytes * row_step,
        )
        is_joined = words == location.width == step and location.joins_rows and rows * words < 1 << 16
        if is_joined and row_step == 1 and "x_height" not in divided:
            rows, words = 1, rows * words  # rows are adjacent in memory and in the buffer
        return divided | {
            "x_blocks": count,
            "x_kept": int(location.kept),
            "wait_stored": int(source.stored[region].max(initial=0)),
            "x_address": location.at(block, top, first_column) % ADDRESSES,
            "x_row_stride": location.row_bytes * row_step,
            "x_block_stride": location.block_bytes,
            "x_rows": rows,
            "x_words": words,
            "x_pitch_words": step // self.engine.pixels,
            "x_pitch_rest": step % self.engine.pixels,
        }

    def _core_load_fields(self, edge: str, *, is_dealt: bool | None = None) -> dict[str, int]:
        """Return a dict of job fields that deal loaded map data to cores: by frame to teams, by channel within a team.

        ``is_dealt`` says whether the cores of a team get different blocks of 8 channels, and not copies of the same; by
        default, whether the pass is channelwise.
        """
        if not self.engine.has_cores:
            return {}
        dealt = self.task.channelwise if is_dealt is None else is_dealt
        fields = {"members": self.split.member_bits, "x_dealt": int(dealt and self.split.members > 1)}
        if len(self.all.present) > 1:
            fields |= {"x_teams": len(self.all.present), "x_team_stride": self.all.team_stride(edge)}
        return fields

    def _team_row_fields(self, span: Span, advance: int, height: int, row_bytes: int) -> dict[str, int]:
        """Return a dict of job fields: each team of cores gets its own input rows, from the first team's (begin, end).

        ``row_bytes`` is the distance of rows in memory. ``x_height`` is absent if all rows lie in the map.
        """
        if not self.split.by_rows:
            return {}
        stride = {"x_teams": self.split.teams, "x_team_stride": advance * row_bytes}
        if self._lies_in(span, advance, height):
            return stride
        return stride | {"x_top": span[0], "x_advance": advance, "x_height": height}

    def _lies_in(self, span: Span, advance: int, height: int) -> bool:
        """Return whether the rows of all teams of cores, from the first team's (begin, end), are within the map."""
        return not self.split.by_rows or (span[0] >= 0 and span[1] + (self.split.teams - 1) * advance <= height)

    def _load_weights(self, item: _Item, loads: list[dict[str, int]]) -> Allocation:
        """Add loads of a chunk's weights unless the weight buffer holds them; return their `Allocation`."""
        is_shared = self.task.shares_weights
        fold = 0 if is_shared else item.fold
        key, first = (self.pass_index, fold, item.chunk_index), self.offsets[item.chunk_index]
        count = item.folds * (self.offsets[item.chunk_index + 1] - first)
        entry = self.all.weights.find(key)
        if entry is None:
            entry, wait = self.all.weights.add(key, count)
            members = self.split.members
            stored_folds = 1 if is_shared else self.task.core_folds(self.engine)
            core_folds = min(item.folds * members, stored_folds - fold * members)
            step = fold * members * self.offsets[-1] + core_folds * first
            address = self.data.weights + step * self.engine.weight_words * WORD
            load = {"w_address": address, "w_steps": count, "w_base": entry.base}
            if members > 1:
                load["members"] = self.split.member_bits
                if not is_shared:
                    load |= {"w_steps": count // item.folds, "w_blocks": core_folds}
            _merge_load(loads, load, wait_computed=wait)
        return entry

    def _load_parameters(self, item: _Item, loads: list[dict[str, int]]) -> Allocation:
        """Add loads of output channels' biases and scales unless buffered; return their `Allocation`."""
        task = self.task
        if task.fixed:
            return self._load_constants(task.fixed, item, loads)
        fold = 0 if task.shares_parameters else item.fold
        entry = self.all.parameters.find((self.pass_index, fold))
        if entry is None:
            count = 1 if task.shares_parameters else self._item_blocks(item)
            entry, wait = self.all.parameters.add((self.pass_index, fold), self._core_blocks(item))
            address = self.data.parameters + fold * task.fold_maps(self.engine) * WORD
            load = {"p_address": address, "p_words": count * LANES, "p_base": entry.base}
            if self.split.members > 1:
                load |= {"members": self.split.member_bits, "p_dealt": int(not task.shares_parameters)}
            _merge_load(loads, load, wait_stored=wait)
        return entry

    def _load_constants(self, program: FixedProgram, item: _Item, loads: list[dict[str, int]]) -> Allocation:
        """Add loads of a fixed-point program's constants unless buffered; return their `Allocation`."""
        count, is_shared = len(program.constants), program.shares_constants
        fold, members = 0 if is_shared else item.fold, 1 if is_shared else self.split.members
        entry = self.all.parameters.find((self.pass_index, fold))
        if entry is None:
            entry, wait = self.all.parameters.add((self.pass_index, fold), count)
            words = count * members * LANES
            load = {"p_address": self.data.parameters + fold * words * WORD, "p_words": words, "p_base": entry.base}
            if self.split.members > 1:
                load |= {"members": self.split.member_bits, "p_dealt": int(not is_shared)}
            _merge_load(loads, load, wait_stored=wait)
        return entry

    def _operand_rows(self, tile: _Tile) -> slice | np.ndarray:
        """Return a slice or array: rows of the added or multiplied map that all cores' teams read for a tile."""
        if self.task.reads_pixel:
            return slice(0, 1)
        return self._team_rows(tile.rows, self.task.rows, self.split.total_rows)

    def _load_operand(self, item: _Item, loads: list[dict[str, int]], edge: str, first_block: int) -> Allocation:
        """Add the load of a tile of the map to be added or multiplied; return its buffer `Allocation`.

        An earlier job is needed if the tile's own job loads its input. A single pixel that the buffer holds is not
        loaded again.
        """
        tile, location, source = item.tile, self.all.locations[edge], self.all.states_of(edge)
        count, block = self._item_blocks(item), first_block + self._fold_block(item.fold)
        pixels, region = tile.pixels, (slice(block, block + count), self._operand_rows(tile))
        rows, words, key = tile.pixel_rows, tile.out_columns, object()
        row, column = tile.rows[0], tile.columns[0]
        divided = self._core_load_fields(edge, is_dealt=True)
        if self.task.reads_pixel:
            pixels = rows = words = 1
            row, column, key = 0, 0, (self.pass_index, self.all.frame, item.fold)
            if (entry := self.all.addends.find(key)) is not None:
                return entry
        else:
            divided |= self._team_row_fields(tile.rows, self.task.rows, self.split.total_rows, location.row_bytes)
        entry, wait = self.all.addends.add(key, self._core_blocks(item) * pixels)
        assert not source.left[region].any(), "rows are read that no job has computed"
        if words == location.width and location.joins_rows and "x_height" not in divided:
            rows, words = 1, pixels
        load = divided | {
            "addend": 1,
            "x_blocks": count,
            "x_kept": int(location.kept),
            "x_address": location.at(block, row, column),
            "x_row_stride": location.row_bytes,
            "x_block_stride": location.block_bytes,
            "x_rows": rows,
            "x_words": words,
            "x_base": entry.base,
            "x_pitch_words": words,
            "x_plane": pixels,
        }
        wait = max(wait, int(source.stored[region].max(initial=0)))
        if loads and "x_blocks" in loads[-1]:
            loads.insert(0, load | {"wait_stored": wait})
        else:
            _merge_load(loads, load, wait_stored=wait)
        return entry

    def _load_tables(self, loads: list[dict[str, int]]) -> list[Allocation]:
        """Add loads of the layer's lookup tables, unless the engine holds them; return a list with each `Allocation`.

        A job loads either parameters or tables.
        """
        entries = []
        for tables, address in zip(self.task.tables, self.data.tables, strict=True):
            owner, entry = self.all.tables.get(tables.first, (-1, Allocation(0, tables.first)))
            if owner != self.pass_index:
                load = {"p_address": address, "p_words": tables.entries.size, "p_base": tables.first, "tables": 1}
                loads.insert(0, load | {"wait_stored": entry.used})
                entry = Allocation(0, tables.first)
                self.all.tables[tables.first] = self.pass_index, entry
            entries.append(entry)
        return entries

    def _fold_block(self, fold: int) -> int:
        """Return the index of the first block of 8 output channels of an output fold (channels at once)."""
        return fold * self.fold_maps // LANES

    def _item_blocks(self, item: _Item) -> int:
        """Return the number of 8-channel output blocks that one job computes on all cores, over all its folds."""
        return blocks(min(item.folds * self.fold_maps, self.maps - item.fold * self.fold_maps))

    def _core_blocks(self, item: _Item) -> int:
        """Return the number of 8-channel output blocks that one job computes on each core, over all its folds."""
        return -(-self._item_blocks(item) // self.split.members)

    def _compute(self, item: _Item, box: Allocation, weights: Allocation) -> Compute:
        """Return the `Compute` part of an engine job for a chunk: addresses, strides, taps and pixel groups."""
        task, tile, engine, window = self.task, item.tile, self.engine, self.task.window
        (top, bottom), (left, right) = tile.box_rows, tile.box_columns
        stride, across = task.stride, tile.out_columns
        step = pitch(task, engine, tile.box_width, across)
        chunk, (channels, kernel_rows, kernel_columns) = item.chunk, item.chunk.size
        row = tile.rows[0] * window.stride[0] - window.padding[0] + chunk.taps[0] * window.dilation[0] - top
        column = tile.columns[0] * stride - window.padding[1] + chunk.tap_columns[0] * window.dilation[1] - left
        base = box.base * engine.pixels if self.roll is None else self.roll.at
        start = base + row // task.row_step * step + column
        rows, columns = engine.pixels // across, engine.pixels % across
        # Positions from a pixel to the pixel below. With unequal strides, no pixel that is drained has one.
        rows_below = window.stride[0] if task.copies_bytes else stride
        down = step * rows_below // (task.row_step if window.stride[0] == stride else 1)
        plane = self._plane(tile)
        start += (chunk.channels[0] - chunk.box_channels[0]) // LANES * plane * engine.pixels
        walk = (stride, across, down)  # determine the lanes' first pixels; ``down`` depends on skipped rows
        compute = Compute(
            groups=-(-tile.pixels // engine.pixels),
            first=item.first,
            last=item.last,
            channelwise=task.channelwise,
            maximum=task.maximum,
            walk=walk != self.all.walked,
            kernel_rows=kernel_rows,
            kernel_columns=kernel_columns,
            channels=LANES * blocks(channels) if task.channelwise else channels,
            stride=stride,
            w_base=weights.base,
            columns=across * stride,
            group_columns=stride * columns,
            group_rows=stride * rows,
            group_words=(rows * down + stride * columns) // engine.pixels,
            wrap_words=(down - stride * across) // engine.pixels,
            in_rows=task.height if self.split.by_rows else bottom - top,
            in_columns=right - left,
            origin_row=row + top * self.split.by_rows,  # teams that divide rows count them from the map's first row
            origin_column=column,
            start_words=start // engine.pixels,
            start_rest=start % engine.pixels,
            pad=task.pad,
            dilation_rows=window.dilation[0],
            dilation_columns=window.dilation[1],
            column_words=window.dilation[1] // engine.pixels,
            column_rest=window.dilation[1] % engine.pixels,
            row_words=window.dilation[0] * step // engine.pixels,
            row_rest=window.dilation[0] * step % engine.pixels,
            plane=plane,
            folds=item.folds,
            members=self.split.member_bits,
            row_advance=self._input_advance if self.split.by_rows else 0,
        )
        self.all.walked = walk
        return compute

    def _drain_and_store(self, item: _Item, parameters: int, addend: int = 0) -> dict[str, Any]:
        """Return a dict of job fields by section: requantise a tile's sums (drain), and write its outputs (store)."""
        task, tile, edge = self.task, item.tile, self.task.edge
        count = self._item_blocks(item)
        rows, words = tile.pixel_rows // edge, tile.out_columns // edge
        pixels = rows * words
        entry, wait = self.all.outputs.add(len(self.all.jobs), self._core_blocks(item) * pixels)
        wait = max(wait, self.all.fixed_stored)
        name, first_block = task.target
        location = self.all.locations[name]
        block = first_block + self._fold_block(item.fold)
        lattice, row_stride = task.lattice, location.row_bytes * task.lattice.step[0]
        address = location.at(block, lattice.at(0, tile.rows[0] // edge), lattice.at(1, tile.columns[0] // edge))
        if task.is_scattered:
            assert rows == 1
            rows, words, row_stride = words, 1, WORD * lattice.step[1]
        elif (
            (words == location.width and location.joins_rows)
            and (pixels < 1 << 16 and lattice.step[0] == 1)
            and self._lies_in(tile.rows, task.rows, self.split.total_rows)
        ):
            rows, words = 1, pixels
        self._output_entry = entry
        return {
            "drain": Drain(
                blocks=self._core_blocks(item),
                pixels=tile.pixels,
                add=task.addend is not None,
                multiply=task.product is not None,
                one_pixel=task.reads_pixel,
                a_base=addend,
                table=task.looked_up,
                pool=task.pooled,
                columns=tile.out_columns if task.pooled else 0,
                p_base=parameters,
                wait_stored=wait,
                o_base=entry.base,
                o_plane=pixels,
                channelwise=task.channelwise,
                **self.bounds,
            ),
            "store": Store(
                blocks=count,
                o_base=entry.base,
                o_plane=pixels,
                kept=int(location.kept),
                address=address,
                row_stride=row_stride,
                block_stride=location.block_bytes,
                rows=rows,
                words=words,
                **self._core_store_fields(tile, row_stride, name),
            ),
        }

    def _core_store_fields(self, tile: _Tile, row_stride: int, edge: str) -> dict[str, int]:
        """Return a dict of job fields that place each core's outputs in memory; empty for an engine of one core."""
        if not self.engine.has_cores:
            return {}
        fields, height, size = {"members": self.split.member_bits}, self.task.edge, self.task.output_bytes
        if self.split.by_rows:
            advance = self.task.rows * size // height
            fields |= {"teams": self.split.teams, "team_stride": advance * row_stride}
            if self._lies_in(tile.rows, self.task.rows, self.split.total_rows):
                return fields
            return fields | {
                "advance": advance,
                "top": tile.rows[0] * size // height,
                "height": self.split.total_rows * size // height,
            }
        if len(self.all.present) > 1:
            fields |= {"teams": len(self.all.present), "team_stride": self.all.team_stride(edge)}
        return fields

    def _note_stored(self, item: _Item) -> None:
        """Record that the last appended job stores a tile's outputs.

        Jobs that read these output rows wait for it. After it, the tile's words of the output buffer can be reused.
        """
        name, first_block = self.task.target
        block, edge = first_block + self._fold_block(item.fold), self.task.edge
        lattice, size = self.task.lattice, self.task.output_bytes
        span = (item.tile.rows[0] * size // edge, item.tile.rows[1] * size // edge)
        rows = self._team_rows(span, self.task.rows * size // edge, self.split.total_rows * size // edge)
        if isinstance(rows, slice) and size == 1:
            rows = slice(lattice.at(0, span[0]), lattice.at(0, span[1]), lattice.step[0])
        else:
            rows, byte = np.divmod(np.arange(*span) if isinstance(rows, slice) else rows, size)
            rows = (rows * lattice.step[0] + lattice.first[0]) * size + byte
        region = (slice(block, block + self._item_blocks(item)), rows)
        map_rows = self.all.states_of(name)
        map_rows.stored[region] = self._output_entry.used = len(self.all.jobs)
        map_rows.left[region] -= item.tile.out_columns // edge
        if self.task.fixed:
            self.all.fixed_stored = len(self.all.jobs)


def _merge_load(loads: list[dict[str, int]], load: dict[str, int], **waits: int) -> None:
    """Merge a load's job fields into the last job (dict of fields) of ``loads``; each wait becomes the later of two."""
    if not loads:
        loads.append({})
    loads[-1] |= load | {name: max(wait, loads[-1].get(name, 0)) for name, wait in waits.items()}
