"""Booth multipliers in LUTs: sums against NumPy, their latency, and resources and delays against Yosys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import equivalence
import lint
import numpy as np
import pytest
from amaranth import Cat, Const, Module, Shape, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from counted import counted
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.emit import synthesis
from hwgen.emit.synthesis import SideBySide
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.lut_multiplier import DotProducts
from hwgen.gateware.part import Part
from hwgen.verilog import convert

BOOTH = BoothMultiplier()
#: Nanoseconds of logic between registers at most: docs/explanation/architecture.md.
LONGEST = 3.3


def bounds(bits: int) -> tuple[int, int]:
    return -1 << (bits - 1), (1 << (bits - 1)) - 1


def dot_products(
    terms: Sequence[int],
    channels: int = 1,
    *,
    bits: int = 8,
    weight_bits: int = 8,
    weight_range: tuple[int, int] | None = None,
    sum_bits: int | None = None,
    bias: Sequence[int] = (),
) -> DotProducts:
    """Dot products of signed operands; by default weights have any value, and sums don't wrap."""
    low, high = weight_range or bounds(weight_bits)
    most = sum(terms) * max(-low, high) << (bits - 1)
    return DotProducts(
        operand=Shape(bits, signed=True),
        weight_bits=weight_bits,
        weight_range=(low, high),
        terms=tuple(terms),
        sum_bits=(sum_bits or 1 + (most + max(map(abs, bias), default=0)).bit_length(),) * channels,
        bias=tuple(bias),
    )


@dataclass(frozen=True)
class UnitConfig:
    """Dot products as a component, for simulation and synthesis."""

    dots: DotProducts

    @cached_property
    def resources(self) -> Resources:
        cost = Cost()
        BOOTH.count(cost, self.dots)
        return cost.resources

    def component(self) -> Unit:
        return Unit(self)


class Unit(Part[UnitConfig]):
    """Operands by term, weights by output channel and term, and sums by output channel, side by side."""

    operands: Signal
    weights: Signal
    sums: Signal

    def __init__(self, config: UnitConfig):
        self.dots = dots = config.dots
        super().__init__(
            config,
            {
                "operands": In(sum(dots.terms) * dots.operand.width),
                "weights": In(dots.products * dots.weight_bits),
                "sums": Out(sum(dots.sum_bits)),
            },
        )

    def circuit(self) -> Module:
        m = Module()
        dots, terms = self.dots, sum(self.dots.terms)
        operands, weights = parts(self.operands, dots.operand.width), parts(self.weights, dots.weight_bits)
        sums = BOOTH.sums(
            m,
            dots,
            self.by_position(operands),
            [self.by_position(weights[first : first + terms]) for first in range(0, len(weights), terms)],
            Const(0),
            [f"lane_{channel}" for channel in range(dots.channels)],
        )
        assert [total.shape() for total in sums] == [signed(bits) for bits in dots.sum_bits]
        m.d.comb += self.sums.eq(Cat(*sums))
        return m

    def by_position(self, values: list) -> list[list]:
        ends = np.cumsum(self.dots.terms).tolist()
        return [values[end - count : end] for end, count in zip(ends, self.dots.terms, strict=True)]


def parts(signal: Signal, width: int) -> list:
    return [signal[first : first + width].as_signed() for first in range(0, len(signal), width)]


def word(values: np.ndarray, cases: np.ndarray, bits: int) -> int:
    """Values by case and term in one word: of each term the case that ``cases`` names, 0 where there is none."""
    total = 0
    for term, case in enumerate(cases):
        if 0 <= case < len(values):
            total |= (int(values[case, term]) & ((1 << bits) - 1)) << (term * bits)
    return total


def simulated(dots: DotProducts, operands: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums ``(cases, channels)``: a case arrives in each cycle, and each position one cycle after the position before.

    ``operands`` are ``(cases, terms)``, and ``weights`` ``(cases, channels, terms)``.
    """
    design, latency = UnitConfig(dots).component(), BOOTH.latency(dots)
    position = np.repeat(np.arange(len(dots.terms)), dots.terms)
    flat = weights.reshape(len(weights), -1)
    words: list[int] = []

    async def bench(ctx):
        for cycle in range(len(operands) + latency):
            ctx.set(design.operands, word(operands, cycle - position, dots.operand.width))
            ctx.set(design.weights, word(flat, cycle - np.tile(position, dots.channels), dots.weight_bits))
            if cycle >= latency:
                words.append(ctx.get(design.sums))
            await ctx.tick()

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    firsts = np.cumsum((0, *dots.sum_bits))
    return np.array(
        [
            [wrapped(value >> int(first), bits) for first, bits in zip(firsts, dots.sum_bits, strict=False)]
            for value in words
        ]
    )


def wrapped(value, bits: int):
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def check(dots: DotProducts, operands: np.ndarray, weights: np.ndarray) -> None:
    """All sums equal NumPy's, in the cycle that the latency says."""
    expected = np.einsum("nmt,nt->nm", weights, operands) + np.array(dots.bias or 0)
    columns = [wrapped(expected[:, channel], bits) for channel, bits in enumerate(dots.sum_bits)]
    np.testing.assert_array_equal(simulated(dots, operands, weights), np.stack(columns, axis=1))


def drawn(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a number of cases: all smallest, all largest, each of them either, and any."""
    cases = [np.full((1, *shape), low), np.full((1, *shape), high), rng.choice([low, high], (6, *shape))]
    return rng.permutation(np.concatenate([*cases, rng.integers(low, high + 1, (8, *shape))]))


@st.composite
def cases(draw) -> tuple[DotProducts, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight_bits, bits = draw(st.integers(2, 16)), draw(st.integers(2, 16))
    channels, positions = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    terms = rng.multinomial(draw(st.integers(positions, 14)) - positions, [1 / positions] * positions) + 1
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    low, high = bounds(weight_bits)
    if draw(st.booleans()):
        low, high = sorted(int(end) for end in rng.integers(low, high + 1, 2))
    dots = dot_products(
        terms.tolist(),
        channels,
        bits=bits,
        weight_bits=weight_bits,
        weight_range=(low, high),
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 12, 36])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return dots, rng


@settings(max_examples=40)
@given(case=cases())
def check_sums(case):
    dots, rng = case
    (low, high), (smallest, largest) = bounds(dots.operand.width), dots.weight_range
    terms = sum(dots.terms)
    check(dots, drawn(rng, low, high, (terms,)), drawn(rng, smallest, largest, (dots.channels, terms)))


def test_sums():
    with counted(check_sums):
        check_sums()


@pytest.mark.parametrize(("bits", "weight_bits"), [(4, 4), (3, 5), (6, 2), pytest.param(8, 8, marks=pytest.mark.long)])
def test_all_products(bits, weight_bits):
    """One term: every operand times every weight, the most negative ones among them."""
    ranges = [np.arange(low, high + 1) for low, high in (bounds(bits), bounds(weight_bits))]
    operands, weights = (values.ravel() for values in np.meshgrid(*ranges))
    assert len(operands) == 1 << (bits + weight_bits)
    check(dot_products((1,), bits=bits, weight_bits=weight_bits), operands[:, None], weights[:, None, None])


def measured(configs: Sequence[UnitConfig]) -> list[Resources]:
    """Resources by Yosys: equal to the count within 5 %, and no path longer than 3.3 ns."""
    resources, paths = synthesis.measure_paths(configs)
    for config, found, path in zip(configs, resources, paths, strict=True):
        expected = config.resources
        assert found.dsp == found.bram36 == 0
        assert abs(expected.lut - found.lut) <= max(0.05 * found.lut, 1), (config, expected, found)
        assert abs(expected.ff - found.ff) <= max(0.05 * found.ff, 1), (config, expected, found)
        assert path is not None
        assert path.delay <= LONGEST, (config, path)
    return resources


def test_resources():
    """27 terms of 8 x 8 bits, 16 x 16 bits over several positions, and sums that lack the highest bits of products.

    A multiply-add of 8 x 8 bits takes at most 55 LUTs, with registers and its share of the adder tree.
    """
    first, *_ = measured(
        [
            UnitConfig(dot_products((27,))),
            UnitConfig(dot_products((2, 1, 1, 1), 2, bits=16, weight_bits=16, bias=(-5, 1 << 30))),
            UnitConfig(dot_products((5, 4), 3, bits=3, weight_bits=11, sum_bits=14)),
        ]
    )
    assert first.lut <= 55 * 27


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources(seed):
    rng = np.random.default_rng(seed)
    configs = []
    for _ in range(10):
        bits, weight_bits, channels = (int(rng.integers(*ends)) for ends in ((2, 17), (2, 17), (1, 4)))
        positions = int(rng.integers(1, 8))
        terms = (rng.multinomial(int(rng.integers(0, 24)), [1 / positions] * positions) + 1).tolist()
        bias = rng.integers(-1 << 16, 1 << 16, channels).tolist() if rng.integers(2) else ()
        configs.append(UnitConfig(dot_products(terms, channels, bits=bits, weight_bits=weight_bits, bias=bias)))
    measured(configs)


def test_verilog(tmp_path):
    """As parts of a design: no complaint of a linter, and Yosys proves each equal to its Amaranth circuit."""
    cases = [dot_products((4, 3), 2, bias=(5, -9)), dot_products((3,), bits=4, weight_bits=12)]
    units = [UnitConfig(dots).component() for dots in (*cases, cases[0])]
    lint.check([lint.written(convert(SideBySide(units), "booth"), tmp_path)], with_yosys=tmp_path)
    units = [UnitConfig(dots).component() for dots in cases]
    assert len(equivalence.check(SideBySide(units), "booth", tmp_path)) == len(units)
