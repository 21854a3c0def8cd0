"""The choices for each layer of a group, whatever the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """The choices for one layer.

    Parameters
    ----------
    name, kind : str
        As in the network.
    tn, tm, tk, tp : int
        Unroll factors: input channels, output channels, kernel taps and output pixels a cycle.
    chain : int
        DSP slices in a chain at most.
    line_rows : int
        Rows the line buffer holds.
    fifo_depths : tuple of int
        Credits of the FIFO in front of each reader of the layer's output, in the order of the network.
    macs_per_dsp : int or str
        Name of the layer's multiplier; 1 for a layer without weights.
    weights_in : str, optional
        Where the weights lie, ``lut`` or ``block`` RAM; by the depth of their memories if not given.
    weights_joined : bool
        The weights of all positions of a chain lie side by side in one memory.
    tables_in : str, optional
        Where the parameters of the channels lie (bias, factor, shift): as ``weights_in``.
    requantise_in : str
        What multiplies in the layer's requantiser, if it has one: ``dsp`` slices or ``lut``.
    line_in : str, optional
        Where the rows of the line buffer lie, ``lut`` or ``block`` RAM; by the depth of its banks if not given.
    fifos_in : tuple of (str or None)
        The same of each FIFO; empty if all lie where their depths say.
    fifo_lanes : int, optional
        Channels of a beat in these FIFOs; as few as the layer finishes in a cycle if not given.
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
    weights_in: str | None = None
    weights_joined: bool = False
    tables_in: str | None = None
    requantise_in: str = "dsp"
    line_in: str | None = None
    fifos_in: tuple[str | None, ...] = ()
    fifo_lanes: int | None = None


def with_buffers(
    layers: Sequence[LayerPlan], rows: Sequence[int], depths: Sequence[Sequence[int]]
) -> tuple[LayerPlan, ...]:
    """The same choices with other line buffers and FIFOs."""
    return tuple(
        replace(layer, line_rows=row, fifo_depths=tuple(depth))
        for layer, row, depth in zip(layers, rows, depths, strict=True)
    )
