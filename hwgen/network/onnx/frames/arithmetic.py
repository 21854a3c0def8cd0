"""Axis that holds a batch's frames after operators that compute: elementwise, along axes, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hwgen.network.onnx.file import attribute, opset, text
from hwgen.network.onnx.frames.operands import (
    HELP,
    MAX_AXES,
    FrameOperands,
    Frames,
    MixedError,
    Position,
    Rule,
    Special,
)
from hwgen.network.onnx.macs import einsum_terms
from hwgen.network.onnx.operator_traits import POINTWISE, TRAITS, Effect, with_effect

# Operators that align operands at the last dimension.


def _aligned(*indices: int) -> Rule:
    """Return a `Rule` that finds the batch's axis in the output of a node that broadcasts inputs ``indices`` (or all).

    Inputs are aligned at the last dimension; its other inputs must be constants.
    """

    def rule(operands: FrameOperands) -> Frames:
        return _broadcast(operands, [index for index in operands.present_inputs if not indices or index in indices])

    return rule


def _broadcast(operands: FrameOperands, indices: Sequence[int]) -> Frames:
    operands.check_constants(indices)
    holding = {index: position for index in indices if (position := operands.frames(index)) is not None}
    others = [index for index in indices if index not in holding]
    if len(holding) == 1 and not any(map(operands.rank, others)):
        for index in others:
            operands.check_constant(index)
        return next(iter(holding.values()))
    ranks = {index: operands.rank(index) for index in indices}
    rank = max(ranks.values())
    position = operands.common(replace(here, axis=here.axis + rank - ranks[index]) for index, here in holding.items())
    for index in others:
        operands.check_alike(index, position.axis - rank + ranks[index], position)
    return position


def _quantised(operands: FrameOperands) -> Frames:
    """Return the `Frames` (axis of the batch's frames) after a QuantizeLinear or DequantizeLinear: its input's."""
    operands.check_constants()
    position = operands.check_axes([])
    for index in operands.present_inputs[1:]:
        sizes = operands.shape(index)
        axis = attribute(operands.node, "axis", 1)
        axis += operands.rank(0) if axis < 0 else 0
        if len(sizes) == 1 and sizes != (1,) and axis == position.axis:
            operands.check_alike(index, 0, position)
        elif len(sizes) > 1:
            operands.check_alike(index, position.axis, position)
    return position


_ELEMENTWISE = _aligned()
"""Frame rule of operators that compute each value from the operands' values at the same position."""

# Operators that work along some axes of their first operand.


def _along(
    axes: Callable[[FrameOperands], Iterable[int]], then: Callable[[FrameOperands], Frames] | None = None
) -> Rule:
    """Return a `Rule` that finds the batch's axis in the output of a node that works along axes of its first input.

    Its other inputs must be constants.

    Parameters
    ----------
    axes : callable
        Axes along which the node combines, selects or reorders values.
    then : callable, optional
        Position of the frames after the node; by default it stays the same.
    """

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants()
        position = operands.check_axes(axes(operands))
        return position if then is None else then(operands)

    return rule


def _axis(default: int) -> Callable[[FrameOperands], list[int]]:
    return lambda operands: [attribute(operands.node, "axis", default)]


def _from(axis: int) -> Callable[[FrameOperands], Iterable[int]]:
    return lambda operands: range(axis, MAX_AXES)


def _softmax(operands: FrameOperands) -> Iterable[int]:
    """Return the axes that a Softmax-like node works along: one, or before opset 13 that one and all after it."""
    if attribute(operands.node, "opset", opset(operands.tensors.graph.model)) >= 13:
        return _axis(-1)(operands)
    (first,) = _axis(1)(operands)
    return range(first if first >= 0 else first + operands.rank(0), MAX_AXES)


def _normalised(operands: FrameOperands) -> Iterable[int]:
    """Return the axes that a LayerNormalization works along: the one its attribute states, and all after it."""
    (first,) = _axis(-1)(operands)
    return range(first, 0) if first < 0 else range(first, MAX_AXES)


def _reduced_axes(operands: FrameOperands) -> Iterable[int]:
    axes = operands.constant("axes", 1)
    return axes or ([] if attribute(operands.node, "noop_with_empty_axes", 0) else range(MAX_AXES))


def _reduction(axes: Callable[[FrameOperands], Iterable[int]]) -> Rule:
    """Return a `Rule` that finds the batch's axis after a node that reduces the axes that ``axes`` returns."""

    def then(operands: FrameOperands) -> Frames:
        position = operands.frames(0)
        assert position is not None
        if attribute(operands.node, "keepdims", 1):
            return position
        reduced = {*operands.nonnegative(axes(operands))}
        return replace(position, axis=position.axis - sum(axis < position.axis for axis in reduced))

    return _along(axes, then)


def _cumulated(operands: FrameOperands) -> Iterable[int]:
    return operands.constant("axis", 1) or []


def _of_rows(*indices: int) -> Rule:
    """Return a `Rule` that finds the batch's axis after a node whose inputs ``indices`` hold the frames on axis 0.

    An input without frames must have the same values for all frames.
    """
    return lambda operands: operands.shared(indices, range(1, MAX_AXES))


def _pooled(operands: FrameOperands) -> Frames:
    """Return the `Frames` (axis of the batch's frames) after a max pool; refuse its second output."""
    if len(operands.node.output) > 1 and operands.node.output[1]:
        raise MixedError(f"its second output counts in all frames; leave it out{HELP}")
    return operands.check_axes(range(2, MAX_AXES))


def _batch_normalised(operands: FrameOperands) -> Position | Sequence[Position]:
    if attribute(operands.node, "training_mode", 0):
        raise MixedError(f"takes the mean of all frames in its training mode; set training_mode to 0{HELP}")
    return _of_rows(0)(operands)


def _recurrent(operands: FrameOperands) -> list[Frames]:
    """Return a list of `Frames`: the frames' axis in each output of an RNN, GRU or LSTM with a batch axis."""
    first = 0 if attribute(operands.node, "layout", 0) else 1
    with_states = [index for index in (0, 4, 5, 6) if operands.name(index)]
    operands.check_constants(with_states)
    axes = {index: 0 if index == 4 else first for index in with_states}
    holding = {index: position for index in with_states if (position := operands.frames(index)) is not None}
    if 0 not in holding or any(position != Frames(axes[index]) for index, position in holding.items()):
        raise MixedError(f"must have the frames of a batch along axis {first} of its input; move them there{HELP}")
    for index in with_states:
        if index not in holding:
            operands.check_alike(index, axes[index], holding[0], whole=True)
    return [Frames(0)] * 3 if first == 0 else [Frames(2), Frames(1), Frames(1)]


def _reversed(operands: FrameOperands) -> Frames:
    batch_axis, time_axis = attribute(operands.node, "batch_axis", 1), attribute(operands.node, "time_axis", 0)
    position = operands.check_axes([time_axis])
    operands.check_constants()
    if position.axis == batch_axis:
        operands.check_alike(1, 0, position, whole=True)
    return position


def _compressed(operands: FrameOperands) -> Position | Sequence[Position]:
    """Return the axis of the batch's frames after a Compress, which selects as many values as its condition says."""
    if operands.frames(0) is None or operands.name(1) in operands.tensors.frames:
        return Special.RAGGED
    return _along(lambda _: [attribute(operands.node, "axis", None)] if _has_axis(operands) else range(MAX_AXES))(
        operands
    )


def _has_axis(operands: FrameOperands) -> bool:
    return attribute(operands.node, "axis", None) is not None


# Matrix products.


def _product(first: int, second: int) -> Rule:
    """Return a `Rule` that finds the batch's axis in the product of two matrices: inputs ``first`` and ``second``.

    Both are indices of inputs; other inputs must be constants. A node's ``transA`` and ``transB`` transpose matrices.
    """

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants([first, second])
        transposed = _transposed(operands, first, second)
        ranks = operands.rank(first), operands.rank(second)
        rank = max(*ranks, 2)
        summed = -2 if transposed[0] else -1, -1 if transposed[1] or ranks[1] == 1 else -2
        positions, alike = [], []
        for index, axis, kept, other in ((first, summed[0], -2, second), (second, summed[1], -1, first)):
            if operands.frames(index) is None:
                continue
            position = operands.check_axes([axis], index)
            from_end = position.axis - operands.rank(index)
            from_end = from_end if from_end < -2 else kept
            positions.append(replace(position, axis=rank + from_end))
            alike.append((other, from_end, positions[-1]))
        position = operands.common(positions)
        for other, from_end, here in alike:
            axis = operands.rank(other) + from_end
            if operands.frames(other) is None and from_end < -2:
                operands.check_alike(other, axis, here)
            elif operands.frames(other) is None:
                operands.check_constant(other)
            elif from_end >= -2:
                raise MixedError(f"multiplies frames by other frames; move them to an outer axis{HELP}")
        return _without_vectors(position, rank, ranks)

    return rule


def _transposed(operands: FrameOperands, first: int, second: int) -> tuple[bool, bool]:
    """Return, as a pair, two booleans: a matrix product transposes its input ``first``, and its input ``second``."""
    node = operands.node
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        raise MixedError(f"transposes the batch; use a Transpose{HELP}")
    first_is, second_is = bool(attribute(node, "transA", 0)), bool(attribute(node, "transB", 0))
    if (first_is or second_is) and min(operands.rank(first), operands.rank(second)) < 2:
        raise MixedError(f"transposes a vector; leave transA and transB out{HELP}")
    return first_is, second_is


def _without_vectors(position: Frames, rank: int, ranks: tuple[int, int]) -> Frames:
    """Return the frames' axis after a product, whose result lacks a dimension for each operand that is a vector."""
    dropped = [rank - 2] * (ranks[0] == 1) + [rank - 1] * (ranks[1] == 1)
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in dropped))


def _general_product(first: int, second: int, *, addend: int) -> Rule:
    """Return a `Rule` that finds the batch's axis in the output of a Gemm or QGemm with these indices of its inputs."""

    def rule(operands: FrameOperands) -> Frames:
        operands.check_constants([first, second, addend])
        turned = attribute(operands.node, "transA", 0), attribute(operands.node, "transB", 0)
        positions = []
        if operands.frames(first) is not None:
            positions.append(replace(operands.check_axes([0 if turned[0] else 1], first), axis=0))
        if operands.frames(second) is not None:
            positions.append(replace(operands.check_axes([1 if turned[1] else 0], second), axis=1))
        if len(positions) == 1:
            operands.check_constant(second if operands.frames(first) else first)
        if operands.name(addend):
            gap = 2 - operands.rank(addend)
            if (here := operands.frames(addend)) is not None:
                positions.append(replace(here, axis=here.axis + gap))
                operands.common(positions)
            else:
                operands.check_alike(addend, operands.common(positions).axis - gap, positions[0])
        return operands.common(positions)

    return rule


def _einsum(operands: FrameOperands) -> Frames:
    """Return the `Frames` (axis of the batch's frames) after an Einsum with one letter for them in all operands."""
    equation = text(operands.node, "equation", "")
    terms, right = einsum_terms(equation, operands.rank)
    positions = []
    for index, term in enumerate(terms):
        if len(term) != operands.rank(index):
            letters = f"{len(term)} letters for input {index + 1} of {operands.rank(index)} dimensions"
            raise MixedError(f"its equation {equation!r} has {letters}; give a letter for each")
        if (here := operands.frames(index)) is not None:
            letter = term[here.axis]
            if letter not in right or term.count(letter) > 1:
                raise MixedError(f"works along {letter!r} of {equation!r}, which holds the frames; keep it{HELP}")
            positions.append(replace(here, axis=right.index(letter)))
    position = operands.common(positions)
    letter = right[position.axis]
    for index, term in enumerate(terms):
        here = operands.frames(index)
        if here is None and letter in term:
            operands.check_alike(index, term.index(letter), position)
        elif here is None:
            operands.check_constant(index)
        elif term[here.axis] != letter or term.count(letter) > 1:
            raise MixedError(f"multiplies frames by other frames in {equation!r}; give them one letter{HELP}")
    return position


RULES: Mapping[str, Rule] = {
    **{
        name: _aligned(*traits.operands) if traits.operands else _ELEMENTWISE
        for name, traits in TRAITS.items()
        if traits.effect in (*POINTWISE, Effect.SAME)
    },
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantised),
    **dict.fromkeys((*with_effect(Effect.SOFTMAX), "Hardmax"), _along(_softmax)),
    **dict.fromkeys(with_effect(Effect.REDUCTION), _reduction(_reduced_axes)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _along(_normalised)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduction(_axis(0))),
    **dict.fromkeys(("LpNormalization", "TopK"), _along(_axis(-1))),
    "Split": _along(_axis(0)),
    "CumSum": _along(_cumulated),
    "CumProd": _along(_cumulated),
    **dict.fromkeys(("Det", "Trilu"), _along(lambda operands: [-1, -2])),
    "MeanVarianceNormalization": _along(lambda operands: attribute(operands.node, "axes", [0, 2, 3])),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool"), _along(_from(2))),
    "MaxPool": _pooled,
    "BatchNormalization": _batch_normalised,
    **dict.fromkeys(
        (
            *("Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace", "GroupNormalization"),
            *("InstanceNormalization", "LRN", "QLinearAveragePool", "QLinearConv", "QLinearGlobalAveragePool"),
            "SpaceToDepth",
        ),
        _of_rows(0),
    ),
    "FusedConv": _of_rows(0, 3),
    "DeformConv": _of_rows(0, 2, 4),
    "GridSample": _of_rows(0, 1),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "ReverseSequence": _reversed,
    "Compress": _compressed,
    **dict.fromkeys(("FusedMatMul", "MatMul", "MatMulInteger"), _product(0, 1)),
    "QLinearMatMul": _product(0, 3),
    **dict.fromkeys(("FusedGemm", "Gemm"), _general_product(0, 1, addend=2)),
    "QGemm": _general_product(0, 3, addend=6),
    "Einsum": _einsum,
}
"""Dictionary of rules for the axis of a batch's frames after operators that compute, by ONNX operator."""


def is_elementwise(operator: str) -> bool:
    """Return whether an ONNX operator computes each value from the values at the same position of all operands."""
    return RULES.get(operator) is _ELEMENTWISE
