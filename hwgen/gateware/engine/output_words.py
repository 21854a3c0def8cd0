"""Selection of the core whose output words the engine stores, if it has several cores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Module, Signal, Value
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.finish import FinishConfig, row_addresses, rows_layout, words_in_order
from hwgen.gateware.lookup import delayed

#: Number of inputs of each multiplexer that selects a core's words, which takes one LUT per bit.
_WAYS = 4


@dataclass(frozen=True, kw_only=True)
class OutputWordsConfig:
    """Configuration of `OutputWords`, which selects one core's output words, with its FPGA resources."""

    engine: EngineConfig

    @property
    def stages(self) -> int:
        """Number of stages of registered four-way multiplexers that select one core's output words."""
        return -(-(self.engine.cores - 1).bit_length() // 2)

    @property
    def latency(self) -> int:
        """Read latency in cycles, from an output buffer address to the selected core's words."""
        return 1 + FinishConfig.read_latency + self.stages

    @cached_property
    def resources(self) -> Resources:
        cost, engine = Cost(self.engine.device), self.engine
        banks, bits = engine.output_banks, 8 * LANES * engine.output_banks
        row_bits = counter_bits(engine.output_words // banks)
        cost.lut += row_bits * (banks > 1)  # the row after the address's
        cost.ff += banks * row_bits
        words = engine.cores
        for _ in range(self.stages):
            words = -(-words // _WAYS)
            cost.registers(words * bits)
        cost.multiplexer(8 * LANES * engine.bus_words, banks)  # the order of the words
        cost.delay(engine.output_bank_bits, self.latency)
        for stage in range(self.stages):
            bits_left = (engine.cores - 1).bit_length() - 2 * stage
            cost.delay(min(bits_left, 2), self.latency - self.stages + stage)
        return cost.resources

    def component(self) -> OutputWords:
        return OutputWords(self)


class OutputWords(ConfiguredComponent[OutputWordsConfig]):
    """Selection of one core's output words to store, from the output buffers of several cores.

    All cores' output buffers are read at the same address. Then one core is selected, and its words are ordered, once
    for all cores. Addresses, and the words of at most four cores, are registered on their way.

    Parameters
    ----------
    config : OutputWordsConfig

    Members
    -------
    address : In
        Word address in the output buffers.
    core : In
        Core whose words are stored, together with the address.
    rows : Out(`rows_layout`)
        Address of each bank, to all cores.
    words_0, words_1, .. : In(64 or more)
        Words of each core's banks, ``FinishConfig.read_latency`` cycles after ``rows``.
    word : Out(64 or more)
        Word at ``address`` of the chosen core, ``config.latency`` cycles later. With a bus of several words, the next
        words follow.

    Latency and throughput
        One read per cycle. Never stalls.
    """

    def __init__(self, config: OutputWordsConfig):
        engine = config.engine
        super().__init__(
            config,
            {
                "address": In(range(engine.output_words)),
                "core": In(range(engine.cores)),
                "rows": Out(rows_layout(engine)),
                **{f"words_{core}": In(8 * LANES * engine.output_banks) for core in range(engine.cores)},
                "word": Out(8 * LANES * engine.bus_words),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config, engine = self.config, self.config.engine
        for bank, row in enumerate(row_addresses(engine, self.address)):
            register = Signal(rows_layout(engine).elem_shape, name=f"row_{bank}", reset_less=True)
            m.d.sync += register.eq(row)
            m.d.comb += self.rows[bank].eq(register)
        words: list[Value] = [getattr(self, f"words_{core}") for core in range(engine.cores)]
        for stage in range(config.stages):
            digit = delayed(
                m, f"core_{stage}", self.core[2 * stage : 2 * stage + 2], config.latency - config.stages + stage
            )
            chosen = [Array(words[first : first + _WAYS])[digit] for first in range(0, len(words), _WAYS)]
            words = [delayed(m, f"words_{stage}_{group}", value, 1) for group, value in enumerate(chosen)]
        first = delayed(m, "first_bank", self.address[: engine.output_bank_bits], config.latency)
        m.d.comb += self.word.eq(words_in_order(engine, words[0], first))
        return m


def read_latency(engine: EngineConfig) -> int:
    """Return the read latency in cycles of the output buffers, including the selection among several cores."""
    return OutputWordsConfig(engine=engine).latency if engine.has_cores else FinishConfig.read_latency
