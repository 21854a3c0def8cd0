"""Nodes that change nothing, repeated quantisers, and outputs that nobody reads or no input influences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from pieces import Piece, check

import hwgen
from hwgen.network.onnx.importer import to_network


def _pooled(piece: Piece, tensor: str) -> onnx.ModelProto:
    """Return a model that averages a tensor behind a DequantizeLinear, where nothing may stand in between."""
    pooled = piece.node("AveragePool", tensor, kernel_shape=[2, 2])
    return piece.model(piece.quantise(pooled, 0.31, 2))


def _cast(piece: Piece, tensor: str) -> str:
    return piece.node("Cast", tensor, to=onnx.TensorProto.FLOAT)


def _padded(piece: Piece, tensor: str) -> str:
    return piece.node("Pad", tensor, np.zeros(8, np.int64))


def _padded_by_node(piece: Piece, tensor: str) -> str:
    value = onnx.numpy_helper.from_array(np.zeros(8, np.int64))
    return piece.node("Pad", tensor, piece.node("Constant", value=value))


def _transposed_twice(piece: Piece, tensor: str) -> str:
    return piece.node("Transpose", piece.node("Transpose", tensor, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])


def _dropped(piece: Piece, tensor: str) -> str:
    return piece.node("Dropout", tensor, outputs=2)


@pytest.mark.parametrize("nothing", [_cast, _padded, _padded_by_node, _transposed_twice, _dropped])
@pytest.mark.parametrize("times", [1, 3])
def test_nodes_that_change_nothing(nothing, times) -> None:
    piece = Piece()
    tensor = piece.real()
    for _ in range(times):
        tensor = nothing(piece, tensor)
    network = check(_pooled(piece, tensor), piece.frames(40))
    assert [layer.kind for layer in network.layers] == ["averagepool"]


def test_a_node_at_an_output_stays(tmp_path) -> None:
    piece = Piece()
    pooled = piece.quantise(piece.node("AveragePool", piece.real(), kernel_shape=[2, 2]), 0.31, 2)
    model = piece.model(_padded(piece, piece.dequantise(pooled, 0.31, 2)))
    onnx.save(model, tmp_path / "model.onnx")
    x = piece.frames(5)
    given = check(model, x)
    assert [layer.kind for layer in given.layers] == ["averagepool"]
    assert hwgen.load(tmp_path / "model.onnx").golden(x).dtype == np.float32


def _best(piece: Piece) -> str:
    values = piece.node("TopK", piece.requantise(piece.conv(piece.real()), 9.1, 100), np.array([2]), outputs=2, axis=1)
    return piece.node("Softmax", values)


def _halves(piece: Piece) -> str:
    """Return one half of a Split, whose outputs are not optional either."""
    x = piece.requantise(piece.conv(piece.real()), 9.1, 100)
    return piece.node("Sigmoid", piece.node("Split", piece.node("Softmax", x), outputs=2, num_outputs=2, axis=1))


def _greatest(piece: Piece) -> str:
    x = piece.node("MaxPool", piece.real(), outputs=2, kernel_shape=[2, 2])
    return piece.quantise(piece.conv(x), 9.1, 100)


@pytest.mark.parametrize("written", [_best, _halves, _greatest])
def test_outputs_that_nobody_reads(written) -> None:
    """Where the operator requires the output, it stays; ONNX Runtime runs the model, and the host's part of it."""
    piece = Piece()
    check(piece.model(written(piece)), piece.frames(20))


def _pairs(piece: Piece, tensor: str, *, clip: bool = False) -> list[str]:
    """Return two dequantised forms of a tensor of floats, each from constants of its own."""
    results = []
    for _ in range(2):
        integers = piece.quantise(tensor, 0.9, 7)
        if clip:
            integers = piece.node("Clip", integers, np.uint8(2), np.uint8(200))
        results.append(piece.dequantise(integers, 0.9, 7))
    return results


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("behind", ["conv", "lookup", "pool"])
def test_a_pair_for_each_reader(behind, clip) -> None:
    """Both readers of a tensor have a quantiser of their own, as in models for TensorRT."""
    piece = Piece(shape=(4, 6, 6))
    x = piece.real()
    before = {
        "conv": lambda: piece.conv(x, 4, 4, pads=[1] * 4),
        "lookup": lambda: piece.node("Sigmoid", x),
        "pool": lambda: piece.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4),
    }[behind]()
    first, second = _pairs(piece, before, clip=clip)
    sums = piece.node("Add", piece.requantise(piece.conv(first, 4, 4, pads=[1] * 4), 9.1, 100), second)
    network = check(piece.model(piece.quantise(sums, 8.3, 90)), piece.frames(30))
    assert sum(layer.kind == behind.replace("pool", "maxpool") for layer in network.layers) == 1 + (behind == "conv")


def test_pairs_that_differ_are_refused(tmp_path) -> None:
    piece = Piece(shape=(4, 6, 6))
    sums = piece.conv(piece.real(), 4, 4, pads=[1] * 4)
    first, second = piece.requantise(sums, 0.9, 7), piece.requantise(sums, 0.9, 8)
    onnx.save(piece.model(piece.quantise(piece.node("Add", first, second), 8.3, 90)), tmp_path / "model.onnx")
    with pytest.raises(hwgen.ModelError, match="takes floats that go to"):
        hwgen.load(tmp_path / "model.onnx")


def test_verdicts_and_parts(tmp_path) -> None:
    """A node that is gone has a verdict with the reason, and ``until`` takes the name of its output."""
    piece = Piece(shape=(4, 6, 6))
    sums = piece.conv(piece.real(), 4, 4, pads=[1] * 4)
    first, second = _pairs(piece, _padded(piece, sums))
    model = piece.model(piece.quantise(piece.node("Add", first, second), 8.3, 90))
    repeated = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"][1]
    onnx.save(model, tmp_path / "model.onnx")
    reasons = {verdict.op: verdict.reason for verdict in hwgen.check(tmp_path / "model.onnx").operators}
    assert reasons["Pad"] == "changes nothing"
    verdicts = {verdict.node: verdict for verdict in hwgen.check(tmp_path / "model.onnx").operators}
    assert verdicts[repeated].reason.startswith("the same as QuantizeLinear node ")
    assert verdicts[repeated].verdict == "folded"
    design = hwgen.load(tmp_path / "model.onnx", until=repeated)
    np.testing.assert_array_equal(design.golden(x := piece.frames(3)), hwgen.load(tmp_path / "model.onnx").golden(x))


def test_a_file_of_an_early_version(tmp_path) -> None:
    """Up to IR version 3 each initialiser is an input; ONNX Runtime's quantiser adds some that are not."""
    piece = Piece(opset=13)
    model = _pooled(piece, piece.real())
    onnx.save(model, tmp_path / "new.onnx")
    model.ir_version = 3
    onnx.save(model, tmp_path / "old.onnx")
    x = piece.frames(3)
    new, old = (hwgen.load(tmp_path / f"{age}.onnx").golden(x) for age in ("new", "old"))
    np.testing.assert_array_equal(new, old)


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
