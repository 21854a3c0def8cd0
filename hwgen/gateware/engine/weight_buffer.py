"""Weight buffer of the engine: stores one weight per output map for each step of the array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, signed
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.writes import choice_luts, latched_writes, write_names, write_to
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port


def weight_write(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a write into the engine's weight buffer: a step, a block of 8 maps, and their weights."""
    return data.StructLayout(
        {"step": range(config.weight_steps), "block": range(config.blocks), "data": data.ArrayLayout(signed(8), LANES)}
    )


@dataclass(frozen=True, kw_only=True)
class WeightBufferConfig:
    """Configuration of the weight buffer of ``engine``, which stores one weight per output map for each step."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(), self.engine
        for _ in range(engine.blocks):
            cost.ram(LANES * 8, engine.weight_steps, "block")
        cost.ff = 8 * engine.maps + engine.bus_words * (
            weight_write(engine).size - counter_bits(engine.blocks) + engine.blocks
        )
        cost.lut = engine.blocks + choice_luts(engine, 8 * LANES + counter_bits(engine.weight_steps), engine.blocks)
        return cost.resources

    def component(self) -> WeightBuffer:
        return WeightBuffer(self.engine)


class WeightBuffer(ConfiguredComponent[EngineConfig]):
    """Weight buffer of the engine: ``weight_steps`` words with one weight per output map, written in blocks of 8 maps.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(stream, always ready)
        Weights of one block in one step (`weight_write`).
    write_high : In(stream, always ready)
        Weights of another block, written in the same cycle. Only with a bus of two words.
    step : In(range(weight_steps))
        Address of a step.
    o : Out(array of ``maps`` signed bytes)
        Weights of ``step``, `LATENCY` cycles later.

    Latency and throughput
        One read and one write per cycle, without stalls. A read of a word that is being written returns an undefined
        value.
    """

    #: Cycles from a step, the array's work of one cycle, to its weights: block RAM and its output register.
    LATENCY = 2

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                **{name: In(stream.Signature(weight_write(config), always_ready=True)) for name in write_names(config)},
                "step": In(range(config.weight_steps)),
                "o": Out(data.ArrayLayout(signed(8), config.maps)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        writes = latched_writes(m, [getattr(self, name) for name in write_names(config)], "block", config.blocks)
        for block in range(config.blocks):
            words = memory.Memory(
                shape=LANES * 8, depth=config.weight_steps, init=[], attrs=ram_attributes(config.weight_steps, "block")
            )
            m.submodules[f"block_{block}"] = words
            to, of = write_port(words), read_port(words)
            write_to(m, to, [(hits[block], write.step, write.data) for hits, write in writes])
            m.d.comb += [
                of.addr.eq(self.step),
                self.o.as_value()[block * LANES * 8 : (block + 1) * LANES * 8].eq(
                    delayed(m, f"read_word_{block}", of.data, 1)
                ),
            ]
        return m
