"""The weight buffer: in each step a weight for each map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.writes import choice_luts, latched_writes, write_names, write_to
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port


def weight_write(config: EngineConfig) -> data.StructLayout:
    """The weights of a block of 8 maps in a step."""
    return data.StructLayout(
        {"step": range(config.weight_steps), "block": range(config.blocks), "data": data.ArrayLayout(signed(8), LANES)}
    )


@dataclass(frozen=True, kw_only=True)
class WeightBufferConfig:
    """The weight buffer of ``engine``, and what it takes."""

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


class WeightBuffer(wiring.Component):
    """``weight_steps`` words of a weight for each map, written by blocks of 8 maps.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(stream, always ready)
        A block's weights of a step (`weight_write`).
    write_high : In(stream, always ready)
        Those of another block (of a bus of two words).
    step : In(range(weight_steps))
    o : Out(array of ``maps`` signed bytes)
        The weights of ``step``, `LATENCY` cycles later.

    Latency and throughput
        A step and a write a cycle, without stalls. What is read while it is written is undefined.
    """

    #: Cycles from a step to its weights: block RAM and its output register.
    LATENCY = 2

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__(
            {
                **{name: In(stream.Signature(weight_write(config), always_ready=True)) for name in write_names(config)},
                "step": In(range(config.weight_steps)),
                "o": Out(data.ArrayLayout(signed(8), config.maps)),
            }
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
            write_to(m, to, [(hits[block], each.step, each.data) for hits, each in writes])
            m.d.comb += [
                of.addr.eq(self.step),
                self.o.as_value()[block * LANES * 8 : (block + 1) * LANES * 8].eq(
                    delayed(m, f"read_word_{block}", of.data, 1)
                ),
            ]
        return m
