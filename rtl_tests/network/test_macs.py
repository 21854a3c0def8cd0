"""Multiply-accumulates of ONNX operators, and models that are no convolutional networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from foreign import begun, by, conv
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import hwgen
from hwgen.cli import main as cli
from hwgen.errors import ModelError
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import BatchShapes
from hwgen.network.onnx.macs import constant_weights, macs_of


class _Frames(CalibrationDataReader):
    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self._feeds = iter([{"x": random.normal(size=shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def quantised(text: str, shape: tuple[int, ...], folder: Path, **weights: tuple[int, ...] | np.ndarray) -> str:
    """Write a float model from ONNX's text, quantise it, and return the path of its file."""
    random, graph = np.random.default_rng(1), parser.parse_graph(text)
    for name, weight in weights.items():
        values = weight if isinstance(weight, np.ndarray) else random.normal(0, 0.1, weight).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "float.onnx"
    )
    quantize_static(folder / "float.onnx", folder / "model.onnx", _Frames(shape))
    return str(folder / "model.onnx")


VIT = """
vit (float[1, 3, 16, 16] x) => (float[1, 10] y) {
    patches = Conv <kernel_shape = [4, 4], strides = [4, 4]> (x, patch)
    rows = Reshape (patches, to_rows)
    tokens = Transpose <perm = [0, 2, 1]> (rows)
    q0 = MatMul (tokens, wq)
    k0 = MatMul (tokens, wk)
    v0 = MatMul (tokens, wv)
    q1 = Reshape (q0, to_heads)
    k1 = Reshape (k0, to_heads)
    v1 = Reshape (v0, to_heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    scores = MatMul (q, k)
    weights = Softmax <axis = 3> (scores)
    mixed = MatMul (weights, v)
    joined = Transpose <perm = [0, 2, 1, 3]> (mixed)
    flat = Reshape (joined, to_tokens)
    out = MatMul (flat, wo)
    skip = Add (out, tokens)
    pooled = ReduceMean <axes = [1], keepdims = 0> (skip)
    y = Gemm (pooled, head)
}"""
VIT_WEIGHTS = {
    "patch": (24, 3, 4, 4),
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (24, 24)),
    "head": (24, 10),
    "to_rows": np.array([1, 24, 16]),
    "to_heads": np.array([1, 16, 3, 8]),
    "to_tokens": np.array([1, 16, 24]),
}


MICROSOFT = "com.microsoft"


def counted(operator: str, *shapes: tuple[int, ...] | None, domain: str = "", opset: int = 23, **attributes: Any):
    """Return the count for one node whose inputs have ``shapes``; ``None`` for an input that is left out."""
    names = [f"i{index}" if shape is not None else "" for index, shape in enumerate(shapes)]
    whole = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
    element = TensorProto.UINT8 if operator in whole and not domain else TensorProto.FLOAT
    kinds = [TensorProto.FLOAT if shape == () and operator.startswith("QLinear") else element for shape in shapes]
    if operator.startswith("QLinear") and not domain:
        kinds = [TensorProto.FLOAT if index in (1, 4, 6) else element for index in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in zip(names, kinds, shapes, strict=True)
        if name
    ]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "one", inputs, [])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports)
    return macs_of(node, BatchShapes(model, 1).of)


ONE = ()
COUNTS = {
    # Convolutions: output values by the weights of each.
    "Conv": ((2 * 8 * 5 * 4) * (3 * 9), counted("Conv", (2, 3, 7, 6), (8, 3, 3, 3))),
    "Conv, strides": ((8 * 4 * 3) * (3 * 9), counted("Conv", (1, 3, 7, 6), (8, 3, 3, 3), pads=[1] * 4, strides=[2, 2])),
    "Conv, dilated": ((8 * 3 * 2) * (3 * 9), counted("Conv", (1, 3, 7, 6), (8, 3, 3, 3), dilations=[2, 2])),
    "Conv, grouped": ((8 * 7 * 6) * 2, counted("Conv", (1, 4, 7, 6), (8, 2, 1, 1), group=2)),
    "Conv, 1-D": ((8 * 10) * (3 * 5), counted("Conv", (1, 3, 14), (8, 3, 5))),
    "Conv, 3-D": ((8 * 2 * 5 * 4) * (3 * 27), counted("Conv", (1, 3, 4, 7, 6), (8, 3, 3, 3, 3))),
    "ConvInteger": ((8 * 5 * 4) * (3 * 9), counted("ConvInteger", (1, 3, 7, 6), (8, 3, 3, 3))),
    "QLinearConv": (
        (8 * 5 * 4) * (3 * 9),
        counted("QLinearConv", (1, 3, 7, 6), ONE, ONE, (8, 3, 3, 3), ONE, ONE, ONE, ONE),
    ),
    "QLinearConv, channels last": (
        (8 * 5 * 4) * (3 * 9),
        counted(
            *("QLinearConv", (1, 7, 6, 3), ONE, ONE, (8, 3, 3, 3), ONE, ONE, ONE, ONE),
            domain=MICROSOFT,
            channels_last=1,
        ),
    ),
    "FusedConv": ((8 * 5 * 4) * (3 * 9), counted("FusedConv", (1, 3, 7, 6), (8, 3, 3, 3), domain=MICROSOFT)),
    "NhwcConv": ((8 * 5 * 4) * (3 * 9), counted("NhwcConv", (1, 7, 6, 3), (8, 3, 3, 3), domain=MICROSOFT)),
    "DeformConv": ((8 * 5 * 4) * (3 * 9), counted("DeformConv", (1, 3, 7, 6), (8, 3, 3, 3), (1, 18, 5, 4))),
    # Transposed: input values by the weights that each meets.
    "ConvTranspose": ((3 * 7 * 6) * (8 * 9), counted("ConvTranspose", (1, 3, 7, 6), (3, 8, 3, 3), strides=[2, 2])),
    "ConvTranspose, grouped": ((4 * 7) * (3 * 4), counted("ConvTranspose", (1, 4, 7), (4, 3, 4), group=2)),
    # Products of matrices: rows by columns by what is summed.
    "Gemm": (24 * 32 * 40, counted("Gemm", (24, 40), (40, 32))),
    "Gemm, transB": (24 * 32 * 40, counted("Gemm", (24, 40), (32, 40), transB=1)),
    "Gemm, transA": (24 * 32 * 40, counted("Gemm", (40, 24), (40, 32), transA=1)),
    "MatMul": (24 * 32 * 40, counted("MatMul", (1, 24, 40), (40, 32))),
    "MatMul, batches": (2 * 3 * 5 * 7 * 11, counted("MatMul", (2, 3, 5, 7), (2, 3, 7, 11))),
    "MatMul, broadcast": (2 * 3 * 5 * 7 * 11, counted("MatMul", (3, 5, 7), (2, 1, 7, 11))),
    "MatMul, vectors": (9, counted("MatMul", (9,), (9,))),
    "MatMul, vector by matrices": (2 * 9 * 5, counted("MatMul", (9,), (2, 9, 5))),
    "MatMulInteger": (2 * 5 * 7 * 11, counted("MatMulInteger", (2, 5, 7), (2, 7, 11))),
    "QLinearMatMul": (
        2 * 5 * 7 * 11,
        counted("QLinearMatMul", (2, 5, 7), ONE, ONE, (2, 7, 11), ONE, ONE, ONE, ONE),
    ),
    "QGemm": (5 * 7 * 11, counted("QGemm", (5, 7), ONE, ONE, (11, 7), ONE, ONE, domain=MICROSOFT, transB=1)),
    "FusedMatMul": (
        2 * 5 * 7 * 11,
        counted("FusedMatMul", (2, 7, 5), (2, 11, 7), domain=MICROSOFT, transA=1, transB=1),
    ),
    "MatMulIntegerToFloat": (5 * 7 * 11, counted("MatMulIntegerToFloat", (5, 7), (7, 11), domain=MICROSOFT)),
    "DynamicQuantizeMatMul": (
        3 * 5 * 7 * 11,
        counted("DynamicQuantizeMatMul", (3, 5, 7), (7, 11), ONE, domain=MICROSOFT),
    ),
    "MatMulNBits": (3 * 5 * 64 * 11, counted("MatMulNBits", (3, 5, 64), (11, 2, 16), domain=MICROSOFT, K=64, N=11)),
    "CDist": (5 * 6 * 7, counted("CDist", (5, 7), (6, 7), domain=MICROSOFT)),
    # Einsum: all sizes, of the labels that meet in a product.
    "Einsum, product": (5 * 7 * 11, counted("Einsum", (5, 7), (7, 11), equation="ij,jk->ik")),
    "Einsum, attention": (
        2 * 3 * 5 * 6 * 7,
        counted("Einsum", (2, 3, 5, 7), (2, 3, 6, 7), equation="b h q d, b h k d -> b h q k"),
    ),
    "Einsum, ellipsis": (
        2 * 3 * 5 * 7 * 11,
        counted("Einsum", (2, 1, 5, 7), (3, 7, 11), equation="...ij,...jk->...ik"),
    ),
    "Einsum, implicit": (5 * 7 * 11, counted("Einsum", (5, 7), (7, 11), equation="ij,jk")),
    "Einsum, all summed": (5 * 7, counted("Einsum", (5, 7), (5, 7), equation="ij,ij->")),
    "Einsum, summed before": (5 * 7, counted("Einsum", (5, 7), (7, 11), equation="ij,jk->ij")),
    "Einsum, of three": (
        5 * 7 * 11 + 5 * 11 * 13,
        counted("Einsum", (5, 7), (7, 11), (11, 13), equation="ij,jk,kl->il"),
    ),
    "Einsum, of one": (0, counted("Einsum", (5, 7), equation="ij->ji")),
    # Recurrent: in each step, 4, 3 or 1 gates of 16 by the input's 12 and the state's 16.
    "LSTM": (10 * 2 * 4 * 16 * (12 + 16), counted("LSTM", (10, 2, 12), (1, 64, 12), (1, 64, 16), hidden_size=16)),
    "LSTM, two directions": (
        10 * 2 * 2 * 4 * 16 * (12 + 16),
        counted("LSTM", (10, 2, 12), (2, 64, 12), (2, 64, 16), hidden_size=16, direction="bidirectional"),
    ),
    "LSTM, batch first": (
        10 * 2 * 4 * 16 * (12 + 16),
        counted("LSTM", (2, 10, 12), (1, 64, 12), (1, 64, 16), hidden_size=16, layout=1),
    ),
    "GRU": (10 * 3 * 16 * (12 + 16), counted("GRU", (10, 1, 12), (1, 48, 12), (1, 48, 16), hidden_size=16)),
    "RNN": (10 * 16 * (12 + 16), counted("RNN", (10, 1, 12), (1, 16, 12), (1, 16, 16), hidden_size=16)),
    "DynamicQuantizeLSTM": (
        10 * 4 * 16 * (12 + 16),
        counted("DynamicQuantizeLSTM", (10, 1, 12), (1, 12, 64), (1, 16, 64), domain=MICROSOFT, hidden_size=16),
    ),
    # Attention: each of 3 heads has 5 queries by 6 keys of 8, and their weights by 6 values of 10.
    "Attention": (3 * 5 * 6 * (8 + 10), counted("Attention", (1, 3, 5, 8), (1, 3, 6, 8), (1, 3, 6, 10))),
    "Attention, heads in channels": (
        3 * 5 * 6 * (8 + 10),
        counted("Attention", (1, 5, 24), (1, 6, 24), (1, 6, 30), q_num_heads=3, kv_num_heads=3),
    ),
    "Attention, shared keys": (4 * 5 * 6 * (8 + 10), counted("Attention", (1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 10))),
    "Attention, projected": (
        2 * 5 * (24 * 72 + 5 * (24 + 24)),
        counted("Attention", (2, 5, 24), (24, 72), domain=MICROSOFT, num_heads=3),
    ),
    "QAttention": (
        5 * (24 * 72 + 5 * (24 + 24)),
        counted("QAttention", (1, 5, 24), (24, 72), (72,), ONE, ONE, domain=MICROSOFT, num_heads=3),
    ),
    "MultiHeadAttention": (
        5 * 6 * (24 + 30),
        counted("MultiHeadAttention", (1, 5, 24), (1, 6, 24), (1, 6, 30), domain=MICROSOFT, num_heads=3),
    ),
    "MultiHeadAttention, packed": (
        5 * 5 * (24 + 24),
        counted("MultiHeadAttention", (1, 5, 3, 3, 8), domain=MICROSOFT, num_heads=3),
    ),
    # What does not multiply, and what is not known.
    "Relu": (0, counted("Relu", (1, 3, 7, 6))),
    "AveragePool": (0, counted("AveragePool", (1, 3, 7, 6), kernel_shape=[2, 2])),
    "GroupQueryAttention": (None, counted("GroupQueryAttention", (1, 5, 24), domain=MICROSOFT, num_heads=3)),
    "Conv that does not fit": (None, counted("Conv", (1, 3, 2, 2), (8, 3, 3))),
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts(case: str) -> None:
    expected, found = COUNTS[case]
    assert found == expected


def test_a_product_inside_a_loop_is_not_known() -> None:
    body = parser.parse_graph(
        "body (int64 i, bool g, float[2,2] a) => (bool h, float[2,2] b) {b = MatMul(a,a) h = Identity(g)}"
    )
    loop = helper.make_node("Loop", ["", "", "a"], ["b"], body=body)
    assert macs_of(loop, BatchShapes(onnx.ModelProto(), 1).of) is None


# Shapes behind anything.


def shapes_of(text: str, **constants: np.ndarray) -> BatchShapes:
    graph = parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid("own", 1)]
    return BatchShapes(helper.make_model(graph, opset_imports=imports), 1)


def test_computed_shapes_are_evaluated() -> None:
    """As exporters write heads: a symbolic batch is one frame, sizes are divided, and the product has its shape."""
    shapes = shapes_of(
        """heads (float[N, 10, 24] x) => (float[N, A, B, C] y) {
            s = Shape (x)
            n = Gather <axis = 0> (s, zero)
            c = Gather <axis = 0> (s, two)
            d = Div (c, three)
            t = Concat <axis = 0> (n, tokens, three, d)
            r = Reshape (x, t)
            q = Transpose <perm = [0, 2, 1, 3]> (r)
            k = Transpose <perm = [0, 2, 3, 1]> (r)
            y = MatMul (q, k)
        }""",
        zero=np.array([0]),
        two=np.array([2]),
        three=np.array([3]),
        tokens=np.array([10]),
    )
    assert shapes.of("r") == (1, 10, 3, 8)
    assert shapes.of("y") == (1, 3, 10, 10)


def test_operators_of_onnx_runtime() -> None:
    """None of them is known to ONNX's shape inference."""
    shapes = shapes_of(
        """runtime (uint8[N, 4, 9, 9] x, uint8[N, 9, 9, 4] l, uint8[1, 4, 1, 1] b) => (uint8[N, A, B, C] y) {
            a = com.microsoft.QLinearAdd (x, s, z, b, s, z, s, z)
            c = com.microsoft.QLinearConcat <axis = 1> (s, z, a, s, z, x, s, z)
            p = com.microsoft.QLinearAveragePool <kernel_shape = [3, 3], strides = [3, 3]> (c, s, z, s, z)
            g = com.microsoft.QLinearGlobalAveragePool (p, s, z, s, z)
            e = com.microsoft.QLinearLeakyRelu <alpha = 0.1> (g, s, z, s, z)
            h = com.microsoft.QLinearGlobalAveragePool <channels_last = 1> (l, s, z, s, z)
            m = com.microsoft.QLinearReduceMean <axes = [1, 2], keepdims = 0> (l, s, z, s, z)
            y = own.Strange (e)
        }""",
        s=np.float32(1),
        z=np.uint8(0),
    )
    found = {name: shapes.of(name) for name in "acpgehmy"}
    assert found == {
        "a": (1, 4, 9, 9),
        "c": (1, 8, 9, 9),
        "p": (1, 8, 3, 3),
        "g": (1, 8, 1, 1),
        "e": (1, 8, 1, 1),
        "h": (1, 1, 1, 4),
        "m": (1, 4),
        "y": None,
    }


def test_weights_of_what_is_not_built() -> None:
    graph = parser.parse_graph(
        """g (float[4, 1, 12] x) => (float[4, 1, 1, 16] y) {
            w = DequantizeLinear (wq, s)
            y = LSTM <hidden_size = 16> (x, w, r)
        }"""
    )
    arrays = {"wq": np.zeros((1, 64, 12), np.int16), "r": np.zeros((1, 64, 16), np.float32), "s": np.float32(1)}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    model = helper.make_model(graph)
    graph = GraphIndex(model)
    assert constant_weights(graph, graph.nodes[1]) == [("wq", 16 * 64 * 12), ("r", 8 * 64 * 16)]


# Models.


def test_a_vision_transformer(tmp_path: Path) -> None:
    """16 tokens of 24, 3 heads of 8: the attention's products have no constant weights, and count all the same."""
    found = hwgen.check(quantised(VIT, (1, 3, 16, 16), tmp_path, **VIT_WEIGHTS))
    macs = {operator.node: operator.macs for operator in found.operators if operator.macs}
    assert sorted(macs.values()) == sorted([24 * 16 * 48, *[16 * 24 * 24] * 4, *[3 * 16 * 16 * 8] * 2, 240])
    assert found.to_json()["macs_unknown"] == []
    assert found.to_json()["macs"] == 24 * 16 * 48 + 4 * 16 * 24 * 24 + 2 * 3 * 16 * 16 * 8 + 240


def test_gemm_on_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """24 rows between two Reshapes, as ONNX Runtime's preprocessing writes a Linear layer on tokens."""
    path = quantised(
        """tokens (float[1, 24, 40] x) => (float[1, 24, 12] y) {
            r = Reshape (x, two)
            g = Gemm (r, w, b)
            y = Reshape (g, three)
        }""",
        (1, 24, 40),
        tmp_path,
        two=np.array([24, 40]),
        three=np.array([1, 24, 12]),
        w=(40, 12),
        b=(12,),
    )
    assert hwgen.check(path).to_json()["macs"] == 24 * 40 * 12


def test_recurrence(tmp_path: Path) -> None:
    """The LSTM's own products are most of the model's."""
    found = hwgen.check(
        quantised(
            """lstm (float[1, 8, 12] x) => (float[8, 1, 6] y) {
                m = MatMul (x, w0)
                t = Transpose <perm = [1, 0, 2]> (m)
                h = LSTM <hidden_size = 16> (t, w, r)
                s = Squeeze (h, one)
                y = MatMul (s, w1)
            }""",
            (1, 8, 12),
            tmp_path,
            w0=(12, 4),
            w=(1, 64, 4),
            r=(1, 64, 16),
            w1=(16, 6),
            one=np.array([1]),
        )
    )
    assert found.to_json()["macs"] == 8 * 12 * 4 + 8 * 64 * (4 + 16) + 8 * 16 * 6


def test_batch_of_four(tmp_path: Path) -> None:
    """Counts are per frame."""
    text = "four (float[4, 3, 8, 8] x) => (float[4, 5, 6, 6] y) {y = Conv <kernel_shape = [3, 3]> (x, w)}"
    found = hwgen.check(quantised(text, (4, 3, 8, 8), tmp_path, w=(5, 3, 3, 3)))
    assert found.to_json()["macs"] == 5 * 36 * 27


def test_what_is_built_on_its_own_and_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of which each product could be built, and that is refused, is not called built."""
    writer = begun()
    writer.layer(conv)
    writer.layer(by("MeanVarianceNormalization", axes=[2, 3]))
    writer.layer(conv)
    writer.layer(conv)
    path = tmp_path / "model.onnx"
    onnx.save(writer.model(), path)
    assert cli.main(["check", str(path), "--json", str(tmp_path / "check.json")]) == 1
    said = capsys.readouterr().out
    assert "% are built" not in said
    document = hwgen.check(path).to_json()
    assert (document["macs_covered"], document["macs_built"]) == (1.0, 0.0)
    assert document["until"]["macs_covered"] == pytest.approx(1 / 3)
    part = hwgen.check(path, until="auto").to_json()
    assert part["macs_covered"] == part["macs_built"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0.0%"), (1, "100.0%"), (0.9999, "99.9%"), (0.00001, "0.1%"), (0.495, "49.5%"), (0.0233, "2.3%")],
)
def test_percentages_are_exact_at_both_ends(share: float, text: str) -> None:
    from hwgen.printable import percent

    assert percent(share) == text


def refusal(path: str) -> str:
    with pytest.raises(ModelError) as error:
        hwgen.load(path, until="end")
    (line,) = error.value.lines
    return line.removeprefix(f"{path}: ")


def test_attention(tmp_path: Path) -> None:
    """One line, although the products, the Softmax, the sum and the mean behind them can't be built either."""
    path = quantised(VIT, (1, 3, 16, 16), tmp_path, **VIT_WEIGHTS)
    contains = "contains attention (MatMul node 'scores' and 1 more), which hwgen does not build"
    assert refusal(path) == f"{contains}; --until auto builds the part before it, 67.9% of the multiply-accumulates"
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


def test_attention_behind_a_token_of_its_own(tmp_path: Path) -> None:
    """The Concat of a constant token and the Add of the positions only prepare the attention."""
    text = """tokens (float[1, 3, 16, 16] x) => (float[1, 17, 24] y) {
        patches = Conv <kernel_shape = [4, 4], strides = [4, 4]> (x, patch)
        rows = Reshape (patches, to_rows)
        image = Transpose <perm = [0, 2, 1]> (rows)
        tokens = Concat <axis = 1> (token, image)
        placed = Add (tokens, places)
        k = Transpose <perm = [0, 2, 1]> (placed)
        scores = MatMul (placed, k)
        weights = Softmax <axis = 2> (scores)
        y = MatMul (weights, placed)
    }"""
    shapes = {"patch": (24, 3, 4, 4), "token": (1, 1, 24), "places": (1, 17, 24), "to_rows": np.array([1, 24, 16])}
    said = refusal(quantised(text, (1, 3, 16, 16), tmp_path, **shapes))
    assert said.startswith("contains attention (MatMul node 'scores' and 1 more), which hwgen does not build; --until")


def test_layer_normalisation(tmp_path: Path) -> None:
    """A block of ConvNeXt: a sum behind a normalisation, with another layout, is no obstacle of its own."""
    text = """block (float[1, 6, 5, 5] x) => (float[1, 6, 5, 5] y) {
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 6> (x, w)
        last = Transpose <perm = [0, 2, 3, 1]> (c)
        n = LayerNormalization (last, gain)
        m = MatMul (n, w1)
        first = Transpose <perm = [0, 3, 1, 2]> (m)
        y = Add (first, x)
    }"""
    said = refusal(quantised(text, (1, 6, 5, 5), tmp_path, w=(6, 1, 3, 3), gain=(6,), w1=(6, 6)))
    assert said.startswith("contains layer normalisation (LayerNormalization node 'n'), which hwgen does not build")


def test_a_network_of_recurrence(tmp_path: Path) -> None:
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
        "contains recurrence (LSTM node 'h'), which hwgen does not build; --until auto builds the part before it, 2.5% "
        "of the multiply-accumulates"
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
        hwgen.load(tmp_path / "model.onnx", until="end")
    heading, first, second = error.value.lines
    assert heading.endswith(
        "2 things can't be built ('hwgen check' shows all operators; --until auto builds the part before them, 81.8% "
        "of the multiply-accumulates):"
    )
    assert first.startswith("MeanVarianceNormalization node")
    assert second == "contains products of two feature maps (MatMul node 'matmul10'), which hwgen does not build"


def test_one_refusal_names_the_part_before_it(tmp_path: Path) -> None:
    writer = begun()
    writer.layer(conv)
    real = writer.dequantise(writer.tensor)
    sizes = writer.constant(np.float32([1, 1, 2, 2]))
    writer.give(writer.add("Resize", real, "", sizes, mode="cubic"))
    onnx.save(writer.model(), tmp_path / "model.onnx")
    said = "must be nearest or linear, not cubic; --until auto builds the part before it, 100.0% of the multiply-acc"
    with pytest.raises(ModelError, match=said):
        hwgen.load(tmp_path / "model.onnx", until="end")
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
