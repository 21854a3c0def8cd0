"""Layer that computes a short program of fixed-point operations on each value of its maps, and quantises once.

It stands for the float operators between a convolution and the next quantiser. ONNX Runtime computes these in float32;
this layer computes them on integers whose unit is a small power of two. A step's unit is not stored: the steps'
constants contain it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.maps import Requantisation, requantise, signed_bits
from hwgen.network.ops.join import MAX_BITS, Join

MAX_VALUE_BITS = 60
"""Maximum width, in bits, of every value and product in a fixed-point program, because the golden model uses int64."""

Range = tuple[int, int]
"""Type of the range of an integer: the pair of its minimum and its maximum."""


def shifted(values: Any, shift: int) -> Any:
    """Return integers divided by ``2**shift``, rounded to nearest, ties upwards; a negative ``shift`` multiplies.

    ``values`` is an int or an int64 array.
    """
    return (values + (1 << shift >> 1)) >> shift if shift > 0 else values << -shift


def _by_channel(constants: np.ndarray) -> np.ndarray:
    """Return constants, one for all channels or one per channel, as an array ``(1 or C, 1, 1)``."""
    return constants[:, None, None]


def _range_of(constants: np.ndarray) -> Range:
    return int(constants.min()), int(constants.max())


def _products(first: Range, second: Range) -> Range:
    products = [a * b for a in first for b in second]
    return min(products), max(products)


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation(ABC):
    """Base class of elementwise fixed-point operations: a result depends on the operands at its own position.

    Parameters
    ----------
    operands : tuple of int
        Indices of the operands among the layer's values: its input maps in order, then the steps' results.
    """

    operands: tuple[int, ...]

    num_operands: ClassVar[int]

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """Tuple of constants of the operation as arrays, with one entry per channel or one for all, along axis 0."""
        return ()

    @abstractmethod
    def range(self, *ranges: Range) -> Range:
        """Return a pair: lower and upper bound of the operation's result for operands in given ranges.

        Raises
        ------
        ConfigError
            If the step can't compute all operands of these ranges.
        """

    @abstractmethod
    def compute(self, *values: np.ndarray) -> np.ndarray:
        """Return the operation's golden result, int64, for operands ``(C, H, W)`` or ``(C, 1, 1)``, int64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Operation):
    """Fixed-point operation: any function of one operand that has few values, as a table of results.

    Parameters
    ----------
    low : int
        Minimum of the operand.
    table : ndarray
        Results for the operand's range in ascending order, int64 ``(1 or C, integers)``.
    """

    low: int
    table: np.ndarray

    num_operands = 1

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        return (self.table,)

    def range(self, *ranges: Range) -> Range:
        ((low, high),) = ranges
        if high - low >= 1 << MAX_BITS or self.low != low or self.table.shape[1:] != (high - low + 1,):
            raise ConfigError(
                f"a table must have a result for each integer from {low} to {high}, at most {1 << MAX_BITS}, not for "
                f"{self.table.shape[1:]} from {self.low}"
            )
        return _range_of(self.table)

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return self.table[np.arange(len(self.table))[:, None, None], values[0] - self.low]


@dataclass(frozen=True, kw_only=True, eq=False)
class Shift(Operation):
    """Fixed-point operation: division by ``2**shift``, rounded to nearest, ties upwards; or multiplication if negative.

    Parameters
    ----------
    shift : int
        Number of bits.
    """

    shift: int

    num_operands = 1

    def range(self, *ranges: Range) -> Range:
        ((low, high),) = ranges
        return shifted(low, self.shift), shifted(high, self.shift)

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return shifted(values[0], self.shift)


@dataclass(frozen=True, kw_only=True, eq=False)
class Factor(Operation):
    """Fixed-point operation: product with a constant, divided by ``2**shift`` and rounded to nearest, ties upwards.

    Parameters
    ----------
    factor : ndarray
        Constant of all channels or of each, int64 ``(1 or C,)``, at most 25 bits in two's complement.
    shift : int
        Number of bits, at least 0.
    """

    factor: np.ndarray
    shift: int

    num_operands = 1

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        return (self.factor,)

    def range(self, *ranges: Range) -> Range:
        if self.shift < 0 or signed_bits(*_range_of(self.factor)) > 25:
            raise ConfigError(f"factors must have at most 25 bits and a shift of at least 0, not {self.shift}")
        return Times.rounded(_products(ranges[0], _range_of(self.factor)), self.shift)

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return shifted(values[0] * _by_channel(self.factor), self.shift)


@dataclass(frozen=True, kw_only=True, eq=False)
class Offset(Operation):
    """Fixed-point operation: sum of a value and a constant.

    Parameters
    ----------
    offset : ndarray
        Constant of all channels or of each, int64 ``(1 or C,)``.
    """

    offset: np.ndarray

    num_operands = 1

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        return (self.offset,)

    def range(self, *ranges: Range) -> Range:
        (low, high), (least, most) = ranges[0], _range_of(self.offset)
        return low + least, high + most

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return values[0] + _by_channel(self.offset)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plus(Operation):
    """Fixed-point operation: sum or difference of two values.

    Parameters
    ----------
    sign : int
        Sign of the second value, 1 or -1.
    """

    sign: int = 1

    num_operands = 2

    def range(self, *ranges: Range) -> Range:
        (low, high), second = ranges
        least, most = sorted(self.sign * end for end in second)
        return low + least, high + most

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return values[0] + self.sign * values[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Times(Operation):
    """Fixed-point operation: product of two values, divided by ``2**shift`` and rounded to nearest, ties upwards.

    Parameters
    ----------
    shift : int
        Number of bits, at least 0.
    """

    shift: int

    num_operands = 2

    @staticmethod
    def rounded(products: Range, shift: int) -> Range:
        """Return the range of products in ``products`` after division by ``2**shift``, to nearest, ties upwards.

        Raises
        ------
        ConfigError
            If products have more than `MAX_VALUE_BITS` bits.
        """
        if shift < 0 or signed_bits(*products) > MAX_VALUE_BITS:
            raise ConfigError(f"products must have at most {MAX_VALUE_BITS} bits, not {signed_bits(*products)}")
        return shifted(products[0], shift), shifted(products[1], shift)

    def range(self, *ranges: Range) -> Range:
        return self.rounded(_products(*ranges), self.shift)

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return shifted(values[0] * values[1], self.shift)


@dataclass(frozen=True, kw_only=True, eq=False)
class Extremum(Operation):
    """Fixed-point operation: maximum or minimum of two values.

    Parameters
    ----------
    greatest : bool
        Whether the result is the maximum.
    """

    greatest: bool

    num_operands = 2

    def range(self, *ranges: Range) -> Range:
        function = max if self.greatest else min
        low, high = (function(*ends) for ends in zip(*ranges, strict=True))
        return low, high

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return (np.maximum if self.greatest else np.minimum)(*values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits(Operation):
    """Fixed-point operation: a value clipped to constant bounds.

    Parameters
    ----------
    low, high : int
        Minimum and maximum of the result.
    """

    low: int
    high: int

    num_operands = 1

    def range(self, *ranges: Range) -> Range:
        if self.low > self.high:
            raise ConfigError(f"the lower bound must be at most the upper bound {self.high}, not {self.low}")
        low, high = (min(max(end, self.low), self.high) for end in ranges[0])
        return low, high

    def compute(self, *values: np.ndarray) -> np.ndarray:
        return np.clip(values[0], self.low, self.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve(Operation):
    """Fixed-point operation: function of one value by quadratic polynomials on equal segments, constant outside.

    An operand is first limited to the segments. With its position ``t`` in the segment ``i``, the result is ``(c0[i] +
    (c1[i] + (c2[i] * t >> segment_bits)) * t) >> (segment_bits + guard)``. Shifts round down: ``c0`` contains the half
    for the rounding of the result.

    Parameters
    ----------
    low : int
        First operand of the first segment.
    segment_bits : int
        Binary logarithm of the number of operands per segment.
    guard : int
        Number of additional fraction bits of the coefficients.
    coefficients : ndarray
        ``c0``, ``c1`` and ``c2`` of all segments, int64 ``(3, segments)``; the number of segments is a power of two.
    """

    low: int
    segment_bits: int
    guard: int
    coefficients: np.ndarray

    num_operands = 1

    @classmethod
    def fitted(
        cls,
        function: Callable[[np.ndarray], np.ndarray],
        operand: int,
        *,
        low: int,
        segment_bits: int,
        segments: int,
        fractions: tuple[int, int],
        guard: int = 3,
    ) -> Curve:
        """Return a `Curve` that approximates a real function, interpolated at three Chebyshev nodes per segment.

        Parameters
        ----------
        function : callable
            Function of a float64 array.
        operand : int
            Index of the operand.
        low, segment_bits, segments, guard
            As in the class, with the number of segments.
        fractions : tuple of int
            Numbers of fraction bits of the operand and of the result.
        """
        nodes = 0.5 + 0.5 * np.cos(np.pi / 6 * np.array([1, 3, 5]))
        places = low + (np.arange(segments) + nodes[:, None]) * 2.0**segment_bits
        reals = np.linalg.solve(np.vander(nodes, increasing=True), function(np.ldexp(places, -fractions[0])))
        coefficients = np.ldexp(reals, fractions[1] + guard)
        coefficients[0] = np.ldexp(coefficients[0] + 2.0 ** (guard - 1), segment_bits)
        return cls(
            operands=(operand,),
            low=low,
            segment_bits=segment_bits,
            guard=guard,
            coefficients=np.rint(coefficients).astype(np.int64),
        )

    @property
    def high(self) -> int:
        """Largest operand, an integer, inside the curve's last segment."""
        return self.low + (self.coefficients.shape[1] << self.segment_bits) - 1

    @property
    def stages(self) -> tuple[Range, Range]:
        """Pair of ranges: of the slope ``c1 + (c2 * t >> segment_bits)``, and of the unshifted result."""
        position, (constant, linear, square) = (0, (1 << self.segment_bits) - 1), map(_range_of, self.coefficients)
        low, high = (end >> self.segment_bits for end in _products(square, position))
        slope = linear[0] + low, linear[1] + high
        low, high = _products(slope, position)
        return slope, (constant[0] + low, constant[1] + high)

    def range(self, *ranges: Range) -> Range:
        count = self.coefficients.shape[1]
        if count < 2 or count & count - 1 or min(self.segment_bits, self.guard) < 1:
            raise ConfigError(f"a curve must have segments of 2 values or more, a power of two of them, not {count}")
        low, high = self.stages[1]
        if signed_bits(low, high) > MAX_VALUE_BITS:
            raise ConfigError(f"sums of a curve must have at most {MAX_VALUE_BITS} bits, not {low} to {high}")
        return low >> (self.segment_bits + self.guard), high >> (self.segment_bits + self.guard)

    def compute(self, *values: np.ndarray) -> np.ndarray:
        place = np.clip(values[0], self.low, self.high) - self.low
        constant, linear, square = self.coefficients[:, place >> self.segment_bits]
        position = place & (1 << self.segment_bits) - 1
        slope = linear + (square * position >> self.segment_bits)
        return constant + slope * position >> (self.segment_bits + self.guard)


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedPoint(Join):
    """Layer that computes a program of fixed-point operations for each value, with one final requantisation or none.

    Parameters
    ----------
    steps : tuple of Operation
        Program. Each input and each step but the last is an operand of a later step.
    requantisation : Requantisation or None
        Rule that turns the last step's results into outputs; ``None`` if they are the outputs (a wide map).

    Raises
    ------
    ConfigError
        If a step has operands that do not precede it, or a value is not used, too wide, or not in the output's type;
        or if channels differ, or an input other than the last has another size than the output.
    """

    steps: tuple[Operation, ...]
    requantisation: Requantisation | None = None

    kind = "fixedpoint"
    operators = ()
    in_fixed_point = True

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        rule = parameters["requantisation"]
        if rule is None:
            return None
        low, high = (min(max(end, low), high) for end in (rule.low, rule.high))
        return {**parameters, "requantisation": replace(rule, low=low, high=high)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({side.channels for side in (*self.inputs, self.output)}) != 1:
            maps = " and ".join(map(str, self.inputs))
            raise ConfigError(f"{self.name}: inputs must have the output's {self.output.channels} channels, not {maps}")
        used = {operand for step in self.steps for operand in step.operands}
        if used != set(range(len(self.inputs) + len(self.steps) - 1)):
            raise ConfigError(f"{self.name}: each input and each step but the last must be an operand, not {used}")
        for index, step in enumerate(self.steps, len(self.inputs)):
            if len(step.operands) != step.num_operands or not all(0 <= operand < index for operand in step.operands):
                kind = type(step).__name__
                raise ConfigError(
                    f"{self.name}: step {index} ({kind}) must have {step.num_operands} operands, each an earlier value "
                    f"(0 to {index - 1}), not {step.operands}"
                )
            if sizes := [len(constants) for constants in step.constants if len(constants) not in (1, self.channels)]:
                raise ConfigError(f"{self.name}: constants must be one, or {self.channels} (channels), not {sizes[0]}")
        (low, high), kind = self.ranges[-1], self.output.type
        if self.requantisation is None and not (kind.signed and kind.minimum <= low <= high <= kind.maximum):
            raise ConfigError(f"{self.name}: results from {low} to {high} must fit the output's {kind}, a signed type")

    @property
    def spread(self) -> int:  # type: ignore[override]
        """Number of one-pixel inputs broadcast to all pixels: 1 if only the last input has one pixel, else 0."""
        return int(self.inputs[-1].shape[1:] == (1, 1) != self.input.shape[1:])

    @property
    def by_channel(self) -> bool:
        constants = [constants for step in self.steps for constants in step.constants]
        if self.requantisation is not None:
            constants += [np.stack([self.requantisation.significand, self.requantisation.shift], axis=1)]
        return any((each != each[:1]).any() for each in constants)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """Tuple of minimum and maximum of each value in the program: first the inputs, then the operations' results.

        Raises
        ------
        ConfigError
            If a step can't compute its operands, or a value has more than `MAX_VALUE_BITS` bits.
        """
        ranges = [(source.type.minimum, source.type.maximum) for source in self.inputs]
        for index, step in enumerate(self.steps):
            try:
                ranges.append(step.range(*(ranges[operand] for operand in step.operands)))
            except ConfigError as error:
                raise ConfigError(f"{self.name}: step {index} ({type(step).__name__}): {error}") from None
            if signed_bits(*ranges[-1]) > MAX_VALUE_BITS:
                bits = signed_bits(*ranges[-1])
                raise ConfigError(
                    f"{self.name}: the result of step {index} ({type(step).__name__}) must have at most "
                    f"{MAX_VALUE_BITS} bits, not {bits}"
                )
        return tuple(ranges)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        values = [values.astype(np.int64) for values in maps]
        for step in self.steps:
            values.append(step.compute(*(values[operand] for operand in step.operands)))
        result = values[-1]
        if self.requantisation is not None:
            rule, bound = self.requantisation.of(slice(len(result))), max(map(abs, self.ranges[-1]))
            result = requantise(result.reshape(len(result), -1), rule, bound).reshape(result.shape)
        return result.astype(self.output.type.dtype)
