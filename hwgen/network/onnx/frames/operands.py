"""Operands of an ONNX node after the hardware, with the position of a batch's frames in each of them.

A tensor holds frames at a position if the values at each frame depend only on this frame, in the same manner for all
frames and for any number of frames. In a fixed batch, constants can differ by the frame's position in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from hwgen.network.ends import Frames
from hwgen.network.onnx.file import attribute, takes
from hwgen.network.onnx.index import GraphIndex
from hwgen.network.onnx.infer import BATCH, Shape

_COUNTS = (1, 2, 3, 7, 65)
"""Tuple of batch sizes, in frames, that tensors are evaluated for if the model takes any batch.

There are small ones, and one beyond limits such as ``min(frames, 8)``.
"""
_MAX_VALUES = 1 << 23
"""Maximum number of values of a tensor that is evaluated for several batch sizes."""
_SMALL = 64
"""Maximum total number of operand values of a node that is evaluated even if all operands are constants."""


class Tensors:
    """Facts about the tensors of an ONNX graph that depend on the frames of a batch, or on the number of frames.

    All other tensors are constants. Tensors that depend only on the number of frames are evaluated for several such
    numbers. Exporters compute shapes and indices from it. A model can also use it as a value, which makes the result of
    one frame depend on how many others there are.

    Parameters
    ----------
    graph : GraphIndex
        Graph of the model, which has the shapes of its tensors.
    constants : mapping
        Values of constants, by name. The integer `BATCH` stands for the number of frames.
    batch : int or None
        Fixed number of frames of a batch; ``None`` if the model takes any number.
    """

    def __init__(self, graph: GraphIndex, constants: Mapping[str, np.ndarray], batch: int | None) -> None:
        self.graph, self.is_fixed = graph, batch is not None
        self.counts = _COUNTS if batch is None else (batch,)
        """Tuple of batch sizes, in frames, that tensors are evaluated for."""
        self.frames: dict[str, Frames | Special] = {}
        """Dictionary by tensor name: `Frames` (place of the frames) or `Special` kind of each tensor that depends on
        them."""
        self.unknown: set[str] = set()
        """Set of names of tensors that depend on the number of frames, or on random numbers, in an unknown manner."""
        self._constants = constants
        self._values: dict[str, Sequence[np.ndarray]] = {}

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a tensor, with 0 for unknown sizes; ``None`` if not even the rank is known.

        If the tensor holds frames, all sizes but the frames' axis are the same for any number of frames.
        """
        return self.graph.shapes.of(name).shape

    def note(self, name: str, values: Sequence[np.ndarray]) -> None:
        """Store the values of the tensor ``name``, one array for each batch size in `counts`, if they are few."""
        if max(array.size for array in values) <= _MAX_VALUES:
            self._values[name] = values

    def of(self, name: str) -> Sequence[np.ndarray] | None:
        """Return a sequence of a tensor's values, one array per batch size in `counts`; ``None`` if not known."""
        if name in self._values or name not in self._constants:
            return self._values.get(name)
        array = self._constants[name]
        if array.dtype != np.int64 or not (array == BATCH).any():
            return [array] * len(self.counts)
        return [np.where(array == BATCH, np.int64(count), array) for count in self.counts]

    def evaluate(self, node: onnx.NodeProto) -> None:
        """Store the outputs of a node that reads known tensors, if they are small or depend on the number of frames."""
        names = takes(node)
        operands = {name: values for name in names if (values := self.of(name)) is not None}
        if not names or len(operands) < len(set(names)):
            return
        if sum(values[0].size for values in operands.values()) > _SMALL and not any(map(self.varies, names)):
            return
        try:
            results = [
                ReferenceEvaluator(node).run(None, {name: values[index] for name, values in operands.items()})
                for index in range(len(self.counts))
            ]
        except Exception:  # operators raise many types of errors; the tensor is then unknown
            return
        for name, values in zip(node.output, zip(*results, strict=True), strict=False):
            if name:
                self.note(name, [np.asarray(value) for value in values])

    def varies(self, name: str) -> bool:
        """Return whether a tensor's values are known and depend on the number of frames."""
        values = self.of(name)
        return values is not None and any(
            array is not values[0] and not np.array_equal(values[0], array) for array in values
        )

    def depends_on_count(self, name: str) -> bool:
        """Return whether a tensor without frames depends, or may depend, on the number of frames."""
        return name in self.unknown or self.varies(name)


MAX_AXES = 64
"""Upper limit of axis indices when the batch's frames are placed: more dimensions than any tensor has."""
HELP = ", or export the model for a batch of 1"
"""Advice at the end of messages about nodes that can't compute a batch of several frames."""
COUNTED = f"computes with the number of frames of a batch; leave it out{HELP}"
"""Message about a node whose results depend on the number of frames in a batch."""


class Special(Enum):
    """Kind of a tensor that depends on a batch's frames but has no axis of them: for one frame, mixed, or ragged."""

    ONE_FRAME = "tensor of a model that ONNX Runtime can compute for one frame at a time only"
    MIXED = "tensor after a refused node"
    RAGGED = "rows of all frames, as many as the frames' values make"
    ADDRESSES = "ragged rows, sorted by frame, that begin with the frame's index"
    SIZES = "sizes of a tensor of ragged rows"
    ALIKE = "ragged rows that hold one constant"

    @property
    def is_ragged(self) -> bool:
        """Whether the number of rows depends on the frames' values."""
        return self not in (Special.ONE_FRAME, Special.MIXED)


class MixedError(Exception):
    """Error that a node mixes the frames of a batch, or may do so; its text is the reason."""


class OneFrameError(Exception):
    """Error that ONNX Runtime can compute a node only for one frame at a time."""


@dataclass(frozen=True)
class FrameOperands:
    """Operands of an ONNX node; at least one of them holds the frames of a batch along a known axis.

    Parameters
    ----------
    node : NodeProto
        Node.
    tensors : Tensors
        Facts about all tensors.
    """

    node: onnx.NodeProto
    tensors: Tensors

    @property
    def counts(self) -> Sequence[int]:
        """Sequence of batch sizes, in frames, that tensors are evaluated for if they depend on the batch size."""
        return self.tensors.counts

    @property
    def present_inputs(self) -> list[int]:
        """List of indices of the node's inputs that are not left out."""
        return [index for index, name in enumerate(self.node.input) if name]

    def name(self, index: int) -> str:
        """Return the name of the tensor that the node's input ``index`` reads; empty if it is left out."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def frames(self, index: int) -> Frames | None:
        """Return the place of the batch's frames in an input (`Frames`); ``None`` if it does not depend on them."""
        position = self.tensors.frames.get(self.name(index))
        assert not isinstance(position, Special)
        return position

    def shape(self, index: int) -> tuple[int, ...]:
        """Return, as a tuple, the shape of the node's input ``index``, with 0 for unknown sizes.

        Raises
        ------
        MixedError
            If not even the number of dimensions is known.
        """
        name = self.name(index)
        known = self.tensors.shape(name)
        arrays = None if name in self.tensors.frames else self.tensors.of(name)
        if arrays is not None:
            known = tuple(
                sizes[0] if len({*sizes}) == 1 else 0 for sizes in zip(*(array.shape for array in arrays), strict=False)
            )
        if known is None:
            raise MixedError(
                f"takes {name!r}, whose shape is not known; run onnx.shape_inference.infer_shapes on the model{HELP}"
            )
        return known

    def rank(self, index: int) -> int:
        """Return the number of dimensions of the node's input ``index``."""
        return len(self.shape(index))

    def sizes(self, index: int) -> tuple[int, ...] | None:
        """Return an input's shape (a tuple) with 1 in place of the frames; ``None`` if another size is unknown."""
        position = self.frames(index)
        shape = list(self.shape(index))
        if position is not None:
            shape[position.axis] = 1
        return None if 0 in shape else tuple(shape)

    def values(self, index: int, what: str) -> Sequence[np.ndarray]:
        """Return a sequence of the values of an input without frames, one array for each batch size in `counts`.

        Parameters
        ----------
        what : str
            Meaning of the input, for messages.

        Raises
        ------
        MixedError
            If the values depend on the frames, or are not known.
        """
        arrays = None if self.name(index) in self.tensors.frames else self.tensors.of(self.name(index))
        if arrays is None:
            raise MixedError(f"its {what} are not known before the model runs; give constants{HELP}")
        return arrays

    def listed(self, name: str, index: int) -> list[list[int]] | None:
        """Return the attribute ``name``, or else input ``index``: a list of integers per batch size in `counts`."""
        if value := attribute(self.node, name, ()):
            return [list(value)] * len(self.counts)
        if not self.name(index):
            return None
        return [array.ravel().tolist() for array in self.values(index, name)]

    def constant(self, name: str, index: int) -> list[int] | None:
        """Return the attribute ``name``, or else input ``index``, as a list of integers; ``None`` without either.

        Raises
        ------
        MixedError
            If it depends on the number of frames.
        """
        lists = self.listed(name, index)
        if lists is None:
            return None
        if any(other != lists[0] for other in lists):
            raise MixedError(COUNTED)
        return lists[0]

    def common(self, positions: Iterable[Frames]) -> Frames:
        """Return `Frames`: the place of the frames that ``positions`` agree on, or raise MixedError if they differ."""
        (first, *others) = dict.fromkeys(positions)
        if others:
            raise MixedError(f"takes the frames of a batch along different axes; move them to one axis{HELP}")
        return first

    def nonnegative(self, axes: Iterable[int]) -> list[int]:
        """Return a list of axes of the node's first input as non-negative indices of its dimensions."""
        return [axis if axis >= 0 else axis + self.rank(0) for axis in axes]

    def data_position(self) -> Frames:
        """Return `Frames`: the place of the frames in the first input; refuse a node with frames in other inputs."""
        position = self.frames(0)
        if position is None or any(self.name(index) in self.tensors.frames for index in self.present_inputs[1:]):
            raise MixedError(f"takes sizes or positions that depend on the frames; give constants{HELP}")
        return position

    def shared(self, indices: Iterable[int], axes: Iterable[int]) -> Frames:
        """Return the `Frames` (place of the frames) that the inputs ``indices`` have in common; refuse other nodes.

        Parameters
        ----------
        indices : iterable of int
            These inputs; all others must be constants.
        axes : iterable of int
            Axes along which the node combines, selects or reorders values of the inputs.
        """
        present = [index for index in indices if self.name(index)]
        self.check_constants(present)
        holding = [index for index in present if self.frames(index) is not None]
        position = self.common(self.check_axes(axes, index) for index in holding)
        for index in present:
            if index not in holding:
                self.check_alike(index, position.axis, position, whole=True)
        return position

    def check_axes(self, axes: Iterable[int], index: int = 0) -> Frames:
        """Refuse a node that works along the frames' axis of an input; return the frames' place in the input.

        ``axes``: axes along which the node combines, selects or reorders values, negative ones from the last.
        """
        position = self.frames(index)
        assert position is not None
        for axis in axes:
            if (axis if axis >= 0 else axis + self.rank(index)) == position.axis:
                raise MixedError(f"works along axis {axis}, which holds the frames; give other axes{HELP}")
        return position

    def check_constants(self, with_frames: Collection[int] = (0,)) -> None:
        """Refuse a node whose inputs other than ``with_frames`` depend on the frames, or on their number."""
        for index in self.present_inputs:
            if index not in with_frames:
                self.check_constant(index)

    def check_constant(self, index: int) -> None:
        """Refuse a node if its input ``index`` depends on the frames of a batch, or on their number."""
        name = self.name(index)
        if name in self.tensors.frames:
            raise MixedError(
                f"takes {name!r}, which depends on the frames, as its input {index}; give a constant{HELP}"
            )
        if self.depends_on_count(index):
            raise MixedError(COUNTED)

    def depends_on_count(self, index: int) -> bool:
        """Return whether an input without frames depends, or may depend, on the number of frames."""
        return self.tensors.depends_on_count(self.name(index))

    def check_alike(self, index: int, axis: int, position: Frames, *, whole: bool = False) -> None:
        """Refuse a node if an input without frames has different values for the frames of a batch of any size.

        Parameters
        ----------
        axis : int
            Axis of the input along which the frames of other inputs are; negative if the input has no such axis.
        position : Frames
            Position of the frames in other inputs.
        whole : bool
            Whether the input must be as long as the frames' axis, not of size 1 for all frames.

        Raises
        ------
        OneFrameError
            If the input fits one frame only.
        """
        arrays = self.tensors.of(self.name(index))
        if self.tensors.is_fixed:
            sizes = () if axis < 0 else self.shape(index)[axis : axis + 1]
            if whole and sizes not in ((position.size(self.counts[0]),), (0,)):
                raise MixedError(self.not_as_long(index, axis))
        elif arrays is not None and self.depends_on_count(index):
            first, *others = (
                _part(array, axis, position, count) for array, count in zip(arrays, self.counts, strict=True)
            )
            if first is None or any(part is None or not np.array_equal(part, first) for part in others):
                raise MixedError(COUNTED)
        elif arrays is None and self.depends_on_count(index):
            raise MixedError(COUNTED)
        elif axis >= 0:
            self._check_single_row(index, axis, position, whole=whole)

    def not_as_long(self, index: int, axis: int) -> str:
        """Return an error message: an operand does not have an entry for each frame along ``axis``."""
        name = self.name(index)
        return f"takes {name!r}, which is not as long as the batch along axis {axis}; repeat it for each frame{HELP}"

    def _check_single_row(self, index: int, axis: int, position: Frames, *, whole: bool) -> None:
        """Refuse a node if a constant has several rows along the frames' axis for a batch of any size."""
        rows = self.shape(index)[axis]
        if whole and rows == position.size(1):
            raise OneFrameError(self.not_as_long(index, axis))
        if whole:
            raise MixedError(self.not_as_long(index, axis))
        if rows != 1:
            raise MixedError(
                f"its constant {self.name(index)!r} has {rows} rows along axis {axis}, which holds any number of "
                f"frames; give it one row, or the model a batch of {rows}"
            )


Position = Frames | Special
"""Type of a batch's place in a tensor: an axis that holds the frames (`Frames`), or a `Special` case."""
Rule = Callable[[FrameOperands], Position | Sequence[Position]]
"""Type of a function from a node's `FrameOperands` to the `Position` of the frames in all its outputs, or in each.

It raises MixedError for a node that mixes frames, with the reason.
"""


def _part(array: np.ndarray, axis: int, position: Frames, count: int) -> np.ndarray | None:
    """Return the part of an array that each of ``count`` frames reads; ``None`` if frames read different parts."""
    if axis < 0:
        return array
    turned = np.moveaxis(array, axis, 0)
    if array.shape[axis] == 1:
        return turned[None]
    if array.shape[axis] != position.size(count):
        return None
    split = turned.reshape(position.before, count, position.behind, *turned.shape[1:])
    return split[:, 0] if (split == split[:, :1]).all() else None
