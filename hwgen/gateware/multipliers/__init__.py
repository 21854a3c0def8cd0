"""Registries of the multipliers of a convolution: in DSP slices, by their names in plans and options, and in LUTs.

A new multiplier is a new file with a `Multiplier`, and an entry of `MULTIPLIERS` or `LUT_MULTIPLIERS`
(docs/howto/add-a-multiplier.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth import Shape

from hwgen.devices import MultiplierSlice
from hwgen.errors import ConfigError
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.constant import ConstantMultiplier
from hwgen.gateware.multipliers.dsp import DspSlice
from hwgen.gateware.multipliers.lut_multiplier import DotProducts, LutMultiplier
from hwgen.gateware.multipliers.multiplier import Demand, Multiplier, Operands
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier
from hwgen.gateware.multipliers.packed_dsp import PackedDspSlice
from hwgen.gateware.multipliers.pixel_pair import PixelPair
from hwgen.gateware.multipliers.quad_dsp import QuadDspSlice
from hwgen.gateware.multipliers.selected import SelectedMultiplier
from hwgen.gateware.multipliers.wide_dsp import FullPair, FullPixelPair, WidePair, WidePixelPair, WideQuad

__all__ = [
    "LUT_MULTIPLIERS",
    "MULTIPLIERS",
    "PLAIN",
    "Demand",
    "DotProducts",
    "LutMultiplier",
    "Multiplier",
    "Operands",
    "lut_multiplier_of",
    "multiplier_for",
    "multiplier_of",
    "operand_kind",
]

PLAIN = DspSlice()
"""Multiplier with one product per DSP slice, which can compute every convolution."""
MULTIPLIERS: dict[int | str, Multiplier] = {
    multiplier.name: multiplier
    for multiplier in (
        PLAIN,
        WidePair(),
        FullPair(),
        PackedDspSlice(),
        WidePixelPair(),
        FullPixelPair(),
        PixelPair(),
        WideQuad(),
        QuadDspSlice(),
    )
}
"""Dictionary from ``macs_per_dsp`` name (1, 2, ``2-wide``, ..) to the `Multiplier` in DSP slices that it selects.

With ``macs_per_dsp`` of ``auto`` the first of equal multipliers is chosen: multipliers for wide slices come first.
"""
LUT_MULTIPLIERS: tuple[LutMultiplier, ...] = (
    ConstantMultiplier(),
    SelectedMultiplier(),
    BinaryMultiplier(),
    NarrowMultiplier(),
    BoothMultiplier(),
)
"""Tuple of instances of all multipliers in LUTs; the first that can compute a layer's products is used."""


def multiplier_of(name: int | str) -> Multiplier:
    """Return the `Multiplier` of convolutions with the given ``macs_per_dsp`` name, for example 1 or 2.

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


def multiplier_for(name: int | str, multiplier_slice: MultiplierSlice) -> Multiplier:
    """Return the `Multiplier` named by a plan's ``macs_per_dsp``, or its variant for wide DSP slices if they are wide.

    A variant is a subclass. It computes the same products, and chains can be longer.

    Raises
    ------
    ConfigError
        If no multiplier has this name.
    """
    named = multiplier_of(name)
    variants = (multiplier for multiplier in MULTIPLIERS.values() if isinstance(multiplier, type(named)))
    return next((variant for variant in variants if variant.port_bits <= multiplier_slice.wide_bits), named)


def operand_kind(kinds: Sequence[Multiplier], activation: Shape) -> Multiplier:
    """Return the kind of `Multiplier` whose activation format a layer uses: the first with an offset, else the first.

    All kinds of a layer's multipliers read the same operands. Without an offset, the first kind decides.
    """
    return next((multiplier for multiplier in kinds if multiplier.offset(activation)), kinds[0])


def lut_multiplier_of(operands: Operands, constant_steps: int | None) -> LutMultiplier:
    """Return the first `LutMultiplier` in `LUT_MULTIPLIERS` that can compute products of the given operands.

    Parameters
    ----------
    operands : Operands
        Shapes and ranges of activations, before an offset is subtracted, and of weights.
    constant_steps : int or None
        Number of constants that each weight can be, one for each step of the convolution; ``None`` if weights are
        loaded at run time.
    """
    return next(multiplier for multiplier in LUT_MULTIPLIERS if multiplier.computes(operands, constant_steps))
