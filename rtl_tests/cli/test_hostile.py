"""Hostile input: models, plans, arrays and names that make no sense are refused at once, in one line, for their true
reason; and a model is taken only if ONNX Runtime takes it, with ONNX Runtime's values.

Scales of the models are powers of two, with which ONNX Runtime's float32 is exact.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import quantised_chain, random_model

from hwgen import api
from hwgen.blocking.problem import Problem
from hwgen.cli import main as cli
from hwgen.errors import ConfigError, HwgenError, InputError, ModelError, PlanError
from hwgen.network import golden, load, shapes
from hwgen.network.maps import UINT8, FeatureMap
from hwgen.network.quantise import prepare_inputs

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


Edit = Callable[[onnx.ModelProto], None]


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def by_onnxruntime(path: Path, x: np.ndarray) -> np.ndarray | None:
    """What ONNX Runtime makes of ``x``; ``None`` if it refuses the model, when it is loaded or when it runs."""
    try:
        y, *more = session(path).run(None, {"image": x})
    except Exception:  # it raises many kinds
        return None
    assert all(np.array_equal(y, other) for other in more), "an output that is named twice"
    return y


def pads_dilated_windows(path: Path) -> bool:
    """Whether a convolution has dilations beside auto_pad SAME: ONNX defines it, ONNX Runtime has no kernel for it."""
    for node in onnx.load(path).graph.node:
        found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if found.get("auto_pad", b"").startswith(b"SAME") and max(found.get("dilations", [1])) > 1:
            return True
    return False


def by_hwgen(path: Path, x: np.ndarray) -> np.ndarray | None:
    try:
        network = load(path)
    except HwgenError:
        return None
    return golden.run(network, prepare_inputs(network, x))


# Every kind of change at once.


def fuzz(seeds: range, folder: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """How many models were taken and refused."""
    path = folder / "model.onnx"
    taken = refused = 0
    for seed in seeds:
        writer = random_model(seed, qdq=seed % 2 == 0, powers=True, deep=seed % 3 == 0)
        x, model = writer.frames(2), writer.model()
        if seed % 4:  # otherwise most changes contradict the sizes that the output states
            for dim in model.graph.output[0].type.tensor_type.shape.dim:
                dim.Clear()
        random = np.random.default_rng([seed, 1])
        names = random.choice(list(CHANGES), 1 if random.random() < 0.7 else 2).tolist()
        try:
            for name in names:
                CHANGES[name](random, model)
            content = model.SerializeToString()
        except (
            ValueError,
            KeyError,
            onnx.checker.ValidationError,
        ):  # protobuf itself refuses, or onnx to read the tensor again
            continue
        path.write_bytes(content)
        status = cli.main(["plan", str(path), "--board", "vc709"])
        error = capfd.readouterr().err
        where = f"seed {seed}, {' and '.join(names)}: {error!r}"
        if status:
            assert status == 2, where
            assert error.startswith("hwgen: "), where
            several = re.search(r": (\d+) things can't be built", error)
            assert error.count("\n") == (1 if several is None else 1 + int(several[1])), where
            refused += 1
            continue
        assert all(line.startswith("hwgen: warning: ") for line in error.splitlines()), where
        taken += 1
        batch = session(path).get_inputs()[0].shape[0]
        theirs = by_onnxruntime(path, x[:batch] if isinstance(batch, int) and batch > 0 else x)
        if theirs is None:  # a Reshape to [1, n] where the batch is symbolic takes one frame at a time
            theirs = by_onnxruntime(path, x[:1])
        if theirs is None and pads_dilated_windows(path):
            continue
        assert theirs is not None, f"{where}: ONNX Runtime refuses it"
        ours = by_hwgen(path, x)
        assert ours is not None
        if {"value", "constants", "type"}.isdisjoint(names) and ours.dtype == theirs.dtype:
            np.testing.assert_array_equal(ours.reshape(len(x), -1)[: len(theirs)].ravel(), theirs.ravel(), where)
    return taken, refused


@pytest.mark.filterwarnings("ignore::RuntimeWarning:hostile")  # of casts while spoiling
@pytest.mark.parametrize(
    "seeds",
    [
        range(30),
        pytest.param(range(30, 120), marks=pytest.mark.long),
        *(pytest.param(range(n, n + 500), marks=pytest.mark.long) for n in range(1000, 4000, 1000)),
    ],
    ids=str,
)
def test_hostile_models(
    seeds: range, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 0, nothing on stderr and ONNX Runtime's values, or 2 and one line; both occur."""
    monkeypatch.setattr("hwgen.progress.DELAY", 1e9)  # no bars, however slow the machine
    taken, refused = fuzz(seeds, tmp_path, capfd)
    assert taken > len(seeds) // 20
    assert refused > len(seeds) // 3


# One change at a time: what ONNX Runtime refuses.

W = np.random.default_rng(3).integers(-9, 10, (4, 2, 3, 3)).astype(np.int8)
B = np.random.default_rng(4).integers(-500, 500, 4).astype(np.int32)
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}


def model_of(operator: str, constants: dict[str, Any] | None = None, **attributes: Any) -> onnx.ModelProto:
    """QuantizeLinear, one operator called ``node`` on quantised values, QuantizeLinear; ``constants`` replace some."""
    values: dict[str, Any] = {"s": np.float32(0.125), "z": np.uint8(100), "w_s": np.float32(0.0625), "w_z": np.int8(0)}
    values |= {"w": W, "b": B, "b_s": np.float32(2**-7), "m": W.reshape(-1)[:30].reshape(10, 3)}
    values |= {"g": B[:3], "shape": np.array([0, -1]), "low": np.float32(-1), "high": np.float32(2)}
    values |= constants or {}
    nodes = [helper.make_node("QuantizeLinear", ["image", "s", "z"], ["q"], name="quantise")]
    shape, rank, domain = [2, 10, 11], 4, ""
    if operator == "QLinearConv":
        inputs = ["q", "s", "z", "w", "w_s", "w_z", "s", "z", "b"]
        nodes.append(helper.make_node(operator, inputs, ["y"], name="node", **attributes))
    elif operator == "QGemm":
        shape, rank, domain = [10], 2, "com.microsoft"
        inputs = ["q", "s", "z", "m", "w_s", "w_z", "g", "s", "z"]
        nodes.append(helper.make_node(operator, inputs, ["y"], name="node", domain=domain, **attributes))
    else:
        dequantised = [("q", "s", "z", "d"), ("w", "w_s", "w_z", "w_d"), ("m", "w_s", "w_z", "m_d")]
        for *inputs, output in [*dequantised, ("b", "b_s", "b_d"), ("g", "b_s", "g_d")]:
            node = helper.make_node("DequantizeLinear", inputs, [output], name=f"dequantise_{inputs[0]}")
            if np.size(values[inputs[1]]) > 1:
                node.attribute.append(helper.make_attribute("axis", attributes.pop("axis", 0)))
            nodes.append(node)
        if operator == "Gemm":
            shape, rank = [10], 2
        inputs = {"Conv": ["d", "w_d", "b_d"], "Gemm": ["d", "m_d", "g_d"], "Reshape": ["d", "shape"]}.get(
            operator, ["d"]
        )
        if operator == "Clip":
            nodes.append(helper.make_node("Conv", ["d", "w_d"], ["c"]))
            inputs = ["c", "low", "high"]
        if operator == "Reshape":
            values["m"], rank = np.resize(values["m"], (220, 3)), 2
        nodes.append(helper.make_node(operator, inputs, ["r"], name="node", **attributes))
        if operator == "Reshape":
            nodes.append(helper.make_node("MatMul", ["r", "m_d"], ["p"]))
        last = "p" if operator == "Reshape" else "r"
        nodes.append(helper.make_node("QuantizeLinear", [last, "s", "z"], ["y"], name="requantise"))
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [None] * rank)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports[: 1 + bool(domain)], ir_version=9)


def agree(model: onnx.ModelProto, folder: Path) -> bool:
    """Whether both take the model; with equal values then. They must not differ in that."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    dims = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).normal(0, 4, (max(dims[0], 0) or 2, *dims[1:])).astype(np.float32)
    theirs, ours = by_onnxruntime(path, x), by_hwgen(path, x.reshape(*x.shape, *[1] * (4 - x.ndim)))
    assert (theirs is None) == (ours is None)
    if theirs is None or ours is None:
        return False
    np.testing.assert_array_equal(ours.ravel(), theirs.ravel())
    return True


WINDOWS: list[tuple[dict[str, Any], str | None]] = [
    ({"kernel_shape": [3, 3]}, None),
    ({"kernel_shape": [3, 2]}, r"'node': kernel_shape must be 3x3 like the weights, not 3x2"),
    ({"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, r"'node': has both pads and auto_pad SAME_UPPER"),
    ({"auto_pad": "VALID", "pads": [0, 0, 0, 0]}, r"'node': has both pads and auto_pad VALID"),
    ({"auto_pad": "NOTSET", "pads": [1, 0, 2, 1]}, None),
    ({"auto_pad": "valid"}, r"auto_pad must be NOTSET, VALID"),
    ({"strides": [100, 100]}, None),
    ({"strides": [0, 1]}, "strides"),
    ({"dilations": [0, 1]}, "dilations"),
    ({"pads": [0, -1, 0, 0]}, "pads"),
    ({"group": 0}, "group must divide"),
    ({"group": 3}, "group must divide"),
]
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    *(("Conv", {}, attributes, message) for attributes, message in WINDOWS),
    *(("QLinearConv", {}, attributes, message) for attributes, message in WINDOWS),
    ("Conv", {"b": B.reshape(4, 1)}, {}, r"'node': bias must have the shape \(4,\), not \(4, 1\)"),
    ("Conv", {"b": B[:1]}, {}, r"'node': bias must have the shape \(4,\), not \(1,\)"),
    ("QLinearConv", {"b": B.reshape(4, 1)}, {}, r"'node': bias must have the shape \(4,\), not \(4, 1\)"),
    ("QLinearConv", {"b": B[0]}, {}, r"'node': bias must have the shape \(4,\), not \(\)"),
    ("Gemm", {"g": B[:3].reshape(3, 1)}, {}, r"'node': bias must have the shape \(3,\), not \(3, 1\)"),
    ("Gemm", {"g": B[:3].reshape(1, 3)}, {}, None),
    ("Gemm", {"g": B[0]}, {}, None),
    ("QGemm", {"g": B[:3].reshape(3, 1)}, {}, r"'node': bias must have the shape \(3,\), not \(3, 1\)"),
    ("QGemm", {"g": B[:1].reshape(1, 1)}, {}, None),
    (
        "QGemm",
        {"w_z": np.zeros(1, np.int8)},
        {},
        r"'node': weights' zero point must have the shape of .*, \(\), not \(1,\)",
    ),
    ("QGemm", {"w_z": np.zeros(3, np.int8)}, {}, r"zero point must have the shape of their scale, \(\), not \(3,\)"),
    ("QGemm", {"w_s": np.full(3, 0.0625, np.float32)}, {}, r"have the shape of their scale, \(3,\), not \(\)"),
    ("QGemm", {"w_s": np.full(3, 0.0625, np.float32), "w_z": np.zeros(3, np.int8)}, {}, None),
    ("QLinearConv", {"w_z": np.zeros(4, np.int8)}, {}, None),
    ("QLinearConv", {"w_z": np.array("text", object)}, {}, "zero point must be int8 as they are, not object|type"),
    ("QGemm", {}, {"beta": 1.0}, "ONNX Runtime refuses it|Unrecognized attribute"),
    ("Gemm", {}, {"transA": 1}, "transA must be 0|not a valid"),
    ("Conv", {"w": W[:0]}, {}, r"weights must not be empty, but their shape is \(0, 2, 3, 3\)"),
    ("QLinearConv", {"w": W[:, :, :, :0]}, {}, r"empty|kernel_shape"),
    ("Conv", {"w_s": np.zeros(0, np.float32)}, {}, r"dequantise_w': scale must not be empty, but its shape is \(0,\)"),
    (
        "Conv",
        {"w_s": np.full((1, 1), 0.0625, np.float32)},
        {},
        "scales of shape .*blocked quantisation is not supported",
    ),
    ("Conv", {"w_s": np.full(1, 0.0625, np.float32)}, {}, None),
    (
        "Conv",
        {"w_z": np.zeros((1, 1), np.int8)},
        {},
        r"zero point must be one number or one per scale, not of shape \(1, 1\)",
    ),
    (
        "Conv",
        {"w_s": np.full(4, 0.0625, np.float32), "w_z": np.zeros(4, np.int8), "m": W.reshape(-1)[:40].reshape(4, 10)},
        {},
        None,
    ),
    ("Conv", {"w_s": np.full(4, 0.0625, np.float32)}, {}, "must have one zero point per scale, that is 4, not 1"),
    (
        "Conv",
        {"w_s": np.full(4, 0.0625, np.float32), "w_z": np.zeros(4, np.int8)},
        {"axis": 4},
        "axis must be -4 to 3, not 4",
    ),
    ("QLinearConv", {"w_s": np.full((4, 1), 0.0625, np.float32)}, {}, "scales of shape"),
    ("Clip", {"low": np.zeros((1, 1), np.float32)}, {}, r"'node': min must be one number, not of shape \(1, 1\)"),
    ("Clip", {"low": np.float32(3), "high": np.float32(1)}, {}, None),
    ("MaxPool", {}, POOL, None),
    ("MaxPool", {}, POOL | {"pads": [0, 0, 2, 0]}, r"'node': padding must be smaller than the kernel 2x2"),
    ("MaxPool", {}, POOL | {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, None),  # which it ignores
    (
        "MaxPool",
        {},
        {"kernel_shape": [1, 1], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        r"'node': auto_pad SAME_UPPER would pad by -1",
    ),
    (
        "MaxPool",
        {},
        {"kernel_shape": [2, 2], "strides": [5, 5], "auto_pad": "SAME_LOWER"},
        r"'node': auto_pad SAME_LOWER would pad by -3",
    ),
    ("Reshape", {}, {}, None),
    ("Reshape", {"shape": np.array([0, 220])}, {}, None),
    ("Reshape", {"shape": np.array([[0, -1]])}, {}, r"'node': must flatten"),
    ("Reshape", {"shape": np.array([-1, -1])}, {}, "Reshape"),
    ("Reshape", {"shape": np.array([0, 110])}, {}, "."),
]


@pytest.mark.parametrize(("operator", "constants", "attributes", "message"), CASES)
def test_as_onnxruntime(
    operator: str, constants: dict[str, Any], attributes: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    """Refused if and only if ONNX Runtime refuses, by name and reason; otherwise of equal values."""
    model = model_of(operator, constants, **attributes)
    assert agree(model, tmp_path) == (message is None)
    if message is not None:
        with pytest.raises(ModelError, match=message):
            load(tmp_path / "model.onnx")


@pytest.mark.parametrize(("shape", "batch", "taken"), [([1, 220], 1, True), ([1, -1], 1, True), ([1, 220], 2, False)])
def test_reshape_of_a_fixed_batch(shape: list[int], batch: int, taken: bool, tmp_path: Path) -> None:
    model = model_of("Reshape", {"shape": np.array(shape)})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    assert agree(model, tmp_path) == taken


def test_ceil_mode_is_a_bit() -> None:
    """ONNX Runtime takes 2 for 0."""
    with pytest.raises(ModelError, match="ceil_mode must be 0 or 1, not 2"):
        load_edited(model_of("MaxPool", {}, **POOL, ceil_mode=2))


def load_edited(model: onnx.ModelProto) -> None:
    from hwgen.network.onnx.importer import to_network

    to_network(model, "model")


# The graph.


def _opset(domain: str, version: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        kept = [entry for entry in model.opset_import if entry.domain != domain]
        del model.opset_import[:]
        model.opset_import.extend([*kept, helper.make_opsetid(domain, version)])

    return edit


def _dimension(axis: int, size: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size

    return edit


def _cycle(model: onnx.ModelProto) -> None:
    nodes = {node.name: node for node in model.graph.node}
    nodes["dequantise_q"].input[0] = nodes["requantise"].output[0]


def _element_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 999


def _negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims.append(-4)


def _twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _two_sources(model: onnx.ModelProto) -> None:
    model.graph.node[-1].output[0] = "q"


def _nowhere(model: onnx.ModelProto) -> None:
    model.graph.node[-1].input[0] = "nowhere"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_opset("", 0), "the operator set of ai.onnx must be 1 to "),
        (_opset("", 10**9), "the operator set of ai.onnx must be 1 to .*, not 1000000000"),
        (_opset("", -1), "the operator set of ai.onnx must be 1 to .*, not -1"),
        (_opset("com.microsoft", 3), "the operator set of com.microsoft must be 1 to 1, not 3"),
        (_opset("ai.onnx", 3), "the operator set of ai.onnx is given 2 times"),
        (lambda model: setattr(model, "ir_version", 1000), "ir_version 1000"),
        (_dimension(2, 0), r"input 'image' has a dimension of 0 in \(batch, 2, 0, 11\)"),
        (_dimension(3, -4), r"input 'image' has a dimension of -4 in \(batch, 2, 10, -4\)"),
        (_dimension(0, 0), r"input 'image' has a dimension of 0 in"),
        (_dimension(2, 2**31), "at most 65,535 channels, rows and columns"),
        (_dimension(1, 65_536), "at most 65,535 channels, rows and columns"),
        (lambda model: model.graph.ClearField("output"), "has no output"),
        (
            _cycle,
            "the graph has a cycle: (QuantizeLinear 'requantise' -> DequantizeLinear 'dequantise_q' -> Conv 'node' -> "
            "QuantizeLinear 'requantise'|DequantizeLinear 'dequantise_q' -> .*|Conv 'node' -> .*)",
        ),
        (_element_type, "input 'image': there is no element type 999"),
        (_negative, r"initialiser 's' has a negative dimension: \[-4\]"),
        (_twice, "2 initialisers are called 's'"),
        (_two_sources, "tensor 'q' comes from QuantizeLinear 'requantise' and from QuantizeLinear 'quantise'"),
        (_nowhere, "QuantizeLinear 'requantise' takes 'nowhere', which nothing in the model gives"),
    ],
)
def test_graphs_that_make_no_sense(edit: Edit, message: str, tmp_path: Path) -> None:
    model = model_of("Conv")
    edit(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        load(path)


def test_unused_branches_are_ignored(tmp_path: Path) -> None:
    """From the middle, from the end, and of several nodes."""
    model = model_of("Conv")
    side = [("Relu", "d", "u1"), ("Sigmoid", "u1", "u2"), ("Identity", "y", "u3"), ("Identity", "image", "u4")]
    for operator, source, result in side:
        model.graph.node.append(helper.make_node(operator, [source], [result]))
    assert agree(model, tmp_path)
    assert [layer.name for layer in load(tmp_path / "model.onnx").layers] == ["node"]


# External data.


def external(folder: Path, **entries: str) -> Path:
    """A model whose weights lie in ``weights.bin``, described by ``entries`` instead."""
    model = quantised_chain(("Conv", {}))
    (folder / "model").mkdir()
    path = folder / "model" / "model.onnx"
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    (path.parent / "weights.bin").write_bytes(b"\0\0\0\0" + weights.raw_data)
    (folder / "outside.bin").write_bytes(b"\0\0\0\0" + weights.raw_data)
    (path.parent / "one").symlink_to("other")
    (path.parent / "other").symlink_to("one")
    (path.parent / "away").symlink_to("../outside.bin")
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "weights.bin", "offset": "4", "length": "36"} | entries).items():
        if value:
            weights.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "gone.bin"}, "data of initialiser 'w' are missing: there is no file gone.bin next to the model"),
        ({"location": "../outside.bin"}, r"must lie in the model's folder, not outside, in \.\./outside.bin"),
        ({"location": "/dev/zero"}, "must lie in the model's folder, not outside, in /dev/zero"),
        ({"location": "."}, r"\. is not a regular file"),
        ({"location": "one"}, "'w' can't be read: Too many levels of symbolic links"),
        ({"location": "away"}, "must lie in the model's folder, not outside, in away"),
        ({"location": ""}, "no file is named"),
        ({"offset": "8"}, "are cut short: weights.bin has 40 bytes, but 44 are needed"),
        ({"offset": "8", "length": ""}, "are cut short: weights.bin has 40 bytes, but 44 are needed"),
        ({"length": "35"}, r"length must be 36 bytes, for shape \[2, 2, 3, 3\], not 35"),
        ({"length": str(10**18)}, "length must be a number of bytes|length must be 36 bytes"),
        ({"offset": "-4"}, "offset must be a number of bytes, not '-4'"),
        ({"offset": "x"}, "offset must be a number of bytes, not 'x'"),
    ],
)
def test_external_data_that_is_not_there(entries: dict[str, str], message: str, tmp_path: Path) -> None:
    path = external(tmp_path, **entries)
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert "not an ONNX file" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", ["36", ""])
def test_external_data_are_read(length: str, tmp_path: Path) -> None:
    (layer,) = load(external(tmp_path, length=length)).layers
    weights = load_weights(quantised_chain(("Conv", {})))
    np.testing.assert_array_equal(getattr(layer, "weights"), weights)  # noqa: B009 (of a Conv)


def load_weights(model: onnx.ModelProto) -> np.ndarray:
    return numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == "w"))


def test_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="not a regular file"):
        load(tmp_path / "model.onnx")


# Sizes.


def big_input(folder: Path) -> list[str]:
    model = quantised_chain(("Conv", {}), shape=(1, 100_000, 100_000))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return ["plan", "m.onnx", "--board", "vc709"]


def big_pads(folder: Path) -> list[str]:
    model = quantised_chain(("Conv", {"pads": [10**6] * 4}))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return ["plan", "m.onnx", "--board", "vc709"]


def many_pixels(folder: Path) -> list[str]:
    model = quantised_chain(("Conv", {}), shape=(1, 30_000, 30_000))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return ["plan", "m.onnx", "--board", "vc709"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (big_input, "at most 65,535 channels, rows and columns"),
        (big_pads, "Conv node 'node0': the padded map must have at most 65,535 channels, rows and columns"),
        (many_pixels, "must have at most 16,777,216 pixels, not 900,000,000"),
        (["plan", "vgg16:7@100000x100000", "--board", "vc709"], "conv1_1: the padded map must have at most 65,535"),
        (["explore", "vgg16@100000x100000"], "conv1_1: the padded map must have at most 65,535"),
        (["block", "56x56x128->256 k3 p999999999", "--memory", "32KB"], "padding must be smaller than the 3x3 window"),
    ],
)
def test_sizes_are_refused_at_once(arguments: Any, words: str, tmp_path: Path) -> None:
    """Within 20 s of processor time, which slow processors keep as well, and 500 MB."""
    if callable(arguments):
        arguments = arguments(tmp_path)
    program = (
        "import re, resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (20, 20)); from hwgen.cli.main import main; "
        "status = main(sys.argv[1:]); most = int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]); "
        "sys.exit(status if most < 500_000 else f'{most:,} KB')"
    )  # what getrusage knows begins with the process that forked, which may be large
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 2, run.stderr
    assert run.stderr.startswith("hwgen: ")
    assert run.stderr.count("\n") == 1
    assert words in run.stderr
    assert not run.stdout


@pytest.mark.parametrize("size", [(65_536, 1, 1), (1, 65_536, 1), (1, 1, 65_536), (1, 4_097, 4_097)])
def test_limits_of_maps(size: tuple[int, int, int]) -> None:
    channels, height, width = size
    with pytest.raises(ConfigError, match="must have at most"):
        FeatureMap(channels=channels, height=height, width=width, type=UINT8)
    least = [65_535 if side == 65_536 else min(side, 4_096) for side in size]
    FeatureMap(channels=least[0], height=least[1], width=least[2], type=UINT8)


def test_least_input_is_said_of_small_ones_only() -> None:
    with pytest.raises(ModelError, match="the least input is 32x32"):
        shapes.load("vgg16@8x8")
    with pytest.raises(ModelError) as caught:
        shapes.load("vgg16@70000x70000")
    assert "least" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("56x56x128->256 k99999999999999999999", "kernel and stride must be at most 8,192"),
        ("56x56x128->256 k3 s999999999", "kernel and stride must be at most 8,192"),
        ("56x56x128->256 k3 p3", "padding must be smaller than the 3x3 window"),
        ("56x56x65536->256 k3", "channels must be at most 65,535, not 65,536"),
    ],
)
def test_sizes_of_layers_given_as_text(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem.parse(text)


# Plans.


@pytest.fixture(scope="module")
def plans() -> tuple[api.Model, dict[str, dict[str, Any]]]:
    model = api.load("decoilfnet-example")
    stream = json.loads(model.plan("zedboard", dsp=60).to_json())
    pyramid = model.plan("zedboard", dsp=60, template="pyramid", tile=(1, 1), overlap="reuse")
    return model, {"stream": stream, "pyramid": json.loads(pyramid.to_json())}


NUMBERS = [
    *(("layers", key) for key in ("chain", "line_rows", "macs_per_dsp")),
    *(("unroll", key) for key in ("in", "out", "taps", "pixels")),
    *(("fifos", key) for key in ("depth", "lanes")),
    ("groups", "input_pixels"),
    ("plan", "dsp"),
]
NONSENSE = [10**9, 10**18, -1, 0, 1.5, True, "7", None, float("nan"), [1], {}]


def place(document: dict[str, Any], where: str) -> dict[str, Any]:
    group = document["groups"][0]
    layers = {"layers": group["layers"][1], "unroll": group["layers"][1]["unroll"], "fifos": group["fifos"][1]}
    return layers.get(where) or {"groups": group, "plan": document}[where]


@pytest.mark.parametrize("template", ["stream", "pyramid"])
@pytest.mark.parametrize(("where", "key"), NUMBERS)
def test_numbers_of_a_plan(where: str, key: str, template: str, plans: Any, tmp_path: Path) -> None:
    """Whatever they are: one line that names them as plan.json does, and no word of the gateware's own."""
    model, documents = plans
    path = tmp_path / "plan.json"
    for value in NONSENSE:
        document = json.loads(json.dumps(documents[template]))
        place(document, where)[key] = value
        path.write_text(json.dumps(document))
        if (key, value) == ("dsp", 10**9):  # the board's own then
            model.plan("zedboard", plan=path)
            continue
        with pytest.raises(PlanError) as caught:
            model.plan("zedboard", plan=path)
        message = str(caught.value)
        assert key in message, f"{value!r}: {message}"
        assert "\n" not in message
        assert not {"fifo_lanes", "fifo_depth", "lanes_out", "lanes_in", "window.pixels"} & set(message.split())


@pytest.mark.parametrize(
    ("where", "key", "value", "message"),
    [
        (
            "layers",
            "line_rows",
            10**6,
            r"plan layer conv2: line_rows must be 3 to 17 \(more never help\), not 1,000,000",
        ),
        ("layers", "chain", 221, r"plan layer conv2: chain must be 1 to 220 \(the board's DSP slices\), not 221"),
        ("fifos", "depth", 10**6, r"plan FIFO from conv2: depth must be 1 to 4,246 .*, not 1,000,000"),
        (
            "fifos",
            "lanes",
            10**6,
            r"plan FIFO from conv2: lanes must be \d+ \(.*\) to \d+ \(its unroll out\), not 1000000",
        ),
        ("groups", "tile", [2, 2], r"plan group: tile must be null \(unless its template is pyramid\), not an array"),
        ("groups", "overlap", "reuse", r"plan group: overlap must be null \(unless its template is pyramid\), not"),
    ],
)
def test_limits_of_a_plan(where: str, key: str, value: Any, message: str, plans: Any, tmp_path: Path) -> None:
    model, documents = plans
    document = json.loads(json.dumps(documents["stream"]))
    place(document, where)[key] = value
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(PlanError, match=message):
        model.plan("zedboard", plan=tmp_path / "plan.json")


# Arrays.


def header(shape: str, descr: str = "'<f4'", version: tuple[int, int] = (1, 0)) -> bytes:
    """A ``.npy`` file that says this, and holds 64 bytes."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return (
        b"\x93NUMPY" + bytes(version) + len(text).to_bytes(2 if version == (1, 0) else 4, "little") + text + bytes(64)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("(100000000000, 3, 8, 8)"), "cut short, or its header is wrong: .* takes 76,800,000,000,000 bytes"),
        (header(f"({2**62}, {2**62}, 8, 8)"), "takes more bytes than any file has"),
        (header("(1, 3, 8, 8"), "has a header that can't be read"),
        (header("(True, 4, 2, 2)"), r"impossible shape: \(True, 4, 2, 2\)"),
        (header("(-1, 4, 2, 2)"), "impossible shape"),
        (header("(1.0, 4)"), "has a header that can't be read"),
        (header("(17,)"), "cut short"),
        (header("(1,)", "'|O'"), "must hold plain numbers, not object"),
        (header("(1,)", "[('a', '<f4')]"), "must hold plain numbers"),
        (header("(1,)", "'<U4'"), "must hold plain numbers"),
        (header("(10000000000,)", "'|V0'"), "must hold plain numbers"),
        (header("(" * 500), "has a header that can't be read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100), "has a header that can't be read"),
        (b"\x93NUMPY", "is not a .npy array"),
        (b"", "is not a .npy array"),
        (b"PK\x03\x04", "is a .npz archive"),
    ],
)
def test_arrays_that_make_no_sense(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        api.read_array(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["/dev/zero", "pipe"])
def test_arrays_without_end(place: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        api.read_array(tmp_path / place)


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">f8", ">i2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_either_byte_order(dtype: str, order: Any, tmp_path: Path) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", x)
    read = api.read_array(tmp_path / "x.npy")
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, x)


def test_frames_of_either_byte_order() -> None:
    network = api.load("decoilfnet-example").network
    x = np.random.default_rng(0).normal(size=(1, *network.input.shape)).astype(np.float32)
    np.testing.assert_array_equal(prepare_inputs(network, x.astype(">f4"))[0], prepare_inputs(network, x)[0])


# The command line.


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (np._core._exceptions._ArrayMemoryError((10**6, 10**6), np.dtype("f8")), "not enough memory"),  # type: ignore[attr-defined]
        (OverflowError("int too large"), "a number is too large"),
        (RecursionError(), "nested too deep"),
    ],
)
def test_what_is_beyond_the_machine(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(cli.lists, "models", fail)
    assert cli.main(["models"]) == 2
    written = capsys.readouterr().err
    assert written.startswith("hwgen: ")
    assert written.count("\n") == 1
    assert words in written


def _reference(model: onnx.ModelProto) -> None:
    model.graph.node[-2].attribute.add(name="kernel_shape", type=onnx.AttributeProto.INTS, ref_attr_name="k")


def _cut(model: onnx.ModelProto) -> None:
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == "m")
    weights.raw_data = weights.raw_data[:-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_reference, "MaxPool 'node': attribute 'kernel_shape' must have a value: only a node inside a function"),
        (_cut, "initialiser 'm' can't be read: "),
    ],
)
def test_parts_that_no_model_has(change: Edit, message: str, tmp_path: Path) -> None:
    """The checker of ONNX takes both; they ended in a ValueError of the onnx package, the second one while folding."""
    model = model_of("MaxPool")
    dequantised = next(node for node in model.graph.node if node.name == "dequantise_m")
    model.graph.node.insert(4, helper.make_node("Flatten", [dequantised.output[0]], ["flat"], name="moves"))
    change(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        load(path)
