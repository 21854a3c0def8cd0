"""Choice of the feature maps that the engine keeps in its on-chip map memory, and their addresses there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.engine.config import EngineConfig
from hwgen.network.graph import Network
from hwgen.program.layout import WORD, map_bytes, value_bytes
from hwgen.program.maps import Batch, FusedLayer, KeptAt, host_map_names, lifetimes, roots, stored_maps

#: Maximum number of candidate sets of on-chip maps that the search keeps from layer to layer.
_MAX_SETS = 256


@dataclass(frozen=True, kw_only=True)
class KeptMap:
    """Feature map that the on-chip map memory may hold: its size there, lifetime, and saved memory traffic.

    Parameters
    ----------
    name : str
        Name of the stored map.
    first, last : int
        Indices of the first and the last group of steps that use the map.
    size : int
        Number of bytes in the map memory, whole rows of it.
    saved : int
        Number of bytes that are not moved to or from off-chip memory if the map is kept, estimated.
    rows : int
        Number of rows that are kept: all, or a ring of rows.
    """

    name: str
    first: int
    last: int
    size: int
    saved: int
    rows: int

    def meets(self, other: KeptMap) -> bool:
        """Return whether the lifetimes of both maps overlap, so that they can't share words of the map memory."""
        return self.first <= other.last and other.first <= self.last


def keepable(
    network: Network,
    engine: EngineConfig,
    order: Sequence[Sequence[FusedLayer]],
    batch: Batch,
    rings: Mapping[str, int] | None = None,
) -> dict[str, KeptMap]:
    """Return a dictionary by name of a `KeptMap` for each feature map that an engine's map memory can hold.

    The host's maps can't be held, nor maps of more than 8 bits, nor maps that interleave the rows of several frames.
    ``rings`` is the number of rows of each map that is held in part.
    """
    candidates = _candidates(network, engine, order, batch, rings or {})
    return {name: kept for name, (kept, refusal) in candidates.items() if refusal is None}


def _candidates(
    network: Network,
    engine: EngineConfig,
    order: Sequence[Sequence[FusedLayer]],
    batch: Batch,
    rings: Mapping[str, int],
) -> dict[str, tuple[KeptMap, str | None]]:
    """Return a dict by map name: `KeptMap`, and why the map memory can't hold it as text (``None`` if it can)."""
    maps, row, capacity = stored_maps(network), WORD * engine.row_words, engine.kept_words * WORD
    ends, candidates = host_map_names(network, roots(network)), {}
    for name, life in lifetimes(network, order, batch).items():
        height = maps[name].height
        rows = rings.get(name, height)
        size = -(-map_bytes(maps[name]) // height * rows // row) * row
        refusal = None
        if name in ends:
            refusal = "the host reads or writes this map, so that it must be in off-chip memory"
        elif value_bytes(maps[name].type) > 1:
            refusal = f"the map memory holds values of at most 8 bits, not of {maps[name].type.bits}"
        elif life.interleaved:
            refusal = "a layer that is computed for all frames at once reads or writes this map"
        elif not 0 < rows <= height:
            refusal = f"kept_maps must give it from 1 to {height} rows, not {rows}"
        elif rows < height and life.first < life.last:
            refusal = (
                f"kept_maps gives it {rows} rows, but layers that are not computed side by side use it, which needs "
                f"all {height} rows"
            )
        elif size > capacity:
            refusal = f"its {rows} rows need {size:,} bytes, and the map memory has {capacity:,}"
        saved = map_bytes(maps[name]) * (1 + life.reads)
        kept = KeptMap(name=name, first=life.first, last=life.last, size=size, saved=saved, rows=rows)
        candidates[name] = kept, refusal
    return candidates


def ring_readers(network: Network, order: Sequence[Sequence[FusedLayer]], batch: Batch) -> dict[str, frozenset[str]]:
    """Return a dict by map name of a set of the map's readers (names), for maps that can be kept as a ring of rows."""
    root_of, ends = roots(network), host_map_names(network, roots(network))
    lives = lifetimes(network, order, batch)
    readers: dict[str, set[str]] = {}
    for step in (step for group in order for step in group):
        for edge in step.edges:
            readers.setdefault(root_of[edge][0], set()).add(step.name)
    shared = {root for edge, (root, _) in root_of.items() if edge != root}
    return {
        name: frozenset(names)
        for name, names in readers.items()
        if name not in ends | shared and not lives[name].interleaved
    }


def best_maps(maps: Mapping[str, KeptMap], engine: EngineConfig) -> dict[str, KeptMap]:
    """Return a dict by name of each `KeptMap` among those that save most traffic and always fit the map memory.

    The search is exact if at most `_MAX_SETS` sets of maps can be alive at the same time.
    """
    capacity = engine.kept_words * WORD
    sets: dict[frozenset[str], tuple[int, tuple[str, ...]]] = {frozenset(): (0, ())}
    for index in sorted({kept_map.first for kept_map in maps.values()}):
        alive = {frozenset(name for name in names if maps[name].last >= index): best for names, best in _ranked(sets)}
        sets = alive
        for kept in (kept_map for kept_map in maps.values() if kept_map.first == index):
            for names, (saved, all_names) in list(sets.items()):
                if sum(maps[name].size for name in names) + kept.size > capacity:
                    continue
                wider, option = names | {kept.name}, (saved + kept.saved, (*all_names, kept.name))
                if option[0] > sets.get(wider, (-1, ()))[0]:
                    sets[wider] = option
        sets = dict(sorted(sets.items(), key=lambda item: -item[1][0])[:_MAX_SETS])
    _, names = max(sets.values(), key=lambda best: best[0])
    return {name: maps[name] for name in names}


def _ranked(sets: Mapping[frozenset[str], tuple[int, tuple[str, ...]]]) -> list[tuple[frozenset[str], Any]]:
    """Return a list of candidate sets of maps sorted by saved bytes, ascending, so that the best comes last."""
    return sorted(sets.items(), key=lambda item: item[1][0])


def placed_maps(maps: Mapping[str, KeptMap], engine: EngineConfig) -> dict[str, KeptAt]:
    """Return a dict of each map's `KeptAt` (address, rows) in map memory; overlapping lifetimes share no words.

    Larger maps come first. Maps that find no gap are left out.
    """
    addresses: dict[str, KeptAt] = {}
    for kept in sorted(maps.values(), key=lambda kept_map: (-kept_map.size, kept_map.first)):
        address = 0
        others = sorted((addresses[name].address, maps[name].size) for name in addresses if maps[name].meets(kept))
        for begin, size in others:
            if address + kept.size <= begin:
                break
            address = max(address, begin + size)
        if address + kept.size <= engine.kept_words * WORD:
            addresses[kept.name] = KeptAt(address, kept.rows)
    return addresses


def free_bytes(maps: Mapping[str, KeptMap], engine: EngineConfig, steps: int) -> list[int]:
    """Return a list of the bytes of map memory that ``maps`` leave free, one per group of layers."""
    used = np.zeros(steps, np.int64)
    for kept in maps.values():
        used[kept.first : kept.last + 1] += kept.size
    return (engine.kept_words * WORD - used).tolist()


def check_kept(
    maps: Mapping[str, KeptAt],
    network: Network,
    engine: EngineConfig,
    order: Sequence[Sequence[FusedLayer]],
    batch: Batch,
    rings: Mapping[str, int],
) -> None:
    """Refuse addresses of maps that are outside the map memory, or that let two maps overlap at the same time.

    ``rings`` is the number of rows of each map that is held in part.

    Raises
    ------
    PlanError
        With the name of the map.
    """
    candidates = _candidates(network, engine, order, batch, rings)
    possible = {name: kept for name, (kept, _) in candidates.items()}
    capacity, unit = engine.kept_words * WORD, WORD * engine.row_words
    for name, (_, rows) in maps.items():
        if name not in possible:
            raise PlanError(
                f"{name}: kept_maps names a map that the engine does not store; it stores "
                f"{', '.join(filter(None, possible))}"
            )
        if (refusal := candidates[name][1]) is not None:
            raise PlanError(f"{name}: {refusal}; change its entry in kept_maps, or leave it out")
        if possible[name].rows != rows:
            raise PlanError(f"{name}: kept_maps gives it {rows} rows, but its layers keep {possible[name].rows}")
    for name, (address, _) in maps.items():
        kept = possible[name]
        if not 0 <= address <= capacity - kept.size or address % unit:
            raise PlanError(
                f"{name}: its address in kept_maps must be a multiple of {unit} from 0 to {capacity - kept.size}, not "
                f"{address}"
            )
        end = address + kept.size
        for other, (begin, _) in maps.items():
            overlaps = begin < end and address < begin + possible[other].size
            if other != name and overlaps and possible[other].meets(kept):
                raise PlanError(
                    f"{name} and {other}: kept_maps gives both bytes {max(address, begin)} to "
                    f"{min(end, begin + possible[other].size) - 1} of the map memory while both are in use; give one "
                    "of them another address, or leave it out"
                )
