"""Models of a device family's memories and their costs: block RAM, UltraRAM, LUT RAM and tables in LUTs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwgen.errors import ConfigError


@dataclass(frozen=True)
class LutRow:
    """Smallest LUT RAM with a write and a read port: ``words`` words of ``bits`` bits take ``luts`` LUTs."""

    words: int
    bits: int
    luts: int

    def luts_of(self, width: int) -> int:
        """Return the number of LUTs for a LUT RAM of this depth with words of ``width`` bits."""
        return self.luts * -(-width // self.bits)


@dataclass(frozen=True, kw_only=True)
class UltraRam:
    """Description of UltraRAM: a large RAM block with one shape and two ports on one clock, initialised to zeros.

    Parameters
    ----------
    bits, words : int
        Width of a word in bits, and depth in words, of one block.
    min_fill : float
        Share of its blocks that a memory fills at least if the planner places it in UltraRAM, from 0 to 1.
    """

    bits: int
    words: int
    min_fill: float

    def blocks(self, width: int, depth: int) -> int:
        """Return the number of UltraRAM blocks for a memory of ``depth`` words of ``width`` bits."""
        return -(-width // self.bits) * self.stacked(depth)

    def stacked(self, depth: int) -> int:
        """Return how many UltraRAM blocks must be stacked in depth for a memory of ``depth`` words."""
        return -(-depth // self.words)

    def suits(self, width: int, depth: int) -> bool:
        """Return whether a memory fills at least the share ``min_fill`` of its UltraRAM blocks."""
        return width * depth >= self.min_fill * self.bits * self.words * self.blocks(width, depth)


RAMS = ("lut", "block", "ultra")
"""Tuple of kinds of RAM for writable memories: LUT RAM, block RAM, and UltraRAM, which not all devices have."""

URAM288 = UltraRam(bits=72, words=4096, min_fill=1 / 32)
"""UltraRAM of UltraScale+ (UG573), with 4,096 words of 72 bits. A memory that fills a 32nd of it needs half a block RAM
instead."""


@dataclass(frozen=True, kw_only=True)
class Memories:
    """Block RAM and LUT RAM of a device family, and the rules for building larger memories from them in synthesis.

    A memory in block RAM consists of blocks of one shape, side by side for width and stacked for depth. Synthesis
    takes the shape that needs the least block RAM.

    Parameters
    ----------
    block_bits : int
        Capacity of a whole block, parity bits included, in bits.
    block_shapes : mapping of float to tuple of (int, int)
        Widths in bits and depths in words of a block with one write and one read port, by the share of a whole block.
    lut_rows : tuple of LutRow
        Available rows of LUT RAM, by increasing depth.
    row_choice_luts : mapping of int to int
        Measured LUTs per bit of the multiplexer that selects one row of LUT RAM, by the number of rows.
    lut_bits : int
        Capacity of one LUT as a table or as LUT RAM, in bits.
    lut_depth : int
        Maximum depth, in words, of a memory that is placed in LUTs by default.
    deepest_lut_ram : int
        Depth in words of the deepest LUT RAM whose read multiplexer is short enough for one clock cycle.
    deepest_lut_rom : int
        Depth in words of the deepest table that the planner moves into LUTs.
    lut_ram_share : float
        Share of a device's LUTs that the planner may use as LUT RAM, from 0 to 1.
    ram_attributes, rom_attributes : mapping of str to mapping of str to str
        Synthesis attributes that place a RAM or a ROM in LUTs (key ``lut``) or in block RAM (key ``block``), or a RAM
        in UltraRAM (key ``ultra``).
    ultra : UltraRam or None
        UltraRAM of the devices that have it; ``None`` if the family has none.
    """

    block_bits: int
    block_shapes: Mapping[float, tuple[tuple[int, int], ...]]
    lut_rows: tuple[LutRow, ...]
    row_choice_luts: Mapping[int, int]
    lut_bits: int
    lut_depth: int
    deepest_lut_ram: int
    deepest_lut_rom: int
    lut_ram_share: float
    ram_attributes: Mapping[str, Mapping[str, str]]
    rom_attributes: Mapping[str, Mapping[str, str]]
    ultra: UltraRam | None = None

    def default_ram(self, depth: int) -> str:
        """Return the kind of RAM for ``depth`` words by default: ``lut`` up to ``lut_depth`` words, else ``block``."""
        return "lut" if depth <= self.lut_depth else "block"

    def ram_style(self, depth: int, where: str | None = None) -> dict[str, str]:
        """Return a dict of the synthesis attributes, by name, that place a RAM in ``lut``, ``block`` or ``ultra`` RAM.

        If ``where`` is ``None``, the depth decides.
        """
        return dict(self.ram_attributes[where or self.default_ram(depth)])

    def rom_style(self, depth: int, where: str | None = None) -> dict[str, str]:
        """Return a dict of synthesis attributes, by name, that place a read-only memory in ``lut`` or ``block`` RAM.

        If ``where`` is ``None``, the depth decides.
        """
        return dict(self.rom_attributes[where or self.default_ram(depth)])

    def check_ram(self, name: str, where: str | None, depth: int) -> None:
        """Raise ConfigError if a writable memory of ``depth`` words can't be in the RAM kind ``where``.

        Parameters
        ----------
        name : str
            Name of the choice in the error.
        where : str or None
            Choice of RAM.
        depth : int
            Number of words.

        Raises
        ------
        ConfigError
            If ``where`` is not ``lut``, ``block``, ``ultra`` or ``None``, if LUT RAM has fewer words, or if one word
            is to be stored in block RAM or UltraRAM.
        """
        if where not in (None, *RAMS):
            raise ConfigError(f"{name} must be 'lut', 'block', 'ultra' or None, not {where!r}")
        if where == "lut" and depth > self.deepest_lut_ram:
            raise ConfigError(
                f"{name} must be 'block' for {depth:,} words, not 'lut': LUT RAM has {self.deepest_lut_ram} at most"
            )
        if where in ("block", "ultra") and depth < 2:
            raise ConfigError(f"{name} must be 'lut' for one word, not {where!r}")

    @property
    def ultra_ram(self) -> UltraRam:
        """`UltraRam` of the device family, which must have it."""
        assert self.ultra is not None, "the device family has no UltraRAM"
        return self.ultra

    @property
    def shapes(self) -> Iterator[tuple[float, int, int]]:
        """Iterator of triples, a block RAM's possible shapes: share of a whole block, width in bits, depth in words."""
        return ((share, *shape) for share, shapes in self.block_shapes.items() for shape in shapes)

    def block_rams(self, width: int, depth: int, *, placed: bool = False) -> float:
        """Return the number of 36-kbit block RAMs for ``depth`` words of ``width`` bits; half a block counts 0.5.

        A memory of at most ``lut_depth`` words takes none, unless it is placed in block RAM; nor does a memory of width
        0.

        Raises
        ------
        ConfigError
            If a size is negative.
        """
        _check(width, depth)
        return self._cheapest_blocks(width, depth)[0] if placed or depth > self.lut_depth else 0.0

    def stacked(self, width: int, depth: int) -> tuple[int, int]:
        """Return a pair for a memory in the shape of fewest block RAMs: blocks stacked in depth, words per block."""
        return self._cheapest_blocks(width, depth)[1:]

    def _cheapest_blocks(self, width: int, depth: int) -> tuple[float, int, int]:
        """Return a triple for a memory in the fewest block RAMs: their number, blocks in depth, words per block."""
        return min(
            (share * -(-width // block_width) * -(-depth // words), -(-depth // words), words)
            for share, block_width, words in self.shapes
        )

    def memory_luts(self, width: int, depth: int, *, rom: bool = False) -> int:
        """Return the LUTs of a memory in its default RAM kind: 0 beyond ``lut_depth`` words, as it is block RAM.

        A ROM takes at most one LUT per bit of a word: equal and simple columns take less.

        Raises
        ------
        ConfigError
            If a size is negative.
        """
        _check(width, depth)
        if depth > self.lut_depth:
            return 0
        if rom:
            return width if depth > 1 else 0
        row = next((row for row in self.lut_rows if depth <= row.words), None)
        return self.deep_memory_luts(width, depth) if row is None else row.luts_of(width)

    def deep_memory_luts(self, width: int, depth: int) -> int:
        """Return the LUTs for a LUT RAM of any depth, stacked from basic LUT RAMs of the depth with fewest LUTs.

        The sum counts the rows, the read multiplexer, and one write enable per row, for the cheapest shape of rows.
        """
        totals = []
        for row in self.lut_rows:
            rows = -(-depth // row.words)
            choice = self.row_choice_luts[rows] if rows in self.row_choice_luts else -(-rows // 4) + 1
            totals.append(rows * row.luts_of(width) + choice * width + rows)
        return min(totals)

    def lut_rom_luts(self, width: int, depth: int) -> int:
        """Return the LUTs for a ROM of any depth with arbitrary contents, built from LUTs.

        A ROM of at most ``lut_bits`` words takes one LUT per bit of a word. Each further address bit doubles them.
        """
        return width << max((depth - 1).bit_length() - (self.lut_bits - 1).bit_length(), 0)


def _check(width: int, depth: int) -> None:
    for name, value in (("width", width), ("depth", depth)):
        if value < 0:
            raise ConfigError(f"{name} must not be negative, not {value!r}")
