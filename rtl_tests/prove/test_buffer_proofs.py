"""Proofs of buffers at grids of small shapes, and faults seeded in their Verilog that the proofs must refute."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from needs import needs_icarus
from proofs import ALONE, MODULE, emitted, faults_in, kinds_in, of_component, proved, with_fault
from small_circuits import GRID, REUSE_BUFFERS, TILES, line_buffer, reuse_buffer, tile_buffer
from tiles import new_lanes, used_lanes

from hwgen.gateware import line_buffer_proof
from hwgen.gateware.pyramid.reuse import IN_FLIGHT, PyramidReuseBufferConfig
from hwgen.gateware.pyramid.reuse_proof import walk_of
from hwgen.gateware.stream import BeatFormat
from hwgen.network import shapes
from hwgen.prove import discharge, trace
from hwgen.templates.pyramid_tiles import axes

pytestmark = ALONE


@dataclass(frozen=True)
class Buffers:
    """Buffers of one class: their grid of shapes, the kinds of obligations, and faults in the Verilog of one shape."""

    make: Callable[..., Any]
    grid: Mapping[str, Mapping[str, Any]]
    kinds: set[str]
    faults: dict[str, tuple[Any, ...]]
    faulty: str = "plain"

    def config(self, name: str) -> Any:
        return self.make(**self.grid[name])


COUNTED = {"occupancy", "tokens", "bits", "schedule"}
BUFFERS = {
    "line": Buffers(line_buffer, GRID, COUNTED, faults_in("line_buffers.txt", kinds_in)),
    "tile": Buffers(tile_buffer, TILES, COUNTED, faults_in("tile_buffers.txt", kinds_in)),
    "reuse": Buffers(
        reuse_buffer,
        REUSE_BUFFERS,
        COUNTED | {"stream", "path"},
        faults_in("reuse_buffers.txt", kinds_in),
        faulty="two bits",
    ),
}
SHAPES = [
    pytest.param(kind, name, id=f"{kind}-{name.replace(' ', '-')}")
    for kind, each in BUFFERS.items()
    for name in each.grid
]
#: The default run refutes one of the faults.
FAULTS = [
    pytest.param(
        kind,
        name,
        id=f"{kind}-{name.replace(' ', '-')}",
        marks=() if name == "a beat waits for ready" else pytest.mark.long,
    )
    for kind, each in BUFFERS.items()
    for name in each.faults
]


def proofs(config, verilog, kinds) -> dict[str, discharge.Proof]:
    chosen = [obligation for obligation in of_component(config, verilog) if obligation.kind in kinds]
    assert {obligation.kind for obligation in chosen} == kinds
    return proved(chosen, verilog, 240)


def results(config, verilog, kinds) -> dict[str, str]:
    return {name: proof.verdict.result for name, proof in proofs(config, verilog, kinds).items()}


@pytest.mark.parametrize("kind", BUFFERS)
def test_the_grid_has_forty_shapes(kind):
    buffers = BUFFERS[kind]
    configs = {buffers.config(name) for name in buffers.grid}
    assert len(configs) == len(buffers.grid) >= 40
    assert kind != "reuse" or all(config.needed for config in configs)


def test_counters_of_frames_are_as_wide_as_the_ring_is_long():
    config = line_buffer(size=(1, 5), kernel=(1, 3), rows=40)
    assert line_buffer_proof.max_frames(config) == 41  # forty in the ring, and the one that is read
    assert line_buffer_proof.frame_range(config) == "[6:0]"  # signed, up to 63: six bits would hold 31


def test_the_grid_has_tiles_without_beats():
    assert not all(tile_buffer(**TILES["tiles in the padding"]).fill_beats)


def test_the_grid_has_all_memories():
    config = tile_buffer(**TILES["block RAM with registers"])
    assert config.registers_words
    assert 'ram_style = "block"' in emitted(config)


def test_the_grid_has_all_bands():
    configs = [reuse_buffer(**options) for options in REUSE_BUFFERS.values()]
    bands = {(bool(config.right_depth), bool(config.bottom_depth), config.distance > IN_FLIGHT) for config in configs}
    assert bands == {
        (False, False, False), (True, False, False), (False, True, False), (True, True, False), (True, True, True),
    }  # fmt: skip
    wide = emitted(reuse_buffer(**REUSE_BUFFERS["memory in a module"]))
    assert ") bottom (" in wide
    deep = emitted(reuse_buffer(**REUSE_BUFFERS["both bands in block RAM"]))
    assert deep.count('ram_style = "block"') == 2


@pytest.mark.parametrize("name", REUSE_BUFFERS, ids=lambda name: name.replace(" ", "-"))
def test_numbers_are_beats_of_the_map(name):
    """A beat's number along an axis is its position among those that come in, so it says which pixels it has."""
    config = reuse_buffer(**REUSE_BUFFERS[name])
    for axis, cuts, pixels in (
        (config.rows, config.row_cuts, 1),
        (config.columns, config.column_cuts, config.input.pixels),
    ):
        lanes = new_lanes(axis, pixels)
        assert lanes is not None
        came = [span[first : first + pixels] for span in lanes for first in range(0, len(span), pixels)]
        needed = [lanes for span, lanes in zip(axis.spans, used_lanes(axis, pixels), strict=True) if span.size]
        walk = walk_of(cuts)
        assert sum(walk.sizes[tile] - walk.kept[tile] for tile in range(len(cuts))) == len(came)
        for tile, columns in enumerate(needed):
            numbers = [walk.bases[tile] + beat for beat in range(walk.unused[tile], walk.sizes[tile])]
            assert len(columns) == len(numbers) * pixels
            sources = [source for index in numbers for source in came[index]]
            assert all(column in (None, source) for column, source in zip(columns, sources, strict=True))


@pytest.mark.parametrize("name", REUSE_BUFFERS, ids=lambda name: name.replace(" ", "-"))
def test_tiles_that_leave_are_those_of_the_tile_buffer(name):
    """Both buffers of a layer are proved alone, each for its own list of tiles. The lists have the same beats."""
    config, tiles = reuse_buffer(**REUSE_BUFFERS[name]), tile_buffer(**REUSE_BUFFERS[name])
    rows, columns = (
        [size - unused for size, unused in zip(walk.sizes, walk.unused, strict=True)]
        for walk in (walk_of(config.row_cuts), walk_of(config.column_cuts))
    )
    beats = [row * column * config.input.folds for row in rows for column in columns]
    assert [count for count in beats if count] == [count for count in tiles.fill_beats if count]


@pytest.mark.parametrize("kind", BUFFERS)
def test_counters_are_proved(kind):
    config = BUFFERS[kind].config("plain")
    assert results(config, emitted(config), {"occupancy", "bits"}) == {"occupancy": "proved", "bits": "proved"}


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), SHAPES)
def test_every_shape_is_proved(kind, name):
    """Every window reads its pixels, and every tile leaves whole."""
    config = BUFFERS[kind].config(name)
    assert set(results(config, emitted(config), BUFFERS[kind].kinds).values()) == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize("layer_index", range(4), ids=("conv1", "pool1", "conv2", "pool2"))
def test_buffers_of_alexnet_are_proved(layer_index):
    """The group of Alwani (2015), section 4: a tip of 1 x 1, three channels a beat, maps of 227 to 27 rows."""
    layers = shapes.load("alexnet").layers[:4]
    rows, columns = axes(layers, (1, 1))[layer_index]
    layer = layers[layer_index]
    source = BeatFormat(
        channels=layer.channels,
        height=layer.height,
        width=layer.width,
        lanes=3,
        bits=8,
        signed=False,
        groups=layer.groups,
    )
    config = PyramidReuseBufferConfig(input=source, rows=rows, columns=columns)
    assert set(results(config, emitted(config), BUFFERS["reuse"].kinds).values()) == {"proved"}


@pytest.mark.parametrize(("kind", "name"), FAULTS)
def test_faults_are_refuted(kind, name):
    kinds, old, new = BUFFERS[kind].faults[name]
    config = BUFFERS[kind].config(BUFFERS[kind].faulty)
    assert set(results(config, with_fault(emitted(config), MODULE, old, new), kinds).values()) == {"refuted"}


@pytest.mark.parametrize("kind", BUFFERS)
def test_each_kind_has_two_faults(kind):
    for wanted in BUFFERS[kind].kinds:
        assert sum(wanted in kinds for kinds, _, _ in BUFFERS[kind].faults.values()) >= 2


@pytest.mark.long
@needs_icarus
def test_a_refutation_with_a_marked_beat_is_replayed(tmp_path):
    """The observer's free signals, such as the marked beat's position, are in the bench."""
    kinds, old, new = BUFFERS["reuse"].faults["a beat in flight is not seen"]
    config = reuse_buffer(**REUSE_BUFFERS["two bits"])
    (proof,) = proofs(config, with_fault(emitted(config), MODULE, old, new), kinds).values()
    (tmp_path / trace.BENCH).write_bytes(proof.verdict.files[trace.BENCH])
    subprocess.run(["iverilog", "-g2012", "-o", "replay", trace.BENCH], cwd=tmp_path, check=True)
    said = subprocess.run(["vvp", "replay"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "refuted: right_is_from_beat_1_1 follows from the positions" in said
