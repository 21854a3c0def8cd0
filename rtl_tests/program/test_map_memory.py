"""Maps in the engine's map memory: which ones are kept, where, and what programs with them compute."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import REFUSALS, SMALL, alone_chain, check, conv, engines, networks
from refusals import left_out_if

from hwgen.errors import ConfigError, PlanError
from hwgen.gateware.engine.config import MAP_MEMORY_ROWS, EngineConfig
from hwgen.gateware.engine.job import digest
from hwgen.network.graph import Network
from hwgen.program.compile import Schedule, schedule
from hwgen.program.keep import KeptMap, most_saved, placed
from hwgen.program.layout import WORD
from hwgen.program.tiles import Tiling
from hwgen.schedule.engine import EngineSchedule


def with_memory(engine: EngineConfig, banks: int = 1) -> EngineConfig:
    return replace(engine, kept_words=banks * MAP_MEMORY_ROWS * engine.bus_words)


def kept(draw, network: Network, engine: EngineConfig, **options) -> Schedule:
    """Schedule a network, with all maps that the engine can keep, or some of them."""
    names = None if draw(st.booleans()) else draw(st.sets(st.sampled_from([each.name for each in network.layers])))
    with left_out_if(*REFUSALS):
        return schedule(network, engine, keep=names, **options)


@settings(max_examples=60)
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
    engine = EngineConfig(kept_words=MAP_MEMORY_ROWS)
    capacity, maps = engine.kept_words * WORD, {}
    for index in range(count):
        first = data.draw(st.integers(0, 8))
        maps[str(index)] = KeptMap(
            name=str(index),
            first=first,
            last=first + data.draw(st.integers(0, 4)),
            size=WORD * data.draw(st.integers(1, engine.kept_words)),
            saved=data.draw(st.integers(1, 1000)),
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
        begins = sorted((addresses[name], addresses[name] + maps[name].size) for name in (one, other))
        assert not maps[one].meets(maps[other]) or begins[0][1] <= begins[1][0]
    assert all(0 <= addresses[name] <= capacity - maps[name].size for name in addresses)


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
        ({"conv0": 0, "conv1": 8}, "conv0 and conv1: both can't be in the same words"),
        ({"conv0": 4}, "conv0: 4 must be an address"),
        ({"conv0": 1 << 20}, "must be an address"),
        ({"conv3": 0}, "conv3: the map memory of 2,048 words can't keep this map"),
        ({"other": 0}, "other: "),
    ],
)
def test_addresses_that_are_refused(addresses, reason):
    engine = with_memory(EngineConfig())
    with pytest.raises(PlanError, match=reason):
        schedule(a_chain(), engine, choices=schedule(a_chain(), engine).choices, kept_maps=addresses)


@pytest.mark.parametrize("frames", [2, 3])
def test_several_frames(frames):
    found = schedule(a_chain(), with_memory(EngineConfig()), frames=frames)
    assert found.kept_maps
    found.program  # noqa: B018


def test_sizes():
    assert digest(EngineConfig()) != digest(with_memory(EngineConfig()))
    assert "kept_words" not in EngineConfig().sizes
    for sizes in ({"kept_words": 100}, {"kept_words": -2048}, {"kept_words": 2048, "bus_bytes": 16}):
        with pytest.raises(ConfigError, match="kept_words must be a multiple"):
            EngineConfig(**sizes)
    with pytest.raises(ConfigError, match="kept_words must be 0 with several cores"):
        EngineConfig(kept_words=2048, cores=2)
