"""Passes that move the values of wide maps (more than 8 bits): copies that treat each byte as a value of 8 bits.

Memory stores each row of a wide map as one row per byte of a value (`hwgen.program.layout.pack_map`). A layer that
picks or joins channels treats all of them alike, as rows of a map of 8 bits. A layer that moves pixels has a pass for
each byte, which reads and writes every second, third or fourth row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Concat, Crop, DepthToSpace, Op, Pad, Resample, Select, SpaceToDepth, Upsample
from hwgen.program.array_pass import Pass, PixelGrid
from hwgen.program.layout import stored_bytes, value_bytes

#: Layer types that only select or join channels, so that each pixel keeps its row and column.
_CHANNEL_MOVES = (Concat, Select)
#: Layer types that move values without changing them, so that wide values can be moved byte by byte.
MOVES = (*_CHANNEL_MOVES, Crop, Pad, Upsample, DepthToSpace, SpaceToDepth, Resample)


def byte_passes(op: Op, make: Callable[..., tuple[Pass, ...]]) -> tuple[Pass, ...]:
    """Return the passes of a layer that only moves values of more than 8 bits, as moves of their bytes.

    Parameters
    ----------
    op : Op
        Layer, one of `MOVES`.
    make : callable
        Function that makes the passes of such a layer of 8-bit maps.
    """
    size = value_bytes(op.input.type)
    if isinstance(op, _CHANNEL_MOVES):
        return make(_of_bytes(op, size))
    tasks = []
    for byte in range(size):
        value = {"value": int(stored_bytes(op.pad_value, op.input.type)[byte])} if isinstance(op, Pad) else {}
        tasks += [_of_byte(task, byte, size) for task in make(_of_bytes(op, 1, **value))]
    return tuple(tasks)


def _of_bytes(op: Op, rows: int, **values: Any) -> Op:
    """Return a copy of a layer for 8-bit maps that hold bytes of values, with ``rows`` rows in place of each row."""

    def stored(source: FeatureMap) -> FeatureMap:
        return replace(source, type=INT8, zero_point=0, scale=None, height=rows * source.height)

    if isinstance(op, Concat):
        values |= {"more": tuple(map(stored, op.more)), "low": INT8.minimum, "high": INT8.maximum}
    return replace(op, input=stored(op.input), output=stored(op.output), **values)


def _of_byte(task: Pass, byte: int, size: int) -> Pass:
    """Return a copy of a pass for 8-bit maps that moves byte number ``byte`` of values of ``size`` bytes."""
    window, lattice = task.window, task.lattice
    top, left, bottom, right = window.padding
    down = window.stride[0] * size if task.rows > 1 else window.stride[1]
    return replace(
        task,
        height=task.height * size,
        window=Window(
            kernel=window.kernel,
            stride=(down, window.stride[1]),
            padding=(top * size - byte, left, bottom * size + byte, right),
            dilation=(window.dilation[0] * size, window.dilation[1]),
        ),
        lattice=PixelGrid(
            step=(lattice.step[0] * size, lattice.step[1]), first=(lattice.first[0] * size + byte, lattice.first[1])
        ),
    )
