"""Sessions on every device through 10,000 frames with faults: no frame is lost, swapped or stale."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pynq_model import GoldenOverlay, pynq_module
from wrapper_model import Memory

import hwgen
from hwgen.emit import linux
from hwgen.host import board

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
FRAMES = 10_000
FAULTS = {
    "dma": ("error", "lost", "late", "short", "interrupt"),
    "serial": ("damaged", "cut", "lost", "refused", "repeated", "interrupt"),
}


class Line:
    """Serial port, behind which a board sends outputs that are known, and meets faults.

    Parameters
    ----------
    module : module
        Serial driver of the design.
    build_hash : int
        Hash that the board answers to HELLO.
    outputs : dict of bytes to bytes
        Bytes of a frame's outputs by those of the frame.

    Attributes
    ----------
    fault : str
        What a later frame meets, once: its outputs are ``damaged``, ``cut`` or ``lost``, the board ``refused`` it or
        ``repeated`` the outputs before, or the user ``interrupts`` the program.
    """

    def __init__(self, module: ModuleType, build_hash: int, outputs: dict[bytes, bytes]) -> None:
        self._module, self._hash, self._outputs = module, build_hash, outputs
        self._queue, self._before = bytearray(), b""
        self.fault, self.after = "", 0

    def write(self, data: bytes) -> None:
        for text in filter(None, data.split(bytes([self._module.END]))):
            kind, number, values = self._module.parsed(text)
            if kind == self._module.HELLO:
                self._queue += self._module.packet(kind, number, self._hash.to_bytes(8, "little"))
            else:
                self._answer(number, self._outputs[values])

    def _answer(self, number: int, values: bytes) -> None:
        reply = self._module.packet(self._module.FRAME, number, values)
        before, self._before = self._before, reply
        self.after -= 1
        if self.fault and self.after < 0:
            fault, self.fault = self.fault, ""
            if fault == "interrupt":
                raise KeyboardInterrupt
            changed = bytearray(reply)
            changed[len(reply) // 2] ^= 1
            cut = reply[: len(reply) // 2] + reply[len(reply) // 2 + 1 :]
            refused = self._module.packet(self._module.ERROR, number)
            replies = {"damaged": bytes(changed), "cut": cut, "lost": b"", "refused": refused, "repeated": before}
            reply = replies[fault]
        self._queue += reply

    def read(self, size: int) -> bytes:
        data, self._queue = bytes(self._queue[:size]), self._queue[size:]
        return data

    def close(self) -> None:
        pass


def by_pynq(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session through PYNQ, and what takes its faults."""
    pynq, made = pynq_module(model, folder), list[GoldenOverlay]()
    overlay = pynq.Overlay
    pynq.Overlay = lambda path: made.append(overlay(path)) or made[-1]
    patch.setitem(sys.modules, "pynq", pynq)
    return hwgen.Session(folder, "pynq", model=model, timeout=0.05), made[0]


def by_linux(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session without PYNQ, with the DMAs of the emitted driver for Linux, and what takes its faults."""
    overlay, driver_of = GoldenOverlay(model, folder, Memory()), board.driver_of

    def patched(*arguments: Any) -> ModuleType:
        module = driver_of(*arguments)
        access = overlay.control, [linux.Dma(overlay.registers)], overlay.memory.allocate
        module._ACCESSES["linux"] = lambda *_: access
        return module

    patch.setattr(board, "driver_of", patched)
    return hwgen.Session(folder, "linux", model=model, timeout=0.05), overlay


def by_serial(folder: Path, model: hwgen.Model, frames: np.ndarray, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return a session behind a serial port, and what takes its faults."""
    made = list[Line]()
    serial: Any = ModuleType("serial")
    outputs: dict[bytes, bytes] = {}
    build_hash = int(json.loads((folder / "registers.json").read_text())["build_hash"], 0)

    def opened(*_: Any, **__: Any) -> Line:
        made.append(Line(module, build_hash, outputs))
        return made[-1]

    serial.Serial = opened
    patch.setitem(sys.modules, "serial", serial)
    module = board.driver_of(board.Hardware(model, folder=folder), "serial")
    session: Any = hwgen.Session(folder, "serial", model=model, port="played", timeout=0)
    driver = session.device.driver
    integers: Any = model.golden(frames, integers=True)
    contents = []
    for end, values in ((driver.input, driver.input.to_maps(frames)), (driver.output, integers)):
        memory = end.stream.memory(np.zeros, len(values))
        end.stream.pack(values.reshape(len(values), *end.stream.shape).astype(end.stream.dtype), memory)
        contents.append([row.tobytes()[: end.stream.frame_bytes] for row in memory])
    outputs.update(zip(*contents, strict=True))
    return session, made[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "opened", "on"),
    [("pynq-z2", by_pynq, "dma"), ("pynq-z2", by_linux, "dma"), ("ulx3s", by_serial, "serial")],
    ids=["pynq", "linux", "serial"],
)
def test_faults(name: str, opened: Callable, on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch has its own outputs, whatever the one before met; each fault is an error."""
    model, rng = hwgen.load(DIGITS), np.random.default_rng(32)
    folder = model.plan(name, dsp=40, multipliers="dsp").build(tmp_path / "built")
    frames = rng.uniform(0, 1, (FRAMES, 1, 8, 8)).astype(np.float32)
    expected: Any = model.golden(frames)
    differ = (expected[1:] != expected[:-1]).any(axis=1)
    assert differ.mean() > 0.99  # so that a frame too early or too late is seen
    session, hardware = opened(folder, model, frames, monkeypatch)
    met, begin = Counter[str](), 0
    while begin < FRAMES:
        batch = slice(begin, begin + int(rng.integers(1, 120)))
        feed = {"image": frames[batch]}
        if rng.random() < 0.4:
            hardware.fault = fault = str(rng.choice(FAULTS[on]))
            hardware.after = int(rng.integers(len(feed["image"])))
            met[fault] += 1
            with pytest.raises(KeyboardInterrupt if fault == "interrupt" else hwgen.DeviceError):
                session.run(None, feed)
            assert not hardware.fault
            other = frames[-len(feed["image"]) :]  # whose outputs differ from any that are left of this batch
            np.testing.assert_array_equal(session.run(None, {"image": other})[0], expected[-len(other) :])
        np.testing.assert_array_equal(session.run(None, feed)[0], expected[batch])
        begin += len(feed["image"])
    assert all(met[fault] >= 3 for fault in FAULTS[on])


@pytest.mark.long
def test_refused_feeds_in_simulation() -> None:
    """A stream of frames in simulation; feeds that do not fit are errors between them."""
    model, rng = hwgen.load(DIGITS), np.random.default_rng(33)
    session = hwgen.Session(model.plan("pynq-z2"), simulator="verilator")
    frames = rng.uniform(0, 1, (FRAMES, 1, 8, 8)).astype(np.float32)
    expected: Any = model.golden(frames)
    for batch in (slice(0, 1), slice(1, 100), slice(100, FRAMES)):
        for wrong in ({"image": frames[:1, :, :4]}, {"image": frames[:1] * np.nan}, {"picture": frames[:1]}, {}):
            with pytest.raises(hwgen.InputError):
                session.run(None, wrong)
        feeds = ({"image": part} for part in np.array_split(frames[batch], max(1, len(frames[batch]) // 50)))
        found = np.concatenate([values for (values,) in session.stream(None, feeds, frames=FRAMES)])
        np.testing.assert_array_equal(found, expected[batch])
