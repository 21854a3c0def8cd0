"""Search for ONNX nodes of the host that mix the frames of a batch.

The host computes any number of frames at a time, and every frame has a result of its own. A node that reduces, selects
or reorders values along the axis of the frames would make a frame's result depend on other frames. The axis can be
another one than the first, behind a Transpose, and it can be a part of a longer dimension, behind a Reshape. So the
axis is followed from the hardware's tensors through the nodes.

A model can also compute with the number of frames itself, for example ``Shape -> Gather(0) -> Div``. Tensors that only
depend on this number are evaluated for several batches. A tensor mixes frames if its values depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx

from hwgen.network.onnx.check import depends
from hwgen.network.onnx.evaluated import BatchValues
from hwgen.network.onnx.file import attribute, data_inputs, takes
from hwgen.network.onnx.infer import Shapes
from hwgen.network.onnx.sizes import BATCH
from hwgen.network.onnx.subgraphs import with_inner

_HELP = ", or export the model for a batch of 1"
_WINDOWS = {"Resize", "Upsample", "InstanceNormalization"}
"""ONNX operators, other than pools, that combine values of one channel along rows and columns."""
_PIXELS = {"DepthToSpace", "LRN", "SpaceToDepth"}
"""ONNX operators, other than convolutions, that combine values along channels, rows and columns."""
_SOFTMAX = {"Hardmax", "LogSoftmax", "QLinearSoftmax", "Softmax"}
"""ONNX operators of the Softmax family, which combine all dimensions from an axis on before version 13."""
_ONE_AXIS = {
    **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Gather", "QLinearConcat", "Split"), 0),
    **dict.fromkeys(("LpNormalization", "TopK"), -1),
}
"""ONNX operators that combine or select values along one axis, with the default of the axis."""
_INDEXED = {"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"}
"""ONNX operators whose inputs need not have the frames along the same axis."""
_ARITHMETIC = {
    *("Add", "And", "Clip", "Div", "Equal", "Gemm", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul"),
    *("Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor"),
}
"""ONNX operators that compute values from the values of all their inputs."""
_RAGGED = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}
"""ONNX operators whose output's size depends on the values of their inputs, so that no axis holds the frames."""


def is_ragged(model: onnx.ModelProto, output: str) -> bool:
    """Return whether the number of rows of a model's output depends on the values, and not on the number of frames.

    The output then depends on an operator such as NonMaxSuppression, and its first dimension, as the model declares it,
    is not the inputs' batch.
    """
    needed = depends(model.graph.node, output)
    nodes = [node for node in model.graph.node if id(node) in needed]
    if not any(node.op_type in _RAGGED for node in with_inner(nodes)):
        return False
    rows, batch = (
        [value.type.tensor_type.shape.dim[0] for value in values if value.type.tensor_type.shape.dim]
        for values in ([value for value in model.graph.output if value.name == output], data_inputs(model))
    )
    sizes = {(dim.dim_value, dim.dim_param) for dim in (*rows[:1], *batch)}
    return not rows or len(sizes) > 1 or sizes == {(0, "")}


@dataclass(frozen=True)
class Frames:
    """Position of a batch's frames in an ONNX tensor.

    Parameters
    ----------
    axis : int
        Dimension that holds the frames.
    before, behind : int
        Number of positions of the same dimension outside and inside the frames: the dimension has ``before * N *
        behind`` of them for ``N`` frames.
    """

    axis: int
    before: int = 1
    behind: int = 1

    @property
    def are_rows(self) -> bool:
        """Whether each row of the tensor, along its first dimension, is one frame."""
        return self == Frames(0)


class _MixedError(Exception):
    """Error that a node mixes the frames of a batch; its text says how."""


class FrameSearch:
    """Search of the frames' axis in the tensors of an ONNX graph, and of nodes that mix frames.

    Parameters
    ----------
    shapes : Shapes
        Shapes of the model's tensors.
    constants : mapping
        Values of constants, by name.
    batch : int or None
        Fixed number of frames of a batch; ``None`` if the model takes any number. One frame can't be mixed.
    opset : int
        Version of the model's ONNX operators.
    """

    def __init__(self, shapes: Shapes, constants: Mapping[str, np.ndarray], batch: int | None, opset: int) -> None:
        self.shapes, self.constants, self.batch, self.opset = shapes, constants, batch, opset
        self.frames: dict[str, Frames] = {}
        """Position of the frames in each tensor, as far as it is known."""
        self.values = BatchValues(constants, batch)
        """Tensors that depend on nothing but the number of frames."""

    def mixing(self, sources: Collection[str], nodes: Iterable[onnx.NodeProto]) -> list[tuple[onnx.NodeProto, str]]:
        """Return the nodes that mix frames, each with the reason.

        Parameters
        ----------
        sources : collection of str
            Tensors whose rows are frames.
        nodes : iterable of NodeProto
            Nodes behind them, in topological order.
        """
        if self.batch == 1:
            return []
        self.frames |= {name: Frames(0) for name in sources}
        mixing = []
        for node in nodes:
            known = [name for name in takes(node) if name in self.frames]
            if node.op_type in ("Shape", "Size"):
                if known:
                    self._note_size(node, known[0])
                continue
            if not known:
                self.values.evaluate(node)
                continue
            try:
                self._follow(node, known)
            except _MixedError as error:
                mixing.append((node, str(error)))
        return mixing

    def gives_rows(self, tensor: str) -> bool:
        """Return whether each row of a tensor is one frame, or no other position of the frames is known."""
        return self.batch == 1 or self.frames.get(tensor, Frames(0)).are_rows

    def _note_size(self, node: onnx.NodeProto, name: str) -> None:
        """Note the output of a Shape or Size node of the tensor ``name``, if all sizes but the batch are known."""
        frames, shape = self.frames[name], self.shapes.of(name).shape
        if shape is None or 0 in (*shape[: frames.axis], *shape[frames.axis + 1 :]):
            return
        before, after = shape[: frames.axis], shape[frames.axis + 1 :]
        shapes = [
            np.array([*before, frames.before * count * frames.behind, *after], np.int64) for count in self.values.counts
        ]
        if node.op_type == "Size":
            self.values.note(node.output[0], [np.array(prod(sizes.tolist())) for sizes in shapes])
        else:
            span = slice(attribute(node, "start", 0), attribute(node, "end", None))
            self.values.note(node.output[0], [sizes[span] for sizes in shapes])

    def _follow(self, node: onnx.NodeProto, names: Sequence[str]) -> None:
        """Note the frames in a node's outputs.

        Raises
        ------
        _MixedError
            If the node mixes frames.
        """
        operands = [_Operand(self, node, name) for name in names]
        for operand in operands:
            operand.check()
        if node.op_type in _ARITHMETIC and any(map(self.values.depend_on_batch, takes(node))):
            raise _MixedError(f"computes with the number of frames of a batch; leave it out{_HELP}")
        for output in filter(None, node.output):
            positions = [frames for operand in operands if (frames := operand.behind(output)) is not None]
            if len(set(positions)) > 1 and node.op_type not in _INDEXED:
                raise _MixedError(f"takes the frames of a batch along different axes; move them to one axis{_HELP}")
            if positions:
                self.frames[output] = positions[0]


@dataclass(frozen=True)
class _Operand:
    """Tensor ``name`` with frames that a node reads."""

    search: FrameSearch
    node: onnx.NodeProto
    name: str

    @property
    def frames(self) -> Frames:
        """Position of the frames in the tensor."""
        return self.search.frames[self.name]

    @property
    def shape(self) -> Sequence[int] | None:
        """Sizes of the tensor, 0 where one is not known; ``None`` if the rank is not known."""
        return self.search.shapes.of(self.name).shape

    def constant(self, index: int) -> list[int] | None:
        """Return the node's constant input ``index`` as a list; ``None`` if there is none."""
        name = self.node.input[index] if len(self.node.input) > index else ""
        return self.search.constants[name].ravel().tolist() if name in self.search.constants else None

    def listed(self, name: str, index: int) -> list[int] | None:
        """Return the node's attribute ``name``, or else its constant input ``index``, as a list; ``None`` without."""
        return list(attribute(self.node, name, ())) or self.constant(index)

    def check(self) -> None:
        """Refuse a node that works along the frames' axis."""
        frames, shape = self.frames, self.shape
        for axis in _worked(self):
            if axis == frames.axis or (shape is not None and axis + len(shape) == frames.axis):
                raise _MixedError(f"works along axis {axis}, that of the frames; give other axes{_HELP}")
        check = _INDEX_CHECKS.get(self.node.op_type)
        if check is not None and self.name == self.node.input[0]:
            check(self)

    def behind(self, output: str) -> Frames | None:
        """Return the position of the frames in the node's output; ``None`` if it is not known."""
        if self.node.op_type in _RAGGED:
            return None
        move = _MOVES.get(self.node.op_type)
        if move is not None:
            return move(self)
        if self.node.op_type.startswith("Reduce") or self.node.op_type in ("ArgMax", "ArgMin"):
            return self._reduced()
        return self._broadcast(output)

    def _broadcast(self, output: str) -> Frames | None:
        """Return the position of the frames behind an operator that aligns its inputs at the last dimension."""
        if len(self.node.input) == 1:
            return self.frames
        before, after = self.shape, self.search.shapes.of(output).shape
        if before is None or after is None:
            return None
        axis = self.frames.axis + len(after) - len(before)
        return replace(self.frames, axis=axis) if axis >= 0 else None

    def _reduced(self) -> Frames | None:
        """Return the position of the frames behind a node that reduces other dimensions."""
        if attribute(self.node, "keepdims", 1):
            return self.frames
        rank = None if self.shape is None else len(self.shape)
        axes = {axis if axis >= 0 or rank is None else axis + rank for axis in _worked(self)}
        if any(axis < 0 for axis in axes):
            return None
        return replace(self.frames, axis=self.frames.axis - sum(axis < self.frames.axis for axis in axes))


def _worked(operand: _Operand) -> Iterable[int]:
    """Return the axes of an operand along which its reader combines, selects or reorders values."""
    node, operator = operand.node, operand.node.op_type
    rank = 64 if operand.shape is None else len(operand.shape)
    if operator in _ONE_AXIS:
        of_values = operand.name == node.input[0] or operator.endswith("Concat")
        return [attribute(node, "axis", _ONE_AXIS[operator])] if of_values else []
    if operator.startswith("Reduce"):
        return _reduced_axes(operand, rank)
    if operator in _SOFTMAX or operator == "LayerNormalization":
        first = attribute(node, "axis", -1 if operand.search.opset >= 13 or operator == "LayerNormalization" else 1)
        alone = operator != "LayerNormalization" and operand.search.opset >= 13
        return [first] if alone else range(first % rank, rank)
    if operator == "CumSum":
        return operand.constant(1) or []
    if operator in ("Slice", "Pad", "Tile"):
        return _cut_axes(operand, rank)
    if operator in ("MatMul", "Gemm", "QLinearMatMul", "MatMulInteger"):
        return _summed_axes(operand)
    if operator in _PIXELS or "Conv" in operator:
        return range(1, rank)
    return range(2, rank) if operator in _WINDOWS or "Pool" in operator else []


def _reduced_axes(operand: _Operand, rank: int) -> Iterable[int]:
    """Return the axes that a reduction reduces, of ``rank``; none if they are not known before the model runs."""
    node, axes = operand.node, operand.listed("axes", 1)
    if axes is None and len(node.input) > 1 and node.input[1]:
        return []
    return axes or ([] if attribute(node, "noop_with_empty_axes", 0) else range(rank))


def _cut_axes(operand: _Operand, rank: int) -> Iterable[int]:
    """Return the axes along which a Slice, Pad or Tile selects or repeats values."""
    node = operand.node
    if node.op_type == "Slice":
        starts, ends, axes, steps = (
            operand.listed(name, index) for index, name in enumerate(("starts", "ends", "axes", "steps"), start=1)
        )
        starts, ends = starts or [], ends or []
        axes, steps = axes or range(len(starts)), steps or [1] * len(starts)
        endless = min(operand.search.batch or (1 << 31) - 1, (1 << 31) - 1)
        return [
            axis
            for start, end, axis, step in zip(starts, ends, axes, steps, strict=False)
            if (start, step) != (0, 1) or end < endless
        ]
    if node.op_type == "Tile":
        return [axis for axis, count in enumerate(operand.constant(1) or []) if count != 1]
    pads = operand.listed("pads", 1) or []
    axes = operand.constant(3) or range(rank)
    return [
        axis for axis, pair in zip(axes, zip(pads, pads[len(pads) // 2 :], strict=False), strict=False) if any(pair)
    ]


def _summed_axes(operand: _Operand) -> Iterable[int]:
    """Return the axis of an operand along which a matrix product sums."""
    node = operand.node
    if operand.name == node.input[0]:
        return [0 if attribute(node, "transA", 0) else -1]
    return [-1 if attribute(node, "transB", 0) else -2]


def _transposed(operand: _Operand) -> Frames | None:
    order = list(attribute(operand.node, "perm", ()))
    if not order and operand.shape is not None:
        order = [*range(len(operand.shape))][::-1]
    return replace(operand.frames, axis=order.index(operand.frames.axis)) if operand.frames.axis in order else None


def _squeezed(operand: _Operand) -> Frames | None:
    axes = operand.listed("axes", 1)
    if axes is None or operand.shape is None:
        return None
    axes = {axis % len(operand.shape) for axis in axes}
    return replace(operand.frames, axis=operand.frames.axis - sum(axis < operand.frames.axis for axis in axes))


def _unsqueezed(operand: _Operand) -> Frames | None:
    axes = operand.listed("axes", 1)
    if axes is None or operand.shape is None:
        return None
    rank = len(operand.shape) + len(axes)
    left = [axis for axis in range(rank) if axis not in {axis % rank for axis in axes}]
    return replace(operand.frames, axis=left[operand.frames.axis])


def _flattened(operand: _Operand) -> Frames | None:
    axis = attribute(operand.node, "axis", 1)
    if operand.shape is None:
        return Frames(0) if axis == 1 and operand.frames.are_rows else None
    axis %= len(operand.shape) + (axis == len(operand.shape))
    frames, shape = operand.frames, operand.shape
    if 0 in (*shape[: frames.axis], *shape[frames.axis + 1 :]):
        return Frames(0) if axis == 1 and frames.are_rows else None
    first, last = (0, axis) if frames.axis < axis else (axis, len(shape))
    return Frames(
        int(frames.axis >= axis),
        prod(shape[first : frames.axis]) * frames.before,
        frames.behind * prod(shape[frames.axis + 1 : last]),
    )


def _reshaped(operand: _Operand) -> Frames | None:
    """Return the position of the frames behind a Reshape; ``None`` if the shape fits one number of frames only.

    Raises
    ------
    _MixedError
        If a dimension begins or ends inside a frame, so that it depends on the number of frames what it holds.
    """
    frames, shape, target = operand.frames, operand.shape, operand.constant(1)
    if target is None:
        return frames if frames.are_rows else None
    if shape is None or 0 in (*shape[: frames.axis], *shape[frames.axis + 1 :]):
        return None
    batch = operand.search.batch
    copied = [] if attribute(operand.node, "allowzero", 0) else [i for i, size in enumerate(target) if size == 0]
    axis = None
    if batch is None:
        axis = next((i for i, size in enumerate(target) if size == BATCH or (i in copied and i == frames.axis)), None)
        axis = target.index(-1) if axis is None and -1 in target else axis
        if axis is None:
            return None
    # A batch of any number of frames counts as one frame, so that its dimension has the size of the others in it.
    count, here = batch or 1, list(shape)
    here[frames.axis] = frames.before * count * frames.behind
    sizes = [1 if size == BATCH else here[i] if i in copied else size for i, size in enumerate(target)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = prod(here) // max(1, -prod(sizes))
    outside, inside = prod(here[: frames.axis]) * frames.before, frames.behind * prod(here[frames.axis + 1 :])
    if axis is None:
        axis = next((i for i in reversed(range(len(sizes))) if prod(sizes[i:]) > inside), 0)
    outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
    before, behind = outside // max(1, outer), inside // max(1, inner)
    if (before * outer, behind * inner, before * count * behind) != (outside, inside, sizes[axis]):
        raise _MixedError(f"its shape {target} depends on the number of frames; begin it with 0{_HELP}")
    return Frames(axis, before, behind)


def _gathered(operand: _Operand) -> Frames | None:
    node, shape, frames = operand.node, operand.shape, operand.frames
    indices = operand.search.shapes.of(node.input[1]).shape
    if shape is None or indices is None or operand.name != node.input[0]:
        return None
    axis = attribute(node, "axis", 0) % len(shape)
    return replace(frames, axis=frames.axis + (len(indices) - 1 if frames.axis > axis else 0))


def _addressed_axes(operand: _Operand) -> range | None:
    """Return the axes of its data that a GatherND or ScatterND addresses; ``None`` if they are not known."""
    shape = operand.search.shapes.of(operand.node.input[1]).shape
    values = operand.search.values.of(operand.node.input[1])
    (width,) = (values[0].shape if values else shape or ())[-1:] or (0,)
    first = attribute(operand.node, "batch_dims", 0)
    return range(first, first + width) if width else None


def _frames_axis(operand: _Operand) -> int | None:
    """Return the axis of the indices of a GatherND or ScatterND along which they list the frames; ``None`` without.

    The indices then address the same values in every frame.
    """
    axes, values = _addressed_axes(operand), operand.search.values.of(operand.node.input[1])
    if axes is None or values is None or operand.frames.axis not in axes:
        return None
    column = axes.index(operand.frames.axis)
    common = None
    for count, indices in zip(operand.search.values.counts, values, strict=True):
        others = np.delete(indices, column, axis=-1)
        listed = {
            axis
            for axis in range(indices.ndim - 1)
            if indices.shape[axis] == count
            and (np.moveaxis(indices[..., column], axis, -1) == np.arange(count)).all()
            and (others == others.take([0], axis)).all()
        }
        common = listed if common is None else common & listed
    return min(common) if common else None


def _check_addresses(operand: _Operand) -> None:
    """Refuse a GatherND or ScatterND whose indices are known, and address some of the frames.

    Raises
    ------
    _MixedError
        If the indices don't address the same values in every frame.
    """
    axes, axis = _addressed_axes(operand), operand.frames.axis
    known = operand.search.values.of(operand.node.input[1]) is not None
    if (
        known
        and axes is not None
        and axis in axes
        and (operand.frames != Frames(axis) or _frames_axis(operand) is None)
    ):
        raise _MixedError(f"its indices address axis {axis}, that of the frames; give indices of other axes{_HELP}")


def _check_elements(operand: _Operand) -> None:
    """Refuse a GatherElements or ScatterElements that takes values from, or gives values to, some of the frames.

    Raises
    ------
    _MixedError
        If the node works along the frames' axis, or if its indices are known and too few for all frames.
    """
    search, frames, name = operand.search, operand.frames, operand.node.input[1]
    values, axis = search.values.of(name), attribute(operand.node, "axis", 0)
    axis += len(operand.shape) if axis < 0 and operand.shape is not None else 0
    if axis == frames.axis and (values is not None or name in search.frames):
        raise _MixedError(f"works along axis {axis}, that of the frames; give other axes{_HELP}")
    if values is not None and any(
        indices.shape[frames.axis : frames.axis + 1] != (frames.before * count * frames.behind,)
        for count, indices in zip(search.values.counts, values, strict=True)
    ):
        raise _MixedError(
            f"its indices are not as long as the batch along axis {frames.axis}, that of the frames{_HELP}"
        )


def _gathered_nd(operand: _Operand) -> Frames | None:
    """Return the position of the frames behind a GatherND."""
    node, axes, frames = operand.node, _addressed_axes(operand), operand.frames
    if operand.name == node.input[1]:
        return frames
    indices = operand.search.shapes.of(node.input[1]).shape
    if axes is None or indices is None or frames.axis < axes.start:
        return frames if axes is not None and frames.axis < axes.start else None
    if frames.axis >= axes.stop:
        return replace(frames, axis=frames.axis - axes.stop + len(indices) - 1)
    axis = _frames_axis(operand)
    return None if axis is None else Frames(axis)


def _scattered_nd(operand: _Operand) -> Frames | None:
    """Return the position of the frames behind a ScatterND, which is that in its data."""
    return operand.frames if operand.name == operand.node.input[0] else None


_INDEX_CHECKS: Mapping[str, Callable[[_Operand], None]] = {
    **dict.fromkeys(("GatherND", "ScatterND"), _check_addresses),
    **dict.fromkeys(("GatherElements", "ScatterElements"), _check_elements),
}
"""Functions that refuse an ONNX operator with indices that mixes the frames of its first input."""
_MOVES: Mapping[str, Callable[[_Operand], Frames | None]] = {
    "Flatten": _flattened,
    "Gather": _gathered,
    "GatherND": _gathered_nd,
    "Reshape": _reshaped,
    "ScatterND": _scattered_nd,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
"""Functions that return the position of the frames behind an ONNX operator that moves dimensions."""
