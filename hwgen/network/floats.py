"""Layers that ONNX Runtime computes in float32, with bounds on how far its values differ from the hardware's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.network.ops import Conv, Interpolate, Op

_OTHER_ROUNDINGS = 10
"""Number of float32 roundings in a layer's result besides one per addition: operands, products and scales."""
_BIAS_ERROR = 2.0**-15
"""Maximum rounding error of a bias or a zero point in the hardware, in output LSBs."""
_NAMED = 4
"""Maximum number of layers that a message names."""
RARELY = 20_000
"""Reciprocal of the largest share of a fixed-point layer's values that may differ (by 1 LSB) from ONNX Runtime's."""


@dataclass(frozen=True)
class FloatLayer:
    """Layer that ONNX Runtime computes in float32, with a bound on how far its results differ from the hardware's.

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
        """Return a convolution's `FloatLayer`; an accumulator LSB is ``factor`` output LSBs, float32 ``(M,)``."""
        largest = float((magnitudes(conv) * factor.astype(np.float64)).max())
        return cls(conv.name, relative_rounding(conv) * largest + _BIAS_ERROR)

    @classmethod
    def of_average(cls, name: str, values: int, largest: float) -> FloatLayer:
        """Return the `FloatLayer` of an average of ``values`` values of magnitudes up to ``largest`` output LSBs."""
        return cls(name, (values + _OTHER_ROUNDINGS) * 2.0**-24 * largest + _BIAS_ERROR)

    @classmethod
    def of_interpolation(cls, layer: Interpolate) -> FloatLayer:
        """Return the `FloatLayer` of a linear interpolation, with its error bound and its share of ties.

        ONNX Runtime rounds the scale and the places along an axis, which are as large as the axis.
        """
        roundings = 2 * (layer.height + layer.width) + _OTHER_ROUNDINGS
        error = roundings * 2.0 ** (layer.input.type.bits - 24) * layer.x_scale / layer.y_scale
        return cls(layer.name, error, layer.ties)

    @property
    def largest_difference(self) -> int:
        """Maximum difference, in LSBs, between ONNX Runtime's and the hardware's output integers for equal inputs."""
        return math.floor(self.error) + 1


def magnitudes(conv: Conv) -> np.ndarray:
    """Return bounds on a convolution's sums' magnitudes, bias included, in accumulator LSBs: an array ``(M,)``."""
    positive, negative = conv.signed_sums
    return (positive - negative) * conv.input.type.reach(conv.input.zero_point) + np.ldexp(
        np.abs(conv.bias), -conv.fraction
    )


def relative_rounding(conv: Conv) -> float:
    """Return an upper bound on the float32 rounding error of a convolution's sums, as a share of `magnitudes`."""
    return (conv.weights[0].size + 1 + _OTHER_ROUNDINGS) * 2.0**-24


def summary_line(float_layers: Sequence[FloatLayer], layers: Sequence[Op]) -> str:
    """Return a line of text that tells how far float32 layers of ONNX Runtime can differ; empty without such layers.

    ``float_layers``: layers that compute with integers, and their bounds. Layers in fixed point are named, too.
    """
    texts = []
    if float_layers:
        worst = max(float_layers, key=lambda layer: layer.error)
        tied = max(float_layers, key=lambda layer: layer.ties)
        exact = f"; {100 * tied.ties:.2g} % of random results of {tied.name} are exactly there" if tied.ties else ""
        texts.append(
            f"ONNX Runtime computes {len(float_layers):,} of {len(layers):,} layers in float32 "
            f"({_names([layer.name for layer in float_layers])}): from equal inputs its values differ by at most "
            f"{worst.largest_difference:,}, and only where a result is within about {worst.error:.2g} of the middle "
            f"between two integers{exact}"
        )
    if fixed := [layer.name for layer in layers if layer.in_fixed_point]:
        texts.append(
            f"floats between quantisers are computed in fixed point in {len(fixed):,} of {len(layers):,} layers "
            f"({_names(fixed)}): from equal inputs ONNX Runtime's values differ by at most 1, in at most 1 of "
            f"{RARELY:,}, where results are not exactly in the middle between two integers"
        )
    return "; ".join(texts)


def _names(names: Sequence[str]) -> str:
    """Return the first 4 layer names, joined by commas, and the number of further ones, as text."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
