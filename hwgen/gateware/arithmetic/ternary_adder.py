"""Ternary adder: the sum of three numbers in one LUT per bit, half as many as two adders take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth import Module, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.circuit_forms import Primitive
from hwgen.gateware.cost import Cost


@dataclass(frozen=True, kw_only=True)
class TernaryAdderConfig:
    """Configuration of a ternary adder, which adds or subtracts three signed numbers.

    Parameters
    ----------
    bits : int
        Width of the numbers and of their sum, in bits. Sums wrap at this width.
    negative : tuple of bool
        Whether each of the three numbers is subtracted.

    Raises
    ------
    ConfigError
        If the width is not positive, or not one or two numbers at most are subtracted.
    """

    bits: int
    negative: tuple[bool, bool, bool] = (False, False, False)

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError(f"bits must be a positive integer, not {self.bits!r}")
        if all(self.negative):
            raise ConfigError("negative must be true for at most two of three numbers: subtract the sum instead")

    def count(self, cost: Cost) -> None:
        """Add the adder's LUTs to ``cost``: one per bit."""
        cost.lut += self.bits

    def component(self) -> TernaryAdder:
        return TernaryAdder(self)

    def add_to(self, m: Module, values: Sequence[Value], name: str) -> Signal:
        """Add a ternary adder to a module, and return the combinational sum of three values, a `Signal`.

        A register should store the sum: in the 7 series the sum then takes no further LUT.

        Parameters
        ----------
        m : Module
            Module that gets the adder, as a submodule.
        values : sequence of Value
            Three values. Signed values are sign-extended to the adder's width, and all values wrap at this width.
        name : str
            Name of the submodule.
        """
        adder = self.component()
        m.submodules[name] = adder
        m.d.comb += [addend.eq(value) for addend, value in zip(adder.addends, values, strict=True)]
        return adder.sum


class TernaryAdder(Primitive[TernaryAdderConfig]):
    """Ternary adder: the sum or difference of three signed numbers, combinational.

    Parameters
    ----------
    config : TernaryAdderConfig

    Members
    -------
    addend_0, addend_1, addend_2 : In(signed)
        Numbers to be added or subtracted.
    sum : Out(signed)
        Sum, which wraps. It is combinational.
    """

    def __init__(self, config: TernaryAdderConfig):
        shape = signed(config.bits)
        super().__init__(config, {**{f"addend_{index}": In(shape) for index in range(3)}, "sum": Out(shape)})

    @property
    def addends(self) -> list[Signal]:
        """List of input ports of the three numbers, as signals."""
        return [getattr(self, f"addend_{index}") for index in range(3)]

    @property
    def module_name(self) -> str:
        signs = "".join("n" if flag else "p" for flag in self.config.negative)
        return f"ternary_adder_{self.config.bits}{f'_{signs}' if 'n' in signs else ''}"

    def circuit(self) -> Module:
        m = Module()
        positive = [addend for addend, flag in zip(self.addends, self.config.negative, strict=True) if not flag]
        negative = [addend for addend, flag in zip(self.addends, self.config.negative, strict=True) if flag]
        total: Value = positive[0]
        for addend in positive[1:]:
            total = (total + addend)[: self.config.bits]
        for addend in negative:
            total = (total - addend)[: self.config.bits]
        m.d.comb += self.sum.eq(total)
        return m

    def cells(self, device: Device) -> list[str]:
        return [] if device.adders is None else device.adders.ternary(self.config.bits, self.config.negative)
