"""The kinds of layers: one class each, registered by its name.

>>> " ".join(sorted(KINDS))
'add averagepool concat conv copy globalaveragepool lookup maxpool mul sub sum upsample'
"""

from hwgen.network.ops.average import AveragePool, GlobalAveragePool
from hwgen.network.ops.conv import Conv
from hwgen.network.ops.join import Add, Concat, Copy, Join, Mul, Sub, Sum
from hwgen.network.ops.lookup import Lookup
from hwgen.network.ops.op import Op
from hwgen.network.ops.pool import MaxPool
from hwgen.network.ops.upsample import Upsample

_POOLS: tuple[type[Op], ...] = (MaxPool, AveragePool, GlobalAveragePool)

KINDS: dict[str, type[Op]] = {op.kind: op for op in (Conv, *_POOLS, Add, Sub, Sum, Mul, Concat, Copy, Upsample, Lookup)}

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
    "GlobalAveragePool",
    "Join",
    "Lookup",
    "MaxPool",
    "Mul",
    "Op",
    "Sub",
    "Sum",
    "Upsample",
]
