"""Multiplier of constant weights: shifts and adders in LUTs, with additions that all output channels share.

The layer computes whole windows in a cycle, so that each weight always multiplies the same operand. A product with a
constant is a sum of shifted operands. Output channels read the same operands and share parts of their sums
(`hwgen.gateware.arithmetic.shared_terms`). A weight of 0 costs nothing. A power of two costs one term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from amaranth import Cat, Const, Module, Signal

from hwgen.gateware.arithmetic.adder_graph import AdderGraph, Operand
from hwgen.gateware.arithmetic.shared_terms import shared_terms
from hwgen.gateware.cost import Cost
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts, LutMultiplier
from hwgen.gateware.multipliers.multiplier import Operands

#: Minimum width of weights, in bits, whose products with 2-bit activations take fewer LUTs in tables
#: (`SelectedMultiplier`) than in adders. Products of 1-bit activations take fewer LUTs in tables for all weights. In
#: the cost model, random weights of 6 bits, 27 terms and 16 output channels take 3.8 LUTs a multiply-add in adders and
#: 3.7 in tables. Weights of 5 bits take 3.2 in both.
NARROW_WEIGHT_BITS = 6


@dataclass(frozen=True)
class ConstantMultiplier(LutMultiplier):
    """Multiplier in LUTs of activations by constant weights, for a layer that computes one window per cycle."""

    name = "constant"
    stores_weights = False
    shares_terms = True
    computes_windows = True

    def computes(self, operands: Operands, constant_steps: int | None) -> bool:
        narrowest = 3 if operands.weight_bits >= NARROW_WEIGHT_BITS else 2
        return constant_steps == 1 and operands.activation.width >= narrowest

    def latency(self, dots: DotProducts) -> int:
        return _graph(dots).latency

    def sums(self, m: Module, dots: DotProducts, operands: DotOperands) -> list[Signal]:
        signed_operands = [
            operand if dots.operand.signed else Cat(operand, Const(0, 1)).as_signed()
            for position in operands.activations
            for operand in position
        ]
        return _graph(dots).add_to(m, signed_operands, f"{operands.names[0]}_shared", operands.names)

    def count(self, cost: Cost, dots: DotProducts) -> None:
        _graph(dots).count(cost)


@lru_cache(maxsize=64)
def _graph(dots: DotProducts) -> AdderGraph:
    """Return an `AdderGraph` that computes all output channels' dot products with constant weights."""
    assert dots.constants is not None
    low, high = dots.operand_range
    graph = AdderGraph(
        dots.device, [Operand(low, high, position) for position, terms in enumerate(dots.terms) for _ in range(terms)]
    )
    weights = [[weight for (weight,) in row] for row in dots.constants]
    biases = dots.bias or (0,) * dots.channels
    for terms, bias, bits in zip(shared_terms(graph, weights, dots.sum_bits), biases, dots.sum_bits, strict=True):
        graph.add_sum(terms, bias, bits)
    return graph
