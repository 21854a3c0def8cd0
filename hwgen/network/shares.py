"""Sums of two maps by tables: what each value of an operand adds to the output, and how their sum is rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwgen.errors import PlanError
from hwgen.network.ops.join import MOST_BITS, Add

#: Bits behind the binary point that are tried in turn: with true ties, and with fractions as float32 has it.
FRACTIONS, FLOAT_FRACTIONS = (6, 7, 8, 10, 12), (12, 16, 20, 22, 24, 26, 28, 30, 32)

#: Rounds in which tables are mended before the next fraction is tried.
MOST_ROUNDS = 64

#: Beyond any share of an output.
_FAR = 1 << 60


@dataclass(frozen=True)
class Shares:
    """What each value of two operands adds to their sum, and how that is rounded, in units of ``2**-fraction``."""

    tables: tuple[tuple[int, ...], tuple[int, ...]]
    fraction: int
    rounding: tuple[int, ...]


def find_shares(op: Add) -> Shares:
    """Tables whose rounded sum is the layer's output for every pair of values.

    A few bits are enough where scales have nothing in common, or everything (`_with_ties`). Where they nearly have,
    what float32 makes of almost-ties decides, and more bits must tell them apart (`_by_order`).

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
        found = search(op, fraction, a, b)
        if found is not None:
            return found
    raise PlanError(f"{op.name}: no tables of {FLOAT_FRACTIONS[-1]} bits give its sums at scales {op.labels}")


def _with_ties(op: Add, fraction: int, a: np.ndarray, b: np.ndarray) -> Shares | None:
    """Tables near these whose sums are rounded to the outputs, ties to even; ``None`` if none were found.

    An output asks that the sum of its two shares lies between two bounds: so many difference constraints. The
    Bellman-Ford algorithm solves these if they have a solution: each table is mended by the bounds that the other one
    leaves, until both fit.
    """
    wanted, one = op.table - op.zero_after, 1 << fraction
    odd = wanted & 1  # an even output takes the ties at both its ends
    low = np.where(op.table == op.low, -_FAR, wanted * one - one // 2 + odd)
    high = np.where(op.table == op.high, _FAR, wanted * one + one // 2 - odd)
    for _ in range(MOST_ROUNDS):
        lower = np.minimum(a, (high - b).min(axis=1))
        raised = np.maximum(b, (low - lower[:, None]).max(axis=0))
        if (lower == a).all() and (raised == b).all():
            rounding = (one // 2 + 1, one // 2) * (1 << MOST_BITS - 1)
            return Shares((tuple(a.tolist()), tuple(b.tolist())), fraction, rounding)
        a, b = lower, raised
    return None


def _by_order(op: Add, fraction: int, a: np.ndarray, b: np.ndarray) -> Shares | None:
    """The fractions from which on sums of these tables are rounded up; ``None`` if the tables don't tell enough.

    Outputs rise with the real sum. So they do with the tables' sum, if these are fine enough; then a fraction lies
    between the greatest sum with one output and the least with the next.
    """
    sums, one = (a[:, None] + b).ravel(), 1 << fraction
    order = np.argsort(sums, kind="stable")
    sums, outputs = sums[order], op.table.ravel()[order]
    if (np.diff(outputs) < 0).any() or ((np.diff(sums) == 0) & (np.diff(outputs) > 0)).any():
        return None
    rounding = np.full(1 << MOST_BITS, one // 2)
    for whole in range(op.low - op.zero_after, op.high - op.zero_after):
        above = int(np.searchsorted(outputs, whole + op.zero_after, side="right"))
        least = max(whole * one, int(sums[above - 1]) + 1) if above else whole * one
        most = min((whole + 1) * one, int(sums[above])) if above < len(sums) else (whole + 1) * one
        if most < least:
            return None
        rounding[whole % len(rounding)] = np.clip(whole * one + one // 2, least, most) - whole * one
    return Shares((tuple(a.tolist()), tuple(b.tolist())), fraction, tuple(rounding.tolist()))
