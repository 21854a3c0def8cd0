"""Layers tile by tile on a board: half of its block RAM is filled or emptied while the other half is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hwgen.blocking import cecconi, timing
from hwgen.blocking.cecconi import Tile, Transfer
from hwgen.blocking.problem import Problem
from hwgen.boards import Board
from hwgen.network.ops import Op

__all__ = ["Tiled", "buffer_words", "bytes_and_cycles", "tiled"]


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """The best tile of a layer on a board.

    Parameters
    ----------
    tile : Tile
    double_buffered, in_turn : float
        Seconds a frame at least, all multipliers being at work: transfers beside computation, or one after the other.
    """

    tile: Tile
    double_buffered: float
    in_turn: float


def buffer_words(board: Board, bits: int) -> int:
    """Words of ``bits`` in one of the two buffers."""
    return board.bram36 * board.family.memories.block_bits // 2 // bits


def tiled(problem: Problem, board: Board, bits: int, products: int) -> Tiled:
    """The tile of ``problem`` that moves the fewest words of ``bits`` each, and what it takes.

    ``products``: multiply-adds a cycle.

    Raises
    ------
    PlanError
        If not one window fits, or there are too many tiles to compare.
    """
    transfer = Transfer(
        call=board.dma_call_ns * 1e-9,
        jump=board.dma_jump_ns * 1e-9,
        word=bits / 8 / (board.memory_gb_s * 1e9),
    )
    tile = cecconi.optimise(problem, buffer_words(board, bits), transfer)
    parts = timing.steps(problem, tile).times(transfer, 1e-6 / (products * board.clock_mhz))
    return Tiled(
        tile=tile,
        double_buffered=problem.groups * timing.double_buffered(*parts),
        in_turn=problem.groups * timing.in_turn(*parts),
    )


def bytes_and_cycles(layer: Op, board: Board, products: int) -> tuple[int, int]:
    """What a layer moves a frame in its best tiles, in words as wide as its input's, and the cycles it takes at least.

    A layer without window and weights has nothing to be blocked: its maps are moved once each.

    Raises
    ------
    PlanError
        As `tiled`; also if its window is dilated.
    """
    size = layer.input.type.dtype.itemsize
    if layer.taps == 1 and not layer.weight_count:
        moved = sum(each.values * each.type.dtype.itemsize for each in (*layer.inputs, layer.output))
        return moved, board.transfer_cycles(moved)
    found = tiled(Problem.of(layer), board, 8 * size, products)
    return size * found.tile.words, ceil(found.double_buffered * board.clock_mhz * 1e6)
