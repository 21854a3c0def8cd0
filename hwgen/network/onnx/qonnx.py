"""Translation of QONNX models, as Brevitas writes them: ``Quant`` nodes are replaced by nodes of ONNX.

The QONNX package writes such nodes, too. A Quant computes floats, ``scale * (clip(round(x / scale + zeropt)) -
zeropt)``, of any number of bits. The Quant of a feature map becomes QuantizeLinear, Clip and DequantizeLinear. The
Quant of a constant becomes the integers, behind DequantizeLinear. After that the model is imported as any other.

A BipolarQuant computes ``scale`` where its input is 0 or more, else ``-scale``. On a feature map it becomes Less and
Where, which choose between two floats, and the three nodes of a Quant. Where all readers are convolutions without
padding or matrix products, the map has one bit: 0 and ``2 * scale`` are quantised, and a Sub of ``scale`` follows.
Otherwise it has two bits, for -1 and 1, and a padding of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.errors import ModelError
from hwgen.network.maps import IntegerType, signed_bits
from hwgen.network.onnx.file import UnusedNames, attribute, copied, opset, text, title
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.truncation import Truncation, offset_to_even

DOMAINS = {"qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"}
"""Domains of the operators in QONNX models."""
_QUANT = {"IntQuant", "Quant"}
_BIPOLAR = "BipolarQuant"
_ELEMENTWISE = {*_QUANT, _BIPOLAR, "FloatQuant", "Trunc"}
"""QONNX operators whose outputs are floats in the shape of their first input."""
_PASSING = with_effect(Effect.RENAMING) | {"Identity", "MaxPool"}
"""ONNX operators whose output values are values of their input: of a map of -1 and 1, again -1 and 1."""
_PRODUCTS = {"Conv", "Gemm", "MatMul"}
"""ONNX operators that can take up an offset of their input in their bias, if they don't pad it."""
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
"""Rounding functions of QONNX's Quant, by the attribute ``rounding_mode``."""
_TO_EVEN = ("ROUND", "HALF_EVEN")
"""Rounding modes of QONNX's Quant that equal the rounding of QuantizeLinear."""
_OTHERWISE = "or quantise the average or the sum in front of it anew, by a Quant with ROUND"
"""Advice for a Trunc that can't be built."""
_MOST_SUM = 1 << 20
"""Largest sum in front of a Trunc, which the float32 additions of an average pool still give, to less than a half."""
_NEAR = 1 / 8
"""Largest distance from an integer of the reals in front of a Trunc, in steps."""
_LEAST = 3 * 2.0**-15
"""Steps whose multiples are rounded by other modes than ROUND as stated: a bias of sums is known to 2**-15 steps."""
_MOST_EXACT = 8
"""Largest number of bits of a feature map that is rounded by another mode than ROUND."""
_MOST_BITS = 16
"""Largest number of bits of a feature map in a QONNX model; constants can have 32."""


def is_qonnx(model: onnx.ModelProto) -> bool:
    """Return whether an ONNX model contains nodes of QONNX."""
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
    """Replace each Quant of a QONNX model by QuantizeLinear, Clip and DequantizeLinear, and return the new model.

    A model without a Quant is returned as it is. Constants must be initialisers, or outputs of Constant and Identity
    (see `hwgen.network.onnx.fold`). ``where`` starts error messages.

    Raises
    ------
    ModelError
        If a Quant can't be computed in integers; the message names its node.
    """
    return _Rewriting(graph, where).result() if is_qonnx(graph.model) else graph


class _Rewriting:
    """Translator of a QONNX model, which replaces the nodes of QONNX one after the other."""

    def __init__(self, graph: GraphIndex, where: str) -> None:
        self._graph, self._where = graph, where
        self._reals: dict[str, np.ndarray] = {}
        """Values of the constants that Identity and Quant nodes compute, by tensor name."""
        self._unused = UnusedNames(graph.model)
        self._nodes: list[onnx.NodeProto] = []
        self._made: list[onnx.TensorProto] = []
        self._maps: dict[str, tuple[float, int, tuple[int, int]]] = {}
        """Scale, zero point, and lowest and highest integer of each quantised feature map, by tensor name."""
        self._opset = opset(graph.model)

    def result(self) -> GraphIndex:
        """Translate all nodes on which outputs depend, and return the model without nodes of QONNX."""
        for node in self._graph.needed:
            if node.domain not in DOMAINS:
                self._nodes.append(node)
                self._note(node)
            elif node.op_type in _QUANT:
                self._quant(node)
            elif node.op_type == _BIPOLAR:
                self._bipolar(node)
            elif node.op_type == "Trunc":
                self._trunc(node)
            else:
                raise self._refusal(node, "is not supported, of QONNX Quant, BipolarQuant and Trunc are")
        result = self._graph.with_nodes(self._nodes, self._made)
        model = result.model
        kept = [entry for entry in model.opset_import if entry.domain not in DOMAINS]
        del model.opset_import[:]
        model.opset_import.extend(kept)
        if not any(entry.domain == "com.microsoft" for entry in kept):
            model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        return result

    @cached_property
    def _shapes(self) -> Shapes:
        """Shapes of the model's tensors."""
        return Shapes(stand_in(self._graph.model))

    def _refusal(self, node: onnx.NodeProto, why: str) -> ModelError:
        return ModelError(f"{self._where}: {node.op_type} node {title(node)!r}: {why}")

    def _note(self, node: onnx.NodeProto) -> None:
        """Store the output value of an Identity node whose input is a constant."""
        if node.op_type == "Identity" and (value := self._constant(node.input[0])) is not None:
            self._reals[node.output[0]] = value

    def _constant(self, name: str) -> np.ndarray | None:
        """Return the value of the tensor ``name`` if it is a constant, otherwise ``None``."""
        return self._reals[name] if name in self._reals else self._graph.constant(name)

    def _parameter(self, node: onnx.NodeProto, index: int, what: str) -> np.ndarray:
        """Check that a node's input ``index`` is a constant of finite numbers, and return its value."""
        value = self._constant(node.input[index]) if len(node.input) > index else None
        if value is None or not value.size:
            raise self._refusal(node, f"{what} must be a constant of the model, with a value")
        if value.dtype.kind not in "fiub" or not np.isfinite(value.astype(np.float64)).all():
            raise self._refusal(node, f"{what} must be finite numbers, not {value.dtype} {value.reshape(-1)[0]}")
        return value

    def _quant(self, node: onnx.NodeProto) -> None:
        """Replace a Quant node of a feature map or a constant by nodes of ONNX."""
        scale = self._scale(node)
        zero = self._parameter(node, 2, "zero point").astype(np.float64)
        bits = self._parameter(node, 3, "bitwidth").astype(np.float64)
        if not (zero == np.rint(zero)).all() or np.abs(zero).max() >= 1 << 31:
            raise self._refusal(node, f"zero point must be an integer of 32 bits, not {zero.reshape(-1)[0]}")
        if not (bits == bits.reshape(-1)[0]).all() or bits.reshape(-1)[0] not in range(1, 33):
            raise self._refusal(node, f"bitwidth must be one integer, 1 to 32, not {np.unique(bits)[:4].tolist()}")
        width, mode = int(bits.reshape(-1)[0]), self._mode(node)
        low, high = _limits(width, bool(attribute(node, "signed", 1)), bool(attribute(node, "narrow", 0)))
        integer_type = IntegerType(bits=width, signed=low < 0 or bool(attribute(node, "signed", 1)))
        values = self._constant(node.input[0])
        if values is not None:
            self._check_values(node, values)
            with np.errstate(all="ignore"):
                steps = self._divided(node, values, scale) + zero.astype(np.float32)
            if width == 1 and integer_type.signed:
                integers = np.where(steps >= 0, 1, -1).astype(np.float64)
            else:
                integers = _ROUNDING[mode](np.clip(steps, np.float32(low), np.float32(high))).astype(np.float64)
            self._emit_constant(node, integers, scale, zero, integer_type)
            return
        if width > _MOST_BITS or (width == 1 and integer_type.signed):
            raise self._refusal(node, f"feature maps must have 1 to {_MOST_BITS} bits (signed 2), not {width}")
        if mode not in _TO_EVEN:
            node = self._with_offset(node, mode, scale, width, negative=low < 0)
        self._emit_map(node, scale, zero, integer_type, (low, high))

    def _with_offset(
        self, node: onnx.NodeProto, mode: str, scale: np.ndarray, width: int, *, negative: bool
    ) -> onnx.NodeProto:
        """Add a part of a step to the map that a Quant reads, with which rounding to even is that of ``mode``.

        Return a Quant of the sum. Reals that are not multiples of `_LEAST` steps can be rounded otherwise, if they are
        as near to what ``mode`` rounds in the other direction.
        """
        offset = offset_to_even(mode, _LEAST, negative=negative)
        if offset is None or width > _MOST_EXACT:
            modes = "ROUND, FLOOR and CEIL are" if width <= _MOST_EXACT else f"of more than {_MOST_EXACT} bits ROUND is"
            sign = "signed " if negative else ""
            raise self._refusal(node, f"rounding_mode {mode} of a {sign}feature map is not supported; {modes}")
        moved, part = copied(node), self._keep(node, "offset", np.float32(offset) * scale)
        moved.input[0] = self._unused(f"{node.output[0]}_moved")
        self._nodes.append(helper.make_node("Add", [node.input[0], part], [moved.input[0]], name=f"{title(node)}_Add"))
        return moved

    def _mode(self, node: onnx.NodeProto, default: str = "ROUND") -> str:
        """Return the rounding mode of a Quant or Trunc node."""
        name = text(node, "rounding_mode", default).upper()
        if name not in _ROUNDING:
            raise self._refusal(node, f"rounding_mode must be one of {', '.join(_ROUNDING)}, not {name[:40]!r}")
        return name

    def _scale(self, node: onnx.NodeProto) -> np.ndarray:
        """Check that a Quant's or BipolarQuant's scale is a positive float32 constant, and return its value."""
        scale = self._parameter(node, 1, "scale")
        if scale.dtype.kind != "f" or not (scale.astype(np.float32) == scale).all():
            raise self._refusal(node, f"scale must be float32 numbers, not {scale.dtype} {scale.reshape(-1)[0]!r}")
        if not (scale > 0).all():
            raise self._refusal(node, f"scale must be positive, not {scale.min()}")
        return scale.astype(np.float32)

    def _check_values(self, node: onnx.NodeProto, values: np.ndarray) -> None:
        """Refuse a Quant of a constant that holds other than finite numbers."""
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise self._refusal(node, "its constant must hold finite numbers")

    def _divided(self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Divide the constant input of a Quant by its scale, in float32."""
        try:
            steps = values.astype(np.float32) / scale
        except ValueError:
            steps = None
        if steps is None or steps.shape != values.shape:
            raise self._refusal(node, f"scale of shape {scale.shape} does not fit a constant of shape {values.shape}")
        return steps

    def _bipolar(self, node: onnx.NodeProto) -> None:
        """Replace a BipolarQuant node of a feature map or a constant by nodes of ONNX."""
        scale = self._scale(node)
        values = self._constant(node.input[0])
        if values is None:
            self._bipolar_map(node, scale)
            return
        self._check_values(node, values)
        self._divided(node, values, scale)
        integers = np.where(values >= 0, 1.0, -1.0)
        self._emit_constant(node, integers, scale, np.zeros(()), IntegerType(bits=2, signed=True))

    def _bipolar_map(self, node: onnx.NodeProto, scale: np.ndarray) -> None:
        """Replace a BipolarQuant node of a feature map by a choice of two floats, and a quantiser of 1 or 2 bits."""
        if scale.size != 1:
            raise self._refusal(node, f"a feature map must have one scale, not {scale.size} (per channel)")
        if node.input[0] in self._graph.inputs:
            raise self._refusal(node, "takes floats of the model's input; a Quant of it must come first")
        one_bit = self._readers_take_offsets(node.output[0])
        step = np.float32(scale.item() * (2 if one_bit else 1))
        low, high = (np.float32(0), step) if one_bit else (-step, step)
        names = [self._keep(node, what, np.array(value)) for what, value in (("floor", low), ("ceiling", high))]
        zero = self._keep(node, "origin", np.array(0, np.float32))
        is_less, chosen = (self._unused(f"{node.output[0]}_{what}") for what in ("is_less", "chosen"))
        self._nodes.append(helper.make_node("Less", [node.input[0], zero], [is_less], name=f"{title(node)}_Less"))
        self._nodes.append(helper.make_node("Where", [is_less, *names], [chosen], name=f"{title(node)}_Where"))
        quantised = helper.make_node("Quant", [chosen], [node.output[0]], name=title(node))
        integer_type = IntegerType(bits=1, signed=False) if one_bit else IntegerType(bits=2, signed=True)
        bounds = (0, 1) if one_bit else (-1, 1)
        if not one_bit:
            self._emit_map(quantised, np.array(step), np.zeros(()), integer_type, bounds)
            return
        quantised.output[0] = self._unused(f"{node.output[0]}_doubled")
        self._emit_map(quantised, np.array(step), np.zeros(()), integer_type, bounds)
        half = self._keep(node, "half", scale.reshape(()))
        centred = [quantised.output[0], half]
        self._nodes.append(helper.make_node("Sub", centred, [node.output[0]], name=f"{title(node)}_Sub"))

    def _trunc(self, node: onnx.NodeProto) -> None:
        """Replace a Trunc of a feature map, or of its sums over windows, by a convolution and a quantiser."""
        truncation = self._truncation(node)
        source, factor, window = self._summed(node)
        if source not in self._maps or self._maps[source][1]:
            raise self._refusal(
                node,
                "must follow a Quant without zero point, or an average of one that is multiplied by the number of its "
                f"pixels; {_OTHERWISE}",
            )
        scale, _, (low, high) = self._maps[source]
        shape = self._shapes.of(source).shape
        if shape is None or len(shape) != 4 or 0 in shape[1:]:
            raise self._refusal(node, f"must take a map (N, C, H, W) of known size; {_OTHERWISE}")
        kernel = tuple(window.pop("kernel_shape", shape[2:] if window.pop("whole", False) else (1, 1)))
        count = int(np.prod(kernel))
        ends = np.array([min(count * low, 0), max(count * high, 0)], np.float64)
        if (largest := int(np.abs(ends).max())) > _MOST_SUM:
            raise self._refusal(node, f"sums must be at most {_MOST_SUM:,}, not {largest:,}: float32 would round them")
        # The reals in front, in steps of the Trunc's scale, must be the integers that are summed.
        step = scale * factor / count
        if abs(step / float(truncation.scale) - 1) * np.abs(ends).max() > _NEAR:
            raise self._refusal(
                node,
                f"scale must be that of the integers in front, {step:g}, not {truncation.scale:g}; {_OTHERWISE}",
            )
        self._emit_truncated(node, truncation, (source, scale), (shape[1], 1, *kernel), window, ends)

    def _emit_truncated(
        self,
        node: onnx.NodeProto,
        truncation: Truncation,
        source: tuple[str, float],
        shape: tuple[int, ...],
        window: dict[str, Any],
        ends: np.ndarray,
    ) -> None:
        """Add a convolution that sums windows of a map, and a quantiser, in place of a Trunc.

        Parameters
        ----------
        source : tuple
            Name and scale of the map.
        shape : tuple of int
            Shape of the convolution's weights.
        window : dict
            Other attributes of the convolution.
        ends : ndarray
            Lowest and highest sum.
        """
        offset = truncation.offset(negative=ends[0] < 0)
        if offset is None:
            raise self._refusal(
                node, f"rounding_mode {truncation.mode} of numbers below 0 is not supported; FLOOR, CEIL and ROUND are"
            )
        low, high = (int(end) for end in truncation.outputs(ends, _ROUNDING[truncation.mode]))
        stored = _narrowest(low, high)
        if stored.bits > _MOST_BITS:
            raise self._refusal(node, f"gives {stored}; feature maps must have at most {_MOST_BITS} bits")
        weights = self._ones(node, shape, source[1], truncation)
        bias = offset * float(truncation.scale) * float(truncation.weight)
        inputs = [source[0], weights, self._keep(node, "bias", np.full(shape[0], bias, np.float32))]
        summed = self._unused(f"{node.output[0]}_summed")
        name = f"{title(node)}_Conv"
        self._nodes.append(helper.make_node("Conv", inputs, [summed], name=name, group=shape[0], **window))
        quantised = helper.make_node("Quant", [summed], [node.output[0]], name=title(node))
        self._emit_map(quantised, np.array(truncation.output_scale), np.zeros(()), stored, (low, high))

    def _ones(self, node: onnx.NodeProto, shape: tuple[int, ...], scale: float, truncation: Truncation) -> str:
        """Add weights of a convolution that sums windows, in the Trunc's output scale, and return their tensor."""
        names = [
            self._keep(node, "ones", np.ones(shape, np.int8)),
            self._keep(node, "weight", np.array(truncation.weight * (truncation.scale / np.float32(scale)))),
        ]
        output = self._unused(f"{node.output[0]}_weights")
        self._add(node, "DequantizeLinear", names, output, IntegerType(bits=8, signed=True))
        return output

    def _summed(self, node: onnx.NodeProto) -> tuple[str, float, dict[str, Any]]:
        """Return the map whose values are summed in front of a Trunc, a factor of the sums, and the window.

        The window is empty for a map that is not summed. Its attributes are those of a convolution; ``whole`` stands
        for all pixels.
        """
        tensor, factor = node.input[0], 1.0
        before = self._graph.producers.get(tensor)
        if before is not None and before.op_type == "Mul":
            constants = {name: self._constant(name) for name in before.input}
            known = {name: value.item() for name, value in constants.items() if value is not None and value.size == 1}
            if len(known) == 1:
                ((name, factor),) = known.items()
                (tensor,) = (other for other in before.input if other != name)
                before = self._graph.producers.get(tensor)
        if before is None or before.op_type not in ("AveragePool", "GlobalAveragePool"):
            return tensor, factor, {}
        if before.op_type == "GlobalAveragePool":
            return before.input[0], factor, {"whole": True}
        window = {entry.name: helper.get_attribute_value(entry) for entry in before.attribute}
        counted = window.pop("count_include_pad", 0) or not (any(window.get("pads", ())) or "auto_pad" in window)
        if not counted or window.pop("ceil_mode", 0):
            raise self._refusal(before, f"in front of a Trunc must count padding, and have ceil_mode 0; {_OTHERWISE}")
        return before.input[0], factor, window

    def _truncation(self, node: onnx.NodeProto) -> Truncation:
        """Return the parameters of a Trunc node, of version 1 with five inputs, or of version 2 with six."""
        scale, zero = self._scale(node), self._parameter(node, 2, "zero point")
        first, mode = self._parameter(node, 3, "input bitwidth"), self._mode(node, "FLOOR")
        is_first = len(node.input) == 5
        last = self._parameter(node, 4 if is_first else 5, "output bitwidth")
        outputs = scale if is_first else self._parameter(node, 4, "output scale").astype(np.float32)
        if scale.size != 1 or outputs.size != 1 or zero.any() or not outputs.item() > 0:
            raise self._refusal(node, f"must have one scale, and no zero point; {_OTHERWISE}")
        widths = {int(width) for width in (*first.ravel(), *last.ravel())}
        if not widths <= {*range(1, 33)} or first.size != 1 or last.size != 1:
            raise self._refusal(node, f"bitwidths must be two integers, 1 to 32, not {sorted(widths)}")
        if is_first:
            shift, limits = int(first.item()) - int(last.item()), None
        else:
            shift = round(float(np.log2(outputs.item() / scale.item())))
            limits = _limits(int(last.item()), bool(attribute(node, "signed", 1)), bool(attribute(node, "narrow", 0)))
        result = Truncation(np.float32(scale.item()), np.float32(outputs.item()), shift, mode, limits)
        if not result.fits:
            raise self._refusal(node, f"must drop 0 to 16 bits, not {shift}")
        return result

    def _readers_take_offsets(self, tensor: str) -> bool:
        """Return whether all layers behind a feature map can take up an offset of its values in their bias.

        Operators that pass values unchanged can be in between. A convolution with padding can't, because it pads with
        zeros, to which no offset is added. At the model's end the host adds the offset, but it runs no max pool.
        """
        waiting = [(tensor, False)]
        while waiting:
            name, pooled = waiting.pop()
            if pooled and name in self._graph.outputs:
                return False
            for reader in self._graph.readers(name):
                if reader.op_type in _PASSING:
                    waiting += [(output, pooled or reader.op_type == "MaxPool") for output in reader.output]
                elif reader.op_type not in _PRODUCTS or _pads(reader):
                    return False
        return True

    # Nodes that replace a node of QONNX.

    def _emit_map(
        self,
        node: onnx.NodeProto,
        scale: np.ndarray,
        zero: np.ndarray,
        integer_type: IntegerType,
        bounds: tuple[int, int],
    ) -> None:
        """Add QuantizeLinear, Clip and DequantizeLinear in place of the Quant of a feature map."""
        if scale.size != 1 or zero.size != 1:
            raise self._refusal(
                node, f"a feature map must have one scale, not {max(scale.size, zero.size)} (per channel)"
            )
        point, stored = int(zero.item()), _stored(integer_type)
        if not stored.minimum <= point <= stored.maximum:
            raise self._refusal(node, f"zero point must be {stored}, not {point}")
        self._maps[node.output[0]] = float(scale.item()), point, bounds
        output, label = (
            node.output[0],
            [
                self._keep(node, "scale", scale.reshape(())),
                self._keep(node, "zero", np.array(point, stored.dtype)),
            ],
        )
        tensor = self._unused(f"{output}_integers")
        self._add(node, "QuantizeLinear", [node.input[0], *label], tensor, stored)
        if bounds != (stored.minimum, stored.maximum):
            ends = [
                self._keep(node, what, np.array(end, stored.dtype))
                for what, end in zip(("min", "max"), bounds, strict=True)
            ]
            clipped = self._unused(f"{output}_clipped")
            self._nodes.append(helper.make_node("Clip", [tensor, *ends], [clipped], name=f"{title(node)}_clip"))
            tensor = clipped
        self._add(node, "DequantizeLinear", [tensor, *label], output, stored)

    def _emit_constant(
        self, node: onnx.NodeProto, integers: np.ndarray, scale: np.ndarray, zero: np.ndarray, integer_type: IntegerType
    ) -> None:
        """Add ``integers`` behind a DequantizeLinear, in place of the Quant of a constant."""
        shape = np.broadcast_shapes(scale.shape, zero.shape)
        if len(shape) > integers.ndim or np.broadcast_shapes(shape, integers.shape) != integers.shape:
            raise self._refusal(node, f"zero point of shape {zero.shape} does not fit a constant of {integers.shape}")
        shape = (1,) * (integers.ndim - len(shape)) + shape
        axes = [axis for axis, size in enumerate(shape) if size > 1]
        if len(axes) > 1:
            raise self._refusal(node, f"a constant must have one scale, or one along one axis, not {shape}")
        scales, zeros = (np.broadcast_to(label, shape).reshape(-1) for label in (scale, zero))
        if (zeros == zeros[0]).all() and (scales == scales[0]).all():
            axes, scales, zeros = [], scales[:1], zeros[:1]
        self._reals[node.output[0]] = ((integers - zero) * scale).astype(np.float32)
        stored = _stored(integer_type)
        outside = (zeros < stored.minimum) | (zeros > stored.maximum)
        label_shape = (-1,) if axes else ()
        zero_points = [zeros.reshape(label_shape).astype(stored.dtype)]
        if stored.bits == 32 or outside.any():  # without a zero point
            integers = integers - zero
            if np.abs(integers).max() >= 1 << 31:
                raise self._refusal(node, "its integers must fit 32 bits")
            stored, zero_points = IntegerType(bits=32, signed=True), []
        names = [
            self._keep(node, what, array)
            for what, array in zip(
                ("integers", "scale", "zero"),
                (integers.astype(stored.dtype), scales.reshape(label_shape), *zero_points),
                strict=False,
            )
        ]
        self._add(node, "DequantizeLinear", names, node.output[0], stored)
        if axes:
            self._nodes[-1].attribute.append(helper.make_attribute("axis", axes[0]))

    def _add(
        self, node: onnx.NodeProto, operator: str, inputs: list[str], output: str, integer_type: IntegerType
    ) -> None:
        """Add a node of ONNX to the translated model, in a domain that has this operator for the integer type.

        The domain is com.microsoft where the model's operator set has no such node.
        """
        domain = "" if self._opset >= (21 if integer_type.bits == 16 else 13) else "com.microsoft"
        self._nodes.append(
            helper.make_node(operator, inputs, [output], name=f"{title(node)}_{operator}", domain=domain)
        )

    def _keep(self, node: onnx.NodeProto, what: str, array: np.ndarray) -> str:
        """Add an initialiser to the translated model, and return its name."""
        name = self._unused(f"{node.output[0]}_{what}")
        self._made.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name


def _limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Return the lowest and the highest integer to which a Quant node clips."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _narrowest(low: int, high: int) -> IntegerType:
    """Return the narrowest integer type that holds all integers from ``low`` to ``high``."""
    signed = low < 0
    return IntegerType(bits=max(signed_bits(low, high) if signed else high.bit_length(), 1 + signed), signed=signed)


def _stored(integer_type: IntegerType) -> IntegerType:
    """Return the integer type in which ONNX stores the integers of a QONNX type."""
    if integer_type.bits > 16:
        return IntegerType(bits=32, signed=True)
    return IntegerType(bits=8 if integer_type.bits <= 8 else 16, signed=integer_type.signed)


def _pads(node: onnx.NodeProto) -> bool:
    """Return whether a convolution pads its input."""
    mode = text(node, "auto_pad", "NOTSET").upper()
    return any(attribute(node, "pads", ())) or mode.startswith("SAME")
