"""From one beat width to another, without idle cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import LOGIC, Cost, Resources, counter_bits
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.stream import BeatFormat


@dataclass(frozen=True, kw_only=True)
class RegroupConfig:
    """Beats that carry ``counts`` channels in, ``output.lanes`` channels out.

    Parameters
    ----------
    counts : tuple of int
        Channels carried by each incoming beat of a pixel, in order; they add up to ``output.channels``. With
        several pixels a beat (``output.pixels``) each channel comes and goes for all of them.
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
        return tuple(len(channels) for channels in self.output.fold_channels)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """Where each incoming beat's channels go, counting every lane of a pixel's outgoing beats from the first."""
        lanes = [fold * self.output.lanes + lane for fold, size in enumerate(self.sizes) for lane in range(size)]
        ends = list(accumulate(self.counts))
        return tuple(tuple(lanes[end - count : end]) for count, end in zip(self.counts, ends, strict=True))

    @cached_property
    def advances(self) -> tuple[int, ...]:
        """Lanes from each incoming beat's first to the next one's: what it fills, empty lanes included."""
        starts = [places[0] for places in self.places]
        ends = [*starts[1:], len(self.sizes) * self.output.lanes]
        return tuple(end - start for start, end in zip(starts, ends, strict=True))

    @cached_property
    def room(self) -> tuple[int, ...]:
        """For each incoming beat of a pixel: the most channels that may be held when it is taken."""
        return self._room(self.overlaps)

    def _room(self, overlaps: bool) -> tuple[int, ...]:
        if overlaps:
            spans = [places[-1] - places[0] + 1 for places in self.places]
            return tuple(self.output.lanes + max(spans) - span for span in spans)
        return (self.output.lanes - 1,) * len(self.counts)

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """For each incoming beat of a pixel: outgoing beats of earlier pixels that may still wait when it is taken.

        A negative number: so many of its own pixel's beats must have left.
        """
        return self._waiting(self.room)

    def _waiting(self, room: tuple[int, ...]) -> tuple[int, ...]:
        return tuple((most - places[0]) // self.output.lanes for most, places in zip(room, self.places, strict=True))

    @cached_property
    def after(self) -> tuple[int, ...]:
        """For each outgoing beat of a pixel: the incoming beat that completes it."""
        totals = list(accumulate(self.counts))
        return tuple(bisect_left(totals, end) for end in accumulate(self.sizes))

    @cached_property
    def overlaps(self) -> bool:
        """Whether beats are taken while a whole outgoing one still waits.

        Only where a pixel would otherwise take longer than its own beats, as 3 + 2 channels made 4 + 1.
        """
        enter: list[int] = []
        leave: list[int] = []
        completes = Counter(self.after)
        for beat, waiting in enumerate(self._waiting(self._room(overlaps=False))):
            enter.append(max(enter[-1] + 1 if enter else 0, leave[-waiting - 1] if waiting < 0 else 0))
            for _ in range(completes[beat]):
                leave.append(max(enter[-1] + self.latency, leave[-1] + 1 if leave else 0))
        return leave[-1] > max(len(self.counts), len(self.sizes))

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Every number of channels that can be held when a beat comes in (where it is put)."""
        return tuple(sorted({position for beat in range(len(self.counts)) for position in self._positions(beat)}))

    def _positions(self, beat: int) -> range:
        """The same for one incoming beat of a pixel."""
        lanes = self.output.lanes
        return range(self.places[beat][0] + self.waiting[beat] * lanes, -1, -lanes)

    def sources(self, lane: int, position: int) -> dict[int, int]:
        """Which of an incoming beat's channels goes to ``lane`` of the register, by beat, if put at ``position``."""
        return {
            beat: places.index(places[0] + lane - position)
            for beat, places in enumerate(self.places)
            if position in self._positions(beat) and places[0] + lane - position in places
        }

    @cached_property
    def lane_sources(self) -> tuple[set[int], ...]:
        """For each lane of the register: which of an incoming beat's channels may go there."""
        found: tuple[set[int], ...] = tuple(set() for _ in range(self.held))
        for beat, places in enumerate(self.places):
            for position in self._positions(beat):
                for source, place in enumerate(places):
                    found[position + place - places[0]].add(source)
        return found

    @cached_property
    def held(self) -> int:
        """Channels the register holds at most."""
        beats = enumerate(self.places)
        return max(max(self._positions(beat), default=0) + places[-1] - places[0] + 1 for beat, places in beats)

    #: Cycles from the beat that completes an outgoing beat to that beat being offered.
    latency = 1

    @property
    def register_bits(self) -> int:
        return self.held * self.output.bits * self.output.pixels

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        bits = self.output.bits * self.output.pixels
        fill = counter_bits(max(self.positions) + max(self.advances) + 1)
        beat_in, beat_out = counter_bits(len(self.counts)), counter_bits(len(self.sizes))
        cost.ff += self.register_bits + fill + beat_in + beat_out + 1
        chosen = 0
        for lane, sources in enumerate(self.lane_sources):
            chosen += LOGIC.mux_luts(len(sources) + (lane + self.output.lanes < self.held))
        cleared = self.output.lanes - min(self.sizes)
        cost.lut += 1.6 * bits * (chosen + cleared) + 0.9 * fill + 1.4 * (beat_in + beat_out) + 5
        return cost.resources

    def component(self) -> Regroup:
        return Regroup(self)


class Regroup(wiring.Component):
    """Collects channels in a register and hands them on in beats of another width.

    A pixel's channels never share a beat with another pixel's. Lanes past the last channel leave as zero.

    Parameters
    ----------
    config : RegroupConfig

    Members
    -------
    i : In(stream)
        ``config.lanes`` channels a beat.
    o : Out(stream)
        ``config.output.lanes`` channels a beat.

    Latency and throughput
        An outgoing beat is offered the cycle after the incoming beat that completes it; an incoming beat is
        taken as soon as fewer than ``output.lanes`` channels are left in the register, counting the beat that
        leaves in that very cycle (a few more, where ``config.overlaps``). A pixel takes no more cycles than it has
        beats on the side that has more.
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
            pixels=output.pixels,
        )
        super().__init__({"i": In(incoming.signature), "o": Out(output.signature)})

    @property
    def config(self) -> RegroupConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes_out, pixels = config.output.lanes, config.output.pixels
        shape = config.output.bits * pixels  # a channel: its value for every pixel of the beat
        incoming, outgoing = ([channel.as_value() for channel in port.payload.data] for port in (self.i, self.o))

        fill = Signal(range(max(config.positions) + max(config.advances) + 1), name="lanes_held")
        held = [Signal(shape, name=f"held_{lane}", reset_less=True) for lane in range(config.held)]
        beat_in = Signal(range(len(config.counts)), name="input_beat_index")
        beat_out = Signal(range(len(config.sizes)), name="output_beat_index")
        frame_ends = Signal(name="is_last_pixel")

        pixel_ends_in = Signal(name="is_last_input_beat")
        pixel_ends_out = Signal(name="is_last_output_beat")
        taken = Signal(name="input_transfer")
        sent = Signal(name="output_transfer")
        left = Signal(fill.shape(), name="lanes_left")  # lanes held once this cycle's outgoing beat has gone
        m.d.comb += [
            pixel_ends_in.eq(beat_in == len(config.counts) - 1),
            pixel_ends_out.eq(beat_out == len(config.sizes) - 1),
            self.o.valid.eq(fill >= lanes_out),
            sent.eq(self.o.valid & self.o.ready),
            left.eq(Mux(sent, fill - lanes_out, fill)),
            self.i.ready.eq(left <= dense_table(m, "most_lanes_left", beat_in, config.room)),
            taken.eq(self.i.valid & self.i.ready),
            self.o.payload.last.eq(frame_ends & pixel_ends_out),
        ]
        size = dense_table(m, "output_lanes", beat_out, config.sizes)
        for lane in range(lanes_out):
            value = held[lane] if lane < config.held else Const(0, shape)
            if lane >= min(config.sizes):
                value = Mux(lane < size, value, 0)
            m.d.comb += outgoing[lane].eq(value)

        m.d.sync += fill.eq(left + Mux(taken, dense_table(m, "input_lanes", beat_in, config.advances), 0))
        with m.If(sent):
            m.d.sync += beat_out.eq(Mux(pixel_ends_out, 0, beat_out + 1))
        with m.If(taken):
            m.d.sync += beat_in.eq(Mux(pixel_ends_in, 0, beat_in + 1))
            with m.If(pixel_ends_in):
                m.d.sync += frame_ends.eq(self.i.payload.last)

        for lane, register in enumerate(held):
            if lane + lanes_out < config.held:
                with m.If(sent):
                    m.d.sync += register.eq(held[lane + lanes_out])
            for position in config.positions:
                sources = config.sources(lane, position)
                if not sources:
                    continue
                with m.If(taken & (left == position)):
                    if len(set(sources.values())) == 1:
                        m.d.sync += register.eq(incoming[next(iter(sources.values()))])
                    else:
                        with m.Switch(beat_in):
                            for beat, source in sources.items():
                                with m.Case(beat):
                                    m.d.sync += register.eq(incoming[source])
        return m
