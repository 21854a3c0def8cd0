"""Resources of the engine: estimates beside what Yosys makes of its components; the default one is in bench/."""

from __future__ import annotations

import pytest
from programs import SMALL, alone, conv

from hwgen import plan
from hwgen.boards import load as load_board
from hwgen.devices.ultrascale_plus import ULTRASCALE_PLUS
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.templates.engine import engine_group
from hwgen.tools import synthesis

DEFAULT = EngineConfig()
WIDE = EngineConfig(maps=64, pixels=5, map_words=1024, weight_steps=512, slots=16, sum_bits=28)
#: Longest logic between registers, in ns: docs/explanation/architecture.md.
LONGEST = 3.3


def check(estimate: Resources, measured: Resources) -> None:
    """Slices and block RAM as they are; LUTs and flip-flops within a tenth, or a few."""
    assert (estimate.dsp, estimate.bram36) == (measured.dsp, measured.bram36)
    assert estimate.lut == pytest.approx(measured.lut, rel=0.1, abs=12)
    assert estimate.ff == pytest.approx(measured.ff, rel=0.1, abs=12)


def test_a_zynq_has_room_for_the_default_engine():
    """Its slices and block RAM are counted by hand; 220 DSP48E1, 140 RAMB36, 53,200 LUTs and 106,400 flip-flops are
    there."""
    used, board = EngineDesign(engine=DEFAULT).resources, load_board("zedboard")
    assert used.dsp == 32 * 13 // 2 + 8
    # 13 banks and 4 blocks of 2,048 words of 64 bits; behind the array tables, outputs, and rows that are pooled.
    assert used.bram36 == 13 * 4 + 4 * 4 + EngineDesign(engine=DEFAULT).finish.resources.bram36
    assert used.bram36 <= board.bram36
    assert used.lut <= board.lut
    assert used.ff <= board.ff


def test_what_joins_the_components_takes_little():
    for engine in (SMALL, DEFAULT):
        design = EngineDesign(engine=engine)
        parts = sum((part.resources for part in design.components.values()), Resources())
        assert (design.resources.dsp, design.resources.bram36) == (parts.dsp, parts.bram36)
        assert 0 < design.resources.lut - parts.lut < 300
        assert 0 < design.resources.ff - parts.ff < 300


@pytest.mark.long
def test_components():
    """Each alone; the small engine is measured in one piece."""
    found = synthesis.synthesise(EngineDesign(engine=WIDE), with_paths=True)
    for row in found.rows:
        check(row.estimate, row.measured)
        assert row.path is None or row.path.delay <= LONGEST, row
    check(found.estimate, found.measured)


@pytest.mark.long
def test_the_whole():
    """The small engine in one piece."""
    design = EngineDesign(engine=SMALL)
    (measured,) = synthesis.measure([design])
    check(design.resources, measured)


#: Components that several cores share, or that are made otherwise because the cores share others.
SHARED = ("memory_side", "steps", "lanes", "align_maps", "align_weights", "align_addends", "output_words")


@pytest.mark.long
@pytest.mark.parametrize(("cores", "bus_bytes"), [(4, 8), (16, 64)])
def test_components_of_several_cores(cores, bus_bytes):
    """What differs from one core: shared units, and buffers whose words are brought to their banks once."""
    design = EngineDesign(engine=EngineConfig(cores=cores, map_words=1024, weight_steps=1024, bus_bytes=bus_bytes))
    parts = [design.components[name] for name in (*SHARED, "maps_0", "weights_0")]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        check(part.resources, measured)
        assert path is None or path.delay <= LONGEST, part


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{"kept_words": 22528}, {"kept_words": 2048}, {"kept_words": 8192, "bus_bytes": 32}])
def test_the_memory_side_with_a_map_memory(sizes):
    """One bank, many, and rows of several words: four block RAMs for each 2,048 words of 64 bits."""
    part = EngineDesign(engine=EngineConfig(**sizes)).memory_side
    (measured,) = synthesis.measure([part])
    check(part.resources, measured)
    assert measured.lut == pytest.approx(part.resources.lut, rel=0.05)
    assert measured.bram36 == sizes["kept_words"] // 512


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{"requantisers": 16}, {"requantisers": 32, "bus_bytes": 16}, {"lut_pixels": 3}])
def test_further_requantisers_and_products_in_luts(sizes):
    """Components that they change: the array, the drain and the finish."""
    design = EngineDesign(engine=EngineConfig(pixels=7, map_words=512, weight_steps=512, **sizes))
    parts = [design.components[name] for name in ("array", "drains", "finish")]
    for part, measured, path in zip(parts, *synthesis.measure_paths(parts), strict=True):
        check(part.resources, measured)
        assert measured.lut == pytest.approx(part.resources.lut, rel=0.05, abs=12)
        assert path is None or path.delay <= LONGEST, part


@pytest.mark.long
def test_a_map_memory_in_ultra_ram():
    """One UltraRAM for each 4,096 words of 64 bits of a row, in two banks."""
    part = MapMemoryConfig(engine=EngineConfig(kept_words=16384, kept_rows=4096))
    (measured,) = synthesis.measure([part], ULTRASCALE_PLUS)
    assert (measured.uram, measured.bram36) == (part.resources.uram, 0) == (4, 0)


def test_a_virtex_has_room_for_16_cores():
    """With the widest bus, all slices but 144, and two thirds of the LUTs: 42 for each multiply-add."""
    engine = EngineConfig(cores=16, map_words=1024, bus_bytes=64)
    used, board = EngineDesign(engine=engine).resources, load_board("vc709")
    assert used.dsp == 16 * (32 * 13 // 2 + 8) == board.dsp - 144
    assert used.bram36 <= board.bram36
    assert used.lut <= min(42 * engine.multipliers, 2 / 3 * board.lut)
    assert used.ff <= 0.45 * board.ff


def test_as_many_cores_as_fit_are_16_on_a_virtex():
    """85 % of the LUTs, all block RAM: map buffers of 1,024 words."""
    network = alone(conv(channels=64, maps=128, kernel=1, size=(13, 16)))
    made = plan.make(network, load_board("vc709"), template="engine", array=(8, 13), bus_bits=512)
    engine = engine_group(made.groups[0]).engine
    assert (engine.cores, engine.map_words, engine.weight_steps) == (16, 1024, 2048)
