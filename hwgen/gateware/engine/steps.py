"""Step sequencer of the engine: decides what the multiply-accumulate array does in each cycle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, WORD_BITS, Compute

#: Names of the loops over a pixel group's taps and channel blocks, from the innermost to the outermost.
_LOOPS = ("columns", "rows", "blocks")


def step_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a step, a cycle of the array: addresses, flags of loops that begin or end.

    Members
    -------
    job, fold, group, block, row, tap : 1 bit
        Whether this is the first step of a job, an output fold, a pixel group, a block of 8 channels, a kernel row, a
        tap.
    zero, resume : 1 bit
        In a group's first step: whether its sums start from zero, or from the sums of its slot. With neither flag, they
        continue the sums of the previous step.
    ends : 1 bit
        Whether this is the group's last step.
    complete : 1 bit
        Whether the group's sums are complete with this step, and are to be drained.
    half : 1 bit
        Whether the step has the upper four channels of the block.
    weights : step index
        Address of the step's weights in the weight buffer.
    slot : slot index
        Slot of the group's sums.
    """
    return data.StructLayout(
        {
            **dict.fromkeys(("job", "fold", "group", "block", "row", "tap", "zero", "resume", "ends", "complete"), 1),
            "half": 1,
            "weights": range(config.weight_steps),
            "slot": range(config.slots),
        }
    )


@dataclass(frozen=True, kw_only=True)
class StepSequencerConfig:
    """Configuration of the engine's step sequencer (`StepSequencer`), with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        # As measured: most of it stores two jobs, the current one and the next one, and counts their fields.
        cost.ff = 787 + counter_bits(engine.weight_steps) + 3 * counter_bits(engine.slots)
        cost.ff += 2 * WORD_BITS * Compute.CORE_WORDS * engine.has_cores
        cost.lut = 199 + counter_bits(engine.weight_steps) + 4 * counter_bits(engine.slots)
        return cost.resources

    def component(self) -> StepSequencer:
        return StepSequencer(self.engine)


class StepSequencer(ConfiguredComponent[EngineConfig]):
    """Step sequencer of the engine: issues the multiply-accumulate steps of all jobs in order, one per cycle.

    The next job waits in a register, and is prepared while the previous job is computed. A group starts when a slot is
    free for its sums. A job starts when it is loaded.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    jobs : In(stream of `Compute`)
        Compute parts of the jobs, in order.
    loaded : In(24)
        Number of loaded jobs.
    release : In(1)
        Pulse: a slot becomes free.
    next_job : Out(Compute)
        Job that is being prepared.
    walk : Out(1)
        Pulse that starts the computation of the lanes' first windows for ``next_job``, when the last fold of the
        previous job has begun.
    walked : In(1)
        Whether all first windows are known two cycles later.
    valid, step, job : Out
        Step of this cycle, and its job.
    ended : Out(1)
        Whether this is the last step of a job, or the turn of a job without steps.

    Latency and throughput
        The first step of a part follows at the earliest `FETCH` cycles after the part's transfer, and `START` cycles
        after its job counts as loaded. No cycle is lost between groups, folds, or jobs of at least `FETCH` steps. A job
        with ``walk`` starts at least `WALKED` cycles, and one more per lane, after the first step of the last fold of
        the previous job.
        There is one exception: of two groups that continue older sums, the second waits one cycle if the first has only
        one step.
    """

    #: Minimum cycles from the transfer of a job's compute part to the job's first step in the array.
    FETCH = 3
    #: Minimum cycles from the increment of the input ``loaded`` that a job waits for to the job's first step.
    START = 2
    #: Minimum cycles from the output pulse ``walk`` to the job's first step, in addition to one cycle per lane.
    WALKED = 2

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "jobs": In(stream.Signature(Compute.layout(config.variant))),
                "loaded": In(COUNT_BITS),
                "release": In(1),
                "next_job": Out(Compute.layout(config.variant)),
                "walk": Out(1),
                "walked": In(1),
                "valid": Out(1),
                "step": Out(step_layout(config)),
                "job": Out(Compute.layout(config.variant)),
                "ended": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        self._border = Signal(name="is_group_boundary")  # another group can start in the next cycle
        self._take = Signal(name="job_start")  # the prepared job starts in the next cycle
        self._begin = Signal(name="next_group_start")  # another group of this job starts in the next cycle
        self._turn = Signal(name="next_fold_start")  # that group is the first one of a fold
        prepared = self._elaborate_next(m)
        self._elaborate_starts(m, prepared)
        self._elaborate_counters(m)
        return m

    def _elaborate_next(self, m: Module) -> Signal:
        """Register the next job's compute fields and loop bounds; return a bit that the job can start."""
        prepared = Signal(name="is_next_job_ready")
        walks, self._last_fold = Signal(name="next_job_walks"), Signal(name="is_last_fold", init=1)
        vacant = Signal(name="is_next_job_vacant", init=1)
        started = Signal(COUNT_BITS, name="started_jobs")
        # Prepared job's number of blocks, whether the last block has two halves, loops with a single iteration.
        self._blocks = Signal(14, name="next_job_blocks", reset_less=True)
        self._top = Signal(name="next_job_last_half", reset_less=True)
        self._single = Signal(data.StructLayout(dict.fromkeys(_LOOPS, 1)), name="next_job_is_single", reset_less=True)
        self._one_fold = Signal(name="is_next_job_one_fold", reset_less=True)
        self._counts = Signal(data.StructLayout({"one": 1, "two": 1}), name="next_job_slots", reset_less=True)
        self._empty = Signal(name="is_next_job_empty")
        channels = Signal(17, name="padded_channels")
        groups, folds = self.next_job.groups, self.next_job.folds
        m.d.comb += [
            self.jobs.ready.eq(vacant),
            self.walk.eq(walks & self._last_fold),
            channels.eq(self.next_job.channels + LANES - 1),
        ]
        m.d.sync += [
            prepared.eq(~vacant & ~self._take & ~walks & self.walked & (self.loaded != started)),
            self._blocks.eq(channels[3:]),
            self._top.eq(channels[:3] >= CHAIN),
            self._single.columns.eq(self.next_job.kernel_columns == 1),
            self._single.rows.eq(self.next_job.kernel_rows == 1),
            self._single.blocks.eq(channels < 2 * LANES),
            self._one_fold.eq(folds == 1),
            self._counts.one.eq((groups == 1) & (folds == 1)),
            self._counts.two.eq(((groups == 1) & (folds == 2)) | ((groups == 2) & (folds == 1))),
            self._empty.eq(groups == 0),
        ]
        with m.If(self.walk):
            m.d.sync += walks.eq(0)
        with m.If(vacant):
            m.d.sync += self.next_job.eq(self.jobs.payload)
            m.d.sync += [vacant.eq(~self.jobs.valid), walks.eq(self.jobs.valid & self.jobs.payload.walk)]
        with m.Elif(self._take):
            m.d.sync += [vacant.eq(1), started.eq(started + 1)]
        return prepared

    def _elaborate_starts(self, m: Module, prepared: Signal) -> None:
        """Start pixel groups (a pixel per lane), folds and jobs; assign each group a slot for its sums."""
        config, upcoming = self._config, self.next_job
        left = Signal(8, name="groups_left")  # groups of the fold that have not started
        folds = Signal(8, name="folds_left", reset_less=True)  # folds of the job, this one included
        used = Signal(range(config.slots + 1), name="used_slots")
        following = Signal(range(config.slots), name="next_slot_index")
        opened = Signal(range(config.slots), name="first_slot_index", reset_less=True)  # of the sums in progress
        counts = Signal.like(self._counts, name="job_slots", reset_less=True)
        full, waits, start, opens = (
            Signal(name="slots_full"),
            Signal(name="waits_for_sums"),
            Signal(name="group_start"),
            Signal(name="slot_open"),
        )
        empty = self._empty
        passed, slot = Signal(name="job_skip"), Signal(range(config.slots), name="slot_index")
        alone, first, more = Signal(name="is_only_group"), Signal(name="starts_sums"), Signal(name="has_more_groups")
        m.d.comb += [
            full.eq(used[-1]),  # a power of two, and never exceeded
            # The slot does not store the sums of the second last step yet.
            waits.eq(self.valid & self.step.job & ~self.job.first & counts.two),
            more.eq((left != 0) | ~self._last_fold),
            self._begin.eq(self._border & more & ~(self.job.first & full) & ~waits),
            self._turn.eq(left == 0),
            self._take.eq(self._border & ~more & prepared & (empty | ~(upcoming.first & full))),
            start.eq(self._begin | (self._take & ~empty)),
            first.eq(Mux(self._take, upcoming.first, self.job.first)),
            opens.eq(start & first),
            slot.eq(Mux(self._take & ~upcoming.first, opened, following)),
            alone.eq(Mux(self._take, self._counts.one, counts.one)),
            self.ended.eq((self.valid & self.step.ends & ~more) | passed),
        ]
        m.d.sync += [
            passed.eq(self._take & empty),
            self.step.job.eq(self._take),
            self.step.fold.eq(self._take | (self._begin & self._turn)),
            self.step.group.eq(start),
            self.step.zero.eq(opens),
            self.step.resume.eq(start & ~first & ~alone),
        ]
        with m.If(opens ^ self.release):
            m.d.sync += used.eq(Mux(self.release, used - 1, used + 1))
        with m.If(self._border):
            m.d.sync += self.valid.eq(start)
        with m.If(start):
            m.d.sync += [self.step.slot.eq(slot), following.eq(slot + 1)]
        with m.If(self._take):
            m.d.sync += [
                self.job.eq(upcoming),
                left.eq(Mux(empty, 0, upcoming.groups - 1)),
                folds.eq(upcoming.folds),
                counts.eq(self._counts),
                self._last_fold.eq(empty | self._one_fold),
            ]
            with m.If(upcoming.first & ~empty):
                m.d.sync += opened.eq(following)
        with m.Elif(self._begin & self._turn):
            m.d.sync += [left.eq(self.job.groups - 1), folds.eq(folds - 1), self._last_fold.eq(folds == 2)]
        with m.Elif(self._begin):
            m.d.sync += left.eq(left - 1)

    def _elaborate_counters(self, m: Module) -> None:
        """Add the counters of a job's inner loops: 8-channel block, kernel row, kernel column, half block."""
        take, begin, step, job, upcoming = self._take, self._begin, self.step, self.job, self.next_job
        top = Signal(name="last_half", reset_less=True)
        weights = Signal.like(step.weights, name="fold_weights", reset_less=True)  # address of the fold's weights
        blocks = Signal.like(self._blocks, name="job_blocks")
        single = Signal.like(self._single, name="job_is_single")
        last = Signal.like(self._single, name="is_last")  # whether each loop is in its last iteration
        ends_tap, ends_row, ends_block = (
            Signal(name="is_tap_end"),
            Signal(name="is_row_end"),
            Signal(name="is_block_end"),
        )
        m.d.comb += [
            ends_tap.eq(job.channelwise | step.half | (last.blocks & ~top)),
            ends_row.eq(ends_tap & last.columns),
            ends_block.eq(ends_row & last.rows),
            step.ends.eq(ends_block & last.blocks),
            step.complete.eq(step.ends & job.last),
            self._border.eq(~self.valid | step.ends),
        ]
        m.d.sync += [
            step.tap.eq(take | begin | ends_tap),
            step.row.eq(take | begin | ends_row),
            step.block.eq(take | begin | ends_block),
            step.half.eq(~(take | begin | ends_tap)),
        ]
        with m.If(take):
            m.d.sync += [
                step.weights.eq(upcoming.w_base),
                weights.eq(upcoming.w_base),
                blocks.eq(self._blocks),
                top.eq(self._top),
                single.eq(self._single),
            ]
        with m.Elif(begin & ~self._turn):
            m.d.sync += step.weights.eq(weights)
        with m.Else():
            m.d.sync += step.weights.eq(step.weights + self.valid)
            with m.If(begin):
                m.d.sync += weights.eq(step.weights + self.valid)
        for name, ends, first, size in (
            ("columns", ends_tap, upcoming.kernel_columns, job.kernel_columns),
            ("rows", ends_row, upcoming.kernel_rows, job.kernel_rows),
            ("blocks", ends_block, self._blocks, blocks),
        ):
            left = Signal(len(size), name=f"{name}_left", reset_less=True)  # iterations, this one included
            with m.If(take):
                m.d.sync += [left.eq(first), last[name].eq(self._single[name])]
            with m.Elif(begin | (ends & last[name])):
                m.d.sync += [left.eq(size), last[name].eq(single[name])]
            with m.Elif(ends):
                m.d.sync += [left.eq(left - 1), last[name].eq(left == 2)]
