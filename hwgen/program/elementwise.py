"""Passes of layers that combine maps value by value, or look values up: sums, products, extremes, functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.arithmetic.shares import FRACTION, SHARE_BITS
from hwgen.gateware.engine.config import LANES, TABLE_WORDS
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.network.float32 import label_texts
from hwgen.network.maps import UINT8, FeatureMap
from hwgen.network.ops import Add, Lookup, Max, Mul, Sum
from hwgen.network.shares import find_shares
from hwgen.program.array_pass import LookupTables, Pass, ProductMap, rule_of, unscaled_pass
from hwgen.program.factors import Factors, StepFunctions, fit
from hwgen.program.fixed import channel_line_passes
from hwgen.program.float_sums import product_pass, sum_pass
from hwgen.program.layout import by_value, offset, parameter_words

#: Weight of all taps in passes that scale each channel by itself: large, so that biases are fractions of an input step.
_WEIGHT = 127


def add_passes(op: Add, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a one-element tuple: the `Pass` of an elementwise sum, which copies the first map and adds the second."""
    return (with_sum(unscaled_pass(op, edges[:1], op.input.type), op, edges, 0),)


def with_sum(task: Pass, op: Add, edges: Sequence[str], operand: int) -> Pass:
    """Return a `Pass`: a copy of a pass with a fused addition of another map, read from memory, to its own results.

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
    """Return an array of three lookup tables of a sum of two maps: each map's rescaled values, and the sum's rounding.

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
            f"{op.name}: the engine adds values from tables of {SHARE_BITS} bits, {FRACTION} of them after the point, "
            f"too few for {label_texts(op.labels)}; use --template stream"
        )
    return words << extra_bits


def integer_sum(first: np.ndarray, second: np.ndarray) -> LookupTables:
    """Return the engine's `LookupTables` for an exact integer sum of two bytes' entries in ``first`` and ``second``."""
    never = np.full(TABLE_WORDS, 1 << FRACTION)
    return LookupTables(first=0, entries=np.array([first << FRACTION, second << FRACTION, never]))


def product_passes(op: Mul, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a one-element tuple: the `Pass` of an elementwise product, which copies the first map times the second."""
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
    """Return the `Factors` that round all products of two maps as ONNX Runtime does; ``None`` if none are found."""
    low, high = op.reach
    products = np.arange(low, high + 1)
    steps = StepFunctions.of_table(products[None], op.rounded(products)[None])
    scales = [np.float32(label.scale) for label in op.labels]
    ratio = scales[0] * scales[1] / scales[2]
    return fit(steps, Factors.of_ratio(np.array([ratio]), op.labels[2].zero), op.output.type)


def extreme_scratch(op: Max) -> dict[str, FeatureMap]:
    """Return a dict of the scratch maps, by name, that the passes of a maximum or minimum exchange through memory."""
    maps = {}
    for index in range(1, len(op.inputs)):
        maps[f"{op.name} excess {index}"] = replace(op.output, type=UINT8, zero_point=0)
        if index < len(op.inputs) - 1:
            maps[f"{op.name} part {index}"] = op.output
    return maps


def extreme_passes(op: Max, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple, two `Pass` objects per map: maximum ``b + max(a - b, 0)``, minimum ``b - max(b - a, 0)``.

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
    """Return a one-element tuple: the `Pass` of a lookup, a copy through a table or with factor and bias per channel.

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
    """Return a `Pass` that gives a lookup's outputs by factor and bias per channel; ``None`` if none are exact."""
    edges = (op.name,)
    return _scaled_pass(op, edges, op.table, int(op.table.min()), int(op.table.max())) or _scaled_and_added(op, edges)


def lookup_table(op: Lookup) -> LookupTables:
    """Return `LookupTables`: the activation table of a layer that looks the values of all channels up in one table."""
    return LookupTables(first=ACTIVATION, entries=by_value(op.table[0] - offset(op.output.type), op.input.type)[None])


def _scaled_pass(op: Lookup, edges: Sequence[str], table: np.ndarray, low: int, high: int) -> Pass | None:
    """Return a `Pass` that gives the outputs ``table`` by factor and bias per channel; ``None`` if none are exact."""
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
    """Return a `Pass` that scales inputs below (or above) a border by channel and adds a table; ``None`` if inexact.

    For example, PRelu: all channels have the same outputs for inputs of 0 or more. Below, each has its own slope.
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


def sum_passes(op: Sum, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple with the `Pass` (run of the array) of a sum of maps that are added in float32.

    Raises
    ------
    ModelError
        If there are too many maps.
    """
    if needs_float_sums(op):
        return (sum_pass(op, edges),)
    sides = {"input": op.input, "more": op.more, "output": op.output, "window": op.window}
    add = Add(name=op.name, **sides, labels=op.labels, low=op.low, high=op.high, fused=False)
    return add_passes(add, edges)


def needs_float_sums(op: Sum) -> bool:
    """Return whether only the fixed-point unit adds a sum's maps as float32 does, as the drain adds only two maps."""
    return len(op.inputs) > 2
