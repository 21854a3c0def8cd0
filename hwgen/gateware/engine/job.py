"""Jobs (descriptors) of the engine, which the engine reads from memory: their fields, packing and seal.

A program is a sequence of jobs in memory.

A job has one part for each of the four units. All units process the same sequence of jobs, each at its own pace: while
the array computes job ``j``, ``load`` fetches the operands of later jobs and ``store`` writes the results of earlier
jobs. A part can be empty. Each unit counts the jobs that it has finished, empty parts included, and a part waits for
the counts of other units:

========= ==============================================================================================
part      waits until
========= ==============================================================================================
load      ``wait_computed`` jobs were computed and ``wait_stored`` jobs were stored (empty parts wait, too)
compute   this job was loaded
drain     ``wait_stored`` jobs were stored (the job's words of the output buffer are free)
store     this job was drained
========= ==============================================================================================

Buffer addresses count modulo the depths of the buffers, which are powers of two.

A part is packed into 64-bit little-endian words. Its fields follow each other from the lowest bit of the first word on;
no field crosses a word boundary. The last word of a job is its *seal* (`seal`). With the seal, the engine checks that
a job was compiled for this engine, is undamaged, and comes in order.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from operator import attrgetter, le
from typing import Any, ClassVar, Self

from amaranth import signed, unsigned
from amaranth.lib import data

from hwgen import frozen
from hwgen.errors import ConfigError
from hwgen.gateware.engine.config import CHAIN, EngineConfig, Variant

WORD_BITS = 64
#: Number of seal bits that identify the engine. The bits above are the checksum.
SEAL_BITS = 32
#: Width of job counters, in bits. A program has fewer jobs than this width can count.
COUNT_BITS = 24


def _bits(width: int, *, signed: bool = False, **others: int) -> Any:
    """Return a field of ``width`` bits; ``others`` has other widths of some variants, by their names.

    Jobs of a variant lack a field with a width of 0.
    """
    widths = tuple(others.get(variant.name.lower(), width) for variant in Variant)
    return field(default=0, metadata={"widths": widths, "signed": signed})


def _cores(width: int, *, signed: bool = False) -> Any:
    """Return a field that jobs have on engines of several cores alone."""
    return _bits(0, signed=signed, cores=width)


def _map_memory(width: int) -> Any:
    """Return a field that jobs have on engines with a map memory alone."""
    return _bits(0, map_memory=width)


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """Base class of an engine job's part for one unit (load, compute, drain, store): bit fields in 64-bit words.

    Engines of several cores, and engines with a map memory, are variants whose parts have more fields (`Variant`).
    In other variants these fields keep their defaults.
    """

    WORDS: ClassVar[int]
    #: Additional words on engines of several cores.
    CORE_WORDS: ClassVar[int] = 0

    @classmethod
    def num_words(cls, variant: Variant | bool) -> int:
        """Return the number of 64-bit words of the part."""
        return cls.WORDS + cls.CORE_WORDS * (variant == Variant.CORES)

    def __post_init__(self) -> None:
        values, (names, lows, highs) = self._getter()(self), self._bounds()
        if all(map(le, lows, values)) and all(map(le, values, highs)):
            return
        for name, low, value, high in zip(names, lows, values, highs, strict=True):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be from {low} to {high}, not {value!r}")

    @classmethod
    @cache
    def _bounds(cls) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
        """Return three tuples: the names of all fields of the job part, in order, their minima and their maxima."""
        names, lows, highs = zip(
            *(
                (item.name, -(1 << width - 1), (1 << width - 1) - 1)
                if item.metadata["signed"]
                else (item.name, 0, (1 << width) - 1)
                for item in fields(cls)
                for width in (max(item.metadata["widths"]),)
            ),
            strict=True,
        )
        return names, lows, highs

    @classmethod
    @cache
    def _getter(cls) -> Callable[[JobPart], tuple[int, ...]]:
        """Return the function that reads all fields of a job part, in order."""
        return attrgetter(*(item.name for item in fields(cls)))

    @classmethod
    @cache
    def offsets(cls, variant: Variant | bool = Variant.ONE_CORE) -> tuple[tuple[Field[Any], int, int], ...]:
        """Return a triple for every field of the job part, in order: the field, its lowest bit's offset, its width."""
        offset, offsets = 0, []
        for item in fields(cls):
            width = item.metadata["widths"][variant]
            if not width:
                continue
            if offset // WORD_BITS != (offset + width - 1) // WORD_BITS:
                offset = -(-offset // WORD_BITS) * WORD_BITS
            offsets.append((item, offset, width))
            offset += width
        assert offset <= cls.num_words(variant) * WORD_BITS, cls
        return tuple(offsets)

    @classmethod
    def layout(cls, variant: Variant | bool = Variant.ONE_CORE) -> data.FlexibleLayout:
        """Return the layout of the job part's 64-bit words as one value, with the first word in the lowest bits."""
        members: dict[int | str, data.Field] = {
            item.name: data.Field((signed if item.metadata["signed"] else unsigned)(width), offset)
            for item, offset, width in cls.offsets(variant)
        }
        return data.FlexibleLayout(cls.num_words(variant) * WORD_BITS, members)

    def pack(self, variant: Variant | bool = Variant.ONE_CORE) -> int:
        """Return the job part's 64-bit words as one integer, with the first word in the lowest bits."""
        return sum(
            (getattr(self, item.name) & ((1 << width) - 1)) << offset for item, offset, width in self.offsets(variant)
        )

    @classmethod
    def unpack(cls, packed: int, variant: Variant | bool = Variant.ONE_CORE) -> Self:
        """Return the job part whose 64-bit words form the integer ``packed``: the inverse of `pack`."""
        values = {}
        for item, offset, width in cls.offsets(variant):
            value = packed >> offset & ((1 << width) - 1)
            values[item.name] = value - (value >> width - 1 << width) if item.metadata["signed"] else value
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Load(JobPart):
    """Load part of an engine's job: fetches a box of a feature map, weights, and requantisation parameters.

    They are fetched in this order.

    On an engine of several cores, the cores form teams of equal size. The words of a team's box go to all members, or
    are *dealt*: block ``b`` goes to member ``b % members`` alone, as block ``b // members`` of its buffer.

    Each of the three can be missing. A box has ``x_blocks`` blocks of 8 channels, ``x_rows`` rows and ``x_words``
    pixels per row; a pixel of a block is one word. The pixel in row ``y`` and column ``x`` of the box has position
    ``x_first + y * x_pitch + x`` in its block's plane of the map buffer. Position ``a`` is in bank ``a % pixels`` at
    word ``x_base + a // pixels``. The plane of the next block begins ``x_plane`` words further on. The pitch is given
    as ``x_pitch_words * pixels + x_pitch_rest``, so that a row can begin in the bank behind the end of the row before.
    Both ``x_first`` and ``x_pitch_rest`` are less than ``pixels``. A box has at least one row and one word per row.

    With ``addend``, the box is written to the addend buffer, which has one bank: the word of a pixel is
    ``x_base + y * x_pitch_words + x``, and ``x_plane`` further on in the next block. ``x_first`` and ``x_pitch_rest``
    are 0 then.
    """

    WORDS = 6
    CORE_WORDS = 2

    end: int = _bits(1)
    """Flag of the last job of the engine's program."""
    x_blocks: int = _bits(12)
    """Number of blocks of 8 channels in the box of the feature map that the job loads. With 0, no map is loaded."""
    addend: int = _bits(1)
    """Flag: the loaded map is written to the addend buffer, to be added to outputs, instead of the map buffer."""
    wait_computed: int = _bits(COUNT_BITS)
    wait_stored: int = _bits(COUNT_BITS)
    x_address: int = _bits(32)
    """Byte address of the loaded box of the feature map in memory, a multiple of 8.

    All addresses and strides are in bytes.
    """
    x_row_stride: int = _bits(32)
    x_block_stride: int = _bits(32)
    x_rows: int = _bits(16)
    x_words: int = _bits(16)
    x_base: int = _bits(15)
    x_first: int = _bits(8)
    x_pitch_words: int = _bits(15)
    x_pitch_rest: int = _bits(8)
    x_plane: int = _bits(15)
    x_kept: int = _map_memory(1)
    """Flag: the box is loaded from the map memory, and ``x_address`` is an address there."""
    w_address: int = _bits(32)
    w_steps: int = _bits(16)
    """Number of consecutive weight steps to load; one step has four weight bytes for each of the array's ``maps``.

    With 0, no weights are loaded.
    """
    w_base: int = _bits(16)
    """Address in the weight buffer to which the first loaded step of weights is written."""
    p_address: int = _bits(32)
    p_words: int = _bits(12)
    """Number of words to load of requantisation parameters (one per map) or lookup tables (one per entry).

    With 0, none are loaded.
    """
    p_base: int = _bits(8)
    """Destination of loaded parameters: the first block in the parameter buffer, or the index of the first table."""
    tables: int = _bits(1)
    """Flag: the loaded parameter words are entries of lookup tables, not requantisation parameters."""
    members: int = _cores(3)
    """Number of cores of a team, as a base-2 logarithm: core ``c`` is member ``c % 2**members`` of its team.

    The team is ``c // 2**members``.
    """
    x_dealt: int = _cores(1)
    """Flag: the box's blocks are dealt to the members of a team. Otherwise each member gets all blocks."""
    p_dealt: int = _cores(1)
    """Flag: blocks of 8 parameter words are dealt to the members of a team."""
    x_teams: int = _cores(5)
    """Number of teams with a box of their own, from team 0 on. With 0, all teams get the same box."""
    w_blocks: int = _cores(10)
    """Number of blocks of ``w_steps`` weight steps that are dealt to the members of a team.

    They follow each other in memory. With 0, all cores get the same ``w_steps`` steps.
    """
    x_team_stride: int = _cores(32)
    """Distance in memory between the boxes of successive teams."""
    x_top: int = _cores(16, signed=True)
    """Row of the map in which team 0's box begins, for boxes that reach beyond the map.

    With ``x_height``, row ``y`` of team ``t``'s box is row ``x_top + t * x_advance + y`` of the map. It is not loaded
    unless it is from 0 to ``x_height - 1``. Rows are those that the box steps through.
    """
    x_advance: int = _cores(16)
    x_height: int = _cores(16)
    """Number of rows of the map, or 0 if all rows of all boxes lie in the map."""


@dataclass(frozen=True, kw_only=True)
class Compute(JobPart):
    """Compute part of an engine's job: the array's steps for ``groups`` pixel groups in each of ``folds`` output folds.

    The loops, from the outermost to the innermost, are: folds, groups, blocks of 8 channels, kernel rows, kernel
    columns, halves of the block. The innermost body is one step. In a step, the values of four channels of all pixels
    of the group are sent to all maps, and each map has its own four weights. With ``channelwise``, the 8 channels of a
    block make one step: channel ``j`` contributes to map ``j`` alone. Each fold of a channelwise job reads the next
    block of channels. See docs/reference/engine.md.
    """

    WORDS = 5
    CORE_WORDS = 1

    groups: int = _bits(8)
    """Number of pixel groups (one output pixel per lane of the array) that the job computes in each fold.

    With 0, nothing is computed.
    """
    first: int = _bits(1)
    """Flag: the job's partial sums start from zero, in new slots of the array's memory of sums.

    Otherwise they continue the sums of the groups computed last.
    """
    last: int = _bits(1)
    """Flag: the job's sums are complete after this job, and leave the array."""
    channelwise: int = _bits(1)
    """Flag of a depthwise layer: input channel ``j`` of a block of 8 contributes to output map ``j`` alone."""
    maximum: int = _bits(1)
    """Flag: array elements keep the maximum instead of a sum (maximum pool). Needs ``channelwise`` and weights of 1."""
    walk: int = _bits(1)
    """Flag: the lanes' window positions are computed anew, because the geometry differs from the job before."""
    kernel_rows: int = _bits(8)
    kernel_columns: int = _bits(8)
    channels: int = _bits(16)
    """Number of input channels that the job accumulates: its chunk of the layer's input channels."""
    stride: int = _bits(3)
    w_base: int = _bits(16)
    columns: int = _bits(16)
    """Number of output columns in the tile that the engine's job computes, times the stride."""
    group_columns: int = _bits(16)
    """Column distance between a lane's windows in successive pixel groups: ``stride * (pixels % output columns)``."""
    group_rows: int = _bits(16)
    """Row distance between a lane's windows in successive pixel groups: ``stride * (pixels // output columns)``.

    One ``stride`` more where a row ends.
    """
    group_words: int = _bits(16, signed=True)
    """Address distance between a lane's windows in successive pixel groups, in words of a map buffer bank."""
    wrap_words: int = _bits(16, signed=True)
    """Number of words added to the address advance ``group_words`` where an output row ends.

    It is ``stride * (pitch - output columns) / pixels``.
    """
    in_rows: int = _bits(16)
    """Number of rows of the input box in the map buffer. Pixels outside of the box have the value ``pad``."""
    in_columns: int = _bits(16)
    """Number of columns of the input box in the map buffer."""
    origin_row: int = _bits(16, signed=True)
    """Row, in the input box, of the first kernel tap of the first output pixel; negative in padding."""
    origin_column: int = _bits(16, signed=True)
    """Column, in the input box, of the first kernel tap of the first output pixel; negative in padding."""
    start_words: int = _bits(16, signed=True)
    """Word address, in its map buffer bank, of the first kernel tap of the first output pixel."""
    start_rest: int = _bits(8)
    """Map buffer bank of the first kernel tap of the first output pixel."""
    pad: int = _bits(8, signed=True)
    """Value of input pixels in the padding."""
    dilation_rows: int = _bits(8)
    folds: int = _bits(8)
    """Number of output folds that the job computes. Weights of the folds follow each other from ``w_base`` on."""
    dilation_columns: int = _bits(8)
    column_words: int = _bits(8, signed=True)
    """Map buffer distance from a tap to the next kernel column's tap, in words; ``column_rest`` banks are added."""
    column_rest: int = _bits(8)
    """Map buffer distance from a tap to the next kernel column's tap, in banks beyond ``column_words``."""
    row_words: int = _bits(16, signed=True)
    """Map buffer distance from a tap to the next kernel row's tap, in words; ``row_rest`` banks are added."""
    row_rest: int = _bits(8)
    """Map buffer distance from a tap to the next kernel row's tap, in banks beyond ``row_words``."""
    plane: int = _bits(15)
    """Map buffer distance between the planes of successive blocks of 8 channels, in words."""
    members: int = _cores(3)
    """Number of cores of a team, as a base-2 logarithm (`Load.members`)."""
    row_advance: int = _cores(16)
    """Distance between the values of ``origin_row`` of successive teams, in rows of the input box."""


@dataclass(frozen=True, kw_only=True)
class Drain(JobPart):
    """Drain part of an engine's job: requantises complete sums, and optionally joins a map, applies a table, or pools.

    The word of block ``b`` and pixel ``p`` of the tile is written to address ``o_base + b * o_plane + p`` of the output
    buffer. With ``pool``, ``p`` counts pixels of the pooled tile. Blocks are counted over all folds of the job.
    """

    WORDS = 3

    blocks: int = _bits(5)
    """Number of blocks of 8 output maps whose complete sums leave the array."""
    pixels: int = _bits(14)
    """Number of output pixels in the tile that the engine's job computes, over all pixel groups."""
    add: int = _bits(1)
    """Flag: another map's value is added to each output, by lookup tables. Its word is ``a_base + b * pixels + p``.

    Together with ``multiply``, the sums go to the fixed unit instead (`hwgen.gateware.engine.fixed_unit`): to slot
    ``columns`` of ``2**low`` pixels, as ``zero_point`` says (`Arrival`), ``high + 1`` bytes of a value. With
    ``a_zero_point`` instructions, the unit then executes its program: constants begin at ``p_base``, and the output's
    bytes at ``o_base``, for a tile of ``a_base`` columns. ``one_pixel`` is set.
    """
    zero_point: int = _bits(8, signed=True)
    low: int = _bits(8, signed=True)
    high: int = _bits(8, signed=True)
    p_base: int = _bits(8)
    table: int = _bits(1)
    """Flag: outputs are looked up in the activation table, as the last operation before pooling."""
    pool: int = _bits(1)
    """Flag of a 2 x 2 maximum pool with stride 2. A last odd row or column is dropped."""
    columns: int = _bits(10)
    """Number of output columns in the job's tile before pooling (``pool`` only)."""
    wait_stored: int = _bits(COUNT_BITS)
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    channelwise: int = _bits(1)
    """Flag of a channelwise job: each fold has one block."""
    a_base: int = _bits(16)
    a_zero_point: int = _bits(8, signed=True)
    """Zero point of the outputs to which another map was added, or of the map that multiplies."""
    a_low: int = _bits(8, signed=True)
    """Lower bound of the outputs to which another map was added, or zero point of the sums that are multiplied."""
    a_high: int = _bits(8, signed=True)
    """Upper bound of the outputs to which another map was added (``add`` only)."""
    multiply: int = _bits(1)
    """Flag: sums, less ``a_low``, are multiplied by another map's values, less ``a_zero_point``, before requantisation.

    Sums fit 8 bits then. The other map's words are those that ``add`` would add.
    """
    one_pixel: int = _bits(1)
    """Flag: the other map is one pixel for all pixels of the tile. Its word is ``a_base + b``."""


@dataclass(frozen=True, kw_only=True)
class Store(JobPart):
    """Store part of an engine's job: writes output words to memory, in ``rows`` rows for each block of 8 maps.

    A row has ``words`` words. There are ``blocks`` blocks.

    The rows of a block follow each other without gaps in the output buffer.

    On an engine of several cores, block ``b`` is block ``b // members`` of member ``b % members`` of each team.
    """

    WORDS = 3
    CORE_WORDS = 2

    blocks: int = _bits(5, cores=9)
    """Number of blocks of 8 output maps that the job writes to memory. With 0, nothing is written."""
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    kept: int = _map_memory(1)
    """Flag: the results are written to the map memory, and ``address`` is an address there."""
    address: int = _bits(32)
    row_stride: int = _bits(32)
    block_stride: int = _bits(32)
    rows: int = _bits(16)
    words: int = _bits(16)
    members: int = _cores(3)
    """Number of cores of a team, as a base-2 logarithm (`Load.members`)."""
    teams: int = _cores(5)
    """Number of teams whose outputs are stored, from team 0 on; 0 means one team."""
    team_stride: int = _cores(32)
    """Distance in memory between the outputs of successive teams."""
    advance: int = _cores(16)
    top: int = _cores(16)
    """Row of the map in which team 0's outputs begin.

    With ``height``, row ``y`` of team ``t`` is row ``top + t * advance + y`` of the map. It is not stored unless it is
    below ``height``.
    """
    height: int = _cores(16)
    """Number of rows of the map, or 0 if all rows of all teams lie in the map."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job (descriptor) of the engine: one part for each of the units load, compute, drain and store."""

    load: Load = Load()
    compute: Compute = Compute()
    drain: Drain = Drain()
    store: Store = Store()

    #: Numbers of words and bytes of a job of an engine with one core; `job_words` and `job_bytes` are for all engines.
    WORDS: ClassVar[int] = Load.WORDS + Compute.WORDS + Drain.WORDS + Store.WORDS + 1
    BYTES: ClassVar[int] = WORDS * WORD_BITS // 8

    def pack(self, variant: Variant | bool = Variant.ONE_CORE) -> bytes:
        """Return the bytes of the job's four parts, without the seal (checksum and engine digest)."""
        parts = (self.load, self.compute, self.drain, self.store)
        return b"".join(
            part.pack(variant).to_bytes(part.num_words(variant) * WORD_BITS // 8, "little") for part in parts
        )

    @classmethod
    def unpack(cls, packed: bytes, variant: Variant | bool = Variant.ONE_CORE) -> Job:
        """Return the job whose four parts have the bytes ``packed``. A seal behind the parts is ignored."""
        unpacked, offset = [], 0
        for part in PARTS.values():
            size = part.num_words(variant) * WORD_BITS // 8
            unpacked.append(part.unpack(int.from_bytes(packed[offset : offset + size], "little"), variant))
            offset += size
        return cls(load=unpacked[0], compute=unpacked[1], drain=unpacked[2], store=unpacked[3])


#: Class of each part of an engine's job by the part's name in `Job`, in the order of memory.
PARTS: dict[str, type[JobPart]] = {"load": Load, "compute": Compute, "drain": Drain, "store": Store}


def job_words(engine: EngineConfig) -> int:
    """Return the number of 64-bit words of a job of an engine, its seal included."""
    return _variant_words(engine.variant)


@cache
def _variant_words(variant: Variant) -> int:
    return sum(part.num_words(variant) for part in PARTS.values()) + 1


def job_bytes(engine: EngineConfig) -> int:
    """Return the number of bytes of a job of an engine, its seal included."""
    return job_words(engine) * WORD_BITS // 8


@cache
def field_offsets(variant: Variant | bool = Variant.ONE_CORE) -> dict[str, tuple[int, int]]:
    """Return a mapping from every field ``part.name`` of an engine's job to its bit offset in the job and its width."""
    offsets, first = {}, 0
    for name, part in PARTS.items():
        for item, offset, width in part.offsets(variant):
            offsets[f"{name}.{item.name}"] = first + offset, width
        first += part.num_words(variant) * WORD_BITS
    return offsets


@dataclass(frozen=True)
class Access:
    """Memory region that an engine job reads or writes, as the names of the job fields with its address and sizes.

    Parameters
    ----------
    address : str
        Field with the byte address of the first word, as ``part.name``.
    words : str
        Field with the number of words in a row.
    word_bytes : int
        Size of such a word in memory.
    rows, row_stride, blocks, block_stride : str or None
        Fields with the rows of a block, the blocks, and the distances between them in bytes; ``None`` for one row.
    writes : bool
        Whether the job writes these bytes.
    repeats : str or None
        Field with the number of times that the row follows itself; 0 counts as 1.
    teams, team_stride : str or None
        Fields with the number of regions, one for each team of cores (0 counts as 1), and their distance in bytes.
    top, advance, height : str or None
        Fields by which rows of a team are left out: row ``y`` of team ``t``, unless ``top + t * advance + y`` is from 0
        to ``height - 1``. All rows are accessed if ``height`` is 0.
    kept : str or None
        Field with the flag that the region is in the map memory, so that no off-chip memory is accessed.
    """

    address: str
    words: str
    word_bytes: int
    rows: str | None = None
    row_stride: str | None = None
    blocks: str | None = None
    block_stride: str | None = None
    writes: bool = False
    repeats: str | None = None
    teams: str | None = None
    team_stride: str | None = None
    top: str | None = None
    advance: str | None = None
    height: str | None = None
    kept: str | None = None

    def span(self, job: Job, *, kept: bool = False) -> tuple[int, int]:
        """Return the address of the first byte that ``job`` accesses in this region, and the address behind the last.

        The two are equal if there is none. With ``kept``, these are bytes of the map memory, not of off-chip memory.
        """
        counts = [self._value(job, name) for name in (self.blocks, self.rows, self.words)]
        address = self._value(job, self.address)
        if 0 in counts or bool(self._value(job, self.kept, 0)) != kept:
            return address, address
        spans = [self._team_span(job, team, *counts) for team in range(max(self._value(job, self.teams), 1))]
        found = [span for span in spans if span is not None]
        return min(begin for begin, _ in found), max(end for _, end in found)

    def _team_span(self, job: Job, team: int, blocks: int, rows: int, words: int) -> tuple[int, int] | None:
        """Return the addresses of the first byte that a team accesses, and behind the last; ``None`` without rows."""
        first, end = 0, rows
        if height := self._value(job, self.height, 0):
            top = self._value(job, self.top) + team * self._value(job, self.advance)
            first, end = max(-top, 0), min(height - top, rows)
            if end <= first:
                return None
        begin = self._value(job, self.address) + team * self._value(job, self.team_stride, 0)
        begin = (begin + first * self._value(job, self.row_stride)) % (1 << 32)
        strides = (blocks - 1) * self._value(job, self.block_stride)
        strides += (end - first - 1) * self._value(job, self.row_stride)
        return begin, begin + strides + words * max(self._value(job, self.repeats), 1) * self.word_bytes

    @staticmethod
    def _value(job: Job, name: str | None, default: int = 1) -> int:
        if name is None:
            return default
        part, _, key = name.partition(".")
        return getattr(getattr(job, part), key)


def accesses(engine: EngineConfig) -> tuple[Access, ...]:
    """Return the memory regions of a job of the engine, in this order: input map, weights, parameters, results."""
    word_bytes = WORD_BITS // 8
    loaded: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    if engine.has_cores:
        names = ("teams", "team_stride", "top", "advance", "height")
        loaded, stored = {name: f"load.x_{name}" for name in names}, {name: f"store.{name}" for name in names}
    if engine.has_map_memory:
        loaded, stored = {"kept": "load.x_kept"}, {"kept": "store.kept"}
    return (
        Access(
            address="load.x_address",
            words="load.x_words",
            word_bytes=word_bytes,
            rows="load.x_rows",
            row_stride="load.x_row_stride",
            blocks="load.x_blocks",
            block_stride="load.x_block_stride",
            **loaded,
        ),
        Access(
            address="load.w_address",
            words="load.w_steps",
            word_bytes=CHAIN * engine.maps,
            repeats="load.w_blocks" if engine.has_cores else None,
        ),
        Access(address="load.p_address", words="load.p_words", word_bytes=word_bytes),
        Access(
            address="store.address",
            words="store.words",
            word_bytes=word_bytes,
            rows="store.rows",
            row_stride="store.row_stride",
            blocks="store.blocks",
            block_stride="store.block_stride",
            **stored,
            writes=True,
        ),
    )


def digest(engine: EngineConfig) -> str:
    """Return the engine's digest, sixteen hexadecimal digits: a hash of the engine's sizes and job layouts.

    The digest depends on the sizes of the engine and on the offsets of its job fields, under their frozen names
    (`hwgen.frozen`).
    """
    sizes = {
        frozen.field_name(size): getattr(engine, size.name)
        for size in fields(engine)
        if frozen.is_digested(engine, size)
    }
    layouts = {
        frozen.class_name(part): [
            (frozen.field_name(field), offset, width) for field, offset, width in part.offsets(engine.variant)
        ]
        for part in PARTS.values()
    }
    return hashlib.sha256(json.dumps([sizes, layouts], sort_keys=True).encode()).hexdigest()[:16]


def engine_seal(engine: EngineConfig) -> int:
    """Return the part of a job's seal that identifies the engine: the engine digest's first 8 digits as an integer."""
    return int(digest(engine)[: SEAL_BITS // 4], 16)


def seal(engine: EngineConfig, job_index: int, packed: bytes) -> int:
    """Return the seal of a job, its last 64-bit word, which contains a checksum and the engine's digest.

    The low half is `engine_seal`. The high half is the CRC-32 (zlib's) of the bytes of the parts, exclusive-or the
    index of the job in its program.
    """
    return (zlib.crc32(packed) ^ job_index) << SEAL_BITS | engine_seal(engine)


def pack_jobs(engine: EngineConfig, jobs: Sequence[Job]) -> bytes:
    """Return the bytes of an engine's program: all jobs in order, each followed by its seal (checksum and digest)."""
    packed = (job.pack(engine.variant) for job in jobs)
    return b"".join(
        parts + seal(engine, job_index, parts).to_bytes(WORD_BITS // 8, "little")
        for job_index, parts in enumerate(packed)
    )
