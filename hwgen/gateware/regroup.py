"""Conversion of a stream to another number of channels per beat, without idle cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from amaranth import Const, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.stream import BeatFormat, channels_layout, pipeline_ports


@dataclass(frozen=True, kw_only=True)
class RegroupConfig(OnDevice):
    """Configuration of a stream's width converter: beats of ``counts`` channels become beats of ``output.lanes``.

    Parameters
    ----------
    counts : tuple of int
        Number of channels of each input beat of a pixel, in order. The sum is ``output.channels``. With several pixels
        per beat (``output.pixels``), a channel has a value for each pixel.
    lanes : int
        Number of lanes of an input beat, at least ``max(counts)``. Lanes past a beat's count are ignored.
    output : BeatFormat
        Format of the output.
    always_ready : bool
        Whether both streams are always ready, as in a pipeline that never stalls. They have no ``last``.

    Raises
    ------
    ConfigError
        If the sum of the counts is wrong, or a beat has no channel or more than ``lanes``. Also if beats are always
        ready, and the converter could not take one in each cycle.
    """

    counts: tuple[int, ...]
    lanes: int
    output: BeatFormat
    always_ready: bool = False

    def __post_init__(self) -> None:
        if sum(self.counts) != self.output.channels:
            raise ConfigError(f"counts must add up to {self.output.channels} channels, not {sum(self.counts)!r}")
        if not all(1 <= count <= self.lanes for count in self.counts):
            raise ConfigError(f"counts must be between 1 and {self.lanes} lanes, not {self.counts!r}")
        if self.always_ready and not self.widens:
            raise ConfigError(
                f"counts must be more than the {len(self.sizes)} output beats of a pixel if streams are always ready, "
                f"not {self.counts!r}"
            )

    @property
    def needed(self) -> bool:
        """Whether the stream needs a width converter, because input and output beats differ."""
        return self.counts != self.sizes or self.lanes != self.output.lanes

    @property
    def widens(self) -> bool:
        """Whether a pixel has fewer output beats than input beats."""
        return len(self.sizes) < len(self.counts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tuple of the numbers of channels in each output beat of a pixel, in order."""
        return tuple(len(channels) for channels in self.output.fold_channels)

    @cached_property
    def output_lanes(self) -> tuple[tuple[int, ...], ...]:
        """Tuple per input beat of a pixel: output lane of each of its channels, counted over all output beats."""
        lanes = [fold * self.output.lanes + lane for fold, size in enumerate(self.sizes) for lane in range(size)]
        ends = list(accumulate(self.counts))
        return tuple(tuple(lanes[end - count : end]) for count, end in zip(self.counts, ends, strict=True))

    @cached_property
    def advances(self) -> tuple[int, ...]:
        """Tuple of output lanes between the first channels of consecutive input beats, one number per input beat."""
        starts = [output_lanes[0] for output_lanes in self.output_lanes]
        ends = [*starts[1:], len(self.sizes) * self.output.lanes]
        return tuple(end - start for start, end in zip(starts, ends, strict=True))

    @cached_property
    def room(self) -> tuple[int, ...]:
        """Tuple, per input beat of a pixel: maximum number of channels in the register when the beat is accepted."""
        return self._room_before(self.overlaps)

    def _room_before(self, overlaps: bool) -> tuple[int, ...]:
        if overlaps:
            spans = [output_lanes[-1] - output_lanes[0] + 1 for output_lanes in self.output_lanes]
            return tuple(self.output.lanes + max(spans) - span for span in spans)
        return (self.output.lanes - 1,) * len(self.counts)

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """Tuple, per input beat: maximum number of earlier pixels' output beats that wait when it is accepted.

        A negative number ``-n`` means that ``n`` output beats of the beat's own pixel must have left.
        """
        return self._beats_waiting(self.room)

    def _beats_waiting(self, room: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            (capacity - lanes[0]) // self.output.lanes for capacity, lanes in zip(room, self.output_lanes, strict=True)
        )

    @cached_property
    def completing_beats(self) -> tuple[int, ...]:
        """Index of the input beat of a pixel that completes each output beat, as a tuple."""
        totals = list(accumulate(self.counts))
        return tuple(bisect_left(totals, end) for end in accumulate(self.sizes))

    @cached_property
    def overlaps(self) -> bool:
        """Whether the converter accepts input beats while a whole output beat still waits in its register.

        Only if a pixel would otherwise need more cycles than beats, as in the conversion from 3 + 2 channels to 4 + 1.
        """
        enter: list[int] = []
        leave: list[int] = []
        completes = Counter(self.completing_beats)
        for beat, waiting in enumerate(self._beats_waiting(self._room_before(overlaps=False))):
            enter.append(max(enter[-1] + 1 if enter else 0, leave[-waiting - 1] if waiting < 0 else 0))
            for _ in range(completes[beat]):
                leave.append(max(enter[-1] + self.latency, leave[-1] + 1 if leave else 0))
        return leave[-1] > max(len(self.counts), len(self.sizes))

    @cached_property
    def departure_delays(self) -> tuple[int, ...]:
        """Tuple, per output beat: cycles from its completing input beat until it leaves, if nothing stalls."""
        waits = (after == before for before, after in pairwise((-1, *self.completing_beats)))
        delays: list[int] = []
        for follows in waits:  # two output beats that one input beat completes leave one after the other
            delays.append(delays[-1] + 1 if follows else self.latency)
        return tuple(delays)

    @cached_property
    def pending(self) -> tuple[int, ...]:
        """Tuple, per input beat: maximum number of complete output beats stored when it arrives, if nothing stalls."""
        completes, pending = Counter(self.completing_beats), [0] * len(self.counts)
        for beat in 2 * [*range(len(self.counts))]:  # the second round begins with what the first one leaves
            following = (beat + 1) % len(self.counts)
            pending[following] = max(pending[following], max(pending[beat] - 1, 0) + completes[beat])
        return tuple(pending)

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Tuple of lanes of the converter's register where the first channel of an input beat can be stored, ascending.

        A position is the number of channels that the register holds when it takes the beat.
        """
        return tuple(sorted({position for beat in range(len(self.counts)) for position in self._positions(beat)}))

    def _positions(self, beat: int) -> range:
        """Return the register lanes where the first channel of a pixel's input beat can be stored, descending."""
        lanes = self.output.lanes
        return range(self.output_lanes[beat][0] + self.waiting[beat] * lanes, -1, -lanes)

    def sources(self, lane: int, position: int) -> dict[int, int]:
        """Return a dict from input beat to the channel of it that ``lane`` loads if the beat begins at ``position``.

        ``lane`` and ``position`` are lanes of the converter's register.

        Beats that do not write to ``lane``, or never begin at ``position``, are missing.
        """
        return {
            beat: output_lanes.index(output_lanes[0] + lane - position)
            for beat, output_lanes in enumerate(self.output_lanes)
            if position in self._positions(beat) and output_lanes[0] + lane - position in output_lanes
        }

    @cached_property
    def lane_sources(self) -> tuple[set[int], ...]:
        """Tuple, per lane of the converter's register: the set of input lanes that it can be loaded from."""
        sources: tuple[set[int], ...] = tuple(set() for _ in range(self.held))
        for beat, output_lanes in enumerate(self.output_lanes):
            for position in self._positions(beat):
                for source, output_lane in enumerate(output_lanes):
                    sources[position + output_lane - output_lanes[0]].add(source)
        return sources

    @cached_property
    def held(self) -> int:
        """Number of channels that the converter's register can hold."""
        beats = enumerate(self.output_lanes)
        return max(
            max(self._positions(beat), default=0) + output_lanes[-1] - output_lanes[0] + 1
            for beat, output_lanes in beats
        )

    #: Cycles from the input beat that completes an output beat until the output beat is valid.
    latency = 1

    @property
    def register_bits(self) -> int:
        """Number of bits of the converter's register of waiting channels."""
        return self.held * self.output.bits * self.output.pixels

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        bits = self.output.bits * self.output.pixels
        fill = counter_bits(max(self.positions) + max(self.advances) + 1)
        beat_in, beat_out = counter_bits(len(self.counts)), counter_bits(len(self.sizes))
        cost.ff += self.register_bits + fill + beat_in + beat_out + 1
        chosen = 0
        for lane, sources in enumerate(self.lane_sources):
            chosen += cost.logic.mux_luts(len(sources) + (lane + self.output.lanes < self.held))
        cleared = self.output.lanes - min(self.sizes)
        cost.lut += 1.6 * bits * (chosen + cleared) + 0.9 * fill + 1.4 * (beat_in + beat_out) + 5
        return cost.resources

    def component(self) -> Regroup:
        return Regroup(self)


class Regroup(ConfiguredComponent[RegroupConfig]):
    """Width converter of a stream: collects channels in a register, and sends them with another number per beat.

    A beat contains channels of one pixel only. Lanes past the last channel are zero.

    Parameters
    ----------
    config : RegroupConfig

    Members
    -------
    i : In(stream)
        Beats of ``config.lanes`` channels.
    o : Out(stream)
        Beats of ``config.output.lanes`` channels.

    Latency and throughput
        An output beat is valid in the cycle after the input beat that completes it. An input beat is accepted if the
        register holds fewer than ``output.lanes`` channels, without the beat that leaves in the same cycle. With
        ``config.overlaps``, the register can hold more channels. A pixel takes as many cycles as it has beats on the
        side with more beats. Therefore a converter to fewer beats, whose output is always ready, accepts a beat in
        every cycle.
    """

    def __init__(self, config: RegroupConfig):
        output = config.output
        if config.always_ready:
            lanes = (config.lanes, output.lanes)
            super().__init__(
                config, pipeline_ports(*(channels_layout(output.shape, count, output.pixels) for count in lanes))
            )
            return
        incoming = BeatFormat(
            channels=config.lanes,
            height=output.height,
            width=output.width,
            lanes=config.lanes,
            bits=output.bits,
            signed=output.signed,
            pixels=output.pixels,
        )
        super().__init__(config, {"i": In(incoming.signature), "o": Out(output.signature)})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes_out, pixels = config.output.lanes, config.output.pixels
        shape = config.output.bits * pixels  # a channel: its values of all pixels of the beat
        beats = (port.payload if config.always_ready else port.payload.data for port in (self.i, self.o))
        incoming, outgoing = ([channel.as_value() for channel in beat] for beat in beats)

        fill = Signal(range(max(config.positions) + max(config.advances) + 1), name="lanes_held")
        held = [Signal(shape, name=f"held_{lane}", reset_less=True) for lane in range(config.held)]
        beat_in = Signal(range(len(config.counts)), name="input_beat_index")
        beat_out = Signal(range(len(config.sizes)), name="output_beat_index")
        frame_ends = Signal(name="is_last_pixel")

        pixel_ends_in = Signal(name="is_last_input_beat")
        pixel_ends_out = Signal(name="is_last_output_beat")
        taken = Signal(name="input_transfer")
        sent = Signal(name="output_transfer")
        left = Signal(fill.shape(), name="lanes_left")  # number of held lanes without this cycle's output beat
        m.d.comb += [
            pixel_ends_in.eq(beat_in == len(config.counts) - 1),
            pixel_ends_out.eq(beat_out == len(config.sizes) - 1),
            self.o.valid.eq(fill >= lanes_out),
            sent.eq(self.o.valid & self.o.ready),
            left.eq(Mux(sent, fill - lanes_out, fill)),
        ]
        if not config.always_ready:
            m.d.comb += self.i.ready.eq(left <= dense_table(m, "most_lanes_left", beat_in, config.room))
        m.d.comb += taken.eq(self.i.valid & self.i.ready)
        if not config.always_ready:
            m.d.comb += self.o.payload.last.eq(frame_ends & pixel_ends_out)
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
            if not config.always_ready:
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
