"""Memory transfers of the engine's jobs, one by one, and the bursts that carry them out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Load, Store, job_bytes, job_words
from hwgen.schedule.engine import bursts_of
from hwgen.schedule.engine_loops import BOX

_MAP_TEAMS = ("x_teams", "x_team_stride", "x_top", "x_advance", "x_height")
_STORE_TEAMS = ("teams", "team_stride", "top", "advance", "height")

Box = tuple[int, int, int, int, int, int]
"""Box of 8-byte words in memory: byte address, byte strides of rows and blocks, numbers of blocks, rows and words."""
Teams = tuple[int, int, int, int, int]
"""Boxes of several teams: number, byte distance, first row's index, distance of these indices, rows of the map."""


@dataclass(frozen=True)
class Transfer:
    """Box of words in memory that an engine job reads or writes.

    In a ``wide`` transfer a beat carries as many words as the bus has. On an engine of several cores, ``teams`` has the
    boxes of the other teams.
    """

    box: Box
    wide: bool = False
    writes: bool = False
    teams: Teams = (0, 0, 0, 0, 0)


def fetched_jobs(config: EngineConfig, base: int, first: int, count: int = 1) -> Transfer:
    """Return the memory transfer that fetches the descriptors of ``count`` jobs of a program, from job ``first``."""
    return Transfer((base + job_bytes(config) * first, 0, 0, 1, 1, count * job_words(config)))


def loads(config: EngineConfig, load: Load) -> list[Transfer]:
    """Return the memory transfers that load one job's map box, weights and parameters, in order, without empty ones.

    A box that is loaded from the map memory is none.
    """
    transfers: list[Transfer] = []
    if load.x_blocks and not load.x_kept:
        box = (load.x_address, load.x_row_stride, load.x_block_stride, load.x_blocks, load.x_rows, load.x_words)
        transfers.append(Transfer(box, wide=True, teams=tuple(getattr(load, name) for name in _MAP_TEAMS)))
    if load.w_steps:
        words = load.w_steps * config.weight_words
        transfers.append(Transfer((load.w_address, 0, LANES * words, max(load.w_blocks, 1), 1, words), wide=True))
    if load.p_words and load.p_dealt:
        transfers.append(Transfer((load.p_address, 0, LANES * LANES, load.p_words // LANES, 1, LANES)))
    elif load.p_words:
        transfers.append(Transfer((load.p_address, 0, 0, 1, 1, load.p_words)))
    return transfers


def stores(store: Store) -> list[Transfer]:
    """Return a list with the memory transfer that stores a job's outputs, or an empty list if nothing is stored.

    Outputs for the map memory are no transfer.
    """
    if not store.blocks or store.kept:
        return []
    box = (store.address, store.row_stride, store.block_stride, store.blocks, store.rows, store.words)
    return [Transfer(box, wide=True, writes=True, teams=tuple(getattr(store, name) for name in _STORE_TEAMS))]


def moved(config: EngineConfig, transfer: Transfer) -> list[tuple[int, int]]:
    """Return a pair (beats, bytes) for each burst that carries out a memory transfer, in order.

    A row is one burst, plus one for each burst boundary inside the row. A wide beat reads all words of the bus, but
    writes only the words of the box.
    """
    box = np.array([(0, *transfer.box, transfer.wide, transfer.writes, *transfer.teams)], BOX)
    _, beats, sizes = bursts_of(config, box)
    return list(zip(beats.tolist(), sizes.tolist(), strict=True))
