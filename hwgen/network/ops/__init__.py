"""The kinds of layers: one class each, registered by its name.

>>> sorted(KINDS)
['add', 'averagepool', 'concat', 'conv', 'copy', 'globalaveragepool', 'maxpool']
"""

from hwgen.network.ops.average import AveragePool, GlobalAveragePool
from hwgen.network.ops.conv import Conv
from hwgen.network.ops.join import Add, Concat, Copy, Join
from hwgen.network.ops.op import Op
from hwgen.network.ops.pool import MaxPool

KINDS: dict[str, type[Op]] = {op.kind: op for op in (Conv, MaxPool, AveragePool, GlobalAveragePool, Add, Concat, Copy)}

POOLS: dict[str, type[Op]] = {
    name: op for op in KINDS.values() if op.channelwise and not issubclass(op, Join) for name in op.operators
}
"""Kinds without weights that keep each channel to itself, by their ONNX operators."""

__all__ = [
    "KINDS",
    "POOLS",
    "Add",
    "AveragePool",
    "Concat",
    "Conv",
    "Copy",
    "GlobalAveragePool",
    "Join",
    "MaxPool",
    "Op",
]
