"""One link of the chain that brings words to memories: those of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.load.store import CHAIN, PART_BITS, Store, writes_of
from hwgen.gateware.lookup import dense_table


@dataclass(frozen=True, kw_only=True)
class DistributeConfig:
    """The memories that are loaded by one link of the chain.

    Parameters
    ----------
    stores : tuple of Store
        In the order in which their words come.

    Raises
    ------
    ConfigError
        If there is none, or two have one name.
    """

    stores: tuple[Store, ...]

    #: Cycles from a word to the next link, or, where it is a memory's last one, to the memory's write.
    latency = 1

    def __post_init__(self) -> None:
        names = [store.name for store in self.stores]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"stores must be one or more, with names of their own, not {names}")

    @property
    def words(self) -> int:
        """Words of 32 bits that fill all memories."""
        return sum(store.words for store in self.stores)

    @property
    def most_parts(self) -> int:
        """Words of 32 bits that make the widest memory's one."""
        return max(store.parts for store in self.stores)

    @cached_property
    def resources(self) -> Resources:
        cost, stores = Cost(), self.stores
        part, address = counter_bits(self.most_parts), counter_bits(max(store.depth for store in stores))
        place = counter_bits(len(stores))
        # The word that is put together, a beat of the chain, counters, the address that is written and the enables.
        # Of a word's highest part the bits that no memory has are none.
        joined = max(PART_BITS * (self.most_parts - store.parts) + store.width for store in stores)
        cost.ff += joined + PART_BITS + 3 + 1 + part + 2 * address + place + len(stores)
        cost.lut += 2 * part + 1.5 * address + 1.5 * place + (1 if part < 2 else 1.5) * len(stores) + 5
        return cost.resources

    def component(self) -> Distribute:
        return Distribute(self)


class Distribute(wiring.Component):
    """Takes the words of its memories from a chain, and hands on those that come behind them.

    Parameters
    ----------
    config : DistributeConfig

    Members
    -------
    i : In(stream, always ready)
        ``begin``, the words of this link's memories and of all links behind it, ``end``.
    o : Out(stream, always ready)
        The same without this link's words.
    writes : Out
        By name of each memory, what writes it.

    Latency and throughput
        A word a cycle; what is handed on leaves a cycle later, and a memory is written in the cycle after its word's
        last part came.
    Reset
        Words are handed on until the next ``begin``.
    """

    def __init__(self, config: DistributeConfig):
        self._config = config
        super().__init__({"i": In(CHAIN), "o": Out(CHAIN), "writes": Out(writes_of(config.stores))})

    @property
    def config(self) -> DistributeConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        stores, most = self.config.stores, self.config.most_parts
        deepest = max(store.depth for store in stores)
        active, own = Signal(name="is_active"), Signal(name="is_own_part")
        part, address, store = (
            Signal(range(most), name="part_index"),
            Signal(range(deepest), name="word_address"),
            Signal(range(len(stores)), name="store_index"),
        )
        beat = self.i.payload
        m.d.comb += own.eq(self.i.valid & active & ~beat.begin & ~beat.end)
        m.d.sync += [self.o.valid.eq(self.i.valid & ~own), self.o.payload.eq(beat)]

        word = Signal(PART_BITS * most, name="loaded_word", reset_less=True)
        written = Signal(range(deepest), name="write_address", reset_less=True)
        complete, filled = Signal(name="word_complete"), Signal(name="store_filled")
        m.d.comb += [
            complete.eq(own & (part == dense_table(m, "last_part_index", store, [each.parts - 1 for each in stores]))),
            filled.eq(
                complete & (address == dense_table(m, "last_word_address", store, [each.depth - 1 for each in stores]))
            ),
        ]
        with m.If(own):
            m.d.sync += [
                word.eq(Cat(word, beat.data)[PART_BITS:]),
                part.eq(Mux(complete, 0, part + 1)),
                written.eq(address),
            ]
        with m.If(complete):
            m.d.sync += address.eq(Mux(filled, 0, address + 1))
        with m.If(filled):
            m.d.sync += [store.eq(store + 1), active.eq(store != len(stores) - 1)]
        with m.If(self.i.valid & beat.begin):
            m.d.sync += [active.eq(1), part.eq(0), address.eq(0), store.eq(0)]
        for number, each in enumerate(stores):
            write, enable = getattr(self.writes, each.name), Signal(name=f"{each.name}_write_enable")
            m.d.sync += enable.eq(complete & (store == number))
            # The parts came in at the top.
            start = PART_BITS * (most - each.parts)
            m.d.comb += [
                write.enable.eq(enable),
                write.address.eq(written),
                write.data.eq(word[start : start + each.width]),
            ]
        return m
