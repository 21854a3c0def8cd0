"""Reader of ONNX files with their external tensor data, and helpers for the contents of graphs and nodes.

Functions that a model defines itself are inlined: their nodes replace the calls, as ONNX Runtime reads the model.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, defs, external_data_helper, helper, numpy_helper

from hwgen.errors import ModelError

_Message = TypeVar("_Message", bound=Message)

LARGEST_FILE = (1 << 31) - 1
"""Maximum size of an ONNX file, in bytes: protobuf accepts no more."""

_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "QGemm", "Quant", "IntQuant", "BipolarQuant"}
"""Set of names of the ONNX operators that only a quantised model contains."""
DOMAINS = {"", "ai.onnx", "com.microsoft"}
"""Set of domains of ONNX operators that hwgen knows."""
_SUFFIXES = ("_quant", "_quantized", "_QuantizeLinear_Input", "_QuantizeLinear_Output", "_QuantizeLinear")
"""Tuple of suffixes that quantiser tools add to the names of nodes and tensors; `title` removes them."""


def read(path: Path) -> onnx.ModelProto:
    """Return the ONNX model in the file ``path``, with its external data, and with its functions inlined.

    Raises
    ------
    ModelError
        If the file can't be read or is not an ONNX file, or if its external data are missing, cut short or outside its
        folder.
    """
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size > LARGEST_FILE:
            raise ModelError(
                f"{path}: {status.st_size:,} bytes are more than an ONNX file may have ({LARGEST_FILE:,}); "
                "store the weights in a separate file as external data"
            )
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ModelError(f"{path}: can't be read: it is not a regular file")
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: can't be read: {error.strerror or line(error)}") from None
    except (DecodeError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: not an ONNX file, or cut short ({_first_clause(error)})") from None
    if not model.ByteSize():
        raise ModelError(f"{path}: an empty file, not an ONNX model")
    if not all(isinstance(name, str) for name in _texts(model)):
        raise ModelError(f"{path}: not a valid ONNX model: names must be UTF-8")
    if not {tensor.name for tensor in model.graph.initializer} <= {value.name for value in model.graph.input}:
        model.ir_version = max(model.ir_version, 4)  # before, each initialiser was an input; quantisers add others
    fetch_external(model, path)
    try:
        return inlined(model)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """Yield the names of all nodes, tensors, operators and dimensions in an ONNX model, as bytes if not UTF-8."""
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
    """Return whether an ONNX model has a float input and contains no quantised operators."""
    if any(node.op_type in _QUANTISED or node.op_type.startswith("QLinear") for node in model.graph.node):
        return False
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in data_inputs(model))


def data_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return a list of the inputs of an ONNX graph that are not initialisers."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initialised]


def opset(model: onnx.ModelProto) -> int:
    """Return the version of the ONNX operator set that a model uses; 1 if the model names none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def input_shape(source: onnx.ValueInfoProto, where: str) -> tuple[int, ...]:
    """Return a tuple of the fixed sizes of a model's input without the batch, for example ``(C, H, W)`` or ``(C,)``.

    ``(C, L)`` is possible, too, and any order.
    """
    tensor = source.type.tensor_type
    if not tensor.HasField("shape"):
        raise ModelError(f"{where}: input {source.name!r} has no shape; give it (batch, channels, height, width)")
    dims = tensor.shape.dim
    shown = shape_text(dims)
    if len(dims) not in (2, 3, 4):
        raise ModelError(
            f"{where}: input {source.name!r} must be (batch, channels, height, width) or "
            f"(batch, channels, length) or (batch, channels), not ({shown})"
        )
    if any(d.dim_value < 1 for d in dims[1:]):
        raise ModelError(
            f"{where}: input {source.name!r} has a dynamic shape ({shown}): "
            "only the batch may be symbolic; --shape gives the other sizes"
        )
    return tuple(d.dim_value for d in dims[1:])


def shape_text(dims: Iterable[onnx.TensorShapeProto.Dimension]) -> str:
    """Return a tensor's dimensions as text, as in ``batch, 3, 8, ?``."""
    return ", ".join(dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in dims)


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return the value of an ONNX node's attribute, or ``default`` if the node has no attribute of this name."""
    for entry in node.attribute:
        if entry.name == name:
            return helper.get_attribute_value(entry)
    return default


def text(node: onnx.NodeProto, name: str, default: str) -> str:
    """Return an ONNX node's attribute as text, or ``default`` if the node has no attribute of this name."""
    value = attribute(node, name, default)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def constant_array(node: onnx.NodeProto) -> np.ndarray | None:
    """Return the array that an ONNX Constant node holds; ``None`` if it does not hold numbers."""
    for entry in node.attribute:
        value = helper.get_attribute_value(entry)
        if entry.name == "value":
            return numpy_helper.to_array(value)
        if entry.name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if entry.name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
    return None


def copied(message: _Message) -> _Message:
    """Return a copy of a protobuf message, such as an ONNX node."""
    result = type(message)()
    result.CopyFrom(message)
    return result


class UnusedNames:
    """Source of new tensor names for an ONNX model; each call returns a name that no tensor has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._names = {name for node in graph.node for name in (*node.input, *node.output)}
        self._names |= {tensor.name for tensor in graph.initializer}

    def __call__(self, name: str) -> str:
        """Return ``name``, with underscores appended until no tensor of the model has the same name."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def takes(node: onnx.NodeProto) -> list[str]:
    """Return a list of the names of the tensors that an ONNX node reads, also from inside its subgraphs.

    The names are the node's inputs, and tensors from outside that the graphs in it (of If, Loop, Scan) read.
    """
    inner: dict[str, None] = {}
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {tensor.values.name for tensor in graph.sparse_initializer}
        own |= {name for other in graph.node for name in other.output}
        taken = [name for other in graph.node for name in takes(other)]
        inner |= {name: None for name in (*taken, *(value.name for value in graph.output)) if name not in own}
    names = list(filter(None, node.input))  # a name can occur twice
    return [*names, *(name for name in inner if name not in names)]


def title(node: onnx.NodeProto) -> str:
    """Return the readable part of an ONNX node's name, or of its output's name if the node has none."""
    name = node.name or next(filter(None, node.output), "") or node.op_type
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            name = name.removesuffix(suffix)
            break
    return name.lstrip("/") or node.op_type


def named(node: onnx.NodeProto) -> str:
    """Return operator and name of an ONNX node for messages: ``Conv node 'conv1'``."""
    return f"{node.op_type} node {title(node)!r}"


def by(pair: Iterable[int]) -> str:
    """Return sizes as one text, joined by ``x``, such as ``3x3``."""
    return "x".join(map(str, pair))


def line(error: BaseException) -> str:
    """Return the first non-empty line of an exception's text."""
    lines = map(str.strip, str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:300]


def _first_clause(error: Exception) -> str:
    """Return an error's message without the detail at its end that only some versions of protobuf add."""
    return line(error).split("': ")[0].rstrip("'") + "'" if "': " in line(error) else line(error)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return a list of the graphs in an ONNX node's attributes, such as the branches of an If or the body of a Loop."""
    return [graph for entry in node.attribute for graph in (*entry.graphs, *([entry.g] if entry.HasField("g") else []))]


def with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, each followed by all nodes of the graphs in its attributes."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from with_inner(graph.node)


DEFAULT_DOMAINS = {"", "ai.onnx"}
"""Set of names of the domain of ONNX's own operators; ONNX Runtime ignores functions of a model in this domain."""
_RUNTIME_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators, which take precedence over functions of the same name."""
_Name = tuple[str, str]
"""Type of a pair that identifies a function of an ONNX model: domain and name. Several overloads can share both."""


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace all calls of a model's functions by the functions' nodes, and return the model; ``model`` is used up.

    The inliner of the onnx package ignores default values of a function's attributes. They are therefore added to the
    calls, and functions are inlined one by one, each before the functions that it calls. Initialisers stay outside.

    Raises
    ------
    ModelError
        If the functions call each other in a cycle or can't be inlined, or ONNX Runtime can have an operator of the
        same name.
    """
    _drop_built_in(model)
    if not model.functions:
        return model
    initialisers = [*model.graph.initializer]
    del model.graph.initializer[:]
    model.graph.initializer.extend(TensorProto(name=tensor.name) for tensor in initialisers)
    try:
        for name in _callers_first(model.functions):
            _add_defaults(model, name)
            model = onnx.inliner.inline_selected_functions(model, [name])
    except CycleError as error:
        names = " -> ".join(name for _, name in error.args[1])
        raise ModelError(f"its functions call each other in a cycle: {names}") from None
    except Exception as error:  # the inliner raises many types of errors
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"its functions can't be put in place of their calls ({reason})") from None
    del model.functions[:], model.graph.initializer[:]
    model.graph.initializer.extend(initialisers)
    return model


def _drop_built_in(model: onnx.ModelProto) -> None:
    """Remove the model's functions that ONNX Runtime ignores because it has an operator of the same name."""
    own = []
    for function in model.functions:
        if function.domain == _RUNTIME_DOMAIN:
            raise ModelError(
                f"its function {function.name!r} has the domain {_RUNTIME_DOMAIN}, whose operators ONNX Runtime "
                "prefers to functions; give it a domain of its own"
            )
        if function.domain not in DEFAULT_DOMAINS and not defs.has(function.name, function.domain):
            own.append(function)
    if len(own) < len(model.functions):
        del model.functions[:]
        model.functions.extend(own)


def _callers_first(functions: Iterable[onnx.FunctionProto]) -> list[_Name]:
    """Return, as a list, the (domain, name) of all functions, each before the functions that it calls."""
    callees: dict[_Name, set[_Name]] = {_name(function): set() for function in functions}
    for function in functions:
        called = {(node.domain, node.op_type) for node in with_inner(function.node)}
        callees[_name(function)] |= called & callees.keys()
    return [*TopologicalSorter(callees).static_order()][::-1]


def _add_defaults(model: onnx.ModelProto, name: _Name) -> None:
    """Add the default values of a function's attributes to the calls in the model's graph that lack them."""
    defaults = {function.overload: function.attribute_proto for function in model.functions if _name(function) == name}
    for node in with_inner(model.graph.node):
        if (node.domain, node.op_type) == name:
            present = {entry.name for entry in node.attribute}
            missing = [entry for entry in defaults.get(node.overload, ()) if entry.name not in present]
            node.attribute.extend(missing)


def _name(function: onnx.FunctionProto) -> _Name:
    """Return the pair of domain and name that identifies a model's function."""
    return function.domain, function.name


def fetch_external(model: onnx.ModelProto, path: Path) -> None:
    """Load the external data of ``model``, which was read from the file ``path``.

    Raises
    ------
    ModelError
        If data are missing, cut short, outside the model's folder, or described wrongly.
    """
    for tensor in _tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        where = f"{path}: external data of initialiser {tensor.name!r}"
        _check(tensor, path.parent, where)
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
        except (OSError, ValueError, TypeError, onnx.checker.ValidationError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split())
            raise ModelError(f"{where} can't be read: {reason[:300]}") from None
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors of an ONNX model that can have external data: initialisers, and values of Constant nodes.

    ONNX allows external data nowhere else that hwgen reads.
    """
    yield from model.graph.initializer
    for node in model.graph.node:
        yield from (entry.t for entry in node.attribute if entry.HasField("t"))


def _check(tensor: TensorProto, folder: Path, where: str) -> None:
    """Refuse a tensor whose external data can't be read; add the data's length if the model states none."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location:
        raise ModelError(f"{where}: no file is named (location)")
    file = folder / location
    try:
        # Unlike Path.resolve, realpath takes a loop of symbolic links; stat then says what is wrong with it.
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
            raise ModelError(f"{where} must lie in the model's folder, not outside, in {location}")
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{where}: {location} is not a regular file")
        size = status.st_size
    except FileNotFoundError:
        raise ModelError(f"{where} are missing: there is no file {location} next to the model") from None
    except (OSError, ValueError) as error:  # e.g. a name that is too long, or a loop of symbolic links
        raise ModelError(f"{where} can't be read: {getattr(error, 'strerror', None) or error}") from None
    begin, needed = _number(entries, "offset", where) or 0, _bytes(tensor, where)
    length = _number(entries, "length", where)
    if length is None:
        tensor.external_data.add(key="length", value=str(needed))
    elif length != needed:
        raise ModelError(f"{where}: length must be {needed:,} bytes, for shape {list(tensor.dims)}, not {length:,}")
    if begin + needed > size:
        raise ModelError(f"{where} are cut short: {location} has {size:,} bytes, but {begin + needed:,} are needed")


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    """Return the integer of an external-data entry, such as a byte offset; ``None`` if the entry is missing."""
    text = entries.get(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{where}: {key} must be a number of bytes, not {text[:40]!r}")
    return int(text)


def _bytes(tensor: TensorProto, where: str) -> int:
    """Return the size of a tensor's values, in bytes, from its shape and element type."""
    if any(size < 0 for size in tensor.dims):
        raise ModelError(f"{where}: shape {list(tensor.dims)} has a negative dimension")
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise ModelError(f"{where}: there is no element type {tensor.data_type}") from None
    if dtype.kind not in "biuf":
        raise ModelError(f"{where}: elements must be plain numbers, not {dtype}")
    return prod(tensor.dims) * dtype.itemsize
