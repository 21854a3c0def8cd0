"""Verdict of the Python driver of an engine on a program, without hardware."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.emit import engine_driver

DONE = 8


class Still:
    """Registers of an engine that does what a test says, or nothing."""

    def __init__(self, document: dict[str, Any], **values: int):
        self.offsets = {register["name"]: register["offset"] for register in document["registers"]}
        self.values = {register["offset"]: register["reset"] for register in document["registers"]}
        self.values |= {self.offsets[name]: value for name, value in values.items()}
        self.written: list[tuple[int, int]] = []

    def read(self, offset: int) -> int:
        return self.values[offset]

    def write(self, offset: int, value: int) -> None:
        self.written.append((offset, value))


class Running:
    """An engine that computes: each run takes some accesses, and writes memory at its end unless it is stopped."""

    def __init__(self, document: dict[str, Any], compute: Callable[[], None]):
        self.still, self.compute = Still(document), compute
        self.left, self.accesses, self.interrupted = 0, 0, -1

    def _count(self) -> None:
        self.accesses += 1
        if self.accesses == self.interrupted:
            raise KeyboardInterrupt
        self.left -= self.left > 0
        if self.left == 1:
            self.compute()
            self.still.values[self.still.offsets["STATUS"]] = DONE

    def read(self, offset: int) -> int:
        self._count()
        return 1 if self.left and offset == self.still.offsets["STATUS"] else self.still.read(offset)

    def write(self, offset: int, value: int) -> None:
        self._count()
        self.still.write(offset, value)
        if offset == self.still.offsets["PROGRAM_BASE"]:
            self.still.values[offset] = value
        if offset == self.still.offsets["CONTROL"]:
            self.left = 7 if value == 1 else 0
            self.still.values[self.still.offsets["STATUS"]] = 0 if value == 1 else DONE


def buffer(address: int) -> Any:
    """Return an allocator whose first buffer has the physical address ``address``; others follow it in whole pages."""
    free = [address]

    class Buffer(np.ndarray):
        physical_address = 0

    def allocate(shape: tuple[int], dtype: Any) -> Any:
        made = np.zeros(shape, dtype).view(Buffer)
        made.physical_address = free[0]
        free[0] += -(-made.nbytes // 4096) * 4096
        return made

    return allocate


def verdict(folder: Path, program: bytes, size: int = 1 << 20) -> str:
    """Return the driver's message about a program, empty if the driver accepts it. Accepted programs run frames."""

    within = buffer(0x1000)

    def allocate(shape: tuple[int], dtype: Any) -> Any:
        if shape[0] > size:
            raise MemoryError("that is too much")
        return within(shape, dtype)

    (folder / "changed.program").write_bytes(program)
    document = json.loads((folder / "registers.json").read_text())
    found = engine_driver.Engine(Still(document, STATUS=DONE), allocate=allocate, folder=folder, timeout=0.01)
    try:
        found.load("changed.program")
    except engine_driver.DriverError as error:
        return f"several lines: {error}" if "\n" in str(error) or found._memories else str(error)
    frames = [np.zeros((found._batch + 1, *end.shape), end.stream.dtype) for end in found._inputs]
    if sum(values.nbytes for values in frames) < size:
        assert len(np.atleast_1d(found.run(*frames, integers=True))) >= 1
    return ""
