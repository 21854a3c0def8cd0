"""Random accelerators in their shell: the frames of the bus, under any stalls; and the shell alone, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from accelerators import cases, frames_for
from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from counted import cases_in_the_long_run
from driver_runs import ports
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from lite import Master, signals_of
from testbench import ALWAYS, PATIENCE, Circuit, run, stalls

from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.bus import shell as shell_module
from hwgen.gateware.bus.shell import BusStreamConfig, Shell, ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Port
from hwgen.network import golden
from hwgen.schedule.solve import Schedule
from hwgen.simulate import stimuli
from hwgen.simulate.testbench import patience


def word_layout(end: BusStreamConfig) -> data.StructLayout:
    return data.StructLayout({"data": 8 * end.width, "keep": end.width, "last": 1})


class Wires(wiring.Component):
    """In place of an accelerator: what comes in goes out."""

    def __init__(self, port: Port):
        super().__init__({"i": In(port.beat.signature), "o": Out(port.beat.signature)})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


class OnTheBus(wiring.Component):
    """An accelerator, or wires for the beats of a port, in its shell, between streams whose payload is a word."""

    def __init__(self, config: AcceleratorConfig | Port, width: int):
        self.config = config
        if isinstance(config, Port):
            given = [[replace(config, name="i")], [replace(config, name="o")]]
        else:
            given = [config.input_ports, config.output_ports]
        ends = [ends_of(each, name, [width]) for each, name in zip(given, "sm", strict=True)]
        (self.taken,), (self.given,) = ends
        self.shell: Any = Shell(ShellConfig(inputs=ends[0], outputs=ends[1]))
        super().__init__(
            {
                "i": In(stream.Signature(word_layout(self.taken))),
                "o": Out(stream.Signature(word_layout(self.given))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.shell = shell = self.shell
        accelerator: Any = Wires(self.config) if isinstance(self.config, Port) else Accelerator(self.config)
        m.submodules.accelerator = accelerator
        wiring.connect(m, shell=shell.i, accelerator=accelerator.i)
        wiring.connect(m, shell=shell.o, accelerator=accelerator.o)
        into, out = self.i, self.o
        m.d.comb += [
            shell.s.tdata.eq(into.payload.data),
            shell.s.tkeep.eq(into.payload.keep),
            shell.s.tlast.eq(into.payload.last),
            shell.s.tvalid.eq(into.valid),
            into.ready.eq(shell.s.tready),
            out.payload.data.eq(shell.m.tdata),
            out.payload.keep.eq(shell.m.tkeep),
            out.payload.last.eq(shell.m.tlast),
            out.valid.eq(shell.m.tvalid),
            shell.m.tready.eq(out.ready),
        ]
        return m


def to_words(end: BusStreamConfig, frames: list[bytes]) -> list[int]:
    """Payloads of frames of any length; bytes that are not kept are ones."""
    words, width = [], end.width
    for frame in frames:
        for begin in range(0, len(frame), width):
            part = frame[begin : begin + width]
            value = int.from_bytes(part.ljust(width, b"\xff"), "little")
            last = begin + width >= len(frame)
            words.append(value | (1 << len(part)) - 1 << 8 * width | last << 9 * width)
    return words


def from_words(end: BusStreamConfig, words: list[int]) -> list[bytes]:
    """Frames; each word's ``keep`` must be that of a whole frame."""
    width, frames, frame = end.width, [], b""
    for word in words:
        content = (word & (1 << 8 * width) - 1).to_bytes(width, "little")
        keep, last = word >> 8 * width & (1 << width) - 1, word >> 9 * width
        assert keep == (end.final_keep if last else (1 << width) - 1)
        frame += content[: keep.bit_length()]
        if last:
            frames.append(frame)
            frame = b""
    assert not frame
    return frames


def in_memory(end: BusStreamConfig, frames: np.ndarray) -> list[bytes]:
    """Maps ``(n, C, H, W)`` as the bus has them; pixels past the end of a row are zeros."""
    beat = end.port.beat
    wide = np.zeros((*frames.shape[:3], beat.row_steps * beat.pixels), stimuli.dtype(beat).newbyteorder("<"))
    wide[..., : beat.width] = frames
    count, rows = len(frames), beat.height
    steps = wide.reshape(count, beat.channels, rows, beat.row_steps, beat.pixels).transpose(0, 2, 3, 1, 4)
    return [frame.tobytes() for frame in steps]


def from_memory(end: BusStreamConfig, frames: list[bytes]) -> np.ndarray:
    """The inverse."""
    beat = end.port.beat
    values = np.frombuffer(b"".join(frames), stimuli.dtype(beat).newbyteorder("<"))
    steps = values.reshape(len(frames), beat.height, beat.row_steps, beat.channels, beat.pixels)
    wide = steps.transpose(0, 3, 1, 2, 4).reshape(len(frames), beat.channels, beat.height, -1)
    return wide[..., : beat.width]


def wrong(frame: bytes, change: int) -> bytes:
    """The frame, or one that is shorter or longer by a byte or by half."""
    by = 1 if change % 2 else max(1, len(frame) // 2)
    return frame if change > 3 else frame[: max(1, len(frame) - by)] if change < 2 else frame + frame[:by]


def extended(end: BusStreamConfig, frame: bytes) -> bytes:
    """A frame whose values have the bits of a beat's, above which is the sign, or zeros."""
    beat = end.port.beat
    values = np.frombuffer(frame, f"<u{end.value_bytes}").astype(np.int64) & ((1 << beat.bits) - 1)
    signs = values >> (beat.bits - 1) if beat.signed else 0
    return (values - (signs << beat.bits)).astype(f"<i{end.value_bytes}").tobytes()


#: Frames of 12 bytes.
_BEAT = BeatFormat(channels=3, height=2, width=2, lanes=3, bits=8, signed=False)
PORT = Port("i", _BEAT, _BEAT.raster)


@cases_in_the_long_run(10)
@example(port=PORT, width=0, seed=0, pattern=(ALWAYS, ALWAYS), changes=[1, 4, 3, 4, 1])
@given(
    port=ports(),
    width=st.sampled_from([0, 8, 16]),
    seed=st.integers(0, 2**32),
    pattern=stalls(),
    changes=st.lists(st.integers(0, 4), min_size=5, max_size=5),
)
def test_bytes(port, width, seed, pattern, changes):
    """Bytes that are kept are those that leave, and zeros for those that are not."""
    top = OnTheBus(port, width)
    end = top.taken
    rng, size = np.random.default_rng(seed), end.frame_bytes
    sent = [wrong(rng.bytes(size), change) for change in changes]
    expected = [extended(end, frame[:size].ljust(size, b"\0")) for frame in sent]
    words = len(sent) * end.words.count
    trace = run(top, to_words(end, sent), words, offer=pattern[0], accept=pattern[1])
    assert from_words(top.given, trace.words) == expected


class Bench:
    """Wires in their shell, and its registers by their names."""

    def __init__(self, port: Port) -> None:
        with signals_of(shell_module) as self.signals:
            self.top: Any = OnTheBus(port, 0)
            self.circuit = Circuit(self.top)
        self.master = Master(self.top.shell.control)
        self.words = self.words_of(self.top.taken.frame_bytes)
        self.offsets = {register.name: register.offset for register in self.top.shell.config.registers}

    def words_of(self, size: int) -> list[int]:
        """A frame of so many bytes."""
        return to_words(self.top.taken, [bytes(range(1, size + 1))])

    async def read(self, ctx: Any, name: str) -> int:
        return await self.master.read(ctx, self.offsets[name])

    async def write(self, ctx: Any, name: str, value: int) -> None:
        await self.master.write(ctx, self.offsets[name], value)

    async def send(self, ctx: Any, words: list[int]) -> None:
        source = self.top.i
        for word in words:
            ctx.set(source.valid, 1)
            ctx.set(source.payload.as_value(), word)
            await ctx.tick().until(source.ready)
        ctx.set(source.valid, 0)

    def padded(self, frame: bytes) -> list[int]:
        """Return a frame's words, with padding in the last one, whose bytes all count but in a packet's last word."""
        end = self.top.taken
        words = to_words(end, [frame])
        ones = (1 << end.width) - 1 << 8 * end.width
        value = words[-1] & (1 << 8 * len(frame[(end.words.count - 1) * end.width :])) - 1
        return [word | ones for word in words[:-1]] + [value | (words[-1] >> 8 * end.width) << 8 * end.width]

    async def taken(self, ctx: Any, cycles: int = 6) -> list[int]:
        """Return the words that leave within some cycles."""
        sink, words = self.top.o, []
        ctx.set(sink.ready, 1)
        for _ in range(cycles):
            _, _, valid, word = await ctx.tick().sample(sink.valid, sink.payload.as_value())
            words += [word] if valid else []
        ctx.set(sink.ready, 0)
        return words

    async def receive(self, ctx: Any, count: int) -> None:
        sink = self.top.o
        ctx.set(sink.ready, 1)
        for _ in range(count):
            await ctx.tick().until(sink.valid)
        ctx.set(sink.ready, 0)
        await ctx.tick()


@pytest.fixture
def bench() -> Bench:
    return Bench(PORT)


def test_packets_of_frames(bench):
    """A packet of three frames has one last word, on either side; counters count frames and packets."""
    end, three = bench.top.taken, 3
    rng = np.random.default_rng(5)
    frames = [rng.bytes(end.frame_bytes) for _ in range(2 * three)]
    seen: list[int] = []

    def packet(content: list[bytes]) -> list[int]:
        words = [word for frame in content for word in bench.padded(frame)]
        return [word & ~(1 << 9 * end.width) for word in words[:-1]] + words[-1:]

    async def drive(ctx):
        await bench.write(ctx, "PACKET_FRAMES", three)
        assert await bench.read(ctx, "PACKET_FRAMES") == three
        for begin in (0, three):
            for word in packet(frames[begin : begin + three]):
                await bench.send(ctx, [word])
                seen.extend(await bench.taken(ctx))
        # A packet that ends within its second frame: the rest is zeros.
        early = packet(frames[:three])[: end.words.count + 1]
        for word in [*early[:-1], early[-1] | 1 << 9 * end.width]:
            await bench.send(ctx, [word])
            seen.extend(await bench.taken(ctx))
        seen.extend(await bench.taken(ctx, 40))
        counts = {name: await bench.read(ctx, f"{name}") for name in ("FRAMES", "S_FRAMES", "S_PACKETS", "M_FRAMES")}
        assert counts == {"FRAMES": 9, "S_FRAMES": 9, "S_PACKETS": 3, "M_FRAMES": 9}
        assert await bench.read(ctx, "M_PACKETS") == 3
        assert await bench.read(ctx, "ERRORS") == 1
        assert await bench.read(ctx, "STATUS") & 1 == 0
        # A reset keeps the size of packets.
        await bench.write(ctx, "RESET", 1)
        assert await bench.read(ctx, "PACKET_FRAMES") == three
        assert await bench.read(ctx, "S_PACKETS") == 0
        for word in packet(frames[:three]):
            await bench.send(ctx, [word])
            seen.extend(await bench.taken(ctx))
        seen.extend(await bench.taken(ctx, 40))
        await bench.write(ctx, "PACKET_FRAMES", 0)
        await bench.send(ctx, bench.words)
        seen.extend(await bench.taken(ctx, 40))

    bench.circuit.simulate(drive)
    width, count = end.width, end.words.count
    cut = frames[0] + frames[1][:width] + bytes(2 * end.frame_bytes - width)
    contents = b"".join(frames) + cut + b"".join(frames[:three])
    whole = [contents[begin : begin + end.frame_bytes] for begin in range(0, len(contents), end.frame_bytes)]
    values = [word & (1 << 8 * width) - 1 for frame in whole for word in bench.padded(frame)]
    assert [word & (1 << 8 * width) - 1 for word in seen[: len(values)]] == values
    lasts = [place for place, word in enumerate(seen) if word >> 9 * width & 1]
    sizes = np.diff([-1, *lasts]).tolist()
    assert sizes == [three * count] * 4 + [count]
    keeps = [word >> 8 * width & (1 << width) - 1 for word in seen]
    assert all(keep == (end.final_keep if place in lasts else (1 << width) - 1) for place, keep in enumerate(keeps))


def test_a_packet_that_waits_for_a_reset(bench):
    """The first word of a packet is offered before and during a reset by software. The packet is whole and in order."""
    end, three = bench.top.taken, 3
    source = bench.top.i
    content = np.random.default_rng(7).bytes(three * end.frame_bytes)
    words = to_words(end, [content])  # the frames have whole words

    async def drive(ctx):
        await bench.write(ctx, "PACKET_FRAMES", three)
        ctx.set(source.payload.as_value(), words[0])
        ctx.set(source.valid, 1)
        for _ in range(20):
            await ctx.tick()
        assert not ctx.get(source.ready)  # full of words that the reset drops
        await bench.master.ask(ctx, bench.offsets["RESET"], 1)
        seen = []
        for word in words:
            await bench.send(ctx, [word])
            seen += await bench.taken(ctx)
        await bench.master.answered(ctx)
        assert seen == words
        counts = [await bench.read(ctx, name) for name in ("ERRORS", "S_FRAMES", "S_PACKETS", "M_FRAMES", "M_PACKETS")]
        assert counts == [0, three, 1, three, 1]

    bench.circuit.simulate(drive)


def test_the_size_of_packets_waits_for_frames(bench):
    """A size that is written while a frame is on its way holds for those behind."""

    async def drive(ctx):
        await bench.send(ctx, bench.words[:1])
        await bench.write(ctx, "PACKET_FRAMES", 2)
        await bench.send(ctx, bench.words[1:])
        words = await bench.taken(ctx, 20)
        assert [word >> 36 for word in words] == [0, 0, 1]
        for _ in range(2):
            await bench.send(ctx, [word & ~(1 << 36) for word in bench.words])
            words += await bench.taken(ctx, 20)
        assert [word >> 36 for word in words[3:]] == [0, 0, 0, 0, 0, 1]

    bench.circuit.simulate(drive)


def test_busy(bench):
    """From a frame's first word until its last one has left, also when all of it has come."""

    async def drive(ctx):
        found = [await bench.read(ctx, "STATUS")]
        await bench.send(ctx, bench.words[:2])
        found.append(await bench.read(ctx, "STATUS"))
        await bench.receive(ctx, 1)
        await bench.send(ctx, bench.words[2:])
        found.append(await bench.read(ctx, "STATUS"))
        await bench.receive(ctx, 1)
        found.append(await bench.read(ctx, "STATUS"))
        await bench.receive(ctx, 1)
        found.append(await bench.read(ctx, "STATUS"))
        assert found == [0, 1, 1, 1, 0]
        cycles = await bench.read(ctx, "CYCLES_LOW")
        assert cycles > 10
        assert await bench.read(ctx, "CYCLES_LOW") == cycles  # only those with frames on their way

    bench.circuit.simulate(drive)


def test_busy_with_several_frames():
    """Also while two frames of a word each wait, and one."""
    beat = BeatFormat(channels=4, height=1, width=1, lanes=4, bits=8, signed=False)
    bench = Bench(Port("i", beat, beat.raster))

    async def drive(ctx):
        await bench.send(ctx, bench.words * 2)
        assert await bench.read(ctx, "S_FRAMES") == 2
        for busy in (1, 1, 0):
            assert await bench.read(ctx, "STATUS") == busy
            await bench.receive(ctx, busy)

    bench.circuit.simulate(drive)


def test_cycles_beyond_32_bits(bench):
    """CYCLES_HIGH is what it was as CYCLES_LOW was read, and CYCLES_LOW carries into it."""
    (cycles,) = (each for each in bench.signals if len(each) == 64)

    async def drive(ctx):
        ctx.set(cycles, 0x5_FFFF_FFFF)
        assert await bench.read(ctx, "CYCLES_LOW") == 0xFFFF_FFFF
        await bench.send(ctx, bench.words)
        await bench.receive(ctx, len(bench.words))
        assert await bench.read(ctx, "CYCLES_HIGH") == 5
        assert 0 < await bench.read(ctx, "CYCLES_LOW") < 50
        assert await bench.read(ctx, "CYCLES_HIGH") == 6

    bench.circuit.simulate(drive)


def test_counters(bench):
    """Cycles between frames, and those in which something is offered and not taken, as they are seen; idle ones count
    nowhere."""
    source, sink = bench.top.i, bench.top.o
    counted = [f"{name}_{what}" for what in ("STALLED", "FRAMES") for name in "SM"]
    seen = dict.fromkeys(counted, 0)
    ends: list[int] = []

    async def drive(ctx):
        assert await bench.read(ctx, "INTERVAL") == 0
        waiting = bench.words * 3
        for cycle in range(80):
            ctx.set(source.valid, bool(waiting))
            ctx.set(source.payload.as_value(), waiting[0] if waiting else 0)
            ctx.set(sink.ready, cycle % 7 == 0 or cycle > 60)
            _, _, ready, valid, word = await ctx.tick().sample(source.ready, sink.valid, sink.payload)
            seen["S_STALLED"] += bool(waiting) and not ready
            if waiting and ready:
                seen["S_FRAMES"] += waiting.pop(0) >> 36
            taken = valid and (cycle % 7 == 0 or cycle > 60)
            seen["M_STALLED"] += bool(valid) and not taken
            if taken and word.last:
                ends.append(cycle)
        seen["M_FRAMES"] = len(ends)
        assert len(ends) == 3
        assert {name: await bench.read(ctx, name) for name in counted} == seen
        assert await bench.read(ctx, "INTERVAL") == ends[2] - ends[1]
        starved = await bench.read(ctx, "S_STARVED")
        for _ in range(20):
            await ctx.tick()
        assert await bench.read(ctx, "S_STARVED") == starved
        await bench.send(ctx, bench.words[:1])
        for _ in range(20):
            await ctx.tick()
        # STATUS.BUSY comes in the second cycle behind the word; the read begins behind the last one.
        assert await bench.read(ctx, "S_STARVED") - starved == 19
        await bench.write(ctx, "RESET", 1)
        for name in (*counted, "INTERVAL", "S_STARVED", "STATUS"):
            assert await bench.read(ctx, name) == 0, name

    bench.circuit.simulate(drive)


def test_the_first_frame_has_no_interval(bench):
    """Whenever it ends, also behind a reset."""

    async def drive(ctx):
        for _ in range(2):
            for _ in range(9):
                await ctx.tick()
            await bench.send(ctx, bench.words)
            await bench.receive(ctx, len(bench.words))
            assert await bench.read(ctx, "FRAMES") == 1
            assert await bench.read(ctx, "INTERVAL") == 0
            await bench.write(ctx, "RESET", 1)

    bench.circuit.simulate(drive)


def test_enable(bench):
    """Nothing is taken while it is 0, nor in a reset."""

    async def drive(ctx):
        assert not ctx.get(bench.top.i.ready)  # in the cycle after power-on
        await ctx.tick()
        assert ctx.get(bench.top.i.ready)
        await bench.write(ctx, "CONTROL", 0)
        assert not ctx.get(bench.top.i.ready)
        ctx.set(bench.top.i.valid, 1)
        await bench.write(ctx, "CONTROL", 1)
        assert ctx.get(bench.top.i.ready)

    bench.circuit.simulate(drive)


SHORT, LONG = 1, 2
#: Frames of 9 bytes: the last word has one.
_ODD = BeatFormat(channels=3, height=1, width=3, lanes=3, bits=8, signed=False)


def test_lengths_by_bytes():
    """ERRORS of frames that a byte, or a word, makes too short or too long; a byte that lacks in the middle, too."""
    bench, keep = Bench(Port("i", _ODD, _ODD.raster)), 1 << 32
    whole = bench.words_of(9)
    cases = {length: bench.words_of(length) for length in (9, 8, 10, 12, 13, 4)}
    expected = {9: 0, 8: SHORT, 10: LONG, 12: LONG, 13: LONG, 4: SHORT, "gap": SHORT, "again": 0}

    async def drive(ctx):
        found: dict[Any, int] = {}
        for length, words in [*cases.items(), ("gap", [whole[0] & ~keep, *whole[1:]]), ("again", whole)]:
            ctx.set(bench.top.o.ready, 1)
            await bench.send(ctx, words)
            await ctx.tick()
            await ctx.tick()
            found[length] = await bench.read(ctx, "ERRORS")
            assert await bench.read(ctx, "STATUS") >> 1 & 1 == bool(found[length])
            await bench.write(ctx, "ERRORS", 3)
        assert found == expected
        assert await bench.read(ctx, "FRAMES") == len(expected)

    bench.circuit.simulate(drive)


def test_several_outputs():
    """A frame has left when it has on both, however far one of them is ahead; each is told once."""
    config = ShellConfig(
        inputs=ends_of([replace(PORT, name="i")], "s_axis"),
        outputs=ends_of([replace(PORT, name=f"o_{number}") for number in range(2)], "m_axis"),
    )
    shell: Any = Shell(config)
    master, circuit = Master(shell.control), Circuit(shell)
    offsets = {register.name: register.offset for register in config.registers}

    async def drive(ctx):
        async def read(name: str) -> int:
            return await master.read(ctx, offsets[name])

        async def leave(number: int, frames: int) -> None:
            core = getattr(shell, f"o_{number}")
            ctx.set(getattr(shell, f"m_axis_{number}").tready, 1)
            for _ in range(frames * PORT.beats):
                ctx.set(core.valid, 1)
                await ctx.tick().until(core.ready)
            ctx.set(core.valid, 0)
            for _ in range(12):
                await ctx.tick()

        await leave(0, 3)
        assert [await read(name) for name in ("FRAMES", "M_AXIS_0_FRAMES", "INTERRUPT_STATUS")] == [0, 3, 0]
        await leave(1, 2)
        assert [await read(name) for name in ("FRAMES", "M_AXIS_1_FRAMES", "INTERRUPT_STATUS")] == [2, 2, 1]
        await leave(1, 1)
        assert await read("FRAMES") == 3

    circuit.simulate(drive)


def test_weight_words():
    """Each word that software writes goes to the loader once, and STATUS says that it waits."""
    config = ShellConfig(inputs=ends_of([PORT], "s"), outputs=ends_of([replace(PORT, name="o")], "m"), weights=True)
    shell: Any = Shell(config)
    master, circuit = Master(shell.control), Circuit(shell)
    offsets = {register.name: register.offset for register in config.registers}
    good, waits, wrong = 1 << 3, 1 << 4, 1 << 31

    async def drive(ctx):
        async def state() -> tuple[int, int]:
            status, errors = [await master.read(ctx, offsets[name]) for name in ("STATUS", "ERRORS")]
            await master.write(ctx, offsets["ERRORS"], wrong)
            return status & (good | waits), errors

        async def taken(cycles: int = 5) -> list[tuple[int, int]]:
            words, port = [], shell.weights
            ctx.set(port.ready, 1)
            for _ in range(cycles):
                _, _, valid, word = await ctx.tick().sample(port.valid, port.payload)
                words += [(word.data, word.last)] if valid else []
            ctx.set(port.ready, 0)
            return words

        assert await state() == (0, 0)
        for register, value, last in (("WEIGHTS", 0x1234_5678, 0), ("WEIGHTS_LAST", 0x9ABC_DEF0, 1)):
            await master.write(ctx, offsets[register], value)
            assert await state() == (waits, 0)
            assert await taken() == [(value, last)]
            assert await state() == (0, 0)
        for value in (1, 2):
            await master.write(ctx, offsets["WEIGHTS"], value)
        assert await state() == (waits, wrong)
        assert await taken() == [(2, 0)]
        ctx.set(shell.weights_state.error, 1)
        await ctx.tick()
        ctx.set(shell.weights_state.error, 0)
        ctx.set(shell.weights_state.good, 1)
        assert await state() == (good, wrong)
        assert await state() == (good, 0)

    circuit.simulate(drive)


CASES = cases(max_layers=2, max_side=5)


@cases_in_the_long_run(8)
@given(
    case=CASES,
    width=st.sampled_from([0, 0, 8, 16]),
    seed=st.integers(0, 2**32),
    pattern=st.one_of(st.just((ALWAYS, ALWAYS)), stalls()),
    changes=st.lists(st.sampled_from([1, 0, 3, 2, 4]), min_size=4, max_size=4),
)
def test_frames(case, width, seed, pattern, changes):
    """Whatever frames come, of whatever length, as many leave, and each is right."""
    top = OnTheBus(case.config, width)
    taken = top.taken
    frames = frames_for(case.network, 4, seed)
    sent = [wrong(frame, change) for frame, change in zip(in_memory(taken, frames), changes, strict=True)]
    size = taken.frame_bytes
    whole = [frame[:size].ljust(size, b"\0") for frame in sent]
    expected = golden.run(case.network, from_memory(taken, whole).astype(frames.dtype))
    trace = run(
        top, to_words(taken, sent), 4 * top.given.words.count,
        offer=pattern[0], accept=pattern[1], patience=max(PATIENCE, patience(case.config)),
    )  # fmt: skip
    found = from_words(top.given, trace.words)
    np.testing.assert_array_equal(from_memory(top.given, found), expected)


@pytest.mark.long
@settings(max_examples=6)
@given(case=CASES)
def test_cycles(case):
    """Where words are no more than beats, frames follow each other as they do without a shell."""
    top = OnTheBus(case.config, 0)
    assume(top.taken.is_free and top.given.is_free)
    count = 8
    frames = frames_for(case.network, count, 0)
    schedule = Schedule(case.config, count)
    schedule.solve()
    trace = run(top, to_words(top.taken, in_memory(top.taken, frames)), count * top.given.words.count)
    ends = trace.times[top.given.words.count - 1 :: top.given.words.count]
    assert np.diff(ends)[-2:].tolist() == np.diff(schedule.frame_ends)[-2:].tolist()
