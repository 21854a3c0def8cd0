"""Parameters of a convolution's arithmetic, and the order of its products: the weights used in each cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amaranth import Shape, signed

from hwgen import frozen
from hwgen.gateware.component import HasWindow
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.weights import Weights

#: Default maximum of DSP slices per chain. A longer chain has more latency and exceeds a DSP column.
CHAIN = 16


@dataclass(frozen=True, kw_only=True)
class ProductOrder(HasWindow):
    """Order of a convolution's products: which weight each product has per cycle, and which channel each lane.

    Parameters
    ----------
    window : LineBufferConfig
        Source of the steps. In a ``channelwise`` walk the convolution is depthwise, and the ``Tk`` products of a lane
        belong to the lane's own channel.
    outputs : int
        Number of output channels of the layer, ``M``.
    lanes : int
        Number of output channels that are computed at once, ``Tm``.
    """

    window: LineBufferConfig
    outputs: int
    lanes: int

    @property
    def groups(self) -> int:
        """Number of channel groups of the convolution; the number of channels if it is depthwise."""
        return self.window.input.channels if self.window.channelwise else self.window.input.groups

    @property
    def group_channels(self) -> int:
        """Number of input channels of a channel group of the convolution."""
        return self.window.input.channels // self.groups

    @property
    def folds(self) -> int:
        """Number of output folds (passes over ``Tm`` output channels) per window, over all channel groups.

        It is ``ceil(M / groups / Tm)`` for each channel group. A channelwise walk has as many as the input has.
        """
        if self.window.channelwise:
            return self.window.input.folds
        return self.groups * -(-self.outputs // self.groups // self.lanes)

    @property
    def _input_lanes(self) -> int:
        """Number of input channels that one output channel reads per cycle: ``Tn``, or 1 if depthwise."""
        return 1 if self.window.channelwise else self.window.input.lanes

    @property
    def products(self) -> int:
        """Number of products per cycle for one output channel and pixel: ``Tk * Tn``, or ``Tk`` if depthwise."""
        return self.window.taps * self._input_lanes

    @property
    def operand_sets(self) -> int:
        """Number of different sets of activations per cycle and pixel: 1 for all lanes, or 1 per lane if depthwise.

        A set has one activation for each product of an output channel.
        """
        return self.lanes if self.window.channelwise else 1

    @property
    def output_weights(self) -> int:
        """Number of weights per output channel: input channels of its group times kernel taps."""
        return self.group_channels * self.window.kernel[0] * self.window.kernel[1]

    @property
    def fold_outputs(self) -> Iterator[list[int | None]]:
        """Iterator of a list per output fold: the output channels on lanes 0 to ``Tm - 1``; ``None`` if unused."""
        groups = self.window.input.groups
        size = self.outputs // groups
        for group in range(groups):
            for first in range(0, size, self.lanes):
                lanes = range(first, first + self.lanes)
                yield [group * size + channel if channel < size else None for channel in lanes]

    @cached_property
    def weight_indices(self) -> tuple[tuple[int | None, ...], ...]:
        """Tuple per cycle of a sum: for each product, its weight's index in its output channel; ``None`` for none."""
        height, width = self.window.kernel
        tn, channels = self._input_lanes, self.group_channels
        steps = []
        for taps in self.window.patches.step_taps:
            for first in range(0, channels, tn):
                step: list[int | None] = []
                for lane in range(self.products):
                    tap, channel = lane // tn, first + lane % tn
                    if tap < len(taps) and channel < channels:
                        i, j = taps[tap]
                        step.append((channel * height + i) * width + j)
                    else:
                        step.append(None)
                steps.append(tuple(step))
        return tuple(steps)


@dataclass(frozen=True, kw_only=True)
class ConvolutionParameters(ProductOrder):
    """Parameters of a convolution's arithmetic, which computes ``Tm`` output channels of ``Tp`` pixels at once.

    Every step computes ``Tk x Tn`` products for each output channel and pixel. The products of all steps of an output
    fold are summed.

    Parameters
    ----------
    window, outputs, lanes
        Parameters of a `ProductOrder`.
    weights : Weights
        Weights of shape ``(M, C // groups, Kh, Kw)``. The window's input has as many groups; in a channelwise walk
        every channel is a group.
    weight_bits : int
        Width of a weight, two's complement, in bits.
    sum_bits : int
        Width of the accumulators, in bits. The caller proves that no partial sum overflows this width. A sum adds
        products of weights and operands, and an operand is an activation less `MultiplierKinds.offset`.
    chain : int
        Maximum number of DSP slices in a chain.
    macs_per_dsp : int or str
        Name of the multiplier in DSP slices, a key of `hwgen.gateware.multipliers.MULTIPLIERS`.
    lut_lanes : int
        Number of the last output channels computed at once whose products are in LUTs.
    weights_in : str, optional
        RAM that stores the weights, ``lut`` or ``block``, or ``ultra`` if they are loaded. If not given, the depth of
        the memories decides.
    weights_joined : bool
        Whether one memory stores the weights of all chain positions side by side. Registers delay the weights of later
        positions. Not in LUTs: one wide memory takes fewer blocks of RAM than several narrow memories.
    bias : tuple of int
        Value that is added to the sums of each output channel, which wrap at ``sum_bits``. Only if the layer computes
        whole windows; empty for no bias.
    loaded : bool
        Whether other weights of ``weight_bits`` bits can be loaded at run time. ``weights`` are then the initial
        weights. All weights must be in the multiplier's range.
    """

    weights: Weights
    weight_bits: int
    sum_bits: int
    chain: int = CHAIN
    macs_per_dsp: int | str = 1
    lut_lanes: int = field(default=0, metadata=frozen.added())
    weights_in: str | None = None
    weights_joined: bool = False
    bias: tuple[int, ...] = ()
    loaded: bool = False

    @property
    def slice_lanes(self) -> int:
        """Number of output channels computed at once whose products are in DSP slices; these come first."""
        return self.lanes - self.lut_lanes

    @property
    def result(self) -> Shape:
        """Amaranth shape (signed) of a sum of products, the convolution's accumulator."""
        return signed(self.sum_bits)

    @property
    def accumulates(self) -> bool:
        """Whether an output's products are computed over several cycles, so that its sum needs an accumulator."""
        return self.window.steps > 1

    @property
    def rom_depth(self) -> int:
        """Number of words per weight memory: one for each cycle that a window takes."""
        return self.window.window_cycles

    @property
    def weight_memory(self) -> str:
        """Kind of RAM that stores the convolution's weights: ``lut``, ``block`` or ``ultra``."""
        return self.weights_in or self.memories.default_ram(self.rom_depth)

    @property
    def weights_in_blocks(self) -> bool:
        """Whether block RAM or UltraRAM, read through an output register, stores the weights, not LUT RAM."""
        return self.weight_memory != "lut"

    @property
    def constant_weights(self) -> bool:
        """Whether logic may contain the weights as constants: not loaded at run time, and not placed in block RAM."""
        return not self.loaded and self.weights_in != "block"

    @cached_property
    def whole_bits(self) -> tuple[int, ...]:
        """Tuple of widths in bits of the output channels' sums over a window with bias, enough for any partial sum."""
        low, high = -1 << (self.window.input.bits - 1), (1 << (self.window.input.bits - 1)) - 1
        bits = []
        for channel, (negative, positive) in enumerate(self.weights.sums(self.outputs)):
            bias = self.bias[channel] if self.bias else 0
            smallest, largest = positive * low + negative * high + bias, positive * high + negative * low + bias
            bits.append(1 + max(largest.bit_length(), (~smallest).bit_length() if smallest < 0 else 0))
        return tuple(bits)
