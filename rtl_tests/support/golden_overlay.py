"""A stand-in for PYNQ whose overlays compute by a golden model."""

from __future__ import annotations

import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from c_driver import Channel, Dma
from pynq_model import PynqDma
from wrapper_model import Memory

import hwgen
from hwgen.emit.driver import Stream


class GoldenOverlay:
    """An overlay of PYNQ with a golden model behind a DMA, by the names that cells have in the project.

    Parameters
    ----------
    model : Model
        With one input and one output.
    folder : Path
        Folder with the design's ``registers.json``.
    memory : Memory
        Memory of the buffers.

    Attributes
    ----------
    fault : str
        What the next packet meets, once: its DMA reports an ``error``, it is ``lost``, its outputs come ``late``, with
        those of the next packet, or are ``short``, or the user ``interrupts`` the program.
    """

    def __init__(self, model: hwgen.Model, folder: Path, memory: Memory):
        described = json.loads((folder / "registers.json").read_text())
        registers = {each["offset"]: each["reset"] for each in described["registers"]}
        control = SimpleNamespace(read=registers.get, write=lambda offset, value: None)
        ends = [Stream(described[side][0]) for side in ("inputs", "outputs")]
        waiting: list[np.ndarray] = []
        late: list[np.ndarray] = []
        asked: list[np.ndarray] = []
        self.fault = ""

        def found(address: int, length: int) -> np.ndarray:
            content = memory.find(address, length)
            assert content is not None
            return content

        def send(address: int, length: int) -> None:
            source, sink = ends
            count = 1 + (length - source.frame_bytes) // source.memory_bytes
            content = np.zeros(count * source.memory_bytes, np.uint8)
            content[:length] = found(address, length)
            made = model.golden(source.unpack(content.view(source.dtype).reshape(count, -1)), integers=True)
            assert isinstance(made, np.ndarray)
            result = sink.memory(np.zeros, count)
            sink.pack(made, result)
            content = result.reshape(-1).view(np.uint8)[: sink.bytes_of(count)]
            fault, self.fault = self.fault, ""
            if fault == "error":
                sender.errors = 1
                return
            if fault == "interrupt":
                raise KeyboardInterrupt
            if fault == "late":
                late.append(content)
            elif fault != "lost":
                waiting.extend([*late, content[:-1] if fault == "short" else content])
                late.clear()
            sender.done(length)
            give()

        def receive(address: int, length: int) -> None:
            asked.append(found(address, length))
            give()

        def give() -> None:
            while waiting and asked:
                content = waiting.pop(0)
                asked.pop(0)[: len(content)] = content
                receiver.done(len(content))

        def cancel() -> None:
            waiting.clear()
            late.clear()

        sender, receiver = Channel(send, cancel), Channel(receive, asked.clear)
        self.registers, self.control, self.memory = Dma(sender, receiver), control, memory
        vars(self)[f"{described['module']}_0"] = control
        self.axi_dma_0 = PynqDma(self.registers)


def pynq_module(model: hwgen.Model, folder: Path) -> Any:
    """Return a module in place of ``pynq``, which loads the one bitstream of a folder."""
    pynq: Any = ModuleType("pynq")
    pynq.__spec__ = ModuleSpec("pynq", None)
    memory = Memory()
    name = json.loads((folder / "registers.json").read_text())["module"].removesuffix("_axi")

    def overlay(path: str) -> GoldenOverlay:
        assert path == str(folder / f"{name}.bit")
        return GoldenOverlay(model, folder, memory)

    pynq.Overlay, pynq.allocate = overlay, memory.allocate
    return pynq
