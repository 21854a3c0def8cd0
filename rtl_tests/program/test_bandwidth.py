"""Programs made for slow memories, and the bounds that the engine's cycles are compared with."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from engine_bandwidth import bounds, draw
from programs import SMALL, alone, check, conv

from hwgen.gateware.engine.config import EngineConfig
from hwgen.program.compile import schedule
from hwgen.program.tiles import Tiling
from hwgen.report.picture import picture
from hwgen.schedule.engine import EngineSchedule, MemoryTiming


def test_the_bound_of_one_job():
    """16 maps of 8 channels, 1x1, 4 x 5 pixels, on 5 lanes: 4 groups of 2 steps in 2 folds, but a word for each pixel.

    The port: the job's 18 words, 20 of the input, 16 of weights, 16 parameters, 40 of the output; twice at pace 2.
    """
    tiling = Tiling(rows=4, columns=5, box_rows=4, channels=8, taps=1, maps_stay=True, folds=2)
    layer = conv(kernel=1, channels=8, maps=16, size=(4, 5))
    found = schedule(alone(layer), replace(SMALL, output_words=256), tilings={"conv": tiling})
    assert len(found.jobs) == 1
    assert bounds(found, 1) == (40, 110, 110, 110)
    assert bounds(found, 2) == (40, 220, 220, 220)
    assert bounds(found, Fraction(4, 3)) == (40, 147, 147, 147)


@pytest.mark.parametrize("pace", [1, 2, 8])
def test_cycles_are_near_the_bound(pace):
    """Once a layer is long enough that its ends weigh little."""
    found = schedule(alone(conv(channels=32, maps=32, size=(40, 40))), EngineConfig(), pace=pace)
    *_, least = bounds(found, pace)
    cycles = EngineSchedule(found.engine, found.jobs, MemoryTiming(pace=pace)).run().cycles
    assert least < cycles < 1.15 * least


def test_slow_memories_ask_for_other_tiles():
    """A program made for its memory moves fewer bytes, and takes no more cycles there."""
    network = alone(conv(channels=24, maps=40, size=(12, 12)))
    timing = MemoryTiming(pace=8)
    runs = [EngineSchedule(SMALL, schedule(network, SMALL, pace=pace).jobs, timing).run() for pace in (1, 8)]
    other, own = (sum(run.read) + sum(run.written) + run.fetched for run in runs)
    assert own <= other
    assert runs[1].cycles <= runs[0].cycles
    check(schedule(network, SMALL, pace=8))


def test_the_plot():
    row = {"network": "net", "bus": 8, "array": 10, "port": 20, "by_layers": 25, "by_groups": 24, "cycles": 26}
    rows = [row | {"pace": pace} for pace in (1, 2, 4)]
    drawn = picture("title", lambda figure: draw(figure, rows), "svg", (6, 4))
    assert b"bytes a cycle" in drawn
    assert drawn == picture("title", lambda figure: draw(figure, rows), "svg", (6, 4))
