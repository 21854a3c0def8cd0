"""Cache of plans that took long to make: they are made again only if the network, the board or the request changed.

A cached plan is the text of its ``plan.json`` with the planner's notes. It is read with all checks, like a plan from a
user, and can't execute anything, whoever wrote it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from hwgen import cache, digest
from hwgen.boards import Board
from hwgen.errors import HwgenError
from hwgen.fields import Entries
from hwgen.network.graph import Network
from hwgen.network.loaded import loaded
from hwgen.options import RUNTIME
from hwgen.plan import document, planner
from hwgen.plan.plan import Plan
from hwgen.plan.request import Request

MIN_SECONDS = 0.5
"""Minimum number of seconds that planning takes if a plan is cached."""
_NAME = "kept.json"
"""Name of the file in the cache that has a plan's ``plan.json`` text and the planner's notes."""


def make(network: Network, board: Board, **options: Any) -> Plan:
    """Return the `Plan` of a network for a board, from the cache if the same request was planned before.

    It has the parameters and errors of `hwgen.plan.planner.make`.
    """
    request = Request.of(options)
    network = loaded(network) if request.weights == RUNTIME else network  # the network of the plan
    parts = (network.name, network.layers, network.edges, network.inputs, network.outputs)
    key = digest.of(digest.source(), parts, board, request)
    if (folder := cache.find("plans", key)) is not None:
        kept = _read_plan((folder / _NAME).read_bytes(), network, request.limited(board))
        if kept is not None:
            return kept
    begin = time.perf_counter()
    plan = planner.make(network, board, **options)
    if time.perf_counter() - begin > MIN_SECONDS:
        text = json.dumps({"plan": document.write(plan), "notes": plan.notes})
        cache.keep_files("plans", key, {_NAME: text.encode()})
    return plan


def _read_plan(text: bytes, network: Network, board: Board) -> Plan | None:
    """Return the `Plan` in a cached file's text; ``None`` if it is unreadable or does not reproduce the same text."""
    try:
        kept = Entries.parsed(text, _NAME)
        plan = document.read(kept.text("plan"), network, board, kept.value("notes", tuple[str, ...]))
    except HwgenError:
        return None
    return plan if document.write(plan) == kept.text("plan") else None
