"""Search for a network's cuts into fusion groups that best meet a plan's objective (default: fewest cycles per frame).

It is needed if all layers as one group do not fit the board, or are slower than groups in turn.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import inf

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import Network
from hwgen.plan import alternatives
from hwgen.plan.choose import best_group, plan_of, unrolling_by_slices
from hwgen.plan.cuts import Span, front, spans
from hwgen.printable import counted
from hwgen.progress import tell
from hwgen.templates import interim
from hwgen.templates.base import Group, Refusal, Task
from hwgen.templates.latency import estimate_latency

#: Ratio of consecutive cycle counts in a grid that bounds or estimates a group's cycles by its DSP slices.
GRID = 1.02

#: Maximum number of groups that are estimated in the search for groups in turn that are faster than one group.
MAX_ESTIMATES = 40

#: Maximum number of cycle counts, each `GRID` times the previous one, that are tried from a lower bound upward.
MAX_STEPS = 16


def parse(text: str, network: Network) -> tuple[Span, ...]:
    """Return a tuple of layer index ranges (begin, end): the fusion groups in a text as ``conv1_1-pool1,conv2_1``.

    Raises
    ------
    InputError
        If a layer is unknown, out of order, named twice or left out, or the network can't be cut after a group.
    """
    names = [layer.name for layer in network.layers]
    groups: list[Span] = []
    for entry in map(str.strip, text.split(",")):
        if not entry:
            raise InputError(f"groups: {text!r} names no layer in one place; take FIRST-LAST,FIRST-LAST")
        first, last = _parse_group(entry, names)
        begin, end = names.index(first), names.index(last) + 1
        expected = groups[-1][1] if groups else 0
        if end <= begin:
            raise InputError(f"groups: {entry!r} is out of order: {last} comes before {first} in {network.name}")
        if begin < expected:
            raise InputError(f"groups: {first} is named twice or out of order: {entry!r} after {names[expected - 1]}")
        if begin > expected:
            raise InputError(f"groups: {names[expected]} is in no group: {entry!r} must begin with it")
        if end not in network.boundaries:
            raise InputError(f"groups: {network.uncut_text(end)}")
        groups.append((begin, end))
    if groups[-1][1] != len(names):
        raise InputError(f"groups: {names[groups[-1][1]]} is in no group: the last one must end with {names[-1]}")
    return tuple(groups)


def _parse_group(entry: str, names: Sequence[str]) -> tuple[str, str]:
    """Return a pair: the names of the first and last layer in a fusion group's text such as ``conv1_1-pool1``.

    Layers' names can contain dashes themselves.

    Raises
    ------
    InputError
        If the text is neither a layer nor ``FIRST-LAST``.
    """
    if entry in names:
        return entry, entry
    pieces = entry.split("-")
    for count in range(1, len(pieces)):
        ends = "-".join(pieces[:count]).strip(), "-".join(pieces[count:]).strip()
        if ends[0] in names and ends[1] in names:
            return ends
    wrong = next((piece for piece in map(str.strip, pieces) if piece not in names), entry)
    if not wrong:
        raise InputError(f"groups: {entry!r} must be a layer or FIRST-LAST")
    near = difflib.get_close_matches(wrong, names, n=1, cutoff=0.0)[0]
    raise InputError(
        f"groups: {entry!r} must be a layer or FIRST-LAST; there is no layer {wrong!r} (nearest: {near!r})"
    )


def cut(task: Task) -> tuple[Group, ...] | Refusal:
    """Return a tuple of the planned groups of the best grouping (plan's objective), at least two, or a `Refusal`.

    The search is dynamic programming over the prefixes, as in `hwgen.plan.cuts`, with an estimate of each group's time.
    The groups of the best grouping are then planned and scheduled exactly. The search is repeated with these exact
    figures until the best grouping has no estimate left.

    If a single layer does not fit the board, the refusal names the layer, the resource that runs out, and what fits.
    """
    cutting = _Cutting(task)
    groups = cutting.sure_refusal() or cutting.run()
    if isinstance(groups, Refusal) or cutting.loads:
        return groups
    plan = plan_of(task, groups)
    if isinstance(plan, Refusal):
        return plan
    if plan.placement.loads_weights:
        # The weights need more block RAM than their bits, because their shapes don't fill it.
        cutting.loads = True
        return cutting.run()
    return groups


def faster(task: Task, max_cycles: int) -> tuple[Span, ...] | None:
    """Return a tuple of layer ranges: the grouping of fewest cycles per frame; ``None`` if not below ``max_cycles``.

    Return ``None`` if no grouping is estimated at less than ``max_cycles``. Lower bounds of the cycles are computed for
    all groups. Only groups of groupings whose bounds are below ``max_cycles`` are estimated: mostly none at all, and
    about `MAX_ESTIMATES` at most.
    """
    boundaries, layers, board = task.network.boundaries, task.network.layers, task.board
    maps = (task.network.input_maps[0], *(layer.output for layer in layers))  # a network with several inputs isn't cut
    moved = [fm.values * fm.type.dtype.itemsize for fm in maps]
    bounds = _min_cycles(task)
    known: set[Span] = set()
    costs: dict[Span, float] = {}
    for begin, end in combinations(boundaries, 2):
        costs[begin, end] = max(bounds[begin, end], board.transfer_cycles(moved[begin] + moved[end]))
    costs[0, boundaries[-1]] = inf
    while True:
        cycles, path = _fewest_cycles(boundaries, costs)
        if cycles >= max_cycles:
            return None
        unknown = [span for span in path if span not in known]
        if not unknown:
            return path
        if len(known) >= MAX_ESTIMATES:
            costs = {span: costs[span] if span in known else inf for span in costs}
            continue
        for span in unknown:
            known.add(span)
            costs[span] = max(costs[span], _estimate_upward(task, span, bounds[span]))


def _fewest_cycles(boundaries: Sequence[int], costs: Mapping[Span, float]) -> tuple[float, tuple[Span, ...]]:
    """Return a pair for the grouping of fewest cycles: its cycles per frame, its layer ranges (``costs``: cycles)."""
    best: dict[int, tuple[float, tuple[Span, ...]]] = {boundaries[0]: (0.0, ())}
    for index, end in enumerate(boundaries[1:], start=1):
        cost, begin = min((best[begin][0] + costs[begin, end], begin) for begin in boundaries[:index])
        best[end] = (cost, (*best[begin][1], (begin, end)))
    return best[boundaries[-1]]


def _min_cycles(task: Task) -> dict[Span, float]:
    """Return a dict from layer ranges to a lower bound of the range's cycles per frame within the DSP slices.

    The bound is infinite if the slices don't suffice. Each layer is charged the fewest slices that it needs for the
    cycles by itself, whatever beats its neighbours send.
    """
    search, goal, count = task.search, task.goal, len(task.works)
    fronts = [search.first_layer_front(index) for index in range(count)]
    low, high = min(float(cycles[0]) for cycles, _ in fronts), max(float(cycles[-1]) for cycles, _ in fronts)
    steps = np.append(low * GRID ** np.arange(int(np.log(high / low) / np.log(GRID)) + 1), high)
    slices = np.full((count + 1, len(steps)), 0.0)
    for index, (cycles, cost) in enumerate(fronts):
        choices = np.searchsorted(cycles, steps, side="right") - 1
        slices[index + 1] = np.where(choices >= 0, cost[choices], inf)
    bounds: dict[Span, float] = {}
    for begin in range(count):
        needed = np.zeros(len(steps))
        for end in range(begin + 1, count + 1):
            needed = needed + slices[end]
            enough = np.flatnonzero(needed <= goal.dsp)
            bounds[begin, end] = inf if not len(enough) else float(steps[enough[0]]) / GRID
    return bounds


def _estimate_upward(task: Task, span: Span, cycles: float) -> float:
    """Return a group's estimated latency in cycles, at the shortest interval above ``cycles`` that fits; else infinity.

    The estimate is infinite if no interval within `MAX_STEPS` steps fits the DSP slices.
    """
    search = task.search.part(*span)
    for _ in range(MAX_STEPS):
        cycles *= GRID
        unrolling = search.cheapest(int(cycles))
        if unrolling is not None and unrolling.cost <= task.goal.dsp:
            windows = [layer.window for layer in task.part(*span).layers]
            return estimate_latency(search.works, windows, unrolling.unrolls)
    return inf


def _estimate(task: Task, span: Span) -> tuple[int, int] | Refusal:
    """Return a fusion group's DSP slices and estimated cycles per frame as a pair, or a `Refusal` if it can't fit."""
    unrolling = unrolling_by_slices(task, *span)
    if isinstance(unrolling, Refusal):
        return unrolling
    windows = [layer.window for layer in task.part(*span).layers]
    return int(unrolling.cost), int(estimate_latency(task.search.part(*span).works, windows, unrolling.unrolls))


def _is_one(span: Span) -> bool:
    """Return whether a range of layers has a single layer."""
    return span[1] - span[0] == 1


class _Cutting:
    """Search for a network's best grouping (plan's objective), with the groups planned, refused or estimated so far."""

    def __init__(self, task: Task):
        self.task = task
        bits = 8 * task.network.weight_bytes
        #: Whether every frame loads the weights, because they don't all fit on the chip at once.
        self.loads = bits > task.board.bram36 * task.board.family.memories.block_bits
        self.layers = task.network.layers
        self.exact: dict[Span, Group] = {}
        self.refused: dict[Span, Refusal] = {}
        self.estimates: dict[Span, tuple[int, int]] = {}

    def run(self) -> tuple[Group, ...] | Refusal:
        """Return a tuple of the best grouping's groups (plan's objective), or a `Refusal` that names unfit layers."""
        while True:
            path = self._best_grouping()
            if path is None:
                return self._refusal()
            unknown = [span for span in path if span not in self.exact]
            tell(f"{self.task.network.name}: looking for fusion groups", len(path) - len(unknown), len(path), "group")
            if not unknown:
                return tuple(self.exact[span] for span in path)
            for span in unknown:
                if not self._fits_board(span) and not self.refused[span].over_budget:
                    return self.refused[span]
            if all(span in self.exact for span in path):
                interim.offer(self.task, *(self.exact[span] for span in path))

    def sure_refusal(self) -> Refusal | None:
        """Return a `Refusal` if layers between two possible cuts certainly fit no group; otherwise ``None``.

        No group with such layers then needs an estimate. Layers that begin with a `Copy` are not refused: within a
        longer group they have no copy and need less.
        """
        for span in pairwise(self.task.network.boundaries):
            if not self._costs(span) and self.task.network.copy_at(span[0]) is None:
                return self._refusal()
        return None

    def _best_grouping(self) -> tuple[Span, ...] | None:
        """Return the best grouping (plan's objective) by costs known so far, as layer ranges; ``None`` if none fits."""
        objective = self.task.goal.objective
        joins = (max, int.__add__) if objective == "dsp" else (int.__add__, int.__add__)
        points = front(self.task.network.boundaries, lambda *span: [(cost, None) for cost in self._costs(span)], joins)
        if not points:
            return None
        order = (0, 1) if objective in ("dsp", "traffic") else (1, 0)
        _, path = min(points, key=lambda entry: [entry[0][index] for index in order])
        return spans(path)

    def _costs(self, span: Span) -> list[tuple[int, int]]:
        """Return a list of a group's pair of costs: bytes off chip (objective ``dsp``: slices), cycles; maybe empty.

        With the objective ``dsp``, the first cost is the group's DSP slices. The list is empty if the group does not
        fit.
        """
        if span in self.refused or span == (0, len(self.layers)):
            return []  # all layers as one group were tried before
        if span not in self.exact and span not in self.estimates:
            estimate = _estimate(self.task, span)
            if isinstance(estimate, Refusal):
                self.refused[span] = estimate
                return []
            self.estimates[span] = estimate
        if span in self.exact:
            slices, cycles = self.exact[span].resources.dsp, self.exact[span].frame_cycles
        else:
            slices, cycles = self.estimates[span]
        board, network = self.task.board, self.task.part(*span)
        maps = self.exact[span].map_bytes if span in self.exact else network.map_bytes
        weights = network.weight_bytes if self.loads else 0
        cycles = max(cycles, board.transfer_cycles(maps)) + board.transfer_cycles(weights)
        return [(slices if self.task.goal.objective == "dsp" else maps + weights, cycles)]

    def _refusal(self) -> Refusal:
        """Return the `Refusal` that names layers that can't be cut apart and don't fit the board as one fusion group.

        There are such layers, because otherwise groups of the layers between two cuts would fit. The refusal names the
        first that are known, as planning all layers before them, in search of others, could take minutes.
        """
        task, uncut = self.task, list(pairwise(self.task.network.boundaries))
        known = [span for span in uncut if span in self.refused]
        span = next(span for span in known or uncut if not self._fits_board(span))
        refusal = self.refused[span]
        if not refusal.over_budget:
            return refusal
        reason, fit = str(refusal), alternatives.first_that_fit(task, span[0])
        tiles = ""
        if refusal.resource == "BRAM36" and _is_one(span):
            tiles = alternatives.tiles_clause(task, self.layers[span[0]])
        if refusal.resource == "DSP slices":
            # Name the layers that need the most slices, so that this number suffices for all.
            least, span = self._neediest(uncut)
            budget = counted(task.goal.dsp, "DSP slice")
            reason = f"no unrolling fits {budget}: {self._text(span)} needs at least {least}"
            together = int(task.search.part(0, len(self.layers)).cheapest_of_all.cost)
            if together > least:
                reason += f"; one group of all layers needs at least {together}"
        do = " does" if _is_one(span) else ", which can't be cut, do"
        return Refusal(f"{self._text(span)}{do} not fit {task.board.name}: {reason}{fit}{tiles}")

    def _text(self, span: Span) -> str:
        """Return the name of a fusion group's only layer, or of its first and last layer, as text."""
        first, last = self.layers[span[0]].name, self.layers[span[1] - 1].name
        return first if _is_one(span) else f"{first} to {last}"

    def _neediest(self, uncut: Sequence[Span]) -> tuple[int, Span]:
        """Return a pair: the maximum of layer ranges' minimum numbers of DSP slices, and the first range with it."""
        needs = [int(self.task.search.part(*span).cheapest_of_all.cost) for span in uncut]
        return max(needs), uncut[needs.index(max(needs))]

    def _fits_board(self, span: Span) -> bool:
        """Return whether a fusion group of layers fits the board, planned exactly unless that was done before."""
        if span not in self.exact and span not in self.refused:
            group = best_group(self.task, *span, in_turn=True)
            if isinstance(group, Refusal):
                self.refused[span] = group
            else:
                self.exact[span] = group
        return span in self.exact
