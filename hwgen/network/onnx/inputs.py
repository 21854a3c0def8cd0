"""Choice of the feature map, channels first, that an ONNX model's input becomes in hardware.

The hardware streams the channels of one pixel together. Which dimension of the input holds the channels is decided by
the first layer that depends on it. A convolution or a pool needs the channels as first dimension after the batch. A
product along the last of several dimensions needs them as last dimension. Operators in between that reorder dimensions
then cost nothing, because the host sends maps in that order. Operators that make a dimension longer or shorter are
followed, too, as long as the dimension is one of the input's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from hwgen.errors import ModelError
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.dimensions import MOVES, moved
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.operator_traits import PRODUCTS, Effect, with_effect
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, Atom, View
from hwgen.network.ops import KINDS

_POINTWISE = with_effect(Effect.FUNCTION, Effect.ARITHMETIC, Effect.QUANTISER)
"""Set of names of ONNX operators that keep the position of each value, so that the input's layout can be followed
through them.

Among several operands, the first one with a known view is followed.
"""
_CUT = {"Concat", "Gather", "Pad", "QLinearConcat", "Slice", "Split"}
"""Set of names of ONNX operators that make dimensions of a tensor longer or shorter."""
_CHANNELS_FIRST = {
    *("BatchNormalization", "ConvInteger", "ConvTranspose", "QLinearConv"),
    *(name for kind in KINDS.values() if kind.channels_first for name in kind.operators),
}
"""Set of names of ONNX operators that need the channels as first dimension after the batch."""
_AXES: Mapping[int, tuple[int, ...]] = {1: (CHANNELS,), 2: (CHANNELS, COLUMNS), 3: (CHANNELS, ROWS, COLUMNS)}
"""Mapping by a channels-first tensor's number of dimensions: map axis (channels, row, column) of each."""


def input_view(
    constants: Constants,
    nodes: Sequence[onnx.NodeProto],
    name: str,
    shape: Sequence[int],
    batch: int | None,
    shapes: Shapes,
) -> View:
    """Return the layout (`View`) of the model's input ``name`` on the feature map it becomes in hardware.

    Parameters
    ----------
    nodes : sequence of NodeProto
        Nodes of the graph, in topological order.
    shape : sequence of int
        One to three sizes of the input, without the batch.
    batch : int or None
        Number of frames of a batch; ``None`` if it can be any number.
    shapes : Shapes
        Types and shapes of the model's tensors.
    """
    sizes = (*shape, *[1] * (3 - len(shape)))
    source = View.of((sizes[0], sizes[1], sizes[2]), [[dimension] for dimension in range(len(shape))])
    views = {name: source}  # here each dimension of the input is an axis of its own
    for node in nodes:
        operands = [views[operand] for operand in node.input if operand in views]
        if not operands:
            continue
        view = operands[0]
        rank = len(view.dims)
        if node.op_type in _CHANNELS_FIRST and 2 <= rank <= 3:
            return _layout_at_input(source, view, _AXES[rank]) or _as_usual(source)
        if node.op_type in PRODUCTS and 2 <= rank <= 3:  # channels last, or the dimension before with ``transA``
            axes = _AXES[rank] if attribute(node, "transA", 0) else (*_AXES[rank][1:], CHANNELS)
            return _layout_at_input(source, view, axes) or _as_usual(source)
        for output in filter(None, node.output):
            after = shapes.of(output).shape if node.op_type in _CUT else None
            candidates = (_layout_after(constants, node, operand, batch, after) for operand in operands)
            if (found := next((operand for operand in candidates if operand is not None), None)) is not None:
                views[output] = found
    return _as_usual(source)


def _layout_after(
    constants: Constants, node: onnx.NodeProto, view: View, batch: int | None, shape: Sequence[int] | None
) -> View | None:
    """Return the `View` of a node's output on the input's map; ``None`` for a move or change of sizes without a view.

    Parameters
    ----------
    view : View
        View of the node's input.
    shape : sequence of int or None
        Shape of the output, if the node changes sizes.
    """
    if node.op_type in _POINTWISE:
        return view
    if node.op_type in MOVES:
        try:
            return moved(constants, node, view, batch)
        except ModelError:
            return None  # the import of the node refuses it, if an output depends on the node
    return None if shape is None else _fit_layout(view, shape[1:])


def _fit_layout(view: View, shape: Sequence[int]) -> View | None:
    """Return a `View`: ``view`` with dimensions cut or extended to ``shape``; ``None`` if one is not a whole axis."""
    if len(shape) != len(view.dims) or min(shape, default=0) < 1:
        return None
    sizes, dims = list(view.sizes), list(view.dims)
    for position, (before, size) in enumerate(zip(view.shape, shape, strict=True)):
        if size == before:
            continue
        if len(dims[position]) != 1 or before != sizes[dims[position][0].axis]:
            return None
        axis = dims[position][0].axis
        sizes[axis], dims[position] = size, (Atom(axis, size),)
    return View((sizes[0], sizes[1], sizes[2]), tuple(dims))


def _as_usual(source: View) -> View:
    """Return a `View`: the layout of a model's input on its map if the first dimension holds the channels."""
    view = source.onto(_AXES[len(source.dims)])
    return View(view.sizes, view.dims[: len(source.dims)])


def _layout_at_input(source: View, view: View, axes: Sequence[int]) -> View | None:
    """Return the input's `View` so that a later tensor has map axes ``axes``; ``None`` if it resized part of an axis.

    Parameters
    ----------
    source : View
        View of the input, whose dimensions are axes of their own.
    view : View
        View of the later tensor on the input.
    axes : sequence of int
        Map axes that the dimensions of the later tensor must become.

    Returns
    -------
    View or None
        ``None`` if a dimension changes its size up to the later tensor, and is not a whole axis of the map there.
    """
    target = view.onto(axes)
    sizes, dims = list(target.sizes), list(target.dims[: len(source.dims)])
    single = [axis for axis in axes if sizes[axis] == 1]
    for position, (before, after) in enumerate(zip(source.sizes, view.sizes, strict=True)):
        if before == after:
            continue
        axis = dims[position][0].axis if len(dims[position]) == 1 else single[0] if len(single) == 1 else None
        if axis is None or after != target.sizes[axis]:
            return None
        sizes[axis], dims[position] = before, (Atom(axis, before),)
    return View((sizes[0], sizes[1], sizes[2]), tuple(dims))
