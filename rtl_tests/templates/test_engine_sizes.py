"""Sizes of an engine for a board: products in LUTs, and the shape of the array for one network."""

from __future__ import annotations

from dataclasses import replace

import pytest
from programs import ONE_CORE, alone, conv

import hwgen
from hwgen import boards, options, plan
from hwgen.errors import PlanError
from hwgen.gateware.engine import config
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.network.graph import Network
from hwgen.report.plan import table
from hwgen.templates.engine import EngineTemplate, engine_group, pace_of
from hwgen.templates.engine_sizes import fitting_engines

BOARD = boards.load("zedboard")
#: A step for each pixel group: 8 sums at a time leave 13 times as slowly.
SHALLOW = alone(conv(kernel=1, channels=4, maps=64, size=(12, 13)))
#: As many steps for each pixel group as 13 pixels have sums, and all slices at work.
DEEP = alone(conv(channels=64, maps=16, kernel=3, size=(13, 26)))


def engine_of(network, **options):
    return engine_group(plan.make(network, BOARD, template="engine", **options).groups[0])


def test_products_in_luts_fill_most_of_a_board():
    """13 pixels in slices; with 6 more 38,189 LUTs are used, and with 10 more 47,893 would be: 80 % are 42,560."""
    found = engine_of(SHALLOW, lut_pixels="auto", cores=1, array=(8, 19))
    assert (found.engine.pixels, found.engine.lut_pixels, found.engine.multipliers) == (19, 6, 608)
    assert found.resources.dsp == 13 * 16 + 8
    assert found.resources.lut <= 0.8 * BOARD.lut
    larger = {"pixels": 23, "lut_pixels": 10}
    assert EngineDesign(engine=type(found.engine)(**larger)).resources.lut > 0.8 * BOARD.lut
    with pytest.raises(PlanError, match=r"LUTs, but lut_pixels auto takes 42,560 at most$"):
        engine_of(SHALLOW, lut_pixels="auto", cores=1, array=(8, 23))


@pytest.mark.parametrize(
    ("options", "pixels", "in_luts"),
    [
        ({"lut_pixels": 4, "array": (8, 17)}, 17, 4),
        ({"lut_pixels": 4, "array": (8, 11)}, 11, 4),
        ({"lut_pixels": "auto", "dsp": 120, "array": (8, 17)}, 17, 10),
        ({"lut_pixels": "auto", "array": (8, 11)}, 11, 0),
        ({"lut_pixels": "auto", "requantisers": 16, "array": (8, 13)}, 13, 1),
    ],
)
def test_pixels_in_slices_and_in_luts(options, pixels, in_luts):
    """7 pixels take 112 of 120 slices, beside 8 requantisers; 12 take 192 of 220, beside 16."""
    engine = engine_of(SHALLOW, cores=1, **options).engine
    assert (engine.pixels, engine.lut_pixels) == (pixels, in_luts)


def test_the_fastest_shape():
    """More requantisers where the drain is the bound; a plan of given sizes says so, and the default has them."""
    board = boards.load("ultra96-v2")
    made, best = (plan.make(SHALLOW, board, **options) for options in (ONE_CORE, {"template": "engine"}))
    assert "requantisers also fits, and would take some" in table(made)
    assert "by an estimate: without --cores and --array and --bus-bits the fastest engines are compared" in table(made)
    assert engine_group(best.groups[0]).engine.requantisers > 8
    assert best.interval < 0.7 * made.interval
    assert "also fits" not in table(best)


def test_a_small_shape_is_the_fastest():
    made = plan.make(DEEP, BOARD, **ONE_CORE)
    assert "also fits" not in table(made)
    assert engine_of(DEEP).engine == engine_group(made.groups[0]).engine


#: Convolutions of 3 x 3 pixels and of one: 9,584,640 and 1,064,960 multiply-adds.
TWO = Network(
    name="two",
    layers=(
        wide := replace(conv(channels=64, maps=64, kernel=3, size=(10, 26)), name="wide"),
        replace(conv(channels=64, maps=64, kernel=1, size=(10, 26)), name="narrow", input=wide.output),
    ),
)


@pytest.mark.parametrize(
    "board", ["zedboard", *(pytest.param(name, marks=pytest.mark.long) for name in ("ultra96-v2", "zc706"))]
)
def test_the_best_of_all_engines(board):
    """Every engine that fits, each by the exact schedule of its program: the default is within 2 % of the fastest."""
    board = boards.load(board)
    found = engine_group(plan.make(TWO, board, template="engine").groups[0])
    assert found.task is not None
    every = [
        EngineTemplate(engine=engine, memory=pace_of(board, engine)).grouped(TWO).cycles
        for engine in fitting_engines(found.task, all_cores=True)
    ]
    assert len(every) > 10
    assert found.cycles <= 1.02 * min(every)


@pytest.mark.parametrize(
    ("board", "times"),
    [
        ("ultra96-v2", 1.5),
        pytest.param("kv260", 3, marks=pytest.mark.long),
        pytest.param("zc706", 3, marks=pytest.mark.long),
        pytest.param("vc709", 5, marks=pytest.mark.long),
    ],
)
def test_a_whole_device(board, times):
    """As many slices as the network can use: so many times as fast as one core of 8 x 13."""
    board = boards.load(board)
    small, large = (plan.make(TWO, board, **options) for options in (ONE_CORE, {"template": "engine"}))
    assert small.interval >= times * large.interval


@pytest.mark.long
@pytest.mark.parametrize(("name", "board", "cycles"), [("vgg16", "vc709", 2_400_000), ("resnet18", "kv260", 1_290_000)])
def test_networks_on_a_whole_device(name, board, cycles):
    """37,600,000 and 4,560,000 cycles on one core of 8 x 13."""
    made = plan.make(hwgen.load(name).network, boards.load(board), template="engine")
    assert made.interval <= cycles


@pytest.mark.parametrize(
    "given",
    [{"cores": 1}, {"cores": 2}, {"array": (8, 5)}, {"array": (16, 5)}, {"bus_bits": 32}, {"requantisers": 16}],
)
def test_sizes_that_are_given_stay(given):
    engine = engine_of(TWO, **given).engine
    sizes = {
        "cores": engine.cores,
        "array": (engine.maps, engine.pixels),
        "bus_bits": 8 * engine.bus_bytes,
        "requantisers": engine.requantisers,
    }
    assert {name: sizes[name] for name in given} == given


def test_auto_is_the_default():
    assert engine_of(TWO, cores="auto", array="auto", bus_bits="auto").engine == engine_of(TWO).engine


def test_the_fewest_slices():
    """8 x 5 pixels in 80 slices, and 8 requantisers, are the smallest engine; a bound on the interval takes more."""
    smallest = engine_of(TWO, objective="dsp")
    assert smallest.resources.dsp == 88
    faster = engine_of(TWO, objective="dsp", interval=smallest.cycles // 2)
    assert 88 < faster.resources.dsp < engine_of(TWO).resources.dsp
    assert faster.cycles <= smallest.cycles // 2


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
