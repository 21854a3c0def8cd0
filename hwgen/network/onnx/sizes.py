"""Sizes that a model reads off its own tensors, to reshape others: ``x.view(x.size(0), -1)``, as exporters write it.

All sizes but the batch's are known. They become constants like any others; the batch, where it may be any number, is a
mark that only a Reshape understands, as the first number of its shape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.file import attribute, line
from hwgen.network.onnx.views import View

BATCH = int(np.iinfo(np.int64).min)
"""Stands for a batch of any number of frames."""
_MOVING = {"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
"""They leave sizes as they are."""


def note_shape(constants: Constants, node: onnx.NodeProto, view: View, batch: int | None) -> None:
    """Make the output of a Shape ``node`` a constant, of a tensor with this ``view``."""
    sizes = np.array([batch or BATCH, *view.shape], np.int64)
    start, end = attribute(node, "start", 0), attribute(node, "end", len(sizes))
    constants.arrays[node.output[0]] = sizes[start:end]


def note_sizes(constants: Constants, node: onnx.NodeProto) -> None:
    """Make the output of ``node`` a constant, if it picks sizes or puts them together; raises ModelError if they don't
    fit."""
    known = all(name in constants.arrays for name in node.input if name)
    if node.op_type not in _MOVING or not known or attribute(node, "to", TensorProto.INT64) != TensorProto.INT64:
        return
    operands = {name: constants.arrays[name] for name in node.input if name}
    if any(array.dtype.kind not in "iu" for array in operands.values()):
        return
    try:
        (found,) = ReferenceEvaluator(node).run(None, operands)
    except Exception as error:  # the operators' own, of many kinds: sizes or places that don't fit
        raise constants.refusal(node, f"can't be computed: {line(error)}") from None
    constants.arrays[node.output[0]] = np.asarray(found)
