"""Engines with 16 and 32 requantiser lanes, and with products in LUTs, in Verilator: values, cycles and bytes."""

from dataclasses import replace

import pytest
from engine_runs import check
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs_compiler
from programs import behind, networks, timings
from refusals import left_out_if

from hwgen.gateware.engine.config import MAP_MEMORY_ROWS
from hwgen.program.compile import schedule
from hwgen.simulate.engine import EngineMemory
from hwgen.verilog.emitted import engine_files

pytestmark = [pytest.mark.long, needs_compiler]
LEFT_OUT = (
    "buffers hold no tile",
    "too few for inputs",
    "no factor",
    "can't round",
    "so near a tie",
    "products of two maps",
)
#: Bytes of the bus, and further sizes of the engine.
SIZES = [
    (8, {"requantisers": 16, "lut_pixels": 2}),
    (4, {"requantisers": 32}),
    (8, {"lut_pixels": 5}),
    (16, {"lut_pixels": 4, "maps": 16, "pixels": 17}),
    (8, {"lut_pixels": 1, "cores": 2}),
    (8, {"requantisers": 32, "maps": 24}),
    (16, {"requantisers": 16, "cores": 2}),
    (8, {"requantisers": 32, "cores": 3}),
    (64, {"requantisers": 16, "pixels": 13}),
]


@pytest.fixture(scope="module", params=SIZES)
def built(request):
    """A small engine with several words per beat, or products in LUTs, and its circuit."""
    bus_bytes, sizes = request.param
    config = replace(behind(bus_bytes), **sizes)
    return config, engine_files(config)


@settings(max_examples=3)
@given(network=networks(max_layers=3), timing=timings(), seed=st.integers(0, 99))
def test_random_networks(built, network, timing, seed):
    config, circuit = built
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config)
    check(circuit, found, EngineMemory(timing=timing), seed)


@settings(max_examples=80)
@given(network=networks(max_layers=6, max_side=24, max_channels=64), timing=timings(), seed=st.integers(0, 99))
def test_larger_random_networks(built, network, timing, seed):
    config, circuit = built
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config)
    check(circuit, found, EngineMemory(timing=timing), seed)


@settings(max_examples=30)
@given(network=networks(max_layers=4), timing=timings(), seed=st.integers(0, 99))
def test_maps_on_the_chip(network, timing, seed):
    """Words that leave the array together go to the map memory, beat by beat."""
    config = replace(behind(16), requantisers=16)
    config = replace(config, kept_words=MAP_MEMORY_ROWS * config.row_words)
    with left_out_if(*LEFT_OUT):
        found = schedule(network, config)
    check(engine_files(config), found, EngineMemory(timing=timing), seed)
