"""A small component with an accelerator's ports: a FIFO, then a table added to every frame, value by value.

It stands in for an accelerator in the tests of simulation and emission, and can be broken on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from amaranth import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.stream import BeatFormat, Order


@dataclass(frozen=True, kw_only=True)
class SimpleConfig:
    """A FIFO of ``depth`` beats, and the table's seed.

    ``fault``: "stuck" (gives up after five beats), "drops" (a beat that is not taken at once), "changes" (a payload
    that waits), "extra" (one beat too many), "last" (marks a fourth beat).
    """

    name: str
    input: BeatFormat
    depth: int = 7
    seed: int = field(default=0, repr=False)
    fault: str | None = None

    @property
    def output(self) -> BeatFormat:
        return self.input

    @property
    def input_order(self) -> Order:
        return self.input.raster

    output_order = input_order

    @property
    def taps(self) -> tuple[BeatFormat, ...]:
        return self.input, self.output

    @property
    def tap_orders(self) -> tuple[Order, ...]:
        return self.input_order, self.output_order

    @property
    def table(self) -> np.ndarray:
        """``(beats, lanes)``; zero in lanes past the last channel."""
        beat = self.input
        values = np.random.default_rng(self.seed).integers(
            0, 1 << beat.bits, (beat.frame_pixels, beat.folds * beat.lanes)
        )
        values[:, beat.channels :] = 0
        return values.reshape(beat.beats, beat.lanes)

    def golden(self, frames: np.ndarray) -> np.ndarray:
        """Return the outputs for frames ``(n, C, H, W)``, wrapped to the width of a value."""
        beat = self.input
        table = self.table.reshape(beat.height, beat.width, -1)[:, :, : beat.channels].transpose(2, 0, 1)
        values = (frames.astype(np.int64) + table) & ((1 << beat.bits) - 1)
        if beat.signed:
            values -= (values >> (beat.bits - 1)) << beat.bits
        return values.astype(frames.dtype)

    def random_frames(self, count: int, seed: int = 1) -> np.ndarray:
        beat = self.input
        low, high = (-(1 << beat.bits - 1), 1 << beat.bits - 1) if beat.signed else (0, 1 << beat.bits)
        dtype = np.dtype(f"{'' if beat.signed else 'u'}int{next(w for w in (8, 16, 32, 64) if w >= beat.bits)}")
        shape = (count, beat.channels, beat.height, beat.width)
        return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


class Simple(wiring.Component):
    """See the module. ``taps`` adds what enters the FIFO and what leaves the component; both are busy while the FIFO is
    read."""

    def __init__(self, config: SimpleConfig, *, taps: bool = False):
        self.config = config
        self.taps = taps
        members = {"i": In(config.input.signature), "o": Out(config.output.signature)}
        if taps:
            for number, beat in enumerate(config.taps):
                members[f"tap_{number}"] = Out(
                    wiring.Signature({"payload": Out(beat.layout), "valid": Out(1), "busy": Out(1)})
                )
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        beat, depth = config.input, config.depth
        width = beat.data_bits + 1
        m.submodules.storage = storage = memory.Memory(shape=width, depth=depth, init=[])
        write, read = storage.write_port(), storage.read_port()
        style = {"ram_style": "block"}
        words = [sum(int(v) << (i * beat.bits) for i, v in enumerate(row)) for row in config.table]
        m.submodules.table = table = memory.Memory(shape=beat.data_bits, depth=beat.beats, init=words, attrs=style)
        row = table.read_port()
        level, number, left = Signal(range(depth + 1)), Signal(range(beat.beats)), Signal(16)
        fetch, push, pop = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(level != depth),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            fetch.eq((level != 0) & (~self.o.valid | self.o.ready)),
            write.data.eq(self.i.payload.as_value()),
            write.en.eq(push),
            read.en.eq(fetch),
            row.en.eq(fetch),
            row.addr.eq(number),
        ]
        for port, step in ((write, push), (read, fetch)):
            with m.If(step):
                m.d.sync += port.addr.eq(Mux(port.addr == depth - 1, 0, port.addr + 1))
        with m.If(fetch):
            m.d.sync += number.eq(Mux(number == beat.beats - 1, 0, number + 1))
        m.d.sync += level.eq(level + push - fetch)
        held, changed = Signal(), Signal()
        with m.If(fetch):
            m.d.sync += held.eq(1)
        with m.Elif(self.o.ready):
            m.d.sync += held.eq(0)
        m.d.sync += left.eq(left + (pop & (left != 0xFFFF)))
        m.d.comb += self.o.valid.eq(held)
        for lane in range(beat.lanes):
            value = read.data.word_select(lane, beat.bits) + row.data.word_select(lane, beat.bits)
            m.d.comb += self.o.payload.data.as_value().word_select(lane, beat.bits).eq(value)
        m.d.comb += self.o.payload.last.eq(read.data[-1])
        if config.fault == "stuck":
            m.d.comb += self.o.valid.eq(held & (left < 5))
        elif config.fault == "drops":
            with m.If(self.o.valid & ~self.o.ready):
                m.d.sync += held.eq(0)
        elif config.fault == "changes":
            with m.If(self.o.valid & ~self.o.ready):
                m.d.sync += changed.eq(1)
            m.d.comb += self.o.payload.data.as_value()[0].eq(changed)
        elif config.fault == "extra":
            m.d.comb += self.o.valid.eq(held | (left == beat.beats))
        elif config.fault == "last":
            m.d.comb += self.o.payload.last.eq(read.data[-1] ^ (left == 3))
        if self.taps:
            for tap, port in ((self.tap_0, self.i), (self.tap_1, self.o)):
                m.d.comb += [tap.payload.eq(port.payload), tap.valid.eq(port.valid & port.ready), tap.busy.eq(fetch)]
        return m
