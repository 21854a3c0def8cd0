"""From one beat width to another, without idle cycles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class RegroupConfig:
    """Beats that carry ``counts`` channels in, ``output.lanes`` channels out.

    Parameters
    ----------
    counts : tuple of int
        Channels carried by each incoming beat of a pixel, in order; they add up to ``output.channels``.
    lanes : int
        Lanes of an incoming beat, at least ``max(counts)``; those past a beat's count are ignored.
    output : BeatFormat
        The stream that leaves.

    Raises
    ------
    ConfigError
        If the counts don't add up to the channels, or a beat carries nothing or more than ``lanes``.
    """

    counts: tuple[int, ...]
    lanes: int
    output: BeatFormat

    def __post_init__(self) -> None:
        if sum(self.counts) != self.output.channels:
            raise ConfigError(f"counts must add up to {self.output.channels} channels, not {sum(self.counts)!r}")
        if not all(1 <= count <= self.lanes for count in self.counts):
            raise ConfigError(f"counts must be between 1 and {self.lanes} lanes, not {self.counts!r}")

    @property
    def needed(self) -> bool:
        """Whether the beats differ at all; if not, a wire does."""
        return self.counts != self.sizes or self.lanes != self.output.lanes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Channels carried by each outgoing beat of a pixel."""
        lanes, channels = self.output.lanes, self.output.channels
        return tuple(min(lanes, channels - start) for start in range(0, channels, lanes))

    @cached_property
    def before(self) -> tuple[int, ...]:
        """For each incoming beat of a pixel: outgoing beats of that pixel that must have left for it to fit."""
        ends = (0, *accumulate(self.sizes))
        starts = accumulate(self.counts[:-1])
        return tuple(
            next(sent for sent, end in enumerate(ends) if start - end < self.output.lanes) for start in (0, *starts)
        )

    @cached_property
    def after(self) -> tuple[int, ...]:
        """For each outgoing beat of a pixel: the incoming beat that completes it."""
        totals = list(accumulate(self.counts))
        return tuple(next(beat for beat, total in enumerate(totals) if total >= end) for end in accumulate(self.sizes))

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Every number of channels that can be held when a beat comes in (where it is put)."""
        ends = (0, *accumulate(self.sizes))
        starts = (0, *accumulate(self.counts))[:-1]
        reached = {
            start - ends[sent]
            for start, least in zip(starts, self.before, strict=True)
            for sent in range(least, len(ends))
            if ends[sent] <= start
        }
        return tuple(sorted(reached))

    @property
    def held(self) -> int:
        """Channels the register holds at most."""
        return max(self.positions) + self.lanes

    #: Cycles from the beat that completes an outgoing beat to that beat being offered.
    latency = 1

    @property
    def register_bits(self) -> int:
        return self.held * self.output.bits


class Regroup(wiring.Component):
    """Collects channels in a register and hands them on in beats of another width.

    A pixel's channels never share a beat with another pixel's. Lanes past the last channel leave as zero.

    Parameters
    ----------
    config : RegroupConfig

    Members
    -------
    i : In(stream)
        ``config.lanes`` values a beat.
    o : Out(stream)
        ``config.output.lanes`` values a beat.

    Latency and throughput
        An outgoing beat is offered the cycle after the incoming beat that completes it; an incoming beat is
        taken as soon as fewer than ``output.lanes`` channels are left in the register, counting the beat that
        leaves in that very cycle. Neither side waits a cycle more than its own beats need.
    """

    def __init__(self, config: RegroupConfig):
        self._config = config
        output = config.output
        incoming = BeatFormat(
            channels=config.lanes,
            height=output.height,
            width=output.width,
            lanes=config.lanes,
            bits=output.bits,
            signed=output.signed,
        )
        super().__init__({"i": In(incoming.signature), "o": Out(output.signature)})

    @property
    def config(self) -> RegroupConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes_in, lanes_out = config.lanes, config.output.lanes
        zero = Const(0, config.output.shape)

        fill = Signal(range(config.held + 1))
        held = [Signal(config.output.shape, name=f"held_{lane}", reset_less=True) for lane in range(config.held)]
        beat_in = Signal(range(len(config.counts)))
        beat_out = Signal(range(len(config.sizes)))
        last_frame_beat = Signal()

        count = dense_table(m, "count", beat_in, config.counts)
        size = dense_table(m, "size", beat_out, config.sizes)
        pixel_ends_in, pixel_ends_out = Signal(), Signal()
        taken, sent = Signal(), Signal()
        left = Signal(range(config.held + 1))  # channels held once this cycle's outgoing beat has gone
        pixel_done = Signal()  # all of the pixel is in the register: the next beat belongs to another pixel
        m.d.comb += [
            pixel_ends_in.eq(beat_in == len(config.counts) - 1),
            pixel_ends_out.eq(beat_out == len(config.sizes) - 1),
            self.o.valid.eq(fill >= size),
            sent.eq(self.o.valid & self.o.ready),
            left.eq(Mux(sent, fill - size, fill)),
            self.i.ready.eq(Mux(pixel_done, left == 0, left < lanes_out)),
            taken.eq(self.i.valid & self.i.ready),
            self.o.payload.last.eq(last_frame_beat & pixel_ends_out),
        ]
        for lane in range(lanes_out):
            value = held[lane] if lane < config.held else zero
            m.d.comb += self.o.payload.data[lane].eq(Mux(lane < size, value, zero))

        m.d.sync += fill.eq(left + Mux(taken, count, 0))
        with m.If(sent):
            m.d.sync += beat_out.eq(Mux(pixel_ends_out, 0, beat_out + 1))
            with m.If(pixel_ends_out):
                m.d.sync += [pixel_done.eq(0), last_frame_beat.eq(0)]
        with m.If(taken):
            m.d.sync += beat_in.eq(Mux(pixel_ends_in, 0, beat_in + 1))
            with m.If(pixel_ends_in):
                m.d.sync += [pixel_done.eq(1), last_frame_beat.eq(self.i.payload.last)]

        for lane in range(config.held):
            if lane + lanes_out < config.held:
                with m.If(sent):
                    m.d.sync += held[lane].eq(held[lane + lanes_out])
            for position in config.positions:
                if 0 <= lane - position < lanes_in:
                    with m.If(taken & (left == position)):
                        m.d.sync += held[lane].eq(self.i.payload.data[lane - position])
        return m
