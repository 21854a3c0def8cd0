"""A part of a model: the layers up to some tensors, and what ONNX Runtime makes of these.

The part ends at tensors of integers, each a map that a layer gives. What the rest of the graph needs of earlier maps
leaves the hardware, too; what it needs of the model's input the host has anyway.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from hwgen.errors import ModelError
from hwgen.network.ends import OutputEnd, Remainder
from hwgen.network.fates import Operator, Part, Survey, share
from hwgen.network.graph import Network
from hwgen.network.onnx.file import data_inputs, line, named, takes
from hwgen.network.onnx.importer import checked
from hwgen.network.onnx.ledger import as_written
from hwgen.network.onnx.values import Reals, Value
from hwgen.network.onnx.walk import Walk

AUTO = "auto"
"""In place of a tensor's name: all that can be built before what can't be."""
_NAMED = 4
"""So many tensors are named that would do in place of another."""


def to_part(model: onnx.ModelProto, name: str, where: str, until: str | Sequence[str]) -> Network:
    """The part of the quantised ``model`` up to some tensors as a network called ``name``; the host runs what is left.

    Parameters
    ----------
    where : str
        Starts error messages (a path).
    until : str or sequence of str
        Names of tensors, or ``auto``: all that can be built before what can't be, and that the rest has a use for.
        That is the whole model where all of it can be built.

    Raises
    ------
    ModelError
        If the model is not valid, something before these tensors can't be built, the hardware can't end at one of
        them, or nothing would be built.
    """
    with checked(model, where) as given:
        whole = Walk(given, where)
        if until == AUTO:
            if not whole.ledger.obstacles:
                return whole.network(name, whole.ends)
            until = _rest(whole, whole.maps()).maps
            if not until:
                raise ModelError(f"{where}: no layer can be built before what can't be: {whole.ledger.texts()[0]}")
        tensors = [until] if isinstance(until, str) else list(until)
        _check_names(given.model, where, tensors)
        walk = Walk(given, where, tensors)
        walk.ledger.check()
        maps = walk.maps()
        for tensor in tensors:
            if tensor not in maps or maps[tensor].source is None:
                raise _no_end(whole, tensor, maps)
        return _network(whole, walk, name, maps)


def survey(model: onnx.ModelProto, name: str, where: str) -> Survey:
    """What becomes of each operator of the quantised ``model``, whether or not all of it can be built.

    Raises
    ------
    ModelError
        If the model is not valid.
    """
    with checked(model, where) as given:
        walk = Walk(given, where)
        layers = walk.layers()
        operators = walk.operators()
        part, chain = None, False
        if not walk.ledger.obstacles:
            chain = walk.network(name, walk.ends).is_chain
        elif (rest := _rest(walk, walk.maps())).maps:
            part = Part(tensors=rest.maps, macs_covered=_covered(walk, rest.maps, operators))
        other = [
            walk.shapes.weights(node)
            for node, operator in zip(walk.ledger.nodes, operators, strict=True)
            if operator.verdict == "unsupported" and operator.macs != 0
        ]
        return Survey(
            name=name,
            operators=as_written(model.graph, walk.ledger.nodes, operators),
            obstacles=tuple(walk.ledger.texts()),
            layers=layers,
            chain=chain,
            other_weights=tuple(other),
            part=part,
        )


@dataclass(frozen=True)
class _Rest:
    """What is left of a graph behind some tensors: its nodes, in the graph's order, and the tensors that it takes.

    ``maps`` come from layers, ``integers`` are the hardware's input, ``floats`` is the model's float input.
    """

    nodes: tuple[onnx.NodeProto, ...]
    maps: tuple[str, ...]
    integers: tuple[str, ...]
    floats: str | None


def _rest(walk: Walk, maps: Mapping[str, Value]) -> _Rest:
    """Back from the outputs to the first tensors that there are: those of ``maps``, constants, the float input."""
    graph = walk.model.graph
    producers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    inputs = {value.name for value in data_inputs(walk.model)}
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
    return _Rest(
        nodes=tuple(graph.node[place] for place in sorted(places)),
        maps=tuple(name for name in reached if maps[name].source is not None),
        integers=tuple(name for name in reached if maps[name].source is None),
        floats=next((name for name in inputs if name in seen and name not in maps), None),
    )


def _network(whole: Walk, walk: Walk, name: str, maps: Mapping[str, Value]) -> Network:
    """The layers before some tensors, with what the host makes of them."""
    rest = _rest(walk, maps)
    _check_input(walk, rest, maps)
    unused = _Unused(walk.model)
    named_ = {tensor: unused(f"{tensor}_integers") if _is_real(maps[tensor]) else tensor for tensor in rest.maps}
    ends = {tensor: walk.end(tensor, named_[tensor]) for tensor in rest.maps}
    integers = tuple(walk.end(tensor, tensor) for tensor in rest.integers)
    operators = [node.op_type for node in rest.nodes if node.op_type not in ("Constant", "Identity")]
    remainder = Remainder(
        tensors=rest.maps,
        model=_cut(walk, rest, maps, ends, integers),
        maps=tuple(named_.values()),
        integers=integers,
        floats=rest.floats,
        outputs=walk.outputs,
        operators=tuple(operators),
        macs_covered=_covered(walk, rest.maps, whole.operators()),
    )
    found = {}
    for tensor, end in ends.items():
        step = maps[tensor].source
        assert step is not None
        found[end.name] = end, step
    return walk.network(name, found, remainder)


def _cut(
    walk: Walk,
    rest: _Rest,
    maps: Mapping[str, Value],
    ends: Mapping[str, OutputEnd],
    integers: Sequence[OutputEnd],
) -> bytes:
    """The ONNX model of what is left; empty if that is nothing."""
    graph, inputs, nodes = walk.model.graph, [], []
    batch = walk.build.batch or "batch"
    for tensor, end in (*ends.items(), *((end.tensor, end) for end in integers)):
        kind = helper.np_dtype_to_tensor_dtype(maps[tensor].map.type.dtype)
        inputs.append(helper.make_tensor_value_info(end.tensor, kind, [batch, *end.shape]))
        if end.tensor != tensor:
            state = maps[tensor].state
            assert isinstance(state, Reals)
            dequantise = onnx.NodeProto()
            dequantise.CopyFrom(state.node)
            dequantise.input[0], dequantise.output[0] = end.tensor, tensor
            nodes.append(dequantise)
    inputs += [value for value in data_inputs(walk.model) if value.name == rest.floats]
    given = {value.name for value in inputs}
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


def _covered(walk: Walk, tensors: Sequence[str], operators: Sequence[Operator]) -> float:
    """Share of the multiply-accumulates of all ``operators`` in the layers before some tensors."""
    waiting, names, seen = [walk.values[tensor].source for tensor in tensors], set(), set()
    while waiting:
        step = waiting.pop()
        if step is not None and id(step) not in seen:
            seen.add(id(step))
            names.add(step.name)
            waiting += step.sources
    places = [names.intersection(walk.ledger.layers.get(id(node), ())) for node in walk.ledger.nodes]
    return share(operators, [operator for operator, made in zip(operators, places, strict=True) if made])


# What can't be.


def _check_names(model: onnx.ModelProto, where: str, tensors: Sequence[str]) -> None:
    names = [name for node in model.graph.node for name in node.output if name]
    for tensor in tensors:
        if tensor not in names:
            near = difflib.get_close_matches(str(tensor), names, n=_NAMED)
            by_node = [name for node in model.graph.node if node.name == tensor for name in node.output if name]
            did = f"; did you mean {_listed(by_node or near)}?" if by_node or near else ""
            raise ModelError(f"{where}: no operator gives a tensor {tensor!r}{did}")


def _check_input(walk: Walk, rest: _Rest, maps: Mapping[str, Value]) -> None:
    """What is left may take the input as integers only as the hardware does: the host has no others."""
    steps = [walk.values[tensor].source for tensor in rest.maps]
    taken = None
    while steps and taken is None:
        step = steps.pop()
        assert step is not None
        taken = step.input if step.sources[0] is None else None
        steps += [source for source in step.sources if source is not None]
    for tensor in rest.integers:
        here = maps[tensor].map
        if taken is not None and here.frozen() != taken.frozen():
            raise ModelError(
                f"{walk.where}: what is left for the host takes {tensor!r}, the input quantised otherwise than the "
                "hardware takes it; quantise it once"
            )


def _no_end(whole: Walk, tensor: str, before: Mapping[str, Value]) -> ModelError:
    """Why the hardware can't end at a tensor, and the nearest ones that would do."""
    good = {name for name, value in {**whole.maps(), **before}.items() if value.source is not None}
    graph = whole.model.graph
    (node,) = (node for node in graph.node if tensor in node.output)
    producers = {name: takes(node) for node in graph.node for name in node.output if name}
    readers: dict[str, list[str]] = {}
    for other in graph.node:
        for name in takes(other):
            readers.setdefault(name, []).extend(filter(None, other.output))
    found = [*_nearest(tensor, producers, good), *_nearest(tensor, readers, good)]
    nearest = f"the nearest that would do: {_listed(found)}" if found else "there is none at which it can"
    what = "is given before any layer" if tensor in before else "is no map of integers that a layer gives"
    return ModelError(
        f"{whole.where}: the hardware can't end at {tensor!r}: it {what} ({named(node)} gives it); {nearest}"
    )


def _nearest(start: str, edges: Mapping[str, Sequence[str]], good: Collection[str]) -> list[str]:
    """The first tensors of ``good`` on each way from a tensor."""
    found, seen, waiting = [], {start}, [start]
    while waiting and len(found) < _NAMED:
        for name in edges.get(waiting.pop(0), ()):
            if name in seen:
                continue
            seen.add(name)
            (found if name in good else waiting).append(name)
    return found


def _listed(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))


def _is_real(value: Value) -> bool:
    return isinstance(value.state, Reals)


class _Unused:
    """Makes names that no tensor of ``model`` has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._names = {name for node in graph.node for name in (*node.input, *node.output)}
        self._names |= {tensor.name for tensor in graph.initializer}

    def __call__(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name
