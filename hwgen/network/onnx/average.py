"""Import of average pools in quantised ONNX models, for which ONNX Runtime has integer kernels.

Their inputs and outputs have the same 8-bit type.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx

from hwgen.network.maps import IntegerType, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, by
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.values import Map, Pending
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.ops import AveragePool, GlobalAveragePool
from hwgen.network.requantise import Requantisation
from hwgen.network.rescale import multiplier

_FACTORS = (2.0**-32, 256.0)
"""Range of requantisation factors that ONNX Runtime's kernel for global average pools accepts.

The upper end is excluded.
"""


def _pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import an AveragePool or GlobalAveragePool between DequantizeLinear and QuantizeLinear.

    ONNX Runtime fuses the three nodes into one operator.
    """
    state = plain_operand(build, node)
    if node.input[0] != state.tensor:
        raise build.refusal(
            node,
            "must stand right behind a DequantizeLinear, with nothing in between: "
            "ONNX Runtime may average floats otherwise",
        )
    build.state = Pending(node, partial(_emit, build, node, state.scale, _geometry(build, node)))


def _qlinear_pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QLinearAveragePool or QLinearGlobalAveragePool of com.microsoft."""
    if attribute(node, "channels_last", 0):
        raise build.refusal(node, "channels_last 1 is not supported, 0 is")
    x_scale, _ = build.quantised_input(node, 1)
    geometry = _geometry(build, node)
    _emit(build, node, x_scale, geometry, *build.constants.per_tensor(node, 3, build.map.type.dtype))


def _geometry(build: Builder, node: onnx.NodeProto) -> tuple[Window, tuple[int, int]]:
    """Return an average pool's window over the current map, and its output's rows and columns; set the new layout.

    The layout of the builder's current value becomes that of the output.
    """
    here = build.map
    if "Global" in node.op_type:
        averaged = build.view.averaged()
        if averaged is None or len(build.view.dims) == 1:
            flat = "must come before Flatten; " if len(build.view.dims) == 1 else ""
            raise build.refusal(node, f"{flat}needs channels first, but its input is laid out as {build.view}")
        build.view = averaged
        return Window(kernel=(here.height, here.width)), (1, 1)
    axes = build.spatial_axes(node)
    window, size = build.pool_window(node, (here.height, here.width), axes)
    if window.dilation != (1, 1):
        raise build.refusal(node, f"dilation {by(window.dilation)} is not supported, 1x1 is")
    if axes == (COLUMNS, ROWS) and min(window.kernel) > 1:
        raise build.refusal(
            node,
            f"its input is laid out as {build.view}: ONNX Runtime adds in another order than the hardware; "
            "only windows of one row or column may be so",
        )
    build.view = View.channels_first((here.channels, *size), axes)
    return window, size


def _emit(
    build: Builder,
    node: onnx.NodeProto,
    x_scale: np.float32,
    geometry: tuple[Window, tuple[int, int]],
    scale: np.float32,
    zero: int,
    integer_type: IntegerType,
) -> None:
    """Append an average pool layer to the network.

    Parameters
    ----------
    x_scale : float32
        Scale of the input.
    geometry : tuple
        Window over the map, and rows and columns of the output.
    scale, zero, integer_type
        Scale, zero point and type of the output.
    """
    here, (window, size) = build.map, geometry
    if integer_type != here.type or integer_type.bits != 8:
        raise build.refusal(
            node,
            f"must take and give integers of one 8-bit type, not {here.type} and {integer_type}: "
            "ONNX Runtime averages others in floats",
        )
    if "Global" in node.op_type:
        output = Map(here.channels, 1, 1, integer_type, zero, scale)
        rule = _whole_map(build, node, x_scale, output)
        build.emit(node, GlobalAveragePool, window, output, requantisation=rule)
        return
    build.emit(
        node,
        AveragePool,
        window,
        Map(here.channels, *size, integer_type, zero, scale),
        x_scale=float(x_scale),
        y_scale=float(scale),
        include_padding=bool(attribute(node, "count_include_pad", 0)),
    )


def _whole_map(build: Builder, node: onnx.NodeProto, x_scale: np.float32, output: Map) -> Requantisation:
    """Return the requantisation with which a global average pool turns the sum of a channel into its average."""
    here = build.map
    assert output.scale is not None
    pixels, integer_type = here.height * here.width, here.type
    factor = np.float32(x_scale / (output.scale * np.float32(pixels)))
    if not _FACTORS[0] <= factor < _FACTORS[1]:
        raise build.refusal(node, f"x_scale / (y_scale * {pixels}) must be from 2**-32 to below 256, not {factor:g}")
    bound = pixels * (integer_type.maximum - integer_type.minimum)
    significand, shift = (np.repeat(array, here.channels) for array in multiplier(np.array([factor]), bound))
    return Requantisation(
        significand=significand,
        shift=shift,
        zero_point=output.zero_point or 0,
        low=integer_type.minimum,
        high=integer_type.maximum,
        float32=True,
    )


def _reduce_mean(build: Builder, node: onnx.NodeProto) -> None:
    """Refuse an ONNX ReduceMean that is not part of a layer."""
    raise build.refusal(
        node,
        "is not supported before a layer or a QuantizeLinear: ONNX Runtime averages floats here, in an order that "
        "depends on the processor; GlobalAveragePool (and a Squeeze) averages integers",
    )


OPERATORS = {
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "QLinearAveragePool": _qlinear_pool,
    "QLinearGlobalAveragePool": _qlinear_pool,
    "ReduceMean": _reduce_mean,
}
"""Functions that import average pools, by the ONNX operator's name."""
