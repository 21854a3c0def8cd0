"""Proofs of tile buffers at a grid of small shapes, and faults seeded in their Verilog that the proofs must refute."""

from __future__ import annotations

import shutil

import pytest
from proofs import MODULE, emitted, of_component, proved, with_fault
from small_circuits import TILES, tile_buffer

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

KINDS = ("occupancy", "tokens", "bits", "schedule")

#: Obligations that a fault refutes, text of the Verilog of the shape ``plain``, and faulty text.
FAULTS = {
    "a beat is taken into a half in use": ({"occupancy"}, "held_tiles != 2'd2", "held_tiles != 2'd3"),
    "a half is free a cycle early": ({"occupancy"}, "- {1'b0, tile_release_2}", "- {1'b0, tile_release_1}"),
    "a reset misses a counter": (
        {"occupancy"},
        "            write_row_bank_index <= 1'b0;\n            write_row_word",
        "            write_row_word",
    ),
    "columns are exchanged": ({"tokens"}, "pixel_0_1_selected = !patch", "pixel_0_1_selected = patch"),
    "a row is read a cycle late": ({"tokens"}, "_3 <= patch_row_bank_index_2", "_3 <= patch_row_bank_index_3"),
    "a first step is not marked": ({"tokens"}, "is_first_step_1 <= is_idle", "is_first_step_1 <= 1'b0"),
    "a beat is taken by its value": (
        {"bits"},
        "input_transfer = i__valid &",
        "input_transfer = i__valid & i__payload[0] &",
    ),
    "a window starts by a value": ({"bits"}, "start = is_idle &", "start = !pixel_0_0 &"),
    "a window starts while beats come": ({"schedule"}, "start = is_idle &", "start = is_idle & i__valid &"),
    "a beat waits for a window": ({"schedule"}, "i__ready = (held", "i__ready = !start & (held"),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def results(config, verilog, kinds):
    chosen = [obligation for obligation in of_component(config, verilog) if obligation.kind in kinds]
    assert {obligation.kind for obligation in chosen} == set(kinds)
    return {name: proof.verdict.result for name, proof in proved(chosen, verilog, 240).items()}


def test_the_grid_has_forty_shapes():
    shapes = [tile_buffer(**options) for options in TILES.values()]
    assert len(set(shapes)) == len(TILES) >= 40


def test_the_grid_has_tiles_without_beats():
    assert not all(tile_buffer(**TILES["tiles in the padding"]).fills)


def test_the_grid_has_all_memories():
    config = tile_buffer(**TILES["block RAM with registers"])
    assert config.registers_words
    assert 'ram_style = "block"' in emitted(config)


def test_counters_of_a_tile_buffer_are_proved():
    config = tile_buffer(**TILES["plain"])
    assert results(config, emitted(config), {"occupancy", "bits"}) == {"occupancy": "proved", "bits": "proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", TILES, ids=lambda name: name.replace(" ", "-"))
def test_every_window_reads_its_pixels(name):
    config = tile_buffer(**TILES[name])
    assert set(results(config, emitted(config), KINDS).values()) == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    kinds, old, new = FAULTS[name]
    config = tile_buffer(**TILES["plain"])
    assert set(results(config, with_fault(emitted(config), MODULE, old, new), kinds).values()) == {"refuted"}


def test_each_kind_has_two_faults():
    for kind in KINDS:
        assert sum(kind in kinds for kinds, _, _ in FAULTS.values()) >= 2
