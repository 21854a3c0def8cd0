"""Dot products of a multiplier in LUTs, as a component: for simulation against NumPy, and for synthesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from amaranth import Module, Shape, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.multipliers.lut_multiplier import DotProducts, LutMultiplier


def dot_products(
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
    """A multiplier with constants, and its dot products."""

    multiplier: LutMultiplier
    dots: DotProducts

    @property
    def resources(self) -> Resources:
        cost = Cost()
        self.multiplier.count(cost, self.dots)
        return cost.resources

    def component(self) -> DotProductsUnit:
        return DotProductsUnit(self)


class DotProductsUnit(wiring.Component):
    """All dot products: operands by term, and sums by output channel, side by side."""

    def __init__(self, config: DotProductsConfig):
        self.config = config
        dots = config.dots
        super().__init__(
            {"operands": In(sum(dots.terms) * dots.operand.width), "step": In(2), "sums": Out(sum(dots.sum_bits))}
        )

    def elaborate(self, platform):
        m = Module()
        dots, width = self.config.dots, self.config.dots.operand.width
        # Registers need a clock, also where there are none.
        m.d.sync += Signal(name="clocked").eq(1)
        operands = [self.operands[first : first + width].as_signed() for first in range(0, len(self.operands), width)]
        positions = []
        for terms in dots.terms:
            positions.append(operands[:terms])
            operands = operands[terms:]
        names = [f"lane_{channel}" for channel in range(dots.channels)]
        sums = self.config.multiplier.sums(m, dots, positions, [], self.step, names)
        assert [value.shape() for value in sums] == [signed(bits) for bits in dots.sum_bits]
        first = 0
        for value in sums:
            m.d.comb += self.sums[first : first + len(value)].eq(value)
            first += len(value)
        return m


def simulated(config: DotProductsConfig, operands: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Sums ``(cases, channels)`` of operands ``(cases, terms)``, of which a case arrives in each cycle.

    The operands of a position arrive one cycle later than those before it, and the step with those of the first one.
    """
    dots, design = config.dots, config.component()
    width, latency = dots.operand.width, config.multiplier.latency(dots)
    position = np.repeat(np.arange(len(dots.terms)), dots.terms)
    sums: list[int] = []

    async def bench(ctx):
        for cycle in range(len(operands) + latency):
            word = 0
            for term, case in enumerate(cycle - position):
                if 0 <= case < len(operands):
                    word |= (int(operands[case, term]) & (1 << width) - 1) << term * width
            ctx.set(design.operands, word)
            ctx.set(design.step, int(steps[cycle]) if cycle < len(steps) else 0)
            if cycle >= latency:
                sums.append(ctx.get(design.sums))
            await ctx.tick()

    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array([_unpacked(word, dots.sum_bits) for word in sums])


def _unpacked(word: int, sum_bits: Sequence[int]) -> list[int]:
    values = []
    for bits in sum_bits:
        values.append(wrapped(word & (1 << bits) - 1, bits))
        word >>= bits
    return values


def wrapped(value, bits):
    """A value, or an array of values, in two's complement of ``bits`` bits."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
