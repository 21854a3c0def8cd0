"""Models that are no convolutional networks: one sentence says what they contain, and what can be built of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from float_models import VIT, VIT_WEIGHTS, quantised
from foreign import begun, by, conv
from onnx import TensorProto, helper

import hwgen
from hwgen.errors import ModelError


def refusal(path: str) -> str:
    with pytest.raises(ModelError) as error:
        hwgen.load(path)
    (line,) = error.value.lines
    return line.removeprefix(f"{path}: ")


def test_attention(tmp_path: Path) -> None:
    """One line, although the products, the Softmax, the sum and the mean behind them can't be built either."""
    path = quantised(VIT, (1, 3, 16, 16), tmp_path, **VIT_WEIGHTS)
    contains = "contains attention (MatMul node 'scores' and 1 more), which hwgen does not build"
    assert refusal(path) == f"{contains}; --until auto builds the part before it"
    found = hwgen.check(path)
    assert found.obstacles == (contains,)
    assert found.survey.part is not None
    built = {layer.name for layer in hwgen.load(path, until="auto").network.layers}
    assert built == {"patches", "q0", "k0", "v0"}


def test_attention_with_layer_normalisation(tmp_path: Path) -> None:
    """Both are in the sentence. Nothing comes before them, so that no part is offered."""
    text = """encoder (float[1, 16, 24] x) => (float[1, 16, 24] y) {
        n = LayerNormalization (x, gain)
        k = Transpose <perm = [0, 2, 1]> (n)
        s = MatMul (n, k)
        w = Softmax (s)
        y = MatMul (w, n)
    }"""
    said = refusal(quantised(text, (1, 16, 24), tmp_path, gain=(24,)))
    assert said == (
        "contains attention (MatMul node 's' and 1 more) and layer normalisation (LayerNormalization node 'n'), which "
        "hwgen does not build"
    )


def test_recurrence(tmp_path: Path) -> None:
    text = """speech (float[1, 3, 12] x) => (float[12, 1, 6] y) {
        c = Conv <kernel_shape = [3], pads = [1, 1]> (x, w0)
        t = Transpose <perm = [2, 0, 1]> (c)
        h = LSTM <hidden_size = 16> (t, w, r)
        s = Squeeze (h, one)
        y = MatMul (s, w1)
    }"""
    weights = {"w0": (4, 3, 3), "w": (1, 64, 4), "r": (1, 64, 16), "w1": (16, 6), "one": np.array([1])}
    said = refusal(quantised(text, (1, 3, 12), tmp_path, **weights))
    assert said == (
        "contains recurrence (LSTM node 'h'), which hwgen does not build; --until auto builds the part before it"
    )


def test_three_dimensions(tmp_path: Path) -> None:
    """The input is refused because of its five dimensions; that follows from the convolutions."""
    text = """video (float[1, 2, 4, 8, 8] x) => (float[1, 5, 1, 3, 3] y) {
        c = Conv <kernel_shape = [3, 3, 3]> (x, w0)
        p = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (c)
        y = Conv <kernel_shape = [1, 1, 1]> (p, w1)
    }"""
    said = refusal(quantised(text, (1, 2, 4, 8, 8), tmp_path, w0=(3, 2, 3, 3, 3), w1=(5, 3, 1, 1, 1)))
    assert said == (
        "contains three-dimensional convolutions or pools (Conv node 'c' and 2 more), which hwgen does not build"
    )


def test_other_refusals_stay(tmp_path: Path) -> None:
    """An operator before the products of two maps is a cause of its own, one behind them is not."""
    writer = begun()
    writer.layer(conv)
    writer.layer(by("MeanVarianceNormalization", axes=[2, 3]))
    real = writer.dequantise(writer.tensor)
    writer.tensor = writer.quantise(writer.add("MatMul", real, writer.add("Transpose", real, perm=[0, 1, 3, 2])))
    writer.layer(by("LpPool", kernel_shape=[2, 2]))
    onnx.save(writer.model(), tmp_path / "model.onnx")
    with pytest.raises(ModelError) as error:
        hwgen.load(tmp_path / "model.onnx")
    heading, first, second = error.value.lines
    assert heading.endswith(
        "2 things can't be built ('hwgen check' shows all operators; --until auto builds the part before them):"
    )
    assert first.startswith("MeanVarianceNormalization node")
    assert second == "contains products of two feature maps (MatMul node 'matmul10'), which hwgen does not build"


def test_one_refusal_names_the_part_before_it(tmp_path: Path) -> None:
    writer = begun()
    writer.layer(conv)
    real = writer.dequantise(writer.tensor)
    sizes = writer.constant(np.float32([1, 1, 2, 2]))
    writer.give(writer.add("Resize", real, "", sizes, mode="linear"))
    onnx.save(writer.model(), tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"must be nearest, not linear; --until auto builds the part before it$"):
        hwgen.load(tmp_path / "model.onnx")
    assert len(hwgen.load(tmp_path / "model.onnx", until="auto").network.layers) == 1


def test_no_part_is_offered_where_none_is_built(tmp_path: Path) -> None:
    writer = begun()
    writer.layer(by("MeanVarianceNormalization", axes=[2, 3]))
    writer.layer(by("LpPool", kernel_shape=[2, 2]))
    onnx.save(writer.model(), tmp_path / "model.onnx")
    with pytest.raises(ModelError) as error:
        hwgen.load(tmp_path / "model.onnx")
    assert error.value.lines[0].endswith("2 things can't be built ('hwgen check' shows all operators):")
    with pytest.raises(ModelError, match="no layer can be built"):
        hwgen.load(tmp_path / "model.onnx", until="auto")


def test_what_follows_from_a_guessed_layout_is_no_refusal(tmp_path: Path) -> None:
    """Behind an operator that can't be built, which of three dimensions holds the channels is a guess."""
    text = """guessed (float[1, 4, 6] x) => (float[1, 4, 6] y) {
        c = Conv <kernel_shape = [3], pads = [1, 1]> (x, w)
        n = MeanVarianceNormalization <axes = [2]> (c)
        d = Identity (n)
        m = ReduceMean <axes = [1], keepdims = 1> (d)
        y = Add (m, x)
    }"""
    path = quantised(text, (1, 4, 6), tmp_path, w=(4, 4, 3))
    assert [operator.op for operator in hwgen.check(path).operators if operator.obstacle] == [
        "MeanVarianceNormalization"
    ]


@pytest.mark.parametrize("domain", ["", "own"])
def test_an_output_without_a_shape_names_the_operator(domain: str, tmp_path: Path) -> None:
    """GroupNormalization has the shape of its input, which ONNX does not infer; nobody knows another's."""
    writer = begun()
    writer.layer(conv)
    ones = writer.constant(np.ones(2, np.float32)), writer.constant(np.zeros(2, np.float32))
    real = writer.dequantise(writer.tensor)
    writer.tensor = writer.quantise(writer.add("GroupNormalization", real, *ones, num_groups=2, domain=domain))
    model = writer.model("own", opset=18)
    bare = helper.make_value_info(writer.tensor, helper.make_tensor_type_proto(TensorProto.UINT8, None))
    model.graph.output[0].CopyFrom(bare)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="GroupNormalization"):
        hwgen.load(tmp_path / "model.onnx")
