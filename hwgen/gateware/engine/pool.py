"""2 x 2 maximum pools of words on their way into the output buffer.

Words of a job come pixel by pixel in row-major order, and for each pixel block by block. The first pixel of a pair is
held; with the second comes the pair's maximum. It goes to a memory, a word for each pair and block. In odd rows it
meets what lies there of the row before, and the maximum of the four leaves. A last odd row or column is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.lookup import delayed, ram_attributes
from hwgen.gateware.ports import read_port, write_port

ADDRESS_BITS, COLUMN_BITS = 16, 10

WORD = data.StructLayout({"address": ADDRESS_BITS, "data": data.ArrayLayout(signed(8), LANES)})


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Memory of a `Pool`.

    Parameters
    ----------
    words : int
        Pairs of pixels in a row, times blocks, at most.
    blocks : int
        Blocks of a pixel at most.

    Raises
    ------
    ConfigError
        If a number is less than 2 or 1.
    """

    words: int
    blocks: int

    #: Cycles from a word to that which leaves.
    latency = 4

    def __post_init__(self) -> None:
        for name, least in (("words", 2), ("blocks", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be {least} or more, not {getattr(self, name)!r}")

    @cached_property
    def resources(self) -> Resources:
        cost, bits, index = Cost(), LANES * 8, counter_bits(self.words)
        cost.ram(bits, self.words, "block")
        cost.ram(bits, max(2, self.blocks), "lut")
        # Words on their way; where they are, and what goes along.
        cost.ff += 5 * bits + 4 * index + counter_bits(self.blocks) + ADDRESS_BITS + COLUMN_BITS + 10
        cost.lut += 290 + 6 * index  # as measured: two comparisons and choices of 64 bits, and the walk
        return cost.resources

    def component(self) -> Pool:
        return Pool(self)


class Pool(wiring.Component):
    """Takes words of pixels, gives words of pooled pixels; or lets words pass.

    Parameters
    ----------
    config : PoolConfig

    Members
    -------
    i : In(stream, always ready)
        Words and their addresses.
    pool : In
        The words of this job are pooled.
    last_column : In
        Pixels in a row, less one (``pool`` only): it is compared, and the difference would take its time.
    pixel_end, last : In
        The last block of a pixel, and the last word of a job.
    o : Out(stream, always ready)
        Words that leave. The address of one that was pooled is that of its last pixel, less as many as there are pixels
        before that one and not pooled pixels.

    Latency and throughput
        A word a cycle; it leaves, or the one that is made of it, ``config.latency`` cycles later. Never stalls.
    """

    def __init__(self, config: PoolConfig):
        self._config = config
        words = stream.Signature(WORD, always_ready=True)
        super().__init__(
            {
                "i": In(words),
                "pool": In(1),
                "last_column": In(COLUMN_BITS),
                "pixel_end": In(1),
                "last": In(1),
                "o": Out(words),
            }
        )

    @property
    def config(self) -> PoolConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, word = self.config, self.i.payload.data
        odd_row, odd_column, block, pair, surplus = self._elaborate_walk(m)
        # Cycle 1: the pair's other pixel. Cycle 2: the maximum of the pair; it is written, or the row above is read.
        valid = self.i.valid & self.pool
        pair_in, pair_out = self._memory(m, "pairs", max(2, config.blocks), "lut")
        m.d.comb += [
            pair_in.en.eq(valid & ~odd_column),
            pair_in.addr.eq(block),
            pair_in.data.eq(word.as_value()),
            pair_out.addr.eq(block),
        ]
        late = delayed(m, "word", word.as_value(), 1)
        pooled = delayed(m, "is_pooled", self.pool, 1)
        passing = delayed(m, "pair_maximum", Mux(pooled, _greatest(pair_out.data, late), late), 1)
        above_in, above_out = self._memory(m, "row_above", config.words, "block")
        m.d.comb += [
            above_in.en.eq(delayed(m, "row_above_write_enable", valid & odd_column, 2, reset_less=False)),
            above_in.addr.eq(delayed(m, "row_above_write_address", pair, 2)),
            above_in.data.eq(passing),
            above_out.addr.eq(delayed(m, "row_above_read_address", pair, 1)),
        ]
        above = delayed(m, "row_above_word", above_out.data, 1)
        late = delayed(m, "pair_maximum_delayed", passing, 1)
        pooled = delayed(m, "is_pooled_delayed", pooled, 2)
        leaves = self.i.valid & (~self.pool | (odd_row & odd_column))
        address = self.i.payload.address - surplus
        m.d.comb += [
            self.o.payload.data.as_value().eq(delayed(m, "maximum", Mux(pooled, _greatest(above, late), late), 1)),
            self.o.payload.address.eq(delayed(m, "address", address[:ADDRESS_BITS], config.latency)),
            self.o.valid.eq(delayed(m, "output_valid", leaves, config.latency, reset_less=False)),
        ]
        return m

    def _elaborate_walk(self, m: Module) -> tuple[Value, Value, Value, Value, Value]:
        """Where the word is: odd row, odd column, block, place of its pair; and pixels before it less pooled ones."""
        config = self.config
        odd_row, column = Signal(name="is_odd_row"), Signal(COLUMN_BITS, name="column_index")
        block = Signal(range(max(2, config.blocks)), name="block_index")
        pair, first = (
            Signal(range(config.words), name="pair_address"),
            Signal(range(config.words), name="first_pair_address"),
        )
        surplus = Signal(ADDRESS_BITS, name="surplus_pixels")
        row_end, odd_column = column == self.last_column, column[0]
        with m.If(self.i.valid & self.pool):
            m.d.sync += [block.eq(block + 1), pair.eq(pair + 1)]
            with m.If(self.pixel_end):
                m.d.sync += [block.eq(0), column.eq(column + 1)]
                with m.If(odd_column):
                    m.d.sync += first.eq(pair + 1)
                with m.Else():
                    m.d.sync += pair.eq(first)
                with m.If(~(odd_row & odd_column)):
                    m.d.sync += surplus.eq(surplus + 1)
                with m.If(row_end):
                    m.d.sync += [column.eq(0), odd_row.eq(~odd_row), pair.eq(0), first.eq(0)]
            with m.If(self.last):
                m.d.sync += [signal.eq(0) for signal in (odd_row, column, block, pair, first, surplus)]
        return odd_row, odd_column, block, pair, surplus

    def _memory(self, m: Module, name: str, depth: int, where: str):
        """A write port and a read port."""
        m.submodules[name] = words = memory.Memory(
            shape=LANES * 8, depth=depth, init=[], attrs=ram_attributes(depth, where)
        )
        return write_port(words), read_port(words)


def _greatest(first: Value, second: Value) -> Value:
    """Of two words, by lane."""
    greatest = []
    for lane in range(LANES):
        one, other = (word[8 * lane : 8 * lane + 8].as_signed() for word in (first, second))
        greatest.append(Mux(one > other, one, other))
    return Cat(greatest)
