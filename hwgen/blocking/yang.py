"""Layers and memory hierarchies of Yang's blocking paper: DianNao's memories, co-designed ones, and several cores.

X. Yang et al., *A Systematic Approach to Blocking Convolutional Neural Networks*, 2016. Words have 16 bits. The
datapath processes 16 input channels and 16 output channels per cycle, so C and K are rounded up to multiples of 16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hwgen.blocking import energy, placement
from hwgen.blocking.energy import CoDesign, MemoryLevel, Private
from hwgen.blocking.priced import PricedBlocking
from hwgen.blocking.problem import OPERANDS, Nest, Problem
from hwgen.blocking.search import search
from hwgen.errors import PlanError

CORE = {"C": 16, "K": 16}
"""Dictionary by dimension (``C``, ``K``): number of channels that DianNao's datapath computes at once."""

LAYERS = {
    "Conv1": (256, 256, 256, 384, 11, 11),
    "Conv2": (500, 375, 32, 48, 9, 9),
    "Conv3": (32, 32, 108, 200, 4, 4),
    "Conv4": (56, 56, 128, 256, 3, 3),
    "Conv5": (28, 28, 256, 512, 3, 3),
}
"""Dictionary by name of benchmark convolutions (Yang's Table 4): (X, Y, C, K, Fw, Fh), output size, channels,
window."""

BASELINE_X = {"Conv1": 8, "Conv2": 5, "Conv3": 8, "Conv4": 8, "Conv5": 7}
"""Dictionary by benchmark layer of the block width in output columns in DianNao's own loop order.

The paper does not state these widths. Each is a divisor of X near 8.
"""

WIDTHS: dict[str, int] = dict.fromkeys(OPERANDS, 512)
"""Dictionary by operand (input, weights, output): word width in bits of its co-designed on-chip memory.

The paper uses wide memories wherever possible (section 4.2).
"""


def layer(name: str) -> Problem:
    """Return a benchmark layer (`Problem`) from Yang's Table 4, with channels rounded up to multiples of 16."""
    return Problem.valid(name, *LAYERS[name]).padded(**CORE)


def diannao(width: int | None = None) -> Private:
    """Return a `Private` hierarchy: DianNao's memories (2 KB inputs, 32 KB weights, 2 KB outputs), one per operand.

    Their words have 256, 512 and 256 bits, the sizes nearest to 16 inputs, 256 weights and 16 outputs per cycle; or all
    have ``width`` bits.
    """
    sizes = {"input": (2, 256), "weights": (32, 512), "output": (2, 256)}
    return Private(
        memories={
            operand: [MemoryLevel.sized(f"{operand} buffer", kb << 10, width or own)]
            for operand, (kb, own) in sizes.items()
        }
    )


def baseline(name: str) -> PricedBlocking:
    """Return a benchmark layer's `PricedBlocking` with DianNao's loop order: energy in pJ, inputs in DRAM."""
    problem = layer(name)
    text = f"C0=16 K0=16 X0={BASELINE_X[name]} Fw Fh C1={problem.C} K1={problem.K} X1={problem.X} Y0={problem.Y}"
    memories = {**diannao().memories, "input": []}
    return placement.best(Nest.parse(problem, text), Private(memories=memories), inside=2)


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
) -> PricedBlocking:
    """Return a layer's `PricedBlocking` of least energy with on-chip memories of at most ``limit`` bytes."""
    hierarchy = CoDesign(limit=limit, levels=levels, widths=WIDTHS, homed=homed)
    return search(problem, hierarchy, base=CORE if base is None else base, pair=pair, ragged=ragged, width=width)


def datapath_block(problem: Problem, core: Mapping[str, int] = CORE) -> Mapping[str, int]:
    """Return a mapping: how many channels the datapath computes at once, by dimension; empty without weights."""
    return core if problem.weighted else {}


@dataclass(frozen=True, kw_only=True)
class Common:
    """Result of a search: one memory hierarchy for several layers, with each layer's blocking of least energy on it.

    Parameters
    ----------
    hierarchy : Private
        Memories that all layers use.
    blockings : tuple of PricedBlocking
        Best blocking of each layer.
    bound : float
        Lower bound of the energy with any hierarchy within the limit, in pJ: the sum over the layers, each with its own
        hierarchy.
    """

    hierarchy: Private
    blockings: tuple[PricedBlocking, ...]
    bound: float

    @property
    def energy(self) -> float:
        """Memory energy of all layers on the common hierarchy, in pJ, a float."""
        return sum(blocking.energy for blocking in self.blockings)

    @property
    def size(self) -> int:
        """Total size of all memories of the common hierarchy, in bytes."""
        return sum(memory.size for memories in self.hierarchy.memories.values() for memory in memories)

    @property
    def gap(self) -> float:
        """Optimality gap: at most this fraction (0 to 1) of the energy could be saved by another common hierarchy."""
        return max(0.0, 1 - self.bound / self.energy)


def common(
    problems: Sequence[Problem],
    limit: int,
    *,
    levels: int = 3,
    base: Mapping[str, int] | None = None,
    rounds: int = 2,
) -> Common:
    """Return a `Common` memory hierarchy with each layer's blocking, of low total energy for all layers (Yang 3.6).

    First every layer is optimised separately. The hierarchies of these layers, rounded to powers of two, are the
    candidates. The best candidate for all layers together is then improved by halving or doubling one memory at a time,
    in ``rounds`` rounds. The result need not be optimal; `Common.gap` bounds its distance from the optimum.

    Raises
    ------
    PlanError
        If no candidate fits every layer.
    """
    core = CORE if base is None else base
    shapes = {replace(problem, name=""): problem for problem in problems}
    weight = Counter(replace(problem, name="") for problem in problems)
    alone = {
        shape: codesign(problem, limit, levels=levels, base=datapath_block(problem, core))
        for shape, problem in shapes.items()
    }

    # the most expensive layers first: they show earliest that a hierarchy is no better than the best so far
    order = sorted(shapes, key=lambda shape: -weight[shape] * alone[shape].bound)
    bounds = {shape: alone[shape].bound for shape in order}

    def total(sizes: _Sizes, best: float = inf) -> float:
        return _total_energy(sizes, bounds, weight, core, best) if sum(map(sum, sizes)) <= limit else inf

    costs = {sizes: total(sizes) for sizes in {_buffer_sizes(blockings) for blockings in alone.values()}}
    best = _improved_sizes(costs, total, rounds)
    if costs[best] == inf:
        raise PlanError(f"no hierarchy of at most {limit} bytes was found that all {len(problems)} layers can use")
    hierarchy = _private(best)
    final = {shape: search(shape, hierarchy, base=datapath_block(shape, core)) for shape in shapes}
    blockings = tuple(final[replace(problem, name="")] for problem in problems)
    return Common(
        hierarchy=hierarchy,
        blockings=tuple(
            replace(blocking, nest=replace(blocking.nest, problem=p))
            for blocking, p in zip(blockings, problems, strict=True)
        ),
        bound=sum(count * alone[shape].bound for shape, count in weight.items()),
    )


def _total_energy(
    sizes: _Sizes, bounds: Mapping[Problem, float], weight: Mapping[Problem, int], core: Mapping[str, int], best: float
) -> float:
    """Return the memory energy (pJ) of all layers on one hierarchy, by rough searches; infinite if a layer won't fit.

    ``weight`` holds the number of occurrences of each layer. The window's loops form a pair. The result is infinite too
    as soon as it can't be below ``best``.
    """
    hierarchy = _private(sizes)
    total = sum(weight[shape] * bound for shape, bound in bounds.items())
    for shape, bound in bounds.items():
        try:
            base = datapath_block(shape, core)
            taken = search(shape, hierarchy, base=base, pair=True, first=_ROUGH, within=1.0).energy
        except PlanError:
            return inf
        total += weight[shape] * (taken - bound)
        if total >= best:
            return inf
    return total


def _improved_sizes(costs: dict[_Sizes, float], total: Callable[[_Sizes, float], float], rounds: int) -> _Sizes:
    """Return the memory sizes of least energy found by changing one memory at a time, in up to ``rounds`` rounds.

    The hierarchies that the search tries are added to ``costs``.
    """
    best = min(costs, key=lambda sizes: costs[sizes])
    for _ in range(rounds):
        before = costs[best]
        for sizes in _neighbouring_hierarchies(best):
            if sizes not in costs:
                costs[sizes] = total(sizes, costs[best])
                best = min(best, sizes, key=lambda sizes: costs[sizes])
        if costs[best] == before:
            break
    return best


_ROUGH = 3
"""Number of partial blockings (loop orders) kept per combination of tile sizes, in searches that compare
hierarchies."""

_Sizes = tuple[tuple[int, ...], ...]


def _buffer_sizes(blocking: PricedBlocking) -> _Sizes:
    """Return, per operand, the distinct sizes of a blocking's buffers: bytes rounded up to powers of two."""
    sizes = []
    for operand in OPERANDS:
        words = [buffer.words for buffer in blocking.buffers if buffer.operand == operand]
        sizes.append(tuple(sorted({1 << (energy.WORD_BYTES * count - 1).bit_length() for count in words})))
    return tuple(sizes)


def _neighbouring_hierarchies(sizes: _Sizes) -> Iterator[_Sizes]:
    """Yield the memory sizes of hierarchies with one memory halved, doubled or left out."""
    for index, own in enumerate(sizes):
        for memory_index, size in enumerate(own):
            for changed in ((size // 2,), (size * 2,), ()):
                fresh = tuple(sorted({*own[:memory_index], *changed, *own[memory_index + 1 :]}))
                if min(fresh, default=2) >= 2:
                    yield (*sizes[:index], fresh, *sizes[index + 1 :])


def _private(sizes: _Sizes) -> Private:
    return Private(
        memories={
            operand: [MemoryLevel.sized(f"{operand}{level}", size, WIDTHS[operand]) for level, size in enumerate(own)]
            for operand, own in zip(OPERANDS, sizes, strict=True)
        }
    )


def multicore(blocking: PricedBlocking, cores: int, shared: str) -> dict[str, float]:
    """Return a dict by component of the energy (pJ) when cores share a blocking: memories, broadcast (Yang 3.3).

    Parameters
    ----------
    blocking : PricedBlocking
        Blocking on one core.
    cores : int
        Number of cores.
    shared : str
        ``"input"`` if the cores divide the output channels, ``"weights"`` if they divide the pixels.

        The last buffer of this operand stays whole and sends to all cores at once. Therefore it has fewer accesses by
        the factor ``cores``, and each costs as much as an access to a memory as large as the whole chip. The last
        buffers of the other operands are divided between the cores, and every core has its own inner buffers. Whole
        arrays on chip stay in one memory (``home``). Divided output channels must be sent to all cores after the layer
        (``shuffle``).

    Raises
    ------
    PlanError
        If the cores can't divide the layer evenly.
    """
    problem = blocking.nest.problem
    num_blocks = problem.K if shared == "input" else problem.X * problem.Y
    if shared not in ("input", "weights") or cores < 1 or num_blocks % cores:
        raise PlanError(
            f"{problem.name}: {cores} cores can't share {shared} and divide {num_blocks} blocks evenly; cores must "
            f"divide {num_blocks}"
        )
    whole = energy.access(blocking.on_chip + blocking.whole_array_bytes, max(WIDTHS.values()))
    result: dict[str, float] = dict.fromkeys(("private", *OPERANDS, "shuffle", "home", "dram"), 0.0)
    for operand in OPERANDS:
        own = [buffer for buffer in blocking.buffers if buffer.operand == operand]
        result["private"] += sum(buffer.accesses * buffer.energy for buffer in own[:-1])
        for last in own[-1:]:
            size = last.words * energy.WORD_BYTES
            if cores == 1:
                result[operand] = last.accesses * last.energy
            elif operand == shared:
                result[operand] = last.accesses / cores * whole
            else:
                result[operand] = last.accesses * energy.access(size / cores, WIDTHS[operand])
        result["home" if operand in blocking.homes else "dram"] += blocking.outermost_energy(operand)
    if cores > 1 and shared == "input":
        result["shuffle"] = problem.output_words * whole
    return result
