"""Drain controller of the engine: selects the complete sums that leave the array, and addresses their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.array import select_layout
from hwgen.gateware.engine.config import LANES, STRIDES, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Drain
from hwgen.gateware.lookup import named, ram, read_port, write_port

#: Control fields that accompany each beat of sums from the array to the output buffer, with their shapes.
_NOTE_FIELDS = {
    "address": 16,
    "parameter": 8,
    "zero_point": signed(8),
    "low": signed(8),
    "high": signed(8),
    "add": 1,
    "addend": 16,
    "a_zero_point": signed(8),
    "a_low": signed(8),
    "a_high": signed(8),
    "table": 1,
    "pool": 1,
    "columns": 10,
    "multiply": 1,
    "pixel_end": 1,
    "fold_end": 1,
    "last": 1,
}
#: Names of the control fields of a beat of sums that are copies of fields of the job's `Drain` part.
_JOB_FIELDS = (
    "zero_point",
    "low",
    "high",
    "add",
    "a_zero_point",
    "a_low",
    "a_high",
    "table",
    "pool",
    "columns",
    "multiply",
)
#: Names of flags in a job's `Drain` part that limit each beat of sums to one pixel, even with 16 or 32 requantisers.
ONE_WORD_FLAGS = ("add", "table", "pool", "multiply")


def note_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a note: control fields that travel with a beat of sums to the output buffer."""
    present = {"present": config.beat_words} if config.beat_words > 1 else {}
    return data.StructLayout({**_NOTE_FIELDS, **present})


def drain_beat_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a beat from the array: 8 complete sums of 1, 2 or 4 pixels, control fields.

    A beat has the sums of ``config.beat_words`` neighbouring pixels of a block. If these are several, ``present`` marks
    those that belong to the job. ``address`` is the word address of the first pixel in the output buffer, without
    pooling: ``o_base + b * o_plane + p`` for block ``b`` and pixel ``p``. ``parameter`` is the block's address in the
    parameter buffer, and ``addend`` the address of the word that is added or multiplied. ``pixel_end`` marks the last
    block of a pixel in its fold, ``fold_end`` the last beat of a fold, ``last`` the last beat of a job. The other
    fields are fields of `Drain`.
    """
    sums = data.ArrayLayout(signed(config.sum_bits), LANES * config.beat_words)
    return data.StructLayout({"sums": sums, **note_layout(config).members})


@dataclass(frozen=True, kw_only=True)
class DrainControllerConfig:
    """Configuration of the engine's drain controller (`DrainController`), with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        # As measured: most of it stores the current job, the next job, and the fields of a beat.
        pixel_bits, further = counter_bits(engine.pixels), engine.beat_words - 1
        cost.ff = 432 + pixel_bits + 3 * counter_bits(engine.slots)
        cost.lut = 288
        if bits := counter_bits(engine.maps // LANES):  # counters of the blocks of a pixel and a fold
            cost.ff += 2 + 3 * bits
            # Ten LUTs per bit, less the LUTs of addresses that have only one register if a pixel has one block.
            cost.lut += 10 * bits - 16
            cost.lut += _NOTE_FIELDS["address"] * bool(further)  # the adder of a number of pixels that is not 1
        if further:  # a lane of each further pixel: two adders, a multiplexer and the distance from the first one
            cost.ff += pixel_bits * further + 2
            cost.lut += 4 * pixel_bits * further
        cost.ram(3, engine.slots, "lut")
        return cost.resources

    def component(self) -> DrainController:
        return DrainController(self.engine)


class _PixelSelection(NamedTuple):
    """Signals of the drain controller: how many pixels it selects per cycle, and whether a pixel group ends.

    Attributes
    ----------
    one_word : Value
        Whether each selection of the job has one pixel.
    ends_group : Value
        Whether the current selection is the last one of a whole pixel group.
    max_pixels, pixels : Value
        Maximum number of pixels of a selection; number of pixels in the current one, unless the fold ends.
    pixels_with_next : Value
        Number of pixels in the current and the next selection, unless the fold ends.
    """

    one_word: Value
    ends_group: Value
    max_pixels: Value
    pixels: Value
    pixels_with_next: Value


def _is_at_most(value: Value, limit: Value) -> Value:
    """Return the condition ``value <= limit`` for a ``limit`` of few bits, without a carry chain over all bits."""
    bits = len(limit)
    return (value[:bits] <= limit) & ~value[bits:].any()


class DrainController(ConfiguredComponent[EngineConfig]):
    """Drain controller of the engine: selects, per cycle, the complete sums of 8 maps and 1, 2 or 4 pixels.

    Order: all blocks of a pixel in its fold, all pixels of a group, all groups of a fold, all folds of a job.

    With 16 or 32 requantiser lanes, it selects the sums of 2 or 4 neighbouring pixels of a group at once, except in
    jobs with a flag of `ONE_WORD_FLAGS`. The last selection of a group, or of a fold, can have fewer pixels.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    jobs : In(stream of `Drain`)
        Drain parts of the jobs, in order.
    stored : In(24)
        Number of stored jobs.
    opens, slot, stride : In
        Pulse at the start of a new group's sums, with their slot and the stride between lanes of successive pixels.
    complete : In(1)
        Pulse: the sums of one more group can be selected two cycles later.
    yields : In(1)
        Whether the array ignores the selection in this cycle. The selection then stays.
    valid, select, note : Out
        Selection, and the fields that accompany it.
    release : Out(1)
        Pulse: the last sums of a slot were selected.
    finished : In(1)
        Pulse: the last word of a job that had beats is in the output buffer.
    drained : Out(24)
        Number of drained jobs. A job without beats counts as soon as all jobs before it are drained.

    Latency and throughput
        The first selection of a part follows at the earliest `FETCH` cycles after the part's transfer, and `START`
        cycles after enough jobs are stored. No cycle is lost between groups, or between jobs of at least `FETCH` beats.
    """

    #: Minimum cycles from the transfer of a job's `Drain` part to the job's first selection of sums.
    FETCH = 3
    #: Minimum cycles from the rise of the input ``stored`` that a job waits for to the job's first selection of sums.
    START = 2

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "jobs": In(stream.Signature(Drain.layout(config.variant))),
                "stored": In(COUNT_BITS),
                "opens": In(1),
                "slot": In(range(config.slots)),
                "stride": In(3),
                "complete": In(1),
                "yields": In(1),
                "valid": Out(1),
                "select": Out(select_layout(config)),
                "note": Out(note_layout(config)),
                "release": Out(1),
                "finished": In(1),
                "drained": Out(COUNT_BITS),
            },
        )

    def elaborate(self, platform):
        m = Module()
        self._take, self._pass = (
            Signal(name="job_start"),
            Signal(name="job_skip"),
        )  # the next job starts; the next job has no beats and is skipped
        self._next, self._job = (
            Signal(Drain.layout(self._config.variant), name="next_job"),
            Signal(Drain.layout(self._config.variant), name="job", reset_less=True),
        )
        self._prepared, self._empty, self._single = (
            Signal(name="is_next_job_ready"),
            Signal(name="is_next_job_empty"),
            Signal(name="is_next_job_one_beat"),
        )
        self._elaborate_next(m)
        self._elaborate_groups(m)
        self._elaborate_note(m)
        return m

    def _elaborate_next(self, m: Module) -> None:
        """Add a register for the next job's `Drain` fields, and flags of it: may start, has no sums, has one beat."""
        vacant, upcoming = Signal(name="is_next_job_vacant", init=1), self._next
        taken = named(self._take | self._pass, "job_taken")
        short = Signal(COUNT_BITS, name="stored_margin")
        m.d.comb += [self.jobs.ready.eq(vacant), short.eq(self.stored - upcoming.wait_stored)]
        m.d.sync += [
            self._prepared.eq(~vacant & ~taken & ~short[-1]),
            self._empty.eq((upcoming.blocks == 0) | (upcoming.pixels == 0)),
            self._single.eq(upcoming.pixels <= self._beat_pixels(self._has_one_word(upcoming))),
        ]
        with m.If(vacant):
            m.d.sync += [upcoming.eq(self.jobs.payload), vacant.eq(~self.jobs.valid)]
        with m.Elif(taken):
            m.d.sync += vacant.eq(1)

    def _elaborate_groups(self, m: Module) -> None:
        """Add the counters that step through a job's pixel groups, pixels and blocks, and the count of drained jobs."""
        config, job, upcoming = self._config, self._job, self._next
        slots = range(config.slots)
        complete = Signal(range(config.slots + 1), name="complete_groups")  # complete groups that wait for the drain
        following = Signal(slots, name="next_slot_index")
        left = Signal(14, name="pixels_left", reset_less=True)  # pixels of the fold, this one included
        some, last = (
            Signal(name="has_pixels"),
            Signal(name="is_last_pixel", reset_less=True),
        )  # whether any pixel of the job is left; whether this pixel is the last one of its fold
        outstanding = Signal(8, name="outstanding_jobs")
        heard, start, begin, border, more = (
            Signal(name="beat_selected"),
            Signal(name="group_start"),
            Signal(name="next_group_start"),
            Signal(name="is_group_boundary"),
            Signal(name="has_more_groups"),
        )
        self._ends_pixel, ends_group, self._ends_fold, self._ends_job = (
            Signal(name="is_pixel_end"),
            Signal(name="is_group_end"),
            Signal(name="is_fold_end"),
            Signal(name="is_job_end"),
        )
        self._heard = heard
        last_fold = self._elaborate_blocks(m, begin)
        pixels = self._elaborate_pixels(m, start)
        self._selected_pixels = pixels.pixels
        m.d.comb += [
            heard.eq(self.valid & ~self.yields),
            ends_group.eq(self._ends_pixel & (pixels.ends_group | last)),
            self._ends_fold.eq(self._ends_pixel & last),
            self._ends_job.eq(self._ends_fold & last_fold),
            self.release.eq(heard & ends_group),
            border.eq(~self.valid | self.release),
            more.eq(some & ~(self.valid & last & last_fold)),
            begin.eq(border & more & (complete != 0)),
            self._take.eq(border & ~more & (complete != 0) & self._prepared & ~self._empty),
            self._pass.eq(~self.valid & ~more & self._prepared & self._empty & (outstanding == 0)),
            start.eq(begin | self._take),
        ]
        ends = heard & self._ends_job
        for count, more_of, less_of in ((complete, self.complete, start), (outstanding, ends, self.finished)):
            with m.If(more_of ^ less_of):
                m.d.sync += count.eq(Mux(less_of, count - 1, count + 1))
        with m.If(self.finished | self._pass):
            m.d.sync += self.drained.eq(self.drained + 1)
        with m.If(border):
            m.d.sync += self.valid.eq(start)
        with m.If(self._take):
            m.d.sync += [left.eq(upcoming.pixels), some.eq(1), last.eq(self._single)]
        with m.Elif(heard & self._ends_fold):
            m.d.sync += [left.eq(job.pixels), some.eq(~last_fold), last.eq(job.pixels <= pixels.max_pixels)]
        with m.Elif(heard & self._ends_pixel):
            m.d.sync += [left.eq(left - pixels.pixels), last.eq(_is_at_most(left, pixels.pixels_with_next))]
        with m.If(self._take):
            m.d.sync += job.eq(upcoming)
        with m.If(start):
            m.d.sync += [self.select.slot.eq(following), following.eq(following + 1)]
        self._elaborate_lanes(m, following, start, pixels.one_word)
        if config.beat_words > 1:
            m.d.comb += self.note.present.eq(
                Cat((left > word) & (pixels.pixels > word) for word in range(config.beat_words))
            )

    def _has_one_word(self, job: data.View) -> Value:
        """Return the condition (a bit) that beats of sums of the job ``job`` have only one pixel."""
        return Cat(job[name] for name in ONE_WORD_FLAGS).any() if self._config.beat_words > 1 else Const(1)

    def _beat_pixels(self, one_word: Value) -> Value:
        """Return the maximum pixels per beat of sums, as a value: 1 if ``one_word``, else 1, 2 or 4."""
        return Mux(one_word, 1, self._config.beat_words) if self._config.beat_words > 1 else Const(1)

    def _elaborate_pixels(self, m: Module, start: Signal) -> _PixelSelection:
        """Add the counter of selections in a pixel group; return `_PixelSelection`: pixels per selection, group end."""
        all_pixels, words = self._config.pixels, self._config.beat_words
        one_word = Const(1)
        if words > 1:
            one_word = Signal(name="has_one_word", reset_less=True)
            with m.If(self._take):
                m.d.sync += one_word.eq(self._has_one_word(self._next))
        index = Signal(range(all_pixels), name="pixel_index", reset_less=True)
        with m.If(start):
            m.d.sync += index.eq(0)
        with m.Elif(self._heard & self._ends_pixel):
            m.d.sync += index.eq(index + 1)
        if words == 1:
            return _PixelSelection(one_word, index == all_pixels - 1, Const(1), Const(1), Const(2))
        last = -(-all_pixels // words) - 1
        rest = all_pixels - last * words
        ends_group = Signal(name="is_last_beat_of_group", reset_less=True)
        with m.If(start):
            m.d.sync += ends_group.eq(0)
        with m.Elif(self._heard & self._ends_pixel):
            m.d.sync += ends_group.eq(index == Mux(one_word, all_pixels - 2, last - 1))
        selected = Mux(one_word, 1, Mux(ends_group, rest, words))
        ends_soon = ends_group | (index == last - 1)
        with_next = Mux(one_word, 2, Mux(ends_soon, words + rest, 2 * words))
        return _PixelSelection(one_word, ends_group, self._beat_pixels(one_word), selected, with_next)

    def _elaborate_lanes(self, m: Module, following: Signal, start: Signal, one_word: Value) -> None:
        """Add the registers of the selected array lanes; lanes of neighbouring pixels are the group's stride apart."""
        pixels, words = self._config.pixels, self._config.beat_words
        next_stride, stride = self._elaborate_stride(m, following, start)

        def apart(distance: int, stride: Value) -> Value:
            """Return the distance in array lanes, modulo their number, of two pixels that are ``distance`` apart."""
            return Array(distance * lanes % pixels for lanes in (0, *STRIDES))[stride]

        step = Mux(one_word, stride, apart(words, stride)) if words > 1 else stride
        for word, lane in enumerate(self.select.lanes):
            with m.If(start):
                m.d.sync += lane.eq(apart(word, next_stride) if word else 0)
            with m.Elif(self._heard & self._ends_pixel):
                turned = Signal(signed(len(lane) + 2), name=f"wrapped_lane_{word}" if word else "wrapped_lane")
                m.d.comb += turned.eq(lane + step - pixels)
                m.d.sync += lane.eq(Mux(turned >= 0, turned, lane + step))

    def _elaborate_blocks(self, m: Module, begin: Signal) -> Signal:
        """Add the counters of blocks of 8 maps, and of folds (maps computed at once); return the last fold's flag."""
        max_blocks, job, upcoming = self._config.blocks, self._job, self._next
        left = Signal(5, name="blocks_left", reset_less=True)  # blocks of the job in this fold and all later ones
        last_fold = Signal(name="is_last_fold", reset_less=True)
        ends_fold = named(self._heard & self._ends_fold, "fold_ended")
        if max_blocks == 1:
            m.d.comb += self._ends_pixel.eq(1)
            with m.If(self._take):
                m.d.sync += [left.eq(upcoming.blocks), last_fold.eq(upcoming.blocks == 1)]
            with m.Elif(ends_fold):
                m.d.sync += [left.eq(left - 1), last_fold.eq(left == 2)]
            return last_fold
        count = Signal(range(max_blocks + 1), name="fold_blocks", reset_less=True)  # blocks of this fold
        block = Signal(range(max_blocks + 1), name="pixel_blocks_left", reset_less=True)
        following, following_count = Signal(5, name="next_blocks_left"), Signal.like(count, name="next_fold_blocks")
        width = Signal.like(count, name="most_fold_blocks")
        m.d.comb += [
            self._ends_pixel.eq(block == 1),
            width.eq(Mux(Mux(self._take, upcoming.channelwise, job.channelwise), 1, max_blocks)),
            following.eq(Mux(self._take, upcoming.blocks, left - count)),
            following_count.eq(Mux(following < width, following, width)),
        ]
        with m.If(self._take | ends_fold):
            m.d.sync += [
                left.eq(following),
                count.eq(following_count),
                block.eq(following_count),
                last_fold.eq(following <= width),
                self.select.block.eq(0),
            ]
        with m.Elif(begin | (self._heard & self._ends_pixel)):
            m.d.sync += [self.select.block.eq(0), block.eq(count)]
        with m.Elif(self._heard):
            m.d.sync += [self.select.block.eq(self.select.block + 1), block.eq(block - 1)]
        return last_fold

    def _elaborate_stride(self, m: Module, following: Signal, start: Signal) -> tuple[Value, Signal]:
        """Add a memory of each slot's stride (lanes between pixels); return strides of the next and current group."""
        m.submodules.strides = strides = ram(self._config.device, 3, self._config.slots, "lut")
        to, of = write_port(strides), read_port(strides, domain="comb")
        stride = Signal(3, name="group_stride", reset_less=True)
        m.d.comb += [to.en.eq(self.opens), to.addr.eq(self.slot), to.data.eq(self.stride), of.addr.eq(following)]
        with m.If(start):
            m.d.sync += stride.eq(of.data)
        return of.data, stride

    def _elaborate_note(self, m: Module) -> None:
        job, upcoming, note = self._job, self._next, self.note
        m.d.comb += [
            *(note[name].eq(job[name]) for name in _JOB_FIELDS),
            note.pixel_end.eq(self._ends_pixel),
            note.fold_end.eq(self._ends_fold),
            note.last.eq(self._ends_job),
        ]
        first = Signal(name="is_first_pixel", reset_less=True)  # of its fold
        with m.If(self._take | (self._heard & self._ends_fold)):
            m.d.sync += first.eq(1)
        with m.Elif(self._heard & self._ends_pixel):
            m.d.sync += first.eq(0)
        addend_plane = named(Mux(job.one_pixel, 1, job.pixels), "addend_plane")
        for name, address, base, plane, step in (
            ("address", note.address, upcoming.o_base, job.o_plane, self._selected_pixels),
            ("addend_address", note.addend, upcoming.a_base, addend_plane, ~job.one_pixel),
        ):
            # Address of the pixel's first block; without a meaning if a fold has one pixel.
            pixel = Signal(16, name=f"pixel_{name}", reset_less=True)
            fold = Signal(16, name=f"next_fold_{name}", reset_less=True)  # of the next fold's first pixel
            below, following = Signal(16, name=f"next_block_{name}"), Signal(16, name=f"next_{name}")
            m.d.comb += [below.eq(address + plane), following.eq(below)]
            with m.If(self._take):
                m.d.comb += following.eq(base)
            with m.Elif(self._ends_fold & ~first):
                m.d.comb += following.eq(fold)
            with m.Elif(self._ends_pixel & ~self._ends_fold):
                m.d.comb += following.eq(pixel + step)
            with m.If(self._take | self._heard):
                m.d.sync += address.eq(following)
            with m.If(self._take | (self._heard & self._ends_pixel)):
                m.d.sync += pixel.eq(following)
            with m.If(self._heard & first):
                m.d.sync += fold.eq(below)
        parameter = Signal(8, name="fold_parameter", reset_less=True)  # address of the fold's first block
        with m.If(self._take):
            m.d.sync += [note.parameter.eq(upcoming.p_base), parameter.eq(upcoming.p_base)]
        with m.Elif(self._heard & self._ends_pixel & ~self._ends_fold):
            m.d.sync += note.parameter.eq(parameter)
        with m.Elif(self._heard):
            m.d.sync += note.parameter.eq(note.parameter + 1)
            with m.If(self._ends_fold):
                m.d.sync += parameter.eq(note.parameter + 1)
