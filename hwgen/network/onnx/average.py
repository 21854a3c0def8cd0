"""Import of ONNX average pools and means.

ONNX Runtime computes the mean of a function of one value, for example of a Softplus, in floats. The floats that the
function makes of the integers become fixed-point numbers of 32 bits. Each number is divided into digits, and a lookup
per digit gives them. The digits of a channel are summed separately. A convolution weighs the sums by the places of the
digits, and rounds the mean:

    f(x) = unit * (d0(x) + base * d1(x) + ..)      mean = unit / count * (sum of d0 + base * sum of d1 + ..)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from hwgen.network.float32 import Label, quantize_linear
from hwgen.network.floats import FloatLayer
from hwgen.network.maps import INT16, IntegerType, Window
from hwgen.network.onnx.builder import Builder, are_dropped
from hwgen.network.onnx.constants import Quantisation
from hwgen.network.onnx.file import attribute, by, title
from hwgen.network.onnx.joins import bounds
from hwgen.network.onnx.qdq import plain_operand
from hwgen.network.onnx.values import AccumulatorState, Affine, Integers, Joined, Map, Reals
from hwgen.network.onnx.views import COLUMNS, ROWS, View
from hwgen.network.onnx.windows import padding_mode
from hwgen.network.ops import AveragePool, Concat, GlobalAveragePool
from hwgen.network.ops.join import MAX_BITS
from hwgen.network.options import ROUNDED
from hwgen.network.rescale import fit_mean, rule_of

_PRECISION = 32
"""Width, in bits with the sign, of the fixed-point numbers that stand for the floats which a pool averages.

If values are 256 times the mean, 24 bits of the mean are left: as many as float32 has.
"""
_DIGIT_BITS = 8
"""Maximum width, in bits, of the signed digits that the averaged fixed-point numbers are split into."""


@dataclass(frozen=True)
class Digits:
    """Table of floats as sums of signed digits: float = unit * sum of ``digit[i] * 2**(bits * i)``.

    Parameters
    ----------
    values : ndarray
        Digits from the lowest to the highest, int64 ``(digits, channels or 1, integers)``. Each has ``bits`` bits, with
        a sign.
    bits : int
        Width of a digit.
    unit : float
        Real value of 1 in the lowest digit, a power of two.
    """

    values: np.ndarray
    bits: int
    unit: float

    @classmethod
    def of(cls, table: np.ndarray, bits: int) -> Digits:
        """Return `Digits`: table of finite floats, converted to fixed point and split into digits of ``bits`` bits."""
        count = -(-_PRECISION // bits)
        limit = sum((1 << bits - 1) - 1 << bits * index for index in range(count))
        largest = float(np.abs(table).max())
        exponent = int(np.ceil(np.log2(largest / limit))) if largest else 0
        numbers = np.rint(np.ldexp(table.astype(np.float64), -exponent)).astype(np.int64)
        # Numbers that all end in zeros need fewer digits.
        while numbers.any() and not (numbers & 1).any():
            numbers, exponent = numbers >> 1, exponent + 1
        places, half = [], 1 << bits - 1
        while numbers.any() or not places:
            digit = (numbers + half & (1 << bits) - 1) - half
            places.append(digit)
            numbers = numbers - digit >> bits
        return cls(np.stack(places), bits, 2.0**exponent)


@dataclass(frozen=True)
class Geometry:
    """Window of an average pool, and the size of its output.

    Parameters
    ----------
    window : Window
        Window over the feature map.
    size : tuple of int
        Rows and columns of the output.
    exceeds_padding : bool
        Whether ``ceil_mode`` adds a window that reaches past the padded map.
    """

    window: Window
    size: tuple[int, int]
    exceeds_padding: bool = False


def covers(build: Builder, window: Window) -> bool:
    """Return whether a window covers exactly the builder's current map, without padding."""
    return window.kernel == (build.map.height, build.map.width) and not any(window.padding)


def refuse_uncounted(build: Builder, node: onnx.NodeProto, geometry: Geometry) -> None:
    """Refuse an average of floats whose windows include padding taps that the divisor does not count.

    ONNX Runtime's float kernel never counts taps past the padded map; its integer kernel counts them as padding.
    """
    if geometry.exceeds_padding:
        raise build.refusal(
            node,
            "averages floats, and with ceil_mode its last window reaches past the padded map, where taps don't count; "
            "quantise its input and output to one 8-bit type (ForceQuantizeNoInputCheck of ONNX Runtime's quantiser), "
            "or set ceil_mode to 0",
        )
    if any(geometry.window.padding) and not attribute(node, "count_include_pad", 0):
        raise build.refusal(
            node,
            "averages floats with padding that does not count; quantise its input and output to one 8-bit type "
            "(ForceQuantizeNoInputCheck of ONNX Runtime's quantiser), or set count_include_pad",
        )


def _mean_of_function(build: Builder, node: onnx.NodeProto, table: np.ndarray, geometry: Geometry) -> AccumulatorState:
    """Append layers that sum a function of the current map; return an `AccumulatorState`: the mean as sums.

    Parameters
    ----------
    table : ndarray
        Value of the function for each integer of the map, float32 ``(channels or 1, integers)``.
    geometry : Geometry
        Window and output size of the average pool.
    """
    refuse_uncounted(build, node, geometry)
    channels, window = build.map.channels, geometry.window
    build.state = Integers()
    whole = covers(build, window)
    bits = _digit_bits(build, node, window.taps) if whole else _DIGIT_BITS
    digits = Digits.of(table, bits)
    _emit_digits(build, node, digits)
    if whole:
        window = _emit_sums(build, node, window)
    places = len(digits.values)
    build.emit_select(node, np.arange(places * channels).reshape(places, channels).T.ravel().tolist())
    weights = np.tile(1 << bits * np.arange(places).reshape(1, -1, 1, 1), (channels, 1, *window.kernel))
    return _sums(build, node, replace(geometry, window=window), weights, digits.unit / geometry.window.taps)


def _sums(
    build: Builder, node: onnx.NodeProto, geometry: Geometry, weights: np.ndarray, unit: float
) -> AccumulatorState:
    """Return an `AccumulatorState`: sums of a depthwise convolution of the builder's current map.

    ``unit``: real value of one step of the sums.
    """
    channels, one = len(weights), np.ones(1, np.float32)
    bias, affine = np.zeros(channels, np.int64), Affine(np.full(channels, unit), np.zeros(channels))
    window, size, kind = geometry.window, geometry.size, build.map.type
    sums = AccumulatorState(node, window, weights, bias, one[0], one, kind, size, groups=channels, affine=affine)
    return replace(sums, rounded=False)


def _digit_bits(build: Builder, node: onnx.NodeProto, pixels: int) -> int:
    """Return the width, in bits, of digits whose sum over a map of ``pixels`` pixels fits 16 bits."""
    bits = min(_DIGIT_BITS, INT16.bits - (pixels - 1).bit_length())
    if bits < _DIGIT_BITS // 2:
        raise build.refusal(
            node, f"averages floats over {pixels:,} pixels; quantise its input, or average windows first"
        )
    return bits


def _emit_digits(build: Builder, node: onnx.NodeProto, digits: Digits) -> None:
    """Append a lookup layer per digit of a function of the builder's current map, and a Concat, lowest digit first."""
    whole, digit = build.value, IntegerType(bits=digits.bits, signed=True)
    maps = []
    for table in digits.values:
        build.enter(whole)
        build.shared = True
        build.emit_lookup(node, table, np.float32(1), 0, digit)
        maps.append(build.value)
    if len(maps) > 1:
        output = build.map.sized(len(maps) * build.map.channels, build.map.height, build.map.width)
        labels = (Label(1.0, 0),) * (len(maps) + 1)
        build.emit_join(node, Concat, maps, output, labels=labels, low=digit.minimum, high=digit.maximum)


def _emit_sums(build: Builder, node: onnx.NodeProto, window: Window) -> Window:
    """Append a layer that sums each channel of the map in 16 bits; return the 1x1 `Window` for the next layer."""
    channels = build.map.channels
    rule = rule_of(np.ones(channels), 1, INT16.ends)
    output = Map(channels, 1, 1, INT16, 0, np.float32(1))
    build.emit(node, GlobalAveragePool, window, output, requantisation=rule)
    return Window(kernel=(1, 1))


_FACTORS = (2.0**-32, 256.0)
"""Pair: range of requantisation factors (x_scale / (y_scale * pixels)) that ONNX Runtime's pool accepts.

The upper end is excluded.
"""


@dataclass(frozen=True)
class _Average:
    """Average (for a ReduceSum the sum) of windows of the builder's current map, until its quantiser is known.

    Parameters
    ----------
    build : Builder
    node : NodeProto
    x_scale : float32
        Scale of the input.
    geometry : Geometry
        Window and output size of the average pool.
    """

    build: Builder
    node: onnx.NodeProto
    x_scale: np.float32
    geometry: Geometry

    def make(self, state: Joined, scale: np.float32, zero: int, integer_type: IntegerType) -> None:
        """Append the layer of the average, with the output's scale, zero point and type."""
        to = Quantisation(scale, zero, integer_type)
        is_fused = not state.in_floats and are_dropped(state.bounds, *to)
        has_kernel = is_fused and integer_type == self.build.map.type and integer_type.bits == 8
        if not has_kernel:
            self._emit_mean(to, state.bounds)
        elif "Global" in self.node.op_type:
            self._emit_global(to)
        else:
            self._emit_pool(to)

    def sums(self) -> AccumulatorState:
        """Return an `AccumulatorState`: the average as sums of a convolution of unit weights.

        If sums over a whole map fit 16 bits, a separate layer computes them, and the convolution's window is 1x1.
        """
        build, node, geometry = self.build, self.node, self.geometry
        refuse_uncounted(build, node, geometry)
        here, window = build.map, geometry.window
        if covers(build, window) and window.taps * here.reach <= INT16.maximum:
            window = _emit_sums(build, node, window)
        weights = np.ones((here.channels, 1, *window.kernel), np.int64)
        count = 1 if node.op_type == "ReduceSum" else geometry.window.taps
        sums = _sums(build, node, replace(geometry, window=window), weights, float(self.x_scale) / count)
        return replace(sums, averages=True)

    def _output(self, to: Quantisation) -> Map:
        """Return the output `Map`, quantised with ``to``."""
        return Map(self.build.map.channels, *self.geometry.size, to.type, to.zero, to.scale)

    def _emit_pool(self, to: Quantisation) -> None:
        """Append a layer that averages windows of the current map as ONNX Runtime's integer kernel does.

        With the option ``averages`` set to rounded, the sum of a window is in steps of 1, which float32 adds exactly in
        any order.
        """
        build, node, window = self.build, self.node, self.geometry.window
        unit, step = float(self.x_scale), float(to.scale)
        is_exact = np.frexp(self.x_scale)[0] == 0.5  # sums in steps of powers of two
        if build.options.averages == ROUNDED and not is_exact:
            unit, step = 1.0, float(np.float32(step / unit))
        reach, padding = build.map.reach, bool(attribute(node, "count_include_pad", 0))
        build.emit(node, AveragePool, window, self._output(to), x_scale=unit, y_scale=step, include_padding=padding)
        if unit != self.x_scale:
            layer = FloatLayer.of_average(build.steps[-1].name, window.taps, reach / step)
            build.float_layers.append(layer)
            build.warnings.append(
                f"{title(node)}: averages of integers are rounded once; if one is near the middle between two "
                f"integers, it differs from ONNX Runtime's by at most {layer.largest_difference:,}"
            )

    def _emit_global(self, to: Quantisation) -> None:
        """Append a global average pool that averages the current map as ONNX Runtime's integer kernel does."""
        here = self.build.map
        pixels = here.height * here.width
        factor = np.float32(self.x_scale / (to.scale * np.float32(pixels)))
        if not _FACTORS[0] <= factor < _FACTORS[1]:
            why = f"x_scale / (y_scale * {pixels}) must be from 2**-32 to below 256, not {factor:g}"
            raise self.build.refusal(self.node, why)
        bound = pixels * (here.type.maximum - here.type.minimum)
        rule = rule_of(np.full(here.channels, factor), bound, here.type.ends, to.zero, float32=True)
        window = self.geometry.window
        self.build.emit(self.node, GlobalAveragePool, window, self._output(to), requantisation=rule)

    def _emit_mean(self, to: Quantisation, clips: Sequence[tuple[float, float]]) -> None:
        """Append a layer that averages windows of integers of the current map exactly and rounds each mean once.

        Means of whole maps are a global average pool. Others are a depthwise convolution with equal weights.

        Parameters
        ----------
        clips : sequence of tuple
            Bounds (low, high) of each Relu and Clip after the average.
        """
        build, node, window = self.build, self.node, self.geometry.window
        refuse_uncounted(build, node, self.geometry)
        here, output = build.map, self._output(to)
        lowest, highest = (end - (here.zero_point or 0) for end in here.type.ends)
        scales = float(self.x_scale), float(to.scale)
        mean = fit_mean((lowest, highest), window.taps, scales, (to.zero, *bounds(clips, output)), here.channels)
        if mean.ties:
            build.warnings.append(
                f"{title(node)}: ONNX Runtime averages floats here; where a mean is halfway between two integers, its "
                "roundings decide, and results differ by 1"
            )
        if mean.weight == 1 and covers(build, window):
            build.emit(node, GlobalAveragePool, window, output, requantisation=mean.rule)
        else:
            build.emit_sum(node, window, mean.weight, mean.rule, output)


def _pool(build: Builder, node: onnx.NodeProto) -> None:
    """Import an AveragePool, GlobalAveragePool or ReduceMean between DequantizeLinear and QuantizeLinear."""
    if _drops_only_ones(build, node):
        return
    state = _operand(build, node)
    if state.steps:
        build.state = _mean_of_function(build, node, _reals(build, node, state), geometry_of(build, node))
        return
    in_floats = "Pool" not in node.op_type or node.input[0] != state.tensor
    average = _Average(build, node, state.scale, geometry_of(build, node))
    build.state = Joined(node, average.make, in_floats=in_floats, sums=average.sums)


def as_sums(state: Joined) -> AccumulatorState | None:
    """Return an average as an `AccumulatorState`; ``None`` if it is not one, or a MaxPool follows."""
    if state.sums is None or state.pools:
        return None
    sums = state.sums()
    for low, high in state.bounds:
        sums.low, sums.high = (min(max(end, low), high) for end in (sums.low, sums.high))
    return sums


def _reduce_sum(build: Builder, node: onnx.NodeProto) -> None:
    """Import a ReduceSum that sums all pixels of each channel of a dequantised map."""
    if _drops_only_ones(build, node):
        return
    state = plain_operand(build, node)
    build.state = _Average(build, node, state.scale, geometry_of(build, node)).sums()


def _drops_only_ones(build: Builder, node: onnx.NodeProto) -> bool:
    """Return whether a node after an average only drops dimensions of size 1; if so, set the new layout."""
    if not isinstance(build.state, AccumulatorState) or build.view.sizes[1:] != (1, 1):
        return False
    build.view = build.whole_maps(node)
    return True


def _operand(build: Builder, node: onnx.NodeProto) -> Reals:
    """Return `Reals`: the state of an average's dequantised input; if ``steps`` are left, a function of it is averaged.

    A Relu or Clip whose results are steps of the map's scale becomes bounds of the map or a layer.
    """
    state = build.state
    if isinstance(state, Reals) and state.steps and not state.by_runtime and state.table is not None:
        scale, zero, integer_type = state.scale, state.zero, build.map.type
        on_grid = (quantize_linear(state.table, scale, zero, integer_type) - zero).astype(np.float32) * scale
        if not state.pools and (on_grid == state.table).all():
            build.requantise_reals(node, state, Quantisation(scale, zero, integer_type))
            build.state = state = Reals(state.node, scale, zero, tensor="")
    return state if isinstance(state, Reals) and state.steps else plain_operand(build, node)


def _reals(build: Builder, node: onnx.NodeProto, state: Reals) -> np.ndarray:
    """Return the float that an average reads for each integer of the map, as a table ``(channels or 1, integers)``."""
    last, bits = title(state.steps[-1]), build.map.type.bits
    if state.for_sums or bits > MAX_BITS:
        raise build.refusal(
            node,
            f"must take a quantised input, but {last!r} gives floats; quantise it too: ONNX Runtime's quantiser does "
            "so in its form QDQ, with ForceQuantizeNoInputCheck",
        )
    table = build.function(state).reals() if state.by_runtime else build.table(state)
    if not np.isfinite(table).all():
        raise build.refusal(node, f"averages what {last!r} gives: NaN or infinity for some integers of its map")
    return table


def geometry_of(build: Builder, node: onnx.NodeProto) -> Geometry:
    """Return the `Geometry` (window, output size) of an average pool over the current map; set the layout to it."""
    here = build.map
    if node.op_type.startswith("Reduce") or "Global" in node.op_type:
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
    after = dict(zip(axes, pads[len(axes) :], strict=True))
    return any(window.padding[2 + axis - ROWS] > after.get(axis, 0) for axis in (ROWS, COLUMNS))


OPERATORS = {
    "AveragePool": _pool,
    "GlobalAveragePool": _pool,
    "ReduceMean": _pool,
    "ReduceSum": _reduce_sum,
}
"""Dictionary of functions that import average pools, by the ONNX operator's name."""
