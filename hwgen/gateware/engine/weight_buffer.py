"""Weight buffer of the engine: stores, for each cycle of the array, four weights per output map."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Module, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.writes import WriteSide, write_side, write_to
from hwgen.gateware.lookup import delayed, ram, read_port, write_port


def weight_side(config: EngineConfig) -> WriteSide:
    """Return a `WriteSide`: write-port parameters of the weight buffer; a bus beat has consecutive words of weights.

    A word has the weights of a block of 8 maps for one channel. Block ``b`` of position ``k`` of the array's chains is
    word ``k * blocks + b`` of its step. Word ``w`` of step ``s`` is in bank ``(s % copies) * weight_words + w`` at
    address ``s // copies``, where ``copies`` is `EngineConfig.weight_copies`.
    """
    depth = config.weight_steps // config.weight_copies
    return write_side(config, config.weight_banks, depth, config.weight_alignment)


@dataclass(frozen=True, kw_only=True)
class WeightBufferConfig:
    """Configuration of the engine's weight buffer (`WeightBuffer`), with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        depth = engine.weight_steps // engine.weight_copies
        cost.ram(LANES * 8, depth, "block", copies=engine.weight_banks)
        cost.lut, cost.ff = weight_side(engine).cost
        cost.ff += LANES * 8 * engine.weight_banks
        for position in range(CHAIN):
            cost.delay(counter_bits(engine.weight_steps), int(position > 0))
        if engine.weight_copies > 1:  # the step's copy, and the choice of its words
            cost.ff += CHAIN * counter_bits(engine.weight_copies) * WeightBuffer.LATENCY
            cost.multiplexer(LANES * 8 * engine.weight_words, engine.weight_copies)
        return cost.resources

    def component(self) -> WeightBuffer:
        return WeightBuffer(self.engine)


class WeightBuffer(ConfiguredComponent[EngineConfig]):
    """Weight buffer of the engine: four weights per output map for each of ``weight_steps`` array cycles.

    Each position in the array's chains has its own memories. Later positions are read later, as the chains need them.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(stream, always ready)
        Words of one bus beat per cycle (`weight_side`). The bank of the first lane is a multiple of
        `EngineConfig.weight_alignment`. With several cores the words are aligned with the banks (`WriteSide.aligned`).
    step : In(range(weight_steps))
        Address of a step.
    o : Out(array of 4 arrays of ``maps`` signed bytes)
        Weights of ``step`` at each position: `LATENCY` cycles later at position 0, one cycle more at each following
        position.

    Latency and throughput
        One read and one write per cycle, without stalls. A read of a word that is being written returns an undefined
        value.
    """

    #: Read latency in cycles at chain position 0: block RAM and its output register.
    LATENCY = 2

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "write": In(weight_side(config).signature),
                "step": In(range(config.weight_steps)),
                "o": Out(data.ArrayLayout(data.ArrayLayout(signed(8), config.maps), CHAIN)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        writes = weight_side(config).bank_writes(m, self.write)
        depth, copy_bits = config.weight_steps // config.weight_copies, config.weight_copies.bit_length() - 1
        step: Value = self.step
        for index in range(config.weight_words):
            position, block = divmod(index, config.blocks)
            if position and not block:
                step = delayed(m, f"step_{position}", step, 1, reset_less=False)
            if not block:
                copy = delayed(m, f"step_copy_{position}", step[:copy_bits], self.LATENCY)
            read: list[Value] = []
            for bank in range(index, config.weight_banks, config.weight_words):
                words = ram(config.device, LANES * 8, depth, "block")
                m.submodules[f"bank_{bank}"] = words
                to, of = write_port(words), read_port(words)
                write_to(m, to, writes[bank])
                m.d.comb += of.addr.eq(step[copy_bits:])
                read.append(delayed(m, f"read_word_{bank}", of.data, 1))
            m.d.comb += self.o.as_value().word_select(index, LANES * 8).eq(Array(read)[copy])
        return m
