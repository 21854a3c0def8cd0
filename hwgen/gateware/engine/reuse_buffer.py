"""Input map buffer of the engine: banks of RAM that all lanes read in the same cycle, for every kernel tap."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Module, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.writes import WriteSide, write_side, write_to
from hwgen.gateware.lookup import delayed, ram, read_port, write_port

#: Number of inputs of each multiplexer in the map buffer's rotation networks, which takes one LUT per bit.
_WAYS = 4


def map_side(config: EngineConfig) -> WriteSide:
    """Return the map buffer's write port parameters (`WriteSide`), where a bus beat has words of consecutive pixels."""
    return write_side(config, config.pixels, config.map_words)


@dataclass(frozen=True, kw_only=True)
class ReuseBufferConfig:
    """Configuration of the engine's input map buffer (`ReuseBuffer`), with its FPGA resources."""

    engine: EngineConfig

    @cached_property
    def resources(self) -> Resources:
        cost, engine, word = Cost(self.engine.device), self.engine, LANES * 8
        cost.ram(word, engine.map_words, engine.map_ram, copies=engine.pixels)
        # Both rotations: a LUT and a register per bit and stage. Then the words of the banks, and the writes.
        address_bits = 0 if engine.has_cores else counter_bits(engine.map_words)
        rotated = engine.rotation_stages * engine.pixels * (word + address_bits)
        write_lut, write_ff = map_side(engine.row_engine).cost
        cost.lut = rotated + write_lut
        if not engine.has_cores:
            lanes = engine.row_engine.bus_words
            cost.lut += (lanes - 1) * counter_bits(engine.map_words)
            if lanes >= 4:  # slower writes let synthesis share choices of addresses, which takes more LUTs
                cost.lut += engine.pixels * counter_bits(engine.map_words)
        cost.ff = rotated + engine.pixels * word + write_ff
        cost.delay(counter_bits(engine.pixels), engine.rotation_stages + 2)
        cost.ff += counter_bits(engine.pixels) * (4 * (engine.rotation_stages - 1) + 1)  # also the inverted rotations
        return cost.resources

    def component(self) -> ReuseBuffer:
        return ReuseBuffer(self.engine)


class ReuseBuffer(ConfiguredComponent[EngineConfig]):
    """Input map buffer of the engine, with one bank per lane: Peemen's flexible reuse buffer (section IV-A).

    In a cycle, lane ``k`` reads bank ``(k + rest) % pixels`` at its own word address. One rotation network of
    `EngineConfig.rotation_stages` multiplexers moves addresses to the banks; another one moves words back to the lanes.

    Parameters
    ----------
    config : EngineConfig
        ``pixels`` banks of ``map_words`` words of 8 channels.

    Members
    -------
    write : In(stream, always ready)
        Words of one bus beat per cycle (`map_side`). They can be read `WRITE_LATENCY` cycles later. With several cores
        they are aligned with the banks (`WriteSide.aligned`).
    rest : In(range(pixels))
        Rotation of this cycle's reads: the bank of lane 0.
    words : In(array of ``pixels`` word addresses), with one core
        Word address of each lane.
    addresses : In(array of ``pixels`` word addresses), with several cores
        Word address of each bank, `EngineConfig.rotation_stages` cycles after ``rest``. The cores share a rotation of
        addresses (`bank_addresses`).
    o : Out(array of ``pixels`` arrays of 8 signed bytes)
        Word of each lane, `EngineConfig.buffer_latency` cycles later.

    Latency and throughput
        One read of each bank and one write per cycle, without stalls. A read of a word that is being written returns an
        undefined value.
    """

    #: Cycles from a write at the input until a read address at the banks can return the word.
    WRITE_LATENCY = 2

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "write": In(map_side(config.row_engine).signature),
                "rest": In(range(config.pixels)),
                "addresses" if config.has_cores else "words": In(
                    data.ArrayLayout(range(config.map_words), config.pixels)
                ),
                "o": Out(data.ArrayLayout(data.ArrayLayout(signed(8), LANES), config.pixels)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        stages = config.rotation_stages
        to_banks = self.addresses if config.has_cores else bank_addresses(m, config, self.rest, self.words)
        writes = map_side(config.row_engine).bank_writes(m, self.write)
        read = []
        for bank in range(config.pixels):
            address = to_banks[bank]
            words = ram(config.device, LANES * 8, config.map_words, config.map_ram)
            m.submodules[f"bank_{bank}"] = words
            to, of = write_port(words), read_port(words)
            write_to(m, to, writes[bank])
            m.d.comb += of.addr.eq(address)
            read.append(delayed(m, f"read_word_{bank}", of.data, 1))
        rest = delayed(m, "bank_rotation", self.rest, stages + 1)
        inverse = delayed(m, "bank_rotation_inverse", ~rest, 1)
        rest = delayed(m, "word_rotation", rest, 1)
        for lane, value in enumerate(_rotate(m, config, "data", read, rest, inverse, 1)):
            m.d.comb += self.o[lane].as_value().eq(value)
        return m


def bank_addresses(m: Module, config: EngineConfig, rest: Value, words: data.View) -> list[Value]:
    """Add the network that rotates the lanes' word addresses to the map buffer's banks; return a list by bank.

    ``rest`` is the bank of lane 0, and ``words`` are the addresses of the lanes, `EngineConfig.rotation_stages` cycles
    earlier.
    """
    return _rotate(m, config, "address", [words[lane] for lane in range(config.pixels)], rest, ~rest, -1)


def _rotate(
    m: Module, config: EngineConfig, name: str, values: list[Value], rest: Value, inverse: Value, sign: int
) -> list[Value]:
    """Return the outputs of a pipelined network that rotates a list: ``values[(n + sign * rest) % pixels]``.

    Each stage takes one cycle, and handles two bits of ``rest``. Half of the outputs read ``inverse``, the inverted
    bits. Otherwise synthesis shares two-way choices among outputs, which takes two LUTs per bit instead of one.
    """
    pixels = len(values)
    for stage in range(config.rotation_stages):
        digit, inverted = (bits[2 * stage : 2 * stage + 2] for bits in (rest, inverse))
        step, rotated = _WAYS**stage, []
        for output in range(pixels):
            inputs = [values[(output + sign * way * step) % pixels] for way in range(1 << len(digit))]
            rotated.append(Signal(values[0].shape(), name=f"{name}_stage_{stage}_{output}", reset_less=True))
            chosen = Array(inputs[::-1])[inverted] if output // (2 * step) % 2 else Array(inputs)[digit]
            m.d.sync += rotated[-1].eq(chosen)
        values = rotated
        rest = delayed(m, f"{name}_rotation_{stage}", rest, 1)
        inverse = delayed(m, f"{name}_rotation_inverse_{stage}", inverse, 1)
    return values
