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
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Copy, Op
from hwgen.program.file import Program, Region
from hwgen.program.jobs import Data, Emitter, Place
from hwgen.program.layout import WORD, blocks, pack_channelwise, pack_parameters, pack_tables, pack_weights
from hwgen.program.passes import Pass, joined, passes
from hwgen.program.tiles import Tiling, best_tiling, chunks

#: Every region of memory begins at a multiple of this, where a burst must end.
ALIGNMENT = 4096


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
    tasks = tuple(task for ops, edges in _joined(network) for task in passes(ops, edges))
    for task in tasks:
        _check_sums(task, engine)
    known: dict[object, Tiling] = {}
    tilings = []
    for task in tasks:
        if task.shape not in known:
            known[task.shape] = best_tiling(task, engine)
        tilings.append(known[task.shape])
    # Addresses don't touch the number of jobs: once to count them, once with the addresses.
    nowhere = [Data(tables=(0,) * len(task.tables)) for task in tasks]
    count = len(_emit(tasks, tilings, engine, _maps(network, 0)[0], nowhere)[0])
    end, data = _aligned(count * Job.BYTES), []
    for task in tasks:
        sizes = [
            _weight_bytes(task, engine),
            _parameter_bytes(task),
            *(each.entries.size * WORD for each in task.tables),
        ]
        weights, parameters, *tables, end = np.cumsum([end, *sizes]).tolist()
        data.append(Data(weights=weights, parameters=parameters, tables=tuple(tables)))
        end = _aligned(end)
    places, size = _maps(network, end)
    jobs, layers = _emit(tasks, tilings, engine, places, data)
    return Schedule(
        network=network,
        engine=engine,
        tasks=tasks,
        layers=layers,
        jobs=tuple(jobs),
        places=places,
        data=tuple(data),
        constants=end,
        size=size,
    )


def _same(network: Network) -> dict[str, str]:
    """For each edge the one whose map in memory it is: a copy is the map itself."""
    same = {INPUT: INPUT}
    for layer, edges in zip(network.layers, network.edges, strict=True):
        same[layer.name] = same[edges[0]] if isinstance(layer, Copy) else layer.name
    return same


def _sources(network: Network) -> list[tuple[str, ...]]:
    """For each layer the maps in memory that it takes."""
    same = _same(network)
    return [tuple(same[edge] for edge in edges) for edges in network.edges]


def _joined(network: Network) -> list[tuple[list[Op], tuple[str, ...]]]:
    """Layers with those behind them that are computed on their way out, and the maps in memory that they take."""
    found: dict[str, tuple[list[Op], tuple[str, ...]]] = {}
    for layer, edges in zip(network.layers, _sources(network), strict=True):
        if isinstance(layer, Copy):
            continue
        before = found.get(edges[0]) if len(edges) == 1 else None
        alone = before and network.readers[edges[0]] == (layer.name,) and not network.places(edges[0])
        if before and alone and joined(before[0][-1], layer):
            del found[edges[0]]
            found[layer.name] = ([*before[0], layer], before[1])
        else:
            found[layer.name] = ([layer], edges)
    return list(found.values())


def _emit(
    tasks: tuple[Pass, ...],
    tilings: list[Tiling],
    engine: EngineConfig,
    places: Mapping[str, Place],
    data: list[Data],
) -> tuple[list[Job], tuple[LayerJobs, ...]]:
    emitter, layers = Emitter(engine, places), []
    for task, tiling, places_of in zip(tasks, tilings, data, strict=True):
        first = len(emitter.jobs)
        emitter.add(task, tiling, places_of)
        layers.append(LayerJobs(name=task.name, first=first, count=len(emitter.jobs) - first, tiling=tiling))
    return emitter.end(), tuple(layers)


def _aligned(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT


def _place(source: FeatureMap, address: int) -> Place:
    return Place(address=address, blocks=blocks(source.channels), height=source.height, width=source.width)


def _maps(network: Network, address: int) -> tuple[dict[str, Place], int]:
    """A place for each map, from an address on, and where they end.

    The input and the outputs have places of their own. Others share them: a map takes the first gap among those that
    are still to be read.
    """
    same, ends = _same(network), {}
    for number, edges in enumerate(_sources(network)):
        ends |= dict.fromkeys(edges, number)
    fixed = {INPUT, *(same[name] for name in network.output_layers)}
    places: dict[str, Place] = {}

    def put(edge: str, source: FeatureMap, alive: list[Place]) -> None:
        size, place = _place(source, 0).size, address
        for each in sorted(alive, key=lambda each: each.address):
            if place + size <= each.address:
                break
            place = max(place, _aligned(each.address + each.size))
        places[edge] = _place(source, place)

    put(INPUT, network.input, [])
    for layer in network.layers:
        if layer.name in fixed:
            put(layer.name, layer.output, list(places.values()))
    for number, layer in enumerate(network.layers):
        if layer.name not in fixed and not isinstance(layer, Copy):
            alive = [place for edge, place in places.items() if edge in fixed or ends[edge] >= number]
            put(layer.name, layer.output, alive)
    end = _aligned(max(place.address + place.size for place in places.values()))
    return {edge: places[each] for edge, each in same.items()}, end


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
