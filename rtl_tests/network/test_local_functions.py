"""Functions that a model defines itself: hwgen reads what ONNX Runtime computes in place of each call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper
from pieces import Piece
from referees import integer_session

import hwgen
from hwgen.errors import ModelError
from hwgen.network.onnx.file import inlined

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


def _node(operator: str, inputs: Sequence[str], output: str = "y", domain: str = "", **of_caller: str):
    """Return a node whose attributes are attributes of the caller: the names of these, and their types, by name."""
    node = helper.make_node(operator, inputs, [output], domain=domain)
    types = {"alpha": AttributeProto.FLOAT, "slope": AttributeProto.FLOAT, "strides": AttributeProto.INTS}
    for name, reference in of_caller.items():
        node.attribute.append(AttributeProto(name=name, type=types[name], ref_attr_name=reference))
    return node


LEAKY = _function("Leaky", [_node("LeakyRelu", ["x"], alpha="slope")], defaults=[SLOPE])
BLOCK = _function("Block", [_node("Conv", ["x", "w"], strides="strides")], ["x", "w"], defaults=[STRIDES])
OUTER = _function("Outer", [_node("Leaky", ["x"], domain=OWN, slope="slope")], attributes=["slope"])
TWICE = _function("Twice", [_node("Leaky", ["x"], "a", OWN), _node("Outer", ["a"], domain=OWN)])


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
        model.functions.append(_function("Relu", [_node("Neg", ["x"])], domain=""))
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
            _function("Leaky", [_node("Leaky", ["x"], domain=OWN)]),
            "its functions call each other in a cycle: Leaky -> ",
        ),
        (_function("Gelu", [_node("Neg", ["x"])], domain="com.microsoft"), "its function 'Gelu' has the domain com.mi"),
    ],
)
def test_what_is_refused(function: onnx.FunctionProto, message: str, tmp_path: Path) -> None:
    _, model = _model("default")
    del model.functions[:]
    model.functions.append(function)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=f"model.onnx: {message}"):
        hwgen.load(tmp_path / "model.onnx")
