"""ONNX import: a quantised model, as ONNX Runtime's quantiser writes it, becomes a Network.

The graph is walked node by node, from its input on; `hwgen.network.onnx.values` says what a value is on the way,
`hwgen.network.onnx.qdq`, `hwgen.network.onnx.qoperator` and their neighbours what each operator makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from hwgen.errors import ConfigError, ModelError
from hwgen.network.ends import Host
from hwgen.network.graph import INPUT, Network
from hwgen.network.onnx import average as onnx_average
from hwgen.network.onnx import joins as onnx_joins
from hwgen.network.onnx import qdq as onnx_qdq
from hwgen.network.onnx import qoperator as onnx_qoperator
from hwgen.network.onnx import resize as onnx_resize
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.check import check, needed
from hwgen.network.onnx.constants import ELEMENTS, NAMED, Constants
from hwgen.network.onnx.file import attribute, data_inputs, input_shape, title
from hwgen.network.onnx.host import Ends, may_run
from hwgen.network.onnx.joins import refuse_floats
from hwgen.network.onnx.values import Floats, Joined, Map, Pending, Reals, Sums, Value
from hwgen.network.ops import Op

_BEHIND_JOINS = {"Clip", "Flatten", "Identity", "QuantizeLinear", "Relu", "Reshape"}
"""What may follow a sum, a product or a concatenation of dequantised maps."""
_DOMAINS = {"", "ai.onnx", "com.microsoft"}


def to_network(model: onnx.ModelProto, name: str, where: str | None = None) -> Network:
    """The quantised ``model`` as a network called ``name``; ``where`` (a path) starts error messages."""
    where = where or name
    check(model, where)
    try:
        # Absurd scales overflow; what they lead to is checked where it matters.
        with np.errstate(all="ignore"):
            return _walk(model, name, where)
    except ConfigError as error:
        raise ModelError(f"{where}: {error}") from None


def _walk(model: onnx.ModelProto, name: str, where: str) -> Network:
    graph = model.graph
    if graph.sparse_initializer:
        initialiser = graph.sparse_initializer[0].values.name
        raise ModelError(f"{where}: initialiser {initialiser!r} is sparse; only dense ones are read")
    build = _begin(model, where)
    nodes = build.constants.fold(needed(graph))
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for tensor in node.input:
            consumers.setdefault(tensor, []).append(node)
    outputs = [value.name for value in graph.output]
    if len(outputs) != 1:
        raise ModelError(f"{where}: a model must have one output, not {len(outputs)} ({', '.join(outputs)})")
    tensor = data_inputs(model)[0].name
    ends = Ends(model)
    before: list[str] = []  # operators on the float input
    values = {tensor: _shared(build, consumers.get(tensor, []))}
    host = _host(build, model, ends, tensor, before)
    for node in nodes:
        operands = [values[name] for name in node.input if name in values]
        if host is not None or not operands:
            continue
        build.operands = operands
        build.enter(operands[0])
        if isinstance(build.state, Floats):
            before.append(node.op_type)
        _step(build, node)
        tensor = node.output[0]
        if (host := _host(build, model, ends, tensor, before)) is None:
            values[tensor] = _shared(build, consumers.get(tensor, []))
    if host is None:
        if outputs[0] not in values:
            raise ModelError(f"{where}: output {outputs[0]!r} does not depend on the input")
        build.enter(values[outputs[0]])
        raise _unfinished(build, where)
    return _network(build, name, host)


def _shared(build: Builder, readers: Sequence[onnx.NodeProto]) -> Value:
    """The current value, and whether several nodes take it."""
    refuse_floats(build, readers)
    build.shared |= len(readers) > 1
    return build.value


def _network(build: Builder, name: str, host: Host) -> Network:
    """The layers that the current value depends on."""
    used: set[int] = set()
    waiting = [build.source]
    while waiting:
        step = waiting.pop()
        if step is not None and id(step) not in used:
            used.add(id(step))
            waiting += step.sources
    layers: dict[int | None, Op] = {}
    edges = []
    for step in (step for step in build.steps if id(step) in used):
        sources = [None if source is None else id(source) for source in step.sources]
        maps = [
            layers[source].output if source in layers else given.frozen()
            for source, given in zip(sources, (step.input, *step.more), strict=True)
        ]
        layers[id(step)] = step.frozen(*maps)
        edges.append(tuple(layers[source].name if source in layers else INPUT for source in sources))
    network = Network(
        name=name, layers=tuple(layers.values()), edges=tuple(edges), warnings=tuple(build.warnings), host=host
    )
    return network.with_input_read_once()


def _begin(model: onnx.ModelProto, where: str) -> Builder:
    """A builder whose value is the model's input."""
    build = Builder(Constants(model, where))
    shape = input_shape(model, where)
    (source,) = data_inputs(model)
    channels, height, width = shape if len(shape) == 3 else (*shape, 1, 1)
    build.flat = len(shape) == 1
    batch = source.type.tensor_type.shape.dim[0].dim_value
    build.batch = batch if batch > 0 else None
    kind = source.type.tensor_type.elem_type
    if kind == TensorProto.FLOAT:
        build.state = Floats((channels, height, width))
    elif kind in ELEMENTS:
        build.map = Map(channels, height, width, ELEMENTS[kind])
    else:
        raise ModelError(
            f"{where}: input {source.name!r} must be float, {NAMED}, not {TensorProto.DataType.Name(kind).lower()}"
        )
    return build


def _step(build: Builder, node: onnx.NodeProto) -> None:
    operator = _OPERATORS.get(node.op_type)
    if operator is None or node.domain not in _DOMAINS:
        domain = f"{node.domain}." if node.domain else ""
        raise build.refusal(
            node,
            f"operator {domain}{node.op_type} is not supported; supported are "
            f"{', '.join(sorted(set(_OPERATORS) - {'Identity', 'QLinearAdd', 'QLinearSoftmax'}))}"
            + ("; the host runs it at the end, if no layer and no QuantizeLinear follows" if may_run(node) else ""),
        )
    if any(node.output[1:]):
        raise build.refusal(node, f"output {next(filter(None, node.output[1:]))!r} is not supported, only the first is")
    if isinstance(build.state, Floats) and node.op_type not in ("QuantizeLinear", "Identity", "Flatten", "Reshape"):
        raise build.refusal(node, "works on the float input; a QuantizeLinear must come first")
    if isinstance(build.state, Pending) and node.op_type not in ("QuantizeLinear", "Identity"):
        raise build.refusal(build.state.node, f"must be followed by a QuantizeLinear, not by {title(node)!r}")
    if isinstance(build.state, Joined) and node.op_type not in _BEHIND_JOINS:
        raise build.refusal(
            build.state.node,
            f"must be followed by a QuantizeLinear, perhaps behind Relu or Clip, not by {title(node)!r}",
        )
    operator(build, node)


def _host(build: Builder, model: onnx.ModelProto, ends: Ends, tensor: str, before: list[str]) -> Host | None:
    """The host's part of a model whose hardware ends at ``tensor``; ``None`` if the hardware has to go on."""
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
    dims = source.type.tensor_type.shape.dim
    batch = max(dims[0].dim_value, 0)  # 0 where it is symbolic
    here = build.map
    shape = (here.channels * here.height * here.width,) if build.flat else (here.channels, here.height, here.width)
    return Host(
        input=source.name,
        output=name,
        input_shape=tuple(dim.dim_value for dim in dims[1:]),
        output_shape=shape,
        before=tuple(operator for operator in before if operator != "Identity"),
        behind=tuple(node.op_type for node in behind if node.op_type != "Identity"),
        batch=batch or None,
        tail=ends.cut(tail, name, here.type.dtype, (batch or "batch", *shape), dequantise) if behind else None,
    )


def _label(build: Builder, node: onnx.NodeProto) -> None:
    """Note the scale of the last integer tensor, if only the DequantizeLinear behind it says it."""
    if node.op_type == "DequantizeLinear" and build.map.scale is None:
        scale, zero = build.constants.scale_and_zero(node, 1, build.map.type.dtype)
        if scale.size == zero.size == 1:
            build.label(node, np.float32(scale.item()), int(zero.item()))


def _unfinished(build: Builder, where: str) -> ModelError:
    """The error of a model that ends where the hardware can't."""
    state = build.state
    if isinstance(state, Joined | Pending | Sums):
        return build.refusal(state.node, "gives floats; a QuantizeLinear must follow (quantise its output too)")
    if isinstance(state, Reals) and state.steps:
        return build.refusal(state.steps[-1], "gives floats; a QuantizeLinear must follow (quantise its output too)")
    return ModelError(f"{where}: holds no layer to build: no convolution, matrix product or pool")


def _max_pool(build: Builder, node: onnx.NodeProto) -> None:
    if build.flat:
        raise build.refusal(node, "must come before Flatten")
    if isinstance(build.state, Sums):
        # Quantising keeps the order, so the pool may as well come after it.
        build.state.pools.append(node)
    else:
        build.emit_pool(node)


def _flatten(build: Builder, node: onnx.NodeProto) -> None:
    rank = 2 if build.flat else 4
    axis = int(attribute(node, "axis", 1))
    if axis % rank != 1:
        raise build.refusal(node, f"axis must be 1, not {axis}")
    build.flat = True
    build.leave_in_floats()


def _reshape(build: Builder, node: onnx.NodeProto) -> None:
    shape = build.constants.read(node, 1, "shape").tolist()
    size, batch = build.current_size(), build.batch or 1
    kept = attribute(node, "allowzero", 0) and shape[:1] == [0]
    if shape not in ([0, -1], [0, size], [-1, size], [batch, -1], [batch, size]) or kept:
        raise build.refusal(
            node, f"must flatten to ({build.batch or 'batch'}, {size}) by shape [0, -1] or [-1, {size}], not {shape}"
        )
    build.flat = True


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
    **onnx_joins.OPERATORS,
    **onnx_qdq.OPERATORS,
    **onnx_qoperator.OPERATORS,
    **onnx_resize.OPERATORS,
    "Flatten": _flatten,
    "Identity": lambda build, node: None,
    "MaxPool": _max_pool,
    "QLinearSoftmax": _softmax,
    "Reshape": _reshape,
    "Softmax": _softmax,
}
