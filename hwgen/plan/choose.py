"""Which template a group gets, and what is soon seen of groups before they are planned."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hwgen.boards import Board
from hwgen.gateware.multipliers import MULTIPLIERS
from hwgen.network.graph import Network
from hwgen.plan.placement import place
from hwgen.plan.plan import Plan
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group, Template
from hwgen.templates.budget import shortage, sure_shortage
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.search import GroupSearch
from hwgen.templates.stream import Stream
from hwgen.templates.task import Goal, Task
from hwgen.templates.unroll import Way


def task_of(network: Network, board: Board, goal: Goal, macs_per_dsp: int | str) -> Task:
    """Return the task with the multiplier that is asked for, or (``auto``) with that which promises most."""
    if macs_per_dsp != "auto":
        return Task(network, board, replace(goal, macs_per_dsp=macs_per_dsp))
    best, *others = (Task(network, board, replace(goal, macs_per_dsp=name)) for name in MULTIPLIERS)
    for task in others:
        if task.multiplier in task.multipliers.values() and promise(task) < promise(best):
            best = task
    return best


def promise(task: Task) -> float:
    """What one group would come to if DSP slices were all it took: the least interval, or the fewest slices."""
    if task.goal.objective == "dsp":
        limit = task.goal.interval
        way = task.search.cheapest_of_all if limit is None else task.search.cheapest(limit)
        return inf if way is None else way.cost
    found = task.search.fastest_within(task.goal.dsp)
    return inf if found is None else found[0]


def best_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return the best group of the layers ``begin`` to ``end``, under the first template under which it fits.

    Templates whose weights stay in off-chip memory are left to `off_chip_group`, unless they are asked for. Where DSP
    slices run out, no other template is tried: all of them do the same multiplications. If none fits, the refusal is
    that of the template that is wanted most.

    Parameters
    ----------
    in_turn : bool
        Other groups run before and after it: its time is one frame's.
    """
    asked = task.goal.template
    refusal: Refusal | None = None
    for template in _templates(True) if asked is None else (TEMPLATES[asked],):
        lacking = sure_shortage(task.network.layers[begin:end], task.board) if template.holds_weights else None
        group = lacking or attempt(template.search, task, begin, end, in_turn)
        if not isinstance(group, Refusal):
            return group
        refusal = refusal or group
        if group.resource in ("", "DSP slices"):
            break
    assert refusal is not None
    return refusal


def off_chip_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return the same under a template whose weights stay in off-chip memory, where no template is asked for."""
    refusal = Refusal("no template computes from off-chip memory")
    for template in _templates(False) if task.goal.template is None else ():
        group = attempt(template.search, task, begin, end, in_turn)
        if not isinstance(group, Refusal):
            return group
        refusal = group
    return refusal


def any_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return `best_group`, or `off_chip_group` if it runs out of a resource."""
    group = best_group(task, begin, end, in_turn=in_turn)
    if not isinstance(group, Refusal) or not group.over_budget:
        return group
    other = off_chip_group(task, begin, end, in_turn=in_turn)
    return group if isinstance(other, Refusal) else other


def _templates(holding: bool) -> list[type[Template]]:
    """Those with all weights on the chip, or the others."""
    return [template for template in TEMPLATES.values() if template.holds_weights == holding]


def quick(task: Task, begin: int, end: int) -> Way | Refusal:
    """Return the best way for the layers ``begin`` to ``end``, row by row, by DSP slices alone."""
    lacking = sure_shortage(task.network.layers[begin:end], task.board)
    return lacking or GroupSearch(task, begin, end, True, Stream()).quick()


def can_be_built(task: Task, count: int) -> bool:
    """Whether the first ``count`` layers fit as one group."""
    return not isinstance(best_group(task, 0, count), Refusal)


def may_fit(task: Task, count: int) -> bool:
    """Whether the first ``count`` layers as one group, row by row, fit with the fewest slices or at their fastest.

    With the least buffers; mostly they then fit with those that they need, too.
    """
    if sure_shortage(task.network.layers[:count], task.board) is not None:
        return False
    return attempt(GroupSearch(task, 0, count, False, Stream()).may_fit) is True


def plan_of(task: Task, groups: tuple[Group, ...], notes: tuple[str, ...] = ()) -> Plan | Refusal:
    """Return the plan of these groups, if they fit the board together."""
    dsp = task.goal.dsp
    lacking = shortage(place(groups, task.board, dsp).resources, task.board, dsp)
    return lacking or Plan(network=task.network, board=task.board, groups=groups, dsp=dsp, notes=notes)
