"""Receiver and transmitter of a serial line (UART): eight data bits, no parity, one stop bit."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class UartReceiver(wiring.Component):
    """UART receiver: component that receives bytes from an asynchronous serial line (8 data bits, no parity).

    Parameters
    ----------
    divisor : int
        Number of clock cycles per bit, at least 4.

    Members
    -------
    rx : In(1)
        Serial line, asynchronous to the clock.
    data : Out(8)
        Received byte.
    valid : Out(1)
        Whether a byte is received in this cycle. A byte without a stop bit is dropped.
    """

    rx: Any
    data: Any
    valid: Any

    def __init__(self, divisor: int):
        self._divisor = divisor
        super().__init__({"rx": In(1), "data": Out(8), "valid": Out(1)})

    def elaborate(self, platform):
        m = Module()
        line = [Signal(init=1, name=f"line_{stage}") for stage in range(3)]
        for register, value in zip(line, (self.rx, *line[:-1]), strict=True):
            m.d.sync += register.eq(value)
        timer = Signal(range(self._divisor + self._divisor // 2), name="timer")
        num_bits = Signal(range(10), name="num_bits")
        m.d.sync += self.valid.eq(0)
        with m.If(num_bits == 0), m.If(~line[1] & line[2]):
            m.d.sync += [num_bits.eq(9), timer.eq(self._divisor + self._divisor // 2 - 1)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [num_bits.eq(num_bits - 1), timer.eq(self._divisor - 1)]
            with m.If(num_bits == 1):
                m.d.sync += self.valid.eq(line[1])
            with m.Else():
                m.d.sync += self.data.eq(Cat(self.data[1:], line[1]))
        return m


class UartTransmitter(wiring.Component):
    """UART transmitter: component that sends the bytes of a stream to a serial line (8 data bits, no parity).

    Parameters
    ----------
    divisor : int
        Number of clock cycles per bit.

    Members
    -------
    i : In(stream)
        Bytes.
    tx : Out(1)
        Serial line.
    """

    i: Any
    tx: Any

    def __init__(self, divisor: int):
        self._divisor = divisor
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1)})

    def elaborate(self, platform):
        m = Module()
        timer, num_bits = Signal(range(self._divisor), name="timer"), Signal(range(11), name="num_bits")
        bits = Signal(9, name="bits", init=(1 << 9) - 1)
        m.d.comb += [self.i.ready.eq(num_bits == 0), self.tx.eq(bits[0])]
        with m.If(num_bits == 0), m.If(self.i.valid):
            m.d.sync += [bits.eq(Cat(0, self.i.payload)), num_bits.eq(10), timer.eq(self._divisor - 1)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [bits.eq(Cat(bits[1:], 1)), num_bits.eq(num_bits - 1), timer.eq(self._divisor - 1)]
        return m
