"""Link (one per layer) of the chain for run-time weights: stores its layer's words, passes on all others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.load.loaded_memory import CHAIN, PART_BITS, LoadedMemory, writes_of
from hwgen.gateware.lookup import dense_table


@dataclass(frozen=True, kw_only=True)
class DistributeConfig(OnDevice):
    """Configuration of a layer's link of the chain that carries run-time weights from layer to layer.

    Parameters
    ----------
    stores : tuple of LoadedMemory
        Memories of the link, in the order of their words' arrival.

    Raises
    ------
    ConfigError
        If there is no memory, or two memories have the same name.
    """

    stores: tuple[LoadedMemory, ...]

    #: Cycles that a word takes through this chain link, and cycles from a memory word's last part to the word's write.
    latency = 1

    def __post_init__(self) -> None:
        names = [store.name for store in self.stores]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"stores must be one or more, with names of their own, not {names}")

    @property
    def words(self) -> int:
        """Number of 32-bit load words that fill all memories of this chain link."""
        return sum(store.words for store in self.stores)

    @property
    def max_parts(self) -> int:
        """Number of 32-bit load words that make up one word of the link's widest memory."""
        return max(store.word_parts for store in self.stores)

    @cached_property
    def resources(self) -> Resources:
        cost, stores = Cost(self.device), self.stores
        part, address = counter_bits(self.max_parts), counter_bits(max(store.depth for store in stores))
        index = counter_bits(len(stores))
        # The assembled word, a beat of the chain, counters, the write address and the enables. Bits of the highest part
        # that no memory stores are removed.
        joined = max(PART_BITS * (self.max_parts - store.word_parts) + store.width for store in stores)
        cost.ff += joined + PART_BITS + 3 + 1 + part + 2 * address + index + len(stores)
        cost.lut += 2 * part + 1.5 * address + 1.5 * index + (1 if part < 2 else 1.5) * len(stores) + 5
        return cost.resources

    def component(self) -> Distribute:
        return Distribute(self)


class Distribute(ConfiguredComponent[DistributeConfig]):
    """Link of the weight-loading chain, one per layer: stores words of its own memories, passes later ones on.

    Parameters
    ----------
    config : DistributeConfig

    Members
    -------
    i : In(stream, always ready)
        ``begin``, then the words of this link's memories and of all later links, then ``end``.
    o : Out(stream, always ready)
        The same beats without this link's words.
    writes : Out
        Write ports of the memories, by name.

    Latency and throughput
        One word per cycle. A passed word leaves one cycle later. A memory is written in the cycle after the last part
        of its word arrived.
    Reset
        All words are passed on until the next ``begin``.
    """

    def __init__(self, config: DistributeConfig):
        super().__init__(config, {"i": In(CHAIN), "o": Out(CHAIN), "writes": Out(writes_of(config.stores))})

    def elaborate(self, platform):
        m = Module()
        stores, max_parts = self.config.stores, self.config.max_parts
        deepest = max(store.depth for store in stores)
        active, own = Signal(name="is_active"), Signal(name="is_own_part")
        part, address, store = (
            Signal(range(max_parts), name="part_index"),
            Signal(range(deepest), name="word_address"),
            Signal(range(len(stores)), name="store_index"),
        )
        beat = self.i.payload
        m.d.comb += own.eq(self.i.valid & active & ~beat.begin & ~beat.end)
        m.d.sync += [self.o.valid.eq(self.i.valid & ~own), self.o.payload.eq(beat)]

        word = Signal(PART_BITS * max_parts, name="loaded_word", reset_less=True)
        written = Signal(range(deepest), name="write_address", reset_less=True)
        complete, filled = Signal(name="word_complete"), Signal(name="store_filled")
        m.d.comb += [
            complete.eq(
                own & (part == dense_table(m, "last_part_index", store, [item.word_parts - 1 for item in stores]))
            ),
            filled.eq(
                complete & (address == dense_table(m, "last_word_address", store, [item.depth - 1 for item in stores]))
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
        for index, item in enumerate(stores):
            write, enable = getattr(self.writes, item.name), Signal(name=f"{item.name}_write_enable")
            m.d.sync += enable.eq(complete & (store == index))
            # Parts enter the shift register at the top.
            start = PART_BITS * (max_parts - item.word_parts)
            m.d.comb += [
                write.enable.eq(enable),
                write.address.eq(written),
                write.data.eq(word[start : start + item.width]),
            ]
        return m
