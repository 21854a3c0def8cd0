"""Programs of fixed-point steps that compute ONNX operators between convolutions and the quantisers behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from hwgen.errors import ConfigError
from hwgen.network.maps import signed_bits
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.file import attribute
from hwgen.network.onnx.function_tables import FunctionWriter
from hwgen.network.onnx.operator_traits import Effect, with_effect
from hwgen.network.onnx.runtime import session
from hwgen.network.onnx.values import Applied, ConstantOperand, Leaf, Operand, Value, Wide, steps_in_order
from hwgen.network.ops.fixed_point import (
    MAX_VALUE_BITS,
    Curve,
    Extremum,
    Factor,
    Limits,
    Offset,
    Operation,
    Plus,
    Shift,
    Table,
    Times,
)

Function = Callable[[np.ndarray], np.ndarray]
"""Type of functions of real numbers, float64."""

_FACTOR_BITS = 24
"""Number of bits of a constant factor without its sign, as many as a float32 number has."""
_GUARD = 2
"""Number of fraction bits of intermediate values beyond those that the next quantiser asks for."""
_MAX_SEGMENTS = 1 << 11
"""Largest number of segments of a function's curve."""
_POSITION_BITS = 17
"""Number of bits of a position in a curve's segment with which a product fits a DSP slice."""
_FLOAT_ERROR = 2.0**-21
"""Error of ONNX Runtime's functions in float32, a share of results of at least 1, that polynomials can have, too."""
_TESTS = 8
"""Number of points in a segment at which a curve is compared with its function."""


@dataclass(frozen=True)
class Fixed:
    """Value of a program: its index among the layer's values, what a step of it stands for, and its integers' range.

    A step stands for ``mantissa / 2**fraction``. Usual mantissas are 1, and that of the next quantiser's scale: sums
    that are halfway between two outputs then stay so, as in ONNX Runtime.
    """

    index: int
    mantissa: float
    fraction: int
    low: int
    high: int

    @property
    def unit(self) -> float:
        """Real value of a step."""
        return math.ldexp(self.mantissa, -self.fraction)


def split(unit: float) -> tuple[float, int]:
    """Return the mantissa, from 1 to below 2, and the number of fraction bits of the real value of a step."""
    mantissa, exponent = math.frexp(unit)
    return 2 * mantissa, 1 - exponent


def leaves(formula: Applied | Leaf) -> list[Leaf]:
    """Return the maps that an expression reads, each once, maps of one pixel behind the others."""
    if isinstance(formula, Leaf):
        return [formula]
    found = [operand for step in steps_in_order(formula) for operand in step.operands if isinstance(operand, Leaf)]
    return sorted({id(leaf): leaf for leaf in found}.values(), key=lambda leaf: is_pixel(leaf.value))


def is_pixel(value: Value) -> bool:
    """Return whether a value's map has one pixel."""
    return (value.map.height, value.map.width) == (1, 1)


class FixedPointProgram:
    """FixedPointProgram that computes an expression of several maps.

    Parameters
    ----------
    constants : Constants
        Constants of the model.
    formula : Applied or Leaf
        Expression.
    units : mapping of str to float
        Largest step of fixed-point numbers that may stand for each tensor of the model.
    unit : float
        Largest step of the result.
    is_exact : bool
        Whether every value is kept exactly. Only sums, bounds and factors can be so.

    Raises
    ------
    RefusalError
        If a value needs more than `MAX_VALUE_BITS` bits, or an operator can't be computed on these values.
    """

    def __init__(
        self,
        constants: Constants,
        formula: Applied | Leaf,
        units: Mapping[str, float],
        unit: float,
        *,
        is_exact: bool = False,
    ) -> None:
        self._constants, self._units, self.is_exact = constants, units, is_exact
        self.inputs: list[Value] = []
        """Input maps of the layer."""
        self.steps: list[Operation] = []
        self.products = 0
        """Number of products with constants."""
        nodes = [] if isinstance(formula, Leaf) else [*steps_in_order(formula)]
        self.mantissa, _ = split(unit)
        self.target = max([self._fraction_bits(unit), *(self._fraction_bits(unit, step.node) for step in nodes)])
        """Number of fraction bits of the present operator's result; at first of values that come from tables."""
        read = leaves(formula)
        for leaf in read:
            if all(value.map is not leaf.value.map for value in self.inputs):
                self.inputs.append(leaf.value)
        self._known = {id(leaf): self._map_value(leaf) for leaf in read}
        for step in nodes:
            self.target = self._fraction_bits(unit, step.node)
            try:
                operands = [self._operand(step, operand) for operand in step.operands]
                self._known[id(step)] = RULES[step.node.op_type](self, step, *operands)
            except ConfigError as error:
                raise constants.refusal(step.node, str(error)) from None
        self.result = self._known[id(formula)]

    def _operand(self, step: Applied, operand: Operand) -> Fixed | np.ndarray | str:
        """Return the value of an operand, or a constant's real values; an empty text for an input that is left out."""
        if isinstance(operand, ConstantOperand):
            # Bounds of a Clip can be infinite.
            if not (np.isfinite(operand.reals).all() or step.node.op_type == "Clip"):
                raise ConfigError("must have constants that are finite")
            return operand.reals
        assert operand is not None
        return operand if isinstance(operand, str) else self._known[id(operand)]

    def _fraction_bits(self, unit: float, node: onnx.NodeProto | None = None) -> int:
        """Return the number of fraction bits of a node's result, in steps of ``unit`` if its tensor has none."""
        units = [unit] if node is None else [self._units.get(name, unit) for name in node.output]
        return split(min(units))[1] + _GUARD

    def _map_value(self, leaf: Leaf) -> Fixed:
        """Return the value of a map, by a table if it is quantised."""
        index = next(index for index, value in enumerate(self.inputs) if value.map is leaf.value.map)
        integer_type = leaf.value.map.frozen().type
        if leaf.table is None:
            assert isinstance(leaf.value.state, Wide)
            unit = split(float(leaf.value.state.scale))
            return Fixed(index, *unit, integer_type.minimum, integer_type.maximum)
        reals = np.ldexp(leaf.table.astype(np.float64) / self.mantissa, self.target)
        if self.is_exact and (reals % 1).any():
            raise ConfigError("a table is not exact")
        raw = Fixed(index, self.mantissa, self.target, integer_type.minimum, integer_type.maximum)
        return self.add(Table(operands=(index,), low=raw.low, table=np.rint(reals).astype(np.int64)), raw.fraction, raw)

    def add(self, step: Operation, fraction: int, *operands: Fixed) -> Fixed:
        """Append a step with these operands, and return its result with ``fraction`` fraction bits."""
        low, high = step.range(*((value.low, value.high) for value in operands))
        self.steps.append(step)
        return Fixed(len(self.inputs) + len(self.steps) - 1, operands[0].mantissa, fraction, low, high)

    def shifted(self, value: Fixed, fraction: int) -> Fixed:
        """Return a value with another number of fraction bits, rounded."""
        if value.fraction == fraction:
            return value
        return self.add(Shift(operands=(value.index,), shift=value.fraction - fraction), fraction, value)

    def lowered(self, value: Fixed, bits: int) -> Fixed:
        """Return a value with fewer fraction bits, if it has more than ``bits`` bits in all."""
        more = signed_bits(value.low, value.high) - bits
        if more > 0 and self.is_exact:
            raise ConfigError("exact values must have fewer bits")
        return self.shifted(value, value.fraction - more) if more > 0 else value

    def aligned(self, *values: Fixed) -> list[Fixed]:
        """Return values in equal steps."""
        mantissas = [value.mantissa for value in values]
        mantissa = self.mantissa if self.mantissa in mantissas else mantissas[0]
        values = tuple(self.scaled(value, np.ones(1), mantissa) for value in values)
        fraction = max(value.fraction for value in values)
        return [self.shifted(value, fraction) for value in values]

    def scaled(self, value: Fixed, factors: np.ndarray, mantissa: float | None = None) -> Fixed:
        """Return the product of a value and constants, float64 ``(1 or C,)``, in steps of some mantissa."""
        mantissa = value.mantissa if mantissa is None else mantissa
        factors = factors * (value.mantissa / mantissa)
        if (factors == 1).all():
            return value
        self.products += 1
        value = self.lowered(value, MAX_VALUE_BITS - _FACTOR_BITS - 1)
        _, exponent = math.frexp(np.abs(factors).max())
        places = _FACTOR_BITS - exponent
        factor = np.rint(np.ldexp(factors, places)).astype(np.int64)
        if (np.abs(factor) == 1 << _FACTOR_BITS).any():
            factor, places = factor >> 1, places - 1
        while places > 0 and not (factor & 1).any() and factor.any():
            factor, places = factor >> 1, places - 1
        shift = 0 if self.is_exact else max(value.fraction + places - self.target, 0)
        step = Factor(operands=(value.index,), factor=factor, shift=shift)
        return replace(self.add(step, value.fraction + places - shift, value), mantissa=mantissa)

    def offset(self, value: Fixed, constants: np.ndarray) -> Fixed:
        """Return the sum of a value and constants, float64 ``(1 or C,)``."""
        if not constants.any():
            return value
        fraction = max(value.fraction, self.target)
        if self.is_exact:
            fraction = max(fraction, _exact_fraction(constants))
        value = self.shifted(value, fraction)
        offset = np.rint(np.ldexp(constants / value.mantissa, fraction)).astype(np.int64)
        return self.add(Offset(operands=(value.index,), offset=offset), fraction, value)

    def plus(self, first: Fixed, second: Fixed, sign: int = 1) -> Fixed:
        """Return the sum, or the difference, of two values."""
        first, second = self.aligned(first, second)
        step = Plus(operands=(first.index, second.index), sign=sign)
        return self.add(step, first.fraction, first, second)

    def times(self, first: Fixed, second: Fixed) -> Fixed:
        """Return the product of two values."""
        half = MAX_VALUE_BITS // 2
        spare = [half - signed_bits(value.low, value.high) for value in (second, first)]
        first, second = (self.lowered(v, half + max(s, 0)) for v, s in zip((first, second), spare, strict=True))
        shift = max(first.fraction + second.fraction - self.target, 0)
        step = Times(operands=(first.index, second.index), shift=shift)
        result = self.add(step, first.fraction + second.fraction - shift, first, second)
        return replace(result, mantissa=first.mantissa * second.mantissa)

    def extreme(self, first: Fixed, second: Fixed, *, greatest: bool) -> Fixed:
        """Return the maximum or minimum of two values."""
        first, second = self.aligned(first, second)
        step = Extremum(operands=(first.index, second.index), greatest=greatest)
        return self.add(step, first.fraction, first, second)

    def bounded(self, value: Fixed, low: float, high: float) -> Fixed:
        """Return a value limited to ``low`` and ``high``."""
        if self.is_exact:
            ends = np.array([end for end in (low, high) if math.isfinite(end)])
            value = self.shifted(value, max(value.fraction, _exact_fraction(ends)))
        least, most = (end / value.unit for end in (low, high))
        if least <= value.low and value.high <= most:
            return value
        first = value.low if least <= value.low else round(least)
        last = value.high if most >= value.high else round(most)
        if first > last:  # the whole range is beyond one of the bounds
            first = last = last if most < value.low else first
        return self.add(Limits(operands=(value.index,), low=first, high=last), value.fraction, value)

    def curve(self, value: Fixed, function: Function) -> Fixed:
        """Return a function of a value by polynomials. It is constant at its ends, or a line at the upper one."""
        if self.is_exact:
            raise ConfigError("curves are not exact")
        ends = np.array([0.5, 1]) * max(value.high, 1) * value.unit
        for slope in (0.0, float(np.float32(np.diff(function(ends)).item() / np.diff(ends).item()))):
            mantissa = value.mantissa if slope else 1.0
            level = _Level(function, value.mantissa, mantissa, slope)
            if curve := self._fitted(value, level):
                fraction, step = curve
                inner = self.shifted(value, fraction)
                result = self.add(replace(step, operands=(inner.index,)), self.target, inner)
                result = replace(result, mantissa=mantissa)
                if not slope:
                    return result
                return self.plus(result, self.scaled(self.bounded(value, 0, math.inf), np.array([slope])))
        raise ConfigError("is too steep or too long for polynomials")

    def _fitted(self, value: Fixed, level: _Level) -> tuple[int, Curve] | None:
        """Return polynomials for ``level``, constant at both ends, and how many fraction bits they take.

        The result is ``None`` if that takes too many segments.
        """
        tolerance = 2.0 ** -(self.target - _GUARD)
        low, high = (math.ldexp(end, -value.fraction) for end in (value.low, value.high))
        reach = level.reach(low, high, tolerance)
        for depth in range(3, _MAX_SEGMENTS.bit_length()):
            fraction = min(value.fraction, max(_POSITION_BITS + depth - reach - 1, self.target - _GUARD))
            bits = reach + 1 + fraction - depth
            if bits < 1:
                continue
            curve = Curve.fitted(
                level,
                value.index,
                low=-1 << reach + fraction,
                segment_bits=bits,
                segments=1 << depth,
                fractions=(fraction, self.target),
            )
            places = curve.low + (np.arange(_TESTS << depth) << bits) // _TESTS
            reals = np.ldexp(places.astype(np.float64), -fraction)
            error = np.abs(np.ldexp(curve.compute(places).astype(np.float64), -self.target) - level(reals))
            if (error <= level.error(reals, tolerance)).all():
                return fraction, curve
        return None

    def function(self, step: Applied) -> Function:
        """Return a node's function of its only operand that is no constant, as ONNX Runtime computes it."""
        operands = tuple(None if isinstance(operand, Applied | Leaf) else operand for operand in step.operands)
        writer = FunctionWriter(self._constants)
        output = writer.expression(Applied(step.node, operands), "x")

        def values(x: np.ndarray) -> np.ndarray:
            line = x.astype(np.float32).reshape(1, 1, 1, -1)
            runner = session(writer.model(line, output))
            reals = np.asarray(runner.run(None, {"x": line})[0], np.float64).reshape(x.shape)
            if not np.isfinite(reals).all():
                raise ConfigError("gives no number (NaN), or infinity, in its operand's range")
            return reals

        return values


@dataclass(frozen=True)
class _Level:
    """Function in steps of some mantissas, less the ramp ``slope * max(x, 0)``.

    Parameters
    ----------
    function : callable
        Function of real numbers.
    operand, result : float
        Mantissas of the operand and of the result.
    slope : float
        Slope of the ramp.
    """

    function: Function
    operand: float
    result: float
    slope: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        reals = (x * self.operand).astype(np.float32).astype(np.float64)
        return (self.function(reals) - self.slope * np.maximum(reals, 0)) / self.result

    def error(self, x: np.ndarray, tolerance: float) -> np.ndarray:
        """Return the error that polynomials can have: ``tolerance``, or that of ONNX Runtime's function in float32."""
        return np.maximum(tolerance, _FLOAT_ERROR * np.maximum(np.abs(self.function(x * self.operand)), 1))

    def reach(self, low: float, high: float, tolerance: float) -> int:
        """Return the binary logarithm of the least power of two, at least 1, beyond which the level is constant.

        It is so from ``low`` to ``high``, at either side.
        """
        last = max(math.ceil(math.log2(max(-low, high, 1))), 0)
        for reach in range(last):
            beyond = [
                np.geomspace(2.0**reach, abs(end), 64) * np.sign(end) for end in (low, high) if abs(end) > 2**reach
            ]
            if all((np.abs(self(x) - self(x[:1])) <= self.error(x, tolerance)).all() for x in beyond):
                return reach
        return last


def _exact_fraction(values: np.ndarray) -> int:
    """Return how many fraction bits real values need."""
    whole = (bits for bits in range(MAX_VALUE_BITS) if not (np.ldexp(values, bits) % 1).any())
    return next(whole, MAX_VALUE_BITS)


# Operators.


def _parts(operands: Sequence[Fixed | np.ndarray]) -> tuple[list[Fixed], list[np.ndarray]]:
    """Return the values and the constants among an operator's operands."""
    values = [operand for operand in operands if isinstance(operand, Fixed)]
    return values, [operand for operand in operands if isinstance(operand, np.ndarray)]


def _add(program: FixedPointProgram, step: Applied, *operands: Fixed | np.ndarray) -> Fixed:
    """Return the sum of values and constants, or the mean of them."""
    (total, *values), constants = _parts(operands)
    for value in values:
        total = program.plus(total, value)
    for constant in constants:
        total = program.offset(total, constant)
    return program.scaled(total, np.array([1 / len(operands)])) if step.node.op_type == "Mean" else total


def _sub(program: FixedPointProgram, step: Applied, *operands: Fixed | np.ndarray) -> Fixed:
    (first, *others), constants = _parts(operands)
    if others:
        return program.plus(first, others[0], -1)
    if isinstance(operands[1], np.ndarray):
        return program.offset(first, -operands[1])
    return program.offset(_negative(program, step, first), constants[0])


def _mul(program: FixedPointProgram, step: Applied, *operands: Fixed | np.ndarray) -> Fixed:
    """Return the product of two values, or of a value and a constant or its reciprocal."""
    (first, *others), constants = _parts(operands)
    if others:
        return program.times(first, others[0])
    return program.scaled(first, 1 / constants[0] if step.node.op_type == "Div" else constants[0])


def _extreme(program: FixedPointProgram, step: Applied, *operands: Fixed | np.ndarray) -> Fixed:
    """Return the maximum or the minimum of values, and of constants of one number."""
    greatest = step.node.op_type == "Max"
    (first, *others), constants = _parts(operands)
    for other in others:
        first = program.extreme(first, other, greatest=greatest)
    for constant in constants:
        if constant.size > 1:
            raise ConfigError("must compare with one number, not with one per channel")
        bound = float(constant.item())
        first = program.bounded(first, *((bound, math.inf) if greatest else (-math.inf, bound)))
    return first


def _clip(program: FixedPointProgram, step: Applied, value: Fixed, *bounds: np.ndarray | str) -> Fixed:
    """Return a value within the bounds of a Clip or Relu, which are inputs or attributes of the node."""
    if step.node.op_type == "Relu":
        return program.bounded(value, 0, math.inf)
    ends = [attribute(step.node, "min", -math.inf), attribute(step.node, "max", math.inf)]
    for index, bound in enumerate(bounds):
        ends[index] = ends[index] if isinstance(bound, str) else float(bound.item())
    return program.bounded(value, *map(float, ends))


def _leaky(program: FixedPointProgram, step: Applied, value: Fixed, slopes: np.ndarray | None = None) -> Fixed:
    """Return a value times a slope, where it is negative: a LeakyRelu or PRelu."""
    if slopes is None:
        slopes = np.array([np.float32(attribute(step.node, "alpha", 0.01))], np.float64)
    if (slopes >= 0).all() and (slopes <= 1).all():
        return program.extreme(value, program.scaled(value, slopes), greatest=True)
    below = program.scaled(program.bounded(value, -math.inf, 0), slopes)
    return program.plus(program.bounded(value, 0, math.inf), below)


def _hard_sigmoid(program: FixedPointProgram, step: Applied, value: Fixed) -> Fixed:
    """Return a value's HardSigmoid, or the value times its HardSigmoid: a HardSwish."""
    is_swish = step.node.op_type == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if is_swish else (attribute(step.node, "alpha", 0.2), attribute(step.node, "beta", 0.5))
    sloping = program.scaled(value, np.array([np.float32(alpha)], np.float64), 1.0)
    gate = program.bounded(program.offset(sloping, np.array([np.float32(beta)], np.float64)), 0, 1)
    return program.times(value, gate) if is_swish else gate


def _absolute(program: FixedPointProgram, step: Applied, value: Fixed) -> Fixed:
    return program.extreme(value, _negative(program, step, value), greatest=True)


def _negative(program: FixedPointProgram, step: Applied, value: Fixed) -> Fixed:
    return program.scaled(value, np.array([-1.0]))


def _normalise(program: FixedPointProgram, step: Applied, value: Fixed, *parameters: np.ndarray) -> Fixed:
    scale, bias, mean, variance = parameters
    gain = scale / np.sqrt(variance + float(attribute(step.node, "epsilon", 1e-5)))
    return program.offset(program.scaled(value, gain), bias - mean * gain)


def _curve(program: FixedPointProgram, step: Applied, *operands: Fixed | np.ndarray) -> Fixed:
    """Return any other function of one value and constants of one number."""
    (value,), constants = _parts(operands)
    if any(constant.size > 1 for constant in constants):
        raise ConfigError("must take constants of one number, not of one per channel")
    return program.curve(value, program.function(step))


RULES: Mapping[str, Callable[..., Fixed]] = {
    **dict.fromkeys(with_effect(Effect.FUNCTION) - {"QLinearLeakyRelu", "QLinearSigmoid"}, _curve),
    "Abs": _absolute,
    "Add": _add,
    "BatchNormalization": _normalise,
    "Clip": _clip,
    "Div": _mul,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_sigmoid,
    "LeakyRelu": _leaky,
    "Max": _extreme,
    "Mean": _add,
    "Min": _extreme,
    "Mul": _mul,
    "Neg": _negative,
    "PRelu": _leaky,
    "Pow": _curve,
    "Relu": _clip,
    "Sub": _sub,
    "Sum": _add,
}
"""Functions that append the steps of an operator to a program, by the ONNX operator's name."""
JOINING = {"Add", "Max", "Mean", "Min", "Mul", "Sub", "Sum"}
"""ONNX operators of `RULES` that can have several operands that are no constants."""
