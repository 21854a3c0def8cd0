"""Everything between memory and the engine's buffers: the port, its three users, and the queues of parts."""

from __future__ import annotations

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, EngineConfig
from hwgen.gateware.engine.fetch import FetchUnit
from hwgen.gateware.engine.job import COUNT_BITS, Compute, Drain
from hwgen.gateware.engine.load import LoadUnit, Placement
from hwgen.gateware.engine.port import PACE_BITS, Error, MemoryPort
from hwgen.gateware.engine.reuse_buffer import map_write
from hwgen.gateware.engine.store import StoreUnit
from hwgen.gateware.engine.weight_buffer import weight_write
from hwgen.gateware.stream import join


class MemorySide(wiring.Component):
    """Fetches jobs, loads and stores; compute and drain parts go out.

    Parameters
    ----------
    config : EngineConfig
    latency : int
        Cycles from an address of the output buffer to its word.

    Members
    -------
    m_axi : Out(axi.Master)
    begin : In(1)
        For a cycle after reset: run the program.
    program_base : In(32)
        Address of the first job, a multiple of 8; looked at with ``begin``.
    pace : In(8)
        Cycles that a beat takes, at least 1.
    compute, drain : Out(stream of the part's layout)
    map_write, weight_write, parameter_write : Out(stream, always ready)
        Words for the buffers, of `map_write`, `weight_write` and `PARAMETER_LAYOUT`.
    address, word : Out, In(64)
        Of the output buffer.
    computed, drained : In(24)
        Jobs so far.
    loaded, stored : Out(24)
        Jobs so far. Words of a loaded job were given to the buffers in the cycle before, or earlier.
    jobs : Out(24)
        Jobs fetched so far.
    ended : Out(1)
        The last of them ends the program.
    error : Out(Error)
    idle : Out(1)
        Nothing is under way on the bus.
    """

    def __init__(self, config: EngineConfig, latency: int):
        self._config = config
        self._latency = latency
        super().__init__(
            {
                "m_axi": Out(axi.Master(data_bytes=config.bus_bytes)),
                "begin": In(1),
                "program_base": In(32),
                "pace": In(PACE_BITS),
                "compute": Out(stream.Signature(Compute.layout())),
                "drain": Out(stream.Signature(Drain.layout())),
                "map_write": Out(stream.Signature(map_write(config), always_ready=True)),
                "weight_write": Out(stream.Signature(weight_write(config), always_ready=True)),
                "parameter_write": Out(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "address": Out(range(config.output_words)),
                "word": In(8 * LANES),
                **{name: In(COUNT_BITS) for name in ("computed", "drained")},
                **{name: Out(COUNT_BITS) for name in ("loaded", "stored", "jobs")},
                "ended": Out(1),
                "error": Out(Error),
                "idle": Out(1),
            }
        )

    @property
    def config(self) -> EngineConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        m.submodules.port = port = MemoryPort(self.config)
        m.submodules.fetch = fetch = FetchUnit(self.config)
        m.submodules.load = load = LoadUnit(self.config)
        m.submodules.placement = placement = Placement(self.config)
        m.submodules.store = store = StoreUnit(self.config, self._latency)
        wiring.connect(m, inside=port.m_axi, outside=wiring.flipped(self.m_axi))
        for source, sink in (
            (fetch.request, port.fetch),
            (load.request, port.load),
            (store.request, port.store),
            (store.written, port.written),
            (port.answers, placement.answers),
            (placement.job, fetch.word),
            (fetch.load, load.part),
            (fetch.store, store.part),
            (fetch.compute, wiring.flipped(self.compute)),
            (fetch.drain, wiring.flipped(self.drain)),
            (placement.map_write, wiring.flipped(self.map_write)),
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
            store.word.eq(self.word),
            self.loaded.eq(placement.loaded),
            self.jobs.eq(fetch.jobs),
            self.ended.eq(fetch.ended),
            self.error.eq(port.error),
            self.idle.eq(port.idle),
        ]
        m.d.sync += self.stored.eq(self.stored + port.stored)
        return m
