"""A plain simulation of a blocked nest that counts fetches one by one, with sets of elements.

It knows nothing of `hwgen.blocking.count` and shares none of its arithmetic: it is what that is tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hwgen.blocking.nest import Nest
from hwgen.blocking.problem import DIMS, Problem, indexes

__all__ = ["elements", "simulate", "walk"]

Ranges = dict[str, tuple[int, int]]


def walk(nest: Nest, position: int) -> Iterator[tuple[Ranges, int]]:
    """Ranges of all dimensions inside ``position``, in the order in which they run, and the loop that stepped to them.

    The first range of all comes with the number of loops.
    """
    steps = []
    reached: dict[str, int] = dict.fromkeys(DIMS, 1)
    for loop in nest.loops:
        steps.append(reached[loop.dim])
        reached[loop.dim] = loop.extent

    def run(level: int, ranges: Ranges, stepped: int) -> Iterator[tuple[Ranges, int]]:
        if level < position:
            yield ranges, stepped
            return
        dim = nest.loops[level].dim
        begin, end = ranges[dim]
        for start in range(begin, end, steps[level]):
            inner = {**ranges, dim: (start, min(start + steps[level], end))}
            yield from run(level - 1, inner, level if start > begin else stepped)

    everything: Ranges = {dim: (0, nest.problem.size(dim)) for dim in DIMS}
    yield from run(len(nest.loops) - 1, everything, len(nest.loops))


def elements(problem: Problem, operand: str, ranges: Ranges) -> set[tuple[int, ...]]:
    """Return the elements of ``operand`` that the statements within ``ranges`` access, without padding."""
    if operand == "weights" and not problem.weighted:
        return set()
    spans = {dim: range(*ranges[dim]) for dim in DIMS}
    if operand == "weights":
        return set(product(spans["K"], spans["C"], spans["Fh"], spans["Fw"]))
    if operand == "output":
        return set(product(spans["K"], spans["Y"], spans["X"]))
    rows = {y * problem.stride[0] + f - problem.pad[0] for y in spans["Y"] for f in spans["Fh"]}
    columns = {x * problem.stride[1] + f - problem.pad[1] for x in spans["X"] for f in spans["Fw"]}
    return {
        (channel, row, column)
        for channel, row, column in product(spans["C"], rows, columns)
        if 0 <= row < problem.height and 0 <= column < problem.width
    }


def simulate(
    nest: Nest,
    operand: str,
    position: int,
    *,
    overlap: bool = False,
    scope: int | None = None,
    first_read: bool = False,
) -> tuple[int, int, int]:
    """Words read into a buffer at ``position``, words written back, and the most it held.

    Every group of channels does the same with other data.
    """
    reads = writes = most = 0
    held: set[tuple[int, ...]] = set()
    block: Ranges = {}
    seen: set[tuple[int, ...]] = set()
    for ranges, stepped in walk(nest, position):
        relevant = {dim: ranges[dim] for dim in DIMS if indexes(operand, dim)}
        wanted = elements(nest.problem, operand, ranges)
        if scope is not None and stepped >= position + scope:
            kept: set[tuple[int, ...]] = set()
        elif overlap:
            kept = held & wanted
        else:
            kept = wanted if relevant == block else set()
        fetched = wanted - kept
        if operand == "output":
            reads += len(fetched) if first_read else len(fetched & seen)
            writes += len(fetched)  # what comes in leaves again, sooner or later
            seen |= wanted
        else:
            reads += len(fetched)
        held, block = wanted, relevant
        most = max(most, len(held))
    return reads * nest.problem.groups, writes * nest.problem.groups, most
