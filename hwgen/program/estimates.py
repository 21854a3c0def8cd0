"""Estimates of the cycles and bytes that a network takes on an engine, without a compilation.

`Workload` is the quick one, for hundreds of engines: the array's steps and the words of all maps and weights.
`tiled_estimate` chooses a tile of each pass as well, and is mostly within a few percent of the exact schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.program.array_pass import Pass
from hwgen.program.layout import WORD, blocks
from hwgen.program.split import frames_per_round, splits
from hwgen.program.tiles import Room, TilingCost, best_tilings, fold_steps
from hwgen.work import spread

#: Number of rows of a map that the map memory keeps if it does not keep all, by estimate.
RING_ROWS = 4


@dataclass(frozen=True)
class Estimate:
    """Estimated cycles of one frame on an engine, and bytes that the frame moves over the memory port."""

    cycles: float
    moved_bytes: float


class Workload:
    """Quick estimator of a network's cycles and bytes on many engines, from arrays over all its passes.

    Parameters
    ----------
    passes : sequence of Pass
        Passes of the network, not divided among cores.
    frames : int
        Number of frames of a run, which teams of cores can divide.
    """

    def __init__(self, passes: Sequence[Pass], frames: int = 1) -> None:
        def each(value: Callable[[Pass], int]) -> np.ndarray:
            return np.array([value(task) for task in passes], np.int64)

        self._frames = frames
        self._rows, self._columns = each(lambda task: task.rows), each(lambda task: task.columns)
        self._maps = each(lambda task: task.maps)
        self._edge, self._steps = each(lambda task: task.edge), each(fold_steps)
        self._channelwise = each(lambda task: task.channelwise).astype(bool)
        self._has_narrow_beats = each(
            lambda task: task.pooled or task.looked_up or bool(task.operand or task.fixed)
        ).astype(bool)
        self._shares_weights = each(lambda task: task.shares_weights).astype(bool)
        self._fixed = each(lambda task: len(task.fixed.words) + task.window.kernel[0] if task.fixed else 0)
        self._keeps_rows = each(lambda task: task.is_scattered).astype(bool)
        self._read = each(
            lambda task: task.height * task.width * blocks(task.maps if task.channelwise else task.channels)
        )
        self._written = each(
            lambda task: task.rows * task.columns * blocks(task.maps) * task.output_bytes // task.edge**2
        )

    def estimate(self, engine: EngineConfig, pace: Fraction) -> Estimate:
        """Return an `Estimate` of a frame's cycles and bytes, if the memory port moves a beat in ``pace`` cycles.

        Each pass takes as long as the array, the drain or the port, whichever is slowest, with the best division among
        cores. The port moves every map and weight once. Maps that the map memory can hold are not moved.
        """
        folds = -(-self._maps // self._core_maps(engine))
        weights = np.where(self._shares_weights, 1, folds) * self._steps * engine.weight_words
        read, written = (np.where(words > engine.kept_words, words, 0) for words in (self._read, self._written))
        read = read + weights
        cycles = np.maximum(self._array_cycles(engine, folds), engine.port_cycles(pace, read, written))
        return Estimate(float(cycles.sum()), float(WORD * (read + written).sum()))

    def _core_maps(self, engine: EngineConfig) -> np.ndarray:
        """Return an array over passes of the number of output channels that one core computes at once."""
        return np.where(self._channelwise, LANES, engine.maps)

    def _array_cycles(self, engine: EngineConfig, folds: np.ndarray) -> np.ndarray:
        """Return an array over passes: cycles of the MAC array or of its readout (drain), whichever is slower."""
        beat_pixels = np.where(self._has_narrow_beats, 1, engine.beat_words)
        beats = -(-np.minimum(self._core_maps(engine), self._maps) // LANES) * -(-engine.pixels // beat_pixels)
        group_cycles = np.maximum(self._steps, beats) + engine.pixels * self._fixed
        best, members = np.full(len(folds), np.inf), 1
        while members <= engine.cores:
            teams = engine.cores // members
            by_rows = np.minimum(teams, np.where(self._keeps_rows, 1, -(-self._rows // self._edge)))
            rows = -(-self._rows // (by_rows * self._edge)) * self._edge
            frames = frames_per_round(self._frames, min(teams, self._frames))
            member_cycles = -(-folds // members) * group_cycles
            for team_rows, at_once in ((rows, 1), (self._rows, frames)):
                cycles = -(-team_rows * self._columns // engine.pixels) * member_cycles / at_once
                best = np.where(members < 2 * folds, np.minimum(best, cycles), best)
            members *= 2
        return best


def tiled_estimate(passes: Sequence[Pass], engine: EngineConfig, pace: Fraction, frames: int = 1) -> Estimate | None:
    """Return an `Estimate` of a frame's cycles and bytes with each pass's best tile; ``None`` if buffers hold none.

    The division of a pass among cores is the best, too. A map memory keeps maps (`_kept_maps`).
    """
    if engine.has_map_memory:
        kept = dict.fromkeys(_kept_maps(passes, engine), 1)
        passes = [task.keeping(kept) for task in passes]
    room = replace(Room.whole(engine), pace=pace)
    options = {task.shape: _divisions(task, engine, frames) for task in passes}
    requests = [(division.bare, room) for divisions in options.values() for division in divisions]
    costs = iter(spread(_cost, requests, shared=(engine,), what="comparing engines", unit="shape"))
    best = {
        shape: min((_per_frame(division, next(costs), frames) for division in divisions), key=lambda cost: cost.cycles)
        for shape, divisions in options.items()
    }
    cycles = sum(best[task.shape].cycles for task in passes)
    return Estimate(cycles, sum(best[task.shape].moved_bytes for task in passes)) if np.isfinite(cycles) else None


def _kept_maps(passes: Sequence[Pass], engine: EngineConfig) -> Iterator[str]:
    """Yield the names of maps between passes that an engine's map memory is expected to hold.

    Half of it holds the whole map, or `RING_ROWS` rows of a map that only the next pass reads. The other half is for
    the map that is computed from it.
    """
    readers: dict[str, set[int]] = {}
    for index, task in enumerate(passes):
        for edge in {*task.edges} - {task.target[0]}:
            readers.setdefault(edge, set()).add(index)
    for index, task in enumerate(passes):
        edge, rows = task.target[0], task.rows // task.edge
        if edge in readers and task.output_bytes == 1:
            row = task.columns // task.edge * blocks(task.maps)
            if 2 * row * (min(rows, RING_ROWS) if readers[edge] == {index + 1} else rows) <= engine.kept_words:
                yield edge


def _divisions(task: Pass, engine: EngineConfig, frames: int) -> list[Pass]:
    """Return a list of copies of a pass, one for each candidate division among cores; just the pass for one core."""
    if not engine.has_cores:
        return [task]
    options = splits(engine, task.core_folds(engine), task.rows, task.edge, frames, by_rows=not task.is_scattered)
    return [task.divided(split) for split in options]


def _cost(engine: EngineConfig, request: tuple[Pass, Room]) -> TilingCost | None:
    """Return the estimated `TilingCost` of a pass's best tiling in a share of the buffers; ``None`` if no tile fits."""
    try:
        ((_, cost), *_) = best_tilings(request[0], engine, request[1])
    except PlanError:
        return None
    return cost


def _per_frame(task: Pass, cost: TilingCost | None, run_frames: int) -> Estimate:
    """Return an `Estimate`: cycles and bytes per frame of a pass (run of the array) for several frames at once."""
    if cost is None:
        return Estimate(np.inf, np.inf)
    frames = frames_per_round(run_frames, task.split.frames)
    return Estimate(max(cost.array, cost.port) / frames, WORD * cost.words / frames)
