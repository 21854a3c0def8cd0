"""`Pass`: one run of a layer through the engine's array of MAC units, with its weights, maps and fused operations.

A slice multiplies by the weights of two output maps in one word of 25 bits, and four slices add their products in
fields of 17 bits. This is exact for weights from -127 to 127. Two cases with -128 are not: an odd map's weight of -128
next to a negative weight of the preceding even map needs one bit more, and so does a sum of four products by -128 in
the lower field. Such a weight becomes -127, and the rest, -1, is a weight of a further term (`weight_terms`). The terms
are added by jobs of their own, so that the engine computes with weights beyond 8 bits, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.gateware.engine.fixed_unit import INSTRUCTION, Arrival, Opcode
from hwgen.network.maps import IntegerType, Window
from hwgen.network.ops import Op
from hwgen.program.layout import blocks, offset, parameter_words
from hwgen.program.split import UNDIVIDED, Split

Span = tuple[int, int]
#: Smallest and largest weight that a byte stores.
_SMALLEST, _LARGEST = -128, 127


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightTerm:
    """One of the weight arrays that add up to a layer's weights, each multiplied exactly by the engine.

    Parameters
    ----------
    channels, rows, columns : tuple of int
        Half-open intervals of input channels, kernel rows and kernel columns that contain all nonzero weights of the
        term. Channels begin at a multiple of 8.
    weights : ndarray
        int64, as large as the weights of the pass.
    """

    channels: Span
    rows: Span
    columns: Span
    weights: np.ndarray


def weight_terms(weights: np.ndarray, *, channelwise: bool) -> tuple[WeightTerm, ...]:
    """Return a tuple of `WeightTerm` arrays that add up to weights ``(M, C, Kh, Kw)``, exactly; mostly one.

    In a channelwise pass each weight has a slice for itself, so that all weights of 8 bits are exact.
    """
    whole = tuple((0, size) for size in weights.shape[1:])
    terms: list[WeightTerm] = []
    rest = weights
    while True:
        term = _exact_part(rest, channelwise=channelwise)
        channels, rows, columns = _region(rest) if terms else whole
        terms.append(WeightTerm(channels=channels, rows=rows, columns=columns, weights=term))
        if term is rest or not (rest != term).any():
            return tuple(terms)
        rest = rest - term


def _exact_part(weights: np.ndarray, *, channelwise: bool) -> np.ndarray:
    """Return an array of weights clipped to 8 bits, and to -127 where packed products would overflow.

    The rest is left out.
    """
    smallest = int(weights.min(initial=0))
    if smallest > _SMALLEST and weights.max(initial=0) <= _LARGEST:
        return weights
    part = np.clip(weights, _SMALLEST, _LARGEST)
    if channelwise:
        return part
    even, odd = part[::2], part[1::2]  # views
    odd[(odd == _SMALLEST) & (even[: len(odd)] < 0)] += 1
    for first in range(0, part.shape[1] - CHAIN + 1, CHAIN):
        even[:, first][(even[:, first : first + CHAIN] == _SMALLEST).all(axis=1)] += 1
    return part


def _region(weights: np.ndarray) -> tuple[Span, ...]:
    """Return a tuple of (begin, end) ranges of channel blocks (of 8), rows and columns with all nonzero weights."""
    spans = []
    for axis in range(1, weights.ndim):
        indices = np.flatnonzero(weights.any(axis=tuple(other for other in range(weights.ndim) if other != axis)))
        begin, end = int(indices[0]), int(indices[-1]) + 1
        if axis == 1:
            begin, end = begin // LANES * LANES, min(-(-end // LANES) * LANES, weights.shape[1])
        spans.append((begin, end))
    return tuple(spans)


@dataclass(frozen=True, kw_only=True)
class StoredRange:
    """Zero point and lower and upper limit of a pass's outputs, as the signed bytes that memory stores."""

    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LookupTables:
    """Lookup tables that a pass loads into the engine, int64 ``(n, 256)``, and index of the first one there."""

    first: int
    entries: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ProductMap:
    """Feature map that multiplies another map elementwise on the engine, with the zero points of both.

    Parameters
    ----------
    factor : tuple of (str, int)
        Edge of the map, and its first block.
    zero_points : tuple of int
        Zero points of the sums and of the map, as signed bytes. They are subtracted before the multiplication.
    is_pixel : bool
        Whether the map is a single pixel, the factor of all pixels of the other map.
    """

    factor: tuple[str, int]
    zero_points: tuple[int, int]
    is_pixel: bool = False


@dataclass(frozen=True, kw_only=True)
class PixelGrid:
    """Grid of output pixels that one run of a layer writes: each ``step``-th row and column, starting at ``first``."""

    step: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)

    def at(self, axis: int, pixel: int) -> int:
        """Return the row (axis 0) or column (axis 1) of the written map for an output pixel of the pass."""
        return pixel * self.step[axis] + self.first[axis]


class Kept(NamedTuple):
    """Rows of a pass's input, second operand and output that the on-chip map memory holds, as three numbers.

    0 rows are a map in off-chip memory; fewer rows than the map has are a ring buffer.
    """

    source: int = 0
    operand: int = 0
    target: int = 0


NOTHING_KEPT = Kept()


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedProgram:
    """Program, constants and lookup words that the engine's fixed-point unit needs to compute a layer's outputs.

    Parameters
    ----------
    words : ndarray
        Instructions, int64.
    constants : ndarray
        Words of constants, int64 ``(n, 1 or M)``.
    lookups : ndarray
        Words of lookups, int64.
    slots : int
        Number of slots of the register file.
    """

    words: np.ndarray
    constants: np.ndarray
    lookups: np.ndarray
    slots: int

    def packed_constants(self, maps: int, members: int) -> np.ndarray:
        """Return an array of all constants as parameter words in load order: blocks of 8 channels, dealt to cores."""
        if self.shares_constants:
            return np.repeat(self.constants, LANES, axis=1).reshape(-1)
        blocks = -(-maps // (LANES * members)) * members
        whole = np.zeros((len(self.constants), blocks * LANES), np.int64)
        whole[:, :maps] = self.constants
        return whole.reshape(len(whole), -1, members, LANES).transpose(1, 0, 2, 3).reshape(-1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tuple of numbers of instructions, constants, lookup words, slots; last, whether channels share constants."""
        return len(self.words), len(self.constants), len(self.lookups), self.slots, self.shares_constants

    @property
    def has_float_sums(self) -> bool:
        """Whether an instruction rounds a sum to float32."""
        codes = self.words >> INSTRUCTION["code"].offset & (1 << INSTRUCTION["code"].width) - 1
        return bool((codes == Opcode.ADD_FLOAT).any())

    @property
    def shares_constants(self) -> bool:
        """Whether all output channels have the same constants in this fixed-point program."""
        return self.constants.shape[1] == 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """One run of a layer, or of a part of it, through the engine's MAC array, with the operations fused onto it.

    The fused operations change the outputs: an addition or product, a lookup table, a pool.

    Parameters
    ----------
    name : str
        Name of the layer.
    source : tuple of (str, int)
        Edge of the map that is read, and the first block there.
    target : tuple of (str, int)
        Edge of the map that is written, and the first block there.
    height, width : int
        Height and width of the map that is read, in pixels.
    channels : int
        Number of input channels that each fold reads: all channels of a convolution, 8 of a channelwise pass.
    maps : int
        Number of output channels.
    window : Window
    rows, columns : int
        Rows and columns of output pixels that are computed, before pooling.
    pad : int
        Signed value that windows read beyond the map.
    weights : ndarray or None
        int64 ``(M, C, Kh, Kw)``, with ``C = 1`` for a channelwise pass; ``None`` if not known. ``M`` is 8 if all folds
        of a channelwise pass share their weights.
    rule : StoredRange or None
        Zero point and bounds of the outputs; ``None`` if not known.
    parameters : ndarray or None
        Parameter words, uint64 ``(M,)``; ``None`` if not known. ``M`` is 8 if all folds of a channelwise pass share
        their parameters.
    channelwise, maximum : bool
        Whether steps compute each channel by itself, and whether they take the maximum in place of the sum.
    addend : tuple of (str, int), optional
        Edge of a map that is added to the outputs before pooling, and its first block.
    sum_rule : StoredRange, optional
        Zero point and bounds of the sums with the addend.
    product : ProductMap, optional
        Map that multiplies the sums before they are requantised.
    tables : tuple of LookupTables
        Tables of the addition, and of a function that is looked up for each output.
    pooled : bool
        Whether only the maxima of 2 x 2 output pixels are written.
    lattice : PixelGrid
        Pixels of the target that the outputs are written to.
    split : Split
        Division among the cores of the engine. If teams divide the rows, ``rows`` are the rows of one team.
    kept : Kept
        Maps in the map memory.
    unfold_columns : int
        Number of columns of the network's input that are channels of one pixel of the map that is read; 0 if the map is
        not unfolded (`Unfold`).
    unfold_rows : int
        Number of rows of such a pixel; 0 for all rows of the kernel.
    last_channels : int
        Number of channels that the last kernel column of an unfolded map reads. Weights of other channels are 0 there.
    fixed : FixedProgram, optional
        Program of the fixed unit, which computes the outputs from the sums, without requantisation.
    operands : tuple of Pass
        Passes that bring a program's operands to the fixed unit, in the order of their slots. If there are none, the
        sums of the pass itself are the operand.
    is_operand : bool
        Whether this is a pass that brings an operand. Each 8 rows of its weights give one byte of the values.
    arrival : Arrival
        How the sums arrive at the fixed unit.
    output_bytes : int
        Number of bytes of an output value. The written map has a row for each of them.
    """

    name: str
    source: tuple[str, int]
    target: tuple[str, int]
    height: int
    width: int
    channels: int
    maps: int
    window: Window
    rows: int
    columns: int
    pad: int
    weights: np.ndarray | None
    rule: StoredRange | None
    parameters: np.ndarray | None
    channelwise: bool = False
    maximum: bool = False
    addend: tuple[str, int] | None = None
    sum_rule: StoredRange | None = None
    product: ProductMap | None = None
    tables: tuple[LookupTables, ...] = ()
    pooled: bool = False
    lattice: PixelGrid = PixelGrid()
    split: Split = UNDIVIDED
    kept: Kept = NOTHING_KEPT
    unfold_columns: int = 0
    unfold_rows: int = 0
    last_channels: int = 0
    fixed: FixedProgram | None = None
    operands: tuple[Pass, ...] = ()
    is_operand: bool = False
    arrival: Arrival = Arrival.SUMS
    output_bytes: int = 1

    def keeping(self, rows: Mapping[str, int]) -> Pass:
        """Return a `Pass`: a copy of the pass whose maps have ``rows`` rows (by map name) in the on-chip map memory."""
        source, target = rows.get(self.source[0], 0), rows.get(self.target[0], 0)
        operand = rows.get(self.operand[0], 0) if self.operand else 0
        return replace(self, kept=Kept(source=source, operand=operand, target=target))

    def kept_rows(self) -> dict[str, int]:
        """Return a dict by map name: number of rows in on-chip map memory of each map that the pass accesses."""
        edges = self.source, self.operand or ("", 0), self.target
        return {edge: rows for (edge, _), rows in zip(edges, self.kept, strict=True) if edge}

    def core_maps(self, engine: EngineConfig) -> int:
        """Return the number of output channels that one core computes at once: ``maps``, or 8 if channelwise."""
        return LANES if self.channelwise else engine.maps

    def beat_pixels(self, engine: EngineConfig) -> int:
        """Return the number of output pixels whose sums leave the array per cycle: 1 if operations are fused."""
        return 1 if self.pooled or self.looked_up or self.operand or self.fixed else engine.beat_words

    def core_folds(self, engine: EngineConfig) -> int:
        """Return the number of output folds (channels computed at once) on one core for all output channels."""
        return -(-self.maps // self.core_maps(engine))

    def fold_maps(self, engine: EngineConfig) -> int:
        """Return the number of output channels per fold, which a team of cores (one or more) computes at once."""
        return self.split.members * self.core_maps(engine)

    def divided(self, split: Split) -> Pass:
        """Return a copy of the `Pass` divided among teams of cores: its ``rows`` are one team's output rows."""
        if not split.by_rows:
            operands = tuple(task.divided(split) for task in self.operands)
            return replace(self, split=split, operands=operands)
        rows = -(-split.total_rows // (split.teams * self.edge)) * self.edge
        whole = replace(split, total_rows=0)  # of a pixel, all teams have a copy
        operands = tuple(task.divided(split if task.size == self.size else whole) for task in self.operands)
        return replace(self, split=split, rows=rows, operands=operands)

    def folds(self, engine: EngineConfig) -> int:
        """Return the number of output folds: all output channels divided by those computed at once, rounded up."""
        return -(-self.maps // self.fold_maps(engine))

    @property
    def stride(self) -> int:
        """Horizontal stride of the kernel window, an integer number of pixels."""
        return self.window.stride[1]

    @property
    def has_single_rows(self) -> bool:
        """Whether each output tile must be a single row: strides differ, or outputs are not adjacent in memory.

        Lanes step by one stride in both directions.
        """
        is_uneven = self.window.stride[0] != self.window.stride[1] and not self.copies_bytes
        return self.is_scattered or is_uneven or any(task.has_single_rows for task in self.operands)

    @property
    def copies_bytes(self) -> bool:
        """Whether the pass only copies a map's values to the fixed-point unit, byte by byte."""
        return self.is_operand and self.window.kernel == self.window.stride and not self.reads_outside

    @cached_property
    def reads_outside(self) -> bool:
        """Whether windows of the pass (run of the array) reach beyond the first or the last row of its input map."""
        first, last = self.window.reach(0, 0, max(self.rows, self.split.total_rows))
        return first < 0 or last > self.height

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Hashable tuple of all that determines the pass's jobs, except memory addresses; a cache key.

        Passes with equal tuples have equal tilings.
        """
        sizes = (self.height, self.width, self.channels, self.maps, self.rows, self.columns, self.window)
        tables = tuple(each.first for each in self.tables)
        joined = self.addend is None, self.product is None, self.reads_pixel
        kinds = (self.channelwise, *joined, self.pooled, self.shares_weights, self.shares_parameters)
        terms = tuple((term.channels, term.rows, term.columns) for term in self.further_terms)
        unfolded = self.unfold_columns, self.unfold_rows, self.last_channels
        fixed = self.fixed and (*self.fixed.sizes, self.output_bytes, *(task.shape for task in self.operands))
        return (*sizes, *kinds, tables, self.lattice.step, terms, self.split, self.kept, unfolded, fixed)

    @property
    def bare(self) -> Pass:
        """Copy of this `Pass` (run of the array) without most weights, small enough to send to a worker process."""
        if self.further_terms:
            return self
        return replace(
            self, weights=self.weights[: LANES + 1] if self.channelwise and self.weights is not None else None
        )

    @cached_property
    def terms(self) -> tuple[WeightTerm, ...]:
        """Tuple of weight arrays (`WeightTerm`) that sum to the pass's weights, each multiplied exactly."""
        assert self.weights is not None
        return weight_terms(self.weights, channelwise=self.channelwise)

    @property
    def further_terms(self) -> tuple[WeightTerm, ...]:
        """Tuple of each `WeightTerm` after the first one in `terms`; each takes more jobs. Most layers have none."""
        return () if self.weights is None else self.terms[1:]

    @property
    def is_scattered(self) -> bool:
        """Whether neighbouring outputs in a row of the pass are not adjacent in the written map, as in upsampling."""
        return self.lattice.step[1] > 1 or (self.lattice.step[0] > 1 and self.output_bytes > 1)

    @cached_property
    def edges(self) -> tuple[str, ...]:
        """Tuple of names of the feature maps that the pass (run of the array) reads, then of the map it writes."""
        read = (self.source, *(task.source for task in self.operands), *([self.operand] if self.operand else []))
        return tuple(dict.fromkeys(edge for edge, _ in (*read, self.target)))

    @property
    def operand(self) -> tuple[str, int] | None:
        """Pair: name and first 8-channel block of a map that is added to or multiplies outputs; ``None`` if none is."""
        return self.product.factor if self.product else self.addend

    @property
    def reads_pixel(self) -> bool:
        """Whether the outputs are multiplied by a map of a single pixel: one factor per channel for all pixels."""
        return self.product is not None and self.product.is_pixel

    @property
    def full_channels(self) -> int:
        """Number of input channels (multiple of 8) that the last kernel column reads, if it skips some; otherwise 0."""
        channels = blocks(self.last_channels) * LANES
        return channels if self.window.kernel[1] > 1 and channels < self.channels else 0

    def skips_last_column(self, channel: int) -> bool:
        """Return whether the last kernel column reads none of the input channels starting at ``channel``."""
        return self.window.kernel[1] > 1 and 0 < self.last_channels <= channel

    @property
    def shares_weights(self) -> bool:
        """Whether all output folds (channels computed at once) use the same weights, as in passes that copy or add."""
        return self.is_operand or (self.channelwise and self.weights is not None and len(self.weights) <= LANES)

    @property
    def shares_parameters(self) -> bool:
        """Whether all output folds (channels computed at once) of a channelwise pass use the same 8 parameters."""
        return self.channelwise and self.parameters is not None and len(self.parameters) <= LANES

    @property
    def looked_up(self) -> bool:
        """Whether the outputs of the pass go through a lookup table, such as an activation function's."""
        return any(each.first == ACTIVATION for each in self.tables)

    @property
    def edge(self) -> int:
        """Number of computed rows (and columns) per written row (column): 2 with fused 2 x 2 pooling, else 1."""
        return 2 if self.pooled else 1

    @property
    def written_rows(self) -> int:
        """Number of rows of the written map, after pooling, if the pass (run of the array) writes a whole map."""
        return self.rows // self.edge

    @property
    def row_step(self) -> int:
        """Number of rows from a loaded input row to the next: the stride for unpadded one-row kernels, otherwise 1.

        Kernels of one row and no padding skip the rows between strides. Tiles of one row do not, because the lanes
        beyond their last pixel would read rows that are not loaded.
        """
        skips = self.window.kernel[0] == 1 and not any(self.window.padding) and not self.has_single_rows
        return self.window.stride[0] if skips else 1

    @property
    def size(self) -> tuple[int, int]:
        """Pair of the numbers of output rows and columns that the pass (run of the array) computes, before pooling."""
        return self.rows, self.columns

    def needed(self, axis: int, begin: int, end: int, taps: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the half-open range (a pair) of input rows (axis 0) or columns (1) that outputs ``begin:end`` read.

        The half-open interval lies inside the map, and has at least one row. ``taps`` is an interval of the kernel's
        rows or columns; by default all of them. If teams divide the rows, the interval is team 0's, and can reach
        beyond the map.
        """
        limit = (self.height, self.width)[axis]
        first, last = self.window.reach(axis, begin, end)
        if taps is not None:
            apart = self.window.dilation[axis]
            first, last = first + taps[0] * apart, last - (self.window.kernel[axis] - taps[1]) * apart
        if self.split.by_rows and axis == 0:
            return first, last
        first = min(max(first, 0), limit - 1)
        return first, max(min(last, limit), first + 1)


def geometry_of(op: Op, source: tuple[str, int], block: int = 0) -> dict[str, Any]:
    """Return a dict of `Pass` keyword arguments: a layer's maps, window, output size and padding value."""
    return {
        "name": op.name,
        "source": source,
        "target": (op.name, block),
        "height": op.input.height,
        "width": op.input.width,
        "window": window_of(op),
        "rows": op.output.height,
        "columns": op.output.width,
        "pad": op.pad_value - offset(op.input.type),
    }


def window_of(op: Op) -> Window:
    """Return a layer's `Window`, with its stride replaced by 1 if the output is one pixel."""
    window = op.window
    if op.output.shape[1:] == (1, 1):
        return Window(kernel=window.kernel, padding=window.padding, dilation=window.dilation)
    return window


def rule_of(integer_type: IntegerType, zero_point: int, low: int, high: int) -> StoredRange:
    """Return a `StoredRange`: zero point and output limits of an integer type as the signed bytes in memory."""
    shift = offset(integer_type)
    return StoredRange(zero_point=zero_point - shift, low=low - shift, high=high - shift)


def unscaled_pass(op: Op, edges: Sequence[str], integer_type: IntegerType, *, maximum: bool = False) -> Pass:
    """Return a channelwise array `Pass` that outputs the maximum or the sum of each window, not requantised.

    All weights of the sum are 1.
    """
    (edge,) = edges
    ones, one = np.ones(LANES, np.int64), np.full(LANES, 1 << 23)
    return Pass(
        channels=LANES,
        maps=op.outputs,
        weights=np.ones((LANES, 1, *op.window.kernel), np.int64),
        rule=rule_of(integer_type, offset(integer_type), integer_type.minimum, integer_type.maximum),
        parameters=parameter_words(0 * ones, one, 23 * ones),
        channelwise=True,
        maximum=maximum,
        **geometry_of(op, (edge, 0)),
    )


def repeat_weights(task: Pass) -> Pass:
    """Return a `Pass` of `unscaled_pass` with weights and parameters repeated for each output channel.

    Its jobs can then compute several folds. That is fewer bytes than several jobs if the kernel has few taps.
    """
    assert task.weights is not None
    assert task.parameters is not None
    weights = np.resize(task.weights, (task.maps, *task.weights.shape[1:]))
    return replace(task, weights=weights, parameters=np.resize(task.parameters, task.maps))


def share_tables(tasks: Sequence[Pass]) -> bool:
    """Return whether two passes load the same lookup table of the engine, so that their jobs can't alternate."""
    indices = [table.first for task in tasks for table in task.tables]
    return len(set(indices)) < len(indices)
