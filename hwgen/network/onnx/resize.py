"""Import of ONNX Resize and Upsample to nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from hwgen.network.maps import MOST_SIDE, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import BATCH
from hwgen.network.onnx.file import attribute, copied, line, text
from hwgen.network.onnx.function_tables import FunctionWriter
from hwgen.network.onnx.values import AccumulatorState, Applied, ConstantOperand
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.ops import Resample, Upsample

_LISTS = {"axes", "keep_aspect_ratio_policy", "scales"}
"""ONNX attributes of Resize and Upsample on the dimensions of the whole tensor."""


@dataclass(frozen=True)
class _Resizing:
    """Numbers that a Resize or Upsample node has for the tensor's dimensions.

    Parameters
    ----------
    input_index : int or None
        Input of the node that holds the numbers; ``None`` if an attribute does.
    values : ndarray
        Scale of each dimension, or size of each dimension behind the node.
    are_sizes : bool
        Whether the numbers are sizes.
    """

    input_index: int | None
    values: np.ndarray
    are_sizes: bool


def _resize(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Resize or Upsample that picks a pixel for each output pixel."""
    axes = build.spatial_axes(node)
    if isinstance(build.state, AccumulatorState):
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear)")
    mode = text(node, "mode", "nearest")
    if mode != "nearest":
        raise build.refusal(node, f"mode must be nearest, not {mode}")
    way = text(node, "coordinate_transformation_mode", "half_pixel")
    if way == "tf_crop_and_resize":
        raise build.refusal(node, f"coordinate_transformation_mode {way!r} is not supported; crop with a Slice")
    resizing = _resizing(build, node, axes)
    build.leave_in_floats()
    here = build.map
    dimensions = {axis: resizing.values[2 + index] for index, axis in enumerate(axes)}
    rows, columns = (
        _sources(build, node, resizing, size, dimensions.get(axis))
        for axis, size in ((ROWS, here.height), (COLUMNS, here.width))
    )
    sizes = len(rows), len(columns)
    if sizes == (here.height, here.width):
        return  # ONNX Runtime copies the tensor, whatever the scales are
    build.view = View.channels_first((here.channels, *sizes), axes)
    factors = sizes[0] // here.height, sizes[1] // here.width
    repeated = [
        np.array_equal(sources, np.arange(size * factor) // factor)
        for sources, size, factor in zip((rows, columns), (here.height, here.width), factors, strict=True)
        if factor
    ]
    output, window = here.sized(here.channels, *sizes), Window(kernel=(1, 1))
    if repeated != [True, True]:
        build.emit(node, Resample, window, output, rows=tuple(rows.tolist()), columns=tuple(columns.tolist()))
    else:
        build.emit(node, Upsample, window, output, factors=factors)


def _resizing(build: Builder, node: onnx.NodeProto, axes: tuple[int, ...]) -> _Resizing:
    """Return the numbers by which a Resize node resizes, for each dimension of its tensor.

    ``axes``: map axes of the tensor's dimensions behind the channels.
    """
    rank = 2 + len(axes)
    present = [index for index in range(1, len(node.input)) if node.input[index]]
    scales_index = 1 if node.op_type == "Upsample" or len(node.input) == 2 else 2
    neutral = np.ones(2)
    if node.op_type == "Resize" and 3 in present:
        sizes = np.asarray(build.constants.read(node, 3, "sizes"), np.float64)
        policy = text(node, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            raise build.refusal(node, f"keep_aspect_ratio_policy must be stretch, not {policy}")
        batch = build.batch or (BATCH if sizes.size and sizes.flat[0] == BATCH else 1)
        shape = np.array((batch, *build.view.shape), np.float64)
        resizing = _Resizing(3, _spread(build, node, sizes, shape), True)
        neutral = shape[:2]
    elif scales_index in present:
        scales = np.asarray(build.constants.read(node, scales_index, "scales"), np.float32)
        resizing = _Resizing(scales_index, _spread(build, node, scales, np.ones(rank, np.float32)), False)
    else:
        resizing = _Resizing(None, np.array(attribute(node, "scales", ()), np.float32), False)
    values, what = resizing.values, "sizes" if resizing.are_sizes else "scales"
    fit = values.shape == (rank,) and np.isfinite(values).all() and values.min() > 0
    if not fit or (values[:2] != neutral).any():
        shown = ", ".join(f"{value:g}" for value in values.ravel()[:8])
        count = {3: "three", 4: "four"}[rank]
        raise build.refusal(node, f"{what} must be {count}, positive, and change rows and columns alone, not [{shown}]")
    return resizing


def _spread(build: Builder, node: onnx.NodeProto, listed: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each dimension's scale or size: from ``listed`` for a Resize node's ``axes``, otherwise from ``others``.

    ``listed`` has an entry per axis, ``others`` an entry per dimension. Without ``axes``, ``listed`` is the result.
    """
    axes = attribute(node, "axes", None)
    if axes is None:
        return listed
    if listed.shape != (len(axes),):
        raise build.refusal(node, f"axes must be as many as scales or sizes, which are of shape {listed.shape}")
    spread = others.copy()
    spread[list(axes)] = listed  # ONNX's shape inference has checked that they differ
    return spread


def _sources(
    build: Builder, node: onnx.NodeProto, resizing: _Resizing, size: int, axis_number: float | None
) -> np.ndarray:
    """Return, for each index along an axis of Resize's output, the index along the input, as ONNX Runtime picks it.

    Parameters
    ----------
    size : int
        Size of the input along the axis.
    axis_number : float or None
        Scale or size of the axis; ``None`` if the tensor has no such dimension.
    """
    if axis_number is None:
        return np.arange(size)
    count = int(axis_number) if resizing.are_sizes else int(size * axis_number)
    if not 1 <= count <= MOST_SIDE:
        raise build.refusal(node, f"gives {count:,} pixels a side; 1 to {MOST_SIDE:,} can be")
    # ONNX Runtime copies a tensor whose size stays the same, so the other axis doubles.
    numbers = np.array([1, 1, axis_number, 2], np.int64 if resizing.are_sizes else np.float32)
    alone = copied(node)
    del alone.attribute[:]
    alone.attribute.extend(each for each in node.attribute if each.name not in _LISTS)
    if resizing.input_index is None:
        alone.attribute.append(onnx.helper.make_attribute("scales", numbers.tolist()))
    operands: list[ConstantOperand | str | None] = [None]
    for index, name in enumerate(node.input[1:], start=1):
        values = numbers if index == resizing.input_index else np.zeros(0, np.float32)
        operands.append(ConstantOperand(values) if name else "")
    writer = FunctionWriter(build.constants)
    output = writer.expression(Applied(alone, tuple(operands)), "x")
    try:
        picked = writer.run(np.arange(size, dtype=np.float32).reshape(1, 1, size, 1), output, integers=False)
    except Exception as error:  # ONNX Runtime raises many types of errors
        raise build.refusal(node, f"ONNX Runtime can't run it on its own: {line(error)}") from None
    return picked[0, 0, :, 0].astype(np.int64)


OPERATORS = {"Resize": _resize, "Upsample": _resize}
"""Functions that import Resize and Upsample, by the ONNX operator's name."""
