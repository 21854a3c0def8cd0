"""Search for the engine that serves a plan's objective best, among those that fit a board, for one network.

All engines are compared by a quick estimate, the best of them by an estimate with tiles, and the best of these by the
exact schedule of their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.program.array_pass import Pass
from hwgen.program.estimates import Estimate, Workload, tiled_estimate
from hwgen.templates.engine_sizes import fitting_engines, narrower, refusal_of, slices
from hwgen.templates.task import Goal, Task

#: Number of engines of one core, and of several, that are estimated with tiles, the best by the quick estimate.
NUM_ESTIMATED = 5
#: Number of engines, the best by the estimate with tiles, that are also estimated with a narrower bus.
NUM_NARROWER = 2
#: Smallest gain of another engine, as a share of the cycles, of which a plan tells.
GAIN = 0.05

PaceOf = Callable[[EngineConfig], Fraction]
"""Type of functions that return the cycles in which an engine's port moves a beat.

They raise PlanError if the memory is too slow.
"""


@dataclass(frozen=True)
class EngineCandidate:
    """Engine of a search with the estimated cycles and bytes of a frame."""

    engine: EngineConfig
    estimate: Estimate

    def order(self, goal: Goal, error: float = 1) -> tuple[float, ...]:
        """Return the sort key of the engine by a goal (`order`); estimated cycles are multiplied by ``error``."""
        return order(goal, error * self.estimate.cycles, self.estimate.moved_bytes, slices(self.engine))


def order(goal: Goal, cycles: float, moved_bytes: float, dsp: int) -> tuple[float, ...]:
    """Return the sort key of an engine by a goal, less for the better, from the figures of a frame."""
    if goal.objective == "traffic":
        return moved_bytes, cycles, dsp
    if goal.objective != "dsp":
        return cycles, dsp
    is_slow = goal.interval is not None and cycles > goal.interval
    return (1, cycles, dsp) if is_slow else (0, dsp, cycles)


def options(task: Task, passes: Sequence[Pass], first: EngineConfig, pace_of: PaceOf) -> list[EngineCandidate]:
    """Return engines to compile a network for, the best by estimate first, with ``first`` among them.

    The best engine of one core and the best of several cores are the first two.
    """
    frames = task.goal.batch or 1

    def tiled(engine: EngineConfig) -> EngineCandidate | None:
        estimate = tiled_estimate(passes, engine, pace_of(engine), frames)
        return None if estimate is None else EngineCandidate(engine, estimate)

    def by_order(option: EngineCandidate) -> tuple[float, ...]:
        return option.order(task.goal)

    found = [option for engine in _promising(task, passes, first, pace_of) if (option := tiled(engine))]
    found.sort(key=by_order)
    narrow = [other for option in found[:NUM_NARROWER] if (other := narrower(task, option.engine))]
    found += [option for engine in narrow if refusal_of(task, engine) is None and (option := tiled(engine))]
    found.sort(key=by_order)
    leaders = {option.engine.has_cores: option for option in reversed(found)}
    return [*dict.fromkeys([*sorted(leaders.values(), key=by_order), *found])]


def _promising(task: Task, passes: Sequence[Pass], first: EngineConfig, pace_of: PaceOf) -> list[EngineConfig]:
    """Return ``first`` and the best engines of one core, and of several cores, by the quick estimate.

    With the objective ``dsp`` and a limit of the interval, the quick estimate is first scaled: with tiles, the fastest
    engine takes more cycles.
    """
    workload, goal = Workload(passes, task.goal.batch or 1), task.goal
    ranked = _estimated(task, workload, pace_of)
    scale = 1.0
    if goal.objective == "dsp" and goal.interval is not None and ranked:
        fastest = min(ranked, key=lambda option: option.estimate.cycles)
        tiled = tiled_estimate(passes, fastest.engine, pace_of(fastest.engine), goal.batch or 1)
        scale = 1.0 if tiled is None else tiled.cycles / fastest.estimate.cycles
    ranked.sort(key=lambda option: option.order(goal, scale))
    kinds = ([each.engine for each in ranked if each.engine.has_cores == has_cores] for has_cores in (False, True))
    return [*dict.fromkeys([first, *(engine for kind in kinds for engine in kind[:NUM_ESTIMATED])])]


def _estimated(task: Task, workload: Workload, pace_of: PaceOf) -> list[EngineCandidate]:
    """Return all engines that fit the board of a task and its memory, with quick estimates."""
    found = []
    for engine in fitting_engines(task, all_cores=task.goal.objective == "dsp"):
        try:
            found.append(EngineCandidate(engine, workload.estimate(engine, pace_of(engine))))
        except PlanError:  # the memory is too slow for the bus
            continue
    return found


@dataclass(frozen=True)
class FasterEngine:
    """Engine of other sizes that would compute a network faster.

    Parameters
    ----------
    engine : EngineConfig
    gain : float
        Share of the cycles that the other engine saves, by the quick estimate.
    """

    engine: EngineConfig
    gain: float


def faster_engine(task: Task, engine: EngineConfig, passes: Sequence[Pass], pace_of: PaceOf) -> FasterEngine | None:
    """Return the fitting engine with the fewest estimated cycles for some passes.

    ``None`` if it gains less than `GAIN` over ``engine``.
    """
    workload = Workload(passes, task.goal.batch or 1)
    best = min(_estimated(task, workload, pace_of), key=lambda option: option.estimate.cycles, default=None)
    if best is None:
        return None
    gain = 1 - best.estimate.cycles / workload.estimate(engine, pace_of(engine)).cycles
    return FasterEngine(best.engine, gain) if gain > GAIN else None
