"""Remainder of an ONNX model after the tensors where the hardware ends, which ONNX Runtime runs on the host.

If only a part of a model is built, the rest can be anything. In a whole model, the rest are nodes after several tensors
that only the host runs. An example is a model whose heads of different sizes are joined into one output.

A whole model can also have parts that no convolutional network has: attention, recurrence, three dimensions. hwgen
builds none of them. One refusal says so, in place of a refusal of each operator that such a part is made of, and of
what follows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from hwgen.errors import ModelError
from hwgen.network.ends import OutputEnd, Remainder
from hwgen.network.fates import ModelPart, Operator, share
from hwgen.network.graph import Network
from hwgen.network.onnx.dimensions import MOVES
from hwgen.network.onnx.file import DOMAINS, UnusedNames, data_inputs, line, named, takes
from hwgen.network.onnx.ledger import OtherNetworkError
from hwgen.network.onnx.operator_traits import PRODUCTS, Effect, traits_of
from hwgen.network.onnx.tail import host_input, may_join, reals_of
from hwgen.network.onnx.values import Ended, Map, Reals, Value, steps_before
from hwgen.network.onnx.walk import FoldedModel, ImportWalk

_PRODUCTS = PRODUCTS | {"Einsum": 1}
"""Dictionary by ONNX operator that multiplies matrices: input index of the second operand."""
_LOOPS = {"Loop", "Scan"}
"""Set of names of ONNX operators that run a graph repeatedly."""
_REARRANGING = {
    *("Add", "Cast", "Concat", "DequantizeLinear", "Div", "Gather", "Mul", "QuantizeLinear", "Slice", "Split"),
    *MOVES,
}
"""Set of names of ONNX operators that split a tensor into attention heads, or bring its time steps to the front.

They also append tokens to an image's tokens, and add positions.
"""
_THREE_DIMENSIONS = "three-dimensional convolutions or pools"


def note_other_networks(walk: ImportWalk) -> None:
    """Replace refusals of parts such as attention, and of nodes around them, by one refusal for all.

    Refusals of other operators stay.
    """
    kinds = _nodes_by_kind(walk) if walk.ledger.obstacles else {}
    if not kinds:
        return
    parts = {id(node) for nodes in kinds.values() for node in nodes}
    first = next(node for node in walk.graph.needed if id(node) in parts)
    later = walk.graph.with_dependents(name for nodes in kinds.values() for node in nodes for name in node.output)
    gone: set[int | str] = {id(node) for node in walk.graph.needed if not later.isdisjoint(node.output)}
    gone.update(_leading_to(walk.graph.needed, parts))
    if _THREE_DIMENSIONS in kinds:
        gone.update(walk.refused_inputs)
    why = f"contains {_listed(kinds)}, which hwgen does not build"
    walk.ledger.merge(gone, first, OtherNetworkError(walk.where, why))


def _nodes_by_kind(walk: ImportWalk) -> dict[str, list[onnx.NodeProto]]:
    """Return a dict by kind of part that no CNN has (attention, recurrence ..) of the part's nodes without a layer."""
    nodes = [node for node in walk.graph.needed if id(node) not in walk.constant and node.domain in DOMAINS]
    free = [node for node in nodes if id(node) not in walk.ledger.host_after and not walk.ledger.layers.get(id(node))]
    variable = _input_dependent(walk, nodes)
    products = [node for node in free if _multiplies_maps(node, variable)]
    attention = [node for node in free if "Attention" in node.op_type]
    kinds = {
        "recurrence": _having(free, Effect.RECURRENCE),
        "loops": [node for node in free if node.op_type in _LOOPS],
        _THREE_DIMENSIONS: [
            node for node in _having(free, Effect.CONVOLUTION, Effect.POOL, Effect.GLOBAL_POOL) if _is_deep(walk, node)
        ],
    }
    later = walk.graph.with_dependents(name for node in products for name in node.output)
    # In attention, a Softmax follows a product of two feature maps.
    softmax = (node for node in _having(nodes, Effect.SOFTMAX) if node.op_type != "LogSoftmax")
    if attention or any(node.output[0] in later for node in softmax):
        products += attention
        kinds["attention"] = products
    else:
        kinds["products of two feature maps"] = products
    kinds["layer normalisation"] = _having(free, Effect.TOKEN_NORMALISATION)
    return {kind: found for kind, found in kinds.items() if found}


def _having(nodes: Sequence[onnx.NodeProto], *effects: Effect) -> list[onnx.NodeProto]:
    """Return a list of the nodes whose operators have one of ``effects``."""
    return [node for node in nodes if traits_of(node).effect in effects]


def _input_dependent(walk: ImportWalk, nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Return a set of the names of the tensors whose values depend on an input of the model, not only on its sizes."""
    variable = {*walk.graph.inputs}
    for node in nodes:
        if node.op_type not in ("Shape", "Size") and not variable.isdisjoint(takes(node)):
            variable.update(filter(None, node.output))
    return variable


def _multiplies_maps(node: onnx.NodeProto, variable: set[str]) -> bool:
    """Return whether a node is a matrix product whose operands both depend on an input of the model."""
    second = _PRODUCTS.get(node.op_type, len(node.input))
    return second < len(node.input) and variable.issuperset((node.input[0], node.input[second]))


def _is_deep(walk: ImportWalk, node: onnx.NodeProto) -> bool:
    """Return whether a convolution or pool works on three-dimensional maps (C, D, H, W)."""
    shape = walk.graph.shapes.of(node.input[0]).shape
    return shape is not None and len(shape) > 4


def _leading_to(nodes: Sequence[onnx.NodeProto], parts: set[int]) -> set[int]:
    """Return the ``id`` of nodes that only rearrange values for the nodes ``parts``, as a set."""
    leading, wanted = set(), set()
    for node in reversed(nodes):
        if node.op_type in _REARRANGING and not wanted.isdisjoint(node.output):
            leading.add(id(node))
        if id(node) in parts | leading:
            wanted.update(takes(node))
    return leading - parts


def _listed(kinds: Mapping[str, Sequence[onnx.NodeProto]]) -> str:
    """Return the kinds of parts as text, each with its first node and the number of its other nodes."""
    texts = [
        f"{kind} ({named(nodes[0])}{f' and {len(nodes) - 1:,} more' if len(nodes) > 1 else ''})"
        for kind, nodes in kinds.items()
    ]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


@dataclass(frozen=True)
class Rest:
    """Nodes of an ONNX model that the host runs after the hardware, and the tensor names that they read.

    Parameters
    ----------
    nodes : tuple of NodeProto
        Nodes, in the graph's order.
    maps : tuple of str
        Outputs of layers that the nodes read.
    integers : tuple of str
        Inputs of the hardware that the nodes read.
    model_inputs : tuple of str
        Inputs of the model that the nodes read as they are.
    """

    nodes: tuple[onnx.NodeProto, ...]
    maps: tuple[str, ...]
    integers: tuple[str, ...]
    model_inputs: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Tuple of names of all tensors that the host's nodes read: hardware outputs and inputs, and model inputs."""
        return *self.maps, *self.integers, *self.model_inputs


def rest_after(walk: ImportWalk, maps: Mapping[str, Value]) -> Rest:
    """Return the `Rest`: nodes for the host from the tensors ``maps``, where the hardware can end, to the outputs.

    An input as integers counts only if the layers before these tensors read the same input.
    """
    rest = _find_rest(walk, maps)
    taken = _inputs_before(walk, rest.maps)
    return _find_rest(walk, {name: value for name, value in maps.items() if value.source or value.map.origin in taken})


def _find_rest(walk: ImportWalk, maps: Mapping[str, Value]) -> Rest:
    """Return a `Rest`: nodes after the tensors ``maps`` for the host, including uses of inputs that no layer reads."""
    graph = walk.graph
    nodes = graph.before(graph.outputs, maps)
    seen = {*graph.outputs}.union(*map(takes, nodes))
    reached = [name for name in maps if name in seen]
    return Rest(
        nodes=tuple(nodes),
        maps=tuple(name for name in reached if maps[name].source is not None),
        integers=tuple(name for name in reached if maps[name].source is None),
        model_inputs=tuple(name for name in graph.inputs if name in seen and name not in maps),
    )


def _inputs_before(walk: ImportWalk, tensors: Sequence[str]) -> dict[str, Map]:
    """Return a dict by input name of the `Map` of each model input that the layers before ``tensors`` read."""
    inputs = {}
    for step in steps_before(walk.values[tensor].source for tensor in tensors):
        for source, taken in zip(step.sources, (step.input, *step.more), strict=True):
            if source is None:
                inputs[taken.origin] = taken
    return inputs


def walked(model: FoldedModel, where: str) -> tuple[ImportWalk, bool]:
    """Return a pair: the `ImportWalk` of a model up to the hardware's end, and whether the host joins outputs.

    The host joins tensors if nothing else is an obstacle, and none of its nodes is meant for integers (`may_join`).
    """
    walk = ImportWalk(model, where)
    rest = _joining(walk)
    if rest is None:
        note_other_networks(walk)
        return walk, False
    again = ImportWalk(model, where, rest.maps, walk.sums().keys() & {*rest.maps})
    again.ledger.host_after |= {id(node) for node in rest.nodes}
    return again, True


def _joining(walk: ImportWalk) -> Rest | None:
    """Return the `Rest`: host nodes that join hardware outputs; ``None`` unless they remove all obstacles to a build.

    The nodes join several outputs of the hardware into the model's outputs.
    """
    refused = {None if node is None else id(node) for node, _ in walk.ledger.obstacles}
    if not refused or None in refused:
        return None
    maps = walk.maps()
    sums = walk.sums()
    rests = (rest_after(walk, ends) for ends in (maps, sums | maps))
    rest = next((rest for rest in rests if refused <= {*map(id, rest.nodes)} and _may_join(walk, rest, sums)), None)
    if rest is None or _other_input(walk, rest, maps) is not None:
        return None
    errors = walk.host_frames(rest.sources, rest.nodes, walk.outputs).errors
    if errors:
        walk.ledger.host_after |= {id(node) for node in rest.nodes}
        walk.ledger.replace(errors)
    return None if errors else rest


def _may_join(walk: ImportWalk, rest: Rest, sums: Collection[str]) -> bool:
    """Return whether the host can run the nodes ``rest``, which read feature maps and convolutions' floats ``sums``."""
    integers = [name for name in rest.sources if name not in sums]
    quantises = any(node.op_type == "QuantizeLinear" for node in rest.nodes)
    if not rest.maps or (quantises and len(integers) < len(rest.sources)):
        return False
    return may_join(walk.graph, rest.sources, rest.nodes, integers)


def auto_part(walk: ImportWalk) -> tuple[ModelPart | None, str]:
    """Return a pair: the `ModelPart` that ``--until auto`` builds, or ``None``, and why the rest can't run, or "".

    The text says why ONNX Runtime can't run the rest of the nodes, if that is the reason.
    """
    rest = rest_after(walk, walk.maps())
    if not rest.maps:
        return None, ""
    errors = walk.host_frames(rest.sources, rest.nodes, walk.outputs).errors
    if errors:
        return None, str(errors[0]).removeprefix(f"{walk.where}: ")
    operators = walk.operators()
    is_known = all(operator.macs is not None for operator in operators)
    return ModelPart(tensors=rest.maps, macs_covered=covered(walk, rest.maps, operators), is_known=is_known), ""


def whole_network(walk: ImportWalk, joins: bool, name: str) -> Network:
    """Return the `Network` of a model that `walked` imported; with ``joins``, the host joins several hardware outputs.

    The model must have no obstacles.
    """
    return _before_rest(walk, walk, name, walk.maps(), whole=True) if joins else walk.network(name, walk.ends)


def part_network(whole: ImportWalk, walk: ImportWalk, name: str, maps: Mapping[str, Value]) -> Network:
    """Return the `Network` of a part of an ONNX model: the layers before the tensors where the hardware ends.

    Parameters
    ----------
    whole : ImportWalk
        Walk of the model.
    walk : ImportWalk
        Walk of the nodes before the tensors.

    Raises
    ------
    ModelError
        If the rest reads the model's input as other integers than the layers do, or is too large.
    """
    return _before_rest(whole, walk, name, maps, whole=False)


def _before_rest(model: ImportWalk, walk: ImportWalk, name: str, maps: Mapping[str, Value], *, whole: bool) -> Network:
    """Return the `Network` of the layers before the tensors where the hardware ends, with the host's remainder."""
    rest = rest_after(walk, maps)
    if (other := _other_input(walk, rest, maps)) is not None:
        raise ModelError(
            f"{walk.where}: operators left for the host read {other!r}, the input with another quantisation than the "
            "hardware's; quantise the input once"
        )
    frames = walk.host_frames(rest.sources, rest.nodes, walk.outputs)
    if frames.errors:
        raise frames.errors[0]
    unused = UnusedNames(walk.graph.model)
    named_ = {tensor: unused(f"{tensor}_integers") if _is_real(maps[tensor]) else tensor for tensor in rest.maps}
    ends = {tensor: walk.end(tensor, named_[tensor]) for tensor in rest.maps}
    integers = tuple(walk.end(tensor, tensor) for tensor in rest.integers)
    operators = [node.op_type for node in rest.nodes if node.op_type not in ("Constant", "Identity")]
    remainder = Remainder(
        tensors=rest.maps,
        model=_serialise_rest(walk, rest, maps, ends, integers),
        maps=tuple(named_.values()),
        integers=integers,
        integers_of=tuple(maps[tensor].map.origin for tensor in rest.integers),
        raw_inputs=rest.model_inputs,
        outputs=walk.outputs,
        operators=tuple(operators),
        macs_covered=covered(walk, rest.maps, model.operators()),
        whole=whole,
        rows=frames.rows,
        ragged=frames.ragged,
        frames=frames.positions,
    )
    ends_of_layers = {}
    for tensor, end in ends.items():
        step = maps[tensor].source
        assert step is not None
        ends_of_layers[end.name] = end, step
    return walk.network(name, ends_of_layers, remainder)


def _serialise_rest(
    walk: ImportWalk,
    rest: Rest,
    maps: Mapping[str, Value],
    ends: Mapping[str, OutputEnd],
    integers: Sequence[OutputEnd],
) -> bytes:
    """Return, as bytes, the ONNX model of the nodes that the host runs after the accelerator; may be empty."""
    model, inputs, nodes, provided = walk.graph.model, [], [], set()
    unused = UnusedNames(model)
    for tensor, end in (*ends.items(), *((end.tensor, end) for end in integers)):
        source, made = host_input(maps[tensor], end.tensor, walk.build.batch, unused)
        provided |= {source.name, end.tensor}
        inputs.append(source)
        nodes += [*made, *reals_of(maps[tensor], end.tensor, tensor, rest.nodes, unused)]
    inputs += [value for value in data_inputs(model) if value.name in rest.model_inputs]
    provided |= {value.name for value in inputs}
    outputs = {value.name: value for value in model.graph.output if value.name not in provided}
    nodes += rest.nodes
    if not outputs:
        return b""
    part = walk.graph.part("remainder", nodes, inputs, [*outputs.values()])
    known = {*outputs}.union(*map(takes, nodes)) - provided
    part.graph.value_info.extend(value for value in model.graph.value_info if value.name in known)
    try:
        return part.SerializeToString()
    except ValueError as error:  # past protobuf's 2 GB
        raise ModelError(f"{walk.where}: what is left for the host is too large: {line(error)}") from None


def covered(walk: ImportWalk, tensors: Sequence[str], operators: Sequence[Operator]) -> float:
    """Return the fraction (0 to 1) of a model's multiply-accumulates in the layers before ``tensors``."""
    names = {step.name for step in steps_before(walk.values[tensor].source for tensor in tensors)}
    layers = [names.intersection(walk.ledger.layers.get(id(node), ())) for node in walk.ledger.nodes]
    return share(operators, [operator for operator, made in zip(operators, layers, strict=True) if made])


def _other_input(walk: ImportWalk, rest: Rest, maps: Mapping[str, Value]) -> str | None:
    """Return the name of a model input that the host reads in another quantisation than the hardware; else ``None``.

    The host has no other integers.
    """
    taken = _inputs_before(walk, rest.maps)
    others = (name for name in rest.integers if maps[name].map.frozen() != taken[maps[name].map.origin].frozen())
    return next(others, None)


def _is_real(value: Value) -> bool:
    """Return whether a tensor holds floats, of a dequantised map or of a convolution's accumulators."""
    return isinstance(value.state, Ended | Reals)
