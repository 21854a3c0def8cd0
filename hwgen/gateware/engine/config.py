"""The sizes of an engine, which its circuit and its programs share."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from amaranth.lib import data

from hwgen.errors import ConfigError
from hwgen.gateware.engine.axi import MAX_BEATS

#: Channels of a pixel that lie side by side, in memory and in buffers: a word.
LANES = 8
#: Widths of the port to memory, in bytes.
BUS_BYTES = (4, 8, 16)
#: Strides for which neighbouring output pixels read different banks.
STRIDES = (1, 2, 3, 4)
#: Words of a table that is written at run time: one for each value of 8 bits.
TABLE_WORDS = 256
#: What comes to the parameters and tables, a word a cycle. ``index`` counts words from the beginning of the buffer of
#: parameters (map ``8 * b + j`` is word ``j`` of block ``b``) or, with ``tables``, from that of the first table.
PARAMETER_LAYOUT = data.StructLayout({"tables": 1, "index": 12, "data": 64})


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """An array of multiply-accumulate elements, its buffers, and its port to off-chip memory.

    Parameters
    ----------
    maps : int
        Output maps at once, a multiple of 16: two of them share a DSP slice, and sums are drained in blocks of 8.
    pixels : int
        Output pixels at once, and so banks of the map buffer; odd and without a common divisor with 3.
    map_words : int
        Depth of a bank of the map buffer, in words of 8 channels.
    weight_steps : int
        Depth of the weight buffer, in steps: ``maps`` weights each.
    parameter_words : int
        Depth of the buffer of requantisation parameters, in blocks of 8 maps.
    output_words : int
        Depth of the output buffer, in words of 8 channels.
    addend_words : int
        Depth of the buffer of maps that are added to outputs, in words of 8 channels.
    pool_words : int
        Words of 8 channels of a row of a tile after pooling, blocks of all maps together.
    slots : int
        Pixel groups of which each element holds a partial sum.
    sum_bits : int
        Width of a partial sum.
    bus_bytes : int
        Width of the port to memory: 4, 8 or 16 bytes. A beat is half a word, a word, or two.
    outstanding : int
        Bursts of reads, and as many of writes, that may be under way.
    queue : int
        Jobs that may wait in front of each unit.

    Raises
    ------
    ConfigError
        If a size is out of range.
    """

    maps: int = 32
    pixels: int = 13
    map_words: int = 2048
    weight_steps: int = 2048
    parameter_words: int = 32
    output_words: int = 2048
    addend_words: int = 2048
    pool_words: int = 512
    slots: int = 32
    sum_bits: int = 32
    bus_bytes: int = 8
    outstanding: int = 32
    queue: int = 16

    def __post_init__(self) -> None:
        if self.maps < 16 or self.maps % 16:
            raise ConfigError(f"maps must be a multiple of 16, not {self.maps!r}")
        if self.pixels < 5 or any(gcd(self.pixels, stride) > 1 for stride in STRIDES):
            raise ConfigError(f"pixels must be 5 or more, odd and no multiple of 3, not {self.pixels!r}")
        for name, most in (
            ("map_words", 1 << 15),
            ("weight_steps", 1 << 16),
            ("parameter_words", 1 << 8),
            ("output_words", 1 << 16),
            ("addend_words", 1 << 15),
            ("pool_words", 1 << 16),
            ("slots", 1 << 8),
            ("outstanding", 1 << 8),
            ("queue", 1 << 8),
        ):
            size = getattr(self, name)
            if size < 2 or size > most or size & (size - 1):
                raise ConfigError(f"{name} must be a power of two from 2 to {most}, not {size!r}")
        if not 16 <= self.sum_bits <= 32:
            raise ConfigError(f"sum_bits must be from 16 to 32, not {self.sum_bits!r}")
        if self.bus_bytes not in BUS_BYTES:
            raise ConfigError(f"bus_bytes must be 4, 8 or 16, not {self.bus_bytes!r}")

    @property
    def addend_write(self) -> data.StructLayout:
        """A word for the buffer of maps that are added."""
        return data.StructLayout({"word": range(self.addend_words), "data": 8 * LANES})

    @property
    def bus_words(self) -> int:
        """Words that a beat of the port has at most."""
        return max(self.bus_bytes // LANES, 1)

    @property
    def word_beats(self) -> int:
        """Beats that a word takes, if it goes alone."""
        return max(LANES // self.bus_bytes, 1)

    def word_cycles(self, pace: int) -> float:
        """Cycles that the port takes for a word of many, where a beat takes ``pace``."""
        return pace * LANES / self.bus_bytes

    @property
    def burst_words(self) -> int:
        """Words of the longest burst, and between the addresses at which all bursts end."""
        return MAX_BEATS // self.word_beats

    @property
    def blocks(self) -> int:
        """Blocks of 8 maps."""
        return self.maps // LANES

    @property
    def pairs(self) -> int:
        """Pairs of maps, each of which shares a DSP slice a pixel."""
        return self.maps // 2

    @property
    def rotation_stages(self) -> int:
        """Multiplexers of four ways, one behind the other, that rotate as many values as there are pixels."""
        return -(-(self.pixels - 1).bit_length() // 2)

    @property
    def buffer_latency(self) -> int:
        """Cycles from the lanes' addresses to their words: to the banks, block RAM with its output register, back."""
        return 2 * self.rotation_stages + 2
