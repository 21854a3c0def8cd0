"""What becomes of each operator of a model: built, folded, left to the host, or refused.

Whoever adds an operator writes nothing here. That a layer is made of a node is noted where layers get their names, a
refusal where it is caught, and everything else follows from what the node left behind (`Ledger.operators`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx

from hwgen.errors import HwgenError, ModelError, ObstaclesError
from hwgen.network.fates import Operator
from hwgen.network.onnx.file import named, title


class RefusalError(ModelError):
    """A node that can't be built, and why; what would help stands behind the first semicolon of ``why``."""

    def __init__(self, where: str, node: onnx.NodeProto, why: str) -> None:
        super().__init__(f"{where}: {named(node)}: {why}")
        self.node, self.why = node, why
        self.unknown = False
        """Whether nothing is known of its operator, whatever it takes."""


class Ledger:
    """What is noted of the nodes of ``graph`` while they are walked; ``where`` starts error messages.

    Nodes are told apart by their identity.
    """

    def __init__(self, graph: onnx.GraphProto, where: str) -> None:
        self._where = where
        self.nodes = list(graph.node)
        """All of them, in the graph's order; whoever holds this list may go by their identity."""
        self._place = {id(node): place for place, node in enumerate(self.nodes)}
        self.layers: Mapping[int, list[str]] = {}
        """Names of the layers that were made of a node: `Builder.made`."""
        self.before: list[onnx.NodeProto] = []
        """On the float input, in front of the first integers."""
        self.begun: dict[int, str] = {}
        """Nodes with which a new feature map begins behind what can't be built, and what that is."""
        self.behind: set[int] = set()
        """Behind the last integers."""
        self.left: dict[int, tuple[onnx.NodeProto | None, str | None]] = {}
        """Of nodes that were gone through: the node whose floats its output still is, and the layer before it."""
        self.behind_refused: dict[int, str] = {}
        """Nodes that take what a refused one gives, and what that one is."""
        self.unfolded: dict[int, str] = {}
        """Nodes that take constants alone, and why they give none."""
        self._merged: dict[int, str] = {}
        """Nodes whose layers others took in, and what these are."""
        self._refused: dict[int | str, HwgenError] = {}
        self._same: dict[int, onnx.NodeProto] = {}
        """Nodes refused for a constant for which another one was, and that one."""
        self._constants = {tensor.name for tensor in graph.initializer}

    def refuse(self, error: HwgenError, node: onnx.NodeProto | None = None) -> onnx.NodeProto | None:
        """Note why a node can't be built, or the model as a whole; returns the node. The first reason counts."""
        if isinstance(error, RefusalError):
            node = error.node
            for other in self._refused.values():
                if isinstance(other, RefusalError) and other.node is not node and self._are_one(error, other):
                    self._same.setdefault(id(node), other.node)
                    return node
        self._refused.setdefault(str(error) if node is None else id(node), error)
        return node

    def _are_one(self, error: RefusalError, other: RefusalError) -> bool:
        """Whether two nodes are refused for one constant that both take."""
        if error.unknown or error.why != other.why:
            return False
        return bool(self._constants.intersection(error.node.input, other.node.input))

    def is_refused(self, node: onnx.NodeProto) -> bool:
        return id(node) in self._refused or id(node) in self._same

    @property
    def obstacles(self) -> list[tuple[onnx.NodeProto | None, HwgenError]]:
        """All that can't be built, in the graph's order, behind what concerns no single node."""
        nodes = {key: None if isinstance(key, str) else self.nodes[self._place[key]] for key in self._refused}
        keys = sorted(self._refused, key=lambda key: -1 if isinstance(key, str) else self._place[key])
        return [(nodes[key], self._refused[key]) for key in keys]

    def texts(self) -> list[str]:
        """A line for each obstacle, without what starts error messages; what would help is said once."""
        found, helped = [], set()
        for _, error in self.obstacles:
            reason, *helps = str(error).removeprefix(f"{self._where}: ").split("; ")
            found.append("; ".join([reason, *(text for text in helps if text not in helped)]))
            helped.update(helps)
        return found

    def check(self) -> None:
        """Raise what was refused: one refusal as it came, several together.

        Raises
        ------
        ModelError
        """
        errors = [error for _, error in self.obstacles]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ObstaclesError(
                f"{self._where}: {len(errors)} things can't be built ('hwgen check' shows all operators; "
                "--until auto builds what comes before them):",
                self.texts(),
            )

    # What became of them.

    def became_something(self, node: onnx.NodeProto) -> bool:
        """Whether a layer was made of a node, or it went into the one before it."""
        floats, _ = self.left.get(id(node), (node, None))
        return id(node) in self.layers or floats is None

    def note_merged(self, layers: Collection[str], merged: Mapping[str, onnx.NodeProto]) -> None:
        """Only ``layers`` are left; the others were taken into those of the nodes of ``merged``, by their names."""

        def taken_by(node: onnx.NodeProto) -> str:
            """Return the layer, or what else, that a node's layers became."""
            made = self.layers.get(id(node), ())
            left = [name for name in made if name in layers]
            taker = None if left or not made else merged[made[-1]]
            if taker is None or taker is node:  # a node's second selection can undo its first one
                _, before = self.left.get(id(node), (None, ""))
                return _into(left[0] if left else before)
            return taken_by(taker)

        for key, names in self.layers.items():
            gone = [name for name in names if name not in layers]
            if gone and len(gone) == len(names):
                self._merged[key] = taken_by(merged[gone[-1]])
        self.layers = {key: [name for name in names if name in layers] for key, names in self.layers.items()}

    def operators(
        self, needed: Collection[int], folded: Collection[int], macs: Mapping[int, int | None]
    ) -> tuple[Operator, ...]:
        """What became of each node, in the graph's order.

        Parameters
        ----------
        needed, folded : collection of int
            The nodes that an output depends on, and those of them that are constants, by identity.
        macs : mapping
            Multiply-accumulates a frame, of the nodes that multiply; ``None`` where that is not known.
        """
        found = []
        for node in self.nodes:
            verdict, reason, help_ = self._verdict(node, needed, folded)
            layers = tuple(self.layers.get(id(node), ())) if verdict == "built" else ()
            found.append(
                Operator(
                    node=node.name or title(node),
                    op=_operator(node),
                    verdict=verdict,
                    reason=reason,
                    help=help_,
                    layers=layers,
                    macs=macs.get(id(node), 0),
                    obstacle=id(node) in self._refused,
                )
            )
        return tuple(found)

    def _verdict(self, node: onnx.NodeProto, needed: Collection[int], folded: Collection[int]) -> tuple[str, str, str]:
        """Verdict, reason and what would help."""
        key = id(node)
        if error := self._refused.get(key):
            why = error.why if isinstance(error, RefusalError) else str(error)
            reason, _, help_ = why.partition("; ")
            return "unsupported", reason, help_
        if key in self._same:
            return "unsupported", f"takes a constant for which {named(self._same[key])} is refused", ""
        if key not in needed:
            return "folded", "no output depends on it", ""
        if key in folded:
            return "folded", "a constant", ""
        if key in self.behind_refused:
            return "unsupported", f"takes what {self.behind_refused[key]} gives, which can't be built", ""
        if key in self._merged:
            return "folded", self._merged[key], ""
        if key in self.layers:
            return "built", f"layer {', '.join(self.layers[key])}", ""
        if key in self.begun:
            return "host", f"begins a new feature map behind {self.begun[key]}", ""
        if any(node is other for other in self.before):
            return "host", "in front of the first integer tensor", ""
        if key in self.left:
            floats, layer = self.left[key]
            if floats is not None and floats is not node and id(floats) in self.layers:
                layer = self.layers[id(floats)][-1]
            elif floats is not None:
                return "unsupported", "gives floats, which no QuantizeLinear takes before what can't be built", ""
            return "folded", _into(layer), ""
        if key in self.behind:
            return "host", "behind the last integer tensor", ""
        reason, _, help_ = self.unfolded.get(key, "gives nothing that a layer takes").partition("; ")
        return "unsupported", reason, help_


def _into(layer: str | None) -> str:
    """Where a node went: into a layer, by its name, or into what a map begins with."""
    return f"into {({None: 'the input', '': 'a new feature map'}).get(layer, f'layer {layer}')}"


def as_written(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], operators: Sequence[Operator]
) -> tuple[Operator, ...]:
    """What became of the nodes of a model's file: of those that were walked in their place by what they give.

    Parameters
    ----------
    graph : GraphProto
        As it is in the file.
    nodes, operators : sequence
        The nodes that were walked, and what became of each. A node of the file none of whose tensors they give is a
        constant by now.
    """
    walked = {name: operator for node, operator in zip(nodes, operators, strict=True) for name in node.output if name}
    constant = Operator(node="", op="", verdict="folded", reason="a constant")
    found = []
    for node in graph.node:
        became = next((walked[name] for name in node.output if name in walked), constant)
        found.append(replace(became, node=node.name or title(node), op=_operator(node)))
    return tuple(found)


def _operator(node: onnx.NodeProto) -> str:
    """The operator, with its domain where that is not ONNX's."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
