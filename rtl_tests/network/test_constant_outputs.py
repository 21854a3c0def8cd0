"""Outputs that no input influences: they are left out, and the rest is built as without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen.network.onnx.importer import to_network

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SCALE = numpy_helper.from_array(np.float32(0.25), "scale")


def _initialiser(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(SCALE)


def _node(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["scale"], value=SCALE))


def _computed(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "root"))
    model.graph.node.append(helper.make_node("Mul", ["root", "root"], ["scale"]))


@pytest.mark.parametrize("add", [_initialiser, _node, _computed])
def test_a_scale_beside_its_values(add, tmp_path):
    """As exporters of quantised tensors give it; a warning names it."""
    model = onnx.load(DIGITS / "digits.onnx")
    add(model)
    model.graph.output.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT, []))
    path = tmp_path / "digits.onnx"
    onnx.save(model, path)
    found, plain = hwgen.load(path), hwgen.load(DIGITS / "digits.onnx")
    images = np.load(DIGITS / "images.npy")[:20]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    logits, scale = session.run(None, {"image": images})
    assert scale == np.float32(0.25)
    np.testing.assert_array_equal(found.golden(images), logits)
    assert found.network.warnings == ("output 'scale' is left out: it is a constant, which no input influences",)
    assert [layer.name for layer in found.network.layers] == [layer.name for layer in plain.network.layers]
    assert hwgen.check(path).supported


def test_no_other_output():
    model = onnx.load(DIGITS / "digits.onnx")
    _initialiser(model)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("scale", TensorProto.FLOAT, []))
    with pytest.raises(hwgen.ModelError, match=r"^m: "):
        to_network(model, "m", "m")


def test_random_numbers_are_no_constant():
    model = onnx.load(DIGITS / "digits.onnx")
    model.graph.node.append(helper.make_node("RandomNormal", [], ["noise"], shape=[1]))
    model.graph.output.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, [1]))
    with pytest.raises(hwgen.ModelError):
        to_network(model, "m", "m")
