"""Planner's models (stages) of convolutions and pools, and the registry of stages by class of layer.

A kind is registered by its class in `STAGES`. Window, FIFO and streams of a stage are equal for all kinds with a window
(`hwgen.templates.stage`). Stages of layers without a window are in `hwgen.templates.joins`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from amaranth import Shape

from hwgen.devices import DEFAULT, Device
from hwgen.errors import PlanError
from hwgen.gateware.average import FloatSumConfig, SumConfig
from hwgen.gateware.bias import AddBiasConfig
from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.cost import Cost, trailing_zeros
from hwgen.gateware.layer import LayerCompute, LayerConfig, LayerFinish
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.loaded_requantise import OUTPUT_BITS, LoadedRequantiseConfig
from hwgen.gateware.max_pool import MaxPoolConfig
from hwgen.gateware.multipliers import (
    PLAIN,
    DotProducts,
    LutMultiplier,
    Multiplier,
    Operands,
    lut_multiplier_of,
    multiplier_of,
)
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.threshold import ThresholdConfig, first_sums
from hwgen.gateware.weights import Weights
from hwgen.gateware.whole_map import RunningSumConfig, WholeMapConfig, WholeMapLayerConfig
from hwgen.network import ops
from hwgen.network.maps import Requantisation, Rule, signed_bits
from hwgen.templates import joins
from hwgen.templates.fixed_point import FixedPointStage
from hwgen.templates.layers import LayerPlan
from hwgen.templates.levels import MAX_THRESHOLDS, should_replace, threshold_config
from hwgen.templates.normalise import LRNStage
from hwgen.templates.stage import (
    Beats,
    Stage,
    WindowStage,
    channel_fields,
    output_beats,
    requantiser,
    rule_fields,
    weight_block_rams,
)
from hwgen.templates.work import LUT_WORDS, LayerWork, Unroll

#: Output channels and terms per channel of the sample dot products that give the LUTs of a product.
SAMPLE_CHANNELS, SAMPLE_TERMS = 8, 27


class MaxPoolStage(WindowStage[ops.MaxPool | ops.Crop]):
    """Planner's model of a max pool, made of comparators, and of a crop or padding, which has windows of one tap."""

    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[LayerCompute, LayerFinish | None]:
        return MaxPoolConfig(window=window), None


def _mean_digits(weights: np.ndarray) -> float:
    """Return the mean number of nonzero digits of weights written as the shortest sums of signed powers of two."""
    magnitudes = np.abs(weights.astype(np.int64))
    digits = magnitudes ^ (3 * magnitudes)
    return sum(float((digits >> bit & 1).mean()) for bit in range(int(digits.max()).bit_length()))


def _nested(constants: np.ndarray) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(map(tuple, rows)) for rows in constants.tolist())


@lru_cache(maxsize=1 << 8)
def _luts(multiplier: LutMultiplier, dots: DotProducts) -> float:
    """Return the number of LUTs of dot products, adders included, with a kind of multiplier in LUTs."""
    cost = Cost(dots.device)
    multiplier.count(cost, dots)
    return cost.lut


@dataclass(frozen=True)
class ConvStage(WindowStage[ops.Conv]):
    """Planner's model of a convolution: configures its multiply-add chains and requantiser, and counts their cost."""

    @property
    def channelwise(self) -> bool:
        """Whether the layer is a depthwise convolution with one output channel per input channel."""
        return 1 < self.op.groups == self.op.channels == self.op.outputs

    def multiplier(self, wanted: Multiplier) -> Multiplier:
        multiplier = wanted
        while multiplier.port_bits > self.device.multiplier_slice.wide_bits or not multiplier.accepts(
            self.op.weight_range, self.op.input.type.bits, self.channelwise
        ):
            multiplier = multiplier.fallback
        return multiplier

    def longest_chain(self, multiplier: Multiplier, chain: int) -> int:
        activation = Shape(self.op.input.type.bits, self.op.input.type.signed)
        return multiplier.longest_chain(chain, multiplier.operand(activation), self.op.weight_bits)

    @property
    def port_bits(self) -> int:
        return SIGNIFICAND_BITS + 1 if self.op.loaded else 0

    @cached_property
    def _operands(self) -> Operands:
        """Shapes and ranges of activations and weights (`Operands`), for multipliers in LUTs."""
        op = self.op
        return Operands(
            activation=Shape(op.input.type.bits, op.input.type.signed),
            weight_bits=op.weight_bits,
            weight_range=self._weight_range,
            positions=1,
            weights_nonzero=not op.loaded and bool(op.weights.all()),
        )

    @property
    def _weight_range(self) -> tuple[int, int]:
        """Pair: smallest and largest weight of the model, or of the weight type if weights are loaded."""
        half = 1 << (self.op.weight_bits - 1)
        return (-half, half - 1) if self.op.loaded else self.op.weight_range

    @cached_property
    def lut_multipliers(self) -> frozenset[LutMultiplier]:
        return frozenset(
            lut_multiplier_of(self._padded(is_padded), None if self.op.loaded else words)
            for words in (*LUT_WORDS, None)
            for is_padded in (False, True)
        )

    def _padded(self, is_padded: bool) -> Operands:
        """Return the `Operands` for multipliers in LUTs; with ``is_padded``, weights may be 0."""
        return replace(self._operands, weights_nonzero=False) if is_padded else self._operands

    @cached_property
    def _lut_products(self) -> dict[tuple[int | None, bool], tuple[float, bool]]:
        """Dictionary (cache) of `lut_product` by its parameters: LUTs per product, if a memory stores the weight."""
        return {}

    def lut_product(self, words: int | None, is_padded: bool = False) -> tuple[float, bool]:
        key = words, is_padded and self._operands.weights_nonzero
        if key not in self._lut_products:
            multiplier = lut_multiplier_of(self._padded(is_padded), None if self.op.loaded else words)
            dots = self._sample(multiplier, words or 1)
            luts = _luts(multiplier, dots) / dots.products
            luts = self.device.logic.counted_luts(luts, multiplier.lut4_ratio * luts)
            if dots.constants is not None and words == 1:
                luts *= _mean_digits(self.op.weights) / _mean_digits(np.array(dots.constants))
            self._lut_products[key] = luts, multiplier.stores_weights
        return self._lut_products[key]

    @cached_property
    def stored_weight_bits(self) -> int:
        op = self.op
        if op.loaded:
            return op.weight_bits
        words = PLAIN.stored(op.weights.reshape(1, -1), self._operands)
        return int(np.bitwise_or.reduce(words) & ~np.bitwise_and.reduce(words)).bit_count()

    def _sample(self, multiplier: LutMultiplier, words: int) -> DotProducts:
        """Return `DotProducts`: a description of a few dot products, a sample for an estimate of LUTs per product.

        Weights are random, so that many layers have the same sample.

        Parameters
        ----------
        words : int
            Number of weights of each product.
        """
        op, half = self.op, 1 << (self.op.weight_bits - 1)
        operand, terms = multiplier.operand(self._operands.activation), min(op.weights[0].size, SAMPLE_TERMS)
        chains = -(-terms // CHAIN)
        positions = -(-terms // chains)
        sums = min(SAMPLE_CHANNELS if multiplier.shares_terms and not self.channelwise else 1, op.outputs)
        constants = np.random.default_rng(0).integers(1 - half, half, (sums, terms, words), endpoint=half == 1)
        return DotProducts(
            device=self.device,
            operand=operand,
            weight_bits=op.weight_bits,
            weight_range=(-half, half - 1),
            terms=(terms - chains * (positions - 1), *(chains for _ in range(positions - 1))),
            sum_bits=(operand.width + op.weight_bits + terms.bit_length(),) * sums,
            constants=None if multiplier.stores_weights else _nested(constants),
        )

    @property
    def min_finish_slices(self) -> int:
        return 1 if self.op.loaded else 0

    @cached_property
    def _lane_slices(self) -> dict[Multiplier, int]:
        """Dictionary (cache) by `Multiplier`: number of DSP slices of one requantiser lane that serves all channels."""
        return {}

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        op = self.op
        if op.loaded:
            return self.min_finish_slices
        if multiplier not in self._lane_slices:
            channels = tuple((channel,) for channel in range(op.outputs))
            bias = op.folded_bias + (self._offset(multiplier) * op.weights.sum(axis=(1, 2, 3)) << op.fraction)
            finish = self._finish(self.sum_bits(multiplier), bias.tolist(), 1, channels, 1)
            self._lane_slices[multiplier] = finish.multipliers
        return self._lane_slices[multiplier]

    def _offset(self, multiplier: Multiplier) -> int:
        """Return the integer that a multiplier subtracts from each activation (`Multiplier.offset`)."""
        return multiplier.offset(Shape(self.op.input.type.bits, self.op.input.type.signed))

    @property
    def requantiser_input_bits(self) -> int:
        return self.sum_bits()

    def weight_bram36(self, work: LayerWork, unroll: Unroll) -> Any:
        return weight_block_rams(
            self.device.memories,
            unroll.tk if self.channelwise else unroll.tn * unroll.tk,
            unroll.tm * self.stored_weight_bits,
            np.where(unroll.tm > unroll.lut_lanes, work.chain, 1),  # products in LUTs have no chain
            np.asarray(work.pixel_cycles(unroll)),
        )

    def sum_bits(self, multiplier: Multiplier = PLAIN) -> int:
        """Return the number of bits of a signed accumulator of ``w * x`` that can't overflow, in any order of summing.

        The bound follows from the weights. The operands ``x`` are the activations less the multiplier's offset.
        """
        offset = self._offset(multiplier)
        low, high = self.op.input.type.minimum - offset, self.op.input.type.maximum - offset
        positive, negative = self._signed_sums(multiplier)
        most, least = (positive * high + negative * low).max(), (positive * low + negative * high).min()
        return max(signed_bits(int(least), int(most)), 2)

    def _signed_sums(self, multiplier: Multiplier) -> tuple[np.ndarray, np.ndarray]:
        """Return, as a pair, two int64 arrays by output channel: sum of positive weights, and sum of negative weights.

        If weights are loaded at run time, the arrays have one entry each: the sum of the largest magnitude that any
        weights have.
        """
        op = self.op
        if not op.loaded:
            return op.signed_sums
        count, (least, greatest) = op.weights[0].size, multiplier.weight_range(op.weight_bits)
        return np.array([count * greatest]), np.array([count * least])

    def check(self, plan: LayerPlan) -> None:
        super().check(plan)
        if self.op.loaded and plan.requantise_in != "dsp":
            raise PlanError(f"{self.op.name}: requantise must be 'dsp' with weights loaded at run time, not 'lut'")

    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[LayerCompute, LayerFinish | None]:
        op = self.op
        compute = MultiplyConfig(
            window=window,
            outputs=op.outputs,
            lanes=plan.tm,
            weights=_weights(op),
            weight_bits=op.weight_bits,
            sum_bits=self.sum_bits(multiplier_of(plan.macs_per_dsp)),
            chain=plan.chain,
            macs_per_dsp=plan.macs_per_dsp,
            lut_lanes=plan.lut_lanes,
            weights_in=plan.weights_in,
            weights_joined=plan.weights_joined,
            loaded=op.loaded,
        )
        if plan.lut_lanes:
            compute = replace(compute, sum_bits=self.sum_bits(compute.kinds.deciding))
        offsets = (offset << op.fraction for offset in compute.offsets)
        bias = [value + offset for value, offset in zip(op.folded_bias.tolist(), offsets, strict=True)]
        if op.requantisation is None and compute.kinds.whole:
            return replace(compute, bias=tuple(bias), sum_bits=op.output.type.bits), None
        return compute, self._finish(compute.sum_bits, bias, lanes, beats, window.pixels, plan.requantise_in)

    def _finish(
        self,
        accumulator_bits: int,
        bias: Sequence[int],
        lanes: int,
        beats: Beats,
        pixels: int,
        products_in: str = "dsp",
    ) -> AddBiasConfig | RequantiseConfig | LoadedRequantiseConfig | ThresholdConfig:
        op, rule, thresholds = self.op, self.op.requantisation, None
        channels = channel_fields(self, accumulator_bits, bias, lanes, beats, pixels)
        if op.loaded:
            return _loaded_requantiser(op, rule, channels, op.fraction)
        if rule is None:
            return AddBiasConfig(**channels, bits=op.output.type.bits)
        if rule.high - rule.low <= MAX_THRESHOLDS:
            thresholds = threshold_config(
                rule, op.output.type, accumulator_bits, bias, op.fraction,
                lanes=lanes, beats=beats, pixels=pixels, device=self.device,
            )  # fmt: skip
        if not isinstance(rule, Requantisation):
            assert thresholds is not None
            return thresholds
        config = replace(requantiser(op, rule, channels, op.fraction), products_in=products_in)
        return config if thresholds is None or not should_replace(thresholds, config) else thresholds


def _loaded_requantiser(
    op: ops.Op, rule: Rule | None, channels: dict[str, Any], fraction: int = 0
) -> LoadedRequantiseConfig:
    """Return the `LoadedRequantiseConfig` whose biases, factors and shifts are loaded at run time.

    Raises
    ------
    PlanError
        If outputs have more than `OUTPUT_BITS` bits, or the rule is missing or does not round in float32.
    """
    if (bits := op.output.type.bits) > OUTPUT_BITS:
        raise PlanError(
            f"{op.name}: outputs must have at most {OUTPUT_BITS} bits with weights loaded at run time, not {bits}: "
            "plan without "
            "--weights runtime"
        )
    if not isinstance(rule, Requantisation) or not rule.float32:
        raise PlanError(
            f"{op.name}: outputs must be requantised in float32, as ONNX Runtime does, where weights are loaded at run "
            "time: plan without --weights runtime"
        )
    return LoadedRequantiseConfig(**channels, **rule_fields(op, rule), fraction=fraction)


_KNOWN: WeakKeyDictionary[ops.Conv, Weights] = WeakKeyDictionary()


def _weights(op: ops.Conv) -> Weights:
    """Return a convolution's weights as its circuit stores them (`Weights`), the same object at each call."""
    if op not in _KNOWN:
        _KNOWN[op] = Weights(op.weights.astype(np.intc).tobytes())
    return _KNOWN[op]


@dataclass(frozen=True)
class AveragePoolStage(WindowStage[ops.AveragePool]):
    """Planner's model of an average pool, which sums up windows and compares the sums with thresholds between outputs.

    Sums are integers if float32 rounds none of them, else float32.
    """

    @cached_property
    def _unit(self) -> tuple[int, int]:
        """Pair of an odd integer and an exponent, such that the input's scale is ``unit * 2**exponent``."""
        fraction, exponent = np.frexp(self.op.x_scale)
        unit = int(np.ldexp(fraction, 24))
        zeros = trailing_zeros(unit)
        return unit >> zeros, int(exponent) - 24 + zeros

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        """Tuple of distinct divisors (numbers of pixels) of the pool's window sums, ascending."""
        return tuple(np.unique(self.op.counts).tolist())

    @property
    def whole_windows(self) -> bool:
        exact = self.op.taps * self.op.reach * self._unit[0] <= 1 << 24
        return not exact or len(self._counts) > 1

    @property
    def min_luts(self) -> int:
        """Number of LUTs of one lane that adds up all taps of a window at once; 0 if taps are added in turn."""
        if not self.whole_windows:
            return 0
        op = self.op
        window = LineBufferConfig(
            device=self.device,
            input=BeatFormat(
                channels=op.channels,
                height=op.height,
                width=op.width,
                lanes=1,
                bits=op.input.type.bits,
                signed=op.input.type.signed,
            ),
            kernel=op.window.kernel,
            stride=op.window.stride,
            padding=op.window.padding,
            pad_value=op.pad_value,
            taps=op.taps,
            output_folds=op.channels,
            channelwise=True,
            rows=op.window.extent[0],
        )
        unit, _ = self._unit
        return FloatSumConfig(window=window, zero_point=op.input.zero_point, unit=unit).resources.lut

    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[LayerCompute, LayerFinish | None]:
        zero, (unit, _) = self.op.input.zero_point, self._unit
        if self.whole_windows:
            window = replace(window, inside=len(self._counts) > 1)
            floats = FloatSumConfig(window=window, zero_point=zero, unit=unit)
            return floats, self._finish(floats, 1, 0, lanes, beats)
        integers = SumConfig(window=window)
        return integers, self._finish(integers, unit, integers.term_count * zero, lanes, beats)

    def _finish(
        self, compute: SumConfig | FloatSumConfig, unit: int, offset: int, lanes: int, beats: Beats
    ) -> ThresholdConfig:
        """Return the `ThresholdConfig` that turns sums, each worth ``unit * (sum - offset)``, into outputs."""
        op, (low_sum, high_sum), counts = self.op, compute.sum_range, self._counts

        def outputs(sums: np.ndarray, count: int) -> np.ndarray:
            reals = np.ldexp((unit * (sums - offset)).astype(np.float64), self._unit[1])
            return op.rounded(reals.astype(np.float32), count).astype(np.int64)

        ends = [outputs(np.array([low_sum, high_sum]), count) for count in counts]
        low, high = int(min(end[0] for end in ends)), int(max(end[1] for end in ends))
        integer_type, bits, varying = op.output.type, signed_bits(low_sum, high_sum), len(counts) > 1
        return ThresholdConfig(
            device=self.device,
            lanes=lanes,
            accumulator_bits=bits,
            thresholds=tuple(
                first_sums(
                    lambda sums, count=count: outputs(sums, count), low_sum, high_sum, np.arange(low + 1, high + 1)
                )
                for count in counts
            ),
            counts=counts if varying else (),
            count_bits=op.taps.bit_length() if varying else 0,
            low=low,
            bits=integer_type.bits,
            signed=integer_type.signed,
            beats=beats,
            pixels=compute.window.pixels,
        )


class WholeMapStage(Stage[ops.GlobalAveragePool]):
    """Planner's model of a global average pool: one running sum per channel, and a requantiser."""

    has_line_buffer, layer_type = False, WholeMapLayerConfig

    @property
    def port_bits(self) -> int:
        return SIGNIFICAND_BITS + 1 if self.op.loaded else 0

    @property
    def work_fields(self) -> dict[str, Any]:
        return {**super().work_fields, "taps": 1}

    @cached_property
    def _in_windows(self) -> SumPoolStage:
        """`SumPoolStage` of the global average pool as one window over the map, with the same requantiser."""
        return SumPoolStage(self.op, self.device)

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        return self._in_windows.finish_slices()

    def layer(self, plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]) -> LayerConfig:
        op, (source,), lanes = self.op, sources, plan.fifo_lanes or plan.tm
        compute = RunningSumConfig(window=WholeMapConfig(device=self.device, input=source))
        beats = output_beats(op, plan.tm, lanes, source.groups)
        finish = self._in_windows.finish(compute.result.width, op.taps, lanes, beats, 1)
        return self.layer_config(compute, finish, lanes, plan, sinks)


@dataclass(frozen=True)
class SumPoolStage(WindowStage[ops.SumPool]):
    """Planner's model of a sum pool, or a global average pool in a pyramid: integer window sums, and a requantiser."""

    @property
    def port_bits(self) -> int:
        return SIGNIFICAND_BITS + 1 if self.op.loaded else 0

    @cached_property
    def _lane_slices(self) -> int:
        integer_type, pixels = self.op.input.type, self.op.taps
        bits = signed_bits(pixels * integer_type.minimum, pixels * integer_type.maximum)
        return self.finish(bits, pixels, 1, tuple((channel,) for channel in range(self.op.outputs)), 1).multipliers

    def finish_slices(self, multiplier: Multiplier = PLAIN) -> int:
        return self._lane_slices

    def compute_and_finish(
        self, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: Beats
    ) -> tuple[LayerCompute, LayerFinish | None]:
        compute = SumConfig(window=window)
        return compute, self.finish(compute.result.width, compute.term_count, lanes, beats, window.pixels)

    def finish(
        self, bits: int, terms: int, lanes: int, beats: Beats, pixels: int
    ) -> RequantiseConfig | LoadedRequantiseConfig:
        """Return the configuration of a requantiser for sums of ``terms`` activations; each sum has ``bits`` bits."""
        channels = channel_fields(
            self, bits, [-terms * self.op.input.zero_point] * self.op.outputs, lanes, beats, pixels
        )
        make = _loaded_requantiser if self.op.loaded else requantiser
        return make(self.op, self.op.requantisation, channels)


STAGES: dict[type[ops.Op], type[Stage[Any]]] = {
    ops.Conv: ConvStage,
    ops.MaxPool: MaxPoolStage,
    ops.AveragePool: AveragePoolStage,
    ops.GlobalAveragePool: WholeMapStage,
    ops.SumPool: SumPoolStage,
    ops.Add: joins.AddStage,
    ops.Sub: joins.AddStage,
    ops.Sum: joins.SumStage,
    ops.Mul: joins.MulStage,
    ops.Max: joins.ExtremeStage,
    ops.Min: joins.ExtremeStage,
    ops.Concat: joins.ConcatStage,
    ops.Copy: joins.CopyStage,
    ops.FixedPoint: FixedPointStage,
    ops.Upsample: joins.UpsampleStage,
    ops.Resample: joins.ResampleStage,
    ops.Interpolate: joins.InterpolateStage,
    ops.Lookup: joins.LookupStage,
    ops.LRN: LRNStage,
    ops.Select: joins.SelectStage,
    ops.Crop: MaxPoolStage,
    ops.Pad: MaxPoolStage,
    ops.DepthToSpace: joins.ReorderStage,
    ops.SpaceToDepth: joins.ReorderStage,
}
"""Dictionary by class of layer of planner models (classes of `Stage`), for groups computed row by row."""

IN_TILES: dict[type[ops.Op], type[Stage[Any]]] = {
    ops.Conv: ConvStage,
    ops.MaxPool: MaxPoolStage,
    ops.AveragePool: AveragePoolStage,
    ops.GlobalAveragePool: SumPoolStage,
    ops.SumPool: SumPoolStage,
}
"""Dictionary by class of layer of planner models (classes of `Stage`), for groups computed tile by tile."""


def stage_of(
    op: ops.Op, device: Device = DEFAULT, stages: Mapping[type[ops.Op], type[Stage[Any]]] = STAGES
) -> Stage[Any]:
    """Return the planner's `Stage` (model) of a layer on a device family, found by its class in ``stages``.

    Raises
    ------
    PlanError
        If ``stages`` has no stage for the layer's class, or the family's DSP slices are too narrow.
    """
    if type(op) not in stages:
        if type(op) in STAGES:
            raise PlanError(f"{op.name}: pyramids can't compute a layer of kind {op.kind!r}: use --template stream")
        raise PlanError(
            f"{op.name}: hwgen has no hardware for a layer of kind {op.kind!r}: stop before it with --until"
        )
    stage, wide_bits = stages[type(op)](op, device), device.multiplier_slice.wide_bits
    if stage.port_bits > wide_bits:
        raise PlanError(
            f"{op.name}: {stage.wide_circuit} needs multipliers of {stage.port_bits} bits, but {device.title} devices "
            f"have {wide_bits}: use a board of another family, such as zedboard"
        )
    return stage
