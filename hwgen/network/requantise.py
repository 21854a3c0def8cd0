"""Requantisation: from the accumulators of a layer to its integers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """From accumulators to outputs: ``clip(round_half_even(acc * significand / 2**shift) + zero_point)``.

    ``significand`` (24 bits, in ``[2**23, 2**24)``) and ``shift`` (0 or more) are int64 arrays of one entry an
    output channel: together the float32 ``x_scale * w_scale / y_scale``. ``low`` and ``high`` are the bounds
    after the zero point, those of the output type or tighter where a Relu or Clip was fused.

    With ``float32`` the accumulator is rounded to float32 before the product, and the product before it is rounded to
    an integer, as ONNX Runtime's integer kernels do; all roundings are to nearest, ties to even. Without it the
    product is exact.
    """

    significand: np.ndarray
    shift: np.ndarray
    zero_point: int
    low: int
    high: int
    float32: bool = False

    def of(self, channels: slice) -> Requantisation:
        """That of some output channels."""
        return replace(self, significand=self.significand[channels], shift=self.shift[channels])


def requantise(accumulators: np.ndarray, requantisation: Requantisation, bound: int) -> np.ndarray:
    """Integer accumulators ``(M, n)`` to int64 outputs ``(M, n)``.

    ``bound`` is the largest magnitude among ``accumulators`` that can occur, below 2**60. Outputs have 32 bits at most.
    """
    significand, shift = requantisation.significand[:, None], requantisation.shift[:, None]
    if requantisation.float32:
        # Products are below 2**84. Where the factor is below float32's least normal number they are far below 1/2.
        factor = np.ldexp(significand.astype(np.float32), -np.minimum(shift, 1 << 10).astype(np.int32))
        product = np.rint(accumulators.astype(np.float32) * factor)
        reach = np.float32(1 << 33)  # beyond any output
        quotient = np.clip(product, -reach, reach).astype(np.int64)
    elif bound << 24 < 1 << 61:
        quotient = _rounded(accumulators * significand, shift)
    else:
        # Products past int64. Where the shift is below 24, the factor is 1 or more: what is clamped saturates anyway.
        clamped = np.clip(accumulators, -(1 << 33), 1 << 33)
        quotient = np.where(
            shift < 24,
            _rounded(clamped * significand, np.minimum(shift, 23)),
            _rounded_in_halves(accumulators, significand, np.maximum(shift, 24)),
        )
    quotient += requantisation.zero_point
    return np.clip(quotient, requantisation.low, requantisation.high, out=quotient)


def _rounded(product: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``product / 2**shift``, half to even; ``product`` below 2**61."""
    shift = np.minimum(shift, 62)  # makes 0 of every product
    quotient = product >> shift
    product -= quotient << shift
    # Twice the remainder against the divisor: above rounds up, equal rounds up to even.
    product <<= 1
    product += quotient & 1
    quotient += product > (np.ones_like(shift) << shift)
    return quotient


def _rounded_in_halves(accumulators: np.ndarray, significand: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``accumulators * significand / 2**shift``, half to even, for products past int64 and shifts of 24 or more.

    A product is ``upper * 2**24 + lower``; only whether bits of ``lower`` below its highest one are set matters.
    """
    lower = (accumulators & 0xFFFFFF) * significand
    upper = (accumulators >> 24) * significand + (lower >> 24)
    # Halves of the last place of ``upper``, and whether there is more.
    more = (lower & 0x7FFFFF) != 0
    shift = np.minimum(shift - 24, 61)  # makes 0 of every product
    quotient = upper >> shift
    twice = ((upper - (quotient << shift)) << 1) + (lower >> 23 & 1)
    divisor = np.ones_like(shift) << shift
    quotient += (twice > divisor) | ((twice == divisor) & (more | (quotient & 1 == 1)))
    return quotient
