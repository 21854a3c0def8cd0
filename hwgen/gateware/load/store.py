"""Memories whose words are loaded at run time, and the words that load them.

Words of 32 bits go through all memories in turn: a memory's words from address 0 on, each in as many parts as it takes,
the lowest bits first. What comes in front of them, and behind, is said in `hwgen.gateware.load.loader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from amaranth import Module, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import Out

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import ram_attributes
from hwgen.gateware.ports import read_port, write_port

#: Bits of a word on its way to the memories.
PART_BITS = 32

#: What goes along a chain of `Distribute`: a word; or, with ``begin`` or ``end``, that the words begin or have ended.
CHAIN = stream.Signature(
    data.StructLayout({"begin": 1, "end": 1, "data": PART_BITS}),
    always_ready=True,
)


@dataclass(frozen=True, kw_only=True)
class Store:
    """A memory that is loaded.

    Parameters
    ----------
    name : str
        An identifier.
    width, depth : int
        Bits of a word, and how many.

    Raises
    ------
    ConfigError
        If a size is not positive.
    """

    name: str
    width: int
    depth: int

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")

    @property
    def parts(self) -> int:
        """Words of 32 bits that make one of the memory's."""
        return -(-self.width // PART_BITS)

    @property
    def words(self) -> int:
        """Words of 32 bits that fill the memory."""
        return self.parts * self.depth

    @property
    def write(self) -> wiring.Signature:
        """What writes it, as its source has it."""
        return wiring.Signature({"enable": Out(1), "address": Out(range(self.depth)), "data": Out(self.width)})

    def cut(self, contents: Sequence[int]) -> Iterator[int]:
        """The words of 32 bits that fill it with these; negative ones are taken as two's complement."""
        mask = (1 << PART_BITS) - 1
        for word in contents:
            rest = word % (1 << self.width)
            for _ in range(self.parts):
                yield rest & mask
                rest >>= PART_BITS

    def joined(self, words: Sequence[int]) -> tuple[int, ...]:
        """The inverse of `cut`."""
        starts = range(0, self.words, self.parts)
        return tuple(
            sum(part << (PART_BITS * place) for place, part in enumerate(words[start : start + self.parts]))
            for start in starts
        )


def writes_of(stores: Iterable[Store]) -> wiring.Signature:
    """What writes some memories, by their names, as its source has it."""
    return wiring.Signature({store.name: Out(store.write) for store in stores})


def stored(
    m: Module,
    store: Store,
    contents: Sequence[int],
    write: wiring.PureInterface,
    address: Value,
    enable: Value | None = None,
    where: str | None = None,
    name: str = "",
) -> Value:
    """The word at ``address``, a cycle later; a memory of one word gives it at once.

    Parameters
    ----------
    contents : sequence of int
        Before anything is loaded.
    enable : Value, optional
        The word stays as it was read last while this is low.
    where : str, optional
        In ``lut`` or ``block`` RAM; by its depth if not given.
    name : str, optional
        Of the memory, where it is one of several that hold the same.
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
        init=[word & mask for word in contents],
        attrs=ram_attributes(store.depth, where),
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
