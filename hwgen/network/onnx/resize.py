"""Import of ONNX Resize and Upsample: nearest neighbours or linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import floor, lcm
from typing import Any, cast

import numpy as np
import onnx

from hwgen.network.floats import FloatLayer
from hwgen.network.maps import MAX_SIDE, IntegerType, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, copied, text
from hwgen.network.onnx.function_tables import FunctionWriter
from hwgen.network.onnx.infer import BATCH
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.runtime import reason
from hwgen.network.onnx.values import AccumulatorState, Applied, ConstantOperand, Integers, Map, Pending, Wide
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.ops import Interpolate, Resample, Upsample
from hwgen.network.ops.interpolate import MAX_FLOAT_PARTS
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.rescale import quotient

_MAX_PARTS = 4096
"""Maximum number of equal parts that a linear interpolation divides a pixel into, along an axis."""
_LISTS = {"axes", "keep_aspect_ratio_policy", "scales"}
"""Set of names of attributes of Resize and Upsample that refer to all dimensions of the tensor, not to a single axis.
"""


@dataclass(frozen=True)
class _Resizing:
    """Scales, or sizes, that a Resize or Upsample node has for each dimension of its tensor, batch included.

    Parameters
    ----------
    input_index : int or None
        Input of the node that holds the numbers; ``None`` if an attribute does.
    values : ndarray
        Scale of each dimension, or size of each dimension of the output.
    are_sizes : bool
        Whether the numbers are sizes.
    neutral : ndarray
        Numbers that leave each dimension unchanged.
    """

    input_index: int | None
    values: np.ndarray
    are_sizes: bool
    neutral: np.ndarray

    def by_axis(self, axes: tuple[int, ...]) -> dict[int, float]:
        """Return a dict by map axis of scales or sizes; ``axes``: map axes of the dimensions after the channels."""
        return {axis: self.values[2 + index] for index, axis in enumerate(axes)}


def _resize(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Resize or Upsample, as a layer that picks or interpolates pixels."""
    axes = build.spatial_axes(node)
    if isinstance(build.state, AccumulatorState):
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear)")
    mode = text(node, "mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise build.refusal(node, f"mode must be nearest or linear, not {mode}")
    way = text(node, "coordinate_transformation_mode", "half_pixel")
    if way == "tf_crop_and_resize":
        raise build.refusal(node, f"coordinate_transformation_mode {way!r} is not supported; crop with a Slice")
    resizing = _resizing(build, node, axes)
    # Between one pixel and itself nothing is interpolated.
    repeats = isinstance(build.state, Wide) and (build.map.height, build.map.width) == (1, 1)
    if mode == "linear" and not repeats and (resizing.values != resizing.neutral).any():
        _interpolate(build, node, resizing, axes)
    else:
        _append_pick(build, node, resizing, axes)


def _append_pick(build: Builder, node: onnx.NodeProto, resizing: _Resizing, axes: tuple[int, ...]) -> None:
    """Append a layer that picks one input pixel for each output pixel, unless the size stays the same."""
    build.leave_in_floats()
    here, dimensions = build.map, resizing.by_axis(axes)
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


def _interpolate(build: Builder, node: onnx.NodeProto, resizing: _Resizing, axes: tuple[int, ...]) -> None:
    """Import a Resize between DequantizeLinear and QuantizeLinear that interpolates between pixels."""
    here, state, is_wide = build.map, build.state, isinstance(build.state, Wide)
    if not isinstance(state, Integers | Wide):
        state = plain_operand(build, node)
    fits = here.type.bits <= MAX_BITS or is_wide
    if axes != (ROWS, COLUMNS) or not fits or attribute(node, "antialias", 0):
        raise build.refusal(
            node,
            f"interpolates maps of (N, C, H, W) with at most {MAX_BITS} bits, without antialias, not {here.type} laid "
            f"out as {build.view}",
        )
    dimensions = resizing.by_axis(axes)
    between = [
        _places(build, node, resizing, size, dimensions[axis])
        for axis, size in ((ROWS, here.height), (COLUMNS, here.width))
    ]
    build.view = View.channels_first((here.channels, len(between[0]), len(between[1])), axes)
    if isinstance(state, Wide):
        _emit_wide(build, node, state, between)
    elif isinstance(state, Integers):
        _emit_truncated(build, node, between)
    else:
        make = partial(_emit_interpolation, build, node, state.scale, between)
        build.state = Pending(node, make, make)


def _places(build: Builder, node: onnx.NodeProto, resizing: _Resizing, size: int, axis_number: float) -> list[Fraction]:
    """Return a list of the places of a Resize's output pixels along one axis, as fractions of input pixels."""
    count = int(axis_number) if resizing.are_sizes else int(size * axis_number)
    if not 1 <= count <= MAX_SIDE:
        raise build.refusal(node, f"its output must have 1 to {MAX_SIDE:,} pixels per side, not {count:,}")
    factor = Fraction(count, size) if resizing.are_sizes else Fraction(float(axis_number)).limit_denominator(_MAX_PARTS)
    transformation = text(node, "coordinate_transformation_mode", "half_pixel")
    if node.op_type == "Upsample" or len(node.input) == 2:
        transformation = "asymmetric"  # Upsample, and the first version of Resize, have this mode only
    if transformation == "asymmetric":
        places = [index / factor for index in range(count)]
    elif transformation == "align_corners":
        places = [Fraction(index * (size - 1), max(count - 1, 1)) for index in range(count)]
    elif transformation in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"):
        middle = Fraction(1, 2) * (transformation != "pytorch_half_pixel" or count > 1)
        ahead = Fraction(size - count / factor, 2) * (transformation == "half_pixel_symmetric")
        places = [ahead + (index + middle) / factor - middle for index in range(count)]
    else:
        raise build.refusal(node, f"coordinate_transformation_mode {transformation!r} is not supported")
    places = [min(max(place, Fraction(0)), Fraction(size - 1)) for place in places]
    if (parts := _common_parts(places)) > _MAX_PARTS:
        raise build.refusal(node, f"divides a pixel into {parts:,} parts; at most {_MAX_PARTS:,} are supported")
    return places


def _common_parts(places: Sequence[Fraction]) -> int:
    """Return the smallest number of equal parts of a pixel such that every position falls on a part's border."""
    return lcm(*{place.denominator for place in places})


def _weights(places: Sequence[Fraction], parts: int, halved: int | None) -> tuple[int, ...]:
    """Return, as a tuple, the interpolation weight of the pixel after each position, as a number of parts of a pixel.

    After the last of ``halved`` pixels ONNX Runtime adds two halves of this pixel.
    """
    return tuple(
        parts // 2 if halved is not None and place == halved - 1 else int((place - floor(place)) * parts)
        for place in places
    )


def _emit_interpolation(
    build: Builder,
    node: onnx.NodeProto,
    x_scale: np.float32,
    between: Sequence[Sequence[Fraction]],
    scale: np.float32,
    zero: int,
    integer_type: IntegerType,
) -> None:
    """Append a layer that interpolates at given positions and quantises to a given scale and zero point.

    ONNX Runtime computes floats. If the weights are multiples of a power of two, exact ties are frequent, and the layer
    computes the same floats. Otherwise it computes exact sums.
    """
    here = build.map
    if integer_type.bits > MAX_BITS:
        raise build.refusal(node, f"its output must have at most {MAX_BITS} bits, not {integer_type}")
    whole = [lcm(2, _common_parts(places)) for places in between]
    in_floats = all(count & (count - 1) == 0 and count <= MAX_FLOAT_PARTS for count in whole)
    rows, columns = whole if in_floats else [_common_parts(places) for places in between]
    _emit(
        build,
        node,
        between,
        Map(here.channels, len(between[0]), len(between[1]), integer_type, zero, scale),
        (rows, columns),
        x_scale=float(x_scale),
        y_scale=float(scale),
        in_floats=in_floats,
    )
    step = build.steps[-1]
    found = FloatLayer.of_interpolation(cast(Interpolate, step.frozen(step.input.frozen())))
    # With equal scales and an odd number of parts, no exact sum is nearer to a tie than half a part.
    tied = x_scale != scale or rows * columns % 2 == 0 or found.error * 2 * rows * columns >= 1
    if not in_floats and tied:
        build.float_layers.append(found)


def _emit_truncated(build: Builder, node: onnx.NodeProto, between: Sequence[Sequence[Fraction]]) -> None:
    """Append a layer that interpolates integers exactly and rounds towards 0, as in QOperator models.

    ONNX Runtime computes this in float32, which is exact if the weights are multiples of a power of two.
    """
    here = build.map
    rows, columns = (_common_parts(places) for places in between)
    if any(count & (count - 1) or count > MAX_FLOAT_PARTS for count in (rows, columns)):
        raise build.refusal(
            node,
            f"interpolates integers at parts of a pixel that must be powers of two, not {rows}x{columns}; quantise it "
            "in the form QDQ, with DequantizeLinear before and QuantizeLinear after it",
        )
    output = here.sized(here.channels, len(between[0]), len(between[1]))
    _emit(build, node, between, output, (rows, columns), x_scale=1.0, y_scale=1.0, in_floats=False, truncated=True)


def _emit_wide(build: Builder, node: onnx.NodeProto, state: Wide, between: Sequence[Sequence[Fraction]]) -> None:
    """Append a layer that interpolates fixed-point numbers; its outputs have the same step (LSB)."""
    here = build.map
    rows, columns = (_common_parts(places) for places in between)
    output, rule = here.sized(here.channels, len(between[0]), len(between[1])), quotient(here, rows * columns)
    _emit(build, node, between, output, (rows, columns), x_scale=1.0, y_scale=1.0, in_floats=False, requantisation=rule)
    build.state = replace(state, node=node, exact=False)


def _emit(
    build: Builder,
    node: onnx.NodeProto,
    between: Sequence[Sequence[Fraction]],
    output: Map,
    axis_parts: tuple[int, int],
    *,
    in_floats: bool,
    **parameters: Any,
) -> None:
    """Append an interpolation layer whose positions along rows and columns are multiples of ``1 / axis_parts``."""
    sizes = build.map.height, build.map.width
    row_weights, column_weights = (
        _weights(places, count, size if in_floats else None)
        for places, count, size in zip(between, axis_parts, sizes, strict=True)
    )
    build.emit(
        node,
        Interpolate,
        Window(kernel=(1, 1)),
        output,
        rows=tuple(map(floor, between[0])),
        columns=tuple(map(floor, between[1])),
        row_weights=row_weights,
        column_weights=column_weights,
        axis_parts=axis_parts,
        low=output.type.minimum,
        high=output.type.maximum,
        in_floats=in_floats,
        **parameters,
    )


def _resizing(build: Builder, node: onnx.NodeProto, axes: tuple[int, ...]) -> _Resizing:
    """Return a `_Resizing`: a Resize node's scales or sizes by tensor dimension; refuse a change of other axes.

    ``axes``: map axes of the tensor's dimensions after the channels.
    """
    rank = 2 + len(axes)
    present = [index for index in range(1, len(node.input)) if node.input[index]]
    scales_index = 1 if node.op_type == "Upsample" or len(node.input) == 2 else 2
    if node.op_type == "Resize" and 3 in present:
        sizes = np.asarray(build.constants.read(node, 3, "sizes"), np.float64)
        policy = text(node, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            raise build.refusal(node, f"keep_aspect_ratio_policy must be stretch, not {policy}")
        batch = build.batch or (BATCH if sizes.size and sizes.flat[0] == BATCH else 1)
        shape = np.array((batch, *build.view.shape), np.float64)
        resizing = _Resizing(3, _sizes_by_dimension(build, node, sizes, shape), True, shape)
    elif scales_index in present:
        scales = np.asarray(build.constants.read(node, scales_index, "scales"), np.float32)
        resizing = _Resizing(
            scales_index, _sizes_by_dimension(build, node, scales, np.ones(rank, np.float32)), False, np.ones(rank)
        )
    else:
        resizing = _Resizing(None, np.array(attribute(node, "scales", ()), np.float32), False, np.ones(rank))
    values, what = resizing.values, "sizes" if resizing.are_sizes else "scales"
    fit = values.shape == (rank,) and np.isfinite(values).all() and values[1:].min() > 0
    if not fit or (values[:2] != resizing.neutral[:2]).any():
        shown = ", ".join(f"{value:g}" for value in values.ravel()[:8])
        count = {3: "three", 4: "four"}[rank]
        raise build.refusal(node, f"{what} must be {count}, positive, and change only rows and columns, not [{shown}]")
    return resizing


def _sizes_by_dimension(build: Builder, node: onnx.NodeProto, listed: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return an array by dimension of scales or sizes: ``listed`` for a Resize node's ``axes``, otherwise ``others``.

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
    """Return the input index that ONNX Runtime picks for each output index of a Resize along an axis, int64.

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
    if not 1 <= count <= MAX_SIDE:
        raise build.refusal(node, f"its output must have 1 to {MAX_SIDE:,} pixels per side, not {count:,}")
    # ONNX Runtime copies a tensor whose size stays the same, so the other axis doubles.
    numbers = np.array([1, 1, axis_number, 2], np.int64 if resizing.are_sizes else np.float32)
    single = copied(node)
    del single.attribute[:]
    single.attribute.extend(each for each in node.attribute if each.name not in _LISTS)
    if resizing.input_index is None:
        single.attribute.append(onnx.helper.make_attribute("scales", numbers.tolist()))
    operands: list[ConstantOperand | str | None] = [None]
    for index, name in enumerate(node.input[1:], start=1):
        values = numbers if index == resizing.input_index else np.zeros(0, np.float32)
        operands.append(ConstantOperand(values) if name else "")
    writer = FunctionWriter(build.constants)
    output = writer.expression(Applied(single, tuple(operands)), "x")
    try:
        picked = writer.run(np.arange(size, dtype=np.float32).reshape(1, 1, size, 1), output, integers=False)
    except Exception as error:  # ONNX Runtime raises many types of errors
        raise build.refusal(node, f"ONNX Runtime refuses it: {reason(error)}") from None
    return picked[0, 0, :, 0].astype(np.int64)


OPERATORS = {"Resize": _resize, "Upsample": _resize}
"""Dictionary of functions that import Resize and Upsample, by the ONNX operator's name."""
