"""Resources of the engine: estimates beside what Yosys makes of its components; the default one is in bench/."""

from __future__ import annotations

import pytest
from programs import SMALL

from hwgen.boards import load as load_board
from hwgen.emit import synthesis
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign

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


@pytest.mark.long
def test_components_of_several_cores():
    """What differs from one core: shared units, and the map buffer, which shares the rotation of its addresses."""
    design = EngineDesign(engine=EngineConfig(cores=4, map_words=1024, weight_steps=1024))
    parts = [design.components[name] for name in ("memory_side", "steps", "lanes", "maps_0")]
    for part, measured in zip(parts, synthesis.measure(parts), strict=True):
        check(part.resources, measured)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [{"kept_words": 22528}, {"kept_words": 2048}, {"kept_words": 8192, "bus_bytes": 32}])
def test_the_memory_side_with_a_map_memory(sizes):
    """One bank, many, and rows of several words: four block RAMs for each 2,048 words of 64 bits."""
    part = EngineDesign(engine=EngineConfig(**sizes)).memory_side
    (measured,) = synthesis.measure([part])
    check(part.resources, measured)
    assert measured.lut == pytest.approx(part.resources.lut, rel=0.05)
    assert measured.bram36 == sizes["kept_words"] // 512


def test_a_virtex_has_room_for_16_cores():
    """With the widest bus, all slices but 144, and 87 % of the LUTs."""
    engine = EngineConfig(cores=16, map_words=1024, bus_bytes=64)
    used, board = EngineDesign(engine=engine).resources, load_board("vc709")
    assert used.dsp == 16 * (32 * 13 // 2 + 8) == board.dsp - 144
    assert used.bram36 <= board.bram36
    assert used.lut <= 0.87 * board.lut
    assert used.ff <= 0.85 * board.ff
