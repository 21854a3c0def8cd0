"""Memory port of the engine: arbitrates the units' bursts on one AXI4 bus, and returns read words with tags."""

from __future__ import annotations

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, fifo, stream
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import counter_bits
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.bursts import request_layout
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.lookup import named

#: Width in bits of each field of `PACE`, the memory port's speed: a number of beats, and the cycles that they take.
PACE_BITS = 8
#: Amaranth layout of the memory port's speed: ``beats`` beats take ``cycles`` cycles. A 0 counts as 1. With more beats
#: than cycles, reads and writes have the port at the same time, each of them at most a beat per cycle.
PACE = data.StructLayout({"cycles": PACE_BITS, "beats": PACE_BITS})


class Target(enum.Enum, shape=3):
    """Destination in the engine of words read from memory: a buffer, the job queues, or nothing."""

    NOTHING = 0
    JOB = 1
    MAP = 2
    WEIGHTS = 3
    PARAMETERS = 4
    TABLES = 5
    ADDEND = 6


class Error(enum.Enum, shape=4):
    """Error code of an engine's run: an AXI error response or, starting at 8, a refused job, deadlock or stop."""

    NONE = 0
    READ_SLAVE = 2
    READ_DECODE = 3
    WRITE_SLAVE = 6
    WRITE_DECODE = 7
    #: Error of a job whose checksum is wrong, or belongs to another position in the program.
    DAMAGED = 8
    #: Error of a job that was compiled for another engine.
    FOREIGN = 9
    #: Error of a job with an invalid field, by a rule of `hwgen.gateware.engine.check`.
    FIELD = 10
    #: Error of a run whose jobs wait for each other forever (deadlock).
    STUCK = 11
    #: Error of a run that the host stopped.
    STOPPED = 12


def check_pace(pace: object, pace_beats: object) -> None:
    """Raise `ConfigError` unless the memory port can move ``pace_beats`` beats in ``pace`` cycles.

    It can move up to two beats per cycle, one of them read and one written.
    """
    max_pace = (1 << PACE_BITS) - 1
    if type(pace) is not int or not 1 <= pace <= max_pace:
        raise ConfigError(f"pace must be from 1 to {max_pace}, not {pace!r}")
    max_beats = min(2 * pace, max_pace)
    if type(pace_beats) is not int or not 1 <= pace_beats <= max_beats:
        raise ConfigError(f"pace_beats must be from 1 to {max_beats} with a pace of {pace}, not {pace_beats!r}")


def add_room_flag(m: Module, name: str, queue: fifo.SyncFIFO) -> Signal:
    """Add and return a register (`Signal`) equal to a FIFO's ``w_rdy``; write the FIFO only while it is high."""
    has_room = Signal(name=name, init=1)
    popped, pushed = queue.r_en & queue.r_rdy, queue.w_en
    with m.If(pushed & ~popped):
        m.d.sync += has_room.eq(queue.level != queue.depth - 1)
    with m.Elif(popped & ~pushed):
        m.d.sync += has_room.eq(1)
    return has_room


def tag_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a read burst's tag, which says where its words go when they arrive from memory.

    With ``fresh``, the first lane of the first beat goes to address ``place`` and position ``rest`` (a bank, or a lane
    of parameters). Otherwise it follows the previous burst. ``done`` marks the last burst of a job. On an engine of
    several cores, ``cores`` marks those whose buffers get the words.
    """
    rest = max(config.pixels, config.weight_banks, LANES) - 1
    cores = {"cores": config.cores} if config.has_cores else {}
    return data.StructLayout({"target": Target, "fresh": 1, "done": 1, "place": 16, "rest": rest.bit_length(), **cores})


def read_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a read request to the memory port: a burst, and a tag with its destination."""
    return data.StructLayout({"run": request_layout(config), "tag": tag_layout(config)})


def answer_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a beat of the port's read data: words, the burst's tag, first and last flags.

    A burst of 0 beats is answered by one meaningless word. ``present`` marks the words that belong to the burst,
    the lowest address first. ``word`` is the word of a beat that is not wide.
    """
    lanes, bits = config.bus_words, 8 * LANES
    answer = {"tag": tag_layout(config), "first": 1, "last": 1, "present": lanes, "word": bits}
    return data.StructLayout({**answer, "data": data.ArrayLayout(bits, lanes)})


def _read_entry_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of the port's FIFO entry for an outstanding read burst: tag, and a flag for no beats.

    With a bus of several words, it also has the lane of the first word, and ``wide`` and ``end`` of `request_layout`.
    """
    bits = config.lane_bits
    wide = {"wide": 1, "begin": bits, "end": bits} if bits else {}
    return data.StructLayout({"tag": tag_layout(config), "empty": 1, **wide})


#: Amaranth layout of the FIFO entry of an outstanding write burst: flags of a job's last burst, and of no beats.
_WRITE_ENTRY = data.StructLayout({"done": 1, "empty": 1})


def write_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a write request to the memory port: a burst, and a flag of a job's last burst."""
    return data.StructLayout({"run": request_layout(config), "done": 1})


def written_layout(config: EngineConfig) -> data.StructLayout:
    """Return the Amaranth layout of a beat of write data to the port: words, word enables, and a last-beat flag."""
    return data.StructLayout({"data": 8 * LANES * config.bus_words, "last": 1, "present": config.bus_words})


def outstanding_bits(config: EngineConfig) -> tuple[int, int]:
    """Return a pair: widths in bits of the memory port's FIFO entries for outstanding read and write bursts."""
    return _read_entry_layout(config).size, _WRITE_ENTRY.size


class MemoryPort(ConfiguredComponent[EngineConfig]):
    """Memory port of the engine: grants one burst at a time to the fetch, load or store unit, on one AXI4 bus.

    If memory moves more than one beat per cycle (`PACE`), it grants one burst of reads and one of writes at a time.

    See docs/reference/engine.md, "Memory port".

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    m_axi : Out(axi.Master)
        AXI4 master to memory.
    pace : In(PACE)
        Cycles per beat, as a fraction.
    fetch : In(stream of request_layout(config))
        Read bursts of jobs.
    store : In(stream of write_layout(config))
        Write bursts. A burst of 0 beats writes nothing, but counts in its turn.
    load : In(stream of read_layout(config))
        Read bursts of operands. A burst of 0 beats reads nothing, but is answered in its turn.
    written : In(stream of written_layout(config))
        Words of the write bursts, in order.
    answers : Out(stream of answer_layout(config), always ready)
        Words that were read.
    fault : In(Error)
        Error that another component detected.
    stored : Out(1)
        Pulse: a burst with ``done``, and all earlier bursts, are written.
    error : Out(Error)
        First error. No further burst is granted until reset.
    idle : Out(1)
        Whether no granted burst is outstanding.
    free : Out(1)
        Whether a burst of reads and a burst of writes can be granted: the previous bursts' cycles are over.

    Latency and throughput
        A burst that is granted in cycle t is requested in t + 1. A word whose last beat arrives in cycle r is answered
        in r + 1.
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "m_axi": Out(axi.Master(data_bytes=config.bus_bytes)),
                "pace": In(PACE),
                "fetch": In(stream.Signature(request_layout(config))),
                "store": In(stream.Signature(write_layout(config))),
                "load": In(stream.Signature(read_layout(config))),
                "written": In(stream.Signature(written_layout(config))),
                "answers": Out(stream.Signature(answer_layout(config), always_ready=True)),
                "fault": In(Error),
                "stored": Out(1),
                "error": Out(Error),
                "idle": Out(1),
                "free": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        axi.drive_constants(m, self.m_axi)
        reads, writes = (fifo.SyncFIFO(width=width, depth=config.outstanding) for width in outstanding_bits(config))
        m.submodules.reads, m.submodules.writes = reads, writes
        with m.If(self.error == Error.NONE):
            m.d.sync += self.error.eq(self.fault)
        self._elaborate_grants(m, reads, writes)
        self._elaborate_answers(m, reads)
        self._elaborate_stored(m, writes)
        self._elaborate_written(m)
        m.d.comb += self.idle.eq(~reads.r_rdy & ~writes.r_rdy)
        return m

    def _elaborate_grants(self, m: Module, reads: fifo.SyncFIFO, writes: fifo.SyncFIFO) -> None:
        """Add the arbiter, which grants a burst by priority (fetch, store, load) when the previous one is over."""
        bus, fetch, store, load = self.m_axi, self.fetch, self.store, self.load
        free = {owner: Signal(name=f"is_{owner}_free", init=1) for owner in ("read", "write", "memory")}
        may_read, may_write = Signal(name="may_read"), Signal(name="may_write")
        failed = self.error.as_value()[1] | self.error.as_value()[3]  # every error has one of these bits
        m.d.comb += self.free.eq(Cat(*free.values()).all())
        granted = {name: Signal(name=f"{name}_grant") for name in ("fetch", "store", "load")}
        run = Signal(request_layout(self.config), name="granted_request")
        m.d.comb += [
            may_read.eq(
                free["read"] & free["memory"] & ~failed & ~bus.arvalid & add_room_flag(m, "has_read_room", reads)
            ),
            may_write.eq(
                free["write"] & free["memory"] & ~failed & ~bus.awvalid & add_room_flag(m, "has_write_room", writes)
            ),
            fetch.ready.eq(may_read),
            store.ready.eq(may_write & ~granted["fetch"]),
            load.ready.eq(may_read & ~fetch.valid & ~granted["store"]),
            *(
                granted[name].eq(requests.valid & requests.ready)
                for name, requests in (("fetch", fetch), ("store", store), ("load", load))
            ),
            run.eq(load.payload.run),
        ]
        read_entry, write_entry = (
            Signal(_read_entry_layout(self.config), name="read_entry"),
            Signal(_WRITE_ENTRY, name="write_entry"),
        )
        m.d.comb += [read_entry.tag.eq(load.payload.tag), read_entry.empty.eq(run.beats == 0)]
        with m.If(granted["fetch"]):
            m.d.comb += [run.eq(fetch.payload), read_entry.tag.eq(0), read_entry.tag.target.eq(Target.JOB)]
        with m.Elif(granted["store"]):
            m.d.comb += run.eq(store.payload.run)
        if self.config.bus_words > 1:
            begin = run.address[: self.config.lane_bits]
            m.d.comb += [read_entry.wide.eq(run.wide), read_entry.begin.eq(begin), read_entry.end.eq(run.end)]
        m.d.comb += [write_entry.done.eq(store.payload.done), write_entry.empty.eq(run.beats == 0)]
        reading = granted["fetch"] | granted["load"]
        for outstanding, entry, now in ((reads, read_entry, reading), (writes, write_entry, granted["store"])):
            m.d.comb += [outstanding.w_data.eq(entry), outstanding.w_en.eq(now)]
        for channel, now in (("ar", reading), ("aw", granted["store"])):
            valid, ready, address, length = (getattr(bus, channel + name) for name in ("valid", "ready", "addr", "len"))
            size = getattr(bus, channel + "size")
            with m.If(now):
                m.d.sync += [valid.eq(run.beats != 0), address.eq(self._address(run)), length.eq(run.beats - 1)]
                if self.config.bus_words > 1:
                    sizes = axi.size_of(self.config.bus_bytes), axi.size_of(LANES)
                    m.d.sync += size.eq(Mux(run.wide, *sizes))
            with m.Elif(ready):
                m.d.sync += valid.eq(0)
            if self.config.bus_words == 1:
                m.d.comb += size.eq(axi.size_of(self.config.bus_bytes))
        self._elaborate_timelines(m, run.beats, reading, granted["store"], free)

    def _address(self, run: data.View) -> Value:
        """Return a `Value`: the byte address of a burst's first beat, which is a multiple of the beat's size."""
        bits = self.config.lane_bits
        if not bits:
            return named(run.address * LANES, "byte_address")
        return Cat(run.address[:bits] & (~run.wide).replicate(bits), run.address[bits:]) * LANES

    def _elaborate_timelines(
        self, m: Module, beats: Value, reading: Value, writing: Value, free: dict[str, Signal]
    ) -> None:
        """Add timers of the cycles that bursts occupy the port's reads, its writes, and memory; they set ``free``.

        Up to a beat per cycle, a burst occupies both reads and writes. With more, it occupies its own channel for a
        cycle per beat, and memory for the time that memory takes.
        """
        step, lack = Signal(PACE_BITS, name="beats_per_pace"), Signal(signed(PACE_BITS + 1), name="beats_less_cycles")
        is_apart, is_limited = Signal(name="reads_beside_writes"), Signal(name="memory_limits_both")
        pace, beats_per_pace = self.pace, named(self.pace.beats | (self.pace.beats == 0), "requested_beats")
        m.d.sync += [
            step.eq(beats_per_pace),
            lack.eq(beats_per_pace - pace.cycles),
            is_apart.eq((pace.beats > 1) & (pace.beats > pace.cycles)),
            is_limited.eq((pace.beats > pace.cycles) & (pace.beats < pace.cycles << 1)),
        ]
        for channel, own, other in (("read", reading, writing), ("write", writing, reading)):
            granted = named(own | (other & ~is_apart), f"{channel}_timeline_grant")
            self._elaborate_timeline(m, channel, (step, lack), beats, granted, free[channel])
        granted = named((reading | writing) & is_limited, "memory_timeline_grant")
        self._elaborate_memory_timeline(m, lack, beats, granted, is_limited, free["memory"])

    def _elaborate_memory_timeline(
        self, m: Module, excess: Signal, beats: Value, granted: Value, is_limited: Signal, free: Signal
    ) -> None:
        """Count the beats that memory still has to move for reads and writes together; set ``free`` if that is one.

        Memory moves more than one beat per cycle and fewer than two (``is_limited``). ``excess`` is the number of
        beats less the number of cycles that they take. Each cycle adds it to a credit. When the credit reaches the
        number of cycles, memory moves two beats instead of one; the second one may be of the next burst.
        """
        lack, credit = Signal(signed(PACE_BITS + 2), name="excess_less_cycles"), Signal(PACE_BITS, name="memory_credit")
        granted_beats = Signal(range(axi.MAX_BEATS + 1), name="memory_granted_beats")
        earlier_beats = Signal(signed(counter_bits(2 * axi.MAX_BEATS) + 1), name="memory_earlier_beats")
        left = named(earlier_beats + granted_beats, "memory_beats_left")
        lower = named(credit + lack, "memory_credit_after_two_beats")
        moves_two = named(lower >= 0, "memory_moves_two")
        m.d.sync += [
            lack.eq(self.pace.beats - (self.pace.cycles << 1)),
            granted_beats.eq(Mux(granted, beats, 0)),
            earlier_beats.eq(left),
            free.eq(~is_limited | (~granted & (left <= Mux(moves_two, 3, 2)))),
        ]
        with m.If(left > 0):
            m.d.sync += [earlier_beats.eq(left - 1 - moves_two), credit.eq(Mux(moves_two, lower, credit + excess))]

    def _elaborate_timeline(
        self, m: Module, channel: str, pace: tuple[Signal, Signal], beats: Value, granted: Value, free: Signal
    ) -> None:
        """Count the cycles that a granted burst occupies the read or write channel; set ``free`` at the end.

        A burst counts as at least two beats. ``free`` is a register with a high fan-out. ``pace`` has the beats of the
        port's pace, and the beats less the cycles.

        Each occupied cycle adds ``pace.beats`` to a credit. A tick ends a beat and takes ``pace.cycles`` off the
        credit. What is left of the credit shortens the next burst, so no fraction of a cycle is lost. A tick in the
        cycle of the grant is not counted in ``beats_left``, because the number of beats arrives late in that cycle.
        """
        step, lack = pace
        credit = Signal(PACE_BITS, name=f"{channel}_credit")
        lower = Signal(signed(PACE_BITS + 2), name=f"{channel}_credit_after_tick")
        tick, early, first = (
            Signal(name=f"{channel}_{name}") for name in ("beat_ends", "ended_at_grant", "is_at_first_beat")
        )
        beats_left = Signal(range(axi.MAX_BEATS + 1), name=f"{channel}_beats_left")
        m.d.comb += [lower.eq(credit + lack), tick.eq(lower >= 0)]
        with m.If(granted | ~free):
            m.d.sync += credit.eq(Mux(tick, lower, credit + step))
        with m.If(granted):
            m.d.sync += [free.eq(0), beats_left.eq(beats), early.eq(tick), first.eq(~tick)]
        with m.Elif(tick):
            m.d.sync += [first.eq(0), beats_left.eq(beats_left - (beats_left != 0))]
            with m.If(Mux(early, beats_left <= 2, ~first & (beats_left <= 1))):
                m.d.sync += free.eq(1)

    def _elaborate_answers(self, m: Module, reads: fifo.SyncFIFO) -> None:
        """Drive the output ``answers`` with each beat that memory returns, and the oldest read burst's tag."""
        bus, answer = self.m_axi, self.answers.payload
        asked = data.View(_read_entry_layout(self.config), reads.r_data)
        first = Signal(name="is_first_word", init=1)
        empty, taken = reads.r_rdy & asked.empty, bus.rvalid & bus.rready
        whole = self._elaborate_words(m, taken, asked, first)
        m.d.comb += [bus.rready.eq(reads.r_rdy & ~asked.empty), reads.r_en.eq(empty | (taken & bus.rlast))]
        m.d.sync += [
            self.answers.valid.eq(empty | (taken & whole)),
            answer.tag.eq(asked.tag),
            answer.first.eq(first),
            answer.last.eq(empty | bus.rlast),
        ]
        with m.If(taken & whole):
            m.d.sync += first.eq(bus.rlast)
        self._elaborate_error(m, taken, bus.rresp, "READ")

    def _elaborate_words(self, m: Module, taken: Value, burst: data.View, first: Signal) -> Value | int:
        """Drive the words of ``answers``; return a bit that a read beat completes an 8-byte word, or constant 1."""
        bus, config, answer = self.m_axi, self.config, self.answers.payload
        if config.bus_words > 1:
            self._elaborate_lanes(m, taken, burst, first)
            return 1
        word, whole = bus.rdata, 1
        if config.word_beats > 1:
            half, low = Signal(name="is_high_read_half"), Signal(len(bus.rdata), name="low_read_half", reset_less=True)
            with m.If(taken):
                m.d.sync += [half.eq(~half), low.eq(bus.rdata)]
            word, whole = Cat(low, bus.rdata), half
        m.d.sync += [answer.present.eq(1), answer.word.eq(word), answer.data[0].eq(word)]
        return whole

    def _elaborate_lanes(self, m: Module, taken: Value, burst: data.View, first: Signal) -> None:
        """Drive the words of ``answers`` from a bus of several words: all lanes, and the lane of a narrow beat."""
        bus, config, answer = self.m_axi, self.config, self.answers.payload
        lanes, bits = range(config.bus_words), config.lane_bits
        lane, next_lane = Signal(bits, name="narrow_lane"), Signal(bits, name="next_narrow_lane", reset_less=True)
        begin, end = Mux(first, burst.begin, 0), Mux(bus.rlast, burst.end, 0)
        wide = Cat((index >= begin) & ((end == 0) | (index < end)) for index in lanes)
        m.d.comb += lane.eq(Mux(first, burst.begin, next_lane))
        m.d.sync += [
            answer.present.eq(Mux(burst.wide, wide, Cat(lane == index for index in lanes))),
            answer.word.eq(Array(bus.rdata.word_select(index, len(answer.word)) for index in lanes)[lane]),
            answer.data.as_value().eq(bus.rdata),
        ]
        with m.If(taken):
            m.d.sync += next_lane.eq(lane + 1)

    def _elaborate_written(self, m: Module) -> None:
        """Drive the AXI write data channel: a word in two beats (4-byte bus), or the enabled words of a beat."""
        bus, word, config = self.m_axi, self.written.payload, self.config
        m.d.comb += bus.wvalid.eq(self.written.valid)
        if config.word_beats > 1:
            half = Signal(name="is_high_write_half")
            with m.If(bus.wvalid & bus.wready):
                m.d.sync += half.eq(~half)
            m.d.comb += [
                bus.wdata.eq(word.data.word_select(half, len(bus.wdata))),
                bus.wlast.eq(word.last & half),
                self.written.ready.eq(bus.wready & half),
            ]
        else:
            m.d.comb += [bus.wdata.eq(word.data), bus.wlast.eq(word.last), self.written.ready.eq(bus.wready)]
        lane_bytes = len(bus.wstrb) // config.bus_words
        m.d.comb += bus.wstrb.eq(Cat(enable.replicate(lane_bytes) for enable in word.present))

    def _elaborate_stored(self, m: Module, writes: fifo.SyncFIFO) -> None:
        """Drive ``stored``, a pulse when a job's last write burst, and all earlier bursts, have been answered."""
        bus = self.m_axi
        writing = data.View(_WRITE_ENTRY, writes.r_data)
        empty, taken = writes.r_rdy & writing.empty, bus.bvalid & bus.bready
        m.d.comb += [
            bus.bready.eq(writes.r_rdy & ~writing.empty),
            writes.r_en.eq(empty | taken),
            self.stored.eq(writes.r_en & writing.done),
        ]
        self._elaborate_error(m, taken, bus.bresp, "WRITE")

    def _elaborate_error(self, m: Module, taken: Value, response: Value, direction: str) -> None:
        """Add the capture of memory's first AXI error response in ``error``; ``direction`` is ``READ`` or ``WRITE``."""
        with m.If(taken & (self.error == Error.NONE)):
            for name in ("SLAVE", "DECODE"):
                with m.If(response == axi.Response[f"{name}_ERROR"]):
                    m.d.sync += self.error.eq(Error[f"{direction}_{name}"])
