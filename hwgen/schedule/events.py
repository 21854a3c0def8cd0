"""What the events of a layer wait for.

A layer takes beats, starts output folds and stores beats in its FIFO; behind that beats may be regrouped. How beats
are taken, and what a window's first fold waits for, is each kind of layer's own; the rest is common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.settle import Times, Wait

Config = TypeVar("Config", bound=LayerConfig)

#: Stands for the depth of a FIFO without end.
ENDLESS = 1 << 40


@dataclass(frozen=True)
class Origin:
    """When beats are offered, of a stream: ``delay[r]`` cycles after event ``index[r] + q * ahead`` of a sequence.

    ``q, r = divmod(beat, len(index))``.
    """

    source: Any
    index: Times
    ahead: int
    delay: Times

    def of(self, beats: Times, in_frame: int) -> Origin:
        """Of some beats of each frame, which has so many in all; a negative number is one of the frame before."""
        periods, places = np.divmod(beats, len(self.index))
        index = self.index[places] + periods * self.ahead
        return Origin(self.source, index, in_frame // len(self.index) * self.ahead, self.delay[places])

    def waited_for(self, target: Any, *, after: Times | int = 0) -> Wait:
        """The wait of a sequence with an event for each beat."""
        return Wait(target, self.source, self.index, self.ahead, self.delay + after)


@dataclass(frozen=True)
class Ports:
    """The sequences between which a layer stands.

    Parameters
    ----------
    taken : tuple
        For each input the beats that are taken there.
    offered : tuple of Origin or None
        For each input, when its beats are offered; ``None`` where all are there from the beginning.
    left : tuple
        For each FIFO the beats that leave it.
    starts : hashable
        The layer's output folds.
    """

    taken: tuple[Any, ...]
    offered: tuple[Origin | None, ...]
    left: tuple[Any, ...]
    starts: Any


class LayerEvents(ABC, Generic[Config]):
    """The events of one layer. Numbers of events are those of a frame."""

    def __init__(self, config: Config):
        self.config = config
        self.beats_in = config.input_beats
        self.beats_stored = config.beats
        self.beats_out = tuple(config.windows * output.folds for output in config.outputs)
        self.folds = config.windows * config.window.output_folds
        #: Of a window: FIFO beats claimed up to and including each output fold.
        self._claimed = np.cumsum(config.fold_beats)

    @abstractmethod
    def waits(self, ports: Ports) -> list[Wait]:
        """How beats are taken at each input, and what output folds wait for, but for room in the FIFOs."""

    def room(self, ports: Ports, place: int, depth: int | None) -> Wait:
        """Output folds start when a FIFO has room for what they will store."""
        return Wait(
            ports.starts,
            ports.left[place],
            self._claimed,
            int(self._claimed[-1]),
            self.config.credit_delay,
            back=back_of(depth),
            data=False,
        )

    def space(self, ports: Ports, rows: int) -> Wait | None:
        """Beats are taken when there is space for them in a line buffer of so many rows, if there is one."""
        return None

    def inner(self, ports: Ports) -> dict[Any, tuple[int, int]]:
        """Sequences that nothing else knows, with the events of a frame and the least distance of two."""
        return {}

    def beats(self, ports: Ports) -> tuple[Any, ...]:
        """Sequences of beats that come in: one that is early still waits for those before it."""
        return ports.taken

    def work(self, ports: Ports) -> tuple[Any, int]:
        """The events that are the layer's work, and the cycles that each takes."""
        return ports.starts, self.config.window.steps

    def stored(self, starts: Any) -> Origin:
        """When an otherwise empty FIFO offers its beats."""
        config = self.config
        offsets = np.concatenate([np.arange(beats) for beats in config.fold_beats])
        folds = np.repeat(np.arange(len(config.fold_beats)), config.fold_beats)
        return Origin(starts, folds, len(config.fold_beats), offsets + (config.pipeline_latency + FifoConfig.latency))

    def claimed(self, starts: slice) -> Times:
        """FIFO beats claimed up to and including each of some output folds, those of whole windows."""
        folds, beats = self._claimed.size, int(self._claimed[-1])
        windows = np.arange(starts.start // folds, starts.stop // folds)[:, None] * beats
        return (windows + self._claimed).ravel()


def back_of(depth: int | None) -> int:
    """How far behind a beat that is claimed lies the one that must have left."""
    return (ENDLESS if depth is None else depth) + 1


class LineEvents(LayerEvents[LayerConfig]):
    """Of a layer behind a line buffer."""

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.window
        source = window.input
        bottoms = (np.array([window.needed(row, 0) for row in range(window.output_height)]) - 1) // source.width
        rights = (np.array([window.needed(0, step) for step in range(window.row_steps)]) - 1) % source.width
        steps = bottoms[:, None] * source.row_steps + rights // source.pixels
        # For each window of a frame the last input beat that it needs, or one before it: several rows of windows may
        # end with the map's last row.
        needed = np.maximum.accumulate(((steps + 1) * source.folds - 1).ravel())
        found = [
            Wait(ports.starts, ports.taken[0], needed, source.beats, window.write_delay, every=window.output_folds)
        ]
        if ports.offered[0] is not None:
            found.append(ports.offered[0].waited_for(ports.taken[0]))
        return found

    def space(self, ports: Ports, rows: int) -> Wait:
        window = self.config.window
        source = window.input
        # For each step of input pixels of a frame, the window whose end releases its last pixel.
        ends = np.minimum((np.arange(source.row_steps) + 1) * source.pixels, source.width) - 1
        pixels = (np.arange(source.height)[:, None] * source.width + ends).ravel()
        releasing = np.searchsorted(_released(window), pixels, side="right")
        releasing[pixels < window.skipped] = -1  # by the last window of the frame before
        return Wait(
            ports.taken[0],
            ports.starts,
            (releasing + 1) * window.output_folds - 1,
            self.folds,
            window.steps - 1 + window.release_delay,
            every=source.folds,
            lead=self.lead(rows),
            data=False,
        )

    def lead(self, rows: int) -> int:
        """A step of pixels takes the place of the one so many before it."""
        return rows * self.config.window.input.row_steps


def _released(window: LineBufferConfig) -> Times:
    """`LineBufferConfig.released` of all windows of a frame, in order."""
    height, width, last = window.input.height, window.input.width, window.row_steps - 1
    top = np.arange(window.output_height) * window.stride[0] - window.padding[0]
    left = (np.arange(last) + 1) * window.pixels * window.stride[1] - window.padding[1]
    result = np.empty((len(top), last + 1), dtype=np.int64)
    result[:, :last] = top.clip(0, height)[:, None] * width
    inside = (top + window.stride[0] > 0) & (top < height)
    result[inside, :last] += left.clip(0, width)
    result[:, last] = (top + window.stride[0]).clip(0, height) * width
    result[-1, last] = height * width + window.skipped
    return result.ravel()


class JoinEvents(LayerEvents[JoinLayerConfig]):
    """Of a layer without a line buffer: a beat is taken in the cycle in which its step starts."""

    def waits(self, ports: Ports) -> list[Wait]:
        found = []
        for place, (taken, offered) in enumerate(zip(ports.taken, ports.offered, strict=True)):
            steps = self._taking(place)
            found.append(Wait(taken, ports.starts, steps, self.folds, data=False))
            if offered is not None:
                # A step that takes none waits for the last one that was taken, as it does anyhow.
                last = np.searchsorted(steps, np.arange(self.folds), side="right") - 1
                found.append(offered.of(last, self.beats_in[place]).waited_for(ports.starts))
        return found

    def _taking(self, place: int) -> Times:
        """The steps of a frame that take a beat of an input."""
        shape, index = self.config.join.taking(place)
        return np.arange(self.folds).reshape(-1, *shape)[index].ravel()


class CollectEvents(LayerEvents[CollectLayerConfig]):
    """Of a layer that takes a pixel before it gives any of it; of the next one all but the last beat may come in."""

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.collects
        (taken,), (offered,), beats = ports.taken, ports.offered, window.input.folds
        pixels = np.arange(window.windows)
        # All steps of the pixel before have been issued when the last beat is taken; those of the one before that, when
        # the others are.
        steps = np.repeat(pixels * window.output_folds - 1, beats)
        steps.reshape(-1, beats)[:, :-1] -= window.output_folds
        found = [
            Wait(
                ports.starts,
                taken,
                (pixels + 1) * beats - 1,
                self.beats_in[0],
                window.write_delay,
                every=window.output_folds,
            ),
            Wait(taken, ports.starts, steps, self.folds, data=False),
        ]
        if offered is not None:
            found.append(offered.waited_for(taken))
        return found


class RunningScaleEvents(LayerEvents[RunningScaleLayerConfig]):
    """Of a layer whose window of channels moves on every few cycles: then a channel is taken, or given, or both."""

    def inner(self, ports: Ports) -> dict[Any, tuple[int, int]]:
        return {self._moves(ports): (self._count, self.config.sums.steps)}

    def waits(self, ports: Ports) -> list[Wait]:
        sums, moves = self.config.sums, self._moves(ports)
        (taken,), (offered,) = ports.taken, ports.offered
        channels, ahead = sums.input.channels, sums.ahead
        pixels = np.arange(sums.windows)[:, None]
        # When a window has moved n times in its pixel: the last channel that it has taken, and that is given before it
        # moves again, perhaps of the pixel before.
        number = np.arange(channels + ahead)
        into = (pixels * channels + np.minimum(number, channels - 1)).ravel()
        before = (pixels * channels + np.maximum(number - ahead, 0) - 1).ravel()
        given = (pixels * (channels + ahead) + np.arange(channels) + ahead).ravel()
        with_start = (pixels * channels + np.maximum(np.arange(channels) - ahead + 1, 0) - 1).ravel()
        found = [
            Wait(moves, ports.starts, before, self.folds, sums.steps, data=False),
            Wait(ports.starts, moves, given, self._count),
            Wait(taken, moves, (pixels * (channels + ahead) + np.arange(channels)).ravel(), self._count, data=False),
            Wait(taken, ports.starts, with_start, self.folds, data=False),
        ]
        if offered is not None:
            found.append(offered.of(into, self.beats_in[0]).waited_for(moves))
        return found

    @property
    def _count(self) -> int:
        """Moves of a frame."""
        sums = self.config.sums
        return sums.windows * (sums.input.channels + sums.ahead)

    def _moves(self, ports: Ports) -> Any:
        return "moves", ports.starts


class ReorderEvents(LayerEvents[ReorderLayerConfig]):
    """Of a layer that gives beats in another order: while one block of them is read, the next one comes in."""

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.reorder
        (taken,), (offered,), beats = ports.taken, ports.offered, window.block_beats
        order = np.arange(beats).reshape(window.block).swapaxes(0, 1).ravel()
        blocks = np.arange(self.beats_in[0] // beats)
        needed = (blocks[:, None] * beats + np.maximum.accumulate(order)).ravel()
        found = [
            Wait(ports.starts, taken, needed, self.beats_in[0], window.write_delay),
            Wait(
                taken,
                ports.starts,
                (blocks + 1) * beats - 1,
                self.folds,
                window.release_delay,
                every=beats,
                lead=2,
                data=False,
            ),
        ]
        if offered is not None:
            found.append(offered.waited_for(taken))
        return found


class WholeMapEvents(LayerEvents[WholeMapLayerConfig]):
    """Of a layer that adds up a map: beats are taken as they come, those of the last pixels as their outputs start."""

    def work(self, ports: Ports) -> tuple[Any, int]:
        """Each beat is added as it is taken."""
        return ports.taken[0], 1

    def waits(self, ports: Ports) -> list[Wait]:
        (taken,), (offered,), beats = ports.taken, ports.offered, self.beats_in[0]
        last = np.arange(beats - self.folds, beats)
        steps = np.concatenate([np.full(beats - self.folds, -1), np.arange(self.folds)])
        found = [
            Wait(ports.starts, taken, last - 1, beats, 1),
            Wait(taken, ports.starts, steps, self.folds, data=False),
        ]
        if offered is not None:
            found += [offered.of(last, beats).waited_for(ports.starts), offered.waited_for(taken)]
        return found


class RegroupEvents:
    """What beats wait for that pass a Regroup: from the FIFO's (``left``) to those that are offered to the reader."""

    def __init__(self, config: RegroupConfig):
        self._counts, self._sizes = len(config.counts), len(config.sizes)
        self._latency, self._after, self._waiting = config.latency, np.array(config.after), np.array(config.waiting)

    def entering(self, left: Any, taken: Any) -> Wait:
        """A beat enters when enough of those before it were taken."""
        # Beats enter in order, so each waits for what those before it wait for.
        before = np.maximum.accumulate(-1 - self._waiting)
        return Wait(left, taken, before, self._sizes, data=False)

    def leaving(self, left: Any) -> Origin:
        """When beats are offered."""
        return Origin(left, self._after, self._counts, np.full(self._sizes, self._latency))
