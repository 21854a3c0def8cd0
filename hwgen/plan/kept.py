"""Plans that took a while are kept, and planned again only if the network, the board or what is asked changed.

A kept plan is the text of its ``plan.json`` with the planner's notes. It is read as a plan that a user gives, with all
checks, and can execute nothing, whoever wrote it.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from hwgen import cache, digest
from hwgen.boards import Board
from hwgen.errors import HwgenError
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.plan import document, planner
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request

__all__ = ["make"]

LEAST = 0.5
"""Seconds that planning takes, of what is kept."""
_NAME = "kept.json"


def make(network: Network, board: Board, **options: Any) -> Plan:
    """What `planner.make` gives, from the cache if it was planned before; errors as there."""
    request = Request.of(options)
    network = loaded(network) if request.weights == "runtime" else network  # as the plan has it
    parts = (network.name, network.layers, network.edges, network.inputs, network.outputs)
    key = digest.of(digest.source(), parts, board, request)
    if (place := cache.find("plans", key)) is not None:
        kept = _read((place / _NAME).read_bytes(), network, request.limited(board))
        if kept is not None:
            return kept
    begin = time.perf_counter()
    plan = planner.make(network, board, **options)
    if time.perf_counter() - begin > LEAST:
        text = json.dumps({"plan": document.write(plan), "notes": plan.notes})
        cache.keep_files("plans", key, {_NAME: text.encode()})
    return plan


def _read(text: bytes, network: Network, board: Board) -> Plan | None:
    """Return the plan that a text keeps; ``None`` if the plan that is read differs from what was written."""
    try:
        kept = json.loads(text)
        plan = document.read(kept["plan"], network, board)
        if document.write(plan) != kept["plan"] or not all(isinstance(note, str) for note in kept["notes"]):
            return None
        return replace(plan, notes=tuple(kept["notes"]))
    except (HwgenError, ValueError, TypeError, KeyError, RecursionError):
        return None
