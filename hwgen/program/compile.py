"""Compiler from a quantised network to the engine's tilings, memory addresses, jobs and program bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, groupby
from math import inf

import numpy as np

from hwgen.errors import ModelError, PlanError
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Job, job_bytes, pack_jobs
from hwgen.gateware.engine.map_product import PRODUCT_BITS
from hwgen.network import host
from hwgen.network.graph import Network
from hwgen.network.ops import Conv
from hwgen.program.array_pass import Pass
from hwgen.program.batch import batched, check_frames, for_all_frames
from hwgen.program.file import MapRegion, Program
from hwgen.program.groups import MAX_LAYERS, Choices, Grouping, JobGroup, LayerPasses, MapMemoryModel, check_rings
from hwgen.program.jobs import Emitter, PassAddresses, TiledPass
from hwgen.program.keep import KeptMap, best_maps, check_kept, free_bytes, keepable, placed_maps, ring_readers
from hwgen.program.layout import WORD, blocks, pack_channelwise, pack_parameters, pack_tables, pack_weights
from hwgen.program.maps import (
    Batch,
    FusedLayer,
    KeptAt,
    MapLocation,
    MapLocations,
    aligned,
    allocate_maps,
    fused_layers,
    lifetimes,
    roots,
)
from hwgen.program.passes import passes
from hwgen.program.tiles import Chunk, Room, Tiling, best_tilings, chunks, fold_steps, operand_bytes, pieces
from hwgen.program.unfold import Unfold, unfold_options, unfoldable, unfolded, unfolded_conv, unfolds_of

#: End of an error message: what to do if an engine lacks a unit or room for a layer.
_OTHER_ENGINE = "plan an engine for this network, or use --template stream"
#: Maximum number of unfolded layouts of a network input whose cycles are compared with the plain map's.
MAX_LAYOUTS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramSchedule:
    """Compiled network for an engine: all jobs, and the memory addresses of maps and constants, for one or more frames.

    Neither depends on the weights.

    Parameters
    ----------
    network : Network
    computed : Network
        The network as the engine computes it: some of its convolutions can read unfolded input maps.
    engine : EngineConfig
    tiled_passes : tuple of TiledPass
        Passes with their tilings and the addresses of their weights, parameters and tables, in the order of their jobs.
    groups : tuple of tuple of int
        Groups of passes that are computed side by side, as indices into ``tiled_passes``.
    jobs : tuple of Job
    owners : tuple of int
        Index of each job's pass in ``tiled_passes``.
    job_frames : tuple of int
        Index of each job's frame. A job that computes all frames at once has the index ``frames``.
    batch : Batch
        Number of frames of a run, and the layers that are computed for all frames at once.
    frame_locations : tuple of mapping
        Memory locations of the maps of each frame, by edge.
    constants : int
        First byte address after jobs, weights, parameters and tables.
    size : int
        Bytes of memory, starting at address 0, that jobs, weights, parameters, tables and maps occupy.
    kept_maps : mapping of str to KeptAt
        Places in the map memory of the maps that are kept on the chip, by name.
    """

    network: Network
    computed: Network
    engine: EngineConfig
    tiled_passes: tuple[TiledPass, ...]
    groups: tuple[tuple[int, ...], ...]
    jobs: tuple[Job, ...]
    owners: tuple[int, ...]
    job_frames: tuple[int, ...]
    batch: Batch
    frame_locations: tuple[Mapping[str, MapLocation], ...]
    constants: int
    size: int
    kept_maps: Mapping[str, KeptAt]

    @property
    def frames(self) -> int:
        """Number of frames that one run of the engine computes."""
        return self.batch.frames

    @property
    def locations(self) -> Mapping[str, MapLocation]:
        """Mapping of the `MapLocation` of every feature map of the first frame, by name of the layer that writes it."""
        return self.frame_locations[0]

    @property
    def inputs(self) -> tuple[MapLocation, ...]:
        """Tuple of the `MapLocation` of each input map of the first frame, in the network's order."""
        return tuple(self.locations[edge] for edge in self.network.inputs)

    @property
    def outputs(self) -> tuple[MapLocation, ...]:
        """Tuple of memory locations (`MapLocation`) of the first frame's output maps, in the network's order."""
        return tuple(self.locations[name] for name in self.network.output_layers)

    @property
    def program(self) -> Program:
        """Engine `Program` as a file holds it: memory image, addresses of inputs and outputs, and each job's layer.

        Raises
        ------
        ModelError
            If weights are not known.
        """
        network = self.network
        inputs = zip(network.input_names, network.inputs, strict=True)
        outputs = zip(network.output_names, network.output_layers, strict=True)
        return Program(
            name=network.name,
            engine=self.engine,
            image=self.image,
            size=self.size,
            inputs=tuple(self._region(*each) for each in inputs),
            outputs=tuple(self._region(*each) for each in outputs),
            layers=tuple(tiled_pass.task.name for tiled_pass in self.tiled_passes),
            owners=self.owners,
            ends=host.describe(network),
            batch=self.frames,
        )

    def _region(self, name: str, edge: str) -> MapRegion:
        """Return the `MapRegion` of a network input or output, with the byte distance of frames unless adjacent."""
        address, *others = (locations[edge].address for locations in self.frame_locations)
        region = MapRegion(
            name=name, map=self.network.maps[edge], address=address, unfold=unfolds_of(self.computed).get(edge)
        )
        distance = others[0] - address if others else region.size
        return region if distance == region.size else replace(region, frame_bytes=distance)

    @property
    def kept(self) -> ProgramSchedule:
        """Schedule (`ProgramSchedule`) of the same choices with every map at its own off-chip address."""
        return schedule(
            self.network,
            self.engine,
            choices=self.choices,
            kept=True,
            frames=self.frames,
            kept_maps={},
        )

    @property
    def choices(self) -> Choices:
        """List with a dict per group of alternating layers: tilings of each layer's passes, by the layer's name."""
        groups = [[self.tiled_passes[number] for number in group] for group in self.groups if group]
        return [
            {
                name: [tiled_pass.tiling for tiled_pass in tiled_passes]
                for name, tiled_passes in groupby(group, lambda tiled_pass: tiled_pass.task.name)
            }
            for group in groups
        ]

    @cached_property
    def image(self) -> bytes:
        """Bytes of the initial memory of a run, from address 0: jobs, weights, parameters and lookup tables.

        Raises
        ------
        ModelError
            If weights are not known.
        """
        image = bytearray(self.constants)
        packed = pack_jobs(self.engine, self.jobs)
        image[: len(packed)] = packed
        for tiled_pass in self.tiled_passes:
            task, data = tiled_pass.task, tiled_pass.data
            pieces = [(data.weights, _pack_weights(task, tiled_pass.tiling, self.engine))]
            if task.fixed is not None:
                constants = task.fixed.packed_constants(task.maps, task.split.members)
                pieces.append((data.parameters, constants.astype("<i8").tobytes()))
            elif task.parameters is not None:
                pieces.append((data.parameters, pack_parameters(task.parameters)))
            pieces += [
                (address, pack_tables(table.entries)) for address, table in zip(data.tables, task.tables, strict=True)
            ]
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
    pace: Fraction | int = 1,
    choices: Choices | None = None,
    kept: bool = False,
    frames: int = 1,
    keep: Collection[str] | None = None,
    kept_maps: Mapping[str, KeptAt] | None = None,
) -> ProgramSchedule:
    """Compile a network for an engine; return a `ProgramSchedule`: tilings, memory and all jobs with addresses.

    Parameters
    ----------
    network : Network
    engine : EngineConfig
    side_by_side : bool
        Compute consecutive layers at the same time, row by row, if the estimate says that fewer cycles are needed.
    double_buffered : bool
        Load the operands of the next jobs while other jobs are computed and stored. Otherwise a job's operands are
        loaded after all previous jobs have been computed and stored, and layers are computed one after the other.
    tilings : mapping of str to Tiling, optional
        Tilings of layers by name, in place of the compiler's choice. Such layers are not computed side by side.
    room : Room, optional
        Words of the map buffer and steps of the weight buffer that the program may use; by default all of them.
    pace : Fraction or int
        Cycles per beat of the memory port that the search assumes. The program runs at any pace.
    choices : Choices, optional
        Tilings of all layers and the groups side by side (`ProgramSchedule.choices`), in place of a search.
    kept : bool
        Give every map addresses of its own, so that all maps remain in memory at the end of the run. With several
        frames, these are the maps of the last frame, and the maps that are computed for all frames at once.
    frames : int
        Number of frames that a run computes, from 1 to `hwgen.program.batch.MAX_FRAMES`.
    keep : collection of str, optional
        Names of the maps that can be kept in the engine's map memory; by default all. Of these, the maps are kept that
        save the most bytes.
    kept_maps : mapping of str to KeptAt, optional
        Places of the maps in the map memory, in place of a choice; with ``choices``, none by default.

    Raises
    ------
    ModelError
        If the engine can't compute a layer.
    PlanError
        If a layer doesn't fit the buffers, or a tiling doesn't fit its layer; if ``tilings`` or ``choices`` name other
        layers, or ``frames`` is out of range.
    """
    check_frames(frames)
    whole = replace(room or Room.whole(engine), in_turn=not double_buffered, pace=pace)
    limit = MAX_LAYERS if side_by_side and double_buffered else 1
    compiler = _Compiler(network, engine, whole, tilings or {}, frames, limit, keep)
    if choices is not None:
        rows = {name: place.rows for name, place in (kept_maps or {}).items()}
        chosen = compiler.follow(choices, rows)
    else:
        chosen = compiler.search()
    computed, batch, by_part, rows = chosen.variant.network, chosen.variant.batch, chosen.by_part, chosen.rows
    groups = [group for part in by_part for group in part]
    order = [group.steps for group in groups]
    possible = keepable(computed, engine, order, batch, rows)
    if kept_maps is None:
        kept_maps = placed_maps({name: possible[name] for name in rows if name in possible}, engine)
    check_kept(kept_maps, computed, engine, order, batch, rows)
    # The number of jobs does not depend on addresses: count the jobs first, then make them with their addresses.
    trial = allocate_maps(computed, 0, order, batch=batch, kept_maps=kept_maps)
    for group in groups:
        check_rings(group.tiled_passes, {edge: location.height for edge, location in trial.of_frame[0].items()})
    tiled_passes = [tiled_pass for group in groups for tiled_pass in group.tiled_passes]
    unplaced = [tiled_pass.unplaced_data for tiled_pass in tiled_passes]
    emitter = _emit(_emitter(engine, computed, trial, whole), trial, by_part, unplaced)
    data, end = _allocate(tiled_passes, engine, aligned(len(emitter.jobs) * job_bytes(engine)))
    locations = allocate_maps(computed, end, order, kept=kept, batch=batch, kept_maps=kept_maps)
    emitter = _emit(_emitter(engine, computed, locations, whole), locations, by_part, data)
    return ProgramSchedule(
        network=network,
        computed=computed,
        engine=engine,
        tiled_passes=tuple(
            replace(tiled_pass, data=addresses) for tiled_pass, addresses in zip(tiled_passes, data, strict=True)
        ),
        groups=tuple(emitter.groups),
        jobs=tuple(emitter.jobs),
        owners=tuple(emitter.owners),
        job_frames=tuple(emitter.job_frames),
        batch=batch,
        frame_locations=locations.of_frame,
        constants=end,
        size=locations.end,
        kept_maps=kept_maps,
    )


@dataclass(frozen=True, eq=False)
class _Variant:
    """Network with some inputs stored unfolded (kernel taps as channels), its layers' passes, and their searches.

    Parameters
    ----------
    network : Network
        The network as it is computed.
    layouts : mapping of str to Unfold
        Layouts of unfolded inputs, by the name of the convolution that reads the input.
    layers : sequence of LayerPasses
        All layers in the network's order.
    parts : tuple
        Layers that are computed frame by frame, and layers that are computed for all frames at once.
    groupings : tuple of Grouping
        Search for the groups of each part.
    """

    network: Network
    layouts: Mapping[str, Unfold]
    layers: Sequence[LayerPasses]
    batch: Batch
    parts: tuple[list[LayerPasses], list[LayerPasses]]
    groupings: tuple[Grouping, ...]


@dataclass(frozen=True, eq=False)
class _ChosenGroups:
    """Chosen groups of layers for a variant of a network: computed frame by frame, and for all frames at once.

    ``rows`` has the number of rows that the map memory holds of each map there.
    """

    variant: _Variant
    by_part: list[list[JobGroup]]
    rows: dict[str, int]

    @property
    def cycles(self) -> float:
        """Number of scheduled cycles (float), the sum over all chosen groups of passes (runs of the array)."""
        return sum(grouping.cycles(part) for grouping, part in zip(self.variant.groupings, self.by_part, strict=True))


class _Compiler:
    """Search for the memory layouts of inputs, tilings of layers, and groups of layers whose jobs alternate."""

    def __init__(
        self,
        network: Network,
        engine: EngineConfig,
        whole: Room,
        tilings: Mapping[str, Tiling],
        frames: int,
        max_layers: int,
        keep: Collection[str] | None,
    ) -> None:
        self._network, self._engine, self._whole, self._tilings = network, engine, whole, tilings
        self._frames, self._max_layers, self._keep = frames, max_layers, keep
        self._layers = _layers(network)
        for layer in self._layers:
            for task in layer.tasks:
                _check_sums(task, engine)
        _check_names([task.name for layer in self._layers for task in layer.tasks], tilings)

    def follow(self, choices: Choices, rows: dict[str, int]) -> _ChosenGroups:
        """Return `_ChosenGroups`: groups and tilings stated in ``choices``, with ``rows`` rows in the map memory."""
        layouts = {name: _unfolded_size(tilings[0]) for choice in choices for name, tilings in choice.items()}
        for choice in choices:
            for name, (_, *others) in choice.items():
                if any(any(_unfolded_size(tiling)) for tiling in others):
                    raise PlanError(
                        f"{name}: unfold_columns and unfold_rows must be 0 in every pass after the layer's first one"
                    )
        variant = self._variant(self._layouts(layouts))
        by_frame, of_all = (
            [layer.keeping(_rows_of_edges(variant.network, rows)) for layer in part] for part in variant.parts
        )
        by_part = [
            grouping.follow(*part)
            for grouping, part in zip(variant.groupings, _by_part((by_frame, of_all), choices), strict=True)
        ]
        return _ChosenGroups(variant, by_part, rows)

    def search(self) -> _ChosenGroups:
        """Return `_ChosenGroups`: the layers' input layouts, groups and tilings that take the fewest scheduled cycles.

        For each input, the plain map and the layouts that are best by estimate are compared.
        """
        fixed = self._layouts({name: _unfolded_size(tiling) for name, tiling in self._tilings.items()})
        best = self._searched(self._variant(fixed))
        for name, (_, conv) in unfoldable(self._network).items():
            if name not in self._tilings:
                base = best.variant
                for unfold in self._promising_layouts(name, unfold_options(conv)):
                    with suppress(PlanError):  # the larger map has no place, or its layer no tile
                        unfolded_choice = self._searched(self._variant({**base.layouts, name: unfold}, base))
                        best = min(best, unfolded_choice, key=lambda choice: choice.cycles)
        return best

    def _layouts(self, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Unfold]:
        """Return a dict by layer name of the `Unfold` layout of the layer's input, given rows and columns per pixel.

        Raises
        ------
        PlanError
            If a layer's input can't be unfolded in this way.
        """
        readers, layouts = unfoldable(self._network), {}
        for name, size in sizes.items():
            if any(size):
                possible = _layouts_by_size(readers[name][1]) if name in readers else {}
                if size not in possible:
                    allowed = ", or ".join(f"{rows} and {columns}" for rows, columns in ((0, 0), *possible))
                    given = f"{size[0]} and {size[1]}"
                    raise PlanError(f"{name}: unfold_rows and unfold_columns must be {allowed}, not {given}")
                layouts[name] = possible[size]
        return layouts

    def _variant(self, layouts: Mapping[str, Unfold], base: _Variant | None = None) -> _Variant:
        """Return a `_Variant`: the network with given input layouts; it shares the search results of ``base``."""
        network, engine = unfolded(self._network, layouts), self._engine
        layers = [self._unfolded(layer, layouts) for layer in self._layers]
        batch, parts = _divided_by_frames(network, layers, engine, self._whole, self._frames)
        trial = allocate_maps(network, 0, [[layer.step] for part in parts for layer in part], batch=batch)
        frame_locations = trial.of_frame if engine.has_cores else trial.of_frame[:1]
        locations = frame_locations, [trial.of_all]
        if base:
            groupings = [grouping.moved(maps) for grouping, maps in zip(base.groupings, locations, strict=True)]
        else:
            groupings = [Grouping(engine, maps, self._whole, self._tilings, roots(network)) for maps in locations]
        return _Variant(network, layouts, layers, batch, parts, tuple(groupings))

    @staticmethod
    def _unfolded(layer: LayerPasses, layouts: Mapping[str, Unfold]) -> LayerPasses:
        """Return `LayerPasses`: a layer with its passes, as an unfolded convolution if ``layouts`` has its name."""
        if layer.name not in layouts:
            return layer
        conv, *behind = layer.step.ops
        assert isinstance(conv, Conv)
        step = replace(layer.step, ops=(unfolded_conv(conv, layouts[layer.name]), *behind))
        return LayerPasses(step, passes(step.ops, step.takes, step.inside))

    def _promising_layouts(self, name: str, options: Sequence[Unfold]) -> list[Unfold]:
        """Return a list of at most `MAX_LAYOUTS` `Unfold` layouts of a layer's input, estimated faster than plain."""
        if not options:
            return []
        (plain,) = (layer for layer in self._layers if layer.name == name)
        estimates = []
        for unfold in options:
            cycles = self._estimate(self._unfolded(plain, {name: unfold}))
            estimates.append((cycles, len(estimates), unfold))
        limit = self._estimate(plain)
        return [unfold for cycles, _, unfold in sorted(estimates)[:MAX_LAYOUTS] if cycles < limit]

    def _estimate(self, layer: LayerPasses) -> float:
        """Return the estimated cycles of a layer's passes, one after the other; infinity if a pass has no tile."""
        cycles = 0.0
        for task in layer.tasks:
            try:
                ((_, cost),) = best_tilings(task, self._engine, self._whole)
            except PlanError:
                return inf
            cycles += cost.order[0]
        return cycles

    def _searched(self, variant: _Variant) -> _ChosenGroups:
        """Return `_ChosenGroups`: the groups and tilings of fewest cycles found for a variant of the network."""
        order = [[layer.step] for part in variant.parts for layer in part]
        search = _Search(
            variant.network, self._engine, variant.batch, variant.parts, order, variant.groupings, self._max_layers
        )
        return _ChosenGroups(variant, *search.best(self._keep))


def _unfolded_size(tiling: Tiling) -> tuple[int, int]:
    """Return a pair: a tiling's rows and columns per unfolded pixel; 0 rows: all kernel rows, 0 columns: none."""
    return tiling.unfold_rows, tiling.unfold_columns


def _layouts_by_size(conv: Conv) -> dict[tuple[int, int], Unfold]:
    """Return a dict by (rows, columns) per pixel of a convolution's possible `Unfold` layouts of its input."""
    rows = conv.window.kernel[0]
    return {(unfold.rows % rows, unfold.columns): unfold for unfold in unfold_options(conv)}


def _rows_of_edges(network: Network, rows: Mapping[str, int]) -> dict[str, int]:
    """Return a dict by map name of rows in the map memory, from ``rows`` of the stored maps that contain them."""
    return {edge: rows[root] for edge, (root, _) in roots(network).items() if root in rows}


@dataclass(frozen=True)
class _Search:
    """Search for the maps to hold in on-chip map memory, and for the fastest tilings and groups with them.

    Parameters
    ----------
    parts : tuple
        Layers that are computed frame by frame, and layers that are computed for all frames at once.
    order : sequence of sequence of FusedLayer
        Steps of all layers.
    groupings : sequence of Grouping
        Search for the groups of each part.
    max_layers : int
        Maximum number of layers side by side.
    """

    network: Network
    engine: EngineConfig
    batch: Batch
    parts: tuple[list[LayerPasses], list[LayerPasses]]
    order: Sequence[Sequence[FusedLayer]]
    groupings: Sequence[Grouping]
    max_layers: int

    def best(self, keep: Collection[str] | None) -> tuple[list[list[JobGroup]], dict[str, int]]:
        """Return a pair: two lists of the fastest `JobGroup` (per frame, for all frames at once), and kept rows by map.

        Maps that are kept take room from strips of others. The search therefore tries all maps that can be kept, and
        only those whose lifetimes overlap with no map too large to be kept whole.
        """
        possible = keepable(self.network, self.engine, self.order, self.batch)
        names = {name for name in possible if keep is None or name in keep}
        readers = ring_readers(self.network, self.order, self.batch) if self.engine.has_map_memory else {}
        readers = {name: steps for name, steps in readers.items() if keep is None or name in keep}
        lives = lifetimes(self.network, self.order, self.batch)
        large = {
            index
            for name in readers
            if name not in possible
            for index in range(lives[name].first, lives[name].last + 1)
        }
        beside = {name for name in names if large & {*range(possible[name].first, possible[name].last + 1)}}
        options = []
        for candidates in [names, names - beside] if beside else [names]:
            kept = best_maps({name: possible[name] for name in candidates}, self.engine)
            options.append(self._groups(kept, readers))
        by_part, kept = min(options, key=lambda option: sum(group.cycles for part in option[0] for group in part))
        rows = {name: each.rows for name, each in kept.items()}
        for part in by_part:
            for group in part:
                rows |= {edge: count for edge, count in group.kept_rows.items() if edge in readers and edge not in rows}
        return by_part, rows

    def _groups(
        self, kept: dict[str, KeptMap], readers: Mapping[str, frozenset[str]]
    ) -> tuple[list[list[JobGroup]], dict[str, KeptMap]]:
        """Return a pair: fastest groups with maps ``kept`` in map memory (per frame, for all frames), and ``kept``."""
        rows = _rows_of_edges(self.network, {name: each.rows for name, each in kept.items()})
        memory = MapMemoryModel(free_bytes(kept, self.engine, len(self.order)), readers)
        by_part = []
        for grouping, part, its_memory in zip(self.groupings, self.parts, (memory, None), strict=True):
            layers = [layer.keeping(rows) for layer in part]
            by_part.append(grouping.groups(layers, max_layers=self.max_layers, memory=its_memory))
        return by_part, kept


def _emitter(engine: EngineConfig, network: Network, locations: MapLocations, room: Room) -> Emitter:
    """Return an `Emitter`: a new job generator, without jobs, for feature maps at given memory locations."""
    if engine.has_cores:
        return Emitter(engine, roots(network), locations.of_frame[0], room, len(locations.of_frame))
    return Emitter(engine, roots(network), locations.of_all, room)


def in_order(network: Network, engine: EngineConfig, pace: Fraction | int, frames: int) -> list[str]:
    """Return the list of layer names that the engine computes, in the order of their jobs.

    Layers that are computed for all frames at once come last.

    Raises
    ------
    PlanError
        If the engine can't compute a layer.
    """
    try:
        layers = _layers(network)
    except ModelError as error:
        raise PlanError(str(error)) from None
    room = replace(Room.whole(engine), pace=pace)
    _, parts = _divided_by_frames(network, layers, engine, room, frames)
    return [layer.name for part in parts for layer in part]


def passes_of(network: Network) -> list[Pass]:
    """Return a list of each `Pass` (run of the array) of a network, in order, not yet divided among cores.

    Raises
    ------
    PlanError
        If the engine can't compute a layer.
    """
    try:
        return [task for layer in _layers(network) for task in layer.tasks]
    except ModelError as error:
        raise PlanError(str(error)) from None


def _layers(network: Network) -> list[LayerPasses]:
    """Return a list of each layer's `LayerPasses`: the layers fused onto it, and its passes through the array."""
    return [LayerPasses(step, passes(step.ops, step.takes, step.inside)) for step in fused_layers(network)]


def _divided_by_frames(
    network: Network, layers: Sequence[LayerPasses], engine: EngineConfig, room: Room, frames: int
) -> tuple[Batch, tuple[list[LayerPasses], list[LayerPasses]]]:
    """Return a pair: `Batch`; lists of the layers computed frame by frame, and of those for all frames at once."""
    batch = batched(network, engine, layers, room, frames)
    by_frame = [layer for layer in layers if layer.step.name not in batch.together]
    of_all = [
        LayerPasses(layer.step, tuple(for_all_frames(task, batch.frames) for task in layer.tasks))
        for layer in layers
        if layer.step.name in batch.together
    ]
    return batch, (by_frame, of_all)


def _by_part(
    parts: tuple[list[LayerPasses], list[LayerPasses]], choices: Choices
) -> list[tuple[list[LayerPasses], Choices]]:
    """Return a list of two pairs (layers, their tilings): computed frame by frame, and for all frames at once.

    Raises
    ------
    PlanError
        If a choice has layers of both parts side by side.
    """
    by_frame, of_all = parts
    names = {layer.name for layer in of_all}
    for choice in choices:
        if names & {*choice} and not names >= {*choice}:
            raise PlanError(
                f"{' and '.join(choice)} can't be computed side by side: {' and '.join(sorted(names & {*choice}))} "
                "computes all frames of the batch at once, the others one frame after the other; take it out of "
                "side_by_side"
            )
    return [
        (by_frame, [choice for choice in choices if not names & {*choice}]),
        (of_all, [choice for choice in choices if names & {*choice}]),
    ]


def _allocate(tiled_passes: Sequence[TiledPass], engine: EngineConfig, address: int) -> tuple[list[PassAddresses], int]:
    """Return a pair: list of each pass's `PassAddresses` (weights, parameters, tables), and the first free address."""
    data = []
    for task in (tiled_pass.task for tiled_pass in tiled_passes):
        sizes = [_weight_bytes(task, engine), _parameter_bytes(task)]
        sizes += [each.entries.size * WORD for each in task.tables]
        weights, parameters, *tables, end = np.cumsum([address, *sizes]).tolist()
        data.append(PassAddresses(weights=weights, parameters=parameters, tables=tuple(tables)))
        address = aligned(end)
    return data, address


def _emit(
    emitter: Emitter, locations: MapLocations, parts: Sequence[Sequence[JobGroup]], data: Sequence[PassAddresses]
) -> Emitter:
    """Append all jobs of a program to ``emitter``, and return this `Emitter`: jobs by frame, then for all at once."""
    by_frame, of_all = parts
    if emitter.engine.has_cores:
        return _emit_by_layer(emitter, locations, by_frame, data)
    passes_of_frame = sum(len(group.tiled_passes) for group in by_frame)
    job_frames = [(by_frame, each, 0) for each in locations.of_frame] + [(of_all, locations.of_all, passes_of_frame)]
    for frame, (groups, maps, first) in enumerate(job_frames):
        emitter.begin_frame(frame, [maps], first)
        remaining_data = iter(data[first:])
        for group in groups:
            emitter.add(*(replace(tiled_pass, data=next(remaining_data)) for tiled_pass in group.tiled_passes))
    emitter.end()
    return emitter


def _emit_by_layer(
    emitter: Emitter, locations: MapLocations, groups: Sequence[JobGroup], data: Sequence[PassAddresses]
) -> Emitter:
    """Append all jobs for several cores, each layer for all frames before the next; return the `Emitter`."""
    first = 0
    for group in groups:
        tiled_passes = [
            replace(tiled_pass, data=each) for tiled_pass, each in zip(group.tiled_passes, data[first:], strict=False)
        ]
        for frame in range(0, len(locations.of_frame), group.frames):
            emitter.begin_frame(frame, locations.of_frame[frame : frame + group.frames], first)
            emitter.add(*tiled_passes)
        first += len(tiled_passes)
    emitter.end()
    return emitter


def _check_names(names: Sequence[str], tilings: Mapping[str, Tiling]) -> None:
    """Refuse tilings of layers that the network does not compute, by name."""
    for name in tilings:
        if name not in names:
            raise PlanError(
                f"tilings: {name!r} is not a layer with a pass of its own; these have one: {', '.join(names)}"
            )


def _check_sums(task: Pass, engine: EngineConfig) -> None:
    """Refuse weights, or products of maps, whose sums can exceed the bits of the engine's accumulators.

    Layers in fixed point are refused as well if the engine has no fixed-point unit, or too small a unit.
    """
    if task.fixed and not engine.has_fixed_unit:
        raise ModelError(
            f"{task.name}: needs the unit for layers in fixed point, which this engine does not have (fixed_words); "
            f"{_OTHER_ENGINE}"
        )
    if task.fixed and len(task.fixed.lookups) > engine.lookup_words:
        raise ModelError(
            f"{task.name}: tables and curves in fixed point need {len(task.fixed.lookups):,} lookup words, and this "
            f"engine has {engine.lookup_words:,} (lookup_words); {_OTHER_ENGINE}"
        )
    if task.fixed and task.fixed.has_float_sums and not engine.float_sums:
        raise ModelError(
            f"{task.name}: is a sum in float32, which this engine can't compute (float_sums); {_OTHER_ENGINE}"
        )
    if task.product and engine.sum_bits < PRODUCT_BITS:
        raise ModelError(
            f"{task.name}: products of two maps need accumulators of {PRODUCT_BITS} bits, and this engine's have "
            f"{engine.sum_bits} (sum_bits); {_OTHER_ENGINE}"
        )
    if task.weights is None or task.maximum:
        return
    max_sum = max(int(np.abs(weights).sum()) for weights in task.weights) * 128
    if max_sum >= 1 << engine.sum_bits - 1:
        raise ModelError(
            f"{task.name}: sums reach {max_sum:,}, more than this engine's accumulators of {engine.sum_bits} bits hold "
            f"(sum_bits); {_OTHER_ENGINE}"
        )


def _weight_bytes(task: Pass, engine: EngineConfig) -> int:
    """Return the number of bytes of a pass's packed weights in the engine's memory."""
    if task.operands:
        return sum(operand_bytes(each) * fold_steps(each) for each in task.operands) * engine.weight_words * WORD
    folds = 1 if task.shares_weights else task.core_folds(engine)
    return folds * fold_steps(task) * engine.weight_words * WORD


def _parameter_bytes(task: Pass) -> int:
    """Return the number of bytes of a pass's parameters, or fixed-point constants, in memory."""
    if task.fixed:
        return len(task.fixed.packed_constants(task.maps, task.split.members)) * WORD
    return LANES * WORD if task.shares_parameters else blocks(task.maps) * LANES * WORD


def _pack_weights(task: Pass, tiling: Tiling, engine: EngineConfig) -> bytes:
    """Return all weights of a pass as bytes in load order: by job, chunk of taps and channels, and fold.

    A fold has the output channels of each core of a team in turn.
    """
    if task.weights is None:
        raise ModelError(
            f"{task.name}: an engine's program contains the weights, and this network's are loaded at run time; plan "
            "it "
            "with constant weights (--weights constant)"
        )
    if task.operands:
        whole = (_operand_weights(each, tiling, engine) for each in task.operands)
        return b"".join(chain.from_iterable(whole))
    packed, core_maps = [], task.core_maps(engine)
    count = 1 if task.shares_weights else task.core_folds(engine)
    for begin, end in pieces(count, tiling.folds * task.split.members):
        for chunk in chunks(task, tiling):
            for fold in range(begin, end):
                packed.append(_chunk_weights(task, engine, chunk, slice(fold * core_maps, (fold + 1) * core_maps)))
    return b"".join(packed)


def _operand_weights(task: Pass, tiling: Tiling, engine: EngineConfig) -> Iterator[bytes]:
    """Yield the packed weights that copy each byte of an operand's values to the fixed-point unit."""
    (chunk,) = chunks(task, replace(tiling, taps=task.window.kernel[0]))
    for first in range(0, operand_bytes(task) * LANES, LANES):
        yield _chunk_weights(task, engine, chunk, slice(first, first + LANES))


def _chunk_weights(task: Pass, engine: EngineConfig, chunk: Chunk, maps: slice) -> bytes:
    """Return the weights of one chunk (some taps and input channels) for the output channels ``maps`` as bytes."""
    rows, columns = slice(*chunk.taps), slice(*chunk.tap_columns)
    weights = task.terms[chunk.term].weights[maps]
    if not task.channelwise:
        return pack_weights(weights[:, slice(*chunk.channels), rows, columns], engine.maps)
    taps = weights[:, 0, rows, columns].reshape(len(weights), -1)
    lane_weights = np.zeros((taps.shape[1], LANES), np.int64)
    lane_weights[:, : len(weights)] = taps.T
    return pack_channelwise(lane_weights, engine.maps)
