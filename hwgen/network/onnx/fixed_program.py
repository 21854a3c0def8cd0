"""Programs of fixed-point operations that compute the ONNX operators between convolutions and their quantisers.

`units` says how fine the fixed-point numbers must be that stand for floats before a QuantizeLinear.
"""

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
from hwgen.network.onnx.index import GraphIndex
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
"""Type of a function of real numbers, from a float64 array to one of the same shape."""

_FACTOR_BITS = 24
"""Width, in bits without the sign, of constant factors in a program: as many as a float32 significand has."""
_GUARD = 2
"""Number of extra fraction bits of intermediate values, beyond those that the next quantiser needs."""
_MAX_SEGMENTS = 1 << 11
"""Maximum number of segments of the piecewise polynomial that computes a function."""
_POSITION_BITS = 17
"""Width, in bits, of a position within a curve's segment whose products fit a DSP slice."""
_FLOAT_ERROR = 2.0**-21
"""Accepted error of a polynomial (relative for results above 1): as large as ONNX Runtime's error in float32."""
_TESTS = 8
"""Number of points per segment where a fitted polynomial is compared with its function."""


@dataclass(frozen=True)
class FixedValue:
    """Value in a fixed-point program: index of its operation, real value of one step (LSB), and integer range.

    A step stands for ``mantissa / 2**fraction``. Usual mantissas are 1, and the mantissa of the next quantiser's scale:
    sums that are halfway between two outputs then stay so, as in ONNX Runtime.
    """

    index: int
    mantissa: float
    fraction: int
    low: int
    high: int

    @property
    def unit(self) -> float:
        """Real value of one step (LSB) of the fixed-point value, a float."""
        return math.ldexp(self.mantissa, -self.fraction)


def split_unit(unit: float) -> tuple[float, int]:
    """Return, as a pair, a step's (LSB's) mantissa, from 1 to below 2, and its number of fraction bits."""
    mantissa, exponent = math.frexp(unit)
    return 2 * mantissa, 1 - exponent


def leaves(formula: Applied | Leaf) -> list[Leaf]:
    """Return a list of `Leaf` objects: the feature maps that an expression reads, each once, one-pixel maps last."""
    if isinstance(formula, Leaf):
        return [formula]
    found = [operand for step in steps_in_order(formula) for operand in step.operands if isinstance(operand, Leaf)]
    return sorted({id(leaf): leaf for leaf in found}.values(), key=lambda leaf: is_pixel(leaf.value))


def is_pixel(value: Value) -> bool:
    """Return whether a value's feature map has only one pixel per channel."""
    return (value.map.height, value.map.width) == (1, 1)


class FixedPointProgram:
    """Program of fixed-point operations that computes an expression over one or several feature maps.

    Parameters
    ----------
    constants : Constants
        Constants of the model.
    formula : Applied or Leaf
        Expression.
    units : mapping of str to float
        Maximum step of fixed-point numbers that may stand for each tensor of the model.
    unit : float
        Maximum step of the result.
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
        """List of the importer's `Value` of each feature map that the program's layer reads, in order."""
        self.steps: list[Operation] = []
        self.products = 0
        """Number of multiplications by constants in the program."""
        nodes = [] if isinstance(formula, Leaf) else [*steps_in_order(formula)]
        self.mantissa, _ = split_unit(unit)
        self.target = max([self._fraction_bits(unit), *(self._fraction_bits(unit, step.node) for step in nodes)])
        """Number of fraction bits of the current operator's result; at first, of values that come from tables."""
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

    def _operand(self, step: Applied, operand: Operand) -> FixedValue | np.ndarray | str:
        """Return a `FixedValue`, or an array for a constant operand, or "" if the operand is left out."""
        if isinstance(operand, ConstantOperand):
            # Bounds of a Clip can be infinite.
            if not (np.isfinite(operand.reals).all() or step.node.op_type == "Clip"):
                raise ConfigError("must have finite constants, not NaN or infinity")
            return operand.reals
        assert operand is not None
        return operand if isinstance(operand, str) else self._known[id(operand)]

    def _fraction_bits(self, unit: float, node: onnx.NodeProto | None = None) -> int:
        """Return the fraction bits for a node's result such that one step (LSB) is at most ``unit``."""
        units = [unit] if node is None else [self._units.get(name, unit) for name in node.output]
        return split_unit(min(units))[1] + _GUARD

    def _map_value(self, leaf: Leaf) -> FixedValue:
        """Return a `FixedValue`: input map as a value of the program, looked up in a table if the map is quantised."""
        index = next(index for index, value in enumerate(self.inputs) if value.map is leaf.value.map)
        integer_type = leaf.value.map.frozen().type
        if leaf.table is None:
            assert isinstance(leaf.value.state, Wide)
            unit = split_unit(float(leaf.value.state.scale))
            return FixedValue(index, *unit, *integer_type.ends)
        reals = np.ldexp(leaf.table.astype(np.float64) / self.mantissa, self.target)
        if self.is_exact and (reals % 1).any():
            raise ConfigError("gives values that are not integers, which fixed point would round")
        raw = FixedValue(index, self.mantissa, self.target, *integer_type.ends)
        return self.add(Table(operands=(index,), low=raw.low, table=np.rint(reals).astype(np.int64)), raw.fraction, raw)

    def add(self, step: Operation, fraction: int, *operands: FixedValue) -> FixedValue:
        """Append an operation on these operands; return a `FixedValue` with ``fraction`` fraction bits."""
        low, high = step.range(*((value.low, value.high) for value in operands))
        self.steps.append(step)
        return FixedValue(len(self.inputs) + len(self.steps) - 1, operands[0].mantissa, fraction, low, high)

    def shifted(self, value: FixedValue, fraction: int) -> FixedValue:
        """Append a rounding shift to ``fraction`` fraction bits; return a `FixedValue`: the result."""
        if value.fraction == fraction:
            return value
        return self.add(Shift(operands=(value.index,), shift=value.fraction - fraction), fraction, value)

    def lowered(self, value: FixedValue, bits: int) -> FixedValue:
        """Return a `FixedValue` rounded to fit ``bits`` bits, with fewer fraction bits if it was wider."""
        more = signed_bits(value.low, value.high) - bits
        if more > 0 and self.is_exact:
            raise ConfigError("gives integers of too many bits for an exact result in fixed point")
        return self.shifted(value, value.fraction - more) if more > 0 else value

    def aligned(self, *values: FixedValue) -> list[FixedValue]:
        """Return, as a list, values converted to a common step (LSB), so that they can be added."""
        mantissas = [value.mantissa for value in values]
        mantissa = self.mantissa if self.mantissa in mantissas else mantissas[0]
        values = tuple(self.scaled(value, np.ones(1), mantissa) for value in values)
        fraction = max(value.fraction for value in values)
        return [self.shifted(value, fraction) for value in values]

    def scaled(self, value: FixedValue, factors: np.ndarray, mantissa: float | None = None) -> FixedValue:
        """Append a multiplication by constants, float64 ``(1 or C,)``, and return a `FixedValue`: the product."""
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

    def offset(self, value: FixedValue, constants: np.ndarray) -> FixedValue:
        """Append an addition of constants, float64 ``(1 or C,)``, and return a `FixedValue`: the sum."""
        if not constants.any():
            return value
        fraction = max(value.fraction, self.target)
        if self.is_exact:
            fraction = max(fraction, _exact_fraction(constants))
        value = self.shifted(value, fraction)
        offset = np.rint(np.ldexp(constants / value.mantissa, fraction)).astype(np.int64)
        return self.add(Offset(operands=(value.index,), offset=offset), fraction, value)

    def plus(self, first: FixedValue, second: FixedValue, sign: int = 1) -> FixedValue:
        """Append an addition of two values, or a subtraction (``sign`` -1), and return a `FixedValue`: the result."""
        first, second = self.aligned(first, second)
        step = Plus(operands=(first.index, second.index), sign=sign)
        return self.add(step, first.fraction, first, second)

    def times(self, first: FixedValue, second: FixedValue) -> FixedValue:
        """Append a multiplication of two values, and return a `FixedValue`: the product."""
        half = MAX_VALUE_BITS // 2
        spare = [half - signed_bits(value.low, value.high) for value in (second, first)]
        first, second = (self.lowered(v, half + max(s, 0)) for v, s in zip((first, second), spare, strict=True))
        shift = max(first.fraction + second.fraction - self.target, 0)
        step = Times(operands=(first.index, second.index), shift=shift)
        result = self.add(step, first.fraction + second.fraction - shift, first, second)
        return replace(result, mantissa=first.mantissa * second.mantissa)

    def extreme(self, first: FixedValue, second: FixedValue, *, greatest: bool) -> FixedValue:
        """Append the maximum or minimum of two values, and return a `FixedValue`: the result."""
        first, second = self.aligned(first, second)
        step = Extremum(operands=(first.index, second.index), greatest=greatest)
        return self.add(step, first.fraction, first, second)

    def bounded(self, value: FixedValue, low: float, high: float) -> FixedValue:
        """Append a clip of a value to ``low`` to ``high``, if it can leave that range; return a `FixedValue`."""
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

    def curve(self, value: FixedValue, function: Function) -> FixedValue:
        """Append a function of a value as piecewise polynomials, and return a `FixedValue`: the result."""
        if self.is_exact:
            raise ConfigError("is computed with polynomials, whose results are not exact")
        ends = np.array([0.5, 1]) * max(value.high, 1) * value.unit
        for slope in (0.0, float(np.float32(np.diff(function(ends)).item() / np.diff(ends).item()))):
            mantissa = value.mantissa if slope else 1.0
            level = _RampedFunction(function, value.mantissa, mantissa, slope)
            if curve := self._fitted(value, level):
                fraction, step = curve
                inner = self.shifted(value, fraction)
                result = self.add(replace(step, operands=(inner.index,)), self.target, inner)
                result = replace(result, mantissa=mantissa)
                if not slope:
                    return result
                return self.plus(result, self.scaled(self.bounded(value, 0, math.inf), np.array([slope])))
        raise ConfigError("changes too steeply, or over too wide a range, for the polynomials of a curve in hardware")

    def _fitted(self, value: FixedValue, level: _RampedFunction) -> tuple[int, Curve] | None:
        """Return an operand's fraction bits and its `Curve` (polynomials); ``None`` if none is accurate enough.

        The polynomials are constant at both ends.
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
        """Return a function of arrays for a node with one variable operand, computed by ONNX Runtime."""
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
class _RampedFunction:
    """Function minus the ramp ``slope * max(x, 0)``, in fixed-point steps (LSBs) of operand and result.

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
        """Return the accepted error of polynomials at ``x``: ``tolerance``, or ONNX Runtime's float32 error if more."""
        return np.maximum(tolerance, _FLOAT_ERROR * np.maximum(np.abs(self.function(x * self.operand)), 1))

    def reach(self, low: float, high: float, tolerance: float) -> int:
        """Return the log2 of the smallest power of two, at least 1, past which the function is constant on both sides.

        Only the range from ``low`` to ``high`` counts.
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
    """Return how many fraction bits represent real values exactly, at most `MAX_VALUE_BITS`."""
    whole = (bits for bits in range(MAX_VALUE_BITS) if not (np.ldexp(values, bits) % 1).any())
    return next(whole, MAX_VALUE_BITS)


# Operators.


def _split_operands(operands: Sequence[FixedValue | np.ndarray]) -> tuple[list[FixedValue], list[np.ndarray]]:
    """Return, as a pair, an operator's operands as two lists: values of the program, and constants."""
    values = [operand for operand in operands if isinstance(operand, FixedValue)]
    return values, [operand for operand in operands if isinstance(operand, np.ndarray)]


def _add(program: FixedPointProgram, step: Applied, *operands: FixedValue | np.ndarray) -> FixedValue:
    """Append an Add, Sum or Mean of values and constants to a program, and return a `FixedValue`: the result."""
    (total, *values), constants = _split_operands(operands)
    for value in values:
        total = program.plus(total, value)
    for constant in constants:
        total = program.offset(total, constant)
    return program.scaled(total, np.array([1 / len(operands)])) if step.node.op_type == "Mean" else total


def _sub(program: FixedPointProgram, step: Applied, *operands: FixedValue | np.ndarray) -> FixedValue:
    (first, *others), constants = _split_operands(operands)
    if others:
        return program.plus(first, others[0], -1)
    if isinstance(operands[1], np.ndarray):
        return program.offset(first, -operands[1])
    return program.offset(_negative(program, step, first), constants[0])


def _mul(program: FixedPointProgram, step: Applied, *operands: FixedValue | np.ndarray) -> FixedValue:
    """Append a Mul of two values, or a Mul or Div by a constant, to a program; return a `FixedValue`."""
    (first, *others), constants = _split_operands(operands)
    if others:
        return program.times(first, others[0])
    return program.scaled(first, 1 / constants[0] if step.node.op_type == "Div" else constants[0])


def _extreme(program: FixedPointProgram, step: Applied, *operands: FixedValue | np.ndarray) -> FixedValue:
    """Append a Max or Min of values and single-number constants to a program, and return a `FixedValue`: the result."""
    greatest = step.node.op_type == "Max"
    (first, *others), constants = _split_operands(operands)
    for other in others:
        first = program.extreme(first, other, greatest=greatest)
    for constant in constants:
        if constant.size > 1:
            raise ConfigError("must compare with one number, not with one per channel")
        bound = float(constant.item())
        first = program.bounded(first, *((bound, math.inf) if greatest else (-math.inf, bound)))
    return first


def _clip(program: FixedPointProgram, step: Applied, value: FixedValue, *bounds: np.ndarray | str) -> FixedValue:
    """Append a Clip or Relu, with bounds from inputs or attributes, to a program; return a `FixedValue`."""
    if step.node.op_type == "Relu":
        return program.bounded(value, 0, math.inf)
    ends = [attribute(step.node, "min", -math.inf), attribute(step.node, "max", math.inf)]
    for index, bound in enumerate(bounds):
        ends[index] = ends[index] if isinstance(bound, str) else float(bound.item())
    return program.bounded(value, *map(float, ends))


def _leaky(
    program: FixedPointProgram, step: Applied, value: FixedValue, slopes: np.ndarray | None = None
) -> FixedValue:
    """Append a LeakyRelu or PRelu to a program (slope for negative values); return a `FixedValue`: the result."""
    if slopes is None:
        slopes = np.array([np.float32(attribute(step.node, "alpha", 0.01))], np.float64)
    if (slopes >= 0).all() and (slopes <= 1).all():
        return program.extreme(value, program.scaled(value, slopes), greatest=True)
    below = program.scaled(program.bounded(value, -math.inf, 0), slopes)
    return program.plus(program.bounded(value, 0, math.inf), below)


def _hard_sigmoid(program: FixedPointProgram, step: Applied, value: FixedValue) -> FixedValue:
    """Append a HardSigmoid, or a HardSwish (value times HardSigmoid), to a program; return a `FixedValue`."""
    is_swish = step.node.op_type == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if is_swish else (attribute(step.node, "alpha", 0.2), attribute(step.node, "beta", 0.5))
    sloping = program.scaled(value, np.array([np.float32(alpha)], np.float64), 1.0)
    gate = program.bounded(program.offset(sloping, np.array([np.float32(beta)], np.float64)), 0, 1)
    return program.times(value, gate) if is_swish else gate


def _absolute(program: FixedPointProgram, step: Applied, value: FixedValue) -> FixedValue:
    return program.extreme(value, _negative(program, step, value), greatest=True)


def _negative(program: FixedPointProgram, step: Applied, value: FixedValue) -> FixedValue:
    return program.scaled(value, np.array([-1.0]))


def _normalise(program: FixedPointProgram, step: Applied, value: FixedValue, *parameters: np.ndarray) -> FixedValue:
    scale, bias, mean, variance = parameters
    gain = scale / np.sqrt(variance + float(attribute(step.node, "epsilon", 1e-5)))
    return program.offset(program.scaled(value, gain), bias - mean * gain)


def _curve(program: FixedPointProgram, step: Applied, *operands: FixedValue | np.ndarray) -> FixedValue:
    """Append any other function of one value, with single-number constants, to a program; return a `FixedValue`."""
    (value,), constants = _split_operands(operands)
    if any(constant.size > 1 for constant in constants):
        raise ConfigError("must take constants of one number, not of one per channel")
    return program.curve(value, program.function(step))


RULES: Mapping[str, Callable[..., FixedValue]] = {
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
"""Dictionary of functions that append an operator's steps to a fixed-point program, by the ONNX operator's name."""
JOINING = {"Add", "Max", "Mean", "Min", "Mul", "Sub", "Sum"}
"""Set of names of ONNX operators that a fixed-point program can compute with several variable operands."""


_FRACTION = 2.0**-16
"""Maximum step of fixed-point numbers, as a fraction of the scale of the QuantizeLinear that follows them.

One rounding to such a step changes about one output of 260,000.
"""
_TYPICAL = 32
"""Assumed magnitude of a product's operand, in steps of the QuantizeLinear that follows the product."""
_GATES = {"HardSigmoid", "Sigmoid", "Softmax", "Tanh"}
"""Set of names of ONNX operators whose results lie between -1 and 1."""
_MOVED = with_effect(Effect.POOL, Effect.GLOBAL_POOL, Effect.RENAMING, Effect.RESIZE, Effect.SAME, Effect.SELECTION)
"""Set of names of ONNX operators whose results have the same fixed-point step as their input."""
_ENDS = with_effect(Effect.CONVOLUTION, Effect.PRODUCT, Effect.QUANTISER)
"""Set of names of ONNX operators that end the search for a later QuantizeLinear, because they don't read fixed-point
floats."""


def units(graph: GraphIndex) -> Mapping[str, float]:
    """Return a mapping by float tensor: largest permitted fixed-point step (LSB), as a real number.

    It is a power of two times the scale of a later QuantizeLinear. Tensors that no QuantizeLinear depends on without
    another quantiser in between are left out.
    """
    steps: dict[str, float] = {}
    for node in reversed(graph.needed):
        if node.op_type == "QuantizeLinear":
            scale = graph.constant(node.input[1])
            if scale is not None and scale.size == 1:
                _lower_step(steps, node.input[0], float(scale.item()) * _FRACTION)
        elif node.op_type not in _ENDS:
            wanted = min((steps[name] for name in node.output if name in steps), default=None)
            if wanted is not None:
                for index, name in enumerate(node.input):
                    _lower_step(
                        steps, name, wanted / 2.0 ** math.ceil(math.log2(_gain(graph, node, index, wanted / _FRACTION)))
                    )
    _equalise_steps(graph, steps)
    return steps


def _equalise_steps(graph: GraphIndex, steps: dict[str, float]) -> None:
    """Give concatenated tensors, and the tensors they are moved from, the smallest of their steps (LSBs)."""
    joined = [
        [name for name in (*node.input, *node.output) if name in steps]
        for node in graph.needed
        if node.op_type == "Concat" or node.op_type in _MOVED
    ]
    while True:
        before = sum(steps.values())
        for names in (*joined, *reversed(joined)):
            smallest = min((steps[name] for name in names), default=0.0)
            steps.update(dict.fromkeys(names, smallest))
        if sum(steps.values()) == before:
            return


def _lower_step(steps: dict[str, float], name: str, step: float) -> None:
    if np.isfinite(step) and step > 0:
        steps[name] = min(step, steps.get(name, np.inf))


def _gain(graph: GraphIndex, node: onnx.NodeProto, index: int, scale: float) -> float:
    """Return an estimated factor (at least 1): how much an error in a node's input ``index`` grows in its output.

    ``scale``: scale of the QuantizeLinear that follows.
    """
    others = [graph.constant(name) for position, name in enumerate(node.input) if position != index]
    gain: float = 1
    if node.op_type == "BatchNormalization" and index == 0 and all(values is not None for values in others):
        factor, _, _, variance = (np.asarray(values, np.float64) for values in others)
        gain = float(np.abs(factor / np.sqrt(variance + attribute(node, "epsilon", 1e-5))).max())
    elif node.op_type in ("Div", "Mul") and len(others) == 1:
        (values,) = others
        other = graph.producers.get(node.input[1 - index])
        if values is not None and values.size:
            gain = float(np.abs(values).max())
            gain = 1 / gain if node.op_type == "Div" and gain else gain
        elif other is None or other.op_type not in _GATES:
            gain = _TYPICAL * scale
    return max(gain, 1) if np.isfinite(gain) else 1
