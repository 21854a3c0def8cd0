"""The format of a beat, and the connection that checks it."""

from __future__ import annotations

import re

import pytest
from amaranth import Module
from amaranth.hdl import Fragment
from hypothesis import given
from hypothesis import strategies as st
from testbench import channel_lanes

from hwgen.errors import ConfigError
from hwgen.gateware.stream import BeatFormat, join

GOOD = {"channels": 6, "height": 2, "width": 5, "lanes": 2, "bits": 8, "signed": True}


def test_figures():
    """By hand: 2 groups of 3 channels are 4 beats, 5 columns by 2 are 3 steps."""
    beat = BeatFormat(**GOOD, pixels=2, groups=2)
    assert (beat.group_folds, beat.folds, beat.row_steps) == (2, 4, 3)
    assert (beat.beats, beat.frame_pixels, beat.data_bits) == (2 * 3 * 4, 10, 2 * 2 * 8)
    assert [list(channels) for channels in beat.fold_channels] == [[0, 1], [2], [3, 4], [5]]


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 8))
def test_every_channel_once(groups, size, lanes):
    beat = BeatFormat(**GOOD | {"channels": groups * size, "lanes": lanes}, groups=groups)
    assert len(beat.fold_channels) == beat.folds
    places = [
        (channel, fold * lanes + lane)
        for fold, channels in enumerate(beat.fold_channels)
        for lane, channel in enumerate(channels)
    ]
    assert places == list(enumerate(channel_lanes(beat)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({name: 0}, f"{name} must be a positive integer, not 0")
            for name in ("channels", "height", "width", "lanes", "bits", "pixels", "groups")
        ),
        ({"groups": 4}, "channels must be a multiple of the 4 groups, not 6"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        BeatFormat(**GOOD | changes)


def test_join_checks_the_payloads():
    """Of other sign, or more and narrower values: as wide, but not the same."""
    m, one = Module(), BeatFormat(**GOOD)
    for changes in ({"signed": False}, {"lanes": 4, "bits": 4}, {"lanes": 1, "bits": 16}):
        other = BeatFormat(**GOOD | changes)
        assert other.data_bits == one.data_bits
        with pytest.raises(ConfigError, match=r"^payload shapes must be equal, not "):
            join(m, source=one.signature.create(), sink=other.signature.flip().create())
    join(m, source=one.signature.create(), sink=one.signature.flip().create())
    Fragment.get(m, None)  # or Amaranth warns that it is never used
