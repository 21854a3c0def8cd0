"""LUT costs of multiplexers, shift registers and small tables of a device family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """Rules by which costs that were counted in the default family's LUTs become costs in another family's LUTs.

    Parameters
    ----------
    logic_luts : float
        Measured number of LUTs for each LUT of the default family that is logic.
    ram_luts : float
        Measured number of LUTs for each column of 16 bits of LUT RAM, read multiplexers included.
    """

    logic_luts: float
    ram_luts: float


@dataclass(frozen=True, kw_only=True)
class Logic:
    """LUT costs of a device family's multiplexers, shift registers, small tables and bank rotations.

    Parameters
    ----------
    lut_inputs : int
        Number of inputs of a LUT.
    mux_ways : int
        Number of one-bit inputs among which one LUT selects.
    shift_register_cycles : int
        Longest delay of one bit that one LUT holds as a shift register, in clock cycles.
    shortest_shift_register : int
        Shortest delay that synthesis makes a shift register of, in clock cycles. Shorter delays are flip-flops.
    few_words, few_words_luts : int, float
        A table of at most ``few_words`` words takes ``few_words_luts`` LUTs per bit, because set and reset of its
        output register do the rest.
    rotation_luts : mapping of int to (float, float)
        Measured LUTs per bit of a multiplexer that rotates column banks, without and with padding, by the number of
        banks.
    more_rotation_luts : float
        LUTs per bit and bank of a multiplexer that rotates more banks than ``rotation_luts`` lists.
    conversion : Conversion or None
        Rules by which costs in the default family's LUTs become costs in this family's; ``None`` if they are equal.
    """

    lut_inputs: int
    mux_ways: int
    shift_register_cycles: int
    shortest_shift_register: int
    few_words: int
    few_words_luts: float
    rotation_luts: Mapping[int, tuple[float, float]]
    more_rotation_luts: float
    conversion: Conversion | None = None

    def mux_luts(self, inputs: int) -> int:
        """Return the number of LUTs per output bit of a multiplexer with ``inputs`` inputs."""
        return 0 if inputs < 2 else -(-inputs // self.mux_ways)

    def counted_luts(self, luts: float, four_input_luts: float) -> float:
        """Return a circuit's number of LUTs: ``luts`` of the default family, or ``four_input_luts`` of 4 inputs."""
        return four_input_luts if self.lut_inputs == 4 else luts

    def rotation(self, banks: int, *, padded: bool) -> float:
        """Return the number of LUTs per bit of a multiplexer that rotates the words of ``banks`` column banks.

        With ``padded`` the multiplexer also inserts padding.
        """
        if banks in self.rotation_luts:
            return self.rotation_luts[banks][padded]
        return self.more_rotation_luts * banks
