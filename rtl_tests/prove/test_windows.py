"""Proofs of line buffers at a grid of small shapes, and faults seeded in their Verilog that the proofs must refute."""

from __future__ import annotations

import shutil

import pytest
from proofs import MODULE, emitted, of_component, proved, with_fault
from small_circuits import GRID, line_buffer

from hwgen.gateware import line_buffer_proof

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")


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
    "a window starts while beats come": (
        "plain",
        {"schedule"},
        "start = is_first_step &",
        "start = is_first_step & i__valid &",
    ),
    "a beat waits for a window": (
        "plain",
        {"schedule"},
        "i__ready = !space[5]",
        "i__ready = !space[5] & !window_ready",
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
    assert line_buffer_proof.most_frames(config) == 41  # forty in the ring, and the one that is read
    assert line_buffer_proof.frame_range(config) == "[6:0]"  # signed, up to 63: six bits would hold 31


def test_counters_of_a_line_buffer_are_proved():
    config = line_buffer(**GRID["plain"])
    assert results(config, emitted(config), {"occupancy", "bits"}) == {"occupancy": "proved", "bits": "proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", GRID, ids=lambda name: name.replace(" ", "-"))
def test_every_window_reads_its_pixels(name):
    config = line_buffer(**GRID[name])
    assert set(results(config, emitted(config), {"occupancy", "tokens", "bits", "schedule"}).values()) == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    shape, kinds, old, new = FAULTS[name]
    config = line_buffer(**GRID[shape])
    assert set(results(config, with_fault(emitted(config), MODULE, old, new), kinds).values()) == {"refuted"}


def test_each_kind_has_two_faults():
    for kind in ("occupancy", "tokens", "bits", "schedule"):
        assert sum(kind in kinds for _, kinds, _, _ in FAULTS.values()) >= 2
