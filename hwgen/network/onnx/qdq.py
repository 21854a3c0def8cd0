"""Import of ONNX operators between DequantizeLinear and QuantizeLinear (QDQ), and of operators on integers (QOperator).

A Clip of integers, between QuantizeLinear and DequantizeLinear (QCDQ), narrows a map. Its bounds become bounds of the
layer that computes the map, or of the host if the map is the network's input. Either way the map gets the narrowest
type that holds them, so that beats, memories and multipliers become narrower.

An operator on integers, such as QLinearConv, is imported as the operator on floats between DequantizeLinear and
QuantizeLinear, whose result it equals. Refusals name the operator that the model has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from hwgen.network.maps import INT32
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import Bias, Quantised, QuantisedWeights
from hwgen.network.onnx.file import attribute, title
from hwgen.network.onnx.functions import (
    add_or_apply,
    add_step,
    apply,
    apply_to_sums,
    first_reals,
    fold_before,
    follow_sums,
    settled,
)
from hwgen.network.onnx.operator_traits import operands_of
from hwgen.network.onnx.values import (
    AccumulatorState,
    Ended,
    Expression,
    Floats,
    Integers,
    Joined,
    Map,
    Pending,
    PendingLayer,
    Reals,
    Wide,
)
from hwgen.network.ops import Conv
from hwgen.network.rescale import MAX_BIAS, rule_of


def clip_integers(build: Builder, node: onnx.NodeProto, low: float, high: float) -> None:
    """Import a Clip or Relu of a feature map's integers: ``min(max(x, low), high)``."""
    integer_type = build.map.type
    if integer_type.bits > 16:
        raise build.refusal(
            node, "its input is an unquantised sum, where the hardware ends; put a QuantizeLinear before it"
        )
    lower, upper = (int(np.minimum(np.maximum(end, low), high)) for end in integer_type.ends)
    source = build.computing_layer()
    made = build.computed_map()
    bounds = made.bounds
    if bounds is not None:
        lower, upper = (min(max(end, lower), upper) for end in bounds)
    if (lower, upper) == (bounds or integer_type.ends):
        return
    if build.shared or (source is not None and not _bound(source, lower, upper)):
        _emit_clip(build, node, lower, upper)
    elif source is None:
        made.bounds = lower, upper  # the host clips


def _bound(step: PendingLayer, low: int, high: int) -> bool:
    """Clip the outputs of the layer ``step`` to the range from ``low`` to ``high``; return whether it can clip."""
    if step.kind is Conv:
        if step.requantisation is None:
            return False
    else:
        is_type = replace(step.output, bounds=(low, high)).frozen().type.ends == (low, high)
        parameters = step.kind.clipped(step.parameters, low, high, is_type)
        if parameters is None:
            return False
        step.parameters = parameters
    step.low, step.high = (min(max(end, low), high) for end in (step.low, step.high))
    step.output.bounds = low, high
    return True


def _emit_clip(build: Builder, node: onnx.NodeProto, low: int, high: int) -> None:
    """Append a 1x1 convolution whose only effect is to clip each channel of the builder's current map.

    Other nodes read the map without the clip.
    """
    here = build.map
    if here.zero_point is None:
        raise build.refusal(
            node, "clips integers that other operators read unclipped: move the Clip after a DequantizeLinear"
        )
    one, none = np.ones(here.channels, np.int64), np.zeros(here.channels, np.int64)
    rule = rule_of(one, 1, (low, high), here.zero_point)
    build.emit_diagonal(node, one, none, rule, replace(here, bounds=(low, high)))


def _dequantise(build: Builder, node: onnx.NodeProto) -> None:
    """Import a DequantizeLinear of a feature map: the builder's current value becomes real numbers."""
    if not isinstance(build.state, Integers):
        raise build.refusal(node, "must take integers, but its input gives floats; put a QuantizeLinear before it")
    if build.map.type == INT32:  # a DequantizeLinear of accumulators can only be at the end, on the host
        raise build.refusal(
            node, "its input is an unquantised sum, where the hardware ends; put a QuantizeLinear before it"
        )
    scale, zero, _ = build.constants.per_tensor(node, 1, build.map.type.dtype)
    build.label(node, scale, zero)
    build.state = Reals(node, scale, zero, node.output[0])


def _quantise(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QuantizeLinear: append the layers that compute its integers from the builder's current value."""
    state = build.state
    to = build.constants.per_tensor(node, 1, np.dtype(np.uint8))
    if isinstance(state, Ended | Integers):
        raise build.refusal(node, "must take floats, but its input gives integers; put a DequantizeLinear before it")
    precision = attribute(node, "precision", 0)
    if precision not in (TensorProto.UNDEFINED, TensorProto.FLOAT) and isinstance(state, Floats | Reals):
        shown = TensorProto.DataType.Name(precision).lower()
        raise build.refusal(node, f"its precision must be float, not {shown}; leave the attribute out")
    if isinstance(state, Floats):
        build.map = Map(*state.shape, to.type, to.zero, to.scale, origin=state.origin)
    elif isinstance(state, AccumulatorState):
        build.requantise_sums(settled(build, state, to.scale), to)
    elif isinstance(state, Pending):
        state.make(*to)
    elif isinstance(state, Joined):
        state.make(state, *to)
    else:
        assert isinstance(state, Reals)
        build.requantise_reals(node, state, to)
    build.emit_pools(state.pools if isinstance(state, Joined | Reals) else ())
    build.state = Integers()


def plain_operand(build: Builder, node: onnx.NodeProto) -> Reals:
    """Return `Reals`: the state of a layer's float input, which must come directly from a DequantizeLinear."""
    state = build.state
    if not isinstance(state, Reals) or isinstance(state, Wide):
        last = (
            f"{title(state.node)!r} gives floats"
            if isinstance(state, Expression | Joined | AccumulatorState | Wide)
            else "it gets integers"
        )
        raise build.refusal(node, f"must take a quantised input (QuantizeLinear, DequantizeLinear), but {last}")
    if state.steps:
        raise build.refusal(node, f"must take a quantised input, but {title(state.steps[-1])!r} gives floats")
    return state


def _conv(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Conv of a dequantised map: the builder's current value becomes the convolution's sums."""
    operand = _operand(build, node)
    if operand.is_padded_by(node) and not build.shared:
        operand.in_floats = False
    weights, w_scale, weight_type = build.constants.float_weights(node, 0)
    bias = build.bias(node, len(weights), operand.scale * w_scale)
    sums = build.accumulate(node, QuantisedWeights(weights, w_scale, weight_type), bias.steps, operand.scale)
    _set_convolution(build, sums, bias)


def _gemm(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Gemm of a dequantised map: the builder's current value becomes the product's sums."""
    operand = _operand(build, node)
    transposed, alpha, beta = _general_product(build, node)
    matrix, w_scale, weight_type = build.constants.float_weights(node, 0 if transposed else 1)
    matrix, unit = matrix if transposed else matrix.T, operand.scale * w_scale
    bias, rounding = build.bias(node, len(matrix), unit), np.zeros(1)
    if not alpha == beta == 1:  # the accumulators' steps differ from the steps that ONNX Runtime rounds to
        rounding = beta * bias.steps * unit.astype(np.float64)
        bias = bias._replace(steps=np.zeros_like(bias.steps), residue=rounding + beta * bias.residue)
    sums = build.multiply(node, QuantisedWeights(matrix, w_scale, weight_type), bias.steps, alpha * operand.scale)
    sums.rounding = rounding
    _set_convolution(build, sums, bias)


def _matmul(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX MatMul of a dequantised map and a constant matrix: the current value becomes its sums."""
    if build.constants.holds(node.input[0]):
        raise build.refusal(node, "the constant matrix must be the second operand")
    _gemm(build, node)


def _operand(build: Builder, node: onnx.NodeProto) -> Reals:
    """Return the `Reals` of a convolution's float input: a dequantised map, with constant arithmetic at most."""
    state = build.state
    return state if isinstance(state, Reals) and state.arithmetic is not None else plain_operand(build, node)


def _set_convolution(build: Builder, sums: AccumulatorState, bias: Bias) -> None:
    """Make a convolution's sums the builder's current value, with the arithmetic before the convolution folded in."""
    operand = build.state
    assert isinstance(operand, Reals)
    sums.residue = bias.residue
    sums.rounded = build.optimised and bias.may_round and not operand.in_floats
    if operand.arithmetic is not None:
        fold_before(build, sums, operand, operand.arithmetic)
    sums.first = first_reals(sums)
    build.state = sums


def _general_product(build: Builder, node: onnx.NodeProto) -> tuple[bool, np.float32, np.float32]:
    """Return a triple: a Gemm's ``transB``, ``alpha`` and ``beta``; transpose the current value if ``transA`` is set.

    Without a bias, ``beta`` is 1.
    """
    has_bias = len(node.input) > 2 and bool(node.input[2])
    alpha, beta = factor_of(build, node, "alpha"), factor_of(build, node, "beta") if has_bias else np.float32(1)
    if attribute(node, "transA", 0):
        if build.batch != 1 or build.view.rank != 2:
            raise build.refusal(node, "transA must be 0, as the batch is the first dimension; use a batch of 1")
        build.view = build.view.transpose([1, 0])
    return bool(attribute(node, "transB", 0)), alpha, beta


def factor_of(build: Builder, node: onnx.NodeProto, name: str) -> np.float32:
    """Return a node's attribute ``name``, 1 by default, or refuse the node unless it is a positive number."""
    factor = np.float32(attribute(node, name, 1.0))
    if not 0 < factor < np.inf:
        raise build.refusal(node, f"{name} must be a positive number, not {factor:g}")
    return factor


def _relu(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Relu: bound the builder's current value below by 0."""
    _bounded(build, node, 0.0, math.inf)


def _clip(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Clip with constant bounds: bound the builder's current value."""
    _bounded(build, node, *bounds_of(build, node))


def bounds_of(build: Builder, node: onnx.NodeProto) -> tuple[float, float]:
    """Return, as a pair, a Clip's constant bounds, (low, high) floats, infinite if left out; refuse other bounds."""
    bounds = []
    for index, (name, unbounded) in enumerate((("min", -math.inf), ("max", math.inf)), start=1):
        bound = attribute(node, name, unbounded)
        if len(node.input) > index and node.input[index]:
            constant = build.constants.quantised.get(node.input[index])
            values = constant.real() if constant else build.constants.read(node, index, name)
            if values.size != 1 or values.ndim > 1:
                raise build.refusal(node, f"{name} must be one number, not of shape {values.shape}")
            bound = float(values.item())
        if math.isnan(bound):
            raise build.refusal(node, f"{name} must be a number, not NaN")
        bounds.append(float(bound))
    low, high = bounds
    return low, high


def _bounded(build: Builder, node: onnx.NodeProto, low: float, high: float) -> None:
    """Bound the builder's current value by ``low`` and ``high``, for a Relu or Clip."""
    state = build.state
    if isinstance(state, AccumulatorState):
        follow_sums(build, node, state)
        state.low, state.high = (min(max(bound, low), high) for bound in (state.low, state.high))
        state.rounded &= not state.moved
    elif isinstance(state, Reals) and state.by_runtime:
        apply(build, node)
    elif isinstance(state, Reals):
        state.table = np.minimum(np.maximum(build.table(state), np.float32(low)), np.float32(high))
        state.bounds.append((low, high))
        add_step(build, node, state)
    elif isinstance(state, Joined):
        state.bounds.append((low, high))
    elif isinstance(state, Integers):
        clip_integers(build, node, low, high)
    else:
        raise build.refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")


def _add(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Add of a constant and a feature map, or of several feature maps."""
    names = [name for name in node.input if build.constants.holds(name)]
    if not names:
        add_or_apply(build, node)
        return
    if len(names) != 1:
        raise build.refusal(node, "must add a constant to a feature map, or two feature maps")
    constant = build.constants.quantised.get(names[0])
    values = constant.real() if constant else build.constants.arrays[names[0]]
    state = build.state
    if isinstance(state, AccumulatorState) and (state.affine is not None or state.bounded):
        apply_to_sums(build, node, state)
    elif isinstance(state, AccumulatorState):
        # ONNX Runtime fuses a MatMul of two dimensions, or of known sizes, and one Add of a vector into a Gemm, whose
        # bias it rounds.
        is_fused = build.view.rank == 2 or build.batch is not None
        state.rounded &= state.node.op_type == "MatMul" and is_fused and not state.moved
        state.rounded &= constant is None and values.shape == (len(state.weights),) and not state.added
        follow_sums(build, node, state)
        _add_to_sums(build, node, state, values, constant)
    elif isinstance(state, Reals) and state.for_sums:
        state.steps.append(node)
    elif isinstance(state, Reals) and state.steps:
        apply(build, node)
    elif isinstance(state, Reals):
        addend = None
        if constant:
            first = node.input[0] == names[0]
            addend = build.addend(node, constant.values, constant.scale, constant.zero, first=first)
        build.add_reals(node, state, build.constants.by_channel(node, values, build.view), addend)
        add_step(build, node, state)
    else:
        raise build.refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")


def _add_to_sums(
    build: Builder, node: onnx.NodeProto, state: AccumulatorState, values: np.ndarray, constant: Quantised | None
) -> None:
    """Import an Add after a convolution: add its constant's ``values`` to the convolution's bias.

    ``constant``: the quantised form of the values, if they are quantised.
    """
    reals = state.of_channels(build.constants.by_channel(node, values, build.view))
    unit = state.x_scale * state.w_scale
    steps = build.constants.in_steps(node, reals, unit)
    added = Bias(steps, reals - steps * unit.astype(np.float64), may_round=False, stated=constant)
    if state.node.op_type == "MatMul" and not state.added:
        added = build.as_kernel_adds(state.node, added, unit)
    state.bias, state.residue = state.bias + added.steps, state.residue + added.residue
    state.added = True
    if np.abs(state.bias).max() > MAX_BIAS:
        raise build.refusal(node, "bias must fit 48 bits in steps of x_scale * w_scale")


_BIASES = {"QGemm": 6, "QLinearConv": 8}
"""Dictionary by the ONNX operator on integers: index of the input that holds the bias."""
_OUTPUTS = {"QGemm": 7, "QLinearConcat": 0}
"""Dictionary by ONNX operator on integers: index of the input with the output's scale, if not after the last zero
point."""
ON_INTEGERS = (
    *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid"),
)
"""Tuple of names of ONNX operators on integers whose tensors are each followed by scale and zero point."""


def between_quantisers(build: Builder, node: onnx.NodeProto, apply: Callable[[Builder, onnx.NodeProto], None]) -> None:
    """Import an operator on integers as the float operator between quantisers; ``apply`` imports the latter."""
    if attribute(node, "channels_last", 0):
        raise build.refusal(node, "channels_last 1 is not supported, 0 is")
    operands = operands_of(node)
    output = _OUTPUTS.get(node.op_type, operands[-1] + 3)
    if len(node.input) <= output or not node.input[output]:
        raise build.refusal(node, "gives floats; its output must be quantised too (y_scale)")
    name, result = node.name or node.output[0], f"{node.output[0]} in floats"
    plain = helper.make_node(node.op_type.removeprefix("QLinear").removeprefix("Q"), [], [result], name=name)
    plain.input.extend(node.input[index] for index in operands)
    plain.attribute.extend(entry for entry in node.attribute if entry.name != "alpha" or node.op_type != "QGemm")
    known, outer_operands = {**build.constants.quantised}, [*build.operands]
    build.constants.owner = node
    try:
        _dequantise_operands(build, node, plain, operands)
        before = build.map.type
        apply(build, plain)
        apply(build, helper.make_node("QuantizeLinear", [result, *node.input[output : output + 2]], node.output, name))
        after = build.map.type
        if "Pool" in node.op_type and not (before == after and after.bits == 8):
            raise build.refusal(node, f"must take and give integers of one 8-bit type, not {before} and {after}")
    finally:
        build.constants.owner, build.constants.quantised, build.operands = None, known, outer_operands


def _dequantise_operands(build: Builder, node: onnx.NodeProto, plain: onnx.NodeProto, operands: Sequence[int]) -> None:
    """Set the builder's operands to the dequantised maps of an operator on integers, and note dequantised constants.

    ``plain``: operator on floats in place of ``node``; its bias is added here.
    """
    constants, maps = build.constants, iter(build.operands)
    build.operands = []
    for index in operands:
        name = node.input[index]
        if name in constants.arrays:
            values = constants.read(node, index, "constant")
            scale, zero = constants.scale_and_zero(node, index + 1, values.dtype)
            if node.op_type == "QGemm" and scale.shape != zero.shape:
                shapes = f"{scale.shape}, not {zero.shape}"
                raise build.refusal(node, f"weights' zero point must have the shape of their scale, {shapes}")
            constants.quantised[name] = Quantised(values, scale, zero, _channel_axis(plain, values))
        else:
            build.enter(next(maps))
            scale, zero = build.quantised_input(node, index + 1)
            factor = factor_of(build, node, "alpha") if node.op_type == "QGemm" else np.float32(1)
            build.state = Reals(node, factor * scale, zero, name)
            build.operands.append(build.value)
    if not build.operands:
        raise build.refusal(node, "must take a feature map, not constants only")
    build.enter(build.operands[0])
    if (index := _BIASES.get(node.op_type, 0)) and len(node.input) > index and node.input[index]:
        _note_bias(build, node, plain, index)


def _note_bias(build: Builder, node: onnx.NodeProto, plain: onnx.NodeProto, index: int) -> None:
    """Add the bias of an operator on integers, its input ``index``, to ``plain`` as a dequantised constant."""
    constants, state, name = build.constants, build.state, node.input[index]
    plain.input.append(name)
    weights = constants.quantised.get(plain.input[1])
    if name in constants.arrays and weights is not None and isinstance(state, Reals):
        bias = constants.read(node, index, "bias")
        if bias.dtype != np.int32:
            raise build.refusal(node, f"bias must be int32, not {bias.dtype}")
        constants.quantised[name] = Quantised(bias, state.scale * weights.scale, np.zeros(1, np.int64), 0)


def _channel_axis(node: onnx.NodeProto, values: np.ndarray) -> int:
    """Return the axis of a layer's weight array that indexes output channels."""
    return 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else max(0, values.ndim - 1)


def _conv_integer(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX ConvInteger as a convolution layer whose outputs are the accumulators."""
    zero = build.constants.read(node, 2, "zero point") if len(node.input) > 2 and node.input[2] else np.zeros(1, int)
    if zero.size != 1:
        raise build.refusal(node, f"a feature map must have one zero point, not {zero.size}")
    build.integer_input(node, None, int(zero.item()), build.map.type)
    values = build.constants.read(node, 1, "weights")
    w_zero = np.zeros(1, values.dtype)
    if len(node.input) > 3 and node.input[3]:
        w_zero = build.constants.read(node, 3, "weights' zero point")
    weights = build.constants.weights(node, values, np.ones(1, np.float32), w_zero, 0)
    sums = build.accumulate(node, weights, np.zeros(len(weights.values), np.int64), np.float32(1))
    build.emit_accumulators(sums)


OPERATORS = {
    "Add": _add,
    "Clip": _clip,
    "Conv": _conv,
    "DequantizeLinear": _dequantise,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "QuantizeLinear": _quantise,
    "Relu": _relu,
    "ConvInteger": _conv_integer,
}
"""Dictionary of functions that import operators of QDQ models, and ConvInteger, by the ONNX operator's name."""
