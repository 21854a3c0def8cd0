"""Burst generator of the engine: splits boxes of words in memory (rows at constant strides) into AXI bursts."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.naming import named

#: Width of the address of an 8-byte word in memory, in bits.
ADDRESS_BITS = 32 - (LANES.bit_length() - 1)
#: Width of the number of words in a row, in bits. The weights of a job are one row.
ROW_BITS = 24


#: Layout of a box of 8-byte words in memory: ``blocks`` blocks of ``rows`` rows of ``words`` words. Addresses and
#: strides are in words. A box with 0 blocks is empty.
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


def run_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a run: consecutive memory words that one AXI burst moves.

    An empty box has a run of 0 words.
    """
    return data.StructLayout({"address": ADDRESS_BITS, "words": range(config.burst_words + 1)})


def box_burst(config: EngineConfig) -> data.StructLayout:
    """Return the layout of one burst of a box of memory words, with flags of the box's structure.

    The flags mark the first burst of a row, block or box, and the last burst.
    """
    return data.StructLayout({"run": run_layout(config), "new_row": 1, "new_block": 1, "new_box": 1, "last": 1})


def request_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a burst request to the engine's memory port: word address and number of beats.

    A request of 0 beats starts no transaction.

    With a bus of several words, ``wide`` means that each beat has all words of the bus, from a multiple of this number
    on. ``end`` is the number of words of the last beat that belong to the run; 0 means all of them. Without ``wide``,
    each beat has one word.
    """
    wide = {"wide": 1, "end": config.lane_bits} if config.bus_words > 1 else {}
    return data.StructLayout({"address": ADDRESS_BITS, "beats": range(MAX_BEATS + 1), **wide})


def request_of(config: EngineConfig, run: data.View, wide: Value | bool) -> dict[str, Value]:
    """Return, by name, the fields of a burst request to memory (`request_layout`) for a run of consecutive words.

    With ``wide``, beats have as many words as the bus.
    """
    if config.bus_words == 1:
        return {"address": run.address, "beats": run.words * config.word_beats}
    bits = config.lane_bits
    lane, is_some = run.address[:bits], named(run.words != 0, "has_run_words")
    wide_beats = named((run.words + (lane + (config.bus_words - 1))) >> bits, "wide_beats")
    return {
        "address": run.address,
        "beats": Mux(Value.cast(wide) & is_some, wide_beats, run.words),
        "wide": Value.cast(wide),
        "end": (run.words[:bits] + lane)[:bits] & is_some.replicate(bits),
    }


def word_address(address: Value) -> Value:
    """Return the index of the 8-byte memory word at a byte address."""
    return address[LANES.bit_length() - 1 :]


class Bursts(ConfiguredComponent[EngineConfig]):
    """Burst generator that splits each row of a box of memory words into AXI bursts, at multiples of the maximum size.

    So no burst has more than 256 beats, or crosses a 4 KiB boundary.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of BOX)
        Boxes. A box is taken together with its last burst.
    o : Out(stream of box_burst(config))
        Bursts, in order of their addresses in the box.

    Latency and throughput
        The first burst of a box is offered two cycles after the box, and every further burst two cycles after the
        burst before was taken. The next box is considered one cycle after the last burst was taken.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config, {"i": In(stream.Signature(BOX)), "o": Out(stream.Signature(box_burst(config)))})

    def elaborate(self, platform):
        m = Module()
        box, burst, max_words = self.i.payload, self.o.payload, self.config.burst_words
        address = Signal(ADDRESS_BITS, name="burst_address", reset_less=True)
        row, next_row = (
            Signal(ADDRESS_BITS, name=name, reset_less=True) for name in ("row_address", "next_row_address")
        )
        block, next_block = (
            Signal(ADDRESS_BITS, name=name, reset_less=True) for name in ("block_address", "next_block_address")
        )
        words_left = Signal(ROW_BITS, name="words_left", reset_less=True)
        rows_left = Signal.like(box.rows, name="rows_left", reset_less=True)
        blocks_left = Signal.like(box.blocks, name="blocks_left", reset_less=True)
        words = Signal(range(max_words + 1), name="burst_words", reset_less=True)
        ends = Signal(3, name="end_flags", reset_less=True)  # end of the row, of the block's rows, of the blocks
        fresh = Signal(3, name="new_flags", reset_less=True)  # first burst of a row, of a block, of the box
        to_border = Signal(range(max_words + 1), name="words_to_boundary")
        fits = Signal(name="row_fits")
        in_border = (max_words - 1).bit_length()
        m.d.comb += [
            to_border.eq(max_words - address[:in_border]),
            fits.eq(words_left <= to_border),
            burst.run.address.eq(address),
            burst.run.words.eq(words),
            burst.new_row.eq(fresh[0]),
            burst.new_block.eq(fresh[1]),
            burst.new_box.eq(fresh[2]),
            burst.last.eq(ends.all()),
        ]
        with m.FSM():
            with m.State("BEGIN"):
                empty = named(box.blocks == 0, "is_box_empty")
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
                    words.eq(Mux(fits, words_left, to_border)),
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
                        m.d.sync += [words_left.eq(words_left - words), fresh.eq(0)]
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
