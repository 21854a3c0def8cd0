"""Planner: chooses fusion groups, unroll factors and buffers of a whole network for a board and an objective."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import Any

from hwgen.boards import Board
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.options import AUTO, CONSTANT, RUNTIME, STREAM, Steering, called, choosing, typed
from hwgen.plan.choose import plan_of, task_of
from hwgen.plan.plan import Plan, rate_text
from hwgen.plan.request import Request
from hwgen.plan.search import PlanSearch
from hwgen.progress import in_one
from hwgen.templates import interim
from hwgen.templates.base import Group
from hwgen.templates.budget import layer_weight_bits, layers_for_ultra_ram, weight_shortage
from hwgen.templates.refusal import Refusal, fitting
from hwgen.templates.stages import stage_of
from hwgen.templates.task import Task


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
