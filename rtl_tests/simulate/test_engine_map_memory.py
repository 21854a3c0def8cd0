"""Engines with a map memory, in Verilator: values, cycles and bytes of networks whose maps stay on the chip."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from engine_runs import check
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import alone_chain, behind, bottleneck, conv, networks, timings
from refusals import left_out_if

import hwgen
from hwgen.gateware.engine.config import MAP_MEMORY_ROWS
from hwgen.gateware.engine.engine import DONE_CYCLES, START_CYCLES
from hwgen.program.compile import schedule
from hwgen.schedule.engine import EngineSchedule, MemoryTiming
from hwgen.simulate.engine import EngineMemory
from hwgen.verilog.emitted import engine_files

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("g++") is None or shutil.which("make") is None, reason="Verilator needs g++ and make"
    ),
]
LEFT_OUT = (
    "buffers hold no tile",
    "too few for inputs",
    "no factor",
    "can't round",
    "so near a tie",
    "products of two maps",
)


@pytest.fixture(
    scope="module",
    params=[(8, 2), (32, 1), (4, 1), (16, 3), (64, 2)],
)
def kept(request):
    """A small engine behind a bus, with banks of map memory, and its circuit."""
    bus_bytes, banks = request.param
    config = behind(bus_bytes)
    config = replace(config, kept_words=banks * MAP_MEMORY_ROWS * config.row_words)
    return config, engine_files(config)


def test_a_chain(kept):
    """Three of four maps stay on the chip; a second run of the same program gives the same."""
    config, circuit = kept
    found = schedule(alone_chain(conv(channels=16, maps=16, size=(7, 9)), 4), config)
    assert len(found.kept_maps) == 3
    check(circuit, found, runs=2)


@pytest.mark.parametrize("name", ["lenet5", "resnet8"])
def test_networks(kept, name):
    config, circuit = kept
    found = schedule(hwgen.load(name).network, config)
    assert found.kept_maps
    check(circuit, found, EngineMemory(timing=MemoryTiming(latency=33, write_latency=5)))


@settings(max_examples=20)
@given(network=networks(max_layers=4), timing=timings(), seed=st.integers(0, 99), data=st.data())
def test_random_networks(kept, network, timing, seed, data):
    config, circuit = kept
    names = (
        None
        if data.draw(st.booleans())
        else data.draw(st.sets(st.sampled_from([each.name for each in network.layers])))
    )
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config, keep=names, frames=data.draw(st.sampled_from([1, 1, 2])))
    check(circuit, found, EngineMemory(timing=timing), seed)


@settings(max_examples=10)
@given(network=networks(max_layers=4), timing=timings(), seed=st.integers(0, 99), gap=st.integers(1, 30))
def test_memory_that_stalls(kept, network, timing, seed, gap):
    """Values and bytes are the same, whenever memory pauses."""
    config, circuit = kept
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config)
    check(circuit, found, EngineMemory(timing=timing, gap_every=2 * gap + 7, gap=gap), seed)


@pytest.mark.parametrize("stride", [1, 2])
def test_maps_that_are_kept_in_part(kept, stride):
    """The expanded map of an inverted bottleneck does not fit; its rows overwrite each other."""
    config, circuit = kept
    side = 24 if config.bus_words == 1 else 56
    network = bottleneck(np.random.default_rng(stride), side, (8, 64, 8), stride)
    found = schedule(network, config, pace=3)
    assert any(found.locations[name].is_ring for name in found.kept_maps)
    check(circuit, found, EngineMemory(timing=MemoryTiming(pace=3)))


@settings(max_examples=60)
@given(network=networks(max_layers=6, max_side=24, max_channels=64), timing=timings(), seed=st.integers(0, 99))
def test_larger_random_networks(kept, network, timing, seed):
    config, circuit = kept
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config)
    check(circuit, found, EngineMemory(timing=timing), seed)


def test_in_ultra_ram():
    """Values, cycles and bytes are those of a map memory of block RAM of the same size."""
    in_block_ram = behind(8)
    in_block_ram = replace(in_block_ram, kept_words=4 * MAP_MEMORY_ROWS * in_block_ram.row_words)
    config = replace(in_block_ram, kept_rows=4 * MAP_MEMORY_ROWS)
    assert (config.kept_ram, in_block_ram.kept_ram) == ("ultra", "block")
    circuit = engine_files(config)
    assert b'ram_style = "ultra"' in b"".join(circuit.values())
    for network in (hwgen.load("resnet8").network, alone_chain(conv(channels=16, maps=16, size=(7, 9)), 4)):
        found, other = schedule(network, config), schedule(network, in_block_ram)
        assert found.kept_maps == other.kept_maps != {}
        run = check(circuit, found)
        counted = EngineSchedule(in_block_ram, other.jobs, EngineMemory().timing).run()
        assert set(run.cycles) == {START_CYCLES + counted.cycles + DONE_CYCLES}
