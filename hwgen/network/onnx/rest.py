"""What is left of a graph for ONNX Runtime behind the tensors at which the hardware ends.

Where a part of a model is built, that may be anything (`hwgen.network.onnx.part`). Of a whole model it is what only the
host does, but with several of these tensors: heads of different sizes that are put into one output, for instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from hwgen.errors import ModelError
from hwgen.network.ends import OutputEnd, Remainder
from hwgen.network.fates import Operator, share
from hwgen.network.graph import Network
from hwgen.network.onnx.file import UnusedNames, data_inputs, line, takes
from hwgen.network.onnx.host import dequantised, in_bytes, may_join
from hwgen.network.onnx.values import Map, Reals, Value, steps_before
from hwgen.network.onnx.walk import Given, Walk


@dataclass(frozen=True)
class Rest:
    """What is left of a graph behind some tensors: its nodes, in the graph's order, and the tensors that it takes.

    ``maps`` come from layers, ``integers`` are inputs of the hardware, ``given`` are the model's inputs as they are.
    """

    nodes: tuple[onnx.NodeProto, ...]
    maps: tuple[str, ...]
    integers: tuple[str, ...]
    given: tuple[str, ...]


def rest_behind(walk: Walk, maps: Mapping[str, Value]) -> Rest:
    """Back from the outputs to the first tensors that there are: those of ``maps``, constants, the model's inputs.

    What is the input as integers only counts where the layers before these tensors take that input.
    """
    rest = _back(walk, maps)
    taken = _inputs_before(walk, rest.maps)
    return _back(walk, {name: each for name, each in maps.items() if each.source or each.map.origin in taken})


def _back(walk: Walk, maps: Mapping[str, Value]) -> Rest:
    """The same, whatever the layers take."""
    graph = walk.model.graph
    producers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    waiting, seen = [value.name for value in graph.output], set()
    places: set[int] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in producers and name not in maps:
            places.add(producers[name])
            waiting += takes(graph.node[producers[name]])
    reached = [name for name in maps if name in seen]
    return Rest(
        nodes=tuple(graph.node[place] for place in sorted(places)),
        maps=tuple(name for name in reached if maps[name].source is not None),
        integers=tuple(name for name in reached if maps[name].source is None),
        given=tuple(each.name for each in data_inputs(walk.model) if each.name in seen and each.name not in maps),
    )


def _inputs_before(walk: Walk, tensors: Sequence[str]) -> dict[str, Map]:
    """The model's inputs that the layers before some tensors take, by their names."""
    found = {}
    for step in steps_before(walk.values[tensor].source for tensor in tensors):
        for source, taken in zip(step.sources, (step.input, *step.more), strict=True):
            if source is None:
                found[taken.origin] = taken
    return found


def walked(given: Given, where: str) -> tuple[Walk, bool]:
    """A model gone through, up to where the hardware ends; and whether the host joins several tensors behind it.

    It does where that is all that can't be built, and nothing among it is meant for integers (`may_join`).
    """
    walk = Walk(given, where)
    rest = _joining(walk)
    if rest is None:
        return walk, False
    again = Walk(given, where, rest.maps)
    again.ledger.behind |= {id(node) for node in rest.nodes}
    return again, True


def _joining(walk: Walk) -> Rest | None:
    """What the host joins, if there is anything, and all that can't be built is among it."""
    refused = {None if node is None else id(node) for node, _ in walk.ledger.obstacles}
    if not refused or None in refused:
        return None
    maps = walk.maps()
    rest = rest_behind(walk, maps)
    sources = [*rest.maps, *rest.integers, *rest.given]
    if not rest.maps or not refused <= {id(node) for node in rest.nodes}:
        return None
    if not may_join(walk.model, sources, rest.nodes) or _other_input(walk, rest, maps) is not None:
        return None
    return rest


def whole_network(walk: Walk, joins: bool, name: str) -> Network:
    """The network of a model that is `walked` without an obstacle."""
    return _before_rest(walk, walk, name, walk.maps(), whole=True) if joins else walk.network(name, walk.ends)


def part_network(whole: Walk, walk: Walk, name: str, maps: Mapping[str, Value]) -> Network:
    """The layers before some tensors; ``whole`` is the model, ``walk`` only what is before these.

    Raises
    ------
    ModelError
        If the rest takes the model's input as other integers than the layers do, or is too large.
    """
    return _before_rest(whole, walk, name, maps, whole=False)


def _before_rest(model: Walk, walk: Walk, name: str, maps: Mapping[str, Value], *, whole: bool) -> Network:
    """The layers before some tensors, with what the host makes of them."""
    rest = rest_behind(walk, maps)
    if (other := _other_input(walk, rest, maps)) is not None:
        raise ModelError(
            f"{walk.where}: what is left for the host takes {other!r}, the input quantised otherwise than the "
            "hardware takes it; quantise it once"
        )
    unused = UnusedNames(walk.model)
    named_ = {tensor: unused(f"{tensor}_integers") if _is_real(maps[tensor]) else tensor for tensor in rest.maps}
    ends = {tensor: walk.end(tensor, named_[tensor]) for tensor in rest.maps}
    integers = tuple(walk.end(tensor, tensor) for tensor in rest.integers)
    operators = [node.op_type for node in rest.nodes if node.op_type not in ("Constant", "Identity")]
    remainder = Remainder(
        tensors=rest.maps,
        model=_cut(walk, rest, maps, ends, integers),
        maps=tuple(named_.values()),
        integers=integers,
        integers_of=tuple(maps[tensor].map.origin for tensor in rest.integers),
        given=rest.given,
        outputs=walk.outputs,
        operators=tuple(operators),
        macs_covered=covered(walk, rest.maps, model.operators()),
        whole=whole,
    )
    found = {}
    for tensor, end in ends.items():
        step = maps[tensor].source
        assert step is not None
        found[end.name] = end, step
    return walk.network(name, found, remainder)


def _cut(
    walk: Walk,
    rest: Rest,
    maps: Mapping[str, Value],
    ends: Mapping[str, OutputEnd],
    integers: Sequence[OutputEnd],
) -> bytes:
    """The ONNX model of what is left; empty if that is nothing."""
    graph, inputs, nodes, given = walk.model.graph, [], [], set()
    batch, unused = walk.build.batch or "batch", UnusedNames(walk.model)
    for tensor, end in (*ends.items(), *((end.tensor, end) for end in integers)):
        state, kind = maps[tensor].state, maps[tensor].map.type
        name, made = in_bytes(kind, end.tensor, unused)
        given |= {name, end.tensor}
        element = helper.np_dtype_to_tensor_dtype(kind.dtype)
        inputs.append(helper.make_tensor_value_info(name, element, [batch, *end.shape]))
        nodes += made
        if end.tensor != tensor:
            assert isinstance(state, Reals)
            nodes += dequantised(state, end.tensor, tensor, end.shape, rest.nodes, unused)
    inputs += [value for value in data_inputs(walk.model) if value.name in rest.given]
    given |= {value.name for value in inputs}
    outputs = {value.name: value for value in graph.output if value.name not in given}
    nodes += rest.nodes
    if not outputs:
        return b""
    used = {name for node in nodes for name in takes(node)} | set(outputs)
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    part = helper.make_graph(nodes, "remainder", inputs, list(outputs.values()), constants)
    part.value_info.extend(value for value in graph.value_info if value.name in used and value.name not in given)
    # From version 4 on initialisers need not be inputs.
    version = max(walk.model.ir_version, 4)
    imports, functions = walk.model.opset_import, list(walk.model.functions)
    model = helper.make_model(part, opset_imports=imports, ir_version=version, functions=functions)
    try:
        return model.SerializeToString()
    except ValueError as error:  # past protobuf's 2 GB
        raise ModelError(f"{walk.where}: what is left for the host is too large: {line(error)}") from None


def covered(walk: Walk, tensors: Sequence[str], operators: Sequence[Operator]) -> float:
    """Share of the multiply-accumulates of all ``operators`` in the layers before some tensors."""
    names = {step.name for step in steps_before(walk.values[tensor].source for tensor in tensors)}
    places = [names.intersection(walk.ledger.layers.get(id(node), ())) for node in walk.ledger.nodes]
    return share(operators, [operator for operator, made in zip(operators, places, strict=True) if made])


def _other_input(walk: Walk, rest: Rest, maps: Mapping[str, Value]) -> str | None:
    """A tensor that is an input as other integers than the hardware takes; the host has no others."""
    taken = _inputs_before(walk, rest.maps)
    others = (name for name in rest.integers if maps[name].map.frozen() != taken[maps[name].map.origin].frozen())
    return next(others, None)


def _is_real(value: Value) -> bool:
    return isinstance(value.state, Reals)
