"""The map buffer: banks that neighbouring lanes read together in every tap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Module, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.writes import choice_luts, latched_writes, write_names, write_to
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port

#: Ways of the multiplexers that rotate: one LUT a bit.
_WAYS = 4


def map_write(config: EngineConfig) -> data.StructLayout:
    """A word of 8 channels into a bank of the map buffer."""
    return data.StructLayout(
        {"bank": range(config.pixels), "word": range(config.map_words), "data": data.ArrayLayout(signed(8), LANES)}
    )


@dataclass(frozen=True, kw_only=True)
class ReuseBufferConfig:
    """The map buffer of ``engine``, and what it takes."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine, word = Cost(), self.engine, LANES * 8
        for _ in range(engine.pixels):
            cost.ram(word, engine.map_words, "block")
        # Both rotations, a LUT and a register a bit in each stage; the banks' words; what is written, and where to.
        rotated = engine.rotation_stages * engine.pixels * (word + counter_bits(engine.map_words))
        cost.lut = rotated + engine.pixels + choice_luts(engine, word + counter_bits(engine.map_words), engine.pixels)
        cost.ff = (
            rotated
            + engine.pixels * word
            + engine.bus_words * (map_write(engine).size - counter_bits(engine.pixels) + engine.pixels)
        )
        cost.delay(counter_bits(engine.pixels), engine.rotation_stages + 2)
        cost.ff += 2 * counter_bits(engine.pixels) * (engine.rotation_stages - 1)
        return cost.resources

    def component(self) -> ReuseBuffer:
        return ReuseBuffer(self.engine)


class ReuseBuffer(wiring.Component):
    """Peemen's flexible reuse buffer (section IV-A): as many banks as lanes, rotated so that each lane has its own.

    In a cycle lane ``k`` reads bank ``(k + rest) % pixels`` at a word of its own. Addresses are brought to the banks,
    and what they hold back to the lanes, by a rotation each, of `EngineConfig.rotation_stages` multiplexers.

    Parameters
    ----------
    config : EngineConfig
        ``pixels`` banks of ``map_words`` words of 8 channels.

    Members
    -------
    write : In(stream, always ready)
        A word a cycle (`map_write`). It may be read `WRITE_LATENCY` cycles later.
    write_high : In(stream, always ready)
        Another one, of another bank (of a bus of two words).
    rest : In(range(pixels))
        Rotation of this cycle's reads.
    words : In(array of ``pixels`` words' addresses)
        That of each lane.
    o : Out(array of ``pixels`` arrays of 8 signed bytes)
        What each lane reads, `EngineConfig.buffer_latency` cycles later.

    Latency and throughput
        A read of each bank and a write a cycle, without stalls. What is read while it is written is undefined.
    """

    #: Cycles from a write to the first cycle in which an address may reach that word's bank.
    WRITE_LATENCY = 2

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__(
            {
                **{name: In(stream.Signature(map_write(config), always_ready=True)) for name in write_names(config)},
                "rest": In(range(config.pixels)),
                "words": In(data.ArrayLayout(range(config.map_words), config.pixels)),
                "o": Out(data.ArrayLayout(data.ArrayLayout(signed(8), LANES), config.pixels)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        stages = config.rotation_stages
        to_banks = self._rotate(m, "address", [self.words[lane] for lane in range(config.pixels)], self.rest, -1)
        writes = latched_writes(m, [getattr(self, name) for name in write_names(config)], "bank", config.pixels)
        read = []
        for bank, address in enumerate(to_banks):
            words = memory.Memory(
                shape=LANES * 8, depth=config.map_words, init=[], attrs=ram_attributes(config.map_words, "block")
            )
            m.submodules[f"bank_{bank}"] = words
            to, of = write_port(words), read_port(words)
            write_to(m, to, [(hits[bank], each.word, each.data) for hits, each in writes])
            m.d.comb += of.addr.eq(address)
            read.append(delayed(m, f"read_word_{bank}", of.data, 1))
        rest = delayed(m, "bank_rotation", self.rest, stages + 2)
        for lane, value in enumerate(self._rotate(m, "data", read, rest, 1)):
            m.d.comb += self.o[lane].as_value().eq(value)
        return m

    def _rotate(self, m: Module, name: str, values: list[Value], rest: Value, sign: int) -> list[Value]:
        """``values[(n + sign * rest) % pixels]`` at place ``n``, a stage for each two bits of ``rest``."""
        pixels = len(values)
        for stage in range(self._config.rotation_stages):
            digit = rest[2 * stage : 2 * stage + 2]
            turned = []
            for place in range(pixels):
                ways = [values[(place + sign * way * _WAYS**stage) % pixels] for way in range(_WAYS)]
                turned.append(Signal(values[0].shape(), name=f"{name}_stage_{stage}_{place}", reset_less=True))
                m.d.sync += turned[-1].eq(Array(ways)[digit])
            values = turned
            rest = delayed(m, f"{name}_rotation_{stage}", rest, 1)
        return values
