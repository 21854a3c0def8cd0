"""Fetch unit of the engine: reads a program's jobs from memory into the queues of the other units."""

from __future__ import annotations

from itertools import accumulate

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.engine.bursts import Bursts, request_layout, request_of, word_address
from hwgen.gateware.engine.config import LANES, EngineConfig, Variant
from hwgen.gateware.engine.job import COUNT_BITS, PARTS, JobPart, Load, job_words
from hwgen.gateware.lookup import named, ram, read_port, write_port

#: Index of the bit in a job's first word that marks the last job of a program.
_END_BIT = Load.layout()["end"].offset


def queued_parts(config: EngineConfig) -> dict[str, type[JobPart]]:
    """Return a dict by FIFO name of the class of job parts (load, compute, drain, store) that the FIFO holds."""
    return {**PARTS, **({"load_kept": Load} if config.has_map_memory else {})}


class PartQueue(wiring.Component):
    """FIFO of job parts (64-bit words of a descriptor) that wait for one unit: load, compute, drain or store.

    Parts are written word by word.

    Parameters
    ----------
    device : Device
        Device family of the queue's memory.
    part : type of JobPart
    depth : int
        Number of parts that can wait, besides the part that the unit works on.
    variant : Variant
        Variant of jobs.

    Members
    -------
    word : In(64)
        Word that is written.
    enable : In(number of the part's words)
        Write enables of the part's words.
    push : In(1)
        Pulse: the part being written is complete. Its last word is written in this cycle at the latest.
    room : Out(1)
        Whether another part can be written.
    o : Out(stream of the part's layout)
        Parts in order.

    Latency and throughput
        A part pushed into an empty queue in cycle c is valid at the output in c + 2. The next part is valid one cycle
        after a part is accepted, and ``room`` rises in that cycle.
    """

    def __init__(self, device: Device, part: type[JobPart], depth: int, variant: Variant = Variant.ONE_CORE):
        self._device = device
        self._part, self._words = part, part.num_words(variant)
        self._depth = depth
        super().__init__(
            {
                "word": In(8 * LANES),
                "enable": In(part.num_words(variant)),
                "push": In(1),
                "room": Out(1),
                "o": Out(stream.Signature(part.layout(variant))),
            }
        )

    @property
    def part(self) -> type[JobPart]:
        """Subclass of `JobPart` of the job parts that this FIFO holds, for example `Load`."""
        return self._part

    @property
    def words(self) -> int:
        """Number of 64-bit words of one job part in this FIFO."""
        return self._words

    @property
    def depth(self) -> int:
        """Maximum number of job parts stored in this FIFO, not counting the one at its output."""
        return self._depth

    def elaborate(self, platform):
        m = Module()
        words = data.ArrayLayout(8 * LANES, self.words)
        m.submodules.parts = parts = ram(self._device, words, self.depth, "lut")
        write, read = write_port(parts, granularity=1), read_port(parts, domain="comb")
        level, room = Signal(range(self.depth + 1), name="level"), Signal(name="has_room", init=1)
        offer = Signal(name="pop")
        m.d.comb += [
            *(field.eq(self.word) for field in write.data),
            write.en.eq(self.enable),
            self.room.eq(room),
            offer.eq((level != 0) & (~self.o.valid | self.o.ready)),
        ]
        m.d.sync += level.eq(level + self.push - offer)
        with m.If(self.push & ~offer):
            m.d.sync += room.eq(level != self.depth - 1)
        with m.Elif(offer & ~self.push):
            m.d.sync += room.eq(1)
        with m.If(self.push):
            m.d.sync += write.addr.eq(write.addr + 1)
        with m.If(offer):
            m.d.sync += [read.addr.eq(read.addr + 1), self.o.valid.eq(1), self.o.payload.eq(read.data.as_value())]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m


class FetchUnit(ConfiguredComponent[EngineConfig]):
    """Fetch unit of the engine: reads a program's jobs (descriptors) from memory into a FIFO per unit.

    It fetches a job when the previous job has arrived and every unit's queue has room for its part.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    begin : In(1)
        Pulse after reset that starts fetching the program.
    program_base : In(32)
        Byte address of the first job, a multiple of 8. Sampled with ``begin``.
    request : Out(stream of request_layout(config))
        Read bursts.
    word : In(stream of 64 bits, always ready)
        Words of jobs from memory.
    load, compute, drain, store : Out(stream of the part's layout)
        Parts of the jobs, for each unit.
    load_kept : Out(stream of Load), only with a map memory
        Load parts once more, for the load unit of the map memory.
    jobs : Out(24)
        Number of jobs that were fetched.
    ended : Out(1)
        Whether the last fetched job ends the program.

    Latency and throughput
        docs/reference/engine.md, "When bursts are ready".
    """

    def __init__(self, config: EngineConfig):
        super().__init__(
            config,
            {
                "begin": In(1),
                "program_base": In(32),
                "request": Out(stream.Signature(request_layout(config))),
                "word": In(stream.Signature(8 * LANES, always_ready=True)),
                **{
                    name: Out(stream.Signature(part.layout(config.variant)))
                    for name, part in queued_parts(config).items()
                },
                "jobs": Out(COUNT_BITS),
                "ended": Out(1),
            },
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bursts = bursts = Bursts(self.config)
        queues = {
            name: PartQueue(self.config.device, part, self.config.queue, self.config.variant)
            for name, part in queued_parts(self.config).items()
        }
        pushed, end, room = self._elaborate_queues(m, queues)
        wanted = Signal(name="is_job_wanted")
        box = bursts.i.payload
        request = request_of(self.config, bursts.o.payload.run, wide=False)
        m.d.comb += [
            bursts.i.valid.eq(wanted),
            box.blocks.eq(1),
            box.rows.eq(1),
            box.words.eq(job_words(self.config)),
            self.request.valid.eq(bursts.o.valid & room),
            *(self.request.payload[name].eq(value) for name, value in request.items()),
            bursts.o.ready.eq(self.request.ready & room),
        ]
        with m.If(self.begin):
            m.d.sync += [wanted.eq(1), box.address.eq(word_address(self.program_base))]
        with m.Elif(bursts.i.ready):
            m.d.sync += [wanted.eq(0), box.address.eq(box.address + job_words(self.config))]
        with m.Elif(pushed):
            m.d.sync += [wanted.eq(~end), self.ended.eq(end), self.jobs.eq(self.jobs + 1)]
        return m

    def _elaborate_queues(self, m: Module, queues: dict[str, PartQueue]) -> tuple[Signal, Signal, Signal]:
        """Add the FIFOs of job parts; return a triple of bits: job complete, program's last job, room in all FIFOs.

        The first flag is high when the last word of a job arrives.
        """
        pushed, end, room = Signal(name="job_push"), Signal(name="is_program_end"), Signal(name="has_room")
        words = job_words(self.config)
        word_index = Signal(range(words), name="word_index")
        last = named(word_index == words - 1, "is_last_word")
        m.d.comb += [pushed.eq(self.word.valid & last)]
        with m.If(self.word.valid):
            m.d.sync += word_index.eq(Mux(last, 0, word_index + 1))
            with m.If(word_index == 0):
                m.d.sync += end.eq(self.word.payload[_END_BIT])
        first_words = dict(zip(PARTS, accumulate((queues[name].words for name in PARTS), initial=0), strict=False))
        for name, queue in queues.items():
            first_word = first_words.get(name, 0)  # the load of kept maps is in the words of the load
            m.submodules[f"{name}_queue"] = queue
            wiring.connect(m, source=queue.o, sink=wiring.flipped(getattr(self, name)))
            m.d.comb += [
                queue.word.eq(self.word.payload),
                *(
                    queue.enable[word].eq(self.word.valid & (word_index == first_word + word))
                    for word in range(queue.words)
                ),
                queue.push.eq(pushed),
            ]
        m.d.comb += room.eq(Cat(queue.room for queue in queues.values()).all())
        return pushed, end, room
