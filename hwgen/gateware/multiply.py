"""Arithmetic of a convolution: chains of multiply-adds, a tree that adds the chains' sums, and accumulators.

A chain computes ``m[i] <= a[i] * w[i]; p[i] <= p[i-1] + m[i]``. The operands of a position arrive one cycle after those
of the position before. Synthesis maps a chain to a cascade of DSP slices, joined by PCIN and PCOUT, without an adder in
fabric.

A `Multiplier` (`hwgen.gateware.multipliers`) defines the units of a chain and the split of its sum into lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from amaranth import Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, connect

from hwgen import frozen
from hwgen.devices import SliceOperand, SliceTerm
from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.slice_chain import MOST_REGISTERS
from hwgen.gateware.component import HasWindow
from hwgen.gateware.cost import Cost, Resources, constant_adder_luts, counter_bits, varying_columns
from hwgen.gateware.layer import Arithmetic
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.loaded_memory import LoadedMemory, stored, writes_of
from hwgen.gateware.lookup import delayed
from hwgen.gateware.multipliers import (
    PLAIN,
    Demand,
    DotProducts,
    LutMultiplier,
    Multiplier,
    Operands,
    lut_multiplier_of,
    multiplier_of,
    operand_kind,
)
from hwgen.gateware.multipliers.packing import peak
from hwgen.gateware.ports import read_port
from hwgen.gateware.product_sums import LAST_LEVEL, Chains, ProductSums
from hwgen.gateware.weights import Bounds, Weights

#: Default maximum of DSP slices per chain. A longer chain has more latency and exceeds a DSP column.
CHAIN = 16
#: Measured LUTs per result bit of the last adder of a layer that computes whole windows, by the number of its values.
_LAST_LEVEL_LUTS = {2: 0.5, 3: 1.9, 4: 2.8, 5: 5.6}


@dataclass(frozen=True, kw_only=True)
class MultiplyConfig(HasWindow):
    """Configuration of the arithmetic of a convolution with ``Tm`` output channels and ``Tp`` pixels at once.

    Every step computes ``Tk x Tn`` products for each output channel and pixel. The products of all steps of an output
    fold are summed.

    Parameters
    ----------
    window : LineBufferConfig
        Source of the steps. In a ``channelwise`` walk the convolution is depthwise, and the ``Tk`` products of a lane
        belong to the lane's own channel.
    outputs : int
        Number of output channels of the layer, ``M``.
    lanes : int
        Number of output channels that are computed at once, ``Tm``.
    weights : Weights
        Weights of shape ``(M, C // groups, Kh, Kw)``. The groups are those of the window's input; in a channelwise walk
        every channel is a group.
    weight_bits : int
        Width of a weight, two's complement, in bits.
    sum_bits : int
        Width of the accumulators, in bits. The caller proves that no partial sum overflows this width. A sum adds
        products of weights and operands, and an operand is an activation less ``operand_offset``.
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
        Value that is added to the sums of each output channel, which wrap at ``sum_bits``. Only if ``whole``; empty for
        no bias.
    loaded : bool
        Whether other weights of ``weight_bits`` bits can be loaded at run time. ``weights`` are then the initial
        weights. All weights must be in the multiplier's range.
    slice_chains : SliceChains, optional
        Chains of slices that the device family instantiates. Without them, synthesis infers slices.

    Raises
    ------
    ConfigError
        If a size is not positive, the weights do not fit the geometry or their width, the multiplier refuses the
        layer, or a channelwise walk has other lanes or outputs than its input.
    """

    window: LineBufferConfig
    outputs: int
    lanes: int
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

    def __post_init__(self) -> None:
        for name in ("outputs", "lanes", "weight_bits", "sum_bits", "chain"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.outputs % self.groups:
            raise ConfigError(f"outputs must be a multiple of the {self.groups} groups, not {self.outputs!r}")
        source = self.window.input
        if self.window.channelwise and (self.outputs, self.lanes) != (source.channels, source.lanes):
            raise ConfigError(
                f"outputs and lanes must be those of a channelwise input, {source.channels} and {source.lanes}, "
                f"not {self.outputs!r} and {self.lanes!r}"
            )
        if not self.window.channelwise and self.lanes > self.outputs // self.groups:
            raise ConfigError(
                f"lanes must be at most the {self.outputs // self.groups} output channels"
                f"{' of a group' if self.groups > 1 else ''}, not {self.lanes!r}"
            )
        size = self.outputs * self.group_channels * self.window.kernel[0] * self.window.kernel[1]
        if len(self.weights) != size:
            raise ConfigError(f"weights must be {size} integers, not {len(self.weights)}")
        limit = 1 << (self.weight_bits - 1)
        smallest, largest = self.weights.extremes
        if not (-limit <= smallest and largest < limit):
            raise ConfigError(f"weights must fit {self.weight_bits} bits, not {smallest!r} .. {largest!r}")
        if not 0 <= self.lut_lanes <= self.lanes:
            raise ConfigError(f"lut_lanes must be 0 to {self.lanes}, not {self.lut_lanes!r}")
        if self.window.output_folds != self.folds:
            raise ConfigError(f"window.output_folds must be {self.folds}, not {self.window.output_folds!r}")
        if self.loaded:
            self.memories.check_ram("weights_in", self.weights_in, self.rom_depth)
        elif self.weights_in not in (None, "lut", "block"):
            raise ConfigError(f"weights_in must be 'lut' or 'block', not {self.weights_in!r}")
        if self.weights_joined and not self.weights_in_blocks:
            raise ConfigError("weights_joined must be False where weights lie in LUTs")
        if self.slice_lanes:
            self.multiplier.check(
                Demand(
                    operands=self._initial_operands,
                    lanes=self.slice_lanes,
                    pixels=self.window.pixels,
                    channelwise=self.window.channelwise,
                    locate=self._locate,
                )
            )
        if self.bias and not self.whole:
            raise ConfigError("bias must be empty where a window takes several steps, or slices do one MAC each")
        if len(self.bias) not in (0, self.outputs):
            raise ConfigError(f"bias must have one entry for each of {self.outputs} outputs, not {len(self.bias)}")

    def _locate(self, weight: int) -> str:
        """Describe in words, for a message, where the first weight of value ``weight`` is: both channels and tap."""
        index = self.weights.values.tolist().index(weight)
        index, column = divmod(index, self.window.kernel[1])
        index, row = divmod(index, self.window.kernel[0])
        index, channel = divmod(index, self.group_channels)
        return f"output {index}, channel {channel}, tap ({row}, {column})"

    @property
    def multiplier(self) -> Multiplier:
        """Kind of multiplier (a `Multiplier`) that computes the products in DSP slices."""
        return multiplier_of(self.macs_per_dsp)

    @cached_property
    def lut_multiplier(self) -> LutMultiplier:
        """Kind of multiplier that computes the products of the last ``lut_lanes`` output channels."""
        operands = Operands(
            activation=self.window.input.shape,
            weight_bits=self.weight_bits,
            weight_range=self.extremes,
            positions=1,
            weights_nonzero=self._weights_nonzero,
        )
        constant = not self.loaded and self.weights_in != "block"
        return lut_multiplier_of(operands, self.rom_depth if constant else None)

    @property
    def _weights_nonzero(self) -> bool:
        """Whether no multiplier ever has a weight of 0, neither a weight of the layer nor one for want of a product."""
        known = bool(self.lut_lanes) and not self.loaded and self.weights.nonzero
        return known and not any(None in step for step in self._steps)

    @property
    def slice_lanes(self) -> int:
        """Number of the first output channels computed at once whose products are in DSP slices."""
        return self.lanes - self.lut_lanes

    @cached_property
    def kinds(self) -> tuple[Multiplier, ...]:
        """Kinds of multipliers of the convolution: in DSP slices, in LUTs, or both."""
        return (*((self.multiplier,) if self.slice_lanes else ()), *((self.lut_multiplier,) if self.lut_lanes else ()))

    @property
    def _initial_operands(self) -> Operands:
        """Types and ranges of the multipliers' operands, with the range of the configured (initial) weights only."""
        return Operands(
            activation=self.operand,
            weight_bits=self.weight_bits,
            weight_range=self.weights.extremes,
            positions=self.positions,
        )

    @cached_property
    def operands(self) -> Operands:
        """Types and ranges of the multipliers' operands, with the range of weights that are stored or can be loaded."""
        return replace(self._initial_operands, weight_range=self.extremes)

    @property
    def folds(self) -> int:
        """Number of output folds, passes over ``Tm`` output channels: ``ceil(M / groups / Tm)`` for each channel group.

        A channelwise walk has its input's folds.
        """
        if self.window.channelwise:
            return self.window.input.folds
        return self.groups * -(-self.outputs // self.groups // self.lanes)

    @property
    def groups(self) -> int:
        """Number of channel groups of the convolution; the number of channels if it is depthwise."""
        return self.window.input.channels if self.window.channelwise else self.window.input.groups

    @property
    def group_channels(self) -> int:
        """Number of input channels of a channel group of the convolution."""
        return self.window.input.channels // self.groups

    @property
    def products(self) -> int:
        """Number of products per cycle of one output channel and pixel: ``Tk * Tn``, or ``Tk`` if depthwise."""
        return self.window.taps * self._product_lanes

    @property
    def _product_lanes(self) -> int:
        """Number of input channels that one output channel reads per cycle: ``Tn``, or 1 if depthwise."""
        return 1 if self.window.channelwise else self.window.input.lanes

    @property
    def operand_lanes(self) -> int:
        """Number of different sets of activations per cycle and pixel: 1 for all lanes, or 1 per lane if depthwise.

        A set has one activation for each product of an output channel.
        """
        return self.lanes if self.window.channelwise else 1

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of all multipliers, also counted where synthesis builds the products from LUTs."""
        return self.products * len(self.slice_units) * len(self.pixel_groups) * self.multiplier.slices

    @property
    def in_luts(self) -> bool:
        """Whether synthesis builds the products from LUTs instead of DSP slices, because operands are narrow."""
        return self.multiplier.is_soft(self.operand, self.weight_bits)

    @cached_property
    def slice_units(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the output lanes that each multiplier unit in DSP slices serves: several if packed in a slice.

        The last unit can have fewer lanes than the others.
        """
        return _groups(self.slice_lanes, self.multiplier.lanes)

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the output lanes, 0 to ``Tm - 1``, of each multiplier unit: in DSP slices, then in LUTs."""
        return (*self.slice_units, *((lane,) for lane in range(self.slice_lanes, self.lanes)))

    def unit_of(self, lane: int) -> int:
        """Return the index in ``units`` of an output lane whose products are in LUTs."""
        return len(self.slice_units) + lane - self.slice_lanes

    @cached_property
    def pixel_groups(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the neighbouring pixels, 0 to ``Tp - 1``, whose products share DSP slices."""
        return _groups(self.window.pixels, self.multiplier.pixels)

    @cached_property
    def lut_blocks(self) -> tuple[tuple[int, ...], ...]:
        """Output lanes with products in LUTs that share their activations: all of them, or each alone if depthwise."""
        lanes = range(self.slice_lanes, self.lanes)
        if self.window.channelwise:
            return tuple((lane,) for lane in lanes)
        return (tuple(lanes),) if lanes else ()

    def lut_modules(self, lanes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the output lanes of each module that computes dot products of lanes with the same activations."""
        if self.lut_multiplier.shares_adders:
            return (lanes,)
        return tuple((lane,) for lane in lanes)

    @cached_property
    def unit_multipliers(self) -> tuple[Multiplier, ...]:
        """Kind of multiplier (a `Multiplier`) of each of ``units``; the last unit can serve fewer lanes."""
        pixels = self.multiplier.pixels
        slices = (self.multiplier.for_rest(len(unit), pixels) for unit in self.slice_units)
        return (*slices, *(self.lut_multiplier for _ in range(self.lut_lanes)))

    def dot_products(self, lanes: Sequence[int]) -> DotProducts:
        """Return the description of the dot products of output lanes with products in LUTs, which share activations."""
        bits = [min(self.sum_bits, self._dot_bits) if self.accumulates else self.sum_bits] * len(lanes)
        constants, bias = None, ()
        if not self.lut_multiplier.stores_weights:
            constants = tuple(self._constants(lane) for lane in lanes)
        if self.whole:
            bits = [min(self.whole_bits[lane], self.sum_bits) for lane in lanes]
            bias = tuple(self.bias[lane] for lane in lanes) if self.bias else ()
        return DotProducts(
            device=self.device,
            operand=self.operand,
            weight_bits=self.weight_bits,
            weight_range=self.lut_multiplier.weight_range(self.weight_bits),
            terms=tuple(len(self.products_at(position)) for position in range(self.positions)),
            sum_bits=tuple(bits),
            constants=constants,
            bias=bias,
        )

    @property
    def _dot_bits(self) -> int:
        """Number of bits that hold every sum of the products of one cycle."""
        largest = self.products * max(map(abs, self.lut_multiplier.weight_range(self.weight_bits)))
        return (largest * peak(self.operand)).bit_length() + 1

    def _constants(self, lane: int) -> tuple[tuple[int, ...], ...]:
        """Return the weights of an output lane by product, ordered by position, and step."""
        size, values = self._output_weights, self.weights.values
        steps = []
        for outputs in self._fold_outputs:
            channel = outputs[lane]
            for step in self._steps:
                steps.append([0 if channel is None or i is None else int(values[channel * size + i]) for i in step])
        return tuple(zip(*steps, strict=True))

    @cached_property
    def longest_chain(self) -> int:
        """Maximum number of multiply-adds in a chain: ``chain``, or fewer if the kind of multiplier requires fewer.

        Products in LUTs need no chain.
        """
        if not self.slice_lanes:
            return 1
        return self.multiplier.longest_chain(self.chain, self.operand, self.weight_bits)

    @property
    def chains(self) -> int:
        """Number of chains of multiply-adds among which the products of one output channel are divided."""
        return -(-self.products // self.longest_chain)

    @property
    def positions(self) -> int:
        """Number of multipliers in the longest chain of multiply-adds."""
        return -(-self.products // self.chains)

    @property
    def whole(self) -> bool:
        """Whether one cycle computes all outputs of a window: only with constant weights in LUTs and packed DSP slices.

        The weights are then constants, and the first units need no register in front of the activations. The constants
        are stored in memories of one word, because Yosys trims products with visible constants and loses the chains.
        The bias is an input of the tree, and the last level of the tree adds all remaining values.
        """
        constant = self.rom_depth == 1 and self.weights_in != "block" and not self.loaded
        return constant and all(multiplier.computes_windows for multiplier in self.kinds)

    @property
    def has_chains(self) -> bool:
        """Whether the sums are computed by the component `Chains`, which layers of equal shapes share.

        A circuit that depends on the weights is shared by no other layer, and Yosys optimises it better in its place.
        """
        return not self.whole and all(multiplier.stores_weights for multiplier in self.kinds)

    @cached_property
    def whole_bits(self) -> tuple[int, ...]:
        """Width in bits of each output channel's sum with its bias; every partial sum fits this width as well."""
        low, high = -1 << (self.window.input.bits - 1), (1 << (self.window.input.bits - 1)) - 1
        bits = []
        for channel, (negative, positive) in enumerate(self.weights.sums(self.outputs)):
            bias = self.bias[channel] if self.bias else 0
            smallest, largest = positive * low + negative * high + bias, positive * high + negative * low + bias
            bits.append(1 + max(largest.bit_length(), (~smallest).bit_length() if smallest < 0 else 0))
        return tuple(bits)

    @property
    def tree_levels(self) -> int:
        """Number of levels of the adder tree that adds the sums of an output channel's chains."""
        if self.whole:
            levels, values = 1, self.chains + 1
            while values > LAST_LEVEL:
                levels, values = levels + 1, -(-values // 2)
            return levels
        # Each chain's carry needs an adder with a carry input. The tree has one adder less than the number of chains,
        # and the accumulator is a further adder. Without an accumulator, the last carry is a value of its own.
        left_over = self.multiplier.carries and not self.accumulates
        return (self.chains + left_over - 1).bit_length()

    @property
    def accumulates(self) -> bool:
        """Whether an output's products are computed over several cycles, so that its sum needs an accumulator."""
        return self.window.steps > 1

    @cached_property
    def instantiated(self) -> bool:
        """Whether chains of slices are instantiated (`SliceChain`), and not inferred by synthesis."""
        chains = self.device.multiplier_slice.chains
        if chains is None or not self.slice_lanes or self._soft_units:
            return False
        return all(
            chains.fits(self._term(multiplier), multiplier.chain_bits(self.operands, self.sum_bits))
            for multiplier in self._unit_kinds
        )

    @property
    def _unit_kinds(self) -> set[Multiplier]:
        """Kinds of the multiplier units in DSP slices: that of the layer, and those of units with fewer lanes."""
        sizes = {(len(unit), len(group)) for unit in self.slice_units for group in self.pixel_groups}
        return {self.multiplier.for_rest(*size) for size in sizes}

    def _term(self, multiplier: Multiplier) -> SliceTerm:
        """Return the operands of a multiplier unit in a slice, without registers."""
        shape = multiplier.packed_shape(self.operand)
        return SliceTerm(
            activation=SliceOperand(bits=shape.width, signed=shape.signed, registers=0),
            weight=SliceOperand(bits=multiplier.spread_bits(self.operands), signed=True, registers=0),
        )

    def activation_registers(self, position: int) -> int:
        """Return the number of registers that slices at a chain position have in front of an activation.

        Synthesis finds those of slices that are not instantiated.
        """
        return min(position + (not self.whole), MOST_REGISTERS) if self.instantiated else 0

    def weight_registers(self, position: int) -> int:
        """Return the number of registers between a chain position's weight word and its multipliers.

        One is the output register of block RAM, or of weights in LUTs if slices are instantiated, which then absorb
        the register. Words of joined memories are delayed, by one more register of the slices.
        """
        if self.weights_in_blocks:
            return 1 + (self.instantiated and self.weights_joined and position > 0)
        return int(self.reads_at_once)

    @property
    def reads_at_once(self) -> bool:
        """Whether memories in LUTs return a weight word in the cycle of its address, without an output register."""
        return self.instantiated and not self.loaded and not self.weights_in_blocks

    @cached_property
    def accumulates_in_slices(self) -> bool:
        """Whether the last slice of each chain accumulates, so that no adder in LUTs does.

        Sums of packed products do not fit their fields. The tree then adds accumulated sums, which are wider. This must
        not take more LUTs than the accumulator.
        """
        chains = self.device.multiplier_slice.chains
        if chains is None or not (self.accumulates and self.instantiated and chains.accumulates):
            return False
        return not (self.multiplier.carries or self.lut_lanes) and self._tree_bits(True) <= self._tree_bits(False)

    @property
    def has_accumulators(self) -> bool:
        """Whether adders in LUTs accumulate the sums of products of several cycles."""
        return self.accumulates and not self.accumulates_in_slices

    def _tree_bits(self, accumulated: bool) -> int:
        """Return the bits of all adders of an output's tree and accumulator, without DSP packing.

        ``accumulated`` is true if the tree adds accumulated sums.
        """
        widths = [self.sum_bits] * self.chains if accumulated else self._chain_widths
        bits = 0
        while len(widths) > 1:
            pairs = [widths[first : first + 2] for first in range(0, len(widths), 2)]
            widths = [min(max(pair) + len(pair) - 1, self.sum_bits) for pair in pairs]
            bits += sum(width for width, pair in zip(widths, pairs, strict=True) if len(pair) == 2)
        return bits + (0 if accumulated else self.sum_bits)

    @property
    def latency(self) -> int:
        """Cycles from the last operands of an output to the output's sum of products on ``o``."""
        return self.to_sum + 1 + self.has_accumulators

    @property
    def to_sum(self) -> int:
        """Cycles from the operands of one cycle to the sum of their products, before the accumulator."""
        return max(self.slices_to_sum if self.slice_lanes else 0, self.luts_to_sum if self.lut_lanes else 0)

    @property
    def slices_to_sum(self) -> int:
        """Cycles from the operands of one cycle to the sum of their products in DSP slices."""
        return (not self.whole) + self.multiplier.chain_cycles(self.positions) + self.tree_levels

    @cached_property
    def luts_to_sum(self) -> int:
        """Cycles from the operands of one cycle to the cycle before the last sum of their products in LUTs.

        There is a register in front of the operands.
        """
        return max(self.lut_latency(lanes) for lanes in self.lut_blocks)

    def lut_latency(self, lanes: tuple[int, ...]) -> int:
        """Return the cycles from operands to the sums of output lanes with products in LUTs, one of ``lut_blocks``."""
        return max(self.lut_multiplier.latency(self.dot_products(module)) for module in self.lut_modules(lanes))

    @property
    def weight_memory(self) -> str:
        """RAM that stores the convolution's weights: ``lut``, ``block`` or ``ultra``."""
        return self.weights_in or self.memories.default_ram(self.rom_depth)

    @property
    def weights_in_blocks(self) -> bool:
        """Whether blocks of RAM store the weights, with a register behind each word; otherwise LUTs store them."""
        return self.weight_memory != "lut"

    @property
    def result(self) -> Shape:
        """Amaranth shape of a sum of products, the convolution's accumulator."""
        return signed(self.sum_bits)

    @property
    def window_products(self) -> int:
        """Number of products that one output pixel needs, over all output channels."""
        return self.outputs * self._output_weights

    @property
    def rom_depth(self) -> int:
        """Number of words of each weight memory: one for each cycle in which a window's products are computed."""
        return self.window.window_cycles

    @property
    def rom_widths(self) -> tuple[int, ...]:
        """Width in bits of the weights that all multipliers at a chain position read per cycle, by position."""
        return tuple(sum(self.unit_bits) * len(self.products_at(position)) for position in range(self.positions))

    @property
    def memory_widths(self) -> tuple[int, ...]:
        """Width in bits of each weight memory: one memory per chain position, or one for all positions."""
        return (sum(self.rom_widths),) if self.weights_joined else self.rom_widths

    @property
    def memory_bits(self) -> int:
        """Number of memory bits of all weight memories of the convolution."""
        return self.rom_depth * self.products * sum(self.unit_bits)

    @cached_property
    def extremes(self) -> tuple[int, int]:
        """Smallest and largest weight that is stored or can be loaded at run time."""
        if not self.loaded:
            return self.weights.extremes
        return (self.multiplier if self.slice_lanes else PLAIN).weight_range(self.weight_bits)

    @cached_property
    def unit_bits(self) -> tuple[int, ...]:
        """Memory bits that hold the weights of one multiplier per cycle, by multiplier unit."""
        return tuple(multiplier.unit_bits(self.operands) for multiplier in self.unit_multipliers)

    @property
    def operand(self) -> Shape:
        """Amaranth shape of a multiplier's activation operand, which all kinds of multipliers share."""
        return self.operand_kind.operand(self.window.input.shape)

    @property
    def operand_offset(self) -> int:
        """Value (0 or half the range) subtracted from activations to make them operands of the multipliers."""
        return self.operand_kind.offset(self.window.input.shape)

    @property
    def operand_kind(self) -> Multiplier:
        """Kind of multiplier that decides the shape of operands."""
        return operand_kind(self.kinds, self.window.input.shape)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Correction to add to the sums of each output channel: ``operand_offset`` times its sum of weights."""
        if not self.operand_offset:
            return (0,) * self.outputs
        return tuple(self.operand_offset * sum(sums) for sums in self.weights.sums(self.outputs))

    def lane_of(self, chain: int, position: int) -> int | None:
        """Return the index of the product, of an output channel, at a position of a chain; ``None`` if there is none.

        Products are ordered by tap, then by channel. Short chains lack their first position.
        """
        product = position * self.chains + chain - self._missing
        return product if product >= 0 else None

    @property
    def _missing(self) -> int:
        """Number of chains without their first position."""
        return self.positions * self.chains - self.products

    def products_at(self, position: int) -> range:
        """Return the indices of the products, of an output channel, at a chain position: one per chain that has it."""
        end = (position + 1) * self.chains - self._missing
        return range(max(end - self.chains, 0), end)

    @cached_property
    def contents(self) -> tuple[tuple[int, ...], ...]:
        """Contents of the weight memory of each chain position: packed weights, one word for each cycle of a window.

        A word stores the weights of all units, the first unit's lowest, and for each unit the weights of all chains
        that have the position. The multiplier decides how weights of lanes that share a unit are stored.
        """
        indices = [self._weight_indices(position) for position in range(self.positions)]
        words: list[list[int]] = [[] for _ in indices]
        for outputs in self._fold_outputs:
            # For each unit all words that its memory can store, as binary digits. The last one is for no weight.
            digits = [
                [
                    *(f"{word:0{bits}b}" for word in self._unit_weights([outputs[lane] for lane in unit], multiplier)),
                    "0" * bits,
                ]
                for unit, multiplier, bits in zip(self.units, self.unit_multipliers, self.unit_bits, strict=True)
                if bits
            ][::-1]
            for column, steps in zip(words, indices, strict=True):
                column += [int("".join([unit[index] for unit in digits for index in step]) or "0", 2) for step in steps]
        return tuple(tuple(column) for column in words)

    def _weight_indices(self, position: int) -> list[list[int]]:
        """Return, for each cycle of a sum, the indices of the weights (of one output channel) at a chain position.

        A cycle has one index per chain that has the position, the last chain's first. The index is -1 where there is no
        weight.
        """
        products = self.products_at(position)[::-1]
        return [[-1 if (index := step[product]) is None else index for product in products] for step in self._steps]

    @property
    def joined_contents(self) -> tuple[int, ...]:
        """Words of a weight memory that stores all chain positions side by side, the first position in the low bits."""
        joined = [0] * self.rom_depth
        first = 0
        for words, width in zip(self.contents, self.rom_widths, strict=True):
            joined = [word | (position_word << first) for word, position_word in zip(joined, words, strict=True)]
            first += width
        return tuple(joined)

    def _unit_weights(self, outputs: list[int | None], multiplier: Multiplier) -> list[int]:
        """Return what memory stores for a multiplier unit: one word for every weight index of its output channels.

        ``outputs`` are the output channels of the unit's lanes; ``None`` is a lane without a channel.
        """
        size = self._output_weights
        weights = [
            np.zeros(size, int)
            if output is None
            else np.array(self.weights.values[output * size : (output + 1) * size])
            for output in outputs
        ]
        return multiplier.stored(np.array(weights, int), self.operands).tolist()

    @cached_property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Memories that are loaded at run time: the weight memories if ``loaded``, otherwise none."""
        if not self.loaded:
            return ()
        names = ["weights"] if self.weights_joined else [f"weights_{position}" for position in range(self.positions)]
        return tuple(
            LoadedMemory(device=self.device, name=name, width=width, depth=self.rom_depth, where=self.weights_in)
            for name, width in zip(names, self.memory_widths, strict=True)
        )

    @property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Initial words of each weight memory, if weights are loaded at run time; otherwise empty."""
        if not self.loaded:
            return ()
        return (self.joined_contents,) if self.weights_joined else self.contents

    @property
    def blank(self) -> MultiplyConfig:
        """Configuration with all weights 0, if weights are loaded at run time; otherwise this configuration."""
        return replace(self, weights=Weights([0] * len(self.weights))) if self.loaded else self

    @property
    def circuit(self) -> MultiplyConfig:
        """Configuration with only a weight range, equal for all convolutions whose `Chains` have the same circuit."""
        smallest, largest = zip(*(multiplier.representative(self.operands) for multiplier in self.kinds), strict=True)
        extremes = max(smallest), min(largest)  # of all kinds, because another kind may compute a wider range
        return replace(self, weights=Bounds(len(self.weights), extremes, self._weights_nonzero))

    @cached_property
    def _output_weights(self) -> int:
        """Number of weights of one output channel: input channels of its group times kernel taps."""
        return self.group_channels * self.window.kernel[0] * self.window.kernel[1]

    @property
    def _fold_outputs(self) -> Iterator[list[int | None]]:
        """Output channel of each lane, by output fold (pass over ``Tm`` channels); ``None`` for unused lanes."""
        groups = self.window.input.groups
        size = self.outputs // groups
        for group in range(groups):
            for first in range(0, size, self.lanes):
                lanes = range(first, first + self.lanes)
                yield [group * size + channel if channel < size else None for channel in lanes]

    @cached_property
    def _steps(self) -> tuple[tuple[int | None, ...], ...]:
        """Index of each product into its output channel's weights, by cycle of a sum; ``None`` for no weight."""
        height, width = self.window.kernel
        tn, channels = self._product_lanes, self.group_channels
        steps = []
        for taps in self.window.step_taps:
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

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device, dsp=self.multipliers - self._soft_units * self.products * self.multiplier.slices)
        self._count_products(cost, self._soft_units)
        self._count_memories(cost)
        cost.ff += self.to_sum + 1 + 2 * self.has_accumulators
        cost.delay(1, self.to_sum)  # the flag of the last step
        if self.accumulates:
            cost.delay(1, self.positions if self.accumulates_in_slices else self.to_sum)  # the flag of the first step
        pixels = self.window.pixels
        cost.lut += self.operand_lanes * self.products * pixels * bool(self.operand_offset)  # an inverter per operand
        if self.whole:
            self._count_whole(cost)
        else:
            self._count_slices(cost)
        self._count_inside(cost)
        for lanes in self.lut_blocks:
            self._count_dots(cost, lanes)
        return cost.resources

    def _count_inside(self, cost: Cost) -> None:
        """Add to ``cost`` what DSP slices contain: registers of operands, products and sums, and the adders."""
        sums = len(self.slice_units) * len(self.pixel_groups)
        operand_bits = self.operand_lanes * self.window.pixels * self.operand.width
        for terms, position, width in self._adders:
            cost.in_slices(sums * (self._product_bits + width), sums * width * (terms > 1))
            cost.in_slices(operand_bits * min(position + 1, 2))
            cost.in_slices(len(self.slice_units) * self.weight_bits * self.weights_in_blocks)

    def _count_whole(self, cost: Cost) -> None:
        """Add to ``cost`` the adder trees of the lanes in DSP slices, in a layer that computes a window per cycle."""
        for unit in self.slice_units:
            multiplier = self.multiplier.for_rest(len(unit), self.multiplier.pixels)
            for index, lane in enumerate(unit):
                self._count_whole_sums(cost, lane, *self._sums_of(multiplier, index))
                cost.delay_apart(self.window.pixels * self.whole_bits[lane], self.to_sum - self.slices_to_sum)

    def _count_slices(self, cost: Cost) -> None:
        """Add to ``cost`` the adder trees and accumulators of the lanes in DSP slices."""
        sums = Counter(
            (len(unit), len(group), index)
            for unit in self.slice_units
            for group in self.pixel_groups
            for index in range(len(unit) * len(group))
        )
        for (lanes, pixels, index), count in sorted(sums.items()):
            self._count_sums(cost, count, *self._sums_of(self.multiplier.for_rest(lanes, pixels), index))

    def _count_dots(self, cost: Cost, lanes: tuple[int, ...]) -> None:
        """Add to ``cost`` the dot products in LUTs of some lanes, at all pixels, and the accumulators of their sums."""
        one, dots = Cost(self.device), self.dot_products(lanes)
        self.lut_multiplier.count(one, dots)
        pixels = self.window.pixels
        cost.products(pixels * one.lut, self.lut_multiplier.lut4_ratio)
        cost.ff += pixels * one.ff
        registers = sum(count * self.weight_registers(position) for position, count in enumerate(dots.terms))
        cost.ff += len(lanes) * registers * self.lut_multiplier.unit_bits(self.operands)
        cost.delay_apart(pixels * sum(dots.sum_bits), self.to_sum - self.lut_latency(lanes))
        if self.has_accumulators:
            self._count_accumulators(cost, pixels * len(lanes), max(dots.sum_bits))

    def component(self) -> Multiply:
        return Multiply(self)

    def _sums_of(self, multiplier: Multiplier, index: int) -> tuple[list[int], int]:
        """Return the widths of one output lane's chain sums, and how many carries packed DSP slices leave to be added.

        ``index`` is that of the lane in its unit.
        """
        bits = multiplier.field_bits(self.operands)
        if bits is None:
            return [self.sum_bits] * self.chains if self.accumulates_in_slices else self._chain_widths, 0
        return [bits] * self.chains, self.chains * (multiplier.carries and index > 0)

    @property
    def _chain_widths(self) -> list[int]:
        """Width in bits of the sum at the end of each chain of multiply-adds, without DSP packing."""
        product = self._product_bits + (not self.operand.signed)
        return [self._width_of(product, terms) for terms in self._chain_terms]

    @property
    def _chain_terms(self) -> list[int]:
        """Number of products of each chain."""
        return [self.positions - (chain < self._missing) for chain in range(self.chains)]

    def _width_of(self, product_bits: int, terms: int) -> int:
        """Return the width in bits of the sum of some products in a chain."""
        return min(product_bits + (terms - 1).bit_length(), max(self.sum_bits, product_bits))

    @property
    def _product_bits(self) -> int:
        """Width in bits of a product of an activation and a weight."""
        return self.operand.width + self.weight_bits

    @property
    def _adders(self) -> Iterator[tuple[int, int, int]]:
        """Adders of the chains: number of products in each sum, position in the chain, and width of the sum in bits."""
        for terms in self._chain_terms:
            for term in range(terms):
                yield term + 1, self.positions - terms + term, self._width_of(self._product_bits, term + 1)

    def _count_memories(self, cost: Cost) -> None:
        """Add to ``cost`` the weight memories with their address registers, and the delay lines of activations."""
        for position in range(self.positions):
            self._count_activations(cost, self.operand_lanes * len(self.products_at(position)), position)
            width = self.rom_widths[position]
            if self.weights_joined:
                self._count_wait(cost, width, position)
            elif self.loaded and self.weight_memory == "lut":
                cost.ram(width, self.rom_depth, "lut")
                cost.ff -= width * (self.rom_depth == 1)  # a memory of one word is its own output register
            elif self.weight_memory == "lut":
                columns = varying_columns(self.contents[position], width)
                cost.rom(columns, self.rom_depth, width, block=False, registered=not self.reads_at_once)
        enabled = self.weights_in_blocks
        for width in self._block_widths if enabled else ():
            if self.weight_memory == "ultra":
                cost.ram(width, self.rom_depth, "ultra")
            else:
                cost.rom((), self.rom_depth, width, block=True)
        address, memories = counter_bits(self.rom_depth), len(self.memory_widths)
        cost.lut += 1.2 * address + enabled
        if self.loaded and enabled:
            # The held address is the first delayed one as well. All memories are read in every cycle.
            cost.ff += address * max(2, memories) + 1
            cost.lut += address + 2
        else:
            cost.ff += (address + enabled) * memories

    @property
    def _block_widths(self) -> tuple[int, ...]:
        """Width in bits of each weight memory as synthesis builds it in blocks of RAM.

        Bits that are equal in all words of a memory that is not loaded are constants.
        """
        if self.loaded:
            return self.memory_widths
        widths = self._varying_bits
        return (sum(widths),) if self.weights_joined else widths

    @property
    def _varying_bits(self) -> tuple[int, ...]:
        """Number of bits that differ between the stored words of each chain position."""
        folds = tuple(tuple(-1 if channel is None else channel for channel in lanes) for lanes in self._fold_outputs)
        steps = tuple(tuple(-1 if index is None else index for index in step) for step in self._steps)
        key = folds, steps, self.unit_multipliers, self.operands
        bits = self.weights.remembered(key, lambda: self._stored_bits(np.array(folds), np.array(steps)))
        return tuple(sum(bits[product] for product in self.products_at(position)) for position in range(self.positions))

    def _stored_bits(self, folds: np.ndarray, steps: np.ndarray) -> list[int]:
        """Return the number of stored bits that differ between the words of each product, over all output lanes.

        Parameters
        ----------
        folds : array
            Output channel by output fold and lane; -1 for none.
        steps : array
            Index of each product into its output channel's weights, by step; -1 for none.
        """
        weights = np.zeros((self.outputs + 1, self._output_weights + 1), np.int32)
        weights[:-1, :-1] = np.array(self.weights.values).reshape(self.outputs, -1)
        counts = np.zeros(self.products, int)
        for unit, multiplier, bits in zip(self.units, self.unit_multipliers, self.unit_bits, strict=True):
            words = multiplier.stored(weights[folds[:, unit].T][..., steps], self.operands).reshape(-1, self.products)
            varying = np.bitwise_or.reduce(words) & ~np.bitwise_and.reduce(words)
            counts += (varying[:, None] >> np.arange(bits) & 1).sum(axis=1)
        return counts.tolist()

    def _count_activations(self, cost: Cost, operands: int, position: int) -> None:
        """Add to ``cost`` the delay lines of a number of activations for one chain position.

        A DSP slice absorbs two registers, except of operands that products in LUTs read as well.
        """
        absorbed = max(position - 1 - self.whole, 0)
        single = self.window.pixels
        if self.slice_lanes and self.multiplier.pixels > 1:
            pairs = sum(len(group) == self.multiplier.pixels for group in self.pixel_groups)
            single -= pairs * self.multiplier.pixels
            width = self.multiplier.pixels * self.operand.width
            cost.delay(operands * pairs * width, absorbed)
            cost.lut += operands * pairs * (self.operand.width * self.operand.signed)
        if self.lut_lanes:
            cost.delay(operands * self.window.pixels * self.operand.width, position + 1)
        else:
            cost.delay(operands * single * self.operand.width, absorbed)

    @property
    def _soft_units(self) -> int:
        """Number of multiplier units and groups of pixels whose products synthesis builds from LUTs."""
        return sum(
            self.multiplier.for_rest(len(unit), len(group)).is_soft(self.operand, self.weight_bits)
            for unit in self.slice_units
            for group in self.pixel_groups
        )

    def _count_products(self, cost: Cost, sums: int) -> None:
        """Add to ``cost`` the products in LUTs and the adders of ``sums`` chains, with registers.

        A DSP slice includes all of these.
        """
        for terms, _, width in self._adders:
            cost.ff += sums * (self._product_bits + width)
            cost.lut += sums * (width * (terms > 1) + self._product_luts)

    @property
    def _product_luts(self) -> float:
        """Measured number of LUTs of one product of activation and weight, by the widths of both.

        It is one LUT per bit where a LUT reads both operands, and fewer for a constant weight.
        """
        operand, weight = self.operand.width, self.weight_bits
        if self.rom_depth == 1:
            return 0.65 * (operand + weight)
        return {7: 12.0, 8: 1.6 * operand * weight}.get(operand + weight, operand + weight)

    def _count_wait(self, cost: Cost, width: int, position: int) -> None:
        """Add to ``cost`` the delay of weights at a later chain position, if one memory stores all positions.

        The last register belongs to the DSP slice. If only one slice reads the weights, or slices are instantiated, the
        register before belongs to the slice as well.
        """
        one_reader = self.multiplier.lanes == self.window.pixels == 1
        cost.delay(width, max(position - (one_reader or self.instantiated), 0))

    def _count_sums(self, cost: Cost, sums: int, widths: list[int], carries: int = 0) -> None:
        """Add to ``cost`` a number of equal adder trees over the sums of chains, and the accumulators behind them.

        Parameters
        ----------
        cost : Cost
            Count of resources that is increased.
        sums : int
            Number of trees.
        widths : list of int
            Width of each chain's sum, in bits.
        carries : int
            Number of carries that the adders of a tree have as inputs.
        """
        if carries and not self.accumulates:
            carries -= 1
            widths = [*widths, 2]
        levels_waited = 0
        for level in range(self.tree_levels):
            pairs = [widths[first : first + 2] for first in range(0, len(widths), 2)]
            levels_waited = cost.tree_delay(sums * widths[-1], len(widths), levels_waited)
            taken = min(carries, len(widths) // 2)
            cost.delay(sums * taken, level)
            carries -= taken
            widths = [min(max(pair) + len(pair) - 1, self.sum_bits) for pair in pairs]
            added = sum(width for width, pair in zip(widths, pairs, strict=True) if len(pair) == 2)
            cost.registers(sums * added)
            if self.multiplier.carries:
                # If a sum is wider than its addends, its highest bit is a carry and takes no LUT.
                cost.lut -= sums * sum(
                    len(pair) == 2 and width > max(pair) for width, pair in zip(widths, pairs, strict=True)
                )
        cost.delay(sums * widths[0], levels_waited)
        cost.delay(sums * carries, self.tree_levels)
        cost.delay_apart(sums * (widths[0] + carries), self.to_sum - self.slices_to_sum)
        if self.has_accumulators:
            self._count_accumulators(cost, sums, widths[0])

    def _count_accumulators(self, cost: Cost, sums: int, addend_bits: int) -> None:
        """Add to ``cost`` a number of accumulators of addends with ``addend_bits`` bits."""
        # The adder's LUTs include the multiplexer of 0 and the accumulator only if the other operand is narrower.
        cost.registers(sums * self.sum_bits, 2 if addend_bits == self.sum_bits else 1)

    def _count_whole_sums(self, cost: Cost, lane: int, widths: list[int], carries: int) -> None:
        """Add to ``cost`` the adder tree of one output lane in a layer that computes a window per cycle."""
        pixels = self.window.pixels
        bits = min(self.whole_bits[lane], self.sum_bits)
        bias = bool(self.bias and self.bias[lane])
        has_bias = False
        registers = 0  # registers that the last value has passed, from the register of its sum on
        for level in range(self.tree_levels - 1):
            *pairs, last = [widths[first : first + 2] for first in range(0, len(widths), 2)]
            passes_by = len(last) == 1 and has_bias
            with_bias = len(last) == 1 and not has_bias
            has_bias |= with_bias
            taken = min(len(widths) // 2 + with_bias, carries)
            cost.delay(pixels * taken, level)
            carries -= taken
            if not passes_by:
                cost.shift_register(pixels * last[-1], registers)
            registers = registers + 1 if passes_by else 1
            cost.lut += pixels * sum(max(pair) for pair in pairs)
            sums = [min(max(pair) + 1, bits) for pair in pairs]
            if len(last) == 2:
                cost.lut += pixels * max(last)
                sums.append(min(max(last) + 1, bits))
            elif with_bias and bias:
                cost.lut += pixels * bits / 2
                sums.append(bits)
            else:
                sums += last
            cost.ff += pixels * sum(sums)
            widths = sums
        cost.shift_register(pixels * widths[-1], registers)
        cost.delay(pixels * carries, self.tree_levels - 1)
        cost.ff += pixels * bits
        if len(widths) == 1 and not has_bias:
            # An adder of a constant has inverters where the constant has ones. Its carry input is free.
            cost.lut += pixels * constant_adder_luts(self.bias[lane] if self.bias else 0, bits)
        else:
            cost.lut += pixels * bits * _LAST_LEVEL_LUTS[len(widths) + (not has_bias)]


def _groups(count: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Divide the indices 0 to ``count - 1`` into groups of ``size``; the last group can be smaller."""
    return tuple(tuple(range(start, min(start + size, count))) for start in range(0, count, size))


class Multiply(Arithmetic[MultiplyConfig]):
    """Component that computes a convolution's sums of products: weight memories, multipliers, adders, accumulators.

    Parameters
    ----------
    config : MultiplyConfig
        Configuration of the convolution.

    Members
    -------
    i : In(stream, always ready)
        Steps of the line buffer.
    o : Out(stream, always ready)
        ``Tm x Tp`` sums, ``[lane][pixel]``, once per fold. A sum is that of the activations less ``config.offsets``.
    writes : In
        Write port of each of ``config.stores``, by name; only if weights are loaded. Writes are between frames.

    Latency and throughput
        One step per cycle, from the second cycle after a reset on. Sums are valid ``config.latency`` cycles after the
        last step of their fold. The component never stalls.

    Number range
        Sums are exact while every partial sum fits ``config.sum_bits``.
    """

    def __init__(self, config: MultiplyConfig):
        more = {"writes": In(writes_of(config.stores))} if config.loaded else {}
        super().__init__(config, **more)

    def elaborate(self, platform):
        m, config = Module(), self.config
        if config.has_chains:
            m.submodules.chains = chains = Chains(config.circuit)
            connect(m, multiply=wiring.flipped(self.i), chains=chains.i)
            connect(m, chains=chains.o, multiply=wiring.flipped(self.o))
            words = chains.words
        else:
            words = [Signal(width, name=f"weight_word_{position}") for position, width in enumerate(config.rom_widths)]
            ProductSums(config, self.i, self.o, words).add_to(m)
        for word, content in zip(words, self._elaborate_memories(m), strict=True):
            m.d.comb += word.eq(content)
        return m

    def _elaborate_memories(self, m: Module) -> Iterator[Value]:
        """Add the convolution's weight memories, and yield the word for each chain position.

        A word is delayed as the activation of its position. A word of block RAM or UltraRAM is one cycle earlier,
        because the memory reads the word of the next step while the step before is taken. So the register behind the
        memory costs no cycle.
        """
        config = self.config
        if not any(config.unit_bits):
            yield from [Const(0, 0)] * config.positions
            return
        ahead = config.weights_in_blocks
        address = Signal(range(config.rom_depth), name="weight_address")
        enable: Value = Const(1)
        step: Value = self.i.valid
        if ahead:
            begun = Signal(name="has_begun")
            m.d.sync += begun.eq(1)
            step = enable = Signal(name="read_enable")
            m.d.comb += enable.eq(self.i.valid | ~begun)
        with m.If(step):
            m.d.sync += address.eq(Mux(address == config.rom_depth - 1, 0, address + 1))
        if config.loaded and ahead:
            address, enable = self._elaborate_held(m, address, step), Const(1)
        if config.weights_joined:
            joined = self._elaborate_memory(m, 0, config.joined_contents, address, enable)
            first = 0
            for position, width in enumerate(config.rom_widths):
                cycles = position + 1 - config.weight_registers(position)
                yield delayed(m, f"skewed_weight_word_{position}", joined[first : first + width], cycles)
                first += width
            return
        for position, words in enumerate(config.contents):
            word = self._elaborate_memory(m, position, words, address, enable)
            if position < config.positions - 1:
                address = delayed(m, f"weight_address_{position}", address, 1, reset_less=False)
                if ahead and not config.loaded:
                    enable = delayed(m, f"read_enable_{position}", enable, 1, reset_less=False)
            yield word

    def _elaborate_held(self, m: Module, address: Signal, step: Value) -> Value:
        """Add a register that holds a weight memory's address between steps, and return the read address.

        This is for a memory in blocks of RAM that is loaded at run time. The word is read in every cycle, because the
        memory can be written between reads.
        """
        held, reading = Signal(len(address), name="held_address"), Signal(len(address), name="read_address")
        m.d.comb += reading.eq(Mux(step, address, held))
        m.d.sync += held.eq(reading)
        return reading

    def _elaborate_memory(self, m: Module, index: int, words: Sequence[int], address: Value, enable: Value) -> Value:
        """Add one weight memory, and return the word of weights that was read last."""
        config = self.config
        depth, width = config.rom_depth, config.memory_widths[index]
        if config.loaded:
            store = config.stores[index]
            return stored(m, store, words, getattr(self.writes, store.name), address, enable)
        m.submodules["weights" if config.weights_joined else f"weights_{index}"] = rom = memory.Memory(
            shape=width,
            depth=depth,
            init=words,
            attrs=config.memories.rom_style(depth, config.weight_memory),
        )
        if config.reads_at_once:
            read = read_port(rom, domain="comb")
            m.d.comb += read.addr.eq(address)
            return read.data
        read = read_port(rom)
        m.d.comb += [read.addr.eq(address), read.en.eq(enable)]
        return read.data
