"""Configuration of a convolution's arithmetic with its parts, among them the memories of its weight words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwgen.gateware.convolution.multiplier_units import ChainLayout, MultiplierKinds, MultiplierUnits
from hwgen.gateware.convolution.parameters import ConvolutionParameters
from hwgen.gateware.convolution.sum_pipeline import LutDots, SumPipeline
from hwgen.gateware.load.loaded_memory import LoadedMemory


@dataclass(frozen=True)
class WeightMemories:
    """Weight memories of a convolution: one memory for each chain position, or one for all if they are joined."""

    parameters: ConvolutionParameters
    units: MultiplierUnits

    @property
    def _positions(self) -> range:
        """Range of the positions in a chain of multiply-adds; each position has its own weights."""
        return range(self.units.kinds.chains.positions)

    @cached_property
    def rom_widths(self) -> tuple[int, ...]:
        """Tuple of weight bits that all multipliers at a chain position read per cycle: one number per position."""
        bits, chains = sum(self.units.weight_bits), self.units.kinds.chains
        return tuple(bits * len(chains.at(position)) for position in self._positions)

    @property
    def widths(self) -> tuple[int, ...]:
        """Tuple of widths in bits of the weight memories: one per chain position, or a joint one."""
        return (sum(self.rom_widths),) if self.parameters.weights_joined else self.rom_widths

    @cached_property
    def position_words(self) -> tuple[tuple[int, ...], ...]:
        """Nested tuples of words (packed weights, integers): per chain position, one word per cycle of a window.

        A word stores the weights of all units, the first unit's lowest, and for each unit the weights of all chains
        that have the position. The multiplier decides how weights of lanes that share a unit are stored.
        """
        units = list(zip(self._unit_words(), self.units.weight_bits, strict=True))[::-1]
        columns = []
        for position in self._positions:
            products = self.units.kinds.chains.products_at(position)
            fields = [(words[:, products[::-1]].tolist(), bits) for words, bits in units if bits]
            digits = (
                "".join(f"{word:0{bits}b}" for words, bits in fields for word in words[step])
                for step in range(self.parameters.rom_depth)
            )
            columns.append(tuple(int(word or "0", 2) for word in digits))
        return tuple(columns)

    def _unit_words(self) -> list[np.ndarray]:
        """Return a list: per multiplier unit, an array of encoded weights: by cycle of a window and by product."""
        parameters, operands = self.parameters, self.units.operands
        weights = np.zeros((parameters.outputs + 1, parameters.output_weights + 1), np.int32)
        weights[:-1, :-1] = np.array(parameters.weights.values).reshape(parameters.outputs, -1)
        # The last row and column of zeros are for lanes without a channel and products without a weight.
        folds = np.array([[-1 if output is None else output for output in fold] for fold in parameters.fold_outputs])
        steps = np.array([[-1 if index is None else index for index in step] for step in parameters.weight_indices])
        return [
            multiplier.stored(weights[folds[:, unit].T][..., steps], operands).reshape(-1, parameters.products)
            for unit, multiplier in zip(self.units.lanes, self.units.multipliers, strict=True)
        ]

    @cached_property
    def contents(self) -> tuple[tuple[int, ...], ...]:
        """Tuple of words (integers) per weight memory; in a joint one, the first chain position is lowest."""
        if not self.parameters.weights_joined:
            return self.position_words
        joined, first = [0] * self.parameters.rom_depth, 0
        for words, width in zip(self.position_words, self.rom_widths, strict=True):
            joined = [word | (position_word << first) for word, position_word in zip(joined, words, strict=True)]
            first += width
        return (tuple(joined),)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Tuple of the weight memories' names, for example ``weights_0`` for the first chain position."""
        joined = self.parameters.weights_joined
        return ("weights",) if joined else tuple(f"weights_{position}" for position in self._positions)

    @cached_property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Tuple of each `LoadedMemory` for weights that can be loaded at run time; empty if weights are constant."""
        if not self.parameters.loaded:
            return ()
        parameters = self.parameters
        return tuple(
            LoadedMemory(
                device=parameters.device,
                name=name,
                width=width,
                depth=parameters.rom_depth,
                where=parameters.weights_in,
            )
            for name, width in zip(self.names, self.widths, strict=True)
        )

    @property
    def block_widths(self) -> tuple[int, ...]:
        """Tuple of widths in bits of the weight memories after synthesis into block RAM, which drops constant bits.

        Bits that are equal in all words of a memory that is not loaded are constants.
        """
        if self.parameters.loaded:
            return self.widths
        widths = self._varying_bits
        return (sum(widths),) if self.parameters.weights_joined else widths

    @property
    def _varying_bits(self) -> tuple[int, ...]:
        """Tuple of numbers of weight bits, one per chain position, that differ between some words."""
        parameters, chains = self.parameters, self.units.kinds.chains
        folds = tuple(map(tuple, parameters.fold_outputs))
        key = folds, parameters.weight_indices, self.units.multipliers, self.units.operands
        bits = parameters.weights.remembered(key, self._stored_bits)
        return tuple(sum(bits[product] for product in chains.products_at(position)) for position in self._positions)

    def _stored_bits(self) -> list[int]:
        """Return a list: per product, the number of weight bits over all lanes that differ between some words."""
        counts = np.zeros(self.parameters.products, int)
        for words, bits in zip(self._unit_words(), self.units.weight_bits, strict=True):
            varying = np.bitwise_or.reduce(words) & ~np.bitwise_and.reduce(words)
            counts += (varying[:, None] >> np.arange(bits) & 1).sum(axis=1)
        return counts.tolist()


@dataclass(frozen=True, kw_only=True)
class ConvolutionParts(ConvolutionParameters):
    """Parameters of a convolution's arithmetic, with the sub-configurations that follow from them."""

    @cached_property
    def kinds(self) -> MultiplierKinds:
        """`MultiplierKinds` that the convolution uses, with their operands, and the chains of multiply-adds."""
        return MultiplierKinds(self)

    @property
    def chains(self) -> ChainLayout:
        """`ChainLayout`: division of an output channel's products among chains of multiply-adds."""
        return self.kinds.chains

    @cached_property
    def units(self) -> MultiplierUnits:
        """`MultiplierUnits` of the convolution, and the output channels and pixels that each serves."""
        return MultiplierUnits(self, self.kinds)

    @cached_property
    def dots(self) -> LutDots:
        """`LutDots`: layout of the dot products that are built from LUTs, for the output lanes not in DSP slices."""
        return LutDots(self, self.kinds)

    @cached_property
    def pipeline(self) -> SumPipeline:
        """Pipeline (`SumPipeline`) from operands to sums: bit widths, registers and cycles of each stage."""
        return SumPipeline(self, self.kinds, self.units, self.dots)

    @cached_property
    def weight_words(self) -> WeightMemories:
        """Weight memories (`WeightMemories`) of the convolution: their widths and words."""
        return WeightMemories(self, self.units)
