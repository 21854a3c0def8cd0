"""Texts for people that say what would do where a network, or a layer of it, does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hwgen import boards
from hwgen.blocking import on_board
from hwgen.boards import Board
from hwgen.network.ops import Op
from hwgen.plan.choose import can_be_built, may_fit, task_of
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request
from hwgen.templates.budget import weight_shortage, weights_of
from hwgen.templates.refusal import Refusal, attempt
from hwgen.templates.task import Task

#: Multiply-adds of layers that are mostly planned within a second.
QUICK_MACS = 10_000_000


def is_quick(layers: Sequence[Op]) -> bool:
    """Whether planning these layers is mostly done within a second."""
    return sum(layer.macs for layer in layers) <= QUICK_MACS


def first_layers(task: Task, count: int, fit: Callable[[Task, int], bool] = can_be_built) -> str:
    """Return which of the first ``count`` layers ``fit``: all, or by bisection of the cuts; empty if not even one."""
    places = [place for place in task.network.boundaries if place <= count]
    low, high, trial = 0, len(places) - 1, len(places) - 1
    while low < high:
        if fit(task, places[trial]):
            low = trial
        else:
            high = trial - 1
        trial = (low + high + 1) // 2
    names = [layer.name for layer in task.network.layers[: places[low]]]
    if len(names) < 2:
        return f"{names[0]} alone" if names else ""
    return f"the first {len(names)} layers ({names[0]} to {names[-1]})"


def first_that_fit(task: Task, count: int) -> str:
    """Return the end of a refusal that says how many of the first ``count`` layers fit; empty if not even one.

    If planning these layers would take long, the text says how many may fit.
    """
    planned = is_quick(task.network.layers[:count])
    layers = first_layers(task, count, can_be_built if planned else may_fit)
    verb = "may fit" if not planned else "fits" if layers.endswith(" alone") else "fit"
    return f"; {layers} {verb}" if layers else ""


def hopeless(task: Task) -> Refusal | None:
    """Return the refusal of the first layer whose weights all memory of the device can't hold, if there is one.

    The refusal says how many of the layers before it fit (`first_that_fit`).
    """
    for number, layer in enumerate(task.network.layers):
        if (refusal := weight_shortage(weights_of([layer]), task.board)) is not None:
            message = f"{layer.name} does not fit {task.board.name} even alone: {refusal}"
            return Refusal(message + first_that_fit(task, number) + layer_in_tiles(task, layer))
    return None


def layer_in_tiles(task: Task, layer: Op) -> str:
    """Return the end of a refusal of a layer, its cost in the best tiles; empty if not one window fits."""
    cost = attempt(_tiled, task, [layer])
    if isinstance(cost, Refusal):
        return ""
    return f"; tile by tile (hwgen block) it would move {cost[0]:,} bytes and take at least {cost[1]:,} cycles a frame"


def in_tiles(task: Task) -> tuple[str, ...]:
    """Return the note that groups are to be better than: every layer by itself, in its best tiles."""
    cost = attempt(_tiled, task, task.network.layers)
    if isinstance(cost, Refusal):  # a window of some layer does not fit
        return ()
    return (
        f"layer by layer in the best tiles (hwgen block): {cost[0]:,} bytes and at least {cost[1]:,} cycles a frame",
    )


def _tiled(task: Task, layers: Sequence[Op]) -> tuple[int, int]:
    """Return the bytes that layers move a frame one after the other, each in its best tiles, and the least cycles.

    Raises
    ------
    PlanError
        If not one window of a layer fits.
    """
    costs = [on_board.bytes_and_cycles(layer, task.board, task.goal.products) for layer in layers]
    return sum(moved for moved, _ in costs), sum(cycles for _, cycles in costs)


def what_can_be_built(plan: Plan, request: Request) -> str:
    """What would do instead of a plan that can't be built, for people; ``request`` is what it was made for.

    What is said to be built was planned. Of what takes long to plan, and of larger boards, only what is soon seen is
    looked at, and it is said that it may fit.
    """
    asked = replace(request, objective="interval", interval=None, fps=None, dsp=plan.dsp)
    in_luts = frozenset(layer.name for layer in plan.layers if layer.requantise_in == "lut")
    goal = replace(asked.goal(plan.board), in_luts=in_luts)
    task, count = task_of(plan.network, plan.board, goal, request.macs_per_dsp), len(plan.network.layers)
    planned = is_quick(plan.network.layers)
    fits, said = (can_be_built, "can be built") if planned else (may_fit, "may fit")
    if fits(task, count):
        return f"one group of all layers {said}: leave out --groups and --in-turn"
    found = []
    if first := first_layers(task, (0, *plan.network.cuts)[-1], fits):
        found.append(f"{first} of {plan.network.name} {said}{' on' if planned else ''} {plan.board.name}")
    larger = [
        board for board in map(boards.load, boards.names()) if _larger(board, plan.board) and _has_room(task, board)
    ]
    if larger:
        found.append(f"all of it may fit {' or '.join(board.name for board in larger)}")
    return "; ".join(found) or "take a smaller network or a larger board"


def _larger(board: Board, than: Board) -> bool:
    sizes = [(getattr(board, name), getattr(than, name)) for name in ("dsp", "bram36", "lut", "ff")]
    return all(size >= less for size, less in sizes) and any(size > less for size, less in sizes)


def _has_room(task: Task, board: Board) -> bool:
    """Whether one group may fit a board, by what is soon seen."""
    goal = replace(task.goal, dsp=board.dsp)
    return may_fit(Task(task.network, board, goal), len(task.works))
