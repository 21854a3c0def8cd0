"""Choice of a template for a fusion group (layers run overlapped on chip), and quick tests of whether layers fit."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hwgen.boards import Board
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN, multiplier_for
from hwgen.network.graph import Network
from hwgen.options import AUTO, DSP
from hwgen.plan.plan import Plan, placement_of
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Goal, Group, Refusal, Task, Template, attempt, shortage, sure_shortage
from hwgen.templates.search import GroupSearch
from hwgen.templates.stream import StreamTemplate
from hwgen.templates.unroll import Unrolling


def task_of(network: Network, board: Board, goal: Goal, macs_per_dsp: int | str | None) -> Task:
    """Return a network's planning `Task`, with the DSP multiplier ``macs_per_dsp`` (``auto``: the planner's choice).

    If LUTs multiply as well, ``auto`` stands for the best packing of each layer. It is then the default. Groups that
    can multiply in DSP slices only are planned as if the goal named only these (`Task.in_slices`).
    """
    in_slices = _task_in_slices(network, board, replace(goal, multipliers=DSP), macs_per_dsp or PLAIN.name)
    if goal.multipliers == DSP:
        return in_slices
    return Task(network, board, replace(goal, macs_per_dsp=macs_per_dsp or AUTO), in_slices)


def _task_in_slices(network: Network, board: Board, goal: Goal, macs_per_dsp: int | str) -> Task:
    """Return a network's planning `Task` (network, board and goal) with all products in DSP slices.

    With ``auto``, a multiplier other than the first is chosen only if it lowers `objective_bound`.
    """
    if macs_per_dsp != AUTO:
        return Task(network, board, replace(goal, macs_per_dsp=macs_per_dsp))
    multiplier_slice = board.family.multiplier_slice
    multipliers = dict.fromkeys(multiplier_for(name, multiplier_slice) for name in MULTIPLIERS)
    fitting = [multiplier.name for multiplier in multipliers if multiplier.port_bits <= multiplier_slice.wide_bits]
    best, *others = (Task(network, board, replace(goal, macs_per_dsp=name)) for name in fitting)
    for task in others:
        if task.multiplier in task.multipliers.values() and objective_bound(task) < objective_bound(best):
            best = task
    return best


def objective_bound(task: Task) -> float:
    """Return a lower bound for one group of all layers: DSP slices (objective ``dsp``), else the interval in cycles.

    Only DSP slices count as limited. The bound is infinite if no unroll factors meet the limits.
    """
    if task.goal.objective == "dsp":
        limit = task.goal.interval
        unrolling = task.search.cheapest_of_all if limit is None else task.search.cheapest(limit)
        return inf if unrolling is None else unrolling.cost
    fastest = task.search.limited(task.goal.dsp).fastest_within()
    return inf if fastest is None else fastest[0]


def best_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return the best `Group` (plan's objective) for a range of layers by the first template that fits, or a `Refusal`.

    Templates that keep weights in off-chip memory are tried only if the goal names one; `off_chip_group` tries them. If
    DSP slices run out, no other template is tried, because all of them need the same multiplications. If no template
    fits, the refusal is the first template's.

    Parameters
    ----------
    in_turn : bool
        Whether other groups run before and after this group. Its time is then the latency of one frame.
    """
    requested = task.goal.template
    refusal: Refusal | None = None
    for template in _templates(task, True) if requested is None else (TEMPLATES[requested],):
        lacking = sure_shortage(task.network.layers[begin:end], task.board) if template.holds_weights else None
        its_task = task if template.multiplies_in_luts else task.in_slices
        group = lacking or attempt(template.search, its_task, begin, end, in_turn)
        if not isinstance(group, Refusal):
            return group
        refusal = refusal or group
        if group.resource in ("", "DSP slices"):
            break
    assert refusal is not None
    return refusal


def off_chip_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return the best `Group` (plan's objective) of a range of layers with weights in off-chip memory, or a `Refusal`.

    If the goal names a template, no other is tried, and the result is a refusal. ``in_turn`` as for `best_group`.
    """
    refusal = Refusal("no template computes from off-chip memory")
    for template in _templates(task, False) if task.goal.template is None else ():
        group = attempt(template.search, task, begin, end, in_turn)
        if not isinstance(group, Refusal):
            return group
        refusal = group
    return refusal


def any_group(task: Task, begin: int, end: int, *, in_turn: bool = False) -> Group | Refusal:
    """Return the best `Group` (plan's objective) of a range of layers, or a `Refusal`; weights off chip only if needed.

    The group is `best_group`, or, if that runs out of a resource, `off_chip_group`. If neither fits, the refusal is
    `best_group`'s.
    """
    group = best_group(task, begin, end, in_turn=in_turn)
    if not isinstance(group, Refusal) or not group.over_budget:
        return group
    other = off_chip_group(task, begin, end, in_turn=in_turn)
    return group if isinstance(other, Refusal) else other


def _templates(task: Task, holds_weights: bool) -> list[type[Template]]:
    """Return the list of usable template classes that keep all weights on chip, or off chip if not ``holds_weights``.

    If the goal needs products in LUTs, classes that can't compute them there are left out.
    """
    classes = [template for template in TEMPLATES.values() if template.holds_weights == holds_weights]
    return [template for template in classes if template.multiplies_in_luts or not task.goal.needs_luts]


def unrolling_by_slices(task: Task, begin: int, end: int) -> Unrolling | Refusal:
    """Return the `Unrolling` of layers ``begin`` to ``end - 1`` of fewest cycles if only DSP slices are limited.

    The result is a refusal if no factors fit the slices, or if memory or LUTs certainly run out.
    """
    lacking = sure_shortage(task.network.layers[begin:end], task.board)
    return lacking or GroupSearch(task, begin, end, True, StreamTemplate()).best_factors()


def can_be_built(task: Task, count: int) -> bool:
    """Return whether the first ``count`` layers fit the board as one fusion group, found by planning them."""
    return not isinstance(best_group(task, 0, count), Refusal)


def may_fit(task: Task, count: int) -> bool:
    """Return whether the first ``count`` layers may fit the board as one fusion group, found without planning them.

    They are built row by row with the smallest buffers, with the fewest DSP slices or with the fastest unroll factors.
    If they fit in this way, they mostly fit with the buffers that they need, too.
    """
    if sure_shortage(task.network.layers[:count], task.board) is not None:
        return False
    return attempt(GroupSearch(task.in_slices, 0, count, False, StreamTemplate()).may_fit) is True


def plan_of(task: Task, groups: tuple[Group, ...], notes: tuple[str, ...] = ()) -> Plan | Refusal:
    """Return the `Plan` made of the given groups, or a `Refusal` (reason) if they don't fit the board together."""
    dsp = task.goal.dsp
    lacking = shortage(placement_of(groups, task.board, dsp).resources, task.board, dsp)
    return lacking or Plan(network=task.network, board=task.board, groups=groups, dsp=dsp, notes=notes)
