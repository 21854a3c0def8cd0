"""C drivers, compiled as they lie in the folder of a design, with registers, caches and DMAs that Python plays."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import read_text

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is missing: apt-get install gcc")
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror"]

REGISTERS, DMA, MEMORY = 0x43C00000, 0x40400000, 0x10000000
NAMES = ["OK", "NOT_THERE", "OTHER_VERSION", "OTHER_DESIGN", "UNALIGNED", "TIMEOUT", "DMA_ERROR", "WRONG_LENGTH"]
NAMES += ["WRONG_FRAME", "WRONG_WEIGHTS", "NO_BUFFER", "WRONG_COUNT", "NO_WEIGHTS"]

_PLATFORM = read_text("bench_platform.h")
_BENCH = read_text("bench.c")
_READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
_WRITE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)
_CACHE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)


def gcc(*arguments: str | Path) -> None:
    assert GCC
    done = subprocess.run([GCC, *STRICT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def compiled(built: Path, folder: Path, options: Sequence[str] = ("-O1",)) -> Path:
    """Compile the driver in ``built`` to a library, and return its path."""
    (source,) = built.glob("*_driver.c")
    (folder / "platform.h").write_text(_PLATFORM)
    (folder / "bench.c").write_text(_BENCH)
    library = folder / "driver.so"
    platform = '-DHWGEN_PLATFORM="platform.h"'
    gcc(*options, "-shared", "-fPIC", f"-I{folder}", platform, source, folder / "bench.c", "-o", library)
    return library


class Library:
    """A driver's library, with a processor's view of memory (``seen``) behind which is what hardware sees (``memory``).

    The two are one after `HWGEN_FLUSH` and `HWGEN_INVALIDATE` only, so that a driver that forgets them fails.

    Parameters
    ----------
    line : int
        Bytes that are always flushed and invalidated together.
    """

    device: Any

    def __init__(
        self,
        library: Path,
        described: dict[str, Any],
        read: Callable[[int], int],
        write: Callable[[int, int], None],
        memory: np.ndarray,
        line: int = 1,
    ):
        self.library = ctypes.CDLL(str(library))
        self.name = described["module"].removesuffix("_axi")
        self.memory, self._line = memory, line
        self.seen = np.zeros(len(memory) + 64, np.uint8)
        self.seen = self.seen[-self.seen.ctypes.data % 64 :][: len(memory)]
        self._kept = (_READ(read), _WRITE(write), _CACHE(self._cache))
        self.library.bench_set(*self._kept, ctypes.c_void_p(self.seen.ctypes.data))

    def _cache(self, kind: int, address: int, size: int) -> None:
        begin, end = address - MEMORY, address - MEMORY + size
        assert 0 <= begin <= end <= len(self.seen)
        lines = slice(begin - begin % self._line, end + -end % self._line)
        source, target = (self.seen, self.memory) if kind == 0 else (self.memory, self.seen)
        target[lines] = source[lines]

    def _call(self, name: str, *arguments: Any) -> str:
        return self.statuses[self.library[f"{self.name}_{name}"](ctypes.byref(self.device), *arguments)]

    @property
    def statuses(self) -> Mapping[int, str]:
        """Names of the driver's status codes, by code."""
        return dict(enumerate(NAMES))

    def enable_interrupt(self, events: int) -> None:
        self.library[f"{self.name}_enable_interrupt"](ctypes.byref(self.device), ctypes.c_uint32(events))

    def handle_interrupt(self) -> int:
        return self.library[f"{self.name}_handle_interrupt"](ctypes.byref(self.device))


class Driver(Library):
    """C driver of an accelerator, with packets of all streams one after the other in memory.

    Parameters
    ----------
    capacity : int
        Number of frames for which each stream has memory.
    """

    def __init__(
        self,
        library: Path,
        described: dict[str, Any],
        read: Callable[[int], int],
        write: Callable[[int, int], None],
        capacity: int = 1,
    ):
        self.streams = [*described["inputs"], *described["outputs"]]
        self.inputs = len(described["inputs"])
        dmas = max(self.inputs, len(described["outputs"]))
        self.strides = [each["frame_words"] * each["bytes"] for each in self.streams]
        places = np.cumsum([0] + [-(-capacity * stride // 64) * 64 + 64 for stride in self.strides])
        self.places = places[:-1].tolist()
        self.maps = [_map(each) for each in self.streams]
        super().__init__(library, described, read, write, np.full(int(places[-1]), 0xA5, np.uint8))

        class Device(ctypes.Structure):
            _fields_ = [
                ("registers", ctypes.c_size_t), ("dmas", ctypes.c_size_t * dmas),
                ("patience", ctypes.c_uint32), ("frames", ctypes.c_uint32),
            ]  # fmt: skip

        self.device = Device()
        self._dmas = (ctypes.c_size_t * dmas)(*(DMA + 0x10000 * number for number in range(dmas)))

    def open(self, patience: int = 1000) -> str:
        return self._call("open", ctypes.c_size_t(REGISTERS), self._dmas, ctypes.c_uint32(patience))

    def reset(self) -> str:
        return self._call("reset")

    def set_frames(self, frames: int) -> str:
        return self._call("set_frames", ctypes.c_uint32(frames))

    def load_weights(self, content: bytes) -> str:
        return self._call("load_weights", content, ctypes.c_uint32(len(content)))

    def _at(self, stream: int, offset: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.seen.ctypes.data + self.places[stream] + offset)

    def pack(self, stream: int, frame: np.ndarray, index: int = 0) -> None:
        values, offset = np.ascontiguousarray(frame, self.maps[stream].dtype), index * self.strides[stream]
        self.library[f"{self.name}_pack"](stream, ctypes.c_void_p(values.ctypes.data), self._at(stream, offset))

    def unpack(self, stream: int, index: int = 0) -> np.ndarray:
        values, offset = self.maps[stream].copy(), index * self.strides[stream]
        self.library[f"{self.name}_unpack"](stream, self._at(stream, offset), ctypes.c_void_p(values.ctypes.data))
        return values

    def frame(self, stream: int) -> np.ndarray:
        """Return the bytes of a stream's frame as the processor sees them."""
        begin = self.places[stream]
        return self.seen[begin : begin + self.streams[stream]["frame_bytes"]]

    def _arrays(self, offset: int = 0) -> list[Any]:
        pointers = [self._at(number, offset).value for number in range(len(self.streams))]
        return [(ctypes.c_void_p * len(each))(*each) for each in (pointers[: self.inputs], pointers[self.inputs :])]

    def run(self, offset: int = 0) -> str:
        return self._call("run", *self._arrays(offset))

    def start(self) -> str:
        return self._call("start", *self._arrays())

    def finish(self) -> str:
        return self._call("finish", self._arrays()[1])

    def infer(self, frames: list[np.ndarray]) -> tuple[str, list[np.ndarray]]:
        """Run one frame of each input, and return the status and the frame of each output."""
        self.pack_all(frames)
        return self.run(), self.unpack_all()

    def pack_all(self, frames: list[np.ndarray], index: int = 0) -> None:
        for stream, frame in enumerate(frames):
            self.pack(stream, frame, index)

    def unpack_all(self, index: int = 0) -> list[np.ndarray]:
        return [self.unpack(stream, index) for stream in range(self.inputs, len(self.streams))]

    def infer_packet(self, packet: list[list[np.ndarray]]) -> tuple[str, list[list[np.ndarray]]]:
        """Run a packet of frames, each with a map of each input; return the status, and the maps of each output."""
        for index, frames in enumerate(packet):
            self.pack_all(frames, index)
        return self.run(), [self.unpack_all(index) for index in range(len(packet))]


class EngineMap(ctypes.Structure):
    """A map of a program."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("address", "channels", "height", "width")), ("is_signed", ctypes.c_int),
        ("value_bytes", ctypes.c_uint32), ("frame_bytes", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in ("rows", "columns", "row_step", "column_step", "top", "left")),
        *((name, ctypes.c_uint32) for name in ("stored_height", "stored_width", "outside")),
    ]  # fmt: skip

    def empty(self, frames: int) -> np.ndarray:
        """Return empty maps ``(n, C, H, W)`` of this shape and type."""
        bits = 8 * {1: 1, 2: 2, 3: 4, 4: 4}[self.value_bytes]
        kind = np.dtype(f"{'int' if self.is_signed else 'uint'}{bits}")
        return np.zeros((frames, self.channels, self.height, self.width), kind)


class EngineDevice(ctypes.Structure):
    """C structure in which an engine's driver holds the addresses, the inputs and the outputs of its engine."""

    _fields_ = [
        ("registers", ctypes.c_size_t), ("patience", ctypes.c_uint32), ("memory", ctypes.c_void_p),
        ("frames", ctypes.c_uint32), ("input_count", ctypes.c_uint32), ("inputs", EngineMap * 16),
        ("output_count", ctypes.c_uint32), ("outputs", EngineMap * 16),
    ]  # fmt: skip


class EngineDriver(Library):
    """C driver of an engine, with maps in memory that share cache lines."""

    def __init__(
        self,
        built: Path,
        library: Path,
        read: Callable[[int], int],
        write: Callable[[int, int], None],
        memory: np.ndarray,
    ):
        super().__init__(library, described(built), read, write, memory, line=64)
        self.device = EngineDevice()
        self._header = (built / "engine_driver.h").read_text()

    @property
    def statuses(self) -> Mapping[int, str]:
        body = self._header.split("typedef enum {")[1].split("}")[0]
        names, found = re.findall(r"^ +ENGINE_(\w+)(?: = (\d+))?,? */\*", body, re.MULTILINE), {}
        for name, value in names:
            found[int(value) if value else max(found) + 1] = name
        return found

    def open(self, patience: int = 1000) -> str:
        return self._call("open", ctypes.c_size_t(REGISTERS), ctypes.c_uint32(patience))

    def load(self, program: bytes, begin: int, size: int) -> str:
        """Load a program into ``size`` bytes of the memory from the byte ``begin`` on, and return the status."""
        memory = ctypes.c_void_p(self.seen.ctypes.data + begin)
        return self._call("load", program, ctypes.c_uint32(len(program)), memory, ctypes.c_uint32(size))

    def blank(self) -> list[np.ndarray]:
        """Return empty frames ``(n, C, H, W)`` of each input for one run."""
        inputs = self.device.inputs[: self.device.input_count]
        return [each.empty(self.device.frames) for each in inputs]

    def start(self, *frames: np.ndarray) -> str:
        """Start a run with frames ``(n, C, H, W)`` of each input, as many as a run has, and return the status."""
        given = self._given(frames)
        return self._call("start", _pointers(given))

    def finish(self) -> tuple[str, list[np.ndarray]]:
        results, pointers = self._results()
        return self._call("finish", pointers), results

    def run(self, *frames: np.ndarray) -> tuple[str, list[np.ndarray]]:
        given, (results, pointers) = self._given(frames), self._results()
        return self._call("run", _pointers(given), pointers), results

    def put(self, *frames: np.ndarray) -> str:
        given = self._given(frames)
        return self._call("put", _pointers(given))

    def take(self) -> tuple[str, list[np.ndarray]]:
        results, pointers = self._results()
        return self._call("take", pointers), results

    def begin(self) -> str:
        return self._call("begin")

    def wait(self) -> str:
        return self._call("wait")

    def _given(self, frames: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        given = [np.ascontiguousarray(values) for values in frames]
        if self.device.memory is not None:
            sizes, stated = ([(each.shape, each.itemsize) for each in arrays] for arrays in (given, self.blank()))
            assert sizes == stated
        return given

    def _results(self) -> tuple[list[np.ndarray], Any]:
        outputs = self.device.outputs[: self.device.output_count]
        results = [each.empty(self.device.frames) for each in outputs]
        return results, _pointers(results)

    def stop(self) -> str:
        return self._call("stop")


def _pointers(arrays: list[np.ndarray]) -> Any:
    """Return a C array of the addresses of arrays, which must stay alive."""
    return (ctypes.c_void_p * 16)(*(each.ctypes.data for each in arrays))


def _map(stream: dict[str, Any]) -> np.ndarray:
    layout = stream["layout"]
    kind = f"<{'i' if stream['signed'] else 'u'}{stream['value_bytes']}"
    return np.zeros((layout["channels"], layout["height"], layout["width"]), kind)


class Channel:
    """The registers of a channel of an AXI DMA in simple mode: PG021, Direct Register Mode.

    Parameters
    ----------
    move : callable
        Told address and length when a frame is to be moved.
    """

    CONTROL, STATUS, ADDRESS, HIGH_ADDRESS, LENGTH = 0x00, 0x04, 0x18, 0x1C, 0x28

    def __init__(self, move: Callable[[int, int], None], cancel: Callable[[], None] = lambda: None):
        self._move, self._cancel = move, cancel
        self.reset()

    def reset(self) -> None:
        self.running, self.busy, self.complete, self.errors, self.address, self.length = False, False, False, 0, 0, 0
        self._cancel()

    def done(self, length: int) -> None:
        self.busy, self.complete, self.length = False, True, length

    def read(self, offset: int) -> int:
        if offset == self.STATUS:
            halted, idle = not self.running, self.running and not self.busy
            return halted | idle << 1 | self.errors << 4 | self.complete << 12
        return {self.CONTROL: int(self.running), self.ADDRESS: self.address, self.LENGTH: self.length}[offset]

    def write(self, offset: int, value: int) -> bool:
        """Whether the whole DMA is to be reset."""
        if offset == self.CONTROL:
            self.running = bool(value & 1)
            return bool(value & 4)
        if offset == self.STATUS:
            self.complete &= not value >> 12 & 1
        elif offset == self.ADDRESS:
            self.address = value
        elif offset == self.HIGH_ADDRESS:
            assert not value, "memory is below 4 GiB"
        else:
            assert offset == self.LENGTH
            assert self.running, "a length written to a channel that is halted is lost"
            assert not self.busy, "the channel moves a frame"
            assert 0 < value < 1 << 26
            self.busy, self.length = True, value
            self._move(self.address, value)
        return False


class Dma:
    """Both channels: the one into the accelerator, and the one out of it."""

    def __init__(self, send: Channel | None, receive: Channel | None):
        self.channels = {0x00: send, 0x30: receive}

    def _channel(self, offset: int) -> tuple[Channel, int]:
        base = 0x30 if offset >= 0x30 else 0
        channel = self.channels[base]
        assert channel is not None, "there is no such channel"
        return channel, offset - base

    def read(self, offset: int) -> int:
        channel, offset = self._channel(offset)
        return channel.read(offset)

    def write(self, offset: int, value: int) -> None:
        channel, offset = self._channel(offset)
        if channel.write(offset, value):
            for each in self.channels.values():
                if each is not None:
                    each.reset()


def described(built: Path) -> dict[str, Any]:
    return json.loads((built / "registers.json").read_text())
