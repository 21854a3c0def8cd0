"""The jobs of a pass: what is loaded where and when, what is computed, drained and stored.

Places in the buffers are given in turn, as in a ring: what comes in takes the place of the oldest, and waits until
that was used for the last time. So while a tile is computed, what the next one needs comes in beside it, and what is
still there is not loaded again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Compute, Drain, Job, Load, Store
from hwgen.program.layout import WORD, blocks
from hwgen.program.maps import Place
from hwgen.program.passes import Pass
from hwgen.program.tiles import Cost, Room, Tiling, chunks, pieces, pitch, plane_words, steps
from hwgen.schedule.engine_core import group_steps

Span = tuple[int, int]
#: Addresses count modulo this.
ADDRESSES = 1 << 32
#: From the jobs of a tile until its outputs may be read, about.
LAG_CYCLES = 2000
#: Of the port, while which loads run ahead of the array, about.
AHEAD_CYCLES = 4000


@dataclass(frozen=True, kw_only=True)
class Data:
    """Addresses of what a pass loads beside its maps."""

    weights: int = 0
    parameters: int = 0
    tables: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work:
    """A pass, how it is cut, cycles of the array and of the port, about, and where its data lie."""

    task: Pass
    tiling: Tiling
    array: float
    port: float
    data: Data = Data()

    @classmethod
    def of(cls, task: Pass, tiling: Tiling, cost: Cost) -> Work:
        return cls(task=task, tiling=tiling, array=cost.array, port=cost.port)

    @property
    def nowhere(self) -> Data:
        """Data as long as their places are not known."""
        return Data(tables=(0,) * len(self.task.tables))


@dataclass
class Entry:
    start: int
    base: int
    used: int = 0
    """Jobs up to the last one that uses it."""


class Ring:
    """Places in a buffer, given in turn; they count modulo its depth. Of the buffer, ``size`` may be taken at once."""

    def __init__(self, size: int, depth: int | None = None) -> None:
        self._size, self._depth, self._next = size, depth or size, 0
        self._entries: dict[Any, Entry] = {}

    def find(self, key: Any) -> Entry | None:
        return self._entries.get(key)

    def add(self, key: Any, size: int) -> tuple[Entry, int]:
        """A place, and how many jobs must have used what lay there."""
        if size > self._size:
            raise PlanError(f"a buffer of {self._size} words must hold {size}")
        end = self._next + size
        late = [each for each, entry in self._entries.items() if entry.start < end - self._size]
        wait = max((self._entries.pop(each).used for each in late), default=0)
        entry = self._entries[key] = Entry(self._next, self._next % self._depth)
        self._next = end
        return entry, wait


@dataclass(frozen=True)
class _Tile:
    """Output rows and columns, and the rows and columns of the input that its box holds."""

    rows: Span
    columns: Span
    box_rows: Span
    box_columns: Span

    @property
    def out_columns(self) -> int:
        return self.columns[1] - self.columns[0]

    @property
    def box_width(self) -> int:
        return self.box_columns[1] - self.box_columns[0]

    @property
    def pixel_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def pixels(self) -> int:
        return self.pixel_rows * self.out_columns


@dataclass(frozen=True)
class _Item:
    """What a job computes: a chunk of a tile of a fold."""

    fold: int
    tile: _Tile
    chunk: int
    channels: Span
    taps: Span
    tap_columns: Span
    first: bool
    last: bool


@dataclass
class _Roll:
    """A box that moves down: its place, columns and first block; the first row that came in, and where the last ended;
    words of a block; for each row the jobs up to the last one that uses it; the box's first row, and its position."""

    entry: Entry
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
    """Makes the jobs of a program, pass by pass.

    ``roots`` are the maps in memory of which edges are parts, with their first blocks there; ``places`` those of edges,
    of all frames where a map has those of several.
    ``room`` is what may be taken of the map buffer and of the weight buffer. If it is ``in_turn``, nothing is loaded
    before all jobs that came before have been computed and stored, as with a single buffer.
    """

    engine: EngineConfig
    roots: Mapping[str, tuple[str, int]]
    places: Mapping[str, Place]
    room: Room
    jobs: list[Job] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    """For each job its pass, by its number."""
    turns: list[int] = field(default_factory=list)
    """For each job the number of its frame; of all frames at once how many there are."""
    groups: list[tuple[int, ...]] = field(default_factory=list)
    """Passes side by side, by their numbers."""

    def __post_init__(self) -> None:
        engine, room = self.engine, self.room
        self.maps, self.weights = (
            Ring(room.map_words, engine.map_words),
            Ring(room.weight_steps, engine.weight_steps),
        )
        self.parameters, self.outputs = Ring(engine.parameter_words), Ring(engine.output_words)
        self.addends = Ring(engine.addend_words)
        self.tables: dict[int, tuple[int, Entry]] = {}
        self.walked: Any = None
        self._whole = {edge: _Rows(place) for edge, place in self.places.items()}
        self._passes = self.turn = 0

    def begin(self, turn: int, places: Mapping[str, Place], passes: int) -> None:
        """What follows are the jobs of another frame, or of all frames, from a pass on, on maps at these places."""
        self.turn, self.places, self._passes = turn, places, passes

    def rows(self, edge: str) -> _Rows:
        """Of a map, as far as they are computed."""
        (root, first), place = self.roots[edge], self.places[edge]
        whole = self._whole[root]
        apart = whole.height // place.height  # of a frame's rows, if those of all frames lie in turn
        return whole.part(first, place.blocks, slice(self.turn % apart, None, apart))

    def add(self, *those: Work) -> None:
        """The jobs of a pass, or of several side by side."""
        group = []
        for work in those:
            group.append(_PassJobs(self, work, self._passes))
            self._passes += 1
        for each in group:
            rows = self.rows(each.task.target[0])
            first, count = each.task.target[1], blocks(each.task.maps)
            rows.left[first : first + count] = self.places[each.task.target[0]].width
        if (numbers := tuple(each.number for each in group)) not in self.groups:
            self.groups.append(numbers)
        _emit_side_by_side(self, group)
        self.turns += [self.turn] * (len(self.jobs) - len(self.turns))

    def end(self) -> list[Job]:
        """All jobs, the last one marked."""
        self.jobs[-1] = replace(self.jobs[-1], load=replace(self.jobs[-1].load, end=1))
        return self.jobs


class _Rows:
    """Of the rows of each block of a map: how many jobs must be stored until they are there, and columns that no job
    has computed yet."""

    def __init__(self, place: Place) -> None:
        self.stored, self.left = np.zeros((2, place.blocks, place.height), np.int64)

    @property
    def height(self) -> int:
        return self.stored.shape[1]

    def part(self, first: int, count: int, rows: slice) -> _Rows:
        """Some rows of some blocks, which are not copied."""
        found = object.__new__(_Rows)
        found.stored, found.left = (each[first : first + count, rows] for each in (self.stored, self.left))
        return found


def _emit_side_by_side(emitter: Emitter, group: Sequence[_PassJobs]) -> None:
    """Unit by unit, so that the array and the port have as much to do.

    A pass that follows another one of the group comes some jobs behind it, as its loads must not wait. While the port
    has more to do than the array, the pass that keeps it least busy goes on, and the other way round.
    """
    waiting = [deque(each.units()) for each in group]
    times: list[float] = []
    array = port = 0.0
    while left := [number for number, units in enumerate(waiting) if units]:
        array, port = max(array, port - AHEAD_CYCLES), max(port, array - AHEAD_CYCLES)
        now = max(array, port)
        lag = len(emitter.jobs) - emitter.engine.queue - 2, now - LAG_CYCLES
        ready = [number for number in left if group[number].is_ready(waiting[number][0], times, *lag)] or left[:1]
        busiest = max if port <= array else min
        number = busiest(ready, key=lambda each: group[each].work.port / group[each].work.array)
        first = len(emitter.jobs)
        for item in waiting[number].popleft():
            group[number].emit(item)
        for job in emitter.jobs[first:]:
            array += job.compute.groups * group_steps(job.compute)
            port += emitter.engine.word_cycles(emitter.room.pace) * _words(emitter.engine, job)
        times += [max(array, port)] * (len(emitter.jobs) - first)


def _words(engine: EngineConfig, job: Job) -> int:
    """That go over the port for a job."""
    load, store = job.load, job.store
    loaded = load.x_blocks * load.x_rows * load.x_words + load.w_steps * engine.blocks + load.p_words
    return Job.WORDS + loaded + store.blocks * store.rows * store.words


class _PassJobs:
    """The jobs of one pass."""

    def __init__(self, emitter: Emitter, work: Work, number: int) -> None:
        self.all, self.work, self.number = emitter, work, number
        self.engine, self.task, self.tiling, self.data = emitter.engine, work.task, work.tiling, work.data
        self.chunks = chunks(work.task, work.tiling)
        self.offsets = np.cumsum([0, *(self._chunk_steps(*each) for each in self.chunks)]).tolist()
        self.roll: _Roll | None = None

    def _chunk_steps(self, channels: Span, taps: Span, tap_columns: Span) -> int:
        """Of the chunk for each group."""
        return steps(self.task, channels[1] - channels[0], taps[1] - taps[0], tap_columns[1] - tap_columns[0])

    def units(self) -> Iterator[list[_Item]]:
        """Tiles of folds, of each the chunks."""
        folds, boxes = range(self.task.folds(self.engine)), list(self._boxes())
        if self.tiling.maps_stay:
            order = [(fold, box) for box in boxes for fold in folds]
        else:
            order = [(fold, box) for fold in folds for box in boxes]
        last = len(self.chunks) - 1
        for fold, box in order:
            for tile in box:
                yield [
                    _Item(fold, self._part(tile, chunk[1]), number, *chunk, number == 0, number == last)
                    for number, chunk in enumerate(self.chunks)
                ]

    def _part(self, tile: _Tile, taps: Span) -> _Tile:
        """The tile with what a chunk of it needs of the input."""
        return replace(tile, box_rows=self.task.needed(0, *tile.rows, taps)) if self.tiling.by_taps else tile

    def is_ready(self, unit: Sequence[_Item], times: Sequence[float], jobs: int, time: float) -> bool:
        """Whether the first so many jobs, up to that time, store all that is read."""
        for rows, part in self._read(unit[0]):
            stored = int(rows.stored[part].max())
            begun = stored - (len(self.all.jobs) - len(times))  # of the jobs of this group
            if rows.left[part].any() or (begun > 0 and (stored > jobs or times[begun - 1] > time)):
                return False
        return True

    def _read(self, item: _Item) -> list[tuple[_Rows, tuple[slice, slice]]]:
        """The parts of maps that a tile reads."""
        task, tile, (edge, first) = self.task, item.tile, self.task.source
        first += item.fold if task.channelwise else 0
        found = [(self.all.rows(edge), (slice(first, first + blocks(task.channels)), slice(*tile.box_rows)))]
        if task.addend:
            edge, first = task.addend
            first += self._fold_block(item.fold)
            part = slice(first, first + self._fold_blocks(item.fold)), slice(*tile.rows)
            found.append((self.all.rows(edge), part))
        return found

    def _boxes(self) -> Iterator[list[_Tile]]:
        """The tiles of each box, row by row of boxes; column by column, if they roll."""
        task, tiling = self.task, self.tiling
        down, across = pieces(task.rows, tiling.box_rows), pieces(task.columns, tiling.columns)
        places = [(rows, columns) for columns in across for rows in down] if tiling.rolling else product(down, across)
        for outer, columns in places:
            box = task.needed(0, *outer), task.needed(1, *columns)
            inside = pieces(outer[1] - outer[0], tiling.rows)
            yield [_Tile((outer[0] + begin, outer[0] + end), columns, *box) for begin, end in inside]

    def _plane(self, tile: _Tile) -> int:
        if self.roll is not None:
            return self.roll.plane
        return plane_words(self.task, self.engine, self._loaded_rows(tile.box_rows), tile.box_width, tile.out_columns)

    def _loaded_rows(self, span: Span) -> int:
        """Those of some rows of a box that are in a window."""
        return -((span[0] - span[1]) // self.task.row_step)

    def emit(self, item: _Item) -> None:
        """The job of an item, and jobs in front of it for what one job can't load."""
        loads, box = self._load_box(item)
        weights = self._load_weights(item, loads)
        compute = self._compute(item, box, weights)
        parts: dict[str, Any] = {"compute": compute}
        if item.last:
            finishes = [self._load_parameters(item, loads)]
            if self.task.addend:
                finishes.append(self._load_addend(item, loads, *self.task.addend))
            parts |= self._finish(item, *(each.base for each in finishes))
            finishes += self._load_tables(loads)
            for each in finishes:
                each.used = len(self.all.jobs) + max(len(loads), 1)
        if self.all.room.in_turn:
            for number, each in enumerate(loads, len(self.all.jobs)):
                each |= {"wait_computed": number, "wait_stored": number}
        self.all.jobs += [Job(load=Load(**each)) for each in loads[:-1]]
        self.all.jobs.append(Job(load=Load(**(loads or [{}])[-1]), **parts))
        self.all.owners += [self.number] * (len(self.all.jobs) - len(self.all.owners))
        box.used = weights.used = len(self.all.jobs)
        if self.roll is not None:
            self.roll.used[slice(*item.tile.box_rows)] = len(self.all.jobs)
        if item.last:
            self._note_stored(item)

    def _load_box(self, item: _Item) -> tuple[list[dict[str, int]], Entry]:
        task, tile = self.task, item.tile
        first, count = item.channels[0] // LANES, blocks(item.channels[1] - item.channels[0])
        if task.channelwise:
            first = item.fold
        if self.tiling.rolling:
            return self._roll_box(item, first, count)
        key = (self.number, self.all.turn, first, count, tile.box_rows, tile.box_columns)
        box = self.all.maps.find(key)
        if box is not None:
            return [], box
        plane = self._plane(tile)
        box, wait = self.all.maps.add(key, plane * count)
        edge, source = task.source
        load = self._fetch_box(edge, source + first, count, tile, tile.box_rows)
        return [load | {"wait_computed": wait, "x_base": box.base, "x_plane": plane}], box

    def _roll_box(self, item: _Item, block: int, count: int) -> tuple[list[dict[str, int]], Entry]:
        """The box is moved down: only rows that are not there are loaded, in the places of the oldest."""
        task, tile, pixels = self.task, item.tile, self.engine.pixels
        top, bottom = tile.box_rows
        step = pitch(task, self.engine, tile.box_width, tile.out_columns)
        roll, wait = self.roll, 0
        if roll is None or roll.columns != tile.box_columns or roll.block != block or top < roll.top:
            size = self.all.room.map_words
            entry, wait = self.all.maps.add((self.number, "roll", len(self.all.jobs)), size)
            used = np.zeros(task.height, int)
            roll = self.roll = _Roll(entry, tile.box_columns, block, top, top, size // count, used, top)
        begin, roll.top = max(top, roll.bottom), top
        roll.at = (roll.entry.base * pixels + (top - roll.begin) * step) % (self.engine.map_words * pixels)
        if begin >= bottom:
            return [], roll.entry
        # The last row that comes in lies where those lay that are so far above it that both don't fit.
        above = bottom - 1 - (roll.plane * pixels - tile.box_width) // step
        if above > roll.begin:
            wait = max(wait, int(roll.used[roll.begin : above].max()))
        position = roll.entry.base * pixels + (begin - roll.begin) * step
        roll.bottom = bottom
        edge, source = task.source
        load = self._fetch_box(edge, source + block, count, tile, (begin, bottom))
        load |= {"x_base": position // pixels % self.engine.map_words, "x_first": position % pixels}
        return [load | {"wait_computed": wait, "x_plane": roll.plane}], roll.entry

    def _fetch_box(self, edge: str, block: int, count: int, tile: _Tile, span: Span) -> dict[str, int]:
        """Some rows of a tile's box."""
        place, (top, bottom), left = self.all.places[edge], span, tile.box_columns[0]
        source = self.all.rows(edge)
        part = (slice(block, block + count), slice(top, bottom))
        assert not source.left[part].any(), "rows are read that no job has computed"
        rows, words, apart = self._loaded_rows(span), tile.box_width, self.task.row_step
        step = pitch(self.task, self.engine, words, tile.out_columns)
        if words == place.width == step and place.joins_rows and rows * words < 1 << 16 and apart == 1:
            rows, words = 1, rows * words  # rows lie one behind the other, in memory and in the buffer
        return {
            "x_blocks": count,
            "wait_stored": int(source.stored[part].max()),
            "x_address": place.at(block, top, left),
            "x_row_stride": place.row_bytes * apart,
            "x_block_stride": place.block_bytes,
            "x_rows": rows,
            "x_words": words,
            "x_pitch_words": step // self.engine.pixels,
            "x_pitch_rest": step % self.engine.pixels,
        }

    def _load_weights(self, item: _Item, loads: list[dict[str, int]]) -> Entry:
        fold = 0 if self.task.shares_weights else item.fold
        key, count = (self.number, fold, item.chunk), self._chunk_steps(item.channels, item.taps, item.tap_columns)
        found = self.all.weights.find(key)
        if found is None:
            found, wait = self.all.weights.add(key, count)
            place = fold * self.offsets[-1] + self.offsets[item.chunk]
            load = {"w_address": self.data.weights + place * self.engine.maps, "w_steps": count, "w_base": found.base}
            _join(loads, load, wait_computed=wait)
        return found

    def _load_parameters(self, item: _Item, loads: list[dict[str, int]]) -> Entry:
        task = self.task
        fold = 0 if task.shares_parameters else item.fold
        found = self.all.parameters.find((self.number, fold))
        if found is None:
            count = self._fold_blocks(item.fold)
            found, wait = self.all.parameters.add((self.number, fold), count)
            address = self.data.parameters + fold * task.fold_maps(self.engine) * WORD
            _join(loads, {"p_address": address, "p_words": count * LANES, "p_base": found.base}, wait_stored=wait)
        return found

    def _load_addend(self, item: _Item, loads: list[dict[str, int]], edge: str, first: int) -> Entry:
        """With the job, or in front of it if that loads a map already."""
        tile, place, source = item.tile, self.all.places[edge], self.all.rows(edge)
        count, block = self._fold_blocks(item.fold), first + self._fold_block(item.fold)
        room, wait = self.all.addends.add(len(self.all.jobs), count * tile.pixels)
        part = slice(block, block + count), slice(*tile.rows)
        assert not source.left[part].any(), "rows are read that no job has computed"
        rows, words = tile.pixel_rows, tile.out_columns
        if words == place.width and place.joins_rows:
            rows, words = 1, tile.pixels
        load = {
            "addend": 1,
            "x_blocks": count,
            "x_address": place.at(block, tile.rows[0], tile.columns[0]),
            "x_row_stride": place.row_bytes,
            "x_block_stride": place.block_bytes,
            "x_rows": rows,
            "x_words": words,
            "x_base": room.base,
            "x_pitch_words": words,
            "x_plane": tile.pixels,
        }
        wait = max(wait, int(source.stored[part].max()))
        if loads and "x_blocks" in loads[-1]:
            loads.insert(0, load | {"wait_stored": wait})
        else:
            _join(loads, load, wait_stored=wait)
        return room

    def _load_tables(self, loads: list[dict[str, int]]) -> list[Entry]:
        """By jobs in front: there is one of parameters and tables in each."""
        found = []
        for tables, address in zip(self.task.tables, self.data.tables, strict=True):
            owner, entry = self.all.tables.get(tables.first, (-1, Entry(0, tables.first)))
            if owner != self.number:
                load = {"p_address": address, "p_words": tables.entries.size, "p_base": tables.first, "tables": 1}
                loads.insert(0, load | {"wait_stored": entry.used})
                entry = Entry(0, tables.first)
                self.all.tables[tables.first] = self.number, entry
            found.append(entry)
        return found

    def _fold_block(self, fold: int) -> int:
        """The first block of a fold."""
        return fold * self.task.fold_maps(self.engine) // LANES

    def _fold_blocks(self, fold: int) -> int:
        most = self.task.fold_maps(self.engine)
        return blocks(min(most, self.task.maps - fold * most))

    def _compute(self, item: _Item, box: Entry, weights: Entry) -> Compute:
        task, tile, engine, window = self.task, item.tile, self.engine, self.task.window
        (top, bottom), (left, right) = tile.box_rows, tile.box_columns
        stride, across = task.stride, tile.out_columns
        step = pitch(task, engine, tile.box_width, across)
        row = tile.rows[0] * stride - window.padding[0] + item.taps[0] * window.dilation[0] - top
        column = tile.columns[0] * stride - window.padding[1] + item.tap_columns[0] * window.dilation[1] - left
        place = box.base * engine.pixels if self.roll is None else self.roll.at
        start = place + row // task.row_step * step + column
        rows, columns = engine.pixels // across, engine.pixels % across
        down = step * stride // task.row_step  # from a pixel to that below
        plane, many = self._plane(tile), item.channels[1] - item.channels[0]
        walk = (stride, across, down)  # what lanes begin with: steps of equal boxes differ with the rows left out
        compute = Compute(
            groups=-(-tile.pixels // engine.pixels),
            first=item.first,
            last=item.last,
            channelwise=task.channelwise,
            maximum=task.maximum,
            walk=walk != self.all.walked,
            kernel_rows=item.taps[1] - item.taps[0],
            kernel_columns=item.tap_columns[1] - item.tap_columns[0],
            channels=LANES * blocks(many) if task.channelwise else many,
            stride=stride,
            w_base=weights.base,
            columns=across * stride,
            group_columns=stride * columns,
            group_rows=stride * rows,
            group_words=(rows * down + stride * columns) // engine.pixels,
            wrap_words=(down - stride * across) // engine.pixels,
            in_rows=bottom - top,
            in_columns=right - left,
            origin_row=row,
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
        )
        self.all.walked = walk
        return compute

    def _finish(self, item: _Item, parameters: int, addend: int = 0) -> dict[str, Any]:
        """Drain and store of a tile."""
        task, tile, edge = self.task, item.tile, self.task.edge
        count = self._fold_blocks(item.fold)
        rows, words = tile.pixel_rows // edge, tile.out_columns // edge
        pixels = rows * words
        room, wait = self.all.outputs.add(len(self.all.jobs), count * pixels)
        name, first = task.target
        place = self.all.places[name]
        block = first + self._fold_block(item.fold)
        lattice, row_stride = task.lattice, place.row_bytes * task.lattice.step[0]
        address = place.at(block, lattice.at(0, tile.rows[0] // edge), lattice.at(1, tile.columns[0] // edge))
        if task.is_scattered:
            assert rows == 1
            rows, words, row_stride = words, 1, WORD * lattice.step[1]
        elif words == place.width and place.joins_rows and pixels < 1 << 16 and lattice.step[0] == 1:
            rows, words = 1, pixels
        bounds = asdict(task.rule) if task.rule else {}
        if task.sum_rule:
            bounds |= {f"a_{name}": value for name, value in asdict(task.sum_rule).items()}
        self._room = room
        return {
            "drain": Drain(
                blocks=count,
                pixels=tile.pixels,
                add=task.addend is not None,
                a_base=addend,
                table=task.looked_up,
                pool=task.pooled,
                columns=tile.out_columns if task.pooled else 0,
                p_base=parameters,
                wait_stored=wait,
                o_base=room.base,
                o_plane=pixels,
                **bounds,
            ),
            "store": Store(
                blocks=count,
                o_base=room.base,
                o_plane=pixels,
                address=address,
                row_stride=row_stride,
                block_stride=place.block_bytes,
                rows=rows,
                words=words,
            ),
        }

    def _note_stored(self, item: _Item) -> None:
        """Who waits for these rows, or for this place in the output buffer, waits for this job."""
        name, first = self.task.target
        block, edge = first + self._fold_block(item.fold), self.task.edge
        lattice = self.task.lattice
        begin, end = (lattice.at(0, each // edge) for each in item.tile.rows)
        rows = slice(begin, end, lattice.step[0])
        part = (slice(block, block + self._fold_blocks(item.fold)), rows)
        made = self.all.rows(name)
        made.stored[part] = self._room.used = len(self.all.jobs)
        made.left[part] -= item.tile.out_columns // edge


def _join(loads: list[dict[str, int]], load: dict[str, int], **waits: int) -> None:
    """Let the last job that loads load this, too."""
    if not loads:
        loads.append({})
    loads[-1] |= load | {name: max(wait, loads[-1].get(name, 0)) for name, wait in waits.items()}
