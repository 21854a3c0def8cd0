"""Memories whose words are loaded at run time, each cut into the 32-bit words that a load consists of.

A load consists of 32-bit parts. The memories are filled in turn, each starting at address 0. A memory's word is split
into as many parts as it needs, the lowest bits first. `hwgen.gateware.load.loader` adds the digest and the CRC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from amaranth import Module, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import OnDevice
from hwgen.gateware.lookup import read_port, write_port

#: Width in bits of one word in a load of run-time weights; a memory's wider word is divided into such parts.
PART_BITS = 32

#: Stream signature of the chain that carries run-time weights: a 32-bit word, or a mark of the load's begin or end.
CHAIN = stream.Signature(
    data.StructLayout({"begin": 1, "end": 1, "data": PART_BITS}),
    always_ready=True,
)


@dataclass(frozen=True, kw_only=True)
class LoadedMemory(OnDevice):
    """Memory of a layer whose words (weights, constants or tables) are loaded at run time.

    Parameters
    ----------
    name : str
        Name of the memory, an identifier.
    width, depth : int
        Width of a word in bits, and number of words.
    where : str, optional
        RAM of the memory, ``lut``, ``block`` or ``ultra``. If not given, the depth decides.

    Raises
    ------
    ConfigError
        If a size is not positive.
    """

    name: str
    width: int
    depth: int
    where: str | None = None

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")

    @property
    def is_initialised(self) -> bool:
        """Whether the bitstream initialises the memory's contents; UltraRAM begins with zeros instead."""
        return self.where != "ultra"

    @property
    def word_parts(self) -> int:
        """Number of 32-bit load words that make up one word of the memory."""
        return -(-self.width // PART_BITS)

    @property
    def words(self) -> int:
        """Number of 32-bit load words that fill the whole memory."""
        return self.word_parts * self.depth

    @property
    def write(self) -> wiring.Signature:
        """Amaranth signature of the memory's write port (enable, address, data), from the side of the writer."""
        return wiring.Signature({"enable": Out(1), "address": Out(range(self.depth)), "data": Out(self.width)})

    def cut(self, contents: Sequence[int]) -> Iterator[int]:
        """Yield the 32-bit load words of a memory's words ``contents``, starting at address 0.

        Negative words are in two's complement.
        """
        mask = (1 << PART_BITS) - 1
        for word in contents:
            rest = word % (1 << self.width)
            for _ in range(self.word_parts):
                yield rest & mask
                rest >>= PART_BITS

    def joined(self, words: Sequence[int]) -> tuple[int, ...]:
        """Return a tuple of the memory's contents, unsigned integers, joined from the load words that `cut` yields."""
        starts = range(0, self.words, self.word_parts)
        return tuple(
            sum(part << (PART_BITS * index) for index, part in enumerate(words[start : start + self.word_parts]))
            for start in starts
        )


def writes_of(stores: Iterable[LoadedMemory]) -> wiring.Signature:
    """Return an Amaranth signature of the writer's side: a write port per loaded memory, with the memory's name."""
    return wiring.Signature({store.name: Out(store.write) for store in stores})


def add_store(
    m: Module,
    store: LoadedMemory,
    contents: Sequence[int],
    write: wiring.PureInterface,
    address: Value,
    enable: Value | None = None,
    name: str = "",
) -> Value:
    """Add a memory that is loaded at run time; return a `Value`: its word at ``address``, one cycle later.

    A memory of one word is a register, and returns the word without a delay.

    Parameters
    ----------
    contents : sequence of int
        Initial contents, which UltraRAM ignores.
    enable : Value, optional
        Read enable. While it is low, the word that was read last stays.
    name : str, optional
        Name of the memory, if several memories store the same contents.
    """
    name = name or store.name
    mask = (1 << store.width) - 1
    if store.depth == 1:
        word = Signal(store.width, name=f"{name}_word", init=contents[0] & mask, reset_less=True)
        with m.If(write.enable):
            m.d.sync += word.eq(write.data)
        return word
    m.submodules[name] = words = memory.Memory(
        shape=store.width,
        depth=store.depth,
        init=[word & mask for word in contents] if store.is_initialised else [],
        attrs=store.memories.ram_style(store.depth, store.where),
    )
    into, out = write_port(words), read_port(words)
    m.d.comb += [
        into.en.eq(write.enable),
        into.addr.eq(write.address),
        into.data.eq(write.data),
        out.addr.eq(address),
        out.en.eq(1 if enable is None else enable),
    ]
    return out.data
