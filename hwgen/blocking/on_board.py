"""Best tiles of a layer on a board whose block RAM is a double buffer: one half computes while the other transfers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hwgen.blocking import cecconi, timing
from hwgen.blocking.cecconi import BufferedTile, Transfer
from hwgen.blocking.problem import Problem
from hwgen.boards import Board
from hwgen.network.ops import Op

__all__ = ["Tiled", "buffer_words", "bytes_and_cycles", "tiled"]


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """Tile of a layer that moves the fewest words on a board, with lower bounds of the layer's time.

    Parameters
    ----------
    tile : BufferedTile
        Tile with the fewest words moved.
    double_buffered, in_turn : float
        Lower bounds of the seconds per frame, with all multipliers at work: transfers beside the computation, or one
        after the other.
    """

    tile: BufferedTile
    double_buffered: float
    in_turn: float


def buffer_words(board: Board, bits: int) -> int:
    """Return the number of words of ``bits`` bits in one half of a board's block RAM, used as a double buffer."""
    return board.bram36 * board.family.memories.block_bits // 2 // bits


def tiled(problem: Problem, board: Board, bits: int, products: int) -> Tiled:
    """Return the tile with which a layer moves the fewest words through a board's block RAM, and the layer's time.

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
    times = timing.steps(problem, tile).times(transfer, 1e-6 / (products * board.clock_mhz))
    return Tiled(
        tile=tile,
        double_buffered=problem.groups * timing.double_buffered(*times),
        in_turn=problem.groups * timing.in_turn(*times),
    )


def bytes_and_cycles(layer: Op, board: Board, products: int) -> tuple[int, int]:
    """Return the bytes that a layer moves off chip per frame in its best tiles, and a lower bound of its cycles.

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
