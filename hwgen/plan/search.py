"""The search for the plan of one task: one group, groups in turn, or a group that computes from off-chip memory."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import sqrt

from hwgen.plan import grouping, instead
from hwgen.plan.choose import any_group, best_group, off_chip_group, plan_of
from hwgen.plan.cuts import Span, text
from hwgen.plan.plan import Plan
from hwgen.templates import TEMPLATES
from hwgen.templates.base import Group
from hwgen.templates.budget import weight_shortage, weights_of
from hwgen.templates.refusal import Refusal
from hwgen.templates.task import Task

#: Budgets of DSP slices that are tried where the logic of groups in turn outgrows the board.
MOST_TRIES = 4

Choose = Callable[..., Group | Refusal]
"""Finds the group of some layers: `best_group`, or another function with its parameters."""


@dataclass(frozen=True)
class PlanSearch:
    """The search for the best plan of a task.

    Parameters
    ----------
    task : Task
    groups : str, optional
        Fusion groups that are asked for, as `hwgen.plan.grouping.parse` reads them.
    in_turn : bool
        Whether groups in turn are asked for, even if one group fits.
    """

    task: Task
    groups: str | None = None
    in_turn: bool = False

    def best(self) -> Plan | Refusal:
        """Return the best plan: the first of the ways below that fits.

        What is asked for is taken as it is. Otherwise one group is best, as nothing but input and output leaves the
        chip. The next best is a group that computes from off-chip memory, and then groups in turn.

        Raises
        ------
        InputError
            If the groups that are asked for are not the network's layers in order.
        """
        asked = TEMPLATES.get(self.task.goal.template or "")
        if asked is not None and not asked.holds_weights:
            return self._whole()
        if self.groups is not None:
            return self._in_given_groups(self.groups)
        if self.in_turn:
            return instead.hopeless(self.task) or self._cut(())
        lacking = weight_shortage(weights_of(self.task.network.layers), self.task.board)
        if lacking is not None and (plan := self._off_chip(lacking)) is not None:
            return plan
        return instead.hopeless(self.task) or self._free()

    def _free(self) -> Plan | Refusal:
        """Return the best plan where nothing is asked for, and each layer by itself may fit."""
        plan = self._whole()
        if not isinstance(plan, Refusal):
            return self._compared(plan)
        if not plan.over_budget or not self.task.network.cuts:
            return plan
        return self._off_chip(plan) or self._cut(
            (f"no single group was found that fits: {plan}", *instead.in_tiles(self.task))
        )

    def _whole(self) -> Plan | Refusal:
        """Return the plan of one group."""
        return self._one(best_group(self.task, 0, len(self.task.works)))

    def _one(self, group: Group | Refusal, *notes: str) -> Plan | Refusal:
        """Return the plan of a group that was found, or its refusal."""
        return group if isinstance(group, Refusal) else plan_of(self.task, (group,), (*self._notes, *notes))

    @cached_property
    def _notes(self) -> tuple[str, ...]:
        """Convolutions that can't have two multiply-adds a slice, if that was asked for, and why."""
        task, found = self.task, []
        wanted = task.multiplier
        alone = [work for work in task.works if task.multipliers[work.name] is not wanted and work.weighted]
        for depthwise in (False, True):
            names = [work.name for work in alone if work.channelwise == depthwise]
            if names:
                found.append(f"one multiply-add a slice, for {wanted.reason(depthwise)}: {', '.join(names)}")
        return tuple(found)

    def _in_given_groups(self, groups: str) -> Plan | Refusal:
        """Return the plan of the groups that are asked for.

        Each has the first template under which it fits, from off-chip memory if need be.
        """
        spans = grouping.parse(groups, self.task.network)
        if len(spans) == 1 and self.in_turn:
            return Refusal(f"in_turn needs two groups or more, not the one of --groups {groups}")
        if len(spans) == 1:
            plan = self._one(any_group(self.task, *spans[0]))
        else:
            plan = Turns(self.task, spans, self._notes, any_group).best(self.in_turn)
        if isinstance(plan, Refusal) and plan.over_budget:
            return instead.hopeless(self.task) or plan  # says more, if a layer is to blame
        return plan

    def _off_chip(self, refusal: Refusal) -> Plan | None:
        """Return the plan of one group that computes from off-chip memory, where frames are to come fast or soon.

        ``None`` if no template does that, or it doesn't fit; ``refusal`` is why no other template is taken.
        """
        if self.task.goal.objective not in ("interval", "latency"):
            return None
        group = off_chip_group(self.task, 0, len(self.task.works))
        if isinstance(group, Refusal):
            return None
        note = f"computed from off-chip memory (template {group.template.name}), as it fits no other: {refusal}"
        plan = self._one(group, note)
        return None if isinstance(plan, Refusal) else plan

    def _compared(self, plan: Plan) -> Plan:
        """Return the plan of one group, with a note if groups in turn would be faster.

        Each of these has all slices while it runs. The note's figure is that of the very plan for which its option
        asks.
        """
        latency = self.task.goal.objective == "latency"
        if self.task.goal.objective not in ("interval", "latency") or len(plan.layers) == 1:
            return plan
        spans = grouping.faster(self.task, _frame(plan, latency))
        if spans is None:
            return plan
        option = f"--groups {shlex.quote(text([layer.name for layer in self.task.network.layers], spans))}"
        for shared in (False, True):
            other = Turns(self.task, spans).best(shared)
            if not isinstance(other, Refusal) and _frame(other, latency) < _frame(plan, latency):
                what = "a latency" if latency else "an interval"
                cycles = other.latency if latency else other.interval
                built = "" if other.obstacle is None else ", but share the board, so that they can't be built"
                note = f"faster: groups in turn would have {what} of {cycles:,} cycles{built} ({option}"
                return replace(plan, notes=(*plan.notes, f"{note}{' --in-turn' * shared})"))
        return plan

    def _cut(self, notes: tuple[str, ...]) -> Plan | Refusal:
        """Return the plan of groups in turn; with fewer slices where their logic outgrows the board."""
        task = self.task
        plan = _cut_once(task, (*self._notes, *notes))
        for _ in range(MOST_TRIES - 1):
            if not isinstance(plan, Refusal) or plan.resource in ("", "DSP slices"):
                break
            task = task.aiming(dsp=max(task.goal.dsp * 2 // 3, 1))
            plan = _cut_once(task, (*self._notes, *notes))
        return plan


def _cut_once(task: Task, notes: tuple[str, ...]) -> Plan | Refusal:
    """Return the plan of the groups that are best by the search; the fewest slices are found anew."""
    groups = grouping.cut(task)
    if isinstance(groups, Refusal):
        return groups
    if task.goal.objective != "dsp":
        return plan_of(task, groups, notes)
    names = [layer.name for layer in task.network.layers]
    ends = [names.index(group.layers[-1].name) + 1 for group in groups]
    return Turns(task, list(pairwise((0, *ends))), notes).best()


def _frame(plan: Plan, latency: bool) -> int:
    """Cycles of a frame as it is asked for, no fewer than its transfers take."""
    cycles = plan.latency if latency or plan.interval is None else plan.interval
    return (
        max(cycles, plan.board.transfer_cycles(plan.traffic_bytes["feature_maps"])) if len(plan.groups) == 1 else cycles
    )


@dataclass(frozen=True)
class Turns:
    """The search for the plan of given groups that run in turn.

    Parameters
    ----------
    task : Task
    spans : sequence of Span
        First layer of each group, and one past its last.
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
        """Return the plan in which each group has hardware of its own, or, if they don't fit so, all share the slices.

        The fewest slices are found by bisection over those that a group may have: each is as fast as it can be with
        them.

        Parameters
        ----------
        shared : bool
            Whether hardware of their own is not looked for.
        """
        fewest = self.task.goal.objective == "dsp"
        if not fewest and not shared:
            plan = self._apart()
            if not isinstance(plan, Refusal) and plan.obstacle is None:
                return plan
            if isinstance(plan, Refusal) and not plan.over_budget:
                return plan
        best = self._with(self.task.goal.dsp)
        if isinstance(best, Refusal) or not fewest or self._late(best):
            return best
        low, high = 1, _most(best)
        while low < high:
            middle = (low + high) // 2
            trial = self._with(middle)
            if isinstance(trial, Refusal) or self._late(trial):
                low = middle + 1
            else:
                best, high = trial, _most(trial)
        return best

    def _apart(self) -> Plan | Refusal:
        """Return the plan of groups that share out the slices.

        A group's time falls with its slices, and the times add up: the sum is least if slices go by the roots of the
        work.
        """
        layers = self.task.network.layers
        work = [sum(layer.macs for layer in layers[slice(*span)]) for span in self.spans]
        roots = [max(sqrt(macs), 1) for macs in work]
        return self._made([self.task.aiming(dsp=max(int(self.task.goal.dsp * r / sum(roots)), 1)) for r in roots])

    def _with(self, dsp: int) -> Plan | Refusal:
        """Return the plan of groups that may have so many slices each."""
        fewest = self.task.goal.objective == "dsp"
        aimed = self.task.aiming(objective="interval", interval=None, dsp=dsp) if fewest else self.task
        return self._made([aimed] * len(self.spans))

    def _made(self, tasks: Sequence[Task]) -> Plan | Refusal:
        """Return the plan of one group for each task and span, or the refusal of the first that does not fit."""
        groups = []
        for task, span in zip(tasks, self.spans, strict=True):
            group = self.choose(task, *span, in_turn=True)
            if isinstance(group, Refusal):
                return group
            groups.append(group)
        return plan_of(self.task, tuple(groups), self.notes)

    def _late(self, plan: Plan) -> bool:
        limit = self.task.goal.interval
        return limit is not None and plan.interval is not None and plan.interval > limit


def _most(plan: Plan) -> int:
    """The most slices that a group has."""
    return max(group.resources.dsp for group in plan.groups)
