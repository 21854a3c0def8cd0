"""Referees for ONNX models: ONNX Runtime, part by part where some of it runs in float32, and onnx.reference."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator
from onnx_writing import as_model

import hwgen


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
    return [
        by_onnxruntime(
            as_model(
                [node], {name: (TensorProto.DOUBLE, x.shape)}, {node.output[0]: (TensorProto.DOUBLE, None)}, opset=21
            ),
            x,
        )
    ]


# The session whose every value hwgen equals.

OPTIONS = (
    *("session.qdqisint8allowed", "session.disable_double_qdq_remover"),
    "session.qdq_matmulnbits_accuracy_level",
)
"""Each is 1. Without the first, ONNX Runtime leaves operators in float32 that take int8 from the graph's input or from
a fork; without the second, it puts a scale of its own where a map is quantised twice in a row; without the third, it
quantises the floats that some products take anew, to 8 bits."""
FLOAT_OPERATORS = {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "NhwcFusedConv"}
"""Operators of an optimised graph that round intermediate sums to float32."""


UsualSession = onnxruntime.InferenceSession
"""Class of sessions in ONNX Runtime's usual mode, also where `precise_sessions` installs another one."""


@cache
def saturates() -> bool:
    """Whether ONNX Runtime's 8-bit kernels saturate sums of two products to 16 bits, as without VNNI on x86."""
    taps = np.full((1, 64, 1, 1), 127, np.int8)
    scale = helper.make_tensor("scale", TensorProto.FLOAT, (), [1.0])
    constants = [scale, numpy_helper.from_array(taps, "w")]
    constants += [numpy_helper.from_array(np.float32(64 * 127), "y_scale")]
    constants += [numpy_helper.from_array(np.zeros((), kind), kind.__name__) for kind in (np.uint8, np.int8)]
    names = ["x", "scale", "uint8", "w", "scale", "int8", "y_scale", "uint8"]
    model = as_model(
        [helper.make_node("QLinearConv", names, ["y"])],
        {"x": (TensorProto.UINT8, (1, 64, 4, 4))},
        {"y": (TensorProto.UINT8, None)},
        constants,
    )
    (y,) = integer_session(model)[0].run(None, {"x": np.full((1, 64, 4, 4), 255, np.uint8)})
    return bool((y != 255).any())


def by_integer_kernels(model: onnx.ModelProto, x: np.ndarray) -> tuple[np.ndarray, set[str]]:
    """Return ONNX Runtime's output with default optimisation and integer kernels for int8, and its float operators."""
    session, optimised = integer_session(model)
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return y, {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS


def integer_session(
    model: onnx.ModelProto, kind: type[onnxruntime.InferenceSession] | None = None
) -> tuple[onnxruntime.InferenceSession, onnx.ModelProto]:
    """Return a session with integer kernels for int8, and the model that it computes."""
    options = onnxruntime.SessionOptions()
    for option in OPTIONS:
        options.add_session_config_entry(option, "1")
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        make = onnxruntime.InferenceSession if kind is None else kind
        session = make(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session, onnx.load(options.optimized_model_filepath)


def by_emulation(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return the integers of a QDQ chain of Conv, Gemm, Relu, MaxPool and Flatten, computed without ONNX Runtime.

    Sums are exact; they, their products with the scales, and nothing else are rounded to float32. Attributes are those
    of `trained_like` in test_referee.py: even pads, one group, pools of 2x2.
    """
    values: dict[str, np.ndarray] = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values[model.graph.input[0].name] = x
    units: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        operands = [values[name] for name in node.input]
        here, unit = operands[0], units.get(node.input[0])
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        if node.op_type == "DequantizeLinear":
            _, unit, zero = operands
            shape = (-1, *[1] * (here.ndim - 1)) if zero.size > 1 else ()
            here = here.astype(np.int64) - zero.astype(np.int64).reshape(shape)
        elif node.op_type == "QuantizeLinear":
            _, scale, zero = operands
            if unit is None:
                real = here / scale
            else:
                factor = (unit / scale).astype(np.float32).reshape(-1, *[1] * (here.ndim - 2))
                real = here.astype(np.float32) * factor
            limits = np.iinfo(zero.dtype)
            here, unit = (
                np.clip(np.rint(real) + zero.astype(np.float64), limits.min, limits.max).astype(zero.dtype),
                None,
            )
        elif node.op_type == "Conv":
            _, weights, bias = operands
            pads, (stride, _) = attributes["pads"], attributes["strides"]
            padded = np.pad(here, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]).astype(np.float64)
            windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], (2, 3))[
                :, :, ::stride, ::stride
            ]
            sums = np.tensordot(windows, weights.astype(np.float64), ((1, 4, 5), (1, 2, 3)))  # exact below 2**53
            here, unit = sums.transpose(0, 3, 1, 2).astype(np.int64) + bias[:, None, None], unit * units[node.input[1]]
        elif node.op_type == "Gemm":
            _, weights, bias = operands
            assert attributes["transB"]
            here, unit = here @ weights.T + bias, unit * units[node.input[1]]
        elif node.op_type == "MaxPool":
            assert attributes["kernel_shape"] == attributes["strides"] == [2, 2]
            height, width = (size // 2 for size in here.shape[2:])
            here = here[:, :, : 2 * height, : 2 * width].reshape(*here.shape[:2], height, 2, width, 2).max((3, 5))
        elif node.op_type == "Flatten":
            here = here.reshape(len(here), -1)
        elif node.op_type == "Relu":
            here = np.maximum(here, 0)
        else:
            raise ValueError(f"by_emulation computes quantised chains of convolutions and pools, not {node.op_type}")
        values[node.output[0]] = here
        if unit is not None:
            units[node.output[0]] = unit
    return values[model.graph.output[0].name]


def segments(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """Return a chain's segments, cut behind the quantiser of each convolution. Only the first has an input of floats.

    Behind Flatten all is one segment.
    """
    products, quantisers = {"Conv", "QLinearConv"}, {"QuantizeLinear", "QLinearConv"}
    known = onnx.ModelProto()
    known.CopyFrom(shape_inference.infer_shapes(model))
    types = {value.name: value for value in (*known.graph.value_info, *known.graph.output)}
    del known.graph.value_info[:]
    known.graph.value_info.extend(types.values())
    parts, before, found = [], model.graph.input[0].name, False
    for node in model.graph.node:
        found |= node.op_type in products
        if found and node.op_type in quantisers:
            parts.append(onnx.utils.Extractor(known).extract_model([before], [node.output[0]]))
            before, found = node.output[0], False
    if before != model.graph.output[0].name:
        parts.append(onnx.utils.Extractor(known).extract_model([before], [model.graph.output[0].name]))
    return parts


#: Number of values among which one may differ, in a part that runs in float32.
RARELY = 10_000


@dataclass
class Compared:
    """Counts of compared values: exact values, all equal; values of parts in float32; and those of them that differ."""

    equal: int = 0
    rounded: int = 0
    different: int = 0

    def check(self) -> None:
        """Check that something was compared, and that few enough of the rounded values differ."""
        assert self.equal + self.rounded
        assert self.different * RARELY <= max(self.rounded, RARELY)


def compare(model: onnx.ModelProto, frames: np.ndarray, folder) -> Compared:
    """Compare a model's golden maps with ONNX Runtime's. Raise AssertionError if a value differs that must not."""
    session, optimised = integer_session(model)
    ours = _golden(model, frames, folder)
    if not _floats(optimised):
        for name, values in ours.items():
            theirs = _by_frames(session, name, {session.get_inputs()[0].name: frames})
            np.testing.assert_array_equal(values.reshape(theirs.shape), theirs, name)
        return Compared(equal=sum(values.size for values in ours.values()))
    return _by_parts(model, frames, ours, folder)


def _golden(model: onnx.ModelProto, frames: np.ndarray, folder) -> dict[str, np.ndarray]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    found = hwgen.load(path, until="end").golden(frames)
    return found if isinstance(found, dict) else {model.graph.output[0].name: found}


def _floats(optimised: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in optimised.graph.node} & FLOAT_OPERATORS


def _by_parts(model: onnx.ModelProto, frames: np.ndarray, ends: dict[str, np.ndarray], folder) -> Compared:
    known, integers = _typed(model, frames)
    # The first quantiser has nothing of the hardware's before it.
    before = {name for name in integers if not _upstream(known, name) & set(integers)}
    shown = onnx.ModelProto()
    shown.CopyFrom(known)
    present = {value.name for value in shown.graph.output}
    values = {value.name: value for value in known.graph.value_info}
    shown.graph.output.extend(values[name] for name in integers if name not in before | present)
    ours = _golden(shown, frames, folder)
    for name in before:
        first = _run(_part(known, [known.graph.input[0].name], name), {known.graph.input[0].name: frames})[0]
        ours[name] = first.reshape(len(frames), *first.shape[2:])  # each frame was a batch of one
    found = Compared()
    for name in [name for name in integers if name not in before] + [name for name in ends if name not in integers]:
        frontier = sorted(_upstream(known, name) & set(integers))
        part = _part(known, frontier, name)
        theirs, floats = _run(part, {source: ours[source] for source in frontier})
        values_of = ours[name] if name in integers else ends[name]
        _hold(found, values_of.reshape(theirs.shape), theirs, bool(floats), name)
    return found


def _hold(found: Compared, ours: np.ndarray, theirs: np.ndarray, floats: bool, name: str) -> None:
    if not floats:
        np.testing.assert_array_equal(ours, theirs, name)
        found.equal += theirs.size
        return
    difference = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    assert difference.max(initial=0) <= 1, name
    found.rounded += theirs.size
    found.different += int(np.count_nonzero(difference))


def _typed(model: onnx.ModelProto, frames: np.ndarray) -> tuple[onnx.ModelProto, list[str]]:
    """Return the model with the element type of each tensor, and the names of its integer feature maps in order."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(every.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = dict(zip(names, session.run(names, {model.graph.input[0].name: frames[:1]}), strict=True))
    known = onnx.ModelProto()
    known.CopyFrom(model)
    del known.graph.value_info[:]
    for name, array in arrays.items():
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        known.graph.value_info.append(helper.make_tensor_value_info(name, kind, [None] * np.ndim(array)))
    constants = _constant(model)
    return known, [node.output[0] for node in model.graph.node if _quantises(node) and node.output[0] not in constants]


def _quantises(node: onnx.NodeProto) -> bool:
    return node.op_type in ("QuantizeLinear", "QGemm") or node.op_type.startswith("QLinear")


def _upstream(model: onnx.ModelProto, name: str) -> set[str]:
    """Return the nearest quantised feature maps from which a tensor is computed."""
    producers = {output: node for node in model.graph.node for output in node.output}
    found: set[str] = set()
    waiting, seen = [*producers[name].input], set()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or tensor not in producers:
            continue
        seen.add(tensor)
        node = producers[tensor]
        if _quantises(node):
            found.add(tensor)
        else:
            waiting += node.input
    return found - _constant(model)


def _constant(model: onnx.ModelProto) -> set[str]:
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if set(node.input) - {""} <= constants:
            constants.update(node.output)
    return constants


def _part(model: onnx.ModelProto, sources: list[str], name: str) -> onnx.ModelProto:
    return onnx.utils.Extractor(model).extract_model(sources, [name])


def _run(part: onnx.ModelProto, values: dict[str, np.ndarray]) -> tuple[np.ndarray, set[str]]:
    session, optimised = integer_session(part)
    return _by_frames(session, part.graph.output[0].name, values), _floats(optimised)


def _by_frames(session: onnxruntime.InferenceSession, name: str, values: dict[str, np.ndarray]) -> np.ndarray:
    """Return an output, computed frame by frame, because not all models have a batch as the first dimension."""
    count = len(next(iter(values.values())))
    frames = ({source: array[place : place + 1] for source, array in values.items()} for place in range(count))
    return np.stack([np.asarray(session.run([name], each)[0]) for each in frames])
