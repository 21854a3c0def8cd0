"""UART and serial link: bytes against a serial line written bit by bit, narrow values, and numbers of packets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from amaranth import ResetInserter
from amaranth.lib.fifo import SyncFIFO
from amaranth.sim import Simulator
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen.gateware.serial.link import END, ERROR, ESCAPE, ESCAPE_CODE, FRAME, HELLO, SerialLink, SerialLinkConfig
from hwgen.gateware.serial.uart import UartReceiver, UartTransmitter
from hwgen.gateware.stream import BeatFormat, Port

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


DIVISOR = 4


class Echo(SerialLink):
    """Link whose accelerator is a FIFO: it returns each beat as it is. The link resets it, as any accelerator."""

    def _add_accelerator(self, m) -> None:
        source, sink = self._source, self._sink
        fifo = SyncFIFO(width=len(source.payload.as_value()), depth=16)
        m.submodules.fifo = ResetInserter(self._reset)(fifo)
        m.d.comb += [
            fifo.w_data.eq(source.payload.as_value()),
            fifo.w_en.eq(source.valid),
            source.ready.eq(fifo.w_rdy),
            sink.payload.as_value().eq(fifo.r_data),
            sink.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(sink.ready),
        ]


def packet(*body: int) -> bytes:
    """Return a packet without bytes that need an escape."""
    text = bytes(body) + zlib.crc32(bytes(body)).to_bytes(4, "little")
    assert not {END, ESCAPE} & set(text)
    return bytes([END]) + text + bytes([END])


def sent_back(link: SerialLink, sent: bytes, cycles: int) -> list[bytes]:
    """Return what a link sends between bytes END in a number of cycles, in which it takes the bytes ``sent``."""
    line = [1] * 20 + [level for data in sent for level in (0, *(data >> bit & 1 for bit in range(8)), 1)]
    seen: list[int] = []

    async def bench(ctx) -> None:
        bits: list[int] = []
        start = -1
        for cycle in range(1, cycles + 1):
            ctx.set(link.rx, line[(cycle - 1) // DIVISOR] if cycle <= len(line) * DIVISOR else 1)
            await ctx.tick()
            if start < 0 and not ctx.get(link.tx):
                start, bits = cycle, []
            elif start >= 0 and (cycle - start) % DIVISOR == DIVISOR // 2:
                bits.append(ctx.get(link.tx))
                if len(bits) == 10:
                    seen.append(sum(bit << index for index, bit in enumerate(bits[1:9])))
                    start = -1

    simulator = Simulator(link)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return [text for text in bytes(seen).split(bytes([END])) if text]


def checked(text: bytes) -> bytes:
    """Return type, number and values of a packet, whose checksum must be right."""
    assert zlib.crc32(text[:-4]) == int.from_bytes(text[-4:], "little")
    return text[:-4]


def port(name: str, bits: int, *, signed: bool, size: tuple[int, int] = (2, 2)) -> Port:
    beat = BeatFormat(channels=2, height=size[0], width=size[1], lanes=1, bits=bits, signed=signed)
    return Port(name, beat, beat.raster)


@pytest.mark.parametrize(("bits", "signed"), [(4, True), (4, False)])
def test_values_of_few_bits(bits: int, signed: bool) -> None:
    """A signed value is sign-extended to its byte, as the driver reads it; and HELLO's number comes back."""
    config = SerialLinkConfig(
        top="net",
        source=port("i", bits, signed=signed),
        sink=port("o", bits, signed=signed),
        divisor=DIVISOR,
        build_hash=0x0102030405060708,
    )
    low = -(1 << bits - 1) if signed else 0
    values = [low, low + 1, low + (1 << bits) - 1, low + 2, low, low + 3, low + 1, low]
    bytes_: Sequence[int] = [value & 0xFF for value in values]
    sent = packet(HELLO, 7) + packet(FRAME, 0, *bytes_) + packet(FRAME, 1, *bytes_)
    hello, first, second = [checked(text) for text in sent_back(Echo(config), sent, 5_000)]
    assert hello == bytes([HELLO, 7, 8, 7, 6, 5, 4, 3, 2, 1])
    assert first == bytes([FRAME, 0, *bytes_])
    assert second == bytes([FRAME, 1, *bytes_])


@pytest.mark.parametrize("num_surplus", [-1, 1, 2])
def test_frames_of_a_wrong_length(num_surplus: int) -> None:
    """A packet with a value too few or with some too many is an error, although its checksum is right."""
    config = SerialLinkConfig(
        top="net",
        source=port("i", 8, signed=False),
        sink=port("o", 8, signed=False),
        divisor=DIVISOR,
        build_hash=0x0102030405060708,
    )
    num_values = 2 * 2 * 2  # as many as the port's map has
    sent = packet(HELLO, 7) + packet(FRAME, 0, *range(1, num_values + num_surplus + 1))
    hello, *cut_frames, error = sent_back(Echo(config), sent, 1_800)
    assert checked(hello)[0] == HELLO
    assert checked(error)[0] == ERROR
    assert all(len(frame) < 2 + num_values + 4 for frame in cut_frames)


@pytest.mark.parametrize("wrong", [packet(HELLO, 8, 0), packet(HELLO), packet(FRAME, 0)])
def test_hello_of_a_wrong_length(wrong: bytes) -> None:
    """A HELLO with a byte too many or without its number, and a frame of HELLO's length, are errors."""
    config = SerialLinkConfig(
        top="net", source=port("i", 8, signed=False), sink=port("o", 8, signed=False), divisor=DIVISOR, build_hash=0
    )
    hello, error = sent_back(Echo(config), packet(HELLO, 7) + wrong, 1_800)
    assert checked(hello) == bytes([HELLO, 7, *bytes(8)])
    assert checked(error)[0] == ERROR


class Escapes(SerialLink):
    """Link whose accelerator returns the value ESCAPE for each beat that it takes."""

    def _add_accelerator(self, m) -> None:
        m.submodules.fifo = fifo = SyncFIFO(width=1, depth=64)
        m.d.comb += [
            fifo.w_en.eq(self._source.valid),
            self._source.ready.eq(fifo.w_rdy),
            self._sink.payload.data.as_value().eq(ESCAPE),
            self._sink.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self._sink.ready),
        ]


@pytest.mark.parametrize("num_ends", [0, 1])
def test_hello_amid_a_frame(num_ends: int) -> None:
    """HELLO ends the frame that is on its way."""
    config = SerialLinkConfig(
        top="net",
        source=port("i", 8, signed=False, size=(4, 4)),
        sink=port("o", 8, signed=False, size=(4, 4)),
        divisor=DIVISOR,
        build_hash=0x0102030405060708,
    )
    sent = packet(HELLO, 3) + packet(FRAME, 0, *range(32)) + bytes([END]) * num_ends + packet(HELLO, 7)
    _, frame, hello, *_ = sent_back(Escapes(config), sent, 4_000)
    assert len(frame) < 2 + 2 * 32
    assert frame == (bytes([FRAME, 0]) + bytes([ESCAPE, ESCAPE_CODE]) * 32)[: len(frame)]
    assert checked(hello) == bytes([HELLO, 7, 8, 7, 6, 5, 4, 3, 2, 1])
