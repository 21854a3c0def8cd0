"""Boxes of words in memory, burst by burst."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES

#: Bits of the address of a word.
ADDRESS_BITS = 32 - (LANES.bit_length() - 1)
#: Bits of the words of a row; weights of a job are one row.
ROW_BITS = 24


#: ``blocks`` times ``rows`` rows of ``words`` words; addresses and strides in words. No blocks: an empty box.
BOX = data.StructLayout(
    {
        "address": ADDRESS_BITS,
        "row_stride": ADDRESS_BITS,
        "block_stride": ADDRESS_BITS,
        "blocks": 12,
        "rows": 16,
        "words": ROW_BITS,
    }
)
#: Words one behind the other, which a burst moves; none for an empty box.
RUN = data.StructLayout({"address": ADDRESS_BITS, "beats": range(MAX_BEATS + 1)})
#: A burst of a box: whether it is the first one of its row, of its block, of its box; the last one of its box.
BOX_BURST = data.StructLayout({"run": RUN, "new_row": 1, "new_block": 1, "new_box": 1, "last": 1})


def word_address(address: Value) -> Value:
    """The word at an address in bytes."""
    return address[LANES.bit_length() - 1 :]


class Bursts(wiring.Component):
    """Splits boxes into bursts: one a row, and one more for each address in it that is a multiple of 256 words.

    So no burst has more than 256 beats or crosses a border of 4 KiB, with words of 8 bytes.

    Members
    -------
    i : In(stream of BOX)
        Stays until its last burst is taken.
    o : Out(stream of BOX_BURST)

    Latency and throughput
        A box's first burst is offered two cycles after the box, every other one two cycles after the one before was
        taken. The next box is looked at a cycle after the last burst was taken.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(BOX)), "o": Out(stream.Signature(BOX_BURST))})

    def elaborate(self, platform):
        m = Module()
        box, burst = self.i.payload, self.o.payload
        address = Signal(ADDRESS_BITS, reset_less=True)
        row, next_row = (Signal(ADDRESS_BITS, name=name, reset_less=True) for name in ("row", "next_row"))
        block, next_block = (Signal(ADDRESS_BITS, name=name, reset_less=True) for name in ("block", "next_block"))
        words_left = Signal(ROW_BITS, reset_less=True)
        rows_left = Signal.like(box.rows, reset_less=True)
        blocks_left = Signal.like(box.blocks, reset_less=True)
        beats = Signal(range(MAX_BEATS + 1), reset_less=True)
        ends = Signal(3, reset_less=True)  # the row, the rows, the blocks
        fresh = Signal(3, reset_less=True)  # the row, the block, the box
        to_border = Signal(range(MAX_BEATS + 1))
        fits = Signal()
        in_border = (MAX_BEATS - 1).bit_length()
        m.d.comb += [
            to_border.eq(MAX_BEATS - address[:in_border]),
            fits.eq(words_left <= to_border),
            burst.run.address.eq(address),
            burst.run.beats.eq(beats),
            burst.new_row.eq(fresh[0]),
            burst.new_block.eq(fresh[1]),
            burst.new_box.eq(fresh[2]),
            burst.last.eq(ends.all()),
        ]
        with m.FSM():
            with m.State("BEGIN"):
                empty = box.blocks == 0
                m.d.sync += [
                    address.eq(box.address),
                    row.eq(box.address),
                    block.eq(box.address),
                    words_left.eq(Mux(empty, 0, box.words)),
                    rows_left.eq(Mux(empty, 1, box.rows)),
                    blocks_left.eq(Mux(empty, 1, box.blocks)),
                    fresh.eq(0b111),
                ]
                with m.If(self.i.valid):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                m.d.sync += [
                    beats.eq(Mux(fits, words_left, to_border)),
                    ends[0].eq(fits),
                    ends[1].eq(rows_left == 1),
                    ends[2].eq(blocks_left == 1),
                    next_row.eq(row + box.row_stride),
                    next_block.eq(block + box.block_stride),
                ]
                m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "MEASURE"
                    with m.If(~ends[0]):
                        beyond = address[in_border:] + 1
                        m.d.sync += [address[:in_border].eq(0), address[in_border:].eq(beyond)]
                        m.d.sync += [words_left.eq(words_left - beats), fresh.eq(0)]
                    with m.Elif(~ends[1]):
                        m.d.sync += [address.eq(next_row), row.eq(next_row), words_left.eq(box.words)]
                        m.d.sync += [rows_left.eq(rows_left - 1), fresh.eq(0b001)]
                    with m.Elif(~ends[2]):
                        m.d.sync += [address.eq(next_block), row.eq(next_block), block.eq(next_block)]
                        m.d.sync += [words_left.eq(box.words), rows_left.eq(box.rows)]
                        m.d.sync += [blocks_left.eq(blocks_left - 1), fresh.eq(0b011)]
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "BEGIN"
        return m
