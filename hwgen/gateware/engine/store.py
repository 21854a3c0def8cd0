"""Store unit of the engine: writes the results of jobs from the output buffer to memory."""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.bursts import Bursts, request_of, word_address
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import COUNT_BITS, Store
from hwgen.gateware.engine.port import add_room_flag, write_layout, written_layout
from hwgen.gateware.lookup import delayed, named

#: Depth of the store unit's FIFO of granted write bursts, which wait to be read from the output buffer.
BURSTS = 4
#: Depth in beats of the FIFO between output buffer and memory port: enough to read one beat per cycle.
BEATS = 8


def source_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a granted burst in the store unit's FIFO: output buffer address, read count.

    With a bus of several words, the first beat has words starting at lane ``begin``. ``end`` is the number of words of
    the last beat; 0 means all of them.
    """
    bits = config.lane_bits
    lanes = {"begin": bits, "end": bits} if bits else {}
    core = {"core": range(config.cores)} if config.has_cores else {}
    place = range(config.output_words)
    return data.StructLayout({"place": place, "reads": range(MAX_BEATS + 1), **lanes, **core})


class StoreUnit(ConfiguredComponent[EngineConfig]):
    """Store unit of the engine: requests write bursts to memory job by job, and supplies their words.

    Parameters
    ----------
    config : EngineConfig
    latency : int
        Cycles from an address of the output buffer to its word.

    Members
    -------
    part : In(stream of Store)
        Store parts of the jobs. A part is accepted when its last burst is about to be requested.
    drained : In(24)
        Number of drained jobs.
    request : Out(stream of write_layout(config))
        Write bursts.
    written : Out(stream of written_layout(config))
        Words of the granted bursts, in order.
    address, word : Out, In(64 or more)
        Word address in the output buffer, and the word. With a bus of several words, the next words follow.
    core : Out, only with several cores
        Core whose output buffer is read.
    stored : In(24), only with a map memory
        Number of stored jobs. A part for another memory than the previous part's waits for all earlier ones.
    to_map_memory : Out(1), only with a map memory
        Whether the bursts and their words are for the map memory.

    Latency and throughput
        docs/reference/engine.md, "When bursts are ready". The first word of a burst that is granted in cycle t is
        valid in t + 3 + latency, if the words of all earlier bursts are written.
    """

    def __init__(self, config: EngineConfig, latency: int):
        self._latency = latency
        super().__init__(
            config,
            {
                "part": In(stream.Signature(Store.layout(config.variant))),
                "drained": In(COUNT_BITS),
                "request": Out(stream.Signature(write_layout(config))),
                "written": Out(stream.Signature(written_layout(config))),
                "address": Out(range(config.output_words)),
                "word": In(8 * LANES * config.bus_words),
                **({"core": Out(range(config.cores))} if config.has_cores else {}),
                **({"stored": In(COUNT_BITS), "to_map_memory": Out(1)} if config.has_map_memory else {}),
            },
        )

    @property
    def latency(self) -> int:
        """Read latency of the output buffer in cycles."""
        return self._latency

    def elaborate(self, platform):
        m = Module()
        m.submodules.bursts = bursts = Bursts(self.config)
        source = source_layout(self.config)
        m.submodules.granted = granted = fifo.SyncFIFO(width=source.size, depth=BURSTS)
        part, box = self.part.payload, bursts.i.payload
        m.d.comb += [
            bursts.i.valid.eq(self.part.valid),
            self.part.ready.eq(bursts.i.ready),
            box.address.eq(word_address(part.address)),
            box.row_stride.eq(word_address(part.row_stride)),
            box.block_stride.eq(word_address(part.block_stride)),
            box.blocks.eq(part.blocks),
            box.rows.eq(part.rows),
            box.words.eq(part.words),
        ]
        if self.config.has_cores:
            m.d.comb += [box.team_stride.eq(word_address(part.team_stride))]
            m.d.comb += [getattr(box, name).eq(part[name]) for name in ("teams", "top", "advance", "height")]
        take, full, met = Signal(name="burst_transfer"), Signal(name="has_request"), Signal(name="conditions_met")
        words = Signal.like(bursts.o.payload.run.words, name="burst_words", reset_less=True)
        burst, request = bursts.o.payload, self.request.payload
        m.d.comb += [
            self.request.valid.eq(full & add_room_flag(m, "has_room", granted)),
            bursts.o.ready.eq(met & ~full),
            take.eq(bursts.o.valid & bursts.o.ready),
        ]
        jobs = Signal(COUNT_BITS, name="job_index")
        has_turn = self._elaborate_memory(m, take, jobs) if self.config.has_map_memory else 1
        # A burst is valid a cycle after `Bursts` has its part, at the earliest: without a part, this has no effect.
        m.d.sync += met.eq((jobs != self.drained) & has_turn)
        with m.If(self.part.ready):
            m.d.sync += jobs.eq(jobs + 1)
        with m.If(take):
            run = request_of(self.config, burst.run, wide=True)
            m.d.sync += [full.eq(1), words.eq(burst.run.words), request.done.eq(burst.last)]
            m.d.sync += [request.run[name].eq(value) for name, value in run.items()]
        with m.Elif(self.request.valid & self.request.ready):
            m.d.sync += full.eq(0)
        entry = Signal(source, name="granted_entry")
        begin = self._elaborate_addresses(m, burst, words, take)
        bits = self.config.lane_bits
        first = request.run.address[:bits]
        if bits:
            m.d.comb += [entry.begin.eq(first), entry.end.eq(request.run.end)]
        m.d.comb += [
            entry.place.eq(begin - first),
            entry.reads.eq(request.run.beats if bits else words),
            *([entry.core.eq(self._core)] if self.config.has_cores else []),
            granted.w_data.eq(entry),
            granted.w_en.eq(self.request.valid & self.request.ready & (words != 0)),
        ]
        self._elaborate_words(m, granted)
        return m

    def _elaborate_memory(self, m: Module, take: Signal, jobs: Signal) -> Value:
        """Register which memory is written, off-chip or map memory; return a bit that bursts may start.

        An empty part uses the previous part's memory.
        """
        part, kept = self.part.payload, Signal(name="is_kept")
        m.d.comb += kept.eq(Mux(part.blocks == 0, self.to_map_memory, part.kept))
        with m.If(take):
            m.d.sync += self.to_map_memory.eq(kept)
        return (kept == self.to_map_memory) | (jobs == self.stored)

    def _elaborate_addresses(self, m: Module, burst: data.View, words: Signal, take: Signal) -> Signal:
        """Add registers of output buffer addresses; return a `Signal`: address of the current burst's first word.

        The next address is known two cycles ahead.
        """
        part = self.part.payload
        begin, block = (
            Signal.like(self.address, name="burst_address", reset_less=True),
            Signal.like(self.address, name="block_address", reset_less=True),
        )
        behind, next_block = (
            Signal.like(self.address, name=name, reset_less=True)
            for name in ("next_burst_address", "next_block_address")
        )
        m.d.sync += [behind.eq(begin + words), next_block.eq(block + part.o_plane)]
        new_block = Mux(burst.new_box, part.o_base, next_block)
        if self.config.has_cores:
            stays = self._elaborate_cores(m, burst, take)
            new_block = Mux(burst.new_team, part.o_base, Mux(stays, block, next_block))
        new_block = named(new_block, "new_block_address")
        with m.If(take):
            m.d.sync += begin.eq(Mux(burst.new_block, new_block, behind))
            with m.If(burst.new_block):
                m.d.sync += block.eq(new_block)
        return begin

    def _elaborate_cores(self, m: Module, burst: data.View, take: Signal) -> Value:
        """Register the core whose words a burst stores; return a bit: a new block keeps the buffer address.

        Then it is the previous block's address, in the next core of the team.
        """
        part, cores = self.part.payload, range(self.config.cores)
        first, member = Signal(cores, name="team_core", reset_less=True), Signal(cores, name="member", reset_less=True)
        last_member = Signal(cores, name="last_member", reset_less=True)
        next_first, next_member = Signal.like(first, name="burst_team_core"), Signal.like(member, name="burst_member")
        self._core = Signal(cores, name="burst_core", reset_less=True)
        m.d.sync += last_member.eq(((1 << part.members) - 1)[: len(member)])
        m.d.comb += [next_first.eq(first), next_member.eq(member)]
        with m.If(burst.new_box):
            m.d.comb += [next_first.eq(0), next_member.eq(0)]
        with m.Elif(burst.new_team):
            m.d.comb += [next_first.eq(first + last_member + 1), next_member.eq(0)]
        with m.Elif(burst.new_block):
            m.d.comb += next_member.eq(Mux(member == last_member, 0, member + 1))
        with m.If(take):
            m.d.sync += [first.eq(next_first), member.eq(next_member), self._core.eq(next_first + next_member)]
        return named(next_member != 0, "block_stays")

    def _elaborate_words(self, m: Module, granted: fifo.SyncFIFO) -> None:
        """Add a FIFO of beats, and the reader of granted bursts' words from the output buffer into the FIFO."""
        layout, step = written_layout(self.config), self.config.bus_words
        m.submodules.words = words = fifo.SyncFIFO(width=layout.size, depth=BEATS)
        burst = data.View(source_layout(self.config), granted.r_data)
        left, room = (
            Signal(range(MAX_BEATS + 1), name="reads_left"),
            Signal(range(BEATS + 1), name="free_beats", init=BEATS),
        )
        read, moved = Signal(name="read_enable"), Signal(name="output_transfer")
        m.d.comb += [
            read.eq((left != 0) & (room != 0)),
            moved.eq(words.r_rdy & words.r_en),
            granted.r_en.eq((left == 0) | ((left == 1) & read)),
        ]
        m.d.sync += room.eq(room - read + moved)
        with m.If(granted.r_en):
            m.d.sync += [self.address.eq(burst.place), left.eq(Mux(granted.r_rdy, burst.reads, 0))]
            if self.config.has_cores:
                m.d.sync += self.core.eq(burst.core)
        with m.Elif(read):
            m.d.sync += [self.address.eq(self.address + step), left.eq(left - 1)]
        last, present = named(left == 1, "is_last_read"), Signal(step, name="present_words", init=1)
        if step > 1:
            begin, end = (Signal(self.config.lane_bits, name=name) for name in ("begin_lane", "end_lane"))
            with m.If(granted.r_en):
                m.d.sync += [begin.eq(burst.begin), end.eq(burst.end)]
            with m.Elif(read):
                m.d.sync += begin.eq(0)
            lanes = ((lane >= begin) & (~last | (end == 0) | (lane < end)) for lane in range(step))
            m.d.comb += present.eq(Cat(lanes))
        read_flags = delayed(m, "read_flags", Cat(read, last, present), self.latency, reset_less=False)
        word = Signal(layout, name="written_beat")
        m.d.comb += [
            word.data.eq(self.word),
            word.last.eq(read_flags[1]),
            word.present.eq(read_flags[2:]),
            words.w_en.eq(read_flags[0]),
            words.w_data.eq(word),
            self.written.valid.eq(words.r_rdy),
            self.written.payload.eq(words.r_data),
            words.r_en.eq(self.written.ready),
        ]
