"""Proofs of line buffers at a grid of small shapes, and faults seeded in their Verilog that the proofs must refute."""

import pytest
from proofs import ALONE, MODULE, emitted, faults_in, kinds_in, of_component, proved, with_fault
from small_circuits import GRID, line_buffer

from hwgen.gateware import line_buffer_proof

pytestmark = ALONE


#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS = faults_in("windows.txt", str, kinds_in)


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
