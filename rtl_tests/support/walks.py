"""Random line buffers, and what a walk over the windows of a map must give, by NumPy alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from accelerators import integers
from hypothesis import assume
from hypothesis import strategies as st
from testbench import Pattern, Trace, channel_lanes, pack, run

from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.pyramid.buffer import PyramidBuffer
from hwgen.gateware.stream import BeatFormat


@st.composite
def line_buffers(
    draw,
    *,
    max_side: int = 7,
    max_bits: int = 9,
    channelwise: bool | None = None,
    least: bool | None = None,
    inside: bool = False,
    memories: bool = False,
    cropped: bool = False,
) -> LineBufferConfig:
    """Any geometry; ``least``: as few rows as hold a window; ``inside``: steps may say which taps lie in the map;
    ``memories``: rows may lie elsewhere than their number says; ``cropped``: rows and columns may be in no window."""
    bits, signed = draw(st.integers(2, max_bits)), draw(st.booleans())
    walk = draw(st.booleans()) if channelwise is None else channelwise
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    size = draw(st.integers(1, 5 if groups == 1 else 3))
    source = BeatFormat(
        channels=size * groups,
        height=draw(st.integers(1, max_side)),
        width=draw(st.integers(1, max_side)),
        lanes=draw(st.integers(1, size)),
        bits=bits,
        signed=signed,
        pixels=draw(st.sampled_from([1, 1, 2, 3, 4])),
        groups=groups,
    )
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (3, 1), (2, 3), (4, 4)]))
    low = -(1 << (bits - 1)) if signed else 0
    padding = draw(st.sampled_from([(0,) * 4, (kernel[0] // 2, kernel[1] // 2) * 2])) if draw(st.booleans()) else None
    if draw(st.booleans()) and any(
        (k - 1) * d + 1 > side for k, d, side in zip(kernel, dilation, (source.height, source.width), strict=True)
    ):
        # A window shall fit, most of the time.
        kernel, dilation = (min(kernel[0], source.height), min(kernel[1], source.width)), (1, 1)
    spare = 0 if (draw(st.booleans()) if least is None else least) else draw(st.integers(0, 4))
    try:
        config = LineBufferConfig(
            input=source,
            kernel=kernel,
            stride=draw(st.sampled_from([(1, 1), kernel, (2, 1), (1, 3), (4, 2)])),
            padding=padding or tuple(draw(st.integers(-3 * cropped, 2)) for _ in range(4)),
            pad_value=draw(st.integers(low, low + (1 << bits) - 1)),
            taps=draw(st.integers(1, kernel[0] * kernel[1])),
            output_folds=source.folds if walk else groups * draw(st.integers(1, 3)),
            channelwise=walk,
            rows=min((kernel[0] - 1) * dilation[0] + 1, source.height) + spare,
            dilation=dilation,
        )
    except ConfigError:
        assume(False)
        raise
    most = min(config.output_width, 4)
    if inside and any(config.padding) and draw(st.booleans()):
        config = replace(config, taps=kernel[0] * kernel[1], inside=True)
    config = replace(config, pixels=draw(st.sampled_from([1, min(2, most), draw(st.integers(1, most))])))
    if not memories or config.banks.depth < 2:
        return config
    return replace(config, memory_in=draw(st.sampled_from([None, "lut", "block"])))


def whole_windows(config: LineBufferConfig, frames: np.ndarray) -> np.ndarray:
    """``(frames, rows, columns, folds * Tn, Kh, Kw)`` of frames ``(n, C, H, W)``: zero in lanes past the channels of a
    group, ``pad_value`` in the padding."""
    source = config.input
    top, left, bottom, right = (max(pad, 0) for pad in config.padding)
    padded = np.zeros((len(frames), source.folds * source.lanes, source.height, source.width), np.int64)
    padded[:, channel_lanes(source)] = frames
    padded = np.pad(padded, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=config.pad_value)
    top, left, bottom, right = (max(-pad, 0) for pad in config.padding)
    padded = padded[:, :, top : padded.shape[2] - bottom, left : padded.shape[3] - right]
    windows = np.lib.stride_tricks.sliding_window_view(padded, config.extent, axis=(2, 3))
    windows = windows[:, :, :: config.stride[0], :: config.stride[1], :: config.dilation[0], :: config.dilation[1]]
    return windows.transpose(0, 2, 3, 1, 4, 5)


def inside_windows(config: LineBufferConfig) -> np.ndarray:
    """``(1, rows, columns, 1, Kh, Kw)``: 1 for each tap of a frame's windows that lies in the map."""
    source = config.input
    ones = np.ones((1, source.channels, source.height, source.width), np.int64)
    return whole_windows(replace(config, pad_value=0), ones)[:, :, :, channel_lanes(source)[:1]]


def together(config: LineBufferConfig, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`whole_windows` as ``(n, Tp, folds * Tn, Kh, Kw)``, those walked at once; and ``(n, Tp)``, whether each is
    one: a row may end before its last ``Tp``."""
    frames, rows, columns, *rest = windows.shape
    missing = -columns % config.pixels
    there = np.arange(columns + missing) < columns
    windows = np.pad(windows, ((0, 0), (0, 0), (0, missing), (0, 0), (0, 0), (0, 0)))
    return (
        windows.reshape(-1, config.pixels, *rest),
        np.broadcast_to(there, (frames, rows, len(there))).reshape(-1, config.pixels),
    )


def steps_of(config: LineBufferConfig, windows: np.ndarray) -> list[list[int]]:
    """Return the values ``(Tp * Tk * Tn)`` of every step that reads ``windows``, ``(n, Tp, folds * Tn, Kh, Kw)``.

    Each output fold sees the input folds of its group, for each of its turns of taps; taps that the last turn lacks
    read as padding.
    """
    lanes, source = config.input.lanes, config.input
    folds = source.folds if config.channelwise else source.groups
    seen = source.folds // folds
    steps = []
    for window in windows:
        for output_fold in range(config.output_folds):
            group = output_fold // (config.output_folds // folds)
            for taps in config.patches.step_taps:
                for fold in range(group * seen, (group + 1) * seen):
                    part = window[:, fold * lanes : (fold + 1) * lanes]
                    step = np.full((config.pixels, config.taps, lanes), config.pad_value)
                    for number, (row, column) in enumerate(taps):
                        step[:, number] = part[:, :, row, column]
                    steps.append(step.ravel().tolist())
    return steps


def step_mask(config: LineBufferConfig, there: np.ndarray) -> list[int]:
    """Return a mask of the payload bits that count, for every step. ``there`` is the second part of `together`."""
    size = config.taps * config.input.lanes
    masks = []
    for pixels in there.tolist():
        values = [-1 if pixel else 0 for pixel in pixels for _ in range(size)]
        top = config.pixels * size * config.input.bits
        mask = pack(values, config.input.bits) | 3 << top
        if config.inside:
            mask |= pack([int(pixel) for pixel in pixels for _ in range(config.taps)], 1) << (top + 2)
        masks += [mask] * config.window_cycles
    return masks


def step_words(config: LineBufferConfig, steps: list[list[int]], inside: np.ndarray | None = None) -> list[int]:
    """Return steps as payload bits, with ``first`` and ``last`` of each output fold on top.

    ``inside``: of each window, ``(n, Tp, 1, Kh, Kw)``, which taps lie in the map; above that, where steps say it.
    """
    top = config.pixels * config.taps * config.input.lanes * config.input.bits
    words = []
    for number, values in enumerate(steps):
        place = number % config.steps
        first, last = place == 0, place == config.steps - 1
        word = pack(values, config.input.bits) | first << top | last << (top + 1)
        if config.inside and inside is not None:
            word |= pack(inside[number // config.window_cycles].ravel().tolist(), 1) << (top + 2)
        words.append(word)
    return words


def run_walk(component: LineBuffer | PyramidBuffer, words: list[int], steps: int, *, room: Pattern, **options) -> Trace:
    """`testbench.run` with a pattern of room for output folds behind; what `check_times` needs is watched."""
    watch = {
        "offered": component.i.valid,
        "room": component.room,
        "start": component.start,
        "fold": component.fold,
    }
    return run(component, words, steps, drive=[(component.room, room)], watch=watch, **options)


def bare(window: LineBufferConfig, **changes) -> LineBufferConfig:
    """Return the configuration of a walk with some fields replaced."""
    return replace(window, **changes)


def frames_for(config: LineBufferConfig, count: int, seed: int) -> np.ndarray:
    source = config.input
    low = -(1 << (source.bits - 1)) if source.signed else 0
    shape = (count, source.channels, source.height, source.width)
    return integers(np.random.default_rng(seed), low, low + (1 << source.bits) - 1, shape)


def next_high(values: list[int], cycle: int) -> int:
    """Return the first cycle, from ``cycle`` on, in which ``values`` is high."""
    return next(c for c in range(cycle, len(values)) if values[c])
