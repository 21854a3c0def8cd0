"""Ternary adders: sums against Python's, and their cells against their behavioural form and the cost model."""

from __future__ import annotations

from itertools import product

import equivalence
import numpy as np
import pytest
from amaranth import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from lint import check, written

from hwgen.devices import FAMILIES
from hwgen.errors import ConfigError
from hwgen.gateware.arithmetic.ternary_adder import TernaryAdderConfig
from hwgen.gateware.cost import Cost
from hwgen.tools import synthesis
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert

SIGNS: list[tuple[bool, bool, bool]] = [
    signs for signs in product((False, True), (False, True), (False, True)) if not all(signs)
]


class Registered(wiring.Component):
    """A ternary adder of numbers of three widths between registers."""

    o: Signal

    def __init__(self, config: TernaryAdderConfig, widths: tuple[int, int, int]):
        self.config = config
        self.widths = widths
        ports = {f"i{index}": In(signed(width)) for index, width in enumerate(widths)}
        super().__init__({**ports, "o": Out(signed(config.bits))})

    @property
    def inputs(self) -> list[Signal]:
        return [getattr(self, f"i{index}") for index in range(3)]

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.config.add_to(m, self.inputs, "adder"))
        return m


def wrapped(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("negative", SIGNS)
def test_sums(negative):
    rng = np.random.default_rng(sum(negative))
    for bits, widths in ((1, (1, 1, 1)), (7, (5, 7, 6)), (12, (9, 3, 12))):
        design = Registered(TernaryAdderConfig(bits=bits, negative=negative), widths)
        cases = [[int(rng.integers(-1 << w - 1, 1 << w - 1)) for w in widths] for _ in range(100)]
        cases += [[-1 << w - 1 for w in widths], [(1 << w - 1) - 1 for w in widths]]

        async def bench(ctx, design=design, cases=cases, bits=bits):
            for case in cases:
                for port, value in zip(design.inputs, case, strict=True):
                    ctx.set(port, value)
                await ctx.tick()
                total = sum(-value if flag else value for value, flag in zip(case, negative, strict=True))
                assert ctx.get(design.o) == wrapped(total, bits)

        simulator = Simulator(design)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()


def test_no_three_numbers_are_subtracted():
    with pytest.raises(ConfigError, match=r"^negative must be true for at most two of three numbers"):
        TernaryAdderConfig(bits=4, negative=(True, True, True))
    with pytest.raises(ConfigError, match=r"^bits must be a positive integer, not 0$"):
        TernaryAdderConfig(bits=0)


@pytest.mark.parametrize("device", [device for device in FAMILIES.values() if device.adders], ids=str)
def test_cells_are_equal_to_the_behavioural_form(tmp_path, device):
    """Both forms of each module, for several widths and all signs."""
    configs = [TernaryAdderConfig(bits=b, negative=signs) for b, signs in product((1, 2, 4, 5, 9, 18), SIGNS)]
    equivalence.check_primitives([config.component() for config in configs], tmp_path, device)


@pytest.mark.long
def test_resources_and_delay():
    designs = [
        Registered(TernaryAdderConfig(bits=bits, negative=negative), (bits, bits, bits))
        for bits, negative in ((8, (False, False, False)), (21, (False, True, False)), (36, (True, False, True)))
    ]
    counted, paths = synthesis.cells_and_paths(designs)
    for design, cells, path in zip(designs, counted, paths, strict=True):
        cost = Cost(ff=design.config.bits)
        design.config.count(cost)
        assert synthesis.count(cells) == cost.resources
        assert path is not None
        assert path.delay <= 3.3


def test_lint(tmp_path):
    designs = [Registered(TernaryAdderConfig(bits=bits), (bits, 3, bits)) for bits in (5, 5, 16)]
    check([written(convert(SideBySide(designs), "adders"), tmp_path)], with_yosys=tmp_path)
