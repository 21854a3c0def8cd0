"""Maps in the engine's map memory: which ones are kept, where, and what programs with them compute."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from counted import cases_in_the_long_run
from hypothesis import event, given, settings
from hypothesis import strategies as st
from programs import REFUSALS, SMALL, alone_chain, bottleneck, check, conv, engines, networks
from refusals import left_out_if

from hwgen.errors import ConfigError, PlanError
from hwgen.fields import written
from hwgen.gateware.engine.config import MAP_MEMORY_ROWS, EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.network.graph import Network
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.keep import KeptMap, most_saved, placed
from hwgen.program.layout import WORD
from hwgen.program.maps import KeptAt
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineSchedule


def with_memory(engine: EngineConfig, banks: int = 1) -> EngineConfig:
    return replace(engine, kept_words=banks * MAP_MEMORY_ROWS * engine.row_words)


def kept(draw, network: Network, engine: EngineConfig, **options) -> ProgramSchedule:
    """Schedule a network, with all maps that the engine can keep, or some of them."""
    names = None if draw(st.booleans()) else draw(st.sets(st.sampled_from([each.name for each in network.layers])))
    with left_out_if(*REFUSALS):
        return schedule(network, engine, keep=names, **options)


@cases_in_the_long_run(60)
@given(data=st.data(), network=networks(most_layers=4), engine=engines())
def test_random_networks(data, network, engine):
    check(kept(data.draw, network, with_memory(engine)))


@pytest.mark.long
@settings(max_examples=400)
@given(data=st.data(), network=networks(most_layers=6, most_side=30, most_channels=80), engine=engines())
def test_many_random_networks(data, network, engine):
    check(kept(data.draw, network, with_memory(engine, data.draw(st.integers(1, 3)))))


@given(data=st.data(), count=st.integers(1, 7))
def test_the_best_set_of_maps(data, count):
    """Of all sets that fit at any time, by trying each; placed maps that meet do not overlap."""
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
    found = most_saved(maps, engine)
    assert fits(tuple(found))
    assert sum(each.saved for each in found.values()) == best
    addresses = placed(maps, engine)
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


@pytest.mark.parametrize(("rows", "reason"), [(2, "must hold a box of"), (7, "must be tiles of"), (4, "rings of rows")])
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
        ({"conv0": (0, 12), "conv1": (8, 12)}, "conv0 and conv1: both can't be in the same words"),
        ({"conv0": (4, 12)}, "conv0: 4 must be an address"),
        ({"conv0": (1 << 20, 12)}, "must be an address"),
        ({"conv0": (0, 13)}, "conv0: the map memory of 2,048 words can't keep 13 rows of this map"),
        ({"conv3": (0, 12)}, "conv3: the map memory of 2,048 words can't keep 12 rows of this map"),
        ({"other": (0, 12)}, "other: "),
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
