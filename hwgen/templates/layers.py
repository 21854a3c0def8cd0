"""Choices of a plan for each layer of a fusion group, whatever the group's template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwgen.fields import Entries, Rule, entry
from hwgen.gateware.multipliers import MULTIPLIERS, PLAIN
from hwgen.network.graph import Network
from hwgen.network.ops import Op


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """Plan of one layer: unroll factors, multiplier, memories, line buffer rows and FIFO depths.

    Parameters
    ----------
    name, kind : str
        Name and operator of the layer, as in the network.
    tn, tm, tk, tp : int
        Unroll factors: input channels, output channels, kernel taps and output pixels per cycle.
    chain : int
        Maximum number of DSP slices in a cascade.
    line_rows : int
        Number of rows that the line buffer holds.
    fifo_depths : tuple of int
        Depth (credits) of the FIFO upstream of each reader of the layer's output, in the network's order.
    macs_per_dsp : int or str
        Name of the layer's multiplier in DSP slices; 1 for a layer without weights.
    lut_lanes : int
        Number of the last of the ``Tm`` output channels whose products are in LUTs.
    weights_in : str, optional
        Memory of the weights, ``lut`` or ``block`` RAM; by default the depth of the memories decides.
    weights_joined : bool
        Whether one memory stores the weights of all positions of a chain side by side.
    tables_in : str, optional
        Memory of the channels' parameters (bias, factor, shift), ``lut`` or ``block`` RAM; by default the depth
        decides.
    requantise_in : str
        Multipliers of the layer's requantiser, if the layer has one: ``dsp`` slices or ``lut``.
    line_in : str, optional
        Memory of the line buffer, ``lut``, ``block`` or ``ultra`` RAM; by default the depth of the banks decides.
    fifos_in : tuple of (str or None)
        Memory of each FIFO, ``lut``, ``block`` or ``ultra`` RAM, or ``None`` if the depth decides. Empty if all depths
        decide.
    fifo_lanes : int, optional
        Channels per beat that the layer sends; by default as few as it finishes per cycle.
    converts_first : tuple of bool
        Whether the width converter of each reader is before its FIFO, which then holds beats of the reader's ``Tn``
        channels. Empty if all converters are after the FIFOs.
    """

    name: str
    kind: str
    tn: int = entry(key="unroll in")
    tm: int = entry(key="unroll out")
    tk: int = entry(key="unroll taps")
    tp: int = entry(1, key="unroll pixels")
    macs_per_dsp: int | str = entry(PLAIN.name, of=tuple(MULTIPLIERS))
    lut_lanes: int = entry(0, is_brief=True)
    chain: int
    weights_in: str | None = entry(None, key="weights")
    tables_in: str | None = entry(None, key="tables", of=("lut", "block", None))
    requantise_in: str = entry("dsp", key="requantise", of=("dsp", "lut"))
    line_rows: int
    weights_joined: bool = entry(False, is_brief=True)
    line_in: str | None = entry(None, key="line_memory", is_brief=True)
    fifo_depths: tuple[int, ...]
    fifos_in: tuple[str | None, ...] = ()
    fifo_lanes: int | None = None
    converts_first: tuple[bool, ...] = ()


#: Fields of a `LayerPlan` that ``plan.json`` has in the entries of the layer's FIFOs, not in the layer's entry.
OF_FIFOS = ("fifo_depths", "fifos_in", "fifo_lanes", "converts_first")


def layer_entries(group: Entries) -> list[Entries]:
    """Return a list of ``plan.json`` entries of a fusion group's layers; their errors name the layer."""
    return [
        replace(layer, where=f"plan layer {layer.text('name')}")
        for layer in group.objects("layers", where="plan layer")
    ]


def read_input_pixels(group: Entries, network: Network, layers: Sequence[LayerPlan]) -> int:
    """Return the pixels per beat of a fusion group's input, read from ``plan.json`` and checked."""
    rule = Rule(minimum=1, maximum=max(network.input.width, layers[0].tp), reason="the width of its input")
    return group.value("input_pixels", int, rule, default=1)


def check_output(layer: Entries, op: Op) -> None:
    """Raise `PlanError` if a layer's entry in ``plan.json`` states another output shape than the model's layer has."""
    shape = list(op.output.shape)
    if (stated := layer.values.get("output", shape)) != shape:
        layer.refuse(f"is of another network: its output is {str(stated)[:60]} in the plan, but {shape} in the model")


def with_buffers(
    layers: Sequence[LayerPlan], rows: Sequence[int], depths: Sequence[Sequence[int]]
) -> tuple[LayerPlan, ...]:
    """Return a tuple of each layer's `LayerPlan` with line buffers of ``rows`` rows, FIFOs of ``depths`` beats."""
    return tuple(
        replace(layer, line_rows=row, fifo_depths=tuple(depth))
        for layer, row, depth in zip(layers, rows, depths, strict=True)
    )
