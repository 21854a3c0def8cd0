"""The tests' model of DSP48E2 beside Yosys' model of DSP48E1, the vendor's model, and sums of integers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dsp48
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")

#: Path of AMD's ``unisims/DSP48E2.v``, from Vivado or from the public XilinxUnisimLibrary.
VENDOR = os.environ.get("UNISIM_DSP48E2", "")

#: Faults in the model: text and faulty text.
FAULTS = {
    "b is unsigned": ("wire signed [17:0] b_operand", "wire [17:0] b_operand"),
    "one register of two": ("AREG == 2 ? a_1 : A", "A"),
    "enable of the wrong register": ("else if (CEB2) b_2", "else if (CEB1) b_2"),
    "no reset": ("if (RSTM) m_register <= 0; else if", "if"),
    "c without its register": ("CREG == 0 ? C", "1'b1 ? C"),
    "opmode without its register": ("OPMODEREG == 0 ? OPMODE", "1'b1 ? OPMODE"),
    "shift by 16": ("PCIN[47:17]", "PCIN[47:16]"),
    "subtraction without a borrow": ("total = z - others", "total = ~z + others"),
    "carry is lost": (" + (CARRYINSEL == 3'b000 && CARRYIN)", ""),
    "cascade from the adder": ("assign PCOUT = P;", "assign PCOUT = total;"),
}
#: Faults in what DSP48E1 does not have.
WIDE_FAULTS = {
    "w is z": ("2'b01: w = p_register", "2'b01: w = z"),
    "w rounds to 0": ("w = RND", "w = 0"),
    "product has 25 bits": ("signed [26:0] a_operand = a[26:0]", "signed [24:0] a_operand = a[24:0]"),
}


def faulty(old: str, new: str) -> str:
    assert dsp48.MODEL.count(old) == 1
    return dsp48.MODEL.replace(old, new)


def check(other: dsp48.Other, folder: Path, count: int) -> None:
    for wrong, moves in dsp48.compare(other, dsp48.settings(1, count), folder):
        assert wrong == 0
        assert moves > dsp48.CYCLES // 2


def test_equal_to_dsp48e1_in_what_both_have(tmp_path):
    check(dsp48.of_yosys(), tmp_path, 24)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "shift by 16" else pytest.mark.long) for name in FAULTS]
)
def test_faults_are_found(name, tmp_path):
    outcomes = dsp48.compare(dsp48.of_yosys(), dsp48.settings(1, 24), tmp_path, faulty(*FAULTS[name]))
    assert any(wrong for wrong, _ in outcomes)


@pytest.mark.skipif(not VENDOR, reason="needs AMD's model of DSP48E2: set UNISIM_DSP48E2 to the path of its file")
def test_equal_to_the_vendors_model(tmp_path):
    other = dsp48.Other("DSP48E2", Path(VENDOR).read_text(), adds_w=True)
    check(other, tmp_path, 100)
    for fault in (FAULTS | WIDE_FAULTS).values():
        assert any(wrong for wrong, _ in dsp48.compare(other, dsp48.settings(1, 24), tmp_path, faulty(*fault)))


SUMS = """
`timescale 1ns / 1ps
module bench;
    reg clk = 0;
    reg [26:0] a = 0; reg [17:0] b = 0; reg [47:0] c = 0, pcin = 0; reg [1:0] w = 0;
    wire [47:0] p;
    DSP48E2 #(.ADREG(0), .DREG(0), .INMODEREG(0), .CARRYINREG(0), .CARRYINSELREG(0), .AREG(0), .ACASCREG(0), .BREG(0),
        .BCASCREG(0), .CREG(0), .MREG(0), .OPMODEREG(0), .ALUMODEREG(0), .PREG(1), .RND(48'd123456789)) slice (
        .CLK(clk), .A({3'd0, a}), .B(b), .C(c), .PCIN(pcin), .CARRYIN(1'b0), .CARRYINSEL(3'd0), .INMODE(5'd0),
        .OPMODE({w, 3'b001, 4'b0101}), .ALUMODE(4'd0), .CEP(1'b1), .RSTP(1'b0), .RSTM(1'b0), .RSTC(1'b0), .P(p));
    initial begin
        repeat (500) begin
            a = $random; b = $random; c = {$random, $random}; pcin = {$random, $random}; w = $random;
            $write("%0d %0d %0d %0d %0d %0d ", $signed(a), $signed(b), $signed(c), $signed(pcin), w, $signed(p));
            #5 clk = 1; #5 clk = 0;
            $display("%0d", $signed(p));
        end
    end
endmodule
"""


@pytest.mark.parametrize("fault", [None, *WIDE_FAULTS])
def test_sums(fault, tmp_path):
    """P + PCIN + A x B, and with C or a constant in the place of P, for operands of 27 and 18 bits."""
    model = dsp48.MODEL if fault is None else faulty(*WIDE_FAULTS[fault])
    lines = dsp48.run(tmp_path, SUMS, dsp48.GLOBAL_RESET, model)
    wrong = 0
    for line in lines:
        a, b, c, pcin, w, before, after = map(int, line.split())
        total = (0, before, 123456789, c)[w] + pcin + a * b
        wrong += (total - after) % (1 << 48) != 0
    assert len(lines) == 500
    assert (wrong > 0) == (fault is not None)


PRODUCTS = """
module bench;
    reg [26:0] a = 0; reg [17:0] b = 0; wire [44:0] y;
    \\$__MUL27X18 product (.A(a), .B(b), .Y(y));
    initial repeat (500) begin
        a = $random; b = $random;
        #1 $display("%0d %0d %0d", $signed(a), $signed(b), $signed(y));
    end
endmodule
"""


def test_products_that_yosys_maps(tmp_path):
    """The instance of DSP48E2 that Yosys writes for a product, without registers."""
    rules = (dsp48.YOSYS_CELLS / "xcu_dsp_map.v").read_text()
    lines = dsp48.run(tmp_path, PRODUCTS, dsp48.GLOBAL_RESET, dsp48.MODEL, rules)
    a, b, y = np.array([line.split() for line in lines], np.int64).T
    assert len(lines) == 500
    assert np.array_equal(a * b, y)
