"""Import of functions of one value between DequantizeLinear and QuantizeLinear: activations, arithmetic with constants.

ONNX Runtime itself computes the output for each integer of a map. It runs the nodes, as they are in the model, on all
integers. Therefore `x * Sigmoid(x)`, like any other expression of one map, is one table.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import title
from hwgen.network.onnx.joins import combine_maps, multiply_maps
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.values import (
    AccumulatorState,
    Applied,
    ConstantOperand,
    Joined,
    Operand,
    Reals,
)
from hwgen.network.ops.join import MAX_BITS

_WITH_CONSTANTS = ("Div", "Max", "Mean", "Min", "PRelu", "Pow")
"""ONNX operators of one map and constants, either one number for all channels or one per channel."""


def is_of_one_map(build: Builder, node: onnx.NodeProto) -> bool:
    """Return whether the builder's current node depends on only one dequantised feature map and constants.

    Other inputs can be constants, or expressions of the same map.
    """
    values = build.operands
    if len(values) == 1:
        return True
    reals = [value.state for value in values if value.map is values[0].map and isinstance(value.state, Reals)]
    return len(reals) == len(values) and any(state.formula for state in reals)


def apply(build: Builder, node: onnx.NodeProto) -> None:
    """Add an ONNX node to the function of one value that is applied to the current dequantised map.

    Raises
    ------
    ModelError
        If the node has inputs other than one dequantised map of at most 8 bits and constants.
    """
    state = build.state
    if isinstance(state, AccumulatorState | Joined):
        raise build.refusal(
            node,
            f"takes floats of {title(state.node)!r}: no table can hold what it makes of these; a QuantizeLinear and a "
            "DequantizeLinear between them would help",
        )
    if not isinstance(state, Reals):
        raise build.refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")
    if not is_of_one_map(build, node):
        raise build.refusal(node, "must take one feature map and constants, or maps that are requantised before it")
    if len({value.view for value in build.operands}) > 1:
        raise build.refusal(node, "must take values of one shape")
    if build.map.type.bits > MAX_BITS:
        raise build.refusal(node, f"takes at most {MAX_BITS} bits, as a table lists every value, not {build.map.type}")
    states = [value.state for value in build.operands]
    state.in_floats = any(isinstance(each, Reals) and each.in_floats for each in states)
    state.formula = expression_of(build, node, [each.formula for each in states if isinstance(each, Reals)])
    state.by_runtime = True
    state.steps.append(node)


def add_step(build: Builder, node: onnx.NodeProto, state: Reals) -> None:
    """Append an ONNX node to a dequantised map's expression; the state's ``table`` must include it already."""
    state.formula = expression_of(build, node, [state.formula])
    state.steps.append(node)


def follow_sums(build: Builder, node: onnx.NodeProto, state: AccumulatorState) -> None:
    """Append an ONNX node to the expression that is computed from a convolution's sums (``state``)."""
    state.formula = expression_of(build, node, [state.formula])


def expression_of(build: Builder, node: onnx.NodeProto, formulas: Iterable[Operand]) -> Applied:
    """Return an ONNX node as an expression, with constants or the given ``formulas`` as its operands."""
    remaining = iter(formulas)
    operands: list[Operand] = []
    for name in node.input:
        if not name or build.constants.holds(name):
            operands.append(name and _constant(build, node, name))
        else:
            try:
                operands.append(next(remaining))
            except StopIteration:
                raise build.refusal(node, f"{name!r} must be a constant of the model, not computed") from None
    return Applied(node, tuple(operands))


def _constant(build: Builder, node: onnx.NodeProto, name: str) -> ConstantOperand:
    """Return a node's constant operand, which must be one number or one per channel of the map."""
    quantised = build.constants.quantised.get(name)
    if quantised is None:
        return ConstantOperand(_spread(build, node, build.constants.arrays[name]))
    if quantised.scale.size > 1:
        return ConstantOperand(_spread(build, node, quantised.real().astype(np.float32)))
    return ConstantOperand(_spread(build, node, quantised.values), (quantised.scale, quantised.zero))


def _spread(build: Builder, node: onnx.NodeProto, values: np.ndarray) -> np.ndarray:
    """Reshape a node's constant to ``()`` for one number, or ``(channels, 1, 1)`` for one per channel.

    For a normalisation the shape is ``(channels,)``.
    """
    if node.op_type == "BatchNormalization":
        values = values.reshape(-1, *[1] * (build.view.rank - 2))  # channels come first after the batch
        return build.constants.by_channel(node, values, build.view).astype(values.dtype)
    if values.size == 1:
        return values.reshape(())
    return build.constants.by_channel(node, values, build.view).astype(values.dtype).reshape(-1, 1, 1)


def add_or_apply(build: Builder, node: onnx.NodeProto) -> None:
    """Import an Add, Sub, Sum, Max or Min: as a join of several maps, or as part of a function of one map."""
    (apply if is_of_one_map(build, node) else combine_maps)(build, node)


def _mul(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Mul: as a product of two maps, or as part of a function of one map."""
    (apply if is_of_one_map(build, node) else multiply_maps)(build, node)


OPERATORS = {
    **dict.fromkeys((*with_effect(Effect.FUNCTION), *_WITH_CONSTANTS), apply),
    "Max": add_or_apply,
    "Min": add_or_apply,
    "Mul": _mul,
    "Sub": add_or_apply,
    "Sum": add_or_apply,
}
"""Functions that import ONNX operators which are functions of one value, by the operator's name."""
