"""Rows of Booth multipliers: sums against Python's, and their cells against their behavioural form."""

from __future__ import annotations

from itertools import product

import equivalence
import pytest
from amaranth.sim import Simulator

from hwgen.devices import FAMILIES
from hwgen.gateware.arithmetic.booth_row import BoothRowConfig


def wrapped(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def test_sums():
    for bits, multiplicand_bits in ((1, 1), (4, 3), (3, 4), (5, 2)):
        row = BoothRowConfig(bits=bits, multiplicand_bits=multiplicand_bits).component()
        numbers, addends = ((range(-1 << width - 1, 1 << width - 1)) for width in (multiplicand_bits, bits))

        async def bench(ctx, row=row, cases=(range(8), numbers, addends), bits=bits):
            for digit, number, addend in product(*cases):
                ctx.set(row.digit, digit)
                ctx.set(row.multiplicand, number)
                ctx.set(row.addend, addend)
                multiple = ((digit & 1) + (digit >> 1 & 1) - 2 * (digit >> 2)) * number
                assert ctx.get(row.sum) == wrapped(addend + multiple, bits)

        simulator = Simulator(row)
        simulator.add_testbench(bench)
        simulator.run()


@pytest.mark.parametrize("device", [device for device in FAMILIES.values() if device.adders], ids=str)
def test_cells_are_equal_to_the_behavioural_form(tmp_path, device):
    sizes = [(1, 1), (2, 1), (4, 3), (5, 5), (3, 6), (10, 8), (11, 8), (18, 16)]
    configs = [BoothRowConfig(bits=bits, multiplicand_bits=width) for bits, width in sizes]
    equivalence.check_primitives([config.component() for config in configs], tmp_path, device)
