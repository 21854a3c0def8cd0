"""From a network to a program: passes, their tiles, places in memory, jobs, and the bytes of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from hwgen.errors import ModelError, PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Job, pack_jobs
from hwgen.network import host
from hwgen.network.graph import INPUT, Network
from hwgen.network.maps import FeatureMap
from hwgen.program.batch import batched, check_frames, together
from hwgen.program.file import Program, Region
from hwgen.program.groups import MOST_LAYERS, Choices, Group, Grouping, Layer
from hwgen.program.jobs import Data, Emitter, Work
from hwgen.program.layout import WORD, blocks, map_bytes, pack_channelwise, pack_parameters, pack_tables, pack_weights
from hwgen.program.maps import Batch, Place, Places, aligned, places, roots, steps
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import Room, Tiling, chunks


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What an engine is to do in a run, for one frame or several, whatever the weights are.

    Parameters
    ----------
    network : Network
    engine : EngineConfig
    works : tuple of Work
        The passes, how they are cut, and where weights, parameters and tables lie.
    groups : tuple of tuple of int
        Numbers of passes that are computed side by side.
    jobs : tuple of Job
    owners : tuple of int
        For each job its pass.
    turns : tuple of int
        For each job the number of its frame; of all frames at once how many there are.
    batch : Batch
        The frames of a run, and what is computed for all of them at once.
    frame_places : tuple of mapping
        For each frame every map in memory, by its edge.
    constants : int
        Where jobs, weights and parameters end.
    size : int
        Bytes of memory, from address 0 on: jobs, weights and parameters, maps.
    """

    network: Network
    engine: EngineConfig
    works: tuple[Work, ...]
    groups: tuple[tuple[int, ...], ...]
    jobs: tuple[Job, ...]
    owners: tuple[int, ...]
    turns: tuple[int, ...]
    batch: Batch
    frame_places: tuple[Mapping[str, Place], ...]
    constants: int
    size: int

    @property
    def frames(self) -> int:
        """Of a run."""
        return self.batch.frames

    @property
    def places(self) -> Mapping[str, Place]:
        """Every map of the first frame."""
        return self.frame_places[0]

    @property
    def input(self) -> Place:
        return self.places[INPUT]

    @property
    def outputs(self) -> tuple[Place, ...]:
        return tuple(self.places[name] for name in self.network.output_layers)

    @property
    def program(self) -> Program:
        """What the engine needs.

        Raises
        ------
        ModelError
            If weights are not known.
        """
        network = self.network
        ends = zip(network.output_names, network.output_maps, network.output_layers, strict=True)
        return Program(
            name=network.name,
            engine=self.engine,
            image=self.image,
            size=self.size,
            input=Region(name="input", map=network.input, address=self.input.address),
            outputs=tuple(self._region(*each) for each in ends),
            layers=tuple(work.task.name for work in self.works),
            owners=self.owners,
            ends=host.describe(network),
            batch=self.frames,
        )

    def _region(self, name: str, source: FeatureMap, layer: str) -> Region:
        """An output; if it is a part of another map, so are those of the frames that follow."""
        address, *others = (places[layer].address for places in self.frame_places)
        apart = others[0] - address if others else map_bytes(source)
        return Region(name=name, map=source, address=address, frame_bytes=None if apart == map_bytes(source) else apart)

    @property
    def kept(self) -> Schedule:
        """The same jobs, at other addresses, after which all maps are still in memory."""
        return schedule(self.network, self.engine, choices=self.choices, kept=True, frames=self.frames)

    @property
    def choices(self) -> Choices:
        """How the passes are cut, and which layers are side by side: `schedule` makes the same jobs of it."""
        groups = [[self.works[number] for number in group] for group in self.groups if group]
        return [
            {name: [work.tiling for work in works] for name, works in groupby(group, lambda work: work.task.name)}
            for group in groups
        ]

    @cached_property
    def image(self) -> bytes:
        """What lies in memory before the first frame: jobs, weights, parameters.

        Raises
        ------
        ModelError
            If weights are not known.
        """
        image = bytearray(self.constants)
        packed = pack_jobs(self.engine, self.jobs)
        image[: len(packed)] = packed
        for work in self.works:
            task, data = work.task, work.data
            pieces = [(data.weights, _weights(task, work.tiling, self.engine))]
            if task.parameters is not None:
                pieces.append((data.parameters, pack_parameters(task.parameters)))
            pieces += [(place, pack_tables(each.entries)) for place, each in zip(data.tables, task.tables, strict=True)]
            for address, packed in pieces:
                image[address : address + len(packed)] = packed
        return bytes(image)


def schedule(
    network: Network,
    engine: EngineConfig,
    *,
    side_by_side: bool = True,
    double_buffered: bool = True,
    tilings: Mapping[str, Tiling] | None = None,
    room: Room | None = None,
    pace: int = 1,
    choices: Choices | None = None,
    kept: bool = False,
    frames: int = 1,
) -> Schedule:
    """The jobs of a frame, or of several, and where everything lies.

    Parameters
    ----------
    side_by_side : bool
        Compute layers that follow each other at the same time, row by row, where that is thought to be faster.
    double_buffered : bool
        Load what the next jobs need while others are computed and stored. Otherwise a job's operands are loaded when
        all jobs before it have been computed and stored, and layers are computed one after the other.
    tilings : mapping of str to Tiling, optional
        How layers are to be cut, by their names, instead of as the compiler would; those are computed by themselves.
    room : Room, optional
        What may be taken of the map buffer and of the weight buffer, if not all.
    pace : int
        Cycles of the port for a beat, for which cycles shall be few. The program runs at any pace.
    choices : Choices, optional
        How all layers are cut and which are side by side (`Schedule.choices`), in place of a search.
    kept : bool
        No map takes the place of another one, so that all are there in the end; of several frames those of the last
        one, and those that are computed for all frames at once.
    frames : int
        That a run computes, from 1 to `hwgen.program.batch.MOST_FRAMES`.

    Raises
    ------
    ModelError
        If the engine can't compute a layer.
    PlanError
        If a layer doesn't fit its buffers, or a given tiling not the layer; if there is no layer of that name, choices
        are of other layers, or ``frames`` is out of range.
    """
    check_frames(frames)
    found = _layers(network)
    for layer in found:
        for task in layer.tasks:
            _check_sums(task, engine)
    _check_names([task.name for layer in found for task in layer.tasks], tilings or {})
    whole = replace(room or Room.whole(engine), in_turn=not double_buffered, pace=pace)
    batch = batched(network, engine, found, whole, frames)
    parts = _in_parts(found, batch)
    anywhere = places(network, 0, [[layer.step] for part in parts for layer in part], batch=batch)
    groupings = [Grouping(engine, each, whole, tilings) for each in (anywhere.of_frame[0], anywhere.of_all)]
    if choices is not None:
        by_part = [grouping.follow(*each) for grouping, each in zip(groupings, _split(parts, choices), strict=True)]
    else:
        most = MOST_LAYERS if side_by_side and double_buffered else 1
        by_part = [grouping.groups(part, most=most) for grouping, part in zip(groupings, parts, strict=True)]
    groups = [group for part in by_part for group in part]
    works = [work for group in groups for work in group.works]
    order = [group.steps for group in groups]
    # Addresses don't touch the number of jobs: once to count them, once with the addresses.
    where = places(network, 0, order, batch=batch)
    emitter = _emit(Emitter(engine, roots(network), where.of_all, whole), where, by_part, [w.nowhere for w in works])
    data, end = _data(works, engine, aligned(len(emitter.jobs) * Job.BYTES))
    where = places(network, end, order, kept=kept, batch=batch)
    emitter = _emit(Emitter(engine, roots(network), where.of_all, whole), where, by_part, data)
    return Schedule(
        network=network,
        engine=engine,
        works=tuple(replace(work, data=each) for work, each in zip(works, data, strict=True)),
        groups=tuple(emitter.groups),
        jobs=tuple(emitter.jobs),
        owners=tuple(emitter.owners),
        turns=tuple(emitter.turns),
        batch=batch,
        frame_places=where.of_frame,
        constants=end,
        size=where.end,
    )


def in_order(network: Network, engine: EngineConfig, pace: int, frames: int) -> list[str]:
    """The names of the layers that compute, in the order of their jobs: those of all frames at once come last.

    Raises
    ------
    PlanError
        If the engine can't compute a layer.
    """
    try:
        found = _layers(network)
    except ModelError as error:
        raise PlanError(str(error)) from None
    room = replace(Room.whole(engine), pace=pace)
    parts = _in_parts(found, batched(network, engine, found, room, frames))
    return [layer.name for part in parts for layer in part]


def _layers(network: Network) -> list[Layer]:
    return [Layer(step, passes(step.ops, step.takes, step.inside)) for step in steps(network)]


def _in_parts(layers: Sequence[Layer], batch: Batch) -> tuple[list[Layer], list[Layer]]:
    """Those that are computed frame by frame, and then those of all frames at once."""
    by_frame = [layer for layer in layers if layer.step.name not in batch.together]
    of_all = [layer for layer in layers if layer.step.name in batch.together]
    return by_frame, [
        Layer(layer.step, tuple(together(task, batch.frames) for task in layer.tasks)) for layer in of_all
    ]


def _split(parts: tuple[list[Layer], list[Layer]], choices: Choices) -> list[tuple[list[Layer], Choices]]:
    """Both parts with the choices of their layers.

    Raises
    ------
    PlanError
        If layers of both are side by side.
    """
    by_frame, of_all = parts
    names = {layer.name for layer in of_all}
    for choice in choices:
        if names & {*choice} and not names >= {*choice}:
            raise PlanError(f"{' and '.join(choice)} can't be side by side: some of them are computed frame by frame")
    return [
        (by_frame, [choice for choice in choices if not names & {*choice}]),
        (of_all, [choice for choice in choices if names & {*choice}]),
    ]


def _data(works: Sequence[Work], engine: EngineConfig, address: int) -> tuple[list[Data], int]:
    """Where weights, parameters and tables of each pass lie, from an address on, and where they end."""
    found = []
    for task in (work.task for work in works):
        sizes = [_weight_bytes(task, engine), _parameter_bytes(task)]
        sizes += [each.entries.size * WORD for each in task.tables]
        weights, parameters, *tables, end = np.cumsum([address, *sizes]).tolist()
        found.append(Data(weights=weights, parameters=parameters, tables=tuple(tables)))
        address = aligned(end)
    return found, address


def _emit(emitter: Emitter, where: Places, parts: Sequence[Sequence[Group]], data: Sequence[Data]) -> Emitter:
    """All jobs: those of the groups of the first part frame by frame, and then those of the other part."""
    by_frame, of_all = parts
    passes_of_frame = sum(len(group.works) for group in by_frame)
    turns = [(by_frame, each, 0) for each in where.of_frame] + [(of_all, where.of_all, passes_of_frame)]
    for turn, (groups, maps, first) in enumerate(turns):
        emitter.begin(turn, maps, first)
        left = iter(data[first:])
        for group in groups:
            emitter.add(*(replace(work, data=next(left)) for work in group.works))
    emitter.end()
    return emitter


def _check_names(names: Sequence[str], tilings: Mapping[str, Tiling]) -> None:
    for name in tilings:
        if name not in names:
            raise PlanError(f"a tiling must be of a layer that is computed: {', '.join(names)}; there is no {name!r}")


def _check_sums(task: Pass, engine: EngineConfig) -> None:
    """Refuse weights whose sums a slot may not hold."""
    if task.weights is None or task.maximum:
        return
    most = max(int(np.abs(weights).sum()) for weights in task.weights) * 128
    if most >= 1 << engine.sum_bits - 1:
        raise ModelError(f"{task.name}: sums must fit the engine's {engine.sum_bits} bits (sum_bits), not reach {most}")


def _weight_bytes(task: Pass, engine: EngineConfig) -> int:
    folds = 1 if task.shares_weights else task.folds(engine)
    channels = 1 if task.channelwise else task.channels
    return folds * channels * task.window.taps * engine.maps


def _parameter_bytes(task: Pass) -> int:
    return LANES * WORD if task.shares_parameters else blocks(task.maps) * LANES * WORD


def _weights(task: Pass, tiling: Tiling, engine: EngineConfig) -> bytes:
    """Of all folds, each chunk by chunk."""
    if task.weights is None:
        raise ModelError(f"{task.name}: weights must be known for a program; those of the network aren't")
    packed, most = [], task.fold_maps(engine)
    for first in range(0, len(task.weights), most):
        fold = task.weights[first : first + most]
        for channels, *taps in chunks(task, tiling):
            rows, columns = (slice(*each) for each in taps)
            if task.channelwise:
                part = fold[:, 0, rows, columns].reshape(len(fold), -1)
                whole = np.zeros((part.shape[1], 1, LANES), np.int64)
                whole[:, 0, : len(fold)] = part.T
                packed.append(pack_channelwise(whole, engine.maps))
            else:
                packed.append(pack_weights(fold[:, slice(*channels), rows, columns], engine.maps))
    return b"".join(packed)
