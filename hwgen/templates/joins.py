"""What becomes of layers without a line buffer: sums by tables, products, concatenations, lookups, moves of values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.arithmetic.shares import FRACTION
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.join import JoinConfig, JoinLayerConfig
from hwgen.gateware.layer import Compute, Finish
from hwgen.gateware.load.loaded_table_sum import LoadedTableSumConfig
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.reorder import ReorderConfig, ReorderLayerConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.gateware.select import CollectLayerConfig, SelectConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.threshold import ThresholdConfig, first_sums
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.weights import Weights
from hwgen.network.ops import (
    Add,
    Concat,
    Copy,
    DepthToSpace,
    Lookup,
    Max,
    Mul,
    Op,
    Select,
    SpaceToDepth,
    Sum,
    Upsample,
)
from hwgen.network.ops.join import Recoded
from hwgen.network.shares import Shares, find_shares
from hwgen.templates.layers import LayerPlan
from hwgen.templates.memory import block_rams
from hwgen.templates.stage import Kind, Stage, beat_format
from hwgen.templates.work import BlockWalk, LayerWork, SelectWalk, TurnWalk, Unroll

#: Bits of a sum of several maps at most: scales far apart take many.
MOST_SUM_BITS = 53

Built = TypeVar("Built", bound=JoinLayerConfig)


class StepStage(Stage[Kind]):
    """Of a layer without a window: of each input a beat is taken as a step starts."""

    in_step, has_rows = 1, False

    @property
    def most_lanes(self) -> tuple[int, int]:
        most = max(each.channels for each in self.op.inputs)
        return most, most

    @abstractmethod
    def compute(self, sources: Sequence[BeatFormat]) -> Compute:
        """The arithmetic, and in its ``window`` how beats are taken."""

    def finish(self, compute: Compute, lanes: int) -> Finish | None:
        """What makes outputs of its results, for so many channels a beat."""
        return None

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> JoinLayerConfig:
        return self._layer(JoinLayerConfig, self.compute(sources), plan, sinks)

    def _layer(self, kind: type[Built], compute: Compute, plan: LayerPlan, sinks: Sequence[BeatFormat | None]) -> Built:
        lanes = plan.fifo_lanes or plan.tm
        return kind(
            name=self.op.name,
            compute=compute,
            finish=self.finish(compute, lanes),
            fifo_lanes=lanes,
            fifo_depths=plan.fifo_depths,
            fifos_in=plan.fifos_in,
            outputs=tuple(sink or beat_format(self.op.output, lanes, plan.tp) for sink in sinks),
        )


_KNOWN: WeakKeyDictionary[Add, Shares] = WeakKeyDictionary()


class AddStage(StepStage[Add]):
    """Two tables and an adder for each lane."""

    in_step = 2

    def compute(self, sources: Sequence[BeatFormat]) -> TableSumConfig | LoadedTableSumConfig:
        op, window = self.op, JoinConfig(inputs=tuple(sources))
        if op not in _KNOWN:
            _KNOWN[op] = find_shares(op)
        shares, kind = _KNOWN[op], op.output.type
        if op.loaded:
            return self._loaded(window, shares)
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

    def _loaded(self, window: JoinConfig, shares: Shares) -> LoadedTableSumConfig:
        """The same with tables that are loaded, whose fractions have as many bits whatever the scales."""
        op, kind, more = self.op, self.op.output.type, FRACTION - shares.fraction
        if more < 0:
            raise PlanError(
                f"{op.name}: tables that are loaded have {FRACTION} bits behind the point, too few to add at scales "
                f"{op.labels}"
            )
        return LoadedTableSumConfig(
            window=window,
            tables=tuple(tuple(share << more for share in table) for table in shares.tables),
            rounding=tuple(least << more for least in shares.rounding),
            zero_point=op.zero_after,
            low=op.low,
            high=op.high,
            bits=kind.bits,
            signed=kind.signed,
        )


class MulStage(StepStage[Mul]):
    """A multiplier for each lane, and the thresholds between outputs."""

    @property
    def in_step(self) -> int:  # type: ignore[override]
        return 2 - self.op.spread

    @property
    def least_finish_slices(self) -> int:
        """The lane's multiplier; thresholds take no slice."""
        return 1

    def compute(self, sources: Sequence[BeatFormat]) -> ProductConfig:
        first, second, _ = self.op.labels
        window = JoinConfig(inputs=tuple(sources), spread=bool(self.op.spread))
        return ProductConfig(window=window, zeros=(first.zero, second.zero))

    def finish(self, compute: Compute, lanes: int) -> ThresholdConfig:
        return thresholds(self.op, compute, lanes, self.op.rounded, self.op.reach)


def thresholds(
    op: Op, compute: Compute, lanes: int, outputs: Callable[[np.ndarray], np.ndarray], reach: tuple[int, int]
) -> ThresholdConfig:
    """Return the thresholds between the ``outputs`` of integers that reach from the least to the greatest."""
    kind, source, (least, most) = op.output.type, compute.window.input, reach
    low, high = (int(outputs(np.array(end))) for end in reach)
    return ThresholdConfig(
        lanes=lanes,
        accumulator_bits=compute.result.width,
        thresholds=(first_sums(outputs, least, most, np.arange(low + 1, high + 1)),),
        low=low,
        bits=kind.bits,
        signed=kind.signed,
        beats=UnloadConfig(
            channels=op.outputs, lanes_in=compute.lanes, lanes_out=lanes, shape=compute.result, groups=source.groups
        ).beats,
        pixels=compute.window.pixels,
    )


class SumStage(StepStage[Sum]):
    """Tables of what the values stand for, additions that are rounded, and the thresholds between outputs."""

    @property
    def in_step(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    @property
    def _terms(self) -> tuple[tuple[tuple[int, ...], ...], int]:
        """What values stand for as integers, in steps of ``2**exponent``; and the exponent."""
        terms = np.concatenate(self.op.terms)
        _, exponents = np.frexp(terms[terms != 0])
        exponent = int(exponents.min(initial=0)) - SIGNIFICAND_BITS
        integers = [[int(each) for each in np.ldexp(part.astype(np.float64), -exponent)] for part in self.op.terms]
        while all(each % 2 == 0 for part in integers for each in part) and any(map(any, integers)):
            integers, exponent = [[each // 2 for each in part] for part in integers], exponent + 1
        return tuple(map(tuple, integers)), exponent

    def compute(self, sources: Sequence[BeatFormat]) -> FloatJoinConfig:
        compute = FloatJoinConfig(window=JoinConfig(inputs=tuple(sources)), tables=self._terms[0])
        if max(compute.result.width, *(bits for bits, _ in compute.links)) > MOST_SUM_BITS:
            raise PlanError(
                f"{self.op.name}: its scales differ so much that sums take more than {MOST_SUM_BITS} bits; "
                "maps of more similar scales can be added"
            )
        return compute

    def finish(self, compute: Compute, lanes: int) -> ThresholdConfig:
        assert isinstance(compute, FloatJoinConfig)
        exponent = self._terms[1]

        def outputs(sums: np.ndarray) -> np.ndarray:
            return self.op.rounded(np.ldexp(sums.astype(np.float64), exponent))

        return thresholds(self.op, compute, lanes, outputs, compute.sum_range)


class ExtremeStage(StepStage[Max]):
    """A table for each input whose values change, and comparators."""

    @property
    def in_step(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    def compute(self, sources: Sequence[BeatFormat]) -> ExtremeConfig:
        op, kind = self.op, self.op.output.type
        window = JoinConfig(inputs=tuple(sources))
        return ExtremeConfig(
            window=window, tables=_recoding(op), greatest=op.greatest, bits=kind.bits, signed=kind.signed
        )


def _recoding(op: Recoded) -> tuple[tuple[int, ...], ...]:
    """The table of each input whose values change; of the others nothing."""
    kind = op.output.type
    values = np.arange(kind.minimum, kind.maximum + 1)
    return tuple(
        () if each.type == kind and (table == values).all() else tuple(table.tolist())
        for table, each in zip(op.tables, op.inputs, strict=True)
    )


class ConcatStage(StepStage[Concat]):
    """A table for each input whose values change."""

    @property
    def in_step(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    @property
    def work(self) -> dict[str, Any]:
        return {**super().work, "walk": TurnWalk(tuple(each.channels for each in self.op.inputs))}

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        kind, window = self.op.output.type, JoinConfig(inputs=tuple(sources), in_turn=True)
        return RecodeConfig(window=window, tables=_recoding(self.op), bits=kind.bits, signed=kind.signed)


class CopyStage(StepStage[Copy]):
    """Wires."""

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        return _as_they_are(JoinConfig(inputs=tuple(sources), in_turn=True))


class UpsampleStage(StepStage[Upsample]):
    """A row that is kept."""

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        (source,) = sources
        return _as_they_are(UpsampleConfig(input=source, factors=self.op.factors))


_TABLES: WeakKeyDictionary[Lookup, Weights] = WeakKeyDictionary()


class LookupStage(StepStage[Lookup]):
    """A table in LUTs for each lane; where channels differ, a memory that holds those of its channels."""

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        op = self.op
        if len(op.table) == 1:
            return 0
        folds = -(-op.channels // unroll.tn)
        each = block_rams(op.output.type.bits, folds << op.input.type.bits)
        return np.where(folds > 1, unroll.tn * unroll.tp * each, 0)

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig | ChannelTableConfig:
        op, kind = self.op, self.op.output.type
        window = JoinConfig(inputs=tuple(sources), in_turn=True)
        if len(op.table) == 1:
            tables = (tuple(op.table[0].tolist()),)
            return RecodeConfig(window=window, tables=tables, bits=kind.bits, signed=kind.signed)
        if op not in _TABLES:
            _TABLES[op] = Weights(op.table.astype(np.intc).tobytes())
        return ChannelTableConfig(window=window, tables=_TABLES[op], bits=kind.bits, signed=kind.signed)

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> JoinLayerConfig:
        layer = super().layer(plan, sources, sinks)
        if not isinstance(layer.compute, ChannelTableConfig):
            return layer
        return replace(layer, compute=replace(layer.compute, tables_in=plan.tables_in))


class SelectStage(StepStage[Select]):
    """Registers of a pixel, and for each lane the choice among the channels that it gives."""

    @property
    def most_lanes(self) -> tuple[int, int]:
        return self.op.channels, self.op.outputs

    @property
    def work(self) -> dict[str, Any]:
        return {**super().work, "walk": SelectWalk()}

    def compute(self, sources: Sequence[BeatFormat], lanes: int = 1) -> RecodeConfig:
        (source,) = sources
        return _as_they_are(SelectConfig(input=source, index=self.op.index, lanes=lanes))

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> CollectLayerConfig:
        return self._layer(CollectLayerConfig, self.compute(sources, plan.tm), plan, sinks)


class ReorderStage(StepStage[DepthToSpace | SpaceToDepth]):
    """A memory of some rows."""

    @property
    def channelwise(self) -> bool:
        """Lanes keep the channels of a pixel of a block."""
        return True

    @property
    def groups(self) -> int:
        return self._parts[0]

    @property
    def _parts(self) -> tuple[int, int]:
        """Pixels of blocks that are one pixel that comes in, and one that leaves."""
        return (self.op.count, 1) if self.op.to_space else (1, self.op.count)

    @property
    def most_lanes(self) -> tuple[int, int]:
        most = self.op.channels // self.groups
        return most, most

    @property
    def work(self) -> dict[str, Any]:
        return {**super().work, "walk": BlockWalk(*self._parts), "most_pixels": 1}

    def check(self, plan: LayerPlan) -> None:
        super().check(plan)
        if plan.tp != 1:
            raise PlanError(f"{self.op.name}: unroll pixels of a layer that moves pixels must be 1, not {plan.tp!r}")

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        (source,) = sources
        return _as_they_are(ReorderConfig(input=source, blocks=self.op.blocks, opens=self.op.to_space))

    def layer(
        self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
    ) -> ReorderLayerConfig:
        return self._layer(ReorderLayerConfig, self.compute(sources), plan, sinks)


def _as_they_are(window: JoinConfig | UpsampleConfig | SelectConfig | ReorderConfig) -> RecodeConfig:
    """Values leave as they came."""
    return RecodeConfig(window=window, tables=((),), bits=window.input.bits, signed=window.input.signed)
