"""Runs of the drivers of an accelerator on `wrapper_model`: designs, what they compute, faults, and stubs of ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from pynq_model import PynqDma
from wrapper_model import DIGEST, DMA, REGISTERS, Memory, Wrapper, compute, weights_file

from hwgen.emit import driver, wrapper
from hwgen.gateware.bus.shell import ShellConfig, ends_of
from hwgen.gateware.stream import BeatFormat, Order, Port

SCALE = 0.25


def _port(name: str, channels: int, height: int, width: int) -> Port:
    beat = BeatFormat(channels=channels, height=height, width=width, lanes=1, bits=8, signed=False)
    return Port(name, beat, beat.raster)


def shell_of(inputs: int, outputs: int, *, weights: bool = False) -> ShellConfig:
    """Return the wrapper of an accelerator with streams of different map sizes."""
    sources = [_port(f"i_{number}", 2 + number, 3, 3) for number in range(inputs)]
    results = [_port(f"o_{number}", 5 - number, 2, 1 + number) for number in range(outputs)]
    return ShellConfig(
        inputs=ends_of(sources, "s_axis"), outputs=ends_of(results, "m_axis"), build_hash=0xABCD, weights=weights
    )


class Clock:
    """The driver's ``time``: as much passes as registers are accessed."""

    def __init__(self, hardware: Wrapper):
        self._hardware = hardware

    def monotonic(self) -> float:
        return self._hardware.accesses / 1000


class Bench:
    """A design in a folder, hardware, and the Python driver on it.

    Parameters
    ----------
    folder : Path
        To work in.
    seed : int
        For how fast the hardware is.
    inputs, outputs : int
        Streams.
    weights : bool
        They are loaded at run time.
    dma : callable
        `PynqDma`, or `hwgen.emit.linux.Dma`: makes the object of a DMA from its registers.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        inputs: int = 1,
        outputs: int = 1,
        *,
        weights: bool = False,
        dma: Callable[..., Any] = PynqDma,
    ):
        self._dma = dma
        self.folder, self.shell = folder, shell_of(inputs, outputs, weights=weights)
        self.document = json.loads(json.dumps(wrapper.to_json(self.shell, "net_axi")))
        shapes = {"input": _shapes(self.document["inputs"]), "output": _shapes(self.document["outputs"])}
        self.shapes = shapes
        (folder / "registers.json").write_text(json.dumps(self.document))
        (folder / "plan.json").write_text(json.dumps(self._ends(SCALE)))
        if weights:
            (folder / "weights.json").write_text(json.dumps({"digest": f"0x{DIGEST:016x}"}))
        self.sizes = [each["frame_bytes"] for each in self.document["outputs"]]
        self.memory = Memory()
        rng = np.random.default_rng(seed)
        self.hardware = Wrapper(self.document, compute, rng, self.memory)
        self.scale, self.weights = SCALE, [0, 0]

    def _ends(self, scale: float) -> dict[str, Any]:
        """Both ends as ``plan.json`` has them."""
        return {
            f"{kind}s": [
                {"name": f"{kind}{number}", "shape": shape, "scale": scale, "zero_point": 0}
                for number, shape in enumerate(shapes)
            ]
            for kind, shapes in self.shapes.items()
        }

    def open(self, timeout: float = 0.5, limit: int = 64) -> driver.Accelerator:
        """Begin a program: what the one before held in memory is free. A DMA moves less than ``limit`` bytes."""
        self.memory.free_all()
        for dma in self.hardware.dmas:
            dma.settle()
        dmas = [
            self._dma(
                SimpleNamespace(
                    read=lambda offset, base=base: self.hardware.read(base + offset),
                    write=lambda offset, value, base=base: self.hardware.write(base + offset, value),
                ),
                sends=dma.send is not None,
                receives=dma.receive is not None,
            )
            for base, dma in ((DMA + 0x10000 * number, dma) for number, dma in enumerate(self.hardware.dmas))
        ]
        for dma in dmas:
            dma.buffer_max_size = limit
        registers = SimpleNamespace(
            read=lambda offset: self.hardware.read(REGISTERS + offset),
            write=lambda offset, value: self.hardware.write(REGISTERS + offset, value),
        )
        accelerator = driver.Accelerator(
            registers, dmas, allocate=self.memory.allocate, folder=self.folder, timeout=timeout
        )
        self.scale = SCALE
        return accelerator

    def frames(self, rng: np.random.Generator, count: int) -> list[np.ndarray]:
        """Random frames of all inputs."""
        return [rng.integers(0, 256, (count, *shape)).astype(np.uint8) for shape in self.shapes["input"]]

    def expected(self, frames: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the expected outputs. A frame in memory is an array ``(H, W, C)`` (docs/reference/axi.md)."""
        made = []
        for each in zip(*frames, strict=True):
            outputs = compute(self.sizes, [frame.transpose(1, 2, 0).tobytes() for frame in each], self.weights)
            made.append([
                np.frombuffer(content, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
                for content, (channels, height, width) in zip(outputs, self.shapes["output"], strict=True)
            ])  # fmt: skip
        return [np.stack(each) for each in zip(*made, strict=True)]

    def check(self, accelerator: driver.Accelerator, frames: Sequence[np.ndarray], *, integers: bool = True) -> None:
        """Run frames; each output must be the one of its frame."""
        found = accelerator.run(*frames, integers=integers)
        outputs = found if isinstance(found, tuple) else (found,)
        for output, expected in zip(outputs, self.expected(frames), strict=True):
            wanted = expected if integers else expected.astype(np.float32) * np.float32(self.scale)
            np.testing.assert_array_equal(output, wanted)

    def weights_file(self, weights: Sequence[int], scale: float) -> Path:
        """Write a file of weights in the format of docs/reference/weights.md, and return its path."""
        text = {"design": f"0x{DIGEST:016x}", "words": len(weights) + 3, **self._ends(scale)}
        path = self.folder / "new.weights"
        path.write_bytes(weights_file(weights, json.dumps(text).encode()))
        return path


def _shapes(streams: Sequence[dict[str, Any]]) -> list[list[int]]:
    return [[each["layout"][size] for size in ("channels", "height", "width")] for each in streams]


DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@st.composite
def ports(draw) -> Port:
    """Any beats, in row-major order or in rectangles that overlap or leave gaps."""
    groups, height, width = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    channels = groups * draw(st.integers(1, 5))
    beat = BeatFormat(
        channels=channels, height=height, width=width, lanes=draw(st.integers(1, channels // groups)),
        bits=draw(st.sampled_from([4, 8, 11])), signed=draw(st.booleans()), pixels=draw(st.integers(1, 4)),
        groups=groups,
    )  # fmt: skip

    def spans(size: int) -> tuple[tuple[int, int], ...]:
        begins = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=3))
        return tuple((begin, draw(st.integers(begin + 1, size))) for begin in begins)

    columns = spans(width)
    grids = tuple(draw(st.integers(0, begin)) for begin, _ in columns)
    order = draw(st.sampled_from([beat.raster, Order(rows=spans(height), columns=columns, grids=grids)]))
    return Port("i", beat, order)


class Still:
    """Hardware that answers, and never moves a frame."""

    def __init__(self, folder: Path, **other: int):
        described = json.loads((folder / "registers.json").read_text())["registers"]
        self.values = {register["offset"]: register["reset"] for register in described}
        self.values |= {
            register["offset"]: other[register["name"]] for register in described if register["name"] in other
        }

    def read(self, offset: int) -> int:
        return self.values[offset]

    def write(self, offset: int, value: int) -> None: ...


def packed(stream: Any, frame: np.ndarray) -> np.ndarray:
    """Return the values of one feature map as a DMA moves them, without padding."""
    memory = stream.memory(np.zeros, 1)
    stream.pack(frame[None], memory)
    return memory[0, : len(stream.places)]


def unpacked(stream: Any, values: np.ndarray) -> np.ndarray:
    """Return the feature map of values as a DMA moves them, without padding."""
    memory = stream.memory(np.zeros, 1)
    memory[0, : len(values)] = values
    return stream.unpack(memory)[0]


def still_dma() -> SimpleNamespace:
    """Return a DMA that moves nothing."""
    channel = SimpleNamespace(
        transfer=lambda buffer, start, nbytes: None, idle=False, wait=lambda: None, start=lambda: None
    )
    registers = {"read": lambda offset: 0, "write": lambda offset, value: None}
    return SimpleNamespace(sendchannel=channel, recvchannel=channel, **registers)
