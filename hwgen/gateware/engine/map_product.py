"""Multiplier of the engine's sums by another feature map, in LUTs, before their requantisation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amaranth import Module, Shape, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hwgen.gateware.component import ConfiguredComponent, OnDevice
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.engine.config import LANES
from hwgen.gateware.multipliers.booth import BoothMultiplier
from hwgen.gateware.multipliers.lut_multiplier import DotOperands, DotProducts

#: Widths in bits of an 8-bit value minus its zero point (signed), and of the product of two such differences.
VALUE_BITS, PRODUCT_BITS = 9, 18


@dataclass(frozen=True, kw_only=True)
class MapProductConfig(OnDevice):
    """Configuration of the engine's multiplier of two feature maps (`MapProduct`): number of channels per cycle."""

    lanes: int = LANES

    @property
    def products(self) -> DotProducts:
        """`DotProducts` of one lane's multiplier in LUTs: a dot product with a single term."""
        ends = -(1 << VALUE_BITS - 1), (1 << VALUE_BITS - 1) - 1
        return DotProducts(
            device=self.device,
            operand=Shape(VALUE_BITS, signed=True),
            weight_bits=VALUE_BITS,
            weight_range=ends,
            terms=(1,),
            sum_bits=(PRODUCT_BITS,),
        )

    @cached_property
    def latency(self) -> int:
        """Cycles from all lanes' operands at the inputs to their products at the output."""
        return 1 + BoothMultiplier().latency(self.products)

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device)
        for _ in range(self.lanes):
            BoothMultiplier().count(cost, self.products)
            cost.registers(2 * VALUE_BITS)
        return cost.resources

    def component(self) -> MapProduct:
        return MapProduct(self)


class MapProduct(ConfiguredComponent[MapProductConfig]):
    """Multiplier of two feature maps: ``(first - first_zero) * (second - second_zero)`` per channel.

    Parameters
    ----------
    config : MapProductConfig

    Members
    -------
    first, second : In
        Values of the two operands, by lane.
    first_zero, second_zero : In
        Zero points of the two operands.
    o : Out
        Products, by lane.

    Latency and throughput
        One word per cycle, with a latency of ``config.latency`` cycles. Never stalls.
    """

    def __init__(self, config: MapProductConfig):
        values = data.ArrayLayout(signed(8), config.lanes)
        super().__init__(
            config,
            {
                "first": In(values),
                "second": In(values),
                "first_zero": In(signed(8)),
                "second_zero": In(signed(8)),
                "o": Out(data.ArrayLayout(signed(PRODUCT_BITS), config.lanes)),
            },
        )

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.config.lanes):
            operands = []
            for name in ("first", "second"):
                value = Signal(signed(VALUE_BITS), name=f"{name}_{lane}", reset_less=True)
                m.d.sync += value.eq(getattr(self, name)[lane] - getattr(self, f"{name}_zero"))
                operands.append(value)
            (product,) = BoothMultiplier().sums(
                m, self.config.products, DotOperands([[operands[0]]], [[[operands[1]]]], [f"product_{lane}"])
            )
            m.d.comb += self.o[lane].eq(product.as_signed())
        return m
