"""NumPy models of ONNX Runtime's float32 kernels for quantised maps, with the same rounding in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.network.maps import IntegerType

#: Number of bits of a float32's significand.
_SIGNIFICAND_BITS = np.finfo(np.float32).nmant + 1


@dataclass(frozen=True)
class Label:
    """Scale (float32) and zero point of a map: an integer stands for the real number ``scale * (integer - zero)``."""

    scale: float
    zero: int

    def reals(self, values: np.ndarray) -> np.ndarray:
        """Return the float32 values that a map's integers represent, as ONNX DequantizeLinear computes them."""
        return (values.astype(np.int64) - self.zero).astype(np.float32) * np.float32(self.scale)


def label_texts(labels: Sequence[Label]) -> str:
    """Return the scales and zero points of a layer's inputs, then its output, as text for a message."""
    *inputs, output = (f"scale {label.scale:g} and zero point {label.zero}" for label in labels)
    return f"inputs of {', and '.join(inputs)}, and an output of {output}"


def quantize_linear(values: np.ndarray, scale: np.float32 | float, zero: int, kind: IntegerType) -> np.ndarray:
    """Quantise float32 ``values`` like ONNX QuantizeLinear, and return the integers as int64."""
    steps = np.rint(values / np.float32(scale)).astype(np.float64)
    return np.clip(steps + zero, kind.minimum, kind.maximum).astype(np.int64)


def qlinear_add(a: np.ndarray, of_a: Label, b: np.ndarray, of_b: Label, result: Label) -> np.ndarray:
    """Return QLinearAdd's float32 results, zero point included, before rounding to integers and saturation.

    ``a`` and ``b`` broadcast. ONNX Runtime computes ``fma(a, ra, fma(b, rb, base))`` with ``ra = a_scale / y_scale``
    (``rb`` alike) and ``base = y_zero - fma(ra, a_zero, rb * b_zero)``: the zero point is inside the rounding.
    """
    scale = np.float32(result.scale)
    with np.errstate(over="ignore", invalid="ignore"):
        ra, rb = np.float32(of_a.scale) / scale, np.float32(of_b.scale) / scale
        base = np.float32(result.zero) - fma(ra, np.float32(of_a.zero), rb * np.float32(of_b.zero))
        return fma(a.astype(np.float32), ra, fma(b.astype(np.float32), rb, base))


def qlinear_mul(products: np.ndarray, of_a: Label, of_b: Label, result: Label) -> np.ndarray:
    """Return QLinearMul's float32 results, zero point included, from exact products, before rounding and saturation.

    A product is of two integers, each less its zero point. The output's zero point is inside the rounding.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.float32(of_a.scale) * np.float32(of_b.scale) / np.float32(result.scale)
        return products.astype(np.float32) * ratio + np.float32(result.zero)


def fma(factor: np.ndarray | np.float32, other: np.ndarray | np.float32, addend: np.ndarray | np.float32) -> np.ndarray:
    """Return ``factor * other + addend`` in float32, rounded once (fused multiply-add)."""
    product = np.multiply(factor, other, dtype=np.float64)  # exact
    total = np.asarray(product + addend)
    # Rounding error of the sum. With its last bit set where there is an error, float64 rounds to float32 as the exact
    # sum does.
    back = total - product
    lacking = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    return np.where(even & (lacking != 0), np.nextafter(total, np.copysign(np.inf, lacking)), total).astype(np.float32)


def as_integers(tables: Sequence[np.ndarray]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return a pair: float32 tables as integer multiples of ``2**exponent`` (tuples), and the largest such exponent."""
    terms = np.concatenate(tables)
    _, exponents = np.frexp(terms[terms != 0])
    exponent = int(exponents.min(initial=0)) - _SIGNIFICAND_BITS
    integers = [[int(term) for term in np.ldexp(table.astype(np.float64), -exponent)] for table in tables]
    while all(term % 2 == 0 for table in integers for term in table) and any(map(any, integers)):
        integers, exponent = [[term // 2 for term in table] for table in integers], exponent + 1
    return tuple(map(tuple, integers)), exponent
