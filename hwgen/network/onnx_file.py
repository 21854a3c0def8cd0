"""ONNX files: reading and checking them, and what nodes say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from hwgen.errors import ModelError

_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "QGemm"}
_SUFFIXES = ("_quant", "_quantized", "_QuantizeLinear_Input", "_QuantizeLinear_Output", "_QuantizeLinear")


def read(path: Path) -> onnx.ModelProto:
    """The model in the file ``path``, checked; raises ModelError where it can't be read or is not valid ONNX."""
    try:
        model = onnx.load(str(path), format="protobuf")
    except FileNotFoundError as error:
        missing = "no such file" if not path.exists() else f"its external data is missing ({line(error)})"
        raise ModelError(f"{path}: {missing}") from None
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror or line(error)}") from None
    except (DecodeError, onnx.checker.ValidationError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: not an ONNX file, or cut short ({line(error)})") from None
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
        yield from (entry.name for entry in node.attribute)
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
    rounded_up = any(attribute(node, "ceil_mode", 0) for node in model.graph.node)
    try:
        onnx.checker.check_model(model, full_check=not rounded_up)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{name}: not a valid ONNX model: {line(error)}") from None
    except (ValueError, RuntimeError) as error:  # e.g. a model past protobuf's 2 GB
        raise ModelError(f"{name}: the ONNX checker can't take it: {line(error)}") from None


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


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The node's attribute, or ``default`` where it has none of this name."""
    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def title(node: onnx.NodeProto) -> str:
    """The readable part of a node's name; of its output's where it has none."""
    name = node.name or next(filter(None, node.output), "") or node.op_type
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name.removesuffix(suffix)
            break
    return name.lstrip("/") or node.op_type


def by(pair: Iterable[int]) -> str:
    """``3x3``."""
    return "x".join(map(str, pair))


def line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    lines = (text.strip() for text in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]
