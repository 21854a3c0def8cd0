"""AXI DMAs in simple mode, played on cocotbext-axi's streams at an emitted wrapper, and the wrapper's registers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import cocotb
import numpy as np
from c_driver import DMA, REGISTERS, Channel, Dma
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamSink, AxiStreamSource
from wrapper_model import Memory


class _Stream(ABC):
    """A stream of the wrapper and the channel that serves it."""

    def __init__(self, streams: Streams, end: Any):
        self._streams, self._end = streams, end
        self._task: Any = None
        self.channel = Channel(self._start, self._cancel)

    def _start(self, address: int, length: int) -> None:
        self._task = cocotb.start_soon(self._move(address, length))

    def _cancel(self) -> None:
        """Drop what is moved, in the middle of a frame as well."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._end.clear()
        if not self._end._reset_state:  # not before the bus has left its own reset
            self._end.assert_reset()

    @abstractmethod
    async def _move(self, address: int, length: int) -> None:
        """Move ``length`` bytes between memory and stream, and tell the channel."""


class _Input(_Stream):
    """Into the accelerator; only the first one's frames are cut, since each wrong frame raises the interrupt anew."""

    is_first = False

    async def _move(self, address: int, length: int) -> None:
        sent = length - self._streams.cut if self.is_first else length
        await self._end.send(self._streams.memory.find(address, sent).tobytes())
        await self._end.wait()
        self.channel.done(length)


class _Output(_Stream):
    """Out of the accelerator. The model of the bus takes frames before they are asked for, as buffers do."""

    async def _move(self, address: int, length: int) -> None:
        frame = bytes((await self._end.recv()).tdata)
        assert len(frame) <= length
        self._streams.memory.find(address, len(frame))[:] = np.frombuffer(frame, np.uint8)
        self.channel.done(len(frame))


class Streams:
    """The registers of a wrapper and of the DMAs at its streams, by their addresses.

    Parameters
    ----------
    dut : object
        The simulated wrapper.
    described : dict
        What ``registers.json`` holds.
    memory : Memory
        What the DMAs reach.
    """

    def __init__(self, dut: Any, described: dict[str, Any], memory: Memory):
        clocking = {"clock": dut.aclk, "reset": dut.aresetn, "reset_active_level": False}
        names = [[stream["name"] for stream in described[side]] for side in ("inputs", "outputs")]
        self.memory: Any = memory
        #: Bytes that are left out of each frame of the first input.
        self.cut = 0
        self._clock = dut.aclk
        self._control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control"), **clocking)
        sends = [_Input(self, AxiStreamSource(AxiStreamBus.from_prefix(dut, name), **clocking)) for name in names[0]]
        receives = [_Output(self, AxiStreamSink(AxiStreamBus.from_prefix(dut, name), **clocking)) for name in names[1]]
        sends[0].is_first = True
        count = max(len(sends), len(receives))
        ends = [[each.channel for each in side] + [None] * (count - len(side)) for side in (sends, receives)]
        self.dmas = [Dma(*pair) for pair in zip(*ends, strict=True)]

    async def wait(self, cycles: int) -> None:
        await ClockCycles(self._clock, cycles)

    async def read(self, address: int) -> int:
        await ClockCycles(self._clock, 20)  # a processor is not faster
        if address >= REGISTERS:
            return await self._control.read_dword(address - REGISTERS)
        return self.dmas[(address - DMA) >> 16].read((address - DMA) & 0xFFFF)

    async def write(self, address: int, value: int) -> None:
        if address >= REGISTERS:
            await self._control.write_dword(address - REGISTERS, value)
        else:
            self.dmas[(address - DMA) >> 16].write((address - DMA) & 0xFFFF, value)
