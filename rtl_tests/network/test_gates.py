"""Squeeze and excitation: the gate of a map's mean, as exporters write it and the quantiser's settings quantise it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exporters import Frames, Writer
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from referees import compare

import hwgen
from hwgen.network.onnx.importer import to_network


def _clipped(writer: Writer, tensor: str) -> str:
    """A HardSigmoid in three operators."""
    zero, three, six = (writer.constant(np.float32(value)) for value in (0, 3, 6))
    return writer.node("Div", writer.node("Clip", writer.node("Add", tensor, three), zero, six), six)


GATES = {
    "HardSigmoid": lambda writer, tensor: writer.node("HardSigmoid", tensor, alpha=1 / 6, beta=0.5),
    "Sigmoid": lambda writer, tensor: writer.node("Sigmoid", tensor),
    "clipped": _clipped,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "int8": {"activation_type": QuantType.QInt8},
    "integer operators": {"quant_format": QuantFormat.QOperator},
    "integer operators, int8": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QInt8},
    "all inputs": {"extra_options": {"ForceQuantizeNoInputCheck": True}},
    "Conv, Mul": {"op_types_to_quantize": ["Conv", "Mul"]},
    "Conv, Mul, pool": {"op_types_to_quantize": ["Conv", "Mul", "GlobalAveragePool"]},
    "pairs of their own": {"extra_options": {"DedicatedQDQPair": True}},
}


def _quantised(gate: str, setting: dict[str, Any], *, silu: bool) -> tuple[onnx.ModelProto, Writer]:
    """Return a model of one gated map; ``silu``: with the activations and the mean of an EfficientNet."""
    writer = Writer("gate", [1, 3, 8, 8])

    def activated(tensor: str) -> str:
        if silu:
            return writer.node("Mul", tensor, writer.node("Sigmoid", tensor))
        return writer.node("Relu", tensor)

    features = activated(writer.conv("x", 8, 3))
    mean = (
        writer.node("ReduceMean", features, axes=[2, 3], keepdims=1)
        if silu
        else writer.node("GlobalAveragePool", features)
    )
    gates = GATES[gate](writer, writer.conv(activated(writer.conv(mean, 4, 1)), 8, 1))
    model = writer.model(writer.conv(writer.node("Mul", features, gates), 6, 1))
    with tempfile.TemporaryDirectory() as folder:
        source, prepared, target = (Path(folder) / name for name in ("a.onnx", "b.onnx", "c.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        options = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, **setting}
        quantize_static(prepared, target, Frames(writer.frames(8)), per_channel=True, **options)
        return onnx.load(target), writer


CASES = [
    pytest.param(gate, setting, silu, marks=[] if (row + column) % 3 == 0 and silu == column % 2 else pytest.mark.long)
    for row, gate in enumerate(GATES)
    for column, setting in enumerate(SETTINGS)
    for silu in (False, True)
]


@pytest.mark.parametrize(("gate", "setting", "silu"), CASES)
def test_equal(gate: str, setting: str, silu: bool, tmp_path: Path) -> None:
    model, writer = _quantised(gate, SETTINGS[setting], silu=silu)
    compared = compare(model, writer.frames(10), tmp_path)
    compared.check()
    assert not compared.different


@pytest.mark.parametrize("gate", GATES)
def test_products_of_float_functions_are_refused(gate: str) -> None:
    """With Conv alone, the quantiser leaves the gates in floats, which have no integers to multiply."""
    model, _ = _quantised(gate, {"op_types_to_quantize": ["Conv"]}, silu=False)
    message = (
        r"^model: Mul node '\S+': must take quantised inputs \(QuantizeLinear, DequantizeLinear in front of each\), "
        r"but '\S+' gives floats; quantise its output, too: ONNX Runtime's quantiser does so if op_types_to_quantize "
    )
    with pytest.raises(hwgen.ModelError, match=message) as error:
        to_network(model, "model")
    assert len(error.value.lines) == 1
