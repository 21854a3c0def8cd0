"""Burst generator of the engine: splits boxes of words in memory (rows at constant strides) into AXI bursts."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value, signed
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


#: Fields of a box of 8-byte words in memory on an engine with one core, with their shapes.
_BOX = {
    "address": ADDRESS_BITS,
    "row_stride": ADDRESS_BITS,
    "block_stride": ADDRESS_BITS,
    "blocks": 12,
    "rows": 16,
    "words": ROW_BITS,
}
#: Additional fields on an engine of several cores.
_TEAMS = {"teams": 5, "team_stride": ADDRESS_BITS, "top": signed(16), "advance": 16, "height": 16}


def box_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a box of 8-byte words in memory: ``blocks`` blocks of ``rows`` rows of ``words`` words.

    Addresses and strides are in words. A box with 0 blocks is empty.

    On an engine of several cores, there are ``teams`` such boxes, ``team_stride`` apart; 0 teams are one. With
    ``height``, row ``y`` of team ``t`` has the index ``top + t * advance + y``. A row whose index is not from 0 to
    ``height - 1`` is a burst of 0 words.
    """
    return data.StructLayout(_BOX | (_TEAMS if config.has_cores else {}))


def run_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a run: consecutive memory words that one AXI burst moves.

    An empty box has a run of 0 words.
    """
    return data.StructLayout({"address": ADDRESS_BITS, "words": range(config.burst_words + 1)})


def box_burst(config: EngineConfig) -> data.StructLayout:
    """Return the layout of one burst of a box of memory words, with flags of the box's structure.

    The flags mark the first burst of a row, block or box, and the last burst. On an engine of several cores, a flag
    marks the first burst of a team, too.
    """
    team = {"new_team": 1} if config.has_cores else {}
    flags = {"new_row": 1, "new_block": 1, **team, "new_box": 1, "last": 1}
    return data.StructLayout({"run": run_layout(config), **flags})


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
    i : In(stream of box_layout(config))
        Boxes. A box is taken together with its last burst.
    o : Out(stream of box_burst(config))
        Bursts, in order of their addresses in the box.

    Latency and throughput
        The first burst of a box is offered two cycles after the box, and every further burst two cycles after the
        burst before was taken. The next box is considered one cycle after the last burst was taken.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            config, {"i": In(stream.Signature(box_layout(config))), "o": Out(stream.Signature(box_burst(config)))}
        )

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
        teams = _Teams(m, box) if self.config.has_cores else None
        in_border = (max_words - 1).bit_length()
        m.d.comb += [
            to_border.eq(max_words - address[:in_border]),
            fits.eq(words_left <= to_border),
            burst.run.address.eq(address),
            burst.run.words.eq(words),
            burst.new_row.eq(fresh[0]),
            burst.new_block.eq(fresh[1]),
            burst.new_box.eq(fresh[2]),
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
                if teams:
                    teams.begin(m, empty)
                with m.If(self.i.valid):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                if teams:
                    teams.measure(m)
                run_words = Mux(fits, words_left, to_border)
                m.d.sync += [
                    words.eq(teams.kept(run_words) if teams else run_words),
                    ends[0].eq(fits | teams.skips if teams else fits),
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
                        if teams:
                            teams.same_row(m)
                    with m.Elif(~ends[1]):
                        m.d.sync += [address.eq(next_row), row.eq(next_row), words_left.eq(box.words)]
                        m.d.sync += [rows_left.eq(rows_left - 1), fresh.eq(0b001)]
                        if teams:
                            teams.next_row(m)
                    with m.Elif(~ends[2]):
                        m.d.sync += [address.eq(next_block), row.eq(next_block), block.eq(next_block)]
                        m.d.sync += [words_left.eq(box.words), rows_left.eq(box.rows)]
                        m.d.sync += [blocks_left.eq(blocks_left - 1), fresh.eq(0b011)]
                        if teams:
                            teams.next_block(m)
                    if teams:
                        with m.Elif(~teams.is_last):
                            m.d.sync += [register.eq(teams.next_address) for register in (address, row, block)]
                            m.d.sync += [words_left.eq(box.words), rows_left.eq(box.rows), blocks_left.eq(box.blocks)]
                            m.d.sync += fresh.eq(0b011)
                            teams.next_team(m)
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "BEGIN"
        if teams:
            m.d.comb += [burst.new_team.eq(teams.is_new), burst.last.eq(ends.all() & teams.is_last)]
        else:
            m.d.comb += burst.last.eq(ends.all())
        return m


class _Teams:
    """Registers of a burst generator on an engine of several cores: the present team, and the index of the row.

    The methods add their changes to the generator's states.
    """

    def __init__(self, m: Module, box: data.View) -> None:
        self._box = box
        self._address = Signal(ADDRESS_BITS, name="team_address", reset_less=True)
        self._left = Signal.like(box.teams, name="teams_left", reset_less=True)
        self._top, self._index = (
            Signal(signed(17), name=name, reset_less=True) for name in ("team_row_index", "row_index")
        )
        #: Whether the burst is the first of a team's box.
        self.is_new = Signal(name="is_new_team", reset_less=True)
        #: Whether the burst belongs to the last team's box.
        self.is_last = Signal(name="is_last_team", reset_less=True)
        #: Address of the next team's box.
        self.next_address = Signal(ADDRESS_BITS, name="next_team_address", reset_less=True)
        self._next_top = Signal(signed(17), name="next_team_row_index", reset_less=True)
        #: Whether the present row is not in the map.
        self.skips = Signal(name="skips_row")
        outside = named(self._index.as_unsigned() >= box.height, "is_row_outside")
        m.d.comb += self.skips.eq((box.height != 0) & outside)

    def kept(self, words: Value) -> Value:
        """Return the number of words of the present burst, 0 if its row is skipped."""
        return Mux(self.skips, 0, words)

    def begin(self, m: Module, empty: Value) -> None:
        """Begin with the first team of a box."""
        m.d.sync += [
            self._address.eq(self._box.address),
            self._left.eq(Mux(empty | (self._box.teams == 0), 1, self._box.teams)),
            self._top.eq(self._box.top),
            self._index.eq(self._box.top),
            self.is_new.eq(1),
        ]

    def measure(self, m: Module) -> None:
        """Compute what the next team begins with."""
        m.d.sync += [
            self.is_last.eq(self._left == 1),
            self.next_address.eq(self._address + self._box.team_stride),
            self._next_top.eq(self._top + self._box.advance),
        ]

    def same_row(self, m: Module) -> None:
        """Go on with another burst of the row."""
        m.d.sync += self.is_new.eq(0)

    def next_row(self, m: Module) -> None:
        """Go on with the next row of the block."""
        m.d.sync += [self._index.eq(self._index + 1), self.is_new.eq(0)]

    def next_block(self, m: Module) -> None:
        """Go on with the first row of the team's next block."""
        m.d.sync += [self._index.eq(self._top), self.is_new.eq(0)]

    def next_team(self, m: Module) -> None:
        """Begin with the box of the next team."""
        m.d.sync += [
            self._address.eq(self.next_address),
            self._left.eq(self._left - 1),
            self._top.eq(self._next_top),
            self._index.eq(self._next_top),
            self.is_new.eq(1),
        ]
