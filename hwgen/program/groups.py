"""Which layers are computed side by side, so that the array works while the port is busy with another layer.

What a group of layers takes is measured: its jobs are made, and gone through cycle by cycle. All that is to be searched
and measured is known before, and is done side by side where it takes long (`hwgen.work.beside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.program.given import given_tiling
from hwgen.program.jobs import Emitter, Work
from hwgen.program.maps import Place, Step
from hwgen.program.passes import Pass
from hwgen.program.tiles import Cost, Room, Tiling, best_tilings, weight_steps
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.work import spread

#: Layers that are computed side by side at most.
MOST_LAYERS = 3
#: Tilings of a layer by itself that are measured.
MOST_TILINGS = 2
#: What a group must gain by estimate to be measured.
GAIN = 0.98

Choices = Sequence[Mapping[str, Sequence[Tiling]]]
"""For each group of layers that have passes, in order: how each layer's passes are cut, by its name."""


@dataclass(frozen=True)
class Layer:
    """A layer and its passes."""

    step: Step
    tasks: tuple[Pass, ...]

    @property
    def name(self) -> str:
        """Of the layer that is computed, not of those on its way out."""
        return self.step.ops[0].name


@dataclass(frozen=True)
class Group:
    """Layers that are computed side by side, how their passes are cut, and the cycles that they take by themselves."""

    steps: tuple[Step, ...]
    works: tuple[Work, ...]
    cycles: float


class Grouping:
    """Finds the groups of a network's layers.

    Parameters
    ----------
    engine : EngineConfig
    places : mapping
        A place for each map: where doesn't matter.
    room : Room
        Of a pass by itself.
    tilings : mapping
        How passes are cut that are not to be cut otherwise, by the names of their layers; those are computed alone.
    """

    def __init__(
        self,
        engine: EngineConfig,
        places: Mapping[str, Place],
        room: Room,
        tilings: Mapping[str, Tiling] | None = None,
    ) -> None:
        self._engine, self._places, self._whole, self._given = engine, places, room, tilings or {}
        self._tilings: dict[object, list[tuple[Tiling, Cost]]] = {}
        self._cycles: dict[object, float] = {}

    def groups(self, layers: Sequence[Layer], most: int = MOST_LAYERS) -> list[Group]:
        """The layers in order, cut into groups of at most so many, with the fewest cycles.

        Raises
        ------
        PlanError
            If the buffers don't hold a tile of a layer by itself.
        """
        alone = self._all_alone(layers)
        beside = self._all_together(layers, [group.cycles for group in alone], most)
        best: list[tuple[float, list[Group]]] = [(0.0, [])]
        for end in range(1, len(layers) + 1):
            found = [(best[end - 1][0] + alone[end - 1].cycles, [*best[end - 1][1], alone[end - 1]])]
            for begin, group in beside.get(end, ()):
                found.append((best[begin][0] + group.cycles, [*best[begin][1], group]))
            best.append(min(found, key=lambda each: each[0]))
        return best[-1][1]

    def follow(self, layers: Sequence[Layer], choices: Choices) -> list[Group]:
        """The layers in groups and cut as chosen before.

        Raises
        ------
        PlanError
            If the choices are not those of these layers, or the buffers don't hold them.
        """
        found, left = [], list(layers)
        for choice in (*choices, {}):
            while left and not left[0].tasks:
                found.append(Group((left.pop(0).step,), (), 0.0))
            those, left = left[: len(choice)], left[len(choice) :]
            names = [layer.name for layer in those]
            if names != list(choice):
                wanted = ", ".join(names) or "no more layers"
                raise PlanError(
                    f"layers side by side must be {wanted}, in the network's order, not {', '.join(choice)}"
                )
            if choice:
                found.append(self._chosen(those, choice))
        if left:
            raise PlanError(f"{left[0].name}: how it is cut must be given")
        return found

    def _chosen(self, layers: Sequence[Layer], choice: Mapping[str, Sequence[Tiling]]) -> Group:
        tasks = [task for layer in layers for task in layer.tasks]
        if len(layers) > 1 and _share_tables(tasks):
            raise PlanError(f"{' and '.join(choice)} can't be side by side: both load the same table")
        for layer in layers:
            if len(choice[layer.name]) not in (1, len(layer.tasks)):
                raise PlanError(f"{layer.name}: {len(layer.tasks)} passes must be given, not {len(choice[layer.name])}")
        room = self._whole if len(layers) == 1 else self._room(tasks)
        tilings = [tiling for layer in layers for tiling in _each(choice[layer.name], len(layer.tasks))]
        works = tuple(
            Work.of(task, tiling, given_tiling(task, self._engine, tiling, room))
            for task, tiling in zip(tasks, tilings, strict=True)
        )
        return Group(tuple(layer.step for layer in layers), works, 0.0)

    def _all_alone(self, layers: Sequence[Layer]) -> list[Group]:
        """Each layer by itself, pass by pass."""
        tasks = [task for layer in layers for task in layer.tasks if task.name not in self._given]
        self._find_all(((task, self._whole, MOST_TILINGS) for task in tasks), "looking for tiles")
        for task in tasks:
            if not self._tilings[task.shape, self._whole, MOST_TILINGS]:
                best_tilings(task, self._engine, self._whole)  # says why
        self._measure_all([(work,) for task in tasks for work in self._tried(task)], "comparing tiles")
        return [self._alone(layer) for layer in layers]

    def _tried(self, task: Pass) -> list[Work]:
        """A pass by itself, with each tiling that is measured."""
        return [Work.of(task, *each) for each in self._tilings[task.shape, self._whole, MOST_TILINGS]]

    def _alone(self, layer: Layer) -> Group:
        """Pass by pass."""
        works, cycles = [], 0.0
        for task in layer.tasks:
            given = self._given.get(task.name)
            if given is not None:
                cost = given_tiling(task, self._engine, given, self._whole)
                works.append(Work.of(task, given, cost))
                cycles += cost.order[0]
                continue
            each = min(self._tried(task), key=lambda work: self._measured((work,)))
            works.append(each)
            cycles += self._measured((each,))
        return Group((layer.step,), tuple(works), cycles)

    def _all_together(
        self, layers: Sequence[Layer], alone: Sequence[float], most: int
    ) -> dict[int, list[tuple[int, Group]]]:
        """Layers side by side that may be faster than one by one, by where they end: where they begin, and the best."""
        ends = [(begin, end) for end in range(1, len(layers) + 1) for begin in range(max(0, end - most), end - 1)]
        ends = [each for each in ends if self._may_be_together(layers[slice(*each)])]
        tasks = {each: [task for layer in layers[slice(*each)] for task in layer.tasks] for each in ends}
        rooms = ((each, self._room(each, by_rows)) for each in tasks.values() for by_rows in (True, False))
        self._find_all(((task, room, 1) for each, room in rooms for task in each), "looking for smaller tiles")
        tried = {each: self._tried_together(tasks[each], sum(alone[slice(*each)])) for each in ends}
        self._measure_all([works for each in tried.values() for works in each], "looking for layers side by side")
        found: dict[int, list[tuple[int, Group]]] = {}
        for begin, end in ends:
            if tried[begin, end]:
                works = min(tried[begin, end], key=self._measured)
                group = Group(tuple(layer.step for layer in layers[begin:end]), works, self._measured(works))
                found.setdefault(end, []).append((begin, group))
        return found

    def _may_be_together(self, layers: Sequence[Layer]) -> bool:
        tasks = [task for layer in layers for task in layer.tasks]
        if not all(layer.tasks for layer in layers) or _share_tables(tasks):
            return False
        return not any(task.name in self._given for task in tasks)

    def _tried_together(self, tasks: Sequence[Pass], alone: float) -> list[tuple[Work, ...]]:
        """Passes side by side that may take fewer cycles than by themselves."""
        found = [self._works(tasks, by_rows) for by_rows in (True, False)]
        return [
            works
            for works in found
            if works and max(sum(work.array for work in works), sum(work.port for work in works)) < GAIN * alone
        ]

    def _works(self, tasks: Sequence[Pass], by_rows: bool) -> tuple[Work, ...]:
        """The passes with tilings that leave room for the others; none if there is none."""
        room = self._room(tasks, by_rows)
        found = [self._tilings[task.shape, room, 1] for task in tasks]
        if not all(found):
            return ()
        return tuple(Work.of(task, *each[0]) for task, each in zip(tasks, found, strict=True))

    def _room(self, tasks: Sequence[Pass], by_rows: bool = False) -> Room:
        """Of each of some passes side by side."""
        whole, share = self._whole, len(tasks)
        return Room(
            map_words=whole.map_words // share,
            weight_steps=whole.weight_steps // share,
            by_rows=by_rows,
            shared=True,
            resident=sum(weight_steps(task, self._engine) for task in tasks) <= whole.weight_steps,
            pace=whole.pace,
        )

    def _find_all(self, asked: Iterable[tuple[Pass, Room, int]], what: str) -> None:
        """Have the best tilings of passes, so many of each; none if the buffers hold none."""
        left = {(task.shape, room, most): (task, room, most) for task, room, most in asked}
        left = {key: each for key, each in left.items() if key not in self._tilings}
        bare = {task: task.bare for task, _, _ in left.values()}
        tasks = [(bare[task], room, most) for task, room, most in left.values()]
        found = spread(_tilings, tasks, shared=(self._engine,), what=what, unit="shape")
        self._tilings.update(zip(left, found, strict=True))

    def _measure_all(self, asked: Iterable[tuple[Work, ...]], what: str) -> None:
        """Have the cycles of passes side by side."""
        left = {}
        for works in asked:
            if (key := self._key(works)) not in self._cycles and key not in left:
                bare = tuple(replace(work, task=work.task.bare, data=work.nowhere) for work in works)
                left[key] = bare, {edge: self._places[edge] for edge in _edges(works)}
        found = spread(_cycles, [*left.values()], shared=(self._engine, self._whole), what=what, unit="group")
        self._cycles.update(zip(left, found, strict=True))

    def _measured(self, works: tuple[Work, ...]) -> float:
        """Cycles of these passes side by side, and nothing else."""
        return self._cycles[self._key(works)]

    def _key(self, works: Sequence[Work]) -> object:
        """All that their cycles depend on."""
        names = {edge: number for number, edge in enumerate(_edges(works))}
        return tuple(
            (
                work.task.shape,
                work.tiling,
                tuple(names[edge] for edge in work.task.edges),
                work.task.source[1],
                work.task.target[1],
            )
            for work in works
        )


def _tilings(engine: EngineConfig, asked: tuple[Pass, Room, int]) -> list[tuple[Tiling, Cost]]:
    task, room, most = asked
    try:
        return best_tilings(task, engine, room, most)
    except PlanError:
        return []


def _cycles(engine: EngineConfig, whole: Room, asked: tuple[tuple[Work, ...], Mapping[str, Place]]) -> float:
    works, places = asked
    emitter = Emitter(engine, {edge: (edge, 0) for edge in places}, places, whole)
    emitter.add(*works)
    emitter.end()
    return EngineSchedule(engine, emitter.jobs, MemoryTiming(pace=whole.pace)).run().cycles


def _edges(works: Sequence[Work]) -> list[str]:
    """Of the maps that they read and write."""
    return list(dict.fromkeys(edge for work in works for edge in work.task.edges))


def _each(given: Sequence[Tiling], passes: int) -> Sequence[Tiling]:
    """Of each pass; one that is given is that of all."""
    return given if len(given) == passes else [*given] * passes


def _share_tables(tasks: Sequence[Pass]) -> bool:
    """Whether two load the same table."""
    tables = [each.first for task in tasks for each in task.tables]
    return len(set(tables)) < len(tables)
