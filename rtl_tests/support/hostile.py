"""Hostile changes of ONNX models: what a broken exporter, a careless edit or ill will may put into a file.

`CHANGES` holds them by name. Each takes a random generator and a valid model, and changes the model in place; it may
find nothing to change. Many leave the model valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Change = Callable[[np.random.Generator, onnx.ModelProto], None]

INTEGERS = [-(2**63), -(2**31), -4, -1, 0, 1, 2, 3, 4, 7, 65_536, 10**6, 2**31 - 1, 2**31, 2**62, 2**63 - 1]
FLOATS = [float("nan"), float("inf"), float("-inf"), -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 1e-45, 1e-38, 1e30, 3.4e38]
TEXTS = [b"", b"NOTSET", b"VALID", b"SAME_UPPER", b"SAME_LOWER", b"same_upper", b"\xff\xfe", b"x" * 1000]
NAMES = {
    "Conv": ["kernel_shape", "strides", "pads", "dilations", "group", "auto_pad"],
    "QLinearConv": ["kernel_shape", "strides", "pads", "dilations", "group", "auto_pad"],
    "MaxPool": ["kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode", "storage_order"],
    "Gemm": ["alpha", "beta", "transA", "transB"],
    "QGemm": ["alpha", "transA", "transB"],
    "QuantizeLinear": ["axis", "block_size", "output_dtype", "precision", "saturate"],
    "DequantizeLinear": ["axis", "block_size", "output_dtype"],
    "Flatten": ["axis"],
    "Reshape": ["allowzero"],
    "Clip": ["min", "max"],
}
LISTS = {"kernel_shape", "strides", "pads", "dilations"}
DTYPES = [*("int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool")]


def _any(random: np.random.Generator, items: Any) -> Any:
    return items[int(random.integers(len(items)))]


def _node(random: np.random.Generator, model: onnx.ModelProto) -> onnx.NodeProto:
    """Operators that compute more often than their quantisers, of which there are more."""
    nodes = model.graph.node
    others = [node for node in nodes if "quanti" not in node.op_type.lower()]
    return _any(random, others if others and random.random() < 0.7 else nodes)


def _set(node: onnx.NodeProto, name: str, value: Any) -> None:
    kept = [entry for entry in node.attribute if entry.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def _attribute(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Change an attribute that the operator has, mostly to a value of its type."""
    node = _node(random, model)
    names = NAMES.get(node.op_type, ["axis"])
    name = _any(random, names)
    before = next((helper.get_attribute_value(entry) for entry in node.attribute if entry.name == name), None)
    if random.random() < 0.1:
        _set(node, name, _any(random, [3, 1.5, b"text", [1, 2], [0.5], numpy_helper.from_array(np.zeros(2))]))
    elif name == "auto_pad":
        _set(node, name, _any(random, TEXTS))
    elif name in ("alpha", "beta", "min", "max"):
        _set(node, name, _any(random, FLOATS))
    elif name in LISTS:
        length = 4 if name == "pads" else 2
        values = list(before) if before else [0 if name == "pads" else 1] * length
        values[int(random.integers(len(values)))] = _any(random, INTEGERS)
        if random.random() < 0.15:
            values = values[: int(random.integers(1, len(values) + 1))] + [1] * int(random.integers(0, 2))
        _set(node, name, values)
    else:
        _set(node, name, _any(random, INTEGERS))


def _other_attribute(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Add an attribute that the operator does not have, remove one, or repeat one."""
    node = _node(random, model)
    kind = random.random()
    if kind < 0.4 or not node.attribute:
        _set(
            node,
            _any(random, sorted({*(name for names in NAMES.values() for name in names), "", "unknown"})),
            _any(random, [1, 1.0, b"a", [1]]),
        )
    elif kind < 0.8:
        node.attribute.remove(_any(random, node.attribute))
    else:
        node.attribute.append(_any(random, node.attribute))


def _tensor(random: np.random.Generator, model: onnx.ModelProto) -> onnx.TensorProto | None:
    return _any(random, model.graph.initializer) if model.graph.initializer else None


def _shape(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Change the shape of a constant."""
    if (tensor := _tensor(random, model)) is None:
        return
    values = numpy_helper.to_array(tensor)
    forms = [
        values.reshape(*values.shape, 1),
        values.reshape(1, *values.shape),
        values.reshape(-1),
        values.reshape(-1)[:1],
        values.reshape(-1)[0],
        values[..., :0] if values.ndim else np.zeros(0, values.dtype),
        np.concatenate([values.reshape(-1), values.reshape(-1)[:1]]),
        np.swapaxes(values, 0, -1) if values.ndim else values,
        np.repeat(values.reshape(-1)[:1], int(random.integers(2, 6))),
        values[:1] if values.ndim else values,
    ]
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(_any(random, forms)), tensor.name))


def _type(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Change the type of a constant."""
    if (tensor := _tensor(random, model)) is None:
        return
    values = numpy_helper.to_array(tensor)
    with np.errstate(all="ignore"):
        tensor.CopyFrom(numpy_helper.from_array(values.astype(_any(random, DTYPES)), tensor.name))


def _value(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Change one value of a constant."""
    if (tensor := _tensor(random, model)) is None:
        return
    values = numpy_helper.to_array(tensor).copy()
    if not values.size:
        return
    flat = values.reshape(-1)
    kinds = FLOATS if values.dtype.kind == "f" else INTEGERS
    with np.errstate(all="ignore"):
        flat[int(random.integers(flat.size))] = np.array(_any(random, kinds)).astype(values.dtype)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _bytes(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Damage a constant so that dimensions, type and data disagree, or move its data elsewhere."""
    if (tensor := _tensor(random, model)) is None:
        return
    kind = int(random.integers(9))
    if kind == 0:
        tensor.raw_data = tensor.raw_data[:-1]
    elif kind == 1:
        tensor.raw_data = tensor.raw_data + b"\0"
    elif kind == 2 and tensor.dims:
        tensor.dims[int(random.integers(len(tensor.dims)))] = _any(random, INTEGERS)
    elif kind == 3:
        tensor.dims.append(_any(random, INTEGERS))
    elif kind == 4:
        tensor.data_type = _any(random, [*range(25), 999, 2**31 - 1])
    elif kind == 5:
        tensor.int32_data.append(1)
    elif kind == 6:
        tensor.data_location = TensorProto.EXTERNAL
        place = _any(random, ["missing.bin", "../outside.bin", "/dev/zero", "", ".", "model.onnx"])
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", place
        if random.random() < 0.5:
            entry = tensor.external_data.add()
            entry.key, entry.value = _any(random, ["offset", "length"]), _any(random, ["-1", "x", "1e3", str(10**20)])
        if random.random() < 0.5:
            tensor.ClearField("raw_data")
    elif kind == 7:
        tensor.ClearField("raw_data")
        tensor.data_type = TensorProto.STRING
        tensor.string_data.extend([b"text"] * max(1, int(np.prod(tensor.dims))))
    else:
        tensor.segment.begin, tensor.segment.end = 0, 1


def _constants(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Remove, repeat or rename a constant, make it sparse, or compute it by a Constant node."""
    if (tensor := _tensor(random, model)) is None:
        return
    graph = model.graph
    kind = int(random.integers(7))
    if kind == 0:
        graph.initializer.remove(tensor)
    elif kind == 1:
        graph.initializer.append(tensor)
    elif kind == 2:
        tensor.name = _any(random, ["", "other", graph.node[0].output[0], graph.input[0].name])
    elif kind == 3:
        sparse = graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.dims.extend([4])
        if random.random() < 0.5:
            graph.initializer.remove(tensor)
    elif kind == 4:
        graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
        graph.initializer.remove(tensor)
    elif kind == 5:
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    else:
        node = helper.make_node("Constant", [], [tensor.name])
        values = {"value_int": 3, "value_ints": [1, 2], "value_float": 0.5, "value_string": "a", "value_strings": ["a"]}
        name = _any(random, sorted(values))
        node.attribute.append(helper.make_attribute(name, values[name]))
        graph.node.insert(0, node)
        graph.initializer.remove(tensor)


def _wiring(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Nodes' inputs and outputs: others, missing ones, too many, circles."""
    graph = model.graph
    node = _any(random, graph.node)
    names = [name for other in graph.node for name in other.output] + [graph.input[0].name, "nowhere", ""]
    names += [tensor.name for tensor in graph.initializer]
    kind = int(random.integers(8))
    if kind == 0 and node.input:
        node.input[int(random.integers(len(node.input)))] = _any(random, names)
    elif kind == 1 and node.input:
        del node.input[int(random.integers(len(node.input))) :]
    elif kind == 2:
        node.input.append(_any(random, names))
    elif kind == 3:
        node.output[0] = _any(random, names)
    elif kind == 4:
        node.output.append(_any(random, ["second", "", node.output[0]]))
    elif kind == 5:
        del node.output[:]
    elif kind == 6 and node.input:
        node.input[0] = graph.node[-1].output[0]  # a circle
    else:
        del node.input[:]


def _nodes(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Nodes too few or too many, in another order, of another operator or domain."""
    graph = model.graph
    node = _any(random, graph.node)
    place = int(random.integers(len(graph.node) + 1))
    kind = int(random.integers(9))
    if kind == 0:
        graph.node.remove(node)
    elif kind == 1:
        graph.node.insert(place, node)
    elif kind == 2:
        graph.node.sort(key=lambda _: random.random())
    elif kind == 3:
        node.op_type = _any(random, ["", "Nothing", "Relu", "Clip", "Add", "Softmax", "If", "Identity", "Sigmoid"])
    elif kind == 4:
        node.domain = _any(random, ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "my.own"])
    elif kind == 5:  # an unused branch
        source = _any(random, [graph.input[0].name, *(other.output[0] for other in graph.node)])
        graph.node.append(helper.make_node(_any(random, ["Identity", "Relu", "Nothing"]), [source], ["unused"]))
    elif kind == 6:
        node.name = _any(random, ["", "module", "\n", "a" * 300, "\x00", "é", "../x"])
    elif kind == 7:
        branch = helper.make_graph([], "then", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])])
        graph.node.insert(place, helper.make_node("If", ["condition"], ["b"], then_branch=branch, else_branch=branch))
    else:
        tensor = _any(random, [*(other.output[0] for other in graph.node)])
        graph.node.append(helper.make_node("Identity", [tensor], ["end"]))
        graph.output[0].name = "end"


def _ends(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Damage the graph's input or output."""
    graph = model.graph
    value = graph.input[0] if random.random() < 0.6 else graph.output[0]
    tensor = value.type.tensor_type
    kind = int(random.integers(9))
    if kind == 0 and tensor.shape.dim:
        dim = _any(random, tensor.shape.dim)
        dim.Clear()
        if random.random() < 0.8:
            dim.dim_value = _any(random, INTEGERS)
    elif kind == 1:
        tensor.shape.dim.add().dim_value = 1
    elif kind == 2 and tensor.shape.dim:
        del tensor.shape.dim[-1]
    elif kind == 3:
        tensor.ClearField("shape")
    elif kind == 4:
        tensor.elem_type = _any(random, [*range(24), 999])
    elif kind == 5:
        value.name = _any(random, ["", "other", graph.node[0].output[0], graph.node[-1].input[0]])
    elif kind == 6:
        del (graph.output if random.random() < 0.7 else graph.input)[:]
    elif kind == 7:
        graph.output.append(_any(random, [graph.output[0], graph.input[0]]))
    else:
        value.type.Clear()
        if random.random() < 0.5:
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _model(random: np.random.Generator, model: onnx.ModelProto) -> None:
    """Versions, operator sets, functions, quantisation annotations, shapes that are noted."""
    kind = int(random.integers(6))
    if kind == 0:
        model.opset_import[0].version = _any(random, [-1, 0, 1, 6, 7, 9, 10, 11, 12, 13, 18, 19, 22, 24, 30, 10**9])
    elif kind == 1:
        model.ir_version = _any(random, [0, 1, 2, 3, 4, 8, 10, 11, 13, 14, 1000])
    elif kind == 2:
        del model.opset_import[:]
    elif kind == 3:
        model.opset_import.append(helper.make_opsetid(_any(random, ["", "my.own", "com.microsoft"]), 3))
    elif kind == 4:
        relu = helper.make_node("Relu", ["a"], ["b"])
        function = helper.make_function("my.own", "Mine", ["a"], ["b"], [relu], list(model.opset_import))
        model.functions.append(function)
        if random.random() < 0.5:
            node = _any(random, model.graph.node)
            node.op_type, node.domain = "Mine", "my.own"
            model.opset_import.append(helper.make_opsetid("my.own", 1))
    else:
        node = _any(random, model.graph.node)
        name, sizes = node.output[0], [_any(random, INTEGERS) for _ in range(int(random.integers(5)))]
        model.graph.value_info.append(
            helper.make_tensor_value_info(name, _any(random, [1, 2, 3, 8]), [abs(size) for size in sizes])
        )


CHANGES: dict[str, Change] = {
    "attribute": _attribute,
    "other attribute": _other_attribute,
    "shape": _shape,
    "type": _type,
    "value": _value,
    "bytes": _bytes,
    "constants": _constants,
    "wiring": _wiring,
    "nodes": _nodes,
    "ends": _ends,
    "model": _model,
}
