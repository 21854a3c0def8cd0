"""From a network and the choices of a plan to the hardware's configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import SOURCE, AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.graph import Network
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
        Neighbouring pixels of a beat of the group's input; of each input those that the layer which takes it computes
        at once by default.
    stage : function, optional
        What becomes of each kind of layer.

    Raises
    ------
    PlanError
        If a choice for a layer is out of range, or layers whose outputs are joined differ in their pixels a cycle.
    ConfigError
        If the choices contradict each other; names the layer.
    """
    names = tuple(layer.name for layer in network.layers)
    widths = {edge: pixels or tp for edge, tp in _input_widths(network, layers, stage).items()}
    widths |= {name: plan.tp for name, plan in zip(names, layers, strict=True)}
    inputs = [
        input_formats(stage(layer), plan, [widths[edge] for edge in edges])
        for layer, plan, edges in zip(network.layers, layers, network.edges, strict=True)
    ]
    outputs: dict[str, list[BeatFormat | None]] = {name: [] for name in (*network.inputs, *names)}
    for formats, edges in zip(inputs, network.edges, strict=True):
        for edge, beat in zip(edges, formats, strict=True):
            outputs[edge].append(beat)
    for name in network.output_layers:
        outputs[name].append(None)
    configs = [
        layer_config(stage(layer), plan, sources, outputs[layer.name])
        for layer, plan, sources in zip(network.layers, layers, inputs, strict=True)
    ]
    numbers = {edge: SOURCE - place for place, edge in enumerate(network.inputs)}
    numbers |= {name: number for number, name in enumerate(names)}
    sources = tuple(tuple(numbers[edge] for edge in edges) for edges in network.edges)
    return AcceleratorConfig(
        name=network.name,
        layers=tuple(configs),
        sources=sources,
        input_names=network.input_names,
        outputs=tuple(numbers[name] for name in network.output_layers),
        output_names=network.output_names,
    )


def _input_widths(network: Network, layers: Sequence[LayerPlan], stage: Callable[[Op], Stage[Any]]) -> dict[str, int]:
    """Pixels of a beat of each input: as many as the layer that takes it computes at once.

    Where a layer takes several inputs in step and this one is not among them, no more than the map is wide.
    """
    found = {}
    for layer, edges, plan in zip(network.layers, network.edges, layers, strict=True):
        for place, (edge, source) in enumerate(zip(edges, layer.inputs, strict=True)):
            if edge in network.inputs:
                apart = 0 < stage(layer).in_step <= place
                found[edge] = min(plan.tp, source.width) if apart else plan.tp
    return found


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
