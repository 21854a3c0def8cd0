"""Loop nests on the engine for given tilings, and their memory accesses.

`hwgen.blocking.count` counts the memory accesses of a nest, as for any accelerator. The engine accesses as many bytes,
or fewer where its buffers still hold data that the count fetches again. Examples are smaller boxes at the border of a
map, and input rows that two neighbouring tiles share.
"""

from __future__ import annotations

from hwgen.blocking.count import loads
from hwgen.blocking.problem import OPERANDS, BlockedLoop, Nest, Problem
from hwgen.errors import PlanError
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.program.array_pass import Pass
from hwgen.program.layout import blocks
from hwgen.program.tiles import Tiling


def problem(task: Pass) -> Problem:
    """Return the loop bounds of a convolution as the engine computes it, with input channels rounded up to 8.

    Raises
    ------
    PlanError
        If the pass is channelwise, or its window is dilated or smaller than the stride.
    """
    window = task.window
    gaps = any(kernel < stride for kernel, stride in zip(window.kernel, window.stride, strict=True))
    if task.channelwise or window.dilation != (1, 1) or gaps:
        raise PlanError(f"{task.name}: only convolutions over windows without gaps are counted as nests of loops")
    return Problem(
        name=task.name,
        X=task.columns,
        Y=task.rows,
        C=blocks(task.channels) * LANES,
        K=task.maps,
        Fw=window.kernel[1],
        Fh=window.kernel[0],
        width=task.width,
        height=task.height,
        stride=window.stride,
        pad=(window.padding[0], window.padding[1]),
    )


def nest(task: Pass, engine: EngineConfig, tiling: Tiling) -> Nest:
    """Return the loop nest, innermost loop first, in which the engine computes a convolution with a tiling.

    From inside to outside: loops of a chunk, over the chunks of a tile, over the tiles of a box, then boxes and folds.
    """
    loops, fold = problem(task), min(tiling.folds * task.fold_maps(engine), task.maps)
    tap_columns = tiling.tap_columns or loops.Fw
    chunk = {"X": tiling.columns, "Y": tiling.rows, "C": min(tiling.channels, loops.C), "K": fold}
    inner = [BlockedLoop(dim, size) for dim, size in (chunk | {"Fw": tap_columns, "Fh": tiling.taps}).items()]
    tile = [
        BlockedLoop("Fw", loops.Fw),
        BlockedLoop("Fh", loops.Fh),
        BlockedLoop("C", loops.C),
        BlockedLoop("Y", min(tiling.box_rows, loops.Y)),
    ]
    boxes = (
        [BlockedLoop("Y", loops.Y), BlockedLoop("X", loops.X)]
        if tiling.rolling
        else [BlockedLoop("X", loops.X), BlockedLoop("Y", loops.Y)]
    )
    folds = [BlockedLoop("K", loops.K)]
    return Nest(loops, (*inner, *tile, *(folds + boxes if tiling.maps_stay else boxes + folds)))


#: Positions in the engine's loop nest, ascending: outside the loops of a chunk; then also outside the loops over kernel
#: columns, over kernel rows, and over a box's channels and tiles.
CHUNK, ROW, PART, BOX = 6, 7, 8, 10


def words(task: Pass, engine: EngineConfig, tiling: Tiling, positions: dict[str, int] | None = None) -> dict[str, int]:
    """Count, by the loop-nest model, the bytes of input, weights and output of a pass that cross the memory port.

    Parameters
    ----------
    task : Pass
    engine : EngineConfig
    tiling : Tiling
    positions : dict of str to int, optional
        Positions in the nest up to which the buffers hold ``input`` and ``weights``. By default they hold the minimum:
        the weights of a chunk, and the input of a chunk or of a tile.

    Raises
    ------
    PlanError
        For the passes that `problem` refuses, or if a chunk has fewer kernel rows than the stride.
    """
    stride, last = task.window.stride[0], task.window.kernel[0] % tiling.taps
    if tiling.by_taps and min(tiling.taps, last or tiling.taps) < stride and tiling.rows > 1:
        raise PlanError(f"{task.name}: chunks of fewer kernel rows than the stride, {stride}, are not counted")
    loop_nest, loops = nest(task, engine, tiling), problem(task)
    default = BOX if tiling.rolling else ROW if tiling.by_taps else PART
    held_at = {"input": default, "weights": CHUNK} | (positions or {})
    scope = (2 if tiling.maps_stay else 1) if tiling.rolling else None
    counted = {
        "input": loads(loop_nest, "input", held_at["input"], overlap=tiling.rolling, scope=scope),
        "weights": loads(loop_nest, "weights", held_at["weights"]),
        "output": loads(loop_nest, "output", len(loop_nest.loops)),
    }
    assert set(counted) == set(OPERANDS)
    # A fold with fewer output channels has the weight bytes of a whole fold. Output blocks have all 8 channels in
    # memory.
    folds = task.folds(engine) * engine.maps
    counted["weights"] = counted["weights"] // (loops.K * loops.C) * folds * (-(-task.channels // CHAIN) * CHAIN)
    counted["output"] = counted["output"] // loops.K * blocks(task.maps) * LANES
    return counted
