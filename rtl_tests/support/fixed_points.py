"""Random layers of fixed-point steps, and their values by the definition of each step, with fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor
from random import Random
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import FeatureMap, IntegerType, Requantisation, Window, signed_bits
from hwgen.network.ops.fixed_point import (
    Curve,
    Extremum,
    Factor,
    FixedPoint,
    Limits,
    Offset,
    Operation,
    Plus,
    Range,
    Shift,
    Table,
    Times,
)

#: Widths, in bits, of inputs: those of tables, and of wide maps.
WIDTHS = (2, 5, 8, 8, 12, 20, 27, 32)


def nearest(value: Fraction) -> int:
    """Return the nearest integer, ties upwards."""
    return floor(value + Fraction(1, 2))


def _entry(constants: np.ndarray, channel: int) -> Any:
    return constants[channel if len(constants) > 1 else 0].tolist()


def _curve(step: Curve, value: int) -> int:
    size, count = 1 << step.segment_bits, step.coefficients.shape[1]
    segment, place = divmod(min(max(value - step.low, 0), count * size - 1), size)
    constant, linear, square = step.coefficients[:, segment].tolist()
    total = constant + (linear + floor(Fraction(square * place, size))) * place
    return floor(Fraction(total, size << step.guard))


#: Result of each class of step: a function of the step, the channel, and the operands.
DEFINITIONS: dict[type[Operation], Any] = {
    Table: lambda step, channel, a: _entry(step.table, channel)[a - step.low],
    Shift: lambda step, channel, a: nearest(a * Fraction(2) ** -step.shift),
    Factor: lambda step, channel, a: nearest(a * Fraction(_entry(step.factor, channel), 1 << step.shift)),
    Offset: lambda step, channel, a: a + _entry(step.offset, channel),
    Plus: lambda step, channel, a, b: a + b if step.sign == 1 else a - b,
    Times: lambda step, channel, a, b: nearest(Fraction(a * b, 1 << step.shift)),
    Extremum: lambda step, channel, a, b: max(a, b) if step.greatest else min(a, b),
    Limits: lambda step, channel, a: sorted((step.low, a, step.high))[1],
    Curve: lambda step, channel, a: _curve(step, a),
}


def result_of(op: FixedPoint, channel: int, operands: Sequence[int]) -> int:
    """Return the last step's result for one value of each input map."""
    values = list(operands)
    for step in op.steps:
        values.append(DEFINITIONS[type(step)](step, channel, *(values[operand] for operand in step.operands)))
    return values[-1]


def output_of(op: FixedPoint, channel: int, operands: Sequence[int]) -> int:
    """Return the layer's output for one value of each input map."""
    result, rule = result_of(op, channel, operands), op.requantisation
    if rule is None:
        return result
    scaled = Fraction(result * int(rule.significand[channel]), 1 << int(rule.shift[channel]))
    return min(max(round(scaled) + rule.zero_point, rule.low), rule.high)


def expected(op: FixedPoint, maps: Sequence[np.ndarray]) -> np.ndarray:
    """Return the layer's output map for one frame, by the definitions of its steps."""
    maps = [np.broadcast_to(values, op.output.shape) for values in maps]
    result = np.empty(op.output.shape, op.output.type.dtype)
    for place in np.ndindex(*op.output.shape):
        result[place] = output_of(op, place[0], [int(values[place]) for values in maps])
    return result


def _constants(random: Random, channels: int, reach: int) -> np.ndarray:
    count = random.choice((1, channels))
    return np.array([random.randint(-reach, reach) for _ in range(count)])


def _unary(random: Random, operand: int, ends: Range, channels: int) -> Operation:
    """Return a random step of one operand."""
    (low, high), bits = ends, signed_bits(*ends)
    if high - low < 256 and random.random() < 0.6:
        count, reach = random.choice((1, channels)), 1 << random.randint(3, 24)
        table = [[random.randint(-reach, reach) for _ in range(low, high + 1)] for _ in range(count)]
        return Table(operands=(operand,), low=low, table=np.array(table))
    if random.random() < 0.3:
        segment_bits = random.randint(1, max(bits - 2, 1))
        coefficients = [
            [random.randint(-(1 << reach), 1 << reach) for _ in range(1 << random_bits)]
            for random_bits in [random.randint(1, 4)]
            for reach in (30, 18, 18)
        ]
        return Curve(
            operands=(operand,),
            low=random.randint(low, high),
            segment_bits=min(segment_bits, 20),
            guard=random.randint(1, 4),
            coefficients=np.array(coefficients),
        )
    return random.choice(
        [
            Shift(operands=(operand,), shift=random.randint(-4, bits)),
            Factor(
                operands=(operand,),
                factor=_constants(random, channels, (1 << random.randint(1, 24)) - 1),
                shift=random.randint(0, 24),
            ),
            Offset(operands=(operand,), offset=_constants(random, channels, 1 << bits)),
            Limits(operands=(operand,), low=(mid := random.randint(low, high)), high=random.randint(mid, high)),
        ]
    )


def _binary(random: Random, operands: tuple[int, int]) -> Operation:
    """Return a random step of two operands."""
    return random.choice(
        [
            Plus(operands=operands, sign=random.choice((1, -1))),
            Times(operands=operands, shift=random.randint(0, 24)),
            Extremum(operands=operands, greatest=random.random() < 0.5),
        ]
    )


class _Program:
    """Program under construction: its steps, the ranges of all values, and which values no step reads yet."""

    def __init__(self, ranges: Sequence[Range]):
        self.steps: list[Operation] = []
        self.ranges = list(ranges)
        self.unread = set(range(len(ranges)))

    def add(self, step: Operation) -> None:
        """Add a step, or a division by a power of two where a step is too wide."""
        try:
            ends = step.range(*(self.ranges[operand] for operand in step.operands))
            if signed_bits(*ends) > 44:
                raise ConfigError("too wide")
        except ConfigError:
            step = Shift(operands=step.operands[:1], shift=signed_bits(*self.ranges[step.operands[0]]) // 2)
            ends = step.range(self.ranges[step.operands[0]])
        self.unread = (self.unread - set(step.operands)) | {len(self.ranges)}
        self.steps.append(step)
        self.ranges.append(ends)


def random_steps(random: Random, ranges: Sequence[Range], channels: int, count: int) -> _Program:
    """Return a program of about ``count`` steps that reads all inputs, given by their ranges."""
    program = _Program(ranges)
    while len(program.steps) < count or len(program.unread) > 1:
        first = random.choice(sorted(program.unread))
        if len(program.steps) < count and random.random() < 0.6:
            program.add(_unary(random, first, program.ranges[first], channels))
        else:
            second = random.choice(sorted(program.unread - {first}) or list(range(len(program.ranges))))
            program.add(_binary(random, random.choice(((first, second), (second, first)))))
    return program


def random_layer(
    random: Random, *, channels: int, height: int, width: int, count: int, bits: int | None = None
) -> FixedPoint:
    """Return a random layer of about ``count`` steps of one to three maps.

    ``bits`` is the output's width for a quantised output; by default the output is wide or quantised at random.
    """
    types = [IntegerType(bits=random.choice(WIDTHS), signed=random.random() < 0.7) for _ in range(random.randint(1, 3))]
    maps = [FeatureMap(channels=channels, height=height, width=width, type=kind) for kind in types]
    if len(maps) > 1 and random.random() < 0.3:
        maps[-1] = FeatureMap(channels=channels, height=1, width=1, type=types[-1])
    program = random_steps(random, [(kind.minimum, kind.maximum) for kind in types], channels, count)
    wide = signed_bits(*program.ranges[-1])
    if wide <= 32 and bits is None and random.random() < 0.5:
        rule, kind = None, IntegerType(bits=wide, signed=True)
    else:
        kind = IntegerType(bits=bits or random.choice((2, 4, 8, 12)), signed=random.random() < 0.5)
        low = random.randint(kind.minimum, kind.maximum - 1)
        rule = Requantisation(
            significand=np.array([random.randint(1 << 23, (1 << 24) - 1) for _ in range(channels)]),
            shift=np.array([max(wide + 24 - kind.bits + random.randint(-2, 2), 0) for _ in range(channels)]),
            zero_point=random.randint(kind.minimum, kind.maximum),
            low=low,
            high=random.randint(low, kind.maximum),
        )
    output = FeatureMap(channels=channels, height=height, width=width, type=kind)
    return FixedPoint(
        name="program",
        input=maps[0],
        more=tuple(maps[1:]),
        output=output,
        window=Window(kernel=(1, 1)),
        steps=tuple(program.steps),
        requantisation=rule,
    )


def random_maps(random: Random, op: FixedPoint) -> list[np.ndarray]:
    """Return one random frame of each of a layer's inputs, with the ends of its type among the values."""
    generator = np.random.default_rng(random.getrandbits(32))
    maps = []
    for source in op.inputs:
        ends = source.type.minimum, source.type.maximum
        values = generator.integers(*ends, endpoint=True, size=source.shape)
        chosen = generator.random(source.shape) < 0.1
        maps.append(np.where(chosen, generator.choice(ends, size=source.shape), values).astype(source.type.dtype))
    return maps
