"""Import of ONNX nodes: the function that imports each operator, and which operators can follow each other."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from hwgen.network.onnx import (
    average,
    dimensions,
    float_operators,
    functions,
    joins,
    lrn_thresholds,
    qdq,
    resize,
    select,
    transposed,
)
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import DOMAINS, title
from hwgen.network.onnx.functions import note_step, refuse_pool_of_arithmetic, step_of
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.tail import may_run
from hwgen.network.onnx.values import AccumulatorState, Floats, Joined, Pending, Reals
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.onnx.windows import WHOLE_MAPS

_AFTER_JOINS = {"Clip", "MaxPool", "QuantizeLinear", "Relu", *WHOLE_MAPS, *dimensions.MOVES}
"""Set of names of ONNX operators that can follow an operator on several dequantised maps before its QuantizeLinear.

They can also follow a pool after a function of one map.
"""
_SPATIAL = with_effect(Effect.CONVOLUTION, Effect.POOL, Effect.GLOBAL_POOL, Effect.RESIZE) | {
    *("DepthToSpace", "LRN", "Pad", "ReduceMax", "ReduceMean", "ReduceSum", "Slice", "SpaceToDepth"),
}
"""Set of names of ONNX operators whose input must have channels, rows and columns."""
_ON_ROWS = with_effect(Effect.FUNCTION, Effect.ARITHMETIC, Effect.PRODUCT, Effect.QUANTISER) | {
    *("BatchNormalization", "Clip", "Relu", *dimensions.MOVES),
}
"""Set of names of ONNX operators that can take a tensor whose first dimension holds the batch together with other
dimensions."""
_SEVERAL = {"Split"}
"""Set of names of the ONNX operators that may have several outputs."""


def importer_of(build: Builder, node: onnx.NodeProto) -> Callable[[Builder, onnx.NodeProto], None]:
    """Return the function that imports a node's operator into a builder, or refuse the node if there is none.

    Raises
    ------
    ModelError
        If hwgen doesn't know the operator, or the node has outputs that are not supported.
    """
    operator = OPERATORS.get(node.op_type)
    if operator is None or node.domain not in DOMAINS:
        domain = f"{node.domain}." if node.domain else ""
        error = build.refusal(
            node,
            f"operator {domain}{node.op_type} is not supported; supported are "
            f"{', '.join(sorted(set(OPERATORS) - {'Identity', 'QLinearAdd', 'QLinearSoftmax', 'ReduceMean'}))}"
            + ("; the host runs it at the end, if no layer and no QuantizeLinear follows" if may_run(node) else ""),
        )
        error.unknown = True
        raise error
    if any(node.output[1:]) and node.op_type not in _SEVERAL:
        raise build.refusal(node, f"output {next(filter(None, node.output[1:]))!r} is not supported, only the first is")
    return operator


def apply(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX node: replace the builder's current value, the node's input, by the node's output.

    If no integer layer computes the node as ONNX Runtime does, it is computed in fixed point.

    Raises
    ------
    ModelError
        If the node can't be built.
    """
    importer_of(build, node)
    if build.view.holds_batch and node.op_type not in _ON_ROWS:
        raise build.refusal(node, f"takes {build.view}; a Reshape must give the batch a dimension of its own before it")
    if float_operators.is_float(build):
        float_operators.apply(build, node, _apply)
        return
    state = build.state
    # Only a join can have floats that its own layer does not quantise as ONNX Runtime does.
    is_layer = node.op_type == "QuantizeLinear" and not (isinstance(state, Joined) and not state.sums)
    try:
        _apply(build, node)
    except RefusalError as error:
        if is_layer:
            raise
        build.enter(build.operands[0])
        count = len(build.steps)
        try:
            float_operators.apply(build, node, _apply)
        except RefusalError:
            build.remove_layers_from(count)
            raise error from None


def _apply(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX node as `apply` does, but only with integer layers that compute what ONNX Runtime computes."""
    operator = OPERATORS[node.op_type]
    if isinstance(build.state, Floats) and node.op_type not in ("QuantizeLinear", *dimensions.MOVES):
        raise build.refusal(node, "works on the float input; a QuantizeLinear must come first")
    if isinstance(build.state, Pending) and node.op_type not in _after_pending(build.state):
        raise build.refusal(build.state.node, f"must be followed by a QuantizeLinear, not by {title(node)!r}")
    if isinstance(build.state, Joined) and node.op_type not in _AFTER_JOINS:
        build.state = average.as_sums(build.state) or build.state
    if isinstance(build.state, Joined) and node.op_type not in _AFTER_JOINS:
        raise build.refusal(
            build.state.node,
            f"must be followed by a QuantizeLinear, perhaps after Relu or Clip, not by {title(node)!r}",
        )
    state = build.state
    if isinstance(state, Reals) and state.pools and node.op_type not in _AFTER_JOINS:
        pool, last = title(state.pools[-1][0]), title(state.steps[-1])
        raise build.refusal(
            node,
            f"can't follow {pool!r}, as {last!r} before it doesn't keep the order of integers; a QuantizeLinear and a "
            "DequantizeLinear between them would help",
        )
    steps, step = (len(state.steps), step_of(build, node)) if isinstance(state, Reals) else (0, None)
    if node.op_type in _SPATIAL:
        select.open_blocks(build, node)
    operator(build, node)
    note_step(build, steps, step)


def _after_pending(state: Pending) -> frozenset[str]:
    """Return a set of names of the ONNX operators that can follow a layer that still waits for its QuantizeLinear."""
    moves = dimensions.INTEGER_MOVES if state.in_floats is None else frozenset(dimensions.MOVES)
    return moves | {"QuantizeLinear"}


def _max_pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX MaxPool as a max pool layer, perhaps after the next QuantizeLinear."""
    axes = build.spatial_axes(node)
    channels, height, width = build.view.sizes
    _, size = build.pool_window(node, (height, width), axes)
    build.view = View.channels_first((channels, *size), axes)
    _emit_or_follow(build, node, axes)


def _emit_or_follow(build: Builder, node: onnx.NodeProto, axes: tuple[int, ...]) -> None:
    """Append a max pool layer, or note the pool if the layer must follow the next QuantizeLinear."""
    state = build.state
    refuse_pool_of_arithmetic(build, node)
    if isinstance(state, Joined | AccumulatorState) or (isinstance(state, Reals) and _may_fall(build, state)):
        # Quantising keeps the order, so the pool can follow it.
        state.pools.append((node, axes))
        build.note_moved_quantisers(node)
        return
    build.emit_pool(node, axes)


def _whole_max(build: Builder, node: onnx.NodeProto) -> None:
    """Import a GlobalMaxPool, or a ReduceMax over all pixels, as a max pool whose window is the whole map."""
    build.view = build.whole_maps(node)
    _emit_or_follow(build, node, (ROWS, COLUMNS))


def _may_fall(build: Builder, state: Reals) -> bool:
    """Return whether the function after a DequantizeLinear may map a larger integer to a smaller value.

    An example is the last bits of a Sigmoid.
    """
    return bool(state.pools) or (state.by_runtime and not build.function(state).rises)


def _softmax(build: Builder, node: onnx.NodeProto) -> None:
    """Refuse an ONNX Softmax that the host can't run, because it is not at the model's end."""
    state = build.state
    if isinstance(state, Joined | AccumulatorState) or (isinstance(state, Reals) and state.steps):
        raise build.refusal(node, "must take a quantised input; the hardware ends at the last integer tensor")
    if not build.steps:
        raise build.refusal(node, "no layer (convolution, matrix product or pool) comes before it")
    raise build.refusal(node, "runs on the host; only operators without weights can follow it")


OPERATORS: dict[str, Callable[[Builder, onnx.NodeProto], None]] = {
    **average.OPERATORS,
    **select.OPERATORS,
    **functions.OPERATORS,
    **joins.OPERATORS,
    **lrn_thresholds.OPERATORS,
    **dimensions.OPERATORS,
    **qdq.OPERATORS,
    **resize.OPERATORS,
    **transposed.OPERATORS,
    **dict.fromkeys(WHOLE_MAPS, _whole_max),
    **dict.fromkeys(qdq.ON_INTEGERS, lambda build, node: qdq.between_quantisers(build, node, _apply)),
    "MaxPool": _max_pool,
    "QLinearSoftmax": _softmax,
    "Softmax": _softmax,
}
"""Dictionary of functions that import an ONNX node into a builder, by the ONNX operator's name."""
