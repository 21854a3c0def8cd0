"""Search for a layer's tiles that move the fewest words through a board's block RAM (double buffer), and its time.

With two buffers the next tile enters, and the previous tile leaves, while a tile is computed (Cecconi, section 3.2;
Peemen, section V-4). The first fetch and the last write overlap with nothing. With one buffer, transfers alternate with
computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from hwgen.blocking import cecconi
from hwgen.blocking.cecconi import LOOPS, SIDES, BufferedTile, Transfer
from hwgen.blocking.count import input_axes
from hwgen.blocking.problem import DIMS, Problem, indexes, pairs
from hwgen.blocking.tiling import cut
from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.network.ops import Op

MAX_TILES = 2_000_000


@dataclass(frozen=True, kw_only=True)
class TileSteps:
    """Words moved, DMA transfers and MACs of each tile of a layer, in order of computation, as arrays.

    Attributes
    ----------
    fetched, written : array
        Words of each tile.
    calls_in, calls_out : array
        Transfers into the buffer, and out of it.
    jumps_in, jumps_out : array
        Runs of addresses of these transfers.
    macs : array
        Multiply-adds.
    """

    fetched: np.ndarray
    written: np.ndarray
    calls_in: np.ndarray
    calls_out: np.ndarray
    jumps_in: np.ndarray
    jumps_out: np.ndarray
    macs: np.ndarray

    def times(self, transfer: Transfer, mac: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three float arrays, by tile: time to fetch, compute and write, in the unit of ``transfer``'s costs.

        ``mac`` is the time of a multiply-add.
        """
        return (
            transfer.word * self.fetched + transfer.call * self.calls_in + transfer.jump * self.jumps_in,
            mac * self.macs,
            transfer.word * self.written + transfer.call * self.calls_out + transfer.jump * self.jumps_out,
        )


def tile_steps(problem: Problem, tile: BufferedTile) -> TileSteps:
    """Return `TileSteps`: the words, DMA transfers and MACs of each tile of one channel group, in order of computation.

    The sums over all tiles equal the counts of `cecconi.evaluate`.

    Raises
    ------
    PlanError
        If there are more than `MAX_TILES` tiles.
    """
    sizes = {dim: tile.sizes[side] for side, dim in SIDES.items()}
    blocks = {dim: cut(problem.size(dim), step) for dim, step in sizes.items()}
    order = [dim for letter in tile.order for dim in LOOPS[letter]]
    shape = [len(blocks[dim].start) for dim in reversed(order)]
    if np.prod(shape, dtype=float) > MAX_TILES:
        raise PlanError(f"{problem.name}: {np.prod(shape):,} tiles are too many to walk; at most {MAX_TILES:,} work")
    grid = np.indices(shape).reshape(len(shape), -1)
    index = dict(zip(reversed(order), grid, strict=True))
    length = {dim: blocks[dim].length[index[dim]] for dim in sizes}
    touched = []
    for (x, f), axis in input_axes(problem).items():
        touched.append(axis.touched(*pairs(blocks[x], cut(axis.window, axis.window)))[:, 0][index[x]])
        length[f] = np.full(grid.shape[1], axis.window)
    weights = length["C"] * length["K"] * length["Fw"] * length["Fh"] * problem.weighted
    output = length["X"] * length["Y"] * length["K"]
    new = {operand: _fetches(index, {dim for dim in sizes if indexes(operand, dim)}) for operand in ("input", "output")}
    new["weights"] = _fetches(index, {"C", "K"}) if problem.weighted else np.zeros(grid.shape[1], bool)
    new["biases"] = np.zeros(grid.shape[1], bool)
    if problem.weighted:
        begun = np.flatnonzero(index["C"] == 0)  # sums begin with their bias
        new["biases"][begun] = _fetches({"K": index["K"][begun]}, {"K"})
    again = new["output"] & (index["C"] > 0)
    runs = _count_runs((problem.width, problem.height), touched, length["C"])
    output_runs = _count_runs((problem.X, problem.Y), [length["X"], length["Y"]], length["K"])
    kernel_runs = length["K"] if len(blocks["C"].start) > 1 else 1  # all channels of an output are one run
    leaves = np.roll(new["output"], -1)  # the first tile is new, so after the last tile all outputs leave
    return TileSteps(
        fetched=new["input"] * touched[0] * touched[1] * length["C"]
        + new["weights"] * weights
        + new["biases"] * length["K"]
        + again * output,
        written=leaves * output,
        calls_in=new["input"] + new["weights"].astype(int) + new["biases"] + again,
        calls_out=leaves.astype(int),
        jumps_in=new["input"] * runs + new["weights"] * kernel_runs + new["biases"] + again * output_runs,
        jumps_out=leaves * output_runs,
        macs=np.prod([length[dim] for dim in DIMS], axis=0),
    )


def _count_runs(whole: tuple[int, int], touched: list[np.ndarray], channels: np.ndarray) -> np.ndarray:
    """Return, as an array, the number of runs of consecutive addresses in each tile's block of a feature map.

    A block has one run per row. If rows are whole, it has one run per channel; if channels are whole too, one run in
    all. ``whole`` and ``touched`` are columns and rows.
    """
    across, down = touched
    full = np.where(down == whole[1], 1, (down > 0) * channels)
    return np.where(across == whole[0], full, (across > 0) * down * channels)


def _fetches(index: dict[str, np.ndarray], dims: set[str]) -> np.ndarray:
    """Return, as an array, a boolean per tile: it needs another block of an operand than the previous tile did."""
    changed = np.zeros(len(next(iter(index.values()))), bool)
    changed[0] = True
    for dim in dims:
        changed[1:] |= index[dim][1:] != index[dim][:-1]
    return changed


def double_buffered(fetch: ArrayLike, compute: ArrayLike, write: ArrayLike) -> float:
    """Return a tiled layer's time with double buffering (DMA during computation), in the arguments' unit.

    It is the first fetch, then for each tile the longer of its computation and the simultaneous transfers, then the
    last write.
    """
    fetched, written = np.asarray(fetch, float), np.asarray(write, float)
    beside = np.append(fetched[1:], 0.0) + np.insert(written[:-1], 0, 0.0)
    return float(fetched[0] + np.maximum(compute, beside).sum() + written[-1])


def in_turn(fetch: ArrayLike, compute: ArrayLike, write: ArrayLike) -> float:
    """Return a tiled layer's time if fetch, computation and write never overlap, in the arguments' unit."""
    return float(np.sum(fetch) + np.sum(compute) + np.sum(write))


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """Tile size of a layer that moves the fewest words on a board, with lower bounds of the layer's time.

    Parameters
    ----------
    tile : BufferedTile
        Tile with the fewest words moved.
    double_buffered, in_turn : float
        Lower bounds of the seconds per frame, with all multipliers at work: transfers during the computation, or one
        after the other.
    """

    tile: BufferedTile
    double_buffered: float
    in_turn: float


def buffer_words(board: Board, bits: int) -> int:
    """Return the number of ``bits``-bit words in half of a board's block RAM (one side of a double buffer)."""
    return board.bram36 * board.family.memories.block_bits // 2 // bits


def tiled(problem: Problem, board: Board, bits: int, products: int) -> Tiled:
    """Return a `Tiled`: the tile size with the fewest words moved through a board's block RAM, and the layer's time.

    Parameters
    ----------
    problem : Problem
        Loops of the layer.
    board : Board
        Board whose block RAM and memory bandwidth apply.
    bits : int
        Bits of a word.
    products : int
        Multiply-adds per cycle.

    Raises
    ------
    PlanError
        If not even one window fits, or there are too many tiles to compare.
    """
    transfer = Transfer(
        call=board.dma_call_ns * 1e-9,
        jump=board.dma_jump_ns * 1e-9,
        word=bits / 8 / (board.memory_gb_s * 1e9),
    )
    tile = cecconi.optimise(problem, buffer_words(board, bits), transfer)
    times = tile_steps(problem, tile).times(transfer, 1e-6 / (products * board.clock_mhz))
    return Tiled(
        tile=tile,
        double_buffered=problem.groups * double_buffered(*times),
        in_turn=problem.groups * in_turn(*times),
    )


def bytes_and_cycles(layer: Op, board: Board, products: int) -> tuple[int, int]:
    """Return a pair: a layer's off-chip bytes per frame in tiles of fewest words, and a lower bound of its cycles.

    All words are as wide as the layer's input. A layer without window and weights has no tiles: its maps are moved
    once.

    Raises
    ------
    PlanError
        As `tiled`; also if the layer's window is dilated.
    """
    size = layer.input.type.dtype.itemsize
    if layer.taps == 1 and not layer.weight_count:
        moved = sum(
            feature_map.values * feature_map.type.dtype.itemsize for feature_map in (*layer.inputs, layer.output)
        )
        return moved, board.transfer_cycles(moved)
    best = tiled(Problem.of(layer), board, 8 * size, products)
    return size * best.tile.words, ceil(best.double_buffered * board.clock_mhz * 1e6)
