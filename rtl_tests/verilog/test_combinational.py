"""Combinational cycles are refused, and nothing else is, with the check of whole cells as with Amaranth's of bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amaranth import ClockDomain, Instance, Module, Mux, Signal
from amaranth.back import rtlil
from amaranth.hdl import CombinationalCycle
from amaranth.lib.memory import Memory

from hwgen.verilog.combinational import checked_by_cell


def wires(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a.eq(b), b.eq(a)]


def itself(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += a.eq(a)


def an_operator(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a.eq(b + 1), b.eq(a)]


def a_choice(m: Module, a: Signal, b: Signal) -> None:
    with m.If(a == 3):
        m.d.comb += a.eq(1)


def a_memory(m: Module, a: Signal, b: Signal) -> None:
    m.submodules.memory = memory = Memory(shape=4, depth=16, init=[])
    port = memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(port.data)


def bits_in_order(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [a[0].eq(1), *(a[bit].eq(~a[bit - 1]) for bit in range(1, 4))]


def bits_of_an_operator(m: Module, a: Signal, b: Signal) -> None:
    m.d.comb += [b.eq(~a), a[0].eq(1), a[1].eq(b[0])]


def a_register(m: Module, a: Signal, b: Signal) -> None:
    m.domains.sync = ClockDomain("sync")
    m.d.sync += a.eq(Mux(a == 3, 0, a + 1))


def an_instance(m: Module, a: Signal, b: Signal) -> None:
    m.submodules.inner = Instance("inner", i_a=a, o_b=b)
    m.d.comb += a.eq(b)


Build = Callable[[Module, Signal, Signal], None]


def written(build: Build) -> str:
    """Return a circuit's RTLIL, or the text of Amaranth's refusal."""
    circuit = Module()
    build(circuit, Signal(4, name="a"), Signal(4, name="b"))
    try:
        return rtlil.convert(circuit, "top", ports=[])
    except CombinationalCycle as refusal:
        return str(refusal)


@pytest.mark.parametrize("build", [wires, itself, an_operator, a_choice, a_memory])
def test_a_cycle_is_refused_as_amaranth_refuses_it(build):
    with checked_by_cell():
        found = written(build)
    assert found.startswith("Combinational cycle detected")
    assert found == written(build)


@pytest.mark.parametrize("build", [bits_in_order, bits_of_an_operator, a_register, an_instance])
def test_a_cycle_of_cells_without_one_of_bits_is_written(build):
    with checked_by_cell():
        found = written(build)
    assert found.startswith("attribute")
    assert found == written(build)
