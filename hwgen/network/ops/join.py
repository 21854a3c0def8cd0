"""Layers that take several maps, pixel by pixel: sums, products, concatenations; and the one for many readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hwgen.errors import ConfigError
from hwgen.network.float32 import Label, qlinear_add, qlinear_mul, quantize_linear
from hwgen.network.maps import UINT8, FeatureMap, Window
from hwgen.network.ops.op import Op, with_clipped_ends

#: Bits of a map's integers at most: what becomes of each of them is listed.
MOST_BITS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Join(Op):
    """A layer without a window that takes maps of the same rows and columns.

    Parameters
    ----------
    more : tuple of FeatureMap
        The inputs after the first.

    Raises
    ------
    ConfigError
        If inputs differ in their rows or columns.
    """

    more: tuple[FeatureMap, ...] = ()

    channelwise = True
    spread = 0
    """Inputs, the last ones, of one pixel that goes with all pixels of the others."""

    @classmethod
    def clipped(cls, parameters: dict[str, Any], low: int, high: int, is_type: bool) -> dict[str, Any] | None:
        return with_clipped_ends(parameters, low, high)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps != 1:
            raise ConfigError(f"{self.name}: a layer that joins maps must have no window, not {self.window}")
        for each in self.more[: len(self.more) - self.spread]:
            if (each.height, each.width) != (self.height, self.width):
                raise ConfigError(f"{self.name}: maps must be of {self.height} x {self.width} pixels, not {each}")

    @classmethod
    def of_maps(cls, name: str, maps: Sequence[FeatureMap]) -> Join:
        """A layer of which nothing is known but the maps that it takes (uint8), which are enough to explore with.

        Raises
        ------
        ConfigError
            If it can't take these.
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
        """The parameters of `of_maps` that this kind has beyond every join's."""
        return {}

    @property
    def inputs(self) -> tuple[FeatureMap, ...]:
        return (self.input, *self.more)

    @property
    def geometry(self) -> tuple[Any, ...]:
        return (*super().geometry, tuple(each.shape for each in self.more))

    @property
    def pad_value(self) -> int:
        """Nothing is read beyond the map."""
        return self.input.type.minimum


@dataclass(frozen=True, kw_only=True, eq=False)
class Copy(Join):
    """The map as it is: what stands in front of a network's input where several layers read it."""

    kind = "copy"
    operators = ("Identity",)
    selects = copies = keeps_type = True

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return maps[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledJoin(Join):
    """A join that says what its integers stand for, as it gives others.

    Parameters
    ----------
    labels : tuple of Label
        Scales and zero points of the inputs, then of the output.
    low, high : int
        Bounds of the output: those of its type, or tighter where a Relu or Clip follows.

    Raises
    ------
    ConfigError
        If there is not a label for each map, or values have more than 8 bits.
    """

    labels: tuple[Label, ...]
    low: int
    high: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) != len(self.inputs) + 1:
            raise ConfigError(f"{self.name}: labels must be those of {len(self.inputs)} inputs and of the output")
        if max(each.type.bits for each in (*self.inputs, self.output)) > MOST_BITS:
            raise ConfigError(f"{self.name}: values must have at most {MOST_BITS} bits, not {self.inputs}")

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        return {"labels": (Label(1.0, 0),) * (inputs + 1), "low": UINT8.minimum, "high": UINT8.maximum}


@dataclass(frozen=True, kw_only=True, eq=False)
class Add(LabelledJoin):
    """The sum of two maps of at most 8 bits, value by value.

    Parameters are those of `LabelledJoin`, and:

    Parameters
    ----------
    fused : bool
        ONNX Runtime has one integer kernel for the three operators (QLinearAdd): the zero point is added before the
        sum is rounded to an integer. Otherwise (a Relu stands before the quantiser, for instance) the inputs are
        dequantised, added and quantised, in float32 each.
    loaded : bool
        The hardware shall take other scales and zero points at run time: these are those that it begins with.

    Raises
    ------
    ConfigError
        As `LabelledJoin`, and if there are not two inputs of the same shape, or a sum is beyond float32.
    """

    fused: bool
    loaded: bool = False

    kind = "add"
    operators = ("Add", "QLinearAdd")
    sign = 1
    """-1 where the second map is subtracted."""

    @classmethod
    def _unlabelled(cls, inputs: int) -> dict[str, Any]:
        return {**super()._unlabelled(inputs), "fused": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) != 2 or len({each.shape for each in (*self.inputs, self.output)}) != 1:
            raise ConfigError(f"{self.name}: two maps of the output's shape must be added, not {self.inputs}")
        with np.errstate(all="ignore"):
            if not np.isfinite(self._reals).all():
                raise ConfigError(f"{self.name}: sums must be finite in float32, not with {self.labels}")

    @property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """All values of each input, int64 from the least to the greatest."""
        first, second = (np.arange(each.type.minimum, each.type.maximum + 1) for each in self.inputs)
        return first, second

    @property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """What each value of an input adds to the output, exactly but for float64: before what is fused is rounded.

        ``table`` rises with their sum. The output's zero point is in the second, if it is added before rounding.
        """
        (a, b), (of_a, of_b, result) = self.values, self.labels
        if not self.fused:
            return of_a.reals(a) / np.float64(result.scale), self.sign * of_b.reals(b) / np.float64(result.scale)
        ratio = np.float32(of_a.scale) / np.float32(result.scale)
        return a * np.float64(ratio), qlinear_add(np.zeros(1, np.int64), of_a, b, of_b, result).astype(np.float64)

    @cached_property
    def _reals(self) -> np.ndarray:
        """What is rounded to an integer, for each pair of values, float32."""
        (a, b), (of_a, of_b, result) = self.values, self.labels
        if self.fused:
            return qlinear_add(a[:, None], of_a, b[None], of_b, result)
        return (of_a.reals(a)[:, None] + self.sign * of_b.reals(b)[None]) / np.float32(result.scale)

    @cached_property
    def table(self) -> np.ndarray:
        """The output for each pair of values, int64 ``[a, b]``, both from the least to the greatest."""
        reach = np.float32(1 << 16)  # beyond any output
        rounded = np.rint(np.clip(self._reals, -reach, reach)).astype(np.int64)
        return np.clip(rounded + self.zero_after, self.low, self.high)

    @property
    def zero_after(self) -> int:
        """The zero point, where it is added after rounding; 0 where before."""
        return 0 if self.fused else self.labels[2].zero

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        a, b = (each.astype(np.int64) - of.type.minimum for each, of in zip(maps, self.inputs, strict=True))
        return self.table[a, b].astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sub(Add):
    """The difference of two maps of at most 8 bits, value by value; ONNX Runtime has no integer kernel for it.

    Parameters are those of `Add`.

    Raises
    ------
    ConfigError
        As `Add`, and if it is ``fused``.
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
    """The sum of several maps of at most 8 bits, in float32: each is dequantised, and added to those before it.

    Parameters are those of `LabelledJoin`.

    Raises
    ------
    ConfigError
        As `LabelledJoin`, and if there are not two inputs or more of the output's shape, or a sum is beyond float32.
    """

    kind = "sum"
    operators = ("Sum",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) < 2 or len({each.shape for each in (*self.inputs, self.output)}) != 1:
            raise ConfigError(f"{self.name}: maps of the output's shape must be added, not {self.inputs}")
        with np.errstate(all="ignore"):
            ends = sum(np.abs(terms).max(initial=0) for terms in self.terms) / np.float32(self.labels[-1].scale)
            if not np.isfinite(np.float32(ends)):
                raise ConfigError(f"{self.name}: sums must be finite in float32, not with {self.labels}")

    @property
    def terms(self) -> tuple[np.ndarray, ...]:
        """For each input what each of its values stands for, float32, from the least to the greatest."""
        return tuple(
            label.reals(np.arange(each.type.minimum, each.type.maximum + 1))
            for each, label in zip(self.inputs, self.labels, strict=False)
        )

    def rounded(self, sums: np.ndarray) -> np.ndarray:
        """The outputs, int64, of float32 sums; they rise with these."""
        far = np.float32(1 << 16)  # beyond any output
        scale, zero = np.float32(self.labels[-1].scale), self.labels[-1].zero
        steps = np.rint(np.clip(sums.astype(np.float32) / scale, -far, far)).astype(np.int64)
        return np.clip(steps + zero, self.low, self.high)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        total, *others = (label.reals(each) for label, each in zip(self.labels, maps, strict=False))
        for each in others:
            total = total + each
        return self.rounded(total).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mul(LabelledJoin):
    """The product of two maps, value by value (QLinearMul); the second may be a pixel for all pixels of the first.

    Parameters are those of `LabelledJoin`.

    Raises
    ------
    ConfigError
        As `LabelledJoin`, and if there are not two inputs of the same channels, the second is neither of the first
        one's size nor a pixel, or a product is beyond float32.
    """

    kind = "mul"
    operators = ("Mul", "QLinearMul")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) != 2 or len({each.channels for each in (*self.inputs, self.output)}) != 1:
            raise ConfigError(f"{self.name}: two maps of the output's channels must be multiplied, not {self.inputs}")
        with np.errstate(all="ignore"):
            if not np.isfinite(qlinear_mul(np.array(self.reach), *self.labels)).all():
                raise ConfigError(f"{self.name}: products must be finite in float32, not with {self.labels}")

    @property
    def spread(self) -> int:  # type: ignore[override]
        return int(self.more[0].shape[1:] == (1, 1) != self.input.shape[1:])

    def covered(self, place: int, axis: int, begin: Any, end: Any) -> tuple[Any, Any]:
        """Of a pixel for all pixels always that pixel."""
        return (0 * begin, 0 * end + 1) if place and self.spread else super().covered(place, axis, begin, end)

    def pace(self, place: int, axis: int) -> Fraction:
        return Fraction(0) if place and self.spread else super().pace(place, axis)

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the greatest product of integers less their zero points."""
        ends = [
            (each.type.minimum - label.zero, each.type.maximum - label.zero)
            for each, label in zip(self.inputs, self.labels, strict=False)
        ]
        products = [a * b for a in ends[0] for b in ends[1]]
        return min(products), max(products)

    def rounded(self, products: np.ndarray) -> np.ndarray:
        """The outputs, int64, of products of integers less their zero points; they rise with these."""
        far = np.float32(1 << 16)  # beyond any output
        reals = np.clip(qlinear_mul(products, *self.labels), -far, far)
        return np.clip(np.rint(reals).astype(np.int64), self.low, self.high)

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        a, b = (each.astype(np.int64) - label.zero for each, label in zip(maps, self.labels, strict=False))
        return self.rounded(a * b).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recoded(LabelledJoin):
    """A join that dequantises each of its maps and quantises it anew, by a table of its values."""

    @cached_property
    def tables(self) -> tuple[np.ndarray, ...]:
        """For each input what becomes of its values, int64, from the least to the greatest."""
        kind, result = self.output.type, self.labels[-1]
        found = []
        for each, label in zip(self.inputs, self.labels, strict=False):
            values = np.arange(each.type.minimum, each.type.maximum + 1)
            if label != result or each.type != kind:
                values = quantize_linear(label.reals(values), result.scale, result.zero, kind)
            found.append(np.clip(values, self.low, self.high))
        return tuple(found)

    def recoded(self, maps: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What becomes of each map, int64."""
        return [
            table[each.astype(np.int64) - of.type.minimum]
            for each, of, table in zip(maps, self.inputs, self.tables, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Max(Recoded):
    """Of several maps of at most 8 bits the greatest, value by value, in float32.

    Quantising keeps the order, so the greatest of what each becomes is what the greatest becomes. Parameters are those
    of `LabelledJoin`.

    Raises
    ------
    ConfigError
        As `LabelledJoin`, and if there are not two inputs or more of the output's shape.
    """

    kind = "max"
    operators = ("Max",)
    greatest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.inputs) < 2 or len({each.shape for each in (*self.inputs, self.output)}) != 1:
            raise ConfigError(f"{self.name}: maps of the output's shape must be compared, not {self.inputs}")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        chosen = np.maximum if self.greatest else np.minimum
        return chosen.reduce(self.recoded(maps)).astype(self.output.type.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Min(Max):
    """The same with the least."""

    kind = "min"
    operators = ("Min",)
    greatest = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Concat(Recoded):
    """Maps one behind the other, channel by channel, each dequantised and quantised anew (QLinearConcat).

    Parameters are those of `LabelledJoin`.

    Raises
    ------
    ConfigError
        As `LabelledJoin`, and if the channels of the inputs are not those of the output together.
    """

    kind = "concat"
    operators = ("Concat", "QLinearConcat")

    @classmethod
    def _joined_channels(cls, maps: Sequence[FeatureMap]) -> int:
        return sum(each.channels for each in maps)

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(each.channels for each in self.inputs) != self.output.channels:
            raise ConfigError(f"{self.name}: inputs must have {self.output.channels} channels together")

    def compute(self, *maps: np.ndarray) -> np.ndarray:
        return np.concatenate(self.recoded(maps)).astype(self.output.type.dtype)
