"""Table of the ONNX operators that are known to compute each frame of a batch by itself, and of their conditions.

A rule returns the position of the frames in a node's outputs, one for all of them or one for each. It refuses a node
that mixes frames. An operator that the table lacks is refused, too. A further operator is one more entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from hwgen.network.onnx.file import attribute, text
from hwgen.network.onnx.frame_operands import COUNTED, HELP, Frames, MixedError, OneFrameError, Operands, Special

Position = Frames | Special
Rule = Callable[[Operands], Position | Sequence[Position]]
_MOST_AXES = 64
"""More than the number of dimensions of any tensor."""
_MOST_VALUES = (1 << 31) - 1
"""Size of the frames' axis that a Slice with constant ends must keep whole: exporters write this end for "all"."""


# Operators that align all operands at the last dimension.


def _aligned(*indices: int) -> Rule:
    """Return the rule of an operator that aligns the inputs ``indices``, or all, at the last dimension.

    Its other inputs must be constants.
    """

    def rule(operands: Operands) -> Frames:
        return _broadcast(operands, [index for index in operands.present_inputs if not indices or index in indices])

    return rule


def _broadcast(operands: Operands, indices: Sequence[int]) -> Frames:
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


def _quantised(operands: Operands) -> Frames:
    """Return the position of the frames behind a QuantizeLinear or DequantizeLinear: that in its first input."""
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


# Operators that work along some axes of their first operand.


def _along(axes: Callable[[Operands], Iterable[int]], then: Callable[[Operands], Frames] | None = None) -> Rule:
    """Return the rule of an operator that works along axes of its first input, and takes constants beside it.

    Parameters
    ----------
    axes : callable
        Axes along which the node combines, selects or reorders values.
    then : callable, optional
        Position of the frames behind the node; by default that in front of it.
    """

    def rule(operands: Operands) -> Frames:
        operands.check_constants()
        position = operands.check_axes(axes(operands))
        return position if then is None else then(operands)

    return rule


def _axis(default: int) -> Callable[[Operands], list[int]]:
    return lambda operands: [attribute(operands.node, "axis", default)]


def _from(axis: int) -> Callable[[Operands], Iterable[int]]:
    return lambda operands: range(axis, _MOST_AXES)


def _softmax(operands: Operands) -> Iterable[int]:
    """Return the axis of an operator of the Softmax family: one, or all from it on before version 13."""
    opset = attribute(operands.node, "opset", operands.tensors.opset)
    if opset >= 13:
        return _axis(-1)(operands)
    (first,) = _axis(1)(operands)
    return range(first if first >= 0 else first + operands.rank(0), _MOST_AXES)


def _normalised(operands: Operands) -> Iterable[int]:
    """Return the axes of a LayerNormalization: all from its attribute on."""
    (first,) = _axis(-1)(operands)
    return range(first, 0) if first < 0 else range(first, _MOST_AXES)


def _reduced_axes(operands: Operands) -> Iterable[int]:
    axes = operands.constant("axes", 1)
    return axes or ([] if attribute(operands.node, "noop_with_empty_axes", 0) else range(_MOST_AXES))


def _reduction(axes: Callable[[Operands], Iterable[int]]) -> Rule:
    """Return the rule of an operator that reduces ``axes``, and keeps them as dimensions of 1 with ``keepdims``."""

    def then(operands: Operands) -> Frames:
        position = operands.frames(0)
        assert position is not None
        if attribute(operands.node, "keepdims", 1):
            return position
        reduced = {axis if axis >= 0 else axis + operands.rank(0) for axis in axes(operands)}
        return replace(position, axis=position.axis - sum(axis < position.axis for axis in reduced))

    return _along(axes, then)


def _cumulated(operands: Operands) -> Iterable[int]:
    return operands.constant("axis", 1) or []


def _of_rows(*indices: int) -> Rule:
    """Return the rule of an operator that takes frames along axis 0 of the inputs ``indices``, or rows for each."""

    def rule(operands: Operands) -> Frames:
        operands.check_constants(indices)
        given = [index for index in indices if operands.name(index)]
        holding = [index for index in given if operands.frames(index) is not None]
        position = operands.common(operands.check_axes(range(1, _MOST_AXES), index) for index in holding)
        for index in given:
            if index not in holding:
                operands.check_alike(index, 0, position, whole=True)
        return position

    return rule


def _pooled(operands: Operands) -> Frames:
    """Return the position of the frames behind a max pool, whose second output would count in all frames."""
    if len(operands.node.output) > 1 and operands.node.output[1]:
        raise MixedError(f"its second output counts in all frames; leave it out{HELP}")
    return operands.check_axes(range(2, _MOST_AXES))


def _batch_normalised(operands: Operands) -> Position | Sequence[Position]:
    if attribute(operands.node, "training_mode", 0):
        raise MixedError(f"takes the mean of all frames in its training mode; set training_mode to 0{HELP}")
    return _of_rows(0)(operands)


def _recurrent(operands: Operands) -> list[Frames]:
    """Return the positions of the frames behind an RNN, GRU or LSTM, of which an axis holds the batch."""
    first = 0 if attribute(operands.node, "layout", 0) else 1
    with_states = [index for index in (0, 4, 5, 6) if operands.name(index)]
    operands.check_constants(with_states)
    axes = {index: 0 if index == 4 else first for index in with_states}
    holding = {index: position for index in with_states if (position := operands.frames(index)) is not None}
    if 0 not in holding or any(position != Frames(axes[index]) for index, position in holding.items()):
        raise MixedError(f"works along another axis than {first} of its input, that of a batch; move the frames{HELP}")
    for index in with_states:
        if index not in holding:
            operands.check_alike(index, axes[index], holding[0], whole=True)
    return [Frames(0)] * 3 if first == 0 else [Frames(2), Frames(1), Frames(1)]


def _reversed(operands: Operands) -> Frames:
    batch_axis, time_axis = attribute(operands.node, "batch_axis", 1), attribute(operands.node, "time_axis", 0)
    position = operands.check_axes([time_axis])
    operands.check_constants()
    if position.axis == batch_axis:
        operands.check_alike(1, 0, position, whole=True)
    return position


def _compressed(operands: Operands) -> Position | Sequence[Position]:
    """Return the position of the frames behind a Compress, which selects as many values as its condition says."""
    if operands.frames(0) is None or operands.name(1) in operands.tensors.frames:
        return Special.RAGGED
    return _along(lambda _: [attribute(operands.node, "axis", None)] if _has_axis(operands) else range(_MOST_AXES))(
        operands
    )


def _has_axis(operands: Operands) -> bool:
    return attribute(operands.node, "axis", None) is not None


# Operators that cut, repeat or resize axes.


def _unchanged(position: Frames, entries: Sequence[Mapping[int, object]], wholes: Sequence[Sequence[object]]) -> Frames:
    """Return the position of the frames behind a node that leaves their axis as it is.

    Parameters
    ----------
    entries : sequence of mapping
        Effect of the node on each axis, for each number of frames.
    wholes : sequence
        Effects on the frames' axis that change nothing, for each number of frames.
    """
    for effects, allowed in zip(entries, wholes, strict=True):
        if position.axis in effects and effects[position.axis] not in allowed:
            raise MixedError(f"works along axis {position.axis}, that of the frames; give other axes{HELP}")
    others = [{axis: effect for axis, effect in effects.items() if axis != position.axis} for effects in entries]
    if any(effects != others[0] for effects in others):
        raise MixedError(COUNTED)
    return position


def _position(operands: Operands) -> Frames:
    """Return the position of the frames in the first input; refuse a node that takes frames elsewhere."""
    position = operands.frames(0)
    if position is None or any(
        operands.name(index) in operands.tensors.frames for index in operands.present_inputs[1:]
    ):
        raise MixedError(f"takes sizes or positions that depend on the frames; give constants{HELP}")
    return position


def _axes_of(axes: Sequence[int], operands: Operands) -> list[int]:
    return [axis if axis >= 0 else axis + operands.rank(0) for axis in axes]


def _sliced(operands: Operands) -> Frames:
    position, rank = _position(operands), operands.rank(0)
    starts, ends = operands.listed("starts", 1) or [], operands.listed("ends", 2) or []
    axes = operands.constant("axes", 3)
    steps = operands.listed("steps", 4) or [[1] * len(begins) for begins in starts]
    axes = _axes_of(range(len(starts[0])) if axes is None else axes, operands)
    sizes = [*operands.shape(0), *[0] * rank][:rank]
    counts, parameters = [*operands.counts], [*zip(starts, ends, steps, strict=True)]
    if not (
        operands.tensors.is_fixed or any(operands.depends_on_count(index) for index in operands.present_inputs[1:])
    ):
        counts.append(_MOST_VALUES // position.size(1))
        parameters.append(parameters[0])
    entries = []
    for count, spans in zip(counts, parameters, strict=True):
        sizes[position.axis] = position.size(count)
        cuts = zip(axes, *spans, strict=True)
        entries.append({axis: _span(sizes[axis], slice(start, end, step)) for axis, start, end, step in cuts})
    return _unchanged(position, entries, [[range(position.size(count))] for count in counts])


def _span(size: int, cut: slice) -> object:
    """Return the indices that a Slice selects of ``size`` values, or its parameters if the size is not known."""
    return range(size)[cut] if size else (cut.start, cut.stop, cut.step)


def _padded(operands: Operands) -> Frames:
    position = _position(operands)
    pads = operands.listed("pads", 1) or operands.listed("paddings", 1) or []
    axes = operands.constant("", 3)
    entries = []
    for numbers in pads:
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        entries.append(dict(zip(range(half) if axes is None else _axes_of(axes, operands), pairs, strict=True)))
    return _unchanged(position, entries, [[(0, 0)]] * len(entries))


def _tiled(operands: Operands) -> Frames:
    position = _position(operands)
    entries = [dict(enumerate(repeats)) for repeats in operands.listed("", 1) or []]
    return _unchanged(position, entries, [[1]] * len(entries))


def _expanded(operands: Operands) -> Frames:
    position = _position(operands)
    targets, rank = operands.listed("", 1) or [], operands.rank(0)
    position = replace(position, axis=position.axis + max(0, len(targets[0]) - rank))
    gap = max(0, rank - len(targets[0]))
    entries = [dict(enumerate(sizes, start=gap)) for sizes in targets]
    return _unchanged(position, entries, [[1, position.size(count)] for count in operands.counts])


def _resized(operands: Operands) -> Frames:
    """Return the position of the frames behind a Resize or Upsample, which must not resize their axis."""
    position, node = _position(operands), operands.node
    if text(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise MixedError(f"crops and resizes at once; crop with a Slice{HELP}")
    versions = operands.tensors.opset >= 11
    scales = operands.listed("scales", 2 if versions else 1)
    sizes = operands.listed("sizes", 3) if versions else None
    axes = attribute(node, "axes", None)
    entries = [
        dict(zip(range(len(numbers)) if axes is None else _axes_of(axes, operands), numbers, strict=True))
        for numbers in (scales if scales and scales[0] else sizes or [])
    ]
    if sizes and any(sizes):
        if axes is None and text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
            raise MixedError(f"keeps the ratio of all axes, that of the frames included; give it axes{HELP}")
        return _unchanged(position, entries, [[position.size(count)] for count in operands.counts])
    return _unchanged(position, entries, [[1.0]] * len(entries))


# Operators that move or join dimensions.


def _transposed(operands: Operands) -> Frames:
    position = operands.check_axes([])
    order = list(attribute(operands.node, "perm", ())) or [*range(operands.rank(0))][::-1]
    return replace(position, axis=order.index(position.axis))


def _squeezed(operands: Operands) -> Frames:
    """Return the position of the frames behind a Squeeze.

    Raises
    ------
    OneFrameError
        If it drops the frames' axis, which must then be of size 1.
    """
    position = _position(operands)
    axes = operands.constant("axes", 1)
    if axes is None:
        shape = operands.shape(0)
        if 0 in (*shape[: position.axis], *shape[position.axis + 1 :]):
            raise MixedError(f"drops all dimensions of 1, and not all sizes are known; give it axes{HELP}")
        axes = [axis for axis, size in enumerate(shape) if size == 1 and axis != position.axis]
        vanishes = not operands.tensors.is_fixed and position.size(1) == 1
        position = replace(position, vanishes=vanishes or position.vanishes)
    axes = {*_axes_of(axes, operands)}
    if position.axis in axes:
        raise OneFrameError
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in axes))


def _unsqueezed(operands: Operands) -> Frames:
    position = _position(operands)
    axes = operands.constant("axes", 1) or []
    if min(axes, default=0) >= 0 and operands.tensors.shapes.of(operands.name(0)).shape is None:
        rank = _MOST_AXES
    else:
        rank = operands.rank(0) + len(axes)
    inserted = {axis % rank for axis in axes}
    left = [axis for axis in range(rank) if axis not in inserted]
    return replace(position, axis=left[position.axis])


def _flattened(operands: Operands) -> Frames:
    position, axis = operands.check_axes([]), attribute(operands.node, "axis", 1)
    if axis == 1 and position.are_rows:
        return Frames(0)
    shape = operands.sizes(0)
    if shape is None:
        raise MixedError(f"flattens a tensor whose sizes are not all known; give it axis 1{HELP}")
    axis = axis if axis >= 0 else axis + len(shape)
    first, last = (0, axis) if position.axis < axis else (axis, len(shape))
    return Frames(
        int(position.axis >= axis),
        prod(shape[first : position.axis]) * position.before,
        position.behind * prod(shape[position.axis + 1 : last]),
    )


def _reshaped(operands: Operands) -> Frames:
    """Return the position of the frames behind a Reshape.

    Raises
    ------
    OneFrameError
        If the shape fits one frame only.
    MixedError
        If a dimension begins or ends inside a frame, so that it depends on the number of frames what it holds.
    """
    position, targets = _position(operands), operands.values(1, "sizes")
    lists = [target.ravel().tolist() for target in targets]
    copies = not attribute(operands.node, "allowzero", 0)
    keeps_rows = position.are_rows and all(
        sizes and sizes[0] in ([0, count] if copies else [count]) and sizes[1:] == lists[0][1:]
        for sizes, count in zip(lists, operands.counts, strict=True)
    )
    shape = operands.sizes(0)
    if shape is None:
        if keeps_rows:
            return Frames(0)
        raise MixedError(f"reshapes a tensor whose sizes are not all known; begin its shape with 0{HELP}")
    fitting = [
        _fitting(position, shape, sizes, count, copies=copies)
        for sizes, count in zip(lists, operands.counts, strict=True)
    ]
    common = [here for here in fitting[0] if all(here in others for others in fitting)]
    if common:
        frames, others = common[0 if keeps_rows else -1]
        _note_reshaped(operands, frames, others)
        return frames
    if keeps_rows:  # ONNX Runtime refuses the sizes
        return Frames(0)
    _check_one_frame(operands, lists, prod(shape) * position.size(1))
    shown = lists[0] if not operands.depends_on_count(1) else "that the model computes"
    raise MixedError(f"its shape {shown} depends on the number of frames; begin it with 0{HELP}")


def _note_reshaped(operands: Operands, frames: Frames, others: Sequence[int]) -> None:
    """Note the sizes behind a Reshape: shape inference does not know what a computed shape makes of -1."""
    if frames.axis == 0:
        shapes = operands.tensors.shapes
        shapes.note(operands.node.output[0], shapes.of(operands.name(0)).type, others)


def _check_one_frame(operands: Operands, lists: Sequence[Sequence[int]], values: int) -> None:
    """Raise OneFrameError if a Reshape has one shape without 0 and -1 for a batch of any number, of one frame.

    A shape that fits no number of frames is ONNX Runtime's to refuse.
    """
    sizes = lists[0]
    if operands.tensors.is_fixed or operands.depends_on_count(1) or min(sizes, default=1) < 1:
        return
    count, left = divmod(prod(sizes), values)
    if count > 1 and not left:
        raise MixedError(f"its shape {sizes} fits a batch of {count} frames alone; begin it with 0{HELP}")
    raise OneFrameError


def _fitting(
    position: Frames, shape: Sequence[int], target: Sequence[int], count: int, *, copies: bool
) -> list[tuple[Frames, list[int]]]:
    """Return the positions that describe ``count`` frames behind a Reshape to ``target``, each with the other sizes.

    Parameters
    ----------
    shape : sequence of int
        Shape in front of the Reshape, 1 for the frames' axis.
    copies : bool
        Whether 0 stands for the size in front of the Reshape.
    """
    here = list(shape)
    here[position.axis] = position.size(count)
    sizes = [here[axis] if not size and copies and axis < len(here) else size for axis, size in enumerate(target)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = prod(here) // max(1, -prod(sizes))
    outside = prod(here[: position.axis]) * position.before
    inside = position.behind * prod(here[position.axis + 1 :])
    fitting = []
    for axis, size in enumerate(sizes):
        outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
        before, behind = outside // max(1, outer), inside // max(1, inner)
        if (before * outer, behind * inner, before * count * behind) == (outside, inside, size):
            fitting.append((Frames(axis, before, behind), sizes[:axis] + sizes[axis + 1 :]))
    return fitting


def _joined(first: int, step: int) -> Rule:
    """Return the rule of a concatenation of the inputs ``first``, ``first + step`` and so on; others are constants."""

    def rule(operands: Operands) -> Frames:
        indices = [index for index in operands.present_inputs if index >= first and (index - first) % step == 0]
        operands.check_constants(indices)
        axis = attribute(operands.node, "axis", 0)
        holding = [index for index in indices if operands.frames(index) is not None]
        position = operands.common(operands.check_axes([axis], index) for index in holding)
        for index in indices:
            if index not in holding:
                operands.check_alike(index, position.axis, position, whole=True)
        return position

    return rule


# Operators that select by indices.


def _gathered(operands: Operands) -> Frames:
    axis = attribute(operands.node, "axis", 0)
    data, indices = operands.frames(0), operands.frames(1)
    if data is not None and indices is not None:
        raise MixedError(f"takes values of frames by indices of other frames, too; use GatherElements{HELP}")
    if data is None:
        operands.check_constants([1])
        assert indices is not None
        axis = axis if axis >= 0 else axis + operands.rank(0)
        return replace(indices, axis=indices.axis + axis)
    operands.check_axes([axis])
    operands.check_constants()
    axis = axis if axis >= 0 else axis + operands.rank(0)
    return replace(data, axis=data.axis + (operands.rank(1) - 1 if data.axis > axis else 0))


def _one_hot(operands: Operands) -> Frames:
    operands.check_constants()
    position, axis = operands.check_axes([]), attribute(operands.node, "axis", -1)
    axis = axis if axis >= 0 else axis + operands.rank(0) + 1
    return replace(position, axis=position.axis + (axis <= position.axis))


def _elements(*indices: int) -> Rule:
    """Return the rule of a GatherElements or ScatterElements.

    The first input is the data. The inputs ``indices`` have its shape but along the axis of the operator.
    """

    def rule(operands: Operands) -> Frames:
        axis = attribute(operands.node, "axis", 0)
        given = [0, *indices]
        holding = [index for index in given if operands.frames(index) is not None]
        gathers = len(indices) == 1 and operands.frames(0) is None  # each frame takes values of one constant
        position = operands.common(operands.check_axes([] if gathers else [axis], index) for index in holding)
        if gathers and position.axis == (axis if axis >= 0 else axis + operands.rank(0)):
            operands.check_constant(0)
            return position
        for index in given:
            if index not in holding:
                try:
                    operands.check_alike(index, position.axis, position, whole=True)
                except OneFrameError:  # ONNX Runtime takes fewer indices than frames
                    raise MixedError(operands.not_as_long(index, position.axis)) from None
        return position

    return rule


def _addressed_axes(operands: Operands) -> range:
    """Return the axes of its data that a GatherND or ScatterND addresses."""
    width = operands.shape(1)[-1]
    if not width:
        raise MixedError(f"addresses axes of which the number is not known; give constant indices{HELP}")
    first = attribute(operands.node, "batch_dims", 0)
    return range(first, first + width)


def _listing_axis(operands: Operands, axes: range, position: Frames) -> int:
    """Return the axis of the indices of a GatherND or ScatterND along which they list the frames.

    Raises
    ------
    MixedError
        If the indices don't address the same values in every frame.
    """
    column = axes.index(position.axis)
    common: set[int] | None = None
    same = None
    for count, indices in zip(operands.counts, operands.values(1, "indices"), strict=True):
        others = np.delete(indices, column, axis=-1)
        listed = {
            axis
            for axis in range(indices.ndim - 1)
            if indices.shape[axis] == count
            and (np.moveaxis(indices[..., column], axis, -1) == np.arange(count)).all()
            and (others == others.take([0], axis)).all()
        }
        common = listed if common is None else common & listed
        if common:
            once = others.take([0], min(common))
            same = once if same is None else same
            common = common if np.array_equal(once, same) else set()
    if not common or (position.before, position.behind) != (1, 1):
        raise MixedError(
            f"its indices address axis {position.axis}, that of the frames; give indices of other axes{HELP}"
        )
    return min(common)


def _gathered_nd(operands: Operands) -> Frames:
    axes, position, indices = _addressed_axes(operands), operands.frames(0), operands.frames(1)
    if position is None:
        assert indices is not None
        if indices.axis < axes.start:
            operands.check_alike(0, indices.axis, indices, whole=True)
        else:
            operands.check_constants([1])
        return operands.check_axes([-1], 1)
    if indices is not None and (indices != position or indices.axis >= axes.start):
        raise MixedError(f"takes values of frames by indices of other frames, too; give it batch_dims{HELP}")
    if position.axis < axes.start:
        if indices is None:
            operands.check_alike(1, position.axis, position, whole=True)
        return position
    if position.axis >= axes.stop:
        operands.check_constants()
        return replace(position, axis=position.axis - axes.stop + operands.rank(1) - 1)
    return Frames(_listing_axis(operands, axes, position))


def _scattered_nd(operands: Operands) -> Position:
    """Return the position of the frames behind a ScatterND, which is that in its data."""
    axes, position = _addressed_axes(operands), operands.frames(0)
    if operands.frames(1) is not None:
        raise MixedError(f"gives values to frames by indices that depend on frames; give constant indices{HELP}")
    if position is None:
        position = Frames(0)
        operands.check_alike(0, 0, position, whole=True)
    if position.axis >= axes.stop:
        operands.check_constants([0, 2])
        listed = operands.rank(1) - 1 + position.axis - axes.stop
    else:
        listed = _listing_axis(operands, axes, position)
    expected = replace(position, axis=listed)
    if operands.frames(2) is None:
        operands.check_alike(2, listed, expected, whole=True)
    else:
        operands.common([expected, operands.check_axes([], 2)])
    return position


# Matrix products.


def _product(first: int, second: int) -> Rule:
    """Return the rule of a matrix product of the inputs ``first`` and ``second``; others are constants."""

    def rule(operands: Operands) -> Frames:
        operands.check_constants([first, second])
        ranks = operands.rank(first), operands.rank(second)
        rank = max(*ranks, 2)
        positions, alike = [], []
        for index, summed, other in ((first, -1, second), (second, -2 if ranks[1] > 1 else -1, first)):
            if operands.frames(index) is None:
                continue
            position = operands.check_axes([summed], index)
            from_end = position.axis - operands.rank(index)
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


def _without_vectors(position: Frames, rank: int, ranks: tuple[int, int]) -> Frames:
    """Return the position behind a matrix product; a product of a vector lacks a dimension."""
    dropped = [rank - 2] * (ranks[0] == 1) + [rank - 1] * (ranks[1] == 1)
    return replace(position, axis=position.axis - sum(axis < position.axis for axis in dropped))


def _general_product(first: int, second: int, *, addend: int) -> Rule:
    """Return the rule of a Gemm or QGemm of the inputs ``first`` and ``second``, and an input that it adds."""

    def rule(operands: Operands) -> Frames:
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


def _einsum(operands: Operands) -> Frames:
    """Return the position of the frames behind an Einsum: one letter must stand for them in all operands."""
    equation = text(operands.node, "equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if "." in equation or not arrow:
        raise MixedError(f"its equation {equation!r} is not followed; write it without '...', and with '->'{HELP}")
    positions = []
    for index, term in enumerate(terms):
        if (here := operands.frames(index)) is not None:
            letter = term[here.axis]
            if letter not in right or term.count(letter) > 1:
                raise MixedError(f"works along {letter!r} of {equation!r}, that of the frames; keep it{HELP}")
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


_ELEMENTWISE = _aligned()
"""Rule of operators that compute each value from the values at the same position of all operands."""

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip"),
            *("Cos", "Cosh", "Elu", "Erf", "Exp", "FastGelu", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity"),
            *("IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "QuickGelu", "Reciprocal", "Relu", "Round"),
            *("Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan"),
            *("Tanh", "ThresholdedRelu"),
            *("Add", "And", "BiasGelu", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
            *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub"),
            *("Sum", "Where", "Xor"),
        ),
        _ELEMENTWISE,
    ),
    **dict.fromkeys(("CastLike", "Dropout", "QLinearLeakyRelu", "QLinearSigmoid"), _aligned(0)),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _aligned(0, 3)),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantised),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "QLinearSoftmax", "Softmax"), _along(_softmax)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _along(_normalised)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduction(_axis(0))),
    **dict.fromkeys(("LpNormalization", "TopK"), _along(_axis(-1))),
    "Split": _along(_axis(0)),
    "CumSum": _along(_cumulated),
    "CumProd": _along(_cumulated),
    **dict.fromkeys(("Det", "Trilu"), _along(lambda operands: [-1, -2])),
    "MeanVarianceNormalization": _along(lambda operands: attribute(operands.node, "axes", [0, 2, 3])),
    **dict.fromkeys(
        (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
            *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
        ),
        _reduction(_reduced_axes),
    ),
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
    "Slice": _sliced,
    "Pad": _padded,
    "Tile": _tiled,
    "Expand": _expanded,
    **dict.fromkeys(("Resize", "Upsample"), _resized),
    "Transpose": _transposed,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Flatten": _flattened,
    "Reshape": _reshaped,
    "Concat": _joined(0, 1),
    "QLinearConcat": _joined(2, 3),
    "Gather": _gathered,
    "OneHot": _one_hot,
    "GatherElements": _elements(1),
    "ScatterElements": _elements(1, 2),
    "GatherND": _gathered_nd,
    "ScatterND": _scattered_nd,
    **dict.fromkeys(("MatMul", "MatMulInteger"), _product(0, 1)),
    "QLinearMatMul": _product(0, 3),
    **dict.fromkeys(("FusedGemm", "Gemm"), _general_product(0, 1, addend=2)),
    "QGemm": _general_product(0, 3, addend=6),
    "Einsum": _einsum,
}
"""Rules by ONNX operator, of ONNX's own domain and com.microsoft."""


def is_elementwise(operator: str) -> bool:
    """Return whether an ONNX operator computes each value from the values at the same position of all operands."""
    return RULES.get(operator) is _ELEMENTWISE


RAGGED: Mapping[str, Special] = {
    "NonMaxSuppression": Special.ADDRESSES,
    "NonZero": Special.RAGGED,
    "Unique": Special.RAGGED,
}
"""ONNX operators whose output's size depends on the values of their inputs, so that no axis holds the frames."""


def behind_ragged(operands: Operands, kinds: Sequence[Special | None]) -> Position:
    """Return the contents of a tensor behind rows of all frames, as many as the frames' values make.

    ``kinds``: contents of the node's inputs; ``None`` for others than such rows.
    """
    operator = operands.node.op_type
    if operator in ("Cast", "Identity"):
        return kinds[0] or Special.RAGGED
    if operator == "Shape":
        return Special.SIZES
    if operator == "ConstantOfShape" and kinds[0] is Special.SIZES:
        return Special.ALIKE
    if operator == "ScatterND" and [*kinds] == [None, Special.ADDRESSES, Special.ALIKE]:
        if operands.frames(0) is None:
            operands.check_alike(0, 0, Frames(0), whole=True)
        elif operands.frames(0) != Frames(0):
            return Special.RAGGED
        return Frames(0)
    return Special.RAGGED
