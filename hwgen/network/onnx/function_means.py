"""Averages of a function of one value, which ONNX Runtime computes in floats, for example of a Softplus.

The floats that the function makes of the integers become fixed-point numbers of 32 bits. Each number is divided into
digits, and a lookup per digit gives them. The digits of a channel are summed apart. A convolution weighs the sums by
the places of the digits, and rounds the mean:

    f(x) = unit * (d0(x) + base * d1(x) + ..)      mean = unit / count * (sum of d0 + base * sum of d1 + ..)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from hwgen.network.float32 import Label
from hwgen.network.maps import INT16, IntegerType, Window
from hwgen.network.onnx.builder import Builder
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.values import Map
from hwgen.network.ops import Concat, GlobalAveragePool
from hwgen.network.requantise import Requantisation
from hwgen.network.rescale import multiplier

_PRECISION = 32
"""Number of bits of the fixed-point numbers, with the sign.

Of values that are 256 times the mean, 24 bits of the mean are left: as many as float32 has.
"""
_DIGIT_BITS = 8
"""Largest number of bits of a digit."""


@dataclass(frozen=True)
class Digits:
    """Fixed-point form of a table of floats.

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
        """Return the digits, ``bits`` wide, of a table of finite floats."""
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


def refuse_uncounted(build: Builder, node: onnx.NodeProto, geometry: Geometry) -> None:
    """Refuse an average of floats whose windows have taps that do not count.

    ONNX Runtime's float kernel never counts taps past the padded map; its integer kernel counts them as padding.
    """
    if geometry.exceeds_padding:
        raise build.refusal(
            node,
            "averages floats, and with ceil_mode its last window reaches past the padded map, where taps do not count; "
            "quantise its input and output to one 8-bit type (ForceQuantizeNoInputCheck of ONNX Runtime's quantiser), "
            "or set ceil_mode to 0",
        )
    if any(geometry.window.padding) and not attribute(node, "count_include_pad", 0):
        raise build.refusal(
            node,
            "averages floats with padding that does not count; quantise its input and output to one 8-bit type "
            "(ForceQuantizeNoInputCheck of ONNX Runtime's quantiser), or set count_include_pad",
        )


def emit_mean_of_function(
    build: Builder,
    node: onnx.NodeProto,
    table: np.ndarray,
    geometry: Geometry,
    scale: np.float32,
    zero: int,
    integer_type: IntegerType,
) -> None:
    """Append the layers that average a function of the current map.

    Parameters
    ----------
    table : ndarray
        Value of the function for each integer of the map, float32 ``(channels or 1, integers)``.
    geometry : Geometry
        Window and output size of the average pool.
    scale, zero, integer_type
        Scale, zero point and type of the output.
    """
    here, window = build.map, geometry.window
    refuse_uncounted(build, node, geometry)
    whole = window.kernel == (here.height, here.width) and not any(window.padding)
    bits = _digit_bits(build, node, window.taps) if whole else _DIGIT_BITS
    digits = Digits.of(table, bits)
    _emit_digits(build, node, digits)
    if whole:
        _emit_sums(build, node, window)
        window = Window(kernel=(1, 1))
    channels, places = here.channels, len(digits.values)
    build.emit_select(node, np.arange(places * channels).reshape(places, channels).T.ravel().tolist())
    weights = np.tile(1 << bits * np.arange(places).reshape(1, -1, 1, 1), (channels, 1, *window.kernel))
    factor = np.float32(digits.unit / (float(scale) * geometry.window.taps))
    if not 0 < factor < np.inf:
        raise build.refusal(node, f"scale {scale:g} is out of range for means of values up to {np.abs(table).max():g}")
    significand, shift = multiplier(np.full(channels, factor), int(weights[0].sum()) << build.map.type.bits)
    low, high = integer_type.minimum, integer_type.maximum
    rule = Requantisation(significand=significand, shift=shift, zero_point=zero, low=low, high=high)
    build.emit_grouped(node, window, weights, rule, Map(channels, *geometry.size, integer_type, zero, scale))


def _digit_bits(build: Builder, node: onnx.NodeProto, pixels: int) -> int:
    """Return the width of digits whose sum over a whole map of ``pixels`` pixels fits 16 bits."""
    bits = min(_DIGIT_BITS, INT16.bits - (pixels - 1).bit_length())
    if bits < _DIGIT_BITS // 2:
        raise build.refusal(
            node, f"averages floats over {pixels:,} pixels; quantise its input, or average windows first"
        )
    return bits


def _emit_digits(build: Builder, node: onnx.NodeProto, digits: Digits) -> None:
    """Append a lookup per digit of a function, and their concatenation, lowest digits first."""
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


def _emit_sums(build: Builder, node: onnx.NodeProto, window: Window) -> None:
    """Append a layer that sums each channel of the current map of digits, in 16 bits."""
    channels = build.map.channels
    significand, shift = multiplier(np.ones(channels, np.float32), 1 << INT16.bits)
    rule = Requantisation(significand=significand, shift=shift, zero_point=0, low=INT16.minimum, high=INT16.maximum)
    output = Map(channels, 1, 1, INT16, 0, np.float32(1))
    build.emit(node, GlobalAveragePool, window, output, requantisation=rule)
