"""What becomes of layers that join maps: sums by tables, concatenations, copies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.join import JoinConfig, JoinLayerConfig
from hwgen.gateware.layer import Compute
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import MOST_BITS, TableSumConfig
from hwgen.network.ops import Add, Concat, Copy
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Kind, Stage, beat_format

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


class JoinStage(Stage[Kind]):
    """Of a layer without a window."""

    joins, has_rows = True, False
    #: Whether the inputs come one behind the other.
    in_turn = False

    @property
    def most_lanes(self) -> tuple[int, int]:
        most = max(each.channels for each in self.op.inputs)
        return most, most

    @abstractmethod
    def compute(self, window: JoinConfig) -> Compute:
        """The arithmetic."""

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> JoinLayerConfig:
        lanes = plan.fifo_lanes or plan.tm
        return JoinLayerConfig(
            name=self.op.name,
            compute=self.compute(JoinConfig(inputs=tuple(sources), in_turn=self.in_turn)),
            finish=None,
            fifo_lanes=lanes,
            fifo_depths=plan.fifo_depths,
            outputs=tuple(sink or beat_format(self.op.output, lanes, plan.tp) for sink in sinks),
        )


_KNOWN: WeakKeyDictionary[Add, Shares] = WeakKeyDictionary()


class AddStage(JoinStage[Add]):
    """Two tables and an adder for each lane."""

    def compute(self, window: JoinConfig) -> TableSumConfig:
        op = self.op
        if op not in _KNOWN:
            _KNOWN[op] = find_shares(op)
        shares, kind = _KNOWN[op], op.output.type
        return TableSumConfig(
            window=window,
            tables=shares.tables,
            fraction=shares.fraction,
            rounding=shares.rounding,
            zero_point=op.zero_after,
            low=op.low,
            high=op.high,
            bits=kind.bits,
            signed=kind.signed,
        )


class ConcatStage(JoinStage[Concat]):
    """A table for each input whose values change."""

    in_turn = True

    @property
    def work(self) -> dict[str, Any]:
        return {**super().work, "turns": tuple(each.channels for each in self.op.inputs)}

    def compute(self, window: JoinConfig) -> RecodeConfig:
        op, kind = self.op, self.op.output.type
        values = np.arange(kind.minimum, kind.maximum + 1)
        tables = tuple(
            () if each.type == kind and (table == values).all() else tuple(table.tolist())
            for table, each in zip(op.tables, op.inputs, strict=True)
        )
        return RecodeConfig(window=window, tables=tables, bits=kind.bits, signed=kind.signed)


class CopyStage(JoinStage[Copy]):
    """Wires."""

    in_turn = True

    def compute(self, window: JoinConfig) -> RecodeConfig:
        kind = self.op.output.type
        return RecodeConfig(window=window, tables=((),), bits=kind.bits, signed=kind.signed)
