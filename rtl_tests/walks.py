"""Random line buffers, and what a walk over the windows of a map must give, by NumPy alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from testbench import pack

from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat


@st.composite
def line_buffers(
    draw, *, most_side: int = 7, most_bits: int = 9, depthwise: bool | None = None, least: bool | None = None
) -> LineBufferConfig:
    """Any geometry; ``least``: as few rows as hold a window."""
    bits, signed = draw(st.integers(2, most_bits)), draw(st.booleans())
    channels = draw(st.integers(1, 5))
    source = BeatFormat(
        channels=channels,
        height=draw(st.integers(1, most_side)),
        width=draw(st.integers(1, most_side)),
        lanes=draw(st.integers(1, channels)),
        bits=bits,
        signed=signed,
    )
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    taps = kernel[0] * kernel[1]
    walk = draw(st.booleans()) if depthwise is None else depthwise
    low = -(1 << (bits - 1)) if signed else 0
    padding = draw(st.sampled_from([(0,) * 4, (kernel[0] // 2, kernel[1] // 2) * 2])) if draw(st.booleans()) else None
    spare = 0 if (draw(st.booleans()) if least is None else least) else draw(st.integers(0, 4))
    try:
        return LineBufferConfig(
            input=source,
            kernel=kernel,
            stride=draw(st.sampled_from([(1, 1), kernel, (2, 1), (1, 3), (4, 2)])),
            padding=padding or tuple(draw(st.integers(0, 2)) for _ in range(4)),
            pad_value=draw(st.integers(low, low + (1 << bits) - 1)),
            taps=draw(st.sampled_from([d for d in range(1, taps + 1) if taps % d == 0])),
            output_folds=source.folds if walk else draw(st.integers(1, 3)),
            depthwise=walk,
            rows=min(kernel[0], source.height) + spare,
        )
    except ConfigError:
        assume(False)
        raise


def whole_windows(config: LineBufferConfig, frames: np.ndarray) -> np.ndarray:
    """``(frames, rows, columns, folds * Tn, Kh, Kw)`` of frames ``(n, C, H, W)``: zero in lanes past the channels,
    ``pad_value`` in the padding."""
    source = config.input
    top, left, bottom, right = config.padding
    lanes = source.folds * source.lanes
    padded = np.zeros((len(frames), lanes, source.height, source.width), np.int64)
    padded[:, : source.channels] = frames
    padded = np.pad(padded, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=config.pad_value)
    windows = np.lib.stride_tricks.sliding_window_view(padded, config.kernel, axis=(2, 3))
    windows = windows[:, :, :: config.stride[0], :: config.stride[1]]
    return windows.transpose(0, 2, 3, 1, 4, 5)


def steps_of(config: LineBufferConfig, windows: np.ndarray) -> list[list[int]]:
    """Values ``(taps * Tn)`` of every step that walks ``windows``, ``(n, folds * Tn, Kh, Kw)``."""
    (high, wide), lanes = config.patch, config.input.lanes
    steps = []
    for window in windows:
        for output_fold in range(config.output_folds):
            for top in range(0, config.kernel[0], high):
                for left in range(0, config.kernel[1], wide):
                    for fold in [output_fold] if config.depthwise else range(config.input.folds):
                        part = window[fold * lanes : (fold + 1) * lanes, top : top + high, left : left + wide]
                        steps.append(part.transpose(1, 2, 0).ravel().tolist())
    return steps


def step_words(config: LineBufferConfig, steps: list[list[int]]) -> list[int]:
    """Steps as payload bits, ``first`` and ``last`` of each output fold on top."""
    top = config.taps * config.input.data_bits
    words = []
    for number, values in enumerate(steps):
        place = number % config.steps
        first, last = place == 0, place == config.steps - 1
        words.append(pack(values, config.input.bits) | first << top | last << (top + 1))
    return words


def bare(window: LineBufferConfig, **changes) -> LineBufferConfig:
    """The same walk with other fields."""
    return replace(window, **changes)
