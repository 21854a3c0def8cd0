"""Plans whose products are in DSP slices, in LUTs or in both: budgets, objectives, documents, notes."""

from __future__ import annotations

import pytest
from low_bits import four_convolutions

from hwgen import boards, network, plan
from hwgen.errors import PlanError
from hwgen.network.graph import Network
from hwgen.network.onnx.importer import to_network
from hwgen.options import LUT_SHARE
from hwgen.report import plan as report

BOARD = boards.load("zedboard")
LUTS = int(LUT_SHARE * BOARD.lut)


@pytest.fixture(scope="module")
def four() -> Network:
    """Four convolutions of 4 bits on 256 pixels: 432 products for a pixel of the first, 2,304 for the others."""
    return to_network(four_convolutions(4), "four")


@pytest.fixture(scope="module")
def lenet() -> Network:
    return network.load("lenet5")


@pytest.fixture(scope="module")
def mixed(four) -> plan.Plan:
    return plan.make(four, BOARD, multipliers="auto")


def test_slices_alone(four):
    """By hand: 256 * (432 + 3 * 2304) products, four in each of 220 slices, take 2,137 cycles.

    With whole folds a pixel takes 9 cycles, and 36 with one product in a slice.
    """
    assert plan.make(four, BOARD, multipliers="dsp", macs_per_dsp="auto").interval == 2304
    assert plan.make(four, BOARD, multipliers="dsp").interval == 9216


def test_both(mixed):
    """LUTs beyond the slices reach a third of the interval, within both budgets."""
    assert mixed.interval is not None
    assert mixed.interval <= 768
    assert mixed.resources.dsp <= BOARD.dsp
    assert 0.5 * LUTS < mixed.resources.lut <= LUTS
    assert any(layer.lut_lanes for layer in mixed.layers)


def test_document(mixed, four):
    """A plan that is read again has the same hardware."""
    again = plan.read(plan.write(mixed), four, BOARD)
    assert again.layers == mixed.layers
    assert again.resources == mixed.resources
    assert [layer.cycles for layer in again.configs()[0].layers] == [
        layer.cycles for layer in mixed.configs()[0].layers
    ]


def test_text(mixed):
    text = report.table(mixed)
    assert "products in LUTs: " in text
    assert (
        f"at most {LUTS:,} of {BOARD.lut:,} LUTs are used, so that the design can be routed: --lut {BOARD.lut}" in text
    )
    for name, layer in zip(mixed.layers, mixed.configs()[0].layers, strict=True):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name.name} "))
        assert f" {layer.resources.lut:,} " in line


@pytest.mark.parametrize("lut", [12_000, pytest.param(25_000, marks=pytest.mark.long), 53_200])
def test_budget_of_luts(four, lut):
    """``--lut`` replaces the share; composed LUTs are within it, and not far below."""
    limited = plan.make(four, BOARD, multipliers="auto", lut=lut)
    assert limited.resources.lut <= lut
    faster = plan.make(four, BOARD, multipliers="auto", lut=min(2 * lut, BOARD.lut))
    assert faster.interval is not None
    assert limited.interval is not None
    assert faster.interval <= limited.interval


def test_luts_alone(four):
    """Only requantisers take slices."""
    alone = plan.make(four, BOARD, multipliers="lut")
    assert all(layer.lut_lanes == layer.tm for layer in alone.layers)
    assert alone.resources.dsp == sum(layer.finish.multipliers for layer in alone.configs()[0].layers)
    assert alone.interval is not None
    assert alone.interval <= 1024


def test_fewest_slices(four, mixed):
    """At an interval that slices alone reach, LUTs save nearly all of them."""
    slices = plan.make(four, BOARD, multipliers="dsp", macs_per_dsp="auto", objective="dsp", interval=2304)
    fewest = plan.make(four, BOARD, multipliers="auto", objective="dsp", interval=2304)
    assert fewest.interval is not None
    assert fewest.interval <= 2304
    assert fewest.resources.dsp < slices.resources.dsp / 10
    assert fewest.resources.lut <= LUTS


def test_latency(four, mixed):
    soon = plan.make(four, BOARD, multipliers="auto", objective="latency")
    assert soon.latency <= mixed.latency
    assert soon.resources.lut <= LUTS


@pytest.mark.long
def test_too_few_luts(four):
    """What slices alone need is refused for its LUTs, in either way."""
    with pytest.raises(PlanError, match=r"LUTs"):
        plan.make(four, BOARD, multipliers="lut", lut=1000)
    with pytest.raises(PlanError, match=r"LUTs"):
        plan.make(four, BOARD, multipliers="auto", lut=1000)


@pytest.mark.parametrize(
    "options",
    [
        {"template": "pyramid"},
        {"template": "engine", "cores": 1, "array": (8, 13)},
        {"groups": "conv1-pool1,conv2-fc3"},
        {"groups": "conv1-pool1,conv2-fc3", "in_turn": True, "macs_per_dsp": "auto"},
        {"weights": "runtime"},
    ],
)
def test_what_multiplies_in_slices_alone(lenet, options):
    """Where LUTs can't multiply, ``auto`` plans as ``dsp`` does, with its default of one product in a slice."""
    by_resource = [plan.make(lenet, BOARD, multipliers=name, **options) for name in ("dsp", "auto")]
    assert plan.write(by_resource[0]) == plan.write(by_resource[1])
    assert not any(layer.lut_lanes for layer in by_resource[1].layers)
    assert not any("LUTs" in note for note in by_resource[1].notes)
