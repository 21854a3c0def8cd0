"""Programmable engine: a circuit that computes neural networks by running programs from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.bursts import ADDRESS_BITS
from hwgen.gateware.engine.config import EngineConfig, numbered
from hwgen.gateware.engine.core import Core, CoreConfig
from hwgen.gateware.engine.finish import Finish, FinishConfig
from hwgen.gateware.engine.job import COUNT_BITS
from hwgen.gateware.engine.memory_side import MemorySide, MemorySideConfig
from hwgen.gateware.engine.output_words import OutputWordsConfig, read_latency
from hwgen.gateware.engine.port import PACE, Error
from hwgen.gateware.engine.writes import BankAlignmentConfig, addend_side, write_buffers
from hwgen.gateware.layer import ComponentConfig
from hwgen.gateware.stream import join

#: Cycles from the input ``start`` to the first cycle of a program's run, and from the end of its last job to ``done``.
START_CYCLES, DONE_CYCLES = 2, 1
#: Cycles without progress after which the engine ends a run as stuck; a valid program never pauses for so long.
STUCK_CYCLES = 4096


@dataclass(frozen=True, kw_only=True)
class EngineDesign:
    """Design of a programmable engine, with the interface of an accelerator's design: components and resources."""

    engine: EngineConfig

    name = "engine"
    #: Empty tuples of input streams and of their frame guards: the engine reads its inputs from memory.
    input_ports = guards = ()
    #: Circuit that loads weights at run time: ``None``, because the engine's programs contain the weights.
    loader = None
    _TITLES: ClassVar[Mapping[str, str]] = {
        "memory_side": "memory side",
        "steps": "steps",
        "lanes": "lanes",
        "maps": "map buffer",
        "weights": "weight buffer",
        "array": "array",
        "drains": "drain",
        "finish": "finish",
        "align_maps": "alignment of maps",
        "align_weights": "alignment of weights",
        "align_addends": "alignment of added maps",
        "output_words": "output words",
    }

    @property
    def titles(self) -> Mapping[str, str]:
        """Mapping from a component's instance name to its title in reports, for all of the engine's components."""
        numbers = [f" {core}" for core in range(self.engine.cores)] if self.engine.has_cores else [""]
        return {
            name: title + (number if name not in self._TITLES else "")
            for key, title in self._TITLES.items()
            for names in [numbered(self.engine, key)]
            for name, number in [(key, ""), *zip(names, numbers, strict=True)]
        }

    @property
    def memory_side(self) -> MemorySideConfig:
        """`MemorySideConfig` of the engine: AXI port, and units that fetch jobs, load and store data."""
        return MemorySideConfig(engine=self.engine, read_latency=read_latency(self.engine))

    @property
    def core(self) -> CoreConfig:
        """`CoreConfig` of the engine's compute core: buffers, multiply-accumulate array, and sequencers."""
        return CoreConfig(engine=self.engine)

    @property
    def finish(self) -> FinishConfig:
        """`FinishConfig` of the engine's output pipeline (`Finish`), which turns sums into stored 8-bit outputs."""
        return FinishConfig(engine=self.engine)

    @cached_property
    def components(self) -> dict[str, ComponentConfig]:
        """Dictionary of the engine's components, each a `ComponentConfig`, by instance name.

        Each component is small enough to be synthesised separately.
        """
        finishes = dict.fromkeys(numbered(self.engine, "finish"), self.finish)
        shared: dict[str, ComponentConfig] = {}
        if self.engine.has_cores:
            shared["align_addends"] = BankAlignmentConfig(device=self.engine.device, side=addend_side(self.engine))
            shared["output_words"] = OutputWordsConfig(engine=self.engine)
        return {"memory_side": self.memory_side, **self.core.components, **finishes, **shared}

    @property
    def layers(self) -> tuple[EngineDesign, ...]:
        """Tuple of this design only, as an engine counts as one layer where an accelerator has a tuple of layers."""
        return (self,)

    @cached_property
    def resources(self) -> Resources:
        """`Resources` of the whole engine: all components, and the logic between them."""
        return sum((part.resources for part in self.components.values()), self.own)

    @property
    def own(self) -> Resources:
        """`Resources` of the engine's own logic, not its components': program address, watchdog, comparisons."""
        cost = Cost(self.engine.device)
        cost.ff += ADDRESS_BITS + counter_bits(STUCK_CYCLES) + 6
        cost.lut += 4 * COUNT_BITS // 2 + counter_bits(STUCK_CYCLES) + 10
        return self.core.own + cost.resources

    def component(self) -> Engine:
        return Engine(self.engine)


class Engine(ConfiguredComponent[EngineConfig]):
    """Programmable engine, which runs a program of jobs from memory: memory side, compute cores, output pipelines.

    See docs/reference/engine.md.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    m_axi : Out(axi.Master)
        AXI4 master to memory, ``bus_bytes`` wide.
    start : In(1)
        Pulse that starts the program. Ignored while a program runs.
    stop : In(1)
        Pulse that ends the run: outstanding transactions complete, and no new ones start. Without a run, no effect.
    program_base : In(32)
        Byte address of the first job, a multiple of 8. Sampled with ``start``.
    pace : In(PACE)
        Cycles per memory beat, as a fraction. Sampled while a program runs.
    done : Out(1)
        High from the end of a run to the next ``start``.
    error : Out(Error)
        Reason why the run ended, valid with ``done``.

    Latency and throughput
        ``hwgen.schedule.engine.EngineSchedule`` predicts the cycles of a program from ``begin``, which is
        `START_CYCLES` after ``start``, to the last count. ``done`` follows `DONE_CYCLES` later.

    Each ``start`` resets everything except the contents of the buffers, so that a run never depends on an earlier run.
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "m_axi": Out(axi.Master(data_bytes=config.bus_bytes)),
                "start": In(1),
                "stop": In(1),
                "program_base": In(32),
                "pace": In(PACE),
                "done": Out(1),
                "error": Out(Error),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        memory_side = EngineDesign(engine=config).memory_side.component()
        core, finishes = Core(config), [FinishConfig(engine=config).component() for _ in range(config.cores)]
        clear, begin = Signal(name="run_reset"), Signal(name="run_begin")
        for name, part in (
            ("memory_side", memory_side),
            ("core", core),
            *zip(numbered(config, "finish"), finishes, strict=True),
        ):
            m.submodules[name] = ResetInserter(clear)(part)
        wiring.connect(m, inside=memory_side.m_axi, outside=wiring.flipped(self.m_axi))
        for source, sink in (
            (memory_side.compute, core.compute),
            (memory_side.drain, core.drain),
            (memory_side.map_write, core.map_write),
            (memory_side.weight_write, core.weight_write),
            *zip(map(core.__getattribute__, numbered(config, "beats")), (part.beats for part in finishes), strict=True),
        ):
            join(m, source=source, sink=sink)
        self._elaborate_finishes(m, memory_side, finishes)
        m.d.comb += [
            memory_side.begin.eq(begin),
            memory_side.pace.eq(self.pace),
            memory_side.computed.eq(core.computed),
            memory_side.drained.eq(core.drained),
            *([core.write_cores.eq(memory_side.write_cores)] if config.has_cores else []),
            core.loaded.eq(memory_side.loaded),
            core.stored.eq(memory_side.stored),
            core.finished.eq(finishes[0].finished),  # all cores drain the same sums in the same cycles
            self.error.eq(memory_side.error),
        ]
        runs = self._elaborate_run(m, memory_side, clear, begin)
        m.d.comb += memory_side.stop.eq(self.stop & runs)
        self._elaborate_watch(m, memory_side, core, runs)
        return m

    def _elaborate_finishes(self, m: Module, memory_side: MemorySide, finishes: list[Finish]) -> None:
        """Connect the cores' output pipelines to the memory side: parameters, added maps, and output words."""
        config = self.config
        cores = memory_side.write_cores if config.has_cores else Const(1)
        addends = [finish.addends for finish in finishes]
        write_buffers(m, "align_addends", addend_side(config), memory_side.addend_write, cores, addends)
        write = memory_side.parameter_write
        for core, finish in enumerate(finishes):
            sink = finish.parameters
            m.d.comb += [sink.valid.eq(write.valid & cores[core]), sink.payload.eq(write.payload)]
        if not config.has_cores:
            m.d.comb += [finishes[0].address.eq(memory_side.address), memory_side.word.eq(finishes[0].data)]
            return
        m.submodules.output_words = output = OutputWordsConfig(engine=config).component()
        m.d.comb += [output.address.eq(memory_side.address), output.core.eq(memory_side.core)]
        for core, finish in enumerate(finishes):
            m.d.comb += [finish.rows.eq(output.rows), getattr(output, f"words_{core}").eq(finish.data)]
        m.d.comb += memory_side.word.eq(output.word)

    def _elaborate_run(self, m: Module, memory_side: MemorySide, clear: Signal, begin: Signal) -> Value:
        """Add the state machine of a program's run: reset, begin, wait for all jobs; return whether a run is active."""
        counts = (memory_side.loaded, memory_side.computed, memory_side.drained, memory_side.stored)
        ended, complete = Signal(name="all_jobs_done"), Signal(name="is_run_complete")
        base = Signal.like(self.program_base, name="held_program_base")
        m.d.comb += [
            memory_side.program_base.eq(base),
            ended.eq(memory_side.ended & Cat(count == memory_side.jobs for count in counts).all()),
            complete.eq(memory_side.idle & (ended | (self.error != Error.NONE))),
        ]
        m.d.sync += [clear.eq(0), begin.eq(clear)]
        with m.FSM() as fsm:
            with m.State("WAIT"), m.If(self.start):
                m.d.sync += [clear.eq(1), base.eq(self.program_base), self.done.eq(0)]
                m.next = "CLEAR"
            with m.State("CLEAR"):
                m.next = "RUN"
            with m.State("RUN"), m.If(complete):
                m.d.sync += self.done.eq(1)
                m.next = "WAIT"
        return fsm.ongoing("RUN")

    def _elaborate_watch(self, m: Module, memory_side: MemorySide, core: Core, runs: Value) -> None:
        """Add the watchdog that reports a stuck run: no request, step or drain for `STUCK_CYCLES` cycles.

        Cycles with an outstanding memory transaction do not count.
        """
        quiet, moves = Signal(range(STUCK_CYCLES), name="quiet_cycles"), Signal(name="progress")
        m.d.sync += [
            moves.eq(~runs | ~memory_side.idle | ~memory_side.free | core.active),
            quiet.eq(Mux(moves, 0, quiet + 1)),
        ]
        m.d.comb += memory_side.stuck.eq(quiet == STUCK_CYCLES - 1)
