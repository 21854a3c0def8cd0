"""Access to an accelerator or an engine on a PCI Express card, by AMD's XDMA and its Linux driver.

hwgen writes this file into the folder of a design for a board with PCI Express, next to the driver. It needs Python
3.10 and NumPy. The kernel module ``xdma`` (https://github.com/Xilinx/dma_ip_drivers, XDMA/linux-kernel) does the rest:
``/dev/xdma0_user`` has the registers, ``/dev/xdma0_h2c_N`` are channels to the card, and ``/dev/xdma0_c2h_N`` from it.
``connect`` of the driver opens the design with this file::

    from NAME_driver import connect

    accelerator = connect()
    outputs = accelerator.run(frames)

`devices` opens the parts of the design one by one.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from hwgen.emit.buffers import _PAGE, AccessError, BufferMemory, MappedRegisters

#: Register that clears the converters between XDMA and the streams while it is 1, a page after the design's registers.
_CLEAR = _PAGE
#: Status register of an AXI DMA (AMD PG021), its bit that a channel is idle, and the receiving channel's offset.
_STATUS, _IDLE, _RECEIVE = 0x04, 1 << 1, 0x30
#: Number of bytes that a transfer must stay below. The kernel module ends a packet after 2,048 descriptors, one per
#: page (libxdma.h, XDMA_ENGINE_XFER_MAX_DESC).
_MAX_BYTES = 2048 * _PAGE
#: Number of bytes of the card's memory that are used: as many as a VC707 has. A VC709's module has more.
_CARD_BYTES = 1 << 30


class _Device:
    """Device file of one of XDMA's channels: each read or write is a transfer that lasts until the call ends.

    Parameters
    ----------
    path : Path
        Device file.

    Raises
    ------
    AccessError
        If there is no such file, or it can't be opened. Transfers raise it if the kernel module reports an error.
    """

    def __init__(self, path):
        self._path = _existing(path)
        try:
            # Without Python's buffers, because a packet is one call, read(2) or write(2) with the array's memory.
            self._file = open(os.open(path, os.O_RDWR), "r+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise AccessError(
                f"{path} can't be opened: {error.strerror}; run as root, or give your user the device"
            ) from None

        weakref.finalize(self, self._file.close)

    def send(self, view, address=None):
        """Send the bytes of a memory view to the card, at an address of its memory if one is given.

        Return how many were sent.
        """
        return self._call(self._file.write, view, address)

    def receive(self, view, address=None):
        """Receive bytes from the card into a memory view, from an address of its memory if one is given.

        Return how many were received.
        """
        return self._call(self._file.readinto, view, address)

    def _call(self, method, view, address):
        try:
            if address is not None:
                self._file.seek(address)
            return method(view) or 0
        except OSError as error:
            raise AccessError(f"{self._path}: {error.strerror}") from None


def _run_transfers(requests):
    """Run the transfers of a queue, one after the other, until the queue has None.

    A transfer is a function, its argument, and a list for its outcome: what the function returned, or its exception.
    """
    while request := requests.get():
        move, view, outcome = request
        try:
            outcome.append(move(view))
        except Exception as error:
            outcome.append(error)
        del request, move  # so that the device closes when its channel is no longer used


class StreamChannel:
    """Channel of XDMA for a stream, with those methods of PYNQ's channels that the driver calls.

    Parameters
    ----------
    path : Path
        Device file of the channel.
    receives : bool
        Whether the stream comes from the card.
    """

    # A thread makes the transfers. The program and the thread share no lock of Python's: an interrupt (Ctrl-C) that
    # came just as the program had taken it would leave it locked, and no transfer would end any more.

    def __init__(self, path, *, receives):
        device = _Device(path)
        self._move = device.receive if receives else device.send
        self._requests: Any = SimpleQueue()
        Thread(target=_run_transfers, args=(self._requests,), daemon=True).start()
        weakref.finalize(self, self._requests.put, None)
        #: Number of bytes that the last transfer moved.
        self.transferred = 0
        self.reset()

    def reset(self):
        """Wait until every transfer that was started has ended, also one whose start was interrupted."""
        self._start_transfer(len, b"")
        self.wait()

    def _start_transfer(self, move, view):
        self._outcome: Any = []
        self._requests.put((move, view, self._outcome))

    @property
    def idle(self):
        """Whether the channel's last transfer has ended."""
        return bool(self._outcome)

    def start(self):
        """Accept transfers, as XDMA's channels always do."""

    def transfer(self, buffer, start=0, nbytes=0):
        """Start a transfer of ``nbytes`` bytes of an array, beginning at byte ``start``; 0 moves all that follow.

        Raises
        ------
        ValueError
            If the transfer would be more than one packet.
        """
        size = nbytes or buffer.nbytes - start
        if size >= _MAX_BYTES:
            raise ValueError(f"a transfer of {size:,} bytes is too long: it must have less than {_MAX_BYTES:,}")
        self.transferred = 0
        self._start_transfer(self._move, memoryview(buffer).cast("B")[start : start + size])

    def wait(self):
        """Wait until the channel's transfer has ended.

        Raises
        ------
        RuntimeError
            If the kernel module reports an error. It ends a transfer that stalls for 10 s.
        """
        while not self.idle:
            time.sleep(0.0001)
        (outcome,) = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        self.transferred = outcome


class ChannelPair:
    """Pair of XDMA channels with those parts of PYNQ's ``DMA`` interface that the driver uses.

    Parameters
    ----------
    sends, receives : StreamChannel or None
        Channel into the accelerator, and out of it.
    clear : callable
        Function that drops what is on its way between the accelerator and all channels, if no transfer is.
    """

    buffer_max_size = _MAX_BYTES

    def __init__(self, sends, receives, clear):
        self.sendchannel, self.recvchannel, self._clear = sends, receives, clear

    def read(self, offset):
        """Return the value of a channel's status register, as an AXI DMA would have it; 0 for its control register."""
        return _IDLE * self._channel(offset).idle if offset % _RECEIVE == _STATUS else 0

    def write(self, offset, value):
        """Reset a channel, as the only value that is written would do, and drop what is on its way.

        This lasts until the channel's transfer has ended: only the kernel module can end it, by its timeout. A read
        that still waited would take the outputs of the next run.
        """
        self._channel(offset).reset()
        self._clear()

    def _channel(self, offset):
        return self.recvchannel if offset >= _RECEIVE else self.sendchannel


class Card(BufferMemory):
    """Memory on a PCIe card, whose arrays are in the PC: `flush` copies one to the card, `invalidate` copies it back.

    Parameters
    ----------
    sends, receives : object
        Devices of the channels to the card and from it.
    """

    def __init__(self, sends, receives):
        super().__init__("the card's memory", _CARD_BYTES, 0)
        self._sends, self._receives = sends, receives

    def _block_bytes(self, offset, size):
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)

    def flush(self, buffer):
        """Send a `Buffer` to its place on the card."""
        self._move(self._sends.send, buffer)

    def invalidate(self, buffer):
        """Receive a `Buffer` from its place on the card."""
        self._move(self._receives.receive, buffer)

    @staticmethod
    def _move(move, buffer):
        view = memoryview(buffer).cast("B") if buffer.nbytes else b""
        done = 0
        while done < len(view):
            moved = move(view[done:], buffer.physical_address + done)
            if not moved:
                raise AccessError(f"the card's memory ends before {buffer.physical_address + len(view):#x}")
            done += moved


def devices(_module, inputs, outputs, *, card=0, root="/") -> Any:
    """Open a design's registers, XDMA's channels and memory through the kernel module, and return them.

    Parameters
    ----------
    _module : str
        Name of the design's bus wrapper, which the kernel module does not know.
    inputs, outputs : int
        Number of its input and output streams; 0 for an engine, whose memory is on the card.
    card : int
        Number of the card, if there are several with XDMA.
    root : path
        Root of the file system.

    Returns
    -------
    tuple of MappedRegisters, list of ChannelPair, and callable
        Registers of the design, its channels, and the function that allocates arrays.

    Raises
    ------
    AccessError
        If a device is missing.
    """
    name = str(Path(root) / f"dev/xdma{card}_")
    registers = MappedRegisters(_existing(Path(f"{name}user")), 2 * _PAGE)
    if not inputs and not outputs:
        return registers, [], Card(*(_Device(Path(f"{name}{way}_0")) for way in ("h2c", "c2h"))).allocate
    sends = [StreamChannel(Path(f"{name}h2c_{index}"), receives=False) for index in range(inputs)]
    receives = [StreamChannel(Path(f"{name}c2h_{index}"), receives=True) for index in range(outputs)]

    def clear():
        if all(channel.idle for channel in (*sends, *receives)):
            for value in (1, 0):
                registers.write(_CLEAR, value)
                registers.read(_CLEAR)  # the answer comes after the write

    pairs = zip_longest(sends, receives)
    return registers, [ChannelPair(*channels, clear) for channels in pairs], _allocate


def _allocate(shape, dtype):
    """Return an array of zeros in pages of its own, so that no page of it moves with other data."""
    value_type, count = np.dtype(dtype), int(np.prod(shape))
    memory = mmap.mmap(-1, max(count * value_type.itemsize, 1))
    return np.frombuffer(memory, value_type, count).reshape(shape)


def _existing(path):
    """Return the path of a device file, or raise AccessError if there is none."""
    if not path.exists():
        raise AccessError(
            f"there is no {path}: load this folder's bitstream into the card, let the PC find the card (restart it, or "
            "scan PCI Express again), and load the kernel module xdma"
        )
    return path
