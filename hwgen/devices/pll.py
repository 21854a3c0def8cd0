"""Phase-locked loop (PLL) of a device family: which clocks it makes of an oscillator, and by which dividers."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, kw_only=True)
class Pll:
    """Description of a PLL whose output is fed back.

    Its clock is that of the oscillator, times the feedback's divider, over the input's.

    Parameters
    ----------
    top : str
        File in hwgen/emit/ that is the template of a top with the PLL and a serial link.
    vco_mhz : tuple of int
        Lowest and highest frequency of the PLL's own oscillator (VCO), in MHz.
    min_detector_mhz : int
        Lowest frequency of the phase detector, in MHz. The detector works at the oscillator's frequency over the
        input's divider.
    max_divider, max_output_divider : int
        Largest dividers of the input and the feedback, and of the output.
    """

    top: str
    vco_mhz: tuple[int, int]
    min_detector_mhz: int
    max_divider: int
    max_output_divider: int

    def dividers(self, source_mhz: float, clock_mhz: float) -> tuple[int, int, int] | None:
        """Return the dividers of input, feedback and output for a clock; ``None`` if none make it.

        Parameters
        ----------
        source_mhz, clock_mhz : float
            Frequencies of the oscillator and of the wanted clock, in MHz.
        """
        source, wanted = round(source_mhz * 1e6), round(clock_mhz * 1e6)
        common = gcd(source, wanted)
        feedback, divider = wanted // common, source // common
        low, high = self.vco_mhz
        output = next((count for count in range(1, self.max_output_divider) if low <= count * clock_mhz <= high), 0)
        is_possible = source / divider >= self.min_detector_mhz * 1e6 and max(divider, feedback) <= self.max_divider
        return (divider, feedback, output) if output and is_possible else None

    def refusal(self, source_mhz: float) -> str:
        """Return the reason why the PLL can't make a clock of an oscillator with ``source_mhz``."""
        low, high = self.vco_mhz
        return (
            f"the PLL can't make it from {source_mhz:g} MHz with a phase detector of at least {self.min_detector_mhz} "
            f"MHz and an oscillator of {low} to {high} MHz"
        )
