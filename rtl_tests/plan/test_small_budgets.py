"""Budgets that no plan keeps: they are refused before any group is searched, with the option as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen import boards, plan
from hwgen.errors import PlanError
from hwgen.program import compile as compiler
from hwgen.templates.search import GroupSearch

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
def test_few_luts(digits, no_search, options):
    """Six layers by themselves take 1,473 LUTs with the smallest unroll factors, and 1,321 as one group."""
    with pytest.raises(PlanError, match=r"^--lut 500 is too few: .* takes about 1,321: allow more \(--lut\)"):
        plan.make(digits, BOARD, lut=500, **options)


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
