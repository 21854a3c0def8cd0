"""Placement of buffers in a given loop nest, by Yang's rules (sections 3.2 and 3.5) or for minimum energy."""

from __future__ import annotations

from itertools import combinations
from math import inf

from hwgen.blocking import count, energy
from hwgen.blocking.energy import CoDesign, Private, Shared
from hwgen.blocking.priced import PricedBlocking, datapath_accesses, evaluate
from hwgen.blocking.problem import OPERANDS, Nest, indexes
from hwgen.errors import PlanError


def useful_positions(nest: Nest, inside: int = 0) -> dict[str, list[int]]:
    """Return a dict by operand: list of loop positions where a buffer is useful, as the next loop reuses its data.

    The rules are from Yang, section 3.2. A buffer of weights is inside a run of X and Y loops, a buffer of outputs
    inside C loops, and a buffer of inputs inside K loops. Loops over the window reuse outputs. They also reuse inputs
    once the window is part of the buffer.
    """
    positions: dict[str, list[int]] = {operand: [] for operand in OPERANDS}
    for operand in OPERANDS:
        spanning = False
        for position in range(inside, len(nest.loops)):
            dim, extent = nest.loops[position].dim, nest.loops[position].extent
            if extent == nest.tile(position)[dim]:
                continue  # a loop of one trip
            window = operand == "input" and dim in ("Fw", "Fh")
            if window:
                positions[operand] = [earlier for earlier in positions[operand] if earlier != position] + [position + 1]
            elif not indexes(operand, dim) and not spanning and position not in positions[operand]:
                positions[operand].append(position)
            spanning = not indexes(operand, dim)
    return positions


def pack(nest: Nest, hierarchy: Shared, inside: int = 0) -> PricedBlocking:
    """Return a `PricedBlocking`: a loop nest with useful buffers packed into shared memories by Yang's heuristic.

    Buffers with the most accesses are first, and fill the memories from the inside out. A buffer that does not fit
    opens the next memory for itself and all following buffers. A buffer that fits no memory stays in DRAM.
    """
    queues = {operand: list(operand_positions) for operand, operand_positions in useful_positions(nest, inside).items()}
    served = datapath_accesses(nest, inside)
    level, left = 0, hierarchy.memories[0].size if hierarchy.memories else 0
    placed: list[tuple[str, int, str, float]] = []
    while level < len(hierarchy.memories) and any(queues.values()):
        operand = max((name for name in OPERANDS if queues[name]), key=lambda name: served[name])
        position = queues[operand][0]
        entry = count.traffic(nest, {operand: [position]})[operand][0]
        size = entry.capacity * energy.WORD_BYTES
        if size > left:
            level += 1
            left = hierarchy.memories[level].size if level < len(hierarchy.memories) else 0
            continue
        queues[operand].pop(0)
        left -= size
        placed.append((operand, position, hierarchy.memories[level].name, hierarchy.memories[level].energy))
        served[operand] = entry.words
    return evaluate(nest, placed, inside=inside, tops=dict.fromkeys(OPERANDS, hierarchy.top))


def best(nest: Nest, hierarchy: Private | Shared | CoDesign, inside: int = 0) -> PricedBlocking:
    """Return a loop nest with the buffers that minimise its memory energy on a hierarchy, as a `PricedBlocking`.

    With private memories and co-design, each operand is optimised independently over all positions, and the sum of
    co-designed sizes is checked at the end. Shared memories use Yang's packing.

    Raises
    ------
    PlanError
        If all co-designed buffers together exceed the limit.
    """
    if isinstance(hierarchy, Shared):
        return pack(nest, hierarchy, inside)
    placed: list[tuple[str, int, str, float]] = []
    start = datapath_accesses(nest, inside)
    for operand in OPERANDS:
        entries = count.traffic(nest, {operand: list(range(inside, len(nest.loops) + 1))})[operand]
        max_buffers = hierarchy.levels if isinstance(hierarchy, CoDesign) else len(hierarchy.memories[operand])
        cheapest, choice = inf, []
        for count_of_buffers in range(max_buffers + 1):
            for chosen in combinations(entries, count_of_buffers):
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
    blocking = evaluate(nest, placed, inside=inside, tops=dict.fromkeys(OPERANDS, hierarchy.top))
    if isinstance(hierarchy, CoDesign) and blocking.on_chip > hierarchy.limit:
        raise PlanError(
            f"blocking {nest}: its best buffers take {blocking.on_chip} bytes; the limit is {hierarchy.limit}"
        )
    return blocking


def _priced(hierarchy: Private | CoDesign, operand: str, words: list[int]) -> list[tuple[str, float]] | None:
    """Return, as a list, (memory name, pJ per access) of each buffer of an operand; ``None`` if one doesn't fit."""
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
