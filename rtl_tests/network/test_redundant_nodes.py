"""Nodes that change nothing, outputs that nobody reads, functions of a model, and the index of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from pieces import Piece, check
from referees import integer_session

import hwgen
from hwgen.errors import ModelError
from hwgen.network import golden
from hwgen.network.onnx.file import inlined
from hwgen.network.onnx.importer import to_network
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.quantise import prepare_inputs


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


def test_pairs_that_differ_quantise_one_map_in_fixed_point() -> None:
    piece = Piece(shape=(4, 6, 6))
    sums = piece.conv(piece.real(), 4, 4, pads=[1] * 4)
    first, second = piece.requantise(sums, 0.9, 7), piece.requantise(sums, 0.9, 8)
    model = piece.model(piece.quantise(piece.node("Add", first, second), 8.3, 90))
    network, x = to_network(model, "model"), piece.frames(4)
    assert [layer.kind for layer in network.layers] == ["conv", "fixedpoint", "fixedpoint", "add"]
    (theirs,) = integer_session(model)[0].run(None, {"x": x})
    ours = golden.run(network, prepare_inputs(network, x))
    assert np.abs(theirs.astype(int) - ours).max() <= 1


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


OWN = "my.own"
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid(OWN, 1)]
SLOPE = helper.make_attribute("slope", 0.3)
STRIDES = helper.make_attribute("strides", [2, 2])


def _function(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str] = ("x",),
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
    domain: str = OWN,
) -> onnx.FunctionProto:
    """Return a function whose nodes give ``y``."""
    return helper.make_function(domain, name, inputs, ["y"], nodes, OPSETS, attributes, defaults)


def _node_in_function(operator: str, inputs: Sequence[str], output: str = "y", domain: str = "", **of_caller: str):
    """Return a node whose attributes are attributes of the caller: the names of these, and their types, by name."""
    node = helper.make_node(operator, inputs, [output], domain=domain)
    types = {"alpha": AttributeProto.FLOAT, "slope": AttributeProto.FLOAT, "strides": AttributeProto.INTS}
    for name, reference in of_caller.items():
        node.attribute.append(AttributeProto(name=name, type=types[name], ref_attr_name=reference))
    return node


LEAKY = _function("Leaky", [_node_in_function("LeakyRelu", ["x"], alpha="slope")], defaults=[SLOPE])
BLOCK = _function("Block", [_node_in_function("Conv", ["x", "w"], strides="strides")], ["x", "w"], defaults=[STRIDES])
OUTER = _function("Outer", [_node_in_function("Leaky", ["x"], domain=OWN, slope="slope")], attributes=["slope"])
TWICE = _function("Twice", [_node_in_function("Leaky", ["x"], "a", OWN), _node_in_function("Outer", ["a"], domain=OWN)])


def _written(name: str) -> Piece:
    """Return the piece of a model whose last node gives ``last``."""
    piece = Piece(shape=(3, 6, 6))
    x = piece.real()
    if name == "block":
        piece.node("Block", x, piece.weights((4, 3, 3, 3)), domain=OWN)
    elif name == "built-in":
        piece.node("Relu", piece.node("Neg", x))
    else:
        attributes = {"slope": 0.5} if name == "overridden" else {}
        operator = {"nested": "Outer", "twice": "Twice"}.get(name, "Leaky")
        piece.node(operator, x, domain=OWN, **attributes)
    return piece


def _model(name: str) -> tuple[Piece, onnx.ModelProto]:
    piece = _written(name)
    model = piece.model(piece.quantise(piece.nodes[-1].output[0], 0.31, 100), opsets=OPSETS[1:])
    (output,) = model.graph.output
    output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.UINT8, ["n", None, None, None]))
    model.functions.extend([LEAKY, BLOCK, OUTER, TWICE])
    if name == "built-in":
        model.functions.append(_function("Relu", [_node_in_function("Neg", ["x"])], domain=""))
    return piece, model


def _run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session, _ = integer_session(model)
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", ["default", "overridden", "nested", "twice", "block", "built-in"])
def test_values_are_onnx_runtime_s(name: str, tmp_path: Path) -> None:
    """Defaults of attributes hold for calls that lack them, in functions, too; built-in operators precede functions."""
    piece, model = _model(name)
    onnx.save(model, tmp_path / "model.onnx")
    x = piece.frames(20)
    np.testing.assert_array_equal(hwgen.load(tmp_path / "model.onnx").golden(x), _run(model, x))


def test_calls_in_branches() -> None:
    """An If has nodes of its own, which call functions with and without an attribute."""
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    options: list[dict[str, Any]] = [{}, {"slope": 0.5}]
    branches = [
        helper.make_graph([helper.make_node("Leaky", ["x"], ["y"], domain=OWN, **attributes)], "branch", [], [value])
        for attributes in options
    ]
    node = helper.make_node("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1])
    ends = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (("x", 1, ["n", 4]), ("c", 9, []), ("z", 1, ["n", 4]))
    ]
    graph = helper.make_graph([node], "branches", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=9, functions=[LEAKY])
    x = np.array([[-1, 2, -30, 4]], np.float32)
    for condition, slope in ((True, 0.3), (False, 0.5)):
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        flat = inlined(copy)
        assert not flat.functions
        for each in (model, flat):
            session, _ = integer_session(each)
            (found,) = session.run(None, {"x": x, "c": np.array(condition)})
            np.testing.assert_array_equal(found, np.where(x < 0, x * np.float32(slope), x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            _function("Leaky", [_node_in_function("Leaky", ["x"], domain=OWN)]),
            "its functions call each other in a cycle: Leaky -> ",
        ),
        (
            _function("Gelu", [_node_in_function("Neg", ["x"])], domain="com.microsoft"),
            "its function 'Gelu' has the domain com.mi",
        ),
    ],
)
def test_what_is_refused(function: onnx.FunctionProto, message: str, tmp_path: Path) -> None:
    _, model = _model("default")
    del model.functions[:]
    model.functions.append(function)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=f"model.onnx: {message}"):
        hwgen.load(tmp_path / "model.onnx")


def example() -> GraphIndex:
    """``y = (x + 1) * (x + 1)``, ``z = -x``, and a node that no output depends on."""
    nodes = [
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Add", ["x", "one"], ["sum"]),
        helper.make_node("Abs", ["sum"], ["unused"]),
        helper.make_node("Mul", ["sum", "sum"], ["square"]),
        helper.make_node("Mul", ["square", "two"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y", "z")]
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    graph = helper.make_graph(nodes, "example", ends[:1], ends[1:], [two])
    return GraphIndex(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def outputs(nodes: list[onnx.NodeProto]) -> list[str]:
    return [node.output[0] for node in nodes]


def test_producers_and_readers() -> None:
    graph = example()
    assert (graph.inputs, graph.outputs) == (["x"], ["y", "z"])
    assert graph.producers["square"].input == ["sum", "sum"]
    assert outputs([*graph.readers("sum")]) == ["unused", "square", "square"]
    assert not graph.readers("y")
    assert "x" not in graph.producers


def test_constants() -> None:
    graph = example()
    assert [graph.is_constant(name) for name in ("one", "two", "x", "sum")] == [True, True, False, False]
    values = [graph.constant(name) for name in ("one", "two")]
    assert values == [1, 2]
    assert graph.constant("sum") is None


def test_nodes_before_and_tensors_behind() -> None:
    graph = example()
    assert outputs(graph.needed) == ["one", "sum", "square", "y", "z"]
    assert outputs(graph.before(["y"], {"sum"})) == ["square", "y"]
    assert outputs([*graph.backwards(["z", "square"])])[:1] == ["square"]
    assert graph.with_dependents(["sum"]) == {"sum", "unused", "square", "y"}
    assert graph.with_dependents(["one"]) == {"one", "sum", "unused", "square", "y"}


def test_other_nodes_make_another_model() -> None:
    graph = example()
    other = graph.with_nodes(graph.needed, [numpy_helper.from_array(np.zeros(3), "three")])
    assert "unused" in graph.producers
    assert "unused" not in other.producers
    assert [*other.initialisers] == ["two", "three"]
    assert [*graph.initialisers] == ["two"]


def test_part_computes_what_the_model_does() -> None:
    """ONNX Runtime is the judge of both."""
    graph = example()
    shapes = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("sum", "y")}
    part = graph.part("part", graph.before(["y"], {"sum"}), [shapes["sum"]], [shapes["y"]])
    whole = onnxruntime.InferenceSession(graph.model.SerializeToString())
    x = np.array([-3.0, 0.5], np.float32)
    session = onnxruntime.InferenceSession(part.SerializeToString())
    assert [*GraphIndex(part).initialisers] == ["two"]
    np.testing.assert_array_equal(session.run(None, {"sum": x + 1})[0], whole.run(["y"], {"x": x})[0])
