"""Memory port of the engine: arbitrates bursts of fetch, load and store units, and returns read words with tags."""

from __future__ import annotations

from amaranth import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, fifo, stream
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.bursts import request_layout
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.naming import named

#: Width, in bits, of each of the two numbers that state how long beats take on the memory port.
PACE_BITS = 8
#: Layout of the engine's ``pace``: ``beats`` beats of memory take ``cycles`` cycles. A 0 counts as 1. If memory moves
#: two beats per cycle or more, reads and writes have the port at the same time, a beat per cycle each. Otherwise more
#: beats than cycles count as one beat per cycle.
PACE = data.StructLayout({"cycles": PACE_BITS, "beats": PACE_BITS})


class Target(enum.Enum, shape=3):
    """Destination, in the engine, of words that are read from memory."""

    NOTHING = 0
    JOB = 1
    MAP = 2
    WEIGHTS = 3
    PARAMETERS = 4
    TABLES = 5
    ADDEND = 6


class Error(enum.Enum, shape=4):
    """Reason for which an engine's run ended: an error response of memory, or (from 8 on) an invalid program."""

    NONE = 0
    READ_SLAVE = 2
    READ_DECODE = 3
    WRITE_SLAVE = 6
    WRITE_DECODE = 7
    #: The checksum of a job is wrong, or belongs to another position in the program.
    DAMAGED = 8
    #: A job was compiled for another engine.
    FOREIGN = 9
    #: A job violates a rule of `hwgen.gateware.engine.check`.
    FIELD = 10
    #: Jobs wait for each other forever (deadlock).
    STUCK = 11
    #: The run was stopped by request.
    STOPPED = 12


def check_pace(pace: object, pace_beats: object) -> None:
    """Raise ConfigError unless the memory port can move ``pace_beats`` beats in ``pace`` cycles.

    It can move two beats in one cycle, one of them read and one written.
    """
    max_pace = (1 << PACE_BITS) - 1
    if type(pace) is not int or not 1 <= pace <= max_pace:
        raise ConfigError(f"pace must be from 1 to {max_pace}, not {pace!r}")
    if type(pace_beats) is not int or not 1 <= pace_beats <= max(pace, 2 * (pace == 1)):
        most = "1 or 2 with a pace of 1" if pace == 1 else f"from 1 to the pace, {pace}"
        raise ConfigError(f"pace_beats must be {most}, not {pace_beats!r}")


def room(m: Module, name: str, queue: fifo.SyncFIFO) -> Signal:
    """Add a register that equals ``w_rdy`` of a FIFO that is written only while the register is high; return it."""
    has_room = Signal(name=name, init=1)
    popped, pushed = queue.r_en & queue.r_rdy, queue.w_en
    with m.If(pushed & ~popped):
        m.d.sync += has_room.eq(queue.level != queue.depth - 1)
    with m.Elif(popped & ~pushed):
        m.d.sync += has_room.eq(1)
    return has_room


def tag_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a read burst's tag: the destination of its words, stored until they arrive.

    With ``fresh``, the first lane of the first beat goes to address ``place`` and position ``rest`` (a bank, or a
    lane of parameters). Otherwise it follows the burst before. ``done`` marks the last burst of a job. On an engine of
    several cores, ``cores`` marks those whose buffers get the words.
    """
    rest = max(config.pixels, config.weight_banks, LANES) - 1
    cores = {"cores": config.cores} if config.has_cores else {}
    return data.StructLayout({"target": Target, "fresh": 1, "done": 1, "place": 16, "rest": rest.bit_length(), **cores})


def read_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a read request to the memory port: a burst, and a tag with its destination."""
    return data.StructLayout({"run": request_layout(config), "tag": tag_layout(config)})


def answer_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of the port's answer to a read: words of one beat, the tag, and flags of first and last beat.

    A burst of 0 beats is answered by one word without a meaning. ``present`` marks the words that belong to the burst,
    the lowest address first. ``word`` is the word of a beat that is not wide.
    """
    lanes, bits = config.bus_words, 8 * LANES
    answer = {"tag": tag_layout(config), "first": 1, "last": 1, "present": lanes, "word": bits}
    return data.StructLayout({**answer, "data": data.ArrayLayout(bits, lanes)})


def _asked_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of the FIFO entry for an outstanding read burst.

    With a bus of several words, it also has the lane of the first word, and ``wide`` and ``end`` of `request_layout`.
    """
    bits = config.lane_bits
    wide = {"wide": 1, "begin": bits, "end": bits} if bits else {}
    return data.StructLayout({"tag": tag_layout(config), "empty": 1, **wide})


#: Layout of the FIFO entry for an outstanding write burst: flags of a job's last burst, and of a burst without beats.
_WRITING = data.StructLayout({"done": 1, "empty": 1})


def write_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a write request: a burst, and a flag of the last burst of a job."""
    return data.StructLayout({"run": request_layout(config), "done": 1})


def written_layout(config: EngineConfig) -> data.StructLayout:
    """Return the layout of a beat of data to write to memory: words, their enables, and a flag of the last beat."""
    return data.StructLayout({"data": 8 * LANES * config.bus_words, "last": 1, "present": config.bus_words})


def outstanding_bits(config: EngineConfig) -> tuple[int, int]:
    """Return the widths of the FIFO entries for outstanding read bursts and outstanding write bursts, in bits."""
    return _asked_layout(config).size, _WRITING.size


class MemoryPort(ConfiguredComponent[EngineConfig]):
    """Memory port of the engine, which grants one burst at a time to fetch, load or store, and returns read words.

    If memory is fast enough (`PACE`), it grants one burst of reads and one of writes at a time.

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
        Pulse: a burst with ``done``, and all bursts before, are written.
    error : Out(Error)
        First error. No further burst is granted until reset.
    idle : Out(1)
        Whether no granted burst is outstanding.
    free : Out(1)
        Whether a burst of reads and a burst of writes can be granted: the cycles of the bursts before are over.

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
        """Add the arbiter, which grants the port by priority (fetch, store, load) once the burst before is over."""
        bus, fetch, store, load = self.m_axi, self.fetch, self.store, self.load
        read_free, write_free = (Signal(name=f"is_{channel}_free", init=1) for channel in ("read", "write"))
        may_read, may_write = Signal(name="may_read"), Signal(name="may_write")
        failed = self.error.as_value()[1] | self.error.as_value()[3]  # every error has one of these bits
        m.d.comb += self.free.eq(read_free & write_free)
        granted = {name: Signal(name=f"{name}_grant") for name in ("fetch", "store", "load")}
        run = Signal(request_layout(self.config), name="granted_request")
        m.d.comb += [
            may_read.eq(read_free & ~failed & ~bus.arvalid & room(m, "has_read_room", reads)),
            may_write.eq(write_free & ~failed & ~bus.awvalid & room(m, "has_write_room", writes)),
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
            Signal(_asked_layout(self.config), name="read_entry"),
            Signal(_WRITING, name="write_entry"),
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
        self._elaborate_timelines(m, run.beats, reading, granted["store"], read_free, write_free)

    def _address(self, run: data.View) -> Value:
        """Return the byte address of the first beat of a memory burst. Wide beats begin at multiples of their size."""
        bits = self.config.lane_bits
        if not bits:
            return named(run.address * LANES, "byte_address")
        return Cat(run.address[:bits] & (~run.wide).replicate(bits), run.address[bits:]) * LANES

    def _elaborate_timelines(
        self, m: Module, beats: Value, reading: Value, writing: Value, read_free: Signal, write_free: Signal
    ) -> None:
        """Add the timelines of reads and of writes. A burst occupies both, unless memory moves two beats per cycle."""
        step, lack = Signal(PACE_BITS, name="beats_per_pace"), Signal(signed(PACE_BITS + 1), name="beats_less_cycles")
        is_apart = Signal(name="reads_beside_writes")
        beats_per_pace = named(self.pace.beats | (self.pace.beats == 0), "requested_beats")
        m.d.sync += [
            step.eq(beats_per_pace),
            lack.eq(beats_per_pace - self.pace.cycles),
            is_apart.eq((self.pace.beats > 1) & (self.pace.beats >= (self.pace.cycles << 1))),
        ]
        for channel, own, other, free in (
            ("read", reading, writing, read_free),
            ("write", writing, reading, write_free),
        ):
            granted = named(own | (other & ~is_apart), f"{channel}_timeline_grant")
            self._elaborate_timeline(m, channel, (step, lack), beats, granted, free)

    def _elaborate_timeline(
        self, m: Module, channel: str, pace: tuple[Signal, Signal], beats: Value, granted: Value, free: Signal
    ) -> None:
        """Add the counters of the cycles for which a granted burst occupies a channel; set ``free`` at the end.

        A burst counts as two beats at least. ``free`` is a register with a high fan-out. ``pace`` has the beats of the
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
        """Drive ``answers`` with the words of each beat read from memory, and the tag of the oldest read burst."""
        bus, answer = self.m_axi, self.answers.payload
        asked = data.View(_asked_layout(self.config), reads.r_data)
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
        """Drive the words of ``answers``; return whether a read beat completes an 8-byte word."""
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
        """Drive the words of ``answers`` behind a bus of several words: all lanes, and the lane of a narrow beat."""
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
        """Drive the bus's write data channel: each word in two beats, or the enabled words of a beat."""
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
        """Drive ``stored``, the pulse that a job's last write burst and all bursts before are answered."""
        bus = self.m_axi
        writing = data.View(_WRITING, writes.r_data)
        empty, taken = writes.r_rdy & writing.empty, bus.bvalid & bus.bready
        m.d.comb += [
            bus.bready.eq(writes.r_rdy & ~writing.empty),
            writes.r_en.eq(empty | taken),
            self.stored.eq(writes.r_en & writing.done),
        ]
        self._elaborate_error(m, taken, bus.bresp, "WRITE")

    def _elaborate_error(self, m: Module, taken: Value, response: Value, direction: str) -> None:
        """Store memory's first error response in the register ``error``; ``direction`` is ``READ`` or ``WRITE``."""
        with m.If(taken & (self.error == Error.NONE)):
            for name in ("SLAVE", "DECODE"):
                with m.If(response == axi.Response[f"{name}_ERROR"]):
                    m.d.sync += self.error.eq(Error[f"{direction}_{name}"])
