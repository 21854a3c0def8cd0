"""Unroll factors for a chain of layers: the least interval that a number of multipliers allows.

Each layer is a stage of its own, so the interval is that of the slowest and the multipliers add up. That makes
the optimum simple to find and to prove: for a given interval every layer takes its cheapest choice that keeps it,
and the total only falls as the interval grows. The least interval that fits the budget is therefore found by
bisection over the cycle counts that occur.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwgen.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """What a layer has to do in one frame.

    Parameters
    ----------
    name : str
        For messages.
    channels, outputs : int
        Input and output channels, of all groups together.
    groups : int
        Groups of channels; both numbers are multiples of it.
    pixels, input_pixels : int
        Of the output and of the input map.
    taps : int
        Of the kernel, ``Kh * Kw``.
    depthwise : bool
        Each output channel depends on one input channel alone (pools): ``Tm`` is ``Tn``.
    """

    name: str
    channels: int
    outputs: int
    groups: int
    pixels: int
    input_pixels: int
    taps: int
    depthwise: bool


@dataclass(frozen=True)
class Unroll:
    """Unroll factors: input channels, output channels, kernel taps and output pixels a cycle."""

    tn: int
    tm: int
    tk: int
    tp: int = 1


@dataclass(frozen=True)
class Choice:
    """Unroll factors of one layer, with what they take: cycles a frame and multipliers."""

    cycles: int
    cost: int
    unroll: Unroll


#: Multipliers that a layer takes with the given factors. Must not fall when a factor grows and the folds stay.
Cost = Callable[[LayerWork, Unroll], int]
#: Whether a layer's hardware can be built with so many taps a cycle.
Buildable = Callable[[LayerWork, int], bool]


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def cycles(work: LayerWork, unroll: Unroll) -> int:
    """Cycles a frame: as many as the multiply-adds take, or as the input has beats, if those are more.

    One output pixel a cycle at most (``tp`` is 1 so far).
    """
    tap_folds = ceil_div(work.taps, unroll.tk)
    if work.depthwise:
        input_folds = ceil_div(work.channels, unroll.tn)
        return max(work.pixels * input_folds * tap_folds, work.input_pixels * input_folds)
    input_folds = work.groups * ceil_div(work.channels // work.groups, unroll.tn)
    output_folds = ceil_div(work.outputs // work.groups, unroll.tm)
    return max(work.pixels * input_folds * output_folds * tap_folds, work.input_pixels * input_folds)


def choices(work: LayerWork, cost: Cost, buildable: Buildable | None = None) -> list[Choice]:
    """Every choice that no other one beats, by rising cycles.

    One choice beats another if it takes no more cycles and fewer multipliers; with equally many, if it has more
    input channels and taps for each output channel (longer chains, fewer accumulators); then, if it has fewer
    lanes. ``Tn`` and ``Tm`` take the least value for each number of folds, ``Tk`` the divisors of the taps.
    """
    groups = 1 if work.depthwise else work.groups
    all_tn = _least_factors(work.channels // groups)
    all_tm = _least_factors(work.outputs // groups)
    found = []
    for tk in range(1, work.taps + 1):
        if work.taps % tk or not (buildable is None or buildable(work, tk)):
            continue
        for tn in all_tn:
            for tm in (tn,) if work.depthwise else all_tm:
                unroll = Unroll(tn, tm, tk)
                price = cost(work, unroll)
                found.append((cycles(work, unroll), (price, -tn * tk / tm, tn, tm), unroll))
    found.sort(key=lambda entry: entry[:2])
    front: list[Choice] = []
    best = None
    for count, rank, unroll in found:
        if best is None or rank < best:
            best = rank
            front.append(Choice(count, rank[0], unroll))
    return front


def solve(works: Sequence[LayerWork], budget: int, cost: Cost, buildable: Buildable | None = None) -> list[Unroll]:
    """Unroll factors of the least interval within ``budget`` multipliers, then of the least total.

    What is still equal is settled as in `choices`.

    Parameters
    ----------
    works : sequence of LayerWork
    budget : int
        Multipliers for all layers together.
    cost : Cost
    buildable : Buildable, optional
        By default every divisor of the taps can be built.

    Raises
    ------
    PlanError
        If not even the cheapest choices fit.
    """
    fronts = [choices(work, cost, buildable) for work in works]
    for work, front in zip(works, fronts, strict=True):
        if not front:
            raise PlanError(f"{work.name}: none of its {work.taps} taps' divisors can be built as taps a cycle")
    counts = [[choice.cycles for choice in front] for front in fronts]

    def cheapest(interval: int) -> list[Choice]:
        """Fronts fall in cost, so the last choice that keeps the interval is the cheapest."""
        return [front[bisect_right(count, interval) - 1] for front, count in zip(fronts, counts, strict=True)]

    fastest = max((count[0] for count in counts), default=0)
    intervals = sorted({entry for count in counts for entry in count if entry >= fastest})
    # `True` sorts after `False`: the first interval that fits.
    index = bisect_left(
        intervals, True, key=lambda interval: sum(choice.cost for choice in cheapest(interval)) <= budget
    )
    if works and index == len(intervals):
        least = [front[-1].cost for front in fronts]
        parts = ", ".join(f"{work.name} {cost}" for work, cost in zip(works, least, strict=True) if cost)
        raise PlanError(f"no unrolling fits {budget} multipliers: the least is {sum(least)} ({parts})")
    return [choice.unroll for choice in cheapest(intervals[index])] if works else []


def _least_factors(channels: int) -> list[int]:
    """For each possible number of folds of ``channels``, the least factor that gives it."""
    return sorted({ceil_div(channels, folds) for folds in range(1, channels + 1)})
