"""Proofs of line buffers at a grid of small shapes, and faults seeded in their Verilog that the proofs must refute."""

from __future__ import annotations

import shutil

import pytest
from proofs import MODULE, emitted, of_component, proved, with_fault

from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.prove import ring

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")


def line_buffer(
    size=(4, 4), channels=1, lanes=1, bits=1, signed=False, beat_pixels=1, groups=1, kernel=(2, 2), rows=None, **options
):
    """Return a line buffer of a small map; parameters that are not given are those of a plain walk."""
    source = BeatFormat(
        channels=channels,
        height=size[0],
        width=size[1],
        lanes=lanes,
        bits=bits,
        signed=signed,
        pixels=beat_pixels,
        groups=groups,
    )
    dilation = options.get("dilation", (1, 1))
    given = {
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "pad_value": 0,
        "taps": kernel[0] * kernel[1],
        "output_folds": 1,
        "channelwise": False,
        "rows": rows or min((kernel[0] - 1) * dilation[0] + 1, size[0]),
        **options,
    }
    return LineBufferConfig(input=source, kernel=kernel, **given)


AROUND = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
POOL = {"stride": (2, 2), "channelwise": True}
#: Shapes by name: what differs from a window of 2 x 2 on a map of 4 x 4 with one channel of one bit.
GRID = {
    "plain": {},
    "one pixel": {"size": (1, 1), "kernel": (1, 1)},
    "one row": {"size": (1, 5), "kernel": (1, 3)},
    "one column": {"size": (5, 1), "kernel": (3, 1)},
    "1 x 1": {"size": (3, 3), "kernel": (1, 1)},
    "1 x 1, folds": {"size": (2, 3), "kernel": (1, 1), "channels": 3, "output_folds": 2},
    "2 x 3": {"size": (3, 5), "kernel": (2, 3)},
    "3 x 2": {"size": (5, 3), "kernel": (3, 2)},
    "3 x 3": {"size": (4, 5), "kernel": (3, 3)},
    "window of the map": {"size": (3, 3), "kernel": (3, 3)},
    "one row more": {"rows": 3},
    "two rows more": {"rows": 4},
    "ring of more than a frame": {"size": (3, 3), "rows": 5},
    "three bits": {"size": (3, 3), "bits": 3, "signed": True},
    "two lanes": {"size": (3, 3), "channels": 2, "lanes": 2, "bits": 2},
    "two folds": {"size": (3, 3), "channels": 2},
    "three folds": {"size": (3, 3), "channels": 3, "output_folds": 2},
    "a lane too many": {"size": (3, 3), "channels": 3, "lanes": 2, "bits": 2},
    "four output folds": {"size": (3, 3), "output_folds": 4},
    "padding": AROUND,
    "padding of a value": {**AROUND, "size": (3, 3), "bits": 2, "signed": True, "pad_value": -2},
    "padding at the top": {"padding": (1, 0, 0, 0)},
    "padding at the left": {"padding": (0, 1, 0, 0)},
    "padding at the bottom": {"padding": (0, 0, 1, 0)},
    "padding at the right": {"padding": (0, 0, 0, 1)},
    "padding wider than the map": {"size": (2, 2), "kernel": (3, 3), "padding": (2, 2, 2, 2)},
    "a row cropped at the top": {"padding": (-1, 0, 0, 0)},
    "a column cropped at the left": {"padding": (0, -1, 0, 0)},
    "a row cropped at the top, padding at the left": {"padding": (-1, 1, 0, 0)},
    "a row cropped at the top, four of nine taps": {"kernel": (3, 3), "taps": 4, "padding": (-1, 0, 0, 0)},
    "padding, three taps": {**AROUND, "taps": 3},
    "padding, one tap": {**AROUND, "size": (3, 3), "taps": 1},
    "four of nine taps": {**AROUND, "size": (3, 3), "taps": 4},
    "two of nine taps": {"kernel": (3, 3), "taps": 2},
    "one of four taps": {"taps": 1},
    "two of four taps": {"taps": 2},
    "stride": {"stride": (2, 2)},
    "stride, padding": {**AROUND, "size": (5, 5), "stride": (2, 2)},
    "stride down": {"stride": (2, 1)},
    "stride across": {"stride": (1, 2), "rows": 3},
    "stride over pixels": {"size": (5, 5), "kernel": (1, 1), "stride": (2, 2)},
    "pool": {**POOL, "channels": 2, "output_folds": 2},
    "pool, one tap": {**POOL, "channels": 2, "output_folds": 2, "taps": 1},
    "pool that overlaps": {"kernel": (3, 3), "stride": (2, 2), "size": (5, 5), "channelwise": True},
    "dilation": {"size": (4, 5), "dilation": (2, 2)},
    "dilation down": {"size": (5, 4), "dilation": (3, 1)},
    "dilation, padding": {**AROUND, "size": (5, 5), "padding": (2, 2, 2, 2), "dilation": (2, 2)},
    "dilation, three taps": {"kernel": (3, 3), "size": (5, 5), "dilation": (2, 2), "taps": 3},
    "groups": {"size": (3, 3), "channels": 4, "groups": 2, "output_folds": 4},
    "groups of two lanes": {"size": (3, 3), "channels": 4, "lanes": 2, "groups": 2, "output_folds": 2},
    "channelwise": {**AROUND, "size": (3, 3), "channels": 3, "output_folds": 3, "channelwise": True},
    "two windows": {"pixels": 2, "kernel": (2, 2)},
    "two windows, padding": {**AROUND, "pixels": 2},
    "two windows, the last alone": {"size": (3, 4), "pixels": 2},
    "two pixels a beat": {"beat_pixels": 2},
    "two pixels a beat, the last alone": {"size": (3, 5), "beat_pixels": 2},
    "two of both": {"size": (3, 5), "beat_pixels": 2, "pixels": 2},
    "three pixels a beat": {**AROUND, "size": (3, 4), "beat_pixels": 3, "pixels": 2},
    "block RAM": {"memory_in": "block"},
    "block RAM, padding": {**AROUND, "memory_in": "block", "channels": 2, "output_folds": 2},
}
#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS = {
    "a window starts a pixel too early": ("plain", {"occupancy"}, "7'd122", "7'd123"),
    "a beat is taken too early": ("plain", {"occupancy"}, "6'd7", "6'd8"),
    "a reset misses a counter": ("plain", {"occupancy"}, "            write_bank_index <= 1'b0;\n            ", "    "),
    "columns are exchanged": ("plain", {"tokens"}, "pixel_0_1 = !patch", "pixel_0_1 = patch"),
    "a row is read a cycle late": ("plain", {"tokens"}, "_3 <= patch_slot_index_2", "_3 <= patch_slot_index_3"),
    "a first step is not marked": ("plain", {"tokens"}, "is_first_step_1 <= is_first_step", "is_first_step_1 <= 1'b0"),
    "a beat is taken by its value": (
        "plain",
        {"bits"},
        "input_transfer = i__valid &",
        "input_transfer = i__valid & i__payload[0] &",
    ),
    "a window starts by a value": ("plain", {"bits"}, "start = is_first_step &", "start = !pixel_0_0_padded &"),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def results(config, verilog, kinds):
    found = [each for each in of_component(config, verilog) if each.kind in kinds]
    assert {each.kind for each in found} == set(kinds)
    return {name: proof.verdict.result for name, proof in proved(found, verilog, 240).items()}


def test_the_grid_has_forty_shapes():
    shapes = [line_buffer(**options) for options in GRID.values()]
    assert len(set(shapes)) == len(GRID) >= 40


def test_counters_of_frames_are_as_wide_as_the_ring_is_long():
    config = line_buffer(size=(1, 5), kernel=(1, 3), rows=40)
    assert ring.most_frames(config) == 41  # forty in the ring, and the one that is read
    assert ring.frame_range(config) == "[6:0]"  # signed, up to 63: six bits would hold 31


def test_counters_of_a_line_buffer_are_proved():
    config = line_buffer(**GRID["plain"])
    assert results(config, emitted(config), {"occupancy", "bits"}) == {"occupancy": "proved", "bits": "proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", GRID, ids=lambda name: name.replace(" ", "-"))
def test_every_window_reads_its_pixels(name):
    config = line_buffer(**GRID[name])
    assert set(results(config, emitted(config), {"occupancy", "tokens", "bits"}).values()) == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    shape, kinds, old, new = FAULTS[name]
    config = line_buffer(**GRID[shape])
    assert set(results(config, with_fault(emitted(config), MODULE, old, new), kinds).values()) == {"refuted"}


def test_each_kind_has_two_faults():
    for kind in ("occupancy", "tokens", "bits"):
        assert sum(kind in kinds for _, kinds, _, _ in FAULTS.values()) >= 2
