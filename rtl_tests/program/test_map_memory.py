"""Maps in the engine's map memory, and inputs whose rows and columns are channels of one pixel."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import event, given, settings
from hypothesis import strategies as st
from programs import (
    REFUSALS,
    SMALL,
    alone,
    alone_chain,
    bottleneck,
    check,
    conv,
    engines,
    given_frame,
    networks,
    scheduled,
    tasks_of,
)
from refusals import left_out_if

from hwgen.errors import ConfigError, PlanError
from hwgen.fields import written
from hwgen.gateware.engine.config import MAP_MEMORY_ROWS, EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.network import golden
from hwgen.network.graph import Network
from hwgen.network.maps import INT8, FeatureMap, Window
from hwgen.network.ops import Conv, Upsample
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.file import Program
from hwgen.program.keep import KeptMap, best_maps, placed_maps
from hwgen.program.layout import WORD
from hwgen.program.maps import KeptAt
from hwgen.program.tiles import Tiling, best_tilings, chunks, steps
from hwgen.program.unfold import Unfold, unfold_options, unfolded
from hwgen.schedule.engine import EngineSchedule, group_steps


def with_memory(engine: EngineConfig, banks: int = 1) -> EngineConfig:
    return replace(engine, kept_words=banks * MAP_MEMORY_ROWS * engine.row_words)


def kept(draw, network: Network, engine: EngineConfig, **options) -> ProgramSchedule:
    """Schedule a network, with all maps that the engine can keep, or some of them."""
    names = None if draw(st.booleans()) else draw(st.sets(st.sampled_from([each.name for each in network.layers])))
    with left_out_if(*REFUSALS):
        return schedule(network, engine, keep=names, **options)


@cases_in_the_long_run(60)
@given(data=st.data(), network=networks(max_layers=4), engine=engines())
def test_random_networks(data, network, engine):
    check(kept(data.draw, network, with_memory(engine)))


@pytest.mark.long
@settings(max_examples=400)
@given(data=st.data(), network=networks(max_layers=6, max_side=30, max_channels=80), engine=engines())
def test_many_random_networks(data, network, engine):
    check(kept(data.draw, network, with_memory(engine, data.draw(st.integers(1, 3)))))


@given(data=st.data(), count=st.integers(1, 7))
def test_the_best_set_of_maps(data, count):
    """Of all sets that fit at any time, by trying each; placed_maps maps that meet do not overlap."""
    engine = EngineConfig(kept_words=2 * MAP_MEMORY_ROWS)
    capacity, maps = engine.kept_words * WORD, {}
    for index in range(count):
        first = data.draw(st.integers(0, 8))
        maps[str(index)] = KeptMap(
            name=str(index),
            first=first,
            last=first + data.draw(st.integers(0, 4)),
            size=WORD * data.draw(st.integers(1, engine.kept_words)),
            saved=data.draw(st.integers(1, 1000)),
            rows=1,
        )

    def fits(names: tuple[str, ...]) -> bool:
        used = (sum(maps[name].size for name in names if maps[name].first <= at <= maps[name].last) for at in range(13))
        return max(used) <= capacity

    sets = (names for size in range(count + 1) for names in combinations(maps, size) if fits(names))
    best = max(sum(maps[name].saved for name in names) for names in sets)
    found = best_maps(maps, engine)
    assert fits(tuple(found))
    assert sum(each.saved for each in found.values()) == best
    addresses = placed_maps(maps, engine)
    for one, other in combinations(addresses, 2):
        begins = sorted((addresses[name].address, addresses[name].address + maps[name].size) for name in (one, other))
        assert not maps[one].meets(maps[other]) or begins[0][1] <= begins[1][0]
    assert all(0 <= addresses[name].address <= capacity - maps[name].size for name in addresses)


def rings(found: ProgramSchedule) -> dict[str, int]:
    """Return the rows of the maps that are kept in part."""
    return {name: place.rows for name, place in found.kept_maps.items() if found.locations[name].is_ring}


@pytest.mark.long
@settings(max_examples=12)
@given(
    seed=st.integers(0, 99),
    side=st.integers(20, 40),
    channels=st.tuples(st.integers(1, 24), st.integers(16, 64), st.integers(1, 24)),
    stride=st.sampled_from([1, 2]),
    pace=st.integers(1, 3),
    banks=st.integers(1, 2),
)
def test_random_bottlenecks(seed, side, channels, stride, pace, banks):
    """Maps too large to be kept whole are kept in part, where that is faster; strips are exact, too."""
    network = bottleneck(np.random.default_rng(seed), side, channels, stride)
    engine = with_memory(EngineConfig(), banks)
    found = schedule(network, engine, pace=pace)
    event(f"{len(rings(found))} maps in part")
    check(found)
    assert schedule(network, engine, choices=found.choices, kept_maps=found.kept_maps).jobs == found.jobs


@pytest.mark.long
def test_maps_between_layers_are_kept_in_part():
    """Of an inverted bottleneck, neither the expanded map nor the depthwise one leaves the chip; by hand."""
    network, engine = bottleneck(np.random.default_rng(0), 56, (16, 96, 24)), with_memory(EngineConfig(), 5)
    found, without = schedule(network, engine), schedule(network, engine, keep=())
    assert rings(found).keys() == {"expand", "depthwise"}
    runs = [EngineSchedule(engine, each.jobs).run() for each in (found, without)]
    assert sum(runs[0].written) == 56 * 56 * 24
    assert sum(runs[0].written_kept) == 2 * 56 * 56 * 96
    assert runs[0].cycles < 0.8 * runs[1].cycles
    check(found)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [(2, "expand 2 rows, but a box of its tiling reads 4"), (7, "multiple of the 2 rows"), (4, "rings of rows")],
)
def test_rings_that_are_refused(rows, reason):
    """Of too few rows for a box, of parts of a tile, and of too few rows for boxes and tiles to follow each other."""
    network, engine = bottleneck(np.random.default_rng(0), 12, (8, 64, 8)), with_memory(EngineConfig(), 5)
    tilings = [
        Tiling(rows=2, columns=12, box_rows=box, channels=channels, taps=taps, maps_stay=True, folds=1)
        for box, channels, taps in ((4, 8, 1), (2, 8, 3), (2, 64, 1))
    ]
    choices = [{name: [tiling] for name, tiling in zip(("expand", "depthwise", "project"), tilings, strict=True)}]
    kept_maps = {"expand": KeptAt(0, rows)}
    with pytest.raises(PlanError, match=reason):
        schedule(network, engine, choices=choices, kept_maps=kept_maps)
    check(schedule(network, engine, choices=choices, kept_maps={"expand": KeptAt(0, 8)}))


def a_chain() -> Network:
    return alone_chain(conv(channels=16, maps=16, size=(12, 12)), 4)


def test_what_is_kept_is_not_moved():
    """Of a chain of convolutions, only the input is read and the output written; by hand."""
    engine, a_map = with_memory(EngineConfig()), 12 * 12 * 16
    tiling = Tiling(rows=12, columns=12, box_rows=12, channels=16, taps=3, maps_stay=True)
    tilings = {f"conv{number}": tiling for number in range(4)}
    with_kept, without = (
        EngineSchedule(engine, schedule(a_chain(), engine, keep=keep, tilings=tilings).jobs).run()
        for keep in (None, ())
    )
    assert sum(without.written) == 4 * a_map
    assert sum(with_kept.written) == a_map
    assert sum(without.read) - sum(with_kept.read) == 3 * a_map
    assert sum(with_kept.written_kept) == sum(with_kept.read_kept) == 3 * a_map
    assert with_kept.cycles < without.cycles


def test_without_names_nothing_is_kept():
    engine = with_memory(EngineConfig())
    found = schedule(a_chain(), engine, keep=())
    assert not found.kept_maps
    assert not any(job.load.x_kept or job.store.kept for job in found.jobs)


def test_choices_make_the_same_jobs():
    engine = with_memory(SMALL, 2)
    found = schedule(a_chain(), engine)
    assert found.kept_maps
    again = schedule(a_chain(), engine, choices=found.choices, kept_maps=found.kept_maps)
    assert again.jobs == found.jobs


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        ({"conv0": (0, 12), "conv1": (8, 12)}, "conv0 and conv1: kept_maps gives both bytes 8 to "),
        ({"conv0": (4, 12)}, "conv0: its address in kept_maps must be a multiple of 16 from 0 to .*, not 4"),
        ({"conv0": (1 << 20, 12)}, "its address in kept_maps must be a multiple"),
        (
            {"conv0": (0, 13)},
            "conv0: kept_maps must give it from 1 to 12 rows, not 13; change its entry in kept_maps, or leave it out",
        ),
        ({"conv3": (0, 12)}, "conv3: the host reads or writes this map"),
        ({"other": (0, 12)}, "other: kept_maps names a map that the engine does not store; it stores conv0, "),
    ],
)
def test_addresses_that_are_refused(addresses, reason):
    engine = with_memory(EngineConfig())
    choices = schedule(a_chain(), engine).choices
    kept_maps = {name: KeptAt(*place) for name, place in addresses.items()}
    with pytest.raises(PlanError, match=reason):
        schedule(a_chain(), engine, choices=choices, kept_maps=kept_maps)


@pytest.mark.parametrize("frames", [2, 3])
def test_several_frames(frames):
    found = schedule(a_chain(), with_memory(EngineConfig()), frames=frames)
    assert found.kept_maps
    found.program  # noqa: B018


def test_sizes():
    assert digest(EngineConfig()) != digest(with_memory(EngineConfig()))
    assert "kept_words" not in written(EngineConfig())
    for sizes in ({"kept_words": 100}, {"kept_words": -2048}, {"kept_words": 2048, "bus_bytes": 16}):
        with pytest.raises(ConfigError, match="kept_words must be a multiple"):
            EngineConfig(**sizes)
    with pytest.raises(ConfigError, match="kept_words must be 0 with several cores"):
        EngineConfig(kept_words=2048, cores=2)


def layer_of(channels, kernel, stride, padding, size, signed=False, maps=10) -> Conv:
    """Return a convolution with a window of these sizes."""
    base = conv(channels=channels, maps=maps, size=(12, 12))
    window = Window(kernel=kernel, stride=stride, padding=padding)
    rows, columns = window.output_size(*size)
    kind = {"type": INT8, "zero_point": -9} if signed else {}
    return replace(
        base,
        input=replace(base.input, height=size[0], width=size[1], **kind),
        output=replace(base.output, height=rows, width=columns),
        window=window,
        weights=np.resize(base.weights, (maps, channels, *kernel)),
    )


@st.composite
def layers(draw) -> Conv:
    kernel = draw(st.integers(1, 7)), draw(st.integers(2, 8))
    stride = draw(st.integers(1, 4))
    padding = tuple(draw(st.integers(0, side // 2)) for side in (*kernel, *kernel))
    size = tuple(max(side, 2) + draw(st.integers(0, 9)) for side in kernel)
    return layer_of(
        draw(st.integers(1, 7)), kernel, (draw(st.integers(1, 4)), stride), padding, size, draw(st.booleans())
    )


def in_layout(layer: Conv, unfold: Unfold, engine: EngineConfig) -> ProgramSchedule:
    """Return the schedule of a convolution alone that reads its input in a layout."""
    choices = scheduled(unfolded(alone(layer), {layer.name: unfold}), engine).choices
    return schedule(alone(layer), engine, choices=choices)


@pytest.mark.parametrize("kernel", [1, 3])
def test_first_layers_of_several_passes(kernel):
    """A grouped convolution that reads the input in a pass for each group is compiled, though it is not unfolded."""
    layer = conv(kernel=kernel, channels=24, maps=24)
    network = alone(replace(layer, weights=layer.weights[:, :8], groups=3))
    assert len(tasks_of(network)) == 3
    check(schedule(network, SMALL))


@given(layer=layers(), engine=engines(), data=st.data())
@settings(max_examples=20)
def test_each_layout_gives_the_same(layer, engine, data):
    """As a program, and as a network whose golden model reads the unfolded map."""
    unfold = data.draw(st.sampled_from(unfold_options(layer)))
    network = alone(layer)
    other = unfolded(network, {layer.name: unfold})
    kind = layer.input.type
    frame = np.random.default_rng(0).integers(kind.minimum, kind.maximum + 1, layer.input.shape).astype(kind.dtype)
    taken = unfold.apply(frame, kind)
    np.testing.assert_array_equal(golden.outputs(other, taken[None])[0], golden.outputs(network, frame[None])[0])
    found = in_layout(layer, unfold, engine)
    assert found.program.inputs[0].unfold == unfold
    check(found)


def test_first_layers_take_fewer_steps():
    """AlexNet's: 11 x 11 taps of 3 channels are 92 steps in place of 121."""
    layer = layer_of(3, (11, 11), (4, 4), (2, 2, 2, 2), (63, 63), maps=64)
    layer = replace(layer, weights=np.maximum(layer.weights, -127))
    network = alone(layer)
    found = schedule(network, EngineConfig())
    (work,) = found.tiled_passes
    task, tiling = work.task, work.tiling
    assert (task.channels, task.window.kernel, tiling.unfold_columns, task.last_channels) == (132, (1, 3), 4, 99)
    sizes = [chunk.size for chunk in chunks(task, replace(tiling, channels=104, taps=1))]
    assert sizes == [(104, 1, 3), (28, 1, 2)]
    assert sum(steps(task, *size) for size in sizes) == 92
    assert {group_steps(job.compute) for job in found.jobs} == {
        steps(task, *chunk.size) for chunk in chunks(task, tiling)
    }
    (plain_task,) = tasks_of(network)
    ((plain_tiling, _),) = best_tilings(plain_task, EngineConfig())
    plain = schedule(network, EngineConfig(), tilings={"conv": plain_tiling})
    faster, slower = (EngineSchedule(made.engine, made.jobs).run().cycles for made in (found, plain))
    assert faster < 0.9 * slower
    check(found)


def test_programs_say_how_inputs_are_stored(tmp_path):
    """In their file, from which frames are packed as before."""
    layer = layer_of(3, (5, 5), (2, 2), (1, 2, 1, 3), (11, 13))
    found = in_layout(layer, unfold_options(layer)[1], SMALL)
    (source,) = found.program.inputs
    assert source.unfold is not None
    found.program.write(tmp_path / "conv.program")
    (again,) = Program.read(tmp_path / "conv.program", SMALL).inputs
    assert again == source
    frame = np.random.default_rng(1).integers(0, 256, layer.input.shape).astype(np.uint8)
    np.testing.assert_array_equal(given_frame(source.pack(frame), source), frame)


def test_layouts_that_are_refused():
    layer = layer_of(3, (5, 5), (2, 2), (2, 2, 2, 2), (11, 13))
    choices = schedule(alone(layer), SMALL).choices
    (name, (tiling,)) = next(iter(choices[0].items()))
    allowed = "0 and 0, or 2 and 2, or 2 and 4, or 2 and 5, or 0 and 2, or 0 and 4, or 0 and 5"
    plain = replace(tiling, unfold_rows=0, unfold_columns=0)
    for rows, columns in ((0, 3), (3, 2), (2, 0)):
        message = f"conv: unfold_rows and unfold_columns must be {allowed}, not {rows} and {columns}"
        with pytest.raises(PlanError, match=f"^{message}$"):
            schedule(
                alone(layer),
                SMALL,
                choices=[{name: [replace(plain, unfold_rows=rows, unfold_columns=columns)]}],
            )


def test_first_layers_read_fewer_words_with_as_many_rows_as_the_stride():
    """3 x 3 taps of 3 channels, stride 2: 2 x 2 pixels are 12 channels in 2 words; 3 rows x 2 columns are 18 in 3."""
    layer = layer_of(3, (3, 3), (2, 2), (1, 1, 1, 1), (64, 64), maps=16)
    layer = replace(layer, weights=np.maximum(layer.weights, -127))
    found = schedule(alone(layer), EngineConfig())
    (work,) = found.tiled_passes
    assert (work.tiling.unfold_rows, work.tiling.unfold_columns) == (2, 2)
    assert (work.task.channels, work.task.window.kernel) == (12, (2, 2))
    assert found.program.inputs[0].size == 2 * 33 * 33 * 8
    check(found)


def test_an_unfolded_map_has_the_zero_point_outside():
    """By hand: 2 x 3 taps, stride 2, one row and one column of padding."""
    source = FeatureMap(channels=1, height=2, width=3, type=INT8, zero_point=-3)
    layer = layer_of(1, (2, 3), (2, 2), (1, 1, 1, 1), (2, 3), signed=True)
    *_, whole = unfold_options(replace(layer, input=source))
    frame = np.array([[[1, 2, 3], [4, 5, 6]]], np.int8)
    expected = [[[-3, -3], [-3, 5]]]
    got = whole.apply(frame, INT8)
    assert got.shape == (6, 2, 2)
    np.testing.assert_array_equal(got[:1], expected)
    np.testing.assert_array_equal(got[:, 0, 0], [-3, -3, -3, 1, -3, 2])
    np.testing.assert_array_equal(got[:, 1, 1], [5, -3, 6, -3, -3, -3])


def test_passes_share_the_boxes_that_they_read():
    """The four passes of a Resize read each pixel once, and their jobs compute several blocks of channels."""
    source = FeatureMap(channels=24, height=6, width=10, type=INT8, zero_point=-3)
    output = replace(source, height=12, width=20)
    layer = Upsample(name="up", input=source, output=output, window=Window(kernel=(1, 1)), factors=(2, 2))
    found = schedule(alone(layer), EngineConfig())
    loaded = sum(job.load.x_blocks * job.load.x_rows * job.load.x_words for job in found.jobs)
    assert loaded == 3 * 6 * 10
    assert len(found.jobs) == 4 * 6
    assert {job.compute.folds for job in found.jobs} == {3}
    check(found)
