"""The FIFO behind a pipeline that never stalls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import check_place, delayed, place, ram_attributes
from hwgen.gateware.pieces import count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.ports import read_port, write_port
from hwgen.gateware.stream import BeatFormat, channels_layout

#: Beats in LUTs in front of a block RAM: as many as leave from when one is asked for until it can leave itself.
FRONT_DEPTH = 4


@dataclass(frozen=True, kw_only=True)
class FifoConfig:
    """A FIFO of ``depth`` beats, written without asking and read as a stream.

    Parameters
    ----------
    lanes, pixels : int
        Channels a beat, and the pixels of each.
    bits, signed : int, bool
        Shape of one value.
    beats : int
        Beats a frame; the last of them leaves with ``last`` set.
    depth : int
        Beats it can hold; the credits its writer starts with.
    memory_in : str, optional
        Where beats lie, in ``lut`` or ``block`` RAM; by the depth if not given. Beats move alike either way.

    Raises
    ------
    ConfigError
        If a number is not positive, or that RAM can't hold so many beats.
    """

    lanes: int
    bits: int
    signed: bool
    beats: int
    depth: int
    pixels: int = 1
    memory_in: str | None = None

    #: Cycles from a write to the beat being offered by an otherwise empty FIFO.
    latency = 2

    def __post_init__(self) -> None:
        for name in ("lanes", "bits", "beats", "depth", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        check_place("memory_in", self.memory_in, self.depth)

    @property
    def width(self) -> int:
        """Bits a beat."""
        return self.lanes * self.pixels * self.bits

    @property
    def memory_bits(self) -> int:
        return self.depth * self.width

    @property
    def in_block_ram(self) -> bool:
        """Whether beats are in block RAM, but for the oldest, which are in LUTs in front of it."""
        return (self.memory_in or place(self.depth)) == "block"

    @property
    def beat(self) -> BeatFormat:
        """A beat as it leaves; only lanes, pixels and value shape matter."""
        return BeatFormat(
            channels=self.lanes,
            height=1,
            width=self.beats * self.pixels,
            lanes=self.lanes,
            bits=self.bits,
            signed=self.signed,
            pixels=self.pixels,
        )

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        address, level, beat = counter_bits(self.depth), counter_bits(self.depth + 1), counter_bits(self.beats)
        count_pieces(cost, self.width, self.depth, self.memory_in)
        cost.ff += 2 * address + level + 1 + beat
        cost.lut += max(0, 2 * address + 4.2 * level + 1.7 * beat - 5.6)
        if self.in_block_ram:
            place, pieces = counter_bits(FRONT_DEPTH), len(piece_words(self.width, self.depth, self.memory_in))
            cost.ram(self.width + 1, FRONT_DEPTH)
            cost.ram(self.width, FRONT_DEPTH)
            # Between them: a register for each piece's word, where it goes and when; and the choice of the two.
            cost.ff += self.width * pieces + 4 * place + counter_bits(FRONT_DEPTH + 1) + 4
            cost.lut += self.width + 14
        return cost.resources

    def component(self) -> Fifo:
        return Fifo(self)


class Fifo(wiring.Component):
    """First in, first out, for a writer that counts credits and so never writes too much.

    Parameters
    ----------
    config : FifoConfig

    Members
    -------
    i : In(stream, always ready)
        A beat, ``[lane][pixel]``.
    o : Out(stream)
        The same beats in the same order, with ``last``.

    Latency and throughput
        A beat written to the empty FIFO is offered ``config.latency`` cycles later; one beat a cycle each way.

    A block RAM gives its words late in a cycle, and another component's logic follows. So a deep FIFO's oldest
    `FRONT_DEPTH` beats have places in LUTs. While the block RAM is empty a beat goes straight to its place. Otherwise
    places are given to the block RAM's beats, which arrive there two cycles later, before they can be the oldest.
    """

    def __init__(self, config: FifoConfig):
        self._config = config
        beat = config.beat
        super().__init__(
            {
                "i": In(stream.Signature(channels_layout(beat.shape, beat.lanes, beat.pixels), always_ready=True)),
                "o": Out(beat.signature),
            }
        )

    @property
    def config(self) -> FifoConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config, fetch, push = self.config, Signal(name="pop"), Signal(name="push")
        depth = FRONT_DEPTH if config.in_block_ram else config.depth
        level = _level(m, "level", depth, push, fetch)  # beats stored, but for the one being offered
        m.d.comb += fetch.eq((level != 0) & (~self.o.valid | self.o.ready))
        if config.in_block_ram:
            oldest = self._front(m, level, push, fetch)
        else:
            m.d.comb += push.eq(self.i.valid)
            oldest, _ = _ring(m, "storage", self.i.payload.as_value(), depth, push, fetch)
        m.d.comb += self.o.payload.data.eq(oldest)
        with m.If(fetch):
            m.d.sync += self.o.valid.eq(1)
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        beat = Signal(range(self.config.beats), name="beat_index")
        m.d.comb += self.o.payload.last.eq(beat == self.config.beats - 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += beat.eq(Mux(self.o.payload.last, 0, beat + 1))
        return m

    def _front(self, m: Module, level: Signal, push: Signal, fetch: Signal) -> Value:
        """The oldest beat, from LUTs, with a block RAM behind them; ``level`` counts the places given.

        ``push`` becomes whether a place is given, ``fetch`` asks for the beat in the oldest.
        """
        beat = self.i.payload.as_value()
        straight, follow, room = Signal(name="bypass"), Signal(name="refill"), Signal(name="has_room")
        stored = _level(m, "stored_beats", self.config.depth, self.i.valid & ~straight, follow)
        m.d.comb += [
            room.eq(level != FRONT_DEPTH),
            straight.eq(self.i.valid & (stored == 0) & room),
            follow.eq((stored != 0) & room),
            push.eq(straight | follow),
        ]
        # A place says whether its beat went straight there; the others arrive in a memory of their own.
        near, place_given = _ring(m, "front", Cat(beat, straight), FRONT_DEPTH, push, fetch)
        write, address, behind = memory_in_pieces(
            m, "storage", width=self.config.width, depth=self.config.depth, registered=True, where="block"
        )
        m.d.comb += [write.data.eq(beat), write.en.eq(self.i.valid & ~straight)]
        _step(m, write.addr, self.config.depth, write.en)
        _step(m, address, self.config.depth, follow)
        arrives = delayed(m, "refill", follow, 2, reset_less=False)
        arrived = delayed(m, "refill_address", place_given, 2)
        far, _ = _ring(m, "refilled", behind, FRONT_DEPTH, arrives, fetch, arrived)
        return Mux(near[-1], near[:-1], far)


def _level(m: Module, name: str, depth: int, push: Value, pop: Value) -> Signal:
    level = Signal(range(depth + 1), name=name)
    m.d.sync += level.eq(level + push - pop)
    return level


def _step(m: Module, address: Signal, depth: int, step: Value) -> None:
    with m.If(step):
        m.d.sync += address.eq(Mux(address == depth - 1, 0, address + 1))


def _ring(
    m: Module, name: str, word: Value, depth: int, push: Value, pop: Value, place: Value | None = None
) -> tuple[Value, Value]:
    """A LUT RAM that is written and read in turn: the word read by the last ``pop``, and the next place to be written.

    Written at ``place`` instead, if that is given.
    """
    m.submodules[name] = storage = memory.Memory(
        shape=len(word), depth=depth, init=[], attrs=ram_attributes(depth, "lut")
    )
    write, read = write_port(storage), read_port(storage)
    m.d.comb += [write.data.eq(word), write.en.eq(push), read.en.eq(pop)]
    _step(m, read.addr, depth, pop)
    if place is None:
        _step(m, write.addr, depth, push)
    else:
        m.d.comb += write.addr.eq(place)
    return read.data, write.addr
