"""Stand-ins for PYNQ: overlays that compute by a golden model, and its DMA class without scatter-gather.

Each channel remembers whether it was started and what it moves, refuses a transfer while one goes on ("DMA channel not
idle"), and can't be reset by itself: only the registers can do that.
"""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from c_driver import Channel, Dma
from wrapper_model import Memory

import hwgen
from hwgen.emit.driver import Stream

_CONTROL, _STATUS, _ADDRESS, _HIGH_ADDRESS, _LENGTH = 0x00, 0x04, 0x18, 0x1C, 0x28
_HALTED, _IDLE, _ERRORS = 1, 2, 0x70


class PynqChannel:
    """A channel of `PynqDma`.

    Parameters
    ----------
    dma : PynqDma
    offset : int
        Of its registers: 0 into the accelerator, 0x30 out of it.
    """

    def __init__(self, dma: PynqDma, offset: int):
        self._dma, self._offset = dma, offset
        self._active: Any = None
        self._is_first = True
        self.transferred = 0
        self.start()

    def _status(self) -> int:
        return self._dma.read(self._offset + _STATUS)

    def _write(self, offset: int, value: int) -> None:
        self._dma.write(self._offset + offset, value)

    @property
    def running(self) -> bool:
        return not self._status() & _HALTED

    @property
    def idle(self) -> bool:
        return bool(self._status() & _IDLE)

    def start(self) -> None:
        """Start the channel; without an end where the DMA never says that it runs."""
        self._write(_CONTROL, 1)
        while not self.running:
            pass
        self._is_first = True

    def transfer(self, buffer: Any, start: int = 0, nbytes: int = 0) -> None:
        """Begin to move ``nbytes`` bytes of a buffer from ``start`` on, or all behind it."""
        size = nbytes or buffer.nbytes - start
        if not self.running:
            raise RuntimeError("DMA channel not started")
        if not self._is_first and not self.idle:
            raise RuntimeError("DMA channel not idle")
        if size >= self._dma.buffer_max_size:
            raise ValueError(f"Transfer size is {size} bytes")
        if not self._offset:
            buffer.flush()
        self.transferred = 0
        self._write(_ADDRESS, buffer.physical_address + start & 0xFFFF_FFFF)
        self._write(_HIGH_ADDRESS, buffer.physical_address + start >> 32)
        self._write(_LENGTH, size)
        self._active, self._is_first = buffer, False

    def wait(self) -> None:
        """Wait until the buffer was moved."""
        if not self.running:
            raise RuntimeError("DMA channel not started")
        while not self.idle:
            if self._status() & _ERRORS:
                raise RuntimeError("DMA Error")
        if self._offset:
            self._active.invalidate()
        self.transferred = self._dma.read(self._offset + _LENGTH)
        self._active = None


class PynqDma:
    """The object of a DMA: its registers, and a channel for each direction that it has.

    Parameters
    ----------
    registers : object
        Reaches the registers by their offsets, with ``read`` and ``write``.
    sends, receives : bool
        Which channels there are.
    length_bits : int
        Width of the length register.
    """

    def __init__(self, registers: Any, *, sends: bool = True, receives: bool = True, length_bits: int = 26):
        self.read, self.write = registers.read, registers.write
        self.buffer_max_size = 1 << length_bits
        self.sendchannel = PynqChannel(self, 0x00) if sends else None
        self.recvchannel = PynqChannel(self, 0x30) if receives else None


class GoldenOverlay:
    """An overlay of PYNQ with a golden model behind a DMA, by the names that cells have in the project.

    Parameters
    ----------
    model : Model
        With one input and one output.
    folder : Path
        Folder with the design's ``registers.json``.
    memory : Memory
        Memory of the buffers.

    Attributes
    ----------
    fault : str
        What the next packet meets, once: its DMA reports an ``error``, it is ``lost``, its outputs come ``late``, with
        those of the next packet, or are ``short``, or the user ``interrupts`` the program.
    """

    def __init__(self, model: hwgen.Model, folder: Path, memory: Memory):
        described = json.loads((folder / "registers.json").read_text())
        registers = {each["offset"]: each["reset"] for each in described["registers"]}
        control = SimpleNamespace(read=registers.get, write=lambda offset, value: None)
        ends = [Stream(described[side][0]) for side in ("inputs", "outputs")]
        waiting: list[np.ndarray] = []
        late: list[np.ndarray] = []
        asked: list[np.ndarray] = []
        self.fault = ""

        def found(address: int, length: int) -> np.ndarray:
            content = memory.find(address, length)
            assert content is not None
            return content

        def send(address: int, length: int) -> None:
            source, sink = ends
            count = 1 + (length - source.frame_bytes) // source.memory_bytes
            content = np.zeros(count * source.memory_bytes, np.uint8)
            content[:length] = found(address, length)
            made = model.golden(source.unpack(content.view(source.dtype).reshape(count, -1)), integers=True)
            assert isinstance(made, np.ndarray)
            result = sink.memory(np.zeros, count)
            sink.pack(made, result)
            content = result.reshape(-1).view(np.uint8)[: sink.bytes_of(count)]
            fault, self.fault = self.fault, ""
            if fault == "error":
                sender.errors = 1
                return
            if fault == "interrupt":
                raise KeyboardInterrupt
            if fault == "late":
                late.append(content)
            elif fault != "lost":
                waiting.extend([*late, content[:-1] if fault == "short" else content])
                late.clear()
            sender.done(length)
            give()

        def receive(address: int, length: int) -> None:
            asked.append(found(address, length))
            give()

        def give() -> None:
            while waiting and asked:
                content = waiting.pop(0)
                asked.pop(0)[: len(content)] = content
                receiver.done(len(content))

        def cancel() -> None:
            waiting.clear()
            late.clear()

        sender, receiver = Channel(send, cancel), Channel(receive, asked.clear)
        self.registers, self.control, self.memory = Dma(sender, receiver), control, memory
        vars(self)[f"{described['module']}_0"] = control
        self.axi_dma_0 = PynqDma(self.registers)


def pynq_module(model: hwgen.Model, folder: Path) -> Any:
    """Return a module in place of ``pynq``, which loads the one bitstream of a folder."""
    pynq: Any = ModuleType("pynq")
    pynq.__spec__ = ModuleSpec("pynq", None)
    memory = Memory()
    name = json.loads((folder / "registers.json").read_text())["module"].removesuffix("_axi")

    def overlay(path: str) -> GoldenOverlay:
        assert path == str(folder / f"{name}.bit")
        return GoldenOverlay(model, folder, memory)

    pynq.Overlay, pynq.allocate = overlay, memory.allocate
    return pynq
