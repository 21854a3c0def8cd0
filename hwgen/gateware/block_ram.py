"""What a memory takes of a 7-series device, by its shape: block RAM or LUTs.

A RAMB36E1 holds 36,864 bits and a RAMB18E1 half of that, in a few fixed aspect ratios (Xilinx UG473, tables 1-7
and 1-8, simple dual port: one port writes, the other reads). A memory is made of one kind of block in one ratio,
side by side for width and stacked for depth, whichever takes least. That is how Yosys 0.66 maps the memories of
this package too, RAM and ROM (`test_memory.py`), provided it is told to use blocks: left alone it prefers
LUTs for small memories deeper than 64, such as 8 bits by 256 words.
"""

from __future__ import annotations

from hwgen.errors import ConfigError
from hwgen.gateware.lookup import LUT_DEPTH

#: Bits of a RAMB36E1.
BRAM36_BITS = 36_864

#: Width and depth of a block RAM, by the share of a RAMB36 that it is. Parity bits are used where there are any.
RATIOS = {
    1.0: ((72, 512), (36, 1024), (18, 2048), (9, 4096), (4, 8192), (2, 16384), (1, 32768)),
    0.5: ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
}


def block_rams(width: int, depth: int) -> float:
    """Block RAM of a memory of ``depth`` words of ``width`` bits, in RAMB36 (a RAMB18 is 0.5).

    0 if it is held in LUTs (at most `LUT_DEPTH` words) or has no bits.

    Raises
    ------
    ConfigError
        If a size is negative.
    """
    _check(width, depth)
    return 0.0 if depth <= LUT_DEPTH else _least(width, depth)[0]


def stacked(width: int, depth: int) -> tuple[int, int]:
    """Of how many block RAMs, one above the other, synthesis makes a memory, and the words of each."""
    return _least(width, depth)[1:]


def _least(width: int, depth: int) -> tuple[float, int, int]:
    """The ratio that takes least: block RAM in all, block RAMs one above the other, words of each."""
    return min(
        (share * -(-width // block_width) * -(-depth // words), -(-depth // words), words)
        for share, ratios in RATIOS.items()
        for block_width, words in ratios
    )


def memory_luts(width: int, depth: int, *, rom: bool = False) -> int:
    """LUTs that hold a memory of at most `LUT_DEPTH` words; 0 if it is held in block RAM if nobody says otherwise.

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


#: LUTs a bit that choose among so many rows of LUT RAM, as measured.
_ROW_CHOICE = {1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3}


def deep_memory_luts(width: int, depth: int) -> int:
    """LUTs of a RAM of more than `LUT_DEPTH` words that is put into LUT RAM: rows of 32 or 64 words, whichever take
    less, what chooses the row that is read, and a write enable for each."""
    takes = []
    for words, bits in ((32, 6), (64, 3)):
        rows = -(-depth // words)
        choice = _ROW_CHOICE[rows] if rows in _ROW_CHOICE else -(-rows // 4) + 1
        takes.append(rows * 4 * -(-width // bits) + choice * width + rows)
    return min(takes)


def lut_rom_luts(width: int, depth: int) -> int:
    """LUTs of a ROM of any contents that is put into LUTs: one for a bit of 64 words, twice as many for each address
    bit more."""
    return width << max((depth - 1).bit_length() - 6, 0)


def _check(width: int, depth: int) -> None:
    for name, value in (("width", width), ("depth", depth)):
        if value < 0:
            raise ConfigError(f"{name} must not be negative, not {value!r}")
