"""What a memory takes of a 7-series device, by its shape: block RAM or LUTs.

A RAMB36E1 holds 36,864 bits and a RAMB18E1 half of that, in a few fixed aspect ratios (Xilinx UG473, tables 1-7
and 1-8, simple dual port: one port writes, the other reads). A memory is made of one kind of block in one ratio,
side by side for width and stacked for depth, whichever takes least. That is how Yosys 0.66 maps the memories of
this package too, RAM and ROM (rtl_tests/test_memory.py), provided it is told to use blocks: left alone it prefers
LUTs for small memories deeper than 64, such as 8 bits by 256 words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import LUT_DEPTH
from hwgen.gateware.pieces import RATIOS

#: Bits of a RAMB36E1.
BRAM36_BITS = 36_864


def block_rams(width: int, depth: int) -> float:
    """Block RAM of a memory of ``depth`` words of ``width`` bits, in RAMB36 (a RAMB18 is 0.5).

    0 if it is held in LUTs (at most `LUT_DEPTH` words) or has no bits.

    Raises
    ------
    ConfigError
        If a size is negative.
    """
    _check(width, depth)
    return float(_block_rams(width, depth))


def weight_block_rams(products: Any, lane_bits: Any, chain: int, depth: Any) -> Any:
    """Block RAM of a convolution's weight memories, one for each position in its chains; arrays of choices at once.

    Parameters
    ----------
    products : int or array
        Of one output channel in a step, ``Tk * Tn``.
    lane_bits : int or array
        Weights of all output channels for one product, ``Tm * weight bits``.
    chain : int
        Slices in a chain at most.
    depth : int or array
        Words: steps of one window.
    """
    chains = -(-products // chain)
    positions = -(-products // chains)
    first = products - (positions - 1) * chains
    return _block_rams(lane_bits * first, depth) + (positions - 1) * _block_rams(lane_bits * chains, depth)


def _block_rams(width: Any, depth: Any) -> Any:
    takes = [
        share * -(-width // block_width) * -(-depth // block_depth)
        for share, ratios in RATIOS.items()
        for block_width, block_depth in ratios
    ]
    return np.where(depth <= LUT_DEPTH, 0.0, np.minimum.reduce(takes))


def memory_luts(width: int, depth: int, *, rom: bool = False) -> int:
    """LUTs that hold a memory of at most `LUT_DEPTH` words; 0 if it is held in block RAM.

    A RAM with a read and a write port has 6 bits of 32 words, or 3 bits of 64, in four LUTs (RAM32M, RAM64M:
    UG474, table 2-3). A ROM has one bit in one LUT, at most: equal and simple columns take less.

    Raises
    ------
    ConfigError
        If a size is negative.
    """
    _check(width, depth)
    if depth > LUT_DEPTH:
        return 0
    if rom:
        return width if depth > 1 else 0
    return 4 * -(-width // (6 if depth <= 32 else 3))


def _check(width: int, depth: int) -> None:
    for name, value in (("width", width), ("depth", depth)):
        if value < 0:
            raise ConfigError(f"{name} must not be negative, not {value!r}")
