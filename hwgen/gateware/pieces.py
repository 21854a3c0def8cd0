"""Deep memories, divided into pieces of few block RAMs, with registers between the two levels of multiplexers."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Signal, Value
from amaranth.lib import memory

from hwgen.devices import Device
from hwgen.gateware.cost import Cost
from hwgen.gateware.lookup import delayed, delayed_fast, read_port, write_port


def stacked(device: Device, width: int, depth: int, where: str | None = None) -> tuple[int, int]:
    """Return a pair: number of block RAMs (or UltraRAMs) stacked for a memory's depth, and the words of each."""
    ultra, memories = device.memories.ultra, device.memories
    return (ultra.stacked(depth), ultra.words) if where == "ultra" and ultra else memories.stacked(width, depth)


def piece_depth(device: Device, width: int, depth: int, where: str | None = None) -> int:
    """Return the number of words per piece of a deep memory, such that one LUT per bit selects among a piece's RAMs.

    A memory of few block RAMs or UltraRAMs, or in LUT RAM, is one piece. ``where`` is the RAM, ``lut``, ``block`` or
    ``ultra``; if it is ``None``, the depth decides.
    """
    blocks, words = stacked(device, width, depth, where)
    ways = device.logic.mux_ways
    return depth if (where or device.memories.default_ram(depth)) == "lut" or blocks <= ways else ways * words


def piece_words(device: Device, width: int, depth: int, where: str | None = None) -> tuple[int, ...]:
    """Return a tuple of the pieces' numbers of words in a divided memory, by address; the last can be shorter."""
    size = piece_depth(device, width, depth, where)
    return tuple(min(size, depth - begin) for begin in range(0, depth, size))


def count_pieces(cost: Cost, width: int, depth: int, where: str | None = None) -> None:
    """Add to ``cost`` the RAM of a memory that is divided into pieces, without the pieces' output registers.

    If there are several pieces, all of them are in block RAM, also a last piece of few words.
    """
    words = piece_words(cost.device, width, depth, where)
    if len(words) == 1 or where == "ultra":
        for count in words:
            cost.ram(width, count, where)
    else:
        cost.bram36 += sum(cost.memories.block_rams(width, count, placed=True) for count in words)


@dataclass(frozen=True)
class WritePort:
    """Write port of a memory that is divided into pieces: signals for address, data and enable."""

    addr: Signal
    data: Signal
    en: Signal


def memory_in_pieces(
    m: Module, device: Device, name: str, *, width: int, depth: int, registered: bool, where: str | None = None
) -> tuple[WritePort, Signal, Value]:
    """Add a memory cut into pieces of `piece_depth` words; return a triple: write port, read address, read data.

    Parameters
    ----------
    m : Module
        Module that gets a submodule for each piece.
    device : Device
        Device family of the memory.
    name : str
        Name of the memory; pieces have the name with their index.
    width, depth : int
        Bits of a word, and number of words.
    registered : bool
        Whether a register delays the word, which is then valid two cycles after its address instead of one. Several
        pieces need the register.
    where : str, optional
        RAM, ``lut``, ``block`` or ``ultra``. If not given, the depth decides.

    Returns
    -------
    tuple of (WritePort, Signal, Value)
        The write port, the read address, and the word at the read address.
    """
    sizes = piece_words(device, width, depth, where)
    size, pieces = sizes[0], len(sizes)
    write = WritePort(
        Signal(range(depth), name=f"{name}_write_address"),
        Signal(width, name=f"{name}_write_data"),
        Signal(name=f"{name}_write_enable"),
    )
    address = Signal(range(depth), name=f"{name}_read_address")
    low = (size - 1).bit_length() if pieces > 1 else len(address)
    words = []
    for index, num_words in enumerate(sizes):
        piece = name if pieces == 1 else f"{name}_{index}"
        m.submodules[piece] = storage = memory.Memory(
            shape=width, depth=num_words, init=[], attrs=device.memories.ram_style(size, where)
        )
        into, out = write_port(storage), read_port(storage)
        m.d.comb += [
            into.addr.eq(write.addr[: len(into.addr)]),
            into.data.eq(write.data),
            into.en.eq(write.en if pieces == 1 else write.en & (write.addr[low:] == index)),
            out.addr.eq(address[: len(out.addr)]),
        ]
        words.append(delayed(m, f"{piece}_word", out.data, int(registered)))
    if pieces == 1:
        return write, address, words[0]
    word = Signal(width, name=f"{name}_word")
    with m.Switch(delayed_fast(m, f"{name}_piece_index", address[low:], 2)):
        for index, value in enumerate(words):
            with m.Case(index):
                m.d.comb += word.eq(value)
    return write, address, word
