"""Plans that took a while are kept, and planned again only if the network, the board or what is asked changed."""

from __future__ import annotations

import io
import pickle
import time
from typing import Any

from hwgen import cache, digest
from hwgen.boards import Board
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.plan import planner
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request

__all__ = ["make"]

LEAST = 0.5
"""Seconds that planning takes, of what is kept."""
MOST = 256 << 20
"""Bytes of a plan that is kept."""
_NAME = "plan.pickle"


def make(network: Network, board: Board, **options: Any) -> Plan:
    """What `planner.make` gives, from the cache if it was planned before; errors as there."""
    request = Request.of(options)
    network = loaded(network) if request.weights == "runtime" else network  # as the plan has it
    parts = (network.name, network.layers, network.edges, network.inputs, network.outputs)
    key = digest.of(digest.source(), parts, board, request)
    if (place := cache.find("plans", key)) is not None:
        return _Reader(place / _NAME, network).load()
    begin = time.perf_counter()
    plan = planner.make(network, board, **options)
    if time.perf_counter() - begin > LEAST and len(text := _written(plan)) < MOST:
        cache.keep_files("plans", key, {_NAME: text})
    return plan


def _parts(network: Network) -> list[object]:
    """What a plan has of its network: kept plans name it by its place here."""
    return [network, network.host, *network.layers]


class _Writer(pickle.Pickler):
    """Writes a plan without its network."""

    def __init__(self, file: io.BytesIO, network: Network) -> None:
        super().__init__(file, protocol=5)
        self._places = {id(part): place for place, part in enumerate(_parts(network)) if part is not None}

    def persistent_id(self, obj: Any) -> int | None:
        return self._places.get(id(obj))


class _Reader(pickle.Unpickler):
    """Reads a plan of this network."""

    def __init__(self, path: Any, network: Network) -> None:
        super().__init__(io.BytesIO(path.read_bytes()))
        self._parts = _parts(network)

    def persistent_load(self, pid: Any) -> object:
        return self._parts[pid]


def _written(plan: Plan) -> bytes:
    file = io.BytesIO()
    _Writer(file, plan.network).dump(plan)
    return file.getvalue()
