"""Row of a radix-4 Booth multiplier: adds a digit's multiple of a number to another number, in one LUT per bit."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.circuit_forms import Primitive
from hwgen.gateware.cost import Cost

#: Number of bits of the multiplier that make a Booth digit: two, and the upper bit of the digit below.
DIGIT_BITS = 3


@dataclass(frozen=True, kw_only=True)
class BoothRowConfig:
    """Configuration of a row of a radix-4 Booth multiplier, ``sum = addend + digit * multiplicand``.

    Parameters
    ----------
    bits : int
        Width of the addend and of the sum, in bits. Sums wrap at this width.
    multiplicand_bits : int
        Width of the multiplicand, two's complement, in bits.

    Raises
    ------
    ConfigError
        If a width is not positive.
    """

    bits: int
    multiplicand_bits: int

    def __post_init__(self) -> None:
        for name in ("bits", "multiplicand_bits"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be a positive integer, not {getattr(self, name)!r}")

    def count(self, cost: Cost) -> None:
        """Add the row's LUTs to ``cost``: one per bit."""
        cost.lut += self.bits

    def component(self) -> BoothRow:
        return BoothRow(self)

    def add_to(self, m: Module, digit: Value, multiplicand: Value, addend: Value, name: str) -> Signal:
        """Add a Booth row to a module, as a submodule, and return its sum, a combinational `Signal`."""
        row = self.component()
        m.submodules[name] = row
        m.d.comb += [row.digit.eq(digit), row.multiplicand.eq(multiplicand), row.addend.eq(addend)]
        return row.sum


class BoothRow(Primitive[BoothRowConfig]):
    """Row of a radix-4 Booth multiplier: the sum of a number and a digit's multiple of another number.

    Parameters
    ----------
    config : BoothRowConfig

    Members
    -------
    digit : In(3)
        Bits ``b2``, ``b1`` and ``b0`` of the multiplier, which are the digit ``b1 + b0 - 2 * b2``.
    multiplicand : In(signed)
        Number whose multiple is added.
    addend : In(signed)
        Number that the multiple is added to.
    sum : Out(signed)
        Sum, which wraps. It is combinational.
    """

    digit: Signal
    multiplicand: Signal
    addend: Signal
    sum: Signal

    def __init__(self, config: BoothRowConfig):
        shape = signed(config.bits)
        ports = {"digit": In(DIGIT_BITS), "multiplicand": In(signed(config.multiplicand_bits)), "addend": In(shape)}
        super().__init__(config, {**ports, "sum": Out(shape)})

    @property
    def module_name(self) -> str:
        return f"booth_row_{self.config.bits}_{self.config.multiplicand_bits}"

    def circuit(self) -> Module:
        m = Module()
        below, one, negative = self.digit
        size = Signal(signed(self.config.bits), name="size")
        double = Signal(name="double")
        m.d.comb += [
            double.eq((negative & ~one & ~below) | (~negative & one & below)),
            size.eq(Mux(double, self.multiplicand << 1, Mux(one ^ below, self.multiplicand, 0))),
            self.sum.eq(Mux(negative, self.addend - size, self.addend + size)),
        ]
        return m

    def cells(self, device: Device) -> list[str]:
        return [] if device.adders is None else device.adders.booth_row(self.config.bits, self.config.multiplicand_bits)
