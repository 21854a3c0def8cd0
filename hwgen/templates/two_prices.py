"""Search of unroll factors with costs in DSP slices and in LUTs, as both can compute products.

Each layer divides its ``Tm`` output channels between multipliers in DSP slices and multipliers in LUTs. For a given
interval, a layer with a given ``Tp`` has a Pareto front of points, each a number of slices and a number of LUTs, which
`hwgen.templates.unroll.Search` combines.

DSP slices are exact, except that a requantiser counts with its most expensive channel. LUTs are rough: the planner
compares them with the composed group's, and searches again with what is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN, Multiplier
from hwgen.options import DSP, LUT
from hwgen.templates.factor_paths import Budget, FactorFront, FactorTable, pareto
from hwgen.templates.stage import Stage
from hwgen.templates.unroll import Search, factor_grid, rough_luts
from hwgen.templates.work import LUT_WORDS, LayerWork, Unroll, ceil_div, lanes_out


@dataclass(frozen=True)
class Form:
    """Permitted division of a layer's products between multipliers in DSP slices and in LUTs.

    Parameters
    ----------
    multiplier : Multiplier, optional
        Multiplier in DSP slices; ``None`` for a layer without weights.
    in_slices, in_luts : bool
        Whether products may be computed in DSP slices, and in LUTs.
    """

    multiplier: Multiplier | None = None
    in_slices: bool = True
    in_luts: bool = False

    @property
    def lanes(self) -> int:
        """Number of output channels that share a DSP slice of the multiplier; 1 without weights."""
        return 1 if self.multiplier is None else self.multiplier.lanes


@dataclass(frozen=True)
class Terms:
    """Parts of a layer's cost in DSP slices and LUTs, as integers, or as arrays over unroll factors.

    A choice makes the products of ``lut_lanes`` output channels in LUTs. The other channels take ``units`` multiplier
    units in slices per product. Both cost ``units * unit_slices`` slices and ``lut_lanes * lane_luts`` LUTs, and the
    slices and LUTs of all other parts of the layer.

    Parameters
    ----------
    unit_slices : array
        DSP slices of the multiplier units of the output channels that share slices.
    finish_slices, lut_finish_slices : array
        DSP slices of the layer's requantiser if sums come from DSP slices, and if they come from LUTs. A layer with
        both has the larger number.
    lane_luts : array
        LUTs of the products of an output channel.
    luts : array
        All other LUTs of the layer.
    """

    unit_slices: Any
    finish_slices: Any
    lut_finish_slices: Any
    lane_luts: Any
    luts: Any


class Prices(ABC):
    """Base class of cost models: the cost of a layer in DSP slices and LUTs for given unroll factors.

    In a layer with given ``Tn``, ``Tk`` and `Form`, no cost may fall as ``Tm`` grows, unless ``Tm`` reaches the lanes
    of the form's multiplier, or the words of the weight memories fall to one of `LUT_WORDS`.
    """

    @abstractmethod
    def forms(self, work: LayerWork) -> Sequence[Form]:
        """Return a sequence of each `Form`, a permitted division of a layer's products between DSP slices and LUTs."""

    @abstractmethod
    def terms(self, work: LayerWork, unroll: Unroll, form: Form) -> Terms:
        """Return `Terms` of a layer's cost in DSP slices and LUTs, as integers; unroll factors can be arrays."""


class _Table(FactorTable):
    """Table of one layer's unroll factors with the same ``Tp``, sorted by `Form`, ``Tn``, ``Tk``, ``Tm``."""

    def __init__(self, work: LayerWork, tp: int, prices: Prices, max_slices: int):
        self.work, self.tp, self.forms = work, tp, prices.forms(work)
        self._max_slices = max_slices
        tn, tm, tk = factor_grid(work)
        order = np.lexsort((tm, tk, tn))
        tn, tm, tk = tn[order], tm[order], tk[order]
        unroll = Unroll(tn, tm, tk, tp)  # type: ignore[arg-type]
        depth = np.broadcast_to(np.asarray(work.pixel_cycles(unroll)), tn.shape)
        row = np.cumsum((np.diff(tn, prepend=0) != 0) | (np.diff(tk, prepend=0) != 0))
        count = len(self.forms)
        self.tn, self.tm, self.tk, depth = (np.tile(values, count) for values in (tn, tm, tk, depth))
        self.form = np.repeat(np.arange(count), len(tn))
        self._row = np.tile(row, count) + self.form * (row[-1] + 1)
        self.cycles = depth * work.output_steps(tp)
        self.beats = np.tile(np.broadcast_to(np.asarray(work.beats(unroll)), tn.shape), count)
        self.beat_counts = np.unique(self.beats)
        terms = [prices.terms(work, unroll, form) for form in self.forms]
        self._terms = Terms(
            *(
                np.concatenate([np.broadcast_to(np.asarray(getattr(term, name)), tn.shape) for term in terms])
                for name in Terms.__dataclass_fields__
            )
        )
        self._lanes = np.repeat([form.lanes for form in self.forms], len(tn))
        units = ceil_div(self.tm, self._lanes)
        self._fewest_units = np.where(np.repeat([form.in_luts for form in self.forms], len(tn)), 0, units)
        self._max_units = np.where(np.repeat([form.in_slices for form in self.forms], len(tn)), units, 0)
        # Costs rise with Tm within each of these classes. Every row of a class begins at its smallest Tm.
        self._classes = [np.ones(len(depth), bool), self.tm >= self._lanes, *(depth <= bound for bound in LUT_WORDS)]
        self._fronts: dict[bytes, FactorFront] = {}

    def front(self, max_cycles: int, max_beats: int) -> FactorFront:
        """Return the `FactorFront` of choices with at most ``max_cycles`` per frame, ``max_beats`` per pixel group."""
        usable = (self.cycles <= max_cycles) & (self.beats <= max_beats)
        first = np.zeros(len(usable), bool)
        for in_class in self._classes:
            chosen = usable & in_class
            first |= chosen & ~np.concatenate(([False], chosen[:-1] & (self._row[1:] == self._row[:-1])))
        key = np.packbits(first).tobytes()
        if key not in self._fronts:
            self._fronts[key] = self._choices_front(np.flatnonzero(first))
        return self._fronts[key]

    def _choices_front(self, choices: np.ndarray) -> FactorFront:
        """Return a `FactorFront` (DSP slices, LUTs) of given choices, over all divisions of their channels."""
        fewest = self._fewest_units[choices]
        counts = self._max_units[choices] - fewest + 1
        entry = np.repeat(np.arange(len(choices)), counts)
        units = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts) + fewest[entry]
        choice = choices[entry]
        lut_lanes = self.tm[choice] - np.minimum(units * self._lanes[choice], self.tm[choice])
        terms = self._terms
        finish = np.maximum(
            np.where(units > 0, terms.finish_slices[choice], 0),
            np.where(lut_lanes > 0, terms.lut_finish_slices[choice], 0),
        )
        slices = units * terms.unit_slices[choice] + finish
        luts = lut_lanes * terms.lane_luts[choice] + terms.luts[choice]
        fitting = np.flatnonzero(slices <= self._max_slices)
        kept = fitting[pareto(slices[fitting], luts[fitting])]
        return FactorFront(slices[kept], luts[kept], choice[kept], lut_lanes[kept])

    def division(self, unroll: Unroll) -> FactorFront:
        """Return a `FactorFront` (DSP slices, LUTs) of all divisions of products at given unroll factors."""
        chosen = (self.tn == unroll.tn) & (self.tm == unroll.tm) & (self.tk == unroll.tk)
        return self._choices_front(np.flatnonzero(chosen))

    def unroll(self, choice: int, lut_lanes: int) -> Unroll:
        """Return the `Unroll` factors and multiplier in row ``choice``, with ``lut_lanes`` output channels in LUTs."""
        multiplier = self.forms[self.form[choice]].multiplier
        name = None if multiplier is None else multiplier.name
        return Unroll(
            int(self.tn[choice]), int(self.tm[choice]), int(self.tk[choice]), self.tp, lut_lanes, macs_per_dsp=name
        )


def by_prices(
    works: Sequence[LayerWork], prices: Prices, budget: Budget, copies: Mapping[int, LayerWork] | None = None
) -> Search:
    """Return a `Search` for unroll factors, and divisions of products between DSP slices and LUTs, within a budget."""

    def tables(work: LayerWork, pixels: Sequence[int], budget: Budget) -> list[_Table]:
        return [_Table(work, tp, prices, int(budget.slices)) for tp in pixels]

    return Search(works, tables, budget, copies)


#: LUTs that add the sum of a chain of multiplier units to another one, as in `hwgen.templates.work.BeatOrder.luts`.
CHAIN_LUTS = 18

#: LUTs of an activation that is in use, as in `hwgen.templates.work.BeatOrder.luts`.
ACTIVATION_LUTS = 30

#: Rough number of LUTs of a requantiser for each channel that is finished per cycle.
FINISH_LUTS = 60


class StagePrices(Prices):
    """Cost model of a network's layers in DSP slices and LUTs, from the planner's models of the layers (stages).

    Parameters
    ----------
    stages : mapping of str to Stage
        Planner's model of each layer, by the layer's name.
    resource : str
        Resource that multiplies: ``dsp`` slices, ``lut``, or ``auto`` for both.
    multipliers : mapping of str to Multiplier
        Multiplier in DSP slices of each layer, by the layer's name.
    in_luts : frozenset of str
        Names of layers whose requantisers multiply in LUTs instead of DSP slices.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage[Any]],
        resource: str,
        multipliers: Mapping[str, Multiplier],
        in_luts: frozenset[str],
    ):
        self._stages, self._resource = stages, resource
        self._multipliers, self._in_luts = multipliers, in_luts
        self._windows: dict[str, dict[int, tuple[float, int]]] = {}
        """Dictionary by layer, then ``Tk``, of line buffers' LUTs: per further input channel, for the first."""

    def forms(self, work: LayerWork) -> Sequence[Form]:
        if not work.weighted:
            return (Form(),)
        can_use_luts = bool(self._stages[work.name].lut_multipliers) and self._resource != DSP
        return (Form(self._multipliers[work.name], not can_use_luts or self._resource != LUT, can_use_luts),)

    def terms(self, work: LayerWork, unroll: Unroll, form: Form) -> Terms:
        lanes = unroll.tp * lanes_out(work, unroll)
        luts = rough_luts(work, unroll) + (FINISH_LUTS * lanes + self._extra_window_luts(work, unroll)) * work.weighted
        if form.multiplier is None:
            slices = lanes * self.finish_slices(work, unroll, PLAIN)
            return Terms(0, slices, slices, 0, _integers(luts))
        per_lane, luts = self._products(work, unroll, form.multiplier, luts)
        units = work.products(unroll) * ceil_div(unroll.tp, form.multiplier.pixels) * form.multiplier.slices
        return Terms(
            unit_slices=units,
            finish_slices=lanes * self.finish_slices(work, unroll, form.multiplier),
            lut_finish_slices=lanes * self._lut_finish_slices(work) if form.in_luts else 0,
            lane_luts=_integers(per_lane) if form.in_luts else 0,
            luts=_integers(luts),
        )

    def _extra_window_luts(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the LUTs of a line buffer beyond those that `rough_luts` counts for its activations.

        They are counted for one input channel and for two. Each further channel takes as many as the second. Several
        pixels take at least as many as so many line buffers.
        """
        stage, channels = self._stages[work.name], min(2, work.group_channels)
        taps, indices = np.unique(unroll.tk, return_inverse=True)
        if work.name not in self._windows:
            self._windows[work.name] = {}
        known = self._windows[work.name]
        for tk in taps.tolist():
            if tk not in known:
                one, two = (stage.window_luts(tn, tk) for tn in (1, channels))
                known[tk] = two - one if channels > 1 else one, one
        further, first = (np.array([known[tk][index] for tk in taps.tolist()])[indices] for index in (0, 1))
        of_pixel, rule = first + (unroll.tn - 1) * further, ACTIVATION_LUTS * unroll.tn * unroll.tk
        return of_pixel - rule if unroll.tp == 1 else unroll.tp * np.maximum(of_pixel - rule, 0)

    def weighted(self, work: LayerWork, unroll: Unroll, slice_weight: float, lut_weight: float) -> Any:
        """Return the lowest weighted cost of a layer with all products in DSP slices, or all in LUTs."""
        costs = []
        for form in self.forms(work):
            terms = self.terms(work, unroll, form)
            units = ceil_div(unroll.tm, form.lanes)
            if form.in_slices:
                slices = units * terms.unit_slices + terms.finish_slices
                costs.append(slice_weight * slices + lut_weight * terms.luts)
            if form.in_luts:
                luts = unroll.tm * terms.lane_luts + terms.luts
                costs.append(slice_weight * terms.lut_finish_slices + lut_weight * luts)
        return np.minimum.reduce(np.broadcast_arrays(*costs))

    def _products(self, work: LayerWork, unroll: Unroll, multiplier: Multiplier, luts: Any) -> tuple[Any, Any]:
        """Return a pair: the LUTs of one output channel's products, if in LUTs, and the layer's other LUTs.

        The weights of a lane are in LUTs if their memories have few words. The adders of the chains of a lane in slices
        are not needed in a lane in LUTs, whose products include their adders.
        """
        stage, products = self._stages[work.name], work.products(unroll)
        longest = stage.longest_chain(multiplier, CHAIN)
        adders = unroll.tp * CHAIN_LUTS * (ceil_div(products, longest) - 1)
        extra = unroll.tp * CHAIN_LUTS * (ceil_div(products, longest) - ceil_div(products, work.chain)) * unroll.tm
        depth = np.asarray(work.pixel_cycles(unroll))
        memory = products * stage.stored_weight_bits * np.where((depth > 1) & (depth <= LUT_WORDS[-1]), 1, 0)
        product_luts, with_memory = self._lut_products(work, depth, stage.is_padded(unroll))
        per_lane = unroll.tp * products * product_luts - adders - memory * ~with_memory
        return per_lane, luts + extra + memory * unroll.tm

    def _lut_products(self, work: LayerWork, depth: np.ndarray, is_padded: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a pair of arrays, by choice: LUTs per product, and if a memory of ``depth`` words stores its weight.

        ``is_padded`` is true for choices whose memories store a weight of 0 as well (`Stage.is_padded`).
        """
        stage, rows = self._stages[work.name], np.asarray(is_padded, int)
        kinds = np.searchsorted(LUT_WORDS, depth)
        known = [[stage.lut_product(words, padded) for words in (*LUT_WORDS, None)] for padded in (False, True)]
        luts, stored = (np.array([[product[index] for product in row] for row in known]) for index in (0, 1))
        return luts[rows, kinds], stored.astype(bool)[rows, kinds]

    def finish_slices(self, work: LayerWork, unroll: Unroll, multiplier: Multiplier) -> Any:
        """Return the DSP slices per requantiser lane (channel per cycle) of a layer whose sums come from DSP slices.

        With fewer output channels or pixels per cycle than share a slice, the layer has a fallback of its multiplier.
        """
        stage = self._stages[work.name]
        if work.name in self._in_luts:
            return stage.min_finish_slices
        few, many = (multiplier.for_size(size, unroll.tp) for size in (1, multiplier.lanes))
        return np.where(unroll.tm >= multiplier.lanes, stage.finish_slices(many), stage.finish_slices(few))

    def _lut_finish_slices(self, work: LayerWork) -> int:
        """Return the DSP slices per requantiser lane (channel per cycle) of a layer whose sums come from LUTs."""
        stage = self._stages[work.name]
        if work.name in self._in_luts:
            return stage.min_finish_slices
        return max(map(stage.finish_slices, stage.lut_multipliers))


def best_packing(stage: Stage[Any]) -> Multiplier:
    """Return the DSP `Multiplier` with the most products per DSP slice for a layer; the first of equals."""
    kinds = [stage.multiplier(multiplier) for multiplier in MULTIPLIERS.values()]
    return max(kinds, key=lambda multiplier: multiplier.lanes * multiplier.pixels / max(multiplier.slices, 1))


def _integers(luts: Any) -> np.ndarray:
    """Return numbers of LUTs, rounded up, as an array of integers."""
    return np.ceil(luts).astype(int)
