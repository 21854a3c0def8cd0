"""Choices of a layer's unroll factors with costs in DSP slices and in LUTs, which can multiply as well.

Each layer divides its ``Tm`` output channels between multipliers in DSP slices and multipliers in LUTs. For a given
interval, a layer with a given ``Tp`` has a Pareto front of points, each a number of slices and a number of LUTs, which
`hwgen.templates.unroll.Search` combines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.gateware.multipliers import Multiplier
from hwgen.templates.factor_paths import Budget, FactorFront, FactorTable, pareto
from hwgen.templates.unroll import Search, factor_grid
from hwgen.templates.work import LUT_WORDS, LayerWork, Unroll, ceil_div


@dataclass(frozen=True)
class Form:
    """Division of a layer's products between multipliers in DSP slices and multipliers in LUTs.

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
        """Number of output channels that share a DSP slice."""
        return 1 if self.multiplier is None else self.multiplier.lanes


@dataclass(frozen=True)
class Terms:
    """Terms of the costs of a layer's choices, integers or arrays with an entry per choice.

    A choice makes the products of ``lut_lanes`` output channels in LUTs. The other channels take ``units`` multiplier
    units in slices per product. Both cost ``units * unit_slices`` slices and ``lut_lanes * lane_luts`` LUTs, and the
    slices and LUTs of all other parts of the layer.

    Parameters
    ----------
    unit_slices : array
        DSP slices of the multiplier units of the output channels that share slices.
    finish_slices, lut_finish_slices : array
        DSP slices of the layer's finish behind sums of DSP slices, and behind sums of LUTs. A layer with both has the
        larger number.
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
    """Base class of the costs of layers in DSP slices and LUTs.

    In a layer with given ``Tn``, ``Tk`` and `Form`, no cost may fall as ``Tm`` grows, except where ``Tm`` reaches the
    lanes of the form's multiplier, or the words of the weight memories fall to one of `LUT_WORDS`.
    """

    @abstractmethod
    def forms(self, work: LayerWork) -> Sequence[Form]:
        """Return the forms among which a layer can choose."""

    @abstractmethod
    def terms(self, work: LayerWork, unroll: Unroll, form: Form) -> Terms:
        """Return the terms of a layer's costs, rounded to integers; ``tn``, ``tm`` and ``tk`` can be arrays."""


class _Table(FactorTable):
    """Choices of a layer with one ``Tp``, for all forms, ordered by form, ``Tn`` and ``Tk``, then by ``Tm``."""

    def __init__(self, work: LayerWork, tp: int, prices: Prices, most_slices: int):
        self.work, self.tp, self.forms = work, tp, prices.forms(work)
        self._most_slices = most_slices
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
        self.different_beats = np.unique(self.beats)
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
        self._most_units = np.where(np.repeat([form.in_slices for form in self.forms], len(tn)), units, 0)
        # Costs rise with Tm within each of these classes. Every row of a class begins at its smallest Tm.
        self._classes = [np.ones(len(depth), bool), self.tm >= self._lanes, *(depth <= bound for bound in LUT_WORDS)]
        self._fronts: dict[bytes, FactorFront] = {}

    def front(self, max_cycles: int, max_beats: int) -> FactorFront:
        """Return the front of the choices with at most these cycles per frame and beats per step of input pixels."""
        usable = (self.cycles <= max_cycles) & (self.beats <= max_beats)
        first = np.zeros(len(usable), bool)
        for in_class in self._classes:
            chosen = usable & in_class
            first |= chosen & ~np.concatenate(([False], chosen[:-1] & (self._row[1:] == self._row[:-1])))
        key = np.packbits(first).tobytes()
        if key not in self._fronts:
            self._fronts[key] = self._front(np.flatnonzero(first))
        return self._fronts[key]

    def _front(self, choices: np.ndarray) -> FactorFront:
        """Return the front of the given choices, with all divisions of their output channels."""
        fewest = self._fewest_units[choices]
        counts = self._most_units[choices] - fewest + 1
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
        fitting = np.flatnonzero(slices <= self._most_slices)
        kept = fitting[pareto(slices[fitting], luts[fitting])]
        return FactorFront(slices[kept], luts[kept], choice[kept], lut_lanes[kept])

    def division(self, unroll: Unroll) -> FactorFront:
        """Return the front of all divisions of the given unroll factors."""
        chosen = (self.tn == unroll.tn) & (self.tm == unroll.tm) & (self.tk == unroll.tk)
        return self._front(np.flatnonzero(chosen))

    def unroll(self, choice: int, lut_lanes: int) -> Unroll:
        """Return the unroll factors of a choice, with its division of output channels and its multiplier."""
        multiplier = self.forms[self.form[choice]].multiplier
        name = None if multiplier is None else multiplier.name
        return Unroll(
            int(self.tn[choice]), int(self.tm[choice]), int(self.tk[choice]), self.tp, lut_lanes, macs_per_dsp=name
        )


def by_prices(
    works: Sequence[LayerWork], prices: Prices, budget: Budget, copies: Mapping[int, LayerWork] | None = None
) -> Search:
    """Return the search for unroll factors, and divisions between DSP slices and LUTs, under budgets of both."""

    def tables(work: LayerWork, pixels: Sequence[int], budget: Budget) -> list[_Table]:
        return [_Table(work, tp, prices, int(budget.slices)) for tp in pixels]

    return Search(works, tables, budget, copies)
