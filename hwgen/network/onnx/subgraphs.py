"""Graphs inside ONNX nodes (If, Loop, Scan)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs in an ONNX node, as If, Loop and Scan have them."""
    return [graph for entry in node.attribute for graph in (*entry.graphs, *([entry.g] if entry.HasField("g") else []))]


def with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and all nodes of the graphs in them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from with_inner(graph.node)
