"""Thresholds of each channel: the circuit against NumPy, and its estimate against Yosys."""

from __future__ import annotations

import re

import numpy as np
import pytest
from counted import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import pack, patterns, run, unpack

from hwgen.errors import ConfigError
from hwgen.gateware.threshold import Threshold, ThresholdConfig
from hwgen.tools import synthesis


def by_channel(
    random: np.random.Generator, *, bits: int, count: int, lanes: int, channels: int, pixels: int = 1
) -> ThresholdConfig:
    """Ascending random thresholds, some that all sums reach, or none."""
    half = 1 << (bits - 1)
    rows = np.sort(random.integers(-half, half + 1, (channels, count)), axis=1)
    return ThresholdConfig(
        lanes=lanes,
        accumulator_bits=bits,
        thresholds=tuple(map(tuple, rows.tolist())),
        low=-2,
        bits=5,
        signed=True,
        beats=tuple(tuple(range(first, min(first + lanes, channels))) for first in range(0, channels, lanes)),
        pixels=pixels,
        by_channel=True,
    )


@settings(max_examples=25)
@given(data=st.data(), offer=patterns())
def thresholds_by_channel(data: st.DataObject, offer) -> None:
    """Outputs and latency, over several pixels, with gaps between beats."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    lanes, pixels = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    config = by_channel(
        random,
        bits=data.draw(st.integers(2, 14)),
        count=data.draw(st.integers(1, 15)),
        lanes=lanes,
        channels=data.draw(st.integers(1, 9)),
        pixels=pixels,
    )
    half = 1 << (config.accumulator_bits - 1)
    beats = [beat for _ in range(3) for beat in config.beats]
    sums = random.integers(-half, half, (len(beats), lanes, pixels))
    thresholds = np.array(config.thresholds)
    expected = []
    for values, beat in zip(sums, beats, strict=True):
        outputs = np.zeros((lanes, pixels), int)
        for lane, channel in enumerate(beat):
            outputs[lane] = config.low + (values[lane][:, None] >= thresholds[channel]).sum(axis=1)
        expected.append(outputs.ravel().tolist())
    words = [pack((values % (2 * half)).ravel().tolist(), config.accumulator_bits) for values in sums]
    trace = run(Threshold(config), words, len(words), offer=offer)
    assert [unpack(word, config.bits, True, lanes * pixels) for word in trace.words] == expected
    assert trace.times == [cycle + config.latency for cycle in trace.taken]


def test_thresholds_by_channel() -> None:
    with counted(thresholds_by_channel):
        thresholds_by_channel()


#: Bits of sums, thresholds of a channel, lanes and channels.
SIZES = [(12, 1, 1, 64), (12, 1, 4, 64), (12, 3, 1, 64), (14, 3, 2, 256), (11, 15, 2, 16), (12, 3, 16, 16)]


def check_resources(sizes: list[tuple[int, int, int, int]]) -> tuple[int, int]:
    """Check LUTs of each circuit within a tenth or four LUTs; return the estimated and the measured LUTs of all."""
    random = np.random.default_rng(0)
    configs = [
        by_channel(random, bits=bits, count=count, lanes=lanes, channels=channels)
        for bits, count, lanes, channels in sizes
    ]
    estimates = [config.resources for config in configs]
    measured = synthesis.measure(configs)
    for size, estimate, found in zip(sizes, estimates, measured, strict=True):
        assert (estimate.dsp, estimate.bram36) == (found.dsp, found.bram36) == (0, 0)
        assert estimate.ff == pytest.approx(found.ff, rel=0.05), size
        assert estimate.lut == pytest.approx(found.lut, rel=0.1, abs=4), size
    return sum(each.lut for each in estimates), sum(each.lut for each in measured)


@pytest.mark.long
def test_resources() -> None:
    check_resources(SIZES[:3])


@pytest.mark.long
def test_resources_of_all() -> None:
    """LUTs of all circuits together are within 5 %."""
    estimate, measured = check_resources(SIZES)
    assert estimate == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thresholds": ((1,),) * 2}, "thresholds must be a row for each channel, all of the same length"),
        ({"counts": (1,), "count_bits": 1}, "counts must be empty where each channel has thresholds, not (1,)"),
    ],
)
def test_errors(change: dict, message: str) -> None:
    fields = {"lanes": 1, "accumulator_bits": 6, "thresholds": ((1,),) * 3, "low": 0, "bits": 1, "signed": False}
    fields |= {"beats": ((0,), (1,), (2,)), "by_channel": True}
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        ThresholdConfig(**(fields | change))
