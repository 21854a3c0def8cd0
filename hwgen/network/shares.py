"""Search for lookup tables that let hardware add two quantised maps with exactly ONNX Runtime's rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.errors import PlanError
from hwgen.network.float32 import label_texts
from hwgen.network.ops.join import MAX_BITS, Add

#: Numbers of fractional bits that `find_shares` tries: first with ties to even, then with a threshold per output.
FRACTIONS, FLOAT_FRACTIONS = (6, 7, 8, 10, 12), (12, 16, 20, 22, 24, 26, 28, 30, 32)

#: Maximum number of corrections of an Add's two tables, before the next number of fractional bits is tried.
MAX_ROUNDS = 64

#: Magnitude beyond every sum of two table entries: the bound where an Add's output saturates.
_FAR = 1 << 60


@dataclass(frozen=True)
class Shares:
    """Tables that add two quantised maps: each operand's rescaled values in ``2**-fraction`` LSBs, and thresholds.

    ``rounding`` has, by the low bits of the sum's integer part, the smallest fraction that is rounded up.
    """

    tables: tuple[tuple[int, ...], tuple[int, ...]]
    fraction: int
    rounding: tuple[int, ...]


def find_shares(op: Add) -> Shares:
    """Return `Shares`: lookup tables for an Add layer whose rounded sums are its outputs, for every pair of inputs.

    A few fractional bits suffice if the scales are unrelated, or in a simple ratio (`_with_ties`). If the ratio is
    nearly simple, float32's rounding of near-ties decides, and more bits must distinguish them (`_by_order`).

    Raises
    ------
    PlanError
        If no tables are found.
    """
    first, second = op.shares
    for fraction, search in (
        *((bits, _with_ties) for bits in FRACTIONS),
        *((bits, _by_order) for bits in FLOAT_FRACTIONS),
    ):
        a, b = (np.rint(np.ldexp(share, fraction)).astype(np.int64) for share in (first, second))
        shares = search(op, fraction, a, b)
        if shares is not None:
            return shares
    raise PlanError(
        f"{op.name}: no lookup tables with {FLOAT_FRACTIONS[-1]} fraction bits round its sums as ONNX Runtime does, "
        f"with {label_texts(op.labels)}; quantise the model with other scales, or stop before this layer (--until)"
    )


def _with_ties(op: Add, fraction: int, a: np.ndarray, b: np.ndarray) -> Shares | None:
    """Return `Shares`: tables ``a``, ``b`` corrected so that rounded sums are an Add's outputs; ``None`` if none do.

    Ties are rounded to even. Every output is a difference constraint: the sum of its two shares must be between two
    bounds. The Bellman-Ford algorithm solves the constraints, if they have a solution: it corrects each table by the
    bounds from the other table, until both tables satisfy them.
    """
    wanted, one = op.table - op.zero_after, 1 << fraction
    odd = wanted & 1  # ties at both ends belong to the even output
    low = np.where(op.table == op.low, -_FAR, wanted * one - one // 2 + odd)
    high = np.where(op.table == op.high, _FAR, wanted * one + one // 2 - odd)
    for _ in range(MAX_ROUNDS):
        lower = np.minimum(a, (high - b).min(axis=1))
        raised = np.maximum(b, (low - lower[:, None]).max(axis=0))
        if (lower == a).all() and (raised == b).all():
            rounding = (one // 2 + 1, one // 2) * (1 << MAX_BITS - 1)
            return Shares((tuple(a.tolist()), tuple(b.tolist())), fraction, rounding)
        a, b = lower, raised
    return None


def _by_order(op: Add, fraction: int, a: np.ndarray, b: np.ndarray) -> Shares | None:
    """Return `Shares`: tables ``a`` and ``b`` with rounding thresholds that give an Add's outputs; ``None`` if none do.

    Outputs increase with the real sum. If the tables are fine enough, outputs also increase with the tables' sum. The
    rounding threshold is then between the maximum sum with one output and the minimum sum with the next output.
    """
    sums, one = (a[:, None] + b).ravel(), 1 << fraction
    order = np.argsort(sums, kind="stable")
    sums, outputs = sums[order], op.table.ravel()[order]
    if (np.diff(outputs) < 0).any() or ((np.diff(sums) == 0) & (np.diff(outputs) > 0)).any():
        return None
    rounding = np.full(1 << MAX_BITS, one // 2)
    for whole in range(op.low - op.zero_after, op.high - op.zero_after):
        above = int(np.searchsorted(outputs, whole + op.zero_after, side="right"))
        lower = max(whole * one, int(sums[above - 1]) + 1) if above else whole * one
        upper = min((whole + 1) * one, int(sums[above])) if above < len(sums) else (whole + 1) * one
        if upper < lower:
            return None
        rounding[whole % len(rounding)] = np.clip(whole * one + one // 2, lower, upper) - whole * one
    return Shares((tuple(a.tolist()), tuple(b.tolist())), fraction, tuple(rounding.tolist()))
