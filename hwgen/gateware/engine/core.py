"""Compute core of the engine: computes complete sums (accumulators) from the words in the input and weight buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.array import Array, ArrayConfig, control_layout
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.drain import NOTE, DrainWalk, DrainWalkConfig, drain_beat
from hwgen.gateware.engine.job import COUNT_BITS, Compute, Drain
from hwgen.gateware.engine.lanes import Lanes, LanesConfig
from hwgen.gateware.engine.load import fills
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer, ReuseBufferConfig
from hwgen.gateware.engine.steps import Steps, StepsConfig
from hwgen.gateware.engine.weight_buffer import WeightBuffer, WeightBufferConfig
from hwgen.gateware.layer import ComponentConfig
from hwgen.gateware.lookup import delayed


def core_ports(config: EngineConfig) -> dict[str, Member]:
    """Return a mapping from the name of each port of the engine's compute core to its Amaranth signature member.

    Counters count jobs modulo ``2**COUNT_BITS``. ``finished`` pulses when the last word of a job with beats is in the
    output buffer, in the order of the jobs.
    """
    return {
        "compute": In(stream.Signature(Compute.layout())),
        "drain": In(stream.Signature(Drain.layout())),
        **{name: In(signature) for name, signature in fills(config).items()},
        "loaded": In(COUNT_BITS),
        "stored": In(COUNT_BITS),
        "finished": In(1),
        "computed": Out(COUNT_BITS),
        "drained": Out(COUNT_BITS),
        "active": Out(1),
        "beats": Out(stream.Signature(drain_beat(config), always_ready=True)),
    }


def words_latency(config: EngineConfig) -> int:
    """Return the number of cycles from the issue of an array step to the arrival of its input words at the array.

    From a job's last step to its count as computed, it takes as many cycles.
    """
    return Lanes.LATENCY + config.buffer_latency


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """Configuration of the compute core of ``engine``, with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def components(self) -> dict[str, ComponentConfig]:
        """Mapping from the name of each component of the compute core to its configuration, without the delays."""
        configs = {
            "steps": StepsConfig,
            "lanes": LanesConfig,
            "maps": ReuseBufferConfig,
            "weights": WeightBufferConfig,
            "array": ArrayConfig,
            "drains": DrainWalkConfig,
        }
        return {name: config(engine=self.engine) for name, config in configs.items()}

    @cached_property
    def resources(self) -> Resources:
        return sum((part.resources for part in self.components.values()), self.own)

    @cached_property
    def own(self) -> Resources:
        """FPGA resources of the compute core outside of its components: delays, and the count of computed jobs."""
        cost, engine = Cost(), self.engine
        words = words_latency(engine)
        cost.delay(engine.pixels, words + 1 - Lanes.INSIDE_LATENCY)
        cost.delay(counter_bits(engine.weight_steps), words + 1 - WeightBuffer.LATENCY)
        cost.delay(control_layout(engine).size, words)
        cost.delay(NOTE.size, Array.DRAIN_LATENCY)
        cost.ff += words + (words - 1) + (words + Array.SUM_LATENCY - 2) + Array.DRAIN_LATENCY + COUNT_BITS
        cost.lut += COUNT_BITS
        return cost.resources

    def component(self) -> Core:
        return Core(self.engine)


class Core(ConfiguredComponent[EngineConfig]):
    """Compute core of the engine: map buffer, weight buffer, lane addressing, array and drain, with their sequencers.

    A job counts as computed when its last step has read the buffers, so that these words can be overwritten. A job
    counts as drained when its last word is ``finished``; a job without beats, when all jobs before it are drained.
    `hwgen.schedule.engine_core` predicts the cycles.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    compute, drain : In(stream of `Compute` and of `Drain`)
        Compute and drain parts of the jobs, in order.
    map_write, weight_write : In(stream, always ready)
        Writes of the words of a bus beat into the buffers. The last word of a job can be written one cycle before the
        job counts as loaded.
    loaded, stored : In(24)
        Numbers of loaded and of stored jobs.
    finished : In(1)
        Pulse: the last word of a job is in the output buffer. At most 255 jobs wait for this pulse.
    computed, drained : Out(24)
        Numbers of computed and of drained jobs.
    active : Out(1)
        Whether a step is computed, or sums are drained.
    beats : Out(stream, always ready)
        Complete sums (`drain_beat`).
    """

    def __init__(self, config: EngineConfig):
        super().__init__(config, core_ports(config))

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.steps = self._steps = steps = Steps(config)
        m.submodules.lanes = self._lanes = Lanes(config)
        m.submodules.maps = self._maps = ReuseBuffer(config)
        m.submodules.weights = self._weights = WeightBuffer(config)
        m.submodules.array = self._array = Array(config)
        m.submodules.drains = self._drains = DrainWalk(config)
        connect(m, flipped(self.compute), steps.jobs)
        connect(m, flipped(self.drain), self._drains.jobs)
        for name in fills(config):
            buffer = self._maps if name.startswith("map") else self._weights
            connect(m, flipped(getattr(self, name)), buffer.write)
        m.d.comb += steps.loaded.eq(self.loaded)
        self._elaborate_operands(m)
        self._elaborate_control(m)
        self._elaborate_drain(m)
        m.d.comb += self.active.eq(steps.valid | self._drains.valid)
        return m

    def _elaborate_operands(self, m: Module) -> None:
        """Connect step sequencer, lane addressing, map buffer and weight buffer to the array's operand inputs."""
        steps, lanes, maps, array = self._steps, self._lanes, self._maps, self._array
        words = words_latency(self._config)
        m.d.comb += [
            lanes.walk.eq(steps.walk),
            lanes.next_job.eq(steps.next_job),
            steps.walked.eq(lanes.walked),
            lanes.step.eq(steps.step),
            lanes.job.eq(steps.job),
            maps.rest.eq(lanes.rest),
            maps.words.eq(lanes.words),
            array.words.eq(maps.o),
            array.inside.eq(delayed(m, "inside", lanes.inside, words + 1 - Lanes.INSIDE_LATENCY)),
            self._weights.step.eq(delayed(m, "weight_step", steps.step.weights, words + 1 - WeightBuffer.LATENCY)),
            array.weights.eq(self._weights.o),
        ]

    def _elaborate_control(self, m: Module) -> None:
        """Delay each step's control word until its operands reach the array, and count computed jobs."""
        steps, array = self._steps, self._array
        words = words_latency(self._config)
        control = Signal.like(array.control, name="control_0")
        m.d.comb += [
            *(control[name].eq(steps.step[name]) for name in ("zero", "resume", "ends", "slot", "half")),
            *(control[name].eq(steps.job[name]) for name in ("channelwise", "maximum", "pad")),
            array.valid.eq(delayed(m, "step_valid", steps.valid, words, reset_less=False)),
            array.control.eq(delayed(m, "control", control, words)),
        ]
        ended = delayed(m, "job_end", steps.ended, words - 1, reset_less=False)
        m.d.sync += self.computed.eq(self.computed + ended)

    def _elaborate_drain(self, m: Module) -> None:
        steps, array, drains = self._steps, self._array, self._drains
        # The drain takes two cycles from ``complete`` to its selection.
        complete = words_latency(self._config) + Array.SUM_LATENCY - 2
        drain_cycles = Array.DRAIN_LATENCY
        note = delayed(m, "note", drains.note, drain_cycles)
        m.d.comb += [
            drains.stored.eq(self.stored),
            drains.opens.eq(steps.valid & steps.step.zero),
            drains.slot.eq(steps.step.slot),
            drains.stride.eq(steps.job.stride),
            drains.complete.eq(
                delayed(m, "group_complete", steps.valid & steps.step.complete, complete, reset_less=False)
            ),
            drains.yields.eq(array.yields),
            drains.finished.eq(self.finished),
            steps.release.eq(drains.release),
            array.select.eq(drains.select),
            self.drained.eq(drains.drained),
            self.beats.valid.eq(delayed(m, "beat_valid", drains.valid & ~array.yields, drain_cycles, reset_less=False)),
            self.beats.payload.sums.eq(array.sums),
            *(self.beats.payload[name].eq(note[name]) for name in note.shape().members),
        ]
