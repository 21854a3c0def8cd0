"""Boards and parts with an ECP5: budgets, estimates against Yosys, exact values, and what the family lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

import hwgen
from hwgen import boards
from hwgen.devices import family_of
from hwgen.devices.ecp5 import ECP5
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
            bits=8, signed=True, beats=((0,), (1,)), multiplier_slice=ECP5.multiplier_slice,
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
        ("decoilfnet-example", {"weights": "runtime"}, "loaded at run time needs multipliers of 25 bits, but those of"),
        ("decoilfnet-example", {"template": "engine"}, "two products in each DSP slice, for which those of ECP5"),
    ],
)
def test_refusals(name, options, message):
    with pytest.raises(PlanError, match=message):
        hwgen.load(name).plan("ulx3s", **options)
