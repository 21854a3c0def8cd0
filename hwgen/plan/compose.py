"""From a network and the choices of a plan to the hardware's configuration."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.pool import MaxPoolConfig
from hwgen.gateware.requantise import AddBiasConfig, RequantiseConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.network.graph import Conv, FeatureMap, Layer, MaxPool, Network

if TYPE_CHECKING:
    from hwgen.plan.plan import LayerPlan


def beat_format(feature_map: FeatureMap, lanes: int) -> BeatFormat:
    """How a feature map travels, ``lanes`` channels a beat."""
    return BeatFormat(
        channels=feature_map.channels,
        height=feature_map.height,
        width=feature_map.width,
        lanes=lanes,
        bits=feature_map.type.bits,
        signed=feature_map.type.signed,
    )


def signed_bits(low: int, high: int) -> int:
    """Bits of a two's complement number that holds ``low`` to ``high``."""
    return 1 + max(high, -low - 1, 0).bit_length()


def sum_bits(layer: Conv) -> int:
    """Bits that hold every partial sum of ``w * x``, in any order of summing, proved from the weights."""
    low, high = layer.input.type.minimum, layer.input.type.maximum
    terms = np.stack([layer.weights * low, layer.weights * high])
    most = np.maximum(terms.max(axis=0), 0).sum(axis=(1, 2, 3)).max()
    least = np.minimum(terms.min(axis=0), 0).sum(axis=(1, 2, 3)).min()
    return max(signed_bits(int(least), int(most)), 2)


def weight_bits(layer: Conv) -> int:
    """Bits of the widest weight."""
    return max(signed_bits(int(layer.weights.min()), int(layer.weights.max())), 2)


def compose(network: Network, layers: Sequence[LayerPlan]) -> AcceleratorConfig:
    """The accelerator of one fusion group.

    Raises
    ------
    PlanError
        If a layer can't be built.
    ConfigError
        If the choices contradict each other.
    """
    configs = []
    for number, (layer, plan) in enumerate(zip(network.layers, layers, strict=True)):
        following = layers[number + 1].tn if number + 1 < len(layers) else None
        configs.append(layer_config(layer, plan, following))
    return AcceleratorConfig(name=network.name, layers=tuple(configs))


def layer_config(layer: Layer, plan: LayerPlan, lanes_out: int | None) -> LayerConfig:
    """One layer's hardware; ``lanes_out`` is the next layer's ``Tn``, ``None`` behind the last layer."""
    if not 1 <= plan.tn <= layer.input.channels:
        raise PlanError(f"{layer.name}: unroll in must be 1 to {layer.input.channels} channels, not {plan.tn!r}")
    if not 1 <= plan.tm <= layer.output.channels:
        raise PlanError(f"{layer.name}: unroll out must be 1 to {layer.output.channels} channels, not {plan.tm!r}")
    if isinstance(layer, MaxPool) and plan.tm != plan.tn:
        raise PlanError(f"{layer.name}: unroll out of a pool must be its unroll in, {plan.tn}, not {plan.tm!r}")
    depthwise = isinstance(layer, MaxPool)
    source = beat_format(layer.input, plan.tn)
    window = LineBufferConfig(
        input=source,
        kernel=layer.window.kernel,
        stride=layer.window.stride,
        padding=layer.window.padding,
        pad_value=layer.input.type.minimum if depthwise else layer.input.zero_point,
        taps=plan.tk,
        output_folds=source.folds if depthwise else -(-layer.output.channels // plan.tm),
        depthwise=depthwise,
        rows=plan.line_rows,
    )
    fifo_lanes = -(-plan.tm // window.steps)
    beats = UnloadConfig(
        channels=layer.output.channels, lanes_in=plan.tm, lanes_out=fifo_lanes, shape=source.shape
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
        output=beat_format(layer.output, lanes_out or fifo_lanes),
    )


def _conv_parts(
    layer: Conv, plan: LayerPlan, window: LineBufferConfig, lanes: int, beats: tuple[tuple[int, ...], ...]
) -> tuple[MultiplyConfig, RequantiseConfig | AddBiasConfig]:
    if layer.groups != 1:
        raise PlanError(f"{layer.name}: grouped convolution is not buildable yet")
    compute = MultiplyConfig(
        window=window,
        outputs=layer.output.channels,
        lanes=plan.tm,
        weights=array("h", layer.weights.ravel().tolist()),
        weight_bits=weight_bits(layer),
        sum_bits=sum_bits(layer),
        chain=plan.chain,
    )
    bias = tuple(layer.folded_bias.tolist())
    requantisation = layer.requantisation
    if requantisation is None:
        return compute, AddBiasConfig(
            lanes=lanes, accumulator_bits=compute.sum_bits, bias=bias, bits=layer.output.type.bits, beats=beats
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
        beats=beats,
    )
