"""Terms of a pass's weights: tensors that the engine multiplies exactly, and whose sum is the weights.

A slice multiplies by the weights of two output maps in one word of 25 bits, and four slices add their products in
fields of 17 bits. This is exact for weights from -127 to 127. Two cases with -128 are not: an odd map's weight of -128
beside a negative weight of the even map before needs one bit more, and so does a sum of four products by -128 in the
lower field. Such a weight becomes -127, and the rest, -1, is a weight of a further term. The terms are added by jobs
of their own. So the engine computes with weights beyond 8 bits, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.gateware.engine.config import CHAIN, LANES

Span = tuple[int, int]
#: Smallest and largest weight that a byte stores.
_SMALLEST, _LARGEST = -128, 127


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightTerm:
    """Term of a pass's weights, and the half-open intervals of channels, kernel rows and columns where it is not 0.

    Parameters
    ----------
    channels, rows, columns : tuple of int
        Intervals of input channels, kernel rows and kernel columns. Channels begin at a multiple of 8.
    weights : ndarray
        int64, as large as the weights of the pass.
    """

    channels: Span
    rows: Span
    columns: Span
    weights: np.ndarray


def weight_terms(weights: np.ndarray, *, channelwise: bool) -> tuple[WeightTerm, ...]:
    """Divide weights ``(M, C, Kh, Kw)`` into terms that the engine multiplies exactly. Most weights are one term.

    In a channelwise pass each weight has a slice for itself, so that all weights of 8 bits are exact.
    """
    whole = tuple((0, size) for size in weights.shape[1:])
    terms: list[WeightTerm] = []
    rest = weights
    while True:
        term = _exact_part(rest, channelwise=channelwise)
        channels, rows, columns = _region(rest) if terms else whole
        terms.append(WeightTerm(channels=channels, rows=rows, columns=columns, weights=term))
        if term is rest or not (rest != term).any():
            return tuple(terms)
        rest = rest - term


def _exact_part(weights: np.ndarray, *, channelwise: bool) -> np.ndarray:
    """Return the weights nearest to ``weights`` that the engine multiplies exactly."""
    smallest = int(weights.min(initial=0))
    if smallest > _SMALLEST and weights.max(initial=0) <= _LARGEST:
        return weights
    part = np.clip(weights, _SMALLEST, _LARGEST)
    if channelwise:
        return part
    even, odd = part[::2], part[1::2]  # views
    odd[(odd == _SMALLEST) & (even[: len(odd)] < 0)] += 1
    for first in range(0, part.shape[1] - CHAIN + 1, CHAIN):
        even[:, first][(even[:, first : first + CHAIN] == _SMALLEST).all(axis=1)] += 1
    return part


def _region(weights: np.ndarray) -> tuple[Span, ...]:
    """Return the intervals of channels (whole blocks of 8), rows and columns outside of which all weights are 0."""
    spans = []
    for axis in range(1, weights.ndim):
        indices = np.flatnonzero(weights.any(axis=tuple(other for other in range(weights.ndim) if other != axis)))
        begin, end = int(indices[0]), int(indices[-1]) + 1
        if axis == 1:
            begin, end = begin // LANES * LANES, min(-(-end // LANES) * LANES, weights.shape[1])
        spans.append((begin, end))
    return tuple(spans)
