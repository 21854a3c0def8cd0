"""Search for the best fusion group: unroll factors by the plan's objective, within the board, and buffer sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np

from hwgen.boards import Board
from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.multipliers import PLAIN, Multiplier, multiplier_of
from hwgen.network.graph import Network
from hwgen.network.loaded import is_loaded
from hwgen.network.maps import Window
from hwgen.printable import counted
from hwgen.schedule.buffers import ample_rows, sizes_of
from hwgen.schedule.solve import endless_cycles
from hwgen.templates import interim
from hwgen.templates import moves as memory_moves
from hwgen.templates.base import Goal, Group, Refusal, Task, Template, memory_bits, shortage
from hwgen.templates.latency import last_end, row_times
from hwgen.templates.layers import LayerPlan, with_buffers
from hwgen.templates.moves import moved_converters
from hwgen.templates.stage import Stage
from hwgen.templates.unroll import Rank, Search, Unrolling, interval, min_text
from hwgen.templates.work import LayerWork, Unroll, ceil_div

#: Maximum number of unroll choices whose buffers are sized in vain, before another price of block RAM is tried.
MAX_SIZED = 3

#: Approximate number of choices of unroll factors whose latency is estimated, and of the best to schedule exactly.
LATENCY_UNROLLINGS, EXACT_UNROLLINGS = 8, 3

#: Minimum share of the latency that a faster layer must save if it takes the whole budget of DSP slices. With fewer
#: slices, the minimum is proportionally smaller.
MIN_GAIN = 0.05


@dataclass(frozen=True)
class GroupSearch:
    """Search for the unroll factors and buffer sizes of one fusion group, under one template.

    This class is for groups that are computed row by row; other templates refine it.

    Parameters
    ----------
    task : Task
    begin, end : int
        Index of the group's first layer, and index of its last layer plus one.
    in_turn : bool
        Whether other groups run before and after this group. Its time is then the latency of one frame.
    template : Template
    """

    task: Task
    begin: int
    end: int
    in_turn: bool
    template: Template
    tables_in: str | None = None
    """Memory of requantisers' parameters: ``lut``, or ``None`` to decide by their number."""
    moves_memories: bool = False
    """Whether memories move from block RAM to LUTs or UltraRAM if block RAM runs out."""
    max_interval: int | None = None
    """Maximum interval between frames that the search tries, in cycles; ``None`` without a bound."""

    may_convert_first: ClassVar[bool] = True
    """Whether this kind of group may have width converters before FIFOs, not only after (`hwgen.templates.moves`)."""

    @property
    def network(self) -> Network:
        """Network of the fusion group's layers."""
        return self.task.part(self.begin, self.end)

    @property
    def goal(self) -> Goal:
        """`Goal` of the plan: objective, limits and options."""
        return self.task.goal

    @property
    def search(self) -> Search:
        """Search for the fusion group's unroll factors (`Search`), where cost is the number of DSP slices."""
        return self.task.search.part(self.begin, self.end)

    @property
    def priced(self) -> list[Search]:
        """List of each `Search` for unroll factors that charges for block RAM as well, one per price of a block RAM."""
        return [search.part(self.begin, self.end) for search in self.task.priced]

    def make(self, layers: tuple[LayerPlan, ...]) -> Group:
        """Return the fusion `Group` (layers computed together) with given plans for its layers."""
        return Group(network=self.network, layers=layers, template=self.template, device=self.board.family)

    def best(self) -> Group | Refusal:
        """Return the fusion `Group` that fits the board and is the best by the plan's objective, or a `Refusal`."""
        unrolling = self.best_factors()
        if isinstance(unrolling, Refusal):
            return unrolling
        group = self._group_of_factors(unrolling)
        if not isinstance(group, Refusal):
            return group
        if self.in_turn:
            return self._slower_group(group)
        if group.resource != "BRAM36":
            return replace(self, moves_memories=True)._slower_group(group)
        return self._with_moves(group)

    def _with_moves(self, refusal: Refusal) -> Group | Refusal:
        """Return the best `Group` (plan's objective) with memories moved out of block RAM, or without moves if as good.

        A group that fits without moves has none, and other groups move as little as possible.

        Parameters
        ----------
        refusal : Refusal
            Refusal of the group that is best if only DSP slices count.
        """
        moved = replace(self, moves_memories=True)._first_or_slower(refusal)
        if isinstance(moved, Refusal):
            return self._slower_group(refusal)
        max_interval = self._interval(moved) if self.goal.objective in ("interval", "traffic") else None
        plain = replace(self, max_interval=max_interval)._slower_group(refusal)
        return moved if isinstance(plain, Refusal) or self._objective_of(moved) < self._objective_of(plain) else plain

    def _objective_of(self, group: Group) -> int:
        """Return the number that the plan minimises for a group: latency or interval in cycles, or DSP slices."""
        if self.goal.objective == "latency":
            return group.steady.latency
        return group.resources.dsp if self.goal.objective == "dsp" else self._interval(group)

    def _first_or_slower(self, refusal: Refusal) -> Group | Refusal:
        """Return the best `Group` if only DSP slices count, or one with a longer interval that fits, or a `Refusal`.

        ``refusal`` is the refusal of a better group.
        """
        group = self.first()
        return self._slower_group(refusal) if isinstance(group, Refusal) else group

    def _slower_group(self, refusal: Refusal) -> Group | Refusal:
        """Return the `Group` of shortest interval that fits, or a `Refusal`, after the first one got ``refusal``."""
        if refusal.resource == "BRAM36" and self.tables_in is None and not self.moves_memories:
            group = replace(self, tables_in="lut")._first_or_slower(refusal)
            if not isinstance(group, Refusal):  # logic did not run out
                return group
        tried = (self.first_that_fits(search) for search in self._searches(refusal))
        groups = [group for group in tried if group is not None]
        if not groups:
            return self.min_refusal(refusal)
        return min(groups, key=lambda group: (self._interval(group), group.resources.dsp))

    def _searches(self, refusal: Refusal) -> Sequence[Search]:
        """Return a sequence of searches for unroll factors to try after a refusal; they may charge for block RAM."""
        # If logic runs out, a price of block RAM changes nothing.
        return (self.search, *(self.priced if refusal.resource == "BRAM36" else ()))

    def first(self) -> Group | Refusal:
        """Return the best `Group` (plan's objective) if only DSP slices count; `Refusal` if another resource lacks."""
        unrolling = self.best_factors()
        return unrolling if isinstance(unrolling, Refusal) else self._group_of_factors(unrolling)

    def _group_of_factors(self, unrolling: Unrolling) -> Group | Refusal:
        """Return the group with given unroll factors and sized buffers, or a `Refusal` if the group exceeds the board.

        If latency counts, spare DSP slices first shorten the latency (`_lower_latency`).
        """
        soon = self.goal.objective == "latency" or (self.in_turn and self.goal.objective != "dsp")
        if soon and self._refusal(unrolling) is None:
            unrolling = self._lower_latency(unrolling)
        if (refusal := self._refusal(unrolling)) is not None:
            return refusal
        group = self._sized_group(unrolling)
        return self.shortage(group) or group

    def shortage(self, group: Group) -> Refusal | None:
        """Return a `Refusal` that names the first resource of the board that a group exceeds; ``None`` if it fits."""
        return shortage(group.resources, self.board, self.goal.dsp)

    @property
    def board(self) -> Board:
        """`Board` of the plan, with the resources that the fusion group may use."""
        return self.task.board

    def best_factors(self) -> Unrolling | Refusal:
        """Return the `Unrolling` with fewest cycles per frame within the limit of DSP slices, or a `Refusal`.

        With the objective ``dsp``, return the factors with the fewest slices.
        """
        return self._fewest(self.search) if self.goal.objective == "dsp" else self._fastest(self.search)

    def first_that_fits(self, search: Search) -> Group | None:
        """Return the first `Group` that fits, over intervals with their cheapest factors; ``None`` if none does."""
        sized = 0
        for _, unrolling in self._that_may_fit(search):
            group, sized = self._sized_group(unrolling), sized + 1
            if self.shortage(group) is None:
                return group
            if sized == MAX_SIZED:  # the sized line buffers and FIFOs, above the minimum, are too large
                break
        return None

    def _that_may_fit(self, search: Search) -> Iterator[tuple[int, Unrolling]]:
        """Yield pairs of an interval (cycles) and its cheapest `Unrolling`, if that fits with the smallest buffers.

        Block RAM need not fall as the interval grows. Intervals are therefore tried one after the other, 2 to 25 %
        apart: from the shortest upward, or with objective ``dsp`` from the longest downward.
        """
        before = None
        for cycles in self._tried_intervals(search):
            unrolling = search.cheapest(cycles)
            if unrolling is not None and unrolling.unrolls != before and self._fits_board(unrolling):
                before = unrolling.unrolls
                yield cycles, unrolling

    def shortest_interval(self) -> int | None:
        """Return the shortest interval (cycles) tried that fits with the smallest buffers; ``None`` if none does."""
        found = (next(self._that_may_fit(search), None) for search in (self.search, self.priced[-1]))
        return min((cycles for cycles, _ in filter(None, found)), default=None)

    def _tried_intervals(self, search: Search) -> list[int]:
        """Return a list of intervals (cycles) that `first_that_fits` tries; empty if DSP slices don't suffice."""
        goal = self.goal
        fewest = goal.objective == "dsp"
        fastest = search.fastest(lambda unrolling: self._slices(unrolling) <= goal.dsp, self._min_interval)
        if fastest is None:
            return []
        last = goal.interval if fewest and goal.interval is not None and not self.in_turn else search.intervals[-1]
        if self.max_interval is not None:
            last = min(last, self.max_interval)
        steps, cycles = [], fastest[0]
        while cycles < last:
            steps.append(cycles)
            cycles = ceil(cycles * (1.02 if cycles < 4 * fastest[0] else 1.25))
        steps.append(last)
        return steps[::-1] if fewest else steps

    def _slices(self, unrolling: Unrolling) -> int:
        return sum(int(self.task.slices(*choice)) for choice in zip(self.works, unrolling.unrolls, strict=True))

    @property
    def _min_interval(self) -> int:
        """Cycles per frame for the off-chip transfers of the fusion group's maps; a shorter interval is of no use."""
        return self.task.board.transfer_cycles(self.network.map_bytes)

    def _fewest(self, search: Search) -> Unrolling | Refusal:
        limit = None if self.in_turn else self.goal.interval
        unrolling = search.cheapest_of_all if limit is None else search.cheapest(limit)
        if unrolling is not None and self._slices(unrolling) <= self.goal.dsp:
            return unrolling
        nearest = search.fastest(lambda unrolling: self._slices(unrolling) <= self.goal.dsp)
        if nearest is None:
            return self._too_few_slices(search)
        return Refusal(
            f"no plan has an interval of at most {limit:,} cycles within {self.goal.dsp} DSP slices: the nearest has "
            f"{nearest[0]:,}"
        )

    def _fastest(self, search: Search) -> Unrolling | Refusal:
        fastest = search.limited(self.goal.dsp).fastest_within(self._min_interval)
        return self._too_few_slices(search) if fastest is None else fastest[1]

    def _too_few_slices(self, search: Search) -> Refusal:
        reason = f"no unrolling fits {counted(self.goal.dsp, 'DSP slice')}: {min_text(search)}"
        return Refusal(reason, "DSP slices", search.cheapest_of_all.cost)

    def min_refusal(self, refusal: Refusal) -> Refusal:
        """Return ``refusal``, or a `Refusal` for the factors of fewest DSP slices if these lack less."""
        cheapest = self.min_lack()
        if cheapest is not None and cheapest.resource == refusal.resource and cheapest.needed < refusal.needed:
            return cheapest
        return refusal

    def may_fit(self) -> bool:
        """Return whether the group fits with the smallest buffers and the factors of fewest slices or fewest cycles."""
        if self.min_lack() is None:
            return True
        unrolling = self.best_factors()
        return not isinstance(unrolling, Refusal) and self._refusal(unrolling) is None

    @property
    def min_luts(self) -> int:
        """Number of LUTs of the fusion group with the unroll factors of fewest DSP slices and the smallest buffers."""
        return self._smallest_group(self.search.cheapest_of_all).resources.lut

    def min_lack(self) -> Refusal | None:
        """Return a `Refusal` if even the cheapest factors with the smallest buffers exceed the board; else ``None``."""
        return self._refusal(self.search.cheapest_of_all)

    def _lower_latency(self, fastest: Unrolling) -> Unrolling:
        """Speed up layers with spare DSP slices; return the `Unrolling` (unroll factors) of lowest latency found.

        Faster layers shorten fills and drains.
        Starting at several intervals, the layer whose speed-up has the best estimated gain is made faster, again and
        again (`climb`). The best few results are scheduled exactly, and so is ``fastest``. A group that runs in turn
        with others is one of many, and has one frame at a time; the estimate then decides.
        """
        if self.in_turn:
            return climb(self.search, self._windows, fastest, self.goal.dsp, self._min_interval)[1]
        candidates = [fastest, *self._climbed_unrollings(self.search, fastest, self.goal.dsp)[:EXACT_UNROLLINGS]]
        return min(candidates, key=lambda unrolling: (self._exact_latency(unrolling), unrolling.order))

    @property
    def _windows(self) -> list[Window]:
        """List of the sliding `Window` (kernel, stride, padding) of each layer of the fusion group."""
        return [layer.window for layer in self.network.layers]

    def _climbed_unrollings(
        self, search: Search, fastest: Unrolling, budget: float, count: int = LATENCY_UNROLLINGS
    ) -> list[Unrolling]:
        """Return a list of each `Unrolling` that uses the budget to lower latency, lowest estimate first.

        They start from ``fastest`` and about ``count`` slower unrollings.
        """
        unrollings = self._slower_unrollings(search, fastest, count)
        climbed = [climb(search, self._windows, unrolling, budget, 0) for unrolling in unrollings]
        climbed.sort(key=lambda entry: (entry[0], entry[1].order))
        return [unrolling for _, unrolling in climbed]

    def _slower_unrollings(self, search: Search, fastest: Unrolling, count: int) -> Iterator[Unrolling]:
        """Yield the `Unrolling` ``fastest``, then some up to 1.2 times its interval, which leave DSP slices."""
        yield fastest
        cycles = interval(search.works, fastest.unrolls)
        slower = [max_cycles for max_cycles in search.intervals if cycles < max_cycles <= 1.2 * cycles]
        seen = {fastest.unrolls}
        for max_cycles in slower[:: max(len(slower) // count, 1)]:
            unrolling = search.cheapest(max_cycles)
            if unrolling is not None and unrolling.unrolls not in seen:
                seen.add(unrolling.unrolls)
                yield unrolling

    def _exact_latency(self, unrolling: Unrolling) -> int:
        return endless_cycles(self.make(self._low_latency_layers(unrolling)).config, 1).latency

    def _refusal(self, unrolling: Unrolling) -> Refusal | None:
        """Return a `Refusal` if the unroll factors, with the smallest buffers, exceed the board; else ``None``."""
        group = self._smallest_group(unrolling)
        return self.shortage(memory_moves.with_memories_moved(group, self.board) if self.moves_memories else group)

    def _smallest_group(self, unrolling: Unrolling) -> Group:
        """Return the fusion `Group` with given unroll factors and the smallest line buffers and FIFOs."""
        layers = self._layers(unrolling)
        rows = [self.template.stage(layer, self.board.family).min_rows for layer in self.network.layers]
        return self.make(with_buffers(layers, rows, [layer.fifo_depths for layer in layers]))

    def _fits_board(self, unrolling: Unrolling) -> bool:
        """Return whether the fusion group with given unroll factors and the smallest buffers fits the board.

        DSP slices and the weights' block RAM are compared first, because composing the group takes longer.
        """
        weights = sum(self.task.weight_bram36(*choice) for choice in zip(self.works, unrolling.unrolls, strict=True))
        room = self.board.bram36
        if self.moves_memories:
            room = memory_bits(self.board, is_loaded(self.network)) / self.board.family.memories.block_bits
        if self._slices(unrolling) > self.goal.dsp or weights > room:
            return False
        return self._refusal(unrolling) is None

    @property
    def works(self) -> Sequence[LayerWork]:
        """Sizes and order of computation of each layer in one frame (`LayerWork`), as a sequence."""
        return self.search.works

    def _layers(self, unrolling: Unrolling) -> tuple[LayerPlan, ...]:
        """Return a tuple of each layer's `LayerPlan` for given unroll factors, with ample line buffers and FIFOs."""
        network = self.network
        multipliers = [
            self.task.multipliers[layer.name] if unroll.macs_per_dsp is None else multiplier_of(unroll.macs_per_dsp)
            for layer, unroll in zip(network.layers, unrolling.unrolls, strict=True)
        ]
        pixels = {layer.name: unroll.tp for layer, unroll in zip(network.layers, unrolling.unrolls, strict=True)}
        readers = [
            len(network.readers[layer.name]) + len(network.output_indices(layer.name)) for layer in network.layers
        ]
        stages = [self.template.stage(layer, self.board.family) for layer in network.layers]
        # An input of the group has its reader's pixels.
        chosen = zip(network.edges, unrolling.unrolls, strict=True)
        sources = [pixels.get(edges[0], unroll.tp) for edges, unroll in chosen]
        plans = map(layer_plan, stages, unrolling.unrolls, sources, multipliers, readers)
        return tuple(
            replace(plan, tables_in=self.tables_in, requantise_in="lut" if plan.name in self.goal.in_luts else "dsp")
            for plan in plans
        )

    def _sized_group(self, unrolling: Unrolling) -> Group:
        """Return the fusion `Group` with given unroll factors and the buffer sizes that the exact schedule determines.

        If the interval is longer than the slowest layer's cycles, some width converters move before their FIFOs.
        """
        layers = self._low_latency_layers(unrolling) if self.goal.objective == "latency" else self._layers(unrolling)
        group = self._group_with_buffers(layers)
        if self.shortage(group) is None:
            interim.offer(self.task, group)
        if self._interval(group) == group.slowest_cycles:
            return group
        faster = self._low_interval_layers(layers, self._interval(group))
        if faster is None:
            return group
        moved = self._group_with_buffers(faster)
        fits = self.shortage(moved) is None or self.shortage(group) is not None
        return moved if fits and self._interval(moved) < self._interval(group) else group

    def _interval(self, group: Group) -> int:
        """Return the cycles between frames of a group, or the slowest layer's cycles if it has no steady interval."""
        interval = group.steady.interval if self.may_convert_first and not self.in_turn else None
        return group.slowest_cycles if interval is None else interval

    def _low_interval_layers(self, layers: tuple[LayerPlan, ...], interval: int) -> tuple[LayerPlan, ...] | None:
        """Return layers' plans with width converters before FIFOs; ``None`` if that does not lower the interval.

        ``interval`` is the interval, in cycles, without such converters.
        """
        best, config = None, self.make(layers).config
        for moved in moved_converters(config, layers):
            cycles = endless_cycles(self.make(moved).config).interval
            if cycles is not None and cycles < interval:
                best, interval = moved, cycles
        return best

    def _low_latency_layers(self, unrolling: Unrolling) -> tuple[LayerPlan, ...]:
        """Return a tuple of layers' plans with width converters before FIFOs where that lowers latency most."""
        layers = self._layers(unrolling)
        if self.in_turn or not self.may_convert_first:
            return layers
        moved = moved_converters(self.make(layers).config, layers)
        return min((layers, *moved), key=lambda layers: endless_cycles(self.make(layers).config, 1).latency)

    def _group_with_buffers(self, layers: tuple[LayerPlan, ...]) -> Group:
        """Return the `Group` for given layers' plans with sized buffers, and with memories moved if they may move."""
        group = self._buffered(layers)
        while self.moves_memories:
            moved = memory_moves.with_memories_moved(group, self.board)
            if memory_moves.pipeline_latencies(moved) == memory_moves.pipeline_latencies(group):
                moved.copy_cycles(group)
                return moved
            # Other latencies need other FIFO depths. The FIFOs' memories are then chosen again.
            group = self._buffered(tuple(replace(layer, fifos_in=()) for layer in moved.layers))
        return group

    def _buffered(self, layers: tuple[LayerPlan, ...]) -> Group:
        sizes = sizes_of(self.make(layers).config, 1 if self.in_turn else None)
        group = self.make(with_buffers(layers, sizes.rows, sizes.depths))
        group.set_cycles(sizes.latency, sizes.steady)
        return group


def climb(
    search: Search, windows: list[Window], unrolling: Unrolling, budget: float, floor: int
) -> tuple[float, Unrolling]:
    """Return a pair (estimated latency in cycles, `Unrolling`) after speeding layers up one by one, largest gain first.

    Each step makes one layer faster, the one that saves the most latency per DSP slice. The steps end if no slices are
    left, or no layer saves enough (`MIN_GAIN`).

    Parameters
    ----------
    windows : list of Window
        Window of each layer.
    unrolling : Unrolling
        Unroll factors to start from.
    budget : float
        Number of DSP slices that may be used, or maximum of another cost of the search.
    floor : int
        Cycles of the off-chip transfers, the minimum that a latency counts as.
    """
    works = search.works
    rows = row_times(works, windows, unrolling.unrolls)
    best = max(last_end(works, rows), floor)
    while True:
        gains = []
        for index, unroll, rank in _faster_choices(search, unrolling, budget - unrolling.cost):
            unrolls = (*unrolling.unrolls[:index], unroll, *unrolling.unrolls[index + 1 :])
            latency = max(last_end(works, row_times(works, windows, unrolls, rows[:index])), floor)
            work, before = works[index], unrolling.unrolls[index]
            extra = rank[0] - unrolling.ranks[index][0] + _pool_slices(work, unroll) - _pool_slices(work, before)
            if budget * (best - latency) > MIN_GAIN * best * max(extra, 1):
                ranks = (*unrolling.ranks[:index], rank, *unrolling.ranks[index + 1 :])
                faster = replace(unrolling, unrolls=unrolls, ranks=ranks)
                gains.append(((best - latency) / max(extra, 1), latency, faster))
        if not gains:
            return best, unrolling
        _, best, unrolling = max(gains, key=lambda gain: gain[0])
        unrolling = replace(unrolling, cost=sum(rank[0] for rank in unrolling.ranks))
        rows = row_times(works, windows, unrolling.unrolls)


def _pool_slices(work: LayerWork, unroll: Unroll) -> float:
    """Return a pool's cost (comparators, rounded additions) as DSP slices, at 100 LUTs per slice."""
    return 0 if work.weighted else (1.7 if work.whole_windows else 0.14) * unroll.tn * unroll.tk * unroll.tp


def _faster_choices(search: Search, unrolling: Unrolling, left: float) -> Iterable[tuple[int, Unroll, Rank]]:
    """Yield (layer index, `Unroll`, `Rank`) for the next four faster choices of each layer, and for its fastest one.

    Each item has the layer's index, its unroll factors and their rank. It costs at most ``left`` DSP slices more.
    """
    for layer, (work, unroll, rank) in enumerate(zip(search.works, unrolling.unrolls, unrolling.ranks, strict=True)):
        options = next(options for options in search.tables(layer) if options.tp == unroll.tp)
        now = work.output_steps(unroll.tp) * work.pixel_cycles(unroll)
        usable = (options.cost <= rank[0] + left) & (options.cycles < now) & (options.beats <= work.beats(unroll))
        indices = np.flatnonzero(usable)
        if len(indices):
            indices = indices[np.argsort(-options.cycles[indices], kind="stable")]
            for index in {*indices[:4].tolist(), int(indices[-1])}:
                yield layer, options.unroll(index), options.rank(index)


def layer_plan(
    stage: Stage[Any], unroll: Unroll, source: int, multiplier: Multiplier = PLAIN, readers: int = 1
) -> LayerPlan:
    """Return the plan (`LayerPlan`) of one layer for given unroll factors, with buffers larger than needed.

    Parameters
    ----------
    source : int
        Number of pixels per input beat.
    multiplier : Multiplier
        Multiplier of the layer, if ``Tm`` and ``Tp`` are at least its number of lanes and of pixels.
    readers : int
        Number of readers of the output: layers, and outputs of the group.
    """
    layer = stage.op
    slice_lanes = unroll.tm - unroll.lut_lanes
    folds = stage.groups * ceil_div(layer.input.channels // stage.groups, unroll.tn)
    return LayerPlan(
        name=layer.name,
        kind=layer.kind,
        tn=unroll.tn,
        tm=unroll.tm,
        tk=unroll.tk,
        tp=unroll.tp,
        chain=CHAIN,
        line_rows=ample_rows(layer.window, ceil_div(layer.input.width, source), folds) if stage.has_line_buffer else 0,
        fifo_depths=(unroll.tm,) * readers,  # at least one fold's beats; sized later
        macs_per_dsp=multiplier.for_size(slice_lanes, unroll.tp).name if slice_lanes else PLAIN.name,
        lut_lanes=unroll.lut_lanes,
    )
