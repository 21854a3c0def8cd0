"""The engine behind its array: requantisation, additions, activation tables and pools at run time."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import verilated
from amaranth import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from ties import Pairs, at_ends, beside

from hwgen.emit import synthesis
from hwgen.errors import ConfigError
from hwgen.gateware.engine.requantise import Bound, BoundConfig, Scale, ScaleConfig
from hwgen.gateware.lookup import delayed
from hwgen.network.requantise import Requantisation, requantise

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
)
long = pytest.mark.long

SUMS = data.StructLayout({"sum": signed(32), "bias": signed(32)})
HOW = data.StructLayout({"significand": 24, "shift": 8, "zero_point": signed(8), "low": signed(8), "high": signed(8)})


class Lane(wiring.Component):
    """`Scale` and `Bound`, which get in time what comes with the sum."""

    def __init__(self):
        super().__init__({"valid_in": In(1), "sums": In(SUMS), "how": In(HOW), "valid": Out(1), "o": Out(signed(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.scale = scale = Scale(ScaleConfig())
        m.submodules.bound = bound = Bound(BoundConfig(bits=len(scale.whole)))
        early, late = scale.config.scale_cycle, scale.config.latency
        factor = [delayed(m, name, self.how[name], early) for name in ("significand", "shift")]
        zero = delayed(m, "zero", self.how.zero_point, late)
        low, high = (delayed(m, name, self.how[name], late + bound.config.bounds_cycle) for name in ("low", "high"))
        m.d.comb += [
            scale.sum.eq(self.sums.sum),
            scale.bias.eq(self.sums.bias),
            scale.significand.eq(factor[0]),
            scale.shift.eq(factor[1]),
            bound.whole.eq(scale.whole),
            bound.carry.eq(scale.carry),
            bound.zero_point.eq(zero),
            bound.low.eq(low),
            bound.high.eq(high),
            self.o.eq(bound.o),
            self.valid.eq(delayed(m, "valid", self.valid_in, late + bound.config.latency, reset_less=False)),
        ]
        return m


DRIVER = """
#include <cstdint>
#include <cstdio>
#include <vector>
#include "Vtop.h"

int main() {
    Vtop top;
    std::FILE *source = std::fopen("input.bin", "rb"), *sink = std::fopen("output.bin", "wb");
    std::vector<uint64_t> beats(1 << 16);
    auto cycle = [&] {
        top.clk = 0; top.eval();
        if (top.valid) { uint32_t taken = top.o; std::fwrite(&taken, 4, 1, sink); }
        top.clk = 1; top.eval();
    };
    top.valid_in = 0; top.rst = 1; cycle(); top.rst = 0; cycle();
    while (size_t count = std::fread(beats.data(), 8, beats.size(), source)) {
        top.valid_in = 1;
        for (size_t n = 0; n < count; n += 2) { top.sums = beats[n]; top.how = beats[n + 1]; cycle(); }
        top.valid_in = 0;
        for (int n = 0; n < 40; ++n) cycle();
    }
    std::fclose(sink);
}
"""


def eight(values: np.ndarray, place: int) -> np.ndarray:
    return (values.astype(np.uint64) & np.uint64(255)) << np.uint64(place)


def outputs_of(folder: Path, pairs: Pairs, biases: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """What the lane makes of ``pairs``, with zero point, low and high in the columns of ``bounds``."""
    sums = (pairs.totals - biases).astype(np.int64).view(np.uint64) & np.uint64(0xFFFFFFFF)
    sums |= biases.astype(np.int64).view(np.uint64) << np.uint64(32)
    how = pairs.significands.astype(np.uint64) | eight(pairs.shifts, 24)
    for number in range(3):
        how |= eight(bounds[:, number], 32 + 8 * number)
    outputs = verilated.run(np.stack([sums, how], axis=1), folder)
    return (outputs ^ 128) - 128


def wanted_of(pairs: Pairs, bounds: np.ndarray) -> np.ndarray:
    """The same by the golden model, with bounds of its own, then zero point and bounds."""
    scale = {"significand": pairs.significands, "shift": pairs.shifts}
    rule = Requantisation(**scale, zero_point=0, low=-(1 << 20), high=1 << 20, float32=True)
    scaled = requantise(pairs.totals[:, None], rule, 1 << 33)[:, 0] + bounds[:, 0]
    return np.clip(scaled, bounds[:, 1], bounds[:, 2])


def any_of(rng: np.random.Generator, count: int) -> Pairs:
    """Sums of any size and scales that bring them near outputs, or far away; powers of two and their neighbours."""
    bits = rng.integers(0, 34, count)
    totals = rng.integers(0, 1 << np.maximum(bits, 0))
    powers = (1 << np.minimum(bits, 32)) + rng.integers(-3, 4, count)
    totals = np.where(rng.random(count) < 0.3, powers, totals) * rng.choice([-1, 1], count)
    ends = rng.choice([1 << 23, (1 << 24) - 1, 3 << 22, (1 << 23) + 1], count)
    significands = np.where(rng.random(count) < 0.4, ends, rng.integers(1 << 23, 1 << 24, count))
    near = bits + 23 + rng.integers(-10, 4, count)
    shifts = np.where(rng.random(count) < 0.2, rng.integers(0, 256, count), near)
    return Pairs(np.clip(totals, -(1 << 32), (1 << 32) - 2), significands, np.clip(shifts, 0, 255))


def past_float32(rng: np.random.Generator, count: int) -> Pairs:
    """Sums of 25 to 32 bits at ties of their 24 bits, or beside them, whose product is next to a tie of outputs."""
    pairs = beside(rng, count, (25, 32))
    return Pairs(
        np.clip(pairs.totals + rng.integers(-2, 3, count), -(1 << 32), (1 << 32) - 2), pairs.significands, pairs.shifts
    )


KINDS = {
    "any": any_of,
    "beside ties": lambda rng, count: beside(rng, count, (1, 24)),
    "past 2**24": past_float32,
    "ends of bands": at_ends,
}


@pytest.fixture(scope="module")
def lane(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lane")
    verilated.build(Lane(), DRIVER, folder)
    return folder


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [50_000, pytest.param(5_000_000, marks=long)])
def test_requantise(lane, kind, count):
    """Against the golden model, which is held against ONNX Runtime elsewhere."""
    rng = np.random.default_rng(count)
    pairs = KINDS[kind](rng, count // 10 if kind == "ends of bands" else count)
    half = 1 << 31
    least, most = np.maximum(pairs.totals - half + 1, -half), np.minimum(pairs.totals + half, half - 1)
    biases = rng.integers(least, most + 1)
    biases = np.where(rng.random(len(pairs)) < 0.2, np.where(rng.random(len(pairs)) < 0.5, least, most), biases)
    zeros = rng.integers(-128, 128, len(pairs))
    bounds = np.sort(rng.integers(-128, 128, (len(pairs), 2)), axis=1)
    bounds = np.where(rng.random(len(pairs))[:, None] < 0.8, [-128, 127], bounds)
    bounds = np.column_stack([zeros, bounds])
    wanted = wanted_of(pairs, bounds)
    np.testing.assert_array_equal(outputs_of(lane, pairs, biases, bounds), wanted)
    assert len(np.unique(wanted)) > 250


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (ScaleConfig, {"sum_bits": 33}, "sum_bits must be from 1 to 32, not 33"),
        (ScaleConfig, {"sum_bits": 0}, "sum_bits must be from 1 to 32, not 0"),
        (BoundConfig, {"bits": 0}, "bits must be a positive integer, not 0"),
    ],
)
def test_sizes_that_are_refused(kind, parameters, message):
    with pytest.raises(ConfigError) as caught:
        kind(**parameters)
    assert str(caught.value) == message


#: Nanoseconds of logic between registers at most, as in test_paths.py.
LIMIT = 3.3
PARTS = (ScaleConfig(), BoundConfig(bits=11), BoundConfig(bits=13))


def test_resources_and_paths():
    for part, measured, path in zip(PARTS, *synthesis.measure_paths(PARTS), strict=True):
        used = part.resources
        assert (used.dsp, used.bram36) == (measured.dsp, measured.bram36)
        assert used.lut == pytest.approx(measured.lut, rel=0.15)
        assert used.ff == pytest.approx(measured.ff, rel=0.05)
        assert path is not None
        assert path.delay <= LIMIT, path
