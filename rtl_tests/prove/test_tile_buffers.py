"""Proofs of tile buffers at a grid of small shapes, and faults seeded in their Verilog that the proofs must refute."""

import pytest
from proofs import ALONE, MODULE, emitted, faults_in, kinds_in, of_component, proved, with_fault
from small_circuits import TILES, tile_buffer

pytestmark = ALONE

KINDS = ("occupancy", "tokens", "bits", "schedule")

#: Obligations that a fault refutes, text of the Verilog of the shape ``plain``, and faulty text.
FAULTS = faults_in("tile_buffers.txt", kinds_in)


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
