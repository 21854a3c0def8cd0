"""What ONNX models are held against: ONNX Runtime, onnx.reference, and onnx.reference's operators in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return y


def by_reference(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    (y,) = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})
    return y


def by_float64(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return trace_float64(model, x)[model.graph.output[0].name]


def trace_float64(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor of a QDQ model, in float64 behind its first QuantizeLinear: exact where scales are powers of two.

    onnx.reference computes all but QuantizeLinear and DequantizeLinear, and MaxPool (in which it has faults).
    """
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values[model.graph.input[0].name] = x
    for node in model.graph.node:
        operands = {name: values[name] for name in node.input if name}
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            value, scale, *zeros = operands.values()
            zero = zeros[0] if zeros else np.zeros((), value.dtype)
            axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 1)
            shape = [-1 if place == axis else 1 for place in range(value.ndim)] if scale.size > 1 else ()
            scale, limits = scale.reshape(shape), np.iinfo(zero.dtype)
            steps = zero.astype(np.float64).reshape(shape if zero.size > 1 else ())
            if node.op_type == "DequantizeLinear":
                result = (value - steps) * scale
            else:
                rounded = np.rint(value / scale.astype(value.dtype)) + steps
                result = np.clip(rounded, limits.min, limits.max).astype(zero.dtype)
        else:
            operands = {
                name: value.astype(np.float64) if value.dtype == np.float32 else value
                for name, value in operands.items()
            }
            compute = _pooled if node.op_type == "MaxPool" else _by_reference
            (result,) = compute(node, operands)
        values[node.output[0]] = result
    return values


def _by_reference(node: onnx.NodeProto, operands: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(node).run(None, operands)


def _pooled(node: onnx.NodeProto, operands: dict[str, np.ndarray]) -> list[np.ndarray]:
    ((name, x),) = operands.items()
    graph = helper.make_graph(
        [node],
        "pool",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, x.shape)],
        [helper.make_tensor_value_info(node.output[0], TensorProto.DOUBLE, None)],
    )
    return [by_onnxruntime(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), x)]
