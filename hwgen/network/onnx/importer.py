"""Import of a quantised ONNX model, or of a part of it, as a network of integer layers.

docs/explanation/architecture.md says which file of this folder does what, and their order.

A part ends at tensors of integers, and a layer computes each of them. ONNX Runtime runs the rest on the host. Earlier
maps that the rest of the graph needs leave the hardware, too. The host has the model's inputs anyway.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import onnx

from hwgen.errors import ConfigError, ModelError
from hwgen.network.fates import ModelPart, Survey
from hwgen.network.graph import Network
from hwgen.network.onnx import adaptive_pools, redundant_nodes
from hwgen.network.onnx.check import check
from hwgen.network.onnx.file import named, takes
from hwgen.network.onnx.float_operands import OPERANDS, WEIGHTS
from hwgen.network.onnx.fold import fold
from hwgen.network.onnx.head import without_head
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import with_output_shapes
from hwgen.network.onnx.ledger import as_written
from hwgen.network.onnx.macs import constant_weights
from hwgen.network.onnx.qonnx import is_qonnx, rewritten, stand_in
from hwgen.network.onnx.redundant_nodes import without_constant_outputs
from hwgen.network.onnx.rest import auto_part, part_network, rest_after, walked, whole_network
from hwgen.network.onnx.rewrite import Rewriter
from hwgen.network.onnx.runtime import Kernels
from hwgen.network.onnx.values import Value
from hwgen.network.onnx.walk import FoldedModel, ImportWalk
from hwgen.network.options import AS_IT_IS, ModelOptions
from hwgen.printable import percent


def to_network(
    model: onnx.ModelProto, name: str, where: str | None = None, options: ModelOptions = AS_IT_IS
) -> Network:
    """Return a `Network`: the whole quantised ONNX ``model`` as a network of integer layers called ``name``.

    Parameters
    ----------
    where : str, optional
        Path that starts error messages; ``name`` by default.
    options : ModelOptions
        Options for reading the model.

    Raises
    ------
    ModelError
        If the model is not valid, or a part of it can't be built; several such parts are an ObstaclesError.
    """
    return to_part(model, name, where or name, replace(options, until=_END))


@contextmanager
def checked(model: onnx.ModelProto, where: str, options: ModelOptions = AS_IT_IS) -> Iterator[FoldedModel]:
    """Context manager that yields the checked `FoldedModel` of an ONNX model; ConfigErrors become ModelErrors.

    The result is without redundant nodes. Errors start with ``where``. Absurd scales can overflow in NumPy; the checks
    that matter refuse them.
    """
    model = with_output_shapes(model)
    check(stand_in(model) if is_qonnx(model) else model, where)
    if model.graph.sparse_initializer:
        initialiser = model.graph.sparse_initializer[0].values.name
        raise ModelError(f"{where}: initialiser {initialiser!r} is sparse; only dense ones are read")
    qonnx = is_qonnx(model)
    kernels = Kernels(model, is_optimised=not qonnx)
    graph = fold(GraphIndex(model), where)
    if qonnx:
        graph = fold(rewritten(graph, where), where)
    try:
        with np.errstate(all="ignore"):
            graph, constant_outputs = without_constant_outputs(graph)
            rewriter = Rewriter(graph, where)
            # A new quantiser of an operand can equal one that the model has.
            for rules in (
                redundant_nodes.RULES,
                adaptive_pools.RULES,
                () if qonnx else WEIGHTS,
                OPERANDS,
                redundant_nodes.RULES,
            ):
                rewriter.apply(rules)
            graph, head, removed = without_head(rewriter.graph, where)
            removed |= {name: ("folded", other.reason) for name, other in rewriter.replaced.items()}
            yield FoldedModel(
                graph=graph,
                head=head,
                removed=removed,
                replaced={name: other.tensor for name, other in rewriter.replaced.items()},
                float_tensors=rewriter.float_tensors,
                optimised=not qonnx,
                kernels=kernels,
                constant_outputs=constant_outputs,
                options=options,
            )
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None


AUTO = "auto"
"""Value of the option ``until`` that selects all layers before the first operator that can't be built."""
_END = "end"
"""Value of the option ``until`` that requires the whole model to be built."""
_NAMED = 4
"""Maximum number of tensors that an error message proposes in place of an unsuitable one."""


def to_part(model: onnx.ModelProto, name: str, where: str, options: ModelOptions) -> Network:
    """Return the `Network` called ``name`` of a quantised ONNX model, up to the tensors of the option ``until``.

    The host runs the rest of the model.

    Parameters
    ----------
    where : str
        Path that starts error messages.
    options : ModelOptions
        Options for reading the model. ``until`` has the names of tensors, ``auto`` or ``end``. With ``auto`` the
        part holds all layers that can be built before an obstacle, and whose outputs the rest needs. A model without
        obstacles is built as a whole. Without ``until`` this part is built if it has at least half of the
        multiply-accumulates, and a warning of the network says so; with ``end`` a model with obstacles is refused.

    Raises
    ------
    ModelError
        If the model is not valid, or a node before these tensors can't be built. Also if the hardware can't end at one
        of the tensors, or no layer would be built.
    """
    with checked(model, where, options) as checked_model:
        until = options.until
        if until not in (None, AUTO, _END):
            return _network_to(checked_model, where, until, ImportWalk(checked_model, where), name)
        whole, joins = walked(checked_model, where)
        if whole.ledger.obstacles:
            if until == AUTO:
                return _network_to(checked_model, where, _last_maps(whole), whole, name)
            part, _ = auto_part(whole)
            if until is None and part is not None and part.is_default:
                with suppress(ModelError):  # a rest that the host can't run: the model's own obstacle says more
                    network = _network_to(checked_model, where, part.tensors, whole, name)
                    return replace(network, warnings=(*network.warnings, _part_warning(whole, part)))
            whole.ledger.check(part)
        return whole_network(whole, joins, name)


def _network_to(
    checked_model: FoldedModel, where: str, until: str | Sequence[str], whole: ImportWalk, name: str
) -> Network:
    """Return the `Network` of a model up to the tensors ``until``; ``whole`` is the import of the whole model."""
    walk, maps = _walk_to(checked_model, where, until, whole)
    return part_network(whole, walk, name, maps)


def _part_warning(whole: ImportWalk, part: ModelPart) -> str:
    """Return a warning (text) that only a part of a model is built, with its share of MACs and the first obstacle."""
    first, *others = whole.ledger.texts()
    more = f" (and {len(others)} other reasons)" if others else ""
    tensors = " and ".join(map(repr, part.tensors))
    return (
        f"the hardware ends at {tensors}, with {percent(part.macs_covered)} of the multiply-accumulates, and ONNX "
        f"Runtime runs the rest on the host: {first.partition('; ')[0]}{more}; --until end insists on the whole model"
    )


def _last_maps(whole: ImportWalk) -> Sequence[str]:
    """Return a sequence of tensor names: the hardware's ends if it stops before the first unsupported operators."""
    tensors = rest_after(whole, whole.maps()).maps
    if not tensors:
        raise ModelError(
            f"{whole.where}: no layer can be built before the first unsupported operator: {whole.ledger.texts()[0]}"
        )
    return tensors


def _walk_to(
    checked_model: FoldedModel, where: str, until: str | Sequence[str], whole: ImportWalk
) -> tuple[ImportWalk, Mapping[str, Value]]:
    """Return a pair: `ImportWalk` up to the tensors ``until``, dict of its maps (`Value`) by tensor; refuse others.

    ``whole`` is the walk through the whole model.
    """
    given, replaced = [until] if isinstance(until, str) else list(until), checked_model.replaced
    tensors = [replaced.get(tensor, tensor) for tensor in given]
    _check_names(checked_model.graph, where, tensors)
    walk = ImportWalk(checked_model, where, tensors)
    walk.ledger.check()
    maps = walk.maps()
    for tensor in tensors:
        if tensor not in maps or maps[tensor].source is None:
            raise _end_refusal(whole, tensor, maps)
    return walk, maps


def survey_part(model: onnx.ModelProto, name: str, where: str, options: ModelOptions) -> Survey:
    """Return a `Survey` of a model that is built up to the tensors ``until``, while the host runs the rest.

    Raises
    ------
    ModelError
        If `to_part` refuses the part.
    """
    with checked(model, where, options) as checked_model:
        whole, _ = walked(checked_model, where)
        until = options.until or AUTO
        if until in (AUTO, _END):
            if not whole.ledger.obstacles or until == _END:
                return survey(model, name, where, options)
            until = _last_maps(whole)
        walk, maps = _walk_to(checked_model, where, until, whole)
        network = part_network(whole, walk, name, maps)
        ends = ", ".join([until] if isinstance(until, str) else until)
        operators = [
            replace(operator, verdict="host", reason=f"after {ends}") if operator.verdict == "unsupported" else operator
            for operator in walk.operators()
        ]
        return Survey(
            name=name,
            operators=as_written(model.graph, walk.ledger.nodes, operators, checked_model.removed),
            obstacles=(),
            layers=walk.layers(),
            chain=network.is_chain,
            in_floats=network.in_floats,
        )


def survey(model: onnx.ModelProto, name: str, where: str, options: ModelOptions = AS_IT_IS) -> Survey:
    """Return a `Survey` of a quantised ONNX model: the verdict on each operator, even if some can't be built.

    Raises
    ------
    ModelError
        If the model is not valid.
    """
    with checked(model, where, options) as checked_model:
        walk, joins = walked(checked_model, where)
        layers = walk.layers()
        operators = walk.operators()
        part, refused, chain = None, "", False
        if not walk.ledger.obstacles:
            chain = whole_network(walk, joins, name).is_chain
        else:
            part, refused = auto_part(walk)
        other = [
            weights
            for node, operator in zip(walk.ledger.nodes, operators, strict=True)
            if operator.verdict == "unsupported" and operator.macs != 0
            for weights in constant_weights(checked_model.graph, node)
        ]
        return Survey(
            name=name,
            operators=as_written(model.graph, walk.ledger.nodes, operators, checked_model.removed),
            obstacles=tuple(walk.ledger.texts()),
            layers=layers,
            chain=chain,
            other_weights=tuple(other),
            part=part,
            rest_refused=refused,
            in_floats=walk.build.in_floats(layers),
        )


# Errors.


def _check_names(graph: GraphIndex, where: str, tensors: Sequence[str]) -> None:
    """Refuse names of tensors that no node of the ONNX model computes, with similar names as proposals."""
    for tensor in tensors:
        if tensor not in graph.producers:
            near = difflib.get_close_matches(str(tensor), graph.producers, n=_NAMED)
            by_node = [name for name, node in graph.producers.items() if node.name == tensor]
            did = f"; did you mean {_listed(by_node or near)}?" if by_node or near else ""
            raise ModelError(f"{where}: no operator has an output {tensor!r}{did}")


def _end_refusal(whole: ImportWalk, tensor: str, before: Mapping[str, Value]) -> ModelError:
    """Return the ModelError that says why the hardware can't end at a tensor, and proposes the nearest tensors."""
    good = {name for name, value in {**whole.maps(), **before}.items() if value.source is not None}
    graph = whole.graph

    def sources(name: str) -> Sequence[str]:
        """Return a sequence of the tensors that the producer of the tensor ``name`` reads."""
        return takes(graph.producers[name]) if name in graph.producers else ()

    def results(name: str) -> Sequence[str]:
        """Return a sequence of the outputs of all nodes that read the tensor ``name``."""
        return [output for node in graph.readers(name) for output in filter(None, node.output)]

    proposals = [*_nearest(tensor, sources, good), *_nearest(tensor, results, good)]
    nearest = f"the nearest that would do: {_listed(proposals)}" if proposals else "there is no tensor where it can"
    what = "is given before any layer" if tensor in before else "is not a map of integers that a layer computes"
    maker = named(graph.producers[tensor])
    return ModelError(f"{whole.where}: the hardware can't end at {tensor!r}: it {what} ({maker} gives it); {nearest}")


def _nearest(start: str, edges: Callable[[str], Iterable[str]], good: Collection[str]) -> list[str]:
    """Return a list: the first tensor names among ``good`` on each path through the graph from ``start``."""
    nearest, seen, waiting = [], {start}, [start]
    while waiting and len(nearest) < _NAMED:
        for name in edges(waiting.pop(0)):
            if name in seen:
                continue
            seen.add(name)
            (nearest if name in good else waiting).append(name)
    return nearest


def _listed(names: Sequence[str]) -> str:
    """Return tensor names as text, quoted and joined by ``or``."""
    return " or ".join(map(repr, names))
