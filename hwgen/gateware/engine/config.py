"""Configuration of the programmable engine: sizes that its circuit and its programs share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
from amaranth.lib import data

from hwgen import frozen
from hwgen.devices.memory import URAM288
from hwgen.errors import ConfigError
from hwgen.gateware.component import OnDevice
from hwgen.gateware.engine.axi import MAX_BEATS

#: Number of channels of a pixel, one byte each, in one 8-byte word of memory and of the engine's buffers.
LANES = 8
#: Number of DSP slices in a cascade of the array: the input channels that one cycle adds up.
CHAIN = 4
#: Possible data widths of the engine's AXI memory port, in bytes.
BUS_BYTES = (4, 8, 16, 32, 64)
#: Possible numbers of AXI memory ports that share the bus of an engine.
PORTS = (1, 2, 4)
#: Maximum number of cores of an engine; a core has its own array, buffers and requantisers.
MAX_CORES = 16
#: Rows per bank of the on-chip feature map memory if it is in block RAM: two block RAMs for each 8-byte word of a row.
MAP_MEMORY_ROWS = 1024
#: Dictionary from rows per bank of the on-chip feature map memory to its RAM type, ``block`` or ``ultra``. In UltraRAM,
#: a bank is one UltraRAM for each word of a row.
BANK_RAMS = {MAP_MEMORY_ROWS: "block", URAM288.words: "ultra"}
#: Maximum size of the on-chip feature map memory, in words of 8 bytes.
MAX_KEPT_WORDS = 1 << 17
#: Possible numbers of requantiser lanes: that many sums leave the array per cycle, 8 maps of 1, 2 or 4 pixels.
REQUANTISERS = (8, 16, 32)
#: Strides of a layer that the engine supports: with these, neighbouring output pixels read different memory banks.
STRIDES = (1, 2, 3, 4)
#: Possible numbers of words in the fixed-point unit's register file, and in the lookup memory of each of its lanes.
FIXED_WORDS, LOOKUP_WORDS = (256, 512, 1024, 2048), (256, 512, 1024, 2048)
#: Number of words in a lookup table that jobs write at run time: one for each 8-bit value.
TABLE_WORDS = 256
#: Amaranth layout of a write of a word into the requantisation parameters, or into lookup tables (flag ``tables``).
#: ``index`` counts words from the beginning of the buffer (word ``8 * b + j`` is map ``j`` of block ``b``), or of the
#: first table.
PARAMETER_LAYOUT = data.StructLayout({"tables": 1, "index": 12, "data": 64})


class Variant(IntEnum):
    """Format of an engine's jobs (descriptors), one of three: one core, several cores, one core with map memory."""

    ONE_CORE = 0
    """Job format without optional fields, for engines with one core and no on-chip feature map memory."""
    CORES = 1
    """Job format of engines with several cores: it has fields that divide a layer among the cores."""
    MAP_MEMORY = 2
    """Job format of engines with an on-chip feature map memory: it has flags to load from it and to store to it."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig(OnDevice):
    """Configuration of a programmable engine: multiply-accumulate array, buffers, and port to off-chip memory.

    Parameters
    ----------
    maps : int
        Number of output maps that are computed at once, a multiple of 8: two maps share a DSP slice, and sums are
        drained in blocks of 8.
    pixels : int
        Number of output pixels that are computed at once, and of banks of the map buffer. Odd, and not a multiple of 3.
    map_words : int
        Depth of a bank of the map buffer, in words of 8 channels.
    weight_steps : int
        Depth of the weight buffer, in steps: ``CHAIN * maps`` weights each.
    parameter_words : int
        Depth of the parameter buffer (requantisation), in blocks of 8 maps.
    output_words : int
        Depth of the output buffer, in words of 8 channels.
    addend_words : int
        Depth of the addend buffer, which stores maps that are added to outputs, in words of 8 channels.
    pool_words : int
        Maximum number of words in a row of a tile after pooling, over the blocks of all maps.
    slots : int
        Number of partial sums, one per pixel group, that each element of the array stores.
    sum_bits : int
        Width of a partial sum, in bits.
    bus_bytes : int
        Width of the memory port: 4, 8, 16, 32 or 64 bytes. A beat is half a word, or 1, 2, 4 or 8 words.
    outstanding : int
        Maximum number of outstanding read bursts, and of outstanding write bursts.
    queue : int
        Number of jobs that can wait in the queue of each unit.
    cores : int
        Number of cores, from 1 to 16. Each has an array, buffers and a finish. All cores compute the same steps in the
        same cycles. Several cores have arrays of 8 maps.
    kept_words : int
        Size of the map memory, which keeps maps on the chip, in words of 8 channels: 0, or a multiple of ``kept_rows``
        rows of ``row_words``. Only with one core.
    kept_rows : int
        Depth of a bank of the map memory, in rows, a key of `BANK_RAMS`: 1,024 in block RAM, 4,096 in UltraRAM.
    requantisers : int
        Number of requantiser lanes of a core: 8, 16 or 32. This number of sums is requantised per cycle, for 1, 2
        or 4 neighbouring pixels. Jobs that pool, look up or combine outputs use 8 of them.
    lut_pixels : int
        Number of the ``pixels`` whose products are computed in LUTs. DSP slices compute the others.
    fixed_words : int
        Depth of the register file of each core's fixed unit, which computes layers in fixed point: 0 without this
        unit. Only with arrays of 8 maps.
    lookup_words : int
        Depth of the lookups of each lane of the fixed unit: 0 without lookups, at most 2,048.
    float_sums : bool
        Whether the fixed unit can round sums to 24 significant bits, as float32 does.
    map_ram : str
        Kind of RAM of the map buffer: ``block``, or ``ultra`` on a device with UltraRAM.
    ports : int
        Number of AXI4 masters of the bus wrapper, which share the bus: 1, 2 or 4 of at least 8 bytes.

    Raises
    ------
    ConfigError
        If a size is out of range.
    """

    maps: int = 8
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
    cores: int = field(default=1, metadata=frozen.added())
    kept_words: int = field(default=0, metadata=frozen.added())
    requantisers: int = field(default=LANES, metadata=frozen.added())
    lut_pixels: int = field(default=0, metadata=frozen.added())
    kept_rows: int = field(default=MAP_MEMORY_ROWS, metadata=frozen.added())
    fixed_words: int = field(default=0, metadata=frozen.added())
    lookup_words: int = field(default=0, metadata=frozen.added())
    float_sums: bool = field(default=False, metadata=frozen.added())
    map_ram: str = field(default="block", metadata=frozen.added())
    ports: int = field(default=1, metadata=frozen.added())

    def __post_init__(self) -> None:
        if self.maps < LANES or self.maps % LANES:
            raise ConfigError(f"maps must be a multiple of {LANES}, not {self.maps!r}")
        if self.pixels < 5 or any(gcd(self.pixels, stride) > 1 for stride in STRIDES):
            raise ConfigError(f"pixels must be 5 or more, odd and no multiple of 3, not {self.pixels!r}")
        for name, maximum in (
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
            if size < 2 or size > maximum or size & (size - 1):
                raise ConfigError(f"{name} must be a power of two from 2 to {maximum}, not {size!r}")
        if not 16 <= self.sum_bits <= 32:
            raise ConfigError(f"sum_bits must be from 16 to 32, not {self.sum_bits!r}")
        if type(self.cores) is not int or not 1 <= self.cores <= MAX_CORES:
            raise ConfigError(f"cores must be from 1 to {MAX_CORES}, not {self.cores!r}")
        if type(self.requantisers) is not int or self.requantisers not in REQUANTISERS:
            *counts, most = REQUANTISERS
            raise ConfigError(
                f"requantisers must be {', '.join(map(str, counts))} or {most}, not {self.requantisers!r}"
            )
        if self.cores > 1 and self.maps != LANES:
            raise ConfigError(f"maps must be {LANES} with several cores, not {self.maps!r}")
        if type(self.lut_pixels) is not int or not 0 <= self.lut_pixels <= self.pixels:
            raise ConfigError(f"lut_pixels must be from 0 to {self.pixels}, all pixels, not {self.lut_pixels!r}")
        rams = ("block", "ultra") if self.device.memories.ultra else ("block",)
        if self.map_ram not in rams:
            raise ConfigError(f"map_ram must be {' or '.join(rams)}, not {self.map_ram!r}")
        self._check_bus()
        self._check_fixed_unit()
        if self.kept_rows not in BANK_RAMS:
            raise ConfigError(f"kept_rows must be {' or '.join(map(str, BANK_RAMS))}, not {self.kept_rows!r}")
        unit = self.bank_words
        if type(self.kept_words) is not int or not 0 <= self.kept_words <= MAX_KEPT_WORDS or self.kept_words % unit:
            raise ConfigError(
                f"kept_words must be a multiple of {unit} from 0 to {MAX_KEPT_WORDS}, not {self.kept_words!r}"
            )
        if self.kept_words and self.cores > 1:
            raise ConfigError(f"kept_words must be 0 with several cores, not {self.kept_words!r}")

    def _check_bus(self) -> None:
        if self.bus_bytes not in BUS_BYTES:
            *widths, widest = BUS_BYTES
            raise ConfigError(f"bus_bytes must be {', '.join(map(str, widths))} or {widest}, not {self.bus_bytes!r}")
        if type(self.ports) is not int or self.ports not in PORTS or (self.ports > 1 and self.port_bytes < LANES):
            raise ConfigError(f"ports must be 1, 2 or 4 of at least {LANES} bytes each, not {self.ports!r}")
        # All words of a beat are written in one cycle, into different banks of at least two words.
        for name, minimum in (
            ("pixels", self.bus_words),
            ("weight_steps", 2 * self.weight_copies),
            ("output_words", 2 * self.output_banks),
            ("addend_words", 2 * self.bus_words),
        ):
            if getattr(self, name) < minimum:
                sizes = f"bus_bytes {self.bus_bytes}" + f" and requantisers {self.requantisers}" * (self.beat_words > 1)
                raise ConfigError(f"{name} must be at least {minimum} with {sizes}, not {getattr(self, name)}")

    def _check_fixed_unit(self) -> None:
        for name, depths in (("fixed_words", (0, *FIXED_WORDS)), ("lookup_words", (0, *LOOKUP_WORDS))):
            if type(getattr(self, name)) is not int or getattr(self, name) not in depths:
                *first, last = map(str, depths)
                raise ConfigError(f"{name} must be {', '.join(first)} or {last}, not {getattr(self, name)!r}")
        if self.lookup_words and not self.fixed_words:
            raise ConfigError(f"lookup_words must be 0 without fixed_words, not {self.lookup_words!r}")
        if type(self.float_sums) is not bool or (self.float_sums and not self.fixed_words):
            raise ConfigError(f"float_sums must be False, or True with fixed_words, not {self.float_sums!r}")
        if self.fixed_words and (self.maps != LANES or self.sum_bits != 32):
            raise ConfigError(
                f"maps must be {LANES} and sum_bits 32 with fixed_words, not {self.maps!r} and {self.sum_bits!r}"
            )

    @property
    def has_fixed_unit(self) -> bool:
        """Whether each core has a unit that computes layers in fixed point (`FixedUnit`)."""
        return self.fixed_words > 0

    @property
    def has_cores(self) -> bool:
        """Whether the engine has several compute cores; its jobs then have fields that divide a layer among them."""
        return self.cores > 1

    @property
    def has_map_memory(self) -> bool:
        """Whether the engine has an on-chip feature map memory; its jobs then have flags to load and store there."""
        return self.kept_words > 0

    @property
    def kept_ram(self) -> str:
        """Type of RAM that implements the on-chip feature map memory: ``block`` or ``ultra``."""
        return BANK_RAMS[self.kept_rows]

    @property
    def bank_words(self) -> int:
        """Number of 8-byte words of one bank of the on-chip feature map memory."""
        return self.kept_rows * self.row_words

    @property
    def row_words(self) -> int:
        """Number of 8-byte words in a row of the on-chip map memory: two bus beats, at most 8, and at most ``pixels``.

        It is a power of two.
        """
        return min(2 * self.bus_words, max(BUS_BYTES) // LANES, 1 << (self.pixels.bit_length() - 1))

    @property
    def row_engine(self) -> EngineConfig:
        """`EngineConfig` with a bus as wide as a row of the on-chip map memory, and without that memory.

        It has no map memory. If this configuration has none, both are equal.
        """
        if not self.has_map_memory:
            return self
        return replace(self, bus_bytes=LANES * self.row_words, kept_words=0, kept_rows=MAP_MEMORY_ROWS)

    @property
    def variant(self) -> Variant:
        """`Variant` of this engine's jobs, their format: for one core, several cores, or one core with a map memory."""
        if self.has_cores:
            return Variant.CORES
        return Variant.MAP_MEMORY if self.has_map_memory else Variant.ONE_CORE

    @property
    def port_bytes(self) -> int:
        """Data width of each AXI memory port of the engine's bus wrapper, in bytes."""
        return self.bus_bytes // self.ports

    @property
    def bus_words(self) -> int:
        """Maximum number of 8-byte words in one beat of the AXI memory port, at least 1."""
        return max(self.bus_bytes // LANES, 1)

    @property
    def beat_words(self) -> int:
        """Maximum number of pixels per cycle that leave the array, each as a word of sums of 8 output maps."""
        return self.requantisers // LANES

    @property
    def output_banks(self) -> int:
        """Number of banks of an output buffer, which allow all words of a beat to be written or read in one cycle."""
        return max(self.bus_words, self.beat_words)

    @property
    def output_bank_bits(self) -> int:
        """Number of low address bits that select a bank of an output buffer."""
        return (self.output_banks - 1).bit_length()

    @property
    def lane_bits(self) -> int:
        """Number of address bits that select an 8-byte word within a memory port beat: 0 if beats have one or less."""
        return (self.bus_words - 1).bit_length()

    @property
    def word_beats(self) -> int:
        """Number of memory port beats that transfer one 8-byte word: 2 on a 4-byte bus, otherwise 1."""
        return max(LANES // self.bus_bytes, 1)

    def port_cycles(self, pace: Fraction | int, read: Any, written: Any) -> Any:
        """Return the number of cycles that the port takes to read and write numbers of 8-byte words in long bursts.

        ``pace`` is the number of cycles per beat. Reads, and writes, take at least a cycle per beat.
        """
        return LANES / self.bus_bytes * np.maximum(np.maximum(read, written), float(pace) * (read + written))

    @property
    def burst_words(self) -> int:
        """Maximum number of 8-byte words in an AXI burst; bursts end at multiples of this size."""
        return MAX_BEATS // self.word_beats

    @property
    def blocks(self) -> int:
        """Number of blocks of 8 output maps that the array computes at once: ``maps / 8``."""
        return self.maps // LANES

    @property
    def weight_words(self) -> int:
        """Number of 8-byte words of weights that the array reads per cycle: four weights per output map."""
        return self.maps * CHAIN // LANES

    @property
    def weight_copies(self) -> int:
        """Number of array cycles whose weights all weight banks store at one address, to write a bus beat at once.

        It is the smallest power of two whose weights have at least as many words as a beat.
        """
        return 1 << (-(-self.bus_words // self.weight_words) - 1).bit_length()

    @property
    def weight_banks(self) -> int:
        """Number of banks of the weight buffer, each 8 bytes wide."""
        return self.weight_words * self.weight_copies

    @property
    def weight_alignment(self) -> int:
        """Alignment of weights in memory, a number of 8-byte words: gcd of `weight_words` and `bus_words`.

        A bank's words therefore come from few lanes of the bus.
        """
        return gcd(self.weight_words, self.bus_words)

    @property
    def pairs(self) -> int:
        """Number of pairs of output maps in the array; a pair shares one cascade of DSP slices per pixel."""
        return self.maps // 2

    @property
    def slice_pixels(self) -> int:
        """Number of output pixels, of those computed at once, whose products use DSP slices instead of LUTs."""
        return self.pixels - self.lut_pixels

    @property
    def multipliers(self) -> int:
        """Number of multiply-accumulates per cycle, over all cores: output maps times pixels times input channels."""
        return self.cores * self.maps * self.pixels * CHAIN

    @property
    def rotation_stages(self) -> int:
        """Number of stages of four-way multiplexers in the network that rotates ``pixels`` values among banks."""
        return -(-(self.pixels - 1).bit_length() // 2)

    @property
    def buffer_latency(self) -> int:
        """Read latency of the map buffer in cycles: address rotation, registered block RAM, rotation of the words."""
        return 2 * self.rotation_stages + 2


def numbered(config: EngineConfig, name: str) -> list[str]:
    """Return a list of a unit's instance or port names, one per core: ``name_0``, ``name_1`` ..; or ``name``."""
    return [f"{name}_{core}" for core in range(config.cores)] if config.has_cores else [name]
