"""Chains of DSP slices: multiply-adds in a device family's own cells, and cascades that compute wide products."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device, SliceOperand, SliceTerm
from hwgen.errors import ConfigError
from hwgen.gateware.circuit_forms import Primitive
from hwgen.gateware.cost import Cost
from hwgen.gateware.lookup import delayed, named
from hwgen.gateware.product_rows import extended

#: Maximum number of registers that a slice has before an operand of its multiplier.
MAX_REGISTERS = 2


@dataclass(frozen=True, kw_only=True)
class SliceChainConfig:
    """Configuration of a chain of DSP slices: ``m[i] <= a[i] * w[i]; p[i] <= p[i - 1] + m[i]``.

    The operands of a slice arrive one cycle after the previous slice's.

    Parameters
    ----------
    terms : tuple of SliceTerm
        Operands of each slice, with the registers before its multiplier.
    sum_bits : int
        Width of sums, in bits. Sums wrap at this width.
    accumulates : bool
        Whether the last slice sums up over cycles: ``p[n] <= (0 or p[n]) + p[n - 1] + m[n]``.

    Raises
    ------
    ConfigError
        If there is no slice, a width is not positive, or an operand has more than two registers.
    """

    terms: tuple[SliceTerm, ...]
    sum_bits: int
    accumulates: bool = False

    def __post_init__(self) -> None:
        if not self.terms:
            raise ConfigError("terms must have at least one slice, not none")
        if self.sum_bits < 1:
            raise ConfigError(f"sum_bits must be a positive integer, not {self.sum_bits!r}")
        for operand in (operand for term in self.terms for operand in (term.activation, term.weight)):
            if operand.bits < 1:
                raise ConfigError(f"an operand must have at least one bit, not {operand.bits!r}")
            if not 0 <= operand.registers <= MAX_REGISTERS:
                raise ConfigError(f"an operand must have 0 to {MAX_REGISTERS} registers, not {operand.registers!r}")

    @cached_property
    def digest(self) -> str:
        """First eight hexadecimal digits of a hash of the configuration, to name its module."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:8]

    @property
    def result(self) -> Shape:
        """Amaranth shape of the chain's sum: signed, ``sum_bits`` wide."""
        return signed(self.sum_bits)

    @property
    def latency(self) -> int:
        """Cycles from the first DSP slice's operands, after their registers, to the chain's sum."""
        return len(self.terms) + 1

    def count(self, cost: Cost) -> None:
        """Add the chain's DSP slices to ``cost``: one per term, with all registers and adders."""
        cost.dsp += len(self.terms)

    def component(self) -> SliceChain:
        return SliceChain(self)

    def add_to(self, m: Module, operands: Sequence[tuple[Value, Value]], name: str, is_first: Value) -> Signal:
        """Add a chain of DSP slices to a module, and return its sum, a `Signal`.

        Parameters
        ----------
        m : Module
            Module that gets the chain, as a submodule.
        operands : sequence of (Value, Value)
            Activation and weight of each slice, before the slice's registers.
        name : str
            Name of the submodule.
        is_first : Value
            Whether the sum after the next cycle begins with 0; without an effect unless the chain accumulates.
        """
        m.submodules[name] = chain = self.component()
        for index, (activation, weight) in enumerate(operands):
            m.d.comb += [chain.activation(index).eq(activation), chain.weight(index).eq(weight)]
        if self.accumulates:
            m.d.comb += chain.is_first.eq(is_first)
        return chain.sum


class SliceChain(Primitive[SliceChainConfig]):
    """Chain of multiply-add DSP slices with the registers of their operands, products and sums.

    Parameters
    ----------
    config : SliceChainConfig

    Members
    -------
    activation_0, activation_1, .. : In
        Activation of each slice.
    weight_0, weight_1, .. : In
        Weight of each slice.
    is_first : In(1)
        Whether the sum after the next cycle begins with 0; only if the chain accumulates.
    sum : Out(signed)
        Sum of the last slice, ``config.latency`` cycles after the operands of the first slice have passed their
        registers.
    """

    has_clock = True
    is_first: Signal
    sum: Signal

    def __init__(self, config: SliceChainConfig):
        ports = {}
        for index, term in enumerate(config.terms):
            ports[f"activation_{index}"] = In(_shape(term.activation))
            ports[f"weight_{index}"] = In(_shape(term.weight))
        if config.accumulates:
            ports["is_first"] = In(1)
        super().__init__(config, {**ports, "sum": Out(config.result)})

    def activation(self, index: int) -> Signal:
        """Return the input port of a DSP slice's activation, as a signal."""
        return getattr(self, f"activation_{index}")

    def weight(self, index: int) -> Signal:
        """Return the input port of a DSP slice's weight, as a signal."""
        return getattr(self, f"weight_{index}")

    @property
    def module_name(self) -> str:
        return f"slice_chain_{len(self.config.terms)}_{self.config.digest}"

    def circuit(self) -> Module:
        m, config = Module(), self.config
        sums: list[Signal] = []
        for index, term in enumerate(config.terms):
            activation = delayed(m, f"activation_{index}", self.activation(index), term.activation.registers)
            weight = delayed(m, f"weight_{index}", self.weight(index), term.weight.registers)
            bits = term.activation.signed_bits + term.weight.signed_bits
            product = Signal(signed(bits), name=f"product_{index}", reset_less=True)
            partial = Signal(config.result, name=f"sum_{index}", reset_less=True)
            m.d.sync += product.eq(activation * weight)
            addends = sums[-1] + product if sums else product
            if config.accumulates and index == len(config.terms) - 1:
                begins = delayed(m, "is_first", self.is_first, 1)
                addends = Mux(begins, Const(0), partial) + addends
            m.d.sync += partial.eq(addends)
            sums.append(partial)
        m.d.comb += self.sum.eq(sums[-1])
        return m

    def cells(self, device: Device) -> list[str]:
        chains = device.multiplier_slice.chains
        if chains is None:
            return []
        return chains.statements(self.config.terms, self.config.sum_bits, accumulates=self.config.accumulates)


def _shape(operand: SliceOperand) -> Shape:
    """Return the Amaranth shape of a DSP slice's operand."""
    return Shape(operand.bits, operand.signed)


def slice_cascade(
    m: Module,
    names: tuple[str, str, str],
    steps: Sequence[tuple[int, int]],
    factors: Iterable[tuple[Value, Value]],
    total: Value,
    shift: int,
) -> tuple[Value, list[tuple[Value, Value]]]:
    """Add a cascade of DSP slices for a wide product; return a pair: product plus ``total``, registers of each slice.

    Each slice adds the product of two pieces to the sum of the previous slice, one cycle later. If the product has a
    larger weight, the sum is shifted right before; the dropped bits are final.

    Parameters
    ----------
    m : Module
    names : tuple of str
        Names of a slice's product, of its sum and of its dropped bits, with ``{}`` for the index of the slice.
    steps : sequence of (int, int)
        Indices of the pieces of both operands that each slice multiplies.
    factors : iterable of (Value, Value)
        These pieces, in the cycle of the slice.
    total : Value
        Number that the first slice adds.
    shift : int
        Number of bits of a piece, which the cascade shifts by.
    """
    product_name, sum_name, low_name = names
    low: list[Value] = []
    slices: list[tuple[Value, Value]] = []
    for step, (left, right) in enumerate(factors):
        product = delayed(m, product_name.format(step), left * right, 1)
        total = delayed(m, sum_name.format(step), product + total, 1)
        slices.append((product, total))
        if step + 1 < len(steps) and sum(steps[step + 1]) > sum(steps[step]):
            low.append(delayed(m, low_name.format(step), extended(total, shift)[:shift], len(steps) - 1 - step))
            total = named(total >> shift, "remaining_product")
    return Cat(*low, total), slices
