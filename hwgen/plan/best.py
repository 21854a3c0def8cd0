"""The best plan that has been found so far, for users who interrupt the search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hwgen.plan.choose import plan_of
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request
from hwgen.templates import interim
from hwgen.templates.base import Group
from hwgen.templates.refusal import Refusal
from hwgen.templates.task import Task

__all__ = ["BestPlan", "followed", "order", "watched"]


class BestPlan:
    """The best plan of all that a search has reported, ``plan``; ``None`` before the first one."""

    def __init__(self) -> None:
        self.plan: Plan | None = None

    def take(self, plan: Plan, request: Request) -> None:
        """Keep a plan if it is better than the present one, by the objective of a request."""
        if self.plan is None or order(plan, request) < order(self.plan, request):
            self.plan = plan


_best: ContextVar[BestPlan | None] = ContextVar("best", default=None)


@contextmanager
def watched() -> Iterator[BestPlan]:
    """Yield what becomes the best plan that is found in the ``with`` block."""
    best = BestPlan()
    token = _best.set(best)
    try:
        yield best
    finally:
        _best.reset(token)


@contextmanager
def followed(request: Request) -> Iterator[None]:
    """Report the plans that a search for a request finds in the ``with`` block to `watched`, if somebody watches."""
    best = _best.get()
    if best is None:
        yield
        return

    def take(task: Task, groups: tuple[Group, ...]) -> None:
        plan = plan_of(task, groups)
        if not isinstance(plan, Refusal):
            best.take(plan, request)

    with interim.received(take):
        yield


def order(plan: Plan, request: Request) -> tuple[bool, float, float]:
    """Return the sort key of a plan, less for the better: whether it can't be built, its objective, its interval."""
    interval = plan.latency if plan.interval is None else plan.interval
    traffic = sum(plan.traffic_bytes.values())
    by_objective = {"interval": interval, "latency": plan.latency, "traffic": traffic, "dsp": plan.resources.dsp}
    assert request.objective is not None
    return plan.obstacle is not None, by_objective[request.objective], interval
