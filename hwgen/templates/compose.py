"""Composition of an accelerator's configuration from a network and a plan's choices for its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.accelerator import SOURCE, AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.network.graph import Network
from hwgen.network.ops import Op
from hwgen.templates.layers import LayerPlan
from hwgen.templates.stage import Stage, beat_format
from hwgen.templates.stages import stage_of

#: Maximum number of configurations of a layer's hardware that are kept, with the resources that they have counted.
MAX_KNOWN = 32

_KNOWN: WeakKeyDictionary[Op, dict[Any, LayerConfig]] = WeakKeyDictionary()


def compose(
    network: Network,
    layers: Sequence[LayerPlan],
    pixels: int | None = None,
    stage: Callable[[Op], Stage[Any]] = stage_of,
) -> AcceleratorConfig:
    """Return the `AcceleratorConfig` of a fusion group (layers computed together) that works row by row.

    Parameters
    ----------
    network : Network
    layers : sequence of LayerPlan
    pixels : int, optional
        Number of neighbouring pixels of an input beat. By default each input has as many as its reader computes per
        cycle.
    stage : function, optional
        Function that returns the planner's model of a layer.

    Raises
    ------
    PlanError
        If a choice for a layer is out of range, or layers whose outputs are joined differ in pixels per cycle.
    ConfigError
        If the choices contradict each other; the message names the layer.
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
    index_of = {edge: SOURCE - input_index for input_index, edge in enumerate(network.inputs)}
    index_of |= {name: index for index, name in enumerate(names)}
    sources = tuple(tuple(index_of[edge] for edge in edges) for edges in network.edges)
    return AcceleratorConfig(
        name=network.name,
        layers=tuple(configs),
        sources=sources,
        input_names=network.input_names,
        outputs=tuple(index_of[name] for name in network.output_layers),
        output_names=network.output_names,
    )


def _input_widths(network: Network, layers: Sequence[LayerPlan], stage: Callable[[Op], Stage[Any]]) -> dict[str, int]:
    """Return a dict of pixels per beat of each fusion group input, by name: as many as its reader computes per cycle.

    If the reader takes several inputs in step and this input separately, the number is at most the map's width.
    """
    widths = {}
    for layer, edges, plan in zip(network.layers, network.edges, layers, strict=True):
        for position, (edge, source) in enumerate(zip(edges, layer.inputs, strict=True)):
            if edge in network.inputs:
                is_separate = 0 < stage(layer).direct_inputs <= position
                widths[edge] = min(plan.tp, source.width) if is_separate else plan.tp
    return widths


def input_formats(stage: Stage[Any], plan: LayerPlan, pixels: Sequence[int]) -> tuple[BeatFormat, ...]:
    """Check a layer's plan; return a tuple of its inputs' beat formats: ``Tn`` channels of ``pixels`` pixels.

    Raises
    ------
    PlanError
        If a choice for the layer is out of range.
    """
    layer, lane_limits = stage.op, stage.max_lanes
    for name, factor, limit, unit in (
        ("in", plan.tn, lane_limits[0], "channels"),
        ("out", plan.tm, lane_limits[1], "channels"),
        ("taps", plan.tk, layer.window.taps, "of the kernel"),
        ("pixels", plan.tp, layer.output.width, "of a row"),
    ):
        if not 1 <= factor <= limit:
            raise PlanError(f"{layer.name}: unroll {name} must be 1 to {limit} {unit}, not {factor!r}")
    if plan.chain < 1:
        raise PlanError(f"{layer.name}: chain must be a positive integer, not {plan.chain!r}")
    stage.check(plan)
    if (direct := tuple(pixels[: stage.direct_inputs])) and set(direct) != {plan.tp}:
        raise PlanError(
            f"{layer.name}: unroll pixels must be {plan.tp} in all layers whose outputs it takes, as in itself, "
            f"not {' and '.join(map(str, direct))}"
        )
    return tuple(
        beat_format(source, plan.tn, width, stage.groups) for source, width in zip(layer.inputs, pixels, strict=True)
    )


def layer_config(
    stage: Stage[Any], plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
) -> LayerConfig:
    """Return the `LayerConfig` of a layer's hardware, given the beat formats of its inputs and its readers.

    The sink of a group output is ``None``. Repeated calls for a layer return one object.

    Raises
    ------
    PlanError
        If the plan does not have one FIFO per reader.
    ConfigError
        If the choices contradict each other; the message names the layer.
    """
    if len(plan.fifo_depths) != len(sinks):
        count = len(plan.fifo_depths)
        raise PlanError(f"{plan.name}: FIFOs must be {len(sinks)}, one for each reader, not {count}")
    known = _KNOWN.setdefault(stage.op, {})
    key = type(stage), stage.device, plan, tuple(sources), tuple(sinks)
    if key not in known:
        if len(known) >= MAX_KNOWN:
            known.clear()
        known[key] = _layer_config(stage, plan, sources, sinks)
    return known[key]


def _layer_config(
    stage: Stage[Any], plan: LayerPlan, sources: Sequence[BeatFormat], sinks: Sequence[BeatFormat | None]
) -> LayerConfig:
    try:
        return stage.layer(plan, sources, sinks)
    except ConfigError as error:
        prefix = f"{stage.op.name}: "
        raise ConfigError(prefix + str(error).removeprefix(prefix)) from None
