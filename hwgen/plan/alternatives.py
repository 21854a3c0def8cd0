"""Texts for refusals and plans that tell users what would fit if a network, or one of its layers, does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from hwgen import boards
from hwgen.blocking import on_board
from hwgen.boards import Board
from hwgen.network.loaded import is_loaded, loaded
from hwgen.network.ops import Op
from hwgen.options import AUTO, DSP, ENGINE, LUT_SHARE, STREAM, called
from hwgen.plan.choose import can_be_built, may_fit, task_of
from hwgen.plan.plan import Plan, rate_text
from hwgen.plan.request import Request
from hwgen.templates.base import Group, Refusal, Task, attempt, layer_weight_bits, layers_for_ultra_ram, weight_shortage
from hwgen.templates.engine import estimated_cycles
from hwgen.templates.mixed import MixedSearch, surely_exceeds
from hwgen.templates.search import GroupSearch
from hwgen.templates.stream import StreamTemplate

#: Maximum number of multiply-adds of layers that mostly take less than a second to plan.
QUICK_MACS = 10_000_000


def multiplier_notes(task: Task, group: Group) -> list[str]:
    """Return, as a list, a plan's notes (texts for users) on unused LUTs, with the options that would multiply in them.

    A group with products in LUTs uses a share of the board's. Other groups could have products in LUTs if the user had
    not ruled that out.
    """
    goal, board = task.goal, task.board
    if any(layer.lut_lanes for layer in group.layers) and goal.lut < board.lut:
        limit = f"LUT use is capped at {goal.lut:,} of {board.lut:,} ({goal.lut / board.lut:.0%})"
        return [f"{limit} to keep the design routable; raise it with --lut {board.lut}"]
    can_use_luts = group.template.multiplies_in_luts and not is_loaded(task.network)
    if goal.multipliers == DSP and can_use_luts:
        idle = int(LUT_SHARE * board.lut) - group.resources.lut
        return [f"{idle:,} LUTs are unused; --multipliers auto also multiplies in LUTs"] if idle > 0 else []
    return []


def without_other_template(reason: str) -> str:
    """Return an engine's reason for a refusal, less its advice to use the template ``stream``, which doesn't fit.

    Advice follows semicolons.
    """
    why, *advice = (re.sub(rf",? or --template {STREAM},?", "", clause) for clause in reason.split("; "))
    return "; ".join([why, *(clause for clause in advice if f"--template {STREAM}" not in clause)])


def is_quick(layers: Sequence[Op]) -> bool:
    """Return whether given layers mostly take less than a second to plan."""
    return sum(layer.macs for layer in layers) <= QUICK_MACS


def first_layers(task: Task, count: int, fit: Callable[[Task, int], bool] = can_be_built) -> str:
    """Return a noun phrase for how many layers fit the board, at most the first ``count``; empty if not even one does.

    The prefix ends at a boundary of the network. If not all ``count`` layers fit, it is found by bisection.

    Parameters
    ----------
    fit : callable
        Test of whether as many first layers as its second argument says fit the task's board.
    """
    boundaries = [boundary for boundary in task.network.boundaries if boundary <= count]
    low, high, trial = 0, len(boundaries) - 1, len(boundaries) - 1
    while low < high:
        if fit(task, boundaries[trial]):
            low = trial
        else:
            high = trial - 1
        trial = (low + high + 1) // 2
    names = [layer.name for layer in task.network.layers[: boundaries[low]]]
    if len(names) < 2:
        return f"only {names[0]}" if names else ""
    return f"the first {len(names)} layers ({names[0]} to {names[-1]})"


def first_that_fit(task: Task, count: int) -> str:
    """Return a clause for a refusal that says how many of the first ``count`` layers fit; empty if not even one does.

    If planning these layers would take long, they are not planned, and the text says how many may fit.
    """
    planned = is_quick(task.network.layers[:count])
    layers = first_layers(task, count, can_be_built if planned else may_fit)
    verb = "may fit" if not planned else "fits" if layers.startswith("only ") else "fit"
    return f"; {layers} {verb}" if layers else ""


def lut_budget_refusal(task: Task) -> Refusal | None:
    """Return a `Refusal` if the user allows fewer LUTs than any plan with weights on the chip needs; else ``None``.

    It names the LUTs of groups with the fewest DSP slices and the smallest buffers, which are quick to plan.
    """
    option, luts = task.board.limiting_option("lut"), task.board.lut
    if not option or not surely_exceeds(task, luts):
        return None
    boundaries = task.network.boundaries
    largest, (begin, end) = max((_min_luts(task, *span), span) for span in pairwise(boundaries))
    together = _min_luts(task, 0, boundaries[-1])
    layers = task.network.layers
    names = " to ".join(dict.fromkeys((layers[begin].name, layers[end - 1].name)))
    taken = f"{names} needs about {largest:,} LUTs with the smallest unroll factors"
    if len(boundaries) > 2:
        taken += f"; one group of all layers needs about {together:,}"
    return Refusal(f"{option} {luts:,} is too few: {taken}; raise {option}", "LUTs", max(largest, together))


def _min_luts(task: Task, begin: int, end: int) -> int:
    """Return the fewest LUTs (a number) that layers ``begin`` to ``end - 1`` take in any unrolling; 0 if unknown."""
    search, task = (MixedSearch, task) if task.goal.needs_luts else (GroupSearch, task.in_slices)
    luts = attempt(lambda: search(task, begin, end, False, StreamTemplate()).min_luts)
    return 0 if isinstance(luts, Refusal) else luts


def weights_refusal(task: Task) -> Refusal | None:
    """Return a `Refusal` of the first layer whose weights exceed on-chip memory; ``None`` if each layer fits by itself.

    It also says how many of the previous layers fit (`first_that_fit`).
    """
    for index, layer in enumerate(task.network.layers):
        if (refusal := weight_shortage(layer_weight_bits([layer]), task.board, layer.loaded)) is not None:
            message = f"{layer.name} does not fit {task.board.name}: {refusal}"
            return Refusal(message + first_that_fit(task, index) + tiles_clause(task, layer))
    return None


def loaded_stream_clause(task: Task) -> str:
    """Return a clause for a refusal that names run-time weights and their rate, if UltraRAM has room; else ``""``."""
    cycles = attempt(_loaded_stream_cycles, task) if ultra_ram_holds_weights(task) else None
    if cycles is None or isinstance(cycles, Refusal):
        return ""
    rate = rate_text(task.board.clock_mhz * 1e6 / cycles)
    return f"; {called('weights')} {AUTO} can store weights in UltraRAM, about {rate} frames per second"


def engine_clause(task: Task) -> str:
    """Return a clause for a refusal that names the engine and its estimated rate; empty if there is no engine."""
    cycles = attempt(estimated_cycles, task.aiming(template=ENGINE))
    if isinstance(cycles, Refusal):
        return ""
    rate = rate_text(task.board.clock_mhz * 1e6 / cycles)
    return f"; {called('template')} {ENGINE} reads weights from off-chip memory, about {rate} frames per second"


def ultra_ram_holds_weights(task: Task) -> bool:
    """Return whether constant weights would have room on chip only if they were loaded at run time, to UltraRAM."""
    network, board = task.network, task.board
    weights = layer_weight_bits(network.layers)
    if is_loaded(network) or board.ultra_ram is None or weight_shortage(weights, board) is None:
        return False
    return weight_shortage(weights, board, True) is None


def _loaded_stream_cycles(task: Task) -> int | None:
    """Return about the fewest cycles between frames of a stream with weights loaded at run time, or ``None``.

    Raises
    ------
    PlanError
        If a layer's weights can't be loaded at run time.
    """
    slices = task.in_slices
    network = loaded(task.network, layers_for_ultra_ram(task.network, task.board))
    aimed = Task(network, task.board, replace(slices.goal, template=STREAM, objective="interval"))
    search = GroupSearch(aimed, 0, len(aimed.works), False, StreamTemplate())
    return replace(search, moves_memories=True).shortest_interval()


def tiles_clause(task: Task, layer: Op) -> str:
    """Return a clause for a refusal: bytes and cycles of a layer in its tiles of least traffic; empty if none fit."""
    cost = attempt(_cost_in_tiles, task, [layer])
    if isinstance(cost, Refusal):
        return ""
    return f"; tiled (hwgen block), it would move {cost[0]:,} bytes and take at least {cost[1]:,} cycles per frame"


def tiles_notes(task: Task) -> tuple[str, ...]:
    """Return a tuple with a plan's note, if any: bytes and cycles of single layers in their tiles of least traffic.

    The result is empty if not one window of some layer fits.
    """
    cost = attempt(_cost_in_tiles, task, task.network.layers)
    if isinstance(cost, Refusal):  # a window of some layer does not fit
        return ()
    best = f"{cost[0]:,} bytes and at least {cost[1]:,} cycles per frame"
    return (f"for comparison, each layer by itself in its best tiles (hwgen block): {best}",)


def _cost_in_tiles(task: Task, layers: Sequence[Op]) -> tuple[int, int]:
    """Return a pair of sums over layers in their tiles of least traffic: bytes moved off chip, least cycles per frame.

    Raises
    ------
    PlanError
        If not one window of a layer fits.
    """
    costs = [on_board.bytes_and_cycles(layer, task.board, task.goal.products) for layer in layers]
    return sum(moved for moved, _ in costs), sum(cycles for _, cycles in costs)


def what_can_be_built(plan: Plan, request: Request) -> str:
    """Return a text for users: the layers, or larger boards, that fit instead of a plan that can't be built.

    The text says "can be built" only for layers that were planned. Layers that would take long to plan, and larger
    boards, are tested without planning, and the text says that they "may fit".

    Parameters
    ----------
    plan : Plan
        Plan that can't be built.
    request : Request
        Request that the plan was made for.
    """
    fast_request = replace(request, objective="interval", interval=None, fps=None, dsp=plan.dsp)
    in_luts = frozenset(layer.name for layer in plan.layers if layer.requantise_in == "lut")
    goal = replace(fast_request.goal(plan.board), in_luts=in_luts)
    task, count = task_of(plan.network, plan.board, goal, request.macs_per_dsp), len(plan.network.layers)
    planned = is_quick(plan.network.layers)
    fits, said = (can_be_built, "can be built") if planned else (may_fit, "may fit")
    if fits(task, count):
        return f"one group of all layers {said}: leave out --groups and --in-turn"
    choices = []
    if first := first_layers(task, (0, *plan.network.cuts)[-1], fits):
        choices.append(f"{first} of {plan.network.name} {said}{' on' if planned else ''} {plan.board.name}")
    larger = [
        board for board in map(boards.load, boards.names()) if _is_larger(board, plan.board) and _has_room(task, board)
    ]
    if larger:
        choices.append(f"all of it may fit {' or '.join(board.name for board in larger)}")
    return "; ".join(choices) or "use a smaller network or a larger board"


def _is_larger(board: Board, than: Board) -> bool:
    """Return whether a board has at least as much of every resource as another board, and more of one."""
    sizes = [(getattr(board, name), getattr(than, name)) for name in ("dsp", "bram36", "lut", "ff")]
    return all(size >= less for size, less in sizes) and any(size > less for size, less in sizes)


def _has_room(task: Task, board: Board) -> bool:
    """Return whether all layers of a task may fit a board as one fusion group; a quick test that plans nothing."""
    goal = replace(task.in_slices.goal, dsp=board.dsp)
    return may_fit(Task(task.network, board, goal), len(task.works))
