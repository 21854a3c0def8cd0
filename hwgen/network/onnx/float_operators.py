"""Import of float operators between a convolution and the next quantiser that no integer layer computes exactly.

If a model has quantisers only before convolutions, ONNX Runtime computes these operators in float32. The hardware
computes them in fixed point. A convolution whose floats are used outputs a map of integers of up to 32 bits, in steps
of a power of two. Pointwise operators on such maps, and on quantised ones, are an expression, which becomes one layer
at the next QuantizeLinear. It also becomes a layer, with a fixed-point map as output, if several nodes read the floats,
or an operator moves or pools pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from hwgen.network.float32 import Label
from hwgen.network.maps import INT32, IntegerType, Requantisation, signed_bits
from hwgen.network.onnx.average import as_sums, covers, geometry_of, refuse_uncounted
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import Quantisation
from hwgen.network.onnx.dimensions import MOVES
from hwgen.network.onnx.fixed_program import JOINING, RULES, FixedPointProgram, is_pixel, leaves, split_unit
from hwgen.network.onnx.functions import AFFINE, affine_of, expression_of, settled
from hwgen.network.onnx.joins import check_sizes, concatenated
from hwgen.network.onnx.ledger import RefusalError
from hwgen.network.onnx.qdq import bounds_of
from hwgen.network.onnx.values import (
    AccumulatorState,
    Applied,
    ConstantOperand,
    Expression,
    Integers,
    Joined,
    Leaf,
    Map,
    Reals,
    Value,
    Wide,
    steps_in_order,
)
from hwgen.network.onnx.windows import WHOLE_MAPS
from hwgen.network.ops import Concat, FixedPoint, GlobalAveragePool, SumPool
from hwgen.network.ops.conv import channel_sums
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.rescale import quotient, rule_of

_AVERAGES = {"AveragePool", "GlobalAveragePool", "ReduceMean"}
"""Set of names of ONNX operators that average pixels, built as pools of fixed-point numbers."""
_OF_MAPS = {
    *_AVERAGES,
    *WHOLE_MAPS,
    *("Concat", "DepthToSpace", "Gather", "MaxPool", "Pad", "Resize", "Slice", "SpaceToDepth", "Split", "Upsample"),
}
"""Set of names of ONNX operators that move, pool or join pixels or channels, so that their inputs must be layers' maps.
"""
_CLOSE = 0.25
"""Maximum accepted rounding error of a convolution's bias, in steps of the fixed-point numbers that it outputs."""
_EXACT_SUMS = 1 << 24
"""Limit of exact sums in float32, which holds all integers up to 2**24."""

Import = Callable[[Builder, onnx.NodeProto], None]
"""Type of functions that import an ONNX node into a builder."""


def is_float(build: Builder) -> bool:
    """Return whether the builder's current node reads a value that the hardware holds, or will hold, in fixed point."""
    return any(isinstance(value.state, Expression | Wide) for value in build.operands)


def apply(build: Builder, node: onnx.NodeProto, ordinary: Import) -> None:
    """Import a node whose float inputs the hardware holds, or will hold, in fixed point.

    ``ordinary``: import of the node's operator on a map.

    Raises
    ------
    RefusalError
        If the node can't be computed in fixed point.
    """
    names = [name for name in node.input if name and not build.constants.holds(name)]
    if node.op_type == "QuantizeLinear":
        _quantise(build, node)
    elif node.op_type in MOVES:
        ordinary(build, node)
    elif node.op_type in RULES:
        _extend(build, node, names)
    elif node.op_type in _OF_MAPS:
        held = []
        for value, name in zip(build.operands, names, strict=True):
            build.enter(value)
            hold(build, node, name)
            held.append(build.value)
        build.operands = held
        build.enter(held[0])
        rule = _concat if node.op_type == "Concat" else _average if node.op_type in _AVERAGES else ordinary
        rule(build, node)
    else:
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear), but it gets floats")


def hold(build: Builder, node: onnx.NodeProto, tensor: str, scale: np.float32 | None = None) -> None:
    """Append layers until a map holds the builder's current value, the model's ``tensor``, in fixed point.

    Parameters
    ----------
    node : NodeProto
        Node that reads or computes the tensor, for messages.
    scale : float32, optional
        Scale that the map must have.
    """
    formula = _formula(build, node, tensor)
    if not isinstance(build.state, Wide) or scale not in (None, build.state.scale):
        source = formula.node if isinstance(formula, Applied) else node
        wanted = _unit(build, node, tensor) if scale is None else float(scale)
        _emit_wide(build, _naming_node(build, source), formula, wanted, exactly=scale is not None)


def _unit(build: Builder, node: onnx.NodeProto, tensor: str) -> float:
    """Return the maximum step (LSB) of fixed-point numbers that may replace a float tensor, or refuse its reader."""
    if tensor not in build.units:
        raise build.refusal(
            node, "takes floats of an operator that can't be built; put a QuantizeLinear before that operator"
        )
    return build.units[tensor]


def _naming_node(build: Builder, node: onnx.NodeProto) -> onnx.NodeProto:
    """Return the ONNX node whose name the layer of the builder's current value will have."""
    return build.state.node if isinstance(build.state, Expression | Joined) else node


def _formula(build: Builder, node: onnx.NodeProto, tensor: str) -> Applied | Leaf:
    """Return the current value, the model's ``tensor``, as an expression of maps: an `Applied` or a `Leaf`.

    Layers are appended if the value is floats of a convolution, or pools follow.
    """
    state = build.state
    if isinstance(state, Expression):
        return state.formula
    if isinstance(state, Joined):
        state = as_sums(state) or state
    if isinstance(state, AccumulatorState):
        _emit_sums(build, state, _unit(build, node, tensor))
    elif isinstance(state, Joined) and state.operands:
        formula = _join_result(build, state)
        if not state.pools:
            return formula
        _emit_wide(build, state.node, formula, _unit(build, node, tensor))
        build.emit_pools(state.pools)
    elif isinstance(state, Reals) and not isinstance(state, Wide):
        formula = _dequantised(build, node, state)
        if not state.pools:
            return formula
        _emit_wide(build, state.steps[-1], formula, _unit(build, node, tensor))
        build.emit_pools(state.pools)
    if not isinstance(build.state, Wide):
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear)")
    return Leaf(build.value)


def _join_result(build: Builder, state: Joined) -> Applied:
    """Return an `Applied` expression: an operator on several dequantised maps, with the Relus and Clips after it."""
    operands = []
    for value in state.operands:
        assert isinstance(value.state, Reals)
        build.enter(value)
        operands.append(_dequantised(build, state.node, value.state))
    build.enter(state.operands[0])
    formula = Applied(state.node, tuple(operands))
    for low, high in state.bounds:
        ends = (ConstantOperand(np.array(end, np.float32)) for end in (low, high))
        formula = Applied(helper.make_node("Clip", ["", "", ""], [state.node.output[0]]), (formula, *ends))
    return formula


def _dequantised(build: Builder, node: onnx.NodeProto, state: Reals) -> Leaf:
    """Return a `Leaf`: a dequantised map, with a table of the function applied to it, as a leaf of an expression."""
    integer_type = build.map.frozen().type
    if state.for_sums or integer_type.bits > MAX_BITS:
        raise build.refusal(
            node, f"its input must have at most {MAX_BITS} bits for a table of all values, not {integer_type}"
        )
    here = build.map
    low, high = build.range()
    reals = build.function(state).reals() if state.by_runtime else build.table(state)
    integers = np.arange(integer_type.minimum, integer_type.maximum + 1)
    table = reals[:, np.clip(integers, low, high) - low]
    if not np.isfinite(table).all():
        raise build.refusal(node, f"takes NaN or infinity for some integers of {here.type}")
    return Leaf(replace(build.value, state=Reals(state.node, state.scale, state.zero, "")), table)


# Layers.


def _emit_sums(build: Builder, state: AccumulatorState, step: float) -> None:
    """Append a convolution whose outputs are its sums as fixed-point numbers, and the max pools after it."""
    if state.chosen is not None:
        raise build.refusal(state.node, "must be quantised after Less and Where")
    unit = state.unit
    is_exact = state.affine is None and not state.residue.any() and bool((np.frexp(unit)[0] == 0.5).all())
    if is_exact:
        step = min(step, float(unit.min())) if math.frexp(step)[0] == 0.5 else step
    state = replace(state, rounded=False, first=None)
    while True:
        scale = np.float32(step)
        sums = settled(build, state, scale, _CLOSE)
        low, high, largest = _interval(build, sums, scale)
        bits = signed_bits(low, high)
        if bits <= INT32.bits:
            break
        step *= 2.0 ** (bits - INT32.bits)
    noted = len(build.float_layers)
    build.requantise_sums(sums, Quantisation(scale, 0, IntegerType(bits=max(bits, 2), signed=True)))
    del build.float_layers[noted:]  # the difference counts in steps of the next quantiser
    is_exact = is_exact and largest < _EXACT_SUMS and math.frexp(step)[0] == 0.5 and bool((unit >= step).all())
    build.state = Wide(state.node, scale, 0, "", in_floats=True, exact=is_exact)


def _interval(build: Builder, sums: AccumulatorState, scale: np.float32) -> tuple[int, int, int]:
    """Return a triple: lowest and highest sum of a convolution in steps of ``scale``, largest accumulator magnitude."""
    lowest, highest = build.range()
    zero = build.map.zero_point or 0
    below, above = min(lowest - zero, 0), max(highest - zero, 0)
    positive = channel_sums(sums.weights, lambda weights: np.maximum(weights, 0))
    negative = channel_sums(sums.weights, lambda weights: np.minimum(weights, 0))
    bias = np.ldexp(sums.bias.astype(np.float64), -sums.fraction)
    ends = np.stack((positive * below + negative * above + bias, positive * above + negative * below + bias))
    factor = sums.x_scale * sums.w_scale / scale if sums.factor is None else sums.factor
    if not np.isfinite(factor).all():
        raise build.refusal(sums.node, "x_scale * w_scale overflows float32; quantise the model with smaller scales")
    reals = np.clip(ends * factor.astype(np.float64), sums.low / scale, sums.high / scale)
    return math.floor(reals.min()) - 1, math.ceil(reals.max()) + 1, int(np.abs(ends).max())


def _emit_wide(
    build: Builder, node: onnx.NodeProto, formula: Applied | Leaf, unit: float, *, exactly: bool = False
) -> None:
    """Append a layer that computes an expression and keeps its output in fixed point.

    ``exactly``: whether its steps must be ``unit``, and not larger.
    """
    program = _program(build, formula, unit, exact=_is_exact(formula))
    value, (mantissa, fraction) = program.result, split_unit(unit)
    if exactly:
        value = program.scaled(value, np.ones(1), mantissa)
    if exactly or value.fraction > fraction:
        value = program.shifted(value, fraction)
    bits = signed_bits(value.low, value.high)
    if bits > INT32.bits:
        if exactly:
            raise build.refusal(node, f"needs {bits} bits in fixed point; 32 are supported")
        _emit_wide(build, node, formula, unit * 2.0 ** (bits - INT32.bits))
        return
    exact = program.is_exact and value is program.result
    scale = np.float32(value.unit)
    here = build.map
    output = Map(here.channels, here.height, here.width, IntegerType(bits=max(bits, 2), signed=True), 0, scale)
    _emit(build, node, formula, program, output, None)
    build.state = Wide(node, scale, 0, "", in_floats=True, exact=exact)


def _is_exact(formula: Applied | Leaf) -> bool:
    """Return whether all feature maps that an expression reads hold exactly the model's floats."""
    states = [leaf.value.state for leaf in leaves(formula)]
    return all(
        isinstance(state, Reals) and np.frexp(state.scale)[0] == 0.5 and getattr(state, "exact", True)
        for state in states
    )


def _program(build: Builder, formula: Applied | Leaf, unit: float, *, exact: bool) -> FixedPointProgram:
    """Return the `FixedPointProgram` of an expression: an exact one if asked for and possible, or a rounding one."""
    if exact:
        try:
            return FixedPointProgram(build.constants, formula, build.units, unit, is_exact=True)
        except RefusalError:  # too wide, or a function
            pass
    return FixedPointProgram(build.constants, formula, build.units, unit)


def _emit(
    build: Builder,
    node: onnx.NodeProto,
    formula: Applied | Leaf,
    program: FixedPointProgram,
    output: Map,
    rule: Requantisation | None,
) -> None:
    """Append the layer that runs a fixed-point program, and note the ONNX nodes that it computes."""
    build.emit_join(node, FixedPoint, program.inputs, output, steps=tuple(program.steps), requantisation=rule)
    layer = build.steps[-1].name
    build.absorbed |= {
        id(step.node): layer for step in steps_in_order(formula if isinstance(formula, Applied) else None)
    }


def _quantise(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QuantizeLinear of floats in fixed point: append one layer for the expression before it."""
    scale, zero, integer_type = build.constants.per_tensor(node, 1, np.dtype(np.uint8))
    namer = _naming_node(build, node)
    formula = _formula(build, node, node.input[0])
    unit = _unit(build, node, node.input[0])
    exact = _is_exact(formula) and np.frexp(scale)[0] == 0.5
    program = _program(build, formula, unit, exact=bool(exact))
    value, here = program.result, build.map
    bound = max(abs(value.low), abs(value.high))
    factor = np.full(here.channels, value.unit / float(scale), np.float32)
    # One product with a constant is rounded to float32, too.
    rule = rule_of(factor, bound, integer_type.ends, zero, float32=program.is_exact and program.products > 0)
    output = Map(here.channels, here.height, here.width, integer_type, zero, scale)
    _emit(build, namer, formula, program, output, rule)
    build.state = Integers()


# Operators.


def _extend(build: Builder, node: onnx.NodeProto, names: Sequence[str]) -> None:
    """Import a pointwise operator: extend the expression of its operands, which becomes the builder's current value.

    ``names``: tensors of the operands that are not constants.
    """
    if len(names) > 1 and node.op_type not in JOINING:
        raise build.refusal(node, f"must take one feature map and constants, not {len(names)} feature maps")
    values = []
    for value, name in zip(build.operands, names, strict=True):
        build.enter(value)
        formula = _formula(build, node, name)
        values.append(replace(build.value, state=Expression(_naming_node(build, node), formula)))
    values = _with_one_pixel(build, node, values, names)
    whole = [value for value in values if not is_pixel(value)] or values
    check_sizes(build, node, sorted(values, key=is_pixel), channels=True, spread=len(whole) < len(values), wide=True)
    build.enter(whole[0])
    if node.op_type in AFFINE and len(values) == 1:
        affine_of(build, node, build.view.sizes[0])  # raises an error if constants make no numbers
    if node.op_type == "Clip":
        bounds_of(build, node)  # raises an error if they are not numbers
    first = whole[0].state.node if len(values) == 1 and isinstance(whole[0].state, Expression) else node
    build.state = Expression(first, expression_of(build, node, map(_formula_of, values)))


def _formula_of(value: Value) -> Applied | Leaf:
    """Return the expression, an `Applied` or a `Leaf`, that a value's state holds."""
    assert isinstance(value.state, Expression)
    return value.state.formula


def _with_one_pixel(build: Builder, node: onnx.NodeProto, values: Sequence[Value], names: Sequence[str]) -> list[Value]:
    """Return ``values`` as a list, some of them computed by new layers, so that all read at most one one-pixel map.

    Other expressions of one pixel, or that read a one-pixel map, become maps.
    """

    def held(value: Value, name: str) -> Value:
        build.enter(value)
        hold(build, node, name)
        return replace(build.value, state=Expression(node, Leaf(build.value)))

    def pixels(value: Value) -> set[int]:
        return {id(leaf.value.map) for leaf in leaves(_formula_of(value)) if is_pixel(leaf.value)}

    if all(map(is_pixel, values)):
        return list(values)
    pairs = [*zip(values, names, strict=True)]
    flat = [
        held(value, name) if is_pixel(value) and isinstance(_formula_of(value), Applied) else value
        for value, name in pairs
    ]
    if len(set().union(*map(pixels, flat))) > 1:
        pairs = zip(flat, names, strict=True)
        flat = [held(value, name) if not is_pixel(value) and pixels(value) else value for value, name in pairs]
    return flat


def _concat(build: Builder, node: onnx.NodeProto) -> None:
    """Import a Concat of fixed-point maps: append a layer that concatenates them, after equalising their steps."""
    view = concatenated(build, node, build.operands, wide=True)
    held, names = build.operands, [*node.input]
    scale = max(value.state.scale for value in held if isinstance(value.state, Wide))
    operands = []
    for value, name in zip(held, names, strict=True):
        key = id(value.map), float(scale)  # several concatenations can read a map in the same steps
        if key not in build.aligned:
            build.enter(value)
            hold(build, node, name, scale)
            build.aligned[key] = build.value
        operands.append(build.aligned[key])
    here = operands[0].map
    bits = max(value.map.type.bits for value in operands)
    output = Map(view.sizes[0], here.height, here.width, IntegerType(bits=bits, signed=True), 0, scale)
    for value in operands:
        build.enter(value)
        for widened in build.maps_of_one_type():
            widened.type = output.type
    low, high = output.type.ends
    labels = (Label(float(scale), 0),) * (len(operands) + 1)
    build.emit_join(node, Concat, operands, output, labels=labels, low=low, high=high)
    exact = all(isinstance(value.state, Wide) and value.state.exact for value in operands)
    build.view, build.state = view, Wide(node, scale, 0, "", in_floats=True, exact=exact)


def _average(build: Builder, node: onnx.NodeProto) -> None:
    """Import an average of fixed-point numbers as a layer that pools them."""
    here, state = build.map, build.state
    geometry = geometry_of(build, node)
    refuse_uncounted(build, node, geometry)
    window = geometry.window
    output = here.sized(here.channels, *geometry.size)
    kind = GlobalAveragePool if covers(build, window) else SumPool
    build.emit(node, kind, window, output, requantisation=quotient(here, window.taps))
    build.state = replace(state, node=node, exact=False)
