"""From a network to a program: passes, their tiles, places in memory, jobs, and the bytes of it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Job
from hwgen.network.graph import INPUT, Network
from hwgen.program.file import Program, Region
from hwgen.program.jobs import Data, Emitter
from hwgen.program.layout import WORD, blocks, pack_channelwise, pack_parameters, pack_tables, pack_weights
from hwgen.program.maps import Place, aligned, places, roots, steps
from hwgen.program.passes import Pass, passes
from hwgen.program.tiles import Tiling, best_tiling, chunks


@dataclass(frozen=True, kw_only=True)
class LayerJobs:
    """The jobs of a layer's pass, from ``first`` on, and how it is cut."""

    name: str
    first: int
    count: int
    tiling: Tiling


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What an engine is to do for one frame, whatever the weights are.

    Parameters
    ----------
    network : Network
    engine : EngineConfig
    tasks : tuple of Pass
    layers : tuple of LayerJobs
        For each task.
    jobs : tuple of Job
    places : mapping
        Every map in memory, by its edge.
    data : tuple of Data
        Where weights, parameters and tables lie, for each task.
    constants : int
        Where jobs, weights and parameters end.
    size : int
        Bytes of memory, from address 0 on: jobs, weights and parameters, maps.
    """

    network: Network
    engine: EngineConfig
    tasks: tuple[Pass, ...]
    layers: tuple[LayerJobs, ...]
    jobs: tuple[Job, ...]
    places: Mapping[str, Place]
    data: tuple[Data, ...]
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
            layers=tuple((layer.name, layer.count) for layer in self.layers),
        )

    @cached_property
    def image(self) -> bytes:
        """What lies in memory before the first frame: jobs, weights, parameters.

        Raises
        ------
        ModelError
            If weights are not known.
        """
        image = bytearray(self.constants)
        packed = b"".join(map(bytes, self.jobs))
        image[: len(packed)] = packed
        for task, layer, data in zip(self.tasks, self.layers, self.data, strict=True):
            pieces = [(data.weights, _weights(task, layer.tiling, self.engine))]
            if task.parameters is not None:
                pieces.append((data.parameters, pack_parameters(task.parameters)))
            pieces += [(place, pack_tables(each.entries)) for place, each in zip(data.tables, task.tables, strict=True)]
            for address, packed in pieces:
                image[address : address + len(packed)] = packed
        return bytes(image)


def schedule(network: Network, engine: EngineConfig) -> Schedule:
    """The jobs of a frame, and where everything lies.

    Raises
    ------
    ModelError
        If the engine can't compute a layer.
    PlanError
        If a layer doesn't fit its buffers.
    """
    order = [[step] for step in steps(network)]
    tasks = tuple(task for those in order for step in those for task in passes(step.ops, step.edges, step.inside))
    for task in tasks:
        _check_sums(task, engine)
    known: dict[object, Tiling] = {}
    tilings = []
    for task in tasks:
        if task.shape not in known:
            known[task.shape] = best_tiling(task, engine)[0]
        tilings.append(known[task.shape])
    # Addresses don't touch the number of jobs: once to count them, once with the addresses.
    nowhere = [Data(tables=(0,) * len(task.tables)) for task in tasks]
    count = len(_emit(tasks, tilings, engine, roots(network), places(network, 0, order)[0], nowhere)[0])
    end, data = aligned(count * Job.BYTES), []
    for task in tasks:
        sizes = [
            _weight_bytes(task, engine),
            _parameter_bytes(task),
            *(each.entries.size * WORD for each in task.tables),
        ]
        weights, parameters, *tables, end = np.cumsum([end, *sizes]).tolist()
        data.append(Data(weights=weights, parameters=parameters, tables=tuple(tables)))
        end = aligned(end)
    found, size = places(network, end, order)
    jobs, layers = _emit(tasks, tilings, engine, roots(network), found, data)
    return Schedule(
        network=network,
        engine=engine,
        tasks=tasks,
        layers=layers,
        jobs=tuple(jobs),
        places=found,
        data=tuple(data),
        constants=end,
        size=size,
    )


def _emit(
    tasks: tuple[Pass, ...],
    tilings: list[Tiling],
    engine: EngineConfig,
    where: Mapping[str, tuple[str, int]],
    found: Mapping[str, Place],
    data: list[Data],
) -> tuple[list[Job], tuple[LayerJobs, ...]]:
    emitter, layers = Emitter(engine, where, found), []
    for task, tiling, its_data in zip(tasks, tilings, data, strict=True):
        first = len(emitter.jobs)
        emitter.add(task, tiling, its_data)
        layers.append(LayerJobs(name=task.name, first=first, count=len(emitter.jobs) - first, tiling=tiling))
    return emitter.end(), tuple(layers)


def _check_sums(task: Pass, engine: EngineConfig) -> None:
    """Refuse weights whose sums a slot may not hold."""
    if task.weights is None or task.maximum:
        return
    most = int(np.abs(task.weights).sum(axis=(1, 2, 3)).max()) * 128
    if most >= 1 << engine.sum_bits - 1:
        raise ModelError(f"{task.name}: sums must fit the engine's {engine.sum_bits} bits (sum_bits), not reach {most}")


def _weight_bytes(task: Pass, engine: EngineConfig) -> int:
    folds = 1 if task.shares_weights else task.folds(engine)
    channels = len(task.sources) if task.channelwise else task.channels
    return folds * channels * task.window.taps * engine.maps


def _parameter_bytes(task: Pass) -> int:
    if task.add:
        return 0
    return LANES * WORD if task.shares_parameters else blocks(task.maps) * LANES * WORD


def _weights(task: Pass, tiling: Tiling, engine: EngineConfig) -> bytes:
    """Of all folds, each chunk by chunk."""
    if task.weights is None:
        raise ModelError(f"{task.name}: weights must be known for a program; those of the network aren't")
    if task.add:
        return pack_channelwise(np.repeat(np.eye(2, dtype=np.int64)[..., None], LANES, axis=2), engine.maps)
    packed, most = [], task.fold_maps(engine)
    for first in range(0, len(task.weights), most):
        fold = task.weights[first : first + most]
        if task.channelwise:
            whole = np.zeros((task.window.taps, 1, LANES), np.int64)
            whole[:, 0, : len(fold)] = fold.reshape(len(fold), -1).T
            packed.append(pack_channelwise(whole, engine.maps))
            continue
        for channels, taps in chunks(task, tiling):
            packed.append(pack_weights(fold[:, slice(*channels), slice(*taps)], engine.maps))
    return b"".join(packed)
