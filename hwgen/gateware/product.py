"""Elementwise product of two quantised feature maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

from amaranth import Module, Shape, Signal, Value, signed

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Cost, Resources
from hwgen.gateware.join import JoinConfig
from hwgen.gateware.layer import Arithmetic, Weightless
from hwgen.gateware.lookup import bits_for_range, delayed
from hwgen.gateware.rounding import signed_bits
from hwgen.gateware.stream import at_pixel


@dataclass(frozen=True, kw_only=True)
class ProductConfig(Weightless):
    """Configuration of the elementwise product of two quantised maps, ``(a - zeros[0]) * (b - zeros[1])``.

    Parameters
    ----------
    window : JoinConfig
        Source of the steps. A step has a beat of the first input, and of the second input a beat or one pixel that all
        pixels of the first share.
    zeros : tuple of two int
        Zero points of the inputs.

    Raises
    ------
    ConfigError
        If ``window`` does not take two inputs at once.
    """

    operation = "multiplication"

    window: JoinConfig
    zeros: tuple[int, int]

    #: Cycles from operands to their products: the subtraction of zero points, and the two registers of the multiplier.
    latency = 3

    def __post_init__(self) -> None:
        if len(self.window.inputs) != 2 or self.window.in_turn:
            raise ConfigError(f"window must take two inputs at once, not {self.window!r}")

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the elementwise product: one per lane and pixel."""
        return self.lanes * self.window.pixels

    @cached_property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Smallest and largest value of each operand minus its zero point, as two pairs of integers."""
        first, second = (
            (beat.value_range[0] - zero, beat.value_range[1] - zero)
            for beat, zero in zip(self.window.inputs, self.zeros, strict=True)
        )
        return first, second

    @property
    def result(self) -> Shape:
        """Amaranth shape (signed) of the product of two elements, one from each map."""
        products = [a * b for a, b in product(*self.ranges)]
        return signed(signed_bits(min(products), max(products)))

    @cached_property
    def resources(self) -> Resources:
        cost = Cost(self.device, dsp=self.multipliers, ff=self.latency)
        # The DSP slice subtracts the zero point of the first operand.
        operands = self.lanes * self.window.inputs[1].pixels * (self.zeros[1] != 0)
        cost.lut += 0.75 * operands * bits_for_range(*self.ranges[1]).width
        return cost.resources

    def component(self) -> Product:
        return Product(self)


class Product(Arithmetic[ProductConfig]):
    """Component that multiplies two quantised maps element by element, with one multiplier for each lane and pixel.

    Parameters
    ----------
    config : ProductConfig

    Members
    -------
    i : In(stream, always ready)
        Steps of a `Join`.
    o : Out(stream, always ready)
        ``Tn x Tp`` products, ``[lane][pixel]``.

    Latency and throughput
        One step per cycle. Products are valid ``config.latency`` cycles after their step. The component never stalls.
    """

    def elaborate(self, platform):
        m = Module()
        config, pixels = self.config, self.config.window.pixels
        for lane in range(config.lanes):
            shared = None
            if config.window.inputs[1].pixels < pixels:
                shared = self._operand(m, f"lane_{lane}_b", 1, self.i.payload.operand_1[lane][0])
            for pixel in range(pixels):
                name = at_pixel(f"lane_{lane}", pixel, pixels)
                first = self._operand(m, f"{name}_a", 0, self.i.payload.operand_0[lane][pixel])
                second = shared
                if second is None:
                    second = self._operand(m, f"{name}_b", 1, self.i.payload.operand_1[lane][pixel])
                multiplied = Signal(config.result, name=f"{name}_multiplier_output", reset_less=True)
                result = Signal(config.result, name=f"{name}_product", reset_less=True)
                m.d.sync += [multiplied.eq(first * second), result.eq(multiplied)]
                m.d.comb += self.o.payload[lane][pixel].eq(result)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, config.latency, reset_less=False))
        return m

    def _operand(self, m: Module, name: str, operand_index: int, value: Value) -> Signal:
        """Add and return a register (`Signal`) of ``value`` minus the zero point of input map ``operand_index``."""
        operand = Signal(bits_for_range(*self.config.ranges[operand_index]), name=name, reset_less=True)
        m.d.sync += operand.eq(value - self.config.zeros[operand_index])
        return operand
