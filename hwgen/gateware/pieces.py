"""Memories so deep that several block RAMs stand one above the other: in pieces, with registers between the choices."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Signal, Value
from amaranth.lib import memory

from hwgen.gateware.cost import LOGIC, Cost
from hwgen.gateware.lookup import LUT_DEPTH, MEMORIES, delayed, delayed_fast, place, ram_attributes
from hwgen.gateware.ports import read_port, write_port

#: Words among which one LUT chooses.
LUT_WAYS = LOGIC.mux_ways


def piece_depth(width: int, depth: int, where: str | None = None) -> int:
    """Words of each of the memories that one is made of: of so many that one LUT chooses among its block RAMs.

    ``where`` it lies: in ``lut`` or ``block`` RAM, by its depth if not given.
    """
    number, words = MEMORIES.stacked(width, depth)
    return depth if (where or place(depth)) == "lut" or number <= LUT_WAYS else LUT_WAYS * words


def piece_words(width: int, depth: int, where: str | None = None) -> tuple[int, ...]:
    """Words of each of these memories; the last one may have fewer."""
    size = piece_depth(width, depth, where)
    return tuple(min(size, depth - begin) for begin in range(0, depth, size))


def count_pieces(cost: Cost, width: int, depth: int, where: str | None = None) -> None:
    """Add what the memories take, without the registers behind them. The last one lies in block RAM as the others do,
    however few words it has."""
    words = piece_words(width, depth, where)
    if len(words) == 1:
        cost.ram(width, depth, where)
    else:
        cost.bram36 += sum(MEMORIES.block_rams(width, max(count, LUT_DEPTH + 1)) for count in words)


@dataclass(frozen=True)
class WritePort:
    """Where a memory in pieces is written."""

    addr: Signal
    data: Signal
    en: Signal


def memory_in_pieces(
    m: Module, name: str, *, width: int, depth: int, registered: bool, where: str | None = None
) -> tuple[WritePort, Signal, Value]:
    """A memory in pieces of `piece_depth`: where it is written, the address that is read, and the word there.

    Parameters
    ----------
    m : Module
        Gets a submodule for each piece.
    name : str
        Of the memory, or of its pieces with a number behind it.
    width, depth : int
        Bits a word, and words.
    registered : bool
        Whether the word comes two cycles after its address, from a register, instead of one. With several pieces it
        has to.
    where : str, optional
        ``lut`` or ``block`` RAM; by its depth if not given.
    """
    sizes = piece_words(width, depth, where)
    size, pieces = sizes[0], len(sizes)
    write = WritePort(
        Signal(range(depth), name=f"{name}_write_address"),
        Signal(width, name=f"{name}_write_data"),
        Signal(name=f"{name}_write_enable"),
    )
    address = Signal(range(depth), name=f"{name}_read_address")
    low = (size - 1).bit_length() if pieces > 1 else len(address)
    words = []
    for number, words_here in enumerate(sizes):
        piece = name if pieces == 1 else f"{name}_{number}"
        m.submodules[piece] = storage = memory.Memory(
            shape=width, depth=words_here, init=[], attrs=ram_attributes(size, where)
        )
        into, out = write_port(storage), read_port(storage)
        m.d.comb += [
            into.addr.eq(write.addr[: len(into.addr)]),
            into.data.eq(write.data),
            into.en.eq(write.en if pieces == 1 else write.en & (write.addr[low:] == number)),
            out.addr.eq(address[: len(out.addr)]),
        ]
        words.append(delayed(m, f"{piece}_word", out.data, int(registered)))
    if pieces == 1:
        return write, address, words[0]
    word = Signal(width, name=f"{name}_word")
    with m.Switch(delayed_fast(m, f"{name}_piece_index", address[low:], 2)):
        for number, value in enumerate(words):
            with m.Case(number):
                m.d.comb += word.eq(value)
    return write, address, word
