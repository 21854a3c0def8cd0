"""Command ``hwgen block``: search for layers' best tiles and loop blockings, shown as text, JSON and a picture."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from hwgen import work
from hwgen.cli.options import check_jobs, work_options
from hwgen.cli.outputs import Outputs, json_bytes
from hwgen.errors import InputError, PlanError

if TYPE_CHECKING:
    from hwgen.blocking.energy import Shared
    from hwgen.blocking.priced import PricedBlocking
    from hwgen.blocking.problem import Nest, Problem
    from hwgen.report.blocking import Report

    Layer = tuple[Problem, Mapping[str, int]]
    """One layer, and the extents by dimension that the core's datapath computes at once."""

LARGEST = 1 << 40
"""Maximum memory size that the command line accepts, in bytes."""

UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20}
LEVELS = range(1, 6)
CECCONI_WORDS = 32_768
"""Size of each of the two buffers for ``--paper cecconi``, half of the chip's 256 KB, in words of 32 bits."""

MANY_LAYERS = 8
"""Minimum number of different layers for searches to run in parallel processes by default."""

PLOT_LIMITS = 4
"""Number of smaller memory limits in a picture with ``--levels``, each a quarter of the next larger one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of ``hwgen block`` to a parser."""
    parser.add_argument(
        "layer",
        nargs="*",
        metavar="LAYER|MODEL",
        help="a layer such as '56x56x128->256 k3 s1 p1 g1' (rows x columns x channels), or a model; "
        "if left out with --paper, the paper's own",
    )
    memory = parser.add_mutually_exclusive_group(required=True)
    memory.add_argument("--memory", metavar="SIZES", help="shared memories, small to large: 32KB,8MB")
    memory.add_argument("--board", metavar="B", help="tiles in half of a board's block RAM (see 'hwgen boards')")
    memory.add_argument("--paper", choices=["peemen", "cecconi", "diannao"], help="a paper's memory and model")
    parser.add_argument(
        "--levels",
        type=int,
        metavar="N",
        help="also design the memories: at most N levels per operand (1 to 5), together as large as --memory",
    )
    parser.add_argument("--homed", action="store_true", help="with --levels: allow whole arrays to stay on chip")
    parser.add_argument("--ragged", action="store_true", help="with --memory: also blocks that do not divide the layer")
    parser.add_argument("--common", action="store_true", help="with --levels: use one hierarchy for all layers")
    parser.add_argument("--cores", type=int, metavar="N", help="with --levels: also the energy on 1, 2, 4 .. N cores")
    parser.add_argument("--core", metavar="CxK", help="input and output channels per cycle (default 16x16)")
    parser.add_argument("--blocking", metavar="STRING", help="only evaluate this blocking: 'Fw Fh X0=8 Y0=8 C0=16 ..'")
    parser.add_argument("--bits", type=int, choices=[8, 16, 32], help="with --board: bits per word (default 8)")
    work_options(parser, "with --memory: number of layers to search in parallel (default: all cores)")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")
    parser.add_argument("--plot", metavar="FILE", help="plot of the result: .svg or .png (needs the extra 'plot')")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen block``, which searches the best tiles or blockings of layers, and return the exit status.

    The search's result is printed as a table, and written as JSON and as a picture where the options name files.
    """
    from hwgen.report.picture import picture_format

    outputs = Outputs(arguments)
    plot_format = picture_format(arguments.plot)
    _check(arguments)
    check_jobs(arguments)
    if arguments.paper is not None:
        report = _paper(arguments)
    elif arguments.board is not None:
        report = _tiles(arguments)
    else:
        report = _hierarchy(arguments, plot=plot_format is not None)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(report.to_json(), indent=1))
    if plot_format is not None:
        outputs.add(arguments.plot, report.plot(plot_format))
    outputs.write()
    print(report.table())
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.levels is not None and arguments.levels not in LEVELS:
        raise InputError(f"--levels must be {LEVELS[0]} to {LEVELS[-1]}, not {arguments.levels}")
    for option in ("levels", "blocking", "core", "ragged"):
        if getattr(arguments, option) not in (None, False) and arguments.memory is None:
            raise InputError(f"--{option} needs --memory, such as --memory 1MB")
    for option in ("homed", "common", "cores"):
        if getattr(arguments, option) and arguments.levels is None:
            raise InputError(f"--{option} needs --levels, the number of memories to design, such as --levels 2")
    if arguments.bits is not None and arguments.board is None:
        raise InputError("--bits needs --board: words have 16 bits with --memory, and a paper states its own width")
    if arguments.common and arguments.homed:
        raise InputError("--homed designs memories for each layer, --common one set for all: leave one of them out")
    if arguments.ragged and (arguments.common or arguments.blocking is not None):
        raise InputError("--ragged searches each layer separately: leave --common and --blocking out")
    if arguments.cores is not None and arguments.cores < 1:
        raise InputError(f"--cores must be at least 1, not {arguments.cores}")
    if arguments.cores is not None and arguments.common:
        raise InputError("--cores can't be combined with --common: leave one of them out")
    if arguments.blocking is not None and arguments.levels is not None:
        raise InputError("--blocking is evaluated for given memories: leave --levels out")
    if not arguments.layer and arguments.paper is None:
        raise InputError("no layer or model: give one, as in hwgen block '56x56x128->256 k3' --memory 32KB,8MB")


def sizes(text: str) -> list[int]:
    """Return increasing memory sizes in bytes as a list, parsed from text such as ``32KB,8MB``.

    Raises
    ------
    InputError
        If a unit is unknown, a size is not a positive whole number of bytes or above `LARGEST`, or the sizes don't
        grow.
    """
    memory_bytes = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", part)
        if match is None or match[2].upper() not in UNITS:
            raise InputError(f"memory size {part.strip()!r} must be a number and one of {', '.join(UNITS)}, as in 32KB")
        size = Decimal(match[1]) * UNITS[match[2].upper()]
        if size > LARGEST:
            raise InputError(f"memory size {part.strip()[:40]!r} must be at most {LARGEST >> 20} MB")
        if size < 1 or size != int(size):
            raise InputError(f"memory size {part.strip()!r} must be a whole number of bytes, at least 1")
        memory_bytes.append(int(size))
    if memory_bytes != sorted(set(memory_bytes)):
        raise InputError(f"--memory {text} must list the sizes in ascending order, each once")
    return memory_bytes


def problems(words: list[str]) -> list[Problem]:
    """Return a list of each `Problem` (loop sizes) to block: one given by its sizes, or all layers of a model.

    Layers of a model that can't be searched are left out, with a line that says why.
    """
    from hwgen.blocking.problem import Problem
    from hwgen.network import shapes

    text = " ".join(words)
    if "->" in text:
        return [Problem.parse(text)]
    if re.match(r"\d+x\d+", text):
        Problem.parse(text)  # says what is wrong
    network = shapes.load(text, dense=True)
    for reason in network.left_out:
        print(f"left out: {reason}")
    return [Problem.of(layer) for layer in network.layers]


def _weighted(layers: list[Problem]) -> list[Problem]:
    """Return a list of each `Problem` with weights, and print a line per layer without weights, which is left out."""
    for problem in layers:
        if not problem.weighted:
            print(f"left out: {problem.name}, a layer without weights")
    return [problem for problem in layers if problem.weighted]


def _core(text: str) -> dict[str, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None or not int(match[1]) * int(match[2]):
        raise InputError(f"--core must be channels in x channels out, as in 16x16, not {text!r}")
    return {"C": int(match[1]), "K": int(match[2])}


def _paper(arguments: argparse.Namespace) -> Report:
    from hwgen.blocking import cecconi, peemen, search, yang
    from hwgen.report.blocking import BufferReport, EnergyReport, TiledLayer, TileReport

    user_layers = problems(arguments.layer) if arguments.layer else []
    if arguments.paper == "peemen":
        if len(user_layers) > 1:
            raise InputError("--paper peemen takes one layer, such as '177x317x16->80 k5 p0 g2'")
        problem = user_layers[0] if user_layers else peemen.layer()
        schedules = peemen.optimise(problem, peemen.MEMORIES)
        better = peemen.optimise(problem, peemen.MEMORIES, first_read=False, strict=False)
        return BufferReport(problem, peemen.MEMORIES, schedules, better)
    if arguments.paper == "cecconi":
        layers = []
        for problem in user_layers or problems(["flownets"]):
            _, said, truth = cecconi.printed(problem, CECCONI_WORDS)
            tile = cecconi.optimise(problem, CECCONI_WORDS)
            layers.append(TiledLayer(problem=problem, tile=tile, said=said, truth=truth))
        return TileReport(name=" ".join(arguments.layer) or "flownets", limit=CECCONI_WORDS, layers=layers)
    padded = [problem.padded(**yang.CORE) for problem in _weighted(user_layers)]
    if user_layers and not padded:
        raise InputError(f"--paper diannao needs a layer with weights: {' '.join(arguments.layer)} has none")
    layers = padded or [yang.layer(name) for name in yang.LAYERS]
    paired = [search.search(problem, yang.diannao(), base=yang.CORE, pair=True) for problem in layers]
    split = [search.search(problem, yang.diannao(), base=yang.CORE) for problem in layers]
    baseline = [] if padded else [yang.baseline(name).per_mac for name in yang.LAYERS]
    return EnergyReport(name="DianNao's buffers", blockings=paired, split=split, baseline=baseline)


def _tiles(arguments: argparse.Namespace) -> Report:
    from hwgen.blocking import on_board
    from hwgen.boards import load as load_board
    from hwgen.report.blocking import TiledLayer, TileReport

    board, bits = load_board(arguments.board), arguments.bits or 8
    layers = []
    for problem in problems(arguments.layer):
        tiling = on_board.tiled(problem, board, bits, board.dsp)
        times = (tiling.double_buffered, tiling.in_turn)
        layers.append(TiledLayer(problem=problem, tile=tiling.tile, times=times))
    limit = on_board.buffer_words(board, bits)
    return TileReport(name=f"{' '.join(arguments.layer)} on {board.name}", limit=limit, layers=layers)


def _hierarchy(arguments: argparse.Namespace, *, plot: bool) -> Report:
    from hwgen.blocking import energy, placement, yang
    from hwgen.blocking.problem import Nest
    from hwgen.report.blocking import EnergyReport

    core, memories = _core(arguments.core or "16x16"), sizes(arguments.memory)
    layers = []
    for problem in problems(arguments.layer):
        base = yang.datapath_block(problem, core)
        layers.append((problem.padded(**base), base))
        _check_window(layers[-1][0], base, max(memories))
    name = f"{' '.join(arguments.layer)}, {arguments.memory}"
    if arguments.levels is not None:
        if len(memories) != 1:
            raise InputError("--levels designs the memories: give --memory one size, the sum of all memories")
        return _codesigned(arguments, name, layers, memories[0], plot)
    if max(memories) > energy.SRAM_LIMIT:
        raise InputError(
            f"memory of {_text(max(memories))}: --memory without --levels must be at most "
            f"{_text(energy.SRAM_LIMIT)}, because larger ones cost as much energy as DRAM"
        )
    hierarchy = _shared(memories)
    if arguments.blocking is None:
        blockings = _search_all(arguments, name, partial(_searched, hierarchy, arguments.ragged), layers)
        return EnergyReport(name=name, blockings=blockings)
    if len(layers) != 1:
        raise InputError("--blocking applies to one layer, not to a model: give a layer such as '56x56x128->256 k3'")
    nest = Nest.parse(layers[0][0], arguments.blocking)
    return EnergyReport(name=name, blockings=[placement.best(nest, hierarchy, _count_core_loops(nest, layers[0][1]))])


def _search_all(
    arguments: argparse.Namespace, what: str, function: Callable[[Layer], Any], layers: Sequence[Layer]
) -> list[Any]:
    """Return a list of the results of ``function`` (a search) for each layer in order, many layers in parallel.

    Equal layers are searched once. On a cluster, and with many layers on this machine, the searches run in parallel.
    """
    first = [layers.index(layer) for layer in layers]
    different = sorted(set(first))
    with ExitStack() as stack:
        pool = None
        if arguments.cluster is not None or len(different) >= MANY_LAYERS:
            pool = stack.enter_context(work.pool(arguments.cluster, arguments.jobs))
        tasks = [layers[index] for index in different]
        results = work.run(pool, function, tasks, what=f"searching: {what}", unit="layer")
    result_by_index = dict(zip(different, results, strict=True))
    return [result_by_index[index] for index in first]


def _searched(hierarchy: Shared, ragged: bool, layer: Layer) -> PricedBlocking:
    from hwgen.blocking import search

    return search.search(layer[0], hierarchy, base=layer[1], ragged=ragged)


def _designed(size: int, options: Mapping[str, Any], layer: Layer) -> Any:
    from hwgen.blocking import yang

    return yang.codesign(layer[0], size, base=layer[1], **options)


def _codesigned(
    arguments: argparse.Namespace,
    name: str,
    layers: Sequence[Layer],
    limit: int,
    plot: bool,
) -> Report:
    from hwgen.blocking import yang
    from hwgen.report.blocking import EnergyReport

    if arguments.common:
        core = next((base for _, base in layers if base), {})
        together = yang.common([problem for problem, _ in layers], limit, levels=arguments.levels, base=core)
        return EnergyReport(
            name=f"{name}: one hierarchy, {together.size:,} bytes", blockings=together.blockings, common=together
        )

    def design(size: int) -> list:
        options = {"levels": arguments.levels, "homed": arguments.homed, "ragged": arguments.ragged}
        return _search_all(arguments, f"{name}, {size:,} bytes", partial(_designed, size, options), layers)

    blockings = design(limit)
    smaller = [limit >> 2 * step for step in range(PLOT_LIMITS, 0, -1)] if plot else []
    against = [(size, design(size)) for size in smaller if size >= 4096] if plot else []
    strict, max_cores = len(blockings) == 1, arguments.cores
    cores = [_core_energies(blocking, max_cores, strict=strict) for blocking in blockings] if max_cores else []
    against = [*against, (limit, blockings)] if plot else []
    return EnergyReport(name=name, blockings=blockings, cores=cores, against=against)


def _core_energies(
    blocking: PricedBlocking, max_cores: int, *, strict: bool
) -> list[tuple[str, int, dict[str, float]]]:
    """Return a list of tuples for one layer on several cores: the shared operand, number of cores, and pJ by component.

    The numbers of cores are the powers of two below ``max_cores``, and ``max_cores``. If cores can't divide the layer
    evenly, the entry is left out with a printed line, or with ``strict`` a PlanError is raised.
    """
    from hwgen.blocking import yang

    result = []
    for shared in ("input", "weights") if blocking.nest.problem.weighted else ():
        for cores in [1 << power for power in range((max_cores - 1).bit_length())] + [max_cores]:
            try:
                result.append((shared, cores, yang.multicore(blocking, cores, shared)))
            except PlanError as error:
                if strict:
                    raise
                print(f"left out: {error}")
    return result


def _shared(memories: list[int]) -> Shared:
    from hwgen.blocking import energy

    width = max(energy.WIDTHS)
    return energy.Shared(memories=[energy.MemoryLevel.sized(_text(size), size, width) for size in memories])


def _text(size: int) -> str:
    unit = next((unit for unit in ("MB", "KB") if size % UNITS[unit] == 0), "B")
    return f"{size // UNITS[unit]}{unit}"


def _check_window(problem: Problem, base: Mapping[str, int], size: int) -> None:
    """Raise an error if a memory can't hold one window of the input channels that the core reads at once.

    Raises
    ------
    InputError
        If the window takes more than ``size`` bytes.
    """
    from hwgen.blocking import count, energy
    from hwgen.blocking.problem import DIMS

    tile = {**dict.fromkeys(DIMS, 1), **base, "Fw": problem.Fw, "Fh": problem.Fh}
    window_bytes = energy.WORD_BYTES * count.capacity(problem, "input", tile)
    if window_bytes > size:
        raise InputError(
            f"a memory of {_text(size)} can't hold one window of {problem.name}: {problem.Fh} x {problem.Fw} pixels of "
            f"{tile['C']} channels take {window_bytes:,} bytes"
        )


def _count_core_loops(nest: Nest, base: Mapping[str, int]) -> int:
    """Return how many innermost loops of a blocking the datapath computes at once; other inner loops are errors.

    Raises
    ------
    InputError
        If the blocking does not begin with these loops.
    """
    wanted = {(dim, size) for dim, size in base.items() if size > 1}
    first = {(loop.dim, loop.extent) for loop in nest.loops[: len(wanted)]}
    if first != wanted:
        names = " ".join(f"{dim}0={size}" for dim, size in sorted(wanted))
        raise InputError(f"blocking {nest} must begin with what the core computes at once: {names} (see --core)")
    return len(wanted)
