"""Memory side of the engine: AXI memory port, fetch, load and store units, and the queues of job parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.check import JobCheck
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, EngineConfig
from hwgen.gateware.engine.fetch import FetchUnit
from hwgen.gateware.engine.job import COUNT_BITS, PARTS, WORD_BITS, Compute, Drain, job_words
from hwgen.gateware.engine.load import LoadUnit, PlacementUnit, fill_streams
from hwgen.gateware.engine.map_memory import MapMemory, MapMemoryConfig
from hwgen.gateware.engine.port import PACE, Error, MemoryPort, outstanding_bits
from hwgen.gateware.engine.store import BEATS, StoreUnit
from hwgen.gateware.stream import join

#: Measured flip-flops and LUTs of the memory side outside its memories (Yosys 0.66). Most of them store the parts of
#: jobs that units work on, compute addresses of bursts, and check jobs.
_FF, _LUT = 2788, 2550
#: Dictionary from bus width in bytes to the memory side's additional (flip-flops, LUTs): beats of half a word are
#: joined, and all words of a beat pass registers and a FIFO.
_BY_BUS_BYTES = {4: (28, 70), 8: (0, 0), 16: (277, 214), 32: (548, 358), 64: (1081, 745)}

#: Additional flip-flops and LUTs of the memory side with several cores, which choose cores and have more job fields.
_WITH_CORES = 630, 740
#: Measured flip-flops and LUTs of the map memory's load unit and its connections, without memories: a fixed part, and
#: per word of a row (Yosys 0.66).
_KEPT, _KEPT_WORD = (485, 828), (95, 57)
#: Number of 64-bit words in a job's load part that describe the feature map to load.
_KEPT_PART_WORDS = 4


@dataclass(frozen=True, kw_only=True)
class MemorySideConfig:
    """Configuration of the engine's memory side (`MemorySide`), with its FPGA resources.

    Parameters
    ----------
    engine : EngineConfig
    read_latency : int
        Cycles from an address of the output buffer to its word.

    Raises
    ------
    ConfigError
        If the latency is more than the store unit's FIFO covers.
    """

    engine: EngineConfig
    read_latency: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.read_latency <= BEATS - 3:
            raise ConfigError(f"read_latency must be from 0 to {BEATS - 3}, not {self.read_latency!r}")

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        more_ff, more_lut = _BY_BUS_BYTES[engine.bus_bytes]
        if engine.has_cores:
            cost.ff, cost.lut = _WITH_CORES
        cost.lut += _LUT + more_lut
        cost.ff += (
            _FF + more_ff + len(PARTS) * 3 * counter_bits(engine.queue) + 2 * 3 * counter_bits(engine.outstanding)
        )
        for depth, widths in (
            (engine.queue, (job_words(engine) - 1) * (WORD_BITS,)),
            (engine.outstanding, outstanding_bits(engine)),
        ):
            for width in widths:
                cost.lut_ram(width, depth)
        if not engine.has_map_memory:
            return cost.resources
        return cost.resources + self._kept_resources

    @property
    def _kept_resources(self) -> Resources:
        """`Resources` of the on-chip map memory, its load unit, and the queue of that unit's job parts."""
        cost, engine = Cost(self.engine.device), self.engine
        memory, words = MapMemoryConfig(engine=engine), engine.row_words
        cost.ff, cost.lut = (base + per_word * words for base, per_word in zip(_KEPT, _KEPT_WORD, strict=True))
        if memory.banks == 1:
            # Without a choice of banks the memory's output registers, and one of the load unit, are shift registers.
            cost.shift_register(words * WORD_BITS, 3)
        cost.ram(_KEPT_PART_WORDS * WORD_BITS, engine.queue, "lut")
        cost.ff += 3 * counter_bits(engine.queue)
        return cost.resources + memory.resources

    def component(self) -> MemorySide:
        return MemorySide(self)


class MemorySide(ConfiguredComponent[MemorySideConfig]):
    """Memory side of the engine: fetches jobs, loads operands and stores results over one AXI4 port.

    Compute and drain parts of jobs go to the core.

    Parameters
    ----------
    config : MemorySideConfig

    Members
    -------
    m_axi : Out(axi.Master)
        AXI4 master to memory.
    begin : In(1)
        Pulse after reset that starts the program.
    program_base : In(32)
        Byte address of the first job, a multiple of 8. Sampled with ``begin``.
    pace : In(PACE)
        Cycles per beat, as a fraction.
    compute, drain : Out(stream of the part's layout)
        Compute and drain parts of the jobs, in order.
    map_write, weight_write, parameter_write, addend_write : Out(stream, always ready)
        Writes to the buffers: `fill_streams` and `PARAMETER_LAYOUT`.
    address, word : Out, In(64 or more)
        Word address in the output buffer, and the word. With a bus of several words, the next words follow.
    computed, drained : In(24)
        Numbers of computed and drained jobs.
    loaded, stored : Out(24)
        Numbers of loaded and stored jobs. The words of a loaded job have been written by the previous cycle.
    write_cores : Out(number of cores), only with several cores
        Cores whose buffers are written.
    core : Out, only with several cores
        Core whose output buffer is read.
    jobs : Out(24)
        Number of fetched jobs.
    ended : Out(1)
        Whether the last fetched job ends the program.
    stuck : In(1)
        Whether the run makes no progress, which ends it with an error.
    stop : In(1)
        Request to end the run, with an error as well.
    error : Out(Error)
        First error of the run.
    idle : Out(1)
        Whether no transaction is outstanding on the bus.
    free : Out(1)
        Whether the port can grant a burst.
    """

    def __init__(self, config: MemorySideConfig):
        engine = config.engine
        cores = {"write_cores": Out(engine.cores), "core": Out(range(engine.cores))} if engine.has_cores else {}
        super().__init__(
            config,
            {
                "m_axi": Out(axi.Master(data_bytes=engine.bus_bytes)),
                "begin": In(1),
                "program_base": In(32),
                "pace": In(PACE),
                "compute": Out(stream.Signature(Compute.layout(engine.variant))),
                "drain": Out(stream.Signature(Drain.layout(engine.variant))),
                **{name: Out(signature) for name, signature in fill_streams(engine).items()},
                "parameter_write": Out(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                **cores,
                "address": Out(range(engine.output_words)),
                "word": In(8 * LANES * engine.bus_words),
                **{name: In(COUNT_BITS) for name in ("computed", "drained")},
                **{name: Out(COUNT_BITS) for name in ("loaded", "stored", "jobs")},
                "ended": Out(1),
                "stuck": In(1),
                "stop": In(1),
                "error": Out(Error),
                "idle": Out(1),
                "free": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        engine = self.config.engine
        m.submodules.port = port = MemoryPort(engine)
        m.submodules.fetch = fetch = FetchUnit(engine)
        m.submodules.check = check = JobCheck(engine)
        m.submodules.load = load = LoadUnit(engine, has_other=engine.has_map_memory)
        m.submodules.placement = placement = PlacementUnit(engine)
        m.submodules.store = store = StoreUnit(engine, self.config.read_latency)
        wiring.connect(m, inside=port.m_axi, outside=wiring.flipped(self.m_axi))
        kept = _MapMemoryPath(m, engine, fetch, load, store, placement, port) if engine.has_map_memory else None
        for source, sink in (
            (fetch.request, port.fetch),
            (load.request, port.load),
            (store.request, kept.store if kept else port.store),
            (store.written, kept.written if kept else port.written),
            (port.answers, placement.answers),
            (placement.job, fetch.word),
            (fetch.load, kept.part if kept else load.part),
            (fetch.store, store.part),
            (fetch.compute, wiring.flipped(self.compute)),
            (fetch.drain, wiring.flipped(self.drain)),
            *(
                (getattr(kept or placement, name), wiring.flipped(getattr(self, name)))
                for name in fill_streams(engine)
                if name != "weight_write"
            ),
            (placement.weight_write, wiring.flipped(self.weight_write)),
            (placement.parameter_write, wiring.flipped(self.parameter_write)),
        ):
            join(m, source=source, sink=sink)
        m.d.comb += [
            fetch.begin.eq(self.begin),
            fetch.program_base.eq(self.program_base),
            port.pace.eq(self.pace),
            load.computed.eq(self.computed),
            load.stored.eq(self.stored),
            store.drained.eq(self.drained),
            self.address.eq(store.address),
            *([self.write_cores.eq(placement.cores), self.core.eq(store.core)] if engine.has_cores else []),
            store.word.eq(self.word),
            self.loaded.eq(kept.loaded if kept else placement.loaded),
            self.jobs.eq(fetch.jobs),
            self.ended.eq(fetch.ended),
            check.word.valid.eq(placement.job.valid),
            check.word.payload.eq(placement.job.payload),
            port.fault.eq(check.fault),
            self.error.eq(port.error),
            self.idle.eq(port.idle & kept.idle if kept else port.idle),
            self.free.eq(port.free),
        ]
        with m.If(self.stuck):
            m.d.comb += port.fault.eq(Error.STUCK)
        with m.Elif(self.stop):
            m.d.comb += port.fault.eq(Error.STOPPED)
        if kept:
            kept.connect_counts(m, self)
        with m.If(port.stored | kept.stored if kept else port.stored):
            m.d.sync += self.stored.eq(self.stored + 1)
        return m


class _MapMemoryPath:
    """On-chip map memory and its load unit, connected to the other units of the engine's memory side.

    Every load part goes to both load units. The unit of the map memory loads a box of kept maps; the other unit loads
    everything else. A job counts as loaded when both units have loaded their share.

    Attributes
    ----------
    part : stream of Load
        Parts for the load unit of the memory port.
    store, written : streams
        Write bursts of the store unit, and their words.
    map_write, addend_write : streams
        Writes of both load units.
    loaded : Signal
        Number of jobs that both units have loaded.
    stored : Signal
        Pulse of a job that is stored in the map memory.
    idle : Signal
        Whether the map memory has nothing to do.
    """

    def __init__(
        self,
        m: Module,
        engine: EngineConfig,
        fetch: FetchUnit,
        load: LoadUnit,
        store: StoreUnit,
        placement: PlacementUnit,
        port: MemoryPort,
    ) -> None:
        m.submodules.map_memory = kept = MapMemoryConfig(engine=engine).component()
        m.submodules.load_kept = load_kept = LoadUnit(engine.row_engine, has_other=True)
        m.submodules.placement_kept = placement_kept = PlacementUnit(engine.row_engine)
        join(m, source=load_kept.request, sink=kept.load)
        join(m, source=kept.answers, sink=placement_kept.answers)
        self._load_unit, self._store_unit = load_kept, store
        self.stored, self.idle = kept.stored, kept.idle
        self._elaborate_parts(m, fetch, load, load_kept)
        self._elaborate_stores(m, store, port, kept)
        self._elaborate_writes(m, placement, placement_kept)
        counts = placement.loaded, placement_kept.loaded
        m.d.comb += [load.others_loaded.eq(counts[1]), load_kept.others_loaded.eq(counts[0])]
        self.loaded = Signal(COUNT_BITS, name="loaded_by_both")
        with m.If(Cat(count != self.loaded for count in counts).all()):
            m.d.sync += self.loaded.eq(self.loaded + 1)

    def _elaborate_parts(self, m: Module, fetch: FetchUnit, load: LoadUnit, load_kept: LoadUnit) -> None:
        """Pass the load parts of jobs to both load units, each with only the maps in its own memory."""
        self.part = wiring.flipped(fetch.load.signature.create(path=("load_part",)))
        for source, unit in ((self.part, load), (fetch.load_kept, load_kept)):
            part = unit.part.payload
            m.d.comb += [part.eq(source.payload), unit.part.valid.eq(source.valid), source.ready.eq(unit.part.ready)]
            has_box = source.payload.x_kept if unit is load_kept else ~source.payload.x_kept
            m.d.comb += part.x_blocks.eq(source.payload.x_blocks & has_box.replicate(len(part.x_blocks)))
        m.d.comb += [load_kept.part.payload[name].eq(0) for name in ("w_steps", "p_words")]

    def _elaborate_stores(self, m: Module, store: StoreUnit, port: MemoryPort, kept: MapMemory) -> None:
        """Connect the store unit's bursts and words to the memory port or the map memory, as it selects."""
        self.store, self.written = (
            wiring.flipped(source.signature.create(path=(f"to_memory_{name}",)))
            for name, source in (("store", store.request), ("written", store.written))
        )
        for source, at_port, at_kept in (
            (self.store, port.store, kept.store),
            (self.written, port.written, kept.written),
        ):
            m.d.comb += [
                at_port.payload.eq(source.payload),
                at_kept.payload.eq(source.payload),
                at_port.valid.eq(source.valid & ~store.to_map_memory),
                at_kept.valid.eq(source.valid & store.to_map_memory),
                source.ready.eq(Mux(store.to_map_memory, at_kept.ready, at_port.ready)),
            ]

    def _elaborate_writes(self, m: Module, placement: PlacementUnit, placement_kept: PlacementUnit) -> None:
        """Merge both load units' buffer writes, which never go to the same buffer in the same cycle.

        A beat of the port has the first lanes of a row. The lowest bits of an address in the addend buffer are a bank.
        """
        self.map_write, self.addend_write = (
            getattr(placement_kept, name).signature.create(path=(f"joined_{name}",))
            for name in ("map_write", "addend_write")
        )
        for name, joined in (("map_write", self.map_write), ("addend_write", self.addend_write)):
            source, from_kept = getattr(placement, name), getattr(placement_kept, name)
            beat, row, kept_row = source.payload, joined.payload, from_kept.payload
            use_kept = from_kept.valid
            m.d.comb += [
                joined.valid.eq(source.valid | use_kept),
                Cat(row.bank, row.word).eq(Mux(use_kept, Cat(kept_row.bank, kept_row.word), Cat(beat.bank, beat.word))),
                row.present.eq(Mux(use_kept, kept_row.present, beat.present)),
            ]
            for lane in range(len(row.present)):
                word = kept_row.data[lane]
                if lane < len(beat.present):
                    word = Mux(use_kept, word, beat.data[lane])
                m.d.comb += row.data[lane].eq(word)

    def connect_counts(self, m: Module, memory_side: MemorySide) -> None:
        """Connect the counts of finished jobs that the map memory's load unit and the store unit wait for."""
        load, store = self._load_unit, self._store_unit
        m.d.comb += [load.computed.eq(memory_side.computed), load.stored.eq(memory_side.stored)]
        m.d.comb += store.stored.eq(memory_side.stored)
