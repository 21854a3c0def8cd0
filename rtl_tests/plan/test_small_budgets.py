"""Budgets that no plan keeps: they are refused before any group is searched, with the option as it is typed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from onnx_models import random_graph, with_outputs

import hwgen
from hwgen import boards, plan
from hwgen.errors import HwgenError, PlanError
from hwgen.network.onnx.importer import to_network
from hwgen.plan.choose import task_of
from hwgen.plan.request import Request
from hwgen.program import compile as compiler
from hwgen.templates.compose import input_formats
from hwgen.templates.fewest_luts import surely_exceeds
from hwgen.templates.pyramid import Pyramid, PyramidSearch
from hwgen.templates.search import GroupSearch, layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.unroll import factor_grid
from hwgen.templates.work import Unroll

BOARD = boards.load("zedboard")
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="module")
def digits():
    return hwgen.load(DIGITS).network


@pytest.fixture
def no_search(monkeypatch):
    """No group of a stream or pyramids is searched, and nothing compiled for an engine."""

    def searched(*_, **__):
        raise AssertionError("searched")

    monkeypatch.setattr(GroupSearch, "best", searched)
    monkeypatch.setattr(compiler, "schedule", searched)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"template": "stream"},
        {"template": "pyramid"},
        {"groups": "conv1-pool1,conv3-fc"},
        {"in_turn": True},
        {"objective": "latency"},
        {"multipliers": "dsp"},
    ],
    ids=str,
)
@pytest.mark.parametrize("luts", [500, 1200])
def test_few_luts(digits, no_search, luts, options):
    """Six layers by themselves take 1,473 LUTs with the smallest unroll factors, and 1,321 as one group."""
    with pytest.raises(PlanError, match=rf"^--lut {luts:,} is too few: .* takes about 1,321: allow more \(--lut\)"):
        plan.make(digits, BOARD, lut=luts, **options)


@pytest.mark.parametrize(
    ("model", "options", "together"),
    [
        ("lenet5", {"lut": 1400}, "1,559"),
        ("resnet8", {"lut": 3000}, "3,905"),
        ("resnet8", {"lut": 3600, "multipliers": "dsp"}, "3,905"),
        (DIGITS, {"lut": 1400, "multipliers": "lut"}, "1,495"),
    ],
)
def test_few_luts_of_other_networks(no_search, model, options, together):
    """Products in LUTs take more than the 1,321 LUTs of digits with DSP slices."""
    with pytest.raises(PlanError, match=rf" is too few: .* takes about {together}: allow more \(--lut\)"):
        plan.make(hwgen.load(model).network, BOARD, **options)


def all_choices(task, layer, work):
    """All unroll factors of up to two pixels, with products in slices, in LUTs and in both, as the goal allows."""
    in_luts = layer.weight_count and task.goal.multipliers != "dsp"
    for tn, tm, tk in zip(*(axis.tolist() for axis in factor_grid(work)), strict=True):
        for lanes in {0, tm // 2, tm} if in_luts else {0}:
            if lanes == tm or not (layer.weight_count and task.goal.needs_luts):
                yield from (Unroll(tn, tm, tk, tp, lanes) for tp in range(1, 1 + min(2, layer.output.width)))


def fewest_of(task, layer, unrolls):
    """The fewest LUTs of a layer by some unroll factors, with any rows of the line buffer."""
    stage, counts = stage_of(layer, task.board.family), []
    for unroll in unrolls:
        plan = layer_plan(stage, unroll, unroll.tp, task.multipliers[layer.name])
        for rows in range(stage.least_rows, plan.line_rows + 1) if stage.has_rows else [0]:
            with suppress(HwgenError):
                chosen = replace(plan, line_rows=rows)
                sources = input_formats(stage, chosen, [unroll.tp] * len(layer.inputs))
                counts.append(stage.layer(chosen, sources, [None]).resources.lut)
    return min(counts)


@pytest.mark.parametrize("multipliers", ["dsp", "auto", "lut"])
@pytest.mark.parametrize(
    ("seed", "most"), [(1, 40), *(pytest.param(seed, 10**9, marks=pytest.mark.long) for seed in range(8))]
)
def test_the_bound_refuses_nothing_that_fits(seed, most, multipliers):
    """It is not above the LUTs of the layers of a random network, each with its best factors of all or of many.

    It is at most 8 % below: of the factors with few products, all are tried.
    """
    network = to_network(with_outputs(random_graph(seed), 1 + seed % 3), "random", "random")
    task = task_of(network, BOARD, Request(multipliers=multipliers, objective="interval").goal(BOARD), None)
    fewest = 0
    for layer, work in zip(network.layers, task.works, strict=True):
        choices = sorted(
            all_choices(task, layer, work), key=lambda unroll: unroll.tn * unroll.tm * unroll.tk * unroll.tp
        )
        few, others = choices[: most // 2], choices[most // 2 :]
        fewest += fewest_of(task, layer, few + Random(seed).sample(others, min(len(others), most // 2)))
    assert not surely_exceeds(task, fewest)
    assert surely_exceeds(task, int(0.92 * fewest))


@pytest.mark.parametrize("overlap", ["reuse", "recompute"])
@pytest.mark.parametrize("tile", [(1, 1), (1, 2), (2, 2)])
def test_pyramids_take_more_luts(digits, tile, overlap):
    """The bound, of layers row by row, holds for pyramids: of digits up to its last pool, with the smallest factors."""
    task = task_of(digits.part(0, 5), BOARD, Request(multipliers="dsp", objective="interval").goal(BOARD), None)
    group = PyramidSearch(task, 0, 5, False, Pyramid(tile=tile, overlap=overlap))
    assert not surely_exceeds(task, group._smallest(group.search.cheapest_of_all).resources.lut)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lut": 500},
            r"[\d,]+ LUTs, but 500 may be used on zedboard \(--lut\): .*, or allow more \(--lut\)$",
        ),
        (
            {"bram": 1},
            r"61 BRAM36, but 1 may be used on zedboard \(--bram\): .*, or allow more \(--bram\)$",
        ),
        ({"dsp": 1}, r"plan needs 88 DSP slices, but 1 may be used on zedboard: .* or allow more \(--dsp\)$"),
    ],
)
def test_engines(digits, no_search, options, message):
    with pytest.raises(PlanError, match=message):
        plan.make(digits, BOARD, template="engine", **options)


def test_a_budget_that_is_kept(digits):
    """The bound refuses nothing that fits: 2,000 LUTs are enough for one group."""
    made = plan.make(digits, BOARD, lut=2000)
    assert len(made.groups) == 1
    assert made.resources.lut <= 2000
