"""The port to memory: who has it when, and what comes back for whom."""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.engine import axi
from hwgen.gateware.engine.bursts import request_layout
from hwgen.gateware.engine.config import LANES, EngineConfig

#: Bits of the number of cycles that a beat takes.
PACE_BITS = 8


class Target(enum.Enum, shape=3):
    """Where words go that are read."""

    NOTHING = 0
    JOB = 1
    MAP = 2
    WEIGHTS = 3
    PARAMETERS = 4
    TABLES = 5
    ADDEND = 6


class Error(enum.Enum, shape=4):
    """What stopped a run: how a read or a write was answered, or (from 8 on) a program that can't be run."""

    NONE = 0
    READ_SLAVE = 2
    READ_DECODE = 3
    WRITE_SLAVE = 6
    WRITE_DECODE = 7
    #: A job's checksum is wrong, or that of another place in the program.
    DAMAGED = 8
    #: A job is one of another engine.
    FOREIGN = 9
    #: A job breaks a rule of `hwgen.gateware.engine.check`.
    FIELD = 10
    #: Jobs wait for each other for ever.
    STUCK = 11
    #: The run was to be stopped.
    STOPPED = 12


def room(m: Module, name: str, queue: fifo.SyncFIFO) -> Signal:
    """Whether something fits into a queue that is never written otherwise: its ``w_rdy``, out of a register."""
    there = Signal(name=name, init=1)
    taken, given = queue.r_en & queue.r_rdy, queue.w_en
    with m.If(given & ~taken):
        m.d.sync += there.eq(queue.level != queue.depth - 1)
    with m.Elif(taken & ~given):
        m.d.sync += there.eq(1)
    return there


def tag_layout(config: EngineConfig) -> data.StructLayout:
    """What is kept of a burst until its words come.

    ``fresh``: its first word goes to ``place`` and ``rest`` (a word of a bank, a step's column, a block's lane);
    otherwise behind the burst before. ``done``: the job is loaded with it.
    """
    rest = max(config.pixels, config.blocks, LANES) - 1
    return data.StructLayout({"target": Target, "fresh": 1, "done": 1, "place": 16, "rest": rest.bit_length()})


def read_layout(config: EngineConfig) -> data.StructLayout:
    """A burst to be read."""
    return data.StructLayout({"run": request_layout(config), "tag": tag_layout(config)})


def answer_layout(config: EngineConfig) -> data.StructLayout:
    """A word that was read, the first or the last one of its burst. A burst of no beats has one that means nothing.

    A bus of two words gives both of a beat at once; ``present`` says which of them are the burst's, the lower address
    first.
    """
    present = {"present": config.bus_words} if config.bus_words > 1 else {}
    bits = 8 * LANES * config.bus_words
    return data.StructLayout({"tag": tag_layout(config), "first": 1, "last": 1, **present, "data": bits})


def _asked_layout(config: EngineConfig) -> data.StructLayout:
    """A burst that is being read; of a bus of two words whether beats have both, and whether the first word is an odd
    one and the last one an even one."""
    wide = {"wide": 1, "odd": 1, "ragged": 1} if config.bus_words > 1 else {}
    return data.StructLayout({"tag": tag_layout(config), "empty": 1, **wide})


#: A burst that is being written.
_WRITING = data.StructLayout({"done": 1, "empty": 1})


def write_layout(config: EngineConfig) -> data.StructLayout:
    """A burst to be written; ``done``: the job is stored with it."""
    return data.StructLayout({"run": request_layout(config), "done": 1})


def written_layout(config: EngineConfig) -> data.StructLayout:
    """A word to be written, or two; ``present`` says which of these."""
    present = {"present": config.bus_words} if config.bus_words > 1 else {}
    return data.StructLayout({"data": 8 * LANES * config.bus_words, "last": 1, **present})


def outstanding_bits(config: EngineConfig) -> tuple[int, int]:
    """What is kept of a burst that is read, and of one that is written."""
    return _asked_layout(config).size, _WRITING.size


class MemoryPort(wiring.Component):
    """Grants one burst after the other, and hands on what is answered. Rules: docs/reference/engine.md, "Memory port".

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    m_axi : Out(axi.Master)
    pace : In(8)
        Cycles that a beat takes; at least 1.
    fetch : In(stream of request_layout(config))
        Bursts of jobs to be read.
    store : In(stream of write_layout(config))
        Bursts to be written. No beats: nothing is written, but counted in its turn.
    load : In(stream of read_layout(config))
        Bursts to be read. No beats: nothing is read, but it is answered in its turn.
    written : In(stream of written_layout(config))
        The words of the bursts to be written, in their order.
    answers : Out(stream of answer_layout(config), always ready)
    fault : In(Error)
        An error that was found elsewhere.
    stored : Out(1)
        For a cycle: a burst with ``done`` was written, and all before.
    error : Out(Error)
        The first error. No burst is granted any more, until reset.
    idle : Out(1)
        Nothing that was granted is under way.
    free : Out(1)
        A burst may be granted: the one before has had its cycles.

    Latency and throughput
        A burst that is granted in cycle t is asked for in t + 1. A word whose last beat is taken from the bus in cycle
        r is among the answers in r + 1.
    """

    def __init__(self, config: EngineConfig):
        self._config = config
        super().__init__(
            {
                "m_axi": Out(axi.Master(data_bytes=config.bus_bytes)),
                "pace": In(PACE_BITS),
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
            }
        )

    @property
    def config(self) -> EngineConfig:
        return self._config

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
        """The first of the three that is ready has the port, when the burst before has had its cycles."""
        bus, fetch, store, load = self.m_axi, self.fetch, self.store, self.load
        free, may_read, may_write = (
            Signal(name="is_bus_free", init=1),
            Signal(name="may_read"),
            Signal(name="may_write"),
        )
        failed = self.error.as_value()[1] | self.error.as_value()[3]  # of all errors
        m.d.comb += self.free.eq(free)
        granted = {name: Signal(name=f"{name}_grant") for name in ("fetch", "store", "load")}
        run = Signal(request_layout(self.config), name="granted_request")
        m.d.comb += [
            may_read.eq(free & ~failed & ~bus.arvalid & room(m, "has_read_room", reads)),
            may_write.eq(free & ~failed & ~bus.awvalid & room(m, "has_write_room", writes)),
            fetch.ready.eq(may_read),
            store.ready.eq(may_write & ~granted["fetch"]),
            load.ready.eq(may_read & ~fetch.valid & ~granted["store"]),
            *(
                granted[name].eq(each.valid & each.ready)
                for name, each in (("fetch", fetch), ("store", store), ("load", load))
            ),
            run.eq(load.payload.run),
        ]
        asked, writing = Signal(_asked_layout(self.config), name="read_entry"), Signal(_WRITING, name="write_entry")
        m.d.comb += [asked.tag.eq(load.payload.tag), asked.empty.eq(run.beats == 0)]
        with m.If(granted["fetch"]):
            m.d.comb += [run.eq(fetch.payload), asked.tag.eq(0), asked.tag.target.eq(Target.JOB)]
        with m.Elif(granted["store"]):
            m.d.comb += run.eq(store.payload.run)
        if self.config.bus_words > 1:
            m.d.comb += [asked.wide.eq(run.wide), asked.odd.eq(run.address[0]), asked.ragged.eq(run.ragged)]
        m.d.comb += [writing.done.eq(store.payload.done), writing.empty.eq(run.beats == 0)]
        reading = granted["fetch"] | granted["load"]
        for outstanding, entry, now in ((reads, asked, reading), (writes, writing, granted["store"])):
            m.d.comb += [outstanding.w_data.eq(entry), outstanding.w_en.eq(now)]
        for channel, now in (("ar", reading), ("aw", granted["store"])):
            valid, ready, address, length = (getattr(bus, channel + name) for name in ("valid", "ready", "addr", "len"))
            size = getattr(bus, channel + "size")
            with m.If(now):
                m.d.sync += [valid.eq(run.beats != 0), address.eq(self._address(run)), length.eq(run.beats - 1)]
                if self.config.bus_words > 1:
                    m.d.sync += size.eq(axi.size_of(LANES) + run.wide)
            with m.Elif(ready):
                m.d.sync += valid.eq(0)
            if self.config.bus_words == 1:
                m.d.comb += size.eq(axi.size_of(self.config.bus_bytes))
        self._elaborate_timeline(m, run.beats, reading | granted["store"], free)

    def _address(self, run: data.View) -> Value:
        """Of a burst's first beat, in bytes: wide beats begin with an even word."""
        if self.config.bus_words == 1:
            return run.address * LANES
        return Cat(run.address[0] & ~run.wide, run.address[1:]) * LANES

    def _elaborate_timeline(self, m: Module, beats: Value, granted: Value, free: Signal) -> None:
        """Counts the cycles of a burst, at least those of two beats; ``free`` is a register, as much waits for it.

        A tick ends a beat. With a pace of 1 the first tick comes a cycle late, and so the last one does not count.
        """
        single, first_wait, wait = (
            Signal(name="is_pace_one"),
            Signal(PACE_BITS, name="first_beat_wait"),
            Signal(PACE_BITS, name="beat_wait"),
        )
        m.d.sync += [single.eq(self.pace == 1), wait.eq(self.pace - 1)]
        m.d.sync += first_wait.eq(Mux(self.pace == 1, 0, self.pace - 2))
        beats_left, cycles_left, first = (
            Signal(range(axi.MAX_BEATS + 1), name="beats_left"),
            Signal(PACE_BITS, name="cycles_left"),
            Signal(name="is_first_beat"),
        )
        with m.If(granted):
            m.d.sync += [free.eq(0), beats_left.eq(beats), cycles_left.eq(first_wait), first.eq(1)]
        with m.Elif(cycles_left != 0):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.Else():
            m.d.sync += [cycles_left.eq(wait), first.eq(0), beats_left.eq(beats_left - (beats_left != 0))]
            with m.If(Mux(single, beats_left <= 2, ~first & (beats_left <= 1))):
                m.d.sync += free.eq(1)

    def _elaborate_answers(self, m: Module, reads: fifo.SyncFIFO) -> None:
        """Each word, or both of a beat, with the tag of the oldest burst."""
        bus, answer = self.m_axi, self.answers.payload
        asked = data.View(_asked_layout(self.config), reads.r_data)
        first = Signal(name="is_first_word", init=1)
        empty, taken = reads.r_rdy & asked.empty, bus.rvalid & bus.rready
        whole, word = self._elaborate_word(m, taken, asked, first)
        m.d.comb += [bus.rready.eq(reads.r_rdy & ~asked.empty), reads.r_en.eq(empty | (taken & bus.rlast))]
        m.d.sync += [
            self.answers.valid.eq(empty | (taken & whole)),
            answer.tag.eq(asked.tag),
            answer.first.eq(first),
            answer.last.eq(empty | bus.rlast),
            answer.data.eq(word),
        ]
        with m.If(taken & whole):
            m.d.sync += first.eq(bus.rlast)
        self._elaborate_error(m, taken, bus.rresp, "READ")

    def _elaborate_word(self, m: Module, taken: Value, asked: data.View, first: Signal) -> tuple[Value | int, Value]:
        """Whether a beat ends a word, and the word, or two of them."""
        bus, config = self.m_axi, self.config
        if config.word_beats > 1:
            half, low = Signal(name="is_high_read_half"), Signal(len(bus.rdata), name="low_read_half", reset_less=True)
            with m.If(taken):
                m.d.sync += [half.eq(~half), low.eq(bus.rdata)]
            return half, Cat(low, bus.rdata)
        if config.bus_words > 1:
            later, odd = Signal(name="is_next_word_odd"), Signal(name="is_word_odd")
            m.d.comb += odd.eq(Mux(first, asked.odd, later))
            wide = Cat(~(first & asked.odd), ~(bus.rlast & asked.ragged))
            m.d.sync += self.answers.payload.present.eq(Mux(asked.wide, wide, Cat(~odd, odd)))
            with m.If(taken):
                m.d.sync += later.eq(~odd)
        return 1, bus.rdata

    def _elaborate_written(self, m: Module) -> None:
        """What is written goes to the bus: a word in as many beats as it takes, or those words of a beat that count."""
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
        present = word.present if config.bus_words > 1 else Const(1, 1)
        m.d.comb += bus.wstrb.eq(Cat(each.replicate(len(bus.wstrb) // len(present)) for each in present))

    def _elaborate_stored(self, m: Module, writes: fifo.SyncFIFO) -> None:
        """A job is stored when the last of its bursts, and all before, are answered."""
        bus = self.m_axi
        writing = data.View(_WRITING, writes.r_data)
        empty, taken = writes.r_rdy & writing.empty, bus.bvalid & bus.bready
        m.d.comb += [
            bus.bready.eq(writes.r_rdy & ~writing.empty),
            writes.r_en.eq(empty | taken),
            self.stored.eq(writes.r_en & writing.done),
        ]
        self._elaborate_error(m, taken, bus.bresp, "WRITE")

    def _elaborate_error(self, m: Module, taken: Value, response: Value, kind: str) -> None:
        """The first error stays."""
        with m.If(taken & (self.error == Error.NONE)):
            for name in ("SLAVE", "DECODE"):
                with m.If(response == axi.Response[f"{name}_ERROR"]):
                    m.d.sync += self.error.eq(Error[f"{kind}_{name}"])
