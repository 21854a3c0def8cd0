"""Work of a layer in one frame: its sizes and order of computation, which determine cycles and beats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwgen.gateware.convolution.parameters import CHAIN
from hwgen.gateware.multipliers import PLAIN, Multiplier
from hwgen.network.ops import Op

#: Maximum number of output pixels per cycle. More banks and multiplexers don't pay off.
MAX_PIXELS = 16

#: Numbers of words of a weight memory that change the LUTs of a product in LUTs, or of the memory.
LUT_WORDS = (1, 4, 64)


def ceil_div(dividend: Any, divisor: Any) -> Any:
    """Return the quotient, rounded up, of integers or arrays."""
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Unroll:
    """Unroll factors: input channels, output channels, kernel taps and output pixels per cycle.

    ``lut_lanes`` is the number of the last of the ``Tm`` output channels whose products are made in LUTs. The other
    products are made in DSP slices, by the multiplier ``macs_per_dsp``; ``None`` is the multiplier of the plan.
    """

    tn: int
    tm: int
    tk: int
    tp: int = 1
    lut_lanes: int = 0
    macs_per_dsp: int | str | None = None


@dataclass(frozen=True)
class BeatOrder:
    """Order of a layer's work per pixel: reading of input beats, and passes over ``Tm`` output channels (folds).

    The base class computes windows: output folds are the outer loop, input folds and tap folds the inner ones. Lanes
    that keep their channels (``channelwise``) have no input folds. In all methods, factors can be arrays.
    """

    def group_channels(self, work: LayerWork) -> int:
        """Return the number of input channels that may share a beat, which is the maximum ``Tn``."""
        return work.channels if work.channelwise else work.channels // work.groups

    def group_outputs(self, work: LayerWork) -> int:
        """Return the number of output channels that may be computed together, which is the maximum ``Tm``."""
        return work.outputs if work.channelwise else work.outputs // work.groups

    def beats(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number (or array) of beats that bring all input channels of one pixel, or of ``Tp`` pixels."""
        return (1 if work.channelwise else work.groups) * ceil_div(self.group_channels(work), unroll.tn)

    def fold_cycles(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number, or an array, of cycles per output fold (up to ``Tm`` output channels of a pixel)."""
        folds = 1 if work.channelwise else ceil_div(self.group_channels(work), unroll.tn)
        return folds * ceil_div(work.taps, unroll.tk)

    def output_folds(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number, or an array, of output folds (up to ``Tm`` channels each) per pixel, over all groups."""
        return (1 if work.channelwise else work.groups) * ceil_div(self.group_outputs(work), unroll.tm)

    def cycles(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return the number, or an array, of cycles per ``Tp`` neighbouring output pixels, over all output folds."""
        return self.output_folds(work, unroll) * self.fold_cycles(work, unroll)

    def luts(self, work: LayerWork, unroll: Unroll) -> Any:
        """Return a rough number of a layer's LUTs that depend on unroll factors, an array if the factors are arrays.

        `hwgen.templates.unroll.rough_luts` uses it.
        """
        if not work.weighted:
            return unroll.tp * unroll.tn * (20 * unroll.tk + 40)
        chains = ceil_div(work.products(unroll), work.chain)
        return unroll.tp * (30 * (unroll.tn * unroll.tk + unroll.tm) + 18 * (chains - 1) * unroll.tm)


@dataclass(frozen=True)
class TurnOrder(BeatOrder):
    """Order of work of a concatenation: the channels of a pixel come from one input after the other.

    Parameters
    ----------
    inputs : tuple of int
        Channels of each input.
    """

    inputs: tuple[int, ...]

    def group_channels(self, work: LayerWork) -> int:
        return max(self.inputs)

    def group_outputs(self, work: LayerWork) -> int:
        return max(self.inputs)

    def beats(self, work: LayerWork, unroll: Unroll) -> Any:
        return sum(ceil_div(channels, unroll.tn) for channels in self.inputs)

    def output_folds(self, work: LayerWork, unroll: Unroll) -> Any:
        return self.beats(work, unroll)


@dataclass(frozen=True)
class SelectOrder(BeatOrder):
    """Order of work of a channel selection: input beats arrive while groups of outputs leave, one per cycle.

    Input beats and output folds have different numbers of lanes.
    """

    def fold_cycles(self, work: LayerWork, unroll: Unroll) -> Any:
        return ceil_div(work.taps, unroll.tk)

    def luts(self, work: LayerWork, unroll: Unroll) -> Any:
        return unroll.tp * 30 * (unroll.tn + unroll.tm)


@dataclass(frozen=True)
class BlockOrder(BeatOrder):
    """Order of work of DepthToSpace and SpaceToDepth: no beat mixes channels of two pixels of the other map.

    Parameters
    ----------
    parts_in, parts_out : int
        Parts of an input pixel and of an output pixel. A part has as many channels on both sides.
    """

    parts_in: int
    parts_out: int

    def group_channels(self, work: LayerWork) -> int:
        return work.channels // self.parts_in

    def group_outputs(self, work: LayerWork) -> int:
        return work.outputs // self.parts_out

    def beats(self, work: LayerWork, unroll: Unroll) -> Any:
        return self.parts_in * ceil_div(self.group_channels(work), unroll.tn)

    def output_folds(self, work: LayerWork, unroll: Unroll) -> Any:
        return self.parts_out * ceil_div(self.group_outputs(work), unroll.tm)


@dataclass(frozen=True)
class SerialOrder(BeatOrder):
    """Order of work of a layer that reads and writes the channels of a pixel one after another (LRN).

    Parameters
    ----------
    pixel_cycles : int
        Number of cycles per pixel.
    """

    pixel_cycles: int

    def group_channels(self, work: LayerWork) -> int:
        return 1

    def group_outputs(self, work: LayerWork) -> int:
        return 1

    def beats(self, work: LayerWork, unroll: Unroll) -> Any:
        return ceil_div(work.channels, unroll.tn)

    def output_folds(self, work: LayerWork, unroll: Unroll) -> Any:
        return ceil_div(work.outputs, unroll.tm)

    def cycles(self, work: LayerWork, unroll: Unroll) -> Any:
        return ceil_div(self.pixel_cycles, unroll.tm)


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Work of a layer in one frame: sizes and order of computation, which give cycles for any unroll factors.

    Parameters
    ----------
    name : str
        Name of the layer, for messages.
    channels, outputs : int
        Number of input and of output channels, over all groups.
    groups : int
        Number of groups of channels, which divides both.
    height, width : int
        Height and width of the output map, in pixels.
    input_height, input_width : int
        Height and width of the input map, in pixels.
    taps : int
        Number of kernel taps, ``Kh * Kw``.
    channelwise : bool
        Whether each output channel depends on one input channel only (pools, depthwise convolutions). ``Tm`` is then
        ``Tn``.
    weighted : bool
        Whether the layer has weights, and so needs multipliers.
    chain : int
        Maximum number of multipliers in a chain.
    min_steps : int
        Minimum number of cycles of an output fold, unless no factors need as many.
    whole_windows : bool
        Whether the layer reads all taps of a window in one cycle.
    back : tuple of int
        Distance, in layers, to the layer that computes each input; 1 for the previous layer. A distance that reaches
        beyond the first layer stands for an input of the group.
    direct_inputs : int
        Number of the layer's first inputs that bypass a line buffer. The layer reads as many of their pixels per cycle
        as it writes.
    order : BeatOrder
        Order of the layer's work on one pixel: reads of input beats, and output folds.
    max_pixels : int
        Maximum ``Tp``.
    """

    name: str
    channels: int
    outputs: int
    groups: int
    height: int
    width: int
    input_height: int
    input_width: int
    taps: int
    channelwise: bool
    weighted: bool = True
    chain: int = CHAIN
    min_steps: int = 1
    whole_windows: bool = False
    back: tuple[int, ...] = (1,)
    direct_inputs: int = 0
    order: BeatOrder = BeatOrder()
    max_pixels: int = MAX_PIXELS

    @classmethod
    def of(cls, op: Op, chain: int = CHAIN, **more: Any) -> LayerWork:
        """Return a `LayerWork`: a layer's work in one frame, by sizes from ``op`` and other fields from ``more``."""
        known = {
            "name": op.name,
            "channels": op.channels,
            "outputs": op.outputs,
            "groups": op.groups,
            "height": op.output_height,
            "width": op.output_width,
            "input_height": op.height,
            "input_width": op.width,
            "taps": op.taps,
            "channelwise": op.channelwise,
            "weighted": op.weight_count > 0,
            "chain": chain,
        }
        return cls(**{**known, **more})

    @property
    def group_channels(self) -> int:
        """Number of input channels that may share a beat, which is the maximum ``Tn``."""
        return self.order.group_channels(self)

    @property
    def group_outputs(self) -> int:
        """Number of output channels that may be computed together, which is the maximum ``Tm``."""
        return self.order.group_outputs(self)

    def source(self, index: int) -> int:
        """Return the index of the layer that sets the pixels per beat of this layer's first input: writer or itself.

        This layer has the index ``index``. A group input has as many pixels per beat as the layer that reads it.
        """
        return index - self.back[0] if self.back[0] <= index else index

    def products(self, unroll: Unroll) -> Any:
        """Return the number (array if factors are arrays) of products per cycle of each output channel of a pixel."""
        return unroll.tk if self.channelwise else unroll.tn * unroll.tk

    def multipliers(self, unroll: Unroll, multiplier: Multiplier = PLAIN) -> Any:
        """Return the number of DSP slices that multiply, for all ``Tp`` pixels; unroll factors can be arrays."""
        if not self.weighted:
            return 0
        units = ceil_div(unroll.tm, multiplier.lanes) * ceil_div(unroll.tp, multiplier.pixels)
        return self.products(unroll) * units * multiplier.slices

    def pixel_cycles(self, unroll: Unroll) -> Any:
        """Return the number of cycles per ``Tp`` neighbouring output pixels; unroll factors can be arrays."""
        return self.order.cycles(self, unroll)

    def output_folds(self, unroll: Unroll) -> Any:
        """Return the number of output folds (up to ``Tm`` channels each) per output pixel; factors can be arrays."""
        return self.order.output_folds(self, unroll)

    def fold_cycles(self, unroll: Unroll) -> Any:
        """Return the number of cycles per output fold (up to ``Tm`` channels of a pixel); factors can be arrays."""
        return self.order.fold_cycles(self, unroll)

    def beats(self, unroll: Unroll) -> Any:
        """Return the number of input beats that bring all channels of a beat's ``Tp`` pixels; factors can be arrays."""
        return self.order.beats(self, unroll)

    def output_steps(self, pixels: int) -> int:
        """Return how many groups of ``pixels`` neighbouring output pixels a frame has; no group covers two rows."""
        return self.height * ceil_div(self.width, pixels)

    def input_steps(self, pixels: int) -> int:
        """Return how many groups of ``pixels`` neighbouring input pixels a frame has; no group covers two rows."""
        return self.input_height * ceil_div(self.input_width, pixels)


def lanes_out(work: LayerWork, unroll: Unroll) -> Any:
    """Return the number (or array) of channels that a layer finishes per cycle: ``ceil(Tm / cycles of a fold)``."""
    return ceil_div(unroll.tm, work.fold_cycles(unroll))
