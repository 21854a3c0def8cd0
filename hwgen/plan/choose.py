"""Which template a group gets, and what is soon seen of groups before they are planned."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.plan.plan import Plan
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group, Template
from hwgen.templates.budget import OverBudgetError, check_arithmetic, check_weights
from hwgen.templates.search import GroupSearch
from hwgen.templates.stream import Stream
from hwgen.templates.task import Goal, Task
from hwgen.templates.unroll import Way


def task_of(network: Network, board: Board, goal: Goal, macs_per_dsp: int | str) -> Task:
    """The task with two multiply-adds a slice if that is asked for, or (``auto``) if it makes more of the slices."""
    one = Task(network, board, replace(goal, macs_per_dsp=1))
    if macs_per_dsp == 1:
        return one
    two = Task(network, board, replace(goal, macs_per_dsp=2))
    if macs_per_dsp == 2:
        return two
    if 2 not in two.macs:
        return one
    return two if promise(two) < promise(one) else one


def promise(task: Task) -> float:
    """What one group would come to if DSP slices were all it took: the least interval, or the fewest slices."""
    if task.goal.objective == "dsp":
        limit = task.goal.interval
        way = task.search.least if limit is None else task.search.cheapest(limit)
        return inf if way is None else way.cost
    found = task.search.fastest(lambda way: way.cost <= task.goal.dsp)
    return inf if found is None else found[0]


def best_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group:
    """The best group of the layers ``begin`` to ``end``, under the first template under which it fits.

    Templates whose weights stay in off-chip memory are left to `off_chip_group`, unless they are asked for. Where DSP
    slices run out, no other template is tried: all of them do the same multiplications.

    Parameters and errors are those of `hwgen.templates.base.Template.search`.
    """
    asked = task.goal.template
    refusal: PlanError | None = None
    for template in _templates(True) if asked is None else (TEMPLATES[asked],):
        try:
            if template.holds_weights:
                check_weights(task.network.layers[begin:end], task.board)
                check_arithmetic(task.network.layers[begin:end], task.board)
            return template.search(task, begin, end, in_turn)
        except PlanError as error:
            refusal = refusal or error
            if not isinstance(error, OverBudgetError) or error.resource == "DSP slices":
                break
    assert refusal is not None
    raise refusal


def off_chip_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group:
    """The same under a template whose weights stay in off-chip memory, where no template is asked for.

    Raises
    ------
    PlanError
        If there is none, or it can't compute these layers.
    """
    refusal = PlanError("no template computes from off-chip memory")
    for template in _templates(False) if task.goal.template is None else ():
        try:
            return template.search(task, begin, end, in_turn)
        except PlanError as error:
            refusal = error
    raise refusal


def any_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group:
    """`best_group`, or `off_chip_group` if none fits."""
    try:
        return best_group(task, begin, end, in_turn=in_turn)
    except OverBudgetError:
        try:
            return off_chip_group(task, begin, end, in_turn=in_turn)
        except PlanError:
            pass
        raise


def _templates(holding: bool) -> list[type[Template]]:
    """Those with all weights on the chip, or the others."""
    return [template for template in TEMPLATES.values() if template.holds_weights == holding]


def _by_rows(task: Task, begin: int, end: int, in_turn: bool) -> GroupSearch:
    check_weights(task.network.layers[begin:end], task.board)
    check_arithmetic(task.network.layers[begin:end], task.board)
    return GroupSearch(task, begin, end, in_turn, Stream())


def quick(task: Task, begin: int, end: int) -> Way:
    """The best way for the layers ``begin`` to ``end`` by DSP slices alone.

    Raises
    ------
    OverBudgetError
        If the slices don't suffice, or the weights can't fit whatever the unrolling.
    """
    return _by_rows(task, begin, end, True).quick()


def can_be_built(task: Task, count: int) -> bool:
    """Whether the first ``count`` layers fit as one group."""
    try:
        best_group(task, 0, count)
    except PlanError:
        return False
    return True


def may_fit(task: Task, count: int) -> bool:
    """Whether the first ``count`` layers as one group, row by row, fit with the fewest slices or at their fastest.

    With the least buffers; mostly they then fit with those that they need, too.
    """
    try:
        return _by_rows(task, 0, count, False).may_fit()
    except PlanError:
        return False


def plan_of(task: Task, groups: tuple[Group, ...], notes: tuple[str, ...] = ()) -> Plan:
    """The plan of these groups; see `Plan` for what is raised."""
    return Plan(network=task.network, board=task.board, groups=groups, dsp=task.goal.dsp, notes=notes)
