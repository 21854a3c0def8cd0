"""Layers that ONNX Runtime computes in float32, and how far its values can be from the hardware's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.network.ops import Conv, Interpolate

_OTHER_ROUNDINGS = 10
"""Number of roundings to float32 besides one per addition: of operands, products and scales, on either side."""
_BIAS_ERROR = 2.0**-15
"""Largest rounding error of a bias or a zero point in the hardware, in steps of the output."""
_NAMED = 4
"""Largest number of layers that a text names."""


@dataclass(frozen=True)
class FloatLayer:
    """Layer that ONNX Runtime computes in float32, because it doesn't fuse the layer with the quantisers around it.

    Parameters
    ----------
    name : str
        Name of the layer.
    error : float
        Upper bound on the difference between ONNX Runtime's results and the hardware's before both round them to
        integers, in steps of the output, for equal inputs.
    ties : float
        Share of random results that are exactly halfway between two integers, where ONNX Runtime's roundings decide.
    """

    name: str
    error: float
    ties: float = 0.0

    @classmethod
    def of_convolution(cls, conv: Conv, factor: np.ndarray) -> FloatLayer:
        """Return the layer of a convolution whose accumulators are ``factor`` steps of the output, float32 ``(M,)``."""
        largest = float((magnitudes(conv) * factor.astype(np.float64)).max())
        return cls(conv.name, relative_rounding(conv) * largest + _BIAS_ERROR)

    @classmethod
    def of_average(cls, name: str, values: int, largest: float) -> FloatLayer:
        """Return the layer of an average of ``values`` values, of magnitudes up to ``largest`` steps of the output."""
        return cls(name, (values + _OTHER_ROUNDINGS) * 2.0**-24 * largest + _BIAS_ERROR)

    @classmethod
    def of_interpolation(cls, layer: Interpolate) -> FloatLayer:
        """Return the layer of a linear interpolation.

        ONNX Runtime rounds the scale and the places along an axis, which are as large as the axis.
        """
        roundings = 2 * (layer.height + layer.width) + _OTHER_ROUNDINGS
        error = roundings * 2.0 ** (layer.input.type.bits - 24) * layer.x_scale / layer.y_scale
        return cls(layer.name, error, layer.ties)

    @property
    def largest_difference(self) -> int:
        """Largest difference between an integer of ONNX Runtime's and one of the hardware's, for equal inputs."""
        return math.floor(self.error) + 1


def magnitudes(conv: Conv) -> np.ndarray:
    """Return upper bounds on the sums of the magnitudes of a convolution's products, with its bias, ``(M,)``."""
    positive, negative = conv.signed_sums
    zero, integer_type = conv.input.zero_point, conv.input.type
    reach = max(integer_type.maximum - zero, zero - integer_type.minimum)
    return (positive - negative) * reach + np.ldexp(np.abs(conv.bias), -conv.fraction)


def relative_rounding(conv: Conv) -> float:
    """Return the bound on the difference of a convolution's sums in float32, as a share of `magnitudes`."""
    return (conv.weights[0].size + 1 + _OTHER_ROUNDINGS) * 2.0**-24


def line(layers: Sequence[FloatLayer], count: int) -> str:
    """Return a line of text on the layers, out of ``count``, that ONNX Runtime computes in float32; empty for none."""
    if not layers:
        return ""
    names = ", ".join(layer.name for layer in layers[:_NAMED])
    more = f" and {len(layers) - _NAMED:,} more" if len(layers) > _NAMED else ""
    worst, tied = max(layers, key=lambda layer: layer.error), max(layers, key=lambda layer: layer.ties)
    exact = f"; {100 * tied.ties:.2g} % of random results of {tied.name} are exactly there" if tied.ties else ""
    return (
        f"ONNX Runtime computes {len(layers):,} of {count:,} layers in float32 ({names}{more}): from equal inputs its "
        f"values differ by at most {worst.largest_difference:,}, and only where a result is within about "
        f"{worst.error:.2g} of the middle between two integers{exact}"
    )
