"""Writes models in which layers stand beside operators that hwgen does not build.

Scales are powers of two and weights small, so that ONNX Runtime's integers are hwgen's on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from referees import integer_session

Operator = Callable[["Writer", str], str]
"""Adds something behind a float tensor; gives the tensor behind it."""


class Writer:
    """A model in the making; ``tensor`` is the last one of integers, with ``channels``."""

    def __init__(self, frame: tuple[int, ...] = (4, 8, 8), *, kind: int = TensorProto.FLOAT, seed: int = 0) -> None:
        self.frame, self.kind, self.channels = frame, kind, frame[0]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(seed)
        self.scale, self.zero = self.constant(np.float32(1 / 16)), self.constant(np.uint8(100))
        self.tensor = "x"

    def constant(self, values: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(values), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, operator: str, *inputs: str, name: str | None = None, outputs: int = 1, **attributes: Any) -> str:
        """One node, called by its operator and number unless it has a ``name``; gives its first output."""
        count = len(self.nodes)
        names = [f"t{count}" if place == 0 else f"t{count}_{place}" for place in range(outputs)]
        name = f"{operator.lower()}{count}" if name is None else name
        self.nodes.append(helper.make_node(operator, inputs, names, name=name, **attributes))
        return names[0]

    def quantise(self, tensor: str, **options: Any) -> str:
        return self.add("QuantizeLinear", tensor, self.scale, self.zero, **options)

    def dequantise(self, tensor: str, **options: Any) -> str:
        return self.add("DequantizeLinear", tensor, self.scale, self.zero, **options)

    def conv(self, tensor: str, *, outputs: int = 4, kernel: int = 3, real: bool = False, **attributes: Any) -> str:
        """Add a convolution of floats that keeps rows and columns. With ``real``, its weights are not quantised."""
        weights = self.random.integers(-30, 31, (outputs, self.channels, kernel, kernel)).astype(np.int8)
        if real:
            given = self.constant(weights.astype(np.float32) / 64)
        else:
            given = self.add("DequantizeLinear", self.constant(weights), self.constant(np.float32(2.0**-6)))
        return self.add("Conv", tensor, given, pads=[kernel // 2] * 4, **attributes)

    def layer(self, *operators: Operator) -> None:
        """DequantizeLinear, some operators, QuantizeLinear."""
        tensor = self.dequantise(self.tensor)
        for operator in operators:
            tensor = operator(self, tensor)
        self.tensor = self.quantise(tensor)

    def give(self, tensor: str, kind: int = TensorProto.FLOAT, rank: int = 4) -> None:
        """One of the model's outputs."""
        self.outputs.append(helper.make_tensor_value_info(tensor, kind, [None] * rank))

    def model(self, *domains: str, opset: int = 17) -> onnx.ModelProto:
        """Return the model. Its last integer tensor is the output if there is no other output."""
        if not self.outputs:
            self.give(self.tensor, TensorProto.UINT8)
        graph = helper.make_graph(
            self.nodes,
            "foreign",
            [helper.make_tensor_value_info("x", self.kind, ["batch", *self.frame])],
            self.outputs,
            self.constants,
        )
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def frames(self, count: int = 3) -> np.ndarray:
        return np.random.default_rng(1).normal(0, 3, (count, *self.frame)).astype(np.float32)


def begun(**options: Any) -> Writer:
    """Return a writer of a model whose input is quantised."""
    writer = Writer(**options)
    writer.tensor = writer.quantise("x")
    return writer


def conv(writer: Writer, tensor: str) -> str:
    return writer.conv(tensor)


def real_conv(writer: Writer, tensor: str) -> str:
    """Add a convolution whose float weights ONNX Runtime does not quantise, because a LeakyRelu follows."""
    return writer.add("LeakyRelu", writer.conv(tensor, real=True))


def by(operator: str, *constants: Any, **attributes: Any) -> Operator:
    """Return a function that adds an operator with constants as its other operands."""

    def add(writer: Writer, tensor: str) -> str:
        return writer.add(operator, tensor, *(writer.constant(value) for value in constants), **attributes)

    return add


TEN: Sequence[Operator] = (
    by("MeanVarianceNormalization", axes=[2, 3]),
    by("Trilu"),
    real_conv,
    by("Mod", np.float32(3), fmod=1),
    by("InstanceNormalization", np.ones(4, np.float32), np.zeros(4, np.float32)),
    by("LpPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    by("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], storage_order=1),
    by("ReduceMax", axes=[2], keepdims=1),
    by("Einsum", equation="nchw->nchw"),
    by("CumSum", np.int64(2)),
)
"""Ten things that can't be built, of which no two are refused for one reason."""


def ten_obstacles(*, named: bool = True) -> Writer:
    """Two convolutions, then each of `TEN` with a convolution behind it."""
    writer = begun()
    writer.layer(conv)
    writer.layer(conv)
    for operator in TEN:
        writer.layer(operator)
        writer.layer(conv)
    if not named:
        for node in writer.nodes:
            node.ClearField("name")
    return writer


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """All outputs of the whole model, in the session whose every value hwgen equals."""
    session, _ = integer_session(model)
    names = [value.name for value in session.get_outputs()]
    return {name: np.asarray(values) for name, values in zip(names, session.run(None, {"x": x}), strict=True)}
