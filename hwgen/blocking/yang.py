"""Yang's benchmarks and memories: DianNao's hierarchy, hierarchies made to measure, several layers, several cores.

X. Yang et al., *A Systematic Approach to Blocking Convolutional Neural Networks*, 2016. Words have 16 bits. The
datapath takes 16 input channels and 16 output channels a cycle, so C and K are rounded up to multiples of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hwgen.blocking import energy, place
from hwgen.blocking.hierarchy import CoDesign, Memory, Private
from hwgen.blocking.nest import Nest
from hwgen.blocking.priced import Found
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.search import search
from hwgen.errors import PlanError

__all__ = [
    "BASELINE_X",
    "CORE",
    "LAYERS",
    "Common",
    "baseline",
    "codesign",
    "common",
    "diannao",
    "layer",
    "multicore",
]

CORE = {"C": 16, "K": 16}
"""What DianNao's datapath computes at once."""

LAYERS = {
    "Conv1": (256, 256, 256, 384, 11, 11),
    "Conv2": (500, 375, 32, 48, 9, 9),
    "Conv3": (32, 32, 108, 200, 4, 4),
    "Conv4": (56, 56, 128, 256, 3, 3),
    "Conv5": (28, 28, 256, 512, 3, 3),
}
"""Table 4's convolutions: X, Y, C, K, Fw, Fh."""

BASELINE_X = {"Conv1": 8, "Conv2": 5, "Conv3": 8, "Conv4": 8, "Conv5": 7}
"""Columns of the block in the baseline: the paper doesn't say; about 8, and a divisor."""

WIDTHS: dict[str, int] = dict.fromkeys(OPERANDS, 512)
"""Word length of co-designed memories: the paper uses wide ones wherever it can (section 4.2)."""


def layer(name: str) -> Problem:
    """One of `LAYERS`, rounded up for the datapath."""
    return Problem.valid(name, *LAYERS[name]).padded(**CORE)


def diannao(width: int | None = None) -> Private:
    """DianNao's buffers: 2 KB for inputs, 32 KB for weights, 2 KB for outputs.

    Their words have 256, 512 and 256 bits, what 16 inputs, 256 weights and 16 outputs a cycle come nearest to; or all
    ``width``.
    """
    sizes = {"input": (2, 256), "weights": (32, 512), "output": (2, 256)}
    return Private(
        memories={
            operand: [Memory(name=f"{operand} buffer", size=kb << 10, energy=energy.access(kb << 10, width or own))]
            for operand, (kb, own) in sizes.items()
        }
    )


def baseline(name: str) -> Found:
    """DianNao's own order, with a block of columns inside it: inputs come from DRAM (section 5.2)."""
    problem = layer(name)
    text = f"C0=16 K0=16 X0={BASELINE_X[name]} Fw Fh C1={problem.C} K1={problem.K} X1={problem.X} Y0={problem.Y}"
    memories = {**diannao().memories, "input": []}
    return place.best(Nest.parse(problem, text), Private(memories=memories), inside=2)


def codesign(
    problem: Problem,
    limit: int,
    *,
    levels: int = 4,
    homed: bool = False,
    pair: bool = False,
    ragged: bool = False,
    width: int = 4000,
    base: Mapping[str, int] | None = None,
) -> Found:
    """The memories and the blocking that take least energy together, with at most ``limit`` bytes on chip."""
    hierarchy = CoDesign(limit=limit, levels=levels, widths=WIDTHS, homed=homed)
    return search(problem, hierarchy, base=CORE if base is None else base, pair=pair, ragged=ragged, width=width)


def at_once(problem: Problem, core: Mapping[str, int] = CORE) -> Mapping[str, int]:
    """What the datapath computes of ``problem`` at once: ``core``, or one element where there are no weights."""
    return core if problem.weighted else {}


@dataclass(frozen=True, kw_only=True)
class Common:
    """One hierarchy for several layers.

    Parameters
    ----------
    hierarchy : Private
    found : tuple of Found
        Of each layer.
    bound : float
        No hierarchy within the limit takes less: the sum of what each layer would take with its own.
    """

    hierarchy: Private
    found: tuple[Found, ...]
    bound: float

    @property
    def energy(self) -> float:
        return sum(found.energy for found in self.found)

    @property
    def size(self) -> int:
        """Bytes of all memories."""
        return sum(memory.size for memories in self.hierarchy.memories.values() for memory in memories)

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound / self.energy)


def common(
    problems: Sequence[Problem],
    limit: int,
    *,
    levels: int = 3,
    base: Mapping[str, int] | None = None,
    rounds: int = 2,
) -> Common:
    """One hierarchy for all of ``problems`` with the least energy in all (section 3.6).

    First every layer alone; their hierarchies, rounded to powers of two, are the candidates. The best for all layers
    together is then bettered by halving or doubling one memory at a time, ``rounds`` times around. A search, not an
    optimum: `Common.gap` says how far off it may be.

    Raises
    ------
    PlanError
        If a layer fits none of the candidates.
    """
    core = CORE if base is None else base
    kinds = {replace(problem, name=""): problem for problem in problems}
    alone = {
        kind: codesign(problem, limit, levels=levels, base=at_once(problem, core)) for kind, problem in kinds.items()
    }
    weight = {kind: sum(replace(problem, name="") == kind for problem in problems) for kind in kinds}

    # the dearest layers first: they soonest show that a hierarchy is no better than the best so far
    order = sorted(kinds, key=lambda kind: -weight[kind] * alone[kind].bound)
    bounds = {kind: alone[kind].bound for kind in order}

    def total(sizes: _Sizes, best: float = inf) -> float:
        return _total(sizes, bounds, weight, core, best) if sum(map(sum, sizes)) <= limit else inf

    costs = {sizes: total(sizes) for sizes in {_sizes(found) for found in alone.values()}}
    best = _descended(costs, total, rounds)
    if costs[best] == inf:
        raise PlanError(f"no hierarchy of at most {limit} bytes was found that all {len(problems)} layers can use")
    hierarchy = _private(best)
    final = {kind: search(kind, hierarchy, base=at_once(kind, core)) for kind in kinds}
    found = tuple(final[replace(problem, name="")] for problem in problems)
    return Common(
        hierarchy=hierarchy,
        found=tuple(replace(one, nest=replace(one.nest, problem=p)) for one, p in zip(found, problems, strict=True)),
        bound=sum(count * alone[kind].bound for kind, count in weight.items()),
    )


def _total(
    sizes: _Sizes, bounds: Mapping[Problem, float], weight: Mapping[Problem, int], core: Mapping[str, int], best: float
) -> float:
    """pJ of all layers, each as often as ``weight`` says, by rough searches with the window as a pair; infinite if one
    does not fit, or once it can't be below ``best``."""
    hierarchy = _private(sizes)
    least = sum(weight[kind] * bound for kind, bound in bounds.items())
    for kind, bound in bounds.items():
        try:
            base = at_once(kind, core)
            taken = search(kind, hierarchy, base=base, pair=True, first=_ROUGH, within=1.0).energy
        except PlanError:
            return inf
        least += weight[kind] * (taken - bound)
        if least >= best:
            return inf
    return least


def _descended(costs: dict[_Sizes, float], total: Callable[[_Sizes, float], float], rounds: int) -> _Sizes:
    """The cheapest of ``costs``, bettered by one memory at a time, ``rounds`` times around; adds what it tried."""
    best = min(costs, key=lambda sizes: costs[sizes])
    for _ in range(rounds):
        before = costs[best]
        for sizes in _neighbours(best):
            if sizes not in costs:
                costs[sizes] = total(sizes, costs[best])
                best = min(best, sizes, key=lambda sizes: costs[sizes])
        if costs[best] == before:
            break
    return best


_ROUGH = 3
"""Labels at a point while hierarchies are compared."""

_Sizes = tuple[tuple[int, ...], ...]


def _sizes(found: Found) -> _Sizes:
    """Bytes of each operand's buffers, rounded up to powers of two, small to large, all different."""
    sizes = []
    for operand in OPERANDS:
        words = [buffer.words for buffer in found.buffers if buffer.operand == operand]
        sizes.append(tuple(sorted({1 << (energy.WORD_BYTES * count - 1).bit_length() for count in words})))
    return tuple(sizes)


def _neighbours(sizes: _Sizes) -> Iterator[_Sizes]:
    """One memory half or twice as large, or left out."""
    for index, own in enumerate(sizes):
        for spot, size in enumerate(own):
            for changed in ((size // 2,), (size * 2,), ()):
                fresh = tuple(sorted({*own[:spot], *changed, *own[spot + 1 :]}))
                if min(fresh, default=2) >= 2:
                    yield (*sizes[:index], fresh, *sizes[index + 1 :])


def _private(sizes: _Sizes) -> Private:
    return Private(
        memories={
            operand: [
                Memory(name=f"{operand}{level}", size=size, energy=energy.access(size, WIDTHS[operand]))
                for level, size in enumerate(own)
            ]
            for operand, own in zip(OPERANDS, sizes, strict=True)
        }
    )


def multicore(found: Found, cores: int, shared: str) -> dict[str, float]:
    """pJ of ``found`` on several cores, by part (section 3.3, Fig. 9).

    ``shared`` is ``"input"`` (cores part the output channels) or ``"weights"`` (they part the pixels). The last buffer
    of that operand stays whole, and what it sends goes to all cores at once: so many times fewer accesses, each as dear
    as one to a memory as large as all on chip. The other operands' last buffers are parted, the inner ones are every
    core's own. Whole arrays on chip stay one memory for all (``home``). Parted output channels must be sent to all
    cores after the layer (``shuffle``).

    Raises
    ------
    PlanError
        If the cores can't part the layer evenly.
    """
    problem = found.nest.problem
    parts = problem.K if shared == "input" else problem.X * problem.Y
    if shared not in ("input", "weights") or cores < 1 or parts % cores:
        raise PlanError(f"{problem.name}: {cores} cores can't share {shared} and part {parts} blocks evenly")
    whole = energy.access(found.on_chip + found.at_home, max(WIDTHS.values()))
    result: dict[str, float] = dict.fromkeys(("private", *OPERANDS, "shuffle", "home", "dram"), 0.0)
    for operand in OPERANDS:
        own = [buffer for buffer in found.buffers if buffer.operand == operand]
        result["private"] += sum(buffer.accesses * buffer.energy for buffer in own[:-1])
        for last in own[-1:]:
            size = last.words * energy.WORD_BYTES
            if cores == 1:
                result[operand] = last.accesses * last.energy
            elif operand == shared:
                result[operand] = last.accesses / cores * whole
            else:
                result[operand] = last.accesses * energy.access(size / cores, WIDTHS[operand])
        result["home" if operand in found.homes else "dram"] += found.behind(operand)
    if cores > 1 and shared == "input":
        result["shuffle"] = problem.output_words * whole
    return result
