"""Maximum pool of the engine, 2 x 2 with stride 2, between requantisation and the output buffer.

The words of a fold arrive pixel by pixel in row-major order, and block by block for each pixel. The pool holds the
first pixel of a pair, and computes the maximum of the pair when the second pixel arrives. In even rows, a memory stores
this maximum, one word per pair and block. In odd rows, the maximum of the pair and of the stored word leaves. A last
odd row or column is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.lookup import delayed, ram, read_port, write_port

#: Widths in bits of an output buffer address, and of a tile's column index.
ADDRESS_BITS, COLUMN_BITS = 16, 10

#: Amaranth layout of an output word: its output buffer address, and 8 channels of a pixel as signed bytes.
WORD = data.StructLayout({"address": ADDRESS_BITS, "data": data.ArrayLayout(signed(8), LANES)})


@dataclass(frozen=True, kw_only=True)
class PoolConfig(OnDevice):
    """Configuration of the engine's 2 x 2 maximum pool (`Pool`): sizes of its memories, and FPGA resources.

    Parameters
    ----------
    words : int
        Maximum number of pixel pairs in a row, times blocks.
    blocks : int
        Maximum number of blocks per pixel.

    Raises
    ------
    ConfigError
        If ``words`` is less than 2, or ``blocks`` less than 1.
    """

    words: int
    blocks: int

    #: Latency in cycles, from an input word to the output word that it completes.
    latency = 4

    def __post_init__(self) -> None:
        for name, minimum in (("words", 2), ("blocks", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} must be {minimum} or more, not {getattr(self, name)!r}")

    @cached_property
    def resources(self) -> Resources:
        cost, bits, index = Cost(self.device), LANES * 8, counter_bits(self.words)
        cost.ram(bits, self.words, "block")
        cost.ram(bits, max(2, self.blocks), "lut")
        # Words in the pipeline, their addresses, and their control bits.
        cost.ff += 5 * bits + 4 * index + counter_bits(self.blocks) + ADDRESS_BITS + COLUMN_BITS + 10
        cost.lut += 290 + 6 * index  # as measured: two 64-bit maxima, and the address counters
        return cost.resources

    def component(self) -> Pool:
        return Pool(self)


class Pool(ConfiguredComponent[PoolConfig]):
    """Maximum pool of the engine, 2 x 2 with stride 2, of words (8 channels of a pixel); it can be bypassed.

    Parameters
    ----------
    config : PoolConfig

    Members
    -------
    i : In(stream, always ready)
        Words with their addresses in the output buffer.
    pool : In
        Whether the words of this job are pooled.
    last_column : In
        Index of the last pixel of a row (``pool`` only). It is an input, because a subtraction before the
        comparison would lengthen the critical path.
    pixel_end, last : In
        Whether this word is the last block of a pixel, and the last word of a fold.
    o : Out(stream, always ready)
        Words that leave. The address of a pooled word is the address of its last input pixel, less the difference
        between the numbers of input pixels and of pooled pixels so far in the fold.

    Latency and throughput
        One word per cycle. The word, or the pooled word that it completes, leaves ``config.latency`` cycles later.
        Never stalls.
    """

    def __init__(self, config: PoolConfig):
        words = stream.Signature(WORD, always_ready=True)
        super().__init__(
            config,
            {
                "i": In(words),
                "pool": In(1),
                "last_column": In(COLUMN_BITS),
                "pixel_end": In(1),
                "last": In(1),
                "o": Out(words),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config, word = self.config, self.i.payload.data
        odd_row, odd_column, block, pair, surplus = self._elaborate_walk(m)
        # Cycle 1 reads the first pixel of the pair. Cycle 2 has the maximum of the pair, which is written to the
        # memory, or compared with the word of the row above.
        valid = self.i.valid & self.pool
        pair_in, pair_out = self._memory(m, "pairs", max(2, config.blocks), "lut")
        m.d.comb += [
            pair_in.en.eq(valid & ~odd_column),
            pair_in.addr.eq(block),
            pair_in.data.eq(word.as_value()),
            pair_out.addr.eq(block),
        ]
        second = delayed(m, "word", word.as_value(), 1)
        pooled = delayed(m, "is_pooled", self.pool, 1)
        pair_word = delayed(m, "pair_maximum", Mux(pooled, _maximum(pair_out.data, second), second), 1)
        above_in, above_out = self._memory(m, "row_above", config.words, "block")
        m.d.comb += [
            above_in.en.eq(delayed(m, "row_above_write_enable", valid & odd_column, 2, reset_less=False)),
            above_in.addr.eq(delayed(m, "row_above_write_address", pair, 2)),
            above_in.data.eq(pair_word),
            above_out.addr.eq(delayed(m, "row_above_read_address", pair, 1)),
        ]
        above = delayed(m, "row_above_word", above_out.data, 1)
        pair_word = delayed(m, "pair_maximum_delayed", pair_word, 1)
        pooled = delayed(m, "is_pooled_delayed", pooled, 2)
        leaves = self.i.valid & (~self.pool | (odd_row & odd_column))
        address = self.i.payload.address - surplus
        result = Mux(pooled, _maximum(above, pair_word), pair_word)
        m.d.comb += [
            self.o.payload.data.as_value().eq(delayed(m, "maximum", result, 1)),
            self.o.payload.address.eq(delayed(m, "address", address[:ADDRESS_BITS], config.latency)),
            self.o.valid.eq(delayed(m, "output_valid", leaves, config.latency, reset_less=False)),
        ]
        return m

    def _elaborate_walk(self, m: Module) -> tuple[Value, Value, Value, Value, Value]:
        """Count an input word's position; return odd-row and odd-column bits, block, pair address and pixel surplus.

        The block is an index in the pixel, and the pair address is the memory address of a pair of pixels.

        The surplus is the number of input pixels less the number of pooled pixels before this word.
        """
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
        """Add a memory of ``depth`` 8-byte words in the RAM type ``where``; return its write port and read port."""
        m.submodules[name] = words = ram(self.config.device, LANES * 8, depth, where)
        return write_port(words), read_port(words)


def _maximum(first: Value, second: Value) -> Value:
    """Return, as one 64-bit word, the bytewise maxima of two words of eight signed bytes."""
    maxima = []
    for lane in range(LANES):
        one, other = (word[8 * lane : 8 * lane + 8].as_signed() for word in (first, second))
        maxima.append(Mux(one > other, one, other))
    return Cat(maxima)
