"""Serialiser of a layer's results: ``Tm`` channels that are computed at once leave in narrower beats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from amaranth import Module, Mux, Shape, Signal

from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources, counter_bits
from hwgen.gateware.lookup import dense_table
from hwgen.gateware.stream import at_pixel, channels_layout, pipeline_ports


@dataclass(frozen=True, kw_only=True)
class UnloadConfig(OnDevice):
    """Configuration of a layer's serialiser, which sends ``Tm`` results, computed at once, in beats of ``r`` channels.

    Each result has ``Tp`` pixels.

    Parameters
    ----------
    channels : int
        Number of output channels of the layer, ``M``.
    lanes_in : int
        Number of channels of a fold, ``Tm``.
    lanes_out : int
        Number of channels of a beat, ``r``.
    shape : Shape
        Shape of one value.
    clears : bool
        Whether lanes past the channels of a short beat are zero. Otherwise they are undefined, for a receiver that
        ignores them.
    pixels : int
        Number of pixels of a fold, ``Tp``.
    groups : int
        Number of groups of output channels. A fold contains channels of one group only.
    folds : tuple of int, optional
        Number of channels of each fold, at most ``Tm``. By default, the groups determine the folds.

    Raises
    ------
    ConfigError
        Unless ``1 <= r <= Tm <= M / groups``, or if the sum of ``folds`` is not ``M``.
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

    @cached_property
    def fold_channels(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Nested tuples of the channels that the serialiser sends: per output fold (``Tm`` results), beat and lane.

        Only the last beat of a fold can be short.
        """
        return tuple(
            tuple(tuple(fold[start : start + self.lanes_out]) for start in range(0, len(fold), self.lanes_out))
            for fold in self._folds
        )

    @property
    def _folds(self) -> list[range]:
        """List of channel ranges that the layer computes at once, one per output fold (``Tm`` results)."""
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
        """Tuple of output channel indices of each beat of a pixel that the serialiser sends, in order, lane 0 first."""
        return tuple(beat for fold in self.fold_channels for beat in fold)

    @property
    def fold_beats(self) -> tuple[int, ...]:
        """Tuple of numbers of beats that the serialiser sends per output fold (``Tm`` results) of a pixel."""
        return tuple(len(fold) for fold in self.fold_channels)

    @property
    def latency(self) -> int:
        """Cycles from ``Tm`` results at the serialiser's input to their first output beat; 0 if one beat holds all."""
        return int(self.lanes_out < self.lanes_in)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        bits = self.shape.width * self.pixels
        if self.latency:
            moved = max(self.lanes_in - self.lanes_out, 0)
            left = counter_bits(max(self.fold_beats) + 1)
            cost.ff += self.lanes_in * bits + counter_bits(len(self.fold_beats)) + left
            cost.luts(moved * bits + left + 1)
        counts = [len(beat) for beat in self.beats]
        if self.clears and min(counts) < self.lanes_out:
            cost.counter(len(counts), luts=1)
            cost.luts((self.lanes_out - min(counts)) * bits)
        return cost.resources

    def component(self) -> Unload:
        return Unload(self)


class Unload(ConfiguredComponent[UnloadConfig]):
    """Serialiser of a layer's results: a shift register that loads ``Tm`` channels and sends ``r`` channels per cycle.

    Parameters
    ----------
    config : UnloadConfig

    Members
    -------
    i : In(stream, always ready)
        ``Tm x Tp`` results, ``[lane][pixel]``. The next results must not arrive before the beats of these have left.
    o : Out(stream, always ready)
        Beats of ``r x Tp`` results, ``[lane][pixel]``, lowest channels first.

    Latency and throughput
        The first beat leaves after ``config.latency`` cycles, and one beat per cycle follows.
    """

    def __init__(self, config: UnloadConfig):
        lanes = (config.lanes_in, config.lanes_out)
        super().__init__(
            config, pipeline_ports(*(channels_layout(config.shape, count, config.pixels) for count in lanes))
        )

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
        for port, channel in zip(self.o.payload, values, strict=True):
            m.d.comb += [target.eq(value) for target, value in zip(port, channel, strict=True)]
        return m

    def _elaborate_shift(self, m: Module) -> list[list[Signal]]:
        """Add the serialiser's shift register of results; return nested lists of its lowest lanes, the output beat."""
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
