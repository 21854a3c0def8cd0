"""Translation of layers into passes (runs through the engine's array): one pass, several, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LANES, STRIDES
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.network.maps import FeatureMap, Requantisation, Window
from hwgen.network.maps import Rule as OutputRule
from hwgen.network.ops import (
    LRN,
    Add,
    AveragePool,
    Concat,
    Conv,
    Copy,
    Crop,
    DepthToSpace,
    FixedPoint,
    GlobalAveragePool,
    Interpolate,
    Lookup,
    Max,
    MaxPool,
    Min,
    Mul,
    Op,
    Pad,
    Resample,
    Select,
    SpaceToDepth,
    Sub,
    Sum,
    SumPool,
    Upsample,
)
from hwgen.program.array_pass import (
    LookupTables,
    Pass,
    PixelGrid,
    StoredRange,
    geometry_of,
    repeat_weights,
    rule_of,
    unscaled_pass,
    window_of,
)
from hwgen.program.elementwise import (
    add_passes,
    extreme_passes,
    extreme_scratch,
    lookup_passes,
    lookup_table,
    needs_float_sums,
    product_factors,
    product_passes,
    scaled_lookup,
    sum_passes,
    with_sum,
)
from hwgen.program.factors import DivisorRegion, Factors, StepFunctions, average_factors, divisor_regions, fit
from hwgen.program.fixed import (
    conv_pass,
    fixed_point_passes,
    is_wide,
    max_pool_passes,
    sum_pool_passes,
    sum_pool_scratch,
)
from hwgen.program.fixed_builder import OTHER_ROUNDING
from hwgen.program.float_sums import MAX_ADDENDS, average_passes
from hwgen.program.interpolate import interpolate_passes, interpolate_scratch, wide_interpolate_passes
from hwgen.program.layout import blocks, by_value, offset, parameter_words
from hwgen.program.normalise import normalise_passes, normalise_scratch
from hwgen.program.resample import resample_passes
from hwgen.program.unfold import UnfoldedConv
from hwgen.program.wide_moves import concat_of_bytes, passes_of_all_bytes, passes_of_each_byte

#: Maximum kernel size, in taps, and maximum dilation: the fields of a job have 8 bits.
MAX_TAPS = 255


def passes(ops: Sequence[Op], takes: Sequence[Sequence[str]], inside: Sequence[bool]) -> tuple[Pass, ...]:
    """Return a tuple of each `Pass` through the array of a layer and of the layers fused onto its output.

    Parameters
    ----------
    ops : sequence of Op
        The layer, and then the layers on its output path.
    takes : sequence of sequence of str
        Input edges of each layer.
    inside : sequence of bool
        Whether each input of the first layer is already stored in the layer's output.

    Raises
    ------
    ModelError
        If the engine can't compute a layer exactly, with the reason.
    """
    op, *fused = ops
    if type(op) not in _RULES:
        raise ModelError(
            f"{op.name}: the engine can't compute {op.kind}; it computes {', '.join(kinds())}; use --template stream"
        )
    for layer in ops:
        _check_bits(layer)
    _check_window(op)
    rule = _RULES[type(op)]
    make = rule.wide_passes if rule.wide_passes and is_wide(op.input) else rule.passes
    layer_passes = make(op, takes[0], inside) if op.concatenates else make(op, takes[0])
    for later_op, edges in zip(fused, takes[1:], strict=True):
        fuse = _RULES[type(later_op)].fuse
        assert fuse is not None
        layer_passes = tuple(fuse(task, later_op, edges) for task in layer_passes)
    return layer_passes


def _check_bits(op: Op) -> None:
    """Refuse a layer whose maps have more bits than the engine computes for such a layer."""
    rule = _RULES[type(op)]
    for feature_map in (*op.inputs, op.output):
        is_taken = rule.wide_passes or (rule.has_wide_outputs and feature_map is op.output)
        if is_wide(feature_map) and not is_taken:
            raise ModelError(
                f"{op.name}: the engine computes {op.kind} with values of at most 8 bits, not with a map of "
                f"{feature_map}; use --template stream"
            )


def can_fuse(before: Sequence[Op], op: Op) -> bool:
    """Return whether the engine can apply a layer to the outputs of the layers ``before`` without a pass of its own."""
    if any(type(layer) not in _RULES for layer in (*before, op)):
        return False
    kind, first, last = (_RULES[type(layer)] for layer in (op, before[0], before[-1]))
    if kind.fuse is None or scratch_maps(before[0]) or type(op) in last.never_before or is_wide(before[-1].output):
        return False
    if first.needs_fixed_unit(before[0]):
        return False
    return not (kind.needs_whole_map and first.in_parts(before[0])) and kind.fusible(before, op)


def _fuse_sum(task: Pass, op: Add, edges: Sequence[str]) -> Pass:
    """Return a `Pass`: a copy of a pass (run of the array) with an addition of another map fused onto its outputs."""
    return with_sum(task, op, edges, edges.index(task.target[0]))


def _fuse_lookup(task: Pass, op: Lookup, edges: Sequence[str]) -> Pass:
    """Return a `Pass`: a copy of a pass with a lookup table, such as an activation function, fused onto its output."""
    return replace(task, target=(op.name, task.target[1]), tables=(*task.tables, lookup_table(op)))


def _fuse_pool(task: Pass, op: MaxPool, edges: Sequence[str]) -> Pass:
    """Return a `Pass`: a copy of a pass that writes 2 x 2 maxima; its rows and columns, before pooling, become even."""
    target = op.name, task.target[1]
    return replace(task, target=target, pooled=True, rows=task.rows // 2 * 2, columns=task.columns // 2 * 2)


def _is_halving(before: Sequence[Op], op: Op) -> bool:
    """Return whether a max pool has 2 x 2 windows, stride 2, and a layer before it with equal strides on both axes."""
    halves = op.window == Window(kernel=(2, 2), stride=(2, 2))
    return halves and len(set(window_of(before[0]).stride)) == 1


def _average_pool(op: AveragePool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a `Pass` of an average pool for each rectangle of the output with equal divisors."""
    if _average_needs_float_sums(op):
        return average_passes(op, edges)
    return tuple(_average_region(op, edges, region) for region in divisor_regions(op))


@lru_cache(maxsize=1024)
def _average_needs_float_sums(op: AveragePool) -> bool:
    """Return whether an average pool needs the fixed-point unit's float32 sums: no factor requantises sums exactly."""
    if op.taps > MAX_ADDENDS:
        return False
    try:
        for region in divisor_regions(op):
            average_factors(op, region.count)
    except ModelError:
        return True
    return False


def _average_region(op: AveragePool, edges: Sequence[str], region: DivisorRegion) -> Pass:
    """Return the `Pass` that computes a rectangle of an average pool's output, whose windows have equal divisors."""
    weight, factors = average_factors(op, region.count)
    zero = op.input.zero_point - offset(op.input.type)
    kind, ones, task = op.output.type, np.ones(LANES, np.int64), unscaled_pass(op, edges, op.output.type)
    (top, left), window = (span[0] for span in (region.rows, region.columns)), task.window
    before = window.padding[0] - top * window.stride[0], window.padding[1] - left * window.stride[1]
    return replace(
        task,
        weights=np.full((LANES, 1, *op.window.kernel), weight),
        window=replace(window, padding=(*before, *window.padding[2:])),
        rows=region.rows[1] - top,
        columns=region.columns[1] - left,
        lattice=PixelGrid(first=(top, left)),
        rule=rule_of(kind, factors.zero_point, kind.minimum, kind.maximum),
        parameters=parameter_words(
            (int(factors.bias[0]) - zero * weight * op.taps) * ones, factors.significand * ones, factors.shift * ones
        ),
    )


def kinds() -> list[str]:
    """Return a list of the names of the layer types that the engine computes."""
    return [*dict.fromkeys(kind.kind for kind in (*_RULES, Copy))]


def _check_window(op: Op) -> None:
    """Refuse a layer whose strides, kernel size or dilation exceed the engine's limits."""
    window = window_of(op)
    if window.stride[0] not in (window.stride[1], *range(1, MAX_TAPS + 1)):
        raise ModelError(
            f"{op.name}: the engine accepts vertical strides of 1 to {MAX_TAPS}, or the horizontal one, not "
            f"{window.stride[0]}; use --template stream"
        )
    if window.stride[1] not in STRIDES:
        raise ModelError(
            f"{op.name}: the engine accepts horizontal strides of 1 to {STRIDES[-1]}, not {window.stride[1]}; use "
            "--template stream"
        )
    if max(*window.kernel, *window.dilation) > MAX_TAPS:
        raise ModelError(
            f"{op.name}: the engine accepts kernels and dilations of at most {MAX_TAPS} per axis, not {window}; use "
            "--template stream"
        )


def _conv(op: Conv, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a convolution's `Pass`, or with one per group if groups have multiples of 8 channels."""
    if is_wide(op.output):
        return (_wide_conv(op, edges),)
    parameters = rule = None
    if op.requantisation is not None:
        factors = _conv_factors(op)
        if factors is None:
            return (_wide_conv(op, edges),)
        zero = op.input.zero_point - offset(op.input.type)
        rule, parameters = _rule_and_parameters(op, factors, zero * op.weights.sum(axis=(1, 2, 3)))
    (edge,) = edges
    if op.groups > 1 and op.groups == op.channels == op.outputs:
        whole = Pass(
            channels=LANES,
            maps=op.outputs,
            weights=op.weights if rule else None,
            rule=rule,
            parameters=parameters,
            channelwise=True,
            **geometry_of(op, (edge, 0)),
        )
        return (whole,)
    groups, weights = op.groups, op.weights if rule else None
    if groups > 1 and (op.channels // groups % LANES or op.outputs // groups % LANES):
        groups, weights = 1, _make_dense_weights(op) if rule else None
    return tuple(_group(op, edge, group, groups, weights, rule, parameters) for group in range(groups))


def _wide_conv(op: Conv, edges: Sequence[str]) -> Pass:
    """Return the `Pass` of a convolution with outputs of more than 8 bits, or whose 8-bit outputs no factor rounds.

    Grouped convolutions become dense, with zeros as the other weights, but depthwise ones stay channelwise.
    """
    # The pass has no rule or parameters: its program in the fixed-point unit adds the bias and requantises the sums. A
    # program sees all outputs of a pass, so that the groups can't be passes of their own.
    is_channelwise = op.groups > 1 and op.groups == op.channels == op.outputs
    task = Pass(
        channels=LANES if is_channelwise else op.channels,
        maps=op.outputs,
        weights=op.weights if is_channelwise or op.groups == 1 else _make_dense_weights(op),
        rule=None,
        parameters=None,
        channelwise=is_channelwise,
        **geometry_of(op, (edges[0], 0)),
    )
    return conv_pass(op, task)


def _unfolded(op: UnfoldedConv, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the `Pass` of a convolution whose input is stored unfolded (taps as channels)."""
    (task,) = _conv(op, edges)
    rows = op.unfold.rows if op.window.kernel[0] > 1 else 0
    return (replace(task, unfold_columns=op.unfold.columns, unfold_rows=rows, last_channels=op.last_channels),)


def _make_dense_weights(op: Conv) -> np.ndarray:
    """Return an array: a grouped convolution's weights as a dense convolution's, with zeros between groups."""
    maps, channels = op.outputs // op.groups, op.channels // op.groups
    whole = np.zeros((op.groups, maps, op.groups, channels, *op.window.kernel), np.int64)
    for group, weights in enumerate(op.weights.reshape(op.groups, maps, channels, *op.window.kernel)):
        whole[group, :, group] = weights
    return whole.reshape(op.outputs, op.channels, *op.window.kernel)


def _group(
    op: Conv,
    edge: str,
    group: int,
    groups: int,
    weights: np.ndarray | None,
    rule: StoredRange | None,
    parameters: np.ndarray | None,
) -> Pass:
    """Return the `Pass` of one group of a grouped convolution whose groups have multiples of 8 channels."""
    channels, maps = op.channels // groups, op.outputs // groups
    outputs = slice(group * maps, (group + 1) * maps)
    return Pass(
        channels=channels,
        maps=maps,
        weights=None if weights is None else weights[outputs],
        rule=rule,
        parameters=None if parameters is None else parameters[outputs],
        **geometry_of(op, (edge, group * blocks(channels)), block=group * blocks(maps)),
    )


@lru_cache(maxsize=1024)
def _conv_factors(op: Conv) -> Factors | None:
    """Return `Factors` that let the engine requantise a convolution's sums exactly; ``None`` if none are found.

    Without factors, only the fixed-point unit can requantise the sums.
    """
    rule = op.requantisation
    assert rule is not None
    if isinstance(rule, Requantisation) and rule.float32 and not op.fraction:
        return Factors(significand=rule.significand, shift=rule.shift, bias=op.bias, zero_point=rule.zero_point)
    reach = op.input.type.reach(op.input.zero_point)
    most = (np.abs(op.weights).sum(axis=(1, 2, 3)) * reach << op.fraction) + np.abs(op.bias)
    steps = StepFunctions.of_rule(rule, rule.low, rule.high, most).before_bias(op.bias, op.fraction)
    return _fit_rule(op, rule, steps, op.bias, op.fraction)


def _lacks_factors(op: Conv) -> bool:
    """Return whether no factors let the engine requantise a convolution's sums exactly."""
    return op.requantisation is not None and _conv_factors(op) is None


def _fit_rule(
    op: Op, rule: OutputRule, steps: StepFunctions, bias: np.ndarray | int = 0, fraction: int = 0
) -> Factors | None:
    """Return `Factors` that requantise sums exactly, given where outputs step up; ``None`` if none are found.

    ``fraction`` is the number of fractional bits of the biases.
    """
    if isinstance(rule, Requantisation):
        whole = np.rint(bias / 2.0**fraction).astype(np.int64) + 0 * rule.shift
        guess = Factors(
            significand=rule.significand, shift=rule.shift - fraction, bias=whole, zero_point=rule.zero_point
        )
    else:
        spans = np.maximum(steps.above[:, -1] - steps.above[:, 0], 1)
        guess = Factors.of_ratio((len(steps.outputs) - 1 or 1) / spans, op.output.zero_point)
    return fit(steps, guess, op.output.type)


def _rule_and_parameters(op: Op, factors: Factors, offsets: np.ndarray) -> tuple[StoredRange, np.ndarray]:
    """Return a pair: a layer's `StoredRange` and parameter words; ``offsets`` are subtracted from the biases."""
    bias, bounds = factors.bias - offsets, op.requantisation  # type: ignore[attr-defined]
    if max(int(bias.max()), -int(bias.min()) - 1) >= 1 << 31:
        raise ModelError(
            f"{op.name}: biases must fit 32 bits after the input's zero point is folded in, not reach "
            f"{np.abs(bias).max():,}; use --template stream"
        )
    rule = rule_of(op.output.type, factors.zero_point, bounds.low, bounds.high)
    return rule, parameter_words(bias, factors.significand, factors.shift)


def _max_pool(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the single `Pass`, channelwise, of a max pool."""
    return (unscaled_pass(op, edges, op.output.type, maximum=True),)


def _copy_pass(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the channelwise `Pass` that copies a map's values, as for a crop or a padding."""
    return (unscaled_pass(op, edges, op.output.type),)


def _select(op: Select, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the `Pass` of a channel selection, a convolution with one weight of 1 per output."""
    return (_pick_pass(op, edges, op.index),)


def _pick_pass(op: Op, edges: Sequence[str], index: Sequence[int]) -> Pass:
    """Return a convolution `Pass` that copies input channel ``index[m]`` to each output channel ``m``."""
    weights = (np.arange(op.channels) == np.array(index)[:, None]).astype(np.int64)[..., None, None]
    one, shift = np.full(op.outputs, 1 << 23), np.full(op.outputs, 23)
    task = replace(unscaled_pass(op, edges, op.output.type), channelwise=False, channels=op.channels, weights=weights)
    return replace(task, parameters=parameter_words(0 * one, one, shift))


def _upsample(op: Upsample, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a `Pass` of a nearest-neighbour upsampling, a map copy, per pixel of an output block."""
    task = repeat_weights(replace(unscaled_pass(op, edges, op.output.type), rows=op.height, columns=op.width))
    return tuple(replace(task, lattice=each) for each in _pixel_grids(op.factors))


def _depth_to_space(op: DepthToSpace, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple of passes (runs of the array) of a depth-to-space layer: one for each pixel of an output block.

    Each pass copies the channels of one pixel, as whole blocks of 8 channels if possible.
    """
    tasks = []
    for pixel_index, lattice in enumerate(_pixel_grids(op.blocks)):
        first = pixel_index * op.outputs
        if op.outputs % LANES:
            task = _pick_pass(op, edges, range(first, first + op.outputs))
        else:
            task = replace(repeat_weights(unscaled_pass(op, edges, op.output.type)), source=(edges[0], first // LANES))
        tasks.append(replace(task, rows=op.height, columns=op.width, lattice=lattice))
    return tuple(tasks)


def _pixel_grids(step: tuple[int, int]) -> list[PixelGrid]:
    """Return a list of each `PixelGrid` of output pixels, one per position in a ``step`` block, by row."""
    return [PixelGrid(step=step, first=first) for first in np.ndindex(step)]


def _space_to_depth(op: SpaceToDepth, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with a space-to-depth layer's `Pass`: a strided convolution, one weight of 1 per output."""
    down, right = op.blocks
    if right not in STRIDES:
        raise ModelError(
            f"{op.name}: the engine accepts blocks of 1 to {STRIDES[-1]} columns, not {right}; use --template stream"
        )
    weights = np.zeros((down, right, op.channels, op.channels, down, right), np.int64)
    for row, column, channel in np.ndindex(down, right, op.channels):
        weights[row, column, channel, channel, row, column] = 1
    task = _pick_pass(op, edges, range(op.outputs))
    window = Window(kernel=op.blocks, stride=op.blocks)
    return (replace(task, weights=weights.reshape(op.outputs, op.channels, down, right), window=window),)


def concatenated_in(op: Op) -> tuple[str, list[int]]:
    """Return a pair: name of the map that stores a concatenation's inputs, and the first channel of each input in it.

    Inputs begin at whole blocks of 8 channels. If they do so in the output, too, they are joined there, otherwise in a
    scratch map, and a last pass picks the output's channels.
    """
    sizes = [source.channels for source in op.inputs]
    if any(size % LANES for size in sizes[:-1]):
        starts = np.cumsum([0, *(LANES * blocks(size) for size in sizes[:-1])]).tolist()
        return f"{op.name} parts", starts
    return op.name, np.cumsum([0, *sizes[:-1]]).tolist()


def scratch_maps(op: Op) -> dict[str, FeatureMap]:
    """Return a dict by name of each scratch `FeatureMap` of a layer, which its passes write and read again."""
    return _RULES[type(op)].scratch(op) if type(op) in _RULES else {}


def _concat_scratch(op: Concat) -> dict[str, FeatureMap]:
    """Return a dict with the scratch map of a concatenation whose inputs don't all begin at whole 8-channel blocks."""
    edge, starts = concatenated_in(op)
    return {} if edge == op.name else {edge: replace(op.output, channels=starts[-1] + op.inputs[-1].channels)}


def _concat(op: Concat, edges: Sequence[str], inside: Sequence[bool]) -> tuple[Pass, ...]:
    """Return a tuple of the passes that copy each input of a concatenation, through a lookup table, to its place.

    An input that is already stored there needs no pass. If inputs do not begin at whole blocks of the output, a last
    pass picks the output's channels.
    """
    tasks, (place, starts) = [], concatenated_in(op)
    for edge, source, table, start, is_inside in zip(edges, op.inputs, op.tables, starts, inside, strict=True):
        if not is_inside:
            kept = replace(op, input=source, more=(), labels=(op.labels[0], op.labels[-1]), output=source)
            entries = by_value(table - offset(op.output.type), source.type)
            task = replace(unscaled_pass(kept, (edge,), source.type), target=(place, start // LANES))
            tasks.append(replace(task, tables=(LookupTables(first=ACTIVATION, entries=entries[None]),)))
    for edge, joined_map in scratch_maps(op).items():
        spans = zip(starts, op.inputs, strict=True)
        index = [start + channel for start, source in spans for channel in range(source.channels)]
        window = Window(kernel=(1, 1))
        select = Select(name=op.name, input=joined_map, output=op.output, window=window, index=tuple(index))
        tasks += _select(select, (edge,))
    return tuple(tasks)


def _global_average(op: GlobalAveragePool, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the channelwise `Pass` of a global average pool: the map's sum, requantised."""
    rule, zero = op.requantisation, op.input.zero_point - offset(op.input.type)
    none = np.zeros(op.outputs, np.int64)
    if rule.float32:
        factors = Factors(significand=rule.significand, shift=rule.shift, bias=none, zero_point=rule.zero_point)
    else:
        most = np.full(op.outputs, op.taps * ((1 << op.input.type.bits) - 1))
        fitted = _fit_rule(op, rule, StepFunctions.of_rule(rule, rule.low, rule.high, most))
        if fitted is None:
            raise ModelError(f"{op.name}: {OTHER_ROUNDING}")
        factors = fitted
    bounds, parameters = _rule_and_parameters(op, factors, np.full(op.outputs, zero * op.taps))
    return (replace(unscaled_pass(op, edges, op.output.type), rule=bounds, parameters=parameters),)


def _no_scratch(op: Op) -> dict[str, FeatureMap]:
    """Return an empty dictionary, as the layer's passes (runs of the array) need no scratch maps in memory."""
    return {}


@dataclass(frozen=True)
class _LayerRule:
    """Rule for one layer type on the engine: makes a layer's passes, or fuses it onto another layer's pass."""

    passes: Callable[..., tuple[Pass, ...]]
    """Function from a layer and its input maps' names to a tuple of each `Pass` of the layer through the array."""
    scratch: Callable[[Any], dict[str, FeatureMap]] = _no_scratch
    """Function that returns a dictionary by name of each scratch `FeatureMap` that a layer's passes exchange."""
    in_parts: Callable[[Any], bool] = lambda op: False
    """Function that tells whether each of a layer's passes computes only some of the output's pixels."""
    never_before: tuple[type[Op], ...] = ()
    """Tuple of `Op` classes of layers that can't be fused onto the output of a layer of this type."""
    fuse: Callable[[Pass, Any, Sequence[str]], Pass] | None = None
    """Function that returns a `Pass` with a layer of this type fused onto it; ``None`` if it has its own passes."""
    fusible: Callable[[Sequence[Op], Any], bool] = lambda before, op: True
    """Function that tells whether a layer of this type can be fused onto the output of given earlier layers."""
    needs_whole_map: bool = True
    """Whether a layer of this type can only be fused onto a pass that computes all pixels of its map."""
    wide_passes: Callable[..., tuple[Pass, ...]] | None = None
    """Function that returns a tuple of each `Pass` of a layer for maps of more than 8 bits; ``None`` if none."""
    has_wide_outputs: bool = False
    """Whether the output can have more than 8 bits, and the inputs not."""
    needs_fixed_unit: Callable[[Any], bool] = lambda op: False
    """Function that tells whether only the fixed-point unit computes a layer with outputs of 8 bits."""


def _by_byte(make: Callable[..., tuple[Pass, ...]]) -> Callable[..., tuple[Pass, ...]]:
    """Return a function that makes a layer's passes (runs of the array) for wide maps, from the one for 8-bit maps."""
    return lambda op, edges: passes_of_each_byte(make(op, edges), op)


_SUM = _LayerRule(add_passes, never_before=(Add, Sub), fuse=_fuse_sum, fusible=lambda before, op: len(before) == 1)
_EXTREME = _LayerRule(extreme_passes, scratch=extreme_scratch)
_RULES: dict[type[Op], _LayerRule] = {
    Conv: _LayerRule(_conv, has_wide_outputs=True, needs_fixed_unit=_lacks_factors),
    UnfoldedConv: _LayerRule(_unfolded, has_wide_outputs=True, needs_fixed_unit=_lacks_factors),
    MaxPool: _LayerRule(
        _max_pool,
        never_before=(MaxPool, Lookup),
        fuse=_fuse_pool,
        fusible=_is_halving,
        wide_passes=max_pool_passes,
    ),
    AveragePool: _LayerRule(
        _average_pool, in_parts=lambda op: len(divisor_regions(op)) > 1, needs_fixed_unit=_average_needs_float_sums
    ),
    GlobalAveragePool: _LayerRule(_global_average, scratch=sum_pool_scratch, wide_passes=sum_pool_passes),
    Add: _SUM,
    Sub: _SUM,
    Mul: _LayerRule(product_passes, never_before=(Add, Sub), needs_fixed_unit=lambda op: product_factors(op) is None),
    Sum: _LayerRule(sum_passes, never_before=(Add, Sub), needs_fixed_unit=needs_float_sums),
    LRN: _LayerRule(normalise_passes, scratch=normalise_scratch),
    Max: _EXTREME,
    Min: _EXTREME,
    Lookup: _LayerRule(
        lookup_passes,
        never_before=(Add, Sub, Lookup),
        fuse=_fuse_lookup,
        fusible=lambda before, op: not op.by_channel,
        needs_whole_map=False,
        needs_fixed_unit=lambda op: op.by_channel and scaled_lookup(op) is None,
    ),
    Crop: _LayerRule(_copy_pass, wide_passes=_by_byte(_copy_pass)),
    Pad: _LayerRule(_copy_pass, wide_passes=_by_byte(_copy_pass)),
    Select: _LayerRule(_select, wide_passes=lambda op, edges: passes_of_all_bytes(_select(op, edges), op)),
    Upsample: _LayerRule(_upsample, in_parts=lambda op: True, wide_passes=_by_byte(_upsample)),
    Interpolate: _LayerRule(
        interpolate_passes,
        scratch=interpolate_scratch,
        in_parts=lambda op: True,
        never_before=(Add, Sub, Lookup, MaxPool),
        wide_passes=wide_interpolate_passes,
    ),
    Resample: _LayerRule(resample_passes, in_parts=lambda op: True, wide_passes=_by_byte(resample_passes)),
    DepthToSpace: _LayerRule(_depth_to_space, in_parts=lambda op: True, wide_passes=_by_byte(_depth_to_space)),
    SpaceToDepth: _LayerRule(_space_to_depth, wide_passes=_by_byte(_space_to_depth)),
    FixedPoint: _LayerRule(
        fixed_point_passes, never_before=(Add, Sub, Lookup, MaxPool), wide_passes=fixed_point_passes
    ),
    SumPool: _LayerRule(
        sum_pool_passes, scratch=sum_pool_scratch, never_before=(Add, Sub, Lookup, MaxPool), wide_passes=sum_pool_passes
    ),
    Concat: _LayerRule(
        _concat,
        scratch=_concat_scratch,
        never_before=(Add, Sub, Lookup, MaxPool),
        wide_passes=lambda op, edges, inside: _concat(concat_of_bytes(op), edges, inside),
    ),
}
