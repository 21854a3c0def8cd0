"""From a network and the choices of a plan to the hardware's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.pool import MaxPoolConfig
from hwgen.gateware.requantise import AddBiasConfig, RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.gateware.weights import Weights
from hwgen.network.graph import Conv, FeatureMap, Layer, MaxPool, Network

if TYPE_CHECKING:
    from hwgen.plan.plan import LayerPlan


def beat_format(feature_map: FeatureMap, lanes: int, pixels: int = 1, groups: int = 1) -> BeatFormat:
    """How a feature map travels, ``lanes`` channels of ``pixels`` neighbouring pixels a beat."""
    return BeatFormat(
        channels=feature_map.channels,
        height=feature_map.height,
        width=feature_map.width,
        lanes=lanes,
        bits=feature_map.type.bits,
        signed=feature_map.type.signed,
        pixels=pixels,
        groups=groups,
    )


def signed_bits(low: int, high: int) -> int:
    """Bits of a two's complement number that holds ``low`` to ``high``."""
    return 1 + max(high, -low - 1, 0).bit_length()


def sum_bits(layer: Conv, macs_per_dsp: int = 1) -> int:
    """Bits that hold every partial sum of ``w * x``, in any order of summing, proved from the weights.

    Slices that do two multiply-adds take unsigned activations less half of their range.
    """
    low, high = layer.input.type.minimum, layer.input.type.maximum
    if macs_per_dsp == 2:
        half = (high - low + 1) // 2
        low, high = -half, half - 1
    positive, negative = layer.signed_sums
    most, least = (positive * high + negative * low).max(), (positive * low + negative * high).min()
    return max(signed_bits(int(least), int(most)), 2)


def weight_bits(layer: Conv) -> int:
    """Bits of the widest weight."""
    return max(signed_bits(*layer.weight_range), 2)


_KNOWN: WeakKeyDictionary[Conv, Weights] = WeakKeyDictionary()


def _weights(layer: Conv) -> Weights:
    """A layer's weights, the same object each time."""
    if layer not in _KNOWN:
        _KNOWN[layer] = Weights(layer.weights.astype(np.intc).tobytes())
    return _KNOWN[layer]


def compose(network: Network, layers: Sequence[LayerPlan], pixels: int | None = None) -> AcceleratorConfig:
    """The accelerator of one fusion group, row by row.

    Parameters
    ----------
    pixels : int, optional
        Neighbouring pixels of a beat of the group's input; those that its first layer computes at once by default.

    Raises
    ------
    PlanError
        If a choice for a layer is out of range.
    ConfigError
        If the choices contradict each other; names the layer.
    """
    inputs = [
        input_format(layer, plan, layers[n - 1].tp if n else pixels or layers[0].tp)
        for n, (layer, plan) in enumerate(zip(network.layers, layers, strict=True))
    ]
    outputs = [*inputs[1:], None]
    configs = [
        layer_config(layer, plan, source, sink)
        for layer, plan, source, sink in zip(network.layers, layers, inputs, outputs, strict=True)
    ]
    return AcceleratorConfig(name=network.name, layers=tuple(configs))


def input_format(layer: Layer, plan: LayerPlan, pixels: int) -> BeatFormat:
    """The stream that a layer takes: ``Tn`` channels of as many pixels as the layer before finishes at once.

    Raises
    ------
    PlanError
        If a choice for the layer is out of range.
    """
    groups = layer.groups if isinstance(layer, Conv) else 1
    for name, factor, most, unit in (
        ("in", plan.tn, layer.input.channels // groups, "channels"),
        ("out", plan.tm, layer.output.channels // groups, "channels"),
        ("taps", plan.tk, layer.window.taps, "of the kernel"),
        ("pixels", plan.tp, layer.output.width, "of a row"),
    ):
        if not 1 <= factor <= most:
            raise PlanError(f"{layer.name}: unroll {name} must be 1 to {most} {unit}, not {factor!r}")
    if plan.chain < 1:
        raise PlanError(f"{layer.name}: chain must be a positive integer, not {plan.chain!r}")
    if isinstance(layer, MaxPool) and plan.tm != plan.tn:
        raise PlanError(f"{layer.name}: unroll out of a pool must be its unroll in, {plan.tn}, not {plan.tm!r}")
    if isinstance(layer, MaxPool) and plan.macs_per_dsp != 1:
        raise PlanError(f"{layer.name}: macs_per_dsp of a pool must be 1, not {plan.macs_per_dsp!r}")
    return beat_format(layer.input, plan.tn, pixels, groups)


def layer_config(layer: Layer, plan: LayerPlan, source: BeatFormat, sink: BeatFormat | None) -> LayerConfig:
    """One layer's hardware between two streams; ``sink`` is ``None`` behind the last layer.

    Raises
    ------
    ConfigError
        If the choices contradict each other; names the layer.
    """
    try:
        return _layer_config(layer, plan, source, sink)
    except ConfigError as error:
        where = f"{layer.name}: "
        raise ConfigError(where + str(error).removeprefix(where)) from None


def _layer_config(layer: Layer, plan: LayerPlan, source: BeatFormat, sink: BeatFormat | None) -> LayerConfig:
    channelwise = isinstance(layer, MaxPool)
    window = LineBufferConfig(
        input=source,
        kernel=layer.window.kernel,
        stride=layer.window.stride,
        padding=layer.window.padding,
        pad_value=layer.input.type.minimum if channelwise else layer.input.zero_point,
        taps=plan.tk,
        output_folds=source.folds
        if channelwise
        else source.groups * -(-layer.output.channels // source.groups // plan.tm),
        channelwise=channelwise,
        rows=plan.line_rows,
        pixels=plan.tp,
    )
    fifo_lanes = plan.fifo_lanes or -(-plan.tm // window.steps)
    beats = UnloadConfig(
        channels=layer.output.channels,
        lanes_in=plan.tm,
        lanes_out=fifo_lanes,
        shape=source.shape,
        groups=source.groups,
    ).beats
    if isinstance(layer, Conv):
        compute, finish = _conv_parts(layer, plan, window, fifo_lanes, beats)
    else:
        compute, finish = MaxPoolConfig(window=window), None
    return LayerConfig(
        name=layer.name,
        compute=compute,
        finish=finish,
        fifo_lanes=fifo_lanes,
        fifo_depth=plan.fifo_depth,
        output=sink or beat_format(layer.output, fifo_lanes, plan.tp),
    )


def _conv_parts(
    layer: Conv, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: tuple[tuple[int, ...], ...]
) -> tuple[MultiplyConfig, RequantiseConfig | AddBiasConfig | None]:
    compute = MultiplyConfig(
        window=window,
        outputs=layer.output.channels,
        lanes=plan.tm,
        weights=_weights(layer),
        weight_bits=weight_bits(layer),
        sum_bits=sum_bits(layer, plan.macs_per_dsp),
        chain=plan.chain,
        macs_per_dsp=plan.macs_per_dsp,
        weights_in=plan.weights_in,
    )
    bias = tuple(value + offset for value, offset in zip(layer.folded_bias.tolist(), compute.offsets, strict=True))
    requantisation = layer.requantisation
    if requantisation is None and compute.whole:
        return replace(compute, bias=bias, sum_bits=layer.output.type.bits), None
    if requantisation is None:
        return compute, AddBiasConfig(
            lanes=lanes,
            accumulator_bits=compute.sum_bits,
            bias=bias,
            bits=layer.output.type.bits,
            beats=beats,
            pixels=window.pixels,
        )
    return compute, RequantiseConfig(
        lanes=lanes,
        accumulator_bits=compute.sum_bits,
        bias=bias,
        significand=tuple(requantisation.significand.tolist()),
        shift=tuple(requantisation.shift.tolist()),
        zero_point=requantisation.zero_point,
        low=requantisation.low,
        high=requantisation.high,
        bits=layer.output.type.bits,
        signed=layer.output.type.signed,
        float32=requantisation.float32,
        beats=beats,
        pixels=window.pixels,
    )
