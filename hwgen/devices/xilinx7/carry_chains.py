"""Generators of 7 series and UltraScale+ adders in LUT6_2 and carry cells (UG474, UG574, UG953, UG974)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwgen.devices.device import Adders


@dataclass(frozen=True)
class CarryCell:
    """Description of a device family's carry cell: its name, its number of bits, and its first and later carry pins.

    Parameters
    ----------
    name : str
        Name of the Verilog primitive.
    bits : int
        Number of bits of the cell.
    begin_pins, next_pins : str
        Connections of the carry input of a chain's first cell, where ``{}`` is the carry, and of the cells behind it.
    """

    name: str
    bits: int
    begin_pins: str
    next_pins: str


CARRY4 = CarryCell("CARRY4", 4, ".CI(1'b0), .CYINIT({})", ".CI({}), .CYINIT(1'b0)")
"""Carry cell of the 7 series, with a separate carry input for a chain's first bit."""
CARRY8 = CarryCell("CARRY8", 8, ".CI({}), .CI_TOP(1'b0)", ".CI({}), .CI_TOP(1'b0)")
"""Carry cell of UltraScale+, used as one chain of eight bits."""


@dataclass(frozen=True)
class CarryChains(Adders):
    """Generator of adders that take one LUT per bit of a carry chain.

    Parameters
    ----------
    cell : CarryCell
        Cell of the carry chains.
    """

    cell: CarryCell

    def ternary(self, bits: int, negative: Sequence[bool]) -> list[str]:
        """Return a list of lines of Verilog: a three-input adder with one LUT per bit for majority and parity.

        The majority is a carry of the next bit. The carry chain adds majorities and parities::

              sum = parity + 2 * majority

        A subtracted number is inverted, and adds 1: at the free lowest majority, or at the chain's carry input.
        """

        def majority(pins: Sequence[int]) -> int:
            return int(sum(pin ^ flag for pin, flag in zip(pins[1:4], negative, strict=True)) >= 2)

        def propagate(pins: Sequence[int]) -> int:
            return (sum(pins[1:]) + sum(negative)) & 1

        init = _init(majority) | _init(propagate) << 32
        return [
            "    // O5 is the majority of a bit's inputs, which the next bit adds. O6 is the sum without carry.",
            f"    wire [{bits - 1}:0] bits_0 = addend_0, bits_1 = addend_1, bits_2 = addend_2;",
            f"    wire [{bits}:0] majority;",
            f"    assign majority[0] = 1'b{int(sum(negative) > 0)};",
            *self._chain(bits, f"1'b{int(sum(negative) > 1)}", "majority"),
            "    generate",
            f"        for (index = 0; index < {bits}; index = index + 1) begin : luts",
            f"            LUT6_2 #(.INIT(64'h{init:016X})) lut (",
            "                .I0(1'b0), .I1(bits_0[index]), .I2(bits_1[index]), .I3(bits_2[index]),",
            "                .I4(majority[index]), .I5(1'b1), .O5(majority[index + 1]), .O6(propagate[index])",
            "            );",
            "        end",
            "    endgenerate",
        ]

    def booth_row(self, bits: int, multiplicand_bits: int) -> list[str]:
        """Return a list of lines of Verilog: a Booth row, which adds a multiple (-2 to 2) of one number to another.

        The LUT reads the digit's three bits, two bits of the multiplicand and the addend's bit. A negative multiple is
        inverted, and the chain's carry input adds 1. In a slice the carry input takes the place of the lowest addend's
        way to the chain, so the lowest LUT, whose multiplicand has one bit only, passes the addend on.
        """

        def total(pins: Sequence[int]) -> int:
            upper, middle, lower, single, double, addend = pins
            size = abs(lower + middle - 2 * upper)
            return addend ^ upper ^ (single if size == 1 else double if size == 2 else 0)

        lowest = _init(lambda pins: pins[3]) | _init(lambda pins: total((*pins[:3], pins[4], 0, pins[3]))) << 32
        other = _init(total, 6)
        return [
            "    // The LUT of a bit selects the bit of the multiple, and adds it to the bit of the addend.",
            f"    wire signed [{multiplicand_bits - 1}:0] number = multiplicand;",
            f"    wire signed [{bits}:0] extended = number;",
            f"    wire [{bits - 1}:0] added = addend;",
            f"    wire [{bits - 1}:0] generated;",
            *self._chain(bits, "digit[2]", "generated"),
            f"    LUT6_2 #(.INIT(64'h{lowest:016X})) lowest (",
            "        .I0(digit[2]), .I1(digit[1]), .I2(digit[0]), .I3(added[0]), .I4(extended[0]), .I5(1'b1),",
            "        .O5(generated[0]), .O6(propagate[0])",
            "    );",
            *(
                [
                    f"    assign generated[{bits - 1}:1] = added[{bits - 1}:1];",
                    "    generate",
                    f"        for (index = 1; index < {bits}; index = index + 1) begin : luts",
                    f"            LUT6 #(.INIT(64'h{other:016X})) lut (",
                    "                .I0(digit[2]), .I1(digit[1]), .I2(digit[0]),",
                    "                .I3(extended[index]), .I4(extended[index - 1]), .I5(added[index]),",
                    "                .O(propagate[index])",
                    "            );",
                    "        end",
                    "    endgenerate",
                ]
                if bits > 1
                else []
            ),
        ]

    def _chain(self, bits: int, carry_in: str, generated: str) -> list[str]:
        """Return a list of Verilog lines: a carry chain for ``sum`` from ``propagate`` and ``generated``.

        ``propagate`` is the sum without carry, ``generated`` an addend.
        """
        block = self.cell.bits
        cells = -(-bits // block)
        width = block * cells
        spare = f"{width - bits}'b0, " if width > bits else ""
        selected = f"{generated}[{bits - 1}:0]"
        lines = [
            f"    wire [{bits - 1}:0] propagate;",
            f"    wire [{width - 1}:0] chain_propagate, chain_generated, chain_carry, chain_sum;",
            f"    assign chain_propagate = {{{spare}propagate}};",
            f"    assign chain_generated = {{{spare}{selected}}};",
            f"    assign sum = chain_sum[{bits - 1}:0];",
        ]
        for index, start in enumerate(range(0, width, block)):
            part = f"[{start + block - 1}:{start}]"
            pins, carry = (
                (self.cell.next_pins, f"chain_carry[{start - 1}]") if start else (self.cell.begin_pins, carry_in)
            )
            lines += [
                f"    {self.cell.name} carry_{index} (",
                f"        {pins.format(carry)}, .DI(chain_generated{part}), .S(chain_propagate{part}),",
                f"        .CO(chain_carry{part}), .O(chain_sum{part})",
                "    );",
            ]
        return [*lines, "    genvar index;"]


def _init(function: Callable[[Sequence[int]], int], num_pins: int = 5) -> int:
    """Return a function's truth table, as the integer of a LUT's ``INIT``; the function gets the inputs, I0 first."""
    return sum(function([index >> pin & 1 for pin in range(num_pins)]) << index for index in range(1 << num_pins))
