"""Writes pieces of quantised models, node by node, and holds what hwgen makes of them against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from referees import FLOAT_OPERATORS, integer_session

from hwgen.network import golden, host
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import prepare_inputs

RARELY = 10_000
"""Number of values among which one may differ, by 1, where ONNX Runtime rounds sums to float32."""


class Piece:
    """A model in the making, with one input ``x`` of ``shape`` behind the batch.

    Scales are no simple multiples of one another, so that sums hardly ever lie in the middle between two integers.
    """

    def __init__(
        self,
        shape: Sequence[int] = (3, 6, 6),
        kind: Any = np.uint8,
        *,
        scale: float = 0.7,
        zero: int = 3,
        opset: int = 18,
        batch: int | str = "n",
        seed: int = 3,
    ) -> None:
        self.shape, self.kind, self.opset, self.batch = tuple(shape), np.dtype(kind), opset, batch
        self.label = scale, zero
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(seed)

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add an initialiser, and return its name. Python's floats become float32."""
        array = np.asarray(values, dtype)
        if dtype is None and array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> str:
        """Add a node named after its operator and number, and return its first output.

        Inputs that are no names become constants. The other outputs are named ``NAME_1`` and so on.
        """
        given = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"{operator}{len(self.nodes)}"
        names = [name if place == 0 else f"{name}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, given, names, name=name, **attributes))
        return name

    def quantise(self, tensor: str, scale: float, zero: int = 0, kind: Any = np.uint8) -> str:
        return self.node("QuantizeLinear", tensor, np.float32(scale), np.array(zero, kind))

    def dequantise(self, tensor: str, scale: float, zero: int = 0, kind: Any = np.uint8) -> str:
        return self.node("DequantizeLinear", tensor, np.float32(scale), np.array(zero, kind))

    def requantise(self, tensor: str, scale: float, zero: int = 0, kind: Any = np.uint8) -> str:
        """QuantizeLinear and DequantizeLinear."""
        return self.dequantise(self.quantise(tensor, scale, zero, kind), scale, zero, kind)

    def real(self) -> str:
        """Add the dequantised input, and return its tensor of floats."""
        scale, zero = self.label
        if self.kind == np.float32:
            return self.requantise("x", scale, zero)
        return self.dequantise("x", scale, zero, self.kind)

    def weights(
        self, shape: Sequence[int], *, axis: int | None = None, most: int = 1, scale: float = 1.0, kind: Any = np.int8
    ) -> str:
        """Dequantised integers up to ``most``; with scales of their own along ``axis``."""
        least = 0 if np.dtype(kind).kind == "u" else -most
        integers = self.constant(self.random.integers(least, most + 1, shape), kind)
        if axis is None:
            return self.node("DequantizeLinear", integers, np.float32(scale), np.array(0, kind))
        scales = self.random.uniform(scale / 2, scale * 2, shape[axis]).astype(np.float32)
        return self.node("DequantizeLinear", integers, scales, np.zeros(shape[axis], kind), axis=axis)

    def floats(self, *shape: int, deviation: float = 1.0) -> str:
        """Add a constant of random float32 numbers, and return its name."""
        return self.constant(self.random.normal(0, deviation, shape), np.float32)

    def conv(self, tensor: str, outputs: int = 4, channels: int = 3, *, bias: bool = True, **attributes: Any) -> str:
        """Add a 3x3 convolution, whose bias is a float constant, and return its tensor."""
        more = [self.floats(outputs)] if bias else []
        return self.node("Conv", tensor, self.weights((outputs, channels, 3, 3)), *more, **attributes)

    def model(self, *outputs: str, opsets: Sequence[onnx.OperatorSetIdProto] = ()) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "piece",
            [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(self.kind), [self.batch, *self.shape])],
            [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
            [numpy_helper.from_array(values, name) for name, values in self.constants.items()],
        )
        for value in graph.output:
            value.ClearField("type")
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), *opsets], ir_version=9)
        inferred = shape_inference.infer_shapes(model)
        del inferred.graph.value_info[:]
        return inferred

    def frames(self, count: int, seed: int = 1) -> np.ndarray:
        random, shape = np.random.default_rng(seed), (count, *self.shape)
        if self.kind == np.float32:
            return random.normal(0, 20 * self.label[0], shape).astype(np.float32)
        limits = np.iinfo(self.kind)
        return random.integers(limits.min, limits.max + 1, shape).astype(self.kind)


def compared(model: onnx.ModelProto, x: np.ndarray) -> tuple[Network, np.ndarray, set[str]]:
    """Return the network, the differences of its output from ONNX Runtime's, and ONNX Runtime's float32 operators."""
    session, optimised = integer_session(model)
    theirs = np.asarray(session.run(None, {"x": x})[0])
    network = to_network(model, "network")
    ours = host.outputs(network, golden.run(network, prepare_inputs(network, x)), 0)
    assert ours.shape == theirs.shape
    floats = {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS
    return network, np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), floats


def check(model: onnx.ModelProto, x: np.ndarray) -> Network:
    """Every value equals ONNX Runtime's, but for what it rounds to float32."""
    network, difference, floats = compared(model, x)
    allowed = max(1, difference.size // RARELY) if floats else 0
    assert (difference > 0).sum() <= allowed, f"{(difference > 0).sum()} of {difference.size:,} differ"
    assert difference.max() <= 1
    return network
