"""Import of functions of one value between quantisers, and folding of arithmetic with constants into convolutions.

ONNX Runtime itself computes the output of a function for each integer of a map. It runs the nodes, as they are in the
model, on all integers. Therefore `x * Sigmoid(x)`, like any other expression of one map, is one table.

BatchNormalization, Mul, Div, Add and Sub with constants are folded. After a convolution, a factor is multiplied into
the scale of the sums, and a constant is added to the bias. A negative factor changes the sign of the weights. Before a
convolution the same is done if it is exact. All channels that meet in one output must then have the same factor.
Nothing may be added before a window with padding, because padding stays zero.

Less and Where choose between two floats: the step function that a BipolarQuant becomes. After a convolution, the
choice is a threshold of its sums. After DequantizeLinear it is a function of one value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx

from hwgen.errors import ModelError
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, title
from hwgen.network.onnx.joins import combine_maps, multiply_maps
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.values import AccumulatorState, Affine, Applied, ConstantOperand, Joined, Operand, Reals
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.rescale import MAX_BIAS

_WITH_CONSTANTS = ("Div", "Max", "Mean", "Min", "PRelu", "Pow")
"""Tuple of names of ONNX operators on one map and constants, either one number for all channels or one per channel."""


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
    """Append an ONNX node to the elementwise function that the current dequantised map's state describes.

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
        raise build.refusal(node, "must take values of one shape, not of several")
    if build.map.type.bits > MAX_BITS:
        raise build.refusal(
            node, f"its input must have at most {MAX_BITS} bits for a table of all values, not {build.map.type}"
        )
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
    """Return an `Applied`: an ONNX node as an expression, with constants or the given ``formulas`` as its operands."""
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
    """Return a node's `ConstantOperand`, which must be one number or one per channel of the map."""
    quantised = build.constants.quantised.get(name)
    if quantised is None:
        return ConstantOperand(_spread(build, node, build.constants.arrays[name]))
    if quantised.scale.size > 1:
        return ConstantOperand(_spread(build, node, quantised.real().astype(np.float32)))
    return ConstantOperand(_spread(build, node, quantised.values), (quantised.scale, quantised.zero))


def _spread(build: Builder, node: onnx.NodeProto, values: np.ndarray) -> np.ndarray:
    """Return a node's constant in shape ``()`` if one number, or ``(channels, 1, 1)`` if one per channel.

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


_FUNCTIONS = {
    **dict.fromkeys((*with_effect(Effect.FUNCTION), *_WITH_CONSTANTS), apply),
    "Max": add_or_apply,
    "Min": add_or_apply,
    "Mul": _mul,
    "Sub": add_or_apply,
    "Sum": add_or_apply,
}
"""Dictionary of functions that import ONNX operators which are functions of one value, by the operator's name."""


AFFINE = {"Add", "BatchNormalization", "Div", "Mul", "Sub"}
"""Set of names of ONNX operators whose arithmetic with constants can be folded into the next convolution."""
_CLOSE = 2.0**-15
"""Maximum accepted rounding error of a convolution's bias, as a fraction of one output step."""
_SATURATING = np.float32(32)
"""Requantisation factor (float32) so large that a sum half a step past a threshold saturates 4 bits."""
_MAX_DISTANCE = 14
"""Maximum distance in output steps of the two values that a Where chooses from, so that both fit 4 bits."""
_MAX_FRACTION = 20
"""Maximum number of fraction bits that `settled` gives to a convolution's bias; products have none."""


def affine_of(build: Builder, node: onnx.NodeProto, channels: int) -> Affine:
    """Return the `Affine` (gain and offset per channel) that a node with constants applies, or raise ModelError.

    The node must have the map as one input, and constants as all others; otherwise ModelError is raised.
    """
    if node.op_type == "BatchNormalization":
        return _normalisation(build, node, channels)
    constant_indices = [constant_index for constant_index, name in enumerate(node.input) if build.constants.holds(name)]
    if len(node.input) != 2 or len(constant_indices) != 1:
        raise build.refusal(node, "must take a feature map and a constant")
    (constant_index,) = constant_indices
    values = build.constants.by_channel(node, build.constants.real(node, constant_index, "constant"), build.view)
    one, none = np.ones(channels), np.zeros(channels)
    if node.op_type == "Mul":
        affine = Affine(values, none)
    elif node.op_type == "Add":
        affine = Affine(one, values)
    elif node.op_type == "Sub":
        affine = Affine(-one, values) if constant_index == 0 else Affine(one, -values)
    elif constant_index == 0:
        raise build.refusal(node, "divides a constant by a feature map; only a feature map by a constant is supported")
    else:
        affine = Affine(1 / values, none)
    if not np.isfinite([affine.gain, affine.offset]).all():
        raise build.refusal(node, "its constant must hold finite numbers, and none of 0 to divide by")
    return affine


def _normalisation(build: Builder, node: onnx.NodeProto, channels: int) -> Affine:
    """Return the `Affine` function (gain and offset per channel) of a BatchNormalization with constant parameters."""
    for name, usual in (("training_mode", 0), ("spatial", 1)):
        if attribute(node, name, usual) != usual:
            raise build.refusal(node, f"{name} must be {usual}, as for inference")
    names = ("scale", "bias", "mean", "variance")
    parameters = [build.constants.real(node, index, name) for index, name in enumerate(names, start=1)]
    for name, values in zip(names, parameters, strict=True):
        if values.shape != (channels,):
            raise build.refusal(node, f"{name} must have the shape ({channels},), not {values.shape}")
    along = (channels, *[1] * (build.view.rank - 2))  # the channels must be the first dimension after the batch
    scale, bias, mean, variance = (
        build.constants.by_channel(node, values.reshape(along), build.view) for values in parameters
    )
    gain = scale / np.sqrt(variance + float(attribute(node, "epsilon", 1e-5)))
    offset = bias - mean * gain
    if not np.isfinite([gain, offset]).all():
        raise build.refusal(node, "must have a positive variance, and finite numbers")
    return Affine(gain, offset)


def _apply_arithmetic(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Mul, Div or Sub: fold it into a convolution before it, or import it as a function or join.

    After sums, an operator with a constant is folded into the sums. Otherwise it is a function of one value, or joins
    maps.
    """
    state = build.state
    if isinstance(state, AccumulatorState) and any(build.constants.holds(name) for name in node.input):
        apply_to_sums(build, node, state)
    else:
        _FUNCTIONS[node.op_type](build, node)


def _normalise(build: Builder, node: onnx.NodeProto) -> None:
    """Import a BatchNormalization: fold it into the preceding convolution's sums, or apply it to dequantised values."""
    state = build.state
    if isinstance(state, AccumulatorState):
        apply_to_sums(build, node, state)
    elif isinstance(state, Reals) and build.map.type.bits > MAX_BITS:
        affine_of(build, node, build.map.channels)  # raises an error if the node has no constant parameters
        state.steps.append(node)
        state.for_sums = True
    else:
        if isinstance(state, Reals):
            affine_of(build, node, build.map.channels)
        apply(build, node)


def apply_to_sums(build: Builder, node: onnx.NodeProto, state: AccumulatorState) -> None:
    """Fold a node's arithmetic with constants into the not yet quantised sums of the convolution before it."""
    affine = affine_of(build, node, build.view.sizes[0])
    follow_sums(build, node, state)
    state.rounded = False
    affine = Affine(state.of_channels(affine.gain), state.of_channels(affine.offset))
    if state.chosen is not None:
        raise build.refusal(node, "can't follow Less and Where without a QuantizeLinear between")
    if state.bounded and not affine.uniform:
        raise build.refusal(node, "can't follow Relu or Clip without a QuantizeLinear between, but by one number")
    if state.pools and not (affine.gain > 0).all():
        raise build.refusal(node, "reverses the order of values that a MaxPool compared; quantise them before it")
    if state.bounded:
        gain, offset = float(affine.gain[0]), float(affine.offset[0])
        # A bound can be infinite, and 0 * infinity is not a number.
        ends = [end * gain + offset if gain else offset for end in (state.low, state.high)]
        state.low, state.high = min(ends), max(ends)
    state.affine = affine if state.affine is None else affine.after(state.affine)


# Before a convolution.


def step_of(build: Builder, node: onnx.NodeProto) -> Affine | None:
    """Return a node's `Affine` (gain, offset per channel) on the current map; ``None`` if it is another function."""
    if node.op_type not in AFFINE or not any(build.constants.holds(name) for name in node.input):
        return None
    try:
        return affine_of(build, node, build.map.channels)
    except ModelError:  # not affine; the node's own import refuses the node, or imports it as another function
        return None


def note_step(build: Builder, steps: int, step: Affine | None) -> None:
    """Compose a node's function (gain and offset per channel) with those since the DequantizeLinear, in the state.

    Parameters
    ----------
    steps : int
        Number of operators between the DequantizeLinear and the node.
    step : Affine or None
        Affine function of the node; ``None`` if it has none. The composition is then not affine, either.
    """
    state = build.state
    if not isinstance(state, Reals) or len(state.steps) == steps:
        return
    if step is None or (steps and state.arithmetic is None):
        state.arithmetic = None
    else:
        state.arithmetic = step if state.arithmetic is None else step.after(state.arithmetic)


def fold_before(build: Builder, sums: AccumulatorState, operand: Reals, first: Affine) -> None:
    """Fold arithmetic before a convolution, ``first`` (gain and offset per channel), into the convolution's sums.

    ``operand``: dequantised map before the arithmetic. Raises ModelError if no integer weights can include ``first``.
    """
    channels, groups, node = len(first.gain), sums.groups, sums.node
    gains = first.gain.reshape(groups, channels // groups)
    if (gains != gains[:, :1]).any():
        raise build.refusal(
            node,
            "must take a quantised input: its channels are multiplied by different factors, which can't be folded into "
            "integer weights; quantise the product",
        )
    if first.offset.any() and any(sums.window.padding):
        raise build.refusal(
            node, "must take a quantised input: the constant added to its values is not added to its padding of zeros"
        )
    outputs = len(sums.weights) // groups
    offsets = np.repeat(first.offset.reshape(groups, 1, -1), outputs, axis=1).reshape(len(sums.weights), -1)
    taps = sums.weights.sum(axis=(2, 3))
    alpha = np.float64(sums.x_scale) / np.float64(operand.scale)  # a factor of the node's own
    offset = (taps * offsets).sum(axis=1) * sums.w_scale.astype(np.float64) * alpha
    # The factor applies only to the products, not to the bias.
    gain = np.repeat(gains[:, 0], outputs)
    unit = sums.unit
    sums.affine = Affine(gain, offset + sums.bias * unit + sums.residue)
    sums.bias, sums.residue, sums.rounded = np.zeros_like(sums.bias), np.zeros(len(sums.weights)), False


def first_reals(sums: AccumulatorState) -> Affine:
    """Return the `Affine` (gain and offset per output channel) from a convolution's accumulators to real numbers."""
    steps = (sums.x_scale * sums.w_scale).astype(np.float64)  # float32 numbers: the units of the bias
    own = Affine(sums.unit, sums.bias * steps + sums.residue)
    return own if sums.affine is None else sums.affine.after(own)


def refuse_pool_of_arithmetic(build: Builder, node: onnx.NodeProto) -> None:
    """Refuse a MaxPool after arithmetic that only the next convolution could include (``Reals.for_sums``)."""
    state = build.state
    if isinstance(state, Reals) and state.for_sums:
        raise build.refusal(node, f"can't follow {title(state.steps[-1])!r} without a QuantizeLinear between")


# When the scale of the output is known.


def settled(build: Builder, sums: AccumulatorState, scale: np.float32, close: float = _CLOSE) -> AccumulatorState:
    """Return the `AccumulatorState` of a convolution with folded arithmetic put into integer weights, bias and factor.

    The bias gets as many fraction bits as the output's step asks for. Sums without folded arithmetic are returned as
    they are, if ONNX Runtime rounds their bias, too.

    Parameters
    ----------
    scale : float32
        Scale of the output that the sums are quantised to.
    close : float
        Largest tolerated rounding error of the bias, in steps of the output.
    """
    if sums.chosen is not None:
        return _compared(build, sums, scale)
    residue = sums.rounding if sums.rounded else sums.residue
    if sums.affine is None and not residue.any():
        return sums
    outputs = len(sums.weights)
    affine = sums.affine or Affine(np.ones(outputs), np.zeros(outputs))
    unit = sums.unit
    sign = np.sign(affine.gain).astype(np.int64)
    gain = np.where(affine.gain == 0, 1.0, np.abs(affine.gain))
    step = gain * unit
    with np.errstate(all="ignore"):
        bias = sign * (sums.bias + residue / unit) + affine.offset / step
        factor = (step / np.float64(scale)).astype(np.float32)
    if not (np.isfinite(bias).all() and np.isfinite(factor).all() and (np.abs(bias) <= MAX_BIAS).all()):
        raise build.refusal(sums.node, "bias and factors, with what follows folded in, must be finite and fit 48 bits")
    fraction = 0
    while fraction < _MAX_FRACTION:
        steps = np.rint(np.ldexp(bias, fraction))
        if (np.abs(np.ldexp(steps, -fraction) - bias) * factor <= close).all():
            break
        if np.abs(np.ldexp(steps, 1)).max() > MAX_BIAS:
            break
        fraction += 1
    return replace(
        sums,
        weights=sums.weights * sign.reshape(-1, 1, 1, 1),
        bias=np.rint(np.ldexp(bias, fraction)).astype(np.int64),
        residue=np.zeros(outputs),
        affine=None,
        factor=factor,
        fraction=fraction,
        signs=sign,
    )


def _compared(build: Builder, sums: AccumulatorState, scale: np.float32) -> AccumulatorState:
    """Return an `AccumulatorState`: sums to be compared with a threshold, signed so that outputs rise.

    The factor makes any two neighbouring sums saturate to different outputs. The bias represents the threshold and is
    found when the bounds of the outputs are known (`hwgen.network.onnx.levels`).
    """
    outputs, (below, above) = len(sums.weights), sums.chosen or (0.0, 0.0)
    if abs(above - below) > _MAX_DISTANCE * scale:
        raise build.refusal(sums.node, f"is followed by a choice between outputs more than {_MAX_DISTANCE} steps apart")
    gain = np.ones(outputs) if sums.affine is None else sums.affine.gain
    sign = np.sign(gain * (above - below)).astype(np.int64)
    return replace(
        sums,
        weights=sums.weights * sign.reshape(-1, 1, 1, 1),
        bias=np.zeros(outputs, np.int64),
        residue=np.zeros(outputs),
        affine=None,
        factor=np.full(outputs, _SATURATING),
        signs=sign,
    )


def _less(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Less that compares a feature map with a constant."""
    state = build.state
    if not isinstance(state, AccumulatorState) or state.first is None:
        apply(build, node)
        return
    if not build.constants.holds(node.input[1]) or state.chosen is not None:
        raise build.refusal(node, "must compare a feature map with a constant, its second input")
    follow_sums(build, node, state)


def _where(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Where that chooses between two constants according to a Less of a feature map."""
    state = build.state
    if not isinstance(state, AccumulatorState):
        apply(build, node)
        return
    if not all(build.constants.holds(name) for name in node.input[1:]):
        raise build.refusal(node, "must choose between two constants")
    reals = [build.constants.real(node, index, "value") for index in (1, 2)]
    if any(values.size > 1 for values in reals):
        raise build.refusal(node, "must choose between two numbers, not between numbers by channel")
    follow_sums(build, node, state)
    low, high = (float(values.item()) for values in reals)
    state.chosen = low, high
    state.low, state.high = min(low, high), max(low, high)


OPERATORS = {
    **_FUNCTIONS,
    "BatchNormalization": _normalise,
    "Div": _apply_arithmetic,
    "Less": _less,
    "Mul": _apply_arithmetic,
    "Sub": _apply_arithmetic,
    "Where": _where,
}
"""Dictionary by ONNX operator of functions that import arithmetic with constants, or comparisons with one."""
