"""Stand-ins for a card with XDMA: a folder of device files with an accelerator behind them, and channels that fail."""

from __future__ import annotations

import fcntl
import mmap
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.emit import xdma
from hwgen.emit.buffers import AccessError
from hwgen.emit.driver import Stream

#: Size of a pipe's buffer in bytes, so that a packet is written and read at once, as by the kernel module.
_PIPE_BYTES = 1 << 20


def write_registers(root: Path, document: dict[str, Any]) -> None:
    """Write the device file of a card's registers, which hold what they hold after a reset."""
    words = np.zeros(0x2000 // 4, np.uint32)
    for register in document["registers"]:
        words[register["offset"] // 4] = register["reset"]
    (root / "dev").mkdir(parents=True)
    (root / "dev/xdma0_user").write_bytes(words.tobytes())


class Card:
    """Device files of a card, in a folder of their own, and a thread that computes as an accelerator.

    Registers are a mapped file, and channels are named pipes. A pipe has no packets: the thread counts their bytes.

    Parameters
    ----------
    root : Path
        Root of the file system.
    document : dict
        Contents of ``registers.json``.
    compute : callable
        Function from the bytes of a frame on each input to those on each output.
    """

    def __init__(self, root: Path, document: dict[str, Any], compute: Callable[[list[bytes]], list[bytes]]):
        self._compute = compute
        self._offsets = {each["name"]: each["offset"] // 4 for each in document["registers"]}
        self._ends = [[Stream(each) for each in document[side]] for side in ("inputs", "outputs")]
        write_registers(root, document)
        with (root / "dev/xdma0_user").open("r+b") as file:
            self._words = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint32)
        self._pipes = [
            [self._pipe(root / f"dev/xdma0_{way}_{number}") for number in range(len(ends))]
            for way, ends in zip(("h2c", "c2h"), self._ends, strict=True)
        ]
        self._received = [b"" for _ in self._ends[0]]
        #: Number of packets so far.
        self.packets = 0
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _pipe(path: Path) -> int:
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return pipe

    def close(self) -> None:
        """End the thread."""
        self._stops.set()
        self._thread.join()
        for pipe in (*self._pipes[0], *self._pipes[1]):
            os.close(pipe)

    def word(self, name: str) -> int:
        return int(self._words[self._offsets[name]])

    def _settle(self) -> None:
        """Bits that ones clear, or that act once."""
        if self.word("RESET"):
            self._words[self._offsets["FRAMES"]] = 0
        for name in ("RESET", "ERRORS"):
            self._words[self._offsets[name]] = 0

    def _run(self) -> None:
        while not self._stops.wait(0.0005):
            self._settle()
            count = max(self.word("PACKET_FRAMES"), 1)
            sizes = [end.bytes_of(count) for end in self._ends[0]]
            for number, pipe in enumerate(self._pipes[0]):
                try:
                    self._received[number] += os.read(pipe, sizes[number] - len(self._received[number]))
                except BlockingIOError:
                    continue
            if [len(content) for content in self._received] == sizes:
                self._answer(count)

    def _answer(self, count: int) -> None:
        """Compute the frames of a packet, and send their outputs."""
        made: list[bytes] = [b"" for _ in self._ends[1]]
        for index in range(count):
            frame = [
                content[index * end.memory_bytes :][: end.frame_bytes]
                for content, end in zip(self._received, self._ends[0], strict=True)
            ]
            for number, content in enumerate(self._compute(frame)):
                made[number] += content.ljust(self._ends[1][number].memory_bytes, b"\0")
        self._received = [b"" for _ in self._ends[0]]
        self._settle()
        self._words[self._offsets["FRAMES"]] += count
        self.packets += 1
        for content, end, pipe in zip(made, self._ends[1], self._pipes[1], strict=True):
            assert os.write(pipe, content[: end.bytes_of(count)]) == end.bytes_of(count)


class Streams:
    """Device files of a pair of channels with an accelerator behind them, whose packets meet faults.

    Parameters
    ----------
    compute : callable
        Function from the bytes of a packet to those of its outputs.
    timeout : float
        Seconds after which the kernel module ends a transfer.
    left : float
        Seconds that are left of them for the read that waits for the outputs, once a packet met a fault.

    Attributes
    ----------
    fault : str
        What the next packet meets, once: an ``error``, it is ``lost``, its outputs come ``late``, with those of the
        next packet, or are ``short``, or the user ``interrupts`` the program, which gets no outputs either.
    """

    def __init__(self, compute: Callable[[bytes], bytes], timeout: float, left: float = 0.05):
        self._compute, self._timeout, self._left = compute, timeout, left
        self._made: queue.Queue[bytes | None] = queue.Queue()
        self._late: list[bytes] = []
        self.fault = ""

    def clear(self) -> None:
        """Drop what is on its way."""
        self._late.clear()
        while not self._made.empty():
            self._made.get()

    def send(self, view: memoryview, address: int | None = None) -> int:
        assert address is None
        content = self._compute(bytes(view))
        fault, self.fault = self.fault, ""
        if fault == "interrupt":
            signal.raise_signal(signal.SIGINT)  # for the main thread, before its read can end
        if fault and fault != "short":
            self._made.put(None)
        if fault == "error":
            raise AccessError("/dev/xdma0_h2c_0: Input/output error")
        if fault == "late":
            self._late.append(content)
        elif fault in ("", "short"):
            for each in (*self._late, content[:-1] if fault == "short" else content):
                self._made.put(each)
            self._late.clear()
        return len(view)

    def receive(self, view: memoryview, address: int | None = None) -> int:
        assert address is None
        with suppress(queue.Empty):
            content = self._made.get(timeout=self._timeout)
            if content is None:  # a fault, after which the read waits on, and takes what the next run makes
                content = self._made.get(timeout=self._left)
            if content is not None:
                view[: len(content)] = content
                return len(content)
        raise AccessError("/dev/xdma0_c2h_0: Connection timed out")


def opened(root: Path, document: dict[str, Any], streams: Streams, patch: pytest.MonkeyPatch) -> Any:
    """Return what `xdma.devices` opens for a pair of streams: registers that hold their resets, channels, allocator."""
    write_registers(root, document)
    patch.setattr(xdma, "_Device", lambda _path: streams)
    registers, pairs, allocate = xdma.devices("", 1, 1, root=root)

    def write(offset: int, value: int) -> None:
        if offset == xdma._CLEAR and value:
            streams.clear()

    patch.setattr(registers, "write", write)
    return registers, pairs, allocate
