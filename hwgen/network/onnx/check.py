"""Check of an ONNX model before it is imported: versions, inputs and outputs, wiring, ONNX's checker, ONNX Runtime.

ONNX's checker detects most errors, but some of its messages do not name the cause. It also accepts models that ONNX
Runtime refuses. Versions, inputs, outputs and wiring are therefore checked first. ONNX Runtime loads the model last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx
from onnx import numpy_helper

from hwgen.errors import ModelError
from hwgen.network.maps import MAX_SIDE
from hwgen.network.onnx.file import attribute, data_inputs, line, shape_text, takes, title
from hwgen.network.onnx.infer import cause_without_shape
from hwgen.network.onnx.runtime import reason, session

_LONGEST = 6
"""Maximum number of nodes that an error message about a cycle in the graph names."""


def check(model: onnx.ModelProto, name: str) -> None:
    """Raise ModelError unless the ONNX model ``model`` is valid; the message begins with ``name``.

    This module's own checks, ONNX's checker and ONNX's shape inference are run. Shape inference is left out for
    pools with ``ceil_mode``. There it counts windows that begin after the map's end. ONNX's text, its reference
    implementation and ONNX Runtime leave these windows out (as of onnx 1.23).
    """
    _check_versions(model, name)
    _check_ends(model, name)
    _check_tensors(model.graph, name)
    _check_attributes(model.graph, name)
    _check_wiring(model.graph, name)
    rounded_up = any(attribute(node, "ceil_mode", 0) for node in model.graph.node)
    try:
        onnx.checker.check_model(model, full_check=not rounded_up)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{name}: not a valid ONNX model: {line(error)}") from None
    except (ValueError, RuntimeError) as error:  # e.g. a model past protobuf's 2 GB
        raise ModelError(f"{name}: the ONNX checker can't take it: {line(error)}") from None


def check_by_runtime(path: Path, model: onnx.ModelProto | None = None) -> None:
    """Raise ModelError unless ONNX Runtime can load the model in the file ``path``; nothing is computed.

    Parameters
    ----------
    model : ModelProto, optional
        Model that is loaded instead of the file, for a file with operators that ONNX Runtime doesn't know.
    """
    try:
        source = _source(path) if model is None else model.SerializeToString()
        session(source, {"session.disable_prepacking": "1"}, optimised=False)
    except Exception as error:  # ONNX Runtime raises many types of errors
        raise ModelError(f"{path}: ONNX Runtime refuses it: {reason(error)}") from None


def _source(path: Path) -> str | bytes:
    """Return a model file's path as a string, or the file's bytes if the path is not UTF-8, for ONNX Runtime."""
    try:
        return str(path).encode().decode()
    except UnicodeEncodeError:
        return path.read_bytes()


def _check_versions(model: onnx.ModelProto, name: str) -> None:
    """Refuse a model with operator sets that the onnx package doesn't know, or that are declared twice."""
    latest = {"ai.onnx": onnx.defs.onnx_opset_version(), "com.microsoft": 1}
    domains = [entry.domain or "ai.onnx" for entry in model.opset_import]
    for domain, entry in zip(domains, model.opset_import, strict=True):
        if domain in latest and not 1 <= entry.version <= latest[domain]:
            raise ModelError(f"{name}: the operator set of {domain} must be 1 to {latest[domain]}, not {entry.version}")
        if domains.count(domain) > 1:
            raise ModelError(f"{name}: the operator set of {domain} is given {domains.count(domain)} times")


def _check_ends(model: onnx.ModelProto, name: str) -> None:
    """Refuse a model with inputs or outputs that are not tensors, or with input sizes below 1 or above `MAX_SIDE`.

    The batch can be symbolic.
    """
    if not model.graph.output:
        raise ModelError(f"{name}: has no output, so nothing would be computed")
    for what, values in (("input", data_inputs(model)), ("output", model.graph.output)):
        for value in values:
            if not value.type.HasField("tensor_type"):
                raise ModelError(f"{name}: {what} {value.name!r} must be a tensor with an element type")
            if value.type.tensor_type.elem_type not in onnx.TensorProto.DataType.values():
                element_type = value.type.tensor_type.elem_type
                raise ModelError(f"{name}: {what} {value.name!r}: there is no element type {element_type}")
            if not value.type.tensor_type.HasField("shape"):
                cause = None if what == "input" else cause_without_shape(model, value.name)
                why = (
                    "" if cause is None else f"; it depends on {_title(cause)}, whose output has a shape not known here"
                )
                raise ModelError(f"{name}: {what} {value.name!r} must have a shape, whose sizes may be symbolic{why}")
    for value in data_inputs(model):
        dims = value.type.tensor_type.shape.dim
        shown = shape_text(dims)
        for axis, dim in enumerate(dims):
            # ONNX Runtime reads a negative batch as a symbolic one.
            if dim.HasField("dim_value") and dim.dim_value < 1 and (axis or not dim.dim_value):
                raise ModelError(
                    f"{name}: input {value.name!r} has a dimension of {dim.dim_value} in ({shown}); "
                    "sizes must be positive"
                )
            if axis and dim.dim_value > MAX_SIDE:
                raise ModelError(
                    f"{name}: input {value.name!r} of shape ({shown}) is too large: a map may have at most "
                    f"{MAX_SIDE:,} channels, rows and columns"
                )


def _check_tensors(graph: onnx.GraphProto, name: str) -> None:
    """Refuse a model with initialisers of equal names, with negative sizes, or with data that can't be read."""
    for label, count in Counter(tensor.name for tensor in graph.initializer).items():
        if count > 1:
            raise ModelError(f"{name}: {count} initialisers are called {label!r}")
    for tensor in graph.initializer:
        if any(size < 0 for size in tensor.dims):
            raise ModelError(f"{name}: initialiser {tensor.name!r} has a negative dimension: {list(tensor.dims)}")
    values = [(f"initialiser {tensor.name!r}", tensor) for tensor in graph.initializer]
    values += [(_title(node), entry.t) for node in graph.node for entry in node.attribute if entry.HasField("t")]
    for what, tensor in values:
        try:
            numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ModelError(f"{name}: {what} can't be read: {line(error)}") from None


def _check_attributes(graph: onnx.GraphProto, name: str) -> None:
    """Refuse a model with a node outside functions that refers to an attribute of a function."""
    for node in graph.node:
        for entry in node.attribute:
            if entry.ref_attr_name:
                raise ModelError(
                    f"{name}: {_title(node)}: attribute {entry.name!r} must have a value: only a node inside a "
                    "function can refer to an attribute of the caller"
                )


def _check_wiring(graph: onnx.GraphProto, name: str) -> None:
    """Refuse a graph if a tensor has no source or several sources, or nodes form a cycle or are out of order."""
    source: dict[str, onnx.NodeProto] = {}
    provided = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    provided |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        for tensor in filter(None, node.output):
            if tensor in provided or tensor in source:
                other = _title(source[tensor]) if tensor in source else "an input or initialiser of the model"
                raise ModelError(f"{name}: tensor {tensor!r} comes from {_title(node)} and from {other}")
            source[tensor] = node
    for node in graph.node:
        for tensor in filter(None, node.input):
            if tensor not in provided and tensor not in source:
                raise ModelError(f"{name}: {_title(node)} takes {tensor!r}, which nothing in the model gives")
    for value in graph.output:
        if value.name not in provided and value.name not in source:
            raise ModelError(f"{name}: output {value.name!r} is given by nothing in the model")
    for node in graph.node:
        later = next((tensor for tensor in takes(node) if tensor in source and tensor not in provided), None)
        if later is not None:
            _check_cycles(graph, source, name)
            raise ModelError(
                f"{name}: {_title(node)} takes {later!r}, which {_title(source[later])} computes later; "
                "nodes must be in topological order"
            )
        provided.update(node.output)


def _check_cycles(graph: onnx.GraphProto, source: Mapping[str, onnx.NodeProto], name: str) -> None:
    """Refuse a graph whose nodes form a cycle; ``source`` maps each tensor to the node that computes it."""
    nodes = {id(node): node for node in graph.node}
    before = {key: [id(source[tensor]) for tensor in node.input if tensor in source] for key, node in nodes.items()}
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        shown = [_title(nodes[key]) for key in error.args[1][1:]]
        more = ["..."] if len(shown) > _LONGEST else []
        raise ModelError(
            f"{name}: the graph has a cycle: {' -> '.join([*shown[:_LONGEST], *more, shown[0]])}"
        ) from None


def _title(node: onnx.NodeProto) -> str:
    """Return an ONNX node's operator and quoted name, such as ``Conv 'conv1'``, for error messages."""
    return f"{node.op_type} {title(node)!r}"
