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

import time
from pathlib import Path

import numpy as np

from hwgen.emit.buffers import AccessError, BufferMemory, MappedRegisters, _map_device

#: Offsets of the registers of an AXI DMA's channel in simple mode (AMD PG021), and of the receiving channel.
_CONTROL, _STATUS, _ADDRESS, _HIGH_ADDRESS, _LENGTH, _RECEIVE = 0x00, 0x04, 0x18, 0x1C, 0x28, 0x30
_RUN = 1
_HALTED, _IDLE, _ERRORS = 1 << 0, 1 << 1, 7 << 4

#: Width of the length register of the DMAs that hwgen's Vivado project has, in bits.
LENGTH_BITS = 26
#: Folders with the kernel's descriptions of u-dma-buf's devices, by its current and its former name.
_BUFFER_CLASSES = ("u-dma-buf", "udmabuf")
#: Maximum time for a DMA to start, in seconds.
_TIMEOUT = 1.0
#: Values of u-dma-buf's ``sync_direction`` for memory that a device reads, and for memory that it writes.
_TO_DEVICE, _FROM_DEVICE = 1, 2


LinuxError = AccessError


class Registers(MappedRegisters):
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
        super().__init__(Path(root) / "dev" / entry.name, _number(entry / "maps/map0/size"))


class Buffers(BufferMemory):
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

    _REMEDY = ": make it larger in the device tree overlay"

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
        self._entry = entries[name]
        super().__init__(name, _number(self._entry / "size"), _number(self._entry / "phys_addr"))
        self._bytes = np.frombuffer(_map_device(Path(root) / "dev" / name, self._size), np.uint8)

    def _block_bytes(self, offset, size):
        return self._bytes[offset : offset + size]

    def flush(self, buffer):
        """Write the processor's cache of a `Buffer` back to memory, so that a DMA reads what the processor wrote."""
        self.synchronise(buffer.physical_address, buffer.nbytes, _TO_DEVICE, "sync_for_device")

    def invalidate(self, buffer):
        """Invalidate the processor's cache of a `Buffer`, so that the processor reads what a DMA wrote."""
        self.synchronise(buffer.physical_address, buffer.nbytes, _FROM_DEVICE, "sync_for_cpu")

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
