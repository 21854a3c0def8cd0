"""UART: bytes against a serial line written bit by bit, with bit times of either end that differ."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.gateware.serial.uart import UartReceiver, UartTransmitter

DIVISORS = st.integers(4, 20)
BYTES = st.lists(st.integers(0, 255), min_size=1, max_size=6)


def levels(data: int, *, stop: int = 1) -> list[int]:
    """Return the line's levels, bit by bit, of a byte: start bit, eight data bits from the lowest on, stop bit."""
    return [0, *(data >> bit & 1 for bit in range(8)), stop]


def received(divisor: int, line: Sequence[int]) -> list[int]:
    """Return the bytes that a receiver takes from a line with one level per cycle."""
    dut, seen = UartReceiver(divisor), []

    async def bench(ctx) -> None:
        for level in (*line, *[1] * (4 * divisor)):
            ctx.set(dut.rx, level)
            await ctx.tick()
            if ctx.get(dut.valid):
                seen.append(ctx.get(dut.data))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


@cases_in_the_long_run(30)
@given(divisor=DIVISORS, data=BYTES, data_idle=st.data())
def test_receiver(divisor, data, data_idle):
    """The other end's bits are up to 3 % longer or shorter, and idle times lie between bytes."""
    speed = data_idle.draw(st.floats(0.97, 1.03))
    line = [1] * 3
    for byte in data:
        ends = [round(divisor * speed * (bit + 1)) for bit in range(10)]
        for level, begin, end in zip(levels(byte), [0, *ends], ends, strict=False):
            line += [level] * (end - begin)
        line += [1] * data_idle.draw(st.integers(0, 2 * divisor))
    assert received(divisor, line) == data


@settings(max_examples=20)
@given(divisor=DIVISORS, data=st.integers(0, 255), other=st.integers(0, 255))
def test_a_byte_without_a_stop_bit_is_dropped(divisor, data, other):
    broken, good = ([level for level in bits for _ in range(divisor)] for bits in (levels(data, stop=0), levels(other)))
    assert received(divisor, [1, *broken, *[1] * (12 * divisor), *good]) == [other]


@cases_in_the_long_run(30)
@given(divisor=DIVISORS, data=BYTES, waits=st.lists(st.integers(0, 50), min_size=6, max_size=6))
def test_transmitter(divisor, data, waits):
    """Each byte's levels last for ``divisor`` cycles, the stop bit at least; the line is high otherwise."""
    dut, line = UartTransmitter(divisor), []

    async def source(ctx) -> None:
        for byte, wait in zip(data, waits, strict=False):
            await ctx.tick().repeat(wait + 1)
            ctx.set(dut.i.payload, byte)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def bench(ctx) -> None:
        for _ in range(sum(waits) + (len(data) + 2) * 11 * divisor):
            await ctx.tick()
            line.append(ctx.get(dut.tx))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(source)
    simulator.add_testbench(bench)
    simulator.run()
    for byte in data:
        begin = line.index(0)
        assert line[begin : begin + 10 * divisor] == [level for level in levels(byte) for _ in range(divisor)]
        del line[: begin + 10 * divisor]
    assert all(line)
