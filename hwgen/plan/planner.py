"""The planner: fusion groups, unroll factors and buffers of a whole network for a board, by objective."""

from __future__ import annotations

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.plan import grouping
from hwgen.plan.choice import Chooser, Goal
from hwgen.plan.plan import Group, OverBudgetError, Plan

OBJECTIVES = ("interval", "latency", "traffic", "dsp")


def make(
    network: Network,
    board: Board,
    *,
    dsp: int | None = None,
    objective: str = "interval",
    interval: int | None = None,
    groups: str | None = None,
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
        interval) or ``dsp`` slices (then interval).
    interval : int, optional
        With the objective ``dsp``: cycles between frames at most.
    groups : str, optional
        Groups to take, ``conv1_1-pool1,conv2_1-pool2``.

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
    if interval is not None and (objective != "dsp" or interval < 1):
        raise PlanError(f"interval must be a positive number of cycles and go with the objective dsp, not {interval!r}")
    chooser = Chooser(network, board, Goal(objective=objective, dsp=budget, interval=interval))
    chosen, reason = _groups(chooser, groups)
    plan = chooser.plan(chosen, reason)
    if interval is not None and plan.interval is not None and plan.interval > interval:
        raise PlanError(f"no plan has an interval of at most {interval:,} cycles: the nearest has {plan.interval:,}")
    return plan


def _groups(chooser: Chooser, groups: str | None) -> tuple[tuple[Group, ...], str | None]:
    """The groups, and why they are several if nobody asked for it."""
    if groups is not None:
        spans = grouping.parse(groups, chooser.network)
        return tuple(chooser.group(*span, in_turn=len(spans) > 1) for span in spans), None
    try:
        return (chooser.group(0, len(chooser.works)),), None
    except OverBudgetError as error:
        return grouping.cut(chooser), f"one group does not fit: {error}"
