"""Windows, values and offers of them, as inputs of components that compute convolutions and pools."""

from __future__ import annotations

import numpy as np
from accelerators import integers
from hypothesis import strategies as st
from testbench import Pattern

from hwgen.gateware.line_buffer import LineBufferConfig


def value_range(window: LineBufferConfig) -> tuple[int, int]:
    bits, signed = window.input.bits, window.input.signed
    low = -(1 << (bits - 1)) if signed else 0
    return low, low + (1 << bits) - 1


def windows_for(window: LineBufferConfig, count: int, seed: int) -> np.ndarray:
    """``(count, Tp, folds * Tn, Kh, Kw)``; lanes past the channels hold anything too."""
    rng = np.random.default_rng(seed)
    shape = (window.pixels, window.input.folds * window.input.lanes, *window.kernel)
    return np.array([integers(rng, *value_range(window), shape) for _ in range(count)])


def offers(steps: int, gaps: list[int]) -> Pattern:
    """Return a pattern of offered steps: no pause between steps of an output fold, pauses ``gaps`` between folds."""
    return Pattern(tuple(step < 0 for gap in gaps for step in range(gap, -steps - 1, -1) if step))


GAPS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
