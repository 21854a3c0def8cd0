"""Planner's models (stages) of layers without a line buffer: sums, products, concatenations, lookups and moves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.arithmetic.shares import FRACTION
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.extreme import ExtremeConfig
from hwgen.gateware.float_join import FloatJoinConfig
from hwgen.gateware.interpolate import FloatWeightedSumConfig, WeightedSumConfig
from hwgen.gateware.join import JoinConfig, JoinLayerConfig
from hwgen.gateware.layer import LayerCompute, LayerConfig, LayerFinish
from hwgen.gateware.load.loaded_table_sum import LoadedTableSumConfig
from hwgen.gateware.multipliers import PLAIN, Multiplier
from hwgen.gateware.product import ProductConfig
from hwgen.gateware.recode import RecodeConfig
from hwgen.gateware.reorder import ReorderConfig, ReorderLayerConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.resample import ResampleConfig, ResampleLayerConfig
from hwgen.gateware.select import CollectLayerConfig, SelectConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.table_sum import TableSumConfig
from hwgen.gateware.threshold import ThresholdConfig, first_sums
from hwgen.gateware.upsample import UpsampleConfig
from hwgen.gateware.weights import Weights
from hwgen.network import ops
from hwgen.network.float32 import as_integers, label_texts
from hwgen.network.maps import Requantisation
from hwgen.network.ops.join import Recoded
from hwgen.network.shares import Shares, find_shares
from hwgen.options import RUNTIME, called
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Kind, Stage, beat_format, block_rams, channel_fields, output_beats, requantiser
from hwgen.templates.work import BlockOrder, LayerWork, SelectOrder, TurnOrder, Unroll

#: Maximum number of bits of a sum of several maps. Scales of very different size need many bits.
MAX_SUM_BITS = 53


class StepStage(Stage[Kind]):
    """Base class of the planner's models of layers without a line buffer, such as sums, concatenations and lookups."""

    direct_inputs, has_line_buffer = 1, False
    layer_type = JoinLayerConfig

    @property
    def max_lanes(self) -> tuple[int, int]:
        channels = max(source.channels for source in self.op.inputs)
        return channels, channels

    @abstractmethod
    def compute(self, sources: Sequence[BeatFormat]) -> LayerCompute:
        """Return a `LayerCompute`: the configuration of the layer's arithmetic for inputs of given beat formats."""

    def finish(self, compute: LayerCompute, lanes: int) -> LayerFinish | None:
        """Return the `LayerFinish` configuration that turns results into outputs; ``None`` if they are outputs."""
        return None

    def planned(self, plan: LayerPlan, sources: Sequence[BeatFormat]) -> LayerCompute:
        """Return a `LayerCompute`: the configuration of the layer's arithmetic as planned, for given beat formats."""
        return self.compute(sources)

    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        compute, lanes = self.planned(plan, sources), plan.fifo_lanes or plan.tm
        return self.layer_config(compute, self.finish(compute, lanes), lanes, plan, sinks)


class RequantisedStage(StepStage[Kind]):
    """Base class of the planner's models of layers that requantise their results if they have a ``requantisation``."""

    @cached_property
    def _requantiser_slices(self) -> int:
        """Number of DSP slices per requantiser lane (one channel per cycle); 0 without a requantiser."""
        compute = self.compute([beat_format(source, 1) for source in self.op.inputs])
        finish = self.finish(compute, 1)
        return finish.multipliers if isinstance(finish, RequantiseConfig) else 0

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        return self.min_finish_slices + self._requantiser_slices

    def requantiser(self, rule: Requantisation, compute: LayerCompute, lanes: int) -> RequantiseConfig:
        """Return the `RequantiseConfig` of a requantiser that applies ``rule`` to the arithmetic's results."""
        op, window = self.op, compute.window
        beats = output_beats(op, compute.lanes, lanes, window.input.groups)
        fields = channel_fields(self, compute.result.width, (0,) * op.outputs, lanes, beats, window.pixels)
        return requantiser(op, rule, fields)


_KNOWN: WeakKeyDictionary[ops.Add, Shares] = WeakKeyDictionary()


class AddStage(StepStage[ops.Add]):
    """Planner's model of a sum or difference of two maps: two tables and an adder per lane."""

    direct_inputs = 2

    def compute(self, sources: Sequence[BeatFormat]) -> TableSumConfig | LoadedTableSumConfig:
        op, window = self.op, JoinConfig(device=self.device, inputs=tuple(sources))
        if op not in _KNOWN:
            _KNOWN[op] = find_shares(op)
        shares, integer_type = _KNOWN[op], op.output.type
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
            bits=integer_type.bits,
            signed=integer_type.signed,
        )

    def _loaded(self, window: JoinConfig, shares: Shares) -> LoadedTableSumConfig:
        """Return the `LoadedTableSumConfig` of a sum with tables loaded at run time and `FRACTION` fraction bits."""
        op, integer_type, extra_bits = self.op, self.op.output.type, FRACTION - shares.fraction
        if extra_bits < 0:
            raise PlanError(
                f"{op.name}: tables loaded at run time have {FRACTION} fraction bits, too few for "
                f"{label_texts(op.labels)}; leave out {called('weights')} {RUNTIME}"
            )
        return LoadedTableSumConfig(
            window=window,
            tables=tuple(tuple(share << extra_bits for share in table) for table in shares.tables),
            rounding=tuple(rounding << extra_bits for rounding in shares.rounding),
            zero_point=op.zero_after,
            low=op.low,
            high=op.high,
            bits=integer_type.bits,
            signed=integer_type.signed,
        )


class MulStage(StepStage[ops.Mul]):
    """Planner's model of a product of two maps: a multiplier per lane, and thresholds between outputs."""

    @property
    def direct_inputs(self) -> int:  # type: ignore[override]
        return 2 - self.op.spread

    @property
    def min_finish_slices(self) -> int:
        """Number of DSP slices per lane of a product of maps: 1, for the multiplier; thresholds use none."""
        return 1

    def compute(self, sources: Sequence[BeatFormat]) -> ProductConfig:
        first, second, _ = self.op.labels
        window = JoinConfig(device=self.device, inputs=tuple(sources), spread=bool(self.op.spread))
        return ProductConfig(window=window, zeros=(first.zero, second.zero))

    def finish(self, compute: LayerCompute, lanes: int) -> ThresholdConfig:
        return thresholds(self.op, compute, lanes, self.op.rounded, self.op.reach)


def thresholds(
    op: ops.Op,
    compute: LayerCompute,
    lanes: int,
    outputs: Callable[[np.ndarray], np.ndarray],
    sum_range: tuple[int, int],
) -> ThresholdConfig:
    """Return the `ThresholdConfig` of a circuit that turns integer results into outputs by comparing thresholds.

    Parameters
    ----------
    op : Op
    compute : LayerCompute
        Arithmetic whose results are the integers.
    lanes : int
        Channels per output beat.
    outputs : function
        Function that returns the outputs of an array of integers. It must not fall.
    sum_range : tuple of int
        Smallest and largest integer.
    """
    integer_type, (low_sum, high_sum) = op.output.type, sum_range
    low, high = (int(outputs(np.array(end))) for end in sum_range)
    return ThresholdConfig(
        device=compute.window.device,
        lanes=lanes,
        accumulator_bits=compute.result.width,
        thresholds=(first_sums(outputs, low_sum, high_sum, np.arange(low + 1, high + 1)),),
        low=low,
        bits=integer_type.bits,
        signed=integer_type.signed,
        beats=output_beats(op, compute.lanes, lanes, compute.window.input.groups),
        pixels=compute.window.pixels,
    )


class SumStage(StepStage[ops.Sum]):
    """Planner's model of a sum of several maps: tables of real values, rounded additions, and output thresholds."""

    @property
    def direct_inputs(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    @property
    def _terms(self) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Pair: tables of integers by input value, one per input, and the exponent of their unit ``2**exponent``."""
        return as_integers(self.op.terms)

    def compute(self, sources: Sequence[BeatFormat]) -> FloatJoinConfig:
        compute = FloatJoinConfig(window=JoinConfig(device=self.device, inputs=tuple(sources)), tables=self._terms[0])
        if max(compute.result.width, *(bits for bits, _ in compute.additions)) > MAX_SUM_BITS:
            raise PlanError(
                f"{self.op.name}: its inputs' scales differ so much that sums need more than {MAX_SUM_BITS} bits; "
                "quantise its inputs with more similar scales, or stop before this layer (--until)"
            )
        return compute

    def finish(self, compute: LayerCompute, lanes: int) -> ThresholdConfig:
        assert isinstance(compute, FloatJoinConfig)
        exponent = self._terms[1]

        def outputs(sums: np.ndarray) -> np.ndarray:
            return self.op.rounded(np.ldexp(sums.astype(np.float64), exponent))

        return thresholds(self.op, compute, lanes, outputs, compute.sum_range)


class ExtremeStage(StepStage[ops.Max]):
    """Planner's model of a maximum or minimum of maps: comparators, and tables for inputs whose values change."""

    @property
    def direct_inputs(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    def compute(self, sources: Sequence[BeatFormat]) -> ExtremeConfig:
        op, integer_type = self.op, self.op.output.type
        window = JoinConfig(device=self.device, inputs=tuple(sources))
        return ExtremeConfig(
            window=window,
            tables=_recoding(op),
            greatest=op.greatest,
            bits=integer_type.bits,
            signed=integer_type.signed,
        )


def _recoding(op: Recoded) -> tuple[tuple[int, ...], ...]:
    """Return a tuple with a table for each input of a join: outputs by input value; empty if values stay the same."""
    return tuple(
        () if op.holds_unchanged(index) else tuple(op.tables[index].tolist()) for index in range(len(op.inputs))
    )


class ConcatStage(StepStage[ops.Concat]):
    """Planner's model of a concatenation: a table for each input whose values change."""

    @property
    def direct_inputs(self) -> int:  # type: ignore[override]
        return len(self.op.inputs)

    @property
    def work_fields(self) -> dict[str, Any]:
        return {**super().work_fields, "order": TurnOrder(tuple(source.channels for source in self.op.inputs))}

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        integer_type, window = self.op.output.type, JoinConfig(device=self.device, inputs=tuple(sources), in_turn=True)
        return RecodeConfig(
            window=window, tables=_recoding(self.op), bits=integer_type.bits, signed=integer_type.signed
        )


class CopyStage(StepStage[ops.Copy]):
    """Planner's model of a copy of a map, which takes wires only."""

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        return _pass_through(JoinConfig(device=self.device, inputs=tuple(sources), in_turn=True))


class UpsampleStage(StepStage[ops.Upsample]):
    """Planner's model of a nearest-neighbour upsampling, whose hardware stores one row."""

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        (source,) = sources
        return _pass_through(UpsampleConfig(device=self.device, input=source, factors=self.op.factors))


_TABLES: WeakKeyDictionary[ops.Lookup, Weights] = WeakKeyDictionary()


class LookupStage(StepStage[ops.Lookup]):
    """Planner's model of a table lookup: per lane a table in LUTs, or a memory of tables if channels' tables differ."""

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        op = self.op
        if len(op.table) == 1:
            return 0
        folds = -(-op.channels // unroll.tn)
        memory_bram36 = block_rams(self.device.memories, op.output.type.bits, folds << op.input.type.bits)
        return np.where(folds > 1, unroll.tn * unroll.tp * memory_bram36, 0)

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig | ChannelTableConfig:
        op, integer_type = self.op, self.op.output.type
        window = JoinConfig(device=self.device, inputs=tuple(sources), in_turn=True)
        if len(op.table) == 1:
            tables = (tuple(op.table[0].tolist()),)
            return RecodeConfig(window=window, tables=tables, bits=integer_type.bits, signed=integer_type.signed)
        if op not in _TABLES:
            _TABLES[op] = Weights(op.table.astype(np.intc).tobytes())
        return ChannelTableConfig(window=window, tables=_TABLES[op], bits=integer_type.bits, signed=integer_type.signed)

    def planned(self, plan: LayerPlan, sources: Sequence[BeatFormat]) -> LayerCompute:
        compute = self.compute(sources)
        return replace(compute, tables_in=plan.tables_in) if isinstance(compute, ChannelTableConfig) else compute


class SelectStage(StepStage[ops.Select]):
    """Planner's model of a selection of channels: registers for one pixel, and a multiplexer per lane."""

    layer_type = CollectLayerConfig

    @property
    def max_lanes(self) -> tuple[int, int]:
        return self.op.channels, self.op.outputs

    @property
    def work_fields(self) -> dict[str, Any]:
        return {**super().work_fields, "order": SelectOrder()}

    def compute(self, sources: Sequence[BeatFormat], lanes: int = 1) -> RecodeConfig:
        (source,) = sources
        return _pass_through(SelectConfig(device=self.device, input=source, index=self.op.index, lanes=lanes))

    def planned(self, plan: LayerPlan, sources: Sequence[BeatFormat]) -> LayerCompute:
        return self.compute(sources, plan.tm)


class SinglePixelStage(StepStage[Kind]):
    """Base class of the planner's models of layers that read and write one pixel per beat (``Tp`` is 1)."""

    @property
    def work_fields(self) -> dict[str, Any]:
        return {**super().work_fields, "max_pixels": 1}

    def check(self, plan: LayerPlan) -> None:
        super().check(plan)
        if plan.tp != 1:
            raise PlanError(f"{self.op.name}: unroll pixels must be 1 for a layer that moves pixels, not {plan.tp!r}")


class ResampleStage(SinglePixelStage[ops.Resample]):
    """Planner's model of a layer that samples its input at constant rows and columns, from a memory of some rows."""

    layer_type = ResampleLayerConfig

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        (source,) = sources
        rows, columns = self.op.rows, self.op.columns
        window = ResampleConfig(device=self.device, input=source, source_rows=rows, source_columns=columns)
        return _pass_through(window)


class InterpolateStage(SinglePixelStage[ops.Interpolate], RequantisedStage[ops.Interpolate]):
    """Planner's model of a linear interpolation: a memory of some rows, weighted sums of four pixels, and thresholds.

    A requantiser gives outputs in fixed point. Sums are integers if float32 rounds none of them, else float32.
    """

    layer_type = ResampleLayerConfig

    def window(self, source: BeatFormat) -> ResampleConfig:
        """Return the `ResampleConfig` of the circuit that reads the four pixels around each output pixel.

        The phase of an output row or column is the index of its weight.
        """
        op = self.op
        down, right = (
            any(weight and index < size - 1 for weight, index in zip(weights, indices, strict=True))
            for weights, indices, size in (
                (op.row_weights, op.rows, op.height),
                (op.column_weights, op.columns, op.width),
            )
        )
        return ResampleConfig(
            device=self.device,
            input=source,
            source_rows=op.rows,
            source_columns=op.columns,
            pairs=(down, right or not down),
            row_phases=_numbered(op.row_weights)[1],
            column_phases=_numbered(op.column_weights)[1],
        )

    def compute(self, sources: Sequence[BeatFormat]) -> WeightedSumConfig:
        op, (source,) = self.op, sources
        exact = WeightedSumConfig(
            window=self.window(source),
            row_weights=_numbered(op.row_weights)[0],
            column_weights=_numbered(op.column_weights)[0],
            axis_parts=op.axis_parts,
        )
        if not op.in_floats:
            return exact
        terms, _ = as_integers([op.terms])
        floats = FloatWeightedSumConfig(**vars(exact), terms=terms[0])
        return floats if floats.excess else exact

    def finish(self, compute: LayerCompute, lanes: int) -> ThresholdConfig | RequantiseConfig:
        assert isinstance(compute, WeightedSumConfig)
        if self.op.requantisation is not None:
            return self.requantiser(self.op.requantisation, compute, lanes)
        op, scale = self.op, self.op.axis_parts[0] * self.op.axis_parts[1]
        exponent = as_integers([op.terms])[1]

        def outputs(sums: np.ndarray) -> np.ndarray:
            if isinstance(compute, FloatWeightedSumConfig):
                return op.rounded(np.ldexp(sums.astype(np.float64) / scale, exponent))
            integers = sums - op.offset * scale
            return op.rounded(integers * op.x_scale / scale if op.in_floats else integers)

        return thresholds(op, compute, lanes, outputs, compute.sum_range)


def _numbered(weights: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the distinct weights, ascending, and each weight's index among them, as two tuples."""
    numbers = {weight: number for number, weight in enumerate(sorted(set(weights)))}
    return tuple(numbers), tuple(numbers[weight] for weight in weights)


class ReorderStage(SinglePixelStage[ops.DepthToSpace | ops.SpaceToDepth]):
    """Planner's model of DepthToSpace and SpaceToDepth, whose hardware stores some rows."""

    layer_type = ReorderLayerConfig

    @property
    def channelwise(self) -> bool:
        """Whether each lane of output beats takes its values from the input lane of the same index: always true."""
        return True

    @property
    def groups(self) -> int:
        return self._block_pixels[0]

    @property
    def _block_pixels(self) -> tuple[int, int]:
        """Pair: numbers of parts that an input pixel's and an output pixel's channels are cut into; one of them is 1.

        Each part has the channels of one pixel of the other map.
        """
        return (self.op.count, 1) if self.op.to_space else (1, self.op.count)

    @property
    def max_lanes(self) -> tuple[int, int]:
        lanes = self.op.channels // self.groups
        return lanes, lanes

    @property
    def work_fields(self) -> dict[str, Any]:
        return {**super().work_fields, "order": BlockOrder(*self._block_pixels)}

    def compute(self, sources: Sequence[BeatFormat]) -> RecodeConfig:
        (source,) = sources
        return _pass_through(
            ReorderConfig(device=self.device, input=source, blocks=self.op.blocks, opens=self.op.to_space)
        )


def _pass_through(
    window: JoinConfig | UpsampleConfig | ResampleConfig | SelectConfig | ReorderConfig,
) -> RecodeConfig:
    """Return the `RecodeConfig` of a circuit that passes on the values that ``window`` reads, unchanged."""
    return RecodeConfig(window=window, tables=((),), bits=window.input.bits, signed=window.input.signed)
