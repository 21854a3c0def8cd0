"""Planning task: the goal of a plan, and the data that all groups of a network share while they are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hwgen.boards import Board
from hwgen.gateware.multipliers import Multiplier, multiplier_of
from hwgen.gateware.multiply import CHAIN
from hwgen.network.graph import Network
from hwgen.options import Steering
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import Search
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: DSP slices that a block RAM is worth, tried in turn where block RAM runs out.
BRAM_PRICES = (0.25, 1, 4, 16)


@dataclass(frozen=True, kw_only=True)
class Goal(Steering):
    """Goal of a plan: objective, limits, and the options that steer a template, as the user gave them.

    Parameters
    ----------
    objective : str
        ``interval``, ``latency``, ``traffic`` or ``dsp``: what to make small.
    dsp : int
        DSP slices that may be used.
    interval : int, optional
        With ``dsp``: cycles between frames at most.
    macs_per_dsp : int or str
        Name of the multiplier of all layers that it can compute.
    in_luts : frozenset of str
        Layers whose requantisers multiply by LUTs, not by DSP slices.
    template : str, optional
        ``stream`` or ``pyramid``: how all groups are built. By default row by row, where that fits.
    """

    objective: str
    dsp: int
    interval: int | None = None
    macs_per_dsp: int | str = 1
    in_luts: frozenset[str] = frozenset()
    template: str | None = None

    @property
    def products(self) -> int:
        """Multiply-adds a cycle at most."""
        return self.dsp * multiplier_of(self.macs_per_dsp).lanes


class Task:
    """Data that all groups of a network share while they are planned: the layers' work, and searches over this work.

    Parameters
    ----------
    network : Network
    board : Board
    goal : Goal
    """

    def __init__(self, network: Network, board: Board, goal: Goal):
        self.network, self.board, self.goal = network, board, goal
        copies = {index: copy for index in network.cuts if (copy := network.copy_at(index)) is not None}
        self._stages = {layer.name: stage_of(layer) for layer in (*network.layers, *copies.values())}
        self.multiplier = multiplier_of(goal.macs_per_dsp)
        """Multiplier that is asked for."""
        self.multipliers: dict[str, Multiplier] = {
            name: stage.multiplier(self.multiplier) for name, stage in self._stages.items()
        }
        """Multiplier of each layer, by the layers' names; copies in front of groups have names of theirs."""
        self._numbers = {layer.name: number for number, layer in enumerate(network.layers)}
        self.works = [self.work(self._stages[layer.name]) for layer in network.layers]
        self._copies = {
            index: LayerWork.of(copy, CHAIN, **self._stages[copy.name].work) for index, copy in copies.items()
        }
        self._weight_bram36: dict[tuple[LayerWork, Unroll], float] = {}
        self._parts: dict[tuple[int, int], Network] = {}

    def part(self, begin: int, end: int) -> Network:
        """The layers ``begin`` to ``end`` as a network of their own (`Network.part`)."""
        if (begin, end) not in self._parts:
            self._parts[begin, end] = self.network.part(begin, end)
        return self._parts[begin, end]

    def work(self, stage: Stage[Any]) -> LayerWork:
        """Return the work of a layer of the network that a stage builds."""
        number = self._numbers[stage.op.name]
        return LayerWork.of(
            stage.op,
            self.multipliers[stage.op.name].longest_chain(CHAIN),
            back=tuple(number - self._numbers.get(edge, -1) for edge in self.network.edges[number]),
            **stage.work,
        )

    def aiming(self, **changes: Any) -> Task:
        """The same for another goal, but for ``macs_per_dsp``; what both know is computed once."""
        other = copy(self)
        other.goal = replace(self.goal, **changes)
        return other

    @cached_property
    def search(self) -> Search:
        """Search for unroll factors, at the cost of DSP slices."""
        return Search(self.works, self.slices, self._copies)

    def slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """DSP slices of a layer, with those of its requantiser; factors may be arrays.

        Never too few; too many where some of a requantiser's lanes get by with smaller factors than others.
        """
        multipliers = work.multipliers(unroll, self.multipliers[work.name])
        return unroll.tp * (multipliers + self.finish_slices(work, unroll) * lanes_out(work, unroll))

    def finish_slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """DSP slices of what finishes a layer's channels, for each that is finished in a cycle; factors may be arrays.

        A single output channel a cycle has no partner to share slices with.
        """
        stage = self._stages[work.name]
        if work.name in self.goal.in_luts:
            return stage.least_finish_slices
        multiplier = self.multipliers[work.name]
        alone = stage.finish_slices(multiplier.fallback)
        return alone + (stage.finish_slices(multiplier) - alone) * (unroll.tm >= multiplier.lanes)

    def bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Block RAM of a layer's weights; factors may be arrays."""
        return self._stages[work.name].weight_bram36(work, unroll)

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> float:
        """The same of one choice, looked up where it was asked for before."""
        key = work, unroll
        if key not in self._weight_bram36:
            self._weight_bram36[key] = float(self.bram36(work, unroll))
        return self._weight_bram36[key]

    @cached_property
    def priced(self) -> list[Search]:
        """Searches for unroll factors, at the cost of DSP slices and block RAM together."""
        return self.price(self.works, self._copies)

    def price(self, works: Sequence[LayerWork], copies: Mapping[int, LayerWork] | None = None) -> list[Search]:
        """Searches by DSP slices and block RAM together, at several prices; ``copies`` as of `Search`."""

        def search(price: float) -> Search:
            return Search(works, lambda *choice: self.slices(*choice) + price * self.bram36(*choice), copies)

        return [search(price) for price in BRAM_PRICES]


def lanes_out(work: LayerWork, unroll: Unroll) -> Any:
    """``r``: channels a cycle that a layer finishes, ``ceil(Tm / cycles of an output fold)``."""
    return ceil_div(unroll.tm, work.steps(unroll))
