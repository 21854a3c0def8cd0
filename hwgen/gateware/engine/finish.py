"""The engine behind its array: complete sums become words in the output buffer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.add import TABLE_WRITE, TABLES, WHOLE_BITS, TableAdd, TableAddConfig, table
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.drain import drain_beat
from hwgen.gateware.engine.pool import ADDRESS_BITS, COLUMN_BITS, Pool, PoolConfig
from hwgen.gateware.engine.requantise import Bound, BoundConfig, Scale, ScaleConfig
from hwgen.gateware.lookup import delayed, delayed_fast, place, ram_attributes
from hwgen.gateware.requantise import SIGNIFICAND_BITS

#: The activation table follows those of additions.
ACTIVATION = len(TABLES)
#: Cycles of its lookup.
_ACTIVATION_CYCLES = 2
#: Bits of a parameter word that are the bias; the others are significand and shift.
_HALF = 32


@dataclass(frozen=True, kw_only=True)
class FinishConfig:
    """What stands between the array of ``engine`` and its store unit."""

    engine: EngineConfig

    #: Cycles from an address of the output buffer to its word.
    read_latency = 2

    @property
    def scale(self) -> ScaleConfig:
        return ScaleConfig(sum_bits=self.engine.sum_bits)

    @property
    def bound(self) -> BoundConfig:
        return BoundConfig(bits=WHOLE_BITS)

    @property
    def add(self) -> TableAddConfig:
        return TableAddConfig()

    @property
    def pool(self) -> PoolConfig:
        return PoolConfig(words=self.engine.pool_words, blocks=self.engine.blocks)

    @property
    def parameter_cycles(self) -> int:
        """From the place of a parameter to the parameter: one more out of block RAM."""
        return 1 if place(self.engine.parameter_words) == "lut" else 2

    @property
    def _bounded(self) -> int:
        """Cycles from a beat to its outputs, before they are looked up."""
        return self.parameter_cycles + self.scale.latency + self.bound.latency

    @property
    def latency(self) -> int:
        """Cycles from a beat to the first one in which its word can be read, and in which ``finished`` is high."""
        return self._bounded + _ACTIVATION_CYCLES + self.pool.latency + 1

    @cached_property
    def resources(self) -> Resources:
        parts = sum((each.resources for each in (self.add, self.pool, *LANES * (self.scale, self.bound))), Resources())
        return parts + self._own

    @property
    def _own(self) -> Resources:
        """Without what `Scale`, `Bound`, `TableAdd` and `Pool` take."""
        cost, engine, word = Cost(), self.engine, LANES * 8
        for _ in range(2 * LANES):
            cost.ram(_HALF, engine.parameter_words)
            cost.ff += _HALF * (self.parameter_cycles - 1)
        for _ in range(LANES):
            cost.ram(8, TABLE_WORDS, "block")
        cost.ram(word, engine.output_words, "block")
        cost.ff += PARAMETER_LAYOUT.size + 1 + self.latency  # what is written, and what is valid
        cost.ff += LANES * engine.sum_bits * self.parameter_cycles
        # Operands of additions, words before and beside their lookup, and the word that is read.
        cost.delay(word, self._bounded - self.bound.latency - self.add.latency)
        cost.ff += word * (1 + 1 + _ACTIVATION_CYCLES + 1)
        cost.delay(counter_bits(engine.parameter_words), self.scale.scale_cycle)
        cost.delay(4 * 8 + ADDRESS_BITS + COLUMN_BITS, self._bounded)
        cost.lut += word + 2 * LANES  # the choice behind the lookup, and of what is written
        return cost.resources

    def component(self) -> Finish:
        return Finish(self)


class Finish(wiring.Component):
    """Requantises sums, or adds them in pairs by tables; looks outputs up; pools them; and keeps their words.

    Parameters
    ----------
    config : FinishConfig

    Members
    -------
    beats : In(stream, always ready)
        Of the core.
    parameters : In(stream, always ready)
        Parameters and tables, a word each. A beat may need them from the second cycle after on; none that beats in
        flight need may be overwritten.
    finished : Out
        High for a cycle when the words of a job's beats up to the ``last`` are in the buffer.
    address : In
        Of a word in the output buffer.
    data : Out
        The word, ``config.read_latency`` cycles later. That of lane 0 is the lowest byte.

    Latency and throughput
        A beat a cycle; its word is in the buffer ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: FinishConfig):
        self._config = config
        super().__init__(
            {
                "beats": In(stream.Signature(drain_beat(config.engine), always_ready=True)),
                "parameters": In(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "finished": Out(1),
                "address": In(range(config.engine.output_words)),
                "data": Out(LANES * 8),
            }
        )

    @property
    def config(self) -> FinishConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beats.payload
        scale, add, bound, pool = config.scale, config.add, config.bound, config.pool
        scaled = config.parameter_cycles + scale.latency
        bounded = scaled + bound.latency
        looked_up = bounded + _ACTIVATION_CYCLES
        write = self._elaborate_writes(m)

        valid = self.beats.valid & (~beat.add | beat.second)
        m.submodules.add = sums = TableAdd(add)
        self._elaborate_operands(m, sums, scaled - add.latency)
        adding = delayed(m, "adding", beat.add, scaled)
        zero_point = delayed(m, "zero_point", beat.zero_point, scaled)
        low, high = (delayed(m, name, beat[name], scaled + bound.bounds_cycle) for name in ("low", "high"))
        outputs = []
        for lane in range(LANES):
            m.submodules[f"scale_{lane}"] = part = Scale(scale)
            self._elaborate_parameters(m, lane, part, write)
            m.submodules[f"bound_{lane}"] = last = Bound(bound)
            m.d.comb += [
                last.whole.eq(Mux(adding, sums.whole[lane], part.whole)),
                last.carry.eq(Mux(adding, sums.carry[lane], part.carry)),
                last.zero_point.eq(zero_point),
                last.low.eq(low),
                last.high.eq(high),
            ]
            outputs.append(last.o)
        tables = stream.Signature(TABLE_WRITE, always_ready=True).create()
        m.d.comb += [
            tables.valid.eq(write.valid & write.payload.tables),
            tables.payload.index.eq(write.payload.index),
            tables.payload.data.eq(write.payload.data),
            sums.write.valid.eq(tables.valid),
            sums.write.payload.eq(tables.payload),
        ]
        looking = delayed(m, "looking", beat.table, looked_up)
        m.submodules.pool = pooled = Pool(pool)
        for lane, value in enumerate(outputs):
            found = table(m, f"activation_{lane}", tables, ACTIVATION, signed(8), value.as_unsigned())
            late = delayed(m, f"output_{lane}", value, _ACTIVATION_CYCLES)
            m.d.comb += pooled.i.payload.data[lane].eq(Mux(looking, found, late))
        m.d.comb += [
            pooled.i.valid.eq(delayed(m, "valid", valid, looked_up, reset_less=False)),
            pooled.i.payload.address.eq(delayed(m, "address", beat.address, looked_up)),
            *(
                getattr(pooled, name).eq(delayed_fast(m, name, beat[name], looked_up))
                for name in ("pool", "columns", "pixel_end", "last")
            ),
        ]
        self._elaborate_buffer(m, pooled)
        ended = delayed(m, "ended", pooled.i.valid & pooled.last, pool.latency + 1, reset_less=False)
        m.d.comb += self.finished.eq(ended)
        return m

    def _elaborate_writes(self, m: Module) -> Any:
        """Parameters and tables, a cycle late, as they go to many memories."""
        write = stream.Signature(PARAMETER_LAYOUT, always_ready=True).create()
        m.d.sync += [write.valid.eq(self.parameters.valid), write.payload.eq(self.parameters.payload)]
        return write

    def _elaborate_operands(self, m: Module, sums: TableAdd, cycle: int) -> None:
        """Both operands of an addition ``cycle`` cycles after the beat of the second one."""
        beat = self.beats.payload
        values = delayed(m, "values", Cat(total[:8] for total in beat.sums), cycle)
        first = Signal(LANES * 8, reset_less=True)
        with m.If(delayed(m, "is_first", self.beats.valid & beat.add & ~beat.second, cycle)):
            m.d.sync += first.eq(values)
        m.d.comb += [sums.first.as_value().eq(first), sums.second.as_value().eq(values)]

    def _elaborate_parameters(self, m: Module, lane: int, part: Scale, write: Any) -> None:
        """The sum of a lane, its bias, and, when they are needed, its significand and shift."""
        config, beat, into = self.config, self.beats.payload, write.payload
        depth, cycles = config.engine.parameter_words, config.parameter_cycles
        m.d.comb += part.sum.eq(delayed(m, f"sum_{lane}", beat.sums[lane], cycles))
        index = into.index
        found = []
        for number, cycle in enumerate((0, part.config.scale_cycle)):
            m.submodules[f"parameters_{lane}_{number}"] = words = memory.Memory(
                shape=_HALF, depth=depth, init=[], attrs=ram_attributes(depth)
            )
            port, out = words.write_port(), words.read_port()
            m.d.comb += [
                port.en.eq(write.valid & ~into.tables & (index[:3] == lane)),
                port.addr.eq(index[3:]),
                port.data.eq(into.data.word_select(number, _HALF)),
                out.addr.eq(delayed(m, f"parameter_{lane}_{number}", beat.parameter, cycle)),
            ]
            found.append(delayed(m, f"parameters_{lane}_{number}_late", out.data, cycles - 1))
        m.d.comb += [
            part.bias.eq(found[0]),
            part.significand.eq(found[1][:SIGNIFICAND_BITS]),
            part.shift.eq(found[1][SIGNIFICAND_BITS:]),
        ]

    def _elaborate_buffer(self, m: Module, words: Pool) -> None:
        """The output buffer."""
        depth = self.config.engine.output_words
        m.submodules.buffer = buffer = memory.Memory(
            shape=LANES * 8, depth=depth, init=[], attrs=ram_attributes(depth, "block")
        )
        into, out = buffer.write_port(), buffer.read_port()
        m.d.comb += [
            into.en.eq(words.o.valid),
            into.addr.eq(words.o.payload.address),
            into.data.eq(words.o.payload.data.as_value()),
            out.addr.eq(self.address),
        ]
        late = Signal(LANES * 8, name="word_late", reset_less=True)
        m.d.sync += late.eq(out.data)
        m.d.comb += self.data.eq(late)
