"""A model of PYNQ's DMA class for a DMA without scatter-gather: what ``pynq.lib.dma`` of PYNQ 2.7 to 3.1 does.

Each channel remembers whether it was started and what it moves, refuses a transfer while one goes on ("DMA channel not
idle"), and can't be reset by itself: only the registers can do that.
"""

from __future__ import annotations

from typing import Any

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
