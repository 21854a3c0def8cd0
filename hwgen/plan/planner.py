"""Planner: chooses fusion groups, unroll factors and buffers of a whole network for a board and an objective.

A `PlanSearch` compares a task's plans: one fusion group of layers, groups in turn, or one group with its weights off
chip.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import sqrt
from typing import Any

from hwgen.boards import Board
from hwgen.network.graph import Network
from hwgen.network.loaded import is_loaded, loaded
from hwgen.options import AUTO, CONSTANT, ENGINE, RUNTIME, STREAM, Steering, called, choosing, typed
from hwgen.plan import alternatives, grouping
from hwgen.plan.choose import any_group, best_group, off_chip_group, plan_of, task_of
from hwgen.plan.cuts import Span, text
from hwgen.plan.plan import Plan, rate_text
from hwgen.plan.request import Request, lut_refusal
from hwgen.progress import in_one
from hwgen.templates import TEMPLATES, interim
from hwgen.templates.base import Group, Refusal, Task, fitting, layer_weight_bits, layers_for_ultra_ram, weight_shortage
from hwgen.templates.stages import stage_of

#: Maximum number of DSP budgets that are tried if groups in turn need too many LUTs, flip-flops or block RAMs.
MAX_TRIES = 4

Choose = Callable[..., Group | Refusal]
"""Function that plans some layers as one fusion group (or returns a refusal), with the parameters of `best_group`."""


@dataclass(frozen=True)
class PlanSearch:
    """Search for the best plan of a task (network, board and goal), with the fusion groups that the user requested.

    Parameters
    ----------
    task : Task
        Network, board and goal of the plan.
    groups : str, optional
        Requested fusion groups, as `hwgen.plan.grouping.parse` reads them.
    in_turn : bool
        Whether groups in turn are requested, even if one group fits.
    """

    task: Task
    groups: str | None = None
    in_turn: bool = False
    _off_chip_refusals: list[Refusal] = field(default_factory=list, init=False, compare=False)

    def best(self) -> Plan | Refusal:
        """Return the best `Plan` (goal's objective), or a `Refusal` that says why none fits even with weights off chip.

        Raises
        ------
        InputError
            If the requested groups are not the network's layers in order.
        """
        plan = self._search_plan()
        if not isinstance(plan, Refusal) or not self._off_chip_refusals:
            return plan
        reason = f"{plan.reason}{alternatives.loaded_stream_clause(self.task)}"
        if self.task.goal.template is not None:
            return replace(plan, reason=f"{reason}{alternatives.engine_clause(self.task)}")
        engine = alternatives.without_other_template(self._off_chip_refusals[0].reason)
        return replace(plan, reason=f"{reason}; the template {ENGINE} does not compute it either: {engine}")

    def _search_plan(self) -> Plan | Refusal:
        """Return the best `Plan` (goal's objective), or a `Refusal` that says why none fits with weights on the chip.

        A requested template, requested groups and groups in turn are followed. Otherwise the first of these that fits
        is the best: one group with only its input and output off chip, one group that computes from off-chip memory,
        and groups in turn.

        Raises
        ------
        InputError
            If the requested groups are not the network's layers in order.
        """
        template = TEMPLATES.get(self.task.goal.template or "")
        if template is not None and not template.holds_weights:
            return self._plan_as_one_group()
        if (refusal := alternatives.lut_budget_refusal(self.task)) is not None:
            return self._off_chip(refusal) or refusal
        if self.groups is not None:
            return self._in_given_groups(self.groups)
        if self.in_turn:
            return alternatives.weights_refusal(self._in_slices) or self._plan_in_turn(())
        layers = self.task.network.layers
        lacking = weight_shortage(layer_weight_bits(layers), self.task.board, is_loaded(self.task.network))
        if lacking is not None and (plan := self._off_chip(lacking)) is not None:
            return plan
        return alternatives.weights_refusal(self._in_slices) or self._plan_freely()

    def _plan_freely(self) -> Plan | Refusal:
        """Return the best `Plan` (goal's objective) without given groups, or a `Refusal`; weights may fit the chip."""
        plan = self._plan_as_one_group()
        needs_luts = self.task.goal.needs_luts
        if not isinstance(plan, Refusal):
            return plan if needs_luts else self._compared(plan)
        if not plan.over_budget or needs_luts or not self.task.network.cuts:
            return plan
        other = self._off_chip(plan) or self._plan_in_turn(
            (f"no single group was found that fits: {plan}", *alternatives.tiles_notes(self._in_slices))
        )
        # Groups in turn multiply in DSP slices only. The refusal of one group names the fewest slices next to LUTs.
        is_nearer = plan.resource == "DSP slices" and self.task is not self._in_slices
        return plan if isinstance(other, Refusal) and is_nearer else other

    def _plan_as_one_group(self) -> Plan | Refusal:
        """Return the `Plan` of all layers as one fusion group, or a `Refusal` if the group does not fit."""
        return self._plan_group(best_group(self.task, 0, len(self.task.works)))

    def _plan_group(self, group: Group | Refusal, *notes: str) -> Plan | Refusal:
        """Return the `Plan` of a single fusion group, with notes for users; a `Refusal` is returned unchanged."""
        if isinstance(group, Refusal):
            return group
        task = self.task if any(layer.lut_lanes for layer in group.layers) else self._in_slices
        multiplier_notes = alternatives.multiplier_notes(self.task, group)
        return plan_of(self.task, (group,), (*_slice_notes(task), *notes, *multiplier_notes))

    @property
    def _in_slices(self) -> Task:
        """Planning `Task` with all products in DSP slices, for groups in turn and for weights off chip."""
        return self.task.in_slices

    def _in_given_groups(self, groups: str) -> Plan | Refusal:
        """Return the `Plan` of the requested groups, each by the first template that fits the board, or a `Refusal`.

        A group that does not fit on the chip computes from off-chip memory, if a template can.
        """
        spans = grouping.parse(groups, self.task.network)
        if len(spans) == 1 and self.in_turn:
            return Refusal(f"{called('in_turn')} needs two groups or more, not the one of {called('groups')} {groups}")
        if len(spans) > 1 and self.task.goal.needs_luts:
            return Refusal(lut_refusal("one group of all layers", f"groups {groups}, which run in turn and multiply"))
        if len(spans) == 1:
            plan = self._plan_group(any_group(self.task, *spans[0]))
        else:
            plan = InTurnSearch(self._in_slices, spans, _slice_notes(self._in_slices), any_group).best(self.in_turn)
        if isinstance(plan, Refusal) and plan.over_budget:
            return alternatives.weights_refusal(self._in_slices) or plan  # says more, if a single layer does not fit
        return plan

    def _off_chip(self, refusal: Refusal) -> Plan | None:
        """Return the `Plan` of one fusion group with weights in off-chip memory; ``None`` if none fits or is allowed.

        None is allowed with an objective other than interval and latency, with products that must be in LUTs, or if no
        such group fits.

        Parameters
        ----------
        refusal : Refusal
            Reason why the weights or the group do not fit on the chip, for the plan's note.
        """
        if self.task.goal.objective not in ("interval", "latency") or self.task.goal.needs_luts:
            return None
        group = off_chip_group(self.task, 0, len(self.task.works))
        if isinstance(group, Refusal):
            self._off_chip_refusals.append(group)
            return None
        note = f"computed from off-chip memory (template {group.template.name}), as it fits no other: {refusal}"
        if alternatives.ultra_ram_holds_weights(self.task):
            note += f"; {called('weights')} {AUTO} may fit them in UltraRAM"
        plan = self._plan_group(group, note)
        return None if isinstance(plan, Refusal) else plan

    def _compared(self, plan: Plan) -> Plan:
        """Return the `Plan` of one fusion group, with a note for users if groups in turn would be faster.

        Groups in turn can be faster because each has all slices while it runs. The note has the exact figure of the
        plan in turn, and the option that requests it.
        """
        latency = self.task.goal.objective == "latency"
        if self.task.goal.objective not in ("interval", "latency") or len(plan.layers) == 1:
            return plan
        spans = grouping.faster(self._in_slices, _frame_cycles(plan, latency))
        if spans is None:
            return plan
        option = f"--groups {shlex.quote(text([layer.name for layer in self.task.network.layers], spans))}"
        for shared in (False, True):
            other = InTurnSearch(self._in_slices, spans).best(shared)
            if not isinstance(other, Refusal) and _frame_cycles(other, latency) < _frame_cycles(plan, latency):
                what = "a latency" if latency else "an interval"
                cycles = other.latency if latency else other.interval
                built = "" if other.obstacle is None else ", but share the board, so that they can't be built"
                note = f"faster: groups in turn would have {what} of {cycles:,} cycles{built} ({option}"
                return replace(plan, notes=(*plan.notes, f"{note}{' --in-turn' * shared})"))
        return plan

    def _plan_in_turn(self, notes: tuple[str, ...]) -> Plan | Refusal:
        """Return the best `Plan` of groups in turn, with fewer DSP slices if another resource lacks, or a `Refusal`."""
        task = self._in_slices
        plan = _cut_once(task, (*_slice_notes(task), *notes))
        for _ in range(MAX_TRIES - 1):
            if not isinstance(plan, Refusal) or plan.resource in ("", "DSP slices"):
                break
            task = task.aiming(dsp=max(task.goal.dsp * 2 // 3, 1))
            plan = _cut_once(task, (*_slice_notes(task), *notes))
        return plan


def _slice_notes(task: Task) -> tuple[str, ...]:
    """Return a tuple of notes for users on layers with weights that can't use the requested multiplier, and why."""
    wanted, notes = task.multiplier, []
    if wanted is None:
        return ()
    packed = wanted.lanes * wanted.pixels
    kinds = {name: kind.lanes * kind.pixels for name, kind in task.multipliers.items()}
    unpacked = [work for work in task.works if kinds[work.name] < packed and work.weighted]
    for depthwise in (False, True):
        names = [work.name for work in unpacked if work.channelwise == depthwise]
        if names:
            notes.append(f"one multiply-add a slice, for {wanted.reason(depthwise)}: {', '.join(names)}")
    return tuple(notes)


def _cut_once(task: Task, notes: tuple[str, ...]) -> Plan | Refusal:
    """Return the `Plan` of the best grouping (goal's objective) of a task's network, run in turn, or a `Refusal`.

    With the objective ``dsp``, the fewest slices of this grouping are then searched again.
    """
    groups = grouping.cut(task)
    if isinstance(groups, Refusal):
        return groups
    if task.goal.objective != "dsp":
        return plan_of(task, groups, notes)
    names = [layer.name for layer in task.network.layers]
    ends = [names.index(group.layers[-1].name) + 1 for group in groups]
    return InTurnSearch(task, list(pairwise((0, *ends))), notes).best()


def _frame_cycles(plan: Plan, latency: bool) -> int:
    """Return a plan's latency or interval in cycles; with one group, at least the cycles of its off-chip transfers."""
    cycles = plan.latency if latency or plan.interval is None else plan.interval
    return (
        max(cycles, plan.board.transfer_cycles(plan.traffic_bytes["feature_maps"])) if len(plan.groups) == 1 else cycles
    )


@dataclass(frozen=True)
class InTurnSearch:
    """Search for the plan of a fixed grouping, whose groups of layers run one after the other.

    Parameters
    ----------
    task : Task
        Network, board and goal of the plan.
    spans : sequence of Span
        Index of each group's first layer, and of its last layer plus one.
    notes : tuple of str
        Notes of the plan.
    choose : function
        Search for one group.
    """

    task: Task
    spans: Sequence[Span]
    notes: tuple[str, ...] = ()
    choose: Choose = best_group

    def best(self, shared: bool = False) -> Plan | Refusal:
        """Return the `Plan` of the fusion groups with separate hardware, or on shared DSP slices if that does not fit.

        With the objective ``dsp``, the fewest slices are found by bisection over the budget that each group may use.
        Each group is as fast as the budget allows.

        Parameters
        ----------
        shared : bool
            Whether to skip plans with separate hardware for each group.
        """
        fewest = self.task.goal.objective == "dsp"
        if not fewest and not shared:
            plan = self._separate()
            if not isinstance(plan, Refusal) and plan.obstacle is None:
                return plan
            if isinstance(plan, Refusal) and not plan.over_budget:
                return plan
        best = self._plan_within_slices(self.task.goal.dsp)
        if isinstance(best, Refusal) or not fewest or self._exceeds_interval(best):
            return best
        low, high = 1, _max_slices(best)
        while low < high:
            middle = (low + high) // 2
            trial = self._plan_within_slices(middle)
            if isinstance(trial, Refusal) or self._exceeds_interval(trial):
                low = middle + 1
            else:
                best, high = trial, _max_slices(trial)
        return best

    def _separate(self) -> Plan | Refusal:
        """Return the `Plan` with separate hardware for each fusion group, and the DSP slices divided among the groups.

        The time of a group is about its multiply-adds divided by its slices, and the times add up. Their sum is
        smallest if the slices are in the ratio of the square roots of the multiply-adds.
        """
        layers = self.task.network.layers
        work = [sum(layer.macs for layer in layers[slice(*span)]) for span in self.spans]
        roots = [max(sqrt(macs), 1) for macs in work]
        return self._plan_spans([self.task.aiming(dsp=max(int(self.task.goal.dsp * r / sum(roots)), 1)) for r in roots])

    def _plan_within_slices(self, dsp: int) -> Plan | Refusal:
        """Return a `Plan` of fusion groups in turn, if each may use ``dsp`` DSP slices, or a `Refusal`.

        With the objective ``dsp``, each group is as fast as these slices allow.
        """
        fewest = self.task.goal.objective == "dsp"
        aimed = self.task.aiming(objective="interval", interval=None, dsp=dsp) if fewest else self.task
        return self._plan_spans([aimed] * len(self.spans))

    def _plan_spans(self, tasks: Sequence[Task]) -> Plan | Refusal:
        """Plan each range of layers by a task of its own; return the `Plan` of all groups, or the first `Refusal`."""
        groups = []
        for task, span in zip(tasks, self.spans, strict=True):
            group = self.choose(task, *span, in_turn=True)
            if isinstance(group, Refusal):
                return group
            groups.append(group)
        return plan_of(self.task, tuple(groups), self.notes)

    def _exceeds_interval(self, plan: Plan) -> bool:
        """Return whether a plan's interval (cycles per frame) exceeds the goal's maximum interval."""
        limit = self.task.goal.interval
        return limit is not None and plan.interval is not None and plan.interval > limit


def _max_slices(plan: Plan) -> int:
    """Return the number of DSP slices in the plan's fusion group that has the most."""
    return max(group.resources.dsp for group in plan.groups)


class BestPlan:
    """Holder of the best ``plan`` that a search has reported so far; ``plan`` is ``None`` before the first report."""

    def __init__(self) -> None:
        self.plan: Plan | None = None

    def take(self, plan: Plan, request: Request) -> None:
        """Keep a plan if it is better than the current one, by the objective of a request."""
        if self.plan is None or sort_key(plan, request) < sort_key(self.plan, request):
            self.plan = plan


_watched: ContextVar[BestPlan | None] = ContextVar("best", default=None)


@contextmanager
def watched() -> Iterator[BestPlan]:
    """Context manager that yields a `BestPlan`, updated with each better plan (by its objective) found in its block."""
    best = BestPlan()
    token = _watched.set(best)
    try:
        yield best
    finally:
        _watched.reset(token)


@contextmanager
def followed(request: Request) -> Iterator[None]:
    """Context manager that passes plans found by a search in its block to a surrounding `watched`, if any."""
    best = _watched.get()
    if best is None:
        yield
        return

    def take(task: Task, groups: tuple[Group, ...]) -> None:
        plan = plan_of(task, groups)
        if not isinstance(plan, Refusal):
            best.take(plan, request)

    with interim.received(take):
        yield


def sort_key(plan: Plan, request: Request) -> tuple[bool, float, float]:
    """Return a tuple that sorts plans, the best first: can't be built, the objective's figure, interval in cycles."""
    interval = plan.latency if plan.interval is None else plan.interval
    traffic = sum(plan.traffic_bytes.values())
    by_objective = {"interval": interval, "latency": plan.latency, "traffic": traffic, "dsp": plan.resources.dsp}
    assert request.objective is not None
    return plan.obstacle is not None, by_objective[request.objective], interval


def make(network: Network, board: Board, **options: Any) -> Plan:
    """Return the plan of a network for a board: templates, groups, unroll factors and buffers, or raise `PlanError`.

    If all layers fit as one group, the plan has one group, and of all maps only the network's input and output are off
    chip. Otherwise the network is cut into groups that run one after the other, or computed from off-chip memory.

    Parameters
    ----------
    options
        Options of the plan: the parameters of a `Request`.

    Raises
    ------
    PlanError
        If no plan fits. The message names what runs out and what would fit.
    InputError
        If an option is unknown, or the requested groups are not the network's layers in order.
    """
    request = Request.of(options)
    network = loaded(network) if request.weights == RUNTIME else network
    with in_one(f"{network.name}: planning for {board.name}"):
        with followed(request):
            best_plan = _plan_with_some_loaded if request.weights == AUTO else _best_plan
            plan = fitting(best_plan(network, board, request))
        note = _choice_note(network, board, request, plan)
    return replace(plan, notes=(*plan.notes, note)) if note else plan


def _plan_with_some_loaded(network: Network, board: Board, request: Request) -> Plan | Refusal:
    """Return the best stream as a `Plan` with as few layers as possible that load their weights, or a `Refusal`.

    Weights are constant if they fit. Otherwise the largest are loaded, to UltraRAM, and if that does not fit, all.
    """
    request, limited = replace(request, template=STREAM), request.limited(board)
    networks = [network] if weight_shortage(layer_weight_bits(network.layers), limited) is None else []
    largest = layers_for_ultra_ram(network, limited)
    networks += [loaded(network, names) for names in (largest, None) if limited.ultra_ram and largest]
    plans = (_best_plan(option, board, request) for option in networks or [network])
    for plan in plans:
        if not isinstance(plan, Refusal) or not plan.over_budget:
            break
    return plan


def _choice_note(network: Network, board: Board, request: Request, plan: Plan) -> str:
    """Return a note if options other than ``template`` chose the template: its frame rate, and the rate without them.

    The note is empty if the user named the template, or no option chose it.
    """
    names = choosing(vars(request), request.max_bus_bits(request.limited(board)))
    if request.template is not None or not names:
        return ""
    given = " and ".join(typed(name, getattr(request, name)) for name in names)
    chosen = f"{given} selects the template {plan.groups[0].template.name}: {_rate(plan)}"
    best = _best_plan(network, board, replace(request, **dict.fromkeys(field.name for field in fields(Steering))))
    if isinstance(best, Refusal):
        return f"{chosen}; no plan fits without it"
    templates = " and ".join(dict.fromkeys(group.template.name for group in best.groups))
    return f"{chosen}; the best plan without it (template {templates}) has {_rate(best)}"


def _rate(plan: Plan) -> str:
    """Return a plan's frames per second as text, or its latency in cycles if it has no interval."""
    rate = plan.frame_rate
    return f"a latency of {plan.latency:,} cycles" if rate is None else f"{rate_text(rate)} frames per second"


def _best_plan(network: Network, board: Board, request: Request) -> Plan | Refusal:
    """Return the best `Plan` (request's objective) over several sets of layers that rescale in LUTs, or a `Refusal`.

    It is the first plan that fits, or the first later plan that is better. If no plan fits, the refusal is the first
    plan's.
    """
    first, *others = _requantisers_in_luts(network, board, request)
    best = _plan_with_luts(network, board, request, first)
    for in_luts in others:
        plan = _plan_with_luts(network, board, request, in_luts)
        if isinstance(plan, Refusal):
            continue
        if isinstance(best, Refusal):
            best = plan
        elif sort_key(plan, request) < sort_key(best, request):
            return plan
    return best


def _requantisers_in_luts(network: Network, board: Board, request: Request) -> Iterable[frozenset[str]]:
    """Yield sets of layer names to try with their rescaling to integers in LUTs: none, all, or (``auto``) several.

    With ``auto`` the sets have no layer, all, and three, two and one quarter of the layers that can save DSP slices.
    Layers whose products need the fewest bits, and so the fewest LUTs, come first.
    """
    if request.requantise == "dsp":
        yield frozenset()
        return
    stages = [stage_of(layer, board.family) for layer in network.layers]
    known = [stage for stage in stages if stage.finish_slices() > stage.min_finish_slices]
    names = [stage.op.name for stage in sorted(known, key=lambda stage: stage.requantiser_input_bits)]
    some = (0, len(names), *(len(names) * share // 4 for share in (3, 2, 1)))
    for count in (len(names),) if request.requantise == "lut" else dict.fromkeys(some):
        yield frozenset(names[:count])


def _plan_with_luts(network: Network, board: Board, request: Request, in_luts: frozenset[str]) -> Plan | Refusal:
    """Return a request's `Plan`, or a `Refusal`, if the layers ``in_luts`` (names) rescale their sums in LUTs."""
    board = request.limited(board)
    goal = replace(request.goal(board), in_luts=in_luts)
    if (refusal := _refuse_groups(network, request)) is not None:
        return refusal
    task = task_of(network, board, goal, request.macs_per_dsp)
    plan = PlanSearch(task, request.groups, request.in_turn).best()
    if isinstance(plan, Refusal):
        return plan
    limit = goal.interval
    if limit is not None and plan.interval is not None and plan.interval > limit:
        rate = "" if request.fps is None else f" ({request.fps:g} frames per second at {board.clock_mhz:g} MHz)"
        return Refusal(f"no plan has an interval of at most {limit:,} cycles{rate}: the nearest has {plan.interval:,}")
    if request.weights != CONSTANT and len(plan.groups) > 1:
        return Refusal(
            f"{network.name} must fit {board.name} as one group to take its weights at run time, not be cut into "
            f"{len(plan.groups)}: use fewer layers or a larger board"
        )
    return plan


def _refuse_groups(network: Network, request: Request) -> Refusal | None:
    """Return a `Refusal` if the request is for several groups and the network can't be cut; ``None`` otherwise."""
    for what, names in (("inputs", network.input_names), ("outputs", network.output_names)):
        if (request.groups is not None or request.in_turn) and len(names) > 1:
            return Refusal(
                f"{network.name} has {len(names)} {what} ({', '.join(names)}): it is planned as one group, not cut "
                "into groups"
            )
    if request.in_turn and not network.cuts:
        why = "has one layer" if len(network.layers) == 1 else "can't be cut: more than one map would cross every cut"
        return Refusal(f"{called('in_turn')} needs two groups, but {network.name} {why}")
    return None
