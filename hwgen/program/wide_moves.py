"""Array passes that move values of maps of more than 8 bits, as copies of one byte after the other.

Memory stores each row of a wide map as one row per byte of a value (`hwgen.program.layout.pack_map`). A layer that
picks or joins channels treats all of them alike, as rows of a map of 8 bits. A layer that moves pixels has a pass for
each byte, which reads and writes every second, third or fourth row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Concat, Op
from hwgen.program.array_pass import Pass, PixelGrid, rule_of
from hwgen.program.layout import stored_bytes, value_bytes

#: Rule of a pass that copies stored bytes unchanged.
_BYTES = rule_of(INT8, 0, INT8.minimum, INT8.maximum)


def concat_of_bytes(op: Concat) -> Concat:
    """Return a `Concat`: a concatenation of 8-bit maps with more rows, equal byte by byte to one of wide maps."""
    size = value_bytes(op.output.type)

    def stored(source: FeatureMap) -> FeatureMap:
        return replace(source, type=INT8, zero_point=0, scale=None, height=size * source.height)

    return replace(
        op,
        input=stored(op.input),
        more=tuple(map(stored, op.more)),
        output=stored(op.output),
        low=INT8.minimum,
        high=INT8.maximum,
    )


def passes_of_all_bytes(tasks: Sequence[Pass], op: Op) -> tuple[Pass, ...]:
    """Return a tuple of passes that treat all stored bytes of wide maps as ``tasks`` treat pixels, moving no pixel."""
    size = value_bytes(op.input.type)
    return tuple(replace(task, height=size * task.height, rows=size * task.rows, rule=_BYTES, pad=0) for task in tasks)


def passes_of_each_byte(tasks: Sequence[Pass], op: Op) -> tuple[Pass, ...]:
    """Return a tuple of passes that treat each byte of wide values, in turn, as ``tasks`` treat pixels."""
    padding = stored_bytes(op.pad_value, op.input.type)
    return tuple(_of_byte(task, byte, len(padding), int(pad)) for byte, pad in enumerate(padding) for task in tasks)


def _of_byte(task: Pass, byte: int, size: int, pad: int) -> Pass:
    """Return the `Pass` that treats byte ``byte`` of ``size`` bytes per value as ``task`` treats pixels."""
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
        rule=_BYTES,
        pad=pad,
    )
