"""Cutting a network into groups that run one after the other, where one group does not fit the board."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import inf

import numpy as np

from hwgen.errors import InputError
from hwgen.network.graph import Network
from hwgen.plan import instead
from hwgen.plan.choose import best_group, plan_of, quick
from hwgen.plan.cuts import Span, front, spans
from hwgen.progress import tell
from hwgen.templates.base import Group
from hwgen.templates.latency import estimate_latency
from hwgen.templates.refusal import Refusal
from hwgen.templates.task import Task

#: Steps of cycles at which slices are counted to bound the cycles of groups.
GRID = 1.02

#: Groups that are estimated at most, to see whether groups in turn are faster than one.
MOST_ESTIMATES = 40

#: Steps upward from a bound of a group's interval that are tried at most.
MOST_STEPS = 16


def parse(text: str, network: Network) -> tuple[Span, ...]:
    """Groups from ``conv1_1-pool1,conv2_1-pool2``: first and last layer of each, or one layer's name.

    Raises
    ------
    InputError
        If a layer is unknown, named out of order or twice, or left out, or the network can't be cut there.
    """
    names = [layer.name for layer in network.layers]
    found: list[Span] = []
    for entry in map(str.strip, text.split(",")):
        if not entry:
            raise InputError(f"groups: {text!r} names no layer in one place; take FIRST-LAST,FIRST-LAST")
        first, last = _ends(entry, names)
        begin, end = names.index(first), names.index(last) + 1
        expected = found[-1][1] if found else 0
        if end <= begin:
            raise InputError(f"groups: {entry!r} is out of order: {last} comes before {first} in {network.name}")
        if begin < expected:
            raise InputError(f"groups: {first} is named twice or out of order: {entry!r} after {names[expected - 1]}")
        if begin > expected:
            raise InputError(f"groups: {names[expected]} is in no group: {entry!r} must begin with it")
        if end not in network.boundaries:
            raise InputError(f"groups: {network.uncut_text(end)}")
        found.append((begin, end))
    if found[-1][1] != len(names):
        raise InputError(f"groups: {names[found[-1][1]]} is in no group: the last one must end with {names[-1]}")
    return tuple(found)


def _ends(entry: str, names: Sequence[str]) -> tuple[str, str]:
    """First and last layer of a group; names may hold dashes themselves."""
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
    """Return the best way to cut the network into two groups or more.

    Dynamic programming over the prefixes, as in `hwgen.plan.cuts`, with each group's time estimated; the groups of
    the best grouping are then planned and scheduled exactly, and the search repeated with what was learnt, until
    nothing of it is estimated any more.

    If a layer does not even fit alone, the refusal names it, what runs out, and what fits.
    """
    cutting = _Cutting(task)
    groups = cutting.hopeless() or cutting.run()
    if isinstance(groups, Refusal) or cutting.loads:
        return groups
    plan = plan_of(task, groups)
    if isinstance(plan, Refusal):
        return plan
    if plan.placement.loads_weights:
        # More block RAM than the weights' bits: their shapes don't fill it.
        cutting.loads = True
        return cutting.run()
    return groups


def faster(task: Task, most: int) -> tuple[Span, ...] | None:
    """Two groups or more in turn that take less than ``most`` cycles a frame by estimate; ``None``: there are none.

    Of all groupings the one of the least estimate. What no group can be faster than is computed for all of them; only
    groups of groupings that these bounds leave are estimated, mostly none at all, and about `MOST_ESTIMATES` at most.
    """
    places, layers, board = task.network.boundaries, task.network.layers, task.board
    maps = (task.network.input_maps[0], *(layer.output for layer in layers))  # what has several inputs isn't cut
    moved = [fm.values * fm.type.dtype.itemsize for fm in maps]
    least = _least_cycles(task)
    known: set[Span] = set()
    costs: dict[Span, float] = {}
    for begin, end in combinations(places, 2):
        costs[begin, end] = max(least[begin, end], board.transfer_cycles(moved[begin] + moved[end]))
    costs[0, places[-1]] = inf
    while True:
        cycles, path = _shortest(places, costs)
        if cycles >= most:
            return None
        unknown = [span for span in path if span not in known]
        if not unknown:
            return path
        if len(known) >= MOST_ESTIMATES:
            costs = {span: costs[span] if span in known else inf for span in costs}
            continue
        for span in unknown:
            known.add(span)
            costs[span] = max(costs[span], _from(task, span, least[span]))


def _shortest(places: Sequence[int], costs: Mapping[Span, float]) -> tuple[float, tuple[Span, ...]]:
    """The grouping with the least sum of costs."""
    best: dict[int, tuple[float, tuple[Span, ...]]] = {places[0]: (0.0, ())}
    for number, end in enumerate(places[1:], start=1):
        cost, begin = min((best[begin][0] + costs[begin, end], begin) for begin in places[:number])
        best[end] = (cost, (*best[begin][1], (begin, end)))
    return best[places[-1]]


def _least_cycles(task: Task) -> dict[Span, float]:
    """Cycles a frame that no unrolling of a group is below within the DSP slices; infinite where they don't suffice.

    Each layer by itself takes the least slices for so many cycles, whatever its neighbours' beats are.
    """
    search, goal, count = task.search, task.goal, len(task.works)
    fronts = [search.alone(number) for number in range(count)]
    low, high = min(float(cycles[0]) for cycles, _ in fronts), max(float(cycles[-1]) for cycles, _ in fronts)
    steps = np.append(low * GRID ** np.arange(int(np.log(high / low) / np.log(GRID)) + 1), high)
    slices = np.full((count + 1, len(steps)), 0.0)
    for number, (cycles, cost) in enumerate(fronts):
        places = np.searchsorted(cycles, steps, side="right") - 1
        slices[number + 1] = np.where(places >= 0, cost[places], inf)
    found: dict[Span, float] = {}
    for begin in range(count):
        needed = np.zeros(len(steps))
        for end in range(begin + 1, count + 1):
            needed = needed + slices[end]
            enough = np.flatnonzero(needed <= goal.dsp)
            found[begin, end] = inf if not len(enough) else float(steps[enough[0]]) / GRID
    return found


def _from(task: Task, span: Span, cycles: float) -> float:
    """Estimated cycles of one frame of a group, whose interval is sought from a lower bound upward."""
    search = task.search.part(*span)
    for _ in range(MOST_STEPS):
        cycles *= GRID
        way = search.cheapest(int(cycles))
        if way is not None and way.cost <= task.goal.dsp:
            windows = [layer.window for layer in task.part(*span).layers]
            return estimate_latency(search.works, windows, way.unrolls)
    return inf


def _estimate(task: Task, span: Span) -> tuple[int, int] | Refusal:
    """Return the DSP slices of a group, and the estimated cycles of one frame."""
    way = quick(task, *span)
    if isinstance(way, Refusal):
        return way
    windows = [layer.window for layer in task.part(*span).layers]
    return int(way.cost), int(estimate_latency(task.search.part(*span).works, windows, way.unrolls))


def _is_one(span: Span) -> bool:
    """Whether it is a single layer."""
    return span[1] - span[0] == 1


class _Cutting:
    def __init__(self, task: Task):
        self.task = task
        bits = 8 * task.network.weight_bytes
        #: Whether weights have to be loaded every frame: not all fit on the chip at once.
        self.loads = bits > task.board.bram36 * task.board.family.memories.block_bits
        self.layers = task.network.layers
        self.exact: dict[Span, Group] = {}
        self.refused: dict[Span, Refusal] = {}
        self.estimates: dict[Span, tuple[int, int]] = {}

    def run(self) -> tuple[Group, ...] | Refusal:
        """Return the groups of the best grouping; the refusal of some layers where there is none."""
        while True:
            path = self._best()
            if path is None:
                return self._refusal()
            unknown = [span for span in path if span not in self.exact]
            tell(f"{self.task.network.name}: looking for fusion groups", len(path) - len(unknown), len(path), "group")
            if not unknown:
                return tuple(self.exact[span] for span in path)
            for span in unknown:
                if not self._fits(span) and not self.refused[span].over_budget:
                    return self.refused[span]

    def hopeless(self) -> Refusal | None:
        """Return the refusal of layers between two cuts that no group can hold, if there are any.

        Groups that hold such layers need not be estimated. But a group that begins with a copy of the layer before it
        takes more than the same layers do in a longer group.
        """
        for span in pairwise(self.task.network.boundaries):
            if not self._costs(span) and self.task.network.copy_at(span[0]) is None:
                return self._refusal()
        return None

    def _best(self) -> tuple[Span, ...] | None:
        """The best grouping by what is known."""
        objective = self.task.goal.objective
        joins = (max, int.__add__) if objective == "dsp" else (int.__add__, int.__add__)
        found = front(self.task.network.boundaries, lambda *span: [(cost, None) for cost in self._costs(span)], joins)
        if not found:
            return None
        order = (0, 1) if objective in ("dsp", "traffic") else (1, 0)
        _, path = min(found, key=lambda entry: [entry[0][index] for index in order])
        return spans(path)

    def _costs(self, span: Span) -> list[tuple[int, int]]:
        """Of a group, none if it does not fit: DSP slices (if they are to be few) or bytes moved; cycles."""
        if span in self.refused or span == (0, len(self.layers)):
            return []  # one group was tried before
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
        """Return the refusal of layers between two cuts that don't fit even alone.

        If there were none, groups of these would do. The first ones known are named: planning those before them to find
        others may take minutes.
        """
        task, alone = self.task, list(pairwise(self.task.network.boundaries))
        known = [span for span in alone if span in self.refused]
        span = next(span for span in known or alone if not self._fits(span))
        refusal = self.refused[span]
        if not refusal.over_budget:
            return refusal
        reason, fit = str(refusal), instead.first_that_fit(task, span[0])
        tiles = ""
        if refusal.resource == "BRAM36" and _is_one(span):
            tiles = instead.layer_in_tiles(task, self.layers[span[0]])
        if refusal.resource == "DSP slices":
            # Of all layers the neediest, so that what these need is enough.
            least, span = self._neediest(alone)
            reason = f"no unrolling fits {task.goal.dsp} DSP slices: the least is {least} ({self._text(span)} {least})"
        do = " does" if _is_one(span) else ", which can't be cut, do"
        return Refusal(f"{self._text(span)}{do} not fit {task.board.name} even alone: {reason}{fit}{tiles}")

    def _text(self, span: Span) -> str:
        first, last = self.layers[span[0]].name, self.layers[span[1] - 1].name
        return first if _is_one(span) else f"{first} to {last}"

    def _neediest(self, alone: Sequence[Span]) -> tuple[int, Span]:
        """The most slices that layers between two cuts need at the least, and the first such layers."""
        needs = [int(self.task.search.part(*span).cheapest_of_all.cost) for span in alone]
        return max(needs), alone[needs.index(max(needs))]

    def _fits(self, span: Span) -> bool:
        """Plan a group exactly, if that wasn't done yet."""
        if span not in self.exact and span not in self.refused:
            group = best_group(self.task, *span, in_turn=True)
            if isinstance(group, Refusal):
                self.refused[span] = group
            else:
                self.exact[span] = group
        return span in self.exact
