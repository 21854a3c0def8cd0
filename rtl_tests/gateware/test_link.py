"""Serial link around an accelerator that echoes, in Amaranth's simulator: narrow values, and numbers of packets."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from amaranth.lib.fifo import SyncFIFO
from amaranth.sim import Simulator

from hwgen.gateware.serial.link import END, ESCAPE, FRAME, HELLO, SerialLink, SerialLinkConfig
from hwgen.gateware.stream import BeatFormat, Port

DIVISOR = 4


class Echo(SerialLink):
    """Link whose accelerator is a FIFO: it returns each beat as it is."""

    def _accelerator(self, m) -> None:
        source, sink = self._source, self._sink
        m.submodules.fifo = fifo = SyncFIFO(width=len(source.payload.as_value()), depth=16)
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


def replies(link: SerialLink, sent: bytes, count: int) -> list[bytes]:
    """Return the next ``count`` packets of a link, with type, number and values, after it takes the bytes ``sent``."""
    line = [1] * 20 + [level for data in sent for level in (0, *(data >> bit & 1 for bit in range(8)), 1)]
    seen: list[int] = []

    async def bench(ctx) -> None:
        bits: list[int] = []
        cycle, start = 0, -1
        while count > sum(code == END for code in seen) // 2:
            ctx.set(link.rx, line[cycle // DIVISOR] if cycle < len(line) * DIVISOR else 1)
            await ctx.tick()
            cycle += 1
            assert cycle < 5_000
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
    packets = [text for text in bytes(seen).split(bytes([END])) if text]
    assert all(zlib.crc32(text[:-4]) == int.from_bytes(text[-4:], "little") for text in packets)
    return [text[:-4] for text in packets]


def port(name: str, bits: int, *, signed: bool) -> Port:
    beat = BeatFormat(channels=2, height=2, width=2, lanes=1, bits=bits, signed=signed)
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
    hello, first, second = replies(Echo(config), sent, 3)
    assert hello == bytes([HELLO, 7, 8, 7, 6, 5, 4, 3, 2, 1])
    assert first == bytes([FRAME, 0, *bytes_])
    assert second == bytes([FRAME, 1, *bytes_])
