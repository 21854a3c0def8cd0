"""Resource budget: comparison of a plan's resources with the board's."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.boards import Board
from hwgen.gateware.cost import Resources
from hwgen.network.ops import Op
from hwgen.templates.refusal import Refusal, fitting
from hwgen.templates.stages import stage_of


def shortage(used: Resources, board: Board, dsp: int) -> Refusal | None:
    """Return a `Refusal` that names the first resource that exceeds the board's; ``None`` if the board has enough.

    Parameters
    ----------
    dsp : int
        Number of DSP slices that may be used.
    """
    if used.dsp > dsp:
        return Refusal(
            f"plan needs {used.dsp} DSP slices, but {dsp} may be used on {board.name}: lower the unroll"
            + (" or allow more (--dsp)" if dsp < board.dsp else ""),
            "DSP slices",
            used.dsp,
        )
    for name, field, needed in (
        ("BRAM36", "bram36", used.bram36),
        ("UltraRAMs", "uram", used.uram),
        ("LUTs", "lut", used.lut),
        ("flip-flops", "ff", used.ff),
    ):
        if needed > getattr(board, field):
            option = board.limiting_option(field)
            advice = (
                f" or fewer DSP slices, or allow more ({option})" if option else ", fewer DSP slices or a larger board"
            )
            message = f"plan needs {needed:,.12g} {name}, but {board.supply(field)}: take fewer layers{advice}"
            return Refusal(message, name, needed)
    return None


def check_budget(used: Resources, board: Board, dsp: int) -> None:
    """Raise OverBudgetError if a plan's resources exceed the board's, or ``dsp`` DSP slices.

    Raises
    ------
    OverBudgetError
        If a resource runs out; the error names the resource.
    """
    fitting(shortage(used, board, dsp))


def memory_bits(board: Board) -> int:
    """Return the number of bits that a device can store in block RAM and in LUTs used as memory, together."""
    memories = board.family.memories
    return board.bram36 * memories.block_bits + board.lut * memories.lut_bits


def sure_shortage(layers: Sequence[Op], board: Board) -> Refusal | None:
    """Return a `Refusal` if no unroll factors can fit the device (too many weights or LUTs), else ``None``.

    ``None`` if neither shortage is certain.
    """
    return weight_shortage(layer_weight_bits(layers), board) or _arithmetic_shortage(layers, board)


def layer_weight_bits(layers: Sequence[Op]) -> list[tuple[str, int]]:
    """Return a list of (layer name, total bits of its weights) for the layers with weights."""
    return [(layer.name, layer.weight_count * layer.weight_bits) for layer in layers if layer.weight_count]


def weight_shortage(weights: Sequence[tuple[str, int]], board: Board) -> Refusal | None:
    """Return a `Refusal` if the weights of a layer, or of all, exceed the device's memory; else ``None``.

    ``None`` if the device's memory holds all weights.

    Parameters
    ----------
    weights : sequence of (str, int)
        Name and bits of all weights, per layer that has weights.
    """
    for group in (*([layer] for layer in weights), weights):
        names, bits = [name for name, _ in group], sum(count for _, count in group)
        needed = -(-bits // board.family.memories.block_bits)
        if bits > memory_bits(board):
            return Refusal(
                f"{names[0] if len(names) == 1 else f'{names[0]} to {names[-1]}'}: weights need {needed:,} BRAM36, but "
                f"{board.supply('bram36')}",
                "BRAM36",
                needed,
            )
    return None


def _arithmetic_shortage(layers: Sequence[Op], board: Board) -> Refusal | None:
    """Return a `Refusal` for the first layer whose arithmetic exceeds the board's LUTs; ``None`` if none does."""
    for layer in layers:
        if (needed := stage_of(layer, board.family).min_luts) > board.lut:
            return Refusal(
                f"{layer.name}: {layer.taps} taps that are added up at once in float32 need {needed:,} LUTs, but "
                f"{board.supply('lut')}: GlobalAveragePool, or an input scale that is a power of two, takes few",
                "LUTs",
                needed,
            )
    return None
