"""The map that a model's input becomes.

The hardware takes channels of one pixel side by side. Which dimension of the input these are, the first layer says that
asks: a convolution or a pool wants them first behind the batch, a product along the last dimension of several wants
them last. The operators in between that reorder dimensions then cost nothing: the host gives maps in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from hwgen.errors import ModelError
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.dimensions import MOVES, moved
from hwgen.network.onnx.views import CHANNELS, COLUMNS, ROWS, View

_POINTWISE = {"Clip", "DequantizeLinear", "QuantizeLinear", "Relu"}
"""Operators of one tensor that leave each value where it is."""
_CHANNELS_FIRST = {
    *("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "GlobalAveragePool", "LRN", "MaxPool", "QLinearConv"),
    *("QLinearAveragePool", "QLinearGlobalAveragePool", "Resize", "Upsample"),
}
_PRODUCTS = {"MatMul", "QLinearMatMul"}
_AXES: Mapping[int, tuple[int, ...]] = {1: (CHANNELS,), 2: (CHANNELS, COLUMNS), 3: (CHANNELS, ROWS, COLUMNS)}
"""Of a map, for the dimensions of a tensor with channels first."""


def input_view(
    constants: Constants, nodes: Sequence[onnx.NodeProto], name: str, shape: Sequence[int], batch: int | None
) -> View:
    """How the input ``name`` of ``shape``, one to three sizes behind the batch, lies on the map that it becomes."""
    sizes = (*shape, *[1] * (3 - len(shape)))
    given = View.of((sizes[0], sizes[1], sizes[2]), [[place] for place in range(len(shape))])
    views = {name: given}  # each dimension of the input is an axis of its own here
    for node in nodes:
        view = views.get(node.input[0]) if node.input else None
        if view is None:
            continue
        rank = len(view.dims)
        if node.op_type in _CHANNELS_FIRST and 2 <= rank <= 3:
            return _seen(view, _AXES[rank], len(shape))
        if node.op_type in _PRODUCTS and 2 <= rank <= 3:
            return _seen(view, (*_AXES[rank][1:], CHANNELS), len(shape))
        if node.op_type in _POINTWISE:
            views[node.output[0]] = view
        elif node.op_type in MOVES:
            try:
                views[node.output[0]] = moved(constants, node, view, batch)
            except ModelError:
                continue  # the importer says it, if the node is needed
    return _seen(given, _AXES[len(shape)], len(shape))


def _seen(view: View, axes: Sequence[int], rank: int) -> View:
    """The input of ``rank`` dimensions, where this tensor's dimensions are ``axes`` of the map."""
    found = view.onto(axes)
    return View(found.sizes, found.dims[:rank])
