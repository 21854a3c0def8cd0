"""The FIFO behind a pipeline that never stalls."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import ram_attributes
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class FifoConfig:
    """A FIFO of ``depth`` beats, written without asking and read as a stream.

    Parameters
    ----------
    lanes : int
        Values a beat (channels times pixels).
    bits, signed : int, bool
        Shape of one value.
    beats : int
        Beats a frame; the last of them leaves with ``last`` set.
    depth : int
        Beats it can hold; the credits its writer starts with (design: flow by credits).

    Raises
    ------
    ConfigError
        If a number is not positive.
    """

    lanes: int
    bits: int
    signed: bool
    beats: int
    depth: int

    #: Cycles from a write to the beat being offered by an otherwise empty FIFO.
    latency = 2

    def __post_init__(self) -> None:
        for name in ("lanes", "bits", "beats", "depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")

    @property
    def width(self) -> int:
        """Bits a beat."""
        return self.lanes * self.bits

    @property
    def memory_bits(self) -> int:
        return self.depth * self.width

    @property
    def beat(self) -> BeatFormat:
        """A beat as it leaves; only lanes and value shape matter."""
        return BeatFormat(
            channels=self.lanes, height=1, width=self.beats, lanes=self.lanes, bits=self.bits, signed=self.signed
        )


class Fifo(wiring.Component):
    """First in, first out, for a writer that counts credits and so never writes too much.

    Parameters
    ----------
    config : FifoConfig

    Members
    -------
    i : In(stream, always ready)
        An array of ``lanes`` values.
    o : Out(stream)
        The same beats in the same order, with ``last``.

    Latency and throughput
        A beat written to the empty FIFO is offered ``config.latency`` cycles later; one beat a cycle each way.
    """

    def __init__(self, config: FifoConfig):
        self._config = config
        beat = config.beat
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(beat.shape, config.lanes), always_ready=True)),
                "o": Out(beat.signature),
            }
        )

    @property
    def config(self) -> FifoConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        depth = self.config.depth
        m.submodules.storage = storage = memory.Memory(
            shape=self.config.width, depth=depth, init=[], attrs=ram_attributes(depth)
        )
        write, read = storage.write_port(), storage.read_port()
        level = Signal(range(depth + 1))  # beats stored, but for the one being offered
        fetch = Signal()
        m.d.comb += [
            write.data.eq(self.i.payload.as_value()),
            write.en.eq(self.i.valid),
            fetch.eq((level != 0) & (~self.o.valid | self.o.ready)),
            read.en.eq(fetch),
            self.o.payload.data.eq(read.data),
        ]
        for port, step in ((write, self.i.valid), (read, fetch)):
            with m.If(step):
                m.d.sync += port.addr.eq(Mux(port.addr == depth - 1, 0, port.addr + 1))
        m.d.sync += level.eq(level + self.i.valid - fetch)
        with m.If(fetch):
            m.d.sync += self.o.valid.eq(1)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        beat = Signal(range(self.config.beats))
        m.d.comb += self.o.payload.last.eq(beat == self.config.beats - 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += beat.eq(Mux(self.o.payload.last, 0, beat + 1))
        return m
