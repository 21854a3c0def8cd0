"""Sizes of an engine for a board: the shape of its array, its cores, buffers and map memory.

Options of a plan fix some sizes. The others are the largest that fit the board. With ``--array auto`` they are those
with the fewest cycles, by an estimate, for one network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from hwgen.errors import ConfigError
from hwgen.gateware.engine.config import (
    CHAIN,
    LANES,
    MOST_CORES,
    MOST_KEPT_WORDS,
    REQUANTISERS,
    EngineConfig,
)
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.options import AUTO, BUS_BITS, LUT_SHARE
from hwgen.program.array_pass import Pass
from hwgen.program.layout import blocks
from hwgen.program.tiles import fold_steps, weight_steps
from hwgen.templates.budget import shortage
from hwgen.templates.refusal import Refusal
from hwgen.templates.task import Task

__all__ = [
    "engines",
    "estimated_cycles",
    "faster_shape",
    "fastest_shapes",
    "fitting_shapes",
    "refusal_of",
    "sizes_text",
]

#: Candidate sizes of the engine's array, as (output channels, pixels) per cycle, in the order of preference.
ARRAYS = ((8, 13), (8, 11), (8, 7), (8, 5))
#: Smallest number of pixels with DSP slices in an array that has others with products in LUTs.
MIN_SLICE_PIXELS = 5
#: Candidate numbers of output channels and of pixels per cycle, in a search for the array's shape.
MAPS = (8, 16, 24, 32, 48, 64)
PIXELS = (37, 35, 31, 29, 25, 23, 19, 17, 13, 11, 7, 5)
#: Number of arrays of a kind, the largest that fit, which a search for the array's shape compares.
LARGEST = 2
#: Depths of each core's map buffer and weight buffer, in the order in which they are tried on a board.
DEPTHS = ((2048, 2048), (1024, 2048), (1024, 1024), (512, 1024), (512, 512))
#: Share of a board's LUTs that an engine of as many cores as fit uses at most.
MOST_LUTS = 0.85
#: Number of block RAMs that an engine with as large a map memory as fits can use on any board, and the share of a
#: larger board's block RAMs.
ALL_BRAM36, MOST_BRAM36 = 140, 0.85
#: Smallest gain of another shape of the array, as a share of the cycles, of which a plan tells.
GAIN = 0.05


def engines(task: Task) -> Iterator[EngineConfig]:
    """Yield the engines that are tried for a task, in the order of preference, whether they fit the board or not.

    Raises
    ------
    ConfigError
        If a size is out of range, or options exclude each other.
    """
    goal = task.goal
    if goal.array == AUTO and goal.cores not in (None, 1):
        raise ConfigError("array must be maps and pixels with several cores, not auto")
    if goal.cores == AUTO and goal.lut_pixels == AUTO:
        raise ConfigError("lut_pixels must be a number with cores auto, not auto")
    arrays = _arrays(task)
    if not arrays:
        raise ConfigError(f"lut_pixels must be at most {PIXELS[0] - MIN_SLICE_PIXELS}, not {goal.lut_pixels}")
    for maps, pixels in arrays:
        try:
            engine = _engine(task, maps, pixels, goal.requantisers or LANES)
        except ConfigError as error:
            raise ConfigError(f"array: {error}") from None
        yield _with_map_memory(task, engine)


def _arrays(task: Task) -> Sequence[tuple[int, int]]:
    """Return the sizes of the arrays that are tried first, of which several pixels have DSP slices."""
    goal = task.goal
    if isinstance(goal.array, tuple):
        return [goal.array]
    arrays = ARRAYS if goal.lut_pixels is None else [(LANES, pixels) for pixels in PIXELS]
    if isinstance(goal.lut_pixels, int):
        most = ARRAYS[0][1] + goal.lut_pixels
        arrays = [array for array in arrays if goal.lut_pixels + MIN_SLICE_PIXELS <= array[1] <= most]
    return [array for array in arrays if array[1] * LANES >= _bus_bytes(task)]


def _bus_bytes(task: Task) -> int:
    return (task.goal.bus_bits or BUS_BITS[1]) // 8


def refusal_of(task: Task, engine: EngineConfig) -> Refusal | None:
    """Return why an engine does not fit the board of a task, or ``None`` if it fits.

    An engine with as many products in LUTs as fit uses at most `LUT_SHARE` of the board's LUTs.
    """
    used = EngineDesign(engine=engine).resources.on(task.board.family)
    found = shortage(used, task.board, task.goal.dsp)
    most = LUT_SHARE * task.board.lut
    if found is None and task.goal.lut_pixels == AUTO and engine.lut_pixels and used.lut > most:
        return Refusal(
            f"plan needs {used.lut:,.0f} LUTs, but lut_pixels auto takes {most:,.0f} at most", "LUTs", used.lut
        )
    return found


def sizes_text(engine: EngineConfig) -> str:
    """Return the shape of an engine's array as text, with the number of cores."""
    cores = f"{engine.cores} cores, each " if engine.has_cores else ""
    luts = f", products of {engine.lut_pixels} pixels in LUTs" if engine.lut_pixels else ""
    lanes = f", {engine.requantisers} requantisers" if engine.beat_words > 1 else ""
    return f"{cores}{engine.maps} maps by {engine.pixels} pixels by {CHAIN} channels{luts}{lanes}"


# Sizes that are the largest ones


def _engine(task: Task, maps: int, pixels: int, requantisers: int) -> EngineConfig:
    """Return an engine with an array, and with as many cores and products in LUTs as the task asks for.

    Raises
    ------
    ConfigError
        If a size is out of range.
    """
    cores = task.goal.cores or 1
    if isinstance(cores, int):
        one = EngineConfig(maps=maps, pixels=pixels, bus_bytes=_bus_bytes(task), requantisers=requantisers)
        engine = replace(one, cores=cores)
        return _deepest(task, replace(engine, lut_pixels=_lut_pixels(task, engine)), 1)
    luts = task.goal.lut_pixels or 0
    assert isinstance(luts, int)  # auto is refused with cores auto
    one = EngineConfig(maps=maps, pixels=pixels, bus_bytes=_bus_bytes(task), requantisers=requantisers, lut_pixels=luts)
    most = MOST_CORES if maps == LANES else 1
    options = (_deepest(task, replace(one, cores=cores), MOST_LUTS) for cores in range(most, 1, -1))
    return next((engine for engine in options if _fits(task, engine, MOST_LUTS)), one)


def _lut_pixels(task: Task, engine: EngineConfig) -> int:
    """Return the number of pixels of an array whose products LUTs compute: if ``auto``, those without DSP slices."""
    pixels = task.goal.lut_pixels or 0
    if isinstance(pixels, int):
        return pixels
    slices = task.goal.dsp // engine.cores - engine.requantisers
    return min(max(engine.pixels - max(slices, 0) // (engine.pairs * CHAIN), 0), engine.pixels)


def _deepest(task: Task, engine: EngineConfig, lut_share: float) -> EngineConfig:
    """Return an engine with the deepest buffers of `DEPTHS` that fit the board; with one core, the engine itself.

    ``lut_share`` is the share of the board's LUTs that the engine uses at most.
    """
    if not engine.has_cores:
        return engine
    options = [replace(engine, map_words=maps, weight_steps=weights) for maps, weights in DEPTHS]
    return next((option for option in options if _fits(task, option, lut_share)), options[-1])


def _fits(task: Task, engine: EngineConfig, lut_share: float) -> bool:
    """Return whether an engine of several cores fits a task's board, with a share of the board's LUTs."""
    used = EngineDesign(engine=engine).resources
    return shortage(used, task.board, task.goal.dsp) is None and used.lut <= lut_share * task.board.lut


def _with_map_memory(task: Task, engine: EngineConfig) -> EngineConfig:
    """Return an engine with a map memory of the size that the task asks for, in whole banks.

    The banks are in UltraRAM if the board has enough of it (with ``auto``: of one bank at least), else in block RAM.

    Raises
    ------
    ConfigError
        If the engine has several cores, or the size is out of range.
    """
    size = task.goal.map_memory
    if size is None:
        return engine
    if engine.has_cores:
        raise ConfigError("map_memory must not be given for an engine of several cores")
    in_ultra_ram, ultra_banks = engine, 0
    if (ultra_ram := task.board.ultra_ram) is not None:
        in_ultra_ram = replace(engine, kept_rows=ultra_ram.words)
        ultra_banks = min(task.board.uram // engine.row_words, MOST_KEPT_WORDS // in_ultra_ram.bank_words)
    if isinstance(size, int):
        most = MOST_KEPT_WORDS * LANES // 1024
        if size > most:
            raise ConfigError(f"map_memory must be at most {most:,} KiB, not {size:,}")
        if _banks(in_ultra_ram, size) <= ultra_banks:
            engine = in_ultra_ram
        return replace(engine, kept_words=_banks(engine, size) * engine.bank_words)
    if ultra_banks:
        return replace(in_ultra_ram, kept_words=ultra_banks * in_ultra_ram.bank_words)
    bank = engine.bank_words
    board, whole = task.board, replace(engine, kept_words=bank)
    bank_bram36 = EngineDesign(engine=whole).resources.bram36 - EngineDesign(engine=engine).resources.bram36
    left = max(min(board.bram36, ALL_BRAM36), MOST_BRAM36 * board.bram36) - EngineDesign(engine=engine).resources.bram36
    banks = min(max(left, 0) // bank_bram36, MOST_KEPT_WORDS // bank)
    return replace(engine, kept_words=int(banks) * bank)


def _banks(engine: EngineConfig, size: int) -> int:
    """Return the number of banks of a map memory of ``size`` KiB, rounded up."""
    return -(-size * 1024 // (engine.bank_words * LANES))


# Search for the shape of the array


def fitting_shapes(task: Task) -> list[EngineConfig]:
    """Return engines that fit the board of a task, with arrays of all kinds, each as large as it fits.

    Raises
    ------
    ConfigError
        If the task asks for sizes that no engine has.
    """
    lanes = REQUANTISERS if task.goal.requantisers is None else (task.goal.requantisers,)
    shapes: list[EngineConfig] = []
    for maps, requantisers in product(MAPS, lanes):
        of_kind: list[EngineConfig] = []
        for pixels in PIXELS:
            if not _is_possible(task, maps, pixels):
                continue
            engine = _with_map_memory(task, _engine(task, maps, pixels, requantisers))
            if refusal_of(task, engine) is None:
                of_kind.append(engine)
            if len(of_kind) == LARGEST:
                break
        shapes += of_kind
    return shapes


def _is_possible(task: Task, maps: int, pixels: int) -> bool:
    """Return whether an engine can have an array with the cores, the bus and the products in LUTs of a task."""
    goal = task.goal
    has_cores = goal.cores not in (None, 1)
    has_lut_pixels = not isinstance(goal.lut_pixels, int) or goal.lut_pixels <= pixels
    return (maps == LANES or not has_cores) and has_lut_pixels and pixels * LANES >= _bus_bytes(task)


@dataclass(frozen=True)
class FasterShape:
    """Engine of another shape that would compute a network faster.

    Parameters
    ----------
    engine : EngineConfig
    gain : float
        Share of the cycles that the other engine saves, by an estimate.
    """

    engine: EngineConfig
    gain: float


def faster_shape(task: Task, engine: EngineConfig, passes: Sequence[Pass], pace: Fraction) -> FasterShape | None:
    """Return the fitting engine with the fewest estimated cycles for some passes.

    ``None`` if it gains less than `GAIN` over ``engine``.
    """
    best = min(fitting_shapes(task), key=lambda shape: estimated_cycles(passes, shape, pace), default=engine)
    gain = 1 - estimated_cycles(passes, best, pace) / estimated_cycles(passes, engine, pace)
    return FasterShape(best, gain) if gain > GAIN else None


def fastest_shapes(
    task: Task, passes: Sequence[Pass], pace_of: Callable[[EngineConfig], Fraction], count: int
) -> list[EngineConfig]:
    """Return the ``count`` fitting engines with the fewest estimated cycles for some passes, the fastest first."""
    return sorted(fitting_shapes(task), key=lambda shape: estimated_cycles(passes, shape, pace_of(shape)))[:count]


def estimated_cycles(passes: Sequence[Pass], engine: EngineConfig, pace: Fraction) -> float:
    """Return a quick estimate of the cycles of some passes of a frame on an engine of one core.

    Each pass takes as long as the array, the drain or the port, whichever is slowest. The port moves every map and
    weight once. Maps that the map memory can hold are not moved.
    """
    return sum(
        max(_array_cycles(layer_pass, engine), engine.word_cycles(pace) * _port_words(layer_pass, engine))
        for layer_pass in passes
    )


def _array_cycles(work: Pass, engine: EngineConfig) -> int:
    """Return the cycles of the array or the drain in a pass, if all pixel groups but the last are whole."""
    groups = -(-work.rows * work.columns // engine.pixels)
    fold_blocks = blocks(min(work.core_maps(engine), work.maps))
    beats = fold_blocks * -(-engine.pixels // work.beat_pixels(engine))
    return groups * work.core_folds(engine) * max(fold_steps(work), beats)


def _port_words(work: Pass, engine: EngineConfig) -> int:
    """Return the words of maps and weights that a pass moves through the port."""
    read = work.height * work.width * blocks(work.maps if work.channelwise else work.channels)
    written = work.rows * work.columns * blocks(work.maps) // work.edge**2
    maps = (words for words in (read, written) if words > engine.kept_words)
    return weight_steps(work, engine) * engine.weight_words + sum(maps)
