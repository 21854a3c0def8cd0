"""From a network and the choices of a plan to the hardware's configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import SOURCE, AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.graph import INPUT, Network
from hwgen.network.ops import Op
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Stage, beat_format
from hwgen.templates.stages import stage_of


def compose(
    network: Network,
    layers: Sequence[LayerPlan],
    pixels: int | None = None,
    stage: Callable[[Op], Stage[Any]] = stage_of,
) -> AcceleratorConfig:
    """The accelerator of one fusion group, row by row.

    Parameters
    ----------
    pixels : int, optional
        Neighbouring pixels of a beat of the group's input; those that its first layer computes at once by default.
    stage : function, optional
        What becomes of each kind of layer.

    Raises
    ------
    PlanError
        If a choice for a layer is out of range, or layers whose outputs are joined differ in their pixels a cycle.
    ConfigError
        If the choices contradict each other; names the layer.
    """
    names = (INPUT, *(layer.name for layer in network.layers))
    widths = dict(zip(names, (pixels or layers[0].tp, *(plan.tp for plan in layers)), strict=True))
    inputs = [
        input_formats(stage(layer), plan, [widths[edge] for edge in edges])
        for layer, plan, edges in zip(network.layers, layers, network.edges, strict=True)
    ]
    outputs: dict[str, list[BeatFormat | None]] = {name: [] for name in names}
    for formats, edges in zip(inputs, network.edges, strict=True):
        for edge, beat in zip(edges, formats, strict=True):
            outputs[edge].append(beat)
    for name in network.output_layers:
        outputs[name].append(None)
    configs = [
        layer_config(stage(layer), plan, sources, outputs[layer.name])
        for layer, plan, sources in zip(network.layers, layers, inputs, strict=True)
    ]
    numbers = {name: number for number, name in enumerate(names, SOURCE)}
    sources = tuple(tuple(numbers[edge] for edge in edges) for edges in network.edges)
    return AcceleratorConfig(
        name=network.name,
        layers=tuple(configs),
        sources=sources,
        outputs=tuple(numbers[name] for name in network.output_layers),
        output_names=network.output_names,
    )


def input_formats(stage: Stage[Any], plan: LayerPlan, pixels: Sequence[int]) -> tuple[BeatFormat, ...]:
    """The streams that a layer takes: ``Tn`` channels of as many pixels as the layers before finish at once.

    Raises
    ------
    PlanError
        If a choice for the layer is out of range.
    """
    layer, most = stage.op, stage.most_lanes
    for name, factor, limit, unit in (
        ("in", plan.tn, most[0], "channels"),
        ("out", plan.tm, most[1], "channels"),
        ("taps", plan.tk, layer.window.taps, "of the kernel"),
        ("pixels", plan.tp, layer.output.width, "of a row"),
    ):
        if not 1 <= factor <= limit:
            raise PlanError(f"{layer.name}: unroll {name} must be 1 to {limit} {unit}, not {factor!r}")
    if plan.chain < 1:
        raise PlanError(f"{layer.name}: chain must be a positive integer, not {plan.chain!r}")
    stage.check(plan)
    if (in_step := tuple(pixels[: stage.in_step])) and set(in_step) != {plan.tp}:
        raise PlanError(
            f"{layer.name}: unroll pixels must be {plan.tp} in all layers whose outputs it takes, as in itself, "
            f"not {' and '.join(map(str, in_step))}"
        )
    return tuple(
        beat_format(each, plan.tn, width, stage.groups) for each, width in zip(layer.inputs, pixels, strict=True)
    )


def layer_config(
    stage: Stage[Any], plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
) -> LayerConfig:
    """One layer's hardware between the streams that come in and those that leave to each reader.

    A sink is ``None`` at an output of the group.

    Raises
    ------
    PlanError
        If there is not a FIFO for each reader.
    ConfigError
        If the choices contradict each other; names the layer.
    """
    if len(plan.fifo_depths) != len(sinks):
        count = len(plan.fifo_depths)
        raise PlanError(f"{plan.name}: FIFOs must be {len(sinks)}, one for each reader, not {count}")
    try:
        return stage.layer(plan, sources, sinks)
    except ConfigError as error:
        where = f"{stage.op.name}: "
        raise ConfigError(where + str(error).removeprefix(where)) from None
