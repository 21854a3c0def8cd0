"""Tensor sizes that an ONNX model computes from its own tensors, to reshape others, as constants.

Exporters write them for ``x.view(x.size(0), -1)``. All sizes but the batch are known. They become constants like any
others. A batch of any number of frames is a special number, which only a Reshape accepts, as the first entry of its
shape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.file import attribute, line
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.views import View

BATCH = int(np.iinfo(np.int64).min)
"""Integer that stands for a batch of any number of frames, where a model computes with tensor sizes."""
_MOVING = with_effect(Effect.SAME, Effect.RENAMING, Effect.SELECTION) | {"Cast", "Concat"}
"""ONNX operators that a model applies to tensor sizes without changing them."""


def note_shape(constants: Constants, node: onnx.NodeProto, view: View, batch: int | None) -> None:
    """Store the output of a Shape node as a constant; ``view`` is the layout of its input."""
    sizes = np.array([batch or BATCH, *view.shape], np.int64)
    start, end = attribute(node, "start", 0), attribute(node, "end", len(sizes))
    constants.arrays[node.output[0]] = sizes[start:end]


def note_sizes(constants: Constants, node: onnx.NodeProto) -> None:
    """Store a node's output as a constant, if the node selects or combines known tensor sizes.

    Raises
    ------
    ModelError
        If the node can't be computed, because the sizes don't fit.
    """
    known = all(name in constants.arrays for name in node.input if name)
    if node.op_type not in _MOVING or not known or attribute(node, "to", TensorProto.INT64) != TensorProto.INT64:
        return
    operands = {name: constants.arrays[name] for name in node.input if name}
    if any(array.dtype.kind not in "iu" for array in operands.values()):
        return
    try:
        (result,) = ReferenceEvaluator(node).run(None, operands)
    except Exception as error:  # operators raise many types of errors about sizes or indices that don't fit
        raise constants.refusal(node, f"can't be computed: {line(error)}") from None
    constants.arrays[node.output[0]] = np.asarray(result)
