"""Events (transfers, computation starts) of each kind of layer, and the earlier events each one waits for.

A layer accepts beats, starts output folds and stores beats in its FIFO. A Regroup after the FIFO can change the width
of the beats. `LayerEvents` holds the waits that all layers share. Its subclasses state how a layer accepts beats, and
what the first fold of a window waits for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.join import JoinLayerConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.gateware.reorder import ReorderLayerConfig
from hwgen.gateware.resample import ResampleLayerConfig
from hwgen.gateware.running_scale import RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig
from hwgen.gateware.whole_map import WholeMapLayerConfig
from hwgen.schedule.settle import Times, Wait

Config = TypeVar("Config", bound=LayerConfig)

#: FIFO depth that stands for an endless FIFO.
ENDLESS = 1 << 40


@dataclass(frozen=True)
class Origin:
    """Cycles when a stream's beats become valid, given as delays after events of another sequence.

    With ``q, r = divmod(beat, len(index))``, beat ``beat`` is valid ``delay[r]`` cycles after event ``index[r] + q *
    ahead`` of the sequence ``source``.
    """

    source: Any
    index: Times
    ahead: int
    delay: Times

    def of(self, beats: Times, in_frame: int) -> Origin:
        """Return an `Origin` for chosen beats of each frame only: delays after the events that make them valid.

        Parameters
        ----------
        beats : Times
            Indices of the beats in their frame. A negative index is a beat of the previous frame.
        in_frame : int
            Number of beats per frame.
        """
        periods, entries = np.divmod(beats, len(self.index))
        index = self.index[entries] + periods * self.ahead
        return Origin(self.source, index, in_frame // len(self.index) * self.ahead, self.delay[entries])

    def waited_for(self, target: Any, *, after: Times | int = 0) -> Wait:
        """Return the `Wait`: event ``n`` of ``target`` comes at least ``after`` cycles after this origin's beat ``n``.

        ``target`` is the key of a sequence.
        """
        return Wait(target, self.source, self.index, self.ahead, self.delay + after)


@dataclass(frozen=True)
class Ports:
    """Keys of a layer's event sequences: input beats accepted and offered, computation starts, output beats.

    Parameters
    ----------
    taken : tuple
        Beats that the layer takes, per input.
    offered : tuple of Origin or None
        When each input's beats are valid; ``None`` if all beats are available from the beginning.
    left : tuple
        Beats that leave the FIFO, per output.
    starts : hashable
        Output folds that the layer starts.
    """

    taken: tuple[Any, ...]
    offered: tuple[Origin | None, ...]
    left: tuple[Any, ...]
    starts: Any


class LayerEvents(ABC, Generic[Config]):
    """Base class of a layer's events (beats accepted, computation starts) and the constraints on their cycles.

    Indices and counts of events refer to one frame.
    """

    def __init__(self, config: Config):
        self.config = config
        self.beats_in = config.input_beats
        self.beats_stored = config.stored_beats
        self.beats_out = tuple(config.windows * output.folds for output in config.outputs)
        self.folds = config.windows * config.window.output_folds
        #: List of an array per output: FIFO entries that a window's output folds reserve, up to and including each.
        self._claimed = [np.cumsum(claims) for claims in config.claims]

    @abstractmethod
    def waits(self, ports: Ports) -> list[Wait]:
        """Return a list of the constraints (`Wait`) on input beats and computation starts, except for room in FIFOs.

        Room in the output FIFOs is the constraint of `room`.
        """

    def room(self, ports: Ports, output: int, depth: int | None) -> Wait:
        """Return a `Wait`: constraint that a pass over ``Tm`` channels starts only if a FIFO has room for its beats.

        ``output`` is the index of the FIFO among the layer's outputs. A depth of ``None`` is endless.
        """
        return Wait(
            ports.starts,
            ports.left[output],
            self._claimed[output],
            int(self._claimed[output][-1]),
            self.config.credit_delay,
            back=back_of(depth),
            data=False,
        )

    def space(self, ports: Ports, rows: int) -> Wait | None:
        """Return the `Wait` of input beats for space in a line buffer of ``rows`` rows; ``None`` without a buffer."""
        return None

    def inner_sequences(self, ports: Ports) -> dict[Any, tuple[int, int]]:
        """Return a dict of a layer's internal event sequences by key: (events per frame, minimum distance in cycles).

        Tile starts are an example. The minimum distance is between two consecutive events.
        """
        return {}

    def beats(self, ports: Ports) -> tuple[Any, ...]:
        """Return the keys of the layer's event sequences that consist of input beats, as a tuple.

        An early beat still waits for the previous beats.
        """
        return ports.taken

    def work(self, ports: Ports) -> tuple[Any, int]:
        """Return a pair: key of the layer's sequence of computations, and cycles that each computation takes."""
        return ports.starts, self.config.window.steps

    def stored(self, starts: Any, output: int) -> Origin:
        """Return the cycles when beats are valid at an empty FIFO's output: delays after output fold starts (`Origin`).

        ``output`` is the index of the FIFO among the layer's outputs.
        """
        config, regroup = self.config, self.config.regroups[output]
        offsets = np.concatenate([np.arange(beats) for beats in config.fold_beats])
        folds = np.repeat(np.arange(len(config.fold_beats)), config.fold_beats)
        offsets += config.pipeline_latency + FifoConfig.latency
        if regroup.always_ready:
            completing = np.array(regroup.completing_beats)
            folds, offsets = folds[completing], offsets[completing] + regroup.departure_delays
        return Origin(starts, folds, len(config.fold_beats), offsets)

    def claimed(self, output: int, starts: slice) -> Times:
        """Return `Times` over starts of output folds (``Tm`` channels): FIFO entries reserved by all starts so far.

        An output fold is a set of output channels that are computed together. The range ``starts`` of output folds
        covers whole windows. ``output`` is the index of the FIFO among the layer's outputs.
        """
        claimed = self._claimed[output]
        folds, beats = claimed.size, int(claimed[-1])
        windows = np.arange(starts.start // folds, starts.stop // folds)[:, None] * beats
        return (windows + claimed).ravel()


def back_of(depth: int | None) -> int:
    """Return how many beats earlier a beat must have left for the next one to fit a FIFO of depth ``depth``."""
    return (ENDLESS if depth is None else depth) + 1


class LineEvents(LayerEvents[LayerConfig]):
    """Events (transfers, computation starts) of a layer that reads its windows from a line buffer."""

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.window
        source = window.input
        rows, row_steps = window.grid.windows
        bottoms = (window.grid.needed(rows, 0) - 1) // source.width
        rights = (window.grid.needed(0, row_steps) - 1) % source.width
        steps = bottoms * source.row_steps + rights // source.pixels
        # Last input beat that each window of a frame needs, or a beat before it. Several rows of windows can end with
        # the map's last row.
        needed = np.maximum.accumulate(((steps + 1) * source.folds - 1).ravel())
        waits = [
            Wait(ports.starts, ports.taken[0], needed, source.beats, window.write_delay, every=window.output_folds)
        ]
        if ports.offered[0] is not None:
            waits.append(ports.offered[0].waited_for(ports.taken[0]))
        return waits

    def space(self, ports: Ports, rows: int) -> Wait:
        window = self.config.window
        source = window.input
        # Window whose end releases the last pixel of each input step of a frame.
        ends = np.minimum((np.arange(source.row_steps) + 1) * source.pixels, source.width) - 1
        pixels = (np.arange(source.height)[:, None] * source.width + ends).ravel()
        releasing = np.searchsorted(window.grid.released(*window.grid.windows).ravel(), pixels, side="right")
        releasing[pixels < window.grid.skipped] = -1  # released by the last window of the previous frame
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
        """Return the number of input steps after which a line buffer of ``rows`` rows reuses a memory word.

        Each step stores ``Tp`` neighbouring pixels.
        """
        return rows * self.config.window.input.row_steps


class JoinEvents(LayerEvents[JoinLayerConfig]):
    """Events (transfers, computation starts) of a layer without a line buffer, such as a join of branches.

    The events are transfers and computation starts. The layer accepts a beat in the cycle when its step starts.
    """

    def waits(self, ports: Ports) -> list[Wait]:
        waits = []
        for port, (taken, offered) in enumerate(zip(ports.taken, ports.offered, strict=True)):
            steps = self._fold_of_beat(port)
            waits.append(Wait(taken, ports.starts, steps, self.folds, data=False))
            if offered is not None:
                # A step that takes no beat is given the wait of the last beat before it, which changes nothing.
                last = np.searchsorted(steps, np.arange(self.folds), side="right") - 1
                waits.append(offered.of(last, self.beats_in[port]).waited_for(ports.starts))
        return waits

    def _fold_of_beat(self, port: int) -> Times:
        """Return `Times`: an array with the index of the output fold whose start takes each beat of input ``port``."""
        shape, index = self.config.join.read_cycles(port)
        return np.arange(self.folds).reshape(-1, *shape)[index].ravel()


class CollectEvents(LayerEvents[CollectLayerConfig]):
    """Events (transfers, computation starts) of a layer that collects a whole pixel before it computes.

    All beats of the next pixel but the last can arrive meanwhile.
    """

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.collects
        (taken,), (offered,), beats = ports.taken, ports.offered, window.input.folds
        pixels = np.arange(window.windows)
        # The last beat of a pixel is accepted after all steps of the previous pixel, the other beats after all steps of
        # the pixel before the previous one.
        steps = np.repeat(pixels * window.output_folds - 1, beats)
        steps.reshape(-1, beats)[:, :-1] -= window.output_folds
        waits = [
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
            waits.append(offered.waited_for(taken))
        return waits


class RunningScaleEvents(LayerEvents[RunningScaleLayerConfig]):
    """Events (transfers, computation starts) of a layer that slides a window over channels, such as LRN.

    The window moves every few cycles. With each move the layer takes a channel, sends a channel, or does both.
    """

    def inner_sequences(self, ports: Ports) -> dict[Any, tuple[int, int]]:
        return {self._moves(ports): (self._count, self.config.sums.steps)}

    def waits(self, ports: Ports) -> list[Wait]:
        sums, moves = self.config.sums, self._moves(ports)
        (taken,), (offered,) = ports.taken, ports.offered
        channels, ahead = sums.input.channels, sums.ahead
        pixels = np.arange(sums.windows)[:, None]
        # State after a window has moved n times in its pixel: the last channel that the window has taken, and the last
        # channel that is sent before the next move. The latter can belong to the previous pixel.
        move = np.arange(channels + ahead)
        into = (pixels * channels + np.minimum(move, channels - 1)).ravel()
        before = (pixels * channels + np.maximum(move - ahead, 0) - 1).ravel()
        sent = (pixels * (channels + ahead) + np.arange(channels) + ahead).ravel()
        with_start = (pixels * channels + np.maximum(np.arange(channels) - ahead + 1, 0) - 1).ravel()
        waits = [
            Wait(moves, ports.starts, before, self.folds, sums.steps, data=False),
            Wait(ports.starts, moves, sent, self._count),
            Wait(taken, moves, (pixels * (channels + ahead) + np.arange(channels)).ravel(), self._count, data=False),
            Wait(taken, ports.starts, with_start, self.folds, data=False),
        ]
        if offered is not None:
            waits.append(offered.of(into, self.beats_in[0]).waited_for(moves))
        return waits

    @property
    def _count(self) -> int:
        """Number of moves per frame that the window over the channels of each pixel makes."""
        sums = self.config.sums
        return sums.windows * (sums.input.channels + sums.ahead)

    def _moves(self, ports: Ports) -> Any:
        return "moves", ports.starts


class ReorderEvents(LayerEvents[ReorderLayerConfig]):
    """Events (transfers, computation starts) of a layer that sends its input beats in another order.

    It reads one block of beats while it stores the next block.
    """

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.reorder
        (taken,), (offered,), beats = ports.taken, ports.offered, window.block_beats
        order = np.arange(beats).reshape(window.block).swapaxes(0, 1).ravel()
        blocks = np.arange(self.beats_in[0] // beats)
        needed = (blocks[:, None] * beats + np.maximum.accumulate(order)).ravel()
        waits = [
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
            waits.append(offered.waited_for(taken))
        return waits


class ResampleEvents(LayerEvents[ResampleLayerConfig]):
    """Events (transfers, computation starts) of a layer that reads fixed rows and columns from a ring of rows."""

    def waits(self, ports: Ports) -> list[Wait]:
        window = self.config.resample
        (taken,), (offered,), steps = ports.taken, ports.offered, window.output_row_steps
        source = window.input
        row_beats = source.width * source.folds
        # Output row after which each input row can be overwritten; -1 for rows that no output row reads.
        releasing = np.searchsorted(window.released[:-1], np.arange(source.height), side="right") - 1
        waits = [
            Wait(
                ports.starts,
                taken,
                np.array(window.needed[:-1]) * row_beats - 1,
                self.beats_in[0],
                window.write_delay,
                every=steps,
            ),
            Wait(
                taken,
                ports.starts,
                (releasing + 1) * steps - 1,
                self.folds,
                window.release_delay,
                every=row_beats,
                lead=window.ring_rows,
                data=False,
            ),
        ]
        if offered is not None:
            waits.append(offered.waited_for(taken))
        return waits


class WholeMapEvents(LayerEvents[WholeMapLayerConfig]):
    """Events (transfers, computation starts) of a layer that sums whole maps, such as a global average pool.

    It takes beats as they arrive, and the last pixels' beats as their outputs start.
    """

    def work(self, ports: Ports) -> tuple[Any, int]:
        """Return a pair: key of the sequence of input beats (the layer's computations), and 1, the cycles of each.

        The layer adds each beat in the cycle when it accepts the beat.
        """
        return ports.taken[0], 1

    def waits(self, ports: Ports) -> list[Wait]:
        (taken,), (offered,), beats = ports.taken, ports.offered, self.beats_in[0]
        last = np.arange(beats - self.folds, beats)
        steps = np.concatenate([np.full(beats - self.folds, -1), np.arange(self.folds)])
        waits = [
            Wait(ports.starts, taken, last - 1, beats, 1),
            Wait(taken, ports.starts, steps, self.folds, data=False),
        ]
        if offered is not None:
            waits += [offered.of(last, beats).waited_for(ports.starts), offered.waited_for(taken)]
        return waits


class RegroupEvents:
    """Constraints on the cycles of beats that pass a width converter (Regroup) between FIFO and reader."""

    def __init__(self, config: RegroupConfig):
        self._counts, self._sizes, self._latency = len(config.counts), len(config.sizes), config.latency
        self._after, self._waiting = np.array(config.completing_beats), np.array(config.waiting)

    def entering(self, left: Any, taken: Any) -> Wait:
        """Return the `Wait` of beats that enter a width converter for its reader to accept earlier ones."""
        # Beats enter in order, so each beat waits for everything that the previous beats wait for.
        before = np.maximum.accumulate(-1 - self._waiting)
        return Wait(left, taken, before, self._sizes, data=False)

    def leaving(self, left: Any) -> Origin:
        """Return the cycles when a width converter's output beats are valid, as delays after input beats (`Origin`)."""
        return Origin(left, self._after, self._counts, np.full(self._sizes, self._latency))
