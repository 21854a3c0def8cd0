"""Registry of the multipliers of a convolution, by their names in plans and options (``macs_per_dsp``).

A new multiplier is a new file with a `Multiplier`, and an entry of `MULTIPLIERS` (docs/howto/add-a-multiplier.md).
"""

from __future__ import annotations

from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier, Operands
from hwgen.gateware.multipliers.packed_dsp import PackedDspSlice

__all__ = ["MULTIPLIERS", "PLAIN", "Demand", "Multiplier", "Operands", "multiplier_of"]

PLAIN = DspSlice()
"""Multiplier with one product per DSP slice, which can compute every convolution."""
MULTIPLIERS: dict[int | str, Multiplier] = {multiplier.name: multiplier for multiplier in (PLAIN, PackedDspSlice())}
"""Multipliers of a convolution by their ``macs_per_dsp`` name, for example 2 for two products per DSP slice.

With ``macs_per_dsp`` of ``auto`` the first of equal multipliers is chosen.
"""


def multiplier_of(name: int | str) -> Multiplier:
    """Return the multiplier of convolutions with the given ``macs_per_dsp`` name, for example 1 or 2.

    Raises
    ------
    ConfigError
        If no multiplier has this name.
    """
    if name not in MULTIPLIERS:
        names = ", ".join(map(str, MULTIPLIERS))
        before, _, last = names.rpartition(", ")
        raise ConfigError(f"macs_per_dsp must be {before} or {last}, not {name!r}")
    return MULTIPLIERS[name]
