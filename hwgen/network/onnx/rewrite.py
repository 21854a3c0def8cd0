"""Rewriting of ONNX graphs: rules that replace nodes by others, applied in order until nothing changes.

A rule sees one node at a time, the last node of what it looks for, with the index of the whole graph. `begin` starts a
pass of the rule over the graph, so that a rule can remember what it saw earlier in the pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

from hwgen.errors import ModelError
from hwgen.network.onnx.file import DOMAINS, UnusedNames, copied, named, subgraphs, takes
from hwgen.network.onnx.index import GraphIndex

_MAX_ROUNDS = 16
"""Maximum number of times that rules are applied to one graph, each time to all its nodes."""

Made = Iterable[onnx.NodeProto] | None
"""Type of a rule's result for a node: the nodes in its place, or ``None`` if the rule does not apply to it."""
Replace = Callable[[onnx.NodeProto], Made]
"""Type of a rule's function from a node to its replacement, valid for one pass over a graph."""


@dataclass(frozen=True)
class Replacement:
    """Tensor that replaces the output of a removed node, and the reason for the removal, for the node's verdict."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class Rewrite:
    """Rule that replaces nodes of an ONNX graph: its name, its effect, and the operators it applies to.

    Parameters
    ----------
    name : str
        Name of the rule.
    does : str
        What the rule does, for the table of rules.
    begin : callable
        Function that starts a pass of the rule, and returns its function of a node.
    operators : collection of str
        Operators of the nodes that the rule sees; if empty, it sees all nodes.
    domains : collection of str
        Domains of these operators.
    """

    name: str
    does: str
    begin: Callable[[Rewriter], Replace]
    operators: Collection[str] = ()
    domains: Collection[str] = frozenset(DOMAINS)

    def sees(self, node: onnx.NodeProto) -> bool:
        """Return whether the rule is applied to ``node``, because of the node's operator and domain."""
        return node.domain in self.domains and (not self.operators or node.op_type in self.operators)


def rule(
    name: str, does: str, operators: Collection[str] = (), domains: Collection[str] = frozenset(DOMAINS)
) -> Callable[[Callable[[Rewriter, onnx.NodeProto], Made]], Rewrite]:
    """Return a decorator that turns a function of a rewriter and a node into a `Rewrite` with these parameters."""
    return lambda function: Rewrite(name, does, lambda at: partial(function, at), operators, domains)


class Rewriter:
    """Applier of rewrite rules to an ONNX graph, which notes what they removed.

    Parameters
    ----------
    graph : GraphIndex
        Graph to rewrite; each pass that changes it makes another one.
    where : str
        Path that starts error messages.
    """

    def __init__(self, graph: GraphIndex, where: str = "") -> None:
        self.graph, self.where = graph, where
        self.unused = UnusedNames(graph.model)
        """Source of unused names for new tensors of the graph."""
        self.made: list[onnx.TensorProto] = []
        """List of new initialisers that the current pass adds to the graph."""
        self.cost = Counter[str]()
        """Counts of what rules have computed, by a name and in a unit that the rule chooses."""
        self.replaced: dict[str, Replacement] = {}
        """Dictionary of the `Replacement` of each removed node's output, by the output's name."""
        self.float_tensors: set[str] = set()
        """Set of names of tensors that ONNX Runtime computes in floats, although a rule quantises them or merged
        quantisers."""
        self._renamed: dict[str, str] = {}
        self._stays: set[str] = set()

    def apply(self, rules: Sequence[Rewrite]) -> GraphIndex:
        """Apply rules in order, repeatedly until none changes the graph; return the graph as a `GraphIndex`."""
        for _ in range(_MAX_ROUNDS):
            changes = [self._apply_once(each) for each in rules]
            if not any(changes):
                break
        return self.graph

    def _apply_once(self, rule: Rewrite) -> bool:
        """Apply a rule to all nodes once, in the graph's order; return whether the graph has changed."""
        graph, nodes = self.graph, list[onnx.NodeProto]()
        if not any(map(rule.sees, graph.nodes)):
            return False
        inner = (name for node in graph.nodes if subgraphs(node) for name in takes(node))
        self.made, self._renamed, self._stays = [], {}, {*graph.outputs, *inner}
        begun = rule.begin(self)
        for node in graph.nodes:
            current = self._reading(node)
            made = begun(current) if rule.sees(node) else None
            nodes += [current] if made is None else made
        if len(nodes) == len(graph.nodes) and all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return False
        self.graph = graph.with_nodes(nodes, self.made)
        return True

    def _reading(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return a node with inputs renamed to the tensors that replace them in the current pass."""
        if self._renamed.keys().isdisjoint(node.input):
            return node
        result = copied(node)
        result.input[:] = [self._renamed.get(name, name) for name in node.input]
        return result

    def instead(self, node: onnx.NodeProto, tensor: str, reason: str) -> Made:
        """Make readers of a node's output read ``tensor``, and return no nodes; ``None`` if the output must stay."""
        (output,) = node.output
        if output in self._stays:
            return None
        for name, other in self.replaced.items():
            if other.tensor == output:
                self.replaced[name] = replace(other, tensor=tensor)
        self.replaced[output] = Replacement(tensor, reason)
        self._renamed[output] = tensor
        return ()

    def keep(self, name: str, array: np.ndarray | np.generic) -> str:
        """Add an initialiser to the graph, and return its name, which begins with ``name``."""
        unused = self.unused(name)
        self.made.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), unused))
        return unused

    def refusal(self, node: onnx.NodeProto, why: str) -> ModelError:
        """Return, not raise, the `ModelError` that says why a node can't be read."""
        return ModelError(f"{self.where}: {named(node)}: {why}")
