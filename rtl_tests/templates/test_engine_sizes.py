"""Sizes of an engine for a board: products in LUTs, and the shape of the array for one network."""

from __future__ import annotations

import pytest
from programs import alone, conv

import hwgen
from hwgen import boards, options, plan
from hwgen.gateware.engine import config
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.report.plan import table
from hwgen.templates.engine import engine_group

BOARD = boards.load("zedboard")
#: A step for each pixel group: 8 sums at a time leave 13 times as slowly.
SHALLOW = alone(conv(kernel=1, channels=4, maps=64, size=(12, 13)))
#: As many steps for each pixel group as 13 pixels have sums, and all slices at work.
DEEP = alone(conv(channels=64, maps=16, kernel=3, size=(13, 26)))


def engine_of(network, **options):
    return engine_group(plan.make(network, BOARD, template="engine", **options).groups[0])


def test_products_in_luts_fill_most_of_a_board():
    """13 pixels in slices; with 6 more 38,189 LUTs are used, and with 10 more 47,893 would be: 80 % are 42,560."""
    found = engine_of(SHALLOW, lut_pixels="auto")
    assert (found.engine.pixels, found.engine.lut_pixels, found.engine.multipliers) == (19, 6, 608)
    assert found.resources.dsp == 13 * 16 + 8
    assert found.resources.lut <= 0.8 * BOARD.lut
    larger = {"pixels": 23, "lut_pixels": 10}
    assert EngineDesign(engine=type(found.engine)(**larger)).resources.lut > 0.8 * BOARD.lut


@pytest.mark.parametrize(
    ("options", "pixels", "in_luts"),
    [
        ({"lut_pixels": 4}, 17, 4),
        ({"lut_pixels": 4, "array": (8, 11)}, 11, 4),
        ({"lut_pixels": "auto", "dsp": 120}, 17, 10),
        ({"lut_pixels": "auto", "array": (8, 11)}, 11, 0),
        ({"lut_pixels": "auto", "requantisers": 16, "array": (8, 13)}, 13, 1),
    ],
)
def test_pixels_in_slices_and_in_luts(options, pixels, in_luts):
    """7 pixels take 112 of 120 slices, beside 8 requantisers; 12 take 192 of 220, beside 16."""
    engine = engine_of(SHALLOW, **options).engine
    assert (engine.pixels, engine.lut_pixels) == (pixels, in_luts)


@pytest.mark.long
def test_the_fastest_shape():
    """More requantisers where the drain is the bound; `plan` says so, and `auto` takes them."""
    made = plan.make(SHALLOW, BOARD, template="engine")
    assert "requantisers also fits, and would take some" in table(made)
    before, after = engine_group(made.groups[0]), engine_of(SHALLOW, array="auto")
    assert after.engine.requantisers > 8
    assert after.cycles < 0.95 * before.cycles
    assert after.resources.dsp <= BOARD.dsp
    assert "also fits" not in table(plan.make(SHALLOW, BOARD, template="engine", array="auto"))


def test_the_default_shape_is_the_fastest():
    made = plan.make(DEEP, BOARD, template="engine")
    assert "also fits" not in table(made)
    assert engine_of(DEEP, array="auto").engine == engine_group(made.groups[0]).engine


def test_given_requantisers_stay():
    assert engine_of(SHALLOW, array="auto", requantisers=8).engine.requantisers == 8


def test_options_offer_the_requantisers_of_an_engine():
    """Options are read without the gateware, whose import takes longer."""
    assert options.REQUANTISERS == config.REQUANTISERS


@pytest.mark.long
def test_networks_on_a_zedboard_with_products_in_luts():
    """Marks of the project, by the exact schedule: 8 bytes a cycle, all 220 slices, 80 % of the LUTs."""
    vgg16, yolo = (
        engine_of(hwgen.load(name).network, bandwidth=0.8, lut_pixels="auto")
        for name in ("vgg16", "yolov3-tiny@416x416")
    )
    assert sum(layer.macs for layer in vgg16.network.layers) / vgg16.cycles >= 480
    assert yolo.cycles <= 6_200_000
    assert vgg16.resources.lut <= 0.8 * BOARD.lut
    assert vgg16.resources.dsp <= 220
