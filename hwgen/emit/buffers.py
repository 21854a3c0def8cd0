"""Common part of the access to hardware through Linux: mapped registers, and arrays in memory that hardware reaches.

The files ``NAME_linux.py`` and ``NAME_xdma.py`` of a design's folder begin with this part (`hwgen.emit.drivers`).
"""

from __future__ import annotations

import mmap
import weakref
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

#: Alignment of arrays in memory that hardware reaches, in bytes.
_PAGE = 4096


class AccessError(RuntimeError):
    """Error of the access to hardware through Linux: a device is missing, too small, or can't be opened."""


class MappedRegisters:
    """Hardware registers of a device file that is mapped into memory.

    Parameters
    ----------
    path : Path
        Device file.
    size : int
        Number of bytes that are mapped.

    Raises
    ------
    AccessError
        If the file can't be mapped.
    """

    def __init__(self, path, size):
        self._memory = _map_device(path, size)
        self._words = np.frombuffer(self._memory, np.uint32)

    def read(self, offset):
        """Return the value of the 32-bit register at the offset ``offset`` in bytes."""
        return int(self._words[offset >> 2])

    def write(self, offset, value):
        """Write a value into the 32-bit register at the offset ``offset`` in bytes."""
        self._words[offset >> 2] = value & 0xFFFF_FFFF


class Buffer(np.ndarray):
    """NumPy array in memory that hardware accesses. A view of a part of it has that part's address.

    The memory is free when no array and no view of one is left.

    Attributes
    ----------
    physical_address : int
        Address for the hardware.
    """

    physical_address = 0
    _pool: Any = None

    def __array_finalize__(self, origin):
        if not isinstance(origin, Buffer) or origin._pool is None:
            return
        offset = self.__array_interface__["data"][0] - origin.__array_interface__["data"][0]
        if offset >= 0 and offset + self.nbytes <= origin.nbytes:  # a view, and not a copy in other memory
            self._pool, self.physical_address = origin._pool, origin.physical_address + offset

    def flush(self):
        """Make what the program wrote into this array visible to the hardware."""
        if self._pool is not None:
            self._pool.flush(self)

    def invalidate(self):
        """Make what the hardware wrote into this array visible to the program."""
        if self._pool is not None:
            self._pool.invalidate(self)


class _Block:
    """Block of memory that holds one array.

    All views of the array hold this object, so it exists as long as they need the memory.

    Parameters
    ----------
    values : ndarray
        Bytes of the block.
    """

    def __init__(self, values):
        self._values = values
        self.__array_interface__ = values.__array_interface__


class BufferMemory(ABC):
    """Base class of a memory for hardware, with a method that allocates arrays in it.

    Parameters
    ----------
    name : str
        Name of the memory in messages.
    size, address : int
        Size of the memory in bytes, and its first address for the hardware.
    """

    #: Clause that ends a message on too little memory: what helps.
    _REMEDY = ""

    def __init__(self, name, size, address):
        self.name, self._size, self._physical = name, size, address
        #: Offset and size in bytes of each allocated array.
        self._taken = {}

    def allocate(self, shape, dtype) -> Any:
        """Allocate an array in the memory, and return it.

        Raises
        ------
        AccessError
            If the memory has no room for the array.
        """
        value_type = np.dtype(dtype)
        count = int(np.prod(shape))
        size = max(count * value_type.itemsize, 1)
        offset = self._free_offset(size)
        block = _Block(self._block_bytes(offset, size))
        values = np.asarray(block)[: count * value_type.itemsize].view(value_type).reshape(shape).view(Buffer)
        values.physical_address, values._pool = self._physical + offset, self
        self._taken[offset] = size
        weakref.finalize(block, self._taken.pop, offset)
        return values

    @abstractmethod
    def _block_bytes(self, offset, size):
        """Return the program's memory (array of bytes) for ``size`` bytes of this memory, beginning at ``offset``."""

    @abstractmethod
    def flush(self, buffer):
        """Make a `Buffer` of this memory, as the program wrote it, visible to the hardware."""

    @abstractmethod
    def invalidate(self, buffer):
        """Make a `Buffer` of this memory, as the hardware wrote it, visible to the program."""

    def _free_offset(self, size):
        """Return the lowest byte offset in the memory that has ``size`` free bytes."""
        begin = 0
        for offset, taken in sorted(self._taken.items()):
            if begin + size <= offset:
                return begin
            begin = -(-(offset + taken) // _PAGE) * _PAGE
        if begin + size > self._size:
            raise AccessError(
                f"{self.name} has {self._size - min(begin, self._size):,} of {self._size:,} bytes free at its end, "
                f"but {size:,} are needed{self._REMEDY}"
            )
        return begin


def _map_device(path, size):
    """Map the first ``size`` bytes of a device file into memory, and return the ``mmap`` object."""
    try:
        with path.open("r+b", buffering=0) as file:
            return mmap.mmap(file.fileno(), size)
    except (OSError, ValueError) as error:
        raise AccessError(f"{path} can't be mapped: {error}; run as root, or give your user the device") from None
