"""Layers that combine maps pixel by pixel (sum, difference, product, maximum, minimum, concatenation) or copy one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.float32 import Label, label_texts, qlinear_add, qlinear_mul, quantize_linear
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops.op import Op, with_clipped_ends

#: Maximum number of bits of the integers in the maps of layers whose output is tabulated for every input integer.
MAX_BITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Join(Op):
    """Base class of layers without a window that combine maps of equal height and width, pixel by pixel.

    Parameters
    ----------
    more : tuple of FeatureMap
        Inputs after the first one.

    Raises
    ------
    ConfigError
        If inputs differ in their rows or columns.
    """

    more: tuple[FeatureMap, ...] = ()

    channelwise = valuewise = True
    spread = 0
    """Number of inputs, last in order, that have one pixel, which is broadcast to all pixels of the others."""

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return with_clipped_ends(parameters, low, high)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that joins maps must have no window, not {self.window}")
        for source in self.more[: len(self.more) - self.spread]:
            if (source.height, source.width) != (self.height, self.width):
                raise ConfigError(f"{self.name}: maps must have {self.height} x {self.width} pixels, not {source}")

    @classmethod
    def of_maps(cls, name: str, maps: Sequence[FeatureMap]) -> Join:
        """Return a `Join`: a layer over several maps, known only by their shapes (as uint8), for planning.

        Raises
        ------
        ConfigError
            If the operator can't join these maps.
        """
        return cls(
            name=name,
            input=maps[0],
            more=tuple(maps[1:]),
            output=replace(maps[0], channels=cls._joined_channels(maps)),
            window=Window(kernel=(1, 1)),
            **cls._unlabelled(len(maps)),
        )

    @classmethod
    def _joined_channels(cls, maps: Sequence[FeatureMap]) -> int:
        return maps[0].channels

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        """Return a dict of placeholder constructor parameters of this class, for a layer with only shapes known."""
        return {}

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        return (self.input, *self.more)

    def covered(self, input_index: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """Return the half-open range (a pair) of input rows (axis 0) or columns (1) that outputs ``begin:end`` read.

        An input of one pixel is always covered by that pixel.
        """
        if input_index >= len(self.inputs) - self.spread:
            return 0 * begin, 0 * end + 1
        return super().covered(input_index, axis, begin, end)

    def pace(self, input_index: int, axis: int) -> Fraction:
        spread = input_index >= len(self.inputs) - self.spread
        return Fraction(0) if spread else super().pace(input_index, axis)

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (*super().geometry, tuple(source.shape for source in self.more))


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy(Join):
    """Layer that copies a map, inserted after a network's input that several layers read."""

    kind = "copy"
    valuewise = False
    operators = ("Identity",)
    selects = copies = keeps_type = True

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledJoin(Join):
    """Base class of layers that combine maps, each with a scale and zero point, and requantise the result.

    Parameters
    ----------
    labels : tuple of Label
        Scales and zero points of the inputs, then of the output.
    low, high : int
        Minimum and maximum of the output: the range of its type, or narrower if a Relu or Clip follows.

    Raises
    ------
    ConfigError
        If the number of labels differs from the number of maps, or values have more than 8 bits.
    """

    labels: tuple[Label, ...]
    low: int
    high: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) != len(self.inputs) + 1:
            raise ConfigError(
                f"{self.name}: labels must have {len(self.inputs) + 1} entries, for all inputs and the output, not "
                f"{len(self.labels)}"
            )
        if max(side.type.bits for side in (*self.inputs, self.output)) > MAX_BITS and not self._takes_wide:
            raise ConfigError(f"{self.name}: values must have at most {MAX_BITS} bits, not {self.inputs}")

    @property
    def _takes_wide(self) -> bool:
        """Whether this layer accepts maps with integers of more than `MAX_BITS` bits."""
        return False

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        return {"labels": (Label(1.0, 0),) * (inputs + 1), "low": UINT8.minimum, "high": UINT8.maximum}


@dataclass(frozen=True, kw_only=True, eq=False)
class Add(LabelledJoin):
    """Layer that adds two quantised maps of at most 8 bits, value by value.

    Parameters
    ----------
    fused : bool
        Whether ONNX Runtime computes the sum by its integer kernel QLinearAdd, which adds the zero point before the sum
        is rounded to an integer. Otherwise, for example with a Relu before the quantiser, the inputs are
        dequantised, added and quantised by float32 operators.
    loaded : bool
        Whether the hardware loads scales and zero points at run time. These are then the initial ones.
    labels, low, high
        Parameters of `LabelledJoin`.

    Raises
    ------
    ConfigError
        If `LabelledJoin` refuses the parameters, there are not two inputs of the same shape, or a sum exceeds float32.
    """

    fused: bool
    loaded: bool = False

    kind = "add"
    loadable = True
    operators = ("Add", "QLinearAdd")
    sign = 1
    """Sign of the second map in the sum: 1 for Add, -1 for Sub."""

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        return {**super()._unlabelled(inputs), "fused": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) != 2 or len({side.shape for side in (*self.inputs, self.output)}) != 1:
            maps = " and ".join(map(str, self.inputs))
            raise ConfigError(f"{self.name}: two maps of the output's shape, {self.output}, must be added, not {maps}")
        with np.errstate(all="ignore"):
            if not np.isfinite(self._reals).all():
                raise ConfigError(f"{self.name}: sums exceed float32's range, with {label_texts(self.labels)}")

    @property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of int64 arrays: all integers of each input's type, in ascending order."""
        first, second = (np.arange(source.type.minimum, source.type.maximum + 1) for source in self.inputs)
        return first, second

    @property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Pair of float64 arrays: what each integer of each input adds to the unrounded sum, in output LSBs.

        ``table`` increases with the sum of both contributions. If the zero point is added before rounding, the second
        share contains it.
        """
        (a, b), (of_a, of_b, result) = self.values, self.labels
        if not self.fused:
            return of_a.reals(a) / np.float64(result.scale), self.sign * of_b.reals(b) / np.float64(result.scale)
        ratio = np.float32(of_a.scale) / np.float32(result.scale)
        return a * np.float64(ratio), qlinear_add(np.zeros(1, np.int64), of_a, b, of_b, result).astype(np.float64)

    @cached_property
    def _reals(self) -> np.ndarray:
        """Array of unrounded float32 sums (output LSBs) of all pairs of input integers, ``[a, b]``, both ascending."""
        (a, b), (of_a, of_b, result) = self.values, self.labels
        if self.fused:
            return qlinear_add(a[:, None], of_a, b[None], of_b, result)
        return (of_a.reals(a)[:, None] + self.sign * of_b.reals(b)[None]) / np.float32(result.scale)

    @cached_property
    def table(self) -> np.ndarray:
        """Array of the output integer for each pair of input integers, int64 ``[a, b]``, both ascending."""
        reach = np.float32(1 << 16)  # beyond any output
        rounded = np.rint(np.clip(self._reals, -reach, reach)).astype(np.int64)
        return np.clip(rounded + self.zero_after, self.low, self.high)

    @property
    def zero_after(self) -> int:
        """Integer zero point of the output, added after the sum is rounded; 0 if ONNX Runtime adds it before."""
        return 0 if self.fused else self.labels[2].zero

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        a, b = (values.astype(np.int64) - of.type.minimum for values, of in zip(maps, self.inputs, strict=True))
        return self.table[a, b].astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sub(Add):
    """Layer that subtracts two quantised maps of at most 8 bits, value by value.

    ONNX Runtime has no integer kernel for differences. It has the parameters of `Add`.

    Raises
    ------
    ConfigError
        If `Add` refuses the parameters, or the difference is ``fused``.
    """

    fused: bool = False

    kind = "sub"
    operators = ("Sub",)
    sign = -1

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        return {**super()._unlabelled(inputs), "fused": False}

    def __post_init__(self) -> None:
        if self.fused:
            raise ConfigError(f"{self.name}: a difference must not be fused, as no sum of ONNX Runtime's is one")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True, eq=False)
class Sum(LabelledJoin):
    """Layer that adds several quantised maps of at most 8 bits in float32, in order (ONNX Sum).

    It has the parameters of `LabelledJoin`.

    Raises
    ------
    ConfigError
        If `LabelledJoin` refuses the parameters, there are fewer than two inputs, shapes differ, or a sum exceeds
        float32.
    """

    kind = "sum"
    operators = ("Sum",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) < 2 or len({side.shape for side in (*self.inputs, self.output)}) != 1:
            maps = " and ".join(map(str, self.inputs))
            raise ConfigError(f"{self.name}: maps of the output's shape, {self.output}, must be added, not {maps}")
        with np.errstate(all="ignore"):
            ends = sum(np.abs(terms).max(initial=0) for terms in self.terms) / np.float32(self.labels[-1].scale)
            if not np.isfinite(np.float32(ends)):
                raise ConfigError(f"{self.name}: sums exceed float32's range, with {label_texts(self.labels)}")

    @property
    def terms(self) -> tuple[np.ndarray, ...]:
        """Tuple of arrays, one per input: float32 values that its integers represent, in ascending order."""
        return tuple(
            label.reals(np.arange(source.type.minimum, source.type.maximum + 1))
            for source, label in zip(self.inputs, self.labels, strict=False)
        )

    def rounded(self, sums: np.ndarray) -> np.ndarray:
        """Return output integers (int64) for float32 sums of dequantised inputs.

        Outputs increase with the sums.
        """
        far = np.float32(1 << 16)  # beyond any output
        scale, zero = np.float32(self.labels[-1].scale), self.labels[-1].zero
        steps = np.rint(np.clip(sums.astype(np.float32) / scale, -far, far)).astype(np.int64)
        return np.clip(steps + zero, self.low, self.high)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        total, *others = (label.reals(values) for label, values in zip(self.labels, maps, strict=False))
        for reals in others:
            total = total + reals
        return self.rounded(total).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mul(LabelledJoin):
    """Layer that multiplies two quantised maps, value by value (QLinearMul).

    The second map can be one pixel for all pixels of the first. It has the parameters of `LabelledJoin`.

    Raises
    ------
    ConfigError
        If `LabelledJoin` refuses the parameters, there are not two inputs with equal channels, the second has another
        size than the first and is not one pixel, or a product exceeds float32.
    """

    kind = "mul"
    operators = ("Mul", "QLinearMul")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) != 2 or len({side.channels for side in (*self.inputs, self.output)}) != 1:
            maps = " and ".join(map(str, self.inputs))
            raise ConfigError(
                f"{self.name}: two maps of {self.output.channels} channels must be multiplied, not {maps}"
            )
        with np.errstate(all="ignore"):
            if not np.isfinite(qlinear_mul(np.array(self.reach), *self.labels)).all():
                raise ConfigError(f"{self.name}: products exceed float32's range, with {label_texts(self.labels)}")

    @property
    def spread(self) -> int:  # type: ignore[override]
        """Number of one-pixel inputs broadcast to all pixels: 1 if only the second input has one pixel, else 0."""
        return int(self.more[0].shape[1:] == (1, 1) != self.input.shape[1:])

    @property
    def reach(self) -> tuple[int, int]:
        """Minimum and maximum product of two input integers, each minus its zero point, as a pair."""
        ends = [
            (source.type.minimum - label.zero, source.type.maximum - label.zero)
            for source, label in zip(self.inputs, self.labels, strict=False)
        ]
        products = [a * b for a in ends[0] for b in ends[1]]
        return min(products), max(products)

    def rounded(self, products: np.ndarray) -> np.ndarray:
        """Return output integers (int64) for products of two input integers, each less its zero point.

        Outputs increase with the products.
        """
        far = np.float32(1 << 16)  # beyond any output
        reals = np.clip(qlinear_mul(products, *self.labels), -far, far)
        return np.clip(np.rint(reals).astype(np.int64), self.low, self.high)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        a, b = (values.astype(np.int64) - label.zero for values, label in zip(maps, self.labels, strict=False))
        return self.rounded(a * b).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recoded(LabelledJoin):
    """Base class of layers that first requantise each input map to the output's scale, by a lookup table.

    Maps of more than `MAX_BITS` bits must all have the output's type, scale and zero point.
    """

    @property
    def _takes_wide(self) -> bool:
        """Whether no value changes, so that any width is accepted: types, scales, zero points and bounds are equal."""
        kind = self.output.type
        whole = self.low <= kind.minimum and kind.maximum <= self.high
        return whole and {source.type for source in self.inputs} == {kind} and len(set(self.labels)) == 1

    def holds_unchanged(self, input_index: int) -> bool:
        kind = self.inputs[input_index].type
        if self._takes_wide or kind != self.output.type:
            return self._takes_wide
        return np.array_equal(self.tables[input_index], np.arange(kind.minimum, kind.maximum + 1))

    @cached_property
    def tables(self) -> tuple[np.ndarray, ...]:
        """Tuple of int64 arrays: each map's integers, ascending, requantised to the output's scale.

        Maps of more than `MAX_BITS` bits have no tables.
        """
        output_type, result = self.output.type, self.labels[-1]
        if output_type.bits > MAX_BITS:
            return ()
        tables = []
        for source, label in zip(self.inputs, self.labels, strict=False):
            values = np.arange(source.type.minimum, source.type.maximum + 1)
            if label != result or source.type != output_type:
                values = quantize_linear(label.reals(values), result.scale, result.zero, output_type)
            tables.append(np.clip(values, self.low, self.high))
        return tuple(tables)

    def recoded(self, maps: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Requantise input maps by `tables` to the output's scale and zero point; return a list of int64 arrays."""
        integers = [values.astype(np.int64) for values in maps]
        if not self.tables:
            return integers
        return [
            table[values - of.type.minimum]
            for values, of, table in zip(integers, self.inputs, self.tables, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Max(Recoded):
    """Layer that computes the maximum of several quantised maps of at most 8 bits, value by value.

    Requantisation keeps the order of values, so the maximum of the requantised values is the requantised maximum. It
    has the parameters of `LabelledJoin`.

    Raises
    ------
    ConfigError
        If `LabelledJoin` refuses the parameters, there are fewer than two inputs, or shapes differ.
    """

    kind = "max"
    operators = ("Max",)
    greatest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) < 2 or len({side.shape for side in (*self.inputs, self.output)}) != 1:
            maps = " and ".join(map(str, self.inputs))
            raise ConfigError(f"{self.name}: maps of the output's shape, {self.output}, must be compared, not {maps}")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        function = np.maximum if self.greatest else np.minimum
        return function.reduce(self.recoded(maps)).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Min(Max):
    """Layer that computes the minimum of several quantised maps of at most 8 bits, value by value.

    It has the parameters of `Max`.
    """

    kind = "min"
    operators = ("Min",)
    greatest = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Concat(Recoded):
    """Layer that concatenates maps along the channels, each requantised to the output's scale (QLinearConcat).

    It has the parameters of `LabelledJoin`.

    Raises
    ------
    ConfigError
        If `LabelledJoin` refuses the parameters, or the output's channels are not the sum of the inputs' channels.
    """

    kind = "concat"
    concatenates = True
    operators = ("Concat", "QLinearConcat")

    @classmethod
    def _joined_channels(cls, maps: Sequence[FeatureMap]) -> int:
        return sum(source.channels for source in maps)

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(source.channels for source in self.inputs) != self.output.channels:
            raise ConfigError(
                f"{self.name}: inputs must have {self.output.channels} channels in all, not "
                f"{sum(source.channels for source in self.inputs)}"
            )

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return np.concatenate(self.recoded(maps)).astype(self.output.type.dtype)
