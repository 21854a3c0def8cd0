"""Translation of QONNX models, as Brevitas writes them: ``Quant`` nodes are replaced by nodes of ONNX.

The QONNX package writes such nodes, too. A Quant computes floats, ``scale * (clip(round(x / scale + zeropt)) -
zeropt)``, of any number of bits. The Quant of a feature map becomes QuantizeLinear, Clip and DequantizeLinear. The
Quant of a constant becomes the integers and a DequantizeLinear. After that the model is imported as any other.

A BipolarQuant computes ``scale`` where its input is 0 or more, else ``-scale``. On a feature map it becomes Less and
Where, which choose between two floats, and the three nodes of a Quant. If all readers are convolutions without padding
or matrix products, the map has one bit: 0 and ``2 * scale`` are quantised, and a Sub of ``scale`` follows.
Otherwise it has two bits, for -1 and 1, and a padding of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from hwgen.network.maps import IntegerType
from hwgen.network.onnx.constants import TYPES
from hwgen.network.onnx.file import attribute, copied, opset, text, title
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.rewrite import Made, Rewriter, rule
from hwgen.network.onnx.truncation import Truncation, offset_to_even

DOMAINS = {"qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"}
"""Set of domains of the operators that QONNX adds to ONNX."""
_QUANT = {"IntQuant", "Quant"}
_BIPOLAR = "BipolarQuant"
_ELEMENTWISE = {*_QUANT, _BIPOLAR, "FloatQuant", "Trunc"}
"""Set of names of QONNX operators whose outputs are floats in the shape of their first input."""
_OF_CONSTANTS = {*_QUANT, _BIPOLAR}
"""Set of names of the QONNX operators that can quantise constants as well as feature maps."""
_PASSING = with_effect(Effect.RENAMING) | {"Identity", "MaxPool"}
"""Set of names of ONNX operators that only pass on values of their input, so that a map of -1 and 1 stays one."""
_PRODUCTS = {"Conv", "Gemm", "MatMul"}
"""Set of names of ONNX operators whose bias can absorb an offset of their input, if they don't pad it."""
_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.fix,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + np.float32(0.5)),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - np.float32(0.5)),
}
"""Dictionary of rounding functions of QONNX's Quant, by the attribute ``rounding_mode``."""
_TO_EVEN = ("ROUND", "HALF_EVEN")
"""Tuple of rounding modes of QONNX's Quant that equal the rounding of QuantizeLinear."""
_OTHERWISE = "or quantise the average or the sum before it again, by a Quant with ROUND"
"""Advice at the end of messages about a Trunc that can't be built."""
_MAX_SUM = 1 << 20
"""Maximum sum before a Trunc: an average pool's float32 additions are still accurate to less than a half."""
_MAX_DISTANCE = 1 / 8
"""Maximum distance from an integer, in steps, of the real numbers that a Trunc reads."""
_MIN_PART = 3 * 2.0**-15
"""Smallest part of a step that rounding modes other than ROUND distinguish; sums' biases are known to 2**-15 steps."""
_MAX_EXACT = 8
"""Maximum width, in bits, of a feature map that is rounded by a mode other than ROUND."""
_MAX_BITS = 16
"""Maximum width, in bits, of a feature map in a QONNX model; constants can have 32."""


def is_qonnx(model: onnx.ModelProto) -> bool:
    """Return whether an ONNX model contains QONNX nodes, such as Quant."""
    return any(node.domain in DOMAINS for node in model.graph.node)


def stand_in(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a QONNX model with its QONNX nodes replaced by Identity, for checks that know only ONNX's operators."""
    result = copied(model)
    for node in result.graph.node:
        if node.domain in DOMAINS and node.op_type in _ELEMENTWISE and node.input and node.output:
            passed, name = node.input[0], node.name
            output = node.output[0]
            node.CopyFrom(helper.make_node("Identity", [passed], [output], name=name))
    return result


def rewritten(graph: GraphIndex, where: str) -> GraphIndex:
    """Replace the QONNX nodes that an output depends on by ONNX nodes, and return the new model's index (`GraphIndex`).

    A model without such nodes is returned unchanged. Constants must be initialisers, or outputs of Constant and
    Identity nodes (see `hwgen.network.onnx.fold`). ``where`` starts error messages.

    Raises
    ------
    ModelError
        If a node can't be computed in integers; the message names the node.
    """
    if not is_qonnx(graph.model):
        return graph
    result = Rewriter(graph.with_nodes(graph.needed), where).apply(RULES)
    imports = result.model.opset_import
    kept = [entry for entry in imports if entry.domain not in DOMAINS]
    if not any(entry.domain == "com.microsoft" for entry in kept):
        kept.append(helper.make_opsetid("com.microsoft", 1))
    del imports[:]
    imports.extend(kept)
    return result


class _Integers(NamedTuple):
    """Constant after a Quant or BipolarQuant: integers (as float64), scale, zero point and integer type."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    type: IntegerType


def _parameter(at: Rewriter, node: onnx.NodeProto, index: int, what: str) -> np.ndarray:
    """Return the array of a node's input ``index``; refuse a node whose input is not a constant of finite numbers."""
    value = at.graph.constant(node.input[index]) if len(node.input) > index else None
    if value is None or not value.size:
        raise at.refusal(node, f"{what} must be a constant of the model, with a value")
    if value.dtype.kind not in "fiub" or not np.isfinite(value.astype(np.float64)).all():
        raise at.refusal(node, f"{what} must be finite numbers, not {value.dtype} {value.reshape(-1)[0]}")
    return value


def _scale(at: Rewriter, node: onnx.NodeProto) -> np.ndarray:
    """Return the scale of a Quant or BipolarQuant, or refuse it unless it is a positive float32 constant."""
    scale = _parameter(at, node, 1, "scale")
    if scale.dtype.kind != "f" or not (scale.astype(np.float32) == scale).all():
        raise at.refusal(node, f"scale must be float32 numbers, not {scale.dtype} {scale.reshape(-1)[0]!r}")
    if not (scale > 0).all():
        raise at.refusal(node, f"scale must be positive, not {scale.min()}")
    return scale.astype(np.float32)


def _mode(at: Rewriter, node: onnx.NodeProto, default: str = "ROUND") -> str:
    """Return the rounding mode of a Quant or Trunc node, ``default`` if it names none; refuse unknown modes."""
    name = text(node, "rounding_mode", default).upper()
    if name not in _ROUNDING:
        raise at.refusal(node, f"rounding_mode must be one of {', '.join(_ROUNDING)}, not {name[:40]!r}")
    return name


class _Label(NamedTuple):
    """Parameters of a Quant: scale, zero point, rounding mode, and the type and the range of its integers."""

    scale: np.ndarray
    zero: np.ndarray
    mode: str
    type: IntegerType
    bounds: tuple[int, int]


def _label(at: Rewriter, node: onnx.NodeProto) -> _Label:
    """Return the `_Label` of a Quant node (scale, zero point, rounding, type); refuse the node if it is invalid."""
    scale, zero = _scale(at, node), _parameter(at, node, 2, "zero point").astype(np.float64)
    bits = _parameter(at, node, 3, "bitwidth").astype(np.float64)
    if not (zero == np.rint(zero)).all() or np.abs(zero).max() >= 1 << 31:
        raise at.refusal(node, f"zero point must be an integer of 32 bits, not {zero.reshape(-1)[0]}")
    if not (bits == bits.reshape(-1)[0]).all() or bits.reshape(-1)[0] not in range(1, 33):
        raise at.refusal(node, f"bitwidth must be one integer, 1 to 32, not {np.unique(bits)[:4].tolist()}")
    width, mode, signed = int(bits.reshape(-1)[0]), _mode(at, node), bool(attribute(node, "signed", 1))
    bounds = _limits(width, signed, bool(attribute(node, "narrow", 0)))
    return _Label(scale, zero, mode, IntegerType(bits=width, signed=signed), bounds)


def _integers(at: Rewriter, node: onnx.NodeProto) -> _Integers | None:
    """Return the `_Integers` of a Quant or BipolarQuant of a constant; ``None`` if it quantises a feature map."""
    values = at.graph.constant(node.input[0])
    if node.op_type == _BIPOLAR:
        scale = _scale(at, node)
        if values is None:
            return None
        _in_steps(at, node, values, scale)
        integers = np.where(values >= 0, 1.0, -1.0)
        return _Integers(integers, scale, np.zeros(()), IntegerType(bits=2, signed=True))
    label = _label(at, node)
    if values is None:
        return None
    with np.errstate(all="ignore"):
        steps = _in_steps(at, node, values, label.scale) + label.zero.astype(np.float32)
    if label.type == IntegerType(bits=1, signed=True):
        integers = np.where(steps >= 0, 1, -1).astype(np.float64)
    else:
        low, high = map(np.float32, label.bounds)
        integers = _ROUNDING[label.mode](np.clip(steps, low, high)).astype(np.float64)
    return _Integers(integers, label.scale, label.zero, label.type)


def _in_steps(at: Rewriter, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return a Quant's constant input divided by the scale, float32; refuse one that is not finite."""
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise at.refusal(node, "its constant must hold finite numbers")
    try:
        steps = values.astype(np.float32) / scale
    except ValueError:
        steps = None
    if steps is None or steps.shape != values.shape:
        raise at.refusal(node, f"scale of shape {scale.shape} does not fit a constant of shape {values.shape}")
    return steps


@rule("other QONNX operators", "refuse them", (), DOMAINS)
def _refuse_other(at: Rewriter, node: onnx.NodeProto) -> Made:
    if node.op_type in (*_QUANT, _BIPOLAR, "Trunc"):
        return None
    raise at.refusal(node, "is not supported, of QONNX Quant, BipolarQuant and Trunc are")


@rule("Quant of a constant", "store its integers, and dequantise them", _OF_CONSTANTS, DOMAINS)
def _quant_of_constant(at: Rewriter, node: onnx.NodeProto) -> Made:
    constant = _integers(at, node)
    if constant is None:
        return None
    integers, scale, zero, integer_type = constant
    shape = np.broadcast_shapes(scale.shape, zero.shape)
    if len(shape) > integers.ndim or np.broadcast_shapes(shape, integers.shape) != integers.shape:
        raise at.refusal(node, f"zero point of shape {zero.shape} does not fit a constant of {integers.shape}")
    shape = (1,) * (integers.ndim - len(shape)) + shape
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    if len(axes) > 1:
        raise at.refusal(node, f"a constant must have one scale, or one along one axis, not {shape}")
    scales, zeros = (np.broadcast_to(label, shape).reshape(-1) for label in (scale, zero))
    if (zeros == zeros[0]).all() and (scales == scales[0]).all():
        axes, scales, zeros = [], scales[:1], zeros[:1]
    stored, label_shape = _stored(integer_type), (-1,) if axes else ()
    outside = (zeros < stored.minimum) | (zeros > stored.maximum)
    zero_points = [zeros.reshape(label_shape).astype(stored.dtype)]
    if stored.bits == 32 or outside.any():  # without a zero point
        integers = integers - zero
        if np.abs(integers).max() >= 1 << 31:
            raise at.refusal(node, "its integers must fit 32 bits")
        stored, zero_points = IntegerType(bits=32, signed=True), []
    arrays = integers.astype(stored.dtype), scales.reshape(label_shape), *zero_points
    names = [_keep(at, node, what, array) for what, array in zip(("integers", "scale", "zero"), arrays, strict=False)]
    made = _quantiser(at, node, "DequantizeLinear", names, node.output[0], stored)
    if axes:
        made.attribute.append(helper.make_attribute("axis", axes[0]))
    return [made]


@rule("Quant of a map", "quantise, clip and dequantise", _QUANT, DOMAINS)
def _quant_of_map(at: Rewriter, node: onnx.NodeProto) -> Made:
    label, made = _label(at, node), list[onnx.NodeProto]()
    width, negative = label.type.bits, label.bounds[0] < 0
    if width > _MAX_BITS or (width == 1 and label.type.signed):
        raise at.refusal(node, f"feature maps must have 1 to {_MAX_BITS} bits (signed 2), not {width}")
    source = node.input[0]
    if label.mode not in _TO_EVEN:
        # A part of a step is added, so that rounding to even rounds as the mode does. Reals that are not multiples of
        # `_MIN_PART` steps can be rounded otherwise, if they are as near to what the mode rounds in the other way.
        offset = offset_to_even(label.mode, _MIN_PART, negative=negative)
        if offset is None or width > _MAX_EXACT:
            modes = "ROUND, FLOOR and CEIL are" if width <= _MAX_EXACT else f"of more than {_MAX_EXACT} bits ROUND is"
            sign = "signed " if negative else ""
            raise at.refusal(node, f"rounding_mode {label.mode} of a {sign}feature map is not supported; {modes}")
        inputs = [source, _keep(at, node, "offset", np.float32(offset) * label.scale)]
        source = at.unused(f"{node.output[0]}_moved")
        made.append(helper.make_node("Add", inputs, [source], name=f"{title(node)}_Add"))
    return [*made, *_clipped(at, node, source, node.output[0], label)]


@rule(
    "BipolarQuant of a map",
    "choose one of two floats, and quantise it to 1 or 2 bits",
    {_BIPOLAR},
    DOMAINS,
)
def _bipolar_of_map(at: Rewriter, node: onnx.NodeProto) -> Made:
    scale = _scale(at, node)
    if scale.size != 1:
        raise at.refusal(node, f"a feature map must have one scale, not {scale.size} (per channel)")
    if node.input[0] in at.graph.inputs:
        raise at.refusal(node, "takes floats of the model's input; a Quant of it must come first")
    one_bit = _readers_take_offsets(at.graph, node.output[0])
    step = np.float32(scale.item() * (2 if one_bit else 1))
    low, high = (np.float32(0), step) if one_bit else (-step, step)
    names = [_keep(at, node, what, np.array(value)) for what, value in (("floor", low), ("ceiling", high))]
    zero = _keep(at, node, "origin", np.array(0, np.float32))
    is_less, chosen = (at.unused(f"{node.output[0]}_{what}") for what in ("is_less", "chosen"))
    made = [
        helper.make_node("Less", [node.input[0], zero], [is_less], name=f"{title(node)}_Less"),
        helper.make_node("Where", [is_less, *names], [chosen], name=f"{title(node)}_Where"),
    ]
    bounds = (0, 1) if one_bit else (-1, 1)
    label = _Label(
        np.array(step), np.zeros(()), "ROUND", IntegerType(bits=2, signed=not one_bit).narrowed(*bounds), bounds
    )
    if not one_bit:
        return [*made, *_clipped(at, node, chosen, node.output[0], label)]
    doubled = at.unused(f"{node.output[0]}_doubled")
    made += _clipped(at, node, chosen, doubled, label)
    half = _keep(at, node, "half", scale.reshape(()))
    return [*made, helper.make_node("Sub", [doubled, half], [node.output[0]], name=f"{title(node)}_Sub")]


@rule("Trunc", "sum the windows before it by a convolution, and quantise the sums", {"Trunc"}, DOMAINS)
def _trunc(at: Rewriter, node: onnx.NodeProto) -> Made:
    truncation = _truncation(at, node)
    source, factor, window = _summed(at, node)
    before = at.graph.producers.get(source)
    if before is not None and before.op_type == "Trunc":
        return None  # until it is quantised
    quantised = _quantised(at.graph, before)
    if quantised is None:
        raise at.refusal(
            node,
            "must follow a Quant without zero point, or an average of one that is multiplied by the number of its "
            f"pixels; {_OTHERWISE}",
        )
    scale, low, high = quantised
    shape = at.graph.shapes.for_batch(1).of(source)
    if shape is None or len(shape) != 4 or 0 in shape[1:]:
        raise at.refusal(node, f"must take a map (N, C, H, W) of known size; {_OTHERWISE}")
    kernel = tuple(window.pop("kernel_shape", shape[2:] if window.pop("whole", False) else (1, 1)))
    count = int(np.prod(kernel))
    ends = np.array([min(count * low, 0), max(count * high, 0)], np.float64)
    if (largest := int(np.abs(ends).max())) > _MAX_SUM:
        raise at.refusal(node, f"sums must be at most {_MAX_SUM:,}, not {largest:,}: float32 would round them")
    # The reals before the Trunc, in steps of its scale, must be the integers that are summed.
    step = scale * factor / count
    if abs(step / float(truncation.scale) - 1) * np.abs(ends).max() > _MAX_DISTANCE:
        raise at.refusal(
            node,
            f"scale must be {step:g}, the scale of its input's integers, not {truncation.scale:g}; {_OTHERWISE}",
        )
    label, offset = _truncated(at, node, truncation, ends)
    weights, ones = _window_weights(at, node, (shape[1], 1, *kernel), scale, truncation)
    bias = offset * float(truncation.scale) * float(truncation.weight)
    inputs = [source, weights, _keep(at, node, "bias", np.full(shape[1], bias, np.float32))]
    summed = at.unused(f"{node.output[0]}_summed")
    conv = helper.make_node("Conv", inputs, [summed], name=f"{title(node)}_Conv", group=shape[1], **window)
    return [ones, conv, *_clipped(at, node, summed, node.output[0], label)]


def _truncated(at: Rewriter, node: onnx.NodeProto, truncation: Truncation, ends: np.ndarray) -> tuple[_Label, float]:
    """Return a pair: the `_Label` (quantiser parameters) that replaces a Trunc, and its sums' offset in output steps.

    ``ends``: lowest and highest sum.
    """
    offset = truncation.offset(negative=ends[0] < 0)
    if offset is None:
        raise at.refusal(
            node, f"rounding_mode {truncation.mode} of numbers below 0 is not supported; FLOOR, CEIL and ROUND are"
        )
    low, high = (int(end) for end in truncation.outputs(ends, _ROUNDING[truncation.mode]))
    stored = IntegerType(bits=2, signed=low < 0).narrowed(low, high)
    if stored.bits > _MAX_BITS:
        raise at.refusal(node, f"gives {stored}; feature maps must have at most {_MAX_BITS} bits")
    return _Label(np.array(truncation.output_scale), np.zeros(()), "ROUND", stored, (low, high)), offset


def _window_weights(
    at: Rewriter, node: onnx.NodeProto, shape: tuple[int, ...], scale: float, truncation: Truncation
) -> tuple[str, onnx.NodeProto]:
    """Return a pair: name and DequantizeLinear of the weights of a convolution that sums a Trunc's windows."""
    names = [
        _keep(at, node, "ones", np.ones(shape, np.int8)),
        _keep(at, node, "weight", np.array(truncation.weight * (truncation.scale / np.float32(scale)))),
    ]
    output = at.unused(f"{node.output[0]}_weights")
    return output, _quantiser(at, node, "DequantizeLinear", names, output, IntegerType(bits=8, signed=True))


def _quantised(graph: GraphIndex, node: onnx.NodeProto | None) -> tuple[float, int, int] | None:
    """Return a map's scale, lowest and highest integer; ``None`` unless ``node`` dequantises it with zero point 0."""
    if node is None or node.op_type != "DequantizeLinear" or len(node.input) < 3:
        return None
    before, scale, zero = graph.producers.get(node.input[0]), *map(graph.constant, node.input[1:])
    if before is None or scale is None or zero is None or scale.size > 1 or zero.any() or zero.dtype not in TYPES:
        return None
    if before.op_type == "Clip":
        low, high = (graph.constant(name) for name in before.input[1:])
        return None if low is None or high is None else (float(scale.item()), int(low.item()), int(high.item()))
    return float(scale.item()), TYPES[zero.dtype].minimum, TYPES[zero.dtype].maximum


def _summed(at: Rewriter, node: onnx.NodeProto) -> tuple[str, float, dict[str, Any]]:
    """Return, as a triple, the tensor that is summed before a Trunc, the sums' factor, and the window's attributes.

    The window is empty for a map that is not summed. It has a convolution's attributes; ``whole`` stands for all
    pixels.
    """
    tensor, factor = node.input[0], 1.0
    before = at.graph.producers.get(tensor)
    if before is not None and before.op_type == "Mul":
        constants = {name: at.graph.constant(name) for name in before.input}
        known = {name: value.item() for name, value in constants.items() if value is not None and value.size == 1}
        if len(known) == 1:
            ((name, factor),) = known.items()
            (tensor,) = (other for other in before.input if other != name)
            before = at.graph.producers.get(tensor)
    if before is None or before.op_type not in ("AveragePool", "GlobalAveragePool"):
        return tensor, factor, {}
    if before.op_type == "GlobalAveragePool":
        return before.input[0], factor, {"whole": True}
    window = {entry.name: helper.get_attribute_value(entry) for entry in before.attribute}
    counted = window.pop("count_include_pad", 0) or not (any(window.get("pads", ())) or "auto_pad" in window)
    if not counted or window.pop("ceil_mode", 0):
        raise at.refusal(before, f"before a Trunc must count padding, and have ceil_mode 0; {_OTHERWISE}")
    return before.input[0], factor, window


def _truncation(at: Rewriter, node: onnx.NodeProto) -> Truncation:
    """Return a `Truncation`: parameters of a Trunc node, of version 1 with five inputs, or of version 2 with six."""
    scale, zero = _scale(at, node), _parameter(at, node, 2, "zero point")
    first, mode = _parameter(at, node, 3, "input bitwidth"), _mode(at, node, "FLOOR")
    is_first = len(node.input) == 5
    last = _parameter(at, node, 4 if is_first else 5, "output bitwidth")
    outputs = scale if is_first else _parameter(at, node, 4, "output scale").astype(np.float32)
    if scale.size != 1 or outputs.size != 1 or zero.any() or not outputs.item() > 0:
        raise at.refusal(node, f"must have one scale, and no zero point; {_OTHERWISE}")
    widths = {int(width) for width in (*first.ravel(), *last.ravel())}
    if not widths <= {*range(1, 33)} or first.size != 1 or last.size != 1:
        raise at.refusal(node, f"bitwidths must be two integers, 1 to 32, not {sorted(widths)}")
    if is_first:
        shift, limits = int(first.item()) - int(last.item()), None
    else:
        shift = round(float(np.log2(outputs.item() / scale.item())))
        limits = _limits(int(last.item()), bool(attribute(node, "signed", 1)), bool(attribute(node, "narrow", 0)))
    result = Truncation(np.float32(scale.item()), np.float32(outputs.item()), shift, mode, limits)
    if not result.fits:
        raise at.refusal(node, f"must drop 0 to 16 bits, not {shift}")
    return result


def _readers_take_offsets(graph: GraphIndex, tensor: str) -> bool:
    """Return whether all layers that read a feature map can absorb an offset of its values in their bias.

    Operators that pass values unchanged can be in between. A convolution with padding can't absorb it, because no
    offset is added to the zeros of the padding. At the model's end the host adds the offset, but it runs no max pool.
    """
    waiting = [(tensor, False)]
    while waiting:
        name, pooled = waiting.pop()
        if pooled and name in graph.outputs:
            return False
        for reader in graph.readers(name):
            if reader.op_type in _PASSING:
                waiting += [(output, pooled or reader.op_type == "MaxPool") for output in reader.output]
            elif reader.op_type not in _PRODUCTS or _pads(reader):
                return False
    return True


# Nodes that replace a node of QONNX.


def _clipped(at: Rewriter, node: onnx.NodeProto, source: str, output: str, label: _Label) -> list[onnx.NodeProto]:
    """Return, as a list, QuantizeLinear, Clip and DequantizeLinear nodes that replace the Quant of a feature map.

    ``source`` and ``output``: tensors that the first node reads and that the last one computes.
    """
    scale, zero = label.scale, label.zero
    if scale.size != 1 or zero.size != 1:
        raise at.refusal(node, f"a feature map must have one scale, not {max(scale.size, zero.size)} (per channel)")
    point, stored = int(zero.item()), _stored(label.type)
    if not stored.minimum <= point <= stored.maximum:
        raise at.refusal(node, f"zero point must be {stored}, not {point}")
    inputs = [
        at.keep(f"{output}_scale", scale.reshape(())),
        at.keep(f"{output}_zero", np.array(point, stored.dtype)),
    ]
    tensor, made = at.unused(f"{output}_integers"), list[onnx.NodeProto]()
    made.append(_quantiser(at, node, "QuantizeLinear", [source, *inputs], tensor, stored))
    if label.bounds != (stored.minimum, stored.maximum):
        ends = [
            at.keep(f"{output}_{what}", np.array(end, stored.dtype))
            for what, end in zip(("min", "max"), label.bounds, strict=True)
        ]
        clipped = at.unused(f"{output}_clipped")
        made.append(helper.make_node("Clip", [tensor, *ends], [clipped], name=f"{title(node)}_clip"))
        tensor = clipped
    return [*made, _quantiser(at, node, "DequantizeLinear", [tensor, *inputs], output, stored)]


def _quantiser(
    at: Rewriter, node: onnx.NodeProto, operator: str, inputs: list[str], output: str, integer_type: IntegerType
) -> onnx.NodeProto:
    """Return a new QuantizeLinear or DequantizeLinear node, named after ``node``, in a domain that supports its type.

    The domain is com.microsoft if the model's operator set has no such node.
    """
    domain = "" if opset(at.graph.model) >= (21 if integer_type.bits == 16 else 13) else "com.microsoft"
    return helper.make_node(operator, inputs, [output], name=f"{title(node)}_{operator}", domain=domain)


def _keep(at: Rewriter, node: onnx.NodeProto, what: str, array: np.ndarray) -> str:
    """Add an initialiser for the nodes that replace a QONNX node, and return its name."""
    return at.keep(f"{node.output[0]}_{what}", array)


def _limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Return a pair: the lowest and the highest integer that a Quant node clips to."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _stored(integer_type: IntegerType) -> IntegerType:
    """Return the ONNX `IntegerType` that stores integers of a QONNX type."""
    if integer_type.bits > 16:
        return IntegerType(bits=32, signed=True)
    return IntegerType(bits=8 if integer_type.bits <= 8 else 16, signed=integer_type.signed)


def _pads(node: onnx.NodeProto) -> bool:
    """Return whether a convolution node pads its input."""
    mode = text(node, "auto_pad", "NOTSET").upper()
    return any(attribute(node, "pads", ())) or mode.startswith("SAME")


RULES = (_refuse_other, _quant_of_constant, _bipolar_of_map, _quant_of_map, _trunc)
"""Tuple of rewrite rules that replace QONNX nodes by ONNX nodes, in the order of application."""
