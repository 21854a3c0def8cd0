"""Runs of an accelerator's C driver on `wrapper_model`, under faults, in a process with AddressSanitizer.

Arguments: the folder of the design, the driver's library, a seed, the number of runs. Prints how often each fault was
played, and how many frames were compared. `sanitized.accelerator_runs` starts it.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from c_driver import Driver, described
from wrapper_model import MEMORY, REGISTERS, Memory, Wrapper, compute, weights_file

#: Frames of the largest packet.
CAPACITY = 4
FAULTS = ["none"] * 4 + ["wrong count"] + [
    "nothing finished", "reset", "opened again", "time-out", "disabled", "short", "missing", "left",
    "no buffer", "unaligned", "dma", "stuck reset", "weights", "wrong weights", "no stream",
]  # fmt: skip


class Runs:
    """A driver on hardware, one packet of each input after the other."""

    def __init__(self, built: Path, library: Path, rng: np.random.Generator):
        document = described(built)
        self.rng, self.has_weights = rng, any(each["name"] == "WEIGHTS" for each in document["registers"])
        self.memory = Memory()
        self.hardware = Wrapper(document, compute, rng, self.memory)
        self.driver = Driver(library, document, self.hardware.read, self.hardware.write, CAPACITY)
        self.memory.add(MEMORY, self.driver.memory)
        self.sizes = [each["frame_bytes"] for each in self.driver.streams]
        self.weights = [0, 0]
        self.counts = Counter[str]()
        self.open()

    def open(self) -> None:
        """Open the driver, whose packets then have one frame."""
        assert self.driver.open(patience=400) == "OK"
        self._limit(1)

    def set_frames(self, count: int) -> None:
        assert self.driver.set_frames(count) == "OK"
        self._limit(count)

    def _limit(self, count: int) -> None:
        """Forbid what lies between packets of ``count`` frames to the driver."""
        self.count, library = count, ctypes.CDLL(None)
        base, ends = self.driver.seen.ctypes.data, [*self.driver.places[1:], len(self.driver.seen)]
        library["__asan_unpoison_memory_region"](ctypes.c_void_p(base), ctypes.c_size_t(len(self.driver.seen)))
        for begin, size, stride, end in zip(self.driver.places, self.sizes, self.driver.strides, ends, strict=True):
            first = begin + -(-((count - 1) * stride + size) // 8) * 8  # the granularity is 8 bytes
            library["__asan_poison_memory_region"](ctypes.c_void_p(base + first), ctypes.c_size_t(end - first))

    def frames(self) -> list[np.ndarray]:
        maps = self.driver.maps[: self.driver.inputs]
        return [self.rng.integers(0, 256, each.shape).astype(np.uint8) for each in maps]

    def check(self) -> None:
        """Run a packet, and check the outputs of its frames."""
        packet = [self.frames() for _ in range(self.count)]
        status, found = self.driver.infer_packet(packet)
        assert status == "OK", status
        for frames, outputs in zip(packet, found, strict=True):
            content = [frame.transpose(1, 2, 0).tobytes() for frame in frames]
            made = compute(self.sizes[self.driver.inputs :], content, self.weights)
            for output, expected in zip(outputs, made, strict=True):
                assert output.transpose(1, 2, 0).tobytes() == expected
        self.counts["packets"] += 1

    def fail(self, *statuses: str) -> None:
        status = self.driver.infer_packet([self.frames() for _ in range(self.count)])[0]
        assert status in statuses, status

    def play(self, fault: str) -> None:
        """Provoke a fault, and check that the next frame is right."""
        self.counts[fault.replace(" ", "_")] += 1
        if self.rng.integers(2):
            self.set_frames(int(self.rng.integers(1, CAPACITY + 1)))
        method: Callable[[], None] = getattr(self, "_" + fault.replace(" ", "_").replace("-", "_"))
        method()
        self.check()
        assert not self.memory.stray

    def _none(self) -> None: ...

    def sweep(self) -> None:
        """Reset in the middle of a frame, later each time, and check the next frame."""
        for accesses in range(30):
            self._nothing_finished(accesses)
            assert self.driver.reset() == "OK"
            self.check()

    def _nothing_finished(self, accesses: int | None = None) -> None:
        """Start a frame that is never finished, and read registers while it is computed."""
        for index in range(self.count):
            self.driver.pack_all(self.frames(), index)
        assert self.driver.start() == "OK"
        for _ in range(int(self.rng.integers(30)) if accesses is None else accesses):
            self.hardware.read(REGISTERS)

    def _reset(self) -> None:
        self._nothing_finished()
        assert self.driver.reset() == "OK"

    def _opened_again(self) -> None:
        self._nothing_finished()
        self.open()

    def _wrong_count(self) -> None:
        """Counts that the hardware or a DMA can't move change nothing; another count drops what was started."""
        for count in (0, 1 << 16, (1 << 32) - 1):
            assert self.driver.set_frames(count) == "WRONG_COUNT"
        self._nothing_finished()
        self.set_frames(int(self.rng.integers(1, CAPACITY + 1)))

    def _time_out(self) -> None:
        self.hardware.is_stuck = True
        self.fail("TIMEOUT")
        self.hardware.is_stuck = False

    def _disabled(self) -> None:
        self.hardware._values["CONTROL"] = 0
        self.fail("TIMEOUT")
        self.open()

    def _short(self) -> None:
        self.hardware.sends[-1].cut = int(self.rng.integers(1, 9))
        self.fail("WRONG_FRAME")
        self.hardware.sends[-1].cut = 0

    def _missing(self) -> None:
        """Let some bytes of each output be missing. If all bytes of an output are missing, its frame does not end."""
        self.hardware.missing = int(self.rng.integers(1, max(self.sizes[self.driver.inputs :])))
        self.fail("WRONG_LENGTH", "TIMEOUT")
        self.hardware.missing = 0

    def _left(self) -> None:
        """Put a part of another program's frame into the accelerator."""
        self.hardware._put(0, self.rng.bytes(int(self.rng.integers(1, 30))), is_last=False)

    def _no_buffer(self) -> None:
        count = len(self.driver.streams)
        inputs, outputs = self.driver._arrays()
        holes = [None, *range(count)]
        hole = holes[int(self.rng.integers(len(holes)))]
        if hole is not None:
            side = inputs if hole < self.driver.inputs else outputs
            side[hole - (0 if hole < self.driver.inputs else self.driver.inputs)] = None
        given: tuple[Any, Any] = (inputs, outputs) if hole is not None else (None, outputs)
        assert self.driver._call("run", *given) == "NO_BUFFER"
        assert self.driver._call("start", inputs, None) == "NO_BUFFER"
        assert self.driver._call("finish", None) == "NO_BUFFER"
        assert self.driver._call("open", ctypes.c_size_t(0), None, ctypes.c_uint32(1)) == "NO_BUFFER"

    def _unaligned(self) -> None:
        assert self.driver.run(offset=2) == "UNALIGNED"

    def _dma(self) -> None:
        """Let a DMA fail in the middle of a frame."""
        channel = self.hardware.receives[0]
        step = channel.step

        def fail() -> None:
            if channel.busy and channel.done:
                channel.fail(int(1 << self.rng.integers(3)))
            step()

        channel.step = fail
        self.fail("DMA_ERROR")
        channel.step = step

    def _stuck_reset(self) -> None:
        self.hardware.dmas[0].is_stuck = True
        assert self.driver.reset() == "DMA_ERROR"
        self.fail("DMA_ERROR")
        self.hardware.dmas[0].is_stuck = False

    def _weights(self) -> None:
        if self.has_weights:
            weights = self.rng.integers(0, 1 << 32, 2).tolist()
            assert self.driver.load_weights(weights_file(weights, b"{}")) == "OK"
            self.weights = weights

    def _wrong_weights(self) -> None:
        """Load a damaged file of weights, and then the right file."""
        if not self.has_weights:
            return
        content = bytearray(weights_file(self.weights, bytes(int(self.rng.integers(20)))))
        for _ in range(int(self.rng.integers(1, 4))):
            content[int(self.rng.integers(len(content)))] = int(self.rng.integers(256))
        size = int(self.rng.integers(len(content) + 1)) if self.rng.integers(2) else len(content)
        status = self.driver.load_weights(bytes(content[:size]))
        assert status in ("WRONG_WEIGHTS", "OK"), status
        if not self.hardware.has_whole_weights:
            self.fail("NO_WEIGHTS")
        assert self.driver._call("load_weights", None, ctypes.c_uint32(100)) == "NO_BUFFER"
        assert self.driver.reset() == "OK"
        assert self.driver.load_weights(weights_file(self.weights, b"")) == "OK"

    def _no_stream(self) -> None:
        """Numbers beyond the last stream, and NULL: nothing is done."""
        for name in ("pack", "unpack"):
            function = self.driver.library[f"{self.driver.name}_{name}"]
            for stream in (len(self.sizes), 0xFFFF_FFFF):
                function(ctypes.c_uint(stream), self.driver._at(0), self.driver._at(0))
            function(ctypes.c_uint(0), None, self.driver._at(0))
            function(ctypes.c_uint(0), self.driver._at(0), None)


def main() -> None:
    built, library, seed, count = sys.argv[1:]
    runs = Runs(Path(built), Path(library), np.random.default_rng(int(seed)))
    for number in range(int(count)):  # each fault once, then any
        runs.play(FAULTS[-1 - number if number < len(FAULTS) else int(runs.rng.integers(len(FAULTS)))])
    runs.sweep()
    for name, number in runs.counts.items():
        print(name, number)


if __name__ == "__main__":
    main()
