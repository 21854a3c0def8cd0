"""Weight buffer of the engine: stores four weights per output map, one per channel, for each step of the array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Value, signed
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.writes import choice_luts, latched_writes, write_names, write_to
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port


def weight_write(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a write into the engine's weight buffer: a step, and weights of 8 maps for one channel.

    Block ``b`` of position ``k`` of the array's chains has the index ``k * blocks + b``.
    """
    return data.StructLayout(
        {
            "step": range(config.weight_steps),
            "block": range(config.weight_words),
            "data": data.ArrayLayout(signed(8), LANES),
        }
    )


@dataclass(frozen=True, kw_only=True)
class WeightBufferConfig:
    """Configuration of the weight buffer of ``engine``, which stores the weights of each step."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(), self.engine
        words = engine.weight_words
        for _ in range(words):
            cost.ram(LANES * 8, engine.weight_steps, "block")
        cost.ff = 8 * LANES * words + engine.bus_words * (weight_write(engine).size - counter_bits(words) + words)
        cost.lut = words + choice_luts(engine, 8 * LANES + counter_bits(engine.weight_steps), words)
        for position in range(CHAIN):
            cost.delay(counter_bits(engine.weight_steps), int(position > 0))
        return cost.resources

    def component(self) -> WeightBuffer:
        return WeightBuffer(self.engine)


class WeightBuffer(ConfiguredComponent[EngineConfig]):
    """Weight buffer of the engine: ``weight_steps`` steps with 4 weights per output map, one for each chain position.

    Each position has memories of its own. Those of later positions are read later, as the array's chains need them.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(stream, always ready)
        Weights of one block and position in one step (`weight_write`).
    write_high : In(stream, always ready)
        Weights of another block or position, written in the same cycle. Only with a bus of two words.
    step : In(range(weight_steps))
        Address of a step.
    o : Out(array of 4 arrays of ``maps`` signed bytes)
        Weights of ``step`` at each position: `LATENCY` cycles later at position 0, one cycle more at each position
        behind it.

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
                "o": Out(data.ArrayLayout(data.ArrayLayout(signed(8), config.maps), CHAIN)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        ports = [getattr(self, name) for name in write_names(config)]
        writes = latched_writes(m, ports, "block", config.weight_words)
        step: Value = self.step
        for index in range(config.weight_words):
            position, block = divmod(index, config.blocks)
            if position and not block:
                step = delayed(m, f"step_{position}", step, 1, reset_less=False)
            words = memory.Memory(
                shape=LANES * 8, depth=config.weight_steps, init=[], attrs=ram_attributes(config.weight_steps, "block")
            )
            m.submodules[f"block_{position}_{block}"] = words
            to, of = write_port(words), read_port(words)
            write_to(m, to, [(hits[index], write.step, write.data) for hits, write in writes])
            m.d.comb += [
                of.addr.eq(step),
                self.o.as_value()
                .word_select(index, LANES * 8)
                .eq(delayed(m, f"read_word_{position}_{block}", of.data, 1)),
            ]
        return m
