"""Import of ONNX operators that only rename or reorder dimensions, such as Reshape and Transpose.

They change a tensor's layout on its map, and no value. `moved` computes the new layout. The importer uses it, and so
does the search for the map that the model's input becomes (`hwgen.network.onnx.inputs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import onnx

from hwgen.errors import ConfigError
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.infer import BATCH
from hwgen.network.onnx.views import View

_FLOATS = {"Flatten", "Tile"}
"""Set of names of ONNX operators on dimensions past which ONNX Runtime moves no quantiser, so that they move floats."""


@dataclass(frozen=True)
class _Tensor:
    """Input of a node that renames or reorders dimensions: its layout ``view``, and how to read the node's constants.

    Batches have ``batch`` frames (``None``: any number).
    """

    constants: Constants
    node: onnx.NodeProto
    view: View
    batch: int | None

    def integers(self, index: int, what: str) -> list[int]:
        """Return the list of integers in the constant input ``index`` of the node that reads the tensor."""
        array = self.constants.read(self.node, index, what)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ConfigError(f"{what} must be a list of integers, not {array.dtype} of shape {array.shape}")
        return array.tolist()

    def axes(self, rank: int) -> list[int] | None:
        """Return a node's ``axes`` as sorted dimension indices, the batch being 0; ``None`` if the node states no axes.

        The batch can be among them if it has one frame.

        Parameters
        ----------
        rank : int
            Number of dimensions that the axes refer to, with the batch.
        """
        if len(self.node.input) > 1 and self.node.input[1]:
            axes = self.integers(1, "axes")
        elif (axes := attribute(self.node, "axes", None)) is None:
            return None
        indices = {int(axis) % rank for axis in axes}
        if len(indices) < len(axes) or not all(-rank <= axis < rank for axis in axes):
            raise ConfigError(f"axes must be different ones of {rank} dimensions, not {list(axes)}")
        if 0 in indices and self.batch != 1:
            raise ConfigError(f"axes must leave the batch the first dimension, not be {list(axes)}")
        return sorted(indices)


def moved(constants: Constants, node: onnx.NodeProto, view: View, batch: int | None) -> View:
    """Return a `View`: the layout of the output of a node that only renames or reorders dimensions of its input.

    The node's operator is one of `MOVES`; ``view`` is the layout of its input.

    Parameters
    ----------
    batch : int or None
        Number of frames of a batch; ``None`` if it can be any number.

    Raises
    ------
    ModelError
        If the node changes more than the layout.
    """
    try:
        return MOVES[node.op_type](_Tensor(constants, node, view, batch))
    except ConfigError as error:
        raise constants.refusal(node, str(error)) from None


def _transpose(tensor: _Tensor) -> View:
    rank = tensor.view.rank
    order = list(attribute(tensor.node, "perm", range(rank)[::-1]))
    if sorted(order) != list(range(rank)):
        raise ConfigError(f"perm must be an order of {rank} dimensions, not {order}")
    if order[0] != 0 and tensor.batch != 1:
        raise ConfigError(f"perm must leave the batch the first dimension, not be {order}")
    return tensor.view.transpose(order)


def _reshape(tensor: _Tensor) -> View:
    array, size = tensor.constants.read(tensor.node, 1, "shape"), tensor.view.size
    shape = array.tolist()
    refusal = ConfigError(
        f"must flatten to ({tensor.batch or 'batch'}, {size}) by shape [0, -1] or [-1, {size}], or have another shape "
        f"with as many values per frame, not {shape}"
    )
    if array.ndim != 1 or not shape:
        raise refusal
    if -1 in shape[1:] and tensor.batch is None and shape[0] == 1:
        raise ConfigError(
            f"puts all frames of a batch into one by its shape {shape}; begin it with 0, or export the model for a "
            "batch of 1"
        )
    if shape[0] == BATCH:
        shape[0] = 1
    elif shape[0] > 0:  # for one frame from here
        shape[0], left = divmod(shape[0], tensor.batch or 1)
        if left or (tensor.batch is None and shape[0] > 1):
            raise refusal
    if not attribute(tensor.node, "allowzero", 0):
        if 0 in shape[len(tensor.view.all_sizes) :]:
            raise refusal
        shape = [tensor.view.all_sizes[position] if size == 0 else size for position, size in enumerate(shape)]
    if shape.count(-1) > 1 or any(size < 1 for size in shape if size != -1):
        raise refusal
    if -1 in shape:
        shape[shape.index(-1)] = max(1, size // prod(length for length in shape if length != -1))
    if prod(shape) != size:
        raise refusal
    return tensor.view.reshape(shape)


def _flatten(tensor: _Tensor) -> View:
    axis = int(attribute(tensor.node, "axis", 1))
    dimension = axis + tensor.view.rank if axis < 0 else axis
    if not 1 <= dimension <= tensor.view.rank:
        raise ConfigError(f"axis must be 1 to {tensor.view.rank}, not {axis}: the batch must not be cut off")
    return tensor.view.reshape([prod(tensor.view.all_sizes[:dimension]), prod(tensor.view.all_sizes[dimension:])])


def _squeeze(tensor: _Tensor) -> View:
    positions = tensor.axes(tensor.view.rank)
    if positions is None:
        if tensor.batch in (1, None):
            raise ConfigError("must name its axes: without them a batch of one frame would be squeezed out too")
        positions = [position for position, size in enumerate(tensor.view.all_sizes) if size == 1 and position]
    return tensor.view.squeeze(positions)


def _unsqueeze(tensor: _Tensor) -> View:
    named = tensor.integers(1, "axes") if len(tensor.node.input) > 1 else list(attribute(tensor.node, "axes", ()))
    return tensor.view.unsqueeze(tensor.axes(tensor.view.rank + len(named)) or [])


def _expand(tensor: _Tensor) -> View:
    shape = tensor.integers(1, "shape")
    known = [tensor.view.all_sizes[0] * (tensor.batch or 1), *tensor.view.all_sizes[1:]]
    pairs = zip(shape[::-1], known[::-1], strict=False)
    if len(shape) > len(known) or any(size not in (1, here) for size, here in pairs):
        raise ConfigError(
            f"must not repeat values: sizes in shape must be 1, or equal its input's {known}, not {shape}"
        )
    return tensor.view


def _tile(tensor: _Tensor) -> View:
    repeats = tensor.integers(1, "repeats")
    if repeats != [1] * tensor.view.rank:
        raise ConfigError(f"must not repeat values: repeats must be {[1] * tensor.view.rank}, not {repeats}")
    return tensor.view


def _dropout(tensor: _Tensor) -> View:
    training = tensor.node.input[2] if len(tensor.node.input) > 2 else ""
    if training and tensor.constants.read(tensor.node, 2, "training_mode").any():
        raise ConfigError("training_mode must be false, not true: export the model for inference")
    return tensor.view


MOVES: dict[str, Callable[[_Tensor], View]] = {
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": lambda tensor: tensor.view,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Dictionary of functions that compute a node's output layout, by ONNX operator that renames or reorders dimensions."""


def _import_move(build: Builder, node: onnx.NodeProto) -> None:
    """Import a node that only renames or reorders dimensions: change the layout of the builder's current value."""
    build.view = moved(build.constants, node, build.view, build.batch)
    if node.op_type in INTEGER_MOVES:
        build.note_moved_quantisers(node)
    else:
        build.leave_in_floats()


INTEGER_MOVES = frozenset(MOVES) - _FLOATS
"""Set of names of ONNX operators on dimensions that ONNX Runtime moves a neighbouring quantiser past, so that they move
integers."""
OPERATORS = dict.fromkeys(MOVES, _import_move)
"""Dictionary by ONNX operator of functions that import operators that rename or reorder dimensions."""
