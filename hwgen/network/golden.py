"""The golden model: a network computed in integers, with NumPy; float32 where ONNX Runtime rounds to it.

A convolution is a matrix product over im2col columns, a block of output rows at a time, in float64: exact as
long as no partial sum can reach 2**53, which is checked from the weights. Slower int64 steps in beyond that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hwgen.errors import ConfigError, InputError
from hwgen.network.graph import Conv, FeatureMap, Layer, MaxPool, Network, Requantisation

_BLOCK = 1 << 21
"""Values of the im2col matrix in one block: 16 MiB of float64."""


def run(network: Network, frames: np.ndarray) -> np.ndarray:
    """Outputs ``(n, C, H, W)`` of the output type for ``frames``, ``(n, C, H, W)`` of the input type.

    Raises InputError where ``frames`` has another shape or type.
    """
    check_frames(network, frames)
    outputs = np.empty((len(frames), *network.output.shape), network.output.type.dtype)
    for frame, output in zip(frames, outputs, strict=True):
        value = frame
        for layer in network.layers:
            value = compute(layer, value)
        output[:] = value
    return outputs


def trace(network: Network, frames: np.ndarray) -> Iterator[tuple[Layer, np.ndarray]]:
    """Each layer in turn with its outputs ``(n, C, H, W)``; ``frames`` as in :func:`run`."""
    check_frames(network, frames)
    for layer in network.layers:
        outputs = np.empty((len(frames), *layer.output.shape), layer.output.type.dtype)
        for frame, output in zip(frames, outputs, strict=True):
            output[:] = compute(layer, frame)
        yield layer, outputs
        frames = outputs


def compute(layer: Layer, frame: np.ndarray) -> np.ndarray:
    """One layer of one frame, ``(C, H, W)`` to ``(C, H, W)``."""
    if isinstance(layer, Conv):
        return _convolve(layer, frame)
    if isinstance(layer, MaxPool):
        return _pool(layer, frame)
    raise ConfigError(f"{layer.name}: the golden model must know the layer's kind, not {layer.kind!r}")


def check_frames(network: Network, frames: np.ndarray) -> None:
    """Raise InputError unless ``frames`` is ``(n, C, H, W)`` of the network's input type, ``n`` at least 1."""
    expected = network.input
    if not isinstance(frames, np.ndarray) or frames.ndim != 4 or frames.shape[1:] != expected.shape or not len(frames):
        shape = getattr(frames, "shape", type(frames).__name__)
        raise InputError(f"{network.name}: input must be of shape (frames, {_sizes(expected)}), not {shape}")
    if frames.dtype != expected.type.dtype:
        raise InputError(f"{network.name}: input must be {expected.type.dtype} here, not {frames.dtype}")
    low, high = int(frames.min()), int(frames.max())
    if low < expected.type.minimum or high > expected.type.maximum:
        raise InputError(f"{network.name}: input must lie in {expected.type}, not reach from {low} to {high}")


def accumulator_bound(layer: Conv) -> int:
    """The largest magnitude that any partial sum of any accumulator of ``layer`` can take."""
    kind, zero = layer.input.type, layer.input.zero_point
    reach = max(kind.maximum - zero, zero - kind.minimum)
    weights = int(np.abs(layer.weights).sum(axis=(1, 2, 3)).max())
    return weights * reach + int(np.abs(layer.bias).max())


def requantise(accumulators: np.ndarray, requantisation: Requantisation, bound: int) -> np.ndarray:
    """Integer accumulators ``(M, n)`` to int64 outputs ``(M, n)``.

    ``bound`` is the largest magnitude among ``accumulators`` that can occur, below 2**60. Outputs have 32 bits at most.
    """
    significand, shift = requantisation.significand[:, None], requantisation.shift[:, None]
    if requantisation.float32:
        # Products are below 2**84. Where the factor is below float32's least normal number they are far below 1/2.
        factor = np.ldexp(significand.astype(np.float32), -np.minimum(shift, 1 << 10).astype(np.int32))
        product = np.rint(accumulators.astype(np.float32) * factor)
        reach = np.float32(1 << 33)  # beyond any output
        quotient = np.clip(product, -reach, reach).astype(np.int64)
    elif bound << 24 < 1 << 61:
        quotient = _rounded(accumulators * significand, shift)
    else:
        # Products past int64. Where the shift is below 24, the factor is 1 or more: what is clamped saturates anyway.
        clamped = np.clip(accumulators, -(1 << 33), 1 << 33)
        quotient = np.where(
            shift < 24,
            _rounded(clamped * significand, np.minimum(shift, 23)),
            _rounded_in_halves(accumulators, significand, np.maximum(shift, 24)),
        )
    quotient += requantisation.zero_point
    return np.clip(quotient, requantisation.low, requantisation.high, out=quotient)


def _rounded(product: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``product / 2**shift``, half to even; ``product`` below 2**61."""
    shift = np.minimum(shift, 62)  # makes 0 of every product
    quotient = product >> shift
    product -= quotient << shift
    # Twice the remainder against the divisor: above rounds up, equal rounds up to even.
    product <<= 1
    product += quotient & 1
    quotient += product > (np.ones_like(shift) << shift)
    return quotient


def _rounded_in_halves(accumulators: np.ndarray, significand: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """``accumulators * significand / 2**shift``, half to even, for products past int64 and shifts of 24 or more.

    A product is ``upper * 2**24 + lower``; only whether bits of ``lower`` below its highest one are set matters.
    """
    lower = (accumulators & 0xFFFFFF) * significand
    upper = (accumulators >> 24) * significand + (lower >> 24)
    # Halves of the last place of ``upper``, and whether there is more.
    more = (lower & 0x7FFFFF) != 0
    shift = np.minimum(shift - 24, 61)  # makes 0 of every product
    quotient = upper >> shift
    twice = ((upper - (quotient << shift)) << 1) + (lower >> 23 & 1)
    divisor = np.ones_like(shift) << shift
    quotient += (twice > divisor) | ((twice == divisor) & (more | (quotient & 1 == 1)))
    return quotient


def _convolve(layer: Conv, frame: np.ndarray) -> np.ndarray:
    bound = accumulator_bound(layer)
    # Integers that float64 holds exactly, each partial sum included; the bias joins in int64.
    exact = np.float64 if bound < 1 << 53 else np.int64
    bits = 64 if layer.requantisation is None else 61
    if bound >= 1 << (bits - 1):
        raise ConfigError(f"{layer.name}: accumulators must fit {bits} bits, not reach {bound}")
    if layer.requantisation is None and bound > layer.output.type.maximum:
        raise ConfigError(f"{layer.name}: accumulators must fit the output's {layer.output.type}, not reach {bound}")
    padded = _pad(frame, layer, layer.input.zero_point)
    (kernel_rows, kernel_columns), stride = layer.window.kernel, layer.window.stride
    rows, columns = layer.output.height, layer.output.width
    per_group, outputs = layer.weights.shape[1], len(layer.weights) // layer.groups
    taps = per_group * kernel_rows * kernel_columns
    block = max(1, _BLOCK // (taps * columns))
    result = np.empty(layer.output.shape, layer.output.type.dtype)
    for group in range(layer.groups):
        channels = slice(group * per_group, (group + 1) * per_group)
        filters = slice(group * outputs, (group + 1) * outputs)
        weights = layer.weights[filters].reshape(outputs, taps).astype(exact)
        for first in range(0, rows, block):
            last = min(first + block, rows)
            band = padded[channels, first * stride[0] : (last - 1) * stride[0] + kernel_rows].astype(exact)
            band -= layer.input.zero_point
            windows = sliding_window_view(band, layer.window.kernel, axis=(1, 2))[:, :: stride[0], :: stride[1]]
            windows = windows[:, :, :columns].transpose(0, 3, 4, 1, 2).reshape(taps, (last - first) * columns)
            accumulators = (weights @ windows).astype(np.int64)
            accumulators += layer.bias[filters, None]
            if layer.requantisation is not None:
                accumulators = requantise(accumulators, _filters(layer.requantisation, filters), bound)
            result[filters, first:last] = accumulators.reshape(outputs, last - first, columns)
    return result


def _filters(requantisation: Requantisation, filters: slice) -> Requantisation:
    return replace(requantisation, significand=requantisation.significand[filters], shift=requantisation.shift[filters])


def _pool(layer: MaxPool, frame: np.ndarray) -> np.ndarray:
    padded = _pad(frame, layer, layer.input.type.minimum)
    (kernel_rows, kernel_columns), (down, right) = layer.window.kernel, layer.window.stride
    rows, columns = layer.output.height, layer.output.width
    result = np.full(layer.output.shape, layer.input.type.minimum, layer.output.type.dtype)
    for y in range(kernel_rows):
        for x in range(kernel_columns):
            tap = padded[:, y : y + (rows - 1) * down + 1 : down, x : x + (columns - 1) * right + 1 : right]
            np.maximum(result, tap, out=result)
    return result


def _pad(frame: np.ndarray, layer: Layer, value: int) -> np.ndarray:
    top, left, bottom, right = layer.window.padding
    return np.pad(frame, ((0, 0), (top, bottom), (left, right)), constant_values=value)


def _sizes(feature_map: FeatureMap) -> str:
    return ", ".join(map(str, feature_map.shape))
