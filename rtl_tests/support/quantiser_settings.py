"""Settings of ONNX Runtime's ``quantize_static``, and a network with the usual operators to try them on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from exporters import Writer
from onnx_writing import Frames
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

_INT8 = {"activation_type": QuantType.QInt8}
_PAIRS = {"DedicatedQDQPair": True}
_SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
_LAYERS = ["Conv", "Gemm", "MatMul", "Mul", "HardSigmoid", "Add", "AveragePool", "GlobalAveragePool", "ReduceMean"]

SETTINGS: dict[str, Mapping[str, Any]] = {
    "defaults": {},
    "per channel": {"per_channel": True},
    "int8": _INT8,
    "int8, symmetric": {**_INT8, "extra_options": _SYMMETRIC},
    "uint8 weights": {"weight_type": QuantType.QUInt8},
    "weights of 7 bits": {"per_channel": True, "reduce_range": True},
    "entropy": {"calibrate_method": CalibrationMethod.Entropy},
    "percentile": {"calibrate_method": CalibrationMethod.Percentile},
    "moving average": {"extra_options": {"CalibMovingAverage": True}},
    "a pair for each reader": {"extra_options": _PAIRS},
    "a pair for each reader, symmetric": {**_INT8, "per_channel": True, "extra_options": _PAIRS | _SYMMETRIC},
    "quantised weights in the graph": {"extra_options": {"AddQDQPairToWeight": True}},
    "float biases": {"extra_options": {"QuantizeBias": False}},
    "all operators": {"extra_options": {"ForceQuantizeNoInputCheck": True}},
    "operators on integers": {"quant_format": QuantFormat.QOperator},
    "operators on integers, int8": {"quant_format": QuantFormat.QOperator, **_INT8, "per_channel": True},
    "operators on integers, all": {
        "quant_format": QuantFormat.QOperator,
        "extra_options": {"ForceQuantizeNoInputCheck": True},
    },
    "some operators": {
        **_INT8,
        "per_channel": True,
        "op_types_to_quantize": _LAYERS,
        "extra_options": _PAIRS | _SYMMETRIC,
    },
    "float outputs of Gemm": {"extra_options": {"OpTypesToExcludeOutputQuantization": ["Gemm"]}},
}
"""Arguments of ``quantize_static`` beside the model, by what is special about them."""

TAILS = ("GlobalAveragePool", "ReduceMean", "ReduceMean, kept")
"""Averages in front of the network's classifier, as exporters of different age write them."""


def network(tail: str) -> tuple[onnx.ModelProto, Writer]:
    """Return a float model with two outputs, classes and a map, and its writer."""
    w = Writer(f"ways of {tail}", (1, 3, 16, 16))
    x = w.block("x", 8, act="hard_swish", norm=True)
    inner = w.block(w.block(x, 16, 1, act="silu"), 16, 3, act="relu6", group=16)
    x = w.node("Add", x, w.conv(w.squeeze(inner, "HardSigmoid"), 8, 1))
    x = w.pool(w.node("Pad", x, w.constant(np.array([0] * 8))), kind="AveragePool")
    first, second = w.split(w.block(x, 12, 3, act="leaky"), 5, 7)
    x = w.pool(w.concat(second, w.relu(w.conv(first, 5, 1))))
    heat = w.resize(w.conv(x, 4, 1))
    if tail == "GlobalAveragePool":
        x = w.node("Flatten", w.node("GlobalAveragePool", x))
    elif tail == "ReduceMean":
        x = w.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    else:
        x = w.node("Flatten", w.node("ReduceMean", x, axes=[2, 3], keepdims=1))
    return w.model(w.dense(x, 12, 5), heat), w


def quantised(setting: str, tail: str) -> tuple[onnx.ModelProto, Writer]:
    """Return the network, quantised with one of the `SETTINGS`, and its writer."""
    model, writer = network(tail)
    arguments = {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        **SETTINGS[setting],
    }
    with tempfile.TemporaryDirectory() as folder:
        given, prepared, result = (Path(folder) / f"{name}.onnx" for name in ("given", "prepared", "result"))
        onnx.save(model, given)
        quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
        quantize_static(str(prepared), str(result), Frames(writer.frames(8)), **arguments)
        return onnx.load(result), writer
