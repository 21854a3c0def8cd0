"""Frame guard at an accelerator's input: pads short frames and cuts long ones, so that every frame inside is whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.stream import BeatFormat

#: Width in bits of the number of frames per packet.
PACKET_BITS = 16
#: Measured LUTs of a counter of a packet's frames (`add_frame_counter`), and LUTs that packets add to a guard with it.
PACKET_COUNTER_LUTS, _PACKET_LUTS = 25, 37
#: Layout of the size of a packet of N frames, in the form that a frame counter compares with: ``before_last`` is N - 2,
#: and ``single`` is high if N is 1. ``load`` is high while there is no packet, when another size may follow;
#: ``next_single`` is its ``single``.
PACKET = data.StructLayout({"before_last": PACKET_BITS, "single": 1, "load": 1, "next_single": 1})
#: Signature of a guard's error flags, ``short`` and ``long``, which stay high until ``clear``.
FRAME_ERROR = wiring.Signature({"short": Out(1), "long": Out(1), "clear": In(1)})


@dataclass(frozen=True, kw_only=True)
class GuardConfig(OnDevice):
    """Configuration of an accelerator input's frame guard, which completes short frames and drops surplus beats.

    Parameters
    ----------
    beat : BeatFormat
        Format of a beat.
    beats : int
        Number of beats per frame, for the pixel order of the input.
    packets : bool
        Whether ``last`` ends a packet of several frames, as many as the input ``packet`` says.

    Raises
    ------
    ConfigError
        If a frame has no beat.
    """

    beat: BeatFormat
    beats: int
    packets: bool = False

    def __post_init__(self) -> None:
        if self.beats < 1:
            raise ConfigError(f"beats must be a positive integer, not {self.beats!r}")

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(self.device), counter_bits(self.beats)
        cost.ff += count + (4 if count else 3)  # a frame of one beat is never too short
        cost.lut += 1.75 * count + (self.beat.data_bits + 7.3 if count else 5)
        if self.packets:
            cost.ff += PACKET_BITS + 1 + (not count)
            cost.lut += _PACKET_LUTS + (0 if count else self.beat.data_bits + 7.3)
        return cost.resources

    def component(self) -> Guard:
        return Guard(self)


class Guard(ConfiguredComponent[GuardConfig]):
    """Component at an input stream that completes short frames with zeros, and drops the surplus beats of long frames.

    An input frame ends with ``last``. The number of frames does not change, and a frame after a wrong frame is correct.

    With packets, the last beat of a packet has ``last``, and no other beat of its frames. If ``last`` is too early, the
    frame and the remaining frames of the packet are completed with zeros. If it is missing, what follows is dropped up
    to ``last``.

    Parameters
    ----------
    config : GuardConfig

    Members
    -------
    i : In(stream)
        Frames. A frame is short if ``last`` is too early, and long if its last regular beat is without ``last``.
    o : Out(stream)
        The frames with ``config.beats`` beats each. A short frame ends with beats of zeros. A long frame consists of
        its first beats.
    packet : In(PACKET)
        Size of a packet, if there are packets. It must not change within a packet.
    in_packet : Out(1)
        Whether a packet has begun and not ended, if there are packets. Within the first frame it can be low.
    error : Out
        ``short`` and ``long``: a frame of wrong length has arrived. A flag is high from the cycle after the beat that
        shows the error until ``clear``. ``clear`` does not hide an error in the same cycle.

    Latency and throughput
        Combinational: a whole frame takes no additional cycle. A short frame takes as many cycles as a whole frame.
        Each surplus beat of a long frame takes one cycle.
    Reset
        The next beat is the first beat of a frame.
    """

    def __init__(self, config: GuardConfig):
        stream = config.beat.signature
        packets = {"packet": In(PACKET), "in_packet": Out(1)} if config.packets else {}
        super().__init__(config, {"i": In(stream), "o": Out(stream), "error": Out(FRAME_ERROR), **packets})

    def elaborate(self, platform):
        m = Module()
        beat = Signal(range(self.config.beats), name="beat_index")
        final, moved, filling, dropping = (
            Signal(name="is_last_beat"),
            Signal(name="output_transfer"),
            Signal(name="is_filling"),
            Signal(name="is_dropping"),
        )
        m.d.comb += [
            final.eq(beat == self.config.beats - 1),
            self.o.valid.eq(self.i.valid & ~dropping | filling),
            self.o.payload.data.eq(Mux(filling, 0, self.i.payload.data.as_value())),
            self.o.payload.last.eq(final),
            self.i.ready.eq(self.o.ready & ~filling | dropping),
            moved.eq(self.o.valid & self.o.ready),
        ]
        with m.If(moved):
            m.d.sync += beat.eq(Mux(final, 0, beat + 1))

        short, long = Signal(name="frame_too_short"), Signal(name="frame_too_long")
        ends = Signal(name="is_end")
        m.d.comb += [
            ends.eq(final),
            short.eq(moved & ~filling & self.i.payload.last & ~ends),
            long.eq(moved & ~filling & ~self.i.payload.last & ends),
        ]
        if self.config.packets:
            index, last = add_frame_counter(m, "frame_index", self.packet, moved & final)
            m.d.comb += [ends.eq(final & last), self.in_packet.eq((index != 0) | filling | dropping)]
        with m.If(moved & ends):
            m.d.sync += filling.eq(0)
        with m.Elif(short):
            m.d.sync += filling.eq(1)
        with m.If(long):
            m.d.sync += dropping.eq(1)
        with m.Elif(self.i.valid & self.i.payload.last):
            m.d.sync += dropping.eq(0)
        for flag, seen in ((self.error.short, short), (self.error.long, long)):
            m.d.sync += flag.eq(seen | flag & ~self.error.clear)
        return m


def add_frame_counter(m: Module, name: str, packet: Any, ends: Value) -> tuple[Signal, Signal]:
    """Add a counter of a packet's frames; return a pair: it, and a bit that the current frame is the packet's last.

    Parameters
    ----------
    name : str
        Name of the counter.
    packet : View
        Size of a packet, in the layout `PACKET`.
    ends : Value
        Whether a frame ends in the current cycle.
    """
    index, last = Signal(PACKET_BITS, name=name), Signal(init=1, name=f"{name}_is_last")
    with m.If(ends):
        m.d.sync += [
            index.eq(Mux(last, 0, index + 1)),
            last.eq(Mux(last, packet.single, index == packet.before_last)),
        ]
    with m.Elif(packet.load):
        m.d.sync += last.eq(packet.next_single)
    return index, last
