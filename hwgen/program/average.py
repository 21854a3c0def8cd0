"""Average pools on the engine as requantised sums of windows, refused unless every result equals ONNX Runtime's."""

from __future__ import annotations

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.network.ops import AveragePool
from hwgen.network.requantise import Requantisation, requantise

#: Half a unit in the last place of float32, relative to the value, plus 1 % for products of errors.
_HALF_STEP = 1.01 * 2.0**-24


def average_rule(op: AveragePool) -> Requantisation:
    """Return the requantisation from a window's integer sum to an average pool's output, as ONNX Runtime rounds it.

    ONNX Runtime adds real values in float32, tap by tap. The rounded sum can fall on either side of a tie, depending on
    the order of the values. Then no function of the integers' sum gives ONNX Runtime's output.

    Raises
    ------
    ModelError
        If the windows have different numbers of values, or if the rule's output differs, or can differ, from ONNX
        Runtime's for some sum.
    """
    count, max_count = int(op.counts.min()), int(op.counts.max())
    if count != max_count:
        raise ModelError(
            f"{op.name}: the engine divides the sums of all windows by one number; those at the map's edges have "
            f"{count} values, others {max_count}"
        )
    integer_type, zero_point = op.output.type, op.output.zero_point
    mantissa, exponent = np.frexp(np.float32(op.x_scale / (count * op.y_scale)))
    rule = Requantisation(
        significand=np.array([int(mantissa * (1 << SIGNIFICAND_BITS))]),
        shift=np.array([SIGNIFICAND_BITS - int(exponent)]),
        zero_point=zero_point,
        low=integer_type.minimum,
        high=integer_type.maximum,
        float32=True,
    )
    low, high = (end - op.input.zero_point for end in (op.input.type.minimum, op.input.type.maximum))
    sums = np.arange(op.taps * low, op.taps * high + 1)
    expected = op.rounded(sums.astype(np.float32) * np.float32(op.x_scale), count)
    differ = requantise(sums[None], rule, 1 << 24)[0] != expected
    differ |= _depends_on_order(op, sums, low, high, count)
    if differ.any():
        raise ModelError(
            f"{op.name}: the average of windows with a sum of {int(sums[differ][0])} above zero points lies "
            f"so near a tie that the order of additions in ONNX Runtime decides; the engine adds integers"
        )
    return rule


def _depends_on_order(op: AveragePool, sums: np.ndarray, low: int, high: int, count: int) -> np.ndarray:
    """Return, for each sum of a window, whether the order of ONNX Runtime's additions can change the pool's output.

    ``sums`` are the integer sums of a window. The values of a window, less the zero point, are integers from ``low`` to
    ``high``.
    """
    mantissa = int(np.frexp(np.float32(op.x_scale))[0] * (1 << SIGNIFICAND_BITS))
    bits = SIGNIFICAND_BITS - ((mantissa & -mantissa).bit_length() - 1)
    if bits + int(np.abs(sums).max()).bit_length() <= SIGNIFICAND_BITS:
        return np.zeros(len(sums), bool)  # no sum is rounded
    partial_range = np.maximum(sums - op.taps * low, 0), np.minimum(sums - op.taps * high, 0)  # sum of some of the taps
    max_partial = np.maximum(np.minimum(partial_range[0], op.taps * high), -np.maximum(partial_range[1], op.taps * low))
    magnitudes = np.minimum(
        sums - 2 * op.taps * min(low, 0), 2 * op.taps * max(high, 0) - sums
    )  # bound on the sum of magnitudes
    step = op.x_scale / (count * op.y_scale)
    values = sums * step + op.output.zero_point
    error = _HALF_STEP * ((magnitudes + op.taps * max_partial + 2 * np.abs(sums)) * step + np.abs(values) + 1)
    integer_type = op.output.type
    inside = (values > integer_type.minimum - 1) & (values < integer_type.maximum + 1)
    return inside & (np.abs(values - np.floor(values) - 0.5) <= error)
