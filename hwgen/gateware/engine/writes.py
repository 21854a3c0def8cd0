"""Write side of banked memories: all words of a bus beat are written in one cycle, into different banks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value

from hwgen.gateware.engine.config import EngineConfig


def write_names(config: EngineConfig) -> tuple[str, ...]:
    """Return the names of an engine buffer's write ports, the port for the word at the lower address first."""
    return ("write", "write_high")[: config.bus_words]


def latched_writes(m: Module, ports: Sequence[Any], field: str, banks: int) -> list[tuple[Signal, Any]]:
    """Register the write streams of a banked memory; return for each stream its enables, one per bank, and its payload.

    ``field`` of the payload is the bank index. The registers drive many memories. The bank is decoded in front of them,
    so that the selection of a word takes one LUT per bit.
    """
    writes = []
    for index, port in enumerate(ports):
        hits, word = (
            Signal(banks, name=f"bank_hits_{index}"),
            Signal.like(port.payload, name=f"write_word_{index}", reset_less=True),
        )
        m.d.sync += [
            hits.eq(Cat(port.valid & (port.payload[field] == bank) for bank in range(banks))),
            word.eq(port.payload),
        ]
        writes.append((hits, word))
    return writes


def write_to(m: Module, port: Any, writes: Sequence[tuple[Value, Value, Any]]) -> None:
    """Drive the write port of a memory bank from several candidate writes, of which at most one is enabled.

    Each is given as (enable, address, word).
    """
    (enable, address, word), *others = writes
    word = Value.cast(word)
    for other, its_address, its_word in others:
        enable, address, word = other | enable, Mux(other, its_address, address), Mux(other, its_word, word)
    m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(word)]


def choice_luts(config: EngineConfig, bits: int, banks: int) -> int:
    """Return the number of LUTs that select between the two words of a bus beat for each bank, and enable the write."""
    return (config.bus_words - 1) * banks * (bits + 2)
