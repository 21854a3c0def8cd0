"""Output FIFO of a layer's pipeline, which never stalls: written without back-pressure, read as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import delayed, ram, read_port, write_port
from hwgen.gateware.pieces import count_pieces, memory_in_pieces, piece_words
from hwgen.gateware.stream import BeatFormat, channels_layout

#: Number of oldest beats that a FIFO in block RAM or UltraRAM keeps in LUT RAM, to cover the latency of the RAM.
FRONT_DEPTH = 4


@dataclass(frozen=True, kw_only=True)
class FifoConfig(OnDevice):
    """Configuration of a layer's output FIFO, which is written without back-pressure and read as a stream.

    Parameters
    ----------
    lanes, pixels : int
        Number of channels per beat, and number of pixels per channel.
    bits, signed : int, bool
        Shape of one value.
    beats : int
        Number of beats per frame. ``last`` marks the last beat of a frame.
    depth : int
        FIFO depth in beats. The writer starts with this number of credits.
    memory_in : str, optional
        Memory of the beats, ``lut``, ``block`` or ``ultra`` RAM. By default, the depth decides. The timing does not
        depend on it.

    Raises
    ------
    ConfigError
        If a number is not positive, or the memory cannot hold ``depth`` beats.
    """

    lanes: int
    bits: int
    signed: bool
    beats: int
    depth: int
    pixels: int = 1
    memory_in: str | None = None

    #: Cycles from the write of a beat into the empty FIFO until the beat is valid on the output stream.
    latency = 2

    def __post_init__(self) -> None:
        for name in ("lanes", "bits", "beats", "depth", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        self.memories.check_ram("memory_in", self.memory_in, self.depth)

    @property
    def width(self) -> int:
        """Width in bits of one beat in the FIFO: all lanes and pixels, without ``last``."""
        return self.lanes * self.pixels * self.bits

    @property
    def memory(self) -> str:
        """RAM that stores the FIFO's beats: ``lut``, ``block`` or ``ultra``, as ``memory_in`` says or by depth."""
        return self.memory_in or self.memories.default_ram(self.depth)

    @property
    def in_block_ram(self) -> bool:
        """Whether block RAM or UltraRAM stores the FIFO's beats, except the oldest ones, which are in LUT RAM."""
        return self.memory != "lut"

    @property
    def num_pieces(self) -> int:
        """Number of RAMs, one per address range, that a deep FIFO is split into; a fast multiplexer joins them."""
        return len(piece_words(self.device, self.width, self.depth, self.memory_in))

    @property
    def beat(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the output stream; only lanes, pixels, shape and beat count matter."""
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
        cost = Cost(self.device)
        address, level, beat = counter_bits(self.depth), counter_bits(self.depth + 1), counter_bits(self.beats)
        count_pieces(cost, self.width, self.depth, self.memory)
        cost.ff += 2 * address + level + 1 + beat
        cost.lut += max(0, 2 * address + 4.2 * level + 1.7 * beat - 5.6)
        if self.in_block_ram:
            address_bits = counter_bits(FRONT_DEPTH)
            cost.ram(self.width + 1, FRONT_DEPTH)
            cost.ram(self.width, FRONT_DEPTH)
            # Between block RAM and LUTs: a register for each piece's word, its address and valid bits; and a
            # multiplexer.
            cost.ff += self.width * self.num_pieces + 4 * address_bits + counter_bits(FRONT_DEPTH + 1) + 4
            cost.lut += self.width + 14
        return cost.resources

    def component(self) -> Fifo:
        return Fifo(self)


class Fifo(ConfiguredComponent[FifoConfig]):
    """Output FIFO of a layer; it has no back-pressure, because the writer holds credits.

    Parameters
    ----------
    config : FifoConfig

    Members
    -------
    i : In(stream, always ready)
        Beats, ``[lane][pixel]``.
    o : Out(stream)
        The same beats in order, with ``last``.

    Latency and throughput
        A beat that is written to the empty FIFO is valid on ``o`` ``config.latency`` cycles later. One beat per cycle
        on each side.

    Block RAM and UltraRAM output their words late in a cycle, and logic of another component follows. Therefore the
    oldest `FRONT_DEPTH` beats of a deep FIFO have slots in LUTs. While the RAM is empty, a beat is written directly to
    a slot. Otherwise slots are reserved for beats of the RAM. Such a beat arrives two cycles later, before it can be
    the oldest.
    """

    def __init__(self, config: FifoConfig):
        beat = config.beat
        super().__init__(
            config,
            {
                "i": In(stream.Signature(channels_layout(beat.shape, beat.lanes, beat.pixels), always_ready=True)),
                "o": Out(beat.signature),
            },
        )

    def elaborate(self, platform):
        m = Module()
        config, fetch, push = self.config, Signal(name="pop"), Signal(name="push")
        depth = FRONT_DEPTH if config.in_block_ram else config.depth
        level = _level(m, "level", depth, push, fetch)  # number of stored beats, without the beat on the output
        m.d.comb += fetch.eq((level != 0) & (~self.o.valid | self.o.ready))
        if config.in_block_ram:
            oldest = self._add_memory_with_queue(m, level, push, fetch)
        else:
            m.d.comb += push.eq(self.i.valid)
            oldest, _ = _add_ring(m, self.config.device, "storage", self.i.payload.as_value(), depth, push, fetch)
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

    def _add_memory_with_queue(self, m: Module, level: Signal, push: Signal, fetch: Signal) -> Value:
        """Add the FIFO's block RAM or UltraRAM and a queue in LUT RAM for the oldest beats; return the oldest beat.

        ``level`` counts the reserved slots of the queue. The method drives ``push``: whether a slot is reserved.
        ``fetch`` reads the oldest slot.
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
        # A slot stores whether its beat was written directly. Beats from block RAM arrive in a second LUT RAM.
        near, reserved_slot = _add_ring(m, self.config.device, "front", Cat(beat, straight), FRONT_DEPTH, push, fetch)
        config = self.config
        write, address, behind = memory_in_pieces(
            m, config.device, "storage", width=config.width, depth=config.depth, registered=True, where=config.memory
        )
        m.d.comb += [write.data.eq(beat), write.en.eq(self.i.valid & ~straight)]
        _step(m, write.addr, self.config.depth, write.en)
        _step(m, address, self.config.depth, follow)
        arrives = delayed(m, "refill", follow, 2, reset_less=False)
        arrived = delayed(m, "refill_address", reserved_slot, 2)
        far, _ = _add_ring(m, self.config.device, "refilled", behind, FRONT_DEPTH, arrives, fetch, arrived)
        return Mux(near[-1], near[:-1], far)


def _level(m: Module, name: str, depth: int, push: Value, pop: Value) -> Signal:
    level = Signal(range(depth + 1), name=name)
    m.d.sync += level.eq(level + push - pop)
    return level


def _step(m: Module, address: Signal, depth: int, step: Value) -> None:
    with m.If(step):
        m.d.sync += address.eq(Mux(address == depth - 1, 0, address + 1))


def _add_ring(
    m: Module, device: Device, name: str, word: Value, depth: int, push: Value, pop: Value, to: Value | None = None
) -> tuple[Value, Value]:
    """Add a ring buffer of ``depth`` words in LUT RAM; return a pair: the word last read by ``pop``, write address.

    If ``to`` is not ``None``, words are written to this slot.
    """
    m.submodules[name] = storage = ram(device, len(word), depth, "lut")
    write, read = write_port(storage), read_port(storage)
    m.d.comb += [write.data.eq(word), write.en.eq(push), read.en.eq(pop)]
    _step(m, read.addr, depth, pop)
    if to is None:
        _step(m, write.addr, depth, push)
    else:
        m.d.comb += write.addr.eq(to)
    return read.data, write.addr
