"""Average pools on the engine: as sums that are requantised, where that gives every value."""

from __future__ import annotations

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.network.ops import AveragePool
from hwgen.network.requantise import Requantisation, requantise

#: Half a step of float32, relative to a number; and a bit more, for products of errors.
_HALF_STEP = 1.01 * 2.0**-24


def average_rule(op: AveragePool) -> Requantisation:
    """How a window's sum of integers less their zero point becomes its average.

    ONNX Runtime adds real values in float32, tap by tap. Where a rounded sum may lie on either side of a tie, by the
    order of its values, no function of the integers' sum gives its output.

    Raises
    ------
    ModelError
        If some window's output isn't what the rule gives, or may not be.
    """
    count, most = int(op.counts.min()), int(op.counts.max())
    if count != most:
        raise ModelError(
            f"{op.name}: the engine divides the sums of all windows by one number; those at the map's edges have "
            f"{count} values, others {most}"
        )
    kind, zero = op.output.type, op.output.zero_point
    mantissa, exponent = np.frexp(np.float32(op.x_scale / (count * op.y_scale)))
    rule = Requantisation(
        significand=np.array([int(mantissa * (1 << SIGNIFICAND_BITS))]),
        shift=np.array([SIGNIFICAND_BITS - int(exponent)]),
        zero_point=zero,
        low=kind.minimum,
        high=kind.maximum,
        float32=True,
    )
    low, high = (end - op.input.zero_point for end in (op.input.type.minimum, op.input.type.maximum))
    sums = np.arange(op.taps * low, op.taps * high + 1)
    wanted = op.rounded(sums.astype(np.float32) * np.float32(op.x_scale), count)
    differ = requantise(sums[None], rule, 1 << 24)[0] != wanted
    differ |= _depends_on_order(op, sums, low, high, count)
    if differ.any():
        raise ModelError(
            f"{op.name}: the average of windows with a sum of {int(sums[differ][0])} above zero points lies "
            f"so near a tie that ONNX Runtime's order of additions decides; the engine adds integers"
        )
    return rule


def _depends_on_order(op: AveragePool, sums: np.ndarray, low: int, high: int, count: int) -> np.ndarray:
    """Of which sums the output may depend on the order of the values, from ``low`` to ``high``, in float32."""
    mantissa = int(np.frexp(np.float32(op.x_scale))[0] * (1 << SIGNIFICAND_BITS))
    bits = SIGNIFICAND_BITS - ((mantissa & -mantissa).bit_length() - 1)
    if bits + int(np.abs(sums).max()).bit_length() <= SIGNIFICAND_BITS:
        return np.zeros(len(sums), bool)  # no sum is rounded
    part = np.maximum(sums - op.taps * low, 0), np.minimum(sums - op.taps * high, 0)  # what some of the taps sum up to
    partial = np.maximum(np.minimum(part[0], op.taps * high), -np.maximum(part[1], op.taps * low))
    total = np.minimum(sums - 2 * op.taps * min(low, 0), 2 * op.taps * max(high, 0) - sums)  # of magnitudes
    step = op.x_scale / (count * op.y_scale)
    values = sums * step + op.output.zero_point
    error = _HALF_STEP * ((total + op.taps * partial + 2 * np.abs(sums)) * step + np.abs(values) + 1)
    kind = op.output.type
    inside = (values > kind.minimum - 1) & (values < kind.maximum + 1)
    return inside & (np.abs(values - np.floor(values) - 0.5) <= error)
