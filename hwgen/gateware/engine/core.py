"""Compute core of the engine: computes convolution sums from the pixels and weights in its buffers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Const, Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.array import Array, ArrayConfig, control_layout, sum_latency
from hwgen.gateware.engine.config import EngineConfig, numbered
from hwgen.gateware.engine.drain import DrainController, DrainControllerConfig, drain_beat_layout, note_layout
from hwgen.gateware.engine.job import COUNT_BITS, Compute, Drain
from hwgen.gateware.engine.lanes import LaneAddressing, LaneAddressingConfig
from hwgen.gateware.engine.load import fill_streams
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer, ReuseBufferConfig, bank_addresses, map_side
from hwgen.gateware.engine.steps import StepSequencer, StepSequencerConfig
from hwgen.gateware.engine.weight_buffer import WeightBuffer, WeightBufferConfig, weight_side
from hwgen.gateware.engine.writes import BankAlignmentConfig, write_buffers
from hwgen.gateware.layer import ComponentConfig
from hwgen.gateware.lookup import delayed


def core_ports(config: EngineConfig) -> dict[str, Member]:
    """Return a dict of ports of the engine's compute core component (`Core`), as Amaranth signature members by name.

    Counters count jobs modulo ``2**COUNT_BITS``. ``finished`` pulses when the last word of a job with beats is in the
    output buffer, in the order of the jobs.
    """
    beats = Out(stream.Signature(drain_beat_layout(config), always_ready=True))
    return {
        "compute": In(stream.Signature(Compute.layout(config.variant))),
        "drain": In(stream.Signature(Drain.layout(config.variant))),
        **{name: In(fill_streams(config)[name]) for name in ("map_write", "weight_write")},
        "loaded": In(COUNT_BITS),
        "stored": In(COUNT_BITS),
        "finished": In(1),
        "computed": Out(COUNT_BITS),
        "drained": Out(COUNT_BITS),
        "active": Out(1),
        **dict.fromkeys(numbered(config, "beats"), beats),
        **({"write_cores": In(config.cores)} if config.has_cores else {}),
    }


def words_latency(config: EngineConfig) -> int:
    """Return the cycles from the issue of an array step to the arrival of its input pixels at the array.

    A job counts as computed as many cycles after its last step.
    """
    return LaneAddressing.LATENCY + config.buffer_latency


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """Configuration of the compute core (`Core`) of an engine, with its components' configurations and resources."""

    engine: EngineConfig

    @cached_property
    def components(self) -> dict[str, ComponentConfig]:
        """Dictionary of the compute core's components, each a `ComponentConfig`, by instance name.

        The names of components that each core has are numbered if there are several cores. Delays are not included.
        """
        engine = self.engine
        of_core = {
            "maps": ReuseBufferConfig(engine=engine),
            "weights": WeightBufferConfig(engine=engine),
            "array": ArrayConfig(engine=engine),
        }
        sides = {"align_maps": map_side(engine), "align_weights": weight_side(engine)} if engine.has_cores else {}
        return {
            "steps": StepSequencerConfig(engine=engine),
            "lanes": LaneAddressingConfig(engine=engine),
            **{name: BankAlignmentConfig(device=engine.device, side=side) for name, side in sides.items()},
            **{number: config for name, config in of_core.items() for number in numbered(engine, name)},
            "drains": DrainControllerConfig(engine=engine),
        }

    @cached_property
    def resources(self) -> Resources:
        return sum((part.resources for part in self.components.values()), self.own)

    @cached_property
    def own(self) -> Resources:
        """`Resources` of the compute core's own logic, not its components': delay registers, a counter of jobs."""
        cost, engine = Cost(self.engine.device), self.engine
        words = words_latency(engine)
        cost.delay(engine.cores * engine.pixels, words + 1 - LaneAddressing.INSIDE_LATENCY)
        for bits, cycles in (
            (counter_bits(engine.weight_steps), words + 1 - WeightBuffer.LATENCY),
            (control_layout(engine).size, words),
            (note_layout(engine).size, Array.DRAIN_LATENCY),
        ):
            cost.delay(bits, cycles - engine.has_cores)
            cost.ff += bits * engine.cores * engine.has_cores
        if engine.has_cores:  # the rotation of addresses
            cost.lut += engine.rotation_stages * engine.pixels * counter_bits(engine.map_words)
            cost.ff += engine.rotation_stages * (engine.pixels + 2) * counter_bits(engine.map_words)
        cost.ff += words + (words - 1) + (words + sum_latency(engine) - 2) + Array.DRAIN_LATENCY + COUNT_BITS
        cost.ff += 2 * (engine.cores - 1)  # valid bits
        cost.lut += COUNT_BITS
        return cost.resources

    def component(self) -> Core:
        return Core(self.engine)


class Core(ConfiguredComponent[EngineConfig]):
    """Compute core of the engine: input map buffer, weight buffer, multiply-accumulate array, and their sequencers.

    With several cores, each has its own map buffer, weight buffer and array. They share the sequencers, so all
    compute the same steps in the same cycles.

    A job counts as computed when its last step has read the buffers, so that these words can be overwritten. A job
    counts as drained when its last word is ``finished``; a job without beats, when all jobs before it are drained.
    `hwgen.schedule.engine` predicts the cycles.

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
    write_cores : In(number of cores), only with several cores
        Cores whose buffers are written.
    loaded, stored : In(24)
        Numbers of loaded and of stored jobs.
    finished : In(1)
        Pulse: the last word of a job is in the output buffer. At most 255 jobs wait for this pulse.
    computed, drained : Out(24)
        Numbers of computed and of drained jobs.
    active : Out(1)
        Whether a step is computed, or sums are drained.
    beats : Out(stream, always ready)
        Complete sums (`drain_beat_layout`). With several cores: ``beats_0``, ``beats_1`` and so on.
    """

    def __init__(self, config: EngineConfig):
        super().__init__(config, core_ports(config))

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.steps = self._steps = steps = StepSequencer(config)
        m.submodules.lanes = self._lanes = LaneAddressing(config)
        self._maps, self._weights, self._arrays = (
            [component(config) for _ in range(config.cores)] for component in (ReuseBuffer, WeightBuffer, Array)
        )
        for name, parts in (("maps", self._maps), ("weights", self._weights), ("array", self._arrays)):
            for numbered_name, part in zip(numbered(config, name), parts, strict=True):
                m.submodules[numbered_name] = part
        m.submodules.drains = self._drains = DrainController(config)
        connect(m, flipped(self.compute), steps.jobs)
        connect(m, flipped(self.drain), self._drains.jobs)
        cores = self.write_cores if config.has_cores else Const(1)
        for name, side, write, buffers in (
            ("align_maps", map_side(config), self.map_write, self._maps),
            ("align_weights", weight_side(config), self.weight_write, self._weights),
        ):
            write_buffers(m, name, side, write, cores, [buffer.write for buffer in buffers])
        m.d.comb += steps.loaded.eq(self.loaded)
        self._elaborate_operands(m)
        self._elaborate_control(m)
        self._elaborate_drain(m)
        m.d.comb += self.active.eq(steps.valid | self._drains.valid)
        return m

    def _elaborate_operands(self, m: Module) -> None:
        """Connect step sequencer, lane addressing and both buffers to each other and to the array's operand inputs."""
        steps, lanes = self._steps, self._lanes
        words = words_latency(self._config)
        m.d.comb += [
            lanes.walk.eq(steps.walk),
            lanes.next_job.eq(steps.next_job),
            steps.walked.eq(lanes.walked),
            lanes.step.eq(steps.step),
            lanes.job.eq(steps.job),
        ]
        weight_steps = self._to_cores(m, "weight_step", steps.step.weights, words + 1 - WeightBuffer.LATENCY)
        config = self._config
        banks = bank_addresses(m, config, lanes.rest, lanes.words) if config.has_cores else []
        names = numbered(config, "inside")
        for name, maps, weights, array, step in zip(
            names, self._maps, self._weights, self._arrays, weight_steps, strict=True
        ):
            inside = delayed(m, name, getattr(lanes, name), words + 1 - LaneAddressing.INSIDE_LATENCY)
            m.d.comb += [
                maps.rest.eq(lanes.rest),
                *([] if config.has_cores else [maps.words.eq(lanes.words)]),
                *(maps.addresses[bank].eq(address) for bank, address in enumerate(banks)),
                array.words.eq(maps.o),
                array.inside.eq(inside),
                weights.step.eq(step),
                array.weights.eq(weights.o),
            ]

    def _elaborate_control(self, m: Module) -> None:
        """Delay each step's control word until its operands reach the array, and add the counter of computed jobs."""
        steps = self._steps
        words = words_latency(self._config)
        control = Signal.like(self._arrays[0].control, name="control_0")
        m.d.comb += [
            *(control[name].eq(steps.step[name]) for name in ("zero", "resume", "ends", "slot", "half")),
            *(control[name].eq(steps.job[name]) for name in ("channelwise", "maximum", "pad")),
        ]
        valids = self._to_cores(m, "step_valid", steps.valid, words, reset_less=False)
        controls = self._to_cores(m, "control", control, words)
        for array, valid, core_control in zip(self._arrays, valids, controls, strict=True):
            m.d.comb += [array.valid.eq(valid), array.control.eq(core_control)]
        ended = delayed(m, "job_end", steps.ended, words - 1, reset_less=False)
        m.d.sync += self.computed.eq(self.computed + ended)

    def _elaborate_drain(self, m: Module) -> None:
        steps, drains = self._steps, self._drains
        yields = self._arrays[0].yields  # all arrays compute the same steps
        # The drain takes two cycles from ``complete`` to its selection.
        complete = words_latency(self._config) + sum_latency(self._config) - 2
        drain_cycles = Array.DRAIN_LATENCY
        notes = self._to_cores(m, "note", drains.note, drain_cycles)
        m.d.comb += [
            drains.stored.eq(self.stored),
            drains.opens.eq(steps.valid & steps.step.zero),
            drains.slot.eq(steps.step.slot),
            drains.stride.eq(steps.job.stride),
            drains.complete.eq(
                delayed(m, "group_complete", steps.valid & steps.step.complete, complete, reset_less=False)
            ),
            drains.yields.eq(yields),
            drains.finished.eq(self.finished),
            steps.release.eq(drains.release),
            self.drained.eq(drains.drained),
        ]
        valids = self._to_cores(m, "beat_valid", drains.valid & ~yields, drain_cycles, reset_less=False)
        names = numbered(self._config, "beats")
        for name, array, note, valid in zip(names, self._arrays, notes, valids, strict=True):
            beats = getattr(self, name)
            m.d.comb += [
                array.select.eq(drains.select),
                beats.valid.eq(valid),
                beats.payload.sums.eq(array.sums),
                *(beats.payload[field].eq(note[field]) for field in note.shape().members),
            ]

    def _to_cores(self, m: Module, name: str, value: Value, cycles: int, *, reset_less: bool = True) -> list[Value]:
        """Return a list with one delayed copy of ``value`` per core, ``cycles`` registers later.

        With several cores, each has the last register for itself, so that no net has to reach the circuits of all
        cores. The attribute keeps synthesis from merging these registers.
        """
        if not self._config.has_cores:
            return [delayed(m, name, value, cycles, reset_less=reset_less)]
        shared = delayed(m, name, value, cycles - 1, reset_less=reset_less)
        copies = []
        for core in range(self._config.cores):
            copy = Signal(value.shape(), name=f"{name}_of_core_{core}", reset_less=reset_less, attrs={"keep": "true"})
            m.d.sync += copy.eq(shared)
            copies.append(copy)
        return copies
