"""Burst generator of the engine: splits boxes (strided regions of memory) into AXI bursts."""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import named

#: Width in bits of the engine's memory addresses in units of 8-byte words: 32-bit byte addresses without 3 low bits.
ADDRESS_BITS = 32 - (LANES.bit_length() - 1)
#: Width in bits of the field for the number of 8-byte words in a row of a memory box. A job's weights are one row.
ROW_BITS = 24


#: Dictionary from field name to shape: fields of `box_layout`, a strided memory region, on every engine.
_BOX_FIELDS = {
    "address": ADDRESS_BITS,
    "row_stride": ADDRESS_BITS,
    "block_stride": ADDRESS_BITS,
    "blocks": 12,
    "rows": 16,
    "words": ROW_BITS,
}
#: Dictionary from field name to shape: more fields of `box_layout` on an engine of several cores, whose teams (groups
#: of cores) have a region each.
_TEAM_FIELDS = {"teams": 5, "team_stride": ADDRESS_BITS, "top": signed(16), "advance": 16, "height": 16}


def box_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a box, a memory region: ``blocks`` blocks of ``rows`` rows of ``words`` words.

    A word has 8 bytes. Addresses and strides are in words. A box with 0 blocks is empty.

    On an engine of several cores, there are ``teams`` such boxes, ``team_stride`` apart; 0 teams are one. With
    ``height``, row ``y`` of team ``t`` has the index ``top + t * advance + y``. A row whose index is not from 0 to
    ``height - 1`` is a burst of 0 words.
    """
    return data.StructLayout(_BOX_FIELDS | (_TEAM_FIELDS if config.has_cores else {}))


def run_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a run, the 8-byte memory words of one AXI burst: address and number of words.

    An empty box has a run of 0 words.
    """
    return data.StructLayout({"address": ADDRESS_BITS, "words": range(config.burst_words + 1)})


def box_burst_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a burst of a memory box: words, flags of a row's, block's or box's first burst.

    ``last`` marks the last burst of the box. On an engine of several cores, a flag marks a team's first burst, too.
    """
    team = {"new_team": 1} if config.has_cores else {}
    flags = {"new_row": 1, "new_block": 1, **team, "new_box": 1, "last": 1}
    return data.StructLayout({"run": run_layout(config), **flags})


def request_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a burst request to the memory port: 8-byte word address, and number of beats.

    A request of 0 beats starts no transaction.

    With a bus of several words, ``wide`` means that each beat has all words of the bus, starting at a multiple of this
    number. ``end`` is the number of words of the last beat that belong to the run; 0 means all of them. Without
    ``wide``, each beat has one word.
    """
    wide = {"wide": 1, "end": config.lane_bits} if config.bus_words > 1 else {}
    return data.StructLayout({"address": ADDRESS_BITS, "beats": range(MAX_BEATS + 1), **wide})


def request_of(config: EngineConfig, run: data.View, wide: Value | bool) -> dict[str, Value]:
    """Return a dict of fields of a burst request (`request_layout`), by name, for a run of consecutive memory words.

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
    """Return a `Value`: the address in 8-byte words of the memory word at the byte address ``address``."""
    return address[LANES.bit_length() - 1 :]


class Bursts(ConfiguredComponent[EngineConfig]):
    """Generator of AXI bursts for each row of a memory region (box), cut at multiples of the maximum burst size.

    Therefore no burst has more than 256 beats, or crosses a 4 KiB boundary.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    i : In(stream of box_layout(config))
        Boxes. A box is accepted in the same cycle as its last burst.
    o : Out(stream of box_burst_layout(config))
        Bursts, in order of their addresses in the box.

    Latency and throughput
        The first burst of a box is valid two cycles after the box, and every further burst two cycles after the
        previous burst was accepted. The next box is considered one cycle after the last burst was accepted.
    """

    def __init__(self, config: EngineConfig) -> None:
        box, burst = stream.Signature(box_layout(config)), stream.Signature(box_burst_layout(config))
        super().__init__(config, {"i": In(box), "o": Out(burst)})

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
        ends = Signal(3, name="end_flags", reset_less=True)  # ends the row, the block's rows, the blocks
        fresh = Signal(3, name="new_flags", reset_less=True)  # first burst of the row, block, box
        to_border = Signal(range(max_words + 1), name="words_to_boundary")
        fits = Signal(name="row_fits")
        teams = _TeamBoxes(m, box) if self.config.has_cores else None
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
                    teams.start_box(m, empty)
                with m.If(self.i.valid):
                    m.next = "MEASURE"
            with m.State("MEASURE"):
                if teams:
                    teams.prepare_next(m)
                run_words = Mux(fits, words_left, to_border)
                m.d.sync += [
                    words.eq(teams.words_in_map(run_words) if teams else run_words),
                    ends[0].eq(fits | teams.skips_row if teams else fits),
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
                            teams.continue_row(m)
                    with m.Elif(~ends[1]):
                        m.d.sync += [address.eq(next_row), row.eq(next_row), words_left.eq(box.words)]
                        m.d.sync += [rows_left.eq(rows_left - 1), fresh.eq(0b001)]
                        if teams:
                            teams.advance_row(m)
                    with m.Elif(~ends[2]):
                        m.d.sync += [address.eq(next_block), row.eq(next_block), block.eq(next_block)]
                        m.d.sync += [words_left.eq(box.words), rows_left.eq(box.rows)]
                        m.d.sync += [blocks_left.eq(blocks_left - 1), fresh.eq(0b011)]
                        if teams:
                            teams.advance_block(m)
                    if teams:
                        with m.Elif(~teams.is_last):
                            m.d.sync += [register.eq(teams.next_address) for register in (address, row, block)]
                            m.d.sync += [words_left.eq(box.words), rows_left.eq(box.rows), blocks_left.eq(box.blocks)]
                            m.d.sync += fresh.eq(0b011)
                            teams.advance_team(m)
                    with m.Else():
                        m.d.comb += self.i.ready.eq(1)
                        m.next = "BEGIN"
        if teams:
            m.d.comb += [burst.new_team.eq(teams.is_new), burst.last.eq(ends.all() & teams.is_last)]
        else:
            m.d.comb += burst.last.eq(ends.all())
        return m


class _TeamBoxes:
    """Registers of a burst generator that step through the memory boxes of all teams (groups of cores) and their rows.

    The methods add statements to the states of the generator's FSM. Only an engine of several cores has teams.
    """

    def __init__(self, m: Module, box: data.View) -> None:
        self._box = box
        self._address = Signal(ADDRESS_BITS, name="team_address", reset_less=True)
        self._left = Signal.like(box.teams, name="teams_left", reset_less=True)
        self._top, self._index = (
            Signal(signed(17), name=name, reset_less=True) for name in ("team_row_index", "row_index")
        )
        #: Flag: the generator's current burst is the first of a team's memory box.
        self.is_new = Signal(name="is_new_team", reset_less=True)
        #: Flag: the generator's current burst belongs to the last team's memory box.
        self.is_last = Signal(name="is_last_team", reset_less=True)
        #: Address of the next team's box in memory, in 8-byte words.
        self.next_address = Signal(ADDRESS_BITS, name="next_team_address", reset_less=True)
        self._next_top = Signal(signed(17), name="next_team_row_index", reset_less=True)
        #: Flag: the current row lies outside the feature map, so its burst has no words.
        self.skips_row = Signal(name="skips_row")
        outside = named(self._index.as_unsigned() >= box.height, "is_row_outside")
        m.d.comb += self.skips_row.eq((box.height != 0) & outside)

    def words_in_map(self, words: Value) -> Value:
        """Return ``words``, the length in words of the current burst, or 0 if its row lies outside the feature map."""
        return Mux(self.skips_row, 0, words)

    def start_box(self, m: Module, empty: Value) -> None:
        """Load the registers for a new box's first team (group of cores); ``empty``: the box has no blocks."""
        m.d.sync += [
            self._address.eq(self._box.address),
            self._left.eq(Mux(empty | (self._box.teams == 0), 1, self._box.teams)),
            self._top.eq(self._box.top),
            self._index.eq(self._box.top),
            self.is_new.eq(1),
        ]

    def prepare_next(self, m: Module) -> None:
        """Register the next team's (group of cores') box address and first row, and whether this team is the last."""
        m.d.sync += [
            self.is_last.eq(self._left == 1),
            self.next_address.eq(self._address + self._box.team_stride),
            self._next_top.eq(self._top + self._box.advance),
        ]

    def continue_row(self, m: Module) -> None:
        """Clear the flag of a team's first burst; the next burst is in the current row."""
        m.d.sync += self.is_new.eq(0)

    def advance_row(self, m: Module) -> None:
        """Add 1 to the row index in the current block (8 channels) of the team's box."""
        m.d.sync += [self._index.eq(self._index + 1), self.is_new.eq(0)]

    def advance_block(self, m: Module) -> None:
        """Set the row index back to the memory region's first row, for the next block of 8 channels."""
        m.d.sync += [self._index.eq(self._top), self.is_new.eq(0)]

    def advance_team(self, m: Module) -> None:
        """Advance to the box of the next team (group of cores): address, first row, and number of teams left."""
        m.d.sync += [
            self._address.eq(self.next_address),
            self._left.eq(self._left - 1),
            self._top.eq(self._next_top),
            self._index.eq(self._next_top),
            self.is_new.eq(1),
        ]
