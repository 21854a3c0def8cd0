"""Accelerators on buses that others wrote models of (cocotbext-axi), as they are built."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import onnx
import pytest
from cocotb_bench import needs_cocotb, needs_verilator
from several_inputs import pictures, siamese

import hwgen
from hwgen.network import golden
from hwgen.network.quantise import quantise

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@dataclass
class Built:
    """A design's files, and what goes in and out."""

    design: hwgen.Design
    files: dict[str, bytes]
    top: str

    @classmethod
    def of(cls, design: hwgen.Design, folder: Path) -> Built:
        made = design.build(folder)
        files = {path.name: path.read_bytes() for path in made.iterdir() if path.suffix in (".v", ".mem", ".json")}
        top = json.loads(files["registers.json"])["module"]
        return cls(design, {name: files[name] for name in files if not name.endswith("_tb.v")}, top)

    @property
    def registers(self) -> dict[str, Any]:
        return json.loads(self.files["registers.json"])

    def frames(self, count: int, seed: int) -> list[np.ndarray]:
        """``(n, C, H, W)`` of each input."""
        rng, found = np.random.default_rng(seed), []
        for source in self.design.network.input_maps:
            kind = source.type
            found.append(rng.integers(kind.minimum, kind.maximum + 1, (count, *source.shape)).astype(kind.dtype))
        return found

    def phase(
        self, count: int, lengths: dict[int, float] | None = None, *, seed: int = 0, **more: Any
    ) -> dict[str, Any]:
        """So many frames; of the last input some of another length: by so many bytes, or, of type float, that share."""
        sent: list[list[bytes]] = []
        computed, errors = [], 0
        frames = self.frames(count, seed)
        for place, (stream, maps) in enumerate(zip(self.registers["inputs"], frames, strict=True)):
            size, changes = stream["frame_bytes"], (lengths or {}) if place == len(frames) - 1 else {}
            whole = [in_memory(frame) for frame in maps]
            assert {len(content) for content in whole} == {size}
            sent.append([])
            for number, content in enumerate(whole):
                change = changes.get(number, 0)
                length = size + (round(change * size) if isinstance(change, float) else change)
                errors |= ((length < size) + 2 * (length > size)) << 2 * place
                sent[-1].append((content + content)[:length])
            read = [from_memory((content + bytes(size))[:size], maps[0]) for content in sent[-1]]
            computed.append(np.stack(read).astype(maps.dtype))
        outputs = golden.outputs(self.design.network, computed)
        defaults = {"pause": 0.0, "reset": "", "reset_at": 0, "interval": 0}
        return defaults | more | {
            "sent": [[content.hex() for content in each] for each in sent],
            "expected": [[in_memory(frame).hex() for frame in each] for each in outputs],
            "errors": errors,
        }  # fmt: skip

    def run(self, folder: Path, phases: list[dict[str, Any]], simulator: str = "icarus") -> None:
        sources = {name: content for name, content in self.files.items() if not name.endswith(".json")}
        told = {"registers": self.registers, "phases": phases}
        cocotb_bench.run(sources, self.top, "cocotb_wrapper", folder, simulator=simulator, **told)


def in_memory(frame: np.ndarray) -> bytes:
    """A map ``(C, H, W)`` as the bus has it: its pixels row by row, the channels of each in order."""
    return frame.transpose(1, 2, 0).astype(frame.dtype.newbyteorder("<")).tobytes()


def from_memory(content: bytes, like: np.ndarray) -> np.ndarray:
    """The inverse."""
    channels, height, width = like.shape
    return np.frombuffer(content, like.dtype.newbyteorder("<")).reshape(height, width, channels).transpose(2, 0, 1)


def check(design: hwgen.Design, folder: Path, count: int = 3) -> None:
    """Back to back at the plan's interval; wrong frames; pauses; resets: in one run, as a board sees it."""
    built = Built.of(design, folder / "built")
    interval = json.loads(design.to_json())["cycles"]["interval"]
    beat = built.registers["inputs"][-1]["beat_bytes"]
    assert interval
    assert all(stream["is_free"] for side in ("inputs", "outputs") for stream in built.registers[side])
    built.run(
        folder,
        [
            built.phase(count + 2, interval=interval),
            built.phase(count + 1, {0: -beat, 1: -0.5}, seed=1),
            built.phase(count + 1, {0: beat, 1: 0.5}, pause=0.3, seed=2),
            # Just the flag of bytes within the last word, if that has room for some.
            built.phase(2, {0: -1}, seed=5),
            built.phase(2, {0: 1}, seed=6),
            built.phase(count, pause=0.1, reset="pin", reset_at=interval // 3, seed=3),
            built.phase(count, {0: 0.9, 1: -0.9}, pause=0.5, reset="register", reset_at=interval // 2, seed=4),
        ],
    )


@needs_cocotb
def test_small(tmp_path):
    check(hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp"), tmp_path)


@pytest.mark.long
@needs_cocotb
def test_two_inputs(tmp_path):
    onnx.save(quantise(siamese(), pictures(8), "siamese"), tmp_path / "siamese.onnx")
    check(hwgen.load(tmp_path / "siamese.onnx").plan("zedboard", dsp=30, multipliers="dsp"), tmp_path)


@pytest.mark.long
@needs_cocotb
def test_digits(tmp_path):
    check(hwgen.load(DIGITS).plan("zedboard"), tmp_path, 1)


@pytest.mark.long
@needs_verilator
@pytest.mark.parametrize(
    ("source", "board", "dsp"),
    [("resnet8", "zedboard", 220), ("vgg16:4@32x32", "vc709", 900)],
    ids=["resnet8", "vgg16"],
)
def test_large(source, board, dsp, tmp_path):
    """65,536 cycles a frame, which are too many for Icarus: few frames, of which one is wrong and one comes behind a
    reset."""
    design = hwgen.load(source).plan(board, dsp=dsp, multipliers="dsp")
    built = Built.of(design, tmp_path / "built")
    interval = json.loads(design.to_json())["cycles"]["interval"]
    assert interval == 65_536
    built.run(
        tmp_path,
        [
            built.phase(3, interval=interval),
            built.phase(2, {0: -0.5}, pause=0.1, seed=1),
            built.phase(1, reset="pin", reset_at=interval // 3, seed=2),
        ],
        "verilator",
    )
