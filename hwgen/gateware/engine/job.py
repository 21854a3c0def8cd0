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
#: Number of low bits of a job's 64-bit seal that identify the engine; the other bits are a checksum.
SEAL_BITS = 32
#: Width in bits of the counters of finished jobs. A program has fewer jobs than this width can count.
COUNT_BITS = 24


def _bits(width: int, *, signed: bool = False, **others: int) -> Any:
    """Return a dataclass field for a job's field of ``width`` bits, or other widths in the job formats of ``others``.

    ``others`` has names of `Variant`, in lower case. Jobs of a format lack a field with a width of 0.
    """
    widths = tuple(others.get(variant.name.lower(), width) for variant in Variant)
    return field(default=0, metadata={"widths": widths, "signed": signed})


def _cores_bits(width: int, *, signed: bool = False) -> Any:
    """Return a dataclass field of ``width`` bits that a job has only on engines of several cores."""
    return _bits(0, signed=signed, cores=width)


def _map_memory_bits(width: int) -> Any:
    """Return a dataclass field of ``width`` bits that a job has only on engines with an on-chip map memory."""
    return _bits(0, map_memory=width)


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """Base class of the part of a job for one unit (load, compute, drain, store): bit fields in 64-bit words.

    Engines of several cores, and engines with a map memory, are variants whose parts have more fields (`Variant`).
    In other variants these fields keep their defaults.
    """

    WORDS: ClassVar[int]
    #: Number of additional 64-bit words that this part of a job has on engines of several cores.
    CORE_WORDS: ClassVar[int] = 0

    @classmethod
    def num_words(cls, variant: Variant | bool) -> int:
        """Return the number of 64-bit words of this part of a job, in the job format ``variant``."""
        return cls.WORDS + cls.CORE_WORDS * (variant == Variant.CORES)

    def __post_init__(self) -> None:
        values, (names, lows, highs) = self._field_reader()(self), self._field_bounds()
        if all(map(le, lows, values)) and all(map(le, values, highs)):
            return
        for name, low, value, high in zip(names, lows, values, highs, strict=True):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be from {low} to {high}, not {value!r}")

    @classmethod
    @cache
    def _field_bounds(cls) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
        """Return three tuples: names, smallest and largest values of the job part's fields, in order."""
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
    def _field_reader(cls) -> Callable[[JobPart], tuple[int, ...]]:
        """Return a function from a job part to the tuple of its fields' values, in order."""
        return attrgetter(*(item.name for item in fields(cls)))

    @classmethod
    @cache
    def offsets(cls, variant: Variant | bool = Variant.ONE_CORE) -> tuple[tuple[Field[Any], int, int], ...]:
        """Return a tuple of (field, bit offset, width in bits) of all fields of the part in a job format, in order."""
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
        """Return the Amaranth layout of the part's 64-bit words as one value, the first word lowest."""
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
    """Load part of an engine's job: reads part of a feature map (a box), weights and parameters into on-chip buffers.

    They are fetched in this order.

    On an engine of several cores, the cores form teams of equal size. The words of a team's box go to all members, or
    are *dealt*: block ``b`` goes only to member ``b % members``, as block ``b // members`` of its buffer.

    Each of the three can be missing. A box has ``x_blocks`` blocks of 8 channels, ``x_rows`` rows and ``x_words``
    pixels per row; a pixel of a block is one word. The pixel in row ``y`` and column ``x`` of the box has position
    ``x_first + y * x_pitch + x`` in its block's plane of the map buffer. Position ``a`` is in bank ``a % pixels`` at
    word ``x_base + a // pixels``. The plane of the next block begins ``x_plane`` words further on. The pitch is given
    as ``x_pitch_words * pixels + x_pitch_rest``, so that a row can begin in the bank after the previous row's end.
    Both ``x_first`` and ``x_pitch_rest`` are less than ``pixels``. A box has at least one row and one word per row.

    With ``addend``, the box is written to the addend buffer, which has one bank: the word of a pixel is
    ``x_base + y * x_pitch_words + x``, and ``x_plane`` further on in the next block. ``x_first`` and ``x_pitch_rest``
    are 0 then.
    """

    WORDS = 6
    CORE_WORDS = 2

    end: int = _bits(1)
    """Flag: this job is the last one of the engine's program."""
    x_blocks: int = _bits(12)
    """Number of blocks of 8 channels of a feature map that the job loads; 0 loads no map."""
    addend: int = _bits(1)
    """Flag: the loaded map goes to the addend buffer (it is added to outputs), not to the input map buffer."""
    wait_computed: int = _bits(COUNT_BITS)
    wait_stored: int = _bits(COUNT_BITS)
    x_address: int = _bits(32)
    """Byte address in memory of the feature map part that the job loads, a multiple of 8.

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
    x_kept: int = _map_memory_bits(1)
    """Flag: the job loads the feature map from on-chip map memory, and ``x_address`` is a byte address there."""
    w_address: int = _bits(32)
    w_steps: int = _bits(16)
    """Number of steps (array cycles) whose weights the job loads; a step has four weights for each of ``maps`` maps.

    They are consecutive in memory. With 0, no weights are loaded.
    """
    w_base: int = _bits(16)
    """Weight buffer address, in steps (array cycles), that receives the first weights loaded by the job."""
    p_address: int = _bits(32)
    p_words: int = _bits(12)
    """Number of 8-byte words of requantisation parameters (one per map), or of lookup table entries, to load.

    With 0, none are loaded.
    """
    p_base: int = _bits(8)
    """Destination of the loaded parameters: index of the first block of 8 maps, or of the first lookup table."""
    tables: int = _bits(1)
    """Flag: the parameter words that the job loads are lookup table entries, not requantisation parameters."""
    members: int = _cores_bits(3)
    """Base-2 logarithm of the number of cores per team; the cores of a team share a part of the map.

    Core ``c`` is member ``c % 2**members`` of team ``c // 2**members``.
    """
    x_dealt: int = _cores_bits(1)
    """Flag: the map's blocks of 8 channels go round-robin to a team's cores; otherwise each core gets all blocks."""
    p_dealt: int = _cores_bits(1)
    """Flag: blocks of 8 parameter words go round-robin to a team's cores; otherwise each core gets all blocks."""
    x_teams: int = _cores_bits(5)
    """Number of teams (groups of cores) that each load their own part of a map; 0: all teams get the same part."""
    w_blocks: int = _cores_bits(10)
    """Number of weight blocks, of ``w_steps`` steps each, that go round-robin to the cores of a team.

    They follow each other in memory. With 0, all cores get the same ``w_steps`` steps.
    """
    x_team_stride: int = _cores_bits(32)
    """Distance in bytes, in memory, between the map parts that successive teams (groups of cores) load."""
    x_top: int = _cores_bits(16, signed=True)
    """Index of the map row where the part loaded by team 0 (the first group of cores) begins; negative above.

    With ``x_height``, row ``y`` of team ``t``'s box is row ``x_top + t * x_advance + y`` of the map. It is not loaded
    unless it is from 0 to ``x_height - 1``. Rows are those that the box steps through.
    """
    x_advance: int = _cores_bits(16)
    x_height: int = _cores_bits(16)
    """Number of rows of the map whose parts teams (groups of cores) load; 0 if no part reaches beyond the map."""


@dataclass(frozen=True, kw_only=True)
class Compute(JobPart):
    """Compute part of an engine's job: loop bounds and addresses of the array's multiply-accumulate cycles (steps).

    The array computes ``groups`` pixel groups in each of ``folds`` folds (output maps that it computes at once).

    The loops, from the outermost to the innermost, are: folds, groups, blocks of 8 channels, kernel rows, kernel
    columns, halves of the block. The innermost body is one step. In a step, the values of four channels of all pixels
    of the group are sent to all maps, and each map has its own four weights. With ``channelwise``, the 8 channels of a
    block make one step: channel ``j`` contributes only to map ``j``. Each fold of a channelwise job reads the next
    block of channels. See docs/reference/engine.md.
    """

    WORDS = 5
    CORE_WORDS = 1

    groups: int = _bits(8)
    """Number of pixel groups (one output pixel per array lane) that the job computes for each set of output maps.

    With 0, nothing is computed.
    """
    first: int = _bits(1)
    """Flag: the job's partial sums start from zero; otherwise they continue the sums of the previous job.

    If they start from zero, they take new slots of the array's memory of sums.
    """
    last: int = _bits(1)
    """Flag: the job's sums are complete at its end, and then leave the array for requantisation."""
    channelwise: int = _bits(1)
    """Flag of a depthwise layer: input channel ``j`` of a block of 8 contributes only to output map ``j``."""
    maximum: int = _bits(1)
    """Flag of a maximum pool: accumulators keep the maximum instead of a sum.

    Needs ``channelwise`` and weights of 1.
    """
    walk: int = _bits(1)
    """Flag: all lanes' window positions are computed again, because the tile's geometry differs from the last job's."""
    kernel_rows: int = _bits(8)
    kernel_columns: int = _bits(8)
    channels: int = _bits(16)
    """Number of input channels that the job accumulates, which can be some of the layer's channels."""
    stride: int = _bits(3)
    w_base: int = _bits(16)
    columns: int = _bits(16)
    """Width of the job's tile of output pixels, a number of input columns: output columns times the stride."""
    group_columns: int = _bits(16)
    """Input columns from a lane's window to its window in the next pixel group: ``stride * (pixels % output
    columns)``."""
    group_rows: int = _bits(16)
    """Number of input rows from a lane's window to its next group's: ``stride * (pixels // output columns)``.

    One ``stride`` more where a row ends.
    """
    group_words: int = _bits(16, signed=True)
    """Number of words of a map buffer bank from a lane's window to its window in the next pixel group."""
    wrap_words: int = _bits(16, signed=True)
    """Number of words to add to ``group_words`` if a lane's next window passes the end of an output row.

    It is ``stride * (pitch - output columns) / pixels``.
    """
    in_rows: int = _bits(16)
    """Number of rows of the input map part in the map buffer; pixels outside are padding of the value ``pad``."""
    in_columns: int = _bits(16)
    """Number of columns of the input map part in the map buffer; pixels outside are padding."""
    origin_row: int = _bits(16, signed=True)
    """Row of the first output pixel's first kernel tap, counted from the first buffered row; negative in padding."""
    origin_column: int = _bits(16, signed=True)
    """Column of the first output pixel's first kernel tap, counted from the first buffered one; negative in padding."""
    start_words: int = _bits(16, signed=True)
    """Word address of the first output pixel's first kernel tap in its map buffer bank (``start_rest``)."""
    start_rest: int = _bits(8)
    """Index of the map buffer bank with the first output pixel's first kernel tap."""
    pad: int = _bits(8, signed=True)
    """Value, a signed byte, of input pixels in the padding: normally the input's zero point."""
    dilation_rows: int = _bits(8)
    folds: int = _bits(8)
    """Number of folds of the job: sets of output maps that the array computes at once, one after another.

    The weights of successive folds are consecutive, starting at ``w_base``.
    """
    dilation_columns: int = _bits(8)
    column_words: int = _bits(8, signed=True)
    """Map buffer distance of horizontally adjacent taps, in pixels, divided by ``pixels``: the quotient, in words."""
    column_rest: int = _bits(8)
    """Map buffer distance of horizontally adjacent taps, in pixels, divided by ``pixels``: the remainder, in banks."""
    row_words: int = _bits(16, signed=True)
    """Map buffer distance of vertically adjacent taps, in pixels, divided by ``pixels``: the quotient, in words."""
    row_rest: int = _bits(8)
    """Map buffer distance of vertically adjacent taps, in pixels, divided by ``pixels``: the remainder, in banks."""
    plane: int = _bits(15)
    """Number of words, in each map buffer bank, between successive blocks of 8 channels."""
    members: int = _cores_bits(3)
    """Base-2 logarithm of the number of cores per team, cores that share a part of the map (`Load.members`)."""
    row_advance: int = _cores_bits(16)
    """Number of input rows from ``origin_row`` of a team (group of cores) to ``origin_row`` of the next team."""


@dataclass(frozen=True, kw_only=True)
class Drain(JobPart):
    """Drain part of an engine's job: how complete sums are requantised, combined with a map, looked up, and pooled.

    The word of block ``b`` and pixel ``p`` of the tile is written to address ``o_base + b * o_plane + p`` of the output
    buffer. With ``pool``, ``p`` counts pixels of the pooled tile. Blocks are counted over all folds of the job.
    """

    WORDS = 3

    blocks: int = _bits(5)
    """Number of blocks of 8 output maps whose complete sums leave the array, over all sets of maps in the job."""
    pixels: int = _bits(14)
    """Number of output pixels of the job's tile, before pooling."""
    add: int = _bits(1)
    """Flag: the value of another map is added to each output, by lookup tables.

    Its word is ``a_base + b * pixels + p``.

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
    """Flag: each output is replaced by its entry in the activation table, the last operation before pooling."""
    pool: int = _bits(1)
    """Flag: outputs pass a 2 x 2 maximum pool with stride 2, which drops a last odd row or column."""
    columns: int = _bits(10)
    """Number of columns of the job's tile that enter the pool, used only with ``pool``."""
    wait_stored: int = _bits(COUNT_BITS)
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    channelwise: int = _bits(1)
    """Flag of a depthwise or pooling job: the array computes only 8 output maps (one block) at once."""
    a_base: int = _bits(16)
    a_zero_point: int = _bits(8, signed=True)
    """Zero point of the outputs after a map was added (``add``), or of the map that multiplies sums (``multiply``)."""
    a_low: int = _bits(8, signed=True)
    """Lower bound of the outputs after a map was added (``add``), or zero point of the multiplied sums."""
    a_high: int = _bits(8, signed=True)
    """Upper bound of the outputs after a map was added, used only with ``add``."""
    multiply: int = _bits(1)
    """Flag: sums, less ``a_low``, are multiplied by another map's values, less ``a_zero_point``, before requantisation.

    Sums fit 8 bits then. The other map's words are those that ``add`` would add.
    """
    one_pixel: int = _bits(1)
    """Flag: the added or multiplied map has one pixel, used for all pixels of the tile. Its word is ``a_base + b``."""


@dataclass(frozen=True, kw_only=True)
class Store(JobPart):
    """Store part of an engine's job: which words of the output buffer are written to memory, and where.

    The words are ``rows`` rows for each block of 8 maps.

    A row has ``words`` words. There are ``blocks`` blocks.

    The rows of a block follow each other without gaps in the output buffer.

    On an engine of several cores, block ``b`` is block ``b // members`` of member ``b % members`` of each team.
    """

    WORDS = 3
    CORE_WORDS = 2

    blocks: int = _bits(5, cores=9)
    """Number of blocks of 8 output maps that the job writes to memory; 0: it writes nothing."""
    o_base: int = _bits(16)
    o_plane: int = _bits(16)
    kept: int = _map_memory_bits(1)
    """Flag: outputs are written to the on-chip map memory, and ``address`` is a byte address there."""
    address: int = _bits(32)
    row_stride: int = _bits(32)
    block_stride: int = _bits(32)
    rows: int = _bits(16)
    words: int = _bits(16)
    members: int = _cores_bits(3)
    """Base-2 logarithm of the number of cores per team, cores that share a part of the map (`Load.members`)."""
    teams: int = _cores_bits(5)
    """Number of teams (groups of cores) whose outputs are stored, the first ones; 0 means one team."""
    team_stride: int = _cores_bits(32)
    """Distance in bytes, in memory, between the outputs of successive teams (groups of cores)."""
    advance: int = _cores_bits(16)
    top: int = _cores_bits(16)
    """Index of the output map row where the outputs of team 0 (the first group of cores) begin.

    With ``height``, row ``y`` of team ``t`` is row ``top + t * advance + y`` of the map. It is not stored unless it is
    below ``height``.
    """
    height: int = _cores_bits(16)
    """Number of rows of the output map; 0 if no team's outputs reach beyond the map."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Job (descriptor) of the engine: one part for each unit, that is, load, compute, drain and store."""

    load: Load = Load()
    compute: Compute = Compute()
    drain: Drain = Drain()
    store: Store = Store()

    #: Number of 64-bit words of a job on an engine with one core; `job_words` is for all engines.
    WORDS: ClassVar[int] = Load.WORDS + Compute.WORDS + Drain.WORDS + Store.WORDS + 1
    #: Number of bytes of a job on an engine with one core; `job_bytes` is for all engines.
    BYTES: ClassVar[int] = WORDS * WORD_BITS // 8

    def pack(self, variant: Variant | bool = Variant.ONE_CORE) -> bytes:
        """Return the bytes of the job's four parts as in memory, without the seal (checksum and engine digest)."""
        parts = (self.load, self.compute, self.drain, self.store)
        return b"".join(
            part.pack(variant).to_bytes(part.num_words(variant) * WORD_BITS // 8, "little") for part in parts
        )

    @classmethod
    def unpack(cls, packed: bytes, variant: Variant | bool = Variant.ONE_CORE) -> Job:
        """Return the `Job` whose four parts have the bytes ``packed``; a seal after the parts is ignored."""
        unpacked, offset = [], 0
        for part in PARTS.values():
            size = part.num_words(variant) * WORD_BITS // 8
            unpacked.append(part.unpack(int.from_bytes(packed[offset : offset + size], "little"), variant))
            offset += size
        return cls(load=unpacked[0], compute=unpacked[1], drain=unpacked[2], store=unpacked[3])


#: Dictionary from each part's name in `Job` to its class, a `JobPart`, in memory order.
PARTS: dict[str, type[JobPart]] = {"load": Load, "compute": Compute, "drain": Drain, "store": Store}


def job_words(engine: EngineConfig) -> int:
    """Return the number of 64-bit words of one job (descriptor) of an engine, including its seal."""
    return _variant_words(engine.variant)


@cache
def _variant_words(variant: Variant) -> int:
    return sum(part.num_words(variant) for part in PARTS.values()) + 1


def job_bytes(engine: EngineConfig) -> int:
    """Return the number of bytes of one job (descriptor) of an engine, including its seal."""
    return job_words(engine) * WORD_BITS // 8


@cache
def field_offsets(variant: Variant | bool = Variant.ONE_CORE) -> dict[str, tuple[int, int]]:
    """Return a dict by ``part.name`` of every field of an engine's job: (bit offset in the job, width in bits)."""
    offsets, first = {}, 0
    for name, part in PARTS.items():
        for item, offset, width in part.offsets(variant):
            offsets[f"{name}.{item.name}"] = first + offset, width
        first += part.num_words(variant) * WORD_BITS
    return offsets


@dataclass(frozen=True)
class Access:
    """Memory region that a job accesses, described by the names of the job fields with its address and sizes.

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
        Field with the number of consecutive copies of the row; 0 counts as 1.
    teams, team_stride : str or None
        Fields with the number of regions, one for each team of cores (0 counts as 1), and their distance in bytes.
    top, advance, height : str or None
        Fields that exclude rows of a team outside the map: row ``y`` of team ``t``, unless ``top + t * advance + y`` is
        from 0 to ``height - 1``. All rows are accessed if ``height`` is 0.
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
        """Return, as a pair, the first byte address of a job's accesses to this region, and the address after the last.

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
        """Return a team's (group of cores') byte addresses, (first, end); ``None`` if it has no row in the map."""
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
    """Return a tuple of each `Access` (memory region) of an engine's job: input map, weights, parameters, results."""
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
    """Return the engine's digest, sixteen hexadecimal digits: a hash of its sizes and of its jobs' layouts.

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
    """Return the 32 bits of a job's seal that identify the engine: the first 8 digits of its digest, as an integer."""
    return int(digest(engine)[: SEAL_BITS // 4], 16)


def seal(engine: EngineConfig, job_index: int, packed: bytes) -> int:
    """Return the 64-bit word that ends a job: checksum in the high half, part of the engine's digest in the low half.

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
