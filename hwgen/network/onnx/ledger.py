"""Verdicts on all operators of an ONNX model during import: built, folded, left to the host, or refused.

An author of a new operator writes nothing here. The builder notes a layer where the layer gets its name. The walk notes
a refusal where it catches the error. All other verdicts follow from the state that a node leaves (`Ledger.operators`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx

from hwgen.errors import HwgenError, ModelError, ObstaclesError
from hwgen.network.fates import ModelPart, Operator
from hwgen.network.onnx.file import named, title
from hwgen.network.onnx.index import GraphIndex
from hwgen.printable import percent


class RefusalError(ModelError):
    """Error that an ONNX node can't be built, for the reason ``why``.

    The text after the first semicolon of ``why`` says what would help.
    """

    def __init__(self, where: str, node: onnx.NodeProto, why: str) -> None:
        super().__init__(f"{where}: {named(node)}: {why}")
        self.node, self.why = node, why
        self.unknown = False
        """Whether hwgen does not know the node's ONNX operator at all."""


class OtherNetworkError(ModelError):
    """Error of a model that contains parts no convolutional network has, such as attention; ``why`` names them."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.why = why


class Ledger:
    """Record during import of what each ONNX node becomes (layer, refusal ..), the source of the verdicts.

    ``graph`` is the index of the model; ``where`` starts error messages. Nodes are distinguished by their ``id``.
    """

    def __init__(self, graph: GraphIndex, where: str) -> None:
        self._where = where
        self.nodes = graph.nodes
        """All nodes of the ONNX graph, in the graph's order."""
        self._index = {id(node): index for index, node in enumerate(self.nodes)}
        self.layers: Mapping[int, list[str]] = {}
        """Dictionary by ``id`` of an ONNX node (`Builder.made`): names of the hardware layers that it became."""
        self.absorbed: Mapping[int, str] = {}
        """Dictionary from an ONNX node's ``id`` to the name of the fixed-point layer that computes it along with other
        nodes."""
        self.host_before: list[onnx.NodeProto] = []
        """List of nodes that the host runs on the model's float input, before the first integer tensor."""
        self.starts_after: dict[int, str] = {}
        """Dictionary from a map-starting node's ``id`` to the refused operator (text) that gives the node's input."""
        self.host_after: set[int] = set()
        """Set of the ``id`` of each node that the host runs after the last integer tensor."""
        self.float_origins: dict[int, tuple[onnx.NodeProto | None, str | None]] = {}
        """Dictionary by node ``id`` of pairs: node whose floats its output holds, and name of their map's layer.

        The node is ``None`` if the output is quantised, and the layer's name if an input of the model is before it.
        """
        self.after_refused: dict[int, str] = {}
        """Dictionary of names, for messages, of refused nodes, by the ``id`` of each node that depends on them."""
        self.unfolded: dict[int, str] = {}
        """Dictionary by node ``id``: reason why a node with constant inputs couldn't be folded into constants."""
        self._merged: dict[int, str] = {}
        """Dictionary of texts that name the later layer that includes a node's work, by the node's ``id``."""
        self._refused: dict[int | str, HwgenError] = {}
        self._repeated: dict[int, onnx.NodeProto] = {}
        """Dictionary by a refused node's ``id``: earlier node that was refused for the same constant."""
        self._constants = {*graph.initialisers}

    def refuse(self, error: HwgenError, node: onnx.NodeProto | None = None) -> onnx.NodeProto | None:
        """Note why an ONNX node, or the whole model, can't be built; return the node, or ``None`` for the model.

        Only the first reason of a node is kept.
        """
        if isinstance(error, RefusalError):
            node = error.node
            for other in self._refused.values():
                if isinstance(other, RefusalError) and other.node is not node and self._are_one(error, other):
                    self._repeated.setdefault(id(node), other.node)
                    return node
        self._refused.setdefault(str(error) if node is None else id(node), error)
        return node

    def replace(self, errors: Iterable[HwgenError]) -> None:
        """Replace all noted reasons why the model can't be built by ``errors``."""
        self._refused.clear()
        self._repeated.clear()
        for error in errors:
            self.refuse(error)

    def merge(self, gone: Iterable[int | str], node: onnx.NodeProto, error: HwgenError) -> None:
        """Replace the refusals ``gone`` by one refusal, ``error``, of an ONNX node.

        Parameters
        ----------
        gone : iterable of int or str
            Nodes by ``id``, and refusals of the model by their text. The refusals of these go, others stay.
        """
        for key in gone:
            refused = self._refused.pop(key, None) or (self._repeated.pop(key, None) if isinstance(key, int) else None)
            if refused is not None and isinstance(key, int):
                self.after_refused[key] = named(node)
        self._refused[id(node)] = error

    def _are_one(self, error: RefusalError, other: RefusalError) -> bool:
        """Return whether two nodes are refused for the same reason because of one constant that both read."""
        if error.unknown or error.why != other.why:
            return False
        return bool(self._constants.intersection(error.node.input, other.node.input))

    def is_refused(self, node: onnx.NodeProto) -> bool:
        """Return whether an ONNX node has been refused."""
        return id(node) in self._refused or id(node) in self._repeated

    @property
    def obstacles(self) -> list[tuple[onnx.NodeProto | None, HwgenError]]:
        """List of pairs: node, or ``None`` for the whole model, and `HwgenError`: why the model can't be built.

        Reasons that concern no single node come first.
        """
        nodes = {key: None if isinstance(key, str) else self.nodes[self._index[key]] for key in self._refused}
        keys = sorted(self._refused, key=lambda key: -1 if isinstance(key, str) else self._index[key])
        return [(nodes[key], self._refused[key]) for key in keys]

    def texts(self) -> list[str]:
        """Return a list of lines of text, one for each reason why the model can't be built.

        A hint that would help is given only once.
        """
        texts, helped = [], set()
        for _, error in self.obstacles:
            reason, *helps = str(error).removeprefix(f"{self._where}: ").split("; ")
            texts.append("; ".join([reason, *(text for text in helps if text not in helped)]))
            helped.update(helps)
        return texts

    def check(self, part: ModelPart | None = None) -> None:
        """Raise an error if any ONNX node, or the whole model, was refused; several refusals become one error.

        ``part``: part of the model that ``--until auto`` builds, which the message then names with its share.

        Raises
        ------
        ModelError
            If a node, or the model as a whole, is refused.
        """
        errors = [error for _, error in self.obstacles]
        auto = "; --until auto builds the part before "
        share = "" if part is None else f", {percent(part.macs_covered)} of the multiply-accumulates"
        if len(errors) == 1:
            raise ModelError(f"{errors[0]}{auto}it{share}") if part else errors[0]
        if errors:
            auto = f"{auto}them{share}" if part else ""
            raise ObstaclesError(
                f"{self._where}: {len(errors)} things can't be built ('hwgen check' shows all operators{auto}):",
                self.texts(),
            )

    # Verdicts.

    def became_layer(self, node: onnx.NodeProto) -> bool:
        """Return whether an ONNX node became a layer, or part of the layer before it."""
        floats, _ = self.float_origins.get(id(node), (node, None))
        return id(node) in self.layers or floats is None

    def note_merged(self, layers: Collection[str], merged: Mapping[str, onnx.NodeProto]) -> None:
        """Note that only the layers ``layers`` remain in the network; they include the work of the removed ones.

        ``merged``: the node whose layer absorbed a layer, by the layer's name.
        """

        def taken_by(node: onnx.NodeProto) -> str:
            """Return a text that names the layer, or the input, which includes the work of a node's layers."""
            made = self.layers.get(id(node), ())
            left = [name for name in made if name in layers]
            taker = None if left or not made else merged[made[-1]]
            if taker is None or taker is node:  # a node's second selection can undo its first one
                _, before = self.float_origins.get(id(node), (None, ""))
                return _fold_target(left[0] if left else before)
            return taken_by(taker)

        for key, names in self.layers.items():
            gone = [name for name in names if name not in layers]
            if gone and len(gone) == len(names):
                self._merged[key] = taken_by(merged[gone[-1]])
        self.layers = {key: [name for name in names if name in layers] for key, names in self.layers.items()}

    def operators(
        self, needed: Collection[int], folded: Collection[int], macs: Mapping[int, int | None]
    ) -> tuple[Operator, ...]:
        """Return a tuple with an `Operator` (verdict: built, folded, host, unsupported) per ONNX node, in graph order.

        Parameters
        ----------
        needed : collection of int
            Nodes, by ``id``, that an output depends on.
        folded : collection of int
            Nodes among these, by ``id``, that are constants.
        macs : mapping
            Multiply-accumulates per frame of the nodes that multiply; ``None`` if the number is not known.
        """
        operators = []
        for node in self.nodes:
            verdict, reason, help_ = self._verdict(node, needed, folded)
            layers = tuple(self.layers.get(id(node), ())) if verdict == "built" else ()
            operators.append(
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
        return tuple(operators)

    def _verdict(self, node: onnx.NodeProto, needed: Collection[int], folded: Collection[int]) -> tuple[str, str, str]:
        """Return a triple: a node's verdict (built, folded, host, unsupported), reason and hint; empty if none."""
        key = id(node)
        if error := self._refused.get(key):
            why = error.why if isinstance(error, RefusalError | OtherNetworkError) else str(error)
            reason, _, help_ = why.partition("; ")
            return "unsupported", reason, help_
        if key in self._repeated:
            return "unsupported", f"takes the same constant as {named(self._repeated[key])}, which is refused", ""
        if key not in needed:
            return "folded", "no output depends on it", ""
        if key in folded:
            return "folded", "a constant", ""
        if key in self.after_refused:
            return "unsupported", f"takes the output of {self.after_refused[key]}, which can't be built", ""
        if key in self._merged:
            return "folded", self._merged[key], ""
        if key in self.layers:
            return "built", f"layer {', '.join(self.layers[key])}", ""
        if key in self.absorbed:
            return "folded", _fold_target(self.absorbed[key]), ""
        if key in self.starts_after:
            return "host", f"begins a new feature map after {self.starts_after[key]}", ""
        if any(node is other for other in self.host_before):
            return "host", "before the first integer tensor", ""
        if key in self.float_origins:
            floats, layer = self.float_origins[key]
            if floats is not None and floats is not node and (id(floats) in self.layers or id(floats) in self.absorbed):
                layer = self.layers.get(id(floats), [self.absorbed.get(id(floats), "")])[-1]
            elif floats is not None:
                return "unsupported", "gives floats, which no QuantizeLinear takes before what can't be built", ""
            return "folded", _fold_target(layer), ""
        if key in self.host_after:
            return "host", "after the last integer tensor", ""
        reason, _, help_ = self.unfolded.get(key, "gives nothing that a layer takes").partition("; ")
        return "unsupported", reason, help_


def _fold_target(layer: str | None) -> str:
    """Return a text that names what a node was folded into: a layer, the input, or a new feature map."""
    return f"into {({None: 'the input', '': 'a new feature map'}).get(layer, f'layer {layer}')}"


def as_written(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    operators: Sequence[Operator],
    removed: Mapping[str, tuple[str, str]],
) -> tuple[Operator, ...]:
    """Return a tuple with an `Operator` (verdict) per node of an ONNX file, from the imported nodes' verdicts.

    Nodes of the file correspond to imported nodes with the same output tensors. A node of the file without such an
    imported node was removed, or is a constant.

    Parameters
    ----------
    graph : GraphProto
        Graph of the file.
    nodes, operators : sequence
        Imported nodes, and the verdict on each.
    removed : mapping of str to tuple
        Verdict on each node that was removed before the import, and the reason, by the node's output.
    """
    walked = {name: operator for node, operator in zip(nodes, operators, strict=True) for name in node.output if name}
    walked |= {
        name: Operator(node="", op="", verdict=verdict, reason=reason) for name, (verdict, reason) in removed.items()
    }
    constant = Operator(node="", op="", verdict="folded", reason="a constant")
    verdicts = []
    for node in graph.node:
        verdict = next((walked[name] for name in node.output if name in walked), constant)
        verdicts.append(replace(verdict, node=node.name or title(node), op=_operator(node)))
    return tuple(verdicts)


def _operator(node: onnx.NodeProto) -> str:
    """Return a node's ONNX operator name, prefixed with its domain unless that is ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
