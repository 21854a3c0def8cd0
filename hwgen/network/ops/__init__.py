"""Layer classes of a quantised network, one for each operator, registered by the operator's name.

>>> " ".join(sorted(KINDS)[:9])
'add averagepool concat conv copy crop depthtospace fixedpoint globalaveragepool'
>>> " ".join(sorted(KINDS)[9:])
'interpolate lookup lrn max maxpool min mul pad resample select spacetodepth sub sum sumpool upsample'
"""

from hwgen.network.ops.conv import Conv
from hwgen.network.ops.fixed_point import FixedPoint
from hwgen.network.ops.interpolate import Interpolate
from hwgen.network.ops.join import Add, Concat, Copy, Join, Max, Min, Mul, Sub, Sum
from hwgen.network.ops.lookup import Lookup
from hwgen.network.ops.lrn import LRN
from hwgen.network.ops.moves import Crop, DepthToSpace, Pad, Resample, Select, SpaceToDepth, Upsample
from hwgen.network.ops.op import Op
from hwgen.network.ops.pool import AveragePool, GlobalAveragePool, MaxPool, SumPool

_POOLS: tuple[type[Op], ...] = (MaxPool, AveragePool, GlobalAveragePool, SumPool)

JOINS: tuple[type[Join], ...] = (Add, Sub, Sum, Mul, Max, Min, Concat, FixedPoint)
_MOVES: tuple[type[Op], ...] = (Upsample, Resample, Interpolate, Select, Crop, Pad, DepthToSpace, SpaceToDepth)

KINDS: dict[str, type[Op]] = {op.kind: op for op in (Conv, *_POOLS, *JOINS, Copy, *_MOVES, Lookup, LRN)}

POOLS: dict[str, type[Op]] = {name: op for op in _POOLS for name in op.operators}
"""Dictionary of layer classes of pools, by the names of the ONNX operators that they compute."""

__all__ = [
    "JOINS",
    "KINDS",
    "LRN",
    "POOLS",
    "Add",
    "AveragePool",
    "Concat",
    "Conv",
    "Copy",
    "Crop",
    "DepthToSpace",
    "FixedPoint",
    "GlobalAveragePool",
    "Interpolate",
    "Join",
    "Lookup",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Op",
    "Pad",
    "Resample",
    "Select",
    "SpaceToDepth",
    "Sub",
    "Sum",
    "SumPool",
    "Upsample",
]
