"""Axis that holds a batch's frames after operators that cut, repeat or resize axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwgen.network.onnx.file import attribute, opset, text
from hwgen.network.onnx.frames.operands import COUNTED, HELP, FrameOperands, Frames, MixedError
from hwgen.network.onnx.frames.rule import Rule, data_position, nonnegative_axes

_MAX_VALUES = (1 << 31) - 1
"""Size of the frames' axis that a Slice with constant ends must keep whole: exporters write this end for "all"."""


def _unchanged(position: Frames, entries: Sequence[Mapping[int, object]], wholes: Sequence[Sequence[object]]) -> Frames:
    """Return the axis of the batch's frames after a node, or refuse the node if it changes the frames' axis.

    Parameters
    ----------
    entries : sequence of mapping
        Effect of the node on each axis, for each number of frames.
    wholes : sequence
        Effects on the frames' axis that change nothing, for each number of frames.
    """
    for effects, allowed in zip(entries, wholes, strict=True):
        if position.axis in effects and effects[position.axis] not in allowed:
            raise MixedError(f"works along axis {position.axis}, which holds the frames; give other axes{HELP}")
    others = [{axis: effect for axis, effect in effects.items() if axis != position.axis} for effects in entries]
    if any(effects != others[0] for effects in others):
        raise MixedError(COUNTED)
    return position


def _sliced(operands: FrameOperands) -> Frames:
    position, rank = data_position(operands), operands.rank(0)
    starts, ends = operands.listed("starts", 1) or [], operands.listed("ends", 2) or []
    axes = operands.constant("axes", 3)
    steps = operands.listed("steps", 4) or [[1] * len(begins) for begins in starts]
    axes = nonnegative_axes(range(len(starts[0])) if axes is None else axes, operands)
    sizes = [*operands.shape(0), *[0] * rank][:rank]
    counts, parameters = [*operands.counts], [*zip(starts, ends, steps, strict=True)]
    if not (
        operands.tensors.is_fixed or any(operands.depends_on_count(index) for index in operands.present_inputs[1:])
    ):
        counts.append(_MAX_VALUES // position.size(1))
        parameters.append(parameters[0])
    entries = []
    for count, spans in zip(counts, parameters, strict=True):
        sizes[position.axis] = position.size(count)
        cuts = zip(axes, *spans, strict=True)
        entries.append({axis: _span(sizes[axis], slice(start, end, step)) for axis, start, end, step in cuts})
    return _unchanged(position, entries, [[range(position.size(count))] for count in counts])


def _span(size: int, cut: slice) -> object:
    """Return the indices that a Slice selects from ``size`` values, or its parameters if the size is not known."""
    return range(size)[cut] if size else (cut.start, cut.stop, cut.step)


def _padded(operands: FrameOperands) -> Frames:
    position = data_position(operands)
    pads = operands.listed("pads", 1) or operands.listed("paddings", 1) or []
    axes = operands.constant("", 3)
    entries = []
    for numbers in pads:
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        entries.append(dict(zip(range(half) if axes is None else nonnegative_axes(axes, operands), pairs, strict=True)))
    return _unchanged(position, entries, [[(0, 0)]] * len(entries))


def _tiled(operands: FrameOperands) -> Frames:
    position = data_position(operands)
    entries = [dict(enumerate(repeats)) for repeats in operands.listed("", 1) or []]
    return _unchanged(position, entries, [[1]] * len(entries))


def _expanded(operands: FrameOperands) -> Frames:
    position = data_position(operands)
    targets, rank = operands.listed("", 1) or [], operands.rank(0)
    position = replace(position, axis=position.axis + max(0, len(targets[0]) - rank))
    gap = max(0, rank - len(targets[0]))
    entries = [dict(enumerate(sizes, start=gap)) for sizes in targets]
    return _unchanged(position, entries, [[1, position.size(count)] for count in operands.counts])


def _resized(operands: FrameOperands) -> Frames:
    """Return the axis of the batch's frames after a Resize or Upsample, which must not resize the frames' axis."""
    position, node = data_position(operands), operands.node
    if text(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise MixedError(f"crops and resizes at once; crop with a Slice{HELP}")
    versions = opset(operands.tensors.graph.model) >= 11
    scales = operands.listed("scales", 2 if versions else 1)
    sizes = operands.listed("sizes", 3) if versions else None
    axes = attribute(node, "axes", None)
    entries = [
        dict(zip(range(len(numbers)) if axes is None else nonnegative_axes(axes, operands), numbers, strict=True))
        for numbers in (scales if scales and scales[0] else sizes or [])
    ]
    if sizes and any(sizes):
        if axes is None and text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
            raise MixedError(f"keeps the ratio of all axes, also of the frames' axis; give it axes{HELP}")
        return _unchanged(position, entries, [[position.size(count)] for count in operands.counts])
    return _unchanged(position, entries, [[1.0]] * len(entries))


RULES: Mapping[str, Rule] = {
    "Slice": _sliced,
    "Pad": _padded,
    "Tile": _tiled,
    "Expand": _expanded,
    **dict.fromkeys(("Resize", "Upsample"), _resized),
}
"""Rules for the axis of a batch's frames after operators that cut, repeat or resize axes, by ONNX operator."""
