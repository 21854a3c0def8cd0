"""From a network and the choices of a plan to the hardware's configuration."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.gateware.unload import UnloadConfig
from hwgen.network.graph import Network
from hwgen.network.maps import FeatureMap
from hwgen.network.ops import Op
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stages import stage_of


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


def input_format(layer: Op, plan: LayerPlan, pixels: int) -> BeatFormat:
    """The stream that a layer takes: ``Tn`` channels of as many pixels as the layer before finishes at once.

    Raises
    ------
    PlanError
        If a choice for the layer is out of range.
    """
    groups = layer.groups
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
    stage_of(layer).check(plan)
    return beat_format(layer.input, plan.tn, pixels, groups)


def layer_config(layer: Op, plan: LayerPlan, source: BeatFormat, sink: BeatFormat | None) -> LayerConfig:
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


def _layer_config(layer: Op, plan: LayerPlan, source: BeatFormat, sink: BeatFormat | None) -> LayerConfig:
    stage = stage_of(layer)
    window = LineBufferConfig(
        input=source,
        kernel=layer.window.kernel,
        stride=layer.window.stride,
        padding=layer.window.padding,
        pad_value=layer.pad_value,
        taps=plan.tk,
        output_folds=stage.output_folds(source, plan),
        channelwise=layer.channelwise,
        rows=plan.line_rows,
        pixels=plan.tp,
        dilation=layer.window.dilation,
    )
    fifo_lanes = plan.fifo_lanes or -(-plan.tm // window.steps)
    beats = UnloadConfig(
        channels=layer.output.channels,
        lanes_in=plan.tm,
        lanes_out=fifo_lanes,
        shape=source.shape,
        groups=source.groups,
    ).beats
    compute, finish = stage.parts(plan, window, fifo_lanes, beats)
    return LayerConfig(
        name=layer.name,
        compute=compute,
        finish=finish,
        fifo_lanes=fifo_lanes,
        fifo_depth=plan.fifo_depth,
        output=sink or beat_format(layer.output, fifo_lanes, plan.tp),
    )
