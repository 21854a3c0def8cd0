"""Access to an accelerator or an engine from any Linux for Zynq, by kernel drivers, without PYNQ.

hwgen writes this file into the folder of a design, next to the driver. It needs Python 3.10 and NumPy. Two drivers of
the kernel do the rest: UIO maps the registers of the design and of its DMAs, and u-dma-buf has memory that DMAs reach.
``connect`` of the driver opens the design with this file where PYNQ is not installed::

    from NAME_driver import connect

    accelerator = connect()
    outputs = accelerator.run(frames)

`devices` opens the parts of the design one by one.
"""

from __future__ import annotations

import mmap
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np

#: Offsets of the registers of an AXI DMA's channel in simple mode (AMD PG021), and of the receiving channel.
_CONTROL, _STATUS, _ADDRESS, _HIGH_ADDRESS, _LENGTH, _RECEIVE = 0x00, 0x04, 0x18, 0x1C, 0x28, 0x30
_RUN = 1
_HALTED, _IDLE, _ERRORS = 1 << 0, 1 << 1, 7 << 4

#: Width of the length register of the DMAs that hwgen's Vivado project has, in bits.
LENGTH_BITS = 26
#: Alignment of buffers in the memory of u-dma-buf, in bytes.
_PAGE = 4096
#: Folders with the kernel's descriptions of u-dma-buf's devices, by its current and its former name.
_BUFFER_CLASSES = ("u-dma-buf", "udmabuf")
#: Maximum time for a DMA to start, in seconds.
_TIMEOUT = 1.0
#: Values of u-dma-buf's ``sync_direction`` for memory that a device reads, and for memory that it writes.
_TO_DEVICE, _FROM_DEVICE = 1, 2


class LinuxError(RuntimeError):
    """Error of the access through Linux kernel drivers: a device is missing, too small, or can't be opened."""


class Registers:
    """Hardware registers of a Linux UIO device, mapped into memory.

    Parameters
    ----------
    name : str
        Name of the device, as ``/sys/class/uio/uioN/name`` has it.
    root : path
        Root of the file system.

    Raises
    ------
    LinuxError
        If there is no such device, or it can't be opened.
    """

    def __init__(self, name, *, root="/"):
        entries = sorted((Path(root) / "sys/class/uio").glob("uio*"))
        names = {_text(entry / "name"): entry for entry in entries}
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise LinuxError(
                f"there is no UIO device {name} (there are: {known}); load a device tree overlay that has it, "
                "and the module uio_pdrv_genirq with of_id=generic-uio"
            )
        entry = names[name]
        size = _number(entry / "maps/map0/size")
        self._memory = _map_device(Path(root) / "dev" / entry.name, size)
        self._words = np.frombuffer(self._memory, np.uint32)

    def read(self, offset):
        """Return the value of the 32-bit register at the offset ``offset`` in bytes."""
        return int(self._words[offset >> 2])

    def write(self, offset, value):
        """Write a value into the 32-bit register at the offset ``offset`` in bytes."""
        self._words[offset >> 2] = value & 0xFFFF_FFFF


class Buffer(np.ndarray):
    """NumPy array in physically contiguous memory (u-dma-buf) that DMAs can access.

    The memory is free when no array and no view of one is left.

    Attributes
    ----------
    physical_address : int
        Address for a DMA. Views have none of their own.
    """

    physical_address = 0
    _pool: Any = None

    def flush(self):
        """Write the processor's cache of this array back to memory, so that a DMA reads what the processor wrote."""
        self._synchronise(_TO_DEVICE, "sync_for_device")

    def invalidate(self):
        """Invalidate the processor's cache of this array, so that the processor reads what a DMA wrote."""
        self._synchronise(_FROM_DEVICE, "sync_for_cpu")

    def _synchronise(self, direction, file):
        if self._pool is not None:
            self._pool.synchronise(self.physical_address, self.nbytes, direction, file)


class _Block:
    """Block of u-dma-buf memory that holds one array: offset and size in bytes.

    All views of the array hold this object, so it exists as long as they need the memory.

    Parameters
    ----------
    values : ndarray
        Bytes in the memory of u-dma-buf.
    """

    def __init__(self, values):
        self._values = values
        self.__array_interface__ = values.__array_interface__


class Buffers:
    """Memory of a u-dma-buf device, with a method that allocates arrays in it for DMAs.

    Parameters
    ----------
    name : str, optional
        Name of the device, as in ``/sys/class/u-dma-buf``. By default the only one.
    root : path
        Root of the file system.

    Raises
    ------
    LinuxError
        If there is no such device, there are several and none is named, or it can't be opened.
    """

    def __init__(self, name=None, *, root="/"):
        classes = [Path(root) / "sys/class" / folder for folder in _BUFFER_CLASSES]
        entries = {entry.name: entry for folder in classes for entry in sorted(folder.glob("*"))}
        if name is None and len(entries) == 1:
            (name,) = entries
        if name not in entries:
            known = ", ".join(entries) or "none"
            wanted = "name one of several u-dma-buf devices" if name is None and entries else f"no u-dma-buf {name}"
            wanted = "there is no u-dma-buf device" if not entries else wanted
            raise LinuxError(f"{wanted} (there are: {known}); load the module u-dma-buf, and an overlay that has it")
        self.name, self._entry = name, entries[name]
        self._size, self._physical = _number(self._entry / "size"), _number(self._entry / "phys_addr")
        self._bytes = np.frombuffer(_map_device(Path(root) / "dev" / name, self._size), np.uint8)
        #: Offset and size in bytes of each allocated array.
        self._taken = {}

    def allocate(self, shape, dtype):
        """Allocate an array in the u-dma-buf device's memory, and return it.

        Raises
        ------
        LinuxError
            If the memory has no room for the array.
        """
        value_type = np.dtype(dtype)
        count = int(np.prod(shape))
        size = max(count * value_type.itemsize, 1)
        offset = self._free_offset(size)
        block = _Block(self._bytes[offset : offset + size])
        values = np.asarray(block)[: count * value_type.itemsize].view(value_type).reshape(shape).view(Buffer)
        values.physical_address, values._pool = self._physical + offset, self
        self._taken[offset] = size
        weakref.finalize(block, self._taken.pop, offset)
        return values

    def _free_offset(self, size):
        """Return the lowest byte offset in the device's memory that has ``size`` free bytes."""
        begin = 0
        for offset, taken in sorted(self._taken.items()):
            if begin + size <= offset:
                return begin
            begin = -(-(offset + taken) // _PAGE) * _PAGE
        if begin + size > self._size:
            raise LinuxError(
                f"{self.name} has {self._size - min(begin, self._size):,} of {self._size:,} bytes free at its end, "
                f"but {size:,} are needed: make it larger in the device tree overlay"
            )
        return begin

    def synchronise(self, address, size, direction, file):
        """Synchronise a part of u-dma-buf's memory between the processor's cache and devices, by the kernel driver.

        Parameters
        ----------
        address, size : int
            Physical address and number of bytes.
        direction : int
            Value of ``sync_direction``.
        file : str
            File that starts it: ``sync_for_device`` or ``sync_for_cpu``.
        """
        settings = {"sync_offset": address - self._physical, "sync_size": size, "sync_direction": direction, file: 1}
        for name, value in settings.items():
            (self._entry / name).write_text(f"{value}", encoding="ascii")


class Channel:
    """Sending or receiving channel of an AXI DMA, with those methods of PYNQ's channels that the driver calls.

    Parameters
    ----------
    dma : Dma
        DMA of the channel.
    offset : int
        Offset of its registers in bytes.
    """

    def __init__(self, dma, offset):
        self._dma, self._offset = dma, offset
        self._buffer, self._begin, self._size = None, 0, 0
        #: Number of bytes that the last transfer moved.
        self.transferred = 0
        self.start()

    def _status(self):
        return self._dma.read(self._offset + _STATUS)

    @property
    def idle(self):
        """Whether the DMA channel's last transfer has ended."""
        return bool(self._status() & _IDLE)

    def start(self):
        """Start the DMA channel, so that it accepts transfers.

        Raises
        ------
        LinuxError
            If the DMA does not start within a second.
        """
        self._dma.write(self._offset + _CONTROL, _RUN)
        end = time.monotonic() + _TIMEOUT
        while self._status() & _HALTED:
            if time.monotonic() > end:
                raise LinuxError("the DMA does not start: is its clock running, and is it one in simple mode?")

    def transfer(self, buffer, start=0, nbytes=0):
        """Start a DMA transfer of ``nbytes`` bytes of a buffer, beginning at byte ``start``; 0 moves all that follow.

        Raises
        ------
        ValueError
            If the transfer is longer than the DMA can count.
        """
        size = nbytes or buffer.nbytes - start
        if size >= self._dma.buffer_max_size:
            limit = self._dma.buffer_max_size
            raise ValueError(f"a transfer of {size:,} bytes is too long: it must have less than {limit:,}")
        # Also before memory is received: what the cache holds of it must not be written back later.
        buffer.flush()
        address = buffer.physical_address + start
        self.transferred = 0
        self._dma.write(self._offset + _ADDRESS, address & 0xFFFF_FFFF)
        self._dma.write(self._offset + _HIGH_ADDRESS, address >> 32)
        self._dma.write(self._offset + _LENGTH, size)
        self._buffer = buffer

    def wait(self):
        """Wait until the DMA channel's transfer has ended, and make received data visible to the processor.

        Raises
        ------
        RuntimeError
            If the DMA reports an error.
        """
        while not self.idle:
            if self._status() & _ERRORS:
                raise RuntimeError("the DMA reports an error")
        if self._offset and self._buffer is not None:
            self._buffer.invalidate()
        self.transferred = self._dma.read(self._offset + _LENGTH)
        self._buffer = None


class Dma:
    """AXI DMA in simple mode (AMD PG021), with those parts of PYNQ's ``DMA`` interface that the driver uses.

    Parameters
    ----------
    registers : object
        Object with ``read(offset)`` and ``write(offset, value)``.
    sends, receives : bool
        Whether the DMA has a channel into the accelerator, and one out of it.
    length_bits : int
        Width of its length register, in bits.
    """

    def __init__(self, registers, *, sends=True, receives=True, length_bits=LENGTH_BITS):
        self.read, self.write = registers.read, registers.write
        #: Number of bytes that a transfer must stay below.
        self.buffer_max_size = 1 << length_bits
        self.sendchannel = Channel(self, 0) if sends else None
        self.recvchannel = Channel(self, _RECEIVE) if receives else None


def devices(module, inputs, outputs, *, buffers=None, root="/"):
    """Open a design's devices by Linux kernel drivers; return registers, list of DMAs, and buffer allocation function.

    The UIO devices have the names that Vivado's project gives: ``MODULE_0`` and ``axi_dma_N``.

    Parameters
    ----------
    module : str
        Name of the design's bus wrapper, such as ``digits_axi``.
    inputs, outputs : int
        Number of its input and output streams; 0 for an engine, which has no DMA.
    buffers : str, optional
        Name of the u-dma-buf device. By default the only one.
    root : path
        Root of the file system.

    Returns
    -------
    tuple of Registers, list of Dma, and callable
        Registers of the design, its DMAs, and the function that allocates arrays.

    Raises
    ------
    LinuxError
        If a device is missing.
    """
    dmas = [
        Dma(Registers(f"axi_dma_{index}", root=root), sends=index < inputs, receives=index < outputs)
        for index in range(max(inputs, outputs))
    ]
    return Registers(f"{module}_0", root=root), dmas, Buffers(buffers, root=root).allocate


def _text(path):
    """Return the text of one of the kernel's files (in ``/sys``), without white space at its ends."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LinuxError(f"{path} can't be read: {error.strerror}") from None


def _number(path):
    """Return the integer, decimal or hexadecimal, in one of the kernel's files (in ``/sys``)."""
    return int(_text(path), 0)


def _map_device(path, size):
    """Map the first ``size`` bytes of a device file into memory, and return the ``mmap`` object."""
    try:
        with path.open("r+b", buffering=0) as file:
            return mmap.mmap(file.fileno(), size)
    except (OSError, ValueError) as error:
        raise LinuxError(f"{path} can't be mapped: {error}; run as root, or give your user the device") from None
