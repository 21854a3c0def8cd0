"""Biases and thresholds that make a convolution's outputs of few bits change at the same sums as the model's floats.

The QONNX package, and a comparison by Less, compute floats after a convolution: an operator rounds, then the next one.
An output of few bits has few thresholds: the smallest sums with at least a certain output. ONNX Runtime runs the nodes
after the convolution on sums, one node after the other, and a bisection finds the thresholds of each channel. The bias
of a channel is then moved by as little as its thresholds need. If no bias gives all thresholds of a channel, as with
ties that floats round in a row, the thresholds themselves replace the layer's factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hwgen.network.maps import FeatureMap, Requantisation, Thresholds
from hwgen.network.onnx.constants import Constants
from hwgen.network.onnx.function_tables import FunctionWriter
from hwgen.network.onnx.runtime import session
from hwgen.network.onnx.values import AccumulatorState, PendingLayer

MAX_LEVELS = 15
"""Maximum number of thresholds that are searched per channel: enough for outputs of up to 4 bits."""
_MAX_FRACTION = 20
"""Maximum number of fraction bits of a bias that is moved to meet thresholds."""


def bias_fitter(
    constants: Constants, sums: AccumulatorState, label: tuple[np.float32, int]
) -> Callable[[PendingLayer, FeatureMap], None]:
    """Return a function that moves a convolution's biases until its outputs step at the same sums as the model's.

    Parameters
    ----------
    constants : Constants
        Constants of the model.
    sums : AccumulatorState
        Sums with settled weights.
    label : tuple
        Scale and zero point of the output.
    """

    def fit(step: PendingLayer, source: FeatureMap) -> None:
        if 0 < step.high - step.low <= MAX_LEVELS:
            _BiasSearch(step, source, _outputs(constants, sums, *label)).run()

    return fit


def _outputs(
    constants: Constants, sums: AccumulatorState, scale: np.float32, zero: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the model's function from sums without bias, int64 ``(M, n)``, to unclipped outputs in float32."""
    first, formula = sums.first, sums.formula
    assert first is not None
    if formula is not None and sums.opened is not None:
        formula = formula.selected(sums.opened.channels)
    signs = 1 if sums.signs is None else sums.signs[:, None]

    def outputs(values: np.ndarray) -> np.ndarray:
        reals = (first.gain[:, None] * (signs * values) + first.offset[:, None]).astype(np.float32)
        if formula is not None:
            reals = run(reals[None, :, None])[0, :, 0]
        return np.rint(reals / scale + np.float32(zero))

    writer = FunctionWriter(constants)
    output = writer.expression(formula, "x")
    runners: dict[tuple[int, ...], Callable[[np.ndarray], np.ndarray]] = {}

    def run(x: np.ndarray) -> np.ndarray:
        if x.shape not in runners:
            runner = session(writer.model(x, output), optimised=False)
            runners[x.shape] = lambda values: np.asarray(runner.run(None, {"x": values})[0])
        return runners[x.shape](x)

    return outputs


@dataclass
class _BiasSearch:
    """Search for convolution biases such that each output value starts at the same sum as in the model.

    Parameters
    ----------
    step : PendingLayer
        Unfinished convolution, whose outputs have final bounds.
    source : FeatureMap
        Finished input map.
    outputs : callable
        Function from sums without bias to outputs, per channel.
    """

    step: PendingLayer
    source: FeatureMap
    outputs: Callable[[np.ndarray], np.ndarray]

    def __post_init__(self) -> None:
        ends = self.step.convolution(self.source).product_range
        self._lowest, self._highest = (end[:, None] for end in ends)
        self._levels = np.arange(self.step.low + 1, self.step.high + 1)[None, :]

    def run(self) -> None:
        """Move the convolution's biases until each output value starts at the model's sum, or use thresholds."""
        first = self._first_sums()
        wrong = self._is_inexact(first)
        if wrong.any():
            self._move_biases(first, wrong)
            wrong = self._is_inexact(first)
        if wrong.any():
            step = self.step
            step.requantisation = Thresholds(first=first, low=step.low, high=step.high)
            step.bias, step.fraction = np.zeros(len(first), np.int64), 0

    def _move_biases(self, first: np.ndarray, wrong: np.ndarray) -> None:
        """Move the biases of the channels ``wrong`` so that output values start at the sums ``first``, if possible."""
        rule = self.step.requantisation
        assert isinstance(rule, Requantisation)
        factor = np.ldexp(rule.significand.astype(np.float64), self.step.fraction - rule.shift)[:, None]
        ties = (self._levels - rule.zero_point - 0.5) / factor
        low_end = np.where(first > self._highest, -np.inf, ties - first).max(axis=1)
        high_end = np.where(first <= self._lowest, np.inf, ties - first + 1).min(axis=1)
        for fraction in range(self.step.fraction, _MAX_FRACTION + 1):
            bias = np.rint(np.ldexp(_middle(low_end, high_end), fraction))
            fits = (np.ldexp(bias, -fraction) > low_end) & (np.ldexp(bias, -fraction) < high_end)
            if (fits | ~wrong).all():
                self._set_biases(wrong, bias, fraction)
                return

    def _first_sums(self) -> np.ndarray:
        """Return the smallest sum that makes the model output at least each level, int64 ``(M, levels)``.

        If no sum has the output, the result is one more than the largest sum.
        """
        shape = len(self._lowest), self._levels.size
        before = np.broadcast_to(self._lowest - 1, shape).copy()
        first = np.broadcast_to(self._highest + 1, shape).copy()
        while (searching := first - before > 1).any():
            middle = (before + first) // 2
            reached = self.outputs(middle) >= self._levels
            first = np.where(searching & reached, middle, first)
            before = np.where(searching & ~reached, middle, before)
        return first

    def _is_inexact(self, first: np.ndarray) -> np.ndarray:
        """Return a boolean array by channel: whether some output value starts at another sum than ``first``."""
        reached = (self._computed(first) >= self._levels) | (first > self._highest)
        missed = (self._computed(first - 1) < self._levels) | (first <= self._lowest)
        return np.logical_not((reached & missed).all(axis=1))

    def _computed(self, sums: np.ndarray) -> np.ndarray:
        """Return the hardware's outputs for sums without bias, int64 ``(M, n)``."""
        step = self.step
        assert step.bias is not None
        assert step.requantisation is not None
        accumulators = (sums << step.fraction) + step.bias[:, None]
        rule = replace(step.requantisation, low=step.low, high=step.high)
        return rule.outputs(accumulators, int(np.abs(accumulators).max()))

    def _set_biases(self, moved: np.ndarray, bias: np.ndarray, fraction: int) -> None:
        """Replace the biases of the channels ``moved``, and give all biases ``fraction`` fraction bits."""
        step, more = self.step, fraction - self.step.fraction
        assert step.bias is not None
        assert isinstance(step.requantisation, Requantisation)
        step.bias = np.where(moved, bias.astype(np.int64), step.bias << more)
        step.requantisation = replace(step.requantisation, shift=step.requantisation.shift + more)
        step.fraction = fraction


def _middle(low_end: np.ndarray, high_end: np.ndarray) -> np.ndarray:
    """Return an array of each interval's middle; half a step from the finite end if the other is infinite."""
    low = np.where(np.isfinite(low_end), low_end, high_end - 1)
    high = np.where(np.isfinite(high_end), high_end, low + 1)
    return (low + high) / 2
