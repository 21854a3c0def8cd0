"""Write side of banked memories: all words of a bus beat are written in one cycle, into different banks.

On an engine of several cores, a beat's words are brought to their banks once for all cores (`BankAlignment`). Each
core's memory has its own registers of the words, so that no net has to reach all cores and their memories in one cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import delayed

#: Width in bits of a word of memory and of the engine's buffers: 8 channels of a pixel, or 8 weights.
_WORD_BITS = 8 * LANES


class BankWrite(NamedTuple):
    """Values of one bank's write in a banked memory: enable, address and word."""

    enable: Value
    address: Value
    word: Value


@dataclass(frozen=True, kw_only=True)
class WriteSide:
    """Parameters of the write port of a banked buffer, which stores all words of a bus beat in one cycle.

    Parameters
    ----------
    lanes : int
        Number of words of a bus beat.
    banks : int
        Number of banks, at least the number of lanes.
    words : int
        Depth of a bank, in words.
    alignment : int
        Divisor of ``banks``, and of the bank index of every beat's first lane. A bank only has words of lanes whose
        indices differ from its own by a multiple of ``alignment``, so larger ones take fewer LUTs.
    cores : int
        Number of cores of the engine.
    """

    lanes: int
    banks: int
    words: int
    alignment: int = 1
    cores: int = 1

    @property
    def beat(self) -> data.StructLayout:
        """Amaranth layout of a bus beat's write to a banked buffer: words, enables, bank and address of the first.

        ``bank`` and ``word`` are bank and address of the beat's first lane. Each further lane has the next bank, or
        bank 0 of the next address. ``present`` marks the lanes that are written. The first lanes can be absent, and
        then their address can be -1, modulo ``words``.
        """
        beat_data = data.ArrayLayout(_WORD_BITS, self.lanes)
        shapes = {"bank": range(self.banks), "word": range(self.words), "present": self.lanes, "data": beat_data}
        return data.StructLayout(shapes)

    @property
    def aligned(self) -> data.ArrayLayout:
        """Amaranth layout of a beat's write after alignment: enable, address and word for each bank."""
        write = {"enable": 1, "address": range(self.words), "word": _WORD_BITS}
        return data.ArrayLayout(data.StructLayout(write), self.banks)

    @property
    def signature(self) -> stream.Signature:
        """Signature of a banked buffer's write stream: bus beats, or aligned beats if the engine has several cores."""
        return stream.Signature(self.aligned if self.cores > 1 else self.beat, always_ready=True)

    @property
    def latency(self) -> int:
        """Latency in cycles, from a bus beat to the writes at the banks."""
        return BankAlignment.LATENCY + 1 if self.cores > 1 else 1

    def lanes_of(self, bank: int) -> list[int]:
        """Return a list of the indices of a bus beat's words (lanes) that can be written to the bank ``bank``."""
        return [lane for lane in range(self.lanes) if (bank - lane) % self.alignment == 0]

    def bank_writes(self, m: Module, port: Any) -> list[BankWrite]:
        """Return a list of registered writes, one per bank, from a buffer's write stream ``port`` (`signature`)."""
        if self.cores == 1:
            return banked_writes(m, self, port)
        writes = []
        for bank, write in enumerate(port.payload):
            enable = Signal(name=f"write_enable_{bank}")
            m.d.sync += enable.eq(port.valid & write.enable)
            fields = (delayed(m, f"write_{name}_{bank}", write[name], 1) for name in ("address", "word"))
            writes.append(BankWrite(enable, *fields))
        return writes

    @property
    def wrapping_banks(self) -> int:
        """Number of banks that a bus beat can write one address above the address of its first word."""
        return sum(self.lanes_of(bank)[-1] > bank for bank in range(self.banks))

    @property
    def bank_bits(self) -> int:
        """Total width in bits of the writes to all banks: enables, addresses and words."""
        return self.banks * (1 + counter_bits(self.words) + _WORD_BITS)

    @property
    def beat_cost(self) -> tuple[float, int]:
        """LUTs and flip-flops (a pair) of the circuit that aligns a bus beat's words with their banks."""
        choices = self.lanes // self.alignment
        lut_per_bit = {1: 0, 2: 1, 4: 1, 8: 3}[choices]
        address_bits, choice_bits = counter_bits(self.words), (choices - 1).bit_length()
        decode = self.lanes if choices == self.lanes > 1 else 0
        luts = self.banks * (_WORD_BITS * lut_per_bit + 1 + decode)
        wrapping = address_bits + self.wrapping_banks if self.wrapping_banks else 0
        return luts, _WORD_BITS * self.lanes + address_bits + wrapping + self.banks * (1 + choice_bits)

    @property
    def cost(self) -> tuple[float, int]:
        """LUTs and flip-flops (a pair) of the write port in one buffer (`bank_writes`)."""
        return (self.banks, self.bank_bits) if self.cores > 1 else self.beat_cost


def write_side(config: EngineConfig, banks: int, words: int, alignment: int = 1) -> WriteSide:
    """Return the `WriteSide` (write-port parameters) of a buffer of ``banks`` banks with ``words`` words per core."""
    return WriteSide(lanes=config.bus_words, banks=banks, words=words, alignment=alignment, cores=config.cores)


def addend_side(config: EngineConfig) -> WriteSide:
    """Return a `WriteSide`: write-port parameters of the addend buffer, which stores a map that is added to outputs."""
    return write_side(config, config.bus_words, config.addend_words // config.bus_words)


def banked_writes(m: Module, side: WriteSide, port: Any) -> list[BankWrite]:
    """Return, one cycle later, a list of writes by bank for a stream of bus beats (`WriteSide.beat`)."""
    beat = port.payload
    words = Signal.like(beat.data, name="write_words", reset_less=True)
    address, behind = (
        Signal.like(beat.word, name=name, reset_less=True) for name in ("write_address", "write_address_plus_one")
    )
    m.d.sync += [words.eq(beat.data), address.eq(beat.word), behind.eq(beat.word + 1)]
    return [_bank_write(m, side, port, bank, (words, address, behind)) for bank in range(side.banks)]


def _bank_write(m: Module, side: WriteSide, port: Any, bank: int, registers: tuple[Any, Signal, Signal]) -> BankWrite:
    """Return a `BankWrite`: registers select a bank's word of the bus beat (lane), multiplexers word and address."""
    beat, (words, address, behind) = port.payload, registers
    lanes = side.lanes_of(bank)
    hits = {lane: beat.bank == (bank - lane) % side.banks for lane in lanes}
    enable = Signal(name=f"write_enable_{bank}")
    choice = Signal(range(len(lanes)), name=f"write_lane_{bank}", reset_less=True)
    wraps = Signal(name=f"write_wraps_{bank}", reset_less=True)
    m.d.sync += [
        enable.eq(port.valid & Cat(beat.present[lane] & hit for lane, hit in hits.items()).any()),
        wraps.eq(Cat(hit for lane, hit in hits.items() if lane > bank).any()),
        *(
            choice[bit].eq(Cat(hits[lane] for index, lane in enumerate(lanes) if index >> bit & 1).any())
            for bit in range(len(choice))
        ),
    ]
    word = Value.cast(Array(words[lane] for lane in lanes)[choice])
    return BankWrite(enable, Mux(wraps, behind, address) if lanes[-1] > bank else address, word)


def write_to(m: Module, port: Any, write: BankWrite) -> None:
    """Drive the write port ``port`` of a memory bank with the values of ``write``."""
    m.d.comb += [port.en.eq(write.enable), port.addr.eq(write.address), port.data.eq(write.word)]


@dataclass(frozen=True, kw_only=True)
class BankAlignmentConfig(OnDevice):
    """Configuration of `BankAlignment`, which sends bus beats' words to their banks, with its FPGA resources."""

    side: WriteSide

    @cached_property
    def resources(self) -> Resources:
        cost, side = Cost(self.device), self.side
        cost.lut, cost.ff = side.beat_cost
        if side.banks == side.lanes == 8 * side.alignment:  # eight-way choices that share their halves
            cost.lut -= side.banks * _WORD_BITS
        cost.lut += side.wrapping_banks * counter_bits(side.words)
        cost.ff += self._aligned_bits + side.cores * BankAlignment.LATENCY
        return cost.resources

    @property
    def _aligned_bits(self) -> int:
        """Number of flip-flops that hold an aligned bus beat; banks with equal addresses or words share them."""
        side = self.side
        words = side.lanes if side.lanes == side.alignment else side.banks
        addresses = min(side.wrapping_banks + 1, side.banks)
        return side.banks + counter_bits(side.words) * addresses + _WORD_BITS * words

    def component(self) -> BankAlignment:
        return BankAlignment(self)


class BankAlignment(ConfiguredComponent[BankAlignmentConfig]):
    """Circuit that sends the words of bus beats to their buffer banks, once for all cores of an engine.

    Parameters
    ----------
    config : BankAlignmentConfig

    Members
    -------
    i : In(stream, always ready)
        Words of one bus beat per cycle (`WriteSide.beat`).
    cores : In(number of cores)
        Cores whose memories are written, together with the beat.
    o : Out(`WriteSide.aligned`)
        Write into each bank, `LATENCY` cycles later.
    written : Out(number of cores)
        Whether ``o`` writes into each core's memory.

    Latency and throughput
        One beat per cycle. Never stalls.
    """

    #: Latency in cycles, from a bus beat at the input to its writes by bank at the output.
    LATENCY = 2

    def __init__(self, config: BankAlignmentConfig):
        side = config.side
        super().__init__(
            config,
            {
                "i": In(stream.Signature(side.beat, always_ready=True)),
                "cores": In(side.cores),
                "o": Out(side.aligned),
                "written": Out(side.cores),
            },
        )

    def elaborate(self, platform):
        m = Module()
        side = self.config.side
        for bank, write in enumerate(banked_writes(m, side, self.i)):
            for name, value in write._asdict().items():
                aligned = delayed(m, f"aligned_{name}_{bank}", value, 1, reset_less=name != "enable")
                m.d.comb += self.o[bank][name].eq(aligned)
        chosen = self.cores & self.i.valid.replicate(side.cores)
        m.d.comb += self.written.eq(delayed(m, "written_cores", chosen, self.LATENCY, reset_less=False))
        return m


def write_buffers(m: Module, name: str, side: WriteSide, write: Any, cores: Value, buffers: Sequence[Any]) -> None:
    """Connect a stream of bus beats to one buffer's write port in each core, through a `BankAlignment` if several.

    Parameters
    ----------
    name : str
        Name of the submodule.
    write : stream
        Beats.
    cores : Value
        Cores whose memories are written.
    buffers : sequence of streams
        Write port of each core's memory (`WriteSide.signature`).
    """
    if side.cores == 1:
        (buffer,) = buffers
        m.d.comb += [buffer.valid.eq(write.valid), buffer.payload.eq(write.payload)]
        return
    m.submodules[name] = align = BankAlignment(BankAlignmentConfig(side=side))
    m.d.comb += [align.i.valid.eq(write.valid), align.i.payload.eq(write.payload), align.cores.eq(cores)]
    for core, buffer in enumerate(buffers):
        m.d.comb += [buffer.valid.eq(align.written[core]), buffer.payload.eq(align.o)]
