"""The index of an ONNX graph: who gives, reads and depends on what, and models made of it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from hwgen.network.onnx.index import GraphIndex


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
    assert graph.behind(["sum"]) == {"sum", "unused", "square", "y"}
    assert graph.behind(["one"]) == {"one", "sum", "unused", "square", "y"}


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
