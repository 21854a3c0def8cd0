"""Rules that rewrite ONNX graphs, each on a graph of its own; ONNX Runtime computes the same before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_writing import as_model

from hwgen.errors import ModelError
from hwgen.network.onnx import adaptive_pools, float_operands, fold, forms, qonnx, redundant_nodes
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.rewrite import Made, Rewriter, rule

PAIR = "QuantizeLinear DequantizeLinear"
QONNX = "qonnx.custom_op.general"
LAST = "qonnx.custom_op.channels_last"
RULES = {
    each.name: each
    for rules in (forms.RULES, fold.RULES, qonnx.RULES, redundant_nodes.RULES, adaptive_pools.RULES)
    for each in rules
} | {each.name: each for each in (*float_operands.WEIGHTS, *float_operands.OPERANDS)}
LABEL = {"scale": np.float32(0.5), "zero": np.uint8(128), "s": np.float32(0.25), "z": np.int8(0)}
QUANT = {"step": np.float32(0.5), "none": np.float32(0), "bits": np.float32(4)}
WEIGHTS = np.arange(-8, 8, dtype=np.float32).reshape(2, 2, 2, 2)

#: Pixels of windows of 4x4 pixels, of one or two rows and one column: 5 rows, 2, 4 columns, 1.
PIXELS = np.stack(np.broadcast_arrays(np.array([[0, 0], [0, 1], [1, 2], [2, 3], [3, 3]])[..., None, None],
                                      np.arange(4).reshape(4, 1)), axis=-1)  # fmt: skip
#: Which of these rows are beyond a window.
BEYOND = np.array([[0, 1], [0, 0], [0, 0], [0, 0], [0, 1]], bool).reshape(5, 2, 1, 1)


def node(operator: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """Return a node whose inputs and outputs are separated by spaces."""
    return helper.make_node(
        operator, inputs.split(), outputs.split(), name=outputs.split()[0], domain=domain, **attributes
    )


def graph_of(
    nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Any], outputs: Sequence[str] = ("y",)
) -> GraphIndex:
    """Return a graph of nodes that reads ``x``, (N, 2, 4, 4), and has outputs of the same type."""
    domains = {each.domain for each in nodes if each.domain}
    ends = ({"x": (TensorProto.FLOAT, ["n", 2, 4, 4])}, dict.fromkeys(outputs, (TensorProto.FLOAT, None)))
    return GraphIndex(as_model(nodes, *ends, constants, opset=21, domains=domains))


IN = node("QuantizeLinear", "x scale zero", "xi"), node("DequantizeLinear", "xi scale zero", "xr")
OUT = node("QuantizeLinear", "f scale zero", "yi"), node("DequantizeLinear", "yi scale zero", "y")
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], str]] = {
    "channels first": (
        [node("Transpose", "x", "l", perm=[0, 2, 3, 1]), node("MaxPool", "l", "m", LAST, kernel_shape=[2, 2]),
         node("Transpose", "m", "y", perm=[0, 3, 1, 2])],
        {},
        "Transpose Transpose MaxPool Transpose Transpose",
    ),
    "whole channels": (
        [node("DequantizeLinear", "w b", "r", axis=1, block_size=1), node("Conv", "x r", "y")],
        {"w": np.ones((2, 2, 1, 1), np.int8), "b": np.array([1, 2, 3, 3], np.float32).reshape(2, 2, 1, 1)},
        "DequantizeLinear Conv",
    ),
    "constants": (
        [node("Transpose", "w", "t", perm=[1, 0, 2, 3]), node("Conv", "x t", "y")],
        {"w": WEIGHTS},
        "Conv",
    ),
    "no effect": (
        [node("Cast", "x", "c", to=TensorProto.FLOAT), node("Pad", "c nothing", "p"), node("Relu", "p", "y")],
        {"nothing": np.zeros(8, np.int64)},
        "Relu",
    ),
    "equal nodes": (
        [*IN, node("QuantizeLinear", "x scale zero", "xj"), node("DequantizeLinear", "xj scale zero", "xs"),
         node("Add", "xr xs", "y")],
        LABEL,
        "QuantizeLinear DequantizeLinear Add",
    ),
    "unread outputs": ([node("Dropout", "x", "y mask")], {}, "Dropout"),
    "adaptive pool": (
        [node("Transpose", "x", "t", perm=[2, 3, 0, 1]), node("GatherND", "t pixels", "g"),
         node("Transpose", "g", "p", perm=[4, 5, 0, 1, 2, 3]), node("Where", "beyond none p", "w"),
         *(node("Gather", f"w {place}", f"row{place}", axis=3) for place in ("first", "second")),
         *(node("Gather", f"row{place} first", f"a{place}", axis=4) for place in ("first", "second")),
         node("Add", "afirst asecond", "sum"), node("Div", "sum counts", "y")],
        {"pixels": PIXELS, "beyond": BEYOND,
         "none": np.float32(0), "first": np.array(0), "second": np.array(1),
         "counts": np.float32([[1] * 4, [2] * 4, [2] * 4, [2] * 4, [1] * 4])},
        "Gather Gather AveragePool",
    ),
    "picked pixels": (
        [node("Transpose", "x", "t", perm=[2, 3, 0, 1]), node("GatherND", "t pixels", "g"),
         node("Transpose", "g", "p", perm=[4, 5, 0, 1, 2, 3]), node("Where", "beyond none p", "w"),
         node("Gather", "w second", "row", axis=3), node("Gather", "row first", "y", axis=4)],
        {"pixels": PIXELS, "beyond": BEYOND, "none": np.float32(0), "first": np.array(0), "second": np.array(1)},
        "Pad Gather Gather",
    ),
    "divisors of pixels": (
        [*IN, node("Div", "xr counts", "f"), *OUT],
        {"counts": np.float32([[1] * 4, [2] * 4, [2] * 4, [1] * 4]), **LABEL},
        " ".join([PAIR, *[f"Gather Gather Div {PAIR} Pad Gather Gather"] * 2, "Sum", PAIR]),
    ),
    "float weights": (
        [*IN, node("Conv", "xr w", "f"), *OUT],
        {"w": WEIGHTS, **LABEL},
        "QuantizeLinear DequantizeLinear DequantizeLinear Conv QuantizeLinear DequantizeLinear",
    ),
    "float operands": (
        [*IN, node("Neg", "xr", "n"), node("Conv", "xr w", "c"), node("Concat", "n c", "f", axis=1), *OUT],
        {"w": np.ones((2, 2, 1, 1), np.float32), **LABEL},
        f"{PAIR} Neg Conv {PAIR} {PAIR} Concat {PAIR}",
    ),
    "Quant of a constant": (
        [node("Quant", "w step none bits", "q", QONNX), node("Conv", "x q", "y")],
        {"w": WEIGHTS, **QUANT},
        "DequantizeLinear Conv",
    ),
    "Quant of a map": (
        [node("Quant", "x step none bits", "y", QONNX)],
        QUANT,
        "QuantizeLinear Clip DequantizeLinear",
    ),
    "BipolarQuant of a map": (
        [node("Relu", "x", "r"), node("BipolarQuant", "r step", "b", QONNX), node("Conv", "b w", "y")],
        {"w": WEIGHTS, **QUANT},
        "Relu Less Where QuantizeLinear Clip DequantizeLinear Sub Conv",
    ),
    "Trunc": (
        [*IN, node("GlobalAveragePool", "xr", "a"), node("Mul", "a count", "m"),
         node("Trunc", "m scale null wide narrow", "y", QONNX)],
        {**LABEL, "zero": np.uint8(0), "count": np.float32(16), "null": np.float32(0), "wide": np.float32(12),
         "narrow": np.float32(8)},
        "QuantizeLinear DequantizeLinear DequantizeLinear Conv QuantizeLinear DequantizeLinear",
    ),
}  # fmt: skip


def test_each_rule_has_a_case() -> None:
    assert {*CASES, "other QONNX operators"} == {*RULES}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    """The rule replaces what its name says, a second time it replaces nothing, and ONNX Runtime's values stay."""
    nodes, constants, expected = CASES[name]
    before = graph_of(nodes, constants)
    after = Rewriter(before, "model").apply([RULES[name]])
    assert " ".join(each.op_type for each in after.needed) == expected
    assert Rewriter(after, "model").apply([RULES[name]]) is after
    if not {each.domain for each in nodes} - {""} and name not in ("float weights", "float operands"):
        x = np.random.default_rng(1).normal(size=(3, 2, 4, 4)).astype(np.float32)
        first, then = (
            onnxruntime.InferenceSession(graph.model.SerializeToString()).run(["y"], {"x": x})[0]
            for graph in (before, after)
        )
        np.testing.assert_array_equal(first, then)


def test_unread_output_loses_its_name() -> None:
    nodes, constants, _ = CASES["unread outputs"]
    after = Rewriter(graph_of(nodes, constants)).apply([RULES["unread outputs"]])
    assert after.nodes[0].output == ["y", ""]
    read = graph_of([*nodes, node("Not", "mask", "z")], constants, ["y", "z"])
    assert Rewriter(read).apply([RULES["unread outputs"]]) is read


def test_what_no_rule_knows_is_refused() -> None:
    graph = graph_of([node("FloatQuant", "x step", "y", QONNX)], QUANT)
    with pytest.raises(ModelError, match=r"^model: FloatQuant node 'y': is not supported, of QONNX Quant"):
        Rewriter(graph, "model").apply(qonnx.RULES)


def without(at: Rewriter, here: onnx.NodeProto) -> Made:
    return at.instead(here, here.input[0], "goes")


@pytest.mark.parametrize("place", ["inside", "at an output", "in a branch"])
def test_what_replaces_a_tensor(place: str) -> None:
    """Readers of a removed node's output read what replaces it, unless the output is read by name."""
    nodes = [node("Identity", "x", "one"), node("Identity", "one", "two"), node("Relu", "two", "y")]
    if place == "in a branch":
        branch = helper.make_graph(
            [node("Neg", "two", "inner")],
            "branch",
            [],
            [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
        )
        nodes += [node("If", "condition", "z", then_branch=branch, else_branch=branch)]
    outputs = {"inside": ["y"], "at an output": ["y", "two"], "in a branch": ["y", "z"]}[place]
    rewriter = Rewriter(graph_of(nodes, {"condition": np.array(True)}, outputs))
    graph = rewriter.apply([rule("identity", "goes", {"Identity"})(without)])
    if place == "inside":
        assert {name: other.tensor for name, other in rewriter.replaced.items()} == {"one": "x", "two": "x"}
        assert [[*each.input] for each in graph.nodes] == [["x"]]
    else:
        assert {name: other.tensor for name, other in rewriter.replaced.items()} == {"one": "x"}
        assert [[*each.input] for each in graph.nodes][:2] == [["x"], ["two"]]


def test_tensors_replaced_in_another_pass() -> None:
    """What replaced a tensor is replaced itself: the first one gets the last one's place."""
    nodes = [node("Abs", "x", "a"), node("Identity", "a", "b"), node("Relu", "b", "y")]
    rewriter = Rewriter(graph_of(nodes, {}))
    rewriter.apply([rule(name, "goes", {name})(without) for name in ("Identity", "Abs")])
    assert {name: other.tensor for name, other in rewriter.replaced.items()} == {"b": "x", "a": "x"}
    assert [[*each.input] for each in rewriter.graph.nodes] == [["x"]]


def test_rules_are_applied_until_nothing_changes() -> None:
    """The first rule applies only where the second one has been, which makes two rounds."""

    def halved(at: Rewriter, here: onnx.NodeProto) -> Made:
        before = at.graph.producers.get(here.input[0])
        return None if before is None or before.op_type == "Neg" else [node("Abs", "x", here.output[0])]

    nodes = [node("Neg", "x", "n"), node("Relu", "n", "y")]
    first = rule("relu", "", {"Relu"})(halved)
    second = rule("neg", "", {"Neg"})(lambda at, here: [node("Exp", "x", here.output[0])])
    graph = Rewriter(graph_of(nodes, {})).apply([first, second])
    assert [each.op_type for each in graph.nodes] == ["Exp", "Abs"]
