"""Write side of banked memories: all words of a bus beat are written in one cycle, into different banks."""

from __future__ import annotations

from typing import Any, NamedTuple

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from hwgen.gateware.cost import counter_bits
from hwgen.gateware.engine.config import LANES, EngineConfig

#: Width of a word in memory and in the engine's buffers, in bits.
_WORD_BITS = 8 * LANES


def beat_write(config: EngineConfig, banks: int, words: int) -> data.StructLayout:
    """Return the layout of a write of all words of a bus beat into a memory of ``banks`` banks of ``words`` words.

    ``bank`` and ``word`` are bank and address of the beat's first lane. Each further lane has the next bank, or bank 0
    of the next address. ``present`` marks the lanes that are written. The first lanes can be absent, and then their
    address can be -1, modulo ``words``.
    """
    lanes = config.bus_words
    return data.StructLayout(
        {"bank": range(banks), "word": range(words), "present": lanes, "data": data.ArrayLayout(_WORD_BITS, lanes)}
    )


def addend_write(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a write into the engine's addend buffer, which stores a map that is added to outputs."""
    return beat_write(config, config.bus_words, config.addend_words // config.bus_words)


class BankWrite(NamedTuple):
    """Write into one bank of a memory: enable, address and word."""

    enable: Value
    address: Value
    word: Value


def banked_writes(m: Module, port: Any, banks: int, alignment: int = 1) -> list[BankWrite]:
    """Register a stream of `beat_write`, and return the write into each bank, one cycle later.

    Parameters
    ----------
    port : stream
        Beats, always ready.
    banks : int
        Number of banks, at least the number of lanes.
    alignment : int
        Divisor of ``banks``, and of the bank index of every beat's first lane. A bank has words of the lanes only whose
        indices differ from its own by a multiple of ``alignment``, so larger ones take fewer LUTs.
    """
    beat = port.payload
    words = Signal.like(beat.data, name="write_words", reset_less=True)
    address, behind = (
        Signal.like(beat.word, name=name, reset_less=True) for name in ("write_address", "write_address_plus_one")
    )
    m.d.sync += [words.eq(beat.data), address.eq(beat.word), behind.eq(beat.word + 1)]
    return [_bank_write(m, port, banks, alignment, bank, (words, address, behind)) for bank in range(banks)]


def _bank_write(
    m: Module, port: Any, banks: int, alignment: int, bank: int, registers: tuple[Any, Signal, Signal]
) -> BankWrite:
    """Add the choice of a beat's lane for one bank: a decoded bank index in registers, and multiplexers behind them."""
    beat, (words, address, behind) = port.payload, registers
    lanes = [lane for lane in range(len(beat.present)) if (bank - lane) % alignment == 0]
    hits = {lane: beat.bank == (bank - lane) % banks for lane in lanes}
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


def write_cost(config: EngineConfig, banks: int, words: int, alignment: int = 1) -> tuple[int, int]:
    """Return the numbers of LUTs and flip-flops of `banked_writes`."""
    address_bits, lanes = counter_bits(words), config.bus_words // alignment
    lut_per_bit = {1: 0, 2: 1, 4: 1, 8: 3}[lanes]
    luts = banks * (_WORD_BITS * lut_per_bit + 1)
    ff = _WORD_BITS * config.bus_words + address_bits + banks * (1 + (lanes - 1).bit_length())
    return luts, ff


def write_to(m: Module, port: Any, write: BankWrite) -> None:
    """Drive the write port of a memory bank."""
    m.d.comb += [port.en.eq(write.enable), port.addr.eq(write.address), port.data.eq(write.word)]
