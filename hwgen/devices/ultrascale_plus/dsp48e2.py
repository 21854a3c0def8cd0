"""Generator of chains of the UltraScale+ DSP slice, DSP48E2 (UG579; its Verilog primitive: UG974)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.devices.device import SliceChains, SliceOperand, SliceTerm

#: Width of the ports A, B and P, in bits, and of the part of A that the multiplier reads (UG579, figure 2-1).
_A_BITS, _B_BITS, _P_BITS, _WIDE_BITS = 30, 18, 48, 27

#: Parameters that all slices share: two-input multiplier of A and B, no pre-adder, no SIMD, no pattern detector, and no
#: registers on ports that are constant.
_PARAMETERS = {
    "USE_MULT": '"MULTIPLY"',
    "USE_SIMD": '"ONE48"',
    "A_INPUT": '"DIRECT"',
    "B_INPUT": '"DIRECT"',
    "AMULTSEL": '"A"',
    "BMULTSEL": '"B"',
    "ADREG": 0,
    "CREG": 0,
    "DREG": 0,
    "MREG": 1,
    "PREG": 1,
    "ALUMODEREG": 0,
    "CARRYINREG": 0,
    "CARRYINSELREG": 0,
    "INMODEREG": 0,
}

#: Pins that all slices share: Z + W + X + Y (ALUMODE 0), no carry, registers that no reset reaches.
_PINS = {
    "ALUMODE": "4'b0000",
    "CARRYIN": "1'b0",
    "CARRYINSEL": "3'b000",
    "INMODE": "5'b00000",
    "ACIN": "30'd0",
    "BCIN": "18'd0",
    "C": "48'd0",
    "D": "27'd0",
    "CARRYCASCIN": "1'b0",
    "MULTSIGNIN": "1'b0",
    "CEM": "1'b1",
    "CEP": "1'b1",
    "CECTRL": "1'b1",
    **dict.fromkeys(("CEAD", "CEALUMODE", "CEC", "CECARRYIN", "CED", "CEINMODE"), "1'b0"),
    **dict.fromkeys(("RSTA", "RSTB", "RSTC", "RSTD", "RSTM", "RSTP"), "1'b0"),
    **dict.fromkeys(("RSTALLCARRYIN", "RSTALUMODE", "RSTCTRL", "RSTINMODE"), "1'b0"),
}

#: OPMODE of X and Y, whose sum is the product, and of Z, which is 0 or PCIN (UG579, tables 2-3 to 2-5).
_PRODUCT, _ALONE, _CASCADED = "4'b0101", "3'b000", "3'b001"


@dataclass(frozen=True)
class Dsp48e2Chains(SliceChains):
    """Generator of Verilog chains of DSP48E2 slices, joined by PCOUT and PCIN.

    The adder has a fourth operand W (UG579, figure 2-1), so that a slice can compute P + PCIN + M.
    """

    @property
    def accumulates(self) -> bool:
        return True

    def fits(self, term: SliceTerm, sum_bits: int) -> bool:
        narrow, wide = term.operand_bits
        return narrow <= _B_BITS and wide <= _WIDE_BITS and sum_bits <= _P_BITS

    def statements(self, terms: Sequence[SliceTerm], sum_bits: int, *, accumulates: bool) -> list[str]:
        last = len(terms) - 1
        lines = ["    // OPMODE selects the operands of each slice's adder: W, Z, and the product as X and Y."]
        for index, term in enumerate(terms):
            adds_own_sum = accumulates and index == last
            lines += [*self._slice(index, term, adds_own_sum=adds_own_sum), ""]
        return [*lines, f"    assign sum = p_{last}[{sum_bits - 1}:0];"]

    def _slice(self, index: int, term: SliceTerm, *, adds_own_sum: bool) -> list[str]:
        """Return a list of the Verilog statements of one DSP48E2 slice of a chain: its operands, and its instance."""
        operands = [(f"activation_{index}", term.activation), (f"weight_{index}", term.weight)]
        if term.activation.signed_bits <= term.weight.signed_bits:
            operands.reverse()
        (a_port, a), (b_port, b) = operands
        w = "{1'b0, !is_first}" if adds_own_sum else "2'b00"
        parameters = {
            **_PARAMETERS,
            **_registers("A", a),
            **_registers("B", b),
            "OPMODEREG": int(adds_own_sum),
        }
        pins = {
            "CLK": "clk",
            "A": f"a_{index}",
            "B": f"b_{index}",
            **_enables("A", a),
            **_enables("B", b),
            "OPMODE": f"{{{w}, {_CASCADED if index else _ALONE}, {_PRODUCT}}}",
            "PCIN": f"cascade_{index - 1}" if index else "48'd0",
            **_PINS,
            "P": f"p_{index}",
            "PCOUT": f"cascade_{index}",
        }
        return [
            f"    wire signed [{_A_BITS - 1}:0] a_{index} = {_signed_operand(a_port, a)};",
            f"    wire signed [{_B_BITS - 1}:0] b_{index} = {_signed_operand(b_port, b)};",
            f"    wire [{_P_BITS - 1}:0] p_{index}, cascade_{index};",
            "    DSP48E2 #(",
            *_connections(parameters),
            f"    ) slice_{index} (",
            *_connections(pins),
            "    );",
        ]


def _signed_operand(port: str, operand: SliceOperand) -> str:
    """Return the Verilog expression of a DSP slice's operand, as a signed number."""
    return f"$signed({port})" if operand.signed else f"$signed({{1'b0, {port}}})"


def _registers(port: str, operand: SliceOperand) -> dict[str, int]:
    """Return a dictionary of DSP48E2 parameters (numbers by name) for how many registers an operand has.

    The cascade output that is not used has as many.
    """
    return {f"{port}REG": operand.registers, f"{port}CASCREG": operand.registers}


def _enables(port: str, operand: SliceOperand) -> dict[str, str]:
    """Return a dict by pin of an operand's clock enables (Verilog) in a DSP48E2; a single register is the second."""
    return {
        f"CE{port}1": f"1'b{int(operand.registers == 2)}",
        f"CE{port}2": f"1'b{int(operand.registers >= 1)}",
    }


def _connections(values: dict[str, str | int] | dict[str, str]) -> list[str]:
    """Return a list of lines of Verilog that connect an instance's parameters or ports by name."""
    lines = [f"        .{name}({value})" for name, value in values.items()]
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


DSP48E2_CHAINS = Dsp48e2Chains()
"""Generator of DSP48E2 chains for the UltraScale+ device family."""
