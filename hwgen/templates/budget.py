"""Resource budget: comparison of a plan's resources with the board's."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.boards import Board
from hwgen.gateware.cost import Resources
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.templates.refusal import Refusal, fitting
from hwgen.templates.stages import stage_of

#: Maximum share of the block RAM that constant weights need if other layers' weights are loaded to UltraRAM.
CONSTANT_SHARE = 0.5


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


def memory_bits(board: Board, loaded: bool = False) -> int:
    """Return the number of bits that a device can store in block RAM and in LUTs used as memory, together.

    If weights are loaded at run time (``loaded``), UltraRAM can store them as well.
    """
    memories = board.family.memories
    return board.bram36 * memories.block_bits + board.lut * memories.lut_bits + loaded * ultra_bits(board)


def ultra_bits(board: Board) -> int:
    """Return the number of bits that a board's UltraRAM can store; 0 without UltraRAM."""
    ultra_ram = board.ultra_ram
    return 0 if ultra_ram is None else board.uram * ultra_ram.bits * ultra_ram.words


def sure_shortage(layers: Sequence[Op], board: Board) -> Refusal | None:
    """Return a `Refusal` if no unroll factors can fit the device (too many weights or LUTs), else ``None``.

    ``None`` if neither shortage is certain.
    """
    loaded = any(layer.loaded for layer in layers)
    return weight_shortage(layer_weight_bits(layers), board, loaded) or _arithmetic_shortage(layers, board)


def layer_weight_bits(layers: Sequence[Op]) -> list[tuple[str, int]]:
    """Return a list of (layer name, total bits of its weights) for the layers with weights."""
    return [(layer.name, layer.weight_count * layer.weight_bits) for layer in layers if layer.weight_count]


def layers_for_ultra_ram(network: Network, board: Board) -> frozenset[str]:
    """Return the names of the layers to load weights for, to UltraRAM: the largest, until the others fit block RAM.

    The weights of the others need at most `CONSTANT_SHARE` of the board's block RAM.
    """
    left, names = CONSTANT_SHARE * board.bram36 * board.family.memories.block_bits, set()
    for name, bits in sorted(layer_weight_bits(network.layers), key=lambda layer: layer[1]):
        left -= bits
        if left < 0:
            names.add(name)
    return frozenset(names)


def weight_shortage(weights: Sequence[tuple[str, int]], board: Board, loaded: bool = False) -> Refusal | None:
    """Return a `Refusal` if the weights of a layer, or of all, exceed the device's memory; else ``None``.

    ``None`` if the device's memory holds all weights.

    Parameters
    ----------
    weights : sequence of (str, int)
        Name and bits of all weights, per layer that has weights.
    loaded : bool
        Whether the weights are loaded at run time, so that UltraRAM can store them as well.
    """
    ultra = loaded * ultra_bits(board) // board.family.memories.block_bits
    supply = board.supply("bram36") + (f", and UltraRAM in place of {ultra:,} more" if ultra else "")
    for group in (*([layer] for layer in weights), weights):
        names, bits = [name for name, _ in group], sum(count for _, count in group)
        needed = -(-bits // board.family.memories.block_bits)
        if bits > memory_bits(board, loaded):
            return Refusal(
                f"{names[0] if len(names) == 1 else f'{names[0]} to {names[-1]}'}: weights need {needed:,} BRAM36, but "
                f"{supply}",
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
