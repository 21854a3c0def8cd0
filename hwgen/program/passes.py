"""Translation of layers into passes through the engine's array: one pass, several, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS
from hwgen.gateware.engine.config import LANES, STRIDES, EngineConfig
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.network.maps import IntegerType, Window
from hwgen.network.ops import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Copy,
    Crop,
    DepthToSpace,
    GlobalAveragePool,
    Lookup,
    MaxPool,
    Op,
    Pad,
    Select,
    SpaceToDepth,
    Sub,
    Upsample,
)
from hwgen.network.requantise import Requantisation, Thresholds, requantise
from hwgen.network.shares import find_shares
from hwgen.program.average import average_rule
from hwgen.program.layout import blocks, by_value, offset, parameter_words
from hwgen.program.terms import Term, weight_terms

#: Smallest and largest weight that the engine computes with, those of a signed byte.
WEIGHTS = (-128, 127)
#: Maximum kernel size and dilation: a job's fields have 8 bits.
MOST_TAPS = 255


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Zero point, lower and upper bound of requantised outputs, as the signed bytes that memory stores."""

    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """Lookup tables that an engine pass loads, int64 ``(n, 256)``, and the engine's index of the first one."""

    first: int
    entries: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """Grid of output pixels that an engine pass writes: each ``step``-th row and column of a map, from ``first`` on."""

    step: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)

    def at(self, axis: int, pixel: int) -> int:
        """Return the row (axis 0) or column (axis 1) of the written map for an output pixel of the pass."""
        return pixel * self.step[axis] + self.first[axis]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """Pass of a layer through the engine's array: a convolution or channelwise operation with fused operations.

    The fused operations change the outputs: an addition, a lookup table, a pool.

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
    rule : Rule or None
        Zero point and bounds of the outputs; ``None`` if not known.
    parameters : ndarray or None
        Parameter words, uint64 ``(M,)``; ``None`` if not known. ``M`` is 8 if all folds of a channelwise pass share
        their parameters.
    channelwise, maximum : bool
        Whether steps compute each channel by itself, and whether they take the maximum in place of the sum.
    addend : tuple of (str, int), optional
        Edge of a map that is added to the outputs before pooling, and its first block.
    sum_rule : Rule, optional
        Zero point and bounds of the sums with the addend.
    tables : tuple of Tables
        Tables of the addition, and of a function that is looked up for each output.
    pooled : bool
        Whether only the maxima of 2 x 2 output pixels are written.
    lattice : Lattice
        Pixels of the target to which the outputs are written.
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
    rule: Rule | None
    parameters: np.ndarray | None
    channelwise: bool = False
    maximum: bool = False
    addend: tuple[str, int] | None = None
    sum_rule: Rule | None = None
    tables: tuple[Tables, ...] = ()
    pooled: bool = False
    lattice: Lattice = Lattice()

    def fold_maps(self, engine: EngineConfig) -> int:
        """Return the number of output channels that the engine computes at a time in this pass."""
        return LANES if self.channelwise else engine.maps

    def folds(self, engine: EngineConfig) -> int:
        """Return the number of output folds of the pass: channels divided by those computed at a time, rounded up."""
        return -(-self.maps // self.fold_maps(engine))

    @property
    def stride(self) -> int:
        """Stride of the window of the pass, equal in both directions."""
        return self.window.stride[0]

    @property
    def shape(self) -> tuple[object, ...]:
        """Tuple of all values, addresses excepted, that determine the jobs of the pass.

        Passes with equal tuples have equal tilings.
        """
        sizes = (self.height, self.width, self.channels, self.maps, self.rows, self.columns, self.window)
        tables = tuple(each.first for each in self.tables)
        kinds = (self.channelwise, self.addend is None, self.pooled, self.shares_weights, self.shares_parameters)
        terms = tuple((term.channels, term.rows, term.columns) for term in self.further_terms)
        return (*sizes, *kinds, tables, self.lattice.step, terms)

    @property
    def bare(self) -> Pass:
        """Copy of the pass without most of its weights, small enough to send to a worker process."""
        if self.further_terms:
            return self
        return replace(
            self, weights=self.weights[: LANES + 1] if self.channelwise and self.weights is not None else None
        )

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Terms of the weights, which the engine multiplies exactly and adds; the weights must be known."""
        assert self.weights is not None
        return weight_terms(self.weights, channelwise=self.channelwise)

    @property
    def further_terms(self) -> tuple[Term, ...]:
        """Terms of the weights behind the first one, for which jobs of their own add products; mostly none."""
        return () if self.weights is None else self.terms[1:]

    @property
    def is_scattered(self) -> bool:
        """Whether neighbouring outputs in a row of the pass are not adjacent in the written map, as in upsampling.

        A tile then has one row.
        """
        return self.lattice.step[1] > 1

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the feature maps that the pass reads, and of the map that it writes."""
        return tuple(edge for edge, _ in (self.source, *([self.addend] if self.addend else []), self.target))

    @property
    def shares_weights(self) -> bool:
        """Whether all output folds of a channelwise pass use the same weights."""
        return self.channelwise and self.weights is not None and len(self.weights) <= LANES

    @property
    def shares_parameters(self) -> bool:
        """Whether all output folds of a channelwise pass use the same 8 parameter words."""
        return self.channelwise and self.parameters is not None and len(self.parameters) <= LANES

    @property
    def looked_up(self) -> bool:
        """Whether the outputs of the pass go through a lookup table, such as that of an activation function."""
        return any(each.first == ACTIVATION for each in self.tables)

    @property
    def edge(self) -> int:
        """Number of computed rows (and of columns) per written one: 2 with fused 2 x 2 pooling, 1 without."""
        return 2 if self.pooled else 1

    @property
    def row_step(self) -> int:
        """Distance between the input rows that are loaded: the stride for unpadded one-row kernels, otherwise 1.

        Kernels of one row and no padding skip the rows between strides.
        """
        return self.stride if self.window.kernel[0] == 1 and not any(self.window.padding) else 1

    @property
    def size(self) -> tuple[int, int]:
        """Number of output rows and columns that the pass computes, before pooling."""
        return self.rows, self.columns

    def needed(self, axis: int, begin: int, end: int, taps: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the input rows (axis 0) or columns (axis 1) that outputs ``begin`` to ``end - 1`` of the pass read.

        The half-open interval lies inside the map, and has at least one row. ``taps`` is an interval of the kernel's
        rows or columns; by default all of them.
        """
        limit = (self.height, self.width)[axis]
        first, last = self.window.reach(axis, begin, end)
        if taps is not None:
            apart = self.window.dilation[axis]
            first, last = first + taps[0] * apart, last - (self.window.kernel[axis] - taps[1]) * apart
        first = min(max(first, 0), limit - 1)
        return first, max(min(last, limit), first + 1)


def passes(ops: Sequence[Op], takes: Sequence[Sequence[str]], inside: Sequence[bool]) -> tuple[Pass, ...]:
    """Translate a layer, and the layers fused onto its output, into passes through the engine's array.

    Parameters
    ----------
    ops : sequence of Op
        The layer, and then the layers on its output path.
    takes : sequence of sequence of str
        Input edges of each layer.
    inside : sequence of bool
        Whether each input of the first layer is already stored in the layer's output.

    Raises
    ------
    ModelError
        If the engine can't compute a layer exactly, with the reason.
    """
    op, *behind = ops
    make = _PASSES.get(type(op))
    if isinstance(op, Concat):
        make = partial(_concat, inside=inside)
    if make is None:
        raise ModelError(f"{op.name}: the engine has no {op.kind}; layers that it computes are {', '.join(kinds())}")
    for feature_map in (*op.inputs, op.output):
        if feature_map.type.bits > LANES:
            raise ModelError(
                f"{op.name}: the engine computes with values of at most 8 bits, not with a map of {feature_map}"
            )
    _check_window(op)
    layer_passes = make(op, takes[0])
    for later_op, edges in zip(behind, takes[1:], strict=True):
        layer_passes = tuple(_with(task, later_op, edges) for task in layer_passes)
    return layer_passes


def joined(before: Sequence[Op], op: Op) -> bool:
    """Whether the engine can fuse a layer onto the output of the layers ``before``, without a pass of its own."""
    last = before[-1]
    if isinstance(op, Lookup):
        return len(op.table) == 1 and not isinstance(last, MaxPool | Lookup | Concat)
    if isinstance(before[0], Upsample | DepthToSpace):
        return False
    if isinstance(op, Add):
        return len(before) == 1 and not isinstance(last, Add | Lookup | Concat)
    halves = op.window == Window(kernel=(2, 2), stride=(2, 2))
    return isinstance(op, MaxPool) and halves and not isinstance(last, MaxPool | Concat)


def _with(task: Pass, op: Op, edges: Sequence[str]) -> Pass:
    """Return an engine pass with one more layer (addition, lookup or 2 x 2 max-pool) fused onto its output."""
    before, target = task.target[0], (op.name, task.target[1])
    if isinstance(op, Add):
        return _with_sum(task, op, edges, edges.index(before))
    if isinstance(op, Lookup):
        return replace(task, target=target, tables=(*task.tables, _lookup_table(op)))
    return replace(task, target=target, pooled=True, rows=task.rows // 2 * 2, columns=task.columns // 2 * 2)


def _average_pool(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, AveragePool)
    zero = op.input.zero_point - offset(op.input.type)
    requantisation, bias = average_rule(op), np.full(LANES, -zero * op.taps)
    rule = _rule(op.output.type, requantisation.zero_point, requantisation.low, requantisation.high)
    ones = np.ones(LANES, np.int64)
    words = parameter_words(bias, requantisation.significand * ones, requantisation.shift * ones)
    return (replace(_kept(op, edges, op.output.type), rule=rule, parameters=words),)


def _with_sum(task: Pass, op: Add, edges: Sequence[str], operand: int) -> Pass:
    """Return an engine pass with a fused addition: its own result and another map, read from memory, are added.

    The pass computes operand ``operand`` of the addition.
    """
    first_block = task.target[1]
    return replace(
        task,
        target=(op.name, first_block),
        addend=(edges[1 - operand], first_block),
        sum_rule=_rule(op.output.type, op.zero_after, op.low, op.high),
        tables=(Tables(first=0, entries=_sum_tables(op, operand)), *task.tables),
    )


def kinds() -> list[str]:
    """Return the names of the layer types that the engine computes."""
    return [kind.kind for kind in (*_PASSES, Concat, Copy)]


def _check_window(op: Op) -> None:
    window = _window(op)
    if window.stride[0] != window.stride[1] or window.stride[0] not in STRIDES:
        raise ModelError(
            f"{op.name}: the engine takes strides of 1 to {STRIDES[-1]}, the same both ways, not {window.stride}"
        )
    if max(*window.kernel, *window.dilation) > MOST_TAPS:
        raise ModelError(f"{op.name}: the engine takes kernels and dilations of at most {MOST_TAPS}, not {window}")


def _window(op: Op) -> Window:
    """Return a layer's window, with its stride replaced by 1 if the output is one pixel."""
    window = op.window
    if op.output.shape[1:] == (1, 1):
        return Window(kernel=window.kernel, padding=window.padding, dilation=window.dilation)
    return window


def _geometry(op: Op, source: tuple[str, int], block: int = 0) -> dict[str, Any]:
    """Return the `Pass` fields that describe a layer's geometry: maps, window, output size and padding value."""
    return {
        "name": op.name,
        "source": source,
        "target": (op.name, block),
        "height": op.input.height,
        "width": op.input.width,
        "window": _window(op),
        "rows": op.output.height,
        "columns": op.output.width,
        "pad": op.pad_value - offset(op.input.type),
    }


def _rule(integer_type: IntegerType, zero_point: int, low: int, high: int) -> Rule:
    shift = offset(integer_type)
    return Rule(zero_point=zero_point - shift, low=low - shift, high=high - shift)


def _conv(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, Conv)
    parameters = rule = None
    if op.requantisation is not None:
        _check_weights(op)
        zero = op.input.zero_point - offset(op.input.type)
        bias = op.bias - zero * op.weights.sum(axis=(1, 2, 3))
        rule, parameters = _requantised(op, op.requantisation, bias)
    (edge,) = edges
    if op.groups > 1 and op.groups == op.channels == op.outputs:
        whole = Pass(
            channels=LANES,
            maps=op.outputs,
            weights=op.weights if rule else None,
            rule=rule,
            parameters=parameters,
            channelwise=True,
            **_geometry(op, (edge, 0)),
        )
        return (whole,)
    groups, weights = op.groups, op.weights if rule else None
    if groups > 1 and (op.channels // groups % LANES or op.outputs // groups % LANES):
        groups, weights = 1, _spread(op) if rule else None
    return tuple(_group(op, edge, group, groups, weights, rule, parameters) for group in range(groups))


def _spread(op: Conv) -> np.ndarray:
    """Convert the weights of a grouped convolution to weights of a dense convolution, with zeros between groups."""
    maps, channels = op.outputs // op.groups, op.channels // op.groups
    whole = np.zeros((op.groups, maps, op.groups, channels, *op.window.kernel), np.int64)
    for group, weights in enumerate(op.weights.reshape(op.groups, maps, channels, *op.window.kernel)):
        whole[group, :, group] = weights
    return whole.reshape(op.outputs, op.channels, *op.window.kernel)


def _group(
    op: Conv,
    edge: str,
    group: int,
    groups: int,
    weights: np.ndarray | None,
    rule: Rule | None,
    parameters: np.ndarray | None,
) -> Pass:
    """Return the pass of one group of a grouped convolution whose groups have multiples of 8 channels."""
    channels, maps = op.channels // groups, op.outputs // groups
    outputs = slice(group * maps, (group + 1) * maps)
    return Pass(
        channels=channels,
        maps=maps,
        weights=None if weights is None else weights[outputs],
        rule=rule,
        parameters=None if parameters is None else parameters[outputs],
        **_geometry(op, (edge, group * blocks(channels)), block=group * blocks(maps)),
    )


def _check_weights(op: Conv) -> None:
    low, high = WEIGHTS
    for channel, weights in enumerate(op.weights):
        if low <= weights.min() and weights.max() <= high:
            continue
        beyond = weights[(weights < low) | (weights > high)]
        raise ModelError(
            f"{op.name}: weights must be from {low} to {high} in the engine; output channel {channel} has "
            f"{int(beyond[0])}"
        )
    if op.fraction:
        raise ModelError(f"{op.name}: the engine can't add a bias finer than its products (by {op.fraction} bits)")


def _requantised(op: Op, requantisation: Requantisation | Thresholds, bias: np.ndarray) -> tuple[Rule, np.ndarray]:
    """Convert a layer's requantisation and bias to output bounds and parameter words of the engine, or refuse them.

    The engine can't compute every requantisation.
    """
    if isinstance(requantisation, Thresholds):
        raise ModelError(
            f"{op.name}: outputs begin at sums that no factor gives, as the model's floats round; the engine only "
            "multiplies; use --template stream"
        )
    if not requantisation.float32 and not _rounds_alike(op, requantisation):
        raise ModelError(
            f"{op.name}: the model rounds this layer's products once, because a constant factor or a scale of another "
            "map went into them; the engine rounds them to float32 before, and some outputs would differ; "
            "use --template stream, or quantise what comes before the factor"
        )
    if max(int(bias.max()), -int(bias.min()) - 1) >= 1 << 31:
        raise ModelError(f"{op.name}: biases must fit 32 bits with the zero point folded in, not {np.abs(bias).max()}")
    rule = _rule(op.output.type, requantisation.zero_point, requantisation.low, requantisation.high)
    return rule, parameter_words(bias, requantisation.significand, requantisation.shift)


def _rounds_alike(op: Op, requantisation: Requantisation) -> bool:
    """Whether rounding a layer's sums to float32 before requantisation changes no output.

    Only layers whose outputs each depend on a single input are tried, because all their sums can be enumerated.
    """
    if not isinstance(op, Conv) or np.count_nonzero(op.weights, axis=(1, 2, 3)).max() > 1:
        return False
    integer_type = op.input.type
    values = (
        np.arange(integer_type.minimum, integer_type.maximum + 1) - op.input.zero_point
    )  # the range includes 0, the value of padding
    sums = (op.weights.sum(axis=(1, 2, 3))[:, None] * values << op.fraction) + op.bias[:, None]
    bound = int(np.abs(sums).max())
    return bool(
        (
            requantise(sums, requantisation, bound) == requantise(sums, replace(requantisation, float32=True), bound)
        ).all()
    )


def _max_pool(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    return (_kept(op, edges, op.output.type, maximum=True),)


def _moved(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    return (_kept(op, edges, op.output.type),)


def _lookup(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, Lookup)
    if len(op.table) > 1:
        raise ModelError(f"{op.name}: the engine has one table for all channels, not one for each of {op.channels}")
    return (replace(_kept(op, edges, op.input.type), tables=(_lookup_table(op),)),)


def _lookup_table(op: Lookup) -> Tables:
    (outputs,) = op.table
    return Tables(first=ACTIVATION, entries=by_value(outputs - offset(op.output.type), op.input.type)[None])


def _kept(op: Op, edges: Sequence[str], integer_type: IntegerType, *, maximum: bool = False) -> Pass:
    """Return a channelwise pass that requantises nothing: its output is the maximum or the sum of a window's values.

    All weights of the sum are 1.
    """
    (edge,) = edges
    ones, one = np.ones(LANES, np.int64), np.full(LANES, 1 << 23)
    return Pass(
        channels=LANES,
        maps=op.outputs,
        weights=np.ones((LANES, 1, *op.window.kernel), np.int64),
        rule=_rule(integer_type, offset(integer_type), integer_type.minimum, integer_type.maximum),
        parameters=parameter_words(0 * ones, one, 23 * ones),
        channelwise=True,
        maximum=maximum,
        **_geometry(op, (edge, 0)),
    )


def _select(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a channel selection: a convolution with one weight of 1 per output channel."""
    assert isinstance(op, Select)
    return (_picked(op, edges, op.index),)


def _picked(op: Op, edges: Sequence[str], index: Sequence[int]) -> Pass:
    """Return a convolution pass that copies input channel ``index[m]`` to each output channel ``m``."""
    weights = (np.arange(op.channels) == np.array(index)[:, None]).astype(np.int64)[..., None, None]
    one, shift = np.full(op.outputs, 1 << 23), np.full(op.outputs, 23)
    task = replace(_kept(op, edges, op.output.type), channelwise=False, channels=op.channels, weights=weights)
    return replace(task, parameters=parameter_words(0 * one, one, shift))


def _upsample(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the passes of a nearest-neighbour upsampling: one copy of the map for each pixel of an output block."""
    assert isinstance(op, Upsample)
    kept = replace(_kept(op, edges, op.output.type), rows=op.height, columns=op.width)
    return tuple(replace(kept, lattice=each) for each in _lattices(op.factors))


def _depth_to_space(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the passes of a depth-to-space layer: one for each pixel of an output block.

    Each pass copies the channels of one pixel, as whole blocks of 8 channels if possible.
    """
    assert isinstance(op, DepthToSpace)
    tasks = []
    for pixel_index, lattice in enumerate(_lattices(op.blocks)):
        first = pixel_index * op.outputs
        if op.outputs % LANES:
            task = _picked(op, edges, range(first, first + op.outputs))
        else:
            task = replace(_kept(op, edges, op.output.type), source=(edges[0], first // LANES))
        tasks.append(replace(task, rows=op.height, columns=op.width, lattice=lattice))
    return tuple(tasks)


def _lattices(step: tuple[int, int]) -> list[Lattice]:
    """Return the grids of output pixels for each position in a block of ``step`` rows and columns, row by row."""
    return [Lattice(step=step, first=first) for first in np.ndindex(step)]


def _space_to_depth(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a space-to-depth layer: a strided convolution with one weight of 1 per output channel."""
    assert isinstance(op, SpaceToDepth)
    down, right = op.blocks
    if down != right or down not in STRIDES:
        raise ModelError(
            f"{op.name}: the engine takes blocks of 1 to {STRIDES[-1]}, the same both ways, not {op.blocks}"
        )
    weights = np.zeros((down, right, op.channels, op.channels, down, right), np.int64)
    for row, column, channel in np.ndindex(down, right, op.channels):
        weights[row, column, channel, channel, row, column] = 1
    task = _picked(op, edges, range(op.outputs))
    window = Window(kernel=op.blocks, stride=op.blocks)
    return (replace(task, weights=weights.reshape(op.outputs, op.channels, down, right), window=window),)


def _concat(op: Op, edges: Sequence[str], inside: Sequence[bool]) -> tuple[Pass, ...]:
    """Return the passes that copy each input of a concatenation, through a lookup table, into the output map.

    An input that is already stored in the output map needs no pass.
    """
    assert isinstance(op, Concat)
    channel, copies = 0, []
    for edge, source, table, is_inside in zip(edges, op.inputs, op.tables, inside, strict=True):
        if channel % LANES:
            sizes = " and ".join(str(each.channels) for each in op.inputs)
            raise ModelError(
                f"{op.name}: maps that the engine joins must have multiples of {LANES} channels, not {sizes}"
            )
        if not is_inside:
            kept = replace(op, input=source, more=(), labels=(op.labels[0], op.labels[-1]), output=source)
            entries = by_value(table - offset(op.output.type), source.type)
            task = replace(_kept(kept, (edge,), source.type), target=(op.name, channel // LANES))
            copies.append(replace(task, tables=(Tables(first=ACTIVATION, entries=entries[None]),)))
        channel += source.channels
    return tuple(copies)


def _global_average(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, GlobalAveragePool)
    zero = op.input.zero_point - offset(op.input.type)
    rule, parameters = _requantised(op, op.requantisation, np.full(op.outputs, -zero * op.taps))
    (task,) = (_kept(op, edges, op.output.type),)
    return (replace(task, rule=rule, parameters=parameters),)


def _add(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass for an elementwise sum: it copies the first map, and adds the second map on the output path."""
    assert isinstance(op, Add)
    return (_with_sum(_kept(op, edges[:1], op.input.type), op, edges, 0),)


def _sum_tables(op: Add, operand: int) -> np.ndarray:
    """Return the lookup tables with which the engine adds two maps: rescaled operands, and the sum's rounding.

    The first two tables hold the rescaled values of the operands.

    Raises
    ------
    ModelError
        If the engine's tables have too few bits.
    """
    shares = find_shares(op)
    operands = [by_value(np.array(table), source.type) for table, source in zip(shares.tables, op.inputs, strict=True)]
    words = np.array([operands[operand], operands[1 - operand], np.array(shares.rounding)])
    extra_bits = FRACTION - shares.fraction
    if extra_bits < 0 or int(np.abs(words[:2]).max()) << extra_bits >= 1 << SHARE_BITS - 1:
        raise ModelError(
            f"{op.name}: the engine's tables have {SHARE_BITS} bits, {FRACTION} of them behind the point, "
            f"too few to add at scales {op.labels}"
        )
    return words << extra_bits


_PASSES: dict[type[Op], Callable[[Op, Sequence[str]], tuple[Pass, ...]]] = {
    Conv: _conv,
    MaxPool: _max_pool,
    AveragePool: _average_pool,
    GlobalAveragePool: _global_average,
    Add: _add,
    Sub: _add,
    Lookup: _lookup,
    Crop: _moved,
    Pad: _moved,
    Select: _select,
    Upsample: _upsample,
    DepthToSpace: _depth_to_space,
    SpaceToDepth: _space_to_depth,
}
