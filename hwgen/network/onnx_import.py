"""ONNX import: a quantised model, as ONNX Runtime's quantiser writes it, becomes a Network.

The graph is walked from its input along the only consumer of each tensor. On the way a value is one of

- ``_Floats``: the model's float input, before its first QuantizeLinear;
- ``_Integers``: a feature map, in the state the hardware sees;
- ``_Reals``: a feature map seen through DequantizeLinear, perhaps with pointwise operators applied: a table of
  what every integer has become;
- ``_Sums``: the accumulators of a convolution that no QuantizeLinear has met yet;
- ``_Tail``: what follows Softmax, on the host.

QDQ and QOperator models thus meet in the same two places: a convolution is emitted when its accumulators are
quantised, and a table of integers becomes bounds of the convolution before it or, where scales differ, a 1x1
convolution whose every output was compared with the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from hwgen.errors import ConfigError, ModelError
from hwgen.network.golden import accumulator_bound, requantise
from hwgen.network.graph import (
    INT8,
    INT32,
    UINT8,
    Conv,
    FeatureMap,
    IntegerType,
    Layer,
    MaxPool,
    Network,
    Requantisation,
    Window,
)

_TYPES = {np.dtype(np.int8): INT8, np.dtype(np.uint8): UINT8}
_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "QGemm"}
_DOMAINS = {"", "ai.onnx", "com.microsoft"}
_SUFFIXES = ("_quant", "_quantized", "_QuantizeLinear_Input", "_QuantizeLinear_Output", "_QuantizeLinear")


def read(path: Path) -> onnx.ModelProto:
    """The model in the file ``path``, checked; raises ModelError where it can't be read or is not valid ONNX."""
    try:
        model = onnx.load(str(path), format="protobuf")
    except FileNotFoundError as error:
        missing = "no such file" if not path.exists() else f"its external data is missing ({_line(error)})"
        raise ModelError(f"{path}: {missing}") from None
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror or _line(error)}") from None
    except (DecodeError, onnx.checker.ValidationError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: not an ONNX file, or cut short ({_line(error)})") from None
    if not model.ByteSize():
        raise ModelError(f"{path}: an empty file, not an ONNX model")
    if not all(isinstance(text, str) for text in _texts(model)):
        raise ModelError(f"{path}: not a valid ONNX model: names must be UTF-8")
    return model


def _texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """The names in ``model``; protobuf gives those that are no UTF-8 as bytes."""
    graph = model.graph
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (entry.domain for entry in model.opset_import)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def is_float(model: onnx.ModelProto) -> bool:
    """Whether ``model`` takes floats and holds nothing quantised."""
    if any(node.op_type in _QUANTISED or node.op_type.startswith("QLinear") for node in model.graph.node):
        return False
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in data_inputs(model))


def data_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The graph's inputs that no initialiser fills."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initialised]


def check(model: onnx.ModelProto, name: str) -> None:
    """Raise ModelError unless ``model`` passes ONNX's checker and shape inference.

    Shape inference is left out for pools with ``ceil_mode``: there it counts windows that start behind the map,
    which ONNX's text, its reference and ONNX Runtime leave out (as of onnx 1.23).
    """
    rounded_up = any(_attribute(node, "ceil_mode", 0) for node in model.graph.node)
    try:
        onnx.checker.check_model(model, full_check=not rounded_up)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{name}: not a valid ONNX model: {_line(error)}") from None
    except (ValueError, RuntimeError) as error:  # e.g. a model past protobuf's 2 GB
        raise ModelError(f"{name}: the ONNX checker can't take it: {_line(error)}") from None


def to_network(model: onnx.ModelProto, name: str, where: str | None = None) -> Network:
    """The quantised ``model`` as a network called ``name``; ``where`` (a path) starts error messages."""
    where = where or name
    check(model, where)
    try:
        # Absurd scales overflow; what they lead to is checked where it matters.
        with np.errstate(all="ignore"):
            return _Importer(model, name, where).network()
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None


def input_shape(model: onnx.ModelProto, where: str) -> tuple[int, ...]:
    """The fixed sizes of the only input, without the batch: ``(C, H, W)`` or ``(C,)``."""
    inputs = data_inputs(model)
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise ModelError(f"{where}: a model must have one input, not {len(inputs)} ({names})")
    tensor = inputs[0].type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(f"{where}: input {inputs[0].name!r} has no shape; give it (batch, channels, height, width)")
    dims = tensor.shape.dim
    shown = ", ".join(d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in dims)
    if len(dims) not in (2, 4):
        raise ModelError(
            f"{where}: input {inputs[0].name!r} must be (batch, channels, height, width) or (batch, channels), "
            f"not ({shown})"
        )
    if any(d.dim_value < 1 for d in dims[1:]):
        raise ModelError(
            f"{where}: input {inputs[0].name!r} has a dynamic shape ({shown}): "
            "only the batch may be symbolic, fix the other sizes"
        )
    return tuple(d.dim_value for d in dims[1:])


# What a value is on its way through the graph.


@dataclass
class _Map:
    """A feature map whose zero point and scale may become known later than its shape."""

    channels: int
    height: int
    width: int
    type: IntegerType
    zero_point: int | None = None
    scale: np.float32 | None = None

    def frozen(self) -> FeatureMap:
        return FeatureMap(
            channels=self.channels,
            height=self.height,
            width=self.width,
            type=self.type,
            zero_point=self.zero_point or 0,
            scale=None if self.scale is None else float(self.scale),
        )


@dataclass
class _Step:
    """A layer in the making. Without ``weights`` it is a max pool."""

    name: str
    input: _Map
    output: _Map
    window: Window
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    requantisation: Requantisation | None = None
    low: int = 0
    high: int = 0
    groups: int = 1

    def frozen(self, source: FeatureMap) -> Layer:
        common: dict[str, Any] = {
            "name": self.name,
            "input": source,
            "output": self.output.frozen(),
            "window": self.window,
        }
        if self.weights is None or self.bias is None:
            return MaxPool(**common)
        requantisation = self.requantisation and Requantisation(
            significand=self.requantisation.significand,
            shift=self.requantisation.shift,
            zero_point=self.requantisation.zero_point,
            low=self.low,
            high=self.high,
        )
        return Conv(**common, weights=self.weights, bias=self.bias, requantisation=requantisation, groups=self.groups)


@dataclass
class _Floats:
    shape: tuple[int, int, int]


@dataclass
class _Integers:
    pass


@dataclass
class _Reals:
    """``scale`` and ``zero`` of the DequantizeLinear, and the pointwise operators since."""

    scale: np.float32
    zero: int
    steps: list[onnx.NodeProto] = field(default_factory=list)
    offset: np.ndarray | None = None
    """What Add has added, float64 (channels,)."""
    table: np.ndarray | None = None
    """float32 (channels or 1, integers of the map's range)."""


@dataclass
class _Sums:
    """Accumulators of a convolution, in units of ``scale`` (float32, one an output channel)."""

    node: onnx.NodeProto
    window: Window
    weights: np.ndarray
    bias: np.ndarray
    x_scale: np.float32
    w_scale: np.ndarray
    size: tuple[int, int]
    low: float = -math.inf
    high: float = math.inf
    pools: list[onnx.NodeProto] = field(default_factory=list)
    groups: int = 1


@dataclass
class _Tail:
    pass


@dataclass(frozen=True)
class _Quantised:
    """A constant behind DequantizeLinear."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def real(self) -> np.ndarray:
        """float64 values."""
        shape = [1] * self.values.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        scale, zero = self.scale.astype(np.float64), self.zero.astype(np.int64)
        centred = self.values.astype(np.int64) - (zero.reshape(shape) if zero.size > 1 else zero.reshape(()))
        return centred * (scale.reshape(shape) if scale.size > 1 else scale.reshape(()))


class _Importer:
    def __init__(self, model: onnx.ModelProto, name: str, where: str) -> None:
        self.name = name
        self.where = where
        self.model = model
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.constants: dict[str, np.ndarray] = {}
        self.quantised: dict[str, _Quantised] = {}
        self.steps: list[_Step] = []
        self.names: set[str] = set()
        self.flat = False
        self.map = _Map(0, 0, 0, UINT8)
        self.state: _Floats | _Integers | _Reals | _Sums | _Tail = _Integers()
        self.operators: dict[str, Callable[[onnx.NodeProto], None]] = {
            "Add": self._add,
            "Clip": self._clip,
            "Conv": self._conv,
            "ConvInteger": self._conv_integer,
            "DequantizeLinear": self._dequantise,
            "Flatten": self._flatten,
            "Gemm": self._gemm,
            "Identity": lambda node: None,
            "MatMul": self._matmul,
            "MaxPool": self._max_pool,
            "QGemm": self._qgemm,
            "QLinearAdd": self._qlinear_add,
            "QLinearConv": self._qlinear_conv,
            "QLinearMatMul": self._qlinear_matmul,
            "QLinearSoftmax": self._softmax,
            "QuantizeLinear": self._quantise,
            "Relu": self._relu,
            "Reshape": self._reshape,
            "Softmax": self._softmax,
        }

    # The walk.

    def network(self) -> Network:
        graph = self.model.graph
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelError(f"{self.where}: initialiser {name!r} is sparse; only dense ones are read")
        shape = input_shape(self.model, self.where)
        (source,) = data_inputs(self.model)
        channels, height, width = shape if len(shape) == 3 else (*shape, 1, 1)
        self.flat = len(shape) == 1
        kind = source.type.tensor_type.elem_type
        if kind == TensorProto.FLOAT:
            self.state = _Floats((channels, height, width))
        elif kind in (TensorProto.INT8, TensorProto.UINT8):
            self.map = _Map(channels, height, width, INT8 if kind == TensorProto.INT8 else UINT8)
        else:
            raise ModelError(
                f"{self.where}: input {source.name!r} must be float, int8 or uint8, "
                f"not {TensorProto.DataType.Name(kind).lower()}"
            )
        nodes = self._fold_constants()
        consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in nodes:
            for tensor in node.input:
                consumers.setdefault(tensor, []).append(node)
        outputs = [value.name for value in graph.output]
        if len(outputs) != 1:
            raise ModelError(f"{self.where}: a model must have one output, not {len(outputs)} ({', '.join(outputs)})")
        tensor = source.name
        while tensor != outputs[0]:
            following = consumers.get(tensor, [])
            if not following:
                raise ModelError(f"{self.where}: tensor {tensor!r} leads nowhere; the graph must be a chain")
            self._only(tensor, following)
            self._step(following[0])
            tensor = following[0].output[0]
        if consumers.get(tensor):
            raise self._refusal(consumers[tensor][0], f"goes on from {tensor!r}, the output; the graph must be a chain")
        self._finish()
        layers: list[Layer] = []
        for step in self.steps:
            layers.append(step.frozen(layers[-1].output if layers else step.input.frozen()))
        return Network(name=self.name, layers=tuple(layers))

    def _only(self, tensor: str, following: list[onnx.NodeProto]) -> None:
        if len(following) > 1:
            names = " and ".join(dict.fromkeys(repr(_title(node)) for node in following))
            raise self._refusal(
                following[-1],
                f"makes the graph branch: {tensor!r} goes to {names}; only a chain of layers is supported",
            )

    def _step(self, node: onnx.NodeProto) -> None:
        operator = self.operators.get(node.op_type)
        if operator is None or node.domain not in _DOMAINS:
            domain = f"{node.domain}." if node.domain else ""
            raise self._refusal(
                node,
                f"operator {domain}{node.op_type} is not supported; supported are "
                f"{', '.join(sorted(set(self.operators) - {'Identity', 'QLinearAdd', 'QLinearSoftmax'}))}",
            )
        if any(node.output[1:]):
            raise self._refusal(
                node, f"output {next(filter(None, node.output[1:]))!r} is not supported, only the first is"
            )
        if isinstance(self.state, _Tail) and node.op_type not in ("QuantizeLinear", "DequantizeLinear", "Identity"):
            raise self._refusal(node, "follows Softmax, which runs on the host; nothing can come behind it")
        if isinstance(self.state, _Floats) and node.op_type not in ("QuantizeLinear", "Identity"):
            raise self._refusal(node, "works on the float input; a QuantizeLinear must come first")
        operator(node)

    def _finish(self) -> None:
        state = self.state
        if isinstance(state, _Sums):
            raise self._refusal(state.node, "gives floats; a QuantizeLinear must follow (quantise its output too)")
        if isinstance(state, _Reals) and state.steps:
            raise self._refusal(state.steps[-1], "gives floats; a QuantizeLinear must follow (quantise its output too)")
        if not self.steps:
            raise ModelError(f"{self.where}: holds no layer to build: no convolution, matrix product or max pool")

    def _fold_constants(self) -> list[onnx.NodeProto]:
        """Initialisers, Constant nodes and what is quantised or dequantised of them; returns the other nodes."""
        for tensor in self.model.graph.initializer:
            self.constants[tensor.name] = self._array(tensor, tensor.name)
        rest = []
        for node in self.model.graph.node:
            known = all(name in self.constants or name in self.quantised for name in node.input if name)
            if node.op_type == "Constant":
                self.constants[node.output[0]] = self._constant(node)
            elif node.input and known and node.op_type == "Identity":
                (name,) = node.input
                if name in self.quantised:
                    self.quantised[node.output[0]] = self.quantised[name]
                else:
                    self.constants[node.output[0]] = self.constants[name]
            elif node.input and known and node.op_type == "DequantizeLinear":
                values, scale, zero = self._quantisation(node)
                self.quantised[node.output[0]] = _Quantised(values, scale, zero, self._axis(node, values, scale))
            elif node.input and known and node.op_type == "QuantizeLinear":
                values, scale, zero = self._quantisation(node)
                shape = [1] * values.ndim
                if scale.size > 1:
                    shape[self._axis(node, values, scale)] = -1
                scale, zero = scale.reshape(shape), zero.reshape(shape)
                limits = np.iinfo(zero.dtype)
                rounded = np.rint(values.astype(np.float32) / scale).astype(np.float64) + zero
                self.constants[node.output[0]] = np.clip(rounded, limits.min, limits.max).astype(zero.dtype)
            else:
                rest.append(node)
        return rest

    def _array(self, tensor: onnx.TensorProto, name: str) -> np.ndarray:
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ModelError(f"{self.where}: initialiser {name!r} can't be read: {_line(error)}") from None

    def _constant(self, node: onnx.NodeProto) -> np.ndarray:
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            if attribute.name == "value":
                return self._array(value, _title(node))
            if attribute.name in ("value_float", "value_floats"):
                return np.asarray(value, np.float32)
            if attribute.name in ("value_int", "value_ints"):
                return np.asarray(value, np.int64)
        raise self._refusal(node, "must hold numbers")

    def _quantisation(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, scale and zero point of a QuantizeLinear or DequantizeLinear of a constant."""
        if node.input[0] not in self.constants:
            raise self._refusal(node, f"takes {node.input[0]!r}, already dequantised")
        values = self.constants[node.input[0]]
        kind = values.dtype if node.op_type == "DequantizeLinear" else np.dtype(np.uint8)
        scale, zero = self._scale_and_zero(node, 1, kind)
        if scale.size > 1 and scale.ndim != 1:
            raise self._refusal(node, "blocked quantisation is not supported; per tensor and per channel are")
        return values, scale, np.broadcast_to(zero, scale.shape) if zero.size == 1 else zero

    def _axis(self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray) -> int:
        axis = int(_attribute(node, "axis", 1))
        if scale.size == 1:
            return 0
        axis %= max(values.ndim, 1)
        if not values.ndim or values.shape[axis] != scale.size:
            raise self._refusal(node, f"must have one scale for each index along axis {axis}, not {scale.size}")
        return axis

    # Quantisation.

    def _scale_and_zero(self, node: onnx.NodeProto, first: int, default: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """The node's inputs ``first`` (scale, float32) and ``first + 1`` (zero point), both constants."""
        scale = self._read_constant(node, first, "scale")
        if scale.dtype != np.float32:
            raise self._refusal(node, f"scale must be float32, not {scale.dtype}")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise self._refusal(node, f"scale must be positive and finite, not {scale.min()}")
        if len(node.input) > first + 1 and node.input[first + 1]:
            zero = self._read_constant(node, first + 1, "zero point")
        else:
            output = int(_attribute(node, "output_dtype", 0))
            if output not in (0, TensorProto.INT8, TensorProto.UINT8):
                raise self._refusal(node, "output_dtype must be int8 or uint8")
            zero = np.zeros((), helper.tensor_dtype_to_np_dtype(output) if output else default)
        return scale, zero

    def _read_constant(self, node: onnx.NodeProto, index: int, what: str) -> np.ndarray:
        name = node.input[index] if len(node.input) > index else ""
        if name in self.constants:
            return self.constants[name]
        raise self._refusal(
            node, f"{what} must be a constant of the model" + (f", not computed ({name!r})" if name else "")
        )

    def _per_tensor(self, node: onnx.NodeProto, first: int, default: np.dtype) -> tuple[np.float32, int, IntegerType]:
        """Scale, zero point and type of a feature map, from the inputs ``first`` and ``first + 1``."""
        scale, zero = self._scale_and_zero(node, first, default)
        if scale.size != 1 or zero.size != 1:
            raise self._refusal(
                node, f"a feature map must have one scale, not {max(scale.size, zero.size)} (per channel)"
            )
        if zero.dtype not in _TYPES:
            raise self._refusal(node, f"feature maps must be int8 or uint8, not {zero.dtype}")
        return np.float32(scale.item()), int(zero.item()), _TYPES[zero.dtype]

    def _label(self, node: onnx.NodeProto, scale: np.float32 | None, zero: int) -> None:
        """Note, or compare, the current map's scale and zero point."""
        here = self.map
        if here.zero_point is not None and here.zero_point != zero:
            raise self._refusal(
                node, f"zero point must be {here.zero_point}, with which its input was quantised, not {zero}"
            )
        if None not in (here.scale, scale) and here.scale != scale:
            raise self._refusal(node, f"scale must be {here.scale}, with which its input was quantised, not {scale}")
        maps = [here]
        for step in reversed(self.steps):  # a pool's input has its output's label
            if step.weights is not None:
                break
            maps.append(step.input)
        for each in maps:
            each.zero_point = zero
            each.scale = scale if each.scale is None else each.scale

    def _dequantise(self, node: onnx.NodeProto) -> None:
        if isinstance(self.state, _Tail):
            return
        if not isinstance(self.state, _Integers):
            raise self._refusal(node, "must take integers")
        if self.map.type == INT32:  # only at the end: nothing takes what it gives
            self.state = _Tail()
            return
        scale, zero, _ = self._per_tensor(node, 1, self.map.type.dtype)
        self._label(node, scale, zero)
        self.state = _Reals(scale, zero)

    def _quantise(self, node: onnx.NodeProto) -> None:
        state = self.state
        if isinstance(state, _Tail):
            return
        scale, zero, kind = self._per_tensor(node, 1, np.dtype(np.uint8))
        if isinstance(state, _Integers):
            raise self._refusal(node, "must take floats")
        if isinstance(state, _Floats):
            self.map = _Map(*state.shape, kind, zero, scale)
        elif isinstance(state, _Sums):
            self._requantise_sums(state, scale, zero, kind)
        else:
            self._requantise_reals(node, state, scale, zero, kind)
        self.state = _Integers()

    def _requantise_sums(self, state: _Sums, scale: np.float32, zero: int, kind: IntegerType) -> None:
        low, high = _quantised(np.array([state.low, state.high], np.float32), scale, zero, kind).tolist()
        self._emit_conv(state, scale, zero, kind, low, high)
        for pool in state.pools:
            self._emit_pool(pool)

    def _requantise_reals(
        self, node: onnx.NodeProto, state: _Reals, scale: np.float32, zero: int, kind: IntegerType
    ) -> None:
        values = self._values()
        wanted = _quantised(self._table(state), scale, zero, kind)
        conv = next((step for step in reversed(self.steps) if step.weights is not None), None)
        low, high = int(wanted.min()), int(wanted.max())
        clips = (wanted == np.clip(values, low, high)).all() and (kind, zero) == (self.map.type, self.map.zero_point)
        if clips and conv is not None and conv.requantisation is not None:
            conv.low, conv.high = max(conv.low, low), min(conv.high, high)
            for each in [conv.output, *(step.output for step in self.steps[self.steps.index(conv) :])]:
                each.scale = scale
        elif not (clips and scale == state.scale and (wanted == values).all()):
            self._emit_table(state.steps[0] if state.steps else node, state, wanted, scale, zero, kind)

    # Layers.

    def _unique(self, node: onnx.NodeProto) -> str:
        name = base = _title(node)
        count = 1
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        return name

    def _emit_conv(
        self, sums: _Sums, scale: np.float32 | None, zero: int, kind: IntegerType, low: int, high: int
    ) -> None:
        output = _Map(len(sums.weights), *sums.size, kind, zero, scale)
        step = _Step(self._unique(sums.node), self.map, output, sums.window, sums.weights, sums.bias)
        step.groups = sums.groups
        if scale is not None:
            bound = self._bound(step)
            factor = sums.x_scale * sums.w_scale / scale
            if not np.isfinite(factor).all():
                raise self._refusal(sums.node, "x_scale * w_scale / y_scale must be finite in float32")
            significand, shift = multiplier(factor, bound)
            significand, shift = (np.broadcast_to(a, len(sums.weights)).copy() for a in (significand, shift))
            step.requantisation = Requantisation(
                significand=significand, shift=shift, zero_point=zero, low=low, high=high
            )
            step.low, step.high = low, high
        self.steps.append(step)
        self.map = output

    def _bound(self, step: _Step) -> int:
        """The largest magnitude of the accumulators of ``step``."""
        frozen = step.frozen(step.input.frozen())
        assert isinstance(frozen, Conv)
        return accumulator_bound(frozen)

    def _emit_pool(self, node: onnx.NodeProto) -> None:
        window, size = self._pool_window(node, self.map.height, self.map.width)
        source = self.map
        self.map = _Map(source.channels, *size, source.type, source.zero_point, source.scale)
        self.steps.append(_Step(self._unique(node), source, self.map, window))

    def _emit_table(
        self,
        node: onnx.NodeProto,
        state: _Reals,
        wanted: np.ndarray,
        scale: np.float32,
        zero: int,
        kind: IntegerType,
    ) -> None:
        """A 1x1 convolution of each channel with itself that does what ``wanted`` says, integer by integer.

        Of each channel ``clip(round((w * x + b) * significand / 2**shift) + zero)`` is compared with the table
        for each weight ``w`` from 1 to 255, until all integers agree; ``b`` is the offset in steps of ``w``, rarely
        one more or less, and the factor is moved where the table asks for it.
        """
        channels = self.map.channels
        offset = np.zeros(channels) if state.offset is None else state.offset
        distinct, inverse = np.unique(offset, return_inverse=True)
        if len(wanted) == 1:
            wanted = np.broadcast_to(wanted, (channels, wanted.shape[1]))
        first = np.array([int(np.argmax(inverse == index)) for index in range(len(distinct))])
        wanted = wanted[first]
        values = self._values() - state.zero
        low, high = int(wanted.min()), int(wanted.max())
        found = np.zeros((4, len(distinct)), np.int64)
        left = np.arange(len(distinct))
        # Without the clip, outputs ask for products between these.
        least = np.where(wanted == low, -np.inf, wanted - zero - 0.5)
        most = np.where(wanted == high, np.inf, wanted - zero + 0.5)
        for weight, more in itertools.product(range(1, 256), (0, 1, -1)):
            bias = np.rint(distinct[left] / float(state.scale) * weight) + more
            bias = np.clip(bias, INT32.minimum, INT32.maximum).astype(np.int64)
            sums = weight * values + bias[:, None]
            bound = int(np.abs(sums).max())
            factor = _factor(sums, least[left], most[left], float(state.scale) / weight / float(scale))
            significand, shift = multiplier(factor, bound)
            rule = Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high)
            same = (requantise(sums, rule, bound) == wanted[left]).all(axis=1)
            found[:, left[same]] = np.stack((np.full(len(left), weight), bias, significand, shift))[:, same]
            left = left[~same]
            if not len(left):
                break
        else:
            raise self._refusal(
                node, f"can't be done in integers: no multiplier gives what it computes at scale {scale}"
            )
        weights, bias, significand, shift = found[:, inverse]
        output = _Map(channels, self.map.height, self.map.width, kind, zero, scale)
        step = _Step(
            self._unique(node),
            self.map,
            output,
            Window(kernel=(1, 1)),
            np.diag(weights).reshape(channels, channels, 1, 1),
            bias,
            Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high),
            low,
            high,
        )
        self.steps.append(step)
        self.map = output

    def _max_pool(self, node: onnx.NodeProto) -> None:
        if self.flat:
            raise self._refusal(node, "must come before Flatten")
        if isinstance(self.state, _Sums):
            # Quantising keeps the order, so the pool may as well come after it.
            self.state.pools.append(node)
        else:
            self._emit_pool(node)

    def _pool_window(self, node: onnx.NodeProto, height: int, width: int) -> tuple[Window, tuple[int, int]]:
        kernel = tuple(_attribute(node, "kernel_shape", ()))
        if int(_attribute(node, "storage_order", 0)):
            raise self._refusal(node, "storage_order 1 is not supported, 0 is")
        window, size = self._window(node, kernel, height, width)
        if any(p >= k for p, k in zip(window.padding[:2], kernel, strict=True)):
            raise self._refusal(node, f"padding must be smaller than the kernel {_by(kernel)}, not {window.padding}")
        return window, size

    def _window(
        self, node: onnx.NodeProto, kernel: tuple[int, ...], height: int, width: int
    ) -> tuple[Window, tuple[int, int]]:
        """The node's window, ``auto_pad`` and ``ceil_mode`` resolved, and its output's rows and columns."""
        if len(kernel) != 2:
            raise self._refusal(node, f"must be two-dimensional, not {len(kernel)}-dimensional")
        dilations = tuple(_attribute(node, "dilations", (1, 1)))
        if dilations != (1, 1):
            raise self._refusal(node, f"dilation {_by(dilations)} is not supported, 1x1 is")
        stride = tuple(_attribute(node, "strides", (1, 1)))
        mode = _attribute(node, "auto_pad", b"NOTSET").decode(errors="replace")
        if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise self._refusal(node, f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not {mode!r}")
        pads = tuple(_attribute(node, "pads", (0, 0, 0, 0))) if mode == "NOTSET" else (0, 0, 0, 0)
        if min(pads) < 0:
            raise self._refusal(node, f"padding must be 0 or more, not {pads}")
        ceil = bool(_attribute(node, "ceil_mode", 0))
        if ceil and mode == "VALID":
            # ONNX ignores ceil_mode here, ONNX Runtime does not.
            raise self._refusal(node, "ceil_mode with auto_pad VALID is ambiguous; give pads instead")
        before, after, size = [], [], []
        for axis, extent in enumerate((height, width)):
            k, s, start, end = kernel[axis], stride[axis], pads[axis], pads[axis + 2]
            if mode.startswith("SAME"):
                count = -(-extent // s)
                total = max((count - 1) * s + k - extent, 0)
                start = total // 2 if mode == "SAME_UPPER" else total - total // 2
            else:
                room = extent + start + end - k
                count = (-(-room // s) if ceil else room // s) + 1
                if ceil and (count - 1) * s >= extent + start:
                    count -= 1  # a window that would start in the padding behind the map
            if count < 1:
                raise self._refusal(node, f"kernel {_by(kernel)} does not fit its {height}x{width} input")
            before.append(start)
            after.append(max(0, (count - 1) * s + k - extent - start))  # what windows reach, no more
            size.append(count)
        window = Window(kernel=(kernel[0], kernel[1]), stride=(stride[0], stride[1]), padding=(*before, *after))
        return window, (size[0], size[1])

    # Convolutions and matrix products.

    def _operand(self, node: onnx.NodeProto) -> _Reals:
        """The float input of a convolution or a matrix product, which must be a plain DequantizeLinear."""
        state = self.state
        if not isinstance(state, _Reals):
            last = f"{_title(state.node)!r} gives floats" if isinstance(state, _Sums) else "it gets integers"
            raise self._refusal(node, f"must take a quantised input (QuantizeLinear, DequantizeLinear), but {last}")
        if state.steps:
            raise self._refusal(node, f"must take a quantised input, but {_title(state.steps[-1])!r} gives floats")
        return state

    def _weights(
        self, node: onnx.NodeProto, values: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """int64 weights without zero point, and their float32 scales, (M,) or (1,); ``axis``: of M."""
        if values.dtype not in _TYPES:
            raise self._refusal(node, f"weights must be int8 or uint8, not {values.dtype}")
        outputs = values.shape[axis]
        for what, array in (("scale", scale), ("zero point", zero)):
            if array.size not in (1, outputs):
                raise self._refusal(
                    node, f"weights must have 1 {what} or {outputs}, one an output channel, not {array.size}"
                )
        shape = [1] * values.ndim
        shape[axis] = -1
        weights = values.astype(np.int64) - zero.astype(np.int64).reshape(shape)
        return weights, scale.reshape(-1)

    def _float_weights(self, node: onnx.NodeProto, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """As ``_weights``, for a weight that comes through DequantizeLinear."""
        constant = self.quantised.get(node.input[1])
        if constant is None:
            kind = "float" if node.input[1] in self.constants else "computed"
            raise self._refusal(node, f"weights {node.input[1]!r} must be quantised (int8 or uint8), not {kind}")
        if constant.scale.size > 1 and constant.axis != axis % constant.values.ndim:
            raise self._refusal(
                node, f"weights must have a scale for each output channel (axis {axis}), not {constant.axis}"
            )
        return self._weights(node, constant.values, constant.scale, constant.zero, axis)

    def _bias(self, node: onnx.NodeProto, index: int, outputs: int, unit: np.ndarray) -> np.ndarray:
        """The int32 bias (as int64) of the input ``index``, in steps of ``unit``, float32 (M,) or (1,).

        A bias in other steps (float, or of another scale) is rounded to these.
        """
        name = node.input[index] if len(node.input) > index else ""
        if not name:
            return np.zeros(outputs, np.int64)
        constant = self.quantised.get(name)
        if constant is not None:
            if constant.values.size not in (1, outputs):
                raise self._refusal(node, f"bias must have {outputs} values, not {constant.values.size}")
            scale = constant.scale.reshape(-1)
            if constant.values.dtype == np.int32 and not constant.zero.any() and (scale == unit).all():
                return np.broadcast_to(constant.values.reshape(-1).astype(np.int64), outputs).copy()
            values = constant.real()
        elif name in self.constants:
            values = self.constants[name].astype(np.float64)
        else:
            raise self._refusal(node, f"bias must be a constant of the model, not computed ({name!r})")
        values = self._by_channel(node, values, outputs, flat=True)
        return self._in_steps(node, values, unit)

    def _in_steps(self, node: onnx.NodeProto, values: np.ndarray, unit: np.ndarray) -> np.ndarray:
        steps = np.rint(values / unit.astype(np.float64))
        if not (np.abs(steps) <= INT32.maximum).all():
            raise self._refusal(
                node, "bias must fit int32 in steps of x_scale * w_scale; the weights' scale is too small"
            )
        return steps.astype(np.int64)

    def _by_channel(self, node: onnx.NodeProto, values: np.ndarray, channels: int, *, flat: bool) -> np.ndarray:
        """A constant that is added to a map, as one number a channel: ``(M,)``."""
        shape = values.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        expected = (channels,) if flat else (channels, 1, 1)
        if values.size != 1 and shape != expected and not (flat and values.shape == (channels,)):
            raise self._refusal(
                node, f"a constant must have one value for each of {channels} channels, not shape {shape}"
            )
        return np.broadcast_to(values.reshape(-1), channels).astype(np.float64)

    def _accumulate(
        self,
        node: onnx.NodeProto,
        weights: np.ndarray,
        bias: np.ndarray,
        x_scale: np.float32,
        w_scale: np.ndarray,
    ) -> _Sums:
        """The sums of a Conv-like node over the current map, ``weights`` as (M, C // groups, Kh, Kw)."""
        if self.flat:
            raise self._refusal(node, "must come before Flatten")
        groups = int(_attribute(node, "group", 1))
        if weights.ndim != 4:
            raise self._refusal(node, f"must be two-dimensional, not {weights.ndim - 2}-dimensional")
        channels = self.map.channels
        if groups < 1 or channels % groups or len(weights) % groups:
            raise self._refusal(
                node, f"group must divide its {channels} input and {len(weights)} output channels, not {groups}"
            )
        if weights.shape[1] != channels // groups:
            of_a_group = f" of each of {groups} groups" if groups > 1 else ""
            raise self._refusal(
                node, f"weights must be for {channels // groups} channels{of_a_group}, not {weights.shape[1]}"
            )
        window, size = self._window(node, weights.shape[2:], self.map.height, self.map.width)
        return _Sums(node, window, weights, bias, x_scale, w_scale, size, groups=groups)

    def _multiply(
        self,
        node: onnx.NodeProto,
        matrix: np.ndarray,
        bias: np.ndarray,
        x_scale: np.float32,
        w_scale: np.ndarray,
    ) -> _Sums:
        """The sums of a matrix product: a convolution whose kernel is the whole map, ``matrix`` as (M, C*H*W)."""
        here = self.map
        if not self.flat:
            raise self._refusal(node, "must follow Flatten (or a Reshape to two dimensions)")
        inputs = here.channels * here.height * here.width
        if matrix.ndim != 2 or matrix.shape[1] != inputs:
            raise self._refusal(node, f"matrix must have {inputs} rows, one an input value, not {matrix.shape[-1]}")
        weights = matrix.reshape(len(matrix), here.channels, here.height, here.width)
        window = Window(kernel=(here.height, here.width), stride=(here.height, here.width))
        return _Sums(node, window, weights, bias, x_scale, w_scale, (1, 1))

    def _conv(self, node: onnx.NodeProto) -> None:
        operand = self._operand(node)
        weights, w_scale = self._float_weights(node, 0)
        bias = self._bias(node, 2, len(weights), operand.scale * w_scale)
        self.state = self._accumulate(node, weights, bias, operand.scale, w_scale)

    def _gemm(self, node: onnx.NodeProto) -> None:
        operand = self._operand(node)
        transposed = self._gemm_attributes(node)
        matrix, w_scale = self._float_weights(node, 0 if transposed else 1)
        matrix = matrix if transposed else matrix.T
        bias = self._bias(node, 2, len(matrix), operand.scale * w_scale)
        self.state = self._multiply(node, matrix, bias, operand.scale, w_scale)

    def _matmul(self, node: onnx.NodeProto) -> None:
        if node.input[0] in self.quantised or node.input[0] in self.constants:
            raise self._refusal(node, "the constant matrix must be the second operand")
        operand = self._operand(node)
        matrix, w_scale = self._float_weights(node, 1)
        self.state = self._multiply(node, matrix.T, np.zeros(matrix.shape[1], np.int64), operand.scale, w_scale)

    def _gemm_attributes(self, node: onnx.NodeProto) -> bool:
        """Whether the matrix is transposed; other attributes must be the usual ones."""
        for name, usual in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
            value = _attribute(node, name, usual)
            if value != usual:
                raise self._refusal(node, f"{name} must be {usual}, not {value}")
        return bool(_attribute(node, "transB", 0))

    def _integer_input(self, node: onnx.NodeProto, scale: np.float32 | None, zero: int, kind: IntegerType) -> None:
        if not isinstance(self.state, _Integers):
            raise self._refusal(node, "must take integers")
        if kind != self.map.type:
            raise self._refusal(node, f"zero point must be {self.map.type} as its input is, not {kind}")
        self._label(node, scale, zero)

    def _integer_weights(self, node: onnx.NodeProto, first: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights, scale and zero point from the inputs ``first`` and on of a QOperator node."""
        values = self._read_constant(node, first, "weights")
        scale, zero = self._scale_and_zero(node, first + 1, values.dtype)
        return self._weights(node, values, scale, zero, axis)

    def _qlinear_conv(self, node: onnx.NodeProto) -> None:
        x_scale, x_zero, x_kind = self._per_tensor(node, 1, self.map.type.dtype)
        self._integer_input(node, x_scale, x_zero, x_kind)
        weights, w_scale = self._integer_weights(node, 3, 0)
        scale, zero, kind = self._per_tensor(node, 6, self.map.type.dtype)
        bias = np.zeros(len(weights), np.int64)
        if len(node.input) > 8 and node.input[8]:
            bias = self._integer_bias(node, 8, len(weights))
        sums = self._accumulate(node, weights, bias, x_scale, w_scale)
        self._requantise_sums(sums, scale, zero, kind)

    def _integer_bias(self, node: onnx.NodeProto, index: int, outputs: int) -> np.ndarray:
        bias = self._read_constant(node, index, "bias")
        if bias.dtype != np.int32 or bias.size not in (1, outputs):
            raise self._refusal(node, f"bias must be {outputs} int32, not {bias.size} {bias.dtype}")
        return np.broadcast_to(bias.reshape(-1), outputs).astype(np.int64)

    def _qlinear_matmul(self, node: onnx.NodeProto) -> None:
        if node.input[0] in self.constants:
            raise self._refusal(node, "the constant matrix must be the second operand")
        x_scale, x_zero, x_kind = self._per_tensor(node, 1, self.map.type.dtype)
        self._integer_input(node, x_scale, x_zero, x_kind)
        matrix, w_scale = self._integer_weights(node, 3, -1)
        scale, zero, kind = self._per_tensor(node, 6, self.map.type.dtype)
        sums = self._multiply(node, matrix.T, np.zeros(matrix.shape[-1], np.int64), x_scale, w_scale)
        self._requantise_sums(sums, scale, zero, kind)

    def _qgemm(self, node: onnx.NodeProto) -> None:
        x_scale, x_zero, x_kind = self._per_tensor(node, 1, self.map.type.dtype)
        self._integer_input(node, x_scale, x_zero, x_kind)
        transposed = self._gemm_attributes(node)
        matrix, w_scale = self._integer_weights(node, 3, 0 if transposed else 1)
        matrix = matrix if transposed else matrix.T
        if len(node.input) < 8 or not node.input[7]:
            raise self._refusal(node, "gives floats; its output must be quantised too (y_scale)")
        scale, zero, kind = self._per_tensor(node, 7, self.map.type.dtype)
        bias = np.zeros(len(matrix), np.int64)
        if node.input[6]:
            bias = self._integer_bias(node, 6, len(matrix))
        self._requantise_sums(self._multiply(node, matrix, bias, x_scale, w_scale), scale, zero, kind)

    def _conv_integer(self, node: onnx.NodeProto) -> None:
        zero = self._read_constant(node, 2, "zero point") if len(node.input) > 2 and node.input[2] else np.zeros(1, int)
        if zero.size != 1:
            raise self._refusal(node, f"a feature map must have one zero point, not {zero.size}")
        self._integer_input(node, None, int(zero.item()), self.map.type)
        values = self._read_constant(node, 1, "weights")
        w_zero = np.zeros(1, values.dtype)
        if len(node.input) > 3 and node.input[3]:
            w_zero = self._read_constant(node, 3, "weights' zero point")
        weights, w_scale = self._weights(node, values, np.ones(1, np.float32), w_zero, 0)
        sums = self._accumulate(node, weights, np.zeros(len(weights), np.int64), np.float32(1), w_scale)
        self._emit_conv(sums, None, 0, INT32, INT32.minimum, INT32.maximum)
        if self._bound(self.steps[-1]) > INT32.maximum:
            raise self._refusal(node, "accumulators must fit int32; its kernel has too many values")

    # Pointwise operators.

    def _values(self) -> np.ndarray:
        """All integers that the current map can hold, int64."""
        conv = next((step for step in reversed(self.steps) if step.weights is not None), None)
        low, high = (self.map.type.minimum, self.map.type.maximum) if conv is None else (conv.low, conv.high)
        return np.arange(low, high + 1)

    def _table(self, state: _Reals) -> np.ndarray:
        if state.table is not None:
            return state.table
        return ((self._values() - state.zero).astype(np.float32) * state.scale)[None]

    def _bounded(self, node: onnx.NodeProto, low: float, high: float) -> None:
        state = self.state
        if isinstance(state, _Sums):
            state.low, state.high = (min(max(bound, low), high) for bound in (state.low, state.high))
        elif isinstance(state, _Reals):
            state.table = np.minimum(np.maximum(self._table(state), np.float32(low)), np.float32(high))
            state.steps.append(node)
        else:
            raise self._refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")

    def _relu(self, node: onnx.NodeProto) -> None:
        self._bounded(node, 0.0, math.inf)

    def _clip(self, node: onnx.NodeProto) -> None:
        bounds = []
        for index, (name, unbounded) in enumerate((("min", -math.inf), ("max", math.inf)), start=1):
            bound = _attribute(node, name, unbounded)
            if len(node.input) > index and node.input[index]:
                constant = self.quantised.get(node.input[index])
                values = constant.real() if constant else self._read_constant(node, index, name)
                if values.size != 1:
                    raise self._refusal(node, f"{name} must be one number, not {values.size}")
                bound = float(values.item())
            if math.isnan(bound):
                raise self._refusal(node, f"{name} must be a number, not NaN")
            bounds.append(float(bound))
        self._bounded(node, *bounds)

    def _add(self, node: onnx.NodeProto) -> None:
        names = [name for name in node.input if name in self.constants or name in self.quantised]
        if len(names) != 1:
            raise self._refusal(
                node, "must add a constant to a feature map; the sum of two feature maps is not supported"
            )
        values = self.quantised[names[0]].real() if names[0] in self.quantised else self.constants[names[0]]
        state = self.state
        if isinstance(state, _Sums):
            if (state.low, state.high) != (-math.inf, math.inf):
                raise self._refusal(node, "can't follow Relu or Clip without a QuantizeLinear between")
            values = self._by_channel(node, values, len(state.weights), flat=self.flat)
            state.bias = state.bias + self._in_steps(node, values, state.x_scale * state.w_scale)
            if np.abs(state.bias).max() > INT32.maximum:
                raise self._refusal(node, "bias must fit int32 in steps of x_scale * w_scale")
        elif isinstance(state, _Reals):
            self._add_reals(node, state, self._by_channel(node, values, self.map.channels, flat=self.flat))
        else:
            raise self._refusal(node, "must work on dequantised values (between DequantizeLinear and QuantizeLinear)")

    def _add_reals(self, node: onnx.NodeProto, state: _Reals, values: np.ndarray) -> None:
        if state.steps:
            raise self._refusal(node, f"can't follow {_title(state.steps[-1])!r} without a QuantizeLinear between")
        state.table = self._table(state) + values.astype(np.float32)[:, None]
        state.offset = values
        state.steps.append(node)

    def _qlinear_add(self, node: onnx.NodeProto) -> None:
        """com.microsoft QLinearAdd of a constant: DequantizeLinear, Add and QuantizeLinear in one."""
        sides = [side for side in (0, 3) if node.input[side] not in self.constants]
        if len(sides) != 1:
            raise self._refusal(
                node, "must add a constant to a feature map; the sum of two feature maps is not supported"
            )
        scale, zero, kind = self._per_tensor(node, sides[0] + 1, self.map.type.dtype)
        self._integer_input(node, scale, zero, kind)
        other = 3 - sides[0]
        c_scale, c_zero, _ = self._per_tensor(node, other + 1, self.map.type.dtype)
        values = (self.constants[node.input[other]].astype(np.int64) - c_zero).astype(np.float32) * c_scale
        state = _Reals(scale, zero)
        self._add_reals(node, state, self._by_channel(node, values, self.map.channels, flat=self.flat))
        scale, zero, kind = self._per_tensor(node, 6, self.map.type.dtype)
        self._requantise_reals(node, state, scale, zero, kind)

    # Shapes.

    def _flatten(self, node: onnx.NodeProto) -> None:
        rank = 2 if self.flat else 4
        axis = int(_attribute(node, "axis", 1))
        if axis % rank != 1:
            raise self._refusal(node, f"axis must be 1, not {axis}")
        self.flat = True

    def _reshape(self, node: onnx.NodeProto) -> None:
        shape = self._read_constant(node, 1, "shape").tolist()
        size = self._current_size()
        kept = bool(_attribute(node, "allowzero", 0))
        if (
            len(shape) != 2
            or shape[1] not in (-1, size)
            or (shape[0] == -1) == (shape[1] == -1)
            or (kept and 0 in shape)
        ):
            raise self._refusal(node, f"must flatten to (batch, {size}) by shape [0, -1] or [-1, {size}], not {shape}")
        self.flat = True

    def _current_size(self) -> int:
        if isinstance(self.state, _Sums):
            channels, (height, width) = len(self.state.weights), self.state.size
            for pool in self.state.pools:
                _, (height, width) = self._pool_window(pool, height, width)
            return channels * height * width
        return self.map.channels * self.map.height * self.map.width

    def _softmax(self, node: onnx.NodeProto) -> None:
        state = self.state
        if isinstance(state, _Sums) or (isinstance(state, _Reals) and state.steps):
            raise self._refusal(node, "must take a quantised input; the hardware ends at the last integer tensor")
        self.state = _Tail()

    def _refusal(self, node: onnx.NodeProto, why: str) -> ModelError:
        return ModelError(f"{self.where}: {node.op_type} node {_title(node)!r}: {why}")


# Numbers.


def multiplier(factor: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Significands (24 bits) and shifts of float32 ``factor``, for accumulators of magnitude ``bound`` at most.

    From 2**18 on, every accumulator but 0 saturates any output of up to 16 bits: such factors become 2**18.
    Shifts end where every accumulator gives 0.
    """
    fraction, exponent = np.frexp(np.minimum(factor.astype(np.float64), 2.0**18))
    significand = np.ldexp(fraction, 24).astype(np.int64)
    shift = np.where(significand == 0, 1 << 16, 24 - exponent.astype(np.int64))
    significand = np.where(significand == 0, 1 << 23, significand)
    # |bound * significand| < 2**(bits + 24): a shift by one bit more leaves less than a half.
    return significand, np.minimum(shift, bound.bit_length() + 25)


def _factor(sums: np.ndarray, least: np.ndarray, most: np.ndarray, nominal: float) -> np.ndarray:
    """float32 factors, one a row, with which ``sums`` lie between ``least`` and ``most`` if any do.

    ``nominal`` where that is such a factor, else the middle of those that are.
    """
    positive = np.maximum(sums, 1)
    negative = np.minimum(sums, -1)
    low = np.where(sums > 0, least / positive, np.where(sums < 0, most / negative, -np.inf)).max(axis=1)
    high = np.where(sums > 0, most / positive, np.where(sums < 0, least / negative, np.inf)).min(axis=1)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high) & (low > 0)
    inside = (low < nominal) & (nominal < high)
    middle = np.where(bounded, low, nominal) / 2 + np.where(bounded, high, nominal) / 2
    return np.where(inside, nominal, middle).astype(np.float32)


def _quantised(values: np.ndarray, scale: np.float32, zero: int, kind: IntegerType) -> np.ndarray:
    """ONNX QuantizeLinear of float32 ``values``, as int64."""
    steps = np.rint(values / scale).astype(np.float64)
    return np.clip(steps + zero, kind.minimum, kind.maximum).astype(np.int64)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return helper.get_attribute_value(attribute)
    return default


def _title(node: onnx.NodeProto) -> str:
    """The readable part of a node's name; of its output's where it has none."""
    name = node.name or next(filter(None, node.output), "") or node.op_type
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name.removesuffix(suffix)
            break
    return name.lstrip("/") or node.op_type


def _by(pair: Iterable[int]) -> str:
    return "x".join(map(str, pair))


def _line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]
