"""Ports of drivers, and DMAs and registers that do nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hwgen.gateware.stream import BeatFormat, Order, Port

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
