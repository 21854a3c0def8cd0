"""Array passes of layers that combine maps value by value or look values up: sums, products, extremes, functions.

The sum of three maps is rounded once. Each map contributes a table of integers to the sum, in steps of
``2**-CONTRIBUTION_FRACTION`` of an output. ONNX Runtime adds in float32, and its roundings decide if a sum is near a
tie. The tables are therefore corrected until they give the output of every triple of values (`find_contributions`).

A contribution has more bits than the engine's maps. It is cut into digits of at most 8 bits, each a map of its own:

1. Passes with tables write the digits. Row ``y`` of digit ``d`` is row ``y * digits + d`` of a scratch map.
2. A channelwise pass adds the lower digits of all maps with their weights, and keeps what exceeds the highest digit's
   unit, or one output: the carry. The digits of a pixel are taps of a window of one column.
3. A second pass adds the highest digits and the carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS
from hwgen.gateware.engine.config import LANES, TABLE_WORDS
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.network.maps import INT8, UINT8, FeatureMap, IntegerType, Window
from hwgen.network.ops import Add, Lookup, Max, Mul, Sum
from hwgen.network.shares import find_shares
from hwgen.program.array_pass import LookupTables, Pass, PixelGrid, ProductMap, rule_of, unscaled_pass
from hwgen.program.factors import Factors, StepFunctions, fit
from hwgen.program.fixed import channel_line_passes
from hwgen.program.float_sums import MAX_ADDENDS, product_pass, sum_pass
from hwgen.program.layout import by_value, offset, parameter_words

#: Weight of all taps in passes that scale each channel by itself: large, so that biases are fractions of an input step.
_WEIGHT = 127


def add_passes(op: Add, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of an elementwise sum, in a tuple: it copies the first map, and adds the second."""
    return (with_sum(unscaled_pass(op, edges[:1], op.input.type), op, edges, 0),)


def with_sum(task: Pass, op: Add, edges: Sequence[str], operand: int) -> Pass:
    """Return a copy of a pass with a fused addition of another map, read from memory, to its own results.

    The pass computes operand ``operand`` of the addition.
    """
    first_block = task.target[1]
    return replace(
        task,
        target=(op.name, first_block),
        addend=(edges[1 - operand], first_block),
        sum_rule=rule_of(op.output.type, op.zero_after, op.low, op.high),
        tables=(LookupTables(first=0, entries=_sum_tables(op, operand)), *task.tables),
    )


def _sum_tables(op: Add, operand: int) -> np.ndarray:
    """Return the three lookup tables of a sum of two maps: each map's rescaled values, and the sum's rounding.

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
            f"{op.name}: the engine's tables have {SHARE_BITS} bits with {FRACTION} fraction bits, "
            f"too few to add at scales {op.labels}"
        )
    return words << extra_bits


def integer_sum(first: np.ndarray, second: np.ndarray) -> LookupTables:
    """Return the engine's lookup tables for an exact integer sum of two bytes' entries in ``first`` and ``second``."""
    never = np.full(TABLE_WORDS, 1 << FRACTION)
    return LookupTables(first=0, entries=np.array([first << FRACTION, second << FRACTION, never]))


def product_passes(op: Mul, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of an elementwise product: it copies the first map, and multiplies the copy by the second map."""
    factors = product_factors(op)
    if factors is None:
        return (product_pass(op, edges),)
    ones, task = np.ones(LANES, np.int64), unscaled_pass(op, edges[:1], op.input.type)
    zeros = [label.zero - offset(source.type) for label, source in zip(op.labels, op.inputs, strict=False)]
    product = ProductMap(factor=(edges[1], 0), zero_points=(zeros[0], zeros[1]), is_pixel=bool(op.spread))
    words = parameter_words(factors.bias * ones, factors.significand * ones, factors.shift * ones)
    rule = rule_of(op.output.type, factors.zero_point, op.low, op.high)
    return (replace(task, product=product, parameters=words, rule=rule),)


@lru_cache(maxsize=1024)
def product_factors(op: Mul) -> Factors | None:
    """Return the factors that round all products of two maps' values as ONNX Runtime does; ``None`` without any."""
    low, high = op.reach
    products = np.arange(low, high + 1)
    steps = StepFunctions.of_table(products[None], op.rounded(products)[None])
    scales = [np.float32(label.scale) for label in op.labels]
    ratio = scales[0] * scales[1] / scales[2]
    return fit(steps, Factors.of_ratio(np.array([ratio]), op.labels[2].zero), op.output.type)


def extreme_scratch(op: Max) -> dict[str, FeatureMap]:
    """Return the scratch maps, by name, that the passes of a maximum or minimum exchange through memory."""
    maps = {}
    for index in range(1, len(op.inputs)):
        maps[f"{op.name} excess {index}"] = replace(op.output, type=UINT8, zero_point=0)
        if index < len(op.inputs) - 1:
            maps[f"{op.name} part {index}"] = op.output
    return maps


def extreme_passes(op: Max, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return passes of a maximum ``b + max(a - b, 0)`` or minimum ``b - max(b - a, 0)``, two per further map.

    All values are integers at the output's scale, which tables give.
    """
    sign, tasks = 1 if op.greatest else -1, []
    values = [by_value(table, source.type) for table, source in zip(op.tables, op.inputs, strict=True)]
    running, running_type, so_far = edges[0], op.input.type, values[0]
    for index, edge in enumerate(edges[1:], start=1):
        is_last, value_type = index == len(edges) - 1, op.inputs[index].type
        excess, target = f"{op.name} excess {index}", op.name if is_last else f"{op.name} part {index}"
        tasks.append(
            replace(
                unscaled_pass(op, (running,), running_type),
                target=(excess, 0),
                addend=(edge, 0),
                sum_rule=rule_of(UINT8, 0, 0, UINT8.maximum),
                tables=(integer_sum(sign * so_far, -sign * values[index]),),
            )
        )
        excesses = by_value(np.arange(UINT8.maximum + 1), UINT8)
        tasks.append(
            replace(
                unscaled_pass(op, (edge,), value_type),
                target=(target, 0),
                addend=(excess, 0),
                sum_rule=rule_of(op.output.type, 0, op.low, op.high),
                tables=(integer_sum(values[index], sign * excesses),),
            )
        )
        running, running_type = target, op.output.type
        so_far = by_value(np.arange(running_type.minimum, running_type.maximum + 1), running_type)
    return tuple(tasks)


def lookup_passes(op: Lookup, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the pass of a lookup layer, in a tuple: a copy through a table, or scaled and shifted by channel.

    Raises
    ------
    ModelError
        If channels have functions of their own that are not one line each, perhaps with a function of all channels.
    """
    if (op.table == op.table[0]).all():
        return (replace(unscaled_pass(op, edges, op.input.type), tables=(lookup_table(op),)),)
    task = scaled_lookup(op)
    if task is None:
        return channel_line_passes(op, edges)
    source = edges[0], 0
    return (replace(task, source=source, addend=task.addend and source),)


@lru_cache(maxsize=1024)
def scaled_lookup(op: Lookup) -> Pass | None:
    """Return a pass that gives a lookup's outputs by factor and bias per channel, or ``None`` if impossible."""
    edges = (op.name,)
    return _scaled_pass(op, edges, op.table, int(op.table.min()), int(op.table.max())) or _scaled_and_added(op, edges)


def lookup_table(op: Lookup) -> LookupTables:
    """Return the activation table of a layer that looks the values of all channels up in one table."""
    return LookupTables(first=ACTIVATION, entries=by_value(op.table[0] - offset(op.output.type), op.input.type)[None])


def _scaled_pass(op: Lookup, edges: Sequence[str], table: np.ndarray, low: int, high: int) -> Pass | None:
    """Return a pass with factor and bias per channel that gives the outputs ``table``, or ``None`` if impossible."""
    falls = (table[:, 0] > table[:, -1])[:, None]
    rising = np.where(falls, table[:, ::-1], table)
    if (np.diff(rising) < 0).any() or low == high:
        return None
    kind, zero = op.input.type, op.input.zero_point
    values = np.arange(kind.minimum, kind.maximum + 1) - zero
    sums = _WEIGHT * np.where(falls, -values[::-1], values)
    ratio = np.maximum(rising[:, -1] - rising[:, 0], 1) / (_WEIGHT * (kind.maximum - kind.minimum))
    factors = fit(StepFunctions.of_table(sums, rising), Factors.of_ratio(ratio, op.output.zero_point), op.output.type)
    if factors is None:
        return None
    weights = np.where(falls, -_WEIGHT, _WEIGHT)
    bias = factors.bias - weights[:, 0] * (zero - offset(kind))
    return replace(
        unscaled_pass(op, edges, kind),
        weights=weights[..., None, None],
        rule=rule_of(op.output.type, factors.zero_point, low, high),
        parameters=parameter_words(bias, factors.significand, factors.shift),
    )


def _scaled_and_added(op: Lookup, edges: Sequence[str]) -> Pass | None:
    """Return a pass that scales lower (or upper) values by channel and adds a table, or ``None`` if impossible.

    For example, PRelu: all channels have the same outputs for inputs of 0 or more. Below, each has its own slope.
    ``None`` without such a pass.
    """
    table = op.table
    is_common = (table == table[0]).all(axis=0)
    for upper in (True, False):
        order = slice(None, None, -1 if upper else 1)
        length = int(np.argmin(is_common[order])) if not is_common.all() else 0
        if not length:
            continue
        border = len(is_common) - length if upper else length - 1
        base = int(table[0, border])
        common = np.zeros(len(is_common), bool)
        common[border:] = upper
        common[: border + 1] |= not upper
        own = np.where(common, base, table)
        below = own.max() <= base
        if not below and own.min() < base:
            continue
        low, high = (int(own.min()), base) if below else (base, int(own.max()))
        task = _scaled_pass(op, edges, own, low, high)
        if task is not None:
            rest = by_value(np.where(common, table[0] - base, 0), op.input.type)
            kind = op.output.type
            values = by_value(np.arange(kind.minimum, kind.maximum + 1), kind)
            return replace(
                task,
                addend=(edges[0], 0),
                sum_rule=rule_of(kind, 0, kind.minimum, kind.maximum),
                tables=(integer_sum(values, rest),),
            )
    return None


#: Number of maps that the engine can add with a single rounding, by tables of contributions.
MAPS = 3
#: Number of fractional bits of each map's contribution to a sum of three maps.
CONTRIBUTION_FRACTION = 16
#: Number of bits of a digit: contributions to a sum are stored as several maps of 8-bit digits.
_DIGIT_BITS = 8
#: Maximum number of bits of a contribution to a sum below its highest digit.
_MAX_LOW_BITS = 20
#: Largest distance of a sum from the next output, in contribution LSBs, where float32 rounding or corrections matter.
_MARGIN = 24
#: Maximum numbers of rounds, and of single corrections, in the search for contributions to a sum.
_MAX_ROUNDS, _MAX_CORRECTIONS = 400, 30_000
#: Integer larger than any sum: stands for infinity as the bound of sums with a saturated output.
_FAR = 1 << 60


@dataclass(frozen=True, eq=False)
class Contributions:
    """Integer tables of three maps, whose entries' sum has a sum layer's output as integer part, saturated.

    Parameters
    ----------
    tables : tuple of ndarray
        Contribution of each value of each map, in ascending order, in steps of ``2**-CONTRIBUTION_FRACTION``, int64.
    """

    tables: tuple[np.ndarray, ...]

    @property
    def low_bits(self) -> int:
        """Number of bits of a table's entries below the highest digit: the smallest that leaves it 8 bits."""
        bits = CONTRIBUTION_FRACTION
        while any((table.max() >> bits) - (table.min() >> bits) >= 1 << _DIGIT_BITS for table in self.tables):
            bits += 1
        return bits

    @property
    def digits(self) -> list[tuple[int, int]]:
        """Lowest bit and number of bits of each digit of an entry, except the highest, from high to low."""
        tops = range(self.low_bits, 0, -_DIGIT_BITS)
        return [(max(top - _DIGIT_BITS, 0), min(top, _DIGIT_BITS)) for top in tops]

    @property
    def bases(self) -> list[int]:
        """Offset per map, subtracted from entries' highest digits so that they fit a signed byte."""
        return [int(table.min() >> self.low_bits) + (1 << _DIGIT_BITS - 1) for table in self.tables]


def sum_passes(op: Sum, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return the passes of a sum of maps that are added in float32.

    Raises
    ------
    ModelError
        If there are too many maps.
    """
    if len(op.inputs) == 2:
        sides = {"input": op.input, "more": op.more, "output": op.output, "window": op.window}
        add = Add(name=op.name, **sides, labels=op.labels, low=op.low, high=op.high, fused=False)
        return add_passes(add, edges)
    if len(op.inputs) > MAX_ADDENDS:
        raise ModelError(
            f"{op.name}: the engine adds {MAX_ADDENDS} maps at most before it rounds, not {len(op.inputs)}; quantise "
            "the sum of some of them, or use --template stream"
        )
    shares = sum_contributions(op)
    if shares is None:
        return (sum_pass(op, edges),)
    scratch = sum_scratch(op)
    low, high = scratch
    return (
        *_digit_passes(op, edges, shares, low, high),
        _carry_pass(op, shares, low, high),
        _last_pass(op, shares, high),
    )


def sum_contributions(op: Sum) -> Contributions | None:
    """Return the tables by which the array adds a sum's three maps; ``None`` if there are none."""
    shares = find_contributions(op) if len(op.inputs) == MAPS else None
    return shares if shares and shares.low_bits <= _MAX_LOW_BITS else None


def needs_float_sums(op: Sum) -> bool:
    """Whether only the fixed-point unit adds the maps of a sum as float32 does."""
    return len(op.inputs) > 2 and sum_contributions(op) is None


def sum_scratch(op: Sum) -> dict[str, FeatureMap]:
    """Return the two scratch maps of a sum of three maps, by name: lower digits, and highest digits with the carry."""
    shares = sum_contributions(op)
    if shares is None:
        return {}
    digit = replace(op.output, type=INT8, zero_point=0, scale=None)
    return {
        f"{op.name} digits": replace(digit, height=MAPS * len(shares.digits) * digit.height),
        f"{op.name} parts": replace(digit, height=(MAPS + 1) * digit.height),
    }


def _digit_passes(op: Sum, edges: Sequence[str], shares: Contributions, low: str, high: str) -> Iterator[Pass]:
    """Yield the passes that look up every digit of each map's contribution, and write it to scratch rows.

    The first of the lower digits is stored negated, because weights reach down to -128.
    """
    count = MAPS * len(shares.digits)
    for index, (edge, table, base) in enumerate(zip(edges, shares.tables, shares.bases, strict=True)):
        digits = [((table >> shares.low_bits) - base, (high, MAPS + 1, index))]
        for position, (lowest_bit, bits) in enumerate(shares.digits):
            digit = table >> lowest_bit & (1 << bits) - 1
            stored = 127 - digit if position == 0 else digit - 128
            digits.append((stored, (low, count, position * MAPS + index)))
        source = op.inputs[index]
        for stored, (scratch, step, first) in digits:
            yield replace(
                unscaled_pass(op, (edge,), source.type),
                target=(scratch, 0),
                tables=(LookupTables(first=ACTIVATION, entries=by_value(stored, source.type)[None]),),
                lattice=PixelGrid(step=(step, 1), first=(first, 0)),
            )


def _carry_pass(op: Sum, shares: Contributions, low: str, high: str) -> Pass:
    """Return the pass that adds all maps' low digits in a sum, and writes the carry (integer part)."""
    weights = np.repeat([1 << lowest_bit for lowest_bit, _ in shares.digits], MAPS)
    offsets = np.where(np.arange(len(weights)) < MAPS, -127, 128)  # digit less what is stored, times the sign
    weights[:MAPS] *= -1
    sums = np.arange(MAPS * ((1 << shares.low_bits) - 1) + 1)
    ratio = np.array([2.0**-CONTRIBUTION_FRACTION])
    factors = fit(StepFunctions.of_table(sums, (sums >> CONTRIBUTION_FRACTION)[None]), Factors.of_ratio(ratio, 0), INT8)
    assert factors is not None
    bias = int(factors.bias[0]) + int((weights * offsets).sum())
    task = _row_sum_pass(op, low, weights, factors, bias, INT8.minimum, INT8.maximum, INT8)
    return replace(task, target=(high, 0), lattice=PixelGrid(step=(MAPS + 1, 1), first=(MAPS, 0)))


def _last_pass(op: Sum, shares: Contributions, high: str) -> Pass:
    """Return the pass that adds all maps' highest digits and the carry, and saturates the sum's output."""
    unit = 1 << shares.low_bits - CONTRIBUTION_FRACTION
    one = Factors(significand=np.array([1 << 23]), shift=np.array([23]), bias=np.zeros(1, np.int64), zero_point=0)
    factors = replace(one, zero_point=offset(op.output.type))
    bias = unit * sum(shares.bases) - offset(op.output.type)
    return _row_sum_pass(op, high, np.array([unit] * MAPS + [1]), factors, bias, op.low, op.high, op.output.type)


def _row_sum_pass(
    op: Sum,
    edge: str,
    weights: np.ndarray,
    factors: Factors,
    bias: int,
    low: int,
    high: int,
    integer_type: IntegerType,
) -> Pass:
    """Return a channelwise pass that outputs weighted sums of consecutive rows of a scratch map."""
    ones, taps = np.ones(LANES, np.int64), len(weights)
    return replace(
        unscaled_pass(op, (edge,), integer_type),
        height=taps * op.output.height,
        window=Window(kernel=(taps, 1), stride=(taps if op.output.height > 1 else 1, 1)),
        weights=np.tile(weights[:, None], (LANES, 1, 1, 1)),
        rule=rule_of(integer_type, factors.zero_point, low, high),
        parameters=parameter_words(bias * ones, factors.significand * ones, factors.shift * ones),
    )


@lru_cache(maxsize=256)
def find_contributions(op: Sum) -> Contributions | None:
    """Return the integer tables for a sum of three maps with the model's rounding; ``None`` if there are none.

    They begin at the real values. Each sum near the border of an output must lie on the side of the model's output.
    If it does not, the contributions of its three values are moved by a third of what is missing each, as in the
    relaxation of linear inequalities by Agmon, until all sums are right.
    """
    scale, one = np.float64(op.labels[-1].scale), 1 << CONTRIBUTION_FRACTION
    tables = [np.rint(reals.astype(np.float64) / scale * one).astype(np.int64) for reals in op.terms]
    tables[0] += one // 2 + op.labels[-1].zero * one
    (values, low, high), corrections = _near_borders(op, tables), 0
    for _ in range(_MAX_ROUNDS):
        missing = _shortfalls(tables, values, low, high)
        corrections += np.count_nonzero(missing)
        if not missing.any():
            return None if _any_wrong(op, tables) else Contributions(tuple(tables))
        if corrections > _MAX_CORRECTIONS:
            break
        for index in np.flatnonzero(missing):
            one = slice(index, index + 1)
            (still,) = _shortfalls(tables, values[:, one], low[one], high[one]).tolist()
            step = -(-abs(still) // MAPS) * (1 if still > 0 else -1)
            for table, value in zip(tables, values[:, index], strict=True):
                table[value] += step
    return None


def _shortfalls(tables: Sequence[np.ndarray], values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return what must be added to each sum so that it is within its bounds, an array; negative if too large."""
    sums = sum(table[value] for table, value in zip(tables, values, strict=True))
    return np.maximum(low - sums, 0) - np.maximum(sums - high, 0)


def _planes(op: Sum, tables: Sequence[np.ndarray]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each value of a sum's third map, with two arrays (sums, outputs) over the first two maps' values."""
    reals = op.terms[0][:, None] + op.terms[1][None]
    sums = tables[0][:, None] + tables[1][None]
    for value, (real, contribution) in enumerate(zip(op.terms[2], tables[2].tolist(), strict=True)):
        yield value, sums + contribution, op.rounded(reals + real)


def _near_borders(op: Sum, tables: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the value triples whose sums are near a rounding border of the output, and the sums' bounds.

    Values are indices, int64 ``(3, n)``. Sums within their bounds have the model's output as their whole part.
    """
    parts, one = [], 1 << CONTRIBUTION_FRACTION
    for value, sums, outputs in _planes(op, tables):
        near = (sums + _MARGIN & one - 1) < 2 * _MARGIN
        first, second = np.nonzero(near | (np.clip(sums >> CONTRIBUTION_FRACTION, op.low, op.high) != outputs))
        parts.append(np.array([first, second, np.full(len(first), value), outputs[first, second]]))
    *values, outputs = np.concatenate(parts, axis=1)
    low = np.where(outputs == op.low, -_FAR, outputs * one)
    high = np.where(outputs == op.high, _FAR, (outputs + 1) * one - 1)
    return np.array(values), low, high


def _any_wrong(op: Sum, tables: Sequence[np.ndarray]) -> bool:
    """Whether the contributions give another output than the model for any triple of values."""
    planes = _planes(op, tables)
    return any(
        (np.clip(sums >> CONTRIBUTION_FRACTION, op.low, op.high) != outputs).any() for _, sums, outputs in planes
    )
