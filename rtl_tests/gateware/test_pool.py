"""Max pooling: maxima, and their cycle."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import GAPS, offers, value_range, windows_for
from counted import cases_in_the_long_run
from hypothesis import given, settings
from hypothesis import strategies as st
from testbench import Pattern, run, unpack
from walks import line_buffers, step_words, steps_of

from hwgen.errors import ConfigError
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.max_pool import MaxPool, MaxPoolConfig
from hwgen.gateware.stream import BeatFormat


def expected_maxima(config: MaxPoolConfig, windows: np.ndarray) -> list[list[int]]:
    """The ``Tn x Tp`` maxima of each fold of the windows, in order."""
    size = config.lanes * config.window.pixels
    return windows.max(axis=(3, 4)).transpose(0, 2, 1).reshape(-1, size).tolist()


def simulate(config: MaxPoolConfig, windows: np.ndarray, offer: Pattern, **options):
    words = step_words(config.window, steps_of(config.window, windows))
    return run(MaxPool(config), words, len(windows) * config.window.output_folds, offer=offer, **options)


def maxima(config: MaxPoolConfig, words: list[int]) -> list[list[int]]:
    source = config.window.input
    return [unpack(word, source.bits, source.signed, source.lanes * config.window.pixels) for word in words]


def pools(**limits) -> st.SearchStrategy[LineBufferConfig]:
    """Walks that a pool can do: taps that a last step lacks must not win."""
    return line_buffers(channelwise=True, **limits).map(
        lambda window: replace(window, pad_value=value_range(window)[0]) if window.chooses else window
    )


@cases_in_the_long_run(28)
@given(window=pools(most_bits=16), seed=st.integers(0, 2**32), gaps=GAPS)
def test_maxima(window, seed, gaps):
    config = MaxPoolConfig(window=window)
    windows = windows_for(window, 8, seed)
    trace = simulate(config, windows, offers(window.steps, gaps))
    assert maxima(config, trace.words) == expected_maxima(config, windows)
    last_steps = trace.taken[window.steps - 1 :: window.steps]
    assert trace.times == [cycle + config.latency for cycle in last_steps]


@settings(max_examples=15)
@given(window=pools(), seed=st.integers(0, 2**32), reset_at=st.integers(0, 40))
def test_reset(window, seed, reset_at):
    """The step after a reset is the first of a window."""
    config = MaxPoolConfig(window=window)
    windows = windows_for(window, 12, seed)
    after = step_words(window, steps_of(window, windows[6:]))
    trace = simulate(config, windows[:6], Pattern(), reset_at=reset_at, after=(after, 6 * config.window.output_folds))
    assert trace.reset is not None
    sent = trace.reset[2]
    assert maxima(config, trace.words[:sent]) == expected_maxima(config, windows[:6])[:sent]
    assert maxima(config, trace.words[sent:]) == expected_maxima(config, windows[6:])


def plain(channelwise: bool = True, signed: bool = True, taps: int = 3) -> LineBufferConfig:
    """5 channels, 2 at a time, 3 x 3 taps."""
    return LineBufferConfig(
        input=BeatFormat(channels=5, height=5, width=6, lanes=2, bits=8, signed=signed),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        pad_value=-128 if signed else 0,
        taps=taps,
        output_folds=3,
        channelwise=channelwise,
        rows=3,
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("taps", [1, 3, 4, 9])
def test_extremes(signed, taps):
    """One value stands out, in each of the taps in turn; and windows of one value."""
    config = MaxPoolConfig(window=plain(signed=signed, taps=taps))
    low, high = value_range(config.window)
    windows = np.full((13, 6, 9), low)
    for number, value in enumerate((low, high, -1 if signed else 1, 0)):
        windows[9 + number] = value
    for tap in range(9):
        windows[tap, :, tap] = high if tap % 2 else low + 1
    windows = windows.reshape(13, 1, 6, 3, 3)
    trace = simulate(config, windows, Pattern())
    assert maxima(config, trace.words) == expected_maxima(config, windows)


def test_errors():
    with pytest.raises(ConfigError, match=f"^{re.escape('window.channelwise must be True, not False')}$"):
        MaxPoolConfig(window=plain(channelwise=False))
    message = "window.pad_value must be -128 where 4 taps don't divide the kernel, not 0"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        MaxPoolConfig(window=replace(plain(taps=4), pad_value=0))
