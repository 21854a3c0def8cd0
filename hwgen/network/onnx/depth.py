"""Import of ONNX DepthToSpace and SpaceToDepth, and of the Reshapes and Transposes that exporters write for them."""

from __future__ import annotations

import numpy as np
import onnx

from hwgen.network.maps import MAX_SIDE, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, text, title
from hwgen.network.onnx.select import check_operand
from hwgen.network.onnx.values import Integers, Reals
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.ops import DepthToSpace, SpaceToDepth


def _depth_to_space(build: Builder, node: onnx.NodeProto) -> None:
    size = _size(build, node)
    mode = text(node, "mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise build.refusal(node, f"mode must be DCR or CRD, not {mode}")
    channels = build.map.channels
    if channels % size**2:
        raise build.refusal(node, f"{channels} channels must be a multiple of the {size**2} pixels of a block")
    if mode == "CRD":  # the pixels of one output channel are neighbouring input channels
        build.emit_select(node, np.arange(channels).reshape(-1, size**2).T.ravel().tolist())
    emit_depth_to_space(build, node, (size, size))
    build.view = View.channels_first((channels // size**2, build.map.height, build.map.width))


def emit_depth_to_space(build: Builder, node: onnx.NodeProto, blocks: tuple[int, int]) -> None:
    """Append a DepthToSpace layer, which turns each pixel of the builder's current map into a block of pixels.

    Parameters
    ----------
    blocks : tuple of int
        Rows and columns of a block. The first pixel of a block gets the pixel's first channels, the next pixel the
        next.
    """
    here, (down, right) = build.map, blocks
    sizes = here.height * down, here.width * right
    if max(sizes) > MAX_SIDE:
        raise build.refusal(
            node, f"gives {sizes[0]:,} x {sizes[1]:,} pixels; at most {MAX_SIDE:,} per side are possible"
        )
    if blocks != (1, 1):
        output = here.sized(here.channels // (down * right), *sizes)
        build.emit(node, DepthToSpace, Window(kernel=(1, 1)), output, blocks=blocks)


def _space_to_depth(build: Builder, node: onnx.NodeProto) -> None:
    size, here = _size(build, node), build.map
    if here.height % size or here.width % size:
        raise build.refusal(node, f"{here.height}x{here.width} pixels must be whole blocks of {size}x{size}")
    if size > 1:
        _emit_space_to_depth(build, node, (size, size))
        build.view = View.channels_first((build.map.channels, build.map.height, build.map.width))


def _emit_space_to_depth(build: Builder, node: onnx.NodeProto, blocks: tuple[int, int]) -> None:
    """Append a SpaceToDepth layer, which turns each block of pixels of the builder's current map into one pixel."""
    here, (down, right) = build.map, blocks
    channels = here.channels * down * right
    if channels > MAX_SIDE:
        raise build.refusal(node, f"gives {channels:,} channels; at most {MAX_SIDE:,} can be")
    output = here.sized(channels, here.height // down, here.width // right)
    build.emit(node, SpaceToDepth, Window(kernel=(1, 1)), output, blocks=blocks)


def open_blocks(build: Builder, node: onnx.NodeProto) -> None:
    """Append the DepthToSpace or SpaceToDepth layer, if any, that turns the current value into a plain map (C, H, W).

    Exporters write both as a Reshape, a Transpose and another Reshape, which are only another view of the map.
    """
    if not isinstance(build.state, Integers) and not (isinstance(build.state, Reals) and not build.state.steps):
        return
    if to_space := build.view.depth_to_space():
        order, blocks = to_space
        build.leave_in_floats()
        build.emit_select(node, order.tolist())
        emit_depth_to_space(build, node, blocks)
    elif to_depth := build.view.space_to_depth():
        order, blocks = to_depth
        build.leave_in_floats()
        _emit_space_to_depth(build, node, blocks)
        build.emit_select(node, order.tolist())
    else:
        return
    build.view = View.channels_first((build.map.channels, build.map.height, build.map.width))


def _size(build: Builder, node: onnx.NodeProto) -> int:
    """Return the block size of a DepthToSpace or SpaceToDepth node: its number of rows, and of columns, in pixels."""
    check_operand(build, node)
    if build.spatial_axes(node) != (ROWS, COLUMNS):
        raise build.refusal(node, f"must take (N, C, H, W), but its input is laid out as {build.view}")
    if isinstance(build.state, Reals) and build.state.steps:
        raise build.refusal(node, f"must take a quantised input, but {title(build.state.steps[-1])!r} gives floats")
    size = int(attribute(node, "blocksize", 0))
    if not 1 <= size <= MAX_SIDE:
        raise build.refusal(node, f"blocksize must be 1 to {MAX_SIDE:,}, not {size}")
    build.leave_in_floats()
    return size


OPERATORS = {"DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth}
"""Functions that import DepthToSpace and SpaceToDepth, by the ONNX operator's name."""
