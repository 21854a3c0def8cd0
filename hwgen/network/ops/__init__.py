"""The kinds of layers: one class each, registered by its name.

>>> sorted(KINDS)
['add', 'averagepool', 'concat', 'conv', 'copy', 'crop', 'depthtospace', 'globalaveragepool', 'maxpool', 'mul', 'pad', \
'select', 'spacetodepth', 'upsample']
"""

from hwgen.network.ops.average import AveragePool, GlobalAveragePool
from hwgen.network.ops.conv import Conv
from hwgen.network.ops.crop import Crop, Pad
from hwgen.network.ops.depth import DepthToSpace, SpaceToDepth
from hwgen.network.ops.join import Add, Concat, Copy, Join, Mul
from hwgen.network.ops.op import Op
from hwgen.network.ops.pool import MaxPool
from hwgen.network.ops.select import Select
from hwgen.network.ops.upsample import Upsample

_POOLS: tuple[type[Op], ...] = (MaxPool, AveragePool, GlobalAveragePool)

KINDS: dict[str, type[Op]] = {
    op.kind: op
    for op in (Conv, *_POOLS, Add, Mul, Concat, Copy, Upsample, Select, Crop, Pad, DepthToSpace, SpaceToDepth)
}

POOLS: dict[str, type[Op]] = {name: op for op in _POOLS for name in op.operators}
"""Kinds without weights that keep each channel to itself, by their ONNX operators."""

__all__ = [
    "KINDS",
    "POOLS",
    "Add",
    "AveragePool",
    "Concat",
    "Conv",
    "Copy",
    "Crop",
    "DepthToSpace",
    "GlobalAveragePool",
    "Join",
    "MaxPool",
    "Mul",
    "Op",
    "Pad",
    "Select",
    "SpaceToDepth",
    "Upsample",
]
