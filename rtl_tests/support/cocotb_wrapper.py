"""An accelerator's bus wrapper between cocotbext-axi's streams and registers: a bench that the simulator runs.

Its scenario (`cocotb_bench`):

- ``registers``: the contents of ``registers.json``;
- ``phases``: runs one after the other, each with

  - ``sent``: for each input the frames that are sent, in hexadecimal, of any length;
  - ``expected``: for each output the frames that must come;
  - ``errors``: what ``ERRORS`` must say behind them;
  - ``pause``: how likely each channel pauses in a cycle;
  - ``reset``: ``""``, or what ends a first attempt after ``reset_at`` cycles: ``pin`` or ``register``;
  - ``interval``: cycles between the last two frames, or 0 if anything may be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb_bench import scenario
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamSink, AxiStreamSource

PERIOD_NS = 10
#: Longest that a frame may take.
LIMIT_US = 20_000


def pauses(likely: float, seed: int) -> Iterator[bool]:
    """Whether a channel pauses in a cycle: for a cycle or two, or for long."""
    source = random.Random(seed)
    while True:
        pause = source.random() < likely
        yield from [pause] * source.choice((1, 1, 1, 2, 2, 30))


class Bench:
    """The buses of the wrapper."""

    def __init__(self, dut: Any, told: dict[str, Any]):
        self.dut, self.told = dut, told
        clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
        names = [[stream["name"] for stream in told[side]] for side in ("inputs", "outputs")]
        self.sources = [AxiStreamSource(AxiStreamBus.from_prefix(dut, name), **clocking) for name in names[0]]
        self.sinks = [AxiStreamSink(AxiStreamBus.from_prefix(dut, name), **clocking) for name in names[1]]
        self.control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
        self.offsets = {register["name"]: register["offset"] for register in told["registers"]}
        self.resets = {register["name"]: register["reset"] for register in told["registers"]}

    async def read(self, name: str) -> int:
        return await self.control.read_dword(self.offsets[name])

    async def write(self, name: str, value: int) -> None:
        await self.control.write_dword(self.offsets[name], value)

    def pause(self, likely: float) -> None:
        writes, reads = self.control.write_if, self.control.read_if
        channels = [writes.aw_channel, writes.w_channel, writes.b_channel, reads.ar_channel, reads.r_channel]
        for number, channel in enumerate([*self.sources, *self.sinks, *channels]):
            channel.set_pause_generator(pauses(likely, number) if likely else None)
            channel.pause = False

    async def reset(self) -> None:
        """Reset the wrapper by ``aresetn``, and check that its streams are idle meanwhile."""
        self.dut.aresetn.value = 0
        for end in (*self.sources, *self.sinks):
            end.clear()
        await ClockCycles(self.dut.aclk, 3)
        for sink in self.sinks:
            sink.clear()
        for source in self.sources:
            assert int(source.bus.tready.value) == 0, "a word would be taken in a reset"
        for sink in self.sinks:
            assert int(sink.bus.tvalid.value) == 0
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 2)

    def send(self, frames: list[list[str]]) -> None:
        for source, each in zip(self.sources, frames, strict=True):
            for frame in each:
                source.send_nowait(bytes.fromhex(frame))

    async def receive(self, frames: list[list[str]]) -> None:
        """Receive the expected frames of each output, and check that each one is right and that nothing follows."""
        for number, (sink, each) in enumerate(zip(self.sinks, frames, strict=True)):
            for place, frame in enumerate(each):
                got = await with_timeout(sink.recv(), LIMIT_US, "us")
                assert bytes(got.tdata).hex() == frame, f"output {number}, frame {place}"
        await ClockCycles(self.dut.aclk, 50)
        assert all(sink.empty() and sink.idle for sink in self.sinks), "more came than was expected"

    async def meddle(self) -> None:
        """Read and write registers while frames run. They must answer, and must not disturb the frames."""
        choice = random.Random(1)
        while True:
            name = choice.choice(["IDENTITY", "VERSION", "BUILD_HASH_LOW", "BUILD_HASH_HIGH"])
            assert await self.read(name) == self.resets[name]
            await self.write(name, 0)  # can't be written
            await self.write("CONTROL", choice.randrange(2))
            await ClockCycles(self.dut.aclk, choice.randrange(20))
            await self.write("CONTROL", 1)
            assert await self.read("CONTROL") == 1
            assert await self.control.read_dword(0xF00) == 0  # there is none
            await ClockCycles(self.dut.aclk, choice.randrange(200))

    async def first_attempt(self, phase: dict[str, Any]) -> None:
        """Frames that a reset ends."""
        if phase["reset"] == "pin":
            self.send(phase["sent"])
            await ClockCycles(self.dut.aclk, phase["reset_at"])
            await self.reset()
        else:
            # All that was sent is in the accelerator or behind it, so that the source stands at a frame's beginning.
            self.pause(0)
            for sink in self.sinks:
                sink.pause = True
            self.send([each[:1] for each in phase["sent"]])
            for source in self.sources:
                await source.wait()
            await ClockCycles(self.dut.aclk, phase["reset_at"])
            assert await self.read("STATUS") & 1
            assert all(sink.empty() for sink in self.sinks)
            await self.write("RESET", 1)
            await ClockCycles(self.dut.aclk, 3)
            for sink in self.sinks:
                sink.clear()
            self.pause(phase["pause"])
        for name in ("STATUS", "FRAMES", "ERRORS", "INTERRUPT_STATUS", "CYCLES_LOW", "INTERVAL"):
            assert await self.read(name) == 0, name

    async def counted(self, before: dict[str, int], phase: dict[str, Any]) -> None:
        """Check the counters and the status in the registers after a phase of frames."""
        for side, streams in (("sent", "inputs"), ("expected", "outputs")):
            for stream, frames in zip(self.told[streams], phase[side], strict=True):
                name = f"{stream['name'].upper()}_FRAMES"
                assert await self.read(name) == before[name] + len(frames), name
        assert await self.read("FRAMES") == before["FRAMES"] + len(phase["expected"][0])
        assert await self.read("ERRORS") == phase["errors"]
        assert await self.read("STATUS") == 2 * bool(phase["errors"]) + 4
        assert await self.read("CYCLES_LOW") > 0
        if phase["interval"]:
            assert await self.read("INTERVAL") == phase["interval"]

    async def interrupted(self, errors: int) -> None:
        """Check that the interrupt is high until its events are cleared or not enabled."""
        happened = await self.read("INTERRUPT_STATUS")
        assert happened == 1 + 2 * bool(errors)
        assert int(self.dut.interrupt.value) == 1
        await self.write("INTERRUPT_ENABLE", 0)
        await ClockCycles(self.dut.aclk, 3)
        assert int(self.dut.interrupt.value) == 0
        await self.write("INTERRUPT_ENABLE", 3)
        await ClockCycles(self.dut.aclk, 3)
        assert int(self.dut.interrupt.value) == 1
        await self.write("INTERRUPT_STATUS", happened)
        await ClockCycles(self.dut.aclk, 3)
        assert int(self.dut.interrupt.value) == 0
        await self.write("ERRORS", errors)
        assert await self.read("ERRORS") == await self.read("STATUS") == 0

    async def run(self, phase: dict[str, Any]) -> None:
        self.pause(phase["pause"])
        if phase["reset"]:
            await self.first_attempt(phase)
        await self.write("INTERRUPT_ENABLE", 3)
        assert int(self.dut.interrupt.value) == 0
        before = {name: await self.read(name) for name in self.offsets if name.endswith("FRAMES")}
        self.send(phase["sent"])
        meddling = None if phase["interval"] else cocotb.start_soon(self.meddle())
        await self.receive(phase["expected"])
        if meddling is not None:
            meddling.cancel()
            await ClockCycles(self.dut.aclk, 400)  # what was asked for is answered
            await self.write("CONTROL", 1)
        await self.counted(before, phase)
        await self.interrupted(phase["errors"])


@cocotb.test()
async def phases(dut: Any) -> None:
    """All of them."""
    told = scenario()
    dut.aresetn.value = 0
    bench = Bench(dut, told["registers"])
    cocotb.start_soon(Clock(dut.aclk, PERIOD_NS, unit="ns").start())
    await ClockCycles(dut.aclk, 3)
    await bench.reset()
    for phase in told["phases"]:
        await bench.run(phase)
    await RisingEdge(dut.aclk)
