"""Adders that a device family builds from its own cells, because synthesis does not map them to the fewest LUTs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class Adders(ABC):
    """Base class of a device family's adders: each method returns the Verilog statements of a module."""

    @abstractmethod
    def ternary(self, bits: int, negative: Sequence[bool]) -> list[str]:
        """Return the statements of an adder that adds or subtracts three numbers.

        The module has the inputs ``addend_0`` to ``addend_2`` and the output ``sum``, all of the same width.

        Parameters
        ----------
        bits : int
            Width of the inputs and of the sum, in bits.
        negative : sequence of bool
            Whether each input is subtracted; at most two are.
        """

    @abstractmethod
    def booth_row(self, bits: int, multiplicand_bits: int) -> list[str]:
        """Return the statements of an adder that adds a multiple of a number to another number.

        The module has the input ``digit`` of 3 bits, the signed inputs ``multiplicand`` and ``addend``, and the output
        ``sum``. Digit and multiple are those of radix-4 Booth encoding, from -2 to 2.

        Parameters
        ----------
        bits : int
            Width of the addend and of the sum, in bits.
        multiplicand_bits : int
            Width of the multiplicand, in bits.
        """
