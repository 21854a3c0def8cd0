"""Layers as the engine computes them: each is one pass over its maps, or several, or none where only addresses move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from hwgen.network.requantise import Requantisation, requantise
from hwgen.network.shares import find_shares
from hwgen.program.average import average_rule
from hwgen.program.layout import blocks, by_value, offset, parameter_words

#: A weight is a byte.
WEIGHTS = (-128, 127)
#: What a job's fields count, kernels and dilations: 8 bits.
MOST_TAPS = 255


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is added to rounded outputs, and their bounds; signed."""

    zero_point: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """Tables that a pass loads: int64 ``(n, 256)``, from table ``first`` of the engine on."""

    first: int
    entries: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """Pixels of a map that lie ``step`` rows and columns apart, from row and column ``first`` on."""

    step: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)

    def at(self, axis: int, place: int) -> int:
        """The row (axis 0) or column of the map."""
        return place * self.step[axis] + self.first[axis]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A convolution or a channelwise operation, on whole blocks of its maps.

    Parameters
    ----------
    name : str
        Of the layer.
    source : tuple of (str, int)
        The map that is read, by its edge, and its first block.
    target : tuple of (str, int)
        The map that is written, and its first block.
    height, width : int
        Of the map that is read.
    channels : int
        That each fold reads: all of a convolution's, 8 of a channelwise pass.
    maps : int
        Output channels.
    window : Window
    rows, columns : int
        Pixels that are computed.
    pad : int
        What windows read beyond the map, signed.
    weights : ndarray or None
        int64 ``(M, C, Kh, Kw)``, C being 1 of channelwise passes; ``None`` if not known. Of 8 maps, if all folds of a
        channelwise pass have the same.
    rule : Rule or None
        ``None`` if not known.
    parameters : ndarray or None
        uint64, for each map; ``None`` if not known. Of 8 maps likewise.
    channelwise, maximum : bool
        Kind of the steps.
    addend : tuple of (str, int), optional
        A map that is added to what is computed, before it is pooled; and its first block.
    sum_rule : Rule, optional
        Of their sum.
    tables : tuple of Tables
        Of an addition, and of a function of each output.
    pooled : bool
        Of each 2 x 2 pixels that are computed the greatest values are written.
    lattice : Lattice
        Where in the target what is computed lies.
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
        """Output channels of a fold."""
        return LANES if self.channelwise else engine.maps

    def folds(self, engine: EngineConfig) -> int:
        return -(-self.maps // self.fold_maps(engine))

    @property
    def stride(self) -> int:
        return self.window.stride[0]

    @property
    def shape(self) -> tuple[object, ...]:
        """All that its jobs depend on but addresses: equal for two passes that are cut alike."""
        sizes = (self.height, self.width, self.channels, self.maps, self.rows, self.columns, self.window)
        tables = tuple(each.first for each in self.tables)
        kinds = (self.channelwise, self.addend is None, self.pooled, self.shares_weights, self.shares_parameters)
        return (*sizes, *kinds, tables, self.lattice.step)

    @property
    def bare(self) -> Pass:
        """The same without weights that its shape doesn't depend on, which may be many."""
        return replace(
            self, weights=self.weights[: LANES + 1] if self.channelwise and self.weights is not None else None
        )

    @property
    def is_scattered(self) -> bool:
        """Whether pixels that are computed beside each other are not written so: then a tile is one row."""
        return self.lattice.step[1] > 1

    @property
    def edges(self) -> tuple[str, ...]:
        """Of the maps that it reads and of the one that it writes."""
        return tuple(edge for edge, _ in (self.source, *([self.addend] if self.addend else []), self.target))

    @property
    def shares_weights(self) -> bool:
        """Whether all folds have the same."""
        return self.channelwise and self.weights is not None and len(self.weights) <= LANES

    @property
    def shares_parameters(self) -> bool:
        """Whether all folds have the same."""
        return self.channelwise and self.parameters is not None and len(self.parameters) <= LANES

    @property
    def looked_up(self) -> bool:
        """Whether outputs are looked up in a table of their own."""
        return any(each.first == ACTIVATION for each in self.tables)

    @property
    def edge(self) -> int:
        """Rows and columns of computed pixels that make one that is written."""
        return 2 if self.pooled else 1

    @property
    def row_step(self) -> int:
        """From a row of the input that is loaded to the next: those between are in no window of one row."""
        return self.stride if self.window.kernel[0] == 1 and not any(self.window.padding) else 1

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns that are computed."""
        return self.rows, self.columns

    def needed(self, axis: int, begin: int, end: int, taps: tuple[int, int] | None = None) -> tuple[int, int]:
        """Rows (axis 0) or columns of the input for outputs ``begin`` to ``end``: one at least, and none beyond it.

        ``taps`` are those of the kernel's rows or columns that are meant, if not all are.
        """
        limit = (self.height, self.width)[axis]
        first, last = self.window.reach(axis, begin, end)
        if taps is not None:
            apart = self.window.dilation[axis]
            first, last = first + taps[0] * apart, last - (self.window.kernel[axis] - taps[1]) * apart
        first = min(max(first, 0), limit - 1)
        return first, max(min(last, limit), first + 1)


def passes(ops: Sequence[Op], takes: Sequence[Sequence[str]], inside: Sequence[bool]) -> tuple[Pass, ...]:
    """The passes of a layer, and of those behind it that are computed on the way out (`joined`).

    ``takes`` are the maps of each; those of the first one that are ``inside`` lie in its output already.

    Raises
    ------
    ModelError
        If the engine can't compute it exactly, with the reason.
    """
    op, *behind = ops
    make = _PASSES.get(type(op))
    if isinstance(op, Concat):
        make = partial(_concat, inside=inside)
    if make is None:
        raise ModelError(f"{op.name}: the engine has no {op.kind}; layers that it computes are {', '.join(kinds())}")
    for each in (*op.inputs, op.output):
        if each.type.bits > LANES:
            raise ModelError(f"{op.name}: the engine computes with values of at most 8 bits, not with a map of {each}")
    _check_window(op)
    found = make(op, takes[0])
    for each, edges in zip(behind, takes[1:], strict=True):
        found = tuple(_with(task, each, edges) for task in found)
    return found


def joined(before: Sequence[Op], op: Op) -> bool:
    """Whether a layer can be computed on the way out of another one, with those that are so already."""
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
    """The pass with a layer on its way out, which takes these maps."""
    before, target = task.target[0], (op.name, task.target[1])
    if isinstance(op, Add):
        return _with_sum(task, op, edges, edges.index(before))
    if isinstance(op, Lookup):
        return replace(task, target=target, tables=(*task.tables, _lookup_table(op)))
    return replace(task, target=target, pooled=True, rows=task.rows // 2 * 2, columns=task.columns // 2 * 2)


def _average_pool(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, AveragePool)
    zero = op.input.zero_point - offset(op.input.type)
    given, bias = average_rule(op), np.full(LANES, -zero * op.taps)
    rule = _rule(op.output.type, given.zero_point, given.low, given.high)
    ones = np.ones(LANES, np.int64)
    words = parameter_words(bias, given.significand * ones, given.shift * ones)
    return (replace(_kept(op, edges, op.output.type), rule=rule, parameters=words),)


def _with_sum(task: Pass, op: Add, edges: Sequence[str], place: int) -> Pass:
    """The pass with an addition on its way out, of which it computes the operand with that number."""
    first = task.target[1]
    return replace(
        task,
        target=(op.name, first),
        addend=(edges[1 - place], first),
        sum_rule=_rule(op.output.type, op.zero_after, op.low, op.high),
        tables=(Tables(first=0, entries=_sum_tables(op, place)), *task.tables),
    )


def kinds() -> list[str]:
    """Kinds of layers that the engine computes."""
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
    """Its window; of one output only, strides say nothing."""
    window = op.window
    if op.output.shape[1:] == (1, 1):
        return Window(kernel=window.kernel, padding=window.padding, dilation=window.dilation)
    return window


def _geometry(op: Op, source: tuple[str, int], block: int = 0) -> dict[str, Any]:
    """What every pass of a layer has, from this map into its own from a block on."""
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


def _rule(kind: IntegerType, zero_point: int, low: int, high: int) -> Rule:
    less = offset(kind)
    return Rule(zero_point=zero_point - less, low=low - less, high=high - less)


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
    """The weights of groups as those of one, with zeros for the channels of others."""
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
    """One of so many groups, which lie on whole blocks."""
    channels, maps = op.channels // groups, op.outputs // groups
    those = slice(group * maps, (group + 1) * maps)
    return Pass(
        channels=channels,
        maps=maps,
        weights=None if weights is None else weights[those],
        rule=rule,
        parameters=None if parameters is None else parameters[those],
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


def _requantised(op: Op, given: Requantisation, bias: np.ndarray) -> tuple[Rule, np.ndarray]:
    """The rule and the parameters of each map, if the engine has the like."""
    if not given.float32 and not _rounds_alike(op, given):
        raise ModelError(
            f"{op.name}: the model rounds this layer's products once, because a constant factor or a scale of another "
            "map went into them; the engine rounds them to float32 before, and some outputs would differ; "
            "use --template stream, or quantise what comes before the factor"
        )
    if max(int(bias.max()), -int(bias.min()) - 1) >= 1 << 31:
        raise ModelError(f"{op.name}: biases must fit 32 bits with the zero point folded in, not {np.abs(bias).max()}")
    rule = _rule(op.output.type, given.zero_point, given.low, given.high)
    return rule, parameter_words(bias, given.significand, given.shift)


def _rounds_alike(op: Op, given: Requantisation) -> bool:
    """Whether rounding to float32 on the way changes no output, as where a layer only clips or rescales integers.

    Only layers are looked at each of whose outputs depends on one input: all sums can be tried then.
    """
    if not isinstance(op, Conv) or np.count_nonzero(op.weights, axis=(1, 2, 3)).max() > 1:
        return False
    kind = op.input.type
    values = np.arange(kind.minimum, kind.maximum + 1) - op.input.zero_point  # padding is 0, one of them
    sums = (op.weights.sum(axis=(1, 2, 3))[:, None] * values << op.fraction) + op.bias[:, None]
    bound = int(np.abs(sums).max())
    return bool((requantise(sums, given, bound) == requantise(sums, replace(given, float32=True), bound)).all())


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


def _kept(op: Op, edges: Sequence[str], kind: IntegerType, *, maximum: bool = False) -> Pass:
    """Of each window the greatest value, or its only one, as it is."""
    (edge,) = edges
    ones, one = np.ones(LANES, np.int64), np.full(LANES, 1 << 23)
    return Pass(
        channels=LANES,
        maps=op.outputs,
        weights=np.ones((LANES, 1, *op.window.kernel), np.int64),
        rule=_rule(kind, offset(kind), kind.minimum, kind.maximum),
        parameters=parameter_words(0 * ones, one, 23 * ones),
        channelwise=True,
        maximum=maximum,
        **_geometry(op, (edge, 0)),
    )


def _select(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """A convolution with one weight of 1 for each output channel."""
    assert isinstance(op, Select)
    return (_picked(op, edges, op.index),)


def _picked(op: Op, edges: Sequence[str], index: Sequence[int]) -> Pass:
    """For each output channel the input channel with that number, as it is."""
    weights = (np.arange(op.channels) == np.array(index)[:, None]).astype(np.int64)[..., None, None]
    one, shift = np.full(op.outputs, 1 << 23), np.full(op.outputs, 23)
    task = replace(_kept(op, edges, op.output.type), channelwise=False, channels=op.channels, weights=weights)
    return replace(task, parameters=parameter_words(0 * one, one, shift))


def _upsample(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """A copy for each place in the blocks of pixels."""
    assert isinstance(op, Upsample)
    kept = replace(_kept(op, edges, op.output.type), rows=op.height, columns=op.width)
    return tuple(replace(kept, lattice=each) for each in _lattices(op.factors))


def _depth_to_space(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """For each place in the blocks of pixels its channels: a copy of whole blocks of channels, or picked."""
    assert isinstance(op, DepthToSpace)
    found = []
    for number, lattice in enumerate(_lattices(op.blocks)):
        first = number * op.outputs
        if op.outputs % LANES:
            task = _picked(op, edges, range(first, first + op.outputs))
        else:
            task = replace(_kept(op, edges, op.output.type), source=(edges[0], first // LANES))
        found.append(replace(task, rows=op.height, columns=op.width, lattice=lattice))
    return tuple(found)


def _lattices(step: tuple[int, int]) -> list[Lattice]:
    """One for each place in blocks of so many rows and columns, row by row."""
    return [Lattice(step=step, first=first) for first in np.ndindex(step)]


def _space_to_depth(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """A convolution whose kernel is a block of pixels, with one weight of 1 for each output channel."""
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
    """A copy of each map that doesn't lie there already, through its table."""
    assert isinstance(op, Concat)
    first, found = 0, []
    for edge, source, table, there in zip(edges, op.inputs, op.tables, inside, strict=True):
        if first % LANES:
            sizes = " and ".join(str(each.channels) for each in op.inputs)
            raise ModelError(
                f"{op.name}: maps that the engine joins must have multiples of {LANES} channels, not {sizes}"
            )
        if not there:
            kept = replace(op, input=source, more=(), labels=(op.labels[0], op.labels[-1]), output=source)
            entries = by_value(table - offset(op.output.type), source.type)
            task = replace(_kept(kept, (edge,), source.type), target=(op.name, first // LANES))
            found.append(replace(task, tables=(Tables(first=ACTIVATION, entries=entries[None]),)))
        first += source.channels
    return tuple(found)


def _global_average(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    assert isinstance(op, GlobalAveragePool)
    zero = op.input.zero_point - offset(op.input.type)
    rule, parameters = _requantised(op, op.requantisation, np.full(op.outputs, -zero * op.taps))
    (task,) = (_kept(op, edges, op.output.type),)
    return (replace(task, rule=rule, parameters=parameters),)


def _add(op: Op, edges: Sequence[str]) -> tuple[Pass, ...]:
    """The first map as it is, and the second one on its way out."""
    assert isinstance(op, Add)
    return (_with_sum(_kept(op, edges[:1], op.input.type), op, edges, 0),)


def _sum_tables(op: Add, place: int) -> np.ndarray:
    """What the values of the operand with that number add to the sum, those of the other one, and its rounding.

    Raises
    ------
    ModelError
        If the engine's tables have too few bits.
    """
    shares = find_shares(op)
    operands = [by_value(np.array(table), each.type) for table, each in zip(shares.tables, op.inputs, strict=True)]
    words = np.array([operands[place], operands[1 - place], np.array(shares.rounding)])
    more = FRACTION - shares.fraction
    if more < 0 or int(np.abs(words[:2]).max()) << more >= 1 << SHARE_BITS - 1:
        raise ModelError(
            f"{op.name}: the engine's tables have {SHARE_BITS} bits, {FRACTION} of them behind the point, "
            f"too few to add at scales {op.labels}"
        )
    return words << more


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
