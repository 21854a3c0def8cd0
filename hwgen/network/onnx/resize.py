"""Import of ONNX Resize and Upsample to nearest neighbours, by whole factors."""

from __future__ import annotations

import numpy as np
import onnx

from hwgen.errors import ModelError
from hwgen.network.maps import MOST_SIDE, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.constants import BATCH
from hwgen.network.onnx.file import attribute, text
from hwgen.network.onnx.values import AccumulatorState
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.ops import Upsample

_ROUNDINGS = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda reals: np.ceil(reals - 0.5),
    "round_prefer_ceil": lambda reals: np.floor(reals + 0.5),
}
"""Rounding functions of ONNX Resize, by the attribute ``nearest_mode``."""


def _resize(build: Builder, node: onnx.NodeProto) -> None:
    """Import an ONNX Resize or Upsample that repeats each pixel."""
    axes = build.spatial_axes(node)
    if isinstance(build.state, AccumulatorState):
        raise build.refusal(node, "must take a quantised input (QuantizeLinear, DequantizeLinear)")
    mode = text(node, "mode", "nearest")
    if mode != "nearest":
        raise build.refusal(node, f"mode must be nearest, not {mode}")
    factors = _factors(build, node, axes)
    build.leave_in_floats()
    here = build.map
    sizes = here.height * factors[0], here.width * factors[1]
    if max(sizes) > MOST_SIDE:
        raise build.refusal(node, f"gives {sizes[0]:,} x {sizes[1]:,} pixels; at most {MOST_SIDE:,} a side can be")
    for size, factor in zip((here.height, here.width), factors, strict=True):
        if (_sources(build, node, size, factor) != np.arange(size * factor) // factor).any():
            raise build.refusal(
                node,
                f"must repeat each pixel {factor} times, which "
                f"{text(node, 'coordinate_transformation_mode', 'half_pixel')} with "
                f"{text(node, 'nearest_mode', 'round_prefer_floor')} does not",
            )
    if factors != (1, 1):
        build.view = View.channels_first((here.channels, *sizes), axes)
        build.emit(node, Upsample, Window(kernel=(1, 1)), here.sized(here.channels, *sizes), factors=factors)


def _factors(build: Builder, node: onnx.NodeProto, axes: tuple[int, ...]) -> tuple[int, int]:
    """Return the factors by which a Resize node enlarges rows and columns.

    ``axes``: map axes of the tensor's dimensions behind the channels.
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
        sizes = _spread(build, node, sizes, shape)
        scales = sizes / shape if sizes.shape == (rank,) else sizes
    elif scales_index in present:
        scales = np.asarray(build.constants.read(node, scales_index, "scales"), np.float64)
        scales = _spread(build, node, scales, np.ones(rank))
    else:
        scales = np.array(attribute(node, "scales", ()), np.float64)
    fit = scales.shape == (rank,) and np.isfinite(scales).all() and (scales == np.rint(scales)).all()
    if not fit or scales[:2].tolist() != [1, 1] or scales.min() < 1:
        shown = ", ".join(f"{value:g}" for value in scales.ravel()[:8])
        count = {3: "three", 4: "four"}[rank]
        raise build.refusal(node, f"scales must be {count}, whole, of rows and columns alone, not [{shown}]")
    factors = dict(zip(axes, scales[2:].tolist(), strict=True))
    return int(factors.get(ROWS, 1)), int(factors.get(COLUMNS, 1))


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


def _sources(build: Builder, node: onnx.NodeProto, size: int, factor: int) -> np.ndarray:
    """Return, for each index along an axis of Resize's output, the index along the input."""
    indices = np.arange(size * factor, dtype=np.float64)
    # Upsample, and the first version of Resize, have one mode only.
    if node.op_type == "Upsample" or len(node.input) == 2:
        return np.floor(indices / factor).astype(np.int64)
    mode = text(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        reals = indices / factor
    elif mode in ("half_pixel", "half_pixel_symmetric") or (mode == "pytorch_half_pixel" and size * factor > 1):
        reals = (indices + 0.5) / factor - 0.5
    elif mode == "pytorch_half_pixel":
        reals = indices * 0
    elif mode == "align_corners":
        reals = indices * (size - 1) / max(size * factor - 1, 1)
    else:
        raise _unknown(build, node, "coordinate_transformation_mode", mode)
    rounding = text(node, "nearest_mode", "round_prefer_floor")
    if rounding not in _ROUNDINGS:
        raise _unknown(build, node, "nearest_mode", rounding)
    return np.clip(_ROUNDINGS[rounding](reals), 0, size - 1).astype(np.int64)


def _unknown(build: Builder, node: onnx.NodeProto, what: str, value: str) -> ModelError:
    """Return the error that says that an attribute's value is not supported."""
    return build.refusal(node, f"{what} {value!r} is not supported")


OPERATORS = {"Resize": _resize, "Upsample": _resize}
"""Functions that import Resize and Upsample, by the ONNX operator's name."""
