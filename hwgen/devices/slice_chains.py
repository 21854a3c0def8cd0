"""Chains of multiply-add slices that a device family instantiates, because synthesis does not pack their registers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SliceOperand:
    """Operand of a slice's multiplier.

    Parameters
    ----------
    bits : int
        Width of the operand, in bits.
    signed : bool
        Whether the operand is signed.
    registers : int
        Number of the slice's registers between the operand's port and the multiplier.
    """

    bits: int
    signed: bool
    registers: int

    @property
    def signed_bits(self) -> int:
        """Width of the operand as a signed number, in bits."""
        return self.bits + (not self.signed)


@dataclass(frozen=True, kw_only=True)
class SliceTerm:
    """Operands of one slice of a chain.

    Parameters
    ----------
    activation, weight : SliceOperand
        Operands of the multiplier.
    """

    activation: SliceOperand
    weight: SliceOperand

    @property
    def operand_bits(self) -> tuple[int, int]:
        """Widths of the narrower and of the wider operand as signed numbers, in bits."""
        narrow, wide = sorted((self.activation.signed_bits, self.weight.signed_bits))
        return narrow, wide


class SliceChains(ABC):
    """Base class of the chains of slices that a device family instantiates in its own cells."""

    @property
    @abstractmethod
    def accumulates(self) -> bool:
        """Whether a slice can add a product, the sum of the slice before, and its own sum."""

    @abstractmethod
    def fits(self, term: SliceTerm, sum_bits: int) -> bool:
        """Return whether one slice can multiply operands of these widths, and add numbers of ``sum_bits`` bits."""

    @abstractmethod
    def statements(self, terms: Sequence[SliceTerm], sum_bits: int, *, accumulates: bool) -> list[str]:
        """Return the Verilog statements of a module that is a chain of slices.

        The module has the inputs ``clk``, and ``activation_0``, ``weight_0`` and so on for each slice. Its output
        ``sum`` is the sum of the last slice. Each slice has a register behind its multiplier and a register behind its
        adder. Registers begin with 0, and have no reset.

        Parameters
        ----------
        terms : sequence of SliceTerm
            Operands of each slice.
        sum_bits : int
            Width of ``sum``, in bits.
        accumulates : bool
            Whether the last slice also adds its own sum. The module then has the input ``is_first``, with a register in
            the slice: a sum that is added to while the register is 1 counts as 0.
        """
