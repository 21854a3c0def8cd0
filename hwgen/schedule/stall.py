"""Whether a graph of layers can stall for ever, because a FIFO is too shallow for what its reader has to wait for.

A layer whose output goes two ways starts nothing while one of its FIFOs is full; if the layer that reads that FIFO
waits for the other way, which needs more beats first, nothing moves any more. Whether that happens does not depend on
when things happen, only on their order: beats and output folds are counted on, as far as they get, until all have come
or none can go on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig, Link
from hwgen.schedule.events import FrameEvents
from hwgen.schedule.solve import events_of

#: Frames that are counted. No output needs anything of a later frame, so what gets through one frame gets through all;
#: the others are there for the rows and beats of frames that follow each other in the same buffers.
FRAMES = 3


@dataclass
class _Stream:
    """A stream's counts: beats that left the FIFO (``entered``), and beats that its reader took."""

    entered: int = 0
    taken: int = 0


class _Count:
    """How far everything gets."""

    def __init__(self, config: AcceleratorConfig):
        self.config = config
        events = [events_of(layer, FRAMES) for layer in config.layers]
        self.layers = [layer for layer in events if isinstance(layer, FrameEvents)]  # all that a graph can hold
        self.started = [0] * len(self.layers)
        self.streams = [_Stream() for _ in config.links]
        self._claimed = [layer.claimed(slice(0, layer.folds)) for layer in self.layers]
        self._orders = [layer.order() for layer in self.layers]
        self._into: list[dict[int, int]] = [{} for _ in self.layers]
        self._out_of: list[list[int]] = [[] for _ in self.layers]
        for number, link in enumerate(config.links):
            self._out_of[link.source].append(number)
            if link.sink < len(self.layers):
                self._into[link.sink][link.place] = number

    def run(self) -> None:
        """Go on until nothing moves."""
        moved = True
        while moved:
            moved = False
            for number in range(len(self.layers)):
                moved |= self._start(number)
                for stream in self._out_of[number]:
                    moved |= self._pass(stream)

    def full(self) -> tuple[Link, int]:
        """The last FIFO that has no room for what its layer would start next, and its depth."""
        found = []
        for link, depth, stream in zip(self.config.links, self.config.fifo_depths, self.streams, strict=True):
            claimed, started = self._claimed[link.source], self.started[link.source]
            if started < len(claimed) and claimed[started] > depth + stream.entered:
                found.append((link, depth))
        return found[-1]

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
            return self.layers[number].beats_in[place]
        link = self.config.links[self._into[number][place]]
        regroup, stored = self.layers[link.source].regroups[link.output], self._stored(link.source)
        return stored if regroup is None else regroup.completed(stored)

    def _take(self, number: int, place: int, beats: int) -> bool:
        if place not in self._into[number]:
            return False
        stream = self.streams[self._into[number][place]]
        if beats <= stream.taken:
            return False
        stream.taken = beats
        return True

    def _pass(self, number: int) -> bool:
        """What leaves a FIFO: what its reader took, and what the regrouping in front of that holds."""
        link, stream = self.config.links[number], self.streams[number]
        layer = self.layers[link.source]
        regroup, stored = layer.regroups[link.output], self._stored(link.source)
        if link.sink == len(self.layers):
            stream.taken = layer.beats_out[link.output]
        entered = min(stored, stream.taken if regroup is None else regroup.accepted(stream.taken))
        if entered <= stream.entered:
            return False
        stream.entered = entered
        return True


def check_stall(config: AcceleratorConfig) -> None:
    """Refuse FIFOs with which a graph of layers stalls for ever. Chains never do.

    Raises
    ------
    PlanError
        Naming a FIFO that is full while its reader waits.
    """
    if config.is_chain:
        return
    count = _Count(config)
    count.run()
    if all(count.started[number] == count.layers[number].folds for number in config.outputs):
        return
    link, depth = count.full()
    names = [layer.name for layer in config.layers]
    raise PlanError(
        f"FIFO from {names[link.source]} to {names[link.sink]}: with a depth of {depth} all stalls for ever: it is "
        f"full while {names[link.sink]} waits for what comes another way; make it deeper"
    )
