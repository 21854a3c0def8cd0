"""The planner: fusion groups, unroll factors and buffers of a whole network for a board, by objective."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import sqrt
from typing import Any

from hwgen import boards
from hwgen.blocking import on_board
from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.plan import grouping
from hwgen.plan.choose import any_group, best_group, can_be_built, may_fit, off_chip_group, plan_of, task_of
from hwgen.plan.cuts import Span, text
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request
from hwgen.progress import tell
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group
from hwgen.templates.budget import OverBudgetError, check_weight_bits, weights_of
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Task

#: Budgets of DSP slices that are tried where the logic of groups in turn outgrows the board.
MOST_TRIES = 4

Choose = Callable[..., Group]
"""Finds the group of some layers: `best_group`, or another function with its parameters."""


def make(network: Network, board: Board, **options: Any) -> Plan:
    """Plan ``network`` for ``board``.

    One group, if it fits: then nothing but input and output leaves the chip. Otherwise the network is cut into groups
    that run one after the other.

    Parameters
    ----------
    options
        What is asked of the plan: the parameters of a `Request`.

    Raises
    ------
    PlanError
        If nothing fits, naming what runs out and what would fit.
    InputError
        If an option is unknown, or the groups that are asked for are not the network's layers in order.
    """
    request = Request.of(options)
    tell(f"{network.name}: planning for {board.name}")
    if request.weights == "runtime":
        return _made_one(loaded(network), board, request)
    if request.requantise == "auto":
        return _best_requantised(network, board, request)
    return _made(network, board, request, _requantised(network) if request.requantise == "lut" else [])


def _made_one(network: Network, board: Board, request: Request) -> Plan:
    """The plan of one group, whose weights are loaded at run time."""
    plan = _made(network, board, request, [])
    if len(plan.groups) > 1:
        raise PlanError(
            f"{network.name} must fit {board.name} as one group to take its weights at run time, not be cut into "
            f"{len(plan.groups)}: take fewer layers or a larger board"
        )
    return plan


def _requantised(network: Network) -> list[str]:
    """The layers whose requantisers take slices, those first of which products in LUTs take fewest."""
    stages = [stage_of(layer) for layer in network.layers]
    known = [stage for stage in stages if stage.finish_slices > stage.least_finish_slices]
    return [stage.op.name for stage in sorted(known, key=lambda stage: stage.product_bits)]


def _best_requantised(network: Network, board: Board, request: Request) -> Plan:
    """The best of some plans: without requantisers of LUTs, with all of them; or with some, if all are too many."""
    names, found, refusal = _requantised(network), [], None
    for count in dict.fromkeys((0, len(names), *(len(names) * share // 4 for share in (3, 2, 1)))):
        try:
            found.append(_made(network, board, request, names[:count]))
        except PlanError as error:
            refusal = refusal or error
        if len(found) > 1 and _order(found[-1], request) < _order(found[0], request):
            break
    if not found:
        assert refusal is not None
        raise refusal
    return min(found, key=lambda plan: _order(plan, request))


def _order(plan: Plan, request: Request) -> tuple[bool, float, float]:
    """How good a plan is by the objective: less is better."""
    interval = plan.latency if plan.interval is None else plan.interval
    traffic = sum(plan.traffic_bytes.values())
    by_objective = {"interval": interval, "latency": plan.latency, "traffic": traffic, "dsp": plan.resources.dsp}
    assert request.objective is not None
    return plan.obstacle is not None, by_objective[request.objective], interval


def _made(network: Network, board: Board, request: Request, in_luts: Sequence[str]) -> Plan:
    """The plan that is asked for, with requantisers of LUTs in some layers."""
    board = request.limited(board)
    goal = replace(request.goal(board), in_luts=frozenset(in_luts))
    for what, names in (("inputs", network.input_names), ("outputs", network.output_names)):
        if (request.groups is not None or request.in_turn) and len(names) > 1:
            raise PlanError(
                f"{network.name} has {len(names)} {what} ({', '.join(names)}): it is planned as one group, not cut "
                "into groups"
            )
    if request.in_turn and not network.cuts:
        why = "has one layer" if len(network.layers) == 1 else "can't be cut: everywhere more than one map would cross"
        raise PlanError(f"in_turn needs two groups, but {network.name} {why}")
    task = task_of(network, board, goal, request.macs_per_dsp)
    plan = _planned(task, request.groups, request.in_turn, _packing_notes(task))
    limit = goal.interval
    if limit is not None and plan.interval is not None and plan.interval > limit:
        rate = "" if request.fps is None else f" ({request.fps:g} frames a second at {board.clock_mhz:g} MHz)"
        raise PlanError(f"no plan has an interval of at most {limit:,} cycles{rate}: the nearest has {plan.interval:,}")
    return plan


def _packing_notes(task: Task) -> tuple[str, ...]:
    """Which convolutions can't have two multiply-adds a slice, if that was asked for, and why."""
    works = zip(task.works, task.macs, strict=True)
    alone = [work for work, macs in works if macs < task.goal.macs_per_dsp and work.weighted]
    found = []
    for depthwise, why in ((False, "weights below -127 or more than 8 bits"), (True, "depthwise convolutions")):
        names = [work.name for work in alone if work.channelwise == depthwise]
        if names:
            found.append(f"one multiply-add a slice, for {why}: {', '.join(names)}")
    return tuple(found)


def _planned(task: Task, groups: str | None, in_turn: bool, notes: tuple[str, ...]) -> Plan:
    asked, free = TEMPLATES.get(task.goal.template or ""), groups is None and not in_turn
    if asked is not None and not asked.holds_weights:
        return plan_of(task, (best_group(task, 0, len(task.works)),), notes)
    refusal = sure_refusal(weights_of(task.network.layers), task.board) if free else ""
    if refusal and (plan := _off_chip(task, notes, refusal)) is not None:
        return plan
    if groups is not None:
        try:
            return _in_given_groups(task, groups, in_turn, notes)
        except OverBudgetError:
            grouping.check_layers(task)  # says more, if a layer is to blame
            raise
    grouping.check_layers(task)
    if in_turn:
        return _cut(task, notes)
    try:
        return _compared(task, plan_of(task, (best_group(task, 0, len(task.works)),), notes))
    except OverBudgetError as error:
        if not task.network.cuts:
            raise
        refusal = f"no single group was found that fits: {error}"
        if (plan := _off_chip(task, notes, str(error))) is not None:
            return plan
        return _cut(task, (*notes, refusal, *_in_tiles(task)))


def _in_given_groups(task: Task, groups: str, in_turn: bool, notes: tuple[str, ...]) -> Plan:
    """Each by the first template under which it fits, from off-chip memory if need be."""
    spans = grouping.parse(groups, task.network)
    if len(spans) > 1:
        return _in_turn(task, spans, notes, in_turn, any_group)
    if in_turn:
        raise PlanError(f"in_turn needs two groups or more, not the one of --groups {groups}")
    return plan_of(task, (any_group(task, 0, len(task.works)),), notes)


def _off_chip(task: Task, notes: tuple[str, ...], refusal: str) -> Plan | None:
    """All layers as one group that computes from off-chip memory, where frames are to come fast or soon.

    ``None`` if no template does that, or it doesn't fit; ``refusal`` is why no other template is taken.
    """
    if task.goal.objective not in ("interval", "latency"):
        return None
    try:
        group = off_chip_group(task, 0, len(task.works))
        note = f"computed from off-chip memory (template {group.template.name}), as it fits no other: {refusal}"
        return plan_of(task, (group,), (*notes, note))
    except PlanError:
        return None


def _compared(task: Task, plan: Plan) -> Plan:
    """A plan of one group; with a note, if groups in turn would be faster (each has all slices while it runs).

    The note's figure is that of the very plan for which its option asks.
    """
    latency = task.goal.objective == "latency"
    if task.goal.objective not in ("interval", "latency") or len(plan.layers) == 1:
        return plan
    spans = grouping.faster(task, _frame(plan, latency))
    if spans is None:
        return plan
    option = f"--groups {shlex.quote(text([layer.name for layer in task.network.layers], spans))}"
    for shared in (False, True):
        try:
            other = _in_turn(task, spans, (), shared)
        except PlanError:
            continue
        if _frame(other, latency) < _frame(plan, latency):
            what = f"a latency of {other.latency:,} cycles" if latency else f"an interval of {other.interval:,} cycles"
            built = "" if other.obstacle is None else ", but share the board, so that they can't be built"
            note = f"faster: groups in turn would have {what}{built} ({option}{' --in-turn' * shared})"
            return replace(plan, notes=(*plan.notes, note))
    return plan


def _frame(plan: Plan, latency: bool) -> int:
    """Cycles of a frame as it is asked for, no fewer than its transfers take."""
    cycles = plan.latency if latency or plan.interval is None else plan.interval
    return (
        max(cycles, plan.board.transfer_cycles(plan.traffic_bytes["feature_maps"])) if len(plan.groups) == 1 else cycles
    )


def what_can_be_built(plan: Plan, request: Request) -> str:
    """What would do instead of a plan that can't be built, for people; ``request`` is what it was made for.

    What is said to be built was planned. Of what takes long to plan, and of larger boards, only what is soon seen is
    looked at, and it is said that it may fit.
    """
    asked = replace(request, objective="interval", interval=None, fps=None, dsp=plan.dsp)
    in_luts = frozenset(layer.name for layer in plan.layers if layer.requantise_in == "lut")
    goal = replace(asked.goal(plan.board), in_luts=in_luts)
    task, count = task_of(plan.network, plan.board, goal, request.macs_per_dsp), len(plan.network.layers)
    planned = grouping.is_quick(plan.network.layers)
    fits, said = (can_be_built, "can be built") if planned else (may_fit, "may fit")
    if fits(task, count):
        return f"one group of all layers {said}: leave out --groups and --in-turn"
    found = []
    if first := grouping.first_text(task, (0, *plan.network.cuts)[-1], fits):
        found.append(f"{first} of {plan.network.name} {said}{' on' if planned else ''} {plan.board.name}")
    larger = [
        board for board in map(boards.load, boards.names()) if _larger(board, plan.board) and _has_room(task, board)
    ]
    if larger:
        found.append(f"all of it may fit {' or '.join(board.name for board in larger)}")
    return "; ".join(found) or "take a smaller network or a larger board"


def sure_refusal(weights: Sequence[tuple[str, int]], board: Board) -> str:
    """Why no plan of all layers can be built, if their weights say so; otherwise empty.

    Parameters
    ----------
    weights : sequence of (str, int)
        Name of each layer that has weights, and bits of all of them.
    """
    try:
        for layer in weights:
            check_weight_bits([layer], board)
        check_weight_bits(weights, board)
    except OverBudgetError as error:
        return str(error)
    return ""


def _larger(board: Board, than: Board) -> bool:
    sizes = [(getattr(board, name), getattr(than, name)) for name in ("dsp", "bram36", "lut", "ff")]
    return all(size >= less for size, less in sizes) and any(size > less for size, less in sizes)


def _has_room(task: Task, board: Board) -> bool:
    """Whether one group may fit a board, by what is soon seen."""
    goal = replace(task.goal, dsp=board.dsp)
    return may_fit(Task(task.network, board, goal), len(task.works))


def _in_tiles(task: Task) -> tuple[str, ...]:
    """What groups are to be better than: every layer by itself, in its best tiles."""
    board, products = task.board, task.goal.products
    try:
        found = [on_board.bytes_and_cycles(layer, board, products) for layer in task.network.layers]
    except PlanError:  # a window of some layer does not fit
        return ()
    moved, cycles = (sum(figures) for figures in zip(*found, strict=True))
    return (f"layer by layer in the best tiles (hwgen block): {moved:,} bytes and at least {cycles:,} cycles a frame",)


def _apart(task: Task, spans: Sequence[Span], notes: tuple[str, ...], choose: Choose) -> Plan | None:
    """Given groups with hardware of their own each; ``None`` if they don't fit together.

    A group's time falls with its slices, and the times add up: the sum is least if slices go by the roots of the work.
    """
    layers = task.network.layers
    work = [sum(layer.macs for layer in layers[slice(*span)]) for span in spans]
    roots = [max(sqrt(macs), 1) for macs in work]
    shares = [max(int(task.goal.dsp * root / sum(roots)), 1) for root in roots]
    try:
        groups = [choose(task.aiming(dsp=dsp), *span, in_turn=True) for span, dsp in zip(spans, shares, strict=True)]
        plan = plan_of(task, tuple(groups), notes)
    except OverBudgetError:
        return None
    return plan if plan.obstacle is None else None


def _in_turn(
    task: Task, spans: Sequence[Span], notes: tuple[str, ...], shared: bool = False, choose: Choose = best_group
) -> Plan:
    """Given groups in turn: with hardware of their own each, if that fits (and not ``shared``), or sharing the slices.

    The fewest slices are found by bisection over those that a group may have: each is as fast as it can be with them.
    """
    goal = task.goal
    if goal.objective != "dsp" and not shared and (apart := _apart(task, spans, notes, choose)) is not None:
        return apart

    def made(dsp: int) -> Plan:
        aimed = task if goal.objective != "dsp" else task.aiming(objective="interval", interval=None, dsp=dsp)
        return plan_of(task, tuple(choose(aimed, *span, in_turn=True) for span in spans), notes)

    def late(plan: Plan) -> bool:
        return goal.interval is not None and plan.interval is not None and plan.interval > goal.interval

    def most(plan: Plan) -> int:
        return max(group.resources.dsp for group in plan.groups)

    best = made(goal.dsp)
    if goal.objective != "dsp" or late(best):
        return best
    low, high = 1, most(best)
    while low < high:
        middle = (low + high) // 2
        try:
            trial = made(middle)
        except OverBudgetError:
            trial = None
        if trial is None or late(trial):
            low = middle + 1
        else:
            best, high = trial, most(trial)
    return best


def _cut(task: Task, notes: tuple[str, ...]) -> Plan:
    """Groups in turn; with fewer slices where their logic outgrows the board."""
    goal = task.goal
    for attempt in range(MOST_TRIES):
        if attempt:
            goal = replace(goal, dsp=max(goal.dsp * 2 // 3, 1))
            task = Task(task.network, task.board, goal)
        try:
            groups = grouping.cut(task)
            if goal.objective != "dsp":
                return plan_of(task, groups, notes)
            names = [layer.name for layer in task.network.layers]
            ends = [names.index(group.layers[-1].name) + 1 for group in groups]
            return _in_turn(task, list(pairwise((0, *ends))), notes)
        except OverBudgetError as error:
            if error.resource == "DSP slices" or attempt == MOST_TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")
