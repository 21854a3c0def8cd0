"""Small networks, and the files that hwgen writes of them: what the mutations start from."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen import boards
from hwgen.cli.main import main

BOARD = "zedboard"
ENGINE = ("--template", "engine", "--cores", "1", "--array", "8x5")
_QDQ = ("DequantizeLinear", "QuantizeLinear")


class Writer:
    """A quantised model in the making; tensors are called by their node's number."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.random = np.random.default_rng(len(name))

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"{operator}_{len(self.nodes)}", **attributes)
        )
        return name

    def label(self, scale: float, zero: int, kind: type) -> tuple[str, str]:
        return self.constant(np.array(scale, np.float32)), self.constant(np.array(zero, kind))

    def requantise(self, tensor: str, scale: float, zero: int, kind: type = np.uint8) -> str:
        label = self.label(scale, zero, kind)
        return self.node(_QDQ[0], self.node(_QDQ[1], tensor, *label), *label)

    def conv(self, tensor: str, channels: int, outputs: int, **attributes: object) -> str:
        weights = self.constant(self.random.integers(-90, 91, (outputs, channels, 3, 3)).astype(np.int8))
        given = self.node(_QDQ[0], weights, *self.label(0.01, 0, np.int8))
        bias = self.constant(self.random.normal(0, 1, outputs).astype(np.float32))
        return self.node("Conv", tensor, given, bias, pads=[1, 1, 1, 1], **attributes)

    def model(self, output: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        self.nodes[-1].output[0] = output
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [value("x", TensorProto.FLOAT, ["n", *self.shape])],
            [value(output, TensorProto.FLOAT, ["n", *shape])],
            self.constants,
        )
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


def chain() -> onnx.ModelProto:
    """Two convolutions with a pool between."""
    writer = Writer("chain", (2, 6, 5))
    tensor = writer.node("Relu", writer.conv(writer.requantise("x", 0.02, 3), 2, 4))
    tensor = writer.node("MaxPool", writer.requantise(tensor, 0.03, 0), kernel_shape=[2, 2], strides=[2, 2])
    writer.requantise(writer.conv(tensor, 4, 3), 0.05, 120)
    return writer.model("y", (3, 3, 2))


def graph() -> onnx.ModelProto:
    """Return a model with a branch, a sum, a concatenation, a function of a value, computed constants and a head."""
    writer = Writer("graph", (4, 6, 6))
    first = writer.requantise("x", 0.02, 100)
    left = writer.requantise(writer.conv(first, 4, 4), 0.04, 128)
    total = writer.requantise(writer.node("Add", first, left), 0.05, 110)
    right = writer.requantise(writer.node("HardSigmoid", total), 0.004, 0)
    joined = writer.requantise(writer.node("Concat", total, right, axis=1), 0.05, 110)
    weights = writer.constant(writer.random.integers(-90, 91, (8, 3, 2)).astype(np.int8))
    matrix = writer.node(_QDQ[0], weights, *writer.label(0.02, 0, np.int8))
    matrix = writer.node("Reshape", matrix, writer.constant(np.array([8, 6])))
    pooled = writer.requantise(writer.node("GlobalAveragePool", joined), 0.05, 110)
    flat = writer.node("Flatten", pooled)
    writer.node("Softmax", writer.requantise(writer.node("MatMul", flat, matrix), 0.03, 128))
    return writer.model("y", (6,))


def operators() -> onnx.ModelProto:
    """Operators of integers (QLinearConv, QLinearLeakyRelu), and one on constants alone."""
    writer = Writer("operators", (3, 5, 5))
    label, result = writer.label(0.02, 3, np.uint8), writer.label(0.03, 7, np.uint8)
    weights = writer.constant(writer.random.integers(-90, 91, (4, 3, 3, 3)).astype(np.int8))
    bias = writer.constant(writer.random.integers(-900, 900, 4).astype(np.int32))
    tensor = writer.node(_QDQ[1], "x", *label)
    tensor = writer.node("QLinearConv", tensor, *label, weights, *writer.label(0.01, 0, np.int8), *result, bias)
    tensor = writer.node("QLinearLeakyRelu", tensor, *result, *label, domain="com.microsoft", alpha=0.1)
    tensor = writer.node(_QDQ[0], tensor, *label)
    square = writer.constant(np.ones((2, 2), np.float32))
    writer.node("Mul", tensor, writer.node("ReduceMax", writer.node("MatMul", square, square), keepdims=0))
    return writer.model("y", (4, 3, 3))


MODELS = {"chain": chain, "graph": graph, "operators": operators}


def write(folder: Path) -> None:
    """Write models, plans of each template, an engine with a program, and a design whose weights are loaded."""
    for name, make in MODELS.items():
        onnx.save(make(), folder / f"{name}.onnx")
    model = str(folder / "chain.onnx")
    for name, options in {"stream": (), "pyramid": ("--template", "pyramid", "--tile", "2x2"), "tile": ENGINE}.items():
        _done("plan", model, "--board", BOARD, *options, "-o", str(folder / f"{name}.plan.json"))
    _done("build", model, "--board", BOARD, *ENGINE, "-o", str(folder / "engine"))
    _done("build", model, "--board", BOARD, "--weights", "runtime", "-o", str(folder / "design"))
    _done("weights", model, "--design", str(folder / "design"), "-o", str(folder / "chain.weights"))
    text = (Path(boards.__file__).parent / f"{BOARD}.toml").read_text(encoding="utf-8")
    (folder / "mine.toml").write_text(text)
    network = hwgen.load(model)
    np.save(folder / "x.npy", network.random_frames(2))


def _done(*arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        status = main(arguments)
    if status:
        print(said.getvalue(), file=sys.stderr)
        raise SystemExit(f"hwgen {' '.join(arguments)}: status {status}")
