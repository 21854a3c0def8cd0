"""The planner: fusion groups, unroll factors and buffers of a whole network for a board, by objective."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import sqrt

from hwgen import boards
from hwgen.blocking import on_board
from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.network.graph import Conv, Network
from hwgen.plan import grouping
from hwgen.plan.choice import Chooser, Goal, check_weight_bits
from hwgen.plan.cuts import Span, text
from hwgen.plan.plan import PYRAMID, STREAM, TEMPLATES, OverBudgetError, Plan
from hwgen.plan.tiles import KINDS

#: Budgets of DSP slices that are tried where the logic of groups in turn outgrows the board.
MOST_TRIES = 4

OBJECTIVES = ("interval", "latency", "traffic", "dsp")


def make(
    network: Network,
    board: Board,
    *,
    dsp: int | None = None,
    objective: str = "interval",
    interval: int | None = None,
    groups: str | None = None,
    in_turn: bool = False,
    macs_per_dsp: int | str = 1,
    template: str | None = None,
    tile: tuple[int, int] | None = None,
    overlap: str | None = None,
) -> Plan:
    """Plan ``network`` for ``board``.

    One group, if it fits: then nothing but input and output leaves the chip. Otherwise the network is cut into groups
    that run one after the other.

    Parameters
    ----------
    dsp : int, optional
        DSP slices that may be used; all of the board's if not given.
    objective : str
        What to make small: ``interval`` (then DSP slices), ``latency`` of one frame, off-chip ``traffic`` (then
        interval) or ``dsp`` slices (then LUTs; of groups in turn, then interval).
    interval : int, optional
        With the objective ``dsp``: cycles between frames at most.
    groups : str, optional
        Groups to take, ``conv1_1-pool1,conv2_1-pool2``.
    in_turn : bool
        Groups share the board, and each has all slices while it runs, whether or not one group, or all of those given,
        would fit together.
    macs_per_dsp : int or str
        Multiply-adds of a DSP slice in a cycle: 1, 2 (where weights and activations allow it), or ``auto``: 2 if that
        makes more of the slices.
    template : str, optional
        ``stream`` or ``pyramid`` for all groups. By default a group is computed row by row, or pyramid by pyramid if it
        does not fit so.
    tile : tuple of int, optional
        Rows and columns of the tip of pyramids; chosen by default.
    overlap : str, optional
        What becomes of what neighbouring pyramids share: ``reuse``, ``reload`` or ``recompute``, see
        `hwgen.plan.tiles`. By default ``reuse``, and ``recompute`` if that does not fit.

    Raises
    ------
    PlanError
        If nothing fits, naming what runs out and what would fit.
    InputError
        If ``groups`` are not the network's layers in order.
    """
    budget = board.dsp if dsp is None else dsp
    if not 1 <= budget <= board.dsp:
        raise PlanError(f"dsp must be between 1 and the {board.dsp} slices of {board.name}, not {budget!r}")
    if objective not in OBJECTIVES:
        raise PlanError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
    if interval is not None and objective != "dsp":
        raise PlanError(f"interval, a bound in cycles, goes with the objective dsp only, not with {objective}")
    if interval is not None and interval < 1:
        raise PlanError(f"interval must be a positive number of cycles, not {interval!r}")
    if macs_per_dsp not in (1, 2, "auto"):
        raise PlanError(f"macs_per_dsp must be 1, 2 or auto, not {macs_per_dsp!r}")
    if in_turn and len(network.layers) == 1:
        raise PlanError(f"in_turn needs two groups, but {network.name} has one layer")
    _check_tiling(template, tile, overlap)
    if tile is not None or overlap is not None:
        template = PYRAMID
    goal = Goal(objective=objective, dsp=budget, interval=interval, template=template, tile=tile, overlap=overlap)
    chooser = _chooser(network, board, goal, macs_per_dsp)
    plan = _planned(chooser, groups, in_turn, _packing_notes(chooser))
    if interval is not None and plan.interval is not None and plan.interval > interval:
        raise PlanError(f"no plan has an interval of at most {interval:,} cycles: the nearest has {plan.interval:,}")
    return plan


def _check_tiling(template: str | None, tile: tuple[int, int] | None, overlap: str | None) -> None:
    if template not in (None, *TEMPLATES):
        raise PlanError(f"template must be {' or '.join(TEMPLATES)}, not {template!r}")
    if template == STREAM and (tile is not None or overlap is not None):
        raise PlanError("tile and overlap go with pyramids, not with the template stream")
    if tile is not None and (len(tile) != 2 or not all(isinstance(size, int) and size >= 1 for size in tile)):
        raise PlanError(f"tile must be two positive integers, rows and columns, not {tile!r}")
    if overlap is not None and overlap not in KINDS:
        raise PlanError(f"overlap must be one of {', '.join(KINDS)}, not {overlap!r}")


def _chooser(network: Network, board: Board, goal: Goal, macs_per_dsp: int | str) -> Chooser:
    """With two multiply-adds a slice if that is asked for, or (``auto``) if it makes more of the slices."""
    one, two = (Chooser(network, board, replace(goal, macs_per_dsp=macs)) for macs in (1, 2))
    if macs_per_dsp != "auto":
        return one if macs_per_dsp == 1 else two
    if 2 not in two.macs:
        return one
    return two if two.promise() < one.promise() else one


def _packing_notes(chooser: Chooser) -> tuple[str, ...]:
    """Which convolutions can't have two multiply-adds a slice, if that was asked for."""
    layers = zip(chooser.network.layers, chooser.macs, strict=True)
    alone = [layer.name for layer, macs in layers if macs < chooser.goal.macs_per_dsp and isinstance(layer, Conv)]
    if not alone:
        return ()
    return (f"one multiply-add a slice, for weights below -127 or more than 8 bits: {', '.join(alone)}",)


def _planned(chooser: Chooser, groups: str | None, in_turn: bool, notes: tuple[str, ...]) -> Plan:
    grouping.check_layers(chooser)
    if groups is not None:
        spans = grouping.parse(groups, chooser.network)
        if len(spans) > 1:
            return _in_turn(chooser, spans, notes, in_turn)
        if in_turn:
            raise PlanError(f"in_turn needs two groups or more, not the one of --groups {groups}")
        return chooser.plan((chooser.group(0, len(chooser.works)),), notes)
    if in_turn:
        return _cut(chooser, notes)
    try:
        return _compared(chooser, chooser.plan((chooser.group(0, len(chooser.works)),), notes))
    except OverBudgetError as error:
        if len(chooser.works) == 1:
            raise
        refusal = f"no single group was found that fits: {error}"
        return _cut(chooser, (*notes, refusal, *_in_tiles(chooser)))


def _compared(chooser: Chooser, plan: Plan) -> Plan:
    """A plan of one group; with a note, if groups in turn would be faster (each has all slices while it runs).

    The note's figure is that of the very plan for which its option asks.
    """
    latency = chooser.goal.objective == "latency"
    if chooser.goal.objective not in ("interval", "latency") or len(plan.layers) == 1:
        return plan
    spans = grouping.faster(chooser, _frame(plan, latency))
    if spans is None:
        return plan
    option = f"--groups {shlex.quote(text([layer.name for layer in chooser.network.layers], spans))}"
    for shared in (False, True):
        try:
            other = _in_turn(chooser, spans, (), shared)
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


def what_can_be_built(
    plan: Plan,
    *,
    macs_per_dsp: int | str = 1,
    template: str | None = None,
    tile: tuple[int, int] | None = None,
    overlap: str | None = None,
) -> str:
    """What would do instead of a plan that can't be built, for people; the options are those of `make`.

    What is said to be built was planned. Of what takes long to plan, and of larger boards, only what is soon seen is
    looked at, and it is said that it may fit.
    """
    goal = Goal(
        objective="interval",
        dsp=plan.dsp,
        template=PYRAMID if tile is not None or overlap is not None else template,
        tile=tile,
        overlap=overlap,
    )
    chooser, count = _chooser(plan.network, plan.board, goal, macs_per_dsp), len(plan.layers)
    planned = grouping.is_quick(plan.network.layers)
    fits, said = (grouping.can_be_built, "can be built") if planned else (Chooser.may_fit, "may fit")
    if fits(chooser, count):
        return f"one group of all layers {said}: leave out --groups and --in-turn"
    found = []
    if first := grouping.first_text(chooser, count - 1, fits):
        found.append(f"{first} of {plan.network.name} {said}{' on' if planned else ''} {plan.board.name}")
    larger = [
        board for board in map(boards.load, boards.names()) if _larger(board, plan.board) and _has_room(chooser, board)
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


def _has_room(chooser: Chooser, board: Board) -> bool:
    """Whether one group may fit a board, by what is soon seen."""
    goal = replace(chooser.goal, dsp=board.dsp)
    return Chooser(chooser.network, board, goal).may_fit(len(chooser.works))


def _in_tiles(chooser: Chooser) -> tuple[str, ...]:
    """What groups are to be better than: every layer by itself, in its best tiles."""
    board, products = chooser.board, chooser.goal.products
    try:
        found = [on_board.bytes_and_cycles(layer, board, products) for layer in chooser.network.layers]
    except PlanError:  # a window of some layer does not fit
        return ()
    moved, cycles = (sum(figures) for figures in zip(*found, strict=True))
    return (f"layer by layer in the best tiles (hwgen block): {moved:,} bytes and at least {cycles:,} cycles a frame",)


def _apart(chooser: Chooser, spans: Sequence[Span], notes: tuple[str, ...]) -> Plan | None:
    """Given groups with hardware of their own each; ``None`` if they don't fit together.

    A group's time falls with its slices, and the times add up: the sum is least if slices go by the roots of the work.
    """
    layers = chooser.network.layers
    work = [sum(layer.macs for layer in layers[slice(*span)] if isinstance(layer, Conv)) for span in spans]
    roots = [max(sqrt(macs), 1) for macs in work]
    shares = [int(chooser.goal.dsp * root / sum(roots)) for root in roots]
    try:
        groups = [chooser.aiming(dsp=dsp).group(*span, in_turn=True) for span, dsp in zip(spans, shares, strict=True)]
        plan = chooser.plan(tuple(groups), notes)
    except OverBudgetError:
        return None
    return plan if plan.obstacle is None else None


def _in_turn(chooser: Chooser, spans: Sequence[Span], notes: tuple[str, ...], shared: bool = False) -> Plan:
    """Given groups in turn: with hardware of their own each, if that fits (and not ``shared``), or sharing the slices.

    The fewest slices are found by bisection over those that a group may have: each is as fast as it can be with them.
    """
    goal = chooser.goal
    if goal.objective != "dsp" and not shared and (apart := _apart(chooser, spans, notes)) is not None:
        return apart

    def made(dsp: int) -> Plan:
        aimed = chooser if goal.objective != "dsp" else chooser.aiming(objective="interval", interval=None, dsp=dsp)
        return chooser.plan(tuple(aimed.group(*span, in_turn=True) for span in spans), notes)

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


def _cut(chooser: Chooser, notes: tuple[str, ...]) -> Plan:
    """Groups in turn; with fewer slices where their logic outgrows the board."""
    goal = chooser.goal
    for attempt in range(MOST_TRIES):
        if attempt:
            goal = replace(goal, dsp=max(goal.dsp * 2 // 3, 1))
            chooser = Chooser(chooser.network, chooser.board, goal)
        try:
            groups = grouping.cut(chooser)
            if goal.objective != "dsp":
                return chooser.plan(groups, notes)
            ends = list(accumulate(len(group.layers) for group in groups))
            return _in_turn(chooser, list(pairwise((0, *ends))), notes)
        except OverBudgetError as error:
            if error.resource == "DSP slices" or attempt == MOST_TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")
