"""The map that a model's input becomes.

The hardware takes channels of one pixel side by side. Which dimension of the input these are, the first layer says that
asks: a convolution or a pool wants them first behind the batch, a product along the last dimension of several wants
them last. The operators in between that reorder dimensions then cost nothing: the host gives maps in that order.
Operators that make a dimension longer or shorter are followed, too, as long as it is one of the input's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from hwgen.errors import ModelError
from hwgen.network.onnx import functions
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.dimensions import MOVES, moved
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, Atom, View
from hwgen.network.ops import KINDS

_POINTWISE = {
    *("Add", "Clip", "DequantizeLinear", "QLinearAdd", "QLinearMul", "QuantizeLinear", "Relu"),
    *functions.OPERATORS,
}
"""Operators that leave each value where it is; other operands go with the first one that is followed."""
_CUT = {"Concat", "Gather", "Pad", "QLinearConcat", "Slice", "Split"}
"""Operators that make dimensions longer or shorter."""
_CHANNELS_FIRST = {
    *("BatchNormalization", "ConvInteger", "ConvTranspose", "QLinearConv"),
    *(name for kind in KINDS.values() if kind.channels_first for name in kind.operators),
}
_PRODUCTS = {"MatMul", "QLinearMatMul"}
_AXES: Mapping[int, tuple[int, ...]] = {1: (CHANNELS,), 2: (CHANNELS, COLUMNS), 3: (CHANNELS, ROWS, COLUMNS)}
"""Of a map, for the dimensions of a tensor with channels first."""


def input_view(
    constants: Constants,
    nodes: Sequence[onnx.NodeProto],
    name: str,
    shape: Sequence[int],
    batch: int | None,
    shapes: Shapes,
) -> View:
    """How the input ``name`` of ``shape``, one to three sizes behind the batch, lies on the map that it becomes."""
    sizes = (*shape, *[1] * (3 - len(shape)))
    given = View.of((sizes[0], sizes[1], sizes[2]), [[place] for place in range(len(shape))])
    views = {name: given}  # each dimension of the input is an axis of its own here
    for node in nodes:
        operands = [views[each] for each in node.input if each in views]
        if not operands:
            continue
        view = operands[0]
        rank = len(view.dims)
        if node.op_type in _CHANNELS_FIRST and 2 <= rank <= 3:
            return _seen(given, view, _AXES[rank]) or _as_usual(given)
        if node.op_type in _PRODUCTS and 2 <= rank <= 3:
            return _seen(given, view, (*_AXES[rank][1:], CHANNELS)) or _as_usual(given)
        for output in filter(None, node.output):
            after = shapes.of(output).shape if node.op_type in _CUT else None
            found = (_behind(constants, node, each, batch, after) for each in operands)
            if (behind := next((each for each in found if each is not None), None)) is not None:
                views[output] = behind
    return _as_usual(given)


def _behind(
    constants: Constants, node: onnx.NodeProto, view: View, batch: int | None, shape: Sequence[int] | None
) -> View | None:
    """The view of what a node gives, of this ``shape`` if it changes sizes; ``None`` if that can't be said."""
    if node.op_type in _POINTWISE:
        return view
    if node.op_type in MOVES:
        try:
            return moved(constants, node, view, batch)
        except ModelError:
            return None  # the importer says it, if the node is needed
    return None if shape is None else _cut(view, shape[1:])


def _cut(view: View, shape: Sequence[int]) -> View | None:
    """The view of a tensor of this ``shape``, where each dimension that is longer or shorter now is a whole axis."""
    if len(shape) != len(view.dims) or min(shape, default=0) < 1:
        return None
    sizes, dims = list(view.sizes), list(view.dims)
    for place, (before, size) in enumerate(zip(view.shape, shape, strict=True)):
        if size == before:
            continue
        if len(dims[place]) != 1 or before != sizes[dims[place][0].axis]:
            return None
        axis = dims[place][0].axis
        sizes[axis], dims[place] = size, (Atom(axis, size),)
    return View((sizes[0], sizes[1], sizes[2]), tuple(dims))


def _as_usual(given: View) -> View:
    """Channels are the first dimension."""
    view = given.onto(_AXES[len(given.dims)])
    return View(view.sizes, view.dims[: len(given.dims)])


def _seen(given: View, view: View, axes: Sequence[int]) -> View | None:
    """The input, which is ``given``, where the dimensions of a tensor with this ``view`` of it are ``axes`` of the map.

    ``None`` if a dimension is longer or shorter there, and no whole axis of the map.
    """
    found = view.onto(axes)
    sizes, dims = list(found.sizes), list(found.dims[: len(given.dims)])
    single = [axis for axis in axes if sizes[axis] == 1]
    for place, (before, after) in enumerate(zip(given.sizes, view.sizes, strict=True)):
        if before == after:
            continue
        axis = dims[place][0].axis if len(dims[place]) == 1 else single[0] if len(single) == 1 else None
        if axis is None or after != found.sizes[axis]:
            return None
        sizes[axis], dims[place] = before, (Atom(axis, before),)
    return View((sizes[0], sizes[1], sizes[2]), tuple(dims))
