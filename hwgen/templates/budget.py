"""What a board has to give, against what a plan needs."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.boards import Board
from hwgen.errors import PlanError
from hwgen.gateware.block_ram import BRAM36_BITS
from hwgen.gateware.cost import Resources
from hwgen.network.ops import Op
from hwgen.templates.stages import stage_of


class OverBudgetError(PlanError):
    """A plan that needs more than the board has; ``resource`` says of what, ``needed`` how much."""

    def __init__(self, message: str, resource: str, needed: float):
        super().__init__(message)
        self.resource, self.needed = resource, needed


def check_budget(used: Resources, board: Board, dsp: int) -> None:
    """Refuse what the board can't hold.

    Raises
    ------
    OverBudgetError
        Naming the resource that runs out.
    """
    if used.dsp > dsp:
        raise OverBudgetError(
            f"plan needs {used.dsp} DSP slices, but {dsp} may be used on {board.name}: lower the unroll"
            + (" or allow more (dsp)" if dsp < board.dsp else ""),
            "DSP slices",
            used.dsp,
        )
    for name, needed, there in (
        ("BRAM36", used.bram36, board.bram36),
        ("LUTs", used.lut, board.lut),
        ("flip-flops", used.ff, board.ff),
    ):
        if needed > there:
            raise OverBudgetError(
                f"plan needs {needed:,.12g} {name}, but {board.name} ({board.device}) has "
                f"{there:,}: take fewer layers, fewer DSP slices or a larger board",
                name,
                needed,
            )


def memory_bits(board: Board) -> int:
    """Bits that memories of a device hold at most: all block RAM, and each LUT as 64 bits."""
    return board.bram36 * BRAM36_BITS + board.lut * 64


def check_weights(layers: Sequence[Op], board: Board) -> None:
    """Refuse at once what no unrolling can mend: more weights than all memory of the device holds.

    Raises
    ------
    OverBudgetError
    """
    check_weight_bits(weights_of(layers), board)


def check_arithmetic(layers: Sequence[Op], board: Board) -> None:
    """Refuse at once a layer whose arithmetic outgrows the device by itself, however it is unrolled.

    Raises
    ------
    OverBudgetError
    """
    for layer in layers:
        if (needed := stage_of(layer).least_luts) > board.lut:
            raise OverBudgetError(
                f"{layer.name}: {layer.taps} taps that are added up at once in float32 need {needed:,} LUTs, but "
                f"{board.name} ({board.device}) has {board.lut:,}: GlobalAveragePool, or an input scale that is a "
                "power of two, takes few",
                "LUTs",
                needed,
            )


def weights_of(layers: Sequence[Op]) -> list[tuple[str, int]]:
    """Name and bits of all weights of each layer that has any."""
    return [(layer.name, layer.weight_count * layer.weight_bits) for layer in layers if layer.weight_count]


def check_weight_bits(weights: Sequence[tuple[str, int]], board: Board) -> None:
    """As `check_weights`, by names and bits of layers.

    Raises
    ------
    OverBudgetError
    """
    names, bits = [name for name, _ in weights], sum(count for _, count in weights)
    needed = -(-bits // BRAM36_BITS)
    if bits > memory_bits(board):
        raise OverBudgetError(
            f"{names[0] if len(names) == 1 else f'{names[0]} to {names[-1]}'}: weights need {needed:,} BRAM36, but "
            f"{board.name} ({board.device}) has {board.bram36:,}",
            "BRAM36",
            needed,
        )
