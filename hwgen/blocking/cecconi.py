"""Search for the tile size of a layer whose data a DMA moves through a double buffer (Cecconi et al., ACIVS 2017).

A transfer costs ``C + s p + n t``: one call, ``s`` runs of neighbouring addresses, ``n`` words. The paper's tile is
``ss x st`` pixels and ``sk`` channels of the input and ``sz`` channels of the output, with whole kernels and one loop
order. There are two models:

- `printed`: the paper's equations 1 to 6. They ignore the halo, and count input pixels where output pixels are the
  unit. `listed_words` counts what the paper's program (listing 1.1) moves with the tile of these equations: with the
  halo, and with every transfer as written.
- `evaluate` and `optimise`: the corrected model. Tiles are blocks of the *output* (``a x b`` pixels, ``z`` channels)
  with ``k`` input channels and their halo. Blocks need not divide the layer, and the three loops can have any order. A
  block that stays in the buffer is not fetched again. Partial sums are read only after they have been written; before
  that, their bias is read once. Words are counted as in `hwgen.blocking.count`.

Memory holds maps and weights row by row (``[channel][row][column]``, ``[output][input][taps]``). Therefore whole rows,
and whole maps, are one run of addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from hwgen.blocking.count import Axis, input_axes
from hwgen.blocking.problem import DIMS, OPERANDS, Problem, pairs
from hwgen.blocking.tiling import TileWords, candidates, check_tile_count, cut, distinct, divisors
from hwgen.errors import ConfigError, PlanError

LOOPS = {"s": ("X", "Y"), "k": ("C",), "z": ("K",)}
"""Dictionary of dimensions by loop letter in Cecconi's paper: pixels ``s``, input channels ``k``, outputs ``z``.
"""

SIDES = {"rows": "Y", "columns": "X", "inputs": "C", "outputs": "K"}
"""Dictionary by the size's name in Cecconi's paper: loop dimension of each of a tile's four sizes."""

ORDERS = tuple("".join(order) for order in permutations("skz"))
"""Tuple of all orders, as texts such as ``skz``, inner to outer, of the tile loops ``s`` (pixels), ``k`` (input
channels), ``z`` (output channels).

The paper's order is ``zks``.
"""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Cost of DMA transfers in any unit (seconds, cycles): per call, per run of addresses, per word."""

    call: float = 0.0
    jump: float = 0.0
    word: float = 1.0

    def __post_init__(self) -> None:
        if min(self.call, self.jump, self.word) < 0 or not self.call + self.jump + self.word:
            raise ConfigError(
                f"costs of a call, a jump and a word must be 0 or more, and one more than 0, not {self.call}, "
                f"{self.jump} and "
                f"{self.word}"
            )


@dataclass(frozen=True, kw_only=True)
class BufferedTile:
    """Tile size and loop order for a double buffer, with the layer's words moved, DMA transfers and cost.

    Parameters
    ----------
    sizes : dict
        Rows, columns and channels of the output (``rows``, ``columns``, ``outputs``), channels of the input
        (``inputs``).
    order : str
        Loops ``s`` (pixels), ``k``, ``z``, inner to outer.
    room : int
        Words of one of the two buffers: input with halo, weights, biases, outputs.
    words, calls, jumps : int
        Totals of the layer: words moved, transfers, and runs of neighbouring addresses.
    cost : float
        Cost of all transfers, in the unit of the `Transfer`.
    operands : dict
        Words moved per operand, and of the biases.
    """

    sizes: dict[str, int]
    order: str
    room: int
    words: int
    calls: int
    jumps: int
    cost: float
    operands: dict[str, int] = field(default_factory=dict)


def evaluate(problem: Problem, sizes: dict[str, int], order: str, transfer: Transfer | None = None) -> BufferedTile:
    """Return a `BufferedTile`: a layer's words moved, DMA transfers and cost for one tile size and loop order."""
    single = _tile_of_sizes(problem, sizes)
    words, calls, jumps = (int(figure.item()) for figure in _count_moves(single, order, runs=True))
    return BufferedTile(
        sizes=sizes,
        order=order,
        room=int(_buffer_words(single).item()),
        words=words,
        calls=calls,
        jumps=jumps,
        cost=float(_cost((words, calls, jumps), transfer or Transfer())),
        operands={operand: int(_words(single, operand, order).item()) for operand in (*OPERANDS, "biases")},
    )


def listed_words(problem: Problem, sizes: dict[str, int]) -> int:
    """Return the number of words moved for one tile size by the program in Cecconi's paper (listing 1.1).

    Inputs stay in the buffer for all ``z``. Weights, biases and outputs are fetched for every tile, and outputs are
    written back.
    """
    tiling, order = _tile_of_sizes(problem, sizes), _order("zks")
    words = tiling.loads("input", order, scope=1) + tiling.loads("weights", order, scope=0)
    words = (
        words
        + tiling.loads("weights", order, dims={"K"}, scope=0) * problem.weighted
        + 2 * tiling.loads("output", order, scope=0)
    )
    return int(words.item())


def _tile_of_sizes(problem: Problem, sizes: dict[str, int]) -> TileWords:
    tile = {dim: sizes[side] for side, dim in SIDES.items()}
    return TileWords(problem, {dim: [tile.get(dim, problem.size(dim))] for dim in DIMS})


def optimise(
    problem: Problem, limit: int, transfer: Transfer | None = None, orders: Sequence[str] = ORDERS
) -> BufferedTile:
    """Return the `BufferedTile` (tile size, loop order) of lowest transfer cost in a buffer of ``limit`` words.

    Kernels stay whole. Of equal tiles the one with fewer words is chosen, then fewer transfers, then the smaller
    buffer. If runs of addresses have a cost, the search tries one size for each number of blocks.

    Raises
    ------
    PlanError
        If not even the smallest tile fits, or there are too many tiles (`tiling.check_tile_count`).
    """
    transfer = transfer or Transfer()
    sizes = candidates(problem, whole_window=True)
    if transfer.jump:
        sizes = {dim: steps if dim in ("Fw", "Fh") else distinct(problem.size(dim)) for dim, steps in sizes.items()}
    tiling = TileWords(problem, sizes)
    check_tile_count(tiling)
    room = np.broadcast_to(_buffer_words(tiling), tiling.shape).ravel()
    fits = np.flatnonzero(room <= limit)
    if not len(fits):
        raise PlanError(
            f"{problem.name}: a buffer of {limit} words can't hold one window and its output; the least is "
            f"{int(room.min())}"
        )
    best: tuple[float, int, int, int, int, str] | None = None
    for order in orders:
        figures = _count_moves(tiling, order, runs=bool(transfer.jump))
        cost = np.broadcast_to(_cost(figures, transfer), tiling.shape).ravel()[fits]
        words, calls = (np.broadcast_to(figure, tiling.shape).ravel()[fits] for figure in figures[:2])
        ties = np.flatnonzero(cost == cost.min())
        winner = ties[np.lexsort((room[fits[ties]], calls[ties], words[ties]))[0]]
        figure = (int(words[winner]), int(calls[winner]), int(room[fits[winner]]))
        entry = (float(cost[winner]), *figure, int(fits[winner]), order)
        if best is None or entry < best:
            best = entry
    assert best is not None
    tile = tiling.tile(best[4])
    return evaluate(problem, {side: tile[dim] for side, dim in SIDES.items()}, best[5], transfer)


def _new_sum_dims(order: str) -> list[str]:
    """Return a list of the dimensions of the tile loops that start new sums, inner to outer: all but input channels."""
    return [dim for dim in _order(order) if dim not in LOOPS["k"]]


def _buffer_words(tiling: TileWords) -> np.ndarray:
    return sum(tiling.room(operand) for operand in OPERANDS) + tiling.extent("K") * tiling.problem.weighted


def _order(order: str) -> list[str]:
    return [dim for letter in order for dim in LOOPS[letter]]


def _cost(figures: Sequence, transfer: Transfer):
    words, calls, jumps = figures
    return transfer.call * calls + transfer.jump * jumps + transfer.word * words


def _words(tiling: TileWords, operand: str, order: str) -> np.ndarray:
    if operand == "biases":
        return tiling.loads("weights", _new_sum_dims(order), dims={"K"}) * tiling.problem.weighted
    words = tiling.loads(operand, _order(order))
    return 2 * words - tiling.problem.output_words if operand == "output" else words


def _count_moves(tiling: TileWords, order: str, *, runs: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, as a triple, three arrays over tile sizes: words moved, DMA calls, runs of consecutive addresses.

    Without ``runs`` the runs are not counted, and the third result is 0.
    """
    words = _words(tiling, "biases", order)
    for operand in OPERANDS:
        words = words + _words(tiling, operand, order)
    blocks, groups, dims = tiling.blocks, tiling.problem.groups, _order(order)
    pixels, k, z = blocks["X"] * blocks["Y"], blocks["C"], blocks["K"]
    times = {
        "input": tiling.visits({"X", "Y", "C"}, dims),
        "weights": tiling.visits({"C", "K"}, dims),
        "output": 2 * tiling.visits({"X", "Y", "K"}, dims) - 1,
        "biases": tiling.visits({"K"}, _new_sum_dims(order)),
    }
    calls = groups * (
        times["input"] * pixels * k
        + times["output"] * pixels * z
        + (times["weights"] * k * z + times["biases"] * z) * tiling.problem.weighted
    )
    if not runs:
        return words, calls, np.zeros((), np.int64)
    problem = tiling.problem
    output = {
        (dim, window): Axis(problem.size(dim), 1, 1, 0, problem.size(dim)) for dim, window in (("X", "Fw"), ("Y", "Fh"))
    }
    weights = np.where(k > 1, problem.K * k, z)
    jumps = groups * (
        times["input"] * _count_map_runs(tiling, input_axes(problem), "C")
        + times["output"] * _count_map_runs(tiling, output, "K")
        + (times["weights"] * weights + times["biases"] * z) * problem.weighted
    )
    return words, calls, jumps


def _count_map_runs(tiling: TileWords, axes: dict[tuple[str, str], Axis], channels: str) -> np.ndarray:
    """Return an array over tile sizes: number of runs of consecutive addresses in all tiles of a map.

    A block has one run per row. If rows are whole, it has one run per channel; if channels are whole too, one run in
    all.
    """
    (columns, _), (rows, _) = axes
    across, down = (_count_axis_blocks(tiling, dims, axis) for dims, axis in axes.items())
    _, partial, whole = (tiling.along(columns, values) for values in across)
    height, some, full = (tiling.along(rows, values) for values in down)
    count, blocks = tiling.problem.size(channels), tiling.blocks[channels]
    return partial * height * count + whole * (some * count + full * blocks)


def _count_axis_blocks(tiling: TileWords, dims: tuple[str, str], axis: Axis) -> list[list[int]]:
    """Return, per block size, elements read, partial blocks and whole blocks on a map's axis: three lists.

    Elements that several blocks read count in each. A partial block lacks some of the map's elements along the axis. A
    whole block has all of them.
    """
    result: list[list[int]] = [[], [], []]
    taps = cut(axis.window, axis.window)
    for step in tiling.sizes[dims[0]]:
        touched = axis.touched(*pairs(cut(axis.outputs, step), taps))
        whole, some = int(np.sum(touched == axis.size)), int(np.sum(touched > 0))
        for values, value in zip(result, (int(touched.sum()), some - whole, whole), strict=True):
            values.append(value)
    return result


def printed(problem: Problem, limit: int) -> tuple[dict[str, int], float, int]:
    """Return a triple: input tile by Cecconi's printed equations, the words these claim, and words really moved.

    Sizes divide the map, and the loop order is the printed one. Of equal tiles the one with the fewest transfers is
    chosen. The tile that is really moved has as many windows as the stride fits into the input tile, at least one, plus
    its halo. The buffer need not hold the halo.

    Raises
    ------
    PlanError
        If no tile fits.
    """
    p, stride = problem, problem.stride[0]
    taps = p.Fw * p.Fh
    rows, columns, inputs, outputs = (
        np.array(divisors(size)).reshape([-1 if axis == dimension else 1 for dimension in range(4)])
        for axis, size in enumerate((p.height, p.width, p.C, p.K))
    )
    kernels = (inputs * outputs * taps + outputs) * p.weighted
    room = rows * columns * inputs + rows * columns * outputs / stride**2 + kernels
    calls = p.groups * p.height * p.width * p.C / (rows * columns * inputs)
    moved = rows * columns * inputs + p.K / outputs * (2 * rows * columns * outputs / stride**2 + kernels)
    words = np.where(room <= limit, calls * moved, np.inf)
    if not np.isfinite(words).any():
        raise PlanError(f"{p.name}: a buffer of {limit} words can't hold the smallest tile of the paper's model")
    best = np.lexsort((np.broadcast_to(calls, words.shape).ravel(), np.round(words).ravel()))[0]
    indices = np.unravel_index(int(best), words.shape)
    choice = [int(sizes.ravel()[index]) for sizes, index in zip((rows, columns, inputs, outputs), indices, strict=True)]
    tile: dict[str, int] = dict(zip(("rows", "columns", "inputs", "outputs"), choice, strict=True))
    output = {
        **tile,
        "rows": min(p.Y, max(1, tile["rows"] // stride)),
        "columns": min(p.X, max(1, tile["columns"] // stride)),
    }
    return tile, float(words[indices]), listed_words(p, output)
