"""Words that come into memories of several banks: as many a cycle as a beat has, each into a bank of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value

from hwgen.gateware.engine.config import EngineConfig


def write_names(config: EngineConfig) -> tuple[str, ...]:
    """Of a buffer's ports, the one for the word at the lower address first."""
    return ("write", "write_high")[: config.bus_words]


def latched_writes(m: Module, ports: Sequence[Any], field: str, banks: int) -> list[tuple[Signal, Any]]:
    """For which bank each stream's word is, a bit each, and the word: a cycle late, as they go to many memories.

    ``field`` of the payload is the bank. Which it is, is known before that cycle, so that a word's choice takes a LUT a
    bit.
    """
    found = []
    for number, port in enumerate(ports):
        hits, word = (
            Signal(banks, name=f"bank_hits_{number}"),
            Signal.like(port.payload, name=f"write_word_{number}", reset_less=True),
        )
        m.d.sync += [
            hits.eq(Cat(port.valid & (port.payload[field] == bank) for bank in range(banks))),
            word.eq(port.payload),
        ]
        found.append((hits, word))
    return found


def write_to(m: Module, port: Any, writes: Sequence[tuple[Value, Value, Any]]) -> None:
    """To a bank's write port the one word of these that is for it: whether one is, its address, and it."""
    (enable, address, word), *others = writes
    word = Value.cast(word)
    for other, its_address, its_word in others:
        enable, address, word = other | enable, Mux(other, its_address, address), Mux(other, its_word, word)
    m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(word)]


def choice_luts(config: EngineConfig, bits: int, banks: int) -> int:
    """LUTs of the choice between two words for each bank, and of whether there is one."""
    return (config.bus_words - 1) * banks * (bits + 2)
