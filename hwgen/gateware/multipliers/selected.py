"""Multiplier of weights that take up to four constants in turn: LUT tables addressed by activation bits and step.

A LUT of 6 inputs reads 4 bits of an activation and the 2 bits of the step. A table of such LUTs stores the products of
these 4 bits and the step's weight, for all output channels. Adders sum the words of the tables. No memory stores the
weights. An activation of 8 bits has two tables. Several activations of 1 or 2 bits share a table, which stores the sum
of their products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from amaranth import Cat, Module, Shape, Signal, Value

from hwgen.gateware.arithmetic.adder_graph import AdderGraph, Operand, Term
from hwgen.gateware.cost import Cost, counter_bits, trailing_zeros, varying_columns
from hwgen.gateware.lookup import delayed, look_up
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts, LutMultiplier, Terms
from hwgen.gateware.multipliers.multiplier import Operands

#: Maximum number of steps of a sum, each with its own weights.
MAX_STEPS = 4


@dataclass(frozen=True)
class SelectedMultiplier(LutMultiplier):
    """Multiplier in LUTs of activations by weights that take up to four constants in turn, one per cycle (step)."""

    name = "selected"
    stores_weights = False
    shares_terms = True
    computes_windows = True

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        return constant_steps is not None and constant_steps <= MAX_STEPS

    def latency(self, dots: DotProducts) -> int:
        return _tables(dots).graph.latency

    def sums(self, m: Module, dots: DotProducts, operands: DotOperands) -> list[Signal]:
        return _tables(dots).add_to(m, operands.activations, operands.step, operands.names)

    def count(self, cost: Cost, dots: DotProducts) -> None:
        _tables(dots).count(cost)


@dataclass(frozen=True)
class _Field:
    """One output channel's products in a table: their place in the words is a field of consecutive bits."""

    channel: int
    shift: int
    """Left shift in bits of the field's products in the output channel's sum."""
    products: tuple[int, ...]
    """Tuple of integer products by table address, divided by ``2 ** shift``."""

    @property
    def low(self) -> int:
        """Smallest product in the field, an integer, before the shift."""
        return min(self.products)

    @property
    def high(self) -> int:
        """Largest product in the field, an integer, before the shift."""
        return max(self.products)

    @cached_property
    def bits(self) -> int:
        """Width in bits of an output channel's field in the table's words: any of its products, before the shift."""
        return len(Signal(range(min(self.low, -1), self.high + 1)))


@dataclass(frozen=True)
class _Table:
    """Table in LUTs from a few activation bits and the step (cycle of a sum) to their products with constant weights.

    Parameters
    ----------
    position : int
        Position of the activations.
    terms : tuple of int
        Indices of the activations in their position.
    first, size : int
        First bit that the table reads of each activation, and number of bits.
    fields : tuple of _Field
        Products of each output channel that has weights other than 0.
    """

    position: int
    terms: tuple[int, ...]
    first: int
    size: int
    fields: tuple[_Field, ...]

    @property
    def width(self) -> int:
        """Width of the table's words, in bits."""
        return sum(field.bits for field in self.fields)

    @cached_property
    def words(self) -> list[int]:
        """List of words of the product table, with the first output channel's product in the low bits."""
        words = [0] * len(self.fields[0].products)
        first = 0
        for field in self.fields:
            mask = (1 << field.bits) - 1
            words = [word | (product & mask) << first for word, product in zip(words, field.products, strict=True)]
            first += field.bits
        return words

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the LUTs and registers of the product table.

        Equal columns share a register, and equal functions of columns share a LUT. A bit of the address takes no LUT.
        """
        bits = counter_bits(len(self.words))
        columns = set(varying_columns(self.words, self.width))
        cost.ff += len(columns)
        functions = {self._function(column, bits) for column in columns}
        plain = {
            (column, inputs)
            for inputs in range(len(self.terms) * self.size, bits + 1)
            for column in varying_columns(range(1 << inputs), inputs)
        }
        cost.lut += len(functions - plain)

    def _function(self, column: int, inputs: int) -> tuple[int, int]:
        """Return a tuple: for a bit column of the table, the truth table that a LUT computes, and its number of inputs.

        A column that is constant for the last steps needs no LUT for them, because its register has a reset. Synthesis
        is free to choose the words beyond the table. It repeats words of the first half.
        """
        depth, half = len(self.words), 1 << inputs - 1
        column |= (column >> depth - half & (1 << 2 * half - depth) - 1) << depth
        while inputs > len(self.terms) * self.size:
            half = 1 << inputs - 1
            below, above = column & (1 << half) - 1, column >> half
            if above not in (0, (1 << half) - 1, below):
                break
            column, inputs = below, inputs - 1
        return column, inputs


class _Tables:
    """Product tables of several dot products, and the graph of adders that sums their outputs.

    Parameters
    ----------
    dots : DotProducts
        Dot products, with constants of at most `MAX_STEPS` steps.
    """

    def __init__(self, dots: DotProducts):
        assert dots.constants is not None
        #: Weights, int64 array ``(channels, terms, steps)``.
        self._weights = np.array(dots.constants, dtype=np.int64)
        self._steps = self._weights.shape[2]
        assert self._steps <= MAX_STEPS
        self._width, self._signed = dots.operand.width, dots.operand.signed
        self._device = dots.device
        self._positions = len(dots.terms)
        self._tables = [table for table in self._divided(dots) if table.fields]
        products = [(table, field) for table in self._tables for field in table.fields]
        self.graph = AdderGraph(
            dots.device, [Operand(field.low, field.high, table.position + 1) for table, field in products]
        )
        terms: list[list[Term]] = [[] for _ in range(dots.channels)]
        for node, (_, field) in enumerate(products):
            terms[field.channel].append(Term(node, field.shift, 1))
        for addends, bias, bits in zip(terms, dots.bias or (0,) * dots.channels, dots.sum_bits, strict=True):
            self.graph.add_sum(addends, bias, bits)

    def _divided(self, dots: DotProducts) -> Iterator[_Table]:
        """Yield the product tables: several per wide activation, or one for several narrow activations."""
        address_bits, width = dots.device.logic.table_inputs - counter_bits(self._steps), self._width
        pieces, joined = -(-width // address_bits), max(address_bits // width, 1)
        start = 0
        for position, terms in enumerate(dots.terms):
            for term in range(0, terms, joined):
                group = tuple(range(term, min(term + joined, terms)))
                weights = self._weights[:, [start + index for index in group]]
                for piece in range(pieces):
                    first = piece * width // pieces
                    size = (piece + 1) * width // pieces - first
                    yield _Table(position, group, first, size, tuple(self._fields(weights, first, size)))
            start += terms

    def _fields(self, weights: np.ndarray, first: int, size: int) -> Iterator[_Field]:
        """Yield a field per output channel: products of bits ``first`` to ``first + size - 1`` of activations.

        ``weights`` has the weights by output channel, activation and step.
        """
        _, terms, steps = weights.shape
        addresses = np.arange(1 << terms * size)
        values = addresses[:, None] >> np.arange(terms) * size & (1 << size) - 1
        if self._signed and first + size == self._width:
            values = values - ((values >> size - 1) << size)
        for channel, own in enumerate(weights):
            if own.any():
                shift = trailing_zeros(int(np.bitwise_or.reduce(own, axis=None)))
                products = ((own.T >> shift) @ values.T).reshape(steps * len(addresses))
                yield _Field(channel, shift + first, tuple(products.tolist()))

    def add_to(self, m: Module, activations: Terms, step: Value, names: Sequence[str]) -> list[Signal]:
        """Add the product tables and the adders to a module; return a list: each output channel's registered sum."""
        chosen = [step[: counter_bits(self._steps)]]
        for position in range(1, self._positions):
            chosen.append(delayed(m, f"{names[0]}_step_{position}", chosen[-1], 1))
        products: list[Value] = []
        for table in self._tables:
            bits = [activations[table.position][term][table.first : table.first + table.size] for term in table.terms]
            name = f"{names[0]}_products_{table.position}_{table.terms[0]}_{table.first}"
            word = look_up(m, self._device, name, Shape(table.width), table.words, Cat(*bits, chosen[table.position]))
            first = 0
            for field in table.fields:
                products.append(word[first : first + field.bits].as_signed())
                first += field.bits
        return self.graph.add_to(m, products, f"{names[0]}_shared", names)

    def count(self, cost: Cost) -> None:
        """Add to ``cost`` the product tables (ROMs addressed by activation bits and step), adders and step delays."""
        cost.add(self._cost)
        self.graph.count(cost)

    @cached_property
    def _cost(self) -> Cost:
        """`Cost` in LUTs and flip-flops of the product tables and of the delayed step index, without the adders."""
        cost = Cost(self._device)
        cost.delay(counter_bits(self._steps), max((table.position for table in self._tables), default=0))
        for table in self._tables:
            table.count(cost)
        return cost


@lru_cache(maxsize=64)
def _tables(dots: DotProducts) -> _Tables:
    """Return the product `_Tables` and adders of all output channels' dot products, cached."""
    return _Tables(dots)
