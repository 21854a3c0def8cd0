"""Planning task: a plan's goal, with the data that the searches for all groups of a network share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hwgen.boards import Board
from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.multipliers import MULTIPLIERS, Multiplier, multiplier_for, multiplier_of
from hwgen.network.graph import Network
from hwgen.options import AUTO, LUT, Steering
from hwgen.templates.factor_paths import Budget
from hwgen.templates.stage import Stage
from hwgen.templates.stages import stage_of
from hwgen.templates.two_prices import StagePrices, best_packing, by_prices
from hwgen.templates.unroll import Search, by_cost
from hwgen.templates.work import LayerWork, Unroll, lanes_out

#: Candidate prices of a block RAM, in DSP slices, if a search runs out of block RAM.
BRAM_PRICES = (0.25, 1, 4, 16)

#: Price of a DSP slice, in LUTs, in a search for the fewest slices; more LUTs than any device has.
MAX_LUTS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Goal(Steering):
    """Goal of a plan, from the user's options: objective, limits such as DSP slices, and options of templates.

    Parameters
    ----------
    objective : str
        Quantity that the search minimises: ``interval``, ``latency``, ``traffic`` or ``dsp``.
    dsp : int
        Number of DSP slices that may be used.
    interval : int, optional
        Maximum number of cycles between frames, for the objective ``dsp``.
    macs_per_dsp : int or str
        Name of the multiplier of all layers that it can compute; ``auto`` is the best packing of each layer.
    in_luts : frozenset of str
        Names of layers whose requantisers multiply in LUTs instead of DSP slices.
    template : str, optional
        Template of all groups, ``stream`` or ``pyramid``. By default groups are computed row by row if that fits.
    multipliers : str
        Resource that multiplies: ``dsp`` slices, ``lut``, or ``auto`` for both.
    lut : int
        Number of LUTs that may be used if LUTs multiply.
    max_bus_bits : int
        Bits of the widest port to memory that an engine may have unless ``bus_bits`` gives its width.
    """

    objective: str
    dsp: int
    interval: int | None = None
    macs_per_dsp: int | str = 1
    in_luts: frozenset[str] = frozenset()
    template: str | None = None
    multipliers: str = "dsp"
    lut: int = 0
    max_bus_bits: int = 64

    @property
    def needs_luts(self) -> bool:
        """Whether all products must be computed in LUTs, so that no group may compute them in DSP slices."""
        return self.multipliers == LUT

    @property
    def products(self) -> int:
        """Maximum number of multiply-adds per cycle that the limit of DSP slices allows."""
        kinds = MULTIPLIERS.values() if self.macs_per_dsp == AUTO else [multiplier_of(self.macs_per_dsp)]
        return self.dsp * max(multiplier.lanes for multiplier in kinds)


class Task:
    """Planning task of one network: goal, each layer's work and multiplier, and searches that all groups share.

    Parameters
    ----------
    network : Network
    board : Board
    goal : Goal
    in_slices : Task, optional
        Task of the same network whose products are computed in DSP slices only; by default this task.
    """

    def __init__(self, network: Network, board: Board, goal: Goal, in_slices: Task | None = None):
        self.network, self.board, self.goal = network, board, goal
        self._in_slices = in_slices
        copies = {index: copy for index in network.cuts if (copy := network.copy_at(index)) is not None}
        self._stages = {layer.name: stage_of(layer, board.family) for layer in (*network.layers, *copies.values())}
        multiplier_slice = board.family.multiplier_slice
        self.multiplier = None if goal.macs_per_dsp == AUTO else multiplier_for(goal.macs_per_dsp, multiplier_slice)
        """Kind of DSP multiplier that the goal names for all layers; ``None`` if each layer has its best kind."""
        self.multipliers: dict[str, Multiplier] = {
            name: best_packing(stage) if self.multiplier is None else stage.multiplier(self.multiplier)
            for name, stage in self._stages.items()
        }
        """Dictionary by the layer's name: kind of DSP multiplier of each layer.

        Layers that copy a group's input have names of their own.
        """
        self._indices = {layer.name: index for index, layer in enumerate(network.layers)}
        self.works = [self.work(self._stages[layer.name]) for layer in network.layers]
        self._copies = {
            index: LayerWork.of(copy, CHAIN, **self._stages[copy.name].work_fields) for index, copy in copies.items()
        }
        self._weight_bram36: dict[tuple[LayerWork, Unroll], float] = {}
        self._parts: dict[tuple[int, int], Network] = {}

    def part(self, begin: int, end: int) -> Network:
        """Return layers ``begin`` to ``end - 1`` of the network as a `Network` (`Network.part`), from a cache."""
        if (begin, end) not in self._parts:
            self._parts[begin, end] = self.network.part(begin, end)
        return self._parts[begin, end]

    def work(self, stage: Stage[Any]) -> LayerWork:
        """Return a layer's sizes and order of computation (`LayerWork`), from the planner's model of the layer."""
        index = self._indices[stage.op.name]
        return LayerWork.of(
            stage.op,
            stage.longest_chain(self.multipliers[stage.op.name], CHAIN),
            back=tuple(index - self._indices.get(edge, -1) for edge in self.network.edges[index]),
            **stage.work_fields,
        )

    def aiming(self, **changes: Any) -> Task:
        """Return a `Task`: copy of this task whose goal has the values ``changes``, in any fields but ``macs_per_dsp``.

        Both tasks share their data.
        """
        other = copy(self)
        other.goal = replace(self.goal, **changes)
        other._in_slices = None if self._in_slices is None else self._in_slices.aiming(**changes)
        return other

    @property
    def in_slices(self) -> Task:
        """Planning `Task` of the same network for groups that compute all products in DSP slices."""
        return self if self._in_slices is None else self._in_slices

    @cached_property
    def search(self) -> Search:
        """Search for the unroll factors of all layers (`Search`), where cost is the number of DSP slices."""
        return by_cost(self.works, self.slices, self._copies)

    @cached_property
    def two_prices(self) -> Search:
        """Search for the unroll factors of all layers (`Search`), where cost is DSP slices and LUTs."""
        return by_prices(self.works, self.prices, self.budget(self.goal.lut), self._copies)

    @cached_property
    def prices(self) -> StagePrices:
        """Cost model of all layers: DSP slices and LUTs for given unroll factors (`StagePrices`)."""
        return StagePrices(self._stages, self.goal.multipliers, self.multipliers, self.goal.in_luts)

    def budget(self, luts: int) -> Budget:
        """Return a `Budget` for a search of unroll factors: the goal's DSP slices, ``luts`` LUTs, a slice's price.

        With the objective ``dsp`` slices are minimised, and LUTs only among equal numbers of slices.
        """
        first = self.goal.objective == "dsp"
        price = MAX_LUTS if first else self.board.family.multiplier_slice.lut_price
        return Budget(self.goal.dsp, luts, price)

    def slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return a layer's DSP slices, requantiser included; an array if unroll factors are arrays.

        The number is an upper bound: some lanes of a requantiser can need fewer slices than its most expensive channel.
        """
        multipliers = work.multipliers(unroll, self.multipliers[work.name])
        return multipliers + unroll.tp * self.finish_slices(work, unroll) * lanes_out(work, unroll)

    def finish_slices(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the DSP slices per lane (channel per cycle) of a layer's requantiser; unroll factors can be arrays.

        The width of the sums depends on the multiplier, and so do the requantiser's slices.
        """
        return self.prices.finish_slices(work, unroll, self.multipliers[work.name])

    def bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number of 36-kbit block RAMs that store a layer's weights; unroll factors can be arrays."""
        return self._stages[work.name].weight_bram36(work, unroll)

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> float:
        """Return the number of 36-kbit block RAMs that store a layer's weights, from a cache after the first call."""
        key = work, unroll
        if key not in self._weight_bram36:
            self._weight_bram36[key] = float(self.bram36(work, unroll))
        return self._weight_bram36[key]

    @cached_property
    def priced(self) -> list[Search]:
        """List of a `Search` for layers' unroll factors per price in `BRAM_PRICES`; cost includes block RAM."""
        return self.price(self.works, self._copies)

    def price(self, works: Sequence[LayerWork], copies: Mapping[int, LayerWork] | None = None) -> list[Search]:
        """Return a list of searches for unroll factors by DSP slices plus block RAM, one per price in `BRAM_PRICES`.

        Parameters
        ----------
        works : sequence of LayerWork
        copies : mapping of int to LayerWork, optional
            Layers that stand for the previous layer at the front of a part (see `Search`).
        """

        def search(price: float) -> Search:
            return by_cost(works, lambda *choice: self.slices(*choice) + price * self.bram36(*choice), copies)

        return [search(price) for price in BRAM_PRICES]
