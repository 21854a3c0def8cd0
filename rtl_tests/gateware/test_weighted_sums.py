"""Weighted sums of four pixels: exact ones, and those in float32 against NumPy's, with latency and resources."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import pack, run, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.interpolate import FloatWeightedSumConfig, WeightedSumConfig
from hwgen.gateware.resample import ResampleConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.tools import synthesis


def reader(lanes: int, bits: int, signed: bool, counts: tuple[int, int]) -> ResampleConfig:
    """Return a reader of pairs of rows and columns, with as many phases of rows and of columns as ``counts`` says."""
    beat = BeatFormat(channels=lanes, height=2, width=2, lanes=lanes, bits=bits, signed=signed)
    rows, columns = counts
    return ResampleConfig(
        input=beat,
        source_rows=(0,) * rows,
        source_columns=(0,) * columns,
        pairs=(True, True),
        row_phases=tuple(range(rows)),
        column_phases=tuple(range(columns)),
    )


def sums_of(config: WeightedSumConfig, taps: np.ndarray, phases: np.ndarray) -> list[list[int]]:
    """Run the component on steps with ``taps`` ``(steps, 4, lanes)`` and ``phases`` ``(steps, 2)``; return its sums."""
    layout = config.window.step_layout
    beats = []
    for values, (row, column) in zip(taps.tolist(), phases.tolist(), strict=True):
        word = pack([value for tap in values for value in tap], config.window.input.bits)
        for name, phase in (("row_phase", row), ("column_phase", column)):
            word |= phase << layout[name].offset
        beats.append(word)
    trace = run(config.component(), beats, len(beats))
    assert trace.times == [cycle + config.latency for cycle in trace.taken]
    return [unpack(word, config.result.width, True, config.lanes) for word in trace.words]


@st.composite
def weights(draw, parts: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, parts), min_size=1, max_size=5)))


@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_exact_sums(data, seed) -> None:
    rng = np.random.default_rng(seed)
    parts = data.draw(st.tuples(st.integers(1, 70), st.integers(1, 70)))
    rows, columns = data.draw(weights(parts[0])), data.draw(weights(parts[1]))
    lanes, bits, signed = data.draw(st.integers(1, 2)), data.draw(st.integers(2, 8)), data.draw(st.booleans())
    window = reader(lanes, bits, signed, (len(rows), len(columns)))
    config = WeightedSumConfig(window=window, row_weights=rows, column_weights=columns, axis_parts=parts)
    low, high = window.input.value_range
    taps = rng.integers(low, high + 1, (40, 4, lanes))
    taps[:2] = np.array([low, high]).reshape(2, 1, 1)
    phases = rng.integers(0, (len(rows), len(columns)), (40, 2))
    below, beside = np.array(rows)[phases[:, 0], None], np.array(columns)[phases[:, 1], None]
    expected = (parts[0] - below) * ((parts[1] - beside) * taps[:, 0] + beside * taps[:, 1])
    expected += below * ((parts[1] - beside) * taps[:, 2] + beside * taps[:, 3])
    np.testing.assert_array_equal(sums_of(config, taps, phases), expected)


@settings(max_examples=15)
@given(
    scale=st.integers(1, (1 << 24) - 1), zero=st.integers(0, 255), factors=st.tuples(*2 * [st.sampled_from([2, 4, 8])]),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_float_sums(scale: int, zero: int, factors: tuple[int, int], seed: int) -> None:
    """In NumPy's float32, in ONNX Runtime's order, all products and sums rounded."""
    rng = np.random.default_rng(seed)
    rows, columns = (tuple(range(parts + 1)) for parts in factors)
    reals = (np.arange(256) - zero).astype(np.float32) * np.float32(scale)
    config = FloatWeightedSumConfig(
        window=reader(1, 8, False, (len(rows), len(columns))),
        row_weights=rows,
        column_weights=columns,
        axis_parts=factors,
        terms=tuple(map(int, reals)),
    )
    taps = rng.integers(0, 256, (60, 4, 1))
    taps[:2] = np.array([0, 255]).reshape(2, 1, 1)
    phases = rng.integers(0, (len(rows), len(columns)), (60, 2))
    down, right = phases[:, :1].astype(np.float32), phases[:, 1:].astype(np.float32)
    total = np.zeros((60, 1), np.float32)
    for tap, (row, column) in enumerate(
        product((np.float32(factors[0]) - down, down), (np.float32(factors[1]) - right, right))
    ):
        total = total + row * column * reals[taps[:, tap]]
    np.testing.assert_array_equal(sums_of(config, taps, phases), total.astype(np.int64))


def configs() -> list[WeightedSumConfig]:
    window, reals = reader(2, 8, False, (5, 5)), (np.arange(256) - 5).astype(np.float32) * np.float32(12345677)
    halves = {"row_weights": (0, 1, 2, 3, 2), "column_weights": (0, 1, 2, 3, 2), "axis_parts": (4, 4)}
    exact = WeightedSumConfig(window=window, **halves)
    return [
        exact,
        replace(exact, row_weights=(0, 9, 21, 30, 5), column_weights=(0, 9, 21, 30, 5), axis_parts=(31, 31)),
        replace(exact, row_weights=(0, 9, 21, 90, 5), column_weights=(0, 9, 101, 30, 5), axis_parts=(119, 119)),
        FloatWeightedSumConfig(window=window, **halves, terms=tuple(map(int, reals))),
    ]


@pytest.mark.long
def test_resources() -> None:
    """Flip-flops and LUTs within a quarter, and paths as fast as those of other components."""
    parts = configs()
    for part, found, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36) == (0, 0)
        assert abs(expected.ff - found.ff) <= 0.25 * found.ff, part
        assert abs(expected.lut - found.lut) <= 0.25 * found.lut, part
        assert path is None or path.delay <= 3.3


def test_what_configurations_refuse() -> None:
    exact, *_, floats = configs()
    one = replace(exact.window, pairs=(False, False), row_phases=(), column_phases=())
    with pytest.raises(ConfigError, match=r"^window must have row_phases or column_phases to interpolate, not "):
        replace(exact, window=one)
    with pytest.raises(ConfigError, match=r"^row_weights must be from 0 to 4, not 0 to 5$"):
        replace(exact, row_weights=(0, 1, 2, 3, 5))
    with pytest.raises(ConfigError, match=r"^terms must have one entry per value \(256\), not"):
        replace(floats, terms=(0, 1))
    with pytest.raises(ConfigError, match=r"^axis_parts must be powers of two, not \(4, 5\)$"):
        replace(floats, axis_parts=(4, 5))
