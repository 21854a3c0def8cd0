"""Search for groups of layers whose jobs alternate (side by side), so that one computes while another loads.

The cycles of a group of layers are measured: the group's jobs are made, and scheduled cycle by cycle. All searches and
measurements of a network are known in advance, and run in parallel where they take long (`hwgen.work.beside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import NoReturn

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.program.array_pass import Pass, PixelGrid, share_tables
from hwgen.program.given_tilings import tiling_cost
from hwgen.program.jobs import Emitter, TiledPass
from hwgen.program.layout import WORD, blocks
from hwgen.program.maps import FusedLayer, MapLocation
from hwgen.program.split import UNDIVIDED, Split, frames_per_round, splits
from hwgen.program.tiles import Room, Tiling, TilingCost, best_tilings, pieces, weight_steps
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.work import spread

#: Maximum number of layers whose jobs alternate on the engine (side by side).
MAX_LAYERS = 3
#: Number of tilings, the best by estimate, whose exact cycles are compared for each pass of a single layer: with one
#: core, for layers of a single output pixel (which have few jobs), and with several cores.
MAX_TILINGS, MAX_DENSE_TILINGS, MAX_CORE_TILINGS = 6, 20, 2
#: Number of tilings of a pass, the best by estimate, whose exact cycles are compared while other passes alternate.
MAX_VARIED = 3
#: Number of tilings of a pass that are measured together with the previous and the next layer: the best by an estimate
#: that hides half of the memory port's cycles, because these layers keep the array busy.
MAX_HIDDEN = 3
#: Smallest estimated gain, in cycles, that lets a tiling be measured together with the previous and the next layer.
SMALLEST_GAIN = 200
#: Candidate heights of strips, in output rows of the last layer, for layers that are computed strip by strip.
STRIP_ROWS = (1, 2, 3, 4, 6, 8)
#: Estimated cycles of alternating layers, relative to their cycles one by one, below which they are scheduled exactly.
GAIN = 0.98

Choices = Sequence[Mapping[str, Sequence[Tiling]]]
"""Type of chosen tilings: for each group of layers side by side, the passes' tilings by layer name."""


@dataclass(frozen=True)
class LayerPasses:
    """Layer of a network, with the passes (runs through the engine's array) that compute the layer."""

    step: FusedLayer
    tasks: tuple[Pass, ...]

    @property
    def name(self) -> str:
        """Name of the network layer itself, not of the layers fused onto its output."""
        return self.step.ops[0].name

    def keeping(self, rows: Mapping[str, int]) -> LayerPasses:
        """Return `LayerPasses`: a copy whose maps have ``rows`` rows (by map name) in the on-chip map memory."""
        return LayerPasses(self.step, tuple(task.keeping(rows) for task in self.tasks))


@dataclass(frozen=True)
class JobGroup:
    """Group of consecutive layers whose jobs alternate (side by side), with tilings and scheduled cycles.

    The cycles are per frame.
    """

    steps: tuple[FusedLayer, ...]
    tiled_passes: tuple[TiledPass, ...]
    cycles: float

    @property
    def frames(self) -> int:
        """Number of frames that teams of cores compute at the same time."""
        return self.tiled_passes[0].task.split.frames if self.tiled_passes else 1

    @property
    def kept_rows(self) -> dict[str, int]:
        """Dictionary of rows in the on-chip map memory of each map that the group's layers write, by map name."""
        targets = {tiled_pass.task.target[0]: tiled_pass.task.kept.target for tiled_pass in self.tiled_passes}
        return {edge: rows for edge, rows in targets.items() if rows}


@dataclass(frozen=True)
class MapMemoryModel:
    """On-chip map memory for the search of groups: free bytes at each layer, and maps it may hold partly.

    Parameters
    ----------
    free : sequence of int
        Number of bytes that no kept map uses while each layer is computed, by the layer's index.
    readers : mapping
        Names of the layers that read a map, for each map that can be kept in part, by edge.
    """

    free: Sequence[int] = ()
    readers: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Grouping:
    """Search for groups of layers that are faster with alternating jobs (side by side) than one by one.

    Parameters
    ----------
    engine : EngineConfig
    locations : sequence of mapping
        Location of each map, by edge, for each frame; cycles don't depend on the addresses.
    room : Room
        Buffer space of a pass that is computed by itself.
    tilings : mapping
        Fixed tilings, by layer name. These layers are computed by themselves.
    roots : mapping
        For each edge, the edge of the map in memory that contains it, and its first block there.
    """

    def __init__(
        self,
        engine: EngineConfig,
        locations: Sequence[Mapping[str, MapLocation]],
        room: Room,
        tilings: Mapping[str, Tiling],
        roots: Mapping[str, tuple[str, int]],
    ) -> None:
        self._engine, self._locations, self._whole, self._fixed = engine, locations, room, tilings
        self._roots = roots
        self._tilings: dict[object, list[tuple[Tiling, TilingCost]]] = {}
        self._cycles: dict[object, float] = {}
        self._tries_between = False

    def moved(self, locations: Sequence[Mapping[str, MapLocation]]) -> Grouping:
        """Return a `Grouping`: a copy of this search with maps at other addresses, and shared cached results."""
        moved = copy(self)
        moved._locations = locations
        return moved

    def cycles(self, groups: Sequence[JobGroup]) -> float:
        """Return the scheduled cycles per frame of all layers in given groups, one group after the other.

        For an engine of several cores, or with a map memory, it is the sum of the cycles of the groups by themselves.
        """
        sequence = tuple(group.tiled_passes for group in groups if group.tiled_passes)
        if self._has_one_search or not sequence:
            return sum(group.cycles for group in groups)
        self._measure_sequences([sequence], "comparing searches")
        return self._cycles[self._key(sequence)]

    @property
    def _has_one_search(self) -> bool:
        """Whether the engine has several cores or a map memory, so that only one of the two searches is made."""
        return self._engine.has_cores or self._engine.has_map_memory

    def _with_tilings_between(self) -> Grouping:
        """Return a copy of this `Grouping` that also tries tilings that are best if neighbours keep the array busy.

        It shares all results of this search.
        """
        other = copy(self)
        other._tries_between = True
        return other

    def groups(
        self, layers: Sequence[LayerPasses], max_layers: int = MAX_LAYERS, memory: MapMemoryModel | None = None
    ) -> list[JobGroup]:
        """Return a list of the `JobGroup`s (layers with alternating jobs) of the division with the fewest total cycles.

        With one core and no map memory there are two searches, without and with the tilings that are the cheapest
        between other layers. The result is from the search whose layers take the fewest exact cycles.

        A group has at most ``max_layers`` layers. In a map ``memory``, maps between layers of a group can be kept in
        part, as rings of rows.

        Raises
        ------
        PlanError
            If the buffers don't hold a tile of a layer by itself.
        """
        groups = self._divided(layers, max_layers, memory or MapMemoryModel())
        if self._has_one_search:
            return groups
        other = self._with_tilings_between()._divided(layers, max_layers, MapMemoryModel())
        best = min(groups, other, key=self.cycles)
        return min(best, self._all_between(best), key=self.cycles)

    def _divided(self, layers: Sequence[LayerPasses], max_layers: int, memory: MapMemoryModel) -> list[JobGroup]:
        """Return a list of `JobGroup` objects: the division of the layers with the smallest sum of cycles found."""
        options = self._group_each_layer(layers)
        single_groups = [min(groups.values(), key=lambda group: group.cycles) for groups in options]
        single_cycles = [group.cycles for group in single_groups]
        wider_groups = self._all_together(layers, options, single_cycles, max_layers)
        for end, groups in self._all_in_strips(layers, single_cycles, max_layers, memory).items():
            wider_groups.setdefault(end, []).extend(groups)
        best: list[tuple[float, list[JobGroup]]] = [(0.0, [])]
        for end in range(1, len(layers) + 1):
            options = [(best[end - 1][0] + single_groups[end - 1].cycles, [*best[end - 1][1], single_groups[end - 1]])]
            for begin, group in wider_groups.get(end, ()):
                options.append((best[begin][0] + group.cycles, [*best[begin][1], group]))
            best.append(min(options, key=lambda option: option[0]))
        return self._all_refined(best[-1][1])

    def follow(self, layers: Sequence[LayerPasses], choices: Choices) -> list[JobGroup]:
        """Return a list of `JobGroup` objects: the layers divided as in ``choices``, with those tilings.

        Raises
        ------
        PlanError
            If the choices name other layers, or the buffers don't hold the tilings.
        """
        groups, remaining = [], list(layers)
        for choice in (*choices, {}):
            while remaining and not remaining[0].tasks:
                groups.append(JobGroup((remaining.pop(0).step,), (), 0.0))
            chosen_layers, remaining = remaining[: len(choice)], remaining[len(choice) :]
            names = [layer.name for layer in chosen_layers]
            if names != list(choice):
                expected = ", ".join(names) or "no further layer"
                raise PlanError(
                    f"tilings must be given for each layer in the network's order: {expected} is next, not "
                    f"{', '.join(choice)}"
                )
            if choice:
                groups.append(self._group_with_tilings(chosen_layers, choice))
        if remaining:
            raise PlanError(f"{remaining[0].name}: has no tiling; give it a tile and a chunk, or its passes")
        return groups

    def _group_with_tilings(self, layers: Sequence[LayerPasses], choice: Mapping[str, Sequence[Tiling]]) -> JobGroup:
        """Return a `JobGroup` of alternating jobs of layers with chosen tilings; refuse tilings that don't fit."""
        tasks = [task for layer in layers for task in layer.tasks]
        if len(layers) > 1 and share_tables(tasks):
            raise PlanError(
                f"{' and '.join(choice)} can't be computed side by side: both load the engine's one lookup table; take "
                "them out of side_by_side"
            )
        for layer in layers:
            if len(choice[layer.name]) not in (1, len(layer.tasks)):
                raise PlanError(
                    f"{layer.name}: passes must have {len(layer.tasks)} entries, one per pass through the array, not "
                    f"{len(choice[layer.name])}"
                )
        room = self._whole if len(layers) == 1 else self._buffer_share(tasks)
        tilings = [tiling for layer in layers for tiling in _tiling_per_pass(choice[layer.name], len(layer.tasks))]
        tiled_passes = tuple(self._tiled(*each, room) for each in zip(tasks, tilings, strict=True))
        if len({tiled_pass.task.split.frames for tiled_pass in tiled_passes}) > 1:
            raise PlanError(
                f"{' and '.join(choice)} can't be computed side by side: their teams of cores compute different "
                "numbers of frames; give them the same teams and split_rows"
            )
        return JobGroup(tuple(layer.step for layer in layers), tiled_passes, 0.0)

    def _tiled(self, task: Pass, tiling: Tiling, room: Room) -> TiledPass:
        """Return a `TiledPass`: a pass with tiling and estimated cost, divided among cores as the tiling says.

        Raises
        ------
        PlanError
            If the engine can't compute the pass with this tiling.
        """
        split = tiling.split(task)
        if split not in [UNDIVIDED, *(each.split for each in self._divisions(task))]:
            possible = dict.fromkeys((UNDIVIDED, *(each.split for each in self._divisions(task))))
            raise PlanError(
                f"{task.name}: the {self._engine.cores} cores of the engine can't divide the layer into "
                f"{_split_text(split)}; what works: {', or '.join(map(_split_text, possible))}"
            )
        divided = task.divided(split)
        return TiledPass.of(divided, tiling, tiling_cost(divided, self._engine, tiling, room))

    def _divisions(self, task: Pass) -> list[Pass]:
        """Return a list of copies of a pass, one per candidate division among cores; one for a single core."""
        if not self._engine.has_cores:
            return [task]
        folds, by_rows = task.core_folds(self._engine), not task.is_scattered
        options = splits(self._engine, folds, task.rows, task.edge, len(self._locations), by_rows=by_rows)
        return [task.divided(split) for split in options]

    def _group_each_layer(self, layers: Sequence[LayerPasses]) -> list[dict[int, JobGroup]]:
        """Return a list with a dict per layer: each `JobGroup` of only this layer, by number of frames at once.

        The tilings are the fastest that are found. With one core, each layer has one group.
        """
        tasks = [task for layer in layers for task in layer.tasks if task.name not in self._fixed]
        divisions = {task: self._divisions(task) for task in tasks}
        options = (option for task in tasks for option in divisions[task])
        self._find_all(((option, self._whole, self._max_tilings(option)) for option in options), "looking for tiles")
        for task in tasks:
            if not any(self._best_tilings(option) for option in divisions[task]):
                best_tilings(task, self._engine, self._whole)  # raises the error with its reason
        tried = {task: self._tilings_to_compare(divisions[task]) for task in tasks}
        self._measure_all(
            [(tiled_pass,) for tiled_passes in tried.values() for tiled_pass in tiled_passes], "comparing tiles"
        )
        return [self._groups_of_layer(layer, tried) for layer in layers]

    def _tilings_to_compare(self, divisions: Sequence[Pass]) -> list[TiledPass]:
        """Return a list of each `TiledPass` of a pass, the best by estimate, whose exact cycles are to be compared.

        With several cores, these are the best by estimate of all divisions that compute as many frames at once.
        """
        by_frames: dict[int, list[TiledPass]] = {}
        for task in divisions:
            tilings = self._best_tilings(task)
            tried = tilings if self._tries_between else tilings[: self._max_tilings(task)]
            tiled_passes = [TiledPass.of(task, *best) for best in tried]
            by_frames.setdefault(task.split.frames, []).extend(tiled_passes)
        return [
            tiled_pass
            for tiled_passes in by_frames.values()
            for tiled_pass in sorted(tiled_passes, key=lambda tiled_pass: max(tiled_pass.array, tiled_pass.port))[
                : self._max_tilings(divisions[0])
            ]
        ]

    def _max_tilings(self, task: Pass) -> int:
        """Return how many tilings of a single pass (run of the array) are compared by exact cycles."""
        if self._engine.has_cores:
            return MAX_CORE_TILINGS
        return MAX_DENSE_TILINGS if task.rows * task.columns == 1 else MAX_TILINGS

    def _best_tilings(self, task: Pass) -> list[tuple[Tiling, TilingCost]]:
        """Return a list of (`Tiling`, `TilingCost`) found for a single pass, fewest estimated cycles first."""
        return self._tilings[task.shape, self._whole, self._max_tilings(task)]

    def _groups_of_layer(self, layer: LayerPasses, tried: Mapping[Pass, Sequence[TiledPass]]) -> dict[int, JobGroup]:
        """Return a dict by frames at once of each `JobGroup` of a single layer, with the fastest tiling of each pass.

        All passes of a group compute as many frames at once, which is the group's key.
        """
        options = {tiled_pass.task.split.frames for task in layer.tasks for tiled_pass in tried.get(task, ())} or {1}
        groups = {frames: self._own_group(layer, tried, frames) for frames in sorted(options)}
        return {frames: group for frames, group in groups.items() if group}

    def _own_group(self, layer: LayerPasses, tried: Mapping[Pass, Sequence[TiledPass]], frames: int) -> JobGroup | None:
        """Return a layer's own `JobGroup` for ``frames`` frames at once; ``None`` if a pass has no such tiling."""
        tiled_passes, cycles = [], 0.0
        for task in layer.tasks:
            tiling = self._fixed.get(task.name)
            if tiling is not None:
                tiled_passes.append(self._tiled(task, tiling, self._whole))
                at_once = tiled_passes[-1].task.split.frames
                cycles += max(tiled_passes[-1].array, tiled_passes[-1].port) / self._per_round(at_once)
                continue
            options = [tiled_pass for tiled_pass in tried[task] if tiled_pass.task.split.frames == frames]
            if not options:
                return None
            tiled_passes.append(min(options, key=lambda tiled_pass: self._measured((tiled_pass,))))
            cycles += self._measured((tiled_passes[-1],)) / self._per_round(frames)
        return JobGroup((layer.step,), tuple(tiled_passes), cycles)

    def _per_round(self, at_once: int) -> float:
        """Return the mean number of the run's frames per round, if so many frames are computed at once."""
        return frames_per_round(len(self._locations), at_once)

    def _all_together(
        self,
        layers: Sequence[LayerPasses],
        options: Sequence[Mapping[int, JobGroup]],
        single_cycles: Sequence[float],
        max_layers: int,
    ) -> dict[int, list[tuple[int, JobGroup]]]:
        """Return a dict from end index to list of (begin index, `JobGroup`) that may beat their layers one by one.

        Their passes are divided among cores as in the groups of single layers (``options``) that compute as many frames
        at once. The groups are listed by the index after their last layer, each with the index of its first layer.
        """
        spans = [
            (begin, end, frames)
            for end in range(1, len(layers) + 1)
            for begin in range(max(0, end - max_layers), end - 1)
            if self._may_be_together(layers[begin:end])
            for frames in options[begin]
            if all(frames in groups for groups in options[begin:end])
        ]
        tasks = {
            (begin, end, frames): [
                tiled_pass.task for groups in options[begin:end] for tiled_pass in groups[frames].tiled_passes
            ]
            for begin, end, frames in spans
        }
        rooms = ((group, self._buffer_share(group, by_rows)) for group in tasks.values() for by_rows in (True, False))
        self._find_all(((task, room, 1) for group, room in rooms for task in group), "looking for smaller tiles")
        options_of = {
            (begin, end, frames): self._tried_together(
                tasks[begin, end, frames], self._per_round(frames) * sum(single_cycles[begin:end])
            )
            for begin, end, frames in spans
        }
        self._measure_all(
            [tiled_passes for combinations in options_of.values() for tiled_passes in combinations],
            "looking for layers side by side",
        )
        groups_by_end: dict[int, list[tuple[int, JobGroup]]] = {}
        for (begin, end, frames), combinations in options_of.items():
            if combinations:
                tiled_passes = min(combinations, key=self._measured)
                cycles = self._measured(tiled_passes) / self._per_round(frames)
                group = JobGroup(tuple(layer.step for layer in layers[begin:end]), tiled_passes, cycles)
                groups_by_end.setdefault(end, []).append((begin, group))
        return groups_by_end

    def _all_refined(self, groups: Sequence[JobGroup]) -> list[JobGroup]:
        """Return a list of the groups, with tilings of alternating passes replaced if others take fewer exact cycles.

        For one pass after the other, the best tilings by estimate are measured with the tilings of the other passes.
        Only on engines of one core without a map memory.
        """
        if self._engine.has_cores or self._engine.has_map_memory:
            return [*groups]
        for position in range(max((len(group.tiled_passes) for group in groups), default=0)):
            options = [self._retile_pass(group, position) for group in groups]
            self._measure_all(
                [tiled_passes for variants in options for tiled_passes in variants[1:]], "comparing tiles side by side"
            )
            groups = [
                replace(
                    group,
                    tiled_passes=(tiled_passes := min(variants, key=self._measured)),
                    cycles=self._measured(tiled_passes),
                )
                if len(variants) > 1
                else group
                for group, variants in zip(groups, options, strict=True)
            ]
        return [*groups]

    def _all_between(self, groups: Sequence[JobGroup]) -> list[JobGroup]:
        """Return a list of the groups, with single passes' tilings replaced if others are faster between neighbours.

        A neighbour that keeps the array busy hides the port's cycles of a pass, and vice versa. Every other group is
        compared at a time, so that its neighbours do not change.
        """
        result = [*groups]
        computed = [index for index, group in enumerate(groups) if group.tiled_passes]
        for parity in (0, 1):
            sequences = {}
            for position in range(parity, len(computed), 2):
                near = [result[index].tiled_passes for index in computed[max(position - 1, 0) : position + 2]]
                variants = self._tried_between(near, min(position, 1))
                if len(variants) > 1:
                    sequences[computed[position]] = variants
            self._measure_sequences(
                [near for variants in sequences.values() for near, _ in variants], "comparing tiles between layers"
            )
            for index, variants in sequences.items():
                _, tiled_passes = min(variants, key=lambda variant: self._cycles[self._key(variant[0])])
                result[index] = replace(result[index], tiled_passes=tiled_passes)
        return result

    def _tried_between(
        self, near: Sequence[tuple[TiledPass, ...]], position: int
    ) -> list[tuple[tuple[tuple[TiledPass, ...], ...], tuple[TiledPass, ...]]]:
        """Return a list of pairs: sequence of groups with another tiling at ``position``, and that group's passes.

        Each comes with the passes of that group. The first sequence is the given one. The others take fewer cycles by
        an estimate that lets port and array work at the same time over all groups of the sequence.
        """

        def sequence(tiled_passes: tuple[TiledPass, ...]) -> tuple[tuple[TiledPass, ...], ...]:
            return (*near[:position], tiled_passes, *near[position + 1 :])

        def estimate(tiled_passes: tuple[TiledPass, ...]) -> float:
            whole = [*chain(*sequence(tiled_passes))]
            return max(sum(each.array for each in whole), sum(each.port for each in whole))

        chosen = near[position]
        task = chosen[0].task
        if len(chosen) > 1 or task.name in self._fixed:
            return [(sequence(chosen), chosen)]
        hidden = replace(self._whole, pace=Fraction(self._whole.pace) / 2)
        self._find_all([(task, hidden, MAX_HIDDEN)], "looking for tiles between layers")
        tilings = [tiling for room in (self._whole, hidden) for tiling, _ in self._tilings_in(task, room)]
        options = [
            (TiledPass.of(task, tiling, tiling_cost(task, self._engine, tiling, self._whole)),)
            for tiling in dict.fromkeys(tilings)
        ]
        limit = estimate(chosen) - SMALLEST_GAIN
        better = sorted((option for option in options if estimate(option) < limit), key=estimate)[:MAX_VARIED]
        return [(sequence(option), option) for option in (chosen, *better)]

    def _tilings_in(self, task: Pass, room: Room) -> list[tuple[Tiling, TilingCost]]:
        """Return a list of (`Tiling`, `TilingCost`) found for a single pass in a given share of the buffers."""
        return self._tilings[task.shape, room, self._max_tilings(task) if room == self._whole else MAX_HIDDEN]

    def _retile_pass(self, group: JobGroup, position: int) -> list[tuple[TiledPass, ...]]:
        """Return a list of tuples of each `TiledPass` of a group: as given, and with other tilings of one pass."""
        tiled_passes = group.tiled_passes
        if len(group.steps) == 1 or position >= len(tiled_passes):
            return [tiled_passes]
        tasks, task = [tiled_pass.task for tiled_pass in tiled_passes], tiled_passes[position].task
        rooms = [self._buffer_share(tasks, by_rows) for by_rows in (True, False)]
        self._find_all(((task, room, MAX_VARIED) for room in rooms), "looking for smaller tiles")
        count = None if self._tries_between else MAX_VARIED
        costs = dict(best for room in rooms for best in self._tilings[task.shape, room, MAX_VARIED][:count])
        others = [TiledPass.of(task, tiling, cost) for tiling, cost in costs.items()]
        return [
            tiled_passes,
            *((*tiled_passes[:position], tiled_pass, *tiled_passes[position + 1 :]) for tiled_pass in others),
        ]

    def _all_in_strips(
        self, layers: Sequence[LayerPasses], single_cycles: Sequence[float], max_layers: int, memory: MapMemoryModel
    ) -> dict[int, list[tuple[int, JobGroup]]]:
        """Return a dict from end index to list of (begin index, `JobGroup`): layers in strips through the map memory.

        The groups are listed as by `_all_together`.
        """
        spans = {
            (begin, end): inner
            for end in range(1, len(layers) + 1)
            for begin in range(max(0, end - max_layers), end - 1)
            if self._may_be_together(layers[begin:end]) and (inner := _inner_maps(layers[begin:end], memory.readers))
        }
        tasks = {
            (begin, end): [
                task.keeping(task.kept_rows() | dict.fromkeys(spans[begin, end], 1))
                for layer in layers[begin:end]
                for task in layer.tasks
            ]
            for begin, end in spans
        }
        rooms = ((group, self._strip_rooms(group, rows)) for group in tasks.values() for rows in STRIP_ROWS)
        requests = ((task, room, 1) for group, its in rooms for task, room in zip(group, its, strict=True))
        self._find_all(requests, "looking for strips")
        options_of = {
            (begin, end): self._tried_in_strips(
                group, spans[begin, end], min(memory.free[begin:end]), sum(single_cycles[begin:end])
            )
            for (begin, end), group in tasks.items()
        }
        self._measure_all(
            [tiled_passes for combinations in options_of.values() for tiled_passes in combinations],
            "looking for layers in strips",
        )
        groups_by_end: dict[int, list[tuple[int, JobGroup]]] = {}
        for (begin, end), combinations in options_of.items():
            if combinations:
                tiled_passes = min(combinations, key=self._measured)
                steps = tuple(layer.step for layer in layers[begin:end])
                groups_by_end.setdefault(end, []).append(
                    (begin, JobGroup(steps, tiled_passes, self._measured(tiled_passes)))
                )
        return groups_by_end

    def _strip_rooms(self, tasks: Sequence[Pass], rows: int) -> list[Room]:
        """Return a list of `Room`s (buffer shares), one per pass, for layers in strips of ``rows`` last rows."""
        room, rooms = self._buffer_share(tasks, by_rows=True), []
        for task in reversed(tasks):
            rows *= task.edge
            rooms.append(replace(room, strip_rows=rows))
            rows *= task.window.stride[0]
        return rooms[::-1]

    def _tried_in_strips(
        self, tasks: Sequence[Pass], inner: Sequence[str], free: int, single_cycles: float
    ) -> list[tuple[TiledPass, ...]]:
        """Return a list of tuples of each `TiledPass` of layers in strips whose ring buffers fit into ``free`` bytes.

        Their estimates are clearly below ``single_cycles``.
        """
        tried = []
        for rows in STRIP_ROWS:
            tilings = [
                self._tilings[task.shape, room, 1]
                for task, room in zip(tasks, self._strip_rooms(tasks, rows), strict=True)
            ]
            if not all(tilings):
                continue
            tiled_passes = [TiledPass.of(task, *best[0]) for task, best in zip(tasks, tilings, strict=True)]
            if (
                max(
                    sum(tiled_pass.array for tiled_pass in tiled_passes),
                    sum(tiled_pass.port for tiled_pass in tiled_passes),
                )
                >= GAIN * single_cycles
            ):
                continue
            for ahead in (2, 1):  # boxes that the previous layer can be ahead
                if in_rings := self._in_rings(tiled_passes, inner, ahead, free):
                    tried.append(in_rings)
                    break
        return tried

    def _in_rings(
        self, tiled_passes: Sequence[TiledPass], inner: Sequence[str], ahead: int, free: int
    ) -> tuple[TiledPass, ...]:
        """Return a tuple of each `TiledPass` with rings of rows in map memory; empty if these exceed ``free`` bytes."""
        rings, row = {}, WORD * self._engine.row_words
        for edge in inner:
            writer = next(tiled_pass for tiled_pass in tiled_passes if tiled_pass.task.target[0] == edge)
            written, tile = writer.tiling.box_rows // writer.task.edge, writer.tiling.rows // writer.task.edge
            read = max(_box_rows(tiled_pass) for tiled_pass in tiled_passes if tiled_pass.task.source[0] == edge)
            height = writer.task.written_rows
            rings[edge] = min(-(-(read + ahead * written - 1) // tile) * tile, height)
            size = blocks(writer.task.maps) * rings[edge] * self._locations[0][edge].row_bytes
            free -= -(-size // row) * row
        if free < 0:
            return ()
        return tuple(
            replace(tiled_pass, task=tiled_pass.task.keeping(tiled_pass.task.kept_rows() | rings))
            for tiled_pass in tiled_passes
        )

    def _may_be_together(self, layers: Sequence[LayerPasses]) -> bool:
        """Return whether the jobs of layers may alternate: no common lookup table, fixed tiling or fixed-point unit."""
        tasks = [task for layer in layers for task in layer.tasks]
        if not all(layer.tasks for layer in layers) or share_tables(tasks) or any(task.fixed for task in tasks):
            return False
        return not any(task.name in self._fixed for task in tasks)

    def _tried_together(self, tasks: Sequence[Pass], single_cycles: float) -> list[tuple[TiledPass, ...]]:
        """Return a list of tuples of each `TiledPass` of alternating passes, estimated clearly below ``single_cycles``.

        Boxes are the outer loop in one of them, and any loop in the other.
        """
        options = [self._tiled_passes(tasks, by_rows) for by_rows in (True, False)]
        return [
            tiled_passes
            for tiled_passes in options
            if tiled_passes
            and max(
                sum(tiled_pass.array for tiled_pass in tiled_passes),
                sum(tiled_pass.port for tiled_pass in tiled_passes),
            )
            < GAIN * single_cycles
        ]

    def _tiled_passes(self, tasks: Sequence[Pass], by_rows: bool) -> tuple[TiledPass, ...]:
        """Return a tuple of each `TiledPass` with tilings that share the buffers; empty if they do not all fit."""
        room = self._buffer_share(tasks, by_rows)
        tilings = [self._tilings[task.shape, room, 1] for task in tasks]
        if not all(tilings):
            return ()
        return tuple(TiledPass.of(task, *best[0]) for task, best in zip(tasks, tilings, strict=True))

    def _buffer_share(self, tasks: Sequence[Pass], by_rows: bool = False) -> Room:
        """Return the share of the engine's buffers that each of several alternating passes gets (`Room`)."""
        whole, share = self._whole, len(tasks)
        return Room(
            map_words=whole.map_words // share,
            weight_steps=whole.weight_steps // share,
            by_rows=by_rows,
            shared=True,
            resident=sum(weight_steps(task, self._engine) for task in tasks) <= whole.weight_steps,
            pace=whole.pace,
        )

    def _find_all(self, requests: Iterable[tuple[Pass, Room, int]], what: str) -> None:
        """Find and store the best tilings of passes (runs of the array) in shares of the buffers, where not yet known.

        Each request has a pass, its buffer space, and the number of tilings.
        """
        missing = {(task.shape, room, count): (task, room, count) for task, room, count in requests}
        missing = {key: request for key, request in missing.items() if key not in self._tilings}
        bare_pass = {task: task.bare for task, _, _ in missing.values()}
        tasks = [(bare_pass[task], room, count) for task, room, count in missing.values()]
        tilings = spread(_tilings, tasks, shared=(self._engine,), what=what, unit="shape")
        self._tilings.update(zip(missing, tilings, strict=True))

    def _measure_all(self, requests: Iterable[tuple[TiledPass, ...]], what: str) -> None:
        """Schedule groups of passes cycle by cycle, unless known, and store the cycles that each group takes."""
        self._measure_sequences([(tiled_passes,) for tiled_passes in requests], what)

    def _measure_sequences(self, requests: Iterable[Sequence[tuple[TiledPass, ...]]], what: str) -> None:
        """Schedule sequences of groups cycle by cycle, unless known, and store the cycles that each sequence takes."""
        missing = {}
        for groups in requests:
            if (key := self._key(groups)) not in self._cycles and key not in missing:
                bare = [
                    tuple(
                        replace(tiled_pass, task=tiled_pass.task.bare, data=tiled_pass.unplaced_data)
                        for tiled_pass in tiled_passes
                    )
                    for tiled_passes in groups
                ]
                tiled_passes, map_roots = [*chain(*groups)], self._roots_of(groups)
                frames = self._locations[: tiled_passes[0].task.split.frames]
                missing[key] = (
                    bare,
                    [
                        {edge: located[edge] for edge in map_roots} | _located(tiled_passes, located)
                        for located in frames
                    ],
                    map_roots,
                )
        cycles = spread(_cycles, [*missing.values()], shared=(self._engine, self._whole), what=what, unit="group")
        self._cycles.update(zip(missing, cycles, strict=True))

    def _roots_of(self, groups: Sequence[Sequence[TiledPass]]) -> dict[str, tuple[str, int]]:
        """Return a dict by map name of pairs: stored map that contains the map, and its first 8-channel block there.

        The edges of a single group are maps by themselves.
        """
        edges = _edges([*chain(*groups)])
        if len(groups) == 1:
            return {edge: (edge, 0) for edge in edges}
        map_roots = {edge: self._roots[edge] for edge in edges}
        return map_roots | {root: (root, 0) for root, _ in map_roots.values()}

    def _measured(self, tiled_passes: tuple[TiledPass, ...]) -> float:
        """Return the scheduled cycles of alternating passes by themselves, which must be stored already."""
        return self._cycles[self._key((tiled_passes,))]

    def _key(self, groups: Sequence[Sequence[TiledPass]]) -> object:
        """Return a hashable key of all that determines the cycles of groups of passes (runs of the array)."""
        tiled_passes = [*chain(*groups)]
        names = {edge: index for index, edge in enumerate(_edges(tiled_passes))}
        return tuple(map(len, groups)), tuple(
            (
                tiled_pass.task.shape,
                tiled_pass.tiling,
                tuple(names[edge] for edge in tiled_pass.task.edges),
                tiled_pass.task.source[1],
                tiled_pass.task.target[1],
            )
            for tiled_pass in tiled_passes
        )


def _tilings(engine: EngineConfig, request: tuple[Pass, Room, int]) -> list[tuple[Tiling, TilingCost]]:
    """Return a list of the best (`Tiling`, `TilingCost`) for (pass, share of buffers, number); empty if none fits."""
    task, room, count = request
    try:
        return best_tilings(task, engine, room, count)
    except PlanError:
        return []


def _cycles(
    engine: EngineConfig,
    whole: Room,
    request: tuple[Sequence[tuple[TiledPass, ...]], Sequence[Mapping[str, MapLocation]], Mapping[str, tuple[str, int]]],
) -> float:
    """Return the exact cycles that an engine takes for the jobs of groups of passes, one group after the other."""
    groups, locations, map_roots = request
    emitter = Emitter(engine, map_roots, locations[0], whole, len(locations))
    emitter.begin_frame(0, locations, 0)
    for tiled_passes in groups:
        emitter.add(*tiled_passes)
    emitter.end()
    return EngineSchedule(engine, emitter.jobs, MemoryTiming.at(whole.pace)).run().cycles


def _split_text(split: Split) -> str:
    """Return a division of a layer among cores as text for a message."""
    return f"{split.teams} teams of {split.members} cores{' by rows' if split.by_rows else ''}"


def _refuse_ring(layer: str, use: str, rows: int, height: int) -> NoReturn:
    """Raise `PlanError`: a layer's ``use`` of a map needs all its rows, not a ring of ``rows`` rows."""
    raise PlanError(
        f"{layer}: {use}, which must be kept whole in the map memory, not as a ring of {rows} rows; give it {height} "
        "rows, or leave it out of kept_maps"
    )


def check_rings(tiled_passes: Sequence[TiledPass], height_of: Mapping[str, int]) -> None:
    """Refuse ring buffers of map rows in the map memory that the passes of a group can't write or read.

    Raises
    ------
    PlanError
        With the name of the layer.
    """
    for tiled_pass in tiled_passes:
        task, kept = tiled_pass.task, tiled_pass.task.kept_rows()
        rings = {edge: rows for edge, rows in kept.items() if 0 < rows < height_of[edge]}
        if task.operand and task.operand[0] in rings:
            _refuse_ring(task.name, f"adds map {task.operand[0]}", rings[task.operand[0]], height_of[task.operand[0]])
        source, target = task.source[0], task.target[0]
        if source in rings and task.row_step > 1:
            _refuse_ring(
                task.name, f"reads every {task.row_step}th row of map {source}", rings[source], height_of[source]
            )
        if source in rings and _box_rows(tiled_pass) > rings[source]:
            raise PlanError(
                f"{task.name}: kept_maps gives its input {source} {rings[source]} rows, but a box of its tiling reads "
                f"{_box_rows(tiled_pass)}; give {source} more rows, or lower the layer's box_rows"
            )
        if target in rings and task.lattice != PixelGrid():
            _refuse_ring(
                task.name, f"writes interleaved pixels of map {target} in each pass", rings[target], height_of[target]
            )
        tile_rows = tiled_pass.tiling.rows // task.edge
        if target in rings and rings[target] % tile_rows:
            raise PlanError(
                f"{task.name}: kept_maps gives its output {target} {rings[target]} rows, which must be a multiple of "
                f"the {tile_rows} rows that a tile writes"
            )


def _located(tiled_passes: Sequence[TiledPass], locations: Mapping[str, MapLocation]) -> dict[str, MapLocation]:
    """Return a dict by name of each map's `MapLocation`; on-chip maps begin at address 0 of map memory."""
    located = {edge: locations[edge] for edge in _edges(tiled_passes)}
    for edge, rows in (kept for tiled_pass in tiled_passes for kept in tiled_pass.task.kept_rows().items()):
        if rows:
            at = located[edge]
            located[edge] = MapLocation.dense(0, at.blocks, at.height, at.width, kept_rows=rows)
    return located


def _inner_maps(layers: Sequence[LayerPasses], readers: Mapping[str, frozenset[str]]) -> list[str]:
    """Return a list of names of maps between layers that a ring of rows can hold: only these read them, row by row.

    Layers have one pass each.
    """
    if any(len(layer.tasks) != 1 for layer in layers):
        return []
    tasks, names = [layer.tasks[0] for layer in layers], {layer.step.name for layer in layers}
    inner = []
    for task in tasks[:-1]:
        edge, block = task.target
        reading = [other for other in tasks if other.source[0] == edge]
        is_plain = block == 0 and task.lattice == PixelGrid() and not task.kept.target
        if is_plain and edge in readers and readers[edge] <= names and reading:
            others = [other.operand[0] for other in tasks if other.operand]
            if edge not in others and all(other.row_step == 1 for other in reading):
                inner.append(edge)
    return inner


def _box_rows(tiled_pass: TiledPass) -> int:
    """Return the most input rows that a pass (run of the array) loads at once, as the input of some output tiles."""
    task = tiled_pass.task
    spans = (task.needed(0, *rows) for rows in pieces(task.rows, tiled_pass.tiling.box_rows))
    return max(end - begin for begin, end in spans)


def _edges(tiled_passes: Sequence[TiledPass]) -> list[str]:
    """Return a list of the names of the feature maps that given engine passes read and write, without duplicates."""
    return list(dict.fromkeys(edge for tiled_pass in tiled_passes for edge in tiled_pass.task.edges))


def _tiling_per_pass(tilings: Sequence[Tiling], passes: int) -> Sequence[Tiling]:
    """Return a sequence of tilings, one per pass of a layer; a single one applies to all passes."""
    return tilings if len(tilings) == passes else [*tilings] * passes
