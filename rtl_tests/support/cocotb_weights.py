"""Loads of weights through the registers of a bus wrapper, right ones and wrong ones: a bench that the simulator runs.

Its scenario (`cocotb_bench`): ``registers``, the contents of ``registers.json``; ``loads``, the words of a load for
each of two models; ``frame``, one that is sent, and ``outputs``, what the models make of it, in hexadecimal;
``begins_empty``, perhaps: whether the hardware has no weights before the first load.
"""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotb_bench import scenario
from cocotb_wrapper import PERIOD_NS, Bench

GOOD, WAIT, WRONG = 1 << 3, 1 << 4, 1 << 31


class Loads(Bench):
    """The buses, and loads in the registers."""

    def __init__(self, dut: Any, told: dict[str, Any]):
        super().__init__(dut, told["registers"])
        self.frame, self.outputs = told["frame"], told["outputs"]

    async def load(self, words: list[int], *, last: bool = True) -> None:
        """Load weights by register writes, in the driver's order."""
        await self.write("WEIGHTS", words[0])
        while await self.read("STATUS") & WAIT:
            pass
        for word in words[1:-1]:
            await self.write("WEIGHTS", word)
        await self.write("WEIGHTS_LAST" if last else "WEIGHTS", words[-1])
        await ClockCycles(self.dut.aclk, 40)

    async def flags(self) -> tuple[bool, bool]:
        """Return whether the weights are good, and whether a load was wrong. Clear the error."""
        state, errors = await self.read("STATUS"), await self.read("ERRORS")
        assert errors in (0, WRONG)
        await self.write("ERRORS", WRONG)
        assert await self.read("ERRORS") == 0
        return bool(state & GOOD), bool(errors)

    async def computes(self, model: int, *, sent: bool = False) -> None:
        """Check that a frame has the output of a model. With ``sent``, the frame waits at the input already."""
        if not sent:
            self.send([[self.frame]])
        await self.receive([[self.outputs[model]]])

    async def waits(self) -> None:
        """Send a frame, and check that no output follows."""
        self.send([[self.frame]])
        await ClockCycles(self.dut.aclk, 600)
        assert self.sinks[0].empty()
        assert self.sinks[0].idle


@cocotb.test()
async def loads(dut: Any) -> None:
    """Damaged, of another design, with a lost word, cut off by a reset, given up; with pauses on all channels."""
    told = scenario()
    bench, (first, second) = Loads(dut, told), told["loads"]
    cocotb.start_soon(Clock(dut.aclk, PERIOD_NS, unit="ns").start())
    await bench.reset()
    bench.pause(0.2)
    if told.get("begins_empty"):
        assert await bench.flags() == (False, False)
        await bench.write("RESET", 1)  # which leaves the hardware without weights
        await ClockCycles(dut.aclk, 3)
        assert await bench.flags() == (False, False)
        await bench.waits()
        await bench.load(first)
        await bench.receive([[bench.outputs[0]]])
    assert await bench.flags() == (True, False)
    await bench.computes(0)

    damaged = [*second[:-2], second[-2] ^ 1 << 7, second[-1]]
    await bench.load(damaged)
    assert await bench.flags() == (False, True)
    await bench.waits()
    await bench.load(second)
    assert await bench.flags() == (True, False)
    await bench.computes(1, sent=True)

    await bench.load([first[0] ^ 1, *first[1:]])
    assert await bench.flags() == (True, True)
    await bench.computes(1)

    bench.pause(0)
    for sink in bench.sinks:
        sink.pause = True  # so that frames stay on their way
    bench.send([[bench.frame] * 4])
    await ClockCycles(dut.aclk, 600)
    await bench.write("WEIGHTS", first[0])
    await ClockCycles(dut.aclk, 300)
    assert await bench.read("STATUS") & WAIT
    assert await bench.flags() == (True, False)
    await bench.write("WEIGHTS", first[1])
    assert await bench.flags() == (True, True)
    for sink in bench.sinks:
        sink.pause = False
    while await bench.read("STATUS") & WAIT:
        pass
    await bench.write("WEIGHTS_LAST", 0)  # ends what was begun without the word that was lost
    await ClockCycles(dut.aclk, 20)
    assert await bench.flags() == (True, True)
    await bench.receive([[bench.outputs[1]] * 4])

    await bench.load(first[:-3], last=False)
    await bench.write("RESET", 1)
    await ClockCycles(dut.aclk, 3)
    assert await bench.flags() == (False, False)
    await bench.waits()
    await bench.load(first)
    assert await bench.flags() == (True, False)
    await bench.computes(0, sent=True)
    await bench.write("RESET", 1)  # which leaves weights that are whole
    await ClockCycles(dut.aclk, 3)
    await bench.computes(0)

    for sink in bench.sinks:
        sink.pause = True
    bench.send([[bench.frame] * 4])
    await ClockCycles(dut.aclk, 600)
    await bench.write("WEIGHTS", second[0])
    await ClockCycles(dut.aclk, 300)
    assert await bench.read("STATUS") & WAIT
    await bench.write("RESET", 1)  # gives the load up, as the drivers do: nothing of it was taken
    for sink in bench.sinks:
        sink.pause = False
    await ClockCycles(dut.aclk, 2000)  # what its sender still had of the frames goes, as if it were short ones
    for sink in bench.sinks:
        sink.clear()
    await bench.write("ERRORS", 0xFFFFFFFF)
    assert not await bench.read("STATUS") & WAIT
    assert await bench.flags() == (True, False)
    await bench.computes(0)
    await bench.load(second)
    assert await bench.flags() == (True, False)
    await bench.computes(1)
