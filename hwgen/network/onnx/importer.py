"""ONNX import: a quantised model, as ONNX Runtime's quantiser writes it, becomes a Network.

The graph is walked node by node, from its input on; `hwgen.network.onnx.values` says what a value is on the way,
`hwgen.network.onnx.qdq`, `hwgen.network.onnx.qoperator` and their neighbours what each operator makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto

from hwgen.errors import ConfigError, ModelError
from hwgen.network.ends import Host, Layout, OutputEnd
from hwgen.network.graph import INPUT, Network
from hwgen.network.onnx import affine as onnx_affine
from hwgen.network.onnx import average as onnx_average
from hwgen.network.onnx import functions as onnx_functions
from hwgen.network.onnx import joins as onnx_joins
from hwgen.network.onnx import moves as onnx_moves
from hwgen.network.onnx import qdq as onnx_qdq
from hwgen.network.onnx import qoperator as onnx_qoperator
from hwgen.network.onnx import resize as onnx_resize
from hwgen.network.onnx.affine import refuse_falling
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.check import check, depends, needed
from hwgen.network.onnx.constants import ELEMENTS, NAMED, Constants
from hwgen.network.onnx.file import data_inputs, input_shape, title
from hwgen.network.onnx.fold import fold
from hwgen.network.onnx.host import Ends, may_run
from hwgen.network.onnx.inputs import input_view
from hwgen.network.onnx.joins import refuse_floats
from hwgen.network.onnx.narrow import is_narrow
from hwgen.network.onnx.qonnx import is_qonnx, rewritten, stand_in
from hwgen.network.onnx.sizes import note_shape, note_sizes
from hwgen.network.onnx.values import Floats, Joined, Map, Pending, Reals, Step, Sums, Value
from hwgen.network.onnx.views import View
from hwgen.network.ops import Op

_BEHIND_JOINS = {"Clip", "MaxPool", "QuantizeLinear", "Relu", *onnx_moves.MOVES}
"""What may follow a sum, a product or a concatenation of dequantised maps."""
_DOMAINS = {"", "ai.onnx", "com.microsoft"}


def to_network(model: onnx.ModelProto, name: str, where: str | None = None) -> Network:
    """The quantised ``model`` as a network called ``name``; ``where`` (a path) starts error messages."""
    where = where or name
    check(stand_in(model) if is_qonnx(model) else model, where)
    if model.graph.sparse_initializer:
        initialiser = model.graph.sparse_initializer[0].values.name
        raise ModelError(f"{where}: initialiser {initialiser!r} is sparse; only dense ones are read")
    qonnx, narrow = is_qonnx(model), is_narrow(model)
    model = fold(model, where)
    if qonnx:
        model = fold(rewritten(model, where), where)
    try:
        # Absurd scales overflow; what they lead to is checked where it matters.
        with np.errstate(all="ignore"):
            return _walk(model, name, where, qonnx=qonnx, fine=qonnx or narrow)
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None


def _walk(model: onnx.ModelProto, name: str, where: str, *, qonnx: bool, fine: bool) -> Network:
    """``fine``: whether maps and weights may have fewer than 8 bits."""
    graph = model.graph
    build = Builder(Constants(model, where))
    build.fine, build.rounds_bias = fine, not qonnx
    nodes = build.constants.fold(needed(graph))
    _begin(build, model, where, nodes)
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for tensor in node.input if node.op_type != "Shape" else ():
            consumers.setdefault(tensor, []).append(node)
    # Two outputs of one name are one: a name says which is meant.
    waiting = {value.name: _Waiting(Ends(model, value), depends(nodes, value.name)) for value in graph.output}
    outputs = list(waiting)
    source = data_inputs(model)[0].name
    before: list[str] = []  # operators on the float input
    values: dict[str, Value] = {}
    found: dict[str, tuple[OutputEnd, Step]] = {}

    def reached(tensor: str) -> None:
        """Note the value of a tensor, and the outputs for which the hardware ends with it."""
        for name in list(waiting):
            if (end := _end(build, model, waiting[name].ends, name, tensor)) is not None:
                found[name] = end
                del waiting[name]
        readers = consumers.get(tensor, [])
        values[tensor] = _shared(build, readers, len(readers) + (tensor in outputs))

    reached(source)
    for node in nodes:
        operands = [values[name] for name in node.input if name in values]
        if not operands:
            note_sizes(build.constants, node)
        if not operands or not any(id(node) in output.nodes for output in waiting.values()):
            continue
        if node.op_type == "Shape":
            note_shape(build.constants, node, operands[0].view, build.batch)
            continue
        build.operands = operands
        build.enter(operands[0])
        if isinstance(build.state, Floats):
            before.append(node.op_type)
        _step(build, node)
        reached(node.output[0])
    for output in waiting:
        if output not in values:
            raise ModelError(f"{where}: output {output!r} does not depend on the input")
        build.enter(values[output])
        raise _unfinished(build, where, output if len(outputs) > 1 else None)
    ends = [found[output][0] for output in outputs]
    return _network(build, name, _host(model, before, values[source].view, ends), found)


@dataclass(frozen=True)
class _Waiting:
    """An output for which the hardware has to go on, and the nodes (by identity) that it depends on."""

    ends: Ends
    nodes: set[int]


def _shared(build: Builder, readers: Sequence[onnx.NodeProto], count: int) -> Value:
    """The current value, and whether several take it: nodes, and the model's output."""
    refuse_floats(build, readers)
    build.shared |= count > 1
    return build.value


def _network(build: Builder, name: str, host: Host, found: Mapping[str, tuple[OutputEnd, Step]]) -> Network:
    """The layers that the outputs depend on."""
    used: set[int] = set()
    ends = [found[end.name][1] for end in host.outputs]
    waiting: list[Step | None] = [*ends]
    while waiting:
        step = waiting.pop()
        if step is not None and id(step) not in used:
            used.add(id(step))
            waiting += step.sources
    layers: dict[int | None, Op] = {}
    edges = []
    limits = None
    for step in (step for step in build.steps if id(step) in used):
        sources = [None if source is None else id(source) for source in step.sources]
        maps = [
            layers[source].output if source in layers else given.frozen()
            for source, given in zip(sources, (step.input, *step.more), strict=True)
        ]
        layers[id(step)] = step.frozen(*maps)
        if None in sources:
            limits = (step.input, *step.more)[sources.index(None)].bounds
        edges.append(tuple(layers[source].name if source in layers else INPUT for source in sources))
    network = Network(
        name=name,
        layers=tuple(layers.values()),
        edges=tuple(edges),
        outputs=tuple(layers[id(step)].name for step in ends),
        warnings=tuple(build.warnings),
        host=host if limits is None else replace(host, before=(*host.before, "Clip"), limits=limits),
    )
    return network.with_input_read_once()


def _begin(build: Builder, model: onnx.ModelProto, where: str, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make the model's input the builder's value; ``nodes`` say which map it becomes."""
    shape = input_shape(model, where)
    (source,) = data_inputs(model)
    batch = source.type.tensor_type.shape.dim[0].dim_value
    build.batch = batch if batch > 0 else None
    build.view = input_view(build.constants, nodes, source.name, shape, build.batch)
    kind = source.type.tensor_type.elem_type
    if kind == TensorProto.FLOAT:
        build.state = Floats(build.view.sizes)
    elif kind in ELEMENTS:
        build.map = Map(*build.view.sizes, ELEMENTS[kind])
    else:
        raise ModelError(
            f"{where}: input {source.name!r} must be float, {NAMED}, not {TensorProto.DataType.Name(kind).lower()}"
        )


def _step(build: Builder, node: onnx.NodeProto) -> None:
    operator = _OPERATORS.get(node.op_type)
    if operator is None or node.domain not in _DOMAINS:
        domain = f"{node.domain}." if node.domain else ""
        raise build.refusal(
            node,
            f"operator {domain}{node.op_type} is not supported; supported are "
            f"{', '.join(sorted(set(_OPERATORS) - {'Identity', 'QLinearAdd', 'QLinearSoftmax', 'ReduceMean'}))}"
            + ("; the host runs it at the end, if no layer and no QuantizeLinear follows" if may_run(node) else ""),
        )
    if any(node.output[1:]):
        raise build.refusal(node, f"output {next(filter(None, node.output[1:]))!r} is not supported, only the first is")
    if isinstance(build.state, Floats) and node.op_type not in ("QuantizeLinear", *onnx_moves.MOVES):
        raise build.refusal(node, "works on the float input; a QuantizeLinear must come first")
    if isinstance(build.state, Pending) and node.op_type not in ("QuantizeLinear", *onnx_moves.INTEGER_MOVES):
        raise build.refusal(build.state.node, f"must be followed by a QuantizeLinear, not by {title(node)!r}")
    if isinstance(build.state, Joined) and node.op_type not in _BEHIND_JOINS:
        raise build.refusal(
            build.state.node,
            f"must be followed by a QuantizeLinear, perhaps behind Relu or Clip, not by {title(node)!r}",
        )
    operator(build, node)


def _host(model: onnx.ModelProto, before: Sequence[str], view: View, outputs: Sequence[OutputEnd]) -> Host:
    """The host's part of a model, whose input lies as ``view`` says, and whose ``outputs`` are known."""
    (source,) = data_inputs(model)
    dims = source.type.tensor_type.shape.dim
    return Host(
        input=source.name,
        input_shape=tuple(dim.dim_value for dim in dims[1:]),
        input_layout=_layout(view),
        outputs=tuple(outputs),
        before=tuple(operator for operator in before if operator != "Identity"),
        batch=max(dims[0].dim_value, 0) or None,
    )


def _end(build: Builder, model: onnx.ModelProto, ends: Ends, output: str, tensor: str) -> tuple[OutputEnd, Step] | None:
    """What stands behind ``tensor`` up to an output, and the layer whose map it is.

    ``None`` if the hardware has to go on.
    """
    state = build.state
    floats = isinstance(state, Floats | Joined | Pending | Sums) or (isinstance(state, Reals) and state.steps)
    if build.source is None or floats:
        return None
    constants = state.node.input[1:] if isinstance(state, Reals) else ()
    tail = ends.behind(tensor, constants)
    if tail is None:
        return None
    name, dequantise = tensor, None
    if isinstance(state, Reals):  # pools behind DequantizeLinear were built in integers: it comes behind them
        name, dequantise = ends.unused(f"{tensor}_integers"), onnx.NodeProto()
        dequantise.CopyFrom(state.node)
        dequantise.input[0], dequantise.output[0] = name, tensor
    behind = [*([] if dequantise is None else [dequantise]), *tail.nodes]
    if behind:
        _label(build, behind[0])
    (source,) = data_inputs(model)
    batch = max(source.type.tensor_type.shape.dim[0].dim_value, 0)  # 0 where it is symbolic
    shape = build.view.shape
    end = OutputEnd(
        name=output,
        tensor=name,
        shape=shape,
        layout=_layout(build.view),
        behind=tuple(node.op_type for node in behind if node.op_type != "Identity"),
        tail=ends.cut(tail, name, build.map.type, (batch or "batch", *shape), dequantise) if behind else None,
    )
    return end, build.source


def _layout(view: View) -> Layout | None:
    """How a tensor lies on its map; ``None`` if in the map's order."""
    return None if view.in_order else view.layout


def _label(build: Builder, node: onnx.NodeProto) -> None:
    """Note the scale of the last integer tensor, if only the DequantizeLinear behind it says it."""
    if node.op_type == "DequantizeLinear" and build.map.scale is None:
        scale, zero = build.constants.scale_and_zero(node, 1, build.map.type.dtype)
        if scale.size == zero.size == 1:
            build.label(node, np.float32(scale.item()), int(zero.item()))


def _unfinished(build: Builder, where: str, output: str | None) -> ModelError:
    """The error of a model that ends where the hardware can't; ``output``: of several the one."""
    state = build.state
    if isinstance(state, Joined | Pending | Sums):
        return build.refusal(state.node, "gives floats; a QuantizeLinear must follow (quantise its output too)")
    if isinstance(state, Reals) and state.steps:
        return build.refusal(state.steps[-1], "gives floats; a QuantizeLinear must follow (quantise its output too)")
    before = "" if output is None else f" before output {output!r}"
    return ModelError(f"{where}: holds no layer to build{before}: no convolution, matrix product or pool")


def _max_pool(build: Builder, node: onnx.NodeProto) -> None:
    axes = build.spatial_axes(node)
    channels, height, width = build.view.sizes
    _, size = build.pool_window(node, (height, width), axes)
    build.view = View.channels_first((channels, *size), axes)
    state = build.state
    if isinstance(state, Joined | Sums):
        # Quantising keeps the order, so the pool may as well come after it.
        state.pools.append((node, axes))
        return
    if isinstance(state, Reals) and state.by_runtime and not build.function(state).rises:
        last = title(state.steps[-1])
        raise build.refusal(
            node, f"can't follow {last!r}, which doesn't keep the order, without a QuantizeLinear between"
        )
    refuse_falling(build, node)
    build.emit_pool(node, axes)


def _softmax(build: Builder, node: onnx.NodeProto) -> None:
    """Reached only where it can't run on the host."""
    state = build.state
    if isinstance(state, Joined | Sums) or (isinstance(state, Reals) and state.steps):
        raise build.refusal(node, "must take a quantised input; the hardware ends at the last integer tensor")
    if not build.steps:
        raise build.refusal(node, "comes before any layer: no convolution, matrix product or pool")
    raise build.refusal(node, "runs on the host; nothing can come behind it but operators without weights")


_OPERATORS: dict[str, Callable[[Builder, onnx.NodeProto], None]] = {
    **onnx_average.OPERATORS,
    **onnx_functions.OPERATORS,
    **onnx_affine.OPERATORS,
    **onnx_joins.OPERATORS,
    **onnx_moves.OPERATORS,
    **onnx_qdq.OPERATORS,
    **onnx_qoperator.OPERATORS,
    **onnx_resize.OPERATORS,
    "MaxPool": _max_pool,
    "QLinearSoftmax": _softmax,
    "Softmax": _softmax,
}
