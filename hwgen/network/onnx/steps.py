"""Import of Less and Where, which choose between two floats: the step function that a BipolarQuant becomes.

Behind a convolution, the choice is a threshold of its sums. Behind DequantizeLinear it is a function of one value.
"""

from __future__ import annotations

import onnx

from hwgen.network.onnx.affine import is_constant
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.functions import apply, follow_sums
from hwgen.network.onnx.values import AccumulatorState


def _less(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Less of a feature map and a constant."""
    state = build.state
    if not isinstance(state, AccumulatorState) or state.first is None:
        apply(build, node)
        return
    if not is_constant(build, node.input[1]) or state.chosen is not None:
        raise build.refusal(node, "must compare a feature map with a constant, a greater one")
    follow_sums(build, node, state)


def _where(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Where that chooses between two constants by a comparison of a feature map."""
    state = build.state
    if not isinstance(state, AccumulatorState):
        apply(build, node)
        return
    if not all(is_constant(build, name) for name in node.input[1:]):
        raise build.refusal(node, "must choose between two constants")
    reals = [build.constants.real(node, index, "value") for index in (1, 2)]
    if any(values.size > 1 for values in reals):
        raise build.refusal(node, "must choose between two numbers, not between numbers by channel")
    follow_sums(build, node, state)
    low, high = (float(values.item()) for values in reals)
    state.chosen = low, high
    state.low, state.high = min(low, high), max(low, high)


OPERATORS = {"Less": _less, "Where": _where}
"""Python functions that import ONNX operators which make a step function, by the operator's name."""
