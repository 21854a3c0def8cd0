"""The guard in front of an accelerator: whatever comes in, what goes on are whole frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.stream import BeatFormat

#: What a guard says of the frames that came: flags that stay until they are cleared.
FRAME_ERROR = wiring.Signature({"short": Out(1), "long": Out(1), "clear": In(1)})


@dataclass(frozen=True, kw_only=True)
class GuardConfig:
    """The guard of one input.

    Parameters
    ----------
    beat : BeatFormat
        What a beat holds.
    beats : int
        Beats a frame, in the order in which its pixels travel.

    Raises
    ------
    ConfigError
        If a frame has no beat.
    """

    beat: BeatFormat
    beats: int

    def __post_init__(self) -> None:
        if self.beats < 1:
            raise ConfigError(f"beats must be a positive integer, not {self.beats!r}")

    @cached_property
    def resources(self) -> Resources:
        cost, count = Cost(), counter_bits(self.beats)
        cost.ff += count + (4 if count else 3)  # a frame of one beat is never short
        cost.lut += 1.75 * count + (self.beat.data_bits + 7.3 if count else 5)
        return cost.resources

    def component(self) -> Guard:
        return Guard(self)


class Guard(wiring.Component):
    """Lets frames through as they are, completes short ones and drops what long ones have too much.

    A frame ends with ``last``. So there go as many frames on as come in, and the one after a wrong one is right.

    Parameters
    ----------
    config : GuardConfig

    Members
    -------
    i : In(stream)
        Frames. One is short if ``last`` comes too early, and long if its last beat comes without.
    o : Out(stream)
        The same frames with ``config.beats`` beats each: short ones have beats of zeros at their end, long ones the
        beats they began with.
    error : Out
        ``short``, ``long``: such a frame has come; high from the cycle after the beat that shows it until a cycle in
        which ``clear`` is high. ``clear`` does not hide a frame that shows in the same cycle.

    Latency and throughput
        Combinational, so whole frames take no cycle. A short one takes as many as a whole one, and what a long one
        has too much a cycle a beat.
    Reset
        The next beat is the first of a frame.
    """

    def __init__(self, config: GuardConfig):
        self._config = config
        stream = config.beat.signature
        super().__init__({"i": In(stream), "o": Out(stream), "error": Out(FRAME_ERROR)})

    @property
    def config(self) -> GuardConfig:
        return self._config

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
        m.d.comb += [
            short.eq(moved & ~filling & self.i.payload.last & ~final),
            long.eq(moved & ~filling & ~self.i.payload.last & final),
        ]
        with m.If(moved & final):
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
