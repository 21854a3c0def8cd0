"""The engine behind its array: complete sums become words in the output buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.arithmetic.bound import Bound, BoundConfig
from hwgen.gateware.arithmetic.scale import PLACES, Scale, ScaleConfig
from hwgen.gateware.arithmetic.shares import WHOLE_BITS
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.add import TABLE_WRITE, TABLES, TableAdd, TableAddConfig, table
from hwgen.gateware.engine.config import LANES, PARAMETER_LAYOUT, TABLE_WORDS, EngineConfig
from hwgen.gateware.engine.drain import drain_beat
from hwgen.gateware.engine.pool import ADDRESS_BITS, COLUMN_BITS, Pool, PoolConfig
from hwgen.gateware.lookup import delayed, delayed_fast, place, ram_attributes
from hwgen.gateware.ports import read_port, write_port
from hwgen.gateware.rounding import SIGNIFICAND_BITS

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
        """Of what was scaled."""
        return BoundConfig(bits=PLACES + 1)

    @property
    def sum_bound(self) -> BoundConfig:
        """Of its sum with another map."""
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
    def bounded(self) -> int:
        """Cycles from a beat to its outputs, before another map is added."""
        return self.parameter_cycles + self.scale.latency + self.bound.latency

    @property
    def added(self) -> int:
        """Cycles from a beat to its outputs, before they are looked up."""
        return self.bounded + self.add.latency + self.sum_bound.latency

    @property
    def latency(self) -> int:
        """Cycles from a beat to the first one in which its word can be read, and in which ``finished`` is high."""
        return self.added + _ACTIVATION_CYCLES + self.pool.latency + 1

    @cached_property
    def resources(self) -> Resources:
        lanes = LANES * (self.scale, self.bound, self.sum_bound)
        parts = sum((each.resources for each in (self.add, self.pool, *lanes)), Resources())
        return parts + self._own

    @property
    def _own(self) -> Resources:
        """Without what `Scale`, both `Bound`, `TableAdd` and `Pool` take."""
        cost, engine, word = Cost(), self.engine, LANES * 8
        for _ in range(2 * LANES):
            cost.ram(_HALF, engine.parameter_words)
            cost.ff += _HALF * (self.parameter_cycles - 1)
        for _ in range(LANES):
            cost.ram(8, TABLE_WORDS, "block")
        for _ in range(engine.bus_words):
            cost.ram(word, engine.output_words // engine.bus_words, "block")
        cost.ff += PARAMETER_LAYOUT.size + 1 + self.latency  # what is written, and what is valid
        cost.ff += LANES * engine.sum_bits * self.parameter_cycles
        if engine.bus_words > 1:  # the second word that is read, the order of the two, the even one's address
            cost.ff += word
            cost.delay(1, self.read_latency)
            cost.lut += 2 * word / 2 + counter_bits(engine.output_words) + 2
        # What is added; words beside their sum and beside their lookup; the word that is read.
        cost.ram(word, engine.addend_words, "block")
        cost.ff += word
        cost.delay(word, self.added - self.bounded - 1)
        cost.ff += word * (1 + _ACTIVATION_CYCLES + 1)
        cost.delay(counter_bits(engine.parameter_words), self.scale.scale_cycle)
        cost.delay(3 * 8 + counter_bits(engine.addend_words), self.bounded)
        cost.delay(3 * 8 + ADDRESS_BITS + COLUMN_BITS, self.added)
        cost.lut += 2 * word + 2 * LANES  # the choice of sums, that behind the lookup, and of what is written
        return cost.resources

    def component(self) -> Finish:
        return Finish(self)


class Finish(wiring.Component):
    """Requantises sums; adds another map by tables; looks outputs up; pools them; and keeps their words.

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
    addends : In(stream, always ready)
        Words of maps that are added, of `EngineConfig.addend_write`; likewise.
    finished : Out
        High for a cycle when the words of a job's beats up to the ``last`` are in the buffer.
    address : In
        Of a word in the output buffer.
    data : Out(64 or 128)
        The word, ``config.read_latency`` cycles later. That of lane 0 is the lowest byte. If the bus has two words, the
        one behind it is above it.

    Latency and throughput
        A beat a cycle; its word is in the buffer ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: FinishConfig):
        self._config = config
        super().__init__(
            {
                "beats": In(stream.Signature(drain_beat(config.engine), always_ready=True)),
                "parameters": In(stream.Signature(PARAMETER_LAYOUT, always_ready=True)),
                "addends": In(stream.Signature(config.engine.addend_write, always_ready=True)),
                "finished": Out(1),
                "address": In(range(config.engine.output_words)),
                "data": Out(LANES * 8 * config.engine.bus_words),
            }
        )

    @property
    def config(self) -> FinishConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, beat = self.config, self.beats.payload
        looked_up = config.added + _ACTIVATION_CYCLES
        write = self._elaborate_writes(m)
        tables = stream.Signature(TABLE_WRITE, always_ready=True).create(path=("table_write",))
        m.d.comb += [
            tables.valid.eq(write.valid & write.payload.tables),
            tables.payload.index.eq(write.payload.index),
            tables.payload.data.eq(write.payload.data),
        ]
        outputs = self._elaborate_sums(m, self._elaborate_outputs(m, write), tables)
        looking = delayed(m, "uses_table", beat.table, looked_up)
        m.submodules.pool = pooled = Pool(config.pool)
        for lane, value in enumerate(outputs):
            found = table(m, f"activation_{lane}", tables, ACTIVATION, signed(8), value.as_unsigned())
            late = delayed(m, f"output_{lane}", value, _ACTIVATION_CYCLES)
            m.d.comb += pooled.i.payload.data[lane].eq(Mux(looking, found, late))
        m.d.comb += [
            pooled.i.valid.eq(delayed(m, "valid", self.beats.valid, looked_up, reset_less=False)),
            pooled.i.payload.address.eq(delayed(m, "address", beat.address, looked_up)),
            pooled.last_column.eq(delayed_fast(m, "last_column", (beat.columns - 1)[:COLUMN_BITS], looked_up)),
            *(
                getattr(pooled, name).eq(delayed_fast(m, f"beat_{name}", beat[name], looked_up))
                for name in ("pool", "pixel_end", "last")
            ),
        ]
        self._elaborate_buffer(m, pooled)
        ended = delayed(m, "job_end", pooled.i.valid & pooled.last, config.pool.latency + 1, reset_less=False)
        m.d.comb += self.finished.eq(ended)
        return m

    def _elaborate_writes(self, m: Module) -> Any:
        """Parameters and tables, a cycle late, as they go to many memories."""
        write = stream.Signature(PARAMETER_LAYOUT, always_ready=True).create(path=("parameter_write",))
        m.d.sync += [write.valid.eq(self.parameters.valid), write.payload.eq(self.parameters.payload)]
        return write

    def _elaborate_outputs(self, m: Module, write: Any) -> list[Value]:
        """Of each lane what is requantised, ``config.bounded`` cycles after its beat."""
        config, outputs = self.config, []
        scale, bound = config.scale, config.bound
        rule = self._rule(m, "", config.parameter_cycles + scale.latency)
        for lane in range(LANES):
            m.submodules[f"scale_{lane}"] = part = Scale(scale)
            self._elaborate_parameters(m, lane, part, write)
            m.submodules[f"bound_{lane}"] = last = Bound(bound)
            m.d.comb += [last.whole.eq(part.whole), last.carry.eq(part.carry)]
            m.d.comb += [getattr(last, name).eq(value) for name, value in rule.items()]
            outputs.append(last.o)
        return outputs

    def _elaborate_sums(self, m: Module, outputs: Sequence[Value], tables: Any) -> list[Value]:
        """Of each lane its sum with the other map, or itself, ``config.added`` cycles after its beat."""
        config, late = self.config, self.config.added - self.config.bounded
        m.submodules.add = sums = TableAdd(config.add)
        m.d.comb += [
            sums.write.valid.eq(tables.valid),
            sums.write.payload.eq(tables.payload),
            sums.first.as_value().eq(Cat(outputs)),
            sums.second.as_value().eq(self._elaborate_addends(m)),
        ]
        adding = delayed_fast(m, "adds_map", self.beats.payload.add, config.added)
        rule = self._rule(m, "a_", config.bounded + config.add.latency)
        found = []
        for lane, output in enumerate(outputs):
            m.submodules[f"sum_bound_{lane}"] = last = Bound(config.sum_bound)
            m.d.comb += [last.whole.eq(sums.whole[lane]), last.carry.eq(sums.carry[lane])]
            m.d.comb += [getattr(last, name).eq(value) for name, value in rule.items()]
            found.append(Mux(adding, last.o, delayed_fast(m, f"requantised_{lane}", output, late)))
        return found

    def _rule(self, m: Module, prefix: str, cycle: int) -> dict[str, Value]:
        """Zero point and bounds of what comes to a `Bound` ``cycle`` cycles after its beat."""
        cycles = {"zero_point": cycle, **dict.fromkeys(("low", "high"), cycle + BoundConfig.bounds_cycle)}
        beat = self.beats.payload
        return {name: delayed(m, f"{prefix}{name}", beat[f"{prefix}{name}"], late) for name, late in cycles.items()}

    def _elaborate_addends(self, m: Module) -> Value:
        """The buffer of maps that are added; the word of a beat, ``config.bounded`` cycles later."""
        write, depth = self.addends.payload, self.config.engine.addend_words
        m.submodules.addends = words = memory.Memory(
            shape=LANES * 8, depth=depth, init=[], attrs=ram_attributes(depth, "block")
        )
        into, out = write_port(words), read_port(words)
        m.d.comb += [
            into.en.eq(self.addends.valid),
            into.addr.eq(write.word),
            into.data.eq(write.data),
            out.addr.eq(
                delayed(m, "addend_address", self.beats.payload.addend[: len(out.addr)], self.config.bounded - 2)
            ),
        ]
        return delayed(m, "addend_word", out.data, 1)

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
            port, out = write_port(words), read_port(words)
            m.d.comb += [
                port.en.eq(write.valid & ~into.tables & (index[:3] == lane)),
                port.addr.eq(index[3:]),
                port.data.eq(into.data.word_select(number, _HALF)),
                out.addr.eq(delayed(m, f"parameter_address_{lane}_{number}", beat.parameter, cycle)),
            ]
            found.append(delayed(m, f"parameter_word_{lane}_{number}", out.data, cycles - 1))
        m.d.comb += [
            part.bias.eq(found[0]),
            part.significand.eq(found[1][:SIGNIFICAND_BITS]),
            part.shift.eq(found[1][SIGNIFICAND_BITS:]),
        ]

    def _elaborate_buffer(self, m: Module, words: Pool) -> None:
        """The output buffer: a bank, or one for even words and one for odd ones."""
        banks = self.config.engine.bus_words
        depth, bits = self.config.engine.output_words // banks, banks.bit_length() - 1
        word, found = words.o.payload, []
        for bank in range(banks):
            m.submodules[f"buffer_{bank}" if banks > 1 else "buffer"] = buffer = memory.Memory(
                shape=LANES * 8, depth=depth, init=[], attrs=ram_attributes(depth, "block")
            )
            into, out = write_port(buffer), read_port(buffer)
            behind = banks - 1 - bank  # the even one's next word lies behind an odd address
            m.d.comb += [
                into.en.eq(words.o.valid & (word.address[:bits] == bank)),
                into.addr.eq(word.address[bits:]),
                into.data.eq(word.data.as_value()),
                out.addr.eq((self.address + behind)[bits:]),
            ]
            late = Signal(LANES * 8, name=f"buffer_word_{bank}" if banks > 1 else "buffer_word", reset_less=True)
            m.d.sync += late.eq(out.data)
            found.append(late)
        if banks == 1:
            m.d.comb += self.data.eq(found[0])
        else:
            odd = delayed(m, "is_odd_address", self.address[0], self.config.read_latency)
            even_word, odd_word = found
            m.d.comb += self.data.eq(Mux(odd, Cat(odd_word, even_word), Cat(even_word, odd_word)))
