"""Configuration of the programmable engine: sizes that its circuit and its programs share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from math import gcd

from amaranth.lib import data

from hwgen import frozen
from hwgen.devices.memory import URAM288
from hwgen.errors import ConfigError
from hwgen.gateware.component import OnDevice
from hwgen.gateware.engine.axi import MAX_BEATS

#: Number of channels of a pixel in one word, in memory and in buffers.
LANES = 8
#: Number of input channels that one step adds: the slices in a cascade.
CHAIN = 4
#: Possible widths of the memory port, in bytes.
BUS_BYTES = (4, 8, 16, 32, 64)
#: Maximum number of cores of an engine.
MAX_CORES = 16
#: Depth of a bank of the map memory in block RAM, in rows: two block RAMs for each word of a row.
MAP_MEMORY_ROWS = 1024
#: Possible depths of a bank, in rows, and the RAM of each. In UltraRAM a bank is one UltraRAM for each word of a row.
BANK_RAMS = {MAP_MEMORY_ROWS: "block", URAM288.words: "ultra"}
#: Maximum size of the map memory, in words of 8 channels.
MAX_KEPT_WORDS = 1 << 17
#: Possible numbers of requantiser lanes: 1, 2 or 4 words of 8 maps leave the array per cycle.
REQUANTISERS = (8, 16, 32)
#: Possible strides of a layer: with these, neighbouring output pixels read different banks.
STRIDES = (1, 2, 3, 4)
#: Possible depths of the register file and of each lane's lookups in the unit for layers in fixed point.
FIXED_WORDS, LOOKUP_WORDS = (256, 512, 1024, 2048), (256, 512, 1024, 2048)
#: Number of words in a table that is written at run time: one for each 8-bit value.
TABLE_WORDS = 256
#: Layout of a write into the parameter buffer or, with ``tables``, into the tables. ``index`` counts words from the
#: beginning of the buffer (map ``8 * b + j`` is word ``j`` of block ``b``), or of the first table.
PARAMETER_LAYOUT = data.StructLayout({"tables": 1, "index": 12, "data": 64})


class Variant(IntEnum):
    """Variant of an engine's jobs, by which fields they have."""

    ONE_CORE = 0
    CORES = 1
    """Jobs that divide a layer among several cores."""
    MAP_MEMORY = 2
    """Jobs that load maps from the map memory and store maps there."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig(OnDevice):
    """Configuration of a programmable engine: multiply-accumulate array, buffers, and port to off-chip memory.

    Parameters
    ----------
    maps : int
        Number of output maps that are computed at once, a multiple of 8: two maps share a DSP slice, and sums are
        drained in blocks of 8.
    pixels : int
        Number of output pixels that are computed at once, and of banks of the map buffer. Odd, and no multiple of 3.
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
        Number of pixel groups for which each element stores a partial sum.
    sum_bits : int
        Width of a partial sum, in bits.
    bus_bytes : int
        Width of the memory port: 4, 8, 16, 32 or 64 bytes. A beat is half a word, or 1, 2, 4 or 8 words.
    outstanding : int
        Maximum number of outstanding read bursts, and of outstanding write bursts.
    queue : int
        Number of jobs that can wait in front of each unit.
    cores : int
        Number of cores, from 1 to 16. Each has an array, buffers and a finish. All cores compute the same steps in the
        same cycles. Several cores have arrays of 8 maps.
    kept_words : int
        Size of the map memory, which keeps maps on the chip, in words of 8 channels: 0, or a multiple of ``kept_rows``
        rows of ``row_words``. Only with one core.
    kept_rows : int
        Depth of a bank of the map memory, in rows, a key of `BANK_RAMS`: 1,024 in block RAM, 4,096 in UltraRAM.
    requantisers : int
        Number of requantiser lanes of a core: 8, 16 or 32. So many sums are requantised per cycle, of 1, 2 or 4
        neighbouring pixels. Jobs that pool, look up or combine outputs use 8 of them.
    lut_pixels : int
        Number of the ``pixels`` whose products are computed in LUTs. DSP slices compute the others.
    fixed_words : int
        Depth of the register file of each core's fixed unit, which computes layers in fixed point: 0 without this
        unit. Only with arrays of 8 maps.
    lookup_words : int
        Depth of the lookups of each lane of the fixed unit: 0 without lookups, at most 2,048.

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
        if self.fixed_words and (self.maps != LANES or self.sum_bits != 32):
            raise ConfigError(
                f"maps must be {LANES} and sum_bits 32 with fixed_words, not {self.maps!r} and {self.sum_bits!r}"
            )

    @property
    def has_fixed_unit(self) -> bool:
        """Whether each core has a fixed unit, which computes layers in fixed point."""
        return self.fixed_words > 0

    @property
    def has_cores(self) -> bool:
        """Whether the engine has several cores, and jobs the fields that divide a layer among them."""
        return self.cores > 1

    @property
    def has_map_memory(self) -> bool:
        """Whether the engine has a map memory, and jobs the fields that move maps to and from it."""
        return self.kept_words > 0

    @property
    def kept_in(self) -> str:
        """RAM that stores the map memory: ``block`` or ``ultra``."""
        return BANK_RAMS[self.kept_rows]

    @property
    def bank_words(self) -> int:
        """Size of one bank of the map memory, in words of 8 channels."""
        return self.kept_rows * self.row_words

    @property
    def row_words(self) -> int:
        """Number of words in a row of the map memory: two beats of the port, if a cycle can write as many."""
        return min(2 * self.bus_words, max(BUS_BYTES) // LANES, 1 << (self.pixels.bit_length() - 1))

    @property
    def rows(self) -> EngineConfig:
        """Configuration of whatever moves rows of the map memory: that of a port as wide as a row.

        It is this configuration without a map memory.
        """
        if not self.has_map_memory:
            return self
        return replace(self, bus_bytes=LANES * self.row_words, kept_words=0, kept_rows=MAP_MEMORY_ROWS)

    @property
    def variant(self) -> Variant:
        """Variant of the engine's jobs."""
        if self.has_cores:
            return Variant.CORES
        return Variant.MAP_MEMORY if self.has_map_memory else Variant.ONE_CORE

    @property
    def bus_words(self) -> int:
        """Maximum number of 8-byte words in one beat of the memory port."""
        return max(self.bus_bytes // LANES, 1)

    @property
    def beat_words(self) -> int:
        """Maximum number of words, 8 sums of a pixel each, that leave the array per cycle."""
        return self.requantisers // LANES

    @property
    def output_banks(self) -> int:
        """Number of banks of an output buffer: its words of a beat are written, or read, in one cycle."""
        return max(self.bus_words, self.beat_words)

    @property
    def output_bank_bits(self) -> int:
        """Number of bits that select a bank of an output buffer."""
        return (self.output_banks - 1).bit_length()

    @property
    def lane_bits(self) -> int:
        """Number of bits that select an 8-byte word of a beat: 0 if a beat has at most one word."""
        return (self.bus_words - 1).bit_length()

    @property
    def word_beats(self) -> int:
        """Number of beats of the memory port that one 8-byte word takes, if it is transferred alone."""
        return max(LANES // self.bus_bytes, 1)

    def word_cycles(self, pace: Fraction | int) -> float:
        """Return the cycles per 8-byte word of a long memory transfer, if a beat takes ``pace`` cycles."""
        return float(pace) * LANES / self.bus_bytes

    @property
    def burst_words(self) -> int:
        """Maximum number of 8-byte words in a memory burst. Bursts end at multiples of this size."""
        return MAX_BEATS // self.word_beats

    @property
    def blocks(self) -> int:
        """Number of blocks of 8 output maps that the array computes at once."""
        return self.maps // LANES

    @property
    def weight_words(self) -> int:
        """Number of 8-byte words of weights per step, in memory and in the weight buffer."""
        return self.maps * CHAIN // LANES

    @property
    def weight_copies(self) -> int:
        """Number of consecutive steps whose weights are in different banks, so that a beat is written in one cycle.

        It is the smallest power of two for which these steps have at least as many words as a beat.
        """
        return 1 << (-(-self.bus_words // self.weight_words) - 1).bit_length()

    @property
    def weight_banks(self) -> int:
        """Number of banks of the weight buffer, each 8 bytes wide."""
        return self.weight_words * self.weight_copies

    @property
    def weight_alignment(self) -> int:
        """Alignment of weights in memory, in 8-byte words: the largest common divisor of a step and a beat.

        So a word of weights is in one of few lanes of the bus, whatever its step.
        """
        return gcd(self.weight_words, self.bus_words)

    @property
    def pairs(self) -> int:
        """Number of pairs of output maps in the array, where a pair shares one cascade of DSP slices per pixel."""
        return self.maps // 2

    @property
    def slice_pixels(self) -> int:
        """Number of output pixels whose products are computed in DSP slices."""
        return self.pixels - self.lut_pixels

    @property
    def multipliers(self) -> int:
        """Number of products that all cores compute per step: output maps times pixels times channels."""
        return self.cores * self.maps * self.pixels * CHAIN

    @property
    def rotation_stages(self) -> int:
        """Number of stages of four-way multiplexers that rotate ``pixels`` values between lanes and memory banks."""
        return -(-(self.pixels - 1).bit_length() // 2)

    @property
    def buffer_latency(self) -> int:
        """Read latency of the map buffer, in cycles: rotation, block RAM with output register, rotation back."""
        return 2 * self.rotation_stages + 2


def numbered(config: EngineConfig, name: str) -> list[str]:
    """Return the names of a component or port that each core has: ``name`` alone, or numbered with several cores."""
    return [f"{name}_{core}" for core in range(config.cores)] if config.has_cores else [name]
