"""Multipliers of a convolution: their kinds, the units (one or more output channels each), and chains of units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from functools import cached_property

from amaranth import Shape

from hwgen.gateware.convolution.parameters import ConvolutionParameters
from hwgen.gateware.multipliers import (
    PLAIN,
    LutMultiplier,
    Multiplier,
    Operands,
    lut_multiplier_of,
    multiplier_of,
    operand_kind,
)


@dataclass(frozen=True)
class MultiplierKinds:
    """Kinds of multipliers that a convolution uses, in DSP slices, in LUTs or both, and their operands."""

    parameters: ConvolutionParameters

    @property
    def in_slices(self) -> Multiplier:
        """Kind of multiplier (a `Multiplier`) that computes the products in DSP slices."""
        return multiplier_of(self.parameters.macs_per_dsp)

    @cached_property
    def in_luts(self) -> LutMultiplier:
        """`LutMultiplier` for the last ``lut_lanes`` of the output channels that are computed at once."""
        parameters = self.parameters
        operands = Operands(
            activation=parameters.window.input.shape,
            weight_bits=parameters.weight_bits,
            weight_range=self.weight_range,
            positions=1,
            weights_nonzero=self.weights_nonzero,
        )
        return lut_multiplier_of(operands, parameters.rom_depth if parameters.constant_weights else None)

    @cached_property
    def used(self) -> tuple[Multiplier, ...]:
        """Tuple of the kinds of multipliers (`Multiplier`) in the convolution: in DSP slices, in LUTs, or both."""
        luts = (self.in_luts,) if self.parameters.lut_lanes else ()
        return (*((self.in_slices,) if self.parameters.slice_lanes else ()), *luts)

    @property
    def weights_nonzero(self) -> bool:
        """Whether multipliers in LUTs, if any, never get a weight of 0, stored or in place of a missing product."""
        parameters = self.parameters
        known = bool(parameters.lut_lanes) and not parameters.loaded and parameters.weights.nonzero
        return known and not any(None in step for step in self.parameters.weight_indices)

    @cached_property
    def weight_range(self) -> tuple[int, int]:
        """Smallest and largest weight, a pair of integers, that is stored or can be loaded at run time."""
        if not self.parameters.loaded:
            return self.parameters.weights.extremes
        return (self.in_slices if self.parameters.slice_lanes else PLAIN).weight_range(self.parameters.weight_bits)

    @cached_property
    def deciding(self) -> Multiplier:
        """Kind of multiplier (a `Multiplier`) whose activation format all multipliers of the convolution use."""
        return operand_kind(self.used, self.parameters.window.input.shape)

    @cached_property
    def operand(self) -> Shape:
        """Amaranth shape of the activation operand, which all kinds of multipliers in the convolution share."""
        return self.deciding.operand(self.parameters.window.input.shape)

    @property
    def offset(self) -> int:
        """Integer subtracted from activations to form multiplier operands: 0, or half the range to make them signed."""
        return self.deciding.offset(self.parameters.window.input.shape)

    @cached_property
    def whole(self) -> bool:
        """Whether one cycle computes all output channels of a window; this needs constant weights.

        All kinds of multipliers must support it. The first units then need no register before the activations. The
        constants are stored in memories of one word, because Yosys trims products with visible constants and loses the
        chains. The bias is an input of the tree, and the last level of the tree adds all remaining values.
        """
        constant = self.parameters.rom_depth == 1 and self.parameters.constant_weights
        return constant and all(multiplier.computes_windows for multiplier in self.used)

    @property
    def has_chains(self) -> bool:
        """Whether the sums are computed by a `Chains` component, shared by layers of equal shapes.

        A circuit that depends on the weights serves one layer only, and Yosys optimises it better in its place.
        """
        return not self.whole and all(multiplier.stores_weights for multiplier in self.used)

    @cached_property
    def chains(self) -> ChainLayout:
        """`ChainLayout`: division of an output channel's products among chains of multiply-adds.

        Products in LUTs need no chain.
        """
        parameters = self.parameters
        longest = 1
        if parameters.slice_lanes:
            longest = self.in_slices.longest_chain(parameters.chain, self.operand, parameters.weight_bits)
        return ChainLayout(self.parameters.products, longest)


@dataclass(frozen=True)
class ChainLayout:
    """Division of an output channel's products of one cycle among chains of multiply-adds.

    Products are ordered by tap, then by channel. Short chains lack their first position.

    Parameters
    ----------
    products : int
        Number of products per cycle.
    longest : int
        Maximum number of multiply-adds in a chain: the plan's, or fewer if the kind of multiplier requires fewer.
    """

    products: int
    longest: int

    @cached_property
    def count(self) -> int:
        """Number of chains of multiply-adds per output channel and pixel."""
        return -(-self.products // self.longest)

    @cached_property
    def positions(self) -> int:
        """Number of multiply-adds in the longest chain, that is, of positions in a chain."""
        return -(-self.products // self.count)

    @property
    def _missing(self) -> int:
        """Number of chains that lack the first position, as they are one multiply-add shorter than the longest."""
        return self.positions * self.count - self.products

    @property
    def lengths(self) -> list[int]:
        """List of the numbers of products in each chain of multiply-adds."""
        return [self.positions - (chain < self._missing) for chain in range(self.count)]

    def at(self, position: int) -> range:
        """Return the range of indices of the chains that have a multiply-add at a position."""
        return range(0 if position else self._missing, self.count)

    def products_at(self, position: int) -> range:
        """Return the range of an output channel's product indices at a chain position: one per chain that has it."""
        end = (position + 1) * self.count - self._missing
        return range(max(end - self.count, 0), end)

    @property
    def terms(self) -> Iterator[tuple[int, int, int]]:
        """Iterator of triples (chain position, chain index, product index), one per product of an output channel."""
        for position in range(self.positions):
            for chain, product in zip(self.at(position), self.products_at(position), strict=True):
                yield position, chain, product


@dataclass(frozen=True)
class MultiplierUnits:
    """Multipliers of a convolution, in units that each compute the products of one or more output channels.

    Units in DSP slices precede units in LUTs. The last unit in DSP slices can have fewer lanes than the others.
    """

    parameters: ConvolutionParameters
    kinds: MultiplierKinds

    @cached_property
    def operands(self) -> Operands:
        """`Operands` of the multipliers: their shapes and ranges, for all weights that are stored or can be loaded."""
        return Operands(
            activation=self.kinds.operand,
            weight_bits=self.parameters.weight_bits,
            weight_range=self.kinds.weight_range,
            positions=self.kinds.chains.positions,
        )

    @cached_property
    def in_slices(self) -> tuple[tuple[int, ...], ...]:
        """Output lanes of each unit in DSP slices, as tuples of indices; several lanes if weights are packed."""
        return _groups(self.parameters.slice_lanes, self.kinds.in_slices.lanes)

    @cached_property
    def lanes(self) -> tuple[tuple[int, ...], ...]:
        """Output lanes (indices 0 to ``Tm - 1``) that each multiplier unit serves, as one tuple per unit."""
        in_luts = range(self.parameters.slice_lanes, self.parameters.lanes)
        return (*self.in_slices, *((lane,) for lane in in_luts))

    @cached_property
    def pixel_groups(self) -> tuple[tuple[int, ...], ...]:
        """Groups of neighbouring pixels whose products share DSP slices, as tuples of indices 0 to ``Tp - 1``."""
        return _groups(self.parameters.window.pixels, self.kinds.in_slices.pixels)

    @cached_property
    def multipliers(self) -> tuple[Multiplier, ...]:
        """Tuple with the kind of multiplier (`Multiplier`) of each unit: first in DSP slices, then in LUTs."""
        slices = (self.slice_multiplier(unit, range(self.kinds.in_slices.pixels)) for unit in self.in_slices)
        return (*slices, *(self.kinds.in_luts for _ in range(self.parameters.lut_lanes)))

    def slice_multiplier(self, unit: Sized, group: Sized) -> Multiplier:
        """Return the kind of multiplier (a `Multiplier`) of a unit in DSP slices for some lanes and pixels."""
        return self.kinds.in_slices.for_rest(len(unit), len(group))

    @cached_property
    def slice_kinds(self) -> Counter[Multiplier]:
        """Counter of multipliers in DSP slices by `Multiplier` kind: one per unit and group of neighbouring pixels."""
        return Counter(self.slice_multiplier(unit, group) for unit in self.in_slices for group in self.pixel_groups)

    @cached_property
    def num_soft(self) -> int:
        """Number of multipliers, over all units and pixel groups, whose products synthesis builds from LUTs."""
        operand, weight_bits = self.kinds.operand, self.parameters.weight_bits
        return sum(count for kind, count in self.slice_kinds.items() if kind.is_soft(operand, weight_bits))

    def slices_of(self, units: int) -> int:
        """Return the number of DSP slices of ``units`` multiplier units: one or more per product of a cycle."""
        return self.parameters.products * units * self.kinds.in_slices.slices

    @cached_property
    def weight_bits(self) -> tuple[int, ...]:
        """Tuple, per multiplier unit: bits of the weight memory that it reads per product and cycle."""
        return tuple(multiplier.unit_bits(self.operands) for multiplier in self.multipliers)


def _groups(count: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Return the indices 0 to ``count - 1`` as tuples of ``size`` consecutive ones; the last can be shorter."""
    return tuple(tuple(range(start, min(start + size, count))) for start in range(0, count, size))
