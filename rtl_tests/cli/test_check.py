"""``hwgen check``: every operator of a model with what becomes of it; all refusals at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from foreign import TEN, Writer, begun, by, conv, ten_obstacles
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from pieces import Piece

import hwgen
from hwgen.boards import load as load_board
from hwgen.cli import main as cli
from hwgen.network.fates import Operator
from hwgen.network.onnx.importer import survey, to_network
from hwgen.network.onnx.ledger import as_written
from hwgen.report.check import Check

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
OBSTACLES = [
    "MeanVarianceNormalization node 'meanvariancenormalization10': operator MeanVarianceNormalization is not supported",
    "Trilu node 'trilu17': operator Trilu is not supported",
    "Conv node 'conv24': weights 'c10' must be quantised (int8, uint8, int16 or uint16), not float",
    "Mod node 'mod32': operator Mod is not supported",
    "InstanceNormalization node 'instancenormalization39': operator InstanceNormalization is not supported",
    "LpPool node 'lppool46': operator LpPool is not supported",
    "MaxPool node 'maxpool53': storage_order 1 is not supported, 0 is",
    "ReduceMax node 'reducemax60': must reduce rows and columns of each channel, not axes [2] of (N, C, H, W)",
    "Einsum node 'einsum67': operator Einsum is not supported",
    "CumSum node 'cumsum74': operator CumSum is not supported",
]


def saved(model: onnx.ModelProto, folder: Path) -> str:
    onnx.save(model, folder / "model.onnx")
    return str(folder / "model.onnx")


def refused(check: Check) -> list[str]:
    """The operators that can't be built by themselves."""
    return [operator.op for operator in check.operators if operator.obstacle]


# Ten obstacles


@pytest.mark.parametrize("verb", ["plan", "build", "simulate", "golden"])
def test_all_obstacles_are_listed(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(ten_obstacles().model(), tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((1, 4, 8, 8), np.float32))
    before = sorted(tmp_path.iterdir())
    options = {
        "plan": ["--board", "zedboard", "-o", str(tmp_path / "plan.json")],
        "build": ["--board", "zedboard", "-o", str(tmp_path / "result")],
        "simulate": ["--board", "zedboard", "--random", "1", "--json", str(tmp_path / "y.json")],
        "golden": ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")],
    }
    assert cli.main([verb, path, *options[verb]]) == 2
    first, *lines = capsys.readouterr().err.splitlines()
    assert first.startswith(
        f"hwgen: {path}: 10 things can't be built ('hwgen check' shows all operators; --until auto "
    )
    assert len(lines) == len(TEN)
    for line, obstacle in zip(lines, OBSTACLES, strict=True):
        assert line.startswith(f"  {obstacle}")
    assert sum("supported are " in line for line in lines) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_ten_obstacles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = ten_obstacles()
    path, file = saved(writer.model(), tmp_path), tmp_path / "check.json"
    assert cli.main(["check", path, "--board", "zedboard", "--json", str(file)]) == 1
    said = capsys.readouterr().out
    for obstacle in OBSTACLES:
        assert f"\n  {obstacle}" in said
    document = json.loads(file.read_text(encoding="utf-8"))
    assert set(document) == {
        *("model", "supported", "operators", "counts", "obstacles", "macs", "macs_covered", "macs_unknown"),
        "macs_built",
        "engine_refusals",
        *("weight_bits", "board", "memory_bits", "template", "until"),
    }
    assert [entry["op"] for entry in document["operators"]] == [node.op_type for node in writer.nodes]
    refused_operators = [entry for entry in document["operators"] if entry["verdict"] == "unsupported"]
    # The LeakyRelu behind the float convolution is refused with it.
    unsupported = [entry for entry in refused_operators if entry["op"] != "LeakyRelu"]
    assert [entry["node"] for entry in unsupported] == [line.split("'")[1] for line in OBSTACLES]
    assert [entry["reason"] for entry in unsupported] == [line.split(": ", 1)[1] for line in OBSTACLES]
    assert all(entry["help"].startswith("supported are ") for entry in unsupported if "operator" in entry["reason"])
    assert document["counts"] == {"built": 12, "folded": 46, "host": 11, "unsupported": 11}
    # 13 convolutions of 3 x 3 x 4 x 4, one of which can't be built; behind the maximum of rows there is one row left.
    macs = 10 * 144 * 64 + 3 * 144 * 8
    assert (document["macs"], document["macs_unknown"]) == (macs, [])
    assert document["macs_covered"] == pytest.approx(1 - 144 * 64 / macs)
    assert document["weight_bits"] == 12 * 144 * 6 + 144 * 8  # -30 to 30 take six bits
    assert (document["board"], document["template"]) == ("zedboard", "stream")
    assert document["until"]["tensors"] == ["t8"]
    assert document["until"]["macs_covered"] == pytest.approx(2 * 144 * 64 / macs)


@pytest.mark.parametrize("behind", ["QLinearLeakyRelu", "QLinearSigmoid", "MaxPool"])
def test_behind_a_refused_layer(behind: str, tmp_path: Path) -> None:
    """A scale that is no normal float32 number makes the factor infinite, once the layer already has its name."""
    tiny, zero = np.float32(1e-45), np.uint8(3)
    piece = Piece((4, 8, 8))
    scale, zero_of_x = piece.label
    weights = np.ones((4, 4, 3, 3), np.int8), np.float32(0.1), np.int8(0)
    found = piece.node("QLinearConv", "x", np.float32(scale), np.uint8(zero_of_x), *weights, tiny, zero)
    if behind == "MaxPool":
        found = piece.node(behind, found, kernel_shape=[1, 1])
    else:
        given = {"alpha": 0.1} if behind == "QLinearLeakyRelu" else {}
        found = piece.node(behind, found, tiny, zero, np.float32(0.1), zero, domain="com.microsoft", **given)
    model = as_model(
        piece.nodes,
        {"x": (TensorProto.UINT8, ["n", 4, 8, 8])},
        {found: (TensorProto.UINT8, ["n", 4, 6, 6])},
        piece.constants,
        opset=18,
        domains=["com.microsoft"],
    )
    check = hwgen.check(saved(model, tmp_path))
    assert refused(check) == ["QLinearConv"]
    assert check.obstacles == (
        "QLinearConv node 'QLinearConv0': x_scale * w_scale / y_scale overflows float32; quantise the model with a "
        "larger y_scale",
    )


def test_nodes_without_names(tmp_path: Path) -> None:
    """They are called by what they give."""
    found = hwgen.check(saved(ten_obstacles(named=False).model(), tmp_path))
    assert [operator.node for operator in found.operators if operator.obstacle][:2] == ["t10", "t17"]
    assert found.obstacles[0].startswith("MeanVarianceNormalization node 't10': ")


# Models that can be built


@pytest.mark.parametrize(
    "name", ["decoilfnet-example", "lenet5", "resnet8", "autoencoder", str(DIGITS / "digits.onnx")]
)
def test_all_is_built(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The layers are those of the network, and so are their multiply-accumulates."""
    assert cli.main(["check", name]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "every operator can be built"
    found, network = hwgen.check(name, board="zedboard"), hwgen.load(name).network
    assert (found.obstacles, found.macs_covered) == ((), 1.0)
    assert {operator.verdict for operator in found.operators} == {"built", "folded", "host"}
    made = [layer for operator in found.operators for layer in operator.layers]
    assert sorted(made) == sorted(layer.name for layer in network.layers)
    assert sum(operator.macs or 0 for operator in found.operators) == sum(
        layer.macs for layer in network.layers if layer.weight_count
    )
    assert found.weight_bits == sum(layer.weight_count * layer.weight_bits for layer in network.layers)
    assert found.to_json()["until"] is None


def test_where_each_operator_goes(tmp_path: Path) -> None:
    writer = begun()
    writer.layer(conv, by("Relu"))
    writer.layer(by("MaxPool", kernel_shape=[2, 2], strides=[2, 2]))
    writer.give(writer.add("Softmax", writer.dequantise(writer.tensor), axis=1))
    writer.add("Abs", "x")
    found = hwgen.check(saved(writer.model(), tmp_path))
    assert [(operator.op, operator.verdict, operator.reason) for operator in found.operators] == [
        ("QuantizeLinear", "host", "before the first integer tensor"),
        ("DequantizeLinear", "folded", "into the input"),
        ("DequantizeLinear", "folded", "a constant"),
        ("Conv", "built", "layer conv3"),
        ("Relu", "folded", "into layer conv3"),
        ("QuantizeLinear", "folded", "into layer conv3"),
        ("DequantizeLinear", "folded", "into layer conv3"),
        ("MaxPool", "built", "layer maxpool7"),
        ("QuantizeLinear", "folded", "into layer maxpool7"),
        ("DequantizeLinear", "host", "after the last integer tensor"),
        ("Softmax", "host", "after the last integer tensor"),
        ("Abs", "folded", "no output depends on it"),
    ]


@pytest.mark.parametrize("gone", [False, True])
def test_nodes_that_are_walked_as_others(gone) -> None:
    """Those of the file are told, by what they give; what nothing gives any more is a constant."""
    written = [("Shape", "a", ["1"]), ("Quant", "b", ["2"]), ("Split", "c", ["", "4"]), ("Abs", "", ["5"])]
    walked = [
        ("QuantizeLinear", "q", ["2_q"]),
        ("DequantizeLinear", "d", ["2"]),
        ("Slice", "s", ["4"]),
        ("Abs", "", ["5"]),
    ]
    graphs = [
        helper.make_graph([helper.make_node(op, ["0"], outputs, name=name) for op, name, outputs in nodes], "g", [], [])
        for nodes in (written, walked)
    ]
    verdicts = ("host", "folded", "built", "unsupported")
    fates = [Operator(node="", op="", verdict=verdict, reason=verdict) for verdict in verdicts]
    removed = {graphs[0].node[-1].output[0]: ("folded", "changes nothing")}
    found = as_written(graphs[0], graphs[1].node, fates, removed if gone else {})
    assert [(operator.op, operator.node, operator.verdict, operator.reason) for operator in found] == [
        ("Shape", "a", "folded", "a constant"),
        ("Quant", "b", "folded", "folded"),
        ("Split", "c", "built", "built"),
        ("Abs", "5", *(("folded", "changes nothing") if gone else ("unsupported", "unsupported"))),
    ]


@pytest.mark.parametrize(
    ("name", "memory", "template"),
    [
        ("lenet5", 1.0, "stream"),
        ("lenet5", 0.5, "pyramid"),
        ("lenet5", -0.1, None),
        ("resnet8", 1.0, "stream"),
        ("resnet8", 0.5, None),  # tile by tile only chains are computed
    ],
)
def test_template_that_could_hold_it(name: str, memory: float, template: str | None) -> None:
    """On a board that has room for the weights, and for a share of the rows that the line buffers need at the least."""
    network = hwgen.load(name).network
    weights = sum(layer.weight_count * layer.weight_bits for layer in network.layers)
    rows = sum(
        min(layer.window.extent[0], layer.height) * layer.width * layer.channels * 8
        for layer in network.layers
        if layer.kind in ("conv", "maxpool")
    )
    luts = -(-int(weights + memory * rows - 36_864) // 64)
    board = replace(load_board("zedboard"), name="small", bram36=1, lut=luts)
    found = hwgen.check(name, board=board)
    assert (found.weight_bits, found.template) == (weights, template)
    assert hwgen.check(name).template is None


@pytest.mark.parametrize(("between", "template"), [("MaxPool", "pyramid"), ("LeakyRelu", None), ("Gather", None)])
def test_chains_that_tiles_go_through(between: str, template: str | None, tmp_path: Path) -> None:
    """Of convolutions and pools alone, on a board whose memory is a third of the rows."""
    piece = Piece((3, 4, 3000))
    first = piece.requantise(piece.conv(piece.real(), outputs=3), 11.3, 100)
    changed = {
        "MaxPool": lambda: piece.node("MaxPool", first, kernel_shape=[1, 1]),
        "LeakyRelu": lambda: piece.requantise(piece.node("LeakyRelu", first), 9.1, 100),
        "Gather": lambda: piece.node("Gather", first, np.array([2, 0, 1]), axis=1),
    }[between]()
    path = tmp_path / "model.onnx"
    onnx.save(piece.model(piece.quantise(piece.conv(changed, pads=[1, 1, 1, 1]), 11.3, 100)), path)
    board = replace(load_board("zedboard"), name="small", bram36=1, lut=1000)
    found = hwgen.check(path, board=board)
    assert found.supported
    assert found.template == template
    assert ("no template could hold the network on chip" in found.table()) == (template is None)


PADS = [0, 0, 1, 1, 0, 0, 1, 1]


def fates_of(piece: Piece, *tensors: str) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each operator that moves values, by its name; those that are layers are."""
    model = piece.model(*tensors)
    found = survey(model, "network", "network")
    assert {layer.name for layer in found.layers} == {
        name for operator in found.operators for name in operator.layers if operator.verdict == "built"
    }
    if not found.obstacles:
        layers = {layer.name for layer in to_network(model, "network").layers} - {"input"}
        assert layers == {layer.name for layer in found.layers}
    return {each.node: (each.verdict, each.reason) for each in found.operators if each.op in ("Gather", "Pad")}


def test_layers_that_others_took_in() -> None:
    """A Pad in a convolution or a pool, a selection in the next one; unless others read them."""
    piece = Piece()
    pad = piece.node("Pad", piece.real(), PADS)
    sums = [piece.quantise(piece.conv(pad), 9.1, 100) for _ in range(2)]
    assert fates_of(piece, *sums) == {pad: ("folded", "into layer Conv6")}
    assert fates_of(piece, *sums, piece.quantise(pad, 0.7, 3)) == {pad: ("built", f"layer {pad}")}

    piece = Piece()
    pad = piece.node("Pad", "x", PADS, np.uint8(0))
    assert fates_of(piece, piece.node("MaxPool", pad, kernel_shape=[2, 2])) == {pad: ("folded", "into layer MaxPool1")}


def test_selections_that_others_took_in() -> None:
    piece = Piece()
    first = piece.node("Gather", piece.real(), [2, 1, 0], axis=1)
    second = piece.node("Gather", first, [1, 2, 0], axis=1)
    third = piece.node("Gather", second, [0, 0, 1], axis=1)
    sums = piece.quantise(piece.conv(third), 9.1, 100)
    into = ("folded", f"into layer {third}")
    assert fates_of(piece, sums) == {first: into, second: into, third: ("built", f"layer {third}")}

    piece = Piece()
    first = piece.node("Gather", piece.real(), [2, 1, 0], axis=1)
    second = piece.node("Gather", first, [2, 1, 0], axis=1)
    sums = piece.quantise(piece.conv(second), 9.1, 100)
    assert fates_of(piece, sums) == {first: ("folded", "into the input"), second: ("folded", "into the input")}
    again = piece.quantise(piece.conv(first), 9.1, 100)
    assert fates_of(piece, sums, again)[first] == ("built", f"layer {first}")


def test_a_pad_that_nothing_took_in() -> None:
    """What would have taken it can't be built."""
    piece = Piece()
    pad = piece.node("Pad", piece.real(), PADS)
    lost = piece.node("Trilu", piece.conv(pad))
    assert fates_of(piece, piece.requantise(lost, 9.1)) == {pad: ("built", f"layer {pad}")}


FEW = np.float32([1, 0, 2])
UNFOLDED: dict[str, tuple[Callable[[Piece], str], str]] = {
    "RandomUniform": (lambda piece: piece.node("RandomUniform", shape=[4, 1, 1]), "it gives other values each time"),
    "Dropout": (
        lambda piece: piece.node("Dropout", np.ones((4, 1, 1), np.float32), np.float32(0.5), np.array(True)),
        "it gives other values each time",
    ),
    "NonZero": (
        lambda piece: piece.node("ReduceSum", piece.node("Cast", piece.node("NonZero", FEW), to=1), keepdims=0),
        "the size of what it gives is known only when it is computed",
    ),
}


@pytest.mark.parametrize("operator", UNFOLDED)
def test_constants_that_are_none(operator: str) -> None:
    """The node that is to blame is named, with the reason; what takes it is a consequence."""
    made, why = UNFOLDED[operator]
    piece = Piece()
    sums = piece.conv(piece.real(), bias=False)
    constant = piece.node("Mul", made(piece), np.float32(3))
    model = piece.model(piece.quantise(piece.node("Add", sums, constant), 9.1))
    with pytest.raises(hwgen.ModelError, match=f"^network: {operator} node '{operator}.': makes no constant: {why};"):
        to_network(model, "network")
    found = survey(model, "network", "network")
    assert len(found.obstacles) == 1
    reasons = {each.op: each.reason for each in found.operators if each.verdict == "unsupported"}
    assert reasons[operator] == f"makes no constant: {why}"
    assert reasons["Mul"].startswith(f"takes the output of {operator} node '{operator}")
    assert reasons["Add"].startswith(f"takes the output of {operator} node '{operator}")


def test_constants_that_are_none_are_no_cause_behind_one() -> None:
    piece = Piece()
    lost = piece.node("Trilu", piece.conv(piece.real(), bias=False))
    model = piece.model(piece.node("Add", lost, piece.node("RandomUniform", shape=[4, 1, 1])))
    found = survey(model, "network", "network")
    assert [each.op for each in found.operators if each.obstacle] == ["Trilu"]
    assert any(each.reason.startswith("makes no constant") for each in found.operators)


# No chains of consequences


def _shapes(writer: Writer) -> None:
    """A shape that is computed of values: one cause, however many operators compute it."""
    writer.layer(conv)
    real = writer.dequantise(writer.tensor)
    most = writer.add("ReduceMax", writer.add("ArgMax", real, axis=1), keepdims=0)
    first = writer.add("Unsqueeze", most, writer.constant(np.array([0])))
    shape = writer.add("Concat", first, writer.constant(np.array([4, 8, 8])), axis=0)
    writer.tensor = writer.quantise(writer.add("Reshape", real, shape))
    writer.layer(conv)


def _float_chain(writer: Writer) -> None:
    """Behind what can't be built there are floats up to the next QuantizeLinear."""
    writer.layer(conv)
    norm, pool = by("MeanVarianceNormalization", axes=[2, 3]), by("MaxPool", kernel_shape=[2, 2])
    writer.layer(norm, by("Relu"), conv, by("Trilu"), pool)
    writer.layer(conv)


def _one_constant(writer: Writer) -> None:
    """Five nodes take one scale."""
    writer.constants[0].CopyFrom(numpy_helper.from_array(np.float32(0), writer.scale))
    writer.layer(conv)
    writer.layer(conv)


def _weights(writer: Writer) -> None:
    """Weights that are quantised in a way that is not known: the convolution is not to blame."""
    writer.layer(conv)
    writer.layer(conv)
    for node in writer.nodes:
        if node.name == "dequantizelinear6":
            node.input.append(writer.constant(np.zeros(3, np.int8)))


def _fork(writer: Writer) -> None:
    writer.layer(conv)
    sums = writer.conv(writer.dequantise(writer.tensor))
    one, two = writer.quantise(sums), writer.quantise(writer.add("Trilu", sums))
    writer.tensor = writer.quantise(writer.add("Add", writer.dequantise(one), writer.dequantise(two)))


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (_shapes, ["ArgMax"]),
        (_float_chain, ["MeanVarianceNormalization", "Trilu"]),
        (_one_constant, ["QuantizeLinear"]),
        (_weights, ["DequantizeLinear"]),
        (_fork, ["Trilu"]),
    ],
)
def test_consequences_are_no_obstacles(write: Callable[[Writer], None], expected: list[str], tmp_path: Path) -> None:
    writer = begun()
    write(writer)
    found = hwgen.check(saved(writer.model(), tmp_path))
    assert refused(found) == expected
    assert len(found.obstacles) == len(expected)


# Hostile models


def _domain(writer: Writer) -> None:
    writer.layer(lambda writer, tensor: writer.add("Swish", tensor, domain="my.own"))


def _branch(value: float) -> onnx.GraphProto:
    nodes = [helper.make_node("Constant", [], ["given"], value=numpy_helper.from_array(np.float32([[[[value]]]])))]
    return helper.make_graph(
        nodes, "branch", [], [helper.make_tensor_value_info("given", TensorProto.FLOAT, [None] * 4)]
    )


def _if(writer: Writer) -> None:
    """Its condition depends on the input."""
    real = writer.dequantise(writer.tensor)
    condition = writer.add("Greater", writer.add("ReduceSum", real, keepdims=0), writer.constant(np.float32(0)))
    chosen = writer.add("If", condition, then_branch=_branch(1), else_branch=_branch(2))
    writer.tensor = writer.quantise(writer.add("Add", real, chosen))


def _if_around(writer: Writer) -> None:
    """It takes the map from around it alone: none of its inputs depends on the model's."""
    real = writer.dequantise(writer.tensor)
    branches = [
        helper.make_graph(
            [helper.make_node(operator, [real], ["given"])],
            operator,
            [],
            [helper.make_tensor_value_info("given", TensorProto.FLOAT, [None] * 4)],
        )
        for operator in ("Abs", "Neg")
    ]
    condition = writer.constant(np.array(True))
    writer.tensor = writer.quantise(writer.add("If", condition, then_branch=branches[0], else_branch=branches[1]))


def _loop(writer: Writer) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["goes"]), helper.make_node("Neg", ["before"], ["after"])],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [None] * 4),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [None] * 4),
        ],
    )
    times, going = writer.constant(np.int64(3)), writer.constant(np.array(True))
    writer.layer(lambda writer, tensor: writer.add("Loop", times, going, tensor, body=body))


def _scan(writer: Writer) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["one"], ["other"])],
        "body",
        [helper.make_tensor_value_info("one", TensorProto.FLOAT, [None] * 3)],
        [helper.make_tensor_value_info("other", TensorProto.FLOAT, [None] * 3)],
    )
    writer.layer(lambda writer, tensor: writer.add("Scan", tensor, body=body, num_scan_inputs=1))


def _sequence(writer: Writer) -> None:
    real = writer.dequantise(writer.tensor)
    sequence = writer.add("SequenceConstruct", real, real)
    writer.tensor = writer.quantise(writer.add("SequenceAt", sequence, writer.constant(np.int64(1))))


def _strings(writer: Writer) -> None:
    real = writer.dequantise(writer.tensor)
    words = writer.add("Constant", value_strings=["one", "two"])
    number = writer.add("Size", writer.add("StringNormalizer", words))
    writer.tensor = writer.quantise(writer.add("Add", real, writer.add("Cast", number, to=TensorProto.FLOAT)))


def _training(writer: Writer) -> None:
    def normalise(writer: Writer, tensor: str) -> str:
        numbers = [writer.constant(np.full(4, value, np.float32)) for value in (1, 0, 0, 1)]
        return writer.add("BatchNormalization", tensor, *numbers, outputs=3, training_mode=1)

    writer.layer(normalise)


def _random(writer: Writer) -> None:
    real = writer.dequantise(writer.tensor)
    writer.tensor = writer.quantise(writer.add("Add", real, writer.add("RandomNormal", shape=[1, 4, 8, 8])))


@pytest.mark.parametrize(
    ("write", "expected", "built"),
    [
        (_domain, ["my.own.Swish"], 1),  # of what shape its output is, nobody knows
        (_if, ["ReduceSum", "Greater", "If"], 2),
        (_if_around, ["If"], 2),
        (_loop, ["Loop"], 1),
        (_scan, ["Scan"], 2),
        (_sequence, ["SequenceConstruct", "SequenceAt"], 2),
        (_strings, ["Constant", "StringNormalizer", "Size"], 2),
        (_training, ["BatchNormalization"], 2),
        (_random, ["RandomNormal"], 2),
    ],
)
def test_hostile_operators(
    write: Callable[[Writer], None],
    expected: list[str],
    built: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Between two convolutions, both of which can be built where sizes are known."""
    writer = begun()
    writer.layer(conv)
    write(writer)
    writer.layer(conv)
    path = saved(writer.model("my.own"), tmp_path)
    found = hwgen.check(path)
    assert refused(found) == expected
    assert [operator.verdict for operator in found.operators if operator.op == "Conv"].count("built") == built
    # Most of them mix the frames of a batch, or it is not known that they don't.
    runs = found.survey.rest_refused == ""
    assert runs == (write in (_if_around, _strings))
    assert (found.survey.part is not None) == runs
    single = writer.model("my.own")
    single.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(single, tmp_path / "single.onnx")
    # ONNX Runtime knows no operators of others.
    assert (hwgen.check(tmp_path / "single.onnx").survey.part is not None) == (write is not _domain)
    assert len(found.to_json()["macs_unknown"]) == 2 - built
    assert cli.main(["check", path]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main(["plan", path, "--board", "zedboard", "--until", "end"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == (1 if len(expected) == 1 else 1 + len(expected))


def shaped(*sizes: int | str | None) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        writer = begun()
        writer.layer(conv)
        model = writer.model()
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes))
        return model

    return make


def _three_dimensional() -> onnx.ModelProto:
    writer = begun(frame=(2, 4, 8, 8))
    weights = writer.add(
        "DequantizeLinear", writer.constant(np.ones((3, 2, 3, 3, 3), np.int8)), writer.constant(np.float32(1))
    )
    writer.tensor = writer.quantise(writer.add("Conv", writer.dequantise(writer.tensor), weights))
    writer.give(writer.tensor, TensorProto.UINT8, rank=5)
    return writer.model()


def _string_input() -> onnx.ModelProto:
    return as_model(
        [helper.make_node("StringNormalizer", ["x"], ["y"])],
        {"x": (TensorProto.STRING, [1, 4])},
        {"y": (TensorProto.STRING, [None, None])},
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (shaped("batch", 4, "height", "width"), "input 'x' has a dynamic shape (batch, 4, height, width): only the "),
        (shaped("batch", 4, None, 8), "input 'x' has a dynamic shape (batch, 4, ?, 8): only the batch"),
        (
            _three_dimensional,
            "contains three-dimensional convolutions or pools (Conv node 'conv3'), which hwgen does not build",
        ),
        (_string_input, "input 'x' must be float, int8, uint8, int16 or uint16, not string"),
    ],
)
def test_hostile_inputs(
    make: Callable[[], onnx.ModelProto], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The input is an obstacle as others are; there is nothing to build before it."""
    path = saved(make(), tmp_path)
    assert cli.main(["check", path]) == 1
    captured = capsys.readouterr()
    assert f"\n  {message}" in captured.out
    assert "--until auto builds nothing" in captured.out
    for until in ([], ["--until", "auto"]):
        assert cli.main(["plan", path, "--board", "zedboard", *until]) == 2
        assert message in capsys.readouterr().err


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input, in one line, and nothing is written."""
    (tmp_path / "bad.onnx").write_bytes(b"this is no model")
    model = ten_obstacles().model()
    model.graph.node[3].input[0] = "nowhere"
    float_model: Any = begun().model()
    del float_model.graph.node[:]
    float_model.graph.node.append(helper.make_node("Relu", ["x"], ["y"]))
    float_model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4))
    onnx.save(model, tmp_path / "loose.onnx")
    onnx.save(float_model, tmp_path / "float.onnx")
    for name, options in (
        ("bad.onnx", []),
        ("none.onnx", []),
        ("loose.onnx", []),
        ("float.onnx", []),
        ("lenet5", ["--board", "none"]),
        ("lenet5", ["--bits", "8"]),
        ("lenet", []),
    ):
        where = str(tmp_path / name) if name.endswith(".onnx") else name
        assert cli.main(["check", where, *options, "--json", str(tmp_path / "check.json")]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "check.json").exists()


def test_random_models_have_a_verdict_for_each_operator() -> None:
    """However they are spoilt; nothing is refused that can be built, nor the other way round."""
    from onnx_models import random_model, spoilt

    from hwgen.errors import ModelError

    found = []
    for seed in range(200):
        model = spoilt(random_model(seed, qdq=seed % 3 > 0, powers=True, deep=True))
        try:
            seen = survey(model, "model", "model")
        except ModelError:
            continue
        assert len(seen.operators) == len(model.graph.node)
        found.append(bool(seen.obstacles))
        assert any(operator.obstacle for operator in seen.operators) <= bool(seen.obstacles)
        if seen.obstacles:
            with pytest.raises(ModelError) as error:
                to_network(model, "model")
            assert len(error.value.lines) == (1 if len(seen.obstacles) == 1 else len(seen.obstacles) + 1)
        else:
            built = {layer for operator in seen.operators for layer in operator.layers}
            assert built >= {layer.name for layer in to_network(model, "model").layers if layer.operators}
    assert 20 < sum(found) < len(found) - 20


# A part


def test_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is behind the tensor is the host's; nothing else has another verdict than for the whole model."""
    digits, end = str(DIGITS / "digits.onnx"), "pool1_out_QuantizeLinear_Output"
    part, whole = hwgen.check(digits, until=end), hwgen.check(digits)
    layers = [layer.name for layer in hwgen.load(digits, until=end).network.layers]
    assert [op.reason for op in part.operators if op.verdict == "built"] == [f"layer {name}" for name in layers]
    assert part.supported
    assert 0 < part.survey.macs_covered < whole.survey.macs_covered == 1
    for ours, theirs in zip(part.operators, whole.operators, strict=True):
        assert ours.verdict == theirs.verdict or (ours.verdict, ours.reason) == ("host", f"after {end}")
    assert cli.main(["check", digits, "--until", end]) == 0
    assert f"after {end}" in capsys.readouterr().out
    assert cli.main(["check", digits, "--until", "pool1"]) == 2
    assert "no operator has an output 'pool1'; did you mean 'pool1_out'?" in capsys.readouterr().err


def test_the_largest_part(tmp_path: Path) -> None:
    """`auto` is the part that the check of the whole model names; of a model without obstacles all of it."""
    path = saved(ten_obstacles().model(), tmp_path)
    whole, part = hwgen.check(path), hwgen.check(path, until="auto")
    assert part.supported
    assert not whole.supported
    assert whole.survey.part is not None
    assert part.survey.macs_covered == pytest.approx(whole.survey.part.macs_covered)
    whole, part = hwgen.check(DIGITS / "digits.onnx"), hwgen.check(DIGITS / "digits.onnx", until="auto")
    assert part.operators == whole.operators
