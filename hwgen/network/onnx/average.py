"""Import of average pools and means over whole maps in quantised ONNX models.

ONNX Runtime has integer kernels for pools right behind a DequantizeLinear whose inputs and outputs have one 8-bit type.
It averages floats elsewhere. The mean of the integers is then rounded once.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx

from hwgen.network.float32 import quantize_linear
from hwgen.network.floats import FloatLayer
from hwgen.network.maps import IntegerType, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute, by, title
from hwgen.network.onnx.function_means import Geometry, emit_mean_of_function, refuse_uncounted
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.values import Map, Pending, Reals
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.onnx.windows import padding_mode
from hwgen.network.ops import AveragePool, GlobalAveragePool
from hwgen.network.ops.join import MOST_BITS
from hwgen.network.options import ROUNDED
from hwgen.network.requantise import Requantisation
from hwgen.network.rescale import fit_mean, multiplier

_FACTORS = (2.0**-32, 256.0)
"""Range of requantisation factors that ONNX Runtime's kernel for global average pools accepts.

The upper end is excluded.
"""


def _pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import an AveragePool, GlobalAveragePool or ReduceMean between DequantizeLinear and QuantizeLinear."""
    state = _operand(build, node)
    if state.steps:
        table, geometry = _reals(build, node, state), _geometry(build, node)
        mean = partial(emit_mean_of_function, build, node, table, geometry)
        build.state = Pending(node, mean, mean)
        return
    in_integers = "Pool" in node.op_type and node.input[0] == state.tensor
    given = build, node, state.scale, _geometry(build, node)
    mean = partial(_emit_mean, *given)
    build.state = Pending(node, partial(_emit, *given) if in_integers else mean, mean)


def _operand(build: Builder, node: onnx.NodeProto) -> Reals:
    """Return the state of an average's dequantised input, with a function of it if ``steps`` are left.

    A Relu or Clip whose results are steps of the map's scale becomes bounds of the map or a layer.
    """
    state = build.state
    if isinstance(state, Reals) and state.steps and not state.by_runtime and state.table is not None:
        scale, zero, integer_type = state.scale, state.zero, build.map.type
        on_grid = (quantize_linear(state.table, scale, zero, integer_type) - zero).astype(np.float32) * scale
        if not state.pools and (on_grid == state.table).all():
            build.requantise_reals(node, state, scale, zero, integer_type)
            build.state = state = Reals(state.node, scale, zero, tensor="")
    return state if isinstance(state, Reals) and state.steps else plain_operand(build, node)


def _reals(build: Builder, node: onnx.NodeProto, state: Reals) -> np.ndarray:
    """Return the float that operators in front of an average make of each integer of the map, float32.

    Its shape is ``(channels or 1, integers)``.
    """
    last, bits = title(state.steps[-1]), build.map.type.bits
    if state.for_sums or bits > MOST_BITS:
        raise build.refusal(
            node,
            f"must take a quantised input, but {last!r} gives floats; quantise it too: ONNX Runtime's quantiser does "
            "so in its form QDQ, with ForceQuantizeNoInputCheck",
        )
    table = build.function(state).reals() if state.by_runtime else build.table(state)
    if not np.isfinite(table).all():
        raise build.refusal(node, f"averages what {last!r} gives: NaN or infinity for some integers of its map")
    return table


def _qlinear_pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import a QLinearAveragePool or QLinearGlobalAveragePool of com.microsoft."""
    if attribute(node, "channels_last", 0):
        raise build.refusal(node, "channels_last 1 is not supported, 0 is")
    x_scale, _ = build.quantised_input(node, 1)
    geometry = _geometry(build, node)
    _emit(build, node, x_scale, geometry, *build.constants.per_tensor(node, 3, build.map.type.dtype))


def _geometry(build: Builder, node: onnx.NodeProto) -> Geometry:
    """Return an average pool's geometry over the current map, and set the new layout.

    The layout of the builder's current value becomes that of the output.
    """
    here = build.map
    if node.op_type == "ReduceMean" or "Global" in node.op_type:
        build.view = build.whole_maps(node)
        return Geometry(Window(kernel=(here.height, here.width)), (1, 1))
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
    return Geometry(window, size, exceeds_padding=_exceeds_padding(node, window, axes))


def _exceeds_padding(node: onnx.NodeProto, window: Window, axes: tuple[int, ...]) -> bool:
    """Return whether a pool with ``ceil_mode`` has a window that reaches past the map as its attributes pad it.

    ``axes``: map axis of each dimension of the pool.
    """
    if padding_mode(node) != "NOTSET":
        return False
    pads = attribute(node, "pads", (0,) * 2 * len(axes))
    behind = dict(zip(axes, pads[len(axes) :], strict=True))
    return any(window.padding[2 + axis - ROWS] > behind.get(axis, 0) for axis in (ROWS, COLUMNS))


def _emit(
    build: Builder,
    node: onnx.NodeProto,
    x_scale: np.float32,
    geometry: Geometry,
    scale: np.float32,
    zero: int,
    integer_type: IntegerType,
) -> None:
    """Append an average pool layer to the network.

    With ``averages`` rounded, the sum of a window is in steps of 1. It is then exact in float32, in any order.

    Parameters
    ----------
    x_scale : float32
        Scale of the input.
    geometry : Geometry
        Window and output size of the average pool.
    scale, zero, integer_type
        Scale, zero point and type of the output.
    """
    here, window, size = build.map, geometry.window, geometry.size
    if integer_type != here.type or integer_type.bits != 8:
        if node.op_type.startswith("QLinear"):
            raise build.refusal(
                node, f"must take and give integers of one 8-bit type, not {here.type} and {integer_type}"
            )
        _emit_mean(build, node, x_scale, geometry, scale, zero, integer_type)
        return
    if "Global" in node.op_type:
        output = Map(here.channels, 1, 1, integer_type, zero, scale)
        rule = _whole_map(build, node, x_scale, output)
        build.emit(node, GlobalAveragePool, window, output, requantisation=rule)
        return
    unit, step = float(x_scale), float(scale)
    if build.options.averages == ROUNDED and np.frexp(x_scale)[0] != 0.5:  # sums in steps of powers of two are exact
        unit, step = 1.0, float(np.float32(step / unit))
    build.emit(
        node,
        AveragePool,
        window,
        Map(here.channels, *size, integer_type, zero, scale),
        x_scale=unit,
        y_scale=step,
        include_padding=bool(attribute(node, "count_include_pad", 0)),
    )
    if unit != x_scale:
        reach = max(here.type.maximum - (here.zero_point or 0), (here.zero_point or 0) - here.type.minimum)
        layer = FloatLayer.of_average(build.steps[-1].name, window.taps, reach / step)
        build.float_layers.append(layer)
        build.warnings.append(
            f"{title(node)}: averages of integers are rounded once; where one is near the middle between two integers, "
            f"it differs from ONNX Runtime's by at most {layer.largest_difference:,}"
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


def _emit_mean(
    build: Builder,
    node: onnx.NodeProto,
    x_scale: np.float32,
    geometry: Geometry,
    scale: np.float32,
    zero: int,
    integer_type: IntegerType,
) -> None:
    """Append a layer that rounds the mean of integers once, as `_emit` appends an average pool.

    Means of whole maps are a global average pool. Others are a depthwise convolution with equal weights.
    """
    here, window, size = build.map, geometry.window, geometry.size
    refuse_uncounted(build, node, geometry)
    output = Map(here.channels, *size, integer_type, zero, scale)
    mean = fit_mean(
        (here.type.minimum - (here.zero_point or 0), here.type.maximum - (here.zero_point or 0)),
        window.taps,
        (float(x_scale), float(scale)),
        (zero, integer_type.minimum, integer_type.maximum),
        here.channels,
    )
    if mean.ties:
        build.warnings.append(
            f"{title(node)}: ONNX Runtime averages floats here; where a mean is halfway between two integers, its "
            "roundings decide, and results differ by 1"
        )
    if mean.weight == 1 and window.kernel == (here.height, here.width) and not any(window.padding):
        build.emit(node, GlobalAveragePool, window, output, requantisation=mean.rule)
    else:
        build.emit_sum(node, window, mean.weight, mean.rule, output)


OPERATORS = {
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "QLinearAveragePool": _qlinear_pool,
    "QLinearGlobalAveragePool": _qlinear_pool,
    "ReduceMean": _pool,
}
"""Functions that import average pools, by the ONNX operator's name."""
