"""Least FIFO depths of a network that branches, by trying."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from accelerators import Case
from hypothesis import strategies as st

from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.solve import Schedule, check_stall, enough_frames

#: Times as many frames as sizing looks at, in which a FIFO that is too shallow is seen: until then its layer may
#: live on the lead that its outputs have.
LATER = 64


def loses(config: AcceleratorConfig, depths: list[int], frames: int) -> bool:
    """Tell whether the latency or an interval of some frame is greater with these depths than with the planned ones."""
    sized, less = Schedule(config, frames), Schedule(config, frames, depths=depths)
    try:
        sized.solve()
        less.solve()
    except PlanError:
        return True  # it stalls for ever
    later = less.frame_ends[0] > sized.frame_ends[0]
    return bool(later or (np.diff(less.frame_ends)[1:] > np.diff(sized.frame_ends)[1:]).any())


def min_depths(case: Case) -> list[str]:
    """Return the FIFOs of a case that are too deep: with one beat less, neither latency nor interval grows."""
    config = case.config
    frames = enough_frames(config, Schedule(config, 3).cycles)
    found = []
    for number, (link, depth) in enumerate(zip(config.links, config.fifo_depths, strict=True)):
        if depth <= max(2, *config.layers[link.source].fold_beats):
            continue
        depths = config.fifo_depths
        depths[number] = depth - 1
        if not loses(config, depths, frames) and not loses(config, depths, LATER * frames):
            found.append(f"{config.layers[link.source].name}, {link.output}: {depth - 1} would do")
    return found


def check_shallower(config, data):
    """Depths as planned don't stall; any that are drawn below them do where the referee says so."""
    check_stall(config)
    layers = []
    for layer in config.layers:
        least = max(layer.fold_beats)
        depths = [data.draw(st.one_of(st.just(most), st.integers(least, most))) for most in layer.fifo_depths]
        layers.append(replace(layer, fifo_depths=tuple(depths)))
    less = replace(config, layers=tuple(layers))
    if stalls(less):
        with pytest.raises(PlanError, match="layers deadlock"):
            check_stall(less)
    else:
        check_stall(less)


FRAMES = 3


@dataclass(frozen=True)
class Order:
    """Order of a layer's events: the beats and folds for which each of them waits, counted over the whole run.

    ``needs``: for each input and output fold, the number of beats without which the fold does not start. ``takes``: for
    each input and beat, the smallest number of output folds that have started when the beat is taken. ``holds``:
    whether folds need beats that have been taken. Otherwise they need beats on offer, which are taken as the fold
    starts.
    """

    needs: tuple[np.ndarray, ...]
    takes: tuple[np.ndarray, ...]
    holds: bool


def order(config: LayerConfig) -> Order:
    if isinstance(config, WholeMapLayerConfig):
        return _order_of_whole_map(config)
    if isinstance(config, CollectLayerConfig):
        return _order_of_collected(config)
    if isinstance(config, ReorderLayerConfig):
        return _order_of_reordered(config)
    if isinstance(config, RunningScaleLayerConfig):
        return _order_of_sums(config)
    if isinstance(config, JoinLayerConfig):
        return _order_of_join(config)
    return _order_of_lines(config)


def _order_of_lines(config: LayerConfig) -> Order:
    window, source = config.window, config.window.input
    needs, takes = [], []
    released = [
        window.grid.released(row, step) for row in range(window.output_height) for step in range(window.grid.row_steps)
    ]
    for frame in range(FRAMES):
        for row in range(window.output_height):
            for step in range(window.grid.row_steps):
                pixel = window.grid.needed(row, step) - 1
                steps = pixel // source.width * source.row_steps + pixel % source.width // source.pixels + 1
                needs += [frame * source.beats + steps * source.folds] * window.output_folds
        for pixels in range(source.height * source.row_steps):
            # A step of pixels takes the place of the one ``rows`` above it, in this frame or one before.
            above = frame * source.height * source.row_steps + pixels - window.rows * source.row_steps
            folds = 0
            of_frame, place = divmod(above, source.height * source.row_steps)
            row, step = divmod(place, source.row_steps)
            last = row * source.width + min((step + 1) * source.pixels, source.width) - 1
            if above >= 0 and last < window.grid.skipped:
                folds = of_frame * window.windows * window.output_folds
            elif above >= 0:
                windows = next(number for number, count in enumerate(released) if count > last) + 1
                folds = (of_frame * window.windows + windows) * window.output_folds
            takes += [folds] * source.folds
    return Order((np.array(needs),), (np.array(takes),), True)


def _order_of_join(config: JoinLayerConfig) -> Order:
    folds = FRAMES * config.windows * config.window.output_folds
    needs, takes = [], []
    for place in range(len(config.input_beats)):
        shape, index = config.join.read_cycles(place)
        steps = np.arange(folds).reshape(-1, *shape)[index].ravel()
        counts = np.zeros(folds, dtype=np.int64)
        counts[steps] = 1
        needs.append(np.cumsum(counts))
        takes.append(steps + 1)
    return Order(tuple(needs), tuple(takes), False)


def _order_of_collected(config: CollectLayerConfig) -> Order:
    """All beats of a pixel before its first fold; its last beat once the folds of the pixel before have started."""
    beats, folds = config.window.input.folds, config.window.output_folds
    pixels = np.arange(FRAMES * config.windows)
    takes = np.repeat(np.maximum(pixels - 1, 0) * folds, beats)
    takes[beats - 1 :: beats] = pixels * folds
    return Order((np.repeat((pixels + 1) * beats, folds),), (takes,), True)


def _order_of_reordered(config: ReorderLayerConfig) -> Order:
    """Each step once its beat is there; a beat once the block before the last one is given."""
    first, second, run = config.window.block
    size = first * second * run
    order = [(a * second + b) * run + beat for b in range(second) for a in range(first) for beat in range(run)]
    blocks = np.arange(FRAMES * config.input_beats[0] // size)[:, None] * size
    needs = np.maximum.accumulate((blocks + np.array(order)).ravel()) + 1
    takes = np.maximum(blocks - size, 0) + np.zeros(size, np.int64)
    return Order((needs,), (takes.ravel(),), True)


def _order_of_sums(config: RunningScaleLayerConfig) -> Order:
    """Return the order of a running scale, which sends a channel with the last channel of its window.

    The first channels of a pixel are taken once the pixel before is sent.
    """
    channels, ahead = config.sums.input.channels, config.sums.ahead
    pixels = np.arange(FRAMES * config.windows)[:, None] * channels
    needs = pixels + np.minimum(np.arange(channels) + ahead, channels - 1) + 1
    takes = pixels + np.maximum(np.arange(channels) - ahead + 1, 0)
    return Order((needs.ravel(),), (takes.ravel(),), False)


def _order_of_whole_map(config: WholeMapLayerConfig) -> Order:
    (beats,), folds = config.input_beats, config.window.output_folds
    frames = np.arange(FRAMES)[:, None]
    takes = np.repeat(frames * folds, beats, axis=1)
    takes[:, -folds:] += np.arange(folds) + 1
    needs = frames * beats + beats - folds + np.arange(folds) + 1
    return Order((needs.ravel(),), (takes.ravel(),), False)


@dataclass
class _Stream:
    """A stream's counts: beats that left the FIFO (``entered``), and beats that its reader took."""

    entered: int = 0
    taken: int = 0


class _Count:
    """Counts of the events of all layers."""

    def __init__(self, config: AcceleratorConfig):
        self.config = config
        self.layers = config.layers
        self.started = [0] * len(self.layers)
        self.streams = [_Stream() for _ in config.links]
        self._claimed = [np.cumsum(layer.fold_beats * (FRAMES * layer.windows)) for layer in self.layers]
        self._orders = [order(layer) for layer in self.layers]
        self._into: list[dict[int, int]] = [{} for _ in self.layers]
        self._out_of: list[list[int]] = [[] for _ in self.layers]
        for number, link in enumerate(config.links):
            self._out_of[link.source].append(number)
            if link.sink < len(self.layers):
                self._into[link.sink][link.port] = number

    def run(self) -> None:
        """Go on until nothing moves."""
        moved = True
        while moved:
            moved = False
            for number in range(len(self.layers)):
                moved |= self._start(number)
                for stream in self._out_of[number]:
                    moved |= self._pass(stream)

    def _stored(self, layer: int) -> int:
        """Beats that a layer has put into each of its FIFOs, or will without waiting for anything."""
        return int(self._claimed[layer][self.started[layer] - 1]) if self.started[layer] else 0

    def _start(self, number: int) -> bool:
        """Take beats and start output folds, in turn, as long as that helps."""
        order, moved = self._orders[number], False
        room = min(self.config.fifo_depths[stream] + self.streams[stream].entered for stream in self._out_of[number])
        credit = int(np.searchsorted(self._claimed[number], room, side="right"))
        while True:
            started = credit
            for place, (needs, takes) in enumerate(zip(order.needs, order.takes, strict=True)):
                offered = self._offered(number, place)
                taken = min(int(np.searchsorted(takes, self.started[number], side="right")), offered)
                moved |= self._take(number, place, taken)
                there = taken if order.holds else offered
                started = min(started, int(np.searchsorted(needs, there, side="right")))
            if started <= self.started[number]:
                return moved
            self.started[number], moved = started, True

    def _offered(self, number: int, place: int) -> int:
        """Beats that an input has been offered in all."""
        if place not in self._into[number]:
            return FRAMES * self.layers[number].input_beats[place]
        link = self.config.links[self._into[number][place]]
        regroup, stored = self.layers[link.source].regroups[link.output], self._stored(link.source)
        return completed(regroup, stored) if regroup.needed else stored

    def _take(self, number: int, place: int, beats: int) -> bool:
        if place not in self._into[number]:
            return False
        stream = self.streams[self._into[number][place]]
        if beats <= stream.taken:
            return False
        stream.taken = beats
        return True

    def _pass(self, number: int) -> bool:
        """Count the beats that left a FIFO (taken, or held by a regroup), and return whether the count grew."""
        link, stream = self.config.links[number], self.streams[number]
        layer = self.layers[link.source]
        regroup, stored = layer.regroups[link.output], self._stored(link.source)
        if link.sink == len(self.layers):
            stream.taken = FRAMES * layer.windows * layer.outputs[link.output].folds
        entered = min(stored, accepted(regroup, stream.taken) if regroup.needed else stream.taken)
        if entered <= stream.entered:
            return False
        stream.entered = entered
        return True


def completed(config: RegroupConfig, entered: int) -> int:
    """Return the number of beats that can leave a regroup when ``entered`` beats have entered."""
    pixels, rest = divmod(entered, len(config.counts))
    return pixels * len(config.sizes) + sum(after < rest for after in config.completing_beats)


def accepted(config: RegroupConfig, left: int) -> int:
    """Return the number of beats that can enter a regroup when ``left`` beats have left, if there are as many."""
    entered = 0
    while True:
        pixel, beat = divmod(entered, len(config.counts))
        if pixel * len(config.sizes) - config.waiting[beat] > left or pixel > left + 2:
            return entered
        entered += 1


def stalls(config: AcceleratorConfig) -> bool:
    """Whether a run of some frames never ends."""
    count = _Count(config)
    count.run()
    return any(count.started[number] < len(count._claimed[number]) for number in config.outputs)
