"""The interval of a plan is the composed schedule's, and no plan within the same budgets has a shorter one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import onnx
import pytest
from all_factors import AllFactors
from burst_models import burst_model

import hwgen
from hwgen import boards
from hwgen.errors import ConfigError, PlanError
from hwgen.network import load as load_network
from hwgen.network.ops import Conv
from hwgen.plan import planner
from hwgen.schedule.solve import endless_cycles
from hwgen.templates.compose import compose
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll

KEPT = Path(__file__).resolve().parent.parent / "kept"

#: Networks with readers that take their input in bursts: options, interval, DSP slices. With narrow beats in all FIFOs
#: the same factors would have intervals of 156, 5,632 and 720 cycles.
BURSTS = {
    "upsample": ({"template": "stream", "multipliers": "dsp", "dsp": 8}, 108, 8),
    "unet": ({"multipliers": "dsp", "dsp": 150}, 4_096, 146),
    "dominated": ({"dsp": 40, "lut": 10_000}, 420, 40),
}


@pytest.mark.parametrize("name", BURSTS)
def test_bursts(name, tmp_path):
    """As short as the cycles of the slowest layer, in no more slices; the plan is read back as it was."""
    options, interval, slices = BURSTS[name]
    model = hwgen.load(str(KEPT / f"interval-{name}.onnx"))
    design = model.plan(board="zedboard", **options)
    assert design.interval == interval == max(layer.cycles for layer in design.config.layers)
    assert design.resources["dsp"] <= slices
    (path := tmp_path / "plan.json").write_text(design.to_json())
    assert model.plan(board="zedboard", plan=path).to_json() == design.to_json()


#: DSP slices of the models of successive seeds: few, so that layers share them out.
SLICES = (14, 18, 24, 32, 48)

#: Seeds of the default run: some plans have width converters before FIFOs.
QUICK = (0, 12, 18, 24)


def seeds(count: int, quick: tuple[int, ...] = QUICK) -> list[Any]:
    """Return seeds as parameters of a test; the default run has only those of ``quick``."""
    return [pytest.param(seed, marks=() if seed in quick else pytest.mark.long) for seed in range(count)]


def planned(seed: int, folder: Path, **options: Any) -> hwgen.Design:
    onnx.save(burst_model(seed), path := folder / "model.onnx")
    return hwgen.load(str(path)).plan(board="zedboard", template="stream", **options)


@pytest.mark.parametrize("seed", seeds(48))
def test_all_factors(seed, tmp_path):
    """No factors at all within the slices have a shorter interval, nor the same interval in fewer slices."""
    slices = SLICES[seed % len(SLICES)]
    design = planned(seed, tmp_path, multipliers="dsp", dsp=slices)
    network, layers = design.network, design.config.layers
    finishes = {
        op.name: layer.finish.multipliers // (layer.fifo_lanes * layer.pixels)
        for op, layer in zip(network.layers, layers, strict=True)
        if isinstance(op, Conv)
    }
    search = AllFactors(network, finishes)
    assert design.interval == search.shortest(slices)
    assert design.resources["dsp"] == search.fewest(design.interval)


@pytest.mark.long
def test_all_plans_of_a_small_network():
    """Every plan of two layers, composed: factors, widths of FIFOs, and the converter on either side of its FIFO."""
    network = load_network(str(KEPT / "interval-upsample.onnx"))
    conv, upsample = network.layers
    shortest: dict[int, int] = {}
    for tn, tm, tp, lanes, taken in product(*(range(1, most + 1) for most in (3, 6, 3, 6, 6))):
        if lanes > tm or lanes < -(-tm // -(-3 // tn)) or tn * tm * tp > 24:
            continue
        plans = [
            replace(layer_plan(stage_of(layer), unroll, tp), fifo_depths=(999,))
            for layer, unroll in ((conv, Unroll(tn, tm, 1, tp)), (upsample, Unroll(taken, taken, 1, tp)))
        ]
        for first in ((), (True,)):
            try:
                config = compose(network, [replace(plans[0], fifo_lanes=lanes, converts_first=first), plans[1]])
            except ConfigError:
                assert first
                continue
            cycles = endless_cycles(config).interval
            shortest[config.multipliers] = min(cycles, shortest.get(config.multipliers, cycles))
    for slices in (3, 5, 8, 12, 20):
        plan = planner.make(network, boards.load("zedboard"), dsp=slices, multipliers="dsp", template="stream")
        assert plan.groups[0].steady.interval == min(shortest[count] for count in shortest if count <= slices)


#: Objectives, each with the figure that it minimises.
AIMS = {
    "interval": lambda design: design.interval,
    "latency": lambda design: design.latency,
    "traffic": lambda design: design.plan.groups[0].map_bytes,
    "dsp": lambda design: design.resources["dsp"],
}

#: Share of a price (40 LUTs for a slice) that another plan of the same interval can save, because the rule for LUTs
#: that the search counts by is not exact.
TOLERANCE = 0.05


@pytest.mark.parametrize("options", [{"multipliers": "dsp"}, {"lut": 6_000}], ids=["slices", "both"])
@pytest.mark.parametrize("seed", seeds(24, quick=(18,)))
def test_no_objective_beats_another_at_its_aim(seed, options, tmp_path):
    slices = SLICES[seed % len(SLICES)]
    designs = {aim: planned(seed, tmp_path, objective=aim, dsp=slices, **options) for aim in AIMS}
    for aim, figure in AIMS.items():
        assert figure(designs[aim]) == min(map(figure, designs.values())), aim


@pytest.mark.parametrize("seed", seeds(24, quick=(12,)))
def test_more_slices_are_never_worse(seed, tmp_path):
    """An interval is never longer, and takes as few slices."""
    figures = []
    for slices in (16, 20, 28, 44):
        design = planned(seed, tmp_path, multipliers="dsp", dsp=slices)
        figures.append((design.interval, design.resources["dsp"]))
    for (before, fewer), (after, more) in pairwise(figures):
        assert after < before or (after, more) == (before, fewer)


@pytest.mark.parametrize("seed", seeds(24, quick=(12,)))
def test_larger_budgets_are_never_worse(seed, tmp_path):
    """Neither more slices nor more LUTs, nor both resources for products instead of one, give a longer interval.

    A plan of the same interval may cost more than one of smaller budgets only by what the rule for LUTs may miss, and
    no such plan has fewer slices and fewer LUTs.
    """
    budgets = product((15, 40), (4_000, 9_000), ("dsp", "lut", "auto"))
    plans = {}
    for budget in budgets:
        with suppress(PlanError):
            slices, luts, resource = budget
            limits = {"dsp": slices} if resource == "dsp" else {"dsp": slices, "lut": luts}
            design = planned(seed, tmp_path, multipliers=resource, **limits)
            plans[budget] = design.interval, design.resources["dsp"], design.resources["lut"]
    for (budget, (interval, slices, luts)), (smaller, other) in product(plans.items(), repeat=2):
        if smaller[0] > budget[0] or smaller[1] > budget[1] or budget[2] not in (smaller[2], "auto"):
            continue
        assert interval <= other[0], (budget, smaller)
        if interval == other[0]:
            assert 40 * slices + luts <= (1 + TOLERANCE) * (40 * other[1] + other[2]), (budget, smaller)
            assert (slices, luts) == other[1:] or not (slices >= other[1] and luts >= other[2]), (budget, smaller)
