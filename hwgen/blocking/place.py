"""Buffers for a blocking that is given: Yang's rules and packing (sections 3.2 and 3.5), or the best there is."""

from __future__ import annotations

from itertools import combinations
from math import inf

from hwgen.blocking import count, energy
from hwgen.blocking.hierarchy import CoDesign, Private, Shared
from hwgen.blocking.nest import Nest
from hwgen.blocking.priced import Found, datapath_accesses, evaluate
from hwgen.blocking.problem import OPERANDS, indexes
from hwgen.errors import PlanError

__all__ = ["best", "pack", "rules"]


def rules(nest: Nest, inside: int = 0) -> dict[str, list[int]]:
    """Where a loop reuses an operand, and a buffer should be: positions by operand (Yang, section 3.2).

    Weights inside a run of X and Y loops, outputs inside C loops, inputs inside K loops; loops over the window reuse
    outputs and, once the window is part of the buffer, inputs.
    """
    positions: dict[str, list[int]] = {operand: [] for operand in OPERANDS}
    for operand in OPERANDS:
        spanning = False
        for place in range(inside, len(nest.loops)):
            dim, extent = nest.loops[place].dim, nest.loops[place].extent
            if extent == nest.tile(place)[dim]:
                continue  # a loop of one trip
            window = operand == "input" and dim in ("Fw", "Fh")
            if window:
                positions[operand] = [spot for spot in positions[operand] if spot != place] + [place + 1]
            elif not indexes(operand, dim) and not spanning and place not in positions[operand]:
                positions[operand].append(place)
            spanning = not indexes(operand, dim)
    return positions


def pack(nest: Nest, hierarchy: Shared, inside: int = 0) -> Found:
    """Yang's packing: the buffers of `rules`, those with most accesses first, fill the memories from the inside out.

    What doesn't fit opens the next memory for itself and all that follow; what fits none stays in DRAM.
    """
    queues = {operand: list(places) for operand, places in rules(nest, inside).items()}
    served = datapath_accesses(nest, inside)
    level, left = 0, hierarchy.memories[0].size if hierarchy.memories else 0
    placed: list[tuple[str, int, str, float]] = []
    while level < len(hierarchy.memories) and any(queues.values()):
        operand = max((name for name in OPERANDS if queues[name]), key=lambda name: served[name])
        place = queues[operand][0]
        entry = count.traffic(nest, {operand: [place]})[operand][0]
        size = entry.capacity * energy.WORD_BYTES
        if size > left:
            level += 1
            left = hierarchy.memories[level].size if level < len(hierarchy.memories) else 0
            continue
        queues[operand].pop(0)
        left -= size
        placed.append((operand, place, hierarchy.memories[level].name, hierarchy.memories[level].energy))
        served[operand] = entry.words
    return evaluate(nest, placed, inside=inside, tops=dict.fromkeys(OPERANDS, hierarchy.top))


def best(nest: Nest, hierarchy: Private | Shared | CoDesign, inside: int = 0) -> Found:
    """The buffers with which ``nest`` takes least energy.

    For memories of each operand's own and for co-design: each operand apart, over all positions (the sum of co-designed
    sizes is checked after). For shared memories: Yang's packing.

    Raises
    ------
    PlanError
        If co-designed buffers exceed the limit together.
    """
    if isinstance(hierarchy, Shared):
        return pack(nest, hierarchy, inside)
    placed: list[tuple[str, int, str, float]] = []
    start = datapath_accesses(nest, inside)
    for operand in OPERANDS:
        entries = count.traffic(nest, {operand: list(range(inside, len(nest.loops) + 1))})[operand]
        most = hierarchy.levels if isinstance(hierarchy, CoDesign) else len(hierarchy.memories[operand])
        cheapest, choice = inf, []
        for number in range(most + 1):
            for chosen in combinations(entries, number):
                priced = _priced(hierarchy, operand, [entry.capacity for entry in chosen])
                if priced is None:
                    continue
                served = [start[operand], *(entry.words for entry in chosen)]
                cost = served[-1] * hierarchy.top
                cost += sum(taken * price for taken, (_, price) in zip(served, priced, strict=False))
                if cost < cheapest:
                    cheapest = cost
                    choice = [(operand, entry.position, *price) for entry, price in zip(chosen, priced, strict=True)]
        placed += choice
    found = evaluate(nest, placed, inside=inside, tops=dict.fromkeys(OPERANDS, hierarchy.top))
    if isinstance(hierarchy, CoDesign) and found.on_chip > hierarchy.limit:
        raise PlanError(f"blocking {nest}: its best buffers take {found.on_chip} bytes; the limit is {hierarchy.limit}")
    return found


def _priced(hierarchy: Private | CoDesign, operand: str, words: list[int]) -> list[tuple[str, float]] | None:
    """A memory and pJ an access for buffers of so many words, inner to outer; None if they don't fit."""
    sizes = [size * energy.WORD_BYTES for size in words]
    if any(size == 0 for size in sizes):
        return None
    if isinstance(hierarchy, CoDesign):
        if max(sizes, default=0) > hierarchy.limit:
            return None
        width = hierarchy.widths[operand]
        return [(f"{operand}{level}", energy.access(size, width)) for level, size in enumerate(sizes)]
    priced, level = [], 0
    memories = hierarchy.memories[operand]
    for size in sizes:
        while level < len(memories) and memories[level].size < size:
            level += 1
        if level == len(memories):
            return None
        priced.append((memories[level].name, memories[level].energy))
        level += 1
    return priced
