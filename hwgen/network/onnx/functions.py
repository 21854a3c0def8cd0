"""Functions of one value between DequantizeLinear and QuantizeLinear: activations, and arithmetic with constants.

What becomes of each integer of a map is computed by ONNX Runtime itself: the nodes, as they stand in the model, are run
on all of them. So `x * Sigmoid(x)` is one table, and any other expression of one map is, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx

from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import copied, title
from hwgen.network.onnx.joins import combine_maps, multiply_integers, multiply_maps
from hwgen.network.onnx.values import Applied, Integers, Joined, Operand, Reals, State, Sums
from hwgen.network.ops.join import MOST_BITS

_UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp"),
    *("FastGelu", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "QuickGelu"),
    *("Reciprocal", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt"),
    *("Swish", "Tan", "Tanh", "ThresholdedRelu"),
)
_WITH_CONSTANTS = ("Div", "Max", "Mean", "Min", "PRelu", "Pow")
"""Operators of one map and constants, one number for all channels or one for each."""


def of_one_map(build: Builder, node: onnx.NodeProto) -> bool:
    """Whether the node takes one dequantised map: beside constants, or several times, computed with meanwhile."""
    values = build.operands
    if len(values) == 1:
        return True
    reals = [each.state for each in values if each.map is values[0].map and isinstance(each.state, Reals)]
    return len(reals) == len(values) and any(state.formula for state in reals)


def apply(build: Builder, node: onnx.NodeProto) -> None:
    """The node is one more step of a function of one value.

    Raises
    ------
    ModelError
        If it takes anything but one dequantised map of at most 8 bits and constants.
    """
    state = build.state
    if isinstance(state, Sums | Joined):
        raise build.refusal(
            node,
            f"takes floats of {title(state.node)!r}: no table can hold what it makes of these; a QuantizeLinear and a "
            "DequantizeLinear between them would help",
        )
    if not isinstance(state, Reals):
        raise build.refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")
    if not of_one_map(build, node):
        raise build.refusal(node, "must take one feature map and constants, or maps that are quantised anew before it")
    if len({value.view for value in build.operands}) > 1:
        raise build.refusal(node, "must take values of one shape")
    if build.map.type.bits > MOST_BITS:
        raise build.refusal(node, f"takes at most {MOST_BITS} bits, each value of which is tried, not {build.map.type}")
    states = [value.state for value in build.operands]
    state.in_floats = any(isinstance(each, Reals) and each.in_floats for each in states)
    state.formula = _applied(build, node, states)
    state.by_runtime = True
    state.steps.append(node)


def add_step(build: Builder, node: onnx.NodeProto, state: Reals) -> None:
    """Note the node as a step of a function whose table ``state`` keeps up by itself."""
    state.formula = _applied(build, node, [state])
    state.steps.append(node)


def _applied(build: Builder, node: onnx.NodeProto, states: Iterable[State]) -> Applied:
    """The node, with what it takes."""
    given = iter(states)
    operands: list[Applied | Operand | str | None] = []
    for name in node.input:
        if not name or name in build.constants.arrays or name in build.constants.quantised:
            operands.append(name and _constant(build, node, name))
        else:
            state = next(given, None)
            if state is None:
                raise build.refusal(node, f"{name!r} must be a constant of the model, not computed")
            assert isinstance(state, Reals)
            operands.append(state.formula)
    return Applied(node, tuple(operands))


def _constant(build: Builder, node: onnx.NodeProto, name: str) -> Operand:
    """A constant of the model, which must be one number, or one for each channel of the map."""
    quantised = build.constants.quantised.get(name)
    if quantised is None:
        return Operand(_spread(build, node, build.constants.arrays[name]))
    if quantised.scale.size > 1:
        return Operand(_spread(build, node, quantised.real().astype(np.float32)))
    return Operand(_spread(build, node, quantised.values), (quantised.scale, quantised.zero))


def _spread(build: Builder, node: onnx.NodeProto, values: np.ndarray) -> np.ndarray:
    """A constant as one number, or as ``(channels, 1, 1)``; for a normalisation ``(channels,)``."""
    if node.op_type == "BatchNormalization":
        values = values.reshape(-1, *[1] * (len(build.view.dims) - 1))  # channels come first behind the batch
        return build.constants.by_channel(node, values, build.view).astype(values.dtype)
    if values.size == 1:
        return values.reshape(())
    return build.constants.by_channel(node, values, build.view).astype(values.dtype).reshape(-1, 1, 1)


def add_or_apply(build: Builder, node: onnx.NodeProto) -> None:
    """Add, Sub, Sum, Max or Min: of several maps, or a step of a function of one."""
    (apply if of_one_map(build, node) else combine_maps)(build, node)


def _mul(build: Builder, node: onnx.NodeProto) -> None:
    (apply if of_one_map(build, node) else multiply_maps)(build, node)


def _qlinear(build: Builder, node: onnx.NodeProto) -> None:
    """A com.microsoft operator of integers: its input with scale and zero point, then those of the output."""
    _between_quantisers(build, node, 0, (None,), 3)


def _qlinear_mul(build: Builder, node: onnx.NodeProto) -> None:
    """com.microsoft QLinearMul: of two maps, or of one and a constant."""
    sides = [side for side in (0, 3) if node.input[side] not in build.constants.arrays]
    if len(sides) != 1:
        multiply_integers(build, node)
        return
    other = 3 - sides[0]
    integers = build.constants.read(node, other, "constant")
    scale, zero = build.constants.scale_and_zero(node, other + 1, integers.dtype)
    constant = Operand(_spread(build, node, integers), (scale, zero))
    _between_quantisers(build, node, sides[0], (None, constant) if other else (constant, None), 6)


def _between_quantisers(
    build: Builder, node: onnx.NodeProto, place: int, operands: tuple[Operand | None, ...], result: int
) -> None:
    """An operator on integers as the function that it is between DequantizeLinear and QuantizeLinear.

    Parameters
    ----------
    place, result : int
        Where among the node's inputs the feature map stands, and the scale of the output.
    operands : tuple
        What the function takes; ``None`` is the map.
    """
    x_scale, x_zero = build.quantised_input(node, place + 1)
    scale, zero, kind = build.constants.per_tensor(node, result, build.map.type.dtype)
    plain = copied(node)
    plain.op_type, plain.domain = node.op_type.removeprefix("QLinear"), ""
    del plain.input[len(operands) :]
    build.state = state = Reals(node, x_scale, x_zero, node.output[0])
    state.formula, state.by_runtime = Applied(plain, operands), True
    state.steps.append(node)
    build.requantise_reals(node, state, scale, zero, kind)
    build.state = Integers()


OPERATORS = {
    **dict.fromkeys((*_UNARY, *_WITH_CONSTANTS), apply),
    "Max": add_or_apply,
    "Min": add_or_apply,
    "Mul": _mul,
    "QLinearLeakyRelu": _qlinear,
    "QLinearMul": _qlinear_mul,
    "QLinearSigmoid": _qlinear,
    "Sub": add_or_apply,
    "Sum": add_or_apply,
}
