"""Choices of a plan for each layer of a group; all templates share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """Choices of a plan for one layer: unroll factors, multiplier, memories, and sizes of buffers.

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
        Depth (credits) of the FIFO in front of each reader of the layer's output, in the network's order.
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
    tn: int
    tm: int
    tk: int
    chain: int
    line_rows: int
    fifo_depths: tuple[int, ...]
    tp: int = 1
    macs_per_dsp: int | str = 1
    lut_lanes: int = 0
    weights_in: str | None = None
    weights_joined: bool = False
    tables_in: str | None = None
    requantise_in: str = "dsp"
    line_in: str | None = None
    fifos_in: tuple[str | None, ...] = ()
    fifo_lanes: int | None = None
    converts_first: tuple[bool, ...] = ()


def with_buffers(
    layers: Sequence[LayerPlan], rows: Sequence[int], depths: Sequence[Sequence[int]]
) -> tuple[LayerPlan, ...]:
    """Return copies of the layers' plans with given rows of line buffers and given depths of FIFOs."""
    return tuple(
        replace(layer, line_rows=row, fifo_depths=tuple(depth))
        for layer, row, depth in zip(layers, rows, depths, strict=True)
    )
