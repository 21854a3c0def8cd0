"""Boxes of words in memory, burst by burst."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES, EngineConfig

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


def run_layout(config: EngineConfig) -> data.StructLayout:
    """Words one behind the other, which a burst moves; none for an empty box."""
    return data.StructLayout({"address": ADDRESS_BITS, "words": range(config.burst_words + 1)})


def box_burst(config: EngineConfig) -> data.StructLayout:
    """A burst of a box: whether it is the first one of its row, of its block, of its box; the last one of its box."""
    return data.StructLayout({"run": run_layout(config), "new_row": 1, "new_block": 1, "new_box": 1, "last": 1})


def request_layout(config: EngineConfig) -> data.StructLayout:
    """A burst as memory is asked for it; no beats: it is not.

    Of a bus of two words, ``wide`` says that beats have both, from an even word on, and ``ragged`` that the last beat's
    second word is none of the run; otherwise each beat has a word.
    """
    wide = {"wide": 1, "ragged": 1} if config.bus_words > 1 else {}
    return data.StructLayout({"address": ADDRESS_BITS, "beats": range(MAX_BEATS + 1), **wide})


def request_of(config: EngineConfig, run: data.View, wide: Value | bool) -> dict[str, Value]:
    """The fields of a `request_layout` for a run; ``wide`` if its beats shall have as many words as the bus."""
    if config.bus_words == 1:
        return {"address": run.address, "beats": run.words * config.word_beats}
    odd = run.address[0] & run.words.any()
    beats = (run.words + odd + 1) >> 1
    return {
        "address": run.address,
        "beats": Mux(wide, beats, run.words),
        "wide": Value.cast(wide),
        "ragged": odd ^ run.words[0],
    }


def word_address(address: Value) -> Value:
    """The word at an address in bytes."""
    return address[LANES.bit_length() - 1 :]


class Bursts(wiring.Component):
    """Splits boxes into bursts: one a row, and one more at each address in it that is a multiple of a burst's words.

    So no burst has more than 256 beats or crosses a border of 4 KiB.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of BOX)
        Stays until its last burst is taken.
    o : Out(stream of box_burst(config))

    Latency and throughput
        A box's first burst is offered two cycles after the box, every other one two cycles after the one before was
        taken. The next box is looked at a cycle after the last burst was taken.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        super().__init__({"i": In(stream.Signature(BOX)), "o": Out(stream.Signature(box_burst(config)))})

    @property
    def config(self) -> EngineConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        box, burst, most = self.i.payload, self.o.payload, self.config.burst_words
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
        words = Signal(range(most + 1), name="burst_words", reset_less=True)
        ends = Signal(3, name="end_flags", reset_less=True)  # the row, the rows, the blocks
        fresh = Signal(3, name="new_flags", reset_less=True)  # the row, the block, the box
        to_border = Signal(range(most + 1), name="words_to_boundary")
        fits = Signal(name="row_fits")
        in_border = (most - 1).bit_length()
        m.d.comb += [
            to_border.eq(most - address[:in_border]),
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
