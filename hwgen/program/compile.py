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
from hwgen.program.file import Program, Region
from hwgen.program.groups import MOST_LAYERS, Choices, Group, Grouping, Layer
from hwgen.program.jobs import Data, Emitter, Work
from hwgen.program.layout import WORD, blocks, pack_channelwise, pack_parameters, pack_tables, pack_weights
from hwgen.program.maps import Place, aligned, places, roots, steps
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import Room, Tiling, chunks


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What an engine is to do for one frame, whatever the weights are.

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
    places : mapping
        Every map in memory, by its edge.
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
    places: Mapping[str, Place]
    constants: int
    size: int

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
        outputs = zip(network.output_names, network.output_maps, self.outputs, strict=True)
        return Program(
            name=network.name,
            engine=self.engine,
            image=self.image,
            size=self.size,
            input=Region(name="input", map=network.input, address=self.input.address),
            outputs=tuple(Region(name=name, map=each, address=place.address) for name, each, place in outputs),
            layers=tuple(work.task.name for work in self.works),
            owners=self.owners,
            ends=host.describe(network),
        )

    @property
    def kept(self) -> Schedule:
        """The same jobs, at other addresses, after which all maps are still in memory."""
        return schedule(self.network, self.engine, choices=self.choices, kept=True)

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
) -> Schedule:
    """The jobs of a frame, and where everything lies.

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
        No map takes the place of another one, so that all are there in the end.

    Raises
    ------
    ModelError
        If the engine can't compute a layer.
    PlanError
        If a layer doesn't fit its buffers, or a given tiling not the layer; if there is no layer of that name, or
        choices are of other layers.
    """
    found = [Layer(step, passes(step.ops, step.takes, step.inside)) for step in steps(network)]
    for layer in found:
        for task in layer.tasks:
            _check_sums(task, engine)
    _check_names([task.name for layer in found for task in layer.tasks], tilings or {})
    anywhere = places(network, 0, [[layer.step] for layer in found])[0]
    whole = replace(room or Room.whole(engine), in_turn=not double_buffered, pace=pace)
    grouping = Grouping(engine, anywhere, whole, tilings)
    if choices is not None:
        groups = grouping.follow(found, choices)
    else:
        groups = grouping.groups(found, most=MOST_LAYERS if side_by_side and double_buffered else 1)
    works = [work for group in groups for work in group.works]
    order = [group.steps for group in groups]
    # Addresses don't touch the number of jobs: once to count them, once with the addresses.
    emitter = Emitter(engine, roots(network), places(network, 0, order)[0], whole)
    _emit(emitter, groups, [work.nowhere for work in works])
    data, end = _data(works, engine, aligned(len(emitter.jobs) * Job.BYTES))
    where, size = places(network, end, order, kept=kept)
    emitter = Emitter(engine, roots(network), where, whole)
    _emit(emitter, groups, data)
    return Schedule(
        network=network,
        engine=engine,
        works=tuple(replace(work, data=each) for work, each in zip(works, data, strict=True)),
        groups=tuple(emitter.groups),
        jobs=tuple(emitter.jobs),
        owners=tuple(emitter.owners),
        places=where,
        constants=end,
        size=size,
    )


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


def _emit(emitter: Emitter, groups: Sequence[Group], data: Sequence[Data]) -> None:
    """All jobs of all groups."""
    left = iter(data)
    for group in groups:
        emitter.add(*(replace(work, data=next(left)) for work in group.works))
    emitter.end()


def _check_names(names: Sequence[str], tilings: Mapping[str, Tiling]) -> None:
    for name in tilings:
        if name not in names:
            raise PlanError(f"a tiling must be of a layer that is computed: {', '.join(names)}; there is no {name!r}")


def _check_sums(task: Pass, engine: EngineConfig) -> None:
    """Refuse weights whose sums a slot may not hold."""
    if task.weights is None or task.maximum:
        return
    most = int(np.abs(task.weights).sum(axis=(1, 2, 3)).max()) * 128
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
