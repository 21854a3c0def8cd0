"""Dot products of a multiplier in LUTs, as a component: for simulation against NumPy, and for synthesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from amaranth import Cat, Module, Shape, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hwgen.gateware.circuit_forms import Part
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts, LutMultiplier
from hwgen.gateware.multipliers.multiplier import Operands
from hwgen.tools import synthesis

#: Nanoseconds of logic between registers at most: docs/explanation/architecture.md.
LONGEST = 3.3


def stored_dot_products(
    terms: Sequence[int],
    channels: int = 1,
    *,
    operand: Shape = signed(8),  # noqa: B008
    weight_bits: int = 8,
    weight_range: tuple[int, int] | None = None,
    sum_bits: int | None = None,
    bias: Sequence[int] = (),
) -> DotProducts:
    """Dot products of weights that a memory stores; by default weights have any value, and sums don't wrap."""
    low, high = weight_range or (-1 << (weight_bits - 1), (1 << (weight_bits - 1)) - 1)
    peak = sum(terms) * max(-low, high) << (operand.width - operand.signed)
    return DotProducts(
        operand=operand,
        weight_bits=weight_bits,
        weight_range=(low, high),
        terms=tuple(terms),
        sum_bits=(sum_bits or 1 + (peak + max(map(abs, bias), default=0)).bit_length(),) * channels,
        bias=tuple(bias),
    )


def constant_dot_products(
    weights: np.ndarray,
    *,
    bits: int = 8,
    terms: Sequence[int] = (),
    sum_bits: int | None = None,
    bias: Sequence[int] = (),
) -> DotProducts:
    """Dot products of constants ``(channels, terms, steps)``; by default at one position, and sums that don't wrap."""
    smallest, largest = int(weights.min()), int(weights.max())
    weight_bits = 1 + max(largest.bit_length(), (~smallest).bit_length() if smallest < 0 else 0)
    peaks = np.abs(weights).max(axis=2).sum(axis=1) << (bits - 1)
    peaks += np.abs(np.array(bias, int)) if len(bias) else 0
    return DotProducts(
        operand=Shape(bits, signed=True),
        weight_bits=weight_bits,
        weight_range=(smallest, largest),
        terms=tuple(terms) or (weights.shape[1],),
        sum_bits=tuple(sum_bits or 1 + int(peak).bit_length() for peak in peaks),
        constants=tuple(tuple(tuple(steps) for steps in row) for row in weights.tolist()),
        bias=tuple(bias),
    )


@dataclass(frozen=True)
class DotProductsConfig:
    """A multiplier and its dot products, as a component."""

    multiplier: LutMultiplier
    dots: DotProducts

    @property
    def operands(self) -> Operands:
        dots = self.dots
        return Operands(
            activation=dots.operand,
            weight_bits=dots.weight_bits,
            weight_range=dots.weight_range,
            positions=len(dots.terms),
        )

    @property
    def stored_bits(self) -> int:
        """Bits of a weight in memory."""
        return self.multiplier.unit_bits(self.operands)

    @cached_property
    def positions(self) -> np.ndarray:
        """Position of each term."""
        return np.repeat(np.arange(len(self.dots.terms)), self.dots.terms)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.dots.device)
        self.multiplier.count(cost, self.dots)
        return cost.resources

    def component(self) -> DotProductsPart:
        return DotProductsPart(self) if self.multiplier.stores_weights else ConstantDotProducts(self)


class DotProductsPart(Part[DotProductsConfig]):
    """Operands by term, stored weights by output channel and term, and sums by output channel, side by side."""

    operands: Signal
    weights: Signal
    step: Signal
    sums: Signal

    def __init__(self, config: DotProductsConfig):
        dots = config.dots
        stored = {"weights": In(dots.products * config.stored_bits)} if config.multiplier.stores_weights else {}
        super().__init__(
            config,
            {
                "operands": In(sum(dots.terms) * dots.operand.width),
                **stored,
                "step": In(2),
                "sums": Out(sum(dots.sum_bits)),
            },
        )

    def circuit(self) -> Module:
        m = Module()
        dots, multiplier = self.config.dots, self.config.multiplier
        if not multiplier.stores_weights:
            # Registers need a clock, also where constants leave none.
            m.d.sync += Signal(name="clocked").eq(1)
        operands = parts(self.operands, dots.operand.width)
        operands = [operand.as_signed() if dots.operand.signed else operand for operand in operands]
        words = parts(self.weights, self.config.stored_bits) if multiplier.stores_weights else []
        weights = [multiplier.spread(word, dots.weight_bits) for word in words]
        terms = sum(dots.terms)
        dot_operands = DotOperands(
            self.by_position(operands),
            [self.by_position(weights[first : first + terms]) for first in range(0, len(weights), terms)],
            [f"lane_{channel}" for channel in range(dots.channels)],
            self.step,
        )
        sums = multiplier.sums(m, dots, dot_operands)
        assert [total.shape() for total in sums] == [signed(bits) for bits in dots.sum_bits]
        m.d.comb += self.sums.eq(Cat(*sums))
        return m

    def by_position(self, values: list) -> list[list]:
        terms = self.config.dots.terms
        ends = np.cumsum(terms).tolist()
        return [values[end - count : end] for end, count in zip(ends, terms, strict=True)]


class ConstantDotProducts(DotProductsPart):
    """Dot products of constants, which may be in memories, as no part has them."""

    def elaborate(self, platform) -> Module:
        return self.circuit()


def parts(signal: Signal, width: int) -> list:
    return [signal[first : first + width] for first in range(0, len(signal), width)]


def word(values: np.ndarray, cases: np.ndarray, bits: int) -> int:
    """Values by case and term in one word: of each term the case that ``cases`` names, 0 where there is none."""
    total = 0
    for term, case in enumerate(cases):
        if 0 <= case < len(values):
            total |= (int(values[case, term]) & ((1 << bits) - 1)) << (term * bits)
    return total


def simulated(
    config: DotProductsConfig, operands: np.ndarray, weights: np.ndarray | None, steps: np.ndarray | None
) -> np.ndarray:
    """Sums ``(cases, channels)``: a case arrives in each cycle, and each position one cycle after the position before.

    ``operands`` are ``(cases, terms)``, stored ``weights`` ``(cases, channels, terms)``, and ``steps`` ``(cases,)``.
    """
    dots, design = config.dots, config.component()
    latency, position = config.multiplier.latency(dots), config.positions
    if weights is not None:
        stored = config.multiplier.stored(weights.reshape(1, len(weights), -1), config.operands)
    sums: list[list[int]] = []

    async def bench(ctx):
        for cycle in range(len(operands) + latency):
            ctx.set(design.operands, word(operands, cycle - position, dots.operand.width))
            if weights is not None:
                ctx.set(design.weights, word(stored, cycle - np.tile(position, dots.channels), config.stored_bits))
            if steps is not None:
                ctx.set(design.step, int(steps[cycle]) if cycle < len(steps) else 0)
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
        values.append(wrapped(word & ((1 << bits) - 1), bits))
        word >>= bits
    return values


def wrapped(value, bits):
    """A value, or an array of values, in two's complement of ``bits`` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def check(
    config: DotProductsConfig,
    operands: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> None:
    """All sums equal NumPy's, in the cycle that the latency says. Constants are those of ``steps``."""
    factors = weights
    if steps is not None:
        factors = np.array(config.dots.constants)[:, :, steps].transpose(2, 0, 1)
    assert factors is not None
    expected = np.einsum("nct,nt->nc", factors, operands) + np.array(config.dots.bias or 0)
    expected = wrapped(expected, np.array(config.dots.sum_bits))
    np.testing.assert_array_equal(simulated(config, operands, weights, steps), expected)


def measured(configs: Sequence[DotProductsConfig]) -> list[Resources]:
    """Resources by Yosys: equal to the count within 5 %, and no path longer than `LONGEST`."""
    resources, paths = synthesis.measure_paths(configs)
    for config, found, path in zip(configs, resources, paths, strict=True):
        expected = config.resources
        assert found.dsp == found.bram36 == 0
        assert abs(expected.lut - found.lut) <= max(0.05 * found.lut, 1), (config, expected, found)
        assert abs(expected.ff - found.ff) <= max(0.05 * found.ff, 1), (config, expected, found)
        assert path is None or path.delay <= LONGEST, (config, path)
    return resources
