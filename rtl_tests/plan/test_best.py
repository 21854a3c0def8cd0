"""Planning that is interrupted: the best plan so far is printed, and no file is written."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hwgen import boards, network, plan
from hwgen.cli import main as cli
from hwgen.plan import search
from hwgen.plan.best import watched
from hwgen.templates.search import GroupSearch

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


def interrupted(monkeypatch, owner: type, name: str) -> None:
    """Send SIGINT to this process when a method is called."""
    monkeypatch.setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))


@pytest.fixture
def command(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    return ["plan", str(DIGITS), "--board", "zedboard", "--dsp", "90", "--multipliers", "dsp"]


def test_the_best_plan_so_far_is_printed(command, tmp_path, monkeypatch, capsys):
    """The group is found; it is interrupted before groups in turn are compared with it."""
    made = plan.make(network.load(DIGITS), boards.load("zedboard"), dsp=90, multipliers="dsp")
    interrupted(monkeypatch, search.PlanSearch, "_compared")
    written = tmp_path / "plan.json"
    assert cli.main([*command, "-o", str(written)]) == 130
    out, err = capsys.readouterr()
    assert "interrupted: this is the best plan that was found so far; nothing is written" in out.splitlines()
    assert err.splitlines()[-1] == "hwgen: interrupted"
    assert not written.exists()
    assert f"one frame: latency {made.latency:,} cycles, interval {made.interval:,} cycles" in out.splitlines()


def test_no_plan_so_far(command, monkeypatch, capsys):
    interrupted(monkeypatch, GroupSearch, "_buffered")
    assert cli.main(command) == 130
    assert capsys.readouterr().out.splitlines()[-1] == "interrupted before any plan was found; nothing is written"


def test_plans_are_watched():
    """The best plan that is reported is the plan that is made."""
    with watched() as best:
        made = plan.make(network.load(DIGITS), boards.load("zedboard"), dsp=70, multipliers="dsp")
    assert best.plan is not None
    assert (best.plan.interval, best.plan.latency) == (made.interval, made.latency)
