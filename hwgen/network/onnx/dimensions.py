"""Operators that only rename or reorder dimensions: they change how a tensor lies on its map, and no value.

`moved` says how, for the importer, and for the search of the map that the model's input becomes
(`hwgen.network.onnx.inputs`).
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
from hwgen.network.onnx.sizes import BATCH
from hwgen.network.onnx.views import View

_FLOATS = {"Flatten", "Tile"}
"""Those past which ONNX Runtime moves no DequantizeLinear and no QuantizeLinear."""


@dataclass(frozen=True)
class _Tensor:
    """What a node takes: a ``view``, in batches of ``batch`` frames (``None``: of any number)."""

    constants: Constants
    node: onnx.NodeProto
    view: View
    batch: int | None

    @property
    def rank(self) -> int:
        return 1 + len(self.view.dims)

    def integers(self, place: int, what: str) -> list[int]:
        """A list that is a constant operand."""
        array = self.constants.read(self.node, place, what)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ConfigError(f"{what} must be a list of integers, not {array.dtype} of shape {array.shape}")
        return array.tolist()

    def axes(self, rank: int) -> list[int] | None:
        """The ``axes`` that the node names, of ``rank`` dimensions, as places behind the batch; ``None`` if none."""
        if len(self.node.input) > 1 and self.node.input[1]:
            axes = self.integers(1, "axes")
        elif (axes := attribute(self.node, "axes", None)) is None:
            return None
        found = {int(axis) % rank for axis in axes}
        if len(found) < len(axes) or not all(-rank <= axis < rank for axis in axes):
            raise ConfigError(f"axes must be different ones of {rank} dimensions, not {list(axes)}")
        if 0 in found:
            raise ConfigError(f"axes must leave the batch the first dimension, not be {list(axes)}")
        return [axis - 1 for axis in sorted(found)]


def moved(constants: Constants, node: onnx.NodeProto, view: View, batch: int | None) -> View:
    """The view of what ``node``, one of `MOVES`, gives of a tensor with this ``view``.

    ``batch``: the frames of a batch, ``None`` if they may be any number. Raises ModelError where it can't be said.
    """
    try:
        return MOVES[node.op_type](_Tensor(constants, node, view, batch))
    except ConfigError as error:
        raise constants.refusal(node, str(error)) from None


def _transpose(of: _Tensor) -> View:
    order = list(attribute(of.node, "perm", range(of.rank)[::-1]))
    if sorted(order) != list(range(of.rank)):
        raise ConfigError(f"perm must be an order of {of.rank} dimensions, not {order}")
    if order[0] != 0:
        raise ConfigError(f"perm must leave the batch the first dimension, not be {order}")
    return of.view.transpose([place - 1 for place in order[1:]])


def _reshape(of: _Tensor) -> View:
    array, size = of.constants.read(of.node, 1, "shape"), of.view.size
    shape = array.tolist()
    refusal = ConfigError(
        f"must flatten to ({of.batch or 'batch'}, {size}) by shape [0, -1] or [-1, {size}], or give another shape of "
        f"as many values behind the batch, not {shape}"
    )
    if array.ndim != 1:
        raise refusal
    if not attribute(of.node, "allowzero", 0):
        known = [of.batch or 1, *of.view.shape]
        if 0 in shape[len(known) :]:
            raise refusal
        shape = [known[place] if size == 0 else size for place, size in enumerate(shape)]
    if shape[:1] == [BATCH]:
        shape[0] = of.batch or 1
    if not shape or shape.count(-1) > 1 or any(size < 1 for size in shape if size != -1):
        raise refusal
    frame = shape[1:]
    if -1 in frame:
        frame[frame.index(-1)] = max(1, size // prod(each for each in frame if each != -1))
    if prod(frame) != size or shape[0] not in (-1, of.batch or 1):
        raise refusal
    return of.view.reshape(frame)


def _flatten(of: _Tensor) -> View:
    axis = int(attribute(of.node, "axis", 1))
    place = axis % of.rank if axis < 0 else axis
    if not 1 <= place <= of.rank or prod(of.view.shape[: place - 1]) > 1:
        raise ConfigError(f"axis must be 1, not {axis}: the batch must be the first of two dimensions")
    return of.view.flatten()


def _squeeze(of: _Tensor) -> View:
    places = of.axes(of.rank)
    if places is None:
        if of.batch in (1, None):
            raise ConfigError("must name its axes: without them a batch of one frame would be squeezed out too")
        places = [place for place, size in enumerate(of.view.shape) if size == 1]
    return of.view.squeeze(places)


def _unsqueeze(of: _Tensor) -> View:
    named = of.integers(1, "axes") if len(of.node.input) > 1 else list(attribute(of.node, "axes", ()))
    return of.view.unsqueeze(of.axes(of.rank + len(named)) or [])


def _expand(of: _Tensor) -> View:
    shape = of.integers(1, "shape")
    known = [of.batch or 1, *of.view.shape]
    pairs = zip(shape[::-1], known[::-1], strict=False)
    if len(shape) > len(known) or any(size not in (1, here) for size, here in pairs):
        raise ConfigError(f"must not repeat values: shape must be of ones, or that of its input, not {shape}")
    return of.view


def _tile(of: _Tensor) -> View:
    repeats = of.integers(1, "repeats")
    if repeats != [1] * of.rank:
        raise ConfigError(f"must not repeat values: repeats must be {[1] * of.rank}, not {repeats}")
    return of.view


def _dropout(of: _Tensor) -> View:
    training = of.node.input[2] if len(of.node.input) > 2 else ""
    if training and of.constants.read(of.node, 2, "training_mode").any():
        raise ConfigError("training_mode must be false")
    return of.view


MOVES: dict[str, Callable[[_Tensor], View]] = {
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": lambda of: of.view,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


def _move(build: Builder, node: onnx.NodeProto) -> None:
    build.view = moved(build.constants, node, build.view, build.batch)
    if node.op_type in INTEGER_MOVES:
        build.follow(node)
    else:
        build.leave_in_floats()


INTEGER_MOVES = frozenset(MOVES) - _FLOATS
"""Operators of which ONNX Runtime makes operators of integers, where they stand between these and their quantiser."""
OPERATORS = dict.fromkeys(MOVES, _move)
