"""Search for the best engine (programmable array of MACs) for one network, among the engines that fit a board.

All engines are compared by a quick estimate, the best of them by an estimate with tiles, and the best of these by the
exact schedule of their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from hwgen.devices.memory import URAM288
from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.bus.memory_ports import ports_resources
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import (
    CHAIN,
    LANES,
    LOOKUP_WORDS,
    MAX_CORES,
    MAX_KEPT_WORDS,
    REQUANTISERS,
    EngineConfig,
)
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.network.graph import Network
from hwgen.options import AUTO, BUS_BITS, OFF, called
from hwgen.program.array_pass import Pass
from hwgen.program.compile import passes_of
from hwgen.program.estimates import Estimate, Workload, tiled_estimate
from hwgen.program.fixed import lookup_words
from hwgen.templates.base import Goal, Refusal, Task, shortage

#: Sizes of the engine's array, as (output channels, pixels) per cycle; the first one that fits is always compared.
ARRAYS = ((8, 13), (8, 11), (8, 7), (8, 5))
#: Minimum number of pixels that DSP slices multiply in an array with a given number of other pixels multiplied in LUTs.
MIN_SLICE_PIXELS = 5
#: Candidate numbers of output channels and of pixels per cycle, in a search for the array's shape.
MAPS = (8, 16, 24, 32, 48, 64)
PIXELS = (37, 35, 31, 29, 25, 23, 19, 17, 13, 11, 7, 5)
#: Candidate depths (words) of each core's map buffer and weight buffer, in the order of trial on a board.
DEPTHS = ((2048, 2048), (1024, 2048), (1024, 1024), (512, 1024), (512, 512))
#: Depths (words) of the map buffer and the weight buffer of engines that leave more block RAM to a map memory.
SHALLOW = (512, 1024)
#: Depth (words) of the register files of an engine for layers in fixed point.
REGISTER_WORDS = 512
#: Share of a board's LUTs that an engine of searched sizes uses at most.
MAX_LUTS = 0.85
#: Names of the options that fix sizes of the engine's circuit, which are searched by default.
SEARCHED = ("cores", "array", "bus_bits")
#: Number of block RAMs that an engine with as large a map memory as fits can use on any board, and the share of a
#: larger board's block RAMs.
ALL_BRAM36, MAX_BRAM36 = 140, 0.85


def engines(task: Task) -> Iterator[EngineConfig]:
    """Yield each `EngineConfig` with a task's sizes, largest array first; by default one core and the widest bus.

    An engine is yielded whether it fits the board or not.

    Raises
    ------
    ConfigError
        If a size is out of range, or options exclude each other.
    """
    goal = task.goal
    arrays = _arrays(task)
    if not arrays:
        raise ConfigError(
            f"{called('lut_pixels')} must be at most {PIXELS[0] - MIN_SLICE_PIXELS}, not {goal.lut_pixels}"
        )
    for maps, pixels in arrays:
        try:
            engine = _engine(task, maps, pixels, goal.requantisers or LANES)
        except ConfigError as error:
            raise ConfigError(f"array: {error}") from None
        yield _with_map_memory(task, engine)


def _arrays(task: Task) -> Sequence[tuple[int, int]]:
    """Return a sequence of array shapes to try first, (output channels, pixels) per cycle, most pixels first."""
    goal = task.goal
    if isinstance(goal.array, tuple):
        return [goal.array]
    arrays: Sequence[tuple[int, int]] = ARRAYS
    if isinstance(goal.lut_pixels, int):
        arrays = [(LANES, pixels) for pixels in PIXELS]
        most = ARRAYS[0][1] + goal.lut_pixels
        arrays = [array for array in arrays if goal.lut_pixels + MIN_SLICE_PIXELS <= array[1] <= most]
    return [array for array in arrays if array[1] * LANES >= _bus_bytes(task)]


def _bus_bytes(task: Task) -> int:
    """Return the bytes per beat of the bus to memory that a task gives, or of the widest bus that it permits."""
    bits = task.goal.max_bus_bits if task.goal.bus_bits in (None, AUTO) else task.goal.bus_bits
    assert isinstance(bits, int)
    return bits // 8


def _bus_widths(task: Task) -> list[int]:
    """Return a list of bus widths (bits) to compare: the task's, or one memory port's and all useful ports' together.

    Ports are useful while memory moves more bytes per cycle than the ports before them, in one direction.
    """
    board, widest = task.board, 8 * _bus_bytes(task)
    if task.goal.bus_bits not in (None, AUTO):
        return [widest]
    memory = 8 * 1000 * board.memory_gb_s / board.clock_mhz
    widths = [widest]
    while widths[-1] < memory and board.ports_of(2 * widths[-1]) > 1 and 2 * widths[-1] <= BUS_BITS[-1]:
        widths.append(2 * widths[-1])
    return [*dict.fromkeys([widths[0], widths[-1]])]


def _bus_fields(task: Task, bus_bytes: int) -> dict[str, int]:
    """Return a dict of the `EngineConfig` fields ``bus_bytes`` and ``ports`` for a bus over a board's memory ports."""
    return {"bus_bytes": bus_bytes, "ports": task.board.ports_of(8 * bus_bytes)}


def narrower(task: Task, engine: EngineConfig) -> EngineConfig | None:
    """Return an `EngineConfig` with the next narrower memory port; ``None`` if narrowest or set by the task."""
    widths = [bits // 8 for bits in BUS_BITS if bits // 8 < engine.bus_bytes]
    is_given = task.goal.bus_bits not in (None, AUTO)
    return replace(engine, **_bus_fields(task, widths[-1])) if widths and not is_given else None


def refusal_of(task: Task, engine: EngineConfig) -> Refusal | None:
    """Return a `Refusal` that says why an engine does not fit a task's board; ``None`` if it fits.

    An engine whose number of products in LUTs is chosen uses at most `MAX_LUTS` of the board's LUTs.
    """
    used = _resources(engine)
    found = shortage(used, task.board, task.goal.dsp)
    most = MAX_LUTS * task.board.lut
    if found is None and task.goal.lut_pixels in (None, AUTO) and engine.lut_pixels and used.lut > most:
        return Refusal(
            f"plan needs {used.lut:,.0f} LUTs, but {called('lut_pixels')} auto takes {most:,.0f} at most",
            "LUTs",
            used.lut,
        )
    return found


def sizes_text(engine: EngineConfig) -> str:
    """Return a text with an engine's array (output channels x pixels x input channels per cycle) and cores."""
    cores = f"{engine.cores} cores, each " if engine.has_cores else ""
    luts = f", products of {engine.lut_pixels} pixels in LUTs" if engine.lut_pixels else ""
    lanes = f", {engine.requantisers} requantisers" if engine.beat_words > 1 else ""
    return f"{cores}{engine.maps} maps by {engine.pixels} pixels by {CHAIN} channels{luts}{lanes}"


# Sizes that are the largest ones


def _engine(task: Task, maps: int, pixels: int, requantisers: int, cores: int | None = None) -> EngineConfig:
    """Return an `EngineConfig` with a given array and ``cores`` cores; default: the task's, or 1.

    Raises
    ------
    ConfigError
        If a size is out of range.
    """
    count = cores or (1 if task.goal.cores in (None, AUTO) else task.goal.cores)
    assert isinstance(count, int)
    one = EngineConfig(
        device=task.board.family,
        maps=maps,
        pixels=pixels,
        requantisers=requantisers,
        **_bus_fields(task, _bus_bytes(task)),
        **_fixed_unit(task.network),
    )
    engine = replace(one, cores=count)
    return _with_deep_buffers(task, replace(engine, lut_pixels=_lut_pixels(task, engine)))


@lru_cache(maxsize=16)
def _fixed_unit(network: Network) -> dict[str, Any]:
    """Return a dict by field of the engine's sizes for layers in fixed point; empty if there are none."""
    try:
        passes = passes_of(network)
    except PlanError:  # reported where the network is compiled
        return {}
    if not any(each.fixed for each in passes):
        return {}
    words = lookup_words(passes)
    return {
        "fixed_words": REGISTER_WORDS,
        "lookup_words": next(size for size in (0, *LOOKUP_WORDS) if size >= words),
        "float_sums": any(each.fixed.has_float_sums for each in passes if each.fixed),
    }


def _lut_pixels(task: Task, engine: EngineConfig) -> int:
    """Return how many of an array's pixels LUTs multiply: the task's, or by default as many as lack DSP slices."""
    pixels = task.goal.lut_pixels
    if isinstance(pixels, int) or pixels == OFF:
        return pixels if isinstance(pixels, int) else 0
    slices = task.goal.dsp // engine.cores - engine.requantisers
    return min(max(engine.pixels - max(slices, 0) // (engine.pairs * CHAIN), 0), engine.pixels)


def _with_deep_buffers(task: Task, engine: EngineConfig) -> EngineConfig:
    """Return an `EngineConfig` of several cores with the deepest map and weight buffers that fit the board.

    Map buffers are in UltraRAM if the board has enough of it. An engine with one core is returned unchanged. Buffers
    may exceed `MAX_LUTS` of the LUTs only if all do.
    """
    if not engine.has_cores:
        return engine
    options = []
    for maps, weights in DEPTHS:
        if engine.device.memories.ultra:
            options.append(replace(engine, map_ram="ultra", map_words=URAM288.words, weight_steps=weights))
        options.append(replace(engine, map_words=maps, weight_steps=weights))
    fitting = (option for share in (MAX_LUTS, 1) for option in options if _engine_fits(task, option, share))
    return next(fitting, options[-1])


def _engine_fits(task: Task, engine: EngineConfig, lut_share: float) -> bool:
    """Return whether an engine fits a task's board, and uses at most ``lut_share`` of the board's LUTs."""
    used = _resources(engine)
    return shortage(used, task.board, task.goal.dsp) is None and used.lut <= lut_share * task.board.lut


def _with_map_memory(task: Task, engine: EngineConfig) -> EngineConfig:
    """Return an `EngineConfig`: a copy with the map memory (for maps that stay on chip) that the task asks for.

    It has whole banks. They are in UltraRAM if the board has enough of it (for at least one bank if the size is
    ``auto``), else in block RAM. Buffers are `SHALLOW` if a given size needs more than
    `_most_bram36` otherwise.

    Raises
    ------
    ConfigError
        If the engine has several cores, or the size is out of range.
    """
    size = task.goal.map_memory
    if size in (None, OFF):
        return engine
    if engine.has_cores:
        raise ConfigError(f"{called('map_memory')} must not be given for an engine of several cores")
    in_ultra_ram, ultra_banks = engine, 0
    if (ultra_ram := task.board.ultra_ram) is not None:
        in_ultra_ram = replace(engine, kept_rows=ultra_ram.words)
        ultra_banks = min(task.board.uram // engine.row_words, MAX_KEPT_WORDS // in_ultra_ram.bank_words)
    if isinstance(size, int):
        most = MAX_KEPT_WORDS * LANES // 1024
        if size > most:
            raise ConfigError(f"{called('map_memory')} must be at most {most:,} KiB, not {size:,}")
        if _banks(in_ultra_ram, size) <= ultra_banks:
            engine = in_ultra_ram
        whole = replace(engine, kept_words=_banks(engine, size) * engine.bank_words)
        return whole if _resources(whole).bram36 <= _most_bram36(task) else _with_small_buffers(whole)
    if ultra_banks:
        return replace(in_ultra_ram, kept_words=ultra_banks * in_ultra_ram.bank_words)
    bank = engine.bank_words
    first, second = (_resources(replace(engine, kept_words=banks * bank)).bram36 for banks in (1, 2))
    left = _most_bram36(task) - first
    banks = min(1 + left // (second - first), MAX_KEPT_WORDS // bank) if left >= 0 else 0
    return replace(engine, kept_words=int(banks) * bank)


def _most_bram36(task: Task) -> float:
    """Return the number of block RAMs that an engine with a map memory takes at most, unless asked for more."""
    return max(min(task.board.bram36, ALL_BRAM36), MAX_BRAM36 * task.board.bram36)


def _with_small_buffers(engine: EngineConfig) -> EngineConfig:
    """Return an `EngineConfig`: copy of an engine with smaller buffers, which leave more block RAM to a map memory."""
    map_words, weight_steps = SHALLOW
    return replace(engine, map_words=map_words, weight_steps=weight_steps)


def _banks(engine: EngineConfig, size: int) -> int:
    """Return the number of banks of a map memory of ``size`` KiB, rounded up."""
    return -(-size * 1024 // (engine.bank_words * LANES))


@lru_cache(maxsize=1 << 12)
def _resources(engine: EngineConfig) -> Resources:
    return EngineDesign(engine=engine).resources + ports_resources(engine)


# Engines of a search


def fitting_engines(task: Task, *, all_cores: bool = False) -> list[EngineConfig]:
    """Return a list of each `EngineConfig` that fits a task's board, over every size that the task leaves open.

    Several cores are as many as fit, and the largest power of two.

    Parameters
    ----------
    all_cores : bool
        Whether smaller numbers of cores are listed as well.
    """
    found: dict[EngineConfig, None] = {}
    for bits in _bus_widths(task):
        found |= dict.fromkeys(_fitting_engines(task.aiming(bus_bits=bits), all_cores))
    return [engine for engine in found if _engine_fits(task, engine, MAX_LUTS)]


def _fitting_engines(task: Task, all_cores: bool) -> Iterator[EngineConfig]:
    """Yield each `EngineConfig` of `fitting_engines` with the bus that a task gives; map memories may not fit."""
    for (maps, pixels), requantisers in product(_array_shapes(task), _requantiser_counts(task)):
        in_luts = task.goal.lut_pixels
        if pixels * LANES < _bus_bytes(task) or (isinstance(in_luts, int) and in_luts > pixels):
            continue
        for cores in _numbers_of_cores(task, maps, pixels, requantisers, all_cores):
            engine = _engine(task, maps, pixels, requantisers, cores)
            if _engine_fits(task, engine, MAX_LUTS) and refusal_of(task, engine) is None:
                yield from _map_memories(task, engine)


def _map_memories(task: Task, engine: EngineConfig) -> list[EngineConfig]:
    """Return a list: each `EngineConfig` with the map memory a task asks for; by default without, and largest.

    There are two largest ones: with normal buffers, and a larger one with `SHALLOW` buffers.
    """
    if engine.has_cores or task.goal.map_memory is not None:
        return [engine if engine.has_cores else _with_map_memory(task, engine)]
    largest = task.aiming(map_memory=AUTO)
    options = [engine]
    for option in (engine, _with_small_buffers(engine)):
        memory = _with_map_memory(largest, option)
        if memory.kept_words > options[-1].kept_words:
            options.append(memory)
    return options


def _array_shapes(task: Task) -> list[tuple[int, int]]:
    """Return a list of the array shapes (output channels, pixels per cycle) to compare: the task's shape, or all."""
    array = task.goal.array
    maps = MAPS[:1] if _fixed_unit(task.network) else MAPS
    return [array] if isinstance(array, tuple) else [*product(maps, PIXELS)]


def _requantiser_counts(task: Task) -> Sequence[int]:
    """Return a sequence of the numbers of requantisers to compare: the task's, else all candidates."""
    return REQUANTISERS if task.goal.requantisers is None else (task.goal.requantisers,)


def _numbers_of_cores(task: Task, maps: int, pixels: int, requantisers: int, all_cores: bool) -> list[int]:
    """Return a list of the numbers of cores to compare for an array: the task's, or a selection of those that fit."""
    cores = task.goal.cores
    if isinstance(cores, int):
        return [cores] if cores == 1 or maps == LANES else []
    if maps != LANES or task.goal.map_memory not in (None, OFF):
        return [1]

    def fits(count: int) -> bool:
        engine = _engine(task, maps, pixels, requantisers, count)
        return _engine_fits(task, engine, MAX_LUTS) and refusal_of(task, engine) is None

    most = _largest_count(fits, MAX_CORES)
    return [*range(1, most + 1)] if all_cores else [*{1: 0, 1 << (max(most, 1).bit_length() - 1): 0, max(most, 1): 0}]


def _largest_count(is_possible: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to ``limit`` that ``is_possible`` accepts, by bisection; 0 if there is none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle - 1)
    return low


#: Number of engines of each `kind`, with and without products in LUTs, that are estimated with tiles.
NUM_ESTIMATED = 3
#: Ratio to the fewest cycles, by the quick estimate, from which on an engine is not estimated with tiles.
HOPELESS = 1.5
#: Number of engines, the best by the estimate with tiles, that are also estimated with a narrower bus.
NUM_NARROWER = 2
#: Minimum share of the cycles that another engine must save to be mentioned in a plan.
GAIN = 0.05
#: Minimum share of the cycles that products in LUTs, or a map memory, must save to be chosen.
EXTRA_GAIN = 0.02

PaceOf = Callable[[EngineConfig], Fraction]
"""Type of a function from an engine to its memory port's cycles per beat; PlanError if memory is too slow."""


@dataclass(frozen=True)
class EngineCandidate:
    """Engine that a search considers, with its estimated cycles and bytes of memory traffic per frame."""

    engine: EngineConfig
    estimate: Estimate

    def sort_key(self, goal: Goal, error: float = 1) -> tuple[float, ...]:
        """Return a tuple that sorts engines by a plan's goal; estimated cycles are multiplied by ``error``."""
        return sort_key(goal, self.engine, error * self.estimate.cycles, self.estimate.moved_bytes)


def sort_key(goal: Goal, engine: EngineConfig, cycles: float, moved_bytes: float) -> tuple[float, ...]:
    """Return a tuple of numbers that sorts engines by a plan's goal, best first, from cycles and bytes per frame.

    Engines with products in LUTs, or with a map memory, count as slower by the gain that is expected of them.
    """
    used = _resources(engine)
    extras = (engine.lut_pixels > 0) + engine.has_map_memory
    compared = cycles * (1 + EXTRA_GAIN) ** extras
    if goal.objective == "traffic":
        return moved_bytes, compared, used.lut, used.dsp
    if goal.objective != "dsp":
        return compared, used.lut, used.dsp
    is_slow = goal.interval is not None and cycles > goal.interval
    return (1, compared, used.dsp, used.lut) if is_slow else (0, used.dsp, compared, used.lut)


def kind(engine: EngineConfig) -> tuple[int, int]:
    """Return a pair that groups engines of similar estimation errors: variant, and map buffer words (0 with cores)."""
    return engine.variant, 0 if engine.has_cores else engine.map_words


def candidates(task: Task, passes: Sequence[Pass], first: EngineConfig, pace_of: PaceOf) -> list[EngineCandidate]:
    """Return a list of `EngineCandidate` objects to compile a network for, best estimate first, with ``first``.

    The best engines of each `kind` come first.
    """
    frames = task.goal.batch or 1

    def tiled(engine: EngineConfig) -> EngineCandidate | None:
        estimate = tiled_estimate(passes, engine, pace_of(engine), frames)
        return None if estimate is None else EngineCandidate(engine, estimate)

    def by_order(option: EngineCandidate) -> tuple[float, ...]:
        return option.sort_key(task.goal)

    found = [option for engine in _promising_engines(task, passes, first, pace_of) if (option := tiled(engine))]
    found.sort(key=by_order)
    narrow = [other for option in found[:NUM_NARROWER] if (other := narrower(task, option.engine))]
    found += [option for engine in narrow if refusal_of(task, engine) is None and (option := tiled(engine))]
    found.sort(key=by_order)
    leaders = {kind(option.engine): option for option in reversed(found)}
    return [*dict.fromkeys([*sorted(leaders.values(), key=by_order), *found])]


def _promising_engines(task: Task, passes: Sequence[Pass], first: EngineConfig, pace_of: PaceOf) -> list[EngineConfig]:
    """Return a list of engines: ``first``, then the `NUM_ESTIMATED` best (plan's goal) of each `kind` by estimate.

    Engines that take `HOPELESS` times the fewest cycles are left out unless the goal is another one.

    With the objective ``dsp`` and a limit of the interval, the quick estimate is first scaled: with tiles, the fastest
    engine takes more cycles.
    """
    goal = task.goal
    ranked = estimated(task, passes, pace_of)
    scale = 1.0
    if goal.objective == "dsp" and goal.interval is not None and ranked:
        fastest = min(ranked, key=lambda option: option.estimate.cycles)
        tiled = tiled_estimate(passes, fastest.engine, pace_of(fastest.engine), goal.batch or 1)
        scale = 1.0 if tiled is None else tiled.cycles / fastest.estimate.cycles
    ranked.sort(key=lambda option: option.sort_key(goal, scale))
    kinds: dict[tuple[int, ...], list[EngineConfig]] = {}
    limit = min((HOPELESS * option.estimate.cycles for option in ranked), default=0)
    seen = set()
    for option in ranked:
        engine, cycles = option.engine, option.estimate.cycles
        idle = replace(engine, requantisers=LANES, lut_pixels=0), cycles  # more requantisers that gain nothing
        if idle not in seen and (goal.objective in ("dsp", "traffic") or cycles < limit):
            seen.add(idle)
            kinds.setdefault((*kind(engine), engine.lut_pixels > 0), []).append(engine)
    return [*dict.fromkeys([first, *(engine for alike in kinds.values() for engine in alike[:NUM_ESTIMATED])])]


def estimated(task: Task, passes: Sequence[Pass], pace_of: PaceOf) -> list[EngineCandidate]:
    """Return a list of each `EngineCandidate` that fits a task's board and memory, with quick estimates for passes."""
    workload, found = Workload(passes, task.goal.batch or 1), []
    for engine in fitting_engines(task, all_cores=task.goal.objective == "dsp"):
        try:
            found.append(EngineCandidate(engine, workload.estimate(engine, pace_of(engine))))
        except PlanError:  # the memory is too slow for the bus
            continue
    return found


@dataclass(frozen=True)
class FasterEngine:
    """Engine with other sizes that would compute a network faster than the planned one, and the cycles' share saved.

    Parameters
    ----------
    engine : EngineConfig
    gain : float
        Share of the cycles that the other engine saves, by the quick estimate.
    """

    engine: EngineConfig
    gain: float


def faster_engine(task: Task, engine: EngineConfig, passes: Sequence[Pass], pace_of: PaceOf) -> FasterEngine | None:
    """Return the `FasterEngine` with the fewest estimated cycles; ``None`` unless it saves the share `GAIN` of cycles.

    Return ``None`` also if it saves `GAIN` of the cycles of ``engine``, or less.
    """
    workload = Workload(passes, task.goal.batch or 1)
    best = min(estimated(task, passes, pace_of), key=lambda option: option.estimate.cycles, default=None)
    if best is None:
        return None
    gain = 1 - best.estimate.cycles / workload.estimate(engine, pace_of(engine)).cycles
    return FasterEngine(best.engine, gain) if gain > GAIN else None
