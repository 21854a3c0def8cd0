"""Array passes of local response normalisation (LRN), for LRNs where a value reaches at most one threshold.

An output's distance from the zero point falls by one if the sum of squares over the channel's window reaches a
threshold. The sum is an integer, in float32 steps. A threshold belongs to a value of the middle channel. With usual
parameters (``alpha`` 1e-4) the sum hardly moves the power, so that each value has one threshold at most.

1. Passes with tables write digits of each value's square and threshold. Row ``y`` of digit ``d`` is row
   ``y * digits + d`` of a scratch map.
2. A convolution, whose taps are these rows, adds the squares of the window and subtracts the threshold of the middle
   channel. Its output tells whether the sum reaches the threshold.
3. A pass adds the sign of the value to this output, looks up both, and adds what the value gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwgen.errors import ModelError
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.engine.finish import ACTIVATION
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import LRN
from hwgen.network.ops.lrn import to_bits
from hwgen.program.array_pass import LookupTables, Pass, PixelGrid, rule_of, unscaled_pass
from hwgen.program.elementwise import integer_sum
from hwgen.program.layout import by_value, parameter_words

#: Weight of the higher digits of a square or threshold: the lowest digit is below it, the others have 8 bits.
_UNIT = 127
#: Largest digit of a square or threshold that a map stores.
_MAX_DIGIT = 255
#: Maximum number of digits of a square and a threshold together, which are taps of one convolution.
_MAX_TAPS = 64


def normalise_passes(op: LRN, edges: Sequence[str]) -> tuple[Pass, ...]:
    """Return a tuple of each `Pass` through the array that computes local response normalisation exactly.

    Raises
    ------
    ModelError
        If the order of float32 additions decides sums, or a value has several thresholds.
    """
    if (refusal := _refusal(op)) is not None:
        raise ModelError(f"{op.name}: {refusal}; a smaller alpha, or --template stream, would work")
    squares, thresholds = _digits(_squares(op)), _digits(_thresholds(op))
    digits, reached = normalise_scratch(op)
    stored = [*(digit - 128 for digit in (*squares, *thresholds))]
    passes = [_lookup_pass(op, edges, digits, len(stored), index, table) for index, table in enumerate(stored)]
    passes.append(_lookup_pass(op, edges, reached, 2, 1, (_values(op) < 0).astype(np.int64)))
    passes.append(_threshold_pass(op, digits, reached, len(squares), len(thresholds)))
    passes.append(_output_pass(op, edges, reached))
    return tuple(passes)


def _refusal(op: LRN) -> str | None:
    """Return a text that says why the engine can't compute an LRN; ``None`` if it can."""
    if not op.scale.steady:
        return "ONNX Runtime's sum of squares depends on its order of float32 additions, but the engine adds integers"
    if op.falls.count.max() > 1 or op.falls.ripples.any():
        return (
            "the engine supports one threshold of the sum of squares per value and output, not "
            f"{op.falls.count.max()}, and only outputs that fall as the sum rises"
        )
    taps = len(_digits(_squares(op))) + len(_digits(_thresholds(op)))
    if taps > _MAX_TAPS:
        return f"squares and thresholds take {taps} digits, and the engine adds {_MAX_TAPS} at most"
    return None


def normalise_scratch(op: LRN) -> dict[str, FeatureMap]:
    """Return a dict by name of each scratch `FeatureMap` that the passes of a response normalisation exchange."""
    if _refusal(op) is not None:
        return {}
    count = len(_digits(_squares(op))) + len(_digits(_thresholds(op)))
    digit = replace(op.output, type=INT8, zero_point=0, scale=None)
    return {
        f"{op.name} digits": replace(digit, height=count * digit.height),
        f"{op.name} reached": replace(digit, height=2 * digit.height),
    }


def _values(op: LRN) -> np.ndarray:
    """Return all values of a normalisation's input type minus the zero point, in ascending order, int64."""
    return np.arange(op.input.type.minimum, op.input.type.maximum + 1) - op.input.zero_point


def _squares(op: LRN) -> np.ndarray:
    """Return, for each input value in ascending order, the square that it adds to the sum of its window, int64."""
    return op.scale.steps[np.abs(_values(op))]


def _thresholds(op: LRN) -> np.ndarray:
    """Return an array by input value: the smallest sum of squares that lowers its output by one, or beyond all."""
    falls, sizes = op.falls, np.abs(_values(op))
    beyond = min(op.scale.size, op.channels) * int(op.scale.steps.max()) + 1
    if not len(falls.at):
        return np.full(len(sizes), beyond)
    at = falls.at[np.minimum(falls.first[sizes], len(falls.at) - 1)] - int(to_bits(np.float32(op.scale.bias)))
    return np.where(falls.count[sizes] > 0, np.clip(at, 0, beyond), beyond)


def _digits(table: np.ndarray) -> list[np.ndarray]:
    """Return a list of arrays of digits 0 to 255: the first, plus `_UNIT` times the sum of the others, is ``table``."""
    rest = table // _UNIT
    count = -(-int(rest.max()) // _MAX_DIGIT)
    return [table % _UNIT, *(np.clip(rest - index * _MAX_DIGIT, 0, _MAX_DIGIT) for index in range(count))]


def _weights(count: int) -> np.ndarray:
    """Return an array of the weights of an integer's ``count`` digits: 1 for the first, `_UNIT` for the others."""
    return np.array([1] + [_UNIT] * (count - 1))


def _lookup_pass(op: LRN, edges: Sequence[str], scratch: str, rows: int, index: int, table: np.ndarray) -> Pass:
    """Return a `Pass` that looks up the input's values and writes them to every ``rows``-th row of a scratch map."""
    return replace(
        unscaled_pass(op, edges, op.input.type),
        target=(scratch, 0),
        tables=(LookupTables(first=ACTIVATION, entries=by_value(table, op.input.type)[None]),),
        lattice=PixelGrid(step=(rows, 1), first=(index, 0)),
    )


def _threshold_pass(op: LRN, digits: str, reached: str, squares: int, thresholds: int) -> Pass:
    """Return a convolution `Pass` that outputs 1 if the sum of squares reaches the channel's threshold, otherwise 0."""
    channels, count = np.arange(op.channels), squares + thresholds
    distance = np.abs(channels[:, None] - channels)
    inside, middle = (distance <= op.scale.half).astype(np.int64), (distance == 0).astype(np.int64)
    taps = [inside * weight for weight in _weights(squares)] + [-middle * weight for weight in _weights(thresholds)]
    weights = np.stack(taps, axis=-1)[..., None]
    bias = 1 + 128 * weights.sum(axis=(1, 2, 3))  # a sum of -1 gives 0, a sum of 0 gives 1
    one = np.full(op.channels, 1 << 23)
    return replace(
        unscaled_pass(op, (digits,), INT8),
        target=(reached, 0),
        lattice=PixelGrid(step=(2, 1)),
        height=count * op.height,
        window=_column_window(op, count),
        channels=op.channels,
        channelwise=False,
        weights=weights,
        rule=rule_of(INT8, 0, 0, 1),
        parameters=parameter_words(bias, one, 23 + 0 * one),
    )


def _output_pass(op: LRN, edges: Sequence[str], reached: str) -> Pass:
    """Return the `Pass` that looks up outputs, a step nearer to the zero point where the map ``reached`` is 1."""
    values, falls = _values(op), op.falls
    signs, sizes = np.where(values < 0, -1, 1), np.abs(values)
    without_fall = op.output.zero_point + signs * (falls.last_distance + falls.count)[sizes]
    change = np.array([0, -1, 0, 1])  # by comparison and sign
    map_type = INT8
    moved = np.zeros(map_type.maximum - map_type.minimum + 1, np.int64)
    moved[-map_type.minimum :][: len(change)] = change
    return replace(
        unscaled_pass(op, (reached,), map_type),
        height=2 * op.height,
        window=_column_window(op, 2),
        weights=np.tile(np.array([1, 2])[:, None], (LANES, 1, 1, 1)),
        addend=(edges[0], 0),
        sum_rule=rule_of(op.output.type, 0, op.low, op.high),
        tables=(integer_sum(by_value(moved, map_type), by_value(without_fall, op.input.type)),),
    )


def _column_window(op: LRN, taps: int) -> Window:
    """Return a `Window` of ``taps`` rows and one column, with a vertical stride of ``taps``."""
    return Window(kernel=(taps, 1), stride=(taps if op.height > 1 else 1, 1))
