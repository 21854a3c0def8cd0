"""Map memory of the engine: keeps feature maps on the chip, so that they take no bandwidth of off-chip memory.

It works in parallel with the memory port. Its own load unit reads boxes of maps from it while the port reads other
operands, and the store unit writes results to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.engine.axi import MAX_BEATS
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.port import answer_layout, read_layout, write_layout, written_layout
from hwgen.gateware.lookup import delayed, named, ram, read_port, write_port

#: Depth of the FIFO of write bursts that wait for their words. A burst waits for at most four others.
_BURSTS = 8
#: Width in bits of a word of the on-chip map memory: 8 channels of a pixel.
_WORD_BITS = 8 * LANES


@dataclass(frozen=True, kw_only=True)
class MapMemoryConfig:
    """Configuration of the engine's on-chip feature map memory (`MapMemory`), with its FPGA resources."""

    engine: EngineConfig

    #: Cycles from a row's read address to the row's words at the output ``answers``.
    READ_LATENCY = 3

    @property
    def banks(self) -> int:
        """Number of banks of ``kept_rows`` rows that the high address bits of the map memory select."""
        return self.engine.kept_words // self.engine.bank_words

    @property
    def row_bits(self) -> int:
        """Width in bits of a row index over all banks of the map memory."""
        return counter_bits(self.engine.kept_rows) + counter_bits(self.banks)

    @cached_property
    def resources(self) -> Resources:
        cost, lanes = Cost(self.engine.device), self.engine.row_words
        cost.ram(_WORD_BITS, self.engine.kept_rows, self.engine.kept_ram, copies=self.banks * lanes)
        cost.ff += self.banks * lanes * _WORD_BITS + lanes * _WORD_BITS  # the words that are read, and the chosen ones
        cost.lut += lanes * _WORD_BITS * -(-(self.banks - 1) // 3)
        return cost.resources

    def component(self) -> MapMemory:
        return MapMemory(self)


class MapMemory(ConfiguredComponent[MapMemoryConfig]):
    """On-chip feature map memory of the engine, with a burst reader and a burst writer that work in parallel.

    Parameters
    ----------
    config : MapMemoryConfig

    Members
    -------
    load : In(stream of read_layout(engine.row_engine))
        Read bursts, whose beats are rows. A burst of 0 beats reads nothing, but is answered in its turn.
    answers : Out(stream of answer_layout(engine.row_engine), always ready)
        Rows that were read.
    store : In(stream of write_layout(engine))
        Write bursts. A burst of 0 beats writes nothing, but counts in its turn.
    written : In(stream of written_layout(engine))
        Words of the write bursts, in order.
    stored : Out(1)
        Pulse: a burst with ``done``, and all earlier bursts, are written.
    idle : Out(1)
        Whether no burst is in progress.

    Latency and throughput
        A read burst of ``n`` beats that is accepted in cycle t is answered in t + 4 to t + n + 3, and the next one is
        accepted in t + max(n, 1) at the earliest. Write bursts are accepted at least max(n, 2) cycles apart.
    """

    def __init__(self, config: MapMemoryConfig):
        engine = config.engine
        super().__init__(
            config,
            {
                "load": In(stream.Signature(read_layout(engine.row_engine))),
                "answers": Out(stream.Signature(answer_layout(engine.row_engine), always_ready=True)),
                "store": In(stream.Signature(write_layout(engine))),
                "written": In(stream.Signature(written_layout(engine))),
                "stored": Out(1),
                "idle": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        reads, address = self._elaborate_reads(m)
        writes, beat_index, enables = self._elaborate_writes(m)
        self._elaborate_banks(m, address, beat_index, enables)
        m.d.comb += self.idle.eq(~reads & ~writes)
        return m

    def _elaborate_reads(self, m: Module) -> tuple[Value, Signal]:
        """Add the burst reader, and drive ``answers`` except its words; return a pair: busy flag and row to read."""
        answer, bits = self.answers.payload, self.config.engine.row_engine.lane_bits
        left = Signal(range(MAX_BEATS + 1), name="reads_left")
        row = Signal(self.config.row_bits, name="read_row", reset_less=True)
        tag = Signal.like(answer.tag, name="read_tag", reset_less=True)
        first, is_empty = Signal(name="is_first_read", reset_less=True), Signal(name="is_empty_read", reset_less=True)
        run = self.load.payload.run
        last = named(left == 1, "is_last_read")
        m.d.comb += self.load.ready.eq((left == 0) | last)
        with m.If(self.load.valid & self.load.ready):
            m.d.sync += [left.eq(Mux(run.beats == 0, 1, run.beats)), row.eq(run.address[bits:])]
            m.d.sync += [tag.eq(self.load.payload.tag), first.eq(1), is_empty.eq(run.beats == 0)]
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), row.eq(row + 1), first.eq(0)]
        present = self._elaborate_present(m, run, first, last) & (~is_empty).replicate(len(answer.present))
        cycles = self.config.READ_LATENCY
        flags = delayed(m, "read_flags", Cat(tag.as_value(), first, last, present), cycles)
        m.d.comb += [
            self.answers.valid.eq(delayed(m, "read_valid", left != 0, cycles, reset_less=False)),
            Cat(answer.tag.as_value(), answer.first, answer.last, answer.present).eq(flags),
        ]
        return left != 0, row

    def _elaborate_present(self, m: Module, run: data.View, first: Signal, last: Value) -> Value:
        """Return a mask, one bit per word of the row being read: the word belongs to the burst."""
        engine = self.config.engine.row_engine
        begin, end = (Signal(engine.lane_bits, name=name, reset_less=True) for name in ("begin_lane", "end_lane"))
        with m.If(self.load.valid & self.load.ready):
            m.d.sync += [begin.eq(run.address[: engine.lane_bits]), end.eq(run.end)]
        return Cat((~first | (lane >= begin)) & (~last | (end == 0) | (lane < end)) for lane in range(engine.bus_words))

    def _elaborate_writes(self, m: Module) -> tuple[Value, Signal, Signal]:
        """Add the burst writer; return a triple: busy flag, written beat's index, a row's write enables by word."""
        engine = self.config.engine
        bits = engine.row_engine.lane_bits - engine.lane_bits  # of a beat's index in its row
        layout = data.StructLayout({"beat": self.config.row_bits + bits, "done": 1, "empty": 1})
        m.submodules.bursts = bursts = fifo.SyncFIFO(width=layout.size, depth=_BURSTS)
        entry, burst = Signal(layout, name="write_entry"), data.View(layout, bursts.r_data)
        run = self.store.payload.run
        beats = named(run.beats[(engine.word_beats - 1).bit_length() :], "write_beats")
        busy = Signal(range(MAX_BEATS + 1), name="cycles_left")
        m.d.comb += [
            self.store.ready.eq(busy == 0),
            entry.beat.eq(run.address[engine.lane_bits :]),
            entry.done.eq(self.store.payload.done),
            entry.empty.eq(beats == 0),
            bursts.w_data.eq(entry),
            bursts.w_en.eq(self.store.valid & self.store.ready),
        ]
        with m.If(bursts.w_en):
            m.d.sync += busy.eq(Mux(beats[1:] == 0, 1, beats - 1))
        with m.Elif(busy != 0):
            m.d.sync += busy.eq(busy - 1)
        index, next_index = (Signal.like(entry.beat, name=name) for name in ("write_index", "next_write_index"))
        first, word = Signal(name="is_first_write", init=1), self.written.payload
        enables = Signal(engine.row_words, name="write_enables")
        present = (
            self.written.valid & (index[:bits] == lane // engine.bus_words) & word.present[lane % engine.bus_words]
            for lane in range(engine.row_words)
        )
        m.d.comb += [
            self.written.ready.eq(1),
            index.eq(Mux(first, burst.beat, next_index)),
            enables.eq(Cat(present)),
            bursts.r_en.eq(bursts.r_rdy & (burst.empty | (self.written.valid & word.last))),
            self.stored.eq(bursts.r_en & burst.done),
        ]
        with m.If(self.written.valid):
            m.d.sync += [first.eq(word.last), next_index.eq(index + 1)]
        return bursts.r_rdy, index, enables

    def _elaborate_banks(self, m: Module, read_row: Signal, beat_index: Signal, enables: Signal) -> None:
        """Add the memories of all banks, their registered writes, and the multiplexers of the words that are read."""
        engine, answer, written = self.config.engine, self.answers.payload, self.written.payload
        bits = counter_bits(engine.kept_rows)
        row = Signal(self.config.row_bits, name="write_row", reset_less=True)
        words = Signal.like(written.data, name="write_words", reset_less=True)
        enabled = Signal.like(enables, name="write_enables_delayed")
        m.d.sync += [row.eq(beat_index[-self.config.row_bits :]), words.eq(written.data), enabled.eq(enables)]
        bank = delayed(m, "read_bank", read_row[bits:], 2) if self.config.banks > 1 else 0
        for lane in range(engine.row_words):
            read_words = []
            for index in range(self.config.banks):
                rows = ram(engine.device, _WORD_BITS, engine.kept_rows, engine.kept_ram)
                m.submodules[f"bank_{index}_{lane}"] = rows
                into, out = write_port(rows), read_port(rows)
                is_bank = row[bits:] == index if self.config.banks > 1 else 1
                m.d.comb += [
                    into.en.eq(enabled[lane] & is_bank),
                    into.addr.eq(row[:bits]),
                    into.data.eq(words.word_select(lane % engine.bus_words, _WORD_BITS)),
                    out.addr.eq(read_row[:bits]),
                ]
                read_words.append(delayed(m, f"read_word_{index}_{lane}", out.data, 1))
            m.d.comb += answer.data[lane].eq(delayed(m, f"chosen_word_{lane}", Array(read_words)[bank], 1))
