"""Jobs: what an engine is told to do. A program is a sequence of them in memory.

A job has a part for each of the four units. The units walk the same sequence, each at its own pace: while the array
computes job ``j``, ``load`` fetches what later jobs need and ``store`` writes what earlier ones gave. A part may be
empty. Each unit counts the jobs that it has finished, empty ones too, and a part waits for counts of others:

========= ==============================================================================================
a part of waits until
========= ==============================================================================================
load      ``wait_computed`` jobs were computed and ``wait_stored`` jobs were stored (empty parts wait, too)
compute   this job was loaded
drain     ``wait_stored`` jobs were stored (its place in the output buffer is free)
store     this job was drained
========= ==============================================================================================

Places in the buffers count modulo the buffers' depths, which are powers of two.

A part is packed into 64-bit words, little endian, its fields one after the other from the lowest bit of the first; no
field crosses a word. A job's last word is its *seal*, by which the engine knows jobs that are its own, whole and in
their order (`seal`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self

from amaranth import signed, unsigned
from amaranth.lib import data

from hwgen import frozen
from hwgen.errors import ConfigError
from hwgen.gateware.engine.config import EngineConfig

WORD_BITS = 64
#: Bits of a seal that are the engine's; those above are the checksum.
SEAL_BITS = 32
#: Width of the counts of jobs, and of what waits for them; a program has fewer jobs than that counts to.
COUNT_BITS = 24


def _bits(width: int, *, signed: bool = False) -> Any:
    return field(default=0, metadata={"width": width, "signed": signed})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A unit's part of a job."""

    WORDS: ClassVar[int]

    def __post_init__(self) -> None:
        for name, low, high in self._bounds():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} must be from {low} to {high}, not {value!r}")

    @classmethod
    @cache
    def _bounds(cls) -> tuple[tuple[str, int, int], ...]:
        """Name of every field, and its least and its greatest value."""
        return tuple(
            (each.name, -(1 << width - 1), (1 << width - 1) - 1)
            if each.metadata["signed"]
            else (each.name, 0, (1 << width) - 1)
            for each in fields(cls)
            for width in (each.metadata["width"],)
        )

    @classmethod
    @cache
    def _places(cls) -> tuple[tuple[Field[Any], int], ...]:
        """Every field and its first bit."""
        place, found = 0, []
        for each in fields(cls):
            width = each.metadata["width"]
            if place // WORD_BITS != (place + width - 1) // WORD_BITS:
                place = -(-place // WORD_BITS) * WORD_BITS
            found.append((each, place))
            place += width
        assert place <= cls.WORDS * WORD_BITS, cls
        return tuple(found)

    @classmethod
    def layout(cls) -> data.FlexibleLayout:
        """Of the part's words as one value, the first word lowest."""
        members: dict[int | str, data.Field] = {
            each.name: data.Field((signed if each.metadata["signed"] else unsigned)(each.metadata["width"]), place)
            for each, place in cls._places()
        }
        return data.FlexibleLayout(cls.WORDS * WORD_BITS, members)

    def pack(self) -> int:
        return sum(
            (getattr(self, each.name) & ((1 << each.metadata["width"]) - 1)) << place for each, place in self._places()
        )

    @classmethod
    def unpack(cls, packed: int) -> Self:
        found = {}
        for each, place in cls._places():
            width = each.metadata["width"]
            value = packed >> place & ((1 << width) - 1)
            found[each.name] = value - (value >> width - 1 << width) if each.metadata["signed"] else value
        return cls(**found)


@dataclass(frozen=True, kw_only=True)
class Load(Part):
    """What is fetched: a box of a map, weights, parameters, in this order; each may be missing.

    A box is ``x_blocks`` blocks of 8 channels by ``x_rows`` rows by ``x_words`` pixels, a word each. In the map buffer
    the pixel in row ``y`` and column ``x`` of the box has position ``x_first + y * x_pitch + x`` in a plane; position
    ``a`` lies in bank ``a % pixels`` at word ``x_base + a // pixels``, and the next block's plane begins ``x_plane``
    words further on. So that rows may run on, a pitch is given as ``x_pitch_words * pixels + x_pitch_rest``. Both
    ``x_first`` and ``x_pitch_rest`` are below ``pixels``. A box that is not missing has a row and a word at least.

    With ``addend`` the box goes to the buffer of maps that are added, which has one bank: the pixel's word is
    ``x_base + y * x_pitch_words + x``, in the next block ``x_plane`` further on. ``x_first`` and ``x_pitch_rest`` are
    0 then.
    """

    WORDS = 6

    end: int = _bits(1)
    """The program ends with this job."""
    x_blocks: int = _bits(12)
    """0: no map is fetched."""
    addend: int = _bits(1)
    wait_computed: int = _bits(COUNT_BITS)
    wait_stored: int = _bits(COUNT_BITS)
    x_address: int = _bits(32)
    """In bytes, as all addresses and strides; a multiple of 8."""
    x_row_stride: int = _bits(32)
    x_block_stride: int = _bits(32)
    x_rows: int = _bits(16)
    x_words: int = _bits(16)
    x_base: int = _bits(15)
    x_first: int = _bits(8)
    x_pitch_words: int = _bits(15)
    x_pitch_rest: int = _bits(8)
    x_plane: int = _bits(15)
    w_address: int = _bits(32)
    w_steps: int = _bits(16)
    """Steps of weights, ``maps`` bytes each, one behind the other; 0: none are fetched."""
    w_base: int = _bits(16)
    """The first step's place in the weight buffer."""
    p_address: int = _bits(32)
    p_words: int = _bits(12)
    """Words of parameters, one a map, or of tables, one an entry; 0: none are fetched."""
    p_base: int = _bits(8)
    """The first block's place in the buffer of parameters, or the first table."""
    tables: int = _bits(1)
    """The words are those of tables, not parameters."""


@dataclass(frozen=True, kw_only=True)
class Compute(Part):
    """Steps of the array for ``groups`` pixel groups.

    For each group, for each block of 8 channels, for each row and column of the kernel, for each channel of the block:
    a step. In a step the pixels' values of that channel go to all maps, each with its own weight. If ``channelwise``,
    the 8 channels of a block make one step: channel ``j`` goes to map ``j`` alone. See docs/reference/engine.md.
    """

    WORDS = 5

    groups: int = _bits(8)
    """0: nothing is computed."""
    first: int = _bits(1)
    """Sums begin with zero, in slots of their own; otherwise with those of the groups that were computed last."""
    last: int = _bits(1)
    """Sums are complete, and drained."""
    channelwise: int = _bits(1)
    maximum: int = _bits(1)
    """Elements keep the greatest value instead of a sum (``channelwise`` only, weights of 1)."""
    walk: int = _bits(1)
    """The lanes' places are computed anew, as the geometry differs from that of the job before."""
    kernel_rows: int = _bits(8)
    kernel_columns: int = _bits(8)
    channels: int = _bits(16)
    """Of this chunk."""
    stride: int = _bits(3)
    w_base: int = _bits(16)
    columns: int = _bits(16)
    """Output columns of the tile, times ``stride``."""
    group_columns: int = _bits(16)
    """From a lane's pixel to that of the next group: ``stride * (pixels % output columns)`` columns ..."""
    group_rows: int = _bits(16)
    """.. and ``stride * (pixels // output columns)`` rows, one ``stride`` more where a row ends."""
    group_words: int = _bits(16, signed=True)
    """Words that go with it, and .."""
    wrap_words: int = _bits(16, signed=True)
    """.. those more where a row ends: ``stride * (pitch - output columns) / pixels``."""
    in_rows: int = _bits(16)
    """Of the box in the map buffer; what lies outside counts as ``pad``."""
    in_columns: int = _bits(16)
    origin_row: int = _bits(16, signed=True)
    """Of the first tap of the first output pixel, in the box: negative in padding."""
    origin_column: int = _bits(16, signed=True)
    start_words: int = _bits(16, signed=True)
    """Its position in the buffer: words ..."""
    start_rest: int = _bits(8)
    """.. and bank."""
    pad: int = _bits(8, signed=True)
    dilation_rows: int = _bits(8)
    dilation_columns: int = _bits(8)
    column_words: int = _bits(16, signed=True)
    """From a tap to that in the next column, in positions: words .."""
    column_rest: int = _bits(8)
    """.. and banks."""
    row_words: int = _bits(16, signed=True)
    """From a tap to that in the next row."""
    row_rest: int = _bits(8)
    plane: int = _bits(15)
    """Words from a block's plane to the next."""


@dataclass(frozen=True, kw_only=True)
class Drain(Part):
    """What becomes of complete sums: they are requantised, and another map may be added.

    The word of block ``b`` and pixel ``p`` of the tile goes to ``o_base + b * o_plane + p`` of the output
    buffer. With ``pool``, ``p`` counts pixels of the pooled tile.
    """

    WORDS = 3

    blocks: int = _bits(4)
    """Of 8 maps; the rest of the maps are not drained."""
    pixels: int = _bits(14)
    """Of the tile, all groups together."""
    add: int = _bits(1)
    """To each output another map's value is added, by tables; its word is ``a_base + b * pixels + p`` of its buffer."""
    zero_point: int = _bits(8, signed=True)
    low: int = _bits(8, signed=True)
    high: int = _bits(8, signed=True)
    p_base: int = _bits(8)
    table: int = _bits(1)
    """Outputs are looked up in a table of their own, the last thing before they are pooled."""
    pool: int = _bits(1)
    """Of each 2 x 2 pixels the greatest values leave. A last odd row or column is dropped."""
    columns: int = _bits(10)
    """Of the tile, before it is pooled (``pool`` only)."""
    wait_stored: int = _bits(COUNT_BITS)
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    a_base: int = _bits(16)
    a_zero_point: int = _bits(8, signed=True)
    """What is added to the sum with the other map, and its bounds (``add`` only)."""
    a_low: int = _bits(8, signed=True)
    a_high: int = _bits(8, signed=True)


@dataclass(frozen=True, kw_only=True)
class Store(Part):
    """What is written: ``blocks`` times ``rows`` rows of ``words`` words.

    The rows of a block lie one behind the other in the output buffer.
    """

    WORDS = 3

    blocks: int = _bits(4)
    """0: nothing is written."""
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    address: int = _bits(32)
    row_stride: int = _bits(32)
    block_stride: int = _bits(32)
    rows: int = _bits(16)
    words: int = _bits(16)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The four parts of a job."""

    load: Load = Load()
    compute: Compute = Compute()
    drain: Drain = Drain()
    store: Store = Store()

    PART_WORDS: ClassVar[int] = Load.WORDS + Compute.WORDS + Drain.WORDS + Store.WORDS
    WORDS: ClassVar[int] = PART_WORDS + 1
    BYTES: ClassVar[int] = WORDS * WORD_BITS // 8

    def pack(self) -> bytes:
        """The parts, without the seal."""
        parts = (self.load, self.compute, self.drain, self.store)
        return b"".join(part.pack().to_bytes(part.WORDS * WORD_BITS // 8, "little") for part in parts)

    @classmethod
    def unpack(cls, packed: bytes) -> Job:
        """From its parts; a seal behind them is not looked at."""
        found, place = [], 0
        for kind in (Load, Compute, Drain, Store):
            size = kind.WORDS * WORD_BITS // 8
            found.append(kind.unpack(int.from_bytes(packed[place : place + size], "little")))
            place += size
        return cls(load=found[0], compute=found[1], drain=found[2], store=found[3])


def digest(engine: EngineConfig) -> str:
    """Return sixteen hexadecimal digits that tell engines apart.

    They depend on the engine's sizes and on the positions of its jobs' fields, by their frozen names (`hwgen.frozen`).
    """
    sizes = {frozen.field_name(size): getattr(engine, size.name) for size in fields(engine)}
    layouts = {
        frozen.class_name(part): [
            (frozen.field_name(field), position, field.metadata["width"]) for field, position in part._places()
        ]
        for part in (Load, Compute, Drain, Store)
    }
    return hashlib.sha256(json.dumps([sizes, layouts], sort_keys=True).encode()).hexdigest()[:16]


def engine_seal(engine: EngineConfig) -> int:
    """What is the same in all seals of an engine's jobs: the first digits of its digest."""
    return int(digest(engine)[: SEAL_BITS // 4], 16)


def seal(engine: EngineConfig, number: int, packed: bytes) -> int:
    """The last word of a job: `engine_seal`, and above it the CRC-32 (that of zlib) of the words of its parts,
    exclusive or the job's number in its program."""
    return (zlib.crc32(packed) ^ number) << SEAL_BITS | engine_seal(engine)


def pack_jobs(engine: EngineConfig, jobs: Sequence[Job]) -> bytes:
    """A program as it lies in memory."""
    packed = (job.pack() for job in jobs)
    return b"".join(
        each + seal(engine, number, each).to_bytes(WORD_BITS // 8, "little") for number, each in enumerate(packed)
    )
