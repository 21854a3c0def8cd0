"""Multipliers of weights of a few bits in LUTs: sums against NumPy, their latency, and resources against Yosys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from amaranth import Cat, Const, Module, Shape, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.emit import synthesis
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.multipliers import lut_multiplier_of
from hwgen.gateware.multipliers.lut_multiplier import DotProducts
from hwgen.gateware.multipliers.multiplier import Operands
from hwgen.gateware.multipliers.narrow import BinaryMultiplier, NarrowMultiplier

#: Nanoseconds of logic between registers at most: docs/explanation/architecture.md.
LONGEST = 3.3
NARROW, BINARY = NarrowMultiplier(), BinaryMultiplier()


def dot_products(
    weight_bits: int,
    operand: Shape,
    terms: Sequence[int],
    channels: int = 2,
    *,
    sum_bits: int | None = None,
    bias: Sequence[int] = (),
) -> DotProducts:
    """Dot products of any weights of ``weight_bits`` bits, ±1 for one bit; by default sums don't wrap."""
    low, high = (-1, 1) if weight_bits == 1 else (-1 << weight_bits - 1, (1 << weight_bits - 1) - 1)
    most = sum(terms) * -low << operand.width - operand.signed
    return DotProducts(
        operand=operand,
        weight_bits=max(weight_bits, 2),
        weight_range=(low, high),
        terms=tuple(terms),
        sum_bits=(sum_bits or 1 + (most + max(map(abs, bias), default=0)).bit_length(),) * channels,
        bias=tuple(bias),
    )


@dataclass(frozen=True)
class UnitConfig:
    """A multiplier and its dot products, as a component for simulation and synthesis."""

    dots: DotProducts

    @property
    def multiplier(self) -> NarrowMultiplier:
        return BINARY if self.dots.weight_range == (-1, 1) else NARROW

    @property
    def operands(self) -> Operands:
        dots = self.dots
        return Operands(
            activation=dots.operand,
            weight_bits=dots.weight_bits,
            weight_range=dots.weight_range,
            positions=len(dots.terms),
            weights_nonzero=self.multiplier is BINARY,
        )

    @property
    def stored_bits(self) -> int:
        return self.multiplier.unit_bits(self.operands)

    @property
    def resources(self) -> Resources:
        cost = Cost()
        self.multiplier.count(cost, self.dots)
        return cost.resources

    def component(self) -> Unit:
        return Unit(self)


class Unit(wiring.Component):
    """Operands by term, stored weights by output channel and term, and sums by output channel, side by side."""

    def __init__(self, config: UnitConfig):
        self.config, dots = config, config.dots
        super().__init__(
            {
                "operands": In(sum(dots.terms) * dots.operand.width),
                "weights": In(dots.products * config.stored_bits),
                "sums": Out(sum(dots.sum_bits)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        dots, multiplier, bits = self.config.dots, self.config.multiplier, self.config.stored_bits
        width, terms = dots.operand.width, sum(dots.terms)
        operands = [self.operands[term * width : (term + 1) * width] for term in range(terms)]
        operands = [operand.as_signed() if dots.operand.signed else operand for operand in operands]
        words = [self.weights[first : first + bits] for first in range(0, len(self.weights), bits)]
        weights = [multiplier.spread(word, dots.weight_bits) for word in words]
        sums = multiplier.sums(
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
        ends = np.cumsum(self.config.dots.terms).tolist()
        return [values[end - count : end] for end, count in zip(ends, self.config.dots.terms, strict=True)]


def simulated(config: UnitConfig, operands: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums ``(cases, channels)``: a case arrives in each cycle, the operands of a position a cycle after the last's.

    ``operands`` are ``(cases, terms)``, and ``weights`` ``(cases, channels, terms)``.
    """
    dots, design = config.dots, config.component()
    latency, bits = config.multiplier.latency(dots), config.stored_bits
    position = np.repeat(np.arange(len(dots.terms)), dots.terms)
    words = [config.multiplier.stored([case.ravel().tolist()], config.operands) for case in weights]
    sums: list[list[int]] = []

    async def bench(ctx):
        for cycle in range(len(operands) + latency):
            operand_word = weight_word = 0
            for term, case in enumerate(cycle - position):
                if not 0 <= case < len(operands):
                    continue
                operand = int(operands[case, term]) & (1 << dots.operand.width) - 1
                operand_word |= operand << term * dots.operand.width
                for index in range(term, dots.products, len(position)):
                    weight_word |= words[case][index] << index * bits
            ctx.set(design.operands, operand_word)
            ctx.set(design.weights, weight_word)
            if cycle >= latency:
                sums.append(unpacked(ctx.get(design.sums), dots.sum_bits))
            await ctx.tick()

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(sums)


def unpacked(word: int, sum_bits: Sequence[int]) -> list[int]:
    values = []
    for bits in sum_bits:
        values.append(wrapped(word & (1 << bits) - 1, bits))
        word >>= bits
    return values


def wrapped(value, bits):
    """A value, or an array of values, in two's complement of ``bits`` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def check(config: UnitConfig, rng: np.random.Generator, cases: int = 12) -> None:
    """All sums equal NumPy's, in the cycle that the latency says: of extremes and of any operands and weights."""
    dots = config.dots
    low = -1 << dots.operand.width - 1 if dots.operand.signed else 0
    ends, weight_ends = [low, low + (1 << dots.operand.width) - 1], list(dots.weight_range)
    shape = (cases, dots.channels, sum(dots.terms))
    operands = rng.integers(ends[0], ends[1] + 1, (cases, shape[2]))
    weights = rng.integers(weight_ends[0], weight_ends[1] + 1, shape)
    for case in range(4):
        operands[case], weights[case] = ends[case % 2], weight_ends[case // 2]
    operands[4:6] = rng.choice(ends, (2, shape[2]))
    weights[5:7] = rng.choice(weight_ends, (2, *shape[1:]))
    if config.multiplier is BINARY:
        weights = np.where(weights < 0, -1, 1)
    expected = np.einsum("nct,nt->nc", weights, operands) + np.array(dots.bias or 0)
    expected = wrapped(expected, np.array(dots.sum_bits))
    np.testing.assert_array_equal(simulated(config, operands, weights), expected)


@st.composite
def configs(draw, weight_bits: int) -> tuple[UnitConfig, np.random.Generator]:
    """Dot products of activations of 1 to 8 bits at one to six positions, and a source of random numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    terms = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
    channels = draw(st.integers(1, 3))
    bias_bits = draw(st.sampled_from([0, 0, 4, 20]))
    dots = dot_products(
        weight_bits,
        Shape(draw(st.integers(1, 8)), draw(st.booleans())),
        terms,
        channels,
        sum_bits=draw(st.sampled_from([None, None, 1, 7, 32])),
        bias=rng.integers(-1 << bias_bits, 1 << bias_bits, channels).tolist() if bias_bits else (),
    )
    return UnitConfig(dots), rng


@settings(max_examples=40)
@given(case=st.integers(2, 5).flatmap(configs))
def test_sums(case):
    check(*case)


@settings(max_examples=30)
@given(case=configs(1))
def test_sums_of_one_bit(case):
    """Weights of -1 and 1, stored in one bit."""
    check(*case)


def test_widths():
    """Weights of at most four bits, in the registry; one bit in memory for weights of -1 and 1, if none is 0."""

    def operands(bits: int, smallest: int, largest: int, nonzero: bool = False) -> Operands:
        return Operands(
            activation=Shape(3),
            weight_bits=bits,
            weight_range=(smallest, largest),
            positions=1,
            weights_nonzero=nonzero,
        )

    assert isinstance(lut_multiplier_of(operands(4, -8, 7), None), NarrowMultiplier)
    assert NARROW.unit_bits(operands(4, -8, 7)) == 4
    assert not NARROW.computes(operands(5, -16, 15), None)
    plus_minus_one = operands(2, -1, 1, nonzero=True)
    assert isinstance(lut_multiplier_of(plus_minus_one, None), BinaryMultiplier)
    assert BINARY.unit_bits(plus_minus_one) == 1
    assert BINARY.stored([[-1, 1, 1]], plus_minus_one) == [0, 1, 1]
    assert not BINARY.computes(operands(2, -1, 1), None)
    assert not BINARY.computes(operands(2, -2, 1, nonzero=True), None)
    for kind, expected in ((NARROW, (-8, 7)), (BINARY, (-1, 1))):
        assert kind.weight_range(4) == expected
        assert kind.operand(Shape(3)) == Shape(3)
        assert kind.offset(Shape(3)) == 0


def measured(units: Sequence[UnitConfig]) -> list[Resources]:
    """Resources by Yosys: LUTs and flip-flops are within 5 % of the estimates, and the logic between registers fits."""
    resources, paths = synthesis.measure_paths(units)
    for config, found, path in zip(units, resources, paths, strict=True):
        expected = config.resources
        assert found.dsp == found.bram36 == 0
        assert abs(expected.lut - found.lut) <= max(0.05 * found.lut, 1), (config, expected, found)
        assert abs(expected.ff - found.ff) <= max(0.05 * found.ff, 1), (config, expected, found)
        assert path is not None
        assert path.delay <= LONGEST, (config, path)
    return resources


def test_resources():
    """Weights of 1 to 4 bits, activations of 1 to 8; several positions, a bias; at most 16 LUTs a 4x4 multiply-add."""
    units = [
        UnitConfig(dots)
        for dots in (
            dot_products(4, Shape(4), (27,)),
            dot_products(4, Shape(4, signed=True), (1, 2, 2, 2, 2), channels=3),
            dot_products(2, Shape(2), (9, 9), channels=4, bias=(100, -100, 0, 7)),
            dot_products(3, Shape(8), (9,)),
            dot_products(1, Shape(8, signed=True), (18,), channels=4),
            dot_products(1, Shape(1), (27,), channels=8),
        )
    ]
    first, *_ = measured(units)
    assert first.lut <= 16 * units[0].dots.products


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_resources(seed):
    rng = np.random.default_rng(seed)
    units = []
    for _ in range(10):
        operand = Shape(int(rng.integers(1, 9)), bool(rng.integers(2)))
        terms = np.bincount(np.sort(rng.integers(0, rng.integers(1, 6), rng.integers(8, 40)))).tolist()
        channels = int(rng.integers(1, 9))
        bias = rng.integers(-1 << 10, 1 << 10, channels).tolist() if rng.integers(2) else ()
        units.append(UnitConfig(dot_products(int(rng.integers(1, 5)), operand, terms, channels, bias=bias)))
    measured(units)
