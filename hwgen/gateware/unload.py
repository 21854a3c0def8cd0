"""From the wide results of a fold to narrow beats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import wiring

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.stream import at_pixel, channels_layout, pipeline_ports


@dataclass(frozen=True, kw_only=True)
class UnloadConfig:
    """``Tm`` results (of ``Tp`` pixels) of each output fold, handed on ``r`` at a time.

    Parameters
    ----------
    channels : int
        ``M``: output channels of the layer.
    lanes_in : int
        ``Tm``: channels of a fold.
    lanes_out : int
        ``r``: channels of a beat.
    shape : Shape
        Of one value.
    clears : bool
        Lanes past the channels of a short beat are zero (otherwise anything, for a receiver that ignores them).
    pixels : int
        ``Tp``: pixels that a fold is about.
    groups : int
        Groups of output channels; a fold belongs to one.
    folds : tuple of int, optional
        Channels of each fold, ``Tm`` at most, where they don't follow from the groups.

    Raises
    ------
    ConfigError
        Unless ``1 <= r <= Tm <= M / groups``, or the folds' channels are not ``M`` together.
    """

    channels: int
    lanes_in: int
    lanes_out: int
    shape: Shape
    clears: bool = False
    pixels: int = 1
    groups: int = 1
    folds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.folds and (
            sum(self.folds) != self.channels or not 1 <= min(self.folds) <= max(self.folds) <= self.lanes_in
        ):
            raise ConfigError(f"folds must be {self.channels} channels in all, not {self.folds!r}")
        if not 1 <= self.lanes_out <= self.lanes_in <= self.channels // self.groups:
            raise ConfigError(
                f"lanes_out, lanes_in and channels must not fall below 1 or each other, "
                f"not {self.lanes_out!r}, {self.lanes_in!r} and {self.channels!r}"
            )

    @property
    def fold_channels(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Channel numbers by fold, by beat, by lane; only the last beat of a fold may be short."""
        return tuple(
            tuple(tuple(fold[start : start + self.lanes_out]) for start in range(0, len(fold), self.lanes_out))
            for fold in self._folds
        )

    @property
    def _folds(self) -> list[range]:
        """Channel numbers of each fold."""
        if self.folds:
            ends = list(accumulate(self.folds))
            return [range(end - count, end) for end, count in zip(ends, self.folds, strict=True)]
        size = self.channels // self.groups
        return [
            range(group * size + first, group * size + min(first + self.lanes_in, size))
            for group in range(self.groups)
            for first in range(0, size, self.lanes_in)
        ]

    @property
    def beats(self) -> tuple[tuple[int, ...], ...]:
        """Channel numbers of each beat of a pixel."""
        return tuple(beat for fold in self.fold_channels for beat in fold)

    @property
    def fold_beats(self) -> tuple[int, ...]:
        """Beats of each output fold."""
        return tuple(len(fold) for fold in self.fold_channels)

    @property
    def latency(self) -> int:
        """Cycles from a fold's results to their first beat."""
        return int(self.lanes_out < self.lanes_in)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        bits = self.shape.width * self.pixels
        if self.latency:
            moved = max(self.lanes_in - self.lanes_out, 0)
            left = counter_bits(max(self.fold_beats) + 1)
            cost.ff += self.lanes_in * bits + counter_bits(len(self.fold_beats)) + left
            cost.lut += moved * bits + left + 1
        counts = [len(beat) for beat in self.beats]
        if self.clears and min(counts) < self.lanes_out:
            beat = counter_bits(len(counts))
            cost.ff += beat
            cost.lut += beat + (self.lanes_out - min(counts)) * bits
        return cost.resources

    def component(self) -> Unload:
        return Unload(self)


class Unload(wiring.Component):
    """A shift register loaded by a fold's results and emptied ``r`` channels a cycle.

    Parameters
    ----------
    config : UnloadConfig

    Members
    -------
    i : In(stream, always ready)
        ``Tm x Tp`` results, ``[lane][pixel]``; the next ones come no sooner than the beats of these have left.
    o : Out(stream, always ready)
        ``r x Tp`` results a beat, ``[lane][pixel]``, lowest channels first.

    Latency and throughput
        First beat after ``config.latency`` cycles, the others in the cycles that follow.
    """

    def __init__(self, config: UnloadConfig):
        self._config = config
        lanes = (config.lanes_in, config.lanes_out)
        super().__init__(pipeline_ports(*(channels_layout(config.shape, count, config.pixels) for count in lanes)))

    @property
    def config(self) -> UnloadConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        config = self.config
        if config.latency == 0:
            values = [[*channel] for channel in self.i.payload]
            m.d.comb += self.o.valid.eq(self.i.valid)
        else:
            values = self._elaborate_shift(m)
        counts = [len(beat) for beat in config.beats]
        if config.clears and min(counts) < config.lanes_out:
            beat = Signal(range(len(counts)), name="beat_index")
            with m.If(self.o.valid):
                m.d.sync += beat.eq(Mux(beat == len(counts) - 1, 0, beat + 1))
            count = dense_table(m, "channel_count", beat, counts)
            values = [[Mux(lane < count, value, 0) for value in channel] for lane, channel in enumerate(values)]
        for place, channel in zip(self.o.payload, values, strict=True):
            m.d.comb += [target.eq(value) for target, value in zip(place, channel, strict=True)]
        return m

    def _elaborate_shift(self, m: Module) -> list[list[Signal]]:
        """The register; its lowest lanes are the beat."""
        config, pixels = self.config, self.config.pixels
        values = [
            [
                Signal(config.shape, name=at_pixel(f"value_{lane}", pixel, pixels), reset_less=True)
                for pixel in range(pixels)
            ]
            for lane in range(config.lanes_in)
        ]
        fold = Signal(range(len(config.fold_beats)), name="fold_index")
        beats = dense_table(m, "fold_beats", fold, config.fold_beats)
        left = Signal(range(max(config.fold_beats) + 1), name="beats_left")
        m.d.comb += self.o.valid.eq(left != 0)
        for lane, channel in enumerate(values):
            following = values[lane + config.lanes_out] if lane + config.lanes_out < len(values) else channel
            for loaded, register, value in zip(self.i.payload[lane], channel, following, strict=True):
                m.d.sync += register.eq(Mux(self.i.valid, loaded, value))
        with m.If(self.i.valid):
            m.d.sync += [left.eq(beats), fold.eq(Mux(fold == len(config.fold_beats) - 1, 0, fold + 1))]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return values[: config.lanes_out]
