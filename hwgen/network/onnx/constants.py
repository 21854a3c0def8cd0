"""Constants of an ONNX model: initialisers, Constant nodes, and their quantised and dequantised forms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hwgen.network.maps import INT8, INT16, MAX_WEIGHTS, UINT8, UINT16, IntegerType
from hwgen.network.onnx.file import attribute, constant_array
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.views import View
from hwgen.network.rescale import MAX_BIAS

NARROW = {
    getattr(onnx.TensorProto, str(kind).upper()): kind
    for kind in (IntegerType(bits=bits, signed=signed) for bits in (4, 2) for signed in (True, False))
    if str(kind).upper() in onnx.TensorProto.DataType.keys()  # noqa: SIM118 (no mapping)
}
"""Dictionary of integer types of 2 and 4 bits (`IntegerType`), by ONNX's element type number.

NumPy stores feature maps of these types in bytes.
"""
_NARROW_DTYPES = {helper.tensor_dtype_to_np_dtype(element): kind for element, kind in NARROW.items()}
# Before onnx 1.19 constants of narrow types were arrays of bytes, too.
TYPES = _NARROW_DTYPES | {kind.dtype: kind for kind in (INT8, UINT8, INT16, UINT16)}
"""Dictionary of the integer types (`IntegerType`) that feature maps and weights can have, by a constant's NumPy type.
"""
ELEMENTS = {int(helper.np_dtype_to_tensor_dtype(dtype)): kind for dtype, kind in TYPES.items()}
"""Dictionary of integer types that feature maps and weights can have (`IntegerType`), by ONNX's element type number."""
NAMED = "int8, uint8, int16 or uint16"
"""Text that lists the integer types that feature maps can have, for error messages."""
_KEEPS_SIZES = with_effect(Effect.SAME, Effect.RENAMING, Effect.SELECTION) | {"Cast", "Concat"}
"""Set of names of ONNX operators that a model applies to tensor sizes without changing the numbers."""

#: Maximum number of weights of a layer stored as int64; more are stored in integers of twice their type's width.
MANY_WEIGHTS = 1 << 24


@dataclass(frozen=True)
class Quantised:
    """Constant of an ONNX model after a DequantizeLinear: integers, and scale and zero point (along ``axis``)."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def is_bias(self) -> bool:
        """Whether ONNX Runtime's integer kernels accept the constant as a bias: its integers are int32."""
        return self.values.dtype == np.int32

    def real(self) -> np.ndarray:
        """Return a float64 array: the real values that the quantised constant's integers represent."""
        shape = [1] * self.values.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        scale, zero = self.scale.astype(np.float64), self.zero.astype(np.int64)
        centred = self.values.astype(np.int64) - (zero.reshape(shape) if zero.size > 1 else zero.reshape(()))
        return centred * (scale.reshape(shape) if scale.size > 1 else scale.reshape(()))


class QuantisedWeights(NamedTuple):
    """Weights of a convolution or matrix product as integers (zero point subtracted), with scale and type.

    Parameters
    ----------
    values : ndarray
        Weights minus their zero point, int64. More than `MANY_WEIGHTS` weights have twice the bits of their type
        instead.
    scale : ndarray
        float32, ``(M,)`` or ``(1,)``.
    type : IntegerType
        Type of the weights in the file.
    """

    values: np.ndarray
    scale: np.ndarray
    type: IntegerType


class Quantisation(NamedTuple):
    """Quantisation of a feature map: float32 scale, zero point and integer type."""

    scale: np.float32
    zero: int
    type: IntegerType


class Bias(NamedTuple):
    """Bias of a convolution or matrix product, as int64 multiples of an accumulator step, and as it was stated.

    Parameters
    ----------
    steps : ndarray
        int64 ``(M,)``.
    residue : ndarray
        Difference between the model's real bias and ``steps``, as a real number, float64 ``(M,)``.
    may_round : bool
        Whether ONNX Runtime can round the bias in the same manner if a QuantizeLinear follows. It can for floats in one
        dimension.
    stated : Quantised, optional
        Quantised bias of the model whose steps differ from the accumulators' steps.
    """

    steps: np.ndarray
    residue: np.ndarray
    may_round: bool
    stated: Quantised | None = None

    @classmethod
    def of_integers(cls, constant: Quantised, outputs: int) -> Bias:
        """Return the `Bias` whose integers count accumulator steps, regardless of the constant's own scale."""
        steps = np.broadcast_to(constant.values.reshape(-1).astype(np.int64), outputs).copy()
        return cls(steps, np.zeros(outputs), may_round=False)


class Constants:
    """Constants of an ONNX model, which its nodes read by tensor name; ``where`` starts error messages."""

    def __init__(self, model: onnx.ModelProto, where: str) -> None:
        self.model = model
        self._where = where
        self.arrays: dict[str, np.ndarray] = {}
        self.quantised: dict[str, Quantised] = {}
        self.owner: onnx.NodeProto | None = None
        """Node of the model that stands for the nodes imported in its place: it gets their refusals and layers."""

    def refusal(self, node: onnx.NodeProto, why: str) -> RefusalError:
        """Return, not raise, the `RefusalError` that says why the ONNX node ``node`` can't be built."""
        return RefusalError(self._where, self.owner or node, why)

    def holds(self, name: str) -> bool:
        """Return whether a tensor of the model is a constant, quantised or not."""
        return name in self.arrays or name in self.quantised

    def fold(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Store the values of all constants of the model, and return a list of the nodes that do not compute constants.

        Constants are the initialisers, and the outputs of Constant nodes and of Identity, QuantizeLinear and
        DequantizeLinear nodes whose inputs are constants.
        """
        for tensor in self.model.graph.initializer:
            self.arrays[tensor.name] = numpy_helper.to_array(tensor)
        rest = []
        for node in nodes:
            known = all(map(self.holds, filter(None, node.input)))
            if node.op_type == "Constant":
                if (value := constant_array(node)) is None:
                    raise self.refusal(node, "must hold numbers, not text or sequences")
                self.arrays[node.output[0]] = value
            elif node.input and known and node.op_type == "Identity":
                (name,) = node.input
                if name in self.quantised:
                    self.quantised[node.output[0]] = self.quantised[name]
                else:
                    self.arrays[node.output[0]] = self.arrays[name]
            elif node.input and known and node.op_type == "DequantizeLinear":
                values, scale, zero = self._quantisation(node)
                self.quantised[node.output[0]] = Quantised(values, scale, zero, self._axis(node, values, scale))
            elif node.input and known and node.op_type == "QuantizeLinear":
                values, scale, zero = self._quantisation(node)
                shape = [1] * values.ndim
                if scale.size > 1:
                    shape[self._axis(node, values, scale)] = -1
                scale, zero = scale.reshape(shape), zero.reshape(shape)
                lowest, highest = self._limits(zero.dtype)
                rounded = np.rint(values.astype(np.float32) / scale).astype(np.float64) + zero.astype(np.float64)
                self.arrays[node.output[0]] = np.clip(rounded, lowest, highest).astype(zero.dtype)
            else:
                rest.append(node)
        return rest

    def note_sizes(self, node: onnx.NodeProto, shapes: Shapes) -> None:
        """Store a node's output as a constant if the node is a Shape, or only selects or combines known sizes.

        Exporters write them for ``x.view(x.size(0), -1)``. A batch of any number of frames is `BATCH`, which only a
        Reshape accepts, as the first entry of its shape.
        """
        combines = node.op_type in _KEEPS_SIZES and all(name in self.arrays for name in node.input if name)
        sizes = shapes.sizes(node.output[0]) if combines or node.op_type == "Shape" else None
        if sizes is not None and sizes.dtype == np.int64:
            self.arrays[node.output[0]] = sizes

    def _quantisation(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a triple of arrays: values, scale, zero point of a Quantize- or DequantizeLinear of a constant."""
        if node.input[0] not in self.arrays:
            raise self.refusal(node, f"takes {node.input[0]!r}, already dequantised")
        values = self.arrays[node.input[0]]
        dtype = values.dtype if node.op_type == "DequantizeLinear" else np.dtype(np.uint8)
        scale, zero = self.scale_and_zero(node, 1, dtype)
        if zero.size != scale.size:
            raise self.refusal(node, f"must have one zero point per scale, that is {scale.size}, not {zero.size}")
        return values, scale, zero.reshape(scale.shape)

    @staticmethod
    def _limits(dtype: np.dtype) -> tuple[int, int]:
        """Return a pair: lowest and highest integer of a NumPy type, or of an ONNX type of fewer than 8 bits."""
        if dtype in TYPES:
            return TYPES[dtype].minimum, TYPES[dtype].maximum
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def _axis(self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray) -> int:
        """Return the axis (0 or more) along which a constant's scales differ; 0 for a single scale."""
        axis = int(attribute(node, "axis", 1))
        if scale.size == 1:
            return 0
        if not -values.ndim <= axis < values.ndim:
            raise self.refusal(node, f"axis must be {-values.ndim} to {values.ndim - 1}, not {axis}")
        axis %= values.ndim
        if values.shape[axis] != scale.size:
            raise self.refusal(node, f"must have one scale for each index along axis {axis}, not {scale.size}")
        return axis

    # Scales and zero points.

    def scale_and_zero(self, node: onnx.NodeProto, first: int, default: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return a pair of arrays: a node's constant scale (float32), input ``first``, and zero point, the next input.

        ``default``: type of the zero point, if the node has none.
        """
        scale = self.read(node, first, "scale")
        if scale.dtype != np.float32:
            raise self.refusal(node, f"scale must be float32, not {scale.dtype}")
        if scale.ndim > 1 or attribute(node, "block_size", 0):
            size = attribute(node, "block_size", 0)
            what = f"blocks of {size}" if size else f"scales of shape {scale.shape}"
            why = "blocked quantisation is not supported; per tensor and per channel are, and blocks whose scales"
            raise self.refusal(node, f"{what}: {why} are whole multiples of the smallest one of their output channel")
        wrong = ~(np.isfinite(scale) & (scale > 0))
        if wrong.any():
            raise self.refusal(node, f"scale must be positive and finite, not {scale[wrong][0]}")
        if len(node.input) > first + 1 and node.input[first + 1]:
            zero = self.read(node, first + 1, "zero point")
            if zero.ndim > 1:
                raise self.refusal(node, f"zero point must be one number or one per scale, not of shape {zero.shape}")
        else:
            output = int(attribute(node, "output_dtype", 0))
            if output and output not in ELEMENTS:
                raise self.refusal(node, f"output_dtype must be {NAMED}")
            zero = np.zeros(scale.shape, ELEMENTS[output].dtype if output else default)
        return scale, zero

    def read(self, node: onnx.NodeProto, index: int, what: str) -> np.ndarray:
        """Return the array of a node's input ``index``, which must be a constant; errors call it ``what``."""
        name = node.input[index] if len(node.input) > index else ""
        if name in self.arrays:
            if not self.arrays[name].size:
                raise self.refusal(node, f"{what} must not be empty, but its shape is {self.arrays[name].shape}")
            return self.arrays[name]
        raise self.refusal(
            node, f"{what} must be a constant of the model" + (f", not computed ({name!r})" if name else "")
        )

    def listed(self, node: onnx.NodeProto, index: int, name: str) -> list[Any] | None:
        """Return a node's constant input ``index``, or else its attribute ``name``, as a list; ``None`` without both.

        Early versions of an operator have the attribute.
        """
        if len(node.input) > index and node.input[index]:
            return self.read(node, index, name).ravel().tolist()
        numbers = attribute(node, name, None)
        return None if numbers is None else [*numbers]

    def real(self, node: onnx.NodeProto, index: int, what: str) -> np.ndarray:
        """Return a float64 array: a node's constant input ``index``, dequantised if it is quantised.

        The input must be a constant, quantised or not.
        """
        constant = self.quantised.get(node.input[index] if len(node.input) > index else "")
        return self.read(node, index, what).astype(np.float64) if constant is None else constant.real()

    def per_tensor(self, node: onnx.NodeProto, first: int, default: np.dtype) -> Quantisation:
        """Return a map's `Quantisation` (scale, zero point, type), from a node's inputs ``first``, ``first + 1``."""
        scale, zero = self.scale_and_zero(node, first, default)
        if scale.size != 1 or zero.size != 1:
            raise self.refusal(
                node, f"a feature map must have one scale, not {max(scale.size, zero.size)} (per channel)"
            )
        if zero.dtype not in TYPES:
            raise self.refusal(node, f"feature maps must be {NAMED}, not {zero.dtype}")
        return Quantisation(np.float32(scale.item()), int(zero.item()), TYPES[zero.dtype])

    # Weights and biases.

    def weights(
        self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int
    ) -> QuantisedWeights:
        """Return a layer's `QuantisedWeights`, minus their zero point; their output channels are along ``axis``."""
        if values.dtype not in TYPES:
            raise self.refusal(node, f"weights must be {NAMED}, not {values.dtype}")
        if values.ndim < 2:
            raise self.refusal(node, f"weights must be a kernel or a matrix, not of shape {values.shape}")
        if not values.size:
            raise self.refusal(node, f"weights must not be empty, but their shape is {values.shape}")
        if values.size > MAX_WEIGHTS:
            raise self.refusal(node, f"weights must be at most {MAX_WEIGHTS:,}, not {values.size:,}")
        if zero.dtype != values.dtype:
            raise self.refusal(node, f"weights' zero point must be {values.dtype} as they are, not {zero.dtype}")
        outputs = values.shape[axis]
        for what, array in (("scale", scale), ("zero point", zero)):
            if array.size not in (1, outputs):
                raise self.refusal(
                    node, f"weights must have 1 {what} or {outputs}, one per output channel, not {array.size}"
                )
        shape = [1] * values.ndim
        shape[axis] = -1
        # In int64 many weights would need a gigabyte.
        dtype = np.dtype(np.int64) if values.size <= MANY_WEIGHTS else np.dtype(f"i{2 * values.itemsize}")
        weights = values.astype(dtype)
        weights -= zero.astype(dtype).reshape(shape)
        return QuantisedWeights(weights, scale.reshape(-1), TYPES[values.dtype])

    def float_weights(self, node: onnx.NodeProto, axis: int) -> QuantisedWeights:
        """Return the `QuantisedWeights` of a node that computes in floats: input 1, a DequantizeLinear's output."""
        constant = self.quantised.get(node.input[1])
        if constant is None:
            form = "float" if node.input[1] in self.arrays else "computed"
            advice = "quantise this operator, too, or end the hardware before it (--until)"
            if node.op_type == "ConvTranspose":  # ONNX Runtime has no integer kernel for it
                advice = (
                    "ONNX Runtime's quantiser does so in QDQ format; in QOperator format, put a DequantizeLinear "
                    "directly before it and a QuantizeLinear directly after it"
                )
            raise self.refusal(node, f"weights {node.input[1]!r} must be quantised ({NAMED}), not {form}; {advice}")
        if constant.scale.size > 1 and constant.axis != axis % constant.values.ndim:
            raise self.refusal(
                node, f"weights must have a scale for each output channel (axis {axis}), not {constant.axis}"
            )
        return self.weights(node, constant.values, constant.scale, constant.zero, axis)

    def bias(self, node: onnx.NodeProto, index: int, outputs: int, unit: np.ndarray) -> Bias:
        """Return a node's constant `Bias` (input ``index``) in multiples of ``unit``, a float32 ``(M,)`` or ``(1,)``.

        A bias of floats, or of another scale than ``unit``, is rounded to these steps.
        """
        name = node.input[index] if len(node.input) > index else ""
        none = np.zeros(outputs)
        if not name:
            return Bias(none.astype(np.int64), none, may_round=True)
        constant = self.quantised.get(name)
        if constant is not None:
            self._check_bias(node, constant.values, outputs)
            scale = constant.scale.reshape(-1)
            if constant.is_bias and not constant.zero.any() and (scale == unit).all():
                return Bias.of_integers(constant, outputs)
            values = constant.real()
        elif name in self.arrays:
            self._check_bias(node, self.arrays[name], outputs)
            values = self.arrays[name].astype(np.float64)
        else:
            raise self.refusal(node, f"bias must be a constant of the model, not computed ({name!r})")
        reals = np.broadcast_to(values.reshape(-1), outputs)
        steps = self.in_steps(node, reals, unit)
        may_round = constant is None and values.ndim == 1
        return Bias(steps, reals - steps * unit.astype(np.float64), may_round=may_round, stated=constant)

    def _check_bias(self, node: onnx.NodeProto, bias: np.ndarray, outputs: int) -> None:
        """Refuse a node's bias that does not have one number per output channel.

        The bias of a matrix product can also be broadcast to the outputs.
        """
        spread = {(), (1,), (1, 1), (1, outputs)} if node.op_type in ("Gemm", "QGemm") else set()
        if bias.shape not in {(outputs,), *spread}:
            raise self.refusal(node, f"bias must have the shape ({outputs},), not {bias.shape}")

    def in_steps(self, node: onnx.NodeProto, values: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Return real bias ``values`` as int64 multiples of ``unit``, rounded; refuse multiples beyond 48 bits."""
        steps = np.rint(values / unit.astype(np.float64))
        if not np.isfinite(values).all():
            raise self.refusal(node, f"bias must be finite, but holds {values[~np.isfinite(values)].flat[0]}")
        if not (np.abs(steps) <= MAX_BIAS).all():
            raise self.refusal(
                node, "bias must fit 48 bits in steps of x_scale * w_scale; quantise the weights with a larger scale"
            )
        return steps.astype(np.int64)

    def by_channel(self, node: onnx.NodeProto, values: np.ndarray, view: View) -> np.ndarray:
        """Return a constant that a node broadcasts over a map as one value per channel, float64 ``(M,)``.

        ``view``: layout of the tensor that the constant is combined with.
        """
        channels = view.sizes[0]
        if values.size == 1:
            return np.broadcast_to(values.reshape(-1), channels).astype(np.float64)
        if (broadcast := view.by_channel(values)) is None:
            raise self.refusal(
                node,
                f"a constant must have one value for each of {channels} channels, not shape {values.shape}"
                + ("" if view.plain else f"; its input is laid out as {view}"),
            )
        return broadcast.astype(np.float64)
